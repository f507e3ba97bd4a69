"""Reads events as changes of a state: the variable, values and numbers of each change, and the rows that are
ignored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.belief.model import StatePlan, miss_of
from ensue.engine.events import stream_codes
from ensue.engine.sources import EventSource
from ensue.errors import Problem, QueryError, SchemaError, did_you_mean
from ensue.expr.kinds import Kind
from ensue.expr.types import as_float, describe, kind_of
from ensue.kernels.beliefs import Changes, Floats
from ensue.nodes.expressions import Field
from ensue.nodes.states import (
    Constant,
    Move,
    Number,
    Observe,
    Response,
    Someone,
    StateStatement,
    Wander,
)

Small = npt.NDArray[np.int16]

FINE, NO_TIME, NO_KEY, NO_FIELD, UNDECLARED, CONTRADICTION, RESTART = range(7)
REASONS = (
    "",
    "ignored: no timestamp",
    "ignored: no key",
    "ignored: missing value",
    "ignored: undeclared variable or value",
    "ignored: contradiction",
    "used after a reset: contradiction",
)
"""Why a row was ignored, or used after a reset, by its number."""


@dataclass(slots=True)
class EventChanges:
    """The changes of all rows, table after table; `reasons` tells which rows are ignored, and why."""

    changes: Changes
    reasons: npt.NDArray[np.int8]
    undeclared: UndeclaredValue | None = None


@dataclass(frozen=True, slots=True)
class UndeclaredValue:
    """The first undeclared value: its place, and the declared values."""

    row: int
    response: Response
    field: Field
    value: str
    known: tuple[str, ...]


def read_changes(plan: StatePlan, sources: Sequence[EventSource], probability: str | None) -> EventChanges:
    """The changes that every row makes to the state."""
    statement = plan.statement
    rows = sum(len(source.starts) for source in sources)
    per_stream = [sum(r.stream == stream for r in statement.responses) for stream in statement.streams]
    reader = _Reader(plan, max([1, *per_stream]), rows)
    first = 0
    for source in sources:
        reader.read(source, first)
        if probability is not None:
            reader.chances[first : first + len(source.starts)] = _chances(source, probability)
        first += len(source.starts)
    changes = Changes(reader.responses, reader.who, reader.source, reader.target, reader.numbers, reader.chances)
    return EventChanges(changes, reader.reasons, reader.undeclared)


class _Reader:
    """Fills the arrays of changes, response by response."""

    def __init__(self, plan: StatePlan, depth: int, rows: int) -> None:
        self.plan = plan
        self.responses: Small = np.full((depth, rows), -1, np.int16)
        self.who: Small = np.zeros((depth, rows), np.int16)
        self.source: Small = np.full((depth, rows), -1, np.int16)
        self.target: Small = np.zeros((depth, rows), np.int16)
        reads = any(isinstance(number, Field) for r in plan.statement.responses for number in _numbers(r))
        self.numbers: Floats = np.zeros((3, depth, rows if reads else 0))
        self.chances: Floats = np.ones(rows)
        self.reasons: npt.NDArray[np.int8] = np.zeros(rows, np.int8)
        self.undeclared: UndeclaredValue | None = None

    def read(self, source: EventSource, first: int) -> None:
        """Reads the rows of a table, numbered from `first`."""
        statement = self.plan.statement
        depths: dict[str, int] = {}
        own = slice(first, first + len(source.starts))
        codes = None
        if source.input.type is not None and statement.streams:
            codes = stream_codes(source.input, statement.streams)
        for number, response in enumerate(statement.responses):
            if not source.input.holds(response.stream):
                continue
            depth = depths.get(response.stream, 0)
            depths[response.stream] = depth + 1
            rows = None if codes is None else np.flatnonzero(codes == statement.streams.index(response.stream))
            self._respond(source, response, number, depth, own, rows)
        # An event is one: where a part of it cannot be read, no part of it counts.
        spoilt = self.reasons[own] != FINE
        if spoilt.any():
            self.responses[:, own][:, spoilt] = -1

    def _respond(
        self,
        source: EventSource,
        response: Response,
        number: int,
        depth: int,
        own: slice,
        rows: npt.NDArray[np.int64] | None,
    ) -> None:
        """One response of a table: `rows` are those of its stream (None: all)."""
        statement, change = self.plan.statement, response.change
        place = slice(None) if rows is None else rows

        def put(target: np.ndarray, values: object) -> None:
            target[own][place] = values

        put(self.responses[depth], number)
        named: list[tuple[Small, object, tuple[str, ...]]] = []
        if not isinstance(change.who, Someone):
            named.append((self.who[depth], change.who, statement.variables))
        match change:
            case Move():
                named.append((self.target[depth], change.target, statement.values))
                if change.source is not None:
                    named.append((self.source[depth], change.source, statement.values))
            case Observe():
                named.append((self.target[depth], change.place, statement.values))
            case Wander():
                pass
        for target, term, known in named:
            if isinstance(term, Constant):
                put(target, known.index(term.name))
            elif isinstance(term, Field):
                put(target, self._indices(source, response, term, known, own, rows))
        if self.numbers.shape[2]:
            for target, values in zip(
                self.numbers[:, depth], self._numbers(source, number, response, rows), strict=True
            ):
                put(target, values)

    def _indices(
        self,
        source: EventSource,
        response: Response,
        term: Field,
        known: tuple[str, ...],
        own: slice,
        rows: npt.NDArray[np.int64] | None,
    ) -> Small:
        """The numbers of the names in a column; rows with a missing or unknown name are recorded."""
        column = _text_column(source, response, term, self.plan)
        values = column if rows is None else column.take(pa.array(rows))
        found = pc.index_in(values, value_set=pa.array(known, values.type), skip_nulls=True)
        if found.null_count:
            absent = found.is_null().to_numpy(zero_copy_only=False)
            empty = values.is_null().to_numpy(zero_copy_only=False)
            numbers = np.arange(own.start, own.stop) if rows is None else own.start + rows
            self.reasons[numbers[empty]] = np.maximum(self.reasons[numbers[empty]], NO_FIELD)
            strange = np.flatnonzero(absent & ~empty)
            self.reasons[numbers[strange]] = UNDECLARED
            if len(strange):
                row, value = int(numbers[strange[0]]), str(values[int(strange[0])])
                if self.undeclared is None or row < self.undeclared.row:
                    self.undeclared = UndeclaredValue(row, response, term, value, known)
        indices: Small = found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int16)
        return indices

    def _numbers(
        self, source: EventSource, number: int, response: Response, rows: npt.NDArray[np.int64] | None
    ) -> tuple[object, object, object]:
        """The weight, hit and miss of a response, if events have their own."""
        fixed, change = self.plan.responses, response.change
        weight: object = fixed.weights[number]
        hit, miss = fixed.hits[number], fixed.misses[number]
        if isinstance(change, Move) and isinstance(change.probability, Field):
            weight = self._column_of(source, response, change.probability, rows)
        if isinstance(change, Observe) and isinstance(change.reliability, Field):
            hit = self._column_of(source, response, change.reliability, rows)
            miss = miss_of(change, hit, len(self.plan.statement.values))
        if isinstance(change, Observe) and isinstance(change.false_alarm, Field):
            miss = self._column_of(source, response, change.false_alarm, rows)
        return weight, hit, miss

    def _column_of(
        self, source: EventSource, response: Response, term: Field, rows: npt.NDArray[np.int64] | None
    ) -> Floats:
        _check_field(source, response, term, self.plan)
        return probabilities_of(source, term.name, rows)


def _numbers(response: Response) -> Iterator[Number | None]:
    if isinstance(response.change, Move):
        yield response.change.probability
    if isinstance(response.change, Observe):
        yield from (response.change.reliability, response.change.false_alarm)


def _chances(source: EventSource, name: str) -> Floats:
    if name not in source.input.table.column_names:
        names = source.input.table.column_names
        said = f"the {source.input.label} has no column `{name}` for `probability`; columns: {', '.join(names)}"
        raise SchemaError("no-such-column", said, did_you_mean(name, names))
    return probabilities_of(source, name)


def probabilities_of(source: EventSource, name: str, rows: npt.NDArray[np.int64] | None = None) -> Floats:
    """A column of probabilities, each between 0 and 1."""
    column = source.column(name)
    if kind_of(column.type) not in (Kind.FLOAT, Kind.INTEGER, Kind.NULL):
        label, found = source.input.label, describe(column.type)
        said = f"column `{name}` of the {label} must be numeric to be used as a probability, but is {found}"
        raise SchemaError("probability-value", said, "use numbers between 0 and 1")
    values = column if rows is None else column.take(pa.array(rows))
    numbers: Floats = pc.fill_null(as_float(values).cast(pa.float64()), float("nan")).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers <= 1)))
    if len(wrong):
        place = int(wrong[0]) if rows is None else int(rows[wrong[0]])
        shown = "null or NaN" if np.isnan(numbers[wrong[0]]) else f"{numbers[wrong[0]]:g}"
        said = f"row {place} of the {source.input.label} has {shown} in column `{name}`, expected a probability"
        raise SchemaError("probability-value", said, "use numbers between 0 and 1")
    return numbers


def _text_column(source: EventSource, response: Response, term: Field, plan: StatePlan) -> pa.Array:
    """A column of names; integers are also names."""
    _check_field(source, response, term, plan)
    column = source.column(term.name)
    kind = kind_of(column.type)
    if kind is Kind.TEXT:
        return column
    if kind in (Kind.INTEGER, Kind.NULL):
        return column.cast(pa.string())
    said = f"`{term.variable}.{term.name}` must be text, but is {describe(column.type)}"
    raise QueryError([Problem("state-column", said, term.span, hint="cast the column to text")], plan.source)


def _check_field(source: EventSource, response: Response, term: Field, plan: StatePlan) -> None:
    names = source.input.table.column_names
    if term.name not in names:
        said = f"stream `{response.stream}` has no field `{term.name}`"
        label = f"fields: {', '.join(names)}"
        problem = Problem("no-such-field", said, term.span, label, did_you_mean(term.name, names))
        raise QueryError([problem], plan.source)


def undeclared_error(plan: StatePlan, found: UndeclaredValue, moment: object) -> QueryError:
    """The error for an undeclared value."""
    statement: StateStatement = plan.statement
    kind = "variable" if found.known == statement.variables else "value"
    said = (
        f"unknown {kind} `{found.value}` of state `{statement.name}` in `{found.field.name}` of the "
        f"`{found.response.stream}` event at {moment}"
    )
    label = f"{kind}s: {', '.join(found.known)}"
    guess = did_you_mean(found.value, found.known)
    hint = f"{guess}; " if guess else ""
    hint += 'declare it, or pass `policy="skip"` to ignore such events'
    return QueryError([Problem("state-value", said, found.field.span, label, hint)], plan.source)
