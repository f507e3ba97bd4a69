"""Drawn events, patterns over them and how long something takes: what `ensue bench` and the benchmarks share."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TIME_SPAN = 10**9
TYPES = 20
RETURNED = "RETURN a.key AS key, a.t AS began, c.t AS ended"
PATTERNS = {
    "SEQ(A, B, C)": ("SEQ(T00 a, T01 b, T02 c)", 0.66),
    "SEQ(A, NOT B, C)": ("SEQ(T00 a, NOT T01 b, T02 c)", 0.225),
    "SEQ(A, NOT SEQ(B, C), D)": ("SEQ(T00 a, NOT SEQ(T01 b, T03 d), T02 c)", 0.205),
}
"""Patterns with windows for about one match per 100 events, in mean gaps between events of one type and key."""


def make_events(count: int, keys: int, types: int = TYPES, seed: int = 0, in_order: bool = True) -> pa.Table:
    """Events of equally frequent types, spread evenly over keys and time, with a number and a measurement each."""
    random = np.random.default_rng(seed)
    times = random.integers(0, TIME_SPAN, count)
    if in_order:
        times.sort()
    names = pa.array([f"T{number:02d}" for number in range(types)])
    return pa.table(
        {
            "t": times,
            "key": random.integers(0, keys, count),
            "type": names.take(pa.array(random.integers(0, types, count))),
            "x": random.integers(0, 1_000_000, count),
            "v": random.random(count),
        }
    )


def query_text(pattern: str, share: float, count: int, groups: int, types: int = TYPES, keyed: bool = True) -> str:
    """The pattern with a window of so many mean gaps between events of one type and group."""
    window = max(1, int(share * TIME_SPAN * types * groups / count))
    partition = "PARTITION BY key" if keyed else ""
    return f"PATTERN {pattern} {partition} WITHIN {window} {RETURNED}"


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """The best of several runs."""
    best = float("inf")
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def unit_of(times: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]) -> float:
    """The unit that figures are given in: how long it takes to sort the rows by key and time."""
    return seconds(lambda: np.lexsort((times, keys)), repeat=2)
