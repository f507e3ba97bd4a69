"""Of which events of the tables a match is made, at any depth: their ids, in the order of their times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.algebra.streams import LINEAGE
from ensue.engine.evaluate import MatchChunk
from ensue.engine.identity import LANES, Hashes, event_ids, hexadecimal
from ensue.kernels.compiled import Int64s

ID_COLUMNS = tuple(f"id_{lane}" for lane in range(len(LANES)))
MEMBER = pa.struct(
    [pa.field("start", pa.int64()), pa.field("end", pa.int64()), *(pa.field(name, pa.uint64()) for name in ID_COLUMNS)]
)
"""One event of a lineage as derived events carry it: its times, in ticks, by which lineages are put together."""

IDS = pa.list_(pa.string())
MEMBERS = pa.list_(MEMBER)


@dataclass(frozen=True, slots=True)
class _Members:
    """Events below the matches of a chunk: for each the number of its match, its times and its id."""

    matches: Int64s
    columns: tuple[Int64s | Hashes, ...]


def lineage_ids(chunk: MatchChunk, names: Iterable[str], columns: Mapping[str, Sequence[str]]) -> pa.Array:
    """For each match the ids of the events below some of its variables, each once; null if none of them is bound.

    `columns` are all columns of a stream.
    """
    bound = [name for name in names if name in chunk.rows.places]
    if not bound:
        return pa.nulls(chunk.rows.length, IDS)
    members, offsets = _in_order(chunk, bound, columns)
    digits = np.stack(members[2:], axis=1).astype(">u8").view(np.uint8).reshape(len(members[0]), 8 * len(LANES))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(hexadecimal(digits), pa.string()))


def lineage_members(chunk: MatchChunk, columns: Mapping[str, Sequence[str]]) -> pa.Array:
    """For each match the events below it, in the form in which an event of a declared stream carries them."""
    members, offsets = _in_order(chunk, chunk.rows.places, columns)
    events = pa.StructArray.from_arrays([pa.array(values) for values in members], fields=list(MEMBER))
    return pa.ListArray.from_arrays(pa.array(offsets), events)


def _in_order(
    chunk: MatchChunk, names: Iterable[str], columns: Mapping[str, Sequence[str]]
) -> tuple[list[Int64s | Hashes], np.ndarray]:
    """The members of all matches, by match and time, each once, and where those of each match begin."""
    parts = [_members(chunk, name, columns) for name in names]
    matches = np.concatenate([part.matches for part in parts])
    values = [np.concatenate(pieces) for pieces in zip(*(part.columns for part in parts), strict=True)]
    order = np.lexsort([*values[::-1], matches])
    matches, values = matches[order], [column[order] for column in values]
    if len(parts) > 1 and len(matches):
        is_new = np.ones(len(matches), bool)
        is_new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in (matches, *values)])
        matches, values = matches[is_new], [column[is_new] for column in values]
    return values, np.searchsorted(matches, np.arange(chunk.rows.length + 1)).astype(np.int32)


def _members(chunk: MatchChunk, name: str, columns: Mapping[str, Sequence[str]]) -> _Members:
    found, places = chunk.space.candidates[name], chunk.rows.places[name]
    if not found.source.input.derived:
        stream = chunk.space.streams[name]
        ids = event_ids(chunk, name, stream, columns[stream])
        return _Members(np.arange(len(places)), (found.starts[places], found.ends[places], *ids))
    lists = found.source.raw_column(LINEAGE).take(pa.array(found.rows[places]))
    counts = np.diff(lists.offsets.to_numpy())
    events = lists.flatten()
    values = tuple(np.asarray(events.field(place)) for place in range(events.type.num_fields))
    return _Members(np.repeat(np.arange(len(places)), counts), values)
