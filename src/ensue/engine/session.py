"""Incremental evaluation: batches and watermarks in, completed matches out, a table of kept events between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from ensue.engine.choice import Used, uses_up
from ensue.engine.evaluate import Frontier, evaluate
from ensue.engine.events import Candidates, EventStore, Request, load_events
from ensue.engine.forget import keep_markers, keep_ties, pending_rows, rows_to_keep
from ensue.engine.output import collect_ordered
from ensue.engine.sources import EventSource, Mask, Report, latest_end, latest_of, load_sources
from ensue.engine.traces import TRACE, Watched, no_records, watch
from ensue.engine.violations import track
from ensue.errors import citing
from ensue.kernels.compiled import Int64s
from ensue.plan.inputs import POSITION, InputTable, plain_schema
from ensue.plan.model import Options, QueryPlan
from ensue.plan.outputs import OutputSchema
from ensue.plan.tracking import Tracking

USED = "ensue:used"


def request_of(plan: QueryPlan, counting: bool | None = None) -> Request:
    """What a plan wants of the tables; `counting` where it shares them with one that counts positions."""
    numbered = plan.counting if counting is None else counting
    return Request(plan.streams, plan.query.partition_by, plan.catalog.time_type, numbered)


@dataclass(slots=True)
class Session:
    """Queries in progress. `state` holds, per table, the events still worth keeping; `watermark` how far time has come.

    The queries share the events and so their partition keys. `inputs` are empty tables with the columns that are kept;
    tables come with these columns and types. An `eager` session reports a match as soon as its last event has come.
    `horizon` is the latest end of any event that has come, which says how far time is known when a run is finished.
    `records` hold, per query that watches its traces, what is known of each; `spared` says until when events would have
    been kept that are not, because their traces have failed.
    """

    plans: tuple[QueryPlan, ...]
    inputs: tuple[InputTable, ...]
    outputs: tuple[OutputSchema, ...]
    options: Options
    state: list[pa.Table]
    eager: bool = False
    watermark: int | None = None
    horizon: int | None = None
    report: Report = field(default_factory=Report)
    records: list[tuple[pa.Table, ...]] = field(default_factory=list)
    spared: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def start(
        cls,
        plans: Sequence[QueryPlan],
        inputs: Sequence[InputTable],
        outputs: Sequence[OutputSchema],
        options: Options,
        eager: bool = False,
    ) -> Session:
        """A session over tables of this shape; their rows are not read yet."""
        shapes = tuple(
            replace(item, table=plain_schema(needed_columns(plans, item).schema).empty_table()) for item in inputs
        )
        state = [_with_marks(shape.table, plans) for shape in shapes]
        return cls(tuple(plans), shapes, tuple(outputs), options, state, eager, records=[() for _ in plans])

    @property
    def counting(self) -> bool:
        return counts(self.plans)

    @property
    def holds_anything(self) -> bool:
        """Whether there is anything to remember for the next step besides the watermark."""
        return any(table.num_rows for table in (*self.state, *chain.from_iterable(self.records)))

    @property
    def time_type(self) -> pa.DataType:
        return self.plans[0].catalog.time_type

    def advance(
        self, fresh: Sequence[pa.Table], until: int | None, late_until: int | None = None
    ) -> tuple[list[pa.Table], list[Mask]]:
        """Takes rows (one table per input) and moves the watermark to `until` (None: the end of time).

        Gives, per query, the matches that completed, in order, and per input which rows came too late: at or before
        the watermark of the last step, or `late_until` if that is later.
        """
        turn = self.begin(fresh, until, late_until)
        matches = [turn.find(place) for place in range(len(self.plans))]
        return matches, turn.end(matches)

    def begin(self, fresh: Sequence[pa.Table], until: int | None, late_until: int | None = None) -> Turn:
        """Takes rows without moving on yet; see `advance`."""
        late, combined, report = self._admit(fresh, late_until)
        inputs = [replace(shape, table=table) for shape, table in zip(self.inputs, combined, strict=True)]
        sources, _ = load_sources(inputs, self.time_type)
        pending = [beyond(source, until) for source in sources]
        frontier = Frontier(self.watermark, until, self.horizon)
        if self.eager:
            frontier = Frontier(fresh=_arrived_with(sources, [table.num_rows for table in self.state]))
        else:
            sources = tuple(only_ready(source, waiting) for source, waiting in zip(sources, pending, strict=True))
        known = [kept_positions(table) for table in combined] if self.counting else []
        kept = [np.zeros(table.num_rows, bool) for table in combined]
        return Turn(self, until, late, combined, report, sources, pending, frontier, known, kept)

    def used(self, place: int, store: EventStore, combined: Sequence[pa.Table]) -> Used | None:
        """What the matches of a query have used up so far, if they use anything up."""
        if not uses_up(self.plans[place].query):
            return None
        return Used.of(store.sources, [np.asarray(table.column(used_column(place)).to_numpy()) for table in combined])

    def go_on_from(self, earlier: Session) -> None:
        """Takes over what a session of the same queries has come to, over tables of which less was known."""
        self.state = [old.cast(new.schema) for old, new in zip(earlier.state, self.state, strict=True)]
        self.watermark, self.horizon, self.report = earlier.watermark, earlier.horizon, earlier.report
        self.records, self.spared = earlier.records, earlier.spared

    def watched(
        self,
        place: int,
        sources: tuple[EventSource, ...],
        combined: Sequence[pa.Table],
        known: Sequence[Int64s],
        until: int | None,
        report: Report,
    ) -> Watched:
        """The events of a query, after what is new of them was led through their traces."""
        plan, counted = self.plans[place], Report()
        request = request_of(plan, self.counting)
        records = self.records[place][0] if self.records[place] else no_records(plan, sources, request)
        numbers = None
        if plan.monitor is not None:
            numbers = [np.asarray(table.column(trace_column(place)).to_numpy()) for table in combined]
        watched = watch(plan, sources, request, counted, known, records, self.watermark, until, numbers)
        if watched.records is not None and watched.spared is not None:
            self.records[place] = (watched.records,)
            self.spared = np.concatenate([self.spared, watched.spared])
        report.null_keys = max(report.null_keys, counted.null_keys)
        report.traces_failed += counted.traces_failed
        report.events_skipped += counted.events_skipped
        return watched

    def violations(
        self, place: int, tracking: Tracking, sources: tuple[EventSource, ...], until: int | None
    ) -> pa.Table:
        """The traces that break a constraint with what is new."""
        plan, records = self.plans[place], self.records[place] or None
        table, self.records[place] = track(plan, tracking, sources, request_of(plan), records, self.watermark, until)
        return table.cast(self.outputs[place].schema)

    def _admit(self, fresh: Sequence[pa.Table], late_until: int | None) -> tuple[list[Mask], list[pa.Table], Report]:
        """Which rows are late and, per input, the state with the others behind it; what takes no part is counted."""
        tables = [replace(shape, table=table) for shape, table in zip(self.inputs, fresh, strict=True)]
        sources, report = load_sources(tables, self.time_type)
        self.horizon = latest_of(self.horizon, latest_end(sources))
        reached = [moment for moment in (self.watermark, late_until) if moment is not None]
        late, combined = [], []
        for source, state in zip(sources, self.state, strict=True):
            is_late = _rows_until(source, None if source.input.derived else max(reached, default=None))
            usable = ~is_late if source.valid is None else source.valid & ~is_late
            late.append(is_late)
            report.late += int(np.count_nonzero(is_late))
            table = source.input.table
            admitted = table if usable.all() else table.filter(pa.array(usable))
            marked = _with_marks(admitted, self.plans)
            combined.append(pa.concat_tables([state, marked]).combine_chunks() if state.num_rows else marked)
        return late, combined, report


@dataclass(slots=True)
class Turn:
    """A step of a session under way: its rows are read, and the session is still where it was before.

    `combined` holds, per input, the kept events with the new rows behind them, `kept` which of them will be kept.
    """

    session: Session
    until: int | None
    late: list[Mask]
    combined: list[pa.Table]
    report: Report
    sources: tuple[EventSource, ...]
    pending: list[Mask]
    frontier: Frontier
    known: Sequence[Int64s]
    kept: list[Mask]
    marks: dict[str, Sequence[np.ndarray]] = field(default_factory=dict)
    numbered: EventStore | None = None

    def find(self, place: int, keep: bool = True) -> pa.Table:
        """The matches of a query that complete in this step; unless told otherwise, it keeps what it needs later."""
        session, plan = self.session, self.session.plans[place]
        if plan.tracking is not None:
            table = session.violations(place, plan.tracking, self.sources, self.until)
            self._keep(pending_rows(plan, self.sources, self.pending))
            return table
        watched = session.watched(place, self.sources, self.combined, self.known, self.until, self.report)
        self.numbered = watched.store if self.numbered is None or plan.counting else self.numbered
        if watched.numbers is not None:
            self.marks[trace_column(place)] = watched.numbers
        candidates = watched.found if session.eager else watched.completing
        used = session.used(place, watched.store, self.combined)
        chunks = evaluate(plan, watched.store, self.frontier, session.options, candidates, used)
        with citing(plan.source):
            table = collect_ordered(chunks, session.outputs[place], session.options.limit, session.options.chunk_rows)
        if used is not None:
            self.marks[used_column(place)] = used.by_table
        if keep:
            self._keep(
                rows_to_keep(
                    plan,
                    watched.store,
                    watched.found,
                    self.pending,
                    self.until,
                    watched.dropped,
                    used,
                    session.options,
                )
            )
        return table

    def add(self, place: int, events: pa.Table) -> None:
        """Takes events of a declared stream that this very step has found: they end within it."""
        marked = _with_marks(events, self.session.plans)
        self.combined[place] = pa.concat_tables([self.combined[place], marked]).combine_chunks()
        item = replace(self.session.inputs[place], table=self.combined[place])
        (source,), _ = load_sources([item], self.session.time_type)
        self.sources = (*self.sources[:place], source, *self.sources[place + 1 :])
        self.pending[place], self.kept[place] = (
            np.append(mask[place], np.zeros(events.num_rows, bool)) for mask in (self.pending, self.kept)
        )
        for name, of_tables in self.marks.items():
            longer = np.append(of_tables[place], np.asarray(marked.column(name)))
            self.marks[name] = (*of_tables[:place], longer, *of_tables[place + 1 :])

    def keep(self, place: int) -> None:
        """Keeps what a query needs later that looks at events which were added."""
        plan = self.session.plans[place]
        store = load_events(self.sources, request_of(plan, self.session.counting), Report(), self.known)
        self._keep(rows_to_keep(plan, store, {}, self.pending, self.until, options=self.session.options))

    def _keep(self, own: Sequence[Mask]) -> None:
        self.kept = [mask | other for mask, other in zip(self.kept, own, strict=True)]

    def end(self, matches: Sequence[pa.Table]) -> list[Mask]:
        """Moves the session on and gives, per input, which rows came too late."""
        session, store, until = self.session, self.numbered, self.until
        if store is not None and session.counting:
            keep_markers(self.kept, store)
            keep_ties(self.kept, store)
            self.marks[POSITION] = store.row_positions
        session.state = [
            _kept_table(place, self.combined[place], self.marks, mask) for place, mask in enumerate(self.kept)
        ]
        session.spared = session.spared[:0] if until is None else session.spared[session.spared > until]
        session.watermark = until if until is not None else session.watermark
        found = zip(session.plans, matches, strict=True)
        self.report.matches += sum(table.num_rows for plan, table in found if plan.tracking is None)
        self.report.peak_held = sum(table.num_rows for table in session.state)
        self.report.evaluated = sum(table.num_rows for table in self.combined)
        self.report.peak_without = self.report.peak_held + len(session.spared)
        session.report.add(self.report)
        return self.late


def _kept_table(place: int, table: pa.Table, marks: Mapping[str, Sequence[np.ndarray]], mask: Mask) -> pa.Table:
    """The rows that are kept, with what is known of them now."""
    for name, of_tables in marks.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(of_tables[place]))
    return table.filter(pa.array(mask)).combine_chunks()


def counts(plans: Iterable[QueryPlan]) -> bool:
    """Whether positions of events matter to any of the queries."""
    return any(plan.counting for plan in plans)


def _rows_until(source: EventSource, moment: int | None) -> Mask:
    """The rows that end at or before a moment; those without a time are none of them."""
    rows = np.zeros(len(source.ends), bool) if moment is None else source.ends <= moment
    return rows if source.valid is None else rows & source.valid


def _arrived_with(sources: Sequence[EventSource], first: Sequence[int]) -> Callable[[Candidates], Mask]:
    """Which candidates came with this step: the rows from `first[place]` on of each table."""

    def is_fresh(found: Candidates) -> Mask:
        place = next(place for place, source in enumerate(sources) if source is found.source)
        return found.rows >= first[place]

    return is_fresh


def needed_columns(plans: Sequence[QueryPlan], item: InputTable) -> pa.Table:
    """The table with the columns that the queries use and nothing else. A derived one was made with no others."""
    if item.derived:
        return item.table
    wanted = {name for name in (item.time, item.end, item.type, item.probability) if name is not None}
    wanted |= set(item.alternatives)
    for plan in plans:
        wanted |= set(plan.query.partition_by)
        for stream in filter(item.holds, plan.streams):
            columns = plan.columns[stream]
            if columns is None:
                return item.table
            wanted |= columns
    return item.table.select([name for name in item.table.column_names if name in wanted])


def trace_column(place: int) -> str:
    """The column of the state that numbers the trace of an event within its key, for one query; -1: not yet known."""
    return f"{TRACE}:{place}"


def used_column(place: int) -> str:
    """The column of the state that says in which ways an event is used up, for one query."""
    return f"{USED}:{place}"


def _with_marks(table: pa.Table, plans: Sequence[QueryPlan]) -> pa.Table:
    """The table with the columns that say of an event what its step found out; nothing is known yet."""
    if counts(plans):
        table = table.append_column(POSITION, pa.array(np.full(table.num_rows, -1, np.int64)))
    for place, plan in enumerate(plans):
        if plan.monitor is not None:
            table = table.append_column(trace_column(place), pa.array(np.full(table.num_rows, -1, np.int32)))
        if uses_up(plan.query):
            table = table.append_column(used_column(place), pa.array(np.zeros(table.num_rows, np.uint8)))
    return table


def kept_positions(table: pa.Table) -> Int64s:
    """The settled positions of kept events, -1 where they are not."""
    return np.asarray(table.column(POSITION).to_numpy())


def beyond(source: EventSource, until: int | None) -> Mask:
    """The rows that end after a moment."""
    return np.zeros(len(source.ends), bool) if until is None else source.ends > until


def only_ready(source: EventSource, pending: Mask) -> EventSource:
    """The table without the rows that lie beyond the watermark."""
    if not pending.any():
        return source
    ready = ~pending if source.valid is None else source.valid & ~pending
    return replace(source, valid=ready)
