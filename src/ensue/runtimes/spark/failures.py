"""What Spark says when something fails: the message without Java and Python traces, and where the traces go."""

from __future__ import annotations

import logging
import os
import re
import socketserver
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LONGEST = 2000
"""The maximum number of characters of a message."""

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)\] ")
_WRAPPERS = frozenset(
    {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED", "USER_RAISED_EXCEPTION"}
)
"""Conditions whose message contains the message of the cause."""
_CAUSE = re.compile(r"^Caused by: [\w.$]*?(\w+): (.*)$", re.MULTILINE)
_LOST_TASK = re.compile(r"Lost task [^\n]*?\): [\w.$]*?(\w+): ([^\n]*)")
_FIRST = re.compile(r"^: [\w.$]*?(\w+): ([^\n]*)", re.MULTILINE)
_ENDS = ("\n\tat ", "\n\nJVM stacktrace", " SQLSTATE: ", "\n=== Streaming Query ===", "\nDriver stacktrace")
_GONE = ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError")


@dataclass(frozen=True, slots=True)
class SparkFailure:
    """A failure of Spark: its innermost error condition (empty if it has none), its message, and all of its text."""

    condition: str
    message: str
    text: str
    is_gone: bool = False
    """Whether Spark's Java process has ended."""


def failure_of(error: BaseException) -> SparkFailure | None:
    """Return what failed in Spark; None if the exception is not from Spark.

    >>> from pyspark.errors import AnalysisException
    >>> failure_of(AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03")).message
    'Path does not exist: file:/x.'
    """
    from pyspark.errors import PySparkException

    if type(error).__name__ in _GONE or "Answer from Java side is empty" in str(error):
        return SparkFailure("", "Spark's Java process has ended", str(error), is_gone=True)
    # A client of Spark Connect has no module for errors of Java.
    if not isinstance(error, PySparkException) and not type(error).__name__.startswith("Py4J"):
        return None
    # The plan of a stream contains the texts of its expressions.
    text = str(error).partition("\n=== Streaming Query ===")[0]
    trace = getattr(error, "_stackTrace", None)
    return SparkFailure(*_innermost(text), f"{text}\n{trace}" if isinstance(trace, str) else text)


def _innermost(text: str) -> tuple[str, str]:
    if "error[" in text:
        # An error of Ensue in a worker: Spark adds text before it.
        return "", _cut(text[text.rindex("error[") :])
    conditions = [found for found in _CONDITION.finditer(text) if found[1] not in _WRAPPERS]
    if conditions:
        return conditions[-1][1], _cut(text[conditions[-1].end() :])
    for pattern in (_CAUSE, _LOST_TASK, _FIRST):
        if found := pattern.findall(text):
            kind, message = found[-1]
            return "", _cut(message or kind)
    return "", _cut(_CONDITION.sub("", text))


def _cut(message: str) -> str:
    for end in _ENDS:
        message = message.partition(end)[0]
    return message.strip()[:LONGEST]


@dataclass(frozen=True, slots=True)
class WithoutTraces:
    """Calls the function of a micro-batch. An error of Java in it keeps its causes, but not its traces.

    Spark searches the text of the error with a regular expression that overflows the stack on long texts, for example
    when a stream is stopped in the middle of a micro-batch.
    """

    function: Callable[[DataFrame, int], None]

    def __call__(self, rows: DataFrame, batch: int) -> None:
        try:
            self.function(rows, batch)
        except Exception as error:
            if not hasattr(error, "java_exception"):
                raise
            lines = [line for line in str(error).splitlines() if not line.startswith(("\tat ", "\t... "))]
            # Spark recognizes an interrupted micro-batch by this name.
            raise RuntimeError("py4j.protocol.Py4JJavaError: " + "\n".join(lines)[:LONGEST]) from None


# --- where traces go


@contextmanager
def log_in(file: Path) -> Iterator[None]:
    """Write what Spark and Python log to a file instead of stderr, if Spark is started inside this block."""
    from pyspark.logger import PySparkLogger

    before = os.environ.get("SPARK_SUBMIT_OPTS")
    options = f'-Densue.log.appender=file "-Densue.log.file={file}"'
    os.environ["SPARK_SUBMIT_OPTS"] = f"{before} {options}" if before else options
    to_file = logging.FileHandler(file, encoding="utf-8", delay=True)
    loggers = [logging.getLogger()]
    loggers += [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    handlers = [logger.handlers for logger in loggers]
    for logger in loggers:
        logger.handlers = [to_file]
    # Spark's server for accumulators prints a trace if Spark's process ends in the middle of a request.
    server: Any = socketserver.BaseServer
    printing = server.handle_error
    server.handle_error = lambda own, request, address: logging.getLogger(__name__).exception("Spark has ended")
    try:
        yield
    finally:
        server.handle_error = printing
        for logger, own in zip(loggers, handlers, strict=True):
            logger.handlers = own
        to_file.close()
        if before is None:
            os.environ.pop("SPARK_SUBMIT_OPTS", None)
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = before
