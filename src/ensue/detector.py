"""`Detector`: detection on batches of events. Each step returns the matches completed since the last watermark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import repeat
from typing import Any, TypeAlias

import pyarrow as pa

from ensue.api import checked_limit, warn_set_aside
from ensue.constraints import ConstraintsLike
from ensue.engine.events import FOREVER
from ensue.engine.machine import Machine, State, compile_plan, completing_streams
from ensue.engine.snapshot import kept_derived, kept_events, read_header, restore, saved_schemas, snapshot
from ensue.engine.sources import SAFE_TIME, Mask, Report
from ensue.errors import SchemaError, StateError, counted, warn
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.kernels.warm_up import compile_missing
from ensue.lower.phases import LoweredProgram
from ensue.nodes.names import Stream
from ensue.plan.plans import DEFAULT_LIMIT, Options
from ensue.plan.program_plans import ColumnNames, Columns, plan_queries, with_violations
from ensue.plan.states import refuse_ahead
from ensue.programs import QueryLike, single_statement
from ensue.runtimes.moments import ticks_of
from ensue.runtimes.tables import ARROW, arrow_tables, conform, fixed_tables, learn_types

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Kinds: TypeAlias = tuple[type, ...]
"""Python types of values."""

Batch: TypeAlias = "dict[Stream | None, pa.Table]"
"""The tables of one step by stream. None is the only table, with all streams."""


@dataclass(frozen=True, slots=True)
class Advance:
    """The result of one step: the completed matches, and the late rows (a table, or one per stream).

    `violations` are the traces that break a constraint, if requested.
    """

    matches: Any
    late: Any
    violations: Any = None


class Detector:
    """Runs a query on events that arrive in batches. Returns each match once, when the watermark reaches its end.

    The watermark is a promise that no more events arrive that end at or before it. Events that break it are late.

    >>> detector = Detector("PATTERN SEQ(A a, NOT B b) WITHIN 5 RETURN a.t AS at", time="t", type="type")
    >>> detector.advance(pa.table({"t": [1, 3, 4], "type": ["A", "A", "B"]}), watermark=4).matches.to_pylist()
    []
    >>> detector.advance(pa.table({"t": [9], "type": ["A"]}), watermark=10).matches.to_pylist()
    []
    >>> detector.finish().matches.to_pylist()
    [{'at': 9}]
    """

    def __init__(
        self,
        query: QueryLike,
        *,
        time: ColumnNames,
        type: str | None = None,
        end: ColumnNames | None = None,
        probability: str | None = None,
        alternatives: str | None = None,
        limit: int | None = DEFAULT_LIMIT,
        match_id: bool = False,
        constraints: ConstraintsLike | None = None,
        violations: bool = False,
        tables: Mapping[str, Any] | None = None,
    ) -> None:
        self._statements = self._meant(query, constraints)
        refuse_ahead(self._statements, end)
        self._fixed = fixed_tables(tables, self._statements)
        self._columns = Columns(time, type, end, probability, alternatives)
        self._match_id = match_id
        self._violations = violations
        self._options = Options(limit=checked_limit(limit))
        self._machine: Machine | None = None
        self._state: State | None = None
        self._schemas: dict[Stream | None, pa.Schema] = {}
        self._per_stream = False
        self._kind = ARROW
        self._finished = False
        self._warned_of_late_rows = False
        self._pushed: PushedRows | None = None

    @property
    def report(self) -> Report:
        """The number of rows read and ignored so far."""
        self._settle()
        return self._state.report if self._state else Report()

    @property
    def watermark(self) -> int | None:
        """The current watermark in ticks of the time column; None before the first step."""
        self._settle()
        return self._state.watermark if self._state else None

    @property
    def kept_rows(self) -> int:
        """The number of kept events."""
        self._settle()
        return self._state.kept_rows if self._state else 0

    @property
    def kept_bytes(self) -> int:
        """The size of the kept events in memory."""
        self._settle()
        return self._state.kept_bytes if self._state else 0

    def kept_events(self, *, derived: bool = False) -> Any:
        """Returns the kept events: one table, or one per stream, like the batches.

        The tables have the columns that the query reads, and include events after the watermark. With `derived`, it
        returns the kept events of declared streams and rules instead: one table per name, with the columns `start` and
        `end` for the times.

        >>> detector = Detector("PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 5 RETURN a.k AS k", time="t", type="type")
        >>> batch = pa.table({"t": [1, 3, 4], "type": ["A", "C", "A"], "k": [1, 1, 2]})
        >>> _ = detector.advance(batch, watermark=5)
        >>> detector.kept_events().to_pylist()
        [{'t': 1, 'type': 'A', 'k': 1}, {'t': 4, 'type': 'A', 'k': 2}]
        """
        if self._machine is None or self._state is None:
            raise StateError("no-state", "the detector has not read any events yet", "call `advance` first")
        self._settle()
        give = self._kind.from_arrow
        if derived:
            return {name: give(table) for name, table in kept_derived(self._machine, self._state).items()}
        tables = [give(table) for table in kept_events(self._machine, self._state)]
        if not self._per_stream:
            return tables[0]
        return {item.stream: table for item, table in zip(self._machine.inputs, tables, strict=True)}

    def advance(self, events: Any = None, *, watermark: Any) -> Advance:
        """Processes a batch (a table, a mapping of streams to tables, or None) and advances the watermark.

        `watermark` is an integer for integer time, otherwise a datetime, a pandas or numpy timestamp, or ISO 8601 text.
        """
        self._settle()
        batch = self._receive(events)
        assert self._machine is not None and self._state is not None
        until = ticks_of(watermark, self._machine.time_type)
        if self._state.watermark is not None and until < self._state.watermark:
            behind = self._state.watermark - until
            raise StateError(
                "watermark-backwards",
                f"watermark {watermark!r} is {counted(behind, 'tick', 'ticks')} before the last one",
                "pass a watermark at or after the last one",
            )
        return self._step(batch, until)

    def finish(self, events: Any = None) -> Advance:
        """Processes the last batch and returns all remaining matches. No more events are accepted."""
        self._settle()
        step = self._step(self._receive(events), None)
        self._finished = True
        return step

    def snapshot(self) -> pa.Table:
        """Returns the state as one Arrow table: the kept events, the version, the query and the watermark."""
        self._settle()
        if self._machine is None or self._state is None:
            raise StateError("no-state", "the detector has no state to save yet", "call `advance` first")
        return snapshot(self._machine, self._state, self._per_stream, self._schemas)

    def restore(self, saved: pa.Table) -> None:
        """Resumes from a snapshot of the same query."""
        header = read_header(saved)
        tables = {name: schema.empty_table() for name, schema in saved_schemas(saved).items()}
        per_stream = {name: table for name, table in tables.items() if name is not None}
        machine = self._compiled(per_stream if header["per_stream"] else next(iter(tables.values())))
        self._machine, self._state = machine, restore(machine, saved)
        self._finished, self._pushed = False, None

    def push(self, event: Mapping[str, Any], *, watermark: Any) -> list[dict[str, Any]]:
        """Processes one event, advances the watermark, and returns the completed matches as rows.

        It is the same as `advance` with a table of one row. The events must have a column `type`. Missing columns are
        null.

        >>> detector = Detector("PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.t AS a, b.t AS b", time="t", type="type")
        >>> detector.push({"t": 1, "type": "A"}, watermark=1)
        []
        >>> detector.push({"t": 3, "type": "B"}, watermark=3)
        [{'a': 1, 'b': 3}]
        """
        pushed = self._pushed
        if pushed is None and self._machine is not None and self._state is not None and not self._finished:
            pushed = self._pushed = PushedRows.of(self._machine, self._state)
        if pushed is None or not pushed.takes(event, watermark):
            table = pa.Table.from_pylist([{**dict.fromkeys(self._columns_known()), **event}])
            return list(self.advance(table, watermark=watermark).matches.to_pylist())
        if not pushed.is_due:
            return []
        found = self._settle()
        self._pushed = pushed.emptied()
        return found

    def _columns_known(self) -> Sequence[str]:
        return next(iter(self._schemas.values())).names if self._schemas and not self._per_stream else ()

    def _settle(self) -> list[dict[str, Any]]:
        """Runs the step that `push` has deferred, and returns its matches as rows."""
        pushed, self._pushed = self._pushed, None
        if pushed is None or (not pushed.rows and not pushed.skipped):
            return []
        assert self._machine is not None and self._state is not None
        item = self._machine.inputs[0]
        self._kind = ARROW
        self._state.report.rows += pushed.skipped
        columns = [pa.array([row.get(field.name) for row in pushed.rows], field.type) for field in item.table.schema]
        batch: Batch = {item.stream: pa.Table.from_arrays(columns, schema=item.table.schema)}
        matches = self._step(batch, pushed.watermark, pushed.latest).matches
        return list(matches.to_pylist()) if matches.num_rows else []

    def _receive(self, events: Any) -> Batch:
        """Returns the batch as Arrow tables by stream. Compiles the query for the first batch."""
        if self._finished:
            raise StateError("finished", "the detector is finished and accepts no more events", "create a new detector")
        if events is None:
            if self._machine is None:
                raise SchemaError("no-tables", "the first step requires a table", "pass a table; it can be empty")
            return {}
        self._kind, tables = arrow_tables(events)
        if self._machine is None:
            self._machine = self._compiled(tables)
            self._state = self._machine.start()
        batch = self._by_stream(tables, self._machine)
        self._learn_types(batch, self._machine)
        return batch

    def _by_stream(self, tables: Mapping[str, pa.Table] | pa.Table, machine: Machine) -> Batch:
        if isinstance(tables, Mapping) != self._per_stream:
            raise SchemaError("table-shape", "all batches must be single tables, or all must be one table per stream")
        batch: Batch = {}
        batch.update(tables if isinstance(tables, Mapping) else {machine.inputs[0].stream: tables})
        unknown = [name for name in batch if name not in [item.stream for item in machine.inputs]]
        if unknown:
            raise SchemaError("unknown-stream", f"unknown stream `{unknown[0]}`: the first batch had no such table")
        return batch

    def _learn_types(self, batch: Batch, machine: Machine) -> None:
        """Compiles the query again if a column that was empty so far gets a type."""
        self._schemas |= {
            name: learn_types(self._schemas[name], table.schema)
            for name, table in batch.items()
            if name in self._schemas
        }
        if all(
            learn_types(item.table.schema, self._schemas[item.stream]).equals(item.table.schema)
            for item in machine.inputs
        ):
            return
        assert self._state is not None
        empty = {name: schema.empty_table() for name, schema in self._schemas.items()}
        self._machine = self._compiled(
            {name: table for name, table in empty.items() if name is not None}
            if self._per_stream
            else next(iter(empty.values()))
        )
        self._state = self._machine.taken_over(self._state)

    def _step(self, batch: Batch, until: int | None, horizon: int | None = None) -> Advance:
        machine = self._machine
        assert machine is not None and self._state is not None
        fresh = [
            conform(batch[item.stream], item.table.schema, item.label) if item.stream in batch else item.table
            for item in machine.inputs
        ]
        step = machine.step(self._state, machine.read(fresh), until, horizon=horizon)
        self._state = step.state
        self._warn(step.report)
        give = self._kind.from_arrow
        late = {
            item.stream: give(_rows_of(batch[item.stream], mask) if item.stream in batch else item.table)
            for item, mask in zip(machine.inputs, step.late, strict=True)
        }
        late_rows = late if self._per_stream else next(iter(late.values()))
        return self._given(step.outputs, late_rows)

    def _meant(self, query: QueryLike, constraints: ConstraintsLike | None) -> LoweredProgram:
        """Returns the statements to detect. Subclasses can detect several patterns."""
        return single_statement(query, constraints)

    def _given(self, tables: Sequence[pa.Table], late: Any) -> Advance:
        """Returns the result of a step from the tables of the plans."""
        matches, *broken = map(self._kind.from_arrow, tables)
        return Advance(matches, late, broken[0] if broken else None)

    def _warn(self, report: Report) -> None:
        warn_set_aside(report)
        if report.late and not self._warned_of_late_rows:
            self._warned_of_late_rows = True
            warn(f"{counted(report.late, 'late row', 'late rows')} ignored: at or before the watermark; see `late`")

    def _compiled(self, tables: Mapping[str, pa.Table] | pa.Table) -> Machine:
        planned = plan_queries(tables, self._statements, self._columns, self._match_id, self._fixed)
        self._per_stream = isinstance(tables, Mapping)
        compile_missing(states=planned.states is not None)
        if self._violations:
            planned = with_violations(planned, self._statements)
        given: Batch = {}
        given.update(tables if isinstance(tables, Mapping) else {planned.inputs[0].stream: tables})
        self._schemas = {item.stream: given[item.stream].schema for item in planned.inputs}
        return compile_plan(planned, self._options)


@dataclass(slots=True)
class PushedRows:
    """Rows that were pushed one by one and are not processed yet, because they cannot complete a match.

    `wanted` are the streams of the query, `completing` those whose events complete matches. `due` is the earliest end
    of an unprocessed event of a completing stream. `skipped` counts rows of other streams, `latest` is the latest end
    of any row.
    """

    time: str
    type: str
    unit: str | None
    wanted: frozenset[Stream]
    completing: frozenset[Stream]
    watermark: int | None
    due: int | None
    nothing_waited: bool
    """Whether there were no rows after the watermark before the first of these rows."""
    accepted: Mapping[str, Kinds]
    """The Python types of each column. Rows with other types are processed at once, so that their errors are raised."""
    rows: list[Mapping[str, Any]]
    skipped: int = 0
    latest: int | None = None
    furthest: int | None = None
    """The latest end of a row of a wanted stream."""

    @classmethod
    def of(cls, machine: Machine, state: State) -> PushedRows | None:
        """Returns the rows to defer; None if rows cannot be deferred: several tables, or time completes matches."""
        item, completing, reached = machine.inputs[0], completing_streams(machine.plan), state.watermark
        if completing is None or len(machine.inputs) > 1 or item.type is None or item.end is not None:
            return None
        if pa.null() in item.table.schema.types:
            return None
        accepted = {field.name: _accepted(field.type) for field in item.table.schema}
        if not all(accepted.values()):
            return None
        unit = None if pa.types.is_integer(machine.time_type) else machine.time_type.unit
        due = FOREVER
        for kept in (kept for stage in state.stages for kept in stage.kept if len(kept)):
            waiting = kept.ends if reached is None else kept.ends[kept.ends > reached]
            due = min(due, int(waiting.min(initial=FOREVER)))
        wanted = frozenset(stream for plan in machine.plans for stream in plan.streams)
        first = None if due == FOREVER else due
        return cls(item.time, item.type, unit, wanted, completing, reached, first, first is None, accepted, [])

    def emptied(self) -> PushedRows | None:
        """Returns empty rows after a step; None if one of the rows is after the watermark and waits."""
        if self.furthest is None or self.watermark is None or self.furthest > self.watermark or not self.nothing_waited:
            return None
        return replace(self, due=None, rows=[], skipped=0, latest=None, furthest=None)

    @property
    def is_due(self) -> bool:
        return self.due is not None and self.watermark is not None and self.due <= self.watermark

    def takes(self, event: Mapping[str, Any], watermark: Any) -> bool:
        """Adds a row and advances the watermark. Returns False for a row that needs a full step, such as a late row."""
        moment, kind = self._ticks(event.get(self.time)), event.get(self.type)
        until = self._ticks(watermark)
        if moment is None or until is None or type(kind) is not str or not -SAFE_TIME < moment < SAFE_TIME:
            return False
        if self.watermark is not None and (moment <= self.watermark or until < self.watermark):
            return False
        if kind in self.wanted and not all(map(self._fits, self.accepted.items(), repeat(event))):
            return False
        self.latest = moment if self.latest is None or moment > self.latest else self.latest
        if kind in self.wanted:
            self.rows.append(event)
            self.furthest = moment if self.furthest is None or moment > self.furthest else self.furthest
            if kind in self.completing and (self.due is None or moment < self.due):
                self.due = moment
        else:
            self.skipped += 1
        self.watermark = until
        return True

    @staticmethod
    def _fits(column: tuple[str, Kinds], event: Mapping[str, Any]) -> bool:
        """Returns whether the value of a row fits its column or is missing."""
        name, kinds = column
        value = event.get(name)
        fits = value is None or type(value) in kinds
        return fits and (type(value) is not int or -(2**53) <= value <= 2**53)

    def _ticks(self, moment: Any) -> int | None:
        """Returns a time in ticks of the time column; None if it is not an integer or a datetime in whole ticks."""
        if self.unit is None:
            return moment if type(moment) is int else None
        if type(moment) is not datetime:
            return None
        since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - EPOCH
        microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        nanoseconds, length = microseconds * 1000, NANOSECONDS_PER_UNIT[self.unit]
        return None if nanoseconds % length else nanoseconds // length


def _accepted(kind: pa.DataType) -> Kinds:
    """Returns the Python types that a column accepts without conversion; none for other column types."""
    if pa.types.is_int64(kind):
        return (int,)
    if pa.types.is_float64(kind):
        return (float, int)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (str,)
    if pa.types.is_timestamp(kind):
        return (datetime,)
    return (bool,) if pa.types.is_boolean(kind) else ()


def _rows_of(table: pa.Table, mask: Mask) -> pa.Table:
    return table.filter(pa.array(mask)) if mask.any() else table.slice(0, 0)
