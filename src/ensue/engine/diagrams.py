"""Exact probabilities of lineages, by compiling them to sentential decision diagrams (PySDD), and estimates of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

MOST_NODES = 200_000
"""A diagram that has grown larger is given up."""


class Stretch(NamedTuple):
    """That a block draws a number between `low` and `high`."""

    block: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Possible:
    """Something that is real iff all of `needs` hold and nothing of `against` is real."""

    needs: tuple[Stretch, ...]
    against: tuple[Possible, ...] = ()

    def stretches(self) -> Iterator[Stretch]:
        yield from self.needs
        for other in self.against:
            yield from other.stretches()


class TooLargeError(Exception):
    """A lineage whose diagram has grown beyond the limit."""


def probability_of_any(cases: Sequence[Possible], most_nodes: int = MOST_NODES) -> float:
    """How probable it is that at least one of the cases is real; raises a TooLargeError beyond the limit."""
    from pysdd.sdd import SddManager

    parts = _parts_of_blocks(cases)
    weights = [weight for edges in parts.values() for weight in _chain_weights(edges)]
    if not weights:
        return float(any(_is_plain(case) for case in cases))
    manager = SddManager(var_count=len(weights), auto_gc_and_minimize=False)
    diagram = _Diagram(manager, parts, most_nodes)
    root = manager.false()
    for case in cases:
        root = diagram.checked(root | diagram.of(case))
    counter = root.wmc(log_mode=False)
    for number, weight in enumerate(weights, start=1):
        counter.set_literal_weight(manager.literal(number), weight)
        counter.set_literal_weight(manager.literal(-number), 1.0 - weight)
    return float(min(1.0, max(0.0, counter.propagate())))


def _is_plain(case: Possible) -> bool:
    """Whether something that depends on no block is real."""
    return not any(_is_plain(other) for other in case.against)


def _parts_of_blocks(cases: Sequence[Possible]) -> dict[int, list[float]]:
    """Where the stretches of each block begin and end, in order: between two of these a block is one outcome."""
    edges: dict[int, set[float]] = {}
    for case in cases:
        for stretch in case.stretches():
            edges.setdefault(stretch.block, set()).update((stretch.low, stretch.high))
    return {block: sorted(found) for block, found in edges.items()}


def _chain_weights(edges: Sequence[float]) -> list[float]:
    """Of each outcome of a block, its probability given that none of those before is drawn."""
    left, weights = 1.0, []
    for low, high in pairwise(edges):
        weights.append(min(1.0, (high - low) / left) if left > 0 else 0.0)
        left -= high - low
    return weights


class _Diagram:
    """Lineages as nodes of one manager. A block is a chain of variables: the first that is true is what it draws."""

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
        """That a block draws an outcome within a stretch."""
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
    """A probability, and by how much it is off at most, with a confidence of 99.9 percent."""

    probability: float
    error: float


def estimate_of_any(cases: Sequence[Possible], samples: int, seed: int = 0) -> Estimate:
    """How probable it is that at least one of the cases is real, by drawing worlds (Hoeffding's bound)."""
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
