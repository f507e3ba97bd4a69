"""Any cut into batches, with snapshot and restore between any two, gives the matches of one batch, each once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import share
from ensue import Detector
from harness import ORDERS, events_table, ids_of, in_order, is_plannable
from inside import PatternQuery, evaluate, render_query, turn
from oracle.model import Bound
from oracle.oracle import OracleEvent, matches_between
from strategies.histories import Batches, batches
from strategies.patterns import cases

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")


Bindings = tuple[tuple[str, Bound], ...]


def named_bindings(table: pa.Table) -> Counter[Bindings]:
    """The matches of a result without RETURN: the event ids of each variable."""
    return Counter(bindings for bindings, _, _ in matches_in(table))


def oracle_bindings(query: PatternQuery, history: list[OracleEvent], after: float, until: float) -> Counter[Bindings]:
    return Counter(bindings for bindings, _, _ in matches_of_oracle(query, history, after, until))


def matches_in(table: pa.Table) -> list[tuple[Bindings, int, int]]:
    """The bindings and the interval of each match of a result without RETURN."""
    names = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    return [
        (tuple(sorted((name, ids_of(row[name])) for name in names if row[name] is not None)), row["start"], row["end"])
        for row in table.to_pylist()
    ]


def matches_of_oracle(
    query: PatternQuery, history: list[OracleEvent], after: float, until: float
) -> list[tuple[Bindings, int, int]]:
    return [
        (tuple((name, bound) for name, bound in match.bindings if isinstance(name, str)), match.start, match.end)
        for match in matches_between(query, history, after, until)
    ]


def in_order_of_arrival(cut: Batches) -> Batches:
    """The batches with the events numbered as they come."""
    numbers = count()
    return [([replace(event, id=next(numbers)) for event in events], watermark) for events, watermark in cut]


def check_cut(query: PatternQuery, cut: Batches, intervals: bool, restoring: bool, order: tuple[str, ...] = ()) -> None:
    """Feeds the batches and compares what each step gives with what the oracle says completed in it."""
    text = render_query(query)
    cut = in_order_of_arrival(cut)
    history = [event for events, _ in cut for event in events]

    def new_detector() -> Detector:
        return Detector(text, time="time", type="type", end="until" if intervals else None, order=order or None)

    detector = new_detector()
    after = float("-inf")
    for events, watermark in cut:
        step = detector.advance(events_table(events), watermark=watermark)
        assert Counter(matches_in(step.matches)) == Counter(matches_of_oracle(query, history, after, watermark))
        assert step.late.num_rows == 0
        after = watermark
        if restoring:
            saved = detector.snapshot()
            detector = new_detector()
            detector.restore(saved)
    last = detector.finish(events_table([]))
    assert Counter(matches_in(last.matches)) == Counter(matches_of_oracle(query, history, after, float("inf")))


HOUSEKEEPING = st.sampled_from(
    [
        {},
        {"FEW_KEPT": -1, "MOST_ADDED": 9},
        {"IDLE_CODES": -(2**40)},
        {"MOST_IDLE_ROWS": -(2**40)},
        {"FEW_EVENTS": -1, "MANY_MORE": 0},
    ]
)
"""When a step forgets events, numbers keys anew, copies columns and judges predicates late: for a few events, never."""


@share(2)
@given(
    data=st.data(),
    intervals=st.booleans(),
    restoring=st.booleans(),
    limits=HOUSEKEEPING,
    order=st.sampled_from(ORDERS),
)
def test_any_cut(
    data: st.DataObject, intervals: bool, restoring: bool, limits: dict[str, float], order: tuple[str, ...]
) -> None:
    query, history = data.draw(cases(intervals=intervals))
    if is_plannable(query, intervals):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in limits.items():
                patch.setattr(turn if hasattr(turn, name) else evaluate, name, value)
            check_cut(query, data.draw(batches(in_order(history, order))), intervals, restoring, order)


@share(2)
@given(data=st.data(), restoring=st.booleans())
def test_events_one_by_one(data: st.DataObject, restoring: bool) -> None:
    """A push gives what completes with it, whether or not it was put off what the rows before it mean."""
    query, history = data.draw(cases())
    if not is_plannable(query, False):
        return
    cut = in_order_of_arrival(data.draw(batches(history)))
    events = [event for batch, _ in cut for event in batch]
    detector = Detector(render_query(query), time="time", type="type")
    detector.advance(events_table([]), watermark=-1)
    after = -1.0
    for number, row in enumerate(events_table(events).to_pylist()):
        watermark = int(min([event.s for event in events[number + 1 :]], default=100)) - 1
        watermark = max(int(after), watermark)
        found = detector.push(row, watermark=watermark)
        expected = Counter(matches_of_oracle(query, events[: number + 1], after, watermark))
        schema = detector.advance(None, watermark=watermark).matches.schema if found else pa.schema([])
        assert Counter(matches_in(pa.Table.from_pylist(found, schema)) if found else ()) == expected
        after = watermark
        if restoring and data.draw(st.booleans()):
            saved, detector = detector.snapshot(), Detector(render_query(query), time="time", type="type")
            detector.restore(saved)
    last = detector.finish()
    assert Counter(matches_in(last.matches)) == Counter(matches_of_oracle(query, events, after, float("inf")))
