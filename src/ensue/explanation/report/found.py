"""The matches of each pattern and head of a run, as the engine has found them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.api import Loaded
from ensue.engine.output import too_many
from ensue.engine.rows import MatchChunk, completion_times
from ensue.engine.sources import Report
from ensue.engine.stage import Member
from ensue.engine.traces import Watched
from ensue.engine.workspace import cached_candidates
from ensue.errors import citing
from ensue.expr.types import common_type
from ensue.graph.bounds import end_of, start_of
from ensue.nodes.names import Stream, without_rounds
from ensue.plan.declared import Derivation
from ensue.plan.outputs import OutputSchema
from ensue.plan.plans import Options, QueryPlan

Int64s = npt.NDArray[np.int64]
MATCH_ID = "match_id"


@dataclass(frozen=True, slots=True)
class Read:
    """What was read for a variable: its stream, how many events that has, and how many can be bound by themselves."""

    stream: Stream
    variable: str
    events: int
    kept: int


@dataclass
class Found:
    """The matches of one result. `keys` are the columns that say to which lane a match belongs.

    Where the user gave no name (`is_named`), the ids of matches are not those that other calls give.
    """

    name: str
    is_head: bool
    is_named: bool
    keys: tuple[str, ...]
    plan: QueryPlan
    output: OutputSchema
    chunks: list[MatchChunk]
    report: Report
    read: tuple[Read, ...]

    @cached_property
    def starts(self) -> Int64s:
        return _joined([chunk.starts for chunk in self.chunks])

    @cached_property
    def ends(self) -> Int64s:
        return _joined([chunk.ends for chunk in self.chunks])

    @cached_property
    def completions(self) -> Int64s:
        """When each match was certain."""
        return _joined([completion_times(chunk, self.plan) for chunk in self.chunks])

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
        """A match by its number, as a chunk of its own."""
        place = int(np.searchsorted(self.offsets, number, side="right")) - 1
        chunk = self.chunks[place]
        return replace(chunk, rows=chunk.rows.take(np.array([number - self.offsets[place]], np.int32)))


def one_array(parts: Sequence[pa.Array]) -> pa.Array:
    """The parts one after the other, in a type that holds all of them."""
    kinds = [part.type for part in parts]
    kind = kinds[0] if len({*kinds}) == 1 else common_type(kinds) or pa.string()
    return pa.concat_arrays([part.cast(kind) for part in parts])


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _key_of(chunk: MatchChunk, name: str) -> pa.Array:
    variable, places = next(iter(chunk.rows.places.items()))
    found = chunk.space.candidates[variable]
    if name in found.source.input.table.column_names:
        return found.source.column(name).take(pa.array(found.rows[places]))
    return pa.array(chunk.space.value(end_of(variable) if name == "e" else start_of(variable), chunk.rows))


def find_all(loaded: Loaded, names: Mapping[str, bool], heads: Sequence[str]) -> tuple[Loaded, list[Found]]:
    """Runs a program: its events, and the matches of every result in order; `names` say whether they are the user's."""
    derived = {derivation.name: derivation for derivation in loaded.planned.derivations}
    step = loaded.run(_collected)
    found = []
    for place, (name, is_named) in enumerate(names.items()):
        plan, output = loaded.planned.plans[place], loaded.planned.outputs[place]
        chunks, read = step.outputs[place]
        report = replace(step.reports[place], matches=sum(chunk.rows.length for chunk in chunks))
        keys = keys_of_head(derived[name]) if name in heads else plan.query.partition_by
        found.append(Found(name, name in heads, is_named, keys, plan, output, chunks, report, read))
    return loaded.after(step), found


def _collected(
    member: Member, watched: Watched, chunks: Iterator[MatchChunk], options: Options
) -> tuple[list[MatchChunk], tuple[Read, ...]]:
    """The matches of a result as they are, and what was read for it."""
    found: list[MatchChunk] = []
    count = 0
    with citing(member.plan.source):
        for chunk in chunks:
            count += chunk.rows.length
            if options.limit is not None and count > options.limit:
                raise too_many(options.limit, chunk, member.plan)
            found.append(chunk)
    return found, _read(member.plan, watched)


def _read(plan: QueryPlan, watched: Watched) -> tuple[Read, ...]:
    """What was read for each variable, for those of forbidden and listed events as well; rounds of one only once."""
    store, found = watched.store, watched.completing
    read = {}
    for graph in plan.graphs:
        for inner in graph.with_inner():
            for variable in inner.graph.variables:
                name = str(without_rounds(variable.name))
                kept = len(cached_candidates(variable, inner.graph, store, plan.catalog, found))
                read[variable.stream, name] = Read(variable.stream, name, len(store.streams[variable.stream]), kept)
    return tuple(read.values())


def keys_of_head(derivation: Derivation) -> tuple[str, ...]:
    """The columns of a head by which all of its rules keep events apart."""
    ways = [way.plan.query.partition_by for way in derivation.ways]
    return tuple(key for key in ways[0] if key in derivation.used and all(key in other for other in ways))
