"""Conditions on a state: where they hold in a joint distribution, and their probability where variables are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.errors import LimitError
from ensue.kernels.joint import Floats
from ensue.nodes.states import (
    ANYONE,
    NOBODY,
    Both,
    Constant,
    Counted,
    Either,
    Located,
    NotSo,
    Places,
    StateCondition,
    StateStatement,
    atoms,
)

MOST_CASES = 20_000
"""So many cases may a condition tell apart where variables are kept apart."""

_COMPARE: dict[str, Callable[[Any, int], Any]] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}

Flags = npt.NDArray[np.bool_]


def chosen(places: Places, statement: StateStatement) -> Flags:
    """Which values of the domain are meant."""
    named = np.isin(np.array(statement.values, object), list(places.values))
    return ~named if places.negated else named


def holds(condition: StateCondition, found: Callable[[Located | Counted], Any]) -> Any:
    """Whether a condition holds, from whether its atoms do."""
    match condition:
        case Located() | Counted():
            return found(condition)
        case NotSo():
            return np.logical_not(holds(condition.item, found))
        case Both():
            return np.logical_and(holds(condition.left, found), holds(condition.right, found))
        case Either():
            return np.logical_or(holds(condition.left, found), holds(condition.right, found))


def _of_count(atom: Located | Counted, count: Any, variables: int) -> Any:
    """Whether an atom that speaks of no variable by name holds for so many variables."""
    if isinstance(atom, Counted):
        return _COMPARE[atom.operator](count, atom.number)
    assert not isinstance(atom.who, Constant)
    if atom.who.word == ANYONE:
        return np.greater(count, 0)
    return np.equal(count, 0 if atom.who.word == NOBODY else variables)


def truth(condition: StateCondition, statement: StateStatement, digits: npt.NDArray[np.int16]) -> Flags:
    """In which combinations of values a condition holds."""

    def found(atom: Located | Counted) -> Flags:
        mask = chosen(atom.places, statement)
        if isinstance(atom, Located) and isinstance(atom.who, Constant):
            return np.asarray(mask[digits[statement.variables.index(atom.who.name)]])
        return np.asarray(_of_count(atom, mask[digits].sum(axis=0), len(statement.variables)))

    return np.asarray(holds(condition, found))


def product_chances(condition: StateCondition, statement: StateStatement, chances: Floats) -> Floats:
    """The probability of a condition on independent variables; `chances` are rows of one distribution per variable.

    Variables are taken in one by one. What is known so far of the atoms, the truth of those that name a variable and a
    count for the others, is a case; each case has its probability in every row.
    """
    parts = list(dict.fromkeys(atoms(condition)))
    masks = [chosen(atom.places, statement) for atom in parts]
    names = [atom.who.name if isinstance(atom, Located) and isinstance(atom.who, Constant) else None for atom in parts]
    values = len(statement.values)
    cases: dict[tuple[int, ...], Floats] = {(0,) * len(parts): np.ones(len(chances))}
    for number, variable in enumerate(statement.variables):
        own = chances[:, number * values : (number + 1) * values]
        concerned = np.array([name in (None, variable) for name in names])
        kinds = np.array(masks, int).T * concerned
        steps = {
            tuple(int(part) for part in kind): own[:, (kinds == kind).all(axis=1)].sum(axis=1)
            for kind in np.unique(kinds, axis=0)
        }
        cases = _joined_cases(cases, steps)
    total = np.zeros(len(chances))
    for case, probability in cases.items():
        if _holds_in(condition, parts, names, case, len(statement.variables)):
            total += probability
    return total


def _joined_cases(
    cases: dict[tuple[int, ...], Floats], steps: dict[tuple[int, ...], Floats]
) -> dict[tuple[int, ...], Floats]:
    joined: dict[tuple[int, ...], Floats] = {}
    for case, probability in cases.items():
        for step, own in steps.items():
            together = tuple(a + b for a, b in zip(case, step, strict=True))
            joined[together] = joined.get(together, 0.0) + probability * own
    if len(joined) > MOST_CASES:
        raise LimitError(
            "state-question",
            f"the condition tells more than {MOST_CASES} cases apart, and the state is too large to list them",
            "ask about fewer variables or counts at once",
        )
    return joined


def _holds_in(
    condition: StateCondition,
    parts: Sequence[Located | Counted],
    names: Sequence[str | None],
    case: tuple[int, ...],
    variables: int,
) -> bool:
    def found(atom: Located | Counted) -> Any:
        place = parts.index(atom)
        return case[place] > 0 if names[place] is not None else _of_count(atom, case[place], variables)

    return bool(holds(condition, found))
