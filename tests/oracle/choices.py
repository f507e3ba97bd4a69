"""Every way to bind the positive events of a pattern, by recursion over it as written: orders and windows are obeyed.

Conditions, negations and the like are not looked at: that is `oracle.partition`.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from itertools import combinations

from inside import (
    And,
    AnyEvent,
    Duration,
    Event,
    Events,
    Expr,
    NamedPattern,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Repeat,
    Seq,
    Stream,
    Window,
    Within,
)
from oracle.conditions import Value, holds
from oracle.model import Candidate, OracleEvent, Span, hull, join, values_in_order
from oracle.tree import Path, is_inside, is_positive, is_repeated, part_at, parts, scopes, variable_at, walk

NOTHING = Candidate()


class Choices:
    """The candidates of every part of one query, in the events of one partition.

    `horizon` is how far time is known: as far as a PERIODIC goes that nothing else ends.
    """

    def __init__(self, query: PatternQuery, events: list[OracleEvent], horizon: int) -> None:
        self.pattern = query.pattern
        self.ties = query.allows_ties
        self.windows = windows_of_whole(query)
        self.limits = windows_of_whole(query, limiting=True)
        self.events = sorted(events, key=lambda event: (event.e, values_in_order(event.order), event.s, event.content))
        self.ordered = [event for event in self.events if not event.is_declared and not event.is_selected]
        self.position = {event.id: position for position, event in enumerate(self.ordered)}
        self.horizon = horizon
        self.far_away = max([horizon, *(event.e for event in events)]) + sum(lengths_in(query))
        self.scopes = scopes(query.pattern)
        self.known: dict[Path, list[Candidate]] = {}

    def candidates(self, path: Path) -> list[Candidate]:
        """Every way to bind the positive events of the part at the path."""
        if path not in self.known:
            self.known[path] = self._candidates(part_at(self.pattern, path), path)
        return self.known[path]

    def _candidates(self, part: Pattern, path: Path) -> list[Candidate]:
        match part:
            case Event():
                return [
                    Candidate({variable_at(part, path): event}, {path: event.span})
                    for event in self.events
                    if is_of_stream(event, part.stream) and _satisfies(event, part.predicate)
                ]
            case Seq() | And():
                positive = [(*path, index) for index, item in enumerate(part.items) if is_positive(item)]
                return self.with_spans(
                    self.joined(positive, isinstance(part, Seq), part.loose if isinstance(part, Seq) else ()), path
                )
            case Or():
                return self.branches(part.items, path)
            case Within():
                inner = self.with_spans(self.candidates((*path, 0)), path)
                free = part.loose or part.reach is not None
                return [candidate for candidate in inner if free or self.fits(candidate, path, part.window)]
            case NamedPattern() | Pick():
                return self.with_spans(self.candidates((*path, 0)), path)
            case Repeat():
                return self.repetitions(path, part.least, part.most)
            case Operation():
                return self.of_operation(part, path)
        raise ValueError("NOT stands only as an item of SEQ or AND")

    def branches(self, items: tuple[Pattern, ...], path: Path) -> list[Candidate]:
        return [
            _with_branch(candidate, path, index).with_span(path, candidate.spans[*path, index])
            for index in range(len(items))
            for candidate in self.candidates((*path, index))
        ]

    def joined(self, items: list[Path], is_sequence: bool, loose: Container[int] = ()) -> list[Candidate]:
        """One match of every item; in SEQ each strictly before the next, but for the gaps that are loose."""
        chosen = [NOTHING]
        for number, here in enumerate(items):
            before = items[number - 1] if number > 0 and is_sequence and number - 1 not in loose else None
            of_item = self.candidates(here)
            chosen = [
                together
                for left in chosen
                for right in of_item
                if before is None or left.spans[before].is_before(right.spans[here], self.ties)
                if (together := join(left, right)) is not None
            ]
        return chosen

    def with_spans(self, candidates: list[Candidate], path: Path) -> list[Candidate]:
        return [candidate.with_span(path, self.span_of(candidate, path)) for candidate in candidates]

    def span_of(self, candidate: Candidate, path: Path) -> Span:
        """The interval of a composite: from the least start to the greatest end, or to where the operator says."""
        part = part_at(self.pattern, path)
        spans = [candidate.spans[place] for place in self.bound_parts(path) if place in candidate.spans]
        whole = hull(spans, isinstance(part, Seq) and not part.loose)
        match part:
            case Operation(operator="NOTFOLLOWS"):
                return Span(whole.s, whole.e + length_of(part.window), whole.firsts)
            case Operation(operator="PERIODIC"):
                return Span(whole.s, candidate.moments[path][0], whole.firsts)
        return whole

    def bound_parts(self, path: Path) -> list[Path]:
        """The direct parts for which a match binds something."""
        part = part_at(self.pattern, path)
        places = [(*path, index) for index, item in enumerate(parts(part)) if is_positive(item)]
        return [place for place in places if place not in self.scopes]

    # Section 7: repetition

    def repetitions(self, path: Path, least: int, most: int | None) -> list[Candidate]:
        """Every choice of so many matches of the item, each strictly before the next."""
        scope = (*path, 0)
        of_item = self.candidates(scope)
        found: list[tuple[Candidate, ...]] = []
        longest: list[tuple[Candidate, ...]] = [()]
        while longest and (most is None or len(longest[0]) < most):
            longest = [
                (*chosen, element)
                for chosen in longest
                for element in of_item
                if not chosen or chosen[-1].spans[scope].is_before(element.spans[scope], self.ties)
                if not {event.id for event in element.events()} & {event.id for one in chosen for event in one.events()}
            ]
            if self.ties:
                longest = self._each_set_once(longest)
            found += [chosen for chosen in longest if len(chosen) >= least]
        return [
            Candidate(
                spans={path: hull([one.spans[scope] for one in chosen], in_sequence=True)}, rounds={scope: chosen}
            )
            for chosen in found
        ]

    def _each_set_once(self, lists: list[tuple[Candidate, ...]]) -> list[tuple[Candidate, ...]]:
        """Of the lists with the same elements, the one in the order of their first events."""
        once: dict[object, tuple[Candidate, ...]] = {}
        for elements in sorted(lists, key=lambda found: [one.events()[0].rank for one in found]):
            known = frozenset(frozenset((name, event.id) for name, event in one.bindings.items()) for one in elements)
            once.setdefault(known, elements)
        return list(once.values())

    # Sections 6 and 7: operators

    def of_operation(self, part: Operation, path: Path) -> list[Candidate]:
        match part.operator:
            case "ANYONE":
                return self.branches(part.items, path)
            case "ANY":
                every = combinations(range(len(part.items)), part.count)
                return [
                    _with_branch(candidate, path, number)
                    for number, chosen in enumerate(every)
                    for candidate in self.with_spans(self.joined([(*path, item) for item in chosen], False), path)
                ]
            case "BOTH":
                pairs = self.with_spans(self.joined([(*path, 0), (*path, 1)], False), path)
                first, second = (*path, 0), (*path, 1)
                d = length_of(part.window)
                return [
                    _with_branch(pair, path, number)
                    for number, (one, other) in enumerate([(first, second), (second, first)])
                    for pair in pairs
                    if follows(pair.spans[one], pair.spans[other], d)
                ]
            case "RELATIVE+":
                return self.repetitions(path, 1, 1)
            case "PERIODIC":
                return [
                    moment.with_span(path, self.span_of(moment, path))
                    for opening in self.candidates((*path, 0))
                    for moment in self.at_each_moment(opening, part, path)
                ]
        pairs = self.joined(self.bound_parts(path), False)
        kept = [pair for pair in pairs if self.order_holds(pair, part, path)]
        if part.operator == "PERIODIC*":
            kept = [self.with_moments_between(pair, part, path) for pair in kept]
        return self.with_spans(kept, path)

    def order_holds(self, pair: Candidate, part: Operation, path: Path) -> bool:
        """What the operator says about the intervals of what it binds, as in the tables of the contract."""
        bound = [pair.spans[place] for place in self.bound_parts(path)]
        x, y = bound[0], bound[-1]
        match part.operator:
            case "NOTFOLLOWS" | "NOTPRECEDES" | "EXCEPT":
                return True
            case "FOLLOWS":
                return follows(x, y, length_of(part.window))
            case "PRECEDES":
                return follows(y, x, length_of(part.window))
            case "RELATIVE":
                return x.is_before(y, self.ties)
            case "APERIODIC" | "APERIODIC*" | "UNLESS":
                return x.is_before(y)
            case "PERIODIC*":
                return x.is_before(y) and x.e + length_of(part.window) <= y.e
            case "PRIOR":
                return x.e < y.e
            case "SIMULTANEOUS":
                return x.e == y.e
            case "CONCURRENT":
                return x.s < y.e and y.s < x.e and x.s < x.e and y.s < y.e
            case "NEXT":
                return self.is_next(pair, *self.bound_parts(path))
        raise ValueError(f"no operator {part.operator}")

    def is_next(self, pair: Candidate, x: Path, y: Path) -> bool:
        """Whether the first event of `y` has the position behind that of the last event of `x`."""
        names = {place: {variable_at(part, at) for at, part in self.events_below(place)} for place in (x, y)}
        first, second = pair.outside(y, names[y]), pair.outside(x, names[x])
        return self.first_position(second) == self.last_position(first) + 1

    def events_below(self, path: Path) -> list[tuple[Path, Event]]:
        return [(at, part) for at, part in walk(self.pattern) if is_inside(at, path) and isinstance(part, Event)]

    # Section 7: PERIODIC

    def at_each_moment(self, opening: Candidate, part: Operation, path: Path) -> list[Candidate]:
        """The opening with each moment after it, as far as it is ended from outside or time is known."""
        d = length_of(part.window)
        limit = self.far_away if self.is_ended(path) else self.horizon
        after = opening.spans[*path, 0].e + d
        return [replace(opening, moments=opening.moments | {path: (at,)}) for at in range(after, limit + 1, d)]

    def is_ended(self, path: Path) -> bool:
        """Whether a WITHIN of time around a PERIODIC ends it, or the scope of something forbidden or collected."""
        around = [scope for scope in self.scopes if is_inside(path, scope)]
        if any(not is_repeated(self.pattern, scope) for scope in around):
            return True
        inner = [part_at(self.pattern, path[:length]) for length in range(len(path))]
        windows = [*self.windows, *(part.window for part in inner if isinstance(part, Within) and part.reach is None)]
        return any(not isinstance(window, Events) for window in windows)

    def with_moments_between(self, pair: Candidate, part: Operation, path: Path) -> Candidate:
        d = length_of(part.window)
        after, until = pair.spans[*path, 0].e + d, pair.spans[*path, 1].e
        return replace(pair, moments=pair.moments | {path: tuple(range(after, until + 1, d))})

    # Section 4: windows

    def fits(self, candidate: Candidate, path: Path, window: Window) -> bool:
        """Whether the part at the path, to which the candidate belongs, lies within the window."""
        if isinstance(window, Events):
            return self.last_position(candidate) - self.first_position(candidate) <= window.count - 1
        return candidate.spans[path].e - candidate.spans[path].s <= length_of(window)

    def first_position(self, candidate: Candidate) -> int:
        return min(self.position[event.id] for event in candidate.events())

    def last_position(self, candidate: Candidate) -> int:
        return max(self.position[event.id] for event in candidate.events())


def follows(x: Span, y: Span, d: int) -> bool:
    """`x.e < y.e <= x.e + d`."""
    return x.e < y.e <= x.e + d


def is_of_stream(event: OracleEvent, stream: Stream) -> bool:
    """`ANY EVENT BUT (A, B)` is every event of the input but those."""
    if not isinstance(stream, AnyEvent):
        return event.stream == stream
    excluded = {event.stream, *event.also} & {*stream.excluded}
    return not excluded and not event.is_declared and not event.is_selected


def windows_of_whole(query: PatternQuery, limiting: bool = False) -> list[Window]:
    """`W`: the WITHIN of the query and those that wrap the whole pattern; if `limiting`, without the loose ones."""
    windows = [] if query.within is None else [query.within]
    pattern = query.pattern
    while isinstance(pattern, Within | NamedPattern):
        if isinstance(pattern, Within) and pattern.reach is None and not (limiting and pattern.loose):
            windows.append(pattern.window)
        pattern = pattern.item
    return windows


def length_of(window: Window) -> int:
    """A window of time as a number."""
    return window.nanoseconds if isinstance(window, Duration) else window.count


def lengths_in(query: PatternQuery) -> list[int]:
    """The lengths of all windows of time in the query."""
    inner = [part.window for _, part in walk(query.pattern) if isinstance(part, Within | Operation)]
    return [length_of(window) for window in (query.within, *inner) if window and not isinstance(window, Events)]


def read_event(event: OracleEvent, column: str) -> Value:
    """A field of an event, or its start `s` (also called `t`) or end `e`."""
    times = {"s": event.s, "e": event.e, "t": event.s}
    return times[column] if column in times else event.fields.get(column)


def _with_branch(candidate: Candidate, path: Path, index: int) -> Candidate:
    return replace(candidate, branch=candidate.branch | {path: index})


def _satisfies(event: OracleEvent, predicate: Expr | None) -> bool:
    """The local predicate of an event; it mentions only this event."""
    return predicate is None or holds(predicate, lambda _, column: read_event(event, column))
