"""Probabilities of matches: that all their events are real, and none of their threats is.

For most matches this is a product, computed for all of them at once. If two threats of one match depend on each other,
its lineage is compiled to a decision diagram.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ensue.engine.diagrams import Possible, Stretch, probability_of_any
from ensue.engine.rows import Lists, MatchChunk
from ensue.engine.sources import Mask
from ensue.engine.uncertainty import CERTAIN, Floats, stretches_within
from ensue.engine.workspace import Workspace
from ensue.graph.graphs import Collection
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.stretches import chances_of_none
from ensue.nodes.names import Name

TOUCHING = 1e-12
"""Stretches that overlap by less than this count as disjoint."""


@dataclass(frozen=True, slots=True)
class Demands:
    """The conditions for events to be real: in each row, one stretch of a block per column; CERTAIN if there is no
    condition."""

    block: Int64s
    low: Floats
    high: Floats

    def take(self, rows: npt.NDArray[np.intp] | Codes | Int64s) -> Demands:
        return Demands(self.block[rows], self.low[rows], self.high[rows])

    @property
    def chances(self) -> Floats:
        """The probability that all conditions of a row hold; its blocks are distinct."""
        lengths: Floats = np.where(self.block == CERTAIN, 1.0, np.maximum(0.0, self.high - self.low))
        chances: Floats = lengths.prod(axis=1)
        return chances

    @property
    def asked(self) -> Int64s:
        """The number of blocks with a condition in each row."""
        counts: Int64s = (self.block != CERTAIN).sum(axis=1)
        return counts


@dataclass(frozen=True, slots=True)
class Threats:
    """The forbidden matches of some matches that may be real, one row each: the match, and its conditions.

    `parent` is, for a threat against another threat, the row of that one.
    """

    match: Int64s
    demands: Demands
    parent: Int64s | None = None
    against: Name | None = None

    def of_match(self, row: int) -> range:
        """The rows of one match, which are consecutive."""
        first, last = np.searchsorted(self.match, (row, row + 1))
        return range(int(first), int(last))


@dataclass(frozen=True, slots=True)
class Lineage:
    """The dependencies of matches: on their events, and on their threats, by the name of the list."""

    events: Demands
    threats: dict[Name, Threats]

    @classmethod
    def of(cls, chunk: MatchChunk) -> Lineage:
        """The lineage of the matches of a chunk."""
        space, rows, graph = chunk.space, chunk.rows, chunk.plan.graph
        events = merged_demands(demands_of(space, [(name, rows.places[name]) for name in graph.names], rows.length))
        threats: dict[Name, Threats] = {}
        if not space.store.is_certain:
            keys: dict[Name, Int64s] = {}
            for collection in graph.collections:
                if collection.threat is not None and collection.name in rows.lists:
                    found, keys[collection.name] = _listed(
                        collection, rows.lists[collection.name], events, threats, keys
                    )
                    threats[collection.name] = found
        return cls(events, threats)

    @property
    def length(self) -> int:
        return len(self.events.block)

    def take(self, rows: npt.NDArray[np.intp]) -> Lineage:
        """The lineage of some of the matches, renumbered."""
        number = np.full(self.length, -1, np.int64)
        number[rows] = np.arange(len(rows))
        kept = {name: np.flatnonzero(number[found.match] >= 0) for name, found in self.threats.items()}
        places = {name: _numbered(rows, len(self.threats[name].match)) for name, rows in kept.items()}
        threats = {
            name: Threats(
                number[found.match[kept[name]]],
                found.demands.take(kept[name]),
                None
                if found.parent is None or found.against is None
                else places[found.against][found.parent[kept[name]]],
                found.against,
            )
            for name, found in self.threats.items()
        }
        return Lineage(self.events.take(rows), threats)

    def blocks(self) -> tuple[Int64s, Int64s]:
        """Every pair of a match and a block that it depends on, by its events or by its threats."""
        matches, blocks = [], []
        events = (np.arange(self.length), self.events)
        for match, demands in (events, *((found.match, found.demands) for found in self.threats.values())):
            where, column = np.nonzero(demands.block != CERTAIN)
            matches.append(match[where])
            blocks.append(demands.block[where, column])
        return np.concatenate(matches), np.concatenate(blocks)

    def probabilities(self) -> Floats:
        """The probability of each match."""
        result = self.events.chances
        if not any(len(found.match) for found in self.threats.values()):
            return result
        entangled = self._entangled()
        result = result * self._chances_of_no_threat()
        for row in np.flatnonzero(entangled & (self.events.chances > 0)):
            result[row] = probability_of_any([self.possible(int(row))])
        return result

    def _entangled(self) -> Mask:
        """The matches for which the product of the probabilities of their threats is not exact.

        The product is exact if every threat depends on one block only, or on blocks that no other threat depends on.
        """
        entangled = np.zeros(self.length, bool)
        owners, blocks, single = [], [], []
        for found in self.threats.values():
            if found.against is not None:
                entangled[found.match] = True
                continue
            asked = found.demands.asked
            where, column = np.nonzero(found.demands.block != CERTAIN)
            owners.append(found.match[where])
            blocks.append(found.demands.block[where, column])
            single.append(asked[where] == 1)
        owner, block, alone = (np.concatenate(parts) for parts in (owners, blocks, single))
        order = np.lexsort((block, owner))
        owner, block, alone = owner[order], block[order], alone[order]
        same = (owner[1:] == owner[:-1]) & (block[1:] == block[:-1])
        entangled[owner[1:][same & ~(alone[1:] & alone[:-1])]] = True
        return entangled

    def _chances_of_no_threat(self) -> Floats:
        result = np.ones(self.length)
        owners, stretches = [], []
        for found in self.threats.values():
            if found.against is not None:
                continue
            asked = found.demands.asked
            several = asked != 1
            np.multiply.at(result, found.match[several], 1.0 - found.demands.take(np.flatnonzero(several)).chances)
            owners.append(found.match[~several])
            stretches.append(_only_stretch(found.demands.take(np.flatnonzero(~several))))
        owner = np.concatenate(owners)
        block, low, high = (np.concatenate(parts) for parts in zip(*stretches, strict=True))
        order = np.lexsort((low, block, owner))
        return result * chances_of_none(owner[order], block[order], low[order], high[order], self.length)

    def possible(self, row: int) -> Possible:
        """The conditions for one match to be real, and its threats."""
        return Possible(
            _stretches(self.events, row),
            tuple(
                self._threat(name, place, row)
                for name, found in self.threats.items()
                if found.against is None
                for place in found.of_match(row)
            ),
        )

    def _threat(self, name: Name, place: int, row: int) -> Possible:
        return Possible(
            _stretches(self.threats[name].demands, place),
            tuple(
                self._threat(other, inner, row)
                for other, found in self.threats.items()
                if found.against == name and found.parent is not None
                for inner in found.of_match(row)
                if found.parent[inner] == place
            ),
        )


def _numbered(rows: npt.NDArray[np.intp], count: int) -> Int64s:
    """The place of each of `count` rows among the chosen ones."""
    number = np.full(count, -1, np.int64)
    number[rows] = np.arange(len(rows))
    return number


def demands_of(space: Workspace, bound: Sequence[tuple[Name, Codes]], count: int) -> Demands:
    """The conditions for the bound events to be real."""
    shape = (count, len(bound))
    block, low, high = np.full(shape, CERTAIN, np.int64), np.zeros(shape), np.ones(shape)
    for column, (name, places) in enumerate(bound):
        found = space.candidates[name]
        uncertainty = found.source.uncertainty
        if uncertainty is not None:
            rows = found.rows[places]
            block[:, column] = uncertainty.block[rows]
            begin, end = stretches_within(uncertainty, rows, space.streams[name], space.catalog.hierarchy)
            chance = uncertainty.probability[rows]
            low[:, column] = uncertainty.low[rows] + chance * begin
            high[:, column] = np.where(end == 1.0, uncertainty.high[rows], uncertainty.low[rows] + chance * end)
    return Demands(block, low, high)


def no_demands() -> Demands:
    """The conditions of zero rows."""
    return Demands(np.empty((0, 1), np.int64), np.empty((0, 1)), np.empty((0, 1)))


def merged_demands(demands: Demands) -> Demands:
    """The same with each block once per row: two conditions on it are combined."""
    block, low, high = demands.block.copy(), demands.low.copy(), demands.high.copy()
    for later in range(1, block.shape[1]):
        for earlier in range(later):
            same = (block[:, earlier] == block[:, later]) & (block[:, later] != CERTAIN)
            if same.any():
                low[same, earlier] = np.maximum(low[same, earlier], low[same, later])
                high[same, earlier] = np.minimum(high[same, earlier], high[same, later])
                high[:, earlier] = np.where(
                    high[:, earlier] - low[:, earlier] < TOUCHING, low[:, earlier], high[:, earlier]
                )
                block[same, later] = CERTAIN
    return Demands(block, low, high)


def _listed(
    collection: Collection, lists: Lists, events: Demands, known: dict[Name, Threats], keys: dict[Name, Int64s]
) -> tuple[Threats, Int64s]:
    """The threats of a list that can be real together with their match, and their identities."""
    threat = collection.threat
    assert threat is not None
    match = np.repeat(np.arange(len(lists.offsets) - 1), lists.lengths)
    if not lists.parts:
        return Threats(match, no_demands(), match, threat.against), match
    demands = in_order(lists, threat.own)
    identity = _identities(lists, match, collection.names)
    parent = None
    possible = np.ones(len(match), bool)
    demands, possible = given_real(demands, events.take(match), possible)
    if threat.against is not None:
        outer = [name for name in collection.names if name not in threat.own]
        parent, has_parent = _places(_identities(lists, match, outer), keys[threat.against])
        possible &= has_parent
        if has_parent.any():
            demands, possible = given_real(demands, known[threat.against].demands.take(parent), possible)
    demands = merged_demands(demands)
    kept = np.flatnonzero(possible & (demands.chances > 0))
    return (
        Threats(match[kept], demands.take(kept), None if parent is None else parent[kept], threat.against),
        identity[kept],
    )


def in_order(lists: Lists, names: Sequence[Name]) -> Demands:
    """The conditions of each element of the lists, in the order of the lists."""
    found = [
        demands_of(
            part.space, [(name, part.rows.places[name]) for name in names if name in part.rows.places], part.rows.length
        )
        for part in lists.parts
    ]
    return Demands(
        np.concatenate([part.block for part in found]),
        np.concatenate([part.low for part in found]),
        np.concatenate([part.high for part in found]),
    ).take(lists.order)


def _identities(lists: Lists, match: Int64s, names: Sequence[Name]) -> Int64s:
    """The match of each element and the rows of the events that it binds to these names."""
    columns = [
        np.concatenate([part.space.candidates[name].rows[part.rows.places[name]] for part in lists.parts])[lists.order]
        for name in names
    ]
    return np.stack([match, *columns], axis=1).astype(np.int64)


def _places(wanted: Int64s, known: Int64s) -> tuple[Int64s, Mask]:
    """The place of each wanted row among the known ones, which are distinct, and whether it exists."""
    if not len(known):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    _, codes = np.unique(np.concatenate([known, wanted]), axis=0, return_inverse=True)
    codes = codes.ravel()
    place = np.full(codes.max() + 1, -1, np.int64)
    place[codes[: len(known)]] = np.arange(len(known))
    found = place[codes[len(known) :]]
    return np.maximum(found, 0), found >= 0


def given_real(demands: Demands, given: Demands, possible: Mask) -> tuple[Demands, Mask]:
    """The remaining conditions if some stretches are known to be real, and whether they can hold."""
    block, low, high = demands.block.copy(), demands.low.copy(), demands.high.copy()
    for column in range(block.shape[1]):
        for other in range(given.block.shape[1]):
            same = (block[:, column] == given.block[:, other]) & (block[:, column] != CERTAIN)
            overlap = np.minimum(high[:, column], given.high[:, other]) - np.maximum(
                low[:, column], given.low[:, other]
            )
            possible = possible & ~(same & (overlap < TOUCHING))
            block[same, column] = CERTAIN
    return Demands(block, low, high), possible


def _only_stretch(demands: Demands) -> tuple[Int64s, Floats, Floats]:
    """The only stretch of each row."""
    column = (demands.block != CERTAIN).argmax(axis=1)
    rows = np.arange(len(column))
    return demands.block[rows, column], demands.low[rows, column], demands.high[rows, column]


def _stretches(demands: Demands, row: int) -> tuple[Stretch, ...]:
    return tuple(
        Stretch(int(block), float(low), float(high))
        for block, low, high in zip(demands.block[row], demands.low[row], demands.high[row], strict=True)
        if block != CERTAIN
    )
