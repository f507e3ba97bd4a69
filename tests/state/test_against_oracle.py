"""Random states and events: the engine gives what brute force over all combinations gives, however events are cut."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from draws import share
from ensue.beliefs import TrackingOptions
from inside import (
    Constant,
    ExpectedCount,
    MostLikely,
    Places,
    ProbabilityOf,
    Statements,
    StateStatement,
    parse_statements,
    render_statements,
)
from oracle import state as oracle
from strategies.states import conditions, events, states

SCHEMA = pa.schema(
    [("t", pa.int64()), ("type", pa.string()), ("k", pa.int64()), ("person", pa.string()), ("source", pa.string()),
     ("target", pa.string()), ("share", pa.float64()), ("p", pa.float64()), ("place", pa.int64())]
)  # fmt: skip
orders = st.sampled_from([[], [], ["person"], ["p", "source"]])
pytestmark = pytest.mark.filterwarnings("ignore::ensue.EnsueWarning")


def text_of(state: StateStatement) -> str:
    return render_statements(Statements((), states=(state,)))


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def close(found: float | None, wanted: float | None) -> bool:
    if found is None or wanted is None:
        return found is None and wanted is None
    return math.isclose(found, wanted, abs_tol=1e-9)


def led_through(
    state: StateStatement, rows: list[dict[str, Any]], policy: str, order: Sequence[str] = ()
) -> tuple[oracle.Tracking, list[Any]]:
    """What the oracle believes in the end, and after each row, in the order of the rows."""
    tracking = oracle.Tracking(state, policy, "p")
    after: list[Any] = [None] * len(rows)
    for place in oracle.in_order(state, rows, order, "p"):
        after[place] = tracking.take(rows[place])
    return tracking, after


@share(0.5)
@given(st.data())
def test_a_state_is_its_text(data: st.DataObject) -> None:
    state = data.draw(states())
    assert parse_statements(text_of(state)).states == (state,)


@share(0.5)
@given(st.data(), st.sampled_from(["skip", "reset"]), orders)
def test_every_event_is_followed_by_what_brute_force_gives(data: st.DataObject, policy: str, order: list[str]) -> None:
    state = data.draw(states())
    rows = data.draw(events(state))
    condition, assumed = data.draw(conditions(state)), data.draw(conditions(state))
    columns = {
        "chance": ProbabilityOf(condition),
        "under": ProbabilityOf(condition, assumed),
        "number": ExpectedCount(Places(state.values[:1])),
        "best": MostLikely(Constant("a")),
    }
    tracking, after = led_through(state, rows, policy, order)
    options: dict[str, Any] = {"time": "t", "type": "type", "policy": policy, "probability": "p", "order": order}
    found = ensue.beliefs.track(table_of(rows), text_of(state), columns, reason="why", **options).to_pylist()
    for row, belief in zip(found, after, strict=True):
        if belief is None:
            assert (row["chance"], row["number"], row["best"]) == (None, None, None)
            continue
        assert close(row["chance"], oracle.probability(condition, state, belief))
        assert close(row["under"], oracle.probability(condition, state, belief, assumed))
        assert close(row["number"], oracle.expected_count(Places(state.values[:1]), belief))
        own = {value: sum(p for c, p in belief.items() if c[0] == value) for value in state.values}
        assert own[row["best"]] >= max(own.values()) - 1e-9
    contradicting = [row for row in found if row["why"] is not None and "contradict" in row["why"]]
    assert len(contradicting) == len(tracking.contradictions)


@share(0.5)
@given(st.data(), st.sampled_from(["skip", "reset"]))
def test_in_the_end_the_joint_distribution_is_that_of_brute_force(data: st.DataObject, policy: str) -> None:
    state = data.draw(states(keyed=data.draw(st.booleans())))
    rows = data.draw(events(state))
    tracking, _ = led_through(state, rows, policy)
    found = ensue.beliefs.of(table_of(rows), text_of(state), time="t", type="type", policy=policy, probability="p")
    joint = found.joint().to_pylist()
    believed = {
        (tuple(row[name] for name in state.partition_by), tuple(row[v] for v in state.variables)): row["probability"]
        for row in joint
    }
    for key, known in tracking.keys.items():
        for combination in oracle.combinations(state):
            assert close(believed[key, combination], known.belief.get(combination, 0.0))
    best = found.most_likely().to_pylist()
    for row in best:
        key = tuple(row[name] for name in state.partition_by)
        if key in tracking.keys:
            assert close(row["probability"], max(tracking.keys[key].belief.values()))


@share(0.5)
@given(st.data())
def test_a_contradiction_is_an_error_iff_brute_force_meets_one(data: st.DataObject) -> None:
    state = data.draw(states())
    rows = data.draw(events(state, strange=False))
    try:
        led_through(state, rows, "error")
    except oracle.ImpossibleError:
        with pytest.raises(ensue.QueryError) as raised:
            ensue.beliefs.of(table_of(rows), text_of(state), time="t", type="type", probability="p")
        assert raised.value.code == "state-contradiction"
    else:
        ensue.beliefs.of(table_of(rows), text_of(state), time="t", type="type", probability="p")


@share(0.5)
@given(st.data(), st.sampled_from(["skip", "reset"]), orders)
def test_any_cut_with_restarts_is_one_run(data: st.DataObject, policy: str, by: list[str]) -> None:
    state = data.draw(states())
    rows = sorted(data.draw(events(state)), key=lambda row: row["t"])
    rows = [{**row, "place": place} for place, row in enumerate(rows)]
    text, columns = text_of(state), {"chance": ProbabilityOf(data.draw(conditions(state)))}
    options: dict[str, Any] = {"time": "t", "type": "type", "policy": policy, "probability": "p", "order": by}
    limit = data.draw(st.sampled_from([4096, 1]))
    stepwise = {
        "time": "t",
        "type": "type",
        "probability": "p",
        "order": by,
        "tracking": TrackingOptions(policy=policy, largest_joint=limit),
    }
    whole = ensue.beliefs.track(table_of(rows), text, columns, largest_joint=limit, **options).to_pylist()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=3)))
    tracker = ensue.Detector(text, measures=columns, **stepwise)
    given_rows: list[dict[str, Any]] = []
    begin, watermark = 0, -1
    for cut in cuts:
        batch, begin = rows[begin:cut], cut
        # Rows at the same time may arrive in different batches.
        ahead = rows[cut]["t"] if cut < len(rows) else 12
        watermark = max(watermark, ahead - 1)
        step = tracker.advance(table_of(batch), watermark=watermark)
        assert step.late.num_rows == 0
        given_rows += step.tracked.to_pylist()
        if data.draw(st.booleans()):
            saved = tracker.snapshot()
            tracker = ensue.Detector(text, measures=columns, **stepwise)
            tracker.restore(saved)
    given_rows += tracker.finish(table_of(rows[begin:])).tracked.to_pylist()
    order = sorted(given_rows, key=lambda row: row["place"])
    assert [row["place"] for row in order] == [row["place"] for row in whole]
    for found, wanted in zip(order, whole, strict=True):
        assert close(found["chance"], wanted["chance"])
    one = ensue.beliefs.of(table_of(rows), text, largest_joint=limit, **options)
    if rows:
        pairs = zip(
            sorted(map(str_items, tracker.beliefs().marginal("a").to_pylist())),
            sorted(map(str_items, one.marginal("a").to_pylist())),
            strict=True,
        )
        for (left, p), (right, q) in pairs:
            assert left == right
            assert close(p, q)


def str_items(row: dict[str, Any]) -> tuple[tuple[int, str], float]:
    return (row.get("k") or 0, row["value"]), row["probability"]


@share(0.5)
@given(st.data())
def test_the_past_is_what_was_believed_then(data: st.DataObject) -> None:
    state = data.draw(states())
    rows = data.draw(events(state, strange=False))
    moment = data.draw(st.integers(0, 14))
    condition = data.draw(conditions(state))
    tracking, _ = led_through(state, [row for row in rows if row["t"] <= moment], "skip")
    options: dict[str, Any] = {"time": "t", "type": "type", "policy": "skip", "probability": "p"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ensue.beliefs.of(table_of(rows), text_of(state), at=moment, **options)
        asked = pa.table({"k": pa.array([1, 2], pa.int64()), "t": pa.array([moment, moment], pa.int64())})
        listed = ensue.beliefs.of(table_of(rows), text_of(state), at=asked, **options)
    then = {}
    for (k,), known in tracking.keys.items():
        belief = known.belief
        if known.moment is not None:
            belief = oracle.drifted(state, belief, known.moment, moment)
        then[k] = oracle.probability(condition, state, belief)
    chances = {row["k"]: row["probability"] for row in found.probability(condition).to_pylist()}
    assert set(chances) == set(then)
    assert all(close(chances[k], then[k]) for k in then)
    for row in listed.probability(condition).to_pylist():
        start = oracle.probability(condition, state, oracle.start_of(state))
        assert close(row["probability"], then.get(row["k"], start))
