"""The STATEs of a program and the questions about them at every event: `P(anyone IN den)` becomes a column of the
events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ensue.check.state_problems import state_of
from ensue.errors import Problem, QueryError, SchemaError, Source
from ensue.nodes.expressions import Field
from ensue.nodes.expressions import walk as walk_expression
from ensue.nodes.patterns import Event, Statements, result_expressions, walk
from ensue.nodes.states import Measure, MostLikely, StateStatement
from ensue.plan.inputs import InputTable
from ensue.plan.plans import QueryPlan
from ensue.text.parser import parse_measure

LARGEST_JOINT = 4096
"""Joint distributions with more numbers than this are approximated by one distribution per variable, unless the user
sets another limit."""

POLICIES = ("error", "skip", "reset")


@dataclass(frozen=True, slots=True)
class StateColumn:
    """A column added to events: its name, the question that it answers, and the number of the state."""

    name: str
    measure: Measure
    state: int

    @property
    def type(self) -> pa.DataType:
        return pa.string() if isinstance(self.measure, MostLikely) else pa.float64()


@dataclass(frozen=True, slots=True)
class StateQuestions:
    """The states that events change, the columns added to events, and how contradictions are handled.

    With `before`, the columns contain the belief before the event. `probability` is a column with the probability that
    an event happened; `reason` is a column with the reason why an event changed nothing. A joint distribution has at
    most `limit` numbers. `measured` are the columns that only the user sees; it is None if only patterns ask questions.
    """

    states: tuple[StateStatement, ...]
    source: Source | None = None
    columns: tuple[StateColumn, ...] = ()
    before: bool = False
    policy: str = "error"
    probability: str | None = None
    reason: str | None = None
    limit: int = LARGEST_JOINT
    measured: tuple[str, ...] | None = None

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The columns that every event gets."""
        reason = () if self.reason is None else (pa.field(self.reason, pa.string()),)
        return (*(pa.field(column.name, column.type) for column in self.columns), *reason)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams whose events change a state."""
        return tuple(dict.fromkeys(stream for state in self.states for stream in state.streams))

    @property
    def reads(self) -> frozenset[str]:
        """The columns of events that the states need, besides time and type."""
        named = {name for state in self.states for name in state.reads}
        keys = {name for state in self.states for name in state.partition_by}
        return frozenset(named | keys | ({self.probability} if self.probability is not None else set()))

    def shared_keys(self, keys: Sequence[str]) -> tuple[str, ...]:
        """The keys that every state has: events that differ in them are independent."""
        return tuple(name for name in keys if all(name in state.partition_by for state in self.states))

    def are_asked_by(self, plan: QueryPlan) -> bool:
        """Whether a plan uses one of the columns."""
        names = {column.name for column in self.columns}
        return any(columns is None or not names.isdisjoint(columns) for columns in plan.columns.values())

    def widened(self, item: InputTable) -> InputTable:
        """The table with the columns that patterns see; it has no rows."""
        taken = [field.name for field in self.fields if field.name in item.table.column_names]
        if taken:
            raise SchemaError(
                "duplicate-column", f"the {item.label} already has a column `{taken[0]}`", "rename one of them"
            )
        seen = [field for field in self.fields if field.name not in (self.measured or ())]
        schema = pa.schema([*item.table.schema, *seen])
        return replace(item, table=schema.empty_table())


def state_questions(
    statements: Statements,
    columns: Mapping[str, str | Measure] | None = None,
    before: bool = False,
    policy: str = "error",
    probability: str | None = None,
    reason: str | None = None,
    largest_joint: int = LARGEST_JOINT,
) -> StateQuestions:
    """The states of a program, with the user's settings checked."""
    if not statements.states:
        hint = "add `STATE location OF alice, bob IN (...)`"
        raise QueryError([Problem("no-state-declared", "the program has no STATE", hint=hint)], statements.source)
    if policy not in POLICIES:
        raise SchemaError("state-policy", f"`policy` must be 'error', 'skip' or 'reset', found {policy!r}")
    if probability is not None and not isinstance(probability, str):
        raise SchemaError("column-name", f"`probability` must be a column name, found {probability!r}", "pass a string")
    if isinstance(largest_joint, bool) or not isinstance(largest_joint, int) or largest_joint < 1:
        said = f"`largest_joint` must be a positive integer, found {largest_joint!r}"
        raise SchemaError("limit-type", said)
    wanted = tuple(_column(name, given, statements) for name, given in (columns or {}).items())
    return StateQuestions(
        statements.states, statements.source, wanted, before, policy, probability, reason, largest_joint
    )


def _column(name: str, given: str | Measure, statements: Statements) -> StateColumn:
    measure = parse_measure(given) if isinstance(given, str) else given
    try:
        state = state_of(measure, statements.states)
    except QueryError as error:
        raise QueryError(error.problems, Source(given, name) if isinstance(given, str) else None) from None
    return StateColumn(name, measure, statements.states.index(state))


def questions_of_patterns(
    statements: Statements, probability: str | None = None, wanted: StateQuestions | None = None
) -> StateQuestions | None:
    """The questions of the patterns about the states, one column each; None if there are none.

    `wanted` are the questions of the user.
    """
    if not statements.states:
        return None
    asked = dict.fromkeys(field.name for field in _fields(statements) if field.asks_state)
    if not asked:
        return wanted
    own = state_questions(statements, {name: name for name in asked}, probability=probability)
    if wanted is None:
        return own
    if wanted.before:
        raise SchemaError(
            "tracking-option",
            "`before` is not supported for a program whose patterns query a STATE",
            "track the measures in another Detector",
        )
    taken = [name for name in wanted.measured or () if name in asked]
    if taken:
        raise SchemaError(
            "duplicate-column", f"measure `{taken[0]}` has the name of a question in a pattern", "rename the measure"
        )
    return replace(wanted, columns=(*own.columns, *wanted.columns))


def refuse_questions(statements: Statements, why: str, hint: str) -> None:
    """Raises an error at the first question of a pattern about a state, if any."""
    asking = next((field for field in _fields(statements) if field.asks_state), None) if statements.states else None
    if asking is not None:
        problem = Problem("state-ahead", f"`{asking.name}` {why}", asking.span, hint=hint)
        raise QueryError([problem], statements.source)


def refuse_ahead(statements: Statements, end: object, eager: bool = False) -> None:
    """Rejects questions that cannot be answered on a stream: they need the watermark at the start of their event."""
    if end is not None:
        said = (
            "is evaluated at the start of an event, but events with an `end` column arrive in the order of their ends"
        )
        refuse_questions(statements, said, "remove `end`, or use `ensue.detect` on a table")
    if eager:
        said = 'is known only when the watermark reaches the event, which is too late for `emit="eager"`'
        refuse_questions(statements, said, 'use `emit="complete"`')


def refuse_ends(questions: StateQuestions, end: object) -> None:
    """Raises an error for states that are tracked over events with an `end` column, as `refuse_ahead` does."""
    if end is not None:
        said = "a STATE changes at the start of an event, but events with an `end` column arrive in order of their ends"
        hint = "remove `end`, or use `ensue.beliefs.track` on a table"
        raise QueryError([Problem("state-ahead", said, questions.states[0].span, hint=hint)], questions.source)


def _fields(statements: Statements) -> Iterator[Field]:
    """The fields that conditions and results of patterns use."""
    for query in statements.statements:
        predicates = [node.predicate for node in walk(query.pattern) if isinstance(node, Event)]
        for expression in (query.where, *predicates, *result_expressions(query)):
            if expression is not None:
                yield from (part for part in walk_expression(expression) if isinstance(part, Field))
