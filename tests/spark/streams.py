"""What tests of streams share: folders that files are put into one by one, and streams that are run to their end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from inside import CARRIED, BucketTask, spark_schema

SMALL = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
"""Settings with which a micro-batch of a few rows takes as little time as it can."""

INSTANT = pa.timestamp("us", "UTC")
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
"""A moment from which the times of tests are counted, in microseconds."""

FAR = 3_000_000_000 * SECOND
"""A moment after all events: a row of it completes everything before."""


def instants(microseconds: Sequence[int] | np.ndarray) -> pa.Array:
    return pa.array(microseconds, pa.int64()).cast(INSTANT)


def matches_in(found: pa.Table, task: BucketTask, number: int) -> Iterator[pa.Table]:
    """The matches of a query among the packed outputs of buckets; those of several queries are packed together."""
    several = len(task.plans) > 1
    for row in found.to_pylist():
        if row["output"] == (CARRIED if several else number):
            schema = task.schema_of(row["output"])
            table = pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(row["payload"]), schema)])
            yield own_matches(table, task, number) if several else table


def own_matches(carried: pa.Table, task: BucketTask, number: int) -> pa.Table:
    """The matches of one of several queries that are in one table."""
    own = carried.filter(pa.array(carried.column(0).to_numpy() == number)).select(list(task.carrier.places[number]))
    return own.rename_columns(task.matches[number].names)


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Sets what streams read when they start, and puts it back."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


class Feed:
    """A folder of Parquet files that a stream reads in the order in which they were put there, one a micro-batch."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.folder = folder
        self.schema = schema
        self.count = 0
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, table: pa.Table) -> None:
        """Adds a file. Spark orders files by their age in milliseconds, so each is a second younger than the last."""
        hidden = self.folder / f"_{self.count}"
        pq.write_table(table.select(self.schema.names).cast(self.schema), hidden)
        moment = time.time() - 10_000 + self.count
        os.utime(hidden, (moment, moment))
        hidden.rename(self.folder / f"{self.count:04}.parquet")
        self.count += 1

    def stream(self, spark: SparkSession, column: str | None, delay: str = "0 seconds") -> DataFrame:
        """The folder as a stream with a watermark on a column, or without one."""
        reader = spark.readStream.schema(spark_schema(self.schema)).option("maxFilesPerTrigger", 1)
        frame = reader.parquet(str(self.folder))
        return frame if column is None else frame.withWatermark(column, delay)


def feed_of(folder: Path, tables: Sequence[pa.Table]) -> Feed:
    """A folder with these tables, each a file."""
    feed = Feed(folder, tables[0].schema)
    for table in tables:
        feed.put(table)
    return feed


@dataclass(frozen=True, slots=True)
class Ran:
    """What a stream gave: a table per micro-batch, and Spark's report about each."""

    batches: Mapping[int, pa.Table]
    progress: Sequence[Mapping[str, Any]]

    @property
    def rows(self) -> pa.Table:
        return pa.concat_tables(self.batches.values())

    def total(self, name: str) -> int:
        """The sum of one of the counts that Ensue adds to the reports."""
        return sum(int(report["observedMetrics"]["ensue"][name]) for report in self.progress)

    @property
    def watermarks(self) -> dict[int, int]:
        """The watermark of each micro-batch, in milliseconds since 1970."""
        return {int(report["batchId"]): milliseconds(report["eventTime"]["watermark"]) for report in self.progress}


def milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def run_to_end(found: DataFrame, checkpoint: Path) -> Ran:
    """Runs a stream over all that is there."""
    batches: dict[int, pa.Table] = {}
    with settings(found.sparkSession, SMALL):
        query = start_collecting(found, checkpoint, batches, availableNow=True)
    query.awaitTermination()
    return Ran(batches, query.recentProgress)


def start_collecting(
    found: DataFrame, checkpoint: Path, batches: dict[int, pa.Table], **trigger: Any
) -> StreamingQuery:
    """Starts a stream that puts the rows of each micro-batch into `batches`."""

    def take(rows: DataFrame, batch: int) -> None:
        batches[batch] = rows.toArrow()

    writer = found.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def lines(table: pa.Table) -> list[str]:
    """The rows as sorted texts, for comparison."""
    return sorted(map(str, table.to_pylist()))


def disordered(ends: np.ndarray, delay: int, seed: int) -> np.ndarray:
    """An order of rows in which none comes too late: each is delayed by less than `delay`."""
    arrivals = ends + np.random.default_rng(seed).integers(0, delay, len(ends))
    return np.argsort(arrivals, kind="stable")


def cut(table: pa.Table, parts: int, seed: int) -> list[pa.Table]:
    """The rows, in their order, as tables of random sizes."""
    places = np.sort(np.random.default_rng(seed).integers(0, table.num_rows + 1, parts - 1))
    limits = [0, *map(int, places), table.num_rows]
    return [table.slice(begin, end - begin) for begin, end in pairwise(limits)]
