"""Times, keys and events in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ensue.expr.kinds import NANOSECONDS_PER_UNIT

EPOCH = datetime(1970, 1, 1)
PARTS = (
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
)


def length_in_words(ticks: int, time_type: pa.DataType) -> str:
    """A length of time; of integer time the number.

    >>> length_in_words(604_000, pa.timestamp("ms")), length_in_words(604, pa.int64())
    ('10 min 4 s', '604')
    """
    if not pa.types.is_timestamp(time_type):
        return str(ticks)
    left = abs(ticks) * NANOSECONDS_PER_UNIT[time_type.unit]
    words = []
    for unit, size in PARTS:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {unit}")
    return ("-" if ticks < 0 else "") + (" ".join(words) or "0 s")


def moment_in_words(ticks: int, time_type: pa.DataType) -> str:
    """A moment; of integer time the number.

    >>> moment_in_words(1_500, pa.timestamp("ms"))
    '1970-01-01 00:00:01.500'
    """
    if not pa.types.is_timestamp(time_type):
        return str(ticks)
    seconds, rest = divmod(ticks * NANOSECONDS_PER_UNIT[time_type.unit], 1_000_000_000)
    try:
        shown = (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return str(ticks)
    fraction = f".{rest:09d}".rstrip("0").ljust(4, "0") if rest else ""
    return shown + fraction


def key_in_words(key: Mapping[str, Any]) -> str:
    """`id = 7, place = 'x'`."""
    return ", ".join(f"{name} = {value!r}" for name, value in key.items())
