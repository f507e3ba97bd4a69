"""`ensue demo`: a drawn week of orders, a program of four patterns, and what it finds."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as parquet
from rich.console import Console
from rich.text import Text

from ensue.api import Program, parse, run
from ensue.cli.detecting import matches_table
from ensue.cli.orders import draw_orders
from ensue.cli.reporting import UsageError, counted, messages, table_width
from ensue.kernels.warm import warm_up

SHOWN_ROWS = 4
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
    for name, node in zip(program.names, program.statements.statements, strict=True):
        assert node.span is not None
        yield name, source.text[start : node.span.end].lstrip(";\n").rstrip()
        start = node.span.end


def run_demo(orders: int, seed: int, save: Path | None) -> None:
    """Draws the orders, finds the matches, shows each pattern with its first matches."""
    program = demo_program()
    messages("Getting ready; the first run on a machine compiles for some seconds ...")
    warm_up()
    messages(f"Drawing {counted(orders, 'order')} ...")
    events = draw_orders(orders, seed)
    if save is not None:
        _save(program, events, save)
    messages(f"Looking for {counted(len(program.names), 'pattern')} in {counted(events.num_rows, 'event')} ...")
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
