"""`ensue demo`: a drawn week of orders, a program of four patterns, and what it finds."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ensue.api import Program, parse, run
from ensue.cli.detecting import matches_table
from ensue.cli.orders import draw_orders
from ensue.cli.reporting import UsageError, counted, messages, table_width
from ensue.kernels.warm import warm_up
from ensue.streams import start

SHOWN_ROWS = 4
STREAM_FILES = 2
"""In so many files the orders come to the stream, a micro-batch each; one more ends it."""
PROGRAM_FILE = "demo.ensue"
EVENTS_FILE = "orders.parquet"


def demo_program() -> Program:
    """The four patterns of the demo."""
    return parse(files("ensue.cli").joinpath(PROGRAM_FILE).read_text(encoding="utf-8"), PROGRAM_FILE)


def statements_with_comments(program: Program) -> Iterator[tuple[str, str]]:
    """Each pattern's name and its text with the comment above it."""
    source = program.statements.source
    assert source is not None
    start = 0
    for name, node in zip(program.names, program.statements.results, strict=True):
        assert node.span is not None
        yield name, source.text[start : node.span.end].lstrip(";\n").rstrip()
        start = node.span.end


def run_demo(orders: int, seed: int, save: Path | None, on_spark: bool = False) -> None:
    """Draws the orders, finds the matches, shows each pattern with its first matches; or how Spark finds the same."""
    program = demo_program()
    messages("Getting ready; the first run on a machine compiles for some seconds ...")
    warm_up()
    messages(f"Drawing {counted(orders, 'order')} ...")
    events = draw_orders(orders, seed)
    if save is not None:
        _save(program, events, save)
    messages(f"Looking for {counted(len(program.names), 'pattern')} in {counted(events.num_rows, 'event')} ...")
    if on_spark:
        _compare_on_spark(program, events)
        return
    started = perf_counter()
    found = run(program, events, time="t", type="type")
    seconds = perf_counter() - started
    console = Console(width=table_width(), highlight=False)
    for name, text in statements_with_comments(program):
        comment, _, pattern = text.partition("\n")
        console.print(Text(f"\n{comment}", style="dim"))
        console.print(Text(f"{pattern};", style="cyan"))
        console.print(Text(f"{name}: {counted(found[name].num_rows, 'match', 'matches')}", style="bold"))
        console.print(matches_table(found[name], SHOWN_ROWS))
    total = counted(sum(matches.num_rows for matches in found.values()), "match", "matches")
    console.print(Text(f"\n{counted(events.num_rows, 'event')}, {total}, {seconds:.2f} s", style="bold"))
    messages(f"\n{next_steps(save)}")


@dataclass(frozen=True, slots=True)
class _Finding:
    """What one way to run the program has found: the ids of the matches of each pattern, and how long that took."""

    runtime: str
    ids: Mapping[str, frozenset[str]]
    seconds: float


def _compare_on_spark(program: Program, events: pa.Table) -> None:
    """Runs the program in this process, on a DataFrame and on a stream, and shows that the matches are the same."""
    from ensue.runtimes.spark.session import running_session, spark_session

    # Spark's unit of time: ids count time in units.
    events = events.set_column(0, "t", events.column("t").cast(pa.timestamp("us", "UTC")))
    found = [_timed("in process", lambda: _ids(run(program, events, time="t", type="type", match_id=True)))]
    messages("Starting Spark ...")
    was_there = running_session() is not None
    spark = spark_session("ensue demo")
    try:
        with tempfile.TemporaryDirectory(prefix="ensue-demo-") as folder:
            _write_files(events, Path(folder, "orders"))
            messages("The same on a DataFrame of the past ...")
            found.append(_timed("Spark, batch", lambda: _ids_of_batch(program, spark, folder)))
            messages(f"The same on a stream, {counted(STREAM_FILES + 1, 'file')} one after the other ...")
            found.append(_timed("Spark, stream", lambda: _ids_of_stream(program, spark, folder)))
    finally:
        if not was_there:
            spark.stop()
    _show_comparison(program, found)


def _timed(runtime: str, find: Callable[[], Mapping[str, frozenset[str]]]) -> _Finding:
    started = perf_counter()
    return _Finding(runtime, find(), perf_counter() - started)


def _write_files(events: pa.Table, folder: Path) -> None:
    """The events in files, in order of time. One more event, of no pattern, tells a stream that time has gone on."""
    folder.mkdir()
    size = -(-events.num_rows // STREAM_FILES)
    for number in range(STREAM_FILES):
        parquet.write_table(events.slice(number * size, size), folder / f"{number}.parquet")
        # A stream of files reads them in the order of their times of change.
        os.utime(folder / f"{number}.parquet", (number, number))
    much_later = events.column("t")[-1].as_py() + timedelta(days=30)
    closing = pa.Table.from_pylist([{"t": much_later, "type": "Closed"}], events.schema)
    parquet.write_table(closing, folder / "closing.parquet")


def _ids(found: Mapping[str, pa.Table]) -> dict[str, frozenset[str]]:
    return {name: frozenset(table.column("match_id").to_pylist()) for name, table in found.items()}


def _ids_of_batch(program: Program, spark: Any, folder: str) -> dict[str, frozenset[str]]:
    found = run(program, spark.read.parquet(f"{folder}/orders"), time="t", type="type", match_id=True)
    ids = _ids({name: matches.select("match_id").toArrow() for name, matches in found.items()})
    found.release()
    return ids


def _ids_of_stream(program: Program, spark: Any, folder: str) -> dict[str, frozenset[str]]:
    schema = spark.read.parquet(f"{folder}/orders").schema
    orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/orders")
    to = {name: f"{folder}/{name}" for name in program.names}
    running = start(
        program,
        orders.withWatermark("t", "1 hour"),
        to=to,
        checkpoint=f"{folder}/checkpoint",
        time="t",
        type="type",
        match_id=True,
        available_now=True,
    )
    running.wait()
    return _ids({name: spark.read.parquet(place).select("match_id").toArrow() for name, place in to.items()})


def _show_comparison(program: Program, found: list[_Finding]) -> None:
    table = Table("matches of", *(finding.runtime for finding in found))
    for name in program.names:
        table.add_row(name, *(f"{len(finding.ids[name]):,}" for finding in found))
    table.add_row("seconds", *(f"{finding.seconds:.2f}" for finding in found), style="dim")
    console = Console(width=table_width(), highlight=False)
    console.print(table)
    same = all(finding.ids == found[0].ids for finding in found)
    console.print(Text("The same matches." if same else "These are NOT the same matches.", style="bold"))


def next_steps(saved: Path | None) -> str:
    """What to do after the demo, as commands that run as they are written; `saved` is where the files are."""
    ensue = _this_command()
    folder = saved or Path()
    program, events = (shlex.quote(str(folder / name)) for name in (PROGRAM_FILE, EVENTS_FILE))
    keep = f"""
  {ensue} demo --save .
      keep the program and the events: {program}, {events}"""
    return f"""\
What next:{"" if saved else keep}
  {ensue} explain {program}
      what a pattern means, how it runs, what a stream would have to keep
  {ensue} detect {program} --events {events} --time t --type type
      the same result from files; edit {program} and look again
  {ensue} demo --on spark
      the same matches from a Spark DataFrame and from a stream
README.md has the same from Python."""


def _this_command() -> str:
    """How to call `ensue` from here: by its name, or by its path where the shell would not find it."""
    if shutil.which("ensue"):
        return "ensue"
    beside = Path(sys.executable).with_name("ensue")
    if not beside.exists():
        return f"{shlex.quote(sys.executable)} -m ensue.cli"
    near = beside.is_relative_to(Path.cwd())
    return shlex.quote(os.path.relpath(beside) if near else str(beside))


def _save(program: Program, events: pa.Table, folder: Path) -> None:
    source = program.statements.source
    assert source is not None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PROGRAM_FILE).write_text(source.text, encoding="utf-8")
        parquet.write_table(events, folder / EVENTS_FILE)
    except OSError as error:
        raise UsageError("unwritable-folder", f"nothing can be saved in `{folder}`: {error.strerror}") from error
    messages(f"Saved {folder / 'demo.ensue'} and {folder / 'orders.parquet'}")
