"""`ensue.actions.act` over tables: what is checked before anything runs, and what receivers are handed."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import ensue
from actions.programs import COLUMNS, FAST, LATE, Flaky, orders
from ensue import QueryError, SchemaError
from ensue.actions import Delivery, act
from inside import to_json

DECLARED = LATE.split("ON late")[0]


def code_of(program: str, receivers: Any, **options: Any) -> str:
    with pytest.raises(ensue.EnsueError) as caught:
        act(orders(), program, receivers, **{**COLUMNS, **options})
    assert isinstance(caught.value, QueryError | SchemaError)
    return caught.value.code


def test_a_condition_and_calculated_arguments() -> None:
    taken: list[tuple[Any, ...]] = []

    def notify(*values: Any, **named: Any) -> None:
        taken.append((*values, named))

    program = f"{DECLARED} ON late l WHERE l.qty >= 20 DO notify(l.qty * 2, l.at + 1, why = 'late', urgent = TRUE)"
    act(orders(), program, {"notify": notify}, **FAST)
    assert taken == [(40, 3, {"why": "late", "urgent": True}), (60, 4, {"why": "late", "urgent": True})]


RULES = """
    TABLE price(product, amount);
    FACT vip(9);
    RULE overdue(id, q) <- o: Order(id=id, qty=q), w: extend(o, 5), while w: not Paid(id=id);
    RULE overdue(id, q) <- o: Order(id=id, qty=q), w: extend(o, 5), while w: not Paid(id=id), q >= 0;
    RULE dear(id, amount) <- overdue(id, q), price(q, amount), vip(id);
    RULE twice(a, b) <- x: overdue(a, _), y: overdue(b, _), x before y;
    ON overdue o WHERE o.q > 5 DO notify(o.id, qty = o.q);
    ON twice p DO pair(p.a, p.b);
    ON dear d DO pair(d.id, d.amount)
"""


def test_events_of_rules_are_acted_on_once_however_they_were_derived() -> None:
    notify, pairs = Flaky(), []
    events = pa.concat_tables([orders(), pa.table({"t": [20], "type": ["Order"], "id": [9], "qty": [90]})])
    receivers = {"notify": notify, "pair": lambda a, b: pairs.append((a, b))}
    given = {**FAST, "tables": {"price": pa.table({"product": [30, 90], "amount": [3, 7]})}}
    act(events, RULES, receivers, **given)
    expected = notify.taken, pairs
    assert expected == ([(2, 20), (3, 30), (9, 90)], [(0, 9), (2, 9), (3, 9), (9, 7)])
    notify, pairs = Flaky(), []
    receivers = {"notify": notify, "pair": lambda a, b: pairs.append((a, b))}
    detector = ensue.Detector(RULES, actions=receivers, **given)
    for place in range(events.num_rows):
        detector.advance(events.slice(place, 1), watermark=events.column("t")[place].as_py() - 1)
    detector.finish()
    assert (notify.taken, pairs) == expected


def test_an_action_without_arguments() -> None:
    rung: list[int] = []
    done = act(orders(), f"{DECLARED} ON late l DO ring()", {"ring": lambda: rung.append(1)}, **FAST)
    assert (done.delivered, len(rung)) == (3, 3)


def test_patterns_beside_are_not_in_the_way() -> None:
    notify = Flaky()
    act(orders(), f"PATTERN all (Order o) RETURN o.id; {LATE}", {"notify": notify}, **FAST)
    assert len(notify.taken) == 3


def test_tables_of_every_kind_give_the_same_calls() -> None:
    expected, found = Flaky(), Flaky()
    events = orders()
    missing = pa.array([None, *events.column("qty").to_pylist()[1:]], pa.int64())
    events = events.set_column(events.schema.get_field_index("qty"), "qty", missing)
    act(events, LATE, {"notify": expected}, **FAST)
    act(events.to_pandas(types_mapper=pd.ArrowDtype), LATE, {"notify": found}, **FAST)
    assert found.taken == expected.taken == [(0, None), (2, 20), (3, 30)]
    assert found.ids == expected.ids


def test_ids_stay_when_other_statements_come_and_conditions_change() -> None:
    first, second = Flaky(), Flaky()
    act(orders(), LATE, {"notify": first}, **FAST)
    more = f"{DECLARED} ON late l DO log(l.id); ON late l WHERE l.qty > 5 DO notify(l.id, qty = l.qty)"
    act(orders(), more, {"notify": second, "log": lambda id: None}, **FAST)
    assert second.ids == first.ids[1:]


# --- what is refused before anything runs


def test_names_that_are_not_handed_over() -> None:
    with pytest.raises(QueryError) as caught:
        act(orders(), LATE, {"notifi": print}, **COLUMNS)
    assert (caught.value.code, caught.value.hint) == ("no-action", "did you mean `notifi`?")
    assert caught.value.line == 4


def test_nothing_runs_when_one_of_two_actions_is_missing() -> None:
    notify = Flaky()
    assert code_of(f"{LATE}; ON late l DO log(l.id)", {"notify": notify}) == "no-action"
    assert notify.attempts.total() == 0


def test_a_text_names_actions_and_never_code() -> None:
    for name in ("print", "exec", "os.system", "__import__"):
        assert code_of(f"{DECLARED} ON late l DO `{name}`(l.id)", {}) == "no-action"


def test_receivers_that_nothing_calls() -> None:
    assert code_of(LATE, {"notify": Flaky(), "log": print}) == "unused-action"


@pytest.mark.parametrize("program", [7, [], None])
def test_what_is_no_program(program: Any) -> None:
    assert code_of(program, {"notify": Flaky()}) == "not-a-query"


def test_programs_of_every_form() -> None:
    in_python = ensue.rules.on("late", "l").do("notify", "l.id", qty="l.qty")
    taken = []
    for program in (LATE, ensue.parse(LATE), [DECLARED, in_python]):
        notify = Flaky()
        act(orders(), program, {"notify": notify}, **FAST)
        taken.append((notify.taken, notify.ids))
    assert len(taken[0][0]) == 3
    assert taken[0] == taken[1] == taken[2]


def test_a_program_without_actions() -> None:
    assert code_of("PATTERN Order o", {}) == "nothing-to-do"


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("PATTERN big (Order o) WHERE o.qty > 5 RETURN o.id; ON big b DO notify(b.id)", "STREAM big FROM PATTERN"),
        (f"{DECLARED} ON lat l DO notify(l.id)", "did you mean `late`?"),
        (f"{DECLARED} ON Paid l DO notify(l.id)", "a declared stream"),
    ],
)
def test_streams_that_nothing_gives(program: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        act(orders(), program, {"notify": Flaky()}, **COLUMNS)
    assert caught.value.code == "action-stream"
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("call", "receiver"),
    [
        ("notify(l.id, l.qty, l.at)", lambda id, qty: None),
        ("notify(l.id)", lambda id, qty: None),
        ("notify(l.id, quantity = l.qty)", lambda id, qty: None),
        ("notify(l.id, action = l.qty)", print),
        ("notify(l.id, delivery_id = l.qty)", lambda id, delivery_id: None),
        ("notify(l.id, arg_1 = l.qty)", lambda *values, **named: None),
    ],
)
def test_arguments_that_do_not_fit(call: str, receiver: Any) -> None:
    assert code_of(f"{DECLARED} ON late l DO {call}", {"notify": receiver}) == "action-arguments"


def test_functions_that_do_not_tell_their_parameters_are_taken() -> None:
    found: dict[str, int] = {}
    act(orders(), f"{DECLARED} ON late l DO keep(key = l.id)", {"keep": found.update}, **FAST)
    assert found == {"key": 3}


async def notify_later(id: int, qty: int) -> None:
    """Would never run."""


@pytest.mark.parametrize("receiver", [7, "https://example.org", None, notify_later])
def test_what_is_no_receiver(receiver: Any) -> None:
    assert code_of(LATE, {"notify": receiver}) == "receiver-type"


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -1},
        {"retries": True},
        {"backoff": 5},
        {"backoff": "soon"},
        {"patience": "100 events"},
        {"dead_letters": 7},
        {"dead_letters": print},
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any]) -> None:
    assert code_of(LATE, {"notify": Flaky()}, delivery=options) == "delivery-option"
    assert code_of(LATE, {"notify": Flaky()}, delivery=Delivery(**options)) == "delivery-option"


@pytest.mark.parametrize("options", [{"checkpointLocation": "folder"}, {"trigger": {"availableNow": True}}])
def test_options_of_streams_for_a_table(options: dict[str, Any]) -> None:
    assert code_of(LATE, {"notify": Flaky()}, **options) == "stream-option"


def test_fields_that_the_stream_does_not_have_are_told_at_their_place() -> None:
    program = f"{DECLARED}\nON late l DO notify(l.idd)"
    with pytest.raises(QueryError) as caught:
        act(orders(), program, {"notify": Flaky()}, **COLUMNS)
    assert caught.value.hint == "did you mean `id`?"
    assert caught.value.line == program.count("\n") + 1


# --- values


def test_values_as_json() -> None:
    row = {
        "at": datetime(2024, 5, 1, 12),
        "price": Decimal("1.50"),
        "long": timedelta(minutes=1),
        "raw": b"\xff",
        "list": [1, None, float("-inf")],
        "text": "größer",
    }
    assert to_json(row) == (
        '{"at": "2024-05-01T12:00:00", "price": "1.50", "long": 60.0, "raw": "/w==", "list": [1, null, "-Infinity"], '
        '"text": "größer"}'
    )
