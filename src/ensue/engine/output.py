"""Matches as Arrow tables: the columns of RETURN, or by default the keys, the interval and one struct per variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ensue.algebra.bound import SERIES, positive_names, series_names
from ensue.algebra.catalog import Catalog
from ensue.algebra.check import column_name
from ensue.algebra.lineage import is_lineage, lineage_variable
from ensue.algebra.nodes import Event, PatternQuery, Return, walk
from ensue.algebra.probability import PROBABILITY_OF_MATCH, with_probability_field
from ensue.algebra.streams import END, LINEAGE, START
from ensue.engine.collections import element_values, list_values, with_list_fields
from ensue.engine.events import FOREVER
from ensue.engine.identity import match_ids
from ensue.engine.lineage import IDS, MEMBERS, lineage_ids, lineage_members
from ensue.engine.matches import MatchChunk, completion_times
from ensue.engine.rows import Rows, concatenate
from ensue.engine.violations import violation_fields
from ensue.engine.workspace import Workspace
from ensue.errors import LimitError, Problem, QueryError, counted
from ensue.expr.checked_types import expression_type
from ensue.expr.evaluate import evaluate
from ensue.expr.kinds import NUMBERS, Kind
from ensue.expr.lists import explicit_lists, is_aggregate, list_variables
from ensue.expr.nodes import Expr, Field
from ensue.expr.nodes import walk as walk_expression
from ensue.expr.reductions import gathered
from ensue.expr.rewrite import substitute_fields
from ensue.expr.types import common_type, kind_of, readable_type
from ensue.graph.bounds import end_of, start_of
from ensue.graph.conditions import resolve_interval
from ensue.graph.lists import lists_in, without_lists
from ensue.graph.model import Series
from ensue.graph.timescale import TimeScale
from ensue.kernels.compiled import Codes, Int64s
from ensue.names import Name, Round, Stream
from ensue.plan.model import QueryPlan

OVER_CAPACITY = ("overflowed binary array capacity", "input array too large")
"""How Arrow says that an array cannot hold so much text."""


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The columns of the result. `raw_types` are the types of a stream's columns as they came, for whole events.

    The result may begin with `match_id`. That of a partial match ends with `waiting_for`, the item that did not come.
    Events of a declared stream end with the `hidden` columns.
    """

    plan: QueryPlan
    raw_types: Mapping[Stream, Mapping[str, pa.DataType]]
    schema: pa.Schema
    match_id: bool = False
    waiting_for: str | None = None
    hidden: tuple[str, ...] = ()


def output_schema(
    plan: QueryPlan, raw_types: Mapping[Stream, Mapping[str, pa.DataType]], match_id: bool = False
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


def derived_output(
    plan: QueryPlan, raw_types: Mapping[Stream, Mapping[str, pa.DataType]], lineage: bool
) -> OutputSchema:
    """The columns of the events of a declared stream: those of RETURN, their times and, if asked for, their lineage."""
    time = plan.catalog.time_type
    hidden = {START: time, END: time, **({LINEAGE: MEMBERS} if lineage else {})}
    schema = pa.schema([*_returned_fields(plan), *hidden.items()])
    return OutputSchema(plan, raw_types, schema, hidden=tuple(hidden))


def partial_output(output: OutputSchema, waiting_for: str) -> OutputSchema:
    """The columns of a partial match: those of a match, null where nothing is bound, and what it waited for."""
    fields = _distinct_names([*output.schema, pa.field("waiting_for", pa.string())])
    return replace(output, schema=pa.schema(fields), waiting_for=waiting_for)


def _returned_fields(plan: QueryPlan) -> list[pa.Field]:
    averaged = expected_columns(plan)
    return [
        pa.field(
            column_name(column, place),
            pa.float64() if place in averaged else IDS if is_lineage(column.expression) else value_type(column, plan),
        )
        for place, column in enumerate(plan.query.returns)
    ]


def value_type(column: Return, plan: QueryPlan) -> pa.DataType:
    """The type of a column of RETURN in one world."""
    return expression_type(_spelt_out(column.expression, plan), _types(plan), [])


def expected_columns(plan: QueryPlan) -> tuple[int, ...]:
    """The columns of RETURN that are means over worlds: those with aggregates over uncertain events."""
    if not plan.uncertain:
        return ()
    groups = plan.normal_form.repetitions
    collected = {name for name, group in groups.groups.items() if group not in groups.unrolled}
    return tuple(
        place
        for place, column in enumerate(plan.query.returns)
        if any(
            is_aggregate(part) and list_variables(part, groups.groups) & collected
            for part in walk_expression(column.expression)
        )
        and not pa.types.is_list(_countable(value_type(column, plan), column, plan))
    )


def _countable(kind: pa.DataType, column: Return, plan: QueryPlan) -> pa.DataType:
    """A type of which there is a mean; that of a list is shown as it is, with all that may be in it."""
    if pa.types.is_list(kind) or kind_of(kind) in (*NUMBERS, Kind.BOOLEAN, Kind.NULL):
        return kind
    problem = Problem(
        "uncertain-aggregate",
        f"the list has uncertain events, and there is no mean of {kind_of(kind).word} values over its worlds",
        column.span,
        hint="return a number, such as count(...), or the list itself",
    )
    raise QueryError([problem], plan.source)


def _spelt_out(expression: Expr, plan: QueryPlan) -> Expr:
    return with_probability_field(explicit_lists(expression, plan.normal_form.repetitions.groups, []))


def _types(plan: QueryPlan) -> Callable[[Field], pa.DataType]:
    """The type of each field of the query's variables."""
    streams, series = variable_streams(plan.query), series_names(plan.query.pattern)

    def field_type(field: Field) -> pa.DataType:
        if field == PROBABILITY_OF_MATCH:
            return pa.float64()
        if field.variable in series and field.name == SERIES:
            return pa.list_(plan.catalog.time_type)
        return plan.catalog.field_type(streams.get(field.variable or ""), field.name)

    return field_type


def variable_streams(query: PatternQuery) -> dict[Name, Stream]:
    return {node.variable: node.stream for node in walk(query.pattern) if isinstance(node, Event) and node.variable}


def _default_fields(plan: QueryPlan, raw_types: Mapping[Stream, Mapping[str, pa.DataType]]) -> list[pa.Field]:
    query = plan.query
    streams = variable_streams(query)
    keys = [pa.field(name, _key_type(name, plan, raw_types)) for name in query.partition_by]
    interval = [pa.field(name, plan.catalog.time_type) for name in ("start", "end")]
    lists = plan.normal_form.repetitions.groups
    variables = []
    for name in positive_names(query.pattern):
        event = pa.struct(event_fields(raw_types[streams[name]]))
        variables.append(pa.field(str(name), pa.list_(event) if name in lists else event))
    probability = [pa.field("probability", pa.float64())] if plan.uncertain else []
    return _distinct_names([*keys, *interval, *variables, *probability])


def _key_type(name: str, plan: QueryPlan, raw_types: Mapping[Stream, Mapping[str, pa.DataType]]) -> pa.DataType:
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
    arrays += [_hidden_column(chunk, output, name) for name in output.hidden]
    if output.waiting_for is not None:
        arrays.append(pa.repeat(pa.scalar(output.waiting_for), chunk.rows.length))
    return pa.RecordBatch.from_arrays(
        [_as_type(array, field.type) for array, field in zip(arrays, output.schema, strict=True)], schema=output.schema
    )


def _hidden_column(chunk: MatchChunk, output: OutputSchema, name: Name) -> pa.Array:
    if name == LINEAGE:
        return lineage_members(chunk, _identifying_columns(output))
    times = chunk.starts if name == START else completion_times(chunk, output.plan)
    return pa.array(times).view(output.plan.catalog.time_type)


def _identifying_columns(output: OutputSchema) -> dict[Stream, list[str]]:
    """The columns that tell the events of a stream apart: those that the query uses."""
    return {
        stream: list(output.raw_types[stream] if names is None else names)
        for stream, names in output.plan.columns.items()
    }


def _as_type(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type == wanted else array.cast(wanted)


def _returned_columns(chunk: MatchChunk, output: OutputSchema) -> list[pa.Array]:
    expected = chunk.rows.expected
    return [
        pa.array(expected[place], from_pandas=True)
        if place in expected
        else _lineage(chunk, output, column.expression)
        if is_lineage(column.expression)
        else value_of(column.expression, chunk)
        for place, column in enumerate(output.plan.query.returns)
    ]


def value_of(expression: Expr, chunk: MatchChunk) -> pa.Array:
    """The value of an expression of RETURN in each match."""
    plan, rows = chunk.query_plan, chunk.rows
    bound, type_of, series = chunk.space.column_of(rows), _types(plan), chunk.plan.graph.series
    lowered, lists = with_list_fields(_in_graph(expression, chunk, plan))

    def column(field: Field) -> pa.Array:
        if field == PROBABILITY_OF_MATCH:
            return probability_column(rows)
        if field in lists:
            element = lists[field].element
            return list_values(rows.lists[lists[field].of], element, expression_type(element, type_of, []))
        if field.variable is not None and field.variable in series and field.name == SERIES:
            return _moments(chunk, series[field.variable], plan.catalog.time_type)
        if field.variable in rows.places or field.variable in chunk.space.moments:
            return bound(field)
        return pa.nulls(rows.length, type_of(field))

    return evaluate(lowered, column, rows.length)


def probability_column(rows: Rows) -> pa.Array:
    """How probable the matches are; where nothing is uncertain, they are certain."""
    return pa.array(np.ones(rows.length) if rows.probability is None else rows.probability)


def _lineage(chunk: MatchChunk, output: OutputSchema, expression: Expr) -> pa.Array:
    return lineage_ids(chunk, lineage_variable(expression), _identifying_columns(output))


def _in_graph(expression: Expr, chunk: MatchChunk, plan: QueryPlan) -> Expr:
    """The expression in terms of what the matches of one graph bind."""
    graph, repetitions = chunk.plan.graph, plan.normal_form.repetitions
    bound = frozenset((*graph.names, *graph.intervals))
    listed = repetitions.gathered(_spelt_out(expression, plan), graph.rounds, bound)
    present = without_lists(listed, lists_in(listed) - chunk.rows.lists.keys())
    scale = TimeScale(plan.catalog.unit)
    return substitute_fields(
        present, lambda field: resolve_interval(field, graph.intervals, chunk.space.moments, scale)
    )


def _moments(chunk: MatchChunk, series: Series, time_type: pa.DataType) -> pa.Array:
    """The list of the moments of a PERIODIC*."""
    first, last = (chunk.space.value(point, chunk.rows) for point in (series.first, series.last))
    counts = np.maximum(0, (last - first - 1) // series.ticks)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    numbers = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts) + 1
    moments = np.repeat(first, counts) + numbers * series.ticks
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(moments).view(time_type))


def _default_columns(chunk: MatchChunk, output: OutputSchema) -> list[pa.Array]:
    plan = output.plan
    time_type = plan.catalog.time_type
    streams = variable_streams(plan.query)
    names = positive_names(plan.query.pattern)
    columns = [key_column_of(chunk, name, plan.catalog) for name in plan.query.partition_by]
    columns += [pa.array(values).view(time_type) for values in (chunk.starts, chunk.ends)]
    columns += [_variable_column(chunk, name, output.raw_types[streams[name]], plan) for name in names]
    return [*columns, probability_column(chunk.rows)] if plan.uncertain else columns


def _variable_column(chunk: MatchChunk, name: Name, types: Mapping[str, pa.DataType], plan: QueryPlan) -> pa.Array:
    """The event of a variable, or the list of its events."""
    group = plan.normal_form.repetitions.groups.get(name)
    rounds = chunk.plan.graph.rounds.get(group or "", 0)
    if group is None:
        return _event_struct(chunk.space, chunk.rows, name, types)
    if rounds:
        return gathered(
            [_event_struct(chunk.space, chunk.rows, Round(name, number), types) for number in range(rounds)]
        )
    kind = pa.struct(event_fields(types))
    if group not in chunk.rows.lists:
        return pa.nulls(chunk.rows.length, pa.list_(kind))
    lists = chunk.rows.lists[group]
    events = element_values(lists, lambda part: _event_struct(part.space, part.rows, name, types), kind)
    return pa.ListArray.from_arrays(pa.array(lists.offsets.astype(np.int32)), events)


def key_column_of(chunk: MatchChunk, name: str, catalog: Catalog) -> pa.Array:
    variable, places = next(iter(chunk.rows.places.items()))
    found = chunk.space.candidates[variable]
    if name in found.source.input.table.column_names:
        return found.source.raw_column(name).take(pa.array(found.rows[places]))
    point = end_of(variable) if name == "e" else start_of(variable)
    return pa.array(chunk.space.value(point, chunk.rows)).view(catalog.time_type)


def event_fields(types: Mapping[str, pa.DataType]) -> list[pa.Field]:
    """The fields of an event that is returned as a whole; one of a declared stream has its times as well."""
    shown = {START: "start", END: "end"}
    return _distinct_names([pa.field(shown.get(name, name), kind) for name, kind in types.items()])


def _event_struct(space: Workspace, matches: Rows, name: Name, types: Mapping[str, pa.DataType]) -> pa.Array:
    if name not in matches.places:
        return pa.nulls(matches.length, pa.struct(event_fields(types)))
    found = space.candidates[name]
    rows = pa.array(found.rows[matches.places[name]])
    columns = [_as_type(found.source.raw_column(field).take(rows), kind) for field, kind in types.items()]
    return pa.StructArray.from_arrays(columns, fields=event_fields(types))


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

    What a rule derives comes in no order: it is a set, which is put in order when all rules of the head are together.
    Only the places of events are held until the count is known to be within the limit; then the columns are made,
    `piece` rows at a time.
    """
    found: dict[int, list[MatchChunk]] = {}
    count = 0
    for chunk in _ended(chunks, output) if output.hidden else chunks:
        count += chunk.rows.length
        check_limit(count, limit, chunk, output.plan)
        found.setdefault(id(chunk.space), []).append(chunk)
    groups = [replace(parts[0], rows=concatenate([part.rows for part in parts])) for parts in found.values()]
    if not groups:
        return output.schema.empty_table()
    in_order = output.plan.query.rule is None
    ordered = [_in_order(group, _sort_keys(group, output.plan)) if in_order else group for group in groups]
    tables = [pa.Table.from_batches(list(_render_pieces(group, output, piece))) for group in ordered]
    if len(tables) == 1 or not in_order:
        return pa.concat_tables(tables)
    return _merge_ordered(tables, [_sort_keys(group, output.plan) for group in ordered], piece)


def _ended(chunks: Iterable[MatchChunk], output: OutputSchema) -> Iterator[MatchChunk]:
    """The matches that are events: one that is complete only when no event comes any more has no end."""
    for chunk in chunks:
        known = chunk.where(completion_times(chunk, output.plan) != FOREVER)
        if known.rows.length:
            yield known


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
    distinct: list[Int64s] = []
    for key in keys:
        if not any(np.array_equal(key, earlier) for earlier in distinct):
            distinct.append(key)
    return replace(group, rows=group.rows.take(np.lexsort(distinct[::-1]).astype(np.int32)))


def _merge_ordered(tables: list[pa.Table], keys: list[list[Int64s]], piece: int) -> pa.Table:
    """Tables that are each in order, as one in order."""
    joined = pa.concat_tables(tables)
    order = np.lexsort([np.concatenate(parts) for parts in zip(*keys, strict=True)][::-1])
    pieces = [joined.take(pa.array(order[begin : begin + piece])) for begin in range(0, len(order), piece)]
    return pa.concat_tables(pieces)


def _sort_keys(group: MatchChunk, plan: QueryPlan) -> list[Int64s]:
    ties = _event_ranks(group, plan) if plan.query.declares else _event_times(group, plan)
    return [completion_times(group, plan), group.starts, *ties]


def _event_ranks(chunk: MatchChunk, plan: QueryPlan) -> list[Int64s]:
    """End, start and arrival of each variable's event: the order in which events of a declared stream arrive."""
    keys: list[Int64s] = []
    for name in positive_names(plan.query.pattern):
        if name in chunk.rows.places:
            found, places = chunk.space.candidates[name], chunk.rows.places[name]
            keys += [found.ends[places], found.starts[places], found.rows[places].astype(np.int64)]
        else:
            keys += [np.full(chunk.rows.length, FOREVER, np.int64)] * 3
    return keys


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
        f"{name} = {key_column_of(replace(chunk, rows=one), name, plan.catalog)[0].as_py()!r}"
        for name in plan.query.partition_by
    ]
    return f", most of them now for {', '.join(values)}"
