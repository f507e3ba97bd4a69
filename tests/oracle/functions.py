"""The functions of expressions, in plain Python: one value after the other. Times are nanoseconds since 1970 in UTC."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CastError(ValueError):
    """A value that CAST cannot convert."""


# --- numbers


def rounded(x: float, digits: int = 0) -> float:
    scaled = Decimal(repr(x)) if isinstance(x, float) else Decimal(x)
    unit = Decimal(1).scaleb(-digits)
    found = (abs(scaled) / unit + Decimal("0.5")).to_integral_value(rounding="ROUND_FLOOR") * unit
    return type(x)(found if scaled >= 0 else -found)


def sign(x: float) -> float:
    return type(x)((x > 0) - (x < 0))


def root(x: float) -> float | None:
    return None if x < 0 else math.sqrt(x)


def power(x: float, exponent: float) -> float | None:
    found = float(x) ** float(exponent)
    return None if isinstance(found, complex) else found


# --- text


def substr(text: str, start: int, count: int | None = None) -> str:
    begin = start - 1 if start > 0 else start + len(text) if start < 0 else 0
    end = len(text) if count is None else begin + max(count, 0)
    return text[max(begin, 0) : max(end, 0)]


def split(text: str, pattern: str, limit: int = 0) -> tuple[str, ...]:
    parts, place = [], 0
    for found in re.finditer(pattern, text):
        if 0 < limit <= len(parts) + 1:
            break
        parts.append(text[place : found.start()])
        place = found.end()
    return (*parts, text[place:])


def regexp_extract(text: str, pattern: str, group: int = 1) -> str:
    found = re.search(pattern, text)
    return "" if found is None else found[group] or ""


def json_value(text: str, path: str) -> str | None:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        value = json.loads(text, parse_int=Written, parse_float=Written, parse_constant=refuse)
    except ValueError:
        return None
    for name, place, quoted in re.findall(r"\.(\w+)|\[(\d+)\]|\['([^']*)'\]", path):
        try:
            value = value[int(place)] if place and isinstance(value, list) else value[name or quoted]
        except (LookupError, TypeError):
            return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str) else None


class Written(str):
    """A number as it is written."""


# --- lists and maps


def contains(values: Any, wanted: Any) -> bool | None:
    if isinstance(values, str):
        return wanted in values
    if any(value == wanted for value in values if value is not None):
        return True
    return None if None in values else False


# --- times


def moment(nanoseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=nanoseconds // 1000)


def truncated(unit: str, nanoseconds: int) -> int:
    at = moment(nanoseconds)
    parts = {"year": 1, "month": 2, "day": 3, "hour": 4, "minute": 5, "second": 6}
    if unit == "quarter":
        floor = datetime(at.year, (at.month - 1) // 3 * 3 + 1, 1, tzinfo=UTC)
    elif unit == "week":
        floor = datetime(at.year, at.month, at.day, tzinfo=UTC) - timedelta(days=at.weekday())
    else:
        given = (at.year, at.month, at.day, at.hour, at.minute, at.second)[: parts[unit]]
        floor = datetime(*(given + (1,) * (3 - len(given))), tzinfo=UTC)  # type: ignore[misc, arg-type]
    return in_nanoseconds(floor)


def in_nanoseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1) * 1000


DIRECTIVES = {
    "yyyy": "%Y", "MMM": "%b", "MM": "%m", "M": "%m", "dd": "%d", "d": "%d", "EEE": "%a", "HH": "%H", "H": "%H",
    "hh": "%I", "h": "%I", "a": "%p", "mm": "%M", "ss": "%S", "XXX": "%z", "XX": "%z", "X": "%z", "Z": "%z",
    **{"S" * digits: "%f" for digits in range(1, 7)},
}  # fmt: skip


def to_timestamp(text: str, layout: str) -> int:
    """By Python's own parser, which knows other letters; the widths are checked by writing the time again."""
    pieces = re.findall(r"'[^']*'|[A-Za-z]+|[^A-Za-z']+", layout)
    words = "".join(re.sub(r"([A-Za-z])\1*", lambda found: DIRECTIVES[found[0]], piece)
                    if piece[0].isalpha() else piece.strip("'") for piece in pieces)  # fmt: skip
    try:
        at = datetime.strptime(text.strip(), words)
    except ValueError as failure:
        raise CastError(text) from failure
    at = at if "%Y" in words else at.replace(year=1970)
    return in_nanoseconds(at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC))


# --- CAST


class Date(int):
    """The midnight of a date: a time like any other, except as text."""


NUMBER = r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*"


def cast(value: Any, target: str, sizes: tuple[int, ...] = ()) -> Any:
    match target:
        case "STRING":
            return as_text(value)
        case "BIGINT" | "INT":
            if isinstance(value, str) and not re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
                raise CastError(value)
            found, bits = int(value), 63 if target == "BIGINT" else 31
            if not -(2**bits) <= found < 2**bits:
                raise CastError(value)
            return found
        case "DOUBLE":
            if isinstance(value, str) and not re.fullmatch(NUMBER, value):
                raise CastError(value)
            return float(value)
        case "DECIMAL":
            return decimal(value, *sizes)
        case "BOOLEAN":
            if not isinstance(value, str):
                return value != 0
            words = {"t": True, "true": True, "y": True, "yes": True, "1": True}
            words |= {"f": False, "false": False, "n": False, "no": False, "0": False}
            if value.strip().lower() not in words:
                raise CastError(value)
            return words[value.strip().lower()]
        case "TIMESTAMP":
            return int(value) if isinstance(value, int) else iso_moment(value)
        case "DATE":
            return Date(truncated("day", value) if isinstance(value, int) else iso_date(value))
    raise ValueError(target)


def decimal(value: Any, digits: int = 10, places: int = 0) -> Decimal:
    if isinstance(value, str) and not re.fullmatch(NUMBER, value):
        raise CastError(value)
    exact = Fraction(repr(value) if isinstance(value, float) else value.strip() if isinstance(value, str) else value)
    units = math.floor(abs(exact) * 10**places + Fraction(1, 2))
    if units >= 10**digits:
        raise CastError(value)
    return Decimal(units if exact >= 0 else -units).scaleb(-places)


def as_text(value: Any) -> str:
    match value:
        case Date():
            return f"{moment(value):%Y-%m-%d}"
        case Decimal():
            return format(value, "f")
        case bool():
            return str(value).lower()
        case float() if value == 0 or 1e-3 <= abs(value) < 1e7:
            return format(Decimal(repr(value)), "f") if "." in format(Decimal(repr(value)), "f") else f"{value:.1f}"
        case float():
            digits, exponent = f"{Decimal(repr(value)).normalize():E}".split("E")
            return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
    return str(value)


def iso_date(text: str) -> int:
    found = re.match(r"\s*\+?(\d{4})(?:-(\d\d?)(?:-(\d\d?)(?=\s*$|[ T]))?)?(?(3)|\s*$)", text)
    if found is None:
        raise CastError(text)
    try:
        return in_nanoseconds(datetime(*(int(part or 1) for part in found.groups()), tzinfo=UTC))  # type: ignore[misc]
    except ValueError as failure:
        raise CastError(text) from failure


def iso_moment(text: str) -> int:
    found = re.fullmatch(
        r"\s*(\d{4})-(\d\d?)-(\d\d?)(?:[ T](\d\d?):(\d\d?)(?::(\d\d?)(?:\.(\d{1,9}))?)? ?(Z|[+-]\d\d:?\d\d)?)?\s*", text
    )
    if found is None:
        raise CastError(text)
    numbers = [int(part or 0) for part in found.groups()[:6]]
    zone = found[8] or "Z"
    size = timedelta() if zone == "Z" else timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    try:
        at = datetime(*numbers, int((found[7] or "0").ljust(6, "0")[:6]), timezone(-size if zone[0] == "-" else size))  # type: ignore[misc, arg-type]
    except ValueError as failure:
        raise CastError(text) from failure
    return in_nanoseconds(at)


# --- all of them; each is null if an argument is null

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "sign": sign,
    "round": rounded,
    "floor": lambda x: type(x)(math.floor(x)),
    "ceil": lambda x: type(x)(math.ceil(x)),
    "sqrt": root,
    "power": power,
    "ln": lambda x: None if x <= 0 else math.log(x),
    "exp": math.exp,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": lambda x: math.asin(x) if -1 <= x <= 1 else None,
    "acos": lambda x: math.acos(x) if -1 <= x <= 1 else None,
    "atan": math.atan,
    "atan2": math.atan2,
    "radians": math.radians,
    "degrees": math.degrees,
    "lower": str.lower,
    "upper": str.upper,
    "trim": lambda text: text.strip(" "),
    "length": len,
    "substr": substr,
    "concat": lambda *texts: "".join(texts),
    "replace": lambda text, search, other: text.replace(search, other) if search else text,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": contains,
    "size": len,
    "split": split,
    "regexp_like": lambda text, pattern: re.search(pattern, text) is not None,
    "regexp_extract": regexp_extract,
    "json_value": json_value,
    "to_timestamp": to_timestamp,
    "year": lambda at: moment(at).year,
    "quarter": lambda at: (moment(at).month + 2) // 3,
    "month": lambda at: moment(at).month,
    "day": lambda at: moment(at).day,
    "dayofweek": lambda at: moment(at).isoweekday() % 7 + 1,
    "weekday": lambda at: moment(at).weekday(),
    "dayofyear": lambda at: moment(at).timetuple().tm_yday,
    "hour": lambda at: moment(at).hour,
    "minute": lambda at: moment(at).minute,
    "second": lambda at: moment(at).second,
    "date_trunc": lambda unit, at: truncated(unit.lower(), at),
    "seconds": lambda length: length / 1e9,
    "epoch": lambda at: at / 1e9,
}


def call(name: str, arguments: list[Any]) -> Any:
    present = [argument for argument in arguments if argument is not None]
    match name:
        case "coalesce":
            return present[0] if present else None
        case "least":
            return min(present, default=None)
        case "greatest":
            return max(present, default=None)
        case "nullif":
            return None if arguments[0] == arguments[1] else arguments[0]
    if len(present) < len(arguments):
        return None
    if name == "try_to_timestamp":
        try:
            return to_timestamp(*arguments)
        except CastError:
            return None
    return FUNCTIONS[name](*arguments)


KNOWN = {*FUNCTIONS, "coalesce", "least", "greatest", "nullif", "try_to_timestamp"}
