"""Compiles the kernels before their first use, once per machine: the machine code is cached on disk."""

from __future__ import annotations

import logging
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ensue.kernels import beliefs, bursts, codes, ranges, sorted_runs, stretches, traces

log = logging.getLogger("ensue")

_rows = np.zeros(1, np.int32)
_times = np.zeros(1, np.int64)
_floats = np.zeros(1)
_offsets = np.array([0, 1], np.int64)
_never = np.iinfo(np.int64).max
_nothing = np.full(4, -1, np.int32)
_bytes = np.zeros(1, np.uint8)
_given = np.frombuffer(bytes(1), np.uint8)
_begins, _large_begins = (np.frombuffer(bytes(16), kind) for kind in (np.int32, np.int64))
"""Arrow buffers are read-only, which is a separate type for numba."""

_counts = np.zeros((1, 1), np.int64)
_used = np.zeros(1, np.uint8)
_bits = np.zeros(1, np.uint64)
_words = np.zeros((1, 1), np.uint64)
_flags = np.zeros(1, bool)
_rules = traces.Rules(
    _offsets, _times, _offsets, _times, _times, _words, _bits, _bits, _flags, _words, _offsets, _words, _words,
    np.uint64(0), 0,
)  # fmt: skip
_traces = traces.Traces(_words, _words, _times, _flags, _flags, _rows, _words, _words, _times, _flags, _flags, _times)
_arrivals = traces.Arrivals(_rows[:0], _rows, _times, _words, _rows, _flags)

_table = np.zeros((0, 3), np.int64)
_checks = traces.Checks(_table, _offsets, _times, _times, _times, _times, 0)
_seen = traces.TraceTimes(_table, _table.copy(), _flags)

CALLS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (stretches.chances_of_none, (_times, _times, _floats, _floats, 1)),
    (stretches.components, (_times, _times, 1)),
    (bursts.take_first_of_bursts, (_times, _times, 1, _times.copy(), _times.copy(), _flags.copy())),
    (codes.number_values, (_times,)),
    (codes.number_by_appearance, (_rows, 1)),
    (codes.fill_table, (_nothing.copy(), _times, 1)),
    (codes.intern_values, (_times, _nothing.copy(), _times.copy(), 0)),
    (codes.intern_texts, (_offsets, _given, _nothing.copy(), _times.copy(), _offsets.copy(), _bytes.copy(), 0)),
    (codes.find_texts, (_begins, _given, _nothing.copy(), _times, _offsets, _bytes)),
    (codes.find_texts, (_large_begins, _given, _nothing.copy(), _times, _offsets, _bytes)),
    (codes.append_texts, (_begins, _given, _times[:0], _begins.copy(), _bytes.copy(), 0)),
    (codes.append_texts, (_large_begins, _given, _times[:0], _large_begins.copy(), _bytes.copy(), 0)),
    (sorted_runs.is_sorted, (_times,)),
    (sorted_runs.order_by_time, (_times,)),
    (sorted_runs.group_by_key, (_rows, 1)),
    (sorted_runs.offsets_of_runs, (_rows, 1)),
    (sorted_runs.merge_sorted, (_rows, _rows, _rows, _times, _times, _rows, _rows, _rows, _times, _times)),
    (sorted_runs.keep_sorted, (_rows, _rows, _rows, _times, _times, _rows)),
    (sorted_runs.offsets_of_kinds, (_rows, _rows, 1, 1)),
    (sorted_runs.number_within_runs, (_rows, _rows, _times)),
    (ranges.find_ranges, (_rows, _times, _times, _offsets, _times)),
    (ranges.expand_ranges, (_rows, _rows, 0)),
    (ranges.value_from, (_rows, _times, _offsets, _times, _times, _never)),
    (ranges.value_until, (_rows, _times, _offsets, _times, _times, _never)),
    (ranges.suffix_minimum, (_times, _offsets)),
    (ranges.sliding_minimum, (_times, _rows, _rows, _never)),
    (ranges.lower_to, (_times.copy(), _rows, _times)),
    (ranges.take_unused, (_counts, _used)),
    (ranges.close_initiators, (_times, _times, True, _used)),
    (traces.count_pairs, (_offsets, _rows, _times, _times, _counts, _counts)),
    (traces.follow, (_arrivals, _rules, _traces, _flags, _rows)),
    (traces.find_violations, (_rows[:0], _rows, _times, _rows, _checks, _seen, 0, False)),
)


_small = np.zeros((1, 1), np.int16)
_numbers = np.ones((1, 1))
_model = beliefs.Model(
    1,
    1,
    False,
    _small,
    _small,
    _times,
    _numbers[None],
    _numbers[None],
    _flags,
    0,
    _numbers[0],
    _numbers[0],
    _numbers[0],
)
_responses = beliefs.Responses(_rows, _numbers[0], _numbers[0], _numbers[0], _rows)
_changes = beliefs.Changes(_small, _small, _small, _small, np.zeros((3, 1, 0)), _numbers[0])
_beliefs = beliefs.Beliefs(_numbers.copy(), _times.copy(), _numbers[0].copy())
_wanted = beliefs.BeliefRequest(_numbers, _numbers.copy(), _rows, _numbers.copy(), _numbers[0].copy(), False, 0)

BELIEF_CALLS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (
        beliefs.follow_beliefs,
        (_rows, _offsets, _times, _changes, _model, _responses, _beliefs, 0, _wanted, np.zeros(1, np.int8)),
    ),
)
"""The kernels of probabilistic state: they take as long as all others to compile, and not every program needs them."""


@cache
def compile_missing(states: bool = False) -> None:
    """Compiles the kernels without machine code on disk; the others are loaded when they are first called.

    The kernels of probabilistic state are included only if a program has `states`.
    """
    if not all(_is_cached(kernel) for kernel, _ in CALLS):
        warm_up()
    if states and not all(_is_cached(kernel) for kernel, _ in BELIEF_CALLS):
        warm_up_beliefs()


def _is_cached(kernel: Any) -> bool:
    """Whether numba has machine code of the kernel that is not older than its source."""
    source = Path(kernel.py_func.__code__.co_filename)
    kept = Path(kernel.stats.cache_path).glob(f"{source.stem}.{kernel.py_func.__qualname__}-*.nbi")
    return any(index.stat().st_mtime >= source.stat().st_mtime for index in kept)


@cache
def warm_up() -> None:
    """Loads every kernel and compiles those that are not cached; reports this on a terminal, because it takes
    seconds."""
    _call(CALLS)


@cache
def warm_up_beliefs() -> None:
    """Like `warm_up`, including the kernels of probabilistic state."""
    warm_up()
    _call(BELIEF_CALLS)


def _call(calls: tuple[tuple[Any, tuple[Any, ...]], ...]) -> None:
    """Calls each kernel once per process: a call changes its arguments, so they cannot be used again."""
    for done, (kernel, arguments) in enumerate(calls):
        kernel(*arguments)
        if sum(kernel.stats.cache_misses.values()):
            message = f"ensue: compiling kernels (only once on this machine): {done + 1} of {len(calls)}"
            log.info(message)
            if sys.stderr.isatty():
                sys.stderr.write("\r" + message + ("\n" if done + 1 == len(calls) else ""))
                sys.stderr.flush()
