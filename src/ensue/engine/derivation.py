"""Declared streams: how their events come about from the matches of statements, and how rules grow them in rounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pyarrow as pa

from ensue.analysis.declarations import LINEAGE
from ensue.engine.compiled_graph import Compiled
from ensue.engine.distinct import distinct_events, in_settled_order
from ensue.engine.evaluation import Frontier, evaluate
from ensue.engine.events import Candidates, request_of
from ensue.engine.lookups import look_up
from ensue.engine.output import collect_ordered
from ensue.engine.sources import EventSource, Mask, Report, load_sources, one_chunk
from ensue.engine.traces import Watched, watch
from ensue.errors import LimitError, citing, counted
from ensue.nodes.names import Stream
from ensue.plan.declared import Derivation, Way
from ensue.plan.inputs import InputTable
from ensue.plan.plans import Options, QueryPlan

MOST_ROUNDS = 10_000
"""So many times rules are applied to what they have found, unless there is no limit at all."""


def matches_of(way: Way, watched: Watched, frontier: Frontier, options: Options) -> pa.Table:
    """The matches of a statement whose matches are events."""
    with citing(way.plan.source):
        chunks = evaluate(way.plan, watched.store, frontier, options, watched.completing)
        return collect_ordered(chunks, way.output, options.limit, options.chunk_rows)


def as_events(derivation: Derivation, way: Way, matches: pa.Table, limit: int | None) -> pa.Table:
    """What matches of a statement are as events, with all columns."""
    lookup = way.plan.query.lookup
    if lookup is not None:
        assert way.table is not None
        matches = look_up(matches, lookup, way.table, lambda rows: _check_limit(derivation, rows, limit))
    return matches.select(derivation.schema.names).cast(derivation.schema, safe=False)


def together(derivation: Derivation, parts: Sequence[pa.Table], limit: int | None) -> pa.Table:
    """The events of all statements, with all columns, each once if they are a set."""
    joined = pa.concat_tables([derivation.schema.empty_table(), *parts]).combine_chunks()
    events = distinct_events(joined) if derivation.is_set else joined
    _check_limit(derivation, events.num_rows, limit)
    return events


def settled(derivation: Derivation, events: pa.Table) -> pa.Table:
    """The events as those who use them see them."""
    return (in_settled_order(events) if derivation.is_set else events).select(derivation.used)


def _check_limit(derivation: Derivation, rows: int, limit: int | None) -> None:
    if limit is not None and rows > limit:
        raise LimitError(
            "too-many-events",
            f"stream `{derivation.name}` has more than {counted(limit, 'event', 'events')}",
            "a narrower condition would tame it, and a rule that depends on itself needs one that ends it; `limit=`"
            " raises the limit",
        )


def sources_of(plan: QueryPlan, sources: Sequence[EventSource]) -> tuple[EventSource, ...]:
    """The tables that a plan looks at: those that were given, and of the derived ones those that it names."""
    return tuple(source for source in sources if not source.input.derived or any(map(source.input.holds, plan.streams)))


@dataclass(frozen=True, slots=True)
class Growth:
    """The events of a stream that rounds have found so far; `is_new` are those that the last round found or changed."""

    table: pa.Table
    is_new: Mask


@dataclass(frozen=True, slots=True)
class Search:
    """Looks for matches with the events of streams that are growing.

    `sources` are those of all other streams, `earlier` events of the growing ones from before, all of them known.
    """

    sources: tuple[EventSource, ...]
    earlier: Mapping[Stream, pa.Table]
    frontier: Frontier
    options: Options
    compiled: Compiled

    def __call__(self, way: Way, growing: Mapping[Stream, Growth], items: Mapping[Stream, InputTable]) -> pa.Table:
        """The matches of a statement that have a new event.

        Where one item alone can be new, it needs no others; among several, each in turn is the first one that is.
        """
        own = [name for name in growing if name in way.plan.streams]
        only_new = way.items_of(growing) == 1
        tables, is_new = [], []
        for name in own:
            used, growth = items[name].table.column_names, growing[name]
            table = growth.table.select(used)
            if only_new:
                tables.append(table.filter(pa.array(growth.is_new)))
                continue
            before = self.earlier[name].select(used) if name in self.earlier else table.slice(0, 0)
            tables.append(pa.concat_tables([before, table]).combine_chunks())
            is_new.append(np.append(np.zeros(before.num_rows, bool), growth.is_new))
        inputs = [replace(items[name], table=table) for name, table in zip(own, tables, strict=True)]
        grown, _ = load_sources(inputs, way.plan.catalog.time_type)
        frontier = self.frontier if only_new else replace(self.frontier, fresh=_new_among(grown, is_new))
        sources = sources_of(way.plan, (*self.sources, *grown))
        request = replace(request_of(way.plan), compiled=self.compiled)
        return matches_of(way, watch(way.plan, sources, request, Report()), frontier, self.options)


def _new_among(sources: Sequence[EventSource], is_new: Sequence[Mask]) -> Callable[[Candidates], Mask]:
    """Which candidates are new: none of the streams that do not grow."""

    def is_fresh(found: Candidates) -> Mask:
        for source, mask in zip(sources, is_new, strict=True):
            if source is found.source:
                return mask[found.rows]
        return np.zeros(len(found), bool)

    return is_fresh


def grow(group: Sequence[Derivation], first: Mapping[Stream, pa.Table], search: Search) -> dict[Stream, pa.Table]:
    """All events of streams that use each other, from the `first` ones on, with all columns.

    Semi-naive evaluation: each round looks for what follows from what the round before has found, until that is
    nothing. An event whose lineage has become longer counts as new, for what follows from it has a longer one too.
    """
    growing = {name: Growth(table, np.ones(table.num_rows, bool)) for name, table in first.items()}
    items: dict[Stream, InputTable] = {derivation.name: derivation.item for derivation in group}
    for number in count():
        changed = {name for name, growth in growing.items() if growth.is_new.any()}
        if not changed:
            break
        _check_rounds(number, changed, search.options.limit)
        found: dict[Stream, list[pa.Table]] = {derivation.name: [] for derivation in group}
        for derivation in group:
            for way in derivation.ways:
                if not changed.isdisjoint(way.plan.streams):
                    matches = search(way, growing, items)
                    found[derivation.name].append(as_events(derivation, way, matches, search.options.limit))
        growing = {
            made.name: _grown(made, growing[made.name].table, found[made.name], search.options.limit) for made in group
        }
    return {name: growth.table for name, growth in growing.items()}


def _check_rounds(number: int, changed: Collection[Stream], limit: int | None) -> None:
    """Stops rules that go on for ever, a few events at a time, before they have come to the limit."""
    if limit is not None and number >= MOST_ROUNDS:
        raise LimitError(
            "too-many-rounds",
            f"stream `{min(map(str, changed))}` still has new events after {MOST_ROUNDS:,} rounds of its rules",
            "a rule that depends on itself needs a condition that ends it; `limit=None` lets it go on",
        )


def _grown(derivation: Derivation, known: pa.Table, found: Sequence[pa.Table], limit: int | None) -> Growth:
    table = together(derivation, [known, *found], limit)
    is_new = np.arange(table.num_rows) >= known.num_rows
    if LINEAGE in table.column_names:
        before, after = (_lineage_lengths(rows) for rows in (known, table.slice(0, known.num_rows)))
        is_new[: known.num_rows] = after > before
    return Growth(table, is_new)


def _lineage_lengths(events: pa.Table) -> np.ndarray:
    return np.diff(one_chunk(events.column(LINEAGE)).offsets.to_numpy())
