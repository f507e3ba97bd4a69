"""Choices of events that fail a query by one requirement alone: the matches of the query without it, less its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ensue.engine.join import Join
from ensue.engine.machine import examine
from ensue.engine.rows import MatchChunk, Rows
from ensue.engine.sources import EventSource, Mask
from ensue.engine.workspace import find_candidates
from ensue.errors import QueryError
from ensue.graph.bounds import TimeScale, end_of, position_of, start_of
from ensue.graph.graphs import Variable
from ensue.kernels.compiler import Int64s
from ensue.nodes.names import Name, Stream, in_order, written
from ensue.nodes.patterns import Events, PatternQuery, Window
from ensue.plan.planner import plan_checked
from ensue.plan.plans import AbsencePlan, QueryPlan
from ensue.plan.requirements import ABSENCE, ORDER, WINDOW, Compared, Question, Requirement


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
    """Looks for choices of events that meet some of the requirements of a question.

    `most` is how many are counted at once; what is more is cut.
    """

    question: Question
    plan: QueryPlan
    sources: tuple[EventSource, ...]
    most: int

    @cached_property
    def matches(self) -> Choices:
        """The matches of the query itself, policies aside."""
        return self.choices(self.question.query)

    def choices(self, query: PatternQuery) -> Choices:
        """The matches of a query that is the question with something left out."""
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
        """How many events of a stream there are, with a key or without."""
        plan = self.planned(replace(self.question.query, partition_by=()))
        return len(examine(plan, self.sources)[0].store.streams[stream])

    def satisfying(self, variable: Variable) -> int:
        """How many events of a variable's stream satisfy what it asks of them by themselves."""
        plan = self.planned(replace(self.question.query, partition_by=()))
        store = examine(plan, self.sources)[0].store
        return len(find_candidates(variable, plan.graphs[0].graph, store, plan.catalog))

    def misses(self, requirement: Requirement) -> Choices:
        """The choices that meet everything but this requirement."""
        found = self._beside_matches(self.question.without([requirement]))
        if not found.cut or requirement.kind != WINDOW:
            return found
        return replace(self._nearest_windows(requirement) or found, cut=True)

    def _nearest_windows(self, requirement: Requirement) -> Choices | None:
        """Where there are too many: those that a window of twice, four times, ... its length would let in."""
        for doubled in range(1, 62):
            found = self._beside_matches(self.question.within(requirement, 2**doubled))
            if found.count or found.cut:
                return None if found.cut and not found.count else found
        return None

    def _beside_matches(self, query: PatternQuery) -> Choices:
        """The matches of the looser query that are none of the query itself."""
        found = self.choices(query)
        return Choices(tuple(_beside(found.chunks, self.matches.chunks)), found.cut)

    def distances(self, requirement: Requirement, chunk: MatchChunk) -> Int64s | None:
        """By how much each choice misses an order, a relation or a window, in ticks or positions.

        None: that is no distance.
        """
        if requirement.kind == WINDOW and isinstance(requirement.window, Events):
            positions = [chunk.space.value(position_of(name), chunk.rows) for name in _bound(requirement.left, chunk)]
            apart: Int64s = np.maximum.reduce(positions) - np.minimum.reduce(positions)
            return apart - (requirement.window.count - 1)
        beyond = [self._beyond(compared, chunk) for compared in _comparisons(requirement)]
        known = [values for values in beyond if values is not None]
        furthest: Int64s | None = np.maximum.reduce(known) if known else None
        return furthest

    def ticks(self, window: Window) -> int:
        return TimeScale(self.plan.catalog.unit).ticks(window)

    def _beyond(self, compared: Compared, chunk: MatchChunk) -> Int64s | None:
        """By how much the difference of two points exceeds what it may be."""
        left, right = _bound(compared.left, chunk), _bound(compared.right, chunk)
        if not left or not right:
            return None
        values = [
            _edge(names, side, chunk) for names, side in ((left, compared.left_side), (right, compared.right_side))
        ]
        allowed = 0 if compared.window is None else self.ticks(compared.window)
        return values[0] - values[1] - allowed

    def forbidden(self, requirement: Requirement, chunk: MatchChunk) -> list[tuple[Join, Rows]]:
        """What came in the scope of a NOT, for each choice: joins and rows whose origin is the place of the choice."""
        assert requirement.kind == ABSENCE
        around = Rows(chunk.rows.length, chunk.rows.places, np.arange(chunk.rows.length, dtype=np.int32))
        found = []
        for absence in self._absences(requirement, chunk):
            join = Join(chunk.space.inside(absence.graph), {})
            found += [(join, rows) for rows in join.all_matches(around)]
        return found

    def _absences(self, requirement: Requirement, chunk: MatchChunk) -> list[AbsencePlan]:
        """The absences that a NOT means for the choices of a chunk."""
        rounds = chunk.query_plan.normal_form.repetitions.unrolled
        longest = max((repetition.most for repetition in rounds.values()), default=1)
        plan = plan_checked(self.question.query, self.plan.catalog, self.plan.source, longest=longest)
        own = next(graph for graph in plan.graphs if graph.graph.names == chunk.plan.graph.names)
        names = {*requirement.left}
        return [absence for absence in own.absences if _base_names(absence.graph.graph.names) <= names]


def _comparisons(requirement: Requirement) -> tuple[Compared, ...]:
    if requirement.kind == ORDER:
        return (Compared(requirement.left, "e", requirement.right, "s", None),)
    if requirement.kind == WINDOW:
        return (Compared(requirement.left, "e", requirement.left, "s", requirement.window),)
    return requirement.compared


def _bound(names: Sequence[Name], chunk: MatchChunk) -> list[Name]:
    return [name for name in names if name in chunk.rows.places]


def _edge(names: Sequence[Name], side: str, chunk: MatchChunk) -> Int64s:
    """The least start or the greatest end of some variables."""
    combine, point = (np.minimum, start_of) if side == "s" else (np.maximum, end_of)
    found: Int64s = combine.reduce([chunk.space.value(point(name), chunk.rows) for name in names])
    return found


def _base_names(names: Iterable[Name]) -> set[Name]:
    """The names without the numbers of their rounds."""
    return set(map(written, names))


def _beside(chunks: Sequence[MatchChunk], others: Sequence[MatchChunk]) -> Iterable[MatchChunk]:
    """The chunks without the choices that are among the others."""
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
    """Which rows of a matrix are among those of another."""
    _, codes = np.unique(np.concatenate([known, rows]), axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    among: Mask = np.isin(codes[len(known) :], codes[: len(known)])
    return among


def _identities(chunk: MatchChunk, names: Sequence[Name]) -> Int64s:
    """What tells choices apart: the events, the moments, and the branches of OR."""
    rows, space = chunk.rows, chunk.space
    columns = np.full((rows.length, len(names) + 1), -1, np.int64)
    for place, name in enumerate(names):
        if name in rows.places:
            found = space.candidates.get(name)
            columns[:, place] = rows.places[name] if found is None else found.rows[rows.places[name]]
    if not chunk.query_plan.grows:
        columns[:, -1] = chunk.plan.graph.number
    return columns
