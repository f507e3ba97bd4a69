"""Probabilistic state on Spark: batch and stream give what one process gives, after a restart too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ensue
from spark.streams import FAR, SECOND, SMALL, START, feed_of, instants, run_to_end, settings

PROGRAM = """
STATE location OF alice, bob IN (living, den, outside)
  PARTITION BY home
  STARTS outside
  ON Moved m: MOVE ANYONE FROM m.source TO m.target PROBABILITY 0.9
  ON Seen s: OBSERVE s.person IN s.source RELIABILITY 0.8
  EVERY 10 seconds MOVE BY (living -> den 0.1)
"""
COLUMNS = {"den": "P(anyone in den)", "inside": "E(count(not outside))", "best": "MOST LIKELY(alice)"}


def homes(rows: int = 60) -> pa.Table:
    random = np.random.default_rng(3)
    rooms = np.array(["living", "den", "outside"])
    return pa.table(
        {
            "at": instants(START + np.arange(rows) * SECOND),
            "type": pa.array(random.choice(["Moved", "Seen", "Other"], rows)),
            "home": random.integers(0, 4, rows),
            "person": pa.array(random.choice(["alice", "bob"], rows)),
            "source": pa.array(random.choice(rooms, rows)),
            "target": pa.array(random.choice(rooms, rows)),
        }
    )


def rows_of(table: Any) -> list[dict[str, Any]]:
    listed = table.to_pylist() if isinstance(table, pa.Table) else table.toArrow().to_pylist()
    keys = ("home", "at", "seen", "value", "type", "source", "target", "person", "den")
    return sorted(listed, key=lambda row: tuple(str(row.get(name)) for name in keys))


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    assert [{k: v for k, v in row.items() if not isinstance(v, float)} for row in found] == [
        {k: v for k, v in row.items() if not isinstance(v, float)} for row in wanted
    ]
    numbers, others = ([v for row in part for v in row.values() if isinstance(v, float)] for part in (found, wanted))
    return len(numbers) == len(others) and np.allclose(numbers, others, rtol=0, atol=1e-9)


def test_beliefs_of_a_dataframe_are_those_of_its_rows(spark: SparkSession) -> None:
    table = homes()
    frame = spark.createDataFrame(table)
    moment = "2023-11-14 22:13:50"
    for at in (None, moment):
        found = ensue.beliefs.of(frame, PROGRAM, time="at", type="type", at=at)
        wanted = ensue.beliefs.of(table, PROGRAM, time="at", type="type", at=at)
        assert same(rows_of(found.marginal("alice")), rows_of(wanted.marginal("alice")))
        given = "bob in den"
        assert same(
            rows_of(found.given(given).probability("alice in den")),
            rows_of(wanted.given(given).probability("alice in den")),
        )
    assert found.ignored.count() == 0


def test_tracking_a_dataframe_gives_every_row_its_columns(spark: SparkSession) -> None:
    table = homes()
    found = ensue.beliefs.track(spark.createDataFrame(table), PROGRAM, COLUMNS, time="at", type="type")
    assert same(rows_of(found), rows_of(ensue.beliefs.track(table, PROGRAM, COLUMNS, time="at", type="type")))
    query = PROGRAM + "; PATTERN SEQ(Other o) WHERE P(anyone in den) > 0.3 RETURN o.home AS home, o.at AS at"
    matches = ensue.detect(spark.createDataFrame(table), query, time="at", type="type")
    assert rows_of(matches) == rows_of(ensue.detect(table, query, time="at", type="type")) != []


def test_a_stream_with_a_restart_gives_what_one_run_gives(spark: SparkSession, tmp_path: Path) -> None:
    table = homes(30)
    last = table.slice(0, 1).set_column(0, "at", instants([FAR])).set_column(1, "type", pa.array(["Other"]))
    feed = feed_of(tmp_path / "events", [table.slice(0, 10), table.slice(10, 10)])

    def run() -> list[dict[str, Any]]:
        frame = ensue.beliefs.track(
            feed.stream(spark, "at"), PROGRAM, COLUMNS, time="at", type="type", reason="why", buckets=2
        )
        rows: list[dict[str, Any]] = run_to_end(frame, tmp_path / "checkpoint").rows.to_pylist()
        return [row for row in rows if row["at"] < instants([FAR])[0].as_py()]

    rows = run()
    feed.put(table.slice(20, 10))
    feed.put(pa.concat_tables([last, table.slice(3, 1)]))
    feed.put(last)
    rows += run()
    late = [row for row in rows if row["why"] is not None]
    wanted = ensue.beliefs.track(table, PROGRAM, COLUMNS, time="at", type="type", reason="why")
    found = pa.Table.from_pylist([row for row in rows if row["why"] is None], wanted.schema)
    assert same(rows_of(found), rows_of(wanted))
    assert [row["den"] for row in late] == [None]


def test_there_is_no_last_belief_of_a_stream(spark: SparkSession) -> None:
    columns = ("timestamp AS at", "'Seen' AS type", "value AS home", "'a' AS person", "'b' AS source", "'c' AS target")
    frame = spark.readStream.format("rate").load().selectExpr(*columns)
    with pytest.raises(ensue.SchemaError, match="state-stream"):
        ensue.beliefs.of(frame, PROGRAM, time="at", type="type")


PATTERNS = f"""{PROGRAM};
PATTERN known SEQ(Seen s, NOT Moved m [P(anyone in den) > 0.9], Other o) PARTITION BY home WITHIN 20 seconds
  WHERE o.P(anyone in den) > 0.2
  RETURN s.at AS seen, o.at AS at, o.home AS home, o.P(anyone in den) AS den, o.MOST LIKELY(alice) AS best;
PATTERN anywhere SEQ(Other a, Other b) WITHIN 5 seconds WHERE a.MOST LIKELY(alice) = b.MOST LIKELY(bob)
  RETURN a.at AS seen, b.at AS at, a.home AS home
"""


def test_patterns_on_a_stream_ask_states_as_in_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Some patterns have the keys of the state and some have not; between two runs the stream is stopped."""
    table = homes(90)
    # Rows of one moment come in different micro-batches.
    table = table.set_column(0, "at", instants(START + np.arange(90) // 3 * 3 * SECOND))
    last = table.slice(0, 1).set_column(0, "at", instants([FAR]))
    late_first = pa.concat_tables([table.slice(10, 10), table.slice(0, 10), table.slice(20, 20)])
    feed = feed_of(tmp_path / "in", [late_first.slice(0, 25)])
    folders = {name: str(tmp_path / name) for name in ("known", "anywhere")}

    def run() -> None:
        frame = feed.stream(spark, "at", "15 seconds")
        options = {"time": "at", "type": "type", "buckets": 2, "checkpointLocation": str(tmp_path / "state")}
        with settings(spark, SMALL):
            ensue.start(frame, PATTERNS, to=folders, trigger={"availableNow": True}, **options).awaitTermination()

    run()
    state = ensue.stream_state(str(tmp_path / "state"), spark)
    assert state.agg({"events": "sum"}).collect()[0][0] > 0
    feed.put(late_first.slice(25))
    feed.put(table.slice(40))
    feed.put(last)
    feed.put(last)
    run()
    everything = spark.createDataFrame(pa.concat_tables([table, last, last]))
    wanted = ensue.run(everything, PATTERNS, time="at", type="type")
    for name, folder in folders.items():
        listed = rows_of(wanted[name])
        assert len(listed) > 3
        assert same(rows_of(spark.read.parquet(folder).drop("batch")), listed)
    wanted.release()


def test_detect_on_a_stream_asks_states(spark: SparkSession, tmp_path: Path) -> None:
    """The pattern has no key and the state has one, so all events are in one bucket."""
    table = homes()
    last = table.slice(0, 1).set_column(0, "at", instants([FAR]))
    query = PROGRAM + "; PATTERN SEQ(Seen s, Other o) WITHIN 4 seconds WHERE o.P(anyone in den) > 0.1 RETURN o.at AS at"
    feed = feed_of(tmp_path / "in", [table.slice(0, 29), table.slice(29), last, last])
    found = run_to_end(ensue.detect(feed.stream(spark, "at"), query, time="at", type="type"), tmp_path / "state").rows
    assert rows_of(found) == rows_of(ensue.detect(table, query, time="at", type="type")) != []


def test_states_of_a_checkpoint_cannot_be_changed(spark: SparkSession, tmp_path: Path) -> None:
    table = homes(10)
    feed = feed_of(tmp_path / "in", [table])
    query = PATTERNS.split("PATTERN anywhere")[0]

    def run(program: str, **more: Any) -> None:
        places = {"checkpointLocation": str(tmp_path / "state"), "to": str(tmp_path / "out")}
        options = {"time": "at", "type": "type", **places}
        with settings(spark, SMALL):
            handle = ensue.start(feed.stream(spark, "at"), program, trigger={"availableNow": True}, **options, **more)
            handle.awaitTermination()

    run(query)
    for changed in (query.replace("RELIABILITY 0.8", "RELIABILITY 0.7"), query.replace("> 0.2", "> 0.3")):
        with pytest.raises(ensue.StateError) as raised:
            run(changed, upgrade=True)
        assert raised.value.code == "state-streams"


def test_questions_that_spark_cannot_answer_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = homes(10)
    frame = spark.createDataFrame(table)
    query = PROGRAM + "; PATTERN SEQ(Other o) PARTITION BY home WHERE P(anyone in den) > 0.3 RETURN o.home AS home"
    stream = feed_of(tmp_path / "in", [table]).stream(spark, "at")
    options: dict[str, Any] = {"time": "at", "type": "type"}
    for ask in (
        lambda: ensue.detect(stream, query, emit="eager", **options),
        lambda: ensue.detect(stream, query, time="at", type="type", end="at"),
        lambda: ensue.any_match(frame, query, probability="p", **options),
        lambda: ensue.report(frame, query, **options),
    ):
        with pytest.raises(ensue.QueryError) as raised:
            ask()
        assert raised.value.code == "state-ahead"
        assert raised.value.problems[0].span is not None


def test_why_not_on_a_dataframe_follows_all_events(spark: SparkSession) -> None:
    table = homes()
    query = PROGRAM + "; PATTERN SEQ(Other o) WHERE P(anyone in den) > 0.3 RETURN o.home AS home"
    found = ensue.why_not(spark.createDataFrame(table), query, time="at", type="type")
    assert found.matches == ensue.why_not(table, query, time="at", type="type").matches > 0
