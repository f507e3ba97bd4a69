"""What is believed of probabilistic state: now, at past times, at every event, and as events come."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ensue.check.state_problems import state_of
from ensue.engine.belief.answers import Ask, Known
from ensue.engine.belief.follower import REASON, SetAside
from ensue.engine.machine import State as MachineState
from ensue.engine.snapshot import read_header, restore, saved_schemas, snapshot
from ensue.errors import EnsueNotice, EnsueWarning, Problem, QueryError, SchemaError, Source, StateError, counted
from ensue.kernels.warm_up import warm_up_beliefs
from ensue.nodes.names import Stream
from ensue.nodes.states import (
    Both,
    Constant,
    ExpectedCount,
    Measure,
    MostLikely,
    Places,
    StateCondition,
    StateStatement,
)
from ensue.plan.program_plans import ColumnNames, Columns
from ensue.plan.states import LARGEST_JOINT, state_questions
from ensue.programs import Program, QueryLike, written_statements
from ensue.runtimes.local_beliefs import BeliefMachine, open_states
from ensue.runtimes.moments import ticks_of
from ensue.runtimes.tables import ARROW, TableKind, are_frames, arrow_tables, conform
from ensue.text.parser import parse_state_condition

Condition = str | StateCondition


class Beliefs:
    """What is believed of the states of a program, one distribution per key; each question gives a table.

    Conditions are texts such as `"alice in kitchen and not bob in kitchen"`, `"anyone in (kitchen, den)"`,
    `"nobody in bath"` and `"count(living) >= 2"`. `set_aside` are the events that took no part, with the reason.
    """

    def __init__(
        self,
        states: Sequence[StateStatement],
        answer: Callable[[Ask], Any],
        exact: Sequence[bool],
        set_aside: Any = None,
        given: StateCondition | None = None,
        chosen: int | None = None,
    ) -> None:
        self._states = tuple(states)
        self._answer = answer
        self._exact = tuple(exact)
        self._given = given
        self._chosen = chosen
        self.set_aside = set_aside

    @property
    def exact(self) -> bool:
        """Whether joint distributions are kept. Otherwise each variable is kept by itself, and tables have a column
        `error`: how much of what ties variables to each other was lost, in nats.
        """
        return all(self._exact if self._chosen is None else (self._exact[self._chosen],))

    def of(self, state: str) -> Beliefs:
        """The beliefs of one state alone, where a program has several."""
        names = [known.name for known in self._states]
        if state not in names:
            said, label = f"no state is called `{state}`", f"states: {', '.join(names)}"
            raise QueryError([Problem("state-unknown", said, label=label)])
        return self._with(self._given, names.index(state))

    def given(self, condition: Condition) -> Beliefs:
        """The beliefs as they would be if the condition held; probabilities are null where it is impossible.

        >>> table = pa.table({"t": [1], "type": ["Moved"]})
        >>> text = "STATE s OF a, b IN (x, y) STARTS x ON Moved m: MOVE ANYONE FROM x TO y"
        >>> now = beliefs(table, text, time="t", type="type")
        >>> now.probability("a in y").to_pylist(), now.given("b in y").probability("a in y").to_pylist()
        ([{'probability': 0.5}], [{'probability': 0.0}])
        """
        read, number = self._condition(condition)
        together = read if self._given is None else Both(self._given, read)
        return self._with(together, number if self._given is None else self._number(together))

    def marginal(self, variable: str) -> Any:
        """The probability of each value of a variable: columns of the key, `value`, `probability`."""
        return self._ask(self._variable(variable), "marginal", variable)

    def joint(self, *variables: str) -> Any:
        """The probability of each combination of values: columns of the key, one per variable, `probability`.

        Without variables it is that of the whole state.
        """
        if not variables:
            number = self._only("joint")
            return self._ask(number, "joint", *self._states[number].variables)
        numbers = {self._variable(variable) for variable in variables}
        if len(numbers) > 1:
            hint = "the probability of both is the product of theirs"
            said = "the variables belong to several states, which are independent"
            raise QueryError([Problem("state-mixed", said, hint=hint)])
        return self._ask(numbers.pop(), "joint", *variables)

    def probability(self, condition: Condition) -> Any:
        """The probability of a condition: columns of the key, `probability`."""
        read, number = self._condition(condition)
        return self._ask(number, "probability", read)

    def expected_count(self, *values: str) -> Any:
        """How many variables have one of the values, on average: columns of the key, `expected`."""
        places, number = self._places(values)
        return self._ask(number, "expected_count", places)

    def count_distribution(self, *values: str) -> Any:
        """The probability that none, one, ... of the variables have one of the values: `count`, `probability`."""
        places, number = self._places(values)
        return self._ask(number, "count_distribution", places)

    def most_likely(self, variable: str | None = None) -> Any:
        """The most likely value of a variable, or of all variables together, and its probability.

        Of equally likely ones it is the first that was declared.
        """
        if variable is None:
            return self._ask(self._only("most_likely"), "most_likely")
        return self._ask(self._variable(variable), "most_likely", variable)

    def errors(self) -> Any:
        """What was lost by approximation, per key: column `error`, 0 where beliefs are exact."""
        return self._ask(self._only("errors"), "errors")

    def _with(self, given: StateCondition | None, chosen: int | None) -> Beliefs:
        return Beliefs(self._states, self._answer, self._exact, self.set_aside, given, chosen)

    def _ask(self, number: int, what: str, *arguments: Any) -> Any:
        return self._answer(Ask(number, what, arguments, self._given))

    def _only(self, what: str) -> int:
        if self._chosen is not None:
            return self._chosen
        if len(self._states) > 1:
            names = ", ".join(f"`{state.name}`" for state in self._states)
            hint = f'say which one is meant: `beliefs.of("{self._states[0].name}").{what}()`'
            raise QueryError([Problem("state-mixed", f"the program has the states {names}", hint=hint)])
        return 0

    def _number(self, question: Measure | StateCondition) -> int:
        candidates = self._states if self._chosen is None else (self._states[self._chosen],)
        return self._states.index(state_of(question, candidates))

    def _variable(self, variable: str) -> int:
        return self._number(MostLikely(Constant(variable)))

    def _condition(self, condition: Condition) -> tuple[StateCondition, int]:
        if not isinstance(condition, str):
            return condition, self._number(condition)
        read = parse_state_condition(condition)
        try:
            return read, self._number(read)
        except QueryError as error:
            raise QueryError(error.problems, Source(condition, "condition")) from None

    def _places(self, values: Sequence[str]) -> tuple[Places, int]:
        if not values:
            raise QueryError([Problem("state-unknown", "a count is that of at least one value")])
        places = Places(tuple(values))
        return places, self._number(ExpectedCount(places))


def beliefs(
    events: Any,
    program: Program | QueryLike,
    *,
    time: ColumnNames,
    type: str | None = None,
    at: Any = None,
    policy: str = "error",
    probability: str | None = None,
    limit: int = LARGEST_JOINT,
) -> Beliefs:
    """What is believed of the states of a program after the events; its tables are of the kind that `events` is.

    With `at` it is what was believed at a past time: at one moment, after its events, of every key that was known by
    then; or at the moments of a table, which has the columns of the key and of the time. `policy` says what becomes of
    an event that contradicts what is believed: "error", "skip" or "reset". `probability` names a column with the
    probability that an event happened. A joint distribution of more than `limit` numbers is not kept: then each
    variable is kept by itself, and results say how much was lost.

    >>> table = pa.table({"t": [1, 2], "type": ["Seen", "Moved"], "room": ["den", None]})
    >>> program = '''STATE location OF alice IN (den, bath)
    ...   ON Seen s: OBSERVE alice IN s.room RELIABILITY 0.9
    ...   ON Moved m: MOVE alice FROM den TO bath PROBABILITY 0.5'''
    >>> beliefs(table, program, time="t", type="type", at=1).marginal("alice").to_pylist()
    [{'value': 'den', 'probability': 0.9}, {'value': 'bath', 'probability': 0.09999999999999998}]
    """
    questions = state_questions(written_statements(program), policy=policy, probability=probability, limit=limit)
    if are_frames(events):
        from ensue.runtimes.spark.belief_tasks import frame_beliefs

        answer, exact, aside_frames = frame_beliefs(events, questions, Columns(time, type), at)
        return Beliefs(questions.states, answer, exact, aside_frames)
    kind, tables = arrow_tables(events)
    tracking, rows = open_states(tables, questions, Columns(time, type))
    warm_up_beliefs()
    if at is not None and _is_table(at):
        past = tracking.known_at(rows, at)
        known, aside = past.known, past.set_aside
    else:
        until = None if at is None else ticks_of(at, tracking.time_type)
        step = tracking.step(tracking.machine.start(), rows, until)
        assert step.told is not None
        known, aside = tracking.known(step.state, until), step.told.set_aside
    _warn(aside, tracking)
    return _beliefs(known, kind, tracking, aside.tables, isinstance(tables, Mapping))


def _is_table(at: Any) -> bool:
    return hasattr(at, "column_names") or hasattr(at, "columns")


def _beliefs(
    known: Sequence[Known], kind: TableKind, tracking: BeliefMachine, aside: Sequence[pa.Table], named: bool
) -> Beliefs:
    def answer(ask: Ask) -> Any:
        return kind.from_arrow(known[ask.state].answer(ask))

    exact = [plan.exact for plan in tracking.plans]
    return Beliefs(tracking.questions.states, answer, exact, _as_given(aside, tracking, kind, named))


def _as_given(tables: Sequence[pa.Table], tracking: BeliefMachine, kind: TableKind, named: bool) -> Any:
    """One table, or one per stream, as the events came."""
    given = {item.stream: kind.from_arrow(table) for item, table in zip(tracking.inputs, tables, strict=True)}
    return given if named else next(iter(given.values()))


def _warn(aside: SetAside, tracking: BeliefMachine) -> None:
    """Nothing is lost silently, at the line of the user two calls up."""
    for reason, rows in aside.counts.items():
        said = f"{counted(rows, 'row', 'rows')} {reason}"
        warnings.warn(said, EnsueWarning, stacklevel=3)
    for plan in tracking.plans:
        if not plan.exact:
            said = f"the variables of state `{plan.statement.name}` are kept apart, because together they are too many"
            warnings.warn(f"{said}; `error` says what is lost, and `limit` how much is kept", EnsueNotice, stacklevel=3)


def track(
    events: Any,
    program: Program | QueryLike,
    columns: Mapping[str, str | Measure],
    *,
    time: ColumnNames,
    type: str | None = None,
    before: bool = False,
    reason: str | None = None,
    policy: str = "error",
    probability: str | None = None,
    limit: int = LARGEST_JOINT,
    tick: str | None = None,
    buckets: int | None = None,
) -> Any:
    """Every event with what is believed of its key after it, or `before` it: one column for each of `columns`.

    A column is a question: `"P(anyone in kitchen)"`, `"P(alice in den given bob in den)"`, `"E(count(not outside))"` or
    `"MOST LIKELY(alice)"`. `reason` names a column that says why an event took no part; for the rest see `beliefs`, and
    for `tick` and `buckets` of streams `detect`.

    >>> table = pa.table({"t": [1, 2], "type": ["Moved", "Moved"]})
    >>> program = "STATE location OF alice, bob IN (home, away) STARTS home ON Moved m: MOVE ANYONE FROM home TO away"
    >>> track(table, program, {"home": "E(count(home))"}, time="t", type="type").column("home").to_pylist()
    [1.0, 0.0]
    """
    questions = state_questions(written_statements(program), columns, before, policy, probability, reason, limit)
    if are_frames(events):
        from ensue.runtimes.spark.belief_tasks import track_frames

        return track_frames(events, questions, Columns(time, type), tick, buckets)
    kind, tables = arrow_tables(events)
    tracking, rows = open_states(tables, questions, Columns(time, type))
    warm_up_beliefs()
    told = tracking.run(rows).told
    assert told is not None
    _warn(told.set_aside, tracking)
    return _as_given(told.rows, tracking, kind, isinstance(tables, Mapping))


@dataclass(frozen=True, slots=True)
class Tracked:
    """What one step of a tracker gave: the events that were led through with their columns, those that came too late,
    and those that took no part, with the reason.
    """

    rows: Any
    late: Any
    set_aside: Any


class StateTracker:
    """States over events that arrive in batches: any way to cut them gives the same beliefs as one run.

    Events are led through in the order of their times, when the watermark reaches them.

    >>> program = "STATE location OF alice, bob IN (home, away) STARTS home ON Moved m: MOVE ANYONE FROM home TO away"
    >>> tracker = StateTracker(program, {"home": "E(count(home))"}, time="t", type="type")
    >>> batch = pa.table({"t": [1, 5], "type": ["Moved", "Moved"]})
    >>> tracker.advance(batch, watermark=3).rows.column("home").to_pylist()
    [1.0]
    >>> tracker.finish().rows.column("home").to_pylist()
    [0.0]
    """

    def __init__(
        self,
        program: Program | QueryLike,
        columns: Mapping[str, str | Measure] | None = None,
        *,
        time: ColumnNames,
        type: str | None = None,
        before: bool = False,
        reason: str | None = None,
        policy: str = "error",
        probability: str | None = None,
        limit: int = LARGEST_JOINT,
    ) -> None:
        statements = written_statements(program)
        self._questions = state_questions(statements, columns, before, policy, probability, reason, limit)
        self._columns = Columns(time, type)
        self._tracking: BeliefMachine | None = None
        self._state: MachineState | None = None
        self._named = False
        self._kind = ARROW
        self._finished = False

    @property
    def watermark(self) -> int | None:
        """How far time has come, in ticks of the time column; None before the first step."""
        return self._state.watermark if self._state else None

    def advance(self, events: Any = None, *, watermark: Any) -> Tracked:
        """Takes a batch (a table, or a mapping of streams to tables; None: no events) and moves the watermark."""
        tracking, state, tables = self._receive(events)
        until = ticks_of(watermark, tracking.time_type)
        if state.watermark is not None and until < state.watermark:
            behind = counted(state.watermark - until, "tick", "ticks")
            said = f"the watermark moves only forwards, and {watermark!r} is {behind} back"
            raise StateError("watermark-backwards", said, "pass one not before the last")
        return self._step(tracking, state, tables, until)

    def finish(self, events: Any = None) -> Tracked:
        """Takes a last batch and leads all that waits through: no event comes any more."""
        step = self._step(*self._receive(events), None)
        self._finished = True
        return step

    def beliefs(self) -> Beliefs:
        """What is believed after all events that were led through."""
        if self._tracking is None or self._state is None:
            raise StateError("no-state", "nothing has been read yet, so nothing is believed", "advance first")
        nothing = [item.table.append_column(REASON, pa.array([], pa.string())) for item in self._tracking.inputs]
        return _beliefs(self._tracking.known(self._state), self._kind, self._tracking, nothing, self._named)

    def snapshot(self) -> pa.Table:
        """Beliefs, waiting events and watermark as one Arrow table for safekeeping."""
        if self._tracking is None or self._state is None:
            raise StateError("no-state", "nothing has been read yet, so there is no state to save", "advance first")
        return snapshot(self._tracking.machine, self._state, self._named)

    def restore(self, saved: pa.Table) -> None:
        """Goes on where a snapshot of the same states was taken."""
        named: bool = read_header(saved)["per_stream"]
        tables = {name: schema.empty_table() for name, schema in saved_schemas(saved).items()}
        per_stream = {str(name): table for name, table in tables.items() if name is not None}
        given = per_stream if named else next(iter(tables.values()))
        tracking, _ = open_states(given, self._questions, self._columns)
        self._state = restore(tracking.machine, saved)
        self._tracking, self._named, self._finished = tracking, named, False

    def _receive(self, events: Any) -> tuple[BeliefMachine, MachineState, tuple[pa.Table, ...]]:
        if self._finished:
            raise StateError("finished", "the tracker was told that no event comes any more", "make a new one")
        if events is None:
            if self._tracking is None or self._state is None:
                raise SchemaError("no-tables", "the first step needs a table, if only an empty one", "pass its columns")
            return self._tracking, self._state, tuple(item.table for item in self._tracking.inputs)
        self._kind, tables = arrow_tables(events)
        if self._tracking is None or self._state is None:
            self._tracking, _ = open_states(tables, self._questions, self._columns)
            self._state, self._named = self._tracking.machine.start(), isinstance(tables, Mapping)
            warm_up_beliefs()
        if isinstance(tables, Mapping) != self._named:
            raise SchemaError("table-shape", "batches come as one table or as one per stream, the same way each time")
        inputs = self._tracking.inputs
        given: dict[Stream | None, pa.Table] = {}
        given.update(tables if isinstance(tables, Mapping) else {inputs[0].stream: tables})
        unknown = [name for name in given if name not in [item.stream for item in inputs]]
        if unknown:
            raise SchemaError("unknown-stream", f"stream `{unknown[0]}` was not among the tables of the first step")
        conforming = (
            conform(given[item.stream], item.table.schema, item.label) if item.stream in given else item.table
            for item in inputs
        )
        return self._tracking, self._state, tuple(conforming)

    def _step(
        self, tracking: BeliefMachine, state: MachineState, tables: tuple[pa.Table, ...], until: int | None
    ) -> Tracked:
        step = tracking.step(state, tables, until)
        self._state, told = step.state, step.told
        assert told is not None
        late = [table.filter(pa.array(mask)) for table, mask in zip(tables, step.late, strict=True)]
        rows = sum(table.num_rows for table in late)
        if rows:
            said = f"{counted(rows, 'row', 'rows')} came at or before the watermark; see `late` of the step"
            warnings.warn(said, EnsueWarning, stacklevel=3)
        for reason, number in told.set_aside.counts.items():
            said = f"{counted(number, 'row', 'rows')} {reason}"
            warnings.warn(said, EnsueWarning, stacklevel=3)
        return Tracked(
            *(_as_given(part, tracking, self._kind, self._named) for part in (told.rows, late, told.set_aside.tables))
        )
