"""Patterns that ask the same are answered once, and each gets the answer that it gets alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from draws import share
from harness import events_table, is_plannable
from inside import Join, Rows, render_query
from strategies.operators import cases_with_operators
from strategies.patterns import cases

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

EVENTS = pa.table(
    {"t": [1, 2, 3, 4, 5, 6, 7], "type": ["A", "B", "D", "C", "A", "B", "C"], "v": [1, 1, 1, 2, 1, 3, 1], "k": [1] * 7}
)


def run(*patterns: str) -> list[pa.Table]:
    program = ";\n".join(f"PATTERN p{place} {pattern}" for place, pattern in enumerate(patterns))
    results = ensue.run(EVENTS, program, time="t", type="type")
    return [results[f"p{place}"] for place in range(len(patterns))]


def values_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a result, whatever its variables are called."""
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[Join]:
    """The joins that are made: one for each time that the matches of a graph are looked for."""
    made: list[Join] = []

    before = Join.matches

    def noted(join: Join) -> Iterator[Rows]:
        made.append(join)
        return before(join)

    monkeypatch.setattr(Join, "matches", noted)
    return made


def test_matches_of_equal_patterns_are_found_once(joins: list[Join]) -> None:
    one, other, third = run(
        "SEQ(A a, B b) WHERE a.v = b.v WITHIN 9",
        "SEQ(A x, B y) WHERE x.v = y.v WITHIN 9 RETURN y.t AS at",
        "SEQ(A a, B b) WHERE a.v < b.v WITHIN 9",
    )
    assert (one.num_rows, other.to_pylist(), third.num_rows) == (1, [{"at": 2}], 2)
    assert len(joins) == 2


def test_a_branch_is_found_once_with_the_pattern_that_is_like_it(joins: list[Join]) -> None:
    one, both = run("SEQ(A a, B b) WITHIN 2", "SEQ(A x, OR(B y, C z)) WITHIN 2")
    assert (one.num_rows, both.num_rows) == (2, 3)
    assert len(joins) == 2


@pytest.mark.parametrize(
    "other",
    [
        "SEQ(A x, B y) WHERE x.v = y.v WITHIN 8",
        "SEQ(A x, B y) WHERE x.v = y.v PARTITION BY k WITHIN 9",
        "SEQ(A x, B y) WHERE x.v >= y.v WITHIN 9",
        "SEQ(A x [v = 1], B y) WHERE x.v = y.v WITHIN 9",
        "AND(A x, B y) WHERE x.v = y.v WITHIN 9",
        "SEQ(A x, B y, NOT C z) WHERE x.v = y.v WITHIN 9",
        "SEQ(A x, NOT B z, B y) WHERE x.v = y.v WITHIN 9",
    ],
)
def test_patterns_that_differ_are_found_apart(other: str, joins: list[Join]) -> None:
    one, found = run("SEQ(A a, B b) WHERE a.v = b.v WITHIN 9", other)
    alone = ensue.detect(EVENTS, f"PATTERN {other}", time="t", type="type")
    assert one.num_rows == 1
    assert found.equals(alone)
    assert len(joins) == 3


def test_forbidden_sequences_are_summarized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    before = Join._made

    def noted(join: Join, absence: Any) -> Any:
        made.append(absence)
        return before(join, absence)

    monkeypatch.setattr(Join, "_made", noted)
    one, other = run("SEQ(A a, NOT SEQ(B b, D d), C c) WITHIN 9", "SEQ(A x, NOT SEQ(B y, D z), A w) WITHIN 9")
    assert [table.num_rows for table in (one, other)] == [1, 0]
    assert len(made) == 1


@share(2)
@given(data=st.data(), intervals=st.booleans(), operators=st.booleans())
def test_a_twin_gets_the_same_matches(data: st.DataObject, intervals: bool, operators: bool) -> None:
    query, history = data.draw((cases_with_operators if operators else cases)(intervals=intervals))
    if not is_plannable(query, intervals):
        return
    text = render_query(query)
    one, two = (render_query(replace(query, name=name)) for name in ("one", "two"))
    twin = re.sub(r"\b([a-z])(\d+)\b", r"\1\2_", two)
    program = f"{one};\n{twin}"
    columns = {"time": "time", "type": "type", "end": "until" if intervals else None}
    events = events_table(history)
    found = ensue.run(events, program, **columns)
    assert values_of(found["one"]) == values_of(found["two"])
    assert found["one"].equals(ensue.detect(events, text, **columns))
