"""Detection on streaming DataFrames: pack rows per bucket of keys, run one stateful operator, unpack the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StructType, TimestampType

from ensue.engine.stage import needed_columns
from ensue.errors import SchemaError, warn
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.plan.derivations import Derivation, all_plans
from ensue.plan.inputs import plain_schema
from ensue.plan.outputs import OutputSchema
from ensue.plan.plans import Options, QueryPlan
from ensue.plan.retention import reach_of_streams
from ensue.plan.states import StateQuestions
from ensue.python.values import length_of
from ensue.runtimes.spark.batch import join_hashes, result_schema, route
from ensue.runtimes.spark.bucket import CARRIED, BucketStep, BucketTask, Clock, Output, Payload, packed
from ensue.runtimes.spark.frames import FrameInput, spark_schema
from ensue.runtimes.spark.joined_rows import JoinedRows, joined_rows
from ensue.runtimes.spark.pushdown import column, needed_rows
from ensue.runtimes.spark.selected_keys import are_computed, copied, with_members
from ensue.runtimes.spark.worker import ShippedValue, spare_imports, struct_name

DELAY = "spark.watermarkDelayMs"
"""The metadata key with which Spark marks the column that has a watermark."""

BUCKET = "ensue:bucket"
FEWEST_BUCKETS = 8
"""The default number of buckets is this or the number of shuffle partitions, whichever is larger.

A call costs Spark about 20 ms whatever the bucket holds, so a micro-batch should not make more calls than necessary.
"""

LARGEST_PACK = 1_000_000
"""Pack rows as soon as this many have arrived."""

MOST_TIES = 64
"""With more possible ties than this, the progress has only their sum."""

NEVER_LATE = 9_200_000_000
"""A time in seconds since 1970 that no watermark reaches and that pandas can hold (the year 2261)."""


PACKED = "bucket int, source int, payload binary"
FOUND = "output int, rows long, payload binary"
STATE = "buckets int, events binary"


@dataclass(frozen=True, slots=True)
class PackTask:
    """Packs the rows of an input into one Arrow record batch per bucket. The last column is the bucket.

    The columns before it are those of the schema, under any names.
    """

    schema: pa.Schema
    source: int
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= LARGEST_PACK:
                yield self._pack(pa.Table.from_batches(waiting))
                waiting, rows = [], 0
        if rows:
            yield self._pack(pa.Table.from_batches(waiting))

    def _pack(self, table: pa.Table) -> pa.RecordBatch:
        numbers = table.column(BUCKET).to_numpy().astype(np.int16)
        order = np.argsort(numbers, kind="stable")
        limits = np.searchsorted(numbers[order], np.arange(self.buckets + 1))
        named = table.drop_columns(BUCKET).rename_columns(self.schema.names)
        rows = named.cast(self.schema).take(pa.array(order)).combine_chunks()
        filled = [bucket for bucket in range(self.buckets) if limits[bucket] < limits[bucket + 1]]
        parts = [
            (bucket, data)
            for bucket in filled
            for _, data in packed(rows.slice(limits[bucket], limits[bucket + 1] - limits[bucket]))
        ]
        return pa.RecordBatch.from_arrays(
            [
                pa.array([bucket for bucket, _ in parts], pa.int32()),
                pa.array(np.full(len(parts), self.source, np.int32)),
                pa.array([data for _, data in parts], pa.binary()),
            ],
            names=["bucket", "source", "payload"],
        )


class StepTask(Protocol):
    """Processes the rows of a bucket with its saved state and the watermark; returns the new state and the results."""

    def step(self, saved: bytes | None, payloads: Iterable[Payload], watermark: int) -> BucketStep: ...


def pack(rows: DataFrame, bucket: Column, packing: PackTask) -> DataFrame:
    """Pack the rows of an input by bucket.

    `mapInArrow` selects columns by names in which dots and backticks have a meaning, so such columns are renamed.
    Only these, because Spark's optimizer repeats every condition for each alias, and programs have large conditions.
    """
    chosen = [
        column(name).alias(struct_name(place)) if {*".`"} & {*name} else column(name)
        for place, name in enumerate(packing.schema.names)
    ]
    return rows.select(*chosen, bucket.alias(BUCKET)).mapInArrow(packing, PACKED)


@dataclass(frozen=True, slots=True)
class Operator:
    """The function that Spark calls for each bucket that has rows or whose timer fires."""

    task: StepTask
    buckets: int

    def __call__(self, key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        payloads = [
            (int(source), bytes(payload))
            for frame in frames
            for source, payload in zip(frame["source"], frame["payload"], strict=True)
        ]
        saved = self._saved(state)
        watermark = state.getCurrentWatermarkMs()
        step = self.task.step(saved, payloads, watermark)
        if step.state is None:
            if state.exists:
                state.remove()
        else:
            state.update((self.buckets, step.state))
            if step.wake is not None:
                # Spark's timer fires when the watermark is beyond the time that was set.
                state.setTimeoutTimestamp(max(step.wake - 1, watermark, 1))
        if step.outputs:
            yield _as_frame(step.outputs)

    def _saved(self, state: GroupState) -> bytes | None:
        if not state.exists:
            return None
        buckets, events = state.get
        if buckets != self.buckets:
            raise SchemaError(
                "bucket-count",
                f"the checkpoint has {buckets} buckets, but `buckets` is {self.buckets}",
                f"pass `buckets={buckets}`, or use a new checkpoint",
            )
        return bytes(events)


@dataclass(frozen=True, slots=True)
class BucketWork:
    """The operator in the form that Spark sends to its workers."""

    operator: ShippedValue[Operator]

    def __call__(self, key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        spare_imports()
        return self.operator.value(key, frames, state)


def _as_frame(outputs: Sequence[Output]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "output": np.array([output.number for output in outputs], np.int32),
            "rows": np.array([output.rows for output in outputs], np.int64),
            "payload": pd.Series([output.data for output in outputs], dtype=object),
        }
    )


@dataclass(frozen=True, slots=True)
class UnpackTask:
    """Unpacks the rows of one output."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        for batch in batches:
            for payload in batch.column(0):
                yield pa.ipc.read_record_batch(payload.as_buffer(), self.schema)


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A stateful stream: the task for each bucket, and the DataFrames that it reads."""

    inputs: tuple[FrameInput, ...]
    task: BucketTask
    buckets: int
    joined: JoinedRows | None = None
    """The fields by which rows are assigned to buckets if there are no keys."""

    def found(self) -> DataFrame:
        """Return all results, packed: matches and late rows with the number of their output."""
        parts = [self._packed(place) for place in range(len(self.inputs))]
        return stateful(parts, Operator(self.task, self.buckets), self.inputs[0].frame.schema)

    def _packed(self, place: int) -> DataFrame:
        entry, schema = self.inputs[place], self.task.inputs[place].table.schema
        # Every event changes a state, if only because time has passed.
        asks = self.task.states is not None
        rows = entry.frame if asks else _above_watermark(entry, self.task.machine.all_plans)
        plans = self.task.machine.all_plans
        if self.joined is not None:
            hashes = join_hashes(self.inputs, place, self.joined)
            keys = [F.coalesce(*hashes.values(), F.lit(0).cast("long"))]
        elif are_computed(self.inputs, self.task.keys, plans):
            rows, keys = copied(entry, rows, schema.names, self.task.keys, plans)
        else:
            keys = route(self.inputs, place, self.task.keys)
        bucket = F.pmod(F.xxhash64(*keys), F.lit(self.buckets)).cast("int") if keys else F.lit(0)
        return pack(rows, bucket, PackTask(schema, place, self.buckets))

    def counted(self, found: DataFrame) -> DataFrame:
        """Add the numbers of matches, timed-out partial matches, late rows and ties to the query's progress."""
        plans, first_tie = len(self.task.plans), self.task.first_tie
        matches = [number for number, output in enumerate(self.task.outputs) if output.waiting_for is None]
        number, rows = F.col("output"), F.col("rows")
        kinds = {
            "matches": number.isin(*matches),
            "timed_out": (number < plans) & ~number.isin(*matches),
            "late": (number >= plans) & (number < first_tie),
            "ties": number >= first_tie,
        }
        if len(self.task.ties) <= MOST_TIES:
            kinds |= {tie.label: number == first_tie + place for place, tie in enumerate(self.task.ties)}
        sums = [F.coalesce(F.sum(F.when(holds, rows)), F.lit(0)).alias(kind) for kind, holds in kinds.items()]
        return found.observe("ensue", *sums)


def stateful(parts: Sequence[DataFrame], operator: Operator, schema: StructType) -> DataFrame:
    """Run the operator on packed rows; `schema` is the schema of a DataFrame with the watermark."""
    together = reduce(DataFrame.union, parts)
    clocked = together.select("bucket", "source", "payload", _unreachable_clock(schema))
    work = BucketWork(ShippedValue(operator))
    return clocked.groupBy("bucket").applyInPandasWithState(work, FOUND, STATE, "append", "EventTimeTimeout")


def unpacked(found: DataFrame, numbers: Sequence[int], schema: pa.Schema) -> DataFrame:
    """Return the rows of some outputs that have the same columns."""
    payloads = found.filter(F.col("output").isin(*numbers)).select("payload")
    return payloads.mapInArrow(UnpackTask(schema), spark_schema(schema))


def matches_in(found: DataFrame, task: BucketTask) -> DataFrame:
    """Return the matches of all queries in shared columns, or in its own columns if there is only one query."""
    number = 0 if len(task.plans) == 1 else CARRIED
    return unpacked(found, [number], task.schema_of(number))


def _above_watermark(entry: FrameInput, plans: Sequence[QueryPlan]) -> DataFrame:
    """Keep the rows that some query can use, but only after all rows have moved the watermark.

    Spark pushes a filter below the watermark unless the filter reads the watermark's own column.
    """
    condition = needed_rows(plans, entry.item, entry.frame.schema)
    marked = column(next(field.name for field in entry.frame.schema if DELAY in (field.metadata or {})))
    return entry.frame if condition is None else entry.frame.filter(F.when(marked.isNotNull(), condition))


def plan_stream(
    inputs: Sequence[FrameInput],
    plans: Sequence[QueryPlan],
    outputs: Sequence[OutputSchema],
    options: Options,
    keys: Sequence[str],
    derivations: Sequence[Derivation] = (),
    states: StateQuestions | None = None,
    *,
    eager: bool = False,
    late: bool = False,
    tick: str | None = None,
    buckets: int | None = None,
) -> StreamPlan:
    """Check the watermarks and plan the stream. Events with different `keys` are independent.

    If late rows or STATEs are requested, whole rows travel, otherwise only the columns that the queries use. Without
    keys, the fields that the queries compare decide about the bucket of a row, if each row has only one.
    """
    for entry in inputs:
        check_watermark(entry)
    everything = all_plans(derivations, plans)
    if are_computed(inputs, keys, everything):
        inputs = with_members(inputs, everything)
    joined = None if keys or states is not None else joined_rows(inputs, everything)
    if joined is not None and joined.marks:
        joined = None
    count = checked_buckets(buckets, keys or joined, inputs[0].frame.sparkSession)
    joined = joined if count > 1 else None
    warn_of_unbounded(everything)
    travelling = tuple(
        replace(
            entry.item,
            table=plain_schema(
                (entry.item.table if late or states is not None else needed_columns(everything, entry.item)).schema
            ).empty_table(),
        )
        for entry in inputs
    )
    task = BucketTask(
        travelling,
        tuple(plans),
        tuple(outputs),
        tuple(result_schema(output) for output in outputs),
        clock_of(plans[0].catalog.time_type, tick),
        options,
        eager,
        late,
        keys=tuple(keys),
        derivations=tuple(derivations),
        states=states,
    )
    return StreamPlan(tuple(inputs), task, count, joined)


def checked_buckets(buckets: Any, keys: object, session: SparkSession) -> int:
    """Return the number of buckets: one if events have no `keys`."""
    if buckets is None:
        partitions = int(session.conf.get("spark.sql.shuffle.partitions") or FEWEST_BUCKETS)
        return max(FEWEST_BUCKETS, partitions) if keys else 1
    if isinstance(buckets, bool) or not isinstance(buckets, int) or not 1 <= buckets < 2**15:
        raise SchemaError("bucket-count", f"`buckets` must be an integer from 1 to {2**15 - 1}, found {buckets!r}")
    return buckets if keys else 1


def warn_of_unbounded(plans: Iterable[QueryPlan]) -> None:
    """Warn about events that are kept forever, because they make the state grow without bound."""
    endless, streams = False, dict[str, None]()
    for plan in plans:
        if plan.monitor is not None:
            endless |= not plan.monitor.bounded
            continue
        streams |= dict.fromkeys([f"`{stream}`" for stream, kept in reach_of_streams(plan) if not kept.bounded][:1])
    if endless:
        message = "no constraint says when a trace ends, so the state of each trace is kept forever"
        warn(f"{message}; add CONSTRAINT ENDS to bound it")
    if streams:
        message = f"events of {', '.join(streams)} are kept forever, so the state grows without bound"
        warn(f"{message}; add WITHIN to bound it")


def check_watermark(entry: FrameInput) -> None:
    """Check that the stream has a watermark on the end column of its events."""
    item, schema = entry.item, entry.frame.schema
    name = item.end or item.time
    marked = [field.name for field in schema if DELAY in (field.metadata or {})]
    if not marked:
        raise SchemaError(
            "no-watermark",
            f"the {item.label} is a stream without a watermark, so matches never complete",
            f'add `.withWatermark("{name}", "10 minutes")` with the maximum delay of events',
        )
    if isinstance(schema[name].dataType, TimestampType) and name not in marked:
        raise SchemaError(
            "watermark-column",
            f"the watermark of the {item.label} is on column `{marked[0]}`, but must be on `{name}`",
            f'use `.withWatermark("{name}", ...)`',
        )


def clock_of(time_type: pa.DataType, tick: str | None) -> Clock:
    """Return how the watermark, which is a timestamp, relates to the time column."""
    if pa.types.is_timestamp(time_type):
        if time_type.tz is None:
            raise SchemaError(
                "stream-time",
                "the time column is a timestamp without a time zone, but Spark requires one for watermarks",
                "cast the column to `timestamp`",
            )
        return Clock(NANOSECONDS_PER_UNIT[time_type.unit])
    if tick is None:
        raise SchemaError(
            "no-tick",
            "the time column is integer, but the watermark is a timestamp",
            'pass the length of one time unit, such as `tick="1s"`, or cast the time column to `timestamp`',
        )
    return Clock(_nanoseconds(tick))


def _nanoseconds(tick: Any) -> int:
    nanoseconds = length_of(tick)
    if nanoseconds is None or nanoseconds <= 0:
        raise SchemaError("no-tick", f"`tick` must be a duration such as '1s', found {tick!r}")
    return nanoseconds


def _unreachable_clock(schema: StructType) -> Column:
    """A column that Spark uses as the event time of the packed rows and that is never late.

    Spark would drop rows behind the watermark; this way they reach the operator, which returns them as late.
    """
    delay = next(field.metadata[DELAY] for field in schema if DELAY in (field.metadata or {}))
    return F.timestamp_seconds(F.lit(NEVER_LATE)).alias("ensue:clock", metadata={DELAY: delay})
