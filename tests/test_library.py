"""The library of `examples/library`, in one process: what its generator has planted is found, and nothing else."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import ensue
from pages import blocks_of

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "library"
PAGES = [FOLDER / "README.md", ROOT / "docs" / "examples.md"]
EACH_STORY_TWICE = 22


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return import_module("generate")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return import_module("run")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_planted_is_found(seed: int, tmp_path: Path, generate: ModuleType, run: ModuleType) -> None:
    generate.write_day(tmp_path, generate.draw_day(seed, EACH_STORY_TWICE), files=3)
    expected = json.loads((tmp_path / "expected.json").read_text(encoding="utf-8"))
    found = run.comparable(run.find_in_batch(tmp_path), run.readings_by_id(tmp_path))
    assert list(run.differences(expected, found)) == []
    assert set(found) == {"BookliftingAlert", "ConfusionAlert", "OverlimitAlert", "Loans"}
    assert all(len(rows) >= 2 for rows in found.values())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("ShelfReading before, 10 seconds", "ShelfReading before, 1 second"), "missing BookliftingAlert"),
        (("CounterReading before, 10 seconds", "CounterReading before, 1 second"), "unexpected Loans"),
        (("LAST CardAtCounter", "CardAtCounter"), "unexpected Loans"),
        (("people >= 2", "people >= 3"), "missing ConfusionAlert"),
        (("OR(BookOnShelf again, Checkout c)", "BookOnShelf again"), "unexpected Loans"),
        (("2 hours\n  RETURN l.person", "6 hours\n  RETURN l.person"), "unexpected OverlimitAlert"),
    ],
)
def test_every_part_of_the_program_counts(
    change: tuple[str, str],
    told: str,
    tmp_path: Path,
    run: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A program that is changed in one place does not find what was planted, and the run says so."""
    text = run.PROGRAM.read_text(encoding="utf-8")
    assert change[0] in text
    changed = tmp_path / "changed.ensue"
    changed.write_text(text.replace(*change), encoding="utf-8")
    monkeypatch.setattr(run, "PROGRAM", changed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "--batch", "--visits", str(EACH_STORY_TWICE)])
    assert run.main() == 1
    assert f"\n{told}" in capsys.readouterr().out


def test_the_run_shows_alerts_with_their_readings(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "--batch"])
    assert run.main() == 0
    shown = capsys.readouterr().out.splitlines()
    [output] = [block.text for block in blocks_of(PAGES[1]) if "library/run.py" in block.text]
    cited = [line for line in output.splitlines() if not line.startswith("$ ") and line != "..."]
    assert shown[: len(cited) - 3] + shown[-3:] == cited


@pytest.mark.parametrize("seed", range(5))
def test_the_query_of_the_report_finds_what_was_planted(seed: int, generate: ModuleType, run: ModuleType) -> None:
    events, lifted = generate.draw_exits(seed)
    found = ensue.run(events, ensue.parse(run.REPORTED), time="t", type="type")
    assert set(found) == {"BookliftingAlert", "Nested"}
    for rows in found.values():
        assert sorted(rows.to_pylist(), key=str) == sorted(lifted, key=str)
    readings = sum(kind == "Book" for kind in events.column("type").to_pylist())
    assert readings // 2 < len(lifted) < readings


@pytest.mark.parametrize("change", [("1 minute", "4 minutes"), ("2 seconds", "9 seconds"), ("3 seconds", "1 second")])
def test_every_duration_of_the_query_of_the_report_counts(
    change: tuple[str, str], generate: ModuleType, run: ModuleType
) -> None:
    events, lifted = generate.draw_exits(seed=1)
    text = run.REPORTED.read_text(encoding="utf-8").replace(*change)
    found = ensue.run(events, text, time="t", type="type")["BookliftingAlert"]
    assert found.num_rows < len(lifted)


def test_differences_from_the_query_of_the_report_are_said(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "changed.ensue"
    changed.write_text(run.REPORTED.read_text(encoding="utf-8").replace("1 minute", "4 minutes"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "REPORTED", changed)
    monkeypatch.setattr(sys, "argv", ["run.py", "--batch", "--visits", str(EACH_STORY_TWICE)])
    assert run.main() == 1
    assert "\nmissing BookliftingAlert: " in capsys.readouterr().out


def test_same_seed_same_day(generate: ModuleType) -> None:
    day, again, other = (generate.draw_day(seed, EACH_STORY_TWICE) for seed in (5, 5, 6))
    assert generate.table_of(day).equals(generate.table_of(again))
    assert day.expected == again.expected
    assert day.expected != other.expected


def test_a_day_that_is_too_crowded_is_refused(generate: ModuleType) -> None:
    with pytest.raises(ValueError, match="too many visits"):
        generate.draw_day(1, 5_000)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_cite_the_program(page: Path, run: ModuleType) -> None:
    statements = [node for file in (run.PROGRAM, run.REPORTED) for node in ensue.parse(file).statements.statements]
    cited = [
        node
        for block in blocks_of(page)
        if block.word == "ensue"
        for node in ensue.parse(block.text).statements.statements
    ]
    assert cited
    assert all(node in statements for node in cited)
