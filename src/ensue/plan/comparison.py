"""Compares plans: what several patterns or branches have in common, and whether a changed query can continue from the
kept events of the old one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ensue.errors import counted
from ensue.graph.bounds import end_of, position_of, start_of
from ensue.graph.graphs import Graph, Variable
from ensue.nodes.expressions import Expr, Field, substitute_fields, variables_of
from ensue.nodes.names import WHOLE, Name, covers
from ensue.plan.plans import GraphPlan, QueryPlan, Retention, Side


def alike(plans: Iterable[GraphPlan]) -> dict[int, Hashable]:
    """For each graph, by the identity of its plan, a key that is equal for graphs that search for the same, whatever
    their variable names.

    Graphs of one event are left out: candidates of single events are shared anyway.

    >>> alike([])
    {}
    """
    known = {id(plan): plan for plan in plans if len(plan.graph.variables) > 1}
    of_events: dict[Hashable, list[GraphPlan]] = defaultdict(list)
    for plan in known.values():
        of_events[tuple(map(plan.graph.question, plan.graph.variables))].append(plan)
    found: dict[Hashable, list[GraphPlan]] = defaultdict(list)
    for same_events in of_events.values():
        for plan in same_events if len(same_events) > 1 else ():
            likeness = _likeness(plan)
            if likeness is not None:
                found[likeness].append(plan)
    return {id(plan): likeness for likeness, own in found.items() if len(own) > 1 for plan in own}


def graphs_of(plans: Iterable[QueryPlan]) -> list[GraphPlan]:
    """The graphs of some plans, including the forbidden graphs inside them."""
    return [inner for plan in plans for graph in plan.graphs for inner in graph.with_inner()]


def _likeness(plan: GraphPlan) -> Hashable | None:
    """The key of a graph with numbers for its variables; None if the graph cannot be shared."""
    graph = plan.graph
    if graph.collections or graph.moments or graph.series or graph.list_conditions or graph.succession or graph.rounds:
        return None
    if graph.ties or graph.premises or graph.replaced or _counts_positions(graph):
        return None
    numbers: dict[Name, Name] = {WHOLE: WHOLE}
    numbers.update((name, str(number)) for number, name in enumerate(graph.names))
    points = [point(name) for name in graph.names for point in (start_of, end_of)]
    asked = [*graph.conditions, *(equality.condition for equality in graph.equalities)]
    named = [*map(variables_of, asked), *map(frozenset, plan.distinct)]
    if any(not names <= numbers.keys() for names in named):
        return None
    forbidden = []
    for absence in plan.absences:
        inner, sides = _likeness(absence.graph), (absence.lower, absence.upper)
        if inner is None or any(side is None or not side.variables <= numbers.keys() for side in sides):
            return None
        forbidden.append((inner, *(_numbered_side(side, numbers) for side in sides if side is not None)))
    return (
        tuple(map(graph.question, graph.variables)),
        tuple(graph.times.limit(one, other) for one in points for other in points),
        tuple(_numbered(condition, numbers) for condition in asked),
        tuple((numbers[one], numbers[other]) for one, other in plan.distinct),
        tuple(forbidden),
        tuple(tuple(map(numbers.get, names)) for names in (graph.extent.starts, graph.extent.ends)),
        tuple(
            tuple(tuple(map(numbers.get, names)) for names in (closing.names, closing.starts))
            for closing in graph.closings
        ),
        tuple((numbers[deadline.point.variable], deadline.ticks) for deadline in graph.deadlines),
    )


def _counts_positions(graph: Graph) -> bool:
    points = [position_of(name) for name in graph.names]
    return any(graph.positions.limit(one, other) is not None for one in points for other in points if one != other)


def _numbered(condition: Expr, numbers: Mapping[Name, Name]) -> Expr:
    def number(field: Field) -> Field:
        return field if field.variable is None else replace(field, variable=numbers[field.variable])

    return substitute_fields(condition, number)


def _numbered_side(side: Side, numbers: Mapping[Name, Name]) -> Hashable:
    points = tuple(point._replace(variable=numbers[point.variable]) for point in side.points)
    return points, side.greatest, side.shift, side.in_time


# --- changed queries


def missing_events(before: Sequence[QueryPlan], after: Sequence[QueryPlan]) -> list[str]:
    """What the queries `after` need and the queries `before` did not keep, as texts; empty if nothing is missing.

    An event was kept if a variable of the same stream had no further conditions on it and kept it at least as long.
    """
    problems: list[str] = []
    kept = [role for plan in before for role in _roles(plan)]
    counted_before = any(plan.counting for plan in before)
    for plan in after:
        if plan.counting and not counted_before:
            problems.append("positions of events, which the old query did not count")
        for variable, needed in _roles(plan):
            problem = _missing(variable, needed, kept)
            if problem:
                problems.append(problem)
    return list(dict.fromkeys(problems))


def _roles(plan: QueryPlan) -> Iterator[tuple[Variable, Retention]]:
    for number, graph_plan in enumerate(plan.graphs):
        for inner in graph_plan.with_inner():
            for variable in inner.graph.variables:
                yield variable, plan.retention[number, variable.name]


def _missing(variable: Variable, needed: Retention, kept: Sequence[tuple[Variable, Retention]]) -> str:
    words = str(variable.stream)
    of_stream = [role for role in kept if covers(role[0].stream, variable.stream)]
    if not of_stream:
        return f"events of `{words}`, which the old query did not keep"
    wanted = _demands(variable)
    as_wide = [role for role in of_stream if _demands(role[0]) <= wanted]
    if not as_wide:
        return f"events of `{words}` for `{variable.name}` that the old query filtered out"
    if any(_covers(retention, needed) for _, retention in as_wide):
        return ""
    return f"events of `{words}` for `{variable.name}` for longer than the old query kept them ({_words(needed)})"


def _demands(variable: Variable) -> frozenset[Expr]:
    return frozenset(
        substitute_fields(predicate, lambda field: replace(field, variable=None)) for predicate in variable.predicates
    )


def _covers(kept: Retention, needed: Retention) -> bool:
    """Whether `kept` keeps every event at least as long as `needed`."""
    return all(
        limit is None or (other is not None and other <= limit)
        for limit, other in (
            (kept.from_start, needed.from_start),
            (kept.from_end, needed.from_end),
            (kept.positions, needed.positions),
        )
    )


def _words(needed: Retention) -> str:
    limits = [limit for limit in (needed.from_start, needed.from_end) if limit is not None]
    if limits:
        return f"required: {counted(min(limits), 'tick', 'ticks')}"
    return "required: no limit" if needed.positions is None else f"required: {needed.positions} events"
