"""Functions of the user: how they are defined, called and refused. `tests/rules` compares them with the oracle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ensue
from ensue import QueryError, StateError
from own_functions import FUNCTIONS, marked, near, twice

EVENTS = pa.table({"t": [1, 2, 3, 4], "type": ["A", "B", "A", "B"], "x": [3, 1, None, 5], "n": ["a", "b", None, "c"]})
READING = {"time": "t", "type": "type"}


def found(text: str, *functions: Any, events: pa.Table = EVENTS) -> list[dict[str, Any]]:
    return ensue.detect(events, ensue.parse(text, functions=functions or FUNCTIONS), **READING).to_pylist()


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(QueryError) as caught:
        call()
    return str(caught.value)


INT = pa.int64()


def defined(call: Callable[..., Any], takes: Any = INT, returns: Any = INT) -> Any:
    return ensue.function(takes=[takes], returns=returns, name="f")(call)


# --- what they can be used in


def test_in_conditions_and_results() -> None:
    text = "PATTERN SEQ(A a, B b) WHERE near(a.x, Twice(b.x)) RETURN twice(a.x) AS double, marked(b.n) AS n"
    assert found(text) == [{"double": 6, "n": None}]


def test_in_predicates_aggregates_and_absences() -> None:
    events = pa.table({"t": [1, 2, 3, 4], "type": ["A", "A", "B", "C"], "x": [3, 4, 8, 0]})
    text = "PATTERN SEQ(A a [twice(x) > 5]{1,2}, NOT B b [near(x, 5)], C c) WITHIN 9 RETURN sum(twice(a.x)) AS total"
    totals = sorted(row["total"] for row in found(text, events=events))
    assert totals == [6, 8, 14]


def test_in_streams_of_rows_and_partitions() -> None:
    log = pa.table({"t": [1, 2, 3], "v": [1, 7, 2], "u": [4, 4, 4]})
    text = "STREAM Big FROM log WHERE near(v, 1) RETURN twice(u) AS k; PATTERN SEQ(Big a, Big b) PARTITION BY k"
    program = ensue.parse(text + " RETURN a.t AS first, b.t AS second, a.k AS k", functions=FUNCTIONS)
    assert ensue.detect({"log": log}, program, time="t").to_pylist() == [{"first": 1, "second": 3, "k": 8}]


def test_in_rules_an_item_is_a_condition() -> None:
    text = "RULE h(x, y = twice(x)) <- A(x=x), near(x, 3); RULE h(x, y = 0) <- B(x=x), (NOT near(x, 1) OR x = 1)"
    program = ensue.parse(text, functions=FUNCTIONS)
    rows = ensue.run(EVENTS, program, **READING)["h"].to_pylist()
    assert [(row["x"], row["y"]) for row in rows] == [(3, 6), (1, 0), (5, 0)]
    assert ensue.parse(program.to_text(), functions=FUNCTIONS) == program


def test_in_python() -> None:
    a, b = ensue.var("a"), ensue.var("b")
    query = ensue.seq(ensue.event("A", "a"), ensue.event("B", "b")).where(near(a.x, twice(b.x)))
    assert query.to_text() == "PATTERN SEQ(A a, B b)\n  WHERE near(a.x, twice(b.x))"
    assert ensue.detect(EVENTS, query.returning(n=marked("z")), **READING).to_pylist() == [{"n": "z!"}]


def test_explain_shows_them_with_their_types() -> None:
    text = ensue.parse("PATTERN A a WHERE near(a.x, 1)", functions=FUNCTIONS).explain()
    assert "FUNCTIONS\n  near(x: int64, y: int64) -> bool\n" in text


# --- values


def test_nulls_and_nan() -> None:
    """A function gets nulls; NaN that it returns is null, as everywhere."""
    inverse = defined(lambda x: pc.divide(pc.cast(x, pa.float64()), pc.cast(x, pa.float64())), returns=pa.float64())
    events = pa.table({"t": [1, 2, 3], "type": ["A"] * 3, "x": [0, 2, None]})
    assert [row["v"] for row in found("PATTERN A a RETURN f(a.x) AS v", inverse, events=events)] == [None, 1.0, None]
    assert found("PATTERN A a RETURN f(NULL) IS NULL AS v", inverse, events=events)[0] == {"v": True}


@pytest.mark.parametrize(
    ("declared", "values", "expected"),
    [
        (pa.int32(), [7], 7),
        (pa.float32(), [0.5], 0.5),
        (pa.float64(), [7], 7.0),
        (pa.large_string(), ["x"], "x"),
        (pa.bool_(), [True], True),
        (pa.timestamp("ms"), [datetime(2024, 5, 1)], datetime(2024, 5, 1)),
        (pa.date32(), [datetime(2024, 5, 1)], datetime(2024, 5, 1)),
    ],
)
def test_arguments_and_results_have_their_declared_types(declared: Any, values: list[Any], expected: Any) -> None:
    def same(x: Any) -> Any:
        assert x.type == declared
        return x

    events = pa.table({"t": [1], "type": ["A"], "x": values})
    assert found("PATTERN A a RETURN f(a.x) AS v", defined(same, declared, declared), events=events) == [
        {"v": expected}
    ]


def test_a_value_that_does_not_fit_the_declared_type() -> None:
    events = pa.table({"t": [1], "type": ["A"], "x": [300]})
    text = error_of(lambda: found("PATTERN A a RETURN f(a.x) AS v", defined(lambda x: x, pa.int8()), events=events))
    assert "error[function-arguments]: function `f` takes int8 as argument 1, but a value does not fit" in text


def test_a_time_zone_that_is_not_declared() -> None:
    events = pa.table({"t": [1], "type": ["A"], "x": pa.array([0], pa.timestamp("us", "UTC"))})
    function = defined(lambda x: x, pa.timestamp("us"), pa.timestamp("us"))
    text = error_of(lambda: found("PATTERN A a RETURN f(a.x) AS v", function, events=events))
    assert "takes timestamp[us] as argument 1, but the values are timestamp[us, tz=UTC]" in text


# --- mistakes


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("PATTERN A a WHERE near(a.x)", "function-arguments", 19),
        ("PATTERN A a RETURN twice('x') AS v", "function-arguments", 26),
        ("PATTERN A a WHERE twice(a.x)", "not-a-condition", 19),
        ("PATTERN A a WHERE tvice(a.x) = 1", "unknown-function", 19),
        ("RULE h(x) <- a: near(x, 1)", "stream-clash", 17),
        ("RULE h(x) <- A(x=x), NOT nears(x, 1)", "unknown-function", 26),
    ],
)
def test_mistakes_in_a_query(text: str, code: str, place: int) -> None:
    with pytest.raises(QueryError) as caught:
        ensue.parse(text, functions=FUNCTIONS)
    (problem,) = caught.value.problems
    assert (problem.code, problem.span and problem.span.start + 1) == (code, place)


def test_a_column_of_another_type() -> None:
    text = error_of(lambda: found("PATTERN A a RETURN twice(a.n) AS v"))
    assert "error[function-arguments]: `x` of `twice(x)` must be an integer, found text" in text


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda x: x[:1], "function-result", "function `f` returned 1 value for 2 rows"),
        (lambda x: x.to_pylist(), "function-result", "returned a builtins.list instead of an Arrow array"),
        (lambda x: None, "function-result", "returned None instead of an Arrow array"),
        (lambda x: x.cast(pa.int32()), "function-result", "of type int32, but is declared to return int64"),
        (lambda x: {}["key"], "function-raised", "function `f` raised KeyError: 'key'"),
    ],
)  # fmt: skip
def test_mistakes_in_a_function(call: Callable[..., Any], code: str, words: str) -> None:
    text = error_of(lambda: found("PATTERN A a RETURN f(a.x) AS v", defined(call)))
    assert f"error[{code}]" in text
    assert words in text
    assert "1 | PATTERN A a RETURN f(a.x) AS v\n  |                    ^^^^^^" in text


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ensue.function(takes=[INT], returns=INT)(lambda x: x), ValueError, "pass `name=`"),
        (lambda: ensue.function(takes=[], returns=INT, name="abs")(lambda: 1), ValueError, "a function of Ensue"),
        (lambda: ensue.function(takes=[], returns=INT, name="case")(lambda: 1), ValueError, "cannot be the name"),
        (lambda: ensue.function(takes=[], returns=INT, name="sum")(lambda: 1), ValueError, "a function of Ensue"),
        (lambda: defined(lambda x: x, int), TypeError, "must be Arrow types"),
        (lambda: defined(lambda x: x, pa.list_(pa.int64())), TypeError, "cannot take or return list<item: int64>"),
        (lambda: defined(lambda x, y: x), ValueError, "`takes` has 1 types, but the function takes 2 arguments"),
        (lambda: ensue.parse("PATTERN A a", functions=[len]), TypeError, "defined with `ensue.function`"),
        (
            lambda: ensue.parse("PATTERN A a", functions=[defined(abs), defined(lambda x: x)]),
            ValueError,
            "two functions are named `f`",
        ),
    ],
)  # fmt: skip
def test_mistakes_in_a_definition(make: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("(", r"\(")):
        make()


# --- saved states


def test_a_snapshot_needs_the_functions_with_their_types() -> None:
    text = "RULE h(v = twice(x)) <- A(x=x); PATTERN SEQ(h a, B b) WITHIN 9 RETURN a.v AS v"

    def detector(function: Any) -> ensue.Detector:
        return ensue.Detector(ensue.parse(text, functions=[function]), **READING)

    first = detector(twice)
    assert first.advance(EVENTS, watermark=1).matches.num_rows == 0
    saved = first.snapshot()
    again = detector(twice)
    again.restore(saved)
    assert again.advance(watermark=2).matches.to_pylist() == [{"v": 6}]
    changed = ensue.function(takes=[pa.int64()], returns=pa.float64(), name="twice")(lambda x: pc.cast(x, pa.float64()))
    with pytest.raises(StateError, match="-- function twice\\(x: int64\\) -> int64"):
        detector(changed).restore(saved)
    assert "unknown-function" in error_of(lambda: ensue.Detector(text, **READING))
