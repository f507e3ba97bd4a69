"""What holds for the core holds for operators, lists, FIRST and LAST, and policies, mixed with each other and with it.

One batch under every option, any cut with snapshots between, any order of input, and the way by text and back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ensue
from draws import share
from engine.test_against_oracle import SMALL_CHUNKS, check
from engine.test_batching import check_cut
from ensue import QueryError
from harness import ORDERS, REFUSED, events_table, from_engine, in_order, input_of, is_plannable, plan_for
from inside import PLAIN, Operation, Options, PatternQuery, Repeat, counts_events, parse_statements, render_query
from oracle.tree import walk
from strategies.histories import batches
from strategies.operators import Case, cases_with_lists, cases_with_operators, cases_with_picks
from strategies.policies import cases_with_consumption, cases_with_sequences

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

Cases = Callable[..., st.SearchStrategy[Case]]

FAMILIES: dict[str, Cases] = {
    "operators": cases_with_operators,
    "lists": cases_with_lists,
    "first and last": cases_with_picks,
}
CHOSEN: dict[str, Cases] = {"next and strict": cases_with_sequences, "consume": cases_with_consumption}
"""Contexts are programs of several plans; they and the policies in steps are in test_choice."""

OPTIONS = st.sampled_from((Options(), PLAIN, SMALL_CHUNKS))

few = share(0.6)
families = pytest.mark.parametrize("cases", FAMILIES.values(), ids=FAMILIES)


@pytest.mark.parametrize("cases", [*FAMILIES.values(), *CHOSEN.values()], ids=[*FAMILIES, *CHOSEN])
@few
@given(data=st.data(), intervals=st.booleans(), options=OPTIONS, order=st.sampled_from(ORDERS))
def test_one_batch(
    cases: Cases, data: st.DataObject, intervals: bool, options: Options, order: tuple[str, ...]
) -> None:
    check(*drawn(data, cases, intervals), intervals, options, order)


@families
@few
@given(data=st.data(), intervals=st.booleans(), restoring=st.booleans(), order=st.sampled_from(ORDERS))
def test_any_cut(cases: Cases, data: st.DataObject, intervals: bool, restoring: bool, order: tuple[str, ...]) -> None:
    query, history = drawn(data, cases, intervals)
    if is_plannable(query, intervals):
        check_cut(query, data.draw(batches(in_order(history, order))), intervals, restoring, order)


@families
@few
@given(data=st.data(), intervals=st.booleans())
def test_order_of_input(cases: Cases, data: st.DataObject, intervals: bool) -> None:
    query, history = drawn(data, cases, intervals)
    if arrival_matters(query) or not is_plannable(query, intervals):
        return
    shape, shuffled = input_of(history, intervals), input_of(data.draw(st.permutations(history)), intervals)
    plan = plan_for(query, shape)
    assert from_engine(plan, shape, Options()) == from_engine(plan, shuffled, Options())


@families
@few
@given(data=st.data())
def test_text_and_back(cases: Cases, data: st.DataObject) -> None:
    query, _ = data.draw(cases())
    assert parse_statements(render_query(query)).statements == (query,)


@families
@few
@given(data=st.data())
def test_ids_of_matches(cases: Cases, data: st.DataObject) -> None:
    """Two matches have two ids, and the same match has the same one in a batch and in steps."""
    query, history = drawn(data, cases, False)
    if not is_plannable(query, False):
        return
    batch = ids_in(ensue.detect(events_table(history), render_query(query), time="time", type="type", match_id=True))
    assert set(batch.values()) <= {1}
    detector = ensue.Detector(render_query(query), time="time", type="type", match_id=True)
    stepwise: Counter[str] = Counter()
    for events, watermark in data.draw(batches(history)):
        stepwise += ids_in(detector.advance(events_table(events), watermark=watermark).matches)
    assert stepwise + ids_in(detector.finish(events_table([])).matches) == batch


def drawn(data: st.DataObject, cases: Cases, intervals: bool) -> Case:
    query, history = data.draw(cases(intervals=intervals))
    try:
        plan_for(query, input_of([], intervals))
    except QueryError as error:
        assume(error.code not in REFUSED)
    return query, history


def ids_in(table: pa.Table) -> Counter[str]:
    return Counter(table.column("match_id").to_pylist())


def arrival_matters(query: PatternQuery) -> bool:
    """Positions and lists follow the arrival where times are equal."""
    lists = any(
        isinstance(part, Repeat) or (isinstance(part, Operation) and part.operator in ("APERIODIC*", "RELATIVE+"))
        for _, part in walk(query.pattern)
    )
    return counts_events(query) or lists
