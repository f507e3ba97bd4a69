"""How soon the command line answers, each time as a process of its own; see `python benchmarks/startup.py --help`.

What is there on disk is read once before, so that the figures are those of a second call.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, give

from ensue.cli.measuring import seconds

PROGRAM = """\
PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 1 hour RETURN a.id AS id, b.t AS at, b.t - a.t AS took;
"""
TARGETS = {
    ("--version",): 0.1,
    ("check", "pair.ensue"): 0.3,
    ("fmt", "--check", "pair.ensue"): 0.3,
    ("--help",): 0.5,
    ("explain", "pair.ensue"): 0.8,
}


def start_figures(runs: int) -> Iterator[Figure]:
    """The best time of each command over a small file, and of Python itself, which none can be below."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pair.ensue").write_text(PROGRAM, encoding="utf-8")
        bare = seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), runs)
        yield Figure("python -c pass", bare, "seconds", 0.1)
        for arguments, target in TARGETS.items():
            command = [sys.executable, "-m", "ensue.cli", *arguments]

            def answer(command: list[str] = command) -> None:
                subprocess.run(command, cwd=folder, check=False, capture_output=True)

            answer()
            spent = seconds(answer, runs)
            yield Figure(
                f"ensue {' '.join(arguments)}", spent, "seconds", target, note=f"{spent / bare:.0f} times Python"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="runs of each command, the best counts (default 7)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    give(list(start_figures(arguments.runs)), arguments.format)


if __name__ == "__main__":
    main()
