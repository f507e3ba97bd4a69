"""Difference bounds between points: a simple temporal network, closed by shortest paths.

An entry means `x - y <= limit` (or `<` if strict). A limit of 0 may also compare the places of the two points in the
order of events, which refines time where tables have order columns. Each entry records the clauses of the query that it
was derived from, so that a contradiction can be reported as the cycle of clauses that causes it. (Dechter, Meiri,
Pearl: Temporal constraint networks, 1991.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ensue.errors import Span
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.nodes.expressions import Duration, Expr, Literal
from ensue.nodes.names import WHOLE, Name
from ensue.nodes.patterns import Events, Ticks, Window
from ensue.text.render_parts import render_window


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
    """The position of a variable that binds a single event, which is both first and last."""
    return Point(variable, "first")


FAR = 2**62


class Limit(NamedTuple):
    """The right-hand side of a bound; of two equal values the strict one is tighter.

    An `ordered` limit has the value 0 and compares the order of events: it implies the limit `<= 0` of their times, and
    the limit `< 0` of their times implies it.
    """

    value: int
    strict: bool
    ordered: bool = False

    def tighter_than(self, other: Limit | None) -> bool:
        return other is None or self.code < other.code

    @property
    def code(self) -> int:
        """Four times the value, plus 0 to 3, so that the smaller of two limits is the tighter."""
        return 4 * self.value + ((1 if self.strict else 2) if self.ordered else (0 if self.strict else 3))

    @property
    def whole(self) -> int:
        """The limit of the times as a non-strict one over whole numbers: `x < 5` is `x <= 4`.

        Times are within ±2**61, so a limit beyond ±FAR is clamped to it: it means the same, and adding it cannot
        overflow.
        """
        return max(-FAR, min(FAR, self.value - 1 if self.strict and not self.ordered else self.value))

    @property
    def is_zero(self) -> bool:
        """Whether it is 0 and not strict."""
        return self.value == 0 and not self.strict

    @property
    def places(self) -> int:
        """An ordered limit over places in the order of events, which are whole numbers."""
        return -1 if self.strict else 0


ZERO = Limit(0, False)
BEFORE = Limit(0, True)
LIMITS = (BEFORE, Limit(0, True, ordered=True), Limit(0, False, ordered=True), ZERO)
"""The limits with the value 0, by their codes."""


def implies(first: Limit, second: Limit, wide: Limit) -> bool:
    """Whether two limits that add up imply a third one."""
    if not wide.ordered:
        return first.whole + second.whole <= wide.whole
    both = first.ordered and second.ordered and (first.strict or second.strict or not wide.strict)
    return both or first.whole + second.whole < 0


@dataclass(frozen=True, slots=True)
class Reason:
    """The clause of the query that a bound comes from, as text, and its place; `by_order`: the order of SEQ.

    For a WITHIN, `window` is its duration and the text lists what it applies to.
    """

    words: str
    span: Span | None = None
    by_order: bool = False
    window: Window | None = None

    @property
    def text(self) -> str:
        return self.words if self.window is None else f"WITHIN {render_window(self.window)} applies to {self.words}"


@dataclass(frozen=True, slots=True)
class Bound:
    """`left - right <= limit`."""

    left: Point
    right: Point
    limit: Limit
    reason: Reason


class Contradiction(NamedTuple):
    """A cycle of bounds whose limits add up to less than zero."""

    cycle: tuple[Bound, ...]


Limits: TypeAlias = dict[int, int]
"""The tightest limit between two points. The points are given by their places, `left << SHIFT | right`. A limit is
encoded (see `Limit.code`), so that the smaller of two is the tighter."""

SHIFT = 16
SAME = 2
"""The limit between a point and itself: adding it to another limit gives that limit."""
SUMS = [
    0 if 0 in (first, second) else 3 if 3 in (first, second) else min(first, second)
    for first in range(4)
    for second in range(4)
]
"""How the last digits of two codes add up: strict if one is; ordered if both are."""

Derivation: TypeAlias = "tuple[Bound | Derivation, ...]"
"""The bounds that add up to a limit, in order; nested, so that joining two takes constant time."""

Way: TypeAlias = tuple[int, int, Derivation]
"""From or to a point, by its place: the limit, and the bounds that add up to it."""


@dataclass(frozen=True, slots=True)
class Network:
    """The closed bounds over a set of points: the limits of the shortest paths between them.

    `history` records the points and bounds that it was built from, step by step.
    """

    points: tuple[Point, ...] = ()
    paths: Limits = field(default_factory=dict)
    history: tuple[tuple[tuple[Point, ...], tuple[Bound, ...]], ...] = ()
    contradiction: Contradiction | None = None
    places: Mapping[Point, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", {point: place for place, point in enumerate(self.points)})

    def limit(self, left: Point, right: Point) -> Limit | None:
        """The tightest known limit of `left - right`; None if there is none."""
        if left == right:
            return ZERO
        one, other = self.places.get(left), self.places.get(right)
        found = None if one is None or other is None else self.paths.get(one << SHIFT | other)
        return None if found is None else LIMITS[found & 3]._replace(value=found >> 2)

    def before(self, left: Point, right: Point) -> bool:
        """True if `left` is certainly strictly before `right`, in time or in the order of events."""
        limit = self.limit(left, right)
        return limit is not None and limit.code < SAME

    def among(self, names: Collection[Name]) -> Network:
        """The bounds between points of these variables; in a closed network they are complete."""
        points = [point for point in self.points if point.variable in names]
        said = Reason("")
        bounds = [
            Bound(left, right, limit, said)
            for left in points
            for right in points
            if left != right and (limit := self.limit(left, right)) is not None
        ]
        return close(points, bounds)


def close(points: Iterable[Point], bounds: Iterable[Bound]) -> Network:
    """Computes all bounds that follow from the given ones (Floyd-Warshall), or the first contradiction.

    >>> a, b = Point("a", "e"), Point("b", "s")
    >>> before = Bound(a, b, Limit(0, True), Reason("`a` before `b`"))
    >>> after = Bound(b, a, Limit(0, True), Reason("`b` before `a`"))
    >>> [step.reason.text for step in close([a, b], [before, after]).contradiction.cycle]
    ['`b` before `a`', '`a` before `b`']
    """
    return extend(Network(), points, bounds)


def extend(network: Network, points: Iterable[Point], bounds: Iterable[Bound]) -> Network:
    """Adds points and bounds to a network and closes it again, or returns the first contradiction.

    Which bounds add up to a limit matters only for a contradiction and is computed then.
    """
    if network.contradiction is not None:
        return network
    order, added = tuple(dict.fromkeys((*network.points, *points))), tuple(bounds)
    history = (*network.history, (order, added))
    limits = dict(network.paths)
    if _add(limits, None, order, added) is None:
        return Network(order, limits, history)
    limits, ways = {}, dict[int, Derivation]()
    for known, given in history:
        cycle = _add(limits, ways, known, given)
        if cycle is not None:
            return Network(order, limits, history, Contradiction(tuple(_bounds_in(cycle))))
    raise AssertionError("a contradiction must be found again")


def _add(
    limits: Limits, ways: dict[int, Derivation] | None, points: tuple[Point, ...], bounds: Iterable[Bound]
) -> Derivation | None:
    """Adds bounds to closed limits, and records in `ways` how limits arise; returns a contradicting cycle, if any.

    The first bounds are closed all at once; later ones are added one by one.
    """
    places = {point: place for place, point in enumerate(points)}
    numbers = range(len(points))
    at_once = not limits
    known = ways if ways is not None else dict[int, Derivation]()
    for bound in bounds:
        begin, end = places[bound.left], places[bound.right]
        code = bound.limit.code
        before: list[Way] = [(begin, code, (bound,))]
        after: list[Way] = [(end, SAME, ())]
        if not at_once:
            if begin != end and limits.get(begin << SHIFT | end, code + 1) <= code:
                continue
            for left in numbers:
                key = left << SHIFT | begin
                if key in limits:
                    first = limits[key]
                    total = (first & -4) + (code & -4) + SUMS[(first & 3) << 2 | code & 3]
                    before.append((left, total, (known.get(key, ()), bound)))
            after += [
                (right, limits[key], known.get(key, ())) for right in numbers if (key := end << SHIFT | right) in limits
            ]
        cycle = _tighten(limits, ways, before, after)
        if cycle is not None:
            return cycle
    for middle in numbers if at_once else ():
        before = [
            (left, limits[key], known.get(key, ())) for left in numbers if (key := left << SHIFT | middle) in limits
        ]
        after = [
            (right, limits[key], known.get(key, ())) for right in numbers if (key := middle << SHIFT | right) in limits
        ]
        cycle = _tighten(limits, ways, before, after)
        if cycle is not None:
            return cycle
    return None


def _tighten(
    limits: Limits, ways: dict[int, Derivation] | None, before: Iterable[Way], after: Sequence[Way]
) -> Derivation | None:
    """Records the limits of all combined ways that are tighter than the known limits."""
    for left, first, begin in before:
        for right, second, end in after:
            total = (first & -4) + (second & -4) + SUMS[(first & 3) << 2 | second & 3]
            if left == right:
                if total < SAME:
                    return begin, end
                continue
            key = left << SHIFT | right
            known = limits.get(key)
            if known is None or total < known:
                limits[key] = total
                if ways is not None:
                    ways[key] = (begin, end)
    return None


def _bounds_in(derivation: Derivation) -> Iterator[Bound]:
    """The bounds of a derivation from left to right."""
    stack = list(reversed(derivation))
    while stack:
        part = stack.pop()
        if isinstance(part, Bound):
            yield part
        else:
            stack += reversed(part)


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The resolution of time: an Arrow timestamp unit, or None for integer time with a tick of 1."""

    unit: str | None = "us"

    def ticks(self, window: Window) -> int:
        """The length of a time window in ticks."""
        match window:
            case Ticks():
                return min(FAR, window.count)
            case Duration():
                return min(FAR, self.floor(window.nanoseconds))
            case Events():
                raise AssertionError("a window in EVENTS has no ticks")

    def literal(self, ticks: int) -> Expr:
        """The value of a duration literal in ticks."""
        return Literal(ticks) if self.unit is None else Duration(ticks * self._tick)

    def floor(self, nanoseconds: int) -> int:
        """The largest number of whole ticks that fits: `x <= d` over ticks is `x <= floor(d)`."""
        return nanoseconds // self._tick

    def ceil(self, nanoseconds: int) -> int:
        """The smallest number of whole ticks that covers `d`: `x < d` over ticks is `x < ceil(d)`."""
        return -(-nanoseconds // self._tick)

    @property
    def _tick(self) -> int:
        return 1 if self.unit is None else NANOSECONDS_PER_UNIT[self.unit]


# --- bounds between variables

IMPLICIT = Reason("")
"""The reason of a bound that no clause states, such as that an event starts before it ends."""


def at_once(one: Name, other: Name) -> list[Bound]:
    """The bounds that two variables start and end at the same times."""
    return [
        Bound(point(x), point(y), ZERO, IMPLICIT)
        for point in (start_of, end_of)
        for x, y in ((one, other), (other, one))
    ]


def ends_by(name: Name, other: Name) -> Bound:
    return Bound(end_of(name), end_of(other), ZERO, IMPLICIT)


def adjacent(names: Sequence[Name]) -> list[Bound]:
    """Each event has the position directly after the previous one."""
    reason = Reason("MATCH STRICT requires adjacent events")
    bounds = []
    for earlier, later in pairwise(names):
        x, y = position_of(earlier), position_of(later)
        bounds += [
            Bound(y, x, Limit(1, False), reason),
            Bound(x, y, Limit(-1, False), reason),
        ]
    return bounds
