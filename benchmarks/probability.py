"""Uncertain events: the cost of probabilities, and of the exact probability of any match; see `--help`.

*Cost.* The patterns of the core benchmark, over events whose probabilities are all 1, and over events with 10 %
uncertain events, each as a multiple of the run without probabilities over the same rows.

*Any match.* One key with uncertain events, half of them `A` and half `B`, within one window: every `A` shares its
matches with every later `B`. The probability is computed exactly with a decision diagram, and estimated from 100,000
worlds. `--plots` draws the seconds over the number of events.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from figures import Figure, give

import ensue
from ensue.apps.cli.bench import PATTERNS, make_events, query_text, seconds

MOST = 1.25
"""The target for the cost of a column of probabilities that are all 1."""

SHARED = (8, 16, 32, 64, 128)
NAMED = {"time": "t", "type": "type", "probability": "p"}


def cost_figures(events: int, keys: int, runs: int) -> list[Figure]:
    table, figures = make_events(events, keys), []
    drawn = np.random.default_rng(8).random(events)
    certain = table.append_column("p", pa.array(np.ones(events)))
    doubtful = table.append_column("p", pa.array(np.where(drawn < 0.1, 0.5, 1.0)))
    for name, (pattern, share) in PATTERNS.items():
        query = query_text(pattern, share, events, keys)
        crisp = seconds(lambda query=query: ensue.detect(certain, query, time="t", type="type"), runs)
        ones = seconds(lambda query=query: ensue.detect(certain, query, **NAMED), runs)
        some = seconds(lambda query=query: ensue.detect(doubtful, query, **NAMED), runs)
        figures.append(Figure(f"{name}, all certain", ones / crisp, "of the crisp run", MOST))
        figures.append(Figure(f"{name}, a tenth uncertain", some / crisp, "of the crisp run", 5))
    return figures


def measure_any(number: int, runs: int) -> tuple[float, float, float]:
    """Seconds of the exact and of the estimated probability that there is any match, and how far they are apart."""
    kinds, chances = ["A", "B"] * (number // 2), np.random.default_rng(9).uniform(0.01, 0.2, number)
    table = pa.table({"t": range(number), "type": kinds, "p": chances})
    query = f"PATTERN SEQ(A a, B b) WITHIN {number}"
    found = {}

    def work(kind: str, **options: int) -> None:
        (found[kind],) = ensue.any_match(table, query, **NAMED, **options).to_pylist()

    exact = seconds(lambda: work("exact", most_nodes=10_000_000), runs)
    estimated = seconds(lambda: work("estimated", most_nodes=1), runs)
    if not found["exact"]["exact"] or found["estimated"]["exact"]:
        raise SystemExit(f"with {number} events, the exact computation gave up, or there was no estimate")
    return exact, estimated, abs(found["exact"]["probability"] - found["estimated"]["probability"])


def plot(numbers: Sequence[int], exact: Sequence[float], estimated: Sequence[float], folder: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.loglog(numbers, exact, marker="o", label="exact")
    axes.loglog(numbers, estimated, marker="s", label="estimated from 100,000 worlds")
    axes.set_xlabel("uncertain events that matches share")
    axes.set_ylabel("seconds")
    axes.legend()
    figure.tight_layout()
    figure.savefig(folder / "any_match.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=3_000_000, help="events of the cost part (default 3,000,000)")
    parser.add_argument("--keys", type=int, default=30_000, help="keys of the cost part (default 30,000)")
    parser.add_argument("--shared", type=int, nargs="+", default=SHARED, help="numbers of events of the any-match part")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement; the best one counts")
    parser.add_argument("--plots", type=Path, help="folder for the plot; requires the extra `bench`")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    figures = cost_figures(arguments.events, arguments.keys, arguments.runs)
    measured = [measure_any(number, arguments.runs) for number in arguments.shared]
    for number, (exact, estimated, apart) in zip(arguments.shared, measured, strict=True):
        name = f"any match, {number} events"
        figures.append(Figure(f"{name}: exact", exact, "seconds", 60))
        figures.append(Figure(f"{name}: estimated", estimated, "seconds", 60, note=f"off by {apart:.4f}"))
    if arguments.plots is not None:
        arguments.plots.mkdir(parents=True, exist_ok=True)
        plot(arguments.shared, [m[0] for m in measured], [m[1] for m in measured], arguments.plots)
    give(figures, arguments.format)


if __name__ == "__main__":
    main()
