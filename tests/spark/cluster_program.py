"""What a user's program does with Ensue, on the session of a cluster or of Spark Connect; prints what it found as JSON.

    python -m spark.cluster_program URL FOLDER

A process can have only one kind of session, so the tests run this in one of its own: a line of JSON per part, in order.
With `sc://` nothing that talks to a Java process can be imported. The tables and the queries stand here as functions,
so that a test can put them to the local engine.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ensue
from case_files import Case, input_of, render_rows
from test_cases import ALL, codes_of, columns_of, has_rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATTERNS = [(path, case) for path, case in ALL if not has_rules(case)]
"""Rules give several results, and run on the same plans and workers."""

SAMPLE = 50
CASES_PER_JOB = 30
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java processes that live for a minute: less compiling, fewer threads."""

ON_CLUSTER = {
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
    "spark.cores.max": "2",
    "spark.executor.memory": "900m",
    # Nothing runs before both executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}

SEQUENCE = "PATTERN SEQ(A a, B b, C c) PARTITION BY id WITHIN 2 seconds RETURN a.t AS a, c.t AS c, a.id AS id"
TRAILING = "PATTERN SEQ(A a [x > 0.5], NOT B b) PARTITION BY id WITHIN 1 second"
SEVERAL = """
PATTERN by_key SEQ(A a, NOT B b, C c) PARTITION BY id WITHIN 2 seconds;
PATTERN also_by_key SEQ(B b, C c) PARTITION BY id WITHIN 100 ms;
PATTERN of_all SEQ(A a, B b) WITHIN 5 ms;
"""
STARTED = """
PATTERN abc SEQ(A a, B b, C c) PARTITION BY id WITHIN 5 seconds RETURN a.id AS id, a.t AS a, c.t AS c;
PATTERN lone SEQ(A a, NOT B b) PARTITION BY id WITHIN 5 seconds RETURN a.id AS id, a.t AS a;
"""
COLUMNS = {"time": "t", "type": "type"}
SCHEMA = "t timestamp, type string, id long, x double"


# --- the events


def moment(seconds: float) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def events(rows: Sequence[tuple[str, float, int, float]]) -> pa.Table:
    kinds = {"t": pa.timestamp("us", "UTC"), "type": pa.string(), "id": pa.int64(), "x": pa.float64()}
    return pa.table(
        {
            "t": pa.array([moment(seconds) for _, seconds, _, _ in rows], kinds["t"]),
            "type": pa.array([kind for kind, _, _, _ in rows], kinds["type"]),
            "id": pa.array([key for _, _, key, _ in rows], kinds["id"]),
            "x": pa.array([x for _, _, _, x in rows], kinds["x"]),
        }
    )


def many_events() -> pa.Table:
    """600 events of 10 keys within a minute, and one long after them that completes all matches."""
    random = np.random.default_rng(17)
    times = np.sort(random.uniform(0, 60, 600)).tolist()
    kinds, keys, values = random.choice(list("ABCD"), 600), random.integers(0, 10, 600), random.random(600)
    rows = list(zip(kinds.tolist(), times, keys.tolist(), values.tolist(), strict=True))
    return events([*rows, ("Z", 3600.0, 0, 0.0)])


def started_files() -> list[pa.Table]:
    """The events of a stream in the files in which they come; the watermark follows two seconds behind."""
    return [
        events([("A", 1, 1, 0.0), ("B", 3, 1, 0.0), ("A", 4, 2, 0.0)]),
        # The watermark is at 2: the B is late.
        events([("C", 5, 1, 0.0), ("B", 1.5, 2, 0.0), ("Z", 10, 9, 0.0)]),
        events([("A", 20, 3, 0.0), ("B", 21, 3, 0.0)]),
    ]


def write_files(folder: Path, tables: Sequence[pa.Table]) -> str:
    """Files that a stream reads in this order, by the times at which they were last changed."""
    folder.mkdir()
    for number, table in enumerate(tables):
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return str(folder)


def in_parts(table: pa.Table, parts: int) -> list[pa.Table]:
    size = -(-table.num_rows // parts)
    return [table.slice(begin, size) for begin in range(0, table.num_rows, size)]


def read_stream(spark: SparkSession, folder: str, delay: str) -> DataFrame:
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(folder)
    return stream.withWatermark("t", delay)


def rows_of(table: pa.Table) -> list[str]:
    """Rows as texts, in an order that does not depend on how they came."""
    return sorted(map(text_of, table.to_pylist()))


def text_of(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str)


# --- the cases of tests/cases


def sampled_cases() -> list[Case]:
    """About SAMPLE cases that are accepted, spread over all files, at least two of each."""
    usable = [(path, case) for path, case in PATTERNS if not case.errors and is_usable(case)]
    step = len(usable) // SAMPLE + 1
    by_file: dict[Path, list[Case]] = {}
    for path, case in usable:
        by_file.setdefault(path, []).append(case)
    return [case for cases in by_file.values() for case in (cases[::step] if len(cases) > step else cases[:2])]


def is_usable(case: Case) -> bool:
    """Spark tells columns apart by more than upper and lower case."""
    tables = input_of(case, [])
    schemas = [table.schema for table in (tables.values() if case.has_tables else [tables])]
    return all(len({name.lower() for name in schema.names}) == len(schema.names) for schema in schemas)


def refused_cases() -> list[Case]:
    """A quarter of those that are refused by their query and columns; a time out of range is only met in a worker."""
    return [case for _, case in PATTERNS if case.errors and case.errors != ["time-range"]][::4]


def detect_case(spark: SparkSession, case: Case) -> DataFrame:
    tables = input_of(case, case.parsed_events())
    frames = {name: frame_of(spark, table) for name, table in tables.items()} if case.has_tables else None
    given = frames if frames is not None else frame_of(spark, tables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ensue.EnsueWarning)
        return ensue.detect(given, case.query, **columns_of(case))


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    from ensue.runtimes.spark.frames import spark_schema

    schema = spark_schema(table.schema)
    return spark.createDataFrame(table.combine_chunks() if table.num_rows else [], schema)


def collect_together(results: Sequence[DataFrame]) -> list[list[pa.Table]]:
    """The rows of several results by one job, each result as the Arrow tables that its tasks saw."""
    from pyspark.sql import DataFrame

    parts = [result.mapInArrow(packing(number), "number int, rows binary") for number, result in enumerate(results)]
    tables: list[list[pa.Table]] = [[] for _ in results]
    for row in reduce(DataFrame.union, parts).collect():
        tables[row["number"]].append(pa.ipc.open_stream(row["rows"]).read_all())
    return tables


def packing(number: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            rows = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array([number], pa.int32()), rows], names=["number", "rows"])

    return pack


# --- what is done


def kind_of_session(spark: SparkSession, _: Path) -> Any:
    import pyspark

    context = getattr(pyspark, "SparkContext", None)
    return {
        "module": type(spark).__module__,
        "again": ensue.spark_session() is spark,
        "java": context is not None and context._active_spark_context is not None,
        "py4j": sorted(name for name in sys.modules if name.split(".")[0] == "py4j"),
    }


def accept(spark: SparkSession, _: Path) -> Any:
    cases, found = sampled_cases(), {}
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    for begin in range(0, len(cases), CASES_PER_JOB):
        group = cases[begin : begin + CASES_PER_JOB]
        tables = collect_together([detect_case(spark, case) for case in group])
        for case, parts in zip(group, tables, strict=True):
            found[case.title] = sorted(row for part in parts for row in render_rows(part))
    spark.conf.set("spark.sql.shuffle.partitions", SMALL["spark.sql.shuffle.partitions"])
    return found


def refuse(spark: SparkSession, _: Path) -> Any:
    found = {}
    for case in refused_cases():
        try:
            detect_case(spark, case)
        except (ensue.QueryError, ensue.SchemaError) as error:
            found[case.title] = codes_of(error)
    return found


def find_executors(spark: SparkSession, _: Path) -> Any:
    """The folders in which the tasks run that find matches: each executor has its own."""

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Long enough that no executor is given both tasks.
            time.sleep(1)
            yield pa.RecordBatch.from_arrays(
                [pa.array([os.getcwd()]), pa.array([sys.executable]), pa.array([batch.num_rows])],
                names=["folder", "python", "rows"],
            )

    found = ensue.detect(spark.createDataFrame(many_events()), SEQUENCE, **COLUMNS)
    return [row.asDict() for row in found.mapInArrow(where, "folder string, python string, rows long").collect()]


def run_several(spark: SparkSession, _: Path) -> Any:
    found = ensue.run(spark.createDataFrame(many_events()), SEVERAL, **COLUMNS, match_id=True)
    return {name: rows_of(frame.toArrow()) for name, frame in found.items()}


def detect_on_streams(spark: SparkSession, folder: Path) -> Any:
    """Two queries at the same time, one into memory and one into files."""
    stream = read_stream(spark, write_files(folder / "many", in_parts(many_events(), 2)), "1 second")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(folder / "checkpoints"))
    sequence, trailing = (ensue.detect(stream, query, **COLUMNS) for query in (SEQUENCE, TRAILING))
    in_memory = sequence.writeStream.format("memory").queryName("sequence").trigger(availableNow=True).start()
    files = trailing.writeStream.format("parquet").option("path", str(folder / "trailing"))
    for query in (in_memory, files.trigger(availableNow=True).start()):
        query.awaitTermination()
    return {
        "sequence": rows_of(spark.table("sequence").toArrow()),
        "trailing": rows_of(spark.read.parquet(str(folder / "trailing")).toArrow()),
    }


def start(spark: SparkSession, folder: Path) -> Any:
    """Two patterns with late rows and partial matches: into folders, and by a function, which gets a DataFrame."""
    stream = read_stream(spark, write_files(folder / "started", started_files()), "2 seconds")
    places = {name: str(folder / name) for name in ("abc", "lone", "late", "timed_out", "checkpoint")}
    lone = places["lone"]

    def append(rows: DataFrame, batch: int) -> None:
        rows.write.mode("append").parquet(lone)

    given = {
        "to": {"abc": places["abc"], "lone": append},
        "late": places["late"],
        "timed_out": {"abc": places["timed_out"]},
        "checkpointLocation": places["checkpoint"],
        "trigger": {"availableNow": True},
        "buckets": 2,
        **COLUMNS,
    }
    running = ensue.start(stream, STARTED, status=True, **given)
    running.awaitTermination()
    found = {name: rows_of(without_batch(spark.read.parquet(places[name]))) for name in places if name != "checkpoint"}
    state = running.state().selectExpr("key", "events", "streams", "array_contains(waits_for, 'C c') AS for_c")
    found["state"] = rows_of(state.toArrow())
    found["state again"] = ensue.stream_state(places["checkpoint"]).toArrow().num_rows
    found["active"] = running.isActive
    found["other query"] = code_of(lambda: ensue.start(stream, STARTED.replace("5", "6"), **given))
    return found


def without_batch(frame: DataFrame) -> pa.Table:
    return frame.drop("batch").toArrow()


def err(spark: SparkSession, folder: Path) -> Any:
    """The codes of errors that come before anything is started."""
    frame = spark.createDataFrame(events([("A", 1, 1, 0.0)]))
    (folder / "empty").mkdir()
    stream = spark.readStream.schema(SCHEMA).parquet(str(folder / "empty"))
    marked = stream.withWatermark("t", "1 second")
    to = {"to": str(folder / "never"), "checkpointLocation": str(folder / "never"), **COLUMNS}
    tries: dict[str, Callable[[], Any]] = {
        "no watermark": lambda: ensue.detect(stream, SEQUENCE, **COLUMNS),
        "no watermark at start": lambda: ensue.start(stream, SEQUENCE, **to),
        "no column": lambda: ensue.detect(frame, SEQUENCE, time="at", type="type"),
        "no column of a stream": lambda: ensue.detect(marked, SEQUENCE, time="at", type="type"),
        "no field": lambda: ensue.detect(frame, "PATTERN SEQ(A a, B b [y > 1])", **COLUMNS),
        "no stream": lambda: ensue.start(frame, SEQUENCE, **to),
        "no state": lambda: ensue.stream_state(str(folder / "empty")),
        "sink": lambda: ensue.start(marked, SEQUENCE, **{**to, "to": 7}),
    }
    found: dict[str, Any] = {name: code_of(attempt) for name, attempt in tries.items()}
    found["limit"] = message_of(
        lambda: ensue.detect(
            spark.createDataFrame(many_events()), SEQUENCE, **COLUMNS, limits=ensue.Limits(matches=1)
        ).toArrow()
    )
    return {**found, "started": len(spark.streams.active)}


def code_of(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except ensue.QueryError as error:
        return error.problems[0].code
    except (ensue.SchemaError, ensue.StateError) as error:
        return error.code
    return "no error"


def message_of(attempt: Callable[[], Any]) -> str:
    from pyspark.errors import PySparkException

    try:
        attempt()
    except PySparkException as error:
        return "".join(re.findall(r"error\[[\w-]+\]", str(error))[:1])
    return "no error"


PARTS = {
    "session": kind_of_session,
    "errors": err,
    "executors": find_executors,
    "run": run_several,
    "refused": refuse,
    "cases": accept,
    "streams": detect_on_streams,
    "start": start,
}


# --- what it has to find


def expected_cases() -> Any:
    return {case.title: sorted(row.split(" @")[0] for row in case.rows) for case in sampled_cases()}


def expected_refusals() -> Any:
    return {case.title: case.errors for case in refused_cases()}


def expected_run() -> Any:
    found = ensue.run(many_events(), SEVERAL, **COLUMNS, match_id=True)
    return {name: rows_of(table) for name, table in found.items()}


def expected_streams() -> Any:
    queries = {"sequence": SEQUENCE, "trailing": TRAILING}
    return {name: rows_of(ensue.detect(many_events(), query, **COLUMNS)) for name, query in queries.items()}


def expected_start() -> Any:
    """The window of the lone A of key 2 closes at 9; key 3 is still open when the watermark has come to 19."""
    rows = {
        "abc": {"id": 1, "a": moment(1), "c": moment(5)},
        "lone": {"id": 2, "a": moment(4)},
        "late": {"t": moment(1.5), "type": "B", "id": 2, "x": 0.0},
        "timed_out": {"id": 2, "a": moment(4), "c": None, "waiting_for": "B b"},
        "state": {"key": [("id", "3")], "events": 2, "streams": [("A", 1), ("B", 1)], "for_c": True},
    }
    texts = {name: [text_of(row)] for name, row in rows.items()}
    return {**texts, "state again": 1, "active": False, "other query": "state-query"}


def expected_errors() -> Any:
    return {
        "no watermark": "no-watermark",
        "no watermark at start": "no-watermark",
        "no column": "no-such-column",
        "no column of a stream": "no-such-column",
        "no field": "no-such-field",
        "no stream": "not-a-stream",
        "no state": "no-state",
        "sink": "sink-type",
        "limit": "error[too-many-matches]",
        "started": 0,
    }


EXPECTED = {
    "errors": expected_errors,
    "run": expected_run,
    "refused": expected_refusals,
    "cases": expected_cases,
    "streams": expected_streams,
    "start": expected_start,
}


class Absent:
    """Makes the part of PySpark that talks to a Java process absent, as it is in the package `pyspark-client`."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.split(".")[0] == "py4j" or name.split(".")[:2] == ["pyspark", "core"]:
            raise ModuleNotFoundError(f"{name} is not there", name=name)


def main(url: str, folder: Path) -> None:
    if url.startswith("sc://"):
        sys.meta_path.insert(0, Absent())  # type: ignore[arg-type]
    spark = ensue.spark_session(
        master=url, memory="1g", config=SMALL if url.startswith("sc://") else ON_CLUSTER | SMALL
    )
    for name, part in PARTS.items():
        begun = time.monotonic()
        found = part(spark, folder)
        sys.stdout.write(json.dumps({"part": name, "found": found, "seconds": time.monotonic() - begun}) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
