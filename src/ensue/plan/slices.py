"""Cutting time into slices, so that the events of one group can be worked on in many places at once.

A match belongs to the slice in which it completes. The bounds say how long after an event a match around it can
complete, so an event is needed in the slice of its end and, at most, in the one in which that time lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ensue.nodes.names import Stream
from ensue.nodes.operators import CONTEXTS
from ensue.plan.plans import QueryPlan, Retention
from ensue.plan.retention import longer

OVERLAPS_PER_SLICE = 16
"""A slice is so many times as long as the longest reach of an event: few events are needed twice."""

LONGEST_SLICE = 2**60
"""Beyond this the start of the next slice could not be counted."""


@dataclass(frozen=True, slots=True)
class Slicing:
    """Slices of `width` ticks. `reach` says per stream how long after an event a match around it can complete."""

    width: int
    reach: Mapping[Stream, Retention]

    @property
    def overlap(self) -> int:
        """The most ticks for which an event is needed after its time."""
        return max([0, *map(_ticks, self.reach.values())])


def slicing_of(plans: Sequence[QueryPlan]) -> Slicing | None:
    """The slices that serve all these plans; None where a match can be of any length, or whole groups are looked at."""
    reach: dict[Stream, Retention] = {}
    for plan in plans:
        for stream, kept in reach_of_streams(plan):
            reach[stream] = longer(reach[stream], kept) if stream in reach else kept
    if any(map(uncut_reason, plans)) or not all(map(_is_timed, reach.values())):
        return None
    width = max(1, OVERLAPS_PER_SLICE * max([0, *map(_ticks, reach.values())]))
    return Slicing(width, reach) if width <= LONGEST_SLICE else None


def uncut_reason(plan: QueryPlan) -> str:
    """Why the events of a group have to be looked at as a whole; empty if they need not."""
    if plan.counting:
        return "positions are counted"
    if plan.law is not None:
        return "traces are watched as a whole"
    chosen = plan.query.policy in CONTEXTS or plan.query.consume
    return "what a match uses up is gone for all later ones" if chosen else ""


def reach_of_streams(plan: QueryPlan) -> Iterator[tuple[Stream, Retention]]:
    """Every stream of a plan with what keeps its events, once for each variable."""
    for number, graph_plan in enumerate(plan.graphs):
        for inner in graph_plan.with_inner():
            for variable in inner.graph.variables:
                yield variable.stream, plan.retention[number, variable.name]


def _is_timed(kept: Retention) -> bool:
    return kept.from_start is not None or kept.from_end is not None


def _ticks(kept: Retention) -> int:
    return min(limit for limit in (kept.from_start, kept.from_end) if limit is not None)
