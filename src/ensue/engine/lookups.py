"""Rows of tables that do not change, put beside the matches of a statement."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ensue.engine.keys import encode_columns
from ensue.engine.sources import one_chunk
from ensue.kernels.compiler import Codes
from ensue.kernels.sorted_runs import group_by_key
from ensue.nodes.patterns import Lookup


def look_up(matches: pa.Table, lookup: Lookup, table: pa.Table, check: Callable[[int], None]) -> pa.Table:
    """Each match once for every row of the table that agrees with it, in the order of both, with the columns added.

    `check` is told how many there are before they are made.
    """
    places, rows = _pairs(matches, lookup, table, check)
    found = matches.take(pa.array(places))
    for column, name in lookup.columns:
        found = found.append_column(name, table.column(column).take(pa.array(rows)))
    return found


def _pairs(
    matches: pa.Table, lookup: Lookup, table: pa.Table, check: Callable[[int], None]
) -> tuple[np.ndarray, np.ndarray]:
    """The places of matches and of the rows that go with them."""
    keys, codes, count = _codes(matches, lookup, table)
    order, offsets = group_by_key(codes, count)
    known = np.maximum(keys, 0)
    lengths = np.where(keys >= 0, offsets[known + 1] - offsets[known], 0)
    check(int(lengths.sum()))
    begins = np.cumsum(lengths) - lengths
    within = np.arange(lengths.sum()) - np.repeat(begins, lengths)
    return np.repeat(np.arange(len(keys)), lengths), order[np.repeat(offsets[known], lengths) + within]


def _codes(matches: pa.Table, lookup: Lookup, table: pa.Table) -> tuple[Codes, Codes, int]:
    """What has to agree, as codes of the matches and of the rows; -1 agrees with nothing."""
    if not lookup.on:
        return np.zeros(matches.num_rows, np.int32), np.zeros(table.num_rows, np.int32), 1
    columns = [(one_chunk(matches.column(left)), one_chunk(table.column(right))) for left, right in lookup.on]
    (keys, codes), count = encode_columns(columns)
    return keys, codes, max(count, 1)
