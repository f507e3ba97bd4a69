"""How a query watches its traces: what has been seen of each, how far its matches have come, when it is hopeless.

How far a trace has come is the set of steps its events have reached. A step is a set of variables of a graph that can
be bound without any that comes before them left out: those of `SEQ(A, B)` are nothing, A, and A with B. What a step
still needs fails under conditions that are known beforehand (`ensue.graph.law`); a trace in which every reached step
has failed can hold no further match.
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
"""Graphs with more steps are watched without how far they have come: as if every step had been reached."""

MOST_LEAVES = 64
"""So many variables are followed at most; graphs beyond are watched without how far they have come."""

MOST_WATCHED = 62
"""So many streams are watched at most; conditions on further ones are left out."""

FEW_SEEN = 2
"""Conditions on so many seen streams are always worth a look; the others must pay."""

PRICE = 1 / 64
"""What watching a condition on many streams costs, in events that it would have to free."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A variable that moves a graph on, or whose events, forbidden between others, throw it back."""

    variable: Variable
    graph: Graph
    forbidden: bool


@dataclass(frozen=True, slots=True)
class MonitorStep:
    """A set of variables that may be bound; under any of `conditions` the others can never be."""

    bound: frozenset[Name]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class GraphMonitor:
    """The steps of a graph; `moves` lead from one to the next by a leaf, and `losses` tell what a leaf takes away.

    The first step has nothing bound unless progress is not followed: then every step counts as reached from the start.
    A complete match that `trails` is still to be reported, so it keeps its trace.
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
    """What a query watches: streams of which it is known whether they have occurred, and graphs.

    `ends` are the streams that end a trace, after which every step has failed; `lifetime`, in ticks, ends it too.
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
        """Whether what is known of a trace can be forgotten some day."""
        return bool(self.ends) or self.lifetime is not None


def monitor_of(graphs: Sequence[GraphPlan], law: Law, catalog: Catalog) -> Monitor:
    """How a query with these graphs watches traces that obey the law."""
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
    """After how many ticks a trace ends, whatever happens."""
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
    """The sets of variables closed under "before", small ones first; None if they are too many."""
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
    """What the rest of the variables needs; that the bound ones have occurred goes without saying."""
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
    """Whether watching a condition is worth its price.

    Each stream that must have been seen halves, for want of statistics, the chance that the condition is ever met;
    then the events held, and one more on average that need not be, are freed.
    """
    return len(condition.seen) <= FEW_SEEN or (held + 1) / 2 ** len(condition.seen) > PRICE * len(condition.seen)


def _throws_back(absence: AbsencePlan) -> bool:
    """Whether one forbidden event by itself, of whatever came before it, ends what has been reached."""
    inner = absence.graph.graph
    return (
        absence.absence.scope.after is not None
        and not absence.correlated
        and not absence.graph.absences
        and len(inner.variables) == 1
    )


def _is_open(absence: AbsencePlan, bound: frozenset[Name]) -> bool:
    """Whether, with these variables bound, the scope has begun and is not closed."""
    after, before = absence.absence.scope.after, absence.absence.scope.before
    assert after is not None
    return set(after.ends) <= bound and (before is None or not set(before.starts) & bound)


def _watched(drafts: Sequence[GraphMonitor]) -> tuple[Stream, ...]:
    """The streams of the conditions, those of the most conditions first if they are too many."""
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
