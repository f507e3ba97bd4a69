"""`lineage(v)` and `lineage()` in RETURN: of which events of the tables an event, or a match, is made."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ensue.analysis.catalog import WHOLE_EVENT
from ensue.errors import Problem, did_you_mean
from ensue.nodes.expressions import Call, Expr, Field, walk
from ensue.nodes.names import Name

LINEAGE_FUNCTION = "lineage"


def is_lineage(expression: Expr) -> bool:
    return isinstance(expression, Call) and expression.name == LINEAGE_FUNCTION


def lineage_variable(expression: Expr) -> Name | None:
    """The variable whose lineage is asked for, None for that of the whole match."""
    assert isinstance(expression, Call)
    argument = expression.arguments[0] if expression.arguments else None
    if not isinstance(argument, Field):
        return None
    return argument.name if argument.variable is None else argument.variable


def check_lineage(expression: Expr, returnable: Collection[Name]) -> Iterator[Problem]:
    """What is wrong with a column of RETURN that is a lineage; `returnable` are the variables that a match binds."""
    assert isinstance(expression, Call)
    names = ", ".join(map(str, returnable)) or "none"
    if len(expression.arguments) > 1 or any(
        not isinstance(argument, Field) or not _is_whole(argument) for argument in expression.arguments
    ):
        yield Problem(
            "lineage-argument",
            "lineage takes one variable, or nothing for the whole match",
            expression.span,
            label=f"variables: {names}",
            hint="write `lineage(v)` with a variable of the pattern, or `lineage()`",
        )
        return
    name = lineage_variable(expression)
    if name is not None and name not in returnable:
        yield Problem(
            "lineage-argument",
            f"a match binds no event to `{name}`, so there is no lineage of it",
            expression.arguments[0].span,
            label=f"variables: {names}",
            hint=did_you_mean(str(name), map(str, returnable)),
        )


def _is_whole(field: Field) -> bool:
    """Whether it is a variable by itself: `v`, or as a context writes it, all of its event."""
    return field.variable is None or field.name == WHOLE_EVENT


def misplaced_lineages(expression: Expr) -> Iterator[Problem]:
    """Calls of lineage where no list of ids can stand."""
    for part in walk(expression):
        if isinstance(part, Call) and is_lineage(part):
            yield Problem(
                "misplaced-lineage",
                "lineage stands by itself, as a column of RETURN",
                part.span,
                hint="write `RETURN lineage() AS ids`, and look into the list afterwards",
            )
