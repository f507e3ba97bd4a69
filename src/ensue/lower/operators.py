"""What the operators mean in terms of items and relations between their ends (docs/semantics.md, sections 6 and 7).

After this, a pattern holds no `Operation`: each is an OR, an AND, a SEQ or a `Related`. The parts that must not happen
are NOTs and those of which a list is made are collections, so that whoever looks for scopes finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, count

from ensue.nodes.names import Name, Tick
from ensue.nodes.patterns import (
    TIMER,
    And,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Place,
    Related,
    Relation,
    Repeat,
    Seq,
    Timer,
    Window,
    rewrite,
    walk,
)

FIRST_START, FIRST_END = Place(0, "s"), Place(0, "e")
SECOND_START, SECOND_END = Place(1, "s"), Place(1, "e")
THIRD_START, THIRD_END = Place(2, "s"), Place(2, "e")
MOMENT = Place(TIMER, "e")


def expand_query(query: PatternQuery) -> PatternQuery:
    """The query with every operator replaced by what it means."""
    pattern = expand_pattern(query.pattern)
    return query if pattern is query.pattern else replace(query, pattern=pattern)


def expand_pattern(pattern: Pattern) -> Pattern:
    """The pattern with every operator replaced by what it means."""
    if not any(isinstance(part, Operation) for part in walk(pattern)):
        return pattern
    numbers = count(1)

    def expand(part: Pattern) -> Pattern:
        if not isinstance(part, Operation):
            return part
        return MEANINGS[part.operator](part, Tick(part.operator, next(numbers)))

    return rewrite(pattern, expand)


def as_written(pattern: Pattern) -> Pattern:
    """The pattern with the operators that it was expanded from, for texts."""

    def restore(part: Pattern) -> Pattern:
        if not isinstance(part, Related):
            return part
        return part.origin if part.origin is not None else And(part.items, part.span)

    return rewrite(pattern, restore)


def before(earlier: Place, later: Place) -> Relation:
    return Relation(earlier, later, strict=True)


def _window(operation: Operation) -> Window:
    assert operation.window is not None
    return operation.window


def _follows(operation: Operation, name: Name) -> Pattern:
    x, y = operation.items
    return _followed(x, y, operation)


def _precedes(operation: Operation, name: Name) -> Pattern:
    x, y = operation.items
    return _followed(y, x, operation)


def _followed(x: Pattern, y: Pattern, operation: Operation) -> Related:
    relations = (before(FIRST_END, SECOND_END), Relation(SECOND_END, FIRST_END, _window(operation)))
    return Related(operation.operator, (x, y), relations, (0, 1), (1,), span=operation.span, origin=operation)


def _both(operation: Operation, name: Name) -> Pattern:
    x, y = operation.items
    return Or((_followed(x, y, operation), _followed(y, x, operation)), operation.span)


def _notfollows(operation: Operation, name: Name) -> Pattern:
    x, y = operation.items
    window = _window(operation)
    return Related(
        operation.operator,
        (x, Not(y, y.span)),
        (before(FIRST_END, SECOND_END), Relation(SECOND_END, FIRST_END, window)),
        (0,),
        (TIMER,),
        timers=(Timer(name, FIRST_END, window),),
        span=operation.span,
        origin=operation,
    )


def _notprecedes(operation: Operation, name: Name) -> Pattern:
    x, y = operation.items
    relations = (before(SECOND_END, FIRST_END), Relation(FIRST_END, SECOND_END, _window(operation)))
    return Related(
        operation.operator, (x, Not(y, y.span)), relations, (0,), (0,), span=operation.span, origin=operation
    )


def _anyone(operation: Operation, name: Name) -> Pattern:
    return Or(operation.items, operation.span)


def _any(operation: Operation, name: Name) -> Pattern:
    assert operation.count is not None
    chosen = [And(items, operation.span) for items in combinations(operation.items, operation.count)]
    return chosen[0] if len(chosen) == 1 else Or(tuple(chosen), operation.span)


def _aperiodic(operation: Operation, name: Name) -> Pattern:
    x, y, z = operation.items
    relations = (before(FIRST_END, SECOND_START), Relation(FIRST_END, THIRD_END), Relation(THIRD_END, SECOND_END))
    return Related(
        operation.operator, (x, y, Not(z, z.span)), relations, (0,), (1,), span=operation.span, origin=operation
    )


def _aperiodic_list(operation: Operation, name: Name) -> Pattern:
    x, y, z = operation.items
    return _until_first(operation, x, Repeat(y, 0, None, True, y.span), z)


def _unless(operation: Operation, name: Name) -> Pattern:
    y, x, z = operation.items
    return _until_first(operation, x, Not(y, y.span), z)


def _until_first(operation: Operation, x: Pattern, between: Pattern, z: Pattern) -> Related:
    """A first `z` after `x`, and something between the two."""
    relations = (
        before(FIRST_END, THIRD_START),
        before(FIRST_END, SECOND_START),
        before(SECOND_END, THIRD_START),
    )
    return Related(
        operation.operator, (x, between, z), relations, (0,), (2,), rival=2, span=operation.span, origin=operation
    )


def _periodic(operation: Operation, name: Name) -> Pattern:
    x, *closing = operation.items
    return Related(
        operation.operator,
        (x, *(Not(z, z.span) for z in closing)),
        (before(FIRST_END, SECOND_START), Relation(SECOND_END, MOMENT)) if closing else (),
        (0,),
        (TIMER,),
        timers=(Timer(name, FIRST_END, _window(operation), repeated=True),),
        span=operation.span,
        origin=operation,
    )


def _periodic_list(operation: Operation, name: Name) -> Pattern:
    x, z = operation.items
    return Related(
        operation.operator,
        (x, z),
        (before(FIRST_END, SECOND_START),),
        (0,),
        (1,),
        rival=1,
        moments=_window(operation),
        span=operation.span,
        origin=operation,
    )


def _relative(operation: Operation, name: Name) -> Pattern:
    return Seq(operation.items, operation.span)


def _chain(operation: Operation, name: Name) -> Pattern:
    return Repeat(operation.items[0], 1, None, False, operation.span)


def _pair(*relations: Relation, ends: tuple[int, ...] = (1,)) -> Callable[[Operation, Name], Pattern]:
    """An operator of two items that is nothing but relations between them."""

    def meaning(operation: Operation, name: Name) -> Pattern:
        return Related(
            operation.operator, operation.items, relations, (0, 1), ends, span=operation.span, origin=operation
        )

    return meaning


MEANINGS: dict[str, Callable[[Operation, Name], Pattern]] = {
    "FOLLOWS": _follows,
    "PRECEDES": _precedes,
    "NOTFOLLOWS": _notfollows,
    "NOTPRECEDES": _notprecedes,
    "ANYONE": _anyone,
    "BOTH": _both,
    "ANY": _any,
    "APERIODIC": _aperiodic,
    "APERIODIC*": _aperiodic_list,
    "PERIODIC": _periodic,
    "PERIODIC*": _periodic_list,
    "UNLESS": _unless,
    "RELATIVE": _relative,
    "RELATIVE+": _chain,
    "PRIOR": _pair(before(FIRST_END, SECOND_END)),
    "NEXT": _pair(Relation(Place(1, "first"), Place(0, "last"), adjacent=True), ends=(0, 1)),
    "SIMULTANEOUS": _pair(Relation(FIRST_END, SECOND_END), Relation(SECOND_END, FIRST_END)),
    "CONCURRENT": _pair(
        before(FIRST_START, SECOND_END),
        before(SECOND_START, FIRST_END),
        before(FIRST_START, FIRST_END),
        before(SECOND_START, SECOND_END),
        ends=(0, 1),
    ),
}
