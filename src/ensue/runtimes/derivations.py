"""Planning declared streams: each statement after those that it uses, and no column that nobody reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ensue.algebra.bound import bound_events, positive_names
from ensue.algebra.catalog import Catalog, StreamSchema
from ensue.algebra.check import column_name
from ensue.algebra.nodes import PatternQuery, Return, Statements
from ensue.algebra.scopes import list_groups
from ensue.algebra.streams import END, LINEAGE, START, in_order
from ensue.engine.cascade import Derivation
from ensue.engine.output import derived_output
from ensue.engine.session import raw_types
from ensue.engine.sources import InputTable
from ensue.errors import Problem, QueryError, Source
from ensue.expr.nodes import Call, Expr, Field
from ensue.expr.types import readable_type
from ensue.graph.law import Law
from ensue.plan.build import lineage_streams, plan_query, query_columns
from ensue.plan.model import QueryPlan

OWN = "ensue:"
"""What the names of columns begin with that are not the user's."""


def plan_declared(
    statements: Statements, catalog: Catalog, laws: Mapping[PatternQuery, Law | None]
) -> tuple[Catalog, list[QueryPlan]]:
    """Plans for the statements that declare streams, in order, and the catalog with these streams."""
    planned: list[QueryPlan] = []
    for query in in_order(statements.statements):
        assert query.name is not None
        whole = replace(query, returns=query.returns or _all_columns(query, catalog))
        _check_columns(whole, statements.source)
        plan = plan_query(whole, catalog, statements.source, laws.get(query))
        catalog = replace(catalog, streams={**catalog.streams, query.name: _schema_of(query.name, plan)})
        planned.append(plan)
    return catalog, planned


def derivations_of(
    planned: Sequence[QueryPlan], results: Sequence[QueryPlan], inputs: Sequence[InputTable]
) -> tuple[Derivation, ...]:
    """The streams that the results need, in order, with the columns that are used of them."""
    kept: list[tuple[QueryPlan, QueryPlan, bool]] = []
    users: list[tuple[QueryPlan, bool]] = [(plan, False) for plan in results]
    for whole in reversed(planned):
        name = whole.query.name or ""
        own = [(user, lineage) for user, lineage in users if name in user.streams]
        if own:
            lineage = any(name in lineage_streams(user.query, of_all) for user, of_all in own)
            plan = _narrowed(whole, _wanted_columns(name, [user for user, _ in own]), lineage)
            kept.insert(0, (plan, whole, lineage))
            users.append((plan, lineage))
    derivations: list[Derivation] = []
    for plan, whole, lineage in kept:
        tables = (*inputs, *(derivation.item for derivation in derivations))
        derivations.append(Derivation(plan, whole, derived_output(plan, raw_types(plan, tables), lineage)))
    return tuple(derivations)


def _schema_of(name: str, plan: QueryPlan) -> StreamSchema:
    schema = derived_output(plan, {}, lineage=False).schema
    fields = {field.name: readable_type(field.type) for field in schema if field.name not in (START, END, LINEAGE)}
    return StreamSchema(name, fields, START, END, derived=True)


def _check_columns(query: PatternQuery, source: Source | None) -> None:
    names = [column_name(column, place) for place, column in enumerate(query.returns)]
    for name, column in zip(names, query.returns, strict=True):
        if name.startswith(OWN):
            problem = Problem(
                "reserved-column",
                f"column `{name}` of stream `{query.name}` is Ensue's own",
                column.span,
                hint="rename it",
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


def _key(name: str, variables: Sequence[str], lists: Collection[str]) -> Expr:
    """A partition column: all events of a match have the same, but not every variable is always bound."""
    fields = tuple(
        Call("first", (Field(variable, name),)) if variable in lists else Field(variable, name)
        for variable in variables
    )
    return fields[0] if len(fields) == 1 else Call("coalesce", fields)


def _distinct(columns: Iterable[tuple[str, Expr]]) -> Iterable[Return]:
    """A column called like another keeps its name with an underscore behind it."""
    seen: set[str] = set()
    for name, expression in columns:
        while name in seen:
            name += "_"
        seen.add(name)
        yield Return(expression, name)


def _wanted_columns(stream: str, users: Iterable[QueryPlan]) -> frozenset[str] | None:
    """The columns of a stream that some plan uses; None: all."""
    wanted: frozenset[str] = frozenset()
    for plan in users:
        columns = plan.columns[stream]
        if columns is None:
            return None
        wanted |= columns
    return wanted


def _narrowed(plan: QueryPlan, wanted: frozenset[str] | None, lineage: bool) -> QueryPlan:
    """The plan with the columns of RETURN that are wanted, and one at least: a query without any would return all."""
    named = [replace(column, alias=column_name(column, place)) for place, column in enumerate(plan.query.returns)]
    chosen = [column for column in named if wanted is None or column.alias in wanted]
    query = replace(plan.query, returns=tuple(chosen or named[:1]))
    return replace(plan, query=query, columns=query_columns(query, plan.catalog, lineage))
