"""Expressions as the user wrote them: immutable values without types or schemas.

Places in the source text (`span`) never count for equality.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from ensue.errors import Span
from ensue.nodes.names import Name

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%", "||")
CONNECTIVES = ("and", "or")

NANOSECONDS_PER = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "second": 1_000_000_000,
    "minute": 60_000_000_000,
    "hour": 3_600_000_000_000,
    "day": 86_400_000_000_000,
    "week": 604_800_000_000_000,
}


@dataclass(frozen=True, slots=True)
class Literal:
    """`5`, `2.5`, `'text'`, `TRUE`, `NULL`."""

    value: bool | int | float | str | None
    span: Span | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise ValueError("a literal number is finite")

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and TRUE are different literals although Python calls them equal.
        return isinstance(other, Literal) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Duration:
    """`5 seconds`, `1.5 hours`; a literal of an expression and the measure of a window."""

    nanoseconds: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """`TIMESTAMP '2024-01-31 12:00:00'`: nanoseconds since 1970 in UTC; `zoned` if the text named an offset."""

    nanoseconds: int
    zoned: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Field:
    """`a.amount`; inside the brackets of an event the variable may be left out (None).

    With `asks_state`, it is a question to a state, `P(alice IN den)`, at that event; the name is the question's text.
    """

    variable: Name | None
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)
    asks_state: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`NOT x`, `-x`; `operator` is "not" or "-"."""

    operator: str
    operand: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, comparison or connective; `operator` is one of ARITHMETIC, COMPARISONS, CONNECTIVES."""

    operator: str
    left: Expr
    right: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InList:
    """`x IN (1, 2)`, `x NOT IN (1, 2)`."""

    operand: Expr
    items: tuple[Expr, ...]
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Between:
    """`x BETWEEN low AND high`, both included."""

    operand: Expr
    low: Expr
    high: Expr
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Like:
    r"""`x LIKE 'a%_'`: `%` any text, `_` one character, `\` quotes the next character."""

    operand: Expr
    pattern: str
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """`x IS NULL`, `x IS NOT NULL`."""

    operand: Expr
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Case:
    """`CASE WHEN condition THEN value ... ELSE default END`."""

    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`abs(x)`; the name is kept in lower case."""

    name: str
    arguments: tuple[Expr, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Same:
    """`SAME(a, b)`: all variables in scope agree on these fields. Only as a conjunct of WHERE."""

    fields: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Elements:
    """The list of the values of `element`, one for each element of the list that the variable `of` stands for.

    Nobody writes it: `ensue.expr.lists` makes it of a repeated variable. Inside of `element`, the names of the
    repetition's variables are those of one element.
    """

    element: Expr
    of: Name
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Gather:
    """In each row the list of the values of these expressions, of one kind; null where `given` is not true."""

    elements: tuple[Expr, ...]
    given: Expr | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.elements:
            raise ValueError("a list of nothing has no type")


Expr = (
    Literal
    | Duration
    | Timestamp
    | Field
    | Unary
    | Binary
    | InList
    | Between
    | Like
    | IsNull
    | Case
    | Call
    | Same
    | Elements
    | Gather
)


_PARTS: dict[type, tuple[str, ...]] = {
    kind: () if kind in (Field, Literal) else tuple(item.name for item in fields(kind) if item.name != "span")
    for kind in get_args(Expr)
}


def parts_of(expr: Expr) -> tuple[str, ...]:
    """The names of what an expression is made of; fields and literals have no parts."""
    return _PARTS[type(expr)]


def children(expr: Expr) -> list[Expr]:
    """The direct operands of an expression, from left to right."""
    found: list[Expr] = []
    for name in _PARTS[type(expr)]:
        value = getattr(expr, name)
        if type(value) in _PARTS:
            found.append(value)
        elif isinstance(value, tuple):
            for part in value:
                if type(part) in _PARTS:
                    found.append(part)
                elif isinstance(part, tuple):
                    found += part
    return found


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, outermost first."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += children(part)[::-1]


def variables_of(expr: Expr) -> frozenset[Name]:
    """The names before the dots: variables and AS names; also the variables that lists are made of."""
    names: set[Name] = set()
    for part in walk(expr):
        if isinstance(part, Field) and part.variable is not None:
            names.add(part.variable)
        elif isinstance(part, Elements):
            names.add(part.of)
    return frozenset(names)


def conjuncts(expr: Expr | None) -> tuple[Expr, ...]:
    """`x AND y AND z` as (x, y, z).

    >>> conjuncts(Binary("and", Literal(True), Literal(False)))
    (Literal(value=True), Literal(value=False))
    """
    if expr is None:
        return ()
    if isinstance(expr, Binary) and expr.operator == "and":
        return conjuncts(expr.left) + conjuncts(expr.right)
    return (expr,)


# --- Rebuilding expressions.

Change = Callable[[Expr], Expr | None]
"""What stands in the place of an expression; None: the same, with its own parts changed."""


def rewrite(expr: Expr, change: Change) -> Expr:
    """The expression, from the outside in, with every part replaced for which `change` gives another.

    >>> from ensue.nodes.expressions import Binary, Literal
    >>> rewrite(Binary(">", Field("a", "x"), Literal(1)), lambda part: Literal(2) if part == Literal(1) else None)
    Binary(operator='>', left=Field(variable='a', name='x'), right=Literal(value=2))
    """
    changed = change(expr)
    return _with_parts(expr, change) if changed is None else changed


def _with_parts(expr: Expr, change: Change) -> Expr:
    changed = {name: new for name in parts_of(expr) if (new := _part(old := getattr(expr, name), change)) is not old}
    return replace(expr, **changed) if changed else expr


def _part(value: Any, change: Change) -> Any:
    if isinstance(value, Expr):
        return rewrite(value, change)
    if isinstance(value, tuple):
        parts = tuple(_part(part, change) for part in value)
        return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    return value


def substitute_fields(expr: Expr, change: Callable[[Field], Expr]) -> Expr:
    """The expression with every field replaced by what `change` gives for it.

    >>> from ensue.nodes.expressions import Binary, Literal
    >>> substitute_fields(Binary(">", Field(None, "x"), Literal(1)), lambda field: Field("a", field.name))
    Binary(operator='>', left=Field(variable='a', name='x'), right=Literal(value=1))
    """
    return rewrite(expr, lambda part: change(part) if isinstance(part, Field) else None)


def substitute_lists(expr: Expr, change: Callable[[Elements], Expr]) -> Expr:
    """The expression with every list over a variable replaced by what `change` gives for it: a field, or a Gather.

    >>> from ensue.nodes.expressions import Call
    >>> substitute_lists(Call("sum", (Elements(Field("t", "x"), "t"),)), lambda part: Field(part.of, "list of x"))
    Call(name='sum', arguments=(Field(variable='t', name='list of x'),))
    """
    return rewrite(expr, lambda part: change(part) if isinstance(part, Elements) else None)


def anonymous_predicate(predicate: Expr) -> Expr:
    """The predicate with its variable left out, equal for two variables that ask the same."""
    return substitute_fields(predicate, lambda field: replace(field, variable=None))
