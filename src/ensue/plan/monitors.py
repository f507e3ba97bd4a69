"""How a query monitors its traces: the streams seen so far, the progress of its matches, and when a trace can no
longer match.

The progress of a trace is the set of steps that its events have reached. A step is a set of variables that can be bound
without leaving out one that comes before them: `SEQ(A, B)` has the steps nothing, A, and A with B. The conditions under
which the rest of a step can never be bound are computed beforehand (`ensue.graph.dead_ends`). A trace in which every
reached step has failed has no further match.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from ensue.analysis.catalog import Catalog
from ensue.graph.bounds import TimeScale, end_of, start_of
from ensue.graph.dead_ends import Condition, Failures, NeededVariable
from ensue.graph.graphs import Graph, Variable
from ensue.graph.law import Law
from ensue.nodes.names import Name, Stream
from ensue.plan.plans import AbsencePlan, GraphPlan

MOST_STEPS = 1024
"""The maximum number of steps that are followed: those of ten unordered variables. See `_followed`."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A variable that advances a graph, or a forbidden event that sets it back."""

    variable: Variable
    graph: Graph
    forbidden: bool


@dataclass(frozen=True, slots=True)
class MonitorStep:
    """A set of variables that are bound; under any of `conditions` the rest of the match can never be bound."""

    bound: frozenset[Name]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class GraphMonitor:
    """The steps of a graph; `moves` lead from one step to the next by a leaf, and `losses` are the steps that a leaf
    removes.

    A trace begins with the steps `starts`. Variables that are not followed count as bound whenever that is possible: if
    conditions depend on them, they are `not_followed`, and a trace may fail later than necessary. The step `whole` is a
    complete match; without it, progress does not tell whether there is one. A complete match with `trails` is not
    reported yet, so it keeps its trace. `complete` tells whether the search for conditions was not cut.
    """

    steps: tuple[MonitorStep, ...]
    leaves: tuple[Leaf, ...]
    moves: tuple[tuple[int, int, int], ...]
    losses: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]
    whole: int | None
    trails: bool
    not_followed: tuple[Name, ...]
    complete: bool


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
    monitors = tuple(_monitor_graph(plan, law) for plan in graphs)
    return Monitor(_watched(monitors), tuple(law.ends), lifetime_of(law, catalog), monitors)


def needed_variables(graph: Graph) -> tuple[NeededVariable, ...]:
    """The variables of a graph with their order."""
    return tuple(
        NeededVariable(
            variable.name,
            variable.stream,
            frozenset(other for other in graph.names if _is_before(variable.name, other, graph)),
        )
        for variable in graph.variables
    )


def _is_before(x: Name, y: Name, graph: Graph) -> bool:
    return x != y and graph.times.before(end_of(x), start_of(y))


def lifetime_of(law: Law, catalog: Catalog) -> int | None:
    """The number of ticks after which a trace ends in any case; None: no limit."""
    return min(map(TimeScale(catalog.unit).ticks, law.windows), default=None)


def _monitor_graph(plan: GraphPlan, law: Law) -> GraphMonitor:
    """The steps of a graph: for each set of followed variables that may be bound, what may be bound besides."""
    graph = plan.graph
    failures = Failures(law, needed_variables(graph))
    before = {name: frozenset(other for other in graph.names if _is_before(other, name, graph)) for name in graph.names}
    forbidden = [absence for absence in plan.absences if _throws_back(absence)]
    relevant = failures.names.union(*map(_names_of_scope, forbidden))
    followed, sets = _followed(before, relevant)
    others = frozenset(before) - followed
    steps = [(bound, others) for bound in sets]
    places: dict[frozenset[Name], tuple[int, ...]] = {bound: (place,) for place, bound in enumerate(sets)}
    if others:
        # All followed variables are bound: as long as the match is not complete, one of the last others is not.
        lasts = [name for name in graph.names if name in others and not any(name in own for own in before.values())]
        steps[-1:] = [(followed, others - {name}) for name in lasts]
        places[followed] = tuple(range(len(sets) - 1, len(steps)))
    numbers = {name: number for number, name in enumerate(name for name in graph.names if name in followed)}
    conditions = _Conditions(failures, graph, law)
    return GraphMonitor(
        steps=tuple(MonitorStep(bound, conditions.at(bound, rest)) for bound, rest in steps),
        leaves=(
            *(Leaf(variable, graph, False) for variable in graph.variables if variable.name in followed),
            *(Leaf(absence.graph.graph.variables[0], absence.graph.graph, True) for absence in forbidden),
        ),
        moves=tuple(
            (places[bound][0], number, goal)
            for name, number in numbers.items()
            for bound in sets
            if name not in bound
            for goal in places.get(bound | {name}, ())
        ),
        losses=tuple(
            (len(numbers) + number, places[bound][0])
            for number, absence in enumerate(forbidden)
            for bound in sets
            if _is_open(absence, bound, followed)
        ),
        starts=places[sets[0]],
        whole=None if others else len(sets) - 1,
        trails=graph.trailing,
        not_followed=tuple(name for name in graph.names if name in others & relevant),
        complete=failures.complete,
    )


def _followed(
    before: Mapping[Name, frozenset[Name]], relevant: frozenset[Name]
) -> tuple[frozenset[Name], list[frozenset[Name]]]:
    """The variables whose progress is followed, and their sets closed under "before", small ones first.

    These are all variables or, if they have too many such sets, those that decide about conditions with those before
    them, as many as possible.
    """
    sets = _closed_sets(before)
    if sets is not None:
        return frozenset(before), sets
    followed, sets = frozenset[Name](), [frozenset[Name]()]
    for name in before:
        if name in relevant:
            wider = followed | before[name] | {name}
            found = _closed_sets({other: before[other] for other in before if other in wider})
            if found is None:
                break
            followed, sets = wider, found
    return followed, sets


def _closed_sets(before: Mapping[Name, frozenset[Name]]) -> list[frozenset[Name]] | None:
    """The sets of variables closed under "before", small ones first; None if there are too many."""
    found = {frozenset[Name]()}
    layer = found
    while layer:
        layer = {
            bound | {name} for bound in layer for name in before if name not in bound and before[name] <= bound
        } - found
        found = found | layer
        if len(found) > MOST_STEPS:
            return None
    return sorted(found, key=lambda bound: (len(bound), sorted(map(str, bound))))


class _Conditions:
    """The conditions of the steps of a graph."""

    def __init__(self, failures: Failures, graph: Graph, law: Law) -> None:
        self.failures = failures
        self.streams = {variable.name: variable.stream for variable in graph.variables}
        self.law = law
        self._known: dict[Hashable, tuple[Condition, ...]] = {}

    def at(self, bound: frozenset[Name], perhaps: frozenset[Name]) -> tuple[Condition, ...]:
        """The conditions under which the rest fails if variables are bound, and others `perhaps`."""
        if len(bound) + len(perhaps) == len(self.streams):
            return ()
        found = self.failures.conditions(bound | perhaps)
        occurred = frozenset(self.streams[name] for name in bound) & self.failures.mentioned
        key = found, occurred
        if key not in self._known:
            self._known[key] = tuple(
                replace(condition, seen=condition.seen - occurred) if condition.seen & occurred else condition
                for condition in found
                if not condition.unseen & occurred and not condition.seen & self.law.ends.keys()
            )
        return self._known[key]


def _throws_back(absence: AbsencePlan) -> bool:
    """Whether a single forbidden event, independent of earlier ones, removes the progress."""
    inner = absence.graph.graph
    return (
        absence.absence.scope.after is not None
        and not absence.correlated
        and not absence.graph.absences
        and len(inner.variables) == 1
    )


def _names_of_scope(absence: AbsencePlan) -> set[Name]:
    after, before = absence.absence.scope.after, absence.absence.scope.before
    return {*(after.ends if after is not None else ()), *(before.starts if before is not None else ())}


def _is_open(absence: AbsencePlan, bound: frozenset[Name], followed: frozenset[Name]) -> bool:
    """Whether the scope has surely begun and is surely not closed when these of the followed variables are bound."""
    after, before = absence.absence.scope.after, absence.absence.scope.before
    assert after is not None
    if not set(after.ends) <= bound:
        return False
    return before is None or (set(before.starts) <= followed and not set(before.starts) & bound)


def _watched(monitors: Sequence[GraphMonitor]) -> tuple[Stream, ...]:
    """The streams of the conditions."""
    found = {id(step.conditions): step.conditions for monitor in monitors for step in monitor.steps}
    conditions = (condition for conditions in found.values() for condition in conditions)
    return tuple(dict.fromkeys(stream for each in conditions for stream in sorted(each.seen | each.unseen, key=str)))
