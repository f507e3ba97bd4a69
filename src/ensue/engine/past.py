"""Which rows of an archive matter to the matches that complete between two watermarks.

Bounds say how long after an event a match around it can complete. A match that is an event of a declared stream ends
when it completes, so what is made of it completes so much later again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa

from ensue.engine.sources import EventSource, Mask
from ensue.nodes.names import Stream
from ensue.plan.declared import Derivation, all_plans, groups_of, is_recursive
from ensue.plan.inputs import InputTable
from ensue.plan.plans import QueryPlan, Retention
from ensue.plan.retention import longer
from ensue.plan.slices import reach_of_streams, uncut_reason

ENDLESS = Retention(None, None, None)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The rows of a table that matter: how late they start and end at least, and the latest end. None: no limit."""

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
    """What matters of each table to the matches that complete after `since` and not after `until`."""
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
    """How long after an event of each stream a result can complete to which it matters, by whatever way.

    Of what is watched, counted or used up, everything from the beginning on can matter.
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
    """The most ticks after the end of an event, which does not lie before its start."""
    return min((limit for limit in (kept.from_start, kept.from_end) if limit is not None), default=None)


def in_range(
    sources: Sequence[EventSource],
    plans: Sequence[QueryPlan],
    derivations: Sequence[Derivation],
    since: int | None,
    until: int | None,
) -> tuple[EventSource, ...]:
    """The tables with nothing but the rows that matter."""
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
    """Rows that stand together, as in an archive in the order of time, are not copied."""
    first, rows = int(np.argmax(mask)), int(np.count_nonzero(mask))
    together = bool(mask[first : first + rows].all())
    return table.slice(first, rows) if together else table.filter(pa.array(mask)).combine_chunks()
