"""Measures the cost of the core as ratios within one run; see `python benchmarks/core.py --help`.

The unit is the time of `numpy.lexsort((time, key))` for the same rows, so that figures are comparable across machines.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from figures import Figure, give

import ensue
from ensue.apps.cli.bench import PATTERNS, RETURNED, TIME_SPAN, make_events, query_text, seconds, unit_of

TARGETS = {"SEQ(A, B, C)": 0.5, "SEQ(A, NOT B, C)": 0.6, "SEQ(A, NOT SEQ(B, C), D)": 0.6}


def unit(events: pa.Table) -> float:
    return unit_of(events["t"].to_numpy(), events["key"].to_numpy())


def detect(events: pa.Table, query: str) -> pa.Table:
    return ensue.detect(events, query, time="t", type="type", limits=ensue.Limits(matches=None))


def pattern_figures(count: int, keys: int) -> Iterator[Figure]:
    """Each pattern with and without a key, also on twice the input, and one of them in random order."""
    events, twice = make_events(count, keys, 20), make_events(2 * count, 2 * keys, 20)
    sorting = unit(events)
    for name, (pattern, share) in PATTERNS.items():
        for keyed in (True, False):
            query = query_text(pattern, share, count, keys if keyed else 1, 20, keyed)
            matches = detect(events, query).num_rows
            spent = seconds(lambda query=query: detect(events, query))
            note = (
                f"{count / spent / 1e6:.0f} million events a second, {100 * matches / count:.2f} matches per 100 events"
            )
            label = "PARTITION BY key" if keyed else "no key"
            yield Figure(f"{name}, {label}", spent / sorting, "units", TARGETS[name] if keyed else 0.5, note=note)
            larger = query_text(pattern, share, 2 * count, 2 * keys if keyed else 1, 20, keyed)
            doubled = seconds(lambda larger=larger: detect(twice, larger))
            yield Figure(f"{name}, {label}, input doubled", doubled / spent, "times", 2.3)
    shuffled = make_events(count, keys, 20, in_order=False)
    query = query_text(*PATTERNS["SEQ(A, B, C)"], count, keys, 20, True)
    extra = seconds(lambda: detect(shuffled, query)) - seconds(lambda: detect(events, query))
    yield Figure("SEQ(A, B, C), random order of input, in addition", extra / sorting, "units", 1.2)


POLICIES = ("RECENT", "CHRONICLE", "CONTINUOUS", "NEXT")


def policy_figures(count: int, keys: int) -> Iterator[Figure]:
    """What choosing among the matches costs, against all matches of the same pattern: the worst of the patterns."""
    events = make_events(count, keys, 20)
    for keyed in (True, False):
        ratios = {
            name: policy_ratios(events, query_text(pattern, share, count, keys if keyed else 1, 20, keyed))
            for name, (pattern, share) in PATTERNS.items()
        }
        for policy in POLICIES:
            worst = max(of_pattern[policy] for of_pattern in ratios.values())
            note = ", ".join(f"{of_pattern[policy]:.2f}" for of_pattern in ratios.values()) + " for the three patterns"
            label = "PARTITION BY key" if keyed else "no key"
            yield Figure(f"MATCH {policy}, {label}", worst, "times all matches", 2.0, note=note)


def policy_ratios(events: pa.Table, query: str, repeat: int = 5) -> dict[str, float]:
    """The time of each policy in times of the query without one; they take turns, and the best runs count."""
    best = dict.fromkeys(("UNRESTRICTED", *POLICIES), float("inf"))
    for _ in range(repeat):
        for policy in best:
            text = query.replace(" RETURN", f" MATCH {policy} RETURN")
            best[policy] = min(best[policy], seconds(lambda text=text: detect(events, text), 1))
    return {policy: best[policy] / best["UNRESTRICTED"] for policy in POLICIES}


def relevant_figures(count: int, keys: int) -> Iterator[Figure]:
    """Three types only, so that every event is relevant."""
    query = query_text("SEQ(T00 a, T01 b, T02 c)", 0.25, count, keys, 3, True)
    events = make_events(count, keys, 3)
    sorting = unit(events)
    spent = seconds(lambda: detect(events, query))
    yield Figure("three types, in time order", spent / sorting, "units", 1.5)
    shuffled = make_events(count, keys, 3, in_order=False)
    extra = seconds(lambda: detect(shuffled, query)) - spent
    yield Figure("three types, random order of input, in addition", extra / sorting, "units", 1.2)


def fresh_process(code: str, **environment: str) -> list[float]:
    """The numbers that some code prints in a process of its own, with this file as `core`."""
    here = str(Path(__file__).parent)
    program = f"import sys; sys.path.insert(0, {here!r})\n{code}"
    variables = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=variables)
    return [float(number) for number in done.stdout.split()]


def memory_figure(count: int, keys: int) -> Figure:
    """Peak memory of a run, the input table included."""
    code = (
        "import core\n"
        f"events = core.make_events({count}, {keys}, 3)\n"
        f"query = core.query_text('SEQ(T00 a, T01 b, T02 c)', 0.25, {count}, {keys}, 3, True)\n"
        "core.detect(events.slice(0, 1000), query)\n"
        "print(core.peak_ratio(events, lambda: core.detect(events, query)))"
    )
    return Figure("peak memory, every event relevant", fresh_process(code)[0], "times the input", 4.0)


def peak_ratio(events: pa.Table, work: Callable[[], object]) -> float:
    """Peak resident memory that `work` adds, plus the table, in sizes of the table (Linux)."""
    return (peak_growth(work) + events.nbytes) / events.nbytes


def peak_growth(work: Callable[[], object]) -> int:
    """The bytes by which resident memory grows at most while `work` runs (Linux)."""
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    work()
    return _memory("VmHWM") - before


def _memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


def count_pairs(side: int) -> int:
    """A query bound by its output: every A before every B; the chunks are consumed one by one."""
    events = pa.table({"t": np.arange(2 * side), "type": ["A"] * side + ["B"] * side, "x": np.arange(2 * side)})
    query = "PATTERN SEQ(A a, B b) RETURN a.x AS first, b.x AS second"
    return sum(batch.num_rows for batch in ensue.detect_batches(events, query, time="t", type="type"))


def output_figures(matches: int) -> Iterator[Figure]:
    side = int(matches**0.5)
    begin = time.perf_counter()
    found = count_pairs(side)
    rate = found / (time.perf_counter() - begin) / 1e6
    yield Figure(f"SEQ(A, B) with {found / 1e6:.0f} million matches", rate, "million matches a second", 20, False)
    code = f"import core\ncore.count_pairs(10)\nprint(core.peak_growth(lambda: core.count_pairs({side})) / 2**20)"
    yield Figure("memory it takes, all chunks consumed", fresh_process(code)[0], "MiB", 256)


def hot_key_figures(count: int) -> Iterator[Figure]:
    """One key that holds all events in one window, against the same events spread over many keys."""
    hot, spread = make_events(count, 1, 4), make_events(count, count // 100, 4)
    patterns = {
        "equality": "SEQ(T00 a, T01 b, T02 c) WHERE a.x = b.x AND b.x = c.x",
        "rare event": "SEQ(T00 a [x < 20], NOT T01 b, T02 c)",
        "composite absence": "SEQ(T00 a [x < 20], NOT SEQ(T01 b, T03 d), T02 c)",
    }
    for name, pattern in patterns.items():
        query = f"PATTERN {pattern} PARTITION BY key WITHIN {TIME_SPAN} {RETURNED}"
        ratio = seconds(lambda query=query: detect(hot, query), 9) / seconds(
            lambda query=query: detect(spread, query), 9
        )
        yield Figure(f"hot key, {name}", ratio, "times the spread keys", 1.5)


def start_figures() -> Iterator[Figure]:
    """The first call in a fresh process, with kernels cached on disk and without."""
    code = (
        "import time; begin = time.perf_counter(); import ensue, pyarrow as pa\n"
        "events = pa.table({'t': [1, 2], 'type': ['A', 'B']})\n"
        "ensue.detect(events, 'PATTERN SEQ(A a, B b) WITHIN 5', time='t', type='type')\n"
        "print(time.perf_counter() - begin)"
    )

    fresh_process(code)
    cached = min(fresh_process(code)[0] for _ in range(3))
    yield Figure("first call in a fresh process, kernels cached", cached, "seconds", 2.0)
    with tempfile.TemporaryDirectory() as empty:
        compiled = fresh_process(code, NUMBA_CACHE_DIR=empty)[0]
    yield Figure("the same without the cache (once per machine)", compiled, "seconds", 60.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000, help="events of the large runs (default 10 million)")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    figures = [
        *start_figures(),
        *pattern_figures(arguments.events, arguments.keys),
        *policy_figures(arguments.events, arguments.keys),
        *relevant_figures(arguments.events, arguments.keys),
        memory_figure(arguments.events, arguments.keys),
        *output_figures(100_000_000 if arguments.events >= 10_000_000 else 10 * arguments.events),
        *hot_key_figures(min(arguments.events, 1_000_000)),
    ]
    give(figures, arguments.format)


if __name__ == "__main__":
    main()
