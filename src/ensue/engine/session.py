"""Incremental evaluation: batches and watermarks in, completed matches out, a table of kept events between."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ensue.engine.evaluate import Frontier, evaluate
from ensue.engine.events import Candidates, EventStore, Request, load_events
from ensue.engine.forget import rows_to_keep
from ensue.engine.output import OutputSchema, collect_ordered, output_schema
from ensue.engine.sources import EventSource, InputTable, Mask, Report, load_sources
from ensue.errors import citing
from ensue.kernels.compiled import Int64s
from ensue.plan.model import Options, QueryPlan

POSITION = "ensue:position"
"""The column of the state that holds the position of an event in its partition, -1 while it is not settled."""


def request_of(plan: QueryPlan) -> Request:
    return Request(plan.streams, plan.query.partition_by, plan.catalog.time_type, plan.counting)


def raw_types(plan: QueryPlan, inputs: Sequence[InputTable]) -> dict[str, dict[str, pa.DataType]]:
    """The columns of each stream of the query."""
    types: dict[str, dict[str, pa.DataType]] = {}
    for stream in plan.streams:
        holder = next(item for item in inputs if item.stream in (None, stream))
        types[stream] = {item.name: item.type for item in plain_schema(holder.table.schema)}
    return types


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries as their values and every column nullable: what is kept and what is returned."""
    return pa.schema(
        pa.field(item.name, item.type.value_type if pa.types.is_dictionary(item.type) else item.type) for item in schema
    )


@dataclass(slots=True)
class Session:
    """A query in progress. `state` holds, per table, the events still worth keeping; `watermark` how far time has come.

    `inputs` are empty tables with the columns that are kept; tables come with these columns and types.
    """

    plan: QueryPlan
    inputs: tuple[InputTable, ...]
    options: Options
    output: OutputSchema
    state: list[pa.Table]
    watermark: int | None = None
    report: Report = field(default_factory=Report)

    @classmethod
    def start(cls, plan: QueryPlan, inputs: Sequence[InputTable], options: Options) -> Session:
        """A session over tables of this shape; their rows are not read yet."""
        shapes = tuple(
            replace(item, table=plain_schema(needed_columns(plan, item).schema).empty_table()) for item in inputs
        )
        state = [_with_positions(shape.table, plan.counting) for shape in shapes]
        return cls(plan, shapes, options, output_schema(plan, raw_types(plan, inputs)), state)

    def advance(self, fresh: Sequence[pa.Table], until: int | None) -> tuple[pa.Table, list[Mask]]:
        """Takes rows (one table per input) and moves the watermark to `until` (None: the end of time).

        Gives the matches that completed, in order, and per input which rows came too late.
        """
        late, combined, report = self._admit(fresh)
        inputs = [replace(shape, table=table) for shape, table in zip(self.inputs, combined, strict=True)]
        sources, _ = load_sources(inputs, self.plan.catalog.time_type)
        pending = [_beyond(source, until) for source in sources]
        ready = tuple(_only_ready(source, waiting) for source, waiting in zip(sources, pending, strict=True))
        known = [_positions(table) for table in combined] if self.plan.counting else []
        store = load_events(ready, request_of(self.plan), Report(), known)
        found: dict[Hashable, Candidates] = {}
        chunks = evaluate(self.plan, store, Frontier(self.watermark, until), self.options, found)
        with citing(self.plan.source):
            matches = collect_ordered(chunks, self.output, self.options.limit, self.options.chunk_rows)
        if until is None:
            self.state = [table.schema.empty_table() for table in self.state]
        else:
            kept = rows_to_keep(self.plan, store, found, pending, until)
            self.state = [self._kept_table(place, combined[place], store, mask) for place, mask in enumerate(kept)]
        self.watermark = until if until is not None else self.watermark
        report.null_keys += store.report.null_keys
        report.matches += matches.num_rows
        self.report.add(report)
        return matches, late

    def _admit(self, fresh: Sequence[pa.Table]) -> tuple[list[Mask], list[pa.Table], Report]:
        """Which rows are late and, per input, the state with the others behind it; what takes no part is counted."""
        tables = [replace(shape, table=table) for shape, table in zip(self.inputs, fresh, strict=True)]
        sources, report = load_sources(tables, self.plan.catalog.time_type)
        late, combined = [], []
        for source, state in zip(sources, self.state, strict=True):
            is_late = self._late_rows(source)
            usable = ~is_late if source.valid is None else source.valid & ~is_late
            late.append(is_late)
            report.late += int(np.count_nonzero(is_late))
            table = source.input.table
            admitted = table if usable.all() else table.filter(pa.array(usable))
            combined.append(pa.concat_tables([state, _with_positions(admitted, self.plan.counting)]))
        return late, combined, report

    def _late_rows(self, source: EventSource) -> Mask:
        late = np.zeros(len(source.ends), bool) if self.watermark is None else source.ends <= self.watermark
        return late if source.valid is None else late & source.valid

    def _kept_table(self, place: int, table: pa.Table, store: EventStore, mask: Mask) -> pa.Table:
        if self.plan.counting:
            settled = pa.array(store.row_positions[place])
            table = table.set_column(table.schema.get_field_index(POSITION), POSITION, settled)
        return table.filter(pa.array(mask)).combine_chunks()


def needed_columns(plan: QueryPlan, item: InputTable) -> pa.Table:
    """The table with the columns that the query uses and nothing else."""
    streams = [item.stream] if item.stream is not None else list(plan.streams)
    wanted: set[str] = {name for name in (item.time, item.end, item.type) if name is not None} | set(
        plan.query.partition_by
    )
    for stream in streams:
        columns = plan.columns.get(stream, frozenset()) if stream is not None else frozenset()
        if columns is None:
            return item.table
        wanted |= columns
    return item.table.select([name for name in item.table.column_names if name in wanted])


def _with_positions(table: pa.Table, counting: bool) -> pa.Table:
    if not counting:
        return table
    return table.append_column(POSITION, pa.array(np.full(table.num_rows, -1, np.int64)))


def _positions(table: pa.Table) -> Int64s:
    return np.asarray(table.column(POSITION).to_numpy())


def _beyond(source: EventSource, until: int | None) -> Mask:
    return np.zeros(len(source.ends), bool) if until is None else source.ends > until


def _only_ready(source: EventSource, pending: Mask) -> EventSource:
    if not pending.any():
        return source
    ready = ~pending if source.valid is None else source.valid & ~pending
    return replace(source, valid=ready)
