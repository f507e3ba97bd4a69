"""Groups rows by trace: the stream and key of each row, and their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ensue.engine.events import Request, key_column, stream_codes
from ensue.engine.keys import NO_KEY, encode_columns, split
from ensue.engine.sources import EventSource, one_chunk
from ensue.engine.views import ViewSource, stream_source
from ensue.errors import SchemaError
from ensue.expr.types import common_type, readable_type
from ensue.kernels.codes import number_by_appearance
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.sorted_runs import is_sorted, order_by_time
from ensue.nodes.names import Stream

KEY = "key"
"""The prefix of the key columns in trace records."""


class TraceRows:
    """The rows of some streams by trace.

    `rows` are, per table, the rows that belong to a trace, in table order. For all of them, table after table, `codes`
    are their streams, `keys` their traces and `times` their ends. `known_keys` are the traces in further tables that
    have key columns. Traces are numbered in order of appearance, first in those tables: if the first one names each
    trace once, its rows are the first traces. Rows without a key are ignored; `keyless` are their streams.
    """

    def __init__(
        self,
        streams: tuple[Stream, ...],
        sources: tuple[EventSource, ...],
        request: Request,
        known: Sequence[pa.Table] = (),
    ) -> None:
        self.streams = streams
        self.sources = sources = by_view(sources, streams, request)
        all_codes = [self._stream_codes(source) for source in sources]
        self.rows = [np.flatnonzero(codes >= 0).astype(np.int32) for codes in all_codes]
        self.codes = joined([codes[rows] for codes, rows in zip(all_codes, self.rows, strict=True)])
        self.values = [self._key_values(place, request, known) for place in range(len(request.partition_by))]
        encoded, count = encode_columns(self.values)
        numbers, self.first_places = number_by_appearance(joined(encoded), count)
        *self.known_keys, self.keys = split(numbers, [*(table.num_rows for table in known), len(self.codes)])
        self.keyless = self._leave_out_keyless()
        self.times = joined([source.ends[rows] for source, rows in zip(sources, self.rows, strict=True)])

    @property
    def key_count(self) -> int:
        return len(self.first_places)

    def _stream_codes(self, source: EventSource) -> Codes:
        """The stream of each row, -1 for ignored rows."""
        stream = source.input.stream
        if isinstance(source, ViewSource) and source.view is not None:
            codes = np.full(len(source.starts), -1, np.int32)
            codes[source.members] = self.streams.index(source.view.stream)
            return codes
        if stream is None:
            codes = stream_codes(source.input, [*map(str, self.streams)])
            for number, name in enumerate(self.streams):
                if name in source.input.views:
                    codes[codes == number] = -1
        else:
            number = self.streams.index(stream) if stream in self.streams else -1
            codes = np.full(len(source.starts), number, np.int32)
        return codes if source.valid is None else np.where(source.valid, codes, np.int32(-1))

    def _key_values(self, place: int, request: Request, known: Sequence[pa.Table]) -> list[pa.Array]:
        """A partition column of the further tables, then of the used rows, by table."""
        name = request.partition_by[place]
        parts = [
            values if len(rows) == len(values) else values.take(pa.array(rows))
            for values, rows in zip(key_parts(name, self.sources, request), self.rows, strict=True)
        ]
        return [*(one_chunk(table.column(f"{KEY}_{place}")) for table in known), *parts]

    def _leave_out_keyless(self) -> Codes:
        """Removes the rows without a key, and returns their streams."""
        keyed = self.keys != NO_KEY
        if keyed.all():
            return self.codes[:0]
        keyless: Codes = self.codes[~keyed]
        self.rows = [rows[mask] for rows, mask in zip(self.rows, self.by_table(keyed), strict=True)]
        self.keys, self.codes = self.keys[keyed], self.codes[keyed]
        return keyless

    def new(self, after: int | None, until: int | None) -> Codes:
        """The places of the rows, in the order of all tables, that end after `after` and not after `until`, by time."""
        new = np.ones(len(self.times), bool)
        if after is not None:
            new &= self.times > after
        if until is not None:
            new &= self.times <= until
        order = np.flatnonzero(new).astype(np.int32)
        times = self.times[order]
        return order if is_sorted(times) else order[order_by_time(times)]

    def key_columns(self, numbers: Int64s) -> dict[str, pa.Array]:
        """The keys of some traces as columns."""
        wanted = pa.array(self.first_places[numbers])
        return {f"{KEY}_{number}": _one_column(parts).take(wanted) for number, parts in enumerate(self.values)}

    def by_table(self, values: np.ndarray) -> list[np.ndarray]:
        """Results for the rows of all tables, by table."""
        return split(values, [len(rows) for rows in self.rows])


def by_view(sources: Sequence[EventSource], streams: Sequence[Stream], request: Request) -> tuple[EventSource, ...]:
    """The tables, and each stream of rows as a table of its own. A row of two streams is two entries of its trace:
    constraints ask which streams occur, and when."""
    if not any(source.input.views for source in sources):
        return tuple(sources)
    found: list[EventSource] = []
    for source in sources:
        views = source.input.views
        if any(source.input.holds(stream) and stream not in views for stream in streams):
            found.append(source)
        found += [stream_source(source, stream, request.time_type) for stream in streams if stream in views]
    return tuple(found)


def no_keys(sources: Sequence[EventSource], streams: Sequence[Stream], request: Request) -> dict[str, pa.Array]:
    """The key columns of a table without rows."""
    sources = by_view(sources, streams, request)
    return {
        f"{KEY}_{place}": next(key_parts(name, sources, request)).slice(0, 0)
        for place, name in enumerate(request.partition_by)
    }


def key_parts(name: str, sources: Sequence[EventSource], request: Request) -> Iterator[pa.Array]:
    return (key_column(source, name, request) for source in sources)


def _one_column(parts: Sequence[pa.Array]) -> pa.Array:
    """Combines key columns of several tables, in a common type."""
    kinds = {part.type for part in parts}
    if len(parts) == 1:
        return parts[0]
    if len(kinds) > 1:
        common = common_type([readable_type(kind) for kind in kinds])
        try:
            parts = [part.cast(common or pa.string()) for part in parts]
        except pa.ArrowInvalid as error:
            raise SchemaError(
                "key-type",
                f"keys of types {', '.join(sorted(map(str, kinds)))} cannot be converted to a common type: {error}",
                "use the same type for the key column in all tables",
            ) from error
    return one_chunk(pa.chunked_array(parts))


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
