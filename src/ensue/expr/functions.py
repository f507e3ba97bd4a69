"""The functions of expressions: what they take, what they give, and how they are computed on Arrow values.

`FUNCTIONS` is the whole table. Null in, null out, but for the functions that choose among their arguments (`alike`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from ensue.errors import SchemaError
from ensue.expr.types import (
    LARGEST_INTEGER,
    NANOSECONDS_PER_UNIT,
    NUMBERS,
    ORDERED,
    PLAIN,
    Kind,
    Value,
    arrow,
    common_type,
    convert,
    kind_of,
    nan_to_null,
    unit_of,
)

_NUMBER, _TEXT, _INTEGER = NUMBERS, frozenset({Kind.TEXT}), frozenset({Kind.INTEGER})
_TIMESTAMP, _DURATION = frozenset({Kind.TIMESTAMP}), frozenset({Kind.DURATION})
TRUNCATION_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a function takes in one place.

    A `constant` is written out as a literal, one of `choices` if there are any. The last parameter may be `repeated`.
    """

    name: str
    kinds: frozenset[Kind]
    optional: bool = False
    repeated: bool = False
    constant: bool = False
    choices: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """What is expected here: "number", "text", ..."""
        if self.kinds == NUMBERS:
            return Kind.FLOAT.word
        if len(self.kinds) == 1:
            return next(iter(self.kinds)).word
        return "value" if Kind.BOOLEAN in self.kinds else "number, text, timestamp or duration"


@dataclass(frozen=True, slots=True)
class Function:
    """One function. `result` gives the type for the arguments' types, `compute` the value for their values.

    With `alike`, the arguments are of one kind and are brought to their common type, and `compute` sees nulls.
    The `example` is a condition that holds.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: Callable[[tuple[pa.DataType, ...]], pa.DataType]
    compute: Callable[..., Any]
    description: str
    example: str
    alike: bool = False

    @property
    def signature(self) -> str:
        """How it is written: `round(x[, digits])`."""
        text = ""
        for parameter in self.parameters:
            name = (", " if text else "") + parameter.name + (", ..." if parameter.repeated else "")
            text += f"[{name}]" if parameter.optional else name
        return f"{self.name}({text})"

    @property
    def fewest(self) -> int:
        """The least number of arguments."""
        return sum(not parameter.optional for parameter in self.parameters)

    @property
    def most(self) -> int | None:
        """The greatest number of arguments, or None if there is none."""
        return None if self.parameters[-1].repeated else len(self.parameters)

    def parameter(self, position: int) -> Parameter:
        """The parameter that the argument at this position is for."""
        return self.parameters[min(position, len(self.parameters) - 1)]

    def result_type(self, types: tuple[pa.DataType, ...]) -> pa.DataType:
        """The type of the result for arguments of these types."""
        return self.result(types)

    def __call__(self, *arguments: Value) -> Value:
        types = tuple(argument.type for argument in arguments)
        result = self.result_type(types)
        given: tuple[Any, ...] = arguments
        value: Value
        if self.alike:
            given = tuple(convert(argument, result) for argument in arguments)
            if kind_of(result) is Kind.NULL:
                value = given[0]
                return value
        elif any(kind_of(of) is Kind.NULL or _is_null_scalar(item) for of, item in zip(types, arguments, strict=True)):
            value = pa.scalar(None, result)
            return value
        value = convert(self.compute(*given), result)
        return value


def _is_null_scalar(value: Value) -> bool:
    return isinstance(value, pa.Scalar) and not value.is_valid


# --- what the result is


def _always(data_type: pa.DataType) -> Callable[[tuple[pa.DataType, ...]], pa.DataType]:
    return lambda types: data_type


def _first(types: tuple[pa.DataType, ...]) -> pa.DataType:
    return types[0]


def _second(types: tuple[pa.DataType, ...]) -> pa.DataType:
    return types[1]


def _common(types: tuple[pa.DataType, ...]) -> pa.DataType:
    common = common_type(types)
    if common is None:
        raise TypeError(f"arguments of different kinds: {', '.join(map(str, types))}; check the expression first")
    return common


_BOOLEAN_RESULT = _always(pa.bool_())
_INTEGER_RESULT = _always(pa.int64())
_FLOAT_RESULT = _always(pa.float64())


# --- numbers


def _round(x: Any, digits: Any = None) -> Any:
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
    rounded = _round_half_away(arrow.if_else(exact, 0.0, x), min(places, 300))
    return arrow.if_else(exact, x, rounded)


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


def _keep_integers(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: x if pa.types.is_integer(x.type) else kernel(x)


def _on_floats(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel on float64, null where it has no answer."""
    return lambda *arguments: nan_to_null(kernel(*(convert(argument, pa.float64()) for argument in arguments)))


def _ln(x: Any) -> Any:
    return arrow.ln(arrow.if_else(arrow.greater(x, 0.0), x, pa.scalar(None, pa.float64())))


# --- text


def _substr(text: Any, start: Any, count: Any = None) -> Any:
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


def _concat(*texts: Any) -> Any:
    target = _common(tuple(text.type for text in texts))
    return arrow.binary_join_element_wise(*(convert(text, target) for text in texts), convert(pa.scalar(""), target))


def _replace(text: Any, search: Any, replacement: Any) -> Any:
    if not search.as_py():
        # Arrow would look for an empty text forever.
        return text
    return arrow.replace_substring(text, pattern=search.as_py(), replacement=replacement.as_py())


def _with_pattern(kernel: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda text, pattern: kernel(text, pattern=pattern.as_py())


# --- any kind


def _nullif(x: Any, y: Any) -> Any:
    same = arrow.fill_null(arrow.equal(x, y), False)
    return arrow.if_else(same, pa.scalar(None, x.type), x)


def _extreme(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        of = values[0].type
        if kind_of(of) is not Kind.TIMESTAMP:
            return kernel(*values, skip_nulls=True)
        # Arrow has no such kernel for times with a zone.
        return kernel(*(value.cast(pa.int64()) for value in values), skip_nulls=True).cast(of)

    return extreme


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


def _part(kernel: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    return lambda moment: kernel(_local(moment), **options)


def _date_trunc(unit: Any, moment: Any) -> Any:
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


def _in_seconds(time: Any) -> Any:
    ticks = convert(time.cast(pa.int64()), pa.float64())
    return arrow.divide(ticks, NANOSECONDS_PER_UNIT["s"] / NANOSECONDS_PER_UNIT[unit_of(time.type)])


# --- the table

_X = Parameter("x", _NUMBER)
_STRING = Parameter("text", _TEXT)
_MOMENT = Parameter("time", _TIMESTAMP)
_CHOICES = Parameter("x", PLAIN), Parameter("y", PLAIN, optional=True, repeated=True)
_RANKED = Parameter("x", ORDERED), Parameter("y", ORDERED, optional=True, repeated=True)


def _pattern_parameter(name: str) -> Parameter:
    return Parameter(name, _TEXT, constant=True)


_TABLE = (
    Function("abs", (_X,), _first, arrow.abs_checked, "the distance from zero", "abs(-3) = 3"),
    Function("sign", (_X,), _first, arrow.sign, "-1, 0 or 1", "sign(-2.5) = -1.0"),
    Function(
        "round",
        (_X, Parameter("digits", _INTEGER, optional=True, constant=True)),
        _first,
        _round,
        "rounded to so many digits after the point, halves away from zero; negative digits round tens, hundreds, ...",
        "round(2.675, 2) = 2.68",
    ),
    Function("floor", (_X,), _first, _keep_integers(arrow.floor), "the next whole number below", "floor(-1.5) = -2"),
    Function("ceil", (_X,), _first, _keep_integers(arrow.ceil), "the next whole number above", "ceil(1.2) = 2"),
    Function("sqrt", (_X,), _FLOAT_RESULT, _on_floats(arrow.sqrt), "the square root; null below 0", "sqrt(9) = 3"),
    Function(
        "power",
        (_X, Parameter("exponent", _NUMBER)),
        _FLOAT_RESULT,
        _on_floats(arrow.power),
        "x to the power of the exponent, as a float; null where that is no real number",
        "power(2, 10) = 1024",
    ),
    Function("ln", (_X,), _FLOAT_RESULT, _on_floats(_ln), "the natural logarithm; null from 0 down", "ln(1) = 0"),
    Function("exp", (_X,), _FLOAT_RESULT, _on_floats(arrow.exp), "e to the power of x", "exp(0) = 1"),
    Function("lower", (_STRING,), _first, arrow.utf8_lower, "in lower case", "lower('ÄB') = 'äb'"),
    Function("upper", (_STRING,), _first, arrow.utf8_upper, "in upper case", "upper('äb') = 'ÄB'"),
    Function(
        "trim",
        (_STRING,),
        _first,
        lambda text: arrow.utf8_trim(text, characters=" "),
        "without the spaces at both ends",
        "trim('  a b ') = 'a b'",
    ),
    Function("length", (_STRING,), _INTEGER_RESULT, arrow.utf8_length, "characters in a text", "length('äb') = 2"),
    Function(
        "substr",
        (
            _STRING,
            Parameter("start", _INTEGER, constant=True),
            Parameter("count", _INTEGER, optional=True, constant=True),
        ),
        _first,
        _substr,
        "the characters from start (the first is 1; negative counts from the end), at most count of them",
        "substr('event', -3, 2) = 'en'",
    ),
    Function(
        "concat",
        (_STRING, Parameter("more", _TEXT, optional=True, repeated=True)),
        _common,
        _concat,
        "the texts one after the other; null if one of them is",
        "concat('a', 'b', 'c') = 'abc'",
    ),
    Function(
        "replace",
        (_STRING, _pattern_parameter("search"), _pattern_parameter("replacement")),
        _first,
        _replace,
        "the text with every occurrence of search replaced",
        "replace('a-b-c', '-', '+') = 'a+b+c'",
    ),
    Function(
        "starts_with",
        (_STRING, _pattern_parameter("prefix")),
        _BOOLEAN_RESULT,
        _with_pattern(arrow.starts_with),
        "whether the text starts with the prefix",
        "starts_with('ensue', 'en')",
    ),
    Function(
        "ends_with",
        (_STRING, _pattern_parameter("suffix")),
        _BOOLEAN_RESULT,
        _with_pattern(arrow.ends_with),
        "whether the text ends with the suffix",
        "ends_with('ensue', 'sue')",
    ),
    Function(
        "contains",
        (_STRING, _pattern_parameter("search")),
        _BOOLEAN_RESULT,
        _with_pattern(arrow.match_substring),
        "whether the text has search in it",
        "contains('ensue', 'ns')",
    ),
    Function(
        "coalesce",
        _CHOICES,
        _common,
        arrow.coalesce,
        "the first argument that is not null",
        "coalesce(NULL, 2, 3) = 2",
        alike=True,
    ),
    Function(
        "nullif",
        (Parameter("x", PLAIN), Parameter("y", PLAIN)),
        _common,
        _nullif,
        "null if both are equal, x otherwise",
        "nullif('?', '?') IS NULL",
        alike=True,
    ),
    Function(
        "least",
        _RANKED,
        _common,
        _extreme(arrow.min_element_wise),
        "the smallest argument, nulls left out",
        "least(3, NULL, 2) = 2",
        alike=True,
    ),
    Function(
        "greatest",
        _RANKED,
        _common,
        _extreme(arrow.max_element_wise),
        "the greatest argument, nulls left out",
        "greatest(3, NULL, 2) = 3",
        alike=True,
    ),
    *(
        Function(name, (_MOMENT,), _INTEGER_RESULT, _part(kernel, **options), description, example)
        for name, kernel, options, description, example in (
            ("year", arrow.year, {}, "the year", "year(TIMESTAMP '2024-02-29') = 2024"),
            ("quarter", arrow.quarter, {}, "the quarter of the year, 1 to 4", "quarter(TIMESTAMP '2024-02-29') = 1"),
            ("month", arrow.month, {}, "the month, 1 to 12", "month(TIMESTAMP '2024-02-29') = 2"),
            ("day", arrow.day, {}, "the day of the month, 1 to 31", "day(TIMESTAMP '2024-02-29') = 29"),
            (
                "day_of_week",
                arrow.day_of_week,
                {"count_from_zero": False, "week_start": 1},
                "the day of the week, 1 (Monday) to 7 (Sunday)",
                "day_of_week(TIMESTAMP '2024-02-29') = 4",
            ),
            (
                "day_of_year",
                arrow.day_of_year,
                {},
                "the day of the year, 1 to 366",
                "day_of_year(TIMESTAMP '2024-02-29') = 60",
            ),
            ("hour", arrow.hour, {}, "the hour, 0 to 23", "hour(TIMESTAMP '2024-02-29 12:34:56') = 12"),
            ("minute", arrow.minute, {}, "the minute, 0 to 59", "minute(TIMESTAMP '2024-02-29 12:34:56') = 34"),
            ("second", arrow.second, {}, "the whole second, 0 to 59", "second(TIMESTAMP '2024-02-29 12:34:56') = 56"),
        )
    ),
    Function(
        "date_trunc",
        (Parameter("unit", _TEXT, constant=True, choices=TRUNCATION_UNITS), _MOMENT),
        _second,
        _date_trunc,
        "the time cut down to the start of its year, quarter, month, week (Monday), day, hour, minute or second",
        "date_trunc('hour', TIMESTAMP '2024-02-29 12:34:56') = TIMESTAMP '2024-02-29 12:00:00'",
    ),
    Function(
        "seconds",
        (Parameter("duration", _DURATION),),
        _FLOAT_RESULT,
        _in_seconds,
        "the length of a duration in seconds",
        "seconds(1.5 minutes) = 90",
    ),
    Function(
        "epoch",
        (_MOMENT,),
        _FLOAT_RESULT,
        _in_seconds,
        "the seconds since 1970-01-01 00:00:00 UTC",
        "epoch(TIMESTAMP '1970-01-01 00:01:00') = 60",
    ),
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType({function.name: function for function in _TABLE})
