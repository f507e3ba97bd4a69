"""`parse(render(x)) == x` for every value, and the layout of what is rendered."""

from __future__ import annotations

from hypothesis import given

from ensue.algebra.nodes import Pattern, Statements, Window
from ensue.expr.nodes import Expr
from ensue.lang.parser import parse_expression, parse_pattern, parse_statements, parse_window
from ensue.lang.render import (
    render_expression,
    render_pattern,
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
