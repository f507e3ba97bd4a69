"""Measures the cost of the notice about events at the same time; see `--help`.

Without `order=` and ALLOWING TIES, a run counts what depends on the order of events at the same time. Each query runs
with and without this count, in turns and in an alternating order. A figure is the median of the ratios of the two CPU
times of a round, as per cent of the time without the count. It is that of the worst of four tables; the note has all
four, and in brackets the ratio of the fastest runs.

Events: integer times in order, 100 events per key, `v` from 0 to 9, and 20 or 3 equally frequent types T00, T01, ...
With few ties, one event in 100 has the time of the event before. With many ties, 100 events have the same time. The
window of all patterns is as long as 10 events of a key.

"1,000,000 events" is one `ensue.detect`. "steps" are those of a `Detector`, with 1,000 events each.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from figures import Figure, give

import ensue
from ensue.plan.plans import Options

SIZES = (100_000, 1_000_000)
PER_KEY = 100
AT_ONCE = 100
"""The number of events at each time, with many ties."""

STEP = 1_000
LIMIT = 5.0
PATTERNS = {
    "SEQ(A, B)": "SEQ(T00 a, T01 b)",
    "SEQ(A, B, C)": "SEQ(T00 a, T01 b, T02 c)",
    "SEQ(A, NOT B, C)": "SEQ(T00 a, NOT T01 n, T02 b)",
    "SEQ(A, B) WHERE a.v = b.v": "SEQ(T00 a, T01 b) WHERE a.v = b.v",
    "SEQ(A, B) WHERE a.v < b.v": "SEQ(T00 a, T01 b) WHERE a.v < b.v",
    "SEQ(A, COLLECT B, C)": "SEQ(T00 a, COLLECT T01 n, T02 b)",
}
COLUMNS: Mapping[str, Any] = {"time": "t", "type": "type", "limits": ensue.Limits(matches=None)}


def query_of(pattern: str, count: int, many_ties: bool) -> str:
    window = 10 * count // PER_KEY
    if many_ties:
        window //= AT_ONCE
    return f"PATTERN {pattern} PARTITION BY key WITHIN {window} RETURN a.key AS key, a.t AS began, b.t AS ended"


def make_events(count: int, types: int, many_ties: bool) -> pa.Table:
    random = np.random.default_rng(0)
    numbers = np.arange(count)
    times = numbers // AT_ONCE if many_ties else numbers - (numbers % 100 == 1)
    names = pa.array([f"T{number:02d}" for number in range(types)])
    return pa.table(
        {
            "t": times,
            "key": random.integers(0, count // PER_KEY, count),
            "type": names.take(pa.array(random.integers(0, types, count))),
            "v": random.integers(0, 10, count),
        }
    )


def detect(events: pa.Table, query: str) -> None:
    ensue.detect(events, query, **COLUMNS)


def detect_in_steps(events: pa.Table, query: str) -> None:
    detector = ensue.Detector(query, **COLUMNS)
    for begin in range(0, events.num_rows, STEP):
        rows = events.slice(begin, STEP)
        detector.advance(rows, watermark=rows["t"][-1].as_py())
    detector.finish()


def seconds(work: Callable[[], None], counts: bool) -> float:
    """The time of a run with or without the count of ties."""
    options = partial(Options, counts_ties=counts)
    with patch("ensue.api.Options", options), patch("ensue.detector.Options", options):
        began = time.process_time()
        work()
        return time.process_time() - began


def added(work: Callable[[], None], rounds: int) -> tuple[float, float]:
    """What the count adds to a run, in per cent: the median of all rounds, and the fastest runs of each."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    seconds(work, counts=True)
    for place in range(rounds):
        for counts in (True, False) if place % 2 else (False, True):
            spent[counts].append(seconds(work, counts))
    ratios = [one / other for one, other in zip(spent[True], spent[False], strict=True)]
    return 100 * (statistics.median(ratios) - 1), 100 * (min(spent[True]) / min(spent[False]) - 1)


def tie_figures(sizes: tuple[int, ...], rounds: int) -> Iterator[Figure]:
    # A short run has as many rounds as take the time of the long ones.
    runs = [(f"{count:,} events", detect, count, rounds * (max(sizes) // count)) for count in sizes]
    runs.append((f"{sizes[0] // STEP:,} steps", detect_in_steps, sizes[0], 2 * rounds))
    for label, run, count, repeated in runs:
        tables = {
            f"{'many' if many else 'few'} ties, {types} types": (many, make_events(count, types, many))
            for many in (False, True)
            for types in (20, 3)
        }
        for name, pattern in PATTERNS.items():
            found = {
                kind: added(partial(run, events, query_of(pattern, count, many)), repeated)
                for kind, (many, events) in tables.items()
            }
            note = "; ".join(f"{kind}: {median:+.1f} ({fastest:+.1f})" for kind, (median, fastest) in found.items())
            worst = max(median for median, _ in found.values())
            yield Figure(f"{name}, {label}", worst, "% of a run", LIMIT, note=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=SIZES, help="events of a table; the first: of steps")
    parser.add_argument("--rounds", type=int, default=15, help="rounds; a smaller table has more of them")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    warnings.simplefilter("ignore", ensue.EnsueNotice)
    give(list(tie_figures(tuple(arguments.events), arguments.rounds)), arguments.format)


if __name__ == "__main__":
    main()
