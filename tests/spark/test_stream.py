"""`ensue.detect` on streams, as a user meets it: the rows of the batch run, each once and in time, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import ensue
from ensue import EnsueError
from spark.streams import (
    FAR,
    INSTANT,
    SECOND,
    SMALL,
    START,
    Feed,
    cut,
    disordered,
    feed_of,
    instants,
    lines,
    run_to_end,
    settings,
)

SCHEMA = pa.schema(
    [
        pa.field("t", INSTANT),
        pa.field("type", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("user", pa.string()),
        pa.field("x", pa.float64()),
    ]
)


def events(*rows: tuple[float, str, int]) -> pa.Table:
    """Rows of (seconds after the start, type, id)."""
    seconds, types, ids = zip(*rows, strict=True)
    columns = {
        "t": instants([START + round(second * SECOND) for second in seconds]),
        "type": pa.array(types),
        "id": pa.array(ids, pa.int64()),
        "user": pa.array([f"user {number}" for number in ids]),
        "x": pa.array([float(number) for number in range(len(rows))]),
    }
    return pa.table(columns, schema=SCHEMA)


def far_row() -> pa.Table:
    """A row that no query asks for, after all others."""
    return events(((FAR - START) / SECOND, "Z", 0))


def history(rows: int, keys: int, seconds: int, seed: int) -> pa.Table:
    """Random events in the order of time; times repeat, some users and numbers are null."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, seconds * 100, rows)) * 10_000
    ids = random.integers(0, keys, rows)
    users = np.char.add("user ", ids.astype(str)).astype(object)
    users[random.random(rows) < 0.05] = None
    return pa.table(
        {
            "t": instants(START + times),
            "type": pa.array(random.choice(list("ABCDE"), rows)),
            "id": pa.array(ids),
            "user": pa.array(users, pa.string()),
            "x": pa.array(random.random(rows).round(3), mask=random.random(rows) < 0.05),
        },
        schema=SCHEMA,
    )


def detect(frame: Any, query: str, **options: Any) -> Any:
    return ensue.detect(frame, query, time="t", type="type", **options)


# --- the batch run is the measure


@pytest.mark.parametrize(
    ("seed", "parts", "query"),
    [
        (1, 4, "PATTERN SEQ(A a, B b, NOT D d, C c) WHERE a.x < c.x PARTITION BY id WITHIN 20 seconds"),
        (
            2,
            3,
            "PATTERN SEQ(A a [x > 0.9], NOT AND(B, C)) PARTITION BY user WITHIN 5 seconds RETURN a.user AS u, a.x AS x",
        ),
        (3, 5, "PATTERN OR(SEQ(A a, NOT B b, C c) WITHIN 1 EVENT, AND(D d, NOT D other)) WITHIN 20 ms"),
        (4, 3, "PATTERN SEQ(A a, B b) PARTITION BY id, user WITHIN 12 EVENTS RETURN a.t AS since, b.t - a.t AS lasted"),
    ],
)
def test_any_cut_and_disorder(seed: int, parts: int, query: str, spark: SparkSession, tmp_path: Path) -> None:
    """Rows, types and ids of matches; times that repeat count nowhere but in positions, where they must differ."""
    table = history(3000, 40, 120, seed)
    if "EVENTS" in query:
        table = table.set_column(0, SCHEMA.field("t"), instants(START + np.arange(3000) * 40_000))
    ends = table.column("t").cast(pa.int64()).to_numpy()
    arrived = table.take(pa.array(disordered(ends, 3 * SECOND, seed)))
    feed = feed_of(tmp_path / "in", [*cut(arrived, parts, seed), far_row()])
    ran = run_to_end(
        detect(feed.stream(spark, "t", "3 seconds"), query, match_id=True, limits=ensue.Limits(matches=None)),
        tmp_path / "checkpoint",
    )
    batch = detect(table, query, match_id=True, limits=ensue.Limits(matches=None))
    assert batch.num_rows > 20
    assert ran.rows.schema == batch.schema
    assert lines(ran.rows) == lines(batch)
    assert len([rows for rows in ran.batches.values() if rows.num_rows]) > 1
    assert (ran.total("matches"), ran.total("late"), ran.total("timed_out")) == (batch.num_rows, 0, 0)


def test_idle_keys_complete_by_the_events_of_others(spark: SparkSession, tmp_path: Path) -> None:
    """Events that no query asks for move the watermark, and with it the keys that have no events any more."""
    query = "PATTERN SEQ(A a, NOT B b) PARTITION BY id WITHIN 5 seconds RETURN a.id AS id, a.t AS at"
    parts = [
        events((0, "A", 1), (0, "A", 2), (1, "B", 2), (2, "A", 3)),
        events((5.9, "Z", 99)),
        events((7.9, "Z", 99)),
        events((8.1, "Z", 99)),
    ]
    feed = feed_of(tmp_path / "in", parts)
    ran = run_to_end(detect(feed.stream(spark, "t", "1 second"), query), tmp_path / "checkpoint")
    start = START // 1000
    when = {
        row["id"]: ran.watermarks[batch] - start for batch, table in ran.batches.items() for row in table.to_pylist()
    }
    # Watermarks, a second behind: none, 1 s, 4.9 s, 6.9 s, 7.1 s. Key 1 completes at 5 s, key 3 at 7 s, key 2 never.
    assert when == {1: 6900, 3: 7100}


def test_late_rows_are_counted_and_take_no_part(spark: SparkSession, tmp_path: Path) -> None:
    query = "PATTERN SEQ(A a, NOT B b, C c) PARTITION BY id WITHIN 1 minute"
    parts = [
        events((0, "A", 1), (100, "C", 1)),
        events((60, "A", 1), (89, "A", 1), (89.5, "B", 1), (90, "B", 1), (90.5, "A", 1), (50, "Z", 1)),
        far_row(),
    ]
    feed = feed_of(tmp_path / "in", parts)
    ran = run_to_end(detect(feed.stream(spark, "t", "10 seconds"), query), tmp_path / "checkpoint")
    assert [(row["a"]["x"], row["c"]["x"]) for row in ran.rows.to_pylist()] == [(4.0, 1.0)]
    # 60 s, 89 s, 89.5 s and 90 s, at the watermark itself; the one of another type was of no use anyway.
    assert ran.total("late") == 4
    assert ran.progress[1]["observedMetrics"]["ensue"]["late"] == 4


def test_eager_matches_do_not_wait_for_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    """With an hour of delay nothing is complete, but everything has come."""
    table = history(1500, 20, 60, seed=5)
    query = "PATTERN SEQ(A a, B b, C c) PARTITION BY id WITHIN 6 seconds"
    shuffled = table.take(pa.array(np.random.default_rng(6).permutation(table.num_rows)))
    feed = feed_of(tmp_path / "in", cut(shuffled, 4, seed=7))
    frame = feed.stream(spark, "t", "1 hour")
    ran = run_to_end(detect(frame, query, emit="eager", match_id=True), tmp_path / "eager")
    batch = detect(table, query, match_id=True)
    assert batch.num_rows > 20
    assert lines(ran.rows) == lines(batch)
    assert {batch for batch, rows in ran.batches.items() if rows.num_rows} >= {1, 2, 3}


def test_several_streams_with_different_delays(spark: SparkSession, tmp_path: Path) -> None:
    """The slowest watermark counts: a shipment may come 20 seconds late although orders come in time."""
    random = np.random.default_rng(8)
    placed = np.sort(random.integers(0, 60 * SECOND, 400)) + START
    sent = placed + random.integers(1, 10 * SECOND, 400)
    orders = pa.table(
        {"placed": instants(placed), "number": pa.array(np.arange(400)), "x": pa.array(random.random(400))}
    )
    shipped = pa.table({"sent": instants(sent), "number": pa.array(np.arange(400, dtype=np.int32))}).slice(0, 350)
    query = (
        "PATTERN SEQ(Order o, NOT Shipped s) PARTITION BY number WITHIN 5 seconds RETURN o.number AS number, o.x AS x"
    )
    times = {"Order": "placed", "Shipped": "sent"}
    late_order = disordered(shipped.column("sent").cast(pa.int64()).to_numpy(), 20 * SECOND, seed=9)
    far = {"placed": FAR, "sent": FAR, "number": -1, "x": None}
    feeds = {
        name: feed_of(tmp_path / name, [*cut(table, 3, seed=10), last_row(table.schema, far)])
        for name, table in (("Order", orders), ("Shipped", shipped.take(pa.array(late_order))))
    }
    delays = {"Order": "1 second", "Shipped": "20 seconds"}
    frames = {name: feed.stream(spark, times[name], delays[name]) for name, feed in feeds.items()}
    ran = run_to_end(ensue.detect(frames, query, time=times), tmp_path / "checkpoint")
    batch = ensue.detect({"Order": orders, "Shipped": shipped}, query, time=times)
    assert 50 < batch.num_rows < 400
    assert lines(ran.rows) == lines(batch)
    assert ran.total("late") == 0


def last_row(schema: pa.Schema, values: dict[str, Any]) -> pa.Table:
    return pa.table([pa.array([values[field.name]]).cast(field.type) for field in schema], schema=schema)


def test_integer_time(spark: SparkSession, tmp_path: Path) -> None:
    """Any watermark will do that says how far the integers have come."""
    table = pa.table(
        {"n": [1, 2, 8, 20, 21], "type": list("AABZZ"), "at": instants([1_000, 2_000, 8_000, 20_000, 99_000])}
    )
    feed = feed_of(tmp_path / "in", [table.slice(0, 3), table.slice(3, 1), table.slice(4)])
    query = "PATTERN SEQ(A a, NOT B b) WITHIN 6 RETURN a.n AS n"
    found = ensue.detect(feed.stream(spark, "at"), query, time="n", type="type", tick="1 ms")
    ran = run_to_end(found, tmp_path / "checkpoint")
    assert ran.rows.to_pylist() == [{"n": 1}]


# --- matches as events of another stream


@pytest.mark.slow
def test_matches_are_events_of_the_next_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Pairs go to files, files are read as a stream of intervals: the batch of the batch."""
    pairs = (
        "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 2 seconds RETURN a.id AS id, a.t AS start, b.t AS end, a.x AS x"
    )
    twice = "PATTERN SEQ(Pair p, NOT Pair other [x > 0.9], Pair q) WHERE p.x > q.x PARTITION BY id WITHIN 10 seconds"
    table = history(1500, 15, 60, seed=11)
    last = (FAR - START) / SECOND
    ending = [events((last, "A", 0), (last + 1, "B", 0)), events((last + 999, "Z", 0))]
    feed = feed_of(tmp_path / "in", [*cut(table, 3, seed=12), *ending])
    first = detect(feed.stream(spark, "t"), pairs)
    with settings(spark, SMALL):
        writer = first.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "first"))
        writer.trigger(availableNow=True).start(str(tmp_path / "pairs")).awaitTermination()
    reader = spark.readStream.schema(first.schema).option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "pairs"))
    second = {"Pair": reader.withWatermark("end", "5 seconds")}
    ran = run_to_end(ensue.detect(second, twice, time="start", end="end"), tmp_path / "second")
    batch = ensue.detect({"Pair": detect(table, pairs)}, twice, time="start", end="end")
    assert batch.num_rows > 20
    assert lines(ran.rows) == lines(batch)
    assert ran.total("late") == 0


# --- what is told before anything runs


def marked(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("t", "1 second")


REFUSALS: dict[str, tuple[str, Callable[[DataFrame], Any], str, dict[str, Any]]] = {
    "no watermark": ("no-watermark", lambda frame: frame, "PATTERN A a", {}),
    "a watermark on another column": (
        "watermark-column",
        lambda frame: frame.withColumn("seen", F.col("t")).withWatermark("seen", "1 second"),
        "PATTERN A a",
        {},
    ),
    "a watermark on the start of events that last": (
        "watermark-column",
        lambda frame: marked(frame.withColumn("until", F.col("t"))),
        "PATTERN A a",
        {"end": "until"},
    ),
    "a time without a zone": (
        "stream-time",
        lambda frame: marked(frame).withColumn("ntz", F.col("t").cast("timestamp_ntz")),
        "PATTERN A a",
        {"time": "ntz"},
    ),
    "integer time without a tick": ("no-tick", marked, "PATTERN A a", {"time": "id"}),
    "a tick that is no length": ("no-tick", marked, "PATTERN A a", {"time": "id", "tick": "often"}),
    "no such time column": ("no-such-column", marked, "PATTERN A a", {"time": "when"}),
    "no such field": ("no-such-field", marked, "PATTERN A a [amount > 1]", {}),
    "no such key": ("no-such-field", marked, "PATTERN A a PARTITION BY account", {}),
    "a number compared with a text": ("type-clash", marked, "PATTERN A a [x = 'high']", {}),
    "a time that is a text": ("time-type", marked, "PATTERN A a", {"time": "user"}),
    "a key that cannot be grouped": (
        "type-clash",
        lambda frame: marked(frame.withColumn("tags", F.array("user"))),
        "PATTERN A a PARTITION BY tags",
        {},
    ),
    "a stream beside a table": (
        "mixed-frames",
        lambda frame: {"A": marked(frame), "B": frame.sparkSession.createDataFrame([], frame.schema)},
        "PATTERN SEQ(A a, B b) WITHIN 1 hour",
        {"type": None},
    ),
    "a negation that is to be eager": (
        "eager-not",
        marked,
        "PATTERN SEQ(A a, NOT B b, C c) WITHIN 1 hour",
        {"emit": "eager"},
    ),
}


@pytest.mark.parametrize("title", REFUSALS)
def test_refusals(title: str, spark: SparkSession, tmp_path: Path) -> None:
    code, change, query, options = REFUSALS[title]
    frame = Feed(tmp_path / "in", SCHEMA).stream(spark, None)
    with pytest.raises(EnsueError) as refusal:
        ensue.detect(change(frame), query, **{"time": "t", "type": "type", **options})
    assert refusal.value.code == code  # type: ignore[attr-defined]
    assert f"error[{code}]" in str(refusal.value)


# --- restarts


@pytest.mark.slow
def test_restarts_and_another_query_on_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """A stream goes on where it was. One of another query fails and says so, and then nothing is lost or twice."""
    query = "PATTERN SEQ(A a, B b, NOT C c) PARTITION BY id WITHIN 5 seconds"
    table = history(1200, 20, 60, seed=13)
    parts = cut(table, 3, seed=14)
    feed = feed_of(tmp_path / "in", parts[:1])
    found: list[pa.Table] = []

    def go_on(text: str, more: Sequence[pa.Table]) -> None:
        for part in more:
            feed.put(part)
        frame = detect(feed.stream(spark, "t", "1 second"), text, match_id=True)
        found.extend(run_to_end(frame, tmp_path / "checkpoint").batches.values())

    go_on(query, [])
    before = len(found)
    with pytest.raises(StreamingQueryException, match="state-query") as failure:
        go_on(query.replace("5 seconds", "4 seconds"), parts[1:2])
    assert "belongs to another query" in str(failure.value)
    assert len(found) == before
    go_on(query, parts[2:])
    go_on(query, [far_row()])
    batch = detect(table, query, match_id=True)
    assert batch.num_rows > 20
    assert lines(pa.concat_tables(found)) == lines(batch)
