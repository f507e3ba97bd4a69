"""Complete matches as the engine hands them on: places of events, graph by graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ensue.engine.rows import Rows
from ensue.engine.sources import Mask
from ensue.engine.workspace import Workspace
from ensue.graph.bounds import WHOLE_END, WHOLE_START, Point, position_of, start_of
from ensue.graph.model import Closing
from ensue.kernels.compiled import Int64s
from ensue.plan.model import GraphPlan, QueryPlan

if TYPE_CHECKING:
    from ensue.engine.probability import Lineage


@dataclass(frozen=True, slots=True)
class MatchChunk:
    """Some complete matches of one graph of a query."""

    query_plan: QueryPlan
    plan: GraphPlan
    space: Workspace
    rows: Rows
    lineage: Lineage | None = None
    """What the matches depend on, where that is asked for."""

    @property
    def starts(self) -> Int64s:
        return self.space.value(WHOLE_START, self.rows)

    @property
    def ends(self) -> Int64s:
        return self.space.value(WHOLE_END, self.rows)

    def where(self, mask: Mask) -> MatchChunk:
        return self.with_rows(self.rows.where(mask))

    def with_rows(self, rows: Rows) -> MatchChunk:
        """Other matches of the same graph."""
        return MatchChunk(self.query_plan, self.plan, self.space, rows, self.lineage)


def completion_times(chunk: MatchChunk, plan: QueryPlan) -> Int64s:
    """When each match is complete: with its last event, or when the window has closed what stays open after it."""
    closings = chunk.plan.graph.closings
    if not closings:
        return chunk.ends
    latest: Int64s = np.maximum.reduce([_closing_times(closing, chunk, plan) for closing in closings])
    return latest


def _closing_times(closing: Closing, chunk: MatchChunk, plan: QueryPlan) -> Int64s:
    windows = plan.normal_form.windows
    times = []
    if windows.ticks is not None:
        times.append(_first(map(start_of, closing.starts), chunk) + windows.ticks)
    if windows.events is not None:
        timeline = chunk.space.store.timeline
        assert timeline is not None
        last = _first(map(position_of, closing.names), chunk) + (windows.events - 1)
        times.append(timeline.end_at(chunk.space.keys(chunk.rows), last))
    first: Int64s = np.minimum.reduce(times)
    return first


def _first(points: Iterable[Point], chunk: MatchChunk) -> Int64s:
    least: Int64s = np.minimum.reduce([chunk.space.value(point, chunk.rows) for point in points])
    return least
