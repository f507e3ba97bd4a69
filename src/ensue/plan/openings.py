"""Parts of a graph that can be bound while the rest is still to come: what a goal has matched, and what it lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ensue.errors import LimitError
from ensue.graph.bounds import end_of, start_of
from ensue.graph.graphs import Absence, Extent, Graph, Moment, Scope
from ensue.nodes.expressions import variables_of
from ensue.nodes.names import Name

MOST_PARTS = 4096
"""How many parts of one graph are looked at."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A part of a graph, as a graph, and what is open beside it.

    `awaited` are the variables that can come next, `open` the absences that can still be violated, in words.
    """

    whole: Graph
    part: Graph
    missing: tuple[Name, ...]
    awaited: tuple[Name, ...]
    open: tuple[str, ...]


def openings_of(graph: Graph) -> Iterator[Opening]:
    """Every part of a graph that can be bound by events up to some time while all others come later, largest first."""
    for names in sorted(
        _beginnings(graph), key=lambda names: (-len(names), [name not in names for name in graph.names])
    ):
        missing = tuple(name for name in graph.names if name not in names)
        judged = [absence for absence in graph.absences if _is_judged(absence, graph, names)]
        yield Opening(
            graph,
            _part(graph, names, judged),
            missing,
            tuple(name for name in missing if not any(_comes_first(other, name, graph) for other in missing)),
            tuple(dict.fromkeys(absence.text for absence in graph.absences if not _is_closed(absence, names))),
        )


def _beginnings(graph: Graph) -> list[frozenset[Name]]:
    """The sets of variables that hold, with each of them, all that certainly end no later; neither none nor all."""
    found = {frozenset[Name]()}
    needed = {
        name: frozenset(other for other in graph.names if _ends_no_later(other, name, graph)) for name in graph.names
    }
    for name in sorted(graph.names, key=lambda name: len(needed[name])):
        found |= {names | {name} for names in found if needed[name] <= names | {name}}
        if len(found) > MOST_PARTS:
            raise LimitError(
                "too-many-goals",
                f"the pattern has more than {MOST_PARTS:,} ways to be begun",
                "a SEQ, or fewer items in its AND, would leave fewer",
            )
    return [names for names in found if names and len(names) < len(graph.names)]


def _ends_no_later(other: Name, name: Name, graph: Graph) -> bool:
    limit = graph.times.limit(end_of(other), end_of(name))
    return other != name and limit is not None and limit.whole <= 0


def _comes_first(other: Name, name: Name, graph: Graph) -> bool:
    return other != name and graph.times.before(end_of(other), end_of(name))


def _part(graph: Graph, names: frozenset[Name], judged: Collection[Absence]) -> Graph:
    """The graph of some variables alone: every bound and condition that speaks of nothing else."""
    moments = _known_moments(graph, names)
    seen = names | {moment.name for moment in moments}
    kept = tuple(name for name in graph.names if name in names)
    return Graph(
        tuple(variable for variable in graph.variables if variable.name in names),
        Extent(kept, kept),
        graph.times.among(seen),
        graph.positions.among(seen),
        tuple(condition for condition in graph.conditions if variables_of(condition) <= seen),
        tuple(equality for equality in graph.equalities if variables_of(equality.condition) <= seen),
        tuple(_alone(absence, seen) for absence in judged),
        moments=moments,
        number=graph.number,
    )


def _known_moments(graph: Graph, names: frozenset[Name]) -> tuple[Moment, ...]:
    """The moments that the bound events settle."""
    known = set(names)
    found = []
    for moment in graph.moments:
        if not moment.repeated and moment.base.variable in known:
            known.add(moment.name)
            found.append(moment)
    return tuple(found)


def _alone(absence: Absence, names: Collection[Name]) -> Absence:
    """What is forbidden beside a part, judged by events that have come."""
    inner = absence.graph
    seen = {*names, *inner.names}
    graph = replace(inner, times=inner.times.among(seen), positions=inner.positions.among(seen))
    return Absence(graph, Scope(stated=()), absence.item, absence.words)


def _is_judged(absence: Absence, graph: Graph, names: frozenset[Name]) -> bool:
    """Whether a forbidden match of events that have come lies in the scope, whatever is still to come."""
    inner, scope = absence.graph, absence.scope
    if inner.absences or inner.collections or inner.moments or inner.replaced or inner.positions.points:
        return False
    around = names | {moment.name for moment in _known_moments(graph, names)}
    conditions = [*inner.conditions, *(equality.condition for equality in inner.equalities)]
    spoken = frozenset(name for condition in conditions for name in variables_of(condition))
    spoken |= {point.variable for bound in (*inner.ties, *inner.premises) for point in (bound.left, bound.right)}
    if not spoken <= around | {*inner.names}:
        return False
    if scope.stated is not None:
        return {point.variable for bound in scope.stated for point in (bound.left, bound.right)} <= around | {
            *inner.names
        }
    if scope.after is None or scope.before is None or not {*scope.after.ends} <= names:
        return False
    later = {*scope.before.starts}
    return later <= names or (later.isdisjoint(names) and all(is_point(name, graph) for name in later))


def is_point(name: Name, graph: Graph) -> bool:
    """Whether a variable's events start and end together."""
    limit = graph.times.limit(end_of(name), start_of(name))
    return limit is not None and limit.whole <= 0


def _is_closed(absence: Absence, names: frozenset[Name]) -> bool:
    """Whether the scope lies between events that have come."""
    scope = absence.scope
    if scope.stated is not None or scope.after is None or scope.before is None:
        return False
    return {*scope.after.ends, *scope.before.starts} <= names
