"""Aggregates over lists: each is what plain Python says, list by list."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue import QueryError, SchemaError
from inside import (
    AGGREGATES,
    Aggregate,
    Binary,
    Call,
    Case,
    Elements,
    Expr,
    Field,
    Gather,
    Literal,
    Problem,
    condition_mask,
    explicit_lists,
    expression_type,
    parse_expression,
    reductions,
    substitute_lists,
)
from inside import evaluate_expression as evaluate

L = Field("t", "l")
NAN = float("nan")
MOMENT = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)


def apply(name: str, lists: Any) -> Any:
    """The aggregate of each list, which has the type that the checker announces."""
    expr = Call(name, (L,))
    problems: list[Problem] = []
    announced = expression_type(expr, lambda field: lists.type, problems)
    assert problems == []
    value = evaluate(expr, lambda field: lists, len(lists))
    assert value.type == announced
    value.validate(full=True)
    return value.to_pylist()


# --- plain Python

Values = list[Any]


def known(values: Values) -> Values:
    return [value for value in values if value is not None]


def of_known(aggregate: Callable[[Values], Any], fewest: int = 1) -> Callable[[Values], Any]:
    return lambda values: aggregate(known(values)) if len(known(values)) >= fewest else None


def float_sum(values: Values) -> float | None:
    total = 0.0
    for value in values:
        total += value
    return None if math.isnan(total) else total


def average(values: Values) -> float | None:
    total = float_sum(values)
    return None if total is None else total / len(values)


def deviation(values: Values) -> float | None:
    return statistics.stdev(values) if all(map(math.isfinite, values)) else None


REFERENCE: dict[str, Callable[[Values], Any]] = {
    "count": lambda values: len(known(values)),
    "sum": of_known(lambda values: sum(values) if isinstance(values[0], int) else float_sum(values)),
    "avg": of_known(average),
    "min": of_known(min),
    "max": of_known(max),
    "stddev": of_known(deviation, fewest=2),
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "list": lambda values: values,
}


def nan_is_null(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def expected(name: str, rows: list[Values | None]) -> list[Any]:
    return [None if row is None else REFERENCE[name]([nan_is_null(value) for value in row]) for row in rows]


# --- lists of all kinds, in all layouts

INTEGERS = st.integers(-(2**40), 2**40)
FLOATS = st.floats(-1e9, 1e9) | st.sampled_from([NAN, math.inf, -math.inf, 0.0, -0.0])
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any], tuple[str, ...]]] = [
    (pa.int64(), INTEGERS, tuple(REFERENCE)),
    (pa.float64(), FLOATS, tuple(REFERENCE)),
    (pa.string(), st.text(max_size=3), ("count", "min", "max", "first", "last", "list")),
    (pa.bool_(), st.booleans(), ("count", "min", "max", "first", "last", "list")),
    (
        pa.timestamp("us", "UTC"),
        st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)),
        ("count", "min", "max", "first", "last", "list"),
    ),
    (
        pa.duration("us"),
        st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000)),
        ("count", "min", "max", "first", "last", "list"),
    ),
]


@st.composite
def columns(draw: st.DrawFn, element: pa.DataType, values: st.SearchStrategy[Any]) -> tuple[Any, list[Values | None]]:
    """A column of lists, perhaps a slice of a longer one, perhaps with values below its null lists; and its rows."""
    lists = st.lists(st.none() | values, max_size=5)
    layout = draw(st.sampled_from([pa.list_, pa.large_list]))
    rows = draw(st.lists(lists, max_size=8))
    missing = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    begin, end = sorted(draw(st.tuples(*[st.integers(0, len(rows))] * 2)))
    filled: Any = pa.array(rows, layout(element))
    column = type(filled).from_arrays(filled.offsets, filled.values, mask=pa.array(missing, pa.bool_()))
    seen: list[Values | None] = [None if gone else row for row, gone in zip(rows, missing, strict=True)]
    return column.slice(begin, end - begin), seen[begin:end]


@pytest.mark.parametrize(("element", "values", "names"), KINDS, ids=[str(kind[0]) for kind in KINDS])
@given(data=st.data())
def test_each_aggregate_is_that_of_plain_python(
    element: pa.DataType, values: st.SearchStrategy[Any], names: tuple[str, ...], data: st.DataObject
) -> None:
    column, rows = data.draw(columns(element, values))
    for name in names:
        found, wanted = apply(name, column), expected(name, rows)
        if name in ("avg", "stddev") or (name == "sum" and pa.types.is_floating(element)):
            assert all(map(nearly_equal, found, wanted)), (name, found, wanted)
        else:
            assert found == wanted, name


def nearly_equal(found: float | None, wanted: float | None) -> bool:
    """Equal up to what is lost where the greatest numbers of the strategies cancel each other out."""
    if found is None or wanted is None:
        return found is wanted
    return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-3)


@given(st.lists(st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=6))
def test_a_sum_is_exact_or_an_overflow(rows: list[Values | None]) -> None:
    column = pa.array(rows, pa.list_(pa.int64()))
    wanted = expected("sum", rows)
    if all(value is None or -(2**63) <= value < 2**63 for value in wanted):
        assert apply("sum", column) == wanted
        return
    with pytest.raises(QueryError) as raised:
        apply("sum", column)
    assert raised.value.code == "overflow"
    assert raised.value.problems[0].message == "the result of `sum` does not fit in a 64-bit integer"


def test_case_guards_a_sum_against_overflow() -> None:
    column = pa.array([[2**62, 2**62], [1, 2]])
    guarded = Case(((Binary("<", Call("max", (L,)), Literal(10)), Call("sum", (L,))),))
    assert evaluate(guarded, lambda field: column, 2).to_pylist() == [None, 3]


# --- corners


@pytest.mark.parametrize("aggregate", AGGREGATES.values(), ids=lambda aggregate: aggregate.name)
def test_the_example_holds(aggregate: Aggregate) -> None:
    column = pa.array([[20, 22, 27]])
    truths = pa.array([[True] * 3])
    expr = explicit_lists(parse_expression(aggregate.example), {"t": "t"}, [])
    expr = substitute_lists(expr, lambda part: Field("t", "" if part.element == Literal(True) else "temp"))
    assert condition_mask(expr, lambda field: column if field.name else truths, 1).tolist() == [True]


@pytest.mark.parametrize("name", REFERENCE)
def test_of_no_list_there_is_nothing(name: str) -> None:
    expr = Call(name, (Literal(None),))
    value = evaluate(expr, lambda field: pa.nulls(2), 2)
    assert value.type == expression_type(expr, lambda field: None, [])
    assert value.null_count == 2
    assert apply(name, pa.nulls(2)) == [None, None]
    assert apply(name, pa.array([], pa.list_(pa.int64()))) == []


@pytest.mark.parametrize("name", REFERENCE)
def test_elements_that_have_no_type_are_nulls(name: str) -> None:
    found = apply(name, pa.array([[None, None], [], None], pa.list_(pa.null())))
    assert found == {"count": [0, 0, None], "list": [[None, None], [], None]}.get(name, [None] * 3)


def test_durations_add_up_and_have_a_mean() -> None:
    column = pa.array([[1, None, 2], [], None, [-4]], pa.list_(pa.duration("s")))
    second = dt.timedelta(seconds=1)
    assert apply("sum", column) == [3 * second, None, None, -4 * second]
    assert apply("avg", column) == [1.5 * second, None, None, -4 * second]
    with pytest.raises(QueryError) as raised:
        apply("sum", pa.array([[2**62, 2**62]], pa.list_(pa.duration("s"))))
    assert raised.value.code == "overflow"


def test_an_average_of_integers_does_not_overflow() -> None:
    assert apply("avg", pa.array([[2**62] * 4])) == [2.0**62]


def test_infinities_of_both_signs_have_no_sum() -> None:
    column = pa.array([[math.inf, -math.inf], [math.inf, 1.0], [1e308, 1e308]])
    assert apply("sum", column) == [None, math.inf, math.inf]
    assert apply("stddev", column)[:2] == [None, None]


@pytest.mark.parametrize(
    ("element", "wanted"),
    [
        (pa.int8(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.large_string(), pa.string()),
        (pa.date32(), pa.timestamp("s")),
    ],
    ids=str,
)
def test_elements_are_read_like_columns(element: pa.DataType, wanted: pa.DataType) -> None:
    one: Any = {pa.large_string(): "a", pa.date32(): dt.date(2024, 2, 29)}.get(element, 1)
    column = pa.array([[one, None]], pa.list_(element))
    for name in ("max", "first"):
        assert apply(name, column) == pa.array([one], element).cast(wanted).to_pylist()
    assert apply("list", column) == pa.array([[one, None]], pa.list_(element)).cast(pa.list_(wanted)).to_pylist()


def test_a_column_of_lists_of_any_layout() -> None:
    rows = [[1, 2], None, [3, None]]
    for layout in (pa.list_(pa.int64(), 2), pa.list_view(pa.int64()), pa.large_list_view(pa.int64())):
        column = pa.array([[9, 9], *rows], layout)
        assert apply("sum", column) == [18, 3, None, 3]
        assert apply("count", column[1:]) == [2, None, 1]
        assert apply("last", column[1:]) == [2, None, None]


def test_lists_of_lists_are_counted_and_picked_from() -> None:
    column = pa.array([[[1], [2, 3]], []])
    assert apply("count", column) == [2, 0]
    assert apply("last", column) == [[2, 3], None]


def test_an_element_beyond_64_bits_names_its_column() -> None:
    with pytest.raises(SchemaError) as raised:
        evaluate(Call("sum", (L,)), lambda field: pa.array([[2**64 - 1]], pa.list_(pa.uint64())), 1)
    assert str(raised.value).startswith("error[integer-range]: column `l` contains 18446744073709551615")


# --- lists of expressions


def gather(*columns: Any) -> Any:
    by_name = {str(number): column for number, column in enumerate(columns)}
    expr = Gather(tuple(Field("t", name) for name in by_name))
    announced = expression_type(expr, lambda field: by_name[field.name].type, [])
    value = evaluate(expr, lambda field: by_name[field.name], len(columns[0]))
    assert value.type == announced
    value.validate(full=True)
    return value.to_pylist()


def test_gather_makes_a_list_in_each_row() -> None:
    assert gather(pa.array([1, 2, None]), pa.array([4, None, 6])) == [[1, 4], [2, None], [None, 6]]
    assert gather(pa.array([1, 2])[1:], pa.array([0.5])) == [[2.0, 0.5]]
    assert gather(pa.array(["a"])) == [["a"]]
    assert gather(pa.array([], pa.string()), pa.array([], pa.string())) == []
    assert gather(pa.array([[1], None]), pa.array([[], [2]], pa.list_(pa.int64()))) == [[[1], []], [None, [2]]]
    assert gather(pa.nulls(1), pa.array([MOMENT])) == [[None, MOMENT]]


def test_gathered_constants_stand_in_every_row() -> None:
    expr = Call("count", (Gather((Literal(True), Literal(True), Literal(None))),))
    assert evaluate(expr, lambda field: pa.nulls(2), 2).to_pylist() == [2, 2]


def test_more_elements_than_small_offsets_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "_LARGEST_OFFSET", 3)
    column = pa.array([1, 2])
    expr = Gather((Field("t", "x"), Field("t", "x")))
    large = evaluate(expr, lambda field: column, 2)
    assert large.type == pa.large_list(pa.int64())
    assert large.to_pylist() == [[1, 1], [2, 2]]
    again = evaluate(Call("list", (L,)), lambda field: large, 2)
    assert (again.type, again.to_pylist()) == (large.type, large.to_pylist())


@pytest.mark.parametrize("expr", [Elements(L, "t"), Call("sum", (Elements(L, "t"),))], ids=["alone", "aggregated"])
def test_a_list_over_a_variable_has_no_value_yet(expr: Expr) -> None:
    with pytest.raises(AssertionError, match="`t`"):
        evaluate(expr, lambda field: pa.array([1]), 1)


def test_a_gather_of_nothing_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="no type"):
        Gather(())


# --- types


FIELDS: dict[str, pa.DataType] = {
    "i": pa.int32(),
    "x": pa.float64(),
    "s": pa.string(),
    "p": pa.bool_(),
    "d": pa.duration("s"),
    "t": pa.timestamp("us"),
    "li": pa.list_(pa.int16()),
    "lx": pa.large_list(pa.float64()),
    "ls": pa.list_(pa.string()),
    "ld": pa.list_(pa.duration("s")),
    "lt": pa.list_(pa.timestamp("us"), 3),
    "ll": pa.list_(pa.list_(pa.int64())),
}


def check(text: str) -> tuple[pa.DataType, list[Problem]]:
    """The type of an expression where `t` is repeated and `a` is not."""
    problems: list[Problem] = []
    expr = explicit_lists(parse_expression(text), {"t": "t"}, problems)
    return expression_type(expr, lambda field: FIELDS.get(field.name), problems), problems


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("count(t)", pa.int64()),
        ("count(t.s)", pa.int64()),
        ("count(a.ll)", pa.int64()),
        ("sum(a.li)", pa.int64()),
        ("sum(t.i * 1.5)", pa.float64()),
        ("sum(t.d)", pa.duration("s")),
        ("avg(a.li)", pa.float64()),
        ("avg(t.d)", pa.duration("us")),
        ("stddev(a.lx)", pa.float64()),
        ("min(t.s)", pa.string()),
        ("max(a.lt)", pa.timestamp("us")),
        ("max(t.p)", pa.bool_()),
        ("last(t.t)", pa.timestamp("us")),
        ("first(a.ll)", pa.list_(pa.int64())),
        ("list(a.li)", pa.list_(pa.int64())),
        ("list(t.x > 1)", pa.list_(pa.bool_())),
        ("t.x", pa.list_(pa.float64())),
        ("t.x IS NULL", pa.bool_()),
        ("avg(t.x) > a.x AND count(t) >= 3", pa.bool_()),
        ("max(t.t) - min(t.t) < 5 minutes", pa.bool_()),
    ],
)
def test_types(text: str, wanted: pa.DataType) -> None:
    found, problems = check(text)
    assert problems == []
    assert found == wanted


REPEAT = "repeat the variable, for example `T t{2,5}` or `COLLECT T t`"
TAKE = "use an aggregate of the list: count, sum, avg, min, max, stddev, first, last, flatten, list, collect_set"


@pytest.mark.parametrize(
    ("text", "code", "message", "hint"),
    [
        (
            "min(a.x)",
            "not-a-list",
            "`min` expects a list, found a number",
            f"{REPEAT}; to choose among values of one match, use `least(x, y)`",
        ),
        (
            "max(1)",
            "not-a-list",
            "`max` expects a list, found an integer",
            f"{REPEAT}; to choose among values of one match, use `greatest(x, y)`",
        ),
        ("count(a.s)", "not-a-list", "`count` expects a list, found text", REPEAT),
        (
            "max(a.x, a.i)",
            "function-arguments",
            "`max` takes 1 argument (a list), found 2",
            "`greatest` chooses among its arguments",
        ),
        (
            "sum(t.x, t.i)",
            "function-arguments",
            "`sum` takes 1 argument (a list), found 2",
            "for example sum(t.temp) = 69",
        ),
        ("count()", "function-arguments", "`count` takes 1 argument (a list), found 0", "for example count(t) = 3"),
        (
            "sum(t.s)",
            "function-arguments",
            "`sum` is not defined for a list of text",
            "convert it: CAST(t.s AS DOUBLE)",
        ),
        (
            "stddev(a.ld)",
            "function-arguments",
            "`stddev` is not defined for a list of durations",
            "for example round(stddev(t.temp), 2) = 3.61",
        ),
        (
            "avg(t.lx)",
            "function-arguments",
            "`avg` is not defined for a list of lists of numbers",
            "for example avg(t.temp) = 23",
        ),
        ("t.x > 5", "type-clash", "lists cannot be compared", TAKE),
        ("avg(t.x) < t.x", "type-clash", "lists cannot be compared", TAKE),
        ("list(t.x) = list(t.x)", "type-clash", "lists cannot be compared", TAKE),
        ("t.x IN (1, 2)", "type-clash", "lists cannot be compared", TAKE),
        ("t.x * 2 > 1", "type-clash", "`*` is not defined for list of numbers and integer", TAKE),
        ("coalesce(t.x, 1)", "function-arguments", None, None),
        ("CASE WHEN a.p THEN t.x END", "type-clash", "the branches of CASE cannot be of type list of numbers", None),
        ("NOT t.p", "type-clash", "NOT expects a condition, found a list of booleans", None),
        (
            "PREV(t.x)",
            "misplaced-prev",
            "PREV is only allowed in a WHERE condition on a repeated variable",
            None,
        ),
        (
            "averge(t.x)",
            "unknown-function",
            "unknown function `averge`",
            None,
        ),
        ("mean(t.x)", "unknown-function", "unknown function `mean`", "did you mean `avg`?"),
    ],
)
def test_one_mistake_is_one_problem(text: str, code: str, message: str | None, hint: str | None) -> None:
    _, problems = check(text)
    assert len({problem.message for problem in problems}) == 1
    problem = problems[0]
    assert problem.code == code
    assert message in (None, problem.message)
    assert hint in (None, problem.hint)
    assert problem.span is not None


def test_a_gather_is_of_one_kind() -> None:
    problems: list[Problem] = []
    expression_type(Gather((Field("a", "x"), Field("b", "s"))), lambda field: FIELDS[field.name], problems)
    assert [problem.message for problem in problems] == ["the elements of a list have different types: number and text"]
