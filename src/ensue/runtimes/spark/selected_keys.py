"""Keys that streams of rows compute: rows are copied before the shuffle, once for each key that they have.

A worker computes the keys with the expressions of the engine, so that both have the same meaning. Each copy has columns
that list its streams, because a copy must not count for the key of another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame

from ensue.analysis.catalog import TIME_NAMES
from ensue.engine.events import Request, key_column
from ensue.engine.sources import EventSource, load_sources
from ensue.engine.views import ElementSource, elements_of, members_of, stream_source
from ensue.expr.kinds import NUMBERS, TIMES, Kind
from ensue.expr.types import convert, kind_of
from ensue.nodes.names import Stream
from ensue.plan.inputs import InputTable, plain_schema
from ensue.plan.plans import QueryPlan
from ensue.plan.selections import PLAIN
from ensue.runtimes.spark.frames import FrameInput, spark_schema
from ensue.runtimes.spark.pushdown import column
from ensue.runtimes.spark.worker import spare_imports, struct_name

KEY = "ensue:key"


def are_computed(inputs: Sequence[FrameInput], keys: Sequence[str], plans: Sequence[QueryPlan]) -> bool:
    """Return True if a stream of rows has a key that is not the column of its table with the same name."""
    used = {stream for plan in plans for stream in plan.all_streams}
    return any(
        not view.copies(key)
        for entry in inputs
        for stream, view in entry.item.all_views.items()
        if stream in used
        for key in keys
        if key not in TIME_NAMES or key in view.columns
    )


def with_members(inputs: Sequence[FrameInput], plans: Sequence[QueryPlan]) -> tuple[FrameInput, ...]:
    """Return the inputs with the columns that list the streams of a copy."""
    found = []
    for entry in inputs:
        table = entry.item.table
        for name, stream in member_columns(entry.item, plans).items():
            table = table.append_column(name, pa.array([], member_type(entry.item, stream)))
        found.append(FrameInput(entry.frame, replace(entry.item, table=table)))
    return tuple(found)


def member_columns(item: InputTable, plans: Sequence[QueryPlan]) -> dict[str, Stream | None]:
    """The columns of membership, and the stream of each; None for streams of types and tables."""
    views = item.all_views
    if not views:
        return {}
    used = dict.fromkeys(stream for plan in plans for stream in plan.all_streams if item.holds(stream))
    columns: dict[str, Stream | None] = {views[name].member: name for name in used if name in views}
    return columns | ({PLAIN: None} if any(name not in views for name in used) else {})


def member_type(item: InputTable, stream: Stream | None) -> pa.DataType:
    """The type of a column of membership: of the row, or of each element of its list."""
    of_elements = any(stream in own.views for own in item.elements)
    return pa.list_(pa.bool_()) if of_elements else pa.bool_()


def copied(
    entry: FrameInput, frame: DataFrame, needed: Sequence[str], keys: Sequence[str], plans: Sequence[QueryPlan]
) -> tuple[DataFrame, list[Column]]:
    """Return the needed columns of an input, each row once for each of its keys, and columns that are equal for equal
    keys."""
    members = member_columns(entry.item, plans)
    names = [name for name in needed if name not in members]
    routes = [f"{KEY}{place}" for place in range(len(keys))]
    task = CopyTask(entry.item, tuple(names), tuple(keys), tuple(members.items()), plans[0].catalog.time_type)
    numbered = [struct_name(place) for place in range(len(names))]
    # By position, because `mapInArrow` selects columns by names in which dots and backticks have a meaning.
    travelling = plain_schema(pa.schema([entry.item.table.schema.field(name) for name in names]))
    schema = spark_schema(
        pa.schema(
            [
                *(pa.field(number, field.type) for number, field in zip(numbered, travelling, strict=True)),
                *(pa.field(name, member_type(entry.item, stream)) for name, stream in members.items()),
                *(pa.field(name, pa.string()) for name in routes),
            ]
        )
    )
    chosen = frame.select(*map(column, names)).toDF(*numbered)
    rows = chosen.mapInArrow(task, schema).toDF(*names, *members, *routes)
    return rows, [column(name) for name in routes]


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copies the rows of an input once for each of their keys; a row without a key is left out."""

    item: InputTable
    names: tuple[str, ...]
    keys: tuple[str, ...]
    members: tuple[tuple[str, Stream | None], ...]
    time_type: pa.DataType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        for batch in batches:
            if batch.num_rows:
                yield from self._copies(pa.Table.from_batches([batch])).to_batches()

    def _copies(self, given: pa.Table) -> pa.Table:
        schema = plain_schema(pa.schema([self.item.table.schema.field(name) for name in self.names]))
        table = given.rename_columns(self.names).cast(schema)
        (source,), _ = load_sources([self.item.of(table)], self.time_type)
        parts = [self._part(source, stream) for _, stream in self.members] or [self._part(source, None)]
        rows = np.concatenate([own.rows for own in parts])
        part = np.repeat(np.arange(len(parts)), [len(own.rows) for own in parts])
        places = np.concatenate([np.arange(len(own.rows)) for own in parts])
        texts = [pa.chunked_array([own.keys[place] for own in parts], pa.string()) for place in range(len(self.keys))]
        codes = [np.asarray(text.combine_chunks().dictionary_encode().indices.fill_null(-1)) for text in texts]
        keyed = np.logical_and.reduce([own >= 0 for own in codes])
        rows, part, places, codes = rows[keyed], part[keyed], places[keyed], [own[keyed] for own in codes]
        copies, first, owner = np.unique(
            np.stack([rows.astype(np.int64), *codes], axis=1), axis=0, return_index=True, return_inverse=True
        )
        owner = owner.ravel()
        taken = table.take(pa.array(copies[:, 0]))
        marks = [
            own.members(copies[:, 0], owner[part == number], places[part == number])
            for number, own in enumerate(parts[: len(self.members)])
        ]
        columns = [*taken.columns, *marks]
        places = np.flatnonzero(keyed)
        columns += [text.take(pa.array(places[first])) for text in texts]
        names = [*map(struct_name, range(len(self.names))), *(name for name, _ in self.members)]
        return pa.table(columns, names=[*names, *(f"{KEY}{place}" for place in range(len(self.keys)))])

    def _part(self, source: EventSource, stream: Stream | None) -> _Part:
        """Return the rows of a stream, and their keys as text; None: all rows with the columns of the table."""
        request = Request((), self.keys, self.time_type, False)
        lists = next((own for own in source.input.elements if stream in own.views), None)
        elements = None
        if lists is not None:
            shape = lists.table_of(replace(source.input, table=source.input.table.schema.empty_table()))
            source = elements = elements_of(source, lists, shape, self.time_type)
        own = source if stream is None else stream_source(source, stream, self.time_type)
        rows: np.ndarray = np.arange(len(source.starts), dtype=np.int32)
        if stream is not None:
            rows = members_of(source, stream, self.time_type)
        elif source.valid is not None:
            rows = rows[source.valid]
        keys = [as_text(key_column(own, name, request).take(pa.array(rows))) for name in self.keys]
        return _Part(rows, keys) if elements is None else _Part(elements.parents[rows], keys, elements, rows)


@dataclass(frozen=True, slots=True)
class _Part:
    """The events of a stream: the row of each, and its keys as text. If they are elements of lists, `events` are their
    places among all `elements`."""

    rows: np.ndarray
    keys: list[pa.Array]
    elements: ElementSource | None = None
    events: np.ndarray | None = None

    def members(self, rows: np.ndarray, copies: np.ndarray, places: np.ndarray) -> pa.Array:
        """Return which copies have an event of the stream, or which elements in the list of each copy are events.

        `rows` are the rows of all copies; `copies` are those of the events at `places`.
        """
        if self.elements is None or self.events is None:
            found = np.zeros(len(rows), bool)
            found[copies] = True
            return pa.array(found)
        lengths = np.bincount(self.elements.parents, minlength=int(rows.max(initial=-1)) + 1)[rows]
        ends = np.cumsum(lengths)
        found = np.zeros(int(ends[-1]) if len(ends) else 0, bool)
        found[(ends - lengths)[copies] + self.elements.index[self.events[places]]] = True
        return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), pa.array(found))


def as_text(values: pa.Array) -> pa.Array:
    """Return texts that are equal for equal keys, whatever their types."""
    kind = kind_of(values.type)
    if kind in NUMBERS or pa.types.is_decimal(values.type):
        values = pc.add(convert(values, pa.float64()), 0.0)
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
    elif kind in TIMES:
        # Times of two units are equal. Those that differ only in nanoseconds may share a text.
        unit = pa.duration("us") if kind is Kind.DURATION else pa.timestamp("us", values.type.tz)
        values = values.cast(unit, safe=False).cast(pa.int64())
    return values.cast(pa.string())
