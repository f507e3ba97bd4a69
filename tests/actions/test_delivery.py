"""Delivering: what fails is tried again, what never works is a dead letter, and nothing of it stops the others."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actions.programs import FAST, LATE, Flaky, fast, orders
from ensue import StateError
from ensue.actions import Call, RejectedCall, act
from inside import Courier, Policy, Route, delivery


def test_a_receiver_that_works_is_called_once_for_each_event_in_the_order_of_time() -> None:
    notify = Flaky()
    done = act(orders(), LATE, {"notify": notify}, **FAST)
    assert notify.taken == [(0, 0), (2, 20), (3, 30)]
    assert (done.delivered, done.repeated, done.retried, done.failed) == (3, 0, 0, 0)
    assert len(set(notify.ids)) == 3


def test_a_receiver_that_fails_and_then_works_gets_every_call() -> None:
    notify = Flaky(failures=2)
    done = act(orders(), LATE, {"notify": notify}, **FAST)
    assert sorted(notify.taken) == [(0, 0), (2, 20), (3, 30)]
    assert set(notify.attempts.values()) == {3}
    assert (done.delivered, done.retried, done.failed) == (3, 3, 0)


def test_one_call_that_fails_does_not_hold_up_the_others() -> None:
    taken: list[int] = []

    def notify(id: int, qty: int) -> None:
        if id == 0 and len(taken) < 2:
            raise ValueError("not yet")
        taken.append(id)

    act(orders(), LATE, {"notify": notify}, **FAST)
    assert taken == [2, 3, 0]


def test_a_receiver_that_always_raises_leaves_dead_letters_and_the_other_actions_go_on(tmp_path: Path) -> None:
    program = f"{LATE}; ON late l WHERE l.qty > 5 DO count(l.id)"
    counted: list[int] = []
    receivers = {"notify": Flaky(-1), "count": counted.append}
    done = act(orders(), program, receivers, **fast(retries=2, dead_letters=tmp_path / "dead"))
    assert counted == [2, 3]
    assert (done.delivered, done.retried, done.failed) == (2, 3, 3)
    letters = pq.read_table(tmp_path / "dead")
    assert letters.equals(done.dead_letters)
    first = letters.to_pylist()[0]
    assert (first["action"], first["attempts"]) == ("notify", 3)
    assert json.loads(first["arguments"]) == {"arg_1": 0, "qty": 0}
    assert first["error"] == "ConnectionError: nobody at home for 0"
    assert first["first_attempt"] < first["last_attempt"]


def test_a_call_that_is_rejected_is_not_tried_again() -> None:
    attempts: list[int] = []

    def notify(id: int, qty: int) -> None:
        attempts.append(id)
        if id == 2:
            raise RejectedCall("no such customer")

    letters: list[dict[str, Any]] = []
    done = act(orders(), LATE, {"notify": notify}, **fast(dead_letters=letters))
    assert attempts == [0, 2, 3]
    assert (done.delivered, done.retried) == (2, 0)
    assert [(row["error"], row["attempts"]) for row in letters] == [("RejectedCall: no such customer", 1)]


def test_without_retries_each_call_is_tried_once() -> None:
    notify = Flaky(failures=1)
    assert act(orders(), LATE, {"notify": notify}, **fast(retries=0)).failed == 3
    assert set(notify.attempts.values()) == {1}


def test_calls_of_one_action_come_one_at_a_time_and_those_of_two_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=300)
    busy = threading.Lock()

    def one(id: int) -> None:
        assert busy.acquire(blocking=False)
        meeting.wait()
        busy.release()

    def two(id: int) -> None:
        meeting.wait()

    program = f"{LATE.split('ON late')[0]} ON late l DO one(l.id); ON late l DO two(l.id)"
    assert act(orders(), program, {"one": one, "two": two}, **fast(retries=0)).delivered == 6


def test_two_statements_with_one_action_have_deliveries_of_their_own() -> None:
    notify = Flaky()
    act(orders(), f"{LATE}; ON late l DO notify(l.id, qty = l.qty)", {"notify": notify}, **FAST)
    assert sorted(notify.taken) == sorted(2 * [(0, 0), (2, 20), (3, 30)])
    assert len(set(notify.ids)) == 6
    assert len(notify.threads) == 1


def test_equal_events_have_deliveries_of_their_own() -> None:
    events = pa.table({"t": [1, 1], "type": ["Order"] * 2, "id": [7, 7], "qty": [1, 1]})
    notify = Flaky()
    act(events, LATE, {"notify": notify}, **FAST)
    assert notify.taken == [(7, 1), (7, 1)]
    assert len(set(notify.ids)) == 2


# --- patience


def calls(count: int, action: str = "notify") -> pa.Table:
    ids = [f"{number:032x}" for number in range(count)]
    return pa.table({"delivery_id": ids, "action": [action] * count, "arg_1": list(range(count))})


class Slow:
    """Takes its time and then fails."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.attempts = 0

    def deliver(self, call: Call) -> None:
        self.attempts += 1
        time.sleep(self.seconds)
        raise TimeoutError("too slow")


def test_a_receiver_that_is_down_does_not_hold_up_a_step_beyond_patience() -> None:
    receiver = Slow(0.05)
    courier = Courier((Route("notify", (None,), receiver),), Policy(retries=5, backoff=0.01, patience=0.3))
    done = courier.deliver([calls(500)])
    assert receiver.attempts < 500
    assert done.failed == 500
    untried = [row for row in done.dead_letters.to_pylist() if row["attempts"] == 0]
    assert len(untried) == 500 - receiver.attempts
    assert untried[0]["error"].startswith("not tried")
    assert untried[0]["first_attempt"] is None


def test_many_calls_that_work_outlast_patience() -> None:
    taken: list[int] = []

    class Steady:
        def deliver(self, call: Call) -> None:
            time.sleep(0.002)
            if call.positional[0] == 50:
                raise ValueError("this one not")
            taken.append(call.positional[0])

    courier = Courier((Route("notify", (None,), Steady()),), Policy(retries=3, backoff=0.01, patience=0.01))
    done = courier.deliver([calls(100)])
    assert (len(taken), done.delivered, done.failed) == (99, 99, 1)


def test_a_pause_that_is_interrupted_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while calls wait to be tried again."""
    notify = Flaky(-1)

    def interrupted(*_: object) -> Any:
        while not notify.attempts:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(delivery.ThreadPoolExecutor, "map", _submitting_first(interrupted))
    with pytest.raises(KeyboardInterrupt):
        act(orders(), LATE, {"notify": notify}, **fast(backoff="20 minutes"))
    assert set(notify.attempts.values()) == {1}


def _submitting_first(then: Any) -> Any:
    def mapped(pool: Any, function: Any, items: Any) -> Any:
        for item in items:
            pool.submit(function, item)
        return then()

    return mapped


# --- the journal


def test_what_the_journal_holds_is_not_called_again(tmp_path: Path) -> None:
    journal = tmp_path / "delivered.sqlite"
    first, second = Flaky(), Flaky()
    act(orders(range(3)), LATE, {"notify": first}, **fast(journal=journal))
    done = act(orders(range(5)), LATE, {"notify": second}, **fast(journal=journal))
    assert first.taken == [(0, 0), (2, 20)]
    assert second.taken == [(3, 30), (4, 40)]
    assert (done.delivered, done.repeated) == (2, 2)


def test_dead_letters_are_called_again_by_the_next_run(tmp_path: Path) -> None:
    journal, dead = tmp_path / "delivered.sqlite", tmp_path / "dead"
    for _ in range(2):
        act(orders(), LATE, {"notify": Flaky(-1)}, **fast(retries=0, journal=journal, dead_letters=dead))
    assert pq.read_table(dead).num_rows == 3
    notify = Flaky()
    assert act(orders(), LATE, {"notify": notify}, **fast(journal=journal)).delivered == 3
    assert sorted(notify.ids) == sorted(pq.read_table(dead).column("delivery_id").to_pylist())


def test_without_a_journal_a_second_run_calls_again_with_the_same_ids() -> None:
    first, second = Flaky(), Flaky()
    for notify in (first, second):
        act(orders(), LATE, {"notify": notify}, **FAST)
    assert first.ids == second.ids


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are the notes of somebody else" * 100)
    with pytest.raises(StateError) as caught:
        act(orders(), LATE, {"notify": Flaky()}, **fast(journal=path))
    assert caught.value.code == "journal"


def test_many_ids_are_looked_up_and_kept(tmp_path: Path) -> None:
    taken: list[int] = []
    routes = (Route("notify", (None,), _Taking(taken)),)
    courier = Courier(routes, journal=tmp_path / "delivered.sqlite")
    assert courier.deliver([calls(1200)]).delivered == 1200
    done = courier.deliver([calls(1300)])
    assert (done.delivered, done.repeated, len(taken)) == (100, 1200, 1300)


class _Taking:
    def __init__(self, taken: list[int]) -> None:
        self.taken = taken

    def deliver(self, call: Call) -> None:
        self.taken += call.positional
