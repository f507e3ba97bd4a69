"""Tables of calls to the sinks of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.runtimes.spark.session import running_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_rows(
    session: SparkSession | None, rows: pa.Table, format: str, mode: str, options: Mapping[str, Any]
) -> None:
    """Writes a table by way of a session: the one given, else the one of this process, else a new one."""
    # Spark loses what stands behind a chunk without rows.
    frame: Any = (session or running_session() or spark_session()).createDataFrame(rows.combine_chunks())
    frame.write.format(format).mode(mode).options(**options).save()


def session_of(frames: Any) -> SparkSession:
    """The session of a DataFrame, or of those of a mapping."""
    frame = next(iter(frames.values())) if isinstance(frames, Mapping) else frames
    session: SparkSession = frame.sparkSession
    return session


def is_streaming(frames: Any) -> bool:
    """Whether any of these DataFrames is a stream."""
    return any(frame.isStreaming for frame in (frames.values() if isinstance(frames, Mapping) else [frames]))
