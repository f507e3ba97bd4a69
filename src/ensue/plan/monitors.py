"""How a query monitors its traces: the streams seen so far, the progress of its matches, and when a trace can no
longer match.

The progress of a trace is the set of steps that its events have reached. A step is a set of variables that can be bound
without leaving out one that comes before them: `SEQ(A, B)` has the steps nothing, A, and A with B. The conditions under
which the rest of a step can never be bound are computed beforehand (`ensue.graph.law`). A trace in which every reached
step has failed has no further match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ensue.analysis.catalog import Catalog
from ensue.graph.bounds import TimeScale, end_of, start_of
from ensue.graph.graphs import Graph, Variable
from ensue.graph.law import Condition, Law, NeededVariable
from ensue.nodes.names import Name, Stream
from ensue.plan.plans import AbsencePlan, GraphPlan

MOST_STEPS = 64
"""Graphs with more steps are monitored without their progress, as if every step had been reached."""

MOST_LEAVES = 64
"""The maximum number of variables whose progress is followed; larger graphs are monitored without progress."""

MOST_WATCHED = 62
"""The maximum number of monitored streams; conditions on further streams are left out."""

FEW_SEEN = 2
"""Conditions on up to this many seen streams are always monitored; others only if they pay off."""

PRICE = 1 / 64
"""The cost of monitoring a condition on many streams, as the number of events that it must free to pay off."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A variable that advances a graph, or a forbidden event that sets it back."""

    variable: Variable
    graph: Graph
    forbidden: bool


@dataclass(frozen=True, slots=True)
class MonitorStep:
    """A set of variables that may be bound; under any of `conditions` the others can never be bound."""

    bound: frozenset[Name]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class GraphMonitor:
    """The steps of a graph; `moves` lead from one step to the next by a leaf, and `losses` are the steps that a leaf
    removes.

    The first step has nothing bound, unless progress is not followed: then every step counts as reached. A complete
    match with `trails` is not reported yet, so it keeps its trace.
    """

    steps: tuple[MonitorStep, ...]
    leaves: tuple[Leaf, ...]
    moves: tuple[tuple[int, int, int], ...]
    losses: tuple[tuple[int, int], ...]
    whole: int | None
    trails: bool
    follows: bool


@dataclass(frozen=True, eq=False)
class Monitor:
    """What a query monitors: the streams whose occurrence is recorded, and the graphs.

    `ends` are the streams that end a trace, after which every step has failed; a trace also ends after `lifetime`
    ticks.
    """

    watched: tuple[Stream, ...]
    ends: tuple[Stream, ...]
    lifetime: int | None
    graphs: tuple[GraphMonitor, ...]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for graph in self.graphs for leaf in graph.leaves)

    @property
    def bounded(self) -> bool:
        """Whether the record of a trace is dropped at some time."""
        return bool(self.ends) or self.lifetime is not None


def monitor_of(graphs: Sequence[GraphPlan], law: Law, catalog: Catalog) -> Monitor:
    """The monitor of a query with these graphs for traces that obey the law."""
    drafts: list[GraphMonitor] = []
    for plan in graphs:
        leaves = sum(len(draft.leaves) for draft in drafts)
        drafts.append(_monitor_graph(plan, law, MOST_LEAVES - leaves))
    watched = _watched(drafts)
    return Monitor(
        watched,
        tuple(law.ends),
        lifetime_of(law, catalog),
        tuple(_with_conditions_on(draft, frozenset(watched)) for draft in drafts),
    )


def needed_variables(graph: Graph, bound: frozenset[Name] = frozenset()) -> tuple[NeededVariable, ...]:
    """The variables of a graph that are not bound, with their order."""
    free = [variable for variable in graph.variables if variable.name not in bound]
    return tuple(
        NeededVariable(
            variable.name,
            variable.stream,
            frozenset(other.name for other in free if _is_before(variable.name, other.name, graph)),
        )
        for variable in free
    )


def _is_before(x: Name, y: Name, graph: Graph) -> bool:
    return x != y and graph.times.before(end_of(x), start_of(y))


def lifetime_of(law: Law, catalog: Catalog) -> int | None:
    """The number of ticks after which a trace ends in any case; None: no limit."""
    return min(map(TimeScale(catalog.unit).ticks, law.windows), default=None)


def _monitor_graph(plan: GraphPlan, law: Law, most_leaves: int) -> GraphMonitor:
    graph = plan.graph
    everything = frozenset(graph.names)
    sets = _steps(graph)
    forbidden = [absence for absence in plan.absences if _throws_back(absence)]
    if sets is None or len(graph.variables) + len(forbidden) > most_leaves:
        lasts = [name for name in graph.names if not any(_is_before(name, other, graph) for other in graph.names)]
        steps = tuple(_step(everything - {name}, graph, law) for name in lasts)
        if len(steps) > MOST_STEPS:
            steps = (MonitorStep(frozenset(), ()),)
        return GraphMonitor(steps, (), (), (), None, graph.trailing, False)
    places = {bound: place for place, bound in enumerate(sets)}
    leaves = [
        *(Leaf(variable, graph, False) for variable in graph.variables),
        *(Leaf(absence.graph.graph.variables[0], absence.graph.graph, True) for absence in forbidden),
    ]
    moves = [
        (places[bound], number, places[bound | {name}])
        for number, name in enumerate(graph.names)
        for bound in sets
        if name not in bound and bound | {name} in places
    ]
    losses = [
        (len(graph.names) + number, places[bound])
        for number, absence in enumerate(forbidden)
        for bound in sets
        if _is_open(absence, bound)
    ]
    return GraphMonitor(
        tuple(_step(bound, graph, law) for bound in sets),
        tuple(leaves),
        tuple(moves),
        tuple(losses),
        places[everything],
        graph.trailing,
        True,
    )


def _steps(graph: Graph) -> list[frozenset[Name]] | None:
    """The sets of variables closed under "before", small ones first; None if there are too many."""
    before = {name: frozenset(other for other in graph.names if _is_before(other, name, graph)) for name in graph.names}
    found = {frozenset[Name]()}
    layer = found
    while layer:
        layer = {
            bound | {name} for bound in layer for name in graph.names if name not in bound and before[name] <= bound
        } - found
        found = found | layer
        if len(found) > MOST_STEPS:
            return None
    return sorted(found, key=lambda bound: (len(bound), sorted(map(str, bound))))


def _step(bound: frozenset[Name], graph: Graph, law: Law) -> MonitorStep:
    """The step of these bound variables, with the conditions under which the rest fails."""
    needed = needed_variables(graph, bound)
    occurred = frozenset(variable.stream for variable in graph.variables if variable.name in bound)
    found = law.failing_conditions(needed) if needed else ()
    open_ones = [
        replace(condition, seen=condition.seen - occurred)
        for condition in found
        if not condition.unseen & occurred and not condition.seen & law.ends.keys() and _pays(condition, len(bound))
    ]
    return MonitorStep(bound, tuple(open_ones))


def _pays(condition: Condition, held: int) -> bool:
    """Whether monitoring a condition is worth its cost.

    Without statistics, each stream that must have been seen is assumed to halve the chance that the condition is met.
    If it is met, the held events are freed, and one more on average is not kept.
    """
    return len(condition.seen) <= FEW_SEEN or (held + 1) / 2 ** len(condition.seen) > PRICE * len(condition.seen)


def _throws_back(absence: AbsencePlan) -> bool:
    """Whether a single forbidden event, independent of earlier ones, removes the progress."""
    inner = absence.graph.graph
    return (
        absence.absence.scope.after is not None
        and not absence.correlated
        and not absence.graph.absences
        and len(inner.variables) == 1
    )


def _is_open(absence: AbsencePlan, bound: frozenset[Name]) -> bool:
    """Whether the scope has begun and is not closed when these variables are bound."""
    after, before = absence.absence.scope.after, absence.absence.scope.before
    assert after is not None
    return set(after.ends) <= bound and (before is None or not set(before.starts) & bound)


def _watched(drafts: Sequence[GraphMonitor]) -> tuple[Stream, ...]:
    """The streams of the conditions; if there are too many, those of the most conditions."""
    uses: dict[Stream, int] = {}
    for condition in (found for draft in drafts for step in draft.steps for found in step.conditions):
        for stream in (*condition.seen, *condition.unseen):
            uses[stream] = uses.get(stream, 0) + 1
    return tuple(sorted(sorted(uses, key=str), key=lambda stream: -uses[stream])[:MOST_WATCHED])


def _with_conditions_on(draft: GraphMonitor, watched: frozenset[Stream]) -> GraphMonitor:
    steps = tuple(
        MonitorStep(step.bound, tuple(found for found in step.conditions if found.seen | found.unseen <= watched))
        for step in draft.steps
    )
    return replace(draft, steps=steps)
