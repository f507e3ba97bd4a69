"""The catalog of streams: their fields, types and time columns. Also the checks of `lineage` in RETURN."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from ensue.errors import Problem, did_you_mean
from ensue.expr.functions import FUNCTIONS
from ensue.expr.kinds import FLOAT, INTEGER, NULL_TYPE, Kind, Type
from ensue.nodes.expressions import Binary, Call, Duration, Expr, Field, Same, Timestamp, conjuncts
from ensue.nodes.expressions import walk as walk_expression
from ensue.nodes.names import AnyEvent, Name, Stream
from ensue.nodes.patterns import Event, PatternQuery, Window, result_expressions, walk, windows_of
from ensue.nodes.uncertainty import CERTAINTY, NO_HIERARCHY, Hierarchy

if TYPE_CHECKING:
    import pyarrow as pa

TIME_NAMES = {"s": "s", "t": "s", "e": "e"}
"""The field names `s`, `t` and `e`, with the endpoint that each means."""


SOME_END = "$end"
"""The end column of streams whose events have a duration, as long as its name is unknown."""

WHOLE_EVENT = "*"
"""The field for the whole event: all its columns."""

EVENT_NUMBER = "ensue:event"
"""The field for a number that only the same event has, in a step."""


def same_event(one: Name, other: Name) -> Expr:
    """The condition that two variables bind the same event."""
    return Binary("=", Field(one, EVENT_NUMBER), Field(other, EVENT_NUMBER))


def same_variables(condition: Expr) -> tuple[Name, Name] | None:
    """The variables of a condition that two variables bind the same event; None for any other condition."""
    match condition:
        case Binary(operator="=", left=Field(variable=one, name=name), right=Field(variable=other)) if (
            name == EVENT_NUMBER and one is not None and other is not None
        ):
            return one, other
    return None


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """The fields of one stream, with the types that expressions use, and its time columns.

    The events of a `derived` stream are the matches of a pattern. Events are uncertain if a column has their
    probability. Of the events with equal values in the columns `alternatives`, at most one is real.
    """

    name: Stream
    fields: Mapping[str, Type]
    time: str
    end: str | None = None
    derived: bool = False
    probability: str | None = None
    alternatives: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    """The columns that order events at the same time. A `derived` stream has one for its starts and one for its
    ends."""
    ordered_ends: bool | None = False
    """For a derived stream: whether all events have an order at their end; None: some have one."""
    table: Stream | None = None
    """For a stream of rows (`STREAM name FROM table`), the stream or type column of its table."""
    unusable: Mapping[str, Problem] = field(default_factory=dict)
    """The columns of the table that Ensue cannot use, with the problem of each."""
    is_element: bool = False
    """Whether the rows are elements of a list. Their position in it is the last of the order columns."""

    def endpoint(self, field: str) -> str | None:
        """The endpoint ("s" or "e") that a field name means, or None for an ordinary field."""
        if field == self.time:
            return "s"
        if self.end is not None and field == self.end:
            return "e"
        return TIME_NAMES.get(field) if field not in self.fields else None

    @property
    def with_duration(self) -> StreamSchema:
        """The schema with an end column."""
        return self if self.end is not None else replace(self, end=SOME_END)

    @property
    def whole(self) -> Type:
        """The type of a whole event."""
        return Type(Kind.OTHER, parts=tuple(self.fields.items()))

    def hides(self, field: str) -> bool:
        """Whether `x.field` is both an endpoint and an ordinary column."""
        return field in TIME_NAMES and field in self.fields and field not in (self.time, self.end)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All streams, and the type of time: integer or timestamp.

    If streams are the values of a type column, every name is a stream, which may be empty, and `any_stream` is the
    schema of all of them. `of_all` is the schema of ANY EVENT, if all events are in one table.
    """

    streams: Mapping[Stream, StreamSchema]
    time: Type
    any_stream: StreamSchema | None = None
    hierarchy: Hierarchy = NO_HIERARCHY
    of_all: StreamSchema | None = None
    has_selections: bool = False
    """Whether some streams are selections of the rows of a table."""
    order: Mapping[str, Type] = field(default_factory=dict)
    """The order columns, with their types."""

    def stream(self, name: Stream) -> StreamSchema | None:
        if isinstance(name, AnyEvent):
            return self.any_stream or self.of_all
        return self.streams.get(name, self.any_stream)

    def overlaps(self, streams: Iterable[Stream]) -> frozenset[frozenset[Stream]]:
        """The pairs of different streams that may share rows: a selection of rows, and another stream of its table."""
        schemas = {name: schema for name in streams if (schema := self.stream(name)) is not None}
        tables = {
            name: schema.name if schema.table is None else schema.table
            for name, schema in schemas.items()
            if not schema.derived
        }
        return frozenset(
            frozenset((one, other))
            for one, other in combinations(tables, 2)
            if tables[one] == tables[other] and not schemas[one].table is schemas[other].table is None
        )

    def endpoint(self, stream: Stream, field: Field) -> str | None:
        schema = self.stream(stream)
        return None if schema is None else schema.endpoint(field.name)

    def field_type(self, stream: Stream | None, field: str) -> pa.DataType:
        """The Arrow type of a field of a bound query. A field without a stream (an AS name) is a time."""
        schema = self.stream(stream) if stream is not None else None
        if field == CERTAINTY:
            return _in_arrow(FLOAT)
        if field == EVENT_NUMBER:
            return _in_arrow(INTEGER)
        if schema is None or schema.endpoint(field) is not None:
            return self.time_type
        return _in_arrow(schema.whole if field == WHOLE_EVENT else schema.fields[field])

    @property
    def time_type(self) -> pa.DataType:
        """The Arrow type of time."""
        return _in_arrow(self.time)

    def is_uncertain(self, stream: Stream) -> bool:
        """Whether the events of a stream are uncertain."""
        schema = self.stream(stream)
        named = schema is not None and schema.probability is not None
        return named or stream in self.hierarchy.parts

    @property
    def with_durations(self) -> Catalog:
        """The catalog with an end column in every stream."""
        lasting = None if self.any_stream is None else self.any_stream.with_duration
        return replace(
            self, streams={name: schema.with_duration for name, schema in self.streams.items()}, any_stream=lasting
        )

    @property
    def is_ordered(self) -> bool:
        """Whether columns order the events at the same time."""
        return any(schema.order for schema in (*self.streams.values(), self.any_stream) if schema is not None)

    def orders(self, streams: Iterable[Stream]) -> bool:
        """Whether columns order the events of these streams at the same time; otherwise they tie.

        The position in a list orders only elements of this list and, if there are other columns, rows with them.
        """
        schemas = [self.stream(stream) for stream in streams]
        known = [schema for schema in schemas if schema is not None and schema.order]
        lists = {schema.name if schema.table is None else schema.table for schema in known if schema.is_element}
        if len(known) < len(schemas) or len(lists) > 1:
            return False
        return all(schema.is_element for schema in known) or all(schema.order[schema.is_element :] for schema in known)

    @property
    def order_type(self) -> pa.DataType:
        """The Arrow type of the values of the order columns of one event."""
        import pyarrow

        return pyarrow.struct([(name, _in_arrow(kind)) for name, kind in self.order.items()])

    def has_ordered_ends(self, stream: Stream) -> bool | None:
        """Whether columns order the ends of all events of a stream; None: of some."""
        schema = self.stream(stream)
        return schema.ordered_ends if schema is not None and schema.derived else self.orders((stream,))

    @property
    def unit(self) -> str | None:
        """The unit of timestamps, or None if time is an integer."""
        return self.time.unit or None


@lru_cache(maxsize=256)
def _in_arrow(own: Type) -> pa.DataType:
    # Arrow is loaded where there is data, not where a program is only checked.
    from ensue.expr.types import arrow_type

    return arrow_type(own)


MOMENTS = Type(Kind.TIMESTAMP, "us")
"""The type of time for a program with timestamps, if there is no data."""


def inferred_catalog(
    query: PatternQuery, time: str = "t", other_windows: Iterable[Window] = (), end: str | None = None
) -> Catalog:
    """A catalog in which each stream has the fields that the query uses, for queries without data.

    `time` is the time column. Time is a timestamp if the query, or one of `other_windows`, uses units of time,
    timestamps, or functions of timestamps or durations; otherwise it is an integer. Events have a duration if `end` is
    the column of their ends.
    """
    patterns = list(walk(query.pattern))
    windows = [query.within, *other_windows]
    windows += [] if query.suppress is None else [query.suppress.window]
    windows += [window for node in patterns for window in windows_of(node)]
    roots = [node.predicate for node in patterns if isinstance(node, Event) and node.predicate is not None]
    roots += [*conjuncts(query.where), *result_expressions(query)]
    parts = [part for root in roots for part in walk_expression(root)]
    names = {part.name for part in parts if isinstance(part, Field)}
    names |= {name for part in parts if isinstance(part, Same) for name in part.fields}
    names |= {attribute.name for node in patterns if isinstance(node, Event) for attribute in node.attributes}
    names |= set(query.partition_by)
    fields = {name: NULL_TYPE for name in sorted(names) if name not in (*TIME_NAMES, time, end)}
    has_units = any(isinstance(window, Duration) for window in windows) or any(map(_speaks_of_moments, parts))
    schema = StreamSchema("*", fields, time, end)
    return Catalog({}, MOMENTS if has_units else INTEGER, schema)


_OF_MOMENTS = ({Kind.TIMESTAMP}, {Kind.DURATION})
"""The kinds of parameters that show that times are timestamps."""


def _speaks_of_moments(part: Expr) -> bool:
    if isinstance(part, Call):
        function = FUNCTIONS.get(part.name) if part.function is None else part.function.signature
        return function is not None and any(parameter.kinds in _OF_MOMENTS for parameter in function.parameters)
    return isinstance(part, Duration | Timestamp)


# --- `lineage(v)` and `lineage()` in RETURN: the input events of an event or a match

LINEAGE_FUNCTION = "lineage"


def is_lineage(expression: Expr) -> bool:
    return isinstance(expression, Call) and expression.name == LINEAGE_FUNCTION


def lineage_variable(expression: Expr) -> Name | None:
    """The variable in a `lineage` call, or None for the whole match."""
    assert isinstance(expression, Call)
    argument = expression.arguments[0] if expression.arguments else None
    if not isinstance(argument, Field):
        return None
    return argument.name if argument.variable is None else argument.variable


def check_lineage(expression: Expr, returnable: Collection[Name]) -> Iterator[Problem]:
    """The problems of a `lineage` column of RETURN; `returnable` are the variables that a match binds."""
    assert isinstance(expression, Call)
    names = ", ".join(map(str, returnable)) or "none"
    if len(expression.arguments) > 1 or any(
        not isinstance(argument, Field) or not _is_whole(argument) for argument in expression.arguments
    ):
        yield Problem(
            "lineage-argument",
            "lineage takes one variable, or no argument for the whole match",
            expression.span,
            label=f"variables: {names}",
            hint="write `lineage(v)` with a variable of the pattern, or `lineage()`",
        )
        return
    name = lineage_variable(expression)
    if name is not None and name not in returnable:
        yield Problem(
            "lineage-argument",
            f"`{name}` has no lineage: a match binds no event to it",
            expression.arguments[0].span,
            label=f"variables: {names}",
            hint=did_you_mean(str(name), map(str, returnable)),
        )


def _is_whole(field: Field) -> bool:
    """Whether the field is a variable `v`, or the whole event that a context uses instead."""
    return field.variable is None or field.name == WHOLE_EVENT


def misplaced_lineages(expression: Expr) -> Iterator[Problem]:
    """Calls of `lineage` that are not a column of RETURN."""
    for part in walk_expression(expression):
        if isinstance(part, Call) and is_lineage(part):
            yield Problem(
                "misplaced-lineage",
                "lineage is only allowed as a column of RETURN, not inside another expression",
                part.span,
                hint="write `RETURN lineage() AS ids`, and process the list in the resulting table",
            )
