"""A step of a stage: appends new rows to the kept ones, evaluates every member, and drops rows that are no longer
needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.engine.choice import UsedRows
from ensue.engine.derivation import Search, as_events, grow, settled, together
from ensue.engine.evaluation import Frontier, evaluate
from ensue.engine.events import Candidates, EventStore, load_events, searches_ties
from ensue.engine.index import IDLE_CODES, Room, Run, candidates_of, joined, new_places
from ensue.engine.retention import keep_markers, keep_ties, pending_rows, rows_to_keep
from ensue.engine.rows import MatchChunk, completion_times, of_own_slice
from ensue.engine.sources import EventSource, Mask, Report, load_sources, read_uncertainty
from ensue.engine.stage import (
    POSITION,
    Clock,
    Collect,
    KeptEvents,
    Member,
    Stage,
    StageResult,
    StageState,
    conformed,
    only_ready,
    ordered,
    replace_valid,
    trace_mark,
    used_mark,
)
from ensue.engine.suppression import suppress
from ensue.engine.ties import PairSearch, noting_ties
from ensue.engine.traces import WatchedEvents, no_records, watch
from ensue.engine.violations import track
from ensue.errors import citing
from ensue.kernels.compiler import Codes, Int64s
from ensue.nodes.names import Stream
from ensue.plan.derivations import Derivation
from ensue.plan.inputs import InputTable
from ensue.plan.plans import Options, QueryPlan

FEW_KEPT, MOST_ADDED, MOST_PUT_OFF = 1024, 0.25, 16
"""With more events, unneeded ones are searched when this share has been added, after this many steps, and when nothing
new comes."""

MOST_IDLE_ROWS = 1024
"""The number of unneeded rows that a table may contain in addition to as many as are kept."""


def step_stage(
    stage: Stage, state: StageState, fresh: Sequence[EventSource], clock: Clock, options: Options, collect: Collect
) -> StageResult:
    """Takes rows (one source per input) and advances to `clock.until`."""
    turn = Turn(stage, state, fresh, clock, options)
    grows = [any(made.name in member.plan.streams for made in stage.group) for member in stage.members]
    found: list[Any] = []
    for place, member in enumerate(stage.members):
        found.append(turn.find(place, ordered if member.way is not None else collect, keep=not grows[place]))
    grown = _grown(turn, found) if stage.group else {}
    for place, role in enumerate(stage.takes):
        if not isinstance(role, int) and role in grown:
            turn.add(place, grown[role])
    if not clock.last:
        for place, grown_with in enumerate(grows):
            if grown_with:
                turn.keep(place)
    return turn.end(found, grown)


def _grown(turn: Turn, matches: Sequence[pa.Table]) -> dict[Stream, pa.Table]:
    """The events of the group that this step derives; earlier ones are among the kept events of the stage."""
    stage, options = turn.stage, turn.options
    first: dict[Stream, pa.Table] = {
        made.name: together(made, events_of(made, stage.members, matches, options.limit), options.limit)
        for made in stage.group
    }
    earlier = {
        role: turn.sources[place].table
        for place, role in enumerate(stage.takes)
        if not isinstance(role, int) and role in first
    }
    others = tuple(source for role, source in zip(stage.takes, turn.ready, strict=True) if role not in earlier)
    grown = grow(stage.group, first, Search(others, earlier, turn.frontier(None), options, stage.compiled))
    return {made.name: settled(made, grown[made.name]) for made in stage.group}


class Turn:
    """A step of a stage in progress. Per input, `sources` are the kept events followed by the new rows, and `ready`
    those that the step evaluates; `kept` marks the rows to keep."""

    def __init__(
        self, stage: Stage, state: StageState, fresh: Sequence[EventSource], clock: Clock, options: Options
    ) -> None:
        self.stage, self.state, self.clock, self.options = stage, state, clock, options
        self.late: list[Mask] = []
        self.sources: list[EventSource] = []
        self.marks: dict[str, list[np.ndarray]] = {name: [] for name in stage.marks}
        # Rows of the past are sorted once: an index pays where others follow.
        self.indexed = bool(stage.streams) and not (clock.last and not any(map(len, state.kept)))
        self.rooms: list[tuple[Room | None, ...]] = []
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
        self.pending = [
            np.zeros(len(source.ends), bool) if clock.until is None else source.ends > clock.until
            for source in self.sources
        ]
        self.ready = self.sources
        if clock.until is not None and not stage.eager and not self.indexed:
            self.ready = [only_ready(source, waits) for source, waits in zip(self.sources, self.pending, strict=True)]
        rows = sum(len(source.starts) for source in self.sources)
        few = rows <= FEW_KEPT or rows == sum(map(len, state.kept))
        due = rows > state.settled * (1 + MOST_ADDED) or state.put_off >= MOST_PUT_OFF
        self.forgets = not self.indexed or few or due
        self.kept = [np.full(len(source.starts), not self.forgets) for source in self.sources]
        self.reports = [Report() for _ in stage.members]
        self.records = list(state.records)
        self.bursts: dict[int, pa.Table] = {}
        for place, member in enumerate(stage.members):
            if member.plan.query.suppress is not None and self.records[place]:
                # The records of bursts come before those of traces.
                self.bursts[place], *traces = self.records[place]
                self.records[place] = tuple(traces)
        self.spared = [state.spared]
        self.numbered: EventStore | None = None
        self.shared: dict[tuple[str, ...], WatchedEvents] = {}
        self.runs: list[Run] = []
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
        """Appends the rows that some member needs to the kept ones, with their streams and keys as codes."""
        stage, kept, shape = self.stage, self.state.kept[place], self.stage.shapes[place]
        usable, kinds = self._usable(shape, fresh), stage.kinds(place, fresh)
        wanted = kinds >= 0 if usable is None else usable & (kinds >= 0)
        rows = np.flatnonzero(wanted)
        rooms: tuple[Room | None, ...] = ()
        starts, kinds = fresh.starts[rows], kinds[rows]
        ends = starts if shape.end is None else fresh.ends[rows]
        if len(kept):
            table, rooms = joined(kept.table, kept.rooms, fresh.input.table, rows)
        else:
            table = fresh.input.table.select(shape.table.column_names).take(pa.array(rows))
            table = conformed(table, shape.table.schema)
        before = table.num_rows - len(rows)
        keys = stage.keys(EventSource(shape.of(table.slice(before)), starts, ends, None), self.state.index)
        waiting, places = np.ones(len(rows), bool), None
        if len(kept):
            if kept.places is not None:
                places = np.concatenate([kept.places, np.arange(before, table.num_rows)])
            starts = np.concatenate([kept.starts, starts])
            ends = starts if shape.end is None else np.concatenate([kept.ends, ends])
            kinds, keys = np.concatenate([kept.kinds, kinds]), np.concatenate([kept.keys, keys])
            waiting = np.concatenate([kept.waiting, waiting])
        arrived = EventSource(shape.of(table), starts, ends, None, places=places)
        self.sources.append(arrived)
        self.rooms.append(rooms)
        self.kinds.append(kinds)
        self.keys.append(keys)
        self.waiting.append(waiting)
        for name, value in stage.marks.items():
            self.marks[name].append(np.append(kept.marks[name], np.full(len(rows), value)))

    def _admit(self, shape: InputTable, kept: KeptEvents, fresh: EventSource) -> None:
        """Appends the new rows to the kept ones; late rows and rows without a time are left out."""
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
            self.sources.append(EventSource(shape.of(together), starts, ends, None))
        for name, value in self.stage.marks.items():
            self.marks[name].append(np.append(kept.marks[name], np.full(rows, value)))

    def frontier(self, member: Member | None) -> Frontier:
        """The wanted matches of a result; for matches that others use, also those that complete earlier."""
        clock = self.clock
        if self.stage.eager:
            return Frontier(fresh=self._arrived())
        is_result = member is not None and member.way is None
        after = clock.since if is_result and clock.since is not None else clock.watermark
        return Frontier(after, clock.until, clock.horizon)

    def _arrived(self) -> Callable[[Candidates], Mask]:
        """The candidates that came with this step."""
        first = [len(kept) for kept in self.state.kept]

        def is_fresh(found: Candidates) -> Mask:
            place = next(place for place, source in enumerate(self.ready) if source is found.source.origin)
            return found.rows >= first[place]

        return is_fresh

    def find(self, place: int, collect: Collect, keep: bool = True) -> Any:
        """The output of a member's matches that complete in this step; with `keep`, also marks the rows it needs
        later."""
        member, clock = self.stage.members[place], self.clock
        plan = member.plan
        if plan.tracking is not None:
            return self._violations(place, member)
        watched = self._watched(place, plan)
        self.empty[place] = not all(len(watched.store.streams[name]) for name in plan.streams)
        if watched.numbers is not None:
            self.marks[trace_mark(place)] = list(watched.numbers)
        used = UsedRows.of(watched.store.sources, self.marks[used_mark(place)]) if plan.uses_up else None
        candidates = watched.found if self.stage.eager else watched.completing
        # If a match depends on earlier ones, all are searched, whichever are wanted.
        everything = used is not None or plan.query.suppress is not None
        since = clock.since if everything and member.way is None else None
        frontier = self.frontier(member) if since is None else replace(self.frontier(member), after=None)
        chunks = evaluate(plan, watched.store, frontier, self.options, candidates, used)
        if plan.query.suppress is not None:
            chunks = self._reported(place, member, chunks)
        if since is not None:
            chunks = _later(chunks, plan, since)
        width = self.options.slice_width
        if width is not None:
            chunks = of_own_slice(chunks, plan, width)
        is_result = member.way is None and self.options.counts_ties
        if is_result and searches_ties(plan, watched.store, clock.last):
            ties = self.reports[place].ties
            if used is None and plan.query.policy is None:
                fresh = self._arrived() if self.stage.eager else None
                PairSearch(plan, watched.store, candidates, clock.watermark, fresh, width).count(ties)
            chunks = noting_ties(chunks, plan, ties)
        found = collect(member, watched, chunks, self.options)
        if used is not None:
            self.marks[used_mark(place)] = used.by_table
        if keep and self.forgets and clock.until is not None and not clock.last:
            self._keep_pending(plan)
            rows_to_keep(
                plan, watched.store, watched.found, self.kept, clock.until, watched.dropped, used, self.options
            )
        return found

    def _reported(self, place: int, member: Member, chunks: Iterable[MatchChunk]) -> Iterator[MatchChunk]:
        """The matches that SUPPRESS reports."""
        with citing(member.plan.source):
            found, self.bursts[place] = suppress(chunks, member.output, self.bursts.get(place), self.clock.until)
        return iter(found)

    def _violations(self, place: int, member: Member) -> pa.Table:
        """The traces that violate a constraint with the new events."""
        plan, clock, sources = member.plan, self.clock, tuple(self.ready)
        assert plan.tracking is not None
        report, request = self.reports[place], self.stage.request_of(plan)
        table, self.records[place] = track(
            plan, plan.tracking, sources, request, self.records[place] or None, clock.watermark, clock.until, report
        )
        self._keep_pending(plan)
        return table.cast(member.output.schema)

    def _shared(self, keys: tuple[str, ...], known: Sequence[Int64s]) -> WatchedEvents:
        """The events of all members with the same keys: selected, encoded and sorted once."""
        if keys not in self.shared:
            found: dict[Hashable, Candidates] = {}
            request = self.stage.requests[keys]
            store = self._merged() if self.indexed else load_events(tuple(self.ready), request, known)
            self.shared[keys] = WatchedEvents(store, found, found)
        return self.shared[keys]

    def _merged(self) -> EventStore:
        """The events of the stage, after merging the new rows into the sorted ones."""
        stage, index = self.stage, self.state.index
        streams: dict[Stream, Candidates] = {}
        without_key: dict[Stream, tuple[EventSource, Codes]] = {}
        for place, source in enumerate(self.sources):
            new = self.waiting[place] if stage.eager else self.waiting[place] & ~self.pending[place]
            rows, kinds, keys = np.flatnonzero(new).astype(np.int32), self.kinds[place], self.keys[place]
            run = index.with_rows(place, rows, kinds, keys, source)
            self.runs.append(run)
            streams |= candidates_of(run, source, stage.streams[place], index.keys.count)
            without = rows[keys[rows] < 0] if not source.input.derived else rows[:0]
            for number in np.unique(kinds[without]) if len(without) else ():
                without_key[stage.streams[place][number]] = source, without[kinds[without] == number]
        (request,) = stage.requests.values()
        return EventStore(
            tuple(self.sources),
            streams,
            index.keys.count,
            None,
            compared=request.compared,
            without_key=without_key,
            compiled=request.compiled,
        )

    def _watched(self, place: int, plan: QueryPlan) -> WatchedEvents:
        """The events of a member, after applying the new ones to its traces."""
        clock, report = self.clock, self.reports[place]
        known = self.marks[POSITION] if self.stage.counting else ()
        if plan.monitor is None:
            shared = self._shared(plan.query.partition_by, known)
            self.numbered = shared.store
            if shared.store.without_key:
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
        """Adds events of a declared stream that this step has derived: they end within it."""
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
        """Keeps the rows that a member needs later, if it uses added events."""
        plan = self.stage.members[place].plan
        known = self.marks[POSITION] if self.stage.counting else ()
        store = load_events(tuple(self.ready), self.stage.request_of(plan), known)
        self._keep_pending(plan)
        assert self.clock.until is not None
        rows_to_keep(plan, store, {}, self.kept, self.clock.until, options=self.options)

    def _keep_pending(self, plan: QueryPlan) -> None:
        """Keeps rows that no step has evaluated; with an index, only needed rows were taken."""
        own = self.pending if self.indexed else pending_rows(plan, self.ready, self.pending)
        for mask, other in zip(self.kept, own, strict=True):
            mask |= other

    def end(self, found: Sequence[Any], grown: Mapping[Stream, pa.Table]) -> StageResult:
        """The result of the step, and the state after it."""
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
                state = StageState(tuple(self._kept()), self._all_records(), spared, self.state.index)
        return StageResult(
            tuple(found), grown, tuple(self.late), tuple(self.reports), evaluated, state, tuple(self.empty)
        )

    def _all_records(self) -> tuple[tuple[pa.Table, ...], ...]:
        """Per member, the records of its bursts and of its traces."""
        return tuple(
            (self.bursts[place], *own) if place in self.bursts else own for place, own in enumerate(self.records)
        )

    def _indexed_state(self, spared: Int64s) -> StageState:
        """The kept events, encoded and sorted."""
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
            rooms = self.rooms[place] if table is source.input.table else ()
            kept.append(KeptEvents(table, starts, ends, marks, where, *codes, waiting[mask], rooms))
        settled, put_off = (sum(map(len, kept)), 0) if self.forgets else (self.state.settled, self.state.put_off + 1)
        left = index.kept(self.runs, places)
        state = StageState(tuple(kept), self._all_records(), spared, left, settled, put_off)
        return state if index.keys.count < 2 * sum(map(len, kept)) + IDLE_CODES else self._renumbered(state)

    def _renumbered(self, state: StageState) -> StageState:
        """The same state with codes only for the keys of kept events."""
        index = self.stage.empty_index()
        kept = [
            replace(self.stage.encoded(place, replace(own, table=own.whole, places=None), index), waiting=own.waiting)
            for place, own in enumerate(state.kept)
        ]
        runs = []
        for run, own in zip(state.index.runs, kept, strict=True):
            codes = own.keys[run.rows]
            order = np.lexsort((run.starts, codes, run.kinds))
            runs.append(Run(run.rows[order], run.kinds[order], codes[order], run.starts[order], run.ends[order]))
        return replace(state, kept=tuple(kept), index=replace(index, runs=tuple(runs)))

    def _kept(self) -> Iterator[KeptEvents]:
        """The kept events with their current marks."""
        for place, (shape, source, mask) in enumerate(zip(self.stage.shapes, self.sources, self.kept, strict=True)):
            table = source.input.table.select(shape.table.column_names).filter(pa.array(mask)).combine_chunks()
            starts = source.starts[mask]
            ends = starts if shape.end is None else source.ends[mask]
            marks = {name: of_tables[place][mask] for name, of_tables in self.marks.items()}
            yield KeptEvents(conformed(table, shape.table.schema), starts, ends, marks)


def _later(chunks: Iterable[MatchChunk], plan: QueryPlan, since: int) -> Iterator[MatchChunk]:
    """The matches that complete after a moment."""
    for chunk in chunks:
        later = chunk.where(completion_times(chunk, plan) > since)
        if later.rows.length:
            yield later


def events_of(
    derivation: Derivation, members: Sequence[Member], matches: Sequence[pa.Table], limit: int | None
) -> list[pa.Table]:
    """The events of a stream that some of the members found."""
    return [
        as_events(derivation, member.way, found, limit)
        for member, found in zip(members, matches, strict=True)
        if member.way is not None and member.gives is derivation
    ]


def _compacted(source: EventSource, kept: Any) -> tuple[pa.Table, Int64s | None]:
    """The table of kept rows and their places in it; it is copied if at least half of it is not needed."""
    table = source.input.table
    places = np.arange(table.num_rows) if source.places is None else source.places
    places = places[kept]
    if table.num_rows > 2 * len(places) + MOST_IDLE_ROWS:
        return table.take(pa.array(places)).combine_chunks(), None
    return table, None if len(places) == table.num_rows else places
