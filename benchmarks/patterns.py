"""The cost of many patterns over the same events in one program; see `python benchmarks/patterns.py --help`.

Events: 1 million, one per millisecond from 2024-01-01 UTC, from seed 0. Columns: `t` timestamp in ms with zone
UTC, `key` int64 of 1,000 values, `type` text of 20 equally frequent values T00 to T19, `v` int64 from 0 to 999.
Patterns, from seed 1 and named p0, p1, ...: `SEQ(X a, NOT Z n, Y b) WHERE a.v = c AND b.v > c PARTITION BY key
WITHIN 20 s` without RETURN, where X, Y and Z are three different types and c is from 0 to 999. The first 100 of 1,000
patterns are the 100 patterns.

In process: `ensue.run` with one thread, from the text of the program to the tables of all matches; the best of several
runs. Parsing, checking and planning the largest program are also measured separately.

`--spark` adds the 100 patterns on Spark with 2 cores. Batch: the same events in Parquet, from the text until all
results are computed, with one action (`Results.together`) or with one action per pattern. Stream: `ensue.start` on the
same events in 8 files, one file per micro-batch, with one sink for all matches, compared with one pattern on the same
files; the median of the last five micro-batches.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from figures import Figure, give

import ensue
from ensue.apps.cli.bench import seconds
from ensue.plan.program_plans import Columns, plan_queries

TYPES = 20
VALUES = 1_000
BEGIN = 1_704_067_200_000
COLUMNS = {"time": "t", "type": "type"}
LIMITS = ensue.Limits(matches=None)
TARGETS = {100: 0.2, 1_000: 1.0}
PLANNING_TARGET = 1.5
BATCH_TARGET = 3.0
STREAM_TARGET = 2.0
STREAMED = 100
"""How many patterns run on Spark."""

MICRO_BATCHES = 8
FIRST_MICRO_BATCHES = 3
"""Micro-batches of a stream, and how many of them do not count because they start workers."""


def make_events(count: int, keys: int) -> pa.Table:
    """One event each millisecond, of equally frequent types, keys and values."""
    random = np.random.default_rng(0)
    names = pa.array([f"T{number:02d}" for number in range(TYPES)])
    return pa.table(
        {
            "t": pa.array(np.arange(BEGIN, BEGIN + count)).cast(pa.timestamp("ms", "UTC")),
            "key": random.integers(0, keys, count),
            "type": names.take(pa.array(random.integers(0, TYPES, count))),
            "v": random.integers(0, VALUES, count),
        }
    )


def make_program(patterns: int) -> str:
    """The text of a program with so many patterns; a smaller program is the begin of a larger one."""
    random = np.random.default_rng(1)
    statements = []
    for number in range(patterns):
        first, last, absent = (f"T{place:02d}" for place in random.choice(TYPES, 3, replace=False))
        value = int(random.integers(0, VALUES))
        statements.append(
            f"PATTERN p{number} SEQ({first} a, NOT {absent} n, {last} b) WHERE a.v = {value} AND b.v > {value} "
            "PARTITION BY key WITHIN 20 s;"
        )
    return "\n".join(statements)


# -- in process --------------------------------------------------------------------------------------------------------


def run(program: str, events: pa.Table) -> Mapping[str, pa.Table]:
    return ensue.run(events, program, limits=LIMITS, **COLUMNS)


def run_figures(events: pa.Table, sizes: list[int], runs: int) -> Iterator[Figure]:
    for patterns in sizes:
        program = make_program(patterns)
        matches = sum(table.num_rows for table in run(program, events).values())
        spent = seconds(lambda program=program: run(program, events), runs)
        note = f"{matches:,} matches, {1e3 * spent / patterns:.2f} ms a pattern"
        target = TARGETS.get(patterns, TARGETS[1_000])
        yield Figure(f"{patterns:,} patterns over {events.num_rows:,} events", spent, "seconds", target, note=note)


def prepare(program: str, events: pa.Table) -> tuple[float, float]:
    """The seconds to parse and check a program, and to plan it; the only place that knows the steps before a run."""
    began = time.perf_counter()
    statements = ensue.parse(program).statements
    parsed = time.perf_counter()
    plan_queries(events, statements, Columns(**COLUMNS))
    return parsed - began, time.perf_counter() - parsed


def prepare_figure(events: pa.Table, patterns: int, runs: int) -> Figure:
    program = make_program(patterns)
    parsing, planning = min((prepare(program, events) for _ in range(runs)), key=sum)
    note = f"{parsing:.2f} s to parse and check, {planning:.2f} s to plan"
    name = f"parse, check and plan {patterns:,} patterns"
    return Figure(name, parsing + planning, "seconds", PLANNING_TARGET, note=note)


def write_profile(path: Path, events: pa.Table, patterns: int, entries: int = 40) -> None:
    """The functions on which a program spends its time: before the run, and in the run."""
    program = make_program(patterns)
    run(program, events)
    with path.open("w", encoding="utf-8") as file:
        for title, work in (
            ("parse, check and plan", lambda: prepare(program, events)),
            (f"run over {events.num_rows:,} events", lambda: run(program, events)),
        ):
            profile = cProfile.Profile(time.process_time)
            profile.runcall(work)
            for order in ("cumulative", "tottime"):
                print(f"== {patterns:,} patterns: {title}, by {order}", file=file)
                pstats.Stats(profile, stream=file).sort_stats(order).print_stats(entries)


# -- on Spark ----------------------------------------------------------------------------------------------------------


def batch_seconds(spark: Any, folder: Path, program: str, action: Callable[[ensue.Results], None]) -> float:
    """The time from the text until the matches of all patterns are computed."""
    began = time.perf_counter()
    found = ensue.run(spark.read.parquet(str(folder)), program, limits=LIMITS, **COLUMNS)
    action(found)
    spent = time.perf_counter() - began
    found.release()
    return spent


def one_by_one(found: Mapping[str, Any]) -> None:
    for frame in found.values():
        discard(frame)


def together(found: ensue.Results) -> None:
    """All matches in one action."""
    discard(found.together())


ACTIONS = {"one action": together, "an action for each": one_by_one}


def discard(rows: Any, batch: int = 0) -> None:
    """Computes a DataFrame and keeps nothing of it."""
    rows.write.format("noop").mode("overwrite").save()


def stream_seconds(spark: Any, folder: Path, program: str) -> float:
    """The median time of a micro-batch, each of one file."""
    frame = spark.readStream.schema("t timestamp, key long, type string, v long").option("maxFilesPerTrigger", 1)
    stream = frame.parquet(str(folder)).withWatermark("t", "1 second")
    with tempfile.TemporaryDirectory() as checkpoint:
        options = {
            "checkpointLocation": checkpoint,
            "trigger": {"availableNow": True},
            "status": False,
            "limits": LIMITS,
        }
        running = ensue.start(stream, program, to=discard, **options, **COLUMNS)
        running.awaitTermination()
        progress = [dict(entry) for entry in running.queries[0].recentProgress if entry["numInputRows"]]
    times = [entry["durationMs"]["triggerExecution"] / 1000 for entry in progress]
    return median(times[min(FIRST_MICRO_BATCHES, len(times) - 1) :])


def spark_figures(events: pa.Table, patterns: int, runs: int) -> Iterator[Figure]:
    program, single = make_program(patterns), make_program(1)
    spark = ensue.spark_session(master="local[2]", memory="4g")
    with tempfile.TemporaryDirectory() as data:
        whole, cut = Path(data, "whole"), Path(data, "cut")
        whole.mkdir()
        cut.mkdir()
        pq.write_table(events, whole / "part-0.parquet")
        rows = events.num_rows // MICRO_BATCHES
        for number in range(MICRO_BATCHES):
            pq.write_table(events.slice(number * rows, rows), cut / f"part-{number}.parquet")
        batch_seconds(spark, whole, single, together)  # starts workers
        for label, action in ACTIONS.items():
            spent = min(batch_seconds(spark, whole, program, action) for _ in range(runs))
            name = f"{patterns:,} patterns on Spark batch over {events.num_rows:,} events, {label}"
            yield Figure(name, spent, "seconds", BATCH_TARGET)
        one, many = (stream_seconds(spark, cut, text) for text in (single, program))
        note = f"{many:.2f} s against {one:.2f} s a micro-batch of {rows:,} events"
        yield Figure(f"{patterns:,} patterns as a stream", many / one, "times one pattern", STREAM_TARGET, note=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--patterns", type=int, nargs="+", default=list(TARGETS), help="sizes of the programs")
    parser.add_argument("--runs", type=int, default=2, help="runs of each measurement; the best one counts")
    parser.add_argument("--spark", action="store_true", help="also run on Spark")
    parser.add_argument("--profile", type=Path, help="only write a profile of the largest program to this file")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    events = make_events(arguments.events, arguments.keys)
    most, runs = max(arguments.patterns), arguments.runs
    run(make_program(1), events.slice(0, 1_000))  # compiles what is not compiled yet
    if arguments.profile:
        write_profile(arguments.profile, events, most)
        return
    figures = [*run_figures(events, arguments.patterns, runs), prepare_figure(events, most, runs)]
    if arguments.spark:
        figures += spark_figures(events, min(STREAMED, most), runs)
    give(figures, arguments.format)


if __name__ == "__main__":
    main()
