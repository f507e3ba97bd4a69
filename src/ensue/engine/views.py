"""Streams of rows in a table: which rows belong to them, and their columns, computed from those of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analysis.catalog import TIME_NAMES
from ensue.engine.sources import EventSource, Mask
from ensue.errors import citing
from ensue.expr.evaluation import condition_mask, evaluate
from ensue.expr.reductions import Lists
from ensue.expr.types import readable
from ensue.kernels.compiler import Codes, Int64s
from ensue.nodes.expressions import Expr, Field
from ensue.nodes.names import Stream
from ensue.plan.inputs import InputTable
from ensue.plan.plans import SLICE
from ensue.plan.selections import ELEMENT, INDEX, MEMBER, Elements, View


@dataclass(slots=True)
class ViewSource(EventSource):
    """The rows of a table as events of one stream. Row numbers are those of the table, `origin`.

    The table of `input` has no rows: it has the columns of the stream, and those of the table with other names. A
    computed column has values only for the rows of the stream, `members`: an expression may be an error elsewhere.
    """

    of: EventSource | None = None
    view: View | None = None
    time_type: pa.DataType | None = None
    members: Codes = field(default_factory=lambda: np.empty(0, np.int32))
    computed: dict[str, pa.Array] = field(default_factory=dict)

    @property
    def origin(self) -> EventSource:
        assert self.of is not None
        return self.of

    @property
    def names(self) -> list[str]:
        assert self.view is not None
        return [*self.view.columns]

    @property
    def table(self) -> pa.Table:
        return pa.table({name: self.raw_column(name) for name in self.names})

    def column(self, name: str) -> pa.Array:
        copied = self._copied(name)
        return self.origin.column(copied) if copied is not None else readable(self._computed(name), name)

    def raw_column(self, name: str) -> pa.Array:
        copied = self._copied(name)
        return self.origin.raw_column(copied) if copied is not None else self._computed(name)

    def taken(self, names: Iterable[str], rows: Codes) -> list[pa.Array]:
        found = []
        for name in names:
            copied = self._copied(name)
            if copied is not None:
                found += self.origin.taken([copied], rows)
            else:
                found.append(self._computed(name).take(pa.array(rows)))
        return found

    def values(self, name: str, rows: Codes) -> pa.Array:
        copied = self._copied(name)
        return self.origin.values(copied, rows) if copied is not None else self.column(name).take(pa.array(rows))

    def _copied(self, name: str) -> str | None:
        """The column of the table that a column is; columns that the engine adds to tables are also available."""
        assert self.view is not None
        expression = self.view.columns.get(name)
        if expression is None:
            return name
        if isinstance(expression, Field) and expression.name in self.origin.input.table.column_names:
            return expression.name
        return None

    def _computed(self, name: str) -> pa.Array:
        if name not in self.computed:
            assert self.view is not None and self.time_type is not None
            with citing(self.view.source):
                values = _evaluated(self.view.columns[name], self.origin, self.members, self.time_type)
            if values.type != self.view.types[name]:
                values = values.cast(self.view.types[name])
            places = np.full(len(self.starts), -1, np.int64)
            places[self.members] = np.arange(len(self.members))
            self.computed[name] = values.take(pa.array(places, mask=places < 0))
        return self.computed[name]


@dataclass(slots=True)
class ElementSource(EventSource):
    """The elements of a list in the rows of a table: the row of each, and its position in the list."""

    parents: Codes = field(default_factory=lambda: np.empty(0, np.int32))
    index: Int64s = field(default_factory=lambda: np.empty(0, np.int64))


def stream_source(source: EventSource, stream: Stream, time_type: pa.DataType) -> EventSource:
    """The table as events of a stream: the table itself, or a view of it with the columns of the stream."""
    view = source.input.views.get(stream)
    if view is None:
        return source
    if stream not in source.views:
        own = [pa.field(name, kind) for name, kind in view.types.items()]
        others = [column for column in source.input.table.schema if column.name not in view.types]
        source.views[stream] = ViewSource(
            source.input.of(pa.schema([*own, *others]).empty_table()),
            source.starts,
            source.ends,
            source.valid,
            uncertainty=source.uncertainty,
            of=source,
            view=view,
            time_type=time_type,
            members=_members(source, view, time_type),
        )
    return source.views[stream]


def members_of(source: EventSource, stream: Stream, time_type: pa.DataType) -> Codes:
    """The rows of a table that belong to a stream of rows."""
    found = stream_source(source, stream, time_type)
    assert isinstance(found, ViewSource)
    return found.members


def with_keys(source: EventSource, keys: Sequence[str], time_type: pa.DataType) -> EventSource:
    """The table with its keys. A key that only streams of rows have is that of the first stream of a row."""
    known = {*source.input.table.column_names, *TIME_NAMES}
    table = source.input.table
    for key in (key for key in keys if key not in known):
        having = [name for name, view in source.input.views.items() if key in view.columns]
        if having:
            parts = (stream_source(source, name, time_type).column(key) for name in having)
            table = table.append_column(key, pc.coalesce(*parts))
    if table is source.input.table:
        return source
    return EventSource(source.input.of(table), source.starts, source.ends, source.valid)


def first_streams(source: EventSource, names: pa.Array, time_type: pa.DataType) -> pa.Array:
    """The first stream of rows that each row belongs to, or its name in `names` if there is none."""
    for stream in reversed([*source.input.views]):
        member = np.zeros(len(source.starts), bool)
        member[members_of(source, stream, time_type)] = True
        names = pc.if_else(pa.array(member), pa.scalar(str(stream)), names)
    return names


def with_elements(
    given: Sequence[EventSource], tables: Sequence[InputTable], time_type: pa.DataType
) -> tuple[EventSource, ...]:
    """The given tables, and behind them those of elements of their lists.

    `tables` are their shapes as plans see them: first those of the given tables.
    """
    shapes = iter(tables[len(given) :])
    found = (elements_of(source, own, shape, time_type) for source, own, shape in _lists_of(given, shapes))
    seen = (replace(source, input=_as_seen(source, shape)) for source, shape in zip(given, tables, strict=False))
    return (*seen, *found)


def _lists_of(
    given: Sequence[EventSource], shapes: Iterator[InputTable]
) -> Iterator[tuple[EventSource, Elements, InputTable]]:
    for source in given:
        for own in source.input.elements:
            yield source, own, next(shapes)


def _as_seen(source: EventSource, shape: InputTable) -> InputTable:
    """The given table without the lists, whose elements have tables of their own."""
    return replace(source.input, elements=(), elsewhere=shape.elsewhere)


def elements_of(source: EventSource, own: Elements, shape: InputTable, time_type: pa.DataType) -> ElementSource:
    """The elements of a list in the rows of a table, in the order of the rows; rows without a time have none."""
    rows = np.arange(len(source.starts), dtype=np.int32)
    if source.valid is not None:
        rows = rows[source.valid]
    with citing(own.source):
        values = _evaluated(own.list, source, rows, time_type)
    values = pa.nulls(len(rows), pa.list_(pa.null())) if pa.types.is_null(values.type) else values
    lists = Lists.of(values, own.name, exact=True)
    parents = np.repeat(rows, lists.lengths)
    index = np.arange(len(parents)) - np.repeat(lists.ends - lists.lengths, lists.lengths)
    columns: dict[str, pa.Array] = {}
    slices = (column for column in source.input.table.schema if column.name == SLICE)
    for name, kind in ((column.name, column.type) for column in (*shape.table.schema, *slices)):
        if name in (ELEMENT, INDEX):
            columns[name] = (lists.elements if name == ELEMENT else pa.array(index)).cast(kind)
        elif name.startswith(MEMBER):
            columns[name] = source.raw_column(name).take(pa.array(rows)).flatten()
        else:
            (columns[name],) = source.taken([name], parents)
    starts = source.starts[parents]
    ends = starts if source.ends is source.starts else source.ends[parents]
    return ElementSource(shape.of(pa.table(columns)), starts, ends, None, parents=parents, index=index)


def _members(source: EventSource, view: View, time_type: pa.DataType) -> Codes:
    """The events for which the condition of a view holds."""
    rows = np.arange(len(source.starts), dtype=np.int32)
    if source.valid is not None:
        rows = rows[source.valid]
    if view.member in source.input.table.column_names:
        member: Mask = np.asarray(source.raw_column(view.member))
        return rows[member[rows]]
    if view.where is None:
        return rows
    with citing(view.source):
        mask: Mask = condition_mask(view.where, _reader(source, rows, time_type), len(rows))
    return rows[mask]


def _evaluated(expression: Expr, source: EventSource, rows: Codes, time_type: pa.DataType) -> pa.Array:
    return evaluate(expression, _reader(source, rows, time_type), len(rows))


def _reader(source: EventSource, rows: Codes, time_type: pa.DataType) -> Callable[[Field], pa.Array]:
    """Reads the fields of an expression of a view in some rows; `s`, `e` and `t` are the times, as in patterns."""

    def column(wanted: Field) -> pa.Array:
        item, name = source.input, wanted.name
        times: Int64s | None = None
        if name == item.time or (name in ("s", "t") and name not in item.table.column_names):
            times = source.starts
        elif name == item.end or (name == "e" and name not in item.table.column_names):
            times = source.ends
        if times is not None:
            return pa.array(times[rows]).view(time_type)
        return source.values(name, rows)

    return column
