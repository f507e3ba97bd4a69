"""A detector with actions: the deliveries of the whole table, however it is cut, and after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from actions.programs import COLUMNS, FAST, LATE, Flaky, fast, orders
from draws import share
from ensue import QueryError, StateError
from ensue.actions import act

PROGRAM = f"""
    {LATE};
    STREAM twice FROM PATTERN SEQ(late one, late two) WITHIN 8 RETURN one.id AS one, two.id AS two;
    ON twice p WHERE p.one <> p.two DO pair(p.one, p.two);
    ON twice p DO pair(p.two, p.one)
"""


class Kept:
    """Remembers every call by its id."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __call__(self, *values: Any, delivery_id: str, **named: Any) -> None:
        self.calls.append((delivery_id, (*values, *named.values())))


def receivers() -> dict[str, Kept]:
    return {"notify": Kept(), "pair": Kept()}


events = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["Order", "Order", "Paid"]), st.integers(0, 2), st.integers(0, 1)),
    max_size=25,
)


@share(0.25)
@given(events, st.lists(st.integers(1, 6), min_size=25, max_size=25))
def test_any_cut_gives_the_deliveries_of_the_whole(rows: list[tuple[int, str, int, int]], sizes: list[int]) -> None:
    times = [sum(row[0] for row in rows[: place + 1]) for place in range(len(rows))]
    table = pa.table(
        {
            "t": pa.array(times, pa.int64()),
            "type": pa.array([row[1] for row in rows], pa.string()),
            "id": pa.array([row[2] for row in rows], pa.int64()),
            "qty": pa.array([row[3] for row in rows], pa.int64()),
        }
    )
    whole, steps = receivers(), receivers()
    act(table, PROGRAM, whole, **FAST)
    detector = ensue.Detector(PROGRAM, actions=steps, **FAST)
    place = 0
    for size in sizes:
        part = table.slice(place, size)
        place += size
        # Equal times may still come: the watermark stays before the last one.
        detector.advance(part, watermark=times[min(place, len(rows)) - 1] - 1 if rows else 0)
    detector.finish()
    for name, kept in whole.items():
        assert sorted(steps[name].calls) == sorted(kept.calls)
        assert len({id for id, _ in kept.calls}) == len(kept.calls)


def test_steps_tell_what_became_of_their_calls_and_of_late_rows() -> None:
    notify = Flaky(failures=1)
    detector = ensue.Detector(LATE, actions={"notify": notify}, **FAST)
    assert detector.watermark is None
    first = detector.advance(orders(), watermark=6)
    assert (first.deliveries.delivered, first.deliveries.retried, first.late.num_rows) == (1, 1, 0)
    with pytest.warns(ensue.EnsueWarning, match="at or before the watermark"):
        second = detector.finish(orders(range(2)))
    assert (second.deliveries.delivered, second.late.num_rows, detector.watermark) == (2, 3, 6)


def test_a_receiver_that_raises_stops_nothing() -> None:
    letters: list[dict[str, Any]] = []
    detector = ensue.Detector(LATE, actions={"notify": Flaky(-1)}, **fast(retries=1, dead_letters=letters))
    assert detector.advance(orders(), watermark=6).deliveries.failed == 1
    assert detector.finish().deliveries.failed == 2
    assert len({row["delivery_id"] for row in letters}) == 3


class Crash(BaseException):
    """The process dies: nobody catches it."""


@pytest.mark.parametrize("with_journal", [True, False])
def test_a_crash_after_a_delivery_and_before_the_snapshot(tmp_path: Path, with_journal: bool) -> None:
    """The step is repeated from the last snapshot: the same ids, which a journal keeps from being called again."""
    options = fast(journal=tmp_path / "delivered.sqlite" if with_journal else None)
    table = orders(range(6))
    before, after = Flaky(), Flaky()
    detector = ensue.Detector(LATE, actions={"notify": before}, **options)
    detector.advance(table.slice(0, 3), watermark=2)
    saved = detector.snapshot()

    def dies(id: int, qty: int, *, delivery_id: str) -> None:
        if id == 3:
            raise Crash
        before(id, qty, delivery_id=delivery_id)

    detector = ensue.Detector(LATE, actions={"notify": dies}, **options)
    detector.restore(saved)
    with pytest.raises(Crash):
        detector.advance(table.slice(3), watermark=20)
    assert before.taken == [(0, 0), (2, 20)]
    detector = ensue.Detector(LATE, actions={"notify": after}, **options)
    detector.restore(saved)
    done = detector.advance(table.slice(3), watermark=20).deliveries
    expected = [(3, 30), (4, 40), (5, 50)]
    assert after.taken == (expected if with_journal else [(0, 0), (2, 20), *expected])
    assert done.repeated == (2 if with_journal else 0)
    assert with_journal or after.ids[:2] == before.ids


def test_a_snapshot_of_another_program_is_refused() -> None:
    detector = ensue.Detector(LATE, actions={"notify": Flaky()}, **COLUMNS)
    detector.advance(orders(), watermark=2)
    other = ensue.Detector(LATE.replace("WITHIN 5", "WITHIN 50"), actions={"notify": Flaky()}, **COLUMNS)
    with pytest.raises(StateError):
        other.restore(detector.snapshot())


def test_everything_is_checked_before_the_first_step() -> None:
    with pytest.raises(QueryError) as caught:
        ensue.Detector(LATE, actions={}, **COLUMNS)
    assert caught.value.code == "no-action"


# --- with matches, states and violations


BOTH = f"PATTERN paid SEQ(Order o, Paid p) PARTITION BY id WITHIN 5 RETURN o.id AS id, o.qty AS match_id; {LATE}"


def test_matches_and_calls_come_from_the_same_steps() -> None:
    notify = Flaky()
    detector = ensue.Detector(BOTH, actions={"notify": notify}, **FAST)
    step = detector.advance(orders(), watermark=20)
    assert step.matches.to_pylist() == [{"id": 1, "match_id": 10}]
    assert step.deliveries is not None
    assert (step.deliveries.delivered, notify.taken) == (3, [(0, 0), (2, 20), (3, 30)])
    shown = ensue.Detector(BOTH, actions={"notify": Flaky()}, match_id=True, **FAST).finish(orders())
    assert shown.matches.column_names[1] == "id"
    assert (step.violations, step.tracked, step.ignored) == (None, None, None)
    several = f"{BOTH}; PATTERN other (Order o)"
    found = ensue.Detector(several, actions={"notify": Flaky()}, **FAST).finish(orders()).matches
    assert {name: table.num_rows for name, table in found.items()} == {"paid": 1, "other": 4}


def test_without_actions_on_statements_are_not_called() -> None:
    step = ensue.Detector(BOTH, **COLUMNS).finish(orders())
    assert (step.matches.num_rows, step.deliveries) == (1, None)
    with pytest.raises(ensue.SchemaError, match="delivery-option"):
        ensue.Detector(BOTH, **FAST)


def test_calls_are_delivered_for_events_that_are_pushed() -> None:
    notify = Flaky()
    detector = ensue.Detector(LATE, actions={"notify": notify}, **FAST)
    for row in orders().to_pylist():
        assert detector.push(row, watermark=row["t"] - 1) == []
    detector.finish()
    assert notify.taken == [(0, 0), (2, 20), (3, 30)]


EVERYTHING = f"""
    STATE queue OF clerk IN (free, busy) STARTS free
      ON Order o: MOVE clerk FROM free TO busy PROBABILITY 0.5
      ON Paid p: MOVE clerk FROM busy TO free;
    CONSTRAINT PRIOR(Order, Paid) PARTITION BY id;
    PATTERN busy SEQ(Order o, Paid p) PARTITION BY id WITHIN 5
      WHERE o.P(clerk IN busy) > 0.1 RETURN o.id AS id, o.P(clerk IN busy) AS busy;
    {LATE}
"""


@pytest.mark.parametrize("size", [1, 2, 5])
def test_one_detector_does_everything_and_resumes_from_a_snapshot(size: int) -> None:
    table = orders()
    measures = {"busy": "P(clerk in busy)", "where": "MOST LIKELY(clerk)"}
    options: dict[str, Any] = {**FAST, "measures": measures, "violations": True}
    whole_calls, calls = Flaky(), Flaky()
    whole = ensue.Detector(EVERYTHING, actions={"notify": whole_calls}, **options).finish(table)
    tracked, matches, broken = [], [], []
    saved = None
    for begin in range(0, table.num_rows, size):
        detector = ensue.Detector(EVERYTHING, actions={"notify": calls}, **options)
        if saved is not None:
            detector.restore(saved)
        batch = table.slice(begin, size)
        step = detector.advance(batch, watermark=batch.column("t").to_pylist()[-1] - 1)
        for part, own in ((tracked, step.tracked), (matches, step.matches), (broken, step.violations)):
            part.append(own)
        saved = detector.snapshot()
    last = detector.finish()
    for part, own in ((tracked, last.tracked), (matches, last.matches), (broken, last.violations)):
        part.append(own)
    assert pa.concat_tables(tracked).to_pylist() == whole.tracked.to_pylist()
    assert pa.concat_tables(matches).to_pylist() == whole.matches.to_pylist() == [{"id": 1, "busy": 0.75}]
    assert pa.concat_tables(broken).num_rows == whole.violations.num_rows == 0
    assert sorted(calls.taken) == sorted(whole_calls.taken)
    assert whole.tracked.column_names == [*table.column_names, "busy", "where"]
    alone = ensue.Detector(EVERYTHING.split(";")[0], measures=measures, **COLUMNS).finish(table)
    assert alone.tracked.to_pylist() == whole.tracked.to_pylist()
    assert detector.beliefs().probability("clerk in busy").column("probability").to_pylist() == [0.0]


def test_measures_are_no_fields_of_patterns() -> None:
    query = EVERYTHING.replace("o.id AS id, o.P(clerk IN busy) AS busy", "o.mine AS mine")
    detector = ensue.Detector(query, measures={"mine": "P(clerk in busy)"}, **COLUMNS)
    with pytest.raises(QueryError) as caught:
        detector.finish(orders())
    assert caught.value.code == "no-such-field"
