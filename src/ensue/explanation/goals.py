"""`ensue.waiting`: the partial matches of a run, what each waits for and until when, and what would cancel it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.actions.bindings import acting_queries
from ensue.analysis.catalog import TIME_NAMES
from ensue.analysis.declarations import declarations, streams_below
from ensue.analysis.scopes import bound_events, returned_name
from ensue.arguments import helpful
from ensue.constraints import ConstraintsLike
from ensue.engine.events import FOREVER, NEVER
from ensue.engine.goals import Goals, open_goals
from ensue.engine.machine import UNLIMITED, Machine, compile_plan
from ensue.engine.output import key_column_of, value_of
from ensue.engine.rows import MatchChunk
from ensue.engine.snapshot import SEPARATOR, has_columns_of, read_header, restore, saved_inputs, statement_text, text_of
from ensue.errors import LimitError, QueryError, StateError
from ensue.graph.bounds import end_of, start_of
from ensue.graph.graphs import Variable
from ensue.lower.phases import LoweredProgram
from ensue.lower.rulesets import is_result_of
from ensue.nodes.expressions import Expr, Field, Literal
from ensue.nodes.names import Name, Stream, UnnamedVariable, WithRow, called
from ensue.nodes.patterns import Event, PatternQuery
from ensue.plan.program_plans import FixedTables, plan_program, with_violations
from ensue.programs import Program, QueryLike, program_statements
from ensue.runtimes.tables import fixed_tables
from ensue.text.render_parts import render_expression

MOST_GOALS = 100_000
"""The default maximum of goals to list."""


@helpful
def waiting(
    detector: Any,
    query: QueryLike,
    *,
    most_goals: int | None = MOST_GOALS,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    spark: Any = None,
) -> pa.Table:
    """Return the open goals of a run: the matched events of each key, the awaited event, the deadline, what cancels it.

    `detector` is a `Detector` of the program, the result of its `snapshot()`, or the `checkpointLocation` of a stream.
    Each row has the `name` of the pattern or rule, the key, the `matched` events, what is `awaited`, `until` when it
    can arrive (null: no deadline), what would cancel the match (`cancelled_by`), what the statements that use its event
    need (`then`), and all of this as `text`. More than `most_goals` rows are an error (None: no limit).

    >>> from ensue.detector import Detector
    >>> query = "PATTERN SEQ(Order o, NOT Cancel c, Paid p) PARTITION BY id WITHIN 10"
    >>> detector = Detector(query, time="t", type="type")
    >>> _ = detector.advance(pa.table({"t": [1], "type": ["Order"], "id": [7]}), watermark=5)
    >>> waiting(detector, query)["text"].to_pylist()
    ['o at 1; waits for Paid p after 5 until 11; cancelled by Cancel c']
    """
    statements = program_statements(query, constraints)
    fixed = fixed_tables(tables, statements)
    found: list[pa.Table] = []
    count = 0
    for saved in _saved(detector, spark):
        for name, goals, chains in _goals_by_name(statements, fixed, saved):
            count += goals.chunk.rows.length
            if most_goals is not None and count > most_goals:
                raise LimitError(
                    "too-many-goals",
                    f"found more than {most_goals:,} open goals",
                    "raise `most_goals=`, or use a shorter WITHIN",
                )
            found.append(_table(name, goals, chains))
    if not found:
        return pa.schema(_fields(pa.int64())).empty_table()
    return pa.concat_tables(found, promote_options="permissive").combine_chunks()


def _saved(state: Any, spark: Any) -> Iterator[pa.Table]:
    """Yield the saved states, one for each bucket of a Spark stream."""
    if isinstance(state, str):
        from ensue.runtimes.spark.session import running_session, spark_session
        from ensue.runtimes.spark.state import saved_states

        yield from saved_states(spark or running_session() or spark_session(), state.rstrip("/"))
    else:
        yield state.snapshot() if hasattr(state, "snapshot") else state


def _goals_by_name(
    statements: LoweredProgram, fixed: FixedTables, saved: pa.Table
) -> Iterator[tuple[str, Goals, Chains]]:
    """Yield the open goals of the statements in a saved state, by name."""
    machine = _machine_of(statements, fixed, saved)
    chains = Chains(statements)
    names = dict(zip(map(statement_text, statements.results), Program(statements).names, strict=True))
    for look in machine.looks(restore(machine, saved, {read_header(saved)["query"]})):
        for plan in look.stage.plans:
            query = plan.query
            name = str(query.name) if query.declares else names.get(statement_text(query))
            if name is not None and query.lookup is None:
                yield from ((name, goals, chains) for goals in open_goals(look, plan))


def _machine_of(statements: LoweredProgram, fixed: FixedTables, saved: pa.Table) -> Machine:
    """Compile the part of a program that saved a state: the statements that were run together, perhaps with ON
    statements, and perhaps with its violations."""
    query: str = read_header(saved)["query"]
    held = frozenset(query.split(SEPARATOR))
    wanted = [result for result in (*statements.results, *_acting(statements)) if statement_text(result) in held]
    below = {used for result in wanted for used in streams_below(result, statements.statements)}
    run = replace(statements, statements=(*(used for used in statements.declared if used in below), *wanted))
    for machine in _machines(run, fixed, saved) if wanted else ():
        if held.issuperset(text_of(machine).split(SEPARATOR)) and has_columns_of(machine, saved):
            return machine
    raise StateError("state-query", "the state belongs to a different program", f"the program that saved it:\n{query}")


def _machines(statements: LoweredProgram, fixed: FixedTables, saved: pa.Table) -> Iterator[Machine]:
    """Yield the machines that may have saved a state: with the violations of the program, and without."""
    try:
        planned = plan_program(statements, saved_inputs(saved), fixed=fixed)
    except QueryError:
        return  # The state lacks columns that the program uses.
    if statements.constraints:
        with suppress(QueryError):  # Constraints that cannot be violated, or without a key.
            yield compile_plan(with_violations(planned, statements), UNLIMITED)
    yield compile_plan(planned, UNLIMITED)


def _acting(statements: LoweredProgram) -> tuple[PatternQuery, ...]:
    """The ON statements of a program as patterns."""
    ruleset = statements.ruleset
    return () if ruleset is None or not ruleset.actions else acting_queries(ruleset.actions)


# --- chains: the statements that use the events of another one


class Chains:
    """Which statements of a program use the events of which others."""

    def __init__(self, statements: LoweredProgram) -> None:
        self.declared = declarations(statements.statements)
        named = zip(Program(statements).names, statements.results, strict=True)
        others = [(name, query) for name, query in named if not is_result_of(query, query.name or "")]
        users = [*((str(query.name), query) for query in statements.declared if query.lookup is None), *others]
        self._users: dict[Stream, list[tuple[str, PatternQuery, Event]]] = {}
        for name, query in users:
            for event in bound_events(query.pattern):
                self._users.setdefault(without_rows(event.stream), []).append((name, query, event))

    def needs(self, stream: Stream, seen: tuple[Stream, ...] = ()) -> str:
        """What an event of a declared stream is derived from, as text; empty for other streams."""
        if stream in seen:
            return ""
        ways = [query for query in self.declared.get(stream, ()) if query.lookup is None]
        listed = [[self._item(event, (*seen, stream)) for event in bound_events(query.pattern)] for query in ways]
        return f" (needs {', or '.join(' and '.join(items) for items in listed)})" if listed else ""

    def _item(self, event: Event, seen: tuple[Stream, ...]) -> str:
        stream = without_rows(event.stream)
        return f"{_named(event)}{self.needs(stream, seen)}"

    def following(self, goals: Goals) -> list[Any]:
        """For each statement that uses the event of a goal, directly or not: what it needs, for each choice."""
        query = goals.chunk.query_plan.query
        if not query.declares or query.name is None:
            return []
        return [*self._following(query.name, _known_values(goals.chunk), (), goals.chunk.rows.length)]

    def _following(self, name: Stream, values: Values, seen: tuple[Stream, ...], count: int) -> Iterator[Any]:
        for user, query, event in self._users.get(name, ()):
            if user in seen:
                continue
            others = [_named(other) for other in bound_events(query.pattern) if other is not event]
            own = _passed_on(query, event, values)
            items = "".join(f" and {other}" for other in others)
            yield _joined([*_label(user, own), " needs ", *_label(str(name), values), items], count)
            if query.declares:
                yield from self._following(query.name or "", own, (*seen, name, user), count)


Values: TypeAlias = "dict[str, Any] | None"
"""The values of the columns of a statement for each choice, as texts; those not known yet are None. None: no columns
are shown."""


def without_rows(stream: Stream) -> Stream:
    """A stream without the rows of tables that its events are joined with."""
    while isinstance(stream, WithRow):
        stream = stream.stream
    return stream


def _named(event: Event) -> str:
    stream = without_rows(event.stream)
    shown = event.variable is None or isinstance(event.variable, UnnamedVariable) or str(event.variable) == str(stream)
    return str(stream) if shown else f"{stream} {event.variable}"


def _known_values(chunk: MatchChunk) -> Values:
    """The columns of the event that a choice is for, as far as its matched events define them."""
    query = chunk.query_plan.query
    return {
        returned_name(column, place): _known_value(column.expression, chunk)
        for place, column in enumerate(query.returns)
    }


def _known_value(expression: Expr, chunk: MatchChunk) -> Any:
    match expression:
        case Field(variable, name) if variable in chunk.plan.graph.names and name not in TIME_NAMES:
            return _as_text(value_of(expression, chunk))
        case Field(_, name) if name in chunk.query_plan.query.partition_by:
            return _as_text(key_column_of(chunk, name, chunk.query_plan.catalog))
        case Literal(value):
            return pa.repeat(pa.scalar(str(value)), chunk.rows.length)
    return None


def _as_text(values: pa.Array) -> Any:
    return None if pa.types.is_nested(values.type) else pc.fill_null(values.cast(pa.string()), "null")


def _passed_on(query: PatternQuery, event: Event, values: Values) -> Values:
    """The columns of a statement, as far as the columns of one of its events define them."""
    if not query.declares or values is None:
        return None
    found: dict[str, Any] = {}
    for place, column in enumerate(query.returns):
        match column.expression:
            case Field(variable, name) if variable == event.variable or name in query.partition_by:
                value = values.get(name)
            case _:
                value = None
        found[returned_name(column, place)] = value
    return found


def _label(name: str, values: Values) -> list[Any]:
    """The name of a statement with its columns: `e(7, _)`."""
    if not values:
        return [name]
    parts: list[Any] = [f"{name}("]
    for value in values.values():
        parts += ["_" if value is None else value, ", "]
    return [*parts[:-1], ")"]


def _joined(parts: Sequence[Any], count: int) -> Any:
    """Texts joined for each choice."""
    if all(isinstance(part, str) for part in parts):
        return pa.repeat(pa.scalar("".join(parts)), count)
    return pc.binary_join_element_wise(*parts, "")


# --- rows


def _fields(time_type: pa.DataType) -> list[pa.Field]:
    event = pa.struct([("variable", pa.string()), ("stream", pa.string()), ("start", time_type), ("end", time_type)])
    return [
        pa.field("name", pa.string()),
        pa.field("matched", pa.list_(event)),
        pa.field("awaited", pa.string()),
        pa.field("until", time_type),
        pa.field("cancelled_by", pa.list_(pa.string())),
        pa.field("then", pa.list_(pa.string())),
        pa.field("text", pa.string()),
    ]


def _table(name: Name, goals: Goals, chains: Chains) -> pa.Table:
    chunk, time_type = goals.chunk, goals.chunk.query_plan.catalog.time_type
    count = chunk.rows.length
    until = pa.array(goals.until, mask=goals.until == FOREVER).view(time_type)
    awaited = _awaited(goals, until, time_type, chains)
    cancelled = pa.array([list(goals.open)] * count, pa.list_(pa.string()))
    following = chains.following(goals)
    text = _text(goals, awaited, until, time_type, following)
    plain = dict(
        zip(
            (field.name for field in _fields(time_type)),
            (
                pa.repeat(pa.scalar(name), count),
                _matched(chunk, time_type),
                awaited,
                until,
                cancelled,
                _as_lists(following, count),
                text,
            ),
            strict=True,
        )
    )
    keys = {key: key_column_of(chunk, key, chunk.query_plan.catalog) for key in chunk.query_plan.query.partition_by}
    return pa.table({"name": plain.pop("name"), **keys, **plain})


def _matched(chunk: MatchChunk, time_type: pa.DataType) -> pa.Array:
    """Return the events of each choice, in the order of the pattern."""
    names, count = chunk.plan.graph.names, chunk.rows.length
    starts, ends = (
        np.stack([chunk.space.value(point(name), chunk.rows) for name in names], axis=1).ravel()
        for point in (start_of, end_of)
    )
    events = pa.StructArray.from_arrays(
        [
            pa.array([called(name) for name in names] * count, pa.string()),
            pa.array([str(chunk.space.streams[name]) for name in names] * count, pa.string()),
            pa.array(starts).view(time_type),
            pa.array(ends).view(time_type),
        ],
        ["variable", "stream", "start", "end"],
    )
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(names))
    return pa.ListArray.from_arrays(offsets, events)


def _as_lists(texts: Sequence[pa.Array], count: int) -> pa.Array:
    """One list for each choice, with its text in each array."""
    order = np.arange(len(texts) * count).reshape(len(texts), count).T.ravel()
    flat = pa.concat_arrays([pa.array([], pa.string()), *texts]).take(pa.array(order))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * len(texts)), flat)


def _awaited(goals: Goals, until: pa.Array, time_type: pa.DataType, chains: Chains) -> pa.Array:
    """Describe what each choice waits for."""
    count = goals.chunk.rows.length
    if goals.opening is None:
        moment = pc.fill_null(pc.binary_join_element_wise("the time ", _moments(until), ""), "the end of the stream")
        return moment
    variables = {variable.name: variable for variable in goals.opening.whole.variables}
    parts = [_awaited_event(variables[name], after, time_type, chains) for name, after in goals.after.items()]
    words: list[Any] = []
    for part in parts:
        words += [pa.repeat(pa.scalar(" and "), count), part] if words else [part]
    return pc.binary_join_element_wise(*words, "")


def _awaited_event(
    variable: Variable, after: npt.NDArray[np.int64], time_type: pa.DataType, chains: Chains
) -> pa.Array:
    conditions = " AND ".join(render_expression(part) for part in variable.predicates)
    stream = without_rows(variable.stream)
    what = _named(Event(stream, variable.name))
    what += f" [{conditions}]" if conditions else ""
    # The earliest start is one tick after the previous event.
    moment = _moments(pa.array(after - 1, mask=after == NEVER).view(time_type))
    needs = chains.needs(stream)
    return pc.fill_null(pc.binary_join_element_wise(what, " after ", moment, needs, ""), what + needs)


def _moments(times: pa.Array) -> pa.Array:
    return times.cast(pa.string())


def _text(
    goals: Goals, awaited: pa.Array, until: pa.Array, time_type: pa.DataType, following: Sequence[pa.Array]
) -> pa.Array:
    chunk = goals.chunk
    parts: list[Any] = []
    for name in chunk.plan.graph.names:
        start = pa.array(chunk.space.value(start_of(name), chunk.rows)).view(time_type)
        parts += [", " if parts else "", called(name), " at ", _moments(start)]
    parts += ["; waits for ", awaited]
    if goals.opening is not None:
        parts.append(pc.fill_null(pc.binary_join_element_wise(" until ", _moments(until), ""), ""))
    if goals.open:
        parts.append(f"; cancelled by {' or '.join(goals.open)}")
    for text in following:
        parts += ["; ", text]
    return pc.binary_join_element_wise(*parts, "")
