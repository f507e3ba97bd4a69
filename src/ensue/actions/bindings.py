"""Turns ON statements into queries, assigns each to its receiver, and checks both before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ensue.actions.delivery import Courier, Journal, Policy, Route
from ensue.actions.receivers import (
    ACTION,
    ID,
    RESERVED,
    Receiver,
    ReceiverLike,
    TableReceiver,
    column_names,
    misfit,
    receiver_of,
)
from ensue.actions.sinks import table_sink
from ensue.errors import Problem, QueryError, SchemaError, did_you_mean
from ensue.lower.phases import CheckedProgram, rules_lowered
from ensue.lower.rulesets import action_query
from ensue.nodes.expressions import Field
from ensue.nodes.patterns import PatternQuery, Return
from ensue.nodes.rules import Action
from ensue.programs import Program, QueryLike, written_statements
from ensue.python.values import WindowLike, length_of

END, START = "end", "start"


@dataclass(frozen=True, slots=True)
class Reactions:
    """A program with one pattern per ON statement, and the routes of their calls in the same order."""

    program: Program
    routes: tuple[Route, ...]
    results: tuple[PatternQuery, ...]
    """The patterns and rules that were in the program before."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.program.names

    @property
    def with_results(self) -> Program:
        """The program with its own results first, then the calls."""
        return self.finding(self.results)

    def finding(self, results: Sequence[PatternQuery]) -> Program:
        """The program with these of its own results first, then the calls."""
        own = self.program.statements
        return Program(replace(own, statements=(*own.declared, *results, *own.results)))


def resolve_actions(program: QueryLike, receivers: Mapping[str, ReceiverLike]) -> Reactions:
    """Checks the ON statements of a program against the receivers and turns the statements into patterns."""
    statements = written_statements(program)
    actions = statements.ruleset.actions if statements.ruleset is not None else ()
    if not actions:
        raise QueryError(
            [
                Problem(
                    "nothing-to-do",
                    "the program has no ON statement",
                    hint="add `ON stream v DO action(v.field)` for a rule or a declared stream",
                )
            ],
            statements.source,
        )
    known = {name: receiver_of(name, given) for name, given in receivers.items()}
    problems = [problem for action in actions for problem in _problems(action, statements, known)]
    if problems:
        raise QueryError(problems, statements.source)
    _check_unused(known, actions)
    queries = acting_queries(actions)
    routes = tuple(Route(action.action, _parameters(action), known[action.action]) for action in actions)
    resolved = rules_lowered(statements)
    found = Program(replace(resolved, statements=(*resolved.declared, *queries)))
    return Reactions(found, routes, resolved.results)


def calls_table(route: Route, found: pa.Table) -> pa.Table:
    """Returns the calls for the matches of an ON statement, in the order in which their events ended."""
    places = pc.sort_indices(found, [(END, "ascending"), (START, "ascending"), ("match_id", "ascending")])
    found = found.take(places)
    columns = {ID: found.column("match_id"), ACTION: pa.array([route.action] * found.num_rows, pa.string())}
    for place, name in enumerate(column_names(route.parameters), start=1):
        columns[name] = found.column(f"arg_{place}")
    return pa.table(columns)


def _parameters(action: Action) -> tuple[str | None, ...]:
    return tuple(argument.parameter for argument in action.arguments)


def _names(actions: Sequence[Action]) -> Iterator[str]:
    """Yields a name for each statement. Delivery ids depend on it, so it does not change when others are added."""
    seen: Counter[str] = Counter()
    for action in actions:
        name = f"ON {action.stream} DO {action.action}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} {seen[name]}"


def acting_queries(actions: Sequence[Action]) -> tuple[PatternQuery, ...]:
    """Returns ON statements as patterns, each with a name of its own."""
    return tuple(_query(action, name) for action, name in zip(actions, _names(actions), strict=True))


def _query(action: Action, name: str) -> PatternQuery:
    """Returns the query for the events of the action, with its arguments and their times."""
    query = action_query(action)
    times = (Return(Field(action.variable, "s"), START), Return(Field(action.variable, "e"), END))
    return replace(query, name=name, returns=(*query.returns, *times))


def _problems(action: Action, statements: CheckedProgram, receivers: Mapping[str, Receiver]) -> Iterator[Problem]:
    declared = [*(query.name for query in statements.declared if isinstance(query.name, str)), *statements.heads]
    if action.stream not in declared:
        yield _no_stream(action, statements, declared)
    if action.action not in receivers:
        yield Problem(
            "no-action",
            f"action `{action.action}` has no receiver",
            action.span,
            label=f"receivers: {', '.join(sorted(receivers))}" if receivers else "",
            hint=did_you_mean(action.action, receivers) or f"pass a receiver: {{{action.action!r}: ...}}",
        )
        return
    yield from _misfits(action, receivers[action.action])


def _no_stream(action: Action, statements: CheckedProgram, declared: Sequence[str]) -> Problem:
    hint = did_you_mean(action.stream, declared) or "use a rule or a declared stream"
    if action.stream in [query.name for query in statements.results]:
        hint = f"declare the pattern as a stream: `STREAM {action.stream} FROM PATTERN ...`"
    label = f"streams: {', '.join(declared)}" if declared else ""
    return Problem(
        "action-stream",
        f"`{action.stream}` is not a rule or a declared stream",
        action.span,
        label,
        hint,
    )


def _misfits(action: Action, receiver: Receiver) -> Iterator[Problem]:
    """Yields the problems of the arguments, in general and for this receiver."""
    parameters = _parameters(action)
    names = column_names(parameters)
    twice = [name for name, times in Counter(names).items() if times > 1]
    reserved = [name for name in names if name in RESERVED]
    if twice:
        yield Problem("action-arguments", f"duplicate argument `{twice[0]}`", action.span, hint="rename one")
    elif reserved:
        hint = "rename the argument; every call already has this field"
        yield Problem("action-arguments", f"argument name `{reserved[0]}` is reserved", action.span, hint=hint)
    elif found := misfit(receiver, parameters):
        wrong, signature = found
        yield Problem(
            "action-arguments",
            f"the receiver of `{action.action}` does not accept these arguments: {wrong}",
            action.span,
            label=f"signature: {signature}",
        )


def _check_unused(receivers: Mapping[str, Receiver], actions: Sequence[Action]) -> None:
    used = {action.action for action in actions}
    unused = [name for name in receivers if name not in used]
    if unused:
        raise SchemaError(
            "unused-action",
            f"receiver `{unused[0]}` is not used by any ON statement; actions: {', '.join(sorted(used))}",
            did_you_mean(unused[0], used) or "remove the receiver",
        )


# --- Delivery options

PathLike: TypeAlias = "str | Path"
DeadLettersLike: TypeAlias = "str | Path | list[dict[str, Any]] | TableReceiver"


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the calls of actions are delivered.

    A call that raises is tried again up to `retries` times: first after `backoff`, then after twice as long each time.
    A step stops retrying after `patience`. Calls that no receiver took go to `dead_letters`: a folder, a list or a
    receiver of tables. `journal` is the path of a file that remembers the delivered calls, so that they are not
    delivered again after a restart.

    >>> Delivery(retries=2, dead_letters="failed").backoff
    '1s'
    """

    retries: int = 5
    backoff: WindowLike = "1s"
    patience: WindowLike = "1m"
    dead_letters: DeadLettersLike | None = None
    journal: PathLike | None = None


@dataclass(frozen=True, slots=True)
class ListOfRows:
    """Appends dead letters to a list of the user."""

    rows: list[dict[str, Any]]

    def deliver_table(self, calls: pa.Table) -> None:
        self.rows.extend(calls.to_pylist())


def courier_of(routes: Sequence[Route], delivery: Delivery | None) -> Courier:
    """Returns a courier for these routes. Raises an error if an option is wrong or the journal cannot be opened."""
    own = Delivery() if delivery is None else delivery
    if not isinstance(own, Delivery):
        raise SchemaError(
            "delivery-option",
            f"`delivery` must be an `ensue.actions.Delivery`, found {type(own).__name__}",
            "pass `ensue.actions.Delivery(retries=5)`",
        )
    retries = own.retries
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise SchemaError("delivery-option", f"`retries` must be an integer of at least 0, found {retries!r}")
    policy = Policy(retries, _seconds("backoff", own.backoff), _seconds("patience", own.patience))
    journal = None if own.journal is None else Path(own.journal)
    if journal is not None:
        # Open it once now, so that an error is raised before anything runs.
        Journal(journal).close()
    return Courier(tuple(routes), policy, _letters(own.dead_letters), journal)


def _seconds(option: str, given: WindowLike) -> float:
    nanoseconds = length_of(given)
    if nanoseconds is None:
        raise SchemaError("delivery-option", f"`{option}` must be a duration such as '1s', found {given!r}")
    return nanoseconds / 1e9


def _letters(given: object) -> TableReceiver | None:
    match given:
        case None:
            return None
        case str() | Path():
            return table_sink(given)
        case list():
            return ListOfRows(given)
        case TableReceiver():
            return given
    raise SchemaError(
        "delivery-option",
        f"`dead_letters` must be a folder, a list or a receiver of tables, found {given!r}",
        "pass a path, or `table_sink(...)`, `spark_sink(...)` or `kafka(...)` of `ensue.actions`",
    )
