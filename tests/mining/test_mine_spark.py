"""`ensue.process.mine` on Spark finds what it finds in this process."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import ensue
from mining.logs import COLUMNS
from mining.test_mine import ERRORS, LOG, many_streams, mined, table
from spark.clusters import connect_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_CONNECT = """
import sys
import ensue
import pyarrow as pa
events = pa.table({"id": [1, 1, 2, 2, 2], "type": ["A", "B", "A", "B", "A"], "t": [1, 2, 1, 2, 3]})
columns = {"time": "t", "type": "type", "partition_by": "id", "share": 0.1}
spark = ensue.spark_session(master=sys.argv[1])
assert type(spark).__module__.startswith("pyspark.sql.connect")
assert ensue.process.mine(spark.createDataFrame(events), **columns) == ensue.process.mine(events, **columns)
"""


def random_log(rows: int = 3000) -> pa.Table:
    random = np.random.default_rng(7)
    keys = random.integers(0, 400, rows).astype(float)
    keys[random.random(rows) < 0.02] = np.nan
    streams = random.choice(["A", "B", "C", "D", "", None], rows, p=[0.5, 0.3, 0.1, 0.06, 0.02, 0.02])
    times = pa.array(random.integers(0, 30, rows), mask=random.random(rows) < 0.02)
    shops = random.choice(["x", "y", None], rows, p=[0.6, 0.38, 0.02])
    return pa.table({"id": keys, "shop": pa.array(shops), "type": pa.array(streams), "t": times})


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["id", ["id", "shop"]])
@pytest.mark.parametrize("share", [1.0, 0.01])
def test_same_as_in_process(spark: SparkSession, keys: Any, share: float) -> None:
    here = mined(random_log(), partition_by=keys, share=share)
    there = mined(spark.createDataFrame(random_log()), partition_by=keys, share=share)
    assert share == 1.0 or len(here) > 20
    assert there == here


def test_one_table_per_stream(spark: SparkSession) -> None:
    tables = {name: random_log().filter(pa.compute.field("type") == name) for name in ("A", "B", "C", "D")}
    frames = {name: spark.createDataFrame(part) for name, part in tables.items()}
    assert mined(frames, type=None, share=0.01) == mined(tables, type=None, share=0.01)


NOON, NEXT_DAY = datetime(2026, 1, 1, 12), datetime(2026, 1, 2)
MIXED: dict[str, tuple[list[Any], list[Any], pa.DataType, pa.DataType]] = {
    "integers": ([1, 2, None], [1, 3, 4], pa.int32(), pa.int64()),
    "large integers and floats": ([1, 2**53 + 1, 5], [1.0, 2.0**53, 1e300], pa.int64(), pa.float64()),
    "floats": ([0.5, -0.0, float("nan")], [0.5, 0.0, float("nan")], pa.float32(), pa.float64()),
    "days and moments": ([date(2026, 1, 1), NEXT_DAY.date()], [NOON, NEXT_DAY], pa.date32(), pa.timestamp("us")),
    "durations": ([timedelta(days=1), None], [timedelta(days=1), NOON - NOON], pa.duration("us"), pa.duration("us")),
    "text": (["x", "y"], ["x", "Y"], pa.string(), pa.large_string()),
    "decimals": ([Decimal("1.50"), Decimal("2.25")], [Decimal("1.50"), None], pa.decimal128(9, 2), pa.decimal128(9, 2)),
    "nothing": ([None, None], [None, 1], pa.null(), pa.int64()),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXED)
def test_keys_of_several_types(spark: SparkSession, name: str) -> None:
    first, second, one_type, other_type = MIXED[name]
    tables = {
        "A": pa.table({"id": pa.array(first, one_type), "t": [1] * len(first)}),
        "B": pa.table({"id": pa.array(second, other_type), "t": [2] * len(second)}),
    }
    frames = {stream: spark.createDataFrame(part) for stream, part in tables.items()}
    assert mined(frames, type=None, share=0.1) == mined(tables, type=None, share=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()])
def test_times_of_all_kinds(spark: SparkSession, kind: pa.DataType) -> None:
    days = pa.array([datetime(2026, 1, 1) + timedelta(days=row[2] or 0) for row in LOG], pa.timestamp("us"))
    events = table(LOG).set_column(2, "t", days.cast(kind))
    assert mined(spark.createDataFrame(events), share=0.3) == mined(table(LOG), share=0.3)


def test_names_with_dots_and_quotes(spark: SparkSession) -> None:
    events = table(LOG).rename_columns(["case.id", "a `type`", "key_0_0"])
    columns = {"partition_by": "case.id", "type": "a `type`", "time": "key_0_0"}
    assert mined(spark.createDataFrame(events), **columns) == mined(events, **columns)


def test_a_frame_without_rows(spark: SparkSession) -> None:
    assert mined(spark.createDataFrame(table([]))) == mined(table([]))


@pytest.mark.slow
@pytest.mark.parametrize(("code", "options", "text"), ERRORS)
def test_same_errors(spark: SparkSession, code: str, options: dict[str, Any], text: str) -> None:
    events = table(LOG).append_column("tags", pa.array([["x"]] * len(LOG)))
    with pytest.raises(ensue.SchemaError) as caught:
        mined(spark.createDataFrame(events), **options)
    assert caught.value.code == code


def test_too_many_streams(spark: SparkSession) -> None:
    with pytest.raises(ensue.LimitError) as caught:
        mined(spark.createDataFrame(many_streams(2001)))
    assert caught.value.code == "too-many-streams"


def test_a_stream_is_no_log(spark: SparkSession) -> None:
    ticks = spark.readStream.format("rate").load().withColumnRenamed("value", "id").selectExpr("*", "'A' AS type")
    with pytest.raises(ensue.SchemaError) as caught:
        ensue.process.mine(ticks, time="timestamp", type="type", partition_by="id")
    assert caught.value.code == "stream-as-log"


def test_notice_is_at_the_line_of_the_user(spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.unset("spark.ensue.session")
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "77")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ensue.process.mine(own.createDataFrame(table(LOG)), **COLUMNS)
    assert [(entry.category, entry.filename) for entry in caught] == [(ensue.EnsueNotice, __file__)]


@pytest.mark.slow
def test_on_spark_connect(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    with connect_server(tmp_path) as (url, _):
        subprocess.run([sys.executable, "-c", ON_CONNECT, url], check=True, env=environment, timeout=900)
