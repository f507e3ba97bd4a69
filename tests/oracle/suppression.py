"""Section 7, SUPPRESS FOR: of a burst of matches, the first is reported and the others are counted."""

from __future__ import annotations

import math
from collections.abc import Iterable

from oracle.choices import length_of
from oracle.conditions import Value
from oracle.model import Candidate
from oracle.partition import Partition
from oracle.policies import order_of
from oracle.returns import value_of


def reported(partition: Partition, found: Iterable[Candidate]) -> list[tuple[Candidate, int]]:
    """The reported matches, each with the number of those suppressed since the one reported before it."""
    suppress = partition.query.suppress
    groups: dict[tuple[Value, ...], list[Candidate]] = {}
    for match in found:
        groups.setdefault(tuple(known(value_of(partition, match, value)) for value in suppress.per), []).append(match)
    shown: list[tuple[Candidate, int]] = []
    for group in groups.values():
        last, count = -math.inf, 0
        for match in sorted(group, key=lambda match: burst_order(partition, match)):
            at = partition.completion(match)
            # The end of the stream is after every time, and not after itself.
            if at == last or at - last <= length_of(suppress.window):
                count += 1
            else:
                shown.append((match, count))
                last, count = at, 0
    return shown


def burst_order(partition: Partition, match: Candidate) -> tuple[object, ...]:
    """The order of the policies; if the events are the same, branches of OR come before moments."""
    *events, moments, branch = order_of(partition, match)
    return *events, branch, moments


def known(value: Value) -> Value:
    """NaN is null."""
    return None if isinstance(value, float) and math.isnan(value) else value
