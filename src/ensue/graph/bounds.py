"""Difference bounds between points: a simple temporal network, closed by shortest paths.

An entry says `x - y <= limit` (or `<` when strict). Each entry remembers the user's own clauses it was derived from,
so that a contradiction can be shown as the cycle of clauses that causes it. (Dechter, Meiri, Pearl: Temporal constraint
networks, 1991.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ensue.errors import Span

WHOLE = "*"
"""The variable name under which the ends of the whole match are points of a network."""


class Point(NamedTuple):
    """An endpoint of a variable: `side` is "s" or "e" for times, "first" or "last" for positions in the partition."""

    variable: str
    side: str

    def __str__(self) -> str:
        name = "match" if self.variable == WHOLE else self.variable
        if self.side in ("s", "e"):
            return f"{name}.{self.side}"
        return f"{self.side} position" if self.variable == WHOLE else f"position({name})"


WHOLE_START = Point(WHOLE, "s")
WHOLE_END = Point(WHOLE, "e")
WHOLE_FIRST = Point(WHOLE, "first")
WHOLE_LAST = Point(WHOLE, "last")


def start_of(variable: str) -> Point:
    return Point(variable, "s")


def end_of(variable: str) -> Point:
    return Point(variable, "e")


def position_of(variable: str) -> Point:
    """The one position of a variable; a single event is both first and last."""
    return Point(variable, "first")


FAR = 2**62


class Limit(NamedTuple):
    """The right-hand side of a bound; a strict one is tighter than a weak one of the same value."""

    value: int
    strict: bool

    def plus(self, other: Limit) -> Limit:
        return Limit(self.value + other.value, self.strict or other.strict)

    def tighter_than(self, other: Limit | None) -> bool:
        return other is None or (self.value, not self.strict) < (other.value, not other.strict)

    @property
    def whole(self) -> int:
        """The limit as a weak one over whole numbers: `x < 5` is `x <= 4`.

        Times lie within ±2**61, so that a limit of ±FAR says no more than a larger one, and adding it cannot overflow.
        """
        return max(-FAR, min(FAR, self.value - 1 if self.strict else self.value))


ZERO = Limit(0, False)


@dataclass(frozen=True, slots=True)
class Reason:
    """The clause of the user's text that a bound comes from, in words, and its place."""

    text: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """`left - right <= limit`."""

    left: Point
    right: Point
    limit: Limit
    reason: Reason


class Contradiction(NamedTuple):
    """A cycle of bounds whose limits add up to less than nothing."""

    cycle: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """The closed bounds over a set of points."""

    points: tuple[Point, ...]
    limits: Mapping[tuple[Point, Point], Limit]
    contradiction: Contradiction | None = None

    def limit(self, left: Point, right: Point) -> Limit | None:
        """The tightest known limit of `left - right`, or None when there is none."""
        return ZERO if left == right else self.limits.get((left, right))

    def before(self, left: Point, right: Point) -> bool:
        """True if `left` is certainly strictly before `right`."""
        limit = self.limit(left, right)
        return limit is not None and limit.tighter_than(ZERO)

    def __iter__(self) -> Iterator[tuple[Point, Point, Limit]]:
        for (left, right), limit in self.limits.items():
            yield left, right, limit


def close(points: Iterable[Point], bounds: Iterable[Bound]) -> Network:
    """All bounds that follow from the given ones (Floyd-Warshall), or the first contradiction.

    >>> a, b = Point("a", "e"), Point("b", "s")
    >>> before = Bound(a, b, Limit(0, True), Reason("`a` before `b`"))
    >>> after = Bound(b, a, Limit(0, True), Reason("`b` before `a`"))
    >>> [step.reason.text for step in close([a, b], [before, after]).contradiction.cycle]
    ['`b` before `a`', '`a` before `b`']
    """
    order = tuple(dict.fromkeys(points))
    paths: dict[tuple[Point, Point], tuple[Limit, tuple[Bound, ...]]] = {}

    def tighten(left: Point, right: Point, limit: Limit, path: tuple[Bound, ...]) -> Contradiction | None:
        if left == right:
            return Contradiction(path) if limit.tighter_than(ZERO) else None
        known = paths.get((left, right))
        if limit.tighter_than(known[0] if known else None):
            paths[left, right] = (limit, path)
        return None

    def network(contradiction: Contradiction | None) -> Network:
        return Network(order, {pair: limit for pair, (limit, _) in paths.items()}, contradiction)

    for bound in bounds:
        found = tighten(bound.left, bound.right, bound.limit, (bound,))
        if found:
            return network(found)
    for middle in order:
        for left in order:
            first = paths.get((left, middle))
            if first is None:
                continue
            for right in order:
                second = paths.get((middle, right))
                if second is not None:
                    found = tighten(left, right, first[0].plus(second[0]), first[1] + second[1])
                    if found:
                        return network(found)
    return network(None)
