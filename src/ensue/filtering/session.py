"""States over events that come in batches: what is held, what still waits for the watermark, and how it is saved."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.nodes import Statements
from ensue.algebra.states import Measure
from ensue.engine.sources import EventSource, Mask, load_sources, one_chunk
from ensue.errors import StateError
from ensue.filtering.answers import Answers, type_of
from ensue.filtering.following import Followed, Held, Question, follow, nothing_held
from ensue.filtering.model import StatePlan, plan_state
from ensue.filtering.reading import FINE, REASONS
from ensue.kernels.filtering import Beliefs
from ensue.lang.render import render_statements
from ensue.plan.inputs import InputTable

REASON = "ensue_reason"
"""The column that says why a row took no part."""

METADATA = b"ensue.beliefs"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the tracked rows: its name, its measure, and the number of the state that answers it."""

    name: str
    measure: Measure
    state: int


@dataclass(frozen=True, slots=True)
class Rules:
    """How events are led through states: which columns are wanted, what becomes of contradictions.

    `reason` names a column that says of each row why it took no part.
    """

    statements: Statements
    columns: tuple[Column, ...] = ()
    before: bool = False
    policy: str = "error"
    probability: str | None = None
    reason: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that are added to every row."""
        return (*(column.name for column in self.columns), *((self.reason,) if self.reason is not None else ()))


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a row took no part in a state, in words."""

    state: str
    words: str

    def __str__(self) -> str:
        return f"{self.state}: rows {self.words}"


@dataclass(frozen=True, slots=True)
class SetAside:
    """The rows that took no part in a state, once for each such state: a table per input, and how many by reason."""

    tables: tuple[pa.Table, ...]
    counts: Mapping[Reason, int]


@dataclass(frozen=True, slots=True)
class Step:
    """What a step gave: per input the rows with their columns, and those that took no part.

    `late` says of the rows of the batch which came at or before the watermark.
    """

    rows: tuple[pa.Table, ...]
    set_aside: SetAside
    late: tuple[Mask, ...]


@dataclass(slots=True)
class Session:
    """States of a program over some inputs, whose tables hold no rows but say what columns there are.

    With `settled`, events of the same time come in the order of the values of their columns, whatever way they came.
    """

    rules: Rules
    inputs: tuple[InputTable, ...]
    time_type: pa.DataType
    limit: int
    settled: bool = False
    plans: tuple[StatePlan, ...] = field(init=False)
    held: list[Held] = field(init=False)
    waiting: list[pa.Table] = field(init=False)
    watermark: int | None = None

    def __post_init__(self) -> None:
        statements = self.rules.statements
        self.plans = tuple(
            plan_state(state, statements.source, self.time_type, self.limit) for state in statements.states
        )
        self.held = [nothing_held(plan) for plan in self.plans]
        self.waiting = [item.table.schema.empty_table() for item in self.inputs]

    def advance(self, tables: Sequence[pa.Table], until: int | None, late_from: int | None = None) -> Step:
        """Takes the rows of a batch and leads those up to `until` through the states (None: all of them).

        Rows at or before the watermark are late; `late_from` is another one for this batch alone.
        """
        limit = self.watermark if late_from is None else late_from
        fresh, _ = load_sources(self._inputs(tables), self.time_type)
        late = tuple(_at_or_before(source, limit) for source in fresh)
        joined = [
            pa.concat_tables([waiting, table.filter(pa.array(~mask)) if mask.any() else table])
            for waiting, table, mask in zip(self.waiting, tables, late, strict=True)
        ]
        sources, _ = load_sources(self._inputs(joined), self.time_type)
        due = [_due(source, until) for source in sources]
        now = [table if mask.all() else table.filter(pa.array(mask)) for table, mask in zip(joined, due, strict=True)]
        given, aside, held = self._lead([in_settled_order(table) for table in now] if self.settled else now)
        self.held = held
        self.waiting = [
            table.slice(0, 0) if mask.all() else table.filter(pa.array(~mask))
            for table, mask in zip(joined, due, strict=True)
        ]
        if until is not None:
            self.watermark = until
        return Step(tuple(given), aside, late)

    def answers(self, number: int) -> tuple[pa.Table, int, Answers, npt.NDArray[np.float64]]:
        """The keys of a state, how many there are, their beliefs, and what was lost by approximation."""
        held = self.held[number]
        return held.keys, held.count, Answers(self.plans[number], held.beliefs.chances), held.beliefs.lost

    def _inputs(self, tables: Sequence[pa.Table]) -> list[InputTable]:
        return [replace(item, table=table) for item, table in zip(self.inputs, tables, strict=True)]

    def _lead(self, tables: Sequence[pa.Table]) -> tuple[list[pa.Table], SetAside, list[Held]]:
        """Leads rows through all states. What is held is copied first, so that an error leaves it as it was."""
        rules = self.rules
        sources, _ = load_sources(self._inputs(tables), self.time_type)
        columns: dict[str, pa.Array] = {}
        followed: list[Followed] = []
        held = [_copied(own) for own in self.held]
        for number, (plan, own) in enumerate(zip(self.plans, held, strict=True)):
            asked = [column for column in rules.columns if column.state == number]
            question = Question(tuple(column.measure for column in asked), rules.before)
            found = follow(plan, own, sources, rules.policy, rules.probability, question)
            columns |= {column.name: values for column, values in zip(asked, found.columns, strict=True)}
            followed.append(found)
        given, first = [], 0
        names = [plan.statement.name for plan in self.plans]
        for table in tables:
            rows = slice(first, first + table.num_rows)
            first = rows.stop
            reasons = [found.reasons[rows] for found in followed]
            for column in rules.columns:
                values = columns[column.name].slice(rows.start, rows.stop - rows.start)
                table = table.append_column(pa.field(column.name, type_of(column.measure)), values)
            given.append(table if rules.reason is None else table.append_column(rules.reason, _said(reasons, names)))
        return given, set_aside(tables, [found.reasons for found in followed], names), held

    def drift_to(self, moment: int) -> None:
        """Time passes up to a moment without an event."""
        nothing, _ = load_sources(self.inputs, self.time_type)
        for plan, held in zip(self.plans, self.held, strict=True):
            follow(plan, held, nothing, question=Question(until=moment))


def _said(reasons: Sequence[npt.NDArray[np.int8]], names: Sequence[str]) -> pa.Array:
    """Why each row took no part, in words: in the first state that says so; null where none does."""
    code = np.zeros(len(reasons[0]), np.int32)
    for number, own in enumerate(reasons):
        code = np.where((code == FINE) & (own != FINE), own + number * len(REASONS), code)
    words = pa.array([str(Reason(name, words)) for name in names for words in REASONS])
    return words.take(pa.array(code.astype(np.int32), mask=code == FINE))


def set_aside(tables: Sequence[pa.Table], reasons: Sequence[npt.NDArray[np.int8]], names: Sequence[str]) -> SetAside:
    """The rows that took no part; `reasons` are those of each state for the rows of all tables."""
    found, counts, first = [], Counter[Reason](), 0
    for table in tables:
        parts = []
        for own, name in zip(reasons, names, strict=True):
            codes = own[first : first + table.num_rows]
            rows = np.flatnonzero(codes != FINE)
            said = [Reason(name, REASONS[code]) for code in codes[rows].tolist()]
            counts.update(said)
            parts.append(table.take(pa.array(rows)).append_column(REASON, pa.array(map(str, said), pa.string())))
        found.append(pa.concat_tables(parts))
        first += table.num_rows
    return SetAside(tuple(found), counts)


def in_settled_order(table: pa.Table) -> pa.Table:
    """The rows in an order that does not depend on how they came."""
    plain = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    return table.sort_by([(name, "ascending") for name in plain]) if table.num_rows else table


def _copied(held: Held) -> Held:
    beliefs = held.beliefs
    copied = Beliefs(beliefs.chances.copy(), beliefs.moments.copy(), beliefs.lost.copy())
    return Held(held.keys, held.count, copied)


def _at_or_before(source: EventSource, limit: int | None) -> Mask:
    """Which rows are late; those without a time are neither late nor on time."""
    if limit is None:
        return np.zeros(len(source.starts), bool)
    late: Mask = source.starts <= limit
    return late if source.valid is None else late & source.valid


def _due(source: EventSource, until: int | None) -> Mask:
    """Which rows are led through now; those without a time wait for nothing."""
    if until is None:
        return np.ones(len(source.starts), bool)
    due: Mask = source.starts <= until
    return due if source.valid is None else due | ~source.valid


# Saving


def save(session: Session, more: dict[str, Any] | None = None) -> pa.Table:
    """The session as one Arrow table of one row: beliefs by key, waiting rows, and what the session is about."""
    columns: dict[str, pa.Array] = {}
    for number, held in enumerate(session.held):
        beliefs = held.beliefs
        flat = pa.FixedSizeListArray.from_arrays(pa.array(beliefs.chances.ravel()), session.plans[number].size)
        known = {"chances": flat, "moment": pa.array(beliefs.moments), "lost": pa.array(beliefs.lost)}
        columns[f"beliefs_{number}"] = _as_list(pa.table(known))
        if session.plans[number].statement.partition_by:
            columns[f"keys_{number}"] = _as_list(held.keys)
    for number, table in enumerate(session.waiting):
        columns[f"waiting_{number}"] = _as_list(table)
    header = {
        "version": VERSION,
        "program": program_text(session.rules.statements),
        "watermark": session.watermark,
        "limit": session.limit,
        "streams": [item.stream for item in session.inputs],
        **(more or {}),
    }
    return pa.table(columns).replace_schema_metadata({METADATA: json.dumps(header).encode()})


def program_text(statements: Statements) -> str:
    """The states of a program, by which what is saved is known."""
    return render_statements(Statements((), states=statements.states))


def read_header(saved: Any) -> dict[str, Any]:
    """What a saved session says about itself."""
    header: Any = None
    if isinstance(saved, pa.Table):
        try:
            header = json.loads((saved.schema.metadata or {}).get(METADATA, b"null"))
        except ValueError:
            header = None
    if not isinstance(header, dict) or "version" not in header or saved.num_rows != 1:
        raise StateError("not-a-state", "this is not a state that Ensue has saved", "pass what `snapshot()` gave")
    if header["version"] != VERSION:
        said = f"the saved state has version {header['version']}; this release reads version {VERSION}"
        raise StateError("state-version", said, "restore it with the release that saved it, or start anew")
    return header


def waiting_tables(saved: pa.Table) -> dict[str | None, pa.Table]:
    """The events that waited when a session was saved, by stream (None: the one table of all streams)."""
    streams = read_header(saved)["streams"]
    return {stream: _as_table(saved, f"waiting_{number}") for number, stream in enumerate(streams)}


def load(session: Session, saved: pa.Table) -> None:
    """Puts what was saved into a session of the same states over tables of the same columns."""
    header = read_header(saved)
    if header["program"] != program_text(session.rules.statements):
        raise StateError(
            "state-query", "the saved state belongs to other STATEs", f"it was saved by:\n{header['program']}"
        )
    if header["limit"] != session.limit:
        raise StateError("state-shape", f"the state was saved with limit {header['limit']}, not {session.limit}")
    for number, plan in enumerate(session.plans):
        known = _as_table(saved, f"beliefs_{number}")
        chances = one_chunk(known.column("chances")).flatten().to_numpy(zero_copy_only=False)
        keyed = bool(plan.statement.partition_by)
        session.held[number] = Held(
            _as_table(saved, f"keys_{number}") if keyed else pa.table({}),
            known.num_rows,
            Beliefs(
                chances.reshape(known.num_rows, plan.size).copy(),
                known.column("moment").to_numpy().copy(),
                known.column("lost").to_numpy().copy(),
            ),
        )
    for number, item in enumerate(session.inputs):
        session.waiting[number] = (
            _as_table(saved, f"waiting_{number}").select(item.table.column_names).cast(item.table.schema)
        )
    session.watermark = header["watermark"]


def _as_list(table: pa.Table) -> pa.Array:
    """A table as the one value of a column: the list of its rows."""
    rows = pa.concat_arrays([*table.to_struct_array().chunks, pa.array([], pa.struct(list(table.schema)))])
    return pa.LargeListArray.from_arrays(pa.array([0, len(rows)], pa.int64()), rows)


def _as_table(saved: pa.Table, name: str) -> pa.Table:
    if name not in saved.column_names:
        raise StateError("state-shape", f"the saved state has no `{name}`", "give the same tables and states as before")
    return pa.Table.from_struct_array(one_chunk(saved.column(name)).flatten())
