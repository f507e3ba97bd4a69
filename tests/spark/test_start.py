"""`ensue.start`: several patterns on one state, sinks of both kinds, restarts, changed queries, and the status line."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console

import ensue
from ensue import EnsueError, StreamHandle
from inside import StatusLine, Totals
from inside import StreamProgress as Progress
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
    milliseconds,
    settings,
)

SCHEMA = pa.schema(
    [
        pa.field("t", INSTANT),
        pa.field("type", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("note", pa.string()),
    ]
)
PAIR = "PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 5 seconds RETURN a.id AS id, a.t AS since, b.t AS until"
ALONE = "PATTERN alone SEQ(A a, NOT C c) PARTITION BY id WITHIN 2 seconds"
COLUMNS = {"time": "t", "type": "type"}
TO_THE_END: dict[str, Any] = {"trigger": {"availableNow": True}}


def history(rows: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "t": instants(START + np.sort(chance.integers(0, rows * SECOND // 20, rows))),
            "type": pa.array(chance.choice(list("ABC"), rows)),
            "id": pa.array(chance.integers(0, 12, rows)),
            "note": pa.array([f"row {number}" for number in range(rows)]),
        },
        schema=SCHEMA,
    )


def one_row(moment: int, kind: str = "Z") -> pa.Table:
    return pa.table({"t": instants([moment]), "type": [kind], "id": [0], "note": ["apart"]}, schema=SCHEMA)


def start(spark: SparkSession, program: str, sources: Any, **options: Any) -> Any:
    with settings(spark, SMALL):
        return ensue.start(sources, program, **{**COLUMNS, "buckets": 2, "status": False, **options})


def detect(table: pa.Table, query: str, **options: Any) -> pa.Table:
    return ensue.detect(table, query, **COLUMNS, **options)


def written(spark: SparkSession, folder: Path) -> pa.Table:
    return spark.read.parquet(str(folder)).drop("batch").toArrow()


# --- folders


def test_folders_late_rows_partial_matches_and_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    table = history(900, seed=1)
    arrived = table.take(pa.array(disordered(table.column("t").cast(pa.int64()).to_numpy(), 2 * SECOND, seed=2)))
    parts = cut(arrived, 3, seed=3)
    late = history(5, seed=4)
    feed = feed_of(tmp_path / "in", [*parts[:2], late])
    places = {name: tmp_path / name for name in ("pair", "alone", "late", "partial")}

    def run() -> Any:
        running = start(
            spark,
            f"{PAIR}; {ALONE}",
            feed.stream(spark, "t", "2 seconds"),
            to={name: str(places[name]) for name in ("pair", "alone")},
            late=str(places["late"]),
            timed_out={"pair": str(places["partial"])},
            checkpointLocation=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
        assert running.awaitTermination(timeout=1200)
        return running

    first = run()
    assert [int(report["observedMetrics"]["ensue"]["late"]) for report in first.queries[0].recentProgress][:3] == [
        0,
        0,
        5,
    ]
    assert folders_of(places["late"]) == {"batch=0", "batch=2"}
    for part in [*parts[2:], one_row(FAR)]:
        feed.put(part)
    again = run()
    assert lines(written(spark, places["late"])) == lines(late)
    for name, query in {"pair": PAIR, "alone": ALONE}.items():
        expected = detect(table, query)
        assert expected.num_rows > 30
        assert lines(written(spark, places[name])) == lines(expected)
    partial = written(spark, places["partial"]).to_pylist()
    never = detect(table, "PATTERN SEQ(A a, NOT B b) PARTITION BY id WITHIN 5 seconds").to_pylist()
    assert Counter((row["id"], row["since"], row["until"], row["waiting_for"]) for row in partial) == Counter(
        (row["a"]["id"], row["a"]["t"], None, "B b") for row in never
    )
    # The last row completes what is left; then Spark has a micro-batch of its own, to forget.
    numbers = [int(report["batchId"]) for run in (first, again) for report in run.queries[0].recentProgress]
    assert folders_of(places["pair"]) < {f"batch={number}" for number in numbers}


def folders_of(folder: Path) -> set[str]:
    return {entry.name for entry in folder.glob("batch=*")}


def test_all_patterns_go_to_one_place(spark: SparkSession, tmp_path: Path) -> None:
    table = history(400, seed=11)
    feed = feed_of(tmp_path / "in", [table, one_row(FAR)])
    start(
        spark,
        f"{PAIR}; {ALONE}",
        feed.stream(spark, "t"),
        to=str(tmp_path / "all"),
        timed_out={"pair": str(tmp_path / "partial")},
        checkpointLocation=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    ).awaitTermination()
    expected = ensue.run(table, f"{PAIR}; {ALONE}", **COLUMNS)
    assert all(own.num_rows > 10 for own in expected.values())
    assert lines(written(spark, tmp_path / "all")) == lines(expected.together())
    assert written(spark, tmp_path / "partial").column_names == ["id", "since", "until", "waiting_for"]


def test_nothing_found_leaves_a_folder_that_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    feed = feed_of(tmp_path / "in", [one_row(START), one_row(FAR)])
    options = {"to": str(tmp_path / "pair"), "checkpointLocation": str(tmp_path / "checkpoint"), **TO_THE_END}
    start(spark, PAIR, feed.stream(spark, "t"), **options).awaitTermination()
    empty = spark.read.parquet(str(tmp_path / "pair"))
    assert empty.columns == ["id", "since", "until", "batch"]
    assert empty.count() == 0
    assert folders_of(tmp_path / "pair") == {"batch=0"}


# --- functions


@pytest.mark.slow
def test_functions_different_keys_and_the_handle(spark: SparkSession, tmp_path: Path) -> None:
    """Each set of keys is a stream of its own; the handle waits for all, stops all, and passes errors on."""
    anywhere = "PATTERN anywhere SEQ(A a, C c) WITHIN 50 ms"
    table = history(600, seed=5)
    feed = feed_of(tmp_path / "in", [table])
    found: dict[str, dict[int, pa.Table]] = {"pair": {}, "anywhere": {}}

    def sink(name: str) -> Callable[[DataFrame, int], None]:
        def take(rows: DataFrame, batch: int) -> None:
            if rows.filter(F.col(rows.columns[0]).isNull()).count():
                raise ValueError("a row without a key")
            found[name][batch] = rows.toArrow()

        return take

    frame = feed.stream(spark, "t")
    options = {
        "to": {name: sink(name) for name in found},
        "checkpointLocation": str(tmp_path / "checkpoint/"),
        "trigger": {"processingTime": "0 seconds"},
    }
    with start(spark, f"{PAIR}; {anywhere}", frame, **options) as running:
        assert len(running.queries) == 2
        assert running.awaitTermination(timeout=0.1) is False
        running.processAllAvailable()
        assert all(0 in batches for batches in found.values())
        feed.put(one_row(FAR))
        running.processAllAvailable()
        assert running.isActive
        assert repr(running).startswith("<StreamHandle: running, 2 queries, ")
        assert running.status["isTriggerActive"] in (True, False)
        assert running.exception() is None
        assert running.id.split(",") == [query.id for query in running.queries]
        assert {report["runId"] for report in running.recentProgress} == set(running.runId.split(","))
        assert running.lastProgress["timestamp"] == max(report["timestamp"] for report in running.recentProgress)
        assert "<th>matches</th>" in running._repr_html_()
    assert not running.isActive
    assert running.awaitTermination() is True
    for name, query in {"pair": PAIR, "anywhere": anywhere}.items():
        expected = detect(table, query)
        assert expected.num_rows > 30
        assert lines(pa.concat_tables(found[name].values())) == lines(expected)
        assert any(rows.num_rows == 0 for rows in found[name].values())
    assert {entry.name for entry in (tmp_path / "checkpoint").iterdir()} == {"ensue-manifest", "by-id", "all"}


def test_what_a_function_raises_ends_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The micro-batch is repeated at the next start, with the same number and rows."""
    table = history(300, seed=6)
    feed = feed_of(tmp_path / "in", [table, one_row(FAR)])
    seen: list[tuple[int, int]] = []

    def fail(rows: DataFrame, batch: int) -> None:
        seen.append((batch, rows.count()))
        if batch == 1 and len(seen) == 2:
            raise ValueError("the database is away")

    options = {"to": fail, "checkpointLocation": str(tmp_path / "checkpoint"), **TO_THE_END}
    running = start(spark, PAIR, feed.stream(spark, "t"), **options)
    with pytest.raises(StreamingQueryException, match="the database is away"):
        running.awaitTermination()
    assert "the database is away" in str(running.exception())
    assert repr(running).startswith("<StreamHandle: failed, 1 query, ")
    start(spark, PAIR, feed.stream(spark, "t"), **options).awaitTermination()
    assert seen[1] == seen[2]
    assert seen[1][0] == 1
    assert sum(count for _, count in set(seen)) == detect(table, PAIR).num_rows > 0


class Waiting:
    """A query that goes on for some turns and then ends, or fails."""

    def __init__(self, turns: int, failure: Exception | None = None) -> None:
        self.turns, self.failure = turns, failure

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        assert timeout < 1
        self.turns -= 1
        if self.turns < 0 and self.failure is not None:
            raise self.failure
        return self.turns < 0


def test_a_stream_that_fails_is_told_although_another_goes_on() -> None:
    def wait(*queries: Waiting, timeout: float | None = None) -> bool:
        return StreamHandle(None, "checkpoint", queries, False).awaitTermination(timeout)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="away"):
        wait(Waiting(10**9), Waiting(3, ValueError("the database is away")))
    assert wait(Waiting(2), Waiting(5)) is True
    assert wait(Waiting(0), Waiting(10**9), timeout=0.01) is False


# --- a checkpoint and other queries


@dataclass(frozen=True, slots=True)
class Begun:
    """A stream that has read some files, and then was stopped."""

    feed: Feed
    checkpoint: Path
    table: pa.Table
    watermark: int

    def options(self, **changed: Any) -> dict[str, Any]:
        options = {"to": lambda rows, batch: None, "checkpointLocation": str(self.checkpoint), **TO_THE_END}
        return {**options, **changed}


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Begun:
    folder = tmp_path_factory.mktemp("begun")
    table = history(600, seed=7)
    feed = feed_of(folder / "in", [table.slice(0, 200), table.slice(200, 100)])
    begun = Begun(feed, folder / "checkpoint", table, 0)
    running = start(spark, PAIR, feed.stream(spark, "t"), **begun.options())
    running.awaitTermination()
    reports = running.queries[0].recentProgress
    return Begun(feed, folder / "checkpoint", table, milliseconds(reports[-1]["eventTime"]["watermark"]))


WIDER = PAIR.replace("5 seconds", "6 seconds")
NARROWER = PAIR.replace("SEQ(A a, B b)", "SEQ(A a, B b [id != 3])").replace("5 seconds", "2 seconds")
CHANGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "other buckets": ("bucket-count", PAIR, {"buckets": 3}),
    "another query": ("state-query", NARROWER, {}),
    "another column of time": (
        "state-shape",
        "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 1 second",
        {"time": "seen"},
    ),
    "a longer window": ("state-reach", WIDER, {"upgrade": True}),
    "a stream that was not kept": ("state-reach", PAIR.replace("A a", "C a"), {"upgrade": True}),
    "a column that was not kept": ("state-reach", f"{PAIR}, a.note AS note", {"upgrade": True}),
    "eager": ("state-query", PAIR, {"emit": "eager"}),
    "eager, in spite of that": ("state-emit", PAIR, {"emit": "eager", "upgrade": True}),
    "no number of buckets": ("bucket-count", PAIR, {"buckets": 0}),
}


@pytest.mark.parametrize("title", CHANGES)
def test_changes_that_are_refused(title: str, spark: SparkSession, begun: Begun) -> None:
    code, query, options = CHANGES[title]
    frame = begun.feed.stream(spark, None).withColumn("seen", F.col("t"))
    frame = frame.withWatermark(options.get("time", "t"), "0 seconds")
    before = {stream.id for stream in spark.streams.active}
    with pytest.raises(EnsueError) as refusal:
        start(spark, query, frame, **begun.options(**options))
    assert refusal.value.code == code  # type: ignore[attr-defined]
    assert {stream.id for stream in spark.streams.active} == before


def test_a_narrower_query_goes_on(spark: SparkSession, begun: Begun, tmp_path: Path) -> None:
    """From the change on, the matches are those that the narrower query would have given, had it run all the time."""
    found: list[pa.Table] = []

    def take(rows: DataFrame, batch: int) -> None:
        found.append(rows.toArrow())

    for part in (begun.table.slice(300, 150), begun.table.slice(450), one_row(FAR)):
        begun.feed.put(part)
    frame = begun.feed.stream(spark, "t")
    start(spark, NARROWER, frame, **begun.options(to=take, upgrade=True)).awaitTermination()
    everything = detect(begun.table, NARROWER)
    reached = pa.scalar(begun.watermark * 1000, pa.int64()).cast(INSTANT)
    expected = everything.filter(pa.compute.greater(everything.column("until"), reached))
    across = expected.filter(pa.compute.less_equal(expected.column("since"), reached))
    assert across.num_rows > 0
    assert lines(pa.concat_tables(found)) == lines(expected)
    # The first query's state has gone: it cannot come back, for the narrower one has kept too little for it.
    with pytest.raises(EnsueError, match="state-reach"):
        start(spark, PAIR, frame, **begun.options(upgrade=True))


# --- what is told before anything starts


SINKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "one place for patterns of several streams": (
        "sink-names",
        f"{PAIR}; PATTERN anywhere SEQ(A a, C c) WITHIN 1 second",
        {"to": "out"},
    ),
    "one place for columns of two types": (
        "one-table",
        f"{PAIR}; PATTERN told (A a) PARTITION BY id RETURN a.note AS since",
        {"to": "out"},
    ),
    "no place for one of them": ("sink-names", f"{PAIR}; {ALONE}", {"to": {"pair": "out"}}),
    "a place for none": ("sink-names", PAIR, {"to": {"pair": "out", "pairs": "out"}}),
    "late rows of a stream that is none": ("sink-names", PAIR, {"to": "out", "late": {"A": "late"}}),
    "partial matches of a pattern that is none": ("sink-names", PAIR, {"to": "out", "timed_out": {"alone": "out"}}),
    "a number as a place": ("sink-type", PAIR, {"to": 7}),
    "a number as a place for late rows": ("sink-type", PAIR, {"to": "out", "late": 7}),
    "late rows of two streams": (
        "late-keys",
        f"{PAIR}; PATTERN anywhere SEQ(A a, C c) WITHIN 1 second",
        {"to": {"pair": "a", "anywhere": "b"}, "late": "late"},
    ),
    "partial matches of a pattern that is no sequence": (
        "partial-form",
        "PATTERN AND(A a, B b) WITHIN 5 seconds",
        {"to": "out", "timed_out": "out"},
    ),
    "partial matches without a window": ("partial-window", "PATTERN SEQ(A a, B b)", {"to": "out", "timed_out": "out"}),
}


@pytest.mark.parametrize("title", SINKS)
@pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")
def test_sinks_that_are_refused(title: str, spark: SparkSession, tmp_path: Path) -> None:
    code, program, options = SINKS[title]
    frame = Feed(tmp_path / "in", SCHEMA).stream(spark, "t")
    with pytest.raises(EnsueError) as refusal:
        start(spark, program, frame, checkpointLocation=str(tmp_path / "checkpoint"), **options)
    assert refusal.value.code == code  # type: ignore[attr-defined]
    assert not (tmp_path / "checkpoint").exists()


TRIGGERS: dict[str, Any] = {
    "a text": "10 seconds",
    "a word of its own": {"available_now": True},
    "once, which Spark gives up": {"once": True},
    "two words": {"availableNow": True, "processingTime": "1 second"},
    "no": {"availableNow": False},
    "a number": {"processingTime": 10},
}


@pytest.mark.parametrize("title", TRIGGERS)
def test_triggers_that_are_refused(title: str, spark: SparkSession, tmp_path: Path) -> None:
    frame = Feed(tmp_path / "in", SCHEMA).stream(spark, "t")
    with pytest.raises(EnsueError, match="availableNow") as refusal:
        start(spark, PAIR, frame, to="out", checkpointLocation="never", trigger=TRIGGERS[title])
    assert refusal.value.code == "trigger"  # type: ignore[attr-defined]


def test_transform_is_detect(spark: SparkSession, tmp_path: Path) -> None:
    """On a static DataFrame, a stream and a table of pandas."""
    table = history(200, seed=12)
    find = ensue.matching(PAIR, **COLUMNS)
    expected = lines(detect(table, PAIR))
    assert lines(spark.createDataFrame(table).transform(find).toArrow()) == expected != []
    assert len(table.to_pandas().pipe(find)) == len(expected)
    assert Feed(tmp_path / "in", SCHEMA).stream(spark, "t").transform(find).isStreaming


def test_what_is_no_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for sources in (history(3, seed=8), spark.createDataFrame(history(3, seed=8).to_pandas())):
        with pytest.raises(EnsueError, match="not-a-stream"):
            start(spark, PAIR, sources, to="out", checkpointLocation=str(tmp_path / "checkpoint"))


# --- the status line


def report(batch: int, rows: int, watermark: str, counts: tuple[int, int] | None, run: str = "one") -> dict[str, Any]:
    """What Spark reports about a micro-batch, as far as it counts here."""
    metrics = {} if counts is None else {"ensue": Row(matches=counts[0], timed_out=0, late=counts[1])}
    return {
        "runId": run,
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 2.0,
        "sources": [{"numInputRows": rows, "processedRowsPerSecond": rows * 2.0}],
        "eventTime": {"watermark": watermark},
        "observedMetrics": metrics,
    }


class FakeQuery:
    """A query that ends after it has been looked at a few times."""

    def __init__(self, reports: list[Mapping[str, Any]], looks: int) -> None:
        self.reports, self.looks = reports, looks

    @property
    def isActive(self) -> bool:  # noqa: N802
        self.looks -= 1
        return self.looks >= 0

    @property
    def recentProgress(self) -> list[Mapping[str, Any]]:  # noqa: N802
        return self.reports


REPORTS = [
    report(0, 1000, "1970-01-01T00:00:00.000Z", (0, 0)),
    report(1, 500, "2024-01-31T11:00:00.000Z", (7, 1)),
    report(2, 0, "2024-01-31T12:00:00.000Z", None),
]


def test_progress_adds_each_micro_batch_once() -> None:
    progress = Progress()
    assert progress.totals() == Totals()
    progress.add(REPORTS[:2])
    progress.add(REPORTS)
    progress.add([report(1, 10, "2024-01-31T10:00:00.000Z", (3, 0), run="other")])
    assert progress.totals() == Totals(4, 1510, 10, 1, 20.0, "2024-01-31 12:00:00")


def test_progress_keeps_one_report_of_a_run() -> None:
    """A stream may run for years; and Spark reports a micro-batch that waits for rows again when they have come."""
    progress = Progress()
    for batch in range(1000):
        progress.add([report(batch, 0, "2024-01-31T11:00:00.000Z", None), *REPORTS[:1]])
        progress.add([report(batch, 2, "2024-01-31T11:00:00.000Z", (1, 0))])
    assert len(progress._newest) == 1
    assert progress.totals() == Totals(1000, 2000, 1000, 0, 4.0, "2024-01-31 11:00:00")


def test_words_of_the_line() -> None:
    assert Totals(1, 1, 1, 0, 0.0, "").line() == "1 micro-batch, 1 row, 1 match"
    assert Totals(2, 12345, 0, 2, 0.4, "").line() == "2 micro-batches, 12,345 rows, 0 matches, 2 late rows, 0 rows/s"


@pytest.mark.parametrize("looks", [0, 2])
def test_status_line_stays_when_the_stream_has_ended(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.runtimes.spark.handle.INTERVAL", 0.01)
    stream = io.StringIO()
    line = StatusLine([FakeQuery(REPORTS, looks)], Console(file=stream, width=200))  # type: ignore[list-item]
    line.start()
    line._thread.join(10)
    assert not line._thread.is_alive()
    line.stop()
    expected = "3 micro-batches, 1,500 rows, 7 matches, 1 late row, watermark 2024-01-31 12:00:00"
    assert stream.getvalue().splitlines()[-1] == expected


def test_status_line_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.runtimes.spark.handle.INTERVAL", 0.01)
    stream = io.StringIO()
    line = StatusLine([FakeQuery([], 10**9)], Console(file=stream, width=200))  # type: ignore[list-item]
    line.start()
    line.stop()
    assert not line._thread.is_alive()
    assert stream.getvalue().splitlines()[-1] == "0 micro-batches, 0 rows, 0 matches"


@pytest.fixture(autouse=True)
def _no_stream_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    assert not spark.streams.active
