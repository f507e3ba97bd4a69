"""Reading an OR-free pattern: its variables, the bounds that its operators state, and the surroundings of each NOT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ensue.algebra.nodes import And, Event, Events, Named, Not, Or, Pattern, Seq, Window, Within
from ensue.expr.nodes import conjuncts
from ensue.expr.rewrite import substitute_fields
from ensue.graph.bounds import Bound, Limit, Reason, end_of, position_of, start_of
from ensue.graph.model import Extent, Variable
from ensue.lang.render import render_window

BEFORE = Limit(0, True)


@dataclass(frozen=True, slots=True)
class Negation:
    """A NOT with its positive neighbours, looked up outwards; None is an edge of everything."""

    item: Not
    left: Extent | None
    right: Extent | None
    in_seq: bool


@dataclass(slots=True)
class Parts:
    """What is gathered while one OR-free pattern is read; `intervals` are the AS names."""

    variables: dict[str, Variable] = field(default_factory=dict)
    intervals: dict[str, Extent] = field(default_factory=dict)
    times: list[Bound] = field(default_factory=list)
    positions: list[Bound] = field(default_factory=list)
    negations: list[Negation] = field(default_factory=list)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.variables) | frozenset(self.intervals)


def extent_of(pattern: Pattern) -> Extent:
    """Between which variables the interval of an OR-free positive pattern lies."""
    match pattern:
        case Event():
            assert pattern.variable is not None
            return Extent((pattern.variable,), (pattern.variable,))
        case Within() | Named():
            return extent_of(pattern.item)
        case Seq():
            positive = positive_items(pattern)
            return Extent(extent_of(positive[0]).starts, extent_of(positive[-1]).ends)
        case And():
            extents = [extent_of(item) for item in positive_items(pattern)]
            return Extent(
                tuple(dict.fromkeys(name for extent in extents for name in extent.starts)),
                tuple(dict.fromkeys(name for extent in extents for name in extent.ends)),
            )
        case Or() | Not():
            raise AssertionError("OR is resolved and NOT has no extent")


def positive_items(pattern: Seq | And) -> list[Pattern]:
    return [item for item in pattern.items if not isinstance(item, Not)]


def variables_in(pattern: Pattern) -> tuple[str, ...]:
    """The variables that an OR-free positive pattern binds."""
    match pattern:
        case Event():
            assert pattern.variable is not None
            return (pattern.variable,)
        case Within() | Named():
            return variables_in(pattern.item)
        case Seq() | And():
            return tuple(dict.fromkeys(name for item in positive_items(pattern) for name in variables_in(item)))
        case Or() | Not():
            raise AssertionError("OR is resolved and NOT binds nothing")


def trails(pattern: Pattern, open_right: bool = True) -> bool:
    """True if some NOT in a SEQ, at any depth, has no positive item after it: only the window closes its scope."""
    match pattern:
        case Event():
            return False
        case Seq():
            last = max(place for place, item in enumerate(pattern.items) if not isinstance(item, Not))
            if open_right and last < len(pattern.items) - 1:
                return True
            return any(trails(item, open_right and place == last) for place, item in enumerate(pattern.items))
        case And() | Or():
            return any(trails(item, open_right) for item in pattern.items)
        case Not() | Within() | Named():
            return trails(pattern.item, open_right)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads patterns into parts. `ticks` measures a time window; `anonymous` variables have no name in the text."""

    ticks: Callable[[Window], int]
    anonymous: frozenset[str]

    def read(self, pattern: Pattern, left: Extent | None, right: Extent | None, parts: Parts) -> None:
        """Adds an OR-free positive pattern that stands between `left` and `right` to the parts."""
        match pattern:
            case Event():
                self._read_event(pattern, parts)
            case Seq():
                self._read_seq(pattern, left, right, parts)
            case And():
                for item in pattern.items:
                    if isinstance(item, Not):
                        parts.negations.append(Negation(item, left, right, in_seq=False))
                    else:
                        self.read(item, left, right, parts)
            case Within():
                self.read(pattern.item, left, right, parts)
                self._read_window(pattern, parts)
            case Named():
                self.read(pattern.item, left, right, parts)
                parts.intervals[pattern.name] = extent_of(pattern.item)
            case Or() | Not():
                raise AssertionError("OR is resolved and NOT is an item of SEQ or AND")

    def word(self, name: str) -> str:
        return f"an unnamed `{name.rpartition('#')[0]}`" if name in self.anonymous else f"`{name}`"

    def _read_event(self, event: Event, parts: Parts) -> None:
        name = event.variable
        assert name is not None
        own = tuple(
            substitute_fields(conjunct, lambda part: replace(part, variable=name))
            for conjunct in conjuncts(event.predicate)
        )
        known = parts.variables.get(name)
        predicates = tuple(dict.fromkeys((known.predicates if known else ()) + own))
        parts.variables[name] = Variable(name, event.stream, predicates)

    def _read_seq(self, pattern: Seq, left: Extent | None, right: Extent | None, parts: Parts) -> None:
        extents = [extent_of(item) for item in positive_items(pattern)]
        passed = 0
        for item in pattern.items:
            before = extents[passed - 1] if passed else left
            if isinstance(item, Not):
                after = extents[passed] if passed < len(extents) else right
                parts.negations.append(Negation(item, before, after, in_seq=True))
            else:
                passed += 1
                after = extents[passed] if passed < len(extents) else right
                self.read(item, before, after, parts)
        for first, second in pairwise(extents):
            for x in first.ends:
                for y in second.starts:
                    reason = Reason(f"SEQ puts {self.word(x)} before {self.word(y)}", pattern.span)
                    parts.times.append(Bound(end_of(x), start_of(y), BEFORE, reason))

    def _read_window(self, pattern: Within, parts: Parts) -> None:
        window = pattern.window
        names = variables_in(pattern.item)
        words = ", ".join(self.word(name) for name in names)
        reason = Reason(f"WITHIN {render_window(window)} holds {words}", window.span or pattern.span)
        if isinstance(window, Events):
            limit = Limit(window.count - 1, False)
            parts.positions += [
                Bound(position_of(y), position_of(x), limit, reason) for x in names for y in names if x != y
            ]
            return
        limit = Limit(self.ticks(window), False)
        parts.times += [Bound(end_of(y), start_of(x), limit, reason) for x in names for y in names]
