"""Programs whose streams are made by rules, written as the statements that rules become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import ensue
from inside import Fact, Literal, Lookup, Rule, Ruleset, Statements, TableDeclaration, parse_statements


def program(
    text: str,
    lookups: Mapping[int, Lookup] | None = None,
    facts: Sequence[tuple[object, ...]] = (),
    tables: Sequence[TableDeclaration] = (),
) -> ensue.Program:
    """The STREAMs of a text as rules; `lookups` are those of some statements by their place in the text.

    A fact is the name of a table and its values.
    """
    parsed = parse_statements(text)
    statements = [
        replace(query, rule=Rule(query.name or "", (), ()), lookup=(lookups or {}).get(place))
        if query.declares
        else query
        for place, query in enumerate(parsed.statements)
    ]
    rows = tuple(Fact(str(name), tuple(Literal(value) for value in values)) for name, *values in facts)
    ruleset = Ruleset(tables=tuple(tables), facts=rows)
    return ensue.Program(Statements(tuple(statements), parsed.source, ruleset=ruleset))
