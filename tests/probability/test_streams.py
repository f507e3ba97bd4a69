"""Probabilities do not depend on how a stream is cut, and with certain events the answer is the crisp one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from ensue import QueryError
from inside import PatternQuery, render_query
from oracle.oracle import OracleEvent
from oracle.worlds import Uncertain
from probability.test_against_worlds import WITHOUT_MEANING, uncertain_input
from strategies.histories import batches
from strategies.patterns import cases
from strategies.uncertain import SOME, uncertain

COLUMNS = {"time": "time", "type": "type", "probability": "p", "alternatives": "alternatives of"}


def rows(found: pa.Table) -> list[tuple[str, float]]:
    shown = [{name: value for name, value in row.items() if name != "probability"} for row in found.to_pylist()]
    return sorted(zip(map(repr, shown), found.column("probability").to_pylist(), strict=True))


@SOME
@given(case=cases(), data=st.data())
def test_any_cut_with_restarts(case: tuple[PatternQuery, list[OracleEvent]], data: st.DataObject) -> None:
    query, history = case
    given, text = data.draw(uncertain(history)), render_query(query)
    try:
        whole = rows(ensue.detect(uncertain_input(given, False).table, text, **COLUMNS))
    except QueryError as error:
        if error.code not in WITHOUT_MEANING | {"never-holds"}:
            raise
        return
    detector = ensue.Detector(text, **COLUMNS)
    found = []
    for batch, watermark in data.draw(batches(history)):
        part = Uncertain(tuple(batch), given.probability, given.group)
        found += rows(detector.advance(uncertain_input(part, False).table, watermark=watermark).matches)
        saved, detector = detector.snapshot(), ensue.Detector(text, **COLUMNS)
        detector.restore(saved)
    found = sorted(found + rows(detector.finish().matches))
    assert [shown for shown, _ in found] == [shown for shown, _ in whole]
    assert [chance for _, chance in found] == pytest.approx([chance for _, chance in whole], abs=1e-9)


@SOME
@given(case=cases())
def test_with_certain_events_the_answer_is_the_crisp_one(case: tuple[PatternQuery, list[OracleEvent]]) -> None:
    query, history = case
    table = uncertain_input(Uncertain(tuple(history), {event.id: 1.0 for event in history}, {}), False).table
    text = render_query(query)
    try:
        found = ensue.detect(table, text, **COLUMNS)
    except QueryError as error:
        if error.code not in WITHOUT_MEANING | {"never-holds"}:
            raise
        return
    assert found.column("probability").to_pylist() == [1.0] * found.num_rows
    assert found.drop_columns(["probability"]).equals(ensue.detect(table, text, time="time", type="type"))


def test_a_table_of_a_stream_that_the_query_does_not_use() -> None:
    """It is read all the same: its rows may be alternatives of those of another table."""
    tables = {
        "A": pa.table({"t": [1], "p": [0.5], "of": [1]}),
        "B": pa.table({"t": [2], "p": [0.5], "of": [1]}),
    }
    options = {"time": "t", "probability": "p", "alternatives": "of"}
    query = "PATTERN (A a) RETURN a.t AS at, PROBABILITY() AS p"
    detector = ensue.Detector(query, **options)
    assert detector.advance(tables, watermark=5).matches.to_pylist() == [{"at": 1, "p": 0.5}]
    assert ensue.detect(tables, query, **options).to_pylist() == [{"at": 1, "p": 0.5}]
