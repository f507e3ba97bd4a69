"""Expressions and windows back to query text, with as few parentheses as reading it back allows."""

from __future__ import annotations

from ensue.nodes.expressions import (
    Between,
    Binary,
    Call,
    Case,
    Duration,
    Elements,
    Expr,
    Field,
    Gather,
    InList,
    IsNull,
    Like,
    Literal,
    Same,
    Timestamp,
    Unary,
)
from ensue.nodes.patterns import Events, Ticks, Window
from ensue.text.reserved import quote_name, quote_word, render_variable
from ensue.text.values import render_duration, render_timestamp

_LINE = 100
_INDENT = "  "

_OR, _AND, _NOT, _COMPARISON, _CONCATENATION, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(9)
_PRECEDENCE = {
    "or": _OR, "and": _AND,
    "=": _COMPARISON, "!=": _COMPARISON, "<": _COMPARISON, "<=": _COMPARISON, ">": _COMPARISON, ">=": _COMPARISON,
    "||": _CONCATENATION, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT,
}  # fmt: skip


def render_expression(expression: Expr) -> str:
    """A condition or value on one line.

    >>> render_expression(Binary("*", Binary("+", Field("a", "x"), Literal(1)), Literal(2)))
    '(a.x + 1) * 2'
    """
    return _expression(expression, _OR)


def render_window(window: Window) -> str:
    """What stands after WITHIN.

    >>> render_window(Duration(5_400_000_000_000)), render_window(Ticks(5)), render_window(Events(1))
    ('90 minutes', '5', '1 EVENT')
    """
    match window:
        case Duration():
            return render_duration(window.nanoseconds)
        case Ticks():
            return str(window.count)
        case Events():
            return f"{window.count} {'EVENT' if window.count == 1 else 'EVENTS'}"


def layout_condition(condition: Expr) -> str:
    """A condition on one line or, where it is long, each part of its AND on a line of its own."""
    text = render_expression(condition)
    if len(text) <= _LINE:
        return text
    parts: list[str] = []
    while isinstance(condition, Binary) and condition.operator == "and":
        parts.append(_expression(condition.right, _NOT))
        condition = condition.left
    parts.append(_expression(condition, _AND))
    return f"\n{_INDENT * 2}AND ".join(reversed(parts))


def _expression(expression: Expr, context: int) -> str:
    """The text of an operand; `context` is the loosest precedence that needs no parentheses there."""
    text, precedence = _with_precedence(expression)
    return text if precedence >= context else f"({text})"


def _with_precedence(expression: Expr) -> tuple[str, int]:
    match expression:
        case Literal():
            return _literal(expression)
        case Duration():
            return render_duration(expression.nanoseconds), _UNARY if expression.nanoseconds < 0 else _PRIMARY
        case Timestamp():
            return f"TIMESTAMP '{render_timestamp(expression.nanoseconds, expression.zoned)}'", _PRIMARY
        case Field(variable, name, asks_state=True):
            return name if variable is None else f"{render_variable(variable)}.{name}", _PRIMARY
        case Field(None, name):
            return quote_name(name), _PRIMARY
        case Field(variable, name) if variable is not None:
            return f"{render_variable(variable)}.{quote_word(name)}", _PRIMARY
        case Unary("not", operand):
            return f"NOT {_expression(operand, _NOT)}", _NOT
        case Unary():
            return _minus(expression.operand), _UNARY
        case Binary():
            return _binary(expression), _PRECEDENCE[expression.operator]
        case InList() | Between() | Like() | IsNull():
            return _predicate(expression), _COMPARISON
        case Case():
            return _case(expression), _PRIMARY
        case Call(name, arguments):
            return f"{quote_name(name)}({_listed(arguments)})", _PRIMARY
        case Elements(Literal(True), of):
            return render_variable(of), _PRIMARY
        case Elements(element):
            return _with_precedence(element)
        case Gather(elements):
            return f"[{_listed(elements)}]", _PRIMARY
        case Same(names):
            return f"SAME({render_names(names)})", _PRIMARY
    raise TypeError(f"{expression!r} is not an expression")


def _literal(literal: Literal) -> tuple[str, int]:
    match literal.value:
        case None:
            return "NULL", _PRIMARY
        case bool(value):
            return "TRUE" if value else "FALSE", _PRIMARY
        case str(value):
            return _quoted(value), _PRIMARY
        case number:
            text = repr(number)
            return text, _UNARY if text.startswith("-") else _PRIMARY


def _minus(operand: Expr) -> str:
    text = _expression(operand, _UNARY)
    # A minus before a number would become part of it, and two of them would start a comment.
    folds = isinstance(operand, Duration) or (isinstance(operand, Literal) and text[0] in "0123456789")
    return f"-({text})" if folds or text.startswith("-") else f"-{text}"


def _binary(binary: Binary) -> str:
    precedence = _PRECEDENCE[binary.operator]
    left = precedence + 1 if precedence == _COMPARISON else precedence
    operator = binary.operator.upper()
    return f"{_expression(binary.left, left)} {operator} {_expression(binary.right, precedence + 1)}"


def _predicate(predicate: InList | Between | Like | IsNull) -> str:
    operand = _expression(predicate.operand, _CONCATENATION)
    negation = "NOT " if predicate.negated else ""
    match predicate:
        case InList():
            return f"{operand} {negation}IN ({_listed(predicate.items)})"
        case Between():
            low, high = _expression(predicate.low, _CONCATENATION), _expression(predicate.high, _CONCATENATION)
            return f"{operand} {negation}BETWEEN {low} AND {high}"
        case Like():
            return f"{operand} {negation}LIKE {_quoted(predicate.pattern)}"
        case IsNull():
            return f"{operand} IS {negation}NULL"


def _case(case: Case) -> str:
    branches = "".join(
        f" WHEN {render_expression(condition)} THEN {render_expression(value)}" for condition, value in case.branches
    )
    default = f" ELSE {render_expression(case.default)}" if case.default is not None else ""
    return f"CASE{branches}{default} END"


def _listed(expressions: tuple[Expr, ...]) -> str:
    return ", ".join(map(render_expression, expressions))


def render_names(names: tuple[str, ...]) -> str:
    """Names with commas between."""
    return ", ".join(map(quote_name, names))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
