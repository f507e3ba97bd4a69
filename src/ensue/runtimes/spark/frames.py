"""Spark DataFrames in Ensue: empty Arrow tables for planning, Spark schemas for results, collecting events."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from ensue.errors import Problem, SchemaError
from ensue.plan.inputs import InputTable, repeated_column, without_unusable
from ensue.plan.program_plans import Columns

OWN = "ensue:"
"""The prefix of Ensue's own columns, which travel together with the user's columns."""

_TAKES_ZONE = "timezone" in inspect.signature(to_arrow_type).parameters


@dataclass(frozen=True, slots=True)
class FrameInput:
    """A DataFrame of a run. `item` describes its streams, with an empty table of the same columns."""

    frame: DataFrame
    item: InputTable


def empty_tables(events: Mapping[str, DataFrame] | DataFrame) -> dict[str, pa.Table] | pa.Table:
    """Return an empty table with the columns of each DataFrame, for planning."""
    if isinstance(events, DataFrame):
        return empty_table(events, "table")
    for name in events:
        if not isinstance(name, str):
            raise SchemaError(
                "stream-name", f"a stream name must be text, found {name!r}", "use text as the keys of the mapping"
            )
    return {name: empty_table(frame, f"table of stream `{name}`") for name, frame in events.items()}


def empty_table(frame: DataFrame, label: str) -> pa.Table:
    """Return an empty table of the columns that Ensue can use; the others are errors only in queries that use them."""
    problems = _repeated_names(frame, label)
    fields = []
    for field in frame.schema:
        found = _arrow_field(field, label)
        if isinstance(found, Problem):
            problems.setdefault(field.name, found)
        elif field.name not in problems:
            fields.append(found)
    return without_unusable(pa.schema(fields).empty_table(), problems)


def _repeated_names(frame: DataFrame, label: str) -> dict[str, Problem]:
    """Return the columns that Spark cannot distinguish; raise SchemaError for a reserved name."""
    for name in frame.columns:
        if name.startswith(OWN):
            problem = f"column `{name}` of the {label} has the reserved prefix `{OWN}`"
            raise SchemaError("reserved-column", problem, "rename the column")
    distinguishes = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    problems: dict[str, Problem] = {}
    names: dict[str, str] = {}
    for name in frame.columns:
        other = names.setdefault(name if distinguishes else name.lower(), name)
        if other != name:
            problems[name] = problems[other] = Problem(
                "duplicate-column",
                f"the {label} has columns `{other}` and `{name}`, which Spark does not distinguish",
                hint="rename one of them, or set `spark.sql.caseSensitive` to true",
            )
        elif frame.columns.count(name) > 1:
            problems.setdefault(name, repeated_column(name, label))
    return problems


def frame_inputs(events: Mapping[str, DataFrame] | DataFrame, items: Sequence[InputTable]) -> tuple[FrameInput, ...]:
    """Pair the DataFrames with their descriptions, in the same order."""
    frames = list(events.values()) if isinstance(events, Mapping) else [events]
    kinds = {frame.isStreaming for frame in frames}
    if len(kinds) > 1:
        raise SchemaError(
            "mixed-frames",
            "some DataFrames are streams and others are not",
            "read all of them with `spark.readStream`, or all with `spark.read`",
        )
    return tuple(FrameInput(frame, item) for frame, item in zip(frames, items, strict=True))


def _arrow_field(field: StructField, label: str) -> pa.Field | Problem:
    try:
        return pa.field(field.name, _nullable(arrow_type(field.dataType)))
    except PySparkTypeError:
        return Problem(
            "column-type",
            f"column `{field.name}` of the {label} is {field.dataType.simpleString()}, which Arrow does not support",
            hint=f"cast the column, or drop it with `.drop({field.name!r})`",
        )


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a column; timestamps are in UTC, as in `DataFrame.toArrow`, whatever the session."""
    return to_arrow_type(kind, timezone="UTC") if _TAKES_ZONE else to_arrow_type(kind)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Make every nested value nullable, so that any column of the type can be cast to it."""
    return _map_children(kind, _nullable)


def _map_children(kind: pa.DataType, change: Any) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, change(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, change(field.type), metadata=field.metadata) for field in kind])
    return kind


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of results with this Arrow schema."""
    return StructType([StructField(field.name, from_arrow_type(carried(field.type)), True) for field in schema])


def carried(kind: pa.DataType) -> pa.DataType:
    """Return the type in which results are sent to Spark: the engine's type, or the nearest one that Spark supports."""
    if pa.types.is_unsigned_integer(kind):
        return pa.int64() if kind != pa.uint64() else pa.decimal128(20, 0)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.duration("us")
    if pa.types.is_large_string(kind):
        return pa.string()
    return _map_children(kind, carried)


# --- collecting events in this process


def collect_events(
    events: Mapping[str, DataFrame] | DataFrame,
    columns: Columns,
    streams: Sequence[str] | None,
    where: Column | str | None,
    most: int,
) -> dict[str, pa.Table] | pa.Table:
    """Collect the rows of the streams (None: all) that meet the condition, at most `most` rows of each DataFrame."""
    if isinstance(events, Mapping):
        wanted = {name: frame for name, frame in events.items() if streams is None or name in streams}
        return {name: _collected(frame, where, most, f"of stream `{name}` ") for name, frame in wanted.items()}
    frame = events
    if streams is not None and columns.type in frame.columns:
        frame = frame.where(col(f"`{columns.type}`").isin(list(streams)))
    return _collected(frame, where, most, "")


def refuse_stream(frame: DataFrame) -> None:
    """Raise SchemaError if the DataFrame is a stream."""
    if frame.isStreaming:
        raise SchemaError(
            "streaming-frame",
            "expected a static (batch) DataFrame, found a stream",
            "read the source with `spark.read`; `ensue.waiting` shows what a running stream waits for",
        )


def _collected(frame: DataFrame, where: Column | str | None, most: int, whose: str) -> pa.Table:
    refuse_stream(frame)
    if where is not None:
        frame = frame.where(where)
    found = frame.limit(most + 1).toArrow()
    if found.num_rows > most:
        raise SchemaError(
            "rows-in-process",
            f"more than {most:,} events {whose}would be collected",
            "select fewer events with `where=`, for example by key or time",
        )
    return found
