"""Probabilistic state on Spark: batch and stream give what one process gives, after a restart too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ensue
from spark.streams import FAR, SECOND, START, feed_of, instants, run_to_end

PROGRAM = """
STATE location OF alice, bob IN (living, den, outside)
  PARTITION BY home
  STARTS outside
  ON Moved m: MOVE ANYONE FROM m.source TO m.target PROBABILITY 0.9
  ON Seen s: OBSERVE s.person IN s.source RELIABILITY 0.8
  EVERY 10 seconds MOVE BY (living -> den 0.1)
"""
COLUMNS = {"den": "P(anyone in den)", "inside": "E(count(not outside))", "best": "MOST LIKELY(alice)"}


def homes(rows: int = 60) -> pa.Table:
    random = np.random.default_rng(3)
    rooms = np.array(["living", "den", "outside"])
    return pa.table(
        {
            "at": instants(START + np.arange(rows) * SECOND),
            "type": pa.array(random.choice(["Moved", "Seen", "Other"], rows)),
            "home": random.integers(0, 4, rows),
            "person": pa.array(random.choice(["alice", "bob"], rows)),
            "source": pa.array(random.choice(rooms, rows)),
            "target": pa.array(random.choice(rooms, rows)),
        }
    )


def rows_of(table: Any) -> list[dict[str, Any]]:
    listed = table.to_pylist() if isinstance(table, pa.Table) else table.toArrow().to_pylist()
    keys = ("home", "at", "value", "type", "source", "target", "person")
    return sorted(listed, key=lambda row: tuple(str(row.get(name)) for name in keys))


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    assert [{k: v for k, v in row.items() if not isinstance(v, float)} for row in found] == [
        {k: v for k, v in row.items() if not isinstance(v, float)} for row in wanted
    ]
    numbers, others = ([v for row in part for v in row.values() if isinstance(v, float)] for part in (found, wanted))
    return len(numbers) == len(others) and np.allclose(numbers, others, rtol=0, atol=1e-9)


def test_beliefs_of_a_dataframe_are_those_of_its_rows(spark: SparkSession) -> None:
    table = homes()
    frame = spark.createDataFrame(table)
    moment = "2023-11-14 22:13:50"
    for at in (None, moment):
        found = ensue.beliefs(frame, PROGRAM, time="at", type="type", at=at)
        wanted = ensue.beliefs(table, PROGRAM, time="at", type="type", at=at)
        assert same(rows_of(found.marginal("alice")), rows_of(wanted.marginal("alice")))
        given = "bob in den"
        assert same(
            rows_of(found.given(given).probability("alice in den")),
            rows_of(wanted.given(given).probability("alice in den")),
        )
    assert found.set_aside.count() == 0


def test_tracking_a_dataframe_gives_every_row_its_columns(spark: SparkSession) -> None:
    table = homes()
    found = ensue.track(spark.createDataFrame(table), PROGRAM, COLUMNS, time="at", type="type")
    assert same(rows_of(found), rows_of(ensue.track(table, PROGRAM, COLUMNS, time="at", type="type")))
    query = PROGRAM + "; PATTERN SEQ(Other o) WHERE P(anyone in den) > 0.3 RETURN o.home AS home, o.at AS at"
    matches = ensue.detect(spark.createDataFrame(table), query, time="at", type="type")
    assert rows_of(matches) == rows_of(ensue.detect(table, query, time="at", type="type")) != []


def test_a_stream_with_a_restart_gives_what_one_run_gives(spark: SparkSession, tmp_path: Path) -> None:
    table = homes(30)
    last = table.slice(0, 1).set_column(0, "at", instants([FAR])).set_column(1, "type", pa.array(["Other"]))
    feed = feed_of(tmp_path / "events", [table.slice(0, 10), table.slice(10, 10)])

    def run() -> list[dict[str, Any]]:
        frame = ensue.track(feed.stream(spark, "at"), PROGRAM, COLUMNS, time="at", type="type", reason="why", buckets=2)
        rows: list[dict[str, Any]] = run_to_end(frame, tmp_path / "checkpoint").rows.to_pylist()
        return [row for row in rows if row["at"] < instants([FAR])[0].as_py()]

    rows = run()
    feed.put(table.slice(20, 10))
    feed.put(pa.concat_tables([last, table.slice(3, 1)]))
    feed.put(last)
    rows += run()
    late = [row for row in rows if row["why"] is not None]
    wanted = ensue.track(table, PROGRAM, COLUMNS, time="at", type="type", reason="why")
    found = pa.Table.from_pylist([row for row in rows if row["why"] is None], wanted.schema)
    assert same(rows_of(found), rows_of(wanted))
    assert [row["den"] for row in late] == [None]


def test_there_is_no_last_belief_of_a_stream(spark: SparkSession) -> None:
    columns = ("timestamp AS at", "'Seen' AS type", "value AS home", "'a' AS person", "'b' AS source", "'c' AS target")
    frame = spark.readStream.format("rate").load().selectExpr(*columns)
    with pytest.raises(ensue.SchemaError, match="state-stream"):
        ensue.beliefs(frame, PROGRAM, time="at", type="type")
