"""A stage of a machine: plans that run on the same events, and the state that they keep between steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.engine.choice import Used, uses_up
from ensue.engine.derived import Search, as_events, grow, settled, together
from ensue.engine.evaluate import Frontier, evaluate
from ensue.engine.events import Candidates, EventStore, Request, key_column, load_events, request_of, stream_codes
from ensue.engine.forget import keep_markers, keep_ties, pending_rows, rows_to_keep
from ensue.engine.index import IDLE_CODES, Index, Run, candidates_of, new_places
from ensue.engine.interning import Keys, can_intern
from ensue.engine.matches import MatchChunk, completion_times
from ensue.engine.output import collect_ordered
from ensue.engine.sources import EventSource, Mask, Report, load_sources, read_uncertainty
from ensue.engine.traces import TRACE, Watched, no_records, watch
from ensue.engine.violations import track
from ensue.engine.workspace import compared_column
from ensue.errors import citing
from ensue.expr.types import readable_type
from ensue.kernels.compiled import Codes, Int64s
from ensue.kernels.sorting import group_by_key, order_by_key_and_time
from ensue.names import AnyEvent, Stream
from ensue.plan.declared import Derivation, Way
from ensue.plan.inputs import InputTable, plain_schema
from ensue.plan.model import Options, QueryPlan
from ensue.plan.outputs import OutputSchema

USED = "ensue:used"
POSITION = "ensue:position"
"""The mark that holds the position of an event in its partition, -1 while it is not settled."""

MANY_CONSTANTS = 4
"""With how many constants a column is compared before its values are sorted for all of them."""

MOST_IDLE_ROWS, MOST_CHUNKS = 1024, 16
"""How many rows that nobody needs a table may hold beyond as many as are kept, and in how many pieces it may be."""

NO_CODES: Codes = np.empty(0, np.int32)
NOT_WAITING: Mask = np.empty(0, bool)

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
    places: Int64s | None = None
    """Where the events are in the table; None: they are all its rows, in order."""
    kinds: Codes = field(default_factory=lambda: NO_CODES)
    keys: Codes = field(default_factory=lambda: NO_CODES)
    waiting: Mask = field(default_factory=lambda: NOT_WAITING)
    """In a stage with an index: the number of the stream of each event, the code of its key, and whether no step has
    looked at it yet."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def whole(self) -> pa.Table:
        """The events with all their columns."""
        return self.table if self.places is None else self.table.take(pa.array(self.places)).combine_chunks()

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        return int(self.whole.nbytes) + sum(values.nbytes for values in self.marks.values())


@dataclass(frozen=True, slots=True)
class StageState:
    """What a stage keeps between steps.

    `records` hold, per member that watches its traces, what is known of each; `spared` says until when events would
    have been kept that are not, because their traces have failed. `index` has the events sorted, if the stage does.
    """

    kept: tuple[Kept, ...]
    records: tuple[tuple[pa.Table, ...], ...]
    spared: Int64s
    index: Index

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
    streams: tuple[tuple[Stream, ...], ...]
    """Per input the streams that members look for. They stay sorted from step to step; () where they cannot."""

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
                compared=_compared_columns(plans),
            )
        uncertain = any(item.probability is not None or item.hierarchy for item in shapes)
        roles = tuple(role for role, _ in takes)
        marks = _first_marks(plans)
        keeps_sorted = not (group or uncertain or further_keys or len(requests) > 1)
        streams = _indexed_streams(plans, shapes) if keeps_sorted else ()
        return cls(tuple(members), roles, tuple(shapes), group, eager, requests, marks, uncertain, streams)

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
        return StageState(kept, tuple(() for _ in self.members), times, self._index())

    def _index(self) -> Index:
        return Index(Keys(len(next(iter(self.requests.values())).partition_by)), {})

    def taken_over(self, state: StageState) -> StageState:
        """The state of a stage of the same plans, for tables of whose columns less was known."""
        tables = [
            pa.Table.from_arrays([*saved.columns], schema=schema) if saved.schema.equals(schema) else saved.cast(schema)
            for saved, schema in zip(self.saved(state), self.saved_schemas(), strict=True)
        ]
        return replace(self.restored(tables, state.records), spared=state.spared)

    def restored(self, tables: Sequence[pa.Table], records: Sequence[tuple[pa.Table, ...]]) -> StageState:
        """The state with these events, each with its marks as further columns."""
        kept = []
        for shape, table in zip(self.shapes, tables, strict=True):
            marks = {name: np.asarray(table.column(name).to_numpy()) for name in self.marks}
            (source,), _ = load_sources([replace(shape, table=table.select(shape.table.column_names))], self.time_type)
            kept.append(Kept(source.input.table, source.starts, source.ends, marks))
        index = self._index()
        if self.streams:
            kept = [self._encoded(place, own, index) for place, own in enumerate(kept)]
        return StageState(tuple(kept), tuple(records), np.empty(0, np.int64), index)

    def _encoded(self, place: int, kept: Kept, index: Index) -> Kept:
        """Events as the next step can sort them."""
        source = EventSource(replace(self.shapes[place], table=kept.table), kept.starts, kept.ends, None)
        kinds, keys = self.kinds(place, source), self.keys(source, index)
        return replace(kept, kinds=kinds, keys=keys, waiting=np.ones(len(kept), bool))

    def kinds(self, place: int, source: EventSource) -> Codes:
        """The number of the stream of each row of an input, -1 for those that no member looks for."""
        if source.input.stream is not None:
            return np.zeros(len(source.starts), np.int32) - np.int32(not self.streams[place])
        return stream_codes(source.input, [*map(str, self.streams[place])])

    def keys(self, source: EventSource, index: Index) -> Codes:
        """The code of the key of each row."""
        (request,) = self.requests.values()
        columns = [key_column(source, name, request) for name in request.partition_by]
        return index.keys.codes(columns, len(source.starts))

    def saved(self, state: StageState) -> list[pa.Table]:
        """The kept events of each input with their marks as further columns."""
        return [
            pa.Table.from_arrays(
                [*kept.whole.columns, *(pa.array(kept.marks[name]) for name in self.marks)],
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
            EventSource(replace(shape, table=kept.whole), kept.starts, kept.ends, None)
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
            made.name: together(made, events_of(made, self.members, matches, options.limit), options.limit)
            for made in self.group
        }
        earlier = {
            role: turn.sources[place].table
            for place, role in enumerate(self.takes)
            if not isinstance(role, int) and role in first
        }
        others = tuple(source for role, source in zip(self.takes, turn.ready, strict=True) if role not in earlier)
        grown = grow(self.group, first, Search(others, earlier, turn.frontier(None), options))
        return {made.name: settled(made, grown[made.name]) for made in self.group}


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
        # Rows of the past are sorted once: an index pays where others follow.
        self.indexed = bool(stage.streams) and not (clock.last and not any(map(len, state.kept)))
        self.kinds: list[Codes] = []
        self.keys: list[Codes] = []
        self.waiting: list[Mask] = []
        for place, source in enumerate(fresh):
            if self.indexed:
                self._encode(place, source)
            else:
                self._admit(stage.shapes[place], state.kept[place], source)
        if stage.uncertain and any(map(len, state.kept)):
            self.sources = [replace_valid(source, source.valid) for source in self.sources]
            read_uncertainty(self.sources)
        self.pending = [beyond(source, clock.until) for source in self.sources]
        self.ready = self.sources
        if not stage.eager and not self.indexed:
            self.ready = [only_ready(source, waits) for source, waits in zip(self.sources, self.pending, strict=True)]
        self.kept = [np.zeros(len(source.starts), bool) for source in self.sources]
        self.reports = [Report() for _ in stage.members]
        self.records = list(state.records)
        self.spared = [state.spared]
        self.numbered: EventStore | None = None
        self.shared: dict[tuple[str, ...], Watched] = {}
        self.runs: dict[tuple[int, int], Run] = {}
        self.empty = [False for _ in stage.members]

    def _usable(self, shape: InputTable, fresh: EventSource) -> Mask | None:
        """The rows that are neither late nor without a time; None: all."""
        reached = None if shape.derived else self.clock.reached
        late = np.zeros(len(fresh.ends), bool) if reached is None else fresh.ends <= reached
        if fresh.valid is not None:
            late &= fresh.valid
        self.late.append(late)
        usable = fresh.valid
        if late.any():
            usable = ~late if usable is None else usable & ~late
        return None if usable is None or usable.all() else usable

    def _encode(self, place: int, fresh: EventSource) -> None:
        """Puts the rows that some member looks for behind the kept ones, with their streams and keys as codes."""
        stage, kept, shape = self.stage, self.state.kept[place], self.stage.shapes[place]
        usable, kinds = self._usable(shape, fresh), stage.kinds(place, fresh)
        wanted = kinds >= 0 if usable is None else usable & (kinds >= 0)
        rows = np.flatnonzero(wanted)
        table = fresh.input.table.select(shape.table.column_names)
        starts, ends = fresh.starts, fresh.ends
        if len(rows) < len(wanted):
            table, starts, ends, kinds = table.take(pa.array(rows)), starts[rows], ends[rows], kinds[rows]
        table = conformed(table, shape.table.schema)
        arrived = EventSource(replace(shape, table=table), starts, starts if shape.end is None else ends, None)
        keys, places = stage.keys(arrived, self.state.index), None
        waiting = np.ones(len(rows), bool)
        if len(kept):
            if kept.places is not None:
                places = np.concatenate([kept.places, np.arange(len(rows)) + kept.table.num_rows])
            table = pa.concat_tables([kept.table, table])
            starts = np.concatenate([kept.starts, starts])
            ends = starts if shape.end is None else np.concatenate([kept.ends, ends])
            kinds, keys = np.concatenate([kept.kinds, kinds]), np.concatenate([kept.keys, keys])
            waiting = np.concatenate([kept.waiting, waiting])
            arrived = EventSource(replace(shape, table=table), starts, ends, None, places=places)
        self.sources.append(arrived)
        self.kinds.append(kinds)
        self.keys.append(keys)
        self.waiting.append(waiting)
        for name, value in stage.marks.items():
            self.marks[name].append(np.append(kept.marks[name], np.full(len(rows), value)))

    def _admit(self, shape: InputTable, kept: Kept, fresh: EventSource) -> None:
        """Puts the new rows behind the kept ones; late ones and those without a time are left out."""
        usable = self._usable(shape, fresh)
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
            together = pa.concat_tables([kept.whole, conformed(table, shape.table.schema)]).combine_chunks()
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
        if keep and clock.until is not None and not clock.last:
            self._keep_pending(plan)
            rows_to_keep(
                plan, watched.store, watched.found, self.kept, clock.until, watched.dropped, used, self.options
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
        self._keep_pending(plan)
        return table.cast(member.output.schema)

    def _shared(self, keys: tuple[str, ...], known: Sequence[Int64s]) -> Watched:
        """The events of all members with the same keys: found, encoded and sorted once."""
        if keys not in self.shared:
            found: dict[Hashable, Candidates] = {}
            request = self.stage.requests[keys]
            store = self._merged() if self.indexed else load_events(tuple(self.ready), request, known)
            self.shared[keys] = Watched(store, found, found)
        return self.shared[keys]

    def _merged(self) -> EventStore:
        """The events of the stage, after what no step has looked at yet was merged with what is sorted already."""
        stage, index = self.stage, self.state.index
        without_key: dict[Stream, tuple[EventSource, Codes]] = {}
        for place, source in enumerate(self.sources):
            new = self.waiting[place] if stage.eager else self.waiting[place] & ~self.pending[place]
            rows = np.flatnonzero(new).astype(np.int32)
            order, runs = group_by_key(self.kinds[place][rows], len(stage.streams[place]))
            for number, stream in enumerate(stage.streams[place]):
                own = rows[order[runs[number] : runs[number + 1]]]
                keys = self.keys[place][own]
                run = index.with_rows((place, number), own, keys, source.starts[own], source.ends[own])
                self.runs[place, number] = run
                if len(own) and int(keys.min()) < 0 and not source.input.derived:
                    without_key[stream] = source, own[keys < 0]
        streams: dict[Stream, Candidates] = {}
        for (place, number), run in self.runs.items():
            stream = stage.streams[place][number]
            streams[stream] = candidates_of(run, self.sources[place], index.keys.count)
        (request,) = stage.requests.values()
        return EventStore(
            tuple(self.sources),
            streams,
            index.keys.count,
            None,
            compared=request.compared,
            without_key=without_key,
        )

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
        self._keep_pending(plan)
        assert self.clock.until is not None
        rows_to_keep(plan, store, {}, self.kept, self.clock.until, options=self.options)

    def _keep_pending(self, plan: QueryPlan) -> None:
        """Keeps what no step has looked at; with an index, nothing else has come than what is looked for."""
        own = self.pending if self.indexed else pending_rows(plan, self.ready, self.pending)
        for mask, other in zip(self.kept, own, strict=True):
            mask |= other

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
            if self.indexed:
                state = self._indexed_state(spared)
            else:
                state = StageState(tuple(self._kept()), tuple(self.records), spared, self.state.index)
        return Taken(tuple(found), grown, tuple(self.late), tuple(self.reports), evaluated, state, tuple(self.empty))

    def _indexed_state(self, spared: Int64s) -> StageState:
        """What is kept, encoded and sorted."""
        kept, index = [], self.state.index
        places = [new_places(mask) for mask in self.kept]
        for place, own in enumerate(places):
            mask, source = self.kept[place] if own is not None else slice(None), self.sources[place]
            starts = source.starts[mask]
            ends = starts if source.ends is source.starts else source.ends[mask]
            marks = {name: of_tables[place][mask] for name, of_tables in self.marks.items()}
            waiting = self.pending[place] if not self.stage.eager else np.zeros(len(self.pending[place]), bool)
            codes = self.kinds[place][mask], self.keys[place][mask]
            table, where = _compacted(source, mask)
            kept.append(Kept(table, starts, ends, marks, where, *codes, waiting[mask]))
        state = StageState(tuple(kept), tuple(self.records), spared, index.kept(self.runs, places))
        return state if index.keys.count < 2 * sum(map(len, kept)) + IDLE_CODES else self._renumbered(state)

    def _renumbered(self, state: StageState) -> StageState:
        """The same state with codes for the keys of kept events and no others."""
        index = self.stage._index()
        kept = [
            replace(self.stage._encoded(place, replace(own, table=own.whole, places=None), index), waiting=own.waiting)
            for place, own in enumerate(state.kept)
        ]
        runs = {}
        for (place, number), run in state.index.runs.items():
            codes = kept[place].keys[run.rows]
            order = order_by_key_and_time(codes, run.starts)
            runs[place, number] = Run(run.rows[order], codes[order], run.starts[order], run.ends[order])
        return replace(state, kept=tuple(kept), index=replace(index, runs=runs))

    def _kept(self) -> Iterator[Kept]:
        """The events that are kept, with what is known of them now."""
        for place, (shape, source, mask) in enumerate(zip(self.stage.shapes, self.sources, self.kept, strict=True)):
            table = source.input.table.select(shape.table.column_names).filter(pa.array(mask)).combine_chunks()
            starts = source.starts[mask]
            ends = starts if shape.end is None else source.ends[mask]
            marks = {name: of_tables[place][mask] for name, of_tables in self.marks.items()}
            yield Kept(conformed(table, shape.table.schema), starts, ends, marks)


def _compacted(source: EventSource, kept: Any) -> tuple[pa.Table, Int64s | None]:
    """The table of kept rows and where in it they are; it is copied when half of it, or more, is not needed."""
    table = source.input.table
    places = np.arange(table.num_rows) if source.places is None else source.places
    places = places[kept]
    if table.num_rows > 2 * len(places) + MOST_IDLE_ROWS:
        return table.take(pa.array(places)).combine_chunks(), None
    if table.num_columns and table.column(0).num_chunks > MOST_CHUNKS:
        table = table.combine_chunks()
    return table, None if len(places) == table.num_rows else places


def _indexed_streams(plans: Sequence[QueryPlan], shapes: Sequence[InputTable]) -> tuple[tuple[Stream, ...], ...]:
    """Per input the streams of the plans, if each row is of one of them at most and keys have codes that last."""
    if counts(plans) or any(plan.monitor is not None or plan.tracking is not None for plan in plans):
        return ()
    streams = list(dict.fromkeys(stream for plan in plans for stream in plan.streams))
    kinds = {
        name: {
            readable_type(item.table.schema.field(name).type) if name in item.table.column_names else pa.int64()
            for item in shapes
            if any(map(item.holds, streams))
        }
        for name in plans[0].query.partition_by
    }
    raw = [item.table.schema.field(name).type for item in shapes for name in kinds if name in item.table.column_names]
    if any(len(own) > 1 or not all(map(can_intern, own)) for own in kinds.values()) or any(
        pa.types.is_decimal(kind) for kind in raw
    ):
        return ()
    if any(isinstance(stream, AnyEvent) for stream in streams):
        return ()
    return tuple(tuple(filter(item.holds, streams)) for item in shapes)


def events_of(
    derivation: Derivation, members: Sequence[Member], matches: Sequence[pa.Table], limit: int | None
) -> list[pa.Table]:
    """The events of a stream that some of the members found."""
    return [
        as_events(derivation, member.way, found, limit)
        for member, found in zip(members, matches, strict=True)
        if member.way is not None and member.gives is derivation
    ]


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


def _compared_columns(plans: Sequence[QueryPlan]) -> frozenset[tuple[Stream, str]]:
    """The columns of streams that predicates compare with many constants: there a look-up takes their place."""
    constants: dict[tuple[Stream, str], set[int | str]] = {}
    for plan in plans if len(plans) >= MANY_CONSTANTS else ():
        for graph in plan.graphs:
            for variable in (variable for inner in graph.with_inner() for variable in inner.graph.variables):
                first = variable.predicates[0] if variable.predicates else None
                compared = None if first is None else compared_column(first, variable.stream, plan.catalog)
                if compared is not None:
                    constants.setdefault((variable.stream, compared[0]), set()).add(compared[1])
    return frozenset(column for column, values in constants.items() if len(values) >= MANY_CONSTANTS)


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
