"""Functions of the user on Spark: in a batch and a stream, after a restart, and when they fail or are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import ensue
from ensue import QueryError, StateError
from spark.streams import SECOND, SMALL, START, Feed, instants, lines, settings

SCHEMA = pa.schema([("t", pa.timestamp("us", "UTC")), ("type", pa.string()), ("k", pa.int64()), ("x", pa.int64())])
READING = {"time": "t", "type": "type"}
TEXT = """
    RULE big(k, v = halved(x)) <- A(k=k, x=x), halved(x) > 3;
    RULE pair(k, v, w = halved(y)) <- a: big(k, v), b: B(k=k, x=y), a before b, {a, b} within 30 seconds
"""
OFFSET = 1


@ensue.function(takes=[pa.int64()], returns=pa.float64())
def halved(x: Any) -> Any:
    """Uses a name of this module, which workers do not import."""
    return pc.divide(pc.cast(pc.add(x, OFFSET), pa.float64()), 2.0)


PROGRAM = ensue.parse(TEXT, functions=[halved])


def history(rows: int) -> pa.Table:
    random = np.random.default_rng(4)
    times = START + np.sort(random.integers(0, 60, rows)) * SECOND
    kinds = pa.array(random.choice(["A", "B"], rows))
    columns = [random.integers(0, high, rows) for high in (4, 12)]
    return pa.table([instants(times), kinds, *map(pa.array, columns)], schema=SCHEMA)


def test_batch(spark: SparkSession) -> None:
    table = history(200)
    expected = ensue.run(table, PROGRAM, **READING)
    found = ensue.run(spark.createDataFrame(table), PROGRAM, **READING)
    for name in ("big", "pair"):
        assert lines(found[name].toArrow()) == lines(expected[name]) != []
    found.release()


def test_streams_of_rows_are_computed_before_the_shuffle(spark: SparkSession) -> None:
    text = "STREAM H FROM log WHERE halved(x) > 2 RETURN halved(k) AS h; "
    text += "PATTERN SEQ(H a, H b) PARTITION BY h WITHIN 5 seconds RETURN a.h AS h, a.t AS t"
    program, table = ensue.parse(text, functions=[halved]), history(200).drop_columns(["type"])
    found = ensue.detect({"log": spark.createDataFrame(table)}, program, time="t").toArrow()
    assert lines(found) == lines(ensue.detect({"log": table}, program, time="t")) != []


def test_a_failing_function_is_named(spark: SparkSession) -> None:
    broken = ensue.function(takes=[pa.int64()], returns=pa.float64(), name="halved")(lambda x: x[:1])
    program = ensue.parse("PATTERN A a PARTITION BY k RETURN halved(a.x) AS v", functions=[broken])
    found = ensue.detect(spark.createDataFrame(history(20)), program, **READING)
    with pytest.raises((QueryError, PySparkException), match="function `halved` returned"):
        found.toArrow()


def test_stream_with_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    table = history(120)
    feed = Feed(tmp_path / "in", SCHEMA)
    feed.put(table.slice(0, 60))
    run(spark, feed, tmp_path, PROGRAM)
    checkpoint = str(tmp_path / "checkpoint")
    kept = ensue.stream_state(checkpoint, spark, functions=[halved]).toArrow().to_pylist()
    assert "big" in {stream for row in kept for stream, _ in row["streams"]}
    with pytest.raises(QueryError, match="unknown function `halved`"):
        ensue.stream_state(checkpoint, spark)
    with pytest.raises(QueryError, match="unknown function `halved`"):
        run(spark, feed, tmp_path, TEXT)
    other = ensue.function(takes=[pa.int64()], returns=pa.int64(), name="halved")(lambda x: x)
    with pytest.raises(StateError, match="-- function halved"):
        run(spark, feed, tmp_path, ensue.parse(TEXT, functions=[other]))
    far = pa.table([instants(np.array([START + 500 * SECOND])), ["A"], [9], [0]], schema=SCHEMA)
    feed.put(pa.concat_tables([table.slice(60), far]))
    run(spark, feed, tmp_path, PROGRAM)
    for name, events in ensue.run(table, PROGRAM, **READING).items():
        written = spark.read.parquet(str(tmp_path / name)).drop("batch").toArrow()
        assert lines(written) == lines(events) != []


def run(spark: SparkSession, feed: Feed, folder: Path, program: Any) -> None:
    with settings(spark, SMALL):
        running = ensue.start(
            feed.stream(spark, "t", "0 seconds"),
            program,
            to={name: str(folder / name) for name in ("big", "pair")},
            checkpointLocation=str(folder / "checkpoint"),
            trigger={"availableNow": True},
            status=False,
            **READING,
        )
        running.awaitTermination()
