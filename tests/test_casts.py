"""CAST to DECIMAL and DATE, on columns of every type that can hold such values; the text cases have the values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import ensue
from ensue import QueryError, event, parse, var

DAYS = [date(2024, 1, 31), date(1969, 12, 31)]
LATE = [datetime(2024, 1, 31, 23, 30, tzinfo=UTC), datetime(1969, 12, 31, 22, 59, 59, 500_000, tzinfo=UTC)]


def values(column: pa.Array, expression: str) -> list[Any]:
    """The values of an expression over field `x`, as it is and in the state of a detector."""
    table = pa.table({"t": range(len(column)), "type": ["A"] * len(column), "x": column})
    query = f"PATTERN A a RETURN a.t AS t, {expression} AS y"
    found = ensue.detect(table, query, time="t", type="type")
    detector = ensue.Detector(query, time="t", type="type")
    steps = [detector.advance(table.slice(place, 1), watermark=place).matches for place in range(len(column))]
    assert pa.concat_tables([*steps, detector.finish().matches]).to_pylist() == found.to_pylist()
    listed: list[Any] = found.column("y").to_pylist()
    return listed


@pytest.mark.parametrize(
    "column",
    [
        pa.array(DAYS, pa.date32()),
        pa.array(DAYS, pa.date64()),
        pa.array(DAYS, pa.date32()).dictionary_encode(),
    ],
    ids=["date32", "date64", "dictionary"],
)
def test_columns_of_dates_are_dates_for_cast_and_midnights_elsewhere(column: pa.Array) -> None:
    midnights = [datetime(day.year, day.month, day.day) for day in DAYS]
    assert values(column, "CAST(a.x AS STRING)") == ["2024-01-31", "1969-12-31"]
    assert values(column, "a.x") == values(column, "CAST(a.x AS DATE)") == midnights
    assert values(column, "CAST(a.x AS TIMESTAMP)") == midnights
    assert values(column, "CAST(CAST(a.x AS TIMESTAMP) AS STRING)")[0] == "2024-01-31 00:00:00"
    assert values(column, "a.x = TIMESTAMP '2024-01-31'") == [True, False]
    assert values(column, "a.x IN (CAST('2024-01-31' AS DATE), NULL)") == [True, None]
    assert values(column, "coalesce(a.x, a.x) + 1 hour = a.x + 60 minutes") == [True, True]


def test_dates_in_structs_lists_and_maps() -> None:
    structs = pa.array([{"d": DAYS[0], "l": DAYS}], pa.struct([("d", pa.date32()), ("l", pa.list_(pa.date32()))]))
    assert values(structs, "CAST(a.x.d AS STRING) || CAST(a.x.l[1] AS STRING)") == ["2024-01-311969-12-31"]
    assert values(structs, "contains(a.x.l, a.x.d) AND a.x.d = CAST('2024-1-31' AS DATE)") == [True]
    maps = pa.array([[("k", DAYS[0])]], pa.map_(pa.string(), pa.date32()))
    assert values(maps, "CAST(a.x['k'] AS STRING)") == ["2024-01-31"]


def test_dates_join_with_timestamps() -> None:
    days = pa.table({"t": [1, 2], "day": pa.array(DAYS)})
    times = pa.table({"t": [3, 4], "day": pa.array([datetime(2024, 1, 31), datetime(2024, 1, 31, 1)])})
    for condition in ("WHERE a.day = b.day", "WHERE SAME(day)", "PARTITION BY day"):
        found = ensue.detect(
            {"A": days, "B": times}, f"PATTERN SEQ(A a, B b) {condition} RETURN a.t AS a, b.t AS b", time="t"
        )
        assert found.to_pylist() == [{"a": 1, "b": 3}]


def test_the_date_of_a_timestamp_is_that_of_its_time_zone() -> None:
    for unit in ("ms", "us", "ns"):
        column = pa.array(LATE, pa.timestamp(unit, "UTC"))
        assert values(column, "CAST(CAST(a.x AS DATE) AS STRING)") == ["2024-01-31", "1969-12-31"]
        local = column.cast(pa.timestamp(unit, "Europe/Vienna"))
        assert values(local, "CAST(CAST(a.x AS DATE) AS STRING)") == ["2024-02-01", "1969-12-31"]


@pytest.mark.parametrize(
    ("column", "of", "wanted"),
    [
        (pa.array([Decimal("99.995"), Decimal("-0.005"), None]), "DECIMAL(5, 2)", ["100.00", "-0.01", None]),
        (pa.array([Decimal("99.995")]), "DECIMAL(4, 2)", [None]),
        (pa.array([Decimal("1"), Decimal("10")], pa.decimal256(60, 20)), "DECIMAL(38, 37)", ["1." + "0" * 37, None]),
        (pa.array([0.1, 1e22, float("inf"), -0.0]), "DECIMAL(38, 1)", ["0.1", f"{10**22}.0", None, "0.0"]),
        (pa.array([1.1], pa.float32()), "DECIMAL(9, 8)", ["1.10000002"]),
        (pa.array([2**63 - 1, -(2**63)]), "DECIMAL(19)", ["9223372036854775807", "-9223372036854775808"]),
        (pa.array([7], pa.uint8()), "DECIMAL(1)", ["7"]),
        (pa.array([True, False]), "DECIMAL(1, 1)", [None, "0.0"]),
        (pa.array(["9" * 39, "1e999999999999999999999", "١", "0x1", "1_0", ""]), "DECIMAL(38)", [None] * 6),
        (pa.array(["1.5", "2.5"], pa.large_string()), "DECIMAL", ["2", "3"]),
        (pa.array(["1.5", "1.5"]).dictionary_encode(), "DECIMAL(2, 1)", ["1.5", "1.5"]),
        (pa.nulls(1), "DECIMAL(2, 1)", [None]),
    ],
)
def test_decimals_of_every_type(column: pa.Array, of: str, wanted: list[str | None]) -> None:
    assert values(column, f"CAST(TRY_CAST(a.x AS {of}) AS STRING)") == wanted


def test_decimals_of_cast_are_exact_in_conditions_and_floats_in_results() -> None:
    column = pa.array(["9007199254740993.01", "0.30"])
    assert values(column, "CAST(a.x AS DECIMAL(20, 2)) > 9007199254740993") == [True, False]
    assert values(column, "CAST(a.x AS DECIMAL(20, 2)) IN (0.3)") == [False, True]
    assert values(column, "CAST(a.x AS DECIMAL(20, 2)) BETWEEN 0.3 AND 0.3") == [False, True]
    assert values(column, "CASE CAST(a.x AS DECIMAL(20, 2)) WHEN 0.3 THEN 'x' END") == [None, "x"]
    assert values(column, "CAST(a.x AS DECIMAL(20, 2))") == [9007199254740993.01, 0.3]


def test_a_decimal_is_the_nearest_float() -> None:
    numbers = [Decimal(number).scaleb(-places) for places in (1, 2, 20) for number in range(-50, 50, 7)]
    wide = [*numbers, Decimal("9007199254740993.01"), Decimal("-12345678901234567.89")]
    for of in (pa.decimal128(38, 20), pa.decimal256(70, 20)):
        assert values(pa.array(wide, of), "a.x") == list(map(float, wide))
        assert values(pa.array(wide, of), "CAST(a.x AS DOUBLE)") == list(map(float, wide))
    query = "PATTERN SEQ(A a, B b, NOT C c) PARTITION BY k WITHIN 5 RETURN b.t AS t"
    tables = {
        "A": pa.table({"t": [1], "k": pa.array([Decimal("0.3")])}),
        "B": pa.table({"t": [2], "k": [0.3]}),
        "C": pa.table({"t": [3], "k": [2**60 + 1]}),
    }
    assert ensue.detect(tables, query, time="t").num_rows == 1


def test_constants_are_converted_too() -> None:
    one = pa.array([1])
    assert values(one, "CAST(CAST(2.675 AS DECIMAL(3, 2)) AS STRING)") == ["2.68"]
    assert values(one, "CAST(CAST(TIMESTAMP '2024-01-31 12:00:00' AS DATE) AS STRING)") == ["2024-01-31"]
    assert values(one, "CAST(NULL AS DATE)") == values(one, "CAST(NULL AS DECIMAL(2, 1))") == [None]


def test_in_python() -> None:
    x = var("a").x
    casts = {"d": x.cast("decimal(10,2)"), "e": x.try_cast(" Decimal ( 5 ) ").cast("string"), "f": x.cast("date")}
    query = event("A", "a").returning(**casts)
    text = query.to_text()
    assert "CAST(a.x AS DECIMAL(10, 2))" in text
    assert "CAST(TRY_CAST(a.x AS DECIMAL(5)) AS STRING)" in text
    assert query == parse(text).queries[0]


@pytest.mark.parametrize(
    ("condition", "code", "said"),
    [
        ("CAST(a.x AS DECIMAL(39)) = 1", "cast-type", "DECIMAL(10, 2)"),
        ("CAST(a.x AS DECIMAL(2, 3)) = 1", "cast-type", "DECIMAL(10, 2)"),
        ("CAST(a.x AS DECIMAL(1, 2, 3)) = 1", "cast-type", "DECIMAL(10, 2)"),
        ("CAST(a.x AS INT(3)) = 1", "cast-type", "write INT"),
        ("CAST(a.x AS NUMERIC(3)) = 1", "cast-type", "did you mean `DECIMAL`?"),
        ("CAST(1 AS DATE) IS NULL", "type-clash", "CAST cannot convert an integer to DATE"),
        ("CAST(TIMESTAMP '2024-01-31' AS DECIMAL(5)) = 1", "type-clash", "epoch(...)"),
        ("CAST(a.x) = 1", "unknown-function", "write the type after AS: CAST(x AS BIGINT)"),
        ("CAST(a.x AS ) = 1", "syntax", "write a type, for example CAST(a.x AS BIGINT)"),
        ("CAST(a.x AS DECIMAL()) = 1", "syntax", "for example DECIMAL(10, 2)"),
        ("CAST(a.x AS DECIMAL(2, 2)) = 1", "cast-value", "'1.5' cannot be converted to DECIMAL(2, 2)"),
        ("CAST(a.x AS DATE) IS NULL", "cast-value", "'1.5' cannot be converted to DATE"),
    ],
)
def test_mistakes(condition: str, code: str, said: str) -> None:
    table = pa.table({"t": [1], "type": ["A"], "x": ["1.5"]})
    with pytest.raises(QueryError) as raised:
        ensue.detect(table, f"PATTERN A a WHERE {condition}", time="t", type="type")
    assert raised.value.code == code
    assert said in str(raised.value)


LOG = pa.table(
    {"t": [1, 2], "type": ["A", "B"], "id": [7, 7], "name": ["7", "8"], "user": [{"id": "7"}] * 2, "ids": [["7"]] * 2}
)
TEXT, NUMBER = "convert the text: ", "convert the number: "


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("PATTERN A a [id = '7']", f"write 7 without quotes to make it a number, or {NUMBER}CAST(id AS STRING)"),
        ("PATTERN A a WHERE a.name IN (7)", f"write '7' in quotes to make it text, or {TEXT}CAST(a.name AS BIGINT)"),
        ("PATTERN SEQ(A a, B b) WHERE a.id = b.name", f"{TEXT}CAST(b.name AS BIGINT)"),
        ("PATTERN SEQ(A a, B b) WHERE a.name = b.user.id + 1", f"{TEXT}CAST(b.user.id AS BIGINT)"),
        ("PATTERN A a WHERE a.ids[0] > a.id", f"{TEXT}CAST(a.ids[0] AS BIGINT)"),
        ("PATTERN A a WHERE contains(a.ids, 7)", "write '7' in quotes to make it text"),
        ("PATTERN A a WHERE contains(a.ids, a.id)", f"{NUMBER}CAST(a.id AS STRING)"),
        ("TABLE t(x); FACT t('7'); PATTERN A a WHERE a.id IN t", f"{NUMBER}CAST(a.id AS STRING)"),
        ("TABLE t(x); FACT t(7); PATTERN A a WHERE a.name IN t", f"{TEXT}CAST(a.name AS BIGINT)"),
        ("STREAM S FROM events WHERE name = 7.5; PATTERN S s", f"or {TEXT}CAST(name AS DOUBLE)"),
        ("STREAM A(id, name); PATTERN A a WHERE a.`id` = a.name", f"{TEXT}CAST(a.name AS BIGINT)"),
        ("STREAM A(id, name); RULE r(i) <- A(i, n), i = n", f"{TEXT}CAST(... AS BIGINT)"),
        ("RULE r(i) <- a: A(id=i), a.id = a.name", f"{TEXT}CAST(a.name AS BIGINT)"),
        ("PATTERN A a WHERE user.id = '7'", "if `user` is a column, write `a.user.id`"),
    ],
)
def test_comparisons_of_numbers_and_texts_say_how_to_convert(program: str, hint: str) -> None:
    with pytest.raises(QueryError) as raised:
        ensue.run(LOG, program, time="t", type="type")
    assert raised.value.problems[0].hint.endswith(hint)


def test_numbers_and_texts_compare_once_they_are_converted() -> None:
    for condition in ("CAST(a.id AS STRING) = b.name", "a.id = CAST(b.name AS BIGINT) - 1", "a.user.id = '7'"):
        found = ensue.detect(LOG, f"PATTERN SEQ(A a, B b) WHERE {condition} RETURN a.t AS t", time="t", type="type")
        assert found.num_rows == (condition[0] == "a")
