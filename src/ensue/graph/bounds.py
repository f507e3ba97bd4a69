"""Difference bounds between points: a simple temporal network, closed by shortest paths.

An entry says `x - y <= limit` (or `<` when strict). Each entry remembers the user's own clauses it was derived from,
so that a contradiction can be shown as the cycle of clauses that causes it. (Dechter, Meiri, Pearl: Temporal constraint
networks, 1991.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ensue.algebra.nodes import Events, Ticks, Window
from ensue.errors import Span
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.expr.nodes import Duration, Expr, Literal
from ensue.lang.render_values import render_window
from ensue.names import WHOLE, Name


class Point(NamedTuple):
    """An endpoint of a variable: `side` is "s" or "e" for times, "first" or "last" for positions in the partition."""

    variable: Name
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


def start_of(variable: Name) -> Point:
    return Point(variable, "s")


def end_of(variable: Name) -> Point:
    return Point(variable, "e")


def position_of(variable: Name) -> Point:
    """The one position of a variable; a single event is both first and last."""
    return Point(variable, "first")


FAR = 2**62


class Limit(NamedTuple):
    """The right-hand side of a bound; a strict one is tighter than a weak one of the same value."""

    value: int
    strict: bool

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
    """The clause of the user's text that a bound comes from, in words, and its place; `by_order`: the order of SEQ.

    If it is a WITHIN, the words are what its `window` holds.
    """

    words: str
    span: Span | None = None
    by_order: bool = False
    window: Window | None = None

    @property
    def text(self) -> str:
        return self.words if self.window is None else f"WITHIN {render_window(self.window)} holds {self.words}"


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


Derivation: TypeAlias = "tuple[Bound | Derivation, ...]"
"""The bounds that add up to a limit, in order; nested, so that joining two takes no time."""

Path: TypeAlias = tuple[Limit, Derivation]
Paths: TypeAlias = dict[int, Path]
"""The path between two points, by the places of the points: `left << SHIFT | right`. Numbers are quicker than names."""

SHIFT = 16


def bounds_in(derivation: Derivation) -> Iterator[Bound]:
    """The bounds of a derivation from left to right."""
    stack = list(reversed(derivation))
    while stack:
        part = stack.pop()
        if isinstance(part, Bound):
            yield part
        else:
            stack += reversed(part)


@dataclass(frozen=True, slots=True)
class Network:
    """The closed bounds over a set of points, each with the path it was derived by."""

    points: tuple[Point, ...] = ()
    paths: Paths = field(default_factory=dict)
    contradiction: Contradiction | None = None
    places: Mapping[Point, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", {point: place for place, point in enumerate(self.points)})

    def limit(self, left: Point, right: Point) -> Limit | None:
        """The tightest known limit of `left - right`, or None when there is none."""
        if left == right:
            return ZERO
        one, other = self.places.get(left), self.places.get(right)
        path = None if one is None or other is None else self.paths.get(one << SHIFT | other)
        return None if path is None else path[0]

    def before(self, left: Point, right: Point) -> bool:
        """True if `left` is certainly strictly before `right`."""
        limit = self.limit(left, right)
        return limit is not None and limit.tighter_than(ZERO)

    def among(self, names: Collection[Name]) -> Network:
        """The bounds between points of some variables; in a closed network they are all that follows for these."""
        kept = [place for place, point in enumerate(self.points) if point.variable in names]
        paths = {
            new << SHIFT | other: self.paths[place << SHIFT | right]
            for new, place in enumerate(kept)
            for other, right in enumerate(kept)
            if place << SHIFT | right in self.paths
        }
        return Network(tuple(self.points[place] for place in kept), paths)


class _ContradictionError(Exception):
    """Raised inside of this module to leave nested loops."""

    def __init__(self, derivation: Derivation) -> None:
        self.contradiction = Contradiction(tuple(bounds_in(derivation)))
        super().__init__()


def close(points: Iterable[Point], bounds: Iterable[Bound]) -> Network:
    """All bounds that follow from the given ones (Floyd-Warshall), or the first contradiction.

    >>> a, b = Point("a", "e"), Point("b", "s")
    >>> before = Bound(a, b, Limit(0, True), Reason("`a` before `b`"))
    >>> after = Bound(b, a, Limit(0, True), Reason("`b` before `a`"))
    >>> [step.reason.text for step in close([a, b], [before, after]).contradiction.cycle]
    ['`b` before `a`', '`a` before `b`']
    """
    order = tuple(dict.fromkeys(points))
    places = {point: place for place, point in enumerate(order)}
    paths: Paths = {}
    try:
        for bound in bounds:
            _tighten(paths, [(places[bound.left], *bound.limit, (bound,))], [(places[bound.right], 0, False, ())])
        numbers = range(len(order))
        for middle in numbers:
            before = [
                (left, *path[0], path[1]) for left in numbers if (path := paths.get(left << SHIFT | middle)) is not None
            ]
            after = [
                (right, *path[0], path[1])
                for right in numbers
                if (path := paths.get(middle << SHIFT | right)) is not None
            ]
            _tighten(paths, before, after)
    except _ContradictionError as found:
        return Network(order, paths, found.contradiction)
    return Network(order, paths)


def extend(network: Network, points: Iterable[Point], bounds: Iterable[Bound]) -> Network:
    """A closed network with a few more points and bounds: each bound is led through the paths at its ends.

    Where there is no path yet, all are closed at once.
    """
    if network.contradiction is not None:
        return network
    if not network.paths:
        return close((*network.points, *points), bounds)
    order = tuple(dict.fromkeys((*network.points, *points)))
    places = {point: place for place, point in enumerate(order)}
    paths = dict(network.paths)
    numbers = range(len(order))
    try:
        for bound in bounds:
            begin, end, (value, strict) = places[bound.left], places[bound.right], bound.limit
            known = paths.get(begin << SHIFT | end)
            if known is not None and not bound.limit.tighter_than(known[0]):
                continue
            before: list[Way] = [(begin, value, strict, (bound,))]
            for left in numbers:
                if (path := paths.get(left << SHIFT | begin)) is not None:
                    limit, way = path
                    before.append((left, limit.value + value, limit.strict or strict, (way, bound)))
            after: list[Way] = [(end, 0, False, ())]
            for right in numbers:
                if (path := paths.get(end << SHIFT | right)) is not None:
                    after.append((right, *path[0], path[1]))
            _tighten(paths, before, after)
    except _ContradictionError as found:
        return Network(order, paths, found.contradiction)
    return Network(order, paths)


Way: TypeAlias = "tuple[int, int, bool, Derivation]"
"""From or to a point, by its place: the value of its limit, whether it is strict, and the bounds that add up to it."""


def _tighten(paths: Paths, before: Sequence[Way], after: Sequence[Way]) -> None:
    """Notes the limits of all ways that lead on from one another, where they are tighter than the known ones."""
    for left, value, strict, begin in before:
        for right, more, also_strict, end in after:
            total, is_strict = value + more, strict or also_strict
            if left == right:
                if total < 0 or (total == 0 and is_strict):
                    raise _ContradictionError((begin, end))
                continue
            key = left << SHIFT | right
            known = paths.get(key)
            if known is not None:
                limit = known[0]
                if total > limit.value or (total == limit.value and (limit.strict or not is_strict)):
                    continue
            paths[key] = (Limit(total, is_strict), (begin, end))


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The resolution of time: an Arrow timestamp unit, or None for integer time, where a tick is 1."""

    unit: str | None = "us"

    def ticks(self, window: Window) -> int:
        """The length of a window of time."""
        match window:
            case Ticks():
                return min(FAR, window.count)
            case Duration():
                return min(FAR, self.floor(window.nanoseconds))
            case Events():
                raise AssertionError("positions have no ticks")

    def literal(self, ticks: int) -> Expr:
        """A length of time in an expression."""
        return Literal(ticks) if self.unit is None else Duration(ticks * self._tick)

    def floor(self, nanoseconds: int) -> int:
        """The most whole ticks that fit: `x <= d` over ticks is `x <= floor(d)`."""
        return nanoseconds // self._tick

    def ceil(self, nanoseconds: int) -> int:
        """The fewest whole ticks that cover: `x < d` over ticks is `x < ceil(d)`."""
        return -(-nanoseconds // self._tick)

    @property
    def _tick(self) -> int:
        return 1 if self.unit is None else NANOSECONDS_PER_UNIT[self.unit]
