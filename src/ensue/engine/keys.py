"""Codes for values that are only compared for equality: partition keys and join keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.expr.types import UNITS, Kind, kind_of
from ensue.kernels.compiled import Codes, Int64s

NO_KEY = -1
"""The code of null, which equals nothing."""

DENSE_FACTOR = 2
"""Integers are their own codes while their range is at most so many times their count."""


def encode_columns(columns: Sequence[Sequence[pa.Array]]) -> tuple[list[Codes], int]:
    """Codes for tables that share key columns: `columns[k][i]` is key column `k` of table `i`.

    Gives one array of codes per table, and how many codes there are. Rows that agree on all columns get one code.
    """
    encoded = [encode_values(parts) for parts in columns]
    codes, count = encoded[0]
    for others, other_count in encoded[1:]:
        codes, count = _combine(codes, count, others, other_count)
    return codes, count


def encode_values(parts: Sequence[pa.Array]) -> tuple[list[Codes], int]:
    """Codes for readable arrays of comparable types, null and only null being NO_KEY."""
    same_type = len({part.type for part in parts}) == 1
    codes, count = _encode(pa.concat_arrays(parts if same_type else unify(parts)))
    ends = np.cumsum([len(part) for part in parts])
    return np.split(codes, ends[:-1]), count


def unify(parts: Sequence[pa.Array]) -> list[pa.Array]:
    """The arrays cast to one type in which equal values are equal."""
    kinds = {kind_of(part.type) for part in parts} - {Kind.NULL}
    if any(pa.types.is_decimal(part.type) for part in parts) or Kind.FLOAT in kinds:
        target = pa.float64()
    elif Kind.TIMESTAMP in kinds:
        target = pa.timestamp(_finest(parts), "UTC")
    elif Kind.DURATION in kinds:
        target = pa.duration(_finest(parts))
    elif Kind.TEXT in kinds:
        target = pa.large_string()
    else:
        target = next((part.type for part in parts if kind_of(part.type) is not Kind.NULL), pa.null())
    return [_cast(part, target) for part in parts]


def _cast(part: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(part.type) and pa.types.is_timestamp(target):
        part = part.view(pa.int64()).view(pa.timestamp(part.type.unit, "UTC"))
    return part.cast(target, safe=not pa.types.is_floating(target))


def _finest(parts: Sequence[pa.Array]) -> str:
    units = [part.type.unit for part in parts if kind_of(part.type) in (Kind.TIMESTAMP, Kind.DURATION)]
    return str(max(units, key=UNITS.index))


def _encode(values: pa.Array) -> tuple[Codes, int]:
    if pa.types.is_integer(values.type) and len(values) and values.null_count < len(values):
        bounds = pc.min_max(values)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if high - low < max(DENSE_FACTOR * len(values), 1 << 10):
            return _offset(values, low), high - low + 1
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)
    encoded = values.dictionary_encode()
    return _with_nulls(encoded.indices), len(encoded.dictionary)


def _offset(values: pa.Array, low: int) -> Codes:
    if values.null_count == 0:
        numbers: Int64s = values.to_numpy(zero_copy_only=False)
        return np.subtract(numbers, low, dtype=np.int64).astype(np.int32)
    return _with_nulls(pc.subtract(values, low))


def _with_nulls(indices: pa.Array) -> Codes:
    filled = pc.fill_null(indices, NO_KEY) if indices.null_count else indices
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.int32, copy=False)


def _combine(codes: list[Codes], count: int, others: list[Codes], other_count: int) -> tuple[list[Codes], int]:
    """One code per pair of codes; null in either is null."""
    lengths = np.cumsum([len(part) for part in codes])
    packed = np.concatenate(codes).astype(np.int64) * max(other_count, 1)
    second = np.concatenate(others)
    missing = (np.concatenate(codes) < 0) | (second < 0)
    packed += second
    encoded = pa.array(packed, mask=missing).dictionary_encode()
    return np.split(_with_nulls(encoded.indices), lengths[:-1]), len(encoded.dictionary)
