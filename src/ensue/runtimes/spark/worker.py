"""What runs in Python workers: rows of a partition in, matches out, as Arrow record batches."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa

from ensue.engine.derived import derive, sources_of
from ensue.engine.matches import MatchChunk, completion_times
from ensue.engine.output import render_in_batches
from ensue.engine.past import in_range, matches_in_range
from ensue.engine.session import request_of
from ensue.engine.sources import Report, load_sources, one_chunk, read_times
from ensue.engine.traces import watch
from ensue.engine.violations import track
from ensue.errors import citing
from ensue.plan.declared import Derivation, all_plans, groups_of
from ensue.plan.inputs import InputTable
from ensue.plan.model import Options, QueryPlan
from ensue.plan.outputs import OutputSchema

NEXT = "ensue:next"
"""The column that is true for a row that stands for the slice of time after the one in which its event ends."""

HORIZON = "ensue:horizon"
"""The column that holds, in every row, the end of the last event of all, where some query goes on until then."""

SLICE = "ensue:slice"
"""The number of the slice of time in which a row takes part, which the worker works out."""

SOURCE = "ensue:source"
"""The column that numbers the input of a row, where rows of several inputs travel together."""

PATTERN = "ensue:pattern"
"""The column that numbers the pattern of a match, where matches of several patterns travel together."""


@cache
def spare_imports() -> None:
    """PySpark collects garbage after every task; without this it would search all that was imported each time."""
    gc.freeze()


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of the inputs travel: one input with its columns first, in order; several as one struct column each.

    `inputs` hold empty tables with the columns that travel.
    """

    inputs: tuple[InputTable, ...]

    @property
    def is_flat(self) -> bool:
        return len(self.inputs) == 1

    def unpack(self, rows: pa.Table) -> list[pa.Table]:
        """The rows of each input in its own schema, with what else travels with each row (NEXT) behind it."""
        if self.is_flat:
            schema = self.inputs[0].table.schema
            events = rows.select(range(len(schema))).rename_columns(schema.names)
            return [_as_schema(events, schema, rows)]
        numbers = rows.column(SOURCE).to_numpy()
        tables = []
        for place, item in enumerate(self.inputs):
            own = rows.filter(pa.array(numbers == place))
            events = pa.Table.from_struct_array(own.column(struct_name(place)))
            tables.append(_as_schema(events, item.table.schema, own))
        return tables


def struct_name(place: int) -> str:
    return f"ensue:{place}"


def _as_schema(events: pa.Table, schema: pa.Schema, rows: pa.Table) -> pa.Table:
    table = events.select(schema.names).cast(schema)
    return table.append_column(NEXT, rows.column(NEXT)) if NEXT in rows.column_names else table


@dataclass(frozen=True, slots=True)
class BatchTask:
    """Evaluates the plans over all rows of a partition at once. `width` is that of the slices of time, if there are.

    `derivations` are the declared streams that the plans use; then there are no slices. Matches go out in the columns
    of `carried`: one per column of the result for a single plan; otherwise the number of the pattern and one struct per
    plan.
    """

    layout: Layout
    plans: tuple[QueryPlan, ...]
    outputs: tuple[OutputSchema, ...]
    carried: pa.Schema
    width: int | None
    options: Options
    derivations: tuple[Derivation, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            yield from self._matches(pa.Table.from_batches(filled))

    def _matches(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        tables = self.layout.unpack(rows)
        horizon = rows.column(HORIZON)[0].as_py() if HORIZON in rows.column_names else None
        inputs = [replace(item, table=table) for item, table in zip(self.layout.inputs, tables, strict=True)]
        everything = all_plans(self.derivations, self.plans)
        if any(plan.by_arrival for plan in everything):
            inputs = [replace(item, table=in_settled_order(item.table)) for item in inputs]
        time_type = self.plans[0].catalog.time_type
        if self.width is not None:
            inputs = [_with_slices(item, self.width, time_type) for item in inputs]
        sources, _ = load_sources(inputs, time_type)
        sources = in_range(sources, self.plans, self.derivations, self.options)
        for group in groups_of(self.derivations):
            sources = (*sources, *derive(group, sources, self.options, Report(), horizon).sources)
        for place, (plan, output) in enumerate(zip(self.plans, self.outputs, strict=True)):
            request = request_of(plan)
            if self.width is not None:
                request = replace(request, partition_by=(*request.partition_by, SLICE))
            if plan.tracking is not None:
                table, _ = track(plan, plan.tracking, sources, request)
                for batch in table.cast(output.schema).to_batches():
                    yield self._carry(batch, place)
                continue
            watched = watch(plan, sources_of(plan, sources), request, Report())
            chunks = matches_in_range(plan, watched.store, self.options, watched.completing, horizon)
            if self.width is not None:
                chunks = _of_own_slice(chunks, plan, self.width)
            with citing(plan.source):
                for batch in render_in_batches(chunks, output, self.options.limit):
                    yield self._carry(batch, place)

    def _carry(self, batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
        if len(self.plans) == 1:
            return batch.cast(self.carried)
        columns = [pa.array(np.full(batch.num_rows, place, np.int32))]
        for number, field in enumerate(list(self.carried)[1:]):
            own = batch.cast(pa.schema(list(field.type))).to_struct_array() if number == place else None
            columns.append(own if own is not None else pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.carried)


def _with_slices(item: InputTable, width: int, time_type: pa.DataType) -> InputTable:
    """The table with the number of each row's slice in place of the mark by which it travelled."""
    ends, _ = read_times(item, item.end or item.time, time_type)
    again = one_chunk(item.table.column(NEXT)).to_numpy(zero_copy_only=False)
    slices = pa.array(ends // width + again)
    table = item.table.drop_columns(NEXT).append_column(SLICE, slices)
    # A row that is needed in two slices stands in both of them, each time with its alternatives.
    alternatives = (*item.alternatives, SLICE) if item.alternatives else ()
    return replace(item, table=table, alternatives=alternatives)


def _of_own_slice(chunks: Iterable[MatchChunk], plan: QueryPlan, width: int) -> Iterator[MatchChunk]:
    """Of the matches found in a slice those that complete in it: each match is in exactly one."""
    for chunk in chunks:
        completions = completion_times(chunk, plan)
        own = chunk.where(completions // width == _slices(chunk))
        if own.rows.length:
            yield own


def _slices(chunk: MatchChunk) -> np.ndarray:
    name, places = next(iter(chunk.rows.places.items()))
    found = chunk.space.candidates[name]
    return np.asarray(found.source.raw_column(SLICE).to_numpy())[found.rows[places]]


def in_settled_order(table: pa.Table) -> pa.Table:
    """The rows in an order that does not depend on how they came, so that positions are the same at every attempt."""
    plain = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    return table.sort_by([(name, "ascending") for name in plain])


def union_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns in which matches of several patterns travel together."""
    structs = [pa.field(struct_name(place), pa.struct(list(schema))) for place, schema in enumerate(schemas)]
    return pa.schema([pa.field(PATTERN, pa.int32()), *structs])
