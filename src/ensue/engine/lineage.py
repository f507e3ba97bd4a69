"""Of which events of the tables a match is made, at any depth: their ids, in the order of their times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analysis.declarations import LINEAGE
from ensue.engine.identity import LANES, Hashes, event_ids, hexadecimal
from ensue.engine.rows import MatchChunk, Rows
from ensue.engine.workspace import Workspace
from ensue.kernels.compiler import Codes, Int64s
from ensue.nodes.names import Name, Stream, written
from ensue.plan.outputs import IDS, MEMBER


@dataclass(frozen=True, slots=True)
class _Bound:
    """The events of one variable: the number of the match of each, and where they were found."""

    matches: Int64s
    space: Workspace
    rows: Rows
    name: Name


def lineage_ids(chunk: MatchChunk, name: Name | None, columns: Mapping[Stream, Sequence[str]]) -> pa.Array:
    """For each match the ids of the events below a variable (None: all of them), each once; null if it is not bound.

    `columns` are all columns of a stream.
    """
    bound = [part for part in _bound(chunk) if name is None or written(part.name) == name]
    if not bound:
        return pa.nulls(chunk.rows.length, IDS)
    members, offsets = _in_order(bound, chunk.rows.length, columns)
    digits = np.stack(members[2:], axis=1).astype(">u8").view(np.uint8).reshape(len(members[0]), 8 * len(LANES))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(hexadecimal(digits), pa.string()))


def lineage_members(chunk: MatchChunk, columns: Mapping[Stream, Sequence[str]]) -> pa.Array:
    """For each match the events below it, in the form in which an event of a declared stream carries them."""
    return _as_lists(*_in_order(list(_bound(chunk)), chunk.rows.length, columns))


def united_members(lineages: pa.Array, owners: Codes, count: int) -> pa.Array:
    """The lineages of `count` events, each that of all rows that it owns together."""
    events = lineages.flatten()
    values = [np.asarray(events.field(place)) for place in range(events.type.num_fields)]
    lengths = pc.list_value_length(lineages).to_numpy(zero_copy_only=False)
    return _as_lists(*_each_once(np.repeat(owners, lengths), values, count))


def _as_lists(members: Sequence[np.ndarray], offsets: np.ndarray) -> pa.Array:
    events = pa.StructArray.from_arrays([pa.array(values) for values in members], fields=list(MEMBER))
    return pa.ListArray.from_arrays(pa.array(offsets), events)


def _bound(chunk: MatchChunk) -> Iterator[_Bound]:
    """The variables of a match and those of its lists."""
    everyone = np.arange(chunk.rows.length)
    for name in chunk.rows.places:
        if name not in chunk.space.moments:
            yield _Bound(everyone, chunk.space, chunk.rows, name)
    for lists in chunk.rows.lists.values():
        matches, begin = np.repeat(everyone, lists.lengths), 0
        for part in lists.parts:
            own = (lists.order >= begin) & (lists.order < begin + part.rows.length)
            rows = part.rows.take(lists.order[own] - np.int32(begin))
            begin += part.rows.length
            for name in part.space.plan.graph.names:
                if name not in part.space.moments:
                    yield _Bound(matches[own], part.space, rows, name)


def _in_order(
    parts: Sequence[_Bound], count: int, columns: Mapping[Stream, Sequence[str]]
) -> tuple[list[np.ndarray], np.ndarray]:
    """The events below all matches, by match and time, each once, and where those of each match begin."""
    found = [_members(part, columns) for part in parts]
    matches, *values = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
    return _each_once(matches, values, count)


def _each_once(matches: np.ndarray, values: Sequence[np.ndarray], count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Members by match and time, without those that stand twice in one match."""
    order = np.lexsort([*values[::-1], matches])
    matches, values = matches[order], [column[order] for column in values]
    if len(matches):
        is_new = np.ones(len(matches), bool)
        is_new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in (matches, *values)])
        matches, values = matches[is_new], [column[is_new] for column in values]
    return values, np.searchsorted(matches, np.arange(count + 1)).astype(np.int32)


def _members(part: _Bound, columns: Mapping[Stream, Sequence[str]]) -> tuple[Int64s | Hashes, ...]:
    """For each event the number of its match, its times and its id."""
    found, places = part.space.candidates[part.name], part.rows.places[part.name]
    if not found.source.input.derived:
        ids = event_ids(part.space, part.rows, part.name, columns[part.space.streams[part.name]])
        return part.matches, found.starts[places], found.ends[places], *ids
    lists = found.source.raw_column(LINEAGE).take(pa.array(found.rows[places]))
    events = lists.flatten()
    values = (np.asarray(events.field(place)) for place in range(events.type.num_fields))
    return np.repeat(part.matches, np.diff(lists.offsets.to_numpy())), *values
