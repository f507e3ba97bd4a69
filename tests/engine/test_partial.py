"""Timed-out partial matches: a definition by brute force, and the queries and columns that stand for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import share
from engine.test_batching import named_bindings
from ensue import QueryError
from harness import input_of, load, plan_for
from inside import (
    Event,
    Expr,
    Frontier,
    Not,
    Options,
    Pattern,
    PatternQuery,
    Seq,
    collect_ordered,
    open_queries,
    output_schema,
    parse_statements,
    partial_output,
    partial_problems,
    partial_queries,
    raw_types,
    render_pattern,
    render_query,
    variables_of,
)
from inside import evaluate_plan as evaluate
from oracle.conditions import holds
from oracle.oracle import OracleEvent
from oracle.tree import conjuncts_of
from strategies.histories import histories

Chosen = dict[str, OracleEvent]

SOME = share(0.5)


# The definition, for a SEQ of single events:
#
#   A partial match binds the first k positive items of the top-level SEQ (negations between them respected, every
#   WHERE conjunct whose variables are all bound holds); it has timed out if its window has closed and no match of the
#   next positive item (with the negations before it and the conjuncts that name it) extends it within the window.


def timed_out(query: PatternQuery, history: Sequence[OracleEvent], k: int) -> Counter[tuple[tuple[str, int], ...]]:
    """The partial matches of the first k positive items that time out in a history after which nothing comes."""
    items = query.pattern.items
    found: Counter[tuple[tuple[str, int], ...]] = Counter()
    for events in by_key(query, history):
        for chosen in bound(query, items[: places(items)[k - 1] + 1], events):
            if not any(True for _ in extensions(query, chosen, items, k, events)):
                found[tuple(sorted((name, event.id) for name, event in chosen.items()))] += 1
    return found


def by_key(query: PatternQuery, history: Sequence[OracleEvent]) -> list[list[OracleEvent]]:
    groups: dict[tuple[object, ...], list[OracleEvent]] = {}
    for event in history:
        key = tuple(event.fields[name] for name in query.partition_by)
        if None not in key:
            groups.setdefault(key, []).append(event)
    return list(groups.values())


def places(items: Sequence[Pattern]) -> list[int]:
    """Where the positive items stand."""
    return [place for place, item in enumerate(items) if not isinstance(item, Not)]


def bound(query: PatternQuery, items: Sequence[Pattern], events: Sequence[OracleEvent]) -> Iterator[Chosen]:
    """Every way to bind all positive items: in order, within the window, conditions and negations respected."""
    positive = [items[place] for place in places(items)]
    for choice in product(*([event for event in events if event.stream == item.stream] for item in positive)):
        chosen = {item.variable: event for item, event in zip(positive, choice, strict=True)}
        in_order = all(one.e < other.s for one, other in pairwise(choice))
        if (
            in_order
            and choice[-1].e - choice[0].s <= query.within.count
            and all(all_hold(part, chosen) for part in conjuncts_of(query.where) if variables_of(part) <= chosen.keys())
            and negations_hold(query, items, chosen, events)
        ):
            yield chosen


def extensions(
    query: PatternQuery, chosen: Chosen, items: Sequence[Pattern], k: int, events: Sequence[OracleEvent]
) -> Iterator[Chosen]:
    """The partial matches of one more item that bind the same events."""
    for longer in bound(query, items[: places(items)[k] + 1], events):
        if all(longer[name] is event for name, event in chosen.items()):
            yield longer


def negations_hold(
    query: PatternQuery, items: Sequence[Pattern], chosen: Chosen, events: Sequence[OracleEvent]
) -> bool:
    """Whether no forbidden event lies between the neighbours of its item; none is at an edge."""
    for place, item in enumerate(items):
        if not isinstance(item, Not):
            continue
        left = chosen[next(other for other in reversed(items[:place]) if not isinstance(other, Not)).variable]
        right = chosen[next(other for other in items[place:] if not isinstance(other, Not)).variable]
        name = item.item.variable
        conditions = [part for part in conjuncts_of(query.where) if name in variables_of(part)]
        for event in events:
            together = {**chosen, name: event}
            if (
                event.stream == item.item.stream
                and left.e < event.s
                and event.e < right.s
                and all(all_hold(part, together) for part in conditions)
            ):
                return False
    return True


def all_hold(condition: Expr, chosen: Chosen) -> bool:
    def read(name: str | None, column: str) -> object:
        event = chosen[name or ""]
        return {"t": event.s, "s": event.s, "e": event.e}.get(column, event.fields.get(column))

    return holds(condition, read)


# Strategies

CONDITIONS = {
    ("a", "b"): ("a.x <= b.x", "b.t - a.t <= 3", "a.k = b.k"),
    ("b", "c"): ("b.x < c.y", "c.t - b.t >= 2", "b.name = c.name"),
    ("a", "c"): ("a.x != c.x", "c.t - a.t <= 6"),
    ("a",): ("a.x > 0", "a.y IS NOT NULL"),
    ("b",): ("b.x < 3",),
    ("c",): ("c.y >= 1",),
    ("n", "a"): ("n.x = a.x", "n.t - a.t <= 2"),
    ("m", "b"): ("m.x >= b.x",),
    ("m", "c"): ("m.y < c.y",),
    ("a", "b", "c"): ("a.x + b.x >= c.x",),
}
"""Conditions by the names they mention: a, b, c are bound, n is forbidden between a and b, m between b and c."""


@st.composite
def sequences(draw: st.DrawFn) -> PatternQuery:
    """SEQ of two to four single events with negations between them, conditions, a window and perhaps keys."""
    names = ["a", "b", "c", "d"][: draw(st.integers(2, 4))]
    items: list[str] = []
    for place, name in enumerate(names):
        items.append(f"{draw(st.sampled_from('ABC'))} {name}")
        if place < len(names) - 1 and draw(st.booleans()):
            items.append(f"NOT {draw(st.sampled_from('CDB'))} {'nmo'[place]}")
    known = {item.split()[-1] for item in items}
    usable = [text for own, texts in CONDITIONS.items() if known >= set(own) for text in texts]
    where = draw(st.lists(st.sampled_from(usable), max_size=3, unique=True))
    keys = draw(st.sampled_from(("", "", " PARTITION BY k")))
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    text = f"PATTERN SEQ({', '.join(items)}){condition}{keys} WITHIN {draw(st.sampled_from((2, 3, 5, 8)))}"
    return parse_statements(text).statements[0]


# Properties


@SOME
@given(query=sequences(), history=histories(streams=tuple("AABBCCD")))
def test_they_are_those_of_the_definition(query: PatternQuery, history: list[OracleEvent]) -> None:
    check(query, history, False)


@SOME
@given(query=sequences(), history=histories(intervals=True, streams=tuple("AABBCCD")))
def test_so_it_is_for_intervals(query: PatternQuery, history: list[OracleEvent]) -> None:
    check(query, history, True)


def check(query: PatternQuery, history: list[OracleEvent], intervals: bool) -> None:
    partials = partial_queries(query)
    positive = [query.pattern.items[place] for place in places(query.pattern.items)]
    assert [partial.missing.variable for partial in partials] == [item.variable for item in positive[1:]]
    for k, partial in enumerate(partials, start=1):
        shape = input_of(history, intervals)
        expected = timed_out(query, history, k)
        try:
            plan = plan_for(partial.query, shape)
        except QueryError as error:
            assert error.code == "never-holds"  # noqa: PT017
            assert not expected
            continue
        output = output_schema(plan, raw_types(plan, [shape]))
        chunks = evaluate(plan, load(plan, [shape]), Frontier(), Options(), {})
        assert named_bindings(collect_ordered(chunks, output, None, 100)) == expected


@SOME
@given(query=sequences())
def test_the_queries_are_sequences_with_their_missing_item_forbidden(query: PatternQuery) -> None:
    for k, partial in enumerate(partial_queries(query), start=1):
        assert isinstance(partial.query.pattern, Seq)
        *present, forbidden = partial.query.pattern.items
        assert len(places(present)) == k
        assert isinstance(forbidden, Not)
        assert parse_statements(render_query(partial.query)).statements[0] == partial.query
        assert (partial.query.within, partial.query.partition_by) == (query.within, query.partition_by)


# Examples


def query_of(text: str) -> PatternQuery:
    return parse_statements(text).statements[0]


def partial_texts(text: str) -> list[str]:
    return [" ".join(render_query(partial.query).split()) for partial in partial_queries(query_of(text))]


def test_partials_as_text() -> None:
    where = "WHERE a.x = b.x AND n.x = a.x AND b.y < c.y AND a.y > 0"
    assert partial_texts(f"PATTERN p SEQ(A a, NOT N n, B b, C c) {where} WITHIN 9 RETURN c.x") == [
        "PATTERN p SEQ(A a, NOT SEQ(NOT N n, B b)) WHERE a.x = b.x AND n.x = a.x AND a.y > 0 WITHIN 9",
        f"PATTERN p SEQ(A a, NOT N n, B b, NOT C c) {where} WITHIN 9",
    ]


def test_a_negation_behind_the_last_item_belongs_to_no_partial_match() -> None:
    assert partial_texts("PATTERN SEQ(A a, B b, NOT C c) WHERE c.x = a.x WITHIN 5") == [
        "PATTERN SEQ(A a, NOT B b) WITHIN 5"
    ]


def test_windows_and_names_around_the_sequence_stay() -> None:
    assert partial_texts("PATTERN (SEQ(A a, B b) WITHIN 3) AS p WITHIN 5") == [
        "PATTERN (SEQ(A a, NOT B b) WITHIN 3 AS p) WITHIN 5"
    ]


def test_a_forbidden_event_before_the_missing_item_keeps_it_from_counting() -> None:
    """The B at 3 does not extend the A at 1, for a C lies between; that at 7 extends the A at 6."""
    streams = ((1, "A"), (2, "C"), (3, "B"), (6, "A"), (7, "B"))
    events = [OracleEvent(number, stream, t, t) for number, (t, stream) in enumerate(streams)]
    query = query_of("PATTERN SEQ(A a, NOT C n, B b) WITHIN 5")
    assert timed_out(query, events, 1) == Counter({(("a", 0),): 1})
    check(query, events, False)


def test_the_missing_item_may_be_a_pattern() -> None:
    (partial,) = partial_queries(query_of("PATTERN SEQ(A a, AND(B b, C c)) WHERE b.x = a.x WITHIN 5"))
    events = [OracleEvent(0, "A", 1, 1, {"x": 1}), OracleEvent(1, "C", 2, 2, {"x": 1})]
    for present, expected in ((events, 1), ([*events, OracleEvent(2, "B", 3, 3, {"x": 1})], 0)):
        shape = input_of(present, False)
        plan = plan_for(partial.query, shape)
        found = sum(chunk.rows.length for chunk in evaluate(plan, load(plan, [shape]), Frontier(), Options(), {}))
        assert found == expected


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("PATTERN SEQ(A a, B b) WITHIN 5", []),
        ("PATTERN SEQ(A a, B b) WITHIN 5 EVENTS", []),
        ("PATTERN SEQ(A a, NOT C c, B b, NOT C d) WITHIN 5", []),
        ("PATTERN A a WITHIN 5", ["partial-form"]),
        ("PATTERN AND(A a, B b) WITHIN 5", ["partial-form"]),
        ("PATTERN OR(A a, SEQ(A b, B c)) WITHIN 5", ["partial-form"]),
        ("PATTERN SEQ(A a, NOT B b) WITHIN 5", ["partial-form"]),
        ("PATTERN SEQ(A a, B b)", ["partial-window"]),
        ("PATTERN SEQ(A a, SEQ(B b, C c) WITHIN 5)", ["partial-window"]),
    ],
)
def test_what_has_no_partial_matches(text: str, codes: list[str]) -> None:
    assert [problem.code for problem in partial_problems(query_of(text))] == codes


def rendered(text: str, events: Sequence[OracleEvent], k: int, waiting_for: str) -> pa.Table:
    """The timed-out partial matches of k items in the columns of the whole query."""
    query, shape = query_of(text), input_of(events, False)
    output = partial_output(
        output_schema(plan_for(query, shape), raw_types(plan_for(query, shape), [shape])), waiting_for
    )
    plan = plan_for(partial_queries(query)[k - 1].query, shape)
    chunks = evaluate(plan, load(plan, [shape]), Frontier(), Options(), {})
    return collect_ordered(chunks, output, None, 100)


EVENTS = [
    OracleEvent(0, "A", 1, 1, {"x": 7, "k": 1}),
    OracleEvent(1, "B", 2, 2, {"x": 8, "k": 1}),
    OracleEvent(2, "A", 3, 3, {"x": 9, "k": 2}),
]


def test_columns_of_what_is_not_bound_are_null() -> None:
    text = (
        "PATTERN SEQ(A a, B b, C c) PARTITION BY k WITHIN 5 RETURN a.x AS x, b.x AS y, c.x + 1 AS z, c.t - a.t AS took"
    )
    found = rendered(text, EVENTS, 1, "b")
    assert found.column_names == ["x", "y", "z", "took", "waiting_for"]
    assert found.to_pylist() == [{"x": 9, "y": None, "z": None, "took": None, "waiting_for": "b"}]
    found = rendered(text, EVENTS, 2, "c")
    assert found.to_pylist() == [{"x": 7, "y": 8, "z": None, "took": None, "waiting_for": "c"}]
    assert found.schema.types == [pa.int64()] * 4 + [pa.string()]


def test_whole_events_that_are_not_bound_are_null() -> None:
    (row,) = rendered("PATTERN SEQ(A a, B b, C c) PARTITION BY k WITHIN 5", EVENTS, 2, "c").to_pylist()
    assert (row["k"], row["start"], row["end"], row["waiting_for"]) == (1, 1, 2, "c")
    assert (row["a"]["id"], row["b"]["id"], row["c"]) == (0, 1, None)


def test_a_column_of_that_name_keeps_it() -> None:
    text = "PATTERN SEQ(A a, B b) WITHIN 1 RETURN a.x AS waiting_for"
    found = rendered(text, EVENTS[2:], 1, "b")
    assert found.to_pylist() == [{"waiting_for": 9, "waiting_for_": "b"}]


def test_events_in_the_window_are_counted() -> None:
    """`WITHIN 2 EVENTS`: the A at 1 is followed by its B, that at 3 by something else, that at 9 by nothing yet."""
    query = query_of("PATTERN SEQ(A a, B b) WITHIN 2 EVENTS")
    streams = ((1, "A"), (2, "B"), (3, "A"), (4, "C"), (5, "B"), (9, "A"))
    events = [OracleEvent(number, stream, t, t) for number, (t, stream) in enumerate(streams)]
    shape = input_of(events, False)
    plan = plan_for(partial_queries(query)[0].query, shape)
    output = output_schema(plan, raw_types(plan, [shape]))
    chunks = evaluate(plan, load(plan, [shape]), Frontier(after=None, until=9), Options(), {})
    assert named_bindings(collect_ordered(chunks, output, None, 100)) == Counter({(("a", 2),): 1})


def test_queries_are_not_changed() -> None:
    query = query_of("PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.x")
    assert partial_queries(query)[0].query.returns == ()
    assert replace(query) == query
    assert [type(item) for item in query.pattern.items] == [Event, Event]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("SEQ(A, A)", ["SEQ(A, NOT A)"]),
        ("SEQ(A, B, A)", ["SEQ(A, NOT B)", "SEQ(A, B, NOT A)"]),
        ("SEQ(A a, B, NOT C c, B)", ["SEQ(A a, NOT B)", "SEQ(A a, B, NOT C c, NOT B)"]),
    ],
)
def test_what_can_still_be_extended(pattern: str, expected: list[str]) -> None:
    query = parse_statements(f"PATTERN {pattern} WITHIN 5").statements[0]
    assert [render_pattern(partial.query.pattern) for partial in open_queries(query)] == expected


@pytest.mark.parametrize(
    "policy", ["CONSUME", "MATCH NEXT CONSUME", "MATCH RECENT", "MATCH CHRONICLE", "MATCH CONTINUOUS"]
)
def test_where_matches_use_events_up_there_are_none(policy: str) -> None:
    query = parse_statements(f"PATTERN SEQ(A a, B b) WITHIN 5 {policy}").statements[0]
    assert [problem.code for problem in partial_problems(query)] == ["partial-form"]


def test_conditions_on_lists_that_have_not_come_are_left_out() -> None:
    text = "PATTERN SEQ(A a, B b, C c{2}) WHERE count(c) > 1 AND sum(c.x) > b.x WITHIN 5"
    query = parse_statements(text).statements[0]
    assert not partial_problems(query)
    assert [partial.query.where is None for partial in partial_queries(query)] == [True, False]


def test_what_first_and_last_choose_among_is_missing_as_a_whole() -> None:
    query = parse_statements("PATTERN SEQ(A a, FIRST B b, C c) WITHIN 5").statements[0]
    assert [render_pattern(partial.query.pattern) for partial in partial_queries(query)] == [
        "SEQ(A a, NOT B b)",
        "SEQ(A a, FIRST B b, NOT C c)",
    ]
