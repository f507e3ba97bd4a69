"""Policies choose what the oracle chooses: in one batch, in any cut into batches, with snapshot and restore between."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ensue
from draws import share
from engine.test_batching import in_order_of_arrival
from ensue import QueryError
from harness import ORDERS, REFUSED, events_table, in_order
from inside import CHRONICLE, CONTINUOUS, CUMULATIVE, RECENT, PatternQuery, positive_names, render_query
from oracle.model import Bound, OracleEvent
from oracle.oracle import matches_between
from strategies.histories import batches
from strategies.operators import Case
from strategies.policies import cases_with_consumption, cases_with_contexts, cases_with_sequences

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

orders = st.sampled_from(ORDERS)

Chosen = Counter[tuple[tuple[tuple[str, Bound], ...], int, int]]


def expected(query: PatternQuery, history: list[OracleEvent], after: float, until: float) -> Chosen:
    return Counter(
        (
            tuple((name, bound) for name, bound in match.bindings if isinstance(name, str) and bound != ()),
            match.start,
            match.end,
        )
        for match in matches_between(query, history, after, until)
    )


def found(query: PatternQuery, table: pa.Table) -> Chosen:
    """The matches of a result without RETURN: the events of each variable, lists that are not empty, the interval."""
    names = sorted(positive_names(query.pattern))
    result: Chosen = Counter()
    for row in table.to_pylist():
        bindings = [(name, _bound(row[name])) for name in names if row[name]]
        result[tuple(bindings), row["start"], row["end"]] += 1
    return result


def _bound(value: dict[str, int] | list[dict[str, int] | None]) -> Bound:
    """The id of an event, or those of a list; an element that took another branch has null there."""
    return value["id"] if isinstance(value, dict) else tuple(event["id"] if event else None for event in value)


def check_batch(case: Case, intervals: bool, order: tuple[str, ...]) -> None:
    query, history = case
    wanted = expected(query, in_order(history, order), float("-inf"), float("inf"))
    try:
        table = ensue.detect(events_table(history), render_query(query), **_columns(intervals, order))
    except QueryError as error:
        assume(error.code not in REFUSED)
        if error.code != "never-holds" or wanted:
            raise
        return
    assert found(query, table) == wanted


def check_cut(case: Case, data: st.DataObject, intervals: bool, restoring: bool, order: tuple[str, ...]) -> None:
    query, history = case
    cut = in_order_of_arrival(data.draw(batches(in_order(history, order))))
    arrived = [event for events, _ in cut for event in events]
    try:
        detector = ensue.Detector(render_query(query), **_columns(intervals, order))
        detector.advance(events_table([]), watermark=-2)
    except QueryError as error:
        assume(error.code not in (*REFUSED, "never-holds"))
        raise
    after = -2.0
    for events, watermark in cut:
        step = detector.advance(events_table(events), watermark=watermark)
        assert found(query, step.matches) == expected(query, arrived, after, watermark)
        after = watermark
        if restoring:
            saved = detector.snapshot()
            detector = ensue.Detector(render_query(query), **_columns(intervals, order))
            detector.restore(saved)
    rest = detector.finish(events_table([]))
    assert found(query, rest.matches) == expected(query, arrived, after, float("inf"))


def _columns(intervals: bool, order: tuple[str, ...]) -> dict[str, Any]:
    return {
        "time": "time",
        "type": "type",
        **({"end": "until"} if intervals else {}),
        **({"order": order} if order else {}),
    }


@pytest.mark.parametrize("policy", [RECENT, CHRONICLE, CONTINUOUS, CUMULATIVE])
@share(0.6)
@given(data=st.data(), order=orders)
def test_contexts(policy: str, data: st.DataObject, order: tuple[str, ...]) -> None:
    intervals = data.draw(st.booleans())
    check_batch(data.draw(cases_with_contexts(intervals=intervals, policies=(policy,))), intervals, order)


@share(0.6)
@given(data=st.data(), restoring=st.booleans(), order=orders)
def test_contexts_in_batches(data: st.DataObject, restoring: bool, order: tuple[str, ...]) -> None:
    intervals = data.draw(st.booleans())
    check_cut(data.draw(cases_with_contexts(intervals=intervals)), data, intervals, restoring, order)


@share(0.6)
@given(data=st.data(), order=orders)
def test_sequences_and_consumption(data: st.DataObject, order: tuple[str, ...]) -> None:
    intervals = data.draw(st.booleans())
    kind = data.draw(st.sampled_from([cases_with_sequences, cases_with_consumption]))
    check_batch(data.draw(kind(intervals=intervals)), intervals, order)


@share(0.6)
@given(data=st.data(), restoring=st.booleans(), order=orders)
def test_sequences_and_consumption_in_batches(data: st.DataObject, restoring: bool, order: tuple[str, ...]) -> None:
    intervals = data.draw(st.booleans())
    kind = data.draw(st.sampled_from([cases_with_sequences, cases_with_consumption]))
    check_cut(data.draw(kind(intervals=intervals)), data, intervals, restoring, order)
