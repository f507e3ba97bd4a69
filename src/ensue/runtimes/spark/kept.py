"""The events that a stream keeps, as DataFrames of which other questions can be asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ensue.engine.kept import kept_events
from ensue.errors import StateError
from ensue.plan.programs import ProgramPlan
from ensue.runtimes.spark.frames import carried, spark_schema
from ensue.runtimes.spark.state import look_at, new_session, restored, saved_buckets, state_folders


def read_events_of(spark: SparkSession, checkpoint: str) -> DataFrame | dict[str, DataFrame]:
    """The kept events of the one stream under a checkpoint: one DataFrame, or one per stream, as its rows came."""
    folders = state_folders(spark, checkpoint)
    if len(folders) > 1:
        names = " or ".join(f"`{folder.removeprefix(checkpoint + '/')}`" for folder in folders)
        raise StateError(
            "several-states",
            f"the checkpoint has {len(folders)} states, and what more than one of them keeps would come more than once",
            f"give the folder of one of them in the checkpoint, {names}",
        )
    saved, first = saved_buckets(spark, folders[0])
    if not first:
        return spark.createDataFrame([], StructType([]))
    planned = look_at(bytes(first[0]["events"])).planned
    frames = {}
    for place, (item, table) in enumerate(zip(planned.inputs, kept_events(new_session(planned)), strict=True)):
        schema = pa.schema([pa.field(field.name, carried(field.type)) for field in table.schema])
        frames[item.stream] = saved.mapInArrow(EventsLook(planned, place, schema), spark_schema(schema))
    if None in frames:
        return frames[None]
    return {stream: frame for stream, frame in frames.items() if isinstance(stream, str)}


@dataclass(frozen=True, slots=True)
class EventsLook:
    """Turns saved states (a bucket and its bytes) into the kept rows of one table."""

    planned: ProgramPlan
    place: int
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for saved in batch.column(1).drop_null():
                kept = kept_events(restored(self.planned, saved.as_py()))[self.place]
                yield from kept.select(self.schema.names).cast(self.schema).to_batches()
