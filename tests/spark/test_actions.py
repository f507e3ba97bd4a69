"""Actions on Spark: the deliveries of the run in this process, once with a journal, also after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ensue import SchemaError
from ensue.actions import Delivery, act, spark_sink, table_sink
from inside import Courier
from spark.streams import FAR, INSTANT, SECOND, SMALL, START, Feed, cut, feed_of, instants, settings

SCHEMA = pa.schema([("t", INSTANT), ("type", pa.string()), ("id", pa.int64()), ("shop", pa.string())])
PROGRAM = """
    STREAM late FROM PATTERN SEQ(Order o, NOT Paid p) PARTITION BY id WITHIN 2 seconds RETURN o.id AS id, o.t AS since;
    STREAM busy FROM PATTERN SEQ(Order one, Order two) PARTITION BY shop WITHIN 1 second RETURN one.shop AS shop;
    TABLE owner(id, who);
    RULE again(id, who) <- x: late(id=id), y: late(id=id), x before y, {x, y} within 20 seconds, owner(id, who);
    ON again a DO log(a.who);
    ON late l DO notify(l.id, since = l.since);
    ON late l WHERE l.id > 3 DO log(l.id);
    ON busy b DO log(b.shop)
"""
OWNERS = pa.table({"id": [1, 2, 3, 4], "who": ["Ada", "Bob", "Ada", "Eve"]})
OPTIONS: dict[str, Any] = {"time": "t", "type": "type", "tables": {"owner": OWNERS}}
FAST = {"backoff": "1 millisecond"}
STREAM: dict[str, Any] = {**OPTIONS, "buckets": 2, "status": False, "trigger": {"availableNow": True}}


class Kept:
    """Remembers the calls of every action by their ids."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def notify(self, id: int, since: Any, *, delivery_id: str) -> None:
        self.calls.append((delivery_id, (id, since)))

    def log(self, what: Any, *, delivery_id: str) -> None:
        self.calls.append((delivery_id, what))

    @property
    def receivers(self) -> dict[str, Any]:
        return {"notify": self.notify, "log": self.log}

    @property
    def ids(self) -> list[str]:
        return sorted(id for id, _ in self.calls)


def history(rows: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    table = pa.table(
        {
            "t": instants(START + np.sort(chance.integers(0, rows * SECOND // 5, rows))),
            "type": pa.array(chance.choice(["Order", "Paid"], rows)),
            "id": pa.array(chance.integers(0, 8, rows)),
            "shop": pa.array(chance.choice(["x", "y"], rows)),
        },
        schema=SCHEMA,
    )
    far = pa.table({"t": instants([FAR]), "type": ["Z"], "id": [0], "shop": ["z"]}, schema=SCHEMA)
    return pa.concat_tables([table, far])


def in_process(table: pa.Table) -> Kept:
    kept = Kept()
    act(table, PROGRAM, kept.receivers, delivery=Delivery(**FAST), **OPTIONS)
    assert len(kept.calls) == len(set(kept.ids)) > 20
    assert {what for _, what in kept.calls} & {"Ada", "Bob", "Eve"}
    return kept


def run(spark: SparkSession, feed: Feed, receivers: Any, place: Path | None, **delivery: Any) -> None:
    options = {**STREAM, "delivery": Delivery(**FAST, **delivery)}
    if place is not None:
        options["checkpointLocation"] = str(place)
    with settings(spark, SMALL):
        running = act(feed.stream(spark, "t"), PROGRAM, receivers, **options)
    running.awaitTermination()


def test_a_batch_delivers_what_the_process_does(spark: SparkSession) -> None:
    table, kept = history(120, seed=1), Kept()
    with settings(spark, SMALL):
        done = act(spark.createDataFrame(table), PROGRAM, kept.receivers, **OPTIONS)
    expected = in_process(table)
    assert done.delivered == len(kept.calls)
    assert kept.ids == expected.ids
    assert [what for _, what in kept.calls if isinstance(what, tuple)] == [
        what for _, what in expected.calls if isinstance(what, tuple)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("with_journal", [True, False])
def test_a_crash_between_delivery_and_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_journal: bool
) -> None:
    """The micro-batch is repeated: the same ids, which a journal keeps from being called again."""
    table = history(120, seed=2)
    feed = feed_of(tmp_path / "in", cut(table, 4, seed=3))
    places = {
        "place": tmp_path / "checkpoint",
        "dead_letters": tmp_path / "dead",
        "journal": tmp_path / "delivered.sqlite" if with_journal else None,
    }
    before, after = Kept(), Kept()
    deliver = Courier.deliver

    def deliver_and_crash(courier: Courier, tables: Any) -> Any:
        done = deliver(courier, tables)
        if done.delivered and len(before.calls) > 10:
            raise OSError("the machine went down")
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Courier, "deliver", deliver_and_crash)
        with pytest.raises(StreamingQueryException):
            run(spark, feed, before.receivers, **places)
    run(spark, feed, after.receivers, **places)
    expected = in_process(table)
    assert {**dict(before.calls), **dict(after.calls)} == dict(expected.calls)
    twice = set(before.ids) & set(after.ids)
    assert len(before.ids) == len(set(before.ids))
    assert not twice if with_journal else twice
    assert not (tmp_path / "dead").exists()


def test_a_receiver_that_always_raises_does_not_stop_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    table = history(60, seed=4)
    feed = feed_of(tmp_path / "in", cut(table, 2, seed=5))
    kept = Kept()

    def broken(id: int, since: Any) -> None:
        raise ConnectionError("nobody at home")

    letters = spark_sink("parquet", path=str(tmp_path / "dead"))
    receivers = {"notify": broken, "log": kept.log}
    run(spark, feed, receivers, tmp_path / "checkpoint", retries=1, dead_letters=letters)
    expected = in_process(table)
    dead = pq.read_table(tmp_path / "dead")
    assert sorted(kept.ids + dead.column("delivery_id").to_pylist()) == expected.ids
    assert set(dead.column("error").to_pylist()) == {"ConnectionError: nobody at home"}


def test_sinks_of_spark_get_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = history(60, seed=6)
    receivers = {
        "notify": spark_sink("parquet", path=str(tmp_path / "notified")),
        "log": table_sink(tmp_path / "logged", format="jsonl"),
    }
    program = PROGRAM.replace("log(b.shop)", "log(99)").replace("log(a.who)", "log(98)")
    with settings(spark, SMALL):
        done = act(table, program, receivers, **OPTIONS)
    notified = spark.read.parquet(str(tmp_path / "notified")).toArrow()
    assert notified.schema.names == ["delivery_id", "action", "arg_1", "since"]
    assert notified.schema.field("since").type == INSTANT
    logged = (tmp_path / "logged").glob("*.jsonl")
    lines = [line for path in logged for line in path.read_text("utf-8").splitlines()]
    assert done.delivered == notified.num_rows + len(lines)


@pytest.mark.parametrize("missing", ["checkpointLocation", "dead_letters"])
def test_what_a_stream_cannot_do_without(spark: SparkSession, tmp_path: Path, missing: str) -> None:
    feed = feed_of(tmp_path / "in", [history(5, seed=7)])
    place = None if missing == "checkpointLocation" else tmp_path / "checkpoint"
    dead = None if missing == "dead_letters" else tmp_path / "dead"
    with pytest.raises(SchemaError, match=missing) as caught:
        run(spark, feed, Kept().receivers, place, dead_letters=dead)
    assert caught.value.code == "stream-option"
