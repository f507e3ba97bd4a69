"""The public face over data: detect, run and violations, and the results they give."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.partial import eager_constraint_problems, eager_problems
from ensue.dsl.constraints import ConstraintsLike
from ensue.engine.derived import derive, sources_of
from ensue.engine.events import EventStore, note_streams
from ensue.engine.output import collect_ordered, render_in_batches
from ensue.engine.past import in_range, matches_in_range
from ensue.engine.session import request_of
from ensue.engine.sources import EventSource, Report, latest_end, load_sources
from ensue.engine.traces import Watched, watch
from ensue.engine.violations import track
from ensue.errors import EnsueWarning, LimitError, QueryError, SchemaError, citing, closest, counted
from ensue.kernels.warm import warm_up
from ensue.names import AnyEvent, Stream
from ensue.phases import Lowered, lower
from ensue.plan.declared import all_plans, groups_of
from ensue.plan.inputs import InputTable, with_rows
from ensue.plan.model import DEFAULT_LIMIT, Options, QueryPlan
from ensue.plan.programs import ColumnNames, Columns, Emission, FixedTables, ProgramPlan, plan_queries, plan_violations
from ensue.programs import (
    EMPTY,
    Program,
    QueryLike,
    constraints_alone,
    keyed,
    program_statements,
    single_statement,
    written_statements,
)
from ensue.runtimes.beliefs import with_beliefs
from ensue.runtimes.fixed import fixed_tables
from ensue.runtimes.moments import ALL_TIME, Period
from ensue.runtimes.tables import TableKind, are_frames, arrow_tables

MOST_SHOWN = 8
"""How many values of a type column a warning lists."""


class Results(dict[str, Any]):
    """The result of each pattern by name. `reports` says what each read and set aside, in this process.

    On Spark, patterns with the same keys are found together when the first of them is used, and Spark keeps what was
    found (`shared`) for the others; `release` gives it back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reports: dict[str, Report] = {}
        self.shared: tuple[Any, ...] = ()

    def release(self) -> None:
        """Gives back what Spark keeps for results that are used again; they can still be used, at the full cost."""
        for frame in self.shared:
            frame.unpersist()


def detect(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames,
    type: str | None = None,
    end: ColumnNames | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    limit: int | None = DEFAULT_LIMIT,
    match_id: bool = False,
    emit: str = "complete",
    tick: str | None = None,
    buckets: int | None = None,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    since: Any = None,
    until: Any = None,
) -> Any:
    """The matches of a query, as the kind of table that `events` is: pyarrow, pandas, polars, or a Spark DataFrame.

    `events` is one table whose column `type` names the stream of each row, or one table per stream in a mapping.
    `time` is the column of an event's time (a timestamp or an integer), `end` that of its end, if events last.
    More than `limit` matches are an error (None: no limit; on Spark it holds for each task).
    With `match_id` the result begins with a column of that name, the same for the same match in every run.

    On a stream, matches come when the watermark has reached their completion, or with `emit="eager"`, for patterns
    without NOT, as soon as their last event has come. There `tick` says how long one unit of an integer time is, and
    `buckets` in how many states the keys are kept (unless given, as many as shuffle partitions, at least 8).

    `constraints`, a text or values such as `ensue.prior("A", "B")`, say what holds in every trace, beside those that
    the query itself has: traces that can match no more are skipped.

    `tables` are those of the program's TABLEs, by name, in any of these kinds. They are read when the run begins.

    With `since` and `until`, either of which may be left out, the tables are an archive, of which only a part is read:
    the matches are those that complete after `since` and not after `until`, as a stream would have reported them
    between these two watermarks. They are integers for integer time, otherwise moments as in `Detector.advance`.

    >>> table = pa.table({"t": [1, 2, 4], "type": ["A", "B", "C"], "id": [7, 7, 7]})
    >>> query = "PATTERN SEQ(A a, C c) PARTITION BY id WITHIN 5 RETURN a.id AS id, c.t AS at"
    >>> detect(table, query, time="t", type="type").to_pylist()
    [{'id': 7, 'at': 4}]
    """
    statements, columns = single_statement(query, constraints), Columns(time, type, end, probability, alternatives)
    options, eager = Options(limit=checked_limit(limit)), checked_emit(emit, statements)
    fixed, period = fixed_tables(tables, statements), Period(since, until)
    events = with_beliefs(events, statements, columns)
    if are_frames(events):
        from ensue.runtimes.spark.detection import detect_frames

        emission = Emission(match_id, eager, tick, buckets)
        return detect_frames(events, statements, columns, options, emission, fixed, period).frames[0]
    loaded = with_declared(load_tables(events, statements, columns, match_id, fixed, options, period))
    table, report = _evaluate_one(loaded, 0)
    warn_set_aside(report)
    return loaded.kind.from_arrow(table)


def detect_batches(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames,
    type: str | None = None,
    end: ColumnNames | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    limit: int | None = None,
    match_id: bool = False,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    since: Any = None,
    until: Any = None,
) -> Iterator[pa.RecordBatch]:
    """The matches as Arrow record batches, as they are found, in no particular order: any number in bounded memory."""
    options, period = Options(limit=checked_limit(limit)), Period(since, until)
    statements = single_statement(query, constraints)
    fixed = fixed_tables(tables, statements)
    columns = Columns(time, type, end, probability, alternatives)
    events = with_beliefs(events, statements, columns)
    loaded = with_declared(load_tables(events, statements, columns, match_id, fixed, options, period))
    plan, output = loaded.planned.plans[0], loaded.planned.outputs[0]
    watched = loaded.watched(0)
    loaded.warn_of_missing_streams(plan, watched.store)
    warn_set_aside(watched.store.report)

    def batches() -> Iterator[pa.RecordBatch]:
        with citing(plan.source):
            chunks = matches_in_range(plan, watched.store, loaded.options, watched.completing, loaded.horizon)
            yield from render_in_batches(chunks, output, options.limit)

    return batches()


def run(
    program: Program | QueryLike,
    sources: Any,
    *,
    time: ColumnNames,
    type: str | None = None,
    end: ColumnNames | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    limit: int | None = DEFAULT_LIMIT,
    match_id: bool = False,
    emit: str = "complete",
    tick: str | None = None,
    buckets: int | None = None,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    since: Any = None,
    until: Any = None,
) -> Results:
    """The matches of every pattern of a program, by name, over the same tables, which are read once.

    `tables` are those of the program's TABLEs, by name; for the rest see `detect`.

    >>> table = pa.table({"t": [1, 2, 4], "type": ["A", "B", "C"]})
    >>> found = run("PATTERN p SEQ(A a, B b) WITHIN 5; PATTERN q SEQ(A a, C c) WITHIN 1", table, time="t", type="type")
    >>> {name: matches.num_rows for name, matches in found.items()}
    {'p': 1, 'q': 0}
    """
    statements = program_statements(program, constraints)
    names = Program(statements).names
    columns = Columns(time, type, end, probability, alternatives)
    options, eager = Options(limit=checked_limit(limit)), checked_emit(emit, statements)
    fixed, period = fixed_tables(tables, statements), Period(since, until)
    sources = with_beliefs(sources, statements, columns)
    results = Results()
    if are_frames(sources):
        from ensue.runtimes.spark.detection import detect_frames

        emission = Emission(match_id, eager, tick, buckets)
        matched = detect_frames(sources, statements, columns, options, emission, fixed, period)
        results.update(zip(names, matched.frames, strict=True))
        results.shared = matched.shared
        return results
    loaded = with_declared(load_tables(sources, statements, columns, match_id, fixed, options, period))
    for place, name in enumerate(names):
        table, report = _evaluate_one(loaded, place)
        results[name] = loaded.kind.from_arrow(table)
        results.reports[name] = report
        warn_set_aside(report)
    return results


def violations(
    events: Any,
    program: Program | QueryLike | None = None,
    *,
    time: ColumnNames,
    type: str | None = None,
    constraints: ConstraintsLike | None = None,
    partition_by: str | Sequence[str] = (),
    tick: str | None = None,
    buckets: int | None = None,
) -> Any:
    """The traces that break a constraint of a program, as the kind of table that `events` is: each constraint once.

    A row has the key of the trace, the constraint, the event that breaks it and when, the earlier event that it clashes
    with, if one does, and whether matches of the program's patterns may be missing, because the trace had been dropped.
    What a trace lacks is known when it has ended: by ENDS, or, where nothing ends traces, at the end of the table.
    `partition_by` says what a trace is, for constraints that do not say so themselves and have no pattern beside them.

    >>> table = pa.table({"t": [1, 2, 3], "type": ["Paid", "Order", "Order"], "id": [7, 7, 8]})
    >>> text = "CONSTRAINT PRIOR(Order, Paid) PARTITION BY id"
    >>> violations(table, text, time="t", type="type").to_pylist()[0]["constraint"]
    'PRIOR(Order, Paid)'
    """
    given = Program(EMPTY) if program is None else program
    statements = lower(constraints_alone(keyed(written_statements(given, constraints), partition_by)))
    columns = Columns(time, type)
    if are_frames(events):
        from ensue.runtimes.spark.detection import frame_violations

        return frame_violations(events, statements, columns, Emission(tick=tick, buckets=buckets))
    kind, tables = arrow_tables(events)
    planned = plan_violations(tables, statements, columns)
    plan = planned.plans[0]
    assert plan.tracking is not None
    warm_up()
    inputs = with_rows(planned.inputs, tables)
    sources, report = load_sources(inputs, plan.catalog.time_type)
    for item in inputs:
        if item.type is not None:
            _warn_of_names(item, (), plan.tracking.law.streams, stacklevel=3)
    table, _ = track(plan, plan.tracking, sources, request_of(plan), report=report)
    warn_set_aside(report)
    return kind.from_arrow(table.cast(planned.outputs[0].schema))


def checked_limit(limit: object) -> int | None:
    """A limit is a number of matches, or None."""
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0):
        return limit
    raise LimitError("limit-type", f"`limit` is a number of matches or None, not {limit!r}")


def checked_emit(emit: object, statements: Lowered) -> bool:
    """Whether matches are wanted eagerly, before it is sure that no earlier event is still to come."""
    if emit not in ("complete", "eager"):
        raise SchemaError("emit-word", f"`emit` is 'complete' or 'eager', not {emit!r}")
    if emit == "complete":
        return False
    for node in statements.statements:
        problems = [*eager_problems(node), *eager_constraint_problems(statements.constraints)]
        if problems:
            raise QueryError(problems, statements.source)
    return True


@dataclass(frozen=True, slots=True)
class Loaded:
    """Queries planned over tables whose times are read; in the end also those of the declared streams.

    `inputs` are the tables with all rows, `sources` have those that matter between the ends of `options`; `horizon` is
    the last end of all rows.
    """

    kind: TableKind
    inputs: tuple[InputTable, ...]
    sources: tuple[EventSource, ...]
    report: Report
    planned: ProgramPlan
    options: Options
    horizon: int | None

    def watched(self, place: int) -> Watched:
        plan = self.planned.plans[place]
        report = replace(self.report)
        watched = watch(plan, sources_of(plan, self.sources), request_of(plan), report)
        if self.planned.derivations:
            # A row without a key is one row, however many statements it is missing from.
            report.null_keys = max(self.report.null_keys, report.null_keys - self.report.null_keys)
        return watched

    def warn_of_missing_streams(self, plan: QueryPlan, store: EventStore) -> None:
        """A name that is nearly that of another stream, or a column that holds none of them, is probably a slip."""
        constrained = plan.law.streams if plan.law is not None else ()
        for item in self.inputs:
            streams = tuple(filter(item.holds, plan.streams))
            if item.type is not None and (constrained or not all(len(store.streams[name]) for name in streams)):
                _warn_of_names(item, streams, constrained, stacklevel=5, alone=streams == plan.streams)


def load_tables(
    events: Any,
    statements: Lowered,
    columns: Columns,
    match_id: bool,
    fixed: FixedTables,
    options: Options,
    period: Period = ALL_TIME,
) -> Loaded:
    kind, tables = arrow_tables(events)
    planned = plan_queries(tables, statements, columns, match_id, fixed)
    time_type = planned.plans[0].catalog.time_type
    options = period.within(options, time_type)
    warm_up()
    inputs = with_rows(planned.inputs, tables)
    sources, report = load_sources(inputs, time_type)
    needed = in_range(sources, planned.plans, planned.derivations, options)
    return Loaded(kind, inputs, needed, report, planned, options, latest_end(sources))


def with_declared(loaded: Loaded) -> Loaded:
    """The same with the events of the declared streams that the queries use."""
    report = replace(loaded.report)
    _note_streams(loaded)
    for group in groups_of(loaded.planned.derivations):
        for derivation in group:
            _warn_of_hidden_rows(loaded.sources, derivation.name)
        derived = derive(group, loaded.sources, loaded.options, report, loaded.horizon)
        for plan, store in derived.looked_in:
            loaded.warn_of_missing_streams(plan, store)
        loaded = replace(loaded, sources=(*loaded.sources, *derived.sources), report=report)
    return loaded


def _evaluate_one(loaded: Loaded, place: int) -> tuple[pa.Table, Report]:
    plan, watched, options = loaded.planned.plans[place], loaded.watched(place), loaded.options
    store = watched.store
    loaded.warn_of_missing_streams(plan, store)
    with citing(plan.source):
        chunks = matches_in_range(plan, store, options, watched.completing, loaded.horizon)
        table = collect_ordered(chunks, loaded.planned.outputs[place], options.limit, options.chunk_rows)
    store.report.matches = table.num_rows
    return table, store.report


def _note_streams(loaded: Loaded) -> None:
    """Reads the type column once, where several statements would read it."""
    derived = loaded.planned.derivations
    plans = all_plans(derived, loaded.planned.plans)
    if len(plans) > 1:
        names = [*(stream for plan in plans for stream in plan.streams), *(derivation.name for derivation in derived)]
        for source in loaded.sources:
            note_streams(source, tuple(dict.fromkeys(names)))


def _warn_of_hidden_rows(sources: Sequence[EventSource], declared: Stream) -> None:
    """Rows that are called like a declared stream are none of its events."""
    for source in sources:
        rows = len(source.stream_rows.get(declared, ()))
        if rows:
            said = f"{counted(rows, 'row', 'rows')} of type `{declared}` took no part, because the stream is declared"
            warnings.warn(said, EnsueWarning, stacklevel=4)


def _warn_of_names(
    item: InputTable, streams: tuple[Stream, ...], constrained: tuple[str, ...], stacklevel: int, alone: bool = True
) -> None:
    """Warns of names that are probably slips; `stacklevel` leads to the line of the user.

    Unless they are `alone`, the query has other streams, which the table need not hold.
    """
    counts = pc.value_counts(item.table.column(item.type)).to_pylist()
    by_frequency = sorted(counts, key=lambda entry: -entry["counts"])
    present = [str(entry["values"]) for entry in by_frequency if entry["values"] is not None]
    named = tuple(name for name in streams if not isinstance(name, AnyEvent))
    for name in dict.fromkeys((*named, *constrained)):
        guess = closest(str(name), present, cutoff=0.65) if name not in present else None
        if guess is not None and guess not in (streams if name in streams else constrained):
            message = f"no row of column `{item.type}` is `{name}`; did you mean `{guess}`?"
            warnings.warn(message, EnsueWarning, stacklevel=stacklevel)
    if alone and present and named == streams and not set(present) & {*streams, *constrained}:
        shown = ", ".join(present[:MOST_SHOWN]) + (", ..." if len(present) > MOST_SHOWN else "")
        message = f"column `{item.type}` holds none of the streams of the query; it holds {shown}"
        warnings.warn(message, EnsueWarning, stacklevel=stacklevel)


def warn_set_aside(report: Report, callers: int = 3) -> None:
    """Nothing is lost silently: what took no part is said, at the line `callers` calls up, which is the user's."""
    for reason, rows in report.set_aside.items():
        warnings.warn(f"{counted(rows, 'row', 'rows')} {reason} took no part", EnsueWarning, stacklevel=callers)


__all__ = [
    "Results",
    "detect",
    "detect_batches",
    "run",
    "violations",
]
