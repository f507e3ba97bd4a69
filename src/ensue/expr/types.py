"""Types of values: what users call them, how source columns are read, and what operators make of them.

Everything is evaluated on few Arrow types: bool, int64, float64, string (large_string beyond 2 GiB), timestamp and
duration of any unit. `readable` brings a source column there, once. The rules for operators (`common_type`,
`arithmetic_type`) serve the checker and the evaluator alike, so that both always agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import reduce
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
from pyarrow import compute

from ensue.errors import SchemaError
from ensue.expr.nodes import NANOSECONDS_PER, Duration, Expr, Literal, Timestamp, Unary

Array: TypeAlias = "pa.Array[Any]"
Column: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"
Scalar: TypeAlias = "pa.Scalar[Any]"
Value: TypeAlias = "pa.Array[Any] | pa.Scalar[Any]"
"""What a subexpression is worth: one value per row, or one for all rows."""

# The stubs of Arrow's kernels do not know that arrays and scalars mix freely.
arrow: Any = compute

UNITS = ("s", "ms", "us", "ns")
NANOSECONDS_PER_UNIT = {
    "s": NANOSECONDS_PER["second"],
    "ms": NANOSECONDS_PER["ms"],
    "us": NANOSECONDS_PER["us"],
    "ns": NANOSECONDS_PER["ns"],
}
SMALLEST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**63 - 1
# The offsets of a string array are 32 bits wide.
_LARGEST_STRING_BYTES = 2**31 - 1


class Kind(Enum):
    """What a value is, in the word that messages use."""

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
        """The word that users read: FLOAT is a "number"."""
        return self.value


NUMBERS = frozenset({Kind.INTEGER, Kind.FLOAT})
TIMES = frozenset({Kind.TIMESTAMP, Kind.DURATION})
ORDERED = NUMBERS | TIMES | {Kind.TEXT}
PLAIN = ORDERED | {Kind.BOOLEAN}
_LIST_TYPES = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def kind_of(data_type: pa.DataType) -> Kind:
    """The kind of the values of an Arrow type.

    >>> kind_of(pa.uint8())
    <Kind.INTEGER: 'integer'>
    >>> kind_of(pa.list_(pa.int64()))
    <Kind.OTHER: 'other'>
    """
    of = readable_type(data_type)
    if pa.types.is_boolean(of):
        return Kind.BOOLEAN
    if pa.types.is_integer(of):
        return Kind.INTEGER
    if pa.types.is_floating(of):
        return Kind.FLOAT
    if pa.types.is_string(of) or pa.types.is_large_string(of):
        return Kind.TEXT
    if pa.types.is_timestamp(of):
        return Kind.TIMESTAMP
    if pa.types.is_duration(of):
        return Kind.DURATION
    return Kind.NULL if pa.types.is_null(of) else Kind.OTHER


def describe(data_type: pa.DataType) -> str:
    """The word for a type in messages: its kind, or Arrow's name where Ensue has none.

    >>> describe(pa.list_(pa.int32()))
    'list of integers'
    """
    element = element_type(data_type)
    if element is not None:
        return f"list of {_several(element)}"
    kind = kind_of(data_type)
    return str(data_type) if kind is Kind.OTHER else kind.word


def _several(data_type: pa.DataType) -> str:
    word = describe(data_type)
    if element_type(data_type) is not None:
        return word.replace("list", "lists", 1)
    return word if kind_of(data_type) in (Kind.TEXT, Kind.OTHER) else f"{word}s"


def element_type(data_type: pa.DataType) -> pa.DataType | None:
    """The type of the elements of a list type, None if it is none."""
    of: Any = data_type
    is_list = any(matches(of) for matches in _LIST_TYPES)
    return of.value_type if is_list else None


def readable_type(data_type: pa.DataType) -> pa.DataType:
    """The type that `readable` gives a column of this type (text beyond 2 GiB becomes large_string instead).

    >>> readable_type(pa.dictionary(pa.int32(), pa.float32()))
    DataType(double)
    """
    of: Any = data_type
    if pa.types.is_dictionary(of) or pa.types.is_run_end_encoded(of):
        return readable_type(of.value_type)
    if pa.types.is_integer(of):
        return pa.int64()
    if pa.types.is_floating(of) or pa.types.is_decimal(of):
        return pa.float64()
    if pa.types.is_date32(of):
        return pa.timestamp("s")
    if pa.types.is_date64(of):
        return pa.timestamp("ms")
    if pa.types.is_large_string(of) or pa.types.is_string_view(of):
        return pa.string()
    return data_type


def readable(column: Column, name: str) -> Array:
    """A source column in the form that expressions are evaluated on: one chunk, few types, NaN as null.

    Nothing is copied where nothing has to change. `name` is the column's name, for messages.

    >>> readable(pa.chunked_array([[1.0], [float("nan")]]), "x").to_pylist()
    [1.0, None]
    """
    target = readable_type(column.type)
    plain = _decoded(column)
    if pa.types.is_string(target):
        return _contiguous(_narrowest_text(plain))
    whole = _contiguous(plain)
    if whole.type != target:
        whole = _converted(whole, target, name)
    return nan_to_null(whole) if pa.types.is_float64(target) else whole


def _contiguous(column: Column) -> Array:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        only: Any = column.chunk(0)
        return cast(Array, only)
    # Not combine_chunks: where offsets overflow, that gives several chunks again instead of an error.
    chunks: Any = column.chunks
    whole: Any = pa.concat_arrays(chunks) if chunks else pa.array([], column.type)
    return cast(Array, whole)


def _decoded(column: Column) -> Column:
    """The column without dictionary or run-end encoding."""
    encoded: Any = column.type
    if pa.types.is_run_end_encoded(encoded):
        return _decoded(arrow.run_end_decode(column))
    if not pa.types.is_dictionary(encoded):
        return column
    chunks: list[Any] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    decoded: list[Any] = [_decoded(_looked_up(chunk)) for chunk in chunks]
    if len(decoded) == 1:
        only: Array = decoded[0]
        return only
    return pa.chunked_array(decoded) if decoded else pa.array([], readable_type(encoded))


def _looked_up(chunk: Any) -> Array:
    words = chunk.dictionary
    if pa.types.is_string(words.type):
        # Short codes can stand for more text than a string array can hold.
        size = arrow.sum(arrow.binary_length(words).cast(pa.int64()).take(chunk.indices)).as_py() or 0
        if size > _LARGEST_STRING_BYTES:
            words = words.cast(pa.large_string())
    looked_up: Array = words.take(chunk.indices)
    return looked_up


def _narrowest_text(column: Column) -> Column:
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    in_one_piece = not isinstance(column, pa.ChunkedArray) or column.num_chunks <= 1
    if pa.types.is_string(column.type) and in_one_piece:
        return column
    target = pa.string() if column.nbytes <= _LARGEST_STRING_BYTES else pa.large_string()
    return column if column.type == target else column.cast(target)


def _converted(column: Array, target: pa.DataType, name: str) -> Array:
    if pa.types.is_floating(target):
        # A decimal or half float becomes the nearest float64.
        return column.cast(target, safe=False)
    try:
        return column.cast(target)
    except pa.ArrowInvalid as overflow:
        raise SchemaError(
            "integer-range",
            f"column `{name}` holds {arrow.max(column)}, beyond the largest integer {LARGEST_INTEGER}",
            f"cast the column before the run: to pa.string() if `{name}` is an identifier, to pa.float64() if it is a"
            " quantity",
        ) from overflow


def nan_to_null(value: Any) -> Any:
    """A float64 value with null for every NaN; the very same object if there is none."""
    if isinstance(value, pa.Scalar):
        number = value.as_py()
        return pa.scalar(None, value.type) if number is not None and number != number else value
    data = value.buffers()[1]
    if len(value) == 0 or data is None:
        return value
    # The minimum of anything with a NaN is NaN: one pass, nothing allocated. NaN in a null slot only costs time.
    numbers = np.frombuffer(data, np.float64, len(value), value.offset * 8)
    if not np.isnan(np.min(numbers)):
        return value
    return arrow.if_else(arrow.is_nan(value), pa.scalar(None, pa.float64()), value)


def unit_of(data_type: Any) -> str:
    """The unit of a timestamp or duration type."""
    unit: str = data_type.unit
    return unit


def finer(left: str, right: str) -> str:
    """The finer of two units.

    >>> finer("ms", "us")
    'us'
    """
    return max(left, right, key=UNITS.index)


def common_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type that can hold values of all these types (CASE, coalesce, comparison), or None if kinds differ.

    Integer and number meet in number, units in the finer one, a naive time and a zone in the zone, two zones in UTC.
    """
    nothing_yet: pa.DataType | None = pa.null()
    return reduce(_meet, types, nothing_yet)


def _meet(left: pa.DataType | None, right: pa.DataType) -> pa.DataType | None:
    if left is None or left == right:
        return left
    kinds = (kind_of(left), kind_of(right))
    if kinds[0] is Kind.NULL:
        return right
    if kinds[1] is Kind.NULL:
        return left
    if NUMBERS.issuperset(kinds):
        return pa.float64()
    if kinds[0] is not kinds[1] or kinds[0] is Kind.OTHER:
        return None
    if kinds[0] is Kind.TEXT:
        return pa.large_string()
    unit: Any = finer(unit_of(left), unit_of(right))
    return pa.duration(unit) if kinds[0] is Kind.DURATION else pa.timestamp(unit, _common_zone(left, right))


def _common_zone(left: Any, right: Any) -> str | None:
    zones = {zone for zone in (left.tz, right.tz) if zone is not None}
    return "UTC" if len(zones) > 1 else next(iter(zones), None)


def arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of `left operator right`, or None if the operator is not defined for them.

    Anything with NULL is NULL. Durations scaled by a fraction are at least as fine as microseconds.
    """
    kinds = (kind_of(left), kind_of(right))
    if Kind.NULL in kinds:
        return pa.null()
    if NUMBERS.issuperset(kinds) and operator != "||":
        return pa.float64() if operator == "/" or Kind.FLOAT in kinds else pa.int64()
    match (operator, *kinds):
        case ("||", Kind.TEXT, Kind.TEXT):
            return common_type((left, right))
        case ("+" | "-", Kind.DURATION, Kind.DURATION) | ("-", Kind.TIMESTAMP, Kind.TIMESTAMP):
            return pa.duration(_finer_unit(left, right))
        case ("+" | "-", Kind.TIMESTAMP, Kind.DURATION):
            return pa.timestamp(_finer_unit(left, right), _zone(left))
        case ("+", Kind.DURATION, Kind.TIMESTAMP):
            return pa.timestamp(_finer_unit(left, right), _zone(right))
        case ("*", Kind.DURATION, Kind.INTEGER):
            return left
        case ("*", Kind.INTEGER, Kind.DURATION):
            return right
        case ("*" | "/", Kind.DURATION, Kind.INTEGER | Kind.FLOAT):
            return _fractional_duration(left)
        case ("*", Kind.FLOAT, Kind.DURATION):
            return _fractional_duration(right)
        case ("/", Kind.DURATION, Kind.DURATION):
            return pa.float64()
    return None


def _finer_unit(left: pa.DataType, right: pa.DataType) -> Any:
    return finer(unit_of(left), unit_of(right))


def _zone(data_type: Any) -> str | None:
    zone: str | None = data_type.tz
    return zone


def _fractional_duration(data_type: pa.DataType) -> pa.DataType:
    unit: Any = finer(unit_of(data_type), "us")
    return pa.duration(unit)


def convert(value: Any, target: pa.DataType) -> Any:
    """The value in another type of the same kind. ArrowInvalid if a time does not fit the finer unit."""
    if value.type == target:
        return value
    # An integer beyond 2**53 becomes the nearest float64, as in SQL.
    return value.cast(target, safe=not pa.types.is_floating(target))


def constant(expr: Expr) -> Literal | Duration | Timestamp | None:
    """The literal that an expression is, with its sign (`-5` is one), or None if it is none."""
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


def scalar(literal: Literal | Duration | Timestamp) -> Scalar | None:
    """The value of a literal, or None if it does not fit 64 bits.

    A time has the coarsest unit that holds it exactly: a literal never forces a column to a finer unit without need.
    """
    if isinstance(literal, Literal):
        value: Any = literal.value
        if isinstance(value, int) and not isinstance(value, bool):
            return pa.scalar(value, pa.int64()) if SMALLEST_INTEGER <= value <= LARGEST_INTEGER else None
        plain: Scalar = pa.scalar(value)
        return plain
    unit: Any = next(unit for unit in UNITS if literal.nanoseconds % NANOSECONDS_PER_UNIT[unit] == 0)
    ticks = literal.nanoseconds // NANOSECONDS_PER_UNIT[unit]
    if not SMALLEST_INTEGER <= ticks <= LARGEST_INTEGER:
        return None
    of: Any = pa.duration(unit)
    if isinstance(literal, Timestamp):
        of = pa.timestamp(unit, "UTC" if literal.zoned else None)
    time: Scalar = pa.scalar(ticks, of)
    return time
