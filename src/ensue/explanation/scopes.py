"""The scope of a NOT in a match: the bounds that the events of the match set for forbidden events."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ensue.engine.rows import MatchChunk
from ensue.explanation.near_misses import moment_in_words
from ensue.graph.bounds import WHOLE_END, WHOLE_START, Point, end_of, start_of
from ensue.plan.plans import GraphPlan

Edge = tuple[int, bool] | None
"""A bound in ticks, and whether it is excluded; None if there is none."""


def scope_edges(inner: GraphPlan, one: MatchChunk) -> tuple[list[Edge], list[Edge]]:
    """Return the lower and the upper bound of each forbidden event in the scope of a single match."""
    points = [point for name in one.plan.graph.names for point in (start_of(name), end_of(name))]
    points += [WHOLE_START, WHOLE_END]
    names = inner.graph.names
    lows = [_edge(inner, start_of(name), points, one, least=True) for name in names]
    highs = [_edge(inner, end_of(name), points, one, least=False) for name in names]
    return lows, highs


def _edge(inner: GraphPlan, point: Point, outer: Sequence[Point], one: MatchChunk, least: bool) -> Edge:
    """Return the bound that the match sets for a point of a forbidden event."""
    times = inner.graph.times
    found: list[tuple[int, int, bool]] = []
    for known in outer:
        limit = times.limit(known, point) if least else times.limit(point, known)
        if limit is not None:
            value = int(one.space.value(known, one.rows)[0])
            exact = value - limit.value if least else value + limit.value
            whole = value - limit.whole if least else value + limit.whole
            found.append((whole, exact, limit.strict))
    if not found:
        return None
    _, exact, strict = max(found) if least else min(found)
    return exact, strict


def scope_in_words(lows: Sequence[Edge], highs: Sequence[Edge], time_type: pa.DataType) -> str:
    """Format a scope: `after 1 before 5`; empty if nothing bounds it."""
    return " ".join(word for word in (_outermost(lows, True, time_type), _outermost(highs, False, time_type)) if word)


def _outermost(edges: Sequence[Edge], least: bool, time_type: pa.DataType) -> str:
    known = [edge for edge in edges if edge is not None]
    if len(known) < len(edges) or not known:
        return ""
    value, strict = min(known) if least else max(known)
    words = ("after" if strict else "from") if least else ("before" if strict else "to")
    return f"{words} {moment_in_words(value, time_type)}"
