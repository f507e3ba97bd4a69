"""`waiting`: which goals are open, what they wait for, and that no match comes that was not among them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from ensue import QueryError
from harness import events_table
from inside import PatternQuery, render_query, render_statements
from oracle.oracle import OracleEvent, matches
from rules.test_rules import tables_of
from strategies.patterns import cases
from strategies.rules import RuleCase, rule_cases

quiet = pytest.mark.filterwarnings("ignore::ensue.EnsueWarning")
Rows = list[tuple[str, int, int]]


def detector_of(query: str, rows: Rows, watermark: int) -> ensue.Detector:
    detector = ensue.Detector(query, time="t", type="type")
    columns = {
        "t": [at for _, at, _ in rows],
        "type": [stream for stream, _, _ in rows],
        "id": [key for *_, key in rows],
    }
    detector.advance(pa.table(columns), watermark=watermark)
    return detector


def texts(query: str, rows: Rows, watermark: int) -> list[str]:
    return ensue.waiting(detector_of(query, rows, watermark), query)["text"].to_pylist()


def test_what_is_matched_awaited_and_forbidden() -> None:
    query = "PATTERN SEQ(A a, NOT X x, B b, C c) PARTITION BY id WITHIN 10"
    rows = [("A", 1, 7), ("B", 3, 7), ("A", 2, 8), ("X", 3, 8), ("A", 4, 9)]
    assert texts(query, rows, 5) == [
        "a at 1, b at 3; waits for C c after 5 until 11",
        "a at 4; waits for B b after 5 until 13; cancelled by X x",
    ]
    table = ensue.waiting(detector_of(query, rows, 5), query)
    assert table.column_names == ["name", "id", "matched", "awaited", "until", "cancelled_by", "then", "text"]
    assert table.select(["name", "id", "awaited", "until", "cancelled_by"]).to_pylist()[1] == {
        "name": "pattern_1",
        "id": 9,
        "awaited": "B b after 5",
        "until": 13,
        "cancelled_by": ["X x"],
    }
    assert table["matched"].to_pylist()[0] == [
        {"variable": "a", "stream": "A", "start": 1, "end": 1},
        {"variable": "b", "stream": "B", "start": 3, "end": 3},
    ]


@pytest.mark.parametrize(
    ("query", "rows", "expected"),
    [
        (
            "PATTERN SEQ(A a, NOT B b) PARTITION BY id WITHIN 10",
            [("A", 1, 7), ("A", 2, 8), ("B", 3, 8)],
            ["a at 1; waits for the time 11; cancelled by B b"],
        ),
        (
            "PATTERN AND(A a, B b, C) WITHIN 10",
            [("A", 1, 7), ("B", 2, 8), ("B", 3, 8)],
            ["a at 1, b at 2; waits for C after 5 until 11", "a at 1, b at 3; waits for C after 5 until 11"],
        ),
        ("PATTERN SEQ(A a, B b [id > 3])", [("A", 1, 7)], ["a at 1; waits for B b [b.id > 3] after 5"]),
        ("PATTERN SEQ(A a, B b) WITHIN 3", [("A", 1, 7)], []),
        ("PATTERN SEQ(A a, B b) WITHIN 10", [("A", 1, 7), ("B", 9, 7)], ["a at 1, b at 9; waits for the time 9"]),
        ("PATTERN SEQ(A a, B b) WITHIN 3 EVENTS", [("A", 1, 7), ("X", 2, 8), ("X", 3, 8)], []),
        (
            "PATTERN SEQ(A a, B b) WITHIN 3 EVENTS",
            [("A", 1, 7), ("X", 2, 8)],
            ["a at 1; waits for B b after 5"],
        ),
        (
            "STREAM order(id); STREAM shipped(id);"
            "RULE overdue(id) <- o: order(id), w: extend(o, 6), while w: not shipped(id)",
            [("order", 1, 7), ("order", 2, 8), ("shipped", 3, 8)],
            ["o at 1; waits for the time 7; cancelled by shipped"],
        ),
    ],
)
def test_goals(query: str, rows: Rows, expected: list[str]) -> None:
    assert texts(query, rows, 5) == expected


def test_a_snapshot_says_the_same() -> None:
    query = "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 10"
    detector = detector_of(query, [("A", 1, 7), ("A", 2, 8)], 5)
    assert ensue.waiting(detector.snapshot(), query).equals(ensue.waiting(detector, query))


def test_goals_of_declared_streams_are_listed_under_their_names() -> None:
    program = (
        "STREAM pair FROM PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 10 RETURN a.id AS id;"
        "PATTERN SEQ(pair p, C c) PARTITION BY id WITHIN 20"
    )
    found = ensue.waiting(detector_of(program, [("A", 1, 7), ("A", 1, 8), ("B", 3, 8)], 5), program)
    assert [(row["name"], row["id"]) for row in found.to_pylist()] == [("pair", 7), ("pair", 8), ("pattern_1", 8)]


def test_what_is_refused() -> None:
    query = "PATTERN SEQ(A a, B b) WITHIN 10"
    detector = detector_of(query, [("A", 1, 7), ("A", 2, 8)], 5)
    with pytest.raises(ensue.LimitError) as many:
        ensue.waiting(detector, query, most_goals=1)
    assert many.value.code == "too-many-goals"
    with pytest.raises(ensue.StateError) as other:
        ensue.waiting(detector, "PATTERN SEQ(A a, C c) WITHIN 10")
    assert other.value.code == "state-query"
    with pytest.raises(ensue.StateError) as nothing:
        ensue.waiting(pa.table({"t": [1]}), query)
    assert nothing.value.code == "not-a-state"


def begun(query: PatternQuery, history: list[OracleEvent], watermark: int) -> list[set[tuple[object, ...]]]:
    """Of every match that completes after the watermark, the named events that have ended by then, where there are."""
    events = {event.id: event for event in history}
    found = []
    for match in matches(query, history):
        bound = [(name, events[number]) for name, number in match.bindings if isinstance(name, str)]
        known = {(name, e.stream, e.s, e.e) for name, e in bound if e.e <= watermark}
        if match.completion > watermark and known:
            found.append(known)
    return found


def check(query: PatternQuery, history: list[OracleEvent], watermark: int, end: str | None) -> None:
    text = render_query(query)
    try:
        detector = ensue.Detector(text, time="time", type="type", end=end)
        known = [event for event in history if event.e <= watermark]
        detector.advance(events_table(known), watermark=watermark)
    except QueryError as error:
        if error.code != "never-holds":
            raise
        return
    listed = [
        {(event["variable"], event["stream"], event["start"], event["end"]) for event in goal}
        for goal in ensue.waiting(detector, text)["matched"].to_pylist()
    ]
    for known in begun(query, history, watermark):
        assert any(known <= goal for goal in listed), known


@quiet
@given(cases(), st.integers(0, 12))
def test_every_match_that_completes_later_was_a_goal(
    case: tuple[PatternQuery, list[OracleEvent]], watermark: int
) -> None:
    check(*case, watermark, None)


@quiet
@given(cases(intervals=True), st.integers(0, 12))
def test_every_match_of_intervals_was_a_goal(case: tuple[PatternQuery, list[OracleEvent]], watermark: int) -> None:
    check(*case, watermark, "until")


def test_names_in_backticks_are_shown_as_they_are() -> None:
    query = "PATTERN SEQ(A `x#1`, B `A#1`) WITHIN 10"
    detector = ensue.Detector(query, time="t", type="type")
    detector.advance(pa.table({"t": [1], "type": ["A"]}), watermark=2)
    (goal,) = ensue.waiting(detector, query).to_pylist()
    assert goal["text"] == "x#1 at 1; waits for B A#1 after 2 until 11"


# --- chains of rules and streams, and several results

CHAIN = """
RULE ie(id) <- x: a(id=id), y: b(id=id), x before y, {x, y} within 10;
RULE e(id) <- p: ie(id), q: c(id=id), {p, q} within 20;
RULE alarm(id, why) <- p: e(id), q: d(id=id, why=why), p before q, {p, q} within 30;
"""


def chained(program: str, *rows: tuple[str, int, int], watermark: int = 5) -> list[dict[str, object]]:
    found = ensue.waiting(detector_of(program, [*rows], watermark), program)
    return found.select(["name", "id", "awaited", "until", "then"]).to_pylist()


def test_a_chain_of_rules_says_who_needs_an_awaited_event() -> None:
    program = CHAIN.replace("why=why", "id=why")
    assert chained(program, ("a", 1, 7)) == [
        {
            "name": "ie",
            "id": 7,
            "awaited": "b y after 5",
            "until": 11,
            "then": ["e(7) needs ie(7) and c q", "alarm(7, _) needs e(7) and d q"],
        }
    ]
    assert texts(program, [("a", 1, 7)], 5) == [
        "x at 1; waits for b y after 5 until 11; e(7) needs ie(7) and c q; alarm(7, _) needs e(7) and d q"
    ]


def test_a_goal_that_waits_for_a_derived_event_says_what_it_needs() -> None:
    program = CHAIN.replace("why=why", "id=why")
    assert chained(program, ("c", 4, 8)) == [
        {
            "name": "e",
            "id": 8,
            "awaited": "ie p after -17 (needs a x and b y)",
            "until": 24,
            "then": ["alarm(8, _) needs e(8) and d q"],
        }
    ]
    deeper = "RULE ie(id) <- a(id=id); RULE e(id) <- ie(id), b(id=id); RULE f(id) <- e(id), c(id=id)"
    assert [row["awaited"] for row in chained(deeper, ("c", 4, 8))] == ["e (needs ie (needs a) and b)"]


def test_alternatives_recursion_and_tables_in_a_chain() -> None:
    program = """
    FACT vip(7, 1);
    RULE seen(id) <- a(id=id), vip(id, _);
    RULE seen(id) <- x: b(id=id), y: b(id=id), x before y, {x, y} within 9;
    RULE reached(id) <- seen(id);
    RULE reached(id) <- p: reached(id), q: c(id=id), p before q, {p, q} within 20;
    PATTERN found AND(reached r, d z) PARTITION BY id WITHIN 20
    """
    rows = chained(program, ("b", 1, 7), ("d", 4, 7))
    assert [(row["name"], row["awaited"], row["then"]) for row in rows] == [
        (
            "seen",
            "b y after 5",
            ["reached(7) needs seen(7)", "found needs reached(7) and d z"],
        ),
        ("found", "reached r after -17 (needs seen (needs a, or b x and b y), or reached p and c q)", []),
    ]


def test_a_snapshot_of_a_chain_says_the_same() -> None:
    detector = detector_of(CHAIN.replace("why=why", "id=why"), [("a", 1, 7), ("b", 2, 7), ("a", 3, 8)], 5)
    found = ensue.waiting(detector, CHAIN.replace("why=why", "id=why"))
    assert found.column("name").to_pylist() == ["ie", "ie", "e"]
    assert ensue.waiting(detector.snapshot(), CHAIN.replace("why=why", "id=why")).equals(found)
    with pytest.raises(ensue.StateError, match="state-query"):
        ensue.waiting(detector, CHAIN.replace("why=why", "id=why").replace("within 10", "within 11"))


def test_the_goals_of_several_results_and_of_actions() -> None:
    program = (
        "STREAM pair FROM PATTERN SEQ(a x, b y) PARTITION BY id WITHIN 10 RETURN x.id AS id;"
        "PATTERN p SEQ(a x, c y) PARTITION BY id WITHIN 10; PATTERN q SEQ(a x, d y) WITHIN 10"
    )
    rows = [("a", 1, 7), ("b", 2, 7)]
    found = ensue.waiting(detector_of(program, rows, 5), program)
    assert found.column("name").to_pylist() == ["p", "q"]
    acting = f"{program}; ON pair v DO tell(v.id)"
    detector = ensue.Detector(acting, time="t", type="type", actions={"tell": lambda call: None})
    batch = pa.table({"t": [1], "type": ["a"], "id": [7]})
    detector.advance(batch, watermark=5)
    assert ensue.waiting(detector, acting).column("name").to_pylist() == ["pair", "p", "q"]


def test_the_goals_of_a_run_with_violations() -> None:
    program = "CONSTRAINT PRIOR(a, b) PARTITION BY id; PATTERN p SEQ(a x, b y) PARTITION BY id WITHIN 10"
    detector = ensue.Detector(program, time="t", type="type", violations=True)
    detector.advance(pa.table({"t": [1], "type": ["a"], "id": [7]}), watermark=5)
    assert ensue.waiting(detector, program)["awaited"].to_pylist() == ["b y after 5"]


@quiet
@given(rule_cases(), st.integers(0, 12))
def test_every_match_over_derived_events_was_a_goal(case: RuleCase, watermark: int) -> None:
    """Derived events that have ended by the watermark are matched events of the goals of the patterns above them."""
    text = render_statements(case.program)
    settings = {"time": "time", "type": "type", "tables": tables_of(case)}
    known = [event for event in case.history if event.e <= watermark]
    try:
        detector = ensue.Detector(text, **settings)
        detector.advance(events_table(known), watermark=watermark)
    except QueryError as error:
        if error.code != "never-holds":
            raise
        return
    goals = ensue.waiting(detector, text, tables=settings["tables"]).to_pylist()
    for query in case.program.results:
        listed = [
            {(event["variable"], event["stream"], event["start"], event["end"]) for event in goal["matched"]}
            for goal in goals
            if goal["name"] == query.name
        ]
        for begun_by_then in begun(query, case.derived.events, watermark):
            assert any(begun_by_then <= goal for goal in listed), begun_by_then
