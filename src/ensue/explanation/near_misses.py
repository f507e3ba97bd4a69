"""The near misses of a requirement: their keys, their events, and by how much they missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.goals import Choices, Search
from ensue.engine.output import render_chunk
from ensue.engine.rows import MatchChunk
from ensue.engine.trace_rows import KEY
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.expr.lists import has_prev
from ensue.expr.types import as_float
from ensue.graph.bounds import end_of, start_of
from ensue.nodes.expressions import Binary, Expr, Field, substitute_fields, variables_of
from ensue.nodes.names import Name, in_words
from ensue.nodes.patterns import Event, Return, walk
from ensue.plan.inputs import InputTable, raw_types
from ensue.plan.outputs import output_schema
from ensue.plan.requirements import ABSENCE, CONDITION, PREDICATE, Requirement

# --- times, keys and events as text

EPOCH = datetime(1970, 1, 1)
PARTS = (
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
)


def length_in_words(ticks: int, time_type: pa.DataType) -> str:
    """Format a length of time; integer time stays a number.

    >>> length_in_words(604_000, pa.timestamp("ms")), length_in_words(604, pa.int64())
    ('10 min 4 s', '604')
    """
    if not pa.types.is_timestamp(time_type):
        return str(ticks)
    left = abs(ticks) * NANOSECONDS_PER_UNIT[time_type.unit]
    words = []
    for unit, size in PARTS:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {unit}")
    return ("-" if ticks < 0 else "") + (" ".join(words) or "0 s")


def moment_in_words(ticks: int, time_type: pa.DataType) -> str:
    """Format a time; integer time stays a number.

    >>> moment_in_words(1_500, pa.timestamp("ms"))
    '1970-01-01 00:00:01.500'
    """
    if not pa.types.is_timestamp(time_type):
        return str(ticks)
    seconds, rest = divmod(ticks * NANOSECONDS_PER_UNIT[time_type.unit], 1_000_000_000)
    try:
        shown = (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return str(ticks)
    fraction = f".{rest:09d}".rstrip("0").ljust(4, "0") if rest else ""
    return shown + fraction


def key_in_words(key: Mapping[str, Any]) -> str:
    """Format a key: `id = 7, place = 'x'`."""
    return ", ".join(f"{name} = {value!r}" for name, value in key.items())


# --- near misses

COMPARISONS = frozenset({"<", "<=", ">", ">=", "=", "!="})
Distances = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bound:
    """An event of a choice: its variable, its stream, and its times in ticks and as text."""

    variable: str
    stream: str
    start: int
    end: int
    in_words: str


@dataclass(frozen=True, slots=True)
class Example:
    """A near miss: its key, its events, by how much it missed, and a note."""

    key: Mapping[str, Any]
    events: tuple[Bound, ...]
    distance: float | None
    note: str

    @property
    def key_words(self) -> str:
        return key_in_words(self.key)

    @property
    def in_words(self) -> str:
        parts = [self.key_words, ", ".join(event.in_words for event in self.events), self.note]
        return "; ".join(part for part in parts if part)

    def as_row(self) -> dict[str, Any]:
        events = [
            {"variable": event.variable, "stream": event.stream, "start": event.start, "end": event.end}
            for event in self.events
        ]
        return {"key": self.key_words or None, "events": events, "distance": self.distance, "note": self.note or None}


@dataclass(frozen=True, slots=True)
class Examples:
    """Formats choices of events as examples, at most `most` for each requirement."""

    search: Search
    tables: Sequence[InputTable]
    most: int

    def nearest(self, requirement: Requirement, misses: Choices) -> list[Example]:
        """Return the nearest misses, nearest first; the earliest ones if there is no distance."""
        ranked: list[tuple[float, int, MatchChunk, int, bool]] = []
        for chunk in misses.chunks:
            distances = self._distances(requirement, chunk)
            measured = distances is not None
            far = np.zeros(chunk.rows.length) if distances is None else distances
            for place in np.lexsort((chunk.starts, far))[: self.most]:
                ranked.append((float(far[place]), int(chunk.starts[place]), chunk, int(place), measured))
        ranked.sort(key=lambda entry: entry[:2])
        return [
            self._example(requirement, chunk, place, far if measured and np.isfinite(far) else None)
            for far, _, chunk, place, measured in ranked[: self.most]
        ]

    def _example(self, requirement: Requirement, chunk: MatchChunk, place: int, distance: float | None) -> Example:
        one = replace(chunk, rows=chunk.rows.take(np.array([place], np.int32)))
        events = tuple(self._bound(one, name) for name in one.plan.graph.names)
        return Example(self._key(requirement, one), events, distance, self._note(requirement, one))

    def end_of(self, names: Sequence[Name], example: Example) -> int:
        """Return the last end of some variables, in ticks."""
        words = {self.search.question.word(name) for name in names}
        return max(event.end for event in example.events if event.variable in words)

    def _bound(self, one: MatchChunk, name: Name) -> Bound:
        start, end = (int(one.space.value(point, one.rows)[0]) for point in (start_of(name), end_of(name)))
        stream, word = in_words(one.space.streams[name]), self.search.question.word(name)
        return Bound(word, stream, start, end, self._event_words(word, start, end))

    def _event_words(self, word: str, start: int, end: int) -> str:
        time_type = self.search.plan.catalog.time_type
        moment = moment_in_words(start, time_type)
        return f"{word} at {moment}" if start == end else f"{word} from {moment} to {moment_in_words(end, time_type)}"

    def _key(self, requirement: Requirement, one: MatchChunk) -> dict[str, Any]:
        """Return the key of a choice, or the keys of all its events if the key is what differs."""
        keys = self.search.question.query.partition_by
        names = one.plan.graph.names if requirement.kind == KEY else one.plan.graph.names[:1]
        found: dict[str, Any] = {}
        for key in keys:
            values = [self._value(one, name, key) for name in names]
            found[key] = values[0] if len(set(map(repr, values))) == 1 else tuple(values)
        return found

    def key_of(self, one: MatchChunk) -> dict[str, Any]:
        """Return the key that all events of a choice share."""
        name = one.plan.graph.names[0]
        return {key: self._value(one, name, key) for key in self.search.question.query.partition_by}

    def _value(self, one: MatchChunk, name: Name, column: str) -> Any:
        candidates, places = one.space.candidates[name], one.rows.places[name]
        if column in candidates.source.input.table.column_names:
            return candidates.source.raw_column(column).take(pa.array(candidates.rows[places]))[0].as_py()
        return int(one.space.value(end_of(name) if column == "e" else start_of(name), one.rows)[0])

    # --- distances and notes

    def _distances(self, requirement: Requirement, chunk: MatchChunk) -> Distances | None:
        sides = self.sides(requirement, chunk)
        if sides is not None:
            return _apart(*sides)
        found = None if requirement.repeated else self.search.distances(requirement, chunk)
        return None if found is None else found.astype(np.float64)

    def sides(self, requirement: Requirement, chunk: MatchChunk) -> tuple[pa.Array, pa.Array] | None:
        """Return the two values that a comparison compares, for each choice; None for other conditions."""
        condition = self._comparison(requirement)
        if condition is None or not variables_of(condition) <= {*chunk.rows.places, *chunk.plan.graph.intervals}:
            return None
        columns = (Return(condition.left, "left"), Return(condition.right, "right"))
        plan = replace(chunk.query_plan, query=replace(chunk.query_plan.query, returns=columns))
        shown = render_chunk(chunk, output_schema(plan, raw_types(plan, self.tables)))
        left, right = shown.column(0), shown.column(1)
        return None if pa.types.is_nested(left.type) or pa.types.is_nested(right.type) else (left, right)

    def _comparison(self, requirement: Requirement) -> Binary | None:
        condition = requirement.condition if requirement.kind == CONDITION else self._predicate(requirement)
        if not isinstance(condition, Binary) or condition.operator not in COMPARISONS or has_prev(condition):
            return None
        return condition

    def _predicate(self, requirement: Requirement) -> Expr | None:
        """Return a local predicate as a condition on its variable."""
        if requirement.kind != PREDICATE or requirement.repeated:
            return None
        name = requirement.left[0]
        parts = [part for part in walk(self.search.question.query.pattern) if isinstance(part, Event)]
        own = next(part.predicate for part in parts if part.variable == name and part.predicate is not None)
        return substitute_fields(own, lambda field: Field(name, field.name))

    def _note(self, requirement: Requirement, one: MatchChunk) -> str:
        if requirement.kind == ABSENCE:
            return self._forbidden(requirement, one)
        sides = self.sides(requirement, one)
        condition = self._comparison(requirement)
        if sides is None or condition is None:
            return ""
        left, right = (side[0].as_py() for side in sides)
        return f"{_shown(left)} {condition.operator} {_shown(right)} is false"

    def _forbidden(self, requirement: Requirement, one: MatchChunk) -> str:
        """Describe the first forbidden events that occurred."""
        found: list[tuple[int, str]] = []
        for join, rows in self.search.forbidden(requirement, one):
            names = join.space.plan.graph.names
            times = {name: join.space.value(start_of(name), rows) for name in names}
            ends = {name: join.space.value(end_of(name), rows) for name in names}
            first = int(np.argmin(np.minimum.reduce(list(times.values()))))
            begin, end = (int(find([of[name][first] for name in names])) for find, of in ((min, times), (max, ends)))
            tied = self._neighbour_at(requirement, one, begin, end)
            words = [
                self._event_words(self.search.question.word(name), int(times[name][first]), int(ends[name][first]))
                for name in names
            ]
            found.append((begin, ", ".join(words) + tied))
        return f"{min(found)[1]} occurred" if found else ""

    def _neighbour_at(self, requirement: Requirement, one: MatchChunk, start: int, end: int) -> str:
        """Say that forbidden events are at the very time of a neighbour of the NOT; empty if they are not."""
        for scope in self.search.scopes(requirement, one):
            edges = [(end_of(name), start) for name in (scope.after.ends if scope.after else ())]
            edges += [(start_of(name), end) for name in (scope.before.starts if scope.before else ())]
            for point, moment in edges:
                if point.variable in one.rows.places and int(one.space.value(point, one.rows)[0]) == moment:
                    return f", at the very time of {self.search.question.word(point.variable)},"
        return ""


def _apart(left: pa.Array, right: pa.Array) -> Distances:
    """Return the difference of both sides of a comparison; infinity if they are not numbers."""
    numbers = [_numbers(side) for side in (left, right)]
    if numbers[0] is None or numbers[1] is None:
        return np.full(len(left), np.inf)
    apart = np.abs(numbers[0] - numbers[1])
    return np.where(np.isnan(apart), np.inf, apart)


def _numbers(side: pa.Array) -> Distances | None:
    if pa.types.is_timestamp(side.type) or pa.types.is_duration(side.type):
        side = side.cast(pa.int64())
    side = as_float(side)
    if not (pa.types.is_integer(side.type) or pa.types.is_floating(side.type)):
        return None
    numbers: Distances = side.to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers


def _shown(value: Any) -> str:
    return "null" if value is None else repr(value) if isinstance(value, str) else str(value)
