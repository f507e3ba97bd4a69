"""Convert parsed RULE, FACT, TABLE, STREAM and ON statements, their arguments and timers to nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lark import Token

from ensue.errors import Problem, Span, closest, did_you_mean
from ensue.expr.functions import AGGREGATES, FUNCTIONS
from ensue.expr.lists import PREVIOUS
from ensue.nodes import rules
from ensue.nodes.expressions import Binary, Call, Duration, Expr, Field, Literal, Unary, walk
from ensue.nodes.patterns import Events, Ticks, Window
from ensue.text.render_parts import render_expression
from ensue.text.reserved_words import quote_name, read_name, unquote_name
from ensue.text.values import ValueRules, shorten

if TYPE_CHECKING:
    from ensue.text.builder import Clause


# --- Arguments of atoms, heads, facts and actions

ARGUMENT_FORM = "an argument of an item must be a name, `_`, a number, text, TRUE, FALSE or NULL"
VALUE_FORM = "a value of a FACT must be a number, text, TRUE, FALSE or NULL"

Arguments = Sequence[Expr | Events]


def read_arguments(expressions: Arguments, text: str, span: Span) -> tuple[tuple[rules.Argument, ...], list[Problem]]:
    """The arguments of an atom, and their problems. An argument with a problem is replaced by `_`."""
    arguments: list[rules.Argument] = []
    problems: list[Problem] = []
    for attribute, value, place in map(_named, expressions):
        term = _term(value, text)
        if term is None:
            problems.append(_argument_problem(value))
        arguments.append(rules.Argument(term or rules.Anything(value.span), attribute, place))
    problems += mixed_arguments([argument.attribute for argument in arguments], span)
    return tuple(arguments), problems


def read_values(
    expressions: Sequence[Expr], span: Span
) -> tuple[tuple[Literal, ...], tuple[str, ...] | None, list[Problem]]:
    """The values of a FACT, the names of their columns if they are given, and the problems."""
    named = [_named(expression) for expression in expressions]
    values = tuple(value if isinstance(value, Literal) else Literal(None) for _, value, _ in named)
    problems = [_value_problem(value) for _, value, _ in named if not isinstance(value, Literal)]
    columns = tuple(column for column, _, _ in named if column is not None)
    problems += mixed_arguments([column for column, _, _ in named], span)
    problems += repeated_columns(columns, span)
    return values, columns or None, problems


def mixed_arguments(names: Sequence[str | None], span: Span | None = None) -> Iterator[Problem]:
    """`order(id, qty=q)`: arguments by position and by name."""
    named = next((name for name in names if name is not None), None)
    if named is not None and None in names:
        message = "arguments by name and by position cannot be mixed"
        hint = f"name all arguments, as in `{quote_name(named)}=...`, or none"
        yield Problem("mixed-arguments", message, span, hint=hint)


def window_problem(window: Events) -> Problem:
    """`{o, s} within 5 EVENTS`."""
    message = "a window in a rule must be a duration, not a number of events"
    return Problem("rule-window", message, window.span, hint="for example `within 2h`")


def repeated_columns(columns: Sequence[str], span: Span) -> Iterator[Problem]:
    """`TABLE price(product, product)`."""
    for place, column in enumerate(columns):
        if column in columns[:place]:
            yield Problem(
                "duplicate-column", f"column `{quote_name(column)}` is listed twice", span, hint="keep one of them"
            )


def positions_behind_names(arguments: Sequence[tuple[str | None, Span]]) -> Iterator[Problem]:
    """`notify(order = o.id, 5)`."""
    for (before, _), (name, span) in pairwise(arguments):
        if before is not None and name is None:
            message = "an argument without a name follows an argument with a name"
            yield Problem("mixed-arguments", message, span, hint="write the arguments without a name first")


def head_problem(expression: Expr, text: str) -> Iterator[Problem]:
    """`_` in a head."""
    for part in walk(expression):
        if isinstance(part, Field) and _is_anything(part, text):
            message = "`_` has no value, so it cannot be used in the head of a rule"
            hint = "use a name instead of `_` in the body, and use that name in the head"
            yield Problem("argument-form", message, part.span, hint=hint)


def misjoined_items(condition: Expr) -> Iterator[Problem]:
    """`NOT shipped(id)` or `s = shipped(id) AND q < 3`: events inside a condition."""
    pending: list[tuple[Expr, str]] = [(condition, "")]
    while pending:
        part, around = pending.pop()
        match part:
            case Binary("and" | "or", left, right):
                pending += [(right, ""), (left, "")]
            case Unary("not", operand):
                pending.append((operand, "not"))
            case Binary("=", Field(None, label), Call() as call):
                pending.append((call, quote_name(label)))
            case Call(name) if around and part.function is None and not _is_function(name):
                yield Problem(
                    "unknown-function", f"unknown function `{name}`", part.span, hint=_item_hint(part, around)
                )


def _item_hint(call: Call, around: str) -> str:
    if meant := closest(call.name, FUNCTIONS, 0.8):
        return f"did you mean `{meant}`?"
    text = shorten(render_expression(call))
    if around == "not":
        return f"name the interval without such events: `while w: not {text}`"
    return f"write a colon after the name of an item: `{around}: {text}`"


def _is_function(name: str) -> bool:
    return name in FUNCTIONS or name in AGGREGATES or name == PREVIOUS


def _named(expression: Expr | Events) -> tuple[str | None, Expr | Events, Span | None]:
    """The attribute, the value and the position of `qty = q`."""
    match expression:
        case Binary("=", Field(None, attribute), value):
            return attribute, value, expression.span
    return None, expression, expression.span


def _term(value: Expr | Events, text: str) -> rules.Term | None:
    match value:
        case Field(None) if _is_anything(value, text):
            return rules.Anything(value.span)
        case Field(None, name):
            return rules.Name(name, value.span)
        case Literal():
            return value
    return None


def _is_anything(field: Field, text: str) -> bool:
    quoted = field.span is not None and text.startswith("`", field.span.start)
    return field.variable is None and field.name == "_" and not quoted


def _argument_problem(value: Expr | Events) -> Problem:
    if isinstance(value, Events):
        return Problem("argument-form", ARGUMENT_FORM, value.span)
    if any(isinstance(part, Call) and part.name in AGGREGATES for part in walk(value)):
        return Problem("argument-form", ARGUMENT_FORM, value.span, hint="write aggregates in the head of the rule")
    hint = f"write a name here and add a condition as an item: `value = {shorten(render_expression(value))}`"
    return Problem("argument-form", ARGUMENT_FORM, value.span, hint=hint)


def _value_problem(value: Expr | Events) -> Problem:
    hint = f"write text in single quotes: `'{shorten(value.name)}'`" if isinstance(value, Field) else ""
    return Problem("argument-form", VALUE_FORM, value.span, hint=hint)


# --- Timers of a rule: `w: extend(o, 6h)`

_FORM = "for example `w: extend(o, 6h)`"
_STREAM = "for a stream of this name, use backticks"


class Occurrence(NamedTuple):
    """`order(id, p, q)`, which may be an event or a timer. `quoted`: the name has backticks."""

    name: str
    quoted: bool
    arguments: tuple[Expr | Events, ...]
    span: Span

    @property
    def takes_time(self) -> bool:
        """Whether an argument is a length of time. Events take none."""
        return any(isinstance(argument, Duration | Events) for argument in self.arguments)


def is_timer(occurrence: Occurrence) -> bool:
    """Whether the item after a name and a colon is a timer or is meant as one."""
    return not occurrence.quoted and (occurrence.name.lower() in rules.TIMERS or occurrence.takes_time)


def read_timer(name: str, occurrence: Occurrence, span: Span) -> tuple[rules.TimerItem, list[Problem]]:
    """The timer and its problems. A timer with a problem has length zero."""
    kind = occurrence.name.lower()
    if kind not in rules.TIMERS:
        return rules.TimerItem(name, kind, name, Ticks(0), span), [unknown_timer(occurrence.name, occurrence.span)]
    match occurrence.arguments:
        case (Field(None, base), length):
            problems = list(_length_problems(kind, length))
            window = Ticks(0) if problems else _window(length)
            return rules.TimerItem(name, kind, base, window, span), problems
    message = f"`{kind}` takes 2 arguments: the name of an item or timer, and a duration"
    problem = Problem("timer-arguments", message, occurrence.span, hint=f"{_FORM}; {_STREAM}")
    return rules.TimerItem(name, kind, name, Ticks(0), span), [problem]


def unnamed_timer(occurrence: Occurrence) -> Problem | None:
    """The problem of `extend(o, 6h)` without a name."""
    if occurrence.quoted or occurrence.name.lower() not in rules.TIMERS or not occurrence.takes_time:
        return None
    return Problem("timer-arguments", "a timer must have a name", occurrence.span, hint=_FORM)


def unknown_timer(name: str, span: Span | None) -> Problem:
    """The problem of `w: extent(o, 6h)`."""
    hint = did_you_mean(name, sorted(rules.TIMERS))
    return Problem(
        "unknown-timer",
        f"unknown timer `{name}`",
        span,
        f"timers: {', '.join(sorted(rules.TIMERS))}",
        hint or "only timers take a duration; for an event, use a name here and a condition on that name",
    )


def _length_problems(kind: str, length: Expr | Events) -> Iterator[Problem]:
    message, hint = "", ""
    match length:
        case Events():
            message = "the length of a timer must be a duration, not a number of events"
            hint = f"for example `{kind}(o, 6h)`"
        case Duration(size) if size < 0:
            message, hint = "the length of a timer must not be negative", _other_way(kind)
        case Literal(bool()):
            message, hint = "the length of a timer must be a duration", f"for example `{kind}(o, 6h)`"
        case Literal(int(size)) if size < 0:
            message, hint = "the length of a timer must not be negative", _other_way(kind)
        case Literal(float()):
            message, hint = "a length without a unit must be an integer", "add a unit: `1.5h`"
        case Duration() | Literal(int()):
            return
        case _:
            message = "the length of a timer must be a constant"
            hint = f"for example `6h`; {_STREAM}"
    yield Problem("timer-length", message, length.span, hint=hint)


def _other_way(kind: str) -> str:
    return f"use `{rules.OTHER_WAY[kind]}` for the opposite direction"


def _window(length: Expr | Events) -> Window:
    match length:
        case Literal(int(count)):
            return Ticks(count, length.span)
        case Duration():
            return length
    raise TypeError(f"{length!r} is not a duration")


# --- Statements and items of rules

RulesetStatement = rules.Rule | rules.Fact | rules.TableDeclaration | rules.StreamDeclaration | rules.Action
_KINDS = (rules.Rule, rules.Fact, rules.TableDeclaration, rules.StreamDeclaration, rules.Action)
"""The statements of a ruleset, in the order of its fields."""


class NamedArgument(NamedTuple):
    """An argument of a head or an action, with its name if it has one."""

    expression: Expr
    name: str | None
    span: Span


def ruleset_of(statements: Iterable[object]) -> rules.Ruleset | None:
    """The rules, facts, declarations and actions among the statements of a text, or None if there are none."""
    listed = tuple(statements)

    def of_kind(kind: type[Any]) -> tuple[Any, ...]:
        return tuple(statement for statement in listed if isinstance(statement, kind))

    return rules.Ruleset(*map(of_kind, _KINDS)) or None


def joined_rulesets(rulesets: Iterable[rules.Ruleset | None]) -> rules.Ruleset | None:
    """Join the rules of several texts."""
    given = [ruleset for ruleset in rulesets if ruleset is not None]
    return ruleset_of(
        statement
        for part in given
        for statement in (*part.rules, *part.facts, *part.tables, *part.streams, *part.actions)
    )


Part: TypeAlias = "rules.Item | Expr | tuple[rules.Item, ...]"
"""What joins to a body: an item, several items, or an expression that may hold events."""


class RuleRules(ValueRules):
    """One method per rule of the grammar: it takes the values of the children and returns the value of the rule."""

    # Statements

    def rule(
        self,
        span: Span,
        head: str,
        arguments: tuple[NamedArgument, ...],
        body: tuple[rules.Item, ...],
        *clauses: Clause,
    ) -> rules.Rule:
        for argument in arguments:
            self.problems += head_problem(argument.expression, self.source.text)
        listed = tuple(rules.HeadArgument(expression, name, place) for expression, name, place in arguments)
        given = {clause.attribute: clause.value for clause in clauses}
        place = clauses[0].span if clauses else None
        for clause in clauses[len(given) :]:
            said = f"the rule has more than one {clause.keyword}"
            self.problems.append(Problem("duplicate-clause", said, clause.span, hint="keep one of them"))
        return rules.names_first(rules.Rule(head, listed, body, span, **given, policy_span=place))

    def given_arguments(self, span: Span, *arguments: NamedArgument) -> tuple[NamedArgument, ...]:
        return arguments

    def given_argument(self, span: Span, name: Token | None, expression: Expr) -> NamedArgument:
        return NamedArgument(expression, None if name is None else unquote_name(name), span)

    def fact(self, span: Span, table: str, *expressions: Expr) -> rules.Fact:
        values, columns, problems = read_values(expressions, span)
        self.problems += problems
        return rules.Fact(table, values, columns, span)

    def table(self, span: Span, name: str, *columns: str) -> rules.TableDeclaration:
        self.problems += repeated_columns(columns, span)
        return rules.TableDeclaration(name, columns, span)

    def declaration(
        self,
        span: Span,
        stream: str | None,
        attributes: tuple[str, ...] | None,
        identity: str | None,
        parent: str | None,
    ) -> rules.StreamDeclaration:
        self.problems += repeated_columns(attributes or (), span)
        return rules.StreamDeclaration(stream, attributes, identity, parent, span)

    def identified(self, span: Span, stream: str, identity: str, parent: str | None) -> rules.StreamDeclaration:
        return self.declaration(span, stream, None, identity, parent)

    def with_parent(self, span: Span, stream: str, parent: str) -> rules.StreamDeclaration:
        return self.declaration(span, stream, None, None, parent)

    def any_identified(self, span: Span, identity: str, parent: str | None) -> rules.StreamDeclaration:
        return self.declaration(span, None, None, identity, parent)

    def any_with_parent(self, span: Span, parent: str) -> rules.StreamDeclaration:
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
        arguments: tuple[NamedArgument, ...],
    ) -> rules.Action:
        self.problems += positions_behind_names([(argument.name, argument.span) for argument in arguments])
        listed = tuple(rules.ActionArgument(expression, name, place) for expression, name, place in arguments)
        return rules.Action(stream, variable, action, listed, None if where is None else where.value, span)

    # Items of a body

    def rule_items(self, span: Span, *items: Part) -> tuple[rules.Item, ...]:
        return self.items(span, *items)

    def items(self, span: Span, *parts: Part) -> tuple[rules.Item, ...]:
        """The items that are joined by commas, or by AND, one after the other."""
        return tuple(item for part in parts for item in self._parts(part))

    def item_group(self, span: Span, *parts: Part) -> tuple[rules.Item, ...]:
        return self.items(span, *parts)

    def every_item(self, span: Span, *parts: Part) -> tuple[rules.Item, ...]:
        return self.items(span, *parts)

    def any_item(self, span: Span, *parts: Part) -> rules.Item:
        return rules.alternatives(map(self._parts, parts), span)

    def condition(self, span: Span, expression: Expr) -> tuple[rules.Item, ...]:
        return self._parts(expression)

    def _parts(self, part: Part) -> tuple[rules.Item, ...]:
        """The items of a part of a body; an expression with events is the items that its AND and OR join."""
        match part:
            case tuple():
                return part
            case Call() if self._is_event(part):
                return (self._event(part),)
            case Unary("not", Call() as call) if self._is_event(call):
                return (rules.Absent(self._event(call), part.span),)
            case Binary("and", left, right) if self._has_event(part):
                return (*self._parts(left), *self._parts(right))
            case Binary("or", left, right) if self._has_event(part):
                return (rules.alternatives(map(self._parts, (left, right)), part.span),)
            case _ if isinstance(part, Expr):
                return (rules.Condition(part, part.span),)
        return (part,)

    def _has_event(self, part: Expr) -> bool:
        """Whether AND and OR join an event to something, as in `q < 3 OR late(id)`."""
        if isinstance(part, Binary) and part.operator in ("and", "or"):
            return self._has_event(part.left) or self._has_event(part.right)
        call = part.operand if isinstance(part, Unary) and part.operator == "not" else part
        return isinstance(call, Call) and self._is_event(call)

    def _is_event(self, call: Call) -> bool:
        """Whether a call as an item is an event. In parentheses, it is always a condition."""
        assert call.span is not None
        name = read_name(self.source.text, call.span.start)
        is_function = name.lower() in FUNCTIONS or name.lower() in self.functions
        return call.span not in self.grouped and (name.startswith("`") or not is_function)

    def _event(self, call: Call) -> rules.Atom:
        assert call.span is not None
        name = read_name(self.source.text, call.span.start)
        occurrence = self.occurrence(call.span, unquote_name(name), *call.arguments)
        if problem := unnamed_timer(occurrence):
            self.problems.append(problem)
            return rules.Atom(occurrence.name, (), span=call.span)
        return self._atom(occurrence, None, call.span)

    def labelled(self, span: Span, name: str, occurrence: Occurrence) -> rules.Atom | rules.TimerItem:
        if not is_timer(occurrence):
            return self._atom(occurrence, name, span)
        timer, problems = read_timer(name, occurrence, span)
        self.problems += problems
        return timer

    def while_not(self, span: Span, interval: str, name: str | None, occurrence: Occurrence) -> rules.While:
        return rules.While(interval, self._atom(occurrence, name, occurrence.span), span=span)

    def while_collect(self, span: Span, interval: str, name: str | None, occurrence: Occurrence) -> rules.While:
        return rules.While(interval, self._atom(occurrence, name, occurrence.span), collects=True, span=span)

    def occurrence(self, span: Span, name: str, *arguments: Expr | Events) -> Occurrence:
        return Occurrence(name, self.source.text.startswith("`", span.start), arguments, span)

    def event_count(self, span: Span, minus: Token | None, number: Token, word: Token) -> Events:
        return Events(self._integer(span, number), span)

    def together(self, span: Span, *parts: Any) -> rules.Together:
        names, window = parts[:-1], parts[-1]
        if isinstance(window, Events):
            self.problems.append(window_problem(window))
        return rules.Together(names, window, span)

    def temporal(self, span: Span, left: str, relation: Token, right: str) -> rules.Temporal | rules.Causes:
        word = relation.lower()
        return rules.Causes(left, right, span) if word == "causes" else rules.Temporal(left, word, right, span)

    def _atom(self, occurrence: Occurrence, name: str | None, span: Span) -> rules.Atom:
        arguments, problems = read_arguments(occurrence.arguments, self.source.text, occurrence.span)
        self.problems += problems
        if occurrence.name in self.functions:
            said = f"`{occurrence.name}` is both a stream or table and a function"
            self.problems.append(Problem("stream-clash", said, occurrence.span, hint="rename the function"))
        return rules.Atom(occurrence.name, arguments, name, span)
