"""The names in a pattern as it is written: what a match binds, and what AS names stand for."""

from __future__ import annotations

from collections.abc import Iterator

from ensue.algebra.nodes import Event, Named, Not, Operation, Pattern, Pick, Within, children, walk
from ensue.algebra.operators import OPERATORS
from ensue.names import Name


def positive_names(pattern: Pattern) -> tuple[Name, ...]:
    """The variables a match binds, lists included, in the order of the text."""
    names = [event.variable for event in bound_events(pattern) if event.variable is not None]
    return tuple(dict.fromkeys(names))


def bound_events(pattern: Pattern) -> Iterator[Event]:
    """The events of a pattern, but for those that must not happen."""
    if isinstance(pattern, Event):
        yield pattern
    forbidden = OPERATORS[pattern.operator].forbidden if isinstance(pattern, Operation) else ()
    for place, child in enumerate(children(pattern)):
        if not isinstance(pattern, Not) and place not in forbidden:
            yield from bound_events(child)


def interval_names(pattern: Pattern) -> frozenset[Name]:
    """The AS names at any depth."""
    return frozenset(node.name for node in walk(pattern) if isinstance(node, Named))


SERIES = "times"
"""The field of the AS name of a PERIODIC* that lists its moments."""


def series_names(pattern: Pattern) -> frozenset[Name]:
    """The AS names of PERIODIC*."""
    named = [node for node in walk(pattern) if isinstance(node, Named)]
    return frozenset(node.name for node in named if _is_series(node.item))


def _is_series(pattern: Pattern) -> bool:
    while isinstance(pattern, Within | Named | Pick):
        pattern = pattern.item
    return isinstance(pattern, Operation) and pattern.operator == "PERIODIC*"
