"""The events that a stage keeps, encoded and sorted: new rows are sorted among themselves and merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ensue.engine.events import Candidates
from ensue.engine.interning import Keys
from ensue.engine.sources import EventSource, Mask
from ensue.kernels.compiled import Codes, Int64s
from ensue.kernels.sorting import keep_sorted, merge_sorted, offsets_of_runs, order_by_key_and_time

IDLE_CODES = 4096
"""So many codes more than events may lie idle before keys are numbered anew."""


class Run(NamedTuple):
    """The events of a stream that a step has looked at, by key, start and arrival; `rows` are those of its input."""

    rows: Codes
    keys: Codes
    starts: Int64s
    ends: Int64s


NOTHING = Run(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Index:
    """Runs of the streams of a stage, by the place of the input and the number of the stream in it.

    `keys` gives equal keys the same code in every step. It only grows, so that a step that fails changes nothing.
    """

    keys: Keys
    runs: Mapping[tuple[int, int], Run]

    def with_rows(self, where: tuple[int, int], rows: Codes, keys: Codes, starts: Int64s, ends: Int64s) -> Run:
        """The run of a stream with further rows; those without a key are left out."""
        before = self.runs.get(where, NOTHING)
        if not len(rows):
            return before
        order = order_by_key_and_time(keys, starts)
        order = order[np.searchsorted(keys[order], 0) :]
        more = Run(rows[order], keys[order], starts[order], ends[order])
        return Run(*merge_sorted(*before, *more)) if len(before.rows) else more

    def kept(self, runs: Mapping[tuple[int, int], Run], places: Sequence[Codes | None]) -> Index:
        """The index of the rows that have a new place, which is not below 0; None: all rows of the input stay."""
        left: dict[tuple[int, int], Run] = {}
        for where, run in runs.items():
            own = places[where[0]]
            left[where] = run if own is None else Run(*keep_sorted(*run, own))
        return replace(self, runs=left)


def candidates_of(run: Run, source: EventSource, key_count: int) -> Candidates:
    ends = run.starts if source.ends is source.starts else run.ends
    offsets = offsets_of_runs(run.keys, key_count)
    return Candidates(source, run.rows, run.keys, run.starts, ends, None, offsets)


def new_places(kept: Mask) -> Codes | None:
    """Where each row is once only some are kept, -1 for the others; None if all are."""
    if kept.all():
        return None
    places = np.cumsum(kept, dtype=np.int32)
    places -= 1
    places[~kept] = -1
    return places
