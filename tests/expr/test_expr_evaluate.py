"""Corners of evaluation that random expressions rarely meet: overflow, units, zones, LIKE, empty input."""

from __future__ import annotations

import math
import operator as op
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue import QueryError
from inside import (
    Between,
    Binary,
    Case,
    Duration,
    Expr,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    Problem,
    Span,
    Timestamp,
    Unary,
    condition_mask,
    expression_type,
)
from inside import evaluate_expression as evaluate

MAX, MIN = 2**63 - 1, -(2**63)
X, Y = Field("a", "x"), Field("b", "y")
SCALE = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
COMPARE = {"=": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}


def run(expr: Expr, x: Any = None, y: Any = None) -> Any:
    columns = {"x": x, "y": y}
    length = len(x) if x is not None else 2
    problems: list[Problem] = []
    announced = expression_type(expr, lambda field: columns[field.name].type, problems)
    assert problems == []
    value = evaluate(expr, lambda field: columns[field.name], length)
    value.validate(full=True)
    assert value.type == announced
    assert len(value) == length
    return value


def overflow_of(expr: Expr, x: Any = None, y: Any = None) -> Problem:
    with pytest.raises(QueryError) as raised:
        run(expr, x, y)
    assert raised.value.code == "overflow"
    return raised.value.problems[0]


# --- integers


@pytest.mark.parametrize(
    ("operator", "left", "right"),
    [("+", MAX, 1), ("-", MIN, 1), ("*", MAX, 2), ("*", MIN, -1), ("+", MIN, MIN)],
)
def test_overflow_stands_at_its_operator(operator: str, left: int, right: int) -> None:
    expr = Binary(operator, X, Y, Span(3, 8))
    problem = overflow_of(expr, pa.array([0, left]), pa.array([0, right]))
    assert problem.message == f"the result of `{operator}` does not fit in a 64-bit integer"
    assert problem.span == Span(3, 8)
    assert overflow_of(Binary(operator, Literal(left), Literal(right)))


def test_a_null_row_does_not_overflow() -> None:
    data = pa.array([MAX, 1]).buffers()[1]
    masked = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), data])
    assert run(Binary("+", X, Literal(1)), masked).to_pylist() == [None, 2]


def test_the_smallest_integer() -> None:
    overflow_of(Unary("-", X), pa.array([MIN]))
    assert run(Unary("-", Literal(MAX + 1)), pa.nulls(1)).to_pylist() == [MIN]
    assert run(Binary("%", X, Literal(-1)), pa.array([MIN])).to_pylist() == [0]
    assert run(Binary("/", X, Literal(-1)), pa.array([MIN])).to_pylist() == [2.0**63]


def test_case_guards_against_overflow() -> None:
    small = Binary("<", X, Literal(1000))
    expr = Case(((small, Binary("*", X, X)),), Literal(-1))
    assert run(expr, pa.array([3, MAX, None])).to_pylist() == [9, -1, -1]
    never = Case(((Literal(False), Binary("+", Literal(MAX), Literal(1))),))
    assert run(never).to_pylist() == [None, None]
    nested = Case(((IsNull(X), Literal(0)), (Binary(">", Binary("*", X, X), Literal(4)), Literal(1))), Literal(2))
    overflow_of(nested, pa.array([MAX]))
    later = Case(
        ((Binary(">", X, Literal(9)), Literal("big")), (Binary(">", Binary("*", X, X), Literal(4)), Literal("mid")))
    )
    assert run(later, pa.array([MAX, 3, 1])).to_pylist() == ["big", "mid", None]


def test_division_by_zero_is_null() -> None:
    for zero in (Literal(0), Literal(0.0), Literal(-0.0)):
        for operator in ("/", "%"):
            assert run(Binary(operator, X, zero), pa.array([5, 0])).to_pylist() == [None, None]
            assert run(Binary(operator, Literal(5), zero)).to_pylist() == [None, None]


def test_nan_never_comes_out() -> None:
    infinite = pa.array([float("inf"), 1.0])
    assert run(Binary("-", X, X), infinite).to_pylist() == [None, 0.0]
    assert run(Binary("%", X, Literal(2.0)), infinite).to_pylist() == [None, 1.0]
    assert run(Binary("*", X, Literal(0)), infinite).to_pylist() == [None, 0.0]


def test_integers_and_floats_are_compared_exactly() -> None:
    whole = [2**53 + 1, 2**53, 5, -(2**63), 2**63 - 1, None]
    floats = [2.0**53, 2.5, 5.0, -(2.0**63), 2.0**63, 1e300, -math.inf, math.inf]
    for name, holds in COMPARE.items():
        for number in floats:
            for values in (whole, whole[2:3] * 3):
                wanted = [None if value is None else holds(value, number) for value in values]
                both = pa.array(values), pa.array([number] * len(values))
                assert run(Binary(name, X, Y), *both).to_pylist() == wanted, (name, number)
                mirrored = [None if value is None else holds(number, value) for value in values]
                assert run(Binary(name, Y, X), *both).to_pylist() == mirrored, (name, number)
    assert run(InList(X, (Literal(2**53), Literal(0.5))), pa.array([2**53 + 1])).to_pylist() == [False]
    assert run(InList(X, (Literal(2.0**53),)), pa.array([2**53 + 1, 2**53, None])).to_pylist() == [False, True, None]


# --- nulls and shapes


@pytest.mark.parametrize("length", [0, 1, 3])
def test_constants_become_arrays(length: int) -> None:
    for expr, wanted in ((Literal(1), 1), (Literal(None), None), (Duration(10**9), None), (Literal("ä"), "ä")):
        value = evaluate(expr, lambda field: pa.nulls(length), length)
        assert len(value) == length
        if not isinstance(expr, Duration):
            assert value.to_pylist() == [wanted] * length
    mask = condition_mask(Literal(None), lambda field: pa.nulls(length), length)
    assert mask.tolist() == [False] * length


@pytest.mark.parametrize("of", [pa.int64(), pa.float64(), pa.string(), pa.timestamp("s"), pa.duration("ns"), pa.null()])
def test_empty_and_all_null(of: Any) -> None:
    for column in (pa.array([], of), pa.nulls(3, of)):
        nothing = [None] * len(column)
        assert run(Binary("<", X, X), column).to_pylist() == nothing
        assert run(Binary("=", X, Literal(None)), column).to_pylist() == nothing
        assert run(InList(X, (X, Literal(None))), column).to_pylist() == nothing
        assert run(Between(X, X, X, negated=True), column).to_pylist() == nothing
        assert run(IsNull(X), column).to_pylist() == [True] * len(column)


def test_an_unknown_condition_does_not_hold() -> None:
    assert condition_mask(Binary("=", X, X), lambda field: pa.nulls(3, pa.int64()), 3).tolist() == [False] * 3


def test_null_in_lists() -> None:
    column = pa.array([1, 2, None])
    assert run(InList(X, (Literal(1), Literal(None))), column).to_pylist() == [True, None, None]
    assert run(InList(X, (Literal(1), Literal(None)), negated=True), column).to_pylist() == [False, None, None]
    assert run(InList(X, (Literal(-0.0),)), pa.array([0.0, -0.0])).to_pylist() == [True, True]
    assert run(InList(X, (Literal(0.0), Literal(2))), pa.array([-0.0, 2.0, None])).to_pylist() == [True, True, None]


def test_masks_of_slices() -> None:
    column = pa.array([True, False, None, True, True, False, None, True, False, True])[3:]
    mask = condition_mask(X, lambda field: column, 7)
    assert mask.tolist() == [True, True, False, False, True, False, True]


# --- text


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("a_b", ["a\nb", "aäb", "a😀b", "a.b"]),
        ("a%b", ["ab", "a\n\nb", "axxb"]),
        ("a.b", ["a.b"]),
        (r"a\%b", ["a%b"]),
        (r"a\_%", ["a_", "a_x"]),
        ("a\\\\%", ["a\\", "a\\x"]),
        ("", [""]),
        ("%", ["", "\n", "x"]),
        ("%%_", ["x", "xy\n"]),
        ("(a|b)+[c]^$", ["(a|b)+[c]^$"]),
        ("_(a|b)*%", ["x(a|b)*", "\n(a|b)*y"]),
        ("_\x00-\t{1}", ["x\x00-\t{1}"]),
        ("%ä%", ["ä", "xä\n"]),
        ("%\n", ["x\n", "\n"]),
    ],
)
def test_like(pattern: str, texts: list[str]) -> None:
    others = ["ba", "a%bc", "AB", "zz\nz0", "aa.c"]
    column = pa.array([*texts, *(text for text in others if pattern not in ("%", "%%_")), None])
    wanted = [True] * len(texts) + [False] * (len(column) - len(texts) - 1) + [None]
    assert run(Like(X, pattern), column).to_pylist() == wanted
    assert run(Like(X, pattern), column.cast(pa.large_string())).to_pylist() == wanted


def test_text_is_ordered_by_code_point() -> None:
    column = pa.array(["Z", "a", "ä", "😀", ""])
    assert run(Binary("<", X, Literal("a")), column).to_pylist() == [True, False, False, False, True]
    assert run(Binary(">", X, Literal("ä")), column).to_pylist() == [False, False, False, True, False]


def test_large_and_small_text_meet() -> None:
    large, small = pa.array(["a", "b"], pa.large_string()), pa.array(["a", "c"])
    assert run(Binary("=", X, Y), large, small).to_pylist() == [True, False]
    assert run(Binary("||", X, Y), large, small).to_pylist() == ["aa", "bc"]


# --- times

ticks = st.integers(MIN, MAX) | st.integers(-3, 3) | st.integers(-3, 3).map(lambda n: n * 10**9)
units = st.sampled_from(list(SCALE))
kinds = st.sampled_from(
    [
        (pa.duration, pa.duration),
        (pa.timestamp, pa.timestamp),
        (lambda unit: pa.timestamp(unit, "Asia/Tokyo"), pa.timestamp),
    ]
)


@given(kinds, ticks, units, st.none() | ticks, units, st.sampled_from(list(COMPARE)))
def test_times_of_any_unit_compare_exactly(
    makers: Any, left: int, left_unit: str, right: int | None, right_unit: str, operator: str
) -> None:
    x = pa.array([left, None], pa.int64()).cast(makers[0](left_unit))
    y = pa.array([right, 0], pa.int64()).cast(makers[1](right_unit))
    wanted = None
    if right is not None:
        wanted = COMPARE[operator](left * SCALE[left_unit], right * SCALE[right_unit])
    assert run(Binary(operator, X, Y), x, y).to_pylist() == [wanted, None]


@given(ticks, units, st.integers(-(2**70), 2**70), st.sampled_from(list(COMPARE)), st.booleans())
def test_literals_of_any_size_compare_exactly(
    left: int, unit: str, nanoseconds: int, operator: str, zoned: bool
) -> None:
    whole = nanoseconds // 10**9 * 10**9
    x = pa.array([left], pa.int64()).cast(pa.timestamp(unit))
    value = run(Binary(operator, X, Timestamp(whole, zoned)), x)
    assert value.to_pylist() == [COMPARE[operator](left * SCALE[unit], whole)]


@given(ticks, units, ticks, units)
def test_times_subtract_exactly_or_say_so(left: int, left_unit: Any, right: int, right_unit: Any) -> None:
    x = pa.array([left], pa.int64()).cast(pa.timestamp(left_unit, "UTC"))
    y = pa.array([right], pa.int64()).cast(pa.timestamp(right_unit))
    unit = min(left_unit, right_unit, key=SCALE.__getitem__)
    sides = [left * SCALE[left_unit] // SCALE[unit], right * SCALE[right_unit] // SCALE[unit]]
    wanted = sides[0] - sides[1]
    if all(MIN <= number <= MAX for number in (*sides, wanted)):
        value = run(Binary("-", X, Y), x, y)
        assert value.type == pa.duration(unit)
        assert value.cast(pa.int64()).to_pylist() == [wanted]
    else:
        overflow_of(Binary("-", X, Y), x, y)


def test_a_year_beyond_nanoseconds() -> None:
    far = pa.array([32503680000], pa.timestamp("s"))
    nanoseconds = pa.array([10**18], pa.timestamp("ns"))
    assert run(Binary(">", X, Y), far, nanoseconds).to_pylist() == [True]
    problem = overflow_of(Binary("-", X, Y, Span(0, 9)), far, nanoseconds)
    assert problem.message == "a timestamp in `-` does not fit in the finer time unit of the two sides"
    assert problem.span == Span(0, 9)
    since_1970 = run(Binary("-", X, Timestamp(0)), far)
    assert since_1970.type == pa.duration("s")


def test_a_literal_keeps_the_unit_of_the_column() -> None:
    column = pa.array([0, None], pa.timestamp("s", "Europe/Berlin"))
    later = run(Binary("+", X, Duration(3600 * 10**9)), column)
    assert later.type == column.type
    assert later.cast(pa.int64()).to_pylist() == [3600, None]
    finer = run(Binary("-", Duration(1), X), pa.array([1], pa.duration("s")))
    assert finer.type == pa.duration("ns")
    assert finer.cast(pa.int64()).to_pylist() == [1 - 10**9]


@pytest.mark.parametrize(
    ("expr", "of", "wanted"),
    [
        (Binary("*", X, Literal(3)), pa.duration("s"), 6),
        (Binary("*", Literal(3), X), pa.duration("s"), 6),
        (Binary("*", X, Literal(0.25)), pa.duration("us"), 500_000),
        (Binary("/", X, Literal(3)), pa.duration("us"), 666_667),
        (Binary("/", X, Literal(0)), pa.duration("us"), None),
        (Binary("+", X, Duration(10**6)), pa.duration("ms"), 2001),
        (Unary("-", X), pa.duration("s"), -2),
        (Binary("/", X, Duration(500 * 10**6)), pa.float64(), 4.0),
        (Binary("/", X, Duration(0)), pa.float64(), None),
    ],
)
def test_durations(expr: Expr, of: pa.DataType, wanted: Any) -> None:
    value = run(expr, pa.array([2, None], pa.duration("s")))
    assert value.type == of
    plain = value if pa.types.is_floating(of) else value.cast(pa.int64())
    assert plain.to_pylist() == [wanted, None]


def test_durations_overflow() -> None:
    column = pa.array([MAX], pa.duration("us"))
    for expr in (Binary("*", X, Literal(2)), Binary("*", X, Literal(2.0)), Binary("+", X, X)):
        overflow_of(expr, column)
    overflow_of(Unary("-", X), pa.array([MIN], pa.duration("us")))


def test_an_unchecked_expression_is_refused() -> None:
    with pytest.raises(TypeError, match="check the expression first"):
        evaluate(Binary("+", Literal("a"), Literal(1)), lambda field: pa.nulls(1), 1)
