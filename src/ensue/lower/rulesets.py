"""Rules as patterns: each becomes a statement that declares the stream of its head.

So nothing below this module knows of rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ensue.analysis.attributes import (
    declared_attributes,
    first_rule,
)
from ensue.lower.rule_reader import RuleReader
from ensue.nodes.causes import cause_statements
from ensue.nodes.expressions import Field
from ensue.nodes.names import Stream
from ensue.nodes.patterns import (
    AnyStatements,
    Event,
    PatternQuery,
    Return,
)
from ensue.nodes.rules import (
    Action,
    Atom,
    Rule,
    Ruleset,
    While,
)

RESULT = "v"
"""What an event of a head is called in the statement whose matches are the result."""


def resolve_rules(statements: AnyStatements) -> AnyStatements:
    """The statements with rules as patterns: those that declare the heads, and one for each head as a result."""
    ruleset = statements.ruleset
    if ruleset is None or not ruleset.rules:
        return statements
    attributes = declared_attributes(statements)
    made: list[PatternQuery] = [*cause_statements(ruleset)]
    for number, rule in enumerate(ruleset.rules, start=1):
        made += RuleReader(rule, number, ruleset, attributes).statements()
    results = [result_of(head, attributes[head], first_rule(ruleset, head)) for head in ruleset.heads]
    return replace(
        statements,
        statements=(*statements.statements, *made, *results),
        ruleset=replace(ruleset, rules=()),
    )


def is_result_of(query: PatternQuery, head: Stream) -> bool:
    """Whether a statement is the one whose matches are the events of a head."""
    event = query.pattern
    return query.name == head and not query.declares and isinstance(event, Event) and event.stream == head


def unused_heads(ruleset: Ruleset) -> tuple[str, ...]:
    """The heads that no rule of another head uses."""
    used = {stream for rule in ruleset.rules for stream in _streams_of(rule) if stream != rule.head}
    return tuple(head for head in ruleset.heads if head not in used)


def heads_below(head: str, ruleset: Ruleset) -> tuple[str, ...]:
    """A head and all that it stands on, at any depth."""
    found = [head]
    for current in found:
        used = [stream for rule in ruleset.rules if rule.head == current for stream in _streams_of(rule)]
        found += [stream for stream in dict.fromkeys(used) if stream in ruleset.heads and stream not in found]
    return tuple(found)


def _streams_of(rule: Rule) -> list[str]:
    """What the body of a rule is about."""
    atoms = [item.atom if isinstance(item, While) else item for item in rule.body if isinstance(item, While | Atom)]
    return [atom.stream for atom in atoms]


def result_of(head: str, attributes: Sequence[str], rule: Rule) -> PatternQuery:
    """The statement whose matches are the events of a head."""
    columns = [Return(Field(RESULT, "s"), "start"), Return(Field(RESULT, "e"), "end")]
    columns += [Return(Field(RESULT, name), name) for name in attributes]
    return PatternQuery(Event(head, RESULT, span=rule.span), head, returns=tuple(columns), span=rule.span)


def action_query(action: Action) -> PatternQuery:
    """The events that an ON statement is about, with the arguments of its call."""
    arguments = enumerate(action.arguments, start=1)
    returns = tuple(Return(given.expression, f"arg_{place}", given.span) for place, given in arguments)
    name = f"ON {action.stream} DO {action.action}"
    event = Event(action.stream, action.variable, span=action.span)
    return PatternQuery(event, name, action.where, returns=returns, span=action.span)
