"""The kept events of a stage, encoded and sorted: new rows are sorted among themselves and merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ensue.engine.events import Candidates
from ensue.engine.keys import Keys, texts_of
from ensue.engine.sources import EventSource, Mask, one_chunk
from ensue.kernels.codes import append_texts
from ensue.kernels.compiler import Bytes, Codes, Int64s
from ensue.kernels.sorted_runs import keep_sorted, merge_sorted, offsets_of_kinds
from ensue.nodes.names import Stream

IDLE_CODES = 4096
"""The number of unused codes, beyond the number of events, at which keys are renumbered."""


class Run(NamedTuple):
    """The evaluated events of an input, by stream, key, start and arrival.

    `rows` are those of the input, `kinds` the numbers of their streams.
    """

    rows: Codes
    kinds: Codes
    keys: Codes
    starts: Int64s
    ends: Int64s


NO_CODES, NO_TIMES = np.empty(0, np.int32), np.empty(0, np.int64)
NOTHING = Run(NO_CODES, NO_CODES, NO_CODES, NO_TIMES, NO_TIMES)


@dataclass(frozen=True, slots=True)
class Index:
    """The runs of the inputs of a stage.

    `keys` gives equal keys the same code in every step. It only grows, so a failing step changes nothing.
    """

    keys: Keys
    runs: tuple[Run, ...] = ()

    def with_rows(self, place: int, rows: Codes, kinds: Codes, keys: Codes, source: EventSource) -> Run:
        """Adds rows to the run of an input; `kinds` and `keys` are those of all rows of the source."""
        before = self.runs[place] if self.runs else NOTHING
        return Run(*merge_sorted(*before, rows, kinds, keys, source.starts, source.ends)) if len(rows) else before

    def kept(self, runs: Sequence[Run], places: Sequence[Codes | None]) -> Index:
        """The index of the rows that have a new place (at least 0); None: all rows of the input stay."""
        left = [run if own is None else Run(*keep_sorted(*run, own)) for run, own in zip(runs, places, strict=True)]
        return replace(self, runs=tuple(left))


def candidates_of(run: Run, source: EventSource, streams: Sequence[Stream], key_count: int) -> dict[Stream, Candidates]:
    """The events of each stream of an input."""
    begins, offsets = offsets_of_kinds(run.kinds, run.keys, len(streams), key_count)
    found: dict[Stream, Candidates] = {}
    for number, stream in enumerate(streams):
        own = slice(begins[number], begins[number + 1])
        starts = run.starts[own]
        ends = starts if source.ends is source.starts else run.ends[own]
        found[stream] = Candidates(
            source, run.rows[own], run.keys[own], starts, ends, None, offsets[number], starts, ends
        )
    return found


def new_places(kept: Mask) -> Codes | None:
    """The new place of each row if only some are kept, -1 for the others; None if all are kept."""
    if kept.all():
        return None
    places = np.cumsum(kept, dtype=np.int32)
    places -= 1
    places[~kept] = -1
    return places


MOST_TEXT = 1 << 30
"""The maximum number of bytes of a column with spare room."""


class Room:
    """The buffers of a column with room for further rows. The owner of all `used` rows may append to them.

    Written rows never change, so every state that shares some of them stays valid.
    """

    __slots__ = ("buffers", "data", "kind", "used", "valid", "values")

    def __init__(self, column: pa.Array, more: int, more_bytes: int) -> None:
        """The rows of a column, with room for the same number again and `more`."""
        size = 2 * (len(column) + more) + 1
        self.kind, self.used = column.type, 0
        self.valid: Mask | None = None
        self.data: Bytes | None = None
        if _is_text(column.type):
            begins, _ = texts_of(column)
            self.values = np.zeros(size, begins.dtype)
            self.data = np.empty(2 * (int(begins[-1]) - int(begins[0]) + more_bytes), np.uint8)
            self.buffers = [pa.py_buffer(self.values), pa.py_buffer(self.data)]
        else:
            self.values = np.empty(size, _values_of(column).dtype)
            self.buffers = [pa.py_buffer(self.values)]
        self.add(column, np.arange(len(column)))

    def add(self, column: pa.Array, rows: Int64s) -> pa.Array | None:
        """The column with some rows of another appended; None if there is no room."""
        before, after = self.used, self.used + len(rows)
        if after >= len(self.values):
            return None
        if self.data is None:
            self.values[before:after] = _values_of(column)[rows]
        elif not append_texts(*texts_of(column), rows, self.values, self.data, before):
            return None
        if column.null_count or self.valid is not None:
            if self.valid is None:
                self.valid = np.ones(len(self.values), bool)
            self.valid[before:after] = column.is_valid().to_numpy(zero_copy_only=False)[rows]
        self.used = after
        valid = None if self.valid is None else pa.py_buffer(np.packbits(self.valid[:after], bitorder="little"))
        return pa.Array.from_buffers(self.kind, after, [valid, *self.buffers], 0 if valid is None else -1)


def joined(
    table: pa.Table, rooms: Sequence[Room | None], more: pa.Table, rows: Int64s
) -> tuple[pa.Table, tuple[Room | None, ...]]:
    """A table with some rows of another appended, each column in one piece, and the buffers for further rows."""
    columns, after = [], []
    for place, item in enumerate(table.schema):
        room, added = rooms[place] if rooms else None, one_chunk(more.column(item.name))
        if added.type != item.type:
            added = added.cast(item.type)
        column = room.add(added, rows) if room is not None and room.used == table.num_rows else None
        if column is None:
            column, room = _copied(one_chunk(table.column(place)), added, rows)
        columns.append(column)
        after.append(room)
    return pa.Table.from_arrays(columns, schema=table.schema), tuple(after)


def _copied(column: pa.Array, more: pa.Array, rows: Int64s) -> tuple[pa.Array, Room | None]:
    """A column and some rows of another in new buffers; with spare room if its type and size allow it."""
    if _can_have_room(column.type) and column.nbytes + more.nbytes < MOST_TEXT:
        room = Room(column, len(rows), more.nbytes)
        found = room.add(more, rows)
        if found is not None:
            return found, room
    return one_chunk(pa.chunked_array([column, more.take(pa.array(rows))])), None


def _can_have_room(kind: pa.DataType) -> bool:
    return _is_text(kind) or (
        pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) and kind.byte_width in (1, 2, 4, 8)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _values_of(column: pa.Array) -> np.ndarray:
    """The buffer of a column of fixed-size values; the values of nulls are undefined."""
    buffer = column.buffers()[1]
    kind = np.dtype(f"u{column.type.byte_width}")
    if buffer is None:
        return np.zeros(len(column), kind)
    return np.frombuffer(buffer, kind, len(column), column.offset * kind.itemsize)
