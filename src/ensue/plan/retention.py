"""How long events are kept, how time is sliced, and when matches complete without an event: all derived from the closed
bounds.

A match that is not reported yet completes after the watermark `w`. If every match that can use an event completes at
most `k` ticks after it, the event is not needed once `w` has reached its time plus `k`.

If the closed bounds require an event of one variable to end no later than that of another, all its possible partners
have come when the later one is evaluated. Without a partner it can never match, so it is neither kept nor evaluated
until there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

from ensue.graph import bounds
from ensue.graph.graphs import Graph, Moment, Windows
from ensue.nodes.names import Name, Stream
from ensue.nodes.patterns import CONTEXTS
from ensue.plan.plans import GraphPlan, Partner, QueryPlan, Retention


def retention_of(plan: GraphPlan, windows: Windows) -> dict[Name, Retention]:
    """How long events are kept for each variable of a graph, including the forbidden ones.

    If each item binds the next event that fits, an event that could be it is kept as long as the event that it would
    follow.
    """
    kept: dict[Name, Retention] = {}
    for inner in plan.with_inner():
        for name in inner.graph.names:
            times, positions = inner.graph.times, inner.graph.positions
            found = Retention(
                _latest_completion(times, plan.graph, bounds.start_of(name), windows.ticks),
                _latest_completion(times, plan.graph, bounds.end_of(name), windows.ticks),
                _last_position(positions, name, plan.graph, windows.events) if positions.points else None,
            )
            kept[name] = longer(kept[name], found) if name in kept else found
    for earlier, later in pairwise(plan.graph.succession):
        kept[later] = longer(kept[later], kept[earlier])
    return kept


def _latest_completion(times: bounds.Network, whole: Graph, point: bounds.Point, window: int | None) -> int | None:
    """The maximum number of ticks after `point` at which a match around it can complete; None: no limit."""
    ends = [] if whole.closings else [_limit(times, bounds.end_of(name), point) for name in whole.extent.ends]
    starts = [
        _least(_limit(times, bounds.start_of(name), point) for name in closing.starts) for closing in whole.closings
    ]
    ends += [None if start is None or window is None else _near(start + window) for start in starts]
    for deadline in whole.deadlines:
        distance = _limit(times, deadline.point, point)
        ends.append(None if distance is None else _near(distance + deadline.ticks))
    return _greatest(ends)


def _last_position(positions: bounds.Network, name: Name, whole: Graph, window: int | None) -> int | None:
    """The maximum number of positions after an event at which a match around it can complete; moments and
    reaches have no position."""
    point = bounds.position_of(name)
    if whole.moments or whole.deadlines:
        return None
    if not whole.closings:
        limit = positions.limit(bounds.WHOLE_LAST, point)
        last = _greatest([_limit(positions, bounds.position_of(other), point) for other in whole.names])
        return last if limit is None else limit.whole
    firsts = [
        _least(_limit(positions, bounds.position_of(other), point) for other in closing.names)
        for closing in whole.closings
    ]
    return _greatest([None if first is None or window is None else first + window - 1 for first in firsts])


def _limit(times: bounds.Network, point: bounds.Point, origin: bounds.Point) -> int | None:
    limit = times.limit(point, origin)
    return None if limit is None or limit.value >= bounds.FAR else max(-bounds.FAR, limit.value)


def _least(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _near(ticks: int) -> int | None:
    """The limit, or None if it is beyond FAR."""
    return max(-bounds.FAR, ticks) if ticks < bounds.FAR else None


def _greatest(limits: Sequence[int | None]) -> int | None:
    return None if None in limits else max(limit for limit in limits if limit is not None)


def longer(one: Retention, other: Retention) -> Retention:
    """The retention that keeps an event as long as either of the two does."""
    return Retention(
        _greatest((one.from_start, other.from_start)),
        _greatest((one.from_end, other.from_end)),
        _greatest((one.positions, other.positions)),
    )


def partners_of(plan: GraphPlan) -> dict[Name, tuple[Partner, ...]]:
    """For each variable of a graph and of those inside it, the variables whose events must have come before."""
    found: dict[Name, tuple[Partner, ...]] = {}
    for inner in plan.with_inner():
        times = inner.graph.times
        for name in inner.graph.names:
            own = []
            for other in plan.graph.names:
                limit = times.limit(bounds.end_of(other), bounds.end_of(name)) if other != name else None
                if limit is not None and limit.value <= 0:
                    earliest = times.limit(bounds.start_of(name), bounds.start_of(other))
                    latest = times.limit(bounds.start_of(other), bounds.start_of(name))
                    least = None if earliest is None else -earliest.whole
                    own.append(Partner(other, least, None if latest is None else latest.whole))
            known = found.get(name)
            found[name] = tuple(own) if known is None else tuple(partner for partner in own if partner in known)
    return found


# --- time slices, so that the events of one group can be processed in parallel

OVERLAPS_PER_SLICE = 16
"""The length of a slice as a multiple of the longest reach of an event, so that few events are needed in two slices."""

LONGEST_SLICE = 2**60
"""The maximum length of a slice: beyond it the start of the next slice would overflow."""


@dataclass(frozen=True, slots=True)
class TimeSlices:
    """Slices of `width` ticks. `reach` is, for each stream, how long after an event a match with it can complete."""

    width: int
    reach: Mapping[Stream, Retention]

    @property
    def overlap(self) -> int:
        """The maximum number of ticks for which an event is needed after its time."""
        return max([0, *map(_ticks, self.reach.values())])


def slicing_of(plans: Sequence[QueryPlan]) -> TimeSlices | None:
    """The slices that serve all these plans; None if matches have no maximum duration, or whole groups are needed."""
    reach: dict[Stream, Retention] = {}
    for plan in plans:
        for stream, kept in reach_of_streams(plan):
            reach[stream] = longer(reach[stream], kept) if stream in reach else kept
    if any(map(uncut_reason, plans)) or not all(map(_is_timed, reach.values())):
        return None
    width = max(1, OVERLAPS_PER_SLICE * max([0, *map(_ticks, reach.values())]))
    return TimeSlices(width, reach) if width <= LONGEST_SLICE else None


def uncut_reason(plan: QueryPlan) -> str:
    """Why the events of a group cannot be sliced; empty if they can."""
    if plan.counting:
        return "the query uses the positions of events"
    if plan.law is not None:
        return "constraints apply to whole traces"
    if plan.query.suppress is not None:
        return "SUPPRESS depends on the matches before"
    chosen = plan.query.policy in CONTEXTS or plan.query.consume
    return "an event that one match uses up is not available to later matches" if chosen else ""


def reach_of_streams(plan: QueryPlan) -> Iterator[tuple[Stream, Retention]]:
    """Every stream of a plan with the retention of its events, once for each variable."""
    for number, graph_plan in enumerate(plan.graphs):
        for inner in graph_plan.with_inner():
            for variable in inner.graph.variables:
                yield variable.stream, plan.retention[number, variable.name]


def _is_timed(kept: Retention) -> bool:
    return kept.from_start is not None or kept.from_end is not None


def _ticks(kept: Retention) -> int:
    return min(limit for limit in (kept.from_start, kept.from_end) if limit is not None)


# --- matches that complete without an event


@dataclass(frozen=True, slots=True)
class Wake:
    """A match may complete `ticks` after the start or end (`side`) of an event of `stream`.

    With a `period`, also at each multiple of it after that.
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
    for deadline in graph.deadlines:
        yield Wake(streams[deadline.point.variable], "e", deadline.ticks)
    if graph.closings:
        if window is not None:
            starts = dict.fromkeys(name for closing in graph.closings for name in closing.starts)
            yield from (Wake(streams[name], "s", window) for name in starts)
        return
    moments = {moment.name: moment for moment in graph.moments}
    yield from (_of_moment(name, moments, streams) for name in graph.extent.ends if name in moments)


def _of_moment(name: Name, moments: Mapping[Name, Moment], streams: Mapping[Name, Stream]) -> Wake:
    """A moment in terms of the event that it follows; if several moments repeat, with their common period."""
    ticks, period, side = 0, 0, "e"
    while name in moments:
        moment = moments[name]
        ticks += moment.ticks
        period = gcd(period, moment.ticks) if moment.repeated else period
        name, side = moment.base.variable, moment.base.side
    return Wake(streams[name], side, ticks, period or None)


def is_endless(plan: QueryPlan) -> bool:
    """Whether some moments of a plan repeat as far as time is known."""
    return any(not moment.ended for graph_plan in plan.graphs for moment in graph_plan.graph.repeated)
