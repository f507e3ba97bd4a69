"""Which events of a run are still worth keeping once the watermark has advanced."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import reduce

import numpy as np

from ensue.engine.choice import Used
from ensue.engine.events import Candidates, EventStore, in_streams
from ensue.engine.sources import EventSource, Mask
from ensue.engine.suppress import have_partners
from ensue.engine.workspace import cached_candidates
from ensue.kernels.compiler import Int64s
from ensue.plan.plans import Options, QueryPlan, Retention
from ensue.plan.retention import longer


def rows_to_keep(
    plan: QueryPlan,
    store: EventStore,
    found: dict[Hashable, Candidates],
    kept: list[Mask],
    until: int,
    dropped: Sequence[Mask] | None = None,
    used: Used | None = None,
    options: Options | None = None,
) -> None:
    """Marks as `kept`, per table, the rows that a match completing after `until` may use.

    `dropped` are the rows of traces that can hold no further match; what is `used` up can bind no variable of one.
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
                place = next(place for place, source in enumerate(store.sources) if source is events.source)
                needed = _needed(events, retention, store, until, options)
                if options.suppressing and needed.any():
                    partners = plan.partners.get((number, variable.name), ())
                    needed &= have_partners(events, [(partner, candidates[partner.name]) for partner in partners])
                if used is not None and inner is graph_plan:
                    needed &= used.free(events, number_in_graph, plan.query)
                rows = events.rows[needed]
                kept[place][rows if dropped is None else rows[~dropped[place][rows]]] = True


def pending_rows(plan: QueryPlan, sources: Sequence[EventSource], pending: Sequence[Mask]) -> list[Mask]:
    """Per table, the rows beyond the watermark that a plan will look at."""
    kept = []
    for waiting, source in zip(pending, sources, strict=True):
        relevant = waiting.copy()
        if not plan.counting and waiting.any():
            if source.input.type is not None:
                relevant &= in_streams(source.input, tuple(filter(source.input.holds, plan.all_streams)))
            elif source.input.stream not in plan.all_streams:
                relevant[:] = False
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
    """Keeps the newest event of each key of which anything is kept, because positions go on from it."""
    last = last_positions(store)
    in_use = np.zeros(len(last), bool)
    for mask, keys in zip(kept, store.row_keys, strict=True):
        in_use[keys[mask & (keys >= 0)]] = True
    for mask, keys, positions in zip(kept, store.row_keys, store.row_positions, strict=True):
        known = keys >= 0
        mask[known] |= in_use[keys[known]] & (positions[known] == last[keys[known]])


def keep_ties(kept: list[Mask], store: EventStore) -> None:
    """Keeps the events of a key that ended together with one that is kept.

    Positions forget equal events one by one; kept together, they are numbered alike in every step.
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
