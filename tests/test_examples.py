"""Each example as a user runs it: one command, at its default size, in an empty folder. It ends with a page."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from reports.test_report import facts_in
from test_incidents import INCIDENTS
from test_openssh import LOG

EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True, slots=True)
class Example:
    """The files that an example writes, and a line that it prints with the real data."""

    written: tuple[str, ...]
    said: str
    data: Path | None = None


EXPECTED = {
    "incidents": Example(("incidents.html",), "ping_pong: 334 matches", INCIDENTS),
    "library": Example(("library.html",), "The programs found all expected alerts and no others."),
    "notebooks": Example(("notebooks/01-first-steps.html", "notebooks/02-spark.html"), "Written"),
    "openssh": Example(("openssh.html",), "brute_force: 7", LOG),
    "smart_home": Example(("smart_home/home.svg", "smart_home/alerts.html"), "leak_unseen: 5"),
}


def test_each_folder_is_an_example() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/run.py")} == {*EXPECTED}
    assert {path.name for path in EXAMPLES.iterdir() if path.name != "__pycache__"} == {*EXPECTED}


def run(name: str, folder: Path, *arguments: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / name / "run.py"), *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=1200)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_at_its_default_size_and_ends_with_a_page(name: str, tmp_path: Path) -> None:
    expected = EXPECTED[name]
    printed = run(name, tmp_path)
    if expected.data is None or expected.data.exists():
        assert any(expected.said in line for line in printed)
    told = [word for line in printed if line.startswith("Written to ") for word in line.split() if "." in word]
    assert told == [*expected.written]
    assert printed[-1].endswith(expected.written[-1])
    for file in expected.written:
        assert has_matches(tmp_path / file), file


@pytest.mark.slow
@pytest.mark.parametrize(("name", "data"), [("incidents", "made_up.csv.gz"), ("openssh", "made_up.log")])
def test_made_up_data_is_said_to_be_made_up(name: str, data: str, tmp_path: Path) -> None:
    printed = run(name, tmp_path, str(EXAMPLES / name / data))
    assert "made up" in printed[0]
    assert has_matches(tmp_path / f"{name}.html")


def has_matches(page: Path) -> bool:
    """Whether a page shows matches; whether a picture has lines, or a notebook has a table of results."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".svg":
        return text.count("<path") > 5
    if page.parent.name == "notebooks":
        return "<iframe" in text or re.search(r"\|\s*2\|2024-03-01 10:20:00\|", text) is not None
    return len(facts_in(text)["matches"]) > 0
