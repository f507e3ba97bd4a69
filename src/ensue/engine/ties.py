"""Which results depend on the order of events at the same time, if nothing orders them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ensue.analysis.catalog import Catalog
from ensue.engine.events import Candidates, EventStore, searches_ties
from ensue.engine.rows import MatchChunk, Rows, expand_in_chunks
from ensue.engine.sources import COMPARED_PAIRS, SEARCHED_FOR_TIES, Mask, Tie
from ensue.engine.workspace import Workspace, cached_candidates, field_values
from ensue.expr.evaluation import condition_mask
from ensue.graph.bounds import BEFORE, Point, end_of, start_of
from ensue.graph.graphs import Graph, Variable
from ensue.kernels.compiler import Codes
from ensue.kernels.ranges import find_ranges
from ensue.nodes.expressions import Field, variables_of
from ensue.nodes.names import ContextStage, Name, Stream, in_words
from ensue.plan.planner import may_share, precedence
from ensue.plan.plans import SLICE, AbsencePlan, QueryPlan


def possible_ties(plan: QueryPlan) -> list[Tie]:
    """What a run of the plan may count, each once."""
    found: list[Tie] = []
    for graph_plan in plan.graphs if searches_ties(plan) else ():
        graph = graph_plan.graph
        streams = {variable.name: variable.stream for variable in graph.variables}
        for absence in graph_plan.absences:
            nearby = [streams[point.variable] for point in _neighbours(absence) if point.variable in streams]
            found += [_forbidden_tie(plan, absence, stream) for stream in nearby]
        if plan.query.policy is None and not plan.uses_up:
            found += [_pair_tie(plan, pair.one.stream, pair.other.stream) for pair in _consecutive(graph)]
    return list(dict.fromkeys(found))


def _forbidden_tie(plan: QueryPlan, absence: AbsencePlan, neighbour: Stream) -> Tie:
    forbidden = absence.graph.graph.variables[0].stream
    near = f"operator {neighbour.number}" if isinstance(neighbour, ContextStage) else in_words(neighbour)
    return Tie(str(plan.query.name or ""), in_words(forbidden), near, forbidden=True)


def _pair_tie(plan: QueryPlan, one: Stream, other: Stream) -> Tie:
    return Tie(str(plan.query.name or ""), in_words(one), in_words(other))


class Consecutive(NamedTuple):
    """Two variables of which `one` must be strictly before the other, and the graph with the conditions on both."""

    one: Variable
    other: Variable
    graph: Graph


def _consecutive(graph: Graph) -> Iterator[Consecutive]:
    """The variables that follow each other with no other between them, and those of lists with their neighbours."""
    variables = {variable.name: variable for variable in graph.variables}
    for x, y in pairwise(precedence(graph)):
        if graph.times.limit(end_of(x), start_of(y)) == BEFORE:
            yield Consecutive(variables[x], variables[y], graph)
    for collection in graph.collections:
        for inner, scope in zip(collection.graphs, collection.scopes, strict=True):
            if scope.stated is not None or len(inner.variables) > 1 or inner.moments or inner.absences:
                continue
            (listed,) = inner.variables
            before = () if scope.after is None else scope.after.ends
            after = () if scope.before is None else scope.before.starts
            yield from (Consecutive(variables[name], listed, inner) for name in before if name in variables)
            yield from (Consecutive(listed, variables[name], inner) for name in after if name in variables)


def noting_ties(chunks: Iterator[MatchChunk], plan: QueryPlan, ties: Counter[Tie]) -> Iterator[MatchChunk]:
    """The matches; counts those that have a forbidden event at the very time of the event next to its NOT."""
    for chunk in chunks:
        rows = _searched(chunk.rows)
        tied: dict[Tie, Mask] = {}
        for absence in chunk.plan.absences:
            for point in _neighbours(absence):
                known = _forbidden_tie(plan, absence, chunk.space.streams[point.variable])
                # A match with two such neighbours counts once.
                tied[known] = tied.get(known, False) | _with_tie(plan, chunk.space, rows, absence, point)
        ties.update({tie: count for tie, mask in tied.items() if (count := int(np.count_nonzero(mask)))})
        yield chunk


def _searched(rows: Rows) -> Rows:
    """The matches that are searched for ties."""
    return rows if rows.length <= SEARCHED_FOR_TIES else rows.take(_spread(rows.length))


def _spread(count: int) -> Codes:
    """Places that are searched, of so many: evenly spread, because ties may only be in a few keys."""
    return np.arange(0, count, -(-count // SEARCHED_FOR_TIES) or 1, dtype=np.int32)


def _neighbours(absence: AbsencePlan) -> list[Point]:
    """The ends of neighbours that a single forbidden event must be strictly after or before."""
    scope, graph = absence.absence.scope, absence.graph.graph
    if scope.stated is not None or len(graph.variables) > 1 or graph.moments or absence.graph.absences:
        return []
    after = [] if scope.after is None else map(end_of, scope.after.ends)
    before = [] if scope.before is None else map(start_of, scope.before.starts)
    return [*after, *before]


def _with_tie(plan: QueryPlan, space: Workspace, rows: Rows, absence: AbsencePlan, point: Point) -> Mask:
    """The matches with a forbidden event at the time of a neighbour."""
    tied = np.zeros(rows.length, bool)
    if point.variable not in rows.places:
        return tied
    graph, form = absence.graph.graph, plan.normal_form
    (variable,) = graph.variables
    bound = (space.streams[name] for name in rows.places)
    if not (graph.conditions or graph.equalities or any(may_share(variable.stream, stream, form) for stream in bound)):
        found, times = space.inside(absence.graph).candidates[variable.name], space.value(point, rows)
        first, last = find_ranges(space.keys(rows), times, times, found.offsets, found.starts)
        return last > first
    for pairs in _tied_pairs(space, rows, absence, point):
        assert pairs.origin is not None
        tied[pairs.origin] = True
    return tied


def _tied_pairs(space: Workspace, rows: Rows, absence: AbsencePlan, point: Point) -> Iterator[Rows]:
    """The matches with each forbidden event at the time of a neighbour bound; `origin` is the place of the match."""
    if point.variable not in rows.places:
        return
    inner, graph = space.inside(absence.graph), absence.graph.graph
    (name,) = graph.names
    times = space.value(point, rows)
    found = inner.candidates[name]
    first, last = find_ranges(space.keys(rows), times, times, found.offsets, found.starts)
    for probes, places in expand_in_chunks(first, last, SEARCHED_FOR_TIES):
        pairs = replace(rows.bind(name, probes, places), origin=probes)
        yield pairs.where(_holds(inner, graph, pairs) & _are_apart(inner, name, pairs))


@dataclass(frozen=True, slots=True)
class TiedMatches:
    """Matches with a forbidden event at the very time of a neighbour: `tied` binds that event, too, as `forbidden`."""

    tie: Tie
    matches: MatchChunk
    tied: MatchChunk
    forbidden: Name
    neighbour: Name


def tied_matches(chunk: MatchChunk, plan: QueryPlan) -> Iterator[TiedMatches]:
    """The matches of a chunk with a forbidden event at the very time of a neighbour, each with the first such event."""
    for absence in chunk.plan.absences:
        (name,) = absence.graph.graph.names[:1]
        for point in _neighbours(absence):
            tie = _forbidden_tie(plan, absence, chunk.space.streams[point.variable])
            for pairs in _tied_pairs(chunk.space, _searched(chunk.rows), absence, point):
                assert pairs.origin is not None
                places, first = np.unique(pairs.origin, return_index=True)
                if len(places):
                    matches = chunk.with_rows(chunk.rows.take(places.astype(np.int32)))
                    inside = chunk.space.inside(absence.graph)
                    tied = replace(chunk, space=inside, rows=pairs.take(first.astype(np.int32)))
                    yield TiedMatches(tie, matches, tied, name, point.variable)


@dataclass(frozen=True, slots=True)
class PairSearch:
    """Searches a step for pairs of events for consecutive items of SEQ that are at the same time, and so no match.

    They are after the moment `after`; with `fresh`, one of them came with this step. If time is cut into slices of
    `width` ticks, a pair belongs to the slice in which the second event ends.
    """

    plan: QueryPlan
    store: EventStore
    found: dict[Hashable, Candidates]
    after: int | None = None
    fresh: Callable[[Candidates], Mask] | None = None
    width: int | None = None

    @property
    def _known(self) -> tuple[EventStore, Catalog, dict[Hashable, Candidates]]:
        return self.store, self.plan.catalog, self.found

    def count(self, ties: Counter[Tie]) -> None:
        """Adds the numbers of pairs to the ties."""
        for graph_plan in self.plan.graphs:
            for pair in _consecutive(graph_plan.graph):
                count = self._pairs(graph_plan.graph, pair)
                if count:
                    ties[_pair_tie(self.plan, pair.one.stream, pair.other.stream)] += count

    def _pairs(self, whole: Graph, pair: Consecutive) -> int:
        """The number of pairs that satisfy the conditions on both; a lower bound if there are many."""
        x, y, graph = pair
        one, other = (
            cached_candidates(variable, graph if variable in graph.variables else whole, *self._known)
            for variable in (x, y)
        )
        probes, partners = (other, one) if len(other) < len(one) else (one, other)
        times = probes.starts if probes is other else probes.ends
        if self.after is None:
            chosen = _spread(len(probes))
        else:
            wanted = np.flatnonzero(times > self.after).astype(np.int32)
            chosen = wanted[_spread(len(wanted))]
        times = times[chosen]
        first, last = find_ranges(probes.keys[chosen], times, times, partners.offsets, partners.starts)
        conditions = [
            condition
            for condition in (*graph.conditions, *(equality.condition for equality in graph.equalities))
            if variables_of(condition) <= {x.name, y.name}
        ]
        shared = one.source.origin is other.source.origin and may_share(x.stream, y.stream, self.plan.normal_form)
        if not (conditions or shared or self.fresh or self.width):
            return int((last.astype(np.int64) - first).sum())
        for numbers, places in expand_in_chunks(first, last, COMPARED_PAIRS):
            rows = {id(probes): chosen[numbers], id(partners): places}
            ones, others = rows[id(one)], rows[id(other)]
            counted = one.rows[ones] != other.rows[others] if shared else np.ones(len(places), bool)
            if self.fresh is not None:
                counted &= self.fresh(one)[ones] | self.fresh(other)[others]
            if self.width is not None:
                counted &= _in_own_slice(other, others, self.width)

            def column(wanted: Field, rows: dict[int, Codes] = rows) -> pa.Array:
                variable, own = (x, one) if wanted.variable == x.name else (y, other)
                return field_values(wanted, variable.stream, own, rows[id(own)], self.plan.catalog)

            for condition in conditions:
                counted &= condition_mask(condition, column, len(places))
            return int(np.count_nonzero(counted))
        return 0


def _in_own_slice(found: Candidates, places: Codes, width: int) -> Mask:
    """The candidates that are in the slice of time in which they end; the others are copies for the next slice."""
    slices = np.asarray(found.source.raw_column(SLICE).to_numpy())[found.rows[places]]
    own: Mask = found.ends[places] // width == slices
    return own


def _holds(space: Workspace, graph: Graph, rows: Rows) -> Mask:
    """The rows that satisfy the conditions of a graph."""
    mask = np.ones(rows.length, bool)
    for condition in (*graph.conditions, *(equality.condition for equality in graph.equalities)):
        mask &= space.holds(condition, rows)
    return mask


def _are_apart(space: Workspace, name: Name, rows: Rows) -> Mask:
    """The rows in which no other variable binds the event of this one."""
    mask, found = np.ones(rows.length, bool), space.candidates[name]
    for other, places in rows.places.items():
        if other != name and other in space.candidates and space.candidates[other].source.origin is found.source.origin:
            mask &= space.candidates[other].rows[places] != found.rows[rows.places[name]]
    return mask
