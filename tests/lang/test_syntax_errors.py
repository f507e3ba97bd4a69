"""What users see when the text is not a query, and that nothing but `QueryError` ever comes out.

The messages stand in syntax_errors.txt: cases between lines of `=`, each a text, a line of `-`, the message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ensue import QueryError
from inside import (
    Ruleset,
    Statements,
    parse_argument,
    parse_expression,
    parse_items,
    parse_pattern,
    parse_returns,
    parse_statements,
    parse_window,
    render_statements,
)
from strategies import nodes, rulesets

CASES = [
    tuple(case.strip("\n").split("\n----\n"))
    for case in re.split(
        r"^====\n", Path(__file__).with_name("syntax_errors.txt").read_text("utf-8"), flags=re.MULTILINE
    )
    if case
]
TOKENS = [
    *nodes.KEYWORDS, "a", "b", "x", "`q q`", "'text'", "'", "`", '"', "1", "2.5", "1e3", "(", ")", "[", "]", ",", ".",
    ";", "=", "<", ">", "<=", "!=", "!", "||", "|", "&&", "+", "-", "--", "*", "/", "%", "\n", "{",
    "RULE", "FACT", "TABLE", "ON", "DO", "ID", "PARENT", "while", "before", "causes", "extend", "_", ":", "<-", ":-",
    "\\", "a(x)", "RULE a(x) <-", "while w:", "ON a b", "STREAM a",
    "}", "{2}", "?", "->", "ANY EVENT", "APERIODIC*(", "FOLLOWS(", "MATCH RECENT",
]  # fmt: skip
PARSERS: list[Callable[[str], object]] = [
    parse_statements,
    parse_pattern,
    parse_expression,
    parse_window,
    parse_returns,
    parse_items,
    parse_argument,
]
# Messages are in the words of the language: no name of a terminal and no word of the parser's own.
FOREIGN = re.compile(
    r"\b_[A-Z]+\b|\$END|\b(?:NAME|QUOTED|WORD|UNIT|INTEGER|DECIMAL|COMPARISON|ATTRIBUTE|RELATION|ARROW|Token|Lark)\b"
)


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_messages(text: str, expected: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_statements(text, "fraud.ensue")
    assert str(caught.value) == expected


def test_several_problems_are_reported_at_once_in_the_order_of_the_text() -> None:
    with pytest.raises(QueryError) as caught:
        parse_statements("PATTERN A a WITHIN 0 events WHERE x = TIMESTAMP 'noon' WITHIN 5")
    assert [problem.code for problem in caught.value.problems] == [
        "window-size",
        "timestamp-format",
        "duplicate-clause",
    ]


@pytest.mark.parametrize(
    ("parse", "text", "hint"),
    [
        (parse_pattern, "A a, B b", "write `SEQ(A a, B b)`, or `AND(A a, B b)` for any order"),
        (parse_pattern, "A a AND B b", "write `AND(A a, B b)`"),
        (parse_pattern, "Queued+ q", "write the repetition after the variable: `Queued q+`"),
        (parse_expression, "x = 1, y = 2", "join conditions with AND"),
        (parse_returns, "*", "omit RETURN to get whole events"),
        (parse_items, "o: order(id) & s: shipped(id)", "separate items with `,`"),
        (parse_items, "o befor s", "did you mean `before`?"),
        (parse_items, "o: order", "put the arguments of `order` in parentheses: `order(...)`"),
        (parse_window, "'10 seconds'", "write `10s`"),
        (parse_window, "INTERVAL '1' HOUR", "write `1h`"),
    ],
)
def test_hints_for_the_texts_of_the_dsl(parse: Callable[[str], object], text: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert caught.value.problems[0].hint == hint


@pytest.mark.parametrize("text", ["", " ", "\n\n", "-- nothing", ";"])
@pytest.mark.parametrize("parse", PARSERS)
def test_texts_without_content(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert caught.value.code == ("syntax" if text == ";" else "empty-query")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("-1", "window-size"),
        ("-1 hour", "window-size"),
        ("1.5", "window-size"),
        ("0 events", "window-size"),
        ("-3 events", "window-size"),
        ("0.5 ns", "duration-fraction"),
        ("0." + "3" * 5000 + " weeks", "duration-fraction"),
        ("16000 weeks", "number-too-large"),
        ("9" * 5000 + " ns", "number-too-large"),
        ("9223372036854775808", "number-too-large"),
        ("1 fortnight", "syntax"),
        ("1e3 seconds", "syntax"),
    ],
)
def test_windows_that_are_none(text: str, code: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_window(text)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "closest"),
    [
        ("9007199254740993.0", "9007199254740992.0"),
        ("-0.12345678901234567890", "0.12345678901234568"),
        ("3.14159265358979323846", "3.141592653589793"),
        ("1e-400", "0.0"),
    ],
)
def test_floats_keep_their_digits(text: str, closest: str) -> None:
    """A float that would be another number is refused, with the number that it would be."""
    with pytest.raises(QueryError) as caught:
        parse_expression(text)
    assert caught.value.code == "number-precision"
    assert caught.value.problems[0].hint.startswith(f"write {closest}, the closest float")
    assert parse_expression(closest)


@pytest.mark.parametrize("text", ["0.1", "1.50", ".5", "1e-3", "1.7976931348623157e308", "9223372036854775808.0"])
def test_floats_that_keep_their_digits(text: str) -> None:
    assert parse_expression(text).value == float(text)  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 5000, "1e999", "-1e999"])
def test_numbers_that_are_too_large(text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_expression(text)
    assert caught.value.code == "number-too-large"


@pytest.mark.parametrize(
    "text",
    [
        "", "noon", "2024-1-1", "2024-02-30", "2024-01-31 25:00", "2024-01-31 12:00:61", "0001-01-01", "2300-01-01",
        "2024-01-31 12:00:00.1234567890", "2024-01-31 12:00+99:00", "2024-01-31 12:00+01:60", "2024-01-31Z",
    ],
)  # fmt: skip
def test_timestamps_that_are_none(text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_expression(f"TIMESTAMP '{text}'")
    assert caught.value.code == "timestamp-format"


def answer_or_query_error(parse: Callable[[str], object], text: str) -> None:
    error = refusal(parse, text)
    if error is not None:
        expectation = error.problems[0].message.split(" after `")[0].split(", found ")[0]
        assert not FOREIGN.search(expectation)
        assert error.line is not None
        assert 1 <= error.line <= text.count("\n") + 1


def refusal(parse: Callable[[str], object], text: str) -> QueryError | None:
    try:
        parse(text)
    except QueryError as error:
        return error
    return None


@given(st.sampled_from(PARSERS), st.text())
@example(parse_pattern, "A)")
@example(parse_statements, "PATTERN A a\r\n\x0b\x0c\u2028 WHERE '")
def test_any_text(parse: Callable[[str], object], text: str) -> None:
    answer_or_query_error(parse, text)


@given(st.sampled_from(PARSERS), st.lists(st.sampled_from(TOKENS), max_size=20))
def test_any_soup_of_tokens(parse: Callable[[str], object], tokens: list[str]) -> None:
    answer_or_query_error(parse, " ".join(tokens))
    answer_or_query_error(parse, "".join(tokens))


@given(nodes.statements, st.data())
def test_queries_with_a_hole(statements: object, data: st.DataObject) -> None:
    text = render_statements(statements)  # type: ignore[arg-type]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    answer_or_query_error(parse_statements, text[:start] + text[end:])


@given(rulesets.rulesets, st.data())
def test_rules_with_a_hole(rules: Ruleset, data: st.DataObject) -> None:
    text = render_statements(Statements((), ruleset=rules))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    answer_or_query_error(parse_statements, text[:start] + text[end:])
