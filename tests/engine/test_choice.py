"""Policies choose what the oracle chooses: in one batch, in any cut into batches, with snapshot and restore between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
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
from strategies.histories import STREAMS, batches
from strategies.operators import Case
from strategies.policies import (
    cases_with_composites,
    cases_with_consumption,
    cases_with_contexts,
    cases_with_sequences,
)

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


@dataclass(frozen=True)
class Tables:
    """How the events come: in one table, or, if the events of some streams have no order, in one table per stream."""

    intervals: bool
    order: tuple[str, ...] = ()
    unordered: frozenset[str] = frozenset()

    def in_order(self, history: list[OracleEvent]) -> list[OracleEvent]:
        """The events with their order."""
        ordered = in_order(history, self.order)
        return [replace(event, order=None) if event.stream in self.unordered else event for event in ordered]

    def of(self, events: list[OracleEvent]) -> pa.Table | dict[str, pa.Table]:
        if not self.unordered:
            return events_table(events)
        return {stream: self._table(events, stream) for stream in sorted({*STREAMS})}

    def _table(self, events: list[OracleEvent], stream: str) -> pa.Table:
        table = events_table([event for event in events if event.stream == stream])
        for name in () if stream in self.unordered else self.order:
            table = table.append_column(f"order of {name}", table.column(name))
        return table

    @property
    def columns(self) -> dict[str, Any]:
        order = [f"order of {name}" if self.unordered else name for name in self.order]
        return {
            "time": "time",
            **({} if self.unordered else {"type": "type"}),
            **({"end": "until"} if self.intervals else {}),
            **({"order": order} if order else {}),
        }


def check_batch(case: Case, tables: Tables) -> None:
    query, history = case
    wanted = expected(query, tables.in_order(history), float("-inf"), float("inf"))
    try:
        table = ensue.detect(tables.of(history), render_query(query), **tables.columns)
    except QueryError as error:
        assume(error.code not in REFUSED)
        if error.code != "never-holds" or wanted:
            raise
        return
    assert found(query, table) == wanted


def check_cut(case: Case, data: st.DataObject, restoring: bool, tables: Tables) -> None:
    query, history = case
    cut = in_order_of_arrival(data.draw(batches(tables.in_order(history))))
    arrived = [event for events, _ in cut for event in events]
    try:
        detector = ensue.Detector(render_query(query), **tables.columns)
        detector.advance(tables.of([]), watermark=-2)
    except QueryError as error:
        assume(error.code not in (*REFUSED, "never-holds"))
        raise
    after = -2.0
    for events, watermark in cut:
        step = detector.advance(tables.of(events), watermark=watermark)
        assert found(query, step.matches) == expected(query, arrived, after, watermark)
        after = watermark
        if restoring:
            saved = detector.snapshot()
            detector = ensue.Detector(render_query(query), **tables.columns)
            detector.restore(saved)
    rest = detector.finish(tables.of([]))
    assert found(query, rest.matches) == expected(query, arrived, after, float("inf"))


@pytest.mark.parametrize("policy", [RECENT, CHRONICLE, CONTINUOUS, CUMULATIVE])
@share(0.6)
@given(data=st.data(), order=orders)
def test_contexts(policy: str, data: st.DataObject, order: tuple[str, ...]) -> None:
    intervals = data.draw(st.booleans())
    check_batch(data.draw(cases_with_contexts(intervals=intervals, policies=(policy,))), Tables(intervals, order))


@share(0.6)
@given(data=st.data(), restoring=st.booleans(), order=orders)
def test_contexts_in_batches(data: st.DataObject, restoring: bool, order: tuple[str, ...]) -> None:
    intervals = data.draw(st.booleans())
    check_cut(data.draw(cases_with_contexts(intervals=intervals)), data, restoring, Tables(intervals, order))


@st.composite
def ordered_tables(draw: st.DrawFn) -> Tables:
    """Tables with order columns, except for those of some streams."""
    unordered = draw(st.sampled_from(((), (), ("A",), ("B",), ("C", "D"))))
    return Tables(draw(st.booleans()), draw(st.sampled_from(tuple(filter(None, ORDERS)))), frozenset(unordered))


@pytest.mark.parametrize("policy", [RECENT, CHRONICLE, CONTINUOUS, CUMULATIVE])
@share(0.6)
@given(data=st.data(), tables=ordered_tables())
def test_composites_in_order(policy: str, data: st.DataObject, tables: Tables) -> None:
    check_batch(data.draw(cases_with_composites(intervals=tables.intervals, policies=(policy,))), tables)


@share(0.6)
@given(data=st.data(), restoring=st.booleans(), tables=ordered_tables())
def test_composites_in_order_in_batches(data: st.DataObject, restoring: bool, tables: Tables) -> None:
    check_cut(data.draw(cases_with_composites(intervals=tables.intervals)), data, restoring, tables)


@share(0.6)
@given(data=st.data(), order=orders)
def test_sequences_and_consumption(data: st.DataObject, order: tuple[str, ...]) -> None:
    intervals = data.draw(st.booleans())
    kind = data.draw(st.sampled_from([cases_with_sequences, cases_with_consumption]))
    check_batch(data.draw(kind(intervals=intervals)), Tables(intervals, order))


@share(0.6)
@given(data=st.data(), restoring=st.booleans(), order=orders)
def test_sequences_and_consumption_in_batches(data: st.DataObject, restoring: bool, order: tuple[str, ...]) -> None:
    intervals = data.draw(st.booleans())
    kind = data.draw(st.sampled_from([cases_with_sequences, cases_with_consumption]))
    check_cut(data.draw(kind(intervals=intervals)), data, restoring, Tables(intervals, order))
