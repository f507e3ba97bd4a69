"""What runs in Python workers: rows of a partition in, matches out, as Arrow record batches."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pyarrow as pa

from ensue.engine.machine import Machine, compile_plan
from ensue.engine.output import render_in_batches
from ensue.engine.rows import MatchChunk, completion_times
from ensue.engine.sources import one_chunk, read_times
from ensue.engine.stage import Member
from ensue.engine.traces import Watched
from ensue.errors import citing
from ensue.plan.declared import Derivation
from ensue.plan.inputs import InputTable
from ensue.plan.model import Options, QueryPlan
from ensue.plan.outputs import OutputSchema
from ensue.plan.programs import ProgramPlan

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


@dataclass(frozen=True)
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

    @cached_property
    def machine(self) -> Machine:
        """The compiled plans; rows of different slices of time have nothing to do with each other."""
        inputs = self.layout.inputs if self.width is None else tuple(map(_sliced, self.layout.inputs))
        further = () if self.width is None else (SLICE,)
        plan = ProgramPlan(inputs, self.plans, self.outputs, self.derivations)
        return compile_plan(plan, self.options, further_keys=further)

    def _matches(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        machine, tables = self.machine, self.layout.unpack(rows)
        horizon = rows.column(HORIZON)[0].as_py() if HORIZON in rows.column_names else None
        if any(plan.by_arrival for plan in machine.all_plans):
            tables = [in_settled_order(table) for table in tables]
        if self.width is not None:
            tables = [
                _with_slices(replace(item, table=table), self.width, machine.time_type)
                for item, table in zip(self.layout.inputs, tables, strict=True)
            ]
        step = machine.run(machine.read(tables), horizon=horizon, collect=self._batches)
        for place, batches in enumerate(step.outputs):
            for batch in batches.to_batches() if isinstance(batches, pa.Table) else batches:
                yield self._carry(batch, place)

    def _batches(
        self, member: Member, watched: Watched, chunks: Iterator[MatchChunk], options: Options
    ) -> Iterator[pa.RecordBatch]:
        own = chunks if self.width is None else _of_own_slice(chunks, member.plan, self.width)
        with citing(member.plan.source):
            yield from render_in_batches(own, member.output, options.limit)

    def _carry(self, batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
        if len(self.plans) == 1:
            return batch.cast(self.carried)
        columns = [pa.array(np.full(batch.num_rows, place, np.int32))]
        for number, field in enumerate(list(self.carried)[1:]):
            own = batch.cast(pa.schema(list(field.type))).to_struct_array() if number == place else None
            columns.append(own if own is not None else pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.carried)


def _with_slices(item: InputTable, width: int, time_type: pa.DataType) -> pa.Table:
    """The rows with the number of their slice in place of the mark by which they travelled."""
    ends, _ = read_times(item, item.end or item.time, time_type)
    again = one_chunk(item.table.column(NEXT)).to_numpy(zero_copy_only=False)
    return item.table.drop_columns(NEXT).append_column(SLICE, pa.array(ends // width + again))


def _sliced(item: InputTable) -> InputTable:
    """The shape of a table whose rows have the number of their slice.

    A row that is needed in two slices is in both of them, each time with its alternatives.
    """
    table = item.table.append_column(SLICE, pa.array([], pa.int64()))
    return replace(item, table=table, alternatives=(*item.alternatives, SLICE) if item.alternatives else ())


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
