"""Streams of composite events: sessions in the order in which patterns use each other's matches.

The matches that complete in a step are events of the same step for the patterns that use them: they end within it, so
no later step could miss them and none of them is late.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from ensue.engine.derived import Search, as_events, grow, settled, together
from ensue.engine.session import Session, Turn, needed_columns
from ensue.engine.sources import Mask, Report
from ensue.names import Stream
from ensue.plan.declared import Derivation, Way, groups_of, is_recursive
from ensue.plan.inputs import InputTable, plain_schema
from ensue.plan.model import Options, QueryPlan
from ensue.plan.outputs import OutputSchema

Role = int | Stream
"""What rows are, for a cascade: those of a table by its place, or of a declared stream by its name."""


@dataclass(frozen=True, slots=True)
class Member:
    """A plan of a stage: one of the results, by its place, or a statement whose matches are events of a stream."""

    plan: QueryPlan
    output: OutputSchema
    gives: int | Derivation
    way: Way | None = None


@dataclass(slots=True)
class Stage:
    """Plans that run on one session, which use nothing of each other, or the rules of streams that use each other.

    `takes` says what each input of the session is. The streams of `group` grow in rounds within a step.
    """

    session: Session
    takes: tuple[Role, ...]
    members: tuple[Member, ...]
    group: tuple[Derivation, ...] = ()

    def advance(
        self, rows: Mapping[Role, pa.Table], until: int | None, late_until: int | None
    ) -> tuple[list[pa.Table], dict[Stream, pa.Table], list[Mask]]:
        """What each member found, the events of the streams of the group, and which rows are late."""
        own = [
            rows[role].select(item.table.column_names) if role in rows else item.table
            for role, item in zip(self.takes, self.session.inputs, strict=True)
        ]
        if not self.group:
            matches, late = self.session.advance(own, until, late_until)
            return matches, {}, late
        turn = self.session.begin(own, until, late_until)
        matches = [turn.find(place, keep=not self._grows(member)) for place, member in enumerate(self.members)]
        grown = self._grown(turn, matches)
        for place, role in enumerate(self.takes):
            if not isinstance(role, int) and role in grown:
                turn.add(place, grown[role])
        for place, member in enumerate(self.members):
            if self._grows(member):
                turn.keep(place)
        return matches, grown, turn.end(matches)

    def _grows(self, member: Member) -> bool:
        """Whether a plan uses events that the step itself derives."""
        return any(derivation.name in member.plan.streams for derivation in self.group)

    def _grown(self, turn: Turn, matches: Sequence[pa.Table]) -> dict[Stream, pa.Table]:
        """The events of the group that this step derives; those from before are among what the session has kept."""
        options = self.session.options
        first: dict[Stream, pa.Table] = {
            made.name: together(made, events_of(made, self.members, matches, options.limit), options.limit)
            for made in self.group
        }
        earlier = {
            role: turn.combined[place]
            for place, role in enumerate(self.takes)
            if not isinstance(role, int) and role in first
        }
        others = tuple(source for role, source in zip(self.takes, turn.sources, strict=True) if role not in earlier)
        grown = grow(self.group, first, Search(others, earlier, turn.frontier, options))
        return {made.name: settled(made, grown[made.name]) for made in self.group}


def events_of(
    derivation: Derivation, members: Sequence[Member], matches: Sequence[pa.Table], limit: int | None
) -> list[pa.Table]:
    """The events of a stream that some of the members found."""
    return [
        as_events(derivation, member.way, found, limit)
        for member, found in zip(members, matches, strict=True)
        if member.way is not None and member.gives is derivation
    ]


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
        everything = [*(way.whole for derivation in derivations for way in derivation.ways), *plans]
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
        results: dict[int, pa.Table] = {}
        parts: dict[Stream, list[pa.Table]] = {}
        late: list[Mask] = []
        step = Report()
        for stage in self.stages:
            session = stage.session
            before = replace(session.report)
            session.horizon = self.horizon
            matches, grown, masks = stage.advance(rows, until, late_until)
            rows.update(grown.items())
            results |= {
                member.gives: found
                for member, found in zip(stage.members, matches, strict=True)
                if isinstance(member.gives, int)
            }
            rows |= self._completed(stage, matches, parts)
            counted = session.report.since(before)
            if stage is self.stages[0]:
                # The tables that were given come first; streams that grow in this stage are behind them.
                late = masks[: len(self.inputs)]
                step = replace(counted, matches=0, traces_failed=0, events_skipped=0, evaluated=0)
            step.null_keys = max(step.null_keys, counted.null_keys)
            step.traces_failed += counted.traces_failed
            step.evaluated += counted.evaluated
            step.events_skipped += counted.events_skipped
        ordered = [results[place] for place in range(len(self.plans))]
        self._count(step, ordered)
        return ordered, late

    def _completed(
        self, stage: Stage, matches: Sequence[pa.Table], parts: dict[Stream, list[pa.Table]]
    ) -> dict[Role, pa.Table]:
        """The events of the streams whose last statements these are; `parts` keeps those of the others."""
        completed: dict[Role, pa.Table] = {}
        limit = stage.session.options.limit
        for made in self.derivations if not stage.group else ():
            found = events_of(made, stage.members, matches, limit)
            if found:
                own = parts.setdefault(made.name, [])
                own += found
                if len(own) == len(made.ways):
                    completed[made.name] = settled(made, together(made, own, limit))
        return completed

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


def _members(
    plans: Sequence[QueryPlan], outputs: Sequence[OutputSchema], derivations: Sequence[Derivation]
) -> list[tuple[int, tuple[Derivation, ...], Member]]:
    """All plans, each with how many declared streams stand one upon the other below it, and the group it grows with."""
    known: dict[Stream, int] = {}
    members: list[tuple[int, tuple[Derivation, ...], Member]] = []
    for group in groups_of(derivations):
        ways = [(made, way) for made in group for way in made.ways]
        below = {id(way): _level(way.plan, known) for _, way in ways}
        highest = max(below.values())
        recursive = group if is_recursive(group) else ()
        for made, way in ways:
            level = highest if recursive else below[id(way)]
            members.append((level, recursive, Member(way.plan, way.output, made, way)))
        known |= {made.name: highest + 1 for made in group}
    for place, (plan, output) in enumerate(zip(plans, outputs, strict=True)):
        members.append((_level(plan, known), (), Member(plan, output, place)))
    return members


def _level(plan: QueryPlan, known: Mapping[Stream, int]) -> int:
    return max((known.get(stream, 0) for stream in plan.streams), default=0)


def _stages(
    plans: Sequence[QueryPlan],
    inputs: Sequence[InputTable],
    outputs: Sequence[OutputSchema],
    options: Options,
    eager: bool,
    derivations: Sequence[Derivation],
) -> tuple[Stage, ...]:
    """The plans by level; those of one level and the same keys share the events that they keep, as do rules that grow
    streams together."""
    together: dict[Hashable, tuple[tuple[Derivation, ...], list[Member]]] = {}
    for level, group, member in sorted(_members(plans, outputs, derivations), key=lambda entry: entry[0]):
        plan = member.plan
        alike = tuple(made.name for made in group) or (plan.query.partition_by, plan.counting)
        together.setdefault((level, alike), (group, []))[1].append(member)
    stages: list[Stage] = []
    for group, members in together.values():
        own = [member.plan for member in members]
        taken = _taken(own, inputs, derivations, everything_given=not stages)
        items, made = [item for _, item in taken], [member.output for member in members]
        session = Session.start(own, items, made, options, eager)
        stages.append(Stage(session, tuple(role for role, _ in taken), tuple(members), group))
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
