"""How long events are kept, read off the closure, and that the state of a long run stays that small."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ensue
from inside import Other, Retention, inferred_catalog, parse_statements, plan_query


def retention(text: str) -> dict[str, Retention]:
    query = parse_statements(text).statements[0]
    plan = plan_query(query, inferred_catalog(query))
    return {name: kept for (_, name), kept in plan.retention.items()}


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("SEQ(A a, B b) WITHIN 10", {"a": 10, "b": 0}),
        ("SEQ(A a, B b, C c) WITHIN 10", {"a": 10, "b": 10, "c": 0}),
        ("SEQ(SEQ(A a, B b) WITHIN 3, C c) WITHIN 10", {"a": 10, "b": 10, "c": 0}),
        ("SEQ(A a, SEQ(B b, C c) WITHIN 3) WITHIN 10", {"a": 10, "b": 3, "c": 0}),
        ("AND(A a, B b) WITHIN 10", {"a": 10, "b": 10}),
        ("SEQ(A a, NOT B b, C c) WITHIN 10", {"a": 10, "b": 10, "c": 0}),
        ("SEQ(A a, NOT B b) WITHIN 10", {"a": 10, "b": 10}),
        ("SEQ(NOT B b, A a) WITHIN 10", {"a": 0, "b": 10}),
        ("SEQ(A a, NOT B b, C c)", {"a": None, "b": None, "c": 0}),
        ("SEQ(A a, B b) WHERE b.t - a.t <= 4 WITHIN 10", {"a": 4, "b": 0}),
        ("SEQ(A a, NOT B b, C c) WHERE b.t - a.t <= 2 WITHIN 10", {"a": 10, "b": 10, "c": 0}),
        ("FOLLOWS(A a, B b, 10)", {"a": 10, "b": 0}),
        ("NOTFOLLOWS(A a, B b, 10)", {"a": 10, "b": 10}),
        ("NOTPRECEDES(A a, B b, 10)", {"a": 0, "b": 10}),
        ("FOLLOWS(NOTFOLLOWS(A a, B b, 3), C c, 10)", {"a": 13, "b": 13, "c": 0}),
        ("APERIODIC(A a, B b, C c) WITHIN 10", {"a": 10, "b": 0, "c": 10}),
        ("SEQ(A a, COLLECT B b, C c) WITHIN 10", {"a": 10, "b": 10, "c": 0}),
        ("SEQ(A a, COLLECT B b) WITHIN 10", {"a": 10, "b": 10}),
        ("SEQ(A a, FIRST B b) WITHIN 10", {"a": 10, "b": 0, Other("b"): 10}),
        ("SEQ(A a, LAST B b) WITHIN 10", {"a": 10, "b": 10, Other("b"): 10}),
        ("AND(LAST A a, B b) WITHIN 10", {"a": 20, "b": 10, Other("a"): 20}),
        ("PERIODIC(A a, 3, B b) WITHIN 10", {"a": 10, "b": 10}),
        ("PERIODIC(A a, 3, B b)", {"a": None, "b": None}),
    ],
)
def test_ticks_kept(pattern: str, kept: dict[str, int | None]) -> None:
    assert {name: found.from_start for name, found in retention(f"PATTERN {pattern}").items()} == kept


def test_positions_kept() -> None:
    found = retention("PATTERN SEQ(A a, NOT B b) WITHIN 5 EVENTS")
    assert {name: kept.positions for name, kept in found.items()} == {"a": 4, "b": 3}
    assert all(kept.bounded for kept in found.values())


def feed(detector: ensue.Detector, steps: int) -> int:
    """The most events kept while a steady stream runs by."""
    most = 0
    for step in range(steps):
        times = [10 * step + offset for offset in range(10)]
        batch = pa.table({"t": times, "type": ["A", "B", "C", "D", "E"] * 2, "key": [step % 7] * 10})
        detector.advance(batch, watermark=times[-1])
        most = max(most, detector.kept_rows)
    return most


@pytest.mark.parametrize(
    "query",
    [
        "PATTERN SEQ(A a, NOT B b, C c) PARTITION BY key WITHIN 50",
        "PATTERN SEQ(A a, NOT SEQ(B b, D d)) WITHIN 50",
        "PATTERN AND(A a, B b) PARTITION BY key WITHIN 12 EVENTS",
        "PATTERN SEQ(A a, NOT B b) PARTITION BY key WITHIN 4 EVENTS",
        "PATTERN BOTH(A a, NOTFOLLOWS(B b, E e, 3), 20)",
        "PATTERN UNLESS(E e)(A a, NOTPRECEDES(B b, D d, 9)) WITHIN 50",
        "PATTERN PERIODIC(A a, 7, C c) WITHIN 50",
        "PATTERN SEQ(A a, COLLECT B b, C c{2}) PARTITION BY key WITHIN 50",
        "PATTERN SEQ(A a, RELATIVE+(B b)) WITHIN 20",
        "PATTERN SEQ(A a, FIRST B b, NOT C c) WITHIN 50",
        "PATTERN AND(LAST A a, FIRST B b) WITHIN 50",
        "PATTERN NEXT(A a, B b)",
        "PATTERN SEQ(A a, B b, C c) PARTITION BY key WITHIN 50 MATCH NEXT CONSUME",
    ],
)
def test_state_does_not_grow_with_the_stream(query: str) -> None:
    short, long = (feed(ensue.Detector(query, time="t", type="type"), steps) for steps in (30, 90))
    assert long == short


def test_a_match_that_waits_for_a_moment_is_kept_beyond_its_positions() -> None:
    detector = ensue.Detector("PATTERN NOTFOLLOWS(A a, B b, 6) WITHIN 3 EVENTS", time="t", type="type")
    found = [
        detector.advance(pa.table({"t": [time], "type": ["A" if time == 1 else "E"]}), watermark=time).matches.num_rows
        for time in range(1, 10)
    ]
    assert found == [0, 0, 0, 0, 0, 0, 1, 0, 0]


def test_state_of_an_unbounded_query_grows_and_explain_says_so() -> None:
    query = "PATTERN SEQ(A a, NOT B b, C c)"
    assert feed(ensue.Detector(query, time="t", type="type"), 20) < feed(
        ensue.Detector(query, time="t", type="type"), 40
    )
    assert "UNBOUNDED: events of a, b are kept forever" in ensue.explain(query)
