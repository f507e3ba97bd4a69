"""Each function, aggregate, type of CAST and nested access is in a text case, and in one with a null.

The cases run on every runtime with the same answer, so this is what makes the functions agree. What a case evaluates,
and with which values, is what the oracle does for it; what no runtime is compared with does not count.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from case_oracle import can_show_columns, events_of, heads_of, is_in_reach, node_of, oracle_results, program_of
from inside import AGGREGATES, CASTS, FUNCTIONS, Call, Cast, Entry, Expr, InTable, Like, StructMember
from oracle import conditions
from oracle.programs import program_matches
from test_cases import ACCEPTED, Case

OTHERS = {"contains of a list", "x ILIKE 'p'", "x NOT ILIKE 'p'", "x IN table"}
NESTED = {"x.y", "x[0]", "x['y']"}
WANTED = [
    *FUNCTIONS,
    *AGGREGATES,
    *(f"{word} AS {target}" for target in CASTS for word in ("CAST", "TRY_CAST")),
    *sorted(OTHERS | NESTED),
]


def form_of(expr: Expr, operands: list[Any]) -> str | None:
    """The form of an expression as it is in WANTED, given the values of its operands."""
    match expr:
        case Call("contains") if isinstance(operands[0], tuple):
            return "contains of a list"
        case Call(name):
            return str(name)
        case Cast():
            return f"{'TRY_CAST' if expr.lenient else 'CAST'} AS {expr.target}"
        case Like() if expr.ignores_case:
            return f"x {'NOT ILIKE' if expr.negated else 'ILIKE'} 'p'"
        case InTable():
            return "x IN table"
        case StructMember():
            return "x.y"
        case Entry():
            return "x['y']" if isinstance(operands[1], str) else "x[0]"
    return None


class Notes:
    """The forms that the oracle evaluates, and those of which an operand was null."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.with_null: set[str] = set()
        self.operands: list[list[Any]] = [[]]

    def evaluate(self, expr: Expr, *rest: Any) -> Any:
        self.operands.append([])
        value = EVALUATE(expr, *rest)
        operands = self.operands.pop()
        self.operands[-1].append(value)
        form = form_of(expr, operands)
        self.used |= {form} - {None}
        if any(operand is None for operand in operands):
            self.with_null |= {form} - {None}
        return value


EVALUATE = conditions.evaluate


@pytest.fixture(scope="module")
def notes() -> Notes:
    found = Notes()
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("oracle.") and getattr(module, "evaluate", None) is EVALUATE:
                patch.setattr(module, "evaluate", found.evaluate)
        for case in ACCEPTED:
            evaluate_case(case)
    return found


def evaluate_case(case: Case) -> None:
    """What the cases compare with the oracle: rows of RETURN only if the oracle can show them."""
    if heads_of(case):
        oracle_results(case)
    elif is_in_reach(case):
        *before, asked = program_of(case).statements
        shown = asked if can_show_columns(case) else replace(node_of(case), returns=())
        program_matches((*before, shown), events_of(case))


@pytest.mark.parametrize("form", WANTED)
def test_is_in_a_case(form: str, notes: Notes) -> None:
    assert form in notes.used


@pytest.mark.parametrize("form", WANTED)
def test_is_in_a_case_with_null(form: str, notes: Notes) -> None:
    assert form in notes.with_null
