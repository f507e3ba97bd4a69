"""Read and render numbers, durations and timestamps, and convert parsed windows, expressions and names to nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from types import MappingProxyType
from typing import Any

from lark import Token

from ensue.errors import Problem, Source, Span, did_you_mean
from ensue.nodes import expressions
from ensue.nodes.patterns import Events, Ticks
from ensue.text.reserved_words import unquote_name

COUNT_DISTINCT = "count_distinct"
"""The aggregate whose text is `count(DISTINCT x)`."""

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

UNITS = {
    "ns": "ns", "nanosecond": "ns", "nanoseconds": "ns",
    "us": "us", "microsecond": "us", "microseconds": "us",
    "ms": "ms", "msec": "ms", "millisecond": "ms", "milliseconds": "ms",
    "s": "second", "sec": "second", "second": "second", "seconds": "second",
    "m": "minute", "min": "minute", "minute": "minute", "minutes": "minute",
    "h": "hour", "hour": "hour", "hours": "hour",
    "d": "day", "day": "day", "days": "day",
    "w": "week", "week": "week", "weeks": "week",
}  # fmt: skip
"""Each spelling of a unit of time, and its unit in `NANOSECONDS_PER`. The first one of a unit is the shortest."""

_PARTS = {unit: expressions.NANOSECONDS_PER[UNITS[unit]] for unit in ("d", "h", "m", "s", "ms", "us", "ns")}
"""The units in which durations are written, longest first."""

_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[ Tt]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r" ?([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LiteralError(ValueError):
    """A literal without a value. Its problem has no position yet."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        self.problem = Problem(code, message, hint=hint)
        super().__init__(message)


def read_integer(digits: str, negative: bool = False) -> int:
    """The integer, which must fit into 64 bits.

    >>> read_integer("9223372036854775808", negative=True)
    -9223372036854775808
    """
    significant = digits.lstrip("0") or "0"
    value = int(significant) if len(significant) <= 19 else INT64_MAX + 2
    value = -value if negative else value
    return value if INT64_MIN <= value <= INT64_MAX else _in_range(value, digits)


def read_real(text: str, negative: bool = False) -> float:
    """The float, which must be finite and have all digits of the text.

    >>> read_real("0.1"), read_real("1.50", negative=True)
    (0.1, -1.5)
    """
    value = float(text)
    if value == float("inf"):
        raise LiteralError("number-too-large", f"the number `{shorten(text)}` does not fit into 64 bits")
    # 9223372036854775808.0 is exact, although a float is written with fewer digits.
    if Decimal(text) not in (Decimal(repr(value)), Decimal(value)):
        raise LiteralError(
            "number-precision",
            f"the number `{shorten(text)}` has more digits than a 64-bit float keeps",
            hint=f"write {value!r}, the closest float, or CAST('...' AS DECIMAL(p, s)) for a comparison with decimals",
        )
    return -value if negative else value


def read_duration(amounts: list[tuple[str, str]], negative: bool = False) -> int:
    """The sum of (number, unit) pairs in nanoseconds.

    >>> read_duration([("1", "h"), ("30", "minutes")])
    5400000000000
    """
    total = sum((_amount(number, unit) for number, unit in amounts), Fraction(0))
    text = " ".join(f"{number} {unit}" for number, unit in amounts)
    if total.denominator != 1:
        raise LiteralError("duration-fraction", f"`{shorten(text)}` is not a whole number of nanoseconds")
    return _in_range(-int(total) if negative else int(total), text)


def read_timestamp(text: str) -> tuple[int, bool]:
    """Nanoseconds since 1970 in UTC, and whether the text contains an offset.

    >>> read_timestamp("1970-01-01 00:00:01.5")
    (1500000000, False)
    """
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise _timestamp_error(text, "does not have the form YYYY-MM-DD HH:MM:SS")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    fraction, offset = found.group(7) or "", found.group(8)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=_zone(offset))
    except ValueError:
        raise _timestamp_error(text, "is not an existing date and time") from None
    nanoseconds = (moment - _EPOCH) // timedelta(seconds=1) * 10**9 + int(fraction.ljust(9, "0"))
    if not INT64_MIN <= nanoseconds <= INT64_MAX:
        raise _timestamp_error(text, "is not between the years 1678 and 2261")
    return nanoseconds, offset is not None


def render_duration(nanoseconds: int) -> str:
    """The duration as everything shows it: in messages, plans, reports and formatted queries. Query text can have it.

    >>> render_duration(5_400_000_000_000), render_duration(-1_500_000_000), render_duration(0)
    ('1h 30m', '-1s 500ms', '0s')
    """
    left, parts = abs(nanoseconds), []
    for unit, size in _PARTS.items():
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return ("-" if nanoseconds < 0 else "") + (" ".join(parts) or "0s")


def render_timestamp(nanoseconds: int, zoned: bool) -> str:
    """The quoted text of a TIMESTAMP literal.

    >>> render_timestamp(1_500_000_000, True)
    '1970-01-01 00:00:01.5Z'
    """
    seconds, fraction = divmod(nanoseconds, 10**9)
    moment = _EPOCH + timedelta(seconds=seconds)
    decimals = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{decimals}{'Z' if zoned else ''}"


def unit_hint(word: str) -> str:
    """A hint for an unknown unit of time."""
    if word == "M":
        return "write `m` for minutes, `30d` for a month"
    return did_you_mean(word, UNITS) or "units: ns, us, ms, s, m, h, d, w, or in words: second, minute, hour, day, week"


def shorten(text: str, limit: int = 40) -> str:
    """At most `limit` characters of a text that a message quotes."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _amount(number: str, unit: str) -> Fraction:
    whole, _, decimals = number.partition(".")
    whole, decimals = whole.lstrip("0") or "0", decimals.rstrip("0")
    if len(whole) > 19:
        _in_range(INT64_MAX + 1, f"{number} {unit}")
    if len(decimals) > 19:
        raise LiteralError("duration-fraction", f"`{shorten(number)} {unit}` is not a whole number of nanoseconds")
    return Fraction(f"{whole}.{decimals or '0'}") * expressions.NANOSECONDS_PER[UNITS[unit.lower()]]


def _in_range(value: int, text: str) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise LiteralError(
            "number-too-large",
            f"`{shorten(text)}` does not fit into 64 bits",
            hint=f"the maximum is {INT64_MAX}, for integers and for durations in nanoseconds",
        )
    return value


def _zone(offset: str | None) -> timezone:
    if offset is None or offset in "Zz":
        return UTC
    hours, minutes = int(offset[1:3]), int(offset[-2:])
    if minutes > 59:
        raise ValueError("minute of the offset must be in 0..59")
    size = timedelta(hours=hours, minutes=minutes)
    return timezone(-size if offset[0] == "-" else size)


def _timestamp_error(text: str, reason: str) -> LiteralError:
    return LiteralError(
        "timestamp-format", f"`{shorten(text)}` {reason}", hint="for example TIMESTAMP '2024-01-31 12:00:00.5+02:00'"
    )


# --- Parsed windows, expressions, literals and names to nodes

_OPERATORS = {"==": "=", "<>": "!="}


class ValueRules:
    """One method per rule of the grammar: it takes the values of the children and returns the value of the rule.

    `negative`: a minus is directly before the current rule. `folded`: it became part of the number. `collected`:
    COLLECT is before a repetition.
    """

    def __init__(self, source: Source, functions: Mapping[str, object] = MappingProxyType({})) -> None:
        """`functions` are the functions of the user by name."""
        self.source = source
        self.functions = functions
        self.problems: list[Problem] = []
        self.negative = False
        self.folded = False
        self.collected = False
        self.grouped: set[Span] = set()

    def _report(self, span: Span, problem: Problem) -> None:
        self.problems.append(replace(problem, span=span))

    # Windows

    def time_window(self, span: Span, minus: Token | None, duration: expressions.Duration) -> expressions.Duration:
        if minus is not None and duration.nanoseconds:
            self._report(span, _window_size("a window of time must not be negative"))
        return replace(duration, span=span)

    def ticks(self, span: Span, minus: Token | None, number: Token) -> Ticks:
        if number.type == "DECIMAL":
            self._report(span, _window_size("a window without a unit must be an integer", "add a unit: `1.5 hours`"))
            return Ticks(0, span)
        count = self._integer(span, number)
        if minus is not None and count:
            self._report(span, _window_size("a window of time must not be negative"))
        return Ticks(count, span)

    def events(self, span: Span, minus: Token | None, number: Token, word: Token) -> Events:
        count = self._integer(span, number)
        if minus is not None or count < 1:
            self._report(span, _window_size("a window of events must contain at least 1 event"))
        return Events(count, span)

    def duration(self, span: Span, *amounts: tuple[str, str]) -> expressions.Duration:
        try:
            return expressions.Duration(read_duration(list(amounts), self.negative), span)
        except LiteralError as error:
            self._report(span, error.problem)
            return expressions.Duration(0, span)

    def amount(self, span: Span, number: Token, unit: Token) -> tuple[str, str]:
        return str(number), str(unit)

    # Expressions

    def or_(self, span: Span, left: expressions.Expr, right: expressions.Expr) -> expressions.Binary:
        return expressions.Binary("or", left, right, span)

    def and_(self, span: Span, left: expressions.Expr, right: expressions.Expr) -> expressions.Binary:
        return expressions.Binary("and", left, right, span)

    def not_(self, span: Span, operand: expressions.Expr) -> expressions.Unary:
        return expressions.Unary("not", operand, span)

    def binary(
        self, span: Span, left: expressions.Expr, operator: Token, right: expressions.Expr
    ) -> expressions.Binary:
        return expressions.Binary(_OPERATORS.get(operator, str(operator)), left, right, span)

    def chained(self, span: Span, first: expressions.Expr, *rest: Any) -> expressions.Expr:
        """`a = b = c` is `a = b AND b = c`."""
        operands, operators = (first, *rest[1::2]), rest[0::2]
        compared = [
            self.binary(_from_to(left, right), left, operator, right)
            for left, operator, right in zip(operands, operators, operands[1:], strict=False)
        ]
        if any(comparison.operator != "=" for comparison in compared):
            said = "only `=` can be chained"
            self._report(span, Problem("syntax", said, hint="join the comparisons with AND, such as `a < b AND b < c`"))
        return reduce(lambda left, right: self.and_(span, left, right), compared[1:], compared[0])

    def negated(self, span: Span) -> bool:
        return True

    def in_list(
        self, span: Span, operand: expressions.Expr, negated: bool | None, *items: expressions.Expr
    ) -> expressions.InList:
        return expressions.InList(operand, items, bool(negated), span)

    def in_table(
        self, span: Span, operand: expressions.Expr, negated: bool | None, table: str, column: str | None
    ) -> expressions.InTable:
        return expressions.InTable(operand, table, column, bool(negated), span)

    def between(
        self, span: Span, operand: expressions.Expr, negated: bool | None, low: expressions.Expr, high: expressions.Expr
    ) -> expressions.Between:
        return expressions.Between(operand, low, high, bool(negated), span)

    def like(self, span: Span, operand: expressions.Expr, negated: bool | None, text: Token) -> expressions.Like:
        return expressions.Like(operand, unquote_text(text), bool(negated), span)

    def ilike(self, span: Span, operand: expressions.Expr, negated: bool | None, text: Token) -> expressions.Like:
        return replace(self.like(span, operand, negated, text), ignores_case=True)

    def is_null(self, span: Span, operand: expressions.Expr, negated: bool | None) -> expressions.IsNull:
        return expressions.IsNull(operand, bool(negated), span)

    def minus(self, span: Span, sign: Token, operand: expressions.Expr) -> expressions.Expr:
        return replace(operand, span=span) if self.folded else expressions.Unary("-", operand, span)

    def group(self, span: Span, expression: expressions.Expr) -> expressions.Expr:
        if expression.span is not None:
            self.grouped.add(expression.span)
        return expression

    def bare_field(self, span: Span, name: str) -> expressions.Field:
        return expressions.Field(None, name, span)

    def field(self, span: Span, variable: str, name: str) -> expressions.Field:
        return expressions.Field(variable, name, span)

    def member_of(self, span: Span, operand: expressions.Expr, name: str) -> expressions.Member:
        return expressions.Member(operand, name, span)

    def entry_of(self, span: Span, operand: expressions.Expr, key: expressions.Expr) -> expressions.Entry:
        return expressions.Entry(operand, key, span)

    def entry_of_column(self, span: Span, column: str, key: expressions.Expr) -> expressions.Entry:
        return expressions.Entry(expressions.Field(None, column, span.head(len(column))), key, span)

    def call(self, span: Span, name: str, *arguments: expressions.Expr | None) -> expressions.Call:
        if name.lower() == COUNT_DISTINCT:
            self._report(span, _only_in_count(name))
        given = tuple(argument for argument in arguments if argument is not None)
        return expressions.Call(name.lower(), given, span, self.functions.get(name.lower()))

    def distinct_call(self, span: Span, name: str, argument: expressions.Expr) -> expressions.Call:
        if name.lower() != "count":
            self._report(span, _only_in_count(name))
        return expressions.Call(COUNT_DISTINCT, (argument,), span)

    def cast(
        self, span: Span, name: str, operand: expressions.Expr, target: tuple[str, tuple[int, ...]]
    ) -> expressions.Cast:
        if name.lower() not in ("cast", "try_cast"):
            self._report(span, _only_in_cast(name))
        word, sizes = target
        return expressions.Cast(operand, word.upper(), name.lower() == "try_cast", sizes, span)

    def cast_type(self, span: Span, word: str, *sizes: Token | None) -> tuple[str, tuple[int, ...]]:
        return word, tuple(self._integer(span, digits) for digits in sizes if digits is not None)

    def same(self, span: Span, *names: str) -> expressions.Same:
        return expressions.Same(names, span)

    def case(self, span: Span, subject: expressions.Expr | None, *parts: Any) -> expressions.Case:
        *branches, default = parts
        if subject is not None:
            branches = [(expressions.Binary("=", subject, value, value.span), result) for value, result in branches]
        return expressions.Case(tuple(branches), default, span)

    def branch(
        self, span: Span, condition: expressions.Expr, value: expressions.Expr
    ) -> tuple[expressions.Expr, expressions.Expr]:
        return condition, value

    # Literals and names

    def integer(self, span: Span, digits: Token) -> expressions.Literal:
        return expressions.Literal(self._integer(span, digits, self.negative), span)

    def real(self, span: Span, number: Token) -> expressions.Literal:
        try:
            return expressions.Literal(read_real(number, self.negative), span)
        except LiteralError as error:
            self._report(span, error.problem)
            return expressions.Literal(0.0, span)

    def text(self, span: Span, text: Token) -> expressions.Literal:
        return expressions.Literal(unquote_text(text), span)

    def true(self, span: Span) -> expressions.Literal:
        return expressions.Literal(True, span)

    def false(self, span: Span) -> expressions.Literal:
        return expressions.Literal(False, span)

    def null(self, span: Span) -> expressions.Literal:
        return expressions.Literal(None, span)

    def timestamp(self, span: Span, text: Token) -> expressions.Timestamp:
        try:
            nanoseconds, zoned = read_timestamp(unquote_text(text))
        except LiteralError as error:
            self._report(span, error.problem)
            return expressions.Timestamp(0, span=span)
        return expressions.Timestamp(nanoseconds, zoned, span)

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


def _from_to(first: expressions.Expr, last: expressions.Expr) -> Span:
    assert first.span is not None and last.span is not None  # the builder gives every node its position
    return Span(first.span.start, last.span.end)


def _only_in_count(name: str) -> Problem:
    if name.lower() == "list":
        hint = "the distinct values of a list are `collect_set(x)`"
    else:
        hint = "the number of distinct values is `count(DISTINCT x)`, the list of them is `collect_set(x)`"
    return Problem("function-arguments", f"DISTINCT is only allowed in `count`, not in `{name}`", hint=hint)


def _only_in_cast(name: str) -> Problem:
    message = f"AS is only allowed in CAST and TRY_CAST, not in `{name}`"
    return Problem("function-arguments", message, hint="for example CAST(a.x AS BIGINT)")


def _window_size(message: str, hint: str = "") -> Problem:
    return Problem("window-size", message, hint=hint)


def unquote_text(text: str) -> str:
    """The content of text in single or double quotes. A quote inside is written twice."""
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)
