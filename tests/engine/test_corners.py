"""Corners that drawn cases do not reach: large numbers, mixed types of keys, odd names, work per step."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

import ensue
from inside import Rows, Workspace, joinkeys

LARGE = 2**53


def rows(tables: dict[str, pa.Table], query: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = ensue.detect(tables, query, time="t").to_pylist()
    return found


def test_large_integer_keys_stay_apart_beside_float_keys() -> None:
    tables = {"A": pa.table({"t": [1, 2], "id": [LARGE, LARGE + 1]}), "B": pa.table({"t": [9], "id": [1.5]})}
    assert rows(tables, "PATTERN AND(OR(B b, A x), A y) PARTITION BY id RETURN x.t AS x, y.t AS y") == []


def test_integer_and_float_keys_meet_where_they_are_equal() -> None:
    values = [3.0, 3.5, float(2**63), -4.0]
    tables = {"A": pa.table({"t": [1, 1, 1], "id": [3, -4, LARGE]}), "B": pa.table({"t": [2] * 4, "id": values})}
    found = rows(tables, "PATTERN SEQ(A a, B b) PARTITION BY id RETURN a.id AS a, b.id AS b")
    assert sorted((row["a"], row["b"]) for row in found) == [(-4, -4.0), (3, 3.0)]


def test_equality_of_integers_is_not_weakened_by_a_float_that_equals_both() -> None:
    tables = {
        "A": pa.table({"t": [1], "id": [LARGE]}),
        "C": pa.table({"t": [2], "id": [LARGE + 1]}),
        "B": pa.table({"t": [3], "id": [float(LARGE)]}),
    }
    assert rows(tables, "PATTERN SEQ(A a, C c, B b) WHERE a.id = c.id AND c.id = b.id") == []
    assert len(rows(tables, "PATTERN SEQ(A a, B b) WHERE a.id = b.id")) == 1


@pytest.mark.parametrize("clause", ["WHERE a.x = b.x", "PARTITION BY x"])
def test_times_of_different_units_are_equal_or_not_without_overflow(clause: str) -> None:
    far = pa.table({"t": [1, 1], "x": pa.array([datetime(3000, 1, 1), datetime(1969, 12, 31)], pa.timestamp("s"))})
    near = pa.table({"t": [2, 2], "x": pa.array([5, -86_400_000_000_000], pa.timestamp("ns"))})
    found = rows({"A": far, "B": near}, f"PATTERN SEQ(A a, B b) {clause} RETURN a.x AS x")
    assert found == [{"x": datetime(1969, 12, 31)}]


def test_a_variable_may_have_any_name() -> None:
    events = pa.table({"t": [1, 2, 3, 9], "type": ["A", "B", "A", "B"]})
    for name in ("*", "match", "s", "#1", " "):
        query = f"PATTERN AND(A x, B `{name}`, NOT A n) WITHIN 9"
        assert ensue.detect(events, query, time="t", type="type").num_rows == 1


def test_a_stream_may_be_called_like_a_column_of_the_state() -> None:
    query = "PATTERN SEQ(source a, B b) RETURN a.t AS a"
    empty = pa.table({"t": pa.array([], pa.int64())})
    detector = ensue.Detector(query, time="t")
    detector.advance({"source": pa.table({"t": [1]}), "B": empty}, watermark=1)
    again = ensue.Detector(query, time="t")
    again.restore(detector.snapshot())
    assert again.finish({"source": empty, "B": pa.table({"t": [2]})}).matches.to_pylist() == [{"a": 1}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([2]), pa.array([1.5])),
        (pa.array([2], pa.int8()), pa.array([500])),
        (pa.array([2], pa.timestamp("s")), pa.array([3], pa.timestamp("ms"))),
        (pa.array([None]), pa.array(["x"])),
    ],
    ids=str,
)
def test_keys_of_two_types_come_back_in_one_that_holds_both(one: pa.Array, other: pa.Array) -> None:
    tables = {"B": pa.table({"t": [2], "k": one}), "A": pa.table({"t": [1], "k": other})}
    with pytest.warns(ensue.EnsueWarning) if one.null_count else _no_warning():
        found = ensue.detect(tables, "PATTERN OR(B b, A a) PARTITION BY k", time="t")
    assert found.num_rows == 2 - one.null_count


def _no_warning() -> object:
    from contextlib import nullcontext

    return nullcontext()


def test_small_steps_do_not_enumerate_a_window_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows bound over all steps stay near the matches reported, however small the steps are."""
    bound = 0
    original = Rows.bind

    def counting(self: Rows, name: str, *arguments: object) -> Rows:
        nonlocal bound
        extended = original(self, name, *arguments)  # type: ignore[arg-type]
        bound += extended.length
        return extended

    monkeypatch.setattr(Rows, "bind", counting)
    detector = ensue.Detector("PATTERN SEQ(A a, B b, NOT C c) WITHIN 100 RETURN a.t AS t", time="t", type="type")
    found = 0
    for time in range(400):
        batch = pa.table({"t": [time], "type": ["AB"[time % 2]]})
        found += detector.advance(batch, watermark=time).matches.num_rows
    assert found > 1000
    assert bound == found


def test_join_keys_are_looked_up_once_per_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    original = Workspace.index

    def counting(self: Workspace, *arguments: object) -> object:
        nonlocal calls
        calls += 1
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Workspace, "index", counting)
    count = 3 << 18
    events = pa.table({"t": range(count), "type": ["A"] * count, "k": range(count)})
    query = "PATTERN AND(A a, A b) WHERE a.k = b.k RETURN a.k AS k"
    assert ensue.detect(events, query, time="t", type="type").num_rows == 0
    assert calls <= 12


def test_an_equality_is_a_condition_in_steps_in_which_it_is_no_join_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes of few values fit into a key, those of many do not: which it is must not be remembered."""
    monkeypatch.setattr(joinkeys, "MOST_PACKED", 4)
    detector = ensue.Detector(
        "PATTERN SEQ(A a, B b) WHERE a.x = b.x WITHIN 9 RETURN a.x AS a, b.x AS b", time="t", type="type"
    )
    few = pa.table({"t": [0, 1, 2], "type": ["A", "A", "B"], "x": ["v", "u", "u"]})
    many = pa.table({"t": [*range(20, 28)], "type": [*"AAAABBBB"], "x": [*"abcdefcd"]})
    assert detector.advance(few, watermark=2).matches.to_pylist() == [{"a": "u", "b": "u"}]
    assert detector.advance(many, watermark=28).matches.to_pylist() == [{"a": "c", "b": "c"}, {"a": "d", "b": "d"}]


def test_events_of_a_match_can_be_cast() -> None:
    """Arrow does not cast structs that are cut out of longer ones if one of their columns holds nothing."""
    events = pa.table({"t": [1, 2, 3], "type": ["A", "B", "A"], "x": pa.nulls(3)})
    found = ensue.detect(events, "PATTERN SEQ(A a, B b, A c) WITHIN 9", time="t", type="type")
    wide = pa.struct([("t", pa.float64()), ("type", pa.string()), ("x", pa.null())])
    kinds = [wide if pa.types.is_struct(item.type) else item.type for item in found.schema]
    cast = found.to_batches()[0].cast(pa.schema(zip(found.column_names, kinds, strict=True)))
    cast.validate(full=True)
    assert [row["b"] for row in cast.to_pylist()] == [{"t": 2, "type": "B", "x": None}]
