"""The probability that there is any match is that of all worlds with one."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from ensue import QueryError
from inside import PatternQuery, Possible, Stretch, estimate_of_any, probability_of_any, render_query
from oracle.oracle import OracleEvent
from oracle.worlds import Uncertain
from probability.test_against_worlds import WITHOUT_MEANING, uncertain_input
from strategies.patterns import cases
from strategies.uncertain import SOME, uncertain

COLUMNS = {"time": "time", "type": "type"}
WINDOW = 8


def by_worlds(query: PatternQuery, given: Uncertain, window: int | None) -> dict[object, float]:
    """Of each key and stretch of time, the probability of the worlds in which a match ends in it."""
    found: dict[object, float] = defaultdict(float)
    text, table = render_query(query), uncertain_input(given, False).table
    for weight, real in given.worlds():
        kept = {event.id for event in real}
        rows = table.filter(pa.array([number in kept for number in table.column("id").to_pylist()], pa.bool_()))
        matches = ensue.detect(rows, text, **COLUMNS)
        # The first columns of a match are its keys and its interval.
        ends = matches.column(len(query.partition_by) + 1).to_pylist()
        keys = zip(*(matches.column(place).to_pylist() for place in range(len(query.partition_by))), strict=True)
        owners = list(keys) if query.partition_by else [()] * len(ends)
        for owner in {
            (*key, *(() if window is None else (end // window * window,)))
            for key, end in zip(owners, ends, strict=True)
        }:
            found[owner] += weight
    return found


@pytest.mark.parametrize("window", [None, WINDOW])
@SOME
@given(case=cases(), data=st.data())
def test_any_match(case: tuple[PatternQuery, list[OracleEvent]], data: st.DataObject, window: int | None) -> None:
    query, history = case
    given = data.draw(uncertain(history, most=5))
    table = uncertain_input(given, False).table
    options = {"probability": "p", "alternatives": "alternatives of"}
    try:
        found = ensue.any_match(table, render_query(query), **COLUMNS, **options, window=window)
    except QueryError as error:
        if error.code not in WITHOUT_MEANING | {"never-holds"}:
            raise
        return
    expected = by_worlds(query, given, window)
    names = [*query.partition_by, *(() if window is None else ("window_start",))]
    shown = {tuple(row[name] for name in names): row["probability"] for row in found.to_pylist()}
    if not names and not expected:
        assert shown == {(): 0.0}
    else:
        assert shown == pytest.approx(dict(expected), abs=1e-9)
    assert all(row["exact"] and row["error"] == 0 for row in found.to_pylist())


def test_an_event_that_matches_share_is_counted_once() -> None:
    table = pa.table({"t": [1, 2, 3], "type": ["A", "B", "B"], "p": [0.5, 0.5, 0.5]})
    (row,) = ensue.any_match(
        table, "PATTERN SEQ(A a, B b) WITHIN 5", time="t", type="type", probability="p"
    ).to_pylist()
    assert row["probability"] == pytest.approx(0.5 * 0.75)


def test_what_is_too_large_is_estimated_and_says_so() -> None:
    table = pa.table({"t": list(range(40)), "type": ["A", "B"] * 20, "p": [0.1] * 40})
    query = "PATTERN SEQ(A a, B b) WITHIN 15"
    options = {"time": "t", "type": "type", "probability": "p"}
    (exact,) = ensue.any_match(table, query, **options).to_pylist()
    (estimated,) = ensue.any_match(table, query, **options, most_nodes=5, samples=20_000).to_pylist()
    assert (exact["exact"], estimated["exact"]) == (True, False)
    assert 0 < estimated["error"] < 0.02
    assert estimated["probability"] == pytest.approx(exact["probability"], abs=estimated["error"])


@given(data=st.data())
def test_estimates_are_within_their_bound(data: st.DataObject) -> None:
    block = st.builds(Stretch, st.integers(0, 4), st.just(0.0), st.sampled_from((0.1, 0.5, 0.9)))
    plain = st.builds(Possible, st.lists(block, min_size=1, max_size=3).map(tuple))
    cases = data.draw(
        st.lists(st.builds(Possible, st.tuples(block), st.lists(plain, max_size=2).map(tuple)), min_size=1, max_size=4)
    )
    exact, estimate = probability_of_any(cases), estimate_of_any(cases, 20_000)
    assert abs(exact - estimate.probability) <= estimate.error


@pytest.mark.parametrize(("option", "value"), [("most_nodes", 0), ("samples", 1.5)])
def test_numbers_are_checked(option: str, value: object) -> None:
    table = pa.table({"t": [1], "type": ["A"], "p": [0.5]})
    with pytest.raises(ensue.LimitError, match=option):
        ensue.any_match(table, "PATTERN A a", time="t", type="type", probability="p", **{option: value})


def test_a_window_is_a_length_of_time() -> None:
    table = pa.table({"t": [1], "type": ["A"], "p": [0.5]})
    with pytest.raises(ensue.SchemaError, match="must be a duration"):
        ensue.any_match(table, "PATTERN A a", time="t", type="type", probability="p", window="5 events")


def test_no_events_at_all() -> None:
    table = pa.table(
        {"t": pa.array([], pa.int64()), "type": pa.array([], pa.string()), "p": pa.array([], pa.float64())}
    )
    options = {"time": "t", "type": "type", "probability": "p"}
    assert ensue.any_match(table, "PATTERN A a", **options).to_pylist() == [
        {"probability": 0.0, "exact": True, "error": 0.0}
    ]
    assert ensue.any_match(table, "PATTERN A a PARTITION BY type", **options).num_rows == 0
