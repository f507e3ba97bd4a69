"""`order=` on Spark: batches, ties in different micro-batches, restarts, the state, and a changed order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ensue
from spark.streams import FAR, INSTANT, SECOND, SMALL, START, feed_of, instants, lines, settings

SCHEMA = pa.schema([("t", INSTANT), ("type", pa.string()), ("id", pa.int64()), ("line", pa.int64())])
PROGRAM = """
PATTERN pair SEQ(A a, NOT C c, B b) PARTITION BY id WITHIN 3 seconds RETURN a.line AS a, b.line AS b;
PATTERN near SEQ(A a, B b) PARTITION BY id WITHIN 3 EVENTS RETURN a.line AS a, b.line AS b;
PATTERN next SEQ(A a, B b) PARTITION BY id WITHIN 3 seconds MATCH NEXT RETURN a.line AS a, b.line AS b;
PATTERN once SEQ(A a, COLLECT C c, B b) PARTITION BY id WITHIN 3 seconds CONSUME
  RETURN a.line AS a, list(c.line) AS c, b.line AS b
"""
COLUMNS: dict[str, Any] = {"time": "t", "type": "type", "order": "line"}


def history(rows: int, seed: int) -> pa.Table:
    """Many events at the same second; some lines are equal or missing."""
    chance = np.random.default_rng(seed)
    numbers = [None if chance.random() < 0.05 else int(number) for number in chance.integers(0, rows, rows)]
    return pa.table(
        {
            "t": instants(START + np.sort(chance.integers(0, rows // 12, rows)) * SECOND),
            "type": pa.array(chance.choice(list("ABC"), rows)),
            "id": pa.array(chance.integers(0, 3, rows)),
            "line": pa.array(numbers, pa.int64()),
        },
        schema=SCHEMA,
    )


def wanted(table: pa.Table, **options: Any) -> dict[str, list[str]]:
    return {name: lines(found) for name, found in ensue.run(table, PROGRAM, **COLUMNS, **options).items()}


def test_batch_and_a_range_of_time(spark: SparkSession) -> None:
    table = history(240, seed=1)
    shuffled = table.take(pa.array(np.random.default_rng(2).permutation(240)))
    with settings(spark, SMALL):
        frame = spark.createDataFrame(shuffled)
        periods: tuple[dict[str, Any], ...] = ({}, {"since": table["t"][60].as_py(), "until": table["t"][200].as_py()})
        for period in periods:
            found = ensue.run(frame, PROGRAM, **COLUMNS, **period)
            assert {name: lines(one.toArrow()) for name, one in found.items()} == wanted(table, **period)
        unordered = ensue.run(frame, PROGRAM, time="t", type="type")
        assert lines(unordered["pair"].toArrow()) != wanted(table)["pair"]


def test_a_stream_with_restarts(spark: SparkSession, tmp_path: Path) -> None:
    table = history(240, seed=3)
    # Rows of one second come in different files.
    places = np.random.default_rng(4).permutation(240)
    parts = [table.take(pa.array(places[number::3])) for number in range(3)]
    flush = pa.table({"t": instants([FAR]), "type": ["Z"], "id": [0], "line": [0]}, schema=SCHEMA)
    feed = feed_of(tmp_path / "in", parts[:2])
    names = ("pair", "near", "next", "once")

    def run(**options: Any) -> Any:
        with settings(spark, SMALL):
            running = ensue.start(
                feed.stream(spark, "t", "1 hour"),
                PROGRAM,
                **{**COLUMNS, **options},
                to={name: str(tmp_path / name) for name in names},
                checkpointLocation=str(tmp_path / "checkpoint"),
                trigger={"availableNow": True},
                buckets=2,
                status=False,
            )
        assert running.awaitTermination(timeout=1200)

    run()
    state = ensue.stream_state(str(tmp_path / "checkpoint"), spark, kept_events=True)
    assert "line" in state.columns
    goals = ensue.waiting(str(tmp_path / "checkpoint"), PROGRAM, spark=spark)
    assert goals.num_rows > 0
    for changed in (None, ["line", "id"], "id"):
        with pytest.raises(ensue.StateError) as refusal:
            run(order=changed)
        assert refusal.value.code == "state-shape"
    feed.put(parts[2])
    feed.put(flush)
    run()
    found = {name: lines(spark.read.parquet(str(tmp_path / name)).drop("batch").toArrow()) for name in names}
    assert found == wanted(pa.concat_tables([table, flush]))
