"""A report on Spark DataFrames says what one on tables says, from Spark's own matches and a few collected keys."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import ensue
from inside import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
PATTERN pair SEQ(A a [amount > 1], NOT C c, B b) PARTITION BY id WITHIN 10 seconds RETURN a.amount AS amount;
PATTERN loose SEQ(C c, A a) WITHIN 2 seconds;
RULE seen(id, twice = m * 2) <- e: C(id=id, amount=m);
"""
COUNT = 40
EVENTS = pa.table(
    {
        "t": pa.array(range(3 * COUNT), pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC")),
        "type": ["A", "B", "C"] * COUNT,
        "id": [number // 3 for number in range(3 * COUNT)],
        "amount": [float(number % 7) for number in range(3 * COUNT)],
    }
)


def frame(spark: SparkSession, table: pa.Table) -> Any:
    return spark.createDataFrame(table)


@pytest.mark.slow
def test_spark_and_this_process_report_the_same(spark: SparkSession) -> None:
    options: dict[str, Any] = {"time": "t", "type": "type", "most_keys": 12}
    on_spark = ensue.report(frame(spark, EVENTS), PROGRAM, **options).facts
    here = ensue.report(EVENTS, PROGRAM, **options).facts
    assert len(on_spark["lanes"]) == 7
    assert on_spark["patterns"][2]["count"] == COUNT, "counts are those of all keys"
    for part in ("title", "time", "rows", "statements", "streams", "fields"):
        assert on_spark[part] == here[part], part
    for one, other in zip(on_spark["patterns"], here["patterns"], strict=True):
        assert {**one, "read": None} == {**other, "read": None}
    assert [lane["label"] for lane in on_spark["lanes"]] == [lane["label"] for lane in here["lanes"]]
    assert on_spark["lanes"][:4] == here["lanes"][:4]
    shown = [{**match, "events": None, "proof": None} for match in on_spark["matches"]]
    assert shown == [{**match, "events": None, "proof": None} for match in here["matches"]]
    assert [match["proof"]["text"] for match in on_spark["matches"]] == [m["proof"]["text"] for m in here["matches"]]
    assert [line for line in on_spark["leftOut"] if "event" not in line] == [
        line for line in here["leftOut"] if "event" not in line
    ]


def test_one_frame_for_each_stream_and_integer_time(spark: SparkSession) -> None:
    rows = {"A": pa.table({"at": [1, 20], "id": [1, 2]}), "B": pa.table({"at": [3], "id": [1]})}
    query = "PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 10"
    frames = {name: frame(spark, table) for name, table in rows.items()}
    on_spark, here = ensue.report(frames, query, time="at").facts, ensue.report(rows, query, time="at").facts
    assert on_spark["matches"] == here["matches"]
    assert on_spark["lanes"] == here["lanes"]
    assert on_spark["streams"] == here["streams"]


def test_a_stream_is_refused(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load()
    with pytest.raises(ensue.SchemaError, match=r"expected a static .batch. DataFrame, found a stream"):
        ensue.report({"A": rate}, "PATTERN SEQ(A a, A b) WITHIN 1 hour", time="timestamp")


PIPELINE = """\
name: pairs
mode: stream
query: PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 10 seconds
sources:
  - format: parquet
    path: events
    time: t
    type: type
    watermark: 1 second
    schema: t timestamp, type string, id long, amount double
outputs:
  pair: console
checkpointLocation: state
"""


def test_a_pipeline_is_read_as_it_is_now_and_left_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events").mkdir()
    pyarrow.parquet.write_table(EVENTS.slice(0, 9), tmp_path / "events" / "part.parquet")
    (tmp_path / "pairs.yaml").write_text(PIPELINE)
    done = CliRunner().invoke(app, ["report", "pairs.yaml", "--format", "json", "--keys", "2"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "report": "report.html",
        "rows": 9,
        "matches": {"pair": 3},
        "shown": ["2 of 3 keys (id)", "2 of 3 matches"],
    }
    assert "<title>pairs</title>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "state").exists()


def test_any_event_without_a_type_column(spark: SparkSession) -> None:
    """One DataFrame of a single stream, with events at the same time: counts, sample and ties as in this process."""
    table = pa.table({"t": [1, 1, 2, 3, 3], "id": [1, 1, 1, 2, 2], "word": ["x", "y", "y", "x", "y"]})
    query = "PATTERN p SEQ(ANY EVENT a [word = 'x'], ANY EVENT b [word = 'y']) PARTITION BY id WITHIN 5"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        on_spark = ensue.report(frame(spark, table), query, time="t").facts
    words = (
        "pattern `p`: 2 pairs of `ANY EVENT` and `ANY EVENT` have the same time, so neither event is before the other"
    )
    assert on_spark["ties"] == [f"{words}; use `order=` or ALLOWING TIES"]
    assert [str(entry.message) for entry in caught if "ALLOWING TIES" in str(entry.message)] == on_spark["ties"]
    with pytest.warns(ensue.EnsueNotice):
        here = ensue.report(table, query, time="t").facts
    for part in ("rows", "streams", "ties", "lanes", "leftOut"):
        assert on_spark[part] == here[part], part
    assert on_spark["streams"] == [{"name": "events", "rows": 5, "derived": False}]
    why = ensue.why_not(frame(spark, table), query, time="t")
    assert (why.matches, why.verdict) == (1, "1 match")
    with pytest.raises(ensue.QueryError) as refusal:
        ensue.report(frame(spark, table), "STREAM X FROM log WHERE word = 'x'; PATTERN SEQ(X x, X y)", time="t")
    assert refusal.value.code == "selected-report"
