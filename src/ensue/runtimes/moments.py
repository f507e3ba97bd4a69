"""Times that users pass: watermarks, the bounds `since` and `until`, and durations for Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.errors import SchemaError
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.plan.plans import Options
from ensue.python.values import length_of

FARTHEST = 2**62
"""Times beyond this are before or after all events: event times and windows stay below half of it."""


@dataclass(frozen=True, slots=True)
class Period:
    """The matches to return: those that complete after `since` and at or before `until` (None: no limit)."""

    since: Any = None
    until: Any = None

    @property
    def is_limited(self) -> bool:
        return self.since is not None or self.until is not None

    def within(self, options: Options, time_type: pa.DataType) -> Options:
        """Return the options with both bounds in ticks of the time column."""
        since, until = (
            None if moment is None else _limit(moment, time_type, role)
            for moment, role in ((self.since, "`since`"), (self.until, "`until`"))
        )
        if since is not None and until is not None and since > until:
            raise SchemaError(
                "range-order",
                f"`since` ({self.since!r}) is after `until` ({self.until!r})",
                "pass an earlier `since`: a match must complete after `since` and at or before `until`",
            )
        return replace(options, since=since, until=until)


ALL_TIME = Period()


def spark_interval(length: str) -> str:
    """Return a duration as Spark reads it. Text that is not a duration of a query is left to Spark.

    >>> spark_interval("1m 30s"), spark_interval("interval 1 month")
    ('90000000 microseconds', 'interval 1 month')
    """
    nanoseconds = length_of(length)
    return length if nanoseconds is None else f"{nanoseconds // 1000} microseconds"


def _limit(moment: Any, time_type: pa.DataType, role: str) -> int:
    ticks = _ticks(moment, time_type)
    if ticks is None:
        raise SchemaError("range-type", *_no_moment(moment, time_type, role))
    return max(-FARTHEST, min(ticks, FARTHEST))


def ticks_of(watermark: Any, time_type: pa.DataType) -> int:
    """Convert a watermark to ticks of the time column; a time without a zone is UTC.

    >>> ticks_of("1970-01-01T00:00:01", pa.timestamp("ms"))
    1000
    """
    ticks = _ticks(watermark, time_type)
    if ticks is None:
        raise SchemaError("watermark-type", *_no_moment(watermark, time_type, "a watermark"))
    return ticks


def _no_moment(moment: Any, time_type: pa.DataType, role: str) -> tuple[str, ...]:
    """Return the message and, if there is one, a hint."""
    if pa.types.is_integer(time_type):
        return (f"the time column is integer, so {role} must be an integer, found {moment!r}",)
    hint = "pass a datetime, a timestamp, or ISO text such as '2024-01-31 12:00:00'"
    return f"the time column holds timestamps, so {role} must be a timestamp, found {moment!r}", hint


def _ticks(moment: Any, time_type: pa.DataType) -> int | None:
    if pa.types.is_integer(time_type):
        return None if isinstance(moment, bool) or not hasattr(moment, "__index__") else int(moment)
    scalar = _scalar(moment)
    if scalar is None or not scalar.is_valid:
        return None
    nanoseconds = scalar.value * NANOSECONDS_PER_UNIT[scalar.type.unit]
    return int(nanoseconds // NANOSECONDS_PER_UNIT[time_type.unit])


def _scalar(moment: Any) -> Any:
    """Convert to a timestamp scalar in UTC; return None if that is not possible."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return None
    if isinstance(moment, np.datetime64) and np.datetime_data(moment.dtype)[0] not in ("s", "ms", "us", "ns"):
        moment = moment.astype("datetime64[us]")
    try:
        scalar = pa.scalar(moment)
    except (ValueError, TypeError, NotImplementedError):
        return None
    if pa.types.is_date(scalar.type):
        return scalar.cast(pa.timestamp("us"))
    return scalar if pa.types.is_timestamp(scalar.type) else None
