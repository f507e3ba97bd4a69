"""The tables of a run as planning sees them: which streams they contain, and which columns hold time and
probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from json import dumps, loads

import pyarrow as pa

from ensue.analysis.catalog import Catalog, StreamSchema, inferred_catalog
from ensue.analysis.declarations import FIRST, LAST, LINEAGE
from ensue.errors import Problem, SchemaError, did_you_mean
from ensue.expr.kinds import NUMBERS, TIMES, UNITS, Kind, Type
from ensue.expr.types import kind_of, own_type, readable_type
from ensue.nodes.names import AnyEvent, Stream
from ensue.nodes.patterns import PatternQuery
from ensue.nodes.uncertainty import NO_HIERARCHY, Hierarchy
from ensue.plan.plans import QueryPlan
from ensue.plan.selections import Elements, View, in_order

SORTABLE = {*NUMBERS, *TIMES, Kind.TEXT, Kind.BOOLEAN, Kind.NULL}
"""The kinds of values that can order events."""

POSITION = "ensue:position"
"""The column of the state with the position of an event in its partition; -1 while it is not known."""


UNUSABLE = b"ensue:unusable"
"""The key in the metadata of a schema for the columns that were left out of a table, with the problem of each."""

STREAM_KINDS = (Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.NULL)
"""The kinds of a type column. A stream has the name that the value has as text: `404`, `true`."""


@dataclass(frozen=True, slots=True)
class InputTable:
    """One table of a run. `stream` is the only stream in it; None: the column `type` contains the stream of each row.

    A table with a `type` column does not contain the streams in `elsewhere`, whatever its type column contains. A
    `derived` table contains the matches of a pattern. Its rows are real with the probability in column `probability`;
    among rows with equal values in the columns `alternatives`, at most one is real.
    """

    table: pa.Table
    time: str
    end: str | None = None
    stream: Stream | None = None
    type: str | None = None
    derived: bool = False
    elsewhere: frozenset[Stream] = frozenset()
    probability: str | None = None
    alternatives: tuple[str, ...] = ()
    hierarchy: Hierarchy = NO_HIERARCHY
    order: tuple[str, ...] = ()
    """The columns that order events at the same time. A derived table has one for its starts and one for its ends."""
    views: Mapping[Stream, View] = field(default_factory=dict)
    """The streams of rows that the program selects from the table. A row can belong to several of them."""
    has_all: bool = False
    """Whether it is the only table and has no type column, so that ANY EVENT is each of its rows."""
    elements: tuple[Elements, ...] = ()
    """The lists in its rows whose elements are rows of further tables."""

    def of(self, table: pa.Table) -> InputTable:
        """The same input with other rows."""
        return InputTable(
            table,
            self.time,
            self.end,
            self.stream,
            self.type,
            self.derived,
            self.elsewhere,
            self.probability,
            self.alternatives,
            self.hierarchy,
            self.order,
            self.views,
            self.has_all,
            self.elements,
        )

    @property
    def unusable(self) -> Mapping[str, Problem]:
        """The columns of the user's table that Ensue cannot use, with the problem of each."""
        return unusable_columns(self.table.schema)

    @property
    def all_views(self) -> Mapping[Stream, View]:
        """The streams of its rows, and those of elements in its rows."""
        if not self.elements:
            return self.views
        return {**self.views, **{name: view for own in self.elements for name, view in own.views.items()}}

    def holds(self, stream: Stream) -> bool:
        """Whether events of this stream are searched in the table, or in the lists of its rows."""
        if stream in self.views or (self.elements and stream in self.all_views):
            return True
        if self.stream is None:
            return stream not in self.elsewhere
        return stream == self.stream or (self.has_all and isinstance(stream, AnyEvent))

    @property
    def label(self) -> str:
        return f"table of stream `{self.stream}`" if self.stream is not None else "table"


def with_rows(inputs: Sequence[InputTable], tables: Mapping[str, pa.Table] | pa.Table) -> tuple[InputTable, ...]:
    """The inputs of a plan, which have no rows, with the given rows."""
    if isinstance(tables, pa.Table):
        return (replace(inputs[0], table=tables),)
    return tuple(replace(item, table=tables[str(item.stream)]) for item in inputs)


def without_unusable(table: pa.Table, problems: Mapping[str, Problem]) -> pa.Table:
    """Return the table with the problems of columns that it lacks. Only a query that uses such a column fails."""
    if not problems:
        return table
    known = {**unusable_columns(table.schema), **problems}
    said = {name: (problem.code, problem.message, problem.hint) for name, problem in known.items()}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), UNUSABLE: dumps(said).encode()})


def unusable_columns(schema: pa.Schema) -> dict[str, Problem]:
    """Return the columns that were left out of a table, with the problem of each."""
    said = (schema.metadata or {}).get(UNUSABLE)
    if said is None:
        return {}
    return {name: Problem(code, message, hint=hint) for name, (code, message, hint) in loads(said).items()}


def repeated_column(name: str, label: str) -> Problem:
    return Problem("duplicate-column", f"the {label} has two columns `{name}`", hint="rename one of them")


def refuse_unusable(schema: pa.Schema, name: str | None) -> None:
    """Raise the problem of a column that was left out of a table."""
    if UNUSABLE in (schema.metadata or {}) and name is not None and name in (known := unusable_columns(schema)):
        raise SchemaError.of(known[name])


def input_tables(
    events: Mapping[str, pa.Table] | pa.Table,
    streams: tuple[Stream, ...],
    time: str | Mapping[str, str],
    type_column: str | None,
    end: str | Mapping[str, str] | None,
) -> tuple[InputTable, ...]:
    """Checks the columns of the tables of a run. `streams` are those that the queries use."""
    _check_names(time, type_column, end)
    if isinstance(events, pa.Table):
        return (_single_table(events, streams, time, type_column, end),)
    if type_column is not None:
        raise SchemaError(
            "type-and-tables",
            "`type` is only supported for one table with all streams, not for one table per stream",
            "remove `type`",
        )
    for columns in (time, end):
        unknown = [name for name in columns if name not in events] if isinstance(columns, Mapping) else []
        if unknown:
            raise SchemaError(
                "unknown-stream",
                f"unknown stream `{unknown[0]}` in a column mapping; available: {', '.join(events)}",
                did_you_mean(unknown[0], events),
            )
    return tuple(
        _checked(
            InputTable(table, _time_of(time, name), end.get(name) if isinstance(end, Mapping) else end, stream=name)
        )
        for name, table in events.items()
    )


def _check_names(time: object, type_column: object, end: object) -> None:
    """Checks that columns are given as strings, or per stream as a mapping to strings."""
    for role, given in (("time", time), ("type", type_column), ("end", end)):
        values = list(given.values()) if isinstance(given, Mapping) and role != "type" else [given]
        optional = role != "time" and given is None
        if not optional and not all(isinstance(value, str) for value in values):
            found = repr(given) if isinstance(given, int | float | list | tuple) else type(given).__name__
            raise SchemaError("column-name", f"`{role}` must be a column name, found {found}", "pass a string")


def _single_table(
    table: pa.Table,
    streams: tuple[Stream, ...],
    time: str | Mapping[str, str],
    type_column: str | None,
    end: str | Mapping[str, str] | None,
) -> InputTable:
    if not isinstance(time, str) or isinstance(end, Mapping):
        raise SchemaError(
            "time-column",
            "a single table has one `time` and one `end` column, found a mapping",
            "pass column names as strings",
        )
    if type_column is not None:
        return _checked(InputTable(table, time, end, type=type_column))
    named = [name for name in streams if not isinstance(name, AnyEvent)]
    if len(set(named)) > 1:
        raise SchemaError(
            "no-type-column",
            f"the query uses the streams {', '.join(f'`{name}`' for name in named)}, but no `type` column is given",
            "pass `type=` with the column that contains the stream name, or pass one table per stream",
        )
    return _checked(InputTable(table, time, end, stream=(named or ["events"])[0]))


def _time_of(time: str | Mapping[str, str], stream: Stream) -> str:
    if isinstance(time, str):
        return time
    if stream not in time:
        raise SchemaError("time-column", f"`time` has no column for stream `{stream}`", "add the stream to the mapping")
    return time[str(stream)]


def _checked(item: InputTable) -> InputTable:
    names = item.table.column_names
    check_duplicates(names, item.label)
    if POSITION in names:
        raise SchemaError(
            "reserved-column", f"column `{POSITION}` of the {item.label} is reserved by Ensue", "rename the column"
        )
    for role, name in (("time", item.time), ("end", item.end), ("type", item.type)):
        if name is not None and name not in names:
            refuse_unusable(item.table.schema, name)
            hint = did_you_mean(name, names) or f"pass `{role}=` with one of these columns"
            if item.stream is not None:
                hint += f'; if tables differ, pass a mapping: `{role}={{"{item.stream}": "...", ...}}`'
            raise SchemaError(
                "no-such-column",
                f"the {item.label} has no column `{name}` for `{role}`; columns: {', '.join(names)}",
                hint,
            )
    for name in (item.time, item.end):
        kind = None if name is None else kind_of(item.table.schema.field(name).type)
        if kind not in (None, Kind.INTEGER, Kind.TIMESTAMP) and (kind is not Kind.NULL or item.table.num_rows):
            raise _no_time(item, str(name))
    if item.type is not None and kind_of(readable_type(item.table.schema.field(item.type).type)) not in STREAM_KINDS:
        raise SchemaError(
            "stream-type",
            f"column `{item.type}` must be text, integers or booleans to be used as `type`, "
            f"but is {item.table.schema.field(item.type).type}",
            "cast the column to text",
        )
    return item


def _no_time(item: InputTable, name: str) -> SchemaError:
    kind = readable_type(item.table.schema.field(name).type)
    hints = {
        Kind.TEXT: "parse it first, for example with `pyarrow.compute.strptime` or `pandas.to_datetime`",
        Kind.FLOAT: "scale the column and cast it to integers or timestamps",
    }
    return SchemaError(
        "time-type",
        f"column `{name}` of the {item.label} must be a timestamp or an integer column, but is {kind}",
        hints.get(kind_of(kind), "cast the column to timestamps or integers"),
    )


def catalog_of(inputs: tuple[InputTable, ...], queries: Sequence[PatternQuery] = ()) -> Catalog:
    """The streams of the tables and their columns; if no table has a time column, the queries determine its type."""
    times: list[pa.DataType] = []
    streams: dict[Stream, StreamSchema] = {}
    shared: StreamSchema | None = None
    of_all: StreamSchema | None = None
    levels, ordered = NO_HIERARCHY, list[InputTable]()
    for item in inputs:
        table = item.table.schema
        if item.order:
            ordered.append(item)
        times += [readable_type(table.field(name).type) for name in (item.time, item.end) if name is not None]
        fields = {field.name: own_type(readable_type(field.type)) for field in table}
        schema = StreamSchema(
            item.stream if item.stream is not None else "*",
            fields,
            item.time,
            item.end,
            probability=item.probability,
            alternatives=item.alternatives,
            order=item.order,
            unusable=item.unusable if table.metadata else {},
        )
        if item.stream is not None:
            streams[item.stream] = schema
            of_all = schema if item.has_all else of_all
        elif shared is None:
            shared = schema
        streams |= {name: view.schema for name, view in item.views.items()}
        if item.hierarchy.parts:
            levels = item.hierarchy
    known = [kind for kind in times if kind_of(kind) is not Kind.NULL]
    time = own_type(_common_time(known) if known else _time_of_queries(queries))
    order = _order_types(ordered) if ordered else {}
    return Catalog(streams, time, shared, levels, of_all, any(item.views for item in inputs), order)


def _order_types(inputs: Sequence[InputTable]) -> dict[str, Type]:
    """The types of the order columns, as they are read: decimals stay decimals."""
    given = [(item.order, plain_schema(item.table.schema)) for item in inputs if item.order and not item.derived]
    found: dict[str, Type] = {}
    for name in in_order(name for names, _ in given for name in names):
        kinds = [schema.field(name).type for names, schema in given if name in names]
        known = next((kind for kind in kinds if not pa.types.is_null(kind)), pa.null())
        found[name] = own_type(known if pa.types.is_decimal(known) else readable_type(known))
    return found


def _time_of_queries(queries: Sequence[PatternQuery]) -> pa.DataType:
    """The type of time that the queries imply, for tables without a time."""
    types = [inferred_catalog(query).time_type for query in queries]
    return next((kind for kind in types if pa.types.is_timestamp(kind)), pa.int64())


def attributes_of(inputs: tuple[InputTable, ...], stream: Stream) -> tuple[str, ...] | None:
    """The attributes of a stream with its own table, in column order; None for other streams."""
    own = next((item for item in inputs if item.stream == stream or stream in item.all_views), None)
    if own is None:
        return None
    columns = own.all_views[stream].columns if stream in own.all_views else own.table.column_names
    return tuple(name for name in columns if name not in (own.time, own.end))


def _common_time(known: list[pa.DataType]) -> pa.DataType:
    kinds = {kind_of(kind) for kind in known}
    if kinds == {Kind.INTEGER}:
        return pa.int64()
    zones = {kind.tz for kind in known if pa.types.is_timestamp(kind)}
    if Kind.INTEGER in kinds:
        raise SchemaError(
            "time-mix", "some time columns contain integers and others timestamps", "convert them to one type"
        )
    if None in zones and len(zones) > 1:
        raise SchemaError(
            "time-mix", "some time columns have a time zone and others do not", "convert them to one type"
        )
    unit = max((kind.unit for kind in known), key=UNITS.index)
    return pa.timestamp(unit, zones.pop() if len(zones) == 1 else "UTC")


def raw_types(plan: QueryPlan, inputs: Sequence[InputTable]) -> dict[Stream, dict[str, pa.DataType]]:
    """The column types of each stream of the query."""
    types: dict[Stream, dict[str, pa.DataType]] = {}
    of_tables: dict[int, dict[str, pa.DataType]] = {}
    for stream in plan.columns:
        number, holder = next((number, item) for number, item in enumerate(inputs) if item.holds(stream))
        if stream in holder.views:
            types[stream] = {**holder.views[stream].types}
            continue
        if number not in of_tables:
            schema = plain_schema(holder.table.schema)
            of_tables[number] = {field.name: field.type for field in schema if field.name not in (LINEAGE, FIRST, LAST)}
        types[stream] = of_tables[number]
    return types


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries decoded and every column nullable, as it is stored and returned."""
    return pa.schema(
        pa.field(item.name, item.type.value_type if pa.types.is_dictionary(item.type) else item.type) for item in schema
    )


def check_duplicates(names: list[str], label: str) -> None:
    if len(set(names)) < len(names):
        raise SchemaError.of(repeated_column(min(str(name) for name in names if names.count(name) > 1), label))


# -- the order of events at the same time


def ordered_tables(items: Sequence[InputTable], order: object) -> tuple[InputTable, ...]:
    """Adds the order columns to the tables; the events of a table without them tie with all events at their time."""
    names = (order,) if isinstance(order, str) else tuple(order) if isinstance(order, list | tuple) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise SchemaError(
            "column-name", f"`order` must be a column name or a list of column names, found {order!r}", "pass strings"
        )
    for name in names:
        for item in items:
            refuse_unusable(item.table.schema, name)
        holders = [item for item in items if name in item.table.column_names]
        known = list(dict.fromkeys(column for item in items for column in item.table.column_names))
        if not holders:
            raise SchemaError(
                "no-such-column",
                f"no table has a column `{name}` for `order`; columns: {', '.join(known)}",
                did_you_mean(name, known) or "pass `order=` with one of these columns",
            )
        kinds = {item.label: readable_type(item.table.schema.field(name).type) for item in holders}
        for label, kind in kinds.items():
            if kind_of(kind) not in SORTABLE:
                raise SchemaError(
                    "order-type",
                    f"column `{name}` of the {label} is {kind}, which cannot order events",
                    "use a column of numbers, text or times",
                )
        if len({own_type(kind) for kind in kinds.values() if kind_of(kind) is not Kind.NULL}) > 1:
            said = ", ".join(f"{kind} in the {label}" for label, kind in kinds.items())
            raise SchemaError(
                "order-type", f"the order column `{name}` has several types: {said}", "cast the columns to one type"
            )
    for item in items:
        missing = [name for name in names if name not in item.table.column_names]
        if missing and len(missing) < len(names):
            raise SchemaError(
                "no-such-column",
                f"the {item.label} has no column `{missing[0]}` for `order`, but has other order columns",
                "add the column, or remove the other order columns of this table",
            )
    return tuple(replace(item, order=names) if {*names} <= {*item.table.column_names} else item for item in items)


# -- uncertain events: which columns say how probable they are and which exclude each other


def uncertain_tables(items: Sequence[InputTable], probability: object, alternatives: object) -> tuple[InputTable, ...]:
    """Adds the probability columns to the tables; a table without them is certain."""
    for role, name in (("probability", probability), ("alternatives", alternatives)):
        if name is not None and not isinstance(name, str):
            raise SchemaError("column-name", f"`{role}` must be a column name, found {name!r}", "pass a string")
    if probability is None and alternatives is None:
        return tuple(items)
    if probability is None:
        raise SchemaError(
            "no-probability",
            f"`alternatives` is column `{alternatives}`, but `probability` is missing",
            "pass `probability=` with the column that contains the probability of each event",
        )
    for role, name in (("probability", probability), ("alternatives", alternatives)):
        for item in items:
            refuse_unusable(item.table.schema, None if name is None else str(name))
        if name is not None and not any(name in item.table.column_names for item in items):
            names = list(dict.fromkeys(column for item in items for column in item.table.column_names))
            raise SchemaError(
                "no-such-column",
                f"no table has a column `{name}` for `{role}`; columns: {', '.join(names)}",
                did_you_mean(str(name), names) or f"pass `{role}=` with one of these columns",
            )
    return tuple(
        _uncertain(item, str(probability), None if alternatives is None else str(alternatives)) for item in items
    )


def _uncertain(item: InputTable, probability: str, alternatives: str | None) -> InputTable:
    names = item.table.column_names
    if probability not in names:
        if alternatives in names:
            raise SchemaError(
                "no-probability",
                f"the {item.label} has alternatives, but no column `{probability}` for `probability`",
                "add the column, or remove the column of alternatives",
            )
        return item
    kind = readable_type(item.table.schema.field(probability).type)
    if kind_of(kind) not in NUMBERS and not (kind_of(kind) is Kind.NULL and item.table.num_rows == 0):
        raise SchemaError(
            "probability-type",
            f"column `{probability}` of the {item.label} must be numeric to be used as a probability, but is {kind}",
            "cast the column to numbers between 0 and 1",
        )
    return replace(
        item,
        probability=probability,
        alternatives=(alternatives,) if alternatives is not None and alternatives in names else (),
    )
