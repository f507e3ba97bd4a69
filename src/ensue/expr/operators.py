"""Comparison, arithmetic and LIKE on Arrow values, with the null semantics of SQL.

The operands have passed the checker. A result that does not fit in 64 bits raises ArrowInvalid, which `overflow` turns
into a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.errors import Problem, QueryError, Span
from ensue.expr.kinds import LARGEST_INTEGER, NANOSECONDS_PER_UNIT, NUMBERS, SMALLEST_INTEGER, TIMES, Kind
from ensue.expr.types import (
    arithmetic_type,
    arrow,
    as_float,
    common_type,
    convert,
    kind_of,
    nan_to_null,
    unit_of,
    without_dates,
)

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "=": arrow.equal,
        "!=": arrow.not_equal,
        "<": arrow.less,
        "<=": arrow.less_equal,
        ">": arrow.greater,
        ">=": arrow.greater_equal,
    }
)
_MIRRORED = MappingProxyType({"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="})
_EXACT: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {"+": arrow.add_checked, "-": arrow.subtract_checked, "*": arrow.multiply_checked}
)
_DIGITS = 76
"""The digits of the widest decimal."""
_EXACT_FLOATS = 2**53
"""Integers up to this equal their float64."""
UNKNOWN: Any = pa.scalar(None, pa.bool_())
"""The boolean null of SQL: neither true nor false."""
NULL: Any = pa.scalar(None, pa.null())
"""The untyped null."""


def inverted_if(negated: bool, value: Any) -> Any:
    """Negates the truth value if `negated`; unknown stays unknown."""
    return arrow.invert(value) if negated else value


@contextmanager
def overflow(operator: str, span: Span | None) -> Iterator[None]:
    """Turns an overflow error of an Arrow kernel into a problem at the operator."""
    try:
        yield
    except pa.ArrowInvalid as failure:
        raise QueryError([_overflow_problem(operator, span, str(failure))]) from failure


def _overflow_problem(operator: str, span: Span | None, detail: str) -> Problem:
    if "timestamp" in detail:
        return Problem(
            "overflow",
            f"a timestamp in `{operator}` does not fit in the finer time unit of the two sides",
            span,
            "nanoseconds cover the years 1677 to 2262",
            "convert the column with the finer unit to a coarser one before the run, for example pa.timestamp('us')",
        )
    return Problem(
        "overflow",
        f"the result of `{operator}` does not fit in a 64-bit integer",
        span,
        f"outside {SMALLEST_INTEGER} to {LARGEST_INTEGER}",
        "multiply an operand by 1.0 to compute with floats, or guard it with CASE WHEN",
    )


# --- comparison


def compared(operator: str, left: Any, right: Any) -> Any:
    """`left <operator> right` for two values of one kind; null if either is null."""
    kinds = (kind_of(left.type), kind_of(right.type))
    if Kind.NULL in kinds:
        return UNKNOWN
    if kinds[0] in TIMES:
        return _compared_times(operator, without_dates(left), without_dates(right))
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        return _COMPARE[operator](*decimals(left, right))
    if kinds == (Kind.INTEGER, Kind.FLOAT):
        return _compared_numbers(operator, left, right)
    if kinds == (Kind.FLOAT, Kind.INTEGER):
        return _compared_numbers(_MIRRORED[operator], right, left)
    common = common_type((left.type, right.type))
    if common is None:
        raise TypeError(f"{left.type} {operator} {right.type}; check the expression first")
    return _COMPARE[operator](convert(left, common), convert(right, common))


def decimals(left: Any, right: Any) -> tuple[Any, Any]:
    """A decimal and a number with a common type: exact with decimals and integers, floats with floats."""
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return as_float(left), as_float(right)
    scale = max(value.type.scale for value in (left, right) if pa.types.is_decimal(value.type))
    wide = pa.decimal256(_DIGITS, scale)
    return left.cast(wide), right.cast(wide)


def _compared_numbers(operator: str, whole: Any, number: Any) -> Any:
    """`whole <operator> number` for an integer and a float, exactly.

    `i < f` iff `i < ceil(f)`, `i > f` iff `i > floor(f)`, and likewise for `>=` and `<=`. A float with a fraction
    or beyond all integers equals none.
    """
    extremes = arrow.min_max(whole) if isinstance(whole, pa.Array) else {"min": whole, "max": whole}
    if all(not value.is_valid or abs(value.as_py()) <= _EXACT_FLOATS for value in (extremes["min"], extremes["max"])):
        return _COMPARE[operator](convert(whole, pa.float64()), number)
    bound = arrow.ceil(number) if operator in ("<", ">=") else arrow.floor(number)
    beyond = arrow.or_(arrow.greater_equal(bound, 2.0**63), arrow.less(bound, -(2.0**63)))
    inside = arrow.if_else(beyond, 0.0, bound).cast(pa.int64())
    if operator in ("=", "!="):
        equal = arrow.and_(arrow.equal(whole, inside), arrow.and_(arrow.equal(bound, number), arrow.invert(beyond)))
        return inverted_if(operator == "!=", equal)
    # Every integer is on the same side of a float beyond them.
    outside = arrow.if_else(arrow.is_valid(whole), _COMPARE[operator](pa.scalar(0.0), bound), UNKNOWN)
    return arrow.if_else(beyond, outside, _COMPARE[operator](whole, inside))


def _compared_times(operator: str, left: Any, right: Any) -> Any:
    """Compares times of any two units exactly, without a cast that could overflow or lose digits."""
    scales = [NANOSECONDS_PER_UNIT[unit_of(value.type)] for value in (left, right)]
    ticks = left.cast(pa.int64()), right.cast(pa.int64())
    if scales[0] == scales[1]:
        return _COMPARE[operator](*ticks)
    if scales[0] > scales[1]:
        return _compared_scaled(operator, ticks[0], ticks[1], scales[0] // scales[1])
    return _compared_scaled(_MIRRORED[operator], ticks[1], ticks[0], scales[1] // scales[0])


def _compared_scaled(operator: str, coarse: Any, fine: Any, scale: int) -> Any:
    """`coarse * scale <operator> fine`; if that overflows, computed in the unit of `coarse`.

    `c * k < f` iff `c < ceil(f / k)`, and `c * k <= f` iff `c <= floor(f / k)`; likewise for `>=` and `>`.
    """
    try:
        return _COMPARE[operator](arrow.multiply_checked(coarse, scale), fine)
    except pa.ArrowInvalid:
        return _compared_divided(operator, coarse, fine, scale)


def _compared_divided(operator: str, coarse: Any, fine: Any, scale: int) -> Any:
    quotient = arrow.divide(fine, scale)
    whole = arrow.multiply(quotient, scale)
    if operator in ("=", "!="):
        equal = arrow.and_(arrow.equal(coarse, quotient), arrow.equal(whole, fine))
        return inverted_if(operator == "!=", equal)
    if operator in ("<", ">="):
        bound = arrow.add(quotient, arrow.less(whole, fine).cast(pa.int64()))
    else:
        bound = arrow.subtract(quotient, arrow.greater(whole, fine).cast(pa.int64()))
    return _COMPARE[operator](coarse, bound)


# --- arithmetic


def computed(operator: str, left: Any, right: Any) -> Any:
    """`left <operator> right` for arithmetic and `||`; null if either is null, and for a division by zero."""
    result = arithmetic_type(operator, left.type, right.type)
    if result is None:
        raise TypeError(f"{left.type} {operator} {right.type}; check the expression first")
    kinds = (kind_of(left.type), kind_of(right.type))
    if Kind.NULL in kinds:
        return NULL
    if kinds[0] is Kind.TEXT:
        return arrow.binary_join_element_wise(
            convert(left, result), convert(right, result), convert(pa.scalar(""), result)
        )
    if NUMBERS.issuperset(kinds):
        return _computed_numbers(operator, convert(left, result), convert(right, result))
    if operator == "/" and kinds == (Kind.DURATION, Kind.DURATION):
        return _computed_numbers("/", _nanoseconds(left), _nanoseconds(right))
    if operator in ("*", "/"):
        return _scaled_duration(operator, left, right, result)
    unit = unit_of(result)
    return _EXACT[operator](_ticks(left, unit), _ticks(right, unit)).cast(result)


def _computed_numbers(operator: str, left: Any, right: Any) -> Any:
    """Arithmetic on two sides of the same type; `/` is only called with floats."""
    whole = pa.types.is_integer(left.type)
    if operator == "%":
        return _integer_remainder(left, right) if whole else _float_remainder(left, right)
    if operator == "/":
        return nan_to_null(arrow.divide(left, _null_if_zero(right)))
    value = _EXACT[operator](left, right)
    return value if whole else nan_to_null(value)


def _null_if_zero(value: Any) -> Any:
    zero = arrow.equal(value, pa.scalar(0, value.type))
    return arrow.if_else(zero, pa.scalar(None, value.type), value)


def _integer_remainder(left: Any, right: Any) -> Any:
    """The remainder of truncating division; it has the sign of `left`."""
    # Anything modulo -1 is 0, as modulo 1; but the quotient of the smallest integer and -1 would overflow.
    divisor = arrow.if_else(arrow.equal(right, -1), 1, _null_if_zero(right))
    return arrow.subtract(left, arrow.multiply(arrow.divide(left, divisor), divisor))


def _float_remainder(left: Any, right: Any) -> Any:
    with np.errstate(invalid="ignore"):
        remainder = np.fmod(_numbers(left), _numbers(right))
    # Null travels as NaN, and a division by zero gives NaN.
    if np.ndim(remainder) == 0:
        return nan_to_null(pa.scalar(float(remainder)))
    return pa.array(remainder, from_pandas=True)


def _numbers(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        return np.float64(value.as_py() if value.is_valid else np.nan)
    return value.to_numpy(zero_copy_only=False)


def negative(value: Any) -> Any:
    """`-value` of a number or a duration."""
    kind = kind_of(value.type)
    if kind is Kind.NULL:
        return value
    if kind is Kind.DURATION:
        return arrow.negate_checked(value.cast(pa.int64())).cast(value.type)
    return arrow.negate_checked(value)


# --- times


def _ticks(time: Any, unit: Any) -> Any:
    """A time as an integer in this unit, or ArrowInvalid; a timestamp with a time zone is converted to UTC."""
    target = pa.duration(unit) if pa.types.is_duration(time.type) else pa.timestamp(unit, time.type.tz)
    return convert(time, target).cast(pa.int64())


def _nanoseconds(duration: Any) -> Any:
    """The length of a duration in nanoseconds as a float, which cannot overflow."""
    ticks = convert(duration.cast(pa.int64()), pa.float64())
    return arrow.multiply(ticks, float(NANOSECONDS_PER_UNIT[unit_of(duration.type)]))


def _scaled_duration(operator: str, left: Any, right: Any, result: pa.DataType) -> Any:
    duration, factor = (left, right) if kind_of(left.type) is Kind.DURATION else (right, left)
    ticks = convert(duration, result).cast(pa.int64())
    if operator == "*" and kind_of(factor.type) is Kind.INTEGER:
        return arrow.multiply_checked(ticks, factor).cast(result)
    scaled = _computed_numbers(operator, convert(ticks, pa.float64()), convert(factor, pa.float64()))
    return arrow.round(scaled, ndigits=0, round_mode="half_towards_infinity").cast(pa.int64()).cast(result)


# --- LIKE: `%` is any text, `_` any character, a backslash escapes the next character

_WILDCARDS = MappingProxyType({"%": ".*", "_": "."})


def is_like(text: Any, pattern: str, ignores_case: bool = False) -> Any:
    """SQL's LIKE. Common patterns use simple text kernels; the others become a regular expression that also matches
    line breaks. ILIKE compares both sides in lower case."""
    if kind_of(text.type) is Kind.NULL:
        return UNKNOWN
    if ignores_case:
        text, pattern = arrow.utf8_lower(text), arrow.utf8_lower(pa.scalar(pattern)).as_py()
    parts = like_parts(pattern)
    shape = "".join(part if part in _WILDCARDS else "." for part, _ in parts)
    words = "".join(word for _, word in parts)
    match shape:
        case "" | ".":
            return arrow.equal(text, convert(pa.scalar(words), text.type))
        case ".%":
            return arrow.starts_with(text, pattern=words)
        case "%.":
            return arrow.ends_with(text, pattern=words)
        case "%.%":
            return arrow.match_substring(text, pattern=words)
        case "%":
            return arrow.match_substring(text, pattern="")
    expression = "".join(_WILDCARDS.get(part) or _quoted(word) for part, word in parts)
    return arrow.match_substring_regex(text, pattern=rf"(?s)\A{expression}\z")


def like_parts(pattern: str) -> list[tuple[str, str]]:
    r"""Splits a LIKE pattern into ("%", ""), ("_", "") and ("text", word) in order.

    >>> like_parts(r"a\%b_%")
    [('text', 'a%b'), ('_', ''), ('%', '')]
    """
    parts: list[tuple[str, str]] = []
    characters = iter(pattern)
    for character in characters:
        if character in _WILDCARDS:
            if not (character == "%" and parts and parts[-1][0] == "%"):
                parts.append((character, ""))
            continue
        plain = next(characters, "\\") if character == "\\" else character
        if parts and parts[-1][0] == "text":
            plain = parts.pop()[1] + plain
        parts.append(("text", plain))
    return parts


def _quoted(word: str) -> str:
    # RE2 takes no backslash before letters of other scripts, and none are special there.
    return "".join(
        character if character.isalnum() or ord(character) > 127 else rf"\x{{{ord(character):x}}}" for character in word
    )
