"""Every kind of table, column type and layout gives the same answer, in the user's own kind of table."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ensue
from inside import events as engine_events
from inside import group_by_key

QUERY = "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 5"
RETURNING = QUERY + " RETURN a.id AS id, a.t AS first, b.t AS last"
RETURNING_SECONDS = RETURNING.replace("WITHIN 5", "WITHIN 5 seconds")
EVENTS = pa.table({"t": [1, 2, 3, 4], "type": ["A", "B", "A", "B"], "id": [7, 7, 8, 8]})
FOUND = [{"id": 7, "first": 1, "last": 2}, {"id": 8, "first": 3, "last": 4}]


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """Good input draws no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ensue.EnsueWarning)
        yield


def detect(events: Any, query: str = RETURNING, **columns: Any) -> Any:
    return ensue.detect(events, query, **{"time": "t", "type": "type", **columns})


def rows(events: Any, query: str = RETURNING, **columns: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = detect(events, query, **columns).to_pylist()
    return found


def with_column(name: str, values: Any, table: pa.Table = EVENTS) -> pa.Table:
    if name in table.column_names:
        return table.set_column(table.schema.get_field_index(name), name, values)
    return table.append_column(name, values)


# --- kinds of tables


def test_record_batch() -> None:
    found = detect(EVENTS.to_batches()[0])
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == FOUND


def test_pandas() -> None:
    found = detect(EVENTS.to_pandas())
    assert isinstance(found, pd.DataFrame)
    assert found.to_dict("records") == FOUND


def test_polars() -> None:
    found = detect(pl.from_arrow(EVENTS))
    assert isinstance(found, pl.DataFrame)
    assert found.to_dicts() == FOUND


def test_polars_lazy() -> None:
    frame = pl.from_arrow(EVENTS)
    assert isinstance(frame, pl.DataFrame)
    found = detect(frame.lazy())
    assert isinstance(found, pl.LazyFrame)
    assert found.collect().to_dicts() == FOUND


@pytest.mark.parametrize("kind", [pl.Categorical(), pl.Enum(["A", "B"])])
def test_polars_categories(kind: Any) -> None:
    frame = pl.from_arrow(EVENTS)
    assert isinstance(frame, pl.DataFrame)
    found = detect(frame.with_columns(pl.col("type").cast(kind)), QUERY)
    assert found["a"].to_list() == [{"t": 1, "type": "A", "id": 7}, {"t": 3, "type": "A", "id": 8}]


def test_pandas_category_and_nullable_types() -> None:
    frame = EVENTS.to_pandas().astype({"t": "Int64", "type": "category", "id": "Int8"})
    assert detect(frame).to_dict("records") == FOUND
    assert detect(frame, QUERY)["a"].tolist() == [{"t": 1, "type": "A", "id": 7}, {"t": 3, "type": "A", "id": 8}]


def test_pandas_arrow_types() -> None:
    assert detect(EVENTS.to_pandas(types_mapper=pd.ArrowDtype)).to_dict("records") == FOUND


def test_pandas_with_any_index() -> None:
    frame = EVENTS.to_pandas()
    frame.index = pd.Index([9, 9, 3, 1])
    assert detect(frame).to_dict("records") == FOUND


def test_the_first_table_of_a_mapping_sets_the_kind() -> None:
    tables = {"A": pd.DataFrame({"t": [1], "id": [7]}), "B": pl.DataFrame({"t": [2], "id": [7]})}
    found = ensue.detect(tables, RETURNING, time="t")
    assert isinstance(found, pd.DataFrame)
    assert found.to_dict("records") == FOUND[:1]


def test_pandas_keeps_large_integers_that_stand_beside_nulls() -> None:
    """OR leaves nulls; a column of floats would round the identifiers."""
    large = 2**60 + 1
    frame = pd.DataFrame({"t": [1, 2], "type": ["A", "B"], "id": [large, large]})
    found = detect(frame, "PATTERN OR(A a, B b) RETURN a.id AS id")
    assert int(found["id"].iloc[0]) == large


# --- the type column

TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.large_string()),
]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_type_column(kind: pa.DataType) -> None:
    assert rows(with_column("type", EVENTS["type"].cast(kind))) == FOUND


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_type_column_in_whole_events(kind: pa.DataType) -> None:
    found = rows(with_column("type", EVENTS["type"].cast(kind)), QUERY)
    assert [(row["a"]["type"], row["b"]["type"]) for row in found] == [("A", "B"), ("A", "B")]


def test_run_end_encoded_type_column() -> None:
    assert rows(with_column("type", pc.run_end_encode(EVENTS["type"]))) == FOUND


def test_run_end_encoded_time_column() -> None:
    assert rows(with_column("t", pc.run_end_encode(EVENTS["t"]))) == FOUND


def test_dictionary_with_unused_repeated_and_null_words() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 3, 1, 3, None], pa.int8()), pa.array(["A", "A", "zzz", "B"]))
    table = pa.table({"t": [1, 2, 3, 4, 5], "type": words, "id": [7, 7, 8, 8, 8]})
    with pytest.warns(ensue.EnsueWarning, match="1 row ignored: no type"):
        assert rows(table) == FOUND


def test_chunks_with_dictionaries_of_their_own() -> None:
    parts = [with_column("type", EVENTS.slice(i, 1)["type"].dictionary_encode(), EVENTS.slice(i, 1)) for i in range(4)]
    table = pa.concat_tables(parts)
    assert rows(table) == FOUND
    either = rows(table, "PATTERN OR(A a, B b)")
    assert [(row["a"] or row["b"])["type"] for row in either] == ["A", "B", "A", "B"]


def test_streams_that_the_query_does_not_name_are_left_out() -> None:
    noise = pa.table({"t": [1, 2, 3], "type": ["C", "a", ""], "id": [7, 7, 7]})
    assert rows(pa.concat_tables([noise, EVENTS])) == FOUND


def test_one_stream_needs_no_type_column() -> None:
    table = EVENTS.drop_columns("type")
    query = "PATTERN SEQ(Click a, Click b) PARTITION BY id WITHIN 5 RETURN a.t AS first, b.t AS last"
    assert ensue.detect(table, query, time="t").to_pylist() == [{"first": 1, "last": 2}, {"first": 3, "last": 4}]


# --- one table per stream


def test_tables_with_schemas_of_their_own() -> None:
    orders = pa.table({"placed": [1, 5], "id": [1, 2], "amount": [1.5, 2.5]})
    parcels = pa.table({"sent": [2, 9], "id": pa.array([1, 2], pa.int8()), "carrier": ["x", "y"], "weight": [3, 4]})
    query = (
        "PATTERN SEQ(Order o, Shipped s) WHERE o.amount < s.weight PARTITION BY id WITHIN 5"
        " RETURN o.amount, s.carrier, s.t - o.t AS wait"
    )
    found = ensue.detect({"Order": orders, "Shipped": parcels}, query, time={"Order": "placed", "Shipped": "sent"})
    assert found.to_pylist() == [
        {"amount": 1.5, "carrier": "x", "wait": 1},
        {"amount": 2.5, "carrier": "y", "wait": 4},
    ]


@pytest.mark.parametrize(
    ("ones", "others"),
    [
        (pa.array([1, 2]), pa.array([1.0, 2.0])),
        (pa.array([1, 2], pa.uint8()), pa.array([1, 2])),
        (pa.array(["1", "2"]), pa.array(["1", "2"]).dictionary_encode()),
        (pa.array(["1", "2"]).dictionary_encode(), pa.array(["1", "2"], pa.large_string())),
        (pa.array([date(2024, 1, 1), date(2024, 1, 2)]), pa.array([datetime(2024, 1, 1), datetime(2024, 1, 2)])),
        (pa.array([1, 2], pa.timestamp("s", "Asia/Tokyo")), pa.array([1000, 2000], pa.timestamp("ms", "UTC"))),
        (pa.array([Decimal(1), Decimal(2)]), pa.array([1, 2])),
    ],
    ids=lambda array: str(array.type),
)
def test_keys_of_different_types_meet(ones: pa.Array, others: pa.Array) -> None:
    tables = {"A": pa.table({"t": [1, 2], "id": ones}), "B": pa.table({"t": [3, 4], "id": others.take([1, 0])})}
    found = ensue.detect(tables, QUERY, time="t")
    assert [(row["a"]["t"], row["b"]["t"]) for row in found.to_pylist()] == [(2, 3), (1, 4)]


def test_a_table_that_no_query_names_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel runs interpreted, so that writing outside of an array is an IndexError and not a broken heap."""
    monkeypatch.setattr(engine_events, "group_by_key", getattr(group_by_key, "py_func", group_by_key))
    table = pa.table({"t": [1, 2], "id": [7, 7]})
    found = ensue.detect({"A": table, "B": table, "C": table}, RETURNING, time="t")
    assert found.to_pylist() == FOUND[:1]


def test_windows_over_events_count_the_events_of_every_table() -> None:
    tables = {name: pa.table({"t": [time]}) for name, time in (("A", 1), ("B", 2), ("C", 3))}
    for size, expected in ((2, 0), (3, 1)):
        query = f"PATTERN SEQ(A a, NOT B [t > 5], C c) WITHIN {size} EVENTS"
        assert ensue.detect(tables, query, time="t").num_rows == expected


def test_empty_table_in_a_mapping() -> None:
    full = pa.table({"t": [1, 2], "id": [7, 7]})
    tables = {"A": full, "B": full.slice(0, 0), "C": full}
    found = ensue.detect(tables, "PATTERN SEQ(A a, NOT B b, C c) PARTITION BY id WITHIN 5", time="t")
    assert [(row["a"]["t"], row["c"]["t"]) for row in found.to_pylist()] == [(1, 2)]
    assert ensue.detect({"A": full, "B": full.slice(0, 0)}, QUERY, time="t").num_rows == 0


def test_empty_table_with_a_key_column_of_no_type() -> None:
    full = pa.table({"t": [1, 2], "id": [7, 7]})
    empty = pa.table({"t": pa.array([], pa.int64()), "id": pa.nulls(0)})
    assert ensue.detect({"A": full, "B": empty}, QUERY, time="t").num_rows == 0


def test_empty_pandas_table_in_a_mapping() -> None:
    tables = {"A": pd.DataFrame({"t": [1, 2], "id": [7, 7]}), "B": pd.DataFrame(columns=["t", "id"])}
    assert len(ensue.detect(tables, QUERY, time="t")) == 0


# --- time


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps(unit: str, zone: str | None) -> None:
    kind = pa.timestamp(unit, zone)
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    table = with_column("t", pa.array([ticks * second for second in (1, 2, 3, 9)]).cast(kind))
    found = detect(table, RETURNING_SECONDS + ", b.t - a.t AS wait")
    assert found["first"].cast(pa.int64()).to_pylist() == [ticks]
    assert found.schema.types == [pa.int64(), kind, kind, pa.duration(unit)]


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()],
    ids=str,
)
def test_integer_times(kind: pa.DataType) -> None:
    found = detect(with_column("t", EVENTS["t"].cast(kind)))
    assert found.to_pylist() == FOUND
    assert found.schema.field("first").type == pa.int64()


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
def test_dates(kind: pa.DataType) -> None:
    days = pa.array([date(2024, 1, day) for day in (1, 2, 3, 30)]).cast(kind)
    query = RETURNING.replace("WITHIN 5", "WITHIN 5 days")
    assert rows(with_column("t", days), query) == [
        {"id": 7, "first": datetime(2024, 1, 1), "last": datetime(2024, 1, 2)}
    ]


def test_dictionary_of_times() -> None:
    assert rows(with_column("t", EVENTS["t"].dictionary_encode())) == FOUND


def test_times_before_zero() -> None:
    table = with_column("t", pa.array([-4, -3, -2, -1]))
    assert rows(table) == [{"id": 7, "first": -4, "last": -3}, {"id": 8, "first": -2, "last": -1}]


def test_units_and_zones_meet_in_the_finest_unit_and_utc() -> None:
    tables = {
        "A": pa.table({"t": pa.array([1], pa.timestamp("s", "Asia/Tokyo")), "id": [7]}),
        "B": pa.table({"t": pa.array([1_000_000_500], pa.timestamp("ns", "UTC")), "id": [7]}),
    }
    found = ensue.detect(tables, RETURNING_SECONDS, time="t")
    assert found.schema.field("first").type == pa.timestamp("ns", "UTC")
    assert found["last"].cast(pa.int64()).to_pylist() == [1_000_000_500]
    assert ensue.detect(tables, QUERY + " seconds", time="t").schema.field("a").type.field("t").type == pa.timestamp(
        "s", "Asia/Tokyo"
    )


def test_dates_and_timestamps_meet() -> None:
    tables = {
        "A": pa.table({"t": [date(2024, 1, 1)], "id": [7]}),
        "B": pa.table({"t": pa.array([datetime(2024, 1, 1, 0, 0, 1)], pa.timestamp("ms")), "id": [7]}),
    }
    found = ensue.detect(tables, RETURNING_SECONDS, time="t").to_pylist()
    assert found == [{"id": 7, "first": datetime(2024, 1, 1), "last": datetime(2024, 1, 1, 0, 0, 1)}]


def test_end_column() -> None:
    table = with_column("until", pa.array([2, 2, 3, 4]))
    assert rows(table, end="until") == FOUND[1:]
    found = rows(table, QUERY, end="until")
    assert [(row["start"], row["end"]) for row in found] == [(3, 4)]


def test_end_column_for_each_stream() -> None:
    tables = {"A": pa.table({"t": [1], "to": [3], "id": [7]}), "B": pa.table({"at": [4], "until": [9], "id": [7]})}
    columns: dict[str, Any] = {"time": {"A": "t", "B": "at"}, "end": {"A": "to", "B": "until"}}
    found = ensue.detect(tables, "PATTERN SEQ(A a, B b) PARTITION BY id RETURN a.e AS x, b.s AS y, b.e AS z", **columns)
    assert found.to_pylist() == [{"x": 3, "y": 4, "z": 9}]


def test_some_streams_have_an_end_and_others_are_points() -> None:
    tables = {"A": pa.table({"t": [1], "to": [3], "id": [7]}), "B": pa.table({"t": [4], "id": [7]})}
    found = ensue.detect(tables, "PATTERN SEQ(A a, B b) RETURN a.e AS x, b.e AS y", time="t", end={"A": "to"})
    assert found.to_pylist() == [{"x": 3, "y": 4}]


@pytest.mark.parametrize("edge", ["SEQ(A a, B b)", "SEQ(A a, B b, NOT C c)", "SEQ(NOT C c, A a, B b)"])
def test_windows_of_centuries_over_nanoseconds(edge: str) -> None:
    now = pa.array([1_700_000_000_000_000_000 + tick for tick in range(4)]).cast(pa.timestamp("ns"))
    found = rows(with_column("t", now), f"PATTERN {edge} PARTITION BY id WITHIN 15000 weeks")
    assert [row["id"] for row in found] == [7, 8]


def test_the_largest_window_over_integers() -> None:
    times = pa.array([-(2**61) + 1, 2**61 - 1, 2**61 - 3, 2**61 - 2])
    assert [row["id"] for row in rows(with_column("t", times), QUERY.replace("5", str(2**63 - 1)))] == [8, 7]


# --- layout in memory


def test_many_small_chunks() -> None:
    table = pa.concat_tables([EVENTS.slice(number % 4, 1) for number in range(3000)])
    assert table["t"].num_chunks == 3000
    assert detect(table, QUERY).equals(detect(table.combine_chunks(), QUERY))


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()], ids=str)
def test_no_chunks(kind: pa.DataType) -> None:
    columns = {"t": pa.int64(), "type": kind, "id": kind}
    table = pa.table({name: pa.chunked_array([], of) for name, of in columns.items()})
    assert detect(table).num_rows == 0
    assert detect(table, QUERY).num_rows == 0


def test_no_chunks_of_a_dictionary_of_times() -> None:
    kind = pa.dictionary(pa.int32(), pa.timestamp("us"))
    table = pa.table({"t": pa.chunked_array([], kind), "type": pa.array([], pa.string()), "id": pa.nulls(0)})
    assert detect(table, RETURNING_SECONDS).num_rows == 0
    assert detect(table, QUERY + " seconds").num_rows == 0


def test_slices_with_offsets() -> None:
    wide = pa.table(
        {
            "t": [9, 9, 9, 1, 2, 3, 4, 9],
            "type": pa.array(["A", "B", "A", "A", "B", "A", "B", "B"]).dictionary_encode(),
            "id": [0, 0, 0, 7, 7, 8, 8, 0],
            "flag": [True, None, True, True, False, True, True, True],
            "x": [None, 9.0, 9.0, 1.0, float("nan"), 3.0, 4.0, None],
            "word": [None, "q", "q", "k", "k", None, "m", "q"],
        }
    )
    part = wide.slice(3, 4)
    assert rows(part) == FOUND
    assert rows(part, RETURNING.replace("PARTITION", "WHERE a.flag AND b.flag PARTITION")) == FOUND[1:]
    assert rows(part, RETURNING.replace("PARTITION", "WHERE b.x > 0 PARTITION")) == FOUND[1:]
    assert rows(part, RETURNING.replace("PARTITION", "WHERE a.word = b.word PARTITION")) == FOUND[:1]
    assert rows(part, RETURNING.replace("PARTITION", "WHERE a.word IS NULL PARTITION")) == FOUND[1:]
    part = part.drop_columns("x")  # NaN equals nothing, not even in a comparison of tables
    assert detect(part, QUERY).equals(detect(pa.concat_tables([part.slice(0, 1), part.slice(1)]), QUERY))


def test_columns_of_nothing_but_null() -> None:
    table = with_column("gone", pa.nulls(4))
    assert [row["a"]["gone"] for row in rows(table, QUERY)] == [None, None]
    assert rows(table, RETURNING.replace("PARTITION", "WHERE a.gone = b.gone PARTITION")) == []
    assert rows(table, RETURNING.replace("PARTITION", "WHERE a.gone IS NULL PARTITION")) == FOUND


NESTED = {
    "list": pa.array([["x"], [], None, ["y"]]),
    "struct": pa.array([{"u": 1}, {"u": None}, None, {"u": 2}]),
    "map": pa.array([[("k", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"x", b"", None, b"y"]),
    "decimal": pa.array([Decimal("1.5")] * 4),
    "half": pa.array(np.array([1, 2, 3, 4], np.float16)),
    "time": pa.array([1, 2, 3, 4], pa.time64("us")),
    "list_view": pa.array([[1], [], None, [2]], pa.list_view(pa.int64())),
    "run_end": pc.run_end_encode(pa.array([1, 1, 2, 2])),
    "string_view": pa.array(["x", "", None, "y"], pa.string_view()),
    "binary_view": pa.array([b"x", b"", None, b"y"], pa.binary_view()),
    "list of string_view": pa.array([["x"], [], None, ["y"]], pa.list_(pa.string_view())),
}


@pytest.mark.parametrize("name", NESTED)
def test_columns_of_any_type_come_back_in_whole_events(name: str) -> None:
    table = with_column("extra", NESTED[name])
    given = table["extra"].to_pylist()
    assert [(row["a"]["extra"], row["b"]["extra"]) for row in rows(table, QUERY)] == [
        (given[0], given[1]),
        (given[2], given[3]),
    ]
    either = detect(table, "PATTERN OR(A a, B b)")
    assert [(row["a"] or row["b"])["extra"] for row in either.to_pylist()] == given


# --- order and size


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_rows(seed: int) -> None:
    chosen = random.Random(seed)
    count = 200
    table = pa.table(
        {
            "t": [chosen.randrange(100) for _ in range(count)],
            "type": [chosen.choice("ABC") for _ in range(count)],
            "id": [chosen.randrange(5) for _ in range(count)],
            "row": range(count),
        }
    )
    query = "PATTERN SEQ(A a, NOT C c, B b) PARTITION BY id WITHIN 20 RETURN a.row AS x, b.row AS y, a.t AS s, b.t AS e"
    straight = detect(table, query)
    shuffled = detect(table.take(chosen.sample(range(count), count)), query)
    assert straight.num_rows > 10
    assert sorted(map(tuple, (row.values() for row in straight.to_pylist()))) == sorted(
        map(tuple, (row.values() for row in shuffled.to_pylist()))
    )
    for found in (straight, shuffled):
        order = list(zip(found["e"].to_pylist(), found["s"].to_pylist(), strict=True))
        assert order == sorted(order)


def test_a_trailing_not_completes_when_its_window_closes() -> None:
    """Ordered by (completion, start): `SEQ(A, NOT B)` completes at the start of the match plus its window."""
    table = pa.table({"t": [4, 1, 3, 2], "type": ["A", "A", "C", "A"]})
    query = "PATTERN OR(SEQ(A a, NOT B b), C c) WITHIN 2 RETURN coalesce(a.t, c.t) AS t"
    assert [row["t"] for row in rows(table, query)] == [1, 3, 2, 4]


def test_no_rows() -> None:
    for query in (QUERY, RETURNING, "PATTERN OR(A a, B b)", "PATTERN SEQ(A a, NOT B b) WITHIN 3 EVENTS"):
        empty = detect(EVENTS.slice(0, 0), query)
        assert empty.num_rows == 0
        assert empty.schema == detect(EVENTS, query).schema


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_schema_is_the_same_with_and_without_matches(kind: pa.DataType) -> None:
    table = with_column("note", pa.array(["x", "y", None, "z"]).cast(kind))
    query = (
        "PATTERN SEQ(A a, OR(B b, C c)) WITHIN 5 RETURN a.id, b.t - a.t AS wait, a.id / 2 AS half, a.id > 3 AS large,"
        " upper(a.note) AS loud, a.note || 'x' AS longer, NULL AS nothing, TIMESTAMP '2024-01-01' AS day, 5 AS five,"
        " 5 minutes AS pause, CASE WHEN a.id > 7 THEN c.note END AS maybe, c.id AS other, 1.5 AS number"
    )
    full, none = detect(table, query), detect(table.slice(0, 0), query)
    assert full.num_rows > 0
    assert full.schema == none.schema
    assert dict(zip(full.schema.names, full.schema.types, strict=True)) == {
        "id": pa.int64(),
        "wait": pa.int64(),
        "half": pa.float64(),
        "large": pa.bool_(),
        "loud": pa.string(),
        "longer": pa.string(),
        "nothing": pa.null(),
        "day": pa.timestamp("s"),
        "five": pa.int64(),
        "pause": pa.duration("s"),
        "maybe": pa.string(),
        "other": pa.int64(),
        "number": pa.float64(),
    }


@pytest.mark.parametrize("to_kind", [lambda table: table.to_pandas(), pl.from_arrow], ids=["pandas", "polars"])
def test_schema_is_the_same_with_and_without_matches_in_other_kinds(to_kind: Any) -> None:
    full, none = detect(to_kind(EVENTS)), detect(to_kind(EVENTS.slice(0, 0)))
    assert list(full.columns) == list(none.columns)
    assert list(full.dtypes) == list(none.dtypes)


def test_one_event() -> None:
    one = EVENTS.slice(0, 1)
    assert rows(one) == []
    assert rows(one, "PATTERN A a RETURN a.t AS t") == [{"t": 1}]
    assert rows(one, "PATTERN SEQ(A a, NOT B b) WITHIN 5 RETURN a.t AS t") == [{"t": 1}]
    assert rows(one, "PATTERN AND(A a, A b) WITHIN 5") == []


def test_results_of_or_hold_null_for_the_branch_not_taken() -> None:
    assert rows(EVENTS.slice(0, 2), "PATTERN OR(A a, B b)") == [
        {"start": 1, "end": 1, "a": {"t": 1, "type": "A", "id": 7}, "b": None},
        {"start": 2, "end": 2, "a": None, "b": {"t": 2, "type": "B", "id": 7}},
    ]


def test_intervals_of_a_branch_not_taken_are_null() -> None:
    query = "PATTERN OR(SEQ(A a, B b) AS pair, B c) WITHIN 1 RETURN pair.s AS s, pair.e - pair.s AS length, c.t AS t"
    assert rows(EVENTS.slice(0, 2), query) == [
        {"s": 1, "length": 1, "t": None},
        {"s": None, "length": None, "t": 2},
    ]


def test_unnamed_events_are_no_columns() -> None:
    assert rows(EVENTS, "PATTERN SEQ(A, B) PARTITION BY id WITHIN 5") == [
        {"id": 7, "start": 1, "end": 2},
        {"id": 8, "start": 3, "end": 4},
    ]


def test_variables_called_like_other_columns() -> None:
    assert detect(EVENTS, "PATTERN SEQ(A start, B id) PARTITION BY id WITHIN 5").schema.names == [
        "id",
        "start",
        "end",
        "start_",
        "id_",
    ]


@pytest.mark.parametrize("condition", ["FALSE", "1 = 2", "NULL", "NULL = 1", "1 = 2 AND a.t > 0"])
def test_conditions_without_events_hold_or_not(condition: str) -> None:
    assert rows(EVENTS, RETURNING.replace("PARTITION", f"WHERE {condition} PARTITION")) == []


@pytest.mark.parametrize("condition", ["TRUE", "1 = 1", "2 IN (1, 2)", "1 = 1 AND a.t > 0"])
def test_conditions_without_events_that_hold(condition: str) -> None:
    assert rows(EVENTS, RETURNING.replace("PARTITION", f"WHERE {condition} PARTITION")) == FOUND


# --- keys

KEYS: dict[str, list[Any]] = {
    "negative": [-5, -5, 3, 3],
    "huge": [-(2**63), -(2**63), 2**63 - 1, 2**63 - 1],
    "text": ["", "", "ß\u0000x", "ß\u0000x"],
    "bool": [True, True, False, False],
    "float": [0.1, 0.1, 1e300, 1e300],
    "infinite": [float("inf"), float("inf"), float("-inf"), float("-inf")],
    "timestamp": [datetime(2024, 1, 1), datetime(2024, 1, 1), datetime(1850, 1, 1), datetime(1850, 1, 1)],
    "date": [date(2024, 1, 1), date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 2)],
    "decimal": [Decimal("1.10"), Decimal("1.10"), Decimal("1.11"), Decimal("1.11")],
}


@pytest.mark.parametrize("name", KEYS)
def test_keys(name: str) -> None:
    table = with_column("id", pa.array(KEYS[name]))
    found = rows(table, QUERY)
    assert [(row["start"], row["end"]) for row in found] == [(1, 2), (3, 4)]
    assert [row["id"] for row in found] == [KEYS[name][0], KEYS[name][2]]


def test_zero_and_minus_zero_are_one_key() -> None:
    assert len(rows(with_column("id", pa.array([0.0, -0.0, 1.0, 1.0])))) == 2


def test_decimal_keys_beyond_the_precision_of_floats() -> None:
    keys = pa.array([Decimal(10**20), Decimal(10**20 + 1), Decimal(1), Decimal(1)], pa.decimal128(30, 0))
    assert [row["start"] for row in rows(with_column("id", keys), QUERY)] == [3]


def test_two_key_columns() -> None:
    table = with_column("zone", pa.array(["x", "x", "x", "y"]))
    query = QUERY.replace("BY id", "BY zone, id")
    assert [(row["zone"], row["id"], row["start"]) for row in rows(table, query)] == [("x", 7, 1)]


def test_keys_that_would_fall_together_if_glued() -> None:
    table = with_column("id", pa.array(["1", "11", "1", "1"]))
    table = with_column("other", pa.array(["11", "1", "2", "2"]), table)
    assert [row["start"] for row in rows(table, QUERY.replace("BY id", "BY id, other"))] == [3]


def test_time_as_a_key() -> None:
    table = pa.table({"t": [1, 1, 2], "type": ["A", "B", "B"]})
    found = rows(table, "PATTERN AND(A a, B b) PARTITION BY t")
    assert [(row["t"], row["b"]["t"]) for row in found] == [(1, 1)]


def test_all_events_of_one_key() -> None:
    count = 100_000
    table = pa.table({"t": np.arange(count), "type": ["A", "B"] * (count // 2), "id": np.zeros(count, np.int64)})
    assert detect(table, QUERY.replace("5", "1") + " RETURN a.t AS t").num_rows == count // 2


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64()], ids=str)
def test_a_million_keys(kind: pa.DataType) -> None:
    count = 1_000_000
    keys = np.random.default_rng(0).permutation(count)
    table = pa.table(
        {
            "t": np.arange(2 * count),
            "type": pa.DictionaryArray.from_arrays(pa.array(np.repeat([0, 1], count)), pa.array(["A", "B"])),
            "id": pa.array(np.concatenate([keys, keys[::-1]])).cast(kind),
        }
    )
    found = detect(table, "PATTERN SEQ(A a, B b) PARTITION BY id RETURN a.t + b.t AS total")
    assert found.num_rows == count
    assert pc.unique(found["total"]).to_pylist() == [2 * count - 1]


@pytest.mark.soak("inputs")
def test_results_of_more_than_two_gigabytes_of_text() -> None:
    """It needs 6 GB: 750 matches repeat a text of 4 MB."""
    table = pa.table({"t": range(155), "type": ["A"] * 150 + ["B"] * 5, "text": ["x" * 4_000_000] * 155})
    assert detect(table, "PATTERN SEQ(A a, B b) RETURN a.text AS text").num_rows == 750


# --- batches of results, programs, reports


def test_detect_batches() -> None:
    batches = list(ensue.detect_batches(EVENTS, RETURNING, time="t", type="type"))
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    found = pa.Table.from_batches(batches)
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == FOUND
    assert found.schema == detect(EVENTS).schema


def test_detect_batches_gives_more_than_the_limit_of_detect() -> None:
    count = 1500
    table = pa.table({"t": np.arange(2 * count), "type": ["A", "B"] * count})
    batches = ensue.detect_batches(table, "PATTERN AND(A a, B b) RETURN a.t AS x, b.t AS y", time="t", type="type")
    sizes = [batch.num_rows for batch in batches]
    assert sum(sizes) == count * count
    assert len(sizes) > 1


def test_detect_batches_without_matches() -> None:
    assert list(ensue.detect_batches(EVENTS.slice(0, 1), QUERY, time="t", type="type")) == []


@pytest.mark.parametrize("to_kind", [lambda table: table, lambda table: table.to_pandas(), pl.from_arrow])
def test_run_gives_each_pattern_its_table_in_the_kind_of_the_input(to_kind: Any) -> None:
    events = to_kind(EVENTS)
    found = ensue.run(
        events, f"{RETURNING.replace('SEQ', 'pairs SEQ')}; PATTERN (B x) RETURN x.t", time="t", type="type"
    )
    assert list(found) == ["pairs", "pattern_2"]
    assert all(type(table) is type(events) for table in found.values())
    assert found.reports["pairs"].matches == 2
    assert found.reports["pattern_2"].matches == 2
    assert found.reports["pairs"].rows == 4
    assert found.reports["pairs"].ignored == {}


def test_run_over_tables_of_which_each_pattern_names_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_events, "group_by_key", getattr(group_by_key, "py_func", group_by_key))
    tables = {name: pa.table({"t": [time], "id": [7]}) for time, name in enumerate("ABC")}
    found = ensue.run(tables, "PATTERN p SEQ(A a, B b); PATTERN q SEQ(B b, C c)", time="t")
    assert {name: table.num_rows for name, table in found.items()} == {"p": 1, "q": 1}


def test_an_unnamed_pattern_does_not_hide_a_named_one() -> None:
    found = ensue.run(EVENTS, "PATTERN SEQ(A a, B b) WITHIN 5; PATTERN pattern_1 (A a)", time="t", type="type")
    assert len(found) == 2


def test_results_compare_as_mappings_and_show_what_was_found() -> None:
    one = ensue.run(EVENTS, "PATTERN p (A a)", time="t", type="type")
    other = ensue.run(EVENTS, "PATTERN p (B a)", time="t", type="type")
    assert one["p"] != other["p"]
    assert one.reports == other.reports
    assert (one == other) is False
    assert repr(one) == "Results of 1 pattern\n  p: 2 rows, columns start, end, a"


def test_queries_built_in_python_give_the_same_as_their_text() -> None:
    query = ensue.seq(ensue.event("A", "a"), ensue.event("B", "b")).within(5).partition_by("id")
    assert ensue.detect(EVENTS, query, time="t", type="type").equals(detect(EVENTS, QUERY))


def test_a_program_of_one_pattern_is_a_query() -> None:
    assert ensue.detect(EVENTS, ensue.parse(QUERY), time="t", type="type").equals(detect(EVENTS, QUERY))  # type: ignore[arg-type]


# --- order columns

SMALL, GREAT = Decimal("1.00000000000000000001"), Decimal("1.00000000000000000002")
ORDER_COLUMNS = [
    pa.array([1, 2, 3, 2], pa.int8()),
    pa.array([1, 2, 3, 2], pa.uint64()),
    pa.array([0.5, 1.5, 2.5, 1.5], pa.float32()),
    pa.array([Decimal(1), SMALL, GREAT, SMALL], pa.decimal128(38, 20)),
    pa.array(["a", "ab", "b", "ab"]),
    pa.array(["a", "ab", "b", "ab"], pa.large_string()),
    pa.array(["a", "ab", "b", "ab"]).dictionary_encode(),
    pa.array([None, False, True, False]),
    pa.array([1, 2, 3, 2], pa.date32()),
    pa.array([1, 2, 3, 2], pa.timestamp("ms", "Europe/Zurich")),
]


@pytest.mark.parametrize("line", ORDER_COLUMNS, ids=lambda line: str(line.type))
def test_order_of_composites(line: pa.Array) -> None:
    """A context compares the order of composites with that of events, whatever its type, also after a restart."""
    columns: dict[str, Any] = {"time": "t", "end": "until", "type": "type", "order": "line"}
    times = {"t": [1, 1, 1, 1], "until": [1, 1, 5, 5]}
    table = pa.table({**times, "type": ["A", "B", "C", "C"], "id": [1, 2, 3, 4], "line": line})
    query = "PATTERN SEQ(A a, B b, C c) MATCH CONTINUOUS RETURN c.id AS c"
    assert ensue.detect(table, query, **columns).to_pylist() == [{"c": 3}]
    detector = ensue.Detector(query, **columns)
    unknown = table.slice(0, 0).set_column(4, "line", pa.array([], pa.null()))
    found = [detector.advance(unknown, watermark=0).matches]
    for number, watermark in enumerate((0, 1, 1, 1)):
        found.append(detector.advance(table.slice(number, 1), watermark=watermark).matches)
        saved = detector.snapshot()
        detector = ensue.Detector(query, **columns)
        detector.restore(saved)
    found.append(detector.finish().matches)
    assert pa.concat_tables(found).to_pylist() == [{"c": 3}]


def test_order_column_without_values() -> None:
    table = pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"], "line": pa.nulls(3)})
    query = "PATTERN SEQ(A a, B b, C c) MATCH RECENT RETURN c.t AS c"
    assert ensue.detect(table, query, time="t", type="type", order="line").to_pylist() == [{"c": 3}]
