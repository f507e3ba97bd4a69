"""`ensue.start` runs a program on Spark streams, and `ensue.stream_state` reads the state of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ensue.api import checked_emit, checked_limit
from ensue.constraints import ConstraintsLike
from ensue.errors import QueryError, SchemaError, did_you_mean
from ensue.plan.outputs import OutputSchema, partial_output
from ensue.plan.partial import partial_problems, partial_queries
from ensue.plan.planner import plan_query
from ensue.plan.plans import DEFAULT_LIMIT, Options, QueryPlan
from ensue.plan.program_plans import ColumnNames, Columns, ProgramPlan, by_keys, plan_queries, with_violations
from ensue.plan.states import refuse_ahead
from ensue.programs import Program, QueryLike, program_statements
from ensue.runtimes.tables import are_frames, fixed_tables, together_schema
from ensue.text.render import render_pattern

if TYPE_CHECKING:
    from ensue.runtimes.spark.handle import Running

Sink: TypeAlias = "str | Callable[[Any, int], None]"
Sinks: TypeAlias = "Sink | Mapping[str, Sink]"
VIOLATIONS = "CONSTRAINTS"
"""The name of the violations among the patterns. A pattern with this name would need quotes."""


def start(
    program: Program | QueryLike,
    sources: Any,
    *,
    to: Sinks,
    checkpoint: str,
    time: ColumnNames,
    type: str | None = None,
    end: ColumnNames | None = None,
    late: Sinks | None = None,
    timed_out: Sinks | None = None,
    violations: Sink | None = None,
    every: str | None = None,
    available_now: bool = False,
    probability: str | None = None,
    alternatives: str | None = None,
    limit: int | None = DEFAULT_LIMIT,
    match_id: bool = False,
    emit: str = "complete",
    tick: str | None = None,
    buckets: int | None = None,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    upgrade: bool = False,
    status: bool | None = None,
) -> Running:
    """Runs the patterns of a program on streaming DataFrames. Patterns with the same keys share one state.

    `to` is the sink for matches, `late` for late rows, `timed_out` for partial matches whose window has closed, and
    `violations` for traces that break a constraint. A sink is a folder, which gets Parquet files with one subfolder
    `batch=N` per micro-batch, or a function `f(rows, batch)` of a DataFrame and the number of its micro-batch. For
    several patterns, `to` is a mapping by name, or a single sink whose rows start with a column `pattern`. For one
    table per stream, `late` is a mapping by stream. A micro-batch that is repeated after a crash has the same rows and
    the same number. So folders contain each match once, and a function can detect the repetition by the number or by
    `match_id`. On Spark Connect, a function runs as a copy on the server and does not change this process.

    `checkpoint` is a folder that only this query uses. It is refused for another query, unless `upgrade` is true and
    the kept events suffice. `every` ("10 seconds") sets the interval of micro-batches. With `available_now`, the stream
    ends when it has read all available rows. `buckets` is the number of states; the default is the number of Spark's
    shuffle partitions, at least 8. `status` shows a progress line on stderr; the default is true on a terminal.

    `tables` are the tables for the program's TABLEs, by name. They are read when the stream starts or restarts.
    """
    statements = program_statements(program, constraints)
    if not are_frames(sources):
        raise SchemaError(
            "not-a-stream",
            "`ensue.start` requires streaming DataFrames",
            "read the events with `spark.readStream`, or use `ensue.detect` for tables",
        )
    from ensue.runtimes.spark.frames import empty_tables, frame_inputs
    from ensue.runtimes.spark.handle import start_groups
    from ensue.runtimes.spark.java import require_pyspark
    from ensue.runtimes.spark.session import advise
    from ensue.runtimes.spark.stream import plan_stream

    require_pyspark()
    names = Program(statements).names
    options, eager = Options(limit=checked_limit(limit)), checked_emit(emit, statements)
    refuse_ahead(statements, end, eager)
    columns = Columns(time, type, end, probability, alternatives)
    planned = plan_queries(empty_tables(sources), statements, columns, match_id, fixed_tables(tables, statements))
    patterns = names[: len(statements.results)]
    if violations is not None:
        planned, names = with_violations(planned, statements), (*names, VIOLATIONS)
    inputs = frame_inputs(sources, planned.inputs)
    if not inputs[0].frame.isStreaming:
        raise SchemaError(
            "not-a-stream",
            "`ensue.start` requires a streaming DataFrame, but this one is static",
            "use `ensue.detect` or `ensue.run` for static DataFrames",
        )
    sinks = _Places.of(planned, patterns, to, late, timed_out, violations)
    plan = partial(plan_stream, inputs, options=options, eager=eager, late=bool(sinks.late), tick=tick, buckets=buckets)
    groups = _groups(planned, names, sinks, plan)
    spark = inputs[0].frame.sparkSession
    advise(spark, streaming=True)
    return start_groups(spark, groups, checkpoint, _trigger(every, available_now), upgrade, status)


@dataclass(frozen=True, slots=True)
class _Places:
    """The sinks of the matches and partial matches of each pattern, and of the late rows of each stream.

    `together` is the single sink for the matches of all `patterns`; None if each pattern has its own.
    """

    patterns: Sequence[str]
    matches: Mapping[str, Sink]
    partial: Mapping[str, Sink]
    late: Mapping[str, Sink]
    streams: Sequence[str]
    together: Sink | None

    @classmethod
    def of(
        cls,
        planned: ProgramPlan,
        patterns: Sequence[str],
        to: Sinks,
        late: Sinks | None,
        timed_out: Sinks | None,
        violations: Sink | None,
    ) -> _Places:
        inputs = planned.inputs
        streams = [str(item.stream or "late") for item in inputs] if len(inputs) > 1 else ["late"]
        together = None if isinstance(to, Mapping) or len(patterns) == 1 else to
        matches = _match_sinks(to if together is None else dict.fromkeys(patterns, together), patterns, violations)
        late_rows = _by_name(late, streams, "late", complete=False)
        partial_matches = _by_name(timed_out, patterns, "timed_out", complete=False)
        if together is not None:
            _check_one_place(planned, patterns)
        return cls(patterns, matches, partial_matches, late_rows, streams, together)


def _groups(planned: ProgramPlan, names: Sequence[str], sinks: _Places, plan: Callable[..., Any]) -> list[Any]:
    """Returns the Spark streams, one per set of partition keys, with their sinks."""
    from ensue.runtimes.spark.handle import StreamGroup, targets_of

    groups = []
    for group in by_keys(planned):
        places = group.places
        plans = [planned.plans[place] for place in places]
        outputs = [planned.outputs[place] for place in places]
        numbers: list[tuple[Sink, tuple[int, ...]]] = [
            (sinks.matches[names[place]], (number,)) for number, place in enumerate(places)
        ]
        for place in places:
            if names[place] in sinks.partial:
                partials = _partials(planned, place)
                numbers.append((sinks.partial[names[place]], tuple(range(len(plans), len(plans) + len(partials)))))
                plans += [plan for plan, _ in partials]
                outputs += [output for _, output in partials]
        numbers += [(sink, (len(plans) + sinks.streams.index(name),)) for name, sink in sinks.late.items()]
        stream = plan(plans=plans, outputs=outputs, keys=group.keys, derivations=group.derivations, states=group.states)
        patterns = sinks.patterns
        results = {number: patterns[place] for number, place in enumerate(places) if place < len(patterns)}
        groups.append(StreamGroup(stream, targets_of(numbers, sinks.together, results)))
    if sinks.late and len(groups) > 1:
        raise SchemaError(
            "late-keys",
            "`late` is not supported for patterns with different partition keys, because they run as several streams",
            "start the patterns of each PARTITION BY separately",
        )
    return groups


def _match_sinks(to: Sinks, patterns: Sequence[str], violations: Sink | None) -> dict[str, Sink]:
    sinks = _by_name(to, patterns, "to", complete=True)
    if violations is not None:
        sinks.update(_by_name({VIOLATIONS: violations}, [VIOLATIONS], "violations", complete=True))
    return sinks


def _check_one_place(planned: ProgramPlan, patterns: Sequence[str]) -> None:
    """Checks that one stream finds all matches and that their columns fit into one table."""
    from ensue.runtimes.spark.batch import result_schema

    if sum(any(place < len(patterns) for place in group.places) for group in by_keys(planned)) > 1:
        raise SchemaError(
            "sink-names",
            "patterns with different partition keys require a separate `to` each, because they run as several streams",
            f"pass a mapping such as {{{patterns[0]!r}: ...}}",
        )
    together_schema(patterns, [result_schema(output) for output in planned.outputs[: len(patterns)]])


def stream_state(checkpoint: str, spark: Any = None, *, events: bool = False) -> Any:
    """Returns the state of a running or stopped stream as a DataFrame with one row per key.

    `checkpoint` is the checkpoint folder of `ensue.start` or of a Spark query. A row has the number of kept events of a
    key, their streams, their size in bytes, the times of the oldest and the newest event, the age of the oldest event
    at the watermark, and what the key waits for.

    With `events`, it returns the kept events: one DataFrame, or one per stream, like the input of the stream, with the
    columns that the queries read. If no events are kept, the DataFrame has no columns.
    """
    from ensue.runtimes.spark.session import running_session, spark_session
    from ensue.runtimes.spark.state import read_events_of, read_state_of

    read = read_events_of if events else read_state_of
    return read(spark or running_session() or spark_session(), checkpoint.rstrip("/"))


def _trigger(every: str | None, available_now: bool) -> dict[str, Any]:
    if available_now:
        return {"availableNow": True}
    return {"processingTime": every} if every is not None else {}


def _by_name(given: Sinks | None, names: Sequence[str], role: str, *, complete: bool) -> dict[str, Sink]:
    """Returns the sinks by name. A single sink belongs to the only name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if len(names) > 1:
            raise SchemaError(
                "sink-names",
                f"`{role}` requires a sink for each of {', '.join(f'`{name}`' for name in names)}",
                f"pass a mapping such as {{{names[0]!r}: ...}}",
            )
        given = {names[0]: given}
    unknown = [name for name in given if name not in names]
    missing = [name for name in names if name not in given] if complete else []
    if unknown or missing:
        wrong = f"has unknown name `{unknown[0]}`" if unknown else f"has no sink for `{missing[0]}`"
        guess = did_you_mean(unknown[0], names) if unknown else ""
        raise SchemaError("sink-names", f"`{role}` {wrong}", guess or f"use these names: {', '.join(names)}")
    for name, sink in given.items():
        if not isinstance(sink, str) and not callable(sink):
            raise SchemaError(
                "sink-type", f"`{role}` for `{name}` must be a folder or a function `f(rows, batch)`, found {sink!r}"
            )
    return dict(given)


def _partials(planned: ProgramPlan, place: int) -> list[tuple[QueryPlan, OutputSchema]]:
    """Returns the plans of the partial matches of a query and their columns. They include failed traces."""
    whole, output = planned.plans[place], planned.outputs[place]
    source, catalog = whole.source, whole.catalog
    problems = partial_problems(whole.query)
    if problems:
        raise QueryError(problems, source)
    found = []
    for part in partial_queries(whole.query):
        plan = plan_query(part.query, catalog, source)
        found.append((plan, partial_output(output, render_pattern(part.missing))))
    return found
