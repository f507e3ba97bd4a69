"""Streams of rows, `STREAM name FROM table WHERE ... RETURN ...`, over the columns of a table.

A row belongs to every stream whose condition it satisfies. It stays one row: tables, states and shuffles have its own
columns, and the engine computes the columns of a stream from them (`ensue.engine.views`). With UNNEST, the elements of
a list are rows of a further table, which the engine makes from the given one at the beginning of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ensue.analysis.catalog import Catalog, StreamSchema
from ensue.check.selections import bind_selection
from ensue.errors import Problem, QueryError, Source, did_you_mean
from ensue.expr.kinds import INTEGER, Type
from ensue.expr.types import arrow_type
from ensue.nodes.expressions import Expr, Field, conjuncts, substitute_fields, walk
from ensue.nodes.names import Stream
from ensue.nodes.patterns import Event, PatternQuery, Return, Selection, Statements, column_name
from ensue.nodes.patterns import walk as walk_pattern
from ensue.text.render import render_expression

if TYPE_CHECKING:
    from ensue.plan.inputs import InputTable


MEMBER = "ensue:in "
"""The prefix of columns that say whether a row is an event of a stream of rows, or of its type and table (PLAIN).

Only Spark adds them, if a row has different keys in different streams: each copy of the row has the streams of one key.
For a stream of elements, they are lists that say it of each element in the row.
"""
PLAIN = MEMBER


@dataclass(frozen=True, slots=True)
class View:
    """A stream of rows: `where` decides which rows belong to it, and `columns` are the columns of its events.

    The fields of all expressions have no variable. `types` are the types of the columns as they are returned.
    """

    stream: str
    where: Expr | None
    columns: Mapping[str, Expr]
    types: Mapping[str, pa.DataType]
    schema: StreamSchema
    selection: Selection
    source: Source | None = field(default=None, compare=False, repr=False)

    @property
    def member(self) -> str:
        """The column that says which rows are events of the stream."""
        return MEMBER + self.stream

    def copies(self, name: str) -> bool:
        """Whether a column is the column of the table with this name."""
        expression = self.columns.get(name)
        return isinstance(expression, Field) and expression.name == name

    def reads(self, names: Iterable[str] | None) -> set[str]:
        """The columns of the table that the condition and some columns need; None: all columns of the stream."""
        wanted = self.columns if names is None else [name for name in names if name in self.columns]
        needed = [self.columns[name] for name in wanted]
        if self.where is not None:
            needed.append(self.where)
        return {part.name for expression in needed for part in walk(expression) if isinstance(part, Field)}

    def demands(self, predicates: Iterable[Expr]) -> tuple[Expr, ...]:
        """The conditions on the columns of the table for events of the stream that satisfy predicates on its fields."""
        own = () if self.where is None else conjuncts(self.where)
        return (*own, *(self._over_table(predicate) for predicate in predicates))

    def _over_table(self, expression: Expr) -> Expr:
        return substitute_fields(expression, lambda part: self.columns.get(part.name, replace(part, variable=None)))


NO_VIEWS: Mapping[Stream, View] = {}

ELEMENT = "ensue:element"
INDEX = "ensue:index"
"""The columns of a table of elements with the element and its position in its list."""


def in_order(columns: Iterable[str]) -> list[str]:
    """The order columns of several tables, each once: the position in a list decides last."""
    return sorted(dict.fromkeys(columns), key=INDEX.__eq__)


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a list in the rows of a table, as rows of a table called `name`, and the streams of these rows.

    `types` are those of the columns of the element and its position.
    """

    name: str
    list: Expr
    types: Mapping[str, pa.DataType]
    views: Mapping[Stream, View]
    source: Source | None = field(default=None, compare=False, repr=False)

    def table_of(self, item: InputTable) -> InputTable:
        """The table of the elements: the columns of the given table, the element and its position, which is an order.

        It has no rows.
        """
        members = {view.member for view in self.views.values()}
        given = (column for column in item.table.schema if not column.name.startswith(MEMBER))
        marks = (pa.field(name, pa.bool_()) for name in item.table.column_names if name in members)
        own = (pa.field(name, kind) for name, kind in self.types.items())
        return replace(
            item,
            table=pa.schema([*given, *marks, *own]).empty_table(),
            stream=self.name,
            type=None,
            views=self.views,
            elements=(),
            has_all=False,
            order=(*item.order, INDEX),
        )

    def reads(self) -> set[str]:
        """The columns of the given table that the list is made of."""
        return {part.name for part in walk(self.list) if isinstance(part, Field)}


def with_tables_of_elements(inputs: Sequence[InputTable]) -> tuple[InputTable, ...]:
    """The tables as plans see them: the given ones, and behind them those of elements of their lists."""
    if not any(item.elements for item in inputs):
        return tuple(inputs)
    given = (
        replace(item, elements=(), elsewhere=item.elsewhere.union(*(own.views for own in item.elements)))
        for item in inputs
    )
    return (*given, *(own.table_of(item) for item in inputs for own in item.elements))


def with_views(inputs: Sequence[InputTable], statements: Statements, catalog: Catalog) -> tuple[InputTable, ...]:
    """The tables with the streams of rows that the program selects from them. Raises all problems at once."""
    problems: list[Problem] = []
    views: list[dict[Stream, View]] = [{} for _ in inputs]
    elements: list[dict[Expr, Elements]] = [{} for _ in inputs]
    for selection in statements.selections:
        place = _place_of(selection, inputs)
        item = inputs[place]
        table = catalog.any_stream if item.stream is None else catalog.streams[item.stream]
        assert table is not None
        found, element, types = bind_selection(selection, table, catalog.time)
        problems += found
        if selection.unnest is None:
            views[place][selection.name] = _view(selection, item, table, types, statements.source)
        elif element is not None and not found:
            known = elements[place].get(selection.unnest.list)
            kinds = {ELEMENT: _decoded(arrow_type(element)), INDEX: pa.int64()}
            name = f"{render_expression(selection.unnest.list)} of {selection.table}"
            made = known or Elements(name, selection.unnest.list, kinds, {}, statements.source)
            wide = replace(table, name=made.name, fields={**table.fields, ELEMENT: element, INDEX: INTEGER})
            wide = replace(wide, order=(*table.order, INDEX), is_element=True)
            view = _view(_over_elements(selection), made.table_of(item), wide, types, statements.source)
            view = replace(view, selection=selection)
            elements[place][made.list] = replace(made, views={**made.views, selection.name: view})
    if problems:
        raise QueryError(problems, statements.source)
    parts = zip(inputs, views, elements, strict=True)
    return tuple(replace(item, views=own, elements=tuple(lists.values())) for item, own, lists in parts)


def _over_elements(selection: Selection) -> Selection:
    """The selection with the names of the element and its position read as the columns of the table of elements."""
    unnest = selection.unnest
    assert unnest is not None
    names = {unnest.element: ELEMENT} | ({} if unnest.index is None else {unnest.index: INDEX})

    def read(expression: Expr) -> Expr:
        return substitute_fields(expression, lambda part: replace(part, name=names.get(part.name, part.name)))

    returns = tuple(
        Return(read(column.expression), column_name(column, place), column.span)
        for place, column in enumerate(selection.returns)
    )
    where = None if selection.where is None else read(selection.where)
    return replace(selection, where=where, returns=returns)


def _place_of(selection: Selection, inputs: Sequence[InputTable]) -> int:
    """The table of a selection: the only one, or the one with its name."""
    return next((place for place, item in enumerate(inputs) if item.stream == selection.table), 0)


def check_selected_tables(statements: Statements, tables: Mapping[str, pa.Table] | pa.Table, typed: bool) -> None:
    """Checks the names after FROM and, in one table without a type column, the names of streams in patterns."""
    problems: list[Problem] = []
    if isinstance(tables, Mapping):
        for selection in statements.selections:
            if selection.name in tables:
                said = f"stream `{selection.name}` is both declared in the program and a table of events"
                problems.append(Problem("stream-clash", said, selection.span, hint="rename one of them"))
            elif selection.table not in tables:
                problems.append(_unknown_table(selection, [*tables]))
    elif not typed:
        problems += _unknown_streams(statements)
    if problems:
        raise QueryError(problems, statements.source)


def _unknown_table(selection: Selection, names: Sequence[str]) -> Problem:
    return Problem(
        "selected-table",
        f"`{selection.name}` selects from `{selection.table}`, but there is no such table of events",
        selection.span,
        label=f"tables: {', '.join(names)}",
        hint=did_you_mean(selection.table, names),
    )


def _unknown_streams(statements: Statements) -> Iterator[Problem]:
    """In one table without a type column, a name is a stream of rows or the table."""
    names = [selection.name for selection in statements.selections]
    declared = {query.name for query in statements.statements if query.declares}
    known = {*names, *(selection.table for selection in statements.selections), *declared}
    for query in statements.statements:
        for part in walk_pattern(query.pattern):
            if isinstance(part, Event) and isinstance(part.stream, str) and part.stream not in known:
                yield Problem(
                    "unknown-stream",
                    f"unknown stream `{part.stream}`",
                    None if part.span is None else part.span.head(len(part.stream)),
                    label=f"streams: {', '.join(names)}",
                    hint=did_you_mean(part.stream, names),
                )


def _view(
    selection: Selection, item: InputTable, table: StreamSchema, types: Mapping[str, Type], source: Source | None
) -> View:
    raw = {column.name: _decoded(column.type) for column in item.table.schema}
    kept = (item.time, item.end, item.probability, *item.alternatives, *(name for name in item.order if name != INDEX))
    columns: dict[str, Expr] = {}
    if not selection.returns:
        columns = {name: Field(None, name) for name in raw if name not in (ELEMENT, INDEX)}
        if selection.unnest is not None:
            columns[selection.unnest.element] = Field(None, ELEMENT)
            columns |= {} if selection.unnest.index is None else {selection.unnest.index: Field(None, INDEX)}
    for position, column in enumerate(selection.returns):
        columns[column_name(column, position)] = column.expression
    columns |= {name: Field(None, name) for name in kept if name is not None}
    read, returned = {}, {}
    for name, expression in columns.items():
        copied = expression.name if isinstance(expression, Field) and expression.name in raw else None
        read[name] = types[name] if copied is None else table.fields[copied]
        returned[name] = arrow_type(types[name]) if copied is None else raw[copied]
    schema = replace(table, name=selection.name, fields=read, table=table.name)
    return View(selection.name, selection.where, columns, returned, schema, selection, source)


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def check_positions(query: PatternQuery, inputs: Sequence[InputTable], source: Source | None) -> None:
    """Positions count all rows of a key, so the key is a column of the table."""
    used = {part.stream for part in walk_pattern(query.pattern) if isinstance(part, Event)}
    for item in inputs:
        for stream, view in item.views.items() if ELEMENT in item.table.column_names else ():
            if stream in used:
                raise QueryError([_uncounted_elements(view)], source)
        for name in query.partition_by:
            computed = [stream for stream, view in item.views.items() if not view.copies(name)]
            for stream in (stream for stream in computed if stream in used):
                raise QueryError(
                    [
                        Problem(
                            "selected-positions",
                            f"positions count all rows of `{name}`, but `{stream}` computes `{name}` only for its rows",
                            query.partition_span or query.span,
                            hint="partition by a column of the table, or use WITHIN with a duration",
                        )
                    ],
                    source,
                )


def _uncounted_elements(view: View) -> Problem:
    return Problem(
        "selected-positions",
        f"positions count rows, but the events of `{view.stream}` are elements of a list in a row",
        view.selection.span,
        hint="use WITHIN with a duration, or MATCH NEXT",
    )
