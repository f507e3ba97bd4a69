"""Monitors traces while events are loaded: events of traces that can no longer match are skipped, and their state is
dropped.

A query whose plan has a monitor keeps a record per trace: which of the monitored streams have occurred, and the
progress of matches. The record of a failed trace marks it as such. Records are dropped when their trace ends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ensue.engine.events import Candidates, EventStore, Request, arrange, load_events
from ensue.engine.keys import split
from ensue.engine.order import order_of
from ensue.engine.sources import EventSource, Mask, Report
from ensue.engine.trace_rows import TraceRows, joined, no_keys
from ensue.engine.workspace import cached_candidates
from ensue.graph.bounds import FAR
from ensue.kernels.codes import number_by_appearance
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.sorted_runs import group_by_key
from ensue.kernels.traces import NEVER, Arrivals, Bits, Rules, Traces, follow
from ensue.nodes.names import Stream
from ensue.plan.monitors import GraphMonitor, Monitor
from ensue.plan.plans import QueryPlan

# --- a monitor as arrays

ENDED = np.uint64(1 << 63)
"""The bit of all streams that end a trace."""


def _words(bits: int) -> int:
    """The number of 64-bit words for so many bits."""
    return -(-bits // 64)


def _bit_of(place: int) -> int:
    """The bit of a watched stream: all but that of ENDED."""
    return place if place < 63 else place + 1


def _packed(rows: Sequence[Iterable[int]], words: int) -> Bits:
    """Sets of bits as rows of words."""
    packed = np.zeros((len(rows), words), np.uint64)
    for row, bits in enumerate(rows):
        for bit in bits:
            packed[row, bit >> 6] |= np.uint64(1 << (bit & 63))
    return packed


def _whole_steps(graph: GraphMonitor) -> Iterable[int]:
    """The steps at which the match is complete: any if that is not known and a match may trail."""
    if graph.whole is not None:
        return (graph.whole,)
    return range(len(graph.steps)) if graph.trails else ()


@lru_cache(maxsize=256)
def rules_of(monitor: Monitor) -> Rules:
    """A monitor as arrays."""
    bit = {stream: _bit_of(place) for place, stream in enumerate(monitor.watched)}
    seen_words = _seen_words(monitor)
    word_offsets = np.cumsum([0, *(_words(len(graph.steps)) for graph in monitor.graphs)])
    words = int(word_offsets[-1])
    firsts = 64 * word_offsets[:-1]
    moves: list[tuple[int, int, int]] = []
    losses: list[list[int]] = []
    fatal: list[list[int]] = [[] for _ in range(64 * words)]
    conditions: list[tuple[list[int], list[int]]] = []
    condition_counts = np.zeros(64 * words, np.int64)
    for graph, first in zip(monitor.graphs, firsts.tolist(), strict=True):
        moves += [(len(losses) + leaf, first + start, first + goal) for start, leaf, goal in graph.moves]
        lost: list[list[int]] = [[] for _ in graph.leaves]
        for leaf, step in graph.losses:
            lost[leaf].append(first + step)
        losses += lost
        for place, monitored in enumerate(graph.steps, start=first):
            for condition in monitored.conditions:
                if len(condition.seen) == 1 and not condition.unseen:
                    fatal[place] += [bit[stream] for stream in condition.seen]
                else:
                    conditions.append(([bit[one] for one in condition.seen], [bit[one] for one in condition.unseen]))
                    condition_counts[place] += 1
    moves.sort()
    starts = [first + start for graph, first in zip(monitor.graphs, firsts, strict=True) for start in graph.starts]
    wholes = [first + step for graph, first in zip(monitor.graphs, firsts, strict=True) for step in _whole_steps(graph)]
    return Rules(
        word_offsets=word_offsets.astype(np.int64),
        used_bits=np.array(
            [min(64, len(graph.steps) - at) for graph in monitor.graphs for at in range(0, len(graph.steps), 64)],
            np.int64,
        ),
        move_offsets=np.searchsorted([leaf for leaf, _, _ in moves], np.arange(len(losses) + 1)).astype(np.int64),
        move_from=np.array([start for _, start, _ in moves], np.int64),
        move_to=np.array([goal for _, _, goal in moves], np.int64),
        losses=_packed(losses, words),
        starts=_packed([starts], words)[0],
        wholes=_packed([wholes], words)[0],
        trails=np.array([graph.trails for graph in monitor.graphs], bool),
        fatal=_packed(fatal, seen_words),
        condition_offsets=np.cumsum([0, *condition_counts]).astype(np.int64),
        condition_seen=_packed([seen for seen, _ in conditions], seen_words),
        condition_unseen=_packed([unseen for _, unseen in conditions], seen_words),
        ends=ENDED,
        lifetime=FAR if monitor.lifetime is None else monitor.lifetime,
    )


def _seen_words(monitor: Monitor) -> int:
    """The number of words for the watched streams and ENDED."""
    return _words(_bit_of(len(monitor.watched) - 1) + 1) if monitor.watched else 1


# --- traces

TRACE = "ensue:trace"
"""The column that numbers the traces of a key, if a key has had several."""

SEEN, REACHED, BEGAN, FAILED, NUMBER, LACKS = "seen", "reached", "began", "failed", "number", "lacks"


@dataclass(frozen=True, slots=True)
class WatchedEvents:
    """The events of a query after its traces were monitored.

    `found` are the candidates of its variables, without skipped ones, and `completing` those of traces in which a match
    may have completed. If traces are monitored, `dropped` are the rows, per table, that need not be kept, `numbers`
    those of their traces within their keys, `records` those of the traces that continue, and `spared` the times until
    which events of failed traces would have been kept. `failed_keys` returns the keys of traces that may lack matches.
    """

    store: EventStore
    found: dict[Hashable, Candidates]
    completing: dict[Hashable, Candidates]
    dropped: tuple[Mask, ...] | None = None
    numbers: tuple[Codes, ...] | None = None
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
    numbers: Sequence[Codes] | None = None,
) -> WatchedEvents:
    """Loads the events of a query and, if it monitors traces, applies the new ones to them.

    New events end after `after` and not after `until`; `records` is the earlier state, and `numbers`, per table, the
    trace of each older event within its key. The report counts failed traces and skipped events.
    """
    if plan.monitor is None:
        found: dict[Hashable, Candidates] = {}
        return WatchedEvents(load_events(sources, request, known), found, found)
    return _Watch(plan, plan.monitor, sources, request, report, records, numbers).run(after, until)


def no_records(plan: QueryPlan, sources: Sequence[EventSource], request: Request) -> pa.Table | None:
    """The records of a query before any event."""
    if plan.monitor is None:
        return None
    lacks = {LACKS: pa.array([], pa.bool_())}
    traces = _new_traces(0, plan.monitor)
    return record_table({**no_keys(sources, plan.all_streams, request), **lacks}, np.empty(0, np.int64), traces)


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
        numbers: Sequence[Codes] | None,
    ) -> None:
        self.plan = plan
        self.monitor = monitor
        self.sources = sources
        self.request = request
        self.report = report
        self.records = records
        self.events = TraceRows(plan.all_streams, sources, request, () if records is None else (records,))
        self.known_numbers = (
            np.full(len(self.events.keys), -1, np.int32)
            if numbers is None
            else joined([own[rows] for own, rows in zip(numbers, self.events.rows, strict=True)])
        )
        self.own = self.events.codes < len(plan.streams)
        self.with_events = self.events.keys[:0]
        self.traces = self._traces()
        self.may_lack_matches = np.zeros(self.events.key_count, bool)
        if records is not None:
            self.may_lack_matches[: records.num_rows] = records.column(LACKS).to_numpy()

    def _traces(self) -> Traces:
        """The records of the known traces, and empty ones for the others."""
        traces, keys = _new_traces(self.events.key_count, self.monitor), self.events.keys
        records = 0 if self.records is None else self.records.num_rows
        of_ended = np.flatnonzero((self.known_numbers >= 0) & (keys >= records))
        np.maximum.at(traces.number, keys[of_ended], self.known_numbers[of_ended] + 1)
        if self.records is not None:
            for name, values in _saved_columns(traces).items():
                values[:records] = self.records.column(name).to_numpy()
        return traces

    def run(self, after: int | None, until: int | None) -> WatchedEvents:
        asleep, before = self.traces.failed.copy(), self.traces.number.copy()
        store, found, leaves = self._load(asleep)
        skipped, numbers = self._follow(leaves, after, until)
        if (self.traces.number != before)[asleep].any():
            # Keys of failed traces have begun others, whose events have to be looked at.
            asleep[:] = False
            self.traces = self._traces()
            store, found, leaves = self._load(asleep)
            skipped, numbers = self._follow(leaves, after, until)
        self._count(skipped)
        last = numbers == self.traces.number[self.events.keys]
        if last.all():
            found, completing = self._narrowed(found, skipped)
        else:
            store = self._by_trace(skipped, numbers)
            found = completing = {}
        over = self._over(until)
        dropped = self._dropped(last, over)
        return WatchedEvents(
            store,
            found,
            completing,
            tuple(self._of_all_rows(dropped)),
            tuple(self._of_all_rows(numbers)),
            self._kept_records(over),
            self._spared(skipped, dropped, leaves, asleep),
            self.failed_keys,
        )

    def _count(self, skipped: Mask) -> None:
        """Counts failed traces, skipped events and rows without a key."""
        lost = self.events.keys[skipped & self.own]
        self.report.traces_failed += int(self.traces.failures[0])
        self.report.events_skipped += len(lost)
        self.report.null_keys += int(np.count_nonzero(self.events.keyless < len(self.plan.streams)))
        self.may_lack_matches[lost] = True

    def _over(self, until: int | None) -> Mask:
        """The traces whose lifetime is over."""
        lifetime, began = self.monitor.lifetime, self.traces.began
        if lifetime is None or until is None:
            return np.zeros(len(began), bool)
        return np.asarray((began != NEVER) & (began <= until - lifetime))

    def _load(self, asleep: Mask) -> tuple[EventStore, dict[Hashable, Candidates], Bits]:
        """The events of the query in active traces, the candidates of its variables and their leaves.

        The store numbers only the traces that have events: `self.with_events`.
        """
        streams: dict[Stream, Candidates] = {}
        events, awake = self.events, self.own & ~asleep[self.events.keys]
        traces = events.keys[awake]
        all_keys, first = number_by_appearance(traces, events.key_count)
        self.with_events = traces[first]
        rows_awake = [rows[mask] for rows, mask in zip(events.rows, events.by_table(awake), strict=True)]
        lengths = [len(rows) for rows in rows_awake]
        by_table = zip(
            self.sources, rows_awake, split(all_keys, lengths), split(events.codes[awake], lengths), strict=True
        )
        in_order = order_of(self.sources)
        for place, (source, rows, keys, codes) in enumerate(by_table):
            order, runs = group_by_key(codes, len(self.plan.streams))
            for number, stream in enumerate(self.plan.streams):
                if source.input.stream in (None, stream):
                    chosen = order[runs[number] : runs[number + 1]]
                    places = None if in_order is None else (in_order.starts[place], in_order.ends[place])
                    streams[stream] = arrange(source, rows[chosen], keys[chosen], len(first), places=places)
        store = EventStore(self.sources, streams, len(first), None, compiled=self.request.compiled, order=in_order)
        found: dict[Hashable, Candidates] = {}
        return store, found, self._leaves(store, found)

    def _leaves(self, store: EventStore, found: dict[Hashable, Candidates]) -> Bits:
        """The leaves of the monitor that each row satisfies; finds the candidates of every variable for this."""
        words = max(1, _words(len(self.monitor.leaves)))
        leaves = {id(source): np.zeros((len(source.starts), words), np.uint64) for source in self.sources}
        for graph_plan in self.plan.graphs:
            for inner in graph_plan.with_inner():
                for variable in inner.graph.variables:
                    cached_candidates(variable, inner.graph, store, self.plan.catalog, found)
        for number, leaf in enumerate(self.monitor.leaves):
            events = cached_candidates(leaf.variable, leaf.graph, store, self.plan.catalog, found)
            leaves[id(events.source)][events.rows, number >> 6] |= np.uint64(1 << (number & 63))
        return joined([bits[rows] for bits, rows in zip(leaves.values(), self.events.rows, strict=True)])

    def _follow(self, leaves: Bits, after: int | None, until: int | None) -> tuple[Mask, Codes]:
        """Applies the new events to their traces.

        Returns which of the used rows are skipped, and the number of each row's trace within its key.
        """
        events = self.events
        place_of = {stream: place for place, stream in enumerate(events.streams)}
        bit_of = np.full(len(events.streams), -1, np.int32)
        for number, stream in enumerate(self.monitor.watched):
            bit_of[place_of[stream]] = _bit_of(number)
        is_end = np.zeros(len(events.streams), bool)
        is_end[[place_of[stream] for stream in self.monitor.ends]] = True
        skipped, numbers = np.zeros(len(events.keys), bool), self.known_numbers.copy()
        codes = events.codes
        arrivals = Arrivals(events.new(after, until), events.keys, events.times, leaves, bit_of[codes], is_end[codes])
        follow(arrivals, rules_of(self.monitor), self.traces, skipped, numbers)
        return skipped, np.where(numbers < 0, self.traces.number[events.keys], numbers)

    def _of_all_rows(self, values: np.ndarray) -> Iterator[np.ndarray]:
        """Results for the used rows, expanded to all rows of each table; zero for the others."""
        for source, rows, own in zip(self.sources, self.events.rows, self.events.by_table(values), strict=True):
            of_row = np.zeros(len(source.starts), own.dtype)
            of_row[rows] = own
            yield of_row

    def _by_trace(self, skipped: Mask, numbers: Codes) -> EventStore:
        """The events separated by trace, if a key has had several."""
        sources = []
        for source, of_row, valid in zip(
            self.sources, self._of_all_rows(numbers), self._of_all_rows(~skipped), strict=True
        ):
            table = source.input.table.append_column(TRACE, pa.array(of_row))
            item = replace(source.input, table=table)
            sources.append(EventSource(item, source.starts, source.ends, valid, uncertainty=source.uncertainty))
        request = replace(self.request, partition_by=(*self.request.partition_by, TRACE))
        return load_events(tuple(sources), request)

    def _narrowed(
        self, found: dict[Hashable, Candidates], skipped: Mask
    ) -> tuple[dict[Hashable, Candidates], dict[Hashable, Candidates]]:
        """The candidates without skipped ones, and those of them in traces whose last events have come.

        A match that trails completes without an event.
        """
        if skipped.any():
            sources = [id(source) for source in self.sources]
            used = dict(zip(sources, self._of_all_rows(~skipped), strict=True))
            found = {wanted: events.select(used[id(events.source)][events.rows]) for wanted, events in found.items()}
        if any(graph.trails or graph.whole is None for graph in self.monitor.graphs):
            return found, found
        completes = self.traces.completes[self.with_events]
        return found, {wanted: events.select(completes[events.keys]) for wanted, events in found.items()}

    def _dropped(self, last: Mask, over: Mask) -> Mask:
        """The rows of failed or ended traces, and of all traces of a key except the last.

        A match that may trail keeps the rows of an ended trace until it is complete.
        """
        traces, rules = self.traces, rules_of(self.monitor)
        trails = np.repeat(rules.trails, np.diff(rules.word_offsets))
        waiting = ((traces.reached & rules.wholes) != 0)[:, trails].any(axis=1)
        gone = traces.failed | (over & ~waiting)
        return np.where(last, gone[self.events.keys], not trails.any())

    def _kept_records(self, over: Mask) -> pa.Table | None:
        """The records of the traces that continue."""
        if self.records is None:
            return None
        kept = (self.traces.began != NEVER) & ~self.traces.closed & ~over
        return self._records(np.flatnonzero(kept))

    def _records(self, numbers: Int64s) -> pa.Table:
        lacks = {LACKS: self.may_lack_matches[numbers]}
        return record_table({**self.events.key_columns(numbers), **lacks}, numbers, self.traces)

    def failed_keys(self) -> pa.Table:
        """The keys with skipped events of the query."""
        return pa.table(self.events.key_columns(np.flatnonzero(self.may_lack_matches)))

    def _spared(self, skipped: Mask, dropped: Mask, leaves: Bits, asleep: Mask) -> Int64s:
        """The time until which each event of a failed trace would have been kept.

        Of the events after the failure, only those of streams without conditions are known to be events of the query.
        """
        events, kept_for, whole = self.events, *_retention_of_streams(self.plan)
        gone = np.flatnonzero(self.own & (skipped | dropped))
        codes, late = events.codes[gone], asleep[events.keys[gone]]
        spared = np.where(late, skipped[gone] & whole[codes], leaves[gone].any(axis=1) & dropped[gone])
        return np.asarray(events.times[gone[spared]] + kept_for[codes[spared]])


def _new_traces(count: int, monitor: Monitor) -> Traces:
    starts = rules_of(monitor).starts
    shape = (count, len(starts))
    return Traces(
        seen=np.zeros((count, _seen_words(monitor)), np.uint64),
        reached=np.full(shape, starts),
        began=np.full(count, NEVER, np.int64),
        failed=np.zeros(count, bool),
        closed=np.zeros(count, bool),
        number=np.zeros(count, np.int32),
        gained=np.zeros(shape, np.uint64),
        lost=np.zeros(shape, np.uint64),
        moment=np.full(count, NEVER, np.int64),
        changed=np.zeros(count, bool),
        completes=np.zeros(count, bool),
        failures=np.zeros(1, np.int64),
    )


def _saved_columns(traces: Traces) -> dict[str, np.ndarray]:
    """What is known of each trace as columns: one per word of a set."""
    first, *others = traces.seen.T
    columns = {SEEN: first, BEGAN: traces.began, FAILED: traces.failed, NUMBER: traces.number}
    columns |= {f"{REACHED}_{word}": steps for word, steps in enumerate(traces.reached.T)}
    return columns | {f"{SEEN}_{word}": bits for word, bits in enumerate(others, start=1)}


def record_table(keys: Mapping[str, pa.Array], numbers: Int64s, traces: Traces) -> pa.Table:
    columns = dict(keys) | {name: values[numbers] for name, values in _saved_columns(traces).items()}
    return pa.Table.from_arrays([pa.array(values) for values in columns.values()], names=list(columns))


def _retention_of_streams(plan: QueryPlan) -> tuple[Int64s, Mask]:
    """For each stream of a query, how long after its end an event is kept, and whether some variable keeps all
    events."""
    kept_for, whole = np.zeros(len(plan.streams), np.int64), np.zeros(len(plan.streams), bool)
    for number, graph_plan in enumerate(plan.graphs):
        for inner in graph_plan.with_inner():
            for variable in inner.graph.variables:
                place, kept = plan.streams.index(variable.stream), plan.retention[number, variable.name]
                limits = [limit for limit in (kept.from_start, kept.from_end) if limit is not None]
                kept_for[place] = max(kept_for[place], min(limits, default=FAR))
                whole[place] |= not variable.predicates
    return kept_for, whole
