"""The keys that a page shows, one lane for each: keys with matches first, taken from every pattern in turn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.api import LoadedProgram
from ensue.engine.output import too_many
from ensue.engine.rows import Elements, MatchChunk, completion_times
from ensue.engine.sources import EventSource, Mask, Report
from ensue.engine.stage import Member
from ensue.engine.traces import WatchedEvents
from ensue.engine.views import members_of, with_keys
from ensue.engine.workspace import cached_candidates
from ensue.errors import LimitError, citing
from ensue.explanation.proofs import Proof
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.expr.types import common_type
from ensue.graph.bounds import end_of, start_of
from ensue.nodes.names import AnyEvent, Stream, without_rounds
from ensue.plan.derivations import Derivation
from ensue.plan.outputs import OutputSchema
from ensue.plan.plans import Options, QueryPlan
from ensue.python.values import duration_text

# --- limits of a page

MOST_FIELDS = 30
"""The maximum number of columns to show for an event or a match."""
MOST_LETTERS = 160
"""The maximum number of characters to show for a value."""
MOST_PARTS = 60
"""The maximum number of parts to show at one level of a proof, such as the events of a list."""
MOST_PROOFS = 500
"""The maximum number of matches with a proof; the other matches have only their events and their result row."""
MOST_ROWS_WITH_IDS = 500_000
"""Up to this number of rows, matches have ids; an id requires a hash of every event."""
BINS = 60
"""The number of bars in the histogram of matches over time."""


@dataclass(frozen=True, slots=True)
class PageLimits:
    """The maximum number of keys, events and matches to show, over all patterns."""

    keys: int
    events: int
    matches: int

    def __post_init__(self) -> None:
        for name, value in (("most_keys", self.keys), ("most_events", self.events), ("most_matches", self.matches)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise LimitError("limit-type", f"`{name}` must be an integer of at least 1, found {value!r}")


# --- values as JSON, shortened if they are long


def plain(value: Any) -> Any:
    """Convert a value to JSON; long values and types that JSON does not have become text.

    >>> plain({"at": float("nan"), "parts": [b"ab", None, True]})
    {'at': 'NaN', 'parts': ['0x6162', None, True]}
    """
    if isinstance(value, str):
        return cut(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nan": "NaN", "inf": "∞", "-inf": "-∞"}[str(value)]
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in list(value.items())[:MOST_PARTS]}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value[:MOST_PARTS]] + (["…"] if len(value) > MOST_PARTS else [])
    if isinstance(value, bytes):
        return cut(f"0x{value[:MOST_LETTERS].hex()}")
    return cut(duration_text(value) if isinstance(value, timedelta) else str(value))


def cut(text: str, most: int = MOST_LETTERS) -> str:
    """Shorten a text and mark the cut with dots."""
    return text if len(text) <= most else text[: most - 1] + "…"


def on_axis(ticks: int, time_type: pa.DataType) -> float | int:
    """Convert a time for the page: milliseconds since 1970, or the integer itself.

    >>> on_axis(1_500_250, pa.timestamp("us")), on_axis(7, pa.int64())
    (1500.25, 7)
    """
    if not pa.types.is_timestamp(time_type):
        return int(ticks)
    milliseconds = int(ticks) * NANOSECONDS_PER_UNIT[time_type.unit] / 1_000_000
    return int(milliseconds) if milliseconds.is_integer() else round(milliseconds, 3)


def proof_tree(proof: Proof, events: list[int]) -> dict[str, Any]:
    """Convert a proof to nested dictionaries; `events` are the numbers of its events, in the order of the proof."""
    tree: dict[str, Any] = {"kind": proof.kind, "text": cut(proof.text, 4 * MOST_LETTERS)}
    if proof.kind == "event":
        tree["event"] = events.pop(0)
    parts = [proof_tree(part, events) for part in proof.because]
    if len(parts) > MOST_PARTS:
        parts = [*parts[:MOST_PARTS], {"kind": "cut", "text": f"and {len(parts) - MOST_PARTS:,} more"}]
    if parts:
        tree["because"] = parts
    return tree


# --- matches of each pattern and head

Int64s = npt.NDArray[np.int64]
MATCH_ID = "match_id"


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """The events read for a variable: its stream, its number of events, and how many of them meet its predicates."""

    stream: Stream
    variable: str
    events: int
    kept: int


@dataclass
class ResultMatches:
    """The matches of one result. `keys` are the columns that determine the lane of a match.

    If the user gave the pattern no name (`is_named` is false), the match ids differ from those of other calls.
    """

    name: str
    is_head: bool
    is_named: bool
    keys: tuple[str, ...]
    plan: QueryPlan
    output: OutputSchema
    chunks: list[MatchChunk]
    report: Report
    read: tuple[ReadCounts, ...]

    @cached_property
    def starts(self) -> Int64s:
        return _joined([chunk.starts for chunk in self.chunks])

    @cached_property
    def ends(self) -> Int64s:
        return _joined([chunk.ends for chunk in self.chunks])

    @cached_property
    def completions(self) -> Int64s:
        """The completion time of each match."""
        return _joined([completion_times(chunk, self.plan) for chunk in self.chunks])

    @cached_property
    def spans(self) -> tuple[Int64s, Int64s]:
        """The start and the end of each match together with the events that it collects."""
        starts, ends = [], []
        for chunk in self.chunks:
            starts.append(_with_lists(chunk, chunk.starts, "s"))
            ends.append(_with_lists(chunk, chunk.ends, "e"))
        return _joined(starts), _joined(ends)

    @cached_property
    def offsets(self) -> Int64s:
        """The number of the first match of each chunk."""
        return np.cumsum([0, *(chunk.rows.length for chunk in self.chunks)])

    @cached_property
    def key_columns(self) -> tuple[pa.Array, ...]:
        """The key of each match, column by column."""
        return tuple(one_array([_key_of(chunk, name) for chunk in self.chunks]) for name in self.keys)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def one(self, number: int) -> MatchChunk:
        """Return a match by its number, as a chunk of one row."""
        place = int(np.searchsorted(self.offsets, number, side="right")) - 1
        chunk = self.chunks[place]
        return replace(chunk, rows=chunk.rows.take(np.array([number - self.offsets[place]], np.int32)))


def one_array(parts: Sequence[pa.Array]) -> pa.Array:
    """Concatenate arrays in a type that holds all of them."""
    kinds = [part.type for part in parts]
    kind = kinds[0] if len({*kinds}) == 1 else common_type(kinds) or pa.string()
    return pa.concat_arrays([part.cast(kind) for part in parts])


def _with_lists(chunk: MatchChunk, times: Int64s, side: str) -> Int64s:
    """Extend the starts (`s`) or ends (`e`) of matches to those of their collected events."""
    combine = np.minimum if side == "s" else np.maximum
    for lists in chunk.rows.lists.values():
        filled = np.flatnonzero(lists.lengths)
        if len(filled):
            values = np.concatenate([_element_times(part, side) for part in lists.parts])[lists.order]
            times = times.copy()
            times[filled] = combine(times[filled], combine.reduceat(values, lists.offsets[filled]))
    return times


def _element_times(part: Elements, side: str) -> Int64s:
    """Return the starts (`s`) or ends (`e`) of the elements of a list."""
    extent = part.space.plan.graph.extent
    points = map(start_of, extent.starts) if side == "s" else map(end_of, extent.ends)
    combine = np.minimum if side == "s" else np.maximum
    times: Int64s = combine.reduce([part.space.value(point, part.rows) for point in points])
    return times


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _key_of(chunk: MatchChunk, name: str) -> pa.Array:
    variable, places = next(iter(chunk.rows.places.items()))
    found = chunk.space.candidates[variable]
    if name in found.source.input.table.column_names:
        return found.source.column(name).take(pa.array(found.rows[places]))
    return pa.array(chunk.space.value(end_of(variable) if name == "e" else start_of(variable), chunk.rows))


def find_all(
    loaded: LoadedProgram, names: Mapping[str, bool], heads: Sequence[str]
) -> tuple[LoadedProgram, list[ResultMatches]]:
    """Run a program; return its events and the matches of every result. `names` say whether the user gave the name."""
    derived = {derivation.name: derivation for derivation in loaded.planned.derivations}
    step = loaded.run(_collected)
    found = []
    for place, (name, is_named) in enumerate(names.items()):
        plan, output = loaded.planned.plans[place], loaded.planned.outputs[place]
        chunks, read = step.outputs[place]
        report = replace(step.reports[place], matches=sum(chunk.rows.length for chunk in chunks))
        keys = keys_of_head(derived[name]) if name in heads else plan.query.partition_by
        found.append(ResultMatches(name, name in heads, is_named, keys, plan, output, chunks, report, read))
    return loaded.after(step), found


def _collected(
    member: Member, watched: WatchedEvents, chunks: Iterator[MatchChunk], options: Options
) -> tuple[list[MatchChunk], tuple[ReadCounts, ...]]:
    """Return the matches of a result and the counts of events read for it."""
    found: list[MatchChunk] = []
    count = 0
    with citing(member.plan.source):
        for chunk in chunks:
            count += chunk.rows.length
            if options.limit is not None and count > options.limit:
                raise too_many(options.limit, chunk, member.plan)
            found.append(chunk)
    return found, _read(member.plan, watched)


def _read(plan: QueryPlan, watched: WatchedEvents) -> tuple[ReadCounts, ...]:
    """Count the events read for each variable, including forbidden and listed events; count rounds only once."""
    store, found = watched.store, watched.completing
    read = {}
    for graph in plan.graphs:
        for inner in graph.with_inner():
            for variable in inner.graph.variables:
                name = str(without_rounds(variable.name))
                kept = len(cached_candidates(variable, inner.graph, store, plan.catalog, found))
                read[variable.stream, name] = ReadCounts(
                    variable.stream, name, len(store.streams[variable.stream]), kept
                )
    return tuple(read.values())


def keys_of_head(derivation: Derivation) -> tuple[str, ...]:
    """Return the columns of a head that are part of the key in all of its rules."""
    ways = [way.plan.query.partition_by for way in derivation.ways]
    return tuple(key for key in ways[0] if key in derivation.used and all(key in other for other in ways))


# --- lanes

Lanes = npt.NDArray[np.int64]
"""The lane of each row, -1 if it is in none."""
Key = tuple[Any, ...]


@dataclass
class LaneGroup:
    """The lanes of the patterns with the same key columns; a single lane with all events if there are no key columns.

    `total` is the number of keys in the data, `first` the number of the first lane on the page.
    """

    keys: tuple[str, ...]
    found: list[ResultMatches]
    streams: frozenset[Stream]
    everything: bool
    shown: list[Key] = field(default_factory=list)
    total: int = 1
    first: int = 0

    def lanes(self, columns: Sequence[pa.Array], length: int) -> Lanes:
        """Return the lane of each row of these key columns."""
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
        """Yield the label of each lane: `ip = 10.0.0.1`."""
        if not self.keys:
            yield "all events"
        for key in self.shown:
            yield ", ".join(f"{name} = {plain(value)}" for name, value in zip(self.keys, key, strict=True))

    def rows_of(self, source: EventSource) -> tuple[Int64s, Lanes]:
        """Return the rows of a table that are in a lane of the group, and their lanes."""
        wanted = self._takes_part(source)
        source = self._keyed(source)
        table = source.input.table
        if not wanted.any() or not {*self.keys} <= {*table.column_names}:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        lanes = np.where(wanted, self.lanes([source.column(key) for key in self.keys], table.num_rows), -1)
        rows = np.flatnonzero(lanes >= 0)
        return rows, lanes[rows]

    def _keyed(self, source: EventSource) -> EventSource:
        """Return the table with the keys that streams of rows compute."""
        if not source.input.views or not self.found:
            return source
        return with_keys(source, self.keys, self.found[0].plan.catalog.time_type)

    def _takes_part(self, source: EventSource) -> Mask:
        """Return which rows belong to streams that the patterns of the group use."""
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
            wanted = np.array(found.to_numpy(zero_copy_only=False))
        for name in item.views if self.found else ():
            if name in self.streams:
                wanted[members_of(source, name, self.found[0].plan.catalog.time_type)] = True
        return wanted if source.valid is None else wanted & source.valid

    def keys_of(self, source: EventSource) -> tuple[list[pa.Array], Int64s] | None:
        """Return the keys of the used rows of a table, column by column, and their starts; None without keys."""
        mask, source = self._takes_part(source), self._keyed(source)
        if not {*self.keys} <= {*source.input.table.column_names}:
            return None
        return [source.column(key).filter(pa.array(mask)) for key in self.keys], source.starts[mask]


def group_lanes(
    found: Sequence[ResultMatches],
    loaded: LoadedProgram,
    most: int,
    chosen: Mapping[tuple[str, ...], Sequence[Key]] | None = None,
) -> list[LaneGroup]:
    """Create the lanes of all patterns, by their key columns; `chosen` are the keys, if they were already selected."""
    derived: dict[Stream, Derivation] = {derivation.name: derivation for derivation in loaded.planned.derivations}
    together: dict[tuple[str, ...], list[ResultMatches]] = {}
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
    """Return the streams, and the streams from which the declared ones are derived."""
    found: set[Stream] = set()
    waiting = list(streams)
    while waiting:
        stream = waiting.pop()
        if stream not in found:
            found.add(stream)
            waiting += derived[stream].streams if stream in derived else ()
    return found


def _choose(group: LaneGroup, loaded: LoadedProgram, most: int) -> None:
    if not group.keys:
        return
    matched = [first_keys(one.key_columns, one.starts, most)[0] for one in group.found if len(one)]
    present: list[tuple[list[pa.Array], Int64s]] = []
    for derived in (False, True):  # Only declared streams may have the key.
        own = [source for source in loaded.sources if source.input.derived == derived]
        present = present or [found for source in own if (found := group.keys_of(source)) is not None]
    if present:
        merged = [one_array([columns[place] for columns, _ in present]) for place in range(len(group.keys))]
        starts = np.concatenate([starts for _, starts in present])
        others, group.total = first_keys(merged, starts, 2 * most)
        group.shown = choose_keys(matched, others, most)


def choose_keys(matched: Sequence[Sequence[Key]], others: Sequence[Key], most: int) -> list[Key]:
    """Select keys with matches, from each pattern in turn, then other keys.

    >>> choose_keys([[(1,), (2,), (3,)], [(9,)]], [(1,), (7,)], 5)
    [(1,), (9,), (2,), (3,), (7,)]
    """
    in_turn = (key for keys in zip_longest(*matched) for key in keys if key is not None)
    return list(dict.fromkeys(chain(in_turn, others)))[:most]


def first_keys(columns: Sequence[pa.Array], order: Int64s, most: int) -> tuple[list[Key], int]:
    """Return the first `most` distinct keys in the order of `order`, and the number of all keys.

    Rows without a key are ignored.

    >>> first_keys([pa.array(["x", "y", None, "x"])], np.array([3, 2, 1, 0]), 1)
    ([('x',)], 2)
    """
    codes, count = _codes(columns)
    by_order = np.argsort(order, kind="stable")[::-1]
    by_order = by_order[codes[by_order] >= 0]
    # If several assignments have the same target, the last one wins: the first row.
    first = np.full(count, -1, np.int64)
    first[codes[by_order]] = by_order
    present = first[first >= 0]
    rows = pa.array(present[np.argsort(order[present], kind="stable")[:most]])
    return list(zip(*(column.take(rows).to_pylist() for column in columns), strict=True)), len(present)


def _codes(columns: Sequence[pa.Array]) -> tuple[Int64s, int]:
    """Number the rows so that equal keys have equal numbers below the returned count; -1 if part of the key is null."""
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
