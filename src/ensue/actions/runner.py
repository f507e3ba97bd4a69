"""`act`: delivers the calls of ON statements for a static table or for a Spark stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ensue.actions.bindings import DeadLettersLike, PathLike, Reactions, calls_table, courier_of, resolve_actions
from ensue.actions.delivery import Courier, Deliveries, Route
from ensue.actions.receivers import ReceiverLike
from ensue.actions.sinks import OnSpark
from ensue.api import run
from ensue.errors import SchemaError
from ensue.plan.plans import DEFAULT_LIMIT
from ensue.plan.program_plans import ColumnNames, Columns, by_keys, plan_queries
from ensue.programs import Program, QueryLike, program_statements
from ensue.python.values import WindowLike
from ensue.runtimes.tables import are_frames, arrow_tables, fixed_tables
from ensue.streams import start


def act(
    program: QueryLike,
    events: Any,
    receivers: Mapping[str, ReceiverLike],
    *,
    time: ColumnNames,
    type: str | None = None,
    end: ColumnNames | None = None,
    tables: Mapping[str, Any] | None = None,
    limit: int | None = DEFAULT_LIMIT,
    retries: int = 5,
    backoff: WindowLike = "1 second",
    patience: WindowLike = "1 minute",
    dead_letters: DeadLettersLike | None = None,
    delivered: PathLike | None = None,
    checkpoint: str | None = None,
    **stream: Any,
) -> Any:
    """Calls the actions of a program's ON statements for each of their events.

    `receivers` maps each action to its receiver: a Python function, `webhook`, `table_sink`, `kafka` or `spark_sink`.
    A call that raises an exception is retried up to `retries` times: first after `backoff`, then after twice the
    previous pause. `patience` after the start, calls are no longer retried. Undelivered calls are written to
    `dead_letters`: a folder, a list or a receiver of tables. `delivered` is the path of a journal; calls in the journal
    are not repeated. `tables` are the tables for the program's TABLEs, by name.

    For tables and static DataFrames the result is a `Deliveries`. For streaming DataFrames it is the same as that of
    `ensue.start`: `checkpoint` and `dead_letters` are required, and other parameters of `ensue.start` are accepted.
    `to` also writes the matches of the program's patterns and rules, with a `match_id`, from the same stream.

    >>> program = "STREAM pair FROM PATTERN SEQ(A a, B b) WITHIN 5 RETURN b.t AS at; ON pair p DO tell(p.at)"
    >>> table, told = pa.table({"t": [1, 2], "type": ["A", "B"]}), []
    >>> act(program, table, {"tell": told.append}, time="t", type="type").delivered, told
    (1, [2])
    """
    reactions = resolve_actions(program, receivers)
    courier = courier_of(reactions.routes, retries, backoff, patience, dead_letters, delivered)
    reading = _Columns(Columns(time, type, end), limit, tables)
    if are_frames(events):
        from ensue.runtimes.spark.connectors import is_streaming

        if is_streaming(events):
            return _start(reactions, courier, events, reading, checkpoint, stream)
    if checkpoint is not None or stream:
        given = next(iter(stream), "checkpoint")
        raise SchemaError(
            "stream-option", f"`{given}` is only allowed for streams, but the events are static tables", "remove it"
        )
    return _act_on_tables(reactions, courier, events, reading)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The parameters for reading events."""

    columns: Columns
    limit: int | None
    tables: Mapping[str, Any] | None

    def options(self) -> dict[str, Any]:
        """Returns them as arguments of `ensue.run` and `ensue.start`."""
        own = self.columns
        return {"time": own.time, "type": own.type, "end": own.end, "limit": self.limit, "tables": self.tables}


def _act_on_tables(reactions: Reactions, courier: Courier, events: Any, reading: _Columns) -> Deliveries:
    frames = are_frames(events)
    # Arrow and not pandas or polars, so that receivers get the exact values.
    given = events if frames else arrow_tables(events)[1]
    results = run(reactions.program, given, **reading.options(), match_id=True)
    found = [results[name].toArrow() if frames else results[name] for name in reactions.names]
    results.release()
    calls = [calls_table(*pair) for pair in zip(courier.routes, found, strict=True)]
    if frames:
        from ensue.runtimes.spark.connectors import session_of

        courier = on_session(courier, session_of(events))
    return courier.deliver(calls)


def _start(
    reactions: Reactions,
    courier: Courier,
    events: Any,
    reading: _Columns,
    checkpoint: str | None,
    stream: Mapping[str, Any],
) -> Any:
    if checkpoint is None or courier.dead_letters is None:
        missing = "checkpoint" if checkpoint is None else "dead_letters"
        raise SchemaError(
            "stream-option",
            f"a stream requires `{missing}`",
            "pass a folder for undeliverable calls"
            if checkpoint is not None
            else "pass a folder that only this program uses",
        )
    others = dict(stream)
    to = others.pop("to", None)
    program = reactions.program if to is None else reactions.with_results
    calls = _stream_sinks(program, courier, events, reading)
    return start(
        program,
        events,
        to={**(to or {}), **dict(zip(reactions.names, calls, strict=True))},
        checkpoint=checkpoint,
        match_id=True,
        **reading.options(),
        **others,
    )


def _stream_sinks(program: Program, courier: Courier, events: Any, reading: _Columns) -> Sequence[CallsOfRoute]:
    """Returns a sink for each ON statement. The sinks of one Spark stream deliver together."""
    from ensue.runtimes.spark.frames import empty_tables

    statements = program_statements(program)
    fixed = fixed_tables(reading.tables, statements)
    planned = plan_queries(empty_tables(events), statements, reading.columns, True, fixed)
    before = len(planned.plans) - len(courier.routes)
    sinks = {}
    for group in by_keys(planned):
        places = [place - before for place in group.places if place >= before]
        step = CallsOfStep(replace(courier, routes=tuple(courier.routes[place] for place in places)))
        sinks.update({place: CallsOfRoute(step, number) for number, place in enumerate(places)})
    return [sinks[place] for place in range(len(courier.routes))]


@dataclass(slots=True)
class CallsOfStep:
    """Collects the calls of a micro-batch of one stream."""

    courier: Courier
    tables: list[pa.Table] = field(default_factory=list)

    def collect(self, table: pa.Table, number: int, session: Any) -> None:
        """Adds the calls of route `number`. The last route delivers all calls."""
        self.tables[number:] = [calls_table(self.courier.routes[number], table)]
        if len(self.tables) == len(self.courier.routes):
            on_session(self.courier, session).deliver(self.tables)


@dataclass(frozen=True, slots=True)
class CallsOfRoute:
    """The sink of one ON statement on a Spark stream. It collects the calls on the driver."""

    step: CallsOfStep
    number: int

    def __call__(self, rows: Any, batch: int) -> None:
        self.step.collect(rows.toArrow(), self.number, rows.sparkSession)


def on_session(courier: Courier, session: Any) -> Courier:
    """Returns the courier with its Spark receivers bound to this session."""
    routes = tuple(_on_session(route, session) for route in courier.routes)
    letters = courier.dead_letters
    return replace(
        courier, routes=routes, dead_letters=letters.on(session) if isinstance(letters, OnSpark) else letters
    )


def _on_session(route: Route, session: Any) -> Route:
    receiver = route.receiver
    return replace(route, receiver=receiver.on(session)) if isinstance(receiver, OnSpark) else route
