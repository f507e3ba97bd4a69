"""A million events a micro-batch for thirty micro-batches: the state holds what it must and no more; memory is flat.

ENSUE_SOAK_ROWS and ENSUE_SOAK_BATCHES make it smaller, for a first look.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import ensue
from inside import read_header, read_state
from spark.streams import SECOND, START, Feed, instants, settings
from spark.test_crash import session_members

pytestmark = pytest.mark.soak("stream")

ROWS = int(os.environ.get("ENSUE_SOAK_ROWS", "1000000"))
BATCHES = int(os.environ.get("ENSUE_SOAK_BATCHES", "30"))
KEYS = ROWS // 10
SPAN = 10
"""Seconds of events in a micro-batch."""

WINDOW = 15
DELAY = 2
MOST_KEPT = 1.2
MOST_MEMORY = 1.15
SCHEMA = pa.schema(
    [
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("type", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("x", pa.float64()),
    ]
)
FEW = "PATTERN SEQ(T0 a [x < 0.5], T1 b, T2 c) WHERE a.x < c.x PARTITION BY id WITHIN 15 seconds RETURN a.id AS id"
ALL = (
    "PATTERN OR("
    + ", ".join(f"SEQ(T{number} a{number} [x < 0.1], T{number + 1} b{number})" for number in range(0, 20, 2))
    + ") PARTITION BY id WITHIN 15 seconds RETURN coalesce("
    + ", ".join(f"a{number}.id" for number in range(0, 20, 2))
    + ") AS id"
)


def part(number: int) -> pa.Table:
    """The events of one micro-batch, out of order by less than the delay of the watermark."""
    chance = np.random.default_rng(number)
    times = np.sort(chance.integers(0, SPAN * SECOND, ROWS)) + START + number * SPAN * SECOND
    order = np.argsort(times + chance.integers(0, DELAY * SECOND, ROWS))
    names = np.array([f"T{place}" for place in range(20)])
    return pa.table(
        {
            "t": instants(times[order]),
            "type": pa.array(names[chance.integers(0, 20, ROWS)]),
            "id": pa.array(chance.integers(0, KEYS, ROWS)),
            "x": pa.array(chance.random(ROWS)),
        },
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Feed:
    feed = Feed(tmp_path_factory.mktemp("soak") / "in", SCHEMA)
    for number in range(BATCHES):
        feed.put(part(number))
    return feed


def allowed(number: int, shares: dict[str, float]) -> float:
    """How many rows may be kept after a micro-batch: those beyond the watermark, and the first items of a window.

    The watermark of a micro-batch is that of the rows before it. `shares` are those of all rows that wait for the
    watermark and that then stay for the window.
    """
    beyond = SPAN + DELAY
    return ROWS / SPAN * (beyond * shares["waiting"] + min(WINDOW, max(0, number * SPAN - DELAY)) * shares["staying"])


def resident_bytes() -> int:
    """The memory of the Spark process that this one has started and of its Python workers; what they share, once."""
    total = 0
    for member in session_members(os.getsid(0)):
        with suppress(OSError):
            if member != os.getpid() and is_below(member, os.getpid()):
                rollup = (Path("/proc") / str(member) / "smaps_rollup").read_text()
                total += 1024 * next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def is_below(process: int, ancestor: int) -> bool:
    while process > 1:
        if process == ancestor:
            return True
        process = int((Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
    return False


class Watch:
    """The largest memory between two micro-batches."""

    def __init__(self) -> None:
        self.peaks: list[int] = []
        self.peak = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self) -> None:
        while not self.ended.wait(0.2):
            self.peak = max(self.peak, resident_bytes())

    def mark(self) -> None:
        self.peaks.append(self.peak)
        self.peak = 0


def kept_rows(spark: SparkSession, checkpoint: Path, batch: int) -> int:
    """How many rows the states hold after a micro-batch."""
    state = spark.read.format("statestore").option("batchId", batch).load(str(checkpoint))
    saved = state.selectExpr("value.groupState.events AS events").toLocalIterator()
    return sum(rows_of(bytes(row["events"])) for row in saved if row["events"] is not None)


def rows_of(saved: bytes) -> int:
    table = read_state(saved)
    read_header(table)
    return sum(len(rows) for name in table.column_names if name.startswith("events") for rows in table.column(name))


@pytest.mark.parametrize(
    ("query", "shares"),
    [
        pytest.param(FEW, {"waiting": 2.5 / 20, "staying": 1.5 / 20}, id="three types of twenty"),
        pytest.param(ALL, {"waiting": 11 / 20, "staying": 1 / 20}, id="all types"),
    ],
)
def test_soak(query: str, shares: dict[str, float], feed: Feed, spark: SparkSession, tmp_path: Path) -> None:
    found = ensue.detect(
        feed.stream(spark, "t", f"{DELAY} seconds"), query, time="t", type="type", limits=ensue.Limits(matches=None)
    )
    watch = Watch()
    counts: list[int] = []

    def count(rows: DataFrame, batch: int) -> None:
        counts.append(rows.count())
        watch.mark()

    begun = time.monotonic()
    retained = {"spark.sql.streaming.minBatchesToRetain": str(BATCHES + 5)}
    with settings(spark, {"spark.sql.shuffle.partitions": "4", **retained}):
        writer = found.writeStream.foreachBatch(count).option("checkpointLocation", str(tmp_path / "checkpoint"))
        running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    seconds = time.monotonic() - begun
    watch.ended.set()
    watch.thread.join()
    checked = sorted({1, 2, 3, 5, BATCHES // 2, BATCHES - 1} & set(range(BATCHES)))
    kept = {batch: kept_rows(spark, tmp_path / "checkpoint", batch) for batch in checked}
    peaks = [round(peak / 2**20) for peak in watch.peaks]
    figures = f"{ROWS * BATCHES / seconds:,.0f} events/s, {sum(counts):,} matches, kept {kept}, MiB {peaks}"
    (tmp_path / "figures").write_text(figures)
    assert sum(counts) > 0
    late = sum(int(report["observedMetrics"]["ensue"]["late"]) for report in running.recentProgress)
    assert late == 0
    for batch, rows in kept.items():
        assert 0 < rows <= MOST_KEPT * allowed(batch, shares), figures
    warm = slice(5, 10) if BATCHES >= 30 else slice(2, BATCHES // 2)
    steady = slice(20, 30) if BATCHES >= 30 else slice(BATCHES // 2, BATCHES)
    assert max(peaks[steady]) <= MOST_MEMORY * max(peaks[warm]), figures
