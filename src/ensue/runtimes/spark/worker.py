"""What runs in Python workers: rows of a partition in, matches out, as Arrow record batches."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from ensue.engine.machine import Machine, compile_plan
from ensue.engine.output import render_in_batches
from ensue.engine.rows import MatchChunk, completion_times
from ensue.engine.sources import one_chunk, read_times
from ensue.engine.stage import Member
from ensue.engine.traces import WatchedEvents
from ensue.errors import citing
from ensue.plan.derivations import Derivation
from ensue.plan.inputs import InputTable
from ensue.plan.outputs import OutputSchema
from ensue.plan.plans import Options, QueryPlan
from ensue.plan.program_plans import ProgramPlan

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

KEPT_PROGRAMS = 8
"""How many programs a worker keeps for its next tasks."""

FEW_ROWS = 10_000
"""Matches go to Spark in batches of at least so many rows, if there are as many."""

T = TypeVar("T")


_tasks = count(1)


def spare_imports() -> None:
    """PySpark collects garbage after every task; without this it would search all that was imported each time.

    Modules and kernels are loaded when a task first needs them, so the first task is too early to do it once for all.
    After every task it would take the place of collecting; after 2, 4, 8, ... tasks it does not.
    """
    number = next(_tasks)
    if number & (number - 1) == 0:
        gc.freeze()


@dataclass(frozen=True, slots=True)
class ShippedValue(Generic[T]):
    """A value on its way to workers. Each of them reads and compiles it once, however many tasks bring it."""

    value: T

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        dumps: Callable[[Any], bytes] = cloudpickle.dumps
        data = dumps(self.value)
        return _received, (blake2b(data, digest_size=16).digest(), data)


_programs: dict[bytes, Any] = {}


def _received(digest: bytes, data: bytes) -> ShippedValue[Any]:
    if digest not in _programs:
        if len(_programs) >= KEPT_PROGRAMS:
            del _programs[next(iter(_programs))]
        _programs[digest] = pickle.loads(data)
    return ShippedValue(_programs[digest])


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
class Carrier:
    """How matches of several patterns travel together: the number of the pattern, then columns that they share.

    Patterns share a column where they have one of its type, whatever its name, so that there are no more columns of a
    type than the pattern with the most has. `places` say, per pattern, in which column of `schema` each of its own is.
    """

    schema: pa.Schema
    places: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, schemas: Sequence[pa.Schema]) -> Carrier:
        """The columns for matches that have these."""
        columns: dict[tuple[pa.DataType, int], int] = {}
        places = []
        for schema in schemas:
            used: dict[pa.DataType, int] = {}
            own = []
            for field in schema:
                nth = used[field.type] = used.get(field.type, -1) + 1
                own.append(columns.setdefault((field.type, nth), len(columns) + 1))
            places.append(tuple(own))
        fields = [pa.field(struct_name(place), kind) for (kind, _), place in columns.items()]
        return cls(pa.schema([pa.field(PATTERN, pa.int32()), *fields]), tuple(places))

    def carry(self, batch: pa.RecordBatch, pattern: int) -> pa.RecordBatch:
        """Matches of a pattern in the columns in which they travel."""
        rows = batch.num_rows
        own: dict[int, pa.Array] = dict(zip(self.places[pattern], batch.columns, strict=True))
        columns = [
            own[place].cast(field.type) if place in own else pa.nulls(rows, field.type)
            for place, field in enumerate(list(self.schema)[1:], start=1)
        ]
        return pa.RecordBatch.from_arrays([pa.array(np.full(rows, pattern, np.int32)), *columns], schema=self.schema)


@dataclass(frozen=True)
class BatchTask:
    """Evaluates the plans over all rows of a partition at once. `width` is that of the slices of time, if there are.

    `derivations` are the declared streams that the plans use; then there are no slices. Matches go out in the columns
    of `carried`; in those of the result for a single plan.
    """

    layout: Layout
    plans: tuple[QueryPlan, ...]
    outputs: tuple[OutputSchema, ...]
    carried: pa.Schema | Carrier
    width: int | None
    options: Options
    derivations: tuple[Derivation, ...] = ()

    def matches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The matches in the rows of a partition."""
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            yield from in_larger_batches(self._matches(pa.Table.from_batches(filled)))

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
        self, member: Member, watched: WatchedEvents, chunks: Iterator[MatchChunk], options: Options
    ) -> Iterator[pa.RecordBatch]:
        own = chunks if self.width is None else _of_own_slice(chunks, member.plan, self.width)
        with citing(member.plan.source):
            yield from render_in_batches(own, member.output, options.limit)

    def _carry(self, batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
        return self.carried.carry(batch, place) if isinstance(self.carried, Carrier) else batch.cast(self.carried)


@dataclass(frozen=True, slots=True)
class BatchWork:
    """What Spark calls for each partition."""

    task: ShippedValue[BatchTask]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        return self.task.value.matches(batches)


def in_larger_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, small batches put together: each costs Spark some time whatever it holds."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= FEW_ROWS:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, rows = [], 0
    if rows:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


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
