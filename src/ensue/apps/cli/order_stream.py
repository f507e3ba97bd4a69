"""The demo as a stream on Spark: the orders come in files, one per micro-batch, and progress is shown meanwhile."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ensue.apps.cli.signals import STOPPED, Told, told_to_stop
from ensue.apps.cli.terminal import counted, messages
from ensue.programs import Program
from ensue.streams import start

FILES = 4
"""In so many files the orders come, a micro-batch each; one more event ends the stream."""
WATERMARK = "1 hour"
BUCKETS = 2
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss16m"
"""Java for a short run: without it, half the time goes into making code fast that runs a few times. The stack is for
Spark, which looks with a deep regular expression at what a function was doing that is stopped."""
LOOK = 0.3
"""Seconds between two looks at the progress."""
BROKEN = "violations"
SESSION = {
    "spark.driver.defaultJavaOptions": QUICK_START,
    # It would be drawn over the bar of the demo.
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What a stream has found: the matches by their names, and the traces that break a constraint."""

    matches: Mapping[str, pa.Table]
    violations: pa.Table


def find_in_stream(program: Program, events: pa.Table) -> Found:
    """Runs the program on a stream of files; a Spark session that was not there before is stopped again."""
    from ensue.runtimes.spark.session import running_session, spark_session

    messages("Starting Spark; then the orders come as a stream ...")
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
    """The events in files, in order of time. One more event, of no pattern, tells a stream that time has gone on."""
    folder.mkdir()
    size = -(-events.num_rows // FILES)
    for number in range(FILES):
        parquet.write_table(in_microseconds(events.slice(number * size, size)), folder / f"{number}.parquet")
        # A stream of files reads them in the order of their times of change.
        os.utime(folder / f"{number}.parquet", (number, number))
    much_later = events.column("t")[-1].as_py() + timedelta(days=30)
    closing = pa.Table.from_pylist([{"t": much_later, "type": "Closed"}], events.schema)
    parquet.write_table(in_microseconds(closing), folder / "closing.parquet")


def in_microseconds(events: pa.Table) -> pa.Table:
    """The events with times as Spark has them."""
    return events.set_column(0, "t", events.column("t").cast(pa.timestamp("us", "UTC")))


def _run(program: Program, spark: Any, folder: str, expected: int, told: Told) -> Found:
    schema = spark.read.parquet(f"{folder}/orders").schema
    orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/orders")
    to = {name: f"{folder}/found/{name}" for name in program.names}
    running = start(
        program,
        orders.withWatermark("t", WATERMARK),
        to=to,
        violations=f"{folder}/{BROKEN}",
        checkpoint=f"{folder}/checkpoint",
        time="t",
        type="type",
        available_now=True,
        buckets=BUCKETS,
        status=False,
    )
    with running, Shown(expected) as shown:
        while not running.wait(LOOK):
            if told.signal is not None:
                raise typer.Exit(STOPPED + told.signal)
            shown.look(running.queries)
        shown.look(running.queries)
    matches = {name: _rows(spark, place) for name, place in to.items()}
    return Found(matches, _rows(spark, f"{folder}/{BROKEN}"))


def _rows(spark: Any, folder: str) -> pa.Table:
    return spark.read.parquet(folder).drop("batch").toArrow()


class Shown:
    """The progress of streams on stderr: a bar that moves on a terminal, elsewhere a line for each micro-batch."""

    def __init__(self, expected: int) -> None:
        from ensue.runtimes.spark.status import Progress as StreamProgress

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

    def __enter__(self) -> Shown:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()
