"""The events that a detector keeps can be asked about as any others."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

import ensue
from ensue import StateError

ROWS = pa.table(
    {
        "t": [1, 2, 3, 4, 9, 9],
        "type": ["A", "B", "A", "Z", "C", "A"],
        "k": [7, 7, 8, 8, 7, 9],
        "x": [10, 20, 30, 40, 50, 60],
        "y": ["a", "b", "c", "d", "e", "f"],
    }
)
LEVELS = """
STREAM pair FROM PATTERN SEQ(A a, B b) WHERE a.x < b.x PARTITION BY k WITHIN 8 RETURN a.k AS k, a.x AS start;
PATTERN SEQ(pair p, A late, C c) PARTITION BY k WITHIN 20 RETURN p.k AS k, p.start AS x, late.y AS y
"""


def advanced(query: str, watermark: int = 5, events: object = ROWS) -> ensue.Detector:
    detector = ensue.Detector(query, time="t", type="type" if isinstance(events, pa.Table | pd.DataFrame) else None)
    detector.advance(events, watermark=watermark)
    return detector


def test_kept_events_are_those_of_the_table_with_the_columns_that_are_read() -> None:
    detector = advanced("PATTERN SEQ(A a, B b, C c) PARTITION BY k WITHIN 8 RETURN a.x AS x")
    kept = detector.kept_events()
    assert kept.column_names == ["t", "type", "k", "x"]
    assert kept.num_rows == detector.kept_rows
    assert kept.column("t").to_pylist() == [1, 2, 3, 9, 9]
    again = ensue.detect(kept, "PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 2 RETURN a.k AS k", time="t", type="type")
    assert again.to_pylist() == [{"k": 7}]


@pytest.mark.parametrize("query", ["PATTERN SEQ(A a, C c) WITHIN 9 EVENTS", "PATTERN SEQ(A a, C c) CONSUME"])
def test_what_the_engine_notes_of_events_is_left_out(query: str) -> None:
    assert advanced(query).kept_events().column_names == ROWS.column_names


def test_what_several_levels_keep_comes_once() -> None:
    detector = advanced(LEVELS)
    kept = detector.kept_events()
    # Both levels keep the A that is still to come, one its `x` and the other its `y`.
    assert detector.kept_rows > kept.num_rows + detector.kept_events(derived=True)["pair"].num_rows
    assert sorted(kept.column("t").to_pylist()) == [1, 3, 9, 9]


def test_equal_rows_are_as_many_as_came() -> None:
    twice = pa.concat_tables([ROWS.slice(0, 1)] * 2)
    assert advanced(LEVELS, watermark=0, events=twice).kept_events().num_rows == 2


def test_events_of_declared_streams_have_their_times_and_attributes() -> None:
    derived = advanced(LEVELS).kept_events(derived=True)
    assert derived["pair"].to_pylist() == [{"start": 1, "end": 2, "k": 7, "start_": 10}]
    found = ensue.detect(derived, "PATTERN pair p RETURN p.k AS k", time="start", end="end")
    assert found.to_pylist() == [{"k": 7}]
    assert advanced("PATTERN SEQ(A a, B b)").kept_events(derived=True) == {}


def test_tables_per_stream_come_back_per_stream_and_in_their_kind() -> None:
    tables = {
        name: ROWS.filter(pa.compute.field("type") == name).drop_columns(["type"]).to_pandas() for name in ("A", "B")
    }
    kept = advanced("PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 8 RETURN a.x AS x", events=tables).kept_events()
    assert list(kept) == ["A", "B"]
    assert isinstance(kept["A"], pd.DataFrame)
    assert list(kept["A"]["t"]) == [1, 3, 9]
    assert len(kept["B"]) == 0


def test_before_the_first_step_there_are_none() -> None:
    with pytest.raises(StateError, match="no-state"):
        ensue.Detector("PATTERN A a", time="t", type="type").kept_events()


def test_events_that_nobody_needs_go_when_nothing_new_comes() -> None:
    """A step may put off to look for them, but not for ever."""
    count = 2000
    detector = ensue.Detector("PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 10", time="t", type="type")
    first = pa.table({"t": range(count), "type": ["A"] * count, "k": range(count)})
    detector.advance(first, watermark=0)
    detector.advance(pa.table({"t": [5000], "type": ["A"], "k": [1]}), watermark=4000)
    detector.advance(None, watermark=4001)
    assert detector.kept_rows == 1
    detector.advance(first.set_column(0, "t", pa.array(range(6000, 6000 + count))), watermark=5900)
    for step in range(20):
        late = pa.table({"t": [9000 + step], "type": ["A"], "k": [1]})
        detector.advance(late, watermark=8900)
    assert detector.kept_rows < 40
