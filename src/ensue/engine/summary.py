"""Absence without enumeration: for each start, the earliest time at which a forbidden match completes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ensue.engine.events import FOREVER, NEVER, Candidates
from ensue.engine.rows import Rows
from ensue.engine.workspace import Workspace
from ensue.graph.bounds import end_of, start_of
from ensue.kernels.compiled import Codes, Int64s
from ensue.kernels.minima import lower_to, sliding_minimum, suffix_minimum
from ensue.kernels.ranges import find_ranges, value_from, value_until
from ensue.kernels.sorting import group_by_key, order_by_time
from ensue.names import Name


@dataclass(frozen=True, slots=True)
class Summary:
    """Per key, the starts of forbidden matches in order, and at each the earliest completion of those from there on.

    Both arrays rise within a key, so each can be searched by the other.
    """

    offsets: Int64s
    starts: Int64s
    completions: Int64s

    def earliest_completion(self, keys: Codes, lower: Int64s) -> Int64s:
        """The earliest completion among the forbidden matches that start at or after `lower`."""
        return value_from(keys, lower, self.offsets, self.starts, self.completions, FOREVER)

    def latest_start(self, keys: Codes, upper: Int64s) -> Int64s:
        """The latest start among the forbidden matches that complete at or before `upper`."""
        return value_until(keys, upper, self.offsets, self.completions, self.starts, NEVER)


def summarize_chain(space: Workspace, chain: tuple[Name, ...]) -> Summary:
    """The summary of a sequence: from the last item backwards, the least over the successors in range."""
    times = space.plan.graph.times
    completions = space.candidates[chain[-1]].ends
    for name, following in reversed(list(pairwise(chain))):
        here, there = space.candidates[name], space.candidates[following]
        gap = times.limit(start_of(name), start_of(following))
        reach = times.limit(start_of(following), start_of(name))
        assert gap is not None
        lows = here.starts - gap.whole
        highs = np.full(len(here), FOREVER, np.int64) if reach is None else here.starts + reach.whole
        first, last = find_ranges(here.keys, lows, highs, there.offsets, there.starts)
        completions = sliding_minimum(completions, first, last, FOREVER)
    starts = space.candidates[chain[0]]
    total = times.limit(end_of(chain[-1]), start_of(chain[0]))
    possible = completions < FOREVER
    if total is not None and len(chain) > 1:
        possible &= completions <= starts.starts + total.whole
    if not possible.all():
        completions = completions[possible]
        starts = starts.select(possible)
    return Summary(starts.offsets, starts.starts, suffix_minimum(completions, starts.offsets))


def summarize_matches(space: Workspace, matches: Iterable[Rows]) -> Summary:
    """The summary of forbidden matches that are enumerated: only the earliest completion per starting event is kept."""
    extent = space.plan.graph.extent
    earliest = {name: np.full(len(space.candidates[name]), FOREVER, np.int64) for name in extent.starts}
    for rows in matches:
        ends = np.maximum.reduce([space.value(end_of(name), rows) for name in extent.ends])
        starts = {name: space.value(start_of(name), rows) for name in extent.starts}
        least = np.minimum.reduce(list(starts.values()))
        for name, values in starts.items():
            first = values == least
            lower_to(earliest[name], rows.places[name][first], ends[first])
    return _merge([(space.candidates[name], found) for name, found in earliest.items()], space.store.key_count)


def _merge(parts: list[tuple[Candidates, Int64s]], key_count: int) -> Summary:
    kept = [completions < FOREVER for _, completions in parts]
    keys = np.concatenate([found.keys[mask] for (found, _), mask in zip(parts, kept, strict=True)])
    starts = np.concatenate([found.starts[mask] for (found, _), mask in zip(parts, kept, strict=True)])
    completions = np.concatenate([ends[mask] for (_, ends), mask in zip(parts, kept, strict=True)])
    if len(parts) > 1:
        order = order_by_time(starts)
        keys, starts, completions = keys[order], starts[order], completions[order]
    order, offsets = group_by_key(keys, key_count)
    return Summary(offsets, starts[order], suffix_minimum(completions[order], offsets))
