"""Python values as literals and windows."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from ensue.errors import Problem, QueryError
from ensue.nodes.expressions import Duration, Literal, Timestamp
from ensue.nodes.patterns import Events, Ticks, Window
from ensue.text.parser import parse_window
from ensue.text.values import INT64_MAX, INT64_MIN

WindowLike = Window | str | int | timedelta | np.integer[Any] | np.timedelta64

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def literal(value: object) -> Literal | Duration | Timestamp:
    """The literal that stands for a Python value.

    >>> literal(5), literal(timedelta(seconds=1))
    (Literal(value=5), Duration(nanoseconds=1000000000))
    """
    match value:
        case np.datetime64() | np.timedelta64():
            return _numpy_time(value)
        case None:
            return Literal(None)
        case bool() | np.bool_():
            return Literal(bool(value))
        case int() | np.integer():
            return Literal(_fitting(int(value)))
        case float() | np.floating():
            return Literal(_finite(float(value)))
        case str():
            return Literal(str(value))
        case timedelta():
            return Duration(_nanoseconds(value))
        case datetime():
            return _timestamp(value)
        case date():
            return _timestamp(datetime(value.year, value.month, value.day))
    raise TypeError(f"a {type(value).__name__} is not a value that a query can hold")


def window(value: WindowLike) -> Window:
    """The window that stands for a text, a number of ticks or a `timedelta`.

    >>> window("100 events"), window(5), window(timedelta(seconds=1))
    (Events(count=100), Ticks(count=5), Duration(nanoseconds=1000000000))
    """
    match value:
        case str():
            return parse_window(value)
        case Duration() | Ticks() | Events():
            return value
    match literal(value):
        case Duration() as duration:
            _not_negative(duration.nanoseconds, value)
            return duration
        case Literal(int(count)) if not isinstance(count, bool):
            _not_negative(count, value)
            return Ticks(count)
    raise TypeError(f"a window is a text such as '1 hour', a whole number or a timedelta, not {value!r}")


def _not_negative(size: int, value: object) -> None:
    if size < 0:
        raise QueryError([Problem("window-size", f"a window of time is not negative: {value!r}")])


def _timestamp(moment: datetime) -> Timestamp:
    if moment != moment:
        raise ValueError("NaT is not a value that a query can hold; None is NULL")
    zoned = moment.utcoffset() is not None
    elapsed = (moment if zoned else moment.replace(tzinfo=UTC)) - _EPOCH
    return Timestamp(_fitting(_microseconds(elapsed) * 1000 + getattr(moment, "nanosecond", 0)), zoned)


def _nanoseconds(duration: timedelta) -> int:
    # A pandas Timedelta is a timedelta that also counts nanoseconds.
    return _fitting(_microseconds(duration) * 1000 + getattr(duration, "nanoseconds", 0))


def _microseconds(duration: timedelta) -> int:
    return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds


def _numpy_time(value: np.datetime64 | np.timedelta64) -> Timestamp | Duration:
    if np.isnat(value):
        raise ValueError("NaT is not a value that a query can hold; None is NULL")
    kind: type[Timestamp] | type[Duration] = Timestamp if isinstance(value, np.datetime64) else Duration
    exact = value.astype(f"{value.dtype.kind}8[ns]")
    if exact.astype(value.dtype) != value:
        raise ValueError(f"{value!r} is not a whole number of nanoseconds that fits into 64 bits")
    return kind(int(exact.astype(np.int64)))


def _fitting(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{value} does not fit into 64 bits")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a number that a query can hold; None is NULL")
    return value
