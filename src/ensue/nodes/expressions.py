"""Expressions as the user wrote them: immutable values without types or schemas.

Positions in the source text (`span`) are ignored in comparisons.
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
            raise ValueError("a number must be finite")

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and TRUE are different literals although Python calls them equal.
        return isinstance(other, Literal) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Duration:
    """`5 seconds`, `1.5 hours`: a literal in an expression, and the length of a window."""

    nanoseconds: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """`TIMESTAMP '2024-01-31 12:00:00'`: nanoseconds since 1970 in UTC; `zoned` if the text contains an offset."""

    nanoseconds: int
    zoned: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Field:
    """`a.amount`. Inside the brackets of an event the variable can be omitted (None).

    With `asks_state`, it is a question about a state at that event, such as `P(alice IN den)`; `name` is its text.
    """

    variable: Name | None
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)
    asks_state: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Member:
    """`a.user.name`: a field of a struct."""

    operand: Expr
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """`a.tags[0]`, `a.labels['env']`: an element of a list, from 0 on, or a value of a map."""

    operand: Expr
    key: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


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
class InTable:
    """`x IN blocked`, `x NOT IN blocked.ip`: whether `x` is a value of a column of a TABLE.

    `column` None: the only one. `values` are the values of the column, once the rows of the table are known.
    """

    operand: Expr
    table: str
    column: str | None = None
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)
    values: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class HasRow:
    """`blocked(ip, 'web')`, `not blocked(ip, 'web')` in a rule: whether a row of a table has these values in `columns`.

    Never null: a null is equal to nothing. `rows` are the rows of these columns, once those of the table are known.
    """

    operands: tuple[Expr, ...]
    table: str
    columns: tuple[str, ...]
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)
    rows: Any = field(default=None, compare=False, repr=False)


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
    r"""`x LIKE 'a%_'`: `%` matches any text, `_` one character, `\` escapes the next one; ILIKE `ignores_case`."""

    operand: Expr
    pattern: str
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)
    ignores_case: bool = False


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
    """`abs(x)`; the name is kept in lower case.

    `function` is the function of the user (`ensue.expr.user_functions`) with this name, None for those of Ensue.
    """

    name: str
    arguments: tuple[Expr, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    function: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """`CAST(x AS BIGINT)`; TRY_CAST, which is null where the value cannot be converted, is `lenient`.

    The name of the type is kept in upper case. `sizes` are the numbers of `DECIMAL(10, 2)`.
    """

    operand: Expr
    target: str
    lenient: bool = False
    sizes: tuple[int, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def type(self) -> str:
        """The type as it is written: `DECIMAL(10, 2)`."""
        return f"{self.target}({', '.join(map(str, self.sizes))})" if self.sizes else self.target


@dataclass(frozen=True, slots=True)
class Same:
    """`SAME(a, b)`: all variables in scope have equal values in these fields. Only allowed as a conjunct of WHERE."""

    fields: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Elements:
    """The list of the values of `element`, one for each element of the list `of`.

    Generated by `ensue.expr.lists` from a repeated variable. Inside `element`, the variables of the repetition are
    those of one element.
    """

    element: Expr
    of: Name
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Gather:
    """The list of the values of these expressions, which have one type; null where `given` is not true."""

    elements: tuple[Expr, ...]
    given: Expr | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.elements:
            raise ValueError("an empty list has no type")


Expr = (
    Literal
    | Duration
    | Timestamp
    | Field
    | Member
    | Entry
    | Unary
    | Binary
    | InList
    | InTable
    | HasRow
    | Between
    | Like
    | IsNull
    | Case
    | Call
    | Cast
    | Same
    | Elements
    | Gather
)


_PARTS: dict[type, tuple[str, ...]] = {
    kind: () if kind in (Field, Literal) else tuple(item.name for item in fields(kind) if item.name != "span")
    for kind in get_args(Expr)
}


def parts_of(expr: Expr) -> tuple[str, ...]:
    """The names of the parts of an expression; fields and literals have none."""
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
    """The expression and all its parts, outermost first."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += children(part)[::-1]


def variables_of(expr: Expr) -> frozenset[Name]:
    """The variables and AS names in an expression, including the variables of lists."""
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


# --- Nested fields


def path_field(expr: Expr) -> Field | None:
    """The field at the beginning of `a.user.tags[0]`; None if the expression is not a path.

    >>> path_field(Entry(Member(Field("a", "user"), "tags"), Literal(0)))
    Field(variable='a', name='user')
    """
    while isinstance(expr, Member | Entry):
        expr = expr.operand
    return expr if isinstance(expr, Field) else None


def columns_first(expr: Expr, is_column: Callable[[Name], bool]) -> Expr:
    """Read `x.y` as field `y` of the struct `x` if `x` is a column, and as field `y` of the variable `x` otherwise.

    >>> columns_first(Field("user", "name"), lambda name: name != "a")
    Member(operand=Field(variable=None, name='user'), name='name')
    >>> columns_first(Member(Field(None, "a"), "name"), lambda name: name != "a")
    Field(variable='a', name='name')
    """

    def read(part: Expr) -> Expr | None:
        match part:
            case Field(variable) if variable is not None and not part.asks_state and is_column(variable):
                column = str(variable)
                return Member(Field(None, column, part.span and part.span.head(len(column))), part.name, part.span)
            case Member(Field(None, column), name) if not is_column(column):
                return Field(column, name, part.span)
        return None

    return rewrite(expr, read)


# --- Rewrites

Change = Callable[[Expr], Expr | None]
"""Returns the replacement of an expression, or None to rewrite only its parts."""


def rewrite(expr: Expr, change: Change) -> Expr:
    """Rewrite an expression from the outside in: replace each part for which `change` returns a value.

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
    """Replace each field by the result of `change`.

    >>> from ensue.nodes.expressions import Binary, Literal
    >>> substitute_fields(Binary(">", Field(None, "x"), Literal(1)), lambda field: Field("a", field.name))
    Binary(operator='>', left=Field(variable='a', name='x'), right=Literal(value=1))
    """
    return rewrite(expr, lambda part: change(part) if isinstance(part, Field) else None)


def substitute_lists(expr: Expr, change: Callable[[Elements], Expr]) -> Expr:
    """Replace each list over a variable by the result of `change`: a field or a `Gather`.

    >>> from ensue.nodes.expressions import Call
    >>> substitute_lists(Call("sum", (Elements(Field("t", "x"), "t"),)), lambda part: Field(part.of, "list of x"))
    Call(name='sum', arguments=(Field(variable='t', name='list of x'),))
    """
    return rewrite(expr, lambda part: change(part) if isinstance(part, Elements) else None)


def anonymous_predicate(predicate: Expr) -> Expr:
    """The predicate without its variable, equal for two variables with the same condition."""
    return substitute_fields(predicate, lambda field: replace(field, variable=None))
