"""Reads a chosen pattern: its variables, the bounds of its operators, and the NOTs and collections with their
places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ensue.analysis.choices import NOTHING, OF_END, OF_START, Needs
from ensue.analysis.scopes import Aside, is_aside, reaches_of
from ensue.graph.bounds import Bound, Limit, Point, Reason, end_of, position_of, start_of
from ensue.graph.graphs import Extent, Moment, Series, Variable
from ensue.nodes import patterns
from ensue.nodes.expressions import conjuncts, substitute_fields
from ensue.nodes.names import Name, UnnamedVariable
from ensue.text.render import render_window, render_within

WRAPPED = (patterns.Within, patterns.NamedPattern)
"""What can be around an item with a reach, or is one."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A NOT or a collection with its positive neighbours, searched outwards; None is an edge of the whole pattern.

    If an operator or a reach defines the place of the item, `stated` returns the bounds for an extent of the item, and
    `needs` tells which of its ends they compare.
    """

    item: Aside
    left: Extent | None
    right: Extent | None
    in_seq: bool
    stated: Callable[[Extent], list[Bound]] | None = None
    needs: Needs = NOTHING
    ends: patterns.Pattern | None = None


@dataclass(frozen=True, slots=True)
class Rival:
    """An item that must be a first one: no match of its `contenders` ends before it. `after`: what both come after.

    `left` and `right` are the neighbours for a NOT inside it.
    """

    item: patterns.Pattern
    contenders: patterns.Pattern
    after: Extent
    left: Extent | None
    right: Extent | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A FIRST or LAST, and whether something has to come after its item. Otherwise, a LAST waits."""

    pick: patterns.Pick
    followed: bool

    @property
    def waits(self) -> bool:
        return self.pick.latest and not self.followed


@dataclass(slots=True)
class Parts:
    """Collects the parts of one chosen pattern; `intervals` are the AS names, `series` those of PERIODIC*.

    `reaches` are the bounds that reaches state, possibly with variables around the pattern.
    """

    variables: dict[Name, Variable] = field(default_factory=dict)
    intervals: dict[Name, Extent] = field(default_factory=dict)
    series: dict[Name, Series] = field(default_factory=dict)
    moments: dict[Name, Moment] = field(default_factory=dict)
    times: list[Bound] = field(default_factory=list)
    reaches: list[Bound] = field(default_factory=list)
    positions: list[Bound] = field(default_factory=list)
    asides: list[Surroundings] = field(default_factory=list)
    rivals: list[Rival] = field(default_factory=list)
    picks: list[Choice] = field(default_factory=list)

    @property
    def names(self) -> frozenset[Name]:
        return frozenset(self.variables) | frozenset(self.intervals)


def extent_of(pattern: patterns.Pattern) -> Extent:
    """The variables that can begin or end a chosen positive pattern."""
    match pattern:
        case patterns.Event():
            assert pattern.variable is not None
            return Extent((pattern.variable,), (pattern.variable,))
        case patterns.Within() | patterns.NamedPattern() | patterns.Pick():
            return extent_of(pattern.item)
        case patterns.Seq():
            positive = positive_items(pattern)
            if pattern.loose:
                return _union([extent_of(item) for item in positive])
            return Extent(extent_of(positive[0]).starts, extent_of(positive[-1]).ends)
        case patterns.And():
            return _union([extent_of(item) for item in positive_items(pattern)])
        case patterns.RelatedItems():
            starts = _union([_timed_extent(pattern, place) for place in pattern.starts])
            ends = [_timed_extent(pattern, place) for place in pattern.ends]
            return Extent(starts.starts, _union(ends).ends)
        case patterns.Or() | patterns.Not() | patterns.Repeat() | patterns.Operation():
            raise AssertionError("OR, NOT, repetitions and operators are resolved before")


def _timed_extent(pattern: patterns.RelatedItems, place: int) -> Extent:
    if place >= 0:
        return extent_of(pattern.items[place])
    timer = _timer_at(pattern, place)
    return Extent((timer.name,), (timer.name,))


def _timer_at(pattern: patterns.RelatedItems, place: int) -> patterns.Timer:
    return pattern.timers[patterns.TIMER - place]


def _union(extents: list[Extent]) -> Extent:
    return Extent(
        tuple(dict.fromkeys(name for extent in extents for name in extent.starts)),
        tuple(dict.fromkeys(name for extent in extents for name in extent.ends)),
    )


def edge_event(pattern: patterns.Pattern, end: str) -> Name:
    """The variable with the first or last event of a part whose order is fixed."""
    place = 0 if end == "first" else -1
    match pattern:
        case patterns.Event():
            assert pattern.variable is not None
            return pattern.variable
        case patterns.Within() | patterns.NamedPattern() | patterns.Pick():
            return edge_event(pattern.item, end)
        case patterns.Seq() | patterns.And():
            return edge_event(positive_items(pattern)[place], end)
        case patterns.RelatedItems():
            settled = pattern.first if end == "first" else pattern.last
            return edge_event(positive_items(pattern)[place] if settled is None else pattern.items[settled], end)
        case patterns.Or() | patterns.Not() | patterns.Repeat() | patterns.Operation():
            raise AssertionError("OR, NOT, repetitions and operators are resolved before")


def positive_items(pattern: patterns.Seq | patterns.And | patterns.RelatedItems) -> list[patterns.Pattern]:
    return [item for item in pattern.items if not is_aside(item)]


def variables_in(pattern: patterns.Pattern) -> tuple[Name, ...]:
    """The variables that a positive pattern without OR binds."""
    match pattern:
        case patterns.Event():
            assert pattern.variable is not None
            return (pattern.variable,)
        case patterns.Within() | patterns.NamedPattern() | patterns.Pick():
            return variables_in(pattern.item)
        case patterns.Seq() | patterns.And() | patterns.RelatedItems():
            return tuple(dict.fromkeys(name for item in positive_items(pattern) for name in variables_in(item)))
        case patterns.Or() | patterns.Not() | patterns.Repeat() | patterns.Operation():
            raise AssertionError("OR, NOT, repetitions and operators are resolved before")


def moments_in(pattern: patterns.Pattern) -> tuple[Name, ...]:
    """The moments that a chosen positive pattern creates."""
    own = tuple(timer.name for timer in pattern.timers) if isinstance(pattern, patterns.RelatedItems) else ()
    return own + tuple(name for item in patterns.children(pattern) if not is_aside(item) for name in moments_in(item))


def trails(pattern: patterns.Pattern, open_right: bool = True) -> bool:
    """Whether a NOT or collection in a SEQ has no positive item after it, so that only the window closes its scope."""
    match pattern:
        case patterns.Event():
            return False
        case patterns.Seq():
            last = max(place for place, item in enumerate(pattern.items) if not is_aside(item))
            if open_right and not all(reaches_of(item.item) for item in pattern.items[last + 1 :] if is_aside(item)):
                return True
            return any(trails(item, open_right and place >= last) for place, item in enumerate(pattern.items))
        case patterns.And() | patterns.Or() | patterns.RelatedItems():
            return any(trails(item, open_right) for item in pattern.items)
        case patterns.Not() | patterns.Within() | patterns.NamedPattern() | patterns.Repeat() | patterns.Pick():
            return trails(pattern.item, open_right)
        case patterns.Operation():
            raise AssertionError("operators are expanded before")


def without_reaches(pattern: patterns.Pattern) -> patterns.Pattern:
    """An item without the reaches of itself."""
    if not isinstance(pattern, patterns.Within | patterns.NamedPattern):
        return pattern
    item = without_reaches(pattern.item)
    return item if isinstance(pattern, patterns.Within) and pattern.reach else replace(pattern, item=item)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads patterns into parts.

    `ticks` returns the length of a time window. `before` returns the limit between an item of SEQ and the next one,
    `strictly_before` that of other operators.
    """

    ticks: Callable[[patterns.Window], int]
    before: Callable[[Name, Name], Limit]
    strictly_before: Callable[[Name, Name], Limit]

    def read(self, pattern: patterns.Pattern, left: Extent | None, right: Extent | None, parts: Parts) -> None:
        """Adds a chosen positive pattern between `left` and `right` to the parts."""
        match pattern:
            case patterns.Event():
                self._read_event(pattern, parts)
            case patterns.Seq():
                self._read_seq(pattern, left, right, parts)
            case patterns.And():
                for item in pattern.items:
                    if is_aside(item):
                        beside = Surroundings(item, left, right, in_seq=False)
                        parts.asides.append(self._in_reach(beside) if isinstance(item.item, WRAPPED) else beside)
                    else:
                        self.read(item, left, right, parts)
            case patterns.RelatedItems():
                self._read_related(pattern, left, right, parts)
            case patterns.Within():
                self.read(pattern.item, left, right, parts)
                self._read_window(pattern, parts)
            case patterns.NamedPattern():
                self.read(pattern.item, left, right, parts)
                parts.intervals[pattern.name] = extent_of(pattern.item)
                self._read_series(pattern, parts)
            case patterns.Pick():
                self.read(pattern.item, left, right, parts)
                parts.picks.append(Choice(pattern, right is not None))
            case patterns.Or() | patterns.Not() | patterns.Repeat() | patterns.Operation():
                raise AssertionError("OR, NOT, repetitions and operators are resolved before")

    def word(self, name: Name) -> str:
        return f"an unnamed `{name.stream}`" if isinstance(name, UnnamedVariable) else f"`{name}`"

    def _read_event(self, event: patterns.Event, parts: Parts) -> None:
        name = event.variable
        assert name is not None
        own = tuple(
            substitute_fields(conjunct, lambda part: replace(part, variable=name))
            for conjunct in conjuncts(event.predicate)
        )
        known = parts.variables.get(name)
        predicates = tuple(dict.fromkeys((known.predicates if known else ()) + own))
        parts.variables[name] = Variable(name, event.stream, predicates)

    def _read_seq(self, pattern: patterns.Seq, left: Extent | None, right: Extent | None, parts: Parts) -> None:
        extents = [extent_of(item) for item in positive_items(pattern)]
        passed = 0
        for item in pattern.items:
            before = extents[passed - 1] if passed else left
            if is_aside(item):
                after = extents[passed] if passed < len(extents) else right
                beside = Surroundings(item, before, after, in_seq=True)
                parts.asides.append(self._in_reach(beside) if isinstance(item.item, WRAPPED) else beside)
            else:
                passed += 1
                after = extents[passed] if passed < len(extents) else right
                self.read(item, before, after, parts)
        for gap, (first, second) in enumerate(pairwise(extents)):
            for x in () if gap in pattern.loose else first.ends:
                for y in second.starts:
                    said = f"SEQ requires {self.word(x)} before {self.word(y)}"
                    reason = Reason(said, pattern.span, by_order=True)
                    parts.times.append(Bound(end_of(x), start_of(y), self.before(x, y), reason))

    # -- reaches ---------------------------------------------------------------------------------------------------

    def _in_reach(self, beside: Surroundings) -> Surroundings:
        """A NOT or a collection of a SEQ or AND. If it has a reach, the reach closes the sides without neighbours."""
        reaches, left, right = reaches_of(beside.item.item), beside.left, beside.right
        if not reaches:
            return beside

        def stated(extent: Extent) -> list[Bound]:
            after, before = () if left is None else left.ends, () if right is None else right.starts
            pairs = [(x, y) for x in after for y in extent.starts] + [(x, y) for x in extent.ends for y in before]
            bounds = [Bound(end_of(x), start_of(y), self.before(x, y), Reason("")) for x, y in pairs]
            for reach in reaches:
                bounds += self._reach_bounds(reach, extent, after, before)
            return bounds

        return replace(beside, stated=stated)

    def _reach_bounds(
        self, pattern: patterns.Within, extent: Extent, after: tuple[Name, ...] = (), before: tuple[Name, ...] = ()
    ) -> list[Bound]:
        """The bounds of a reach (docs/semantics.md, section 4), except those that `after` and `before` imply."""
        reach = pattern.reach
        assert reach is not None
        words = ", ".join(dict.fromkeys(self.word(name) for name in (*extent.starts, *extent.ends)))
        reason = Reason(f"{render_within(pattern)} applies to {words}", pattern.span)
        start, end = start_of(reach.anchor), end_of(reach.anchor)
        window = Limit(self.ticks(pattern.window), False)
        bounds: list[Bound] = []
        for y in extent.starts:
            if reach.side == patterns.AFTER:
                bounds.append(Bound(end, start_of(y), self.before(reach.anchor, y), reason))
            elif reach.anchor not in after:
                bounds.append(Bound(start, start_of(y), window, reason))
        for x in extent.ends:
            if reach.side == patterns.BEFORE:
                bounds.append(Bound(end_of(x), start, self.before(x, reach.anchor), reason))
            elif reach.anchor not in before:
                bounds.append(Bound(end_of(x), end, window, reason))
        return bounds

    # -- operators -------------------------------------------------------------------------------------------------

    def _read_related(
        self, pattern: patterns.RelatedItems, left: Extent | None, right: Extent | None, parts: Parts
    ) -> None:
        for place, item in enumerate(pattern.items):
            if is_aside(item):
                parts.asides.append(self._beside(pattern, place, item, left, right))
            else:
                self.read(item, left, right, parts)
        for timer in pattern.timers:
            self._read_timer(pattern, timer, parts)
        if pattern.rival is not None:
            assert pattern.contenders is not None
            own = pattern.items[pattern.rival]
            parts.rivals.append(Rival(own, pattern.contenders, extent_of(pattern.items[0]), left, right))
        for relation in pattern.relations:
            if not any(self._is_beside(pattern, place) for place in (relation.left.item, relation.right.item)):
                self._relate(pattern, relation, None, parts)

    def _is_beside(self, pattern: patterns.RelatedItems, place: int) -> bool:
        return place >= 0 and is_aside(pattern.items[place])

    def _beside(
        self, pattern: patterns.RelatedItems, place: int, item: Aside, left: Extent | None, right: Extent | None
    ) -> Surroundings:
        own = [relation for relation in pattern.relations if place in (relation.left.item, relation.right.item)]
        if not own:
            return self._in_reach(Surroundings(item, left, right, in_seq=False))
        if any(relation.same for relation in own):
            return Surroundings(item, left, right, in_seq=False, ends=pattern.items[0])

        def stated(extent: Extent) -> list[Bound]:
            parts = Parts()
            for relation in own:
                self._relate(pattern, relation, extent, parts)
            for reach in reaches_of(item.item):
                parts.times += self._reach_bounds(reach, extent)
            return parts.times

        needs = {relation.left.side for relation in own if relation.left.item == place} & OF_START
        needs |= {relation.right.side for relation in own if relation.right.item == place} & OF_END
        return Surroundings(item, left, right, False, stated, frozenset(needs))

    def _relate(
        self, pattern: patterns.RelatedItems, relation: patterns.Relation, beside: Extent | None, parts: Parts
    ) -> None:
        """Adds the bounds of a relation; `beside` is the extent of the item that is not part of the match, if any."""
        words = [
            self.word(extent_of(pattern.items[place]).ends[0])
            for place in (relation.left.item, relation.right.item)
            if place >= 0 and not is_aside(pattern.items[place])
        ]
        said = relation.words or f"{pattern.operator} relates {' and '.join(dict.fromkeys(words))}"
        reason = Reason(said, relation.span or pattern.span)
        if relation.adjacent or relation.left.side in ("first", "last"):
            self._relate_positions(pattern, relation, reason, parts)
            return
        ticks = 0 if relation.window is None else self.ticks(relation.window)
        limit = Limit(-ticks if relation.apart else ticks, relation.strict)
        for x in self._points(pattern, relation.left, beside):
            for y in self._points(pattern, relation.right, beside):
                own = self.strictly_before(x.variable, y.variable) if relation.ordered else limit
                parts.times.append(Bound(x, y, own, reason))

    def _points(self, pattern: patterns.RelatedItems, place: patterns.Place, beside: Extent | None) -> list[Point]:
        if place.item < 0:
            return [end_of(_timer_at(pattern, place.item).name)]
        item = pattern.items[place.item]
        extent = beside if is_aside(item) else extent_of(item)
        assert extent is not None
        return list(map(start_of, extent.starts)) if place.side == "s" else list(map(end_of, extent.ends))

    def _relate_positions(
        self, pattern: patterns.RelatedItems, relation: patterns.Relation, reason: Reason, parts: Parts
    ) -> None:
        left, right = pattern.items[relation.left.item], pattern.items[relation.right.item]
        if relation.adjacent:
            following = position_of(edge_event(left, "first"))
            last = position_of(edge_event(right, "last"))
            parts.positions += [
                Bound(following, last, Limit(1, False), reason),
                Bound(last, following, Limit(-1, False), reason),
            ]
            return
        earlier = variables_in(left) if relation.left.side == "last" else (edge_event(left, "first"),)
        later = (edge_event(right, "last"),) if relation.left.side == "last" else variables_in(right)
        limit = Limit(-1 if relation.strict else 0, False)
        parts.positions += [Bound(position_of(x), position_of(y), limit, reason) for x in earlier for y in later]

    def _read_timer(self, pattern: patterns.RelatedItems, timer: patterns.Timer, parts: Parts) -> None:
        (base,) = self._points(pattern, timer.base, None)
        ticks = -self.ticks(timer.window) if timer.backward else self.ticks(timer.window)
        words = f"{render_window(timer.window)} {'before' if timer.backward else 'after'} {self.word(base.variable)}"
        reason = Reason(f"{pattern.operator} waits {words}", pattern.span)
        parts.moments[timer.name] = Moment(timer.name, base, ticks, timer.repeated)
        moment = end_of(timer.name)
        parts.times.append(Bound(base, moment, Limit(-ticks, False), reason))
        if not timer.repeated:
            parts.times.append(Bound(moment, base, Limit(ticks, False), reason))

    def _read_series(self, pattern: patterns.NamedPattern, parts: Parts) -> None:
        item = pattern.item
        while isinstance(item, patterns.Within | patterns.NamedPattern | patterns.Pick):
            item = item.item
        if isinstance(item, patterns.RelatedItems) and item.moments is not None:
            (first,), (last,) = extent_of(item.items[0]).ends, extent_of(item.items[1]).ends
            parts.series[pattern.name] = Series(end_of(first), end_of(last), self.ticks(item.moments))

    def _read_window(self, pattern: patterns.Within, parts: Parts) -> None:
        if pattern.loose:
            return
        if pattern.reach is not None:
            parts.reaches += self._reach_bounds(pattern, extent_of(pattern.item))
            return
        window = pattern.window
        names = variables_in(pattern.item)
        words = ", ".join(self.word(name) for name in names)
        reason = Reason(words, window.span or pattern.span, window=window)
        if isinstance(window, patterns.Events):
            limit = Limit(window.count - 1, False)
            parts.positions += [
                Bound(position_of(y), position_of(x), limit, reason) for x in names for y in names if x != y
            ]
            return
        limit = Limit(self.ticks(window), False)
        moments = moments_in(pattern.item) if parts.moments else ()
        parts.moments |= {name: replace(parts.moments[name], ended=True) for name in moments}
        lasting = (*names, *moments)
        parts.times += [Bound(end_of(y), start_of(x), limit, reason) for x in names for y in lasting]
