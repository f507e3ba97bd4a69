"""Three questions to the incident log of the BPI Challenge 2013, each answered by plain Python too.

A made-up log of the same form is asked the same, so that these tests run where the real one is missing. The streams are
the activities (Queued, Accepted, Completed); a case is a partition.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import ensue

INCIDENTS = Path(__file__).parents[2] / "shared" / "data" / "bpic2013_incidents.csv.gz"
MADE_UP = Path(__file__).parents[1] / "examples" / "incidents" / "made_up.csv.gz"
needs_incidents = pytest.mark.skipif(not INCIDENTS.exists(), reason=f"the incidents are not at {INCIDENTS}")
each_log = pytest.mark.parametrize(
    "source", [pytest.param(MADE_UP, id="made up"), pytest.param(INCIDENTS, id="real", marks=needs_incidents)]
)

PING_PONG = """
PATTERN ping_pong
  SEQ(Queued first, NOT Queued, Queued back, NOT Queued, Queued again)
  WHERE first.support_group = again.support_group AND back.support_group != first.support_group
  PARTITION BY `case`
  WITHIN 7 days
  RETURN first.case AS incident, first.t AS since, again.t AS until,
         first.support_group AS home, back.support_group AS away
"""
REOPENED = """
PATTERN reopened
  SEQ(Completed c [status = 'Resolved'], NOT Completed closed [status = 'Closed'], Accepted a [status = 'In Progress'])
  PARTITION BY `case`
  WITHIN 5 days
  RETURN c.case AS incident, c.t AS resolved_at, a.t AS taken_up_at
"""
ABANDONED = """
PATTERN abandoned
  SEQ(Accepted a, NOT OR(Accepted later, Queued queued, Completed completed, Unmatched unmatched))
  PARTITION BY `case`
  WITHIN 30 days
  RETURN a.case AS incident, a.t AS since, a.status AS status
"""
Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an incident's status."""

    case: str
    time: datetime
    activity: str
    status: str
    group: str
    impact: str


@cache
def histories(source: Path = INCIDENTS) -> dict[str, list[Change]]:
    """The changes of each incident in the order of time; no incident has two at the same time."""
    found: dict[str, list[Change]] = {}
    with gzip.open(source, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            time = datetime.fromisoformat(row["time"])
            change = Change(row["case"], time, row["activity"], row["status"], row["support_group"], row["impact"])
            found.setdefault(change.case, []).append(change)
    for changes in found.values():
        changes.sort(key=lambda change: change.time)
        assert len({change.time for change in changes}) == len(changes)
    return found


@cache
def log(source: Path = INCIDENTS) -> pa.Table:
    changes = [change for history in histories(source).values() for change in history]
    return pa.table(
        {
            "case": [change.case for change in changes],
            "time": pa.array([change.time for change in changes], pa.timestamp("us", "UTC")),
            "activity": [change.activity for change in changes],
            "status": [change.status for change in changes],
            "support_group": [change.group for change in changes],
        }
    )


def detected(source: Path, query: str) -> Counter[Row]:
    found = ensue.detect(log(source), query, time="time", type="activity")
    return Counter(tuple(row.values()) for row in found.to_pylist())


def ping_pongs(source: Path) -> Iterator[Row]:
    """Three assignments in a row: to a group, to another one, and back to the first."""
    for case, history in histories(source).items():
        queued = [change for change in history if change.activity == "Queued"]
        for first, back, again in zip(queued, queued[1:], queued[2:], strict=False):
            if first.group == again.group != back.group and again.time - first.time <= timedelta(days=7):
                yield case, first.time, again.time, first.group, back.group


def reopenings(source: Path) -> Iterator[Row]:
    """Work on a resolved incident within five days, before it was closed."""
    for case, history in histories(source).items():
        for place, change in enumerate(history):
            if change.status == "Resolved":
                yield from ((case, change.time, later.time) for later in taken_up(change, history[place + 1 :]))


def taken_up(resolved: Change, behind: list[Change]) -> Iterator[Change]:
    for change in behind:
        if change.time - resolved.time > timedelta(days=5) or change.status == "Closed":
            return
        if change.activity == "Accepted" and change.status == "In Progress":
            yield change


def abandonments(source: Path) -> Iterator[Row]:
    """An incident that was accepted, and then nothing for thirty days, or nothing any more."""
    for case, history in histories(source).items():
        for change, following in zip(history, [*history[1:], None], strict=True):
            untouched = following is None or following.time - change.time > timedelta(days=30)
            if change.activity == "Accepted" and untouched:
                yield case, change.time, change.status


@each_log
def test_ping_pong_between_groups(source: Path) -> None:
    found = detected(source, PING_PONG)
    assert found == Counter(ping_pongs(source))
    assert found.total() == (1013 if source == INCIDENTS else 23)


@each_log
def test_resolved_and_reopened(source: Path) -> None:
    found = detected(source, REOPENED)
    assert found == Counter(reopenings(source))
    assert found.total() == (769 if source == INCIDENTS else 29)


@each_log
def test_accepted_and_then_no_activity_for_thirty_days(source: Path) -> None:
    found = detected(source, ABANDONED)
    assert found == Counter(abandonments(source))
    assert found.total() == (283 if source == INCIDENTS else 60)


@each_log
def test_abandoned_incidents_are_known_thirty_days_later(source: Path) -> None:
    """Month by month, each is reported in the month in which its thirty days end."""
    detector = ensue.Detector(ABANDONED, time="time", type="activity")
    months = [datetime(year, month, 1, tzinfo=UTC) for year in (2010, 2011, 2012) for month in range(1, 13)]
    times = log(source).column("time").to_pylist()
    found: Counter[Row] = Counter()
    for since, until in pairwise(months):
        batch = log(source).filter(pa.array([since < time <= until for time in times]))
        step = detector.advance(batch, watermark=until)
        rows = [tuple(row.values()) for row in step.matches.to_pylist()]
        assert all(since < row[1] + timedelta(days=30) <= until for row in rows)
        found.update(rows)
    assert detector.finish().matches.num_rows == 0
    assert found == Counter(abandonments(source))
