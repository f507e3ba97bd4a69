"""A direct interpreter of expressions in three-valued logic: True, False, and None for null. Lists are tuples."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from inside import (
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Duration,
    Entry,
    Expr,
    Field,
    InList,
    InTable,
    IsNull,
    Like,
    Literal,
    StructMember,
    Timestamp,
    Unary,
)
from oracle.functions import CastError, Date, call, cast
from oracle.tree import AGGREGATES, LINEAGE, PREVIOUS, is_bare, names_in

Value = bool | int | float | str | tuple["Value", ...] | None
Lookup = Callable[[str | None, str], Value]


@dataclass(frozen=True, slots=True)
class Lists:
    """What an expression over lists needs: `elements(names)` are the elements over which these names range together,
    `previous` is the element before the one at hand, `lineage(name)` the ids of the events below a variable."""

    elements: Callable[[set[str]], list[Lookup]]
    previous: Lookup | None = None
    lineage: Callable[[str | None], tuple[int, ...]] | None = None


def of_one_row(function: Any, values: Sequence[Value]) -> Value:
    """What a function of the user gives for a single row."""
    columns = [pa.array([value], kind) for value, kind in zip(values, function.takes, strict=True)]
    (result,) = function.call(*columns).to_pylist()
    return result


def holds(condition: Expr, lookup: Lookup, lists: Lists | None = None) -> bool:
    """A predicate that is null does not hold."""
    return evaluate(condition, lookup, lists) is True


def evaluate(expr: Expr, lookup: Lookup, lists: Lists | None = None) -> Value:
    """The value of an expression; `lookup(variable, field)` gives the value of a field."""
    if isinstance(expr, Call) and expr.name in (*AGGREGATES, PREVIOUS, LINEAGE):
        return _over_lists(expr, lists)
    match expr:
        case Literal():
            return WrittenFloat(expr.value) if isinstance(expr.value, float) else expr.value
        case Duration() | Timestamp():
            return expr.nanoseconds
        case Field():
            return _without_nan(lookup(expr.variable, expr.name))
        case Unary():
            operand = evaluate(expr.operand, lookup, lists)
            return _not(operand) if expr.operator == "not" else _negative(operand)
        case Binary():
            return _binary(expr.operator, evaluate(expr.left, lookup, lists), evaluate(expr.right, lookup, lists))
        case InList():
            operand = evaluate(expr.operand, lookup, lists)
            found: Value = False
            for item in expr.items:
                found = _or(found, _compare("=", operand, evaluate(item, lookup, lists)))
            return _not(found) if expr.negated else found
        case InTable():
            operand = evaluate(expr.operand, lookup, lists)
            if operand is None:
                return None
            listed = any(_compare("=", operand, value) for value in expr.values if value is not None)
            return listed is not expr.negated
        case Between():
            operand = evaluate(expr.operand, lookup, lists)
            inside = _and(
                _compare(">=", operand, evaluate(expr.low, lookup, lists)),
                _compare("<=", operand, evaluate(expr.high, lookup, lists)),
            )
            return _not(inside) if expr.negated else inside
        case Like():
            operand, pattern = evaluate(expr.operand, lookup, lists), expr.pattern
            if expr.ignores_case and operand is not None:
                operand, pattern = operand.lower(), pattern.lower()
            alike = _like(operand, pattern)
            return _not(alike) if expr.negated else alike
        case IsNull():
            return (evaluate(expr.operand, lookup, lists) is None) != expr.negated
        case Case():
            for condition, value in expr.branches:
                if holds(condition, lookup, lists):
                    return plain(evaluate(value, lookup, lists))
            return None if expr.default is None else plain(evaluate(expr.default, lookup, lists))
        case Call() if expr.function is not None:
            values = [plain(evaluate(argument, lookup, lists)) for argument in expr.arguments]
            return plain(of_one_row(expr.function, values))
        case Call():
            return call(expr.name, [plain(evaluate(argument, lookup, lists)) for argument in expr.arguments])
        case StructMember():
            held = evaluate(expr.operand, lookup, lists)
            return None if held is None else _without_nan(held.get(expr.name))
        case Entry():
            return _entry(evaluate(expr.operand, lookup, lists), evaluate(expr.key, lookup, lists))
        case Cast():
            return _cast(evaluate(expr.operand, lookup, lists), expr)
    raise TypeError(f"no value: {expr}")


class WrittenFloat(float):
    """A float literal: compared with a decimal, it is the decimal that is written."""


def plain(value: Value) -> Value:
    """Outside of comparisons and CAST, a decimal is a float and a date is the time of its midnight."""
    if isinstance(value, Decimal | WrittenFloat):
        return float(value)
    return int(value) if isinstance(value, Date) else value


def _entry(held: Value, key: Value) -> Value:
    if held is None or key is None:
        return None
    if isinstance(held, dict):
        return _without_nan(held.get(key))
    return _without_nan(held[key]) if 0 <= key < len(held) else None


def _cast(value: Value, expr: Cast) -> Value:
    if value is None:
        return None
    try:
        return cast(value, expr.target, expr.sizes)
    except CastError:
        if expr.lenient:
            return None
        raise


def _over_lists(call: Call, lists: Lists | None) -> Value:
    """An aggregate, PREV or lineage."""
    if lists is None:
        raise TypeError(f"no lists here: {call.name}")
    if call.name == LINEAGE:
        return lists.lineage(call.arguments[0].name if call.arguments else None)
    (operand,) = call.arguments
    if call.name == PREVIOUS:
        return evaluate(operand, lists.previous, lists)
    elements = lists.elements(names_in(call))
    if call.name == "count" and is_bare(operand):
        return len(elements)
    return _aggregate(call.name, [plain(evaluate(operand, element, lists)) for element in elements])


def _aggregate(name: str, values: list[Value]) -> Value:
    match name:
        case "first":
            return values[0] if values else None
        case "last":
            return values[-1] if values else None
        case "list":
            return tuple(values)
        case "flatten":
            holds_lists = any(isinstance(value, tuple) for value in values)
            return tuple(part for value in values for part in value or ()) if holds_lists else tuple(values)
    present = [value for value in values if value is not None]
    if name == "count":
        return len(present)
    if name == "count_distinct":
        return len(set(present))
    if name == "collect_set":
        return tuple(dict.fromkeys(present))
    if name == "stddev":
        return statistics.stdev(present) if len(present) > 1 else None
    if not present:
        return None
    match name:
        case "sum":
            return sum(present)
        case "avg":
            return sum(present) / len(present)
        case "min":
            return min(present)
        case "max":
            return max(present)
    raise ValueError(f"no aggregate {name}")


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
    if Decimal in (type(left), type(right)):
        left, right = _as_decimals(left, right)
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


def _as_decimals(left: Value, right: Value) -> tuple[Value, Value]:
    """Both as floats if one is a float; a float literal is the decimal that is written."""
    values = [Decimal(repr(value)) if isinstance(value, WrittenFloat) else value for value in (left, right)]
    of = float if any(isinstance(value, float) for value in values) else Decimal
    return of(values[0]), of(values[1])


def _arithmetic(operator: str, left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    left, right = (float(side) if isinstance(side, Decimal) else side for side in (left, right))
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
