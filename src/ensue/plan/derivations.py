"""Plans declared streams: each statement after those that it uses, with only the columns that are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ensue.analysis.catalog import Catalog, StreamSchema
from ensue.analysis.declarations import (
    END,
    FIRST,
    HIDDEN,
    LAST,
    START,
    columns_of,
    components,
    declarations,
    in_order,
    used_streams,
)
from ensue.analysis.scopes import bound_events, list_groups, positive_names
from ensue.errors import Problem, QueryError, Source, Span
from ensue.expr.types import common_type, describe, element_type, incomparable_type, own_type, readable_type
from ensue.graph.law import Law
from ensue.lower.phases import LoweredProgram
from ensue.nodes.expressions import Call, Expr, Field
from ensue.nodes.names import Name, Stream
from ensue.nodes.patterns import Event, PatternQuery, Return, column_name, walk
from ensue.nodes.rules import Ruleset
from ensue.plan.inputs import InputTable, raw_types
from ensue.plan.outputs import OutputSchema, derived_output, has_order, has_ordered_ends
from ensue.plan.planner import lineage_streams, plan_query, query_columns
from ensue.plan.plans import QueryPlan

# --- plans of declared streams


@dataclass(frozen=True, slots=True)
class Way:
    """A statement whose matches are events of a stream.

    `plan` returns the columns that are used, `whole` all columns of the statement. `table` is the table that it looks
    up.
    """

    plan: QueryPlan
    whole: QueryPlan
    output: OutputSchema
    table: pa.Table | None = None

    def items_of(self, streams: Iterable[Stream]) -> int:
        """The number of items of the pattern that are events of these streams."""
        known = set(streams)
        return sum(isinstance(node, Event) and node.stream in known for node in walk(self.plan.query.pattern))


@dataclass(frozen=True, slots=True)
class Derivation:
    """A stream whose events are the matches of one statement or of the rules with this head; events of rules form a
    set.

    `schema` has all columns that distinguish the events of a set; `used` are the columns that are read. `program` has
    the streams and tables that its rules may use.
    """

    name: Stream
    ways: tuple[Way, ...]
    schema: pa.Schema
    used: tuple[Stream, ...]
    is_set: bool = False
    program: Ruleset | None = None

    @property
    def plans(self) -> tuple[QueryPlan, ...]:
        return tuple(way.plan for way in self.ways)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams that it is derived from."""
        return tuple(dict.fromkeys(stream for plan in self.plans for stream in plan.streams))

    @property
    def item(self) -> InputTable:
        """The table of the stream, without rows."""
        table = self.schema.empty_table().select(self.used)
        order = (FIRST, LAST) if FIRST in self.used else ()
        return InputTable(table, START, END, stream=self.name, derived=True, order=order)


def all_plans(derivations: Iterable[Derivation], plans: Iterable[QueryPlan] = ()) -> list[QueryPlan]:
    """The plans of declared streams, then those of results."""
    return [*(plan for derivation in derivations for plan in derivation.plans), *plans]


def groups_of(derivations: Sequence[Derivation]) -> tuple[tuple[Derivation, ...], ...]:
    """Declared streams, each after those that it uses; streams that use each other form one group."""
    if not derivations:
        return ()
    known = {derivation.name: derivation for derivation in derivations}
    uses = {name: [used for used in made.streams if used in known] for name, made in known.items()}
    return tuple(tuple(known[name] for name in group) for group in components(uses))


def is_recursive(group: Sequence[Derivation]) -> bool:
    names = {derivation.name for derivation in group}
    return any(not names.isdisjoint(derivation.streams) for derivation in group)


# --- derivations

OWN = "ensue:"
"""The prefix of columns that Ensue adds."""


@dataclass(frozen=True, slots=True)
class PlannedStream:
    """A declared stream: the plans of its statements, and its columns with their types."""

    name: Stream
    plans: tuple[QueryPlan, ...]
    fields: Mapping[str, pa.DataType]
    recursive: bool = False

    @property
    def is_set(self) -> bool:
        """Whether equal events are one event: for rules, and for streams that depend recursively on rules."""
        return self.recursive or self.plans[0].query.rule is not None

    @property
    def schema(self) -> StreamSchema:
        fields = {name: own_type(readable_type(kind)) for name, kind in self.fields.items()}
        order = (FIRST, LAST) if self.plans and has_order(self.plans[0]) else ()
        if not order:
            return StreamSchema(self.name, fields, START, END, derived=True)
        ends, bound = has_ordered_ends(self.plans[0]), [*bound_events(self.plans[0].query.pattern)]
        # A composite of elements is ordered as they are: they are all of one list.
        first = self.plans[0].catalog.stream(bound[0].stream)
        of = None if first is None or not first.is_element else first.table
        return StreamSchema(
            self.name,
            fields,
            START,
            END,
            derived=True,
            order=order,
            ordered_ends=ends,
            table=of,
            is_element=of is not None,
        )


PlannedGroup = tuple[PlannedStream, ...]
"""A declared stream, or several that use each other."""


def plan_declared(
    statements: LoweredProgram,
    catalog: Catalog,
    laws: Mapping[PatternQuery, Law | None],
    fixed: Mapping[str, pa.Table],
) -> tuple[Catalog, list[PlannedGroup]]:
    """Plans the statements that declare streams, in order, and adds these streams to the catalog.

    `fixed` are the tables that statements look up.
    """
    declared = declarations(statements.statements)
    planned: list[PlannedGroup] = []
    for names in in_order(statements.statements):
        group = {name: declared[name] for name in names}
        guesses: PlannedGroup = ()
        if any(used_streams(query, names) for ways in group.values() for query in ways):
            guesses = tuple(PlannedStream(name, (), _unknown_types(ways), True) for name, ways in group.items())
        streams = _plan_group(group, _with_streams(catalog, guesses), statements.source, laws, fixed)
        # Types of streams that use themselves follow from those types: nothing is known first, then ever more.
        while guesses and [made.fields for made in streams] != [made.fields for made in guesses]:
            guesses = streams
            streams = _plan_group(group, _with_streams(catalog, guesses), statements.source, laws, fixed)
        catalog = _with_streams(catalog, streams)
        planned.append(tuple(replace(made, recursive=bool(guesses)) for made in streams))
        problems = [problem for made in planned[-1] if made.is_set for problem in _incomparable(made)]
        if problems:
            raise QueryError(problems, statements.source)
    return catalog, planned


def _incomparable(made: PlannedStream) -> Iterator[Problem]:
    """Equal events of a set are one event, so their values must be comparable."""
    spans = {column.alias: column.span for column in made.plans[0].query.returns}
    for name, kind in made.fields.items():
        found = incomparable_type(kind)
        if found is not None:
            yield Problem(
                "type-clash",
                f"`{name}` of `{made.name}` has type {kind}, but the attributes of derived events must be comparable",
                spans.get(name) or _place_of(made.plans[0].query),
                label=f"{found} cannot be compared",
                hint="use a comparable value of it, such as one of its entries",
            )


def _unknown_types(ways: Sequence[PatternQuery]) -> dict[str, pa.DataType]:
    return dict.fromkeys(columns_of(ways[0]), pa.null())


def _with_streams(catalog: Catalog, streams: Iterable[PlannedStream]) -> Catalog:
    return replace(catalog, streams={**catalog.streams, **{made.name: made.schema for made in streams}})


def _plan_group(
    group: Mapping[Stream, Sequence[PatternQuery]],
    catalog: Catalog,
    source: Source | None,
    laws: Mapping[PatternQuery, Law | None],
    fixed: Mapping[str, pa.Table],
) -> PlannedGroup:
    planned = []
    for name, ways in group.items():
        plans, fields = [], []
        for query in ways:
            whole = replace(query, returns=_all_columns(query, catalog)) if query.returns_events else query
            _check_columns(whole, source)
            plan = plan_query(whole, catalog, source, laws.get(query))
            plans.append(plan)
            fields.append(_fields_of(plan, fixed))
        planned.append(PlannedStream(name, tuple(plans), _unified(plans, fields)))
    return tuple(planned)


def _fields_of(plan: QueryPlan, fixed: Mapping[str, pa.Table]) -> dict[str, pa.DataType]:
    """The columns of the events of one statement: those of RETURN, and those of the table that it looks up."""
    schema, lookup = derived_output(plan, {}, lineage=False).schema, plan.query.lookup
    fields = {field.name: field.type for field in schema if field.name not in HIDDEN}
    if lookup is None:
        return fields
    table = fixed[lookup.table].schema
    for column, of_table in lookup.on:
        if common_type([fields[column], table.field(of_table).type]) is None:
            kinds = describe(fields[column]), describe(table.field(of_table).type)
            problem = Problem(
                "table-types",
                f"`{column}` has type {kinds[0]}, but column `{of_table}` of table `{lookup.table}` has type"
                f" {kinds[1]}; they are never equal",
                _place_of(plan.query),
                hint="convert one of the columns to the type of the other",
            )
            raise QueryError([problem], plan.source)
    return {**fields, **{name: table.field(column).type for column, name in lookup.columns}}


def _unified(plans: Sequence[QueryPlan], fields: Sequence[Mapping[str, pa.DataType]]) -> dict[str, pa.DataType]:
    """The columns of a stream with types that hold the values of all its statements."""
    together = dict(fields[0])
    for plan, own in zip(plans[1:], fields[1:], strict=True):
        for name, kind in together.items():
            unified = _common(kind, own[name])
            if unified is None:
                raise _different_types(name, plans[0], kind, plan, own[name])
            together[name] = unified
    return together


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    elements = element_type(one), element_type(other)
    if elements[0] is None or elements[1] is None:
        return common_type([one, other])
    element = _common(elements[0], elements[1])
    return None if element is None else pa.list_(element)


def _different_types(
    name: str, first: QueryPlan, kind: pa.DataType, other: QueryPlan, other_kind: pa.DataType
) -> QueryError:
    head, one, two = first.query.name, describe(kind), describe(other_kind)
    hint = "convert one of them: rules with the same head must have the same types"
    problems = [
        Problem(
            "head-types",
            f"`{name}` of `{head}` has type {two} here, but type {one} in an earlier rule",
            _place_of(other.query),
            hint=hint,
        ),
        Problem("head-types", f"`{name}` of `{head}` has type {one} here", _place_of(first.query)),
    ]
    return QueryError(problems, first.source)


def _place_of(query: PatternQuery) -> Span | None:
    return query.span or (query.rule.span if query.rule is not None else None)


def derivations_of(
    planned: Sequence[PlannedGroup],
    results: Sequence[QueryPlan],
    inputs: Sequence[InputTable],
    fixed: Mapping[str, pa.Table],
    program: Ruleset | None = None,
) -> tuple[Derivation, ...]:
    """The streams that the results need, in order, with the columns that are used."""
    kept: list[_NeededStream] = []
    users: list[User] = [(plan, False) for plan in results]
    for group in reversed(planned):
        if any(made.name in user.streams for made in group for user, _ in users):
            needed = _needed_of(group, users)
            kept = [*needed, *kept]
            users += [(plan, made.lineage) for made in needed for plan in made.plans]
    tables = (*inputs, *(made.item for made in kept))
    return tuple(replace(made.derivation(tables, fixed), program=program) for made in kept)


User = tuple[QueryPlan, bool]
"""A plan that uses streams, and whether the lineage of its own matches is required."""


@dataclass(frozen=True, slots=True)
class _NeededStream:
    """A required stream: its plans with the columns they must return, and the columns that are used."""

    stream: PlannedStream
    plans: tuple[QueryPlan, ...]
    lineage: bool
    wanted: frozenset[str] | None

    @property
    def schema(self) -> pa.Schema:
        """The columns that its statements return, with the types of the stream."""
        given = {name for plan in self.plans for name in columns_of(plan.query)}
        hidden = derived_output(self.plans[0], {}, self.lineage)
        own = [(name, kind) for name, kind in self.stream.fields.items() if name in given]
        return pa.schema([*own, *(hidden.schema.field(name) for name in hidden.hidden)])

    @property
    def used(self) -> tuple[str, ...]:
        return tuple(name for name in self.schema.names if self.wanted is None or name in self.wanted or name in HIDDEN)

    @property
    def item(self) -> InputTable:
        return Derivation(self.stream.name, (), self.schema, self.used).item

    def derivation(self, tables: Sequence[InputTable], fixed: Mapping[str, pa.Table]) -> Derivation:
        ways = [
            Way(
                plan,
                whole,
                derived_output(plan, raw_types(plan, tables), self.lineage),
                fixed[plan.query.lookup.table] if plan.query.lookup is not None else None,
            )
            for plan, whole in zip(self.plans, self.stream.plans, strict=True)
        ]
        return Derivation(self.stream.name, tuple(ways), self.schema, self.used, self.stream.is_set)


def _needed_of(group: PlannedGroup, users: Sequence[User]) -> list[_NeededStream]:
    """The required parts of a stream, or of several streams that use each other."""
    asked = _with_lineage(group, users)
    inside: list[User] = []
    if group[0].recursive:
        inside = [(_telling(plan, made.name in asked), False) for made in group for plan in made.plans]
    needed = []
    for made in group:
        own = [user for user, _ in (*users, *inside) if made.name in user.streams]
        wanted, lineage = _wanted_columns(made.name, own), made.name in asked
        # Events of a set are told apart by all their columns, whoever reads them.
        plans = [_telling(p, lineage) if made.is_set else _narrowed(p, wanted, lineage) for p in made.plans]
        needed.append(_NeededStream(made, tuple(plans), lineage, wanted))
    return needed


def _with_lineage(group: PlannedGroup, users: Sequence[User]) -> frozenset[Stream]:
    """The streams of a group whose events must carry their lineage, for other streams or for each other."""
    names = frozenset(made.name for made in group)
    asked = names & frozenset().union(*(lineage_streams(user.query, whole) for user, whole in users))
    while True:
        inside = (lineage_streams(plan.query, made.name in asked) for made in group for plan in made.plans)
        more = asked | (names & frozenset().union(*inside))
        if more == asked:
            return asked
        asked = more


def _telling(plan: QueryPlan, lineage: bool) -> QueryPlan:
    """The plan with all columns of RETURN; with `lineage`, it also reads the columns that identify the events of a
    match."""
    return replace(plan, columns=query_columns(plan.query, plan.catalog, lineage))


def _check_columns(query: PatternQuery, source: Source | None) -> None:
    names = [column_name(column, place) for place, column in enumerate(query.returns)]
    for name, column in zip(names, query.returns, strict=True):
        if name.startswith(OWN):
            problem = Problem(
                "reserved-column",
                f"column `{name}` of stream `{query.name}` is reserved by Ensue",
                column.span,
                hint="rename the column",
            )
            raise QueryError([problem], source)


def _all_columns(query: PatternQuery, catalog: Catalog) -> tuple[Return, ...]:
    """The columns of a declared stream without RETURN: its keys, and every field of every variable."""
    streams = {event.variable: event.stream for event in bound_events(query.pattern)}
    variables = positive_names(query.pattern)
    columns = [(name, _key(name, variables, list_groups(query.pattern))) for name in query.partition_by]
    for variable in variables:
        schema = catalog.stream(streams[variable])
        names = [] if schema is None else [name for name in schema.fields if not schema.hides(name)]
        columns += [(f"{variable}_{name}", Field(variable, name)) for name in names]
    return tuple(_distinct(columns))


def _key(name: str, variables: Sequence[Name], lists: Collection[Name]) -> Expr:
    """A partition column: it is equal in all events of a match, but a variable may be unbound."""
    fields = tuple(
        Call("first", (Field(variable, name),)) if variable in lists else Field(variable, name)
        for variable in variables
    )
    return fields[0] if len(fields) == 1 else Call("coalesce", fields)


def _distinct(columns: Iterable[tuple[str, Expr]]) -> Iterable[Return]:
    """Appends an underscore to a column name that is already in use."""
    seen: set[str] = set()
    for name, expression in columns:
        while name in seen:
            name += "_"
        seen.add(name)
        yield Return(expression, name)


def _wanted_columns(stream: Stream, users: Iterable[QueryPlan]) -> frozenset[str] | None:
    """The columns of a stream that some plan uses; None: all."""
    wanted: frozenset[str] = frozenset()
    for plan in users:
        columns = plan.columns[stream]
        if columns is None:
            return None
        wanted |= columns
    return wanted


def _narrowed(plan: QueryPlan, wanted: frozenset[str] | None, lineage: bool) -> QueryPlan:
    """The plan with the wanted columns of RETURN, and at least one, because a query without RETURN columns returns
    everything."""
    lookup = plan.query.lookup
    looked_up = {column for column, _ in lookup.on} if lookup is not None else set()
    named = [replace(column, alias=column_name(column, place)) for place, column in enumerate(plan.query.returns)]
    chosen = [column for column in named if wanted is None or column.alias in wanted or column.alias in looked_up]
    return _telling(replace(plan, query=replace(plan.query, returns=tuple(chosen or named[:1]))), lineage)
