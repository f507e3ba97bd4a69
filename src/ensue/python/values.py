"""Conditions and values in Python: operators build expressions that are evaluated later."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NoReturn

import numpy as np

from ensue.errors import Problem, QueryError
from ensue.nodes import expressions
from ensue.nodes.patterns import Events, Ticks, Window
from ensue.text.parser import parse_expression, parse_window
from ensue.text.render import render_expression
from ensue.text.values import INT64_MAX, INT64_MIN, render_duration

# --- Python values as literals and windows

WindowLike = Window | str | int | timedelta | np.integer[Any] | np.timedelta64

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def literal(value: object) -> expressions.Literal | expressions.Duration | expressions.Timestamp:
    """The literal of a Python value.

    >>> literal(5), literal(timedelta(seconds=1))
    (Literal(value=5), Duration(nanoseconds=1000000000))
    """
    match value:
        case np.datetime64() | np.timedelta64():
            return _numpy_time(value)
        case None:
            return expressions.Literal(None)
        case bool() | np.bool_():
            return expressions.Literal(bool(value))
        case int() | np.integer():
            return expressions.Literal(_fitting(int(value)))
        case float() | np.floating():
            return expressions.Literal(_finite(float(value)))
        case str():
            return expressions.Literal(str(value))
        case timedelta():
            return expressions.Duration(_nanoseconds(value))
        case datetime():
            return _timestamp(value)
        case date():
            return _timestamp(datetime(value.year, value.month, value.day))
    raise TypeError(f"unsupported type in a query: {type(value).__name__}")


def window(value: WindowLike) -> Window:
    """The window of a text, an integer or a `timedelta`.

    >>> window("100 events"), window(5), window(timedelta(seconds=1))
    (Events(count=100), Ticks(count=5), Duration(nanoseconds=1000000000))
    """
    match value:
        case str():
            return parse_window(value)
        case expressions.Duration() | Ticks() | Events():
            return value
    match literal(value):
        case expressions.Duration() as duration:
            _not_negative(duration.nanoseconds, value)
            return duration
        case expressions.Literal(int(count)) if not isinstance(count, bool):
            _not_negative(count, value)
            return Ticks(count)
    raise TypeError(f"a window must be a text such as '1h', an integer or a timedelta, not {value!r}")


def _not_negative(size: int, value: object) -> None:
    if size < 0:
        raise QueryError([Problem("window-size", f"a window of time must not be negative, but is {value!r}")])


def _timestamp(moment: datetime) -> expressions.Timestamp:
    if moment != moment:
        raise ValueError("NaT is not supported in a query; use None for NULL")
    zoned = moment.utcoffset() is not None
    elapsed = (moment if zoned else moment.replace(tzinfo=UTC)) - _EPOCH
    return expressions.Timestamp(_fitting(_microseconds(elapsed) * 1000 + getattr(moment, "nanosecond", 0)), zoned)


def length_of(value: object) -> int | None:
    """The nanoseconds of a duration such as `"5m"` or a `timedelta`; None if it is not a duration.

    >>> length_of("1m 30s"), length_of(timedelta(seconds=1)), length_of("soon"), length_of(5)
    (90000000000, 1000000000, None, None)
    """
    try:
        size = window(value)  # type: ignore[arg-type]
    except (QueryError, TypeError, ValueError):
        return None
    return size.nanoseconds if isinstance(size, expressions.Duration) else None


def duration_text(duration: timedelta) -> str:
    """A duration as query text has it.

    >>> duration_text(timedelta(minutes=90))
    '1h 30m'
    """
    return render_duration(_nanoseconds(duration))


def _nanoseconds(duration: timedelta) -> int:
    # A pandas Timedelta is a timedelta that also counts nanoseconds.
    return _fitting(_microseconds(duration) * 1000 + getattr(duration, "nanoseconds", 0))


def _microseconds(duration: timedelta) -> int:
    return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds


def _numpy_time(value: np.datetime64 | np.timedelta64) -> expressions.Timestamp | expressions.Duration:
    if np.isnat(value):
        raise ValueError("NaT is not supported in a query; use None for NULL")
    kind: type[expressions.Timestamp] | type[expressions.Duration] = (
        expressions.Timestamp if isinstance(value, np.datetime64) else expressions.Duration
    )
    exact = value.astype(f"{value.dtype.kind}8[ns]")
    if exact.astype(value.dtype) != value:
        raise ValueError(f"{value!r} cannot be converted to a 64-bit number of nanoseconds")
    return kind(int(exact.astype(np.int64)))


def _fitting(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{value} does not fit into 64 bits")
    return value


def _cast(operand: expressions.Expr, written: str, *, lenient: bool) -> expressions.Cast:
    """The CAST to a type that is written as in a query; the checker reports unknown types."""
    found = re.fullmatch(r"\s*(\w+)\s*\(\s*([0-9]+(?:\s*,\s*[0-9]+)*)\s*\)\s*", written)
    target, sizes = (written.strip(), ()) if found is None else (found[1], tuple(map(int, found[2].split(","))))
    return expressions.Cast(operand, target.upper(), lenient, sizes)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"a number in a query must be finite, but is {value}; use None for NULL")
    return value


# --- Values


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An expression built with Python operators; `node` is the expression.

    Python values become literals. An operand of `&` or `|` that is a text is parsed as a condition. Attributes are the
    fields of a struct, items the elements of a list or the values of a map.

    >>> (var("a").amount * 2 > 10) & "b.kind = 'x'"
    Value("a.amount * 2 > 10 AND b.kind = 'x'")
    >>> var("a").user.name, var("a").tags[0], var("a").labels["env"]
    (Value("a.user.name"), Value("a.tags[0]"), Value("a.labels['env']"))
    """

    node: expressions.Expr

    __hash__ = None  # type: ignore[assignment]
    # NumPy scalars on the left leave the operator to this class.
    __array_ufunc__ = None

    def __add__(self, other: object) -> Value:
        return _binary("+", self, other)

    def __radd__(self, other: object) -> Value:
        return _binary("+", other, self)

    def __sub__(self, other: object) -> Value:
        return _binary("-", self, other)

    def __rsub__(self, other: object) -> Value:
        return _binary("-", other, self)

    def __mul__(self, other: object) -> Value:
        return _binary("*", self, other)

    def __rmul__(self, other: object) -> Value:
        return _binary("*", other, self)

    def __truediv__(self, other: object) -> Value:
        return _binary("/", self, other)

    def __rtruediv__(self, other: object) -> Value:
        return _binary("/", other, self)

    def __mod__(self, other: object) -> Value:
        return _binary("%", self, other)

    def __rmod__(self, other: object) -> Value:
        return _binary("%", other, self)

    def __neg__(self) -> Value:
        return Value(expressions.Unary("-", self.node))

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return _binary("=", self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return _binary("!=", self, other)

    def __lt__(self, other: object) -> Value:
        return _binary("<", self, other)

    def __le__(self, other: object) -> Value:
        return _binary("<=", self, other)

    def __gt__(self, other: object) -> Value:
        return _binary(">", self, other)

    def __ge__(self, other: object) -> Value:
        return _binary(">=", self, other)

    def __and__(self, other: ConditionLike) -> Value:
        return Value(expressions.Binary("and", self.node, condition_node(other)))

    def __rand__(self, other: ConditionLike) -> Value:
        return Value(expressions.Binary("and", condition_node(other), self.node))

    def __or__(self, other: ConditionLike) -> Value:
        return Value(expressions.Binary("or", self.node, condition_node(other)))

    def __ror__(self, other: ConditionLike) -> Value:
        return Value(expressions.Binary("or", condition_node(other), self.node))

    def __invert__(self) -> Value:
        return Value(expressions.Unary("not", self.node))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a condition has no truth value in Python: combine conditions with &, | and ~ instead of `and`, `or` and "
            "`not`, and write (1 < x) & (x < 5) instead of 1 < x < 5"
        )

    def __repr__(self) -> str:
        return f'Value("{self.to_text()}")'

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.member(name)

    def __getitem__(self, key: int | str) -> Value:
        return Value(expressions.Entry(self.node, value_node(key)))

    def __iter__(self) -> NoReturn:
        raise TypeError("the elements of a list in a query cannot be iterated in Python")

    def member(self, name: str) -> Value:
        """`x.name`: a field of a struct, also if `Value` has an attribute of that name."""
        return Value(expressions.Member(self.node, name))

    def is_in(self, items: Iterable[object]) -> Value:
        """`x IN (1, 2)`."""
        return Value(expressions.InList(self.node, _listed(items)))

    def not_in(self, items: Iterable[object]) -> Value:
        """`x NOT IN (1, 2)`."""
        return Value(expressions.InList(self.node, _listed(items), negated=True))

    def is_in_table(self, table: str, column: str | None = None) -> Value:
        """`x IN blocked`: a value of the only column of a TABLE, or of the column `column`."""
        return Value(expressions.InTable(self.node, table, column))

    def not_in_table(self, table: str, column: str | None = None) -> Value:
        """`x NOT IN blocked`."""
        return Value(expressions.InTable(self.node, table, column, negated=True))

    def between(self, low: object, high: object) -> Value:
        """`x BETWEEN low AND high`."""
        return Value(expressions.Between(self.node, value_node(low), value_node(high)))

    def not_between(self, low: object, high: object) -> Value:
        """`x NOT BETWEEN low AND high`."""
        return Value(expressions.Between(self.node, value_node(low), value_node(high), negated=True))

    def like(self, pattern: str) -> Value:
        """`x LIKE 'a%'`."""
        return Value(expressions.Like(self.node, pattern))

    def not_like(self, pattern: str) -> Value:
        """`x NOT LIKE 'a%'`."""
        return Value(expressions.Like(self.node, pattern, negated=True))

    def ilike(self, pattern: str) -> Value:
        """`x ILIKE 'a%'`."""
        return Value(expressions.Like(self.node, pattern, ignores_case=True))

    def not_ilike(self, pattern: str) -> Value:
        """`x NOT ILIKE 'a%'`."""
        return Value(expressions.Like(self.node, pattern, negated=True, ignores_case=True))

    def cast(self, target: str) -> Value:
        """`CAST(x AS BIGINT)`: x as another type; an error if a value cannot be converted.

        >>> from ensue import var
        >>> var("a").price.cast("DECIMAL(10, 2)").node.type
        'DECIMAL(10, 2)'
        """
        return Value(_cast(self.node, target, lenient=False))

    def try_cast(self, target: str) -> Value:
        """`TRY_CAST(x AS BIGINT)`: as `cast`, but null if a value cannot be converted."""
        return Value(_cast(self.node, target, lenient=True))

    def is_null(self) -> Value:
        """`x IS NULL`."""
        return Value(expressions.IsNull(self.node))

    def is_not_null(self) -> Value:
        """`x IS NOT NULL`."""
        return Value(expressions.IsNull(self.node, negated=True))

    def concat(self, other: object) -> Value:
        """`x || y`: the concatenation of two texts."""
        return _binary("||", self, other)

    def to_text(self) -> str:
        """The expression as query text."""
        return render_expression(self.node)


ConditionLike = Value | expressions.Expr | str


class Variable:
    """A variable or AS name of a pattern. Its attributes and items are the fields of the event.

    >>> var("a").amount, var("a")["order line"]
    (Value("a.amount"), Value("a.`order line`"))
    """

    __slots__ = ("_variable",)

    def __init__(self, variable: str) -> None:
        self._variable = variable

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Value:
        return Value(expressions.Field(self._variable, name))


def var(name: str) -> Variable:
    """The variable with this name.

    >>> var("a").t - var("b").t
    Value("a.t - b.t")
    """
    return Variable(name)


def field(name: str) -> Value:
    """A field of the event itself, for the condition of `event`.

    >>> field("amount") > 1000
    Value("amount > 1000")
    """
    return Value(expressions.Field(None, name))


def value(python_value: object) -> Value:
    """A Python value as a literal.

    >>> value("x").concat(field("name"))
    Value("'x' || name")
    """
    return Value(value_node(python_value))


def call(name: str, *arguments: object) -> Value:
    """A call of a function.

    >>> call("abs", field("x"))
    Value("abs(x)")
    """
    return Value(expressions.Call(name.lower(), tuple(map(value_node, arguments))))


def case(*branches: tuple[ConditionLike, object], default: object = None) -> Value:
    """The value of the first condition that is true, or the default.

    >>> case((field("x") > 0, "up"), ("x < 0", "down"), default="flat")
    Value("CASE WHEN x > 0 THEN 'up' WHEN x < 0 THEN 'down' ELSE 'flat' END")
    """
    if not branches:
        raise ValueError("case takes at least one pair (condition, value)")
    nodes = tuple((condition_node(condition), value_node(result)) for condition, result in branches)
    return Value(expressions.Case(nodes, None if default is None else value_node(default)))


def same(*fields: str) -> Value:
    """The condition that all variables of the pattern have equal values in these fields.

    >>> same("user", "device")
    Value("SAME(user, device)")
    """
    if not fields:
        raise ValueError("same takes at least one field")
    return Value(expressions.Same(fields))


def value_node(thing: object) -> expressions.Expr:
    """The expression of a `Value`, an expression, or a Python value as a literal."""
    match thing:
        case Value():
            return thing.node
        case _ if isinstance(thing, expressions.Expr):
            return thing
        case Variable():
            name = thing._variable
            raise TypeError(f'expected a field of `{name}`, such as var("{name}").amount, found the variable')
    return literal(thing)


def condition_node(condition: ConditionLike) -> expressions.Expr:
    """The expression of a condition. A text is parsed."""
    return parse_expression(condition) if isinstance(condition, str) else value_node(condition)


def _binary(operator: str, left: object, right: object) -> Value:
    return Value(expressions.Binary(operator, value_node(left), value_node(right)))


def _listed(items: Iterable[object]) -> tuple[expressions.Expr, ...]:
    if isinstance(items, str):
        raise TypeError(f"expected a list of values, found the text {items!r}")
    nodes = tuple(map(value_node, items))
    if not nodes:
        raise ValueError("the list of values must not be empty")
    return nodes
