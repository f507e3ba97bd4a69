"""Complete matches as the engine hands them on: places of events, graph by graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ensue.engine.rows import Rows
from ensue.engine.sources import Mask
from ensue.engine.workspace import Workspace
from ensue.graph.bounds import WHOLE_END, WHOLE_FIRST, WHOLE_START
from ensue.kernels.compiled import Int64s
from ensue.plan.model import GraphPlan, QueryPlan


@dataclass(frozen=True, slots=True)
class MatchChunk:
    """Some complete matches of one graph of a query."""

    query_plan: QueryPlan
    plan: GraphPlan
    space: Workspace
    rows: Rows

    @property
    def starts(self) -> Int64s:
        return self.space.value(WHOLE_START, self.rows)

    @property
    def ends(self) -> Int64s:
        return self.space.value(WHOLE_END, self.rows)

    def where(self, mask: Mask) -> MatchChunk:
        return replace(self, rows=self.rows.where(mask))


def completion_times(chunk: MatchChunk, plan: QueryPlan) -> Int64s:
    """When each match is complete: with its last event, or when its trailing scopes have closed."""
    if not chunk.plan.graph.trailing:
        return chunk.ends
    windows = plan.normal_form.windows
    closings = []
    if windows.ticks is not None:
        closings.append(chunk.starts + windows.ticks)
    if windows.events is not None:
        timeline = chunk.space.store.timeline
        assert timeline is not None
        last = chunk.space.value(WHOLE_FIRST, chunk.rows) + (windows.events - 1)
        closings.append(timeline.end_at(chunk.space.keys(chunk.rows), last))
    first: Int64s = np.minimum.reduce(closings)
    return first
