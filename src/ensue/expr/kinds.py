"""The types of values as the checker uses them: their names in messages, and the result types of operators.

They are independent of Arrow, so that a program can be checked without loading an array library. The module `types`
converts them to Arrow types and back. The checker and the evaluator share the rules for operators (`common_type`,
`arithmetic_type`), so both always agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from types import MappingProxyType
from typing import Any

from ensue.errors import Problem, did_you_mean
from ensue.nodes.expressions import NANOSECONDS_PER, Cast, Duration, Expr, Literal, Timestamp, Unary

UNITS = ("s", "ms", "us", "ns")
NANOSECONDS_PER_UNIT = {
    "s": NANOSECONDS_PER["second"],
    "ms": NANOSECONDS_PER["ms"],
    "us": NANOSECONDS_PER["us"],
    "ns": NANOSECONDS_PER["ns"],
}
SMALLEST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**63 - 1


class Kind(Enum):
    """The kind of a value, under the name that messages use."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "number"
    TEXT = "text"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    NULL = "null"
    OTHER = "other"

    @property
    def word(self) -> str:
        """The name for users: FLOAT is a "number"."""
        return self.value


NUMBERS = frozenset({Kind.INTEGER, Kind.FLOAT})
TIMES = frozenset({Kind.TIMESTAMP, Kind.DURATION})
ORDERED = NUMBERS | TIMES | {Kind.TEXT}
PLAIN = ORDERED | {Kind.BOOLEAN}
_NAMES = {
    Kind.BOOLEAN: "bool",
    Kind.INTEGER: "int64",
    Kind.FLOAT: "double",
    Kind.TEXT: "string",
    Kind.NULL: "null",
}


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value.

    Times have a `unit`, timestamps may have a `zone`, lists have an `element` type, maps the types of keys and values
    in `entry`, structs and whole events have `parts`, and text is `large` if it may exceed 2 GiB. A type that Arrow has
    and Ensue reads as another type, or does not support, keeps its Arrow name in `foreign` and the Arrow type in
    `arrow`.

    >>> Type(Kind.TIMESTAMP, "us", "UTC").name, list_of(INTEGER).word
    ('timestamp[us, tz=UTC]', 'list of integers')
    """

    kind: Kind
    unit: str = ""
    zone: str | None = None
    element: Type | None = None
    parts: tuple[tuple[str, Type], ...] | None = None
    large: bool = False
    foreign: str = ""
    entry: tuple[Type, Type] | None = None
    arrow: Any = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The Arrow name of the type."""
        if self.foreign:
            return self.foreign
        if self.element is not None:
            return f"list<item: {self.element.name}>"
        if self.parts is not None:
            return f"struct<{', '.join(f'{name}: {part.name}' for name, part in self.parts)}>"
        if self.kind in TIMES:
            return f"{self.kind.word}[{self.unit}{'' if self.zone is None else f', tz={self.zone}'}]"
        return f"large_{_NAMES[self.kind]}" if self.large else _NAMES[self.kind]

    @property
    def word(self) -> str:
        """The name for messages: the kind, or the Arrow name if Ensue has no such kind."""
        if self.element is not None:
            return f"list of {self.element.several}"
        return self.name if self.kind is Kind.OTHER else self.kind.word

    @property
    def several(self) -> str:
        """The plural name, for messages."""
        if self.element is not None:
            return self.word.replace("list", "lists", 1)
        return self.word if self.kind in (Kind.TEXT, Kind.OTHER) else f"{self.word}s"

    @property
    def readable(self) -> Type:
        """The type that its values are read as."""
        return self if self.kind is Kind.OTHER else Type(self.kind, self.unit, self.zone)


BOOLEAN = Type(Kind.BOOLEAN)
INTEGER = Type(Kind.INTEGER)
FLOAT = Type(Kind.FLOAT)
TEXT = Type(Kind.TEXT)
MOMENT = Type(Kind.TIMESTAMP, "us")
DAY = Type(Kind.TIMESTAMP, "s")
"""The type that dates are read as."""
NULL_TYPE = Type(Kind.NULL)


def list_of(element: Type) -> Type:
    """The list type with these elements."""
    return Type(Kind.OTHER, element=element)


# --- CAST

CASTS: Mapping[str, tuple[Type, frozenset[Kind]]] = MappingProxyType(
    {
        "STRING": (TEXT, NUMBERS | {Kind.BOOLEAN, Kind.TEXT, Kind.TIMESTAMP}),
        "BIGINT": (INTEGER, NUMBERS | {Kind.BOOLEAN, Kind.TEXT}),
        "INT": (INTEGER, NUMBERS | {Kind.BOOLEAN, Kind.TEXT}),
        "DOUBLE": (FLOAT, NUMBERS | {Kind.BOOLEAN, Kind.TEXT}),
        "DECIMAL": (FLOAT, NUMBERS | {Kind.BOOLEAN, Kind.TEXT}),
        "BOOLEAN": (BOOLEAN, NUMBERS | {Kind.BOOLEAN, Kind.TEXT}),
        "TIMESTAMP": (MOMENT, frozenset({Kind.TEXT, Kind.TIMESTAMP})),
        "DATE": (DAY, frozenset({Kind.TEXT, Kind.TIMESTAMP})),
    }
)
"""The types of CAST: the type of the result, and the kinds that can be converted."""

MOST_DIGITS = 38
"""The digits of the widest DECIMAL."""


_OTHER_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "BOOL": "BOOLEAN",
        "DATETIME": "TIMESTAMP",
        "DEC": "DECIMAL",
        "FLOAT": "DOUBLE",
        "INTEGER": "INT",
        "LONG": "BIGINT",
        "NUMERIC": "DECIMAL",
        "REAL": "DOUBLE",
        "TEXT": "STRING",
        "VARCHAR": "STRING",
    }
)
"""What other systems call the types of CAST."""


def decimal_size(sizes: tuple[int, ...]) -> tuple[int, int] | None:
    """The digits of a DECIMAL, and how many of them are decimal places; None if there is no such type.

    >>> decimal_size(()), decimal_size((12,)), decimal_size((4, 2)), decimal_size((2, 4))
    ((10, 0), (12, 0), (4, 2), None)
    """
    if len(sizes) > 2:
        return None
    digits, places = (*sizes, *(10, 0)[len(sizes) :])
    return (digits, places) if 1 <= digits <= MOST_DIGITS and places <= digits else None


def cast_flaw(cast: Cast, word: str) -> Problem | None:
    """The mistake in the type of a CAST, without its position; None if there is none."""
    if cast.target not in CASTS:
        meant = _OTHER_TYPES.get(cast.target)
        hint = f"did you mean `{meant}`?" if meant else did_you_mean(cast.target, CASTS)
        message = f"unknown type `{cast.target}` in {word}"
        return Problem("cast-type", message, label=f"types: {', '.join(CASTS)}", hint=hint)
    if not cast.sizes or (cast.target == "DECIMAL" and decimal_size(cast.sizes) is not None):
        return None
    if cast.target == "DECIMAL":
        message = f"unknown type `{cast.type}` in {word}"
        hint = "write DECIMAL(digits, places) with at most 38 digits, decimal places included: DECIMAL(10, 2)"
    else:
        message, hint = f"the type `{cast.target}` has no size", f"write {cast.target}"
    return Problem("cast-type", message, label=cast.type, hint=hint)


# --- types of operators


def finer(left: str, right: str) -> str:
    """The finer of two time units.

    >>> finer("ms", "us")
    'us'
    """
    return max(left, right, key=UNITS.index)


def common_type(types: Iterable[Type]) -> Type | None:
    """The type that can hold values of all these types (CASE, coalesce, comparison); None if their kinds differ.

    Integer and number have the common type number, two units the finer unit, a naive timestamp and one with a time zone
    that time zone, and two time zones UTC.
    """
    nothing_yet: Type | None = NULL_TYPE
    return reduce(_meet, types, nothing_yet)


def _meet(left: Type | None, right: Type) -> Type | None:
    if left is None or left == right:
        return left
    kinds = (left.kind, right.kind)
    if kinds[0] is Kind.NULL:
        return right
    if kinds[1] is Kind.NULL:
        return left
    if NUMBERS.issuperset(kinds):
        return FLOAT
    if kinds[0] is not kinds[1] or kinds[0] is Kind.OTHER:
        return None
    if kinds[0] is Kind.TEXT:
        return Type(Kind.TEXT, large=True)
    unit = finer(left.unit, right.unit)
    return Type(kinds[0], unit, _common_zone(left, right) if kinds[0] is Kind.TIMESTAMP else None)


def _common_zone(left: Type, right: Type) -> str | None:
    zones = {zone for zone in (left.zone, right.zone) if zone is not None}
    return "UTC" if len(zones) > 1 else next(iter(zones), None)


def arithmetic_type(operator: str, left: Type, right: Type) -> Type | None:
    """The type of `left operator right`; None if the operator is not defined for these types.

    An operation with NULL has type NULL. A duration multiplied by a fraction has at least microsecond resolution.
    """
    kinds = (left.kind, right.kind)
    if Kind.NULL in kinds:
        return NULL_TYPE
    if NUMBERS.issuperset(kinds) and operator != "||":
        return FLOAT if operator == "/" or Kind.FLOAT in kinds else INTEGER
    match (operator, *kinds):
        case ("||", Kind.TEXT, Kind.TEXT):
            return common_type((left, right))
        case ("+" | "-", Kind.DURATION, Kind.DURATION) | ("-", Kind.TIMESTAMP, Kind.TIMESTAMP):
            return Type(Kind.DURATION, finer(left.unit, right.unit))
        case ("+" | "-", Kind.TIMESTAMP, Kind.DURATION):
            return Type(Kind.TIMESTAMP, finer(left.unit, right.unit), left.zone)
        case ("+", Kind.DURATION, Kind.TIMESTAMP):
            return Type(Kind.TIMESTAMP, finer(left.unit, right.unit), right.zone)
        case ("*", Kind.DURATION, Kind.INTEGER):
            return left
        case ("*", Kind.INTEGER, Kind.DURATION):
            return right
        case ("*" | "/", Kind.DURATION, Kind.INTEGER | Kind.FLOAT):
            return _fractional_duration(left)
        case ("*", Kind.FLOAT, Kind.DURATION):
            return _fractional_duration(right)
        case ("/", Kind.DURATION, Kind.DURATION):
            return FLOAT
    return None


def _fractional_duration(duration: Type) -> Type:
    return Type(Kind.DURATION, finer(duration.unit, "us"))


# --- literals


def constant(expr: Expr) -> Literal | Duration | Timestamp | None:
    """The literal that the expression consists of, including a sign (`-5`); None if it is not a literal."""
    match expr:
        case Literal() | Duration() | Timestamp():
            return expr
        case Unary("-", Literal(bool() | str() | None)):
            return None
        case Unary("-", Literal(int() | float() as number)):
            return Literal(-number, expr.span)
        case Unary("-", Duration(nanoseconds)):
            return Duration(-nanoseconds, expr.span)
    return None


def literal_type(literal: Literal | Duration | Timestamp) -> Type | None:
    """The type of a literal; None if its value does not fit in 64 bits.

    A time gets the coarsest unit that represents it exactly, so that a literal never forces a column to a finer unit
    without need.
    """
    if not isinstance(literal, Literal):
        unit = next(unit for unit in UNITS if literal.nanoseconds % NANOSECONDS_PER_UNIT[unit] == 0)
        if not _fits(literal.nanoseconds // NANOSECONDS_PER_UNIT[unit]):
            return None
        if isinstance(literal, Duration):
            return Type(Kind.DURATION, unit)
        return Type(Kind.TIMESTAMP, unit, "UTC" if literal.zoned else None)
    match literal.value:
        case None:
            return NULL_TYPE
        case bool():
            return BOOLEAN
        case int():
            return INTEGER if _fits(literal.value) else None
        case float():
            return FLOAT
    return TEXT


def _fits(number: int) -> bool:
    return SMALLEST_INTEGER <= number <= LARGEST_INTEGER
