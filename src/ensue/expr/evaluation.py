"""Evaluates expressions on Arrow arrays, with the null semantics of SQL, and implements the functions of expressions.

The expression has passed `check_expression`, and the result has the type that the checker announced. A subexpression
without fields stays one scalar until the end. Nothing here loops over rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import Problem, QueryError, Span
from ensue.expr import containers, conversion, types
from ensue.expr.conversion import local_time
from ensue.expr.functions import AGGREGATES, FUNCTIONS, Function
from ensue.expr.kinds import CASTS, LARGEST_INTEGER, NANOSECONDS_PER_UNIT, NUMBERS, TIMES, Kind, constant
from ensue.expr.notations import moment_pattern, with_one_group
from ensue.expr.operators import NULL, UNKNOWN, compared, computed, decimals, inverted_if, is_like, negative, overflow
from ensue.expr.reductions import aggregated, gathered
from ensue.nodes import expressions

# --- the functions on Arrow values

# --- numbers


def rounded(x: Any, digits: Any = None) -> Any:
    """Rounds to a number of decimal places, halves away from zero; integers stay exact."""
    places = 0 if digits is None else digits.as_py()
    if pa.types.is_integer(x.type):
        return _round_integer(x, places)
    # Beyond these a float64 has nothing left to round, or nothing at all.
    places = min(places, 340)
    if places < -308:
        return types.arrow.multiply(x, 0.0)
    if places <= 0:
        return _round_half_away(x, places)
    # From here on a float64 has no such digit; Arrow would run into infinity.
    exact = types.arrow.greater_equal(types.arrow.abs(x), float(f"1e{17 - places}"))
    nearest = _round_half_away(types.arrow.if_else(exact, 0.0, x), min(places, 300))
    return types.arrow.if_else(exact, x, nearest)


def _round_integer(x: Any, places: int) -> Any:
    if places >= 0:
        return x
    if places >= -18:
        return _round_half_away(x, places)
    if places == -19:
        # 10**19 is no integer anymore: only what rounds to zero can stay.
        up = types.arrow.greater_equal(types.arrow.abs_checked(types.arrow.divide(x, 10**18)), 5)
        return types.arrow.multiply_checked(types.arrow.if_else(up, LARGEST_INTEGER, 0), 10)
    return types.arrow.multiply(x, 0)


def _round_half_away(x: Any, places: int) -> Any:
    return types.arrow.round(x, ndigits=places, round_mode="half_towards_infinity")


def keep_integers(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Applies the kernel to floats and leaves integers unchanged."""
    return lambda x: x if pa.types.is_integer(x.type) else kernel(x)


def on_floats(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Applies the kernel to float64 values; null where the result is not defined."""
    return lambda *arguments: types.nan_to_null(
        kernel(*(types.convert(argument, pa.float64()) for argument in arguments))
    )


def ln(x: Any) -> Any:
    """The natural logarithm of floats; null for 0 and negative numbers."""
    return types.arrow.ln(types.arrow.if_else(types.arrow.greater(x, 0.0), x, pa.scalar(None, pa.float64())))


# --- text


def substr(text: Any, start: Any, count: Any = None) -> Any:
    """At most `count` characters from `start`, which counts from 1 or, if negative, from the end."""
    first = start.as_py()
    begin = first - 1 if first > 0 else first
    if count is None:
        return types.arrow.utf8_slice_codeunits(text, begin)
    if count.as_py() <= 0:
        return types.arrow.utf8_slice_codeunits(text, 0, 0)
    end = begin + count.as_py()
    if begin < 0:
        # Counted from the end: position 0 would be the beginning of the text, not the end.
        return types.arrow.utf8_slice_codeunits(text, begin, end if end < 0 else None)
    return types.arrow.utf8_slice_codeunits(text, begin, min(end, LARGEST_INTEGER))


def concat(*texts: Any) -> Any:
    """Concatenates the texts."""
    target = _result_type(FUNCTIONS["concat"], texts)
    return types.arrow.binary_join_element_wise(
        *(types.convert(text, target) for text in texts), types.convert(pa.scalar(""), target)
    )


def replace(text: Any, search: Any, replacement: Any) -> Any:
    """The text with every occurrence of `search` replaced."""
    if not search.as_py():
        # Arrow would look for an empty text forever.
        return text
    return types.arrow.replace_substring(text, pattern=search.as_py(), replacement=replacement.as_py())


def with_pattern(kernel: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """The kernel with its constant pattern as second argument."""
    return lambda text, pattern: kernel(text, pattern=pattern.as_py())


def split(text: Any, pattern: Any, limit: Any = None) -> Any:
    """The parts between the matches of a regular expression."""
    most = 0 if limit is None else limit.as_py()
    parts = types.arrow.split_pattern_regex(text, pattern=pattern.as_py(), max_splits=most - 1 if most > 0 else None)
    return parts.cast(pa.list_(pa.string()))


def regexp_extract(text: Any, pattern: Any, group: Any = None) -> Any:
    """The part that a group of the first match of a regular expression matches; an empty text without a match."""
    one = with_one_group(pattern.as_py(), 1 if group is None else group.as_py())
    if isinstance(text, pa.Scalar):
        return regexp_extract(pa.array([text]), pattern, group)[0]
    part = types.arrow.struct_field(types.arrow.extract_regex(text, pattern=one), "part")
    found = types.arrow.if_else(part.is_valid(), part, pa.scalar("", part.type))
    return types.arrow.if_else(text.is_valid(), found, pa.scalar(None, part.type))


# --- any kind


def extreme(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Applies a kernel that picks one of several values and ignores nulls to any kind that has an order."""

    def of_rows(*values: Any) -> Any:
        of = values[0].type
        if types.kind_of(of) is not Kind.TIMESTAMP:
            return kernel(*values, skip_nulls=True)
        # Arrow has no such kernel for times with a zone.
        return kernel(*(value.cast(pa.int64()) for value in values), skip_nulls=True).cast(of)

    return of_rows


# --- times


def part(kernel: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """Applies the kernel to the local time."""
    return lambda moment: kernel(local_time(moment), **options)


def date_trunc(unit: Any, moment: Any) -> Any:
    """The start of the unit that contains the timestamp, in local time."""
    name = unit.as_py().lower()
    local = local_time(moment)
    floor = types.arrow.floor_temporal(local, unit=name, week_starts_monday=True)
    zone = moment.type.tz
    if zone is None or zone == "UTC":
        return floor.cast(moment.type)
    if name in ("hour", "minute", "second"):
        # Go back by what has passed on the clock: the hour that a change of clocks repeats stays the right one.
        return types.arrow.subtract(moment.cast(pa.int64()), types.arrow.subtract(local, floor).cast(pa.int64())).cast(
            moment.type
        )
    return types.arrow.assume_timezone(floor, zone, ambiguous="earliest", nonexistent="latest")


def in_seconds(time: Any) -> Any:
    """A duration, or the time since 1970, in seconds as a float."""
    ticks = types.convert(time.cast(pa.int64()), pa.float64())
    return types.arrow.divide(ticks, NANOSECONDS_PER_UNIT["s"] / NANOSECONDS_PER_UNIT[types.unit_of(time.type)])


# --- function calls

_CALCULATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "abs": types.arrow.abs_checked,
        "sign": types.arrow.sign,
        "round": rounded,
        "floor": keep_integers(types.arrow.floor),
        "ceil": keep_integers(types.arrow.ceil),
        "sqrt": on_floats(types.arrow.sqrt),
        "power": on_floats(types.arrow.power),
        "ln": on_floats(ln),
        "exp": on_floats(types.arrow.exp),
        "sin": on_floats(types.arrow.sin),
        "cos": on_floats(types.arrow.cos),
        "tan": on_floats(types.arrow.tan),
        "asin": on_floats(types.arrow.asin),
        "acos": on_floats(types.arrow.acos),
        "atan": on_floats(types.arrow.atan),
        "atan2": on_floats(types.arrow.atan2),
        "radians": on_floats(lambda x: types.arrow.multiply(x, math.pi / 180)),
        "degrees": on_floats(lambda x: types.arrow.multiply(x, 180 / math.pi)),
        "lower": types.arrow.utf8_lower,
        "upper": types.arrow.utf8_upper,
        "trim": lambda text: types.arrow.utf8_trim(text, characters=" "),
        "length": types.arrow.utf8_length,
        "substr": substr,
        "concat": concat,
        "replace": replace,
        "startswith": with_pattern(types.arrow.starts_with),
        "endswith": with_pattern(types.arrow.ends_with),
        "contains": with_pattern(types.arrow.match_substring),
        "size": containers.size,
        "split": split,
        "regexp_like": with_pattern(types.arrow.match_substring_regex),
        "regexp_extract": regexp_extract,
        "json_value": containers.json_value,
        "coalesce": types.arrow.coalesce,
        "least": extreme(types.arrow.min_element_wise),
        "greatest": extreme(types.arrow.max_element_wise),
        "year": part(types.arrow.year),
        "quarter": part(types.arrow.quarter),
        "month": part(types.arrow.month),
        "day": part(types.arrow.day),
        "dayofweek": part(types.arrow.day_of_week, **{"count_from_zero": False, "week_start": 7}),
        "weekday": part(types.arrow.day_of_week, **{"count_from_zero": True, "week_start": 1}),
        "dayofyear": part(types.arrow.day_of_year),
        "hour": part(types.arrow.hour),
        "minute": part(types.arrow.minute),
        "second": part(types.arrow.second),
        "date_trunc": date_trunc,
        "seconds": in_seconds,
        "epoch": in_seconds,
    }
)


def call_function(function: Function, arguments: Sequence[types.Value]) -> types.Value:
    """Calls a function with arguments that have passed the checker."""
    result = _result_type(function, arguments)
    given: Sequence[Any] = arguments
    value: types.Value
    if function.alike:
        given = [types.convert(argument, result) for argument in arguments]
        if types.kind_of(result) is Kind.NULL:
            value = given[0]
            return value
    elif any(types.kind_of(argument.type) is Kind.NULL or _is_null_scalar(argument) for argument in arguments):
        value = pa.scalar(None, result)
        return value
    value = types.convert(_CALCULATIONS[function.name](*given), result)
    return value


def _result_type(function: Function, arguments: Sequence[types.Value]) -> pa.DataType:
    return types.arrow_type(function.result(tuple(types.own_type(argument.type) for argument in arguments)))


def _is_null_scalar(value: types.Value) -> bool:
    return isinstance(value, pa.Scalar) and not value.is_valid


# --- evaluation


def evaluate(expr: expressions.Expr, column: Callable[[expressions.Field], types.Array], length: int) -> types.Array:
    """Evaluates a checked expression for each of `length` rows; `column` returns the readable array of a field.

    >>> amounts = pa.array([10, None, 30])
    >>> large = expressions.Binary(">", expressions.Field("a", "amount"), expressions.Literal(20))
    >>> evaluate(large, lambda field: amounts, 3).to_pylist()
    [False, None, True]
    """
    return _broadcast(_value(expr, _Rows(column, length)), length)


def condition_mask(
    expr: expressions.Expr, column: Callable[[expressions.Field], types.Array], length: int
) -> npt.NDArray[np.bool_]:
    """The rows on which a checked condition is true; null counts as false.

    >>> amounts = pa.array([10, None, 30])
    >>> large = expressions.Binary(">", expressions.Field("a", "amount"), expressions.Literal(20))
    >>> condition_mask(large, lambda field: amounts, 3).tolist()
    [False, False, True]
    """
    holds = _condition(expr, _Rows(column, length))
    if isinstance(holds, pa.Scalar):
        return np.full(length, holds.as_py() is True)
    validity, bits = holds.buffers()
    mask = _unpacked(bits, holds)
    return mask & _unpacked(validity, holds) if holds.null_count else mask


def _unpacked(bitmap: Any, array: types.Array) -> npt.NDArray[np.bool_]:
    # Arrow's own conversion takes eight times as long.
    bits = np.frombuffer(bitmap, np.uint8) if bitmap is not None else np.empty(0, np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)


@dataclass(frozen=True, slots=True)
class _Rows:
    column: Callable[[expressions.Field], types.Array]
    length: int

    def describe(self, operand: expressions.Expr, place: int) -> str:
        """The row at this place: the fields of the operand, and the time of their event."""
        fields = [part for part in expressions.walk(operand) if isinstance(part, expressions.Field)]
        times = [expressions.Field(variable, "t") for variable in dict.fromkeys(field.variable for field in fields)]
        found = []
        for field in dict.fromkeys((*fields, *times)):
            try:
                value = self.column(field)[place].as_py()
            except LookupError:
                continue
            found.append(f"{field.name if field.variable is None else f'{field.variable}.{field.name}'} = {value!s}")
        return f"in the row with {', '.join(found)}" if found else ""

    def where(self, mask: types.Array) -> _Rows:
        """Selects the rows where the mask is true."""
        return _Rows(lambda field: self.column(field).filter(mask), types.arrow.sum(mask, min_count=0).as_py())


def _broadcast(value: Any, length: int) -> types.Array:
    if not isinstance(value, pa.Scalar):
        return cast(types.Array, value)
    one: Any = value
    return cast(types.Array, pa.repeat(one, length))


def _value(expr: expressions.Expr, rows: _Rows) -> Any:
    literal = constant(expr)
    if literal is not None:
        return _literal(literal)
    match expr:
        case expressions.Field() | expressions.Member() | expressions.Entry() | expressions.Cast():
            return types.without_dates(types.as_float(_exact(expr, rows)))
        case expressions.Unary("not", operand):
            return types.arrow.invert(_condition(operand, rows))
        case expressions.Unary(_, operand):
            with overflow("-", expr.span):
                return negative(_value(operand, rows))
        case expressions.Binary("and", left, right):
            return types.arrow.and_kleene(_condition(left, rows), _condition(right, rows))
        case expressions.Binary("or", left, right):
            return types.arrow.or_kleene(_condition(left, rows), _condition(right, rows))
        case expressions.Binary(operator, left, right) if operator in expressions.COMPARISONS:
            with overflow(operator, expr.span):
                return compared(operator, *_comparands(left, right, rows))
        case expressions.Binary(operator, left, right) if operator in expressions.ARITHMETIC:
            operands = _value(left, rows), _value(right, rows)
            with overflow(operator, expr.span):
                return computed(operator, *operands)
        case expressions.InList(operand, items, negated):
            return inverted_if(negated, _is_one_of(operand, items, rows))
        case expressions.InTable(operand, negated=negated, values=values):
            assert values is not None, "the rows of a table are known when a query is planned"
            wanted = _exact(operand, rows)
            if pa.types.is_decimal(values.array.type):
                wanted = _as_decimal(operand, wanted)
            return inverted_if(negated, _looked_up(wanted, values.array))
        case expressions.HasRow(operands, negated=negated, rows=table):
            assert table is not None, "the rows of a table are known when a query is planned"
            return inverted_if(negated, _row_found(operands, table, rows))
        case expressions.Between(operand, low, high, negated):
            above = compared(">=", *_comparands(operand, low, rows))
            below = compared("<=", *_comparands(operand, high, rows))
            return inverted_if(negated, types.arrow.and_kleene(above, below))
        case expressions.Like(operand, pattern, negated):
            return inverted_if(negated, is_like(_value(operand, rows), pattern, expr.ignores_case))
        case expressions.IsNull(operand, negated):
            return inverted_if(negated, types.arrow.is_null(_value(operand, rows)))
        case expressions.Case():
            return _case(expr, rows)
        case expressions.Gather(elements, given):
            columns = [_broadcast(_value(element, rows), rows.length) for element in elements]
            with overflow("list", expr.span):
                lists = gathered(columns)
            if given is None:
                return lists
            present = _broadcast(_condition(given, rows), rows.length)
            return types.arrow.if_else(types.arrow.fill_null(present, False), lists, pa.scalar(None, lists.type))
        case expressions.Elements(_, of):
            raise AssertionError(f"the list over `{of}` must be replaced before evaluation")
        case expressions.Call(name, (argument,)) if name in AGGREGATES:
            lists = _broadcast(_value(argument, rows), rows.length)
            with overflow(name, expr.span):
                return aggregated(
                    AGGREGATES[name], lists, argument.name if isinstance(argument, expressions.Field) else name
                )
        case expressions.Call("to_timestamp" | "try_to_timestamp"):
            return _moments(expr, rows)
        case expressions.Call("nullif"):
            return _nullif(expr, rows)
        case expressions.Call("contains", (first, second)) if types.element_type(_value(first, rows).type) is not None:
            return containers.contains(_broadcast(_value(first, rows), rows.length), _value(second, rows))
        case expressions.Call(_, arguments) if expr.function is not None:
            columns = [_broadcast(_value(argument, rows), rows.length) for argument in arguments]
            return expr.function.evaluated(columns, rows.length, expr.span)
        case expressions.Call(name, arguments):
            values = [_value(argument, rows) for argument in arguments]
            with overflow(name, expr.span):
                return call_function(FUNCTIONS[name], values)
    raise TypeError(f"{type(expr).__name__} has no value; check the expression first")


def _exact(expr: expressions.Expr, rows: _Rows) -> Any:
    """The value of an expression; decimals and dates that are fields or results of CAST stay what they are."""
    match expr:
        case expressions.Field():
            return rows.column(expr)
        case expressions.Member(operand, name):
            return containers.member(_exact(operand, rows), name)
        case expressions.Entry(operand, key):
            return containers.entry(_exact(operand, rows), _value(key, rows))
        case expressions.Cast():
            return _cast(expr, rows)
    return _value(expr, rows)


def _comparands(left: expressions.Expr, right: expressions.Expr, rows: _Rows) -> tuple[Any, Any]:
    """The two sides of a comparison. A literal that is compared with a decimal is a decimal."""
    values = _exact(left, rows), _exact(right, rows)
    if pa.types.is_decimal(values[0].type):
        return values[0], _as_decimal(right, values[1])
    if pa.types.is_decimal(values[1].type):
        return _as_decimal(left, values[0]), values[1]
    return values


def _as_decimal(expr: expressions.Expr, value: Any) -> Any:
    literal = constant(expr)
    if not isinstance(literal, expressions.Literal) or not isinstance(literal.value, float):
        return value
    written = Decimal(repr(literal.value))
    # Outside of these, the digits do not fit, and a float is compared as a float.
    return pa.scalar(written) if 1e-30 < abs(literal.value) < 1e30 or literal.value == 0 else value


def _condition(expr: expressions.Expr, rows: _Rows) -> Any:
    return types.convert(_value(expr, rows), pa.bool_())


def _literal(literal: expressions.Literal | expressions.Duration | expressions.Timestamp) -> Any:
    value = types.scalar(literal)
    if value is None:
        raise QueryError([Problem("number-too-large", "the literal does not fit in 64 bits", literal.span)])
    return value


# --- CAST and to_timestamp


def _cast(expr: expressions.Cast, rows: _Rows) -> Any:
    result = types.arrow_type(CASTS[expr.target][0])
    value = _exact(expr.operand, rows)
    if types.kind_of(value.type) is Kind.NULL:
        return pa.scalar(None, result)
    column = pa.array([value], value.type) if isinstance(value, pa.Scalar) else value
    found, failed = conversion.converted(column, expr.target, expr.sizes)
    if not expr.lenient:
        _require(column, failed, expr.operand, rows, _CastFailure(expr.type, "TRY_CAST", expr.span))
    return found[0] if isinstance(value, pa.Scalar) else found


def _moments(expr: expressions.Call, rows: _Rows) -> Any:
    texts, layout = (_value(argument, rows) for argument in expr.arguments)
    if types.kind_of(texts.type) is Kind.NULL or _is_null_scalar(layout) or types.kind_of(layout.type) is Kind.NULL:
        return pa.scalar(None, pa.timestamp("us"))
    column = pa.array([texts], texts.type) if isinstance(texts, pa.Scalar) else texts
    found, failed = conversion.moments(column, cast(str, moment_pattern(layout.as_py())))
    if expr.name == "to_timestamp":
        wanted = f"timestamp of the format '{layout.as_py()}'"
        _require(column, failed, expr.arguments[0], rows, _CastFailure(wanted, "try_to_timestamp", expr.span))
    return found[0] if isinstance(texts, pa.Scalar) else found


@dataclass(frozen=True, slots=True)
class _CastFailure:
    """What a value was to become, the function that gives null instead, and the place of the call."""

    wanted: str
    instead: str
    span: Span | None


def _require(
    values: Any, failed: npt.NDArray[np.bool_], operand: expressions.Expr, rows: _Rows, failure: _CastFailure
) -> None:
    """Raises a problem with the first value that cannot be converted, and the time of its row."""
    if not failed.any():
        return
    place = int(np.argmax(failed))
    value = values[place].as_py()
    shown = f"'{value}'" if isinstance(value, str) else str(value)
    raise QueryError(
        [
            Problem(
                "cast-value",
                f"{shown} cannot be converted to {failure.wanted}",
                failure.span,
                rows.describe(operand, place),
                f"use {failure.instead}, which gives null for such values",
            )
        ]
    )


# --- IN


def _is_one_of(searched: expressions.Expr, items: Sequence[expressions.Expr], rows: _Rows) -> Any:
    """`x = item OR x = item ...`; literals of the same type are looked up together."""
    literals: dict[pa.DataType, list[Any]] = {}
    answers = []
    operand = _exact(searched, rows)
    for item in items:
        value = _exact(item, rows)
        is_plain = types.kind_of(value.type) not in TIMES and not pa.types.is_decimal(operand.type)
        # Numbers of two types are compared exactly.
        is_alike = operand.type == value.type or not NUMBERS.issuperset(map(types.kind_of, (operand.type, value.type)))
        if isinstance(value, pa.Scalar) and value.is_valid and is_plain and is_alike:
            literals.setdefault(value.type, []).append(value)
        else:
            answers.append(compared("=", *_comparands(searched, item, rows)))
    answers += [_looked_up(operand, pa.array(values, of)) for of, values in literals.items()]
    return reduce(types.arrow.or_kleene, answers, pa.scalar(False))


def _looked_up(operand: Any, values: types.Array) -> Any:
    if types.kind_of(operand.type) is Kind.NULL:
        return UNKNOWN
    wanted, candidates = _of_one_type(*_alike(operand, values))
    if candidates is None:
        return UNKNOWN
    found = types.arrow.is_in(wanted, value_set=candidates)
    if isinstance(wanted, pa.Array) and wanted.null_count == 0:
        return found
    return types.arrow.if_else(types.arrow.is_valid(wanted), found, UNKNOWN)


def _of_one_type(operand: Any, values: Any) -> tuple[Any, Any]:
    """Both sides of a lookup with one type; None for the values if no type holds both."""
    common = operand.type if pa.types.is_decimal(operand.type) else types.common_type((operand.type, values.type))
    if common is None:
        return operand, None
    wanted, candidates = types.convert(operand, common), types.convert(values, common)
    if pa.types.is_floating(common):
        # A lookup tells -0.0 from 0.0, a comparison does not.
        wanted, candidates = types.arrow.add(wanted, 0.0), types.arrow.add(candidates, 0.0)
    return wanted, candidates


def _row_found(operands: Sequence[expressions.Expr], table: types.TableRows, rows: _Rows) -> Any:
    """Whether some row of the table equals the operands: both as numbers, which each column splits further."""
    wanted, held, count = np.zeros(rows.length, np.int64), np.zeros(table.length, np.int64), 1
    fits, known = np.ones(rows.length, bool), np.ones(table.length, bool)
    for operand, column, places in zip(operands, table.columns, table.places, strict=True):
        value = _exact(operand, rows)
        if pa.types.is_decimal(column.array.type):
            value = _as_decimal(operand, value)
        codes, own = _codes_in(_broadcast(value, rows.length), column.array)
        fits, known = fits & (codes >= 0), known & (own[places] >= 0)
        size = len(column.array) + 1
        held, wanted = held * size + own[places] + 1, wanted * size + codes + 1
        if count > 1:
            numbers = np.unique(np.concatenate([held, wanted]), return_inverse=True)[1]
            held, wanted, size = numbers[: table.length], numbers[table.length :], table.length + rows.length
        count = size
    found = np.zeros(count, bool)
    found[held[known]] = True
    return pa.array(found[wanted] & fits)


def _codes_in(operand: Any, values: types.Array) -> tuple[Any, Any]:
    """The places of the operand among the distinct values, and those of the values themselves; -1: equal to none."""
    none = np.full(len(operand), -1), np.full(len(values), -1)
    if Kind.NULL in (types.kind_of(operand.type), types.kind_of(values.type)):
        return none
    fitting = _alike(operand, values)
    wanted, candidates = _of_one_type(*fitting)
    if candidates is None:
        return none
    # Values that nothing of the operand's type equals are not among the candidates.
    own = types.arrow.index_in(values, value_set=types.convert(fitting[1], values.type))
    found = types.arrow.index_in(wanted, value_set=candidates)
    found = types.arrow.if_else(types.arrow.is_valid(wanted), found, None)
    places, others = (np.asarray(types.arrow.fill_null(codes, -1)).astype(np.int64) for codes in (found, own))
    return places, others


def _alike(operand: Any, values: Any) -> tuple[Any, Any]:
    """Both sides of a lookup with one type of number, without the values that no number of that type equals."""
    if pa.types.is_decimal(operand.type) or pa.types.is_decimal(values.type):
        return decimals(operand, values)
    kinds = types.kind_of(operand.type), types.kind_of(values.type)
    if kinds == (Kind.INTEGER, Kind.FLOAT):
        whole = types.arrow.equal(types.arrow.floor(values), values)
        inside = types.arrow.and_(types.arrow.greater_equal(values, -(2.0**63)), types.arrow.less(values, 2.0**63))
        return operand, values.filter(types.arrow.and_(whole, inside)).cast(pa.int64())
    if kinds == (Kind.FLOAT, Kind.INTEGER):
        floats = types.convert(values, pa.float64())
        return operand, floats.filter(compared("=", values, floats))
    return operand, values


def _nullif(expr: expressions.Call, rows: _Rows) -> Any:
    """Null where both arguments are equal, as `=` compares them; the first one elsewhere."""
    x, y = expr.arguments
    value = _value(x, rows)
    result = _result_type(FUNCTIONS["nullif"], (value, _value(y, rows)))
    with overflow("nullif", expr.span):
        value = types.convert(value, result)
        same = types.arrow.fill_null(compared("=", *_comparands(x, y, rows)), False)
    return types.arrow.if_else(same, pa.scalar(None, result), value)


# --- CASE


def _case(expr: expressions.Case, rows: _Rows) -> Any:
    pending: Any = pa.scalar(True)
    chosen = []
    for condition, value in expr.branches:
        holds = types.convert(_guarded(condition, rows, pending), pa.bool_())
        takes = types.arrow.and_(pending, types.arrow.fill_null(holds, False))
        chosen.append((takes, _guarded(value, rows, takes)))
        pending = types.arrow.and_not(pending, takes)
    otherwise = NULL if expr.default is None else _guarded(expr.default, rows, pending)
    common = types.common_type([value.type for _, value in chosen] + [otherwise.type])
    if common is None:
        raise TypeError("branches of different kinds; check the expression first")
    with overflow("CASE", expr.span):
        values = [(takes, types.convert(value, common)) for takes, value in chosen]
        result = types.convert(otherwise, common)
    for takes, value in reversed(values):
        result = types.arrow.if_else(takes, value, result)
    return result


def _guarded(expr: expressions.Expr, rows: _Rows, mask: Any) -> Any:
    """Evaluates the rows where the mask is true; an overflow in other rows is ignored.

    CASE lets a query guard against overflow, but few queries need it. Evaluating all rows at once is faster, so it is
    tried first.
    """
    try:
        return _value(expr, rows)
    except QueryError:
        where = _broadcast(mask, rows.length)
        selected = rows.where(where)
        if selected.length == 0:
            return pa.scalar(None, types.expression_type(expr, lambda field: rows.column(field).type, []))
        value = _broadcast(_value(expr, selected), selected.length)
        place = types.arrow.subtract(types.arrow.cumulative_sum(where.cast(pa.int64())), 1)
        return value.take(types.arrow.if_else(where, place, pa.scalar(None, pa.int64())))
