"""Hypothesis strategies for histories, and for cutting them into batches with watermarks."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from oracle.conditions import Value
from oracle.oracle import OracleEvent

Batches = list[tuple[list[OracleEvent], int]]

# Frequent streams make matches, rare ones let negations hold; E is a stream that no pattern asks for.
STREAMS = ("A", "B", "A", "B", "C", "A", "B", "D", "E")
# Equal times are frequent; a few late times stand apart.
TIMES = (*range(9), *range(9), 12, 15, 20)
LEAST_SIZES = (0, 5, 7, 8, 8, 9, 9, 10, 10, 10, 11, 11, 12, 12)
FEW_TIMES = (*range(3), *range(3), 5)
"""Most events are at the time of other events."""
FIELDS: dict[str, tuple[Value, ...]] = {
    "x": (0, 1, 2, 3, 4, 2, 1, 3, None),
    "y": (0, 1, 2, 3, 4, -1, 2, 1, None),
    "k": (1, 1, 1, 1, 1, 2, 2, None),
    "g": (1, 1, 1, 1, 1, 2, None),
    "name": ("a", "b", "ab", "Ab", "a", "", None),
}


def records() -> st.SearchStrategy[dict[str, Value]]:
    """The fields of an event: numbers `x`, `y`, keys `k`, `g`, a text `name`; each may be null."""
    return st.integers(0, math.prod(map(len, FIELDS.values())) - 1).map(_record)


def _record(number: int) -> dict[str, Value]:
    """The record of that number among all records. One draw for all fields: drawing is what tests spend time on."""
    record = {}
    for name, values in FIELDS.items():
        number, index = divmod(number, len(values))
        record[name] = values[index]
    return record


@st.composite
def histories(
    draw: st.DrawFn,
    *,
    intervals: bool = False,
    streams: tuple[str, ...] = STREAMS,
    times: tuple[int, ...] = TIMES,
    least_sizes: tuple[int, ...] = LEAST_SIZES,
    most: int = 14,
) -> list[OracleEvent]:
    """Events in the order of arrival, which is not that of time; with `intervals` an event may end after its start."""
    lengths = (0, 0, 1, 1, 2, 4) if intervals else (0,)
    drawn = st.tuples(st.sampled_from(streams), st.sampled_from(times), st.sampled_from(lengths), records())
    sized = st.sampled_from(least_sizes).flatmap(lambda least: st.lists(drawn, min_size=least, max_size=most))
    return [
        OracleEvent(number, stream, start, start + length, fields)
        for number, (stream, start, length, fields) in enumerate(draw(sized))
    ]


@st.composite
def batches(draw: st.DrawFn, history: list[OracleEvent]) -> Batches:
    """The history in batches, each with the watermark that follows it. No event is late; every event arrives.

    Events arrive out of order, also across batches. Those that end at the same time keep their order of arrival (`id`),
    which decides their positions.
    """
    watermarks = sorted(draw(st.sets(st.integers(-1, 26), min_size=1, max_size=6)))
    delivered: list[list[OracleEvent]] = [[] for _ in watermarks]
    ends = sorted({event.e for event in history})
    for end in draw(st.permutations(ends)):
        together = [event for event in history if event.e == end]
        last = sum(watermark < end for watermark in watermarks[:-1])
        numbers = st.lists(st.integers(0, last), min_size=len(together), max_size=len(together))
        for number, event in zip(sorted(draw(numbers)), together, strict=True):
            delivered[number].append(event)
    return list(zip(delivered, watermarks, strict=True))
