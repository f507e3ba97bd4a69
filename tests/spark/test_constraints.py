"""Constraints on Spark: the same matches and violations as in process, in batch and on a stream, with less state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import ensue
from spark.streams import FAR, SECOND, SMALL, START, feed_of, instants, lines, run_to_end, settings

CONSTRAINTS = """
CONSTRAINT EXCLUSIVE(Local, Remote);
CONSTRAINT PRIOR(Check, Remote);
CONSTRAINT PRIOR(Remote, Invoice);
CONSTRAINT REQUIRE(Invoice, Check);
CONSTRAINT Rush AND Local IMPLIES NOT Invoice;
CONSTRAINT ENDS(Finish);
"""
PATTERN = """
PATTERN remote SEQ(Check c, Remote r, Invoice i [price > 200]) PARTITION BY id
  RETURN c.id AS id, c.t AS checked, i.t AS invoiced
"""
PROGRAM = CONSTRAINTS + PATTERN
KINDS = ["Check", "Local", "Remote", "Invoice", "Rush", "Other"]


def history(traces: int, seed: int, lawful: float) -> pa.Table:
    """Traces that mix; a share of them goes through the process as it should, the others are drawn at random."""
    random = np.random.default_rng(seed)
    times, kinds, keys = [], [], []
    for trace in range(traces):
        if random.random() < lawful:
            stock = "Local" if random.random() < 0.7 else "Remote"
            own = ["Check", stock, "Invoice", "Invoice", "Other", "Finish"]
        else:
            own = [*random.choice(KINDS, random.integers(1, 7)), "Finish"][: random.integers(1, 8)]
        begin = random.integers(0, 400)
        kinds += own
        keys += [trace] * len(own)
        times += list(begin + np.cumsum(random.integers(1, 20, len(own))))
    table = pa.table(
        {
            "t": instants(START + np.array(times) * SECOND),
            "type": pa.array(kinds, pa.string()),
            "id": pa.array(keys, pa.int64()),
            "price": random.integers(0, 400, len(kinds)),
        }
    )
    return table.sort_by("t")


def pieces(table: pa.Table, count: int) -> Iterator[pa.Table]:
    """The table in batches, and a row after all others, which moves the watermark beyond them."""
    size = -(-table.num_rows // count)
    for place in range(0, table.num_rows, size):
        yield table.slice(place, size)
    last = {"t": instants([FAR]), "type": ["Nothing"], "id": [0], "price": [0]}
    yield pa.table(last, schema=table.schema)


@pytest.mark.parametrize("lawful", [1.0, 0.5])
def test_batch_gives_what_the_process_gives(lawful: float, spark: SparkSession, tmp_path: Path) -> None:
    table = history(120, 1, lawful)
    pq.write_table(table, tmp_path / "events.parquet")
    frame = spark.read.parquet(str(tmp_path / "events.parquet"))
    with settings(spark, SMALL):
        found = ensue.detect(frame, PROGRAM, time="t", type="type").toArrow()
        broken = ensue.violations(frame, PROGRAM, time="t", type="type").toArrow()
    expected = ensue.detect(table, PROGRAM, time="t", type="type")
    assert expected.num_rows > 0
    assert lines(found) == lines(expected)
    assert lines(broken) == lines(ensue.violations(table, PROGRAM, time="t", type="type"))
    assert (broken.num_rows == 0) == (lawful == 1.0)


def test_batch_of_one_table_per_stream(spark: SparkSession) -> None:
    table = history(60, 2, 0.7)
    names = [*KINDS, "Finish"]
    tables = {name: table.filter(pa.compute.equal(table["type"], name)).drop_columns("type") for name in names}
    frames = {name: spark.createDataFrame(part.to_pandas()) for name, part in tables.items()}
    with settings(spark, SMALL):
        found = ensue.detect(frames, PROGRAM, time="t").toArrow()
    assert lines(found) == lines(ensue.detect(tables, PROGRAM, time="t"))


@pytest.mark.parametrize("lawful", [1.0, 0.5])
def test_a_stream_gives_what_a_batch_gives(lawful: float, spark: SparkSession, tmp_path: Path) -> None:
    table = history(80, 3, lawful)
    feed = feed_of(tmp_path / "events", list(pieces(table, 3)))
    found = ensue.detect(feed.stream(spark, "t"), PROGRAM, time="t", type="type", buckets=2)
    ran = run_to_end(found, tmp_path / "checkpoint")
    assert lines(ran.rows) == lines(ensue.detect(table, PROGRAM, time="t", type="type"))


@pytest.mark.slow
def test_violations_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    table = history(80, 4, 0.5)
    feed = feed_of(tmp_path / "events", list(pieces(table, 3)))
    with settings(spark, SMALL):
        running = ensue.start(
            feed.stream(spark, "t"),
            PROGRAM,
            to=str(tmp_path / "matches"),
            violations=str(tmp_path / "violations"),
            checkpointLocation=str(tmp_path / "checkpoint"),
            time="t",
            type="type",
            buckets=2,
            trigger={"availableNow": True},
        )
        assert running.awaitTermination(120)
    matches = spark.read.parquet(str(tmp_path / "matches")).drop("batch").toArrow()
    broken = spark.read.parquet(str(tmp_path / "violations")).drop("batch", "matches_missing").toArrow()
    # What may be missing is said as it is known when the violation comes to light.
    expected = ensue.violations(table, PROGRAM, time="t", type="type").drop_columns("matches_missing")
    assert expected.num_rows > 0
    assert lines(broken) == lines(expected)
    assert lines(matches) == lines(ensue.detect(table, PROGRAM, time="t", type="type"))


@pytest.mark.slow
def test_the_state_shrinks_and_a_change_of_constraints_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = history(200, 5, 1.0)
    half = table.slice(0, table.num_rows // 2)
    kept = {}
    ends_only = "CONSTRAINT ENDS(Finish);"
    for name, constraints in (("some", ends_only), ("all", CONSTRAINTS)):
        feed = feed_of(tmp_path / f"events-{name}", [half.slice(0, 200), half.slice(200)])
        with settings(spark, SMALL):
            ensue.start(
                feed.stream(spark, "t"),
                constraints + PATTERN,
                to=str(tmp_path / f"matches-{name}"),
                checkpointLocation=str(tmp_path / name),
                time="t",
                type="type",
                buckets=2,
                trigger={"availableNow": True},
            ).awaitTermination(120)
        kept[name] = ensue.stream_state(str(tmp_path / name), spark).toPandas()["events"].sum()
    assert 0 < kept["all"] < kept["some"]
    with pytest.raises(ensue.StateError) as caught:
        ensue.start(
            feed_of(tmp_path / "more", [half]).stream(spark, "t"),
            ends_only + PATTERN,
            to=str(tmp_path / "matches-more"),
            checkpointLocation=str(tmp_path / "all"),
            time="t",
            type="type",
            buckets=2,
            upgrade=True,
        )
    assert caught.value.code == "state-constraints"
