"""The value of an expression on Arrow arrays, with the nulls of SQL.

The expression has passed `check_expression`; the type of the result is the one that it announced. A subexpression
without fields stays one scalar until the very end. Nothing here loops over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import Problem, QueryError, SchemaError
from ensue.expr.functions import AGGREGATES, FUNCTIONS, Function
from ensue.expr.kinds import LARGEST_INTEGER, NANOSECONDS_PER_UNIT, TIMES, Kind, constant
from ensue.expr.operators import NULL, UNKNOWN, compared, computed, inverted_if, is_like, negative, overflow
from ensue.expr.reductions import aggregated, gathered
from ensue.expr.types import (
    Array,
    Value,
    arrow,
    arrow_type,
    common_type,
    convert,
    expression_type,
    kind_of,
    nan_to_null,
    own_type,
    scalar,
    unit_of,
)
from ensue.nodes.expressions import (
    ARITHMETIC,
    COMPARISONS,
    Between,
    Binary,
    Call,
    Case,
    Duration,
    Elements,
    Expr,
    Field,
    Gather,
    InList,
    IsNull,
    Like,
    Literal,
    Timestamp,
    Unary,
)

# --- What the functions of expressions compute on Arrow values: numbers, text, choices and times.

# --- numbers


def rounded(x: Any, digits: Any = None) -> Any:
    """Rounded to so many digits after the point, halves away from zero; integers stay exact."""
    places = 0 if digits is None else digits.as_py()
    if pa.types.is_integer(x.type):
        return _round_integer(x, places)
    # Beyond these a float64 has nothing left to round, or nothing at all.
    places = min(places, 340)
    if places < -308:
        return arrow.multiply(x, 0.0)
    if places <= 0:
        return _round_half_away(x, places)
    # From here on a float64 has no such digit; Arrow would run into infinity.
    exact = arrow.greater_equal(arrow.abs(x), float(f"1e{17 - places}"))
    nearest = _round_half_away(arrow.if_else(exact, 0.0, x), min(places, 300))
    return arrow.if_else(exact, x, nearest)


def _round_integer(x: Any, places: int) -> Any:
    if places >= 0:
        return x
    if places >= -18:
        return _round_half_away(x, places)
    if places == -19:
        # 10**19 is no integer anymore: only what rounds to zero can stay.
        up = arrow.greater_equal(arrow.abs_checked(arrow.divide(x, 10**18)), 5)
        return arrow.multiply_checked(arrow.if_else(up, LARGEST_INTEGER, 0), 10)
    return arrow.multiply(x, 0)


def _round_half_away(x: Any, places: int) -> Any:
    return arrow.round(x, ndigits=places, round_mode="half_towards_infinity")


def keep_integers(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The kernel on floats; an integer stays as it is."""
    return lambda x: x if pa.types.is_integer(x.type) else kernel(x)


def on_floats(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel on float64, null where it has no answer."""
    return lambda *arguments: nan_to_null(kernel(*(convert(argument, pa.float64()) for argument in arguments)))


def ln(x: Any) -> Any:
    """The natural logarithm of floats, null from 0 down."""
    return arrow.ln(arrow.if_else(arrow.greater(x, 0.0), x, pa.scalar(None, pa.float64())))


# --- text


def substr(text: Any, start: Any, count: Any = None) -> Any:
    """The characters from `start`, which counts from 1 or, if negative, from the end; at most `count` of them."""
    first = start.as_py()
    begin = first - 1 if first > 0 else first
    if count is None:
        return arrow.utf8_slice_codeunits(text, begin)
    if count.as_py() <= 0:
        return arrow.utf8_slice_codeunits(text, 0, 0)
    end = begin + count.as_py()
    if begin < 0:
        # Counted from the end: position 0 would be the beginning of the text, not the end.
        return arrow.utf8_slice_codeunits(text, begin, end if end < 0 else None)
    return arrow.utf8_slice_codeunits(text, begin, min(end, LARGEST_INTEGER))


def concat(*texts: Any) -> Any:
    """The texts one after the other."""
    target = _result_type(FUNCTIONS["concat"], texts)
    return arrow.binary_join_element_wise(*(convert(text, target) for text in texts), convert(pa.scalar(""), target))


def replace(text: Any, search: Any, replacement: Any) -> Any:
    """The text with every occurrence of `search` replaced."""
    if not search.as_py():
        # Arrow would look for an empty text forever.
        return text
    return arrow.replace_substring(text, pattern=search.as_py(), replacement=replacement.as_py())


def with_pattern(kernel: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """The kernel with the constant that it looks for as its second argument."""
    return lambda text, pattern: kernel(text, pattern=pattern.as_py())


# --- any kind


def nullif(x: Any, y: Any) -> Any:
    """Null where both are equal, `x` elsewhere."""
    same = arrow.fill_null(arrow.equal(x, y), False)
    return arrow.if_else(same, pa.scalar(None, x.type), x)


def extreme(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, which picks one of several values and leaves out nulls, on any kind that has an order."""

    def of_rows(*values: Any) -> Any:
        of = values[0].type
        if kind_of(of) is not Kind.TIMESTAMP:
            return kernel(*values, skip_nulls=True)
        # Arrow has no such kernel for times with a zone.
        return kernel(*(value.cast(pa.int64()) for value in values), skip_nulls=True).cast(of)

    return of_rows


# --- times


def _local(moment: Any) -> Any:
    """The time on the clocks of its zone, without zone."""
    zone = moment.type.tz
    if zone is None:
        return moment
    if zone == "UTC":
        return moment.cast(pa.timestamp(moment.type.unit))
    try:
        return arrow.local_timestamp(moment)
    except pa.ArrowInvalid as unknown:
        raise SchemaError(
            "unknown-time-zone",
            f"the time zone `{zone}` of a column is not in the time zone database",
            "cast the column to a zone such as pa.timestamp('us', 'UTC') or 'Europe/Berlin' before the run",
        ) from unknown


def part(kernel: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """The kernel on the time that the clocks show."""
    return lambda moment: kernel(_local(moment), **options)


def date_trunc(unit: Any, moment: Any) -> Any:
    """The start of the unit that the moment lies in, by the clocks of its zone."""
    name = unit.as_py().lower()
    local = _local(moment)
    floor = arrow.floor_temporal(local, unit=name, week_starts_monday=True)
    zone = moment.type.tz
    if zone is None or zone == "UTC":
        return floor.cast(moment.type)
    if name in ("hour", "minute", "second"):
        # Go back by what has passed on the clock: the hour that a change of clocks repeats stays the right one.
        return arrow.subtract(moment.cast(pa.int64()), arrow.subtract(local, floor).cast(pa.int64())).cast(moment.type)
    return arrow.assume_timezone(floor, zone, ambiguous="earliest", nonexistent="latest")


def in_seconds(time: Any) -> Any:
    """A duration, or the time since 1970, in seconds as a float."""
    ticks = convert(time.cast(pa.int64()), pa.float64())
    return arrow.divide(ticks, NANOSECONDS_PER_UNIT["s"] / NANOSECONDS_PER_UNIT[unit_of(time.type)])


# --- the functions

_CALCULATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "abs": arrow.abs_checked,
        "sign": arrow.sign,
        "round": rounded,
        "floor": keep_integers(arrow.floor),
        "ceil": keep_integers(arrow.ceil),
        "sqrt": on_floats(arrow.sqrt),
        "power": on_floats(arrow.power),
        "ln": on_floats(ln),
        "exp": on_floats(arrow.exp),
        "lower": arrow.utf8_lower,
        "upper": arrow.utf8_upper,
        "trim": lambda text: arrow.utf8_trim(text, characters=" "),
        "length": arrow.utf8_length,
        "substr": substr,
        "concat": concat,
        "replace": replace,
        "starts_with": with_pattern(arrow.starts_with),
        "ends_with": with_pattern(arrow.ends_with),
        "contains": with_pattern(arrow.match_substring),
        "coalesce": arrow.coalesce,
        "nullif": nullif,
        "least": extreme(arrow.min_element_wise),
        "greatest": extreme(arrow.max_element_wise),
        "year": part(arrow.year),
        "quarter": part(arrow.quarter),
        "month": part(arrow.month),
        "day": part(arrow.day),
        "day_of_week": part(arrow.day_of_week, **{"count_from_zero": False, "week_start": 1}),
        "day_of_year": part(arrow.day_of_year),
        "hour": part(arrow.hour),
        "minute": part(arrow.minute),
        "second": part(arrow.second),
        "date_trunc": date_trunc,
        "seconds": in_seconds,
        "epoch": in_seconds,
    }
)


def call_function(function: Function, arguments: Sequence[Value]) -> Value:
    """The value of a function for the values of its arguments, which have passed the checker."""
    result = _result_type(function, arguments)
    given: Sequence[Any] = arguments
    value: Value
    if function.alike:
        given = [convert(argument, result) for argument in arguments]
        if kind_of(result) is Kind.NULL:
            value = given[0]
            return value
    elif any(kind_of(argument.type) is Kind.NULL or _is_null_scalar(argument) for argument in arguments):
        value = pa.scalar(None, result)
        return value
    value = convert(_CALCULATIONS[function.name](*given), result)
    return value


def _result_type(function: Function, arguments: Sequence[Value]) -> pa.DataType:
    return arrow_type(function.result(tuple(own_type(argument.type) for argument in arguments)))


def _is_null_scalar(value: Value) -> bool:
    return isinstance(value, pa.Scalar) and not value.is_valid


# --- evaluation


def evaluate(expr: Expr, column: Callable[[Field], Array], length: int) -> Array:
    """The value of a checked expression for each of `length` rows; `column` gives the readable array of a field.

    >>> amounts = pa.array([10, None, 30])
    >>> evaluate(Binary(">", Field("a", "amount"), Literal(20)), lambda field: amounts, 3).to_pylist()
    [False, None, True]
    """
    return _broadcast(_value(expr, _Rows(column, length)), length)


def condition_mask(expr: Expr, column: Callable[[Field], Array], length: int) -> npt.NDArray[np.bool_]:
    """The rows on which a checked condition holds; null does not hold.

    >>> amounts = pa.array([10, None, 30])
    >>> condition_mask(Binary(">", Field("a", "amount"), Literal(20)), lambda field: amounts, 3).tolist()
    [False, False, True]
    """
    holds = _condition(expr, _Rows(column, length))
    if isinstance(holds, pa.Scalar):
        return np.full(length, holds.as_py() is True)
    validity, bits = holds.buffers()
    mask = _unpacked(bits, holds)
    return mask & _unpacked(validity, holds) if holds.null_count else mask


def _unpacked(bitmap: Any, array: Array) -> npt.NDArray[np.bool_]:
    # Arrow's own conversion takes eight times as long.
    bits = np.frombuffer(bitmap, np.uint8) if bitmap is not None else np.empty(0, np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)


@dataclass(frozen=True, slots=True)
class _Rows:
    column: Callable[[Field], Array]
    length: int

    def where(self, mask: Array) -> _Rows:
        """Only the rows where the mask is true."""
        return _Rows(lambda field: self.column(field).filter(mask), arrow.sum(mask, min_count=0).as_py())


def _broadcast(value: Any, length: int) -> Array:
    if not isinstance(value, pa.Scalar):
        return cast(Array, value)
    one: Any = value
    return cast(Array, pa.repeat(one, length))


def _value(expr: Expr, rows: _Rows) -> Any:
    literal = constant(expr)
    if literal is not None:
        return _literal(literal)
    match expr:
        case Field():
            return rows.column(expr)
        case Unary("not", operand):
            return arrow.invert(_condition(operand, rows))
        case Unary(_, operand):
            with overflow("-", expr.span):
                return negative(_value(operand, rows))
        case Binary("and", left, right):
            return arrow.and_kleene(_condition(left, rows), _condition(right, rows))
        case Binary("or", left, right):
            return arrow.or_kleene(_condition(left, rows), _condition(right, rows))
        case Binary(operator, left, right) if operator in COMPARISONS:
            return compared(operator, _value(left, rows), _value(right, rows))
        case Binary(operator, left, right) if operator in ARITHMETIC:
            operands = _value(left, rows), _value(right, rows)
            with overflow(operator, expr.span):
                return computed(operator, *operands)
        case InList(operand, items, negated):
            return inverted_if(negated, _is_one_of(_value(operand, rows), items, rows))
        case Between(operand, low, high, negated):
            value = _value(operand, rows)
            above = compared(">=", value, _value(low, rows))
            below = compared("<=", value, _value(high, rows))
            return inverted_if(negated, arrow.and_kleene(above, below))
        case Like(operand, pattern, negated):
            return inverted_if(negated, is_like(_value(operand, rows), pattern))
        case IsNull(operand, negated):
            return inverted_if(negated, arrow.is_null(_value(operand, rows)))
        case Case():
            return _case(expr, rows)
        case Gather(elements, given):
            columns = [_broadcast(_value(element, rows), rows.length) for element in elements]
            with overflow("list", expr.span):
                lists = gathered(columns)
            if given is None:
                return lists
            present = _broadcast(_condition(given, rows), rows.length)
            return arrow.if_else(arrow.fill_null(present, False), lists, pa.scalar(None, lists.type))
        case Elements(_, of):
            raise AssertionError(f"the list over `{of}` has to be replaced before anything is evaluated")
        case Call(name, (argument,)) if name in AGGREGATES:
            lists = _broadcast(_value(argument, rows), rows.length)
            with overflow(name, expr.span):
                return aggregated(AGGREGATES[name], lists, argument.name if isinstance(argument, Field) else name)
        case Call(name, arguments):
            values = [_value(argument, rows) for argument in arguments]
            with overflow(name, expr.span):
                return call_function(FUNCTIONS[name], values)
    raise TypeError(f"{type(expr).__name__} has no value; check the expression first")


def _condition(expr: Expr, rows: _Rows) -> Any:
    return convert(_value(expr, rows), pa.bool_())


def _literal(literal: Literal | Duration | Timestamp) -> Any:
    value = scalar(literal)
    if value is None:
        raise QueryError([Problem("number-too-large", "the literal does not fit 64 bits", literal.span)])
    return value


# --- IN


def _is_one_of(operand: Any, items: Sequence[Expr], rows: _Rows) -> Any:
    """`x = item OR x = item ...`; literals of one type are looked up together."""
    literals: dict[pa.DataType, list[Any]] = {}
    answers = []
    for item in items:
        value = _value(item, rows)
        if isinstance(value, pa.Scalar) and value.is_valid and kind_of(value.type) not in TIMES:
            literals.setdefault(value.type, []).append(value)
        else:
            answers.append(compared("=", operand, value))
    answers += [_looked_up(operand, pa.array(values, of)) for of, values in literals.items()]
    return reduce(arrow.or_kleene, answers, pa.scalar(False))


def _looked_up(operand: Any, values: Array) -> Any:
    common = common_type((operand.type, values.type))
    if common is None or kind_of(operand.type) is Kind.NULL:
        return UNKNOWN
    wanted, candidates = convert(operand, common), convert(values, common)
    if pa.types.is_floating(common):
        # A lookup tells -0.0 from 0.0, a comparison does not.
        wanted, candidates = arrow.add(wanted, 0.0), arrow.add(candidates, 0.0)
    found = arrow.is_in(wanted, value_set=candidates)
    if isinstance(wanted, pa.Array) and wanted.null_count == 0:
        return found
    return arrow.if_else(arrow.is_valid(wanted), found, UNKNOWN)


# --- CASE


def _case(expr: Case, rows: _Rows) -> Any:
    pending: Any = pa.scalar(True)
    chosen = []
    for condition, value in expr.branches:
        holds = convert(_guarded(condition, rows, pending), pa.bool_())
        takes = arrow.and_(pending, arrow.fill_null(holds, False))
        chosen.append((takes, _guarded(value, rows, takes)))
        pending = arrow.and_not(pending, takes)
    otherwise = NULL if expr.default is None else _guarded(expr.default, rows, pending)
    common = common_type([value.type for _, value in chosen] + [otherwise.type])
    if common is None:
        raise TypeError("branches of different kinds; check the expression first")
    with overflow("CASE", expr.span):
        values = [(takes, convert(value, common)) for takes, value in chosen]
        result = convert(otherwise, common)
    for takes, value in reversed(values):
        result = arrow.if_else(takes, value, result)
    return result


def _guarded(expr: Expr, rows: _Rows, mask: Any) -> Any:
    """The value where the mask is true; an overflow elsewhere does not count.

    CASE is how a query guards against overflow, but few need it: all rows at once is tried first, being faster.
    """
    try:
        return _value(expr, rows)
    except QueryError:
        where = _broadcast(mask, rows.length)
        selected = rows.where(where)
        if selected.length == 0:
            return pa.scalar(None, expression_type(expr, lambda field: rows.column(field).type, []))
        value = _broadcast(_value(expr, selected), selected.length)
        place = arrow.subtract(arrow.cumulative_sum(where.cast(pa.int64())), 1)
        return value.take(arrow.if_else(where, place, pa.scalar(None, pa.int64())))
