"""`ensue.actions.act`: delivers the calls of ON statements for a static table or for a Spark stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ensue.actions.bindings import Delivery, Reactions, calls_table, courier_of, resolve_actions
from ensue.actions.delivery import Courier, Deliveries, Route
from ensue.actions.receivers import ReceiverLike
from ensue.actions.sinks import OnSpark
from ensue.api import run, tell_ties
from ensue.arguments import accepted_by, helpful, unknown_argument
from ensue.errors import SchemaError
from ensue.plan.plans import DEFAULT_LIMITS, Limits
from ensue.plan.program_plans import ColumnNames, Columns, OrderColumns, by_keys, plan_queries
from ensue.programs import Program, QueryLike, program_statements
from ensue.runtimes.tables import DescribedEvents, are_frames, arrow_tables, described, fixed_tables
from ensue.streams import start


@helpful
def act(
    events: Any,
    query: QueryLike,
    actions: Mapping[str, ReceiverLike],
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    tables: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    delivery: Delivery | None = None,
    checkpointLocation: str | None = None,  # noqa: N803 (Spark's word)
    **stream: Any,
) -> Any:
    """Calls the actions of a program's ON statements for each of their events.

    `actions` has the receiver of each action: a Python function or one of `ensue.actions.webhook`, `table_sink`,
    `kafka`, `spark_sink`. `delivery` says how often a call is retried, where failed calls go, and which calls are not
    repeated. `tables` are those of the program's TABLEs, by name.

    For tables and static DataFrames, the result is an `ensue.actions.Deliveries`. For streaming DataFrames, it is the
    `StreamHandle` of the running stream, as from `ensue.start`. A stream requires `checkpointLocation` and a `delivery`
    with `dead_letters`, and accepts the other options of `ensue.start` (`trigger`, `tick`, ...). With `to`, the same
    stream also writes the matches of the program's patterns and rules, with a `match_id`, as `ensue.start` does.

    >>> program = "STREAM pair FROM PATTERN SEQ(A a, B b) WITHIN 5 RETURN b.t AS at; ON pair p DO tell(p.at)"
    >>> table, told = pa.table({"t": [1, 2], "type": ["A", "B"]}), []
    >>> act(table, program, {"tell": told.append}, time="t", type="type").delivered, told
    (1, [2])
    """
    accepted = (*accepted_by(act), *accepted_by(start))
    for name in stream:
        if name not in accepted:
            raise unknown_argument("ensue.actions.act", name, tuple(dict.fromkeys(accepted)))
    reactions = resolve_actions(query, actions)
    courier = courier_of(reactions.routes, delivery)
    source = described(events, time, type, end, order, tables=tables)
    events = source.table
    reading = _Columns(source.columns, limits, tables, source.offered)
    if are_frames(events):
        from ensue.runtimes.spark.connectors import is_streaming

        if is_streaming(events):
            return _start(reactions, courier, events, reading, checkpointLocation, stream)
    if checkpointLocation is not None or stream:
        given = next(iter(stream), "checkpointLocation")
        raise SchemaError(
            "stream-option", f"`{given}` is only allowed for streams, but the events are static tables", "remove it"
        )
    return _act_on_tables(reactions, courier, events, reading)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The parameters for reading events."""

    columns: Columns
    limits: Limits
    tables: Mapping[str, Any] | None
    offered: Mapping[str, Any] | None

    def source(self, events: Any) -> DescribedEvents:
        """The events of `ensue.run` and `ensue.start`."""
        return DescribedEvents(events, self.columns, offered=self.offered)


def _act_on_tables(reactions: Reactions, courier: Courier, events: Any, reading: _Columns) -> Deliveries:
    frames = are_frames(events)
    # Arrow and not pandas or polars, so that receivers get the exact values.
    given = events if frames else arrow_tables(events)[1]
    source = reading.source(given)
    results = run(source, reactions.program, limits=reading.limits, tables=reading.tables, match_id=True)
    found = [results[name].toArrow() if frames else results[name] for name in reactions.names]
    tell_ties(results)
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
    if checkpoint is None:
        raise SchemaError(
            "stream-option",
            "a stream requires `checkpointLocation`",
            "pass a folder that only this program uses",
        )
    if courier.dead_letters is None:
        raise SchemaError(
            "stream-option",
            "a stream requires `dead_letters`",
            "pass `delivery=ensue.actions.Delivery(dead_letters=folder)`: a stream returns no report of failed calls",
        )
    others = dict(stream)
    to = others.pop("to", None)
    program = reactions.program if to is None else reactions.with_results
    calls = _stream_sinks(program, courier, events, reading)
    return start(
        reading.source(events),
        program,
        to={**(to or {}), **dict(zip(reactions.names, calls, strict=True))},
        checkpointLocation=checkpoint,
        match_id=True,
        limits=reading.limits,
        tables=reading.tables,
        **others,
    )


def _stream_sinks(program: Program, courier: Courier, events: Any, reading: _Columns) -> Sequence[CallsOfRoute]:
    """Returns a sink for each ON statement. The sinks of one Spark stream deliver together."""
    from ensue.runtimes.spark.frames import empty_tables

    statements = program_statements(program)
    fixed = fixed_tables(reading.tables, statements, reading.offered)
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
