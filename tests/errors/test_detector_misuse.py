"""A detector that is used in a way that cannot be right: batches, watermarks, saved states."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from test_bad_input import COLUMNS, EVENTS, QUERY, SECONDS, refused, with_column

# --- detectors


def batch(*events: tuple[int, str, int]) -> pa.Table:
    columns = list(zip(*events, strict=True)) if events else [(), (), ()]
    schema = pa.schema({"t": pa.int64(), "type": pa.string(), "id": pa.int64()})
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def detector(query: str = QUERY, **options: Any) -> ensue.Detector:
    return ensue.Detector(query, **{**COLUMNS, **options})


def advanced(query: str = QUERY, table: pa.Table | None = None, watermark: Any = 1) -> ensue.Detector:
    found = detector(query)
    found.advance(batch((1, "A", 7)) if table is None else table, watermark=watermark)
    return found


def test_detector_checks_its_query_at_once() -> None:
    refused(lambda: detector("PATTERN SEQ(A a, NOT B b)"), "open-scope")
    refused(lambda: detector("PATTERN SEQ(A a"), "syntax")


def test_first_step_needs_a_table() -> None:
    refused(lambda: detector().advance(watermark=3), "no-tables", "first step")
    refused(lambda: detector().finish(), "no-tables", "first step")
    refused(lambda: detector().snapshot(), "no-state")


@pytest.mark.parametrize(
    "watermark", ["5", 1.5, True, datetime(2024, 1, 1), pd.Timestamp("2024-01-01"), frozenset()], ids=repr
)
def test_watermark_of_integer_time(watermark: Any) -> None:
    refused(lambda: advanced(watermark=watermark), "watermark-type", "the time column is integer")


def test_no_watermark_is_not_the_end_of_time() -> None:
    refused(lambda: advanced(watermark=None), "watermark-type")


STAMPS = with_column("t", EVENTS["t"].cast(pa.timestamp("us")))


@pytest.mark.parametrize(
    "watermark",
    [
        "noon",
        "",
        "2024-13-01",
        5,
        1.5,
        True,
        pd.NaT,
        np.datetime64("NaT"),
        np.datetime64("NaT", "us"),
    ],
    ids=repr,
)
def test_watermark_of_timestamps(watermark: Any) -> None:
    refused(lambda: advanced(SECONDS, STAMPS, watermark), "watermark-type", "must be a timestamp")


@pytest.mark.parametrize(
    "watermark",
    [
        "2024-01-01",
        "2024-01-01T00:00:00Z",
        "2024-01-01 02:00:00+02:00",
        datetime(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        pd.Timestamp("2024-01-01"),
        np.datetime64("2024-01-01", "ms"),
        pa.scalar(1704067200, pa.timestamp("s")),
        np.datetime64("2024-01-01"),
        date(2024, 1, 1),
    ],
    ids=repr,
)
def test_watermarks_that_are_moments(watermark: Any) -> None:
    assert advanced(SECONDS, STAMPS, watermark).watermark == 1_704_067_200_000_000


def test_watermark_goes_forwards_and_a_refused_step_changes_nothing() -> None:
    found = advanced(watermark=5)
    before = found.report
    rows, kept = before.rows, found.kept_rows
    refused(lambda: found.advance(batch((6, "A", 7)), watermark=4), "watermark-backwards")
    assert (found.watermark, found.report.rows, found.kept_rows) == (5, rows, kept)
    assert found.advance(batch((6, "B", 7)), watermark=6).matches.num_rows == 1


def test_a_step_that_was_refused_for_its_watermark_can_be_repeated() -> None:
    found = detector()
    refused(lambda: found.advance(batch((1, "A", 7)), watermark="x"), "watermark-type")
    assert found.advance(batch((1, "A", 7), (2, "B", 7)), watermark=3).matches.num_rows == 1
    assert found.report.rows == 2


def test_a_step_that_was_refused_for_its_matches_is_not_in_the_report() -> None:
    found = detector("PATTERN AND(A a, B b) WITHIN 50", limits=ensue.Limits(matches=3))
    found.advance(batch((1, "A", 7), (2, "A", 7), (3, "A", 7)), watermark=4)
    refused(lambda: found.advance(batch((5, "B", 7), (6, "B", 7)), watermark=6), "too-many-matches")
    assert found.watermark == 4
    assert found.advance(batch((5, "B", 7)), watermark=5).matches.num_rows == 3
    assert found.report.rows == 4


def test_late_rows_are_set_aside_counted_and_given_back() -> None:
    found = advanced(watermark=2)
    step = found.advance(batch((2, "A", 7), (1, "A", 8), (3, "B", 7)), watermark=4)
    assert step.late.to_pylist() == batch((2, "A", 7), (1, "A", 8)).to_pylist()
    assert [(row["start"], row["end"]) for row in step.matches.to_pylist()] == [(1, 3)]
    assert (found.report.late, found.report.rows) == (2, 4)


def test_late_rows_of_one_table_per_stream() -> None:
    found = ensue.Detector(QUERY, time="t")
    table = pa.table({"t": [5], "id": [7]})
    found.advance({"A": table, "B": table.slice(0, 0)}, watermark=5)
    step = found.advance({"B": pa.table({"t": [4, 6], "id": [7, 7]})}, watermark=9)
    assert {name: late.num_rows for name, late in step.late.items()} == {"A": 0, "B": 1}
    assert step.matches.num_rows == 1


def test_rows_without_time_or_key_are_counted_once() -> None:
    found = detector()
    table = pa.table({"t": [None, 1, 5], "type": ["A", "A", "A"], "id": [1, None, None]}, schema=batch().schema)
    found.advance(table, watermark=2)
    for watermark in (6, 7):
        found.advance(watermark=watermark)
    found.finish()
    assert (found.report.null_times, found.report.null_keys) == (1, 2)


def test_a_finished_detector_takes_no_more() -> None:
    found = advanced()
    found.finish()
    with pytest.raises(ensue.StateError):
        found.advance(batch((2, "B", 7)), watermark=3)


@pytest.mark.parametrize("to_kind", [lambda table: table.to_pandas(), pl.from_arrow], ids=["pandas", "polars"])
def test_a_step_without_events_gives_the_kind_of_table_of_the_steps_before(to_kind: Any) -> None:
    found = detector()
    first = found.advance(to_kind(batch((1, "A", 7))), watermark=1)
    step = found.advance(watermark=2)
    assert type(step.matches) is type(first.matches)
    assert type(step.late) is type(first.late)


def test_batches_of_another_shape() -> None:
    table = batch((2, "B", 7))
    refused(lambda: advanced().advance(table.drop_columns("id"), watermark=3), "no-such-column", "`id`", "t, type")
    refused(lambda: advanced().advance(with_column("id", pa.array(["x"]), table), watermark=3), "column-type")
    refused(lambda: advanced().advance(with_column("id", pa.array([1.5]), table), watermark=3), "column-type")
    refused(lambda: advanced().advance({"A": table}, watermark=3), "table-shape")
    refused(lambda: advanced().advance([1], watermark=3), "not-a-table")


def test_batches_with_two_columns_of_one_name() -> None:
    table = pa.Table.from_arrays([[2], ["B"], [7], [7]], names=["t", "type", "id", "id"])
    refused(lambda: advanced().advance(table, watermark=3), "duplicate-column", "`id`")


def test_batches_with_null_where_the_first_promised_none() -> None:
    strict = pa.schema([field.with_nullable(False) for field in batch().schema])
    found = advanced(table=batch((1, "A", 7)).cast(strict))
    step = found.advance(
        pa.table({"t": [None, 2], "type": ["B", "B"], "id": [7, 7]}, schema=batch().schema), watermark=3
    )
    assert step.matches.num_rows == 1
    assert found.report.null_times == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("t", pa.array([2])),
        ("t", pa.array(["1970-01-01 00:00:02"])),
        ("t", pa.array([2], pa.timestamp("us", "Asia/Tokyo"))),
        ("id", pa.array(["7"])),
        ("type", pa.array([5])),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_batches_with_a_column_of_another_kind(name: str, values: pa.Array) -> None:
    """A number is no moment: nobody knows whether it counts seconds or microseconds."""
    found = advanced(SECONDS, STAMPS.slice(0, 1), watermark="1970-01-01")
    table = with_column(name, values, STAMPS.slice(1, 1))
    refused(lambda: found.advance(table, watermark="1970-01-02"), "column-type", f"`{name}`")


def test_batches_with_more_columns_narrower_types_and_other_order() -> None:
    table = with_column("more", pa.array([1]), with_column("id", pa.array([7], pa.int8()), batch((2, "B", 7))))
    assert advanced().advance(table.select(["more", "id", "t", "type"]), watermark=3).matches.num_rows == 1


def test_streams_that_the_first_step_did_not_have() -> None:
    table = pa.table({"t": [1], "id": [7]})
    found = ensue.Detector(QUERY, time="t")
    found.advance({"A": table, "B": table}, watermark=1)
    refused(lambda: found.advance({"Bb": table}, watermark=2), "unknown-stream", "`Bb`")
    refused(lambda: ensue.Detector(QUERY, time="t").advance({"A": table}, watermark=1), "unknown-stream", "`B`")


# --- saved states


def test_restore_goes_on_where_the_state_was_saved() -> None:
    found = detector()
    found.restore(advanced().snapshot())
    assert found.advance(batch((2, "B", 7)), watermark=3).matches.num_rows == 1


def test_restore_of_a_state_of_another_query() -> None:
    saved = advanced().snapshot()
    error = refused(lambda: detector(QUERY.replace("5", "6")).restore(saved), "state-query", "another query")
    assert "WITHIN 5" in str(error)


def test_restore_of_a_state_whose_query_another_release_wrote_in_words() -> None:
    query = "PATTERN SEQ(A a, B b) WITHIN 1h 30m"
    events = pa.table({"t": pa.array([0, 60_000_000], pa.timestamp("us")), "type": ["A", "A"]})
    first = ensue.Detector(query, time="t", type="type")
    first.advance(events, watermark=datetime(1970, 1, 1, 0, 1))
    saved = first.snapshot()
    older = {key: value.replace(b"1h 30m", b"90 minutes") for key, value in saved.schema.metadata.items()}
    assert older != saved.schema.metadata
    second = ensue.Detector(query, time="t", type="type")
    second.restore(saved.replace_schema_metadata(older))
    later = pa.table({"t": pa.array([120_000_000], pa.timestamp("us")), "type": ["B"]})
    assert second.advance(later, watermark=datetime(1970, 1, 1, 0, 2)).matches.num_rows == 2
    other = {key: value.replace(b"1h 30m", b"91 minutes") for key, value in saved.schema.metadata.items()}
    refused(lambda: second.restore(saved.replace_schema_metadata(other)), "state-query", "another query")


def test_restore_of_a_plain_table() -> None:
    refused(lambda: detector().restore(EVENTS), "not-a-state", "snapshot()")


@pytest.mark.parametrize(
    "saved", [None, EVENTS.to_pandas(), {}, "state.parquet"], ids=lambda saved: type(saved).__name__
)
def test_restore_of_what_is_no_table(saved: Any) -> None:
    refused(lambda: detector().restore(saved), "not-a-state", "snapshot()")


def with_header(saved: pa.Table, **changes: Any) -> pa.Table:
    header = {**json.loads(saved.schema.metadata[b"ensue.state"]), **changes}
    return saved.replace_schema_metadata({b"ensue.state": json.dumps(header).encode()})


def test_restore_of_another_version() -> None:
    refused(lambda: detector().restore(with_header(advanced().snapshot(), version=99)), "state-version", "99")


@pytest.mark.parametrize("header", [b"{{", b"{}", b"[]", b'{"version": 4}'])
def test_restore_of_a_state_with_a_broken_header(header: bytes) -> None:
    saved = advanced().snapshot().replace_schema_metadata({b"ensue.state": header})
    refused(lambda: detector().restore(saved), "not-a-state")


def test_restore_of_a_state_without_its_events() -> None:
    refused(
        lambda: detector().restore(advanced().snapshot().drop_columns("stage_0_events_0")), "state-shape", "no events"
    )


def test_restore_of_a_state_without_its_row() -> None:
    refused(lambda: detector().restore(advanced().snapshot().slice(1)), "not-a-state")


def test_restore_with_columns_that_the_state_does_not_have() -> None:
    saved = advanced().snapshot()
    refused(lambda: detector(time="when").restore(saved), "no-such-column", "`when`")


def test_restore_with_another_time_column() -> None:
    saved = advanced().snapshot()
    with pytest.raises(ensue.StateError):
        detector(time="id").restore(saved)


def test_restore_of_a_single_table_without_type_column() -> None:
    query = "PATTERN SEQ(A a, A b) PARTITION BY id WITHIN 5"
    found, again = (ensue.Detector(query, time="t") for _ in range(2))
    found.advance(pa.table({"t": [1], "id": [7]}), watermark=1)
    again.restore(found.snapshot())
    assert again.advance(pa.table({"t": [2], "id": [7]}), watermark=3).matches.num_rows == 1


def through_parquet(table: pa.Table) -> pa.Table:
    file = io.BytesIO()
    pq.write_table(table, file)
    file.seek(0)
    return pq.read_table(file)


def through_ipc_file(table: pa.Table) -> pa.Table:
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_file(file.getvalue()).read_all()


def states() -> Iterator[Any]:
    """Types as dictionaries or not, columns with and without null, one table or one per stream; the way to disk."""
    for store in (through_parquet, through_ipc_file):
        for encoded, strict, keyed in np.ndindex(2, 2, 2):
            name = f"{store.__name__}-{'dictionary' * encoded}-{'strict' * strict}-{'keyed' * keyed}"
            yield pytest.param(store, encoded, strict, keyed, id=name)


@pytest.mark.parametrize(("store", "encoded", "strict", "keyed"), list(states()))
def test_states_survive_a_stay_on_disk(
    store: Callable[[pa.Table], pa.Table], encoded: int, strict: int, keyed: int
) -> None:
    table = batch((1, "A", 7), (2, "A", 8))
    if encoded:
        table = with_column("type", table["type"].dictionary_encode(), table)
    if strict:
        table = table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))
    query = "PATTERN AND(A a, B b) PARTITION BY id WITHIN 50"
    columns: dict[str, Any] = {"time": "t"} if keyed else dict(COLUMNS)
    found, again = (ensue.Detector(query, **columns) for _ in range(2))
    found.advance({"A": table, "B": table} if keyed else table, watermark=1)
    again.restore(store(found.snapshot()))
    assert (again.report, again.watermark, again.kept_rows) == (found.report, found.watermark, found.kept_rows)
    more = batch((3, "B", 7))
    one, other = (item.advance({"B": more} if keyed else more, watermark=5).matches for item in (found, again))
    assert one.num_rows > 0
    assert one.equals(other)
