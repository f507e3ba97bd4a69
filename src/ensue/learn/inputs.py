"""Check column names and numbers that the user passes, and count the contexts of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from ensue.engine import refinement
from ensue.errors import LimitError, SchemaError, did_you_mean
from ensue.expr.kinds import Kind
from ensue.expr.types import kind_of, readable_type
from ensue.plan.inputs import check_duplicates
from ensue.runtimes.tables import TableKind, are_frames, kind_of_table, without_views

CATEGORIES = (Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.NULL)
DERIVED = (refinement.HOUR, refinement.WEEKDAY, refinement.PREVIOUS)


def checked_reading(
    schema: pa.Schema, label: object, context: object, time: object, partition_by: object, zone: object
) -> refinement.ContextColumns:
    """Return the columns to read from tables of this schema."""
    check_duplicates(schema.names, "table")
    own_label = _checked_name(label, "label")
    own_time = None if time is None else _checked_name(time, "time")
    keys = () if partition_by is None else checked_names(partition_by, "partition_by")
    names = checked_names(context, "context")
    if not names:
        raise SchemaError("no-context", "`context` is empty", "pass column names, 'hour', 'weekday' or 'previous'")
    if own_label in names:
        raise SchemaError(
            "label-as-context",
            f"column `{own_label}` is the label and cannot be in `context`",
            "remove it from `context`",
        )
    features = tuple(refinement.Feature(name, _kind_of_feature(name, schema)) for name in names)
    reading = refinement.ContextColumns(own_label, features, own_time, keys, _checked_zone(zone))
    _check_needs(reading)
    check_category(schema, own_label, "label")
    check_columns(schema, reading)
    return reading


def check_columns(schema: pa.Schema, reading: refinement.ContextColumns) -> None:
    """Check that a table has all columns of the context, in supported types."""
    check_duplicates(schema.names, "table")
    for feature in reading.features:
        if feature.kind == refinement.COLUMN:
            check_category(schema, feature.name, "context")
    kinds = {feature.kind for feature in reading.features}
    if reading.time is not None and kinds != {refinement.COLUMN}:
        _check_time(schema, reading.time, next((kind for kind in refinement.CLOCK if kind in kinds), None))
    if reading.looks_back:
        check_category(schema, reading.label, "label")
        for name in reading.partition_by:
            check_column(schema, name, "partition_by")
            if kind_of(schema.field(name).type) is Kind.OTHER:
                raise SchemaError(
                    "key-type",
                    f"column `{name}` of the table has type {schema.field(name).type}, whose values cannot be compared",
                    "use a column of numbers, text or times",
                )


def check_column(schema: pa.Schema, name: str, role: str) -> None:
    if name not in schema.names:
        raise SchemaError(
            "no-such-column",
            f"the table has no column `{name}` for `{role}`; columns: {', '.join(schema.names)}",
            did_you_mean(name, schema.names) or f"pass one of these columns as `{role}=`",
        )


def check_category(schema: pa.Schema, name: str, role: str) -> None:
    check_column(schema, name, role)
    kind = schema.field(name).type
    if kind_of(kind) not in CATEGORIES:
        raise SchemaError(
            "category-type",
            f"column `{name}` for `{role}` is {readable_type(kind)}; expected text, integers or booleans",
            "round the values, or group them into ranges first",
        )


def _check_time(schema: pa.Schema, name: str, clock: str | None) -> None:
    check_column(schema, name, "time")
    kind = readable_type(schema.field(name).type)
    if kind_of(kind) is Kind.INTEGER and clock is not None:
        raise SchemaError(
            "no-clock",
            f"{clock!r} requires timestamps, but column `{name}` holds integers",
            f"cast the column to timestamps, or remove {clock!r} from `context`",
        )
    if kind_of(kind) not in (Kind.INTEGER, Kind.TIMESTAMP, Kind.NULL):
        raise SchemaError(
            "time-type",
            f"column `{name}` of the table is {kind}; expected timestamps or integers",
            "cast the column",
        )


def _kind_of_feature(name: str, schema: pa.Schema) -> str:
    """Return the kind of a feature: a column, or a derived feature if there is no such column."""
    if name in schema.names or name not in DERIVED:
        if name not in schema.names:
            raise SchemaError(
                "no-such-column",
                f"the table has no column `{name}` for `context`; columns: {', '.join(schema.names)}",
                did_you_mean(name, [*schema.names, *DERIVED]) or "'hour', 'weekday' and 'previous' need no column",
            )
        return refinement.COLUMN
    return name


def _check_needs(reading: refinement.ContextColumns) -> None:
    for feature in reading.features:
        if feature.kind != refinement.COLUMN and reading.time is None:
            raise SchemaError(
                "context-needs", f"{feature.name!r} requires the time of events", "pass `time=` with the time column"
            )
    if reading.looks_back and not reading.partition_by:
        raise SchemaError(
            "context-needs",
            "'previous' requires `partition_by`",
            "pass `partition_by=` with the columns that identify a sequence of events",
        )


def _checked_name(name: object, role: str) -> str:
    if not isinstance(name, str):
        raise SchemaError("column-name", f"`{role}` must be a column name, found {name!r}", "pass text")
    return name


def checked_names(names: object, role: str) -> tuple[str, ...]:
    """Return one or several names as a tuple without duplicates."""
    given = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (names,)
    return tuple(dict.fromkeys(_checked_name(name, role) for name in given))


def _checked_zone(zone: object) -> str:
    try:
        return ZoneInfo(_checked_name(zone, "zone")).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
        raise SchemaError(
            "unknown-time-zone",
            f"unknown time zone `{zone}`",
            "use a name such as 'UTC' or 'Europe/Berlin'",
        ) from unknown


def checked_share(
    value: object, role: str, *, least: float = 0.0, most: float = 1.0, open_ended: bool = False
) -> float:
    """Check that a number is between two others; the bounds are allowed unless `open_ended`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        if least < number < most if open_ended else least <= number <= most:
            return number
    bounds = f"greater than {least:g}" if open_ended else f"at least {least:g}"
    bounds += "" if most == float("inf") else f" and {'less than' if open_ended else 'at most'} {most:g}"
    raise SchemaError("number-range", f"`{role}` must be {bounds}, found {value!r}", "pass a number in this range")


def checked_number(value: object, role: str, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise LimitError("limit-type", f"`{role}` must be an integer of at least {least}, found {value!r}")
    return value


# --- counting contexts, in this process or on Spark


def is_frame(events: Any) -> bool:
    """Return True for a single Spark DataFrame."""
    return not isinstance(events, Mapping) and are_frames(events)


def opened(events: Any) -> tuple[TableKind | None, Any]:
    """Return a DataFrame unchanged, without a kind, or any other table as Arrow, with its kind."""
    if is_frame(events):
        return None, events
    kind = kind_of_table(events)
    return kind, without_views(kind.to_arrow(events))


def schema_of(events: Any) -> pa.Schema:
    """Return the columns of an opened table or DataFrame."""
    if is_frame(events):
        from ensue.runtimes.spark.refinement_tasks import columns_of

        return columns_of(events).schema
    return events.schema


def count_events(events: Any, reading: refinement.ContextColumns, limit: int) -> pa.Table:
    """Count how often each context has each label, for events with a known label."""
    if is_frame(events):
        from ensue.runtimes.spark.refinement_tasks import count_frame

        counts = count_frame(events, reading, limit)
    else:
        counts = _count_table(events, reading)
    _check_size(counts, limit)
    return counts


def _check_size(counts: pa.Table, limit: int) -> None:
    """Check that a distribution over the labels for each context fits into memory."""
    contexts = counts.group_by(counts.column_names[:-2]).aggregate([]).num_rows
    labels = len(counts.column("label").unique())
    if contexts * labels > limit:
        raise LimitError(
            "refinement-size",
            f"at least {contexts:,} contexts times {labels:,} labels are more than the limit of {limit:,}",
            "use fewer features, or features with fewer distinct values, or raise `most_counts=`",
        )


def _count_table(table: pa.Table, reading: refinement.ContextColumns) -> pa.Table:
    labels = refinement.text_of(table.column(reading.label), reading.label)
    previous = refinement.previous_labels(table, reading, labels) if reading.looks_back else None
    return refinement.count_contexts(refinement.context_of(table, reading, previous), labels)
