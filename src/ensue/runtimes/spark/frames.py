"""Spark DataFrames as Ensue sees them: empty Arrow tables for planning, Spark schemas for results."""

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

from ensue.errors import SchemaError
from ensue.plan.inputs import InputTable
from ensue.plan.program_plans import Columns

OWN = "ensue:"
"""What the names of columns begin with that travel beside those of the user."""

_TAKES_ZONE = "timezone" in inspect.signature(to_arrow_type).parameters


@dataclass(frozen=True, slots=True)
class FrameInput:
    """A DataFrame of a run. `item` says which streams it holds, by an empty table of the same columns."""

    frame: DataFrame
    item: InputTable


def empty_tables(events: Mapping[str, DataFrame] | DataFrame) -> dict[str, pa.Table] | pa.Table:
    """An empty table with the columns of each DataFrame: all that planning asks of it."""
    if isinstance(events, DataFrame):
        return empty_table(events, "table")
    for name in events:
        if not isinstance(name, str):
            raise SchemaError(
                "stream-name", f"the name of a stream is text, not {name!r}", "rename the key of the mapping"
            )
    return {name: empty_table(frame, f"table of stream `{name}`") for name, frame in events.items()}


def empty_table(frame: DataFrame, label: str) -> pa.Table:
    _check_names(frame, label)
    return pa.schema([_arrow_field(field, label) for field in frame.schema]).empty_table()


def _check_names(frame: DataFrame, label: str) -> None:
    """Names that Spark can tell apart and that are not Ensue's own; a name that stands twice is found by planning."""
    for name in frame.columns:
        if name.startswith(OWN):
            raise SchemaError("reserved-column", f"column `{name}` of the {label} is Ensue's own", "rename it")
    names: dict[str, str] = {}
    for name in frame.columns:
        other = names.setdefault(name.lower(), name)
        if other != name and frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
            raise SchemaError(
                "duplicate-column",
                f"the {label} has columns `{other}` and `{name}`, which Spark does not tell apart",
                "rename one of them, or set `spark.sql.caseSensitive` to true",
            )


def frame_inputs(events: Mapping[str, DataFrame] | DataFrame, items: Sequence[InputTable]) -> tuple[FrameInput, ...]:
    """The frames with what is known of them, in the same order."""
    frames = list(events.values()) if isinstance(events, Mapping) else [events]
    kinds = {frame.isStreaming for frame in frames}
    if len(kinds) > 1:
        raise SchemaError(
            "mixed-frames",
            "some of the DataFrames are streams and others are not",
            "read all of them as streams, or none",
        )
    return tuple(FrameInput(frame, item) for frame, item in zip(frames, items, strict=True))


def _arrow_field(field: StructField, label: str) -> pa.Field:
    try:
        return pa.field(field.name, _nullable(arrow_type(field.dataType)))
    except PySparkTypeError as error:
        raise SchemaError(
            "column-type",
            f"column `{field.name}` of the {label} holds {field.dataType.simpleString()}, which Arrow cannot carry",
            f"cast it, or leave it out with `.drop({field.name!r})`",
        ) from error


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a column; instants are read in UTC, as `DataFrame.toArrow` gives them, whatever the session."""
    return to_arrow_type(kind, timezone="UTC") if _TAKES_ZONE else to_arrow_type(kind)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The type with every nested value nullable, so that any column of it can be cast to it."""
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
    """The schema of a DataFrame of such results."""
    return StructType([StructField(field.name, from_arrow_type(carried(field.type)), True) for field in schema])


def carried(kind: pa.DataType) -> pa.DataType:
    """The type in which results go back to Spark: that of the engine, but for what Spark does not have."""
    if pa.types.is_unsigned_integer(kind):
        return pa.int64() if kind != pa.uint64() else pa.decimal128(20, 0)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.duration("us")
    if pa.types.is_large_string(kind):
        return pa.string()
    return _map_children(kind, carried)


# --- Events of Spark DataFrames in this process, for questions about them.


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
