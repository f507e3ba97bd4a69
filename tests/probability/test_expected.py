"""Aggregates over uncertain events are means over the worlds in which there is the match and the aggregate a value."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from oracle.worlds import Uncertain
from probability.test_against_worlds import uncertain_input
from strategies.histories import histories
from strategies.uncertain import SOME, uncertain

OPTIONS = {"time": "time", "type": "type"}
UNCERTAIN = {**OPTIONS, "probability": "p", "alternatives": "alternatives of"}
AGGREGATES = ("count(b)", "sum(b.x)", "avg(b.x)", "min(b.y)", "max(b.y)", "count(b) + max(b.x)", "stddev(b.y)")
PATTERNS = (
    "SEQ(A a, COLLECT B b, C c)",
    "SEQ(A a, COLLECT B b, C c) WHERE count(b) < 2",
    "SEQ(A a, B b+, C c) WHERE max(b.x) > 1",
    "SEQ(A a, COLLECT SEQ(B b, B d), C c)",
    "SEQ(A a, NOT B n, COLLECT B b, C c)",
    "AND(A a, C c, COLLECT B b) WHERE avg(b.x) >= a.x",
)


def text_of(pattern: str) -> str:
    returned = ", ".join(f"{aggregate} AS v{place}" for place, aggregate in enumerate(AGGREGATES))
    return f"PATTERN {pattern} WITHIN 12 RETURN a.id AS a, c.id AS c, PROBABILITY() AS p, {returned}"


def by_worlds(text: str, given: Uncertain) -> dict[tuple[int, int], list[float | None]]:
    chance: dict[tuple[int, int], float] = defaultdict(float)
    sums: dict[tuple[tuple[int, int], int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    table = uncertain_input(given, False).table
    for weight, real in given.worlds():
        kept = {event.id for event in real}
        rows = table.filter(pa.array([number in kept for number in table.column("id").to_pylist()], pa.bool_()))
        for row in ensue.detect(rows, text, **OPTIONS).to_pylist():
            key = (row["a"], row["c"])
            chance[key] += weight
            for place in range(len(AGGREGATES)):
                if row[f"v{place}"] is not None:
                    sums[key, place][0] += weight * row[f"v{place}"]
                    sums[key, place][1] += weight
    means = {
        key: [s / w if w else None for s, w in (sums[key, place] for place in range(len(AGGREGATES)))] for key in chance
    }
    return {key: [chance[key], *means[key]] for key in chance}


@pytest.mark.parametrize("pattern", PATTERNS)
@SOME
@given(data=st.data())
def test_means_over_worlds(data: st.DataObject, pattern: str) -> None:
    history = data.draw(histories(streams=("A", "B", "B", "B", "C"), least_sizes=(5, 7, 8), most=9))
    given = data.draw(uncertain(history, most=5))
    text = text_of(pattern)
    expected = by_worlds(text, given)
    found = ensue.detect(uncertain_input(given, False).table, text, **UNCERTAIN).to_pylist()
    shown = {(row["a"], row["c"]): [row["p"], *(row[f"v{place}"] for place in range(len(AGGREGATES)))] for row in found}
    assert shown.keys() == expected.keys()
    for key, values in shown.items():
        for one, other in zip(values, expected[key], strict=True):
            assert (one is None) == (other is None)
            assert one is None or one == pytest.approx(other, abs=1e-9)


def test_a_list_shows_all_that_may_be_in_it() -> None:
    table = pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"], "p": [1.0, 0.5, 1.0]})
    query = "PATTERN SEQ(A a, COLLECT B b, C c) WITHIN 5 RETURN b.t AS all, count(b) AS expected"
    (row,) = ensue.detect(table, query, time="t", type="type", probability="p").to_pylist()
    assert row == {"all": [2], "expected": 0.5}


def test_what_has_no_mean() -> None:
    table = pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"], "p": [1.0, 0.5, 1.0], "who": ["x", "y", "z"]})
    query = "PATTERN SEQ(A a, COLLECT B b, C c) WITHIN 5 RETURN first(b.who) AS who"
    with pytest.raises(ensue.QueryError, match="must be numeric or boolean, but is text"):
        ensue.detect(table, query, time="t", type="type", probability="p")


def test_too_many_worlds() -> None:
    times = list(range(30))
    table = pa.table({"t": times, "type": ["A", *["B"] * 28, "C"], "p": [1.0, *[0.5] * 28, 1.0]})
    query = "PATTERN SEQ(A a, COLLECT B b, C c) WITHIN 50 RETURN avg(b.t) AS mean"
    with pytest.raises(ensue.LimitError, match="possible outcomes") as raised:
        ensue.detect(table, query, time="t", type="type", probability="p")
    assert raised.value.code == "too-many-worlds"
