"""The part of a machine that follows STATEs: events change beliefs in time order, before patterns are evaluated, and
get a column for each question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.belief.answers import Answers, KnownBeliefs
from ensue.engine.belief.changes import FINE, REASONS
from ensue.engine.belief.model import StatePlan, plan_state
from ensue.engine.belief.updates import HeldBeliefs, Moments, Question, UpdateResult, follow, nothing_held
from ensue.engine.sources import EventSource, Mask, load_sources
from ensue.engine.stage import Clock, conformed
from ensue.kernels.beliefs import Beliefs
from ensue.nodes.uncertainty import NO_HIERARCHY
from ensue.plan.inputs import InputTable
from ensue.plan.states import StateQuestions

REASON = "ensue_reason"
"""The column with the reason why a row was ignored."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a state ignored a row, as text."""

    state: str
    words: str

    def __str__(self) -> str:
        return f"{self.words} (state `{self.state}`)"


@dataclass(frozen=True, slots=True)
class IgnoredRows:
    """The rows that a state ignored, once for each such state: a table per input, and the counts by reason."""

    tables: tuple[pa.Table, ...]
    counts: Mapping[Reason, int]


@dataclass(frozen=True, slots=True)
class BeliefState:
    """What is kept between steps: beliefs by key, one for each state, and per input the rows after the watermark."""

    held: tuple[HeldBeliefs, ...]
    waiting: tuple[pa.Table, ...]

    @property
    def holds_anything(self) -> bool:
        return any(own.count for own in self.held) or self.waiting_rows > 0

    @property
    def waiting_rows(self) -> int:
        return sum(int(table.num_rows) for table in self.waiting)

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        held = sum(own.keys.nbytes + sum(part.nbytes for part in own.beliefs) for own in self.held)
        return int(held) + sum(int(table.nbytes) for table in self.waiting)


@dataclass(frozen=True, slots=True)
class BeliefAnswers:
    """The result of a step: per input the processed rows with their columns, and the ignored ones.

    `late` marks the new rows at or before the watermark.
    """

    rows: tuple[pa.Table, ...]
    ignored: IgnoredRows
    late: tuple[Mask, ...]
    state: BeliefState


@dataclass(frozen=True, slots=True)
class StateStage:
    """The states of a program over some inputs, whose tables have no rows, only columns."""

    questions: StateQuestions
    inputs: tuple[InputTable, ...]
    time_type: pa.DataType
    plans: tuple[StatePlan, ...]

    @classmethod
    def of(cls, questions: StateQuestions, inputs: Sequence[InputTable], time_type: pa.DataType) -> StateStage:
        """A state uses the start of an event and the probability column of the state; the uncertainty and the hierarchy
        of a row matter only to patterns."""
        plain = tuple(
            replace(item, end=None, probability=None, alternatives=(), hierarchy=NO_HIERARCHY, elsewhere=frozenset())
            for item in inputs
        )
        plans = (plan_state(state, questions.source, time_type, questions.limit) for state in questions.states)
        return cls(questions, plain, time_type, tuple(plans))

    def start(self) -> BeliefState:
        """The beliefs before any event."""
        return BeliefState(tuple(map(nothing_held, self.plans)), tuple(item.table for item in self.inputs))

    def taken_over(self, state: BeliefState) -> BeliefState:
        """The state of a stage for tables with fewer known columns."""
        tables = zip(self.inputs, state.waiting, strict=True)
        return replace(state, waiting=tuple(table.cast(item.table.schema) for item, table in tables))

    def step(self, state: BeliefState, tables: Sequence[pa.Table], clock: Clock) -> BeliefAnswers:
        """Takes new rows and processes those up to `clock.until`, or all in the last step."""
        late = tuple(_at_or_before(source, clock.reached) for source in self._loaded(tables))
        joined = [
            _behind(waiting, table.filter(pa.array(~mask)) if mask.any() else table)
            for waiting, table, mask in zip(state.waiting, tables, late, strict=True)
        ]
        due = [_due(source, None if clock.last else clock.until) for source in self._loaded(joined)]
        now = [table if mask.all() else table.filter(pa.array(mask)) for table, mask in zip(joined, due, strict=True)]
        # What is held is copied first, so that an error leaves it as it was.
        held = tuple(map(_copied, state.held))
        rows, aside = self._followed(held, now)
        waiting = tuple(
            item.table if mask.all() else _shaped(table.filter(pa.array(~mask)), item)
            for item, table, mask in zip(self.inputs, joined, due, strict=True)
        )
        return BeliefAnswers(rows, aside, late, BeliefState(held, waiting))

    def _followed(
        self, held: Sequence[HeldBeliefs], tables: Sequence[pa.Table]
    ) -> tuple[tuple[pa.Table, ...], IgnoredRows]:
        """Applies rows to all states, and returns them with their columns."""
        asked, sources = self.questions, self._loaded(tables)
        columns: dict[str, pa.Array] = {}
        followed: list[UpdateResult] = []
        for number, (plan, own) in enumerate(zip(self.plans, held, strict=True)):
            of_state = [column for column in asked.columns if column.state == number]
            question = Question(tuple(column.measure for column in of_state), asked.before)
            found = follow(plan, own, sources, asked.policy, asked.probability, question)
            columns |= {column.name: values for column, values in zip(of_state, found.columns, strict=True)}
            followed.append(found)
        given, first = [], 0
        for table in tables:
            rows = slice(first, first + table.num_rows)
            first = rows.stop
            for column in asked.columns:
                values = columns[column.name].slice(rows.start, rows.stop - rows.start)
                table = table.append_column(pa.field(column.name, column.type), values)
            if asked.reason is not None:
                table = table.append_column(asked.reason, self._said([found.reasons[rows] for found in followed]))
            given.append(table)
        return tuple(given), self._set_aside(tables, [found.reasons for found in followed])

    def waiting(self, state: BeliefState) -> tuple[EventSource, ...]:
        """The rows after the watermark."""
        return self._loaded(state.waiting)

    def known(self, state: BeliefState, until: int | None = None) -> list[KnownBeliefs]:
        """The beliefs of each state after all processed events, or at a later moment."""
        found, nothing = [], self._loaded([item.table for item in self.inputs])
        for plan, held in zip(self.plans, map(_copied, state.held), strict=True):
            if until is not None:
                follow(plan, held, nothing, question=Question(until=until))
            found.append(KnownBeliefs(held.keys, held.count, Answers(plan, held.beliefs.chances), held.beliefs.lost))
        return found

    def known_at(self, tables: Sequence[pa.Table], moments: pa.Table, times: npt.NDArray[np.int64]) -> MomentBeliefs:
        """The beliefs of each state at some moments, each a key and a time, in past events."""
        asked, sources = self.questions, self._loaded(tables)
        question, found, reasons = Question(moments=Moments(moments, times)), [], []
        for plan in self.plans:
            followed = follow(plan, nothing_held(plan), sources, asked.policy, asked.probability, question)
            reasons.append(followed.reasons)
            names = [*plan.statement.partition_by, self.inputs[0].time]
            answers = Answers(plan, followed.chances)
            found.append(KnownBeliefs(moments.select(names), moments.num_rows, answers, followed.lost))
        return MomentBeliefs(found, self._set_aside(tables, reasons))

    def _loaded(self, tables: Sequence[pa.Table]) -> tuple[EventSource, ...]:
        inputs = [item.of(table) for item, table in zip(self.inputs, tables, strict=True)]
        return load_sources(inputs, self.time_type)[0]

    def _said(self, reasons: Sequence[npt.NDArray[np.int8]]) -> pa.Array:
        """The reason why each row was ignored, from the first state that ignored it; null if none did."""
        code = np.zeros(len(reasons[0]), np.int32)
        for number, own in enumerate(reasons):
            code = np.where((code == FINE) & (own != FINE), own + number * len(REASONS), code)
        words = pa.array([str(Reason(plan.statement.name, words)) for plan in self.plans for words in REASONS])
        return words.take(pa.array(code.astype(np.int32), mask=code == FINE))

    def _set_aside(self, tables: Sequence[pa.Table], reasons: Sequence[npt.NDArray[np.int8]]) -> IgnoredRows:
        """The ignored rows; `reasons` are those of each state for the rows of all tables."""
        found, counts, first = [], Counter[Reason](), 0
        for table in tables:
            parts = []
            for own, plan in zip(reasons, self.plans, strict=True):
                codes = own[first : first + table.num_rows]
                rows = np.flatnonzero(codes != FINE)
                words = [Reason(plan.statement.name, said) for said in REASONS]
                numbers = np.bincount(codes[rows], minlength=len(REASONS)).tolist()
                counts.update({reason: many for reason, many in zip(words, numbers, strict=True) if many})
                said = pa.array(map(str, words), pa.string()).take(pa.array(codes[rows]))
                parts.append(table.take(pa.array(rows)).append_column(REASON, said))
            found.append(pa.concat_tables(parts))
            first += table.num_rows
        return IgnoredRows(tuple(found), counts)


@dataclass(frozen=True, slots=True)
class MomentBeliefs:
    """The beliefs of each state at some moments, and the ignored rows."""

    known: list[KnownBeliefs]
    ignored: IgnoredRows


def _behind(waiting: pa.Table, table: pa.Table) -> pa.Table:
    """Appends the new rows to the waiting ones."""
    if not waiting.num_rows:
        return table
    return pa.concat_tables([waiting, conformed(table.select(waiting.column_names), waiting.schema)])


def _shaped(table: pa.Table, item: InputTable) -> pa.Table:
    return conformed(table.select(item.table.column_names), item.table.schema).combine_chunks()


def _copied(held: HeldBeliefs) -> HeldBeliefs:
    beliefs = held.beliefs
    copied = Beliefs(beliefs.chances.copy(), beliefs.moments.copy(), beliefs.lost.copy())
    return HeldBeliefs(held.keys, held.count, copied)


def _at_or_before(source: EventSource, limit: int | None) -> Mask:
    """The late rows; rows without a time are not late."""
    if limit is None:
        return np.zeros(len(source.starts), bool)
    late: Mask = source.starts <= limit
    return late if source.valid is None else late & source.valid


def _due(source: EventSource, until: int | None) -> Mask:
    """The rows to process now; rows without a time do not wait."""
    if until is None:
        return np.ones(len(source.starts), bool)
    due: Mask = source.starts <= until
    return due if source.valid is None else due | ~source.valid
