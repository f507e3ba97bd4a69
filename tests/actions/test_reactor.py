"""Reacting step by step: the deliveries of the whole table, however it is cut, and after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from actions.programs import COLUMNS, FAST, LATE, Flaky, orders
from draws import share
from ensue import QueryError, StateError

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
    ensue.act(PROGRAM, table, whole, **FAST)
    reactor = ensue.Reactor(PROGRAM, steps, **FAST)
    place = 0
    for size in sizes:
        part = table.slice(place, size)
        place += size
        # Equal times may still come: the watermark stays before the last one.
        reactor.advance(part, watermark=times[min(place, len(rows)) - 1] - 1 if rows else 0)
    reactor.finish()
    for name, kept in whole.items():
        assert sorted(steps[name].calls) == sorted(kept.calls)
        assert len({id for id, _ in kept.calls}) == len(kept.calls)


def test_steps_tell_what_became_of_their_calls_and_of_late_rows() -> None:
    notify = Flaky(failures=1)
    reactor = ensue.Reactor(LATE, {"notify": notify}, **FAST)
    assert reactor.watermark is None
    first = reactor.advance(orders(), watermark=6)
    assert (first.deliveries.delivered, first.deliveries.retried, first.late.num_rows) == (1, 1, 0)
    with pytest.warns(ensue.EnsueWarning, match="ignored: at or before the watermark"):
        second = reactor.finish(orders(range(2)))
    assert (second.deliveries.delivered, second.late.num_rows, reactor.watermark) == (2, 3, 6)


def test_a_receiver_that_raises_stops_nothing() -> None:
    letters: list[dict[str, Any]] = []
    reactor = ensue.Reactor(LATE, {"notify": Flaky(-1)}, **FAST, retries=1, dead_letters=letters)
    assert reactor.advance(orders(), watermark=6).deliveries.failed == 1
    assert reactor.finish().deliveries.failed == 2
    assert len({row["delivery_id"] for row in letters}) == 3


class Crash(BaseException):
    """The process dies: nobody catches it."""


@pytest.mark.parametrize("with_journal", [True, False])
def test_a_crash_after_a_delivery_and_before_the_snapshot(tmp_path: Path, with_journal: bool) -> None:
    """The step is repeated from the last snapshot: the same ids, which a journal keeps from being called again."""
    options: dict[str, Any] = {**FAST, "delivered": tmp_path / "delivered.sqlite" if with_journal else None}
    table = orders(range(6))
    before, after = Flaky(), Flaky()
    reactor = ensue.Reactor(LATE, {"notify": before}, **options)
    reactor.advance(table.slice(0, 3), watermark=2)
    saved = reactor.snapshot()

    def dies(id: int, qty: int, *, delivery_id: str) -> None:
        if id == 3:
            raise Crash
        before(id, qty, delivery_id=delivery_id)

    reactor = ensue.Reactor(LATE, {"notify": dies}, **options)
    reactor.restore(saved)
    with pytest.raises(Crash):
        reactor.advance(table.slice(3), watermark=20)
    assert before.taken == [(0, 0), (2, 20)]
    reactor = ensue.Reactor(LATE, {"notify": after}, **options)
    reactor.restore(saved)
    done = reactor.advance(table.slice(3), watermark=20).deliveries
    expected = [(3, 30), (4, 40), (5, 50)]
    assert after.taken == (expected if with_journal else [(0, 0), (2, 20), *expected])
    assert done.repeated == (2 if with_journal else 0)
    assert with_journal or after.ids[:2] == before.ids


def test_a_snapshot_of_another_program_is_refused() -> None:
    reactor = ensue.Reactor(LATE, {"notify": Flaky()}, **COLUMNS)
    reactor.advance(orders(), watermark=2)
    other = ensue.Reactor(LATE.replace("WITHIN 5", "WITHIN 50"), {"notify": Flaky()}, **COLUMNS)
    with pytest.raises(StateError):
        other.restore(reactor.snapshot())


def test_everything_is_checked_before_the_first_step() -> None:
    with pytest.raises(QueryError) as caught:
        ensue.Reactor(LATE, {}, **COLUMNS)
    assert caught.value.code == "no-action"
