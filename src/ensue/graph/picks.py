"""FIRST and LAST in the normal form: which items are chosen together, what is compared, and when a choice is final."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ensue.graph import bounds, reader
from ensue.graph.graphs import Extent, Graph, WindowClose
from ensue.nodes import patterns


@dataclass(frozen=True, slots=True)
class Stage:
    """A way in which another match can be better: as good at the ends `before`, and better at one end.

    An end is that of element `element` of the FIRST or LAST number `place`.
    """

    place: int
    element: int
    own: Extent
    before: tuple[tuple[int, int, Extent], ...]
    item: patterns.Pattern
    latest: bool

    def compared(self, others: Sequence[reader.Choice]) -> tuple[Extent, Extent]:
        """The element, and that of the other match, whose choices are `others`."""
        return self.own, _elements(others[self.place].pick)[self.element]

    def equal(self, others: Sequence[reader.Choice]) -> Iterator[tuple[Extent, Extent]]:
        for place, element, own in self.before:
            yield own, _elements(others[place].pick)[element]


def together(found: Sequence[reader.Choice], place: int) -> tuple[int, ...]:
    """The places of what is chosen together with this FIRST or LAST: each item that something has to come after."""
    outermost = [choice for choice in found if not any(_is_inside(choice.pick, other.pick) for other in found)]
    joint = tuple(number for number, choice in enumerate(found) if choice.followed and choice in outermost)
    return joint if place in joint else (place,)


def _is_inside(pick: patterns.Pick, other: patterns.Pick) -> bool:
    return pick is not other and any(part is pick for part in patterns.walk(other.item))


def stages(found: Sequence[reader.Choice], places: Sequence[int], place: int) -> Iterator[Stage]:
    """The ways of being better at one place: what is at the places before it ends at the same times."""
    earlier = [
        (other, element, extent)
        for other in places[: places.index(place)]
        for element, extent in enumerate(_elements(found[other].pick))
    ]
    pick = found[place].pick
    for number, own in enumerate(_elements(pick)):
        yield Stage(place, number, own, tuple(earlier), pick.item, pick.latest)
        earlier.append((place, number, own))


def _elements(pick: patterns.Pick) -> tuple[Extent, ...]:
    """What is compared of an item: the item, or the elements of a repetition, from the last on."""
    assert pick.contenders is not None
    item = _unwrapped(pick.item)
    if isinstance(_unwrapped(pick.contenders), patterns.Repeat) and isinstance(item, patterns.Seq):
        return tuple(map(reader.extent_of, item.items[::-1]))
    return (reader.extent_of(pick.item),)


def _unwrapped(pattern: patterns.Pattern) -> patterns.Pattern:
    while isinstance(pattern, patterns.Within | patterns.NamedPattern):
        pattern = pattern.item
    return pattern


def with_items(pattern: patterns.Pattern, items: Mapping[int, patterns.Pattern]) -> patterns.Pattern:
    """The pattern with other items in place of those of some FIRST and LAST, counted from the left."""
    numbers = count()

    def changed(part: patterns.Pattern) -> patterns.Pattern:
        if not isinstance(part, patterns.Pick):
            return part
        return replace(part, item=items.get(next(numbers), part.item))

    return patterns.rewrite(pattern, changed)


def closings(graph: Graph, pattern: patterns.Pattern, choices: Sequence[reader.Choice]) -> tuple[WindowClose, ...]:
    """The scopes that close with the window: those open to the right, and those that a FIRST or LAST chooses from."""
    is_open = reader.trails(pattern)
    waiting = [choice.pick for choice in choices if is_open or choice.waits]
    if not waiting:
        return (WindowClose(graph.names, graph.extent.starts),) if is_open else ()
    return tuple(_closing_beside(pick, graph) for pick in waiting)


def _closing_beside(pick: patterns.Pick, graph: Graph) -> WindowClose:
    """The window counted from the first variable outside an item."""
    picked = reader.variables_in(pick.item)
    names = tuple(name for name in graph.names if name not in picked)
    first = tuple(
        name
        for name in names
        if not any(
            graph.times.before(bounds.start_of(other), bounds.start_of(name)) for other in names if other != name
        )
    )
    return WindowClose(names, first)
