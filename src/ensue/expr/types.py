"""Arrow types and columns: how source columns are read, and how Arrow types correspond to the types in `kinds`.

Expressions are evaluated on few Arrow types: bool, int64, float64, string (large_string beyond 2 GiB), timestamp and
duration of any unit. `readable` converts a source column to one of them, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
from pyarrow import compute

from ensue.errors import Problem, SchemaError
from ensue.expr import kinds
from ensue.expr.checker import check_expression
from ensue.expr.kinds import LARGEST_INTEGER, NANOSECONDS_PER_UNIT, Kind, Type, literal_type
from ensue.nodes.expressions import Duration, Expr, Field, Literal, Timestamp

Array: TypeAlias = "pa.Array[Any]"
Column: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"
Scalar: TypeAlias = "pa.Scalar[Any]"
Value: TypeAlias = "pa.Array[Any] | pa.Scalar[Any]"
"""The value of a subexpression: one value per row, or one for all rows."""

# The stubs of Arrow's kernels do not know that arrays and scalars mix freely.
arrow: Any = compute

# The offsets of a string array are 32 bits wide.
_LARGEST_STRING_BYTES = 2**31 - 1


_LIST_TYPES = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_PLAIN_TYPES: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.NULL: pa.null(),
}


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
    """The name of a type in messages: its kind, or its Arrow name if Ensue has no such kind.

    >>> describe(pa.list_(pa.int32()))
    'list of integers'
    """
    return own_type(data_type).word


def own_type(data_type: pa.DataType) -> Type:
    """Converts an Arrow type to the checker's type.

    >>> own_type(pa.timestamp("us", "UTC")) == Type(Kind.TIMESTAMP, "us", "UTC")
    True
    """
    of: Any = readable_type(data_type)
    if pa.types.is_large_string(data_type):
        return Type(Kind.TEXT, large=True)
    kind = kind_of(of)
    if kind is Kind.OTHER:
        element = element_type(of)
        # Arrow takes lists for equal whatever it calls their elements, and so do we.
        foreign = "" if pa.types.is_list(of) else str(of)
        return Type(
            kind,
            element=None if element is None else own_type(element),
            parts=tuple((part.name, own_type(part.type)) for part in of) if pa.types.is_struct(of) else None,
            foreign=foreign,
            entry=(own_type(of.key_type), own_type(of.item_type)) if pa.types.is_map(of) else None,
            arrow=of,
        )
    unit = of.unit if kind in kinds.TIMES else ""
    zone = of.tz if kind is Kind.TIMESTAMP else None
    changed = {} if of == data_type else {"foreign": str(data_type), "arrow": data_type}
    return Type(kind, unit, zone, **changed)


@dataclass(frozen=True, slots=True)
class TableValues:
    """The values of a column of a TABLE, without nulls, and their type."""

    array: Any
    type: Type

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> TableValues:
        values = column.combine_chunks().drop_null().unique()
        return cls(values, own_type(values.type))


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of some columns of a table that have no null: for each column its distinct values, their type, and their
    places in the rows."""

    columns: tuple[TableValues, ...]
    places: tuple[Any, ...]
    length: int

    @classmethod
    def of(cls, table: pa.Table, names: Sequence[str]) -> TableRows:
        rows = table.select(list(names)).drop_null() if names else table
        encoded = [rows.column(name).combine_chunks().dictionary_encode() for name in names]
        values = (TableValues(column.dictionary, own_type(column.type.value_type)) for column in encoded)
        return cls(tuple(values), tuple(np.asarray(column.indices) for column in encoded), rows.num_rows)


def arrow_type(own: Type) -> pa.DataType:
    """The Arrow type for values of this type.

    >>> arrow_type(own_type(pa.list_(pa.int32()))), arrow_type(kinds.list_of(kinds.INTEGER))
    (ListType(list<item: int32>), ListType(list<item: int64>))
    """
    if own.arrow is not None:
        known: pa.DataType = own.arrow
        return known
    if own.element is not None:
        return pa.list_(arrow_type(own.element))
    if own.parts is not None:
        return pa.struct([(name, arrow_type(part)) for name, part in own.parts])
    unit: Any = own.unit
    match own.kind:
        case Kind.TIMESTAMP:
            return pa.timestamp(unit, own.zone)
        case Kind.DURATION:
            return pa.duration(unit)
        case Kind.TEXT if own.large:
            return pa.large_string()
    return _PLAIN_TYPES[own.kind]


def element_type(data_type: pa.DataType) -> pa.DataType | None:
    """The element type of a list type; None for other types."""
    of: Any = data_type
    is_list = any(matches(of) for matches in _LIST_TYPES)
    return of.value_type if is_list else None


def incomparable_type(data_type: pa.DataType) -> pa.DataType | None:
    """The type, or the type of a part of it, whose values cannot be compared; None if there is none.

    >>> incomparable_type(pa.list_(pa.map_(pa.string(), pa.int64())))
    MapType(map<string, int64>)
    """
    of: Any = data_type
    if pa.types.is_map(of) or pa.types.is_interval(of) or isinstance(of, pa.BaseExtensionType):
        return data_type
    element = element_type(of)
    parts = [element] if element is not None else [part.type for part in of] if pa.types.is_struct(of) else []
    return next(filter(None, map(incomparable_type, parts)), None)


def readable_type(data_type: pa.DataType) -> pa.DataType:
    """The type that `readable` converts a column of this type to (text beyond 2 GiB becomes large_string instead).

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


def readable(column: Column, name: str, *, exact: bool = False) -> Array:
    """Converts a source column to the form that expressions are evaluated on: one chunk, few types, NaN as null.

    Data is copied only if it has to change. `name` is the column name for messages. With `exact`, decimals stay
    decimals and dates stay dates.

    >>> readable(pa.chunked_array([[1.0], [float("nan")]]), "x").to_pylist()
    [1.0, None]
    """
    target = readable_type(column.type)
    plain = _decoded(column)
    if pa.types.is_string(target):
        return _contiguous(_narrowest_text(plain))
    whole = _contiguous(plain)
    if exact and (pa.types.is_decimal(whole.type) or pa.types.is_date(whole.type)):
        return whole
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
        return convert(column, target)
    try:
        return column.cast(target)
    except pa.ArrowInvalid as overflow:
        raise SchemaError(
            "integer-range",
            f"column `{name}` contains {arrow.max(column)}, which is larger than the largest integer {LARGEST_INTEGER}",
            f"cast the column before the run: to pa.string() if `{name}` is an identifier, to pa.float64() if it is a"
            " quantity",
        ) from overflow


def nan_to_null(value: Any) -> Any:
    """A float64 value with null for every NaN; the same object if there is no NaN."""
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


def as_float(value: Any) -> Any:
    """A decimal as the nearest float; other values unchanged.

    >>> from decimal import Decimal
    >>> as_float(pa.scalar(Decimal("0.3"))).as_py()
    0.3
    """
    # Arrow's own conversion multiplies by a power of ten: 0.3 would become 0.30000000000000004.
    return value.cast(pa.large_string()).cast(pa.float64()) if pa.types.is_decimal(value.type) else value


def has_dates(data_type: pa.DataType) -> bool:
    """Whether a column of this type holds dates, encoded or not."""
    of: Any = data_type
    while pa.types.is_dictionary(of) or pa.types.is_run_end_encoded(of):
        of = of.value_type
    return bool(pa.types.is_date(of))


def without_dates(value: Any) -> Any:
    """A date as the timestamp of its midnight; other values unchanged."""
    return value.cast(readable_type(value.type)) if pa.types.is_date(value.type) else value


def unit_of(data_type: Any) -> str:
    """The unit of a timestamp or duration type."""
    unit: str = data_type.unit
    return unit


def common_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type that can hold values of all these types (see `kinds.common_type`); None if their kinds differ."""
    common = kinds.common_type(map(own_type, types))
    return None if common is None else arrow_type(common)


def arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of `left operator right` (see `kinds.arithmetic_type`); None if it is not defined."""
    result = kinds.arithmetic_type(operator, own_type(left), own_type(right))
    return None if result is None else arrow_type(result)


def convert(value: Any, target: pa.DataType) -> Any:
    """Converts the value to another type of the same kind. ArrowInvalid if a time does not fit the finer unit."""
    if value.type == target:
        return value
    if pa.types.is_floating(target):
        value = as_float(value)
    # An integer beyond 2**53 becomes the nearest float64, as in SQL.
    return value.cast(target, safe=not pa.types.is_floating(target))


def scalar(literal: Literal | Duration | Timestamp) -> Scalar | None:
    """The value of a literal; None if it does not fit in 64 bits."""
    own = literal_type(literal)
    if own is None:
        return None
    in_units = literal.value if isinstance(literal, Literal) else literal.nanoseconds // NANOSECONDS_PER_UNIT[own.unit]
    value: Any = pa.scalar(in_units, arrow_type(own))
    return cast(Scalar, value)


# --- types of expressions


def expression_type(
    expr: Expr, field_type: Callable[[Field], pa.DataType | None], problems: list[Problem]
) -> pa.DataType:
    """The type of the expression; `field_type` returns the readable type of a field. Appends mistakes to `problems`.

    >>> from ensue.nodes.expressions import Binary, Literal
    >>> expression_type(Binary("/", Field("a", "x"), Literal(2)), lambda field: pa.int64(), [])
    DataType(double)
    """

    def own(field: Field) -> Type | None:
        found = field_type(field)
        return None if found is None else own_type(found)

    return arrow_type(check_expression(expr, own, problems))
