"""Partial matches as columns: for each bound variable, the place of its event among the variable's candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ensue.engine.sources import Mask
from ensue.kernels.compiled import Codes, Int64s
from ensue.kernels.ranges import expand_ranges


@dataclass(frozen=True, slots=True)
class Rows:
    """Partial matches. `origin` numbers the candidate match that each row extends, where an absence is judged."""

    length: int
    places: dict[str, Codes]
    origin: Codes | None = None

    def take(self, chosen: Codes) -> Rows:
        return Rows(
            len(chosen),
            {name: places[chosen] for name, places in self.places.items()},
            None if self.origin is None else self.origin[chosen],
        )

    def where(self, mask: Mask) -> Rows:
        kept = np.flatnonzero(mask)
        return self if len(kept) == self.length else self.take(kept.astype(np.int32))

    def bind(self, name: str, probes: Codes, places: Codes) -> Rows:
        """The rows `probes`, each extended by the event at the place beside it."""
        extended = self.take(probes)
        extended.places[name] = places
        return extended


def concatenate(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, which bind the same variables, one after the other."""
    places = {name: np.concatenate([part.places[name] for part in parts]) for name in parts[0].places}
    return Rows(sum(part.length for part in parts), places)


def expand_in_chunks(first: Codes, last: Codes, most: int) -> Iterator[tuple[Codes, Codes]]:
    """Every (probe, place) of the ranges [first, last), at most `most` pairs at a time: memory stays bounded."""
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
