"""Which traces are hopeless, by trying every completion: section 9 of the contract for patterns of SEQ and AND.

Free of engine code, and independent of `reference`: there, what a lawful continuation has to contain is searched for;
here, every continuation in which each of five streams occurs at most once is tried, with every order and every tie.
More is not needed: the patterns have each stream once, and further events only break constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, combinations, product

import numpy as np
import numpy.typing as npt

from inside import Constraint, Ends, Exclusive, Implies, Prior, Require

STREAMS = ("A", "B", "C", "N", "X")
LATER = 20
"""Added to the times of a continuation."""
NEVER = 99

Times = npt.NDArray[np.int8]
"""One row per trace, one column per stream; 0 means no event."""
Truth = npt.NDArray[np.bool_]


@cache
def orders() -> Times:
    """Every order of events of some of the streams, with ties, each stream at most once."""
    rows = [
        row
        for row in product(range(len(STREAMS) + 1), repeat=len(STREAMS))
        if set(row) - {0} == set(range(1, max(row) + 1))
    ]
    return np.array(rows, np.int8)


class Traces:
    """Traces as the times of the first and the last event of each stream."""

    def __init__(self, first: Times, last: Times, coming: Times) -> None:
        """`first` and `last` are those of the beginnings; `coming` are the times in the continuations."""
        continued = np.where(coming > 0, coming + LATER, 0)
        self.coming = coming
        self.last = np.where(coming > 0, continued, last)
        self.first = np.where(first > 0, first, np.where(coming > 0, continued, NEVER))
        self.present = self.last > 0

    def lawful(self, constraints: Iterable[Constraint]) -> Truth:
        truth = np.ones(len(self.last), bool)
        for constraint in constraints:
            truth &= self._obey(constraint)
        return truth

    def _obey(self, constraint: Constraint) -> Truth:
        at = STREAMS.index
        match constraint:
            case Prior(earlier, later):
                return self.last[:, at(earlier)] <= self.first[:, at(later)]
            case Exclusive(streams):
                return self.present[:, list(map(at, streams))].sum(axis=1) <= 1
            case Require(stream, required):
                return ~self.present[:, at(stream)] | self.present[:, at(required)]
            case Ends(streams):
                return self.last.max(axis=1) <= self.first[:, list(map(at, streams))].min(axis=1)
            case Implies(given, then, negated):
                return ~self.present[:, list(map(at, given))].all(axis=1) | (self.present[:, at(then)] != negated)
        raise ValueError(f"not a constraint on occurrence or order: {constraint}")

    def contain(self, coming: Iterable[str], before: Iterable[tuple[str, str]]) -> Truth:
        """Which continuations contain these streams in this order."""
        places, truth = {stream: STREAMS.index(stream) for stream in coming}, np.ones(len(self.coming), bool)
        for place in places.values():
            truth &= self.coming[:, place] > 0
        for one, other in before:
            if one in places and other in places:
                truth &= self.coming[:, places[one]] < self.coming[:, places[other]]
        return truth


class Pattern:
    """A pattern with each stream once: its text, and which streams must come strictly before which."""

    def __init__(self, text: str, streams: str, before: str = "") -> None:
        self.text = text
        self.streams = tuple(streams)
        self.before = [(pair[0], pair[1]) for pair in before.split()]

    def begun(self, trace: Sequence[str]) -> list[frozenset[str]]:
        """The proper parts of a match that the trace contains, its events coming one after the other."""
        found = []
        for part in _subsets(self.streams):
            closed = all(one in part for one, other in self.before if other in part)
            places = [[place for place, stream in enumerate(trace) if stream == wanted] for wanted in part]
            ways = (dict(zip(part, chosen, strict=True)) for chosen in product(*places))
            inside = [(one, other) for one, other in self.before if {one, other} <= set(part)]
            in_order = any(all(way[one] < way[other] for one, other in inside) for way in ways)
            if closed and in_order and len(part) < len(self.streams):
                found.append(frozenset(part))
        return found


def is_hopeful(trace: Sequence[str], pattern: Pattern, constraints: Sequence[Constraint]) -> bool:
    """Whether some lawful completion of the trace contains a new match."""
    traces = _continued(trace)
    lawful = traces.lawful(constraints)
    return any(
        bool((lawful & traces.contain(set(pattern.streams) - part, pattern.before)).any())
        for part in pattern.begun(trace)
    )


def can_be_lawful(trace: Sequence[str], constraints: Sequence[Constraint]) -> bool:
    return bool(_continued(trace).lawful(constraints).any())


def is_hopeless_by_occurrence(trace: Sequence[str], pattern: Pattern, constraints: Sequence[Constraint]) -> bool:
    """Whether what a lawful trace may know already excludes every match.

    Each part of a match that has begun has a beginning of a lawful trace, with some of the streams of this one, after
    which it can only be completed by an unlawful trace, as long as no stream occurs besides those of this one.
    """
    every, heads = _all_completions()
    lawful = every.lawful(constraints)
    occurred = _bits(trace)
    known = [seen for seen in np.unique(heads[lawful]).tolist() if not seen & ~occurred]
    within = lawful & (heads & ~occurred == 0)
    return all(
        any(not (within & (heads & seen == seen) & _matched(every, part, pattern)).any() for seen in known)
        for part in pattern.begun(trace)
    )


def _matched(every: Traces, part: frozenset[str], pattern: Pattern) -> Truth:
    """Which traces have this part of a match in their beginning, and the rest in their continuation."""
    truth = every.contain(set(pattern.streams) - part, pattern.before)
    beginning = _beginnings()
    for stream in part:
        truth &= beginning[:, STREAMS.index(stream)] > 0
    for one, other in pattern.before:
        if {one, other} <= part:
            truth &= beginning[:, STREAMS.index(one)] < beginning[:, STREAMS.index(other)]
    return truth


@cache
def _beginnings() -> Times:
    return np.repeat(orders(), len(orders()), axis=0)


@cache
def _all_completions() -> tuple[Traces, npt.NDArray[np.int64]]:
    """Every beginning with every continuation, and the streams of the beginning as bits."""
    beginning = _beginnings()
    heads = ((beginning > 0) * (1 << np.arange(len(STREAMS)))).sum(axis=1)
    return Traces(beginning, beginning, np.tile(orders(), (len(orders()), 1))), heads


def _continued(trace: Sequence[str]) -> Traces:
    first, last = np.zeros((2, len(STREAMS)), np.int8)
    for time, stream in enumerate(trace, start=1):
        place = STREAMS.index(stream)
        first[place] = first[place] or time
        last[place] = time
    return Traces(*(np.tile(row, (len(orders()), 1)) for row in (first, last)), orders())


def _bits(streams: Iterable[str]) -> int:
    return sum(1 << STREAMS.index(stream) for stream in set(streams))


def _subsets(items: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))
