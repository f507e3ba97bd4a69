"""Events as arrays: what the tables of a run hold for a query, per stream, sorted by key and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.keys import Codes, Int64s, encode_columns
from ensue.errors import SchemaError
from ensue.expr.types import readable
from ensue.kernels.sorting import (
    group_by_key,
    is_sorted,
    number_within_runs,
    offsets_of_runs,
    order_by_time,
    split_by_code,
)

FOREVER = np.iinfo(np.int64).max
NEVER = np.iinfo(np.int64).min
MOST_ROWS = 2**31 - 1
SAFE_TIME = 2**61
"""Times and windows stay below this, so that adding them cannot overflow."""

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Report:
    """What a run read and set aside."""

    rows: int = 0
    null_times: int = 0
    null_keys: int = 0
    reversed_intervals: int = 0
    late: int = 0
    matches: int = 0

    def add(self, other: Report) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    @property
    def set_aside(self) -> dict[str, int]:
        """The rows that could not take part, by reason."""
        counts = {
            "without a time": self.null_times,
            "without a key": self.null_keys,
            "that end before they start": self.reversed_intervals,
        }
        return {reason: count for reason, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class InputTable:
    """One table of a run. `stream` names the one stream it holds; None: the values of column `type` are the streams."""

    table: pa.Table
    time: str
    end: str | None = None
    stream: str | None = None
    type: str | None = None

    @property
    def label(self) -> str:
        return f"table of stream `{self.stream}`" if self.stream is not None else "table"


@dataclass(slots=True)
class EventSource:
    """A table with its times as numbers; columns become readable when they are first asked for."""

    input: InputTable
    starts: Int64s
    ends: Int64s
    valid: Mask | None
    readable_columns: dict[str, pa.Array] = field(default_factory=dict)
    raw_columns: dict[str, pa.Array] = field(default_factory=dict)

    def column(self, name: str) -> pa.Array:
        if name not in self.readable_columns:
            self.readable_columns[name] = readable(self.input.table.column(name), name)
        return self.readable_columns[name]

    def raw_column(self, name: str) -> pa.Array:
        if name not in self.raw_columns:
            self.raw_columns[name] = one_chunk(self.input.table.column(name))
        return self.raw_columns[name]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Events that a variable may bind, sorted by key and start. `ends is starts` for events without an end column.

    `offsets[k]` to `offsets[k + 1]` are the places of key `k`.
    """

    source: EventSource
    rows: Codes
    keys: Codes
    starts: Int64s
    ends: Int64s
    positions: Int64s | None
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def are_points(self) -> bool:
        return self.ends is self.starts

    def select(self, mask: Mask) -> Candidates:
        """Those for which the mask is true."""
        kept = np.flatnonzero(mask)
        if len(kept) == len(self):
            return self
        keys = self.keys[kept]
        starts = self.starts[kept]
        return replace(
            self,
            rows=self.rows[kept],
            keys=keys,
            starts=starts,
            ends=starts if self.are_points else self.ends[kept],
            positions=None if self.positions is None else self.positions[kept],
            offsets=offsets_of_runs(keys, len(self.offsets) - 1),
        )


@dataclass(frozen=True, slots=True)
class Timeline:
    """The ends of all events of each key by position, known from position `base[key]` on."""

    base: Int64s
    offsets: Int64s
    ends: Int64s

    def end_at(self, keys: Codes, positions: Int64s) -> Int64s:
        """When the event at a position ended: FOREVER if it has not come, NEVER if it came before what is known."""
        places = positions - self.base[keys]
        known = places < self.offsets[keys + 1] - self.offsets[keys]
        inside = np.where(known & (places >= 0), self.offsets[keys] + places, 0)
        ends = self.ends[inside] if len(self.ends) else np.zeros(len(keys), np.int64)
        return np.where(places < 0, NEVER, np.where(known, ends, FOREVER))


@dataclass(frozen=True, slots=True)
class EventStore:
    """All events of a run that a query may use, by stream."""

    sources: tuple[EventSource, ...]
    streams: Mapping[str, Candidates]
    key_count: int
    timeline: Timeline | None
    report: Report
    row_keys: tuple[Codes, ...] = ()
    row_positions: tuple[Int64s, ...] = ()

    @property
    def span(self) -> int:
        """The length of the time that the events cover."""
        present = [stream for stream in self.streams.values() if len(stream)]
        if not present:
            return 0
        return int(max(stream.ends.max() for stream in present) - min(stream.starts.min() for stream in present))


@dataclass(frozen=True, slots=True)
class Request:
    """What a query wants of the tables."""

    streams: tuple[str, ...]
    partition_by: tuple[str, ...]
    time_type: pa.DataType
    counting: bool


def load_sources(inputs: Sequence[InputTable], time_type: pa.DataType) -> tuple[tuple[EventSource, ...], Report]:
    """Reads the times of all tables; rows without a usable time are marked and counted."""
    report = Report()
    sources = []
    for table in inputs:
        if table.table.num_rows > MOST_ROWS:
            raise SchemaError(
                "too-many-rows", f"the {table.label} has more than {MOST_ROWS} rows", "cut it into batches"
            )
        report.rows += table.table.num_rows
        starts, valid = read_times(table, table.time, time_type)
        ends = starts
        if table.end is not None:
            ends, ends_valid = read_times(table, table.end, time_type)
            valid = _both(valid, ends_valid)
        report.null_times += 0 if valid is None else int(len(valid) - np.count_nonzero(valid))
        if table.end is not None:
            ordered = starts <= ends
            report.reversed_intervals += int(np.count_nonzero(~ordered if valid is None else valid & ~ordered))
            valid = _both(valid, None if ordered.all() else ordered)
        sources.append(EventSource(table, starts, ends, valid))
    return tuple(sources), report


def read_times(table: InputTable, name: str, time_type: pa.DataType) -> tuple[Int64s, Mask | None]:
    """A time column as int64 ticks, and which rows have one (None: all)."""
    column = table.table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp(column.type.unit)).cast(pa.timestamp(time_type.unit))
    elif pa.types.is_date(column.type):
        column = column.cast(pa.timestamp(time_type.unit))
    elif column.type != pa.int64():
        column = column.cast(pa.int64())
    array = one_chunk(column)
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        array = array.fill_null(pa.scalar(0, pa.int64()).cast(array.type))
    numbers: Int64s = array.view(pa.int64()).to_numpy()
    if len(numbers) and not -SAFE_TIME < int(numbers.min()) <= int(numbers.max()) < SAFE_TIME:
        raise SchemaError(
            "time-range",
            f"column `{name}` of the {table.label} holds times beyond what can be added to a window",
            "use a coarser unit, or smaller integers",
        )
    return numbers, valid


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece, without a copy where it already is."""
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = column.cast(pa.large_string()).combine_chunks()
    return joined


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def load_events(
    sources: tuple[EventSource, ...], request: Request, report: Report, base: Sequence[Int64s] = ()
) -> EventStore:
    """Finds, keys, numbers and sorts the events of a query's streams.

    `base` gives, per table, the position already known of each row (-1: not known yet).
    """
    found = [_rows_by_stream(source, request) for source in sources]
    wanted = [
        np.arange(len(source.starts), dtype=np.int32) if request.counting else rows
        for source, (rows, _) in zip(sources, found, strict=True)
    ]
    keys, key_count = _partition_keys(sources, wanted, request)
    row_keys = (
        tuple(
            _scatter(len(source.starts), rows, codes, source.valid)
            for source, rows, codes in zip(sources, wanted, keys, strict=True)
        )
        if request.counting
        else ()
    )
    timeline, row_positions = (None, ())
    if request.counting:
        timeline, row_positions = _number_positions(sources, row_keys, key_count, base)
    streams: dict[str, Candidates] = {}
    for number, (source, (rows, runs)) in enumerate(zip(sources, found, strict=True)):
        names = [source.input.stream] if source.input.stream is not None else list(request.streams)
        for place, name in enumerate(names):
            begin, end = runs[place], runs[place + 1]
            if name is None or name not in request.streams:
                continue
            own = rows[begin:end]
            codes = row_keys[number][own] if request.counting else keys[number][begin:end]
            report.null_keys += int(np.count_nonzero(codes < 0))
            positions = row_positions[number] if request.counting else None
            streams[name] = _arrange(source, own, codes, key_count, positions)
    return EventStore(sources, streams, key_count, timeline, report, row_keys, row_positions)


def _rows_by_stream(source: EventSource, request: Request) -> tuple[Codes, Int64s]:
    """The rows of each stream of the request, one run per stream, and where the runs start."""
    count = len(source.starts)
    if source.input.stream is not None:
        rows = (
            np.arange(count, dtype=np.int32) if source.valid is None else np.flatnonzero(source.valid).astype(np.int32)
        )
        wanted = source.input.stream in request.streams
        return (rows if wanted else rows[:0]), np.array([0, len(rows) if wanted else 0], np.int64)
    codes = stream_codes(source.input, request.streams)
    if source.valid is not None:
        codes = np.where(source.valid, codes, np.int32(-1))
    return split_by_code(codes, len(request.streams))


def stream_codes(table: InputTable, streams: Sequence[str]) -> Codes:
    """Which of the streams each row belongs to, -1 for none of them."""
    assert table.type is not None
    column = table.table.column(table.type)
    wanted = pa.array(streams, pa.string())
    pieces = [_chunk_codes(chunk, wanted) for chunk in column.chunks]
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int32)


def _chunk_codes(chunk: pa.Array, wanted: pa.Array) -> Codes:
    if pa.types.is_dictionary(chunk.type):
        of_value = _chunk_codes(chunk.dictionary, wanted)
        indices = chunk.indices
        if indices.null_count:
            of_value = np.append(of_value, np.int32(-1))
            indices = pc.fill_null(indices.cast(pa.int32()), len(of_value) - 1)
        return of_value[indices.to_numpy(zero_copy_only=False)]
    text = chunk if pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type) else chunk.cast(pa.string())
    found = pc.index_in(text, value_set=wanted.cast(text.type), skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False)).astype(np.int32, copy=False)


def _partition_keys(
    sources: Sequence[EventSource], wanted: Sequence[Codes], request: Request
) -> tuple[list[Codes], int]:
    if not request.partition_by:
        return [np.zeros(len(rows), np.int32) for rows in wanted], 1
    used = [number for number, rows in enumerate(wanted) if len(rows)]
    codes = [np.zeros(0, np.int32) for _ in wanted]
    if not used:
        return codes, 0
    columns = [
        [key_column(sources[number], name, request).take(pa.array(wanted[number])) for number in used]
        for name in request.partition_by
    ]
    encoded, count = encode_columns(columns)
    for number, part in zip(used, encoded, strict=True):
        codes[number] = part
    return codes, count


def key_column(source: EventSource, name: str, request: Request) -> pa.Array:
    """A partition column; the words for time stand for the time columns."""
    if name in source.input.table.column_names:
        return source.column(name)
    times = {"s": source.starts, "t": source.starts, "e": source.ends}[name]
    return pa.array(times).view(request.time_type)


def _scatter(count: int, rows: Codes, codes: Codes, valid: Mask | None) -> Codes:
    """The code of every row of a table, -1 for rows without a time."""
    result = np.full(count, -1, np.int32)
    result[rows] = codes
    if valid is not None:
        result[~valid] = -1
    return result


def _arrange(source: EventSource, rows: Codes, keys: Codes, key_count: int, positions: Int64s | None) -> Candidates:
    """Sorted by key and start; rows without a key are left out. Equal times keep the order of arrival."""
    starts = source.starts[rows] if len(rows) < len(source.starts) else source.starts
    if not is_sorted(starts):
        order = order_by_time(starts)
        starts, rows, keys = starts[order], rows[order], keys[order]
    if key_count == 1 and (len(keys) == 0 or keys.min() >= 0):
        offsets = np.array([0, len(rows)], np.int64)
    else:
        order, offsets = group_by_key(keys, key_count)
        starts, rows, keys = starts[order], rows[order], keys[order]
    ends = starts if source.ends is source.starts else source.ends[rows]
    return Candidates(source, rows, keys, starts, ends, None if positions is None else positions[rows], offsets)


def _number_positions(
    sources: Sequence[EventSource], row_keys: Sequence[Codes], key_count: int, known: Sequence[Int64s]
) -> tuple[Timeline, tuple[Int64s, ...]]:
    """Numbers all events of each key in the order of (end, arrival), going on from the positions that are known already."""
    keys = np.concatenate(row_keys) if row_keys else np.empty(0, np.int32)
    ends = np.concatenate([source.ends for source in sources]) if sources else np.empty(0, np.int64)
    fixed = np.concatenate(known) if known else np.full(len(keys), -1, np.int64)
    base = np.zeros(key_count, np.int64)
    numbered = (fixed >= 0) & (keys >= 0)
    np.maximum.at(base, keys[numbered], fixed[numbered] + 1)
    open_keys = np.where(numbered, np.int32(-1), keys)
    order = order_by_time(ends)
    positions, _ = number_within_runs(open_keys, order, base)
    positions[numbered] = fixed[numbered]
    by_key, offsets = group_by_key(open_keys[order], key_count)
    timeline = Timeline(base, offsets, ends[order][by_key])
    lengths = np.cumsum([len(part) for part in row_keys])
    return timeline, tuple(np.split(positions, lengths[:-1]))
