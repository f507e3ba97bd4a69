"""Constraints mined from the incidents of the BPI Challenge 2013, and what they save in queries on them."""

from __future__ import annotations

import pyarrow as pa

import ensue
from test_incidents import log, needs_incidents

pytestmark = needs_incidents

CALLED_AFTER_WAITING = """
PATTERN SEQ(`Wait - User` w, `In Call` c) PARTITION BY `case`
  RETURN w.`case` AS incident, w.time AS waited, c.time AS called
"""
SIZE = 1000


def followed(events: pa.Table, constraints: ensue.process.Proposal | None) -> tuple[list[str], ensue.Report]:
    """The matches of a run in steps of some rows, and its report."""
    detector = ensue.Detector(CALLED_AFTER_WAITING, time="time", type="status", constraints=constraints)
    found = []
    for first in range(0, events.num_rows, SIZE):
        part = events.slice(first, SIZE)
        found.append(detector.advance(part, watermark=part["time"][-1].as_py()).matches)
    found.append(detector.finish().matches)
    return sorted(map(str, pa.concat_tables(found).to_pylist())), detector.report


def test_mined_constraints_save_most_of_the_state() -> None:
    events = log().sort_by("time")
    proposal = ensue.process.mine(events, time="time", type="status", partition_by="case", support=5)
    found, spared = followed(events, proposal)
    plain, report = followed(events, None)
    assert found == plain
    assert len(found) > 50
    assert spared.traces_failed > 5000
    assert spared.events_skipped > 3000
    assert spared.peak_held * 10 < report.peak_held
