"""Operators that are written as functions, from SNOOP, COMPOSE and semantic windows, and ANY EVENT."""

from __future__ import annotations

from collections.abc import Iterable

from ensue.nodes.names import AnyEvent
from ensue.nodes.patterns import Event, Operation
from ensue.python.patterns import Pattern, PatternLike, pattern_node, raise_any
from ensue.python.values import ConditionLike, WindowLike, condition_node, window
from ensue.text.builder import in_brackets
from ensue.text.operands import window_problems

__all__ = [
    "any_event",
    "anyone",
    "aperiodic",
    "aperiodic_list",
    "both",
    "chain",
    "concurrent",
    "except_for",
    "follows",
    "next_to",
    "not_follows",
    "not_precedes",
    "periodic",
    "periodic_list",
    "precedes",
    "prior_to",
    "relative",
    "simultaneous",
    "unless",
]


def __dir__() -> list[str]:
    return [*__all__]


def follows(first: PatternLike, second: PatternLike, within: WindowLike) -> Pattern:
    """The second ends after the first, at most `within` later: `FOLLOWS(x, y, d)`.

    >>> follows("A a", "B b", "5m")
    Pattern("FOLLOWS(A a, B b, 5m)")
    """
    return _timed("FOLLOWS", within, first, second)


def precedes(second: PatternLike, first: PatternLike, within: WindowLike) -> Pattern:
    """`follows` with its patterns in the opposite order: `PRECEDES(y, x, d)`.

    >>> precedes("B b", "A a", 5)
    Pattern("PRECEDES(B b, A a, 5)")
    """
    return _timed("PRECEDES", within, second, first)


def not_follows(item: PatternLike, forbidden: PatternLike, within: WindowLike) -> Pattern:
    """An item with no end of `forbidden` in the time `within` after it: `NOTFOLLOWS(x, y, d)`.

    >>> not_follows("Order o", "Payment p", "1h")
    Pattern("NOTFOLLOWS(Order o, Payment p, 1h)")
    """
    return _timed("NOTFOLLOWS", within, item, forbidden)


def not_precedes(item: PatternLike, forbidden: PatternLike, within: WindowLike) -> Pattern:
    """An item with no end of `forbidden` in the time `within` before it: `NOTPRECEDES(x, y, d)`.

    >>> not_precedes("Reading r", "Reading earlier", "10s")
    Pattern("NOTPRECEDES(Reading r, Reading earlier, 10s)")
    """
    return _timed("NOTPRECEDES", within, item, forbidden)


def anyone(one: PatternLike, other: PatternLike) -> Pattern:
    """One or the other: `ANYONE(x, y)`.

    >>> anyone("A a", "B b")
    Pattern("ANYONE(A a, B b)")
    """
    return _operation("ANYONE", one, other)


def both(one: PatternLike, other: PatternLike, within: WindowLike) -> Pattern:
    """Both in any order, the later one at most `within` later: `BOTH(x, y, d)`.

    >>> both("A a", "B b", 5)
    Pattern("BOTH(A a, B b, 5)")
    """
    return _timed("BOTH", within, one, other)


def aperiodic(opening: PatternLike, item: PatternLike, closing: PatternLike) -> Pattern:
    """Each item between an opening event and the closing event: `APERIODIC(x, y, z)`.

    >>> aperiodic("Open o", "Alarm a", "Close c")
    Pattern("APERIODIC(Open o, Alarm a, Close c)")
    """
    return _operation("APERIODIC", opening, item, closing)


def aperiodic_list(opening: PatternLike, items: PatternLike, closing: PatternLike) -> Pattern:
    """An opening event and its closing event, with the list of the items between: `APERIODIC*(x, y, z)`.

    >>> aperiodic_list("Open o", "Alarm a", "Close c")
    Pattern("APERIODIC*(Open o, Alarm a, Close c)")
    """
    return _operation("APERIODIC*", opening, items, closing)


def periodic(opening: PatternLike, every: WindowLike, until: PatternLike | None = None) -> Pattern:
    """One moment per period after an opening event, until the closing event: `PERIODIC(x, d, z)`.

    >>> periodic("Open o", "1h", until="Close c")
    Pattern("PERIODIC(Open o, 1h, Close c)")
    """
    items = (opening,) if until is None else (opening, until)
    return _timed("PERIODIC", every, *items)


def periodic_list(opening: PatternLike, every: WindowLike, until: PatternLike) -> Pattern:
    """An opening event, each closing event at least a period later, and the moments: `PERIODIC*(x, d, z)`.

    >>> periodic_list("Open o", "1h", "Close c").named("p")
    Pattern("PERIODIC*(Open o, 1h, Close c) AS p")
    """
    return _timed("PERIODIC*", every, opening, until)


def unless(forbidden: PatternLike, first: PatternLike, second: PatternLike) -> Pattern:
    """`first`, and the next `second` after it, without `forbidden` between: `UNLESS(y)(x, z)`.

    >>> unless("Cancel n", "Order o", "Ship s")
    Pattern("UNLESS(Cancel n)(Order o, Ship s)")
    """
    return _operation("UNLESS", forbidden, first, second)


def relative(first: PatternLike, second: PatternLike) -> Pattern:
    """The first before the second, like `seq`: `RELATIVE(x, y)`.

    >>> relative("A a", "B b")
    Pattern("RELATIVE(A a, B b)")
    """
    return _operation("RELATIVE", first, second)


def chain(item: PatternLike) -> Pattern:
    """Each match, with the list of it and all matches before it: `RELATIVE+(x)`.

    >>> chain("A a")
    Pattern("RELATIVE+(A a)")
    """
    return _operation("RELATIVE+", item)


def prior_to(first: PatternLike, second: PatternLike) -> Pattern:
    """The first ends before the second ends: `PRIOR(x, y)`. See `ensue.constraints.prior` for the constraint.

    >>> prior_to("A a", "B b")
    Pattern("PRIOR(A a, B b)")
    """
    return _operation("PRIOR", first, second)


def next_to(first: PatternLike, second: PatternLike) -> Pattern:
    """The second is the next event directly after the first: `NEXT(x, y)`.

    >>> next_to("A a", "B b")
    Pattern("NEXT(A a, B b)")
    """
    return _operation("NEXT", first, second)


def simultaneous(one: PatternLike, other: PatternLike) -> Pattern:
    """Both end at the same time: `SIMULTANEOUS(x, y)`.

    >>> simultaneous("A a", "B b")
    Pattern("SIMULTANEOUS(A a, B b)")
    """
    return _operation("SIMULTANEOUS", one, other)


def concurrent(one: PatternLike, other: PatternLike) -> Pattern:
    """The intervals of both overlap: `CONCURRENT(x, y)`.

    >>> concurrent("A a", "B b")
    Pattern("CONCURRENT(A a, B b)")
    """
    return _operation("CONCURRENT", one, other)


def except_for(item: PatternLike, other: PatternLike) -> Pattern:
    """Each match at which the other pattern does not end: `EXCEPT(x, y)`.

    >>> except_for(any_event("e"), "SEQ(A a, B b)")
    Pattern("EXCEPT(ANY EVENT e, SEQ(A a, B b))")
    """
    return _operation("EXCEPT", item, other)


def any_event(
    variable: str | None = None, but: str | Iterable[str] = (), where: ConditionLike | None = None
) -> Pattern:
    """An event of any stream, except for the streams `but`: `ANY EVENT BUT (A, B) variable [where]`.

    >>> any_event("e"), any_event("e", but=["A", "B"], where="amount > 5")
    (Pattern("ANY EVENT e"), Pattern("ANY EVENT BUT (A, B) e [amount > 5]"))
    """
    excluded = [but] if isinstance(but, str) else [*but]
    for stream in excluded:
        if not isinstance(stream, str):
            raise TypeError(f'`but` takes names of streams, such as "Heartbeat", not {stream!r}')
    condition = None if where is None else in_brackets(condition_node(where), variable)
    return Pattern(Event(AnyEvent.but(excluded), variable, condition))


def _operation(name: str, *items: PatternLike) -> Pattern:
    return Pattern(Operation(name, tuple(map(pattern_node, items))))


def _timed(name: str, duration: WindowLike, *items: PatternLike) -> Pattern:
    size = window(duration)
    raise_any(window_problems(name, size))
    return Pattern(Operation(name, tuple(map(pattern_node, items)), size))
