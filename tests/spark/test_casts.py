"""CAST gives what Spark's own CAST gives with ANSI mode, where it gives null or a value that Ensue supports."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ensue

DATES = [
    "2024-01-31", "2024-1-5", " 2024-1-5 ", "2024", "2024-02", "2024-2 ", "2024-01-31 12:00", "2024-01-31Tx",
    "2024-01-31T", "2024-01-31x", "2024-02-30", "2023-02-29", "2024-13-01", "+2024-01-01", "999-01-01", "2024T",
    "2024-01 x", "2024-01-", "2024-001-05", "2024-01-31\tx", "\t2024-01-31\n", "0001-01-01", "", "x",
]  # fmt: skip
NUMBERS = [
    "1.005", "-1.005", "1.5", " 2.5 ", "1e2", "1E+2", "-.5", "5.", "+5", "", "x", "1e40", "1e-40", "1.2.3", "1e", "1f",
    "NaN", "Infinity", "0x1", "1_0", "99999999.995", "99999999.994", "-99999999.995", "0e3", "00000000000000000012",
]  # fmt: skip
FLOATS = [1.005, 2.675, -0.125, 0.1, 1e20, 12345678.9, 2.5, 1e-5, 99999999.994, 99999999.996, 0.0, 1.0e7]
TYPES = ["DECIMAL(10, 2)", "DECIMAL", "DECIMAL(4)", "DECIMAL(38, 20)"]


def ours(column: pa.Array, target: str) -> list[str | None]:
    table = pa.table({"t": range(len(column)), "type": ["A"] * len(column), "x": column})
    query = f"PATTERN A a RETURN a.t AS t, CAST(TRY_CAST(a.x AS {target}) AS STRING) AS y"
    found: list[str | None] = ensue.detect(table, query, time="t", type="type").sort_by("t").column("y").to_pylist()
    return found


def test_cast_is_that_of_spark(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    exact = [Decimal(number) for number in ("0.00000001", "10.50000000", "-99.99500000", "0.00500000")]
    columns = {
        "date": (pa.array(DATES), ["DATE"]),
        "text": (pa.array(NUMBERS), TYPES),
        "float": (pa.array(FLOATS), TYPES),
        "whole": (pa.array([0, -7, 9999, 10000, 2**31, 2**63 - 1]), TYPES),
        "truth": (pa.array([True, False]), TYPES),
        "exact": (pa.array(exact, pa.decimal128(20, 8)), TYPES),
        "day": (pa.array([date(2024, 1, 31), date(1969, 12, 31)]), ["DATE", "TIMESTAMP"]),
    }
    try:
        for name, (column, targets) in columns.items():
            frame = spark.createDataFrame(pa.table({"n": range(len(column)), "x": column}))
            casts = [f"CAST(TRY_CAST(x AS {target}) AS STRING) AS y{place}" for place, target in enumerate(targets)]
            rows = frame.selectExpr("n", *casts).orderBy("n").collect()
            for place, target in enumerate(targets):
                assert ours(column, target) == [row[f"y{place}"] for row in rows], (name, target)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))


def test_dates_and_decimals_in_a_frame(spark: SparkSession) -> None:
    table = pa.table(
        {
            "t": [1, 2, 3],
            "type": ["A", "A", "B"],
            "d": pa.array([date(2024, 1, 31), None, date(2024, 2, 1)]),
            "p": pa.array([Decimal("9007199254740993.01"), None, Decimal("9007199254740993.01")]),
            "v": ["9007199254740993.010", None, "2024-1-31 x"],
        }
    )
    query = """PATTERN SEQ(A a, B b)
      WHERE a.p = b.p AND CAST(a.v AS DECIMAL(20, 2)) = b.p AND a.d = CAST(b.v AS DATE)
        AND CAST(a.d AS STRING) = '2024-01-31' AND CAST(CAST(b.p AS DECIMAL(20, 1)) AS STRING) = '9007199254740993.0'
      RETURN a.t AS t, CAST(b.v AS DATE) AS day, CAST(a.v AS DECIMAL(20, 2)) AS price"""
    here = ensue.detect(table, query, time="t", type="type")
    assert here.num_rows == 1
    there = ensue.detect(spark.createDataFrame(table), query, time="t", type="type").toArrow()
    assert there.to_pylist() == here.to_pylist()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([Decimal("0.3"), Decimal("7.7"), None]), pa.array([0.3, 7.7, 0.1])),
        (pa.array([date(2024, 1, 31), date(2024, 2, 1)]), pa.array([datetime(2024, 1, 31), datetime(2024, 2, 1)])),
    ],
    ids=["decimals", "dates"],
)
def test_keys_of_two_types_meet(spark: SparkSession, left: pa.Array, right: pa.Array) -> None:
    tables = {
        "A": pa.table({"t": range(len(left)), "x": left}),
        "B": pa.table({"t": range(9, 9 + len(right)), "x": right}),
    }
    query = """STREAM Left FROM A RETURN x AS k; STREAM Right FROM B RETURN coalesce(x, x) AS k;
      PATTERN SEQ(Left a, Right b) PARTITION BY k RETURN a.t AS a, b.t AS b"""
    frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
    assert spark.conf.get("spark.sql.shuffle.partitions") != "1"
    found = ensue.detect(frames, query, time="t").toArrow().sort_by("a").to_pylist()
    assert found == [{"a": 0, "b": 9}, {"a": 1, "b": 10}]
    assert ensue.detect(tables, query, time="t").sort_by("a").to_pylist() == found
