"""Refinements on DataFrames and streams: the same as in process."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ensue
from ensue import LimitError, SchemaError
from refinement.archives import BEGIN, Seen, table_of
from spark.streams import Feed, run_to_end, settings

FIT = {"label": "who", "context": ["room", "previous", "hour", "weekday"], "time": "at", "partition_by": "home"}


def archive() -> pa.Table:
    drawn = random.Random(4)
    events = [
        Seen(
            drawn.randrange(90),
            drawn.choice(["alice", "bob", "carol", None]),
            drawn.choice(["den", "hall", None]),
            drawn.choice([1, 2, None]),
        )
        for _ in range(150)
    ]
    return table_of([*events, *events[:9]])


def rows_of(table: pa.Table) -> list[str]:
    return sorted(str(row) for row in table.to_pylist())


def test_dataframes_and_tables_agree(spark: SparkSession) -> None:
    table = archive()
    frame = spark.createDataFrame(table)
    here = ensue.learn.fit(table, zone="Europe/Berlin", **FIT)
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        there = ensue.learn.fit(frame.repartition(3), zone="Europe/Berlin", **FIT)
    assert there.counts.equals(here.counts)
    assert repr(there.evaluate(frame)) == repr(here.evaluate(table))
    applied = there.apply(frame.repartition(3), type="kind").toArrow()
    expected = here.apply(table, type="kind")
    assert expected.num_rows > 200
    assert rows_of(applied) == rows_of(expected)


@pytest.mark.slow
def test_a_classifier_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Both features have weight of their own, so that the classifier tells contexts that never came."""
    shares = {("den", 1): 18, ("den", 2): 12, ("hall", 1): 8}
    rows = [
        {"room": room, "floor": floor, "who": "alice" if number < alices else "bob"}
        for (room, floor), alices in shares.items()
        for number in range(20)
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))
    fitted = ensue.learn.fit(frame, label="who", context=["room", "floor"], model="logistic", smoothing=1e-6)
    for (room, floor), alices in shares.items():
        assert fitted.distribution(room=room, floor=floor)["alice"] == pytest.approx(alices / 20, abs=1e-3)
    odds = (8 / 12) * (12 / 8) / (18 / 2)
    assert fitted.distribution(room="hall", floor=2)["alice"] == pytest.approx(odds / (1 + odds), abs=1e-3)
    loaded = ensue.learn.load(fitted.save(tmp_path / "who.json"))
    asked = pa.table({"room": ["hall", "attic"], "floor": [2, 1]})
    assert loaded.apply(asked).equals(fitted.apply(asked))
    assert loaded.apply(asked).column("probability").to_pylist()[0] == pytest.approx(odds / (1 + odds), abs=1e-3)
    evaluation = loaded.evaluate(pa.table({"room": ["den"], "floor": [1], "who": ["alice"]}))
    assert evaluation.log_loss == pytest.approx(-np.log(0.9), abs=1e-2)


@pytest.mark.slow
def test_a_stream_of_alternatives(spark: SparkSession, tmp_path: Path) -> None:
    refinement = ensue.learn.fit(archive(), label="who", context=["room", "hour"], time="at")
    moments = [BEGIN + timedelta(hours=hour) for hour in (0, 1, 2, 3, 4, 9000)]
    coarse = pa.table(
        {
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "type": ["Person", "Door", "Person", "Door", "Person", "Door"],
            "room": ["den", None, "hall", None, "den", None],
        }
    )
    feed = Feed(tmp_path / "in", coarse.schema)
    for begin in (0, 2, 5):
        feed.put(coarse.slice(begin, {0: 2, 2: 3, 5: 1}[begin]))
    query = "PATTERN SEQ(alice a, Door d, NOT bob b, Door e) WITHIN 5 hours RETURN a.at AS at, PROBABILITY() AS p"
    names = {"time": "at", "type": "type", "probability": "probability", "alternatives": "alternatives"}
    expected = ensue.detect(refinement.apply(coarse, coarse="Person"), query, **names)
    assert expected.num_rows == 1
    refined = refinement.apply(feed.stream(spark, "at"), coarse="Person")
    found = run_to_end(ensue.detect(refined, query, **names), tmp_path / "checkpoint").rows
    assert rows_of(found) == rows_of(expected)


def test_what_frames_cannot_do(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("timestamp AS at", "value % 2 AS who", "value AS home")
    with pytest.raises(SchemaError, match="this one is a stream"):
        ensue.learn.fit(stream, label="who", context="home")
    looking_back = ensue.learn.fit(archive(), label="who", context="previous", time="at", partition_by="home")
    with pytest.raises(SchemaError, match="not supported on a stream"):
        looking_back.apply(stream)
    frame = spark.createDataFrame(archive())
    with pytest.raises(LimitError, match="more than the limit of 5"):
        ensue.learn.fit(frame, label="who", context=["room", "home"], most_counts=5)
    with pytest.raises(SchemaError, match="no column `rooms`"):
        ensue.learn.fit(frame, label="who", context="rooms")
