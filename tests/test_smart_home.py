"""The smart home of `examples/smart_home`: its answers are near the truth, and the same however the events come."""

from __future__ import annotations

import csv
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

import ensue
from pages import blocks_of

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "smart_home"
SEEDS = (1, 2, 3, 4, 5)
LARGEST_PLOT = 60_000


@pytest.fixture(scope="module")
def run() -> Any:
    """`run.py` under another name: other examples have a `run.py` as well."""
    spec = spec_from_file_location("smart_home_example", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def days(run: ModuleType) -> dict[int, Any]:
    return {seed: run.draw_day(seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def answers(run: ModuleType, days: dict[int, Any]) -> dict[int, pa.Table]:
    return {seed: run.answer(day.events) for seed, day in days.items()}


def test_a_day_is_drawn_the_same_again_and_has_all_kinds_of_events(run: ModuleType, days: dict[int, Any]) -> None:
    day = days[SEEDS[0]]
    assert run.draw_day(SEEDS[0]).events.equals(day.events)
    assert not days[SEEDS[1]].events.equals(day.events)
    kinds = set(day.events.column("type").to_pylist())
    assert kinds == {"Unlocked", "Moved", "alice", "bob", "Person", "Stove", "Leak", "Call"}
    assert 150 < day.events.num_rows < 500


@pytest.mark.parametrize("seed", SEEDS)
def test_the_most_likely_place_is_mostly_the_true_one(
    seed: int, run: ModuleType, days: dict[int, Any], answers: dict[int, pa.Table]
) -> None:
    for person in run.PEOPLE:
        true = run.texts(days[seed].truth, person)
        always_the_same = max(np.mean(true == place) for place in run.PLACES)
        right = np.mean(run.texts(answers[seed], person) == true)
        assert right > 0.8
        assert right > always_the_same + 0.3


@pytest.mark.parametrize(
    ("part", "nothing"),
    [("RELIABILITY 0.9\n", f"RELIABILITY {1 / 6}\n"), ("PROBABILITY 0.98", "PROBABILITY 0.0")],
    ids=["tags", "doors"],
)
def test_without_tags_or_doors_much_less_is_known(
    part: str, nothing: str, run: ModuleType, days: dict[int, Any], answers: dict[int, pa.Table]
) -> None:
    text = run.PROGRAM.read_text(encoding="utf-8")
    assert part in text
    poorer = ensue.parse(text.replace(part, nothing))
    questions = {person: run.QUESTIONS[person] for person in run.PEOPLE}
    right: dict[str, list[Any]] = {"all": [], "poorer": []}
    for seed, day in days.items():
        told = {
            "all": answers[seed],
            "poorer": ensue.beliefs.track(day.events, poorer, questions, time="t", type="type"),
        }
        for name, table in told.items():
            right[name] += [run.texts(table, person) == run.texts(day.truth, person) for person in run.PEOPLE]
    share = {name: np.concatenate(found).mean() for name, found in right.items()}
    assert share["all"] > share["poorer"] + 0.15


def test_probabilities_mean_what_they_say(run: ModuleType, days: dict[int, Any], answers: dict[int, pa.Table]) -> None:
    together = (
        pa.concat_tables([answers[seed] for seed in SEEDS]),
        pa.concat_tables([days[seed].truth for seed in SEEDS]),
    )
    found = run.calibration(*together)
    assert len(found) == run.BINS
    for said, so, statements in found:
        assert statements > 40
        assert abs(said - so) < 0.15


def test_the_three_questions_agree_with_each_other(run: ModuleType, answers: dict[int, pa.Table]) -> None:
    table = answers[SEEDS[0]]
    nobody, one, two = (run.numbers(table, f"{many}_home") for many in ("nobody", "one", "two"))
    np.testing.assert_allclose(nobody + one + two, 1)
    np.testing.assert_allclose(run.numbers(table, "at_home"), one + 2 * two)
    np.testing.assert_allclose(run.numbers(table, "alice_home"), 1 - run.numbers(table, "alice_outside"))
    for person in run.PEOPLE:
        np.testing.assert_allclose(sum(run.numbers(table, f"{person}_{place}") for place in run.PLACES), 1)


@pytest.mark.parametrize(
    ("anyone", "alice", "bob", "shown"),
    [
        (0.29, 0.29, 0.0, "off"),
        (0.30, 0.30, 0.0, "weather"),
        (0.80, 0.80, 0.0, "news"),
        (0.85, 0.79, 0.05, "weather"),
        (0.95, 0.05, 0.90, "sports"),
        (1.00, 0.0, 0.0, "weather"),
    ],
)
def test_the_display_shows_what_the_thresholds_say(
    anyone: float, alice: float, bob: float, shown: str, run: ModuleType
) -> None:
    table = pa.table({"anyone_living": [anyone], "only_alice_living": [alice], "only_bob_living": [bob]})
    assert run.with_display(table).column("display").to_pylist() == [shown]


def test_the_display_shows_all_of_its_contents_and_seldom_a_wrong_one(
    run: ModuleType, days: dict[int, Any], answers: dict[int, pa.Table]
) -> None:
    for seed in SEEDS:
        shown, wanted = run.texts(answers[seed], "display"), run.wanted_display(days[seed].truth)
        assert set(shown) == {"off", "news", "sports", "weather"}
        assert np.mean(shown == wanted) > 0.7
        assert np.mean(np.isin(shown, ["news", "sports"]) & (shown != wanted)) < 0.05


def test_alerts_of_leaks_are_those_that_nobody_can_see(run: ModuleType, days: dict[int, Any]) -> None:
    told = empty = 0
    for day in days.values():
        leaks = run.texts(day.events, "type") == "Leak"
        unseen = leaks & run.kitchen_empty(day.truth)
        times = np.asarray(day.events.column("t").to_pylist())
        alerts = run.find(day.events)["leak_unseen"].column("at").to_pylist()
        assert set(alerts) <= set(times[leaks])
        told += len(set(alerts) & set(times[unseen]))
        empty += int(unseen.sum())
        assert len(set(alerts) - set(times[unseen])) <= 1
    assert told >= 0.8 * empty > 0


@pytest.mark.parametrize("size", [1, 40])
def test_batches_and_restarts_give_the_same_answers(
    size: int, run: ModuleType, days: dict[int, Any], answers: dict[int, pa.Table]
) -> None:
    """After every batch all is thrown away but the snapshot. Batches of one row are tried on the morning only."""
    whole = answers[SEEDS[0]]
    events = days[SEEDS[0]].events.slice(0, 30 if size == 1 else None)
    rows, saved = [], None
    for first in range(0, events.num_rows, size):
        tracker = ensue.Detector(ensue.parse(run.PROGRAM), measures=run.QUESTIONS, time="t", type="type")
        if saved is not None:
            tracker.restore(saved)
        batch = events.slice(first, size)
        following = events.slice(first + size, 1).column("t").to_pylist()
        last = batch.column("t").to_pylist()[-1]
        assert [last] != following, "a batch ends between two events of one time"
        rows.append(tracker.advance(batch, watermark=last).tracked)
        saved = tracker.snapshot()
    streamed = run.with_display(pa.concat_tables(rows))
    assert streamed.num_rows == events.num_rows
    for name in streamed.column_names:
        found, expected = streamed.column(name).to_pylist(), whole.column(name).to_pylist()[: events.num_rows]
        if pa.types.is_floating(streamed.schema.field(name).type):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
        else:
            assert found == expected, name


def test_pages_show_what_is_printed_and_drawn(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    run.main()
    printed = capsys.readouterr().out.splitlines()
    for page in (FOLDER / "README.md", ROOT / "docs" / "examples.md"):
        block = next(block for block in blocks_of(page) if "smart_home/run.py" in block.text)
        shown = [line for line in block.text.splitlines() if not line.startswith("$ ")]
        assert shown == printed or [*printed[: len(shown) - 1], "..."] == shown, page
    drawn = (tmp_path / "smart_home" / "home.svg").read_text(encoding="utf-8")
    assert drawn == (FOLDER / "home.svg").read_text(encoding="utf-8")
    assert len(drawn) < LARGEST_PLOT
    ElementTree.fromstring(drawn)
    with (tmp_path / "smart_home" / "answers.csv").open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    assert f"{len(written)} events" in printed[0]
    assert {*run.QUESTIONS, "display"} <= set(written[0])


def test_the_small_numbers_of_the_paper() -> None:
    rooms = "STATE location OF alice IN (living, den) ON Seen s: OBSERVE alice IN s.room RELIABILITY 0.9"
    seen = pa.table({"t": [1], "type": ["Seen"], "room": ["den"]})
    marginal = ensue.beliefs.of(seen, rooms, time="t", type="type").marginal("alice").to_pylist()
    assert {row["value"]: row["probability"] for row in marginal} == pytest.approx({"living": 0.1, "den": 0.9})
    home = """STATE location OF alice, bob IN (living, den, kitchen) STARTS alice: living, bob: kitchen
      ON Moved m: MOVE ANYONE FROM m.source TO m.target"""
    moved = pa.table({"t": [1], "type": ["Moved"], "source": ["living"], "target": ["den"]})
    likely = ensue.beliefs.of(moved, home, time="t", type="type").most_likely().to_pylist()
    assert likely == [{"alice": "den", "bob": "kitchen", "probability": 1.0}]
