"""The attributes of streams, tables and heads: what they are called, and in which order they are declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ensue.analysis.declarations import columns_of, declarations
from ensue.nodes.expressions import Expr, Field
from ensue.nodes.patterns import (
    Statements,
)
from ensue.nodes.rules import (
    HeadArgument,
    Rule,
    Ruleset,
)

Attributes = Mapping[str, tuple[str, ...]]
"""The attributes of streams and tables in declared order."""


def declared_attributes(statements: Statements) -> dict[str, tuple[str, ...]]:
    """The attributes, in order, of every stream and table of which the program itself says them."""
    ruleset = statements.ruleset or Ruleset()
    known: dict[str, tuple[str, ...]] = {
        name: columns_of(ways[0])
        for name, ways in declarations(statements.statements).items()
        if isinstance(name, str) and ways[0].returns
    }
    known |= {entry.stream: entry.attributes for entry in ruleset.streams if entry.stream and entry.attributes}
    for fact in reversed(ruleset.facts):
        known[fact.table] = fact.columns or tuple(map(argument_name, range(len(fact.values))))
    known |= {entry.name: entry.columns for entry in ruleset.tables}
    for head in ruleset.heads:
        known[head] = attribute_names(first_rule(ruleset, head))
    return known


def tables_of(ruleset: Ruleset) -> frozenset[str]:
    """The names that stand for tables."""
    return frozenset(entry.name for entry in ruleset.tables) | frozenset(fact.table for fact in ruleset.facts)


def argument_name(place: int) -> str:
    """What an argument without a name is called."""
    return f"arg_{place + 1}"


def attribute_names(rule: Rule) -> tuple[str, ...]:
    """What the arguments of a head are called: as they are named, as the name that they are, or by their places."""
    names: list[str] = []
    for place, argument in enumerate(rule.arguments):
        own = argument.attribute or _bare_name(argument.expression)
        names.append(argument_name(place) if own is None or own in names else own)
    return tuple(names)


def _bare_name(expression: Expr) -> str | None:
    return expression.name if isinstance(expression, Field) and expression.variable is None else None


def in_order_of(rule: Rule, attributes: Sequence[str]) -> tuple[HeadArgument, ...]:
    """The arguments of a head in the order of its attributes: by name if all are named, otherwise by position."""
    by_name = {argument.attribute: argument for argument in rule.arguments}
    return tuple(by_name[name] for name in attributes) if set(by_name) == set(attributes) else rule.arguments


def first_rule(ruleset: Ruleset, head: str) -> Rule:
    """The rule that gives a head the names of its attributes."""
    return next(rule for rule in ruleset.rules if rule.head == head)
