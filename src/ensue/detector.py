"""`Detector`: detection on batches of events. A step returns matches, delivers calls of actions and tracks states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import pyarrow as pa

from ensue.actions.bindings import Delivery, Reactions, calls_table, courier_of, resolve_actions
from ensue.actions.delivery import Courier, Deliveries
from ensue.actions.receivers import ReceiverLike
from ensue.api import Results, match_limit, warn_set_aside
from ensue.arguments import helpful
from ensue.beliefs import Beliefs, TrackingOptions, by_stream, tracked_beliefs, warn_ignored
from ensue.constraints import ConstraintsLike
from ensue.engine.belief.follower import BeliefAnswers
from ensue.engine.machine import Machine, State, compile_plan
from ensue.engine.pushed_rows import PushedRows
from ensue.engine.snapshot import kept_derived, kept_events, read_header, restore, saved_schemas, snapshot
from ensue.engine.sources import Mask, Report
from ensue.errors import SchemaError, StateError, counted, warn
from ensue.kernels.warm_up import compile_missing
from ensue.lower.phases import CheckedProgram, LoweredProgram, lower
from ensue.nodes.names import Stream
from ensue.nodes.states import Measure
from ensue.plan.inputs import InputTable
from ensue.plan.plans import DEFAULT_LIMITS, Limits, Options
from ensue.plan.program_plans import ColumnNames, Columns, OrderColumns, plan_queries, warn_of_unusable, with_violations
from ensue.plan.states import StateQuestions, refuse_ahead, refuse_ends
from ensue.programs import (
    Program,
    QueryLike,
    has_one_result,
    lowered_result,
    program_statements,
    refuse_several,
    wanted_result,
    written_statements,
)
from ensue.runtimes.local_beliefs import BeliefMachine, open_states
from ensue.runtimes.moments import ticks_of
from ensue.runtimes.tables import ARROW, arrow_tables, conform, fixed_tables, learn_types, shape_in_words

Batch: TypeAlias = "dict[Stream | None, pa.Table]"
"""The tables of one step by stream. None is the only table, with all streams."""

LATE = "late"
"""The reason for which late rows are ignored."""


@dataclass(frozen=True, slots=True)
class DetectorStep:
    """The results of one step. Parts that the detector was not asked for are None.

    `matches` are the matches that completed: one table or, if the program has several results, a mapping from their
    names to tables, as `ensue.run` returns it. `late` are the rows that came at or before the watermark. `violations`
    are the traces that broke a constraint. `deliveries` counts what became of the calls of actions. `tracked` are the
    events that the watermark has reached, with a column for each measure; `ignored` are those of them that a STATE
    ignored, with the reason. `late`, `tracked` and `ignored` are one table, or one table per stream, as the batches.
    """

    matches: Any
    late: Any
    violations: Any = None
    deliveries: Deliveries | None = None
    tracked: Any = None
    ignored: Any = None

    def __repr__(self) -> str:
        parts = ((field.name, getattr(self, field.name)) for field in fields(self))
        return "DetectorStep" + "".join(f"\n  {name}: {_shown(part)}" for name, part in parts if part is not None)


def _shown(part: Any) -> str:
    """A part of a step in one line: the rows and columns of tables, the counts of deliveries."""
    if isinstance(part, Mapping):
        return "; ".join(f"{stream}: {shape_in_words(table)}" for stream, table in part.items())
    return repr(part) if isinstance(part, Deliveries) else shape_in_words(part)


class Detector:
    """Runs a query on events that arrive in batches. Returns each match once, when the watermark reaches its end.

    The watermark is a promise that no more events arrive that end at or before it. Events that break it are late: a
    step returns them and otherwise ignores them.

    >>> detector = Detector("PATTERN SEQ(A a, NOT B b) WITHIN 5 RETURN a.t AS at", time="t", type="type")
    >>> detector.advance(pa.table({"t": [1, 3, 4], "type": ["A", "A", "B"]}), watermark=4).matches.to_pylist()
    []
    >>> detector.advance(pa.table({"t": [9], "type": ["A"]}), watermark=10).matches.to_pylist()
    []
    >>> detector.finish().matches.to_pylist()
    [{'at': 9}]

    With `actions`, each step delivers the calls of the program's ON statements. `actions` has a receiver for each
    action, and `delivery` says how calls are delivered; see `ensue.actions.act`. After a restart, from an earlier
    snapshot or none, the same events give the same deliveries again; those in the journal are not repeated.

    >>> program = "STREAM late FROM PATTERN SEQ(A a, NOT B b) WITHIN 5 RETURN a.t AS at; ON late l DO tell(l.at)"
    >>> told = []
    >>> detector = Detector(program, time="t", type="type", actions={"tell": told.append})
    >>> detector.advance(pa.table({"t": [1, 2, 9], "type": ["A", "B", "A"]}), watermark=20).deliveries.delivered
    1
    >>> told
    [9]

    With `measures`, each step returns the events with what the program's STATEs believe at them: a column for each
    measure. `tracking` says how states are tracked, and `beliefs()` returns what is believed now. A program that has
    only STATEs is always tracked.

    >>> program = "STATE location OF alice, bob IN (home, away) STARTS home ON Moved m: MOVE ANYONE FROM home TO away"
    >>> detector = Detector(program, time="t", type="type", measures={"home": "E(count(home))"})
    >>> batch = pa.table({"t": [1, 5], "type": ["Moved", "Moved"]})
    >>> detector.advance(batch, watermark=3).tracked.column("home").to_pylist()
    [1.0]
    >>> detector.finish().tracked.column("home").to_pylist()
    [0.0]

    `matches` are those of the program's one PATTERN, or of its one final rule head. If a program has several, `matches`
    has the table of each PATTERN and head by name, as the result of `ensue.run` has. With `actions` or `measures`, a
    program may also have none; then `matches` is None.

    >>> program = "PATTERN p SEQ(A a, B b) WITHIN 5; PATTERN q SEQ(A a, C c) WITHIN 5"
    >>> detector = Detector(program, time="t", type="type")
    >>> step = detector.finish(pa.table({"t": [1, 2], "type": ["A", "B"]}))
    >>> {name: matches.num_rows for name, matches in step.matches.items()}
    {'p': 1, 'q': 0}
    """

    @helpful
    def __init__(
        self,
        query: QueryLike,
        *,
        time: ColumnNames,
        type: str | None = None,
        end: ColumnNames | None = None,
        order: OrderColumns | None = None,
        probability: str | None = None,
        alternatives: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        match_id: bool = False,
        constraints: ConstraintsLike | None = None,
        violations: bool = False,
        tables: Mapping[str, Any] | None = None,
        actions: Mapping[str, ReceiverLike] | None = None,
        delivery: Delivery | None = None,
        measures: Mapping[str, str | Measure] | None = None,
        tracking: TrackingOptions | None = None,
    ) -> None:
        written = written_statements(query, constraints)
        self._questions = _questions(written, measures, tracking, probability, acting=actions is not None)
        reactions = None if actions is None else resolve_actions(Program(written), actions)
        self._courier = _courier(reactions, delivery)
        if not (written.results or written.heads) and reactions is None and self._questions is None:
            refuse_several(written)
        self._names = _names_of_results(written)
        """The names of the tables of matches."""
        self._statements = _statements(written, reactions, bool(self._names), violations)
        """What is looked for; None if states are tracked and nothing else."""
        if self._questions is not None:
            refuse_ends(self._questions, end)
        if self._statements is not None:
            refuse_ahead(self._statements, end)
        self._fixed = (
            {} if self._statements is None else fixed_tables(tables, self._statements, limit=match_limit(limits))
        )
        self._columns = Columns(time, type, end, probability, alternatives, order)
        self._match_id = match_id
        self._violations = violations
        self._options = Options(limit=match_limit(limits))
        self._machine: Machine | None = None
        self._state: State | None = None
        self._schemas: dict[Stream | None, pa.Schema] = {}
        self._per_stream = False
        self._kind = ARROW
        self._finished = False
        self._warned: set[object] = set()
        self._pushed: PushedRows | None = None

    def __repr__(self) -> str:
        state = self._state
        if state is None:
            return "<Detector: no events yet>"
        kept = counted(self.kept_rows, "kept event", "kept events")
        return f"<Detector: {counted(self.report.rows, 'row', 'rows')} read, {kept}, watermark={self.watermark}>"

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
        `end` for the times, and the kept elements of lists (UNNEST).

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

    @helpful
    def advance(self, events: Any = None, *, watermark: Any) -> DetectorStep:
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

    def finish(self, events: Any = None) -> DetectorStep:
        """Processes the last batch and returns all remaining matches. No more events are accepted."""
        self._settle()
        step = self._step(self._receive(events), None)
        self._finished = True
        return step

    def snapshot(self) -> pa.Table:
        """Returns the state as one Arrow table: kept events, beliefs, version, query and watermark.

        The calls of the last step have been delivered by then.
        """
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

    def beliefs(self) -> Beliefs:
        """What the STATEs of the program believe after the events that the watermark has reached.

        >>> program = "STATE location OF alice IN (home, away) STARTS home ON Left l: MOVE alice FROM home TO away"
        >>> detector = Detector(program, time="t", type="type")
        >>> _ = detector.advance(pa.table({"t": [1, 9], "type": ["Left", "Left"]}), watermark=5)
        >>> detector.beliefs().probability("alice in away").to_pylist()
        [{'probability': 1.0}]
        """
        if self._machine is None or self._state is None:
            raise StateError("no-state", "the detector has not read any events yet", "call `advance` first")
        if self._machine.states is None:
            hint = "pass `measures`, which may be empty: `measures={}`"
            raise StateError("no-state", "this detector tracks no STATE", hint)
        return tracked_beliefs(BeliefMachine(self._machine), self._state, self._kind, self._per_stream)

    def push(self, event: Mapping[str, Any], *, watermark: Any) -> Any:
        """Processes one event, advances the watermark, and returns the completed matches as rows.

        It is the same as `advance` with a table of one row. The events must have a column `type`. Missing columns are
        null. Calls of actions are delivered as in `advance`. If the program has several results, it returns a
        dictionary with the rows of each.

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
            return self._rows(self.advance(table, watermark=watermark).matches)
        if not pushed.is_due:
            return self._rows(None)
        found = self._settle()
        self._pushed = pushed.emptied()
        return found

    def _columns_known(self) -> Sequence[str]:
        return next(iter(self._schemas.values())).names if self._schemas and not self._per_stream else ()

    def _rows(self, matches: Any) -> Any:
        """The matches of a step as rows."""
        if len(self._names) > 1:
            return {name: [] if matches is None else matches[name].to_pylist() for name in self._names}
        return [] if matches is None else matches.to_pylist()

    def _settle(self) -> Any:
        """Runs the step that `push` has deferred, and returns its matches as rows."""
        pushed, self._pushed = self._pushed, None
        if pushed is None or (not pushed.rows and not pushed.skipped):
            return self._rows(None)
        assert self._machine is not None and self._state is not None
        item = self._machine.inputs[0]
        self._kind = ARROW
        self._state.report.rows += pushed.skipped
        columns = [pa.array([row.get(field.name) for row in pushed.rows], field.type) for field in item.table.schema]
        batch: Batch = {item.stream: pa.Table.from_arrays(columns, schema=item.table.schema)}
        return self._rows(self._step(batch, pushed.watermark, pushed.latest).matches)

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

    def _step(self, batch: Batch, until: int | None, horizon: int | None = None) -> DetectorStep:
        machine = self._machine
        assert machine is not None and self._state is not None
        fresh = [
            conform(batch[item.stream], item.table.schema, item.label) if item.stream in batch else item.table
            for item in machine.inputs
        ]
        step = machine.step(self._state, machine.read(fresh), until, horizon=horizon)
        self._state = step.state
        told = None if self._questions is None else step.told
        self._warn(step.report, told)
        given = {
            item.stream: _rows_of(batch[item.stream], mask) if item.stream in batch else item.table
            for item, mask in zip(machine.inputs, step.late, strict=True)
        }
        late = self._given(list(given.values()), machine.inputs)
        return self._results(list(step.outputs), late, told)

    def _results(self, outputs: list[pa.Table], late: Any, told: BeliefAnswers | None) -> DetectorStep:
        """What a step gives, from the tables of the plans: matches, then calls, then violations."""
        give = self._kind.from_arrow
        matches = [outputs.pop(0) for _ in self._names]
        if self._courier is not None and not self._match_id:
            # The ids of calls are those of matches; only the user's own wish shows them.
            matches = [table.drop_columns(table.column_names[0]) for table in matches]
        found = [*map(give, matches)]
        broken = give(outputs.pop()) if self._violations else None
        deliveries = None
        if self._courier is not None:
            pairs = zip(self._courier.routes, outputs, strict=True)
            deliveries = self._courier.deliver([calls_table(*pair) for pair in pairs])
        tracked, aside = self._told(told)
        shown = Results(self._names, found) if len(found) > 1 else next(iter(found), None)
        return DetectorStep(shown, late, broken, deliveries, tracked, aside)

    def _told(self, told: BeliefAnswers | None) -> tuple[Any, Any]:
        """The events with their measures, and those that a state ignored."""
        if told is None:
            return None, None
        assert self._machine is not None and self._machine.states is not None
        asked = self._machine.states.questions
        others = [column.name for column in asked.columns if column.name not in (asked.measured or ())]
        rows = [table.drop_columns(others) for table in told.rows]
        return self._given(rows, self._machine.inputs), self._given(told.ignored.tables, self._machine.inputs)

    def _given(self, tables: Sequence[pa.Table], inputs: Sequence[InputTable]) -> Any:
        return by_stream(tables, inputs, self._kind, self._per_stream)

    def _warn(self, report: Report, told: BeliefAnswers | None) -> None:
        if self._statements is not None:
            warn_set_aside({"": report}, self._warned)
            self._warned |= {*report.ignored, *report.ties}
        if told is not None:
            warn_ignored(told.ignored, self._warned)
            self._warned |= {*told.ignored.counts}
        if report.late and LATE not in self._warned:
            self._warned.add(LATE)
            warn(f"{counted(report.late, 'late row', 'late rows')} ignored: at or before the watermark; see `late`")

    def _compiled(self, tables: Mapping[str, pa.Table] | pa.Table) -> Machine:
        machine = self._machine_for(tables)
        self._per_stream = isinstance(tables, Mapping)
        compile_missing(states=machine.states is not None)
        given: Batch = {}
        given.update(tables if isinstance(tables, Mapping) else {machine.inputs[0].stream: tables})
        self._schemas = {item.stream: given[item.stream].schema for item in machine.inputs}
        return machine

    def _machine_for(self, tables: Mapping[str, pa.Table] | pa.Table) -> Machine:
        if self._statements is None:
            assert self._questions is not None
            return open_states(tables, self._questions, self._columns)[0].machine
        ids = self._match_id or self._courier is not None
        planned = plan_queries(tables, self._statements, self._columns, ids, self._fixed, self._questions)
        warn_of_unusable(planned)
        if self._violations:
            planned = with_violations(planned, self._statements)
        return compile_plan(planned, self._options)


def _questions(
    written: CheckedProgram,
    measures: Mapping[str, str | Measure] | None,
    tracking: TrackingOptions | None,
    probability: str | None,
    *,
    acting: bool,
) -> StateQuestions | None:
    """What is asked of the STATEs, if the user asks or there is nothing else to do."""
    only_states = bool(written.states) and not (written.results or written.heads or acting)
    if measures is None and tracking is None and not only_states:
        return None
    return (tracking or TrackingOptions()).questions(written, measures or {}, probability)


def _courier(reactions: Reactions | None, delivery: Delivery | None) -> Courier | None:
    if reactions is not None:
        return courier_of(reactions.routes, delivery)
    if delivery is not None:
        raise SchemaError(
            "delivery-option", "`delivery` is given without `actions`", "pass the receivers of the actions as `actions`"
        )
    return None


def _names_of_results(written: CheckedProgram) -> tuple[str, ...]:
    """The names of the results of a program: of all, or of the one that the others are for."""
    if has_one_result(written):
        return (wanted_result(written) or "",)
    return Program(written).names


def _statements(
    written: CheckedProgram, reactions: Reactions | None, finds: bool, violations: bool
) -> LoweredProgram | None:
    """The patterns to look for: those whose matches are given, and those of the ON statements."""
    if reactions is None:
        if not finds:
            return replace(lower(written), statements=()) if violations else None
        return lowered_result(written) if has_one_result(written) else lower(written)
    if not has_one_result(written):
        return program_statements(reactions.finding(reactions.results))
    wanted = wanted_result(written)
    return program_statements(reactions.finding([query for query in reactions.results if query.name == wanted]))


def _rows_of(table: pa.Table, mask: Mask) -> pa.Table:
    return table.filter(pa.array(mask)) if mask.any() else table.slice(0, 0)
