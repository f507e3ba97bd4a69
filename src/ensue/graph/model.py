"""The normal form: a union of event graphs.

A graph is a set of variables, the closed network of bounds between their endpoints, the conditions that are left, and
absences: graphs of their own whose bounds may mention the points around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ensue.expr.nodes import Expr, Field
from ensue.graph.bounds import Bound, Network


@dataclass(frozen=True, slots=True)
class Variable:
    """An event to be bound: its stream and what it must satisfy by itself."""

    name: str
    stream: str
    predicates: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Equality:
    """A condition `left = right` between fields of two variables: a join key."""

    left: Field
    right: Field
    condition: Expr


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a (composite) item begins and ends: its interval is min of `starts` .. max of `ends`."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """A conjunction: every variable bound, every bound and condition true, no absence violated.

    `times` and `positions` are closed together with the points of the graphs around this one. `ties` are the bounds
    that a condition states between this graph and the ones around it; `intervals` are the AS names bound here.
    `trailing` says that some scope stays open after the last event, so that a match completes with its window.
    """

    variables: tuple[Variable, ...]
    extent: Extent
    times: Network
    positions: Network
    conditions: tuple[Expr, ...]
    equalities: tuple[Equality, ...]
    absences: tuple[Absence, ...]
    ties: tuple[Bound, ...] = ()
    intervals: Mapping[str, Extent] = field(default_factory=dict)
    trailing: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(variable.name for variable in self.variables)


@dataclass(frozen=True, slots=True)
class Absence:
    """No match of `graph` may exist whose interval lies in the scope.

    `after` and `before` are the neighbours between which the forbidden interval lies strictly. None is an edge of the
    whole match: on the left its window closes the scope at M.e - W; on the right, M.s + W if `trailing`, otherwise M.e.
    """

    graph: Graph
    after: Extent | None
    before: Extent | None
    trailing: bool
    text: str


@dataclass(frozen=True, slots=True)
class Windows:
    """The WITHIN of the whole match: in ticks, in events, both or neither."""

    ticks: int | None = None
    events: int | None = None


@dataclass(frozen=True, slots=True)
class NormalForm:
    """What a query means: the union of its graphs. A graph that can never match is left out and listed in `dropped`."""

    graphs: tuple[Graph, ...]
    windows: Windows
    dropped: tuple[str, ...] = ()
