"""What is wrong with the TABLEs and FACTs of a program, whatever is handed over for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ensue.errors import Problem, counted, did_you_mean
from ensue.expr.kinds import NULL_TYPE, common_type, literal_type
from ensue.nodes.expressions import Literal
from ensue.nodes.rules import Fact, Ruleset, TableDeclaration


def check_tables(ruleset: Ruleset) -> Iterator[Problem]:
    """A table is declared once, and its FACTs have its columns, each of one kind."""
    declared: dict[str, TableDeclaration] = {}
    for entry in ruleset.tables:
        if declared.setdefault(entry.name, entry) is not entry:
            said = f"TABLE `{entry.name}` is declared twice"
            yield Problem("duplicate-table", said, entry.span, hint="leave one out")
    for name, facts in facts_by_table(ruleset).items():
        columns = table_columns(declared.get(name), facts)
        misfits = list(_misfits(facts, columns))
        yield from misfits
        if not misfits:
            for column in columns:
                yield from _kinds(facts, columns, column)


def facts_by_table(ruleset: Ruleset) -> dict[str, list[Fact]]:
    """The FACTs of each table, in the order of the text."""
    facts: dict[str, list[Fact]] = {}
    for fact in ruleset.facts:
        facts.setdefault(fact.table, []).append(fact)
    return facts


def table_columns(declaration: TableDeclaration | None, facts: Sequence[Fact]) -> tuple[str, ...]:
    """The columns of a table: those of its TABLE, or the names in its first FACT, or numbers."""
    if declaration is not None:
        return declaration.columns
    first = facts[0]
    return first.columns or tuple(f"arg_{place}" for place in range(1, len(first.values) + 1))


def fact_value(fact: Fact, columns: Sequence[str], column: str) -> Literal:
    """What a FACT says of a column of its table."""
    return fact.values[(fact.columns or columns).index(column)]


def different_kinds(fact: Fact, column: str, one: str, other: str) -> Problem:
    return Problem(
        "fact-types",
        f"column `{column}` of `{fact.table}` is {one} here and {other} elsewhere",
        fact.span,
        hint="the values of a column are of one kind",
    )


def _misfits(facts: Sequence[Fact], columns: Sequence[str]) -> Iterator[Problem]:
    """Facts with other columns than their table."""
    for fact in facts:
        if len(fact.values) != len(columns):
            values, named = counted(len(fact.values), "value", "values"), counted(len(columns), "column", "columns")
            yield Problem(
                "fact-columns",
                f"this row of `{fact.table}` has {values}, and the table has {named}",
                fact.span,
                hint=f"columns: {', '.join(columns)}",
            )
        elif fact.columns is not None and set(fact.columns) != set(columns):
            unknown = next((name for name in fact.columns if name not in columns), fact.columns[0])
            yield Problem(
                "fact-columns",
                f"table `{fact.table}` has no column `{unknown}`",
                fact.span,
                hint=did_you_mean(unknown, columns) or f"columns: {', '.join(columns)}",
            )


def _kinds(facts: Sequence[Fact], columns: Sequence[str], column: str) -> Iterator[Problem]:
    """The first fact whose value does not go with those before it."""
    kind = NULL_TYPE
    for fact in facts:
        own = literal_type(fact_value(fact, columns, column))
        both = None if own is None else common_type([kind, own])
        if own is None or both is None:
            found = "an integer beyond 64 bits" if own is None else own.word
            yield different_kinds(fact, column, found, kind.word)
            return
        kind = both
