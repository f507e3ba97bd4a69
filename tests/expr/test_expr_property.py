"""Every expression means on Arrow arrays what a row-at-a-time reading of SQL says."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import share
from ensue import QueryError
from inside import (
    Between,
    Binary,
    Call,
    Case,
    Expr,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    Problem,
    Unary,
    condition_mask,
    expression_type,
)
from inside import evaluate_expression as evaluate

COLUMNS: dict[str, pa.DataType] = {
    "i": pa.int64(),
    "j": pa.int64(),
    "x": pa.float64(),
    "y": pa.float64(),
    "s": pa.string(),
    "u": pa.string(),
    "p": pa.bool_(),
    "q": pa.bool_(),
}

# --- the row-at-a-time interpreter


class OverflowFoundError(Exception):
    """An integer left 64 bits."""


def interpret(expr: Expr, row: dict[str, Any]) -> Any:
    match expr:
        case Literal(value):
            return value
        case Field(_, name):
            return row[name]
        case Unary("not", operand):
            value = interpret(operand, row)
            return None if value is None else not value
        case Unary(_, operand):
            value = interpret(operand, row)
            return None if value is None else fitting(-value)
        case Binary("and" | "or", left, right):
            return connective(expr.operator, interpret(left, row), interpret(right, row))
        case Binary(operator, left, right):
            return operation(operator, interpret(left, row), interpret(right, row))
        case InList(operand, items, negated):
            value = interpret(operand, row)
            found: Any = False
            for item in [interpret(item, row) for item in items]:
                found = connective("or", found, operation("=", value, item))
            return inverted(found, negated)
        case Between(operand, low, high, negated):
            value = interpret(operand, row)
            above = operation(">=", value, interpret(low, row))
            below = operation("<=", value, interpret(high, row))
            return inverted(connective("and", above, below), negated)
        case Like(operand, pattern, negated):
            value = interpret(operand, row)
            return None if value is None else inverted(like(value, pattern), negated)
        case IsNull(operand, negated):
            return (interpret(operand, row) is None) is not negated
        case Case(branches, default):
            for condition, result in branches:
                if interpret(condition, row) is True:
                    return interpret(result, row)
            return None if default is None else interpret(default, row)
        case Call(name, arguments):
            return FUNCTIONS[name](*(interpret(argument, row) for argument in arguments))
    raise AssertionError(expr)


def inverted(value: bool | None, negated: bool) -> bool | None:
    return None if value is None else value is not negated


def connective(operator: str, left: bool | None, right: bool | None) -> bool | None:
    decisive = operator == "or"
    if left is decisive or right is decisive:
        return decisive
    return None if left is None or right is None else not decisive


def fitting(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OverflowFoundError
    return None if isinstance(value, float) and math.isnan(value) else value


def operation(operator: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
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
        case "+" | "||":
            return fitting(left + right)
        case "-":
            return fitting(left - right)
        case "*":
            return fitting(left * right)
        case "/":
            return None if right == 0 else fitting(float(left) / float(right))
        case "%":
            return remainder(left, right)
    raise AssertionError(operator)


def remainder(left: Any, right: Any) -> Any:
    if right == 0 or left in (math.inf, -math.inf):
        return None
    if isinstance(left, float):
        return math.fmod(left, right)
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "%":
        return any(like(text[start:], rest) for start in range(len(text) + 1))
    if head == "_":
        return bool(text) and like(text[1:], rest)
    if head == "\\":
        head, rest = rest[0], rest[1:]
    return text[:1] == head and like(text[1:], rest)


def substr(text: str, start: int, count: int | None = None) -> str:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if count is None else first + count
    return "".join(character for at, character in enumerate(text) if first <= at < last)


def rounded(value: Any) -> Any:
    if isinstance(value, int) or math.isinf(value):
        return value
    return float(Decimal(value).quantize(Decimal(1), ROUND_HALF_UP)) if abs(value) < 2**53 else value


def whole(function: Callable[[Any], int]) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, int) or math.isinf(value) else float(function(value))


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: None if None in values else fitting(function(*values))


def unified(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*values: Any) -> Any:
        as_float = any(isinstance(value, float) for value in values)
        return function(*(float(v) if as_float and v is not None else v for v in values))

    return apply


def extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: function((value for value in values if value is not None), default=None)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": strict(abs),
    "sign": strict(lambda value: type(value)((value > 0) - (value < 0))),
    "round": strict(rounded),
    "floor": strict(whole(math.floor)),
    "ceil": strict(whole(math.ceil)),
    "sqrt": strict(lambda value: math.sqrt(value) if value >= 0 else math.nan),
    "length": strict(len),
    "lower": strict(str.lower),
    "upper": strict(str.upper),
    "trim": strict(lambda text: text.strip(" ")),
    "substr": strict(substr),
    "concat": strict(lambda *texts: "".join(texts)),
    "replace": strict(lambda text, old, new: text.replace(old, new) if old else text),
    "startswith": strict(str.startswith),
    "endswith": strict(str.endswith),
    "contains": strict(lambda text, search: search in text),
    "coalesce": unified(lambda *values: next((value for value in values if value is not None), None)),
    "nullif": unified(lambda left, right: None if left == right else left),
    "least": unified(extreme(min)),
    "greatest": unified(extreme(max)),
}

# --- expressions of each kind

letters = st.text("abAB %_\\\n.[ä😀", max_size=4)
patterns = st.lists(st.sampled_from(["%", "_", "\\%", "\\_", "\\\\", "a", "B", "ä", "😀", "\n", ".", "["]), max_size=5)
small = st.integers(-3, 3)
edges = st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1, 2**62])
floats = st.sampled_from([0.0, -0.0, 0.5, -1.5, 2.5, 1e308, -1e308, 3.0, 1e-300, 0.1])


def field(name: str) -> st.SearchStrategy[Expr]:
    return st.just(Field("a", name))


def literal(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Expr]:
    return st.builds(Literal, values)


def call(name: str, *arguments: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(lambda *given: Call(name, given), *arguments)


def choices(of: st.SearchStrategy[Expr], ordered: bool = True) -> st.SearchStrategy[Expr]:
    names = ["coalesce", "nullif", "least", "greatest"] if ordered else ["coalesce", "nullif"]
    return st.builds(lambda name, *given: Call(name, given), st.sampled_from(names), of, of)


def cases(condition: st.SearchStrategy[Expr], of: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    branches = st.lists(st.tuples(condition, of), min_size=1, max_size=2).map(tuple)
    return st.builds(Case, branches, st.none() | of)


null = st.just(Literal(None))
BASE: dict[str, st.SearchStrategy[Expr]] = {
    "integer": field("i") | field("j") | literal(small) | literal(edges),
    "float": field("x") | field("y") | literal(floats),
    "text": field("s") | field("u") | literal(letters),
    "boolean": field("p") | field("q") | literal(st.booleans()),
}


def deeper(of: dict[str, st.SearchStrategy[Expr]]) -> dict[str, st.SearchStrategy[Expr]]:
    integer, number, text, boolean = of["integer"], of["float"], of["text"], of["boolean"]
    either = integer | number
    arithmetic = st.sampled_from(["+", "-", "*", "%"])
    orders = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    constants = literal(letters)
    alternatives = st.sampled_from(["least", "greatest", "coalesce"])
    numeric_calls = ["abs", "sign", "round", "floor", "ceil"]

    def numeric(operand: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.builds(lambda name, given: Call(name, (given,)), st.sampled_from(numeric_calls), operand)

    def compared(operand: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        other = operand | null
        return (
            st.builds(Binary, orders, operand, other)
            | st.builds(Between, operand, other, operand, st.booleans())
            | st.builds(InList, operand, st.lists(other, min_size=1, max_size=4).map(tuple), st.booleans())
        )

    return {
        "integer": BASE["integer"]
        | st.builds(Unary, st.just("-"), integer)
        | st.builds(Binary, arithmetic, integer, integer)
        | numeric(integer)
        | call("length", text)
        | choices(integer)
        | cases(boolean, integer),
        "float": BASE["float"]
        | st.builds(Unary, st.just("-"), number)
        | st.builds(Binary, arithmetic, number, either)
        | st.builds(Binary, arithmetic, either, number)
        | st.builds(Binary, st.just("/"), either, either)
        | numeric(number)
        | call("sqrt", either)
        | st.builds(lambda name, *given: Call(name, given), alternatives, either, literal(floats))
        | choices(number)
        | cases(boolean, number),
        "text": BASE["text"]
        | st.builds(Binary, st.just("||"), text, text)
        | st.builds(lambda name, given: Call(name, (given,)), st.sampled_from(["lower", "upper", "trim"]), text)
        | call("substr", text, literal(st.integers(-5, 5)))
        | call("substr", text, literal(st.integers(-5, 5)), literal(st.integers(-1, 5)))
        | call("concat", text, text, text)
        | call("replace", text, constants, constants)
        | choices(text)
        | cases(boolean, text),
        "boolean": BASE["boolean"]
        | st.builds(Binary, st.sampled_from(["and", "or"]), boolean | null, boolean)
        | st.builds(Unary, st.just("not"), boolean)
        | compared(either)
        | compared(text)
        | st.builds(Binary, st.sampled_from(["=", "!="]), boolean, boolean | null)
        | st.builds(Like, text, patterns.map("".join), st.booleans())
        | st.builds(IsNull, either | text | boolean, st.booleans())
        | st.builds(
            lambda name, *given: Call(name, given),
            st.sampled_from(["startswith", "endswith", "contains"]),
            text,
            constants,
        )
        | choices(boolean, ordered=False)
        | cases(boolean, boolean),
    }


EXPRESSIONS = deeper(deeper(BASE))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": small | edges,
    "j": small,
    "x": floats,
    "y": floats,
    "s": letters,
    "u": letters,
    "p": st.booleans(),
    "q": st.booleans(),
}
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), min_size=1, max_size=5
)
expressions = st.one_of(*EXPRESSIONS.values())


def expected(expr: Expr, table: list[dict[str, Any]]) -> list[Any] | None:
    try:
        return [interpret(expr, row) for row in table]
    except OverflowFoundError:
        return None


@share(4)
@given(expressions, rows)
def test_arrow_agrees_with_the_interpreter(expr: Expr, table: list[dict[str, Any]]) -> None:
    columns = {name: pa.array([row[name] for row in table], of) for name, of in COLUMNS.items()}
    problems: list[Problem] = []
    announced = expression_type(expr, lambda field: COLUMNS[field.name], problems)
    if problems:
        # `-(-9223372036854775808)` is seen before any row is.
        assert {problem.code for problem in problems} == {"number-too-large"}
        return
    wanted = expected(expr, table)
    if wanted is None:
        with pytest.raises(QueryError, match="overflow"):
            evaluate(expr, lambda field: columns[field.name], len(table))
        return
    value = evaluate(expr, lambda field: columns[field.name], len(table))
    value.validate(full=True)
    assert value.type == announced
    assert len(value) == len(table)
    assert value.to_pylist() == wanted
    if pa.types.is_boolean(value.type):
        mask = condition_mask(expr, lambda field: columns[field.name], len(table))
        assert mask.tolist() == [answer is True for answer in wanted]
