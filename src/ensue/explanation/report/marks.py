"""The events of a page, each once, in the lanes of its keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.api import Loaded
from ensue.engine.sources import EventSource
from ensue.explanation.proofs import OWN
from ensue.explanation.report.found import Int64s
from ensue.explanation.report.lanes import LaneGroup
from ensue.explanation.report.limits import MOST_FIELDS
from ensue.explanation.report.values import on_axis, plain
from ensue.nodes.names import in_words
from ensue.plan.requirements import column_in_words


@dataclass
class Marks:
    """Events by table and row, numbered as they are first asked for, with the lanes that they stand in."""

    loaded: Loaded
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    lanes: list[set[int]] = field(default_factory=list)

    def number(self, source: EventSource, row: int, lane: int) -> int:
        """The number of an event, which from now on stands in this lane too."""
        place = next(place for place, own in enumerate(self.loaded.sources) if own is source)
        return self._number(place, row, lane, drawn=isinstance(source.input.stream, str | None))

    def _number(self, place: int, row: int, lane: int, drawn: bool = True) -> int:
        number = self.numbers.setdefault((place, row), len(self.lanes))
        if number == len(self.lanes):
            self.lanes.append(set())
        if drawn:
            self.lanes[number].add(lane)
        return number

    def add(self, group: LaneGroup, most: int, first_matches: dict[int, int]) -> dict[int, int]:
        """The events of the lanes of a group, `most` in each at most; gives how many there are in each.

        Where a lane has more, those from its first match on come first.
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
        """The events in the order of their numbers, and the names of fields that several of them share."""
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
            streams = source.input.table.column(str(item.type)).take(rows).to_pylist()
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
    """The number of each element within its run of equal ones."""
    firsts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    lengths = np.diff(np.r_[firsts, len(values)])
    return np.arange(len(values)) - np.repeat(firsts, lengths)
