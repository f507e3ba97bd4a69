"""The implementation of aggregates: one value for each of many lists, and the lists themselves.

Nothing here loops over lists or elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.expr import types
from ensue.expr.functions import Aggregate
from ensue.expr.kinds import NUMBERS, Kind
from ensue.expr.operators import computed

Integers: TypeAlias = "npt.NDArray[np.int64]"

_LARGEST_OFFSET = 2**31 - 1
_HALF = 32


@dataclass(frozen=True)
class Lists:
    """A list for each row: the elements of all lists in one array, and the length of each list.

    A null list has length 0 and is not `present`.
    """

    elements: types.Array
    lengths: Integers
    present: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, lists: Any, name: str, *, exact: bool = False) -> Lists:
        """Reads a column of any list type; `name` is the column name for messages. `exact` is that of `readable`."""
        lengths = types.arrow.list_value_length(lists)
        return cls(
            types.readable(lists.flatten(), name, exact=exact),
            types.arrow.fill_null(lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False),
            lengths.is_valid().to_numpy(zero_copy_only=False),
        )

    @cached_property
    def ends(self) -> Integers:
        """The end of each list among the elements."""
        return np.cumsum(self.lengths)

    @cached_property
    def starts(self) -> Integers:
        """The start of each list that is not empty."""
        filled = self.lengths > 0
        return (self.ends - self.lengths)[filled]

    def known(self) -> Lists:
        """The lists without null elements."""
        if self.elements.null_count == 0:
            return self
        valid = self.elements.is_valid().to_numpy(zero_copy_only=False)
        before = np.concatenate(([0], np.cumsum(valid)))
        kept = before[self.ends] - before[self.ends - self.lengths]
        return Lists(self.elements.drop_null(), kept, self.present)

    def spread(self, values: types.Array) -> types.Array:
        """Puts one value per non-empty list into its row; the other rows are null."""
        empty = self.lengths == 0
        if not empty.any():
            return values
        places: Any = pa.array(np.cumsum(~empty) - 1, mask=empty)
        return cast(types.Array, values.take(places))


def gathered(columns: Sequence[types.Array]) -> types.Array:
    """For each row, the list of the values of these columns, which have equal length and kind."""
    common = types.common_type([column.type for column in columns])
    if common is None:
        raise TypeError("elements of different kinds; check the expression first")
    parts: Any = [types.convert(column, common) for column in columns]
    width, rows = len(parts), len(parts[0])
    # Rows of a matrix become its columns: the first of every part, the second of every part, ...
    order: Any = pa.array(np.arange(width * rows).reshape(width, rows).T.ravel())
    values: Any = types.readable(pa.chunked_array(parts, common), "element").take(order)
    return _list_array(np.arange(0, width * rows + 1, width), values)


def _list_array(offsets: Integers, values: Any, missing: Any = None) -> types.Array:
    """Lists in the layout that expressions announce; large lists only if 32-bit offsets do not suffice."""
    whole: Any = pa.array(offsets)
    if offsets[-1] > _LARGEST_OFFSET:
        return cast(types.Array, pa.LargeListArray.from_arrays(whole, values, mask=missing))
    return cast(types.Array, pa.ListArray.from_arrays(whole.cast(pa.int32()), values, mask=missing))


# --- one value for each list; the lists come with their nulls


def count(lists: Lists) -> types.Array:
    """The number of elements that are not null; null for a null list."""
    return cast(types.Array, pa.array(lists.known().lengths, mask=~lists.present))


def total(lists: Lists) -> types.Array:
    """The sums; ArrowInvalid if an integer or a duration does not fit in 64 bits."""
    known = lists.known()
    of = known.elements.type
    if pa.types.is_floating(of):
        return types.nan_to_null(known.spread(pa.array(_float_sums(_numbers(known), known.starts))))
    sums: Any = pa.array(_integer_sums(_ticks(known), known.starts))
    return known.spread(sums.cast(of))


def _integer_sums(values: Integers, starts: Integers) -> Integers:
    """The sums of the lists that start at these places; ArrowInvalid if one does not fit in 64 bits."""
    if starts.size == 0:
        return values[:0]
    # The upper and the lower halves by themselves cannot overflow.
    upper = np.add.reduceat(values >> _HALF, starts)
    lower = np.add.reduceat(values & (2**_HALF - 1), starts)
    upper += lower >> _HALF
    limit = 2 ** (_HALF - 1)
    if upper.max() >= limit or upper.min() < -limit:
        raise pa.ArrowInvalid("overflow")
    return np.add.reduceat(values, starts)


def _float_sums(values: npt.NDArray[np.float64], starts: Integers) -> npt.NDArray[np.float64]:
    if starts.size == 0:
        return values[:0]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add.reduceat(values, starts)


def average(lists: Lists) -> types.Array:
    """The means; the mean of durations is a duration."""
    known = lists.known()
    if pa.types.is_integer(known.elements.type):
        known = Lists(types.convert(known.elements, pa.float64()), known.lengths, known.present)
    return cast(types.Array, computed("/", total(known), pa.array(known.lengths)))


def deviation(lists: Lists) -> types.Array:
    """The sample standard deviations; null for fewer than two values."""
    known = lists.known()
    values, lengths = _numbers(known), known.lengths[known.lengths > 0]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        means = _float_sums(values, known.starts) / lengths
        squares = np.square(values - np.repeat(means, lengths))
        # One value alone is 0 / 0, which reads as null.
        deviations = np.sqrt(_float_sums(squares, known.starts) / (lengths - 1))
    return types.nan_to_null(known.spread(pa.array(deviations)))


def least(lists: Lists) -> types.Array:
    """The smallest values; FALSE is smaller than TRUE."""
    return _extreme(lists.known(), np.minimum)


def greatest(lists: Lists) -> types.Array:
    """The greatest values; TRUE is greater than FALSE."""
    return _extreme(lists.known(), np.maximum)


def _extreme(known: Lists, choose: Any) -> types.Array:
    elements: Any = known.elements
    if known.starts.size == 0:
        return cast(types.Array, pa.nulls(len(known.lengths), elements.type))
    if types.kind_of(elements.type) is Kind.TEXT:
        order = types.arrow.sort_indices(elements)
        ranks = np.empty(len(order), np.int64)
        ranks[order.to_numpy()] = np.arange(len(order))
        return known.spread(elements.take(order.take(pa.array(choose.reduceat(ranks, known.starts)))))
    if types.kind_of(elements.type) in NUMBERS:
        return known.spread(pa.array(choose.reduceat(elements.to_numpy(), known.starts)))
    chosen: Any = pa.array(choose.reduceat(_ticks(known), known.starts))
    return known.spread(chosen.cast(elements.type))


def first(lists: Lists) -> types.Array:
    """The values of the first elements, which may be null."""
    return _at(lists, lists.ends - lists.lengths)


def last(lists: Lists) -> types.Array:
    """The values of the last elements, which may be null."""
    return _at(lists, lists.ends - 1)


def _at(lists: Lists, places: Integers) -> types.Array:
    return cast(types.Array, lists.elements.take(pa.array(places, mask=lists.lengths == 0)))


def as_lists(lists: Lists) -> types.Array:
    """The lists unchanged, including nulls."""
    missing = None if lists.present.all() else pa.array(~lists.present)
    return _list_array(np.concatenate(([0], lists.ends)), lists.elements, missing)


def flattened(lists: Lists) -> types.Array:
    """Flattens lists of lists by one level; other lists stay unchanged."""
    if types.element_type(lists.elements.type) is None:
        return as_lists(lists)
    inner = Lists.of(lists.elements, "element")
    before = np.concatenate(([0], inner.ends))
    missing = None if lists.present.all() else pa.array(~lists.present)
    return _list_array(before[np.concatenate(([0], lists.ends))], inner.elements, missing)


def distinct(lists: Lists) -> Lists:
    """The lists without nulls and without values that occur earlier in the same list."""
    known = lists.known()
    elements: Any = known.elements
    if pa.types.is_floating(elements.type):
        # -0.0 and 0.0 are equal.
        elements = types.arrow.add(elements, 0.0)
    codes = elements.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    owners = np.repeat(np.arange(len(known.lengths)), known.lengths)
    pairs = owners * (int(codes.max(initial=0)) + 1) + codes
    kept = np.sort(np.unique(pairs, return_index=True)[1])
    lengths = np.bincount(owners[kept], minlength=len(known.lengths)).astype(np.int64)
    return Lists(elements.take(pa.array(kept)), lengths, known.present)


def count_distinct(lists: Lists) -> types.Array:
    """The number of different values; null for a null list."""
    return count(distinct(lists))


def collect_set(lists: Lists) -> types.Array:
    """The different values, in the order in which they first occur."""
    return as_lists(distinct(lists))


def _ticks(known: Lists) -> Integers:
    """Integers, times and booleans as integers."""
    integers: Any = known.elements.cast(pa.int64())
    return cast(Integers, integers.to_numpy())


def _numbers(known: Lists) -> npt.NDArray[np.float64]:
    return cast("npt.NDArray[np.float64]", types.convert(known.elements, pa.float64()).to_numpy())


# --- the aggregates

_REDUCTIONS: Mapping[str, Callable[[Lists], types.Array]] = MappingProxyType(
    {
        "count": count,
        "sum": total,
        "avg": average,
        "min": least,
        "max": greatest,
        "stddev": deviation,
        "first": first,
        "last": last,
        "flatten": flattened,
        "list": as_lists,
        "count_distinct": count_distinct,
        "collect_set": collect_set,
    }
)


def aggregated(aggregate: Aggregate, lists: types.Array, name: str) -> types.Array:
    """The value of an aggregate for each row; `name` is the name of the list column in messages."""
    if types.kind_of(lists.type) is Kind.NULL:
        return cast(
            types.Array, pa.nulls(len(lists), types.arrow_type(aggregate.result_type(types.own_type(lists.type))))
        )
    given = Lists.of(lists, name)
    elements = given.elements.type
    if types.kind_of(elements) is Kind.NULL and Kind.NULL not in aggregate.kinds:
        return cast(types.Array, pa.nulls(len(lists), types.arrow_type(aggregate.result(types.own_type(elements)))))
    return _REDUCTIONS[aggregate.name](given)
