"""Events whose partner has not come: those for which none can come any more are of no use."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ensue.engine.events import FOREVER, NEVER, Candidates
from ensue.engine.sources import Mask
from ensue.kernels.compiler import Int64s
from ensue.kernels.ranges import find_ranges
from ensue.plan.plans import Partner


def have_partners(events: Candidates, partners: Iterable[tuple[Partner, Candidates]]) -> Mask:
    """Which of the events have one of each partner that is known to come before them."""
    mask = np.ones(len(events), bool)
    for partner, others in partners:
        lows = _shifted(events.starts, partner.earliest, NEVER)
        highs = _shifted(events.starts, partner.latest, FOREVER)
        first, last = find_ranges(events.keys, lows, highs, others.offsets, others.starts)
        mask &= last > first
    return mask


def _shifted(starts: Int64s, ticks: int | None, otherwise: int) -> Int64s:
    return np.full(len(starts), otherwise, np.int64) if ticks is None else starts + ticks
