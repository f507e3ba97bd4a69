"""Measures the cost of Ensue on Spark as ratios within one run; see `python benchmarks/spark.py --help`.

The unit is the bare pipeline: the same filter, columns and shuffle, with a function in the worker that does nothing.
Each part runs in its own process and Spark session. After a warm-up run, the best of several runs counts.

A small micro-batch of 1,000 events is also compared with an idle operator: the same `applyInPandasWithState` over the
same rows and buckets, without packing and unpacking rows, and with a state of the same size in bytes. It reads the
state, writes it back and returns no rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from figures import Figure, give
from pyspark.sql.functions import lit, pmod, window, xxhash64

import ensue

DAY = 86_400_000_000
BEGIN = 1_700_000_000_000_000
TYPES = 20
FILES = 8
SMALL_BATCHES = 12
THREE = ("T00", "T01", "T02")
RETURNED = "RETURN a.key AS key, a.t AS began, c.t AS ended"
KEYED = f"PATTERN SEQ(T00 a, T01 b, T02 c) PARTITION BY key WITHIN 10 minutes {RETURNED}"
KEYED_SHORT = f"PATTERN SEQ(T00 a, T01 b, T02 c) PARTITION BY key WITHIN 200 ms {RETURNED}"
UNKEYED = f"PATTERN SEQ(T00 a, T01 b, T02 c) WITHIN 50 ms {RETURNED}"
ALL_RELEVANT = (
    "PATTERN SEQ(Event a [v < 0.3], Event b [v >= 0.3 AND v < 0.6], Event c [v >= 0.6]) "
    f"PARTITION BY key WITHIN 10 minutes {RETURNED}"
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: events of a batch, of a micro-batch, keys, and runs of each measurement."""

    events: int
    micro_batch: int
    keys: int
    runs: int


# -- data --------------------------------------------------------------------------------------------------------------


def write_events(folder: Path, size: Size, hot: float = 0.0) -> None:
    """Events of equally frequent types over a day, in files by time; one key has the share `hot` of them."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    names = pa.array([f"T{number:02d}" for number in range(TYPES)])
    count = size.events // FILES
    for number in range(FILES):
        times = BEGIN + number * (DAY // FILES) + np.sort(random.integers(0, DAY // FILES, count))
        keys = np.where(random.random(count) < hot, 0, random.integers(0, size.keys, count))
        table = pa.table(
            {
                "t": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "key": keys,
                "type": names.take(pa.array(random.integers(0, TYPES, count))),
                "v": random.random(count),
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet")


def cut_into_files(folder: Path, target: Path, rows: int, most: int) -> None:
    """The first events of a folder, in order, as files of so many rows."""
    target.mkdir(parents=True)
    table = pq.read_table(folder).sort_by("t")
    for number in range(min(most, table.num_rows // rows)):
        pq.write_table(table.slice(number * rows, rows), target / f"part-{number:03d}.parquet")


# -- measuring ---------------------------------------------------------------------------------------------------------


def seconds(frame: Callable[[], Any], runs: int) -> float:
    """The best time to compute a DataFrame, after one run that does not count."""
    times = []
    for _ in range(runs + 1):
        began = time.perf_counter()
        frame().write.format("noop").mode("overwrite").save()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the bare pipeline runs in the worker."""
    yield from batches


def detected(query: str) -> Callable[[Any], Any]:
    typed = {"type": "type"} if "Event a" not in query else {}
    return lambda stream: ensue.detect(stream, query, time="t", **typed)


def counted(query: str) -> Callable[[Any], Any]:
    """The least that Spark can do on a stream with the same filter: a count in its own state, without Python."""
    types = THREE if "Event a" not in query else tuple(f"T{number:02d}" for number in range(TYPES))
    return lambda stream: (
        stream.filter(stream.type.isin(*types)).groupBy(window("t", "1 minute"), stream.key % 8).count()
    )


def micro_batches(
    spark: Any, folder: Path, files: int, build: Callable[[Any], Any], keep: Path | None = None
) -> list[dict[str, Any]]:
    """The progress of each micro-batch of a stream over the files of a folder, so many at a time.

    The states of its buckets are written to the folder `keep`, one file each, if it is given.
    """
    schema = "t timestamp, key long, type string, v double"
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(folder))
    stream = frame.withWatermark("t", "1 second")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = build(stream).writeStream.format("noop")
        running = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        running.awaitTermination()
        if keep is not None:
            write_states(spark, checkpoint, keep)
        return [dict(progress) for progress in running.recentProgress if progress["numInputRows"]]


def write_states(spark: Any, checkpoint: str, folder: Path) -> None:
    """The states of the buckets of a stream, as files."""
    folder.mkdir(parents=True)
    for row in spark.read.format("statestore").load(checkpoint).collect():
        if row["value"]["groupState"] is not None:
            Path(folder, str(row["key"]["bucket"])).write_bytes(row["value"]["groupState"]["events"])


def idle(folder: Path, buckets: int) -> Callable[[Any], Any]:
    """A stateful operator over the rows of THREE that does nothing; its states begin as the files of a folder."""

    def operator(key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in frames:
            pass
        state.update((buckets, bytes(state.get[1]) if state.exists else (folder / str(key[0])).read_bytes()))
        yield from ()

    def build(stream: Any) -> Any:
        bucket = pmod(xxhash64("key"), lit(buckets)).cast("int").alias("bucket")
        rows = stream.filter(stream.type.isin(*THREE)).select("t", "key", "type", bucket).groupBy("bucket")
        found, kept = "output int, rows long, payload binary", "buckets int, events binary"
        return rows.applyInPandasWithState(operator, found, kept, "append", "EventTimeTimeout")

    return build


def trigger_seconds(progress: dict[str, Any]) -> float:
    return float(progress["durationMs"]["triggerExecution"]) / 1000


# -- parts -------------------------------------------------------------------------------------------------------------


def batch_part(spark: Any, data: Path, size: Size) -> Iterator[Figure]:
    """Batch against the bare pipeline, a filter possible and not."""
    events = spark.read.parquet(str(data / "even"))

    def bare(columns: list[str], types: tuple[str, ...]) -> Any:
        rows = events.filter(events["type"].isin(*types)) if types else events
        shuffled = rows.select(*columns).repartition("key")
        return shuffled.mapInArrow(unchanged, shuffled.schema)

    three = seconds(lambda: bare(["t", "key", "type"], THREE), size.runs)
    ours = seconds(lambda: ensue.detect(events, KEYED, time="t", type="type"), size.runs)
    yield Figure("SEQ of 3 of 20 types", ours / three, "bare pipeline", 1.3, note=f"{ours:.2f} s")
    everything = seconds(lambda: bare(["t", "key", "v"], ()), size.runs)
    ours_all = seconds(lambda: ensue.detect(events, ALL_RELEVANT, time="t"), size.runs)
    yield Figure("SEQ over all events", ours_all / everything, "bare pipeline", 1.5, note=f"{ours_all:.2f} s")
    program = "; ".join(
        KEYED.replace("PATTERN", f"PATTERN p{number}").replace("10 minutes", f"{number} minutes")
        for number in range(1, 9)
    )
    before = ensue.Results()

    def eight() -> Any:
        nonlocal before
        before.release()
        before = ensue.run(events, program, time="t", type="type")
        return reduce(lambda one, other: one.union(other), before.values())

    many = seconds(eight, size.runs)
    yield Figure("8 patterns in one run", many / ours, "one pattern", 8.0, note=f"{many:.2f} s; the target is ours")


def hot_part(spark: Any, data: Path, size: Size) -> Iterator[Figure]:
    """One key with 80 % of the events against evenly spread keys."""
    times = {}
    for name in ("even", "hot"):
        events = spark.read.parquet(str(data / name))
        times[name] = seconds(lambda frame=events: ensue.detect(frame, KEYED_SHORT, time="t", type="type"), size.runs)
    yield Figure("one key with 80 % of events", times["hot"] / times["even"], "evenly spread keys", 1.5)


def unkeyed_part(spark: Any, data: Path, size: Size) -> Iterator[Figure]:
    """The time without PARTITION BY, to be compared between numbers of cores."""
    events = spark.read.parquet(str(data / "even"))
    yield Figure("no key", seconds(lambda: ensue.detect(events, UNKEYED, time="t", type="type"), size.runs), "s", 0.0)


def stream_part(spark: Any, data: Path, size: Size) -> Iterator[Figure]:
    """Events a second of a stream against a batch over the same events, and what a small micro-batch takes."""
    cut, files = data / "cut", 2
    cut_into_files(data / "even", cut, size.micro_batch // files, 12 * files)
    names = sorted(map(str, cut.glob("*.parquet")))
    everything, single = spark.read.parquet(*names), spark.read.parquet(*names[:files])
    for name, query, typed in (("3 of 20 types", KEYED, {"type": "type"}), ("all events", ALL_RELEVANT, {})):
        whole, one = (
            seconds(lambda rows=rows, q=query, t=typed: ensue.detect(rows, q, time="t", **t), size.runs)
            for rows in (everything, single)
        )
        least, took = (
            median(map(trigger_seconds, micro_batches(spark, cut, files, build)[len(names) // files // 2 :]))
            for build in (counted(query), detected(query))
        )
        rate = size.micro_batch / took
        for label, other in (
            ("batch of as many", size.micro_batch / one),
            ("batch over all", len(names) // files * size.micro_batch / whole),
            ("Spark counting", size.micro_batch / least),
        ):
            note = f"{rate:,.0f} events/s against {other:,.0f}"
            yield Figure(f"stream, {name}", rate / other, label, 0.5, at_most=False, note=note)
    yield from small_figures(spark, data, size)


def small_figures(spark: Any, data: Path, size: Size) -> Iterator[Figure]:
    """What a micro-batch of 1,000 events takes after a large one, against an operator that does nothing."""
    small, states = data / "small", data / "states"
    cut_into_files(data / "even", small, size.micro_batch, 1)
    last = pq.read_table(small / "part-000.parquet")
    for number in range(SMALL_BATCHES):
        piece = last.slice(number * 1000, 1000)
        later = pa.array(np.asarray(piece["t"].cast(pa.int64())) + DAY // FILES + number * 1_000_000)
        moved = piece.set_column(0, "t", later.cast(pa.timestamp("us", "UTC")))
        pq.write_table(moved, small / f"part-{number + 1:03d}.parquet")
    query = KEYED.replace("10 minutes", "1 day")
    micro_batches(spark, small, 1, detected(query), states)
    nothing = idle(states, len(list(states.iterdir())))
    turns = [
        [small_seconds(micro_batches(spark, small, 1, build)) for build in (detected(query), nothing)]
        for _ in range(size.runs)
    ]
    latency, least = map(min, zip(*turns, strict=True))
    yield Figure("small micro-batch", latency, "s (1,000 events)", 5.0, note="to be reported; a day of state")
    kept = sum(file.stat().st_size for file in states.iterdir())
    note = f"{latency:.2f} s against {least:.2f} s, {kept / 1e6:.1f} MB of state"
    yield Figure("small micro-batch, more than an idle operator", latency - least, "s", 0.1, note=note)


def small_seconds(progress: list[dict[str, Any]]) -> float:
    """The median of the micro-batches after the large one, the first two of which do not count."""
    return median(map(trigger_seconds, progress[3:]))


PARTS = {"batch": batch_part, "hot": hot_part, "unkeyed": unkeyed_part, "stream": stream_part}


# -- processes ---------------------------------------------------------------------------------------------------------


def run_part(name: str, cores: int, data: Path, arguments: argparse.Namespace) -> list[Figure]:
    """The figures of one part, measured in a process of its own."""
    command = [sys.executable, __file__, "--part", name, "--cores", str(cores), "--data", str(data), "--format", "json"]
    for option in ("events", "micro_batch", "keys", "runs"):
        command += [f"--{option.replace('_', '-')}", str(getattr(arguments, option))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [
        Figure(**{key: value for key, value in entry.items() if key != "reached"}) for entry in json.loads(done.stdout)
    ]


def all_parts(data: Path, arguments: argparse.Namespace) -> Iterator[Figure]:
    yield from run_part("batch", 2, data, arguments)
    one, two = (run_part("unkeyed", cores, data, arguments)[0].value for cores in (1, 2))
    yield Figure("no key, 2 cores", one / two, "speed on 1 core", 1.6, at_most=False, note=f"{one:.2f} s, {two:.2f} s")
    yield from run_part("hot", 2, data, arguments)
    yield from run_part("stream", 2, data, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000, help="events of the batch runs (default 10 million)")
    parser.add_argument("--micro-batch", type=int, default=1_000_000, help="events of a micro-batch")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement; the best one counts")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--part", choices=PARTS, help="run only this part, in this process")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--data", type=Path, help="folder with the events of a part")
    arguments = parser.parse_args()
    size = Size(arguments.events, arguments.micro_batch, arguments.keys, arguments.runs)
    if arguments.part:
        if hasattr(os, "sched_setaffinity"):  # Spark's threads and the Python workers share these cores
            os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: arguments.cores]))
        spark = ensue.spark_session(master=f"local[{arguments.cores}]", memory="4g")
        give(list(PARTS[arguments.part](spark, arguments.data, size)), arguments.format)
        return
    data = Path(tempfile.mkdtemp(prefix="ensue-bench-"))
    try:
        write_events(data / "even", size)
        write_events(data / "hot", size, hot=0.8)
        give(list(all_parts(data, arguments)), arguments.format)
    finally:
        shutil.rmtree(data)


if __name__ == "__main__":
    main()
