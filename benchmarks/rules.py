"""Rules: the blocks of the ETALIS paper, and the savings of streaming and suppressing joins; see `--help`.

*Blocks.* A chain of four rules: `ce1` from an `a` and a `b`, `ce2` from a `ce1` and a `c`, and so on, joined by an id.
A block is one event of each of the five types with its own id, so it derives one event of each head. The paper reports
about 13,000 events per second, and that ETALIS slows down as the number of blocks grows. `ensue.detect` reads a table
and returns the events of `ce4`. The time includes planning, but not parsing.

*Joins.* `l before r, r before x` within a window, by a key, as a stream of micro-batches. Events of `l` are rare, so
most events of `r` have no partner. Each optimization is switched off in turn: events of `x` are not stored, because
they come last (streaming); events of `r` are neither stored nor read without an `l` (suppressing); and events are
dropped as early as possible (forgetting). All variants find the same events. The benchmark measures the maximum number
of stored rows, the number of rows read by the steps, and the time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from figures import Figure, give
from rich.console import Console
from rich.table import Table

import ensue
from ensue.engine.machine import compile_plan
from ensue.plan.plans import Options
from ensue.plan.program_plans import Columns, plan_queries
from ensue.programs import single_statement

CHAIN = """
RULE ce1(id) <- x: a(id=id), y: b(id=id), x before y;
RULE ce2(id) <- x: ce1(id), y: c(id=id), x before y;
RULE ce3(id) <- x: ce2(id), y: d(id=id), x before y;
RULE ce4(id) <- x: ce3(id), y: e(id=id), x before y
"""
TYPES = ("a", "b", "c", "d", "e")
BLOCKS = (10_000, 50_000, 500_000)
WANTED = 3.0
"""Million events a second."""

JOIN = "RULE hit(id) <- l: left(id=id), r: right(id=id), x: last(id=id), l before r, r before x, {l, x} within WINDOW"
JOINED = ("left", "right", "last")
SWITCHES: Mapping[str, Options] = {
    "all": Options(),
    "no streaming": Options(streaming=False),
    "no suppressing": Options(suppressing=False),
    "neither": Options(streaming=False, suppressing=False),
    "no forgetting": Options(forgetting=False),
    "none": Options(streaming=False, suppressing=False, forgetting=False),
}


def typed(codes: np.ndarray, names: tuple[str, ...]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(names))


def blocks_of(number: int) -> pa.Table:
    """One event of each type a block, one each tick, the blocks one after the other."""
    size = len(TYPES)
    return pa.table(
        {
            "t": np.arange(number * size),
            "type": typed(np.tile(np.arange(size), number), TYPES),
            "id": np.repeat(np.arange(number), size),
        }
    )


def measure_blocks(number: int, runs: int) -> float:
    """Million events a second, in the best run."""
    table, program = blocks_of(number), ensue.parse(CHAIN)
    best = float("inf")
    for _ in range(runs):
        started = time.perf_counter()
        found = ensue.detect(table, program, time="t", type="type", limits=ensue.Limits(matches=None))
        best = min(best, time.perf_counter() - started)
        if found.num_rows != number:
            raise SystemExit(f"expected {number} events, one per block; found {found.num_rows}")
    return table.num_rows / best / 1e6


@dataclass(frozen=True, slots=True)
class Saved:
    """What a way to run a join costs."""

    stored: int
    evaluated: int
    seconds: float
    found: int


def joined_events(number: int, keys: int, share: float) -> pa.Table:
    """Events of the three streams, one each tick; `share` of them are of the first."""
    rng = np.random.default_rng(6)
    codes = rng.choice(3, number, p=[share, (1 - share) / 2, (1 - share) / 2])
    return pa.table({"t": np.arange(number), "type": typed(codes, JOINED), "id": rng.integers(0, keys, number)})


def measure_join(table: pa.Table, window: int, batch: int, options: Options) -> Saved:
    statements = single_statement(JOIN.replace("WINDOW", str(window)))
    planned = plan_queries(table.slice(0, 0), statements, Columns("t", "type"))
    machine = compile_plan(planned, options)
    state, found = machine.start(), 0
    columns = machine.inputs[0].table.column_names
    started = time.perf_counter()
    for begin in (*range(0, table.num_rows, batch), table.num_rows):
        part = table.slice(begin, batch).select(columns)
        until = begin + part.num_rows - 1 if part.num_rows else None
        step = machine.step(state, machine.read([part]), until)
        state = step.state
        found += step.outputs[0].num_rows
    seconds = time.perf_counter() - started
    return Saved(state.report.peak_held, state.report.evaluated, seconds, found)


def show_joins(measured: Mapping[str, Saved]) -> None:
    table = Table("switched off", "rows stored", "rows read", "seconds", "events")
    for name, saved in measured.items():
        table.add_row(name, f"{saved.stored:,}", f"{saved.evaluated:,}", f"{saved.seconds:.2f}", f"{saved.found:,}")
    Console().print(table)


def join_figures(measured: Mapping[str, Saved]) -> list[Figure]:
    everything = measured["all"]
    if {saved.found for saved in measured.values()} != {everything.found}:
        raise SystemExit("the variants find different events")
    figures = []
    for name, saved in measured.items():
        if name != "all":
            figures += [
                Figure(f"{name}: rows stored", saved.stored / max(1, everything.stored), "of those with all", 1, False),
                Figure(f"{name}: rows seen", saved.evaluated / everything.evaluated, "of those with all", 1, False),
                Figure(f"{name}: time", saved.seconds / everything.seconds, "of that with all", 1, False),
            ]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=BLOCKS, help="numbers of blocks to measure")
    parser.add_argument("--events", type=int, default=400_000, help="events of the joins (default 400,000)")
    parser.add_argument("--keys", type=int, default=10_000, help="keys of the joins (default 10,000)")
    parser.add_argument("--window", type=int, default=50_000, help="window of the joins in ticks (default 50,000)")
    parser.add_argument("--batch", type=int, default=5_000, help="events of a micro-batch (default 5,000)")
    parser.add_argument("--share", type=float, default=0.02, help="share of events of the first stream (default 0.02)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each measurement; the best one counts")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    measure_blocks(10, 1)  # compiles what is not compiled yet
    figures = []
    speeds = {number: measure_blocks(number, arguments.runs) for number in arguments.blocks}
    for number, speed in speeds.items():
        figures.append(Figure(f"{number:,} blocks", speed, "million events a second", WANTED, False))
    first, last = min(speeds), max(speeds)
    kept = speeds[last] / speeds[first]
    figures.append(Figure("no fall-off", kept, f"of the speed with {first:,} blocks", 0.9, False))
    table = joined_events(arguments.events, arguments.keys, arguments.share)
    measured: dict[str, Saved] = {}
    measure_join(table.slice(0, 10 * arguments.batch), arguments.window, arguments.batch, Options())
    for name, options in SWITCHES.items():
        results = [measure_join(table, arguments.window, arguments.batch, options) for _ in range(arguments.runs)]
        measured[name] = min(results, key=lambda saved: saved.seconds)
    if arguments.format == "table":
        show_joins(measured)
    figures += join_figures(measured)
    give(figures, arguments.format)


if __name__ == "__main__":
    main()
