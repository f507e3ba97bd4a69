"""`ensue run`: checks, describes or runs a pipeline file."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ensue.apps.cli.check import Finding, problems_as_json
from ensue.apps.cli.detect import SHOWN_ROWS, matches_table, plain_value
from ensue.apps.cli.input_files import input_name, read_input
from ensue.apps.cli.signals import STOPPED, StopRequest, told_to_stop
from ensue.apps.cli.terminal import counted, messages, open_console, show
from ensue.apps.pipelines import Pipeline, read_pipeline_text
from ensue.apps.pipelines.columns import check_columns
from ensue.apps.pipelines.description import describe, described
from ensue.apps.pipelines.runner import PipelineRun, run_pipeline
from ensue.errors import QueryError


def read_pipeline_file(path: Path, as_json: bool) -> Pipeline:
    """Reads a pipeline from a file or stdin and checks it. With `as_json`, it writes problems to stdout as a list."""
    text = read_input(path)
    try:
        pipeline = read_pipeline_text(text, input_name(path))
        check_columns(pipeline)
        return pipeline
    except QueryError as error:
        if not as_json or error.source is None:
            raise
        source = error.source
        show(problems_as_json([Finding(problem, source) for problem in error.problems]))
        raise SystemExit(1) from None


def show_plan(pipeline: Pipeline, as_json: bool) -> None:
    """Writes a description of the pipeline to stdout."""
    plan = json.dumps(described(pipeline), indent=2, ensure_ascii=False) if as_json else describe(pipeline)
    show(plan)


def run_file(pipeline: Pipeline, as_json: bool, upgrade: bool, verbose: bool) -> int:
    """Runs a pipeline and returns the exit code: 0, 130 after Ctrl-C, or 143 after SIGTERM.

    Spark's log and the traces of errors go to a temporary file, which is kept if the run fails. With `verbose`, they go
    to stderr.
    """
    what = "stream" if pipeline.streaming else "batch"
    messages(f"Running {pipeline.name} ({what}) ...")
    with told_to_stop(pipeline.streaming) as told, _log_file(verbose) as log:
        ran = _ended(pipeline, told, _Shower(as_json), upgrade, log)
    done = None if ran is None else ran.deliveries
    if done is not None:
        messages(f"{counted(done.delivered, 'call')} delivered, {counted(done.failed, 'dead letter')}")
    if as_json:
        calls = None if done is None else {"delivered": done.delivered, "failed": done.failed}
        show(json.dumps({"pipeline": pipeline.name, "stopped": told.signal is not None, "calls": calls}))
    if told.signal is None:
        messages(f"{pipeline.name} finished")
        return 0
    goes_on = "; the next run resumes from here" if pipeline.streaming else ""
    messages(f"{pipeline.name} stopped{goes_on}")
    return STOPPED + told.signal


def _ended(
    pipeline: Pipeline, told: StopRequest, shower: _Shower, upgrade: bool, log: Path | None
) -> PipelineRun | None:
    """Runs a pipeline until it ends. Returns None if a signal interrupted it."""
    try:
        return run_pipeline(pipeline, shower, stop=told.poll, upgrade=upgrade, log=log)
    except KeyboardInterrupt:
        told.signal = told.signal or signal.SIGINT
    except Exception as error:
        # A supervisor may stop Spark's process at the same time: what then fails is not an error of the pipeline.
        if told.signal is None:
            _keep_trace(error, log)
            raise
    return None


def _keep_trace(error: Exception, log: Path | None) -> None:
    trace = "".join(traceback.format_exception(error))
    if log is None:
        messages(trace)
        return
    if error.__cause__ is None:
        return
    with log.open("a", encoding="utf-8") as file:
        file.write(trace)


@contextmanager
def _log_file(verbose: bool) -> Iterator[Path | None]:
    """Gives the file for Spark's log; None if it goes to stderr. The file is kept, and named, if the run fails."""
    if verbose:
        yield None
        return
    descriptor, name = tempfile.mkstemp(prefix="ensue-run-", suffix=".log")
    os.close(descriptor)
    log = Path(name)
    try:
        yield log
    except Exception:
        if log.stat().st_size:
            messages(f"Spark's log and the traces are in {log}")
        raise
    finally:
        if sys.exc_info()[0] is None or not log.stat().st_size:
            log.unlink()


@dataclass(frozen=True, slots=True)
class _Shower:
    """Writes the rows of console outputs as tables or as lines of JSON."""

    as_json: bool

    def __call__(self, name: str, rows: pa.Table) -> None:
        if self.as_json:
            for row in rows.to_pylist():
                line = {"output": name, "row": {key: plain_value(value) for key, value in row.items()}}
                show(json.dumps(line, ensure_ascii=False, allow_nan=False))
        else:
            open_console().print(matches_table(rows, SHOWN_ROWS, title=name))
