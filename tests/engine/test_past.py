"""A run over a range of the past gives what the oracle says completes in it, and reads no more than it needs."""

from __future__ import annotations

import datetime as dt
import math
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ensue
from draws import share
from engine.test_batching import matches_in, matches_of_oracle
from engine.test_choice import expected, found
from ensue import Program, QueryError, SchemaError
from harness import FIELD_TYPES, REFUSED, events_table, is_plannable
from inside import (
    Bounds,
    Columns,
    PatternQuery,
    bounds_of,
    in_range,
    load_sources,
    plan_queries,
    program_statements,
    render_query,
    with_rows,
)
from oracle.oracle import OracleEvent
from strategies.operators import cases_with_lists, cases_with_operators, cases_with_picks
from strategies.patterns import cases
from strategies.policies import cases_with_policies
from strategies.rules import RuleCase, rule_cases

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

Case = tuple[PatternQuery, list[OracleEvent]]
Cases = Callable[..., st.SearchStrategy[Case]]
Range = tuple[int | None, int | None]

FEWER = share(0.5)
LEVELS = """
STREAM pair FROM PATTERN SEQ(A a, B b) WITHIN 5;
PATTERN SEQ(pair p, C c) WITHIN 10
"""


@st.composite
def ranges(draw: st.DrawFn, history: list[OracleEvent]) -> Range:
    """Two moments around those of a history, either of which may be left out."""
    latest = max((event.e for event in history), default=0) + 3
    moments = sorted(draw(st.lists(st.integers(-1, latest), min_size=2, max_size=2)))
    since, until = (draw(st.sampled_from((None, moment, moment))) for moment in moments)
    return since, until


def as_floats(asked: Range) -> tuple[float, float]:
    since, until = asked
    return -math.inf if since is None else since, math.inf if until is None else until


def detected(query: PatternQuery, history: list[OracleEvent], intervals: bool, asked: Range) -> pa.Table:
    end = "until" if intervals else None
    since, until = asked
    return ensue.detect(
        events_table(history), render_query(query), time="time", type="type", end=end, since=since, until=until
    )


@pytest.mark.parametrize("drawn_cases", [cases, cases_with_operators, cases_with_lists, cases_with_picks])
@FEWER
@given(data=st.data(), intervals=st.booleans())
def test_patterns(drawn_cases: Cases, data: st.DataObject, intervals: bool) -> None:
    query, history = data.draw(drawn_cases(intervals=intervals))
    assume(is_plannable(query, intervals))
    asked = data.draw(ranges(history))
    matches = detected(query, history, intervals, asked)
    assert Counter(matches_in(matches)) == Counter(matches_of_oracle(query, history, *as_floats(asked)))


@FEWER
@given(data=st.data(), intervals=st.booleans())
def test_what_is_used_up_before_the_range_stays_used_up(data: st.DataObject, intervals: bool) -> None:
    query, history = data.draw(cases_with_policies(intervals=intervals))
    asked = data.draw(ranges(history))
    try:
        matches = detected(query, history, intervals, asked)
    except QueryError as error:
        assume(error.code not in (*REFUSED, "never-holds"))
        raise
    assert found(query, matches) == expected(query, history, *as_floats(asked))


@FEWER
@given(data=st.data())
def test_rules(data: st.DataObject) -> None:
    case = data.draw(rule_cases(intervals=True))
    since, until = data.draw(ranges(case.history))
    after, last = as_floats((since, until))
    try:
        results = ensue.run(
            events_table(case.history),
            Program(case.program),
            time="time",
            type="type",
            end="until",
            tables=tables_of(case),
            since=since,
            until=until,
        )
    except QueryError as error:
        assume(error.code != "never-holds")
        raise
    for head in case.derived.heads:
        own = [(s, e, *attributes) for s, e, attributes in case.derived.rows(head) if after < e <= last]
        assert [tuple(row.values()) for row in results[head].to_pylist()] == own


def tables_of(case: RuleCase) -> dict[str, pa.Table]:
    return {
        name: pa.table({column: pa.array([row[column] for row in rows], FIELD_TYPES[column]) for column in rows[0]})
        for name, rows in case.tables.items()
    }


# What is read


def bounds_for(text: str, since: int, until: int, end: str | None = None) -> Bounds:
    statements = program_statements(text)
    planned = plan_queries(events_table([]), statements, Columns("time", "type", end))
    (bounds,) = bounds_of(planned.inputs, planned.plans, planned.derivations, since, until)
    return bounds


def test_levels_of_streams_reach_back_one_after_the_other() -> None:
    assert bounds_for(LEVELS, 100, 200, "until") == Bounds(85, 85, 200)


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN SEQ(A a, B b)",
        "PATTERN SEQ(A a, B b) WITHIN 5 EVENTS",
        "PATTERN SEQ(A a, B b) WITHIN 5 CONSUME",
        "PATTERN AND(A a, B b) WITHIN 5 MATCH CHRONICLE",
        "CONSTRAINT PRIOR(A, B) PARTITION BY k; PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 5",
        "STREAM pair FROM PATTERN SEQ(A a, B b); PATTERN SEQ(pair p, C c) WITHIN 10",
    ],
)
def test_what_may_depend_on_all_earlier_events_is_read_from_the_beginning(text: str) -> None:
    assert bounds_for(text, 100, 200) == Bounds(until=200)


def test_an_archive_in_order_is_read_in_part_and_without_a_copy() -> None:
    history = [OracleEvent(number, "ABC"[number % 3], number, number, {}) for number in range(300)]
    statements = program_statements(LEVELS)
    planned = plan_queries(events_table(history), statements, Columns("time", "type"))
    (archive,) = with_rows(planned.inputs, events_table(history))
    sources, _ = load_sources([archive], pa.int64())
    (source,) = in_range(sources, planned.plans, planned.derivations, 100, 200)
    whole, part = (table.column("time").chunk(0) for table in (archive.table, source.input.table))
    assert part.to_pylist() == source.starts.tolist() == list(range(86, 201))
    assert part.buffers()[1].address == whole.buffers()[1].address


# How it is asked

EVENTS = pa.table({"t": [1, 2, 4, 6], "type": ["A", "B", "A", "B"]})
QUERY = "PATTERN SEQ(A a, B b) WITHIN 2 RETURN a.t AS a, b.t AS b"


def asked(**period: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ensue.detect(EVENTS, QUERY, time="t", type="type", **period).to_pylist()
    return rows


def test_the_range_begins_after_its_start_and_includes_its_end() -> None:
    first, second = {"a": 1, "b": 2}, {"a": 4, "b": 6}
    assert asked() == [first, second]
    assert asked(since=1, until=5) == asked(until=2) == [first]
    assert asked(since=2, until=6) == asked(since=2) == [second]
    assert asked(since=6) == asked(since=2, until=2) == asked(until=-(2**80)) == []


def test_batches_of_matches_come_from_the_range_too() -> None:
    batches = list(ensue.detect_batches(EVENTS, QUERY, time="t", type="type", since=2, until=6))
    assert pa.Table.from_batches(batches).to_pylist() == [{"a": 4, "b": 6}]


def test_the_range_of_timestamps_is_given_as_moments() -> None:
    times = [dt.datetime(2024, 1, 31, 12, minute) for minute in (1, 2, 4, 6)]
    events = EVENTS.set_column(0, "t", pa.array(times, pa.timestamp("us")))
    query = "PATTERN SEQ(A a, B b) WITHIN 2 MINUTES RETURN b.t AS b"
    for since in (
        "2024-01-31 12:02",
        times[1],
        dt.datetime(2024, 1, 31, 13, 2, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ):
        matches = ensue.run(events, query, time="t", type="type", since=since)
        assert matches["pattern_1"].column("b").to_pylist() == [times[3]]


def test_streams_that_do_not_occur_in_the_range_are_no_slip() -> None:
    events = pa.table({"t": [1, 2, 8], "type": ["A", "B", "C"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ensue.detect(events, QUERY, time="t", type="type", since=7).num_rows == 0


@pytest.mark.parametrize(
    ("period", "code"),
    [({"since": 3, "until": 2}, "range-order"), ({"since": "noon"}, "range-type"), ({"until": True}, "range-type")],
)
def test_a_range_that_is_none(period: dict[str, Any], code: str) -> None:
    with pytest.raises(SchemaError) as caught:
        asked(**period)
    assert caught.value.code == code


def test_events_that_a_context_derives_before_the_range_count() -> None:
    table = pa.table({"t": [0, 0, 0, 0], "type": ["A"] * 4})
    query = "PATTERN NOTFOLLOWS(AND(A a1, A a2), C c, 1) MATCH RECENT"
    matches = ensue.detect(table, query, time="t", type="type", since=0)
    assert matches.num_rows == ensue.detect(table, query, time="t", type="type").num_rows == 4
