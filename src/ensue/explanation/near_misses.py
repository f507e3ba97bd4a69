"""A near miss as a value, and its times, keys and events as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.python.values import duration_text
from ensue.text.values import render_duration

# --- times, keys and events as text

EPOCH = datetime(1970, 1, 1)


def length_in_words(ticks: int, time_type: pa.DataType) -> str:
    """Format a length of time; integer time stays a number.

    >>> length_in_words(604_000, pa.timestamp("ms")), length_in_words(604, pa.int64())
    ('10m 4s', '604')
    """
    if not pa.types.is_timestamp(time_type):
        return str(ticks)
    return render_duration(ticks * NANOSECONDS_PER_UNIT[time_type.unit])


def moment_in_words(ticks: int, time_type: pa.DataType) -> str:
    """Format a time; integer time stays a number.

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
    """Format a key: `id = 7, place = 'x'`."""
    return ", ".join(f"{name} = {value_in_words(value)}" for name, value in key.items())


def value_in_words(value: Any) -> str:
    """Format a value of an event: a duration as a query has it, everything else as Python does."""
    return duration_text(value) if isinstance(value, timedelta) else repr(value)


# --- near misses


@dataclass(frozen=True, slots=True)
class Bound:
    """An event of a choice: its variable, its stream, and its times in ticks and as text."""

    variable: str
    stream: str
    start: int
    end: int
    in_words: str


@dataclass(frozen=True, slots=True)
class Example:
    """A near miss: its key, its events, and what it lacks.

    `distance` is how far it is from the requirement, `share` that distance as a share of the required amount, and
    `note` says what it `had` and what was `needed`.
    """

    key: Mapping[str, Any]
    events: tuple[Bound, ...]
    distance: float | None
    share: float | None
    had: str
    needed: str
    note: str

    @property
    def key_words(self) -> str:
        return key_in_words(self.key)

    @property
    def in_words(self) -> str:
        parts = [self.key_words, ", ".join(event.in_words for event in self.events), self.note]
        return "; ".join(part for part in parts if part)

    def as_row(self) -> dict[str, Any]:
        events = [
            {"variable": event.variable, "stream": event.stream, "start": event.start, "end": event.end}
            for event in self.events
        ]
        return {
            "key": self.key_words or None,
            "events": events,
            "distance": self.distance,
            "share": self.share,
            "had": self.had or None,
            "needed": self.needed or None,
            "note": self.note or None,
        }
