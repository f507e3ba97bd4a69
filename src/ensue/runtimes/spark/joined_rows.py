"""Rows by keys of different names: shuffled by the fields that the conditions of a query compare.

The query stays as it is, because every task gets all events with the keys of its matches. If a stream has two key
fields, as in `a.receiver = b.sender` over one stream, a row is copied for each of its keys. Each copy has columns that
say which fields have the key of this copy, and a variable binds only copies with the key in its own field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from ensue.analysis.join_keys import FieldOf, JoinKey, join_key
from ensue.nodes.expressions import Field
from ensue.nodes.names import Stream, without_rounds
from ensue.nodes.uncertainty import NO_HIERARCHY
from ensue.plan.derivations import Derivation, all_plans
from ensue.plan.inputs import InputTable
from ensue.plan.plans import AbsencePlan, CollectionPlan, GraphPlan, QueryPlan
from ensue.plan.selections import MEMBER
from ensue.runtimes.spark.frames import FrameInput
from ensue.runtimes.spark.pushdown import column, in_streams

JOINED = "ensue:joined"
"""The column by which rows are shuffled."""

_SORTS = (NumericType, StringType, BooleanType, (DateType, TimestampType, TimestampNTZType))
"""Types whose equal values have equal hashes after `routed_value`."""


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The key fields of each stream in each input; `key` has those of each variable of each plan."""

    key: JoinKey
    fields: tuple[dict[str, tuple[Stream, ...]], ...]

    @property
    def marks(self) -> bool:
        """Whether rows are copied."""
        return self.key.copies_rows

    @property
    def described(self) -> tuple[str, ...]:
        """The key of each stream, for checkpoints."""
        return tuple(sorted(f"{stream}.{name}" for stream, names in self.key.by_stream.items() for name in names))


def joined_rows(inputs: Sequence[FrameInput], plans: Sequence[QueryPlan]) -> JoinedRows | None:
    """Return how to shuffle rows for plans without common PARTITION BY; None if one task needs all events."""
    items = [entry.item for entry in inputs]
    if any(item.all_views or item.alternatives or item.hierarchy != NO_HIERARCHY for item in items):
        return None
    if any(plan.law is not None or plan.monitor is not None or plan.uncertain for plan in plans):
        return None
    found = join_key([plan.query for plan in plans])
    if not isinstance(found, JoinKey):
        return None
    fields = tuple(_fields_in(item, found) for item in items)
    kinds = [
        entry.frame.schema[name].dataType if name in entry.item.table.column_names else None
        for entry, own in zip(inputs, fields, strict=True)
        for name in own
    ]
    return JoinedRows(found, fields) if _are_comparable(kinds) else None


def _fields_in(item: InputTable, key: JoinKey) -> dict[str, tuple[Stream, ...]]:
    """The key fields of the streams of a table, each with its streams."""
    found: dict[str, tuple[Stream, ...]] = {}
    for stream, names in key.by_stream.items():
        for name in names if item.holds(stream) else ():
            found[name] = (*found.get(name, ()), stream)
    return found


def _are_comparable(kinds: Sequence[DataType | None]) -> bool:
    """Whether all columns have types with the same meaning of equality. Decimals are equal only to their own type."""
    if not kinds or (any(isinstance(kind, DecimalType) for kind in kinds) and len(set(kinds)) > 1):
        return False
    return any(all(isinstance(kind, sort) for kind in kinds) for sort in _SORTS)


def with_marks(inputs: Sequence[FrameInput], joined: JoinedRows) -> tuple[FrameInput, ...]:
    """Return the inputs with the columns that say which fields have the key of a copy."""
    if not joined.marks:
        return tuple(inputs)
    found = []
    for entry, fields in zip(inputs, joined.fields, strict=True):
        table = entry.item.table
        for name in fields:
            table = table.append_column(MEMBER + name, pa.array([], pa.bool_()))
        found.append(FrameInput(entry.frame, replace(entry.item, table=table)))
    return tuple(found)


def routes(
    entry: FrameInput, values: dict[str, Column], fields: dict[str, tuple[Stream, ...]], keeps_nulls: bool
) -> dict[str, Column]:
    """Return, for each key field, a hash of its value in the rows of its streams, and null in others.

    Rows with null in the field have null, too, or, with `keeps_nulls`, one hash.
    """
    found = {}
    for name, streams in fields.items():
        conditions = [] if keeps_nulls else [column(name).isNotNull()]
        if entry.item.type is not None:
            conditions.append(in_streams(entry.item, streams))
        hashed = F.xxhash64(values[name])
        found[name] = F.when(reduce(and_, conditions), hashed) if conditions else hashed
    return found


def keyed(frame: DataFrame, hashes: dict[str, Column], marks: bool) -> DataFrame:
    """Return the rows with the column JOINED, and with marks once for each of their keys. Rows without a key can be in
    no match."""
    if not hashes:
        return frame.withColumn(JOINED, F.lit(None).cast("long")).limit(0)
    if not marks:
        rows = frame.withColumn(JOINED, F.coalesce(*hashes.values()))
        return rows.filter(column(JOINED).isNotNull())
    every = F.array_distinct(F.array(*hashes.values()))
    rows = frame.withColumn(JOINED, F.explode(every)).filter(column(JOINED).isNotNull())
    for name, own in hashes.items():
        rows = rows.withColumn(MEMBER + name, F.coalesce(own == column(JOINED), F.lit(False)))
    return rows


# --- plans that bind only the copies with the key in the field of a variable


def marked(
    plans: Sequence[QueryPlan], derivations: Sequence[Derivation], joined: JoinedRows
) -> tuple[tuple[QueryPlan, ...], tuple[Derivation, ...]]:
    """Return plans, and declared streams, whose variables bind only copies with the key in their own field."""
    streams = frozenset(joined.key.by_stream)
    every = all_plans(derivations, plans)
    made = iter([_marked(plan, own, streams) for plan, own in zip(every, joined.key.fields, strict=True)])
    changed = tuple(
        replace(derivation, ways=tuple(replace(way, plan=next(made)) for way in derivation.ways))
        for derivation in derivations
    )
    return tuple(made), changed


def _marked(plan: QueryPlan, fields: FieldOf, streams: frozenset[Stream]) -> QueryPlan:
    return replace(plan, graphs=tuple(_marked_graph(graph, fields, streams) for graph in plan.graphs))


def _marked_graph(plan: GraphPlan, fields: FieldOf, streams: frozenset[Stream]) -> GraphPlan:
    variables = []
    for variable in plan.graph.variables:
        if variable.stream in streams:
            mark = Field(variable.name, MEMBER + fields[without_rounds(variable.name)])
            variable = replace(variable, predicates=(*variable.predicates, mark))
        variables.append(variable)
    absences = tuple(_marked_absence(own, fields, streams) for own in plan.absences)
    collections = tuple(_marked_collection(own, fields, streams) for own in plan.collections)
    graph = replace(
        plan.graph,
        variables=tuple(variables),
        absences=tuple(own.absence for own in absences),
        collections=tuple(own.collection for own in collections),
    )
    return replace(plan, graph=graph, absences=absences, collections=collections)


def _marked_absence(plan: AbsencePlan, fields: FieldOf, streams: frozenset[Stream]) -> AbsencePlan:
    graph = _marked_graph(plan.graph, fields, streams)
    return replace(plan, graph=graph, absence=replace(plan.absence, graph=graph.graph))


def _marked_collection(plan: CollectionPlan, fields: FieldOf, streams: frozenset[Stream]) -> CollectionPlan:
    graphs = tuple(_marked_graph(graph, fields, streams) for graph in plan.graphs)
    collection = replace(plan.collection, graphs=tuple(graph.graph for graph in graphs))
    return replace(plan, graphs=graphs, collection=collection)
