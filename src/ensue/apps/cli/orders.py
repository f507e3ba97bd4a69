"""The orders of the demo: generates them, some with mistakes that a pattern can find, and streams them on Spark."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pyarrow.parquet as parquet
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ensue.apps.cli.input_files import STDIN
from ensue.apps.cli.signals import STOPPED, StopRequest, told_to_stop
from ensue.apps.cli.terminal import UsageError, counted, messages
from ensue.programs import Program
from ensue.streams import start

HOUR = 3600.0
WEEK = 7 * 24 * HOUR
MONDAY = 1_741_564_800
"""2025-03-10 00:00 UTC in seconds: the time of the first orders."""

Seconds = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
FIRST_ORDER = 100_001


@dataclass(slots=True)
class _Draws:
    """The generated events, one table per call of `add`. Times count seconds from `MONDAY`, orders count from 0."""

    random: np.random.Generator
    amounts: npt.NDArray[np.float64]
    tables: list[pa.Table] = field(default_factory=list)

    def chance(self, share: float) -> Mask:
        return self.random.random(len(self.amounts)) < share

    def hours(self, typical: float) -> Seconds:
        """Returns random waiting times around `typical` hours, with a long tail."""
        return self.random.lognormal(np.log(typical * HOUR), 0.4, len(self.amounts))

    def add(
        self,
        stream: str,
        chosen: Mask,
        at: Seconds,
        severity: npt.NDArray[np.int64] | None = None,
        channels: Sequence[str] = (),
    ) -> None:
        """Adds one event for each chosen order, at a whole second, with a random channel of `channels`."""
        orders = np.flatnonzero(chosen)
        count = len(orders)
        picked = self.random.choice(list(channels), count).tolist() if channels else [None] * count
        self.tables.append(
            pa.table(
                {
                    "t": pa.array((MONDAY + at[orders]).astype(np.int64), pa.timestamp("s", "UTC")),
                    "type": pa.array([stream] * count, pa.string()),
                    "order_id": pa.array(orders + FIRST_ORDER, pa.int64()),
                    "amount": pa.array(self.amounts[orders], pa.float64()),
                    "severity": pa.nulls(count, pa.int64()) if severity is None else pa.array(severity[orders]),
                    "channel": pa.array(picked, pa.string()),
                }
            )
        )


def draw_orders(count: int, seed: int) -> pa.Table:
    """Generates all events of `count` orders placed within one week, in order of time."""
    random = np.random.default_rng(seed)
    drawing = _Draws(random, np.round(random.lognormal(4.0, 0.8, count), 2))
    placed = random.uniform(0, WEEK, count)
    shipped, at_shipping = _draw_fulfilment(drawing, placed)
    delivered = shipped & ~drawing.chance(0.01)
    at_delivery = at_shipping + drawing.hours(30)
    drawing.add("Delivered", delivered, at_delivery)
    drawing.add("Delivered", delivered & drawing.chance(0.01), at_delivery + drawing.hours(20))
    _draw_complaints(drawing, delivered, at_delivery)
    return pa.concat_tables(drawing.tables).sort_by([("t", "ascending"), ("order_id", "ascending")])


def _draw_fulfilment(drawing: _Draws, placed: Seconds) -> tuple[Mask, Seconds]:
    """Adds events from placing to shipping or cancelling. Returns which orders were shipped, and when."""
    everyone = np.ones(len(placed), bool)
    drawing.add("Placed", everyone, placed)
    paid = ~drawing.chance(0.05)
    at_payment = placed + np.where(drawing.chance(0.02), drawing.hours(70), drawing.hours(0.5))
    drawing.add("Paid", paid, at_payment)
    packed = np.where(paid, ~drawing.chance(0.01), drawing.chance(0.2))
    at_packing = np.where(paid & drawing.chance(0.98), at_payment, placed) + drawing.hours(8)
    drawing.add("Packed", packed, at_packing)
    cancelled = drawing.chance(0.04)
    at_cancelling = placed + drawing.hours(10)
    at_shipping = at_packing + np.where(drawing.chance(0.03), drawing.hours(60), drawing.hours(9))
    drawing.add("Cancelled", cancelled, at_cancelling)
    shipped = packed & ~drawing.chance(0.01) & ~(cancelled & (at_cancelling < at_shipping))
    drawing.add("Shipped", shipped, at_shipping)
    return shipped, at_shipping


def _draw_complaints(drawing: _Draws, delivered: Mask, at_delivery: Seconds) -> None:
    complaining = delivered & drawing.chance(0.06)
    at_complaint = at_delivery + drawing.hours(12)
    severity = drawing.random.integers(1, 6, len(delivered))
    drawing.add("Complaint", complaining, at_complaint, severity)
    drawing.add("Reply", complaining & drawing.chance(0.9), at_complaint + 60.0, channels=["automatic"])
    drawing.add(
        "Reply", complaining & drawing.chance(0.85), at_complaint + drawing.hours(10), channels=["mail", "phone"]
    )


def write_orders(count: int, seed: int, path: Path) -> None:
    """Writes the events of `count` orders to a file, in the format of its suffix, or to stdout as CSV."""
    if str(path) == STDIN:
        pyarrow.csv.write_csv(draw_orders(count, seed), sys.stdout.buffer)
        return
    writers = {".parquet": pyarrow.parquet.write_table, ".csv": pyarrow.csv.write_csv}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise UsageError("unknown-format", f"file `{path}` has an unknown format; expected .parquet or .csv")
    events = draw_orders(count, seed)
    try:
        write(events, path)
    except OSError as error:
        raise UsageError("unwritable-file", f"cannot write `{path}`: {error.strerror}") from error
    messages(f"Written to {path}: {counted(events.num_rows, 'event')} of {counted(count, 'order')}")


# --- The demo as a stream on Spark

FILES = 4
"""The number of files with orders. Each is one micro-batch; one more event ends the stream."""
WATERMARK = "1 hour"
BUCKETS = 2
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss16m"
"""Java options for a short run. Without them, Java spends half the time on optimizing code that runs a few times. Spark
needs the stack size when a stream stops: it matches a stack trace with a deeply recursive regular expression."""
LOOK = 0.3
"""Seconds between two updates of the progress."""
BROKEN = "violations"
SESSION = {
    "spark.driver.defaultJavaOptions": QUICK_START,
    # Spark's bar would overwrite the bar of the demo.
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of a run: the matches by pattern, and the traces that break a constraint."""

    matches: Mapping[str, pa.Table]
    violations: pa.Table


def find_in_stream(program: Program, events: pa.Table) -> Findings:
    """Runs the program on a stream of files. Stops the Spark session if it was not running before."""
    from ensue.runtimes.spark.session import running_session, spark_session

    messages("Starting Spark, then streaming the orders ...")
    was_there = running_session() is not None
    with told_to_stop(streaming=True) as told:
        spark = spark_session("ensue demo", config=SESSION)
        try:
            with tempfile.TemporaryDirectory(prefix="ensue-demo-", ignore_cleanup_errors=True) as folder:
                write_files(events, Path(folder, "orders"))
                return _run(program, spark, folder, events.num_rows, told)
        finally:
            if not was_there:
                spark.stop()


def write_files(events: pa.Table, folder: Path) -> None:
    """Writes the events to files, in order of time. One more event, which no pattern uses, moves the watermark."""
    folder.mkdir()
    size = -(-events.num_rows // FILES)
    for number in range(FILES):
        parquet.write_table(in_microseconds(events.slice(number * size, size)), folder / f"{number}.parquet")
        # Spark reads the files of a stream in the order of their modification times.
        os.utime(folder / f"{number}.parquet", (number, number))
    much_later = events.column("t")[-1].as_py() + timedelta(days=30)
    closing = pa.Table.from_pylist([{"t": much_later, "type": "Closed"}], events.schema)
    parquet.write_table(in_microseconds(closing), folder / "closing.parquet")


def in_microseconds(events: pa.Table) -> pa.Table:
    """Returns the events with times in microseconds, as in Spark."""
    return events.set_column(0, "t", events.column("t").cast(pa.timestamp("us", "UTC")))


def _run(program: Program, spark: Any, folder: str, expected: int, told: StopRequest) -> Findings:
    schema = spark.read.parquet(f"{folder}/orders").schema
    orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/orders")
    to = {name: f"{folder}/found/{name}" for name in program.names}
    running = start(
        orders.withWatermark("t", WATERMARK),
        program,
        to=to,
        violations=f"{folder}/{BROKEN}",
        checkpointLocation=f"{folder}/checkpoint",
        time="t",
        type="type",
        trigger={"availableNow": True},
        buckets=BUCKETS,
        status=False,
    )
    with running, ProgressBar(expected) as shown:
        while not running.awaitTermination(LOOK):
            if told.poll() and told.signal is not None:
                raise typer.Exit(STOPPED + told.signal)
            shown.look(running.queries)
        shown.look(running.queries)
    matches = {name: _rows(spark, place) for name, place in to.items()}
    return Findings(matches, _rows(spark, f"{folder}/{BROKEN}"))


def _rows(spark: Any, folder: str) -> pa.Table:
    return spark.read.parquet(folder).drop("batch").toArrow()


class ProgressBar:
    """The progress of streams on stderr: a bar on a terminal, otherwise one line per micro-batch."""

    def __init__(self, expected: int) -> None:
        from ensue.runtimes.spark.handle import Progress as StreamProgress

        self._seen = StreamProgress()
        console = Console(stderr=True, highlight=False)
        columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("waiting for the first micro-batch", total=expected)
        self._lines = not console.is_terminal
        self._last = ""

    def look(self, queries: Iterable[Any]) -> None:
        for query in queries:
            self._seen.add(query.recentProgress)
        totals = self._seen.totals()
        if not totals.batches:
            return
        reached = f", watermark {totals.watermark[:16]}" if totals.watermark else ""
        line = f"{counted(totals.rows, 'event')} read, {counted(totals.matches, 'alert')} so far{reached}"
        self._bar.update(self._task, completed=totals.rows, description=line)
        if self._lines and line != self._last:
            messages(f"  {line}")
        self._last = line

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()
