"""Which events wait for a partner: as long as none is there, they are neither kept nor looked at.

Where the closed bounds say that an event of one variable has to end no later than one of another, all that could be
its partner have come when the later one is looked at. Without a partner it is of no use, whatever comes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ensue.graph.bounds import Network, Point, end_of, start_of
from ensue.names import Name
from ensue.plan.model import GraphPlan, Partner


def partners_of(plan: GraphPlan) -> dict[Name, tuple[Partner, ...]]:
    """For the variables of a graph and of those forbidden or listed in it, whose events have to be there before."""
    found: dict[Name, tuple[Partner, ...]] = {}
    for inner in plan.with_inner():
        for name in inner.graph.names:
            own = tuple(_partners(name, plan, inner.graph.times))
            known = found.get(name)
            found[name] = own if known is None else tuple(partner for partner in own if partner in known)
    return found


def _partners(name: Name, whole: GraphPlan, times: Network) -> Iterator[Partner]:
    for other in whole.graph.names:
        if other == name or not all(point in times.points for point in (end_of(other), end_of(name))):
            continue
        limit = times.limit(end_of(other), end_of(name))
        if limit is not None and limit.value <= 0:
            yield Partner(other, *_range(other, name, times))


def _range(other: Name, name: Name, times: Network) -> tuple[int | None, int | None]:
    """The least and the greatest start of the partner, relative to the start of the event."""
    return (
        _negative(times, start_of(name), start_of(other)),
        None if (limit := times.limit(start_of(other), start_of(name))) is None else limit.whole,
    )


def _negative(times: Network, left: Point, right: Point) -> int | None:
    limit = times.limit(left, right)
    return None if limit is None else -limit.whole
