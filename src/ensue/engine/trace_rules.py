"""A monitor as the arrays that the kernel of traces reads."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ensue.graph.bounds import FAR
from ensue.kernels.traces import Rules
from ensue.nodes.names import Stream
from ensue.plan.monitors import MOST_STEPS, GraphMonitor, Monitor

ENDED = np.uint64(1 << 63)
"""The bit of all streams that end a trace."""


def _bits_at_start(graph: GraphMonitor) -> int:
    return 1 if graph.follows else (1 << len(graph.steps)) - 1


def _bits_of_whole(graph: GraphMonitor) -> int:
    """The step at which the match is whole. Where it is not known when that is, and a match may trail, it is any."""
    if graph.whole is not None:
        return 1 << graph.whole
    return _bits_at_start(graph) if graph.trails else 0


@lru_cache(maxsize=256)
def rules_of(monitor: Monitor) -> Rules:
    """A monitor as arrays."""
    bit = {stream: np.uint64(1 << place) for place, stream in enumerate(monitor.watched)}

    def bits(streams: frozenset[Stream]) -> np.uint64:
        return np.uint64(sum(int(bit[stream]) for stream in streams))

    leaf_offsets = np.cumsum([0, *(len(graph.leaves) for graph in monitor.graphs)])
    moves: list[tuple[int, int, int]] = []
    losses = np.zeros(int(leaf_offsets[-1]), np.uint64)
    conditions: list[tuple[np.uint64, np.uint64]] = []
    condition_offsets = np.zeros((len(monitor.graphs), MOST_STEPS + 1), np.int64)
    for number, graph in enumerate(monitor.graphs):
        first = int(leaf_offsets[number])
        moves += [(first + leaf, 1 << start, 1 << goal) for start, leaf, goal in graph.moves]
        for leaf, step in graph.losses:
            losses[first + leaf] |= np.uint64(1 << step)
        for place in range(MOST_STEPS):
            condition_offsets[number, place] = len(conditions)
            if place < len(graph.steps):
                found = graph.steps[place].conditions
                conditions += [(bits(condition.seen), bits(condition.unseen)) for condition in found]
        condition_offsets[number, MOST_STEPS] = len(conditions)
    moves.sort()
    return Rules(
        leaf_offsets=leaf_offsets.astype(np.int64),
        move_offsets=np.searchsorted([leaf for leaf, _, _ in moves], np.arange(len(losses) + 1)).astype(np.int64),
        move_from=np.array([start for _, start, _ in moves], np.uint64),
        move_to=np.array([goal for _, _, goal in moves], np.uint64),
        losses=losses,
        starts=np.array([_bits_at_start(graph) for graph in monitor.graphs], np.uint64),
        wholes=np.array([_bits_of_whole(graph) for graph in monitor.graphs], np.uint64),
        trails=np.array([graph.trails for graph in monitor.graphs], bool),
        step_counts=np.array([len(graph.steps) for graph in monitor.graphs], np.int64),
        condition_offsets=condition_offsets,
        condition_seen=np.array([seen for seen, _ in conditions], np.uint64),
        condition_unseen=np.array([unseen for _, unseen in conditions], np.uint64),
        ends=ENDED,
        lifetime=FAR if monitor.lifetime is None else monitor.lifetime,
    )
