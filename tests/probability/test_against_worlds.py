"""The probability of a match is that of all worlds in which it is one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue import QueryError
from harness import events_table, from_engine, input_of, load, plan_for, shown_matches
from inside import (
    PLAIN,
    Frontier,
    InputTable,
    Options,
    PatternQuery,
    QueryPlan,
    output_schema,
    parse_statements,
    raw_types,
)
from inside import evaluate_plan as evaluate
from oracle.oracle import OracleEvent
from oracle.worlds import Uncertain
from strategies.operators import cases_with_lists, cases_with_operators, cases_with_picks
from strategies.patterns import cases
from strategies.uncertain import SOME, uncertain

SEMANTIC_WINDOWS = ("FOLLOWS", "PRECEDES", "NOTFOLLOWS", "NOTPRECEDES", "ANYONE", "BOTH")
GUARDED = ("APERIODIC", "UNLESS", "PERIODIC", "SIMULTANEOUS", "PRIOR", "CONCURRENT", "ANY")
WITHOUT_MEANING = {"uncertain-positions", "uncertain-first", "uncertain-list"}

Chances = dict[Hashable, float]


def uncertain_input(given: Uncertain, intervals: bool) -> InputTable:
    shape = input_of(given.history, intervals)
    chances = pa.array([given.probability[event.id] for event in given.history], pa.float64())
    groups = pa.array([given.group.get(event.id) for event in given.history], pa.int64())
    table = events_table(given.history).append_column("p", chances).append_column("alternatives of", groups)
    return InputTable(table, shape.time, shape.end, type=shape.type, probability="p", alternatives=("alternatives of",))


def planned(query: PatternQuery, shape: InputTable) -> QueryPlan | None:
    try:
        return plan_for(query, shape)
    except QueryError as error:
        if error.code not in WITHOUT_MEANING | {"never-holds"}:
            raise
        return None


def chances_by_engine(plan: QueryPlan, shape: InputTable, options: Options) -> Chances:
    found: Chances = defaultdict(float)
    output = output_schema(plan, raw_types(plan, [shape]))
    for chunk in evaluate(plan, load(plan, [shape]), Frontier(), options, {}):
        assert chunk.rows.probability is not None
        for shown, chance in zip(shown_matches(chunk, output), chunk.rows.probability, strict=True):
            found[shown] += float(chance)
    return found


def chances_by_worlds(query: PatternQuery, given: Uncertain, intervals: bool) -> Chances:
    plan = plan_for(query, input_of(given.history, intervals))
    found: Chances = defaultdict(float)
    for weight, real in given.worlds():
        for key, number in from_engine(plan, input_of(real, intervals), Options()).items():
            found[key] += weight * number
    return found


def check(query: PatternQuery, given: Uncertain, intervals: bool, options: Options) -> None:
    shape = uncertain_input(given, intervals)
    plan = planned(query, shape)
    if plan is not None:
        found, expected = (
            chances_by_engine(plan, shape, options),
            chances_by_worlds(query, given, intervals),
        )
        assert found.keys() == {key for key, chance in expected.items() if chance > 0}
        assert all(found[key] == pytest.approx(expected[key], abs=1e-9) for key in found)


@pytest.mark.parametrize("options", [Options(), PLAIN], ids=["optimised", "plain"])
@SOME
@given(case=cases(), data=st.data())
def test_patterns(case: tuple[PatternQuery, list[OracleEvent]], data: st.DataObject, options: Options) -> None:
    query, history = case
    check(query, data.draw(uncertain(history)), False, options)


@SOME
@given(case=cases(intervals=True), data=st.data())
def test_intervals(case: tuple[PatternQuery, list[OracleEvent]], data: st.DataObject) -> None:
    query, history = case
    check(query, data.draw(uncertain(history)), True, Options())


@pytest.mark.parametrize("operators", [SEMANTIC_WINDOWS, GUARDED], ids=["semantic windows", "others"])
@SOME
@given(data=st.data())
def test_operators(data: st.DataObject, operators: tuple[str, ...]) -> None:
    query, history = data.draw(cases_with_operators(operators=operators))
    check(query, data.draw(uncertain(history)), False, Options())


@SOME
@given(case=cases_with_picks(), data=st.data())
def test_first_and_last(case: tuple[PatternQuery, list[OracleEvent]], data: st.DataObject) -> None:
    query, history = case
    check(query, data.draw(uncertain(history)), False, Options())


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(
    "pattern",
    [
        "SEQ(A a, NOT B n, NOT SEQ(B m, D d), C c)",
        "SEQ(A a, NOT SEQ(B m, D d), NOT D n, C c)",
        "SEQ(A a, NOT SEQ(B m, D d), NOT SEQ(B n, E e), C c)",
        "SEQ(A a, NOT SEQ(B m, D d), NOT E e, C c)",
        "SEQ(A a, NOT SEQ(B m, NOT D d, E e), NOT D n, C c)",
        "SEQ(A a, NOT AND(B m, E e), NOT OR(B n, D d), C c)",
    ],
)
def test_threats_that_share_events(pattern: str, grouped: bool) -> None:
    """A forbidden event by itself and as a part of a forbidden match: their chances are no product."""
    query = parse_statements(f"PATTERN {pattern} WITHIN 10").statements[0]
    history = [OracleEvent(number, stream, number, number, {}) for number, stream in enumerate("ABDBEC")]
    chances = {event.id: 1.0 if event.stream in "AC" else 0.4 for event in history}
    check(query, Uncertain(tuple(history), chances, {1: 7, 3: 7} if grouped else {}), False, Options())


LISTED = ("COLLECT", "REPEAT")


def without_lists(shown: Hashable) -> Hashable:
    """The match without what its lists hold, which differs from world to world."""
    bindings, *rest = shown  # type: ignore[misc]
    return tuple((name, bound) for name, bound in bindings if not isinstance(bound, tuple)), *rest


@SOME
@given(data=st.data())
def test_lists(data: st.DataObject) -> None:
    query, history = data.draw(cases_with_lists(lists=LISTED))
    given = data.draw(uncertain(history, most=5))
    shape = uncertain_input(given, False)
    plan = planned(query, shape)
    if plan is None:
        return
    found: Chances = defaultdict(float)
    expected: Chances = defaultdict(float)
    for shown, chance in chances_by_engine(plan, shape, Options()).items():
        found[without_lists(shown)] += chance
    for shown, chance in chances_by_worlds(query, given, False).items():
        expected[without_lists(shown)] += chance
    assert found == pytest.approx(expected, abs=1e-9)
