"""The order of events at the same time: by order columns, and where these leave ties, by content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.sources import EventSource, Mask, one_chunk
from ensue.expr.types import element_type
from ensue.kernels.compiler import Int64s
from ensue.plan.selections import in_order

BYTES_PER_NUMBER = 8


@dataclass(frozen=True, slots=True)
class Order:
    """The order of the events of a run if columns order those at the same time.

    A place is the number of a distinct pair of a time and values of these columns; `times` are the times of all places.
    `starts` and `ends` are the places of the rows of each table. A row without an order is at the first place of its
    time. A composite that has no order at its end is at the last place of this time, because nothing at this time is
    after it.
    """

    times: Int64s
    starts: tuple[Int64s, ...]
    ends: tuple[Int64s, ...]

    @classmethod
    def of(cls, sources: Sequence[EventSource]) -> Order:
        parts, ranks = [], _order_ranks(sources)
        for source, (first, last) in zip(sources, ranks, strict=True):
            parts.append((source.starts, first))
            if source.ends is not source.starts:
                parts.append((source.ends, last))
        times = np.concatenate([part for part, _ in parts]) if parts else np.empty(0, np.int64)
        values = np.concatenate([part for _, part in parts]) if parts else times
        order = np.lexsort((values, times))
        times, values = times[order], values[order]
        new = np.ones(len(order), bool)
        new[1:] = (times[1:] != times[:-1]) | (values[1:] != values[:-1])
        places = np.empty(len(order), np.int64)
        places[order] = np.cumsum(new) - 1
        pieces = iter(np.split(places, np.cumsum([len(part) for part, _ in parts])[:-1]))
        starts, ends = [], []
        for source in sources:
            starts.append(next(pieces))
            ends.append(starts[-1] if source.ends is source.starts else next(pieces))
        made = cls(times[new], tuple(starts), tuple(ends))
        for source, own in zip(sources, ends, strict=True):
            if source.input.derived and source.input.order:
                unordered = lacks_order(source, last=True)
                own[unordered] = made.at_most(source.ends[unordered])
        return made

    def at_least(self, times: Int64s) -> Int64s:
        """The first place at or after each time."""
        return np.searchsorted(self.times, times, "left")

    def at_most(self, times: Int64s) -> Int64s:
        """The last place at or before each time."""
        return np.searchsorted(self.times, times, "right") - 1

    def time_of(self, places: Int64s) -> Int64s:
        """The time of each place; FOREVER and NEVER stay."""
        inside = (places >= 0) & (places < len(self.times))
        found: Int64s = np.where(inside, self.times[np.where(inside, places, 0)] if len(self.times) else 0, places)
        return found


def order_of(sources: Sequence[EventSource]) -> Order | None:
    """The order of events at the same time; None if no table has order columns."""
    return Order.of(sources) if any(source.input.order for source in sources) else None


def order_values(source: EventSource, last: bool) -> dict[str, pa.Array]:
    """The values of the order columns of the rows of a table, at their starts or at their `last` events."""
    if not source.input.derived:
        return {name: source.column(name) for name in source.input.order}
    values = source.raw_column(source.input.order[last])
    return dict(zip((field.name for field in values.type), values.flatten(), strict=True))


def lacks_order(source: EventSource, last: bool) -> Mask:
    """The rows that have no order at their start, or at their end."""
    if source.input.derived and source.input.order:
        missing: Mask = source.raw_column(source.input.order[last]).is_null().to_numpy(zero_copy_only=False)
        return missing
    return np.full(len(source.starts), not source.input.order)


def _order_ranks(sources: Sequence[EventSource]) -> list[tuple[Int64s, Int64s]]:
    """The rank of each row by the values of its order columns, at its start and at its end: 1 and more, and 0 without
    an order. Null comes first."""
    ranks = [[np.zeros(len(source.starts), np.int64)] * 2 for source in sources]
    sides = [(source, own, last) for source, own in zip(sources, ranks, strict=True) for last in (False, True)]
    # The rows of tables have the same order at both sides.
    sides = [side for side in sides if side[0].input.order and (side[0].input.derived or not side[2])]
    columns = [order_values(source, last) for source, _, last in sides]
    sizes = [len(source.starts) for source, _, _ in sides]
    keys = []
    for name in in_order(name for values in columns for name in values):
        parts = [values.get(name, pa.nulls(size)) for values, size in zip(columns, sizes, strict=True)]
        kind = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.int64())
        values = pa.chunked_array([part if part.type == kind else part.cast(kind) for part in parts], kind)
        keys.append(value_ranks(one_chunk(values)))
    if keys:
        pieces = np.split(dense_ranks(keys), np.cumsum(sizes)[:-1])
        for (source, own, last), piece in zip(sides, pieces, strict=True):
            if source.input.derived:
                own[last] = np.where(lacks_order(source, last), 0, piece)
            else:
                own[:] = [piece, piece]
    return [(first, last) for first, last in ranks]


# -- ties


def tie_ranks(sources: Sequence[EventSource], columns: Sequence[str]) -> tuple[Int64s, ...]:
    """For each table, ranks of its rows that order those with the same interval: by stream, then by these columns.

    A tie needs a rank only if it matters, so rows without a tie have any. Derived events come in an order of their own.
    """
    tables = sorted({str(source.input.stream or "") for source in sources})
    size = 1 + max((len(source.starts) for source in sources), default=0)
    found = []
    for source in sources:
        ranks = np.full(len(source.starts), size * tables.index(str(source.input.stream or "")), np.int64)
        order = np.lexsort((source.starts, source.ends))
        tied = order[in_ties(source.ends[order], source.starts[order])]
        of_type = [] if source.input.type is None else [source.input.type]
        ranks[tied] += content_ranks(source, tied, [*of_type, *columns])
        found.append(ranks)
    return tuple(found)


def row_ranks(sources: Sequence[EventSource], rows: np.ndarray, columns: Iterable[str]) -> Int64s:
    """Ranks of some rows, numbered table after table: by their order columns, their stream and their content.

    The content are the values of these columns and then of all others, in the order of their names. Rows after those of
    the tables have the greatest rank.
    """
    first = sorted(columns)
    rest = sorted({name for source in sources for name in source.input.table.column_names}.difference(first))
    streams = sorted({str(source.input.stream or "") for source in sources})
    by_order = _order_ranks(sources)
    keys = np.full((3, len(rows)), np.iinfo(np.int64).max)
    begin = 0
    for source, (ranks, _) in zip(sources, by_order, strict=True):
        own = np.flatnonzero((rows >= begin) & (rows < begin + len(ranks)))
        chosen = rows[own] - begin
        begin += len(ranks)
        of_type = [] if source.input.type is None else [source.input.type]
        keys[0, own], keys[1, own] = ranks[chosen], streams.index(str(source.input.stream or ""))
        keys[2, own] = content_ranks(source, chosen, [*of_type, *first, *rest])
    return dense_ranks(list(keys))


def in_ties(*sorted_values: np.ndarray) -> Mask:
    """The rows that agree with the previous or the next one in all values."""
    if not len(sorted_values[0]):
        return np.zeros(0, bool)
    same: Mask = np.logical_and.reduce([values[1:] == values[:-1] for values in sorted_values])
    either: Mask = np.append(same, False) | np.append(False, same)
    return either


def content_ranks(source: EventSource, rows: np.ndarray, columns: Sequence[str]) -> Int64s:
    """The ranks of some rows by the values of columns, null first; 0 for derived events."""
    known = [] if source.input.derived or not len(rows) else source.input.table.column_names
    keys = [value_ranks(source.taken([name], rows)[0]) for name in columns if name in known]
    return dense_ranks(keys) if keys else np.zeros(len(rows), np.int64)


def dense_ranks(keys: Sequence[Int64s]) -> Int64s:
    """The rank of each row by several keys, from 1 on, equal for equal rows."""
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), bool)
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(new) + 1
    return ranks


def value_ranks(column: pa.Array) -> np.ndarray:
    """Ranks of the values, equal for equal values, null first; lists are compared element by element.

    NaN is null. Calendar intervals have no order.
    """
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_interval(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_dictionary(kind):
        return value_ranks(column.dictionary_decode())
    if pa.types.is_map(kind):
        return value_ranks(column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), None, column)
    if pa.types.is_struct(column.type):
        parts = [value_ranks(part) for part in (column.is_valid(), *column.flatten())]
        column = joined_bytes(np.stack(parts, axis=1).ravel(), np.full(len(column), len(parts)))
    elif element_type(column.type) is not None:
        missing = column.is_null()
        column = joined_bytes(value_ranks(column.flatten()), lengths_of(column))
        column = pc.if_else(missing, None, column)
    plain = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    ranks = np.asarray(pc.rank(plain, tiebreaker="dense"))
    return np.where(column.is_null().to_numpy(zero_copy_only=False), 0, ranks)


def lengths_of(lists: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False))


def joined_bytes(numbers: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Groups of numbers as bytes that sort like the numbers."""
    offsets = np.append(0, np.cumsum(lengths, dtype=np.int64)) * BYTES_PER_NUMBER
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(numbers.astype(">u8"))]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)
