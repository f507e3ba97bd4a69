"""The machine: a compiled program plan. `step` takes rows and a watermark and returns the matches that have completed.

Batch is one step; a stream is one step per batch. Statements that use the matches of others run in later stages of the
same step: such matches end within it, so no later step can miss them and none of them is late.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import pyarrow as pa

from ensue.analysis.scopes import chooses
from ensue.engine.belief.follower import BeliefAnswers, BeliefState, StateStage
from ensue.engine.derivation import settled, sources_of, together
from ensue.engine.evaluation import Frontier, evaluate, matches_of_graphs
from ensue.engine.events import EventStore, load_events
from ensue.engine.retention import in_range
from ensue.engine.rows import MatchChunk
from ensue.engine.sources import EventSource, Mask, Report, latest_end, latest_of, load_sources
from ensue.engine.stage import (
    Clock,
    Collect,
    Member,
    Role,
    Stage,
    StageState,
    needed_columns,
    ordered,
)
from ensue.engine.traces import WatchedEvents
from ensue.engine.turn import events_of, step_stage
from ensue.engine.views import with_elements
from ensue.nodes.names import AnyEvent, Stream
from ensue.plan.derivations import Derivation, all_plans, groups_of, is_recursive
from ensue.plan.inputs import InputTable, catalog_of, plain_schema, raw_types
from ensue.plan.outputs import output_schema
from ensue.plan.plans import Options, QueryPlan
from ensue.plan.program_plans import ProgramPlan
from ensue.plan.states import StateQuestions

UNLIMITED = Options(limit=None)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as input of a step: one source per input, with its times as numbers, and the rows that were ignored."""

    sources: tuple[EventSource, ...]
    report: Report


@dataclass(frozen=True, slots=True)
class State:
    """What a machine keeps between steps. `watermark` is the time reached, `horizon` the latest end of any event.
    `report` counts what was read so far. `believed` is the state of STATEs, if patterns or users query them."""

    stages: tuple[StageState, ...]
    watermark: int | None = None
    horizon: int | None = None
    report: Report = field(default_factory=Report)
    believed: BeliefState | None = None

    @property
    def waiting(self) -> tuple[pa.Table, ...]:
        """Per input, the rows that wait for the watermark before the states."""
        return () if self.believed is None else self.believed.waiting

    @property
    def holds_anything(self) -> bool:
        believes = self.believed is not None and self.believed.holds_anything
        return believes or any(stage.holds_anything for stage in self.stages)

    @property
    def kept_rows(self) -> int:
        """The number of kept events, including those of declared streams."""
        waiting = 0 if self.believed is None else self.believed.waiting_rows
        return waiting + sum(len(kept) for stage in self.stages for kept in stage.kept)

    @property
    def kept_bytes(self) -> int:
        """The size of the kept events and of beliefs in memory."""
        believed = 0 if self.believed is None else self.believed.nbytes
        return believed + sum(kept.nbytes for stage in self.stages for kept in stage.kept)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step: the collected output of each result, the new state, and per input the late rows.

    `report` counts what this step read, `reports` what each result read. `events` are the sources of all events, with
    those of declared streams last. `empty` are the plans with a stream without events. `told` are the answers of STATEs
    about the events, if any.
    """

    outputs: tuple[Any, ...]
    state: State
    late: tuple[Mask, ...]
    report: Report
    reports: tuple[Report, ...]
    events: tuple[EventSource, ...]
    empty: tuple[QueryPlan, ...]
    told: BeliefAnswers | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A compiled program plan: everything that does not depend on rows. It contains no rows and can be pickled.

    `plans` are those of the results. `inputs` are empty tables with the required columns. The first stage reads all
    tables and determines which rows are late; if there are `states`, they run before it and determine that.
    """

    plan: ProgramPlan
    inputs: tuple[InputTable, ...]
    stages: tuple[Stage, ...]
    options: Options
    eager: bool = False
    states: StateStage | None = None
    tables: tuple[InputTable, ...] = ()
    """If the program uses elements of lists: the tables as plans see them, with those of elements at the end."""

    @property
    def plans(self) -> tuple[QueryPlan, ...]:
        return self.plan.plans

    @property
    def time_type(self) -> pa.DataType:
        return self.stages[0].time_type if self.states is None else self.states.time_type

    @property
    def all_plans(self) -> list[QueryPlan]:
        """The plans of declared streams, then those of results."""
        return all_plans(self.plan.derivations, self.plans)

    def start(self) -> State:
        """The state before any event."""
        believed = None if self.states is None else self.states.start()
        return State(tuple(stage.start() for stage in self.stages), believed=believed)

    def taken_over(self, state: State) -> State:
        """The state of a machine with the same plans, for tables with fewer known columns."""
        stages = zip(self.stages, state.stages, strict=True)
        believed = state.believed
        if self.states is not None and believed is not None:
            believed = self.states.taken_over(believed)
        return replace(state, stages=tuple(stage.taken_over(before) for stage, before in stages), believed=believed)

    def read(self, tables: Sequence[pa.Table]) -> Batch:
        """Converts tables, one per input, to the input of a step."""
        items = [item.of(table) for item, table in zip(self.inputs, tables, strict=True)]
        return Batch(*load_sources(items, self.time_type))

    def step(
        self,
        state: State,
        batch: Batch,
        until: int | None = None,
        *,
        late_until: int | None = None,
        last: bool = False,
        horizon: int | None = None,
        collect: Collect = ordered,
    ) -> Step:
        """Takes rows and moves the watermark to `until`; None: to the end of time, after which nothing is kept.

        Rows are late if they end at or before the watermark of the last step, or `late_until` if that is later. After
        the `last` step nothing is kept, whatever the watermark. `horizon` is the end of an event elsewhere. `collect`
        converts the matches of each result to its output.
        """
        horizon = latest_of(state.horizon, latest_end(batch.sources), horizon)
        last = last or until is None
        since = self.options.since if state.watermark is None else None
        clock = Clock(state.watermark, until, horizon, since, late_until, last)
        given, told = batch.sources, None
        if self.states is not None and state.believed is not None:
            told = self.states.step(state.believed, [source.input.table for source in given], clock)
            seen = (table.drop_columns([*(self.states.questions.measured or ())]) for table in told.rows)
            rows = [item.of(table) for item, table in zip(self.plan.widened, seen, strict=True)]
            given, _ = load_sources(rows, self.time_type)
            # Which rows are late was said before they waited.
            clock = replace(clock, late_until=None)
        if self.tables:
            given = with_elements(given, self.tables, self.time_type)
        if last and state.watermark is None and (since is not None or until is not None):
            given = in_range(given, self.plans, self.plan.derivations, since, until)
        return _Run(self, clock, collect, told).run(state, given, batch.report)

    def run(self, batch: Batch, *, horizon: int | None = None, collect: Collect = ordered) -> Step:
        """All matches in past rows, limited by `options.since` and `options.until`: one step."""
        return self.step(self.start(), batch, self.options.until, last=True, horizon=horizon, collect=collect)

    def looks(self, state: State) -> Iterator[Look]:
        """The kept events of each stage, for other questions than those of its plans. They include rows that wait
        before states, without the columns that states add."""
        for stage, kept in zip(self.stages, state.stages, strict=True):
            waits = any(table.num_rows for table in state.waiting)
            yield Look(stage, stage.with_rows(kept, state.waiting) if waits else kept, state.watermark)


@dataclass(frozen=True, slots=True)
class Look:
    """The kept events of a stage. Reading them takes no step: nothing completes and nothing is dropped."""

    stage: Stage
    state: StageState
    watermark: int | None

    def events(self, plan: QueryPlan, until: int | None = None, counting: bool = False) -> EventStore:
        """The kept events for a plan of the stage, or those that end no later than a moment.

        With `counting`, the keys of rows that the plan does not need are known, too.
        """
        request = self.stage.request_of(plan)
        request = replace(request, counting=True) if counting else request
        return load_events(self.stage.loaded(self.state, until), request, self.stage.known_positions(self.state))

    def matches(self, plan: QueryPlan, events: EventStore) -> Iterator[MatchChunk]:
        """The matches of any plan in the kept events, as its policy chooses them."""
        return evaluate(plan, events, Frontier(), UNLIMITED, {})

    def choices(self, plan: QueryPlan, events: EventStore, after: int | None = None) -> Iterator[MatchChunk]:
        """All choices of events for the graphs of a plan that complete after a moment, whatever its policy."""
        return matches_of_graphs(plan, events, Frontier(after), UNLIMITED, {}, None)


class _Run:
    """One step of a machine in progress."""

    def __init__(self, machine: Machine, clock: Clock, collect: Collect, told: BeliefAnswers | None) -> None:
        self.machine, self.clock, self.collect, self.told = machine, clock, collect, told
        self.rows: dict[Role, EventSource] = {}
        self.parts: dict[Stream, list[pa.Table]] = {}
        self.results: dict[int, Any] = {}
        self.reports: dict[int, Report] = {}
        self.below = Report()
        self.empty: list[QueryPlan] = []
        self.late: tuple[Mask, ...] = () if told is None else told.late

    def run(self, state: State, given: Sequence[EventSource], read: Report) -> Step:
        machine = self.machine
        self.rows.update(enumerate(given))
        report, after = read.copy(), []
        for stage, kept in zip(machine.stages, state.stages, strict=True):
            # Rows of a stream that grows in this very stage are still to come.
            fresh = [
                self.rows[role] if role in self.rows else load_sources([shape], machine.time_type)[0][0]
                for role, shape in zip(stage.takes, stage.shapes, strict=True)
            ]
            taken = step_stage(stage, kept, fresh, self.clock, machine.options, self.collect)
            after.append(taken.state)
            if stage is machine.stages[0] and self.told is None:
                # The tables that were given come first; streams that grow in this stage are behind them.
                self.late = taken.late[: len(machine.inputs)]
            for name, events in taken.grown.items():
                self._derived(name, events)
            if machine.plan.derivations:
                self._completed(stage, taken.found)
            self.empty += [m.plan for m, empty in zip(stage.members, taken.empty, strict=True) if empty]
            report.evaluated += taken.evaluated
            for member, found, own in zip(stage.members, taken.found, taken.reports, strict=True):
                report.null_keys = max(report.null_keys, own.null_keys)
                report.traces_failed += own.traces_failed
                report.events_skipped += own.events_skipped
                if isinstance(member.gives, int):
                    self.results[member.gives], self.reports[member.gives] = found, own
                else:
                    self._count_below(own)
        report.late = sum(int(mask.sum()) for mask in self.late)
        return self._step(state, tuple(after), report, read)

    def _derived(self, name: Stream, events: pa.Table) -> None:
        made = next(made for made in self.machine.plan.derivations if made.name == name)
        (self.rows[name],), _ = load_sources([replace(made.item, table=events)], self.machine.time_type)

    def _completed(self, stage: Stage, matches: Sequence[Any]) -> None:
        """Records the events of the streams whose last statements these are; `parts` keeps those of the others."""
        limit = self.machine.options.limit
        for made in self.machine.plan.derivations if not stage.group else ():
            found = events_of(made, stage.members, matches, limit)
            if found:
                own = self.parts.setdefault(made.name, [])
                own += found
                if len(own) == len(made.ways):
                    self._derived(made.name, settled(made, together(made, own, limit)))

    def _count_below(self, own: Report) -> None:
        """Adds the counts of the statements of declared streams to every result."""
        self.below.null_keys = max(self.below.null_keys, own.null_keys)
        self.below.traces_failed += own.traces_failed
        self.below.events_skipped += own.events_skipped

    def _step(self, state: State, after: tuple[StageState, ...], report: Report, read: Report) -> Step:
        machine, clock = self.machine, self.clock
        outputs = tuple(self.results[place] for place in range(len(machine.plans)))
        reports = []
        for place, output in enumerate(outputs):
            own = self.reports[place]
            matches = output.num_rows if isinstance(output, pa.Table) and machine.plans[place].tracking is None else 0
            of_result = read.copy()
            of_result.null_keys = max(self.below.null_keys, own.null_keys)
            of_result.traces_failed = self.below.traces_failed + own.traces_failed
            of_result.events_skipped = self.below.events_skipped + own.events_skipped
            of_result.matches = matches
            of_result.ties = own.ties
            report.ties.update(own.ties)
            reports.append(of_result)
            report.matches += matches
        watermark = state.watermark if clock.until is None else clock.until
        believed = None if self.told is None else self.told.state
        waiting = 0 if believed is None else believed.waiting_rows
        report.peak_held = waiting + sum(len(kept) for stage in after for kept in stage.kept)
        report.peak_without = report.peak_held + sum(len(stage.spared) for stage in after)
        new = State(after, watermark, clock.horizon, state.report.with_added(report), believed)
        derived = [self.rows[made.name] for made in machine.plan.derivations if made.name in self.rows]
        events = (*(self.rows[place] for place in range(max(len(machine.inputs), len(machine.tables)))), *derived)
        return Step(outputs, new, self.late, report, tuple(reports), events, tuple(self.empty), self.told)


def compile_plan(
    plan: ProgramPlan, options: Options, eager: bool = False, further_keys: tuple[str, ...] = ()
) -> Machine:
    """Compiles a program plan; no rows are read. Events of a match also agree in `further_keys`."""
    # A stage keeps what is used; what the statements name has to come, so that they can be planned again.
    ways = [way for derivation in plan.derivations for way in derivation.ways]
    everything = [*(way.whole for way in ways), *all_plans(plan.derivations, plan.plans)]
    if plan.states is not None:
        return _with_states(plan, plan.states, everything, Machine(plan, (), (), options, eager), further_keys)
    shapes = tuple(
        replace(item, table=plain_schema(needed_columns(everything, item).schema).empty_table()) for item in plan.inputs
    )
    if not any(map(attrgetter("elements"), plan.inputs)):
        return Machine(plan, shapes, _stages(plan, eager, further_keys), options, eager)
    seen = replace(plan, inputs=plan.tables)
    stages = _stages(seen, eager, further_keys)
    return Machine(plan, shapes, stages, options, eager, tables=_shapes(seen, everything))


def _shapes(plan: ProgramPlan, plans: Sequence[QueryPlan]) -> tuple[InputTable, ...]:
    """All tables of a plan with only the columns that plans use."""
    return tuple(
        replace(item, table=plain_schema(needed_columns(plans, item).schema).empty_table()) for item in plan.inputs
    )


def _with_states(
    plan: ProgramPlan,
    asked: StateQuestions,
    everything: Sequence[QueryPlan],
    machine: Machine,
    further_keys: tuple[str, ...],
) -> Machine:
    """The machine with states before its stages, which see the columns that states add to events.

    Events at the same time are ordered by all their values, so whole rows are required.
    """
    shapes = []
    for item in plan.inputs:
        schema = plain_schema(item.table.schema) if everything else item.table.schema
        shapes.append(replace(item, table=schema.empty_table()))
    seen = replace(plan, inputs=plan.tables, states=None)
    stages = _stages(seen, machine.eager, further_keys)
    time_type = stages[0].time_type if stages else catalog_of(plan.inputs).time_type
    tables = _shapes(seen, everything) if len(seen.inputs) > len(plan.inputs) else ()
    states = StateStage.of(asked, tuple(shapes), time_type)
    return replace(machine, inputs=tuple(shapes), stages=stages, states=states, tables=tables)


def completing_streams(program: ProgramPlan) -> frozenset[Stream] | None:
    """The streams whose events complete matches; None if time alone completes matches, or other events count, too."""
    found: set[Stream] = set()
    if program.derivations or program.states is not None:
        return None
    for plan in program.plans:
        if plan.counting or plan.uncertain or plan.watched or chooses(plan.query):
            return None
        for graph in (graph_plan.graph for graph_plan in plan.graphs):
            if graph.trailing or graph.moments:
                return None
            found |= {variable.stream for variable in graph.variables if variable.name in graph.extent.ends}
    return None if any(isinstance(stream, AnyEvent) for stream in found) else frozenset(found)


def _members(program: ProgramPlan) -> list[tuple[int, tuple[Derivation, ...], Member]]:
    """All plans, each with the depth of its declared streams, and its recursive group."""
    known: dict[Stream, int] = {}
    members: list[tuple[int, tuple[Derivation, ...], Member]] = []
    for group in groups_of(program.derivations) if program.derivations else ():
        ways = [(made, way) for made in group for way in made.ways]
        below = {id(way): _level(way.plan, known) for _, way in ways}
        highest = max(below.values())
        recursive = group if is_recursive(group) else ()
        for made, way in ways:
            level = highest if recursive else below[id(way)]
            members.append((level, recursive, Member(way.plan, way.output, made, way)))
        known |= {made.name: highest + 1 for made in group}
    for place, (plan, output) in enumerate(zip(program.plans, program.outputs, strict=True)):
        members.append((_level(plan, known) if known else 0, (), Member(plan, output, place)))
    return members


def _level(plan: QueryPlan, known: Mapping[Stream, int]) -> int:
    return max((known.get(stream, 0) for stream in plan.streams), default=0)


def _stages(program: ProgramPlan, eager: bool, further_keys: tuple[str, ...]) -> tuple[Stage, ...]:
    """The plans by level. Plans of one level with the same keys share their kept events, as do recursive rules. If
    positions are counted, all plans of a stage count the same events."""
    declared = {made.name for made in program.derivations}
    together: dict[Hashable, tuple[tuple[Derivation, ...], list[Member]]] = {}
    for level, group, member in sorted(_members(program), key=lambda entry: entry[0]):
        plan = member.plan
        counted = declared.intersection(plan.streams) if plan.counting else frozenset()
        counts = (frozenset(counted), plan.used_columns) if plan.counting else ()
        alike = tuple(made.name for made in group) or (plan.query.partition_by, plan.counting, counts)
        together.setdefault((level, alike), (group, []))[1].append(member)
    stages: list[Stage] = []
    for group, members in together.values():
        own = [member.plan for member in members]
        taken = _taken(own, program, everything_given=not stages)
        stages.append(Stage.of(members, taken, group, eager, further_keys))
    return tuple(stages)


def _taken(plans: Sequence[QueryPlan], program: ProgramPlan, everything_given: bool) -> list[tuple[Role, InputTable]]:
    """The tables that a stage reads, including those of declared streams."""
    streams = {stream for plan in plans for stream in plan.all_streams}
    needs_all = everything_given or any(plan.counting for plan in plans)
    given: list[tuple[Role, InputTable]] = [
        (place, item) for place, item in enumerate(program.inputs) if needs_all or any(map(item.holds, streams))
    ]
    return [*given, *((made.name, made.item) for made in program.derivations if made.name in streams)]


def examine(plan: QueryPlan, events: Sequence[EventSource]) -> tuple[WatchedEvents, Iterator[MatchChunk]]:
    """The events of one more plan over the events of a finished run, and its matches."""
    sources = sources_of(plan, events)
    inputs = [replace(source.input, table=source.input.table.slice(0, 0)) for source in sources]
    output = output_schema(plan, raw_types(plan, inputs))
    machine = compile_plan(ProgramPlan(tuple(inputs), (plan,), (output,)), UNLIMITED)
    found: tuple[WatchedEvents, Iterator[MatchChunk]] = machine.run(
        Batch(sources, Report()), collect=_as_found
    ).outputs[0]
    return found


def _as_found(
    member: Member, watched: WatchedEvents, chunks: Iterator[MatchChunk], options: Options
) -> tuple[WatchedEvents, Iterator[MatchChunk]]:
    return watched, chunks
