"""Aggregates: what ranges over the elements of a list and gives one value for each row.

`AGGREGATES` is the whole table. Nulls, and NaN, which reads as null, are left out, except by `first`, `last` and
`list`. Over nothing `count` is 0, `list` is empty and the others are null; of a null list all are null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import pyarrow as pa

from ensue.expr.reductions import (
    Lists,
    as_lists,
    average,
    count,
    deviation,
    first,
    flattened,
    greatest,
    last,
    least,
    total,
)
from ensue.expr.types import NUMBERS, PLAIN, Array, Kind, arithmetic_type, element_type, kind_of, readable_type


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate. `kinds` are those that the elements can have, `result` the type for elements of a type.

    The `example` holds for a list `t` whose `temp` is 20, 22 and 27.
    """

    name: str
    kinds: frozenset[Kind]
    result: Callable[[pa.DataType], pa.DataType]
    compute: Callable[[Lists], Array]
    description: str
    example: str

    @property
    def signature(self) -> str:
        """How it is written: `sum(x)`."""
        return f"{self.name}(x)"

    def result_type(self, lists: pa.DataType) -> pa.DataType:
        """The type of the result for lists of this type, or for what is always null."""
        element = element_type(lists)
        return self.result(pa.null() if element is None else readable_type(element))

    def __call__(self, lists: Array, name: str) -> Array:
        """Its value for each row; `name` is what messages call the column of lists."""
        if kind_of(lists.type) is Kind.NULL:
            return cast(Array, pa.nulls(len(lists), self.result_type(lists.type)))
        given = Lists.of(lists, name)
        if kind_of(given.elements.type) is Kind.NULL and Kind.NULL not in self.kinds:
            return cast(Array, pa.nulls(len(lists), self.result(given.elements.type)))
        return self.compute(given)


def _of_one(element: pa.DataType) -> pa.DataType:
    return element


def _average_type(element: pa.DataType) -> pa.DataType:
    quotient = arithmetic_type("/", element, pa.int64())
    return pa.float64() if quotient is None or kind_of(element) is Kind.NULL else quotient


_SUMMED = NUMBERS | {Kind.DURATION}
_ANY = frozenset(Kind)

_TABLE = (
    Aggregate("count", _ANY, lambda of: pa.int64(), count, "how many there are", "count(t) = 3"),
    Aggregate("sum", _SUMMED, _of_one, total, "their sum", "sum(t.temp) = 69"),
    Aggregate("avg", _SUMMED, _average_type, average, "their mean", "avg(t.temp) = 23"),
    Aggregate("min", PLAIN, _of_one, least, "the smallest", "min(t.temp) = 20"),
    Aggregate("max", PLAIN, _of_one, greatest, "the greatest", "max(t.temp) = 27"),
    Aggregate(
        "stddev",
        NUMBERS,
        lambda of: pa.float64(),
        deviation,
        "the standard deviation of the sample; null for fewer than two",
        "round(stddev(t.temp), 2) = 3.61",
    ),
    Aggregate("first", _ANY, _of_one, first, "the value of the first element", "first(t.temp) = 20"),
    Aggregate("last", _ANY, _of_one, last, "the value of the last element", "last(t.temp) = 27"),
    Aggregate(
        "flatten",
        _ANY,
        lambda of: pa.list_(element_type(of) or of),
        flattened,
        "all values, in order; of elements that are lists, their values",
        "flatten(t.temp) IS NOT NULL",
    ),
    Aggregate("list", _ANY, lambda of: pa.list_(of), as_lists, "all values, in order", "list(t.temp) IS NOT NULL"),
)

AGGREGATES: Mapping[str, Aggregate] = MappingProxyType({aggregate.name: aggregate for aggregate in _TABLE})
