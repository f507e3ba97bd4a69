"""One step of a join: what the bound variables say about the next one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from ensue.expr.nodes import Expr, variables_of
from ensue.graph.bounds import (
    WHOLE_END,
    WHOLE_FIRST,
    WHOLE_LAST,
    WHOLE_START,
    Limit,
    Network,
    Point,
    end_of,
    position_of,
    start_of,
)
from ensue.graph.model import Graph
from ensue.names import Name, in_order
from ensue.plan.model import AbsencePlan, GraphPlan


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of one point: at least each lower point minus its constant, at most each upper point plus its constant."""

    lower: tuple[tuple[Point, int], ...]
    upper: tuple[tuple[Point, int], ...]

    @property
    def open(self) -> bool:
        return not self.lower and not self.upper


@dataclass(frozen=True, slots=True)
class Step:
    """Binding `variable` when others are bound: its ranges, and what can be checked once it is bound."""

    variable: Name
    start: Range
    end: Range
    position: Range
    conditions: tuple[Expr, ...]
    distinct: tuple[tuple[Name, Name], ...]
    deadlines: tuple[AbsencePlan, ...]
    earliest: tuple[AbsencePlan, ...]
    checks: tuple[AbsencePlan, ...]


@dataclass(frozen=True, slots=True)
class Sight:
    """What a graph sees around it: the bound variables and moments of outer graphs, and whether they are all."""

    outer: frozenset[Name]
    whole: bool
    moments: frozenset[Name] = frozenset()


def plan_step(
    plan: GraphPlan, variable: Name, bound: frozenset[Name], sight: Sight, conditions: Iterable[Expr], summaries: bool
) -> Step:
    """What follows for `variable` from the bound ones.

    `conditions` are all conditions of the graph that no join key takes care of; `summaries` says whether absences are
    decided by earliest completion.
    """
    graph = plan.graph
    around = bound | sight.outer
    now = around | {variable} | sight.moments
    judged = [absence for absence in plan.absences if summaries and absence.lower is not None]
    deadlines = tuple(absence for absence in judged if _caps_start(absence, variable, around, graph.times))
    earliest = tuple(
        absence for absence in judged if absence not in deadlines and _floors_end(absence, variable, around)
    )
    return Step(
        variable,
        _range(graph.times, start_of(variable), _time_points(around, sight), bound),
        _range(graph.times, end_of(variable), _time_points(around, sight), bound),
        _range(graph.positions, position_of(variable), _position_points(around, sight.whole), bound),
        tuple(c for c in conditions if variables_of(c) <= now and _is_new(variables_of(c), variable, bound, graph)),
        tuple(pair for pair in plan.distinct if variable in pair and set(pair) <= now),
        deadlines,
        earliest,
        tuple(
            absence
            for absence in judged
            if absence not in deadlines
            and absence not in earliest
            and _becomes_decidable(absence, variable, bound, sight.outer)
        ),
    )


def _is_new(names: frozenset[Name], variable: Name, bound: frozenset[Name], graph: Graph) -> bool:
    """Whether a condition is judged first at this step: one about what is around the graph with its first variable."""
    return variable in names or (not bound and names.isdisjoint(graph.names))


def plan_moment(plan: GraphPlan, moment: Name, earlier: frozenset[Name], sight: Sight) -> Range:
    """Between what the variables of a graph, its `earlier` moments, all bound, and what is around it allow a moment."""
    graph = plan.graph
    own = frozenset(graph.names)
    known = replace(sight, moments=sight.moments | earlier)
    return _range(graph.times, end_of(moment), _time_points(own | sight.outer, known), own | earlier)


def _time_points(bound: Collection[Name], sight: Sight) -> list[Point]:
    points = [point for name in in_order(bound) for point in (start_of(name), end_of(name))]
    points += map(end_of, in_order(sight.moments))
    return [*points, WHOLE_START, WHOLE_END] if sight.whole else points


def _position_points(bound: Collection[Name], whole: bool) -> list[Point]:
    points = [position_of(name) for name in in_order(bound)]
    return [*points, WHOLE_FIRST, WHOLE_LAST] if whole else points


def _range(network: Network, point: Point, points: list[Point], own: frozenset[Name]) -> Range:
    lower = [(other, limit.whole) for other in points if (limit := network.limit(other, point)) is not None]
    upper = [(other, limit.whole) for other in points if (limit := network.limit(point, other)) is not None]
    return Range(
        _needed(lower, own, lambda near, far: network.limit(far, near)),
        _needed(upper, own, network.limit),
    )


def _needed(
    limits: list[tuple[Point, int]], own: frozenset[Name], between: Callable[[Point, Point], Limit | None]
) -> tuple[tuple[Point, int], ...]:
    """Without the bounds that follow from another one by way of a bound between the two bound points themselves.

    Between two points outside of the graph nothing is relied on: the closure may have learned it from this very graph.
    """
    kept = list(limits)
    for far, wide in limits:
        for near, narrow in kept:
            if near == far or not {near.variable, far.variable} & own:
                continue
            link = between(near, far)
            if link is not None and narrow + link.whole <= wide:
                kept.remove((far, wide))
                break
    return tuple(kept)


def _caps_start(absence: AbsencePlan, variable: Name, bound: frozenset[Name], times: Network) -> bool:
    """The scope begins at bound points and ends just before the start of this variable alone: a latest start."""
    assert absence.lower is not None and absence.upper is not None
    starts = [(start_of(variable),), *([(end_of(variable),)] if _is_point(variable, times) else [])]
    return absence.lower.variables <= bound and absence.upper.points in starts and absence.upper.shift == -1


def _floors_end(absence: AbsencePlan, variable: Name, bound: frozenset[Name]) -> bool:
    """The scope ends at bound points and begins just after the end of this variable alone: an earliest end."""
    assert absence.lower is not None and absence.upper is not None
    return absence.upper.variables <= bound and absence.lower.points == (end_of(variable),) and absence.lower.shift == 1


def _is_point(variable: Name, times: Network) -> bool:
    longest = times.limit(end_of(variable), start_of(variable))
    return longest is not None and longest.value == 0


def _becomes_decidable(absence: AbsencePlan, variable: Name, bound: frozenset[Name], outer: frozenset[Name]) -> bool:
    """Both ends of the scope are known from this step on; scopes between outer events from the first step on."""
    assert absence.lower is not None and absence.upper is not None
    needed = (absence.lower.variables | absence.upper.variables) - outer
    return needed <= bound | {variable} and (variable in needed or not (needed or bound))
