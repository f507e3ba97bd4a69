"""The engine gives exactly the oracle's matches, optimised or not, in any order of input."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from draws import share
from ensue import QueryError
from harness import ORDERS, count_chunks, from_engine, from_oracle, in_order, input_of, load, plan_for
from inside import (
    PLAIN,
    Frontier,
    Options,
    PatternQuery,
    catalog_of,
    counts_events,
    parse_statements,
    plan_query,
    render_query,
)
from inside import evaluate_plan as evaluate
from oracle.oracle import OracleEvent
from strategies.patterns import cases

SMALL_CHUNKS = Options(chunk_rows=3)


def check(
    query: PatternQuery, history: list[OracleEvent], intervals: bool, options: Options, order: tuple[str, ...]
) -> None:
    shape = input_of(history, intervals, order)
    expected = from_oracle(query, in_order(history, order))
    try:
        plan = plan_for(query, shape)
    except QueryError as error:
        if error.code != "never-holds":
            raise
        plan = None
    if plan is None:
        assert not expected
        return
    assert from_engine(plan, shape, options) == expected


@share(3)
@given(
    data=st.data(),
    intervals=st.booleans(),
    options=st.sampled_from((Options(), PLAIN, SMALL_CHUNKS)),
    order=st.sampled_from(ORDERS),
)
def test_one_batch(data: st.DataObject, intervals: bool, options: Options, order: tuple[str, ...]) -> None:
    check(*data.draw(cases(intervals=intervals)), intervals, options, order)


@given(case=cases(), data=st.data())
def test_order_of_input_is_irrelevant(case: tuple[PatternQuery, list[OracleEvent]], data: st.DataObject) -> None:
    query, history = case
    if counts_events(query):
        return  # positions of equal times follow the arrival
    shuffled = data.draw(st.permutations(history))
    shape = input_of(history, False)
    try:
        plan = plan_for(query, shape)
    except QueryError:
        return
    assert from_engine(plan, shape, Options()) == from_engine(plan, input_of(shuffled, False), Options())


@given(case=cases())
def test_one_table_per_stream(case: tuple[PatternQuery, list[OracleEvent]]) -> None:
    query, history = case
    if counts_events(query):
        return  # the arrival of equal times differs between one table and several
    by_stream = {name: [event for event in history if event.stream == name] for name in "ABCDE"}
    inputs = [replace(input_of(events, False), stream=name, type=None) for name, events in by_stream.items()]
    statements = parse_statements(render_query(query))
    try:
        plan = plan_query(statements.statements[0], catalog_of(tuple(inputs)), statements.source)
    except QueryError:
        return
    found = count_chunks(evaluate(plan, load(plan, inputs), Frontier(), Options(), {}), plan, inputs)
    assert found == from_oracle(query, history)
