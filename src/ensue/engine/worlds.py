"""Lists of uncertain events: every world of the lists of a match with its probability, and the expected values over
worlds.

Requirements on a whole list, such as its number of elements, a condition or an aggregate, are evaluated in each of its
worlds as in a certain match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.diagrams import Possible, Stretch, probability_of_any
from ensue.engine.output import value_of
from ensue.engine.probability import Demands, Lineage, given_real, in_order, merged_demands, no_demands
from ensue.engine.rows import Lists, MatchChunk, Rows
from ensue.engine.sources import Mask
from ensue.engine.uncertainty import CERTAIN, Floats
from ensue.errors import LimitError, Problem, QueryError
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.ranges import expand_ranges
from ensue.nodes.names import Name
from ensue.nodes.uncertainty import Threshold
from ensue.plan.outputs import expected_columns

MOST_WORLDS = 4096
"""The maximum number of worlds of the lists of one match."""


@dataclass(frozen=True, slots=True)
class Worlds:
    """The possible outcomes of the lists of matches: the match, the probability together with it, and the elements."""

    match: Int64s
    weight: Floats
    rows: Rows

    def take(self, kept: Codes) -> Worlds:
        return Worlds(self.match[kept], self.weight[kept], self.rows.take(kept))

    def total(self, count: int) -> Floats:
        """The total probability of the worlds of each match."""
        return np.bincount(self.match, self.weight, count).astype(np.float64)

    def expected(self, values: Floats, count: int) -> Floats:
        """The mean of a value over the worlds of each match in which it is not null; NaN if there are none."""
        known = ~np.isnan(values)
        weights = np.bincount(self.match[known], self.weight[known], count)
        sums = np.bincount(self.match[known], self.weight[known] * values[known], count)
        means: Floats = np.divide(sums, weights, out=np.full(count, np.nan), where=weights > 0)
        return means


def count_worlds(rows: Rows, lineage: Lineage, names: Mapping[Name, Sequence[Name]]) -> Int64s:
    """The number of worlds of the lists of each match; raises a LimitError if there are too many."""
    return _Draws.of(_listed(rows, lineage, names), rows.length).worlds


def worlds_of(rows: Rows, lineage: Lineage, names: Mapping[Name, Sequence[Name]]) -> Worlds:
    """Every world of the lists `names` (each with its variables) of some matches in which those are real."""
    listed = _listed(rows, lineage, names)
    draws = _Draws.of(listed, rows.length)
    match = np.repeat(np.arange(rows.length), draws.worlds)
    number = np.arange(len(match)) - np.repeat(np.cumsum(draws.worlds) - draws.worlds, draws.worlds)
    assert rows.probability is not None
    weight = draws.weights(match, number) * rows.probability[match]
    for world in np.flatnonzero(_entangled(lineage, draws, rows.length)[match]):
        weight[world] = draws.chance(lineage.possible(int(match[world])), int(match[world]), int(number[world]))
    lists = {name: _real_elements(elements, draws, match, number) for name, elements in listed.items()}
    places = {name: found[match] for name, found in rows.places.items()}
    others = {name: found.take(match.astype(np.int32)) for name, found in rows.lists.items() if name not in listed}
    return Worlds(match, weight, Rows(len(match), places, lists={**others, **lists}))


def _listed(rows: Rows, lineage: Lineage, names: Mapping[Name, Sequence[Name]]) -> dict[Name, _Elements]:
    return {name: _possible_elements(rows.lists[name], variables, lineage.events) for name, variables in names.items()}


def _entangled(lineage: Lineage, draws: _Draws, count: int) -> Mask:
    """The matches whose threats depend on the same blocks as their lists."""
    result = np.zeros(count, bool)
    known = np.rec.fromarrays([draws.match, draws.block])
    for found in lineage.threats.values():
        where, column = np.nonzero(found.demands.block != CERTAIN)
        match = found.match[where]
        result[match[np.isin(np.rec.fromarrays([match, found.demands.block[where, column]]), known)]] = True
    return result


@dataclass(frozen=True, slots=True)
class _Elements:
    """The elements of lists that may be real, in order, and the conditions of each besides the events of its match."""

    lists: Lists
    match: Int64s
    demands: Demands


def _possible_elements(lists: Lists, variables: Sequence[Name], events: Demands) -> _Elements:
    match = np.repeat(np.arange(len(lists.offsets) - 1), lists.lengths)
    if not lists.parts:
        return _Elements(lists, match, no_demands())
    demands, possible = given_real(in_order(lists, variables), events.take(match), np.ones(len(match), bool))
    demands = merged_demands(demands)
    kept = np.flatnonzero(possible & (demands.chances > 0))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(match[kept], minlength=len(lists.offsets) - 1))])
    return _Elements(Lists(lists.parts, lists.order[kept], offsets), match[kept], demands.take(kept))


@dataclass(frozen=True, slots=True)
class _Draws:
    """The outcomes of the blocks of the lists of each match: none of the stretches (0), or one of them (1, 2, ...).

    A world has a number whose digits are the outcomes: that of a block is `number

    stride % size`.
    """

    worlds: Int64s
    match: Int64s
    block: Int64s
    size: Int64s
    stride: Int64s
    low: Floats
    high: Floats

    @classmethod
    def of(cls, listed: Mapping[Name, _Elements], count: int) -> _Draws:
        match, block, low, high = _asked(list(listed.values()))
        order = np.lexsort((low, block, match))
        match, block, low, high = match[order], block[order], low[order], high[order]
        new_pair = np.ones(len(match), bool)
        new_pair[1:] = (match[1:] != match[:-1]) | (block[1:] != block[:-1])
        different = new_pair.copy()
        different[1:] |= low[1:] != low[:-1]
        match, block, low, high = match[different], block[different], low[different], high[different]
        firsts = np.flatnonzero(new_pair[different])
        size, owner = np.diff(np.append(firsts, len(match))) + 1, match[firsts]
        stride, worlds = _strides(size, owner, count)
        return cls(worlds, owner, block[firsts], size, stride, low, high)

    @property
    def firsts(self) -> Int64s:
        """The first stretch of each block."""
        return np.cumsum(self.size - 1) - (self.size - 1)

    def find(self, match: Int64s, block: Int64s, low: Floats) -> tuple[Int64s, Int64s]:
        """The block and the digit of the conditions of some elements."""
        pair = np.searchsorted(np.rec.fromarrays([self.match, self.block]), np.rec.fromarrays([match, block]))
        stretches = np.rec.fromarrays([np.repeat(np.arange(len(self.size)), self.size - 1), self.low])
        return pair, np.searchsorted(stretches, np.rec.fromarrays([pair, low])) - self.firsts[pair] + 1

    def chance(self, case: Possible, match: int, number: int) -> float:
        """The probability of a match together with one world of its lists."""
        drawn, undrawn = [], []
        for pair in np.flatnonzero(self.match == match):
            digit = number // int(self.stride[pair]) % int(self.size[pair])
            first = int(self.firsts[pair])
            stretches = [
                Stretch(int(self.block[pair]), float(self.low[place]), float(self.high[place]))
                for place in range(first, first + int(self.size[pair]) - 1)
            ]
            drawn += [stretches[digit - 1]] if digit else []
            undrawn += [] if digit else stretches
        others = (Possible((stretch,)) for stretch in undrawn)
        return probability_of_any([Possible((*case.needs, *drawn), (*case.against, *others))])

    def weights(self, match: Int64s, number: Int64s) -> Floats:
        """The probability of each world."""
        result = np.ones(len(match))
        pairs_of = np.concatenate([[0], np.cumsum(np.bincount(self.match, minlength=len(self.worlds)))])
        first, last = pairs_of[match].astype(np.int32), pairs_of[match + 1].astype(np.int32)
        total = int((last - first).sum())
        if total:
            world, pair = expand_ranges(first, last, total)
            digit = number[world] // self.stride[pair] % self.size[pair]
            np.multiply.at(result, world, self._chances()[self.firsts[pair] + pair + digit])
        return result

    def _chances(self) -> Floats:
        """The probability of each digit of each block, block after block."""
        length = self.high - self.low
        none = np.maximum(0.0, 1.0 - np.add.reduceat(length, self.firsts))
        return np.insert(length, self.firsts, none)


def _asked(listed: Sequence[_Elements]) -> tuple[Int64s, Int64s, Floats, Floats]:
    """All conditions of elements on blocks: the match, the block, and the stretch."""
    parts = []
    for elements in listed:
        where, column = np.nonzero(elements.demands.block != CERTAIN)
        demands = elements.demands
        parts.append(
            (
                elements.match[where],
                demands.block[where, column],
                demands.low[where, column],
                demands.high[where, column],
            )
        )
    match, block, low, high = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return match, block, low, high


def _strides(size: Int64s, owner: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The weight of the digit of each block, and the number of worlds of each match."""
    logs = np.bincount(owner, np.log2(size), count)
    if len(logs) and logs.max() > np.log2(MOST_WORLDS) + 1e-9:
        raise LimitError(
            "too-many-worlds",
            f"the lists of one match have about {2 ** logs.max():.3g} possible outcomes, the limit is {MOST_WORLDS}",
            "narrow the list by a window or a condition, or set nearly certain events to probability 1",
        )
    stride, worlds = np.ones(len(size), np.int64), np.ones(count, np.int64)
    for place in range(int(np.bincount(owner, minlength=1).max()) if len(owner) else 0):
        rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
        own = rank == place
        stride[own] = worlds[owner[own]]
        worlds[owner[own]] *= size[own]
    return stride, worlds


def _real_elements(elements: _Elements, draws: _Draws, match: Int64s, number: Int64s) -> Lists:
    """The lists of each world: the elements that are real in it."""
    offsets = elements.lists.offsets
    first, last = offsets[match].astype(np.int32), offsets[match + 1].astype(np.int32)
    total = int((last - first).sum())
    if not total:
        return Lists(elements.lists.parts, np.empty(0, np.int32), np.zeros(len(match) + 1, np.int64))
    world, place = expand_ranges(first, last, total)
    real = np.ones(total, bool)
    for column in range(elements.demands.block.shape[1]):
        asked = np.flatnonzero(elements.demands.block[:, column] != CERTAIN)
        if not len(asked):
            continue
        pair, digit = np.zeros(len(elements.match), np.int64), np.full(len(elements.match), -1, np.int64)
        pair[asked], digit[asked] = draws.find(
            elements.match[asked], elements.demands.block[asked, column], elements.demands.low[asked, column]
        )
        drawn = (
            number[world] // draws.stride[pair[place]] % draws.size[pair[place]] if len(draws.stride) else digit[place]
        )
        real &= (digit[place] < 0) | (drawn == digit[place])
    kept = np.flatnonzero(real)
    lengths = np.bincount(world[kept], minlength=len(match))
    order: Codes = elements.lists.order[place[kept]]
    return Lists(elements.lists.parts, order, np.concatenate([[0], np.cumsum(lengths)]))


# --- probabilities of matches, and means over their lists

WORLDS_AT_ONCE = 1 << 20

_LIST_DECIDES = Problem(
    "uncertain-list",
    "a condition on a list of uncertain events is not supported for the probability of any match",
    hint="remove the condition on the list, or use `ensue.detect` to get the probability of each match",
)

Fitting = Callable[[Rows], Rows]
"""Keeps the rows whose lists satisfy the query."""


def weighed(chunk: MatchChunk, fitting: Fitting) -> MatchChunk:
    """The possible matches with their probabilities, if these reach the threshold of the query."""
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
    """The matches with the probability of the worlds in which their lists satisfy the query, and the means over these
    worlds."""
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
    """Whether the query has requirements on its lists."""
    counted = any(
        collection.least or collection.most is not None
        for collection in chunk.plan.graph.collections
        if collection.threat is None
    )
    return counted or bool(chunk.plan.graph.list_conditions)


def _pieces(worlds: Int64s) -> Iterator[npt.NDArray[np.intp]]:
    """The matches in pieces whose worlds fit in memory together."""
    reached = np.cumsum(worlds) // WORLDS_AT_ONCE
    yield from np.split(np.arange(len(worlds)), np.flatnonzero(np.diff(reached)) + 1)


def _as_floats(values: pa.Array) -> Floats:
    """Numbers as floats, booleans as 0 or 1; NaN for null."""
    numbers: Floats = pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
    return numbers


def _wanted(probability: Floats | None, threshold: Threshold | None) -> Mask:
    assert probability is not None
    possible: Mask = probability > 0
    if threshold is None:
        return possible
    enough = probability > threshold.least if threshold.strict else probability >= threshold.least
    return possible & enough
