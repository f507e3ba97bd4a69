"""HAVING PROBABILITY keeps what is probable enough, and what it prunes early was never going to be."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from ensue import QueryError
from inside import PatternQuery, render_query
from oracle.oracle import OracleEvent
from probability.test_against_worlds import WITHOUT_MEANING, uncertain_input
from probability.test_streams import COLUMNS, rows
from strategies.patterns import cases
from strategies.uncertain import SOME, uncertain

PAIRS = "PATTERN SEQ(A a, B b) WITHIN 5"
CRISP = pa.table({"t": [1, 2], "type": ["A", "B"], "p": [0.5, 0.8]})


@SOME
@given(case=cases(), data=st.data(), least=st.sampled_from((0.01, 0.2, 0.5, 0.9, 1.0)))
def test_what_is_kept(case: tuple[PatternQuery, list[OracleEvent]], data: st.DataObject, least: float) -> None:
    query, history = case
    table = uncertain_input(data.draw(uncertain(history)), False).table
    text = render_query(query)
    try:
        whole = rows(ensue.detect(table, text, **COLUMNS))
    except QueryError as error:
        if error.code not in WITHOUT_MEANING | {"never-holds"}:
            raise
        return
    kept = rows(ensue.detect(table, f"{text} HAVING PROBABILITY >= {least}", **COLUMNS))
    # Two ways to work a product out may differ in its last digit.
    assert kept == [row for row in whole if row[1] >= least] or all(
        math.isclose(chance, least) for shown, chance in set(kept) ^ {row for row in whole if row[1] >= least}
    )


@pytest.mark.parametrize(
    ("comparison", "matches"), [(">= 0.4", 1), ("> 0.4", 0), (">= 0", 1), ("> 0.39", 1), (">= 1", 0)]
)
def test_the_limit(comparison: str, matches: int) -> None:
    found = ensue.detect(CRISP, f"{PAIRS} HAVING PROBABILITY {comparison}", time="t", type="type", probability="p")
    assert found.num_rows == matches


@pytest.mark.parametrize(("comparison", "matches"), [(">= 1", 1), ("> 0.9", 1)])
def test_certain_events_have_probability_one(comparison: str, matches: int) -> None:
    query = f"{PAIRS} HAVING PROBABILITY {comparison} RETURN PROBABILITY() AS p"
    assert ensue.detect(CRISP, query, time="t", type="type").to_pylist() == [{"p": 1.0}] * matches


def test_in_python() -> None:
    built = ensue.seq("A a", "B b").within(5).having(probability=0.3).returning(chance=ensue.fn.probability())
    assert ensue.detect(CRISP, built, time="t", type="type", probability="p").to_pylist() == [{"chance": 0.4}]
    with pytest.raises(QueryError, match="between 0 and 1"):
        ensue.seq("A a", "B b").having(probability=90)
    with pytest.raises(TypeError, match="takes a probability"):
        ensue.seq("A a", "B b").having(probability="high")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, math.nan, -0.1, 1.01, math.inf])
def test_what_is_no_probability_is_an_error_and_nothing_is_read(value: float | None) -> None:
    table = CRISP.set_column(2, "p", pa.array([0.5, value], pa.float64()))
    with pytest.raises(ensue.SchemaError, match="row 1") as raised:
        ensue.detect(table, PAIRS, time="t", type="type", probability="p")
    assert raised.value.code == "probability-value"
    detector = ensue.Detector(PAIRS, time="t", type="type", probability="p")
    detector.advance(CRISP.slice(0, 1), watermark=0)
    with pytest.raises(ensue.SchemaError):
        detector.advance(table.slice(1, 1), watermark=1)
    assert detector.advance(CRISP.slice(1, 1), watermark=9).matches.num_rows == 1


def test_tables_of_their_own_may_be_certain() -> None:
    tables = {"A": CRISP.slice(0, 1).drop_columns(["p"]), "B": CRISP.slice(1, 1)}
    (row,) = ensue.detect(tables, f"{PAIRS} RETURN PROBABILITY() AS p", time="t", probability="p").to_pylist()
    assert row == {"p": 0.8}


def test_alternatives_in_two_tables_exclude_each_other() -> None:
    tables = {
        "A": pa.table({"t": [1], "p": [0.5], "g": ["x"]}),
        "B": pa.table({"t": [2, 2], "p": [0.5, 0.5], "g": ["x", None]}),
    }
    found = ensue.detect(tables, PAIRS, time="t", probability="p", alternatives="g")
    assert found.column("probability").to_pylist() == [0.25]
