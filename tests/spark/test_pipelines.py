"""Pipelines on Spark: batch and stream, outputs, tables and actions, and that a stream goes on after it was killed."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import ensue
from actions.test_webhooks import Server
from inside import NO_TIME, NOT_JSON, PipelineRun, app, read_pipeline_text, run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = """
  - format: text
    path: in
    value: at TIMESTAMP, kind STRING, order BIGINT
    columns: {id: order + 0}
    time: at
    type: kind
"""
PROGRAM = """
TABLE vip(id);
STREAM paid FROM PATTERN SEQ(Order o, Paid p) PARTITION BY id WITHIN 1 hour RETURN o.id AS id, p.at AS at;
PATTERN pair SEQ(Order o, Paid p) PARTITION BY id WITHIN 1 hour RETURN o.id AS id;
PATTERN unpaid SEQ(Order o, NOT Paid p) PARTITION BY id WITHIN 1 hour RETURN o.id AS id;
RULE vip_paid(id) <- p: paid(id, _), vip(id);
ON paid p DO tell(p.id, at = p.at);
"""
STREAM_QUERY = "PATTERN pair SEQ(Order o, Paid p) PARTITION BY id WITHIN 1 hour RETURN o.id AS id"


def write_events(folder: Path, number: int, events: list[tuple[str, str, int]]) -> None:
    (folder / "in").mkdir(exist_ok=True)
    rows = [{"at": f"2025-03-10T{at}:00", "kind": kind, "order": order} for at, kind, order in events]
    hidden = folder / f"_{number}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / "in" / f"{number}.jsonl")


def run_text(text: str, folder: Path, **options: Any) -> tuple[PipelineRun, dict[str, list[dict[str, Any]]]]:
    """Runs a pipeline; what it showed, by output."""
    shown: dict[str, list[dict[str, Any]]] = {}

    def show(name: str, rows: pa.Table) -> None:
        shown.setdefault(name, []).extend(rows.to_pylist())

    return run_pipeline(read_pipeline_text(text, folder / "pipeline.yaml", {}), show, **options), shown


def ids_in(folder: Path, format: str) -> list[int]:
    if not folder.exists():
        return []
    table = pyarrow.dataset.dataset(folder, format=format).to_table()
    return sorted(int(value) for value in table.column("id").to_pylist())


def column_of(folder: Path, name: str) -> list[Any]:
    """The values of a column in files of JSON, some of which may be empty."""
    lines = [line for path in sorted(folder.glob("**/*.json")) for line in path.read_text().splitlines()]
    return sorted(json.loads(line)[name] for line in lines)


def test_batch(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path, 1, [("08:00", "Order", 1), ("08:10", "Paid", 1), ("09:00", "Order", 2)])
    (tmp_path / "vip.csv").write_text("id\n1\n5\n")
    (tmp_path / "program.ensue").write_text(PROGRAM)
    text = f"""
program: program.ensue
sources: {SOURCE}
tables:
  vip: {{format: csv, path: vip.csv, options: {{header: true}}, schema: id BIGINT}}
outputs:
  pair: console
  unpaid: {{format: json, path: out/unpaid, mode: overwrite}}
  vip_paid: console
actions:
  tell: {{format: json, path: out/told}}
"""
    ran, shown = run_text(text, tmp_path)
    assert [row["id"] for row in shown["pair"]] == [1]
    assert [row["id"] for row in shown["vip_paid"]] == [1]
    assert ids_in(tmp_path / "out" / "unpaid", "json") == [2]
    assert pyarrow.dataset.dataset(tmp_path / "out" / "told", format="json").to_table().column("arg_1").to_pylist() == [
        1
    ]
    assert ran.deliveries is not None
    assert ran.deliveries.delivered == 1


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "stream"])
def test_rows_to_a_webhook(spark: SparkSession, tmp_path: Path, streaming: bool) -> None:
    write_events(tmp_path, 1, [("08:00", "Order", 1), ("08:10", "Paid", 1), ("12:00", "Other", 0)])
    stream = "mode: stream\ncheckpointLocation: checkpoint\ntrigger: {availableNow: true}" if streaming else ""
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = f"""
{stream}
query: {STREAM_QUERY}
sources: {SOURCE}{"    watermark: 0s" if streaming else ""}
outputs:
  pair:
    webhook: {server.url}
    headers: {{Authorization: "Bearer ${{TOKEN}}"}}
delivery: {{dead_letters: dead}}
"""
        pipeline = read_pipeline_text(text, tmp_path / "pipeline.yaml", {"TOKEN": "hunter2"})
        run_pipeline(pipeline, lambda name, rows: None)
        server.shutdown()
    ((_, headers, body),) = server.requests
    assert headers["Authorization"] == "Bearer hunter2"
    assert headers["Idempotency-Key"] == body["delivery_id"]
    assert (body["action"], body["arguments"]) == ("pair", {"id": 1})


EVERYTHING = """
query: |
  STREAM paid FROM PATTERN SEQ(Order o, Paid p) PARTITION BY id WITHIN 1 hour RETURN o.id AS id;
  PATTERN pair SEQ(Order o, Paid p) PARTITION BY id WITHIN 1 hour RETURN o.id AS id;
  PATTERN other SEQ(Order o, Sent s) PARTITION BY id WITHIN 1 hour;
  CONSTRAINT PRIOR(Order, Paid) PARTITION BY id;
  ON paid p DO tell(p.id)
outputs:
  pair: {format: json, path: out/pair}
violations: console
actions:
  tell: {format: json, path: out/told}
delivery: {dead_letters: dead}
"""


@pytest.mark.slow
def test_all_outputs_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Matches, calls, violations, partial matches and late rows come from one stream, rejected records beside it."""
    text = f"""{EVERYTHING}
mode: stream
checkpointLocation: checkpoint
trigger: {{availableNow: true}}
timed_out:
  pair: console
sources: {SOURCE}
    watermark: 0 seconds
    late: {{format: json, path: out/late}}
    rejected: {{format: json, path: out/rejected}}
"""
    paid = [("08:00", "Order", 1), ("08:05", "Paid", 1)]
    write_events(tmp_path, 1, [*paid, ("08:10", "Order", 2), ("08:20", "Paid", 3), ("08:21", "Order", 3)])
    assert [row["id"] for row in run_text(text, tmp_path)[1]["violations"]] == [3]
    write_events(tmp_path, 2, [("08:02", "Order", 4), ("12:00", "Other", 0)])
    (tmp_path / "in" / "3.jsonl").write_text('no JSON\n{"kind": "Order"}\n\n')
    _, shown = run_text(text, tmp_path)
    assert column_of(tmp_path / "out" / "pair", "id") == [1]
    assert column_of(tmp_path / "out" / "told", "arg_1") == [1]
    assert column_of(tmp_path / "out" / "late", "order") == [4]
    assert column_of(tmp_path / "out" / "rejected", "value") == ["no JSON", '{"kind": "Order"}']
    assert column_of(tmp_path / "out" / "rejected", "problem") == [NO_TIME, NOT_JSON]
    assert sorted((row["id"], row["waiting_for"]) for row in shown["timed_out.pair"]) == [(2, "Paid p"), (3, "Paid p")]
    assert "violations" not in shown
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["program", "rejected"]


def test_all_outputs_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    paid = [("08:00", "Order", 1), ("08:05", "Paid", 1)]
    write_events(tmp_path, 1, [*paid, ("08:20", "Paid", 3), ("08:30", "Order", 3)])
    (tmp_path / "in" / "2.jsonl").write_text("no JSON\n")
    text = f"{EVERYTHING}sources: {SOURCE}    rejected: console\n"
    _, shown = run_text(text, tmp_path)
    assert column_of(tmp_path / "out" / "pair", "id") == [1]
    assert column_of(tmp_path / "out" / "told", "arg_1") == [1]
    assert [row["id"] for row in shown["violations"]] == [3]
    assert shown["rejected"] == [{"value": "no JSON", "problem": NOT_JSON}]
    (tmp_path / "out" / "pair").rename(tmp_path / "before")
    run_text(text.replace("rejected: console", "rejected: ignore"), tmp_path)
    assert column_of(tmp_path / "out" / "pair", "id") == [1]


@pytest.mark.parametrize("record", ["no JSON", '{"kind": "Other"}', '{"at": "2025-03-10T08:00:00", "order": "one"}'])
def test_a_record_that_is_no_event_ends_the_run(spark: SparkSession, tmp_path: Path, record: str) -> None:
    write_events(tmp_path, 1, [("08:00", "Order", 1)])
    (tmp_path / "in" / "2.jsonl").write_text(record)
    with pytest.raises(ensue.QueryError) as caught:
        run_text(f"query: {STREAM_QUERY}\nsources: {SOURCE}\noutputs: {{pair: console}}", tmp_path)
    assert (caught.value.code, caught.value.line) == ("pipeline-record", 5)
    assert "add `rejected` to the source" in caught.value.hint
    assert record not in str(caught.value)


@pytest.mark.slow
def test_constraints_alone(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path, 1, [("08:20", "Paid", 3), ("08:30", "Order", 3), ("12:00", "Other", 0)])
    text = f"""
mode: stream
checkpointLocation: checkpoint
trigger: {{availableNow: true}}
query: CONSTRAINT PRIOR(Order, Paid) PARTITION BY id
sources: {SOURCE}
    watermark: 0 seconds
violations: console
"""
    assert [row["id"] for row in run_text(text, tmp_path)[1]["violations"]] == [3]


def test_a_format_whose_package_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    """It is said before anything runs, with the place in the file and what to add."""
    write_events(tmp_path, 1, [("08:00", "Order", 1)])
    text = f"query: {STREAM_QUERY}\nsources: {SOURCE}\noutputs: {{pair: {{format: delta, path: out}}}}"
    with pytest.raises(ensue.QueryError) as caught:
        run_text(text, tmp_path)
    error = caught.value
    assert (error.code, error.line, error.column) == ("pipeline-package", 10, 26)
    assert "--packages io.delta:delta-spark_2.13:VERSION" in error.hint
    assert "spark.sql.extensions: io.delta.sql.DeltaSparkSessionExtension" in error.hint


def test_what_spark_says_is_an_error_without_secrets(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path, 1, [("08:00", "Order", 1)])
    source = SOURCE.replace("id: order + 0", 'id: "order + ${SHORT} + ${PLACE}"')
    text = f"query: {STREAM_QUERY}\nsources: {source}\noutputs: {{pair: console}}"
    pipeline = read_pipeline_text(text, tmp_path / "pipeline.yaml", {"PLACE": "hunter2", "SHORT": "xyz"})
    with pytest.raises(ensue.QueryError) as caught:
        run_pipeline(pipeline, lambda name, rows: None)
    assert (caught.value.code, caught.value.line) == ("no-such-column", 6)
    assert "hunter2" not in str(caught.value)
    assert "xyz" not in str(caught.value)


# --- what fails after the start, at its line


def failing(spark: SparkSession, text: str, folder: Path) -> tuple[str, int | None, str]:
    """The code, the line and the hint of the error of a run. No trace is in the text."""
    with pytest.raises(ensue.QueryError) as caught:
        run_text(text, folder)
    said = str(caught.value)
    assert f"--> {folder / 'pipeline.yaml'}:{caught.value.line}:" in said
    for part in ("Traceback", "\tat ", "py4j", "SQLSTATE"):
        assert part not in said
    return caught.value.code, caught.value.line, caught.value.hint


def batch_of(source: str, output: str = "console") -> str:
    return f"""\
query: {STREAM_QUERY}
outputs:
  pair: {output}
sources:
  - time: at
    type: kind
    {source}
"""


PARQUET = "format: parquet\n    path: in\n    schema: at TIMESTAMP, kind STRING, id BIGINT"


def parquet_file(folder: Path, name: str, ident: object) -> None:
    (folder / "in").mkdir(exist_ok=True)
    row = {"at": dt.datetime(2025, 3, 10, 8), "kind": "Order", "id": ident}
    pyarrow.parquet.write_table(pa.Table.from_pylist([row]), folder / "in" / f"{name}.parquet")


def test_a_path_without_files(spark: SparkSession, tmp_path: Path) -> None:
    code, line, hint = failing(spark, batch_of("format: json\n    path: in/*.json"), tmp_path)
    assert (code, line) == ("pipeline-file", 8)
    assert "check the path" in hint


def test_a_folder_without_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    code, line, hint = failing(spark, batch_of("format: json\n    path: in"), tmp_path)
    assert (code, line) == ("pipeline-files", 8)
    assert "schema" in hint


def test_a_file_that_is_not_of_the_format(spark: SparkSession, tmp_path: Path) -> None:
    parquet_file(tmp_path, "a", 1)
    (tmp_path / "in" / "b.parquet").write_text("not Parquet")
    code, line, hint = failing(spark, batch_of(PARQUET), tmp_path)
    assert (code, line) == ("pipeline-files", 8)
    assert "move the file" in hint


def test_a_file_with_another_type(spark: SparkSession, tmp_path: Path) -> None:
    parquet_file(tmp_path, "a", 1)
    parquet_file(tmp_path, "b", "x")
    code, line, hint = failing(spark, batch_of(PARQUET), tmp_path)
    assert (code, line) == ("pipeline-files", 8)
    assert "write the file again" in hint


def test_a_record_of_another_type(spark: SparkSession, tmp_path: Path) -> None:
    """Without FAILFAST, the value is null."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"at": "2025-03-10T08:00:00", "kind": "Order", "id": "x"}\n')
    source = "format: json\n    path: in\n    schema: at TIMESTAMP, kind STRING, id BIGINT"
    assert run_text(batch_of(source), tmp_path)[1].get("pair", []) == []
    code, line, hint = failing(spark, batch_of(f"{source}\n    options: {{mode: FAILFAST}}"), tmp_path)
    assert (code, line) == ("pipeline-files", 8)
    assert "FAILFAST" in hint


def test_a_value_that_cannot_be_cast(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"at": "2025-03-10T08:00:00", "kind": "Order", "code": "x"}\n')
    source = "format: json\n    path: in\n    schema: at TIMESTAMP, kind STRING, code STRING\n"
    code, line, hint = failing(spark, batch_of(f"{source}    columns: {{id: CAST(code AS BIGINT)}}"), tmp_path)
    assert (code, line) == ("pipeline-column", 10)
    assert "try_cast" in hint


def test_sql_that_spark_cannot_read(spark: SparkSession, tmp_path: Path) -> None:
    parquet_file(tmp_path, "a", 1)
    code, line, hint = failing(spark, batch_of(f"{PARQUET}\n    columns: {{n: 'id + * 2'}}"), tmp_path)
    assert (code, line) == ("pipeline-value", 10)
    code, line, hint = failing(spark, batch_of(PARQUET.replace("id BIGINT", "id WRONG")), tmp_path)
    assert (code, line) == ("pipeline-value", 9)
    assert hint


@pytest.mark.parametrize("output", ["file/below", "out"])
def test_an_output_that_cannot_be_written(spark: SparkSession, tmp_path: Path, output: str) -> None:
    parquet_file(tmp_path, "a", 1)
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "out").mkdir()
    mode = "append" if "/" in output else "error"
    text = batch_of(PARQUET, f"{{format: parquet, path: {output}, mode: {mode}}}")
    code, line, hint = failing(spark, text, tmp_path)
    assert (code, line) == ("pipeline-sink", 3)
    assert "folder" in hint or "mode: overwrite" in hint


def test_failures_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """A value in a micro-batch, an output of a micro-batch, and the checkpoint of another query."""
    events = [("08:00", "Order", 1), ("08:05", "Paid", 1), ("12:00", "Other", 0)]
    write_events(tmp_path, 1, events)
    (tmp_path / "file").write_text("not a folder")
    text = stream_text("availableNow: true", "{format: json, path: file/below}")
    assert failing(spark, text.replace("order + 0", "order / 0"), tmp_path)[:2] == ("pipeline-column", 9)
    text = text.replace("checkpointLocation: checkpoint", "checkpointLocation: other")
    assert failing(spark, text, tmp_path)[:2] == ("pipeline-sink", 14)
    changed = text.replace("WITHIN 1 hour", "WITHIN 9 hours")
    code, line, hint = failing(spark, changed, tmp_path)
    assert (code, line) == ("state-query", 15)
    assert hint


# --- ties


def test_a_batch_tells_ties(spark: SparkSession, tmp_path: Path) -> None:
    """As a stream and `ensue.detect` over a table do; without a job if nothing can depend on the order."""
    write_events(tmp_path, 1, [("08:00", "Order", 1), ("08:00", "Paid", 1), ("08:10", "Paid", 1)])
    text = f"query: {STREAM_QUERY}\nsources: {SOURCE}\noutputs: {{pair: console}}"
    with pytest.warns(ensue.EnsueNotice, match="1 pair of `Order` and `Paid` has the same time") as told:
        run_text(text, tmp_path)
    assert len(told) == 1
    for ordered in (
        text.replace("type: kind", "type: kind\n    order: order"),
        text.replace("1 hour", "1 hour ALLOWING TIES"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ensue.EnsueNotice)
            run_text(ordered, tmp_path)


def stream_text(trigger: str, output: str = "{format: json, path: out}") -> str:
    return f"""
name: paid orders
mode: stream
query: {STREAM_QUERY}
sources: {SOURCE}
    watermark: 0s
outputs: {{pair: {output}}}
checkpointLocation: checkpoint
trigger: {{{trigger}}}
spark:
  master: local[2]
  memory: 1g
  config: {{spark.sql.shuffle.partitions: 2, spark.ui.enabled: false}}
"""


def test_stream_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path, 1, [("08:00", "Order", 1), ("08:05", "Order", 2)])
    run_text(stream_text("availableNow: true"), tmp_path)
    assert ids_in(tmp_path / "out", "json") == []
    write_events(tmp_path, 2, [("08:10", "Paid", 1), ("08:11", "Paid", 2), ("12:00", "Other", 0)])
    ran, _ = run_text(stream_text("availableNow: true"), tmp_path)
    assert not ran.stopped
    assert ids_in(tmp_path / "out", "json") == [1, 2]


STATE_QUERY = """|
  STATE mood OF shop IN (calm, busy) STARTS calm
    ON Order o: MOVE shop TO busy PROBABILITY 0.9
    ON Paid p: MOVE shop TO calm;
  PATTERN pair SEQ(Order o, Paid p) PARTITION BY id WITHIN 1 hour WHERE o.P(shop in busy) > 0.95
    RETURN o.id AS id, o.MOST LIKELY(shop) AS mood, p.P(shop in calm) AS calm
"""


def test_patterns_of_a_pipeline_ask_states(spark: SparkSession, tmp_path: Path) -> None:
    """The second order finds the shop busy already. A stream that is stopped between knows what a batch knows."""
    events = [("08:00", "Order", 1), ("08:05", "Order", 2), ("08:10", "Paid", 1), ("08:11", "Paid", 2)]
    text = stream_text("availableNow: true").replace(STREAM_QUERY, STATE_QUERY)
    write_events(tmp_path, 1, events[:2])
    run_text(text, tmp_path)
    write_events(tmp_path, 2, [*events[2:], ("12:00", "Other", 0)])
    run_text(text, tmp_path)
    assert column_of(tmp_path / "out", "id") == [2]
    assert column_of(tmp_path / "out", "mood") == ["busy"]
    batch = f"query: {STATE_QUERY}\nsources: {SOURCE}\noutputs: {{pair: console}}"
    assert run_text(batch, tmp_path)[1]["pair"] == [{"id": 2, "mood": "busy", "calm": 1.0}]


def test_stream_stops_when_told(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path, 1, [("08:00", "Order", 1), ("08:05", "Paid", 1), ("12:00", "Other", 0)])
    found: list[str] = []

    def show(name: str, rows: pa.Table) -> None:
        found.append(name)

    pipeline = read_pipeline_text(stream_text("processingTime: 500ms", "console"), tmp_path / "pipeline.yaml", {})
    deadline = time.monotonic() + 900
    ran = run_pipeline(pipeline, show, stop=lambda: bool(found) or time.monotonic() > deadline)
    assert ran.stopped
    assert found == ["pair"]


@pytest.mark.soak("kills")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_killed_loses_nothing(spark: SparkSession, tmp_path: Path, ending: signal.Signals) -> None:
    write_events(
        tmp_path, 1, [("08:00", "Order", 1), ("08:05", "Paid", 1), ("08:06", "Order", 2), ("08:30", "Other", 0)]
    )
    (tmp_path / "pipeline.yaml").write_text(stream_text("processingTime: 1s"))
    command = [sys.executable, "-m", "ensue.apps.cli", "run", str(tmp_path / "pipeline.yaml")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        deadline = time.monotonic() + 900
        while not list((tmp_path / "out").glob("batch=*/_SUCCESS")) and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.2)
        process.send_signal(ending)
        said = process.communicate(timeout=900)[1]
    finally:
        if process.poll() is None:
            process.kill()
    if ending is not signal.SIGKILL:
        assert process.returncode == 128 + ending, said
        assert "the next run resumes from here" in said
    assert ids_in(tmp_path / "out", "json") == [1]
    write_events(tmp_path, 2, [("08:40", "Paid", 2), ("12:00", "Other", 0)])
    run_text(stream_text("availableNow: true"), tmp_path)
    assert ids_in(tmp_path / "out", "json") == [1, 2]


# --- stopped by a signal


def signal_when(there: Callable[[], object], ending: signal.Signals) -> threading.Thread:
    """Sends a signal to this process as soon as something is there."""

    def wait() -> None:
        deadline = time.monotonic() + 900
        while not there() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), ending)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_signal_ends_a_stream_and_the_next_run_resumes(spark: SparkSession, tmp_path: Path) -> None:
    """In this process and as soon as rows arrive: the exit code of SIGTERM, each match once over both runs."""
    write_events(
        tmp_path, 1, [("08:00", "Order", 1), ("08:05", "Paid", 1), ("08:06", "Order", 2), ("08:30", "Other", 0)]
    )
    text = stream_text("availableNow: true")
    (tmp_path / "pipeline.yaml").write_text(text.replace("trigger: {availableNow: true}\n", ""))
    thread = signal_when(lambda: list((tmp_path / "out").glob("batch=*/_SUCCESS")), signal.SIGTERM)
    result = CliRunner().invoke(app, ["run", str(tmp_path / "pipeline.yaml")])
    thread.join(900)
    assert (result.exit_code, result.stdout) == (143, "")
    assert result.stderr.endswith("paid orders stopped; the next run resumes from here\n")
    assert "Traceback" not in result.stderr
    write_events(tmp_path, 2, [("08:40", "Paid", 2), ("12:00", "Other", 0)])
    run_text(text, tmp_path)
    assert ids_in(tmp_path / "out", "json") == [1, 2]


def child(path: Path, ending: signal.Signals, there: Callable[[], object], group: bool) -> tuple[int, str]:
    """Runs a pipeline in a process of its own until something is there, and sends it a signal. Its code and stderr."""
    command = [sys.executable, "-m", "ensue.apps.cli", "run", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 900
        while not there() and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.1)
        (os.killpg if group else os.kill)(process.pid, ending)
        said = process.communicate(timeout=900)[1]
    finally:
        if process.poll() is None:
            process.kill()
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "when", "group"),
    [
        (signal.SIGTERM, "start", False),
        (signal.SIGINT, "start", False),
        (signal.SIGTERM, "micro-batch", False),
        (signal.SIGINT, "micro-batch", False),
        (signal.SIGTERM, "micro-batch", True),
    ],
)
def test_a_stream_in_a_process_is_stopped(
    spark: SparkSession, tmp_path: Path, ending: signal.Signals, when: str, group: bool
) -> None:
    """While Spark starts, and in the middle of a micro-batch; a supervisor sends it to the process of Spark as well."""
    pairs = 2000
    events = [(f"08:{n % 60:02}", kind, n) for n in range(pairs) for kind in ("Order", "Paid")]
    write_events(tmp_path, 1, [(at if kind == "Order" else "09:00", kind, n) for at, kind, n in events])
    text = stream_text("availableNow: true").replace("WITHIN 1 hour", "WITHIN 2 hours")
    (tmp_path / "pipeline.yaml").write_text(text.replace("trigger: {availableNow: true}\n", ""))
    offsets = tmp_path / "checkpoint" / "program" / "by-id" / "offsets" / "0"
    log = Path(tempfile.gettempdir())
    known = set(log.glob("ensue-run-*"))
    there = offsets.exists if when == "micro-batch" else lambda: set(log.glob("ensue-run-*")) - known
    code, said = child(tmp_path / "pipeline.yaml", ending, there, group)
    assert code == 128 + ending, said
    assert "Traceback" not in said
    assert "\tat " not in said
    assert "the next run resumes from here" in said
    write_events(tmp_path, 2, [("15:00", "Other", 0)])
    run_text(text, tmp_path)
    assert ids_in(tmp_path / "out", "json") == list(range(pairs))


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_batch_in_a_process_is_stopped(spark: SparkSession, tmp_path: Path, ending: signal.Signals) -> None:
    write_events(
        tmp_path, 1, [("08:00", "Order", n) for n in range(1000)] + [("08:10", "Paid", n) for n in range(1000)]
    )
    text = f"query: {STREAM_QUERY}\nsources: {SOURCE}\noutputs: {{pair: {{format: json, path: out, mode: overwrite}}}}"
    (tmp_path / "pipeline.yaml").write_text(text + "\nspark: {master: 'local[2]', memory: 1g}\n")
    code, said = child(tmp_path / "pipeline.yaml", ending, (tmp_path / "out").exists, group=False)
    assert code == 128 + ending, said
    assert "Traceback" not in said
    assert "\tat " not in said
    run_text(text, tmp_path)
    assert ids_in(tmp_path / "out", "json") == list(range(1000))
