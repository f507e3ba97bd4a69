"""Code that runs in Python workers: reads the rows of a partition and returns matches as Arrow record batches."""

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
from ensue.engine.rows import MatchChunk
from ensue.engine.sources import Report, one_chunk, read_times
from ensue.engine.stage import Member
from ensue.engine.traces import WatchedEvents
from ensue.errors import citing
from ensue.plan.derivations import Derivation
from ensue.plan.inputs import InputTable
from ensue.plan.outputs import OutputSchema
from ensue.plan.plans import SLICE, Options, QueryPlan
from ensue.plan.program_plans import ProgramPlan

NEXT = "ensue:next"
"""This column is true if the row is a copy for the time slice after the one in which its event ends."""

HORIZON = "ensue:horizon"
"""This column holds the end of the last event in every row, if some query continues until then."""

SOURCE = "ensue:source"
"""The column with the number of the input, if rows of several inputs are in one DataFrame."""

PATTERN = "ensue:pattern"
"""The column with the number of the pattern, if matches of several patterns are in one DataFrame."""

KEPT_PROGRAMS = 8
"""How many compiled programs a worker caches."""

FEW_ROWS = 10_000
"""Matches are sent to Spark in batches of at least this many rows, if there are that many."""

T = TypeVar("T")

Counted = Callable[[Sequence[Report]], None]
"""Receives the counts of each query after the last match."""


_tasks = count(1)


def spare_imports() -> None:
    """Keep imported modules out of the garbage collection that PySpark runs after every task.

    Tasks load modules and kernels when they first need them, so freezing once in the first task is too early. Freezing
    after every task would replace the collection itself; freezing after 2, 4, 8, ... tasks does not.
    """
    number = next(_tasks)
    if number & (number - 1) == 0:
        gc.freeze()


@dataclass(frozen=True, slots=True)
class ShippedValue(Generic[T]):
    """A value sent to workers. Each worker reads and compiles it once, however many tasks carry it."""

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
    """The columns in which rows travel to workers: those of a single input in order, or one struct per input.

    `inputs` hold empty tables with the columns that travel.
    """

    inputs: tuple[InputTable, ...]

    @property
    def is_flat(self) -> bool:
        return len(self.inputs) == 1

    def unpack(self, rows: pa.Table) -> list[pa.Table]:
        """Return the rows of each input in its own schema, followed by the additional columns of each row (NEXT)."""
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
    """The columns in which matches of several patterns travel together: the pattern number, then shared columns.

    Patterns share columns by type, whatever the names, so there are no more columns of a type than in the pattern with
    the most. `places` maps, for each pattern, its columns to columns of `schema`.
    """

    schema: pa.Schema
    places: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, schemas: Sequence[pa.Schema]) -> Carrier:
        """Return the shared columns for matches with these schemas."""
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
        """Convert the matches of one pattern to the shared columns."""
        rows = batch.num_rows
        own: dict[int, pa.Array] = dict(zip(self.places[pattern], batch.columns, strict=True))
        columns = [
            own[place].cast(field.type) if place in own else pa.nulls(rows, field.type)
            for place, field in enumerate(list(self.schema)[1:], start=1)
        ]
        return pa.RecordBatch.from_arrays([pa.array(np.full(rows, pattern, np.int32)), *columns], schema=self.schema)


@dataclass(frozen=True)
class BatchTask:
    """Evaluates the plans over all rows of a partition at once. `width` is that of a time slice, if time is sliced.

    `derivations` are the declared streams that the plans use; time is not sliced then. Matches have the shared columns
    of `carried`, or the columns of the result if there is only one plan.
    """

    layout: Layout
    plans: tuple[QueryPlan, ...]
    outputs: tuple[OutputSchema, ...]
    carried: pa.Schema | Carrier
    width: int | None
    options: Options
    derivations: tuple[Derivation, ...] = ()

    def matches(self, batches: Iterator[pa.RecordBatch], counted: Counted | None = None) -> Iterator[pa.RecordBatch]:
        """Return the matches in the rows of a partition; `counted` gets what was counted for each query."""
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            yield from in_larger_batches(self._matches(pa.Table.from_batches(filled), counted))

    @cached_property
    def machine(self) -> Machine:
        """Return the compiled plans; rows of different time slices are independent."""
        inputs = self.layout.inputs if self.width is None else tuple(map(_sliced, self.layout.inputs))
        further = () if self.width is None else (SLICE,)
        plan = ProgramPlan(inputs, self.plans, self.outputs, self.derivations)
        return compile_plan(plan, replace(self.options, slice_width=self.width), further_keys=further)

    def _matches(self, rows: pa.Table, counted: Counted | None) -> Iterator[pa.RecordBatch]:
        machine, tables = self.machine, self.layout.unpack(rows)
        horizon = rows.column(HORIZON)[0].as_py() if HORIZON in rows.column_names else None
        if self.width is not None:
            tables = [
                _with_slices(replace(item, table=table), self.width, machine.time_type)
                for item, table in zip(self.layout.inputs, tables, strict=True)
            ]
        step = machine.run(machine.read(tables), horizon=horizon, collect=self._batches)
        for place, batches in enumerate(step.outputs):
            step.reports[place].matches = 0
            for batch in batches.to_batches() if isinstance(batches, pa.Table) else batches:
                step.reports[place].matches += batch.num_rows
                yield self._carry(batch, place)
        if counted is not None:
            counted(step.reports)

    def _batches(
        self, member: Member, watched: WatchedEvents, chunks: Iterator[MatchChunk], options: Options
    ) -> Iterator[pa.RecordBatch]:
        with citing(member.plan.source):
            yield from render_in_batches(chunks, member.output, options.limit)

    def _carry(self, batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
        return self.carried.carry(batch, place) if isinstance(self.carried, Carrier) else batch.cast(self.carried)


@dataclass(frozen=True, slots=True)
class BatchWork:
    """The function that Spark calls for each partition."""

    task: ShippedValue[BatchTask]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        return self.task.value.matches(batches)


COUNTS = pa.schema(
    [
        ("query", pa.int32()),
        ("pattern", pa.string()),
        ("one", pa.string()),
        ("other", pa.string()),
        ("forbidden", pa.bool_()),
        ("number", pa.int64()),
    ]
)
"""The number of matches of a query in a partition, or of one of its ties."""


@dataclass(frozen=True, slots=True)
class CountWork:
    """Finds the same matches, but returns only their number and the numbers of ties."""

    task: ShippedValue[BatchTask]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        reports: list[Report] = []
        for _ in self.task.value.matches(batches, reports.extend):
            pass
        rows: list[tuple[Any, ...]] = []
        for query, report in enumerate(reports):
            rows.append((query, None, None, None, None, report.matches))
            rows += [(query, *tie, count) for tie, count in report.ties.items()]
        columns = zip(*rows, strict=True) if rows else [()] * len(COUNTS)
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, COUNTS, strict=True)], schema=COUNTS
        )


def in_larger_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge small batches, because Spark has a fixed cost for each batch."""
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
    """Replace the NEXT column of the rows by the number of their slice."""
    ends, _ = read_times(item, item.end or item.time, time_type)
    again = one_chunk(item.table.column(NEXT)).to_numpy(zero_copy_only=False)
    return item.table.drop_columns(NEXT).append_column(SLICE, pa.array(ends // width + again))


def _sliced(item: InputTable) -> InputTable:
    """Return the schema of a table whose rows have the number of their slice.

    A row that two slices need is in both, each time with its alternatives.
    """
    table = item.table.append_column(SLICE, pa.array([], pa.int64()))
    return replace(item, table=table, alternatives=(*item.alternatives, SLICE) if item.alternatives else ())
