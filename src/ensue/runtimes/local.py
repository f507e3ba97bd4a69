"""The embedded runtime: Arrow, pandas and polars tables in this very process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ensue.algebra.catalog import Catalog, StreamSchema
from ensue.engine.sources import InputTable
from ensue.errors import SchemaError, did_you_mean
from ensue.expr.types import UNITS, Kind, kind_of, readable_type


@dataclass(frozen=True, slots=True)
class TableKind:
    """How a user's kind of table becomes Arrow and how results become that kind again."""

    name: str
    to_arrow: Callable[[Any], pa.Table]
    from_arrow: Callable[[pa.Table], Any]


def kind_of_table(table: object) -> TableKind:
    """Which kind of table this is; raises a SchemaError for anything that is none."""
    if isinstance(table, pa.Table):
        return TableKind("pyarrow", lambda given: given, lambda result: result)
    if isinstance(table, pa.RecordBatch):
        return TableKind("pyarrow", lambda given: pa.Table.from_batches([given]), lambda result: result)
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(table, pandas.DataFrame):
        return TableKind("pandas", _from_pandas, lambda result: result.to_pandas())
    if polars is not None and isinstance(table, polars.DataFrame):
        return TableKind("polars", lambda given: given.to_arrow(), polars.from_arrow)
    if polars is not None and isinstance(table, polars.LazyFrame):
        return TableKind(
            "polars", lambda given: given.collect().to_arrow(), lambda result: polars.from_arrow(result).lazy()
        )
    raise SchemaError(
        "not-a-table",
        f"events come as a pyarrow, pandas or polars table, not as {type(table).__name__}",
        "for rows as dictionaries: `pyarrow.Table.from_pylist(rows)`",
    )


def _from_pandas(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(
            "mixed-column", f"a column holds values of several types: {error}", "bring each column to one type"
        ) from error


def conform(table: pa.Table, schema: pa.Schema, label: str) -> pa.Table:
    """A later batch in the shape of the first: the same columns and types; further columns are left out."""
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise SchemaError(
            "no-such-column",
            f"the {label} lacks column `{missing[0]}` of earlier batches; columns: {', '.join(table.column_names)}",
            did_you_mean(missing[0], table.column_names),
        )
    chosen = table.select(schema.names)
    try:
        return chosen if chosen.schema.equals(schema) else chosen.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            "column-type",
            f"the {label} has other types than earlier batches: {error}",
            "cast it to the first batch's schema",
        ) from error


def input_tables(
    events: Mapping[str, pa.Table] | pa.Table,
    streams: tuple[str, ...],
    time: str | Mapping[str, str],
    type_column: str | None,
    end: str | Mapping[str, str] | None,
) -> tuple[InputTable, ...]:
    """The tables of a run with their columns checked. `streams` are those that the queries name."""
    if isinstance(events, pa.Table):
        return (_single_table(events, streams, time, type_column, end),)
    if type_column is not None:
        raise SchemaError(
            "type-and-tables",
            "`type` goes with one table of all streams, not with one table per stream",
            "leave it out",
        )
    return tuple(
        _checked(InputTable(table, _for_stream(time, name), _for_stream(end, name) if end else None, stream=name))
        for name, table in events.items()
    )


def _single_table(
    table: pa.Table,
    streams: tuple[str, ...],
    time: str | Mapping[str, str],
    type_column: str | None,
    end: str | Mapping[str, str] | None,
) -> InputTable:
    if not isinstance(time, str) or isinstance(end, Mapping):
        raise SchemaError("time-column", "one table has one time and one end column", "pass their names as text")
    if type_column is not None:
        return _checked(InputTable(table, time, end, type=type_column))
    if len(set(streams)) > 1:
        raise SchemaError(
            "no-type-column",
            f"the query names {', '.join(f'`{name}`' for name in streams)}, but nothing says which row is which",
            "pass `type=` with the column that holds the stream's name, or one table per stream",
        )
    return _checked(InputTable(table, time, end, stream=streams[0]))


def _for_stream(columns: str | Mapping[str, str], stream: str) -> str:
    if isinstance(columns, str):
        return columns
    if stream not in columns:
        raise SchemaError("time-column", f"no time column is named for stream `{stream}`", "add it to the mapping")
    return columns[stream]


def _checked(item: InputTable) -> InputTable:
    names = item.table.column_names
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SchemaError("duplicate-column", f"the {item.label} has two columns `{repeated[0]}`", "rename one of them")
    for role, name in (("time", item.time), ("end", item.end), ("type", item.type)):
        if name is not None and name not in names:
            guess = did_you_mean(name, names)
            raise SchemaError(
                "no-such-column",
                f"the {item.label} has no column `{name}` for `{role}`; columns: {', '.join(names)}",
                guess or f"pass `{role}=` with one of them",
            )
    _check_time_type(item, item.time)
    if item.end is not None:
        _check_time_type(item, item.end)
    if item.type is not None and kind_of(readable_type(item.table.schema.field(item.type).type)) not in (
        Kind.TEXT,
        Kind.NULL,
    ):
        raise SchemaError(
            "stream-type",
            f"column `{item.type}` holds {item.table.schema.field(item.type).type}; names of streams are text",
            "cast it to text",
        )
    return item


def _check_time_type(item: InputTable, name: str) -> None:
    kind = readable_type(_plain(item.table.schema.field(name).type))
    if kind_of(kind) in (Kind.INTEGER, Kind.TIMESTAMP):
        return
    hints = {
        Kind.TEXT: "parse it first, e.g. with `pyarrow.compute.strptime` or `pandas.to_datetime`",
        Kind.FLOAT: "times are integers or timestamps: scale and cast the column",
    }
    raise SchemaError(
        "time-type",
        f"column `{name}` of the {item.label} holds {kind}, which is not a time",
        hints.get(kind_of(kind), "times are timestamps or integers"),
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def catalog_of(inputs: tuple[InputTable, ...]) -> Catalog:
    """What the tables say about their streams."""
    types = [
        readable_type(_plain(item.table.schema.field(name).type))
        for item in inputs
        for name in (item.time, item.end)
        if name is not None
    ]
    time_type = _common_time(types)
    schemas = [(item, _stream_schema(item)) for item in inputs]
    streams = {item.stream: schema for item, schema in schemas if item.stream is not None}
    shared = next((schema for item, schema in schemas if item.stream is None), None)
    return Catalog(streams, time_type, shared)


def _stream_schema(item: InputTable) -> StreamSchema:
    fields = {field.name: readable_type(field.type) for field in item.table.schema}
    return StreamSchema(item.stream or "*", fields, item.time, item.end)


def _common_time(types: list[pa.DataType]) -> pa.DataType:
    kinds = {kind_of(kind) for kind in types}
    if kinds == {Kind.INTEGER}:
        return pa.int64()
    if kinds != {Kind.TIMESTAMP}:
        raise SchemaError("time-mix", "some time columns hold integers and others timestamps", "bring them to one type")
    zones = {kind.tz for kind in types}
    if None in zones and len(zones) > 1:
        raise SchemaError(
            "time-mix", "some time columns have a time zone and others have none", "bring them to one type"
        )
    unit = max((kind.unit for kind in types), key=UNITS.index)
    return pa.timestamp(unit, zones.pop() if len(zones) == 1 else "UTC")
