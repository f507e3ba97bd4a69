"""The brute-force oracle: sections 1 to 7 of the contract, read aloud. Slow on purpose, and free of engine code.

First every way to bind the positive events of the pattern is listed (`oracle.choices`), by recursion over the pattern
as written. Then each candidate is checked against the windows, the conditions and the negations (`oracle.partition`),
and last the policies choose (`oracle.policies`). The contexts of SNOOP have a graph of their own (`oracle.contexts`).
"""

from __future__ import annotations

import math

from inside import CONTEXTS, NEXT_MATCH, STRICT, PatternQuery
from oracle.conditions import Value, same
from oracle.contexts import context_matches
from oracle.model import OracleEvent, OracleMatch
from oracle.partition import Partition
from oracle.policies import consumed, next_matches, picked, strict
from oracle.returns import shown
from oracle.suppression import reported

__all__ = ["OracleEvent", "OracleMatch", "matches", "matches_between"]


def matches(query: PatternQuery, events: list[OracleEvent], horizon: int | None = None) -> list[OracleMatch]:
    """Every match of the query in the whole history, in no particular order.

    `horizon` is how far time is known, as PERIODIC needs it: without it, as far as the last event of the input ends.
    """
    if horizon is None:
        horizon = max((event.e for event in events if not event.is_declared), default=0)
    found: list[OracleMatch] = []
    for partition in _partitions(query.partition_by, events):
        found.extend(_matches_of(Partition(query, partition, horizon)))
    return found


def matches_between(query: PatternQuery, events: list[OracleEvent], w0: float, w1: float) -> list[OracleMatch]:
    """What a run reports that advances from watermark w0 to w1: the matches with completion in (w0, w1]."""
    horizon = None if math.isinf(w1) else int(w1)
    return [match for match in matches(query, events, horizon) if w0 < match.completion <= w1]


def _matches_of(partition: Partition) -> list[OracleMatch]:
    """Those that the query's policy chooses."""
    policy = partition.query.policy
    if policy in CONTEXTS:
        return context_matches(partition)
    found = list(next_matches(partition) if policy == NEXT_MATCH else partition.all_matches())
    if policy == STRICT:
        found = strict(partition, found)
    found = picked(partition, found)
    if partition.query.consume:
        found = consumed(partition, found)
    if partition.query.suppress is not None:
        return [shown(partition, match, suppressed) for match, suppressed in reported(partition, found)]
    return [shown(partition, match) for match in found]


def _partitions(columns: tuple[str, ...], events: list[OracleEvent]) -> list[list[OracleEvent]]:
    """The events by key; a null in the key and the event takes part in nothing."""
    by_key: dict[tuple[Value, ...], list[OracleEvent]] = {}
    for event in events:
        key = tuple(event.fields.get(column) for column in columns)
        if all(same([value]) for value in key):
            by_key.setdefault(key, []).append(event)
    return list(by_key.values())
