"""Input that cannot be right: an error whose code and text say what and where, or a warning that counts rows set aside.

Nothing is lost without a word, and nothing of Arrow, numpy or Python itself reaches the user.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ensue
from ensue import EnsueError

FEW, MANY = ensue.Limits(matches=1000), ensue.Limits(matches=100_000)
QUERY = "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 5"
SECONDS = QUERY + " seconds"
EVENTS = pa.table({"t": [1, 2, 3, 4], "type": ["A", "B", "A", "B"], "id": [7, 7, 8, 8]})
COLUMNS: Mapping[str, Any] = {"time": "t", "type": "type"}


def detect(events: Any, query: Any = QUERY, **options: Any) -> Any:
    return ensue.detect(events, query, **{**COLUMNS, **options})


def with_column(name: str, values: Any, table: pa.Table = EVENTS) -> pa.Table:
    if name in table.column_names:
        return table.set_column(table.schema.get_field_index(name), name, values)
    return table.append_column(name, values)


def refused(action: Callable[[], object], code: str, *parts: str) -> EnsueError:
    """The error that the action raises: of Ensue, with this code, and with these parts in its text."""
    with pytest.raises(EnsueError) as caught:
        action()
    error = caught.value
    assert getattr(error, "code", None) == code, str(error)
    for part in parts:
        assert part in str(error)
    return error


# --- columns that are not there


@pytest.mark.parametrize(
    ("role", "name", "hint"),
    [
        ("time", "ts", "did you mean `t`?"),
        ("type", "typ", "did you mean `type`?"),
        ("end", "until", "pass `end=` with one of these columns"),
        ("time", "T", "did you mean `t`?"),
    ],
)
def test_missing_column(role: str, name: str, hint: str) -> None:
    error = refused(
        lambda: detect(EVENTS, **{role: name}), "no-such-column", f"no column `{name}` for `{role}`", "t, type, id"
    )
    assert isinstance(error, ensue.SchemaError)
    assert error.hint == hint


def test_missing_column_of_one_stream_is_named_with_the_stream() -> None:
    tables = {"A": EVENTS, "B": EVENTS.rename_columns(["when", "type", "id"])}
    refused(lambda: ensue.detect(tables, QUERY, time="t"), "no-such-column", "table of stream `B`", "when, type, id")


def test_missing_partition_column() -> None:
    error = refused(
        lambda: detect(EVENTS, QUERY.replace("id", "ids")), "no-such-field", "PARTITION BY uses field `ids`"
    )
    assert isinstance(error, ensue.QueryError)
    assert error.hint == "did you mean `id`?"


def test_missing_partition_column_is_reported_once_and_at_its_place() -> None:
    error = refused(lambda: detect(EVENTS, QUERY.replace("id", "ids")), "no-such-field")
    assert isinstance(error, ensue.QueryError)
    assert len(error.problems) == 1
    assert error.column == QUERY.index("PARTITION") + 1


def test_partition_column_that_one_stream_lacks() -> None:
    tables = {"A": pa.table({"t": [1], "id": [1]}), "B": pa.table({"t": [2], "key": [1]})}
    refused(lambda: ensue.detect(tables, QUERY, time="t"), "no-such-field", "which stream `B` does not have", "t, key")


def test_partition_column_of_two_kinds() -> None:
    tables = {"A": pa.table({"t": [1], "id": [1]}), "B": pa.table({"t": [2], "id": ["1"]})}
    refused(lambda: ensue.detect(tables, QUERY, time="t"), "type-clash", "number in `A` but text in `B`")


COUNTING = "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 3 EVENTS"


def test_window_over_events_with_a_table_that_lacks_the_key() -> None:
    full = pa.table({"t": [1], "id": [7]})
    refused(
        lambda: ensue.detect({"A": full, "B": full, "C": pa.table({"t": [3]})}, COUNTING, time="t"),
        "no-such-field",
        "`C`",
    )


def test_window_over_events_with_a_table_of_other_keys() -> None:
    full, texts = pa.table({"t": [1], "id": [7]}), pa.table({"t": [3], "id": ["7"]})
    refused(lambda: ensue.detect({"A": full, "B": full, "C": texts}, COUNTING, time="t"), "type-clash", "`C`")


@pytest.mark.parametrize("values", [[[1]] * 4, [{"x": 1}] * 4, [b"k"] * 4], ids=["list", "struct", "binary"])
def test_keys_that_cannot_be_compared(values: list[Any]) -> None:
    table = with_column("id", pa.array(values))
    refused(lambda: detect(table), "type-clash", "PARTITION BY uses `id`", "cannot be compared")


def test_unsigned_keys_beyond_signed_integers() -> None:
    table = with_column("id", pa.array([2**64 - 1] * 4, pa.uint64()))
    refused(lambda: detect(table), "integer-range", "column `id` contains 18446744073709551615", "pa.string()")


def test_table_without_columns() -> None:
    refused(lambda: detect(pa.table({})), "no-such-column", "no column `t`")
    refused(lambda: detect(pd.DataFrame()), "no-such-column", "no column `t`")


def test_time_in_the_index_of_pandas_is_no_column() -> None:
    refused(lambda: detect(EVENTS.to_pandas().set_index("t")), "no-such-column", "columns: type, id")


# --- columns of other types


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (pa.array(["1", "2", "3", "4"]), "string"),
        (pa.array([1.0, 2.0, 3.0, 4.0]), "double"),
        (pa.array([True, False, True, False]), "bool"),
        (pa.array([1, 2, 3, 4], pa.duration("s")), "duration"),
        (pa.array([1, 2, 3, 4], pa.time32("s")), "time32"),
        (pa.array([[1], [2], [3], [4]]), "list"),
        (pa.nulls(4), "null"),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
@pytest.mark.parametrize("role", ["time", "end"])
def test_column_that_is_no_time(values: pa.Array, word: str, role: str) -> None:
    table = with_column("at", values)
    refused(
        lambda: detect(table, **{role: "at"}),
        "time-type",
        "column `at` of the table must be a timestamp or an integer column",
        word,
    )


def test_text_and_float_times_say_how_to_mend_them() -> None:
    assert "strptime" in refused(lambda: detect(with_column("t", EVENTS["type"])), "time-type").hint  # type: ignore[attr-defined]
    assert "cast" in refused(lambda: detect(with_column("t", pa.array([1.5] * 4))), "time-type").hint  # type: ignore[attr-defined]


@pytest.mark.parametrize("values", [pa.array([1.5, 2.5, 3.5, 4.5]), pa.array([b"A"] * 4), pa.array([["A"]] * 4)])
def test_type_column_that_is_no_text(values: pa.Array) -> None:
    refused(
        lambda: detect(with_column("type", values)),
        "stream-type",
        "column `type` must be text, integers or booleans",
        str(values.type),
    )


def test_times_that_do_not_go_together() -> None:
    whole, stamp = pa.array([1]), pa.array([1], pa.timestamp("s"))
    zoned = pa.array([1], pa.timestamp("s", "UTC"))
    for one, other, part in ((whole, stamp, "integers"), (stamp, zoned, "time zone")):
        tables = {"A": pa.table({"t": one, "id": [1]}), "B": pa.table({"t": other, "id": [1]})}
        refused(lambda tables=tables: ensue.detect(tables, SECONDS, time="t"), "time-mix", part)
    refused(
        lambda: detect(with_column("until", pa.array([1] * 4, pa.timestamp("s"))), end="until"), "time-mix", "integers"
    )


def test_windows_in_the_other_measure() -> None:
    refused(lambda: detect(EVENTS, SECONDS), "window-unit", "integers")
    stamps = with_column("t", EVENTS["t"].cast(pa.timestamp("s")))
    assert "`WITHIN 5s`" in str(refused(lambda: detect(stamps), "window-unit", "needs a unit"))


@pytest.mark.parametrize(
    "pattern", ["FOLLOWS(A a, B b, 5 ms)", "PERIODIC(A a, 5 ms, B b)", "NOTFOLLOWS(A a, B b, 5 ms)"]
)
def test_durations_of_less_than_a_tick(pattern: str) -> None:
    """Moments that are no time apart would never come to an end."""
    stamps = with_column("t", EVENTS["t"].cast(pa.timestamp("s")))
    refused(lambda: detect(stamps, f"PATTERN {pattern}"), "window-size", "shorter than the unit")
    assert detect(with_column("t", EVENTS["t"].cast(pa.timestamp("ms"))), f"PATTERN {pattern}") is not None


@pytest.mark.parametrize(
    "table", [pa.Table.from_arrays([*EVENTS.columns, EVENTS["id"]], names=["t", "type", "id", "id"])]
)
def test_two_columns_of_one_name(table: pa.Table) -> None:
    """Where the query uses them; `test_unused_columns` has those that no query uses."""
    refused(lambda: detect(table), "duplicate-column", "two columns `id`")


def test_two_columns_of_one_name_in_pandas() -> None:
    frame = EVENTS.to_pandas()
    refused(lambda: detect(pd.concat([frame, frame[["id"]]], axis=1)), "duplicate-column", "two columns `id`")


def test_polars_columns_that_arrow_cannot_hold() -> None:
    frame = pl.DataFrame({"t": [1, 2], "type": ["A", "B"], "id": pl.Series([1, 1], dtype=pl.Int128)})
    refused(lambda: detect(frame), "mixed-column", "id")


# --- what is no table, no query, no name


@pytest.mark.parametrize(
    "events",
    [
        None,
        EVENTS.to_pylist(),
        b"events.parquet",
        5,
        pd.Series([1]),
        EVENTS["t"],
        EVENTS.schema,
        EVENTS.to_reader(),
        object(),
    ],
    ids=lambda events: type(events).__name__,
)
def test_events_that_are_no_table(events: Any) -> None:
    hints = {"list": "from_pylist", "RecordBatchReader": "read_all()"}
    kind = type(events).__name__
    refused(
        lambda: detect(events), "not-a-table", f"found {kind}", hints.get(kind, "a mapping of stream names to tables")
    )


def test_mappings_that_hold_no_table() -> None:
    refused(lambda: ensue.detect({}, QUERY, time="t"), "no-tables", "empty")
    refused(lambda: ensue.detect({"A": None, "B": EVENTS}, QUERY, time="t"), "not-a-table", "NoneType")
    refused(lambda: ensue.detect(EVENTS.to_pydict(), QUERY, time="t"), "not-a-table", "list")


def test_mapping_that_lacks_a_stream() -> None:
    table = EVENTS.drop_columns("type")
    error = refused(
        lambda: ensue.detect({"A": table, "Bb": table}, QUERY, time="t"), "unknown-stream", "streams: A, Bb"
    )
    assert "did you mean `Bb`?" in str(error)


def test_mapping_with_a_stream_that_is_no_text() -> None:
    refused(lambda: ensue.detect({1: EVENTS}, QUERY, time="t"), "stream-name")


def test_type_together_with_one_table_per_stream() -> None:
    refused(lambda: detect({"A": EVENTS, "B": EVENTS}), "type-and-tables", "`type`")


def test_several_streams_without_a_type_column() -> None:
    refused(lambda: ensue.detect(EVENTS, QUERY, time="t"), "no-type-column", "`A`, `B`", "pass `type=`")


def test_time_column_of_a_stream_is_not_given() -> None:
    refused(lambda: ensue.detect({"A": EVENTS, "B": EVENTS}, QUERY, time={"A": "t"}), "time-column", "`B`", "mapping")
    refused(lambda: detect(EVENTS, time={"A": "t"}), "time-column")
    refused(lambda: detect(EVENTS, time=None), "no-time-column")


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"time": 5}, id="time is no name"),
        pytest.param({"time": "t", "end": 5}, id="end is no name"),
    ],
)
def test_names_of_columns_that_are_no_text(columns: dict[str, Any]) -> None:
    refused(lambda: ensue.detect({"A": EVENTS, "B": EVENTS}, QUERY, **columns), "column-name")


def test_type_column_that_is_no_name() -> None:
    refused(lambda: detect(EVENTS, type=5), "column-name")


def test_time_of_a_stream_that_is_not_there() -> None:
    columns = {"A": "t", "B": "t", "Bb": "t"}
    refused(lambda: ensue.detect({"A": EVENTS, "B": EVENTS}, QUERY, time=columns), "unknown-stream", "`Bb`")


@pytest.mark.parametrize("query", [None, 5, b"PATTERN A a", ["PATTERN A a", 5]], ids=repr)
def test_query_that_is_none(query: Any) -> None:
    with pytest.raises((EnsueError, TypeError)) as caught:
        detect(EVENTS, query)
    assert "query" in str(caught.value)


def test_run_takes_one_query_built_in_python() -> None:
    query = ensue.seq(ensue.event("A", "a"), ensue.event("B", "b")).within(5)
    assert len(ensue.run(EVENTS, query, time="t", type="type")) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "   ", "-- nothing"])
def test_empty_query(text: str) -> None:
    refused(lambda: detect(EVENTS, text), "empty-query", "start a query with PATTERN")


def test_several_statements_where_one_is_expected() -> None:
    refused(
        lambda: detect(EVENTS, "PATTERN A a; PATTERN B b"), "one-query", "found 2 PATTERN statements", "`ensue.run`"
    )


def test_detect_batches_objects_when_called() -> None:
    refused(lambda: list(ensue.detect_batches(EVENTS, QUERY, time="x", type="type")), "no-such-column")


def test_detect_batches_objects_before_the_first_batch_is_asked_for() -> None:
    refused(lambda: ensue.detect_batches(EVENTS, QUERY, time="x", type="type"), "no-such-column")


# --- rows that cannot take part


def set_aside(events: Any, query: str = QUERY, **options: Any) -> tuple[pa.Table, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = detect(events, query, **options)
    assert all(item.category is ensue.EnsueWarning for item in caught)
    assert all(item.filename == __file__ for item in caught)
    return found, [str(item.message) for item in caught]


def test_rows_without_a_time() -> None:
    found, said = set_aside(with_column("t", pa.array([1, None, 3, 4])))
    assert [row["id"] for row in found.to_pylist()] == [8]
    assert len(said) == 1
    assert said[0].endswith("ignored: no timestamp")
    assert said[0].startswith("1 row")


def test_rows_without_a_key_and_nan_keys() -> None:
    found, said = set_aside(with_column("id", pa.array([7.0, None, float("nan"), float("nan")])))
    assert found.num_rows == 0
    assert len(said) == 1
    assert said[0].startswith("3 rows ignored: no key")


def test_rows_without_one_of_two_keys() -> None:
    table = with_column("zone", pa.array(["x", "x", None, "y"]))
    found, said = set_aside(table, QUERY.replace("BY id", "BY id, zone"))
    assert [row["id"] for row in found.to_pylist()] == [7]
    assert len(said) == 1


def test_events_that_end_before_they_start() -> None:
    found, said = set_aside(with_column("until", pa.array([1, 1, 3, 4])), end="until")
    assert [row["id"] for row in found.to_pylist()] == [8]
    assert len(said) == 1
    assert "end before start" in said[0]


def test_events_without_an_end() -> None:
    found, said = set_aside(with_column("until", pa.array([1, None, 3, 4])), end="until")
    assert [row["id"] for row in found.to_pylist()] == [8]
    assert len(said) == 1
    assert said[0].endswith("ignored: no timestamp")


def test_rows_without_a_type() -> None:
    found, said = set_aside(with_column("type", pa.array(["A", "B", None, "B"])))
    assert found.num_rows == 1
    assert len(said) == 1
    assert said[0].endswith("ignored: no type")


def test_reports_count_what_was_set_aside() -> None:
    table = pa.table({"t": [1, None, 3, 4], "u": [1, 2, 2, 5], "type": ["A", "B", "B", "B"], "id": [1, 1, 1, None]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = ensue.run(table, QUERY, time="t", end="u", type="type").reports["pattern_1"]
    assert report.rows == 4
    assert report.ignored == {"no timestamp": 1, "no key": 1, "end before start": 1}


def test_nan_and_null_attributes_satisfy_nothing() -> None:
    table = with_column("x", pa.array([float("nan"), float("nan"), None, 1.0]))
    for condition in ("a.x = b.x", "a.x != b.x", "a.x < 5", "NOT a.x < 5", "a.x >= a.x", "SAME(x)"):
        assert detect(table, QUERY.replace("PARTITION", f"WHERE {condition} PARTITION")).num_rows == 0
    assert detect(table, QUERY.replace("PARTITION", "WHERE a.x IS NULL PARTITION")).num_rows == 2


def test_misspelt_stream_in_a_type_column() -> None:
    found, said = set_aside(EVENTS, QUERY.replace("A a", "Aa a"))
    assert found.num_rows == 0
    assert said == ["column `type` has no value `Aa`; did you mean `A`?"]


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_misspelt_stream_in_any_type_column(kind: pa.DataType) -> None:
    table = with_column("type", pa.array(["Order", "Paid", None, "Paid"]).cast(kind))
    _, said = set_aside(table, "PATTERN SEQ(Ordr a, Paid b) WITHIN 5 RETURN a.t AS t")
    assert "column `type` has no value `Ordr`; did you mean `Order`?" in said


def test_a_stream_without_events_is_no_reason_to_warn() -> None:
    _, said = set_aside(EVENTS, "PATTERN SEQ(A a, NOT Cancelled c) WITHIN 5")
    assert said == []


def test_warnings_of_run() -> None:
    with pytest.warns(ensue.EnsueWarning, match="did you mean `A`"):
        ensue.run(EVENTS, "PATTERN SEQ(Aa a, B b) WITHIN 5", time="t", type="type")


def test_warnings_of_detect_batches() -> None:
    with pytest.warns(ensue.EnsueWarning, match="did you mean `A`"):
        list(ensue.detect_batches(EVENTS, "PATTERN SEQ(Aa a, B b) WITHIN 5", time="t", type="type"))


# --- far times and large windows


@pytest.mark.parametrize("time", [2**61, 2**62, 2**63 - 1, -(2**61), -(2**63)])
def test_times_near_the_limits_of_integers(time: int) -> None:
    refused(lambda: detect(with_column("t", pa.array([1, 2, 3, time]))), "time-range", "column `t`", "coarser unit")
    refused(lambda: detect(with_column("u", pa.array([1, 2, 3, time])), end="u"), "time-range", "column `u`")


def test_times_within_the_limits() -> None:
    table = with_column("t", pa.array([2**61 - 2, 2**61 - 1, -(2**61) + 1, -(2**61) + 2]))
    assert detect(table).num_rows == 2


def test_unsigned_times_beyond_signed_integers() -> None:
    table = with_column("t", pa.array([1, 2, 3, 2**63 + 5], pa.uint64()))
    refused(lambda: detect(table), "time-range", "column `t`")


@pytest.mark.parametrize("far", [datetime(9999, 12, 31), date(9999, 12, 31)], ids=["timestamp", "date"])
def test_far_times_beside_nanoseconds(far: date) -> None:
    kind = pa.timestamp("s") if isinstance(far, datetime) else pa.date32()
    tables = {
        "A": pa.table({"t": pa.array([far], kind), "id": [7]}),
        "B": pa.table({"t": pa.array([1], pa.timestamp("ns")), "id": [7]}),
    }
    refused(lambda: ensue.detect(tables, SECONDS, time="t"), "time-range", "column `t` of the table of stream `A`")


def test_windows_beyond_64_bits() -> None:
    stamps = with_column("t", EVENTS["t"].cast(pa.timestamp("s")))
    refused(lambda: detect(stamps, QUERY.replace("5", "100000 weeks")), "number-too-large", "`100000 weeks`", "64 bits")
    refused(lambda: detect(EVENTS, QUERY.replace("5", str(2**63))), "number-too-large", "64 bits")


@pytest.mark.parametrize("size", ["9223372036854775807", "9223372036854775807 EVENTS"])
def test_windows_as_large_as_they_can_be(size: str) -> None:
    assert detect(EVENTS, QUERY.replace("5", size)).num_rows == 2
    assert detect(EVENTS, f"PATTERN SEQ(A a, NOT B b) PARTITION BY id WITHIN {size}").num_rows == 0
    assert detect(EVENTS, f"PATTERN SEQ(NOT A a, B b) PARTITION BY id WITHIN {size}").num_rows == 0


def test_conditions_on_far_times() -> None:
    for condition, expected in (
        (f"b.t < a.t + {2**63 - 1}", 2),
        (f"b.t > a.t - {2**63 - 1}", 2),
        (f"b.t - a.t < {2**63 - 1}", 2),
    ):
        assert detect(EVENTS, QUERY.replace("PARTITION", f"WHERE {condition} PARTITION")).num_rows == expected


def test_overflow_in_a_condition_or_result() -> None:
    for query in (
        "PATTERN A a WHERE a.id * 9223372036854775807 > 1",
        "PATTERN A a RETURN a.id * 9223372036854775807 AS x",
    ):
        refused(lambda query=query: detect(EVENTS, query), "overflow", "`*`", "64-bit integer")


def test_overflow_says_where() -> None:
    error = refused(lambda: detect(EVENTS, "PATTERN A a WHERE a.id * 9223372036854775807 > 1"), "overflow")
    assert isinstance(error, ensue.QueryError)
    assert (error.line, error.column) == (1, 19)


# --- queries that explode


def test_limit_names_the_pattern_the_key_and_the_way_out() -> None:
    count = 100
    table = pa.table({"t": range(2 * count), "type": ["A", "B"] * count, "id": [7] * (2 * count - 2) + [8, 8]})
    error = refused(
        lambda: detect(
            table, "PATTERN storm SEQ(A a, B b) PARTITION BY id WITHIN 1000", limits=ensue.Limits(matches=1000)
        ),
        "too-many-matches",
        "pattern `storm`",
        "more than 1,000 matches",
        "id = 7",
        "use a shorter WITHIN",
        "`limits=ensue.Limits(matches=...)`",
        "detect_batches",
    )
    assert isinstance(error, ensue.LimitError)
    refused(
        lambda: detect(table, "PATTERN SEQ(A a, B b)", limits=ensue.Limits(matches=1000)),
        "too-many-matches",
        "add WITHIN, PARTITION BY or",
    )


def test_limit_is_the_number_that_is_still_allowed() -> None:
    assert detect(EVENTS, limits=ensue.Limits(matches=2)).num_rows == 2
    refused(lambda: detect(EVENTS, limits=ensue.Limits(matches=1)), "too-many-matches")
    refused(lambda: ensue.run(EVENTS, QUERY, time="t", type="type", limits=ensue.Limits(matches=1)), "too-many-matches")
    refused(
        lambda: list(ensue.detect_batches(EVENTS, QUERY, time="t", type="type", limits=ensue.Limits(matches=1))),
        "too-many-matches",
    )
    assert detect(EVENTS, limits=ensue.Limits(matches=None)).num_rows == 2


EXPLODING = """
    import resource
    import numpy as np
    import pyarrow as pa
    import ensue

    count = 20_000
    table = pa.table({
        "t": np.arange(2 * count), "type": ["A", "B"] * count, "id": np.zeros(2 * count, np.int64),
        "text": ["x" * 200] * (2 * count),
    })
    small = table.slice(0, 4)
    ensue.detect(small, %(query)r, time="t", type="type")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        ensue.detect(table, %(query)r, time="t", type="type", limits=ensue.Limits(%(limits)s))
    except ensue.LimitError as error:
        print(error.code)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize(
    ("query", "limits"),
    [
        ("PATTERN AND(A a, B b) PARTITION BY id RETURN a.t AS x", ""),
        pytest.param("PATTERN SEQ(A a, B b, A c) RETURN a.t AS x", "", marks=pytest.mark.slow),
        pytest.param("PATTERN AND(A a, B b) PARTITION BY id", "matches=100_000", marks=pytest.mark.slow),
        pytest.param("PATTERN AND(A a, B b) PARTITION BY id", "", marks=pytest.mark.slow),
    ],
)
def test_an_exploding_query_stops_in_bounded_memory(query: str, limits: str) -> None:
    code = textwrap.dedent(EXPLODING) % {"query": query, "limits": limits}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=True)
    said, kilobytes = done.stdout.split()
    assert said == "too-many-matches"
    assert int(kilobytes) < 1_000_000


# --- nothing of Arrow, numpy or Python


@pytest.mark.parametrize("name", ["SEQ", "a b", "ä`ö", "", "x" * 5000, "\u0000"])
def test_names_of_columns_and_streams_may_be_anything(name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    if not name:
        refused(lambda: detect(EVENTS, f"PATTERN {quoted} a"), "syntax")
        return
    table = pa.table({"t": [1, 2], "type": [name, name], name: [7, 7]})
    query = f"PATTERN SEQ({quoted} a, {quoted} b) WHERE a.{quoted} = 7 PARTITION BY {quoted} WITHIN 5 RETURN a.{quoted}"
    assert detect(table, query).to_pylist() == [{name: 7}]


def test_patterns_of_many_variables() -> None:
    count = 40
    items = ", ".join(f"A a{number}" for number in range(count))
    table = pa.table({"t": range(count), "type": ["A"] * count})
    assert detect(table, f"PATTERN SEQ({items}) WITHIN {count}").num_rows == 1


def test_run_end_encoded_conditions() -> None:
    table = with_column("x", pc.run_end_encode(pa.array([1, 1, 2, 2])))
    found = detect(table, QUERY.replace("PARTITION", "WHERE a.x = b.x PARTITION") + " RETURN a.x AS x")
    assert found["x"].to_pylist() == [1, 2]
