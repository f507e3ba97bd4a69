"""Events as a set: rows that are equal in every column are one, however they came about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analysis.declarations import END, LINEAGE, START
from ensue.engine.keys import encode_values
from ensue.engine.lineage import united_members
from ensue.engine.sources import Mask, one_chunk
from ensue.expr.types import element_type
from ensue.kernels.codes import number_values
from ensue.kernels.compiler import Codes

BYTES_PER_NUMBER = 8


def distinct_events(table: pa.Table) -> pa.Table:
    """Each event once, in the order in which they first appear; its lineage is that of all that are equal to it."""
    tied = np.sort(_tied(table))
    if len(tied) == 0:
        return table
    attributes = [name for name in table.column_names if name != LINEAGE]
    among = table.select(attributes).take(pa.array(tied))
    codes, count = row_codes([one_chunk(among.column(name)) for name in attributes])
    if count == len(tied):
        return table
    # Codes are numbered as values appear, so a row is the first of its like iff no code before is as great.
    first = np.append(True, codes[1:] > np.maximum.accumulate(codes)[:-1])
    kept = np.ones(table.num_rows, bool)
    kept[tied] = first
    events = table.filter(pa.array(kept))
    if LINEAGE not in table.column_names:
        return events
    equals = np.cumsum(kept) - 1
    equals[tied] = equals[tied[first]][codes]
    place = table.schema.get_field_index(LINEAGE)
    united = united_members(one_chunk(table.column(LINEAGE)), equals.astype(np.int32), events.num_rows)
    return events.set_column(place, LINEAGE, united)


def _tied(table: pa.Table) -> np.ndarray:
    """The rows of which others have the same interval: only these can be equal."""
    ends, starts = (_ticks(table, name) for name in (END, START))
    order = np.lexsort((starts, ends))
    return order[_with_equals(ends[order], starts[order])]


def _with_equals(ends: np.ndarray, starts: np.ndarray) -> Mask:
    """Which rows, in order, have the same interval as the one before or behind them."""
    same = (ends[1:] == ends[:-1]) & (starts[1:] == starts[:-1])
    return np.append(same, False) | np.append(False, same) if len(ends) else np.zeros(0, bool)


def row_codes(columns: Sequence[pa.Array]) -> tuple[Codes, int]:
    """A code for each row, the same for rows that are equal in all columns, numbered as they appear; null equals null.

    There is one column at least.
    """
    codes, count = _codes(columns[0])
    for column in columns[1:]:
        others, other_count = _codes(column)
        codes, count = number_values(codes.astype(np.int64) * other_count + others)
    return (codes, count) if len(columns) > 1 else number_values(codes.astype(np.int64))


def _codes(column: pa.Array) -> tuple[Codes, int]:
    """A code for each value, null among them, and how many there may be."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int32), 1
    if pa.types.is_struct(column.type):
        return row_codes([column.is_valid(), *column.flatten()])
    if element_type(column.type) is not None:
        column = _as_bytes(column)
    (codes,), count = encode_values([column])
    return codes + np.int32(1), count + 1


def _as_bytes(lists: pa.Array) -> pa.Array:
    """Lists as bytes that are equal iff the lists are: the codes of their elements, one after the other."""
    whole = _joined_bytes(_codes(lists.flatten())[0], _lengths(lists))
    return pc.if_else(lists.is_valid(), whole, None) if lists.null_count else whole


def _lengths(lists: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False))


def _joined_bytes(numbers: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """So many numbers at a time as bytes, which have the order of the numbers."""
    offsets = np.append(0, np.cumsum(lengths, dtype=np.int64)) * BYTES_PER_NUMBER
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(numbers.astype(">u8"))]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def in_settled_order(events: pa.Table) -> pa.Table:
    """The events by (end, start, attributes): the same order however they came about."""
    ends, starts = (_ticks(events, name) for name in (END, START))
    order = np.lexsort((starts, ends))
    tied = _with_equals(ends[order], starts[order])
    if tied.any():
        rows = events.take(pa.array(order[tied]))
        order[tied] = order[tied][_by_attributes(rows)]
    return events.take(pa.array(order))


def _ticks(events: pa.Table, name: str) -> np.ndarray:
    return np.asarray(one_chunk(events.column(name)).view(pa.int64()))


def _by_attributes(events: pa.Table) -> np.ndarray:
    """The order of rows by (end, start, attributes), null first."""
    columns = {"end": events.column(END), "start": events.column(START)}
    for place, field in enumerate(events.schema):
        if field.name not in (START, END, LINEAGE) and not pa.types.is_null(field.type):
            column = events.column(place)
            if column.null_count:
                columns[f"{place} is there"] = column.is_valid()
            columns[str(place)] = _ranks(one_chunk(column)) if pa.types.is_nested(field.type) else column
    table = pa.table(columns)
    return np.asarray(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]))


def _ranks(column: pa.Array) -> np.ndarray:
    """Numbers in the order of the values, equal for equal ones, null first; lists are compared element by element."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    if pa.types.is_struct(column.type):
        parts = [_ranks(part) for part in (column.is_valid(), *column.flatten())]
        column = _joined_bytes(np.stack(parts, axis=1).ravel(), np.full(len(column), len(parts)))
    elif element_type(column.type) is not None:
        missing = column.is_null()
        column = _joined_bytes(_ranks(column.flatten()), _lengths(column))
        column = pc.if_else(missing, None, column)
    plain = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    ranks = np.asarray(pc.rank(plain, tiebreaker="dense"))
    return np.where(column.is_null().to_numpy(zero_copy_only=False), 0, ranks)
