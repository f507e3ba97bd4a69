"""Events as arrays: what the tables of a run hold for a query, per stream, sorted by key and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.keys import NO_KEY, encode_columns
from ensue.engine.sources import EventSource, Mask, Report
from ensue.kernels.compiled import Codes, Int64s
from ensue.kernels.sorting import (
    group_by_key,
    is_sorted,
    number_within_runs,
    offsets_of_runs,
    order_by_time,
)
from ensue.names import AnyEvent, Stream
from ensue.plan.inputs import InputTable

FOREVER = np.iinfo(np.int64).max
NEVER = np.iinfo(np.int64).min


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

    def at(self, side: str) -> Int64s:
        """The starts ("s") or ends ("e")."""
        return self.starts if side == "s" else self.ends

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
    streams: Mapping[Stream, Candidates]
    key_count: int
    timeline: Timeline | None
    report: Report
    row_keys: tuple[Codes, ...] = ()
    row_positions: tuple[Int64s, ...] = ()

    @property
    def is_certain(self) -> bool:
        """Whether every event is real in every world."""
        return all(source.uncertainty is None or source.uncertainty.is_certain for source in self.sources)

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

    streams: tuple[Stream, ...]
    partition_by: tuple[str, ...]
    time_type: pa.DataType
    counting: bool


def load_events(
    sources: tuple[EventSource, ...], request: Request, report: Report, known: Sequence[Int64s] = ()
) -> EventStore:
    """Finds, keys, numbers and sorts the events of a query's streams.

    `known` gives, per table, the positions that are settled already (-1: not yet), where positions are counted.
    """
    found = [_rows_by_stream(source, request) for source in sources]
    if request.counting:
        row_keys, key_count = _keys_of_all_rows(sources, request)
        keys = [codes[rows] for codes, (rows, _) in zip(row_keys, found, strict=True)]
        timeline, positions = _number_positions(sources, row_keys, key_count, known)
    else:
        keys, key_count = _partition_keys(sources, [rows for rows, _ in found], request)
        row_keys, timeline, positions = (), None, ()
    streams: dict[Stream, Candidates] = {}
    for place, (source, (rows, runs)) in enumerate(zip(sources, found, strict=True)):
        own_positions = positions[place] if request.counting else None
        for number, name in enumerate(_streams_in(source, request)):
            run = slice(runs[number], runs[number + 1])
            streams[name] = arrange(source, rows[run], keys[place][run], key_count, own_positions)
        if not source.input.derived:
            report.null_keys += _count_once(source, rows[keys[place] < 0], request)
    return EventStore(sources, streams, key_count, timeline, report, row_keys, positions)


def _count_once(source: EventSource, rows: Codes, request: Request) -> int:
    """How many different rows these are; a row comes again where it is of several streams."""
    several = any(isinstance(stream, AnyEvent) for stream in request.streams)
    return len(np.unique(rows)) if several or source.input.hierarchy else len(rows)


def _streams_in(source: EventSource, request: Request) -> tuple[Stream, ...]:
    """The streams of the request that a table holds, those that share events with others last."""
    held = (stream for stream in request.streams if source.input.holds(stream))
    return tuple(sorted(held, key=lambda name: _shares_events(name, source.input)))


def _rows_by_stream(source: EventSource, request: Request) -> tuple[Codes, Int64s]:
    """The rows of each stream of the request, one run per stream, and where the runs start."""
    streams = _streams_in(source, request)
    named = [name for name in streams if not _shares_events(name, source.input)]
    rows, runs = _rows_of_named(source, named) if named else (np.empty(0, np.int32), np.zeros(1, np.int64))
    for name in streams[len(named) :]:
        member = in_streams(source.input, [name])
        own = np.flatnonzero(member if source.valid is None else member & source.valid).astype(np.int32)
        rows, runs = np.concatenate([rows, own]), np.append(runs, runs[-1] + len(own))
    return rows, runs


def _shares_events(stream: Stream, table: InputTable) -> bool:
    """Whether an event of a stream can be one of another stream, too."""
    return isinstance(stream, AnyEvent) or len(table.hierarchy.kinds_of(stream)) > 1


def in_streams(table: InputTable, streams: Sequence[Stream]) -> Mask:
    """Which rows of a table with a type column belong, or may belong, to some of the streams."""
    plain = [name for name in streams if not isinstance(name, AnyEvent)]
    kinds = dict.fromkeys(kind for name in plain for kind in table.hierarchy.kinds_of(name))
    named = [kind for kind in kinds if isinstance(kind, str)]
    member: Mask = stream_codes(table, named) >= 0
    for name in streams:
        if isinstance(name, AnyEvent):
            assert table.type is not None
            typed = table.table.column(table.type).is_valid().to_numpy()
            member |= typed & (
                stream_codes(table, (*name.excluded, *(other for other in table.elsewhere if isinstance(other, str))))
                < 0
            )
    return member


def _rows_of_named(source: EventSource, streams: Sequence[Stream]) -> tuple[Codes, Int64s]:
    if all(stream in source.stream_rows for stream in streams):
        noted = [source.stream_rows[stream] for stream in streams]
        return np.concatenate(noted), np.concatenate([[0], np.cumsum([len(rows) for rows in noted])])
    return _search_rows(source, streams)


def _search_rows(source: EventSource, streams: Sequence[Stream]) -> tuple[Codes, Int64s]:
    whole = source.input.stream is not None
    codes = np.zeros(len(source.starts), np.int32) if whole else stream_codes(source.input, [*map(str, streams)])
    if source.valid is not None:
        codes = np.where(source.valid, codes, np.int32(-1))
    return group_by_key(codes, len(streams))


def note_streams(source: EventSource, streams: Sequence[Stream]) -> None:
    """Looks for the rows of all these streams at once, so that no query has to read the type column again."""
    if source.input.type is not None:
        named = [name for name in streams if isinstance(name, str)]
        rows, runs = _search_rows(source, named)
        source.stream_rows |= {name: rows[runs[place] : runs[place + 1]] for place, name in enumerate(named)}


def stream_codes(table: InputTable, streams: Sequence[str]) -> Codes:
    """Which of the streams each row belongs to, -1 for none of them."""
    assert table.type is not None
    column = table.table.column(table.type)
    pieces = [_chunk_codes(chunk, tuple(streams)) for chunk in column.chunks]
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int32)


@lru_cache(maxsize=256)
def _names(streams: tuple[str, ...], text: pa.DataType) -> pa.Array:
    return pa.array(streams, text)


def _chunk_codes(chunk: pa.Array, streams: tuple[str, ...]) -> Codes:
    if pa.types.is_dictionary(chunk.type):
        of_value = _chunk_codes(chunk.dictionary, streams)
        indices = chunk.indices
        if indices.null_count:
            of_value = np.append(of_value, np.int32(-1))
            indices = pc.fill_null(indices.cast(pa.int32()), len(of_value) - 1)
        codes: Codes = of_value[indices.to_numpy(zero_copy_only=False)]
        return codes
    text = chunk if pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type) else chunk.cast(pa.string())
    found = pc.index_in(text, value_set=_names(streams, text.type), skip_nulls=True)
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
        raw = source.input.table.schema.field(name).type
        return source.raw_column(name) if pa.types.is_decimal(raw) else source.column(name)
    times = {"s": source.starts, "t": source.starts, "e": source.ends}[name]
    return pa.array(times).view(request.time_type)


def _keys_of_all_rows(sources: Sequence[EventSource], request: Request) -> tuple[tuple[Codes, ...], int]:
    """The key of every row, relevant or not; NO_KEY for rows without a time."""
    everything = [np.arange(len(source.starts), dtype=np.int32) for source in sources]
    keys, key_count = _partition_keys(sources, everything, request)
    valid = [source.valid for source in sources]
    return tuple(
        codes if mask is None else np.where(mask, codes, np.int32(NO_KEY))
        for codes, mask in zip(keys, valid, strict=True)
    ), key_count


def arrange(
    source: EventSource, rows: Codes, keys: Codes, key_count: int, positions: Int64s | None = None
) -> Candidates:
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
    """Numbers all events of each key in the order of (end, arrival), going on from the positions known already."""
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
