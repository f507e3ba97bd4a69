"""The value of an expression on Arrow arrays, with the nulls of SQL.

The expression has passed `check_expression`; the type of the result is the one that it announced. A subexpression
without fields stays one scalar until the very end. Nothing here loops over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.errors import Problem, QueryError, Span
from ensue.expr.check import check_expression
from ensue.expr.functions import FUNCTIONS
from ensue.expr.nodes import (
    ARITHMETIC,
    COMPARISONS,
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
from ensue.expr.types import (
    LARGEST_INTEGER,
    NANOSECONDS_PER_UNIT,
    NUMBERS,
    SMALLEST_INTEGER,
    TIMES,
    Array,
    Kind,
    arithmetic_type,
    arrow,
    common_type,
    constant,
    convert,
    kind_of,
    nan_to_null,
    scalar,
    unit_of,
)

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "=": arrow.equal,
        "!=": arrow.not_equal,
        "<": arrow.less,
        "<=": arrow.less_equal,
        ">": arrow.greater,
        ">=": arrow.greater_equal,
    }
)
_MIRRORED = MappingProxyType({"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="})
_EXACT: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {"+": arrow.add_checked, "-": arrow.subtract_checked, "*": arrow.multiply_checked}
)
_UNKNOWN: Any = pa.scalar(None, pa.bool_())
_NULL: Any = pa.scalar(None, pa.null())


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
            with _overflow("-", expr.span):
                return _negated(_value(operand, rows))
        case Binary("and", left, right):
            return arrow.and_kleene(_condition(left, rows), _condition(right, rows))
        case Binary("or", left, right):
            return arrow.or_kleene(_condition(left, rows), _condition(right, rows))
        case Binary(operator, left, right) if operator in COMPARISONS:
            return _compared(operator, _value(left, rows), _value(right, rows))
        case Binary(operator, left, right) if operator in ARITHMETIC:
            operands = _value(left, rows), _value(right, rows)
            with _overflow(operator, expr.span):
                return _computed(operator, *operands)
        case InList(operand, items, negated):
            return _inverted_if(negated, _is_one_of(_value(operand, rows), items, rows))
        case Between(operand, low, high, negated):
            value = _value(operand, rows)
            above = _compared(">=", value, _value(low, rows))
            below = _compared("<=", value, _value(high, rows))
            return _inverted_if(negated, arrow.and_kleene(above, below))
        case Like(operand, pattern, negated):
            return _inverted_if(negated, _is_like(_value(operand, rows), pattern))
        case IsNull(operand, negated):
            return _inverted_if(negated, arrow.is_null(_value(operand, rows)))
        case Case():
            return _case(expr, rows)
        case Call(name, arguments):
            values = [_value(argument, rows) for argument in arguments]
            with _overflow(name, expr.span):
                return FUNCTIONS[name](*values)
    raise TypeError(f"{type(expr).__name__} has no value; check the expression first")


def _condition(expr: Expr, rows: _Rows) -> Any:
    return convert(_value(expr, rows), pa.bool_())


def _inverted_if(negated: bool, value: Any) -> Any:
    return arrow.invert(value) if negated else value


def _literal(literal: Literal | Duration | Timestamp) -> Any:
    value = scalar(literal)
    if value is None:
        raise QueryError([Problem("number-too-large", "the literal does not fit 64 bits", literal.span)])
    return value


@contextmanager
def _overflow(operator: str, span: Span | None) -> Iterator[None]:
    """Turns what Arrow's checked kernels say into a problem at the operator."""
    try:
        yield
    except pa.ArrowInvalid as overflow:
        raise QueryError([_overflow_problem(operator, span, str(overflow))]) from overflow


def _overflow_problem(operator: str, span: Span | None, detail: str) -> Problem:
    if "timestamp" in detail:
        return Problem(
            "overflow",
            f"a time in `{operator}` does not fit the finer unit of its two sides",
            span,
            "nanoseconds reach from 1677 to 2262",
            "convert the column with the finer unit to a coarser one before the run, say pa.timestamp('us')",
        )
    return Problem(
        "overflow",
        f"the result of `{operator}` does not fit a 64-bit integer",
        span,
        f"beyond {SMALLEST_INTEGER} to {LARGEST_INTEGER}",
        "multiply an operand by 1.0 to compute with floats, or guard it with CASE WHEN",
    )


# --- comparison


def _compared(operator: str, left: Any, right: Any) -> Any:
    kinds = (kind_of(left.type), kind_of(right.type))
    if Kind.NULL in kinds:
        return _UNKNOWN
    if kinds[0] in TIMES:
        return _compared_times(operator, left, right)
    common = common_type((left.type, right.type))
    if common is None:
        raise TypeError(f"{left.type} {operator} {right.type}; check the expression first")
    return _COMPARE[operator](convert(left, common), convert(right, common))


def _compared_times(operator: str, left: Any, right: Any) -> Any:
    """Compares times of any two units exactly: without a cast that could overflow or lose digits."""
    scales = [NANOSECONDS_PER_UNIT[unit_of(value.type)] for value in (left, right)]
    ticks = left.cast(pa.int64()), right.cast(pa.int64())
    if scales[0] == scales[1]:
        return _COMPARE[operator](*ticks)
    if scales[0] > scales[1]:
        return _compared_scaled(operator, ticks[0], ticks[1], scales[0] // scales[1])
    return _compared_scaled(_MIRRORED[operator], ticks[1], ticks[0], scales[1] // scales[0])


def _compared_scaled(operator: str, coarse: Any, fine: Any, scale: int) -> Any:
    """`coarse * scale <operator> fine`; where that overflows, computed on the side of `coarse`.

    `c * k < f` iff `c < ceil(f / k)`, and `c * k <= f` iff `c <= floor(f / k)`; likewise for `>=` and `>`.
    """
    try:
        return _COMPARE[operator](arrow.multiply_checked(coarse, scale), fine)
    except pa.ArrowInvalid:
        return _compared_divided(operator, coarse, fine, scale)


def _compared_divided(operator: str, coarse: Any, fine: Any, scale: int) -> Any:
    quotient = arrow.divide(fine, scale)
    whole = arrow.multiply(quotient, scale)
    if operator in ("=", "!="):
        equal = arrow.and_(arrow.equal(coarse, quotient), arrow.equal(whole, fine))
        return _inverted_if(operator == "!=", equal)
    if operator in ("<", ">="):
        bound = arrow.add(quotient, arrow.less(whole, fine).cast(pa.int64()))
    else:
        bound = arrow.subtract(quotient, arrow.greater(whole, fine).cast(pa.int64()))
    return _COMPARE[operator](coarse, bound)


def _is_one_of(operand: Any, items: Sequence[Expr], rows: _Rows) -> Any:
    """`x = item OR x = item ...`; literals of one type are looked up together."""
    literals: dict[pa.DataType, list[Any]] = {}
    answers = []
    for item in items:
        value = _value(item, rows)
        if isinstance(value, pa.Scalar) and value.is_valid and kind_of(value.type) not in TIMES:
            literals.setdefault(value.type, []).append(value)
        else:
            answers.append(_compared("=", operand, value))
    answers += [_looked_up(operand, pa.array(values, of)) for of, values in literals.items()]
    return reduce(arrow.or_kleene, answers, pa.scalar(False))


def _looked_up(operand: Any, values: Array) -> Any:
    common = common_type((operand.type, values.type))
    if common is None or kind_of(operand.type) is Kind.NULL:
        return _UNKNOWN
    wanted, candidates = convert(operand, common), convert(values, common)
    if pa.types.is_floating(common):
        # A lookup tells -0.0 from 0.0, a comparison does not.
        wanted, candidates = arrow.add(wanted, 0.0), arrow.add(candidates, 0.0)
    found = arrow.is_in(wanted, value_set=candidates)
    if isinstance(wanted, pa.Array) and wanted.null_count == 0:
        return found
    return arrow.if_else(arrow.is_valid(wanted), found, _UNKNOWN)


# --- arithmetic


def _computed(operator: str, left: Any, right: Any) -> Any:
    result = arithmetic_type(operator, left.type, right.type)
    if result is None:
        raise TypeError(f"{left.type} {operator} {right.type}; check the expression first")
    kinds = (kind_of(left.type), kind_of(right.type))
    if Kind.NULL in kinds:
        return _NULL
    if kinds[0] is Kind.TEXT:
        return arrow.binary_join_element_wise(
            convert(left, result), convert(right, result), convert(pa.scalar(""), result)
        )
    if NUMBERS.issuperset(kinds):
        return _computed_numbers(operator, convert(left, result), convert(right, result))
    if operator == "/" and kinds == (Kind.DURATION, Kind.DURATION):
        return _computed_numbers("/", _nanoseconds(left), _nanoseconds(right))
    if operator in ("*", "/"):
        return _scaled_duration(operator, left, right, result)
    unit = unit_of(result)
    return _EXACT[operator](_ticks(left, unit), _ticks(right, unit)).cast(result)


def _computed_numbers(operator: str, left: Any, right: Any) -> Any:
    """Both sides of one type; `/` comes with floats only."""
    whole = pa.types.is_integer(left.type)
    if operator == "%":
        return _integer_remainder(left, right) if whole else _float_remainder(left, right)
    if operator == "/":
        return nan_to_null(arrow.divide(left, _null_if_zero(right)))
    value = _EXACT[operator](left, right)
    return value if whole else nan_to_null(value)


def _null_if_zero(value: Any) -> Any:
    zero = arrow.equal(value, pa.scalar(0, value.type))
    return arrow.if_else(zero, pa.scalar(None, value.type), value)


def _integer_remainder(left: Any, right: Any) -> Any:
    """What truncating division leaves: it has the sign of `left`."""
    # Anything modulo -1 is 0, as modulo 1; but the quotient of the smallest integer and -1 would overflow.
    divisor = arrow.if_else(arrow.equal(right, -1), 1, _null_if_zero(right))
    return arrow.subtract(left, arrow.multiply(arrow.divide(left, divisor), divisor))


def _float_remainder(left: Any, right: Any) -> Any:
    with np.errstate(invalid="ignore"):
        remainder = np.fmod(_numbers(left), _numbers(right))
    # Null travels as NaN, and a division by zero gives NaN.
    if np.ndim(remainder) == 0:
        return nan_to_null(pa.scalar(float(remainder)))
    return pa.array(remainder, from_pandas=True)


def _numbers(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        return np.float64(value.as_py() if value.is_valid else np.nan)
    return value.to_numpy(zero_copy_only=False)


def _negated(value: Any) -> Any:
    kind = kind_of(value.type)
    if kind is Kind.NULL:
        return value
    if kind is Kind.DURATION:
        return arrow.negate_checked(value.cast(pa.int64())).cast(value.type)
    return arrow.negate_checked(value)


# --- times


def _ticks(time: Any, unit: Any) -> Any:
    """A time as an integer of this unit, or ArrowInvalid; of a timestamp with a zone, its instant in UTC."""
    target = pa.duration(unit) if pa.types.is_duration(time.type) else pa.timestamp(unit, time.type.tz)
    return convert(time, target).cast(pa.int64())


def _nanoseconds(duration: Any) -> Any:
    """The length of a duration as a float, which cannot overflow."""
    ticks = convert(duration.cast(pa.int64()), pa.float64())
    return arrow.multiply(ticks, float(NANOSECONDS_PER_UNIT[unit_of(duration.type)]))


def _scaled_duration(operator: str, left: Any, right: Any, result: pa.DataType) -> Any:
    duration, factor = (left, right) if kind_of(left.type) is Kind.DURATION else (right, left)
    ticks = convert(duration, result).cast(pa.int64())
    if operator == "*" and kind_of(factor.type) is Kind.INTEGER:
        return arrow.multiply_checked(ticks, factor).cast(result)
    scaled = _computed_numbers(operator, convert(ticks, pa.float64()), convert(factor, pa.float64()))
    return arrow.round(scaled, ndigits=0, round_mode="half_towards_infinity").cast(pa.int64()).cast(result)


# --- CASE


def _case(expr: Case, rows: _Rows) -> Any:
    pending: Any = pa.scalar(True)
    chosen = []
    for condition, value in expr.branches:
        holds = convert(_guarded(condition, rows, pending), pa.bool_())
        takes = arrow.and_(pending, arrow.fill_null(holds, False))
        chosen.append((takes, _guarded(value, rows, takes)))
        pending = arrow.and_not(pending, takes)
    otherwise = _NULL if expr.default is None else _guarded(expr.default, rows, pending)
    common = common_type([value.type for _, value in chosen] + [otherwise.type])
    if common is None:
        raise TypeError("branches of different kinds; check the expression first")
    with _overflow("CASE", expr.span):
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
            return pa.scalar(None, check_expression(expr, lambda field: rows.column(field).type, []))
        value = _broadcast(_value(expr, selected), selected.length)
        place = arrow.subtract(arrow.cumulative_sum(where.cast(pa.int64())), 1)
        return value.take(arrow.if_else(where, place, pa.scalar(None, pa.int64())))


# --- LIKE


def _is_like(text: Any, pattern: str) -> Any:
    """SQL's LIKE. Common shapes need no regular expression; the others become one that spans lines."""
    if kind_of(text.type) is Kind.NULL:
        return _UNKNOWN
    parts = like_parts(pattern)
    shape = "".join(part if part in _WILDCARDS else "." for part, _ in parts)
    words = "".join(word for _, word in parts)
    match shape:
        case "" | ".":
            return arrow.equal(text, convert(pa.scalar(words), text.type))
        case ".%":
            return arrow.starts_with(text, pattern=words)
        case "%.":
            return arrow.ends_with(text, pattern=words)
        case "%.%":
            return arrow.match_substring(text, pattern=words)
        case "%":
            return arrow.match_substring(text, pattern="")
    expression = "".join(_WILDCARDS.get(part) or _quoted(word) for part, word in parts)
    return arrow.match_substring_regex(text, pattern=rf"(?s)\A{expression}\z")


_WILDCARDS = MappingProxyType({"%": ".*", "_": "."})


def like_parts(pattern: str) -> list[tuple[str, str]]:
    r"""A LIKE pattern as ("%", ""), ("_", "") and ("text", word) in order.

    >>> like_parts(r"a\%b_%")
    [('text', 'a%b'), ('_', ''), ('%', '')]
    """
    parts: list[tuple[str, str]] = []
    characters = iter(pattern)
    for character in characters:
        if character in _WILDCARDS:
            if not (character == "%" and parts and parts[-1][0] == "%"):
                parts.append((character, ""))
            continue
        plain = next(characters, "\\") if character == "\\" else character
        if parts and parts[-1][0] == "text":
            plain = parts.pop()[1] + plain
        parts.append(("text", plain))
    return parts


def _quoted(word: str) -> str:
    # RE2 takes no backslash before letters of other scripts, and none are special there.
    return "".join(
        character if character.isalnum() or ord(character) > 127 else rf"\x{{{ord(character):x}}}" for character in word
    )
