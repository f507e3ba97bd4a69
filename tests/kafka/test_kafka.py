"""A pipeline over a real broker of Kafka: produce, detect, consume, kill, resume, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import ensue
from inside import NOT_JSON
from kafka.broker import broker, jars

pytestmark = pytest.mark.slow

LONGEST = 1200
QUERY = "PATTERN pair SEQ(Order o, Paid p) PARTITION BY id WITHIN 1 hour RETURN o.id AS id, p.at AS at"
PIPELINE = """\
name: paid orders
mode: stream
query: {query}
sources:
  - format: kafka
    options: {{kafka.bootstrap.servers: "${{SERVERS}}", subscribe: events, startingOffsets: earliest}}
    value: at TIMESTAMP, kind STRING, id BIGINT
    time: at
    type: kind
    watermark: 0 seconds
    rejected:
      format: kafka
      options: {{kafka.bootstrap.servers: "${{SERVERS}}", topic: rejected}}
outputs:
  pair:
    format: kafka
    options: {{kafka.bootstrap.servers: "${{SERVERS}}", topic: alerts}}
checkpointLocation: checkpoint
trigger: {{processingTime: 1 second}}
spark:
  master: local[2]
  memory: 1g
  config: {{spark.jars: "{jars}", spark.sql.shuffle.partitions: 2, spark.ui.enabled: false}}
"""
FIRST = [("08:00", "Order", 1), ("08:05", "Paid", 1), ("08:06", "Order", 2), ("08:30", "Other", 0)]
SECOND = [("08:40", "Paid", 2), ("08:41", "Order", 3), ("08:42", "Paid", 3), ("12:00", "Other", 0)]


def record(event: tuple[str, str, int]) -> str:
    at, kind, order = event
    return json.dumps({"at": f"2025-03-10T{at}:00", "kind": kind, "id": order})


def ids_of_matches() -> dict[str, int]:
    """Which order each match is about, by the id that the same program gives it in this process."""
    events = [*FIRST, *SECOND]
    table = pa.table(
        {
            "at": pa.array(
                [datetime.fromisoformat(f"2025-03-10T{at}:00") for at, _, _ in events], pa.timestamp("us", "UTC")
            ),
            "kind": [kind for _, kind, _ in events],
            "id": [order for _, _, order in events],
        }
    )
    found = ensue.run(table, QUERY, time="at", type="kind", match_id=True)["pair"]
    return {row["match_id"]: row["id"] for row in found.to_pylist()}


@contextmanager
def pipeline(folder: Path, servers: str) -> Iterator[subprocess.Popen[str]]:
    """`ensue run` as a process of its own."""
    command = [sys.executable, "-m", "ensue.apps.cli", "run", str(folder / "pipeline.yaml")]
    said = (folder / "said").open("a+")
    process = subprocess.Popen(command, stderr=said, text=True, env={**os.environ, "SERVERS": servers})
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        said.close()


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str], folder: Path) -> None:
    deadline = time.monotonic() + LONGEST
    while not what():
        assert process.poll() is None, (folder / "said").read_text()[-3000:]
        assert time.monotonic() < deadline, (folder / "said").read_text()[-3000:]
        time.sleep(0.1)


def test_produce_detect_consume_kill_and_resume(tmp_path: Path) -> None:
    connector = ",".join(str(path) for path in sorted((jars() / "connector").glob("*.jar")))
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(query=QUERY, jars=connector))
    with (
        broker(tmp_path) as kafka,
        kafka.writer("events") as producer,
        kafka.reader("alerts|rejected") as consumer,
    ):

        def alerts() -> dict[str, int]:
            """The orders of the alerts that have come, by id: one that comes twice counts once."""
            values = {key: json.loads(value) for key, value in consumer.records()}
            return {key: value["id"] for key, value in values.items() if "id" in value}

        def rejected() -> set[str]:
            return {value for _, value in consumer.records() if "problem" in value}

        producer.write(*map(record, FIRST), "no JSON")
        with pipeline(tmp_path, kafka.servers) as process:
            wait_for(lambda: 1 in alerts().values(), process, tmp_path)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert set(alerts().values()) == {1}
        producer.write(*map(record, SECOND))
        with pipeline(tmp_path, kafka.servers) as process:
            wait_for(lambda: len(alerts()) == 3 and bool(rejected()), process, tmp_path)
            process.send_signal(signal.SIGINT)
            assert process.wait(LONGEST) == 128 + signal.SIGINT
        assert alerts() == ids_of_matches()
        (text,) = rejected()
    wrong = json.loads(text)
    assert (wrong["value"], wrong["problem"]) == ("no JSON", NOT_JSON)
    assert (wrong["topic"], wrong["partition"], wrong["offset"]) == ("events", 0, len(FIRST))
    said = (tmp_path / "said").read_text()
    assert "the next run resumes from here" in said
    assert kafka.servers not in said
