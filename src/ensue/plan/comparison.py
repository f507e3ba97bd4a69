"""What several patterns, or branches of one, have in common: a step works it out once for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from ensue.graph.bounds import end_of, position_of, start_of
from ensue.graph.graphs import Graph
from ensue.nodes.expressions import Expr, Field, variables_of
from ensue.nodes.names import WHOLE, Name
from ensue.nodes.rewrite import substitute_fields
from ensue.plan.plans import GraphPlan, QueryPlan, Side


def alike(plans: Iterable[GraphPlan]) -> dict[int, Hashable]:
    """By the identity of its plan, what a graph asks: of those that ask the same, whatever their variables are called.

    Graphs of one event are left out: what is asked of an event is known anyway.

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
    """The graphs of some plans, those that are forbidden inside of them included."""
    return [inner for plan in plans for graph in plan.graphs for inner in graph.with_inner()]


def _likeness(plan: GraphPlan) -> Hashable | None:
    """What a graph asks with numbers for its variables; None where it asks what no other is known to ask."""
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
    return points, side.greatest, side.shift
