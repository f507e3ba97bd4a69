"""What can be wrong with the shape of a pattern: where NOT, collections and FIRST stand, and what ends a scope."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ensue.algebra.choices import MOST_CHOICES, count_choices
from ensue.algebra.nodes import (
    And,
    Event,
    Events,
    Named,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Repeat,
    Seq,
    Within,
    children,
    walk,
)
from ensue.algebra.operators import OPERATORS
from ensue.algebra.scopes import (
    Aside,
    is_aside,
    scopes_of,
    whole_windows,
)
from ensue.errors import Problem


def check_shape(pattern: Pattern, place: Pattern | None = None) -> Iterator[Problem]:
    """NOT and collections stand only as items of SEQ or AND, and every operator has a positive item."""
    in_sequence = isinstance(place, Seq | And)
    if isinstance(pattern, Not) and not in_sequence:
        yield Problem(
            "misplaced-not",
            "NOT stands only as an item of SEQ or AND",
            pattern.span,
            hint="put it into a SEQ or AND that says where the forbidden events would lie: `SEQ(A a, NOT B b, C c)`",
        )
    if isinstance(pattern, Repeat) and pattern.every and not in_sequence:
        yield Problem(
            "misplaced-collect",
            "a collection (COLLECT, `+`, `*`, ALL) stands only as an item of SEQ or AND",
            pattern.span,
            hint="put it into a SEQ or AND that says where the listed events lie: `SEQ(A a, COLLECT B b, C c)`",
        )
    if isinstance(pattern, Repeat) and any(isinstance(node, Repeat) for node in walk(pattern.item)):
        yield Problem(
            "nested-repeat",
            "a repetition stands inside of another",
            pattern.span,
            hint="declare the inner one as a STREAM of its own and repeat its events",
        )
    if isinstance(pattern, Pick):
        yield from _check_pick(pattern, place)
    if isinstance(pattern, Seq | And | Or) and all(map(is_aside, pattern.items)):
        operator = type(pattern).__name__.upper()
        yield Problem(
            "no-positive-item",
            f"{operator} has no positive item" if pattern.items else f"{operator} has no item",
            pattern.span,
            hint="a match is made of events that happened: add an item without NOT",
        )
    for child in children(pattern):
        yield from check_shape(child, pattern)


def _check_pick(pick: Pick, place: Pattern | None) -> Iterator[Problem]:
    word = "LAST" if pick.latest else "FIRST"
    if any(map(_is_repetition, walk(pick.item))):
        yield Problem(
            "repeated-pick",
            f"{word} chooses among single events or composites of them, and a repetition is neither",
            pick.span,
            hint="declare that part as a STREAM of its own and choose among its events",
        )
    if not isinstance(place, Seq | And) or is_aside(pick.item):
        yield Problem(
            "misplaced-pick",
            f"{word} stands only before an item of SEQ or AND that binds events",
            pick.span,
            hint=f"write it before an item: `SEQ(A a, {word} B b)`",
        )


def _is_repetition(pattern: Pattern) -> bool:
    """Whether every choice of so many matches counts, not one list of all."""
    if isinstance(pattern, Repeat):
        return not pattern.every
    return isinstance(pattern, Operation) and pattern.operator == "RELATIVE+"


def check_endings(query: PatternQuery) -> Iterator[Problem]:
    """FIRST and LAST are about whole matches; a PERIODIC ends by an event or a window."""
    ended = any(not isinstance(window, Events) for window in whole_windows(query))
    yield from _check_endings(query.pattern, ended, outermost=True)
    events = _count_positive(query.pattern)
    for pick in walk(query.pattern):
        if isinstance(pick, Pick) and _count_positive(pick) == events:
            word = "LAST" if pick.latest else "FIRST"
            yield Problem(
                "misplaced-pick",
                f"{word} chooses for the same other items, and there is no other item without NOT",
                pick.span,
                hint=f"put it beside the item for which to choose: `SEQ(A a, {word} B b)`",
            )


def _count_positive(pattern: Pattern) -> int:
    """How many events are written that a match binds."""
    if isinstance(pattern, Event):
        return 1
    spec = OPERATORS[pattern.operator] if isinstance(pattern, Operation) else None
    beside = (*spec.forbidden, *spec.collected) if spec is not None else ()
    below = [child for place, child in enumerate(children(pattern)) if place not in beside]
    return 0 if is_aside(pattern) else sum(map(_count_positive, below))


def _check_endings(pattern: Pattern, ended: bool, outermost: bool) -> Iterator[Problem]:
    if isinstance(pattern, Pick) and not outermost:
        word = "LAST" if pattern.latest else "FIRST"
        yield Problem(
            "misplaced-pick",
            f"{word} chooses among whole matches, so it does not stand inside of another operator than SEQ and AND",
            pattern.span,
            hint="declare that part as a STREAM of its own and pick there",
        )
    if isinstance(pattern, Operation) and pattern.operator == "PERIODIC" and len(pattern.items) == 1 and not ended:
        yield Problem(
            "endless-periodic",
            "nothing ends this PERIODIC: it would go on for ever",
            pattern.span,
            hint="add the event that ends it, `PERIODIC(x, d, z)`, or a WITHIN around it",
        )
    ended = ended or (isinstance(pattern, Within) and not isinstance(pattern.window, Events))
    for child in children(pattern):
        yield from _check_endings(child, ended, outermost and isinstance(pattern, Seq | And | Within | Named))


def check_choices(pattern: Pattern) -> Iterator[Problem]:
    """OR multiplies; a product of branches beyond reason is refused before it is built."""
    for scope in scopes_of(pattern):
        found = prod(count_choices(level.pattern) for level in scope.chain)
        if found > MOST_CHOICES:
            yield Problem(
                "too-many-branches",
                f"OR, ANY and repetitions give {found} combinations; {MOST_CHOICES} is the most",
                scope.pattern.span,
                hint="replace OR over streams by one stream with a condition, or split the pattern",
            )


def open_scopes(pattern: Pattern, left: bool, right: bool) -> Iterator[Problem]:
    """What is open at an edge of the whole pattern, if no WITHIN around it says how far it reaches: a NOT, a LAST.

    `left` and `right` say whether an enclosing SEQ has a positive item on that side.
    """
    match pattern:
        case Seq():
            positive = [number for number, item in enumerate(pattern.items) if not is_aside(item)]
            for number, item in enumerate(pattern.items):
                closed_left, closed_right = left or positive[0] < number, right or number < positive[-1]
                if is_aside(item) and not (closed_left and closed_right):
                    yield _open_scope(item, "after" if closed_left else "before")
                yield from open_scopes(item, closed_left, closed_right)
        case And():
            for item in pattern.items:
                if is_aside(item) and not left:
                    yield _open_scope(item, "before")
                yield from open_scopes(item, left, right)
        case Pick(latest=True) if not right:
            yield Problem(
                "endless-last",
                "LAST would wait for ever: nothing says how long a later one may still come",
                pattern.span,
                hint="add a WITHIN to the whole pattern, or put the item before another one of a SEQ",
            )
        case _:
            for child in children(pattern):
                yield from open_scopes(child, left, right)


def _open_scope(aside: Aside, side: str) -> Problem:
    events, word = ("forbidden", "NOT") if isinstance(aside, Not) else ("listed", "collection")
    return Problem(
        "open-scope",
        f"nothing says how long {side} the match the {events} events count",
        aside.span,
        hint=f"add a WITHIN to the whole pattern, or put the {word} between two items of a SEQ",
    )
