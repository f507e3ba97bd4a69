"""The nearest misses of a requirement: which choices of events came closest, and what each of them lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.engine.goals import Choices, Search
from ensue.engine.join import Join
from ensue.engine.output import render_chunk, value_of
from ensue.engine.rows import MatchChunk, Rows
from ensue.engine.sources import Tie
from ensue.engine.trace_rows import KEY
from ensue.engine.workspace import Workspace
from ensue.errors import QueryError
from ensue.explanation.near_misses import Bound, Example, length_in_words, moment_in_words
from ensue.explanation.scopes import scope_edges, scope_in_words
from ensue.explanation.shortfalls import Floats, Inspection, Shortfall, joined, lack_of, shown
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.expr.lists import has_prev
from ensue.graph.bounds import end_of, start_of
from ensue.nodes.expressions import COMPARISONS, Binary, Expr, Same, conjuncts, substitute_fields, variables_of
from ensue.nodes.names import Name, in_words
from ensue.nodes.patterns import Event, Events, Lookup, Return, walk
from ensue.plan.inputs import InputTable, raw_types
from ensue.plan.outputs import output_schema
from ensue.plan.plans import AbsencePlan
from ensue.plan.requirements import (
    ABSENCE,
    COLLECTION,
    CONDITION,
    ORDER,
    PREDICATE,
    RELATION,
    WINDOW,
    Requirement,
    column_in_words,
)

OWN = "ensue:"
"""The prefix of Ensue's own column names."""

MOST_COLUMNS = 3
"""The number of columns that are shown of a forbidden event."""

MOST_LETTERS = 40
"""The number of characters that are shown of a column of a forbidden event."""


@dataclass(frozen=True, slots=True)
class Measures:
    """For each choice its `rank` among the near misses of a requirement, smallest first, its `distance`, and the
    `share` of it in the required amount. The last two are infinite where they are unknown."""

    rank: Floats
    distance: Floats
    share: Floats


@dataclass(frozen=True, slots=True)
class Examples:
    """Finds and formats the nearest of some choices of events, at most `most` for each requirement."""

    search: Search
    tables: Sequence[InputTable]
    lookups: tuple[Lookup, ...]
    most: int

    def nearest(self, requirement: Requirement, misses: Choices) -> list[Example]:
        """Return the nearest misses, at least one, nearest first, then the earliest ones first."""
        most = max(1, self.most)
        ranked: list[tuple[float, int, MatchChunk, int, float, float]] = []
        for chunk in misses.chunks:
            measures = self.measures(requirement, chunk)
            for place in np.lexsort((chunk.starts, measures.rank))[:most]:
                rank, distance, share = (float(found[place]) for found in _columns_of(measures))
                ranked.append((rank, int(chunk.starts[place]), chunk, int(place), distance, share))
        ranked.sort(key=lambda entry: entry[:2])
        return [
            self._example(requirement, _single(chunk, place), distance, share)
            for _, _, chunk, place, distance, share in ranked[:most]
        ]

    def _example(self, requirement: Requirement, one: MatchChunk, beyond: float, part: float) -> Example:
        lacks = self._lacks(requirement, one)
        distance, share = (number if np.isfinite(number) else None for number in (beyond, part))
        key, events = self._key(requirement, one), self._events(one)
        return Example(key, events, distance, share, lacks.had, lacks.needed, lacks.text)

    def _events(self, one: MatchChunk) -> tuple[Bound, ...]:
        return tuple(self._bound(one, name) for name in one.plan.graph.names)

    def _bound(self, one: MatchChunk, name: Name) -> Bound:
        start, end = (int(one.space.value(point, one.rows)[0]) for point in (start_of(name), end_of(name)))
        stream, word = in_words(one.space.streams[name]), self.search.question.word(name)
        return Bound(word, stream, start, end, f"{word} {self._when(start, end)}")

    def _when(self, start: int, end: int) -> str:
        moment = self._moment(start)
        return f"at {moment}" if start == end else f"from {moment} to {self._moment(end)}"

    def _moment(self, ticks: int) -> str:
        return moment_in_words(ticks, self._time_type)

    def _length(self, ticks: int) -> str:
        return length_in_words(ticks, self._time_type)

    @property
    def _time_type(self) -> pa.DataType:
        return self.search.plan.catalog.time_type

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

    # --- how close

    def measures(self, requirement: Requirement, chunk: MatchChunk) -> Measures:
        """Measure how close the choices of a chunk are to a requirement."""
        if requirement.kind in (CONDITION, PREDICATE):
            return self._measured(self._conditions(requirement, chunk), chunk)
        unknown = np.full(chunk.rows.length, np.inf)
        found = None if requirement.repeated else self.search.distances(requirement, chunk)
        if found is None:
            return Measures(np.zeros(chunk.rows.length), unknown, unknown)
        distance = found.astype(np.float64)
        if requirement.kind == COLLECTION:
            counts = self.search.counts(requirement, chunk)
            assert counts is not None
            needed = np.where(counts < requirement.least, requirement.least, requirement.most or 0)
            return Measures(distance, distance, np.where(needed > 0, distance / np.maximum(needed, 1), np.inf))
        amount = self._amount(requirement)
        return Measures(distance, distance, distance / amount if amount else unknown)

    def _amount(self, requirement: Requirement) -> int:
        """Return the length of a window, or of the longest one of a relation; 0 if there is none."""
        windows = [requirement.window, *(compared.window for compared in requirement.compared)]
        return max(
            (
                window.count if isinstance(window, Events) else self.search.ticks(window)
                for window in windows
                if window is not None
            ),
            default=0,
        )

    def _measured(self, conditions: Sequence[Expr], chunk: MatchChunk) -> Measures:
        """Measure choices against conditions: by the only one, or by the shares of all that they fail."""
        unknown = np.full(chunk.rows.length, np.inf)
        unit = getattr(self._time_type, "unit", None)
        tick = NANOSECONDS_PER_UNIT[unit] if unit else 1
        lacks = [lack_of(condition, chunk, tick) for condition in conditions if not isinstance(condition, Same)]
        if not lacks:
            return Measures(np.zeros(chunk.rows.length), unknown, unknown)
        if len(lacks) == 1:
            return Measures(lacks[0].distance, lacks[0].distance, lacks[0].share)
        failed = np.stack([~lack.holds for lack in lacks])
        shares = np.where(failed, np.stack([lack.share for lack in lacks]), 0.0)
        distances = np.where(failed, np.stack([lack.distance for lack in lacks]), 0.0).sum(axis=0)
        rank = np.where(np.isinf(shares), 1.0, shares).sum(axis=0)
        return Measures(rank, np.where(failed.sum(axis=0) == 1, distances, np.inf), shares.sum(axis=0))

    def _conditions(self, requirement: Requirement, chunk: MatchChunk) -> tuple[Expr, ...]:
        """Return the conditions of a requirement if each of them can be evaluated for the choices of a chunk."""
        found = requirement.condition if requirement.kind == CONDITION else self._predicate(requirement)
        groups = chunk.query_plan.normal_form.repetitions.groups
        known = {*chunk.rows.places, *chunk.plan.graph.intervals}
        known |= {name for name, of in groups.items() if of in chunk.rows.lists or of in chunk.plan.graph.rounds}
        parts = conjuncts(found)
        if any(has_prev(part) or not variables_of(part) <= known for part in parts):
            return ()
        try:
            for part in parts if len(parts) > 1 else ():
                value_of(part, chunk)
        except QueryError:
            # A part may be defined only where those before it hold: `kind = 'n' AND CAST(text AS BIGINT) > 5`.
            return ()
        return parts

    def _predicate(self, requirement: Requirement) -> Expr | None:
        """Return a local predicate as a condition on its variable."""
        if requirement.kind != PREDICATE or requirement.repeated:
            return None
        name = requirement.left[0]
        parts = [part for part in walk(self.search.question.query.pattern) if isinstance(part, Event)]
        own = next(part.predicate for part in parts if part.variable == name and part.predicate is not None)
        return substitute_fields(own, lambda field: replace(field, variable=name))

    def sides(self, requirement: Requirement, chunk: MatchChunk) -> tuple[pa.Array, pa.Array] | None:
        """Return the two values that a comparison compares, for each choice; None for other conditions."""
        condition = requirement.condition if requirement.kind == CONDITION else self._predicate(requirement)
        if not isinstance(condition, Binary) or condition.operator not in COMPARISONS or has_prev(condition):
            return None
        if not variables_of(condition) <= {*chunk.rows.places, *chunk.plan.graph.intervals}:
            return None
        columns = (Return(condition.left, "left"), Return(condition.right, "right"))
        plan = replace(chunk.query_plan, query=replace(chunk.query_plan.query, returns=columns))
        shown = render_chunk(chunk, output_schema(plan, raw_types(plan, self.tables)))
        left, right = shown.column(0), shown.column(1)
        return None if pa.types.is_nested(left.type) or pa.types.is_nested(right.type) else (left, right)

    # --- what a choice lacks

    def _lacks(self, requirement: Requirement, one: MatchChunk) -> Shortfall:
        """Describe what the single choice of a chunk lacks."""
        if requirement.kind == ABSENCE:
            return Shortfall(self._forbidden(requirement, one))
        if requirement.kind in (CONDITION, PREDICATE):
            inspection = Inspection(one, one.plan.graph.names, self.lookups)
            told = map(inspection.shortfall, self._conditions(requirement, one))
            return joined(found for found in told if found is not None)
        distances = None if requirement.repeated else self.search.distances(requirement, one)
        if distances is None:
            return Shortfall("")
        beyond = int(distances[0])
        if requirement.kind == COLLECTION:
            return self._count(requirement, one)
        if requirement.kind == WINDOW:
            return self._too_long(requirement, beyond)
        if requirement.kind == ORDER:
            return Shortfall("at the same time" if beyond == 0 else f"{self._length(beyond)} late")
        return Shortfall(f"off by {self._length(beyond)}" if requirement.kind == RELATION else "")

    def _too_long(self, requirement: Requirement, beyond: int) -> Shortfall:
        window = requirement.window
        assert window is not None
        if isinstance(window, Events):
            had, needed, over = f"{window.count + beyond} EVENTS", f"{window.count} EVENTS", str(beyond)
        else:
            ticks = self.search.ticks(window)
            had, needed, over = (self._length(length) for length in (ticks + beyond, ticks, beyond))
        return Shortfall(f"{had}, {over} over", had, f"at most {needed}")

    def _count(self, requirement: Requirement, one: MatchChunk) -> Shortfall:
        """Describe a number of elements: `4 of 5`, or `7 of at most 5`."""
        counts = self.search.counts(requirement, one)
        assert counts is not None
        had = int(counts[0])
        if had < requirement.least:
            return Shortfall(f"{had:,} of {requirement.least:,}", f"{had:,}", f"at least {requirement.least:,}")
        return Shortfall(f"{had:,} of at most {requirement.most:,}", f"{had:,}", f"at most {requirement.most:,}")

    def _forbidden(self, requirement: Requirement, one: MatchChunk) -> str:
        """Describe the first forbidden events that occurred, and where; and how many others did."""
        found: list[tuple[int, str]] = []
        count = 0
        for absence, join, rows in self.search.forbidden(requirement, one):
            if rows.length:
                count += rows.length
                found.append(self._first_forbidden(absence, join, rows, one))
        if not found:
            return ""
        return min(found)[1] + (f", and {count - 1:,} more" if count > 1 else "")

    def _first_forbidden(self, absence: AbsencePlan, join: Join, rows: Rows, one: MatchChunk) -> tuple[int, str]:
        """Return the start of the first forbidden match, and what occurred where."""
        names = join.space.plan.graph.names
        starts = np.minimum.reduce([join.space.value(start_of(name), rows) for name in names])
        ends = np.maximum.reduce([join.space.value(end_of(name), rows) for name in names])
        first = int(np.lexsort((ends, starts))[0])
        begin, end = int(starts[first]), int(ends[first])
        match = rows.take(np.array([first], np.int32))
        words = ", ".join(self.event_in_words(join.space, match, name) for name in names)
        tied = self._neighbour_at(absence, one, begin, end)
        return begin, f"{words}{tied} occurred {self._where(absence, one)}".rstrip()

    def event_in_words(self, space: Workspace, row: Rows, name: Name) -> str:
        """Describe an event by its name, its stream, its time and a few of its columns."""
        found, stream = space.candidates[name], in_words(space.streams[name])
        place = int(found.rows[row.places[name][0]])
        word = self.search.question.word(name)
        called = stream if word == stream else f"{stream} {word}"
        start, end = (int(space.value(point, row)[0]) for point in (start_of(name), end_of(name)))
        columns = ", ".join(self._columns(space, name, place))
        return f"{called} {self._when(start, end)}" + (f" ({columns})" if columns else "")

    def _columns(self, space: Workspace, name: Name, row: int) -> list[str]:
        """Describe a few columns of an event, those that the query uses first; the key is shown apart."""
        source, stream = space.candidates[name].source, space.streams[name]
        told_apart = {source.input.time, source.input.end, source.input.type, *self.search.question.query.partition_by}
        used = self.search.plan.columns.get(stream) or ()
        names = [column for column in source.names if column not in told_apart and not column.startswith(OWN)]
        names.sort(key=lambda column: column not in used)
        values = source.taken(names, np.array([row], np.int32))
        return [
            f"{column_in_words(column, stream, self.lookups)} = {shown(value, MOST_LETTERS)}"
            for column, value in zip(names, values, strict=True)
            if value[0].is_valid
        ][:MOST_COLUMNS]

    def _where(self, absence: AbsencePlan, one: MatchChunk) -> str:
        """Name the events of the match between which a forbidden event is, or the bounds of its scope."""
        scope = absence.absence.scope
        if scope.stated is not None:
            return scope_in_words(*scope_edges(absence.graph, one), self._time_type)
        after = self._edge(one, scope.after.ends if scope.after else (), last=True)
        before = self._edge(one, scope.before.starts if scope.before else (), last=False)
        if after and before:
            return f"between {after} and {before}"
        return f"after {after}" if after else f"before {before}" if before else ""

    def _edge(self, one: MatchChunk, names: Sequence[Name], last: bool) -> str:
        """Name the neighbour that bounds a scope: the one that ends last, or starts first."""
        bound = [name for name in names if name in one.rows.places]
        if not bound:
            return ""
        times = [int(one.space.value((end_of if last else start_of)(name), one.rows)[0]) for name in bound]
        return self.search.question.word(bound[times.index((max if last else min)(times))])

    def _neighbour_at(self, absence: AbsencePlan, one: MatchChunk, start: int, end: int) -> str:
        """Say that forbidden events are at the very time of a neighbour of the NOT; empty if they are not."""
        scope = absence.absence.scope
        edges = [(end_of(name), start) for name in (scope.after.ends if scope.after else ())]
        edges += [(start_of(name), end) for name in (scope.before.starts if scope.before else ())]
        for point, moment in edges:
            if point.variable in one.rows.places and int(one.space.value(point, one.rows)[0]) == moment:
                return f", at the very time of {self.search.question.word(point.variable)},"
        return ""

    # --- ties

    def end_of(self, names: Sequence[Name], example: Example) -> int:
        """Return the last end of some variables, in ticks."""
        words = {self.search.question.word(name) for name in names}
        return max(event.end for event in example.events if event.variable in words)

    def ties(self, requirement: Requirement, tied: Choices) -> Iterator[Example]:
        """Yield the earliest choices in which events on both sides of a gap are at the same time."""
        for example in self.nearest(requirement, tied):
            left, right = (
                [event for event in example.events if event.variable in set(map(self.search.question.word, names))]
                for names in (requirement.left, requirement.right)
            )
            moment = self.end_of(requirement.left, example)
            names = [event.variable for event in left if event.end == moment]
            names += [event.variable for event in right if event.start == moment]
            yield replace(example, note=f"{' and '.join(names)} at the same time, {self._moment(moment)}", share=0.0)

    def tied_matches(self, tie: Tie) -> list[Example]:
        """Return the earliest matches with a forbidden event at the very time of its neighbour."""
        found: list[tuple[int, MatchChunk, str]] = []
        for tied in self.search.matches_tied(tie):
            starts = tied.matches.starts
            for place in np.argsort(starts, kind="stable")[: self.most]:
                row = tied.tied.rows.take(np.array([place], np.int32))
                event = self.event_in_words(tied.tied.space, row, tied.forbidden)
                note = f"{event} is at the time of {self.search.question.word(tied.neighbour)}"
                found.append((int(starts[place]), _single(tied.matches, int(place)), note))
        found.sort(key=lambda entry: entry[0])
        return [
            Example(self.key_of(one), self._events(one), None, None, "", "", note)
            for _, one, note in found[: self.most]
        ]


def _columns_of(measures: Measures) -> tuple[Floats, Floats, Floats]:
    return measures.rank, measures.distance, measures.share


def _single(chunk: MatchChunk, place: int) -> MatchChunk:
    return replace(chunk, rows=chunk.rows.take(np.array([place], np.int32)))
