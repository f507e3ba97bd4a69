"""The functions: the examples of the table hold, and the corners are where SQL has them."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from ensue import QueryError, SchemaError
from inside import (
    FUNCTIONS,
    Call,
    Expr,
    Field,
    Function,
    Literal,
    Problem,
    condition_mask,
    expression_type,
    parse_expression,
)
from inside import evaluate_expression as evaluate

X = Field("a", "x")


def apply(name: str, column: Any, *constants: Any) -> Any:
    arguments: tuple[Expr, ...] = (X, *map(Literal, constants))
    if name == "date_trunc":
        arguments = (Literal(constants[0]), X)
    return evaluate(Call(name, arguments), lambda field: column, len(column))


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda function: function.name)
def test_the_example_holds(function: Function) -> None:
    expr = parse_expression(function.example)
    problems: list[Problem] = []
    assert expression_type(expr, lambda field: None, problems) == pa.bool_()
    assert problems == []
    assert condition_mask(expr, lambda field: pa.nulls(1), 1).tolist() == [True]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda function: function.name)
def test_of_nulls_is_null(function: Function) -> None:
    expr = Call(function.name, tuple(Literal(None) for _ in range(function.fewest)))
    problems: list[Problem] = []
    announced = expression_type(expr, lambda field: None, problems)
    value = evaluate(expr, lambda field: pa.nulls(2), 2)
    assert problems == []
    assert value.type == announced
    assert value.null_count == 2


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        FUNCTIONS["abs"] = FUNCTIONS["sign"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("value", "digits", "wanted"),
    [
        (2.5, (), 3.0),
        (-2.5, (), -3.0),
        (0.49999999999999994, (), 0.0),
        (2.675, (2,), 2.68),
        (1234.5, (-2,), 1200.0),
        (1e300, (10,), 1e300),
        (0.1, (400,), 0.1),
        (123.0, (-400,), 0.0),
        (float("inf"), (2,), float("inf")),
        (15, (-1,), 20),
        (-15, (-1,), -20),
        (15, (3,), 15),
        (4 * 10**18, (-19,), 0),
        (15, (-30,), 0),
        (2**63 - 1, (-2,), 9223372036854775800),
    ],
)
def test_round(value: Any, digits: tuple[int, ...], wanted: Any) -> None:
    column = pa.array([value, None])
    rounded = apply("round", column, *digits)
    assert rounded.type == column.type
    assert rounded.to_pylist() == [wanted, None]


@pytest.mark.parametrize(("value", "digits"), [(2**63 - 1, -1), (2**63 - 1, -19), (-(2**63), -19)])
def test_round_beyond_64_bits(value: int, digits: int) -> None:
    with pytest.raises(QueryError) as raised:
        apply("round", pa.array([value]), digits)
    assert raised.value.code == "overflow"


@pytest.mark.parametrize(
    ("start", "count", "wanted"),
    [
        (1, None, "abcde"),
        (0, 2, "ab"),
        (2, 3, "bcd"),
        (-2, None, "de"),
        (-3, 2, "cd"),
        (-3, 3, "cde"),
        (-3, 9, "cde"),
        (-7, 3, "a"),
        (-9, 2, ""),
        (9, 2, ""),
        (2, 0, ""),
        (2, -1, ""),
        (2, 2**63 - 1, "bcde"),
    ],
)
def test_substr(start: int, count: int | None, wanted: str) -> None:
    constants = (start,) if count is None else (start, count)
    assert apply("substr", pa.array(["abcde", None]), *constants).to_pylist() == [wanted, None]


def test_text_counts_characters() -> None:
    column = pa.array(["ä😀b", "", None])
    assert apply("length", column).to_pylist() == [3, 0, None]
    assert apply("substr", column, 2, 1).to_pylist() == ["😀", "", None]
    assert apply("replace", column, "", "x").to_pylist() == ["ä😀b", "", None]
    assert apply("trim", pa.array([" \ta  "])).to_pylist() == ["\ta"]


@pytest.mark.parametrize(
    "name", ["sqrt", "ln", "floor", "ceil", "abs", "exp", "sign", "round", "sin", "cos", "tan", "asin", "acos", "atan"]
)
def test_no_answer_is_null(name: str) -> None:
    value = apply(name, pa.array([-1.0, 0.0, None, float("inf")])).to_pylist()
    assert value[2] is None
    assert not any(number != number for number in value)
    if name in ("sqrt", "ln"):
        assert value[0] is None


def test_logarithm_of_zero_is_null() -> None:
    assert apply("ln", pa.array([0])).to_pylist() == [None]


def test_large_text_stays_large() -> None:
    column = pa.array(["Ab", None], pa.large_string())
    for name in ("lower", "upper", "trim", "concat", "coalesce", "least"):
        value = evaluate(Call(name, (X, X) if name in ("concat", "coalesce", "least") else (X,)), lambda _: column, 2)
        assert value.type == pa.large_string()
    joined = evaluate(Call("concat", (X, Literal("c"))), lambda _: column, 2)
    assert joined.to_pylist() == ["Abc", None]


# --- time

BERLIN = ZoneInfo("Europe/Berlin")
# The clocks went back at 03:00 summer time: 02:30 came twice.
FIRST = dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=0)
SECOND = dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)
BEFORE_GAP = dt.datetime(2024, 3, 31, 1, 59, 59, tzinfo=BERLIN)
AFTER_GAP = dt.datetime(2024, 3, 31, 3, 0, 1, tzinfo=BERLIN)


def berlin(*times: dt.datetime, unit: Any = "us") -> Any:
    return pa.array([time.astimezone(dt.UTC) for time in times], pa.timestamp(unit, "Europe/Berlin"))


def test_parts_are_those_of_the_zone() -> None:
    column = berlin(FIRST, SECOND, BEFORE_GAP, AFTER_GAP)
    assert apply("hour", column).to_pylist() == [2, 2, 1, 3]
    assert apply("second", column).to_pylist() == [0, 0, 59, 1]
    assert apply("dayofweek", column).to_pylist() == [1, 1, 1, 1]
    assert apply("weekday", column).to_pylist() == [6, 6, 6, 6]
    in_utc = column.cast(pa.timestamp("us", "UTC"))
    assert apply("hour", in_utc).to_pylist() == [0, 1, 0, 1]
    assert apply("dayofyear", in_utc).to_pylist() == [301, 301, 91, 91]


def test_truncation_across_a_change_of_clocks() -> None:
    column = berlin(FIRST, SECOND, AFTER_GAP)
    hours = apply("date_trunc", column, "hour")
    assert hours.type == column.type
    instants = [time.astimezone(dt.UTC).strftime("%d %H:%M") for time in hours.to_pylist()]
    assert instants == ["27 00:00", "27 01:00", "31 01:00"]
    days = apply("date_trunc", column, "DAY").to_pylist()
    assert [time.strftime("%d %H:%M %z") for time in days] == ["27 00:00 +0200", "27 00:00 +0200", "31 00:00 +0100"]


def test_a_midnight_that_was_skipped_becomes_the_first_moment_of_the_day() -> None:
    noon = dt.datetime(2018, 11, 4, 12, tzinfo=ZoneInfo("America/Sao_Paulo"))
    column = pa.array([noon.astimezone(dt.UTC)], pa.timestamp("s", "America/Sao_Paulo"))
    assert apply("date_trunc", column, "day").to_pylist()[0].strftime("%d %H:%M") == "04 01:00"


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [
        ("year", dt.datetime(1969, 1, 1)),
        ("quarter", dt.datetime(1969, 10, 1)),
        ("month", dt.datetime(1969, 12, 1)),
        ("week", dt.datetime(1969, 12, 29)),
        ("day", dt.datetime(1969, 12, 31)),
        ("hour", dt.datetime(1969, 12, 31, 23)),
        ("minute", dt.datetime(1969, 12, 31, 23, 59)),
        ("second", dt.datetime(1969, 12, 31, 23, 59, 58)),
    ],
)
def test_truncation_goes_down_before_1970_too(unit: str, wanted: dt.datetime) -> None:
    time = dt.datetime(1969, 12, 31, 23, 59, 58, 500000)
    assert apply("date_trunc", pa.array([time, None]), unit).to_pylist() == [wanted, None]


def test_seconds_and_epoch() -> None:
    assert apply("seconds", pa.array([1500, None], pa.duration("ms"))).to_pylist() == [1.5, None]
    assert apply("epoch", pa.array([-1, 10**9], pa.timestamp("ns", "Asia/Tokyo"))).to_pylist() == [-1e-9, 1.0]


def test_the_extreme_of_times_with_zones() -> None:
    columns: dict[str, Any] = {
        "x": pa.array([5, None], pa.timestamp("s", "Asia/Tokyo")),
        "y": pa.array([4999, 7], pa.timestamp("ms")),
    }
    least = evaluate(Call("least", (X, Field("a", "y"))), lambda field: columns[field.name], 2)
    assert least.type == pa.timestamp("ms", "Asia/Tokyo")
    assert least.cast(pa.int64()).to_pylist() == [4999, 7]


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(SchemaError, match="unknown time zone `Mars/Olympus`"):
        apply("hour", pa.array([0], pa.timestamp("s", "Mars/Olympus")))
