"""Eager machines: each match once, with the last of its events to come, whatever their order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from draws import share
from engine.test_batching import named_bindings, oracle_bindings
from ensue import EnsueError, QueryError
from harness import events_table
from inside import (
    Binary,
    Columns,
    Events,
    Machine,
    Not,
    Options,
    Pattern,
    PatternQuery,
    State,
    Ticks,
    Window,
    Within,
    compile_plan,
    parse_statements,
    plan_queries,
    render_query,
)
from oracle.oracle import OracleEvent, matches
from oracle.tree import conjuncts_of, homes, names_in
from strategies.patterns import cases

Case = tuple[PatternQuery, list[OracleEvent]]

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")
SOME = share(0.5)
FEWER = share(0.25)


# Strategies


def without_negations(query: PatternQuery) -> PatternQuery:
    """The query without its NOTs and the conditions on them, and with its windows in time."""

    def window(given: Window) -> Window:
        return Ticks(given.count) if isinstance(given, Events) else given

    def pattern(node: Pattern) -> Pattern:
        if isinstance(node, Within):
            return replace(node, item=pattern(node.item), window=window(node.window))
        if hasattr(node, "items"):
            return replace(node, items=tuple(pattern(item) for item in node.items if not isinstance(item, Not)))
        return replace(node, item=pattern(node.item)) if hasattr(node, "item") else node

    positive = pattern(query.pattern)
    kept = [part for part in conjuncts_of(query.where) if names_in(part) <= homes(positive).keys()]
    return replace(
        query,
        pattern=positive,
        where=reduce(lambda left, right: Binary("and", left, right), kept) if kept else None,
        within=query.within and window(query.within),
    )


@st.composite
def positive_cases(draw: st.DrawFn, *, intervals: bool = False) -> Case:
    """A query without NOT and EVENTS, and a history."""
    query, history = draw(cases(intervals=intervals))
    return without_negations(query), history


@st.composite
def deliveries(draw: st.DrawFn, history: list[OracleEvent]) -> list[tuple[list[OracleEvent], int]]:
    """The history in any order in a few batches, each with the last watermark after which nothing comes late."""
    order = draw(st.permutations(history))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=5)))
    batches = [order[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    earliest = [
        min((event.e for batch in batches[number + 1 :] for event in batch), default=100)
        for number in range(len(batches))
    ]
    return [(batch, moment - 1) for batch, moment in zip(batches, earliest, strict=True)]


# Properties


def machine_of(text: str, intervals: bool, match_id: bool = False) -> Machine:
    columns = Columns("time", "type", "until" if intervals else None)
    planned = plan_queries(events_table([]), parse_statements(text), columns, match_id)
    return compile_plan(planned, Options(), eager=True)


def check_steps(query: PatternQuery, batches: list[tuple[list[OracleEvent], int]], intervals: bool) -> None:
    try:
        machine = machine_of(render_query(query), intervals)
    except QueryError as error:
        if error.code != "never-holds":
            raise
        return
    arrival = {event.id: number for number, (events, _) in enumerate(batches) for event in events}
    expected: list[Counter] = [Counter() for _ in batches]
    for match in matches(query, [event for events, _ in batches for event in events]):
        named = tuple((name, event) for name, event in match.bindings if isinstance(name, str))
        expected[max(arrival[event] for _, event in match.bindings)][named] += 1
    state = machine.start()
    for number, (events, watermark) in enumerate(batches):
        table = events_table(events).select(machine.inputs[0].table.column_names)
        step = machine.step(state, machine.read([table]), watermark)
        state = step.state
        assert not any(mask.any() for mask in step.late)
        assert named_bindings(step.outputs[0]) == expected[number]
    if query.within is not None:
        assert state.kept_rows == 0


@SOME
@given(case=positive_cases(), data=st.data())
def test_each_match_comes_with_the_last_of_its_events(case: Case, data: st.DataObject) -> None:
    query, history = case
    check_steps(query, data.draw(deliveries(history)), False)


@FEWER
@given(case=positive_cases(intervals=True), data=st.data())
def test_so_it_is_for_intervals(case: Case, data: st.DataObject) -> None:
    query, history = case
    check_steps(query, data.draw(deliveries(history)), True)


@FEWER
@given(case=positive_cases())
def test_on_a_table_eager_and_complete_are_the_same(case: Case) -> None:
    query, history = case
    text, table = render_query(query), events_table(history)
    try:
        eager = ensue.detect(table, text, time="time", type="type", emit="eager")
    except QueryError as error:
        if error.code != "never-holds":
            raise
        return
    assert eager.equals(ensue.detect(table, text, time="time", type="type", emit="complete"))
    assert named_bindings(eager) == oracle_bindings(query, history, float("-inf"), float("inf"))


# Examples

TABLE = pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"]})


@pytest.mark.parametrize(
    ("text", "emit", "code"),
    [
        ("PATTERN SEQ(A a, NOT B b, C c) WITHIN 5", "eager", "eager-not"),
        ("PATTERN SEQ(A a, NOT B b) WITHIN 5", "eager", "eager-not"),
        ("PATTERN SEQ(A a, C c, NOT B b) WITHIN 5 EVENTS", "eager", "eager-not"),
        ("PATTERN AND(A a, SEQ(B b, NOT A other, C c)) WITHIN 5", "eager", "eager-not"),
        ("PATTERN SEQ(A a, C c) WITHIN 5 EVENTS", "eager", "eager-events"),
        ("PATTERN SEQ(A a, SEQ(B b, C c) WITHIN 2 EVENTS) WITHIN 5", "eager", "eager-events"),
        ("PATTERN SEQ(A a, C c) WITHIN 5", "early", "emit-word"),
        ("PATTERN SEQ(A a, C c) WITHIN 5", None, "emit-word"),
        ("PATTERN SEQ(A a, C c) WITHIN 5", True, "emit-word"),
    ],
)
def test_what_cannot_be_eager(text: str, emit: str, code: str) -> None:
    for call in (ensue.detect, lambda table, query, **named: ensue.run(table, query, **named)):
        with pytest.raises(EnsueError) as caught:
            call(TABLE, text, time="t", type="type", emit=emit)
        assert caught.value.code == code


def test_every_negation_is_pointed_at() -> None:
    with pytest.raises(QueryError) as caught:
        ensue.detect(TABLE, "PATTERN SEQ(A a, NOT B b, C c, NOT B d) WITHIN 5", time="t", type="type", emit="eager")
    assert [problem.code for problem in caught.value.problems] == ["eager-not", "eager-not"]


def event(number: int, stream: str, moment: int) -> OracleEvent:
    return OracleEvent(number, stream, moment, moment)


def steps_of(machine: Machine, given: list[tuple[list[OracleEvent], int]]) -> tuple[list[list[pa.Table]], State]:
    """What each step gives, and the state at the end."""
    state, found = machine.start(), []
    for events, moment in given:
        table = events_table(events).select(machine.inputs[0].table.column_names)
        step = machine.step(state, machine.read([table]), moment)
        state = step.state
        found.append(list(step.outputs))
    return found, state


def test_the_first_event_may_come_last() -> None:
    machine = machine_of("PATTERN SEQ(A a, B b, C c) WITHIN 5", False)
    arriving = (event(0, "C", 4), event(1, "B", 2), event(2, "A", 1), event(3, "C", 5))
    found, _ = steps_of(machine, [([one], 0) for one in arriving])
    assert [tables[0].num_rows for tables in found] == [0, 0, 1, 1]


def test_several_patterns_at_once() -> None:
    machine = machine_of("PATTERN p SEQ(A a, B b) WITHIN 5; PATTERN q AND(A a, C c) WITHIN 1", False)
    steps = [([event(0, "B", 3), event(1, "C", 2)], 0), ([event(2, "A", 1)], 1), ([event(3, "C", 2)], 9)]
    found, state = steps_of(machine, steps)
    assert [[table.num_rows for table in tables] for tables in found] == [[0, 0], [1, 1], [0, 1]]
    assert state.kept_rows == 0


def test_equal_events_in_different_steps_give_different_ids() -> None:
    machine = machine_of("PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.x AS x", False, match_id=True)
    found, _ = steps_of(machine, [([event(0, "A", 1), event(1, "B", 2)], 0), ([event(2, "A", 1)], 0)])
    ids = [tables[0].column("match_id").to_pylist() for tables in found]
    assert [len(step) for step in ids] == [1, 1]
    assert ids[0] != ids[1]
