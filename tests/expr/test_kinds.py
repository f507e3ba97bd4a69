"""Types of Arrow as the checker's own and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from inside import INTEGER, Kind, Type, arrow_type, list_of, own_type, readable_type

TYPES = [
    pa.bool_(),
    pa.int64(),
    pa.int8(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.null(),
    pa.timestamp("ms"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.duration("s"),
    pa.date32(),
    pa.binary(),
    pa.decimal128(10, 2),
    pa.list_(pa.int32()),
    pa.large_list(pa.string()),
    pa.list_(pa.list_(pa.timestamp("us", "UTC"))),
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
    pa.map_(pa.string(), pa.int64()),
]


@pytest.mark.parametrize("given", TYPES, ids=str)
def test_there_and_back(given: pa.DataType) -> None:
    own = own_type(given)
    assert arrow_type(own) == given
    assert arrow_type(own.readable) == readable_type(given)
    assert own.name == str(given)


def test_a_dictionary_is_what_it_stands_for() -> None:
    assert own_type(pa.dictionary(pa.int32(), pa.string())).kind is Kind.TEXT


def test_lists_are_equal_whatever_their_elements_are_called() -> None:
    called = own_type(pa.list_(pa.field("element", pa.int64())))
    assert called == list_of(INTEGER)
    assert str(arrow_type(called)) == "list<element: int64>"
    assert own_type(pa.list_(pa.int32())) != list_of(INTEGER)


def test_whole_events_are_structs() -> None:
    whole = Type(Kind.OTHER, parts=(("id", INTEGER), ("at", Type(Kind.TIMESTAMP, "us", "UTC"))))
    wanted = pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    assert arrow_type(whole) == wanted
    assert whole.word == str(wanted)
