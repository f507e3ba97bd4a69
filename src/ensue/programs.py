"""Programs: parse queries from text, files or Python objects, check them, and explain them without data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ensue.arguments import helpful
from ensue.check.gate import checked
from ensue.errors import Problem, QueryError, Span
from ensue.lower.phases import CheckedProgram, LoweredProgram, collector_paused, lower, rules_lowered
from ensue.lower.phases import stages as stages_of
from ensue.lower.rulesets import action_query, unused_heads, with_keys
from ensue.nodes.constraints import ConstraintStatement
from ensue.nodes.patterns import PatternQuery, Statements
from ensue.nodes.rules import Ruleset
from ensue.plan.lawfulness import laws_by_query
from ensue.text.citations import joined
from ensue.text.parser import NO_FUNCTIONS, file_statements, parse_statements
from ensue.text.render import render_statements
from ensue.text.rule_builder import ruleset_of

if TYPE_CHECKING:
    from ensue.constraints import ConstraintsLike
    from ensue.plan.description import Explanation
    from ensue.python.functions import QueryFunction
    from ensue.python.patterns import Pattern, Query
    from ensue.python.rows import Rows
    from ensue.python.state import State
    from ensue.rules import RuleStatement

Statement: TypeAlias = "str | Path | Query | Pattern | Rows | RuleStatement | State | Program"
QueryLike: TypeAlias = "Statement | Sequence[Statement]"
"""A query: a text, the path of a file, or built in Python. A list is a program of its members."""

EMPTY = Statements(())
"""The program of a call without a program."""


@dataclass(frozen=True)
class Program:
    """The statements of a text or file, in order.

    Its results are the matches of its patterns. Other statements can use its declared STREAMs.

    >>> program = parse("PATTERN pair SEQ(A a, B b) WITHIN 5; PATTERN lone AND(C c, NOT C other) WITHIN 5")
    >>> list(program.names)
    ['pair', 'lone']
    >>> parse(program.to_text()) == program
    True
    """

    statements: Statements

    @property
    def queries(self) -> tuple[Query, ...]:
        """The patterns whose matches are results."""
        from ensue.python.patterns import Query

        return tuple(Query(node) for node in self.statements.results)

    @property
    def constraints(self) -> tuple[ConstraintStatement, ...]:
        return self.statements.constraints

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each pattern (a number if it has no name) and the heads of rules."""
        taken = {node.name for node in self.statements.results}
        names: list[str] = []
        for place, node in enumerate(self.statements.results, start=1):
            fresh = (name for number in count(place) if (name := f"pattern_{number}") not in {*taken, *names})
            names.append(next(fresh) if node.name is None else str(node.name))
        return (*names, *self.statements.heads)

    def __repr__(self) -> str:
        return f'Program("{self.to_text().rstrip()}")'

    def to_text(self) -> str:
        """Return the program as text, which parses to an equal program."""
        return render_statements(self.statements)

    def explain(self, *, time: str = "t", end: str | None = None, stages: bool = False) -> str:
        """Explain the meaning and the plan of each pattern, or its stages; see `ensue.explain`."""
        if stages:
            return stages_text(checked(self.statements))
        return explanation_text(checked(self.statements), time, end)

    def _repr_html_(self) -> str:
        """Return each pattern and rule with its graph, for a notebook."""
        from ensue.plan.picture import as_html

        return as_html(explained_statements(checked(self.statements), "t"))


@helpful
@collector_paused()
def parse(query: str | Path, name: str | None = None, functions: Sequence[QueryFunction] = ()) -> Program:
    """Parse one or more statements and check everything that can be checked without data.

    `query` is a text, or a `pathlib.Path` of a file to read. Errors cite `name`, by default "query" or the file name.
    `functions` are functions of your own, made with `ensue.function`, which the query calls by name.

    >>> parse("PATTERN SEQ(A a, NOT B b) ").queries
    Traceback (most recent call last):
    ensue.errors.QueryError: error[open-scope]: the forbidden events after the match have no time limit
     --> query:1:18
      |
    1 | PATTERN SEQ(A a, NOT B b)\x20
      |                  ^^^^^^^
    hint: add WITHIN to the whole pattern, or put the NOT between two items of a SEQ
    """
    known: Mapping[str, object] = NO_FUNCTIONS
    if functions:
        from ensue.expr.user_functions import by_name

        known = by_name(functions)
    if isinstance(query, str):
        return Program(checked(parse_statements(query, name or "query", known)))
    if isinstance(query, Path):
        return Program(checked(file_statements(query, name, known)))
    raise _not_a_query(query)


@helpful
def explain(
    query: QueryLike,
    *,
    time: str = "t",
    end: str | None = None,
    constraints: ConstraintsLike | None = None,
    stages: bool = False,
) -> str:
    """Explain what a query means and how it will run, without data.

    `time` is the name of the time column, and `end` that of the column with the ends of events, if they have one. With
    `stages`, return the program as written and after each lowering that changes it.

    >>> print(explain("PATTERN SEQ(A a, B b) WITHIN 5"))
    PATTERN
      PATTERN SEQ(A a, B b)
        WITHIN 5
    <BLANKLINE>
    GRAPH
      a: an event of A
      b: an event of B
      a before b, all within 5
    <BLANKLINE>
    PLAN
      all events form one group, sorted by time
      read A: all columns, because the query returns whole events
      read B: all columns, because the query returns whole events
      join a, b: start with the rarest in the data, then search each next one in its time range
    <BLANKLINE>
    STATE
      A as a: kept for 5
      B as b: not kept
      bounded
    <BLANKLINE>
    SPARK
      batch: shuffled by time slices of 80 that overlap by 5
      stream: in one task, with one state, because no equality connects `a` and `b`
    >>> print(explain("PATTERN FOLLOWS(A a, B b, 5)", stages=True))
    WRITTEN
      PATTERN FOLLOWS(A a, B b, 5);
    <BLANKLINE>
    OPERATORS: operators such as FOLLOWS(x, y, d) are items and relations between their ends
      -- FOLLOWS: a.e < b.e, b.e - a.e <= 5
      PATTERN AND(A a, B b);
    """
    statements = written_statements(query, constraints)
    refuse_several(statements)
    if stages:
        return stages_text(statements)
    return explanation_text(statements, time, end)


def stages_text(statements: CheckedProgram) -> str:
    """Return the program as written and after each lowering that changes it, with the name and law of the lowering."""
    from ensue.plan.description import PlainText
    from ensue.text.render import render_stage

    texts = (
        stage.name.upper()
        + (f": {stage.law}" if stage.law else "")
        + "".join(f"\n{f'  {line}'.rstrip()}" for line in render_stage(stage.statements).splitlines())
        for stage in stages_of(statements)
    )
    return PlainText("\n\n".join(texts))


def explanation_text(statements: CheckedProgram, time: str, end: str | None = None) -> str:
    """What each statement means and how it will run."""
    from ensue.plan.description import PlainText, tables_in_words

    entries = [entry.to_text() for entry in explained_statements(statements, time, end)]
    tables = "" if statements.ruleset is None else tables_in_words(statements.ruleset)
    return PlainText("\n\n".join([tables, *entries] if tables else entries))


def explained_statements(statements: CheckedProgram, time: str, end: str | None = None) -> list[Explanation]:
    """Explain each statement as written; for a head, each of its rules."""
    from ensue.plan.description import explain_without_data, with_shared

    acting = _acting(statements)
    if not statements.results and not statements.heads and not acting:
        raise _no_pattern(statements)
    heads = statements.heads
    statements = rules_lowered(statements)
    statements = replace(statements, statements=with_keys(statements.statements))
    among = (*statements.statements, *acting)
    laws = laws_by_query(statements)
    return with_shared(
        explain_without_data(node, statements.source, time, laws.get(node), among, end).with_rows(statements.selections)
        for node in statements.statements
        if node.declares or node.name not in heads
    )


def _acting(statements: Statements) -> tuple[PatternQuery, ...]:
    """Return the ON statements as patterns over the streams that they use."""
    actions = statements.ruleset.actions if statements.ruleset is not None else ()
    return tuple(map(action_query, actions))


def single_statement(query: QueryLike, constraints: ConstraintsLike | None = None) -> LoweredProgram:
    """Return the only query with its constraints and its text, so that messages can cite it."""
    written = written_statements(query, constraints)
    if len(written.results) != 1:
        refuse_several(written)
    return lowered_result(written) if written.heads else lower(written)


def lowered_result(written: CheckedProgram) -> LoweredProgram:
    """Return a program with one result, without the heads of rules that are not results."""
    statements = lower(written)
    if not written.heads:
        return statements
    wanted = wanted_result(written)
    chosen = (node for node in statements.statements if node.declares or node.name == wanted)
    return replace(statements, statements=tuple(chosen))


def has_one_result(statements: Statements) -> bool:
    """Return True if there is one PATTERN, or only rules with one head that no other rule uses.

    >>> has_one_result(parse("PATTERN SEQ(A a, B b)").statements)
    True
    >>> has_one_result(parse("STATE s OF a IN (x, y)").statements)
    False
    """
    if statements.results or statements.ruleset is None:
        return len(statements.results) == 1
    return len(unused_heads(statements.ruleset)) == 1


def refuse_several(statements: Statements) -> None:
    """Raise an error for a program without a result, or with several PATTERNs."""
    if not statements.results and not statements.heads:
        raise _no_pattern(statements)
    if len(statements.results) > 1:
        raise _several_queries(statements, "PATTERN statements", statements.results[1].span)


def wanted_result(statements: Statements) -> str | None:
    """Return the name of the only pattern, or of the only head that no other rule uses if there are only rules."""
    if statements.results or statements.ruleset is None:
        name = statements.results[0].name if statements.results else None
        return None if name is None else str(name)
    heads = unused_heads(statements.ruleset)
    if len(heads) != 1:
        rules = [rule for rule in statements.ruleset.rules if rule.head in heads[1:]]
        raise _several_queries(statements, "heads that no other rule uses", rules[0].span if rules else None)
    return heads[0]


def _several_queries(statements: Statements, what: str, span: Span | None) -> QueryError:
    number = len(statements.results) or len(unused_heads(statements.ruleset or Ruleset()))
    problem = Problem(
        "one-query",
        f"expected one result, found {number} {what}",
        span,
        hint="use `ensue.run` for programs with several patterns or rules",
    )
    return QueryError([problem], statements.source)


def program_statements(program: QueryLike, constraints: ConstraintsLike | None = None) -> LoweredProgram:
    """Return the patterns and rules of a program with its constraints."""
    statements = written_statements(program, constraints)
    if not statements.results and not statements.heads:
        raise _no_pattern(statements)
    return lower(statements)


@collector_paused()
def written_statements(program: QueryLike, constraints: ConstraintsLike | None = None) -> CheckedProgram:
    """Return the statements of a program with additional constraints, as written. Every entry point starts here.

    A text is parsed once. A query built in Python is rendered as text only if an error has to cite it.
    """
    if constraints is None and isinstance(program, str):
        return checked(parse_statements(program))
    if constraints is None and isinstance(program, Program):
        return checked(program.statements)
    parts = [part for part in _parts(program) if part != EMPTY]
    if constraints is None:
        return checked(joined(parts or [EMPTY]))
    from ensue.constraints import constraint_statements

    known = {entry for part in parts for entry in part.constraints}
    further = constraint_statements(constraints)
    further = replace(further, constraints=tuple(entry for entry in further.constraints if entry not in known))
    return further if not parts else checked(joined([*parts, further] if further.constraints else parts))


def _parts(query: object) -> Iterator[Statements]:
    """Yield the statements of each text, program, or value built in Python, which has no text yet."""
    if isinstance(query, str):
        yield parse_statements(query)
        return
    from ensue.python.patterns import Pattern, Query, query_of
    from ensue.python.rows import Rows
    from ensue.python.state import State
    from ensue.rules import RuleStatement

    match query:
        case Program():
            yield query.statements
        case Path():
            yield file_statements(query)
        case RuleStatement():
            yield Statements((), ruleset=ruleset_of([query.node]))
        case State():
            yield Statements((), states=(query.node,))
        case Rows():
            yield Statements((), selections=(query.node,))
        case Query():
            yield Statements((query.node,))
        case Pattern():
            yield Statements((query_of(query).node,))
        case list() | tuple() if query:
            for member in query:
                yield from _parts(member)
        case _:
            raise _not_a_query(query)


def _not_a_query(given: object) -> QueryError:
    """Return the error for a value that is not a query; a table is probably in the wrong place."""
    kind, hint = type(given), ""
    if kind.__name__ == "Detector":
        hint = "pass the detector first and the query second: `ensue.waiting(detector, query)`"
    if hasattr(kind, "columns") or hasattr(kind, "column_names") or isinstance(given, Mapping):
        hint = "pass the events first and the query second, as in `ensue.detect(events, query)`; `Detector`, `parse`"
        hint += " and `explain` take only the query"
    wanted = "a query must be a text, a `pathlib.Path`, or built with `ensue.seq` and similar functions"
    return QueryError([Problem("not-a-query", f"{wanted}, found {kind.__name__}", hint=hint)])


def keyed(statements: CheckedProgram, partition_by: str | Sequence[str]) -> CheckedProgram:
    """Add keys to the constraints that have none."""
    keys = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    if not keys:
        return statements
    keyed = tuple(replace(e, partition_by=e.partition_by or keys) for e in statements.constraints)
    return replace(statements, constraints=keyed)


def constraints_alone(statements: CheckedProgram) -> CheckedProgram:
    """Remove the rules, whose events are not part of the traces that constraints describe."""
    ruleset = statements.ruleset
    return statements if ruleset is None else replace(statements, ruleset=replace(ruleset, rules=()))


def _no_pattern(statements: Statements) -> QueryError:
    spans = [query.span for query in statements.declared]
    spans += [selection.span for selection in statements.selections]
    spans += [entry.span for entry in statements.constraints]
    place = next(iter(spans), None)
    hint = "add a PATTERN; constraints only describe its events"
    if statements.declared or statements.selections:
        hint = "add a PATTERN that uses the declared streams; a STREAM alone has no result"
    if statements.ruleset is not None and statements.ruleset.table_rules:
        place = statements.ruleset.table_rules[0].span
        hint = "add a rule or a PATTERN over events; rules over tables alone derive tables, which have no result"
    return QueryError([Problem("no-pattern", "the query has no PATTERN", place, hint=hint)], statements.source)
