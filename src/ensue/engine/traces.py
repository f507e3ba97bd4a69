"""Watching traces while events are loaded: events of hopeless traces are skipped, their state is dropped.

A query whose plan has a monitor keeps a record per trace: which of the watched streams have occurred, and how far
matches have come. The record of a trace that has failed is its tombstone. Records go when their trace ends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ensue.engine.events import Candidates, EventStore, Request, arrange, key_column, load_events, stream_codes
from ensue.engine.keys import encode_columns
from ensue.engine.sources import EventSource, Mask, Report, one_chunk
from ensue.engine.workspace import cached_candidates
from ensue.graph.bounds import FAR
from ensue.kernels.compiled import Codes, Int64s
from ensue.kernels.sorting import group_by_key, is_sorted, order_by_time
from ensue.kernels.traces import NEVER, Bits, Rules, Traces, follow
from ensue.plan.model import QueryPlan
from ensue.plan.monitor import MOST_STEPS, Monitor

TRACE = "ensue:trace"
"""The column that numbers the traces of a key, where a key has had several."""

KEY, SEEN, REACHED, BEGAN, FAILED = "key", "seen", "reached", "began", "failed"


@dataclass(frozen=True, slots=True)
class Watched:
    """The events of a query after its traces were watched.

    `found` are the candidates of its variables, without those that are skipped, and `completing` those of traces in
    which a match may have been completed. Where traces are watched, `dropped` are the rows, per table, that need not be
    kept, `records` what is known of the traces that go on, and `spared` says until when events would have been kept
    that are not, because their traces have failed. `failed_keys` gives the keys of traces that may lack matches.
    """

    store: EventStore
    found: dict[Hashable, Candidates]
    completing: dict[Hashable, Candidates]
    dropped: tuple[Mask, ...] | None = None
    records: pa.Table | None = None
    spared: Int64s | None = None
    failed_keys: Callable[[], pa.Table] | None = None


def watch(
    plan: QueryPlan,
    sources: tuple[EventSource, ...],
    request: Request,
    report: Report,
    known: Sequence[Int64s] = (),
    records: pa.Table | None = None,
    after: int | None = None,
    until: int | None = None,
) -> Watched:
    """Loads the events of a query and, if it watches traces, leads those that are new through them.

    New are the events that end after `after` and not after `until`; `records` says what came before. The report says
    how many traces have failed and how many events were skipped.
    """
    if plan.monitor is None:
        found: dict[Hashable, Candidates] = {}
        return Watched(load_events(sources, request, report, known), found, found)
    return _Watch(plan, plan.monitor, sources, request, report, records).run(after, until)


def no_records(plan: QueryPlan, sources: Sequence[EventSource], request: Request) -> pa.Table | None:
    """The records of a query before any event."""
    if plan.monitor is None:
        return None
    return record_table(no_keys(sources, request), np.empty(0, np.int64), _new_traces(0, plan.monitor))


def no_keys(sources: Sequence[EventSource], request: Request) -> dict[str, pa.Array]:
    """The key columns of a table without rows."""
    return {
        f"{KEY}_{place}": next(key_parts(name, sources, request)).slice(0, 0)
        for place, name in enumerate(request.partition_by)
    }


class TraceRows:
    """The rows of some streams by trace.

    `rows` are, per table, those that take part, in the order of the table, `codes` their streams and `keys` their
    traces, as are `known_keys` the traces in further tables that have key columns.
    """

    def __init__(
        self,
        streams: tuple[str, ...],
        sources: tuple[EventSource, ...],
        request: Request,
        known: Sequence[pa.Table] = (),
    ) -> None:
        self.streams = streams
        self.sources = sources
        all_codes = [self._stream_codes(source) for source in sources]
        self.rows = [np.flatnonzero(codes >= 0).astype(np.int32) for codes in all_codes]
        self.codes = [codes[rows] for codes, rows in zip(all_codes, self.rows, strict=True)]
        self.values = [self._key_values(place, request, known) for place in range(len(request.partition_by))]
        encoded, self.key_count = encode_columns([[values] for values in self.values])
        self.all_keys = encoded[0]
        lengths = [*map(len, self.rows), *(table.num_rows for table in known)]
        parts = np.split(self.all_keys, np.cumsum(lengths)[:-1])
        self.keys, self.known_keys = parts[: len(sources)], parts[len(sources) :]

    def _stream_codes(self, source: EventSource) -> Codes:
        """Which of the streams each row belongs to, -1 for rows that take no part."""
        stream = source.input.stream
        if stream is None:
            codes = stream_codes(source.input, self.streams)
        else:
            number = self.streams.index(stream) if stream in self.streams else -1
            codes = np.full(len(source.starts), number, np.int32)
        return codes if source.valid is None else np.where(source.valid, codes, np.int32(-1))

    def _key_values(self, place: int, request: Request, known: Sequence[pa.Table]) -> pa.Array:
        """A partition column of all rows that take part, then of the further tables."""
        name = request.partition_by[place]
        parts = [
            values if len(rows) == len(values) else values.take(pa.array(rows))
            for values, rows in zip(key_parts(name, self.sources, request), self.rows, strict=True)
        ]
        parts += [one_chunk(table.column(f"{KEY}_{place}")) for table in known]
        together = pa.concat_tables([pa.table([part], [KEY]) for part in parts], promote_options="permissive")
        return one_chunk(together.column(0))

    @property
    def times(self) -> Int64s:
        return joined([source.ends[rows] for source, rows in zip(self.sources, self.rows, strict=True)])

    def new(self, after: int | None, until: int | None) -> Codes:
        """The places of the rows, in the order of all tables, that end after `after` and not after `until`, by time."""
        times = self.times
        new = np.ones(len(times), bool)
        if after is not None:
            new &= times > after
        if until is not None:
            new &= times <= until
        order = np.flatnonzero(new).astype(np.int32)
        return order if is_sorted(times[order]) else order[order_by_time(times[order])]

    def key_columns(self, numbers: Int64s) -> dict[str, pa.Array]:
        """The keys of some traces as columns."""
        place = np.empty(self.key_count, np.int64)
        known = np.flatnonzero(self.all_keys >= 0)
        place[self.all_keys[known]] = known
        return {f"{KEY}_{number}": values.take(pa.array(place[numbers])) for number, values in enumerate(self.values)}

    def by_table(self, values: np.ndarray) -> list[np.ndarray]:
        """What was found for the rows of all tables, by table."""
        return np.split(values, np.cumsum([len(rows) for rows in self.rows])[:-1])


class _Watch:
    """One pass over the events of a query. The streams of the query come first in `events.streams`."""

    def __init__(
        self,
        plan: QueryPlan,
        monitor: Monitor,
        sources: tuple[EventSource, ...],
        request: Request,
        report: Report,
        records: pa.Table | None,
    ) -> None:
        self.plan = plan
        self.monitor = monitor
        self.sources = sources
        self.request = request
        self.report = report
        self.records = records
        self.events = TraceRows(plan.all_streams, sources, request, () if records is None else (records,))
        self.traces = self._traces()

    def _traces(self) -> Traces:
        """What the records say of each trace, and nothing of the others."""
        traces = _new_traces(self.events.key_count, self.monitor)
        if self.records is not None and self.records.num_rows:
            place = self.events.known_keys[0]
            traces.seen[place] = self.records.column(SEEN).to_numpy()
            traces.began[place] = self.records.column(BEGAN).to_numpy()
            traces.failed[place] = self.records.column(FAILED).to_numpy()
            for number in range(len(self.monitor.graphs)):
                traces.reached[place, number] = self.records.column(f"{REACHED}_{number}").to_numpy()
        return traces

    def run(self, after: int | None, until: int | None) -> Watched:
        had_failed = self.traces.failed.copy()
        self.may_lack_matches = had_failed.copy()
        store = self._store()
        found: dict[Hashable, Candidates] = {}
        leaves = self._leaves(store, found)
        skipped, numbers = self._follow(leaves, after, until)
        self.report.traces_failed += int(np.count_nonzero(self.traces.failed & ~had_failed))
        for keys, codes, mask in zip(self.events.keys, self.events.codes, skipped, strict=True):
            lost = keys[mask & (codes < len(self.plan.streams))]
            self.report.events_skipped += len(lost)
            self.may_lack_matches[lost] = True
        if self.traces.number.any():
            store = self._by_trace(skipped, numbers)
            found = completing = {}
        else:
            found = self._narrowed(found, skipped, store)
            completing = self._completing(found)
        kept = self._kept_records(until)
        dropped = tuple(self._dropped(numbers))
        spared = self._spared(skipped, dropped, leaves, had_failed)
        return Watched(store, found, completing, dropped, kept, spared, self.failed_keys)

    def _store(self) -> EventStore:
        """The events of the query in traces that have not failed."""
        streams: dict[str, Candidates] = {}
        own = len(self.plan.streams)
        events = self.events
        for source, rows, keys, codes in zip(self.sources, events.rows, events.keys, events.codes, strict=True):
            wanted = codes < own
            self.report.null_keys += int(np.count_nonzero(wanted & (keys < 0)))
            alive = np.flatnonzero(wanted & ~_of_rows(self.traces.failed, keys))
            order, runs = group_by_key(codes[alive], own)
            for number, stream in enumerate(self.plan.streams):
                if source.input.stream in (None, stream):
                    places = alive[order[runs[number] : runs[number + 1]]]
                    streams[stream] = arrange(source, rows[places], keys[places], events.key_count)
        return EventStore(self.sources, streams, events.key_count, None, self.report)

    def _leaves(self, store: EventStore, found: dict[Hashable, Candidates]) -> list[Bits]:
        """Per table and row the leaves of the monitor that it satisfies. Looks up every variable on the way."""
        leaves = [np.zeros(len(source.starts), np.uint64) for source in self.sources]
        places = {id(source): place for place, source in enumerate(store.sources)}
        for graph_plan in self.plan.graphs:
            for inner in graph_plan.with_inner():
                for variable in inner.graph.variables:
                    cached_candidates(variable, inner.graph, store, self.plan.catalog, found)
        for number, leaf in enumerate(self.monitor.leaves):
            events = cached_candidates(leaf.variable, leaf.graph, store, self.plan.catalog, found)
            leaves[places[id(events.source)]][events.rows] |= np.uint64(1 << number)
        return leaves

    def _follow(self, leaves: Sequence[Bits], after: int | None, until: int | None) -> tuple[list[Mask], list[Codes]]:
        """Leads the new events through their traces.

        Gives, per table, which of the rows that take part are skipped, and the number of each one's trace in its key.
        """
        events = self.events
        bit_of = np.zeros(len(events.streams), np.uint64)
        for number, stream in enumerate(self.monitor.watched):
            bit_of[events.streams.index(stream)] = np.uint64(1 << number)
        satisfied = joined([bits[rows] for bits, rows in zip(leaves, events.rows, strict=True)])
        occurs = bit_of[joined(events.codes)]
        skipped, numbers = np.zeros(len(occurs), bool), np.zeros(len(occurs), np.int32)
        follow(
            events.new(after, until),
            joined(events.keys),
            events.times,
            satisfied,
            occurs,
            rules_of(self.monitor),
            self.traces,
            skipped,
            numbers,
        )
        return events.by_table(skipped), events.by_table(numbers)

    def _by_trace(self, skipped: Sequence[Mask], numbers: Sequence[Codes]) -> EventStore:
        """The events apart by trace, where a key has had several."""
        sources = []
        for source, rows, own, mask in zip(self.sources, self.events.rows, numbers, skipped, strict=True):
            of_row, valid = np.zeros(len(source.starts), np.int32), np.zeros(len(source.starts), bool)
            of_row[rows] = own
            valid[rows[~mask]] = True
            table = source.input.table.append_column(TRACE, pa.array(of_row))
            sources.append(EventSource(replace(source.input, table=table), source.starts, source.ends, valid))
        request = replace(self.request, partition_by=(*self.request.partition_by, TRACE))
        return load_events(tuple(sources), request, Report())

    def _narrowed(
        self, found: dict[Hashable, Candidates], skipped: Sequence[Mask], store: EventStore
    ) -> dict[Hashable, Candidates]:
        """The candidates without those that are skipped."""
        if not any(mask.any() for mask in skipped):
            return found
        left_out = []
        for source, rows, mask in zip(self.sources, self.events.rows, skipped, strict=True):
            of_row = np.zeros(len(source.starts), bool)
            of_row[rows] = mask
            left_out.append(of_row)
        places = {id(source): place for place, source in enumerate(store.sources)}
        return {
            wanted: events.select(~left_out[places[id(events.source)]][events.rows]) for wanted, events in found.items()
        }

    def _completing(self, found: dict[Hashable, Candidates]) -> dict[Hashable, Candidates]:
        """The candidates in traces whose last events have come; a match that trails needs no event to complete."""
        if any(graph.trails or not graph.follows for graph in self.monitor.graphs):
            return found
        return {wanted: events.select(self.traces.completes[events.keys]) for wanted, events in found.items()}

    def _dropped(self, numbers: Sequence[Codes]) -> Iterator[Mask]:
        """The rows of traces that have failed, or that were not the last of their key."""
        for source, rows, keys, own in zip(self.sources, self.events.rows, self.events.keys, numbers, strict=True):
            dropped = np.zeros(len(source.starts), bool)
            dropped[rows] = _of_rows(self.traces.failed, keys) | (own < _of_rows(self.traces.number, keys))
            yield dropped

    def _kept_records(self, until: int | None) -> pa.Table | None:
        """The records of the traces that go on."""
        if self.records is None:
            return None
        traces, lifetime = self.traces, self.monitor.lifetime
        kept = (traces.began != NEVER) & ~traces.closed
        if lifetime is not None and until is not None:
            kept &= traces.began > until - lifetime
        return self._records(np.flatnonzero(kept))

    def _records(self, numbers: Int64s) -> pa.Table:
        return record_table(self.events.key_columns(numbers), numbers, self.traces)

    def failed_keys(self) -> pa.Table:
        """The keys of the traces that had failed before events of the query came."""
        return pa.table(self.events.key_columns(np.flatnonzero(self.may_lack_matches)))

    def _spared(
        self, skipped: Sequence[Mask], dropped: Sequence[Mask], leaves: Sequence[Bits], had_failed: Mask
    ) -> Int64s:
        """Until when each event would have been kept that is not, because its trace has failed.

        Of the events that came after that, only those are known to be events of the query whose streams it takes whole.
        """
        if not any(mask.any() for mask in (*skipped, *dropped)):
            return np.empty(0, np.int64)
        found = []
        events, kept_for, whole = self.events, *_retention_of_streams(self.plan)
        for source, rows, keys, codes, mask, gone, bits in zip(
            self.sources, events.rows, events.keys, events.codes, skipped, dropped, leaves, strict=True
        ):
            asleep = _of_rows(had_failed, keys)
            own = codes < len(self.plan.streams)
            whole_stream = np.append(whole, np.zeros(len(events.streams) - len(whole), bool))[codes]
            spared = own & np.where(asleep, mask & whole_stream, (bits[rows] != 0) & gone[rows])
            places = np.flatnonzero(spared)
            found.append(source.ends[rows[places]] + kept_for[codes[places]])
        return joined(found)


def key_parts(name: str, sources: Sequence[EventSource], request: Request) -> Iterator[pa.Array]:
    return (key_column(source, name, request) for source in sources)


def _new_traces(count: int, monitor: Monitor) -> Traces:
    starts = rules_of(monitor).starts
    shape = (count, len(starts))
    return Traces(
        seen=np.zeros(count, np.uint64),
        reached=np.tile(starts, (count, 1)).reshape(shape),
        began=np.full(count, NEVER, np.int64),
        failed=np.zeros(count, bool),
        closed=np.zeros(count, bool),
        number=np.zeros(count, np.int32),
        gained=np.zeros(shape, np.uint64),
        lost=np.zeros(shape, np.uint64),
        moment=np.full(count, NEVER, np.int64),
        changed=np.zeros(count, bool),
        completes=np.zeros(count, bool),
    )


def record_table(keys: Mapping[str, pa.Array], numbers: Int64s, traces: Traces) -> pa.Table:
    columns = dict(keys)
    columns |= {SEEN: traces.seen[numbers], BEGAN: traces.began[numbers], FAILED: traces.failed[numbers]}
    columns |= {f"{REACHED}_{graph}": traces.reached[numbers, graph] for graph in range(traces.reached.shape[1])}
    return pa.table(columns)


def _of_rows(values: np.ndarray, keys: Codes) -> np.ndarray:
    """The value of each row's trace; that of no trace is zero."""
    return values[keys] & (keys >= 0) if values.dtype == bool else np.where(keys >= 0, values[keys], 0)


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _retention_of_streams(plan: QueryPlan) -> tuple[Int64s, Mask]:
    """Per stream of a query how long after its end an event is kept, and whether as some variable all events are."""
    kept_for, whole = np.zeros(len(plan.streams), np.int64), np.zeros(len(plan.streams), bool)
    for number, graph_plan in enumerate(plan.graphs):
        for inner in graph_plan.with_inner():
            for variable in inner.graph.variables:
                place, kept = plan.streams.index(variable.stream), plan.retention[number, variable.name]
                limits = [limit for limit in (kept.from_start, kept.from_end) if limit is not None]
                kept_for[place] = max(kept_for[place], min(limits, default=FAR))
                whole[place] |= not variable.predicates
    return kept_for, whole


@lru_cache(maxsize=256)
def rules_of(monitor: Monitor) -> Rules:
    """A monitor as arrays."""
    bit = {stream: np.uint64(1 << place) for place, stream in enumerate(monitor.watched)}

    def bits(streams: frozenset[str]) -> np.uint64:
        return np.uint64(sum(int(bit[stream]) for stream in streams))

    leaf_offsets = np.cumsum([0, *(len(graph.leaves) for graph in monitor.graphs)])
    moves: list[tuple[int, int, int]] = []
    losses = np.zeros(int(leaf_offsets[-1]), np.uint64)
    conditions: list[tuple[np.uint64, np.uint64]] = []
    condition_offsets = np.zeros((len(monitor.graphs), MOST_STEPS + 1), np.int64)
    for number, graph in enumerate(monitor.graphs):
        first = int(leaf_offsets[number])
        moves += [(first + leaf, 1 << start, 1 << goal) for start, leaf, goal in graph.moves]
        for leaf, step in graph.losses:
            losses[first + leaf] |= np.uint64(1 << step)
        for place in range(MOST_STEPS):
            condition_offsets[number, place] = len(conditions)
            if place < len(graph.steps):
                found = graph.steps[place].conditions
                conditions += [(bits(condition.seen), bits(condition.unseen)) for condition in found]
        condition_offsets[number, MOST_STEPS] = len(conditions)
    moves.sort()
    return Rules(
        leaf_offsets=leaf_offsets.astype(np.int64),
        move_offsets=np.searchsorted([leaf for leaf, _, _ in moves], np.arange(len(losses) + 1)).astype(np.int64),
        move_from=np.array([start for _, start, _ in moves], np.uint64),
        move_to=np.array([goal for _, _, goal in moves], np.uint64),
        losses=losses,
        starts=np.array([1 if g.follows else (1 << len(g.steps)) - 1 for g in monitor.graphs], np.uint64),
        wholes=np.array([0 if g.whole is None else 1 << g.whole for g in monitor.graphs], np.uint64),
        trails=np.array([graph.trails for graph in monitor.graphs], bool),
        step_counts=np.array([len(graph.steps) for graph in monitor.graphs], np.int64),
        condition_offsets=condition_offsets,
        condition_seen=np.array([seen for seen, _ in conditions], np.uint64),
        condition_unseen=np.array([unseen for _, unseen in conditions], np.uint64),
        ends=bits(frozenset(monitor.ends)),
        lifetime=FAR if monitor.lifetime is None else monitor.lifetime,
    )
