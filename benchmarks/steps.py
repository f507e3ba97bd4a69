"""Measures the events per second of a `Detector` in steps of 1, 100 and 1,000 events; see `--help`.

Events: one per millisecond from 2024-01-01 UTC, from seed 0. Columns: `t` timestamp in ms with zone UTC, `key`
int64 of 1,000 values, `type` text of 20 equally frequent values T00 to T19, `v` double from 0 to 1.
Patterns: a SEQ of three, one with NOT, and one with a condition between variables, each PARTITION BY key WITHIN 40 s.

A step of one event is `Detector.push` with a row; the others are `Detector.advance` with a table. Each measurement has
its own detector, which first reads 40 s of events to fill its state. The watermark of a step is the time of its last
event. The time of a step includes reading its table and creating the table of its matches. It uses one process and one
thread, and the best of several runs counts. The number of calls is that of one step of 1,000 events, counted with
`sys.setprofile`.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
from figures import Figure, give

import ensue

TYPES = 20
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
WARM_UP = 40_000
"""Events before the first step that counts: those of one window."""

WARM_UP_STEP = 1_000
REST = "PARTITION BY key WITHIN 40 s RETURN a.key AS key, a.t AS began, c.t AS ended"
QUERIES = {
    "SEQ(A, B, C)": f"PATTERN SEQ(T00 a, T01 b, T02 c) {REST}",
    "SEQ(A, NOT B, C)": f"PATTERN SEQ(T00 a, NOT T01 b, T02 c) {REST}",
    "SEQ(A, B, C) WHERE a.v < c.v": f"PATTERN SEQ(T00 a, T01 b, T02 c) WHERE a.v < c.v {REST}",
}
STEPS = {1: (5_000, 30_000), 100: (1_000, 500_000), 1_000: (300, 3_000_000)}
"""By events of a step: how many steps are measured, and the events a second to reach."""

Piece = tuple[pa.Table | dict[str, Any], datetime]
"""What one step is given: its events, or one event as a row, and the watermark after them."""


def make_events(count: int, keys: int) -> pa.Table:
    """One event each millisecond, of equally frequent types and keys."""
    random = np.random.default_rng(0)
    names = pa.array([f"T{number:02d}" for number in range(TYPES)])
    begin = int(BEGIN.timestamp() * 1000)
    return pa.table(
        {
            "t": pa.array(np.arange(begin, begin + count)).cast(pa.timestamp("ms", "UTC")),
            "key": random.integers(0, keys, count),
            "type": names.take(pa.array(random.integers(0, TYPES, count))),
            "v": random.random(count),
        }
    )


def cut(events: pa.Table, begin: int, end: int, size: int) -> list[Piece]:
    """The events from one row to another, as they arrive: so many a step, a single one as a row."""
    if size == 1:
        rows = enumerate(events.slice(begin, end - begin).to_pylist(), start=begin)
        return [(row, BEGIN + number * MILLISECOND) for number, row in rows]
    return [
        (events.slice(start, size), BEGIN + (start + size - 1) * MILLISECOND)
        for start in range(begin, end - size + 1, size)
    ]


def feed(detector: ensue.Detector, piece: Piece) -> int:
    """One step, the only place that knows how a detector is fed; gives the number of matches."""
    events, watermark = piece
    if isinstance(events, dict):
        return len(detector.push(events, watermark=watermark))
    found: int = detector.advance(events, watermark=watermark).matches.num_rows
    return found


def warm_detector(query: str, events: pa.Table, warm_up: int) -> ensue.Detector:
    """A detector whose state is full."""
    detector = ensue.Detector(query, time="t", type="type", limits=ensue.Limits(matches=None))
    for piece in cut(events, 0, warm_up, min(WARM_UP_STEP, warm_up)):
        feed(detector, piece)
    return detector


def measured(query: str, events: pa.Table, warm_up: int, pieces: Sequence[Piece]) -> tuple[float, int]:
    """The seconds of all steps together, and the matches that they found."""
    detector = warm_detector(query, events, warm_up)
    began = time.perf_counter()
    matches = sum(feed(detector, piece) for piece in pieces)
    return time.perf_counter() - began, matches


def calls_of_step(query: str, events: pa.Table, warm_up: int, size: int) -> Counter[str]:
    """How many calls of Python functions (`call`) and of compiled ones (`c_call`) one step makes."""
    detector = warm_detector(query, events, warm_up)
    before, piece = cut(events, warm_up, warm_up + 2 * size, size)
    feed(detector, before)
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        calls[event] += 1

    sys.setprofile(note)
    try:
        feed(detector, piece)
    finally:
        sys.setprofile(None)
    return calls


def step_figures(events: pa.Table, warm_up: int, share: float, runs: int) -> Iterator[Figure]:
    for name, query in QUERIES.items():
        for size, (steps, target) in STEPS.items():
            pieces = cut(events, warm_up, warm_up + size * max(1, int(share * steps)), size)
            spent = [measured(query, events, warm_up, pieces) for _ in range(runs)]
            best, matches = min(spent)
            count = size * len(pieces)
            note = f"{1e6 * best / len(pieces):,.0f} µs a step, {100 * matches / count:.2f} matches per 100 events"
            label = "event" if size == 1 else "events"
            yield Figure(
                f"{name}, {size:,} {label} a step", count / best, "events a second", target, at_most=False, note=note
            )
        size = max(STEPS)
        calls = calls_of_step(query, events, warm_up, size)
        note = f"and {calls['c_call']:,} of compiled functions"
        yield Figure(f"{name}, Python calls of a step of {size:,} events", calls["call"], "calls", 300, note=note)


def write_profile(path: Path, events: pa.Table, warm_up: int, entries: int = 40) -> None:
    """The functions on which the steps of the first pattern spend their time, by size of step."""
    query = next(iter(QUERIES.values()))
    with path.open("w", encoding="utf-8") as file:
        for size, steps in ((1_000, 100), (1, 1_000)):
            detector, profile = warm_detector(query, events, warm_up), cProfile.Profile(time.process_time)
            pieces = cut(events, warm_up, warm_up + size * steps, size)
            profile.enable()
            for piece in pieces:
                feed(detector, piece)
            profile.disable()
            for order in ("cumulative", "tottime"):
                print(f"== {query}: {len(pieces):,} steps of {size:,} events, by {order}", file=file)
                pstats.Stats(profile, stream=file).sort_stats(order).print_stats(entries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="events before the first measured step")
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps to run (default 1)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement; the best one counts")
    parser.add_argument("--profile", type=Path, help="only write a profile of the steps to this file")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    most = max(size * steps for size, (steps, _) in STEPS.items())
    events = make_events(arguments.warm_up + most, arguments.keys)  # the same events for any share of the steps
    warm_detector(QUERIES["SEQ(A, B, C)"], events, 1_000)  # compiles what is not compiled yet
    if arguments.profile:
        write_profile(arguments.profile, events, arguments.warm_up)
        return
    give(list(step_figures(events, arguments.warm_up, arguments.share, arguments.runs)), arguments.format)


if __name__ == "__main__":
    main()
