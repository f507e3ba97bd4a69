"""Which events are kept when the watermark advances, and which rows of an archive matter to the matches between two
watermarks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa

from ensue.engine.choice import UsedRows
from ensue.engine.events import FOREVER, NEVER, Candidates, EventStore, in_streams
from ensue.engine.sources import EventSource, Mask
from ensue.engine.workspace import cached_candidates
from ensue.kernels.compiler import Int64s
from ensue.kernels.ranges import find_ranges
from ensue.nodes.names import Stream
from ensue.plan.derivations import Derivation, all_plans, groups_of, is_recursive
from ensue.plan.inputs import InputTable
from ensue.plan.plans import Options, Partner, QueryPlan, Retention
from ensue.plan.retention import longer, reach_of_streams, uncut_reason

# --- events without a partner


def have_partners(events: Candidates, partners: Iterable[tuple[Partner, Candidates]]) -> Mask:
    """The events that have one of each partner that must come before them."""
    mask = np.ones(len(events), bool)
    for partner, others in partners:
        lows = _shifted(events.starts, partner.earliest, NEVER)
        highs = _shifted(events.starts, partner.latest, FOREVER)
        first, last = find_ranges(events.keys, lows, highs, others.offsets, others.starts)
        mask &= last > first
    return mask


def _shifted(starts: Int64s, ticks: int | None, otherwise: int) -> Int64s:
    return np.full(len(starts), otherwise, np.int64) if ticks is None else starts + ticks


# --- retention


def rows_to_keep(
    plan: QueryPlan,
    store: EventStore,
    found: dict[Hashable, Candidates],
    kept: list[Mask],
    until: int,
    dropped: Sequence[Mask] | None = None,
    used: UsedRows | None = None,
    options: Options | None = None,
) -> None:
    """Marks as `kept`, per table, the rows that a match completing after `until` may use.

    `dropped` are the rows of traces without further matches; `used` events cannot be bound again.
    """
    options = options or Options()
    for number, graph_plan in enumerate(plan.graphs):
        candidates = {
            variable.name: cached_candidates(variable, graph_plan.graph, store, plan.catalog, found)
            for variable in graph_plan.graph.variables
        }
        for inner in graph_plan.with_inner():
            for number_in_graph, variable in enumerate(inner.graph.variables):
                events = cached_candidates(variable, inner.graph, store, plan.catalog, found)
                retention = plan.retention[number, variable.name]
                if retention.at_once and not options.streaming:
                    own = (kept for (graph, _), kept in plan.retention.items() if graph == number)
                    retention = reduce(longer, own)
                place = next(place for place, source in enumerate(store.sources) if source is events.source.origin)
                needed = _needed(events, retention, store, until, options)
                if options.suppressing and needed.any():
                    partners = plan.partners.get((number, variable.name), ())
                    needed &= have_partners(events, [(partner, candidates[partner.name]) for partner in partners])
                if used is not None and inner is graph_plan:
                    needed &= used.free(events, number_in_graph, plan.query)
                rows = events.rows[needed]
                kept[place][rows if dropped is None else rows[~dropped[place][rows]]] = True


def pending_rows(plan: QueryPlan, sources: Sequence[EventSource], pending: Sequence[Mask]) -> list[Mask]:
    """Per table, the rows after the watermark that a plan will evaluate."""
    kept = []
    for waiting, source in zip(pending, sources, strict=True):
        relevant = waiting.copy()
        if not plan.counting and waiting.any():
            relevant &= in_streams(source.input, tuple(filter(source.input.holds, plan.all_streams)))
        kept.append(relevant)
    return kept


def _needed(events: Candidates, retention: Retention, store: EventStore, until: int, options: Options) -> Mask:
    mask = np.ones(len(events), bool)
    if not options.forgetting and not retention.at_once:
        return mask
    if retention.from_start is not None:
        mask &= events.starts + retention.from_start > until
    if retention.from_end is not None:
        mask &= events.ends + retention.from_end > until
    if retention.positions is not None:
        assert events.positions is not None
        mask &= events.positions + retention.positions > last_positions(store)[events.keys]
    return mask


def last_positions(store: EventStore) -> Int64s:
    """The position of the newest event of each key."""
    assert store.timeline is not None
    return store.timeline.base + np.diff(store.timeline.offsets) - 1


def keep_markers(kept: list[Mask], store: EventStore) -> None:
    """Keeps the newest event of each key with kept events, because positions continue from it."""
    last = last_positions(store)
    in_use = np.zeros(len(last), bool)
    for mask, keys in zip(kept, store.row_keys, strict=True):
        in_use[keys[mask & (keys >= 0)]] = True
    for mask, keys, positions in zip(kept, store.row_keys, store.row_positions, strict=True):
        known = keys >= 0
        mask[known] |= in_use[keys[known]] & (positions[known] == last[keys[known]])


def keep_ties(kept: list[Mask], store: EventStore) -> None:
    """Keeps the events of a key that end together with a kept event.

    Events with equal ends would be dropped one by one by position; kept together, they are numbered equally in every
    step.
    """
    mask, keys = np.concatenate(kept), np.concatenate(store.row_keys)
    ends = np.concatenate([source.ends for source in store.sources])
    order = np.lexsort((ends, keys))
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(keys[order]) != 0) | (np.diff(ends[order]) != 0)
    ties = np.empty(len(order), np.int64)
    ties[order] = np.cumsum(is_first) - 1
    in_use = np.zeros(len(order), bool)
    in_use[ties[mask]] = True
    mask = mask | (in_use[ties] & (keys >= 0))
    parts = np.split(mask, np.cumsum([len(part) for part in kept])[:-1])
    for part, new in zip(kept, parts, strict=True):
        part |= new


# --- rows of an archive that matter between two watermarks

ENDLESS = Retention(None, None, None)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The rows of a table that matter: their minimum start and end, and the maximum end. None: no limit."""

    start_after: int | None = None
    end_after: int | None = None
    until: int | None = None


def bounds_of(
    items: Sequence[InputTable],
    plans: Sequence[QueryPlan],
    derivations: Sequence[Derivation],
    since: int | None,
    until: int | None,
) -> list[Bounds]:
    """The rows of each table that matter to the matches that complete after `since` and not after `until`."""
    if since is None:
        return [Bounds(until=until) for _ in items]
    reach = _reach(plans, derivations)
    found = []
    for item in items:
        own = [kept for stream, kept in reach.items() if item.holds(stream)]
        whole = reduce(longer, own) if own else ENDLESS
        found.append(Bounds(_back(since, whole.from_start), _back(since, whole.from_end), until))
    return found


def _back(since: int, ticks: int | None) -> int | None:
    return None if ticks is None else since - max(0, ticks)


def _reach(plans: Sequence[QueryPlan], derivations: Sequence[Derivation]) -> dict[Stream, Retention]:
    """For each stream, how long after an event a result that depends on it can complete, directly or indirectly.

    If events are monitored, counted or used up, everything from the beginning can matter.
    """
    everything = all_plans(derivations, plans)
    if any(map(uncut_reason, everything)):
        return {stream: ENDLESS for plan in everything for stream in plan.all_streams}
    reach: dict[Stream, Retention] = {}

    def note(plan: QueryPlan, later: int | None) -> None:
        for stream, kept in reach_of_streams(plan):
            own = Retention(_plus(kept.from_start, later), _plus(kept.from_end, later), None)
            reach[stream] = longer(reach[stream], own) if stream in reach else own

    for plan in plans:
        note(plan, 0)
    for group in reversed(groups_of(derivations)):
        # What grows in rounds can go on for any time.
        later = {made.name: None if is_recursive(group) else _ticks(reach.get(made.name, ENDLESS)) for made in group}
        for made in group:
            for plan in made.plans:
                note(plan, later[made.name])
    return reach


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _ticks(kept: Retention) -> int | None:
    """The maximum number of ticks after the end of an event, which is not before its start."""
    return min((limit for limit in (kept.from_start, kept.from_end) if limit is not None), default=None)


def in_range(
    sources: Sequence[EventSource],
    plans: Sequence[QueryPlan],
    derivations: Sequence[Derivation],
    since: int | None,
    until: int | None,
) -> tuple[EventSource, ...]:
    """The tables with only the rows that matter."""
    if since is None and until is None:
        return tuple(sources)
    bounds = bounds_of([source.input for source in sources], plans, derivations, since, until)
    return tuple(_within(source, own) for source, own in zip(sources, bounds, strict=True))


def _within(source: EventSource, bounds: Bounds) -> EventSource:
    mask = np.ones(len(source.starts), bool)
    if bounds.start_after is not None:
        mask &= source.starts > bounds.start_after
    if bounds.end_after is not None:
        mask &= source.ends > bounds.end_after
    if bounds.until is not None:
        mask &= source.ends <= bounds.until
    if mask.all():
        return source
    table = _rows_of(source.input.table, mask)
    valid = None if source.valid is None else source.valid[mask]
    uncertainty = None if source.uncertainty is None else source.uncertainty.where(mask)
    item = replace(source.input, table=table)
    return EventSource(item, source.starts[mask], source.ends[mask], valid, uncertainty=uncertainty)


def _rows_of(table: pa.Table, mask: Mask) -> pa.Table:
    """Selects rows; consecutive rows, as in an archive sorted by time, are not copied."""
    first, rows = int(np.argmax(mask)), int(np.count_nonzero(mask))
    together = bool(mask[first : first + rows].all())
    return table.slice(first, rows) if together else table.filter(pa.array(mask)).combine_chunks()
