"""What the functions of expressions compute on Arrow values: numbers, text, choices and times.

Where a function takes a constant, a scalar comes in. `functions` says what each of them is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from ensue.errors import SchemaError
from ensue.expr.functions import FUNCTIONS, Function
from ensue.expr.kinds import LARGEST_INTEGER, NANOSECONDS_PER_UNIT, Kind
from ensue.expr.types import Value, arrow, arrow_type, convert, kind_of, nan_to_null, own_type, unit_of

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
