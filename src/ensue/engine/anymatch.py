"""How probable it is that there is any match: per key, or per key and stretch of time.

Matches that share an uncertain event, or a threat, depend on each other. Those that do, directly or by way of others,
are one part; parts are independent. A part of one match is as probable as the match; one of several is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensue.engine.diagrams import Possible, TooLargeError, estimate_of_any, probability_of_any
from ensue.engine.rows import MatchChunk
from ensue.engine.uncertainty import Floats
from ensue.kernels.compiler import Int64s
from ensue.kernels.stretches import components

SAMPLES = 100_000
"""So many worlds are drawn where a lineage is too large."""


@dataclass(frozen=True, slots=True)
class AnyMatch:
    """For each owner, how probable any of its matches is, and by how much that is off at most (0: it is exact)."""

    owner: Int64s
    probability: Floats
    error: Floats


def any_match(chunks: Sequence[MatchChunk], owners: Sequence[Int64s], most_nodes: int, samples: int) -> AnyMatch:
    """The probability that one of the matches of each owner is real; `owners` numbers those of each chunk."""
    number = np.concatenate([np.empty(0, np.int64), *owners])
    found, owner = np.unique(number, return_inverse=True)
    part = _parts(chunks, owner)
    _, part, sizes = np.unique(part, return_inverse=True, return_counts=True)
    probability = np.concatenate([np.empty(0), *(_probabilities(chunk) for chunk in chunks)])
    chances, errors = np.zeros(len(sizes)), np.zeros(len(sizes))
    chances[part] = probability
    certain = np.zeros(len(found), bool)
    certain[owner[probability >= 1]] = True
    of_part = np.zeros(len(sizes), np.int64)
    of_part[part] = owner
    ends = [chunk.ends for chunk in chunks]
    order, firsts = np.argsort(part, kind="stable"), np.cumsum(sizes) - sizes
    for place in np.flatnonzero((sizes > 1) & ~certain[of_part]):
        members = order[firsts[place] : firsts[place] + sizes[place]]
        chances[place], errors[place] = _of_part(_cases(chunks, ends, members), most_nodes, samples)
    none = np.ones(len(found))
    np.multiply.at(none, of_part, 1.0 - chances)
    error = np.bincount(of_part, errors, len(found))
    return AnyMatch(found, np.where(certain, 1.0, 1.0 - none), np.where(certain, 0.0, np.minimum(1.0, error)))


def _probabilities(chunk: MatchChunk) -> Floats:
    return np.ones(chunk.rows.length) if chunk.rows.probability is None else chunk.rows.probability


def _parts(chunks: Sequence[MatchChunk], owner: Int64s) -> Int64s:
    """The part that each match belongs to: those of one owner that share a block, by whatever way."""
    matches, blocks, begin = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for chunk in chunks:
        if chunk.lineage is not None:
            match, block = chunk.lineage.blocks()
            matches.append(match + begin)
            blocks.append(block)
        begin += chunk.rows.length
    match, block = np.concatenate(matches), np.concatenate(blocks)
    pairs = np.stack([owner[match], block], axis=1)
    _, code = np.unique(pairs, axis=0, return_inverse=True)
    code = code.ravel()
    count = len(owner)
    return components(match, count + code, count + (int(code.max()) + 1 if len(code) else 0))[:count]


def _of_part(cases: Sequence[Possible], most_nodes: int, samples: int) -> tuple[float, float]:
    try:
        return probability_of_any(cases, most_nodes), 0.0
    except TooLargeError:
        return estimate_of_any(cases, samples)


def _cases(chunks: Sequence[MatchChunk], ends: Sequence[Int64s], members: Int64s) -> list[Possible]:
    """What each of the matches depends on, in the order of their times, in which the diagram stays small."""
    begins = np.cumsum([0, *(chunk.rows.length for chunk in chunks)])
    found = []
    for member in members:
        place = int(np.searchsorted(begins, member, side="right")) - 1
        chunk, row = chunks[place], int(member - begins[place])
        assert chunk.lineage is not None
        found.append((int(ends[place][row]), chunk.lineage.possible(row)))
    return [case for _, case in sorted(found, key=lambda entry: entry[0])]
