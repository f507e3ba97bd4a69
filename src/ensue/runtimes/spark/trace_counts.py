"""Count the traces of DataFrames: Spark groups the events by trace, Python workers count pairs, Spark sums up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own convention)
from pyspark.sql.types import (
    DateType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegralType,
    NullType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from ensue.engine.sources import one_chunk
from ensue.engine.trace_counts import MOST_STREAMS, TraceCounts, no_traces
from ensue.errors import SchemaError
from ensue.plan.inputs import InputTable
from ensue.runtimes.spark.batch import ticks
from ensue.runtimes.spark.frames import FrameInput, frame_inputs, spark_schema
from ensue.runtimes.spark.java import require_pyspark
from ensue.runtimes.spark.pushdown import column
from ensue.runtimes.spark.session import advise
from ensue.runtimes.spark.worker import spare_imports

PAIRS = pa.schema([("a", pa.int32()), ("b", pa.int32()), ("together", pa.int64()), ("ordered", pa.int64())])
"""Counts of pairs of streams that occur together, by the positions of the streams."""


def count_frames(
    events: Mapping[str, DataFrame] | DataFrame, items: Sequence[InputTable], keys: tuple[str, ...]
) -> TraceCounts:
    """Count over the traces of DataFrames, in two jobs: the names of the streams, then the pairs."""
    require_pyspark()
    inputs = frame_inputs(events, items)
    if inputs[0].frame.isStreaming:
        raise SchemaError(
            "stream-as-log",
            "`ensue.process.mine` needs complete traces, but the DataFrame is a stream",
            "read the DataFrame with `spark.read`",
        )
    advise(inputs[0].frame.sparkSession)
    rows = reduce(DataFrame.unionByName, [_events(inputs, place, keys) for place in range(len(inputs))])
    counts = no_traces(_streams(inputs, rows))
    pairs = _spans(rows).mapInArrow(CountTask(counts.streams), spark_schema(PAIRS))
    sums = pairs.groupBy("a", "b").agg(F.sum("together").alias("together"), F.sum("ordered").alias("ordered"))
    found = sums.toArrow()
    a, b = found.column("a").to_numpy(), found.column("b").to_numpy()
    counts.together[a, b] = found.column("together").to_numpy()
    counts.ordered[a, b] = found.column("ordered").to_numpy()
    return counts


def _events(inputs: Sequence[FrameInput], place: int, keys: tuple[str, ...]) -> DataFrame:
    """Select stream, time in ticks and trace key of the rows that have all of them."""
    entry = inputs[place]
    item = entry.item
    stream = F.lit(item.stream) if item.stream is not None else column(item.type or "").cast(StringType())
    parts = [_key(inputs, place, name) for name in keys]
    named = [[value.alias(f"key_{k}_{p}") for p, value in enumerate(values)] for k, values in enumerate(parts)]
    chosen = entry.frame.select(
        stream.alias("stream"), ticks(entry, item.time).alias("time"), *(value for values in named for value in values)
    )
    needed = ["stream", "time", *(f"key_{k}_0" for k in range(len(keys)))]
    return chosen.dropna(subset=needed).filter(F.col("stream") != "")


def _key(inputs: Sequence[FrameInput], place: int, name: str) -> list[Column]:
    """Return columns that are equal exactly for equal keys, with the same types in all inputs.

    The first column is null if there is no key.
    """
    kinds = [entry.frame.schema[name].dataType for entry in inputs]
    own, known = kinds[place], [kind for kind in kinds if not isinstance(kind, NullType)]
    value = column(name)
    if isinstance(own, FloatType | DoubleType):
        value = F.nanvl(value.cast(DoubleType()), F.lit(None).cast(DoubleType()))
    if all(isinstance(kind, StringType) for kind in known):
        return [value.cast(StringType())]
    if len(set(kinds)) == 1:
        return [value]
    if all(isinstance(kind, IntegralType) for kind in known):
        return [value.cast("long")]
    if all(isinstance(kind, NumericType) for kind in known):
        # As floats alone, different large integers would be equal; a float beyond the integers equals none of them.
        return [value.cast(DoubleType()), F.coalesce(value.try_cast("long"), F.lit(0))]
    if all(isinstance(kind, DateType | TimestampType | TimestampNTZType) for kind in known):
        return [ticks(inputs[place], name)]
    if all(isinstance(kind, DayTimeIntervalType) for kind in known):
        return [value.cast(DayTimeIntervalType())]
    return [value]


def _streams(inputs: Sequence[FrameInput], rows: DataFrame) -> list[str]:
    """Return the names of the streams, or one more than can be counted."""
    if inputs[0].item.type is None:
        return [str(entry.item.stream or "") for entry in inputs]
    names = rows.select("stream").distinct().limit(MOST_STREAMS + 1).toArrow()
    found: list[str] = names.column("stream").to_pylist()
    return found


def _spans(rows: DataFrame) -> DataFrame:
    """Return one row per trace and stream, grouped by trace: first time, last time, then the key."""
    keys = [name for name in rows.columns if name.startswith("key_")]
    spans = rows.groupBy(*keys, "stream").agg(F.min("time").alias("first"), F.max("time").alias("last"))
    return spans.select("stream", "first", "last", *keys).repartition(*keys)


@dataclass(frozen=True, slots=True)
class CountTask:
    """Counts the pairs of streams in the traces of a partition; returns only pairs that occur together."""

    streams: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            yield self._counted(pa.Table.from_batches(filled))

    def _counted(self, spans: pa.Table) -> pa.RecordBatch:
        counts = no_traces(self.streams)
        names, firsts, lasts, *keys = map(one_chunk, spans.columns)
        codes = pc.index_in(names, value_set=pa.array(counts.streams, names.type)).to_numpy().astype(np.int32)
        counts.add([[key] for key in keys], codes, firsts.to_numpy(), lasts.to_numpy())
        a, b = np.nonzero(counts.together)
        columns = [a.astype(np.int32), b.astype(np.int32), counts.together[a, b], counts.ordered[a, b]]
        return pa.RecordBatch.from_arrays([pa.array(values) for values in columns], schema=PAIRS)
