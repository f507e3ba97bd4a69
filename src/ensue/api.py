"""The public face: parse, detect, run, and the queries and programs they take."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.check import check_constraints, check_query
from ensue.algebra.constraints import ConstraintStatement
from ensue.algebra.contexts import resolve_contexts
from ensue.algebra.nodes import Event, PatternQuery, Statements
from ensue.algebra.operators import CONTEXTS, excluded_streams
from ensue.algebra.partial import eager_constraint_problems, eager_problems
from ensue.algebra.rule_checks import check_rules
from ensue.algebra.rules import Ruleset
from ensue.algebra.rulesets import resolve_rules, unused_heads
from ensue.algebra.settling import with_keys
from ensue.algebra.streams import check_streams
from ensue.dsl import PatternExpression, Query, RuleStatement, query_of
from ensue.dsl.constraints import ConstraintsLike, statements_of
from ensue.engine.derived import all_plans, derive, groups_of, sources_of
from ensue.engine.events import EventStore, note_streams
from ensue.engine.output import collect_ordered, render_in_batches
from ensue.engine.past import in_range, matches_in_range
from ensue.engine.session import request_of
from ensue.engine.sources import EventSource, InputTable, Report, latest_end, load_sources
from ensue.engine.traces import Watched, watch
from ensue.engine.violations import track
from ensue.errors import EnsueWarning, LimitError, Problem, QueryError, SchemaError, Span, citing, closest, counted
from ensue.kernels.warm import warm_up
from ensue.lang.checked import parse_checked
from ensue.lang.parser import parse_statements
from ensue.lang.render import render_statements
from ensue.lang.rules import joined_rulesets
from ensue.plan.explain import Explained, explain_without_data
from ensue.plan.lawful import laws_by_query
from ensue.plan.model import DEFAULT_LIMIT, Options, QueryPlan
from ensue.runtimes.fixed import FixedTables, fixed_tables
from ensue.runtimes.moments import ALL_TIME, Period
from ensue.runtimes.planning import ColumnNames, Columns, Emission, Planned, plan_queries, plan_violations
from ensue.runtimes.tables import TableKind, are_frames, arrow_tables

Statement: TypeAlias = "str | Query | PatternExpression | RuleStatement | Program"
QueryLike: TypeAlias = "Statement | Sequence[Statement]"
"""A query as it may be given; a list is a program of all its members."""

MOST_SHOWN = 8
"""How many values of a type column a warning lists."""


@dataclass(frozen=True)
class Program:
    """The statements of a text or file, in order.

    Its results are the matches of its patterns. What is declared as a STREAM is there for other statements to use.

    >>> program = parse("PATTERN pair SEQ(A a, B b) WITHIN 5; PATTERN lone AND(C c, NOT C other) WITHIN 5")
    >>> list(program.names)
    ['pair', 'lone']
    >>> parse(program.to_text()) == program
    True
    """

    statements: Statements

    @property
    def queries(self) -> tuple[Query, ...]:
        """The patterns whose matches are the results."""
        return tuple(Query(node) for node in self.statements.results)

    @property
    def constraints(self) -> tuple[ConstraintStatement, ...]:
        return self.statements.constraints

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each pattern, one without a name by its number, and the heads of rules."""
        taken = {node.name for node in self.statements.results}
        names: list[str] = []
        for place, node in enumerate(self.statements.results, start=1):
            fresh = (name for number in count(place) if (name := f"pattern_{number}") not in {*taken, *names})
            names.append(node.name or next(fresh))
        return (*names, *self.statements.heads)

    def to_text(self) -> str:
        """The program as text; it parses back to an equal program."""
        return render_statements(self.statements)

    def explain(self, *, time: str = "t") -> str:
        """What each pattern means and how it will run; `time` names the time column."""
        return "\n\n".join(entry.to_text() for entry in explained_statements(self.statements, time))


def parse(text: str, name: str = "query") -> Program:
    """Parses a text of one or more statements and checks what can be checked without data; `name` is cited in errors.

    >>> parse("PATTERN SEQ(A a, NOT B b) ").queries
    Traceback (most recent call last):
    ensue.errors.QueryError: error[open-scope]: nothing says how long after the match the forbidden events count
     --> query:1:18
      |
    1 | PATTERN SEQ(A a, NOT B b)\x20
      |                  ^^^^^^^
    hint: add a WITHIN to the whole pattern, or put the NOT between two items of a SEQ
    """
    return Program(parse_checked(text, name))


def parse_file(path: str | Path) -> Program:
    """Parses an `.ensue` file."""
    return parse(Path(path).read_text(encoding="utf-8"), Path(path).name)


def as_program(query: QueryLike) -> Program:
    """The program that a text or a list of queries and rules is, with all that can be checked without data checked."""
    if isinstance(query, Program):
        return query
    return parse(query if isinstance(query, str) else Program(_statements_of(query)).to_text())


def explain(query: QueryLike, *, time: str = "t", constraints: ConstraintsLike | None = None) -> str:
    """What a query means and how it will run, stage by stage, without data; `time` names the time column.

    >>> print(explain("PATTERN SEQ(A a, B b) WITHIN 5"))
    PATTERN
      PATTERN SEQ(A a, B b)
        WITHIN 5
    <BLANKLINE>
    GRAPH
      a: an event of A
      b: an event of B
      a before b, all within 5
    <BLANKLINE>
    PLAN
      all events form one group, sorted by time
      read A: all columns, because whole events are returned
      read B: all columns, because whole events are returned
      join a, b: from the rarest in the data at hand, each next one by a search in its time range
    <BLANKLINE>
    STATE
      A as a: kept for 5
      B as b: not kept
      bounded
    <BLANKLINE>
    SPARK
      batch: shuffled by time slices of 80 that overlap by 5
      stream: in one task, with one state
    """
    statements = _single_statement(query, constraints)
    return "\n\n".join(entry.to_text() for entry in explained_statements(statements, time))


def explained_statements(statements: Statements, time: str) -> Iterator[Explained]:
    """What there is to say of each statement as it is written, of a head of each of its rules."""
    acting = _acting(statements)
    if not statements.results and not statements.heads and not acting:
        raise _no_pattern(statements)
    problems = [*check_streams(statements), *check_rules(statements)]
    if problems:
        raise QueryError(problems, statements.source)
    heads = statements.heads
    statements = resolve_rules(statements)
    statements = replace(statements, statements=with_keys(statements.statements))
    among = (*statements.statements, *acting)
    laws = laws_by_query(statements)
    for node in statements.statements:
        if node.name in heads and not node.declares:
            continue
        yield explain_without_data(node, statements.source, time, laws.get(node), among)


def _acting(statements: Statements) -> tuple[PatternQuery, ...]:
    """The ON statements as patterns that use what they are about."""
    actions = statements.ruleset.actions if statements.ruleset is not None else ()
    return tuple(
        PatternQuery(Event(on.stream, on.variable), f"ON {on.stream} DO {on.action}", on.where) for on in actions
    )


def single_statement(query: QueryLike, constraints: ConstraintsLike | None = None) -> Statements:
    """The one query meant, with its constraints and its text, so that messages can point into it."""
    written = _single_statement(query, constraints)
    statements = resolved(written)
    wanted = _wanted_results(written)
    chosen = (node for node in statements.statements if node.declares or node.name == wanted or not written.heads)
    return replace(statements, statements=tuple(chosen))


def _single_statement(query: QueryLike, constraints: ConstraintsLike | None) -> Statements:
    """The one query meant, as it is written."""
    statements = _constrained(_statements_of(query), constraints)
    if not statements.results and not statements.heads:
        raise _no_pattern(statements)
    if len(statements.results) > 1:
        raise _several_queries(statements, "statements with PATTERN", statements.results[1].span)
    return statements


def _wanted_results(statements: Statements) -> str | None:
    """The name of the one pattern, or, where there are only rules, of the one head that no other rule uses."""
    if statements.results or statements.ruleset is None:
        return statements.results[0].name if statements.results else None
    heads = unused_heads(statements.ruleset)
    if len(heads) != 1:
        rules = [rule for rule in statements.ruleset.rules if rule.head in heads[1:]]
        raise _several_queries(statements, "heads that no other rule uses", rules[0].span if rules else None)
    return heads[0]


def _several_queries(statements: Statements, what: str, span: Span | None) -> QueryError:
    number = len(statements.results) or len(unused_heads(statements.ruleset or Ruleset()))
    problem = Problem(
        "one-query",
        f"the text has {number} {what} where one is expected",
        span,
        hint="`ensue.run` takes programs of several patterns and rules",
    )
    return QueryError([problem], statements.source)


def program_statements(program: Program | QueryLike, constraints: ConstraintsLike | None = None) -> Statements:
    """The patterns and rules of a program with its constraints."""
    statements = written_statements(program, constraints)
    if not statements.results and not statements.heads:
        raise _no_pattern(statements)
    return resolved(statements)


def written_statements(program: Program | QueryLike, constraints: ConstraintsLike | None = None) -> Statements:
    """What a program says, with its constraints, as it is written."""
    return _constrained(_statements_of(parse(program) if isinstance(program, str) else program), constraints)


def resolved(statements: Statements) -> Statements:
    """The statements, those with a context as several; what is wrong with these is said of what was written."""
    chosen = [query for query in statements.statements if query.policy in CONTEXTS]
    problems = [problem for query in chosen for problem in check_query(query)]
    problems += check_rules(statements)
    if problems:
        raise QueryError(problems, statements.source)
    return resolve_contexts(resolve_rules(statements))


def _keyed(statements: Statements, partition_by: str | Sequence[str]) -> Statements:
    """The statements, with keys for the constraints that have none."""
    keys = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    if not keys:
        return statements
    keyed = tuple(replace(e, partition_by=e.partition_by or keys) for e in statements.constraints)
    return replace(statements, constraints=keyed)


def _constrained(statements: Statements, constraints: ConstraintsLike | None) -> Statements:
    """The statements with further constraints, in one text, so that messages can point into it."""
    if constraints is None:
        return statements
    together = (*statements.constraints, *statements_of(constraints))
    return _statements_of(render_statements(replace(statements, constraints=tuple(dict.fromkeys(together)))))


def _no_pattern(statements: Statements) -> QueryError:
    spans = [*(query.span for query in statements.declared), *(entry.span for entry in statements.constraints)]
    place = next(iter(spans), None)
    hint = "add a PATTERN; constraints say what its events are like"
    if statements.declared:
        hint = "add a PATTERN that uses what is declared; the matches of a PATTERN are results, a STREAM is an input"
    return QueryError(
        [Problem("no-pattern", "the text has no pattern to look for", place, hint=hint)], statements.source
    )


def _statements_of(query: object) -> Statements:
    """The statements of a text, a program, or a query built in Python, which goes by way of its text to have places."""
    match query:
        case Program():
            return query.statements
        case str():
            statements = parse_statements(query)
            if problems := list(check_constraints(statements.constraints)):
                raise QueryError(problems, statements.source)
            return statements
        case RuleStatement():
            return parse_statements(query.to_text())
        case Query() | PatternExpression():
            return parse_statements((query_of(query) if isinstance(query, PatternExpression) else query).to_text())
        case list() | tuple() if query:
            return _statements_of(render_statements(_joined([_statements_of(member) for member in query])))
        case _:
            raise QueryError(
                [
                    Problem(
                        "not-a-query",
                        f"a query is a text or built with `ensue.seq` and its like, not {type(query).__name__}",
                    )
                ]
            )


def _joined(parts: Sequence[Statements]) -> Statements:
    return Statements(
        tuple(query for part in parts for query in part.statements),
        constraints=tuple(entry for part in parts for entry in part.constraints),
        ruleset=joined_rulesets(part.ruleset for part in parts),
    )


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
    statements, columns = single_statement(query, constraints), Columns(time, type, end)
    options, eager = Options(limit=checked_limit(limit)), checked_emit(emit, statements)
    fixed, period = fixed_tables(tables, statements), Period(since, until)
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
    loaded = with_declared(load_tables(events, statements, Columns(time, type, end), match_id, fixed, options, period))
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
    columns = Columns(time, type, end)
    options, eager = Options(limit=checked_limit(limit)), checked_emit(emit, statements)
    fixed, period = fixed_tables(tables, statements), Period(since, until)
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
    given = Statements(()) if program is None else _statements_of(program)
    statements, columns = _keyed(_constrained(given, constraints), partition_by), Columns(time, type)
    if are_frames(events):
        from ensue.runtimes.spark.detection import frame_violations

        return frame_violations(events, statements, columns, Emission(tick=tick, buckets=buckets))
    kind, tables = arrow_tables(events)
    planned = plan_violations(tables, statements, columns)
    plan = planned.plans[0]
    assert plan.tracking is not None
    warm_up()
    sources, report = load_sources(planned.inputs, plan.catalog.time_type)
    for item in planned.inputs:
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


def checked_emit(emit: object, statements: Statements) -> bool:
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

    `sources` have the rows that matter between the ends of `options`; `horizon` is the last end of all rows.
    """

    kind: TableKind
    sources: tuple[EventSource, ...]
    report: Report
    planned: Planned
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
        for item in self.planned.inputs:
            streams = tuple(filter(item.holds, plan.streams))
            if item.type is not None and (constrained or not all(len(store.streams[name]) for name in streams)):
                _warn_of_names(item, streams, constrained, stacklevel=5, alone=streams == plan.streams)


def load_tables(
    events: Any,
    statements: Statements,
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
    sources, report = load_sources(planned.inputs, time_type)
    needed = in_range(sources, planned.plans, planned.derivations, options)
    return Loaded(kind, needed, report, planned, options, latest_end(sources))


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


def _warn_of_hidden_rows(sources: Sequence[EventSource], declared: str) -> None:
    """Rows that are called like a declared stream are none of its events."""
    for source in sources:
        rows = len(source.stream_rows.get(declared, ()))
        if rows:
            said = f"{counted(rows, 'row', 'rows')} of type `{declared}` took no part, because the stream is declared"
            warnings.warn(said, EnsueWarning, stacklevel=4)


def _warn_of_names(
    item: InputTable, streams: tuple[str, ...], constrained: tuple[str, ...], stacklevel: int, alone: bool = True
) -> None:
    """Warns of names that are probably slips; `stacklevel` leads to the line of the user.

    Unless they are `alone`, the query has other streams, which the table need not hold.
    """
    counts = pc.value_counts(item.table.column(item.type)).to_pylist()
    by_frequency = sorted(counts, key=lambda entry: -entry["counts"])
    present = [str(entry["values"]) for entry in by_frequency if entry["values"] is not None]
    named = tuple(name for name in streams if excluded_streams(name) is None)
    for name in dict.fromkeys((*named, *constrained)):
        guess = closest(name, present, cutoff=0.65) if name not in present else None
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
    "Program",
    "Results",
    "detect",
    "detect_batches",
    "explain",
    "parse",
    "parse_file",
    "run",
    "violations",
]
