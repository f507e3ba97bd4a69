"""Compares FOLLOWS with joins in Spark SQL, in one run; see `python benchmarks/semantic_windows.py --help`.

The three experiments of the paper on semantic windows: events of 20 types, one per tick, with an attribute. A match is
an event of the first type and an event of the second type that follows it within the window and has the same value
(length 3: and an event of the third type that follows in the same way). The benchmark varies the window, the number of
values and the length of the sequence, one at a time.

Spark SQL joins the table with itself: the types and the windows are filters and the attribute is the join key, as one
would usually write it. `slots` is the same query, tuned for Spark: it divides time into slots as long as the window and
uses them as a join key too, so that the join compares far fewer pairs. Ensue runs on Spark and in this process. All
read the same Parquet files and compute the number of matches and a checksum, which must be the same.

Each contender warms up on the first tenth of the events. Then they take turns, and the best run counts.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from figures import Figure, give
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own convention)
from rich.console import Console
from rich.table import Table

import ensue

TYPES = 20
FILES = 10
WINDOWS = (100, 1_000, 10_000)
DOMAINS = (10, 50, 100, 500, 1_000)
LENGTHS = (2, 3)
TIMES = ("a", "b", "c")
"""The columns of a result: the times of the events, in order."""

WEIGHTS = (1_000_003, 10_007, 1)
MODULUS = 2**31 - 1
SQL, SLOTS, SPARK, PROCESS = "Spark SQL", "Spark SQL, slots", "Ensue on Spark", "Ensue in process"
LONG_ENOUGH = 60.0
"""A contender that takes longer than this, in seconds, runs only once."""


@dataclass(frozen=True, slots=True)
class Point:
    """What is asked: how long a window, of how many values, how long a sequence."""

    window: int
    domain: int
    length: int

    @property
    def column(self) -> str:
        return f"x{self.domain}"

    @property
    def target(self) -> float:
        """How many times as fast as Spark SQL is to be reached."""
        return 10.0 if self.length == 3 else 5.0 if self.window == max(WINDOWS) else 1.0


Experiment = tuple[Point, ...]
EXPERIMENTS: Mapping[str, Experiment] = {
    "window": tuple(Point(window, 100, 2) for window in WINDOWS),
    "domain": tuple(Point(1_000, domain, 2) for domain in DOMAINS),
    "length": tuple(Point(10_000, 100, length) for length in LENGTHS),
}


@dataclass(frozen=True, slots=True)
class Found:
    """How many matches there are, and a checksum of their times."""

    matches: int
    checksum: int


# -- data --------------------------------------------------------------------------------------------------------------


def write_events(folder: Path, count: int) -> None:
    """Events of equally frequent types, the n-th at time n, with one attribute for each domain, in files by time."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    names = pa.array([f"T{number:02d}" for number in range(TYPES)])
    rows = count // FILES
    for number in range(FILES):
        table = pa.table(
            {
                "t": np.arange(number * rows, (number + 1) * rows),
                "type": names.take(pa.array(random.integers(0, TYPES, rows))),
                **{f"x{domain}": random.integers(0, domain, rows) for domain in DOMAINS},
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet")


# -- contenders --------------------------------------------------------------------------------------------------------


def query_text(point: Point) -> str:
    """FOLLOWS, nested for a length of 3, with the same value everywhere."""
    pattern, conditions = "T00 a", []
    for place, name in enumerate(TIMES[1 : point.length], start=1):
        pattern = f"FOLLOWS({pattern}, T{place:02d} {name}, {point.window})"
        conditions.append(f"{TIMES[place - 1]}.{point.column} = {name}.{point.column}")
    returned = ", ".join(f"{name}.t AS {name}" for name in TIMES[: point.length])
    return f"PATTERN {pattern} WHERE {' AND '.join(conditions)} RETURN {returned}"


def joined(events: Any, point: Point) -> Any:
    """The same as joins of a table with itself."""
    found = events_of(events, 0, point)
    for place in range(1, point.length):
        following = events_of(events, place, point)
        found = found.join(following, (found.x == following.x) & follows(place, point)).drop(following.x)
    return found.select(*TIMES[: point.length])


def joined_by_slots(events: Any, point: Point) -> Any:
    """The same where an event looks for its successors only in its own slot of time and in the next."""
    found = events_of(events, 0, point)
    for place in range(1, point.length):
        earlier, later = (F.floor(F.col(TIMES[number]) / point.window) for number in (place - 1, place))
        sought = found.withColumn("slot", F.explode(F.array(earlier, earlier + 1)))
        following = events_of(events, place, point).withColumn("slot", later)
        together = (sought.x == following.x) & (sought.slot == following.slot) & follows(place, point)
        found = sought.join(following, together).drop(following.x, sought.slot, following.slot)
    return found.select(*TIMES[: point.length])


def events_of(events: Any, place: int, point: Point) -> Any:
    """The events of one type, their time under the name of their place."""
    own = events.filter(events.type == f"T{place:02d}")
    return own.select(own.t.alias(TIMES[place]), own[point.column].alias("x"))


def follows(place: int, point: Point) -> Any:
    earlier, later = F.col(TIMES[place - 1]), F.col(TIMES[place])
    return (later > earlier) & (later <= earlier + point.window)


def summed(frame: Any) -> Found:
    """Computes a DataFrame."""
    checksum = sum(F.col(name) * weight for name, weight in zip(frame.columns, WEIGHTS, strict=False))
    row = frame.agg(F.count("*"), F.sum(F.pmod(checksum, F.lit(MODULUS)))).collect()[0]
    return Found(row[0], row[1] or 0)


def summed_table(table: pa.Table) -> Found:
    times = [column.to_numpy() for column in table.columns]
    checksum = sum(column * weight for column, weight in zip(times, WEIGHTS, strict=False))
    return Found(table.num_rows, int(np.sum(checksum % MODULUS)))


def contenders(spark: Any, files: Sequence[Path], point: Point) -> dict[str, Callable[[], Found]]:
    """Each way to find the matches in some files."""
    names, query, columns = list(map(str, files)), query_text(point), ["t", "type", point.column]

    def frame() -> Any:
        return spark.read.parquet(*names)

    def in_process() -> Found:
        events = pa.concat_tables([pq.read_table(name, columns=columns) for name in names])
        return summed_table(ensue.detect(events, query, time="t", type="type", limits=ensue.Limits(matches=None)))

    return {
        SQL: lambda: summed(joined(frame(), point)),
        SLOTS: lambda: summed(joined_by_slots(frame(), point)),
        SPARK: lambda: summed(ensue.detect(frame(), query, time="t", type="type", limits=ensue.Limits(matches=None))),
        PROCESS: in_process,
    }


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """The best time of each contender, and how many matches all of them found."""

    seconds: Mapping[str, float]
    matches: int

    def ahead(self, name: str) -> float:
        return self.seconds[SQL] / self.seconds[name]


def measure(spark: Any, data: Path, point: Point, runs: int) -> Result:
    files = sorted(data.glob("*.parquet"))
    for work in contenders(spark, files[: max(1, len(files) // 10)], point).values():
        work()
    times: dict[str, list[float]] = {}
    answers: dict[str, Found] = {}
    ways = contenders(spark, files, point)
    for _ in range(runs):
        for name, work in ways.items():
            if sum(times.get(name, [])) < LONG_ENOUGH:
                began = time.perf_counter()
                answers[name] = work()
                times.setdefault(name, []).append(time.perf_counter() - began)
    assert len(set(answers.values())) == 1, f"{point}: {answers}"
    return Result({name: min(spent) for name, spent in times.items()}, answers[SQL].matches)


Results = Mapping[Point, Result]


def figures_of(results: Results) -> Iterator[Figure]:
    """How far ahead of Spark SQL both ways to run Ensue are."""
    for point, result in results.items():
        label = f"window {point.window:,}, {point.domain:,} values, length {point.length}"
        for name in (SPARK, PROCESS):
            note = f"{result.seconds[name]:.2f} s against {result.seconds[SQL]:.2f} s, {result.matches:,} matches"
            yield Figure(
                f"{label}: {name}", result.ahead(name), "times as fast", point.target, at_most=False, note=note
            )


def show_results(results: Results) -> None:
    table = Table("window", "values", "length", "matches", *(f"{name}, s" for name in (SQL, SLOTS, SPARK, PROCESS)))
    for point, result in results.items():
        times = [f"{result.seconds[name]:.2f}" for name in (SQL, SLOTS, SPARK, PROCESS)]
        table.add_row(f"{point.window:,}", f"{point.domain:,}", f"{point.length}", f"{result.matches:,}", *times)
    Console().print(table)


def plot_results(results: Results, chosen: Sequence[str], folder: Path) -> None:
    """The time of each contender in the chosen experiments, as one drawing."""
    from matplotlib.figure import Figure as Drawing  # only who asks for plots needs it

    drawing = Drawing(figsize=(4 * len(chosen), 3.8), layout="constrained")
    for axes, varied in zip(drawing.subplots(1, len(chosen), squeeze=False)[0], chosen, strict=True):
        points = EXPERIMENTS[varied]
        for name in (SQL, SLOTS, SPARK, PROCESS):
            places = [getattr(point, varied) for point in points]
            axes.plot(places, [results[point].seconds[name] for point in points], marker="o", label=name)
        axes.set(xlabel=LABELS[varied], ylabel="time in s", yscale="log", title=title_of(varied, points[0]))
        axes.set_xscale("linear" if varied == "length" else "log")
        axes.set_xticks([getattr(point, varied) for point in points], [f"{getattr(p, varied):,}" for p in points])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    drawing.savefig(folder / "semantic_windows.svg")


LABELS = {"window": "window, in events", "domain": "values of the attribute", "length": "length of the sequence"}


def title_of(varied: str, point: Point) -> str:
    said = {
        "window": f"window {point.window:,}",
        "domain": f"{point.domain:,} values",
        "length": f"length {point.length}",
    }
    return ", ".join(text for name, text in said.items() if name != varied)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=4_000_000, help="events of a run (default 4 million)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement; the best one counts")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--experiment", choices=EXPERIMENTS, action="append", help="run only this experiment; can be repeated"
    )
    parser.add_argument("--plots", type=Path, help="folder for the plot as SVG; requires matplotlib")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    chosen = arguments.experiment or tuple(EXPERIMENTS)
    points = dict.fromkeys(point for name in chosen for point in EXPERIMENTS[name])
    data = Path(tempfile.mkdtemp(prefix="ensue-bench-"))
    try:
        write_events(data / "events", arguments.events)
        spark = ensue.spark_session(master=f"local[{arguments.cores}]", memory="4g")
        results = {point: measure(spark, data / "events", point, arguments.runs) for point in points}
    finally:
        shutil.rmtree(data)
    if arguments.format == "table":
        show_results(results)
    if arguments.plots:
        plot_results(results, chosen, arguments.plots)
    give(list(figures_of(results)), arguments.format)


if __name__ == "__main__":
    main()
