"""One query on the events of one partition: the candidates of `oracle.choices`, checked against everything else.

That is: collections, conditions, the elements of repetitions, negations, and which one is the first. `match` is the
whole match; `around` is it together with the forbidden matches and the elements of lists in which we are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from inside import (
    And,
    Events,
    Expr,
    NamedPattern,
    Operation,
    PatternQuery,
    Pick,
    Repeat,
    Same,
    Window,
    Within,
)
from oracle.choices import Choices, length_of, read_event
from oracle.conditions import Lists, Lookup, Value, holds, same
from oracle.model import Candidate, OracleEvent, Span, join, overlay, values_in_order
from oracle.tree import (
    AGGREGATES,
    PREVIOUS,
    WHOLE,
    Path,
    anchor_of,
    calls_in,
    conjuncts_of,
    homes,
    is_chain,
    is_collected,
    is_forbidden,
    is_inside,
    is_list,
    is_repeated,
    is_sequence,
    left_neighbour,
    mentions,
    names_below,
    names_in,
    part_at,
    reaches_at,
    right_neighbour,
    scope_around,
    scope_of,
    walk,
)

FIRST_AFTER = {"UNLESS": (1, 2), "APERIODIC*": (0, 2)}
"""The operators whose `z` is a first one after `x`, with the places of `x` and `z`."""


class Partition(Choices):
    """All that can be said of one query and the events of one key."""

    def __init__(self, query: PatternQuery, events: list[OracleEvent], horizon: int) -> None:
        super().__init__(query, events, horizon)
        self.query = query
        self.home = homes(query.pattern)
        self.named = {part.name: path for path, part in walk(query.pattern) if isinstance(part, NamedPattern)}
        self.reaches = [
            (scope_of(query.pattern, path), path, part)
            for path, part in walk(query.pattern)
            if isinstance(part, Within) and part.reach is not None and not part.loose
        ]
        self.picks = [path for path, part in walk(query.pattern) if isinstance(part, Pick)]
        self.conjuncts = [(self.scope_of_conjunct(conjunct), conjunct) for conjunct in conjuncts_of(query.where)]
        self.anchor = {scope: anchor_of(query.pattern, scope) for scope in self.scopes}
        self.inner_scopes: dict[Path, list[Path]] = {scope: [] for scope in (WHOLE, *self.scopes)}
        for scope in self.scopes:
            self.inner_scopes[scope_around(query.pattern, scope)].append(scope)
        self.firsts = [
            (scope_of(query.pattern, path), path, part.operator)
            for path, part in walk(query.pattern)
            if isinstance(part, Operation) and part.operator in FIRST_AFTER
        ]

    def all_matches(self) -> Iterator[Candidate]:
        """Every match, whatever policy chooses among them, with what its collections list."""
        for candidate in self.candidates(WHOLE):
            if all(self.fits(candidate, WHOLE, window) for window in self.limits):
                match = self.checked(candidate, WHOLE)
                if match is not None:
                    yield match

    def checked(
        self, around: Candidate, scope: Path, match: Candidate | None = None, below: Path = WHOLE
    ) -> Candidate | None:
        """With its collections what was chosen for a scope, if all holds that is written there; else None.

        Without `match` it is the match itself. `below` restricts the check to what stands there.
        """
        inner = [
            place
            for place in self.inner_scopes[scope]
            if is_inside(place, below) and self.anchor[place] in around.spans
        ]
        listed = [place for place in inner if is_collected(self.pattern, place) or is_chain(self.pattern, place)]
        for place in self.in_order_of_need(listed):
            elements = self.collect(match or around, around, place)
            if is_chain(self.pattern, place):
                last = around.rounds[place]
                elements = tuple(sorted((*elements, *last), key=lambda each: self.place_in_list(each, place)))
            if not self.is_enough(elements, place):
                return None
            around = replace(around, collected=around.collected | {place: elements})
        whole = match or around
        return (
            around
            if self.conditions_hold(around, scope, below)
            and self.reaches_hold(around, scope, below)
            and self.rounds_hold(whole, around, [place for place in inner if is_repeated(self.pattern, place)])
            and not any(self.is_violated(whole, around, place) for place in inner if is_forbidden(self.pattern, place))
            and all(
                self.is_first(match, around, scope, path, operator)
                for home, path, operator in self.firsts
                if home == scope and is_inside(path, below) and path in around.spans
            )
            else None
        )

    # Section 7: repetition

    def rounds_hold(self, match: Candidate, around: Candidate, repetitions: list[Path]) -> bool:
        """Whether every element satisfies the conditions and the negations that stand in it."""
        return all(
            self.checked(overlay(around, element), scope, match) is not None
            for scope in repetitions
            for element in around.rounds[scope]
        )

    def in_order_of_need(self, collections: list[Path]) -> list[Path]:
        """A collection whose elements are compared with an aggregate of another one comes after it."""
        needed = {
            scope: {
                self.home[name]
                for home, conjunct in self.conjuncts
                if home == scope
                for name, over_list in mentions(conjunct)
                if over_list
            }
            for scope in collections
        }
        ordered: list[Path] = []
        while len(ordered) < len(collections):
            ready = [
                scope for scope in collections if scope not in ordered and not needed[scope] - {*ordered} & {*needed}
            ]
            if not ready:
                raise ValueError("collections need each other")
            ordered += ready
        return ordered

    def collect(self, match: Candidate, around: Candidate, scope: Path) -> tuple[Candidate, ...]:
        """All matches of the scope, of events that are not bound, in order."""
        found = [
            element
            for element in self.candidates(scope)
            if (together := join(around, element)) is not None
            and self.lies_in(match, around, element, scope)
            and self.checked(together, scope, match) is not None
        ]
        return tuple(sorted(found, key=lambda element: self.place_in_list(element, scope)))

    def place_in_list(self, element: Candidate, scope: Path) -> tuple[object, ...]:
        span = element.spans[scope]
        names = [name for name in self.home if name in element.bindings]
        first, last = ([(time, values_in_order(order)) for time, order in ends] for ends in (span.firsts, span.lasts))
        return (
            (span.s, sorted(first)[:1]),
            (span.e, sorted(last)[-1:]),
            [element.bindings[name].content for name in names],
            sorted(element.branch.items()),
        )

    def is_enough(self, elements: tuple[Candidate, ...], scope: Path) -> bool:
        repeat = part_at(self.pattern, scope[:-1])
        if not isinstance(repeat, Repeat):
            return True
        return len(elements) >= repeat.least and (repeat.most is None or len(elements) <= repeat.most)

    # Section 7: a first one after

    def is_first(self, match: Candidate | None, around: Candidate, scope: Path, path: Path, operator: str) -> bool:
        """Whether no other `z` of the operator at the path is after `x` and ends before this one."""
        x, z = ((*path, index) for index in FIRST_AFTER[operator])
        return not any(
            around.spans[x].is_before(other.spans[z])
            and other.spans[z].ends_before(around.spans[z])
            and (instead := self.with_other(around, scope, z, other)) is not None
            and self.checked(instead, scope, match, below=z) is not None
            for other in self.candidates(z)
        )

    def with_other(self, around: Candidate, scope: Path, path: Path, other: Candidate) -> Candidate | None:
        """The other choice in place of what is bound at the path, where that can be."""
        rest = around.outside(path, names_below(self.pattern, path))
        together = join(rest, other)
        for length in reversed(range(len(scope), len(path))):
            if together is not None and path[:length] in together.spans:
                together = together.with_span(path[:length], self.span_of(together, path[:length]))
        return together

    # Section 2: negations; sections 6 and 7: what operators forbid

    def is_violated(self, match: Candidate, around: Candidate, scope: Path) -> bool:
        """Whether there is a forbidden match: in its scope, of unused events, obeying its conditions and negations."""
        operation = part_at(self.pattern, scope[:-1])
        if isinstance(operation, Operation) and operation.operator == "EXCEPT":
            return self.ends_together(match, around, scope)
        return any(
            (together := join(around, forbidden)) is not None
            and self.lies_in(match, around, forbidden, scope)
            and self.checked(together, scope, match) is not None
            for forbidden in self.candidates(scope)
        )

    def ends_together(self, match: Candidate, around: Candidate, scope: Path) -> bool:
        """Whether a forbidden match ends in an event in which the item of an EXCEPT ends. It may use the item's."""
        item = (*scope[:-1], 0)
        names = names_below(self.pattern, item)
        rest = around.outside(item, names)
        outside = {id(event) for event in rest.events()}
        own = [event for event in around.events() if id(event) not in outside]
        last = {event.id for event in own if event.e == around.spans[item].e}
        return any(
            any(event.id in last and event.e == forbidden.spans[scope].e for event in forbidden.events())
            and join(rest, forbidden) is not None
            and self.checked(overlay(around, forbidden), scope, match) is not None
            for forbidden in self.candidates(scope)
        )

    def lies_in(self, match: Candidate, around: Candidate, inner: Candidate, scope: Path) -> bool:
        """Whether a match of what is forbidden or collected lies where that counts."""
        operation = part_at(self.pattern, scope[:-1])
        if is_chain(self.pattern, scope):
            is_earlier = inner.spans[scope].is_before(around.spans[scope[:-1]], self.ties)
            return is_earlier and self.lies_after_left_end(match, around, inner, scope)
        if isinstance(operation, Operation):
            return self.lies_in_operation(operation, around, inner.spans[scope], scope[:-1])
        return self.lies_after_left_end(match, around, inner, scope) and self.lies_before_right_end(
            match, around, inner, scope
        )

    def lies_in_operation(self, part: Operation, around: Candidate, n: Span, path: Path) -> bool:
        bound = [around.spans[place] for place in self.bound_parts(path)]
        x, y = bound[0], bound[-1]
        match part.operator:
            case "NOTFOLLOWS":
                return x.e < n.e <= x.e + length_of(part.window)
            case "NOTPRECEDES":
                return x.e - length_of(part.window) <= n.e < x.e
            case "APERIODIC":
                return x.e <= n.e <= y.e
            case "PERIODIC":
                return x.is_before(n) and n.e <= around.moments[path][0]
            case "UNLESS" | "APERIODIC*":
                return x.is_before(n) and n.is_before(y)
        raise ValueError(f"{part.operator} forbids and collects nothing")

    def lies_after_left_end(self, match: Candidate, around: Candidate, inner: Candidate, scope: Path) -> bool:
        neighbour = left_neighbour(self.pattern, scope[:-1])
        if neighbour is not None:
            return around.spans[neighbour].is_before(inner.spans[scope], self.ties)
        if reaches_at(self.pattern, scope):
            return True
        self.require_window()
        return all(
            self.first_position(inner) >= self.last_position(match) - (window.count - 1)
            if isinstance(window, Events)
            else inner.spans[scope].s >= match.spans[WHOLE].e - length_of(window)
            for window in self.windows
        )

    def lies_before_right_end(self, match: Candidate, around: Candidate, inner: Candidate, scope: Path) -> bool:
        neighbour = right_neighbour(self.pattern, scope[:-1])
        if neighbour is not None:
            return inner.spans[scope].is_before(around.spans[neighbour], self.ties)
        if reaches_at(self.pattern, scope):
            return True
        if isinstance(part_at(self.pattern, scope[:-2]), And):
            return inner.spans[scope].e <= match.spans[WHOLE].e
        self.require_window()
        return all(
            self.last_position(inner) <= self.first_position(match) + (window.count - 1)
            if isinstance(window, Events)
            else inner.spans[scope].e <= match.spans[WHOLE].s + length_of(window)
            for window in self.windows
        )

    def require_window(self) -> None:
        if not self.windows:
            raise ValueError("an open scope that no WITHIN closes")

    # Section 4: reaches

    def reaches_hold(self, around: Candidate, scope: Path, below: Path) -> bool:
        """Whether every item of the scope with a reach is where it has to be."""
        return all(
            is_in_reach(around.spans[path], self.around_which(around, part), part, self.ties)
            for home, path, part in self.reaches
            if home == scope and path in around.spans and is_inside(path, below)
        )

    def around_which(self, around: Candidate, part: Within) -> Span:
        event = around.bindings[part.reach.anchor]
        return event.span

    def deadlines(self, match: Candidate) -> list[float]:
        """When reaches close the scopes on the right side of which nothing else is."""
        found = []
        for scope in self.scopes:
            own = reaches_at(self.pattern, scope)
            is_operand = is_repeated(self.pattern, scope) or isinstance(part_at(self.pattern, scope[:-1]), Operation)
            if not own or is_operand or right_neighbour(self.pattern, scope[:-1]) is not None:
                continue
            if self.is_taken(match, scope) and all(part.reach.side != "BEFORE" for part in own):
                found += [match.bindings[part.reach.anchor].e + length_of(part.window) for part in own]
        return found

    # Section 3: conditions

    def scope_of_conjunct(self, conjunct: Expr) -> Path:
        """The innermost scope of a name that it mentions. Over lists it belongs to the scope in which the lists are."""
        ranged = {self.home[name] for name, over_list in mentions(conjunct) if over_list}
        found = [WHOLE]
        for name, over_list in mentions(conjunct):
            home = self.home[name]
            as_list = over_list or (PREVIOUS in calls_in(conjunct) and home in ranged)
            found.append(scope_around(self.pattern, home) if as_list and is_list(self.pattern, home) else home)
        return max(found, key=len)

    def conditions_hold(self, around: Candidate, scope: Path, below: Path) -> bool:
        """Whether the conjuncts that belong to the scope hold, as far as they apply; those about `below` alone."""
        return all(
            self.agrees(around, conjunct) if isinstance(conjunct, Same) else self.holds_if_bound(around, conjunct)
            for home, conjunct in self.conjuncts
            if (home == scope or isinstance(conjunct, Same)) and self.is_about(conjunct, below)
        )

    def is_about(self, conjunct: Expr, below: Path) -> bool:
        if below == WHOLE or isinstance(conjunct, Same):
            return True
        ranges_over_lists = calls_in(conjunct) & {*AGGREGATES, PREVIOUS}
        return not ranges_over_lists and bool(names_in(conjunct) & names_below(self.pattern, below))

    def agrees(self, around: Candidate, condition: Same) -> bool:
        return all(same([event.fields.get(column) for event in around.events()]) for column in condition.fields)

    def holds_if_bound(self, around: Candidate, conjunct: Expr) -> bool:
        successive = PREVIOUS in calls_in(conjunct)
        if not all(self.is_bound(around, name, over_list or successive) for name, over_list in mentions(conjunct)):
            return True
        if successive:
            return self.holds_for_successors(around, conjunct)
        return holds(conjunct, self.lookup(around), self.lists(around))

    def is_bound(self, around: Candidate, name: str, over_list: bool) -> bool:
        """Whether a variable has an event, or the list over which a condition ranges is there."""
        has_list = over_list and self.home[name] in around.lists()
        return has_list or name in around.bindings or self.named.get(name) in around.spans

    def holds_for_successors(self, around: Candidate, conjunct: Expr) -> bool:
        """A conjunct with PREV: for every element but the first."""
        (scope,) = {self.home[name] for name in names_in(conjunct)} & around.lists().keys()
        rounds = [overlay(around, element) for element in around.lists()[scope]]
        return all(
            holds(conjunct, self.lookup(after), self.lists(after, self.lookup(before)))
            for before, after in pairwise(rounds)
        )

    def lookup(self, around: Candidate) -> Lookup:
        return lambda name, column: self.read(around, name, column)

    def lists(self, around: Candidate, previous: Lookup | None = None) -> Lists:
        def elements(names: set[str]) -> list[Lookup]:
            ranged = {self.home[name] for name in names} & around.lists().keys()
            return [self.lookup(overlay(around, element)) for scope in ranged for element in around.lists()[scope]]

        return Lists(elements, previous)

    def read(self, around: Candidate, name: str | None, column: str) -> Value:
        """`name.column` for a variable or an AS name; null where it is not bound."""
        if name in around.bindings:
            return read_event(around.bindings[name], column)
        path = self.named.get(name)
        if path not in around.spans:
            return None
        if column == "times":
            return next(times for place, times in around.moments.items() if is_inside(place, path))
        return {"s": around.spans[path].s, "e": around.spans[path].e}[column]

    # Section 5: completion

    def completion(self, match: Candidate) -> float:
        """The latest of the ends and of the closing times of the scopes, nested ones included.

        Where a scope is open to the right or a LAST waits, each FIRST and LAST has to wait for what could replace it.
        """
        is_open = any(self.is_taken(match, scope) and self.is_trailing(scope) for scope in self.scopes)
        closings = [self.closing(match)] if is_open else []
        for pick in self.picks:
            if is_open or self.waits(pick):
                closings.append(self.closing(self.besides(match, pick)))
        return max([match.spans[WHOLE].e, *closings, *self.deadlines(match)])

    def is_taken(self, match: Candidate, scope: Path) -> bool:
        """Whether the scope, or the outermost one around it, stands in the branches that the match took."""
        outermost = next(path for path in self.scopes if is_inside(scope, path))
        return self.anchor[outermost] in match.spans

    def is_trailing(self, scope: Path) -> bool:
        """At the right edge of everything, in SEQ; every other scope closes at an event of the match or before."""
        if is_repeated(self.pattern, scope) or isinstance(part_at(self.pattern, scope[:-1]), Operation):
            return False
        if reaches_at(self.pattern, scope):
            return False
        in_seq = is_sequence(part_at(self.pattern, scope[:-2]))
        return in_seq and right_neighbour(self.pattern, scope[:-1]) is None

    def waits(self, pick: Path) -> bool:
        """Whether a later one could still come: nothing has to be after it."""
        return part_at(self.pattern, pick).latest and right_neighbour(self.pattern, pick) is None

    def besides(self, match: Candidate, pick: Path) -> Candidate:
        """What the match binds besides the item, with the interval of that."""
        rest = match.outside(pick, names_below(self.pattern, pick))
        starts, ends = zip(*((event.s, event.e) for event in rest.events()), strict=True)
        return rest.with_span(WHOLE, Span(min(starts), max(ends)))

    def closing(self, match: Candidate) -> float:
        """When the windows close a scope that is open to the right: the earliest of them does."""
        self.require_window()
        return min(self.closing_by(match, window) for window in self.windows)

    def closing_by(self, match: Candidate, window: Window) -> float:
        if not isinstance(window, Events):
            return match.spans[WHOLE].s + length_of(window)
        last = self.first_position(match) + window.count - 1
        return self.ordered[last].e if last < len(self.ordered) else math.inf


def is_in_reach(x: Span, a: Span, part: Within, ties: bool) -> bool:
    """The table of section 4."""
    d = length_of(part.window)
    match part.reach.side:
        case "OF":
            return x.s >= a.s - d and x.e <= a.e + d
        case "BEFORE":
            return x.s >= a.s - d and x.is_before(a, ties)
        case _:
            return a.is_before(x, ties) and x.e <= a.e + d
