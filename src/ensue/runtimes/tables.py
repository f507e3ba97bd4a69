"""Events with the columns that describe them; pyarrow, pandas and polars tables as Arrow and back; lookup tables."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.check.rule_problems import different_kinds, fact_value, facts_by_table, table_columns
from ensue.engine.derived_tables import PRESENT, derived_tables
from ensue.errors import Problem, QueryError, SchemaError, counted, did_you_mean
from ensue.expr.kinds import NUMBERS
from ensue.expr.types import (
    common_type,
    convert,
    describe,
    kind_of,
    readable,
    readable_type,
    scalar,
    without_dates,
)
from ensue.lower.phases import LoweredProgram
from ensue.nodes.rules import Fact, Ruleset, TableDeclaration
from ensue.plan.inputs import check_duplicates, refuse_unusable, repeated_column, without_unusable
from ensue.plan.plans import DEFAULT_LIMIT
from ensue.plan.program_plans import ColumnNames, Columns, FixedTables, OrderColumns


@dataclass(frozen=True, repr=False, eq=False)
class DescribedEvents:
    """A table, or one per stream, and the meaning of its columns.

    `tables` are passed to a call for the TABLEs of its program. `offered` are more tables; a program uses those that it
    declares.
    """

    table: Any
    columns: Columns
    tick: str | None = None
    tables: Mapping[str, Any] | None = None
    offered: Mapping[str, Any] | None = None


def described(
    events: Any,
    time: ColumnNames | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    *,
    tick: str | None = None,
    tables: Mapping[str, Any] | None = None,
) -> DescribedEvents:
    """Return the events with their columns: from the arguments, or else from `ensue.events`.

    Every public function resolves its column arguments here.
    """
    if isinstance(events, DescribedEvents):
        own = events.columns
        columns = Columns(
            own.time if time is None else time,
            own.type if type is None else type,
            own.end if end is None else end,
            own.probability if probability is None else probability,
            own.alternatives if alternatives is None else alternatives,
            own.order if order is None else order,
        )
        return DescribedEvents(events.table, columns, tick or events.tick, tables, events.offered)
    if time is None:
        raise SchemaError(
            "no-time-column",
            "`time` is required: the events have no time column",
            'pass `time="..."` with the column of event times',
        )
    return DescribedEvents(events, Columns(time, type, end, probability, alternatives, order), tick, tables)


@dataclass(frozen=True, slots=True)
class TableKind:
    """How to convert a kind of table to Arrow, and results back to that kind."""

    name: str
    to_arrow: Callable[[Any], pa.Table]
    from_arrow: Callable[[pa.Table], Any]


def arrow_tables(events: Any) -> tuple[TableKind, Mapping[str, pa.Table] | pa.Table]:
    """Convert the user's table or tables to Arrow; also return the kind for the results."""
    if not isinstance(events, Mapping):
        kind = kind_of_table(events)
        return kind, usable(kind.to_arrow(events), "table")
    if not events:
        raise SchemaError("no-tables", "the mapping of streams to tables is empty", "pass at least one table")
    for name in events:
        if not isinstance(name, str):
            raise SchemaError(
                "stream-name", f"a stream name must be text, found {name!r}", "use text as the keys of the mapping"
            )
    kinds = {name: kind_of_table(table) for name, table in events.items()}
    tables = {name: usable(kinds[name].to_arrow(table), f"table of stream `{name}`") for name, table in events.items()}
    return next(iter(kinds.values())), tables


def are_frames(events: object) -> bool:
    """Return True for a Spark DataFrame or a mapping that holds only Spark DataFrames."""
    spark = sys.modules.get("pyspark.sql")
    if spark is None:
        return False
    if not isinstance(events, Mapping):
        return isinstance(events, spark.DataFrame)
    found = [isinstance(table, spark.DataFrame) for table in events.values()]
    if any(found) and not all(found):
        raise SchemaError(
            "mixed-frames",
            "some tables are Spark DataFrames and others are not",
            "convert all of them with `spark.createDataFrame`, or collect the DataFrames with `.toArrow()`",
        )
    return any(found)


def kind_of_table(table: object) -> TableKind:
    """Return the kind of a table; raise SchemaError if the table is not supported."""
    if isinstance(table, pa.Table):
        return ARROW
    if isinstance(table, pa.RecordBatch):
        return TableKind("pyarrow", lambda given: pa.Table.from_batches([given]), _unchanged)
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(table, pandas.DataFrame):
        return TableKind("pandas", _from_pandas, _to_pandas)
    if polars is not None and isinstance(table, polars.DataFrame):
        return TableKind("polars", _from_polars, polars.from_arrow)
    if polars is not None and isinstance(table, polars.LazyFrame):
        return TableKind(
            "polars", lambda given: _from_polars(given.collect()), lambda result: polars.from_arrow(result).lazy()
        )
    if are_frames(table):
        raise SchemaError(
            "spark-frame",
            "a Spark DataFrame is not supported here; expected a pyarrow, pandas or polars table",
            "collect it with `.toArrow()`, or use `ensue.detect`, `ensue.run` or `ensue.start`",
        )
    hints = {
        "str": "read the file first, for example with `pandas.read_csv` or `pyarrow.parquet.read_table`",
        "list": "convert a list of dictionaries with `pyarrow.Table.from_pylist(rows)`, a dict of columns with"
        " `pyarrow.table(columns)`",
        "RecordBatchReader": "read the batches with `.read_all()`, or pass them to an `ensue.Detector` one by one",
    }
    kind = "str" if isinstance(table, Path) else type(table).__name__
    raise SchemaError(
        "not-a-table",
        f"events must be a pyarrow, pandas or polars table, found {type(table).__name__}",
        hints.get(kind, "pass a table, or a mapping of stream names to tables"),
    )


def column_names(table: Any) -> list[str]:
    """The columns of a table of any kind; raises a SchemaError for anything else."""
    if are_frames(table):
        return list(table.columns)
    kind_of_table(table)
    if isinstance(table, pa.Table | pa.RecordBatch):
        return list(table.schema.names)
    schema = table.collect_schema().names() if hasattr(table, "collect_schema") else table.columns
    return [str(name) for name in schema]


def shape_in_words(table: Any) -> str:
    """The number of rows of a table, if it is known, and its columns.

    >>> shape_in_words(pa.table({"t": [1, 2], "id": [7, 7]}))
    '2 rows, columns t, id'
    """
    rows = None if are_frames(table) or not hasattr(table, "__len__") else len(table)
    if isinstance(table, pa.Table | pa.RecordBatch):
        rows = table.num_rows
    known = "" if rows is None else f"{counted(rows, 'row', 'rows')}, "
    return f"{known}columns {', '.join(column_names(table))}"


def _unchanged(table: pa.Table) -> pa.Table:
    return table


ARROW = TableKind("pyarrow", _unchanged, _unchanged)


def table_of(columns: Iterable[tuple[str, pa.Array | Problem]]) -> pa.Table:
    """Return a table of the columns that Arrow can hold, and the problems of the others."""
    given = list(columns)
    held = [(name, column) for name, column in given if not isinstance(column, Problem)]
    table = pa.table([column for _, column in held], names=[name for name, _ in held])
    return without_unusable(table, {name: problem for name, problem in given if isinstance(problem, Problem)})


def mixed_column(name: str, values: Any) -> Problem:
    """Return the problem of a column whose values have no common Arrow type."""
    found = sorted({type(value).__name__ for value in values[:10_000] if value is not None})
    return Problem(
        "mixed-column",
        f"column `{name}` cannot be converted to one Arrow type; types of its values: {', '.join(found)}",
        hint="convert the column to one type, or drop it",
    )


def _from_pandas(frame: Any) -> pa.Table:
    return table_of((str(name), _from_series(str(name), frame.iloc[:, at])) for at, name in enumerate(frame.columns))


def _from_series(name: str, values: Any) -> pa.Array | Problem:
    try:
        return pa.array(values, from_pandas=True)
    except (ValueError, TypeError, NotImplementedError, OverflowError):
        return mixed_column(name, values)


def _to_pandas(table: pa.Table) -> Any:
    """Keep integers as integers and times as times, whatever is null next to them, also in lists and structs."""
    import pandas

    nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    frame = table.drop_columns(nested).to_pandas()
    for place, name in enumerate(table.column_names):
        column = table.column(name)
        if name in nested:
            rows = [value for chunk in column.chunks for value in _python_values(chunk)]
            frame.insert(place, name, pandas.Series(_object_array(rows), index=frame.index, dtype=object))
        elif pa.types.is_integer(column.type) and column.null_count:
            kind = pandas.UInt64Dtype() if column.type == pa.uint64() else pandas.Int64Dtype()
            frame[name] = column.to_pandas(types_mapper={column.type: kind}.get)
    return frame


def _python_values(array: Any) -> list[Any]:
    """Return the values for pandas: structs as dicts, lists as numpy arrays, times as `Timestamp` and `Timedelta`."""
    kind = array.type
    if pa.types.is_struct(kind):
        parts = [_python_values(array.field(place)) for place in range(kind.num_fields)]
        names = [field.name for field in kind]
        rows: list[Any] = [dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)]
        return _with_nulls(rows or [{} for _ in range(len(array))], array)
    if pa.types.is_fixed_size_list(kind):
        return _python_values(array.cast(pa.large_list(kind.value_type)))
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        # Not a cast to a list, which loses the values after a null.
        elements = _element_array(array.values)
        starts, sizes = array.offsets.to_numpy().tolist(), array.sizes.to_numpy().tolist()
        return _with_nulls([elements[at : at + size] for at, size in zip(starts, sizes, strict=True)], array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        elements = _element_array(array.values)
        offsets = array.offsets.to_numpy().tolist()
        return _with_nulls([elements[start:end] for start, end in pairwise(offsets)], array)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return _with_nulls(array.to_pandas().astype(object).tolist(), array)
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not array.null_count:
        numbers: list[Any] = array.to_numpy().tolist()
        return numbers
    values: list[Any] = array.to_pylist()
    return values


def _element_array(values: Any) -> Any:
    """Return the elements of lists as one numpy array: of numbers if all are numbers, otherwise of objects."""
    numeric = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    return values.to_numpy() if numeric and not values.null_count else _object_array(_python_values(values))


def _with_nulls(values: list[Any], array: Any) -> list[Any]:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]


def _object_array(values: Sequence[Any]) -> Any:
    # np.array would make a table of lists that have the same length.
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _from_polars(frame: Any) -> pa.Table:
    return table_of((column.name, _from_polars_column(column)) for column in frame.get_columns())


def _from_polars_column(column: Any) -> pa.Array | Problem:
    import polars

    # Of Python objects, polars would pass on the addresses.
    if column.dtype != polars.Object:
        try:
            return column.to_arrow()
        except pa.ArrowException:
            pass
    return _unsupported_column(column.name, str(column.dtype))


def _unsupported_column(name: str, kind: str) -> Problem:
    said = f"column `{name}` has type {kind}, which is not supported"
    return Problem("mixed-column", said, hint="cast the column, or drop it")


def usable(table: pa.Table, label: str) -> pa.Table:
    """Return the table without columns that Ensue cannot use; they are errors only in queries that use them."""
    counts = Counter(table.column_names)
    plain = all(pa.types.is_primitive(kind) or kind == pa.string() for kind in table.schema.types)
    if plain and len(counts) == table.num_columns:
        return table
    problems = {name: repeated_column(name, label) for name, count in counts.items() if count > 1}
    problems |= {
        field.name: _unsupported_column(field.name, str(field.type))
        for field in table.schema
        if field.name not in problems and not _is_supported(field.type)
    }
    if problems:
        kept = [place for place, name in enumerate(table.column_names) if name not in problems]
        table = without_unusable(table.select(kept), problems)
    return without_views(table)


def _is_supported(kind: pa.DataType) -> bool:
    """Return whether rows with values of this type can be taken from a table."""
    if pa.types.is_dictionary(kind) and pa.types.is_nested(kind.value_type):
        return False
    if pa.types.is_union(kind):
        return False
    parts = (kind.field(place).type for place in range(kind.num_fields)) if pa.types.is_nested(kind) else ()
    return all(map(_is_supported, parts))


def without_views(table: pa.Table) -> pa.Table:
    """Replace string views and run-end encoding by plain columns, which every Arrow kernel supports."""
    if all(pa.types.is_primitive(kind) or kind == pa.string() for kind in table.schema.types):
        return table
    for place, field in enumerate(table.schema):
        plain = _without_views(field.type)
        if plain != field.type:
            column = table.column(place)
            if pa.types.is_run_end_encoded(column.type):
                chunks = [pc.run_end_decode(chunk) for chunk in column.chunks]
                column = pa.chunked_array(chunks, column.type.value_type)
            table = table.set_column(place, pa.field(field.name, plain), column.cast(plain))
    return table


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_run_end_encoded(kind):
        return _without_views(kind.value_type)
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_without_views(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    return kind


PATTERN = "pattern"
"""The column with the pattern name in a table with the matches of several patterns."""


def together_schema(names: Sequence[str], schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns of one table for several patterns: the pattern name, then the columns of all patterns."""
    fields: dict[str, tuple[pa.Field, str]] = {}
    for name, schema in zip(names, schemas, strict=True):
        for field in schema:
            first, other = fields.setdefault(field.name, (field, name))
            if field.name == PATTERN:
                problem = f"pattern `{name}` has a column `{PATTERN}`, which is reserved for the pattern name"
            elif field.type != first.type:
                problem = (
                    f"column `{field.name}` is {first.type} in pattern `{other}` but {field.type} in pattern `{name}`, "
                    "so one table cannot hold the matches of both"
                )
            else:
                continue
            raise SchemaError("one-table", problem, "rename the column with `RETURN ... AS name`")
    return pa.schema([pa.field(PATTERN, pa.string()), *(field for field, _ in fields.values())])


def together(names: Sequence[str], tables: Sequence[pa.Table]) -> pa.Table:
    """Put the matches of several patterns in one table; columns that a pattern does not have are null."""
    schema = together_schema(names, [table.schema for table in tables])
    parts = []
    for name, table in zip(names, tables, strict=True):
        rows, own = table.num_rows, table.column_names
        columns = [table.column(field.name) if field.name in own else pa.nulls(rows, field.type) for field in schema]
        columns[0] = pa.repeat(pa.scalar(name, pa.string()), rows)
        parts.append(pa.table(columns, schema=schema))
    return pa.concat_tables(parts)


def conform(table: pa.Table, schema: pa.Schema, label: str) -> pa.Table:
    """Convert a later batch to the columns and types of the first one; drop additional columns."""
    if table.schema.equals(schema):
        return table
    names = table.column_names
    check_duplicates(names, label)
    missing = [name for name in schema.names if name not in names]
    if missing:
        refuse_unusable(table.schema, missing[0])
        raise SchemaError(
            "no-such-column",
            f"the {label} has no column `{missing[0]}`, which earlier batches had; columns: {', '.join(names)}",
            did_you_mean(missing[0], names),
        )
    chosen = table.select(schema.names)
    if chosen.schema.equals(schema):
        return chosen
    columns = [_conform_column(chosen.column(field.name), field, label) for field in schema]
    return pa.table(columns, schema=schema)


def learn_types(schema: pa.Schema, given: pa.Schema) -> pa.Schema:
    """Take the types of columns that held only nulls so far from a later batch."""
    for place, field in enumerate(schema if pa.null() in schema.types else ()):
        if pa.types.is_null(field.type) and given.get_field_index(field.name) >= 0:
            schema = schema.set(place, field.with_type(given.field(field.name).type))
    return schema


def _conform_column(column: pa.ChunkedArray, field: pa.Field, label: str) -> pa.ChunkedArray:
    given, wanted = readable_type(column.type), readable_type(field.type)
    zones = {pa.types.is_timestamp(kind) and kind.tz is not None for kind in (given, wanted)}
    kinds = {kind_of(given), kind_of(wanted)}
    alike = pa.types.is_null(given) or ((len(kinds) == 1 or kinds == NUMBERS) and len(zones) == 1)
    try:
        if alike:
            return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        alike = False
    raise SchemaError(
        "column-type",
        f"column `{field.name}` of the {label} is {describe(given)} ({column.type}), but was "
        f"{describe(wanted)} ({field.type}) in earlier batches",
        "cast the column to the type of the first batch",
    )


# --- lookup tables: the tables passed for a program's TABLEs, and the rows of its FACTs


def fixed_tables(
    given: Mapping[str, Any] | None,
    statements: LoweredProgram,
    offered: Mapping[str, Any] | None = None,
    limit: int | None = DEFAULT_LIMIT,
) -> FixedTables:
    """Return the lookup tables of a program by name, in the types that expressions use. Reads them immediately.

    A table in `offered` is used if the program declares it and `given` has no such table. Tables that rules derive are
    computed; none may have more rows than `limit`.
    """
    if given is None and statements.ruleset is None:
        return {}
    ruleset = statements.ruleset or Ruleset()
    facts = facts_by_table(ruleset)
    declared = {entry.name: entry for entry in ruleset.tables}
    handed_over = _checked_names({} if given is None else given, declared)
    if offered is not None:
        handed_over = {name: table for name, table in offered.items() if name in declared} | dict(handed_over)
    if problems := [_no_table(entry) for entry in ruleset.tables if entry.name not in {*handed_over, *facts}]:
        raise QueryError(problems, statements.source)
    tables: dict[str, pa.Table] = {}
    for name in (*declared, *(name for name in facts if name not in declared)):
        columns = table_columns(declared.get(name), facts.get(name, []))
        parts = []
        if name in handed_over:
            parts.append(_read(name, handed_over[name], columns))
        if name in facts:
            parts.append(_table_of(facts[name], columns))
        tables[name] = parts[0] if len(parts) == 1 else _joined(name, parts, facts[name][0], statements)
    return tables | derived_tables(statements, tables, limit) if ruleset.derived_tables else tables


def _checked_names(given: Mapping[str, Any], declared: Mapping[str, TableDeclaration]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise SchemaError(
            "unknown-table",
            f"`tables` must be a mapping of names to tables, found {type(given).__name__}",
            "pass a dictionary",
        )
    for name in given:
        if name not in declared:
            known = (
                f"tables of the program: {', '.join(declared)}" if declared else f"declare TABLE {name}(column, ...)"
            )
            hint = did_you_mean(str(name), declared) or known
            raise SchemaError("unknown-table", f"the program has no TABLE `{name}`", hint)
    return given


def _no_table(entry: TableDeclaration) -> Problem:
    return Problem(
        "no-table",
        f"TABLE `{entry.name}` has no rows",
        entry.span,
        hint=f'pass `tables={{"{entry.name}": ...}}`, or write its rows as FACTs',
    )


def _table_of(facts: Sequence[Fact], columns: Sequence[str]) -> pa.Table:
    """Return the rows of the FACTs; `check_tables` ensures that the values of a column have compatible types."""
    if not columns:
        return pa.table({PRESENT: pa.nulls(len(facts))})
    arrays = []
    for column in columns:
        values = [scalar(fact_value(fact, columns, column)) for fact in facts]
        kind = common_type([value.type for value in values if value is not None])
        arrays.append(pa.array([None if value is None else value.as_py() for value in values], kind))
    return pa.table(arrays, names=list(columns))


def _read(name: str, given: Any, columns: Sequence[str]) -> pa.Table:
    """Read the table passed for a TABLE, with the columns that the TABLE declares."""
    table = given.toArrow() if are_frames(given) else kind_of_table(given).to_arrow(given)
    table = usable(table, f"table `{name}`")
    for column in columns:
        refuse_unusable(table.schema, column)
        if column not in table.column_names:
            raise SchemaError(
                "no-such-column",
                f"table `{name}` has no column `{column}`; columns: {', '.join(table.column_names)}",
                did_you_mean(column, table.column_names) or f"list only existing columns in TABLE {name}",
            )
    arrays = [without_dates(readable(table.column(column), column, exact=True)) for column in columns]
    return pa.table(arrays, names=list(columns))


def _joined(name: str, parts: Sequence[pa.Table], fact: Fact, statements: LoweredProgram) -> pa.Table:
    """Concatenate the rows passed by the caller and the rows of the program's FACTs."""
    arrays = []
    for column in parts[0].column_names:
        own = [part.column(column) for part in parts]
        kind = common_type([each.type for each in own])
        if kind is None:
            problem = different_kinds(fact, column, describe(own[1].type), describe(own[0].type))
            raise QueryError([problem], statements.source)
        arrays.append(pa.chunked_array([chunk for each in own for chunk in convert(each, kind).chunks], kind))
    return pa.table(arrays, names=parts[0].column_names)
