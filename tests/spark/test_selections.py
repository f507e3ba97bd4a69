"""Streams of rows on Spark: pushed-down conditions, shuffles by computed keys; batch = stream = one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import ensue
from spark.streams import FAR, INSTANT, START, Feed, cut, feed_of, instants, lines, run_to_end

SCHEMA = pa.schema(
    [
        ("at", INSTANT),
        ("src", pa.int64()),
        ("dst", pa.int64()),
        ("message", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
LOGIN = """
    STREAM Failed FROM log WHERE message LIKE 'Failed%' RETURN lower(substr(message, 8, 1)) AS user, src;
    STREAM Accepted FROM log WHERE message LIKE 'Accepted%' RETURN lower(substr(message, 10, 1)) AS user;
    PATTERN SEQ(Failed f, NOT Failed other, Accepted a) PARTITION BY user WITHIN 1 second
    RETURN a.user AS user, f.src AS src, f.at AS since, a.at AS at
"""
TRANSFERS = """
    STREAM Received FROM transfers RETURN dst AS account;
    STREAM Sent FROM transfers RETURN src AS account;
    PATTERN AND(Received r, Sent s) PARTITION BY account WITHIN 100 ms
    RETURN r.account AS account, r.at AS since, s.at AS at
"""
PLAIN = """
    STREAM Failed FROM log WHERE message LIKE 'Failed%';
    PATTERN SEQ(Failed f, ANY EVENT BUT (Failed) e) PARTITION BY src WITHIN 300 ms RETURN f.src AS src, e.at AS at
"""
ELEMENTS = """
    STREAM Tag FROM log UNNEST tags AS tag AT place WHERE tag != 'x' RETURN tag, place, src;
    PATTERN SEQ(Tag a, NOT Tag other, Tag b) PARTITION BY tag WHERE other.src = 3 WITHIN 200 ms
    RETURN a.tag AS tag, a.src AS src, a.place AS i, a.at AS since, b.place AS j, b.at AS at
"""
BESIDE = """
    STREAM Word FROM log UNNEST split(message, ' ') AS word RETURN lower(word) AS word;
    STREAM Failed FROM log WHERE message LIKE 'Failed%' RETURN lower(substr(message, 8, 1)) AS word, src;
    STREAM Tag FROM log UNNEST tags AS tag RETURN tag AS word;
    PATTERN SEQ(Word w, Failed f, COLLECT Tag t) PARTITION BY word WITHIN 100 ms
    RETURN f.word AS word, f.src AS src, w.at AS since, f.at AS at, count(t) AS tags
"""
WHOLE = """
    STREAM Tag FROM log UNNEST tags AS tag;
    PATTERN SEQ(Tag a, ANY EVENT e, Tag b) PARTITION BY src WITHIN 300 ms ALLOWING TIES
    RETURN a.src AS src, a.tag AS a, a.at AS since, b.tag AS b, b.at AS at
"""
PROGRAMS = {
    "computed keys": LOGIN,
    "two keys of a row": TRANSFERS,
    "a key of the table": PLAIN,
    "elements with keys of their own": ELEMENTS,
    "elements of two lists beside rows": BESIDE,
    "elements with the key of their row": WHOLE,
}


def history(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    words = random.choice(["Failed ", "Accepted ", "Closed "], rows)
    users = random.choice([*"abcABC"], rows)
    columns = {
        "at": instants(START + np.sort(random.integers(0, rows * 4, rows)) * 10_000),
        "src": random.integers(0, 9, rows),
        "dst": pa.array(random.integers(0, 9, rows), mask=random.random(rows) < 0.1),
        "message": pa.array([word + user for word, user in zip(words, users, strict=True)]),
        "tags": [[*map(str, random.choice([*"abx"], random.integers(0, 4)))] for _ in range(rows)],
    }
    return pa.table(columns).cast(SCHEMA)


@pytest.mark.parametrize("name", PROGRAMS)
def test_batch_and_stream_give_what_one_process_gives(name: str, spark: SparkSession, tmp_path: Path) -> None:
    table, program = history(150, 3), PROGRAMS[name]
    found = ensue.detect(table, program, time="at")
    expected = lines(found)
    assert len(expected) > 5
    on_spark = ensue.detect(spark.createDataFrame(table.to_pandas()), program, time="at").toArrow()
    assert lines(on_spark.cast(found.schema)) == expected
    last = table.slice(0, 1).set_column(0, "at", instants([FAR]))
    feed: Feed = feed_of(tmp_path / "events", [*cut(table, 3, seed=1), last])
    ran = run_to_end(ensue.detect(feed.stream(spark, "at"), program, time="at", buckets=3), tmp_path / "checkpoint")
    assert sorted(row for batch in ran.batches.values() for row in lines(batch.cast(found.schema))) == expected


def test_conditions_are_pushed_down(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(history(20, 1), tmp_path / "log.parquet")
    frame = spark.read.parquet(str(tmp_path / "log.parquet"))
    plan = ensue.detect(frame, LOGIN, time="at")._jdf.queryExecution().optimizedPlan().toString()
    assert "StartsWith(message" in plan
    assert "Accepted" in plan
