"""Possible worlds: every way in which the uncertain events of a small history may be real, with its probability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from oracle.oracle import OracleEvent


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A history whose events are real with the probability beside their id; those of a group exclude each other."""

    history: tuple[OracleEvent, ...]
    probability: Mapping[int, float]
    group: Mapping[int, int]

    def worlds(self) -> Iterator[tuple[float, list[OracleEvent]]]:
        """Every world that is possible: how probable it is, and which events are real in it."""
        for chosen in product(*map(self._outcomes, self._blocks())):
            weight, real = 1.0, set()
            for chance, event in chosen:
                weight *= chance
                real.add(event)
            if weight > 0:
                yield weight, [event for event in self.history if event.id in real]

    def _blocks(self) -> list[list[int]]:
        """The events that are decided together."""
        grouped: dict[object, list[int]] = {}
        for event in self.history:
            grouped.setdefault(self.group.get(event.id, ("alone", event.id)), []).append(event.id)
        return list(grouped.values())

    def _outcomes(self, block: Sequence[int]) -> list[tuple[float, int | None]]:
        chances = [(self.probability[event], event) for event in block]
        left = 1 - sum(chance for chance, _ in chances)
        none: list[tuple[float, int | None]] = [(left, None)] if left > 1e-12 else []
        return [*chances, *none]
