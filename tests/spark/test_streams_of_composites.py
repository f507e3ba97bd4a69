"""Statements that use each other's matches, on Spark: the rows, types and ids of the run in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ensue
from ensue import StateError
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
    [("t", INSTANT), ("type", pa.string()), ("who", pa.int64()), ("shop", pa.string()), ("n", pa.int64())]
)

VISIT = """
    STREAM Visit FROM PATTERN SEQ(Enter e, Leave l) PARTITION BY who, shop WITHIN 2 seconds
    RETURN e.who AS who, l.shop AS shop, e.n AS n;
"""
UNPAID = """
    STREAM Unpaid FROM PATTERN SEQ(Visit v, NOT Pay p) PARTITION BY who WITHIN 3 seconds RETURN v.who AS who, v.n AS n;
"""
TRAILING = (
    UNPAID
    + VISIT
    + """
    PATTERN SEQ(Unpaid u, Enter e) PARTITION BY who WITHIN 6 seconds
    RETURN u.n AS n, u.e AS known, e.n AS again, lineage() AS ids
"""
)
NO_SHARED_KEY = (
    VISIT
    + """
    PATTERN SEQ(Visit v, NOT Visit other, Pay p) WHERE v.n < other.n PARTITION BY shop WITHIN 5 seconds
"""
)
PROGRAMS = {
    "three levels, a key that all hand on": (TRAILING, "who"),
    "a declared stream under NOT, other keys above": (NO_SHARED_KEY.replace("e.who AS who, ", ""), "shop"),
    "no key that is handed on": (
        VISIT.replace("e.who AS who, l.shop AS shop, ", "e.n % 5 AS five, ")
        + """
        PATTERN SEQ(Visit a, Visit b) PARTITION BY five WITHIN 4 seconds RETURN a.n AS one, b.n AS two""",
        None,
    ),
}


def history(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, rows * 4, rows)) * 10_000
    return pa.table(
        {
            "t": instants(START + times),
            "type": random.choice(["Enter", "Leave", "Pay", "Other"], rows),
            "who": pa.array(random.integers(0, 12, rows), mask=random.random(rows) < 0.05),
            "shop": random.choice(["north", "south"], rows),
            "n": np.arange(rows),
        },
        schema=SCHEMA,
    )


def far_row() -> pa.Table:
    return pa.table({"t": instants([FAR]), "type": ["Z"], "who": [0], "shop": ["north"], "n": [0]}, schema=SCHEMA)


def detect(events: Any, program: str, **options: Any) -> Any:
    return ensue.detect(events, program, time="t", type="type", match_id=True, **options)


@pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_batch_and_stream_are_the_run_in_this_process(name: str, spark: SparkSession, tmp_path: Path) -> None:
    program, shared = PROGRAMS[name]
    table = history(1200, seed=len(name))
    expected = detect(table, program)
    assert expected.num_rows > 20
    frame = spark.createDataFrame(table)
    found = detect(frame, program).toArrow()
    assert found.schema == expected.schema
    assert lines(found) == lines(expected)
    assert (f"shuffled by {shared}" in ensue.explain(program)) == (shared is not None)

    ends = table.column("t").cast(pa.int64()).to_numpy()
    arrived = table.take(pa.array(disordered(ends, 3 * SECOND, seed=1)))
    feed = feed_of(tmp_path / "in", [*cut(arrived, 4, seed=2), far_row()])
    ran = run_to_end(detect(feed.stream(spark, "t", "3 seconds"), program), tmp_path / "checkpoint")
    assert lines(ran.rows) == lines(expected)
    assert len([rows for rows in ran.batches.values() if rows.num_rows]) > 1
    assert (ran.total("matches"), ran.total("late")) == (expected.num_rows, 0)


def test_tables_per_stream_and_several_results(spark: SparkSession) -> None:
    """What hangs together by a stream is found together; the other pattern by itself."""
    program = (
        VISIT
        + """
        PATTERN paid SEQ(Visit v, Pay p) PARTITION BY who WITHIN 5 seconds RETURN v.n AS n, p.n AS paid;
        PATTERN visits (Visit v) PARTITION BY who RETURN v.n AS n, v.e AS until;
        PATTERN entered (Enter e) RETURN e.n AS n
    """
    )
    table = history(800, seed=3)
    tables = {
        name: table.filter(pa.compute.equal(table["type"], name)).drop_columns("type")
        for name in ("Pay", "Leave", "Enter")
    }
    expected = ensue.run(tables, program, time="t")
    found = ensue.run({name: spark.createDataFrame(own) for name, own in tables.items()}, program, time="t")
    assert len(found.shared) == 1
    assert list(found) == ["paid", "visits", "entered"]
    for name, matches in found.items():
        assert lines(matches.toArrow()) == lines(expected[name]) != []
    found.release()


@pytest.mark.slow
def test_a_stream_goes_on_after_a_restart_and_shows_what_it_keeps(spark: SparkSession, tmp_path: Path) -> None:
    table = history(900, seed=5)
    program = (
        TRAILING.replace("PATTERN SEQ(Unpaid", "PATTERN returned SEQ(Unpaid")
        + """;
        PATTERN pairs SEQ(Enter a, Pay b) PARTITION BY who WITHIN 1 second RETURN a.n AS a, b.n AS b
    """
    )
    parts = cut(table, 4, seed=7)
    feed = Feed(tmp_path / "in", SCHEMA)
    for part in parts[:2]:
        feed.put(part)
    _run(spark, program, feed, tmp_path)
    kept = ensue.stream_state(str(tmp_path / "checkpoint"), spark).toArrow().to_pylist()
    assert {"Visit", "Unpaid"} & {stream for row in kept for stream, _ in row["streams"]}
    assert all(row["key"] for row in kept)
    with pytest.raises(StateError) as caught:
        _run(spark, program.replace("3 seconds", "2500 ms"), feed, tmp_path, upgrade=True)
    assert caught.value.code == "state-streams"
    for part in (*parts[2:], far_row()):
        feed.put(part)
    _run(spark, program, feed, tmp_path)
    expected = ensue.run(table, program, time="t", type="type", match_id=True)
    for name, matches in expected.items():
        written = spark.read.parquet(str(tmp_path / name)).drop("batch").toArrow()
        assert lines(written) == lines(matches) != []


def _run(spark: SparkSession, program: str, feed: Feed, folder: Path, **options: Any) -> None:
    names = ensue.parse(program).names
    with settings(spark, SMALL):
        running = ensue.start(
            feed.stream(spark, "t"),
            program,
            to={name: str(folder / name) for name in names},
            checkpointLocation=str(folder / "checkpoint"),
            time="t",
            type="type",
            match_id=True,
            buckets=2,
            trigger={"availableNow": True},
            status=False,
            **options,
        )
    running.awaitTermination()
    assert len(running.queries) == 1


def test_a_key_without_events_wakes_up_for_what_completes_by_time(spark: SparkSession, tmp_path: Path) -> None:
    """The event of the lower level completes with its window, and so does the match that it is part of."""
    program = """
        STREAM Lone FROM PATTERN SEQ(Enter e, NOT Pay p) PARTITION BY who WITHIN 5 seconds RETURN e.who, e.n;
        PATTERN SEQ(Lone l, NOT Leave q) PARTITION BY who WITHIN 8 seconds RETURN l.n AS n, l.e AS known
    """
    feed = feed_of(tmp_path / "in", [_rows((0, 1), (2, 2)), _rows((6, 9)), _rows((9, 9)), _rows((11, 9))])
    ran = run_to_end(detect(feed.stream(spark, "t"), program), tmp_path / "checkpoint")
    found = [row for number in sorted(ran.batches) for row in ran.batches[number].to_pylist()]
    assert [row["n"] for row in found] == [1, 2]
    assert len([rows for rows in ran.batches.values() if rows.num_rows]) == 2


def _rows(*events: tuple[int, int]) -> pa.Table:
    """Rows of (seconds after the start, number), which is also the key; those of number 9 are of no stream."""
    seconds, numbers = zip(*events, strict=True)
    return pa.table(
        {
            "t": instants([START + second * SECOND for second in seconds]),
            "type": ["Z" if number == 9 else "Enter" for number in numbers],
            "who": numbers,
            "shop": ["north"] * len(events),
            "n": numbers,
        },
        schema=SCHEMA,
    )


@pytest.mark.slow
def test_eager_matches_of_matches(spark: SparkSession, tmp_path: Path) -> None:
    program = VISIT + "PATTERN SEQ(Visit v, Pay p) PARTITION BY who WITHIN 9 seconds RETURN v.n AS n, p.n AS paid"
    table = history(600, seed=11)
    ends = table.column("t").cast(pa.int64()).to_numpy()
    arrived = table.take(pa.array(disordered(ends, 3 * SECOND, seed=1)))
    feed = feed_of(tmp_path / "in", cut(arrived, 3, seed=2))
    ran = run_to_end(detect(feed.stream(spark, "t", "3 seconds"), program, emit="eager"), tmp_path / "checkpoint")
    assert lines(ran.rows) == lines(detect(table, program)) != []
