"""Which way a plan goes: so that a shortcut cannot be lost without a test that says so."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ensue
from inside import AbsencePlan, QueryPlan, Rows, inferred_catalog, join_order, parse_statements, plan_query


def plan_of(text: str) -> QueryPlan:
    query = parse_statements(text).statements[0]
    return plan_query(query, inferred_catalog(query))


def absence_of(pattern: str) -> AbsencePlan:
    return plan_of(f"PATTERN {pattern}").graphs[0].absences[0]


@pytest.mark.parametrize(
    ("pattern", "chain"),
    [
        ("SEQ(A a, NOT B b, C c)", ("b",)),
        ("SEQ(A a, NOT B b [x > 1], C c)", ("b",)),
        ("SEQ(A a, NOT SEQ(B b, C c), D d) WITHIN 9", ("b", "c")),
        ("SEQ(A a, NOT SEQ(B b, SEQ(C c, E e) WITHIN 2), D d) WITHIN 9", ("b", "c", "e")),
        ("SEQ(NOT B b, A a) WITHIN 9", ("b",)),
        ("SEQ(A a, NOT B b) WITHIN 9", ("b",)),
        ("AND(A a, NOT B b) WITHIN 9", ("b",)),
    ],
)
def test_absence_needs_no_enumeration(pattern: str, chain: tuple[str, ...]) -> None:
    absence = absence_of(pattern)
    assert absence.chain == chain
    assert absence.correlated == ""


@pytest.mark.parametrize(
    "pattern",
    [
        "SEQ(A a, NOT AND(B b, C c), D d) WITHIN 9",
        "SEQ(A a, NOT SEQ(B b, C c), D d) WHERE b.x = c.x WITHIN 9",
        "SEQ(A a, NOT SEQ(B b, NOT C c, E e), D d) WITHIN 9",
        "SEQ(A a, NOT SEQ(SEQ(B b, C c, E e) WITHIN 2, F f), D d) WITHIN 9",
    ],
)
def test_forbidden_matches_are_enumerated_once(pattern: str) -> None:
    absence = absence_of(pattern)
    assert absence.chain == ()
    assert absence.lower is not None


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("SEQ(A a, NOT B b, C c) WHERE b.x = a.x", "a condition compares it with the match"),
        ("SEQ(A a, NOT B b, C c) WHERE b.t - a.t <= 2 WITHIN 9", "a condition compares it with the match"),
        ("AND(A a, NOT A b) WITHIN 9", "it could bind an event of the match"),
        ("SEQ(A a, NOT SEQ(B b, NOT C c), D d)", "the scope of a NOT inside it depends on the match"),
        ("SEQ(A a, NOT B b) WITHIN 9 EVENTS", "its scope is counted in events"),
    ],
)
def test_absence_is_judged_match_by_match(pattern: str, reason: str) -> None:
    absence = absence_of(pattern)
    assert absence.lower is None
    assert absence.correlated == reason


def test_the_join_starts_at_the_rarest_and_goes_on_where_partners_are_few() -> None:
    graph = plan_of("PATTERN SEQ(A a, B b, SEQ(C c, D d) WITHIN 2) WITHIN 100").graphs[0].graph
    counts = {"a": 1000, "b": 1000, "c": 10, "d": 1000}
    assert join_order(graph, counts, span=10_000) == ["c", "d", "a", "b"]
    assert join_order(graph, {**counts, "c": 5000}, span=10_000)[0] == "a"


def test_an_equality_is_joined_before_a_wide_range() -> None:
    graph = plan_of("PATTERN AND(A a, B b, C c) WHERE a.x = c.x WITHIN 100").graphs[0].graph
    assert join_order(graph, {"a": 1, "b": 5, "c": 500}, span=1000) == ["a", "c", "b"]


def bound_rows(monkeypatch: pytest.MonkeyPatch, events: pa.Table, query: str) -> tuple[int, int]:
    """How many partial matches were built, and how many matches came of them."""
    built = 0
    original = Rows.bind

    def counting(self: Rows, *arguments: object) -> Rows:
        nonlocal built
        extended = original(self, *arguments)  # type: ignore[arg-type]
        built += extended.length
        return extended

    monkeypatch.setattr(Rows, "bind", counting)
    found = ensue.detect(events, query, time="t", type="type").num_rows
    return built, found


def test_pruning_keeps_dead_ends_out_of_the_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of pairs of A and B have no C after them in time; only those near the one C are built."""
    kinds = ["A", "B"] * 2000 + ["C"]
    events = pa.table({"t": range(len(kinds)), "type": kinds})
    built, found = bound_rows(monkeypatch, events, "PATTERN SEQ(A a, B b, C c) WITHIN 20")
    assert found == 55
    assert built <= 2 * found


def test_a_forbidden_event_cuts_the_range_of_the_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each C looks back only as far as the last B, so no pair is built in vain."""
    kinds = ["A", "B", "A", "C"] * 500
    events = pa.table({"t": range(len(kinds)), "type": kinds})
    built, found = bound_rows(monkeypatch, events, "PATTERN SEQ(A a, NOT B b, C c) WITHIN 1000")
    assert built == found == 500
