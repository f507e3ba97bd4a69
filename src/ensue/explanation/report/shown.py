"""Which matches a page shows, each with its row of the result, its events and what proves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.api import Loaded
from ensue.engine.output import render_chunk
from ensue.engine.sources import Mask
from ensue.errors import citing
from ensue.explanation.proofs import Prover
from ensue.explanation.report.found import MATCH_ID, Found, Int64s
from ensue.explanation.report.lanes import Key, LaneGroup
from ensue.explanation.report.limits import MOST_FIELDS
from ensue.explanation.report.marks import Marks, rank_in_runs
from ensue.explanation.report.values import on_axis, plain, proof_tree
from ensue.explanation.words import moment_in_words

WAYS = 3
"""Ways to one derived event that a proof shows."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The matches of a page; of each lane how many it has in all, and when the first of those shown starts."""

    matches: list[dict[str, Any]]
    totals: dict[int, int]
    first_starts: dict[int, int]


@dataclass(frozen=True, slots=True)
class Chooser:
    """Chooses and shows matches. `allowed` are those of each pattern that may be shown, where not all may.

    They are known by their keys, starts and ends.
    """

    loaded: Loaded
    found: Sequence[Found]
    groups: Sequence[LaneGroup]
    marks: Marks
    allowed: Mapping[str, Sequence[tuple[Key, int, int]]] | None = None

    def shown(self, most: int) -> Shown:
        """The first matches of each pattern in each lane, `most` in all."""
        patterns, numbers, lanes = self._candidates()
        starts = np.concatenate(
            [self.found[place].starts[numbers[patterns == place]] for place in range(len(self.found))]
        )
        order = np.lexsort((starts, lanes, patterns))
        rank = rank_in_runs(lanes[order] * len(self.found) + patterns[order])
        chosen = order[np.argsort(rank, kind="stable")[:most]]
        prover = Prover(self.loaded, WAYS)
        by_time = chosen[np.lexsort((starts[chosen], lanes[chosen]))]
        matches = [self._match(prover, int(patterns[one]), int(numbers[one]), int(lanes[one])) for one in by_time]
        known, counts = np.unique(lanes, return_counts=True)
        first: dict[int, int] = {}
        for one in by_time[::-1]:
            first[int(lanes[one])] = int(starts[one])
        return Shown(matches, dict(zip(known.tolist(), counts.tolist(), strict=True)), first)

    def _candidates(self) -> tuple[Int64s, Int64s, Int64s]:
        """The matches in lanes that are shown: their patterns, their numbers there, and their lanes."""
        patterns, numbers, lanes = [], [], []
        for place, one in enumerate(self.found):
            group = next(group for group in self.groups if one in group.found)
            own = group.lanes(one.key_columns if len(one) else (), len(one)) if len(one) else np.empty(0, np.int64)
            wanted = np.flatnonzero((own >= 0) & self._may_be_shown(one, group, own))
            patterns.append(np.full(len(wanted), place))
            numbers.append(wanted)
            lanes.append(own[wanted])
        return np.concatenate(patterns), np.concatenate(numbers), np.concatenate(lanes)

    def _may_be_shown(self, one: Found, group: LaneGroup, lanes: Int64s) -> Mask:
        if self.allowed is None:
            return np.ones(len(one), bool)
        lane_of = {key: group.first + place for place, key in enumerate(group.shown or [()])}
        spans = [(lane_of[key], start, end) for key, start, end in self.allowed[one.name]]
        own = np.rec.fromarrays([lanes, one.starts, one.ends])
        return np.isin(own, np.array(spans, own.dtype))

    def _match(self, prover: Prover, pattern: int, number: int, lane: int) -> dict[str, Any]:
        one, time_type = self.found[pattern], self.loaded.planned.plans[0].catalog.time_type
        chunk = one.one(number)
        prover.bound.clear()
        with citing(one.plan.source):
            proof = prover.result(one.plan, chunk, one.is_head)
            row = pa.Table.from_batches([render_chunk(chunk, one.output)]).to_pylist()[0]
        events = [self.marks.number(source, place, lane) for source, place in prover.bound]
        start, end, complete = (int(times[number]) for times in (one.starts, one.ends, one.completions))
        return {
            "pattern": pattern,
            "lane": lane,
            "start": on_axis(start, time_type),
            "end": on_axis(end, time_type),
            "complete": on_axis(complete, time_type),
            "words": _in_words(start, end, complete, time_type),
            "id": row.get(MATCH_ID) if one.is_named and one.output.match_id else None,
            "row": {name: plain(value) for name, value in list(row.items())[:MOST_FIELDS] if name != MATCH_ID},
            "events": list(dict.fromkeys(events)),
            "proof": proof_tree(proof, [*events]),
        }


def _in_words(start: int, end: int, complete: int, time_type: pa.DataType) -> str:
    words = moment_in_words(start, time_type)
    if end != start:
        words += f" to {moment_in_words(end, time_type)}"
    return words + (f", certain at {moment_in_words(complete, time_type)}" if complete != end else "")
