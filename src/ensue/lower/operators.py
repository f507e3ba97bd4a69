"""Expand operators to items and relations between their ends (docs/semantics.md, sections 6 and 7).

An expanded pattern has no `Operation`: each becomes an OR, an AND, a SEQ or `RelatedItems`. Forbidden parts become NOTs
and parts that are listed become collections, so that they are scopes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, count

from ensue.analysis.choices import names_in, renamed
from ensue.nodes import patterns
from ensue.nodes.names import Name, OneOf, Tick

FIRST_START, FIRST_END = patterns.Place(0, "s"), patterns.Place(0, "e")
SECOND_START, SECOND_END = patterns.Place(1, "s"), patterns.Place(1, "e")
THIRD_START, THIRD_END = patterns.Place(2, "s"), patterns.Place(2, "e")
MOMENT = patterns.Place(patterns.TIMER, "e")


def expand_query(query: patterns.PatternQuery) -> patterns.PatternQuery:
    """The query with all operators expanded."""
    pattern = expand_pattern(query.pattern)
    return query if pattern is query.pattern else replace(query, pattern=pattern)


def expand_pattern(pattern: patterns.Pattern) -> patterns.Pattern:
    """The pattern with all operators expanded."""
    if not any(isinstance(part, patterns.Operation) for part in patterns.walk(pattern)):
        return pattern
    numbers = count(1)

    def expand(part: patterns.Pattern) -> patterns.Pattern:
        if not isinstance(part, patterns.Operation):
            return part
        return MEANINGS[part.operator](part, Tick(part.operator, next(numbers)))

    return patterns.rewrite(pattern, expand)


def as_written(pattern: patterns.Pattern) -> patterns.Pattern:
    """The pattern with its original operators, for messages."""

    def restore(part: patterns.Pattern) -> patterns.Pattern:
        if not isinstance(part, patterns.RelatedItems):
            return part
        return part.origin if part.origin is not None else patterns.And(part.items, part.span)

    return patterns.rewrite(pattern, restore)


def before(earlier: patterns.Place, later: patterns.Place) -> patterns.Relation:
    return patterns.Relation(earlier, later, strict=True, ordered=(earlier.side, later.side) == ("e", "s"))


def _window(operation: patterns.Operation) -> patterns.Window:
    assert operation.window is not None
    return operation.window


def _follows(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, y = operation.items
    return _followed(x, y, operation)


def _precedes(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, y = operation.items
    return _followed(y, x, operation)


def _followed(x: patterns.Pattern, y: patterns.Pattern, operation: patterns.Operation) -> patterns.RelatedItems:
    relations = (before(FIRST_END, SECOND_END), patterns.Relation(SECOND_END, FIRST_END, _window(operation)))
    return patterns.RelatedItems(
        operation.operator, (x, y), relations, (0, 1), (1,), span=operation.span, origin=operation
    )


def _both(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, y = operation.items
    return patterns.Or((_followed(x, y, operation), _followed(y, x, operation)), operation.span)


def _notfollows(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, y = operation.items
    window = _window(operation)
    return patterns.RelatedItems(
        operation.operator,
        (x, patterns.Not(y, y.span)),
        (before(FIRST_END, SECOND_END), patterns.Relation(SECOND_END, FIRST_END, window)),
        (0,),
        (patterns.TIMER,),
        timers=(patterns.Timer(name, FIRST_END, window),),
        span=operation.span,
        origin=operation,
    )


def _notprecedes(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, y = operation.items
    relations = (before(SECOND_END, FIRST_END), patterns.Relation(FIRST_END, SECOND_END, _window(operation)))
    return patterns.RelatedItems(
        operation.operator, (x, patterns.Not(y, y.span)), relations, (0,), (0,), span=operation.span, origin=operation
    )


def _anyone(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    return patterns.Or(operation.items, operation.span)


def _any(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    assert operation.count is not None
    chosen = [patterns.And(items, operation.span) for items in combinations(operation.items, operation.count)]
    return chosen[0] if len(chosen) == 1 else patterns.Or(tuple(chosen), operation.span)


def _aperiodic(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, y, z = operation.items
    relations = (
        before(FIRST_END, SECOND_START),
        patterns.Relation(FIRST_END, THIRD_END),
        patterns.Relation(THIRD_END, SECOND_END),
    )
    return patterns.RelatedItems(
        operation.operator,
        (x, y, patterns.Not(z, z.span)),
        relations,
        (0,),
        (1,),
        span=operation.span,
        origin=operation,
    )


def _aperiodic_list(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, y, z = operation.items
    return _until_first(operation, x, patterns.Repeat(y, 0, None, True, y.span), z)


def _unless(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    y, x, z = operation.items
    return _until_first(operation, x, patterns.Not(y, y.span), z)


def _until_first(
    operation: patterns.Operation, x: patterns.Pattern, between: patterns.Pattern, z: patterns.Pattern
) -> patterns.RelatedItems:
    """The first `z` after `x`, and an item between the two."""
    relations = (
        before(FIRST_END, THIRD_START),
        before(FIRST_END, SECOND_START),
        before(SECOND_END, THIRD_START),
    )
    return patterns.RelatedItems(
        operation.operator, (x, between, z), relations, (0,), (2,), rival=2, span=operation.span, origin=operation
    )


def _periodic(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, *closing = operation.items
    return patterns.RelatedItems(
        operation.operator,
        (x, *(patterns.Not(z, z.span) for z in closing)),
        (before(FIRST_END, SECOND_START), patterns.Relation(SECOND_END, MOMENT)) if closing else (),
        (0,),
        (patterns.TIMER,),
        timers=(patterns.Timer(name, FIRST_END, _window(operation), repeated=True),),
        span=operation.span,
        origin=operation,
    )


def _periodic_list(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, z = operation.items
    return patterns.RelatedItems(
        operation.operator,
        (x, z),
        (before(FIRST_END, SECOND_START), patterns.Relation(FIRST_END, SECOND_END, _window(operation), apart=True)),
        (0,),
        (1,),
        moments=_window(operation),
        span=operation.span,
        origin=operation,
    )


def _relative(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    return patterns.Seq(operation.items, operation.span)


def _chain(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    """A match of the item, and the list of it and all matches before it."""
    (item,) = operation.items
    last = {own: OneOf(own) for own in names_in(item)}
    listed = patterns.Repeat(item, 1, None, True, operation.span, shares=tuple(last.values()), through=True)
    return patterns.Seq((listed, renamed(item, last)), operation.span)


def _except(operation: patterns.Operation, name: Name) -> patterns.Pattern:
    x, y = operation.items
    relations = (patterns.Relation(SECOND_END, FIRST_END, same=True),)
    return patterns.RelatedItems(
        operation.operator, (x, patterns.Not(y, y.span)), relations, (0,), (0,), span=operation.span, origin=operation
    )


def _pair(
    *relations: patterns.Relation, ends: tuple[int, ...] = (1,)
) -> Callable[[patterns.Operation, Name], patterns.Pattern]:
    """An operator that consists of two items and relations between them."""

    def meaning(operation: patterns.Operation, name: Name) -> patterns.Pattern:
        return patterns.RelatedItems(
            operation.operator, operation.items, relations, (0, 1), ends, span=operation.span, origin=operation
        )

    return meaning


MEANINGS: dict[str, Callable[[patterns.Operation, Name], patterns.Pattern]] = {
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
    "EXCEPT": _except,
    "PRIOR": _pair(before(FIRST_END, SECOND_END)),
    "NEXT": _pair(patterns.Relation(patterns.Place(1, "first"), patterns.Place(0, "last"), adjacent=True), ends=(0, 1)),
    "SIMULTANEOUS": _pair(
        patterns.Relation(FIRST_END, SECOND_END), patterns.Relation(SECOND_END, FIRST_END), ends=(0, 1)
    ),
    "CONCURRENT": _pair(
        before(FIRST_START, SECOND_END),
        before(SECOND_START, FIRST_END),
        before(FIRST_START, FIRST_END),
        before(SECOND_START, SECOND_END),
        ends=(0, 1),
    ),
}
