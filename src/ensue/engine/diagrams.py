"""Exact probabilities of lineages, computed by sentential decision diagrams (PySDD), and estimates for larger ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ensue.engine.rows import MatchChunk
from ensue.engine.uncertainty import Floats
from ensue.errors import SetupError
from ensue.kernels.compiler import Int64s
from ensue.kernels.stretches import components

MOST_NODES = 200_000
"""The maximum size of a diagram."""


class Stretch(NamedTuple):
    """The condition that a block draws a number between `low` and `high`."""

    block: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Possible:
    """A proposition that is true iff all of `needs` hold and none of `against` is true."""

    needs: tuple[Stretch, ...]
    against: tuple[Possible, ...] = ()

    def stretches(self) -> Iterator[Stretch]:
        yield from self.needs
        for other in self.against:
            yield from other.stretches()


class TooLargeError(Exception):
    """A lineage whose diagram exceeds the limit."""


def probability_of_any(cases: Sequence[Possible], most_nodes: int = MOST_NODES) -> float:
    """The probability that at least one case is true; raises a TooLargeError beyond the limit."""
    parts = _parts_of_blocks(cases)
    weights = [weight for edges in parts.values() for weight in _chain_weights(edges)]
    if not weights:
        return float(any(_is_plain(case) for case in cases))
    manager = _manager_class()(var_count=len(weights), auto_gc_and_minimize=False)
    diagram = _Diagram(manager, parts, most_nodes)
    root = manager.false()
    for case in cases:
        root = diagram.checked(root | diagram.of(case))
    counter = root.wmc(log_mode=False)
    for number, weight in enumerate(weights, start=1):
        counter.set_literal_weight(manager.literal(number), weight)
        counter.set_literal_weight(manager.literal(-number), 1.0 - weight)
    return float(min(1.0, max(0.0, counter.propagate())))


def _manager_class() -> Any:
    """The manager of PySDD, an extra: only matches that share uncertain events need it."""
    try:
        from pysdd.sdd import SddManager
    except ImportError:
        raise SetupError(
            "no-pysdd",
            "exact probabilities of matches that share uncertain events require PySDD, which is not installed",
            "run `pip install 'ensue[exact]'`",
        ) from None
    return SddManager


def _is_plain(case: Possible) -> bool:
    """Whether a case that depends on no block is true."""
    return not any(_is_plain(other) for other in case.against)


def _parts_of_blocks(cases: Sequence[Possible]) -> dict[int, list[float]]:
    """The ends of the stretches of each block, in order: between two of them a block has one outcome."""
    edges: dict[int, set[float]] = {}
    for case in cases:
        for stretch in case.stretches():
            edges.setdefault(stretch.block, set()).update((stretch.low, stretch.high))
    return {block: sorted(found) for block, found in edges.items()}


def _chain_weights(edges: Sequence[float]) -> list[float]:
    """For each outcome of a block, its probability given that none of the earlier outcomes is drawn."""
    left, weights = 1.0, []
    for low, high in pairwise(edges):
        weights.append(min(1.0, (high - low) / left) if left > 0 else 0.0)
        left -= high - low
    return weights


class _Diagram:
    """Lineages as nodes of one manager. A block is a chain of variables: the first true one is its outcome."""

    def __init__(self, manager: Any, parts: Mapping[int, Sequence[float]], most_nodes: int) -> None:
        self.manager = manager
        self.parts = parts
        self.most_nodes = most_nodes
        self.first: dict[int, int] = {}
        number = 1
        for block, edges in parts.items():
            self.first[block] = number
            number += len(edges) - 1

    def of(self, case: Possible) -> Any:
        node = self.manager.true()
        for stretch in case.needs:
            node = self.checked(node & self._drawn(stretch))
        for other in case.against:
            node = self.checked(node & ~self.of(other))
        return node

    def _drawn(self, stretch: Stretch) -> Any:
        """The condition that a block draws an outcome within a stretch."""
        first, edges = self.first[stretch.block], self.parts[stretch.block]
        node, none_before = self.manager.false(), self.manager.true()
        for place, (low, high) in enumerate(pairwise(edges)):
            literal = self.manager.literal(first + place)
            if stretch.low <= low and high <= stretch.high:
                node = node | (none_before & literal)
            none_before = none_before & ~literal
        return node

    def checked(self, node: Any) -> Any:
        if self.manager.live_size() + self.manager.dead_size() > self.most_nodes:
            raise TooLargeError
        return node


class Estimate(NamedTuple):
    """A probability and its maximum error, with a confidence of 99.9 percent."""

    probability: float
    error: float


def estimate_of_any(cases: Sequence[Possible], samples: int, seed: int = 0) -> Estimate:
    """The probability that at least one case is true, estimated by drawing worlds (Hoeffding's bound)."""
    draws = np.random.default_rng(seed)
    drawn: dict[int, np.ndarray] = {}
    for case in cases:
        for stretch in case.stretches():
            if stretch.block not in drawn:
                drawn[stretch.block] = draws.random(samples)
    real = np.zeros(samples, bool)
    for case in cases:
        real |= _is_real(case, drawn, samples)
    return Estimate(float(real.mean()), float(np.sqrt(np.log(2 / 0.001) / (2 * samples))))


def _is_real(case: Possible, drawn: Mapping[int, np.ndarray], samples: int) -> np.ndarray:
    real = np.ones(samples, bool)
    for stretch in case.needs:
        numbers = drawn[stretch.block]
        real &= (stretch.low <= numbers) & (numbers < stretch.high)
    for other in case.against:
        real &= ~_is_real(other, drawn, samples)
    return real


# --- probability of any match, per key, or per key and time range

SAMPLES = 100_000
"""The number of worlds drawn for a lineage that is too large."""


@dataclass(frozen=True, slots=True)
class AnyMatch:
    """For each owner, the probability that any of its matches is real, and its maximum error (0: exact)."""

    owner: Int64s
    probability: Floats
    error: Floats


def any_match(chunks: Sequence[MatchChunk], owners: Sequence[Int64s], most_nodes: int, samples: int) -> AnyMatch:
    """The probability that any match of each owner is real; `owners` has the owners of each chunk."""
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
    """The component of each match: matches of one owner that share a block, directly or indirectly."""
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
    """The dependencies of each match, ordered by time, which keeps the diagram small."""
    begins = np.cumsum([0, *(chunk.rows.length for chunk in chunks)])
    found = []
    for member in members:
        place = int(np.searchsorted(begins, member, side="right")) - 1
        chunk, row = chunks[place], int(member - begins[place])
        assert chunk.lineage is not None
        found.append((int(ends[place][row]), chunk.lineage.possible(row)))
    return [case for _, case in sorted(found, key=lambda entry: entry[0])]
