"""Matches of uncertain events with their probabilities, and with the means of what is said of their lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.output import value_of
from ensue.engine.probability import Lineage
from ensue.engine.rows import MatchChunk, Rows
from ensue.engine.sources import Mask
from ensue.engine.uncertainty import Floats
from ensue.engine.worlds import count_worlds, worlds_of
from ensue.errors import Problem, QueryError
from ensue.kernels.compiler import Int64s
from ensue.nodes.names import Name
from ensue.nodes.probability import Threshold
from ensue.plan.outputs import expected_columns

WORLDS_AT_ONCE = 1 << 20

_LIST_DECIDES = Problem(
    "uncertain-list",
    "whether there is a match depends on a list of uncertain events as a whole",
    hint="leave the condition on the list out, or look at each match by itself with `ensue.detect`",
)

Fitting = Callable[[Rows], Rows]
"""What keeps the rows whose lists are as the query asks."""


def weighed(chunk: MatchChunk, fitting: Fitting) -> MatchChunk:
    """The matches that are possible, with their probabilities, as far as they are as probable as the query asks."""
    if chunk.space.store.is_certain:
        rows = replace(chunk.rows, probability=np.ones(chunk.rows.length))
        return replace(chunk, rows=rows.where(_wanted(rows.probability, chunk.query_plan.query.having)))
    lineage = Lineage.of(chunk)
    named = {
        collection.name: collection.names
        for collection in chunk.plan.graph.collections
        if collection.threat is None and collection.name in chunk.rows.lists
    }
    lists = {name: found for name, found in chunk.rows.lists.items() if name in named}
    chunk = replace(chunk, rows=replace(chunk.rows, lists=lists, probability=lineage.probabilities()))
    if named:
        chunk = _with_worlds(chunk, lineage, named, fitting)
    assert chunk.rows.probability is not None
    wanted = np.flatnonzero(_wanted(chunk.rows.probability, chunk.query_plan.query.having))
    kept = lineage.take(wanted) if chunk.space.options.lineage else None
    return replace(chunk, rows=chunk.rows.take(wanted.astype(np.int32)), lineage=kept)


def _with_worlds(
    chunk: MatchChunk, lineage: Lineage, named: Mapping[Name, Sequence[Name]], fitting: Fitting
) -> MatchChunk:
    """The matches as probable as the worlds in which their lists are as asked, and the means over these worlds."""
    asking = chunk.space.options.lineage
    wanted = () if asking else expected_columns(chunk.query_plan)
    decides = _asks_of_lists(chunk)
    if decides and asking:
        raise QueryError([_LIST_DECIDES], chunk.query_plan.source)
    if not decides and not wanted:
        return chunk
    rows = chunk.rows
    probability, expected = np.zeros(rows.length), {place: np.zeros(rows.length) for place in wanted}
    for piece in _pieces(count_worlds(rows, lineage, named)):
        own = rows.take(piece.astype(np.int32))
        worlds = worlds_of(own, lineage.take(piece), named)
        fit = fitting(replace(worlds.rows, origin=np.arange(worlds.rows.length, dtype=np.int32))).origin
        assert fit is not None
        worlds = worlds.take(fit)
        probability[piece] = worlds.total(len(piece))
        inside = replace(chunk, rows=worlds.rows)
        for place in wanted:
            values = value_of(chunk.query_plan.query.returns[place].expression, inside)
            expected[place][piece] = worlds.expected(_as_floats(values), len(piece))
    return replace(chunk, rows=replace(rows, probability=probability, expected=expected))


def _asks_of_lists(chunk: MatchChunk) -> bool:
    """Whether it depends on its lists whether a match is one."""
    counted = any(
        collection.least or collection.most is not None
        for collection in chunk.plan.graph.collections
        if collection.threat is None
    )
    return counted or bool(chunk.plan.graph.list_conditions)


def _pieces(worlds: Int64s) -> Iterator[npt.NDArray[np.intp]]:
    """The matches in pieces whose worlds go into memory together."""
    reached = np.cumsum(worlds) // WORLDS_AT_ONCE
    yield from np.split(np.arange(len(worlds)), np.flatnonzero(np.diff(reached)) + 1)


def _as_floats(values: pa.Array) -> Floats:
    """Numbers, and truth as 0 or 1; NaN for null."""
    numbers: Floats = pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
    return numbers


def _wanted(probability: Floats | None, threshold: Threshold | None) -> Mask:
    assert probability is not None
    possible: Mask = probability > 0
    if threshold is None:
        return possible
    enough = probability > threshold.least if threshold.strict else probability >= threshold.least
    return possible & enough
