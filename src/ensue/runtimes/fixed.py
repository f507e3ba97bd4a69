"""Tables that do not change: those that are handed over for a program's TABLEs, and the rows of its FACTs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from ensue.algebra.rules import Fact, Ruleset, TableDeclaration
from ensue.check import Checked
from ensue.errors import Problem, QueryError, SchemaError, counted, did_you_mean
from ensue.expr.types import common_type, convert, describe, readable, scalar
from ensue.runtimes.tables import are_frames, check_duplicates, kind_of_table, without_views

FixedTables: TypeAlias = Mapping[str, pa.Table]
NO_TABLES: FixedTables = {}


def fixed_tables(given: Mapping[str, Any] | None, statements: Checked) -> FixedTables:
    """The tables that a program looks up, by name, in the types that expressions see; they are read here and now."""
    ruleset = statements.ruleset or Ruleset()
    facts: dict[str, list[Fact]] = {}
    for fact in ruleset.facts:
        facts.setdefault(fact.table, []).append(fact)
    declared = {entry.name: entry for entry in ruleset.tables}
    handed_over = _checked_names({} if given is None else given, declared)
    if problems := list(_problems(ruleset, facts, handed_over)):
        raise QueryError(problems, statements.source)
    tables: dict[str, pa.Table] = {}
    for name in (*declared, *(name for name in facts if name not in declared)):
        columns = _columns(declared.get(name), facts.get(name, []))
        parts = []
        if name in handed_over:
            parts.append(_read(name, handed_over[name], columns))
        if name in facts:
            parts.append(_table_of(facts[name], columns, statements))
        tables[name] = parts[0] if len(parts) == 1 else _joined(name, parts, facts[name][0], statements)
    return tables


def _checked_names(given: Mapping[str, Any], declared: Mapping[str, TableDeclaration]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise SchemaError(
            "unknown-table",
            f"`tables` is a mapping of names to tables, not {type(given).__name__}",
            "pass a dictionary",
        )
    for name in given:
        if name not in declared:
            known = f"it declares {', '.join(declared)}" if declared else f"declare it: TABLE {name}(column, ...)"
            hint = did_you_mean(str(name), declared) or known
            raise SchemaError("unknown-table", f"the program declares no TABLE `{name}`", hint)
    return given


def _problems(ruleset: Ruleset, facts: Mapping[str, Sequence[Fact]], given: Mapping[str, Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for entry in ruleset.tables:
        if entry.name in seen:
            yield Problem(
                "duplicate-table", f"TABLE `{entry.name}` is declared twice", entry.span, hint="leave one out"
            )
        elif entry.name not in given and entry.name not in facts:
            yield Problem(
                "no-table",
                f"nothing was handed over for TABLE `{entry.name}`",
                entry.span,
                hint=f'pass `tables={{"{entry.name}": ...}}`, or write its rows as FACTs',
            )
        seen.add(entry.name)
    declared = {entry.name: entry for entry in ruleset.tables}
    for name, rows in facts.items():
        yield from _misfits(rows, _columns(declared.get(name), rows))


def _columns(declaration: TableDeclaration | None, facts: Sequence[Fact]) -> tuple[str, ...]:
    """The columns of a table: those of its TABLE, or the names in its first FACT, or numbers."""
    if declaration is not None:
        return declaration.columns
    first = facts[0]
    return first.columns or tuple(f"arg_{place}" for place in range(1, len(first.values) + 1))


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


def _table_of(facts: Sequence[Fact], columns: Sequence[str], statements: Checked) -> pa.Table:
    arrays = []
    for place, name in enumerate(columns):
        kind: pa.DataType = pa.null()
        values = []
        for fact in facts:
            literal = fact.values[place if fact.columns is None else fact.columns.index(name)]
            value = scalar(literal)
            together = None if value is None else common_type([kind, value.type])
            if value is None or together is None:
                found = "an integer beyond 64 bits" if value is None else describe(value.type)
                raise _different_types(fact, name, found, describe(kind), statements)
            kind = together
            values.append(value)
        arrays.append(pa.array([value.as_py() for value in values], kind))
    return pa.table(arrays, names=list(columns))


def _different_types(fact: Fact, column: str, one: str, other: str, statements: Checked) -> QueryError:
    problem = Problem(
        "fact-types",
        f"column `{column}` of `{fact.table}` is {one} here and {other} elsewhere",
        fact.span,
        hint="the values of a column are of one kind",
    )
    return QueryError([problem], statements.source)


def _read(name: str, given: Any, columns: Sequence[str]) -> pa.Table:
    """What was handed over for a TABLE, with the columns that it names."""
    table = given.toArrow() if are_frames(given) else kind_of_table(given).to_arrow(given)
    table = without_views(table)
    check_duplicates(table.column_names, f"table `{name}`")
    for column in columns:
        if column not in table.column_names:
            raise SchemaError(
                "no-such-column",
                f"table `{name}` has no column `{column}`; columns: {', '.join(table.column_names)}",
                did_you_mean(column, table.column_names) or f"TABLE {name} names the columns that are used",
            )
    return pa.table([readable(table.column(column), column) for column in columns], names=list(columns))


def _joined(name: str, parts: Sequence[pa.Table], fact: Fact, statements: Checked) -> pa.Table:
    """The rows that were handed over and those of the program."""
    arrays = []
    for column in parts[0].column_names:
        own = [part.column(column) for part in parts]
        kind = common_type([each.type for each in own])
        if kind is None:
            raise _different_types(fact, column, describe(own[1].type), describe(own[0].type), statements)
        arrays.append(pa.chunked_array([chunk for each in own for chunk in convert(each, kind).chunks], kind))
    return pa.table(arrays, names=parts[0].column_names)
