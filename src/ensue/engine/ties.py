"""Which results depend on the order of events at the same time, if nothing orders them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ensue.engine.events import Candidates, EventStore
from ensue.engine.rows import MatchChunk, Rows, expand_in_chunks
from ensue.engine.sources import SEARCHED_FOR_TIES, Mask, Tie
from ensue.engine.workspace import Workspace, cached_candidates, field_values
from ensue.expr.evaluation import condition_mask
from ensue.graph.bounds import BEFORE, Point, end_of, start_of
from ensue.graph.graphs import Graph
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.ranges import find_ranges
from ensue.nodes.expressions import Field, variables_of
from ensue.nodes.names import Name, in_words
from ensue.plan.planner import precedence
from ensue.plan.plans import AbsencePlan, QueryPlan

MOST_PAIRS = 1 << 12
"""The number of pairs of events at the same time that are compared with the conditions of a query."""


def noting_ties(chunks: Iterator[MatchChunk], plan: QueryPlan, ties: Counter[Tie]) -> Iterator[MatchChunk]:
    """The matches; counts those that have a forbidden event at the very time of the event next to its NOT."""
    for chunk in chunks:
        for absence in chunk.plan.absences:
            for point in _neighbours(absence):
                one, other = absence.graph.graph.variables[0].stream, chunk.space.streams[point.variable]
                known = Tie(str(plan.query.name or ""), in_words(one), in_words(other), forbidden=True)
                rows = chunk.rows
                if rows.length > SEARCHED_FOR_TIES:
                    rows = rows.take(np.arange(SEARCHED_FOR_TIES, dtype=np.int32))
                ties[known] += int(np.count_nonzero(_with_tie(chunk.space, rows, absence, point)))
        yield chunk


def _neighbours(absence: AbsencePlan) -> list[Point]:
    """The ends of neighbours that a single forbidden event must be strictly after or before."""
    scope, graph = absence.absence.scope, absence.graph.graph
    if scope.stated is not None or len(graph.variables) > 1 or graph.moments or absence.graph.absences:
        return []
    after = [] if scope.after is None else map(end_of, scope.after.ends)
    before = [] if scope.before is None else map(start_of, scope.before.starts)
    return [*after, *before]


def _with_tie(space: Workspace, rows: Rows, absence: AbsencePlan, point: Point) -> Mask:
    """The matches with a forbidden event at the time of a neighbour."""
    tied = np.zeros(rows.length, bool)
    if point.variable not in rows.places:
        return tied
    inner = space.inside(absence.graph)
    (name,) = absence.graph.graph.names
    times = space.value(point, rows)
    for probes, places in _pairs(inner.candidates[name], space.keys(rows), times):
        pairs = rows.bind(name, probes, places)
        kept = _holds(inner, absence.graph.graph, pairs) & _are_apart(inner, name, pairs)
        tied[probes[kept]] = True
    return tied


def tied_pairs(
    plan: QueryPlan, store: EventStore, found: dict[Hashable, Candidates], after: int | None, ties: Counter[Tie]
) -> None:
    """Counts the pairs of events for consecutive items of SEQ that are at the same time, and so no match."""
    for graph_plan in plan.graphs:
        graph = graph_plan.graph
        streams = {variable.name: variable.stream for variable in graph.variables}
        for x, y in pairwise(precedence(graph)):
            if graph.times.limit(end_of(x), start_of(y)) == BEFORE:
                count = _count_pairs(plan, graph, store, found, x, y, after)
                ties[Tie(str(plan.query.name or ""), in_words(streams[x]), in_words(streams[y]))] += count


def _count_pairs(
    plan: QueryPlan,
    graph: Graph,
    store: EventStore,
    found: dict[Hashable, Candidates],
    x: Name,
    y: Name,
    after: int | None,
) -> int:
    """The number of pairs at the same time that satisfy the conditions on both; a lower bound if there are many."""
    variables = {variable.name: variable for variable in graph.variables}
    one, other = (cached_candidates(variables[name], graph, store, plan.catalog, found) for name in (x, y))
    probes, partners = (other, one) if len(other) < len(one) else (one, other)
    times = probes.starts if probes is other else probes.ends
    chosen = np.arange(len(probes), dtype=np.int32) if after is None else np.flatnonzero(times > after).astype(np.int32)
    chosen = chosen[:SEARCHED_FOR_TIES]
    keys, times = probes.keys[chosen], times[chosen]
    first, last = find_ranges(keys, times, times, partners.offsets, partners.starts)
    conditions = [
        condition
        for condition in (*graph.conditions, *(equality.condition for equality in graph.equalities))
        if variables_of(condition) <= {x, y}
    ]
    same_table = one.source.origin is other.source.origin
    if not (conditions or same_table):
        return int((last.astype(np.int64) - first).sum())
    for numbers, places in expand_in_chunks(first, last, MOST_PAIRS):
        pair = {id(probes): chosen[numbers], id(partners): places}
        apart = one.rows[pair[id(one)]] != other.rows[pair[id(other)]] if same_table else np.ones(len(places), bool)

        def column(wanted: Field, pair: dict[int, Codes] = pair) -> pa.Array:
            own = one if wanted.variable == x else other
            return field_values(wanted, variables[wanted.variable or x].stream, own, pair[id(own)], plan.catalog)

        for condition in conditions:
            apart &= condition_mask(condition, column, len(places))
        return int(np.count_nonzero(apart))
    return 0


def _pairs(found: Candidates, keys: Codes, times: Int64s) -> Iterator[tuple[Codes, Codes]]:
    """The candidates at these times: the numbers of the times, and the places of the candidates."""
    first, last = find_ranges(keys, times, times, found.offsets, found.starts)
    yield from expand_in_chunks(first, last, MOST_PAIRS)


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
