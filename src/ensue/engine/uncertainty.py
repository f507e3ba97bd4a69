"""Uncertain rows as numbers: a stretch of the unit interval for each.

Rows that are uncertain together form one *block*: a single row, or all alternatives of a group. A block draws one
number between 0 and 1, and a row is real iff the number is in the row's stretch. Alternatives have disjoint
stretches, so at most one of them is real; blocks are independent of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.keys import encode_columns
from ensue.errors import SchemaError
from ensue.expr.types import as_float
from ensue.kernels.compiler import Codes, Int64s
from ensue.nodes.names import Stream
from ensue.nodes.uncertainty import Hierarchy

Mask: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]

CERTAIN = -1
"""The block of certain rows."""

ROUNDING = 1e-9
"""The tolerance by which the probabilities of alternatives may exceed 1."""


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """For each row of a table, its probability, its block and its stretch."""

    probability: Floats
    block: Int64s
    low: Floats
    high: Floats
    is_certain: bool
    """Whether every row is certain."""
    kind: Codes | None = None
    """The stream of the hierarchy of each row, by its place among the names; -1: none of them."""

    def where(self, mask: npt.NDArray[np.bool_]) -> Uncertainty:
        kind = None if self.kind is None else self.kind[mask]
        return Uncertainty(
            self.probability[mask], self.block[mask], self.low[mask], self.high[mask], self.is_certain, kind
        )


def read_probabilities(column: pa.ChunkedArray, name: str, label: str) -> Floats:
    """The probabilities of the rows of a table."""
    values = as_float(column).cast(pa.float64())
    numbers: Floats = values.to_numpy() if not values.null_count else values.fill_null(np.nan).to_numpy()
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers <= 1)))
    if len(wrong):
        found = values[int(wrong[0])].as_py()
        raise SchemaError(
            "probability-value",
            f"column `{name}` of the {label} has {found} in row {int(wrong[0])} (counted from 0), "
            "expected a probability" + (f"; {len(wrong) - 1} more such rows" if len(wrong) > 1 else ""),
            "use numbers between 0 and 1; certain events have probability 1",
        )
    return numbers


def arrange_blocks(
    probabilities: Sequence[Floats], groups: Sequence[Sequence[pa.Array]], coarse: Sequence[Mask | None]
) -> list[Uncertainty]:
    """The blocks of all tables together: rows that agree on their groups form one block, whatever their table.

    A certain row has no block, unless it is `coarse`: then its finer stream is uncertain.
    """
    begins = np.concatenate([[0], np.cumsum([len(values) for values in probabilities])])
    whole = np.concatenate(probabilities) if probabilities else np.empty(0)
    block = np.arange(len(whole), dtype=np.int64)
    low = np.zeros(len(whole))
    listed = [place for place, columns in enumerate(groups) if columns]
    if listed:
        codes, _ = encode_columns(list(zip(*(groups[place] for place in listed), strict=True)))
        for place, own in zip(listed, codes, strict=True):
            rows = slice(begins[place], begins[place + 1])
            block[rows] = np.where(own >= 0, len(whole) + own.astype(np.int64), block[rows])
        low = _side_by_side(whole, block)
    masks = zip(probabilities, coarse, strict=True)
    settled = [np.ones(len(own), bool) if mask is None else ~mask for own, mask in masks]
    block[(whole >= 1) & np.concatenate([np.empty(0, bool), *settled])] = CERTAIN
    high, certain = low + whole, bool((block == CERTAIN).all())
    return [
        Uncertainty(whole[first:last], block[first:last], low[first:last], high[first:last], certain)
        for first, last in pairwise(begins)
    ]


def _side_by_side(probability: Floats, block: Int64s) -> Floats:
    """The start of each row's stretch, after those of earlier rows in its block."""
    order = np.argsort(block, kind="stable")
    sorted_blocks, values = block[order], probability[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = sorted_blocks[1:] != sorted_blocks[:-1]
    firsts = np.flatnonzero(is_first)
    lengths = np.diff(np.append(firsts, len(order)))
    sums = np.cumsum(values) - values
    inside = sums - np.repeat(sums[firsts], lengths)
    low = np.empty(len(order))
    low[order] = np.where(is_first, 0.0, inside)
    total = np.add.reduceat(values, firsts) if len(firsts) else values
    if len(total) and total.max() > 1 + ROUNDING:
        worst = firsts[int(np.argmax(total))]
        raise SchemaError(
            "alternatives-sum",
            f"the probabilities of the alternatives of row {int(order[worst])} add up to {total.max():.6g}",
            "scale them to add up to at most 1: at most one alternative is real",
        )
    return low


def stretches_within(
    uncertainty: Uncertainty, rows: Codes, stream: Stream, hierarchy: Hierarchy
) -> tuple[Floats, Floats]:
    """The part of each row's stretch in which it belongs to a stream: all of it, unless its type is coarser."""
    if uncertainty.kind is None or not isinstance(stream, str) or not hierarchy.is_finer(stream):
        return np.zeros(len(rows)), np.ones(len(rows))
    known = frozenset(hierarchy.kinds_of(stream))
    parts = [hierarchy.stretch(name, stream) if name in known else (0.0, 1.0) for name in hierarchy.names]
    begin, end = (np.array([*side, fill]) for side, fill in zip(zip(*parts, strict=True), (0.0, 1.0), strict=True))
    kinds = uncertainty.kind[rows]
    return begin[kinds], end[kinds]
