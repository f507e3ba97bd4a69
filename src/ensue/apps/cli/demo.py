"""`ensue demo`: runs a program with patterns, a rule and constraints over a generated week of orders."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as parquet
import typer
from rich.console import Console
from rich.text import Text

from ensue.api import run, violations
from ensue.apps.cli.detect import matches_table, plain_value
from ensue.apps.cli.orders import Findings, draw_orders, find_in_stream
from ensue.apps.cli.signals import STOPPED
from ensue.apps.cli.terminal import UsageError, counted, messages, open_console
from ensue.explanation.report import report
from ensue.kernels.warm_up import warm_up
from ensue.programs import Program, parse
from ensue.python.values import duration_text

SHOWN_ROWS = 4
SHOWN_OF_VIOLATIONS = ["order_id", "event", "at", "other", "other_at"]
PROGRAM_FILE = "demo.ensue"
EVENTS_FILE = "orders.parquet"
REPORT_FILE = "demo.html"


def demo_program() -> Program:
    """Returns the program of the demo: patterns, a rule and constraints."""
    return parse(files("ensue.apps.cli").joinpath(PROGRAM_FILE).read_text(encoding="utf-8"), PROGRAM_FILE)


def paragraphs(program: Program) -> Iterator[tuple[str, str, str]]:
    """Yields for each part of the program the name of its result ("" for constraints), its comment and statements."""
    source = program.statements.source
    assert source is not None
    for paragraph in source.text.strip().split("\n\n"):
        comment, _, statements = paragraph.partition("\n")
        named = re.match(r"(?:PATTERN|RULE) (\w+)", statements)
        yield named[1] if named else "", comment, statements


def run_demo(orders: int, seed: int, folder: Path | None, on_spark: bool, as_json: bool = False) -> None:
    """Generates orders, runs the program, shows each of its parts with the first matches, and writes the report.

    With `as_json` it prints only one JSON object with all results.
    """
    program = demo_program()
    messages("Compiling kernels (takes a few seconds on the first run) ...")
    try:
        warm_up()
        messages(f"Generating {counted(orders, 'order')} ...")
        events = draw_orders(orders, seed)
        if folder is not None:
            _save(program, events, folder)
        started = perf_counter()
        found = find_in_stream(program, events) if on_spark else find_in_process(program, events)
        seconds = perf_counter() - started
        if not as_json:
            _show_found(program, events, found, seconds, on_spark)
        page = write_page(program, events, folder or Path())
    except KeyboardInterrupt:
        messages("Stopped.")
        raise typer.Exit(STOPPED + signal.SIGINT) from None
    if as_json:
        typer.echo(json.dumps(_as_object(found, page), ensure_ascii=False))
    else:
        messages(f"\n{next_steps(folder, page)}")


def _show_found(program: Program, events: pa.Table, found: Findings, seconds: float, on_spark: bool) -> None:
    console = open_console()
    show(console, program, found)
    console.print(
        Text(f"\n{_total(events, found)}, {duration_text(timedelta(seconds=round(seconds, 1)))}", style="bold")
    )
    if on_spark:
        same = comparable(found) == comparable(find_in_process(program, events))
        verdict = "the same alerts." if same else "DIFFERENT alerts."
        console.print(f"A batch run over all events in this process finds {verdict}")


def _as_object(found: Findings, page: Path) -> dict[str, object]:
    """Returns the results and the path of the page as one JSON object."""
    rows = {name: plain_value(in_order(table).to_pylist()) for name, table in found.matches.items()}
    return {"matches": rows, "violations": plain_value(in_order(found.violations).to_pylist()), "page": str(page)}


def _total(events: pa.Table, found: Findings) -> str:
    matches, broken = sum(table.num_rows for table in found.matches.values()), found.violations.num_rows
    parts = f"{counted(matches, 'match', 'matches')}, {counted(broken, 'violation')}"
    return f"{counted(events.num_rows, 'event')}, {counted(matches + broken, 'alert')} ({parts})"


def find_in_process(program: Program, events: pa.Table) -> Findings:
    """Runs the program over all events at once, without Spark."""
    messages(f"Processing {counted(events.num_rows, 'event')} ...")
    matches = run(events, program, time="t", type="type")
    return Findings(matches, violations(events, program, time="t", type="type"))


def comparable(found: Findings) -> dict[str, list[str]]:
    """Returns the results as sorted texts, because Spark has microseconds and no order."""
    tables = {**found.matches, "": found.violations}
    return {name: sorted(map(str, table.to_pylist())) for name, table in tables.items()}


def show(console: Console, program: Program, found: Findings) -> None:
    """Shows each part of the program, the number of its results, and the first rows."""
    for name, comment, statements in paragraphs(program):
        table = in_order(found.matches[name] if name else found.violations.select(SHOWN_OF_VIOLATIONS))
        what = counted(table.num_rows, "match", "matches") if name else f"broken by {counted(table.num_rows, 'order')}"
        console.print(Text(f"\n{comment}", style="dim"))
        console.print(Text(statements, style="cyan"))
        console.print(Text(f"{name or 'constraints'}: {what}", style="bold"))
        console.print(matches_table(table, SHOWN_ROWS))


def in_order(table: pa.Table) -> pa.Table:
    """Returns the rows sorted by their first time column and the order number."""
    first = next(field.name for field in table.schema if pa.types.is_timestamp(field.type))
    return table.sort_by([(first, "ascending"), ("order_id", "ascending")])


def write_page(program: Program, events: pa.Table, folder: Path) -> Path:
    """Writes the report of the demo and returns its path."""
    messages("Writing the report ...")
    page = report(events, program, time="t", type="type", title="A week of orders")
    with _written_to(folder):
        return Path(page.save(folder / REPORT_FILE))


def next_steps(saved: Path | None, page: Path) -> str:
    """Returns commands to try after the demo, ready to run. `saved` is the folder of the files."""
    ensue = _this_command()
    folder = saved or Path()
    program, events = (shlex.quote(str(folder / name)) for name in (PROGRAM_FILE, EVENTS_FILE))
    keep = f"""
  {ensue} demo --to .
      save the program and the events: {program}, {events}"""
    return f"""\
Next steps:
  open {page} in a browser
      orders on a timeline; click a match to see its events and its proof{"" if saved else keep}
  {ensue} explain {program}
      what a pattern means, how it runs, and which events a stream keeps
  {ensue} detect {program} --events {events} --time t --type type
      the same matches from files; edit {program} and run it again
  {ensue} why-not {program} --events {events} --time t --type type --pattern call_first
      how far other orders got, and what stopped them
  {ensue} init --events YOUR_TABLE.parquet
      a first program and a pipeline for your own table
README.md shows how to use Ensue from Python."""


def _this_command() -> str:
    """Returns how to call `ensue` from here: by name, or by path if the shell does not find it."""
    if shutil.which("ensue"):
        return "ensue"
    beside = Path(sys.executable).with_name("ensue")
    if not beside.exists():
        return f"{shlex.quote(sys.executable)} -m ensue.apps.cli"
    near = beside.is_relative_to(Path.cwd())
    return shlex.quote(os.path.relpath(beside) if near else str(beside))


def _save(program: Program, events: pa.Table, folder: Path) -> None:
    source = program.statements.source
    assert source is not None
    with _written_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PROGRAM_FILE).write_text(source.text, encoding="utf-8")
        parquet.write_table(events, folder / EVENTS_FILE)
    messages(f"Saved {folder / PROGRAM_FILE} and {folder / EVENTS_FILE}")


@contextmanager
def _written_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            "unwritable-folder",
            f"cannot write to folder `{folder}`: {error.strerror}",
            "pass another folder with --to",
        ) from error
