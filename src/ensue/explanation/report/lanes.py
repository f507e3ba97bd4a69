"""Which keys a page shows, each in a lane: those with matches first, of every pattern in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.api import Loaded
from ensue.engine.sources import EventSource, Mask
from ensue.explanation.report.found import Found, Int64s, one_array
from ensue.explanation.report.values import plain
from ensue.explanation.words import key_in_words
from ensue.expr.types import common_type
from ensue.nodes.names import AnyEvent, Stream
from ensue.plan.declared import Derivation

Lanes = npt.NDArray[np.int64]
"""The lane of each row, -1 where it is in none."""
Key = tuple[Any, ...]


@dataclass
class LaneGroup:
    """The lanes of the patterns with the same key columns; without such columns one lane with everything.

    `total` is how many keys there are in the data, `first` the number of the first lane on the page.
    """

    keys: tuple[str, ...]
    found: list[Found]
    streams: frozenset[Stream]
    everything: bool
    shown: list[Key] = field(default_factory=list)
    total: int = 1
    first: int = 0

    def lanes(self, columns: Sequence[pa.Array], length: int) -> Lanes:
        """The lane of each row of these key columns."""
        if not self.keys:
            return np.full(length, self.first, np.int64)
        if not self.shown:
            return np.full(length, -1, np.int64)
        codes, wanted = np.zeros(length, np.int64), np.zeros(len(self.shown), np.int64)
        missing = np.zeros(length, bool)
        for place, column in enumerate(columns):
            values = pa.array([key[place] for key in self.shown])
            kind = common_type((values.type, column.type)) or pa.string()
            values = values.cast(kind)
            distinct = pc.unique(values)
            found = pc.index_in(column.cast(kind), distinct).fill_null(-1).to_numpy(zero_copy_only=False)
            missing |= found < 0
            codes = codes * len(distinct) + found
            wanted = wanted * len(distinct) + pc.index_in(values, distinct).to_numpy(zero_copy_only=False)
        order = np.argsort(wanted)
        places = np.minimum(np.searchsorted(wanted[order], codes), len(order) - 1)
        fits = ~missing & (wanted[order][places] == codes)
        return np.where(fits, order[places] + self.first, -1)

    def labels(self) -> Iterator[str]:
        if not self.keys:
            yield "all events"
        for key in self.shown:
            yield str(plain(key[0])) if len(key) == 1 else key_in_words(dict(zip(self.keys, key, strict=True)))

    def rows_of(self, source: EventSource) -> tuple[Int64s, Lanes]:
        """The rows of a table that stand in a lane of the group, and which."""
        table = source.input.table
        wanted = self._takes_part(source)
        if not wanted.any() or not {*self.keys} <= {*table.column_names}:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        lanes = np.where(wanted, self.lanes([source.column(key) for key in self.keys], table.num_rows), -1)
        rows = np.flatnonzero(lanes >= 0)
        return rows, lanes[rows]

    def _takes_part(self, source: EventSource) -> Mask:
        """The rows whose streams the patterns of the group look at."""
        item, count = source.input, source.input.table.num_rows
        nothing = np.zeros(count, bool)
        if item.stream is not None:
            named = item.stream in self.streams or (self.everything and not item.derived)
            wanted = ~nothing if named and isinstance(item.stream, str) else nothing
        elif self.everything:
            wanted = ~nothing
        else:
            values = pa.array(sorted(name for name in self.streams if isinstance(name, str)), pa.string())
            found = pc.is_in(source.column(str(item.type)).cast(pa.string()), values)
            wanted = found.to_numpy(zero_copy_only=False)
        return wanted if source.valid is None else wanted & source.valid

    def keys_of(self, source: EventSource) -> tuple[list[pa.Array], Int64s] | None:
        """The keys of the rows of a table that take part, column by column, and their starts; None without keys."""
        if not {*self.keys} <= {*source.input.table.column_names}:
            return None
        mask = self._takes_part(source)
        return [source.column(key).filter(pa.array(mask)) for key in self.keys], source.starts[mask]


def group_lanes(
    found: Sequence[Found], loaded: Loaded, most: int, chosen: Mapping[tuple[str, ...], Sequence[Key]] | None = None
) -> list[LaneGroup]:
    """The lanes of all patterns, by their key columns; `chosen` are the keys, if they are chosen already."""
    derived: dict[Stream, Derivation] = {derivation.name: derivation for derivation in loaded.planned.derivations}
    together: dict[tuple[str, ...], list[Found]] = {}
    for one in found:
        together.setdefault(one.keys, []).append(one)
    groups = []
    for keys, own in together.items():
        streams = frozenset(chain.from_iterable(_streams_below(one.plan.streams, derived) for one in own))
        everything = any(isinstance(name, AnyEvent) for name in streams)
        groups.append(LaneGroup(keys, own, streams, everything))
    share, first = max(1, most // len(groups)), 0
    for group in groups:
        if chosen is None:
            _choose(group, loaded, share)
        else:
            group.shown = [*chosen[group.keys]]
        group.first = first
        first += max(1, len(group.shown)) if not group.keys else len(group.shown)
    return groups


def _streams_below(streams: Sequence[Stream], derived: Mapping[Stream, Derivation]) -> set[Stream]:
    """The streams, and those that the declared ones among them are made of."""
    found: set[Stream] = set()
    waiting = list(streams)
    while waiting:
        stream = waiting.pop()
        if stream not in found:
            found.add(stream)
            waiting += derived[stream].streams if stream in derived else ()
    return found


def _choose(group: LaneGroup, loaded: Loaded, most: int) -> None:
    if not group.keys:
        return
    matched = [first_keys(one.key_columns, one.starts, most)[0] for one in group.found if len(one)]
    tables = [source for source in loaded.sources if not source.input.derived]
    present = [found for source in tables if (found := group.keys_of(source)) is not None]
    if present:
        merged = [one_array([columns[place] for columns, _ in present]) for place in range(len(group.keys))]
        starts = np.concatenate([starts for _, starts in present])
        others, group.total = first_keys(merged, starts, 2 * most)
        group.shown = choose_keys(matched, others, most)


def choose_keys(matched: Sequence[Sequence[Key]], others: Sequence[Key], most: int) -> list[Key]:
    """Keys with matches, of each pattern in turn, then others.

    >>> choose_keys([[(1,), (2,), (3,)], [(9,)]], [(1,), (7,)], 5)
    [(1,), (9,), (2,), (3,), (7,)]
    """
    in_turn = (key for keys in zip_longest(*matched) for key in keys if key is not None)
    return list(dict.fromkeys(chain(in_turn, others)))[:most]


def first_keys(columns: Sequence[pa.Array], order: Int64s, most: int) -> tuple[list[Key], int]:
    """The different keys, those of the least `order` first, `most` of them, and how many there are in all.

    Rows without a key have none.

    >>> first_keys([pa.array(["x", "y", None, "x"])], np.array([3, 2, 1, 0]), 1)
    ([('x',)], 2)
    """
    codes, count = _codes(columns)
    by_order = np.argsort(order, kind="stable")[::-1]
    by_order = by_order[codes[by_order] >= 0]
    # Of several assignments to one place the last one stays: the row that comes first.
    first = np.full(count, -1, np.int64)
    first[codes[by_order]] = by_order
    present = first[first >= 0]
    rows = pa.array(present[np.argsort(order[present], kind="stable")[:most]])
    return list(zip(*(column.take(rows).to_pylist() for column in columns), strict=True)), len(present)


def _codes(columns: Sequence[pa.Array]) -> tuple[Int64s, int]:
    """A number for each row, equal for equal keys, -1 where a part of the key is missing; all are below the other."""
    codes, count = np.zeros(len(columns[0]), np.int64), 1
    missing = np.zeros(len(codes), bool)
    for column in columns:
        encoded = pc.dictionary_encode(column)
        found = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        missing |= found < 0
        codes, size = codes * max(1, len(encoded.dictionary)) + found, count * len(encoded.dictionary)
        if size > len(codes):
            distinct, codes = np.unique(codes, return_inverse=True)
            size = len(distinct)
        count = size
    return np.where(missing, -1, codes), count
