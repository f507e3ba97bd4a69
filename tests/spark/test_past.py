"""A range of the past on Spark: what completes in it, from no more files than that takes."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import ensue
from ensue import SchemaError

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
SINCE, UNTIL = BEGIN + timedelta(hours=40), BEGIN + timedelta(hours=70)
PROGRAM = """
STREAM pair FROM PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 2 hours RETURN a.k AS k, b.n AS n;
PATTERN lone SEQ(A a, NOT C c) PARTITION BY k WITHIN 3 hours RETURN a.n AS n;
PATTERN pairs SEQ(pair p, pair q) PARTITION BY k WITHIN 6 hours RETURN p.n AS p, q.n AS q;
PATTERN used SEQ(A a, B b) PARTITION BY k WITHIN 9 hours CONSUME RETURN a.n AS a, b.n AS b
"""


def archive() -> pa.Table:
    drawn = random.Random(6)
    rows = range(400)
    return pa.table(
        {
            "t": [BEGIN + timedelta(minutes=15 * row) for row in rows],
            "type": [drawn.choice("ABC") for _ in rows],
            "k": [drawn.randrange(3) for _ in rows],
            "n": list(rows),
        },
        schema=pa.schema({"t": pa.timestamp("us", "UTC"), "type": pa.string(), "k": pa.int64(), "n": pa.int64()}),
    )


def counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def pushed(frame: DataFrame) -> str:
    with redirect_stdout(StringIO()) as output:
        frame.explain("formatted")
    return "\n".join(line for line in output.getvalue().splitlines() if line.startswith("PushedFilters"))


def test_a_range_gives_what_it_gives_in_process(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame(archive()).write.parquet(str(tmp_path / "archive"))
    frame = spark.read.parquet(str(tmp_path / "archive"))
    asked: dict[str, Any] = {"time": "t", "type": "type", "since": SINCE, "until": UNTIL}
    expected = ensue.run(archive(), PROGRAM, **asked)
    found = ensue.run(frame, PROGRAM, **asked)
    for name, matches in expected.items():
        assert matches.num_rows > 0
        assert counted(found[name].toArrow()) == counted(matches)
    found.release()
    # The pattern reaches 3 hours back; what is used up depends on everything before.
    filters = pushed(ensue.detect(frame, PROGRAM.split(";")[1], **asked))
    assert f"GreaterThan(t,{(SINCE - timedelta(hours=3)).isoformat()[:10]}" in filters
    assert "LessThanOrEqual(t," in filters
    filters = pushed(ensue.detect(frame, PROGRAM.split(";")[3], **asked))
    assert "GreaterThan(t," not in filters
    assert "LessThanOrEqual(t," in filters


def test_partitions_outside_of_the_range_are_not_opened(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    rows = [(t, stream, t % 2) for t in range(40) for stream in "AB"]
    schema = "t long, type string, k long"
    spark.createDataFrame(rows, schema).coalesce(1).write.partitionBy("t").parquet(str(folder))
    for t in range(40):
        if not 17 < t <= 25:
            for file in (folder / f"t={t}").glob("*.parquet"):
                file.write_bytes(b"not to be read")
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    frame = spark.read.schema(schema).parquet(str(folder))
    query = "PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 3 RETURN a.t AS a, b.t AS b"
    found = ensue.detect(frame, query, time="t", type="type", since=20, until=25).toArrow()
    assert counted(found) == Counter((b - 2, b) for b in range(21, 26))


def test_a_stream_has_no_range(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    for asked in ({"since": SINCE}, {"until": UNTIL}):
        with pytest.raises(SchemaError, match="range-stream"):
            ensue.detect({"A": stream}, "PATTERN A a", time="timestamp", **asked)
