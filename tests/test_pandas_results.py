"""Results as pandas tables: integers stay integers and times stay times, in columns, structs and lists."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue

ZONES = ["Europe/Berlin", "UTC", None]
LARGE = 2**53 + 1
"""An integer that a float cannot hold."""


def events(zone: str | None = "Europe/Berlin", unit: Any = "ns") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "t": pd.date_range("2026-01-01", periods=6, freq="min", tz=zone, unit=unit),
            "type": list("ABCABB"),
            "k": [1, 1, 1, 2, 2, 2],
            "n": pd.array([1, None, LARGE, 4, None, LARGE], dtype="Int64"),
            "wait": pd.to_timedelta([1, 2, None, 4, 5, 6], unit="s"),
            "share": [1.5, None, 2, 3, 4, 5],
            "day": [date(2026, 1, 1)] * 6,
            "counts": [[1, None]] * 6,
        }
    )


def detect(query: str, table: pd.DataFrame | None = None) -> pd.DataFrame:
    found = ensue.detect(events() if table is None else table, query, time="t", type="type")
    assert isinstance(found, pd.DataFrame)
    return found


def at(minute: int, zone: str | None = "Europe/Berlin") -> pd.Timestamp:
    return pd.Timestamp(2026, 1, 1, 0, minute, tz=zone)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_collected_events(zone: str | None, unit: str) -> None:
    found = detect("PATTERN SEQ(A a, COLLECT B b) PARTITION BY k WITHIN 1 hour", events(zone, unit))
    (first,), (second, third) = found["b"]
    for event, minute in ((first, 1), (second, 4), (third, 5), (found["a"][0], 0), (found["a"][1], 3)):
        assert isinstance(event["t"], pd.Timestamp)
        assert event["t"] == at(minute, zone)
        assert str(event["t"].tz) == str(zone)
        assert isinstance(event["wait"], pd.Timedelta)
        assert event["wait"] == pd.Timedelta(minute + 1, "s")
        assert type(event["k"]) is int
        assert event["counts"].tolist() == [1, None]
        assert type(event["counts"][0]) is int
        assert event["day"] == date(2026, 1, 1)
    assert [event["n"] for event in (first, second, third)] == [None, None, LARGE]
    assert type(third["n"]) is int
    assert [event["share"] for event in (first, second, third)] == [None, 4.0, 5.0]


@pytest.mark.parametrize("zone", ZONES)
def test_lists_of_values(zone: str | None) -> None:
    returning = "RETURN list(b.n) AS n, list(b.k) AS k, list(b.t) AS t, list(b.wait) AS wait, list(b.share) AS share"
    found = detect(f"PATTERN SEQ(A a, COLLECT B b) PARTITION BY k WITHIN 1 hour {returning}", events(zone))
    assert [list(value) for value in found["n"]] == [[None], [None, LARGE]]
    assert type(found["n"][1][1]) is int
    assert found["k"][1].dtype == np.int64
    assert [list(value) for value in found["t"]] == [[at(1, zone)], [at(4, zone), at(5, zone)]]
    assert str(found["t"][1][0].tz) == str(zone)
    assert [list(value) for value in found["wait"]] == [
        [pd.Timedelta(2, "s")],
        [pd.Timedelta(5, "s"), pd.Timedelta(6, "s")],
    ]
    assert found["share"][1].tolist() == [4.0, 5.0]


def test_a_branch_of_or_that_is_not_taken() -> None:
    query = "PATTERN SEQ(A a, OR(B b, C c)) PARTITION BY k WITHIN 2 minutes"
    found = detect(f"{query} RETURN c.n AS n, c.k AS k, c.t AS t, c.t - a.t AS gap, c.counts AS counts")
    assert [str(kind) for kind in found.dtypes] == [
        "Int64", "Int64", "datetime64[ns, Europe/Berlin]", "timedelta64[ns]", "object",
    ]  # fmt: skip
    assert found["n"].dropna().tolist() == [LARGE]
    whole = detect(query)
    (taken,) = [event for event in whole["c"] if event is not None]
    assert (taken["n"], type(taken["n"]), type(taken["k"]), taken["t"]) == (LARGE, int, int, at(2))
    assert all(event is None or type(event["k"]) is int for event in whole["b"])


def test_empty_results_keep_their_types() -> None:
    returning = "RETURN a.t AS t, a.k AS k, a.wait AS w, list(b.n) AS n"
    query = f"PATTERN SEQ(A a, COLLECT B b) PARTITION BY k WITHIN 1 hour {returning}"
    full, none = detect(query), detect(query, events().iloc[:0])
    assert len(none) == 0 < len(full)
    assert list(full.dtypes) == list(none.dtypes)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1], None, [2, 3]], pa.list_view(pa.int64())),
        pa.array([[1, None], None, [2, 3]], pa.list_(pa.int64(), 2)),
        pa.array([[1, None], [], None], pa.large_list(pa.uint64())),
        pa.array([{"x": {"y": [2**60]}}, {"x": None}, None]),
        pa.array([[("k", 1)], None, [("k", None)]], pa.map_(pa.string(), pa.int64())),
        pa.array([{}, {}, None], pa.struct([])),
        pa.array([[[1], None], [], [[2, None]]]),
        pa.array([{"u": 2**64 - 1}, None, {"u": None}], pa.struct([("u", pa.uint64())])),
    ],
    ids=lambda values: str(values.type),
)
def test_nested_columns_hold_what_arrow_holds(values: pa.Array) -> None:
    table = pa.table({"t": [1, 2, 3], "x": values})
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    found = ensue.detect(frame, "PATTERN A a RETURN a.t AS t, a.x AS x", time="t").sort_values("t")
    assert [as_lists(value) for value in found["x"]] == values.to_pylist()


def test_unsigned_integers_next_to_nulls() -> None:
    frame = pd.DataFrame({"t": [1, 2], "x": pd.array([2**63 - 1, None], dtype="UInt64")})
    found = ensue.detect(frame, "PATTERN A a RETURN a.x AS x", time="t")
    assert found["x"].dropna().tolist() == [2**63 - 1]


@given(st.lists(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3) | st.none(), max_size=6))
def test_lists_of_integers(values: list[list[int | None] | None]) -> None:
    """As in polars, whose results are Arrow's."""
    table = pa.table({"t": range(len(values)), "x": pa.array(values, pa.list_(pa.int64()))})
    query = "PATTERN A a RETURN a.t AS t, a.x AS x"
    in_pandas = ensue.detect(table.to_pandas(types_mapper=pd.ArrowDtype), query, time="t")
    in_polars = ensue.detect(pl.DataFrame(table), query, time="t")
    assert [as_lists(value) for value in in_pandas["x"]] == in_polars["x"].to_list() == values


def as_lists(value: Any) -> Any:
    """The same value without numpy arrays."""
    if isinstance(value, dict):
        return {name: as_lists(part) for name, part in value.items()}
    return [as_lists(part) for part in value] if isinstance(value, np.ndarray | list) else value
