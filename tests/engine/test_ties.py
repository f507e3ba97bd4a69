"""The numbers of results that depend on the order of events at the same time, and what is said about them."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ensue
from inside import Columns, Options, Tie, compile_plan, parse_statements, plan_queries

PROGRAM = """
PATTERN p SEQ(A a, NOT C c, B b) WHERE a.x <= b.x PARTITION BY id WITHIN 5;
PATTERN q SEQ(A a, B b, A d) PARTITION BY id WITHIN 4
"""
COLUMNS: dict[str, Any] = {"time": "t", "type": "type"}


def history(rows: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "t": np.sort(chance.integers(0, rows // 4, rows)),
            "type": chance.choice(list("ABC"), rows),
            "id": chance.integers(0, 3, rows),
            "x": chance.integers(0, 4, rows),
        }
    )


def counted(table: pa.Table) -> dict[Tie, int]:
    """The same numbers, from all pairs of events and all matches."""
    rows = table.to_pylist()
    pairs = [(one, other) for one in rows for other in rows if one["t"] == other["t"] and one["id"] == other["id"]]

    def number(one: str, other: str) -> int:
        return sum((x["type"], y["type"]) == (one, other) for x, y in pairs)

    found = {
        Tie("p", "A", "B"): sum((x["type"], y["type"]) == ("A", "B") and x["x"] <= y["x"] for x, y in pairs),
        Tie("q", "A", "B"): number("A", "B"),
        Tie("q", "B", "A"): number("B", "A"),
    }
    matches = ensue.run(table, PROGRAM, **COLUMNS)["p"].to_pylist()
    forbidden = {(row["t"], row["id"]) for row in rows if row["type"] == "C"}
    for side, stream in (("a", "A"), ("b", "B")):
        own = [match for match in matches if (match[side]["t"], match["id"]) in forbidden]
        found[Tie("p", "C", stream, forbidden=True)] = len(own)
    return found


@pytest.mark.filterwarnings("ignore::ensue.EnsueNotice")
@pytest.mark.parametrize("seed", range(5))
def test_numbers_of_a_run_and_of_steps(seed: int) -> None:
    table = history(120, seed)
    expected = counted(table)
    reports = ensue.run(table, PROGRAM, **COLUMNS).reports
    assert {**reports["p"].ties, **reports["q"].ties} == expected
    for query in PROGRAM.split(";"):
        detector = ensue.Detector(query, **COLUMNS)
        for first, last in pairwise([0, 10, 25, 26, 90, table.num_rows]):
            detector.advance(table.slice(first, last - first), watermark=table["t"][last - 1].as_py() - 1)
        detector.advance(watermark=1000)
        own = {tie: count for tie, count in expected.items() if f"PATTERN {tie.pattern} " in query}
        found = detector.report.ties
        assert {*found} == {*own}
        # Of forbidden events, a stream keeps only those that can be between the items.
        assert all(0 < found[tie] <= own[tie] if tie.forbidden else found[tie] == own[tie] for tie in own)


@pytest.mark.filterwarnings("ignore::ensue.EnsueNotice")
def test_eager_steps_count_a_pair_once() -> None:
    table = history(120, seed=7)
    query = "PATTERN q SEQ(A a, B b, A d) PARTITION BY id WITHIN 4"
    expected = {tie: count for tie, count in counted(table).items() if tie.pattern == "q"}
    planned = plan_queries(table.slice(0, 0), parse_statements(query), Columns("t", "type"))
    machine = compile_plan(planned, Options(), eager=True)
    state = machine.start()
    for part in np.array_split(np.random.default_rng(8).permutation(120), 9):
        rows = table.take(pa.array(part)).select(machine.inputs[0].table.column_names)
        state = machine.step(state, machine.read([rows]), -1).state
    assert state.report.ties == expected


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("PATTERN SEQ(A a, NOT C c, B b) PARTITION BY id WITHIN 5", {"order": "x"}),
        ("PATTERN SEQ(A a, NOT C c, B b) PARTITION BY id WITHIN 5 ALLOWING TIES", {}),
        ("PATTERN AND(A a, B b) PARTITION BY id WITHIN 5", {}),
    ],
)
def test_nothing_is_said_where_something_decides(query: str, columns: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ensue.EnsueNotice)
        report = ensue.run(history(120, seed=1), query, **COLUMNS, **columns).reports["pattern_1"]
    assert not report.ties


def test_the_operator_of_a_context_is_named_by_its_number_in_explain() -> None:
    table = pa.table({"t": [1, 2, 2, 3], "type": ["A", "B", "X", "C"]})
    query = "PATTERN p SEQ(A a, B b, NOT X x, C c) MATCH RECENT WITHIN 10"
    with pytest.warns(ensue.EnsueNotice, match="1 of 1 match has a `X` at the very time of `operator 1`"):
        ensue.detect(table, query, time="t", type="type")
    assert "\n  1. SEQ(A a, B b)" in ensue.explain(query)


def rows_without_ties(rows: int, last: dict[str, list[Any]]) -> pa.Table:
    """Events A and B of many keys, each at a time of its own, and a few at the end."""
    numbers = np.arange(rows)
    columns = {"t": numbers, "type": np.where(numbers % 2 == 0, "A", "B"), "id": numbers // 20, "x": numbers % 4}
    return pa.table({name: [*own.tolist(), *last[name]] for name, own in columns.items()})


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SEQ(A a, B b)", "at least .* pairs? of `A` and `B` have the same time"),
        ("SEQ(A a, NOT C c, B b)", "at least .* of .* matches have a `C` at the very time of `A`"),
    ],
)
def test_ties_in_a_few_keys_of_a_large_table_are_found(query: str, said: str) -> None:
    """Only some events are searched, but not those of the first keys: here the ties are in the last ones."""
    keys = 10_000 + np.arange(200)
    last = [("A", 0), ("B", 0), ("C", 0), ("B", 1)]
    ties: dict[str, list[Any]] = {"t": [], "type": [], "id": [], "x": []}
    for key in keys.tolist():
        for name, later in last:
            for column, value in zip(ties, (10_000 + key + later, name, key, 0), strict=True):
                ties[column].append(value)
    table = rows_without_ties(20_000, ties)
    with pytest.warns(ensue.EnsueNotice, match=said):
        ensue.detect(table, f"PATTERN {query} PARTITION BY id WITHIN 5", **COLUMNS)


@pytest.mark.filterwarnings("ignore::ensue.EnsueNotice")
def test_a_long_stream_searches_its_first_steps_and_then_some() -> None:
    """One tie in each step: the number is a lower bound, but none is lost forever."""
    detector = ensue.Detector("PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 1", **COLUMNS)
    counts = []
    for number in range(160):
        step = pa.table({"t": [number] * 2, "type": ["A", "B"], "id": [0, 0], "x": [0, 0]})
        detector.advance(step, watermark=number)
        counts.append(sum(detector.report.ties.values()))
    assert counts[:16] == [*range(1, 17)]
    assert counts[-1] == 16 + len([number for number in range(17, 161) if number % 16 == 0])


@pytest.mark.filterwarnings("ignore::ensue.EnsueNotice")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SEQ(COLLECT F f{3,}, A a)", {("F", "A"): 1}),
        ("SEQ(COLLECT F f, A a) WHERE f.x = a.x", {("F", "A"): 1}),
        ("SEQ(COLLECT F f [x > 3], A a)", {}),
        ("SEQ(A a, COLLECT F f, A b)", {("A", "F"): 1, ("F", "A"): 1}),
        ("AND(A a, COLLECT F f)", {}),
    ],
)
def test_listed_events_at_the_time_of_a_neighbour_are_counted(query: str, expected: dict[tuple[str, str], int]) -> None:
    table = pa.table({"t": [1, 2, 3, 3, 4], "type": [*"FFFAA"], "id": [1] * 5, "x": [1, 2, 3, 3, 4]})
    report = ensue.run(table, f"PATTERN {query} PARTITION BY id WITHIN 10", **COLUMNS).reports["pattern_1"]
    assert {(tie.one, tie.other): count for tie, count in report.ties.items()} == expected
