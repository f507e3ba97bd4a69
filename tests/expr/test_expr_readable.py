"""Source columns of every Arrow type in the form that expressions read."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ensue import SchemaError
from inside import Kind, common_type, kind_of, readable, readable_type, types
from inside import describe_type as describe

DAY = dt.date(2024, 2, 29)
ENCODED: Any = pa.array(["abc"] * 20).dictionary_encode()

CASES: list[tuple[Any, pa.DataType, Kind, list[Any]]] = [
    (pa.array([1, None], pa.int8()), pa.int64(), Kind.INTEGER, [1, None]),
    (pa.array([1, None], pa.uint64()), pa.int64(), Kind.INTEGER, [1, None]),
    (pa.array([1.5, None], pa.float32()), pa.float64(), Kind.FLOAT, [1.5, None]),
    (pa.array(np.array([1.5, np.nan], np.float16)), pa.float64(), Kind.FLOAT, [1.5, None]),
    (pa.array([0.5, float("nan"), None, float("inf")]), pa.float64(), Kind.FLOAT, [0.5, None, None, float("inf")]),
    (pa.array([Decimal("1.25"), None]), pa.float64(), Kind.FLOAT, [1.25, None]),
    (pa.array([Decimal("1.25")], pa.decimal256(60, 2)), pa.float64(), Kind.FLOAT, [1.25]),
    (pa.array(["a", None], pa.large_string()), pa.string(), Kind.TEXT, ["a", None]),
    (pa.array(["a", None, "ä" * 20], pa.string_view()), pa.string(), Kind.TEXT, ["a", None, "ä" * 20]),
    (pa.array([DAY, None]), pa.timestamp("s"), Kind.TIMESTAMP, [dt.datetime(2024, 2, 29), None]),
    (pa.array([DAY], pa.date64()), pa.timestamp("ms"), Kind.TIMESTAMP, [dt.datetime(2024, 2, 29)]),
    (pa.array(["a", "b", None]).dictionary_encode(), pa.string(), Kind.TEXT, ["a", "b", None]),
    (pa.array([1.0, float("nan")], pa.float32()).dictionary_encode(), pa.float64(), Kind.FLOAT, [1.0, None]),
    (pa.array([True, None]), pa.bool_(), Kind.BOOLEAN, [True, None]),
    (pa.nulls(2), pa.null(), Kind.NULL, [None, None]),
    (pa.array([[1], None]), pa.list_(pa.int64()), Kind.OTHER, [[1], None]),
    (pa.array([b"a"]), pa.binary(), Kind.OTHER, [b"a"]),
    (pa.array([dt.time(12)]), pa.time64("us"), Kind.OTHER, [dt.time(12)]),
]


@pytest.mark.parametrize(("column", "data_type", "kind", "values"), CASES, ids=[str(case[0].type) for case in CASES])
def test_every_type_is_read_in_one_chunk(column: Any, data_type: pa.DataType, kind: Kind, values: list[Any]) -> None:
    assert readable_type(column.type) == data_type
    assert kind_of(column.type) is kind
    halves = pa.chunked_array([column[:1], column[1:]])
    sources = [column, halves, pa.chunked_array([column]), pa.chunked_array([], column.type)]
    for source, wanted in zip(sources, [values, values, values, []], strict=True):
        read = readable(source, "c")
        assert isinstance(read, pa.Array)
        assert read.type == data_type
        assert read.to_pylist() == wanted
        read.validate(full=True)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3]),
        pa.array([1.0, None]),
        pa.array(["a", None]),
        pa.array([True, None]),
        pa.array([1], pa.timestamp("ns", "Europe/Berlin")),
        pa.array([1], pa.duration("ms")),
        pa.array([{"a": 1}]),
    ],
    ids=lambda column: str(column.type),
)
def test_nothing_is_copied_where_nothing_changes(column: Any) -> None:
    for source in (column, pa.chunked_array([column])):
        assert [b and b.address for b in readable(source, "c").buffers()] == [b and b.address for b in column.buffers()]
        assert readable(source, "c").type == column.type


def test_slices_keep_their_place() -> None:
    column: Any = pa.array([1.0, float("nan"), 3.0, None])[1:]
    assert readable(column, "c").to_pylist() == [None, 3.0, None]
    assert readable(pa.array([float("nan"), 3.0])[1:], "c").to_pylist() == [3.0]


def test_runs_are_decoded() -> None:
    column: Any = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, 2], pa.int16()))
    assert readable(column, "c").to_pylist() == [1, 1, 2]
    assert readable(pa.chunked_array([column]), "c").type == pa.int64()


def test_an_integer_beyond_64_bits_names_the_way_out() -> None:
    with pytest.raises(SchemaError) as raised:
        readable(pa.array([1, 2**64 - 1], pa.uint64()), "id")
    assert str(raised.value) == (
        "error[integer-range]: column `id` contains 18446744073709551615, "
        "which is larger than the largest integer 9223372036854775807\n"
        "hint: cast the column before the run: to pa.string() if `id` is an identifier, to pa.float64() if it is a"
        " quantity"
    )


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([["abcdef"], ["ghijkl"]]),
        pa.array(["abcdef" * 10], pa.large_string()),
        pa.array(["abcdef" * 10], pa.string_view()),
        ENCODED,
        pa.chunked_array([ENCODED] * 2),
    ],
    ids=lambda column: str(column.type),
)
def test_text_beyond_the_offsets_of_a_string_array_is_large(column: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(types, "_LARGEST_STRING_BYTES", 16)
    read = readable(column, "c")
    assert read.type == pa.large_string()
    assert read.to_pylist() == column.to_pylist()


def test_common_types() -> None:
    berlin, utc = pa.timestamp("s", "Europe/Berlin"), pa.timestamp("ms", "UTC")
    assert common_type([pa.int64(), pa.null(), pa.float64()]) == pa.float64()
    assert common_type([pa.timestamp("ns"), berlin]) == pa.timestamp("ns", "Europe/Berlin")
    assert common_type([berlin, utc]) == utc
    assert common_type([pa.string(), pa.int64()]) is None
    assert common_type([pa.string(), pa.large_string()]) == pa.large_string()
    assert common_type([]) == pa.null()


def test_words() -> None:
    assert describe(pa.float32()) == "number"
    assert describe(pa.list_(pa.int64())) == "list of integers"
    assert describe(pa.large_list(pa.list_(pa.large_string(), 2))) == "list of lists of text"
    assert describe(pa.list_(pa.binary())) == "list of binary"
    assert describe(pa.map_(pa.string(), pa.int64())) == "map<string, int64>"
