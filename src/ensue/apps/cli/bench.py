"""`ensue bench`: measures events per second, for generated events or for a user's own program and events."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from rich.table import Table

from ensue.api import run
from ensue.apps.cli.files import read_sources
from ensue.apps.cli.program_files import choose_pattern, name_patterns
from ensue.apps.cli.starter import program_text, propose_project
from ensue.apps.cli.terminal import UsageError, counted, messages, open_console, show
from ensue.kernels.warm_up import warm_up
from ensue.plan.plans import NO_LIMITS
from ensue.programs import Program
from ensue.programs import parse as parse_program

# --- Generated events, patterns and timing, shared by `ensue bench` and the benchmarks

TIME_SPAN = 10**9
TYPES = 20
RETURNED = "RETURN a.key AS key, a.t AS began, c.t AS ended"
PATTERNS = {
    "SEQ(A, B, C)": ("SEQ(T00 a, T01 b, T02 c)", 0.66),
    "SEQ(A, NOT B, C)": ("SEQ(T00 a, NOT T01 b, T02 c)", 0.225),
    "SEQ(A, NOT SEQ(B, C), D)": ("SEQ(T00 a, NOT SEQ(T01 b, T03 d), T02 c)", 0.205),
}
"""Patterns and their windows, in mean gaps between events of one type and key: about one match per 100 events."""


def make_events(count: int, keys: int, types: int = TYPES, seed: int = 0, in_order: bool = True) -> pa.Table:
    """Generates events of equally frequent types, spread evenly over keys and time, with two numeric columns."""
    random = np.random.default_rng(seed)
    times = random.integers(0, TIME_SPAN, count)
    if in_order:
        times.sort()
    names = pa.array([f"T{number:02d}" for number in range(types)])
    return pa.table(
        {
            "t": times,
            "key": random.integers(0, keys, count),
            "type": names.take(pa.array(random.integers(0, types, count))),
            "x": random.integers(0, 1_000_000, count),
            "v": random.random(count),
        }
    )


def query_text(pattern: str, share: float, count: int, groups: int, types: int = TYPES, keyed: bool = True) -> str:
    """Returns the query of a pattern whose window is `share` mean gaps between events of one type and group."""
    window = max(1, int(share * TIME_SPAN * types * groups / count))
    partition = "PARTITION BY key" if keyed else ""
    return f"PATTERN {pattern} {partition} WITHIN {window} {RETURNED}"


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """Returns the time of the best of several runs."""
    best = float("inf")
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def unit_of(times: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]) -> float:
    """Returns the unit of the figures: the time to sort the rows by key and time."""
    return seconds(lambda: np.lexsort((times, keys)), repeat=2)


# --- Measurements

EVENTS_PER_KEY = 100

Sources: TypeAlias = "pa.Table | Mapping[str, pa.Table]"


@dataclass(frozen=True, slots=True)
class Work:
    """A program of one pattern and the events to run it on. `unit` is the time to sort the events."""

    name: str
    program: Program
    sources: Sources
    time: str
    type: str | None
    end: str | None = None
    order: list[str] | None = None
    unit: float | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The arguments of `ensue.run` that describe the events."""
        return {"time": self.time, "type": self.type, "end": self.end, "order": self.order}

    @property
    def events(self) -> int:
        return sum(table.num_rows for table in _tables(self.sources))


@dataclass(frozen=True, slots=True)
class Speed:
    """The measurement of one pattern: the best run in seconds, and in units if there is a unit."""

    name: str
    runtime: str
    events: int
    matches: int
    seconds: float
    units: float | None

    @property
    def events_per_second(self) -> int:
        return round(self.events / self.seconds)


def drawn_work(events: int) -> list[Work]:
    """Returns three patterns over generated events, a hundred per key."""
    keys = max(1, events // EVENTS_PER_KEY)
    table = make_events(events, keys)
    unit = unit_of(table.column("t").to_numpy(), table.column("key").to_numpy())
    return [
        Work(name, parse_program(query_text(pattern, share, events, keys)), table, "t", "type", unit=unit)
        for name, (pattern, share) in PATTERNS.items()
    ]


def own_work(
    program: Program,
    events: Sequence[str],
    time: str,
    type: str | None,
    end: str | None,
    order: list[str] | None = None,
    parse: str | None = None,
) -> list[Work]:
    """Returns each pattern of a user's program with the user's events."""
    sources = read_sources(events, [name for name in (time, end) if name is not None], order or (), parse)
    return _work_on(program, sources, time, type, end, order)


def proposed_work(
    events: Sequence[str], time: str | None, type: str | None, refused: Mapping[str, object], parse: str | None
) -> list[Work]:
    """Returns the patterns that `ensue init` proposes for a user's file. `refused` are options for a program."""
    options = [name for name, value in refused.items() if value]
    if options or len(events) > 1:
        given = options[0] if options else "an option `--events` for each stream"
        raise UsageError("no-program", f"{given} requires a program", "use `ensue bench FILE --events DATA ...`")
    project, table, _ = propose_project(Path(events[0]), Path(), time, type, None, parse)
    roles = project.roles
    typed = roles.type.column if roles.type is not None and not project.events.declarations else None
    order = None if roles.order is None else [roles.order.column]
    return _work_on(parse_program(program_text(project)), table, roles.time.column, typed, None, order)


def _work_on(
    program: Program, sources: Sources, time: str, type: str | None, end: str | None, order: list[str] | None
) -> list[Work]:
    named = name_patterns(program)
    work = []
    for name in named.names:
        chosen = choose_pattern(named, name)
        keys = chosen.statements.results[0].partition_by if chosen.statements.results else ()
        unit = _sorting_time(sources, time, keys)
        work.append(Work(name, chosen, sources, time, type, end, order, unit))
    return work


def measure(work: Sequence[Work], on_spark: bool, repeat: int) -> list[Speed]:
    """Measures each pattern: one warm-up run, then the best of `repeat` runs."""
    messages("Compiling kernels (takes a few seconds on the first run) ...")
    warm_up()
    if on_spark:
        return _measure_on_spark(work, repeat)
    return [_measure_in_process(item, repeat) for item in work]


def show_speeds(speeds: Sequence[Speed], as_json: bool) -> None:
    """Writes the measurements to stdout."""
    if as_json:
        rows = [{**asdict(speed), "events_per_second": speed.events_per_second} for speed in speeds]
        show(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table("pattern", "runtime", "events", "matches", "seconds", "events per second", "units")
    for column in table.columns[2:]:
        column.justify = "right"
    for speed in speeds:
        units = "" if speed.units is None else f"{speed.units:.2f}"
        cells = (f"{speed.events:,}", f"{speed.matches:,}", f"{speed.seconds:.3f}", f"{speed.events_per_second:,}")
        table.add_row(speed.name, speed.runtime, *cells, units)
    open_console().print(table)
    messages("A unit is the time that numpy.lexsort((time, key)) takes for the same rows on one core of this machine.")


def _tables(sources: Sources) -> list[pa.Table]:
    return [sources] if isinstance(sources, pa.Table) else list(sources.values())


def _sorting_time(sources: Sources, time: str, keys: Sequence[str]) -> float | None:
    """Returns the time to sort the rows of one table by key and time; None if there are several tables."""
    if not isinstance(sources, pa.Table) or {time, *keys} - set(sources.column_names):
        return None
    times = sources.column(time).cast(pa.int64(), safe=False).fill_null(0).to_numpy()
    codes = np.zeros(len(times), np.int64)
    for key in keys:
        encoded = pc.dictionary_encode(sources.column(key).combine_chunks())
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
    return unit_of(times, codes)


def _measure_in_process(work: Work, repeat: int) -> Speed:
    messages(f"Measuring {work.name} on {counted(work.events, 'event')} ...")
    found: dict[str, pa.Table] = {}

    def once() -> None:
        found.update(run(work.sources, work.program, **work.columns, limits=NO_LIMITS))

    once()
    matches = sum(table.num_rows for table in found.values())
    return _speed(work, "in process", matches, seconds(once, repeat))


def _speed(work: Work, runtime: str, matches: int, spent: float) -> Speed:
    units = spent / work.unit if work.unit else None
    return Speed(work.name, runtime, work.events, matches, round(spent, 4), None if units is None else round(units, 3))


def _measure_on_spark(work: Sequence[Work], repeat: int) -> list[Speed]:
    messages("Starting Spark ...")
    with _session() as spark, tempfile.TemporaryDirectory(prefix="ensue-bench-") as folder:
        return [_measure_frames(item, spark, Path(folder, str(place)), repeat) for place, item in enumerate(work)]


@contextmanager
def _session() -> Iterator[Any]:
    """Gives the running Spark session, or a new one that it stops at the end."""
    from ensue.runtimes.spark.session import running_session, spark_session

    was_there = running_session() is not None
    spark = spark_session("ensue bench")
    try:
        yield spark
    finally:
        if not was_there:
            spark.stop()


def _measure_frames(work: Work, spark: Any, folder: Path, repeat: int) -> Speed:
    messages(f"Measuring {work.name} on {counted(work.events, 'event')} ...")
    frames = _frames(work.sources, spark, folder)

    def found() -> Any:
        results = run(frames, work.program, **work.columns, limits=NO_LIMITS)
        (frame,) = results.values()
        return frame

    matches = found().count()
    spent = seconds(lambda: found().write.format("noop").mode("overwrite").save(), repeat)
    return _speed(work, "Spark, batch", matches, spent)


def _frames(sources: Sources, spark: Any, folder: Path) -> Any:
    """Writes the events to files, with times in microseconds, and returns DataFrames over them."""
    folder.mkdir()
    if isinstance(sources, pa.Table):
        return _frame(sources, spark, folder / "events.parquet")
    return {
        name: _frame(table, spark, folder / f"{place}.parquet") for place, (name, table) in enumerate(sources.items())
    }


def _frame(table: pa.Table, spark: Any, path: Path) -> Any:
    parquet.write_table(table, path, coerce_timestamps="us", allow_truncated_timestamps=True)
    return spark.read.parquet(str(path))
