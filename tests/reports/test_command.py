"""`ensue report`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from inside import app

PROGRAM = "PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 1 hour;\n"
EVENTS = "t,type,id\n2025-03-10T08:00:00,A,1\n2025-03-10T08:10:00,B,1\n2025-03-10T09:00:00,A,2\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.ensue").write_text(PROGRAM)
    (tmp_path / "events.csv").write_text(EVENTS)
    (tmp_path / "pipeline.yaml").write_text("quer: PATTERN SEQ(A a, B b)\n")
    return tmp_path


def report(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["report", *arguments])


def on_events(*arguments: str) -> Result:
    return report("pair.ensue", "--events", "events.csv", "--time", "t", "--type", "type", *arguments)


def test_the_page_is_written_and_what_it_shows_is_said(folder: Path) -> None:
    done = on_events("--keys", "1", "--title", "Pairs & more")
    assert done.exit_code == 0, done.output
    assert done.stderr == "pair: 1 match\nshown: 1 of 2 keys (id)\nWritten to report.html\n"
    assert done.stdout == ""
    assert "<title>Pairs &amp; more</title>" in (folder / "report.html").read_text(encoding="utf-8")


def test_what_was_found_as_json(folder: Path) -> None:
    done = on_events("--format", "json", "--output", "pairs.html")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"report": "pairs.html", "rows": 3, "matches": {"pair": 1}, "shown": []}
    assert "<title>pair</title>" in (folder / "pairs.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (("pair.ensue",), "missing-events", 2),
        (("pair.ensue", "--events", "events.csv"), "missing-events", 2),
        (("pipeline.yaml", "--events", "events.csv"), "pipeline-events", 2),
        (("pipeline.yaml",), "pipeline-key", 1),
        (("no.yaml",), "no-such-file", 2),
        (("pairs.ensue", "--events", "events.csv", "--time", "t"), "no-such-file", 2),
        (("pair.ensue", "--events", "event.csv", "--time", "t"), "no-such-file", 2),
        (("pair.ensue", "--events", "events.csv", "--time", "at", "--type", "type"), "no-such-column", 1),
        (("pair.ensue", "--events", "events.csv", "--time", "t", "--type", "type", "--output", "no/r.html"),
         "unwritable-report", 2),
    ],
)  # fmt: skip
def test_wrong_input(folder: Path, arguments: tuple[str, ...], code: str, exit_code: int) -> None:
    done = report(*arguments)
    assert f"error[{code}]" in done.stderr, done.stderr
    assert done.exit_code == exit_code
    assert not list(folder.glob("*.html"))
