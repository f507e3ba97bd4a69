"""`order=` on Spark: batches, ties in different micro-batches, restarts, the state, a changed order, and the notice."""

from __future__ import annotations

import io
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from rich.console import Console

import ensue
from inside import StatusLine, Tie, TieNotice, Totals, slices
from spark.streams import FAR, INSTANT, SECOND, SMALL, START, feed_of, instants, lines, settings

SCHEMA = pa.schema([("t", INSTANT), ("type", pa.string()), ("id", pa.int64()), ("line", pa.int64())])
PROGRAM = """
PATTERN pair SEQ(A a, NOT C c, B b) PARTITION BY id WITHIN 3 seconds RETURN a.line AS a, b.line AS b;
PATTERN near SEQ(A a, B b) PARTITION BY id WITHIN 3 EVENTS RETURN a.line AS a, b.line AS b;
PATTERN next SEQ(A a, B b) PARTITION BY id WITHIN 3 seconds MATCH NEXT RETURN a.line AS a, b.line AS b;
PATTERN once SEQ(A a, COLLECT C c, B b) PARTITION BY id WITHIN 3 seconds CONSUME
  RETURN a.line AS a, list(c.line) AS c, b.line AS b;
PATTERN chosen SEQ(AND(A a, B b), NOT A n, C c) PARTITION BY id WITHIN 3 seconds MATCH CHRONICLE
  RETURN a.line AS a, b.line AS b, c.line AS c
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
    names = ("pair", "near", "next", "once", "chosen")

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


# --- the notice about ties

TIED = """
PATTERN pair SEQ(A a, NOT C c, B b) PARTITION BY id WITHIN 3 seconds RETURN a.line AS a, b.line AS b;
PATTERN near SEQ(A a, B b, A d) PARTITION BY id WITHIN 4 seconds RETURN a.line AS a, b.line AS b;
PATTERN other SEQ(A a, B b) WHERE a.line < b.line PARTITION BY line WITHIN 3 seconds RETURN a.line AS a
"""
UNORDERED: dict[str, Any] = {"time": "t", "type": "type"}


def told(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(entry.message) for entry in caught if "ALLOWING TIES" in str(entry.message)]


def expected_ties(table: pa.Table) -> tuple[dict[str, tuple[int, Any]], list[str]]:
    """The matches and ties of each pattern in this process, and what is said about them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reports = ensue.run(table, TIED, **UNORDERED).reports
    assert {name: bool(report.ties) for name, report in reports.items()} == {"pair": True, "near": True, "other": False}
    return {name: (report.matches, report.ties) for name, report in reports.items()}, told(caught)


@pytest.mark.parametrize("overlaps", [16, 1])
def test_ties_of_a_batch(spark: SparkSession, overlaps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers as in this process, also if time is sliced, and one notice."""
    monkeypatch.setattr(slices, "OVERLAPS_PER_SLICE", overlaps)
    table = history(240, seed=5)
    numbers, words = expected_ties(table)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = ensue.run(spark.createDataFrame(table), TIED, **UNORDERED)
        for _ in range(2):
            assert {name: (report.matches, report.ties) for name, report in found.reports.items()} == numbers
        assert {name: frame.count() for name, frame in found.items()} == {name: own[0] for name, own in numbers.items()}
        found.release()
    assert sorted(told(caught)) == sorted(words)


def test_ties_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The progress has the same numbers as a run in this process, over a restart, and the handle says them once."""
    table = history(240, seed=6)
    flush = pa.table({"t": instants([FAR]), "type": ["Z"], "id": [0], "line": [0]}, schema=SCHEMA)
    feed = feed_of(tmp_path / "in", [table.slice(0, 100), table.slice(100, 80)])
    query = ";".join(TIED.split(";")[:2])
    sums: Counter[str] = Counter()
    words: list[str] = []
    for later in (None, (table.slice(180), flush)):
        for part in later or ():
            feed.put(part)
        with settings(spark, SMALL):
            handle = ensue.start(
                feed.stream(spark, "t", "1 second"),
                query,
                **UNORDERED,
                to={name: str(tmp_path / name) for name in ("pair", "near")},
                timed_out={"pair": str(tmp_path / "partial")},
                checkpointLocation=str(tmp_path / "checkpoint"),
                trigger={"availableNow": True},
                buckets=2,
                status=False,
            )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert handle.awaitTermination(timeout=1200)
            progress = handle.recentProgress
            handle.stop()
        assert len(told(caught)) == len({*told(caught)}) > 0
        words += told(caught)
        for report in progress:
            sums.update(report["observedMetrics"]["ensue"].asDict())
    numbers, _ = expected_ties(table)
    ties = {tie.label: count for name in ("pair", "near") for tie, count in numbers[name][1].items()}
    assert {label: sums[label] for label in ties} == ties
    assert sums["ties"] == sum(ties.values())
    assert sums["matches"] == numbers["pair"][0] + numbers["near"][0]
    assert "ties" in repr(handle)
    assert any("pattern `pair`" in line and "have a `C` at the very time of `A`" in line for line in words)


def test_the_status_line_says_ties_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.runtimes.spark.handle.INTERVAL", 0.01)
    tie = Tie("p", "C", "A", forbidden=True)
    counts = Row(**{"matches": 7, "timed_out": 0, "late": 0, "ties": 3, tie.label: 3})
    reports = [
        {"runId": "1", "batchId": batch, "sources": [], "observedMetrics": {"ensue": counts}} for batch in range(2)
    ]

    class Query:
        isActive = True  # noqa: N815
        recentProgress = reports  # noqa: N815

    notice, output = TieNotice([tie]), io.StringIO()
    line = StatusLine([Query()], Console(file=output, width=200), notice)  # type: ignore[list-item]
    line.start()
    time.sleep(0.1)
    line.stop()
    *above, last = output.getvalue().splitlines()
    said = "pattern `p`: 6 of 14 matches have a `C` at the very time of `A`; use `order=` or ALLOWING TIES"
    assert [text for text in above if "ALLOWING" in text] == [said]
    assert last == "2 micro-batches, 0 rows, 14 matches, 6 ties"
    said = "5 results depend on the order of events at the same time; use `order=` or ALLOWING TIES"
    assert notice.words(Totals(ties=5)) == said
    assert notice.words(Totals(ties=6)) == ""
    other = TieNotice([tie, Tie("q", "A", "B")])
    labels = {known.label: 2 for known in other.ties}
    assert other.words(Totals(matches=2, ties=4, labelled=labels)).splitlines() == [
        "results depend on the order of events at the same time; use `order=` or ALLOWING TIES",
        "  pattern `p`: 2 of 2 matches have a `C` at the very time of `A`",
        "  pattern `q`: 2 pairs of `A` and `B` have the same time, so neither event is before the other",
    ]
    assert other.words(Totals(matches=3, ties=5, labelled=labels)) == ""
