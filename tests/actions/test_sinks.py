"""Calls as rows: folders of files that hold each delivery once, and what would be written to Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from actions.programs import FAST, LATE, fast, orders
from ensue import SchemaError
from ensue.actions import act, kafka, table_sink
from inside import INDEX, Journal, TableSink, sinks

LISTS = """
    STREAM late FROM PATTERN SEQ(Order o, COLLECT Order other) PARTITION BY id WITHIN 9
    RETURN o.id AS id, list(other.t) AS later, o.t AS at;
    ON late l DO notify(l.id, l.later)
"""


def read(folder: Path, format: str) -> list[dict[str, Any]]:
    """The rows as a reader of tables finds them, in order."""
    reader = {"jsonl": "json"}.get(format, format)
    rows: list[dict[str, Any]] = pyarrow.dataset.dataset(folder, format=reader).to_table().to_pylist()
    return sorted(rows, key=lambda row: row["arg_1"])


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_rows_of_files_are_there_once(tmp_path: Path, format: str) -> None:
    receivers = {"notify": table_sink(tmp_path / "calls", format=format)}
    for count in (3, 3, 5):
        act(orders(range(count)), LATE, receivers, **FAST)
    rows = read(tmp_path / "calls", format)
    assert [(row["arg_1"], row["qty"], row["action"]) for row in rows] == [
        (0, 0, "notify"),
        (2, 20, "notify"),
        (3, 30, "notify"),
        (4, 40, "notify"),
    ]
    assert len({row["delivery_id"] for row in rows}) == 4


def test_lists_in_files_of_csv_are_json(tmp_path: Path) -> None:
    events = pa.table({"t": [1, 2, 3], "type": ["Order"] * 3, "id": [7, 7, 8]})
    act(events, LISTS, {"notify": table_sink(tmp_path, format="csv")}, **FAST)
    assert [(row["arg_1"], row["arg_2"]) for row in read(tmp_path, "csv")][-1] == (8, "[]")


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_a_crash_between_the_file_and_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    """The process dies after the file was written; the next one cuts the calls in another way."""
    receivers = {"notify": table_sink(tmp_path / "calls", format=format)}

    class Died(BaseException):
        """Like a process that is killed: nobody catches it."""

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", die)
        with pytest.raises(Died):
            act(orders(range(3)), LATE, receivers, **FAST)
    assert len(read(tmp_path / "calls", format)) == 2
    act(orders(range(5)), LATE, receivers, **FAST)
    assert [row["arg_1"] for row in read(tmp_path / "calls", format)] == [0, 2, 3, 4]


def test_a_crash_while_a_file_is_written_leaves_nothing_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receivers = {"notify": table_sink(tmp_path)}

    def half(path: Path, *_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", half)
        done = act(orders(), LATE, receivers, **fast(retries=1))
    assert (done.failed, done.dead_letters.column("attempts")[0].as_py()) == (3, 2)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("_")] == []
    act(orders(), LATE, receivers, **FAST)
    assert pq.read_table(tmp_path).num_rows == 3


def test_the_index_is_not_taken_for_rows(tmp_path: Path) -> None:
    act(orders(), LATE, {"notify": table_sink(tmp_path)}, **FAST)
    assert (tmp_path / INDEX).exists()
    assert isinstance(table_sink(tmp_path), TableSink)
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_a_format_that_there_is_not() -> None:
    with pytest.raises(SchemaError) as caught:
        table_sink("calls", format="parkett")
    assert (caught.value.code, caught.value.hint) == ("table-format", "did you mean `parquet`?")


def test_the_records_of_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark's Kafka sink would be handed; its package is not needed to know that."""
    written: list[tuple[pa.Table, str, str, dict[str, str]]] = []

    def write(session: Any, rows: pa.Table, format: str, mode: str, options: dict[str, str]) -> None:
        written.append((rows, format, mode, options))

    monkeypatch.setattr("ensue.runtimes.spark.connectors.write_rows", write)
    receiver = kafka("late-orders", "one:9092,two:9092", **{"kafka.acks": "all"})
    assert act(orders(range(1)), LATE, {"notify": receiver}, **FAST).delivered == 1
    ((rows, format, mode, options),) = written
    (record,) = rows.to_pylist()
    assert record["value"] == (
        f'{{"delivery_id": "{record["key"]}", "action": "notify", "arguments": {{"arg_1": 0, "qty": 0}}}}'
    )
    assert (format, mode) == ("kafka", "append")
    assert options == {"kafka.bootstrap.servers": "one:9092,two:9092", "topic": "late-orders", "kafka.acks": "all"}


def test_options_with_passwords_are_not_shown() -> None:
    assert "secret" not in repr(sinks.spark_sink("jdbc", password="secret"))
    assert "secret" not in repr(sinks.kafka("t", "one:9092", **{"kafka.sasl.jaas.config": "secret"}))
