"""Matches as Arrow tables: the columns of RETURN, or by default the keys, the interval and one struct per variable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ensue.algebra.catalog import Catalog
from ensue.algebra.check import column_name, positive_names
from ensue.algebra.nodes import Event, PatternQuery, walk
from ensue.engine.evaluate import MatchChunk, completion_times
from ensue.engine.identity import match_ids
from ensue.engine.rows import concatenate
from ensue.errors import LimitError, counted
from ensue.expr.check import check_expression
from ensue.expr.evaluate import evaluate
from ensue.expr.nodes import Expr, Field
from ensue.expr.rewrite import substitute_fields
from ensue.expr.types import common_type, readable_type
from ensue.graph.bounds import end_of, start_of
from ensue.graph.normalize import resolve_interval
from ensue.graph.timescale import TimeScale
from ensue.kernels.compiled import Codes, Int64s
from ensue.plan.model import QueryPlan
from ensue.plan.tracking import violation_fields

OVER_CAPACITY = ("overflowed binary array capacity", "input array too large")
"""How Arrow says that an array cannot hold so much text."""


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The columns of the result. `raw_types` are the types of a stream's columns as they came, for whole events.

    The result may begin with `match_id`. That of a partial match ends with `waiting_for`, the item that did not come.
    """

    plan: QueryPlan
    raw_types: Mapping[str, Mapping[str, pa.DataType]]
    schema: pa.Schema
    match_id: bool = False
    waiting_for: str | None = None


def output_schema(
    plan: QueryPlan, raw_types: Mapping[str, Mapping[str, pa.DataType]], match_id: bool = False
) -> OutputSchema:
    query = plan.query
    if plan.tracking is not None:
        keys = [_key_type(name, plan, raw_types) for name in query.partition_by]
        return OutputSchema(plan, raw_types, pa.schema(violation_fields(plan, keys)))
    fields = _returned_fields(plan) if query.returns else _default_fields(plan, raw_types)
    if match_id:
        fields = _distinct_names([*fields, pa.field("match_id", pa.string())])
        fields = [fields[-1], *fields[:-1]]
    return OutputSchema(plan, raw_types, pa.schema(fields), match_id)


def partial_output(output: OutputSchema, waiting_for: str) -> OutputSchema:
    """The columns of a partial match: those of a match, null where nothing is bound, and what it waited for."""
    fields = _distinct_names([*output.schema, pa.field("waiting_for", pa.string())])
    return replace(output, schema=pa.schema(fields), waiting_for=waiting_for)


def _returned_fields(plan: QueryPlan) -> list[pa.Field]:
    streams = variable_streams(plan.query)

    def field_type(field: Field) -> pa.DataType:
        return plan.catalog.field_type(streams.get(field.variable or ""), field.name)

    return [
        pa.field(column_name(column, place), check_expression(column.expression, field_type, []))
        for place, column in enumerate(plan.query.returns)
    ]


def variable_streams(query: PatternQuery) -> dict[str, str]:
    return {node.variable: node.stream for node in walk(query.pattern) if isinstance(node, Event) and node.variable}


def _default_fields(plan: QueryPlan, raw_types: Mapping[str, Mapping[str, pa.DataType]]) -> list[pa.Field]:
    query = plan.query
    streams = variable_streams(query)
    keys = [pa.field(name, _key_type(name, plan, raw_types)) for name in query.partition_by]
    interval = [pa.field(name, plan.catalog.time_type) for name in ("start", "end")]
    variables = [
        pa.field(name, pa.struct(list(raw_types[streams[name]].items()))) for name in positive_names(query.pattern)
    ]
    return _distinct_names([*keys, *interval, *variables])


def _key_type(name: str, plan: QueryPlan, raw_types: Mapping[str, Mapping[str, pa.DataType]]) -> pa.DataType:
    """The type of a key as it came, if it is the same in all streams, otherwise one that holds all of them."""
    kinds = [types.get(name, plan.catalog.time_type) for types in raw_types.values()]
    if len(set(kinds)) == 1:
        return kinds[0]
    return common_type([readable_type(kind) for kind in kinds]) or kinds[0]


def _distinct_names(fields: list[pa.Field]) -> list[pa.Field]:
    """A variable called like a key or like `start` keeps its name with an underscore behind it."""
    seen: set[str] = set()
    result = []
    for field in fields:
        name = field.name
        while name in seen:
            name += "_"
        seen.add(name)
        result.append(field.with_name(name))
    return result


def render_chunk(chunk: MatchChunk, output: OutputSchema) -> pa.RecordBatch:
    """The result rows of some matches, in the order of the matches."""
    arrays = _returned_columns(chunk, output) if output.plan.query.returns else _default_columns(chunk, output)
    if output.match_id:
        arrays.insert(0, match_ids(chunk, chunk.query_plan, _identifying_columns(output)))
    if output.waiting_for is not None:
        arrays.append(pa.repeat(pa.scalar(output.waiting_for), chunk.rows.length))
    return pa.RecordBatch.from_arrays(
        [_as_type(array, field.type) for array, field in zip(arrays, output.schema, strict=True)], schema=output.schema
    )


def _identifying_columns(output: OutputSchema) -> dict[str, list[str]]:
    """The columns that tell the events of a stream apart: those that the query uses."""
    return {
        stream: list(output.raw_types[stream] if names is None else names)
        for stream, names in output.plan.columns.items()
    }


def _as_type(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type == wanted else array.cast(wanted)


def _returned_columns(chunk: MatchChunk, output: OutputSchema) -> list[pa.Array]:
    streams = variable_streams(output.plan.query)
    catalog = output.plan.catalog
    bound = chunk.space.column_of(chunk.rows)

    def column(field: Field) -> pa.Array:
        assert field.variable is not None
        if field.variable in chunk.rows.places:
            return bound(field)
        return pa.nulls(chunk.rows.length, catalog.field_type(streams.get(field.variable), field.name))

    return [
        evaluate(_resolve(column_.expression, chunk, catalog), column, chunk.rows.length)
        for column_ in output.plan.query.returns
    ]


def _resolve(expression: Expr, chunk: MatchChunk, catalog: Catalog) -> Expr:
    intervals, moments, scale = chunk.plan.graph.intervals, chunk.space.moments, TimeScale(catalog.unit)
    return substitute_fields(expression, lambda field: resolve_interval(field, intervals, moments, scale))


def _default_columns(chunk: MatchChunk, output: OutputSchema) -> list[pa.Array]:
    plan = output.plan
    time_type = plan.catalog.time_type
    streams = variable_streams(plan.query)
    names = positive_names(plan.query.pattern)
    columns = [_key_column(chunk, name, plan.catalog) for name in plan.query.partition_by]
    columns += [pa.array(values).view(time_type) for values in (chunk.starts, chunk.ends)]
    columns += [_event_struct(chunk, name, output.raw_types[streams[name]]) for name in names]
    return columns


def _key_column(chunk: MatchChunk, name: str, catalog: Catalog) -> pa.Array:
    variable, places = next(iter(chunk.rows.places.items()))
    found = chunk.space.candidates[variable]
    if name in found.source.input.table.column_names:
        return found.source.raw_column(name).take(pa.array(found.rows[places]))
    point = end_of(variable) if name == "e" else start_of(variable)
    return pa.array(chunk.space.value(point, chunk.rows)).view(catalog.time_type)


def _event_struct(chunk: MatchChunk, name: str, types: Mapping[str, pa.DataType]) -> pa.Array:
    if name not in chunk.rows.places:
        return pa.nulls(chunk.rows.length, pa.struct(list(types.items())))
    found = chunk.space.candidates[name]
    rows = pa.array(found.rows[chunk.rows.places[name]])
    columns = [_as_type(found.source.raw_column(field).take(rows), kind) for field, kind in types.items()]
    return pa.StructArray.from_arrays(columns, fields=[pa.field(field, kind) for field, kind in types.items()])


def render_in_batches(
    chunks: Iterable[MatchChunk], output: OutputSchema, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """The result as it is found, in no particular order."""
    count = 0
    for chunk in chunks:
        count += chunk.rows.length
        check_limit(count, limit, chunk, output.plan)
        yield from _render_within_capacity(chunk, output)


def collect_ordered(chunks: Iterable[MatchChunk], output: OutputSchema, limit: int | None, piece: int) -> pa.Table:
    """The whole result, ordered by (completion time, start), then by the times of the events, variable by variable.

    Only the places of events are held until the count is known to be within the limit; then the columns are made,
    `piece` rows at a time.
    """
    found: dict[int, list[MatchChunk]] = {}
    count = 0
    for chunk in chunks:
        count += chunk.rows.length
        check_limit(count, limit, chunk, output.plan)
        found.setdefault(id(chunk.space), []).append(chunk)
    groups = [replace(parts[0], rows=concatenate([part.rows for part in parts])) for parts in found.values()]
    if not groups:
        return output.schema.empty_table()
    ordered = [_in_order(group, _sort_keys(group, output.plan)) for group in groups]
    tables = [pa.Table.from_batches(list(_render_pieces(group, output, piece))) for group in ordered]
    if len(tables) == 1:
        return tables[0]
    return _merge_ordered(tables, [_sort_keys(group, output.plan) for group in ordered], piece)


def _render_pieces(group: MatchChunk, output: OutputSchema, piece: int) -> Iterator[pa.RecordBatch]:
    for begin in range(0, group.rows.length, piece):
        places = np.arange(begin, min(begin + piece, group.rows.length), dtype=np.int32)
        yield from _render_within_capacity(replace(group, rows=group.rows.take(places)), output)


def _render_within_capacity(chunk: MatchChunk, output: OutputSchema) -> Iterator[pa.RecordBatch]:
    """One batch, or several where an Arrow array cannot hold all the text of one (2 GiB)."""
    try:
        yield render_chunk(chunk, output)
    except pa.ArrowInvalid as error:
        half = chunk.rows.length // 2
        if half == 0 or not any(words in str(error) for words in OVER_CAPACITY):
            raise
        for begin, end in ((0, half), (half, chunk.rows.length)):
            part = chunk.rows.take(np.arange(begin, end, dtype=np.int32))
            yield from _render_within_capacity(replace(chunk, rows=part), output)


def _in_order(group: MatchChunk, keys: list[Int64s]) -> MatchChunk:
    return replace(group, rows=group.rows.take(np.lexsort(keys[::-1]).astype(np.int32)))


def _merge_ordered(tables: list[pa.Table], keys: list[list[Int64s]], piece: int) -> pa.Table:
    """Tables that are each in order, as one in order."""
    joined = pa.concat_tables(tables)
    order = np.lexsort([np.concatenate(parts) for parts in zip(*keys, strict=True)][::-1])
    pieces = [joined.take(pa.array(order[begin : begin + piece])) for begin in range(0, len(order), piece)]
    return pa.concat_tables(pieces)


def _sort_keys(group: MatchChunk, plan: QueryPlan) -> list[Int64s]:
    return [completion_times(group, plan), group.starts, *_event_times(group, plan)]


def _event_times(chunk: MatchChunk, plan: QueryPlan) -> list[Int64s]:
    """The start of each variable's event, to settle ties the same way for every order of input."""
    absent = np.full(chunk.rows.length, -1, np.int64)
    return [
        chunk.space.value(start_of(name), chunk.rows) if name in chunk.rows.places else absent
        for name in positive_names(plan.query.pattern)
    ]


def check_limit(count: int, limit: int | None, chunk: MatchChunk, plan: QueryPlan) -> None:
    """Stops a runaway query with the key it ran away on."""
    if limit is None or count <= limit:
        return
    query = plan.query
    windowed = plan.normal_form.windows.ticks is not None or plan.normal_form.windows.events is not None
    tame = "a shorter WITHIN" if windowed else "a WITHIN"
    keyed = "" if query.partition_by else ", PARTITION BY"
    most = counted(limit, "match", "matches")
    raise LimitError(
        "too-many-matches",
        f"pattern `{query.name or 'unnamed'}` has more than {most}{_busiest_key(chunk, plan)}",
        f"{tame}{keyed} or a narrower condition would tame it; `limit=` raises the limit, "
        "`ensue.detect_batches` gives any number of matches in bounded memory",
    )


def _busiest_key(chunk: MatchChunk, plan: QueryPlan) -> str:
    if not plan.query.partition_by:
        return ""
    keys: Codes = chunk.space.keys(chunk.rows)
    busiest = int(np.bincount(keys).argmax())
    place = int(np.flatnonzero(keys == busiest)[0])
    one = chunk.rows.take(np.array([place], np.int32))
    values = [
        f"{name} = {_key_column(replace(chunk, rows=one), name, plan.catalog)[0].as_py()!r}"
        for name in plan.query.partition_by
    ]
    return f", most of them now for {', '.join(values)}"
