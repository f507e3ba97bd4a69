"""When matches complete although no event comes: windows that close, and moments that a pattern makes itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd

from ensue.graph.graphs import Graph, Moment
from ensue.nodes.names import Name, Stream
from ensue.plan.plans import QueryPlan


@dataclass(frozen=True, slots=True)
class Wake:
    """A match may complete `ticks` after the start or end (`side`) of an event of `stream`.

    With a `period`, also every so often after that.
    """

    stream: Stream
    side: str
    ticks: int
    period: int | None = None


def wakes_of(plan: QueryPlan) -> tuple[Wake, ...]:
    """Every way in which a match of a plan can complete after its last event."""
    found = [wake for graph_plan in plan.graphs for wake in _wakes(graph_plan.graph, plan)]
    return tuple(dict.fromkeys(found))


def _wakes(graph: Graph, plan: QueryPlan) -> Iterator[Wake]:
    streams = {variable.name: variable.stream for variable in graph.variables}
    window = plan.normal_form.windows.ticks
    if graph.closings:
        if window is not None:
            starts = dict.fromkeys(name for closing in graph.closings for name in closing.starts)
            yield from (Wake(streams[name], "s", window) for name in starts)
        return
    moments = {moment.name: moment for moment in graph.moments}
    yield from (_of_moment(name, moments, streams) for name in graph.extent.ends if name in moments)


def _of_moment(name: Name, moments: Mapping[Name, Moment], streams: Mapping[Name, Stream]) -> Wake:
    """A moment by way of the event that it is some time after; where several come again, the least common step."""
    ticks, period, side = 0, 0, "e"
    while name in moments:
        moment = moments[name]
        ticks += moment.ticks
        period = gcd(period, moment.ticks) if moment.repeated else period
        name, side = moment.base.variable, moment.base.side
    return Wake(streams[name], side, ticks, period or None)


def is_endless(plan: QueryPlan) -> bool:
    """Whether some moments of a plan go on as far as time is known."""
    return any(not moment.ended for graph_plan in plan.graphs for moment in graph_plan.graph.repeated)
