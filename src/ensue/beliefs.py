"""Beliefs about probabilistic states: now, at past times, at every event, and while events arrive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import pyarrow as pa

from ensue.arguments import helpful
from ensue.check.state_problems import state_of
from ensue.engine.belief.answers import Ask, KnownBeliefs
from ensue.engine.belief.follower import REASON, IgnoredRows
from ensue.engine.machine import State as MachineState
from ensue.errors import EnsueNotice, Problem, QueryError, Source, counted, warn
from ensue.kernels.warm_up import warm_up_beliefs
from ensue.nodes.patterns import Statements
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
from ensue.plan.inputs import InputTable
from ensue.plan.program_plans import ColumnNames, Columns, OrderColumns
from ensue.plan.states import LARGEST_JOINT, StateQuestions, state_questions
from ensue.programs import QueryLike, written_statements
from ensue.python.state import State, state
from ensue.runtimes.local_beliefs import BeliefMachine, open_states
from ensue.runtimes.moments import ticks_of
from ensue.runtimes.tables import TableKind, are_frames, arrow_tables, described
from ensue.text.parser import parse_state_condition

__all__ = ["Beliefs", "State", "TrackingOptions", "of", "state", "track"]


def __dir__() -> list[str]:
    return [*__all__]


Condition = str | StateCondition


class Beliefs:
    """The beliefs about the states of a program, one distribution per key; each question returns a table.

    Conditions are texts such as `"alice in kitchen and not bob in kitchen"`, `"anyone in (kitchen, den)"`,
    `"nobody in bath"` and `"count(living) >= 2"`. `ignored` are the ignored events, with the reason.
    """

    def __init__(
        self,
        states: Sequence[StateStatement],
        answer: Callable[[Ask], Any],
        exact: Sequence[bool],
        ignored: Any = None,
        given: StateCondition | None = None,
        chosen: int | None = None,
    ) -> None:
        self._states = tuple(states)
        self._answer = answer
        self._exact = tuple(exact)
        self._given = given
        self._chosen = chosen
        self.ignored = ignored

    def __repr__(self) -> str:
        chosen = self._states if self._chosen is None else (self._states[self._chosen],)
        lines = [
            f"  {state.name}: {', '.join(state.variables)} in ({', '.join(state.values)})"
            + (f", by {', '.join(state.partition_by)}" if state.partition_by else "")
            for state in chosen
        ]
        title = f"Beliefs about {counted(len(chosen), 'state', 'states')}, {'exact' if self.exact else 'approximate'}"
        return "\n".join((title, *lines))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    @property
    def exact(self) -> bool:
        """Whether joint distributions are kept.

        Otherwise each variable is tracked separately, and tables have a column `error`: the lost information about
        dependencies between variables, in nats.
        """
        return all(self._exact if self._chosen is None else (self._exact[self._chosen],))

    def of(self, state: str) -> Beliefs:
        """Return the beliefs about one of several states."""
        names = [known.name for known in self._states]
        if state not in names:
            said, label = f"unknown state `{state}`", f"available: {', '.join(names)}"
            raise QueryError([Problem("state-unknown", said, label=label)])
        return self._with(self._given, names.index(state))

    def given(self, condition: Condition) -> Beliefs:
        """Return the beliefs under the assumption that the condition holds; probabilities are null if it is impossible.

        >>> table = pa.table({"t": [1], "type": ["Moved"]})
        >>> text = "STATE s OF a, b IN (x, y) STARTS x ON Moved m: MOVE ANYONE FROM x TO y"
        >>> now = of(table, text, time="t", type="type")
        >>> now.probability("a in y").to_pylist(), now.given("b in y").probability("a in y").to_pylist()
        ([{'probability': 0.5}], [{'probability': 0.0}])
        """
        read, number = self._condition(condition)
        together = read if self._given is None else Both(self._given, read)
        return self._with(together, number if self._given is None else self._number(together))

    def marginal(self, variable: str) -> Any:
        """Return the probability of each value of a variable: the key columns, `value`, `probability`."""
        return self._ask(self._variable(variable), "marginal", variable)

    def joint(self, *variables: str) -> Any:
        """Return the probability of each combination of values: the key columns, a column per variable, `probability`.

        Without arguments, it is the distribution of the whole state.
        """
        if not variables:
            number = self._only("joint")
            return self._ask(number, "joint", *self._states[number].variables)
        numbers = {self._variable(variable) for variable in variables}
        if len(numbers) > 1:
            hint = "states are independent; multiply their probabilities"
            said = "`joint` requires variables of one state, but these belong to several"
            raise QueryError([Problem("state-mixed", said, hint=hint)])
        return self._ask(numbers.pop(), "joint", *variables)

    def probability(self, condition: Condition) -> Any:
        """Return the probability of a condition: the key columns, `probability`."""
        read, number = self._condition(condition)
        return self._ask(number, "probability", read)

    def expected_count(self, *values: str) -> Any:
        """Return the expected number of variables that have one of the values: the key columns, `expected`."""
        places, number = self._places(values)
        return self._ask(number, "expected_count", places)

    def count_distribution(self, *values: str) -> Any:
        """Return the probability that 0, 1, ... of the variables have one of the values: `count`, `probability`."""
        places, number = self._places(values)
        return self._ask(number, "count_distribution", places)

    def most_likely(self, variable: str | None = None) -> Any:
        """Return the most likely value of a variable, or of all variables together, and its probability.

        If several values are equally likely, it is the one declared first.
        """
        if variable is None:
            return self._ask(self._only("most_likely"), "most_likely")
        return self._ask(self._variable(variable), "most_likely", variable)

    def errors(self) -> Any:
        """Return the information lost by approximation, per key: column `error`, 0 if beliefs are exact."""
        return self._ask(self._only("errors"), "errors")

    def _with(self, given: StateCondition | None, chosen: int | None) -> Beliefs:
        return Beliefs(self._states, self._answer, self._exact, self.ignored, given, chosen)

    def _ask(self, number: int, what: str, *arguments: Any) -> Any:
        return self._answer(Ask(number, what, arguments, self._given))

    def _only(self, what: str) -> int:
        if self._chosen is not None:
            return self._chosen
        if len(self._states) > 1:
            names = ", ".join(f"`{state.name}`" for state in self._states)
            hint = f'select one with `beliefs.of("{self._states[0].name}").{what}()`'
            raise QueryError([Problem("state-mixed", f"the program has several states: {names}", hint=hint)])
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
            raise QueryError([Problem("state-unknown", "a count requires at least one value")])
        places = Places(tuple(values))
        return places, self._number(ExpectedCount(places))


@helpful
def of(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    order: OrderColumns | None = None,
    at: Any = None,
    policy: str = "error",
    probability: str | None = None,
    largest_joint: int = LARGEST_JOINT,
) -> Beliefs:
    """Return the beliefs about the states of a program after the events; tables have the same kind as `events`.

    With `at`, return the beliefs at a past time, after the events of that time, for every key known by then; or at each
    row of a table with the key and time columns. `policy` selects how to treat an event that contradicts the beliefs:
    "error", "skip" or "reset". `order` are the columns that order events at the same time. `probability` is the column
    with the probability that an event happened. A joint distribution of more than `largest_joint` numbers is not kept:
    each variable is then tracked separately, and results have the lost information.

    >>> table = pa.table({"t": [1, 2], "type": ["Seen", "Moved"], "room": ["den", None]})
    >>> program = '''STATE location OF alice IN (den, bath)
    ...   ON Seen s: OBSERVE alice IN s.room RELIABILITY 0.9
    ...   ON Moved m: MOVE alice FROM den TO bath PROBABILITY 0.5'''
    >>> of(table, program, time="t", type="type", at=1).marginal("alice").to_pylist()
    [{'value': 'den', 'probability': 0.9}, {'value': 'bath', 'probability': 0.09999999999999998}]
    """
    statements = written_statements(query)
    source = described(events, time, type, order=order, probability=probability)
    columns = Columns(source.columns.time, source.columns.type, order=source.columns.order)
    questions = state_questions(
        statements, policy=policy, probability=source.columns.probability, largest_joint=largest_joint
    )
    if are_frames(source.table):
        from ensue.runtimes.spark.belief_tasks import frame_beliefs

        answer, exact, aside_frames = frame_beliefs(source.table, questions, columns, at)
        return Beliefs(questions.states, answer, exact, aside_frames)
    kind, tables = arrow_tables(source.table)
    tracking, rows = open_states(tables, questions, columns)
    warm_up_beliefs()
    if at is not None and _is_table(at):
        past = tracking.known_at(rows, at)
        known, aside = past.known, past.ignored
    else:
        until = None if at is None else ticks_of(at, tracking.time_type)
        step = tracking.step(tracking.machine.start(), rows, until)
        assert step.told is not None
        known, aside = tracking.known(step.state, until), step.told.ignored
    _warn(aside, tracking)
    return _beliefs(known, kind, tracking, aside.tables, isinstance(tables, Mapping))


def _is_table(at: Any) -> bool:
    return hasattr(at, "column_names") or hasattr(at, "columns")


def _beliefs(
    known: Sequence[KnownBeliefs], kind: TableKind, tracking: BeliefMachine, aside: Sequence[pa.Table], named: bool
) -> Beliefs:
    def answer(ask: Ask) -> Any:
        return kind.from_arrow(known[ask.state].answer(ask))

    exact = [plan.exact for plan in tracking.plans]
    return Beliefs(tracking.questions.states, answer, exact, by_stream(aside, tracking.inputs, kind, named))


def by_stream(tables: Sequence[pa.Table], inputs: Sequence[InputTable], kind: TableKind, named: bool) -> Any:
    """Return one table, or one per stream, as the caller passed the events."""
    given = {item.stream: kind.from_arrow(table) for item, table in zip(inputs, tables, strict=True)}
    return given if named else next(iter(given.values()))


def warn_ignored(aside: IgnoredRows, told: Collection[object] = ()) -> None:
    """Warn about the rows that a state ignored or that reset it, so that no row is lost silently: one warning for all.

    `told` are the reasons that need no further warning.
    """
    counts = {reason: rows for reason, rows in aside.counts.items() if reason not in told}
    if counts:
        warn("; ".join(f"{counted(rows, 'row', 'rows')} {reason}" for reason, rows in counts.items()))


def _warn(aside: IgnoredRows, tracking: BeliefMachine) -> None:
    warn_ignored(aside)
    names = [f"`{plan.statement.name}`" for plan in tracking.plans if not plan.exact]
    if names:
        said = "state {} is too large, so its" if len(names) == 1 else "states {} are too large, so their"
        advice = "column `error` says how much this loses. A larger `largest_joint` avoids it"
        warn(f"{said.format(', '.join(names))} variables are tracked separately; {advice}", EnsueNotice)


@helpful
def track(
    events: Any,
    query: QueryLike,
    measures: Mapping[str, str | Measure],
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    order: OrderColumns | None = None,
    before: bool = False,
    reason: str | None = None,
    policy: str = "error",
    probability: str | None = None,
    largest_joint: int = LARGEST_JOINT,
    tick: str | None = None,
    buckets: int | None = None,
) -> Any:
    """Return every event with the beliefs about its key after it, or `before` it: one column for each of `measures`.

    A measure is a question: `"P(anyone in kitchen)"`, `"P(alice in den given bob in den)"`, `"E(count(not outside))"`
    or `"MOST LIKELY(alice)"`. `reason` is the name of a column for the reason why an event was ignored. The other
    arguments are those of `of`; `tick` and `buckets`, for streams, are those of `ensue.detect`.

    >>> table = pa.table({"t": [1, 2], "type": ["Moved", "Moved"]})
    >>> program = "STATE location OF alice, bob IN (home, away) STARTS home ON Moved m: MOVE ANYONE FROM home TO away"
    >>> track(table, program, {"home": "E(count(home))"}, time="t", type="type").column("home").to_pylist()
    [1.0, 0.0]
    """
    statements = written_statements(query)
    source = described(events, time, type, order=order, probability=probability, tick=tick)
    own = source.columns
    columns, probability = Columns(own.time, own.type, order=own.order), own.probability
    questions = state_questions(statements, measures, before, policy, probability, reason, largest_joint)
    if are_frames(source.table):
        from ensue.runtimes.spark.belief_tasks import track_frames

        return track_frames(source.table, questions, columns, source.tick, buckets)
    kind, tables = arrow_tables(source.table)
    tracking, rows = open_states(tables, questions, columns)
    warm_up_beliefs()
    told = tracking.run(rows).told
    assert told is not None
    _warn(told.ignored, tracking)
    return by_stream(told.rows, tracking.inputs, kind, isinstance(tables, Mapping))


@dataclass(frozen=True, slots=True)
class TrackingOptions:
    """How a `Detector` tracks the STATEs of its program.

    With `before`, measures are those before each event. `reason` is the name of a column for the reason why a STATE
    ignored an event. `policy` and `largest_joint` are those of `ensue.beliefs.track`.

    >>> TrackingOptions(policy="skip").before
    False
    """

    before: bool = False
    reason: str | None = None
    policy: str = "error"
    largest_joint: int = LARGEST_JOINT

    def questions(
        self, statements: Statements, measures: Mapping[str, str | Measure], probability: str | None
    ) -> StateQuestions:
        """Check the questions about the states; `measures` are columns that only the user sees."""
        asked = state_questions(
            statements, measures, self.before, self.policy, probability, self.reason, self.largest_joint
        )
        return replace(asked, measured=tuple(field.name for field in asked.fields))


def tracked_beliefs(tracking: BeliefMachine, state: MachineState, kind: TableKind, named: bool) -> Beliefs:
    """Return the beliefs of a machine after the events that the watermark has reached."""
    nothing = [item.table.append_column(REASON, pa.array([], pa.string())) for item in tracking.inputs]
    return _beliefs(tracking.known(state), kind, tracking, nothing, named)
