"""Codes for keys that stay the same from step to step: equal keys have one code while events of it are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.keys import NO_KEY
from ensue.kernels.codes import fill_table, find_texts, intern_texts, intern_values
from ensue.kernels.compiled import Bytes, Codes, Int64s

ROOM = 64
"""For how many codes there is room in the beginning."""


def can_intern(kind: pa.DataType) -> bool:
    """Whether keys of a (readable) type can have codes that last."""
    return any(
        matches(kind)
        for matches in (
            pa.types.is_int64,
            pa.types.is_timestamp,
            pa.types.is_duration,
            pa.types.is_boolean,
            pa.types.is_float64,
            pa.types.is_string,
            pa.types.is_large_string,
        )
    )


class Values:
    """Whole numbers with a code each. Codes are only ever added, so that everyone who has one can go on using it."""

    def __init__(self) -> None:
        self.count = 0
        self.known: Int64s = np.empty(ROOM, np.int64)
        self.table: Codes = np.full(2 * ROOM, -1, np.int32)

    def codes(self, values: Int64s) -> Codes:
        most = self.count + len(values)
        if most > len(self.known):
            room = max(most, 2 * len(self.known))
            self.known = _longer(self.known, room)
            self.table = np.full(_places(room), -1, np.int32)
            fill_table(self.table, self.known, self.count)
        codes, self.count = intern_values(values, self.table, self.known, self.count)
        return codes


class Texts:
    """Texts with a code each, as for whole numbers."""

    def __init__(self) -> None:
        self.count = 0
        self.hashes: Int64s = np.empty(ROOM, np.int64)
        self.offsets: Int64s = np.zeros(ROOM + 1, np.int64)
        self.known: Bytes = np.empty(ROOM * 8, np.uint8)
        self.table: Codes = np.full(2 * ROOM, -1, np.int32)

    def codes(self, offsets: Int64s, data: Bytes) -> Codes:
        most = self.count + len(offsets) - 1
        if most > len(self.hashes):
            room = max(most, 2 * len(self.hashes))
            self.hashes, self.offsets = _longer(self.hashes, room), _longer(self.offsets, room + 1)
            self.table = np.full(_places(room), -1, np.int32)
            fill_table(self.table, self.hashes, self.count)
        size = int(self.offsets[self.count]) + int(offsets[-1] - offsets[0])
        if size > len(self.known):
            self.known = _longer(self.known, max(size, 2 * len(self.known)))
        codes, self.count = intern_texts(offsets, data, self.table, self.hashes, self.offsets, self.known, self.count)
        return codes

    def find(self, offsets: np.ndarray, data: Bytes) -> Codes:
        """The codes of texts, -1 for those that have none."""
        return find_texts(offsets, data, self.table, self.hashes, self.offsets, self.known)


def _places(room: int) -> int:
    """A power of two that is at least twice as much."""
    return 1 << (2 * room - 1).bit_length()


def _longer(values: np.ndarray, size: int) -> np.ndarray:
    longer = np.zeros(size, values.dtype)
    longer[: len(values)] = values
    return longer


class Keys:
    """The codes of keys of one or more columns. A key with a null in it has none."""

    def __init__(self, columns: int) -> None:
        self.columns: list[Values | Texts | None] = [None] * columns
        self.pairs = [Values() for _ in range(columns - 1)]

    @property
    def count(self) -> int:
        """How many codes there are."""
        if not self.columns:
            return 1
        last = self.pairs[-1] if self.pairs else self.columns[0]
        return 0 if last is None else last.count

    def codes(self, columns: Sequence[pa.Array], rows: int) -> Codes:
        """The codes of some rows, given by their key columns."""
        if not columns:
            return np.zeros(rows, np.int32)
        codes = self._column_codes(0, columns[0])
        for place, column in enumerate(columns[1:], start=1):
            packed = (codes.astype(np.int64) << 32) | self._column_codes(place, column)
            missing = packed < 0
            together = self.pairs[place - 1].codes(packed)
            codes = np.where(missing, np.int32(NO_KEY), together) if missing.any() else together
        return codes

    def _column_codes(self, place: int, column: pa.Array) -> Codes:
        if not column.null_count:
            return self._codes(place, column)
        present = column.is_valid().to_numpy(zero_copy_only=False)
        codes = np.full(len(column), NO_KEY, np.int32)
        codes[present] = self._codes(place, column.drop_null())
        return codes

    def _codes(self, place: int, column: pa.Array) -> Codes:
        known = self.columns[place]
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            known = self.columns[place] = known if known is not None else Texts()
            assert isinstance(known, Texts)
            begins, data = texts_of(column)
            return known.codes(begins.astype(np.int64, copy=False), data)
        known = self.columns[place] = known if known is not None else Values()
        assert isinstance(known, Values)
        return known.codes(_numbers(column))


def texts_of(column: pa.Array) -> tuple[np.ndarray, Bytes]:
    """Where the texts of a column begin and the last one ends, and all their bytes."""
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    _, offsets, data = column.buffers()
    if len(column) == 0 or data is None or offsets is None:
        return np.zeros(len(column) + 1, width), np.empty(0, np.uint8)
    begins = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    return begins, np.frombuffer(data, np.uint8)


def _numbers(column: pa.Array) -> Int64s:
    """The values of a column as whole numbers, equal for equal ones."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_floating(column.type):
        # Zero and minus zero are equal.
        column = pc.add(column, 0.0)
    numbers: Int64s = column.view(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
