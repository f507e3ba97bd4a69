"""SUPPRESS FOR: the first match of a burst is reported, and the next reported one tells how many were suppressed
(docs/semantics.md, section 7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.choice import UsedRows, event_ranks
from ensue.engine.events import FOREVER
from ensue.engine.keys import encode_values
from ensue.engine.order import in_ties
from ensue.engine.output import key_column_of, value_of
from ensue.engine.rows import MatchChunk, completion_times
from ensue.graph.bounds import TimeScale, end_of
from ensue.kernels.bursts import take_first_of_bursts
from ensue.kernels.codes import number_values
from ensue.kernels.compiler import Int64s
from ensue.nodes.patterns import Suppression
from ensue.plan.outputs import OutputSchema, suppression_fields
from ensue.plan.plans import QueryPlan

LAST, COUNT = "last", "count"
"""The columns of the records besides those of the group: when its last reported match completed, in ticks, and how many
were suppressed since."""


def suppress(
    chunks: Iterable[MatchChunk], output: OutputSchema, records: pa.Table | None, until: int | None
) -> tuple[list[MatchChunk], pa.Table]:
    """The reported matches, and the records of the groups after them.

    `records` are those of the steps before. A record without suppressed matches is not needed once the watermark
    `until` has reached the end of its span.
    """
    plan = output.plan
    suppression = plan.query.suppress
    assert suppression is not None
    span = TimeScale(plan.catalog.unit).ticks(suppression.window)
    schema = _record_schema(output)
    known = schema.empty_table() if records is None else records.cast(schema)
    found = list(chunks)
    groups, values = _grouped(found, known, plan, suppression, schema)
    count = int(groups.max()) + 1 if len(groups) else 0
    before, groups = groups[: known.num_rows], groups[known.num_rows :]
    last, counts, reported = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, bool)
    last[before], counts[before] = known.column(LAST).to_numpy(), known.column(COUNT).to_numpy()
    reported[before] = True
    shown = []
    if found:
        times = np.concatenate([completion_times(chunk, plan) for chunk in found])
        order = _order(found, groups, times, plan)
        numbers = np.empty(len(order), np.int64)
        numbers[order] = take_first_of_bursts(groups[order], times[order], span, last, counts, reported)
        pieces = np.split(numbers, np.cumsum([chunk.rows.length for chunk in found])[:-1])
        shown = [_shown(chunk, own) for chunk, own in zip(found, pieces, strict=True) if (own >= 0).any()]
    kept = np.flatnonzero((counts > 0) | (until is None or last > until - span))
    # Groups are numbered as they appear, so each begins where the greatest number so far grows.
    everyone = np.append(before, groups)
    first = np.flatnonzero(everyone > np.append(-1, np.maximum.accumulate(everyone)[:-1])) if count else everyone
    columns = [column.take(pa.array(first[kept])) for column in values]
    return shown, pa.Table.from_arrays([*columns, pa.array(last[kept]), pa.array(counts[kept])], schema=schema)


def _record_schema(output: OutputSchema) -> pa.Schema:
    return pa.schema([*suppression_fields(output), pa.field(LAST, pa.int64()), pa.field(COUNT, pa.int64())])


def _shown(chunk: MatchChunk, numbers: Int64s) -> MatchChunk:
    taken = numbers >= 0
    return chunk.with_rows(replace(chunk.rows.where(taken), suppressed=numbers[taken]))


def _grouped(
    chunks: Sequence[MatchChunk], known: pa.Table, plan: QueryPlan, suppression: Suppression, schema: pa.Schema
) -> tuple[Int64s, list[pa.Array]]:
    """The number of the group of each record and then of each match, by appearance, and the values of the groups."""
    groups, values = np.zeros(known.num_rows + sum(chunk.rows.length for chunk in chunks), np.int64), []
    keys = plan.query.partition_by
    found = [[key_column_of(chunk, name, plan.catalog) for chunk in chunks] for name in keys]
    found += [[value_of(value, chunk) for chunk in chunks] for value in suppression.per]
    for place, parts in enumerate(found):
        kind = schema.field(place).type
        column = pa.concat_arrays([*known.column(place).chunks, *(_plain(part, kind) for part in parts)])
        (codes,), count = encode_values([column])
        numbers, _ = number_values(groups * (count + 1) + codes.astype(np.int64) + 1)
        groups = numbers.astype(np.int64)
        values.append(column)
    return groups, values


def _plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values with one type; NaN is null."""
    values = values if values.type == kind else values.cast(kind)
    return pc.if_else(pc.is_nan(values), None, values) if pa.types.is_floating(kind) else values


def _order(chunks: Sequence[MatchChunk], groups: Int64s, times: Int64s, plan: QueryPlan) -> Int64s:
    """The matches by (group, completion, start), then by their events, their branches of OR and their moments."""
    starts = np.concatenate([chunk.starts for chunk in chunks])
    order = np.lexsort((starts, times, groups))
    tied = in_ties(groups[order], times[order], starts[order])
    if not tied.any():
        return order
    used = UsedRows.of(chunks[0].space.store.sources)
    ranks = event_ranks(chunks, plan, used)
    branches = np.concatenate([np.full(chunk.rows.length, chunk.plan.graph.number) for chunk in chunks])
    moments = _moments(chunks)
    return np.lexsort((*moments.T[::-1], branches, *ranks.T[::-1], starts, times, groups))


def _moments(chunks: Sequence[MatchChunk]) -> Int64s:
    """The moments of each match, as written; FOREVER if it has fewer than others."""
    most = max(len(chunk.plan.graph.moments) for chunk in chunks)
    parts = []
    for chunk in chunks:
        part = np.full((chunk.rows.length, most), FOREVER)
        for place, moment in enumerate(chunk.plan.graph.moments):
            part[:, place] = chunk.space.value(end_of(moment.name), chunk.rows)
        parts.append(part)
    return np.concatenate(parts)
