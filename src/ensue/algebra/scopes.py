"""Who binds which name: the scopes of a pattern and the names bound together by each choice of OR branches.

A scope is the whole pattern or one NOT. Both the checks and the normal form stand on this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, product

from ensue.algebra.nodes import (
    And,
    Event,
    Events,
    Named,
    Not,
    Or,
    Pattern,
    PatternQuery,
    Seq,
    Window,
    Within,
    children,
    walk,
)
from ensue.errors import Span

MOST_CHOICES = 256
"""How many combinations of OR branches one scope may have."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A region of names: `pattern` is the whole pattern, or what one NOT forbids; `negation` is that NOT.

    Two scopes are the same only if they are the same object: equal NOTs at two places are two scopes.
    """

    pattern: Pattern
    parent: Scope | None = None
    negation: Not | None = None

    @property
    def chain(self) -> tuple[Scope, ...]:
        """This scope and those around it, innermost first."""
        return (self,) + (self.parent.chain if self.parent else ())


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name where it is written: a variable (with its stream) or an AS name (stream None)."""

    name: str
    stream: str | None
    scope: Scope
    span: Span | None


def own_nodes(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern and everything below it, NOT items included, what they forbid excluded."""
    yield pattern
    if not isinstance(pattern, Not):
        for child in children(pattern):
            yield from own_nodes(child)


def scopes_of(pattern: Pattern, parent: Scope | None = None, negation: Not | None = None) -> Iterator[Scope]:
    """Every scope of a pattern, outermost first."""
    scope = Scope(pattern, parent, negation)
    yield scope
    for node in own_nodes(pattern):
        if isinstance(node, Not):
            yield from scopes_of(node.item, scope, node)


def occurrences_in(scope: Scope) -> Iterator[Occurrence]:
    """The names that are written in this very scope."""
    for node in own_nodes(scope.pattern):
        if isinstance(node, Event) and node.variable is not None:
            yield Occurrence(node.variable, node.stream, scope, node.span)
        elif isinstance(node, Named):
            yield Occurrence(node.name, None, scope, node.span)


def name_anonymous(query: PatternQuery) -> tuple[PatternQuery, frozenset[str]]:
    """The query with a fresh variable (`A#1`) for every event that has none, and those variables."""
    taken = {occurrence.name for scope in scopes_of(query.pattern) for occurrence in occurrences_in(scope)}
    given: list[str] = []

    def name(event: Event) -> Event:
        if event.variable is not None:
            return event
        numbered = (f"{event.stream}#{number}" for number in count(len(given) + 1))
        given.append(next(fresh for fresh in numbered if fresh not in taken and fresh not in given))
        return replace(event, variable=given[-1])

    return replace(query, pattern=change_events(query.pattern, name)), frozenset(given)


def without_names(pattern: Pattern, anonymous: frozenset[str]) -> Pattern:
    """The pattern as it was before its anonymous events were named."""
    return change_events(pattern, lambda event: replace(event, variable=None) if event.variable in anonymous else event)


def change_events(pattern: Pattern, change: Callable[[Event], Event]) -> Pattern:
    """The pattern with every event replaced, from left to right."""
    match pattern:
        case Event():
            return change(pattern)
        case Seq() | And() | Or():
            return replace(pattern, items=tuple(change_events(item, change) for item in pattern.items))
        case Not() | Within() | Named():
            return replace(pattern, item=change_events(pattern.item, change))


def count_choices(pattern: Pattern) -> int:
    """How many combinations of OR branches the pattern has, branches under NOT not counted."""
    match pattern:
        case Event() | Not():
            return 1
        case Or():
            return sum(count_choices(item) for item in pattern.items)
        case Within() | Named():
            return count_choices(pattern.item)
        case Seq() | And():
            total = 1
            for item in pattern.items:
                total *= count_choices(item)
            return total


def choices(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern without OR, once per combination of branches. What NOT forbids stays as it is.

    >>> [chosen.stream for chosen in choices(Or((Event("A"), Event("B"))))]
    ['A', 'B']
    """
    match pattern:
        case Event() | Not():
            yield pattern
        case Or():
            for item in pattern.items:
                yield from choices(item)
        case Within() | Named():
            for chosen in choices(pattern.item):
                yield replace(pattern, item=chosen)
        case Seq() | And():
            for items in product(*(tuple(choices(item)) for item in pattern.items)):
                yield replace(pattern, items=items)


def whole_windows(query: PatternQuery) -> tuple[Window, ...]:
    """The windows that hold for the whole match: the WITHIN clause and every WITHIN around the whole pattern."""
    found: list[Window] = [] if query.within is None else [query.within]
    pattern = query.pattern
    while isinstance(pattern, Within | Named):
        if isinstance(pattern, Within):
            found.append(pattern.window)
        pattern = pattern.item
    return tuple(found)


def counts_events(query: PatternQuery) -> bool:
    """True if some window of the query counts positions, so that irrelevant events matter."""
    windows = [query.within, *(node.window for node in walk(query.pattern) if isinstance(node, Within))]
    return any(isinstance(window, Events) for window in windows)
