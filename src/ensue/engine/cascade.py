"""Streams of composite events: sessions in the order in which patterns use each other's matches.

The matches that complete in a step are events of the same step for the patterns that use them: they end within it, so
no later step could miss them and none of them is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from ensue.algebra.streams import END, START
from ensue.engine.evaluate import Frontier, evaluate
from ensue.engine.events import EventStore
from ensue.engine.output import OutputSchema, collect_ordered
from ensue.engine.session import Session, needed_columns, plain_schema, request_of
from ensue.engine.sources import EventSource, InputTable, Mask, Report, load_sources
from ensue.engine.traces import watch
from ensue.errors import citing
from ensue.plan.model import Options, QueryPlan

Role = int | str
"""What rows are, for a cascade: those of a table by its place or of a declared stream by its name; of a plan, the place
of its result or the name of the stream that it makes."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """A stream whose events are the matches of a plan.

    `plan` gives the columns that are used of them, `whole` all that the statement names.
    """

    plan: QueryPlan
    whole: QueryPlan
    output: OutputSchema

    @property
    def name(self) -> str:
        assert self.plan.query.name is not None
        return self.plan.query.name

    @property
    def item(self) -> InputTable:
        """The table of the stream, without rows."""
        return InputTable(self.output.schema.empty_table(), START, END, stream=self.name, derived=True)


def sources_of(plan: QueryPlan, sources: Sequence[EventSource]) -> tuple[EventSource, ...]:
    """The tables that a plan looks at: those that were given, and of the derived ones those that it names."""
    return tuple(source for source in sources if not source.input.derived or any(map(source.input.holds, plan.streams)))


def derive(
    derivation: Derivation,
    sources: Sequence[EventSource],
    options: Options,
    report: Report,
    horizon: int | None = None,
) -> tuple[EventSource, EventStore]:
    """All events of a declared stream, and those that they were made of; `horizon` is how far time is known."""
    plan = derivation.plan
    watched = watch(plan, sources_of(plan, sources), request_of(plan), report)
    with citing(plan.source):
        chunks = evaluate(plan, watched.store, Frontier(horizon=horizon), options, watched.completing)
        table = collect_ordered(chunks, derivation.output, options.limit, options.chunk_rows)
    loaded, _ = load_sources([replace(derivation.item, table=table)], plan.catalog.time_type)
    return loaded[0], watched.store


@dataclass(slots=True)
class Stage:
    """Plans of the same keys that use nothing of each other. `takes` says what each input of the session is."""

    session: Session
    takes: tuple[Role, ...]
    gives: tuple[Role, ...]


@dataclass(slots=True)
class Cascade:
    """Queries in progress, some of which use the matches of others. To the outside it is like a session.

    `plans` and `outputs` are those of the results. The first stage reads all tables and says which rows are late.
    """

    plans: tuple[QueryPlan, ...]
    inputs: tuple[InputTable, ...]
    outputs: tuple[OutputSchema, ...]
    derivations: tuple[Derivation, ...]
    stages: tuple[Stage, ...]
    eager: bool = False
    report: Report = field(default_factory=Report)

    @classmethod
    def start(
        cls,
        plans: Sequence[QueryPlan],
        inputs: Sequence[InputTable],
        outputs: Sequence[OutputSchema],
        options: Options,
        eager: bool = False,
        derivations: Sequence[Derivation] = (),
    ) -> Cascade:
        """A cascade over tables of this shape; their rows are not read yet."""
        # A session keeps what is used; what the statements name has to come, so that they can be planned again.
        everything = [*(derivation.whole for derivation in derivations), *plans]
        shapes = tuple(
            replace(item, table=plain_schema(needed_columns(everything, item).schema).empty_table()) for item in inputs
        )
        stages = _stages(plans, inputs, outputs, options, eager, derivations)
        return cls(tuple(plans), shapes, tuple(outputs), tuple(derivations), stages, eager)

    @property
    def sessions(self) -> tuple[Session, ...]:
        return tuple(stage.session for stage in self.stages)

    @property
    def state(self) -> list[pa.Table]:
        """The events that are kept, those of declared streams included."""
        return list(chain.from_iterable(session.state for session in self.sessions))

    @property
    def holds_anything(self) -> bool:
        return any(session.holds_anything for session in self.sessions)

    @property
    def time_type(self) -> pa.DataType:
        return self.stages[0].session.time_type

    @property
    def watermark(self) -> int | None:
        return self.stages[0].session.watermark

    @property
    def horizon(self) -> int | None:
        return self.stages[0].session.horizon

    def advance(
        self, fresh: Sequence[pa.Table], until: int | None, late_until: int | None = None
    ) -> tuple[list[pa.Table], list[Mask]]:
        """Takes rows (one table per input) and moves the watermark to `until`, as a session does."""
        rows: dict[Role, pa.Table] = dict(enumerate(fresh))
        found: dict[Role, pa.Table] = {}
        late: list[Mask] = []
        step = Report()
        for stage in self.stages:
            session = stage.session
            before = replace(session.report)
            own = [
                rows[role].select(item.table.column_names)
                for role, item in zip(stage.takes, session.inputs, strict=True)
            ]
            session.horizon = self.horizon
            matches, masks = session.advance(own, until, late_until)
            found |= zip(stage.gives, matches, strict=True)
            rows |= {role: table for role, table in found.items() if isinstance(role, str)}
            counted = session.report.since(before)
            if stage is self.stages[0]:
                late, step = masks, replace(counted, matches=0, traces_failed=0, events_skipped=0, evaluated=0)
            step.null_keys = max(step.null_keys, counted.null_keys)
            step.traces_failed += counted.traces_failed
            step.evaluated += counted.evaluated
            step.events_skipped += counted.events_skipped
        results = [found[place] for place in range(len(self.plans))]
        self._count(step, results)
        return results, late

    def _count(self, step: Report, results: Sequence[pa.Table]) -> None:
        patterns = zip(self.plans, results, strict=True)
        step.matches = sum(table.num_rows for plan, table in patterns if plan.tracking is None)
        step.peak_held = sum(table.num_rows for table in self.state)
        step.peak_without = step.peak_held + sum(len(session.spared) for session in self.sessions)
        self.report.add(step)


Progress = Session | Cascade
"""Queries in progress, whichever way they run."""


def start_session(
    plans: Sequence[QueryPlan],
    inputs: Sequence[InputTable],
    outputs: Sequence[OutputSchema],
    options: Options,
    eager: bool = False,
    derivations: Sequence[Derivation] = (),
) -> Progress:
    """A session, or a cascade of them where there are declared streams."""
    if derivations:
        return Cascade.start(plans, inputs, outputs, options, eager, derivations)
    return Session.start(plans, inputs, outputs, options, eager)


def go_on(later: Progress, earlier: Progress) -> None:
    """Lets queries go on from where they are, over tables of which more is known now."""
    for session, before in zip(sessions_of(later), sessions_of(earlier), strict=True):
        session.go_on_from(before)
    later.report = earlier.report


def sessions_of(progress: Progress) -> tuple[Session, ...]:
    return progress.sessions if isinstance(progress, Cascade) else (progress,)


def levels(plans: Sequence[QueryPlan], derivations: Sequence[Derivation]) -> list[int]:
    """For each plan, how many declared streams stand one upon the other below it."""
    known: dict[str, int] = {}
    for derivation in derivations:
        known[derivation.name] = 1 + _level(derivation.plan, known)
    return [_level(plan, known) for plan in plans]


def _level(plan: QueryPlan, known: dict[str, int]) -> int:
    return max((known.get(stream, 0) for stream in plan.streams), default=0)


def _stages(
    plans: Sequence[QueryPlan],
    inputs: Sequence[InputTable],
    outputs: Sequence[OutputSchema],
    options: Options,
    eager: bool,
    derivations: Sequence[Derivation],
) -> tuple[Stage, ...]:
    """The plans by level; those of one level and the same keys share the events that they keep."""
    everything: list[tuple[Role, QueryPlan, OutputSchema]] = [
        *((derivation.name, derivation.plan, derivation.output) for derivation in derivations),
        *((place, plan, output) for place, (plan, output) in enumerate(zip(plans, outputs, strict=True))),
    ]
    of_plans = levels([plan for _, plan, _ in everything], derivations)
    groups: dict[tuple[int, tuple[str, ...], bool], list[tuple[Role, QueryPlan, OutputSchema]]] = {}
    for level, member in sorted(zip(of_plans, everything, strict=True), key=lambda entry: entry[0]):
        plan = member[1]
        groups.setdefault((level, plan.query.partition_by, plan.counting), []).append(member)
    stages: list[Stage] = []
    for members in groups.values():
        own = [plan for _, plan, _ in members]
        taken = _taken(own, inputs, derivations, everything_given=not stages)
        session = Session.start(own, [item for _, item in taken], [output for _, _, output in members], options, eager)
        stages.append(Stage(session, tuple(role for role, _ in taken), tuple(role for role, _, _ in members)))
    return tuple(stages)


def _taken(
    plans: Sequence[QueryPlan], inputs: Sequence[InputTable], derivations: Sequence[Derivation], everything_given: bool
) -> list[tuple[Role, InputTable]]:
    """The tables that a stage reads, those of declared streams included."""
    streams = {stream for plan in plans for stream in plan.all_streams}
    needs_all = everything_given or any(plan.counting for plan in plans)
    given: list[tuple[Role, InputTable]] = [
        (place, item) for place, item in enumerate(inputs) if needs_all or any(map(item.holds, streams))
    ]
    return [*given, *((made.name, made.item) for made in derivations if made.name in streams)]
