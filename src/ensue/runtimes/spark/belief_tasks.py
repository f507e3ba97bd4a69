"""Track STATEs on DataFrames: shuffle the rows by key and run a `BeliefMachine` in every worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own convention)

from ensue.engine.belief.answers import Ask
from ensue.engine.machine import Step
from ensue.engine.snapshot import restore, snapshot
from ensue.errors import SchemaError
from ensue.nodes.patterns import AnyStatements
from ensue.plan.inputs import InputTable, plain_schema
from ensue.plan.program_plans import Columns
from ensue.plan.states import StateQuestions, questions_of_patterns
from ensue.runtimes.local_beliefs import BeliefMachine, open_states
from ensue.runtimes.moments import ticks_of
from ensue.runtimes.spark import bucket
from ensue.runtimes.spark.batch import ROUTE, as_structs, route
from ensue.runtimes.spark.bucket import Clock, Output, Payload, as_bytes, next_moment, packed, read_state, tables_of
from ensue.runtimes.spark.frames import FrameInput, carried, empty_tables, frame_inputs, spark_schema
from ensue.runtimes.spark.java import require_pyspark
from ensue.runtimes.spark.pushdown import column
from ensue.runtimes.spark.session import advise
from ensue.runtimes.spark.stream import (
    Operator,
    PackTask,
    check_watermark,
    checked_buckets,
    clock_of,
    pack,
    stateful,
    unpacked,
)
from ensue.runtimes.spark.worker import Layout, spare_imports, struct_name

LATE = "late: at or before the watermark"

Answering = tuple[Callable[[Ask], DataFrame], list[bool], Any]


@dataclass(frozen=True, slots=True)
class StateTask(ABC):
    """Updates states with the rows of a partition; subclasses choose what to return."""

    questions: StateQuestions
    layout: Layout

    @property
    def tracking(self) -> BeliefMachine:
        return BeliefMachine.of(self.questions, self.layout.inputs)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            yield from self.answer(self.layout.unpack(pa.Table.from_batches(filled))).to_batches()

    @abstractmethod
    def answer(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the result for the rows of some keys."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result, found by a run without rows."""
        found = self.answer([item.table for item in self.layout.inputs]).schema
        return pa.schema([pa.field(field.name, carried(field.type)) for field in found])


@dataclass(frozen=True, slots=True)
class AskTask(StateTask):
    """Answers one question after all rows, or after the rows up to a time."""

    ask: Ask
    until: int | None = None

    def answer(self, tables: Sequence[pa.Table]) -> pa.Table:
        tracking = self.tracking
        step = tracking.step(tracking.machine.start(), tables, self.until)
        return tracking.known(step.state, self.until)[0].answer(self.ask)


@dataclass(frozen=True, slots=True)
class RowsTask(StateTask):
    """Returns the rows of one input with the answer columns, or the ignored rows."""

    place: int
    aside: bool = False

    def answer(self, tables: Sequence[pa.Table]) -> pa.Table:
        told = self.tracking.run(tables).told
        assert told is not None
        return (told.ignored.tables if self.aside else told.rows)[self.place]


def is_stream(events: Mapping[str, DataFrame] | DataFrame) -> bool:
    """Return True if any of the DataFrames is a stream."""
    return any(frame.isStreaming for frame in (events.values() if isinstance(events, Mapping) else [events]))


def frame_beliefs(
    events: Mapping[str, DataFrame] | DataFrame, questions: StateQuestions, columns: Columns, at: Any
) -> Answering:
    """Return the function that answers questions, which states are exact, and the ignored rows."""
    tracking, inputs, layout = _opened(events, questions, columns)
    if inputs[0].frame.isStreaming:
        said = "`ensue.beliefs.of` is not supported on a streaming DataFrame"
        raise SchemaError("state-stream", said, "use `ensue.beliefs.track`, which returns the belief at every event")
    if hasattr(at, "columns") or hasattr(at, "column_names"):
        said = "`at` must be a single time on Spark, not a table"
        raise SchemaError("state-stream", said, "use `ensue.beliefs.track`, or collect the events of the keys you need")
    until = None if at is None else ticks_of(at, tracking.time_type)

    def answer(ask: Ask) -> DataFrame:
        state = questions.states[ask.state]
        task = AskTask(replace(questions, states=(state,)), layout, ask, until)
        return _run(inputs, task, state.partition_by)

    aside = _per_input(inputs, events, lambda place: _rows(inputs, questions, layout, place, aside=True))
    return answer, [plan.exact for plan in tracking.plans], aside


def track_frames(
    events: Mapping[str, DataFrame] | DataFrame,
    questions: StateQuestions,
    columns: Columns,
    tick: str | None,
    buckets: int | None,
) -> Any:
    """Return every event with its answer columns, as one DataFrame or one per stream.

    On a stream, an event is returned when the watermark reaches it.
    """
    tracking, inputs, layout = _opened(events, questions, columns)
    if inputs[0].frame.isStreaming:
        found, task = _stream(inputs, questions, layout, clock_of(tracking.time_type, tick), buckets)
        return _per_input(inputs, events, lambda place: unpacked(found, [place], task.carried(place)))
    return _per_input(inputs, events, lambda place: _rows(inputs, questions, layout, place))


def answered(
    events: Mapping[str, DataFrame] | DataFrame, statements: AnyStatements, columns: Columns
) -> tuple[Any, AnyStatements]:
    """Add a column for every question that the patterns ask the states, and remove the states from the program.

    States have their own keys, so the events are shuffled by these keys first. Streams are returned unchanged.
    """
    questions = questions_of_patterns(statements, columns.probability)
    if questions is None or is_stream(events):
        return events, statements
    return track_frames(events, questions, columns, None, None), replace(statements, states=())


def _opened(
    events: Mapping[str, DataFrame] | DataFrame, questions: StateQuestions, columns: Columns
) -> tuple[BeliefMachine, tuple[FrameInput, ...], Layout]:
    require_pyspark()
    tracking, _ = open_states(empty_tables(events), questions, columns)
    inputs = frame_inputs(events, tracking.inputs)
    advise(inputs[0].frame.sparkSession, streaming=inputs[0].frame.isStreaming)
    travelling = tuple(
        replace(entry.item, table=plain_schema(entry.item.table.schema).empty_table()) for entry in inputs
    )
    return tracking, inputs, Layout(travelling)


def _per_input(
    inputs: Sequence[FrameInput],
    events: Mapping[str, DataFrame] | DataFrame,
    frame_of: Callable[[int], DataFrame],
) -> Any:
    if not isinstance(events, Mapping):
        return frame_of(0)
    return {entry.item.stream: frame_of(place) for place, entry in enumerate(inputs)}


def _rows(
    inputs: Sequence[FrameInput], questions: StateQuestions, layout: Layout, place: int, aside: bool = False
) -> DataFrame:
    return _run(inputs, RowsTask(questions, layout, place, aside), _common_keys(questions))


def _common_keys(questions: StateQuestions) -> tuple[str, ...]:
    """The columns that are in the key of every state: rows with the same key have the same values there."""
    return questions.shared_keys(questions.states[0].partition_by)


def _run(inputs: Sequence[FrameInput], task: StateTask, keys: Sequence[str]) -> DataFrame:
    """Shuffle the rows of all inputs by key and run a task on them."""
    layout, schema = task.layout, task.schema
    if layout.is_flat:
        names = layout.inputs[0].table.column_names
        chosen = inputs[0].frame.select(*map(column, names))
        by = route(inputs, 0, keys)
        shuffled = chosen.repartition(*by) if by else chosen.repartition(1)
        rows = shuffled.toDF(*(struct_name(place) for place in range(len(names))))
        return rows.mapInArrow(task, spark_schema(schema))
    parts = []
    for place, entry in enumerate(inputs):
        by = route(inputs, place, keys)
        way = (F.xxhash64(*by) if by else F.lit(0).cast("long")).alias(ROUTE)
        parts.append(entry.frame.select(*as_structs(layout.inputs, place), way))
    together = reduce(DataFrame.unionByName, parts)
    shuffled = together.repartition(column(ROUTE)) if keys else together.repartition(1)
    return shuffled.drop(ROUTE).mapInArrow(task, spark_schema(schema))


# --- streams


@dataclass(frozen=True, slots=True)
class TrackTask:
    """One bucket of keys on a stream: updates beliefs with rows and a watermark, and returns the rows with answers.

    Output `n` holds the rows of input `n`, including late rows, which have null answers.
    """

    questions: StateQuestions
    inputs: tuple[InputTable, ...]
    clock: Clock

    @property
    def tracking(self) -> BeliefMachine:
        return BeliefMachine.of(self.questions, self.inputs)

    def carried(self, place: int) -> pa.Schema:
        """Return the columns of an output."""
        found = self.questions.widened(self.inputs[place]).table.schema
        return pa.schema([pa.field(field.name, carried(field.type)) for field in found])

    def step(self, saved: bytes | None, payloads: Iterable[Payload], watermark: int) -> bucket.BucketStep:
        """Process the rows of a micro-batch and its watermark in milliseconds."""
        machine = self.tracking.machine
        state = machine.start() if saved is None else restore(machine, read_state(saved))
        tables = tables_of(self.inputs, payloads)
        reached = self.clock.ticks(watermark)
        until = reached if state.watermark is None else max(reached, state.watermark)
        step = machine.step(state, machine.read(tables), until, late_until=until)
        assert step.told is not None
        outputs: list[Output] = []
        for place in range(len(self.inputs)):
            rows = pa.concat_tables([step.told.rows[place], self._late(step, tables, place)])
            outputs += [Output(place, count, data) for count, data in packed(rows.cast(self.carried(place)))]
        kept = as_bytes(snapshot(machine, step.state, len(self.inputs) > 1), step.state)
        # A machine that only tracks states has no stages.
        moment = next_moment(machine, step.state, until, ())
        return bucket.BucketStep(kept, None if moment is None else self.clock.milliseconds(moment), tuple(outputs))

    def _late(self, step: Step, tables: Sequence[pa.Table], place: int) -> pa.Table:
        """Return the late rows with null answers."""
        late = tables[place].filter(pa.array(step.late[place]))
        for field in self.questions.fields:
            values = pa.nulls(late.num_rows, field.type)
            if field.name == self.questions.reason:
                values = pa.array(np.full(late.num_rows, LATE, object), field.type)
            late = late.append_column(field, values)
        return late


def _stream(
    inputs: Sequence[FrameInput], questions: StateQuestions, layout: Layout, clock: Clock, buckets: int | None
) -> tuple[DataFrame, TrackTask]:
    for entry in inputs:
        check_watermark(entry)
    keys = _common_keys(questions)
    count = checked_buckets(buckets, keys, inputs[0].frame.sparkSession)
    task = TrackTask(questions, layout.inputs, clock)
    parts = []
    for place, entry in enumerate(inputs):
        schema = layout.inputs[place].table.schema
        by = route(inputs, place, keys)
        number = F.pmod(F.xxhash64(*by), F.lit(count)).cast("int") if by else F.lit(0)
        parts.append(pack(entry.frame, number, PackTask(schema, place, count)))
    return stateful(parts, Operator(task, count), inputs[0].frame.schema), task
