"""`parse(render(x)) == x` for every value, and the layout of what is rendered."""

from __future__ import annotations

import pytest
from hypothesis import given

from inside import (
    Expr,
    Field,
    Pattern,
    Statements,
    Window,
    expand_pattern,
    parse_expression,
    parse_pattern,
    parse_statements,
    parse_window,
    render_expression,
    render_pattern,
    render_query,
    render_statements,
    render_window,
)
from strategies import nodes


@given(nodes.expressions)
def test_an_expression_is_read_back(expression: Expr) -> None:
    assert parse_expression(render_expression(expression)) == expression


@given(nodes.windows)
def test_a_window_is_read_back(window: Window) -> None:
    assert parse_window(render_window(window)) == window


@given(nodes.patterns)
def test_a_pattern_is_read_back(pattern: Pattern) -> None:
    assert parse_pattern(render_pattern(pattern)) == pattern


@given(nodes.statements)
def test_statements_are_read_back(statements: Statements) -> None:
    assert parse_statements(render_statements(statements)) == statements


CONDITION = " AND ".join(f"a.field_number_{number} = b.field_number_{number}" for number in range(3))
ITEMS = ", ".join(f"LongStreamName{number} variable{number}" for number in range(3))

LAYOUTS = [
    "PATTERN A a",
    "PATTERN p\n  (A a)",
    "PATTERN p\n  NOT A a",
    "PATTERN (A a WITHIN 5)",
    "PATTERN (NOT A a WITHIN 5)\n  WITHIN 6",
    "PATTERN `seq`\n  SEQ(A a, B b)\n  WHERE a.in = `in`.x\n  PARTITION BY `order line`, id\n  RETURN a.x AS `as`, 1",
    "PATTERN SEQ(\n    A a,\n    NOT OR(" + ITEMS + "),\n    C c\n  )",
    "PATTERN FOLLOWS(\n    A a,\n    NOT OR(" + ITEMS + "),\n    5m\n  )",
    "PATTERN UNLESS(\n    B b\n  )(\n    A a,\n    OR(" + ITEMS + ")\n  )",
    "STREAM s FROM PATTERN (A)\n  MATCH RECENT\n  CONSUME\n  RETURN 1",
    "PATTERN (FIRST A a)",
    "PATTERN `next`\n  (A a{2})",
    "PATTERN first\n  NEXT(A a, B b)+",
    "PATTERN A a\n  WHERE " + CONDITION.replace(" AND ", "\n    AND "),
]


@pytest.mark.parametrize("text", LAYOUTS)
def test_layout(text: str) -> None:
    (query,) = parse_statements(text).statements
    assert render_query(query) == text


@pytest.mark.parametrize(
    "text",
    [
        "(x OR y) AND z",
        "x OR y AND z",
        "NOT (x AND y)",
        "NOT NOT x",
        "(x = y) = z",
        "x - (y - z)",
        "x - y - z",
        "-(x + y)",
        "-(-x)",
        "-(5)",
        "-5 * x",
        "x - -5",
        "-(2h)",
        "-(1h 30m) * 2",
        "x - 1d 2h",
        "-1s 500ms",
        "(x AND y) BETWEEN 1 AND 2 + 3",
        "(NOT x) IS NULL",
        "x || y || 'it''s'",
        "`same`(x)",
        "CASE WHEN x THEN 1 ELSE NULL END",
        "TIMESTAMP '2024-01-31 12:00:00.5Z'",
    ],
)
def test_expressions_have_only_the_parentheses_they_need(text: str) -> None:
    assert render_expression(parse_expression(text)) == text


@pytest.mark.parametrize(
    "text",
    ["FOLLOWS(A a, NOTPRECEDES(B b, C c, 5), 5)", "PERIODIC*(A a, 5, PRIOR(B b, C c)) AS p", "UNLESS(B b)(A a, C c)"],
)
def test_what_an_operator_means_is_rendered_as_it_was_written(text: str) -> None:
    assert render_pattern(expand_pattern(parse_pattern(text))) == text


def test_a_name_is_not_empty() -> None:
    with pytest.raises(ValueError, match="a name must not be empty"):
        render_expression(Field(None, ""))
