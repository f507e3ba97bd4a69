"""Build the filter for rows that queries can use, which Spark pushes down to its files.

The filter may keep rows that the engine rejects, because the engine filters again; it never drops a row that the
engine accepts. A condition without an exact counterpart in Spark counts as true (None here). This is safe because
`NOT` is first moved inwards to the atoms. The filter cannot fail on a row: it has no arithmetic and casts no column.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import reduce
from math import ceil, floor
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from ensue.analysis.catalog import StreamSchema
from ensue.engine.retention import Bounds
from ensue.expr.kinds import LARGEST_INTEGER, NANOSECONDS_PER_UNIT, SMALLEST_INTEGER, Kind, constant
from ensue.expr.operators import like_parts
from ensue.expr.types import kind_of, own_type, readable_type
from ensue.nodes import expressions
from ensue.nodes.names import AnyEvent, Stream
from ensue.nodes.uncertainty import CERTAINTY
from ensue.plan.inputs import InputTable
from ensue.plan.plans import QueryPlan
from ensue.plan.selections import ELEMENT, INDEX

Demands = Mapping[Stream, Mapping[tuple[expressions.Expr, ...], None]]
"""The conditions on the rows of each stream: one conjunction per variable, as the keys of an ordered set."""

Constant = expressions.Literal | expressions.Duration | expressions.Timestamp
"""The results of `constant`."""

_COMPARE: Mapping[str, Callable[[Any, Any], Column]] = MappingProxyType(
    {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
)
_NEGATED = MappingProxyType({"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"})
_MIRRORED = MappingProxyType({"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="})
_TICKS: Mapping[type[T.DataType], int] = MappingProxyType(
    {
        T.DateType: 86_400 * NANOSECONDS_PER_UNIT["s"],
        T.TimestampType: NANOSECONDS_PER_UNIT["us"],
        T.TimestampNTZType: NANOSECONDS_PER_UNIT["us"],
    }
)
"""Nanoseconds between neighbouring values of Spark's time types."""
MOST_LISTED = 1000
"""The number of values of a TABLE up to which a lookup is pushed down."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key of CHAR(n) columns: Spark pads literals that are compared with such a column."""


def needed_rows(plans: Sequence[QueryPlan], item: InputTable, schema: T.StructType) -> Column | None:
    """Return the condition for rows that some plan can use, or None if all can be used.

    `item` describes the DataFrame with an empty table of its Arrow schema; `schema` is its Spark schema. A plan can use
    a row that has its times and the partition keys, and can be one of the plan's events, forbidden ones included.
    A plan that counts events needs every row.
    """
    if any(plan.counting for plan in plans):
        return None
    rows = _Rows(item, schema)
    by_keys: dict[tuple[str, ...], dict[Stream, dict[tuple[expressions.Expr, ...], None]]] = {}
    for plan in plans:
        demands = by_keys.setdefault(plan.query.partition_by, {})
        for stream, predicates in _variables(plan, item):
            demands.setdefault(stream, {})[predicates] = None
    arms = [rows.with_keys(keys, demands) for keys, demands in by_keys.items() if demands]
    times = [column(name).isNotNull() for name in dict.fromkeys((item.time, item.end)) if name is not None]
    return _all_of([*times, _any_of(arms)])


def rows_between(bounds: Bounds, item: InputTable, schema: T.StructType, time_type: pa.DataType) -> Column | None:
    """Return the condition for rows that can be within the bounds, in ticks of `time_type`; None if all can."""
    end = item.end or item.time
    compared = dict.fromkeys(
        [
            (">", item.time, bounds.start_after),
            (">", end, bounds.end_after),
            ("<=", item.time, bounds.until),
            ("<=", end, bounds.until),
        ]
    )
    return _all_of(
        _compared_ticks(comparison, _Cell(column(name), schema[name]), moment, time_type)
        for comparison, name, moment in compared
        if moment is not None
    )


def _compared_ticks(comparison: str, cell: _Cell, moment: int, time_type: pa.DataType) -> Column | None:
    if isinstance(cell.type, T.IntegralType):
        return _compared_place(comparison, cell, Fraction(moment))
    if type(cell.type) not in _TICKS or not pa.types.is_timestamp(time_type):
        return None
    nanoseconds = moment * NANOSECONDS_PER_UNIT[time_type.unit]
    return _compared_place(comparison, cell, Fraction(nanoseconds, _TICKS[type(cell.type)]))


def column(name: str) -> Column:
    """Return the top-level column with this name, which may contain any characters."""
    return F.col(f"`{name.replace('`', '``')}`")


def in_streams(item: InputTable, streams: Sequence[Stream]) -> Column:
    """Return the condition that a row of a table with a type column belongs to one of the streams."""
    assert item.type is not None
    name = column(item.type)
    if kind_of(readable_type(item.table.schema.field(item.type).type)) is not Kind.TEXT:
        name = name.cast("string")
    plain = [stream for stream in streams if not isinstance(stream, AnyEvent)]
    kinds = dict.fromkeys(kind for stream in plain for kind in item.hierarchy.kinds_of(stream))
    named = [kind for kind in kinds if isinstance(kind, str)]
    arms: list[Column | None] = [name.isin(*named)] if named else []
    for stream in streams:
        if isinstance(stream, AnyEvent):
            others = stream.excluded
            arms.append(name.isNotNull() & ~name.isin(*others) if others else name.isNotNull())
    found = _any_of(arms)
    assert found is not None
    return found


def _variables(plan: QueryPlan, item: InputTable) -> Iterable[tuple[Stream, tuple[expressions.Expr, ...]]]:
    """Yield the stream and predicates of every variable whose events can be in the table, and all watched streams."""
    for graph in plan.graphs:
        for inner in graph.with_inner():
            for variable in inner.graph.variables:
                if item.holds(variable.stream):
                    asked = [part for part in variable.predicates if not _is_about_certainty(part)]
                    if variable.stream in item.all_views:
                        yield variable.stream, item.all_views[variable.stream].demands(asked)
                        continue
                    for kind in item.hierarchy.kinds_of(variable.stream):
                        yield kind, tuple(map(expressions.anonymous_predicate, asked))
    for stream in plan.watched:
        if item.holds(stream):
            yield stream, item.all_views[stream].demands(()) if stream in item.all_views else ()


def _is_about_certainty(predicate: expressions.Expr) -> bool:
    """Return True if a predicate is about the probability of an event, which is only known after it is checked."""
    return any(isinstance(part, expressions.Field) and part.name == CERTAINTY for part in expressions.walk(predicate))


# --- conditions; None is always true


def _all_of(conditions: Iterable[Column | None]) -> Column | None:
    known = [condition for condition in conditions if condition is not None]
    return reduce(operator.and_, known) if known else None


def _any_of(conditions: Iterable[Column | None]) -> Column | None:
    known: list[Column] = []
    for condition in conditions:
        if condition is None:
            return None
        known.append(condition)
    return reduce(operator.or_, known) if known else _never()


def _never() -> Column:
    return F.lit(False)


# --- rows


@dataclass(frozen=True, slots=True)
class _Cell:
    """A column of the DataFrame and its type."""

    column: Column
    field: T.StructField

    @property
    def type(self) -> T.DataType:
        return self.field.dataType

    @property
    def is_plain(self) -> bool:
        """Return True if Spark compares the values as the engine does."""
        if type(self.type) is T.StringType:
            return self.type.isUTF8BinaryCollation() and _CHAR_TYPE not in (self.field.metadata or {})
        return (
            isinstance(self.type, T.BooleanType | T.IntegralType) or _is_float(self.type) or type(self.type) in _TICKS
        )

    def is_missing(self, negated: bool) -> Column:
        """Return where the engine reads null, which includes NaN."""
        if not _is_float(self.type):
            return self.column.isNotNull() if negated else self.column.isNull()
        if negated:
            return self.column.isNotNull() & ~F.isnan(self.column)
        return self.column.isNull() | F.isnan(self.column)


def _is_float(kind: T.DataType) -> bool:
    return isinstance(kind, T.FloatType | T.DoubleType)


class _Rows:
    """The rows of one DataFrame as events."""

    def __init__(self, item: InputTable, schema: T.StructType) -> None:
        self.item = item
        self.schema = schema
        fields = {field.name: own_type(readable_type(field.type)) for field in item.table.schema}
        self.names = StreamSchema(item.stream or "*", fields, item.time, item.end)

    def cell(self, name: str) -> _Cell:
        """Return the column for a name in a query; `s`, `e` and `t` mean the time columns."""
        side = self.names.endpoint(name)
        if side is not None:
            name = self.item.end if side == "e" and self.item.end is not None else self.item.time
        return _Cell(column(name), self.schema[name])

    def cell_of(self, expr: expressions.Expr) -> _Cell | None:
        """Return the column of a field, of a field of a struct, or of an entry of a list or map; None for the rest."""
        match expr:
            case expressions.Field(_, name):
                return None if name in (ELEMENT, INDEX) else self.cell(name)
            case expressions.Member(operand, name):
                inner = self.cell_of(operand)
                return None if inner is None else _member(inner, name)
            case expressions.Entry(operand, expressions.Literal(int() | str() as key)):
                inner = self.cell_of(operand)
                return None if inner is None else _entry(inner, key)
        return None

    def with_keys(self, keys: tuple[str, ...], demands: Demands) -> Column | None:
        """Return the condition for rows that have these keys and meet the demands of some stream."""
        copied = [key for key in keys if all(view.copies(key) for view in self.item.all_views.values())]
        present = [self.cell(key).is_missing(negated=True) for key in copied]
        return _all_of([*present, self.of_streams(demands)])

    def of_streams(self, demands: Demands) -> Column | None:
        """Return the condition for rows that meet the demands of some stream."""
        accepted = {stream: self._of_variables(choices) for stream, choices in demands.items()}
        if self.item.type is None:
            return _any_of(accepted.values())
        if any(stream in self.item.all_views for stream in accepted):
            return _any_of(
                condition if stream in self.item.all_views else _all_of([in_streams(self.item, [stream]), condition])
                for stream, condition in accepted.items()
            )
        names = in_streams(self.item, list(accepted))
        if len(accepted) == 1:
            return _all_of([names, *accepted.values()])
        whole = [stream for stream, condition in accepted.items() if condition is None]
        arms = [
            in_streams(self.item, [stream]) & condition
            for stream, condition in accepted.items()
            if condition is not None
        ]
        if whole and arms:
            arms.append(in_streams(self.item, whole))
        # A separate condition on the names: files can be skipped by name even if the arms cannot skip them.
        return _all_of([names, _any_of(arms) if arms else None])

    def _of_variables(self, choices: Iterable[tuple[expressions.Expr, ...]]) -> Column | None:
        """Return the condition for rows that meet one of the conjunctions."""
        choices = list(choices)
        if () in choices:
            return None
        return _any_of(_all_of(self.accepted(one, False) for one in conjunction) for conjunction in choices)

    # --- predicates

    def accepted(self, expr: expressions.Expr, negated: bool) -> Column | None:
        """Return where the expression is true (false, if `negated`) or may be."""
        match expr:
            case expressions.Literal(None):
                return _never()
            case expressions.Literal(bool() as value):
                return None if value is not negated else _never()
            case expressions.Field() | expressions.Member() | expressions.Entry():
                cell = self.cell_of(expr)
                if cell is None or not isinstance(cell.type, T.BooleanType):
                    return None
                return ~cell.column if negated else cell.column
            case expressions.Unary("not", operand):
                return self.accepted(operand, not negated)
            case expressions.Binary("and" | "or", left, right):
                combine = _all_of if (expr.operator == "and") is not negated else _any_of
                return combine([self.accepted(left, negated), self.accepted(right, negated)])
            case expressions.Binary(comparison, left, right) if comparison in expressions.COMPARISONS:
                return self.compared(_NEGATED[comparison] if negated else comparison, left, right)
            case expressions.Between(operand, low, high):
                both = expressions.Binary(
                    "and", expressions.Binary(">=", operand, low), expressions.Binary("<=", operand, high)
                )
                return self.accepted(both, negated is not expr.negated)
            case expressions.InList(operand, items):
                return self.listed(operand, items, negated is not expr.negated)
            case expressions.InTable(operand):
                return self.looked_up(operand, expr.values.array, negated is not expr.negated)
            case expressions.Like(operand, pattern, ignores_case=False):
                # ILIKE is not pushed down: Java lowers some letters in another way.
                cell = self.cell_of(operand)
                return None if cell is None else _like(cell, pattern, negated is not expr.negated)
            case expressions.IsNull(operand):
                cell = self.cell_of(operand)
                return None if cell is None else cell.is_missing(negated is not expr.negated)
            case expressions.Call(_, (operand, expressions.Literal() as literal)):
                cell = self.cell_of(operand)
                found = None if cell is None else _called(expr.name, cell, literal)
                return None if found is None else ~found if negated else found
        return None

    def compared(self, comparison: str, left: expressions.Expr, right: expressions.Expr) -> Column | None:
        """Translate `left comparison right` for fields and literals."""
        literals = constant(left), constant(right)
        if expressions.Literal(None) in literals:
            return _never()
        cells = self.cell_of(left), self.cell_of(right)
        if cells[0] is not None and cells[1] is not None:
            return _compared_cells(comparison, cells[0], cells[1])
        if cells[0] is not None and literals[1] is not None:
            return _compared_literal(comparison, cells[0], literals[1])
        if cells[1] is not None and literals[0] is not None:
            return _compared_literal(_MIRRORED[comparison], cells[1], literals[0])
        return None

    def listed(self, operand: expressions.Expr, items: tuple[expressions.Expr, ...], negated: bool) -> Column | None:
        """Translate `operand IN items`: one list for literals that Spark supports, a comparison for each other item."""
        conditions: list[Column | None] = []
        values: list[Column] = []
        cell = self.cell_of(operand)
        for item in items:
            literal = constant(item)
            value = None
            if cell is not None and literal is not None:
                value = _same_value(cell, literal)
            if value is not None:
                values.append(value)
            else:
                conditions.append(self.compared("!=" if negated else "=", operand, item))
        if cell is not None and values:
            found = cell.column.isin(values)
            conditions.append(~found if negated else found)
        return _all_of(conditions) if negated else _any_of(conditions)

    def looked_up(self, operand: expressions.Expr, values: pa.Array, negated: bool) -> Column | None:
        """Translate `operand IN table` for a few integers or texts. The values have no null."""
        cell = self.cell_of(operand)
        if cell is None or not cell.is_plain or len(values) > MOST_LISTED:
            return None
        integers = pa.types.is_integer(values.type) and isinstance(cell.type, T.IntegralType)
        texts = kind_of(values.type) is Kind.TEXT and _is_text(cell.type)
        if not (integers or texts):
            return None
        return self.listed(operand, tuple(map(expressions.Literal, values.to_pylist())), negated)


# --- atoms


def _compared_cells(comparison: str, left: _Cell, right: _Cell) -> Column | None:
    both_integers = isinstance(left.type, T.IntegralType) and isinstance(right.type, T.IntegralType)
    if not (left.is_plain and right.is_plain and (both_integers or left.type == right.type)):
        return None
    return _COMPARE[comparison](left.column, right.column)


def _compared_literal(comparison: str, cell: _Cell, literal: Constant) -> Column | None:
    value = _same_value(cell, literal)
    if value is not None:
        return _COMPARE[comparison](cell.column, value)
    place = _place(cell.type, literal)
    if place is not None:
        return _compared_place(comparison, cell, place)
    match literal:
        case expressions.Literal(int() | float() as number) if _is_float(cell.type) and number == 0:
            return _compared_zero(comparison, cell.column)
    return None


def _same_value(cell: _Cell, literal: Constant) -> Column | None:
    """Return a value of the column's type that equals the literal in every comparison, or None."""
    match literal:
        case expressions.Literal(bool() as value) if isinstance(cell.type, T.BooleanType):
            return F.lit(value)
        case expressions.Literal(str() as value) if isinstance(cell.type, T.StringType) and cell.is_plain:
            return F.lit(value)
        case expressions.Literal(int() | float() as value) if _is_float(cell.type) and value != 0:
            # The engine compares exactly; Spark would round the integer.
            return F.lit(float(value)) if float(value) == value else None
    place = _place(cell.type, literal)
    return _whole_value(cell.type, place.numerator) if place is not None and place.denominator == 1 else None


def _place(kind: T.DataType, literal: Constant) -> Fraction | None:
    """Return the position of a literal among the values of an integer or time column, counted from zero or 1970."""
    match literal:
        case expressions.Timestamp(nanoseconds) if type(kind) in _TICKS:
            return Fraction(nanoseconds, _TICKS[type(kind)])
        case expressions.Literal(int() | float() as value) if isinstance(kind, T.IntegralType):
            return Fraction(value)
    return None


def _compared_place(comparison: str, cell: _Cell, place: Fraction) -> Column | None:
    """Compare with a literal between two values of the column: `x < 2.5` iff `x < 3`, and `x > 2.5` iff `x > 2`."""
    if comparison == "=":
        return _never()
    if comparison == "!=":
        return cell.column.isNotNull()
    whole = ceil(place) if comparison in ("<", ">=") else floor(place)
    if isinstance(cell.type, T.IntegralType) and not SMALLEST_INTEGER <= whole <= LARGEST_INTEGER:
        # Every integer is on the same side of it.
        holds = (whole > 0) == (comparison in ("<", "<="))
        return cell.column.isNotNull() if holds else _never()
    value = _whole_value(cell.type, whole)
    return None if value is None else _COMPARE[comparison](cell.column, value)


def _compared_zero(comparison: str, number: Column) -> Column:
    """Compare with both zeros: Parquet orders -0.0 before 0.0 when it skips files, and would lose rows."""
    least, greatest = F.lit(-0.0), F.lit(0.0)
    if comparison == "=":
        return (number >= least) & (number <= greatest)
    return _COMPARE[comparison](number, least if comparison == ">=" else greatest)


def _whole_value(kind: T.DataType, place: int) -> Column | None:
    """Return the value of an integer or time column at a position; a time is text with its zone."""
    if isinstance(kind, T.IntegralType):
        return F.lit(place) if SMALLEST_INTEGER <= place <= LARGEST_INTEGER else None
    try:
        moment = _EPOCH + timedelta(microseconds=place * _TICKS[type(kind)] // NANOSECONDS_PER_UNIT["us"])
    except OverflowError:
        return None
    if isinstance(kind, T.DateType):
        text = moment.date().isoformat()
    else:
        text = (moment if isinstance(kind, T.TimestampType) else moment.replace(tzinfo=None)).isoformat()
    return F.lit(text).cast(kind)


def _member(cell: _Cell, name: str) -> _Cell | None:
    """Return a field of a struct. Spark ignores the case of names, the engine does not."""
    if not isinstance(cell.type, T.StructType):
        return None
    alike = [field for field in cell.type.fields if field.name.casefold() == name.casefold()]
    return _Cell(cell.column.getField(name), alike[0]) if len(alike) == 1 and alike[0].name == name else None


def _entry(cell: _Cell, key: int | str) -> _Cell | None:
    """Return an element of a list, or the value of a map with keys that are text; null if there is none."""
    if isinstance(cell.type, T.ArrayType) and isinstance(key, int) and abs(key) < 2**31:
        return _Cell(F.get(cell.column, F.lit(key)), T.StructField("element", cell.type.elementType))
    if isinstance(cell.type, T.MapType) and isinstance(key, str) and _is_text(cell.type.keyType):
        return _Cell(F.try_element_at(cell.column, F.lit(key)), T.StructField("value", cell.type.valueType))
    return None


def _is_text(kind: T.DataType) -> bool:
    return type(kind) is T.StringType and kind.isUTF8BinaryCollation()


def _called(name: str, cell: _Cell, literal: expressions.Literal) -> Column | None:
    """Translate a function of a column and a literal with an exact counterpart."""
    if literal.value is None:
        return _never()
    if name == "contains" and isinstance(cell.type, T.ArrayType):
        element = _Cell(cell.column, T.StructField("element", cell.type.elementType))
        exact = _is_text(element.type) or isinstance(element.type, T.IntegralType | T.BooleanType)
        value = _same_value(element, literal) if exact else None
        return None if value is None else F.array_contains(cell.column, value.cast(element.type))
    if not (isinstance(cell.type, T.StringType) and cell.is_plain and isinstance(literal.value, str)):
        return None
    match name:
        case "startswith":
            return cell.column.startswith(literal.value)
        case "endswith":
            return cell.column.endswith(literal.value)
        case "contains":
            return cell.column.contains(literal.value)
        case "regexp_like" if _SAME_IN_JAVA.fullmatch(literal.value):
            return F.regexp_like(cell.column, F.lit(literal.value))
    return None


_SAME_IN_JAVA = re.compile(
    r"""
    \^?                                             # `$`, `.`, \s, \b and flags differ
    (?: [A-Za-z0-9 _,:;=/@%&<>"'!~-]                 # a character that is not special
      | \\[\[\](){}.*+?^$|\\/-]                     # or a quoted one
      | \\[dw]                                      # digits and words are ASCII in both
      | \[ \^? (?: [A-Za-z0-9 _,:;=/@.] (?: -[A-Za-z0-9])? )+ \]
    )+
    (?: \| (?: [A-Za-z0-9 _,:;=/@%&<>"'!~-] )+ )*
    """,
    re.VERBOSE,
)
"""Regular expressions that mean the same in RE2 and Java and cannot be slow: no repetitions and no groups."""


def _like(cell: _Cell, pattern: str, negated: bool) -> Column | None:
    """Return what a text must start with, end with and contain; this is all of LIKE for a single word without `_`."""
    if not (isinstance(cell.type, T.StringType) and cell.is_plain):
        return None
    parts = like_parts(pattern) or [("text", "")]
    words = [_has_word(cell.column, parts, place) for place, (part, _) in enumerate(parts) if part == "text"]
    if not negated:
        return _all_of(words)
    exact = len(words) == 1 and ("_", "") not in parts
    return ~words[0] if exact else None


def _has_word(text: Column, parts: Sequence[tuple[str, str]], place: int) -> Column:
    word = parts[place][1]
    if len(parts) == 1:
        return text == word
    if place == 0:
        return text.startswith(word)
    return text.endswith(word) if place == len(parts) - 1 else text.contains(word)
