"""CAST and `to_timestamp` on Arrow arrays: the converted values, and the values that cannot be converted.

The rules are those of Spark with ANSI mode. Floats and decimals become text, and values become decimals, once for each
different value; nothing else loops.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ensue.errors import SchemaError
from ensue.expr import types
from ensue.expr.kinds import LARGEST_INTEGER, MOST_DIGITS, SMALLEST_INTEGER, Kind, decimal_size
from ensue.expr.notations import ISO_DATE, ISO_MOMENT, MONTHS

Converted: TypeAlias = "tuple[Any, Any]"
"""The values, null where a value cannot be converted; and the numpy mask of those values."""

_RANGES = {"INT": (-(2**31), 2**31 - 1), "BIGINT": (SMALLEST_INTEGER, LARGEST_INTEGER)}
_BLANKS = " \t\n\x0b\f\r"
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_WIDE = Context(prec=2 * MOST_DIGITS + 1)


def converted(values: types.Array, target: str, sizes: tuple[int, ...] = ()) -> Converted:
    """Converts an array to the type of a CAST. Dates are converted from dates, and a DATE is a date."""
    kind = types.kind_of(values.type)
    match target, kind:
        case "STRING", _:
            return _text(values, kind), _nothing(values)
        case "BIGINT" | "INT", Kind.TEXT:
            return _checked(values, _integers_of_text(values, *_RANGES[target]))
        case "BIGINT" | "INT", Kind.FLOAT:
            return _checked(values, _integers_of_numbers(values, *_RANGES[target]))
        case "BIGINT" | "INT", _:
            whole = values.cast(pa.int64())
            low, high = _RANGES[target]
            inside = types.arrow.and_(types.arrow.greater_equal(whole, low), types.arrow.less_equal(whole, high))
            return _checked(values, _only_where(inside, whole))
        case "DOUBLE", Kind.TEXT:
            return _checked(values, _floats_of_text(values))
        case "DOUBLE", Kind.BOOLEAN:
            return values.cast(pa.int8()).cast(pa.float64()), _nothing(values)
        case "DOUBLE", _:
            return types.convert(values, pa.float64()), _nothing(values)
        case "BOOLEAN", Kind.TEXT:
            return _checked(values, _booleans_of_text(values))
        case "BOOLEAN", Kind.BOOLEAN:
            return values, _nothing(values)
        case "BOOLEAN", _:
            return types.arrow.not_equal(types.convert(values, pa.float64()), 0.0), _nothing(values)
        case "DECIMAL", _:
            return _checked(values, _decimals(values, sizes))
        case "TIMESTAMP", Kind.TEXT:
            return moments(values, ISO_MOMENT)
        case "TIMESTAMP", _:
            return types.without_dates(values), _nothing(values)
        case "DATE", Kind.TEXT:
            found, failed = moments(values, ISO_DATE)
            return found.cast(pa.date32()), failed
        case "DATE", _:
            return _dates(values), _nothing(values)
    return values, _nothing(values)


def _nothing(values: Any) -> Any:
    return np.zeros(len(values), bool)


def _checked(values: Any, found: Any) -> Converted:
    failed = types.arrow.and_(values.is_valid(), found.is_null())
    return found, failed.to_numpy(zero_copy_only=False)


def _only_where(condition: Any, values: Any) -> Any:
    return types.arrow.if_else(types.arrow.fill_null(condition, False), values, pa.scalar(None, values.type))


def _matching(texts: Any, pattern: str) -> Any:
    """The texts without blanks at both ends; null where they do not have the form of the pattern."""
    trimmed = types.arrow.utf8_trim(texts, characters=_BLANKS)
    return _only_where(types.arrow.match_substring_regex(trimmed, pattern=rf"\A(?:{pattern})\z"), trimmed)


# --- numbers and booleans


def _integers_of_text(texts: Any, low: int, high: int) -> Any:
    found = _matching(texts, "[+-]?[0-9]+")
    plain = types.arrow.replace_substring_regex(found, pattern=r"\A\+?(-?)0*([0-9])", replacement=r"\1\2")
    digits = types.arrow.replace_substring(plain, pattern="-", replacement="")
    is_negative = types.arrow.starts_with(plain, pattern="-")
    limit = types.arrow.if_else(is_negative, str(-low), str(high)).cast(digits.type)
    shorter = types.arrow.less(types.arrow.utf8_length(digits), types.arrow.utf8_length(limit))
    as_long = types.arrow.equal(types.arrow.utf8_length(digits), types.arrow.utf8_length(limit))
    fits = types.arrow.or_(shorter, types.arrow.and_(as_long, types.arrow.less_equal(digits, limit)))
    return _only_where(fits, plain).cast(pa.int64())


def _integers_of_numbers(values: Any, low: int, high: int) -> Any:
    """Numbers without their decimal places."""
    if pa.types.is_decimal(values.type):
        whole = types.arrow.trunc(values).cast(pa.decimal256(76, 0), safe=False)
        least, most = (pa.scalar(bound).cast(pa.decimal256(76, 0)) for bound in (low, high))
    else:
        whole = types.arrow.trunc(values)
        # The largest integer becomes 2**63, which is outside.
        least = pa.scalar(float(low))
        most = pa.scalar(np.nextafter(float(high), 0.0) if high > 2**53 else float(high))
    inside = types.arrow.and_(types.arrow.greater_equal(whole, least), types.arrow.less_equal(whole, most))
    return _only_where(inside, whole).cast(pa.int64())


def _floats_of_text(texts: Any) -> Any:
    found = _matching(texts, _NUMBER)
    plain = types.arrow.replace_substring_regex(found, pattern=r"\A\+", replacement="")
    numbers = plain.cast(pa.float64())
    return _only_where(types.arrow.is_finite(numbers), numbers)


_TRUE, _FALSE = ["t", "true", "y", "yes", "1"], ["f", "false", "n", "no", "0"]


def _booleans_of_text(texts: Any) -> Any:
    words = types.arrow.utf8_lower(types.arrow.utf8_trim(texts, characters=_BLANKS))
    is_true = types.arrow.is_in(words, value_set=pa.array(_TRUE, words.type))
    is_false = types.arrow.is_in(words, value_set=pa.array(_FALSE, words.type))
    return _only_where(types.arrow.or_(is_true, is_false), is_true)


def _decimals(values: Any, sizes: tuple[int, ...]) -> Any:
    """Decimals of the given digits and places, halves rounded away from zero; null where the digits do not fit."""
    size = decimal_size(sizes)
    assert size is not None, "the checker has refused other sizes"
    digits, places = size
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())

    def decimal(value: Any) -> Decimal | None:
        return _decimal(value, digits, places)

    if types.kind_of(values.type) is Kind.TEXT:
        values = _matching(values, _NUMBER)
    return _once_each(values, decimal, pa.decimal128(digits, places))


def _decimal(value: Any, digits: int, places: int) -> Decimal | None:
    # The text of a float is the number that is meant: 1.005 becomes 1.01.
    try:
        exact = Decimal(repr(value) if isinstance(value, float) else value)
    except (ArithmeticError, TypeError):
        return None
    if not exact.is_finite() or exact.adjusted() >= MOST_DIGITS:
        return None
    rounded = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _WIDE)
    return rounded if rounded.is_zero() or rounded.adjusted() < digits - places else None


# --- text


def _text(values: Any, kind: Kind) -> Any:
    if kind is Kind.TEXT:
        return values
    if pa.types.is_date(values.type):
        return types.arrow.strftime(values, format="%Y-%m-%d")
    if kind is Kind.TIMESTAMP:
        written = types.arrow.strftime(local_time(values), format="%Y-%m-%d %H:%M:%S")
        return types.arrow.replace_substring_regex(written, pattern=r"\.0*\z|(\.[0-9]*[1-9])0+\z", replacement=r"\1")
    if pa.types.is_floating(values.type):
        return _once_each(types.convert(values, pa.float64()), float_text, pa.string())
    if pa.types.is_decimal(values.type):
        return _once_each(values, lambda value: format(value, "f"), pa.string())
    return values.cast(pa.string())


def _once_each(values: Any, function: Callable[[Any], Any], result: pa.DataType) -> Any:
    """Applies a function of Python to each different value."""
    encoded = values.dictionary_encode()
    return pa.array(map(function, encoded.dictionary.to_pylist()), result).take(encoded.indices)


def float_text(number: float) -> str:
    """A float as text, as in Java and Spark: the fewest digits that identify it, with an exponent if it is long.

    >>> float_text(1.0), float_text(0.5), float_text(1e7), float_text(-1.25e-5)
    ('1.0', '0.5', '1.0E7', '-1.25E-5')
    """
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return np.format_float_positional(number, unique=True, trim="0")
    digits, _, exponent = np.format_float_scientific(number, unique=True, trim="0").partition("e")
    return f"{digits}E{int(exponent)}"


# --- timestamps


def local_time(moment: Any) -> Any:
    """The local time of a timestamp in its time zone, without the time zone."""
    zone = moment.type.tz
    if zone is None:
        return moment
    if zone == "UTC":
        return moment.cast(pa.timestamp(moment.type.unit))
    try:
        return types.arrow.local_timestamp(moment)
    except pa.ArrowInvalid as unknown:
        raise SchemaError(
            "unknown-time-zone",
            f"unknown time zone `{zone}` in the type of a column",
            "cast the column to a known time zone before the run, for example pa.timestamp('us', 'UTC')",
        ) from unknown


def _dates(values: Any) -> Any:
    """The local dates of timestamps."""
    if pa.types.is_date(values.type):
        return values.cast(pa.date32())
    return types.arrow.floor_temporal(local_time(values), unit="day").cast(pa.date32())


def moments(texts: types.Array, pattern: str) -> Converted:
    """Reads texts that match the pattern, whose groups are the parts of a timestamp."""
    trimmed = types.arrow.utf8_trim(texts, characters=_BLANKS)
    parts = types.arrow.extract_regex(trimmed, pattern=rf"\A(?:{pattern})\z")
    matched = parts.is_valid().to_numpy(zero_copy_only=False)
    given = {field.name: parts.field(place) for place, field in enumerate(parts.type)}

    def number(name: str, default: int) -> Any:
        if name not in given:
            return np.full(len(texts), default)
        filled = types.arrow.if_else(types.arrow.equal(given[name], ""), str(default), given[name])
        return types.arrow.fill_null(filled, str(default)).cast(pa.int64()).to_numpy()

    year, day, minute, second = number("year", 1970), number("day", 1), number("minute", 0), number("second", 0)
    month = _month_numbers(given["month_name"]) if "month_name" in given else number("month", 1)
    hour = number("hour", 0)
    fits = matched
    if "half_hour" in given:
        half = number("half_hour", 12)
        fits = fits & (half >= 1) & (half <= 12)
        hour = half % 12 + (12 * _is(given["half"], "PM") if "half" in given else 0)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    days = np.where(
        (month == 2) & leap, 29, np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[_clip(month)]
    )
    fits = fits & (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= days)
    fits &= (hour <= 23) & (minute <= 59) & (second <= 59)
    offset, offset_fits = _offsets(given["offset"]) if "offset" in given else (0, True)
    fits &= offset_fits
    seconds = _days(year, _clip(month), day) * 86_400 + hour * 3_600 + minute * 60 + second - offset
    ticks = seconds * 1_000_000 + (_microseconds(given["fraction"]) if "fraction" in given else 0)
    found: Any = pa.array(ticks, mask=~fits).cast(pa.timestamp("us"))
    return found, texts.is_valid().to_numpy(zero_copy_only=False) & ~fits


def _clip(month: Any) -> Any:
    return np.clip(month, 1, 12)


def _is(texts: Any, word: str) -> Any:
    return types.arrow.fill_null(types.arrow.equal(types.arrow.utf8_upper(texts), word), False).to_numpy(
        zero_copy_only=False
    )


def _month_numbers(names: Any) -> Any:
    places = types.arrow.index_in(types.arrow.utf8_capitalize(names), value_set=pa.array(MONTHS, names.type))
    return types.arrow.fill_null(places, 0).to_numpy(zero_copy_only=False).astype(np.int64) + 1


def _microseconds(fraction: Any) -> Any:
    """The first six digits of a fraction of a second."""
    digits = types.arrow.utf8_slice_codeunits(types.arrow.utf8_rpad(fraction, width=6, padding="0"), 0, 6)
    return types.arrow.fill_null(digits, "0").cast(pa.int64()).to_numpy()


def _offsets(offset: Any) -> tuple[Any, Any]:
    """The seconds of `Z`, `+02`, `+0200` and `+02:00`, and whether they are at most 18 hours."""
    plain = types.arrow.replace_substring(types.arrow.fill_null(offset, ""), pattern=":", replacement="")
    plain = types.arrow.if_else(types.arrow.is_in(plain, value_set=pa.array(["Z", ""], plain.type)), "+0000", plain)
    digits = types.arrow.utf8_rpad(types.arrow.utf8_slice_codeunits(plain, 1), width=4, padding="0")
    number = digits.cast(pa.int64()).to_numpy()
    hours, minutes = number // 100, number % 100
    sign = np.where(types.arrow.starts_with(plain, pattern="-").to_numpy(zero_copy_only=False), -1, 1)
    return sign * (hours * 3_600 + minutes * 60), (minutes <= 59) & (hours * 60 + minutes <= 18 * 60)


def _days(year: Any, month: Any, day: Any) -> Any:
    """The days since 1970-01-01 of a date of the Gregorian calendar, in years that begin in March."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
