"""`PROBABILITY()` in RETURN and `HAVING PROBABILITY >= p`: how likely a match is, where events are uncertain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ensue.errors import Problem, Span
from ensue.nodes.expressions import Call, Expr, Field, walk
from ensue.nodes.names import WHOLE
from ensue.nodes.rewrite import rewrite

PROBABILITY_FUNCTION = "probability"

PROBABILITY_OF_MATCH = Field(WHOLE, "probability")
"""The field that stands for the probability of a match where values are worked out."""

CERTAINTY = "ensue:certainty"
"""The field of an event that is the probability that it is real."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """`HAVING PROBABILITY >= least`, or `>` if `strict`."""

    least: float
    strict: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


def is_probability(expression: Expr) -> bool:
    return isinstance(expression, Call) and expression.name == PROBABILITY_FUNCTION


def asks_probability(expressions: Iterable[Expr]) -> bool:
    return any(is_probability(part) for expression in expressions for part in walk(expression))


def with_probability_field(expression: Expr) -> Expr:
    """The expression with a field in the place of each PROBABILITY()."""
    return rewrite(expression, lambda part: PROBABILITY_OF_MATCH if is_probability(part) else None)


def check_threshold(threshold: Threshold) -> Iterator[Problem]:
    if 0 <= threshold.least < 1 or (threshold.least == 1 and not threshold.strict):
        return
    yield Problem(
        "probability-threshold",
        f"a probability lies between 0 and 1, and none is {'> ' if threshold.strict else ''}{threshold.least:g}",
        threshold.span,
        hint="write, for example, `HAVING PROBABILITY >= 0.9`",
    )


def check_calls(expression: Expr) -> Iterator[Problem]:
    """PROBABILITY() takes nothing: it is about the match as a whole."""
    for part in walk(expression):
        if isinstance(part, Call) and is_probability(part) and part.arguments:
            yield Problem(
                "probability-argument",
                "PROBABILITY() takes nothing: it is that of the whole match",
                part.span,
                hint="the probability of one event is the column of its table",
            )


def misplaced_probabilities(expression: Expr) -> Iterator[Problem]:
    """Calls of PROBABILITY where no match is complete yet."""
    for part in walk(expression):
        if is_probability(part):
            yield Problem(
                "misplaced-probability",
                "PROBABILITY() stands in RETURN: it is known when the match is",
                part.span,
                hint="to filter by it, write `HAVING PROBABILITY >= 0.9`",
            )
