"""The statement that a question is about, and the events to answer it with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ensue.analysis.declarations import declarations, streams_of
from ensue.analysis.scopes import counts_events
from ensue.api import LoadedProgram, load_tables
from ensue.constraints import ConstraintsLike
from ensue.engine.rows import MatchChunk
from ensue.engine.stage import Member
from ensue.engine.traces import WatchedEvents
from ensue.errors import Problem, QueryError, SchemaError, did_you_mean
from ensue.lower.phases import CheckedProgram, lower, rules_lowered
from ensue.lower.rulesets import unused_heads
from ensue.nodes.patterns import PatternQuery
from ensue.nodes.rules import Ruleset
from ensue.plan.inputs import InputTable
from ensue.plan.plans import Options
from ensue.plan.program_plans import ColumnNames, Columns, OrderColumns
from ensue.programs import Program, QueryLike, written_statements
from ensue.runtimes.tables import are_frames, described, fixed_tables

MOST_ROWS = 1_000_000
"""The default maximum of rows to collect from a Spark DataFrame."""


@dataclass(frozen=True, slots=True)
class QuestionEvents:
    """The events that a question is about, as the caller passed them, and the lookup tables of the program."""

    events: Any
    columns: Columns
    where: Any = None
    tables: Mapping[str, Any] | None = None
    offered: Mapping[str, Any] | None = None


def question_events(
    events: Any,
    time: ColumnNames | None,
    type: str | None,
    end: ColumnNames | None,
    order: OrderColumns | None,
    where: Any,
    tables: Mapping[str, Any] | None,
) -> QuestionEvents:
    """What a question is asked of. Questions take every event as certain."""
    source = described(events, time, type, end, order, tables=tables)
    columns = replace(source.columns, probability=None, alternatives=None)
    return QuestionEvents(source.table, columns, where, source.tables, source.offered)


@dataclass(frozen=True, slots=True)
class ChosenStatement:
    """A statement of a program, its name, and the program."""

    name: str
    query: PatternQuery
    statements: CheckedProgram
    is_head: bool = False

    def as_result(self, query: PatternQuery) -> CheckedProgram:
        """Return the program with this query as its only result, in place of the original statement."""
        declared = (other for other in self.statements.statements if other.declares)
        return replace(self.statements, statements=(*declared, query), constraints=())


def plain(query: PatternQuery) -> PatternQuery:
    """Return the statement as a pattern that returns all bound events and selects no matches."""
    return replace(query, name=None, declares=False, lookup=None, policy=None, consume=None, suppress=None, returns=())


def chosen_statements(
    query: QueryLike, name: str | None, constraints: ConstraintsLike | None = None
) -> list[ChosenStatement]:
    """Return the statements with this name; without a name, the only pattern of the program."""
    written = written_statements(query, constraints)
    statements = rules_lowered(written)
    named = _names(statements)
    wanted = _only_result(written, named) if name is None else name
    found = [ChosenStatement(called, query, statements) for called, query in named if called == wanted]
    if not found:
        raise _no_such(wanted, list(dict.fromkeys(called for called, _ in named)), statements)
    return found


def chosen_result(query: QueryLike, name: str | None, constraints: ConstraintsLike | None = None) -> ChosenStatement:
    """Return the pattern or head with this name; without a name, the only one."""
    written = written_statements(query, constraints)
    statements = rules_lowered(written)
    found = dict(zip(Program(statements).names, statements.results, strict=True))
    wanted = _only_result(written, list(found.items())) if name is None else name
    if wanted not in found:
        raise _no_such(wanted, list(found), statements)
    return ChosenStatement(wanted, found[wanted], statements, is_head=wanted in written.heads)


def _no_such(name: str, names: list[str], statements: CheckedProgram) -> QueryError:
    hint = did_you_mean(name, names) or f"statements: {', '.join(names)}"
    return QueryError([Problem("no-such-pattern", f"unknown statement `{name}`", hint=hint)], statements.source)


def _names(statements: CheckedProgram) -> list[tuple[str, PatternQuery]]:
    """Return all statements by name; for a head its rules, not the query that returns its events."""
    declared = [(str(query.name or ""), query) for query in statements.declared]
    heads = {query.name for query in statements.declared if query.rule is not None}
    results = zip(Program(statements).names, statements.results, strict=True)
    return [*((name, query) for name, query in results if query.name not in heads), *declared]


def _only_result(written: CheckedProgram, named: list[tuple[str, PatternQuery]]) -> str:
    """Return the name of the only pattern, or of the only head that no other rule uses if there are only rules."""
    results = written.results or unused_heads(written.ruleset or Ruleset())
    if len(results) == 1:
        return named[0][0] if written.results else str(results[0])
    places = list(dict.fromkeys(name for name, _ in named))
    if len(places) == 1:
        return places[0]
    raise QueryError(
        [
            Problem(
                "which-pattern",
                f"the program has {len(places)} patterns and rules; expected one",
                hint=f"select one with `name=`: {', '.join(places)}",
            )
        ],
        written.source,
    )


def load_for(
    chosen: ChosenStatement, query: PatternQuery, asked: QuestionEvents, most: int, match_id: bool = False
) -> tuple[LoadedProgram, Iterator[MatchChunk]]:
    """Load the events for this form of the statement, including those of declared streams; also return its matches."""
    statements = lower(chosen.as_result(query))
    events, columns = asked.events, asked.columns
    if are_frames(events):
        from ensue.runtimes.spark.belief_tasks import answered
        from ensue.runtimes.spark.frames import collect_events

        events, statements = answered(events, statements, columns)
        declared = declarations(statements.statements)
        streams = [name for name in streams_of(statements.statements) if name not in declared]
        named = [name for name in streams if isinstance(name, str)]
        everything = len(named) < len(streams) or any(map(counts_events, statements.statements))
        events = collect_events(events, columns, None if everything else named, asked.where, most)
    elif asked.where is not None:
        raise SchemaError("where-frame", "`where` requires a Spark DataFrame", "filter the table before the call")
    fixed = fixed_tables(asked.tables, statements, asked.offered)
    loaded = load_tables(events, statements, columns, match_id, fixed, Options(), whole=True)
    step = loaded.run(_chunks, asked=True)
    return loaded.after(step), step.outputs[0]


def _chunks(
    member: Member, watched: WatchedEvents, chunks: Iterator[MatchChunk], options: Options
) -> Iterator[MatchChunk]:
    return chunks


def tables_of(loaded: LoadedProgram) -> tuple[InputTable, ...]:
    """Describe the tables that a plan reads, including those of declared streams."""
    return (*loaded.planned.tables, *(derivation.item for derivation in loaded.planned.derivations))
