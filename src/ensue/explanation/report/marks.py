"""The events and matches that a page shows, in the lanes of their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.api import LoadedProgram
from ensue.engine.output import render_chunk
from ensue.engine.rows import MatchChunk
from ensue.engine.sources import EventSource, Mask
from ensue.engine.views import first_streams
from ensue.errors import citing
from ensue.explanation.near_misses import moment_in_words
from ensue.explanation.nearest import OWN
from ensue.explanation.proofs import Prover
from ensue.explanation.report.lanes import (
    MATCH_ID,
    MOST_FIELDS,
    MOST_PROOFS,
    Int64s,
    Key,
    LaneGroup,
    ResultMatches,
    on_axis,
    plain,
    proof_tree,
)
from ensue.nodes.names import in_words
from ensue.plan.requirements import column_in_words


@dataclass
class Marks:
    """Events by table and row, numbered in the order of first use, with their lanes."""

    loaded: LoadedProgram
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    lanes: list[set[int]] = field(default_factory=list)

    def number(self, source: EventSource, row: int, lane: int) -> int:
        """Return the number of an event and add the event to this lane."""
        # ENDS splits the rows of a source by trace: another source, with the same rows and the same times.
        place = next(place for place, own in enumerate(self.loaded.sources) if own.starts is source.starts)
        return self._number(place, row, lane, drawn=isinstance(source.input.stream, str | None))

    def _number(self, place: int, row: int, lane: int, drawn: bool = True) -> int:
        number = self.numbers.setdefault((place, row), len(self.lanes))
        if number == len(self.lanes):
            self.lanes.append(set())
        if drawn:
            self.lanes[number].add(lane)
        return number

    def add(self, group: LaneGroup, most: int, first_matches: dict[int, int]) -> dict[int, int]:
        """Add the events of the lanes of a group, at most `most` in each; return the number of events of each lane.

        If a lane has more events, those from its first match on have priority.
        """
        places, rows, lanes, starts = [], [], [], []
        for place, source in enumerate(self.loaded.sources):
            own, own_lanes = group.rows_of(source)
            places.append(np.full(len(own), place))
            rows.append(own)
            lanes.append(own_lanes)
            starts.append(source.starts[own])
        place_of, row_of, lane_of, start_of = map(np.concatenate, (places, rows, lanes, starts))
        if not len(row_of):
            return {}
        known, counts = np.unique(lane_of, return_counts=True)
        since = np.array([first_matches.get(int(lane), np.iinfo(np.int64).min) for lane in known])
        early = start_of < since[np.searchsorted(known, lane_of)]
        order = np.lexsort((start_of, early, lane_of))
        kept = order[rank_in_runs(lane_of[order]) < most]
        for number in kept:
            self._number(int(place_of[number]), int(row_of[number]), int(lane_of[number]))
        return dict(zip(known.tolist(), counts.tolist(), strict=True))

    def shown(self) -> tuple[list[dict[str, Any]], list[list[str]]]:
        """Return the events in the order of their numbers, and the lists of field names that events share."""
        events: list[dict[str, Any]] = [{}] * len(self.lanes)
        field_names: list[list[str]] = []
        for place, source in enumerate(self.loaded.sources):
            wanted = [(row, number) for (own, row), number in self.numbers.items() if own == place]
            if wanted:
                columns = [name for name in source.input.table.column_names if not name.startswith(OWN)][:MOST_FIELDS]
                self._show(source, wanted, columns, len(field_names), events)
                lookups = self.loaded.planned.lookups
                field_names.append([column_in_words(name, source.input.stream, lookups) for name in columns])
        return events, field_names

    def _show(
        self,
        source: EventSource,
        wanted: Sequence[tuple[int, int]],
        columns: Sequence[str],
        fields: int,
        events: list[dict[str, Any]],
    ) -> None:
        rows = pa.array([row for row, _ in wanted], pa.int64())
        taken = source.input.table.select([*columns]).take(rows)
        values = zip(*(column.to_pylist() for column in taken.columns), strict=True) if columns else [()] * len(wanted)
        item, time_type = source.input, self.loaded.planned.plans[0].catalog.time_type
        if item.stream is not None:
            streams = [in_words(item.stream)] * len(wanted)
        else:
            streams = source.input.table.column(str(item.type)).take(rows).cast(pa.string()).to_pylist()
        if item.views:
            own_names = pa.array([None] * len(source.starts), pa.string())
            chosen = first_streams(source, own_names, time_type).take(rows).to_pylist()
            streams = [name or other for name, other in zip(chosen, streams, strict=True)]
        for (row, number), stream, own in zip(wanted, streams, values, strict=True):
            start, end = int(source.starts[row]), int(source.ends[row])
            events[number] = {
                "stream": str(stream),
                "start": on_axis(start, time_type),
                "end": on_axis(end, time_type),
                "lanes": sorted(self.lanes[number]),
                "fields": fields,
                "values": [plain(value) for value in own],
                **({"derived": True} if item.derived else {}),
            }


def rank_in_runs(values: Int64s) -> Int64s:
    """Return the position of each element within its run of equal elements."""
    firsts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    lengths = np.diff(np.r_[firsts, len(values)])
    return np.arange(len(values)) - np.repeat(firsts, lengths)


# --- matches of a page, each with its result row, its events and its proof

WAYS = 3
"""The maximum number of derivations of one derived event in a proof."""


@dataclass(frozen=True, slots=True)
class ShownMatches:
    """The matches of a page, and how many of them have a proof.

    For each lane there are the number of all its matches, and the start of the first one shown.
    """

    matches: list[dict[str, Any]]
    proofs: int
    totals: dict[int, int]
    first_starts: dict[int, int]


@dataclass(frozen=True, slots=True)
class Chooser:
    """Selects and formats matches. `allowed` limits the matches of each pattern, identified by key, start and end."""

    loaded: LoadedProgram
    found: Sequence[ResultMatches]
    groups: Sequence[LaneGroup]
    marks: Marks
    allowed: Mapping[str, Sequence[tuple[Key, int, int]]] | None = None

    def shown(self, most: int) -> ShownMatches:
        """Return the first matches of each pattern in each lane, `most` in total, by their start."""
        patterns, numbers, lanes = self._candidates()
        starts = np.empty(len(numbers), np.int64)
        for place, one in enumerate(self.found):
            starts[patterns == place] = one.starts[numbers[patterns == place]]
        order = np.lexsort((starts, lanes, patterns))
        rank = rank_in_runs(lanes[order] * len(self.found) + patterns[order])
        chosen = order[np.argsort(rank, kind="stable")[:most]]
        proved = {*chosen[:MOST_PROOFS].tolist()}
        by_time = chosen[np.lexsort((patterns[chosen], lanes[chosen], starts[chosen]))]
        rows = [
            _rows(one, numbers[by_time[patterns[by_time] == place]].tolist()) for place, one in enumerate(self.found)
        ]
        prover = Prover(self.loaded, WAYS)
        matches = [
            self._match(int(patterns[one]), int(numbers[one]), int(lanes[one]), rows, prover if one in proved else None)
            for one in by_time.tolist()
        ]
        known, counts = np.unique(lanes, return_counts=True)
        first: dict[int, int] = {}
        for one in by_time[::-1]:
            first[int(lanes[one])] = int(starts[one])
        return ShownMatches(matches, len(proved), dict(zip(known.tolist(), counts.tolist(), strict=True)), first)

    def _candidates(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return the matches in visible lanes: their patterns, their numbers there, and their lanes."""
        patterns, numbers, lanes = [], [], []
        for place, one in enumerate(self.found):
            group = next(group for group in self.groups if one in group.found)
            own = group.lanes(one.key_columns if len(one) else (), len(one)) if len(one) else np.empty(0, np.int64)
            wanted = np.flatnonzero((own >= 0) & self._may_be_shown(one, group, own))
            patterns.append(np.full(len(wanted), place))
            numbers.append(wanted)
            lanes.append(own[wanted])
        return np.concatenate(patterns), np.concatenate(numbers), np.concatenate(lanes)

    def _may_be_shown(self, one: ResultMatches, group: LaneGroup, lanes: Int64s) -> Mask:
        if self.allowed is None:
            return np.ones(len(one), bool)
        lane_of = {key: group.first + place for place, key in enumerate(group.shown or [()])}
        spans = [(lane_of[key], start, end) for key, start, end in self.allowed[one.name]]
        own = np.rec.fromarrays([lanes, one.starts, one.ends])
        return np.isin(own, np.array(spans, own.dtype))

    def _match(
        self, pattern: int, number: int, lane: int, rows: Sequence[Mapping[int, dict[str, Any]]], prover: Prover | None
    ) -> dict[str, Any]:
        """Describe a match; without a prover, only by its times, its row and its events."""
        one, time_type = self.found[pattern], self.loaded.planned.plans[0].catalog.time_type
        chunk, row = one.one(number), rows[pattern][number]
        proof = None
        if prover is not None:
            prover.bound.clear()
            with citing(one.plan.source):
                proof = prover.result(one.plan, chunk, one.is_head)
        bound = bound_events(chunk) if prover is None else prover.bound
        events = [self.marks.number(source, place, lane) for source, place in bound]
        start, end, complete = (int(times[number]) for times in (one.starts, one.ends, one.completions))
        span = [int(times[number]) for times in one.spans]
        return {
            "pattern": pattern,
            "lane": lane,
            "start": on_axis(start, time_type),
            "end": on_axis(end, time_type),
            "complete": on_axis(complete, time_type),
            # The events that it collects can be before its start and after its end.
            "span": None if span == [start, end] else [on_axis(tick, time_type) for tick in span],
            "words": _in_words(start, end, complete, time_type),
            "id": row.get(MATCH_ID) if one.is_named and one.output.match_id else None,
            "row": {name: plain(value) for name, value in list(row.items())[:MOST_FIELDS] if name != MATCH_ID},
            "events": list(dict.fromkeys(events)),
            "proof": None if proof is None else proof_tree(proof, [*events]),
        }


def bound_events(one: MatchChunk) -> list[tuple[EventSource, int]]:
    """Return the events of the single match of a chunk and of its lists, as tables and rows."""
    found = [(one.space, one.rows, name, 0) for name in one.plan.graph.names]
    for lists in one.rows.lists.values():
        sizes = np.cumsum([0, *(part.rows.length for part in lists.parts)])
        for number in lists.order[lists.offsets[0] : lists.offsets[1]]:
            place = int(np.searchsorted(sizes, number, side="right")) - 1
            part = lists.parts[place]
            found += [(part.space, part.rows, name, int(number - sizes[place])) for name in part.space.plan.graph.names]
    events = []
    for space, rows, name, row in found:
        candidates = space.candidates[name]
        events.append((candidates.source.origin, int(candidates.rows[rows.places[name][row]])))
    return events


def _rows(one: ResultMatches, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the result rows of matches by their numbers."""
    rows: dict[int, dict[str, Any]] = {}
    places = np.searchsorted(one.offsets, numbers, side="right") - 1
    for place in np.unique(places):
        chunk, own = one.chunks[place], np.array(numbers, np.int64)[places == place]
        chosen = replace(chunk, rows=chunk.rows.take((own - one.offsets[place]).astype(np.int32)))
        with citing(one.plan.source):
            rendered = pa.Table.from_batches([render_chunk(chosen, one.output)]).to_pylist()
        rows |= dict(zip(own.tolist(), rendered, strict=True))
    return rows


def _in_words(start: int, end: int, complete: int, time_type: pa.DataType) -> str:
    words = moment_in_words(start, time_type)
    if end != start:
        words += f" to {moment_in_words(end, time_type)}"
    return words + (f", complete at {moment_in_words(complete, time_type)}" if complete != end else "")
