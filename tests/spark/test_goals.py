"""Goals on Spark: why a batch has no matches, what proves one, and what a stream waits for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ensue
from spark.streams import SMALL, Feed, feed_of, settings
from spark.test_state import PROGRAM, ROWS, begun, events

PAID = "PATTERN paid SEQ(Order o, Paid p) PARTITION BY id WITHIN 10 RETURN o.id AS id, p.t AS at"
EVENTS = pa.table(
    {
        "t": [1, 15, 20, 32, 40, 45, 50],
        "type": ["Order", "Paid", "Order", "Paid", "Order", "Paid", "Other"],
        "id": [7, 7, 8, 8, 9, 9, 9],
    }
)


def test_a_batch_says_the_same_as_a_table(spark: SparkSession) -> None:
    frame = spark.createDataFrame(EVENTS)
    in_process = ensue.why_not(EVENTS, PAID, time="t", type="type")
    assert ensue.why_not(frame, PAID, time="t", type="type").to_text() == in_process.to_text()
    narrowed = ensue.why_not(frame, PAID, time="t", type="type", where="id = 7")
    assert narrowed.verdict == "no match: WITHIN 10 failed once, closest 14, 4 over"
    streams = {name: frame.where(f"type = '{name}'") for name in ("Order", "Paid")}
    assert ensue.why_not(streams, PAID, time="t", where=frame["id"] == 7).verdict == narrowed.verdict


def test_a_match_of_a_batch_is_proved(spark: SparkSession) -> None:
    frame = spark.createDataFrame(EVENTS)
    (row,) = ensue.detect(frame, PAID, time="t", type="type", match_id=True).collect()
    proof = ensue.justify(frame, PAID, row["match_id"], time="t", type="type")
    assert proof == ensue.justify(EVENTS, PAID, {"at": 45}, time="t", type="type")


def test_too_many_rows_and_streams_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ensue.SchemaError) as many:
        ensue.why_not(spark.createDataFrame(EVENTS), PAID, time="t", type="type", most_choices=3)
    assert many.value.code == "rows-in-process"
    stream = spark.readStream.format("rate").load().selectExpr("timestamp", "value AS id", "'Order' AS type")
    with pytest.raises(ensue.SchemaError) as endless:
        ensue.why_not(stream, PAID.replace("10", "10 minutes").replace("p.t", "p.id"), time="timestamp", type="type")
    assert endless.value.code == "streaming-frame"


def run(spark: SparkSession, feed: Feed, program: str, results: tuple[str, ...], checkpoint: str) -> None:
    """Runs a stream until it has read all files, and stops it."""
    with settings(spark, SMALL):
        running = ensue.start(
            feed.stream(spark, "t", "10 seconds"),
            program,
            to=dict.fromkeys(results, lambda rows, batch: None),
            checkpointLocation=checkpoint,
            time="t",
            type="type",
            buckets=2,
            status=False,
        )
    with running:
        running.processAllAvailable()


def test_what_a_stopped_stream_waits_for(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    run(spark, begun(tmp_path / "in"), PROGRAM, ("ordered", "either", "quiet"), checkpoint)
    found = ensue.waiting(checkpoint, PROGRAM, spark=spark)
    said = sorted((row["name"], row["id"], row["awaited"].split(" after")[0]) for row in found.to_pylist())
    assert said[:2] == [("either", 3, "E e"), ("either", 5, "E e")]
    assert said[2:5] == [("ordered", 1, "B b"), ("ordered", 2, "C c"), ("ordered", 5, "B b")]
    assert [(name, key) for name, key, _ in said[5:]] == [("quiet", 4)]
    with pytest.raises(ensue.StateError) as other:
        ensue.waiting(checkpoint, PAID.replace("10", "10 minutes"), spark=spark)
    assert other.value.code == "state-query"


CHAIN = """
RULE ie(id) <- x: A(id=id), y: B(id=id), x before y, {x, y} within 1 minute;
RULE e(id) <- p: ie(id), q: C(id=id), {p, q} within 2 minutes;
PATTERN other SEQ(D d, E e) PARTITION BY kind WITHIN 1 minute
"""


def test_a_stream_with_a_chain_of_rules_and_several_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Each group of keys has its own state, which has only the columns that the group reads."""
    feed = feed_of(tmp_path / "in", [of_kinds(rows) for rows in (ROWS, [(20, "Z", 6)])])
    checkpoint = str(tmp_path / "checkpoint")
    run(spark, feed, CHAIN, ("ie", "e", "other"), checkpoint)
    found = ensue.waiting(checkpoint, CHAIN, spark=spark)
    said = {(row["name"], row["awaited"].split(" after")[0], *row["then"]) for row in found.to_pylist()}
    assert said == {
        ("ie", "B y", "e(1) needs ie(1) and C q"),
        ("ie", "B y", "e(2) needs ie(2) and C q"),
        ("ie", "B y", "e(5) needs ie(5) and C q"),
        ("e", "C q"),
        ("other", "E e"),
    }


def of_kinds(rows: list[tuple[float, str, int]]) -> pa.Table:
    table = events(*rows)
    return table.append_column("kind", pa.array([f"kind {number % 2}" for _, _, number in rows]))
