"""The columns of results: those of RETURN, by default keys, interval and variables, and the columns of violations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ensue.analysis.catalog import Catalog, is_lineage
from ensue.analysis.declarations import END, FIRST, LAST, LINEAGE, START
from ensue.analysis.scopes import SERIES, bound_events, operator_of, operator_word, positive_names, series_names
from ensue.errors import Problem, QueryError, Source
from ensue.expr.kinds import NUMBERS, Kind
from ensue.expr.lists import explicit_lists, is_aggregate, list_variables
from ensue.expr.types import common_type, expression_type, kind_of, readable_type
from ensue.graph.graphs import NormalForm, Windows
from ensue.graph.law import Law
from ensue.nodes.expressions import Expr, Field
from ensue.nodes.expressions import walk as walk_expression
from ensue.nodes.names import ContextStage, Name, Stream
from ensue.nodes.patterns import SUPPRESSED, Event, PatternQuery, Return, column_name, walk
from ensue.nodes.uncertainty import PROBABILITY_OF_MATCH, with_probability_field
from ensue.plan.monitors import lifetime_of
from ensue.plan.plans import QueryPlan

ID_COLUMNS = ("id_0", "id_1")
"""The two halves of an event id; see `ensue.engine.identity`."""

MEMBER = pa.struct(
    [pa.field("start", pa.int64()), pa.field("end", pa.int64()), *(pa.field(name, pa.uint64()) for name in ID_COLUMNS)]
)
"""One event in the lineage of a derived event: its id and its times in ticks, which order lineages."""

IDS = pa.list_(pa.string())
MEMBERS = pa.list_(MEMBER)


@dataclass(frozen=True, slots=True)
class EventColumn:
    """The column of a variable that is returned as a whole event: the types of its columns, and its fields."""

    types: Mapping[str, pa.DataType]
    fields: tuple[pa.Field, ...]

    @property
    def kind(self) -> pa.DataType:
        return pa.struct(self.fields)


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The columns of the result. `raw_types` are the original column types of a stream, for whole events.

    The result may begin with `match_id`. A partial match ends with `waiting_for`, the missing item. Events of a
    declared stream end with the `hidden` columns.
    """

    plan: QueryPlan
    raw_types: Mapping[Stream, Mapping[str, pa.DataType]]
    schema: pa.Schema
    match_id: bool = False
    waiting_for: str | None = None
    hidden: tuple[str, ...] = ()
    events: Mapping[Name, EventColumn] = field(default_factory=dict, compare=False, repr=False)
    """For a result without RETURN, the columns of the variables."""


def output_schema(
    plan: QueryPlan, raw_types: Mapping[Stream, Mapping[str, pa.DataType]], match_id: bool = False
) -> OutputSchema:
    query = plan.query
    if plan.tracking is not None:
        keys = [_key_type(name, plan, raw_types) for name in query.partition_by]
        return OutputSchema(plan, raw_types, pa.schema(violation_fields(plan, keys)))
    events: dict[Name, EventColumn] = {}
    if query.returns:
        fields = _returned_fields(plan)
    else:
        streams = {part.variable: part.stream for part in walk(query.pattern) if isinstance(part, Event)}
        for name in positive_names(query.pattern):
            types = raw_types[streams[name]]
            events[name] = EventColumn(types, tuple(event_fields(types)))
        lists = plan.normal_form.repetitions.groups
        kinds = {name: pa.struct(column.fields) for name, column in events.items()}
        fields = [
            *(pa.field(name, _key_type(name, plan, raw_types)) for name in query.partition_by),
            *(pa.field(name, plan.catalog.time_type) for name in ("start", "end")),
            *(pa.field(str(name), pa.list_(kind) if name in lists else kind) for name, kind in kinds.items()),
            *([pa.field("probability", pa.float64())] if plan.uncertain else ()),
        ]
        fields = _distinct_names(fields)
    if query.suppress is not None:
        fields.append(pa.field(SUPPRESSED, pa.int64()))
    if match_id:
        fields = _distinct_names([*fields, pa.field("match_id", pa.string())])
        fields = [fields[-1], *fields[:-1]]
    return OutputSchema(plan, raw_types, pa.schema(fields), match_id, events=events)


def suppression_fields(output: OutputSchema) -> list[pa.Field]:
    """The columns by which SUPPRESS groups matches: the keys, and the values of PER."""
    plan = output.plan
    kinds = [_key_type(name, plan, output.raw_types) for name in plan.query.partition_by]
    per = () if plan.query.suppress is None else plan.query.suppress.per
    kinds += [value_type(Return(value), plan) for value in per]
    return [pa.field(f"group_{place}", kind) for place, kind in enumerate(kinds)]


def derived_output(
    plan: QueryPlan, raw_types: Mapping[Stream, Mapping[str, pa.DataType]], lineage: bool
) -> OutputSchema:
    """The columns of the events of a declared stream: those of RETURN, their times and, if required, their lineage; for
    an operator of a context also their order."""
    time = plan.catalog.time_type
    hidden = {START: time, END: time, **({LINEAGE: MEMBERS} if lineage else {})}
    if has_order(plan):
        hidden |= dict.fromkeys((FIRST, LAST), plan.catalog.order_type)
    schema = pa.schema([*_returned_fields(plan), *hidden.items()])
    return OutputSchema(plan, raw_types, schema, hidden=tuple(hidden))


def has_order(plan: QueryPlan) -> bool:
    """Whether the events of a declared stream have an order at their time: those of an operator of a context."""
    bound = bound_events(plan.query.pattern)
    return isinstance(plan.query.name, ContextStage) and any(plan.catalog.orders((event.stream,)) for event in bound)


def has_ordered_ends(plan: QueryPlan) -> bool | None:
    """Whether all events of an operator of a context have an order at their end; None: some have one."""
    pattern = operator_of(plan.query.pattern)
    word = operator_word(pattern)
    if word == "NOTFOLLOWS":
        return False
    events = [*bound_events(pattern)]
    if word not in ("AND", "OR", "SIMULTANEOUS", "CONCURRENT"):
        events = events[-1:]
    found = {plan.catalog.has_ordered_ends(event.stream) for event in events}
    return found.pop() if len(found) == 1 else None


def partial_output(output: OutputSchema, waiting_for: str) -> OutputSchema:
    """The columns of a partial match: those of a match, null for unbound variables, and the item that it waited for."""
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
    return expression_type(spelt_out(column.expression, plan), types_of(plan), [])


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
    """Checks that a mean of this type is defined; a list is returned with all its possible elements."""
    if pa.types.is_list(kind) or kind_of(kind) in (*NUMBERS, Kind.BOOLEAN, Kind.NULL):
        return kind
    problem = Problem(
        "uncertain-aggregate",
        f"an aggregate of uncertain events must be numeric or boolean, but is {kind_of(kind).word}",
        column.span,
        hint="return a number, such as count(...), or the list itself",
    )
    raise QueryError([problem], plan.source)


def spelt_out(expression: Expr, plan: QueryPlan) -> Expr:
    return with_probability_field(explicit_lists(expression, plan.normal_form.repetitions.groups, []))


def types_of(plan: QueryPlan) -> Callable[[Field], pa.DataType]:
    """The type of each field of the query's variables."""
    series = series_names(plan.query.pattern)
    streams = {part.variable: part.stream for part in walk(plan.query.pattern) if isinstance(part, Event)}

    def field_type(field: Field) -> pa.DataType:
        if field == PROBABILITY_OF_MATCH:
            return pa.float64()
        if field.variable in series and field.name == SERIES:
            return pa.list_(plan.catalog.time_type)
        return plan.catalog.field_type(streams.get(field.variable) if field.variable else None, field.name)

    return field_type


def _key_type(name: str, plan: QueryPlan, raw_types: Mapping[Stream, Mapping[str, pa.DataType]]) -> pa.DataType:
    """The original type of a key if it is equal in all streams, otherwise a common type."""
    kinds = [types.get(name, plan.catalog.time_type) for types in raw_types.values()]
    if len(set(kinds)) == 1:
        return kinds[0]
    return common_type([readable_type(kind) for kind in kinds]) or kinds[0]


def _distinct_names(fields: list[pa.Field]) -> list[pa.Field]:
    """Appends an underscore to a variable that is named like a key or like `start`."""
    seen: set[str] = set()
    result = []
    for column in fields:
        name = column.name
        while name in seen:
            name += "_"
        seen.add(name)
        result.append(column.with_name(name))
    return result


def event_fields(types: Mapping[str, pa.DataType]) -> list[pa.Field]:
    """The fields of an event that is returned as a whole; an event of a declared stream also has its times."""
    shown = {START: "start", END: "end"}
    return _distinct_names([pa.field(shown.get(name, name), kind) for name, kind in types.items()])


# --- violations of constraints

VIOLATION_COLUMNS = ("constraint", "event", "at", "other", "other_at", "matches_missing")
"""The columns of the violations table besides the keys."""


@dataclass(frozen=True, slots=True)
class ViolationPlan:
    """The constraints to check; `watchers` are plans that may miss matches in traces that they dropped."""

    law: Law
    lifetime: int | None
    watchers: tuple[QueryPlan, ...]


def tracking_plan(
    law: Law, keys: tuple[str, ...], catalog: Catalog, source: Source | None, plans: Sequence[QueryPlan]
) -> QueryPlan:
    """A plan for the violations of constraints, along with plans for patterns over the same traces."""
    watchers = tuple(plan for plan in plans if plan.monitor is not None and set(plan.query.partition_by) == set(keys))
    columns: dict[Stream, frozenset[str] | None] = {stream: frozenset() for stream in law.streams}
    for plan in watchers:
        for stream in plan.all_streams:
            known, more = columns.get(stream, frozenset()), _condition_columns(plan, stream)
            columns[stream] = frozenset({*(known or ()), *more})
    query = PatternQuery(Event(law.streams[0]), "violations", partition_by=keys)
    return QueryPlan(
        query=query,
        source=source,
        catalog=catalog,
        normal_form=NormalForm((), Windows(), (), query.pattern),
        graphs=(),
        retention={},
        columns=columns,
        counting=False,
        law=law,
        tracking=ViolationPlan(law, lifetime_of(law, catalog), watchers),
    )


def _condition_columns(plan: QueryPlan, stream: Stream) -> set[str]:
    """The columns of a stream that the conditions of a query use."""
    schema = plan.catalog.stream(stream)
    known = set(schema.fields) if schema is not None else set()
    return {
        part.name
        for graph_plan in plan.graphs
        for inner in graph_plan.with_inner()
        for variable in inner.graph.variables
        if variable.stream == stream
        for predicate in variable.predicates
        for part in walk_expression(predicate)
        if isinstance(part, Field) and part.name in known
    }


def violation_fields(plan: QueryPlan, keys: Sequence[pa.DataType]) -> list[pa.Field]:
    """The columns of the violations table; `keys` are the types of the partition columns."""
    text, time = pa.string(), plan.catalog.time_type
    kinds = (*keys, text, text, time, text, time, pa.bool_())
    names = (*plan.query.partition_by, *VIOLATION_COLUMNS)
    return [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
