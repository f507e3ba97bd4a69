"""Finds choices of events that fail a query by exactly one requirement, and the open goals of a running query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ensue.engine.events import FOREVER, NEVER, EventStore, searches_ties
from ensue.engine.join import Join
from ensue.engine.machine import Look, examine
from ensue.engine.retention import last_positions
from ensue.engine.rows import MatchChunk, Rows, completion_times
from ensue.engine.sources import EventSource, Mask, Tie
from ensue.engine.ties import TiedMatches, noting_ties, tied_matches
from ensue.engine.workspace import find_candidates
from ensue.errors import QueryError
from ensue.graph.bounds import Limit, Point, TimeScale, end_of, position_of, start_of
from ensue.graph.graphs import Graph, Variable
from ensue.kernels.compiler import Int64s
from ensue.nodes.names import Name, Stream, in_order, written
from ensue.nodes.patterns import Events, PatternQuery, Window
from ensue.plan import requirements
from ensue.plan.planner import plan_checked, plan_graph
from ensue.plan.plans import AbsencePlan, QueryPlan


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices of events in chunks; `cut` if there are more, which were not counted."""

    chunks: tuple[MatchChunk, ...]
    cut: bool

    @property
    def count(self) -> int:
        return sum(chunk.rows.length for chunk in self.chunks)


@dataclass
class Search:
    """Searches for choices of events that meet some of the requirements of a question.

    `most` is the maximum number that is counted; further ones are cut.
    """

    question: requirements.Question
    plan: QueryPlan
    sources: tuple[EventSource, ...]
    most: int

    @cached_property
    def matches(self) -> Choices:
        """The matches of the query itself, without policies."""
        return self.choices(self.question.query)

    def choices(self, query: PatternQuery) -> Choices:
        """The matches of a relaxed query."""
        try:
            plan = self.planned(query)
        except QueryError as error:
            if error.code != "never-holds":
                raise
            return Choices((), False)
        chunks: list[MatchChunk] = []
        left = self.most
        for chunk in examine(plan, self.sources)[1]:
            if chunk.rows.length > left:
                chunks.append(replace(chunk, rows=chunk.rows.take(np.arange(left, dtype=np.int32))))
                return Choices(tuple(chunks), True)
            chunks.append(chunk)
            left -= chunk.rows.length
        return Choices(tuple(chunks), False)

    def planned(self, query: PatternQuery) -> QueryPlan:
        return plan_checked(query, self.plan.catalog, self.plan.source)

    def present(self, stream: Stream) -> int:
        """The number of events of a stream, with or without a key."""
        plan = self.planned(replace(self.question.query, partition_by=()))
        return len(examine(plan, self.sources)[0].store.streams[stream])

    def satisfying(self, variable: Variable) -> int:
        """The number of events of a variable's stream that satisfy its own conditions."""
        plan = self.planned(replace(self.question.query, partition_by=()))
        store = examine(plan, self.sources)[0].store
        return len(find_candidates(variable, plan.graphs[0].graph, store, plan.catalog))

    def misses(self, requirement: requirements.Requirement) -> Choices:
        """The choices that meet everything except this requirement."""
        found = self._beside_matches(self.question.without([requirement]))
        if not found.cut or requirement.kind != requirements.WINDOW:
            return found
        return replace(self._nearest_windows(requirement) or found, cut=True)

    def _nearest_windows(self, requirement: requirements.Requirement) -> Choices | None:
        """If there are too many choices: those that a window of twice, four times, ... its length would admit."""
        for doubled in range(1, 62):
            found = self._beside_matches(self.question.within(requirement, 2**doubled))
            if found.count or found.cut:
                return None if found.cut and not found.count else found
        return None

    def _beside_matches(self, query: PatternQuery) -> Choices:
        """The matches of the relaxed query that are not matches of the query itself."""
        found = self.choices(query)
        return Choices(tuple(_beside(found.chunks, self.matches.chunks)), found.cut)

    @property
    def has_ties(self) -> bool:
        """Whether events at the same time are unordered for the query, so that SEQ accepts neither before the other."""
        return searches_ties(self.plan)

    def in_time_and_tied(self, requirement: requirements.Requirement, misses: Choices) -> tuple[Choices, Choices]:
        """Splits the near misses of an order: the choices in the wrong order, and those at the same time."""
        apart: list[MatchChunk] = []
        tied: list[MatchChunk] = []
        for chunk in misses.chunks:
            beyond = self.distances(requirement, chunk)
            together = np.zeros(chunk.rows.length, bool) if beyond is None else beyond == 0
            apart.append(chunk.where(~together))
            tied.append(chunk.where(together))
        return Choices(tuple(apart), misses.cut), Choices(tuple(tied), misses.cut)

    @cached_property
    def tied_matches(self) -> Counter[Tie]:
        """How many matches have a forbidden event at the very time of its neighbour."""
        found: Counter[Tie] = Counter()
        if self.has_ties:
            for _ in noting_ties(iter(self.matches.chunks), self.plan, found):
                pass
        return found

    def matches_tied(self, tie: Tie) -> Iterator[TiedMatches]:
        """The matches that `tied_matches` counts for a tie."""
        for chunk in self.matches.chunks:
            yield from (found for found in tied_matches(chunk, self.plan) if found.tie == tie)

    def counts(self, requirement: requirements.Requirement, chunk: MatchChunk) -> Int64s | None:
        """How many elements a collection has in each choice; None if the choices took another branch."""
        groups = chunk.query_plan.normal_form.repetitions.groups
        names = {groups[name] for name in requirement.left if name in groups}
        return next((chunk.rows.lists[name].lengths for name in names if name in chunk.rows.lists), None)

    def distances(self, requirement: requirements.Requirement, chunk: MatchChunk) -> Int64s | None:
        """How much each choice misses an order, a relation, a window or a number of elements by, in ticks, positions
        or elements.

        None: the requirement has no distance.
        """
        if requirement.kind == requirements.COLLECTION:
            counts = self.counts(requirement, chunk)
            if counts is None:
                return None
            missing = requirement.least - counts
            return missing if requirement.most is None else np.maximum(missing, counts - requirement.most)
        if requirement.kind == requirements.WINDOW and isinstance(requirement.window, Events):
            positions = [chunk.space.value(position_of(name), chunk.rows) for name in _bound(requirement.left, chunk)]
            apart: Int64s = np.maximum.reduce(positions) - np.minimum.reduce(positions)
            return apart - (requirement.window.count - 1)
        beyond = [self._beyond(compared, chunk) for compared in _comparisons(requirement)]
        known = [values for values in beyond if values is not None]
        furthest: Int64s | None = np.maximum.reduce(known) if known else None
        return furthest

    def ticks(self, window: Window) -> int:
        return TimeScale(self.plan.catalog.unit).ticks(window)

    def _beyond(self, compared: requirements.Comparison, chunk: MatchChunk) -> Int64s | None:
        """How much the difference of two points exceeds its limit."""
        left, right = _bound(compared.left, chunk), _bound(compared.right, chunk)
        if not left or not right:
            return None
        values = [
            _edge(names, side, chunk) for names, side in ((left, compared.left_side), (right, compared.right_side))
        ]
        allowed = 0 if compared.window is None else self.ticks(compared.window)
        return values[0] - values[1] - (-allowed if compared.apart else allowed)

    def forbidden(
        self, requirement: requirements.Requirement, chunk: MatchChunk
    ) -> Iterator[tuple[AbsencePlan, Join, Rows]]:
        """The forbidden matches in the scope of a NOT, for each choice: joins and rows whose origin is the place of the
        choice."""
        assert requirement.kind == requirements.ABSENCE
        around = Rows(chunk.rows.length, chunk.rows.places, np.arange(chunk.rows.length, dtype=np.int32))
        for absence in self._absences(requirement, chunk):
            join = Join(chunk.space.inside(absence.graph), {})
            for rows in join.all_matches(around):
                yield absence, join, rows

    def _absences(self, requirement: requirements.Requirement, chunk: MatchChunk) -> list[AbsencePlan]:
        """The absences of a NOT for the choices of a chunk."""
        plan = plan_checked(self.question.query, self.plan.catalog, self.plan.source)
        own = next(graph for graph in plan.graphs if graph.graph.names == chunk.plan.graph.names)
        names = {*requirement.left}
        return [absence for absence in own.absences if _base_names(absence.graph.graph.names) <= names]


def _comparisons(requirement: requirements.Requirement) -> tuple[requirements.Comparison, ...]:
    if requirement.kind == requirements.ORDER:
        return (requirements.Comparison(requirement.left, "e", requirement.right, "s", None),)
    if requirement.kind == requirements.WINDOW:
        return (requirements.Comparison(requirement.left, "e", requirement.left, "s", requirement.window),)
    return requirement.compared


def _bound(names: Sequence[Name], chunk: MatchChunk) -> list[Name]:
    return [name for name in names if name in chunk.rows.places]


def _edge(names: Sequence[Name], side: str, chunk: MatchChunk) -> Int64s:
    """The minimum start or the maximum end of some variables."""
    combine, point = (np.minimum, start_of) if side == "s" else (np.maximum, end_of)
    found: Int64s = combine.reduce([chunk.space.value(point(name), chunk.rows) for name in names])
    return found


def _base_names(names: Iterable[Name]) -> set[Name]:
    """The names without the numbers of their rounds."""
    return set(map(written, names))


def _beside(chunks: Sequence[MatchChunk], others: Sequence[MatchChunk]) -> Iterable[MatchChunk]:
    """The chunks without the choices that are also among the others."""
    names = in_order({name for chunk in (*chunks, *others) for name in chunk.rows.places})
    mine, known = (
        np.concatenate([_identities(chunk, names) for chunk in found] or [np.empty((0, len(names) + 1), np.int64)])
        for found in (chunks, others)
    )
    beside = ~are_among(mine, known)
    begin = 0
    for chunk in chunks:
        kept = chunk.where(beside[begin : begin + chunk.rows.length])
        begin += chunk.rows.length
        if kept.rows.length:
            yield kept


def are_among(rows: Int64s, known: Int64s) -> Mask:
    """The rows of a matrix that also occur in another."""
    _, codes = np.unique(np.concatenate([known, rows]), axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    among: Mask = np.isin(codes[len(known) :], codes[: len(known)])
    return among


def _identities(chunk: MatchChunk, names: Sequence[Name]) -> Int64s:
    """What identifies choices: the events, the moments, and the branches of OR."""
    rows, space = chunk.rows, chunk.space
    columns = np.full((rows.length, len(names) + 1), -1, np.int64)
    for place, name in enumerate(names):
        if name in rows.places:
            found = space.candidates.get(name)
            columns[:, place] = rows.places[name] if found is None else found.rows[rows.places[name]]
    columns[:, -1] = chunk.plan.graph.number
    return columns


# --- open goals: choices of kept events that later events can complete

Listed = tuple[frozenset[Name], Sequence[Name], Int64s]
"""The variables of the listed choices, in order, and the rows of their events."""


@dataclass(frozen=True, slots=True)
class Goals:
    """Open choices of events of one kind. Without an `opening`, all events are there and only a moment is pending.

    `after` is the earliest start of each awaited variable and `until` the latest time at which it can come; NEVER and
    FOREVER if there is none.
    """

    chunk: MatchChunk
    opening: requirements.Opening | None
    after: dict[Name, Int64s]
    until: Int64s
    open: tuple[str, ...]


def open_goals(look: Look, plan: QueryPlan) -> Iterator[Goals]:
    """The open goals of one plan of a stage in its kept events, those with more events first."""
    if look.watermark is None or plan.tracking is not None:
        return
    everything, settled = look.events(plan), look.events(plan, look.watermark)
    for graph_plan in plan.graphs:
        listed: list[Listed] = []
        for chunk in look.choices(replace(plan, graphs=(graph_plan,)), everything, look.watermark):
            listed.append(_listed(chunk))
            yield Goals(chunk, None, {}, completion_times(chunk, plan), _still_forbidden(graph_plan.graph))
        for opening in requirements.openings_of(graph_plan.graph):
            yield from _goals_of(opening, plan, look, settled, listed)


def _goals_of(
    opening: requirements.Opening, plan: QueryPlan, look: Look, settled: EventStore, listed: list[Listed]
) -> Iterator[Goals]:
    """The choices for one part of a graph that can still be completed and that no listed one extends."""
    assert look.watermark is not None
    part = plan_graph(opening.part, opening.part, plan.normal_form, ())
    found = []
    for chunk in look.choices(replace(plan, graphs=(part,)), settled):
        kept = chunk.where(_can_be_completed(opening, chunk, settled, look.watermark))
        kept = kept.where(~_is_extended(kept, listed)) if kept.rows.length else kept
        if kept.rows.length:
            found.append(_listed(kept))
            yield _goals(opening, kept, look.watermark)
    listed += found


def _goals(opening: requirements.Opening, chunk: MatchChunk, watermark: int) -> Goals:
    after = {name: _earliest(opening.whole, start_of(name), chunk) for name in opening.awaited}
    for name in opening.awaited:
        if requirements.is_point(name, opening.whole):
            after[name] = np.maximum(after[name], watermark + 1)
    latest = [_latest(opening.whole, end_of(name), chunk) for name in opening.awaited]
    until: Int64s = np.minimum.reduce(latest)
    return Goals(chunk, opening, after, until, opening.open)


def _can_be_completed(opening: requirements.Opening, chunk: MatchChunk, store: EventStore, watermark: int) -> Mask:
    """Whether every missing event can still come: it ends after the watermark, and at a later position."""
    possible = np.ones(chunk.rows.length, bool)
    for name in opening.missing:
        possible &= _latest(opening.whole, end_of(name), chunk) > watermark
    if opening.whole.positions.points:
        last = last_positions(store)[chunk.space.keys(chunk.rows)]
        for name in opening.missing:
            for other in chunk.plan.graph.names:
                limit = opening.whole.positions.limit(position_of(name), position_of(other))
                if limit is not None:
                    possible &= chunk.space.value(position_of(other), chunk.rows) + limit.whole > last
    return possible


def _points(chunk: MatchChunk) -> list[Point]:
    return [point for name in chunk.plan.graph.names for point in (start_of(name), end_of(name))]


def _latest(graph: Graph, point: Point, chunk: MatchChunk) -> Int64s:
    """The latest time that the bound events allow for a point."""
    latest = np.full(chunk.rows.length, FOREVER, np.int64)
    for known in _points(chunk):
        limit = graph.times.limit(point, known)
        if limit is not None:
            latest = np.minimum(latest, chunk.space.value(known, chunk.rows) + limit.whole)
    return latest


def _earliest(graph: Graph, point: Point, chunk: MatchChunk) -> Int64s:
    """The earliest time that the bound events allow for a point."""
    earliest = np.full(chunk.rows.length, NEVER, np.int64)
    for known in _points(chunk):
        limit: Limit | None = graph.times.limit(known, point)
        if limit is not None:
            earliest = np.maximum(earliest, chunk.space.value(known, chunk.rows) - limit.whole)
    return earliest


def _listed(chunk: MatchChunk) -> Listed:
    names = in_order(chunk.plan.graph.names)
    return frozenset(names), names, _rows(chunk, names)


def _rows(chunk: MatchChunk, names: Sequence[Name]) -> Int64s:
    """The rows of the tables that each choice binds."""
    columns = [chunk.space.candidates[name].rows[chunk.rows.places[name]] for name in names]
    return np.stack(columns, axis=1).astype(np.int64)


def _is_extended(chunk: MatchChunk, listed: Sequence[Listed]) -> Mask:
    """The choices that are part of a listed one."""
    names = in_order(chunk.plan.graph.names)
    mine, extended = _rows(chunk, names), np.zeros(chunk.rows.length, bool)
    for held, order, rows in listed:
        if held > {*names}:
            extended |= are_among(mine, rows[:, [order.index(name) for name in names]])
    return extended


def _still_forbidden(graph: Graph) -> tuple[str, ...]:
    """The absences that are open after the last event."""
    moments = {moment.name for moment in graph.moments}
    waits = {(deadline.point, deadline.ticks) for deadline in graph.deadlines}
    texts = []
    for absence in graph.absences:
        stated = absence.scope.stated or ()
        timed = any({bound.left.variable, bound.right.variable} & moments for bound in stated)
        reached = any((bound.right, bound.limit.value) in waits for bound in stated)
        if absence.scope.trailing or timed or reached:
            texts.append(absence.text)
    return tuple(dict.fromkeys(texts))
