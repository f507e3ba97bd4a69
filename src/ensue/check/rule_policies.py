"""Checks of MATCH and CONSUME in rules: which matches of a body are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from ensue.analysis.declarations import Attributes, tables_of
from ensue.errors import Problem
from ensue.lower.rule_parts import whole_rule
from ensue.lower.rule_reader import RuleReader, all_of, bare_names_outside_aggregates
from ensue.nodes import rules
from ensue.nodes.expressions import Binary, Field, conjuncts
from ensue.nodes.patterns import CHRONICLE, CONTEXTS, RECENT, UNRESTRICTED, And, Event, Seq, walk
from ensue.text.render import render_query

RULE_POLICIES = (UNRESTRICTED, RECENT, CHRONICLE)
"""The policies of rules; patterns have more."""

_WORDS = {rules.While: "while", rules.Causes: "causes", rules.TimerItem: "timers"}


def check_policy(rule: rules.Rule, ruleset: rules.Ruleset, attributes: Attributes) -> Iterator[Problem]:
    """The problems of the policy of a rule without other problems."""
    if rule.policy in (None, UNRESTRICTED) and not rule.consume:
        return
    clause = "CONSUME" if rule.policy in (None, UNRESTRICTED) else f"MATCH {rule.policy}"
    place = rule.policy_span or rule.span
    atoms = [item for item in rules.all_items(rule.body) if isinstance(item, rules.Atom)]
    tables = tables_of(ruleset)
    if rule.policy is not None and rule.policy not in RULE_POLICIES:
        said = f"a rule does not support MATCH {rule.policy}; available: {', '.join(RULE_POLICIES)}"
        yield Problem("policy-operator", said, place, hint=_pattern_hint(rule, ruleset, attributes))
    elif rule.consume and rule.policy in CONTEXTS:
        said = f"MATCH {rule.policy} cannot be combined with CONSUME"
        hint = "CHRONICLE already uses events up" if rule.policy == CHRONICLE else "remove one of them"
        yield Problem("policy-combination", said, place, hint=hint)
    elif any(isinstance(item, rules.Alternatives) for item in rule.body):
        said = f"{clause} cannot be combined with OR in a rule, because each choice is a separate rule"
        hint = "derive the choices by rules with one head, and use their events as an item of this rule"
        yield Problem("policy-combination", said, place, hint=hint)
    elif any(atom.stream in tables for atom in atoms):
        said = f"{clause} cannot be combined with a table in a rule"
        hint = "look the table up in a rule that uses the events of this head"
        yield Problem("policy-combination", said, place, hint=hint)
    else:
        yield from _check_items(rule, clause)


def _check_items(rule: rules.Rule, clause: str) -> Iterator[Problem]:
    refused = tuple(_WORDS) if rule.policy in CONTEXTS else (rules.Causes,)
    item = next((item for item in rule.body if isinstance(item, refused)), None)
    if item is not None:
        said = f"{clause} does not support {_WORDS[type(item)]} in a rule"
        hint = "derive the events with this policy by one rule, and use them as an item of another rule with the rest"
        yield Problem("policy-operator", said, item.span, hint=hint)
    elif grouping := _grouping(rule):
        said = f"{clause} cannot be combined with groups: `{grouping}` gives several events for one match"
        place = rule.policy_span or rule.span
        yield Problem("policy-combination", said, place, hint="collect in a rule that uses the events of this head")


def _grouping(rule: rules.Rule) -> str | None:
    """A name of the head, outside aggregates, that only a `collect` binds."""
    listed = [item.atom for item in rule.body if isinstance(item, rules.While) and item.collects]
    bound = {name for item in rule.body if isinstance(item, rules.Atom) for name in _names(item)}
    names = {name for atom in listed for name in _names(atom)} - bound
    used = (name for argument in rule.arguments for name in bare_names_outside_aggregates(argument.expression))
    return next((name for name in used if name in names), None)


def _names(atom: rules.Atom) -> list[str]:
    return [argument.term.name for argument in atom.arguments if isinstance(argument.term, rules.Name)]


def _pattern_hint(rule: rules.Rule, ruleset: rules.Ruleset, attributes: Attributes) -> str:
    """The pattern with the policy of a rule, if its items can be written as one."""
    items = [*rules.all_items(rule.body)]
    tables = tables_of(ruleset)
    plain = all(
        isinstance(item, rules.Together | rules.Temporal | rules.Condition)
        or (isinstance(item, rules.Atom) and item.stream not in tables)
        for item in items
    )
    general = f"declare a stream with this policy: `STREAM name FROM PATTERN SEQ(...) MATCH {rule.policy}`"
    if not plain or len(items) > len(rule.body):
        return general
    part = whole_rule(replace(rule, policy=CHRONICLE), attributes)
    (query,) = RuleReader(part, 1, ruleset, attributes).statements()
    if rule.policy not in CONTEXTS:
        # These policies are for SEQ: each item is before the next.
        names = [event.variable for event in walk(query.pattern) if isinstance(event, Event) and event.variable]
        gaps = [Binary("<", Field(x, "e"), Field(y, "s")) for x, y in pairwise(names)]
        stated = conjuncts(query.where)
        if not isinstance(query.pattern, And) or not all(gap in stated for gap in gaps):
            return general
        where = all_of([condition for condition in stated if condition not in gaps])
        query = replace(query, pattern=Seq(query.pattern.items), where=where)
    if any(event.positions for event in walk(query.pattern) if isinstance(event, Event)):
        return general
    text = render_query(replace(query, policy=rule.policy, rule=None, span=None))
    return f"declare a stream instead of the rule: `{' '.join(text.split())}`"
