"""A stage of a machine: plans that run on the same events, and the state that they keep between steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.streams import LINEAGE
from ensue.engine.choice import Used, uses_up
from ensue.engine.derived import Derivation, Search, Way, grow
from ensue.engine.evaluate import Frontier, evaluate
from ensue.engine.events import Candidates, EventStore, Request, load_events, request_of
from ensue.engine.forget import keep_markers, keep_ties, pending_rows, rows_to_keep
from ensue.engine.matches import MatchChunk, completion_times
from ensue.engine.output import OutputSchema, collect_ordered
from ensue.engine.sources import EventSource, InputTable, Mask, Report, load_sources, read_uncertainty
from ensue.engine.traces import TRACE, Watched, no_records, watch
from ensue.engine.violations import track
from ensue.errors import citing
from ensue.kernels.compiled import Int64s
from ensue.names import Stream
from ensue.plan.model import Options, QueryPlan

USED = "ensue:used"
POSITION = "ensue:position"
"""The mark that holds the position of an event in its partition, -1 while it is not settled."""

Role = int | Stream
"""What rows are, for a machine: those of a table by its place, or of a declared stream by its name."""

Collect = Callable[["Member", "Watched", Iterator[MatchChunk], Options], Any]
"""What becomes of the matches of a result, as they are found."""


@dataclass(frozen=True, slots=True)
class Member:
    """A plan of a stage: one of the results, by its place, or a statement whose matches are events of a stream."""

    plan: QueryPlan
    output: OutputSchema
    gives: int | Derivation
    way: Way | None = None


def ordered(member: Member, watched: Watched, chunks: Iterator[MatchChunk], options: Options) -> pa.Table:
    """All matches in one table, in order."""
    with citing(member.plan.source):
        return collect_ordered(chunks, member.output, options.limit, options.chunk_rows)


@dataclass(frozen=True, slots=True)
class Clock:
    """Between which moments a step happens: `watermark` and `horizon` are those before it, None at the beginning.

    Results are wanted that complete after `since`, where that is given, and not after `until`, the new watermark; None:
    the end of time.
    Rows that end at or before the watermark, or `late_until` if that is later, are late. After the `last` step nothing
    is kept. `horizon` is the latest end of any event that has come, which says how far time is known at the end.
    """

    watermark: int | None
    until: int | None
    horizon: int | None
    since: int | None = None
    late_until: int | None = None
    last: bool = False

    @property
    def reached(self) -> int | None:
        """Up to when rows are late."""
        return max((moment for moment in (self.watermark, self.late_until) if moment is not None), default=None)


@dataclass(frozen=True, slots=True)
class Kept:
    """The events of one input that a stage keeps, in the order of arrival.

    `marks` have, for each of them, what earlier steps have found out: its position, its trace, whether it is used up.
    """

    table: pa.Table
    starts: Int64s
    ends: Int64s
    marks: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        return int(self.table.nbytes) + sum(values.nbytes for values in self.marks.values())


@dataclass(frozen=True, slots=True)
class StageState:
    """What a stage keeps between steps.

    `records` hold, per member that watches its traces, what is known of each; `spared` says until when events would
    have been kept that are not, because their traces have failed.
    """

    kept: tuple[Kept, ...]
    records: tuple[tuple[pa.Table, ...], ...]
    spared: Int64s

    @property
    def holds_anything(self) -> bool:
        """Whether there is anything to remember for the next step besides the watermark."""
        return any(map(len, self.kept)) or any(table.num_rows for tables in self.records for table in tables)


@dataclass(frozen=True, slots=True)
class Taken:
    """What one step of a stage gave: what was collected per member, the events of the streams of its group, the rows of
    each input that were late, the counts of each member and of all, and the streams of members that had no event."""

    found: tuple[Any, ...]
    grown: Mapping[Stream, pa.Table]
    late: tuple[Mask, ...]
    reports: tuple[Report, ...]
    evaluated: int
    state: StageState
    empty: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """Plans that run on the same events and use nothing of each other, or the rules of streams that use each other.

    `takes` says what each input is; `shapes` are empty tables with the columns that are kept. The streams of `group`
    grow in rounds within a step. An `eager` stage gives a match as soon as its last event has come. `requests` say what
    all members with the same keys want of the tables.
    """

    members: tuple[Member, ...]
    takes: tuple[Role, ...]
    shapes: tuple[InputTable, ...]
    group: tuple[Derivation, ...]
    eager: bool
    requests: Mapping[tuple[str, ...], Request]
    marks: Mapping[str, np.generic]
    uncertain: bool

    @classmethod
    def of(
        cls,
        members: Sequence[Member],
        takes: Sequence[tuple[Role, InputTable]],
        group: tuple[Derivation, ...],
        eager: bool,
        further_keys: tuple[str, ...] = (),
    ) -> Stage:
        """A stage over tables of these shapes; events of a match agree in `further_keys`, too."""
        plans = [member.plan for member in members]
        shapes = [
            replace(item, table=plain_schema(needed_columns(plans, item).schema).empty_table()) for _, item in takes
        ]
        requests: dict[tuple[str, ...], Request] = {}
        for plan in plans:
            own, keys = request_of(plan), plan.query.partition_by
            before = requests[keys].streams if keys in requests else ()
            requests[keys] = replace(
                own,
                streams=tuple(dict.fromkeys((*before, *own.streams))),
                partition_by=(*keys, *further_keys),
                counting=counts(plans),
            )
        uncertain = any(item.probability is not None or item.hierarchy for item in shapes)
        roles = tuple(role for role, _ in takes)
        return cls(tuple(members), roles, tuple(shapes), group, eager, requests, _first_marks(plans), uncertain)

    @property
    def plans(self) -> tuple[QueryPlan, ...]:
        return tuple(member.plan for member in self.members)

    @property
    def counting(self) -> bool:
        """Whether positions of events matter to any of the members."""
        return POSITION in self.marks

    @property
    def time_type(self) -> pa.DataType:
        return self.members[0].plan.catalog.time_type

    def request_of(self, plan: QueryPlan) -> Request:
        """What one member wants of the tables."""
        return replace(self.requests[plan.query.partition_by], streams=plan.streams)

    def start(self) -> StageState:
        """The state before any event."""
        times = np.empty(0, np.int64)
        kept = tuple(Kept(shape.table, times, times, self._marks(0)) for shape in self.shapes)
        return StageState(kept, tuple(() for _ in self.members), times)

    def taken_over(self, state: StageState) -> StageState:
        """The state of a stage of the same plans, for tables of whose columns less was known."""
        pairs = zip(self.shapes, state.kept, strict=True)
        return replace(state, kept=tuple(replace(kept, table=kept.table.cast(s.table.schema)) for s, kept in pairs))

    def restored(self, tables: Sequence[pa.Table], records: Sequence[tuple[pa.Table, ...]]) -> StageState:
        """The state with these events, each with its marks as further columns."""
        kept = []
        for shape, table in zip(self.shapes, tables, strict=True):
            marks = {name: np.asarray(table.column(name).to_numpy()) for name in self.marks}
            (source,), _ = load_sources([replace(shape, table=table.select(shape.table.column_names))], self.time_type)
            kept.append(Kept(source.input.table, source.starts, source.ends, marks))
        return StageState(tuple(kept), tuple(records), np.empty(0, np.int64))

    def saved(self, state: StageState) -> list[pa.Table]:
        """The kept events of each input with their marks as further columns."""
        return [
            pa.Table.from_arrays(
                [*kept.table.columns, *(pa.array(kept.marks[name]) for name in self.marks)],
                names=[*kept.table.column_names, *self.marks],
            )
            for kept in state.kept
        ]

    def saved_schemas(self) -> list[pa.Schema]:
        """The columns of what `saved` gives."""
        return [table.schema for table in self.saved(self.start())]

    def loaded(self, state: StageState, until: int | None = None) -> tuple[EventSource, ...]:
        """The kept events, or those of them that end no later than a moment."""
        sources = tuple(
            EventSource(replace(shape, table=kept.table), kept.starts, kept.ends, None)
            for shape, kept in zip(self.shapes, state.kept, strict=True)
        )
        if self.uncertain:
            read_uncertainty(sources)
        return sources if until is None else tuple(only_ready(source, beyond(source, until)) for source in sources)

    def known_positions(self, state: StageState) -> list[Int64s]:
        """The settled positions of kept events, -1 where they are not."""
        return [kept.marks[POSITION] for kept in state.kept] if self.counting else []

    def _marks(self, rows: int) -> dict[str, np.ndarray]:
        return {name: np.full(rows, value) for name, value in self.marks.items()}

    def step(
        self, state: StageState, fresh: Sequence[EventSource], clock: Clock, options: Options, collect: Collect
    ) -> Taken:
        """Takes rows (one source per input) and moves on to `clock.until`."""
        turn = Turn(self, state, fresh, clock, options)
        found: list[Any] = []
        for place, member in enumerate(self.members):
            grows = self._grows(member)
            found.append(turn.find(place, ordered if member.way is not None else collect, keep=not grows))
        grown = self._grown(turn, found) if self.group else {}
        for place, role in enumerate(self.takes):
            if not isinstance(role, int) and role in grown:
                turn.add(place, grown[role])
        if not clock.last:
            for place, member in enumerate(self.members):
                if self._grows(member):
                    turn.keep(place)
        return turn.end(found, grown)

    def _grows(self, member: Member) -> bool:
        """Whether a plan uses events that the step itself derives."""
        return any(derivation.name in member.plan.streams for derivation in self.group)

    def _grown(self, turn: Turn, matches: Sequence[pa.Table]) -> dict[Stream, pa.Table]:
        """The events of the group that this step derives; those from before are among what the stage has kept."""
        options = turn.options
        first: dict[Stream, pa.Table] = {
            made.name: made.together(events_of(made, self.members, matches, options.limit), options.limit)
            for made in self.group
        }
        earlier = {
            role: turn.sources[place].input.table
            for place, role in enumerate(self.takes)
            if not isinstance(role, int) and role in first
        }
        others = tuple(source for role, source in zip(self.takes, turn.ready, strict=True) if role not in earlier)
        grown = grow(self.group, first, Search(others, earlier, turn.frontier(None), options))
        return {made.name: made.settled(grown[made.name]) for made in self.group}


class Turn:
    """A step of a stage under way. Per input, `sources` are the kept events with the new rows behind them, and `ready`
    those of them that the step looks at; `kept` says which will be kept."""

    def __init__(
        self, stage: Stage, state: StageState, fresh: Sequence[EventSource], clock: Clock, options: Options
    ) -> None:
        self.stage, self.state, self.clock, self.options = stage, state, clock, options
        self.late: list[Mask] = []
        self.sources: list[EventSource] = []
        self.marks: dict[str, list[np.ndarray]] = {name: [] for name in stage.marks}
        for shape, kept, source in zip(stage.shapes, state.kept, fresh, strict=True):
            self._admit(shape, kept, source)
        if stage.uncertain and any(map(len, state.kept)):
            self.sources = [replace_valid(source, source.valid) for source in self.sources]
            read_uncertainty(self.sources)
        self.pending = [beyond(source, clock.until) for source in self.sources]
        self.ready = self.sources
        if not stage.eager:
            self.ready = [only_ready(source, waits) for source, waits in zip(self.sources, self.pending, strict=True)]
        self.kept = [np.zeros(len(source.starts), bool) for source in self.sources]
        self.reports = [Report() for _ in stage.members]
        self.records = list(state.records)
        self.spared = [state.spared]
        self.numbered: EventStore | None = None
        self.shared: dict[tuple[str, ...], Watched] = {}
        self.empty = [False for _ in stage.members]

    def _admit(self, shape: InputTable, kept: Kept, fresh: EventSource) -> None:
        """Puts the new rows behind the kept ones; late ones and those without a time are left out."""
        reached = None if shape.derived else self.clock.reached
        late = np.zeros(len(fresh.ends), bool) if reached is None else fresh.ends <= reached
        usable: Mask | None = fresh.valid
        if reached is not None:
            late = late if fresh.valid is None else late & fresh.valid
            usable = ~late if fresh.valid is None else fresh.valid & ~late
        self.late.append(late)
        usable = None if usable is None or usable.all() else usable
        if not len(kept):
            self.sources.append(fresh if usable is fresh.valid else replace_valid(fresh, usable))
            rows = len(fresh.starts)
        else:
            names = shape.table.column_names
            starts, ends = fresh.starts, fresh.ends
            table = fresh.input.table.select(names)
            if usable is not None:
                starts, ends, table = starts[usable], ends[usable], table.filter(pa.array(usable))
            rows = len(starts)
            together = pa.concat_tables([kept.table, conformed(table, shape.table.schema)]).combine_chunks()
            starts = np.concatenate([kept.starts, starts])
            ends = starts if shape.end is None else np.concatenate([kept.ends, ends])
            self.sources.append(EventSource(replace(shape, table=together), starts, ends, None))
        for name, value in self.stage.marks.items():
            self.marks[name].append(np.append(kept.marks[name], np.full(rows, value)))

    def frontier(self, member: Member | None) -> Frontier:
        """What is wanted of a result; of what others use also what completes before it is asked for."""
        clock = self.clock
        if self.stage.eager:
            return Frontier(fresh=self._arrived())
        is_result = member is not None and member.way is None
        after = clock.since if is_result and clock.since is not None else clock.watermark
        return Frontier(after, clock.until, clock.horizon)

    def _arrived(self) -> Callable[[Candidates], Mask]:
        """Which candidates came with this step."""
        first = [len(kept) for kept in self.state.kept]

        def is_fresh(found: Candidates) -> Mask:
            place = next(place for place, source in enumerate(self.ready) if source is found.source)
            return found.rows >= first[place]

        return is_fresh

    def find(self, place: int, collect: Collect, keep: bool = True) -> Any:
        """What becomes of the matches of a member that complete in this step; if told so, it keeps what it needs."""
        member, clock = self.stage.members[place], self.clock
        plan = member.plan
        if plan.tracking is not None:
            return self._violations(place, member)
        watched = self._watched(place, plan)
        self.empty[place] = not all(len(watched.store.streams[name]) for name in plan.streams)
        if watched.numbers is not None:
            self.marks[trace_mark(place)] = list(watched.numbers)
        used = self._used(place, plan, watched.store)
        candidates = watched.found if self.stage.eager else watched.completing
        found = collect(member, watched, self._matches(member, watched, candidates, used), self.options)
        if used is not None:
            self.marks[used_mark(place)] = used.by_table
        if keep and not clock.last:
            self._keep(
                rows_to_keep(
                    plan, watched.store, watched.found, self.pending, clock.until, watched.dropped, used, self.options
                )
            )
        return found

    def _matches(
        self, member: Member, watched: Watched, candidates: dict[Hashable, Candidates], used: Used | None
    ) -> Iterator[MatchChunk]:
        """The matches that the step gives. What uses events up depends on all earlier ones, so these are found too."""
        frontier, plan = self.frontier(member), member.plan
        since = self.clock.since
        if since is None or used is None:
            yield from evaluate(plan, watched.store, frontier, self.options, candidates, used)
            return
        for chunk in evaluate(plan, watched.store, replace(frontier, after=None), self.options, candidates, used):
            later = chunk.where(completion_times(chunk, plan) > since)
            if later.rows.length:
                yield later

    def _used(self, place: int, plan: QueryPlan, store: EventStore) -> Used | None:
        """What the matches of a member have used up so far, if they use anything up."""
        if not uses_up(plan.query):
            return None
        return Used.of(store.sources, self.marks[used_mark(place)])

    def _violations(self, place: int, member: Member) -> pa.Table:
        """The traces that break a constraint with what is new."""
        plan, clock, sources = member.plan, self.clock, tuple(self.ready)
        assert plan.tracking is not None
        report, request = self.reports[place], self.stage.request_of(plan)
        table, self.records[place] = track(
            plan, plan.tracking, sources, request, self.records[place] or None, clock.watermark, clock.until, report
        )
        self._keep(pending_rows(plan, sources, self.pending))
        return table.cast(member.output.schema)

    def _shared(self, keys: tuple[str, ...], known: Sequence[Int64s]) -> Watched:
        """The events of all members with the same keys: found, encoded and sorted once."""
        if keys not in self.shared:
            found: dict[Hashable, Candidates] = {}
            store = load_events(tuple(self.ready), self.stage.requests[keys], known)
            self.shared[keys] = Watched(store, found, found)
        return self.shared[keys]

    def _watched(self, place: int, plan: QueryPlan) -> Watched:
        """The events of a member, after what is new of them was led through their traces."""
        clock, report = self.clock, self.reports[place]
        known = self.marks[POSITION] if self.stage.counting else ()
        if plan.monitor is None:
            shared = self._shared(plan.query.partition_by, known)
            self.numbered = shared.store
            report.null_keys += shared.store.keyless(plan.streams)
            return shared
        request, sources = self.stage.request_of(plan), tuple(self.ready)
        own, numbers = self.records[place], self.marks[trace_mark(place)]
        records = own[0] if own else None if clock.last else no_records(plan, sources, request)
        watched = watch(plan, sources, request, report, known, records, clock.watermark, clock.until, numbers)
        if watched.records is not None and watched.spared is not None:
            self.records[place] = (watched.records,)
            self.spared.append(watched.spared)
        self.numbered = watched.store if self.numbered is None else self.numbered
        return watched

    def add(self, place: int, events: pa.Table) -> None:
        """Takes events of a declared stream that this very step has found: they end within it."""
        source = self.sources[place]
        table = pa.concat_tables([source.input.table, events]).combine_chunks()
        (loaded,), _ = load_sources([replace(source.input, table=table)], self.stage.time_type)
        self.sources[place] = loaded
        self.ready = [loaded if number == place else source for number, source in enumerate(self.ready)]
        none = np.zeros(events.num_rows, bool)
        self.pending[place], self.kept[place] = (np.append(mask[place], none) for mask in (self.pending, self.kept))
        for name, value in self.stage.marks.items():
            self.marks[name][place] = np.append(self.marks[name][place], np.full(events.num_rows, value))

    def keep(self, place: int) -> None:
        """Keeps what a member needs later that looks at events which were added."""
        plan = self.stage.members[place].plan
        known = self.marks[POSITION] if self.stage.counting else ()
        store = load_events(tuple(self.ready), self.stage.request_of(plan), known)
        self._keep(rows_to_keep(plan, store, {}, self.pending, self.clock.until, options=self.options))

    def _keep(self, own: Sequence[Mask]) -> None:
        self.kept = [mask | other for mask, other in zip(self.kept, own, strict=True)]

    def end(self, found: Sequence[Any], grown: Mapping[Stream, pa.Table]) -> Taken:
        """What the step gave, and what is kept after it."""
        stage, clock = self.stage, self.clock
        evaluated = sum(
            len(source.starts) if source.valid is None else int(np.count_nonzero(source.valid))
            for source in self.sources
        )
        if clock.last:
            state = stage.start()
        else:
            if self.numbered is not None and stage.counting:
                keep_markers(self.kept, self.numbered)
                keep_ties(self.kept, self.numbered)
                self.marks[POSITION] = list(self.numbered.row_positions)
            spared = np.concatenate(self.spared)
            spared = spared[:0] if clock.until is None else spared[spared > clock.until]
            state = StageState(tuple(self._kept()), tuple(self.records), spared)
        return Taken(tuple(found), grown, tuple(self.late), tuple(self.reports), evaluated, state, tuple(self.empty))

    def _kept(self) -> Iterator[Kept]:
        """The events that are kept, with what is known of them now."""
        for place, (shape, source, mask) in enumerate(zip(self.stage.shapes, self.sources, self.kept, strict=True)):
            table = source.input.table.select(shape.table.column_names).filter(pa.array(mask)).combine_chunks()
            starts = source.starts[mask]
            ends = starts if shape.end is None else source.ends[mask]
            marks = {name: of_tables[place][mask] for name, of_tables in self.marks.items()}
            yield Kept(conformed(table, shape.table.schema), starts, ends, marks)


def events_of(
    derivation: Derivation, members: Sequence[Member], matches: Sequence[pa.Table], limit: int | None
) -> list[pa.Table]:
    """The events of a stream that some of the members found."""
    return [
        derivation.events(member.way, found, limit)
        for member, found in zip(members, matches, strict=True)
        if member.way is not None and member.gives is derivation
    ]


def raw_types(plan: QueryPlan, inputs: Sequence[InputTable]) -> dict[Stream, dict[str, pa.DataType]]:
    """The columns of each stream of the query."""
    types: dict[Stream, dict[str, pa.DataType]] = {}
    for stream in plan.streams:
        holder = next(item for item in inputs if item.holds(stream))
        types[stream] = {item.name: item.type for item in plain_schema(holder.table.schema) if item.name != LINEAGE}
    return types


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries as their values and every column nullable: what is kept and what is returned."""
    return pa.schema(
        pa.field(item.name, item.type.value_type if pa.types.is_dictionary(item.type) else item.type) for item in schema
    )


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in the types of a schema with the same columns."""
    return table if table.schema.equals(schema) else table.cast(schema)


def counts(plans: Iterable[QueryPlan]) -> bool:
    """Whether positions of events matter to any of the queries."""
    return any(plan.counting for plan in plans)


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


def trace_mark(place: int) -> str:
    """The mark that numbers the trace of an event within its key, for one member; -1: not yet known."""
    return f"{TRACE}:{place}"


def used_mark(place: int) -> str:
    """The mark that says in which ways an event is used up, for one member."""
    return f"{USED}:{place}"


def _first_marks(plans: Sequence[QueryPlan]) -> dict[str, np.generic]:
    """What is known of an event that has just come, by mark: nothing."""
    marks: dict[str, np.generic] = {}
    if counts(plans):
        marks[POSITION] = np.int64(-1)
    for place, plan in enumerate(plans):
        if plan.monitor is not None:
            marks[trace_mark(place)] = np.int32(-1)
        if uses_up(plan.query):
            marks[used_mark(place)] = np.uint8(0)
    return marks


def replace_valid(source: EventSource, valid: Mask | None) -> EventSource:
    """The source with other rows that take part; its columns are read only once."""
    return EventSource(
        source.input, source.starts, source.ends, valid, source.readable_columns, source.raw_columns, source.uncertainty
    )


def beyond(source: EventSource, until: int | None) -> Mask:
    """The rows that end after a moment."""
    return np.zeros(len(source.ends), bool) if until is None else source.ends > until


def only_ready(source: EventSource, pending: Mask) -> EventSource:
    """The table without the rows that lie beyond the watermark."""
    if not pending.any():
        return source
    return replace_valid(source, ~pending if source.valid is None else source.valid & ~pending)
