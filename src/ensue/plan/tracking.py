"""Plans that look for traces that break a constraint, beside those that look for matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ensue.analysis.catalog import Catalog
from ensue.errors import Source
from ensue.graph.graphs import NormalForm, Windows
from ensue.graph.law import Law
from ensue.nodes.expressions import Field, walk
from ensue.nodes.names import Stream
from ensue.nodes.patterns import Event, PatternQuery
from ensue.plan.monitors import lifetime_of
from ensue.plan.plans import QueryPlan

VIOLATION_COLUMNS = ("constraint", "event", "at", "other", "other_at", "matches_missing")
"""The columns of the table of violations besides the keys."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """The constraints that are looked after; matches of `watchers` may be missing for traces that they had dropped."""

    law: Law
    lifetime: int | None
    watchers: tuple[QueryPlan, ...]


def tracking_plan(
    law: Law, keys: tuple[str, ...], catalog: Catalog, source: Source | None, plans: Sequence[QueryPlan]
) -> QueryPlan:
    """A plan for the violations of constraints, beside plans for patterns over the same traces."""
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
        tracking=Tracking(law, lifetime_of(law, catalog), watchers),
    )


def _condition_columns(plan: QueryPlan, stream: Stream) -> set[str]:
    """The columns by which a query judges events of a stream."""
    schema = plan.catalog.stream(stream)
    known = set(schema.fields) if schema is not None else set()
    return {
        part.name
        for graph_plan in plan.graphs
        for inner in graph_plan.with_inner()
        for variable in inner.graph.variables
        if variable.stream == stream
        for predicate in variable.predicates
        for part in walk(predicate)
        if isinstance(part, Field) and part.name in known
    }


def violation_fields(plan: QueryPlan, keys: Sequence[pa.DataType]) -> list[pa.Field]:
    """The columns of the table of violations; `keys` are the types of the partition columns."""
    text, time = pa.string(), plan.catalog.time_type
    kinds = (*keys, text, text, time, text, time, pa.bool_())
    names = (*plan.query.partition_by, *VIOLATION_COLUMNS)
    return [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
