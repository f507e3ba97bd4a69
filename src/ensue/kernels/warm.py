"""Compiling the kernels ahead of their first use, once per machine: the machine code is cached on disk."""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import Any

import numpy as np

from ensue.kernels import choice, codes, minima, mining, ranges, sorting, stretches, traces, violations

log = logging.getLogger("ensue")

_rows = np.zeros(1, np.int32)
_times = np.zeros(1, np.int64)
_floats = np.zeros(1)
_offsets = np.array([0, 1], np.int64)
_never = np.iinfo(np.int64).max

_counts = np.zeros((1, 1), np.int64)
_used = np.zeros(1, np.uint8)
_bits = np.zeros(1, np.uint64)
_per_graph = np.zeros((1, 1), np.uint64)
_flags = np.zeros(1, bool)
_rules = traces.Rules(
    _offsets,
    _offsets,
    _bits,
    _bits,
    _bits,
    _bits,
    _bits,
    _flags,
    _times,
    _offsets.reshape(1, 2),
    _bits,
    _bits,
    np.uint64(0),
    0,
)
_traces = traces.Traces(
    _bits, _per_graph, _times, _flags, _flags, _rows, _per_graph, _per_graph, _times, _flags, _flags, _times
)

_table = np.zeros((0, 3), np.int64)
_checks = violations.Checks(_table, _offsets, _times, _times, _times, _times, 0)
_seen = violations.Seen(_table, _table.copy(), _flags)

CALLS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (stretches.chances_of_none, (_times, _times, _floats, _floats, 1)),
    (stretches.components, (_times, _times, 1)),
    (codes.number_values, (_times,)),
    (codes.number_by_appearance, (_rows, 1)),
    (sorting.is_sorted, (_times,)),
    (sorting.order_by_time, (_times,)),
    (sorting.group_by_key, (_rows, 1)),
    (sorting.offsets_of_runs, (_rows, 1)),
    (sorting.number_within_runs, (_rows, _rows, _times)),
    (ranges.find_ranges, (_rows, _times, _times, _offsets, _times)),
    (ranges.expand_ranges, (_rows, _rows, 0)),
    (ranges.value_from, (_rows, _times, _offsets, _times, _times, _never)),
    (ranges.value_until, (_rows, _times, _offsets, _times, _times, _never)),
    (minima.suffix_minimum, (_times, _offsets)),
    (minima.sliding_minimum, (_times, _rows, _rows, _never)),
    (minima.lower_to, (_times.copy(), _rows, _times)),
    (choice.take_unused, (_counts, _used)),
    (choice.close_initiators, (_times, _times, True, _used)),
    (mining.count_pairs, (_offsets, _rows, _times, _times, _counts, _counts)),
    (traces.follow, (_rows[:0], _rows, _times, _bits, _bits, _rules, _traces, _flags, _rows)),
    (violations.find_violations, (_rows[:0], _rows, _times, _rows, _checks, _seen, 0, False)),
)


@cache
def warm_up() -> None:
    """Loads every kernel, compiling those that are not cached; says so on a terminal, because it takes seconds."""
    for done, (kernel, arguments) in enumerate(CALLS):
        kernel(*arguments)
        if sum(kernel.stats.cache_misses.values()):
            message = f"ensue: compiling kernels, once on this machine: {done + 1} of {len(CALLS)}"
            log.info(message)
            if sys.stderr.isatty():
                sys.stderr.write("\r" + message + ("\n" if done + 1 == len(CALLS) else ""))
                sys.stderr.flush()
