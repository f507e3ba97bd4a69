"""Codes for values that are only compared for equality: partition keys and join keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.expr.kinds import NANOSECONDS_PER_UNIT, TIMES, Kind
from ensue.expr.types import convert, kind_of, without_dates
from ensue.kernels.codes import fill_table, find_texts, intern_texts, intern_values, number_values
from ensue.kernels.compiler import Bytes, Codes, Int64s

NO_KEY = -1
"""The code of null, which equals nothing."""

DENSE_FACTOR = 2
"""Integers are their own codes if their range is at most this many times their count."""

WHOLE_NUMBERS = {Kind.INTEGER, *TIMES}
"""Kinds that are stored as integers."""


def encode_columns(columns: Sequence[Sequence[pa.Array]]) -> tuple[list[Codes], int]:
    """Codes for tables that share key columns: `columns[k][i]` is key column `k` of table `i`.

    Returns one array of codes per table, and the number of codes. Rows that agree on all columns get the same code.
    """
    codes, count = encode_values(columns[0])
    for parts in columns[1:]:
        codes, count = _combine(codes, count, *encode_values(parts))
    return codes, count


def encode_values(parts: Sequence[pa.Array]) -> tuple[list[Codes], int]:
    """Codes for arrays of comparable types, equal for equal values; only null has the code NO_KEY.

    Numbers are compared as `=` does: exactly, except for a decimal and a float, which are compared as floats.
    """
    kinds = {kind_of(part.type) for part in parts} - {Kind.NULL}
    if len({part.type for part in parts}) == 1:
        return _encode_parts(parts)
    if kinds <= {Kind.TIMESTAMP} or kinds <= {Kind.DURATION}:
        return _encode_pairs([_seconds_and_rest(without_dates(part)) for part in parts])
    if Kind.FLOAT in kinds and Kind.INTEGER in kinds and not any(pa.types.is_decimal(part.type) for part in parts):
        return _encode_pairs([_whole_and_fraction(part) for part in parts])
    common = _common_type(parts, kinds)
    return _encode_parts([convert(part, common) for part in parts])


def _common_type(parts: Sequence[pa.Array], kinds: set[Kind]) -> pa.DataType:
    """A type in which equal values of these arrays are equal."""
    decimals = [part.type for part in parts if pa.types.is_decimal(part.type)]
    if decimals and not any(pa.types.is_floating(part.type) for part in parts):
        return pa.decimal256(76, max(kind.scale for kind in decimals))
    if decimals or Kind.FLOAT in kinds:
        return pa.float64()
    if Kind.TEXT in kinds:
        return pa.large_string()
    return next((part.type for part in parts if kind_of(part.type) is not Kind.NULL), pa.null())


def _seconds_and_rest(part: pa.Array) -> tuple[pa.Array, pa.Array]:
    """A time of any unit as whole seconds and nanoseconds, which never overflow."""
    if pa.types.is_null(part.type):
        return part.cast(pa.int64()), part.cast(pa.int64())
    ticks = part.view(pa.int64())
    per_second = NANOSECONDS_PER_UNIT["s"] // NANOSECONDS_PER_UNIT[part.type.unit]
    seconds = _floor_divide(ticks, per_second)
    rest = pc.subtract(ticks, pc.multiply(seconds, per_second))
    return seconds, pc.multiply(rest, NANOSECONDS_PER_UNIT[part.type.unit])


def _floor_divide(values: pa.Array, divisor: int) -> pa.Array:
    filled = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    return pa.array(filled // divisor, mask=values.is_null().to_numpy(zero_copy_only=False))


def _whole_and_fraction(part: pa.Array) -> tuple[pa.Array, pa.Array]:
    """A number as an integer and a remainder; a float beyond the integer range is all remainder."""
    if not pa.types.is_floating(part.type):
        whole = part.cast(pa.int64())
        return whole, pc.if_else(whole.is_valid(), 0.0, None).cast(pa.float64())
    values = pc.fill_null(part, 0.0).to_numpy(zero_copy_only=False)
    inside = np.abs(values) < 2.0**63
    whole = np.where(inside, np.floor(values), 0.0).astype(np.int64)
    missing = part.is_null().to_numpy(zero_copy_only=False)
    rest = np.where(inside, values - np.floor(np.where(inside, values, 0.0)), values)
    return pa.array(whole, mask=missing), pa.array(rest, mask=missing)


def _encode_parts(parts: Sequence[pa.Array]) -> tuple[list[Codes], int]:
    values, lengths = parts[0] if len(parts) == 1 else pa.concat_arrays(parts), [len(part) for part in parts]
    if pa.types.is_integer(values.type) and values.null_count < len(values):
        low, high = (bound.as_py() for bound in pc.min_max(values).values())
        if high - low < max(DENSE_FACTOR * len(values), 1 << 10):
            if values.null_count:
                codes = _with_nulls(pc.subtract(values, low))
            else:
                codes = np.subtract(values.to_numpy(zero_copy_only=False), low, dtype=np.int64).astype(np.int32)
            return split(codes, lengths), high - low + 1
    codes, count = _encode_sparse(values)
    return split(codes, lengths), count


def _encode_pairs(pairs: Sequence[tuple[pa.Array, pa.Array]]) -> tuple[list[Codes], int]:
    return _combine(*_encode_parts([first for first, _ in pairs]), *_encode_parts([second for _, second in pairs]))


def _encode_sparse(values: pa.Array) -> tuple[Codes, int]:
    """Codes in the order in which values first appear."""
    if kind_of(values.type) in WHOLE_NUMBERS and values.type.bit_width == 64 and values.null_count == 0:
        return number_values(values.view(pa.int64()).to_numpy())
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)
    encoded = values.dictionary_encode()
    return _with_nulls(encoded.indices), len(encoded.dictionary)


def _with_nulls(indices: pa.Array) -> Codes:
    filled = pc.fill_null(indices, NO_KEY) if indices.null_count else indices
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.int32, copy=False)


def _combine(codes: list[Codes], count: int, others: list[Codes], other_count: int) -> tuple[list[Codes], int]:
    """One code per pair of codes; null if either is null."""
    lengths = [len(part) for part in codes]
    first, second = np.concatenate(codes), np.concatenate(others)
    packed = first.astype(np.int64) * max(other_count, 1)
    packed += second
    missing = (first < 0) | (second < 0)
    if count * other_count < max(DENSE_FACTOR * len(packed), 1 << 10):
        packed[missing] = NO_KEY
        return split(packed.astype(np.int32), lengths), count * other_count
    combined, count = _encode_sparse(pa.array(packed, mask=missing))
    return split(combined, lengths), count


def split(values: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
    """The values in pieces of the given lengths."""
    return [values[begin:end] for begin, end in pairwise(accumulate(lengths, initial=0))]


# -- codes that stay the same from step to step -----------------------------------------------------------------------

ROOM = 64
"""The initial capacity for codes."""


def can_intern(kind: pa.DataType) -> bool:
    """Whether keys of a (readable) type can have persistent codes."""
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
    """Integers with persistent codes. Codes are only added, so existing codes stay valid."""

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
    """Texts with persistent codes, as for integers."""

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
        """The codes of texts, -1 for unknown ones."""
        return find_texts(offsets, data, self.table, self.hashes, self.offsets, self.known)


def _places(room: int) -> int:
    """A power of two that is at least twice the number."""
    return 1 << (2 * room - 1).bit_length()


def _longer(values: np.ndarray, size: int) -> np.ndarray:
    longer = np.zeros(size, values.dtype)
    longer[: len(values)] = values
    return longer


class Keys:
    """The codes of keys with one or more columns. A key with a null has no code."""

    def __init__(self, columns: int) -> None:
        self.columns: list[Values | Texts | None] = [None] * columns
        self.pairs = [Values() for _ in range(columns - 1)]

    @property
    def count(self) -> int:
        """The number of codes."""
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
    """The offsets of the texts of a column, and all their bytes."""
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    _, offsets, data = column.buffers()
    if len(column) == 0 or data is None or offsets is None:
        return np.zeros(len(column) + 1, width), np.empty(0, np.uint8)
    begins = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    return begins, np.frombuffer(data, np.uint8)


def _numbers(column: pa.Array) -> Int64s:
    """The values of a column as integers, equal for equal values."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_floating(column.type):
        # Zero and minus zero are equal.
        column = pc.add(column, 0.0)
    numbers: Int64s = column.view(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
