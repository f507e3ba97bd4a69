"""Runs the library program on a stream of files, compares the alerts with the expected ones, and writes a page.

    python examples/library/run.py            # a stream on Spark
    python examples/library/run.py --batch    # the same program in this process, over all readings at once

If the alerts differ from the expected ones, it shows the differences and exits with code 1. The same holds for the
booklifting query of the report that the scenario comes from.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from generate import STREAMS, describe, draw_day, draw_exits, write_day
from pyarrow import compute

import ensue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = Path(__file__).with_name("library.ensue")
REPORTED = Path(__file__).with_name("booklifting.ensue")
"""The query for booklifting as it is in the report."""

WATERMARK = "30 seconds"
QUICK_START = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss16m"}
"""Java options for a short run: without them, Java spends half the time on optimizing code that runs a few times."""

SHOWN = 4
COLUMNS = {
    "BookliftingAlert": ("book", "shelf", "door", "at", "readings"),
    "ConfusionAlert": ("book", "persons", "door", "at", "readings"),
    "Loans": ("person", "book", "at"),
    "OverlimitAlert": ("person", "book", "books", "at", "readings"),
}
"""The columns of the results, which share one folder."""

Rows = list[dict[str, Any]]


def find_in_batch(folder: Path) -> dict[str, pa.Table]:
    """Runs the program over all readings at once, without Spark."""
    return dict(ensue.run(pq.read_table(folder / "readings"), ensue.parse(PROGRAM), time="t", type="type"))


def find_in_stream(folder: Path, spark: SparkSession) -> dict[str, pa.Table]:
    """Runs the program on a stream of the files, one per micro-batch, until all are read.

    All alerts go to one folder. Folders of their own would take four Spark jobs per micro-batch instead of one.
    """
    program, readings, alerts = ensue.parse(PROGRAM), str(folder / "readings"), str(folder / "alerts")
    columns = "t timestamp, type string, kind string, tag string, reader string"
    stream = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(readings)
    ensue.start(
        stream.withWatermark("t", WATERMARK),
        program,
        to=alerts,
        checkpointLocation=str(folder / "checkpoint"),
        time="t",
        type="type",
        trigger={"availableNow": True},
    ).awaitTermination()
    found = spark.read.parquet(alerts).toArrow()
    return {name: found.filter(compute.field("pattern") == name).select(COLUMNS[name]) for name in program.names}


def quick_spark() -> SparkSession:
    return ensue.spark_session("library", config=QUICK_START)


def readings_by_id(folder: Path) -> dict[str, str]:
    """Returns each reading as one line, by the id that `lineage` returns. This is also a query."""
    columns = "r.t AS t, r.tag AS tag, r.reader AS reader, lineage(r) AS ids"
    program = ";".join(f"PATTERN {stream} ({stream} r) RETURN {columns}" for stream in STREAMS.values())
    found = ensue.run(pq.read_table(folder / "readings"), ensue.parse(program), time="t", type="type")
    return {
        row["ids"][0]: describe(row["t"], stream, row["tag"], row["reader"])
        for stream, rows in found.items()
        for row in rows.to_pylist()
    }


def comparable(found: Mapping[str, pa.Table], readings: Mapping[str, str]) -> dict[str, Rows]:
    """Returns the results in the form of `expected.json`: times and readings as text, and sorted lists."""

    def value(name: str, of: Any) -> Any:
        if name == "at":
            return of.astimezone(UTC).isoformat()
        if name == "readings":
            return sorted(readings.get(identity, f"no reading has the id {identity}") for identity in of)
        return sorted(of) if isinstance(of, list) else of

    return {
        name: [{column: value(column, of) for column, of in row.items()} for row in rows.to_pylist()]
        for name, rows in found.items()
    }


def differences(expected: Mapping[str, Rows], found: Mapping[str, Rows]) -> Iterator[str]:
    """Yields a line for each missing row and for each unexpected row."""
    for name in sorted({*expected, *found}):
        wanted, given = (
            Counter(json.dumps(row, sort_keys=True) for row in rows.get(name, ())) for rows in (expected, found)
        )
        yield from (f"missing {name}: {row}" for row in (wanted - given).elements())
        yield from (f"unexpected {name}: {row}" for row in (given - wanted).elements())


def show(found: Mapping[str, Rows]) -> None:
    """Prints the first rows of each result, and the readings of the first row."""
    for name, rows in found.items():
        print(f"{name}: {len(rows)}")
        for place, row in enumerate(sorted(rows, key=lambda row: row["at"])[:SHOWN]):
            print("  " + ", ".join(f"{column} {of}" for column, of in row.items() if column != "readings"))
            for reading in row.get("readings", ()) if place == 0 else ():
                print(f"    {reading}")


def reported_query(seed: int) -> Iterator[str]:
    """Runs the booklifting query of the report over books at a door. Yields the differences from the truth."""
    events, lifted = draw_exits(seed)
    found = ensue.run(events, ensue.parse(REPORTED), time="t", type="type")
    expected = {name: texts(lifted) for name in found}
    yield from differences(expected, {name: texts(rows.to_pylist()) for name, rows in found.items()})
    books = sum(kind == "Book" for kind in events.column("type").to_pylist())
    print(f"Booklifting query of the report: {len(lifted)} alerts for {books} readings of books at a door")


def texts(rows: Rows) -> Rows:
    return [{**row, "t": row["t"].astimezone(UTC).isoformat()} for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Finds loans and alerts in a library, and compares them with the expected ones."
    )
    parser.add_argument(
        "--batch", action="store_true", help="run in this process over all readings at once, without Spark"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--visits", type=int, default=110, help="number of stories to generate (default: %(default)s)")
    parser.add_argument(
        "--files", type=int, default=6, help="number of files, one per micro-batch (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, default=Path("library.html"), help="the page to write")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ensue-library-") as name:
        folder = Path(name)
        write_day(folder, draw_day(chosen.seed, chosen.visits), chosen.files)
        tables = find_in_batch(folder) if chosen.batch else find_in_stream(folder, quick_spark())
        found = comparable(tables, readings_by_id(folder))
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        page = ensue.report(
            pq.read_table(folder / "readings"), ensue.parse(PROGRAM), time="t", type="type", title="The library"
        )
    show(found)
    wrong = [*differences(expected, found), *reported_query(chosen.seed)]
    print("\n".join(wrong) if wrong else "The programs found all expected alerts and no others.")
    print(f"Written to {page.save(chosen.output)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
