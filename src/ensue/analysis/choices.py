"""All choices that an expanded pattern leaves open: branches of OR, lengths of repetitions, and the order of items.

An operator that compares the end of an AND needs the item that ends last, and one that compares its start needs the
item that starts first. Each item is tried, with relations to the others, so that every match has exactly one order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import prod

from ensue.analysis.scopes import is_aside
from ensue.nodes import patterns
from ensue.nodes.names import Name, Round

MOST_CHOICES = 256
"""The maximum number of choices of one scope."""

Needs = frozenset[str]
"""The ends of a part ("s" and "e" in time, "first" and "last" in position) whose item must be known."""


def settled_forms(
    pattern: patterns.Pattern, needs: Needs = frozenset()
) -> Iterator[tuple[patterns.Pattern, Iterator[patterns.Pattern]]]:
    """Each choice of branches, lengths and orders of an expanded pattern.

    Most patterns have a single choice.
    """
    if not needs and not any(
        isinstance(part, patterns.Or | patterns.Repeat | patterns.Pick | patterns.RelatedItems)
        for part in patterns.walk(pattern)
    ):
        yield pattern, iter((pattern,))
    else:
        for chosen in choices(pattern):
            yield chosen, orders(chosen, needs)


def choices(pattern: patterns.Pattern, unrolls: bool = True) -> Iterator[patterns.Pattern]:
    """The pattern without OR and repetition, once per choice. The contents of NOT and collections are not changed.

    Repetitions are only unrolled with `unrolls`.

    >>> [chosen.stream for chosen in choices(patterns.Or((patterns.Event("A"), patterns.Event("B"))))]
    ['A', 'B']
    """
    if is_aside(pattern):
        yield pattern
    elif isinstance(pattern, patterns.Or):
        for item in pattern.items:
            yield from choices(item, unrolls)
    elif isinstance(pattern, patterns.Repeat) and unrolls:
        for rounds in lengths(pattern):
            yield from choices(unrolled(pattern, rounds))
    else:
        if isinstance(pattern, patterns.Pick):
            pattern = replace(pattern, contenders=pattern.item)
        elif isinstance(pattern, patterns.RelatedItems) and pattern.rival is not None:
            pattern = replace(pattern, contenders=pattern.items[pattern.rival])
        for below in product(*(tuple(choices(item, unrolls)) for item in patterns.children(pattern))):
            yield patterns.with_children(pattern, below)


def count_choices(pattern: patterns.Pattern) -> int:
    """An upper bound for the number of choices of a pattern, orders of items included."""
    if is_aside(pattern):
        return 1
    below = [count_choices(item) for item in patterns.children(pattern)]
    match pattern:
        case patterns.Or():
            return sum(below)
        case patterns.Repeat():
            return sum(min(below[0], MOST_CHOICES + 1) ** min(rounds, 64) for rounds in lengths(pattern))
        case patterns.RelatedItems():
            return prod(below) * prod(map(_most_orders, pattern.items))
        case _:
            return prod(below)


def _most_orders(pattern: patterns.Pattern) -> int:
    """The maximum number of items that can be the last of a part that an operator compares."""
    match pattern:
        case patterns.And():
            return sum(_most_orders(item) for item in pattern.items if not is_aside(item))
        case patterns.Seq():
            return _most_orders(pattern.items[_edges(pattern.items)[1]])
        case patterns.Within() | patterns.NamedPattern() | patterns.Pick():
            return _most_orders(pattern.item)
        case patterns.RelatedItems():
            return sum(_most_orders(item) for item in pattern.items if not is_aside(item))
        case _:
            return 1


def lengths(repeat: patterns.Repeat) -> range:
    """The possible numbers of elements of a repetition that is not a collection."""
    assert repeat.most is not None
    return range(repeat.least, repeat.most + 1)


def unrolled(repeat: patterns.Repeat, rounds: int) -> patterns.Pattern:
    """`rounds` copies of the item, each before the next. The names of the copies are numbered."""
    copies = tuple(_in_round(repeat.item, number) for number in range(rounds))
    return copies[0] if rounds == 1 else patterns.Seq(copies, repeat.span)


def _in_round(pattern: patterns.Pattern, number: int) -> patterns.Pattern:
    return renamed(pattern, {name: Round(name, number) for name in names_in(pattern)})


def names_in(pattern: patterns.Pattern) -> tuple[Name, ...]:
    """All variables, AS names and moments of a pattern, including those inside NOT and collections."""
    names: list[Name] = []
    for part in patterns.walk(pattern):
        match part:
            case patterns.Event(variable=name) if name is not None:
                names.append(name)
            case patterns.NamedPattern(name=name):
                names.append(name)
            case patterns.RelatedItems(timers=timers):
                names += [timer.name for timer in timers]
    return tuple(dict.fromkeys(names))


def renamed(pattern: patterns.Pattern, names: Mapping[Name, Name]) -> patterns.Pattern:
    """The pattern with other names. Copies of NOTs and collections refer to their originals."""
    below = tuple(renamed(child, names) for child in patterns.children(pattern))
    copy = patterns.with_children(pattern, below) if below else pattern
    if isinstance(copy, patterns.RelatedItems | patterns.Pick) and copy.contenders is not None:
        copy = replace(copy, contenders=renamed(copy.contenders, names))
    match copy:
        case patterns.Event(variable=name) if name is not None:
            return replace(copy, variable=names.get(name, name))
        case patterns.NamedPattern():
            return replace(copy, name=names.get(copy.name, copy.name))
        case patterns.Within(reach=patterns.Reach() as reach):
            return replace(copy, reach=replace(reach, anchor=names.get(reach.anchor, reach.anchor)))
        case patterns.RelatedItems(timers=timers) if timers:
            own = (replace(timer, name=names.get(timer.name, timer.name)) for timer in timers)
            return replace(copy, timers=tuple(own))
        case patterns.Not():
            return replace(copy, copied=_copied(pattern, names))
        case patterns.Repeat():
            shares = tuple(names.get(name, name) for name in copy.shares)
            return replace(copy, copied=_copied(pattern, names), shares=shares)
        case _:
            return copy


def _copied(pattern: patterns.Pattern, names: Mapping[Name, Name]) -> patterns.CopyMark:
    assert isinstance(pattern, patterns.Not | patterns.Repeat)
    if pattern.copied is None:
        return patterns.CopyMark(pattern, names)
    earlier = pattern.copied.names
    again = {name: names.get(new, new) for name, new in earlier.items()}
    return patterns.CopyMark(pattern.copied.original, {**names, **again})


# --- Orders

NOTHING: Needs = frozenset()
OF_START: Needs = frozenset({"s", "first"})
OF_END: Needs = frozenset({"e", "last"})


def orders(pattern: patterns.Pattern, needs: Needs = NOTHING) -> Iterator[patterns.Pattern]:
    """A chosen pattern, once for each order of the items of an AND that its operators distinguish."""
    match pattern:
        case patterns.Seq(loose=loose) if loose and needs:
            yield from orders(_related(pattern), needs)
        case patterns.Seq():
            first, last = _edges(pattern.items)
            wanted = [
                (needs & OF_START if place == first else NOTHING) | (needs & OF_END if place == last else NOTHING)
                for place in range(len(pattern.items))
            ]
            yield from _with_items(pattern, wanted)
        case patterns.And():
            positive = _positive(pattern.items)
            if needs and len(positive) > 1:
                yield from orders(
                    patterns.RelatedItems("AND", pattern.items, (), positive, positive, span=pattern.span), needs
                )
            else:
                yield from _with_items(pattern, [needs] * len(pattern.items))
        case patterns.RelatedItems():
            yield from _orders_of_items(pattern, needs)
        case patterns.Within() | patterns.NamedPattern() | patterns.Pick():
            for item in orders(pattern.item, needs | {"e"} if isinstance(pattern, patterns.Pick) else needs):
                yield replace(pattern, item=item)
        case patterns.Event() | patterns.Not() | patterns.Repeat():
            yield pattern
        case patterns.Or() | patterns.Operation():
            raise AssertionError("operators must be expanded and branches chosen first")


def _related(pattern: patterns.Seq) -> patterns.RelatedItems:
    """A SEQ with loose gaps, without NOTs and collections, as its remaining relations."""
    gaps = enumerate(pairwise(range(len(pattern.items))))
    relations = [
        patterns.Relation(patterns.Place(one, "e"), patterns.Place(other, "s"), strict=True, ordered=True)
        for number, (one, other) in gaps
        if number not in pattern.loose
    ]
    positive = _positive(pattern.items)
    return patterns.RelatedItems("SEQ", pattern.items, tuple(relations), positive, positive, span=pattern.span)


def _orders_of_items(pattern: patterns.RelatedItems, needs: Needs) -> Iterator[patterns.Pattern]:
    for end in sorted(needs):
        holders = _holders(pattern, end)
        if len(holders) > 1:
            for holder in holders:
                yield from _orders_of_items(_held_by(pattern, end, holder, holders), needs)
            return
    wanted = [_needs_of(pattern, place, needs) for place in range(len(pattern.items))]
    yield from _with_items(pattern, wanted)


def _holders(pattern: patterns.RelatedItems, end: str) -> tuple[int, ...]:
    """The items that can be at an end of the part."""
    match end:
        case "s":
            return pattern.starts
        case "e":
            return pattern.ends
        case _:
            settled = pattern.first if end == "first" else pattern.last
            return _positive(pattern.items) if settled is None else (settled,)


def _held_by(pattern: patterns.RelatedItems, end: str, holder: int, holders: Sequence[int]) -> patterns.RelatedItems:
    """The part with `holder` at an end. Of two items with the same end, the first in the text is chosen."""
    least = end in OF_START
    relations = []
    for other in holders:
        if other != holder:
            left, right = (holder, other) if least else (other, holder)
            relations.append(
                patterns.Relation(patterns.Place(left, end), patterns.Place(right, end), strict=other < holder)
            )
    extended = replace(pattern, relations=(*pattern.relations, *relations))
    match end:
        case "s":
            return replace(extended, starts=(holder,))
        case "e":
            return replace(extended, ends=(holder,))
        case "first":
            return replace(extended, first=holder)
        case _:
            return replace(extended, last=holder)


def _needs_of(pattern: patterns.RelatedItems, place: int, needs: Needs) -> Needs:
    """The ends of an item whose holder must be known: those that a relation compares from their open side."""
    found: set[str] = set()
    for relation in pattern.relations:
        if relation.left.item == place and relation.left.side in OF_START:
            found.add(relation.left.side)
        if relation.right.item == place and relation.right.side in OF_END:
            found.add(relation.right.side)
    found |= {timer.base.side for timer in pattern.timers if timer.base.item == place}
    if place == pattern.rival or pattern.moments:
        found.add("e")
    for end in needs:
        if _holders(pattern, end) == (place,):
            found.add(end)
    return frozenset(found)


def _with_items(
    pattern: patterns.Seq | patterns.And | patterns.RelatedItems, wanted: Sequence[Needs]
) -> Iterator[patterns.Pattern]:
    for items in product(*(tuple(orders(item, needs)) for item, needs in zip(pattern.items, wanted, strict=True))):
        yield replace(pattern, items=items)


def _positive(items: Sequence[patterns.Pattern]) -> tuple[int, ...]:
    return tuple(place for place, item in enumerate(items) if not is_aside(item))


def _edges(items: Sequence[patterns.Pattern]) -> tuple[int, int]:
    positive = _positive(items)
    return positive[0], positive[-1]
