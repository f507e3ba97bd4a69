"""The incidents of `examples/incidents`: every match is one that plain Python finds, incident by incident."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ensue
from test_docs import blocks_of
from test_incidents import INCIDENTS, MADE_UP, Change, Row, histories, needs_incidents

FOLDER = Path(__file__).parents[1] / "examples" / "incidents"
DOCS = FOLDER.parents[1] / "docs"
MONTH = timedelta(days=30)


@pytest.fixture(scope="module")
def run() -> ModuleType:
    spec = spec_from_file_location("incidents_example", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(
    scope="module",
    params=[pytest.param(MADE_UP, id="made up"), pytest.param(INCIDENTS, id="real", marks=needs_incidents)],
)
def source(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def found(run: ModuleType, source: Path) -> Any:
    return run.find(run.read_incidents(source))


def ping_pong(case: str, history: list[Change]) -> Iterator[Row]:
    """Four assignments in a row between two groups."""
    queued = [change for change in history if change.activity == "Queued"]
    for a, b, again, back in zip(queued, queued[1:], queued[2:], queued[3:], strict=False):
        if a.group == again.group != b.group == back.group and back.time - a.time <= MONTH:
            yield case, a.group, b.group, a.time, back.time


def pushed_back(case: str, history: list[Change]) -> Iterator[Row]:
    """First and later line with nothing completed between; of several, the first of each."""
    accepted = [change for change in history if change.activity == "Accepted"]
    completed = [change.time for change in history if change.activity == "Completed"]
    pairs = [
        (front, behind)
        for front in accepted
        if "2nd" not in front.group and "3rd" not in front.group
        for behind in accepted
        if ("2nd" in behind.group or "3rd" in behind.group)
        and front.time < behind.time <= front.time + MONTH
        and not any(front.time < done < behind.time for done in completed)
    ]
    for front, behind in pairs:
        earlier = any(other.time < front.time for other, same in pairs if same == behind)
        sooner = any(other.time < behind.time for same, other in pairs if same == front)
        if not earlier and not sooner:
            yield case, front.group, behind.group, front.time, behind.time


def reopened(case: str, history: list[Change]) -> Iterator[Row]:
    """The first work after a resolution, before anything else was completed."""
    for place, solved in enumerate(history):
        if solved.status != "Resolved":
            continue
        for change in history[place + 1 :]:
            if change.activity == "Completed" or change.time - solved.time > MONTH:
                break
            if change.activity == "Accepted" and change.status == "In Progress":
                yield case, solved.group, solved.time, change.time
                break


def no_answer(case: str, history: list[Change]) -> Iterator[Row]:
    """A wait for the user that nothing follows within two weeks."""
    for place, change in enumerate(history):
        behind = [later.time for later in history[place + 1 :] if later.activity != "Unmatched"]
        if change.status == "Wait - User" and not (behind and behind[0] - change.time <= timedelta(days=14)):
            yield case, change.group, change.time


def left_in_queue(case: str, history: list[Change]) -> Iterator[Row]:
    """An assignment that nothing follows within three days."""
    for place, change in enumerate(history):
        behind = [later.time for later in history[place + 1 :] if later.activity != "Unmatched"]
        if change.activity == "Queued" and not (behind and behind[0] - change.time <= timedelta(days=3)):
            yield case, change.group, change.impact, change.time


@pytest.mark.parametrize("reading", [ping_pong, pushed_back, reopened, no_answer, left_in_queue])
def test_plain_python_finds_the_same(
    source: Path, found: Any, reading: Callable[[str, list[Change]], Iterator[Row]]
) -> None:
    expected = Counter(row for case, history in histories(source).items() for row in reading(case, history))
    matches = found[reading.__name__]
    assert Counter(tuple(row.values()) for row in matches.to_pylist()) == expected
    assert expected.total() > (250 if source == INCIDENTS else 3)


def broken_rules(history: list[Change]) -> Iterator[str]:
    """Each closing ends a trace; what follows breaks a rule and is a new trace."""
    named = ("Closed", "Resolved", "Assigned", "In Call", "Awaiting Assignment", "In Progress")
    history = [change for change in history if change.status in named]
    seen: set[str] = set()
    for place, change in enumerate(history):
        if place and history[place - 1].status == "Closed":
            yield "ENDS(Closed)"
        seen.add(change.status)
        if change.status == "Closed" or place == len(history) - 1:
            if {"Assigned", "In Call"} <= seen:
                yield "EXCLUSIVE(Assigned, `In Call`)"
            if change.status == "Closed" and "Resolved" not in seen:
                yield "REQUIRE(Closed, Resolved)"
            if change.status == "Closed" and "Awaiting Assignment" in seen and "In Progress" not in seen:
                yield "REQUIRE(`Awaiting Assignment`, `In Progress`)"
            seen = set()


def test_plain_python_finds_the_same_broken_rules(run: ModuleType, source: Path) -> None:
    expected = Counter((case, rule) for case, history in histories(source).items() for rule in broken_rules(history))
    found = run.find_broken_rules(run.read_incidents(source)).to_pylist()
    assert Counter((row["case"], row["constraint"]) for row in found) == expected
    assert len({rule for _, rule in expected}) == (3 if source == INCIDENTS else 4)


def test_the_page_of_processes_cites_the_programs(run: ModuleType) -> None:
    page = DOCS / "processes.md"
    written = [ensue.parse(file).statements for file in (run.PROGRAM, run.RULES)]
    nodes = [node for own in written for node in (*own.statements, *own.constraints)]
    blocks = [ensue.parse(block.text).statements for block in blocks_of(page) if block.word == "ensue"]
    cited = [node for own in blocks for node in (*own.statements, *own.constraints)]
    assert cited
    assert all(node in nodes for node in cited)


@needs_incidents
def test_the_page_of_processes_cites_mined_shares(run: ModuleType) -> None:
    options = {"time": "time", "type": "status", "partition_by": "case", "share": 0.97, "support": 100}
    proposal = ensue.process.mine(run.read_incidents(INCIDENTS), **options)
    text = " ".join((DOCS / "processes.md").read_text(encoding="utf-8").split())
    assert f"Of its {len(proposal)} proposals" in text
    told = re.findall(r"CONSTRAINT (.*) PARTITION BY .* -- (.*) of (.*) traces", proposal.to_text())
    for rule in ("ENDS(Closed)", "EXCLUSIVE(Assigned, `In Call`)"):
        share, support = next((share, support) for written, share, support in told if written == rule)
        cited = f"`` {rule} ``" if "`" in rule else f"`{rule}`"
        assert f"{cited} holds in {share} of the {int(support):,}" in text


@needs_incidents
def test_pages_show_what_is_printed(
    run: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", str(INCIDENTS)])
    run.main()
    printed = capsys.readouterr().out.splitlines()
    for page in (FOLDER / "README.md", DOCS / "examples.md", DOCS / "processes.md"):
        block = next(block for block in blocks_of(page) if "incidents/run.py" in block.text)
        shown = [line for line in block.text.splitlines() if not line.startswith("$ ")]
        assert shown == printed, page
    assert (tmp_path / "incidents.html").stat().st_size < 1_000_000
