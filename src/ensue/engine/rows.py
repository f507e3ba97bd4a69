"""Matches as columns: for each bound variable, the place of its event among the variable's candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ensue.engine.sources import Mask
from ensue.engine.uncertainty import Floats
from ensue.graph.bounds import WHOLE_END, WHOLE_START, Point, position_of, start_of
from ensue.graph.graphs import WindowClose
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.ranges import expand_ranges
from ensue.nodes.names import Name
from ensue.plan.plans import SLICE, GraphPlan, QueryPlan

if TYPE_CHECKING:
    from ensue.engine.probability import Lineage
    from ensue.engine.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Rows:
    """Partial matches. `origin` is the outer match that each row extends, if something is evaluated for it.

    `lists` are the collections of each row, by name. With SUPPRESS, `suppressed` has the number that each reported row
    tells. If events are uncertain, `probability` is the probability of each
    row, and `expected` has the values of RETURN that are means over worlds, by the place of the column.
    """

    length: int
    places: dict[Name, Codes]
    origin: Codes | None = None
    lists: dict[Name, Lists] = field(default_factory=dict)
    probability: Floats | None = None
    expected: dict[int, Floats] = field(default_factory=dict)
    suppressed: Int64s | None = None

    def take(self, chosen: Codes) -> Rows:
        return Rows(
            len(chosen),
            {name: places[chosen] for name, places in self.places.items()},
            None if self.origin is None else self.origin[chosen],
            {name: found.take(chosen) for name, found in self.lists.items()},
            None if self.probability is None else self.probability[chosen],
            {place: values[chosen] for place, values in self.expected.items()},
            None if self.suppressed is None else self.suppressed[chosen],
        )

    def where(self, mask: Mask) -> Rows:
        kept = np.flatnonzero(mask)
        return self if len(kept) == self.length else self.take(kept.astype(np.int32))

    def bind(self, name: Name, probes: Codes, places: Codes) -> Rows:
        """The rows `probes`, each extended by the event at its place."""
        extended = self.take(probes)
        extended.places[name] = places
        return extended


@dataclass(frozen=True, slots=True)
class Elements:
    """Matches of one graph of a collection, each with its outer match bound; `space` is where they were found."""

    space: Workspace
    rows: Rows


@dataclass(frozen=True, slots=True)
class Lists:
    """One list for each row: the elements at `order[offsets[row]:offsets[row + 1]]` among those of all `parts`."""

    parts: tuple[Elements, ...]
    order: Codes
    offsets: Int64s

    @property
    def lengths(self) -> Int64s:
        return np.diff(self.offsets)

    def take(self, chosen: Codes) -> Lists:
        first, last = self.offsets[chosen], self.offsets[chosen + 1]
        total = int((last - first).sum())
        offsets = np.concatenate([[0], np.cumsum(last - first)])
        places = np.empty(0, np.int32)
        if total:
            _, places = expand_ranges(first.astype(np.int32), last.astype(np.int32), total)
        return Lists(self.parts, self.order[places], offsets)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Concatenates the rows of all parts, which bind the same variables."""
    places = {name: np.concatenate([part.places[name] for part in parts]) for name in parts[0].places}
    lists = {name: _concatenate_lists([part.lists[name] for part in parts]) for name in parts[0].lists}
    known = [part.probability for part in parts if part.probability is not None]
    suppressed = [part.suppressed for part in parts if part.suppressed is not None]
    return Rows(
        sum(part.length for part in parts),
        places,
        lists=lists,
        probability=np.concatenate(known) if known else None,
        expected={place: np.concatenate([part.expected[place] for part in parts]) for place in parts[0].expected},
        suppressed=np.concatenate(suppressed) if suppressed else None,
    )


def concatenate_with_origin(parts: Sequence[Rows]) -> Rows:
    """Concatenates the rows of all parts, each with the match it belongs to."""
    origins = [part.origin for part in parts if part.origin is not None]
    return replace(concatenate(parts), origin=np.concatenate(origins))


def _concatenate_lists(lists: Sequence[Lists]) -> Lists:
    counts = [sum(part.rows.length for part in found.parts) for found in lists]
    begins = np.concatenate([[0], np.cumsum(counts)])
    order = np.concatenate([found.order + begin for found, begin in zip(lists, begins, strict=False)])
    lengths = np.concatenate([found.lengths for found in lists])
    return Lists(
        tuple(part for found in lists for part in found.parts),
        order.astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
    )


def expand_in_chunks(first: Codes, last: Codes, most: int) -> Iterator[tuple[Codes, Codes]]:
    """Every (probe, place) of the ranges [first, last), at most `most` pairs at a time, to bound memory."""
    counts = np.maximum(last.astype(np.int64) - first, 0)
    total = int(counts.sum())
    if total <= most:
        if total:
            yield expand_ranges(first, last, total)
        return
    yield from _expand_large(first, last, np.cumsum(counts), most)


def _expand_large(first: Codes, last: Codes, reached: Int64s, most: int) -> Iterator[tuple[Codes, Codes]]:
    begin, done = 0, 0
    while begin < len(first):
        end = int(np.searchsorted(reached, done + most, side="right"))
        if end > begin:
            total = int(reached[end - 1]) - done
            if total:
                probes, places = expand_ranges(first[begin:end], last[begin:end], total)
                yield probes + np.int32(begin), places
        else:
            yield from _expand_one(begin, int(first[begin]), int(last[begin]), most)
            end = begin + 1
        done = int(reached[end - 1])
        begin = end


def _expand_one(probe: int, first: int, last: int, most: int) -> Iterator[tuple[Codes, Codes]]:
    for begin in range(first, last, most):
        places = np.arange(begin, min(begin + most, last), dtype=np.int32)
        yield np.full(len(places), probe, np.int32), places


@dataclass(frozen=True, slots=True)
class MatchChunk:
    """Some complete matches of one graph of a query."""

    query_plan: QueryPlan
    plan: GraphPlan
    space: Workspace
    rows: Rows
    lineage: Lineage | None = None
    """The lineage of the matches, if requested."""

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
    """When each match is complete: at its last event, or when windows and reaches close the scopes open after it."""
    graph = chunk.plan.graph
    if not graph.trailing:
        return chunk.ends
    times = [_closing_times(closing, chunk, plan) for closing in graph.closings] or [chunk.ends]
    times += [chunk.space.value(deadline.point, chunk.rows) + deadline.ticks for deadline in graph.deadlines]
    latest: Int64s = np.maximum.reduce(times)
    return latest


def of_own_slice(chunks: Iterable[MatchChunk], plan: QueryPlan, width: int) -> Iterator[MatchChunk]:
    """The matches that complete in their own slice of time, so that each match is in exactly one slice."""
    for chunk in chunks:
        name, places = next(iter(chunk.rows.places.items()))
        found = chunk.space.candidates[name]
        slices = np.asarray(found.source.raw_column(SLICE).to_numpy())[found.rows[places]]
        own = chunk.where(completion_times(chunk, plan) // width == slices)
        if own.rows.length:
            yield own


def _closing_times(closing: WindowClose, chunk: MatchChunk, plan: QueryPlan) -> Int64s:
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
