"""The value of an expression on Arrow arrays, with the nulls of SQL.

The expression has passed `check_expression`; the type of the result is the one that it announced. A subexpression
without fields stays one scalar until the very end. Nothing here loops over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import Problem, QueryError
from ensue.expr.aggregates import AGGREGATES
from ensue.expr.calculations import call_function
from ensue.expr.checked_types import expression_type
from ensue.expr.functions import FUNCTIONS
from ensue.expr.kinds import TIMES, Kind, constant
from ensue.expr.like import is_like
from ensue.expr.operators import NULL, UNKNOWN, compared, computed, inverted_if, negative, overflow
from ensue.expr.reductions import aggregated, gathered
from ensue.expr.types import Array, arrow, common_type, convert, kind_of, scalar
from ensue.nodes.expressions import (
    ARITHMETIC,
    COMPARISONS,
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
    Timestamp,
    Unary,
)


def evaluate(expr: Expr, column: Callable[[Field], Array], length: int) -> Array:
    """The value of a checked expression for each of `length` rows; `column` gives the readable array of a field.

    >>> amounts = pa.array([10, None, 30])
    >>> evaluate(Binary(">", Field("a", "amount"), Literal(20)), lambda field: amounts, 3).to_pylist()
    [False, None, True]
    """
    return _broadcast(_value(expr, _Rows(column, length)), length)


def condition_mask(expr: Expr, column: Callable[[Field], Array], length: int) -> npt.NDArray[np.bool_]:
    """The rows on which a checked condition holds; null does not hold.

    >>> amounts = pa.array([10, None, 30])
    >>> condition_mask(Binary(">", Field("a", "amount"), Literal(20)), lambda field: amounts, 3).tolist()
    [False, False, True]
    """
    holds = _condition(expr, _Rows(column, length))
    if isinstance(holds, pa.Scalar):
        return np.full(length, holds.as_py() is True)
    validity, bits = holds.buffers()
    mask = _unpacked(bits, holds)
    return mask & _unpacked(validity, holds) if holds.null_count else mask


def _unpacked(bitmap: Any, array: Array) -> npt.NDArray[np.bool_]:
    # Arrow's own conversion takes eight times as long.
    bits = np.frombuffer(bitmap, np.uint8) if bitmap is not None else np.empty(0, np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)


@dataclass(frozen=True, slots=True)
class _Rows:
    column: Callable[[Field], Array]
    length: int

    def where(self, mask: Array) -> _Rows:
        """Only the rows where the mask is true."""
        return _Rows(lambda field: self.column(field).filter(mask), arrow.sum(mask, min_count=0).as_py())


def _broadcast(value: Any, length: int) -> Array:
    if not isinstance(value, pa.Scalar):
        return cast(Array, value)
    one: Any = value
    return cast(Array, pa.repeat(one, length))


def _value(expr: Expr, rows: _Rows) -> Any:
    literal = constant(expr)
    if literal is not None:
        return _literal(literal)
    match expr:
        case Field():
            return rows.column(expr)
        case Unary("not", operand):
            return arrow.invert(_condition(operand, rows))
        case Unary(_, operand):
            with overflow("-", expr.span):
                return negative(_value(operand, rows))
        case Binary("and", left, right):
            return arrow.and_kleene(_condition(left, rows), _condition(right, rows))
        case Binary("or", left, right):
            return arrow.or_kleene(_condition(left, rows), _condition(right, rows))
        case Binary(operator, left, right) if operator in COMPARISONS:
            return compared(operator, _value(left, rows), _value(right, rows))
        case Binary(operator, left, right) if operator in ARITHMETIC:
            operands = _value(left, rows), _value(right, rows)
            with overflow(operator, expr.span):
                return computed(operator, *operands)
        case InList(operand, items, negated):
            return inverted_if(negated, _is_one_of(_value(operand, rows), items, rows))
        case Between(operand, low, high, negated):
            value = _value(operand, rows)
            above = compared(">=", value, _value(low, rows))
            below = compared("<=", value, _value(high, rows))
            return inverted_if(negated, arrow.and_kleene(above, below))
        case Like(operand, pattern, negated):
            return inverted_if(negated, is_like(_value(operand, rows), pattern))
        case IsNull(operand, negated):
            return inverted_if(negated, arrow.is_null(_value(operand, rows)))
        case Case():
            return _case(expr, rows)
        case Gather(elements, given):
            columns = [_broadcast(_value(element, rows), rows.length) for element in elements]
            with overflow("list", expr.span):
                lists = gathered(columns)
            if given is None:
                return lists
            present = _broadcast(_condition(given, rows), rows.length)
            return arrow.if_else(arrow.fill_null(present, False), lists, pa.scalar(None, lists.type))
        case Elements(_, of):
            raise AssertionError(f"the list over `{of}` has to be replaced before anything is evaluated")
        case Call(name, (argument,)) if name in AGGREGATES:
            lists = _broadcast(_value(argument, rows), rows.length)
            with overflow(name, expr.span):
                return aggregated(AGGREGATES[name], lists, argument.name if isinstance(argument, Field) else name)
        case Call(name, arguments):
            values = [_value(argument, rows) for argument in arguments]
            with overflow(name, expr.span):
                return call_function(FUNCTIONS[name], values)
    raise TypeError(f"{type(expr).__name__} has no value; check the expression first")


def _condition(expr: Expr, rows: _Rows) -> Any:
    return convert(_value(expr, rows), pa.bool_())


def _literal(literal: Literal | Duration | Timestamp) -> Any:
    value = scalar(literal)
    if value is None:
        raise QueryError([Problem("number-too-large", "the literal does not fit 64 bits", literal.span)])
    return value


# --- IN


def _is_one_of(operand: Any, items: Sequence[Expr], rows: _Rows) -> Any:
    """`x = item OR x = item ...`; literals of one type are looked up together."""
    literals: dict[pa.DataType, list[Any]] = {}
    answers = []
    for item in items:
        value = _value(item, rows)
        if isinstance(value, pa.Scalar) and value.is_valid and kind_of(value.type) not in TIMES:
            literals.setdefault(value.type, []).append(value)
        else:
            answers.append(compared("=", operand, value))
    answers += [_looked_up(operand, pa.array(values, of)) for of, values in literals.items()]
    return reduce(arrow.or_kleene, answers, pa.scalar(False))


def _looked_up(operand: Any, values: Array) -> Any:
    common = common_type((operand.type, values.type))
    if common is None or kind_of(operand.type) is Kind.NULL:
        return UNKNOWN
    wanted, candidates = convert(operand, common), convert(values, common)
    if pa.types.is_floating(common):
        # A lookup tells -0.0 from 0.0, a comparison does not.
        wanted, candidates = arrow.add(wanted, 0.0), arrow.add(candidates, 0.0)
    found = arrow.is_in(wanted, value_set=candidates)
    if isinstance(wanted, pa.Array) and wanted.null_count == 0:
        return found
    return arrow.if_else(arrow.is_valid(wanted), found, UNKNOWN)


# --- CASE


def _case(expr: Case, rows: _Rows) -> Any:
    pending: Any = pa.scalar(True)
    chosen = []
    for condition, value in expr.branches:
        holds = convert(_guarded(condition, rows, pending), pa.bool_())
        takes = arrow.and_(pending, arrow.fill_null(holds, False))
        chosen.append((takes, _guarded(value, rows, takes)))
        pending = arrow.and_not(pending, takes)
    otherwise = NULL if expr.default is None else _guarded(expr.default, rows, pending)
    common = common_type([value.type for _, value in chosen] + [otherwise.type])
    if common is None:
        raise TypeError("branches of different kinds; check the expression first")
    with overflow("CASE", expr.span):
        values = [(takes, convert(value, common)) for takes, value in chosen]
        result = convert(otherwise, common)
    for takes, value in reversed(values):
        result = arrow.if_else(takes, value, result)
    return result


def _guarded(expr: Expr, rows: _Rows, mask: Any) -> Any:
    """The value where the mask is true; an overflow elsewhere does not count.

    CASE is how a query guards against overflow, but few need it: all rows at once is tried first, being faster.
    """
    try:
        return _value(expr, rows)
    except QueryError:
        where = _broadcast(mask, rows.length)
        selected = rows.where(where)
        if selected.length == 0:
            return pa.scalar(None, expression_type(expr, lambda field: rows.column(field).type, []))
        value = _broadcast(_value(expr, selected), selected.length)
        place = arrow.subtract(arrow.cumulative_sum(where.cast(pa.int64())), 1)
        return value.take(arrow.if_else(where, place, pa.scalar(None, pa.int64())))
