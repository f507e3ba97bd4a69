"""A direct interpreter of conditions in three-valued logic: True, False, and None for null."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from ensue.expr.nodes import (
    Between,
    Binary,
    Call,
    Case,
    Duration,
    Expr,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    Timestamp,
    Unary,
)

Value = bool | int | float | str | None
Lookup = Callable[[str | None, str], Value]


def holds(condition: Expr, lookup: Lookup) -> bool:
    """A predicate that is null does not hold."""
    return evaluate(condition, lookup) is True


def evaluate(expr: Expr, lookup: Lookup) -> Value:
    """The value of an expression; `lookup(variable, field)` gives the value of a field."""
    match expr:
        case Literal():
            return expr.value
        case Duration() | Timestamp():
            return expr.nanoseconds
        case Field():
            return _without_nan(lookup(expr.variable, expr.name))
        case Unary():
            operand = evaluate(expr.operand, lookup)
            return _not(operand) if expr.operator == "not" else _negative(operand)
        case Binary():
            return _binary(expr.operator, evaluate(expr.left, lookup), evaluate(expr.right, lookup))
        case InList():
            operand = evaluate(expr.operand, lookup)
            found: Value = False
            for item in expr.items:
                found = _or(found, _compare("=", operand, evaluate(item, lookup)))
            return _not(found) if expr.negated else found
        case Between():
            operand = evaluate(expr.operand, lookup)
            inside = _and(
                _compare(">=", operand, evaluate(expr.low, lookup)),
                _compare("<=", operand, evaluate(expr.high, lookup)),
            )
            return _not(inside) if expr.negated else inside
        case Like():
            alike = _like(evaluate(expr.operand, lookup), expr.pattern)
            return _not(alike) if expr.negated else alike
        case IsNull():
            return (evaluate(expr.operand, lookup) is None) != expr.negated
        case Case():
            for condition, value in expr.branches:
                if holds(condition, lookup):
                    return evaluate(value, lookup)
            return None if expr.default is None else evaluate(expr.default, lookup)
        case Call():
            return _call(expr.name, [evaluate(argument, lookup) for argument in expr.arguments])
    raise TypeError(f"no value: {expr}")


def same(values: list[Value]) -> bool:
    """All agree, and null agrees with nothing."""
    values = [_without_nan(value) for value in values]
    return all(_compare("=", values[0], value) is True for value in values)


def _without_nan(value: Value) -> Value:
    return None if isinstance(value, float) and math.isnan(value) else value


def _not(value: Value) -> Value:
    return None if value is None else value is False


def _and(left: Value, right: Value) -> Value:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: Value, right: Value) -> Value:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def _negative(value: Value) -> Value:
    return None if value is None else -value


def _binary(operator: str, left: Value, right: Value) -> Value:
    if operator == "and":
        return _and(left, right)
    if operator == "or":
        return _or(left, right)
    if operator in ("=", "!=", "<", "<=", ">", ">="):
        return _compare(operator, left, right)
    return _arithmetic(operator, left, right)


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def _compare(operator: str, left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    if _kind(left) != _kind(right):
        raise TypeError(f"not comparable: {left!r} {operator} {right!r}")
    match operator:
        case "=":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
    raise ValueError(operator)


def _arithmetic(operator: str, left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return None if right == 0 else left / right
        case "%":
            return None if right == 0 else _remainder(left, right)
        case "||":
            return str.__add__(left, right)
    raise ValueError(operator)


def _remainder(left: int | float, right: int | float) -> int | float:
    """As in SQL: the sign is that of the dividend."""
    size = abs(left) % abs(right)
    return -size if left < 0 else size


def _like(value: Value, pattern: str) -> Value:
    if value is None:
        return None
    expression, quoted = "", False
    for character in pattern:
        if quoted:
            expression, quoted = expression + re.escape(character), False
        elif character == "\\":
            quoted = True
        else:
            expression += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return re.fullmatch(expression, value, re.DOTALL) is not None


def _call(name: str, arguments: list[Value]) -> Value:
    present = [argument for argument in arguments if argument is not None]
    match name:
        case "coalesce":
            return present[0] if present else None
        case "least":
            return min(present) if present else None
        case "greatest":
            return max(present) if present else None
    if not present:
        return None
    match name:
        case "abs":
            return abs(arguments[0])
        case "lower":
            return arguments[0].lower()
        case "upper":
            return arguments[0].upper()
        case "length":
            return len(arguments[0])
    raise ValueError(f"no function {name}")
