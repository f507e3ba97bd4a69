"""Compares this working tree with another revision, in one run: `python benchmarks/compare.py REV`.

It checks out REV into its own folder with its own environment, from its own lock files. Both sides run the same
generated programs, and every difference is shown. Then the benchmarks run on both sides in turns, each side with its
own scripts, and every figure that both sides have is shown as a ratio. A side without a script for a benchmark runs
ours. `--same-scripts` runs ours on both sides, for new figures. The exit code is 1 if an answer differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SIZES = {
    "core": ["--events", "1000000", "--keys", "10000"],
    "constraints": ["--traces", "2000", "--concurrent", "1000", "--runs", "2"],
    "rules": ["--runs", "2"],
    "probability": ["--events", "100000", "--keys", "1000", "--runs", "2"],
    "state": ["--events", "20000", "--keys", "500", "--runs", "2"],
    "startup": ["--runs", "3"],
    "steps": ["--share", "0.2", "--runs", "2"],
    "patterns": ["--patterns", "100", "1000", "--runs", "1"],
    "ties": ["--events", "100000", "--rounds", "5"],
    "semantic_windows": ["--events", "20000", "--runs", "1"],
    "spark": ["--events", "1000000", "--runs", "1"],
}
"""The benchmarks and how large they are here: large enough to be compared, small enough to be run twice."""
DEFAULT = ("core", "constraints", "rules", "probability", "state", "startup", "steps", "patterns")


@dataclass(frozen=True, slots=True)
class Side:
    """A checked-out revision with its interpreter."""

    name: str
    root: Path
    python: Path

    def run(self, *command: str) -> str:
        """What a Python command prints, with this side's own sources."""
        variables = {**os.environ, "PYTHONPATH": str(self.root / "src")}
        done = subprocess.run(
            [str(self.python), *command], cwd=self.root, env=variables, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout


@contextmanager
def checked_out(revision: str) -> Iterator[Side]:
    """The revision in a temporary work tree, with an environment from its lock files."""
    with tempfile.TemporaryDirectory(prefix="ensue-compare-") as folder:
        root = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(root), revision], cwd=ROOT, check=True)
        try:
            subprocess.run(["make", "--silent", "setup"], cwd=root, check=True, stdout=sys.stderr)
            yield Side(revision, root, root / ".venv" / "bin" / "python")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(root)], cwd=ROOT, check=True)


# Drawn programs


def draw(programs: int, seed: int, path: Path) -> None:
    """Writes drawn questions, of all kinds in the proportions of the golden record."""
    sys.path.insert(0, str(ROOT / "tests"))
    from golden import draw as golden
    from golden.adapter import to_json

    total = sum(number for number, _ in golden.KINDS)
    shares = [(max(1, number * programs // total), strategy) for number, strategy in golden.KINDS]
    questions = [question for number, strategy in shares for question in golden.questions(strategy, number, seed)]
    path.write_text("\n".join(to_json(question, {}) for question in questions), "utf-8")


def answer(tests: Path, path: Path) -> None:
    """Prints the answers to the questions of a file, and the seconds of the better of two rounds."""
    sys.path.insert(0, str(tests))
    from golden.adapter import answer_of, from_json

    questions = [from_json(line)[0] for line in path.read_text("utf-8").split("\n")]
    rounds = []
    for _ in range(2):
        begin = time.perf_counter()
        answers = [answer_of(question) for question in questions]
        rounds.append(time.perf_counter() - begin)
    json.dump({"answers": answers, "seconds": min(rounds)}, sys.stdout)


def answered_by(side: Side, path: Path) -> dict[str, Any]:
    """The answers of one side, by its own adapter of the API if it has one."""
    own = side.root / "tests"
    tests = own if (own / "golden" / "adapter.py").exists() else ROOT / "tests"
    found: dict[str, Any] = json.loads(side.run(__file__, "--answer", str(tests), str(path)))
    return found


def differences(path: Path, sides: Sequence[Side]) -> tuple[list[str], str]:
    """The questions that the two sides answer differently, and what both took for all."""
    sys.path.insert(0, str(ROOT / "tests"))
    from golden.adapter import from_json, same

    questions = [from_json(line)[0] for line in path.read_text("utf-8").split("\n")]
    new, old = (answered_by(side, path) for side in sides)
    found = [
        f"{question.kind}, {way}:\n{question.program}\n{sides[1].name}: {was.get(way)}\nnow: {now.get(way)}"
        for question, now, was in zip(questions, new["answers"], old["answers"], strict=True)
        for way in now | was
        if not same(was.get(way), now.get(way))
    ]
    ratio = new["seconds"] / old["seconds"]
    return found, f"{len(questions)} generated programs: {len(found)} differences, {ratio:.2f} times the seconds"


# Benchmarks


def figures_of(side: Side, benchmark: str, same_scripts: bool) -> dict[str, dict[str, Any]]:
    own = side.root / "benchmarks" / f"{benchmark}.py"
    script = own if own.exists() and not same_scripts else ROOT / "benchmarks" / own.name
    printed = side.run(str(script), *SIZES[benchmark], "--format", "json")
    return {figure["name"]: figure for figure in json.loads(printed)}


def ratios(benchmark: str, sides: Sequence[Side], rounds: int, same_scripts: bool) -> Iterator[str]:
    """The figures that both sides have; the better of some rounds in which the sides take turns."""
    runs = [[figures_of(side, benchmark, same_scripts) for side in sides] for _ in range(rounds)]
    new, old = ([turn[place] for turn in runs] for place in (0, 1))
    for name in new[0]:
        if name not in old[0]:
            continue
        better = min if new[0][name]["at_most"] else max
        now, was = (better(figures[name]["value"] for figures in side) for side in (new, old))
        measure = new[0][name]["measure"]
        yield f"{benchmark}: {name}: {was:.4g} -> {now:.4g} {measure}" + (f" ({now / was:.2f})" if was else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", default="HEAD", help="the revision to compare with (default HEAD)")
    parser.add_argument("--programs", type=int, default=1000, help="number of programs to generate (0: none)")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the programs")
    parser.add_argument("--benchmarks", nargs="*", choices=tuple(SIZES), default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=2, help="number of runs of each benchmark on each side")
    parser.add_argument("--same-scripts", action="store_true", help="run our scripts on both sides")
    parser.add_argument("--answer", nargs=2, metavar=("TESTS", "FILE"), type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.answer:
        answer(*arguments.answer)
        return
    differ = False
    with checked_out(arguments.revision) as other, tempfile.TemporaryDirectory() as folder:
        sides = (Side("now", ROOT, Path(sys.executable)), other)
        if arguments.programs:
            path = Path(folder) / "questions.jsonl"
            draw(arguments.programs, arguments.seed, path)
            found, summary = differences(path, sides)
            differ = bool(found)
            print("\n\n".join([*found, summary]), flush=True)
        for benchmark in arguments.benchmarks:
            for line in ratios(benchmark, sides, arguments.rounds, arguments.same_scripts):
                print(line, flush=True)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
