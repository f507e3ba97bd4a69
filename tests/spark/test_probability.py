"""Uncertain events on Spark: batch, slices of time, streams with restarts, and whether anything happened."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ensue
from ensue import SchemaError
from spark.streams import FAR, SECOND, START, Feed, cut, instants, run_to_end

PROGRAM = """
PATTERN alone SEQ(A a, NOT B b, C c) PARTITION BY k WITHIN 8 seconds
  RETURN a.n AS a, c.n AS c, PROBABILITY() AS p;
PATTERN listed SEQ(A a, COLLECT B b, C c) WHERE count(b) > 1 PARTITION BY k WITHIN 8 seconds HAVING PROBABILITY > 0.05
  RETURN a.n AS a, c.n AS c, PROBABILITY() AS p, avg(b.n) AS mean
"""
KEYLESS = "PATTERN SEQ(A a, NOT SEQ(B b, B d), C c) WITHIN 5 seconds RETURN a.n AS a, c.n AS c, PROBABILITY() AS p"
COLUMNS = {"time": "t", "type": "type", "probability": "p", "alternatives": "g"}


def events() -> pa.Table:
    drawn = random.Random(8)
    rows = range(120)
    return pa.table(
        {
            "t": instants([START + SECOND * row for row in rows]),
            "type": [drawn.choice("ABBC") for _ in rows],
            "k": [drawn.randrange(2) for _ in rows],
            "n": list(rows),
            "p": [drawn.choice((1.0, 1.0, 0.9, 0.5, 0.25)) if row % 5 else 0.3 for row in rows],
            "g": [row // 15 if row % 5 == 0 else None for row in rows],
        }
    )


def shown(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(
        tuple(round(value, 9) if isinstance(value, float) else value for value in row.values())
        for row in table.to_pylist()
    )


def test_batch(spark: SparkSession) -> None:
    frame = spark.createDataFrame(events())
    found, expected = ensue.run(frame, PROGRAM, **COLUMNS), ensue.run(events(), PROGRAM, **COLUMNS)
    for name, matches in expected.items():
        assert matches.num_rows > 5
        assert shown(found[name].toArrow()) == shown(matches)


def test_slices_of_time(spark: SparkSession) -> None:
    found = ensue.detect(spark.createDataFrame(events()).repartition(3), KEYLESS, **COLUMNS)
    expected = ensue.detect(events(), KEYLESS, **COLUMNS)
    assert 0 < min(expected.column("p").to_pylist()) < 0.1
    assert shown(found.toArrow()) == shown(expected)


def test_a_stream_that_is_started_again(spark: SparkSession, tmp_path: Path) -> None:
    table = events()
    last = table.slice(0, 1).set_column(0, "t", instants([FAR])).set_column(1, "type", pa.array(["Z"]))
    parts = [*cut(table, 3, seed=1), last]
    feed = Feed(tmp_path / "in", table.schema)
    query, rows = ensue.parse(PROGRAM).queries[1], []
    for part in (parts[:2], parts[2:]):
        for table_of_file in part:
            feed.put(table_of_file)
        found = ensue.detect(feed.stream(spark, "t"), query, **COLUMNS)
        rows.append(run_to_end(found, tmp_path / "checkpoint").rows)
    assert shown(pa.concat_tables(rows)) == shown(ensue.detect(events(), query, **COLUMNS))


@pytest.mark.parametrize("window", [None, "30 seconds"])
def test_whether_anything_happened(spark: SparkSession, window: str | None) -> None:
    query = "PATTERN SEQ(A a, NOT B b, C c) PARTITION BY k WITHIN 8 seconds"
    found = ensue.any_match(spark.createDataFrame(events()), query, window=window, **COLUMNS)
    expected = ensue.any_match(events(), query, window=window, **COLUMNS)
    assert expected.num_rows >= 2
    assert shown(found.toArrow().select(expected.column_names)) == shown(expected)


def test_whether_anything_happened_is_not_asked_of_a_stream(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("timestamp AS t", "'A' AS type", "0.5D AS p")
    with pytest.raises(SchemaError, match="the DataFrame is a stream"):
        ensue.any_match(stream, "PATTERN A a", time="t", type="type", probability="p")


def test_levels_of_detail(spark: SparkSession) -> None:
    levels = "HIERARCHY Any > A; HIERARCHY Any > (B 0.5)"
    query = f"{levels}; PATTERN SEQ(A a, NOT B b, C c) WITHIN 5 seconds RETURN a.n AS a, c.n AS c, PROBABILITY() AS p"
    coarse = pa.array(["Any" if row % 7 == 0 else kind for row, kind in enumerate(events()["type"].to_pylist())])
    table = events().set_column(1, "type", coarse)
    found = ensue.detect(spark.createDataFrame(table), query, **COLUMNS)
    assert shown(found.toArrow()) == shown(ensue.detect(table, query, **COLUMNS))
