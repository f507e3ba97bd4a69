"""Keys of different names on Spark: several tasks get the events by the fields that a query compares; batch = stream =
one process, and checkpoints keep these fields."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import ensue
from spark.streams import FAR, INSTANT, SMALL, START, Feed, cut, feed_of, instants, lines, run_to_end, settings

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

SCHEMA = pa.schema(
    [("at", INSTANT), ("kind", pa.string()), ("src", pa.int64()), ("dst", pa.float64()), ("word", pa.string())]
)
JOINED = {
    "a pattern": "PATTERN SEQ(A a, B b) WHERE a.src = b.dst WITHIN 1 second",
    "a NOT and a list": """
        PATTERN SEQ(A a, NOT C n, B b, COLLECT D d) WHERE a.src = b.dst AND n.dst = a.src AND d.src = b.dst
        WITHIN 2 seconds RETURN a.at AS since, b.at AS at, count(d) AS more""",
    "text": "PATTERN AND(A a, B b) WHERE upper(a.word) = 'X' AND a.word = b.word AND a.src <> b.dst WITHIN 1 second",
    "three names": """
        PATTERN SEQ(A a, B b, C c) WHERE a.src = b.dst AND c.src = b.dst WITHIN 3 seconds RETURN c.at AS at""",
}
COPIED = {
    "two keys of a row": "PATTERN SEQ(A a, A b) WHERE a.dst = b.src",
    "a NOT with another key": """
        PATTERN SEQ(A a, NOT A n, B b) WHERE a.dst = b.src AND n.src = a.dst RETURN a.at AS since, b.at AS at""",
    "rounds": "PATTERN SEQ(A a{2}, B b, COLLECT A c, C d) WHERE a.dst = b.src AND c.src = b.src AND d.src = b.src",
}
RULES = {
    "a chain": "RULE h(u, w) <- x: A(src=u, dst=w), y: B(dst=u); RULE g(u) <- i: h(u=u), j: C(src=u)",
    "events used alone": "RULE h(u) <- A(src=u); RULE h(u) <- B(dst=u); RULE g(u) <- i: h(u=u), j: C(dst=u)",
}


def history(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = {
        "at": instants(START + np.sort(random.integers(0, rows * 4, rows)) * 10_000),
        "kind": random.choice([*"ABCD"], rows),
        "src": pa.array(random.integers(0, 6, rows), mask=random.random(rows) < 0.1),
        "dst": pa.array(random.integers(0, 6, rows).astype(float), mask=random.random(rows) < 0.1),
        "word": pa.array(random.choice([*"xyz"], rows), mask=random.random(rows) < 0.1),
    }
    return pa.table(columns).cast(SCHEMA)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table)


def is_joined(found: DataFrame) -> bool:
    return "ensue:joined" in found._jdf.queryExecution().analyzed().toString()


@pytest.mark.parametrize("query", {**JOINED, **COPIED}.values(), ids=[*JOINED, *COPIED])
def test_batch_gives_what_one_process_gives(query: str, spark: SparkSession) -> None:
    table = history(150, 3)
    expected = ensue.detect(table, query, time="at", type="kind", match_id=True)
    assert expected.num_rows > 5
    found = ensue.detect(frame_of(spark, table), query, time="at", type="kind", match_id=True)
    assert is_joined(found)
    assert lines(found.toArrow().cast(expected.schema)) == lines(expected)


@pytest.mark.parametrize("program", RULES.values(), ids=[*RULES])
def test_rules_in_batch(program: str, spark: SparkSession) -> None:
    table = history(80, 5)
    expected = ensue.run(table, program, time="at", type="kind")
    found = ensue.run(frame_of(spark, table), program, time="at", type="kind")
    for name, own in expected.items():
        assert own.num_rows > 5
        assert lines(found[name].toArrow().cast(own.schema)) == lines(own)
    assert is_joined(found["h"])


def test_a_table_for_each_stream(spark: SparkSession) -> None:
    table = history(120, 4)
    tables = {kind: table.filter(pa.compute.equal(table["kind"], kind)).drop_columns("kind") for kind in "ABC"}
    query = "PATTERN SEQ(A a, NOT C n, B b) WHERE a.src = b.dst AND n.src = b.dst AND a.at < b.at"
    expected = ensue.detect(tables, query, time="at")
    found = ensue.detect({kind: frame_of(spark, own) for kind, own in tables.items()}, query, time="at")
    assert is_joined(found)
    assert lines(found.toArrow().cast(expected.schema)) == lines(expected)


def test_patterns_with_several_keys_and_with_none(spark: SparkSession) -> None:
    program = "; ".join(f"PATTERN p{place} {query[8:]}" for place, query in enumerate([*JOINED.values()][:1]))
    program += "; PATTERN q SEQ(A a, A b) WHERE a.dst = b.src; PATTERN r SEQ(A a, C b) WHERE a.src = b.dst"
    program += "; PATTERN s SEQ(C a, D b) WHERE a.src > b.dst"
    table = history(60, 6)
    expected = ensue.run(table, program, time="at", type="kind")
    found = ensue.run(frame_of(spark, table), program, time="at", type="kind")
    for name, own in expected.items():
        assert lines(found[name].toArrow().cast(own.schema)) == lines(own)


def test_work_is_in_several_tasks(spark: SparkSession) -> None:
    table = history(200, 7)
    with settings(spark, {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "4"}):
        found = ensue.detect(
            frame_of(spark, table), "PATTERN SEQ(A a, B b) WHERE a.src = b.dst", time="at", type="kind"
        )
        assert found.select(F.spark_partition_id()).distinct().count() > 1
        one = ensue.detect(frame_of(spark, table), "PATTERN SEQ(A a, B b) WHERE a.src > b.dst", time="at", type="kind")
        assert one.select(F.spark_partition_id()).distinct().count() == 1


@pytest.mark.parametrize("name", ["a NOT and a list", "text"])
def test_streams_give_what_one_process_gives(name: str, spark: SparkSession, tmp_path: Path) -> None:
    table, query = history(150, 3), JOINED[name]
    expected = ensue.detect(table, query, time="at", type="kind")
    last = table.slice(0, 1).set_column(0, "at", instants([FAR]))
    feed: Feed = feed_of(tmp_path / "events", [*cut(table, 3, seed=1), last])
    found = ensue.detect(feed.stream(spark, "at"), query, time="at", type="kind", buckets=3)
    ran = run_to_end(found, tmp_path / "checkpoint")
    rows = [row for batch in ran.batches.values() for row in lines(batch.cast(expected.schema))]
    assert sorted(rows) == lines(expected)


def test_a_checkpoint_keeps_the_fields(spark: SparkSession, tmp_path: Path) -> None:
    """A stream continues with the same fields; a query with others, or with another number of buckets, is refused."""
    table = history(120, 8)
    query = "PATTERN SEQ(A a, B b) WHERE a.src = b.dst WITHIN 1 second RETURN a.at AS since, b.at AS at, a.src AS src"
    expected = ensue.detect(table, query, time="at", type="kind")
    parts = cut(table, 2, seed=2)
    feed = feed_of(tmp_path / "events", parts[:1])
    found: list[pa.Table] = []
    options = {
        "to": lambda rows, batch: found.append(rows.toArrow()),
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "time": "at",
        "type": "kind",
        "trigger": {"availableNow": True},
        "status": False,
    }
    with settings(spark, SMALL):
        ensue.start(feed.stream(spark, "at"), query, **options).awaitTermination()
        state = ensue.stream_state(options["checkpointLocation"], spark)
        assert state.select("bucket").distinct().count() > 1
        for part in [*parts[1:], table.slice(0, 1).set_column(0, "at", instants([FAR]))]:
            feed.put(part)
        other = query.replace("b.dst", "b.src")
        with pytest.raises(ensue.EnsueError, match=r"it needs events in buckets by B\.src"):
            ensue.start(feed.stream(spark, "at"), other, **options, upgrade=True)
        with pytest.raises(ensue.EnsueError, match="the checkpoint has 8 buckets"):
            ensue.start(feed.stream(spark, "at"), query, **options, buckets=1)
        ensue.start(feed.stream(spark, "at"), query, **options).awaitTermination()
    assert lines(pa.concat_tables(found).cast(expected.schema)) == lines(expected)


def test_one_bucket_is_what_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """With `buckets=1`, a checkpoint is that of a stream without keys, as earlier releases wrote it."""
    feed = feed_of(tmp_path / "events", [history(40, 8)])
    query, checkpoint = "PATTERN SEQ(A a, B b) WHERE a.src = b.dst WITHIN 1 second", str(tmp_path / "checkpoint")
    with settings(spark, SMALL), warnings.catch_warnings():
        ensue.start(
            feed.stream(spark, "at"),
            query,
            to=str(tmp_path / "matches"),
            checkpointLocation=checkpoint,
            time="at",
            type="kind",
            trigger={"availableNow": True},
            status=False,
            buckets=1,
        ).awaitTermination()
    (line,) = {row[0] for row in spark.read.text(f"{checkpoint}/ensue-manifest").collect()}
    assert '"buckets": 1' in line
    assert '"joined": []' in line
