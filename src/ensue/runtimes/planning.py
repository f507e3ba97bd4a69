"""From tables and queries to plans: what every runtime does first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from ensue.algebra.catalog import inferred_catalog
from ensue.algebra.nodes import Event, PatternQuery, Statements, walk
from ensue.engine.output import OutputSchema, output_schema
from ensue.engine.session import raw_types
from ensue.engine.sources import InputTable
from ensue.plan.build import plan_query
from ensue.plan.lawful import laws_of
from ensue.plan.model import QueryPlan
from ensue.runtimes.local import catalog_of, input_tables

ColumnNames: TypeAlias = "str | Mapping[str, str]"


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns carry time, the name of the stream and the end of an event, as the user names them."""

    time: ColumnNames
    type: str | None = None
    end: ColumnNames | None = None


@dataclass(frozen=True, slots=True)
class Emission:
    """How matches are given out: with an id or without, eagerly or when complete.

    On a stream, `tick` is the unit of integer time and `buckets` the number of states.
    """

    match_id: bool = False
    eager: bool = False
    tick: str | None = None
    buckets: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """Queries planned over tables; one output for each plan."""

    inputs: tuple[InputTable, ...]
    plans: tuple[QueryPlan, ...]
    outputs: tuple[OutputSchema, ...]


def plan_queries(
    tables: Mapping[str, pa.Table] | pa.Table, statements: Statements, columns: Columns, match_id: bool = False
) -> Planned:
    """Checks the tables and plans the queries over them; only the columns of the tables are looked at."""
    nodes, source = statements.statements, statements.source
    streams = (*streams_of(nodes), *(name for entry in statements.constraints for name in entry.constraint.streams))
    inputs = input_tables(tables, tuple(dict.fromkeys(streams)), columns.time, columns.type, columns.end)
    catalog = catalog_of(inputs, inferred_catalog(nodes[0]).time_type)
    laws = laws_of(statements, catalog)
    plans = tuple(plan_query(node, catalog, source, law) for node, law in zip(nodes, laws, strict=True))
    outputs = tuple(output_schema(plan, raw_types(plan, inputs), match_id) for plan in plans)
    return Planned(inputs, plans, outputs)


def streams_of(queries: Iterable[PatternQuery]) -> tuple[str, ...]:
    """The streams that the queries name, in the order of the text."""
    names = [node.stream for query in queries for node in walk(query.pattern) if isinstance(node, Event)]
    return tuple(dict.fromkeys(names))
