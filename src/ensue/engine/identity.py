"""Ids of matches and events that are the same in every run, and the lineage of matches as event ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pandas.util import hash_array

from ensue.analysis.declarations import LINEAGE
from ensue.engine.events import Candidates
from ensue.engine.rows import MatchChunk, Rows
from ensue.engine.workspace import Workspace, cached_candidates
from ensue.graph.bounds import end_of
from ensue.kernels.compiler import Codes, Int64s
from ensue.nodes.names import AnyEvent, Name, Stream, key_of, stream_key, written
from ensue.plan.outputs import IDS, MEMBER
from ensue.plan.plans import QueryPlan
from ensue.text.render import render_query

Hashes = npt.NDArray[np.uint64]

LANES = ("ensue-match-id-0", "ensue-match-id-1")
"""An id consists of two independent 64-bit hashes. These are the keys (16 bytes) for hashing texts."""

MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def match_ids(chunk: MatchChunk, plan: QueryPlan, columns: Mapping[Stream, Sequence[str]]) -> pa.Array:
    """A text of 32 hexadecimal digits for each match; `columns` are those that distinguish the events of a stream.

    Equal events are distinguished by their number among their equals, so every match has its own id.
    """
    lanes = [_lane(chunk, plan, columns, number) for number in range(len(LANES))]
    digits = np.stack(lanes, axis=1).astype(">u8").view(np.uint8).reshape(chunk.rows.length, 16)
    return pa.array(hexadecimal(digits))


def event_ids(space: Workspace, matches: Rows, name: Name, columns: Sequence[str]) -> list[Hashes]:
    """The two halves of the id of the event that each match binds to a variable; `columns` are all columns of its
    stream."""
    rows, stream = space.candidates[name].rows[matches.places[name]], space.streams[name]
    return [
        _mix(
            np.full(len(rows), _seed(stream_key(stream), lane)), _hashes_by_row(space, name, columns, lane)[rows], lane
        )
        for lane in range(len(LANES))
    ]


def row_ids(columns: Mapping[str, pa.Array], numbers: Hashes | None) -> pa.Array:
    """A text of 32 hexadecimal digits for each row of a table with these columns.

    `numbers` distinguish equal rows; without them, each row gets its number among its equals in this table.
    """
    lanes = []
    for lane in range(len(LANES)):
        result = np.zeros(len(next(iter(columns.values()))), np.uint64)
        for name in sorted(columns):
            hashed = _value_hashes(columns[name], lane)
            if hashed is not None:
                result = _mix(result ^ _seed(name, lane), hashed, lane)
        own = _number_among_equals(np.zeros(len(result), np.int32), result) if numbers is None else numbers
        lanes.append(_mix(result, own, lane))
    digits = np.stack(lanes, axis=1).astype(">u8").view(np.uint8).reshape(len(lanes[0]), 16)
    return pa.array(hexadecimal(digits), pa.string())


def _lane(chunk: MatchChunk, plan: QueryPlan, columns: Mapping[Stream, Sequence[str]], lane: int) -> Hashes:
    result = np.full(chunk.rows.length, _seed(f"{pattern_identity(plan)}/{chunk.plan.graph.number}", lane))
    for name in sorted(chunk.rows.places, key=key_of):
        if name in chunk.space.moments:
            moments = chunk.space.value(end_of(name), chunk.rows).view(np.uint64)
            result = _mix(result ^ _seed(key_of(name), lane), moments, lane)
            continue
        rows = chunk.space.candidates[name].rows[chunk.rows.places[name]]
        events = _hashes_by_row(chunk.space, name, _telling(chunk.space, name, columns), lane)
        result = _mix(result ^ _seed(key_of(name), lane), events[rows], lane)
    return result


def _telling(space: Workspace, name: Name, columns: Mapping[Stream, Sequence[str]]) -> Sequence[str]:
    """The columns that distinguish the events of a variable; several streams are distinguished by their type."""
    stream, kind = space.streams[name], space.candidates[name].source.input.type
    own = columns[stream]
    return own if not isinstance(stream, AnyEvent) or kind is None else [*dict.fromkeys([*own, kind])]


def _hashes_by_row(space: Workspace, name: Name, columns: Sequence[str], lane: int) -> Hashes:
    """The hash of each row of the variable's table that it can bind, including rows that no pass has visited."""
    known = space.identities.get((name, lane))
    if known is not None:
        return known
    graph = space.plan.graph
    variable = next(variable for variable in graph.variables if variable.name == name)
    found = cached_candidates(variable, graph, space.store, space.catalog, space.found)
    hashes = np.zeros(len(found.source.starts), np.uint64)
    hashes[found.rows] = _event_hashes(found, columns, lane)
    space.identities[name, lane] = hashes
    return hashes


def pattern_identity(plan: QueryPlan) -> str:
    """The identity of the pattern: its name, or its text if it has none."""
    return str(plan.query.name or "") or render_query(plan.query)


def _event_hashes(found: Candidates, names: Sequence[str], lane: int) -> Hashes:
    result = _mix(found.starts.view(np.uint64), found.ends.view(np.uint64), lane)
    for name in sorted(names):
        is_decimal = pa.types.is_decimal(found.source.input.table.schema.field(name).type)
        column = found.source.raw_column(name) if is_decimal else found.source.column(name)
        values = column.take(pa.array(found.rows))
        hashed = _value_hashes(values, lane)
        if hashed is not None:
            result = _mix(result ^ _seed(name, lane), hashed, lane)
    return _mix(result, _number_among_equals(found.keys, result), lane)


def _value_hashes(values: pa.Array, lane: int) -> Hashes | None:
    """A hash of each value; null has its own. Lists and structs are ignored."""
    if pa.types.is_nested(values.type) or pa.types.is_null(values.type) or pa.types.is_interval(values.type):
        return None
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(values.type):
        bits: Hashes = (pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0).view(
            np.uint64
        )
    elif pa.types.is_integer(values.type) or pa.types.is_boolean(values.type) or pa.types.is_temporal(values.type):
        numbers = _as_integers(values)
        bits = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).view(np.uint64)
    else:
        encoded = values.cast(pa.large_string() if pa.types.is_decimal(values.type) else values.type)
        encoded = encoded.dictionary_encode()
        texts = encoded.dictionary.to_numpy(zero_copy_only=False)
        of_text = hash_array(texts, hash_key=LANES[lane], categorize=False) if len(texts) else np.zeros(1, np.uint64)
        bits = of_text[pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)]
    return np.where(missing, _seed("null", lane), _mix(np.zeros(len(bits), np.uint64), bits, lane))


def _as_integers(values: pa.Array) -> pa.Array:
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8()).cast(pa.int64())
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64(), safe=False)
    return (values.cast(pa.int32()) if values.type.bit_width == 32 else values.view(pa.int64())).cast(pa.int64())


def _number_among_equals(keys: Codes, hashes: Hashes) -> Hashes:
    """For each event, the number of equal events of the same key before it."""
    order = np.lexsort((hashes, keys))
    hashes, keys = hashes[order], keys[order]
    first = np.ones(len(order), bool)
    first[1:] = (hashes[1:] != hashes[:-1]) | (keys[1:] != keys[:-1])
    places = np.arange(len(order))
    numbers = np.empty(len(order), np.uint64)
    numbers[order] = (places - np.maximum.accumulate(np.where(first, places, 0))).astype(np.uint64)
    return numbers


def _mix(one: Hashes, other: Hashes, lane: int) -> Hashes:
    """Mixes two values; every bit of the result depends on every bit of both (the finalizer of splitmix64)."""
    value = (one + MULTIPLIERS[lane]) * MULTIPLIERS[lane] ^ other
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)))


def _seed(text: str, lane: int) -> np.uint64:
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=LANES[lane].encode()).digest()
    return np.uint64(int.from_bytes(digest, "big"))


def hexadecimal(digits: npt.NDArray[np.uint8]) -> npt.NDArray[np.str_]:
    """Rows of bytes as hexadecimal texts."""
    alphabet = np.frombuffer(b"0123456789abcdef", np.uint8)
    letters = np.empty((len(digits), 2 * digits.shape[1]), np.uint8)
    letters[:, 0::2], letters[:, 1::2] = alphabet[digits >> 4], alphabet[digits & 15]
    return letters.view(f"S{letters.shape[1]}").ravel().astype(str)


# --- lineage: the ids of the source events of a match, ordered by time


@dataclass(frozen=True, slots=True)
class _Bound:
    """The events of one variable: the number of the match of each, and where they were found."""

    matches: Int64s
    space: Workspace
    rows: Rows
    name: Name


def lineage_ids(chunk: MatchChunk, name: Name | None, columns: Mapping[Stream, Sequence[str]]) -> pa.Array:
    """For each match, the ids of the source events of a variable (None: of all), each once; null if it is not bound.

    `columns` are all columns of a stream.
    """
    bound = [part for part in _bound(chunk) if name is None or written(part.name) == name]
    if not bound:
        return pa.nulls(chunk.rows.length, IDS)
    members, offsets = _in_order(bound, chunk.rows.length, columns)
    digits = np.stack(members[2:], axis=1).astype(">u8").view(np.uint8).reshape(len(members[0]), 8 * len(LANES))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(hexadecimal(digits), pa.string()))


def lineage_members(chunk: MatchChunk, columns: Mapping[Stream, Sequence[str]]) -> pa.Array:
    """For each match, its source events in the form that events of a declared stream carry."""
    return _as_lists(*_in_order(list(_bound(chunk)), chunk.rows.length, columns))


def united_members(lineages: pa.Array, owners: Codes, count: int) -> pa.Array:
    """The merged lineages of `count` events from all rows that each owns."""
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
    """The source events of all matches, by match and time, each once, and the start of each match."""
    found = [_members(part, columns) for part in parts]
    matches, *values = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
    return _each_once(matches, values, count)


def _each_once(matches: np.ndarray, values: Sequence[np.ndarray], count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Members by match and time, each once per match."""
    order = np.lexsort([*values[::-1], matches])
    matches, values = matches[order], [column[order] for column in values]
    if len(matches):
        is_new = np.ones(len(matches), bool)
        is_new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in (matches, *values)])
        matches, values = matches[is_new], [column[is_new] for column in values]
    return values, np.searchsorted(matches, np.arange(count + 1)).astype(np.int32)


def _members(part: _Bound, columns: Mapping[Stream, Sequence[str]]) -> tuple[Int64s | Hashes, ...]:
    """For each event, the number of its match, its times and its id."""
    found, places = part.space.candidates[part.name], part.rows.places[part.name]
    if not found.source.input.derived:
        ids = event_ids(part.space, part.rows, part.name, columns[part.space.streams[part.name]])
        return part.matches, found.starts[places], found.ends[places], *ids
    lists = found.source.raw_column(LINEAGE).take(pa.array(found.rows[places]))
    events = lists.flatten()
    values = (np.asarray(events.field(place)) for place in range(events.type.num_fields))
    return np.repeat(part.matches, np.diff(lists.offsets.to_numpy())), *values
