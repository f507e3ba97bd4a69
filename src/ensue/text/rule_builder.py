"""The rules of RULE, FACT, TABLE, STREAM and ON: from what the parser read to nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from lark import Token

from ensue.errors import Span
from ensue.expr.functions import FUNCTIONS
from ensue.nodes.expressions import Call, Expr
from ensue.nodes.patterns import Events
from ensue.nodes.rules import (
    Action,
    ActionArgument,
    Atom,
    Causes,
    Condition,
    Fact,
    HeadArgument,
    Item,
    Rule,
    Ruleset,
    StreamDeclaration,
    TableDeclaration,
    Temporal,
    TimerItem,
    Together,
    While,
)
from ensue.text.build_values import ValueRules
from ensue.text.reserved import read_name, unquote_name
from ensue.text.rule_arguments import (
    head_problem,
    misjoined_items,
    positions_behind_names,
    read_arguments,
    read_values,
    repeated_columns,
    window_problem,
)
from ensue.text.timers import Occurrence, is_timer, read_timer, unnamed_timer

if TYPE_CHECKING:
    from ensue.text.builder import Clause

RulesetStatement = Rule | Fact | TableDeclaration | StreamDeclaration | Action
_KINDS = (Rule, Fact, TableDeclaration, StreamDeclaration, Action)
"""The statements of a ruleset, in the order of its fields."""


class Given(NamedTuple):
    """An argument of a head or an action, with its name if it has one."""

    expression: Expr
    name: str | None
    span: Span


def ruleset_of(statements: Iterable[object]) -> Ruleset | None:
    """The rules and what goes with them among the statements of a text; None: there are none."""
    listed = tuple(statements)

    def of_kind(kind: type[Any]) -> tuple[Any, ...]:
        return tuple(statement for statement in listed if isinstance(statement, kind))

    return Ruleset(*map(of_kind, _KINDS)) or None


def joined_rulesets(rulesets: Iterable[Ruleset | None]) -> Ruleset | None:
    """The rules of several texts as those of one."""
    given = [ruleset for ruleset in rulesets if ruleset is not None]
    return ruleset_of(
        statement
        for part in given
        for statement in (*part.rules, *part.facts, *part.tables, *part.streams, *part.actions)
    )


class RuleRules(ValueRules):
    """One method for each rule of the grammar: the values of the children in, the value of the rule out."""

    # Statements

    def rule(self, span: Span, head: str, arguments: tuple[Given, ...], *body: Item) -> Rule:
        for argument in arguments:
            self.problems += head_problem(argument.expression, self.source.text)
        listed = tuple(HeadArgument(expression, name, place) for expression, name, place in arguments)
        return Rule(head, listed, body, span)

    def given_arguments(self, span: Span, *arguments: Given) -> tuple[Given, ...]:
        return arguments

    def given_argument(self, span: Span, name: Token | None, expression: Expr) -> Given:
        return Given(expression, None if name is None else unquote_name(name), span)

    def fact(self, span: Span, table: str, *expressions: Expr) -> Fact:
        values, columns, problems = read_values(expressions, span)
        self.problems += problems
        return Fact(table, values, columns, span)

    def table(self, span: Span, name: str, *columns: str) -> TableDeclaration:
        self.problems += repeated_columns(columns, span)
        return TableDeclaration(name, columns, span)

    def declaration(
        self,
        span: Span,
        stream: str | None,
        attributes: tuple[str, ...] | None,
        identity: str | None,
        parent: str | None,
    ) -> StreamDeclaration:
        self.problems += repeated_columns(attributes or (), span)
        return StreamDeclaration(stream, attributes, identity, parent, span)

    def identified(self, span: Span, stream: str, identity: str, parent: str | None) -> StreamDeclaration:
        return self.declaration(span, stream, None, identity, parent)

    def with_parent(self, span: Span, stream: str, parent: str) -> StreamDeclaration:
        return self.declaration(span, stream, None, None, parent)

    def any_identified(self, span: Span, identity: str, parent: str | None) -> StreamDeclaration:
        return self.declaration(span, None, None, identity, parent)

    def any_with_parent(self, span: Span, parent: str) -> StreamDeclaration:
        return self.declaration(span, None, None, None, parent)

    def columns(self, span: Span, *names: str) -> tuple[str, ...]:
        return names

    def identity(self, span: Span, name: str) -> str:
        return name

    def parent(self, span: Span, name: str) -> str:
        return name

    def action(
        self,
        span: Span,
        stream: str,
        variable: str,
        where: Clause | None,
        action: str,
        arguments: tuple[Given, ...],
    ) -> Action:
        self.problems += positions_behind_names([(argument.name, argument.span) for argument in arguments])
        listed = tuple(ActionArgument(expression, name, place) for expression, name, place in arguments)
        return Action(stream, variable, action, listed, None if where is None else where.value, span)

    # Items of a body

    def rule_items(self, span: Span, *items: Item) -> tuple[Item, ...]:
        return items

    def condition(self, span: Span, expression: Expr) -> Item:
        # In parentheses, it is a condition whatever it calls.
        if isinstance(expression, Call) and expression.span == span:
            name = read_name(self.source.text, span.start)
            if name.startswith("`") or name.lower() not in FUNCTIONS:
                occurrence = self.occurrence(span, unquote_name(name), *expression.arguments)
                if problem := unnamed_timer(occurrence):
                    self.problems.append(problem)
                    return Atom(occurrence.name, (), span=span)
                return self._atom(occurrence, None, span)
        self.problems += misjoined_items(expression)
        return Condition(expression, span)

    def labelled(self, span: Span, name: str, occurrence: Occurrence) -> Atom | TimerItem:
        if not is_timer(occurrence):
            return self._atom(occurrence, name, span)
        timer, problems = read_timer(name, occurrence, span)
        self.problems += problems
        return timer

    def while_not(self, span: Span, interval: str, name: str | None, occurrence: Occurrence) -> While:
        return While(interval, self._atom(occurrence, name, occurrence.span), span=span)

    def while_collect(self, span: Span, interval: str, name: str | None, occurrence: Occurrence) -> While:
        return While(interval, self._atom(occurrence, name, occurrence.span), collects=True, span=span)

    def occurrence(self, span: Span, name: str, *arguments: Expr | Events) -> Occurrence:
        return Occurrence(name, self.source.text.startswith("`", span.start), arguments, span)

    def event_count(self, span: Span, minus: Token | None, number: Token, word: Token) -> Events:
        return Events(self._integer(span, number), span)

    def together(self, span: Span, *parts: Any) -> Together:
        names, window = parts[:-1], parts[-1]
        if isinstance(window, Events):
            self.problems.append(window_problem(window))
        return Together(names, window, span)

    def temporal(self, span: Span, left: str, relation: Token, right: str) -> Temporal | Causes:
        word = relation.lower()
        return Causes(left, right, span) if word == "causes" else Temporal(left, word, right, span)

    def _atom(self, occurrence: Occurrence, name: str | None, span: Span) -> Atom:
        arguments, problems = read_arguments(occurrence.arguments, self.source.text, occurrence.span)
        self.problems += problems
        return Atom(occurrence.name, arguments, name, span)
