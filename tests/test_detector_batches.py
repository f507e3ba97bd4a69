"""Batches as pandas makes them: columns that hold nothing at first, numbers that change their type, late rows."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import pytest

import ensue

QUERY = "PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 50"


def frame(*rows: tuple[int, str, object, object]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["t", "type", "k", "note"])


def detector(query: str = QUERY) -> ensue.Detector:
    return ensue.Detector(query, time="t", type="type")


def test_a_column_that_held_nothing_takes_the_first_real_type() -> None:
    found = detector()
    found.advance(frame((1, "A", 7, None)), watermark=1)
    step = found.advance(frame((2, "B", 7, "hello")), watermark=2)
    assert step.matches["b"][0]["note"] == "hello"
    assert step.matches["a"][0]["note"] is None


def test_the_first_batch_may_be_an_empty_pandas_table() -> None:
    found = detector()
    found.advance(frame().head(0), watermark=0)
    found.advance(frame((1, "A", 7, "x")), watermark=1)
    assert len(found.advance(frame((2, "B", 7, "y")), watermark=2).matches) == 1


@pytest.mark.parametrize("keys", [(7, 7.0, None), (7.0, 7, None)])
def test_integers_and_floats_that_hold_them_are_one(keys: tuple[object, ...]) -> None:
    first, second, nothing = keys
    found = detector()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ensue.EnsueWarning)
        found.advance(frame((1, "A", first, "x")), watermark=1)
        step = found.advance(frame((2, "B", second, "y"), (2, "B", nothing, "z")), watermark=2)
    assert len(step.matches) == 1


def test_a_fraction_where_integers_were_is_refused() -> None:
    found = detector()
    found.advance(frame((1, "A", 7, "x")), watermark=1)
    with pytest.raises(ensue.SchemaError, match=r"column-type.*`k`"):
        found.advance(frame((2, "B", 7.5, "y")), watermark=2)


def test_columns_that_the_query_does_not_use_may_change_or_go() -> None:
    found = detector(QUERY + " RETURN b.t AS at")
    found.advance(frame((1, "A", 7, "x")), watermark=1)
    assert len(found.advance(frame((2, "B", 7, 5)), watermark=2).matches) == 1
    assert len(found.advance(frame((3, "B", 7, 5)).drop(columns="note"), watermark=3).matches) == 1


def test_late_rows_come_back_whole_and_are_said_once() -> None:
    found = detector(QUERY + " RETURN b.t AS at")
    found.advance(frame((5, "A", 7, "x")), watermark=5)
    with pytest.warns(ensue.EnsueWarning, match="2 .*at or before the watermark") as caught:
        step = found.advance(frame((4, "A", 7, "late"), (5, "B", 7, "late"), (6, "B", 7, "y")), watermark=6)
    assert caught[0].filename == __file__
    assert list(step.late["note"]) == ["late", "late"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(found.advance(frame((1, "A", 7, "late")), watermark=7).late) == 1
    assert found.report.late == 3


def test_types_learned_late_survive_a_restart() -> None:
    found = detector()
    found.advance(frame((1, "A", 7, None)), watermark=1)
    found.advance(frame((2, "A", 7, "hello")), watermark=2)
    again = detector()
    again.restore(found.snapshot())
    assert len(again.finish(frame((3, "B", 7, "bye"))).matches) == 2


def test_a_type_column_that_holds_none_of_the_streams_is_said() -> None:
    events = pa.table({"t": [1, 2], "type": ["A", "B"], "status": ["Open", "Closed"]})
    with pytest.warns(ensue.EnsueWarning, match=r"column `status` has none of the streams.*Open, Closed"):
        assert ensue.detect(events, "PATTERN SEQ(A a, B b)", time="t", type="status").num_rows == 0


def test_a_variable_written_twice_in_a_sequence_is_explained() -> None:
    with pytest.raises(ensue.QueryError, match="a variable used twice binds one event"):
        ensue.explain("PATTERN SEQ(A a, B b, A a) WITHIN 5")


def test_a_program_with_several_results_gives_each_by_name() -> None:
    program = "PATTERN p SEQ(A a, B b) WITHIN 5 RETURN a.t AS a; PATTERN q SEQ(A a, C c) WITHIN 5 RETURN c.t AS c"
    detector = ensue.Detector(program, time="t", type="type")
    assert detector.push({"t": 1, "type": "A"}, watermark=1) == {"p": [], "q": []}
    assert detector.push({"t": 2, "type": "B"}, watermark=2) == {"p": [{"a": 1}], "q": []}
    step = detector.advance(pd.DataFrame({"t": [3], "type": ["C"]}), watermark=3)
    assert {name: rows.to_dict("list") for name, rows in step.matches.items()} == {"p": {"a": []}, "q": {"c": [3]}}
    assert "p: 0 rows, columns a; q: 1 row, columns c" in repr(step)
    told: list[object] = []
    acting = program.replace("PATTERN p", "STREAM p FROM PATTERN") + "; PATTERN r (p v); ON p v DO tell(v.a)"
    detector = ensue.Detector(acting, time="t", type="type", actions={"tell": told.append})
    found = detector.finish(pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"]})).matches
    assert {name: table.num_rows for name, table in found.items()} == {"q": 1, "r": 1}
    assert told == [1]


def test_pushed_rows_count_and_are_kept_like_others() -> None:
    pushed, whole = detector(), detector()
    rows = [{"t": t, "type": kind, "k": 7, "note": "x"} for t, kind in enumerate("AZABZB", start=1)]
    whole.advance(pa.Table.from_pylist(rows), watermark=6)
    for row in rows:
        pushed.push(row, watermark=row["t"])
    assert pushed.report.rows == whole.report.rows == 6
    assert pushed.report.matches == whole.report.matches == 4
    assert pushed.watermark == whole.watermark
    assert pushed.kept_events().equals(whole.kept_events())
    assert pushed.snapshot().num_rows == 1


def test_pushed_rows_that_are_late_or_lack_a_time_are_said() -> None:
    found = detector()
    found.push({"t": 5, "type": "A", "k": 7, "note": None}, watermark=5)
    with pytest.warns(ensue.EnsueWarning, match="1 .*at or before the watermark"):
        assert found.push({"t": 4, "type": "B", "k": 7}, watermark=5) == []
    with pytest.warns(ensue.EnsueWarning, match="1 row ignored: no timestamp"):
        assert found.push({"t": None, "type": "B", "k": 7}, watermark=5) == []
    with pytest.raises(ensue.StateError) as caught:
        found.push({"t": 9, "type": "B", "k": 7}, watermark=4)
    assert caught.value.code == "watermark-backwards"
    assert [(row["start"], row["end"]) for row in found.push({"t": 9, "type": "B", "k": 7}, watermark=9)] == [(5, 9)]


def test_pushed_rows_with_timestamps() -> None:
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    found = detector(QUERY.replace("50", "1 minute"))
    found.advance(pa.table({"t": [begin], "type": ["A"], "k": [7], "note": ["x"]}), watermark=begin)
    assert found.push({"t": begin + timedelta(seconds=1), "type": "Z", "k": 7}, watermark=begin) == []
    late = begin.replace(tzinfo=None) + timedelta(seconds=2)
    (match,) = found.push({"t": late, "type": "B", "k": 7}, watermark=late)
    assert match["end"] - match["start"] == timedelta(seconds=2)
    assert found.watermark == int((begin + timedelta(seconds=2)).timestamp()) * 1_000_000


def test_a_pushed_row_that_does_not_fit_its_columns_is_refused_alone() -> None:
    found = detector()
    found.push({"t": 1, "type": "A", "k": 7, "note": "x"}, watermark=1)
    found.push({"t": 2, "type": "A", "k": 8, "note": "x"}, watermark=2)
    with pytest.raises(ensue.SchemaError) as caught:
        found.push({"t": 3, "type": "A", "k": "seven", "note": "x"}, watermark=3)
    assert caught.value.code == "column-type"
    assert len(found.push({"t": 4, "type": "B", "k": 8, "note": "x"}, watermark=4)) == 1
