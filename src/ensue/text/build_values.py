"""The rules of windows, expressions, literals and names: from what the parser read to nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lark import Token

from ensue.errors import Problem, Source, Span
from ensue.nodes.expressions import (
    Between,
    Binary,
    Call,
    Case,
    Duration,
    Expr,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    Same,
    Timestamp,
    Unary,
)
from ensue.nodes.patterns import Events, Ticks
from ensue.text.reserved import unquote_name
from ensue.text.values import LiteralError, read_duration, read_integer, read_real, read_timestamp

_OPERATORS = {"==": "=", "<>": "!="}


class ValueRules:
    """One method for each rule of the grammar: the values of the children in, the value of the rule out.

    `negative`: a minus stands directly before what is being read. `folded`: it became part of the number. `collected`:
    COLLECT stands before a repetition.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.negative = False
        self.folded = False
        self.collected = False

    def _report(self, span: Span, problem: Problem) -> None:
        self.problems.append(replace(problem, span=span))

    # Windows

    def time_window(self, span: Span, minus: Token | None, duration: Duration) -> Duration:
        if minus is not None and duration.nanoseconds:
            self._report(span, _window_size("a window of time is not negative"))
        return replace(duration, span=span)

    def ticks(self, span: Span, minus: Token | None, number: Token) -> Ticks:
        if number.type == "DECIMAL":
            self._report(span, _window_size("a window without a unit is a whole number", "add a unit: `1.5 hours`"))
            return Ticks(0, span)
        count = self._integer(span, number)
        if minus is not None and count:
            self._report(span, _window_size("a window of time is not negative"))
        return Ticks(count, span)

    def events(self, span: Span, minus: Token | None, number: Token, word: Token) -> Events:
        count = self._integer(span, number)
        if minus is not None or count < 1:
            self._report(span, _window_size("a window of events holds at least 1 event"))
        return Events(count, span)

    def duration(self, span: Span, *amounts: tuple[str, str]) -> Duration:
        try:
            return Duration(read_duration(list(amounts), self.negative), span)
        except LiteralError as error:
            self._report(span, error.problem)
            return Duration(0, span)

    def amount(self, span: Span, number: Token, unit: Token) -> tuple[str, str]:
        return str(number), str(unit)

    # Expressions

    def or_(self, span: Span, left: Expr, right: Expr) -> Binary:
        return Binary("or", left, right, span)

    def and_(self, span: Span, left: Expr, right: Expr) -> Binary:
        return Binary("and", left, right, span)

    def not_(self, span: Span, operand: Expr) -> Unary:
        return Unary("not", operand, span)

    def binary(self, span: Span, left: Expr, operator: Token, right: Expr) -> Binary:
        return Binary(_OPERATORS.get(operator, str(operator)), left, right, span)

    def negated(self, span: Span) -> bool:
        return True

    def in_list(self, span: Span, operand: Expr, negated: bool | None, *items: Expr) -> InList:
        return InList(operand, items, bool(negated), span)

    def between(self, span: Span, operand: Expr, negated: bool | None, low: Expr, high: Expr) -> Between:
        return Between(operand, low, high, bool(negated), span)

    def like(self, span: Span, operand: Expr, negated: bool | None, text: Token) -> Like:
        return Like(operand, _unquote_text(text), bool(negated), span)

    def is_null(self, span: Span, operand: Expr, negated: bool | None) -> IsNull:
        return IsNull(operand, bool(negated), span)

    def minus(self, span: Span, sign: Token, operand: Expr) -> Expr:
        return replace(operand, span=span) if self.folded else Unary("-", operand, span)

    def group(self, span: Span, expression: Expr) -> Expr:
        return expression

    def bare_field(self, span: Span, name: str) -> Field:
        return Field(None, name, span)

    def field(self, span: Span, variable: str, name: str) -> Field:
        return Field(variable, name, span)

    def call(self, span: Span, name: str, *arguments: Expr | None) -> Call:
        return Call(name.lower(), tuple(argument for argument in arguments if argument is not None), span)

    def same(self, span: Span, *names: str) -> Same:
        return Same(names, span)

    def case(self, span: Span, subject: Expr | None, *parts: Any) -> Case:
        *branches, default = parts
        if subject is not None:
            branches = [(Binary("=", subject, value, value.span), result) for value, result in branches]
        return Case(tuple(branches), default, span)

    def branch(self, span: Span, condition: Expr, value: Expr) -> tuple[Expr, Expr]:
        return condition, value

    # Literals and names

    def integer(self, span: Span, digits: Token) -> Literal:
        return Literal(self._integer(span, digits, self.negative), span)

    def real(self, span: Span, number: Token) -> Literal:
        try:
            return Literal(read_real(number, self.negative), span)
        except LiteralError as error:
            self._report(span, error.problem)
            return Literal(0.0, span)

    def text(self, span: Span, text: Token) -> Literal:
        return Literal(_unquote_text(text), span)

    def true(self, span: Span) -> Literal:
        return Literal(True, span)

    def false(self, span: Span) -> Literal:
        return Literal(False, span)

    def null(self, span: Span) -> Literal:
        return Literal(None, span)

    def timestamp(self, span: Span, text: Token) -> Timestamp:
        try:
            nanoseconds, zoned = read_timestamp(_unquote_text(text))
        except LiteralError as error:
            self._report(span, error.problem)
            return Timestamp(0, span=span)
        return Timestamp(nanoseconds, zoned, span)

    def name(self, span: Span, name: Token) -> str:
        return unquote_name(name)

    word = name
    member = name
    derived = name
    level = name

    def _integer(self, span: Span, digits: Token, negative: bool = False) -> int:
        try:
            return read_integer(digits, negative)
        except LiteralError as error:
            self._report(span, error.problem)
            return 1


def _window_size(message: str, hint: str = "") -> Problem:
    return Problem("window-size", message, hint=hint)


def _unquote_text(text: str) -> str:
    return text[1:-1].replace("''", "'")
