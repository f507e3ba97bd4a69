"""States over the user's tables: what every runtime does first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.nodes import Event, Statements, walk
from ensue.algebra.state_checks import state_of
from ensue.algebra.states import Measure
from ensue.engine.sources import load_sources, read_times
from ensue.errors import Problem, QueryError, SchemaError, Source, did_you_mean
from ensue.expr.nodes import Field
from ensue.expr.nodes import walk as walk_expression
from ensue.filtering.answers import Answers
from ensue.filtering.following import Moments, Question, follow
from ensue.filtering.model import LARGEST_JOINT
from ensue.filtering.session import Column, Rules, Session, SetAside, set_aside
from ensue.filtering.tables import Known
from ensue.kernels.warm import warm_up_beliefs
from ensue.lang.parser import parse_measure
from ensue.plan.inputs import InputTable, catalog_of, input_tables
from ensue.plan.programs import Columns
from ensue.runtimes.tables import are_frames, arrow_tables, kind_of_table, without_views

POLICIES = ("error", "skip", "reset")


def state_rules(
    statements: Statements,
    columns: Mapping[str, str | Measure] | None = None,
    before: bool = False,
    policy: str = "error",
    probability: str | None = None,
    reason: str | None = None,
) -> Rules:
    """How events are led through the states of a program, with what the user says about it checked."""
    if not statements.states:
        hint = "add `STATE location OF alice, bob IN (...)`"
        raise QueryError([Problem("no-state-declared", "the program declares no STATE", hint=hint)], statements.source)
    if policy not in POLICIES:
        raise SchemaError("state-policy", f"`policy` is 'error', 'skip' or 'reset', not {policy!r}")
    if probability is not None and not isinstance(probability, str):
        raise SchemaError("column-name", f"`probability` is the name of a column, not {probability!r}", "pass a text")
    wanted = tuple(_column(name, given, statements) for name, given in (columns or {}).items())
    return Rules(statements, wanted, before, policy, probability, reason)


def _column(name: str, given: str | Measure, statements: Statements) -> Column:
    measure = parse_measure(given) if isinstance(given, str) else given
    try:
        state = state_of(measure, statements.states)
    except QueryError as error:
        raise QueryError(error.problems, Source(given, name) if isinstance(given, str) else None) from None
    return Column(name, measure, statements.states.index(state))


@dataclass(frozen=True, slots=True)
class Opened:
    """States over tables: the session, which has read nothing yet, and the tables by their numbers."""

    session: Session
    tables: tuple[pa.Table, ...]


def open_states(tables: Mapping[str, pa.Table] | pa.Table, rules: Rules, columns: Columns, limit: int) -> Opened:
    """Checks the columns of the tables and plans the states over them."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise SchemaError("limit-type", f"`limit` is how many numbers a joint distribution may have, not {limit!r}")
    streams = tuple(dict.fromkeys(stream for state in rules.statements.states for stream in state.streams))
    inputs = input_tables(tables, streams or ("*",), columns.time, columns.type, None)
    for item in inputs:
        taken = [name for name in rules.names if name in item.table.column_names]
        if taken:
            raise SchemaError("duplicate-column", f"the {item.label} has a column `{taken[0]}` already", "rename one")
    empty = tuple(replace(item, table=item.table.schema.empty_table()) for item in inputs)
    session = Session(rules, empty, catalog_of(inputs).time_type, limit)
    return Opened(session, tuple(item.table for item in inputs))


def known_now(session: Session) -> list[Known]:
    """What is believed of each state after all that was led through."""
    found = []
    for number in range(len(session.plans)):
        keys, count, answers, lost = session.answers(number)
        found.append(Known(keys, count, answers, lost))
    return found


def known_at(opened: Opened, moments: Any) -> tuple[list[Known], SetAside]:
    """What was believed of each state at the moments of a table, each a key and a time; and what took no part."""
    session, rules = opened.session, opened.session.rules
    given = without_views(kind_of_table(moments).to_arrow(moments))
    inputs = [replace(item, table=table) for item, table in zip(session.inputs, opened.tables, strict=True)]
    sources, _ = load_sources(inputs, session.time_type)
    time = inputs[0].time
    found, reasons = [], []
    for plan, held in zip(session.plans, session.held, strict=True):
        names = [*plan.statement.partition_by, time]
        missing = [name for name in names if name not in given.column_names]
        if missing:
            said = f"the table of moments has no column `{missing[0]}`; columns: {', '.join(given.column_names)}"
            raise SchemaError("no-such-column", said, did_you_mean(missing[0], given.column_names))
        times, valid = read_times(InputTable(given, time), time, session.time_type)
        wanted = Moments(given, times if valid is None else np.where(valid, times, 0))
        question = Question(moments=wanted)
        followed = follow(plan, held, sources, rules.policy, rules.probability, question)
        reasons.append(followed.reasons)
        found.append(Known(given.select(names), given.num_rows, Answers(plan, followed.chances), followed.lost))
    names = [plan.statement.name for plan in session.plans]
    return found, set_aside(opened.tables, reasons, names)


def with_beliefs(events: Any, statements: Statements, columns: Columns) -> Any:
    """The events with a column for every question to a state that the patterns of a program ask; or just the events."""
    asked = dict.fromkeys(field.name for field in _fields(statements) if field.asks_state)
    if not asked or not statements.states:
        return events
    rules = state_rules(statements, {name: name for name in asked}, probability=columns.probability)
    if are_frames(events):
        from ensue.runtimes.spark.beliefs import is_stream, track_frames

        if is_stream(events):
            refuse_beliefs(statements)
        return track_frames(events, rules, columns, LARGEST_JOINT, None, None)
    kind, tables = arrow_tables(events)
    opened = open_states(tables, rules, columns, LARGEST_JOINT)
    warm_up_beliefs()
    given = zip(opened.session.inputs, opened.session.advance(opened.tables, None).rows, strict=True)
    rows = {item.stream: kind.from_arrow(table) for item, table in given}
    return rows if isinstance(tables, Mapping) else next(iter(rows.values()))


def refuse_beliefs(statements: Statements) -> None:
    """Patterns over events that are still to come cannot ask states: their questions are answered ahead."""
    asking = next((field for field in _fields(statements) if field.asks_state), None)
    if asking is not None and statements.states:
        said = f"`{asking.name}` is worked out before a pattern is looked for, and these events come one by one"
        hint = "lead the events through `ensue.track` or a `StateTracker` first: its columns are fields of the events"
        raise QueryError([Problem("state-ahead", said, asking.span, hint=hint)], statements.source)


def _fields(statements: Statements) -> Iterator[Field]:
    """The fields that conditions and results of patterns name."""
    for query in statements.statements:
        predicates = [node.predicate for node in walk(query.pattern) if isinstance(node, Event)]
        for expression in (query.where, *predicates, *(column.expression for column in query.returns)):
            if expression is not None:
                yield from (part for part in walk_expression(expression) if isinstance(part, Field))
