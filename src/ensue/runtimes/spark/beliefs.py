"""Probabilistic state on DataFrames: a shuffle by key and the session of this process in every worker."""

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

from ensue.engine.sources import load_sources
from ensue.errors import LimitError, SchemaError
from ensue.filtering.session import Rules, Session, Step, load, save
from ensue.filtering.tables import Ask
from ensue.plan.inputs import InputTable, plain_schema
from ensue.plan.programs import Columns
from ensue.runtimes.beliefs import Opened, known_now, open_states
from ensue.runtimes.moments import ticks_of
from ensue.runtimes.spark import bucket
from ensue.runtimes.spark.batch import ROUTE, as_structs, route
from ensue.runtimes.spark.bucket import LARGEST_STATE, Clock, Output, Payload, packed, read_state
from ensue.runtimes.spark.frames import FrameInput, carried, empty_tables, frame_inputs, spark_schema
from ensue.runtimes.spark.java import require_pyspark
from ensue.runtimes.spark.pushdown import column
from ensue.runtimes.spark.session import advise
from ensue.runtimes.spark.stream import (
    Operator,
    Packing,
    check_watermark,
    checked_buckets,
    clock_of,
    pack,
    stateful,
    unpacked,
)
from ensue.runtimes.spark.worker import Layout, spare_imports, struct_name

CALLERS = 4
"""How many calls up from the notice about settings the user's line is."""

LATE = "came at or before the watermark"

Answering = tuple[Callable[[Ask], DataFrame], list[bool], Any]


@dataclass(frozen=True, slots=True)
class StateTask(ABC):
    """Leads the rows of a partition through states; what of it goes out is the matter of the subclasses."""

    rules: Rules
    layout: Layout
    time_type: pa.DataType
    limit: int

    def session(self) -> Session:
        return Session(self.rules, self.layout.inputs, self.time_type, self.limit, settled=True)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            yield from self.answer(self.layout.unpack(pa.Table.from_batches(filled))).to_batches()

    @abstractmethod
    def answer(self, tables: Sequence[pa.Table]) -> pa.Table:
        """What goes out for the rows of some keys."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that go out, known from a run over no rows."""
        found = self.answer([item.table for item in self.layout.inputs]).schema
        return pa.schema([pa.field(field.name, carried(field.type)) for field in found])


@dataclass(frozen=True, slots=True)
class AskTask(StateTask):
    """Answers one question, after all rows or those up to a moment."""

    ask: Ask
    until: int | None = None

    def answer(self, tables: Sequence[pa.Table]) -> pa.Table:
        session = self.session()
        session.advance(tables, self.until)
        if self.until is not None:
            session.drift_to(self.until)
        return known_now(session)[0].answer(self.ask)


@dataclass(frozen=True, slots=True)
class RowsTask(StateTask):
    """Gives the rows of one input with their columns, or those that took no part."""

    place: int
    aside: bool = False

    def answer(self, tables: Sequence[pa.Table]) -> pa.Table:
        step = self.session().advance(tables, None)
        return (step.set_aside.tables if self.aside else step.rows)[self.place]


def is_stream(events: Mapping[str, DataFrame] | DataFrame) -> bool:
    """Whether some of the frames are streams."""
    return any(frame.isStreaming for frame in (events.values() if isinstance(events, Mapping) else [events]))


def frame_beliefs(
    events: Mapping[str, DataFrame] | DataFrame, rules: Rules, columns: Columns, at: Any, limit: int
) -> Answering:
    """What answers questions by DataFrames, which states are exact, and the rows that took no part."""
    opened, inputs, layout = _opened(events, rules, columns, limit)
    if inputs[0].frame.isStreaming:
        said = "the DataFrame is a stream, of which there is no state after all events"
        raise SchemaError("state-stream", said, "`ensue.track` gives what is believed at every event of a stream")
    if hasattr(at, "columns") or hasattr(at, "column_names"):
        said = "on Spark `at` is one moment, not a table of them"
        raise SchemaError("state-stream", said, "use `ensue.track`, or collect the events of the keys that matter")
    session = opened.session
    until = None if at is None else ticks_of(at, session.time_type)

    def answer(ask: Ask) -> DataFrame:
        state = rules.statements.states[ask.state]
        alone = replace(rules, statements=replace(rules.statements, states=(state,)))
        task = AskTask(alone, layout, session.time_type, limit, ask, until)
        return _run(inputs, task, state.partition_by)

    aside = _per_input(inputs, events, lambda place: _rows(inputs, rules, layout, session, limit, place, aside=True))
    return answer, [plan.exact for plan in session.plans], aside


def track_frames(
    events: Mapping[str, DataFrame] | DataFrame,
    rules: Rules,
    columns: Columns,
    limit: int,
    tick: str | None,
    buckets: int | None,
) -> Any:
    """Every event with its columns, as a DataFrame or one per stream; of a stream, when the watermark reaches it."""
    opened, inputs, layout = _opened(events, rules, columns, limit)
    session = opened.session
    if inputs[0].frame.isStreaming:
        found, task = _stream(inputs, rules, layout, session, limit, tick, buckets)
        return _per_input(inputs, events, lambda place: unpacked(found, [place], task.carried(place)))
    return _per_input(inputs, events, lambda place: _rows(inputs, rules, layout, session, limit, place))


def _opened(
    events: Mapping[str, DataFrame] | DataFrame, rules: Rules, columns: Columns, limit: int
) -> tuple[Opened, tuple[FrameInput, ...], Layout]:
    require_pyspark()
    opened = open_states(empty_tables(events), rules, columns, limit)
    inputs = frame_inputs(events, opened.session.inputs)
    advise(inputs[0].frame.sparkSession, streaming=inputs[0].frame.isStreaming, stacklevel=CALLERS)
    travelling = tuple(
        replace(entry.item, table=plain_schema(entry.item.table.schema).empty_table()) for entry in inputs
    )
    return opened, inputs, Layout(travelling)


def _per_input(
    inputs: Sequence[FrameInput],
    events: Mapping[str, DataFrame] | DataFrame,
    frame_of: Callable[[int], DataFrame],
) -> Any:
    if not isinstance(events, Mapping):
        return frame_of(0)
    return {entry.item.stream: frame_of(place) for place, entry in enumerate(inputs)}


def _rows(
    inputs: Sequence[FrameInput],
    rules: Rules,
    layout: Layout,
    session: Session,
    limit: int,
    place: int,
    aside: bool = False,
) -> DataFrame:
    return _run(inputs, RowsTask(rules, layout, session.time_type, limit, place, aside), common_keys(rules))


def common_keys(rules: Rules) -> tuple[str, ...]:
    """The columns that are part of every state's key: rows that agree on one key agree on them."""
    first, *others = [state.partition_by for state in rules.statements.states]
    return tuple(name for name in first if all(name in other for other in others))


def _run(inputs: Sequence[FrameInput], task: StateTask, keys: Sequence[str]) -> DataFrame:
    """The rows of all inputs, those of one key together, through a task."""
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


# Streams


@dataclass(frozen=True, slots=True)
class TrackTask:
    """One bucket of keys on a stream: rows and a watermark in, rows with their columns out, beliefs between.

    Output `n` are the rows of input `n`; those that came too late are among them, without values.
    """

    rules: Rules
    inputs: tuple[InputTable, ...]
    time_type: pa.DataType
    limit: int
    clock: Clock

    def session(self, saved: bytes | None) -> Session:
        """The session of a bucket as it was saved, or a new one."""
        session = Session(self.rules, self.inputs, self.time_type, self.limit, settled=True)
        if saved is not None:
            load(session, read_state(saved))
        return session

    def carried(self, place: int) -> pa.Schema:
        """The columns of an output."""
        found = self.session(None).advance([item.table for item in self.inputs], None).rows[place].schema
        return pa.schema([pa.field(field.name, carried(field.type)) for field in found])

    def step(self, saved: bytes | None, payloads: Iterable[Payload], watermark: int) -> bucket.Step:
        """Takes the rows of a micro-batch and the watermark in milliseconds that holds for it."""
        session = self.session(saved)
        tables = self._tables(payloads)
        reached = self.clock.ticks(watermark)
        until = reached if session.watermark is None else max(reached, session.watermark)
        step = session.advance(tables, until, late_from=until)
        outputs: list[Output] = []
        for place in range(len(self.inputs)):
            rows = pa.concat_tables([step.rows[place], self._late(step, tables, place)])
            outputs += [Output(place, count, data) for count, data in packed(rows.cast(self.carried(place)))]
        return bucket.Step(self._saved(session), self._wake(session), tuple(outputs))

    def _tables(self, payloads: Iterable[Payload]) -> list[pa.Table]:
        parts: list[list[pa.RecordBatch]] = [[] for _ in self.inputs]
        for number, data in payloads:
            schema = self.inputs[number].table.schema
            parts[number].append(pa.ipc.read_record_batch(pa.py_buffer(data), schema))
        return [pa.Table.from_batches(own, item.table.schema) for own, item in zip(parts, self.inputs, strict=True)]

    def _late(self, step: Step, tables: Sequence[pa.Table], place: int) -> pa.Table:
        """The rows that came too late, without values."""
        late = tables[place].filter(pa.array(step.late[place]))
        schema = step.rows[place].schema
        for name in self.rules.names:
            kind = schema.field(name).type
            values = pa.nulls(late.num_rows, kind)
            if name == self.rules.reason:
                values = pa.array(np.full(late.num_rows, LATE, object), kind)
            late = late.append_column(schema.field(name), values)
        return late

    def _saved(self, session: Session) -> bytes:
        sink = pa.BufferOutputStream()
        table = save(session)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue()
        if data.size > LARGEST_STATE:
            said = f"one bucket of keys holds {data.size} bytes of beliefs, more than {LARGEST_STATE}"
            raise LimitError("state-size", said, "use more buckets (`buckets=`), or a smaller `limit`")
        return bytes(data.to_pybytes())

    def _wake(self, session: Session) -> int | None:
        """The millisecond at which the first waiting row is due."""
        waiting = [replace(item, table=table) for item, table in zip(self.inputs, session.waiting, strict=True)]
        sources, _ = load_sources(waiting, self.time_type)
        first = [int(source.starts.min()) for source in sources if len(source.starts)]
        return self.clock.milliseconds(min(first)) if first else None


def _stream(
    inputs: Sequence[FrameInput],
    rules: Rules,
    layout: Layout,
    session: Session,
    limit: int,
    tick: str | None,
    buckets: int | None,
) -> tuple[DataFrame, TrackTask]:
    for entry in inputs:
        check_watermark(entry)
    keys = common_keys(rules)
    count = checked_buckets(buckets, keys, inputs[0].frame.sparkSession)
    task = TrackTask(rules, layout.inputs, session.time_type, limit, clock_of(session.time_type, tick))
    parts = []
    for place, entry in enumerate(inputs):
        schema = layout.inputs[place].table.schema
        by = route(inputs, place, keys)
        number = F.pmod(F.xxhash64(*by), F.lit(count)).cast("int") if by else F.lit(0)
        parts.append(pack(entry.frame, number, Packing(schema, place, count)))
    return stateful(parts, Operator(task, count), inputs[0].frame.schema), task
