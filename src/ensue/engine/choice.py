"""Chooses the matches to report under CONSUME and the contexts of SNOOP (docs/semantics.md, section 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.analysis.scopes import ends_together, positive_names
from ensue.engine.events import Candidates
from ensue.engine.rows import Elements, Lists, MatchChunk, Rows, completion_times
from ensue.engine.sources import EventSource, Mask
from ensue.engine.workspace import Workspace
from ensue.kernels.compiler import Int64s
from ensue.kernels.ranges import close_initiators, take_unused
from ensue.nodes.names import Name, Round
from ensue.nodes.patterns import CHRONICLE, CUMULATIVE, NEXT_MATCH, RECENT, PatternQuery
from ensue.plan.plans import QueryPlan

Flags = npt.NDArray[np.uint8]

ANYWHERE = 1
"""The bit that marks an event as used up by CONSUME; a context has one for each operand (see `_bit`)."""


@dataclass(slots=True)
class UsedRows:
    """The used events, one byte for each row of each table; updated while matches are chosen."""

    sources: tuple[EventSource, ...]
    flags: Flags

    @classmethod
    def of(cls, sources: Sequence[EventSource], known: Sequence[Flags] | None = None) -> UsedRows:
        """The given used events; none if nothing is given."""
        if known is None:
            return cls(tuple(sources), np.zeros(sum(len(source.starts) for source in sources), np.uint8))
        return cls(tuple(sources), np.concatenate([*known, np.empty(0, np.uint8)]))

    @property
    def by_table(self) -> list[Flags]:
        ends = np.cumsum([len(source.starts) for source in self.sources])
        return np.split(self.flags, ends[:-1])

    def numbers(self, found: Candidates) -> Int64s:
        """The numbers of candidates among the rows of all tables."""
        begin = 0
        for source in self.sources:
            if source is found.source.origin:
                break
            begin += len(source.starts)
        return found.rows.astype(np.int64) + begin

    def free(self, found: Candidates, place: int, query: PatternQuery) -> Mask:
        """The candidates of a variable, given by its place in the graph, that a match can still use.

        With MATCH NEXT, the next event that fits counts even if it is used up.
        """
        if query.policy == NEXT_MATCH:
            return np.ones(len(found), bool)
        bit = ANYWHERE if query.consume else _bit(place)
        unused: Mask = (self.flags[self.numbers(found)] & bit) == 0
        return unused


def _bit(operand: int) -> int:
    return 1 << operand


def choose(chunks: Iterable[MatchChunk], plan: QueryPlan, used: UsedRows) -> Iterator[MatchChunk]:
    """The matches that the policy admits; marks the events that they use up."""
    found = list(chunks)
    if plan.query.consume:
        yield from _consume(found, plan, used)
        return
    pairs = []
    for chunk in found:
        if len(chunk.plan.graph.variables) == 1:
            yield chunk
        else:
            pairs.append(chunk)
    if pairs:
        yield from _choose_pairs(pairs, plan, used)


# -- CONSUME -----------------------------------------------------------------------------------------------------------


def _consume(chunks: Sequence[MatchChunk], plan: QueryPlan, used: UsedRows) -> Iterator[MatchChunk]:
    """Takes matches in order, each if none of its events is used up."""
    if not chunks:
        return
    places = _places_as_written(chunks, plan)
    events = np.concatenate([_events_of(chunk, places, used) for chunk in chunks])
    ranks = _ranks_as_written(chunks, places, events, used)
    completions = np.concatenate([completion_times(chunk, plan) for chunk in chunks])
    starts = np.concatenate([chunk.starts for chunk in chunks])
    order = np.lexsort((*ranks.T[::-1], starts, completions))
    taken = np.empty(len(order), bool)
    taken[order] = take_unused(np.ascontiguousarray(events[order]), used.flags)
    yield from _kept(chunks, taken)


def event_ranks(chunks: Sequence[MatchChunk], plan: QueryPlan, used: UsedRows) -> Int64s:
    """The ranks of the events of each match, variable by variable as written: the order of matches that complete and
    start together."""
    places = _places_as_written(chunks, plan)
    events = np.concatenate([_events_of(chunk, places, used) for chunk in chunks])
    return _ranks_as_written(chunks, places, events, used)


def _ranks_as_written(chunks: Sequence[MatchChunk], places: Sequence[_Place], events: Int64s, used: UsedRows) -> Int64s:
    beyond = np.concatenate([np.tile(_beyond_lists(chunk, places), (chunk.rows.length, 1)) for chunk in chunks])
    return np.where(beyond, -1, _ranks(events, used, chunks[0].space))


class _Place(NamedTuple):
    """A variable that matches bind: a single one, or that of one round of a repetition."""

    name: Name
    group: Name | None = None
    number: int = 0


def _places_as_written(chunks: Sequence[MatchChunk], plan: QueryPlan) -> list[_Place]:
    """The variables that matches bind, each round of a repetition separately."""
    repetitions = plan.normal_form.repetitions
    rounds = [chunk.plan.graph.rounds for chunk in chunks]
    places: list[_Place] = []
    for name in positive_names(plan.normal_form.pattern):
        group = repetitions.groups.get(name)
        if group is None:
            places.append(_Place(name))
        elif group in repetitions.unrolled:
            most = max(found.get(group, 0) for found in rounds)
            places += [_Place(Round(name, number), group, number) for number in range(most)]
    return places


def _events_of(chunk: MatchChunk, places: Sequence[_Place], used: UsedRows) -> Int64s:
    """The number of the event of each variable in each match, -1 if there is none."""
    events = np.full((chunk.rows.length, max(1, len(places))), -1, np.int64)
    for column, (name, _, _) in enumerate(places):
        if name in chunk.rows.places:
            events[:, column] = used.numbers(chunk.space.candidates[name])[chunk.rows.places[name]]
    return events


def _beyond_lists(chunk: MatchChunk, places: Sequence[_Place]) -> Mask:
    """The rounds after the last one of their list: a shorter list comes before those that extend it."""
    rounds = chunk.plan.graph.rounds
    beyond = np.zeros(max(1, len(places)), bool)
    for column, (_, group, number) in enumerate(places):
        beyond[column] = group is not None and 0 < rounds.get(group, 0) <= number
    return beyond


def _ranks(events: Int64s, used: UsedRows, space: Workspace) -> Int64s:
    """The rank of each event in the order of (end, start, content); missing events come last."""
    order, ties = space.store.order, space.store.ties(space.tied_by)
    present = np.unique(events[events >= 0])
    starts = np.concatenate([source.starts for source in used.sources] if order is None else order.starts)[present]
    ends = np.concatenate([source.ends for source in used.sources] if order is None else order.ends)[present]
    rank_of = np.empty(len(present), np.int64)
    rank_of[np.lexsort((present, np.concatenate(ties)[present], starts, ends))] = np.arange(len(present))
    places = np.searchsorted(present, events)
    known = events >= 0
    return np.where(known, rank_of[np.where(known, places, 0)] if len(present) else 0, len(present))


def _kept(chunks: Sequence[MatchChunk], taken: Mask) -> Iterator[MatchChunk]:
    begin = 0
    for chunk in chunks:
        mask = taken[begin : begin + chunk.rows.length]
        begin += chunk.rows.length
        if mask.any():
            yield chunk.where(mask)


# -- contexts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of events of two operands; the one that ends earlier is the initiator, or the left one if they end
    together.

    `order` sorts them by terminator in order of arrival, then by initiator, the oldest first.
    """

    events: Int64s
    ties: Int64s
    starts: Int64s
    ends: Int64s
    by_right: Mask
    order: Int64s

    @property
    def terminators(self) -> Int64s:
        """The operand (0, 1) and number of each terminator, in one number."""
        return self._codes(self.by_right)

    @property
    def initiators(self) -> Int64s:
        return self._codes(~self.by_right)

    def _codes(self, right: Mask) -> Int64s:
        codes: Int64s = np.where(right, 2 * self.events[1] + 1, 2 * self.events[0])
        return codes


def _choose_pairs(chunks: Sequence[MatchChunk], plan: QueryPlan, used: UsedRows) -> Iterator[MatchChunk]:
    pairs = _pairs_of(chunks, plan, used)
    taken = _taken(pairs, plan.query.policy, used)
    if plan.query.policy != CUMULATIVE:
        yield from _kept(chunks, taken)
        return
    yield from _cumulated(chunks, pairs, taken)


def _pairs_of(chunks: Sequence[MatchChunk], plan: QueryPlan, used: UsedRows) -> _Pairs:
    names = chunks[0].plan.graph.names
    shape = 2, sum(chunk.rows.length for chunk in chunks)
    events, ties, starts, ends = (np.empty(shape, np.int64) for _ in range(4))
    begin = 0
    for chunk in chunks:
        part = slice(begin, begin + chunk.rows.length)
        begin = part.stop
        for operand, name in enumerate(names):
            found, places = chunk.space.candidates[name], chunk.rows.places[name]
            events[operand, part], ties[operand, part] = used.numbers(found)[places], chunk.space.ties(found)[places]
            starts[operand, part] = found.start_places[places]
            ends[operand, part] = chunk.space.store.ends_in_turn(found)[places]
    # The operands of SIMULTANEOUS end together, also where columns order them: times alone decide.
    by_right = (ends[0] <= ends[1]) | ends_together(plan.query.pattern)
    are_points = np.array_equal(starts, ends)
    initiating, ending = (
        [np.where(right, of[1], of[0]) for of in (events, ties, *(() if are_points else (starts,)), ends)]
        for right in (~by_right, by_right)
    )
    # A terminator of the left operand comes before one of the right operand that ends at the same time.
    sides = [] if by_right.all() else [by_right]
    order = np.lexsort((*initiating, *ending[:-1], *sides, ending[-1]))
    return _Pairs(events, ties, starts, ends, by_right, order)


def _taken(pairs: _Pairs, policy: str | None, used: UsedRows) -> Mask:
    """The pairs that the context turns into matches."""
    terminators, initiators = pairs.terminators[pairs.order], pairs.initiators[pairs.order]
    taken = np.zeros(len(pairs.order), bool)
    if policy == RECENT:
        last = np.ones(len(terminators), bool)
        last[:-1] = terminators[1:] != terminators[:-1]
        taken[pairs.order] = last
        return taken
    taken[pairs.order] = close_initiators(terminators, initiators, policy == CHRONICLE, used.flags)
    return taken


def _cumulated(chunks: Sequence[MatchChunk], pairs: _Pairs, taken: Mask) -> Iterator[MatchChunk]:
    """One match for each terminator, with the lists of the events that it closes; it starts with the earliest of
    them."""
    kept = pairs.order[taken[pairs.order]]
    terminators = pairs.terminators[kept]
    group_of = np.cumsum(np.concatenate([[0], terminators[1:] != terminators[:-1]])) if len(kept) else kept
    first_starts = pairs.starts.min(axis=0)[kept]
    by_start = np.lexsort((first_starts, group_of))
    is_first = np.ones(len(kept), bool)
    is_first[1:] = group_of[by_start][1:] != group_of[by_start][:-1]
    shown = kept[by_start[is_first]]
    elements = tuple(Elements(chunk.space, chunk.rows) for chunk in chunks)
    lists = [_closed(operand, pairs, kept, group_of, shown, elements) for operand in (0, 1)]
    names = chunks[0].plan.graph.names
    begin = 0
    for chunk in chunks:
        groups = np.flatnonzero((shown >= begin) & (shown < begin + chunk.rows.length)).astype(np.int32)
        if len(groups):
            rows = chunk.rows.take((shown[groups] - begin).astype(np.int32))
            found = {name: part.take(groups) for name, part in zip(names, lists, strict=True)}
            yield replace(chunk, rows=Rows(rows.length, rows.places, lists=found))
        begin += chunk.rows.length


def _closed(
    operand: int,
    pairs: _Pairs,
    kept: Int64s,
    group_of: Int64s,
    shown: Int64s,
    elements: tuple[Elements, ...],
) -> Lists:
    """The events of an operand in each group: the initiators, or only the terminator."""
    is_terminator = pairs.by_right[kept] == (operand == 1)
    listed = ~is_terminator | np.isin(kept, shown)
    chosen, groups = kept[listed], group_of[listed]
    starts, ends, ties, numbers = (of[operand][chosen] for of in (pairs.starts, pairs.ends, pairs.ties, pairs.events))
    order = np.lexsort((numbers, ties, ends, starts, groups))
    lengths = np.bincount(groups, minlength=len(shown))
    return Lists(elements, chosen[order].astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]))
