"""Events of Spark DataFrames in this process, for questions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col

from ensue.errors import SchemaError
from ensue.plan.program_plans import Columns


def collect_events(
    events: Mapping[str, DataFrame] | DataFrame,
    columns: Columns,
    streams: Sequence[str] | None,
    where: Column | str | None,
    most: int,
) -> dict[str, pa.Table] | pa.Table:
    """The rows of the streams (None: of all) for which the condition holds, `most` of each DataFrame at most."""
    if isinstance(events, Mapping):
        wanted = {name: frame for name, frame in events.items() if streams is None or name in streams}
        return {name: _collected(frame, where, most, f"of stream `{name}` ") for name, frame in wanted.items()}
    frame = events
    if streams is not None and columns.type in frame.columns:
        frame = frame.where(col(f"`{columns.type}`").isin(list(streams)))
    return _collected(frame, where, most, "")


def refuse_stream(frame: DataFrame) -> None:
    """A question about events that are there has no answer on a stream."""
    if frame.isStreaming:
        raise SchemaError(
            "streaming-frame",
            "the question is about events that are there, and the DataFrame is a stream",
            "read its source with `spark.read`; `ensue.waiting` says what a running stream waits for",
        )


def _collected(frame: DataFrame, where: Column | str | None, most: int, whose: str) -> pa.Table:
    refuse_stream(frame)
    if where is not None:
        frame = frame.where(where)
    found = frame.limit(most + 1).toArrow()
    if found.num_rows > most:
        raise SchemaError(
            "rows-in-process",
            f"there are more than {most:,} events {whose}to look into",
            "narrow them with `where=`, such as the key or the time that the question is about",
        )
    return found
