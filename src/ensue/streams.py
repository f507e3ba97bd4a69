"""`ensue.start` runs a program on Spark streams, `matching` transforms DataFrames, `stream_state` reads a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ensue.api import checked_emit, detect, match_limit
from ensue.arguments import accepted_by, helpful, unknown_argument
from ensue.constraints import ConstraintsLike
from ensue.errors import QueryError, SchemaError, did_you_mean
from ensue.plan.outputs import OutputSchema, partial_output
from ensue.plan.partial import partial_problems, partial_queries
from ensue.plan.planner import plan_query
from ensue.plan.plans import DEFAULT_LIMITS, Limits, Options, QueryPlan
from ensue.plan.program_plans import (
    ColumnNames,
    OrderColumns,
    ProgramPlan,
    by_keys,
    plan_queries,
    warn_of_unusable,
    with_violations,
)
from ensue.plan.states import refuse_ahead
from ensue.programs import Program, QueryLike, program_statements
from ensue.runtimes.moments import spark_interval
from ensue.runtimes.tables import DescribedEvents, are_frames, described, fixed_tables, together_schema
from ensue.text.render import render_pattern

if TYPE_CHECKING:
    from ensue.lower.phases import LoweredProgram
    from ensue.python.functions import QueryFunction
    from ensue.runtimes.spark.frames import FrameInput
    from ensue.runtimes.spark.handle import StreamHandle

Sink: TypeAlias = "str | Callable[[Any, int], None]"
Sinks: TypeAlias = "Sink | Mapping[str, Sink]"
VIOLATIONS = "CONSTRAINTS"
"""The name of the violations among the patterns. A pattern with this name would need quotes."""


@helpful
def start(
    events: Any,
    query: QueryLike,
    *,
    to: Sinks,
    checkpointLocation: str,  # noqa: N803 (Spark's word)
    time: ColumnNames | None = None,
    trigger: Mapping[str, Any] | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    late: Sinks | None = None,
    timed_out: Sinks | None = None,
    violations: Sink | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    match_id: bool = False,
    emit: str = "complete",
    tick: str | None = None,
    buckets: int | None = None,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    upgrade: bool = False,
    status: bool | None = None,
) -> StreamHandle:
    """Runs the patterns of a program on streaming DataFrames, with one state for all patterns with the same keys.

    `events` is a streaming DataFrame with a watermark, or a mapping of streams to such DataFrames. `to` is the sink for
    matches, `late` for rows behind the watermark, `timed_out` for partial matches whose window has closed, and
    `violations` for traces that break a constraint. A sink is a folder or a function. A folder gets Parquet files, in
    one folder `batch=N` per micro-batch. A function `f(rows, batch)` gets a DataFrame and the number of the
    micro-batch. For several patterns, pass a mapping by name, or one sink for all: then the rows begin with a column
    `pattern`. For late rows of one table per stream, pass a mapping by stream. A micro-batch that is repeated after a
    crash has the same rows and number, so folders contain each match once; a function can check the number, or
    `match_id`. With Spark Connect, a function runs on the server, as a copy: this process does not see its changes.

    `checkpointLocation` is a folder for this program alone. It refuses another query, unless `upgrade` is true and the
    kept events are sufficient. `trigger` has Spark's words, as in `DataStreamWriter.trigger`: `{"processingTime":
    "10s"}` starts a micro-batch every 10 seconds, and `{"availableNow": True}` processes all available rows and then
    stops. By default, a micro-batch starts when the last one has ended. `buckets` is the number of states; by default,
    that of Spark's shuffle partitions, at least 8. `status` shows a progress line on stderr; by default, on a terminal.

    `tables` are those of the program's TABLEs, by name. They are read when the stream starts, and again at a restart.

        handle = ensue.start(
            orders, query, time="at", type="type", to="unpaid",
            checkpointLocation="checkpoint", trigger={"processingTime": "10s"},
        )
        handle.awaitTermination()
    """
    statements = program_statements(query, constraints)
    paced = checked_trigger(trigger)
    source = described(events, time, type, end, order, probability, alternatives, tick=tick, tables=tables)
    if not are_frames(source.table):
        raise SchemaError(
            "not-a-stream",
            "`ensue.start` requires streaming DataFrames",
            "read the events with `spark.readStream`, or use `ensue.detect` for tables",
        )
    from ensue.runtimes.spark.handle import start_groups
    from ensue.runtimes.spark.session import advise
    from ensue.runtimes.spark.stream import plan_stream

    names = Program(statements).names
    options, eager = Options(limit=match_limit(limits)), checked_emit(emit, statements)
    refuse_ahead(statements, source.columns.end, eager)
    planned, inputs = _planned(source, statements, match_id, options.limit)
    patterns = names[: len(statements.results)]
    if violations is not None:
        planned, names = with_violations(planned, statements), (*names, VIOLATIONS)
    sinks = _Places.of(planned, patterns, to, late, timed_out, violations)
    plan = partial(
        plan_stream, inputs, options=options, eager=eager, late=bool(sinks.late), tick=source.tick, buckets=buckets
    )
    spark = inputs[0].frame.sparkSession
    advise(spark, streaming=True)
    return start_groups(spark, _groups(planned, names, sinks, plan), checkpointLocation, paced, upgrade, status)


def _planned(
    source: DescribedEvents, statements: LoweredProgram, match_id: bool, limit: int | None
) -> tuple[ProgramPlan, tuple[FrameInput, ...]]:
    """The plan of all patterns, and the DataFrames that it reads."""
    from ensue.runtimes.spark.frames import empty_tables, frame_inputs
    from ensue.runtimes.spark.java import require_pyspark

    require_pyspark()
    fixed = fixed_tables(source.tables, statements, source.offered, limit)
    planned = plan_queries(empty_tables(source.table), statements, source.columns, match_id, fixed)
    warn_of_unusable(planned)
    inputs = frame_inputs(source.table, planned.inputs)
    if not inputs[0].frame.isStreaming:
        raise SchemaError(
            "not-a-stream",
            "`ensue.start` requires a streaming DataFrame, but this one is static",
            "use `ensue.detect` or `ensue.run` for static DataFrames",
        )
    return planned, inputs


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


@helpful
def stream_state(
    checkpointLocation: str,  # noqa: N803 (Spark's word)
    spark: Any = None,
    *,
    kept_events: bool = False,
    functions: Sequence[QueryFunction] = (),
) -> Any:
    """Returns the state of a running or stopped stream as a DataFrame with one row per key.

    `checkpointLocation` is the checkpoint folder of `ensue.start` or of a Spark query. A row has the number of kept
    events of a key, their streams, their size in bytes, the times of the oldest and the newest event, the age of the
    oldest event at the watermark, and what the key waits for.

    With `kept_events`, it returns these events: one DataFrame, or one per stream, like the input of the stream, with
    the columns that its queries read. If no events are kept, the DataFrame has no columns. `functions` are the
    functions of your own that its queries call.
    """
    from ensue.expr.user_functions import by_name
    from ensue.runtimes.spark.session import running_session, spark_session
    from ensue.runtimes.spark.state import read_events_of, read_state_of

    read = read_events_of if kept_events else read_state_of
    return read(spark or running_session() or spark_session(), checkpointLocation.rstrip("/"), by_name(functions))


@helpful
def matching(query: QueryLike, **options: Any) -> Callable[[Any], Any]:
    """Returns a function of events that returns their matches, for Spark's `transform` and pandas' `pipe`.

    `df.transform(ensue.matching(query, time="at"))` is `ensue.detect(df, query, time="at")`. The options are those of
    `ensue.detect`. The events are any kind of table, static or streaming.

    >>> import pandas as pd
    >>> orders = pd.DataFrame({"at": [1, 2, 3], "type": ["Order", "Order", "Paid"], "id": [7, 8, 7]})
    >>> query = "PATTERN SEQ(Order o, NOT Paid p) PARTITION BY id WITHIN 10 RETURN o.id AS id"
    >>> orders.pipe(matching(query, time="at", type="type")).id.to_list()
    [8]
    """
    accepted = accepted_by(detect)
    for name in options:
        if name not in accepted:
            raise unknown_argument("ensue.matching", name, accepted)

    def matches_of(events: Any) -> Any:
        return detect(events, query, **options)

    return matches_of


TRIGGERS = ("processingTime", "availableNow")
"""The triggers of Spark that `ensue.start` supports."""


def checked_trigger(trigger: object) -> dict[str, Any]:
    """A trigger in Spark's words; empty for that of Spark."""
    if trigger is None:
        return {}
    shown = '`{"processingTime": "10s"}` or `{"availableNow": True}`'
    if not isinstance(trigger, Mapping) or len(trigger) != 1:
        raise SchemaError("trigger", f"`trigger` must be a mapping with one entry, not {trigger!r}", f"pass {shown}")
    word, value = next(iter(trigger.items()))
    if word not in TRIGGERS:
        known = ", ".join(f"`{name}`" for name in TRIGGERS)
        hint = did_you_mean(str(word), TRIGGERS) or f"pass {shown}"
        raise SchemaError("trigger", f"unknown trigger `{word}`; available: {known}", hint)
    expected = "a text such as '10s'" if word == "processingTime" else "True"
    if not (isinstance(value, str) if word == "processingTime" else value is True):
        raise SchemaError("trigger", f"`{word}` must be {expected}, not {value!r}", f"pass {shown}")
    # What is no duration of a query, such as `1 month`, is for Spark to read.
    return {word: spark_interval(value) if word == "processingTime" else value}


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
