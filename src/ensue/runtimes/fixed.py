"""Tables that do not change: those that are handed over for a program's TABLEs, and the rows of its FACTs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ensue.check.table_checks import different_kinds, fact_value, facts_by_table, table_columns
from ensue.errors import Problem, QueryError, SchemaError, did_you_mean
from ensue.expr.types import common_type, convert, describe, readable, scalar
from ensue.lower.phases import Lowered
from ensue.nodes.rules import Fact, Ruleset, TableDeclaration
from ensue.plan.inputs import check_duplicates
from ensue.plan.program_plans import FixedTables
from ensue.runtimes.tables import are_frames, kind_of_table, without_views


def fixed_tables(given: Mapping[str, Any] | None, statements: Lowered) -> FixedTables:
    """The tables that a program looks up, by name, in the types that expressions see; they are read here and now."""
    if given is None and statements.ruleset is None:
        return {}
    ruleset = statements.ruleset or Ruleset()
    facts = facts_by_table(ruleset)
    declared = {entry.name: entry for entry in ruleset.tables}
    handed_over = _checked_names({} if given is None else given, declared)
    if problems := [_no_table(entry) for entry in ruleset.tables if entry.name not in {*handed_over, *facts}]:
        raise QueryError(problems, statements.source)
    tables: dict[str, pa.Table] = {}
    for name in (*declared, *(name for name in facts if name not in declared)):
        columns = table_columns(declared.get(name), facts.get(name, []))
        parts = []
        if name in handed_over:
            parts.append(_read(name, handed_over[name], columns))
        if name in facts:
            parts.append(_table_of(facts[name], columns))
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


def _no_table(entry: TableDeclaration) -> Problem:
    return Problem(
        "no-table",
        f"nothing was handed over for TABLE `{entry.name}`",
        entry.span,
        hint=f'pass `tables={{"{entry.name}": ...}}`, or write its rows as FACTs',
    )


def _table_of(facts: Sequence[Fact], columns: Sequence[str]) -> pa.Table:
    """The rows of a program; the values of a column go together (see `check_tables`)."""
    arrays = []
    for column in columns:
        values = [scalar(fact_value(fact, columns, column)) for fact in facts]
        kind = common_type([value.type for value in values if value is not None])
        arrays.append(pa.array([None if value is None else value.as_py() for value in values], kind))
    return pa.table(arrays, names=list(columns))


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


def _joined(name: str, parts: Sequence[pa.Table], fact: Fact, statements: Lowered) -> pa.Table:
    """The rows that were handed over and those of the program."""
    arrays = []
    for column in parts[0].column_names:
        own = [part.column(column) for part in parts]
        kind = common_type([each.type for each in own])
        if kind is None:
            problem = different_kinds(fact, column, describe(own[1].type), describe(own[0].type))
            raise QueryError([problem], statements.source)
        arrays.append(pa.chunked_array([chunk for each in own for chunk in convert(each, kind).chunks], kind))
    return pa.table(arrays, names=parts[0].column_names)
