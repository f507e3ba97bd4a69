"""Probabilistic state by brute force, written from docs/semantics.md, section 10: dictionaries of whole combinations.

A belief is a dictionary from combinations (a tuple of values, one per variable) to probabilities. Nothing is shared
with the engine but the nodes that the parser gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from fractions import Fraction
from itertools import product
from typing import Any

from inside import (
    Arrow,
    Both,
    Change,
    Constant,
    CountTest,
    Either,
    Field,
    Literal,
    Location,
    Move,
    NotSo,
    Observe,
    Someone,
    StateCondition,
    StateStatement,
    Wander,
)

Belief = dict[tuple[str, ...], float]
Event = Mapping[str, Any]


class ImpossibleError(Exception):
    """An event that cannot have happened."""


@dataclass
class Key:
    """What is believed of one key, and since when."""

    belief: Belief
    moment: int | None = None


@dataclass
class Tracking:
    """Leads events (dictionaries with `t` and `type`), sorted by time, through a state."""

    state: StateStatement
    policy: str = "error"
    probability: str | None = None
    keys: dict[tuple[Any, ...], Key] = field(default_factory=dict)
    contradictions: list[Event] = field(default_factory=list)

    def key_of(self, event: Event) -> Key | None:
        values = tuple(event[name] for name in self.state.partition_by)
        if any(value is None for value in values):
            return None
        return self.keys.setdefault(values, Key(start_of(self.state)))

    def take(self, event: Event) -> Belief | None:
        """The belief of the event's key after it; None for an event without a key or a time."""
        key = self.key_of(event) if event["t"] is not None else None
        if key is None:
            return None
        concerns = [r for r in self.state.responses if r.stream == event["type"]]
        readable = all(_readable(r.change, event, self.state) for r in concerns)
        if key.moment is not None:
            key.belief = drifted(self.state, key.belief, key.moment, event["t"])
        if key.moment is not None or (concerns and readable):
            key.moment = event["t"]
        chance = 1.0 if self.probability is None else event[self.probability]
        if concerns and readable and chance > 0:
            try:
                key.belief = self._changed(key.belief, concerns, event, chance)
            except ImpossibleError:
                self.contradictions.append(event)
                if self.policy == "error":
                    raise
                if self.policy == "reset":
                    key.belief = start_of(self.state)
                    with suppress(ImpossibleError):
                        key.belief = self._changed(key.belief, concerns, event, chance)
        return dict(key.belief)

    def _changed(self, belief: Belief, concerns: Sequence[Any], event: Event, chance: float) -> Belief:
        after = belief
        try:
            for response in concerns:
                after = changed(self.state, after, response.change, event)
        except ImpossibleError:
            if chance < 1:
                return belief
            raise
        return mixed(after, belief, chance)


def in_order(
    state: StateStatement, rows: Sequence[Event], order: Sequence[str] = (), p: str | None = None
) -> list[int]:
    """The places of the rows by time, order columns, stream and content: the columns that the state uses, then all."""
    terms = [getattr(r.change, part.name) for r in state.responses for part in fields(r.change)]
    used = sorted({*(term.name for term in terms if isinstance(term, Field)), *([p] if p is not None else [])})

    def key(place: int) -> tuple[Any, ...]:
        row = rows[place]
        names = (*order, "type", *used, *sorted(row))
        return row["t"], [(row[name] is not None, row[name] if row[name] is not None else 0) for name in names]

    return sorted(range(len(rows)), key=key)


def start_of(state: StateStatement) -> Belief:
    """Every variable for itself, as STARTS says."""
    starts = {start.variable: start.chances for start in state.starts}
    belief: Belief = {(): 1.0}
    for variable in state.variables:
        chances = starts.get(variable, starts.get(None))
        even = {value: 1 / len(state.values) for value in state.values}
        own = even if chances is None else {chance.value: chance.probability for chance in chances}
        total = sum(own.values())
        belief = {(*c, v): p * q / total for c, p in belief.items() for v, q in own.items()}
    return belief


def drifted(state: StateStatement, belief: Belief, earlier: int, later: int) -> Belief:
    """A transition at every multiple of the period after `earlier` and not after `later`."""
    if state.drift is None:
        return belief
    period = state.drift.window.count  # type: ignore[union-attr]
    for _ in range(later // period - earlier // period):
        belief = changed(state, belief, state.drift.change, {})
    return belief


def mixed(after: Belief, before: Belief, weight: float) -> Belief:
    """With probability `weight` the one, otherwise the other."""
    combinations = {**after, **before}
    return {c: weight * after.get(c, 0.0) + (1 - weight) * before.get(c, 0.0) for c in combinations}


def normal(belief: Belief) -> Belief:
    total = sum(belief.values())
    if total <= 0:
        raise ImpossibleError
    return {c: p / total for c, p in belief.items()}


def _named(term: Any, event: Event) -> Any:
    return term.name if isinstance(term, Constant) else event.get(term.name)


def _number(term: Any, event: Event, otherwise: float) -> float:
    if term is None:
        return otherwise
    return float(term.value) if isinstance(term, Literal) else float(event[term.name])


def _readable(change: Change, event: Event, state: StateStatement) -> bool:
    """Whether the event names what the change needs, and only what is declared."""
    if not isinstance(change.who, Someone) and _named(change.who, event) not in state.variables:
        return False
    match change:
        case Move(source=source, target=target):
            places = [target] if source is None else [source, target]
        case Observe(place=place):
            places = [place]
        case _:
            places = []
    return all(_named(place, event) in state.values for place in places)


def changed(state: StateStatement, belief: Belief, change: Change, event: Event) -> Belief:
    """The belief after a change; raises Impossible where the change is certain and cannot have been."""
    match change:
        case Wander():
            return wandered(state, belief, _who(state, change.who, event), rows_of(change.arrows, state.values))
        case Observe():
            return normal({c: p * likelihood(state, change, event, c) for c, p in belief.items()})
        case Move():
            weight = _number(change.probability, event, 1.0)
            if weight == 0:
                return belief
            try:
                return mixed(moved(state, belief, change, event), belief, weight)
            except ImpossibleError:
                if weight < 1:
                    return belief
                raise


def _who(state: StateStatement, who: Any, event: Event) -> list[int]:
    """The places of the variables that are meant by name, or all."""
    if isinstance(who, Someone):
        return list(range(len(state.variables)))
    return [state.variables.index(_named(who, event))]


def moved(state: StateStatement, belief: Belief, change: Move, event: Event) -> Belief:
    target = _named(change.target, event)
    source = None if change.source is None else _named(change.source, event)
    after: Belief = {}

    def put(combination: tuple[str, ...], movers: Iterable[int], p: float) -> None:
        goal = list(combination)
        for mover in movers:
            goal[mover] = target
        after[tuple(goal)] = after.get(tuple(goal), 0.0) + p

    word = change.who.word if isinstance(change.who, Someone) else None
    for combination, p in belief.items():
        there = [v for v in _who(state, change.who, event) if source is None or combination[v] == source]
        if word == "everyone":
            put(combination, there, p)
        elif word == "anyone":
            for mover in there:
                put(combination, [mover], p / len(there))
        elif there:
            put(combination, there, p)
    return normal(after)


def rows_of(arrows: Sequence[Arrow], values: Sequence[str]) -> dict[str, dict[str, float]]:
    """The transition of each value; what is left over of 1 stays, unless it is but rounding."""
    rows: dict[str, dict[str, float]] = {}
    for value in values:
        row = {arrow.target: arrow.probability for arrow in arrows if arrow.source == value}
        left = 1 - sum(Fraction(str(p)) for p in row.values())
        row[value] = row.get(value, 0.0) + (float(left) if abs(left) > 1e-9 else 0.0)
        total = sum(row.values())
        rows[value] = {target: p / total for target, p in row.items()}
    return rows


def wandered(
    state: StateStatement, belief: Belief, variables: Sequence[int], rows: Mapping[str, Mapping[str, float]]
) -> Belief:
    for v in variables:
        after: Belief = {}
        for combination, p in belief.items():
            for target, q in rows[combination[v]].items():
                goal = (*combination[:v], target, *combination[v + 1 :])
                after[goal] = after.get(goal, 0.0) + p * q
        belief = after
    return belief


def likelihood(state: StateStatement, change: Observe, event: Event, combination: tuple[str, ...]) -> float:
    """How probable the observation is if the combination is the truth."""
    place = _named(change.place, event)
    reliability = _number(change.reliability, event, 1.0)
    if isinstance(change.who, Someone):
        alarm = _number(change.false_alarm, event, 1 - reliability)
        so = (place in combination) == (change.who.word == "anyone")
        return reliability if so else alarm
    truth = combination[state.variables.index(_named(change.who, event))]
    if change.errors is not None:
        return rows_of(change.errors, state.values)[truth].get(place, 0.0)
    return reliability if truth == place else (1 - reliability) / (len(state.values) - 1)


# Questions


def holds(condition: StateCondition, state: StateStatement, combination: tuple[str, ...]) -> bool:
    match condition:
        case Both():
            return holds(condition.left, state, combination) and holds(condition.right, state, combination)
        case Either():
            return holds(condition.left, state, combination) or holds(condition.right, state, combination)
        case NotSo():
            return not holds(condition.item, state, combination)
        case CountTest(places, operator, number):
            return _COMPARISONS[operator](count_of(places, combination), number)
        case Location(who, places):
            if isinstance(who, Constant):
                return inside(places, combination[state.variables.index(who.name)])
            number = count_of(places, combination)
            return {"anyone": number > 0, "nobody": number == 0, "everyone": number == len(combination)}[who.word]


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def inside(places: Any, value: str) -> bool:
    return (value in places.values) != places.negated


def count_of(places: Any, combination: tuple[str, ...]) -> int:
    return sum(inside(places, value) for value in combination)


def probability(
    condition: StateCondition, state: StateStatement, belief: Belief, given: StateCondition | None = None
) -> float | None:
    base = {c: p for c, p in belief.items() if given is None or holds(given, state, c)}
    total = sum(base.values())
    if total <= 0:
        return None
    return sum(p for c, p in base.items() if holds(condition, state, c)) / total


def expected_count(places: Any, belief: Belief) -> float:
    return sum(p * count_of(places, c) for c, p in belief.items())


def combinations(state: StateStatement) -> list[tuple[str, ...]]:
    return list(product(state.values, repeat=len(state.variables)))
