"""Measures the start-up time of the command line and of the first `detect`, each in its own process; see `--help`.

The files are read once before, so that the figures are those of a second call. The first `detect` runs
`SEQ(A a, NOT B b, C c) PARTITION BY k WITHIN 10` over six rows; its time is that of the whole process. It is compared
with a process that only imports numba, pandas, pyarrow and lark. The two take turns, and the medians count.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from figures import Figure, give

from ensue.apps.cli.bench import seconds

PROGRAM = """\
PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 1 hour RETURN a.id AS id, b.t AS at, b.t - a.t AS took;
"""
TARGETS = {
    ("--version",): 0.1,
    ("check", "pair.ensue"): 0.3,
    ("fmt", "--check", "pair.ensue"): 0.3,
    ("errors", "open-scope"): 0.3,
    ("--help",): 0.5,
    ("explain", "pair.ensue"): 0.8,
}

IMPORTS = "import numba, pandas, pyarrow, lark"
FIRST_DETECT = """\
import ensue, pyarrow as pa
kinds = ["A", "C", "A", "B", "C", "A"]
events = pa.table({"t": [1, 2, 3, 4, 5, 6], "type": kinds, "k": [1, 1, 2, 2, 2, 1]})
query = "PATTERN SEQ(A a, NOT B b, C c) PARTITION BY k WITHIN 10"
assert ensue.detect(events, query, time="t", type="type").num_rows == 1
"""
FIRST_DETECT_TARGET = 1.4


def first_detect_figure(runs: int) -> Figure:
    """The first `detect` of a process against the imports that it cannot do without."""
    codes = (IMPORTS, FIRST_DETECT)

    def spent(code: str) -> float:
        return seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True), 1)

    for code in codes:  # fills the caches on disk
        spent(code)
    turns = [[spent(code) for code in codes] for _ in range(runs)]
    imports, detect = (median(times) for times in zip(*turns, strict=True))
    note = f"{detect:.2f} s against {imports:.2f} s"
    return Figure(
        "first detect in a fresh process", detect / imports, "times the imports", FIRST_DETECT_TARGET, note=note
    )


def start_figures(runs: int) -> Iterator[Figure]:
    """The best time of each command over a small file, and of Python itself, which none can be below."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pair.ensue").write_text(PROGRAM, encoding="utf-8")
        bare = seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), runs)
        yield Figure("python -c pass", bare, "seconds", 0.1)
        for arguments, target in TARGETS.items():
            command = [sys.executable, "-m", "ensue.apps.cli", *arguments]

            def answer(command: list[str] = command) -> None:
                subprocess.run(command, cwd=folder, check=False, capture_output=True)

            answer()
            spent = seconds(answer, runs)
            yield Figure(
                f"ensue {' '.join(arguments)}", spent, "seconds", target, note=f"{spent / bare:.0f} times Python"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="runs of each measurement (default 7)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    give([*start_figures(arguments.runs), first_detect_figure(arguments.runs)], arguments.format)


if __name__ == "__main__":
    main()
