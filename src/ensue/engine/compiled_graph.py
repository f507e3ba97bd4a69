"""Graphs compiled for evaluation: the steps of a join, and what the bound variables imply for the next one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ensue.graph import bounds
from ensue.graph.graphs import Graph, Moment
from ensue.nodes.expressions import Expr, substitute_fields, variables_of
from ensue.nodes.names import Name, Stream, in_order
from ensue.plan.comparison import alike, graphs_of
from ensue.plan.plans import AbsencePlan, GraphPlan, QueryPlan


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of one point: at least each lower point minus its limit, at most each upper point plus its limit."""

    lower: tuple[tuple[bounds.Point, bounds.Limit], ...]
    upper: tuple[tuple[bounds.Point, bounds.Limit], ...]

    @property
    def open(self) -> bool:
        return not self.lower and not self.upper


UNBOUNDED = Range((), ())


@dataclass(frozen=True, slots=True)
class JoinStep:
    """The step that binds `variable` when others are bound: its ranges, and the checks that become possible."""

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
    """What a graph can see around it: the bound variables and moments of outer graphs, and whether they are
    complete."""

    outer: frozenset[Name]
    whole: bool
    moments: frozenset[Name] = frozenset()


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """A compiled graph. What depends on the sizes of streams is computed when they are first known, and kept.

    `last_events` are the points that a match may complete with, each with the time from it to the completion; None if
    a match ends with a repeated moment, or two ends are equal.
    """

    plan: GraphPlan
    streams: Mapping[Name, Stream]
    list_streams: Mapping[Name, Stream]
    moments: Mapping[Name, Moment]
    last_events: tuple[tuple[bounds.Point, int], ...] | None
    all_judged: bool
    """Whether nothing is left to check once all variables are bound, if absences are checked during the join."""
    orders: dict[Hashable, list[Name]] = field(default_factory=dict)
    steps: dict[Hashable, JoinStep] = field(default_factory=dict)
    ranges: dict[Hashable, Range] = field(default_factory=dict)
    returned: dict[Hashable, Any] = field(default_factory=dict)
    """The expressions of RETURN in terms of the variables of the graph."""

    @classmethod
    def of(cls, plan: GraphPlan) -> CompiledGraph:
        graph = plan.graph
        streams = {variable.name: variable.stream for variable in graph.variables}
        listed = [inner.graph for collection in plan.collections for inner in collection.graphs]
        list_streams = {variable.name: variable.stream for inner in listed for variable in inner.variables}
        moments = {moment.name: moment for moment in graph.moments}
        ends = []
        for name in graph.extent.ends:
            point, ticks = bounds.end_of(name), 0
            while point.variable in moments and not moments[point.variable].repeated:
                ticks += moments[point.variable].ticks
                point = moments[point.variable].base
            ends.append((point, ticks))
        for deadline in graph.deadlines:
            latest = max([deadline.ticks, *(ticks for point, ticks in ends if point == deadline.point)])
            ends = [*((point, ticks) for point, ticks in ends if point != deadline.point), (deadline.point, latest)]
        names = [point.variable for point, _ in ends]
        alone = moments.keys().isdisjoint(names) and len(set(names)) == len(names)
        late = graph.repeated or graph.succession or plan.collections or graph.list_conditions or plan.successive
        judged = not late and all(absence.lower is not None for absence in plan.absences)
        return cls(plan, streams, list_streams, moments, tuple(ends) if alone else None, judged)


def own_conditions(graph: Graph, name: Name) -> list[Expr]:
    """The requirements of a variable on its events as conditions."""
    variable = graph.variables[graph.names.index(name)]
    return [
        substitute_fields(predicate, lambda field: replace(field, variable=name)) for predicate in variable.predicates
    ]


class CompiledGraphs:
    """The graphs of the plans of a machine, compiled when a step first needs them."""

    def __init__(self, plans: tuple[QueryPlan, ...] = ()) -> None:
        self._plans = plans
        self._graphs: dict[int, CompiledGraph] = {}
        self.steps_of: dict[int, int] = {}
        """The number of steps of each plan, by its identity."""

    def __reduce__(self) -> tuple[type[CompiledGraphs], tuple[tuple[QueryPlan, ...]]]:
        """Compiled graphs are not pickled; another process compiles them again."""
        return CompiledGraphs, (self._plans,)

    @cached_property
    def alike(self) -> dict[int, Hashable]:
        """Keys of graphs, by the identity of their plan, where several search for the same."""
        graphs = [graph for plan in self._plans for graph in plan.graphs]
        if len(graphs) == 1 and len(graphs[0].absences) < 2:
            return {}
        return alike(graphs_of(self._plans))

    def graph(self, plan: GraphPlan) -> CompiledGraph:
        # A compiled graph holds its plan, so that no other one can have its number.
        found = self._graphs.get(id(plan))
        if found is None:
            found = self._graphs[id(plan)] = CompiledGraph.of(plan)
        return found


def plan_step(
    plan: GraphPlan,
    variable: Name,
    bound: frozenset[Name],
    sight: Sight,
    conditions: Iterable[Expr],
    summaries: bool,
    points: bool,
) -> JoinStep:
    """Plans the step that binds `variable` after the bound ones.

    `conditions` are all conditions of the graph that join keys do not cover. `summaries` tells whether absences are
    decided by earliest completion, `points` whether the variable's events end where they start.
    """
    graph = plan.graph
    around = bound | sight.outer
    now = around | {variable} | sight.moments
    judged = [absence for absence in plan.absences if summaries and absence.lower is not None]
    deadlines = tuple(absence for absence in judged if _caps_start(absence, variable, around, graph.times))
    earliest = tuple(
        absence for absence in judged if absence not in deadlines and _floors_end(absence, variable, around)
    )
    times = _time_points(around, sight)
    return JoinStep(
        variable,
        _range(graph.times, bounds.start_of(variable), times, bound),
        UNBOUNDED if points else _range(graph.times, bounds.end_of(variable), times, bound),
        _range(graph.positions, bounds.position_of(variable), _position_points(around, sight.whole), bound)
        if graph.positions.paths
        else UNBOUNDED,
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
    """Whether a condition is first checked at this step; one about outer variables only, at the first variable."""
    return variable in names or (not bound and names.isdisjoint(graph.names))


def plan_moment(plan: GraphPlan, moment: Name, earlier: frozenset[Name], sight: Sight) -> Range:
    """The bounds of a moment by the variables of the graph, its `earlier` moments and the outer variables, all
    bound."""
    graph = plan.graph
    own = frozenset(graph.names)
    known = replace(sight, moments=sight.moments | earlier)
    return _range(graph.times, bounds.end_of(moment), _time_points(own | sight.outer, known), own | earlier)


def _time_points(bound: Collection[Name], sight: Sight) -> list[bounds.Point]:
    points = [point for name in in_order(bound) for point in (bounds.start_of(name), bounds.end_of(name))]
    points += map(bounds.end_of, in_order(sight.moments))
    return [*points, bounds.WHOLE_START, bounds.WHOLE_END] if sight.whole else points


def _position_points(bound: Collection[Name], whole: bool) -> list[bounds.Point]:
    points = [bounds.position_of(name) for name in in_order(bound)]
    return [*points, bounds.WHOLE_FIRST, bounds.WHOLE_LAST] if whole else points


def _range(network: bounds.Network, point: bounds.Point, points: list[bounds.Point], own: frozenset[Name]) -> Range:
    lower = [(other, limit) for other in points if (limit := network.limit(other, point)) is not None]
    upper = [(other, limit) for other in points if (limit := network.limit(point, other)) is not None]
    return Range(
        _needed(lower, own, lambda near, far: network.limit(far, near)),
        _needed(upper, own, network.limit),
    )


def _needed(
    limits: list[tuple[bounds.Point, bounds.Limit]],
    own: frozenset[Name],
    between: Callable[[bounds.Point, bounds.Point], bounds.Limit | None],
) -> tuple[tuple[bounds.Point, bounds.Limit], ...]:
    """Removes bounds that follow from another one and a bound between the two bound points themselves.

    Bounds between two points outside the graph are not used: the closure may have derived them from this graph.
    """
    kept = list(limits)
    for far, wide in limits:
        for near, narrow in kept:
            if near == far or not {near.variable, far.variable} & own:
                continue
            link = between(near, far)
            if link is not None and bounds.implies(narrow, link, wide):
                kept.remove((far, wide))
                break
    return tuple(kept)


def _caps_start(absence: AbsencePlan, variable: Name, bound: frozenset[Name], times: bounds.Network) -> bool:
    """Whether the scope begins at bound points and ends just before the start of this variable alone: a latest
    start."""
    assert absence.lower is not None and absence.upper is not None
    longest = times.limit(bounds.end_of(variable), bounds.start_of(variable))
    is_point = longest is not None and longest.value == 0
    starts = [(bounds.start_of(variable),), *([(bounds.end_of(variable),)] if is_point else [])]
    return absence.lower.variables <= bound and absence.upper.points in starts and absence.upper.is_next


def _floors_end(absence: AbsencePlan, variable: Name, bound: frozenset[Name]) -> bool:
    """Whether the scope ends at bound points and begins just after the end of this variable alone: an earliest end."""
    assert absence.lower is not None and absence.upper is not None
    return (
        absence.upper.variables <= bound
        and absence.lower.points == (bounds.end_of(variable),)
        and absence.lower.is_next
    )


def _becomes_decidable(absence: AbsencePlan, variable: Name, bound: frozenset[Name], outer: frozenset[Name]) -> bool:
    """Whether both ends of the scope are first known at this step; scopes between outer events at the first step."""
    assert absence.lower is not None and absence.upper is not None
    needed = (absence.lower.variables | absence.upper.variables) - outer
    return needed <= bound | {variable} and (variable in needed or not (needed or bound))
