"""Ids of matches: one for each match, the same in every run, however rows come and whatever runs along."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from draws import share
from ensue import QueryError
from harness import events_table, input_of
from inside import Carrier, PatternQuery, counts_events, output_schema, raw_types, render_query
from oracle.oracle import OracleEvent, matches
from spark.test_slices import flat_rows, of_each_plan, planned, replicated, scattered, slicing_of, task_of, timed
from strategies.histories import batches
from strategies.patterns import cases, queries

Case = tuple[PatternQuery, list[OracleEvent]]

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")
SOME = share(0.33)
FEWER = share(0.17)


def detect(table: pa.Table, text: str, **choices: Any) -> pa.Table:
    return ensue.detect(table, text, time="time", type="type", match_id=True, **choices)


def ids_of(table: pa.Table) -> list[str]:
    return table.column("match_id").to_pylist()


def by_id(table: pa.Table) -> dict[str, str]:
    """What each id stands for; every id is one of its own."""
    rows = {row.pop("match_id"): repr(row) for row in table.to_pylist()}
    assert len(rows) == table.num_rows
    return rows


def is_plannable(query: PatternQuery) -> bool:
    try:
        ensue.detect(events_table([]), render_query(query), time="time", type="type")
    except QueryError:
        return False
    return True


def alike(history: list[OracleEvent]) -> pa.Table:
    """The events without what tells them apart, and few values left, so that many are equal."""
    coarse = [replace(event, fields={**event.fields, "name": None, "y": 1, "x": 2}) for event in history]
    return events_table(coarse).drop_columns(["id", "until"])


# Properties


@SOME
@given(case=cases(), dice=st.randoms(use_true_random=False))
def test_equal_events_make_different_matches(case: Case, dice: random.Random) -> None:
    """Also in another order of rows, where positions do not count, the ids are the same."""
    query, history = case
    if not is_plannable(query):
        return
    text, table = render_query(query), alike(history)
    ids = ids_of(detect(table, text))
    assert len(set(ids)) == len(ids)
    if not counts_events(query):
        shuffled = table.take(pa.array(dice.sample(range(len(history)), len(history)), pa.int64()))
        assert sorted(ids_of(detect(shuffled, text))) == sorted(ids)


@SOME
@given(case=cases(), dice=st.randoms(use_true_random=False))
def test_the_order_of_rows_is_irrelevant(case: Case, dice: random.Random) -> None:
    query, history = case
    if not is_plannable(query) or counts_events(query):
        return
    text = render_query(query)
    found = by_id(detect(events_table(history), text))
    assert by_id(detect(events_table(dice.sample(history, len(history))), text)) == found
    assert len(found) == len(matches(query, history))


@SOME
@given(case=cases(), data=st.data(), telling=st.booleans())
def test_batches_and_restarts_are_irrelevant(case: Case, data: st.DataObject, telling: bool) -> None:
    """Rows that can be told apart, or rows of which many are equal where positions do not count."""
    query, history = case
    if not is_plannable(query) or (counts_events(query) and not telling):
        return
    text = render_query(query)
    table = events_table if telling else alike
    detector = ensue.Detector(text, time="time", type="type", match_id=True)
    found: Counter[str] = Counter()
    for events, watermark in data.draw(batches(history)):
        found.update(ids_of(detector.advance(table(events), watermark=watermark).matches))
        saved = detector.snapshot()
        detector = ensue.Detector(text, time="time", type="type", match_id=True)
        detector.restore(saved)
    found.update(ids_of(detector.finish().matches))
    assert found == Counter(ids_of(detect(table(history), text)))


@FEWER
@given(case=cases(), other=queries(), dice=st.randoms(use_true_random=False))
def test_slices_and_other_plans_are_irrelevant(case: Case, other: PatternQuery, dice: random.Random) -> None:
    query, history = timed(case[0], 5), case[1]
    beside = timed(replace(other, partition_by=query.partition_by), 8)
    shape = input_of([], False)
    known = planned([query, beside], [shape])
    if len(known) < 2:
        return
    plans = [plan for _, plan in known]
    slicing = slicing_of(plans)
    assert slicing is not None
    outputs = tuple(output_schema(plan, raw_types(plan, [shape]), match_id=True) for plan in plans)
    carried = Carrier.of([output.schema for output in outputs])
    task = replace(task_of(plans, [shape], slicing.width), outputs=outputs, carried=carried)
    found: Counter[str] = Counter()
    for rows in scattered(replicated(history, slicing), query.partition_by, dice):
        for batch in task.matches(iter(flat_rows(rows, True).to_batches())):
            found.update(ids_of(of_each_plan(pa.Table.from_batches([batch]), task)[0]))
    assert found == Counter(ids_of(detect(events_table(history), render_query(query))))


# What an id depends on

PAIR = pa.table({"time": [1, 2], "type": ["A", "B"], "x": [7, 8]})
GOLDEN = {
    "PATTERN SEQ(A a, B b) WITHIN 5": "456e0a8b4685b43d5346a7b3f04851c0",
    "PATTERN pair SEQ(A a, B b) WITHIN 5": "f9ecf1c314ff7a5042537783d444e8dc",
    "PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.x AS x": "946e902d85ae008c20e417ff00026dc9",
}
"""Ids are kept by users, in tables they join with: they stay as they are."""


def test_ids_stay_as_they_are() -> None:
    assert {text: ids_of(detect(PAIR, text))[0] for text in GOLDEN} == GOLDEN


@pytest.mark.slow
def test_ids_are_the_same_in_another_process() -> None:
    program = (
        "import ensue, pyarrow as pa\n"
        "table = pa.table({'time': [1, 2], 'type': ['A', 'B'], 'x': [7, 8]})\n"
        f"for text in {list(GOLDEN)!r}:\n"
        "    found = ensue.detect(table, text, time='time', type='type', match_id=True)\n"
        "    print(found.column('match_id')[0].as_py())\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(GOLDEN.values())


def test_an_id_is_32_hexadecimal_digits_in_the_first_column() -> None:
    found = detect(PAIR, "PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.x AS x")
    assert found.column_names == ["match_id", "x"]
    assert found.schema.field("match_id").type == pa.string()
    (value,) = ids_of(found)
    assert len(value) == 32
    assert set(value) <= set("0123456789abcdef")


def test_a_returned_column_of_that_name_keeps_it() -> None:
    found = detect(PAIR, "PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.x AS match_id")
    assert found.column_names == ["match_id_", "match_id"]
    assert found.column("match_id").to_pylist() == [7]
    plain = "PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.x AS x"
    assert len(found.column("match_id_")[0].as_py()) == len(ids_of(detect(PAIR, plain))[0])


def test_patterns_have_ids_of_their_own() -> None:
    """By name if they have one, otherwise by text."""
    texts = [
        "PATTERN SEQ(A a, B b) WITHIN 5",
        "PATTERN SEQ(A a, B b) WITHIN 6",
        "PATTERN SEQ(A b, B a) WITHIN 5",
        "PATTERN AND(A a, B b) WITHIN 5",
        "PATTERN p SEQ(A a, B b) WITHIN 5",
        "PATTERN q SEQ(A a, B b) WITHIN 5",
    ]
    ids = [value for text in texts for value in ids_of(detect(PAIR, text))]
    assert len(set(ids)) == len(texts)
    renamed = "PATTERN p SEQ(A a, B b) WITHIN 9"
    assert ids_of(detect(PAIR, renamed)) == ids_of(detect(PAIR, texts[4]))


def test_branches_of_an_or_have_ids_of_their_own() -> None:
    ids = ids_of(detect(PAIR, "PATTERN OR(SEQ(A, B), AND(A, B)) WITHIN 5"))
    assert len(ids) == len(set(ids)) == 2


def test_variables_have_ids_of_their_own() -> None:
    table = pa.table({"time": [1, 1], "type": ["A", "A"], "x": [3, 3]})
    ids = ids_of(detect(table, "PATTERN AND(A a, A b) WITHIN 5 RETURN a.x AS x"))
    assert len(ids) == len(set(ids)) == 2


def test_every_way_to_ask_gives_the_same() -> None:
    text = "PATTERN p SEQ(A a, B b) WITHIN 5; PATTERN q SEQ(B b, A a) WITHIN 5"
    wanted = ids_of(detect(PAIR, text.split(";")[0]))
    found = ensue.run(PAIR, text, time="time", type="type", match_id=True)
    assert ids_of(found["p"]) == wanted
    assert "match_id" in found["q"].column_names
    pieces = ensue.detect_batches(PAIR, text.split(";")[0], time="time", type="type", match_id=True)
    assert ids_of(pa.Table.from_batches(pieces)) == wanted
    frame = ensue.detect(PAIR.to_pandas(), text.split(";")[0], time="time", type="type", match_id=True)
    assert list(frame["match_id"]) == wanted


# Columns

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
VALUES = {
    "int8": pa.array([0, 1, None], pa.int8()),
    "uint64": pa.array([0, 2**63 - 1, None], pa.uint64()),
    "float": pa.array([0.0, 0.5, None], pa.float32()),
    "double": pa.array([0.0, 1e300, None]),
    "decimal": pa.array([Decimal("0.00"), Decimal("1.25"), None]),
    "boolean": pa.array([False, True, None]),
    "text": pa.array(["", "a", None]),
    "large text": pa.array(["", "a", None], pa.large_string()),
    "dictionary": pa.array(["", "a", None]).dictionary_encode(),
    "binary": pa.array([b"", b"a", None]),
    "large binary": pa.array([b"", b"a", None], pa.large_binary()),
    "fixed binary": pa.array([b"aa", b"ab", None], pa.binary(2)),
    "date": pa.array([date(1970, 1, 1), date(2024, 5, 6), None]),
    "timestamp": pa.array([datetime(1970, 1, 1, tzinfo=UTC), MOMENT, None], pa.timestamp("us", "UTC")),
    "time": pa.array([time(0), time(7, 8), None], pa.time64("us")),
    "short time": pa.array([time(0), time(7, 8), None], pa.time32("s")),
    "duration": pa.array([timedelta(0), timedelta(1), None]),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_a_column_of_any_type_tells_events_apart(values: pa.Array) -> None:
    """Zero, the empty text and false are not null."""
    table = pa.table({"time": [1, 1, 1], "type": ["A", "A", "A"], "v": values})
    found = by_id(detect(table, "PATTERN A a"))
    assert by_id(detect(table.take([2, 0, 1]), "PATTERN A a")) == found
    assert len(found) == 3


@pytest.mark.parametrize(
    "values", [pa.array([[1], None]), pa.array([{"a": 1}, None]), pa.nulls(2)], ids=["list", "struct", "null"]
)
def test_nested_columns_are_left_out(values: pa.Array) -> None:
    table = pa.table({"time": [1, 1], "type": ["A", "A"]})
    ids = ids_of(detect(table.append_column("v", values), "PATTERN A a"))
    assert sorted(ids) == sorted(ids_of(detect(table, "PATTERN A a")))
    assert len(set(ids)) == 2


def test_zero_has_no_sign() -> None:
    tables = [pa.table({"time": [1], "type": ["A"], "x": [zero]}) for zero in (0.0, -0.0)]
    assert ids_of(detect(tables[0], "PATTERN A a")) == ids_of(detect(tables[1], "PATTERN A a"))


def test_the_width_of_a_type_is_irrelevant() -> None:
    for wide, narrow in ((pa.int64(), pa.int16()), (pa.float64(), pa.float32()), (pa.large_string(), pa.string())):
        value = pa.array(["a"], wide) if wide == pa.large_string() else pa.array([2], wide)
        tables = [pa.table({"time": [1], "type": ["A"], "x": value.cast(kind)}) for kind in (wide, narrow)]
        assert ids_of(detect(tables[0], "PATTERN A a")) == ids_of(detect(tables[1], "PATTERN A a"))


def test_a_column_that_the_query_does_not_use_is_irrelevant() -> None:
    text = "PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.x AS x"
    assert ids_of(detect(PAIR.append_column("y", pa.array([1, 2])), text)) == ids_of(detect(PAIR, text))


def test_keys_tell_matches_apart() -> None:
    table = pa.table({"time": [1, 2, 1, 2], "type": ["A", "B", "A", "B"], "k": [1, 1, 2, 2]})
    ids = ids_of(detect(table, "PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 5 RETURN a.t AS at"))
    assert len(ids) == len(set(ids)) == 2


def test_decimals_that_are_keys_tell_matches_apart() -> None:
    keys = [Decimal("12345678901234567.01")] * 2 + [Decimal("12345678901234567.02")] * 2
    table = pa.table({"time": [1, 2, 1, 2], "type": ["A", "B", "A", "B"], "k": pa.array(keys)})
    ids = ids_of(detect(table, "PATTERN SEQ(A a, B b) PARTITION BY k WITHIN 5"))
    assert len(set(ids)) == 2


def test_equal_events_whose_scopes_close_in_different_steps() -> None:
    detector = ensue.Detector("PATTERN SEQ(A a, NOT C c) WITHIN 2 EVENTS", time="t", type="type", match_id=True)
    steps = [pa.table({"t": [1, 1], "type": ["A", "A"]}), pa.table({"t": [5], "type": ["X"]})]
    ids = [
        value
        for table, watermark in zip(steps, (1, 5), strict=True)
        for value in ids_of(detector.advance(table, watermark=watermark).matches)
    ]
    assert len(ids) == 2
    assert len(set(ids)) == 2
