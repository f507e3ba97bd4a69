"""`detect`, `run`, `violations` and `any_match`, and the results they return."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.arguments import helpful
from ensue.engine.diagrams import MOST_NODES, SAMPLES
from ensue.engine.diagrams import any_match as found_any
from ensue.engine.events import stream_codes
from ensue.engine.machine import Batch, Machine, Step, compile_plan
from ensue.engine.output import key_column_of, render_in_batches
from ensue.engine.rows import MatchChunk
from ensue.engine.sources import EventSource, Report, load_sources, notice_of_ties
from ensue.engine.stage import Collect, Member, ordered
from ensue.engine.traces import WatchedEvents
from ensue.errors import EnsueNotice, LimitError, QueryError, SchemaError, citing, closest, counted, warn
from ensue.graph.bounds import TimeScale
from ensue.kernels.warm_up import compile_missing
from ensue.lower.phases import LoweredProgram, lower
from ensue.nodes.names import AnyEvent, Stream
from ensue.nodes.patterns import Events
from ensue.plan.derivations import all_plans
from ensue.plan.inputs import InputTable, raw_types, with_rows
from ensue.plan.partial import eager_constraint_problems, eager_problems
from ensue.plan.planner import with_lists
from ensue.plan.plans import DEFAULT_LIMITS, NO_LIMITS, Limits, Options, QueryPlan
from ensue.plan.program_plans import (
    ColumnNames,
    Columns,
    Emission,
    FixedTables,
    OrderColumns,
    ProgramPlan,
    plan_queries,
    plan_violations,
    warn_of_unusable,
)
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
from ensue.python.values import WindowLike
from ensue.python.values import window as window_of
from ensue.runtimes.moments import ALL_TIME, Period
from ensue.runtimes.tables import TableKind, are_frames, arrow_tables, described, fixed_tables, shape_in_words, together

if TYPE_CHECKING:
    from ensue.constraints import ConstraintsLike

MOST_SHOWN = 8
"""The maximum number of values of a type column in a warning."""


class Results(Mapping[str, Any]):
    """The result of each pattern by name; an immutable mapping.

    `reports` has the numbers of rows read and ignored for each pattern. On Spark, it has only the numbers of matches
    and of ties, which a job counts when you read it first. Patterns with the same keys run together there when the
    first of them is used. Spark caches the matches (`shared`) for the others until `release`.
    """

    def __init__(
        self, names: Sequence[str] = (), tables: Sequence[Any] = (), together: Callable[[], Any] | None = None
    ) -> None:
        self._reports: Callable[[], Mapping[str, Report]] = dict
        self._ties: Callable[[], Mapping[str, Report]] = dict
        self._known: Mapping[str, Report] | None = None
        self.shared: tuple[Any, ...] = ()
        self._places = {name: place for place, name in enumerate(names)}
        self._tables = tables
        self._together = together

    @property
    def reports(self) -> Mapping[str, Report]:
        """The counts of each pattern."""
        if self._known is None:
            self._known = self._reports()
            warn_set_aside(self._known)
        return self._known

    def __getitem__(self, name: str) -> Any:
        if name not in self._places:
            raise KeyError(f"unknown pattern {name!r}; available: {', '.join(self._places)}")
        return self._tables[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        shapes = "".join(f"\n  {name}: {shape_in_words(table)}" for name, table in self.items())
        return f"Results of {counted(len(self), 'pattern', 'patterns')}{shapes}"

    def _repr_html_(self) -> str:
        """The patterns with their rows and columns, for a notebook."""
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(shape_in_words(table))}</td></tr>" for name, table in self.items()
        )
        return f"<table>{rows}</table>"

    def together(self) -> Any:
        """Return all matches in one table: the column `pattern`, then the columns of all patterns, null if missing.

        On Spark, this computes the matches of many patterns in one action.

        >>> table = pa.table({"t": [1, 2, 4], "type": ["A", "B", "C"]})
        >>> program = "PATTERN p SEQ(A a, B b) RETURN a.t AS t; PATTERN q SEQ(A a, C c) RETURN c.t AS at"
        >>> run(table, program, time="t", type="type").together().to_pylist()
        [{'pattern': 'p', 't': 1, 'at': None}, {'pattern': 'q', 't': None, 'at': 4}]
        """
        return None if self._together is None else self._together()

    def release(self) -> None:
        """Release the matches that Spark caches for these results; using the results again computes them again."""
        for frame in self.shared:
            frame.unpersist()


@helpful
def detect(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    match_id: bool = False,
    emit: str = "complete",
    tick: str | None = None,
    buckets: int | None = None,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    since: Any = None,
    until: Any = None,
) -> Any:
    """Return the matches of a query, as the same kind of table as `events`: pyarrow, pandas, polars or Spark DataFrame.

    `events` is one table whose column `type` has the stream of each row, or a mapping of streams to tables. It may also
    be an `ensue.events(...)`, which knows its columns. `query` is a text, a `pathlib.Path`, or built in Python. `time`
    is the column with the time of each event (a timestamp or an integer), and `end` the column with its end, if events
    have a duration. More matches than `limits` allows are an error; see `ensue.Limits`. With `match_id`, the result has
    a first column `match_id`, which is the same for the same match in every run.

    On a stream, a match is returned when the watermark reaches its completion time. With `emit="eager"`, which requires
    a pattern without NOT, it is returned as soon as its last event arrives. `tick` is the length of one unit of integer
    time. `buckets` is the number of states for the keys; the default is the number of shuffle partitions, at least 8.

    `constraints`, a text or values such as `ensue.constraints.prior("A", "B")`, are facts about every trace, in
    addition to those of the query: traces that can no longer match are skipped.

    `tables` has a table of any kind for each TABLE of the program, by name. They are read when the run starts.

    `since` and `until` select the matches that complete after `since` and at or before `until`, as a stream would have
    reported them between these two watermarks. Both are optional. Only the necessary part of the tables is read. They
    are integers for integer time, otherwise times as in `Detector.advance`.

    >>> table = pa.table({"t": [1, 2, 4], "type": ["A", "B", "C"], "id": [7, 7, 7]})
    >>> query = "PATTERN SEQ(A a, C c) PARTITION BY id WITHIN 5 RETURN a.id AS id, c.t AS at"
    >>> detect(table, query, time="t", type="type").to_pylist()
    [{'id': 7, 'at': 4}]
    """
    statements = single_statement(query, constraints)
    source = described(events, time, type, end, order, probability, alternatives, tick=tick, tables=tables)
    options, eager = Options(limit=match_limit(limits)), emit != "complete" and checked_emit(emit, statements)
    fixed = fixed_tables(source.tables, statements, source.offered, options.limit)
    period = Period(since, until)
    if are_frames(source.table):
        from ensue.runtimes.spark.detection import detect_frames

        emission = Emission(match_id, eager, source.tick, buckets)
        return detect_frames(source.table, statements, source.columns, options, emission, fixed, period).frames[0]
    loaded = load_tables(source.table, statements, source.columns, match_id, fixed, options, period)
    step = loaded.run()
    warn_set_aside({"": step.reports[0]})
    return loaded.kind.from_arrow(step.outputs[0])


@helpful
def detect_batches(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    limits: Limits = NO_LIMITS,
    match_id: bool = False,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    since: Any = None,
    until: Any = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the matches as Arrow record batches as they are found, in no particular order, in bounded memory."""
    options, period = Options(limit=match_limit(limits)), Period(since, until)
    statements = single_statement(query, constraints)
    source = described(events, time, type, end, order, probability, alternatives, tables=tables)
    fixed = fixed_tables(source.tables, statements, source.offered)
    loaded = load_tables(source.table, statements, source.columns, match_id, fixed, options, period)
    step = loaded.run(_in_batches)
    warn_set_aside({"": step.reports[0]})
    batches: Iterator[pa.RecordBatch] = step.outputs[0]
    return batches


def _in_batches(
    member: Member, watched: WatchedEvents, chunks: Iterator[MatchChunk], options: Options
) -> Iterator[pa.RecordBatch]:
    with citing(member.plan.source):
        yield from render_in_batches(chunks, member.output, options.limit)


@helpful
def run(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    match_id: bool = False,
    emit: str = "complete",
    tick: str | None = None,
    buckets: int | None = None,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    since: Any = None,
    until: Any = None,
) -> Results:
    """Return the matches of every pattern of a program, by name. All patterns share the tables, which are read once.

    The arguments are those of `ensue.detect`.

    >>> table = pa.table({"t": [1, 2, 4], "type": ["A", "B", "C"]})
    >>> program = "PATTERN p SEQ(A a, B b) WITHIN 5; PATTERN q SEQ(A a, C c) WITHIN 1"
    >>> found = run(table, program, time="t", type="type")
    >>> {name: matches.num_rows for name, matches in found.items()}
    {'p': 1, 'q': 0}
    """
    statements = program_statements(query, constraints)
    names = Program(statements).names
    source = described(events, time, type, end, order, probability, alternatives, tick=tick, tables=tables)
    options, eager = Options(limit=match_limit(limits)), emit != "complete" and checked_emit(emit, statements)
    fixed = fixed_tables(source.tables, statements, source.offered, options.limit)
    period = Period(since, until)
    if are_frames(source.table):
        from ensue.runtimes.spark.detection import detect_frames

        emission = Emission(match_id, eager, source.tick, buckets)
        matched = detect_frames(source.table, statements, source.columns, options, emission, fixed, period)
        results = Results(names, matched.frames, lambda: matched.together(names))
        results.shared = tuple(group.frame for group in matched.shared)
        results._reports = lambda: {names[place]: report for place, report in matched.reports().items()}
        results._ties = lambda: {names[place]: report for place, report in matched.reports(only_tying=True).items()}
        return results
    loaded = load_tables(source.table, statements, source.columns, match_id, fixed, options, period)
    step = loaded.run()
    from_arrow = loaded.kind.from_arrow
    tables_found = tuple(map(from_arrow, step.outputs))
    results = Results(names, tables_found, lambda: from_arrow(together(names, step.outputs)))
    results._known = dict(zip(names, step.reports, strict=True))
    warn_set_aside(results._known)
    return results


@helpful
def violations(
    events: Any,
    query: QueryLike | None = None,
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    constraints: ConstraintsLike | None = None,
    partition_by: str | Sequence[str] = (),
    tick: str | None = None,
    buckets: int | None = None,
) -> Any:
    """Return the traces that violate a constraint, as the same kind of table as `events`: one row for each constraint.

    A row has the key of the trace, the constraint, the event that violates it and its time, the earlier event that it
    conflicts with, if any, and whether matches of the patterns may be missing because the trace had been dropped. A
    missing event is reported when the trace has ended: by ENDS or, without ENDS, at the end of the table.
    `partition_by` are the columns that identify a trace, for constraints without PARTITION BY in a program without
    patterns.

    >>> table = pa.table({"t": [1, 2, 3], "type": ["Paid", "Order", "Order"], "id": [7, 7, 8]})
    >>> text = "CONSTRAINT PRIOR(Order, Paid) PARTITION BY id"
    >>> violations(table, text, time="t", type="type").to_pylist()[0]["constraint"]
    'PRIOR(Order, Paid)'
    """
    given = Program(EMPTY) if query is None else query
    statements = lower(constraints_alone(keyed(written_statements(given, constraints), partition_by)))
    source = described(events, time, type, tick=tick)
    columns = Columns(source.columns.time, source.columns.type)
    if are_frames(source.table):
        from ensue.runtimes.spark.detection import frame_violations

        return frame_violations(source.table, statements, columns, Emission(tick=source.tick, buckets=buckets))
    kind, tables = arrow_tables(source.table)
    loaded = _loaded(kind, tables, plan_violations(tables, statements, columns), Options())
    tracking = loaded.planned.plans[0].tracking
    assert tracking is not None
    odd = [
        said for item in loaded.inputs if item.type is not None for said in _odd_names(item, (), tracking.law.streams)
    ]
    if odd:
        _warn_of_names(odd)
    step = loaded.run()
    warn_set_aside({"": step.reports[0]})
    return kind.from_arrow(step.outputs[0])


def match_limit(limits: object) -> int | None:
    """Return the maximum number of matches of a pattern; None means no limit."""
    if isinstance(limits, Limits):
        return limits.matches
    raise LimitError(
        "limit-type", f"`limits` must be an `ensue.Limits`, found {limits!r}", "pass `ensue.Limits(matches=...)`"
    )


def checked_emit(emit: object, statements: LoweredProgram) -> bool:
    """Return True if matches are returned eagerly, before the watermark excludes earlier events."""
    if emit == "complete":
        return False
    if emit != "eager":
        raise SchemaError("emit-word", f"`emit` must be 'complete' or 'eager', found {emit!r}")
    for node in statements.statements:
        problems = [*eager_problems(node), *eager_constraint_problems(statements.constraints)]
        if problems:
            raise QueryError(problems, statements.source)
    return True


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """Queries compiled for tables, with the times of their rows.

    After a run, `sources` are the events of the tables and declared streams, and `report` has the counts of rows.
    """

    kind: TableKind
    planned: ProgramPlan
    machine: Machine
    batch: Batch
    sources: tuple[EventSource, ...] = ()
    report: Report = field(default_factory=Report)

    def run(self, collect: Collect = ordered, asked: bool = False) -> Step:
        """Run one step over all rows and warn about stream names that are probably typing errors.

        If the caller explains a result (`asked`), the answer itself mentions them.
        """
        if self.planned.derivations:
            _warn_of_hidden_rows(self.batch.sources, [made.name for made in self.planned.derivations])
        step = self.machine.run(self.batch, collect=collect)
        odd: list[str] = []
        for plan in all_plans(self.planned.derivations, () if asked else self.planned.plans):
            if plan.tracking is None and (plan.law is not None or any(plan is other for other in step.empty)):
                odd += self._missing_streams(plan)
        if odd:
            _warn_of_names(odd)
        return step

    @property
    def inputs(self) -> tuple[InputTable, ...]:
        """The tables with all their rows."""
        return tuple(source.input for source in self.batch.sources)

    def after(self, step: Step) -> LoadedProgram:
        return replace(self, sources=step.events, report=step.report)

    def _missing_streams(self, plan: QueryPlan) -> Iterator[str]:
        """Say if a stream name is almost that of another stream, or if a type column has none of the streams."""
        constrained = plan.law.streams if plan.law is not None else ()
        for item in self.inputs:
            streams = tuple(name for name in plan.streams if item.holds(name) and name not in item.all_views)
            if item.type is not None and (constrained or streams):
                yield from _odd_names(item, streams, constrained, alone=streams == plan.streams)


def load_tables(
    events: Any,
    statements: LoweredProgram,
    columns: Columns,
    match_id: bool,
    fixed: FixedTables,
    options: Options,
    period: Period = ALL_TIME,
    whole: bool = False,
) -> LoadedProgram:
    """Compile queries for tables and read the times of their rows; with `whole`, matches have all their lists."""
    kind, tables = arrow_tables(events)
    planned = plan_queries(tables, statements, columns, match_id, fixed)
    if whole:
        planned = replace(planned, plans=tuple(map(with_lists, planned.plans)))
    elif [item for item in planned.inputs if item.table.schema.metadata]:
        warn_of_unusable(planned)
    if period.since is not None or period.until is not None:
        options = period.within(options, planned.plans[0].catalog.time_type)
    return _loaded(kind, tables, planned, options)


def _loaded(
    kind: TableKind, tables: Mapping[str, pa.Table] | pa.Table, planned: ProgramPlan, options: Options
) -> LoadedProgram:
    machine = compile_plan(planned, options)
    compile_missing(states=planned.states is not None)
    return LoadedProgram(
        kind, planned, machine, Batch(*load_sources(with_rows(planned.inputs, tables), machine.time_type))
    )


def _warn_of_hidden_rows(sources: Sequence[EventSource], declared: Sequence[Stream]) -> None:
    """Warn about rows whose type is a declared stream: they are not events of that stream."""
    named = [name for name in declared if isinstance(name, str)]
    totals = np.zeros(len(named), np.int64)
    for source in sources if named else ():
        if source.input.type is not None:
            codes = stream_codes(source.input, named)
            found = codes if source.valid is None else codes[source.valid]
            totals += np.bincount(found[found >= 0], minlength=len(named))
    hidden = [
        f"{counted(int(rows), 'row', 'rows')} of type `{named[place]}`" for place, rows in enumerate(totals) if rows
    ]
    if hidden:
        what = "this stream" if len(hidden) == 1 else "these streams"
        warn(f"{', '.join(hidden)} ignored: the program declares {what}")


def _warn_of_names(odd: Sequence[str]) -> None:
    warn("\n  ".join(dict.fromkeys(odd)))


def _odd_names(
    item: InputTable, streams: tuple[Stream, ...], constrained: tuple[str, ...], alone: bool = True
) -> Iterator[str]:
    """Name the streams that are probably typing errors.

    Unless they are `alone`, the query has other streams, which other tables may contain.
    """
    counts = pc.value_counts(item.table.column(item.type).cast(pa.string())).to_pylist()
    by_frequency = sorted(counts, key=lambda entry: -entry["counts"])
    present = [str(entry["values"]) for entry in by_frequency if entry["values"] is not None]
    named = tuple(name for name in streams if not isinstance(name, AnyEvent))
    for name in dict.fromkeys((*named, *constrained)):
        guess = closest(str(name), present, cutoff=0.65) if name not in present else None
        if guess is not None and guess not in (streams if name in streams else constrained):
            yield f"column `{item.type}` has no value `{name}`; did you mean `{guess}`?"
    if alone and present and named == streams and not set(present) & {*streams, *constrained}:
        shown = ", ".join(present[:MOST_SHOWN]) + (", ..." if len(present) > MOST_SHOWN else "")
        yield f"column `{item.type}` has none of the streams of the query; found {shown}"


def warn_set_aside(reports: Mapping[str, Report], told: Collection[object] = ()) -> None:
    """Warn about the ignored rows of a run, so that no row is lost silently, and about its ties: one warning for each.

    `reports` are those of its patterns, by name. `told` are the reasons and ties that need no further warning.
    """
    ignored = {name: report.ignored for name, report in reports.items()}
    if any(ignored.values()) and (said := _ignored_in_words(ignored, told)):
        warn(said)
    if any(report.ties for report in reports.values()):
        words = [words for report in reports.values() for words in report.ties_in_words(told)]
        if words:
            warn(notice_of_ties(words), EnsueNotice)


def _ignored_in_words(ignored: Mapping[str, Mapping[str, int]], told: Collection[object]) -> str:
    """List the numbers of ignored rows by reason; with the names of patterns, unless the number is that of all.

    >>> _ignored_in_words({"p": {"no type": 2}, "q": {"no type": 2, "no key": 1}}, ())
    '2 rows ignored: no type; 1 row ignored: no key (pattern `q`)'
    """
    said = []
    for reason in dict.fromkeys(reason for counts in ignored.values() for reason in counts if reason not in told):
        names_by_count: dict[int, list[str]] = {}
        for name, counts in ignored.items():
            names_by_count.setdefault(counts.get(reason, 0), []).append(f"`{name}`")
        for count, names in names_by_count.items():
            whose = f" (pattern{'s' if len(names) > 1 else ''} {', '.join(names)})" if len(names_by_count) > 1 else ""
            said += [f"{counted(count, 'row', 'rows')} ignored: {reason}{whose}"] if count else []
    return "; ".join(said)


def tell_ties(found: Results) -> None:
    """Emit a notice about the ties of results on Spark. It runs a job for the patterns that may have ties.

    Without Spark, `run` has told them.
    """
    warn_set_aside(found._ties())


# --- `ensue.any_match`


@helpful
def any_match(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    window: WindowLike | None = None,
    most_nodes: int = MOST_NODES,
    samples: int = SAMPLES,
    tables: Mapping[str, Any] | None = None,
) -> Any:
    """Return the probability that a query has at least one match: a row for each key that may have one.

    Events that several matches share count once. With `window`, a duration, there is a row for each key and each window
    of this length in which a match may end. Windows are aligned to 1970 or, for integer time, to 0.

    `exact` says whether the probability is exact. If matches depend on each other so much that the exact computation
    would need a decision diagram with more than `most_nodes` nodes, the probability is estimated from `samples` random
    worlds. With a confidence of 99.9 percent, its error is then at most `error`.

    >>> table = pa.table({"t": [1, 2, 3], "type": ["A", "B", "B"], "p": [0.5, 0.5, 0.5]})
    >>> query = "PATTERN SEQ(A a, B b) WITHIN 5"
    >>> any_match(table, query, time="t", type="type", probability="p").to_pylist()
    [{'probability': 0.375, 'exact': True, 'error': 0.0}]
    """
    _check_numbers(most_nodes, samples)
    statements = single_statement(query)
    source = described(events, time, type, end, order, probability, alternatives, tables=tables)
    columns, fixed = source.columns, fixed_tables(source.tables, statements, source.offered)
    if are_frames(source.table):
        from ensue.runtimes.spark.detection import any_match_of_frames

        def in_process(part: Any) -> pa.Table:
            return _any_of_tables(part, statements, columns, window, most_nodes, samples, fixed)[1]

        return any_match_of_frames(source.table, statements, columns, in_process)
    kind, table = _any_of_tables(source.table, statements, columns, window, most_nodes, samples, fixed)
    return kind.from_arrow(table)


def _check_numbers(most_nodes: object, samples: object) -> None:
    for role, given in (("most_nodes", most_nodes), ("samples", samples)):
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise LimitError("limit-type", f"`{role}` must be an integer of at least 1, found {given!r}")


def _any_of_tables(
    events: Any,
    statements: LoweredProgram,
    columns: Columns,
    window: WindowLike | None,
    most_nodes: int,
    samples: int,
    fixed: FixedTables,
) -> tuple[Any, pa.Table]:
    options = Options(lineage=True, limit=None)
    loaded = load_tables(events, statements, columns, False, fixed, options)
    ticks = None if window is None else _ticks(window, loaded)
    step = loaded.run(_chunks)
    warn_set_aside({"": step.reports[0]})
    return loaded.kind, _table(step.outputs[0], loaded, ticks, most_nodes, samples)


def _chunks(member: Member, watched: WatchedEvents, chunks: Iterator[MatchChunk], options: Options) -> list[MatchChunk]:
    with citing(member.plan.source):
        return list(chunks)


def _ticks(window: WindowLike, loaded: LoadedProgram) -> int:
    size, unit = window_of(window), loaded.planned.plans[0].catalog.unit
    ticks = None if isinstance(size, Events) else TimeScale(unit).ticks(size)
    if ticks is None or ticks < 1:
        raise SchemaError("window-length", f"`window` must be a duration, found {window!r}", 'for example "1h"')
    return ticks


def _table(
    chunks: Sequence[MatchChunk], loaded: LoadedProgram, ticks: int | None, most_nodes: int, samples: int
) -> pa.Table:
    plan = loaded.planned.plans[0]
    keys = [chunk.space.keys(chunk.rows).astype(np.int64) for chunk in chunks]
    windows = [
        np.zeros(len(own), np.int64) if ticks is None else chunk.ends // ticks
        for chunk, own in zip(chunks, keys, strict=True)
    ]
    pairs = np.concatenate(
        [np.empty((0, 2), np.int64), *(np.stack(both, axis=1) for both in zip(keys, windows, strict=True))]
    )
    different, first, owner = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    owners = np.split(owner.ravel(), np.cumsum([len(own) for own in keys])[:-1]) if chunks else []
    found = found_any(chunks, owners, most_nodes, samples)
    names = plan.query.partition_by
    arrays = {name: _key_values(chunks, name, first, loaded) for name in names}
    if ticks is not None:
        begins = different[:, 1] * ticks
        arrays["window_start"] = pa.array(begins).view(plan.catalog.time_type)
        arrays["window_end"] = pa.array(begins + ticks).view(plan.catalog.time_type)
    probability, error = found.probability, found.error
    if not names and ticks is None and not len(probability):
        probability, error = np.zeros(1), np.zeros(1)
    return pa.table({**arrays, "probability": probability, "exact": error == 0, "error": error})


def _key_values(chunks: Sequence[MatchChunk], name: str, rows: np.ndarray, loaded: LoadedProgram) -> pa.Array:
    plan = loaded.planned.plans[0]
    if not chunks:
        of_streams = raw_types(plan, loaded.planned.tables).values()
        return pa.nulls(0, next((types[name] for types in of_streams if name in types), plan.catalog.time_type))
    parts = [key_column_of(chunk, name, plan.catalog) for chunk in chunks]
    return pa.chunked_array(parts).combine_chunks().take(pa.array(rows))
