"""Checks of what the user says about columns and numbers, before anything is counted."""

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
    """What to read from tables of this schema."""
    check_duplicates(schema.names, "table")
    own_label = _checked_name(label, "label")
    own_time = None if time is None else _checked_name(time, "time")
    keys = () if partition_by is None else checked_names(partition_by, "partition_by")
    names = checked_names(context, "context")
    if not names:
        raise SchemaError("no-context", "`context` names no feature", "name columns, 'hour', 'weekday' or 'previous'")
    if own_label in names:
        raise SchemaError(
            "label-as-context",
            f"column `{own_label}` is what is to be told, and no context",
            "leave it out of `context`",
        )
    features = tuple(refinement.Feature(name, _kind_of_feature(name, schema)) for name in names)
    reading = refinement.ContextColumns(own_label, features, own_time, keys, _checked_zone(zone))
    _check_needs(reading)
    check_category(schema, own_label, "label")
    check_columns(schema, reading)
    return reading


def check_columns(schema: pa.Schema, reading: refinement.ContextColumns) -> None:
    """A table has all columns that say in which context an event is, in types that can be read."""
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
                    f"column `{name}` of the table holds {schema.field(name).type}, whose values cannot be compared",
                    "name a column of numbers, text or times",
                )


def check_column(schema: pa.Schema, name: str, role: str) -> None:
    if name not in schema.names:
        raise SchemaError(
            "no-such-column",
            f"the table has no column `{name}` for `{role}`; columns: {', '.join(schema.names)}",
            did_you_mean(name, schema.names) or f"pass `{role}=` with one of them",
        )


def check_category(schema: pa.Schema, name: str, role: str) -> None:
    check_column(schema, name, role)
    kind = schema.field(name).type
    if kind_of(kind) not in CATEGORIES:
        raise SchemaError(
            "category-type",
            f"column `{name}` for `{role}` holds {readable_type(kind)}; text, integers and booleans can be counted",
            "make it one of few values first: round it, or cut it into ranges",
        )


def _check_time(schema: pa.Schema, name: str, clock: str | None) -> None:
    check_column(schema, name, "time")
    kind = readable_type(schema.field(name).type)
    if kind_of(kind) is Kind.INTEGER and clock is not None:
        raise SchemaError(
            "no-clock",
            f"{clock!r} is read off a clock, and column `{name}` holds integers",
            "cast it to timestamps, or leave it out of `context`",
        )
    if kind_of(kind) not in (Kind.INTEGER, Kind.TIMESTAMP, Kind.NULL):
        raise SchemaError(
            "time-type",
            f"column `{name}` of the table holds {kind}, which is not a time",
            "times are timestamps or integers",
        )


def _kind_of_feature(name: str, schema: pa.Schema) -> str:
    """A column, or what can be derived; a column of that name comes first."""
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
                "context-needs", f"{feature.name!r} needs the time of events", "pass `time=` with the column of times"
            )
    if reading.looks_back and not reading.partition_by:
        raise SchemaError(
            "context-needs",
            "'previous' needs to know whose event was before",
            "pass `partition_by=` with the columns whose events follow each other",
        )


def _checked_name(name: object, role: str) -> str:
    if not isinstance(name, str):
        raise SchemaError("column-name", f"`{role}` is the name of a column, not {name!r}", "pass a text")
    return name


def checked_names(names: object, role: str) -> tuple[str, ...]:
    """One name or several, each once."""
    given = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (names,)
    return tuple(dict.fromkeys(_checked_name(name, role) for name in given))


def _checked_zone(zone: object) -> str:
    try:
        return ZoneInfo(_checked_name(zone, "zone")).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
        raise SchemaError(
            "unknown-time-zone",
            f"the time zone `{zone}` is not in the time zone database",
            "name a zone such as 'UTC' or 'Europe/Berlin'",
        ) from unknown


def checked_share(
    value: object, role: str, *, least: float = 0.0, most: float = 1.0, open_ended: bool = False
) -> float:
    """A number between two others; the ends are allowed unless `open_ended`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        if least < number < most if open_ended else least <= number <= most:
            return number
    bounds = f"more than {least:g}" if open_ended else f"at least {least:g}"
    bounds += "" if most == float("inf") else f" and {'less than' if open_ended else 'at most'} {most:g}"
    raise SchemaError("number-range", f"`{role}` is {bounds}, not {value!r}", "pass such a number")


def checked_number(value: object, role: str, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise LimitError("limit-type", f"`{role}` is a number, at least {least}, not {value!r}")
    return value


# --- Counting the contexts of events, in this process or on Spark.


def is_frame(events: Any) -> bool:
    """Whether this is one Spark DataFrame."""
    return not isinstance(events, Mapping) and are_frames(events)


def opened(events: Any) -> tuple[TableKind | None, Any]:
    """A DataFrame as it is, without a kind, or any other table as Arrow, with its kind."""
    if is_frame(events):
        return None, events
    kind = kind_of_table(events)
    return kind, without_views(kind.to_arrow(events))


def schema_of(events: Any) -> pa.Schema:
    """The columns of an opened table or DataFrame."""
    if is_frame(events):
        from ensue.runtimes.spark.refinement_tasks import columns_of

        return columns_of(events).schema
    return events.schema


def count_events(events: Any, reading: refinement.ContextColumns, limit: int) -> pa.Table:
    """How often each context came with each label, for those of an opened table or DataFrame whose label is known."""
    if is_frame(events):
        from ensue.runtimes.spark.refinement_tasks import count_frame

        counts = count_frame(events, reading, limit)
    else:
        counts = _count_table(events, reading)
    _check_size(counts, limit)
    return counts


def _check_size(counts: pa.Table, limit: int) -> None:
    """A distribution over the labels for each context has to fit into memory."""
    contexts = counts.group_by(counts.column_names[:-2]).aggregate([]).num_rows
    labels = len(counts.column("label").unique())
    if contexts * labels > limit:
        raise LimitError(
            "refinement-size",
            f"at least {contexts:,} contexts times {labels:,} labels are more than the limit of {limit:,}",
            "name fewer features, or such with fewer values; or set a larger `most_counts=`",
        )


def _count_table(table: pa.Table, reading: refinement.ContextColumns) -> pa.Table:
    labels = refinement.text_of(table.column(reading.label), reading.label)
    previous = refinement.previous_labels(table, reading, labels) if reading.looks_back else None
    return refinement.count_contexts(refinement.context_of(table, reading, previous), labels)
