"""What a run still waits for: choices of kept events that later ones can complete, and what these would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ensue.engine.events import FOREVER, NEVER, EventStore
from ensue.engine.goals import are_among
from ensue.engine.machine import Look
from ensue.engine.retention import last_positions
from ensue.engine.rows import MatchChunk, completion_times
from ensue.engine.sources import Mask
from ensue.graph.bounds import Limit, Point, end_of, position_of, start_of
from ensue.graph.graphs import Graph
from ensue.kernels.compiler import Int64s
from ensue.nodes.names import Name, in_order
from ensue.plan.openings import Opening, is_point, openings_of
from ensue.plan.planner import plan_graph
from ensue.plan.plans import QueryPlan

Listed = tuple[frozenset[Name], Sequence[Name], Int64s]
"""The variables of choices that are listed, in order, and the rows of their events."""


@dataclass(frozen=True, slots=True)
class Goals:
    """Choices of events of one kind. Without an `opening` all events are there, and a moment is waited for.

    `after` is the earliest start of each awaited variable and `until` the latest moment at which what is awaited can
    come, NEVER and FOREVER where there is none.
    """

    chunk: MatchChunk
    opening: Opening | None
    after: dict[Name, Int64s]
    until: Int64s
    open: tuple[str, ...]


def open_goals(look: Look, plan: QueryPlan) -> Iterator[Goals]:
    """The open goals of one plan of a stage in what it keeps, those with more events first."""
    if look.watermark is None or plan.tracking is not None:
        return
    everything, settled = look.events(plan), look.events(plan, look.watermark)
    for graph_plan in plan.graphs:
        listed: list[Listed] = []
        for chunk in look.choices(replace(plan, graphs=(graph_plan,)), everything, look.watermark):
            listed.append(_listed(chunk))
            yield Goals(chunk, None, {}, completion_times(chunk, plan), _still_forbidden(graph_plan.graph))
        for opening in openings_of(graph_plan.graph):
            yield from _goals_of(opening, plan, look, settled, listed)


def _goals_of(
    opening: Opening, plan: QueryPlan, look: Look, settled: EventStore, listed: list[Listed]
) -> Iterator[Goals]:
    """The choices for one part of a graph that can still be completed and that no listed one extends."""
    assert look.watermark is not None
    part = plan_graph(opening.part, opening.part, plan.normal_form, ())
    found = []
    for chunk in look.choices(replace(plan, graphs=(part,)), settled):
        kept = chunk.where(_can_be_completed(opening, chunk, settled, look.watermark))
        kept = kept.where(~_is_extended(kept, listed)) if kept.rows.length else kept
        if kept.rows.length:
            found.append(_listed(kept))
            yield _goals(opening, kept, look.watermark)
    listed += found


def _goals(opening: Opening, chunk: MatchChunk, watermark: int) -> Goals:
    after = {name: _earliest(opening.whole, start_of(name), chunk) for name in opening.awaited}
    for name in opening.awaited:
        if is_point(name, opening.whole):
            after[name] = np.maximum(after[name], watermark + 1)
    latest = [_latest(opening.whole, end_of(name), chunk) for name in opening.awaited]
    until: Int64s = np.minimum.reduce(latest)
    return Goals(chunk, opening, after, until, opening.open)


def _can_be_completed(opening: Opening, chunk: MatchChunk, store: EventStore, watermark: int) -> Mask:
    """Whether every event that is missing can still come: it ends after the watermark, and at a later position."""
    possible = np.ones(chunk.rows.length, bool)
    for name in opening.missing:
        possible &= _latest(opening.whole, end_of(name), chunk) > watermark
    if opening.whole.positions.points:
        last = last_positions(store)[chunk.space.keys(chunk.rows)]
        for name in opening.missing:
            for other in chunk.plan.graph.names:
                limit = opening.whole.positions.limit(position_of(name), position_of(other))
                if limit is not None:
                    possible &= chunk.space.value(position_of(other), chunk.rows) + limit.whole > last
    return possible


def _points(chunk: MatchChunk) -> list[Point]:
    return [point for name in chunk.plan.graph.names for point in (start_of(name), end_of(name))]


def _latest(graph: Graph, point: Point, chunk: MatchChunk) -> Int64s:
    """The latest moment that the bound events leave to a point."""
    latest = np.full(chunk.rows.length, FOREVER, np.int64)
    for known in _points(chunk):
        limit = graph.times.limit(point, known)
        if limit is not None:
            latest = np.minimum(latest, chunk.space.value(known, chunk.rows) + limit.whole)
    return latest


def _earliest(graph: Graph, point: Point, chunk: MatchChunk) -> Int64s:
    """The earliest moment that the bound events leave to a point."""
    earliest = np.full(chunk.rows.length, NEVER, np.int64)
    for known in _points(chunk):
        limit: Limit | None = graph.times.limit(known, point)
        if limit is not None:
            earliest = np.maximum(earliest, chunk.space.value(known, chunk.rows) - limit.whole)
    return earliest


def _listed(chunk: MatchChunk) -> Listed:
    names = in_order(chunk.plan.graph.names)
    return frozenset(names), names, _rows(chunk, names)


def _rows(chunk: MatchChunk, names: Sequence[Name]) -> Int64s:
    """The rows of the tables that each choice binds."""
    columns = [chunk.space.candidates[name].rows[chunk.rows.places[name]] for name in names]
    return np.stack(columns, axis=1).astype(np.int64)


def _is_extended(chunk: MatchChunk, listed: Sequence[Listed]) -> Mask:
    """Which choices are part of one that is listed."""
    names = in_order(chunk.plan.graph.names)
    mine, extended = _rows(chunk, names), np.zeros(chunk.rows.length, bool)
    for held, order, rows in listed:
        if held > {*names}:
            extended |= are_among(mine, rows[:, [order.index(name) for name in names]])
    return extended


def _still_forbidden(graph: Graph) -> tuple[str, ...]:
    """The absences that are open after the last event."""
    moments = {moment.name for moment in graph.moments}
    texts = []
    for absence in graph.absences:
        stated = absence.scope.stated or ()
        timed = any({bound.left.variable, bound.right.variable} & moments for bound in stated)
        if absence.scope.trailing or timed:
            texts.append(absence.text)
    return tuple(dict.fromkeys(texts))
