"""`ensue.stream_state`: what a stream keeps of each key and what it waits for, while it runs and when it is stopped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import ensue
from ensue import StateError
from spark.streams import FAR, INSTANT, SECOND, SMALL, START, Feed, feed_of, instants, run_to_end, settings

SCHEMA = pa.schema(
    [
        pa.field("t", INSTANT),
        pa.field("type", pa.string()),
        pa.field("id", pa.int64()),
    ]
)
BEGIN = datetime.fromtimestamp(START // SECOND, UTC)
PROGRAM = """
PATTERN ordered SEQ(A a, B b, C c) PARTITION BY id WITHIN 1 minute;
PATTERN either AND(D d, E e) PARTITION BY id WITHIN 1 minute;
PATTERN quiet SEQ(F f, NOT G g) PARTITION BY id WITHIN 1 minute
"""
ROWS = [
    (0, "A", 1),  # waits for B
    (1, "A", 2),
    (2, "B", 2),  # waits for C
    (3, "D", 3),  # waits for E
    (4, "F", 4),  # waits until no G can come any more
    (5, "A", 5),
    (6, "D", 5),  # waits for two things
    (7, "Z", 6),  # is of no use
    (20, "Z", 6),
]
"""With a delay of ten seconds the watermark is at 10 seconds."""


PER_STREAM = {"A": [(0, "A", 1), (1, "A", 2)], "B": [(2, "B", 2)]}


def events(*rows: tuple[float, str, int]) -> pa.Table:
    seconds, types, ids = zip(*rows, strict=True)
    moments = instants([START + round(second * SECOND) for second in seconds])
    return pa.table({"t": moments, "type": types, "id": ids}, schema=SCHEMA)


def begun(folder: Path) -> Feed:
    """A stream that says with its second file how far the first has taken it."""
    return feed_of(folder, [events(*ROWS), events((20, "Z", 6))])


def by_key(state: DataFrame) -> dict[tuple[tuple[str, str], ...], Any]:
    rows = state.collect()
    found = {tuple(sorted(row["key"].items())): row for row in rows}
    assert len(found) == len(rows)
    return found


def check_state(state: DataFrame) -> None:
    """What `ROWS` leave behind."""
    found = by_key(state)
    assert {key[0][1]: row["events"] for key, row in found.items()} == {"1": 1, "2": 2, "3": 1, "4": 1, "5": 2}
    assert all([name for name, _ in key] == ["id"] for key in found)
    rows = {int(key[0][1]): row for key, row in found.items()}
    assert rows[2]["streams"] == {"A": 1, "B": 1}
    assert rows[5]["streams"] == {"A": 1, "D": 1}
    assert {number: row["waits_for"] for number, row in rows.items()} == {
        1: ["B b"],
        2: ["C c"],
        3: ["E e"],
        4: ["the watermark"],
        5: ["B b", "E e"],
    }
    assert (utc(rows[2]["oldest"]), utc(rows[2]["newest"])) == (after(1), after(2))
    assert {number: row["age"] for number, row in rows.items()} == {
        number: timedelta(seconds=10 - second) for number, second in ((1, 0), (2, 1), (3, 3), (4, 4), (5, 5))
    }
    assert all(row["bytes"] > 0 for row in rows.values())
    assert rows[2]["bytes"] > rows[1]["bytes"]
    assert all(0 <= row["bucket"] < 2 for row in rows.values())


def check_events(kept: DataFrame) -> None:
    """The kept events can be asked something else than what they are kept for."""
    assert kept.columns == ["t", "type", "id"]
    assert sorted((row["type"], row["id"]) for row in kept.collect()) == [
        ("A", 1),
        ("A", 2),
        ("A", 5),
        ("B", 2),
        ("D", 3),
        ("D", 5),
        ("F", 4),
    ]
    query = "PATTERN SEQ(A a, D d) PARTITION BY id WITHIN 1 second RETURN a.id AS id"
    assert [row["id"] for row in ensue.detect(kept, query, time="t", type="type").collect()] == [5]


def utc(moment: datetime) -> datetime:
    """Spark gives moments in the zone of this machine, without saying so."""
    return moment.astimezone(UTC)


def after(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def test_a_stream_that_runs_and_then_has_stopped(spark: SparkSession, tmp_path: Path) -> None:
    feed = begun(tmp_path / "in")
    checkpoint = str(tmp_path / "checkpoint")
    with settings(spark, SMALL):
        running = ensue.start(
            feed.stream(spark, "t", "10 seconds"),
            PROGRAM,
            to=dict.fromkeys(("ordered", "either", "quiet"), lambda rows, batch: None),
            checkpointLocation=checkpoint,
            time="t",
            type="type",
            buckets=2,
            status=False,
        )
    with running:
        running.processAllAvailable()
        check_state(running.state())
        check_state(ensue.stream_state(f"{checkpoint}/"))
    check_state(ensue.stream_state(checkpoint, spark))
    check_events(ensue.stream_state(checkpoint, spark, kept_events=True))


def test_a_checkpoint_of_spark_and_a_state_that_has_become_empty(spark: SparkSession, tmp_path: Path) -> None:
    """A plain `writeStream` keeps the same state. When all is forgotten, there are no rows, but still columns."""
    feed = begun(tmp_path / "in")
    query = "PATTERN SEQ(A a, B b, C c) PARTITION BY id WITHIN 1 minute"

    def go_on() -> DataFrame:
        frame = ensue.detect(feed.stream(spark, "t", "10 seconds"), query, time="t", type="type")
        run_to_end(frame, tmp_path / "checkpoint")
        return ensue.stream_state(str(tmp_path / "checkpoint"))

    state = go_on()
    rows = {int(key[0][1]): row for key, row in by_key(state).items()}
    assert {number: row["events"] for number, row in rows.items()} == {1: 1, 2: 2, 5: 1}
    assert {number: row["waits_for"] for number, row in rows.items()} == {1: ["B b"], 2: ["C c"], 5: ["B b"]}
    feed.put(events(((FAR - START) / SECOND, "Z", 0)))
    empty = go_on()
    assert empty.columns == state.columns
    assert empty.count() == 0
    assert ensue.stream_state(str(tmp_path / "checkpoint"), kept_events=True).columns == []


def test_kept_events_of_a_table_per_stream(spark: SparkSession, tmp_path: Path) -> None:
    folders = {name: feed_of(tmp_path / name, [events(*rows)]) for name, rows in PER_STREAM.items()}
    streams = {name: feed.stream(spark, "t", "10 seconds") for name, feed in folders.items()}
    query = "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 1 minute RETURN a.id AS id"
    run_to_end(ensue.detect(streams, query, time="t"), tmp_path / "checkpoint")
    kept = ensue.stream_state(str(tmp_path / "checkpoint"), spark, kept_events=True)
    assert {name: frame.columns for name, frame in kept.items()} == {"A": ["t", "id"], "B": ["t", "id"]}
    assert sorted(row["id"] for row in kept["A"].collect()) == [1, 2]


def test_all_events_together_and_integer_time(spark: SparkSession, tmp_path: Path) -> None:
    """Without PARTITION BY there is one key, which has no columns; ages of integer time are integers."""
    table = pa.table(
        {"n": [10, 11, 40], "type": ["A", "A", "Z"], "at": instants([10 * SECOND, 11 * SECOND, 40 * SECOND])}
    )
    feed = feed_of(tmp_path / "in", [table, table.slice(2)])
    query = "PATTERN SEQ(A a, B b) WITHIN 100"
    frame = ensue.detect(feed.stream(spark, "at"), query, time="n", type="type", tick="1 second")
    run_to_end(frame, tmp_path / "checkpoint")
    (row,) = ensue.stream_state(str(tmp_path / "checkpoint")).collect()
    assert (row["key"], row["events"], row["streams"], row["waits_for"]) == ({}, 2, {"A": 2}, ["B b"])
    assert (row["oldest"], row["newest"], row["age"]) == (10, 11, 30)


def test_no_state(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    for folder in ("nothing", "nowhere"):
        with pytest.raises(StateError) as refusal:
            ensue.stream_state(str(tmp_path / folder), spark)
        assert refusal.value.code == "no-state"
