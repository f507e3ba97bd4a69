"""Archives of events for the tests of refinements, and smoothed counts of them in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pyarrow as pa
from hypothesis import strategies as st

BEGIN = datetime(2024, 3, 30, 18, tzinfo=UTC)
"""A Saturday; in the night after it the clocks of Europe go forward."""


@dataclass(frozen=True)
class Seen:
    """An archived event: the hours since the beginning, who it was, and what else is known."""

    hours: int
    who: str | None
    room: str | None
    home: int | None


seen_events = st.lists(
    st.builds(
        Seen,
        st.integers(0, 60),
        st.sampled_from(["alice", "bob", "carol", None]),
        st.sampled_from(["den", "hall", None]),
        st.sampled_from([1, 2, None]),
    ),
    min_size=2,
    max_size=25,
).filter(lambda events: len({event.who for event in events} - {None}) > 1)


def table_of(events: Sequence[Seen]) -> pa.Table:
    return pa.table(
        {
            "at": pa.array([BEGIN + timedelta(hours=event.hours) for event in events], pa.timestamp("us", "UTC")),
            "who": pa.array([event.who for event in events], pa.string()),
            "room": pa.array([event.room for event in events], pa.string()),
            "home": pa.array([event.home for event in events], pa.int64()),
        }
    )


def context_of(event: Seen, events: Sequence[Seen]) -> dict[str, str | None]:
    """All features of an event, as texts; the hour as the clocks of UTC show it."""
    moment = BEGIN + timedelta(hours=event.hours)
    before = [
        (other.hours, other.who)
        for other in events
        if other.who is not None and other.home == event.home and other.home is not None and other.hours < event.hours
    ]
    return {
        "room": event.room,
        "home": None if event.home is None else str(event.home),
        "hour": str(moment.hour),
        "weekday": str(moment.weekday()),
        "previous": max(before)[1] if before else None,
    }


def expected_distribution(
    context: Sequence[str], event: Seen, events: Sequence[Seen], smoothing: Fraction
) -> dict[str, Fraction]:
    """The distribution for an event, by the recursion over contexts with a feature less."""
    known = [(other.who, context_of(other, events)) for other in events if other.who is not None]
    labels = sorted({who for who, _ in known})
    own = context_of(event, events)
    found = {label: Fraction(1, len(labels)) for label in labels}
    for number in range(len(context) + 1):
        alike = [who for who, other in known if all(other[name] == own[name] for name in context[:number])]
        found = {
            label: (alike.count(label) + smoothing * share) / (len(alike) + smoothing) for label, share in found.items()
        }
    return found
