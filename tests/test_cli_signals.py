"""Signals during `ensue run`: what is interrupted, what is asked to stop, and the exit codes. No Spark is started."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import ensue
from inside import PipelineRun, app, told_to_stop

TEXT = """\
mode: MODE
query: PATTERN pair SEQ(Order o, Paid p) PARTITION BY id WITHIN 1 hour
sources:
  - {format: json, path: in, schema: "at TIMESTAMP, id BIGINT", stream: Order, time: at, watermark: 1 minute}
  - {format: json, path: in, schema: "at TIMESTAMP, id BIGINT", stream: Paid, time: at, watermark: 1 minute}
outputs: {pair: console}
checkpointLocation: checkpoint
"""
ENDINGS = [signal.SIGINT, signal.SIGTERM]


class Py4JNetworkError(Exception):
    """As py4j raises it if Java does not answer."""


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, work: Any, *options: str) -> Result:
    (folder / "in").mkdir()
    (folder / "pipeline.yaml").write_text(TEXT.replace("MODE", "stream"))
    monkeypatch.setattr("ensue.apps.cli.run.run_pipeline", work)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return CliRunner().invoke(app, ["run", str(folder / "pipeline.yaml"), *options])


@pytest.mark.parametrize("ending", ENDINGS)
def test_work_that_polls_is_asked_to_stop(ending: signal.Signals) -> None:
    with told_to_stop(streaming=True) as told:
        assert not told.poll()
        signal.raise_signal(ending)
        assert told.poll()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(ending)
    assert told.signal == ending


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_other_work_is_interrupted(ending: signal.Signals, streaming: bool) -> None:
    """A batch, and the start of Spark."""
    with told_to_stop(streaming) as told:
        if not streaming:
            assert not told.poll()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(ending)
    assert told.signal == ending


@pytest.mark.parametrize("ending", ENDINGS)
def test_exit_codes(ending: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if Spark's process got the signal as well, so that Python can no longer reach it."""

    def work(*arguments: Any, stop: Any, **options: Any) -> PipelineRun:
        assert not stop()
        signal.raise_signal(ending)
        assert stop()
        raise Py4JNetworkError("Answer from Java side is empty")

    result = run(tmp_path, monkeypatch, work)
    assert (result.exit_code, result.stdout) == (128 + ending, "")
    assert result.stderr.endswith("pipeline stopped; the next run resumes from here\n")
    assert not list(tmp_path.glob("ensue-run-*"))


def work_that_fails(*arguments: Any, **options: Any) -> PipelineRun:
    try:
        raise ZeroDivisionError("the trace")
    except ZeroDivisionError as error:
        raise ensue.SchemaError("pipeline-spark", "Spark raised an error") from error


def test_traces_are_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(tmp_path, monkeypatch, work_that_fails)
    assert result.exit_code == 1
    (log,) = tmp_path.glob("ensue-run-*.log")
    assert f"Spark's log and the traces are in {log}\n" in result.stderr
    assert result.stderr.endswith("error[pipeline-spark]: Spark raised an error\n")
    assert "Traceback" not in result.stderr
    assert "ZeroDivisionError: the trace" in log.read_text()


def test_traces_are_shown_with_verbose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(tmp_path, monkeypatch, work_that_fails, "--verbose")
    assert result.exit_code == 1
    assert "ZeroDivisionError: the trace" in result.stderr
    assert not list(tmp_path.glob("ensue-run-*"))
