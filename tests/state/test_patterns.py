"""Patterns that ask a STATE: any cut of the events into steps, with restarts between, gives what one run gives."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from draws import share
from inside import Statements, StateStatement, parse_statements, render_statements
from state.test_against_oracle import SCHEMA
from strategies.states import STREAMS, states

pytestmark = pytest.mark.filterwarnings("ignore::ensue.EnsueWarning")

HOME = """
STATE s OF a, b IN (u, v, w) PARTITION BY k STARTS u
  ON M m: MOVE m.person TO m.target PROBABILITY 0.7
  ON S s: OBSERVE s.person IN s.source RELIABILITY 0.8
  EVERY 3 MOVE BY (v -> w 0.4);
"""
ALONE = """
STATE t OF a IN (u, v)
  ON M m: MOVE a BY (u -> v 0.5)
  ON W w: MOVE a TO w.target PROBABILITY w.share
  ON W w: OBSERVE a IN v RELIABILITY 0.6;
"""
"""States that no event contradicts, one of them without a key."""

QUESTIONS = ("P(a IN u)", "P(ANYONE IN v)", "P(COUNT(u) >= 1)", "P(a IN u GIVEN ANYONE IN (u, v))", "E(COUNT(v))")

PATTERNS = (
    "PATTERN SEQ(M x, S y) PARTITION BY k WITHIN 6 WHERE y.{chance} > 0.2 RETURN x.t AS x, y.t AS y, y.{chance} AS p",
    "PATTERN SEQ(M x, S y) WITHIN 6 WHERE x.MOST LIKELY(a) = y.MOST LIKELY(a) RETURN x.t AS x, y.t AS y, x.k AS k",
    "PATTERN SEQ(M x, NOT W w [{chance} >= 0.5], S y) PARTITION BY k WITHIN 8 RETURN x.t AS x, y.{chance} AS p",
    "PATTERN SEQ(S x, NOT M y [MOST LIKELY(a) = 'u']) PARTITION BY k WITHIN 3 "
    "RETURN x.t AS x, x.MOST LIKELY(a) AS best",
    "PATTERN SEQ(M x [{chance} > 0.1], W w) PARTITION BY k WITHIN 4 EVENTS",
    "PATTERN SEQ(ANY EVENT x [{chance} > 0.5], ANY EVENT y [{chance} <= 0.5]) PARTITION BY k WITHIN 3 "
    "MATCH NEXT RETURN x.t AS x, y.t AS y, x.{chance} AS p",
    "STREAM sure FROM PATTERN SEQ(M m) WHERE {chance} > 0.3 RETURN m.k AS k, m.{chance} AS p; "
    "PATTERN SEQ(sure x, S y) PARTITION BY k WITHIN 6 RETURN x.p AS p, y.t AS y, y.MOST LIKELY(a) AS best",
    "PATTERN SEQ(M x, COLLECT S s, W w) PARTITION BY k WITHIN 9 WHERE w.{chance} > 0 "
    "RETURN count(s) AS n, w.t AS w, w.{chance} AS p",
)


def some_events(state: StateStatement, seed: int) -> list[dict[str, Any]]:
    """Enough events for matches, in the order in which they arrive; some lack a key."""
    draw = random.Random(seed)
    return [
        {
            "t": max(0, number // 2 + draw.randint(-3, 3)),
            "type": draw.choice([*STREAMS, *STREAMS, "other"]),
            "k": draw.choice([1, 1, 1, 2, 2, None]),
            "person": draw.choice(state.variables),
            "source": draw.choice(state.values),
            "target": draw.choice(state.values),
            "share": draw.choice([0.0, 0.25, 0.9]),
            "p": draw.choice([1.0, 1.0, 0.5, 0.0]),
        }
        for number in range(draw.randint(0, 30))
    ]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def as_given(rows: list[dict[str, Any]], per_stream: bool) -> Any:
    if not per_stream:
        return table_of(rows)
    return {stream: table_of([row for row in rows if row["type"] == stream]) for stream in (*STREAMS, "other")}


def answer(query: str, rows: list[dict[str, Any]], per_stream: bool, options: dict[str, Any]) -> list[str] | str:
    """The matches in order, or the code of the error."""
    try:
        return sorted(map(str, ensue.detect(as_given(rows, per_stream), query, **options).to_pylist()))
    except ensue.QueryError as error:
        return error.code


def stepwise(data: st.DataObject, query: str, rows: list[dict[str, Any]], per_stream: bool, options: Any) -> Any:
    """The same by a detector, cut and restarted anyhow."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=4)))
    detector, found, begin, watermark = ensue.Detector(query, **options), [], 0, -1
    try:
        for cut in cuts:
            batch, begin = rows[begin:cut], cut
            ahead = min((row["t"] for row in rows[cut:]), default=30)
            watermark = max(watermark, ahead - 1 - data.draw(st.integers(0, 2)))
            step = detector.advance(as_given(batch, per_stream), watermark=watermark)
            late = step.late.values() if per_stream else [step.late]
            assert sum(table.num_rows for table in late) == 0
            found += step.matches.to_pylist()
            if data.draw(st.booleans()):
                saved = detector.snapshot()
                detector = ensue.Detector(query, **options)
                detector.restore(saved)
        found += detector.finish(as_given(rows[begin:], per_stream)).matches.to_pylist()
    except ensue.QueryError as error:
        return error.code
    return sorted(map(str, found))


@share(2)
@given(st.data())
def test_any_cut_with_restarts_gives_the_matches_of_one_run(data: st.DataObject) -> None:
    known = parse_statements(HOME + ALONE).states
    state = data.draw(st.sampled_from(known) | st.sampled_from(known) | states(keyed=data.draw(st.booleans())))
    rows = some_events(state, data.draw(st.integers(0, 10_000)))
    chance = data.draw(st.sampled_from(QUESTIONS))
    pattern = data.draw(st.sampled_from(PATTERNS)).format(chance=chance)
    per_stream = "ANY EVENT" not in pattern and data.draw(st.booleans())
    query = f"{render_statements(Statements((), states=(state,)))}\n{pattern}"
    options: dict[str, Any] = {"time": "t"} if per_stream else {"time": "t", "type": "type"}
    if data.draw(st.booleans()) and not {"EVENTS", "MATCH", "STREAM"} & set(pattern.split()):
        options["probability"] = "p"
    wanted = answer(query, rows, per_stream, options)
    assert stepwise(data, query, rows, per_stream, options) == wanted


LEAK = """
STATE location OF alice, bob IN (kitchen, den, outside) PARTITION BY home STARTS outside
  ON Entered e: MOVE e.person FROM outside TO e.room;
PATTERN SEQ(Leak l) WHERE P(anyone in kitchen) > 0.9 RETURN l.home AS home, l.t AS t, l.MOST LIKELY(alice) AS alice
"""
OPTIONS: dict[str, Any] = {"time": "t", "type": "type"}


def home_events(*rows: tuple[Any, ...]) -> pa.Table:
    names = ("t", "type", "home", "person", "room")
    kinds = (pa.int64(), pa.string(), pa.int64(), pa.string(), pa.string())
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)


ENTERED, LEAKED = (4, "Entered", 1, "alice", "kitchen"), (5, "Leak", 1, None, None)


def test_events_wait_for_the_watermark_and_late_ones_change_nothing() -> None:
    detector = ensue.Detector(LEAK, **OPTIONS)
    assert detector.advance(home_events(LEAKED), watermark=3).matches.num_rows == 0
    assert (detector.kept_rows, detector.kept_events().num_rows) == (1, 1)
    assert detector.kept_bytes > 0
    # What comes later in the stream, and earlier in time, counts for the event that waits.
    found = detector.advance(home_events(ENTERED), watermark=5).matches.to_pylist()
    assert found == [{"home": 1, "t": 5, "alice": "kitchen"}]
    with pytest.warns(ensue.EnsueWarning, match="at or before the watermark"):
        step = detector.advance(home_events((5, "Entered", 1, "bob", "kitchen")), watermark=6)
    assert (step.matches.num_rows, step.late.num_rows) == (0, 1)
    assert detector.finish(home_events((7, "Leak", 2, None, None))).matches.num_rows == 0


def test_events_are_pushed_one_by_one() -> None:
    detector = ensue.Detector(LEAK, **OPTIONS)
    table = home_events((1, "Leak", 1, None, None), ENTERED, LEAKED, (6, "Other", 1, None, None))
    found = [match for row in table.to_pylist() for match in detector.push(row, watermark=row["t"])]
    assert found == ensue.detect(table, LEAK, **OPTIONS).to_pylist() == [{"home": 1, "t": 5, "alice": "kitchen"}]


def test_a_column_that_held_nothing_gets_its_type_while_events_wait() -> None:
    detector = ensue.Detector(LEAK, **OPTIONS)
    empty = pa.table({"t": [5], "type": ["Leak"], "home": [1], "person": [None], "room": [None]})
    detector.advance(empty, watermark=3)
    assert detector.advance(home_events(ENTERED), watermark=5).matches.num_rows == 1


def test_an_error_leaves_a_detector_as_it_was() -> None:
    detector = ensue.Detector(LEAK, **OPTIONS)
    detector.advance(home_events(ENTERED), watermark=4)
    before = detector.snapshot()
    with pytest.raises(ensue.QueryError) as raised:
        detector.advance(home_events((5, "Entered", 1, "alice", "den")), watermark=5)
    assert raised.value.code == "state-contradiction"
    assert detector.snapshot().equals(before)


def test_a_snapshot_is_one_of_its_program() -> None:
    detector = ensue.Detector(LEAK, **OPTIONS)
    detector.advance(home_events(ENTERED, LEAKED), watermark=4)
    saved = detector.snapshot()
    for changed in (LEAK.replace("STARTS outside", "STARTS den"), LEAK.replace("0.9", "0.8")):
        other = ensue.Detector(changed, **OPTIONS)
        with pytest.raises(ensue.StateError, match="state-query"):
            other.restore(saved)
    lacking = ensue.Detector(LEAK, **OPTIONS)
    with pytest.raises(ensue.StateError, match="state-shape"):
        lacking.restore(saved.drop_columns("beliefs_0"))
    with pytest.raises(ensue.StateError, match="state-shape"):
        lacking.restore(saved.drop_columns("waiting_0"))
    old = saved.replace_schema_metadata({b"ensue.beliefs": b'{"version": 1}'})
    for reader in (lacking, ensue.Detector(LEAK, measures={}, **OPTIONS)):
        with pytest.raises(ensue.StateError, match="state-version"):
            reader.restore(old)


def test_what_a_run_waits_for_counts_events_that_wait() -> None:
    query = LEAK.replace("SEQ(Leak l)", "SEQ(Leak l, Leak m)").replace(
        "WHERE P", "PARTITION BY home WITHIN 9 WHERE l.P"
    )
    detector = ensue.Detector(query, **OPTIONS)
    detector.advance(home_events(ENTERED, LEAKED, (8, "Leak", 1, None, None)), watermark=6)
    assert ensue.waiting(detector, query)["text"].to_pylist() == ["l at 5, m at 8; waits for the time 8"]
    assert detector.kept_events()["t"].to_pylist() == [5, 8]
    with pytest.raises(ensue.StateError, match="state-query"):
        ensue.waiting(detector, query.replace("den, outside", "den, bath, outside"))
    assert detector.advance(watermark=8).matches.num_rows == 1


def test_questions_about_the_past_know_states() -> None:
    table = home_events((1, "Leak", 1, None, None), ENTERED, LEAKED)
    assert ensue.why_not(table, LEAK, **OPTIONS).matches == 1
    assert "P(ANYONE IN kitchen) > 0.9" in ensue.justify(table, LEAK, {"home": 1}, **OPTIONS).to_text()
    assert "1 match" in repr(ensue.report(table, LEAK, **OPTIONS))
    doubted = table.append_column("p", pa.array([1.0, 1.0, 0.5]))
    assert ensue.any_match(doubted, LEAK, probability="p", **OPTIONS)["probability"].to_pylist() == [0.5]
    [first] = list(ensue.detect_batches(table, LEAK, **OPTIONS))
    assert first.num_rows == 1
    assert ensue.detect(table, LEAK, since=4, **OPTIONS).num_rows == 1
    assert ensue.detect(table, LEAK, until=4, **OPTIONS).num_rows == 0
    [seen] = ensue.detect(table, LEAK.split("RETURN")[0], **OPTIONS)["l"].to_pylist()
    assert seen["P(ANYONE IN kitchen)"] == 1.0


def test_events_that_last_are_refused_where_they_are_still_to_come() -> None:
    with pytest.raises(ensue.QueryError) as raised:
        ensue.Detector(LEAK, end="until", **OPTIONS)
    assert raised.value.code == "state-ahead"
    assert raised.value.problems[0].span is not None
    lasting = home_events(ENTERED, LEAKED)
    lasting = lasting.append_column("until", pa.array([9, 5]))
    assert ensue.detect(lasting, LEAK, end="until", **OPTIONS).num_rows == 1
