"""The brute-force oracle: sections 1 to 5 of the contract, read aloud. Slow on purpose, and free of engine code.

First every way to bind the positive events of the pattern is listed (`_Partition.candidates`), by recursion over the
pattern as written. Then each candidate is checked against the windows, the conditions and the negations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from ensue.algebra.nodes import And, Event, Events, Named, Not, Or, Pattern, PatternQuery, Seq, Window, Within
from ensue.expr.nodes import Duration, Expr, Same
from oracle.conditions import Value, holds, same
from oracle.tree import (
    WHOLE,
    Path,
    conjuncts_of,
    homes,
    is_inside,
    left_neighbour,
    names_in,
    negations,
    part_at,
    right_neighbour,
    scope_of,
    variable_at,
    walk,
)


@dataclass(frozen=True, slots=True)
class OracleEvent:
    """An event; `id` is its place in the order of arrival."""

    id: int
    stream: str
    s: int
    e: int
    fields: dict[str, Value] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class OracleMatch:
    """A match: what it binds, the OR branches it took as (path of the OR, item), its interval and completion."""

    bindings: tuple[tuple[str, int], ...]
    branch: tuple[tuple[Path, int], ...]
    start: int
    end: int
    completion: float


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of time."""

    s: int
    e: int

    def is_before(self, other: Span) -> bool:
        return self.e < other.s


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice of events for the positive events of a part: not yet checked against conditions and negations.

    `spans` holds the interval of every part that the choice matches, `branch` the item taken of every OR.
    """

    bindings: dict[str, OracleEvent]
    spans: dict[Path, Span]
    branch: dict[Path, int]


NOTHING = Candidate({}, {}, {})


def matches(query: PatternQuery, events: list[OracleEvent]) -> list[OracleMatch]:
    """Every match of the query in the whole history, in no particular order."""
    found: list[OracleMatch] = []
    for partition in _partitions(query.partition_by, events):
        found.extend(_Partition(query, partition).matches())
    return found


def matches_between(query: PatternQuery, events: list[OracleEvent], w0: float, w1: float) -> list[OracleMatch]:
    """What a run reports that advances from watermark w0 to w1: the matches with completion in (w0, w1]."""
    return [match for match in matches(query, events) if w0 < match.completion <= w1]


def _partitions(columns: tuple[str, ...], events: list[OracleEvent]) -> list[list[OracleEvent]]:
    """The events by key; a null in the key and the event takes part in nothing."""
    by_key: dict[tuple[Value, ...], list[OracleEvent]] = {}
    for event in events:
        key = tuple(event.fields.get(column) for column in columns)
        if all(same([value]) for value in key):
            by_key.setdefault(key, []).append(event)
    return list(by_key.values())


def _join(left: Candidate, right: Candidate) -> Candidate | None:
    """Both choices in one: one variable is one event, two variables are two events. None if that cannot be."""
    for variable, event in right.bindings.items():
        for other_variable, other_event in left.bindings.items():
            if (variable == other_variable) != (event.id == other_event.id):
                return None
    return Candidate(left.bindings | right.bindings, left.spans | right.spans, left.branch | right.branch)


def _windows_of_whole(query: PatternQuery) -> list[Window]:
    """`W`: the WITHIN of the query and those that wrap the whole pattern."""
    windows = [] if query.within is None else [query.within]
    pattern = query.pattern
    while isinstance(pattern, Within | Named):
        if isinstance(pattern, Within):
            windows.append(pattern.window)
        pattern = pattern.item
    return windows


def _length(window: Window) -> int:
    """A window of time as a number."""
    return window.nanoseconds if isinstance(window, Duration) else window.count


class _Partition:
    """One query on the events of one partition."""

    def __init__(self, query: PatternQuery, events: list[OracleEvent]) -> None:
        self.pattern = query.pattern
        self.windows = _windows_of_whole(query)
        self.ordered = sorted(events, key=lambda event: (event.e, event.id))
        self.position = {event.id: position for position, event in enumerate(self.ordered)}
        self.home = homes(query.pattern)
        self.named = {part.name: path for path, part in walk(query.pattern) if isinstance(part, Named)}
        self.negations = negations(query.pattern)
        self.conjuncts = [(self._scope_of_conjunct(conjunct), conjunct) for conjunct in conjuncts_of(query.where)]
        self.forbidden = {
            path: self.candidates(part_at(self.pattern, path).item, (*path, 0)) for path in self.negations
        }

    def matches(self) -> Iterator[OracleMatch]:
        for match in self.candidates(self.pattern, WHOLE):
            if (
                all(self.fits(match, WHOLE, window) for window in self.windows)
                and self.conditions_hold(match, WHOLE)
                and self.negations_hold(match, match, WHOLE)
            ):
                yield OracleMatch(
                    bindings=tuple(sorted((variable, event.id) for variable, event in match.bindings.items())),
                    branch=tuple(sorted(match.branch.items())),
                    start=match.spans[WHOLE].s,
                    end=match.spans[WHOLE].e,
                    completion=self.completion(match),
                )

    # Section 1: event expressions

    def candidates(self, pattern: Pattern, path: Path) -> list[Candidate]:
        """Every way to bind the positive events of a part: order, windows and local predicates are obeyed."""
        match pattern:
            case Event():
                return [
                    Candidate({variable_at(pattern, path): event}, {path: Span(event.s, event.e)}, {})
                    for event in self.ordered
                    if event.stream == pattern.stream and _satisfies(event, pattern.predicate)
                ]
            case Seq() | And():
                return self.candidates_of_items(pattern, path)
            case Or():
                return [
                    Candidate(
                        candidate.bindings,
                        candidate.spans | {path: candidate.spans[*path, index]},
                        candidate.branch | {path: index},
                    )
                    for index, item in enumerate(pattern.items)
                    for candidate in self.candidates(item, (*path, index))
                ]
            case Within():
                inner = self.candidates_of_only_item(pattern.item, path)
                return [candidate for candidate in inner if self.fits(candidate, path, pattern.window)]
            case Named():
                return self.candidates_of_only_item(pattern.item, path)
        raise ValueError("NOT stands only as an item of SEQ or AND")

    def candidates_of_only_item(self, item: Pattern, path: Path) -> list[Candidate]:
        """A part that has the interval of its only item."""
        return [
            Candidate(candidate.bindings, candidate.spans | {path: candidate.spans[*path, 0]}, candidate.branch)
            for candidate in self.candidates(item, (*path, 0))
        ]

    def candidates_of_items(self, pattern: Seq | And, path: Path) -> list[Candidate]:
        """One match of every positive item; in SEQ each strictly before the next."""
        chosen = [NOTHING]
        positive = [(*path, index) for index, item in enumerate(pattern.items) if not isinstance(item, Not)]
        for number, here in enumerate(positive):
            before = positive[number - 1] if number > 0 and isinstance(pattern, Seq) else None
            of_item = self.candidates(part_at(self.pattern, here), here)
            chosen = [
                joined
                for left in chosen
                for right in of_item
                if before is None or left.spans[before].is_before(right.spans[here])
                if (joined := _join(left, right)) is not None
            ]
        return [self.with_span_of_items(candidate, path, positive) for candidate in chosen]

    def with_span_of_items(self, candidate: Candidate, path: Path, items: list[Path]) -> Candidate:
        """First start to last end; for SEQ these are the start of the first item and the end of the last."""
        start = min(candidate.spans[item].s for item in items)
        end = max(candidate.spans[item].e for item in items)
        return Candidate(candidate.bindings, candidate.spans | {path: Span(start, end)}, candidate.branch)

    # Section 4: windows

    def fits(self, candidate: Candidate, path: Path, window: Window) -> bool:
        """Whether the part at the path, to which the candidate belongs, lies within the window."""
        if isinstance(window, Events):
            return self.last_position(candidate) - self.first_position(candidate) <= window.count - 1
        return candidate.spans[path].e - candidate.spans[path].s <= _length(window)

    def first_position(self, candidate: Candidate) -> int:
        return min(self.position[event.id] for event in candidate.bindings.values())

    def last_position(self, candidate: Candidate) -> int:
        return max(self.position[event.id] for event in candidate.bindings.values())

    # Section 2: negations. `match` is the whole match; `around` is it together with the enclosing forbidden matches.

    def negations_hold(self, match: Candidate, around: Candidate, scope: Path) -> bool:
        """Whether no negation that stands directly in the scope, in the branches taken, is violated."""
        return not any(
            self.is_violated(match, around, negation)
            for negation in self.negations
            if scope_of(self.pattern, negation) == scope and negation[:-1] in around.spans
        )

    def is_violated(self, match: Candidate, around: Candidate, negation: Path) -> bool:
        """Whether there is a forbidden match: in the scope, of unused events, obeying its conditions and negations."""
        for forbidden in self.forbidden[negation]:
            together = _join(around, forbidden)
            if (
                together is not None
                and self.lies_after_left_end(match, around, forbidden, negation)
                and self.lies_before_right_end(match, around, forbidden, negation)
                and self.conditions_hold(together, negation)
                and self.negations_hold(match, together, negation)
            ):
                return True
        return False

    def lies_after_left_end(self, match: Candidate, around: Candidate, forbidden: Candidate, negation: Path) -> bool:
        span = forbidden.spans[*negation, 0]
        neighbour = left_neighbour(self.pattern, negation)
        if neighbour is not None:
            return around.spans[neighbour].is_before(span)
        self.require_window()
        return all(
            self.first_position(forbidden) >= self.last_position(match) - (window.count - 1)
            if isinstance(window, Events)
            else span.s >= match.spans[WHOLE].e - _length(window)
            for window in self.windows
        )

    def lies_before_right_end(self, match: Candidate, around: Candidate, forbidden: Candidate, negation: Path) -> bool:
        span = forbidden.spans[*negation, 0]
        neighbour = right_neighbour(self.pattern, negation)
        if neighbour is not None:
            return span.is_before(around.spans[neighbour])
        if isinstance(part_at(self.pattern, negation[:-1]), And):
            return span.e <= match.spans[WHOLE].e
        self.require_window()
        return all(
            self.last_position(forbidden) <= self.first_position(match) + (window.count - 1)
            if isinstance(window, Events)
            else span.e <= match.spans[WHOLE].s + _length(window)
            for window in self.windows
        )

    def require_window(self) -> None:
        if not self.windows:
            raise ValueError("a negation has an open scope and no WITHIN closes it")

    # Section 3: conditions

    def _scope_of_conjunct(self, conjunct: Expr) -> Path:
        """The innermost negation that defines a name that the conjunct mentions."""
        return max((self.home[name] for name in names_in(conjunct)), key=len, default=WHOLE)

    def conditions_hold(self, around: Candidate, scope: Path) -> bool:
        """Whether the conjuncts that belong to the scope hold, as far as they apply."""
        return all(
            self.agrees(around, conjunct) if isinstance(conjunct, Same) else self.holds_if_bound(around, conjunct)
            for home, conjunct in self.conjuncts
            if home == scope or isinstance(conjunct, Same)
        )

    def agrees(self, around: Candidate, condition: Same) -> bool:
        return all(
            same([event.fields.get(column) for event in around.bindings.values()]) for column in condition.fields
        )

    def holds_if_bound(self, around: Candidate, conjunct: Expr) -> bool:
        bound = around.bindings.keys() | {name for name, path in self.named.items() if path in around.spans}
        return not names_in(conjunct) <= bound or holds(conjunct, lambda name, column: self.read(around, name, column))

    def read(self, around: Candidate, name: str | None, column: str) -> Value:
        """`name.column` for a variable or an AS name."""
        if name in around.bindings:
            return _read(around.bindings[name], column)
        return {"s": around.spans[self.named[name]].s, "e": around.spans[self.named[name]].e}[column]

    # Section 5: completion

    def completion(self, match: Candidate) -> float:
        """The latest of the event ends and the closing times of the scopes of the negations, nested ones included."""
        return max(
            [match.spans[WHOLE].e]
            + [
                self.closing(match)
                for negation in self.negations
                if self.is_taken(match, negation) and self.is_trailing(negation)
            ]
        )

    def is_taken(self, match: Candidate, negation: Path) -> bool:
        """Whether the negation, or the outermost one around it, stands in the branches that the match took."""
        outermost = next(path for path in self.negations if is_inside(negation, path))
        return outermost[:-1] in match.spans

    def is_trailing(self, negation: Path) -> bool:
        """At the right edge of everything, in SEQ; every other scope closes at an event of the match or before."""
        in_seq = isinstance(part_at(self.pattern, negation[:-1]), Seq)
        return in_seq and right_neighbour(self.pattern, negation) is None

    def closing(self, match: Candidate) -> float:
        """When the windows close a scope that is open to the right: the earliest of them does."""
        self.require_window()
        return min(self.closing_by(match, window) for window in self.windows)

    def closing_by(self, match: Candidate, window: Window) -> float:
        if not isinstance(window, Events):
            return match.spans[WHOLE].s + _length(window)
        last = self.first_position(match) + window.count - 1
        return self.ordered[last].e if last < len(self.ordered) else math.inf


def _satisfies(event: OracleEvent, predicate: Expr | None) -> bool:
    """The local predicate of an event; it mentions only this event."""
    return predicate is None or holds(predicate, lambda _, column: _read(event, column))


def _read(event: OracleEvent, column: str) -> Value:
    """A field of an event, or its start `s` (also called `t`) or end `e`."""
    times = {"s": event.s, "e": event.e, "t": event.s}
    return times[column] if column in times else event.fields.get(column)
