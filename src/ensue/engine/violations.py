"""Traces that violate a constraint, as a table: each constraint once per trace, with the events that violate it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ensue.engine.events import Request
from ensue.engine.sources import EventSource, Report
from ensue.engine.trace_rows import TraceRows, no_keys
from ensue.engine.traces import BEGAN, no_records, watch
from ensue.graph.bounds import FAR
from ensue.graph.law import Law
from ensue.kernels.compiler import Int64s
from ensue.kernels.traces import NEVER, Checks, TraceTimes, find_violations
from ensue.nodes.constraints import Constraint
from ensue.nodes.names import Stream
from ensue.plan.outputs import ViolationPlan, violation_fields
from ensue.plan.plans import QueryPlan
from ensue.text.render import render_constraint

FIRST, LAST, JUDGED = "first", "last", "judged"


def track(
    plan: QueryPlan,
    tracking: ViolationPlan,
    sources: tuple[EventSource, ...],
    request: Request,
    records: Sequence[pa.Table] | None = None,
    after: int | None = None,
    until: int | None = None,
    report: Report | None = None,
) -> tuple[pa.Table, tuple[pa.Table, ...]]:
    """The violations that the new events reveal, and the records of the traces that continue.

    New events end after `after` and not after `until` (None: all events have come). `records` are those returned by the
    last step: first of the constraints, then of each query whose matches may be missing.
    """
    before = list(records or no_track_records(plan, tracking, sources, request))
    failed: list[pa.Table] = []
    kept: list[pa.Table] = []
    for watcher, known in zip(tracking.watchers, before[1:], strict=True):
        watched = watch(watcher, sources, request, Report(), (), known, after, until)
        if watched.failed_keys is not None and watched.records is not None:
            failed.append(watched.failed_keys())
            kept.append(watched.records)
    rows = TraceRows(plan.streams, sources, request, (before[0], *failed))
    if report is not None:
        report.null_keys += len(rows.keyless)
    seen = _seen(rows, before[0])
    found = find_violations(
        rows.new(after, until),
        rows.keys,
        rows.times,
        rows.codes,
        _checks(tracking, plan.streams),
        seen,
        FAR if until is None else until,
        until is None and not tracking.law.ends and tracking.lifetime is None,
    )
    missing = np.zeros(rows.key_count, bool)
    for keys in rows.known_keys[1:]:
        missing[keys] = True
    table = _table(found, rows, plan, tracking.law, missing)
    return table, (_kept(rows, seen, tracking, until), *kept)


def no_track_records(
    plan: QueryPlan, tracking: ViolationPlan, sources: Sequence[EventSource], request: Request
) -> tuple[pa.Table, ...]:
    """The records before any event."""
    none = np.empty((0, len(plan.streams)), np.int64)
    nothing = TraceTimes(none, none, np.empty(0, bool))
    own = _record_table(no_keys(sources, plan.streams, request), nothing, np.empty(0, np.int64))
    others = [no_records(watcher, sources, request) for watcher in tracking.watchers]
    return (own, *(table for table in others if table is not None))


def _seen(rows: TraceRows, records: pa.Table) -> TraceTimes:
    shape = (rows.key_count, len(rows.streams))
    seen = TraceTimes(np.full(shape, NEVER, np.int64), np.full(shape, NEVER, np.int64), np.zeros(rows.key_count, bool))
    count = records.num_rows
    seen.judged[:count] = records.column(JUDGED).to_numpy()
    for number in range(len(rows.streams)):
        seen.first[:count, number] = records.column(f"{FIRST}_{number}").to_numpy()
        seen.last[:count, number] = records.column(f"{LAST}_{number}").to_numpy()
    return seen


def _kept(rows: TraceRows, seen: TraceTimes, tracking: ViolationPlan, until: int | None) -> pa.Table:
    """The records of all traces except those whose lifetime is over: an ended trace would violate ENDS by
    continuing."""
    present = (seen.first != NEVER).any(axis=1)
    if tracking.lifetime is not None and until is not None:
        began = np.where(seen.first == NEVER, FAR, seen.first).min(axis=1, initial=FAR)
        present &= began > until - tracking.lifetime
    numbers = np.flatnonzero(present)
    return _record_table(rows.key_columns(numbers), seen, numbers)


def _record_table(keys: dict[str, pa.Array], seen: TraceTimes, numbers: Int64s) -> pa.Table:
    streams = range(seen.first.shape[1])
    columns = {**keys, JUDGED: seen.judged[numbers]}
    columns |= {f"{FIRST}_{number}": seen.first[numbers, number] for number in streams}
    columns |= {f"{LAST}_{number}": seen.last[numbers, number] for number in streams}
    return pa.table(columns)


def _checks(tracking: ViolationPlan, streams: tuple[Stream, ...]) -> Checks:
    law = tracking.law
    number_of: dict[Constraint, int] = {constraint: place for place, constraint in enumerate(law.constraints)}
    ends = np.full(len(streams), -1, np.int64)
    for stream, constraint in law.ends.items():
        ends[streams.index(stream)] = number_of[constraint]
    bodies = [[streams.index(stream) for stream in sorted(clause.body)] for clause in law.clauses]
    return Checks(
        prior=np.array(
            [(streams.index(p.earlier), streams.index(p.later), number_of[p]) for p in law.priors], np.int64
        ).reshape(-1, 3),
        offsets=np.cumsum([0, *map(len, bodies)]).astype(np.int64),
        members=np.array([member for body in bodies for member in body], np.int64),
        heads=np.array([-1 if c.head is None else streams.index(c.head) for c in law.clauses], np.int64),
        numbers=np.array([number_of[clause.origin] for clause in law.clauses], np.int64),
        ends=ends,
        lifetime=2 * FAR - 1 if tracking.lifetime is None else tracking.lifetime,
    )


def _table(found: np.ndarray, rows: TraceRows, plan: QueryPlan, law: Law, missing: np.ndarray) -> pa.Table:
    traces, numbers, streams, times, others, other_times = found.T
    texts = pa.array([render_constraint(constraint) for constraint in law.constraints], pa.string())
    names = pa.array(plan.streams, pa.string())
    alone = others < 0
    moments = [pa.array(times), pa.array(other_times, mask=alone)]
    columns = [
        *rows.key_columns(traces).values(),
        texts.take(pa.array(numbers)),
        names.take(pa.array(streams)),
        moments[0].cast(pa.int64()).view(plan.catalog.time_type),
        names.take(pa.array(np.where(alone, 0, others), mask=alone)),
        moments[1].cast(pa.int64()).view(plan.catalog.time_type),
        pa.array(missing[traces]),
    ]
    keys = [column.type for column in columns[: len(plan.query.partition_by)]]
    return pa.table(columns, schema=pa.schema(violation_fields(plan, keys)))


def ends_of_traces(plan: QueryPlan, records: Sequence[pa.Table]) -> Int64s:
    """When the traces of a query end by their lifetime, if that has an effect."""
    if plan.tracking is not None and plan.tracking.lifetime is not None and records:
        first = [records[0].column(f"{FIRST}_{number}").to_numpy() for number in range(len(plan.streams))]
        began = np.where(np.equal(first, NEVER), FAR, first).min(axis=0)
        return np.asarray(began + plan.tracking.lifetime)
    if plan.monitor is not None and plan.monitor.lifetime is not None and records:
        return np.asarray(records[0].column(BEGAN).to_numpy() + plan.monitor.lifetime)
    return np.empty(0, np.int64)
