"""Mistakes in expressions: each is reported once, at its place, with a way out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ensue import QueryError
from inside import (
    AGGREGATES,
    FUNCTIONS,
    Between,
    Binary,
    Call,
    Case,
    Duration,
    Field,
    InList,
    Like,
    Literal,
    Problem,
    Same,
    Source,
    Timestamp,
    Unary,
    check_condition,
    expression_type,
    own_type,
    parse_expression,
)
from inside import evaluate_expression as evaluate

FIELDS: dict[str, pa.DataType] = {
    "i": pa.int64(),
    "x": pa.float64(),
    "s": pa.string(),
    "p": pa.bool_(),
    "t": pa.timestamp("us"),
    "z": pa.timestamp("ns", "Europe/Berlin"),
    "d": pa.duration("s"),
    "l": pa.list_(pa.int64()),
    "b": pa.binary(),
}


def check(text: str) -> tuple[pa.DataType, list[Problem]]:
    problems: list[Problem] = []
    found = expression_type(parse_expression(text), lambda field: FIELDS.get(field.name), problems)
    return found, problems


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a.i + 1", pa.int64()),
        ("a.i % 2", pa.int64()),
        ("a.i / 2", pa.float64()),
        ("a.i * a.x", pa.float64()),
        ("-a.d", pa.duration("s")),
        ("-9223372036854775808", pa.int64()),
        ("a.t - a.z", pa.duration("ns")),
        ("a.t + 5 seconds", pa.timestamp("us")),
        ("5 ms + a.z", pa.timestamp("ns", "Europe/Berlin")),
        ("a.d * 2", pa.duration("s")),
        ("a.d * 0.5", pa.duration("us")),
        ("a.d / 2", pa.duration("us")),
        ("a.d / a.d", pa.float64()),
        ("a.d - 5 ms", pa.duration("ms")),
        ("a.s || 'x'", pa.string()),
        ("a.i > 1.5", pa.bool_()),
        ("a.t < a.z", pa.bool_()),
        ("a.i = NULL", pa.bool_()),
        ("a.i + NULL", pa.null()),
        ("a.l IS NULL", pa.bool_()),
        ("a.l", pa.list_(pa.int64())),
        ("CASE WHEN a.p THEN 1 ELSE 2.5 END", pa.float64()),
        ("CASE WHEN a.p THEN NULL END", pa.null()),
        ("coalesce(a.t, a.z)", pa.timestamp("ns", "Europe/Berlin")),
        ("length(a.s)", pa.int64()),
        ("round(a.x, 2)", pa.float64()),
        ("date_trunc('hour', a.z)", pa.timestamp("ns", "Europe/Berlin")),
    ],
)
def test_types(text: str, wanted: pa.DataType) -> None:
    found, problems = check(text)
    assert problems == []
    assert found == wanted


@pytest.mark.parametrize(
    ("text", "code", "message", "hint"),
    [
        (
            "a.s = 5",
            "type-clash",
            "text and integer cannot be compared",
            "write '5' in quotes to make it text, or convert the text: CAST(a.s AS BIGINT)",
        ),
        (
            "a.i = '5'",
            "type-clash",
            "integer and text cannot be compared",
            "write 5 without quotes to make it a number, or convert the number: CAST(a.i AS STRING)",
        ),
        (
            "a.t > '2024-01-31'",
            "type-clash",
            "timestamp and text cannot be compared",
            "write a time as TIMESTAMP '2024-01-31'",
        ),
        (
            "a.t > 5",
            "type-clash",
            "timestamp and integer cannot be compared",
            "write a time as TIMESTAMP '2024-01-31 12:00:00', or compare the seconds since 1970: epoch(...)",
        ),
        (
            "a.t + 5 > a.t",
            "type-clash",
            "`+` is not defined for timestamp and integer",
            "write a duration with its unit, for example 5s",
        ),
        (
            "a.t - a.t > 30",
            "type-clash",
            "duration and integer cannot be compared",
            "write a duration with its unit, for example 30s",
        ),
        ("a.s + a.s", "type-clash", "`+` is not defined for text and text", "concatenate text with `||`"),
        ("a.s || 1", "type-clash", "`||` is not defined for text and integer", "`||` concatenates text with text"),
        ("a.t + a.t", "type-clash", "`+` is not defined for timestamp and timestamp", None),
        ("-a.s", "type-clash", "`-` is not defined for text", "convert it: CAST(a.s AS DOUBLE)"),
        (
            "NOT a.i",
            "type-clash",
            "NOT expects a condition, found an integer",
            "compare it with a value, for example `... != 0`",
        ),
        (
            "a.p AND a.s",
            "type-clash",
            "AND expects a condition, found text",
            "compare it with a value, for example `... IS NOT NULL`",
        ),
        ("a.p < a.p", "type-clash", "booleans have no order", "compare them with = or !="),
        ("a.p = 1", "type-clash", "boolean and integer cannot be compared", "write TRUE or FALSE"),
        ("a.i IN (1, 'x')", "type-clash", "integer and text cannot be compared", None),
        ("a.i BETWEEN 1 AND 'x'", "type-clash", "integer and text cannot be compared", None),
        (
            "a.i LIKE 'x%'",
            "type-clash",
            "LIKE expects text, found an integer",
            "convert it: CAST(a.i AS STRING)",
        ),
        ("a.i = a.s", "type-clash", "integer and text cannot be compared", "convert the text: CAST(a.s AS BIGINT)"),
        (
            "a.s < sqrt(a.i)",
            "type-clash",
            "text and number cannot be compared",
            "convert the text: CAST(a.s AS DOUBLE)",
        ),
        (
            "a.s = a.t",
            "type-clash",
            "text and timestamp cannot be compared",
            "convert the text: CAST(a.s AS TIMESTAMP)",
        ),
        (
            "a.s * 2 > 1",
            "type-clash",
            "`*` is not defined for text and integer",
            "convert the text: CAST(a.s AS BIGINT)",
        ),
        (
            "a.i + '7' > 1",
            "type-clash",
            "`+` is not defined for integer and text",
            "write 7 without quotes to make it a number",
        ),
        (
            "a.i || 'x' = '7x'",
            "type-clash",
            "`||` is not defined for integer and text",
            "`||` concatenates text with text; convert it: CAST(a.i AS STRING)",
        ),
        (
            "least(a.i, a.s) = 1",
            "type-clash",
            "the arguments of `least` have different types: integer and text",
            "convert it: CAST(a.s AS BIGINT)",
        ),
        ("a.l = a.l", "type-clash", "lists cannot be compared", None),
        ("a.b = a.b", "type-clash", "values of type binary cannot be compared", None),
        ("NOT a.b", "type-clash", "NOT expects a condition, found a value of type binary", None),
        (
            "CASE WHEN a.p THEN 'yes' ELSE 0 END",
            "type-clash",
            "the branches of CASE have different types: text and integer",
            "write '0' in quotes to make it text",
        ),
        (
            "coalesce(a.i, 'none')",
            "type-clash",
            "the arguments of `coalesce` have different types: integer and text",
            "",
        ),
        (
            "CASE WHEN a.i THEN 1 END",
            "not-a-condition",
            "expected a condition, found an integer",
            "compare it with a value, for example `... != 0`",
        ),
        (
            "every(a.n > 3)",
            "unknown-function",
            "unknown function `every`",
            "a condition on a list, such as `x.f > 1`, is one on each element; aggregates such as `max` reduce it",
        ),
        ("lenght(a.s) > 3", "unknown-function", "unknown function `lenght`", "did you mean `length`?"),
        ("substring(a.s, 1)", "unknown-function", "unknown function `substring`", "did you mean `substr`?"),
        ("mod(a.i, 2)", "unknown-function", "unknown function `mod`", "write the remainder as `x % y`"),
        (
            "round(a.x, 1, 2)",
            "function-arguments",
            "`round` takes 1 or 2 arguments, found 3",
            "for example round(2.675, 2) = 2.68",
        ),
        ("sqrt()", "function-arguments", "`sqrt` takes 1 argument, found 0", "for example sqrt(9) = 3"),
        (
            "sqrt(a.s)",
            "function-arguments",
            "`x` of `sqrt(x)` must be a number, found text",
            "convert it: CAST(a.s AS DOUBLE)",
        ),
        (
            "round(a.x, a.i)",
            "function-arguments",
            "`digits` of `round(x[, digits])` must be a literal, not a computed value",
            None,
        ),
        (
            "date_trunc('hours', a.t)",
            "function-arguments",
            "unknown value 'hours' for `unit` of `date_trunc(unit, time)`",
            "did you mean `hour`?",
        ),
    ],
)
def test_one_mistake_is_one_problem(text: str, code: str, message: str, hint: str | None) -> None:
    _, problems = check(text)
    assert [(problem.code, problem.message) for problem in problems] == [(code, message)]
    assert problems[0].span is not None
    if hint is not None:
        assert problems[0].hint == hint


def test_the_message_as_a_whole() -> None:
    text = "a.i > 1 AND a.t > '2024-01-31'"
    _, problems = check(text)
    assert str(QueryError(problems, Source(text))) == (
        "error[type-clash]: timestamp and text cannot be compared\n"
        " --> query:1:13\n"
        "  |\n"
        "1 | a.i > 1 AND a.t > '2024-01-31'\n"
        "  |             ^^^^^^^^^^^^^^^^^^ timestamp > text\n"
        "hint: write a time as TIMESTAMP '2024-01-31'"
    )


def test_all_mistakes_at_once() -> None:
    _, problems = check("a.s + 1 > 3 AND NOT a.i OR lenght(a.l) = nosuch(a.s - 1)")
    assert [problem.code for problem in problems] == [
        "type-clash",
        "type-clash",
        "unknown-function",
        "type-clash",
        "unknown-function",
    ]


def test_a_field_without_type_was_reported_already() -> None:
    expr = Binary("and", Binary(">", Binary("+", Field("a", "nosuch"), Literal(1)), Literal("x")), Literal(True))
    problems: list[Problem] = []
    check_condition(expr, lambda field: None, problems)
    assert problems == []


def test_a_condition_is_true_or_false() -> None:
    problems: list[Problem] = []
    for text in ("a.p", "a.i > 1", "NULL", "a.i", "a.l"):
        check_condition(parse_expression(text), lambda field: own_type(FIELDS[field.name]), problems)
    assert [(problem.code, problem.message) for problem in problems] == [
        ("not-a-condition", "expected a condition, found an integer"),
        ("not-a-condition", "expected a condition, found a list of integers"),
    ]


def test_literals_that_do_not_fit() -> None:
    problems: list[Problem] = []
    for expr in (Literal(2**63), Unary("-", Literal(2**63)), Timestamp(10**30 + 1), Duration(10**30)):
        expression_type(Binary("=", expr, Literal(None)), lambda field: None, problems)
    assert [(problem.code, problem.message) for problem in problems] == [
        ("number-too-large", "9223372036854775808 does not fit in a 64-bit integer"),
        ("number-too-large", "the timestamp does not fit in 64 bits"),
        ("number-too-large", "the duration does not fit in 64 bits"),
    ]
    with pytest.raises(QueryError) as raised:
        evaluate(Literal(2**63), lambda field: pa.nulls(1), 1)
    assert raised.value.code == "number-too-large"


def test_same_inside_an_expression_is_misplaced() -> None:
    problems: list[Problem] = []
    check_condition(Unary("not", Same(("user",))), lambda field: None, problems)
    assert [(problem.code, problem.message) for problem in problems] == [
        ("misplaced-same", "SAME is only allowed as a separate condition in WHERE")
    ]


def test_a_pattern_that_ends_in_a_quote() -> None:
    problems: list[Problem] = []
    for pattern in ("a\\", "a\\\\", "\\%\\"):
        expression_type(Like(Literal("x"), pattern), lambda field: None, problems)
    assert [problem.code for problem in problems] == ["like-pattern"] * 2


def test_the_candidates_of_an_unknown_function_are_listed() -> None:
    _, problems = check("nosuch(1)")
    listed = [name for name in (*FUNCTIONS, *AGGREGATES) if name != "count_distinct"]
    assert problems[0].label == f"functions: {', '.join(listed)}"


def test_nodes_without_places_are_checked_too() -> None:
    wrong = Literal("x")
    problems: list[Problem] = []
    for expr in (
        InList(Literal(1), (wrong,)),
        Between(Literal(1), wrong, Literal(2)),
        Case(((Literal(True), Literal(1)),), wrong),
        Call("least", (Literal(1), wrong)),
    ):
        expression_type(expr, lambda field: None, problems)
    assert [problem.code for problem in problems] == ["type-clash"] * 4
    assert {problem.span for problem in problems} == {None}
