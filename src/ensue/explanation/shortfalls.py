"""What a near miss lacks: the value that failed a condition, what was needed, and the difference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.output import value_of
from ensue.engine.rows import MatchChunk
from ensue.engine.sources import Mask
from ensue.explanation.near_misses import length_in_words, moment_in_words
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.nodes.expressions import (
    COMPARISONS,
    Between,
    Binary,
    Expr,
    Field,
    InList,
    InTable,
    IsNull,
    Like,
    Same,
    substitute_fields,
    walk,
)
from ensue.nodes.names import Name, called
from ensue.nodes.patterns import Lookup
from ensue.plan.requirements import column_in_words
from ensue.text.render_parts import render_expression, render_test
from ensue.text.values import shorten

Floats = npt.NDArray[np.float64]
ExprT = TypeVar("ExprT", bound=Expr)

MOST_LETTERS = 80
"""The number of characters that are shown of a value."""

MOST_FIELDS = 4
"""The number of fields that are shown of a condition that has no single value to show."""

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a choice had and what it needed, as texts; `text` says both, and the difference."""

    text: str
    had: str = ""
    needed: str = ""


def joined(found: Iterable[Shortfall]) -> Shortfall:
    """Combine what several conditions lack."""
    parts = [*found]
    had, needed = (", ".join(texts) for texts in ([one.had for one in parts], [one.needed for one in parts]))
    return Shortfall("; ".join(one.text for one in parts), had, needed)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A condition that compares the value of `operand` with `limits`: none, one, or the two of BETWEEN."""

    condition: Expr
    operand: Expr
    limits: tuple[Expr, ...] = ()

    @property
    def rejects(self) -> bool:
        """Whether the value is exactly what it must not be, so that no difference says how close it is."""
        condition = self.condition
        return (isinstance(condition, Binary) and condition.operator == "!=") or (
            isinstance(condition, Between) and condition.negated
        )

    @property
    def is_equality(self) -> bool:
        return isinstance(self.condition, Binary) and self.condition.operator == "="


def judgement_of(condition: Expr) -> Judgement | None:
    """Return what a condition compares, with a constant on the right; None if it compares no single value."""
    match condition:
        case Binary(operator, left, right) if operator in COMPARISONS:
            if _is_constant(left) and not _is_constant(right):
                left, right = right, left
                condition = replace(condition, operator=MIRRORED[operator], left=left, right=right)
            return Judgement(condition, left, (right,))
        case Between(operand, low, high):
            return Judgement(condition, operand, (low, high))
        case Like(operand) | InList(operand) | InTable(operand) | IsNull(operand):
            return Judgement(condition, operand)
    return None


def _is_constant(expression: Expr) -> bool:
    return not any(isinstance(part, Field) for part in walk(expression))


@dataclass(frozen=True, slots=True)
class Lack:
    """How far choices are from a condition: where it `holds`, the `distance` to what is needed, and its `share` of the
    amount that is needed. Both are infinite where they are unknown. Lengths of time are in ticks."""

    holds: Mask
    distance: Floats
    share: Floats


def lack_of(condition: Expr, chunk: MatchChunk, tick: int = 1) -> Lack:
    """Measure all choices of a chunk against one condition. A tick has `tick` nanoseconds."""
    holds = np.asarray(pc.fill_null(value_of(condition, chunk).cast(pa.bool_()), False))
    unknown = np.full(len(holds), np.inf)
    judgement = judgement_of(condition)
    if judgement is None or not judgement.limits or judgement.rejects:
        return Lack(holds, unknown, unknown)
    value = value_of(judgement.operand, chunk)
    apart = [_differences(value, value_of(limit, chunk)) for limit in judgement.limits]
    known = [found for found in apart if found is not None]
    if len(known) < len(apart):
        return Lack(holds, unknown, unknown)
    if len(known) == 1:
        distance, amount = np.abs(known[0].value), known[0].amount
    else:
        below, above = -known[0].value, known[1].value
        distance, amount = np.maximum(below, above), np.where(below > above, known[0].amount, known[1].amount)
        distance = np.maximum(distance, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(distance == 0, 0.0, np.where(amount > 0, distance / amount, np.inf))
    if judgement.is_equality:
        share = unknown  # numbers that must be equal are often identifiers: a small difference says nothing
    if _is_timed(value):
        distance = distance / tick
    return Lack(holds, *(np.where(np.isnan(found), np.inf, found) for found in (distance, share)))


def _is_timed(side: pa.Array) -> bool:
    return bool(pa.types.is_timestamp(side.type) or pa.types.is_duration(side.type))


@dataclass(frozen=True, slots=True)
class _Differences:
    """By how much values exceed limits, and the amounts of the limits; NaN where they are unknown."""

    value: Floats
    amount: Floats


def _differences(value: pa.Array, limit: pa.Array) -> _Differences | None:
    """Return by how much values exceed limits; None if they are not numbers, durations or times."""
    if all(pa.types.is_timestamp(side.type) for side in (value, limit)):
        # How far a time is from 1970 says nothing about how close two times are.
        return _Differences(_minus(_in_nanoseconds(value), _in_nanoseconds(limit)), np.full(len(value), np.nan))
    if all(pa.types.is_duration(side.type) for side in (value, limit)):
        value, limit = _in_nanoseconds(value), _in_nanoseconds(limit)
    if not all(pa.types.is_int64(side.type) or pa.types.is_float64(side.type) for side in (value, limit)):
        return None
    return _Differences(_minus(value, limit), np.abs(_floats(limit)))


def _minus(one: pa.Array, other: pa.Array) -> Floats:
    """Subtract numbers: integers exactly, then rounded, so that large ones that differ by little stay apart."""
    if not (pa.types.is_int64(one.type) and pa.types.is_int64(other.type)):
        return _floats(one) - _floats(other)
    left, right = (np.asarray(pc.fill_null(side, 0)) for side in (one, other))
    apart = np.maximum(left, right).view(np.uint64) - np.minimum(left, right).view(np.uint64)
    known = np.asarray(pc.and_(one.is_valid(), other.is_valid()))
    found: Floats = np.where(known, np.where(left < right, -1.0, 1.0) * apart, np.nan)
    return found


def _floats(side: pa.Array) -> Floats:
    numbers: Floats = np.asarray(side.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return numbers


def _in_nanoseconds(side: pa.Array) -> pa.Array:
    """Return times or durations as numbers: integers, or floats where nanoseconds since 1970 do not fit."""
    size, whole = NANOSECONDS_PER_UNIT[side.type.unit], side.cast(pa.int64())
    try:
        return pc.multiply_checked(whole, pa.scalar(size, pa.int64()))
    except pa.ArrowInvalid:
        return pc.multiply(whole.cast(pa.float64(), safe=False), float(size))


# --- as text


def shown(value: pa.Array, most: int = MOST_LETTERS) -> str:
    """Format the first value of an array in at most `most` characters.

    >>> shown(pa.array(["a" * 9]), 6), shown(pa.array([None])), shown(pa.array([90], pa.duration("s")))
    ("'aa...", 'null', '1m 30s')
    """
    found = _plain(value)
    if found is None:
        return "null"
    if isinstance(found, bool):
        return str(found).upper()
    if pa.types.is_duration(value.type):
        return length_in_words(found, pa.timestamp(value.type.unit))
    if pa.types.is_timestamp(value.type):
        return moment_in_words(found, value.type)
    return shorten(repr(found) if isinstance(found, str | bytes) else str(found), most)


def _plain(value: pa.Array) -> Any:
    """Return the first value of an array; a time or a duration as a number in its unit."""
    return (value.cast(pa.int64()) if _is_timed(value) else value)[0].as_py()


@dataclass(frozen=True, slots=True)
class Inspection:
    """Describes what the single choice of a chunk lacks. `names` are its variables that a user can name."""

    one: MatchChunk
    names: tuple[Name, ...]
    lookups: tuple[Lookup, ...]

    def shortfall(self, condition: Expr) -> Shortfall | None:
        """Describe how the choice fails a condition; None if it does not."""
        if isinstance(condition, Same):
            return self._unequal(condition)
        if lack_of(condition, self.one).holds[0]:
            return None
        judgement = judgement_of(condition)
        if judgement is None:
            return self._fields(condition)
        value, limits = self._value(judgement.operand), [self._value(limit) for limit in judgement.limits]
        if any(pa.types.is_nested(side.kind) for side in (value, *limits)):
            return self._fields(condition)
        if isinstance(judgement.condition, Binary):
            return _compared(judgement.condition.operator, value, limits[0])
        assert isinstance(condition, Between | InList | InTable | Like | IsNull)
        needed, by = shorten(render_test(self._in_words(condition)), MOST_LETTERS), ""
        if isinstance(condition, Between):
            low, high = limits
            if not (low.is_constant and high.is_constant):
                needed += f" ({low.text} and {high.text})"
            if not condition.negated:
                by = value.short_of(low, "short") or high.short_of(value, "over")
        return _needs(value, needed, by)

    def _unequal(self, condition: Same) -> Shortfall | None:
        """Describe the fields that differ between the variables, or are null."""
        told: list[str] = []
        for name in condition.fields:
            values = [self._value(Field(variable, name)) for variable in self.names]
            if len({repr(value.value) for value in values}) > 1 or any(value.value is None for value in values):
                told += [f"{value.name} = {value.text}" for value in values]
        return Shortfall(f"{_few(told)}, not the same", _few(told), render_expression(condition)) if told else None

    def _fields(self, condition: Expr) -> Shortfall:
        """Show the values of the fields in a condition that no single value decides."""
        fields = dict.fromkeys(part for part in walk(condition) if isinstance(part, Field) and part.variable)
        had = _few([f"{value.name} = {value.text}" for value in map(self._value, fields)])
        return Shortfall(had, had, shorten(render_expression(self._in_words(condition)), MOST_LETTERS))

    def _value(self, expression: Expr) -> _Value:
        found = value_of(expression, self.one)
        name = self._column(expression) if isinstance(expression, Field) else ""
        words = name or shorten(render_expression(self._in_words(expression)), MOST_LETTERS)
        return _Value(words, shown(found), _plain(found), found.type, _is_constant(expression))

    def _column(self, wanted: Field) -> str:
        assert wanted.variable is not None
        stream = self.one.space.streams.get(wanted.variable)
        return f"{called(wanted.variable)}.{column_in_words(wanted.name, stream, self.lookups)}"

    def _in_words(self, expression: ExprT) -> ExprT:
        """Return the expression with the names of variables that the user knows."""

        def worded(wanted: Field) -> Field:
            return wanted if wanted.variable is None else replace(wanted, variable=called(wanted.variable))

        return cast(ExprT, substitute_fields(expression, worded))


def _few(told: Sequence[str]) -> str:
    return ", ".join([*told[:MOST_FIELDS], *(["..."] if len(told) > MOST_FIELDS else [])])


@dataclass(frozen=True, slots=True)
class _Value:
    """The value of an expression in a choice; a time or a duration is a number in the unit of `kind`."""

    name: str
    text: str
    value: Any
    kind: pa.DataType
    is_constant: bool

    def short_of(self, other: _Value, word: str) -> str:
        """Say by how much a value is less than another, such as `10 short`; empty if it is not less."""
        apart = self.missing_to(other)
        return f"{apart} {word}" if apart and not apart.startswith("-") else ""

    def missing_to(self, other: _Value) -> str:
        """Format by how much a value is less than another; empty if they are equal or not numbers or times."""
        sides = (self, other)
        if any(side.value is None for side in sides):
            return ""
        for is_kind in (pa.types.is_timestamp, pa.types.is_duration):
            if all(is_kind(side.kind) for side in sides):
                mine, others = (side.value * NANOSECONDS_PER_UNIT[side.kind.unit] for side in sides)
                return length_in_words(others - mine, pa.timestamp("ns")) if others != mine else ""
        if not all(side.kind in (pa.int64(), pa.float64()) and math.isfinite(side.value) for side in sides):
            return ""
        return _number(Decimal(repr(other.value)) - Decimal(repr(self.value)))


def _number(apart: Decimal) -> str:
    if not apart:
        return ""
    return f"{apart.normalize():f}" if -12 < apart.adjusted() < 20 else f"{float(apart):g}"


def _compared(operator: str, value: _Value, limit: _Value) -> Shortfall:
    """Describe a comparison that is false: `a.amount = 990, needs > 1000, 10 short`."""
    apart = value.missing_to(limit)
    size = apart.lstrip("-")
    if operator in ("=", "!="):
        by = f"{size} apart" if size else ""
        if limit.is_constant:
            return _needs(value, f"{operator} {limit.text}", by)
        had = f"{value.name} = {value.text}, {limit.name} = {limit.text}"
        how = "equal" if operator == "!=" else "not equal"
        how = "null equals nothing" if None in (value.value, limit.value) else how
        return Shortfall(", ".join(filter(None, (had, how, by))), had, f"{operator} {limit.name}")
    needed = f"{operator} {limit.text}" + ("" if limit.is_constant else f" ({limit.name})")
    if size:
        return _needs(value, needed, f"{size} {'over' if apart.startswith('-') else 'short'}")
    return _needs(value, needed, "equal is not enough" if value.value == limit.value is not None else "")


def _needs(value: _Value, needed: str, by: str) -> Shortfall:
    had = f"{value.name} = {value.text}"
    return Shortfall(f"{had}, needs {needed}" + (f", {by}" if by else ""), had, needed)
