"""Converts matches to Arrow tables: the columns of RETURN, or by default the keys, the interval and one struct per
variable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from ensue.analysis.catalog import Catalog, is_lineage, lineage_variable
from ensue.analysis.declarations import FIRST, LAST, LINEAGE, START
from ensue.analysis.scopes import SERIES, positive_names
from ensue.engine.collections import element_values, list_values, with_list_fields
from ensue.engine.events import FOREVER
from ensue.engine.identity import lineage_ids, lineage_members, match_ids
from ensue.engine.order import lacks_order, order_values
from ensue.engine.rows import MatchChunk, Rows, completion_times, concatenate
from ensue.engine.sources import EventSource
from ensue.engine.workspace import Workspace
from ensue.errors import LimitError, counted
from ensue.expr.evaluation import evaluate
from ensue.expr.reductions import gathered
from ensue.expr.types import expression_type
from ensue.graph.bounds import TimeScale, end_of, start_of
from ensue.graph.conditions import resolve_interval
from ensue.graph.graphs import Series
from ensue.graph.lists import lists_in, without_lists
from ensue.kernels.compiler import Codes, Int64s
from ensue.nodes.expressions import Expr, Field, substitute_fields
from ensue.nodes.names import Name, Round, Stream
from ensue.nodes.uncertainty import PROBABILITY_OF_MATCH
from ensue.plan.outputs import EventColumn, OutputSchema, spelt_out, types_of
from ensue.plan.plans import QueryPlan

FEW_MATCHES = 1000
"""Up to this number, sorting by all keys is faster than by those that differ."""

OVER_CAPACITY = ("overflowed binary array capacity", "input array too large")
"""The errors that Arrow raises if an array cannot hold that much text."""


def render_chunk(chunk: MatchChunk, output: OutputSchema) -> pa.RecordBatch:
    """The result rows of some matches, in the order of the matches."""
    returned = output.plan.query.returns or output.hidden
    arrays = _returned_columns(chunk, output) if returned else _default_columns(chunk, output)
    if output.plan.query.suppress is not None:
        arrays.append(
            pa.nulls(chunk.rows.length, pa.int64())
            if chunk.rows.suppressed is None
            else pa.array(chunk.rows.suppressed)
        )
    if output.match_id:
        arrays.insert(0, match_ids(chunk, chunk.query_plan, _identifying_columns(output)))
    arrays += [_hidden_column(chunk, output, name) for name in output.hidden]
    if output.waiting_for is not None:
        arrays.append(pa.repeat(pa.scalar(output.waiting_for), chunk.rows.length))
    kinds = output.schema.types
    return pa.RecordBatch.from_arrays(
        [array if array.type == kind else array.cast(kind) for array, kind in zip(arrays, kinds, strict=True)],
        schema=output.schema,
    )


def _hidden_column(chunk: MatchChunk, output: OutputSchema, name: Name) -> pa.Array:
    if name == LINEAGE:
        return lineage_members(chunk, _identifying_columns(output))
    if name in (FIRST, LAST):
        return _order_of_edge(chunk, output.plan, name == LAST)
    times = chunk.starts if name == START else completion_times(chunk, output.plan)
    return pa.array(times).view(output.plan.catalog.time_type)


def _order_of_edge(chunk: MatchChunk, plan: QueryPlan, last: bool) -> pa.Array:
    """The order columns of the first or the last event of each match; null if an event at its time has none, or if the
    match ends after its events."""
    rows, order = chunk.rows, chunk.space.store.order
    assert order is not None
    own, every = np.arange(rows.length), plan.catalog.order_type
    matches: list[Int64s] = []
    edges: list[Int64s] = []
    values: list[pa.Array] = []
    for name in rows.places:
        lists = rows.lists.get(name)
        parts = [(chunk.space, rows)] if lists is None else [(part.space, part.rows) for part in lists.parts]
        found = [_edges(space, elements, name, last, every) for space, elements in parts]
        chosen = own if lists is None else lists.order
        matches.append(own if lists is None else np.repeat(own, lists.lengths))
        edges.append(np.concatenate([places for places, _ in found])[chosen])
        values.append(pa.concat_arrays([columns for _, columns in found]).take(pa.array(chosen)))
    numbers, places = np.concatenate(matches), np.concatenate(edges)
    ordered = np.lexsort((places, numbers))
    at = np.searchsorted(numbers[ordered], own, "right") - 1 if last else np.searchsorted(numbers[ordered], own)
    edge = ordered[at]
    missing = places[edge] % 2 == 1
    if last:
        missing |= order.time_of(places[edge] >> 1) < completion_times(chunk, plan)
    return pa.concat_arrays(values).take(pa.array(edge, mask=missing))


def _edges(space: Workspace, rows: Rows, name: Name, last: bool, kind: pa.StructType) -> tuple[Int64s, pa.Array]:
    """Twice the place of the start or end of a variable's event in each row, and its order columns. An event without an
    order has an odd number: as a start before all others at its time, as an end after them."""
    order, found, places = space.store.order, space.candidates[name], rows.places[name]
    source, own = found.source.origin, found.rows[places]
    assert order is not None
    unordered = lacks_order(source, last)[own]
    if last:
        edges = np.where(unordered, 2 * order.at_most(found.ends[places]) + 1, 2 * found.end_places[places])
    else:
        edges = np.where(unordered, 2 * order.at_least(found.starts[places]) - 1, 2 * found.start_places[places])
    if not source.input.order:
        return edges, pa.nulls(rows.length, kind)
    values = order_values(source, last)
    taken = [
        values[part.name].take(pa.array(own)).cast(part.type) if part.name in values else pa.nulls(len(own), part.type)
        for part in kind
    ]
    return edges, pa.StructArray.from_arrays(taken, fields=[*kind])


def _identifying_columns(output: OutputSchema) -> dict[Stream, list[str]]:
    """The columns that identify the events of a stream: those that the query uses."""
    return {
        stream: list(output.raw_types[stream] if names is None else names)
        for stream, names in output.plan.columns.items()
    }


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
    bound, series = chunk.space.column_of(rows), chunk.plan.graph.series
    known, wanted = chunk.space.compiled.returned, (expression, *rows.lists)
    if wanted not in known:
        known[wanted] = with_list_fields(_in_graph(expression, chunk, plan))
    lowered, lists = known[wanted]

    def column(field: Field) -> pa.Array:
        if field == PROBABILITY_OF_MATCH:
            return probability_column(rows)
        if field in lists:
            element = lists[field].element
            return list_values(rows.lists[lists[field].of], element, expression_type(element, types_of(plan), []))
        if field.variable is not None and field.variable in series and field.name == SERIES:
            return _moments(chunk, series[field.variable], plan.catalog.time_type)
        if field.variable in rows.places or field.variable in chunk.space.moments:
            return bound(field)
        return pa.nulls(rows.length, types_of(plan)(field))

    return evaluate(lowered, column, rows.length)


def probability_column(rows: Rows) -> pa.Array:
    """The probabilities of the matches; 1 if nothing is uncertain."""
    return pa.array(np.ones(rows.length) if rows.probability is None else rows.probability)


def _lineage(chunk: MatchChunk, output: OutputSchema, expression: Expr) -> pa.Array:
    return lineage_ids(chunk, lineage_variable(expression), _identifying_columns(output))


def _in_graph(expression: Expr, chunk: MatchChunk, plan: QueryPlan) -> Expr:
    """The expression in terms of the variables of one graph."""
    graph, repetitions = chunk.plan.graph, plan.normal_form.repetitions
    bound = frozenset((*graph.names, *graph.intervals))
    listed = repetitions.gathered(spelt_out(expression, plan), graph.rounds, bound)
    present = without_lists(listed, lists_in(listed) - chunk.rows.lists.keys())
    scale = TimeScale(plan.catalog.unit)
    return substitute_fields(
        present, lambda field: resolve_interval(field, graph.intervals, chunk.space.moments, scale)
    )


def _moments(chunk: MatchChunk, series: Series, time_type: pa.DataType) -> pa.Array:
    """The list of the moments of a PERIODIC*."""
    first, last = (chunk.space.value(point, chunk.rows) for point in (series.first, series.last))
    counts = (last - first) // series.ticks
    offsets = np.concatenate([[0], np.cumsum(counts)])
    numbers = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts) + 1
    moments = np.repeat(first, counts) + numbers * series.ticks
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(moments).view(time_type))


def _default_columns(chunk: MatchChunk, output: OutputSchema) -> list[pa.Array]:
    plan = output.plan
    time_type = plan.catalog.time_type
    events = _bound_events(chunk, output) if chunk.rows.length <= FEW_MATCHES else {}
    columns = [_key_column(chunk, name, output, events) for name in plan.query.partition_by]
    columns += [pa.array(values).view(time_type) for values in (chunk.starts, chunk.ends)]
    columns += [
        events[name] if name in events else _variable_column(chunk, name, event, plan)
        for name, event in output.events.items()
    ]
    return [*columns, probability_column(chunk.rows)] if plan.uncertain else columns


def _bound_events(chunk: MatchChunk, output: OutputSchema) -> dict[Name, pa.Array]:
    """The events of variables with the same columns, read at once: for few matches, each call counts."""
    alike: list[tuple[EventSource, EventColumn, dict[Name, Codes]]] = []
    for name, event in output.events.items():
        if name in chunk.rows.places:
            found = chunk.space.candidates[name]
            like = (rows for source, other, rows in alike if found.source is source and event.types == other.types)
            own = next(like, None)
            if own is None:
                own = {}
                alike.append((found.source, event, own))
            own[name] = found.rows[chunk.rows.places[name]]
    events: dict[Name, pa.Array] = {}
    for source, event, rows in alike:
        structs = _structs(source, np.concatenate([*rows.values()]), event, len(rows))
        events |= dict(zip(rows, structs, strict=True))
    return events


def _key_column(chunk: MatchChunk, name: str, output: OutputSchema, events: dict[Name, pa.Array]) -> pa.Array:
    variable = next(iter(chunk.rows.places))
    if variable in events and name in output.events[variable].types:
        return events[variable].field(list(output.events[variable].types).index(name))
    return key_column_of(chunk, name, output.plan.catalog)


def _variable_column(chunk: MatchChunk, name: Name, event: EventColumn, plan: QueryPlan) -> pa.Array:
    """The event of a variable, or the list of its events."""
    group = plan.normal_form.repetitions.groups.get(name)
    rounds = chunk.plan.graph.rounds.get(group or "", 0)
    if group is None:
        return _event_struct(chunk.space, chunk.rows, name, event)
    if rounds:
        return gathered(
            [_event_struct(chunk.space, chunk.rows, Round(name, number), event) for number in range(rounds)]
        )
    if group not in chunk.rows.lists:
        return pa.nulls(chunk.rows.length, pa.list_(event.kind))
    lists = chunk.rows.lists[group]
    events = element_values(lists, lambda part: _event_struct(part.space, part.rows, name, event), event.kind)
    return pa.ListArray.from_arrays(pa.array(lists.offsets.astype(np.int32)), events)


def key_column_of(chunk: MatchChunk, name: str, catalog: Catalog) -> pa.Array:
    variable, places = next(iter(chunk.rows.places.items()))
    found = chunk.space.candidates[variable]
    if name in found.source.input.table.column_names:
        return found.source.taken([name], found.rows[places])[0]
    point = end_of(variable) if name == "e" else start_of(variable)
    return pa.array(chunk.space.value(point, chunk.rows)).view(catalog.time_type)


def _event_struct(space: Workspace, matches: Rows, name: Name, event: EventColumn) -> pa.Array:
    if name not in matches.places:
        return pa.nulls(matches.length, event.kind)
    found = space.candidates[name]
    return _structs(found.source, found.rows[matches.places[name]], event, 1)[0]


def _structs(source: EventSource, rows: Codes, event: EventColumn, parts: int) -> list[pa.Array]:
    """The events of some rows, as several arrays of the same length. Arrow cannot cast a sliced struct, so its columns
    are sliced."""
    taken = zip(source.taken(event.types, rows), event.types.values(), strict=True)
    columns = [column if column.type == kind else column.cast(kind) for column, kind in taken]
    if parts == 1:
        return [pa.StructArray.from_arrays(columns, fields=event.fields)]
    size = len(rows) // parts
    return [
        pa.StructArray.from_arrays([column.slice(part * size, size) for column in columns], fields=event.fields)
        for part in range(parts)
    ]


def render_in_batches(
    chunks: Iterable[MatchChunk], output: OutputSchema, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """The result as it is found, in no particular order."""
    count = 0
    for chunk in chunks:
        count += chunk.rows.length
        if limit is not None and count > limit:
            raise too_many(limit, chunk, output.plan)
        yield from _render(chunk, output)


def collect_ordered(chunks: Iterable[MatchChunk], output: OutputSchema, limit: int | None, piece: int) -> pa.Table:
    """The whole result, ordered by (completion time, start), then by the times of the events, variable by variable.

    Events of rules have no order here: they form a set, which is sorted when all rules of the head are complete. Only
    the places of events are held until the count is known to be within the limit; then the columns are built, `piece`
    rows at a time.
    """
    found: dict[int, list[MatchChunk]] = {}
    count = 0
    for chunk in _ended(chunks, output) if output.hidden else chunks:
        count += chunk.rows.length
        if limit is not None and count > limit:
            raise too_many(limit, chunk, output.plan)
        found.setdefault(id(chunk.space), []).append(chunk)
    groups = [
        parts[0] if len(parts) == 1 else replace(parts[0], rows=concatenate([part.rows for part in parts]))
        for parts in found.values()
    ]
    if not groups:
        return output.schema.empty_table()
    in_order = output.plan.query.rule is None
    ordered = [_in_order(group, _sort_keys(group, output)) if in_order else group for group in groups]
    tables = [
        pa.Table.from_batches(
            [*(_render if group.rows.length <= piece else partial(_render_pieces, piece=piece))(group, output)]
        )
        for group in ordered
    ]
    if len(tables) == 1 or not in_order:
        return pa.concat_tables(tables)
    return _merge_ordered(tables, [_sort_keys(group, output) for group in ordered], piece)


def _ended(chunks: Iterable[MatchChunk], output: OutputSchema) -> Iterator[MatchChunk]:
    """The matches that are events: a match that completes only at the end of time has no end."""
    for chunk in chunks:
        known = chunk.where(completion_times(chunk, output.plan) != FOREVER)
        if known.rows.length:
            yield known


def _render_pieces(group: MatchChunk, output: OutputSchema, piece: int) -> Iterator[pa.RecordBatch]:
    for begin in range(0, group.rows.length, piece):
        places = np.arange(begin, min(begin + piece, group.rows.length), dtype=np.int32)
        yield from _render(replace(group, rows=group.rows.take(places)), output)


def _render(chunk: MatchChunk, output: OutputSchema) -> Iterator[pa.RecordBatch]:
    """One batch, or several if one Arrow array cannot hold all its text (2 GiB)."""
    try:
        yield render_chunk(chunk, output)
    except pa.ArrowInvalid as error:
        half = chunk.rows.length // 2
        if half == 0 or not any(words in str(error) for words in OVER_CAPACITY):
            raise
        for begin, end in ((0, half), (half, chunk.rows.length)):
            part = chunk.rows.take(np.arange(begin, end, dtype=np.int32))
            yield from _render(replace(chunk, rows=part), output)


def _in_order(group: MatchChunk, keys: list[Int64s]) -> MatchChunk:
    if group.rows.length == 1:
        return group
    distinct: list[Int64s] = keys
    if group.rows.length > FEW_MATCHES:
        distinct = []
        for key in keys:
            if not any(np.array_equal(key, earlier) for earlier in distinct):
                distinct.append(key)
    return group.with_rows(group.rows.take(np.lexsort(distinct[::-1]).astype(np.int32)))


def _merge_ordered(tables: list[pa.Table], keys: list[list[Int64s]], piece: int) -> pa.Table:
    """Merges sorted tables into one sorted table."""
    joined = pa.concat_tables(tables)
    order = np.lexsort([np.concatenate(parts) for parts in zip(*keys, strict=True)][::-1])
    pieces = [joined.take(pa.array(order[begin : begin + piece])) for begin in range(0, len(order), piece)]
    return pa.concat_tables(pieces)


def _sort_keys(group: MatchChunk, output: OutputSchema) -> list[Int64s]:
    """Completion and start, then the start of each variable's event, so that ties are ordered independently of the
    input order; for events of a declared stream also their ends and arrival, which is their order of arrival."""
    plan = output.plan
    keys = [completion_times(group, plan), group.starts]
    if plan.query.declares:
        return [*keys, *_event_ranks(group, plan)]
    for name in output.events or positive_names(plan.query.pattern):
        bound = name in group.rows.places
        keys.append(
            group.space.value(start_of(name), group.rows) if bound else np.full(group.rows.length, -1, np.int64)
        )
    return keys


def _event_ranks(chunk: MatchChunk, plan: QueryPlan) -> list[Int64s]:
    """End, start, content and arrival of each variable's event: the order in which events of a declared stream
    arrive."""
    keys: list[Int64s] = []
    for name in positive_names(plan.query.pattern):
        if name in chunk.rows.places:
            found, places = chunk.space.candidates[name], chunk.rows.places[name]
            ties = chunk.space.ties(found)[places]
            ends = chunk.space.store.ends_in_turn(found)[places]
            keys += [ends, found.start_places[places], ties, found.rows[places].astype(np.int64)]
        else:
            keys += [np.full(chunk.rows.length, FOREVER, np.int64)] * 4
    return keys


def too_many(limit: int, chunk: MatchChunk, plan: QueryPlan) -> LimitError:
    """The error for a query with too many matches, with the key that has the most."""
    query = plan.query
    windowed = plan.normal_form.windows.ticks is not None or plan.normal_form.windows.events is not None
    tame = "use a shorter WITHIN" if windowed else "add WITHIN"
    keyed = "" if query.partition_by else ", PARTITION BY"
    most = counted(limit, "match", "matches")
    return LimitError(
        "too-many-matches",
        f"pattern `{query.name or 'unnamed'}` has more than {most}{_busiest_key(chunk, plan)}",
        f"{tame}{keyed} or a narrower condition; `limits=ensue.Limits(matches=...)` raises the limit, "
        "`ensue.detect_batches` returns any number of matches in bounded memory",
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
    return f", most of them for {', '.join(values)}"
