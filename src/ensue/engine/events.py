"""The events of a run as arrays, per stream, sorted by key and time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.compiled_graph import CompiledGraphs
from ensue.engine.keys import NO_KEY, Texts, encode_columns, texts_of
from ensue.engine.order import Order, content_ranks, in_ties, lacks_order, order_of, tie_ranks
from ensue.engine.sources import EventSource, Mask
from ensue.engine.views import members_of, stream_source, with_keys
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.sorted_runs import (
    group_by_key,
    is_sorted,
    number_within_runs,
    offsets_of_runs,
    order_by_time,
)
from ensue.nodes.names import AnyEvent, Stream
from ensue.plan.inputs import InputTable
from ensue.plan.plans import QueryPlan
from ensue.plan.selections import PLAIN

Answer = TypeVar("Answer")

FEW_NAMES = 256
"""For up to this number of streams, a look-up in a dictionary is faster than Arrow."""

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
    start_places: Int64s
    """The places of the starts in the order of events: the starts, unless columns order events at the same time."""
    end_places: Int64s

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def are_points(self) -> bool:
        return self.ends is self.starts

    def at(self, side: str) -> Int64s:
        """The starts ("s") or ends ("e")."""
        return self.starts if side == "s" else self.ends

    def select(self, mask: Mask) -> Candidates:
        """The candidates for which the mask is true."""
        return self.at_places(np.flatnonzero(mask))

    def at_places(self, kept: Int64s) -> Candidates:
        """The candidates at some places, in increasing order."""
        if len(kept) == len(self):
            return self
        keys = self.keys[kept]
        starts = self.starts[kept]
        ends = starts if self.are_points else self.ends[kept]
        start_places = starts if self.start_places is self.starts else self.start_places[kept]
        if self.end_places is self.ends:
            end_places = ends
        else:
            end_places = start_places if self.end_places is self.start_places else self.end_places[kept]
        return Candidates(
            self.source,
            self.rows[kept],
            keys,
            starts,
            ends,
            None if self.positions is None else self.positions[kept],
            offsets_of_runs(keys, len(self.offsets) - 1),
            start_places,
            end_places,
        )


@dataclass(frozen=True, slots=True)
class Timeline:
    """The ends of all events of each key by position, known from position `base[key]` on."""

    base: Int64s
    offsets: Int64s
    ends: Int64s

    def end_at(self, keys: Codes, positions: Int64s) -> Int64s:
        """The end of the event at a position: FOREVER if it has not come, NEVER if it is before the known positions."""
        places = positions - self.base[keys]
        known = places < self.offsets[keys + 1] - self.offsets[keys]
        inside = np.where(known & (places >= 0), self.offsets[keys] + places, 0)
        ends = self.ends[inside] if len(self.ends) else np.zeros(len(keys), np.int64)
        return np.where(places < 0, NEVER, np.where(known, ends, FOREVER))


@dataclass(frozen=True, slots=True)
class Equals:
    """An index of a field of a stream: the places in the order of the values, increasing for equal values."""

    places: Int64s
    values: np.ndarray

    def of(self, value: int | str) -> Int64s:
        """The places of the events whose field equals a value."""
        first, last = np.searchsorted(self.values, value, "left"), np.searchsorted(self.values, value, "right")
        return self.places[first:last]


@dataclass(frozen=True, slots=True)
class EventStore:
    """All events of a run that queries may use, by stream. What several queries need is computed once."""

    sources: tuple[EventSource, ...]
    streams: Mapping[Stream, Candidates]
    key_count: int
    timeline: Timeline | None
    row_keys: tuple[Codes, ...] = ()
    row_positions: tuple[Int64s, ...] = ()
    compared: frozenset[tuple[Stream, str]] = frozenset()
    shared: dict[Hashable, Any] = field(default_factory=dict)
    without_key: Mapping[Stream, tuple[EventSource, Codes]] = field(default_factory=dict)
    """For some streams, the rows without a key."""
    compiled: CompiledGraphs = field(default_factory=CompiledGraphs)
    order: Order | None = None
    """The order of events at the same time; None: they have none."""

    def keyless(self, streams: Iterable[Stream]) -> int:
        """The number of rows of some streams without a key; a row of several streams counts once."""
        found: dict[int, list[Codes]] = {}
        for stream in streams:
            if stream in self.without_key:
                source, rows = self.without_key[stream]
                found.setdefault(id(source), []).append(rows)
        return sum(len(np.unique(np.concatenate(parts))) for parts in found.values())

    @property
    def is_certain(self) -> bool:
        """Whether every event is certain."""
        return all(source.uncertainty is None or source.uncertainty.is_certain for source in self.sources)

    @property
    def span(self) -> int:
        """The length of the time that the events cover."""
        if "span" not in self.shared:
            present = [stream for stream in self.streams.values() if len(stream)]
            last = max((int(stream.ends.max()) for stream in present), default=0)
            self.shared["span"] = last - min((int(stream.starts.min()) for stream in present), default=0)
        found: int = self.shared["span"]
        return found

    def ends_in_turn(self, found: Candidates) -> Int64s:
        """The places of ends in the order in which a context processes events: of those at the same time, events
        without an order come first."""
        source = found.source.origin
        if self.order is None or not (source.input.derived and source.input.order):
            return found.end_places
        unordered = lacks_order(source, last=True)[found.rows]
        return np.where(unordered, self.order.at_least(found.ends), found.end_places)

    def once(self, question: Hashable, answer: Callable[[], Answer]) -> Answer:
        """Computes a result that several queries need once."""
        if question not in self.shared:
            self.shared[question] = answer()
        found: Answer = self.shared[question]
        return found

    def ties(self, columns: tuple[str, ...]) -> tuple[Int64s, ...]:
        """For each table, ranks that order the events with the same interval by some columns."""
        return self.once(("ties", columns), lambda: self._ties(columns))

    def _ties(self, columns: tuple[str, ...]) -> tuple[Int64s, ...]:
        if any(source.input.views for source in self.sources):
            every = {name for source in self.sources for name in source.input.table.column_names}
            return tie_ranks(self.sources, sorted(every))
        shared = any(isinstance(name, AnyEvent) for name in self.streams)
        if shared or any(source.input.hierarchy.parts for source in self.sources):
            return tie_ranks(self.sources, columns)
        ranks = [np.zeros(len(source.starts), np.int64) for source in self.sources]
        of_source = {id(source): own for source, own in zip(self.sources, ranks, strict=True)}
        size = 1 + max(map(len, ranks), default=0)
        for number, name in enumerate(sorted(self.streams, key=str)):
            found = self.streams[name]
            own, tied = of_source[id(found.source)], np.flatnonzero(in_ties(found.keys, found.start_places))
            own[found.rows] = number * size
            own[found.rows[tied]] += content_ranks(found.source, found.rows[tied], columns)
        return tuple(ranks)

    def column(self, stream: Stream, name: str) -> pa.Array:
        """A column of all events of a stream, in their order."""
        found = self.streams[stream]
        return self.once(("column", stream, name), lambda: found.source.values(name, found.rows))

    def equals(self, stream: Stream, name: str) -> Equals | None:
        """The index of a column of a stream; None for columns that are not integers or text."""
        return self.once(("equals", stream, name), lambda: _equals(self.column(stream, name)))


def _equals(column: pa.Array) -> Equals | None:
    kind = column.type
    if not (pa.types.is_int64(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    present = np.arange(len(column)) if not column.null_count else np.flatnonzero(np.asarray(column.is_valid()))
    values = np.asarray(column.drop_null())
    order = np.argsort(values, kind="stable")
    return Equals(present[order], values[order])


@dataclass(frozen=True, slots=True)
class Request:
    """The data that a query needs from the tables."""

    streams: tuple[Stream, ...]
    partition_by: tuple[str, ...]
    time_type: pa.DataType
    counting: bool
    compared: frozenset[tuple[Stream, str]] = frozenset()
    """The columns of streams that are compared with many constants."""
    compiled: CompiledGraphs = field(default_factory=CompiledGraphs, compare=False)
    tied_by: tuple[str, ...] = ()
    """The columns that order the positions of events with the same interval."""


def request_of(plan: QueryPlan) -> Request:
    """The data that a plan needs from the tables."""
    return Request(
        plan.streams, plan.query.partition_by, plan.catalog.time_type, plan.counting, tied_by=plan.used_columns
    )


def load_events(sources: tuple[EventSource, ...], request: Request, known: Sequence[Int64s] = ()) -> EventStore:
    """Selects, encodes, numbers and sorts the events of a query's streams.

    `known` has, per table, the positions that are known already (-1: unknown), if positions are counted.
    """
    found = [_rows_by_stream(source, request) for source in sources]
    order = order_of(sources) if any(source.input.order for source in sources) else None
    if request.counting:
        row_keys, key_count = _keys_of_all_rows(sources, request)
        keys = [codes[rows] for codes, (_, rows, _) in zip(row_keys, found, strict=True)]
        ties = tie_ranks(sources, request.tied_by)
        timeline, positions = _number_positions(sources, row_keys, key_count, known, order, ties)
    else:
        if any(source.input.views for source in sources):
            keys, key_count = _keys_of_streams(sources, found, request)
        else:
            keys, key_count = _partition_keys(sources, [rows for _, rows, _ in found], request)
        row_keys, timeline, positions = (), None, ()
    streams: dict[Stream, Candidates] = {}
    without_key: dict[Stream, tuple[EventSource, Codes]] = {}
    for place, (source, (names, rows, runs)) in enumerate(zip(sources, found, strict=True)):
        own_positions = positions[place] if request.counting else None
        keyless = bool(len(keys[place])) and not source.input.derived and int(keys[place].min()) < 0
        for number, name in enumerate(names):
            run = slice(runs[number], runs[number + 1])
            places = None if order is None else (order.starts[place], order.ends[place])
            own = stream_source(source, name, request.time_type) if source.input.views else source
            streams[name] = arrange(own, rows[run], keys[place][run], key_count, own_positions, places)
            if keyless and len(streams[name]) < runs[number + 1] - runs[number]:
                without_key[name] = source, rows[run][keys[place][run] < 0]
    return EventStore(
        sources,
        streams,
        key_count,
        timeline,
        row_keys,
        positions,
        request.compared,
        without_key=without_key,
        compiled=request.compiled,
        order=order,
    )


def _streams_in(source: EventSource, request: Request) -> tuple[list[Stream], list[Stream]]:
    """The streams of the request in a table: those whose events belong to no other stream, and the others."""
    alone: list[Stream] = []
    sharing: list[Stream] = []
    for stream in filter(source.input.holds, request.streams):
        levels = source.input.hierarchy
        shares = isinstance(stream, AnyEvent) or stream in source.input.views
        shares = shares or (bool(levels.parts) and len(levels.kinds_of(stream)) > 1)
        (sharing if shares else alone).append(stream)
    return alone, sharing


def _rows_by_stream(source: EventSource, request: Request) -> tuple[list[Stream], Codes, Int64s]:
    """The streams of the request in a table, their rows, one run per stream, and the starts of the runs."""
    alone, sharing = _streams_in(source, request)
    rows, runs = np.empty(0, np.int32), np.zeros(1, np.int64)
    if alone:
        whole = source.input.stream is not None
        codes = np.zeros(len(source.starts), np.int32) if whole else stream_codes(source.input, [*map(str, alone)])
        if source.valid is not None:
            codes = np.where(source.valid, codes, np.int32(-1))
        if PLAIN in source.input.table.column_names:
            codes = np.where(np.asarray(source.raw_column(PLAIN)), codes, np.int32(-1))
        rows, runs = group_by_key(codes, len(alone))
    for name in sharing:
        own = _sharing_rows(source, name, request.time_type)
        rows, runs = np.concatenate([rows, own]), np.append(runs, runs[-1] + len(own))
    return [*alone, *sharing], rows, runs


def _sharing_rows(source: EventSource, stream: Stream, time_type: pa.DataType) -> Codes:
    """The rows of a stream whose events may belong to other streams, too."""
    if stream in source.input.views:
        return members_of(source, stream, time_type)
    member = in_streams(source.input, [stream])
    if PLAIN in source.input.table.column_names:
        member &= np.asarray(source.raw_column(PLAIN))
    if isinstance(stream, AnyEvent):
        for name in stream.excluded:
            if name in source.input.views:
                member[members_of(source, name, time_type)] = False
    return np.flatnonzero(member if source.valid is None else member & source.valid).astype(np.int32)


def in_streams(table: InputTable, streams: Sequence[Stream]) -> Mask:
    """The rows of a table that belong, or may belong, to some of the streams."""
    if table.stream is not None or not table.views.keys().isdisjoint(streams):
        return np.full(table.table.num_rows, any(map(_has_rows_of(table), streams)))
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


def _has_rows_of(table: InputTable) -> Callable[[Stream], bool]:
    """Whether a table that is one stream may have rows of another."""
    return lambda stream: table.holds(stream) and not (isinstance(stream, AnyEvent) and table.stream in stream.excluded)


def stream_codes(table: InputTable, streams: Sequence[str]) -> Codes:
    """The stream of each row, -1 for none of them."""
    assert table.type is not None
    column = table.table.column(table.type)
    pieces = [_chunk_codes(chunk, tuple(streams)) for chunk in column.chunks]
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int32)


@lru_cache(maxsize=256)
def _names(streams: tuple[str, ...], text: pa.DataType) -> pa.Array:
    return pa.array(streams, text)


@lru_cache(maxsize=256)
def _known_names(streams: tuple[str, ...]) -> Texts:
    known = Texts()
    known.codes(*texts_of(_names(streams, pa.large_string())))
    return known


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
    if len(text) <= FEW_NAMES and not text.null_count:
        return _known_names(streams).find(*texts_of(text))
    found = pc.index_in(text, value_set=_names(streams, text.type), skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False)).astype(np.int32, copy=False)


def _keys_of_streams(
    sources: Sequence[EventSource], found: Sequence[tuple[list[Stream], Codes, Int64s]], request: Request
) -> tuple[list[Codes], int]:
    """The key of each row of each stream. A key that is a column of a stream of rows may differ between streams."""
    parts: list[tuple[EventSource, Codes]] = []
    counts: list[int] = []
    for source, (names, rows, runs) in zip(sources, found, strict=True):
        own = [(source, rows)]
        if source.input.views:
            own = [
                (stream_source(source, name, request.time_type), rows[runs[number] : runs[number + 1]])
                for number, name in enumerate(names)
            ]
        parts += own
        counts.append(len(own))
    keys, key_count = _partition_keys([source for source, _ in parts], [rows for _, rows in parts], request)
    ends = np.cumsum(counts)
    joined = [
        keys[end - count] if count == 1 else np.concatenate([np.empty(0, np.int32), *keys[end - count : end]])
        for end, count in zip(ends, counts, strict=True)
    ]
    return joined, key_count


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
    """A partition column; the names of time fields refer to the time columns."""
    if name in source.input.table.column_names:
        raw = source.input.table.schema.field(name).type
        return source.raw_column(name) if pa.types.is_decimal(raw) else source.column(name)
    times = {"s": source.starts, "t": source.starts, "e": source.ends}[name]
    return pa.array(times).view(request.time_type)


def _keys_of_all_rows(sources: Sequence[EventSource], request: Request) -> tuple[tuple[Codes, ...], int]:
    """The key of every row, whether or not a query needs it; NO_KEY for rows without a time."""
    everything = [np.arange(len(source.starts), dtype=np.int32) for source in sources]
    keyed = [with_keys(source, request.partition_by, request.time_type) for source in sources]
    keys, key_count = _partition_keys(keyed, everything, request)
    valid = [source.valid for source in sources]
    return tuple(
        codes if mask is None else np.where(mask, codes, np.int32(NO_KEY))
        for codes, mask in zip(keys, valid, strict=True)
    ), key_count


def arrange(
    source: EventSource,
    rows: Codes,
    keys: Codes,
    key_count: int,
    positions: Int64s | None = None,
    places: tuple[Int64s, Int64s] | None = None,
) -> Candidates:
    """Sorts by key and start; rows without a key are left out. Equal starts are sorted by position, if positions are
    counted, and otherwise keep the order of arrival.

    `places` are those of the starts and ends of all rows of the source in the order of events.
    """
    begins = source.starts if places is None else places[0]
    starts = begins[rows] if len(rows) < len(begins) else begins
    if positions is not None or not is_sorted(starts):
        order = order_by_time(starts) if positions is None else np.lexsort((positions[rows], starts)).astype(np.int32)
        starts, rows, keys = starts[order], rows[order], keys[order]
    if key_count == 1 and (len(keys) == 0 or keys.min() >= 0):
        offsets = np.array([0, len(rows)], np.int64)
    else:
        order, offsets = group_by_key(keys, key_count)
        starts, rows, keys = starts[order], rows[order], keys[order]
    start_places = starts
    if places is not None:
        starts = source.starts[rows]
    ends = starts if source.ends is source.starts else source.ends[rows]
    end_places = ends
    if places is not None:
        end_places = start_places if places[1] is places[0] else places[1][rows]
    own_positions = None if positions is None else positions[rows]
    return Candidates(source, rows, keys, starts, ends, own_positions, offsets, start_places, end_places)


def _number_positions(
    sources: Sequence[EventSource],
    row_keys: Sequence[Codes],
    key_count: int,
    known: Sequence[Int64s],
    order_of_events: Order | None,
    ties: Sequence[Int64s],
) -> tuple[Timeline, tuple[Int64s, ...]]:
    """Numbers all events of each key in the order of (end, start, content), continuing from the known positions."""
    keys = np.concatenate(row_keys) if row_keys else np.empty(0, np.int32)
    ends = np.concatenate([source.ends for source in sources]) if sources else np.empty(0, np.int64)
    fixed = np.concatenate(known) if known else np.full(len(keys), -1, np.int64)
    base = np.zeros(key_count, np.int64)
    numbered = (fixed >= 0) & (keys >= 0)
    np.maximum.at(base, keys[numbered], fixed[numbered] + 1)
    open_keys = np.where(numbered, np.int32(-1), keys)
    places = ends if order_of_events is None else np.concatenate([*order_of_events.ends, ends[:0]])
    starts = np.concatenate([*(source.starts for source in sources), ends[:0]])
    order = np.lexsort((np.concatenate([*ties, ends[:0]]), starts, places)).astype(np.int32).astype(np.int32)
    positions, _ = number_within_runs(open_keys, order, base)
    positions[numbered] = fixed[numbered]
    by_key, offsets = group_by_key(open_keys[order], key_count)
    timeline = Timeline(base, offsets, ends[order][by_key])
    lengths = np.cumsum([len(part) for part in row_keys])
    return timeline, tuple(np.split(positions, lengths[:-1]))


# --- which steps search for ties

FEW_TIMES = 1 << 8
"""Up to this number of events, it is cheaper to look first whether any two are at the same time."""

FIRST_STEPS, STEPS = 16, 16
"""Ties are searched in this many steps of a stream, and then in one of so many."""


def searches_ties(plan: QueryPlan, store: EventStore | None = None, last: bool = True) -> bool:
    """Whether results can depend on events at the same time: nothing orders them, and all events are certain.

    With the events of a step, whether the step searches them: of many steps only some, unless it is the last one, and
    few events only if some are at the same time.
    """
    form = plan.normal_form
    if form.is_ordered or form.allows_ties or plan.uncertain or plan.tracking is not None:
        return False
    if store is None:
        return True
    if not last:
        steps = store.compiled.steps_of[id(plan)] = store.compiled.steps_of.get(id(plan), 0) + 1
        if steps > FIRST_STEPS and steps % STEPS:
            return False
    events = [store.streams[name] for name in plan.streams]
    if sum(map(len, events)) > FEW_TIMES:
        return True
    ends = [found.ends for found in events if not found.are_points]
    times = np.concatenate([*(found.starts for found in events), *ends])
    return len(np.unique(times)) < len(times)
