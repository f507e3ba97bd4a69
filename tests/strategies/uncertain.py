"""Histories of uncertain events, in groups of alternatives or alone."""

from __future__ import annotations

from hypothesis import strategies as st

from draws import share
from oracle.oracle import OracleEvent
from oracle.worlds import Uncertain

SOME = share(0.33)
"""A third of the examples that the profile asks for: each is run in all of its worlds."""

CHANCES = (0.0, 0.1, 0.25, 0.5, 0.5, 0.75, 0.9)


@st.composite
def uncertain(draw: st.DrawFn, history: list[OracleEvent], most: int = 6) -> Uncertain:
    """The history with at most so many uncertain events; some of them alternatives of each other."""
    doubtful = draw(st.lists(st.sampled_from(history), unique_by=id, max_size=most)) if history else []
    probability = {event.id: 1.0 for event in history}
    group: dict[int, int] = {}
    left = [1.0, 1.0]
    for event in doubtful:
        chance = draw(st.sampled_from(CHANCES))
        number = draw(st.sampled_from((None, None, 0, 1)))
        if number is not None:
            chance = min(chance, left[number])
            left[number] -= chance
            group[event.id] = number
        probability[event.id] = chance
    return Uncertain(tuple(history), probability, group)
