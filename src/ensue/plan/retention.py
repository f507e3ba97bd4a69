"""When an event can be forgotten, read off the closed bounds.

A match that is still to be reported completes after the watermark `w`. If every match that can use an event completes
at most `k` ticks after it, the event is of no use once `w` has reached its time plus `k`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from ensue.graph.bounds import FAR, WHOLE_FIRST, WHOLE_LAST, WHOLE_START, Network, Point, end_of, position_of, start_of
from ensue.graph.model import Graph, Windows
from ensue.names import Name
from ensue.plan.model import GraphPlan, Retention


def retention_of(plan: GraphPlan, windows: Windows, grows: bool = False) -> dict[Name, Retention]:
    """How long events are kept as each variable of a graph, the forbidden ones included.

    Where each item binds the next event that fits, one that could be it is kept as long as what it would follow. Where
    a repetition `grows`, longer matches may last longer than this graph says: only the windows end them.
    """
    kept: dict[Name, Retention] = {}
    for inner in plan.with_inner():
        for name in inner.graph.names:
            found = _by_windows(name, inner, windows) if grows else _retention(name, inner, plan, windows)
            kept[name] = longer(kept[name], found) if name in kept else found
    for earlier, later in pairwise(plan.graph.succession):
        kept[later] = longer(kept[later], kept[earlier])
    return kept


def _retention(name: Name, inner: GraphPlan, whole: GraphPlan, windows: Windows) -> Retention:
    times = inner.graph.times
    return Retention(
        _latest_completion(times, whole.graph, start_of(name), windows.ticks),
        _latest_completion(times, whole.graph, end_of(name), windows.ticks),
        _last_position(inner.graph.positions, name, whole.graph, windows.events),
    )


def _by_windows(name: Name, inner: GraphPlan, windows: Windows) -> Retention:
    """A match completes, at the latest, when the windows around it have closed."""
    times, positions = inner.graph.times, inner.graph.positions
    start, end = (times.limit(WHOLE_START, point) for point in (start_of(name), end_of(name)))
    first = positions.limit(WHOLE_FIRST, position_of(name)) if positions.points else None
    return Retention(
        None if start is None or windows.ticks is None else _near(start.value + windows.ticks),
        None if end is None or windows.ticks is None else _near(end.value + windows.ticks),
        None if first is None or windows.events is None else first.whole + windows.events - 1,
    )


def _latest_completion(times: Network, whole: Graph, point: Point, window: int | None) -> int | None:
    """The most ticks after `point` at which a match around it can complete, None if there is no such limit."""
    if not whole.closings:
        return _greatest(_limits(times, map(end_of, whole.extent.ends), point))
    starts = [_least(_limits(times, map(start_of, closing.starts), point)) for closing in whole.closings]
    return _greatest(None if start is None or window is None else _near(start + window) for start in starts)


def _last_position(positions: Network, name: Name, whole: Graph, window: int | None) -> int | None:
    """The most positions after an event at which a match around it can complete; a moment comes at none."""
    point = position_of(name)
    if not positions.points or whole.moments:
        return None
    if not whole.closings:
        limit = positions.limit(WHOLE_LAST, point)
        last = _greatest(_limits(positions, map(position_of, whole.names), point))
        return last if limit is None else limit.whole
    firsts = [_least(_limits(positions, map(position_of, closing.names), point)) for closing in whole.closings]
    return _greatest(None if first is None or window is None else first + window - 1 for first in firsts)


def _limits(times: Network, points: Iterable[Point], origin: Point) -> Iterator[int | None]:
    for point in points:
        limit = times.limit(point, origin)
        yield None if limit is None else _near(limit.value)


def _least(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _near(ticks: int) -> int | None:
    """Beyond FAR there is no limit."""
    return max(-FAR, ticks) if ticks < FAR else None


def _greatest(limits: Iterable[int | None]) -> int | None:
    found = list(limits)
    return None if any(limit is None for limit in found) else max(limit for limit in found if limit is not None)


def longer(one: Retention, other: Retention) -> Retention:
    """What keeps an event as long as either does."""
    return Retention(
        _greatest((one.from_start, other.from_start)),
        _greatest((one.from_end, other.from_end)),
        _greatest((one.positions, other.positions)),
    )
