"""Aggregates: what ranges over the elements of a list and gives one value for each row.

`AGGREGATES` is the whole table. Nulls, and NaN, which reads as null, are left out, except by `first`, `last` and
`list`. Over nothing `count` is 0, `list` is empty and the others are null; of a null list all are null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ensue.expr.kinds import FLOAT, INTEGER, NULL_TYPE, NUMBERS, PLAIN, Kind, Type, arithmetic_type, list_of


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate. `kinds` are those that the elements can have, `result` the type for elements of a type.

    The `example` holds for a list `t` whose `temp` is 20, 22 and 27.
    """

    name: str
    kinds: frozenset[Kind]
    result: Callable[[Type], Type]
    description: str
    example: str

    @property
    def signature(self) -> str:
        """How it is written: `sum(x)`."""
        return f"{self.name}(x)"

    def result_type(self, lists: Type) -> Type:
        """The type of the result for lists of this type, or for what is always null."""
        return self.result(NULL_TYPE if lists.element is None else lists.element.readable)


def _of_one(element: Type) -> Type:
    return element


def _average_type(element: Type) -> Type:
    quotient = arithmetic_type("/", element, INTEGER)
    return FLOAT if quotient is None or element.kind is Kind.NULL else quotient


_SUMMED = NUMBERS | {Kind.DURATION}
_ANY = frozenset(Kind)

_TABLE = (
    Aggregate("count", _ANY, lambda of: INTEGER, "the number of values", "count(t) = 3"),
    Aggregate("sum", _SUMMED, _of_one, "the sum", "sum(t.temp) = 69"),
    Aggregate("avg", _SUMMED, _average_type, "the mean", "avg(t.temp) = 23"),
    Aggregate("min", PLAIN, _of_one, "the smallest value", "min(t.temp) = 20"),
    Aggregate("max", PLAIN, _of_one, "the greatest value", "max(t.temp) = 27"),
    Aggregate(
        "stddev",
        NUMBERS,
        lambda of: FLOAT,
        "the sample standard deviation; null for fewer than two values",
        "round(stddev(t.temp), 2) = 3.61",
    ),
    Aggregate("first", _ANY, _of_one, "the value of the first element", "first(t.temp) = 20"),
    Aggregate("last", _ANY, _of_one, "the value of the last element", "last(t.temp) = 27"),
    Aggregate(
        "flatten",
        _ANY,
        lambda of: list_of(of.element or of),
        "all values, in order; lists among them are flattened by one level",
        "flatten(t.temp) IS NOT NULL",
    ),
    Aggregate("list", _ANY, list_of, "all values, in order", "list(t.temp) IS NOT NULL"),
)

AGGREGATES: Mapping[str, Aggregate] = MappingProxyType({aggregate.name: aggregate for aggregate in _TABLE})
