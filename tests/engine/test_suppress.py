"""SUPPRESS FOR: any cut into batches, with restarts, reports what the oracle reports; the state stays small."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from draws import share
from engine.test_batching import Bindings, in_order_of_arrival, matches_in
from ensue import Detector
from harness import ORDERS, events_table, in_order, is_plannable
from inside import Event, Field, PatternQuery, Suppression, Ticks, render_query
from oracle.oracle import OracleEvent, matches_between
from oracle.tree import WHOLE, scope_of, walk
from strategies.histories import Batches, batches
from strategies.operators import cases_with_lists, cases_with_operators, cases_with_picks
from strategies.patterns import cases
from strategies.policies import cases_with_consumption, cases_with_sequences

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

FAMILIES = {
    "patterns": cases,
    "operators": cases_with_operators,
    "lists": cases_with_lists,
    "picks": cases_with_picks,
    "sequences": cases_with_sequences,
    "consumption": cases_with_consumption,
}

Shown = tuple[Bindings, int, int, int]


@st.composite
def suppressed(draw: st.DrawFn, query: PatternQuery) -> PatternQuery:
    """The query with a short SUPPRESS, sometimes per values of its events."""
    leaves = [
        part for path, part in walk(query.pattern) if isinstance(part, Event) and scope_of(query.pattern, path) == WHOLE
    ]
    names = sorted({part.variable for part in leaves if isinstance(part.variable, str)})
    values = st.builds(Field, st.sampled_from(names), st.sampled_from(("x", "y", "name"))) if names else st.nothing()
    per = draw(st.lists(values, max_size=2)) if names else []
    return replace(query, suppress=Suppression(Ticks(draw(st.sampled_from((0, 1, 2, 3, 5, 9, 40)))), tuple(per)))


def shown_in(table: pa.Table) -> Counter[Shown]:
    numbers = table.column("suppressed").to_pylist()
    return Counter((*match, number) for match, number in zip(matches_in(table), numbers, strict=True))


def shown_by_oracle(query: PatternQuery, history: list[OracleEvent], after: float, until: float) -> Counter[Shown]:
    return Counter(
        (
            tuple((name, bound) for name, bound in match.bindings if isinstance(name, str)),
            match.start,
            match.end,
            match.suppressed,
        )
        for match in matches_between(query, history, after, until)
    )


def check_cut(query: PatternQuery, cut: Batches, intervals: bool, restoring: bool, order: tuple[str, ...]) -> None:
    text, cut = render_query(query), in_order_of_arrival(cut)
    history = [event for events, _ in cut for event in events]
    columns = {"time": "time", "type": "type", "end": "until" if intervals else None, "order": order or None}
    detector, after = Detector(text, **columns), float("-inf")
    for events, watermark in cut:
        step = detector.advance(events_table(events), watermark=watermark)
        assert shown_in(step.matches) == shown_by_oracle(query, history, after, watermark)
        after = watermark
        if restoring:
            saved, detector = detector.snapshot(), Detector(text, **columns)
            detector.restore(saved)
    last = detector.finish(events_table([]))
    assert shown_in(last.matches) == shown_by_oracle(query, history, after, float("inf"))
    whole = ensue.detect(events_table(history), text, **columns)
    assert shown_in(whole) == shown_by_oracle(query, history, float("-inf"), float("inf"))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@share(3)
@given(data=st.data(), intervals=st.booleans(), restoring=st.booleans(), order=st.sampled_from(ORDERS))
def test_any_cut(family, data: st.DataObject, intervals: bool, restoring: bool, order: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    query, history = data.draw(family(intervals=intervals))
    query = data.draw(suppressed(query))
    if is_plannable(query, intervals):
        check_cut(query, data.draw(batches(in_order(history, order))), intervals, restoring, order)
