"""Inspect the state of a stream: the kept events of each key, their age and size, and what the key waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from ensue.engine.events import EventStore
from ensue.engine.machine import UNLIMITED, Look, Machine, State, compile_plan
from ensue.engine.rows import completion_times
from ensue.engine.snapshot import kept_events, read_header, restore, saved_inputs, saved_tables
from ensue.engine.sources import SAFE_TIME, one_chunk
from ensue.engine.views import first_streams, with_keys
from ensue.engine.workspace import cached_candidates
from ensue.errors import StateError
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.graph.graphs import Graph
from ensue.lower.phases import lower_saved
from ensue.nodes.expressions import Duration
from ensue.nodes.names import called
from ensue.nodes.patterns import PatternQuery, Ticks
from ensue.plan.partial import open_queries
from ensue.plan.planner import plan_query
from ensue.plan.plans import QueryPlan
from ensue.plan.program_plans import ProgramPlan, plan_program
from ensue.runtimes.spark.bucket import read_state
from ensue.runtimes.spark.frames import carried, spark_schema
from ensue.runtimes.spark.handle import folder_of
from ensue.runtimes.spark.manifest import read_manifests
from ensue.text.parser import parse_statements
from ensue.text.render import render_pattern

UNREPORTED = "the watermark"
"""What a key waits for if its match has all its events and is not complete yet."""

NO_STATE = "STDS_"
"""The prefix of the error conditions of Spark's state reader."""


def read_state_of(spark: SparkSession, checkpoint: str, functions: Mapping[str, object]) -> DataFrame:
    """Return the kept events per key of all streams in a checkpoint, whose queries call these functions of the user."""
    folders = state_folders(spark, checkpoint)
    parts = [part for folder in folders if (part := _state_of_stream(spark, folder, functions)) is not None]
    if not parts:
        return spark.createDataFrame([], spark_schema(state_schema(pa.timestamp("us", "UTC"))))
    return parts[0] if len(parts) == 1 else _together(parts)


def saved_states(spark: SparkSession, checkpoint: str) -> Iterator[pa.Table]:
    """Yield the saved states of all streams in a checkpoint, one for each bucket that is not empty."""
    for folder in state_folders(spark, checkpoint):
        saved = saved_buckets(spark, folder)[0]
        for row in saved.filter(F.col("events").isNotNull()).select("events").toLocalIterator():
            yield read_state(bytes(row["events"]))


def state_folders(spark: SparkSession, checkpoint: str) -> list[str]:
    """Return the folders of the streams in a checkpoint: one for each set of keys, or the checkpoint itself."""
    return [f"{checkpoint}/{folder_of(keys)}" for keys in read_manifests(spark, checkpoint)] or [checkpoint]


def _together(parts: Sequence[DataFrame]) -> DataFrame:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole


def state_schema(time_type: pa.DataType) -> pa.Schema:
    """Return the columns of `ensue.stream_state`. Ages are intervals, or ticks if time is integer."""
    age = pa.duration("us") if pa.types.is_timestamp(time_type) else pa.int64()
    return pa.schema(
        [
            pa.field("key", pa.map_(pa.string(), pa.string())),
            pa.field("events", pa.int64()),
            pa.field("bytes", pa.int64()),
            pa.field("streams", pa.map_(pa.string(), pa.int64())),
            pa.field("oldest", carried(time_type)),
            pa.field("newest", carried(time_type)),
            pa.field("age", age),
            pa.field("waits_for", pa.list_(pa.string())),
            pa.field("bucket", pa.int32()),
        ]
    )


def _state_of_stream(spark: SparkSession, folder: str, functions: Mapping[str, object]) -> DataFrame | None:
    """Return the kept events of one stream; None if there are none."""
    saved, first = saved_buckets(spark, folder)
    if not first:
        return None
    look = look_at(bytes(first[0]["events"]), functions)
    return saved.mapInArrow(look, spark_schema(look.schema))


def saved_buckets(spark: SparkSession, folder: str) -> tuple[DataFrame, Sequence[Row]]:
    """Return the states of one stream by bucket, and one of them if any is not empty."""
    try:
        state = spark.read.format("statestore").load(folder)
        saved = state.select(
            F.col("key").getField("bucket").alias("bucket"),
            F.col("value").getField("groupState").getField("events").alias("events"),
        )
        # Spark Connect reads the folder only here.
        first = saved.filter(F.col("events").isNotNull()).select("events").take(1)
    except PySparkException as error:
        if not isinstance(error, AnalysisException) and not (error.getCondition() or "").startswith(NO_STATE):
            raise
        raise StateError(
            "no-state",
            f"no stream state found in `{folder}`",
            "pass the checkpoint of a stream that has run at least one micro-batch",
        ) from error
    return saved, first


def look_at(saved: bytes, functions: Mapping[str, object]) -> StateLook:
    """Return how to read states like this one."""
    table = read_state(saved)
    header = read_header(table)
    statements = lower_saved(parse_statements(header["query"], "the query of the checkpoint", functions))
    planned = plan_program(statements, saved_inputs(table), lawful=False, fixed=saved_tables(table))
    return StateLook(planned, state_schema(planned.plans[0].catalog.time_type))


def machine_of(planned: ProgramPlan) -> Machine:
    return compile_plan(planned, UNLIMITED)


def restored(machine: Machine, saved: bytes) -> State:
    """Restore a saved state. The state of an older query is read with the columns that it kept."""
    table = read_state(saved)
    return restore(machine, table, {read_header(table)["query"]})


@dataclass(frozen=True, slots=True)
class StateLook:
    """Turns saved states (a bucket and its bytes) into one row per key.

    If there are declared streams, each level of statements has its own rows.
    """

    planned: ProgramPlan
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket, events in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                if events.is_valid:
                    yield from self.rows(bucket, events.as_py()).to_batches()

    def rows(self, bucket: int, saved: bytes) -> pa.Table:
        """Return the keys of one bucket."""
        machine = machine_of(self.planned)
        looks = machine.looks(restored(machine, saved))
        return pa.concat_tables(self._summary(bucket, look, keys) for look in looks for keys in look.stage.requests)

    def _summary(self, bucket: int, look: Look, keys: tuple[str, ...]) -> pa.Table:
        """Return one row per key. All plans with these keys share the rows, so their key codes are equal."""
        watermark, plans = look.watermark or 0, [plan for plan in look.stage.plans if plan.query.partition_by == keys]
        stores = [look.events(plan, counting=True) for plan in plans]
        store = stores[0]
        kept = _kept_rows(store, look.stage.time_type)
        if kept.num_rows == 0:
            return self.schema.empty_table()
        totals = kept.group_by("key").aggregate([("start", "count"), ("start", "min"), ("start", "max")]).sort_by("key")
        codes = totals.column("key").to_numpy()
        size, time_type = sum(kept.nbytes for kept in look.state.kept), look.stage.time_type
        events, oldest = totals.column("start_count").to_numpy(), totals.column("start_min").to_numpy()
        said = [wait for plan, own in zip(plans, stores, strict=True) for wait in waits(look, plan, own)]
        columns = [
            _key_maps(plans[0].query.partition_by, store, codes, time_type),
            pa.array(events),
            pa.array(events * size // max(1, kept.num_rows)),
            _stream_maps(kept, codes),
            pa.array(oldest).view(time_type),
            pa.array(totals.column("start_max").to_numpy()).view(time_type),
            pa.array(np.maximum(0, watermark - oldest)),
            _lists(codes, said),
            pa.array(np.full(len(codes), bucket, np.int32)),
        ]
        arrays = [_as(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.table(arrays, schema=self.schema)


def _key_maps(names: Sequence[str], store: EventStore, codes: np.ndarray, time_type: pa.DataType) -> pa.Array:
    """Return the key columns of each code, as text by column name."""
    texts = {name: np.full(len(codes), None, object) for name in names}
    for keys, source in zip(store.row_keys, store.sources, strict=True):
        source = with_keys(source, names, time_type)
        own, rows = np.unique(keys, return_index=True)
        places = np.searchsorted(codes, own[own >= 0])
        for name in names:
            column = name if name in source.input.table.column_names else source.input.time
            values = source.raw_column(column).take(pa.array(rows[own >= 0])).cast(pa.string())
            texts[name][places] = values.to_numpy(zero_copy_only=False)
    values = np.stack([texts[name] for name in names], axis=1).ravel() if names else np.empty(0, object)
    offsets = pa.array(np.arange(len(codes) + 1, dtype=np.int32) * len(names))
    return pa.MapArray.from_arrays(
        offsets, pa.array(list(names) * len(codes), pa.string()), pa.array(values, pa.string())
    )


def _kept_rows(store: EventStore, time_type: pa.DataType) -> pa.Table:
    """Return the key, stream and start of every kept event that has a key."""
    parts = []
    for keys, source in zip(store.row_keys, store.sources, strict=True):
        item = source.input
        stream = (
            pa.repeat(pa.scalar(str(item.stream), pa.string()), len(keys))
            if item.type is None
            else source.raw_column(item.type).cast(pa.string())
        )
        stream = first_streams(source, stream, time_type)
        rows = pa.table({"key": keys, "stream": stream, "start": source.starts})
        parts.append(rows.filter(pa.array(keys >= 0)))
    return pa.concat_tables(parts)


def _stream_maps(kept: pa.Table, codes: np.ndarray) -> pa.Array:
    """Count the events of each stream for each key."""
    counts = kept.group_by(["key", "stream"]).aggregate([("start", "count")])
    counts = counts.sort_by([("key", "ascending"), ("stream", "ascending")]).combine_chunks()
    offsets = np.searchsorted(counts.column("key").to_numpy(), np.append(codes, codes[-1:] + 1)).astype(np.int32)
    names, numbers = (one_chunk(counts.column(name)) for name in ("stream", "start_count"))
    return pa.MapArray.from_arrays(pa.array(offsets), names, numbers)


def _lists(codes: np.ndarray, found: Sequence[tuple[str, np.ndarray]]) -> pa.Array:
    """Return the distinct texts for each key."""
    said = pa.table(
        {
            "key": np.concatenate([np.empty(0, np.int32), *(keys.astype(np.int32) for _, keys in found)]),
            "word": pa.array([word for word, keys in found for _ in range(len(keys))], pa.string()),
        }
    )
    said = said.group_by(["key", "word"]).aggregate([]).sort_by([("key", "ascending"), ("word", "ascending")])
    offsets = np.searchsorted(said.column("key").to_numpy(), np.append(codes, codes[-1:] + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), one_chunk(said.column("word")))


def waits(look: Look, plan: QueryPlan, store: EventStore) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what the pattern waits for, as text, with the codes of the keys that wait for it."""
    if plan.tracking is not None:
        return
    yield UNREPORTED, _open_keys(look, plan, store)
    partials = open_queries(_windowed(plan))
    for partial in partials:
        following = plan_query(partial.query, plan.catalog, plan.source)
        yield render_pattern(partial.missing), _open_keys(look, following, store)
    if not partials:
        for graph_plan in plan.graphs:
            yield from _absent(graph_plan.graph, plan, store)


def _windowed(plan: QueryPlan) -> PatternQuery:
    """Give a query without WITHIN a window that never closes, so that all missing events are still awaited."""
    if plan.query.within is not None:
        return plan.query
    unit = plan.catalog.unit
    forever = Ticks(SAFE_TIME) if unit is None else Duration(SAFE_TIME * NANOSECONDS_PER_UNIT[unit])
    return replace(plan.query, within=forever)


def _open_keys(look: Look, plan: QueryPlan, store: EventStore) -> np.ndarray:
    """Return the keys with a match that is not complete yet."""
    found = [np.empty(0, np.int32)]
    for chunk in look.matches(plan, store):
        still = completion_times(chunk, plan) > (look.watermark or 0)
        found.append(np.unique(chunk.space.keys(chunk.rows)[still]))
    return np.unique(np.concatenate(found))


def _absent(graph: Graph, plan: QueryPlan, store: EventStore) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the variables without any event, for keys that have events of other variables: what AND still waits for."""
    present = {
        variable.name: np.unique(cached_candidates(variable, graph, store, plan.catalog, {}).keys)
        for variable in graph.variables
    }
    anything = np.unique(np.concatenate([np.empty(0, np.int32), *present.values()]))
    for variable in graph.variables:
        yield (
            f"{variable.stream} {called(variable.name)}",
            np.setdiff1d(anything, present[variable.name]),
        )


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


# --- kept events of a stream as DataFrames, for further questions


def read_events_of(
    spark: SparkSession, checkpoint: str, functions: Mapping[str, object]
) -> DataFrame | dict[str, DataFrame]:
    """Return the kept events of the single stream in a checkpoint: one DataFrame, or one per stream of events."""
    folders = state_folders(spark, checkpoint)
    if len(folders) > 1:
        names = " or ".join(f"`{folder.removeprefix(checkpoint + '/')}`" for folder in folders)
        raise StateError(
            "several-states",
            f"the checkpoint has {len(folders)} states; reading all of them would return some events more than once",
            f"pass the folder of one state in the checkpoint: {names}",
        )
    saved, first = saved_buckets(spark, folders[0])
    if not first:
        return spark.createDataFrame([], StructType([]))
    planned = look_at(bytes(first[0]["events"]), functions).planned
    machine, frames = machine_of(planned), {}
    for place, (item, table) in enumerate(zip(planned.inputs, kept_events(machine, machine.start()), strict=True)):
        schema = pa.schema([pa.field(field.name, carried(field.type)) for field in table.schema])
        frames[item.stream] = saved.mapInArrow(EventsLook(machine, place, schema), spark_schema(schema))
    if None in frames:
        return frames[None]
    return {stream: frame for stream, frame in frames.items() if isinstance(stream, str)}


@dataclass(frozen=True, slots=True)
class EventsLook:
    """Turns saved states (a bucket and its bytes) into the kept rows of one table."""

    machine: Machine
    place: int
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for saved in batch.column(1).drop_null():
                kept = kept_events(self.machine, restored(self.machine, saved.as_py()))[self.place]
                yield from kept.select(self.schema.names).cast(self.schema).to_batches()
