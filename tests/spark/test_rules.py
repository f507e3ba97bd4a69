"""Rules on Spark: several for one head, recursion, and a table, with the events of the run in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import ensue
from spark.streams import INSTANT, SECOND, SMALL, START, Feed, cut, instants, lines, settings

SCHEMA = pa.schema([("t", INSTANT), ("type", pa.string()), ("who", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
PROGRAM = """
    STREAM Link(who, a, b); TABLE weight(node, w); FACT vip(1); FACT vip(3);
    RULE reach(who, a, b) <- Link(who, a, b);
    RULE reach(who, a, c) <- x: reach(who, a, b), y: Link(who, b, c), x before y, {x, y} within 4 seconds;
    RULE heavy(who, b, w) <- reach(who, a, b), weight(b, w);
    RULE heavy(who, b, w = -1.0) <- Link(who, a, b), vip(who);
"""
WEIGHTS = pa.table({"node": [1, 2, 2], "w": [0.5, 1.5, 2.5]})


def history(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    times = START + np.sort(random.integers(0, 60, rows)) * SECOND
    columns = [random.integers(0, high, rows) for high in (6, 4, 4)]
    return pa.table([instants(times), pa.array(["Link"] * rows), *map(pa.array, columns)], schema=SCHEMA)


def in_process(table: pa.Table) -> dict[str, pa.Table]:
    return dict(ensue.run(table, PROGRAM, time="t", type="type", tables={"weight": WEIGHTS}))


def test_batch(spark: SparkSession) -> None:
    table = history(400, seed=1)
    weights = spark.createDataFrame(WEIGHTS)
    found = ensue.run(spark.createDataFrame(table), PROGRAM, time="t", type="type", tables={"weight": weights})
    expected = in_process(table)
    assert list(found) == ["reach", "heavy"]
    assert expected["reach"].num_rows > table.num_rows
    for name, events in expected.items():
        assert lines(found[name].toArrow()) == lines(events) != []
    found.release()


def test_stream_with_a_restart_and_a_table_that_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    table = history(300, seed=2)
    parts = cut(table, 4, seed=3)
    feed = Feed(tmp_path / "in", SCHEMA)
    for part in parts[:2]:
        feed.put(part)
    run(spark, feed, tmp_path, WEIGHTS)
    kept = ensue.stream_state(str(tmp_path / "checkpoint"), spark).toArrow().to_pylist()
    assert "reach" in {stream for row in kept for stream, _ in row["streams"]}
    far = pa.table([instants(np.array([START + 500 * SECOND])), ["Link"], [9], [9], [9]], schema=SCHEMA)
    for part in (*parts[2:], far):
        feed.put(part)
    unused = pa.concat_tables([WEIGHTS, pa.table({"node": [77], "w": [9.0]})])
    run(spark, feed, tmp_path, unused)
    for name, events in in_process(table).items():
        written = spark.read.parquet(str(tmp_path / name)).drop("batch").toArrow()
        assert lines(written) == lines(events) != []


def run(spark: SparkSession, feed: Feed, folder: Path, weights: Any) -> None:
    with settings(spark, SMALL):
        running = ensue.start(
            feed.stream(spark, "t", "3 seconds"),
            PROGRAM,
            to={name: str(folder / name) for name in ("reach", "heavy")},
            checkpointLocation=str(folder / "checkpoint"),
            time="t",
            type="type",
            trigger={"availableNow": True},
            tables={"weight": weights},
            status=False,
        )
        running.awaitTermination()


def test_patterns_look_up_a_table(spark: SparkSession) -> None:
    """On a static DataFrame, with a table that is a DataFrame too; `tests/cases` has the streams."""
    program = "TABLE blocked(ip, reason); PATTERN (A a) WHERE a.ip NOT IN blocked.ip PARTITION BY k RETURN a.ip AS ip"
    rows = [(1, "A", 1, "x"), (2, "A", 1, "y"), (3, "A", 2, None), (4, "A", 2, "z")]
    events = spark.createDataFrame(rows, "t long, type string, k long, ip string")
    blocked = spark.createDataFrame([("x", "scan"), (None, "?")], "ip string, reason string")
    found = ensue.detect(events, program, time="t", type="type", tables={"blocked": blocked})
    assert sorted(row.ip for row in found.collect()) == ["y", "z"]
