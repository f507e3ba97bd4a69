"""Kernels against plain numpy and Python."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inside import (
    expand_ranges,
    find_ranges,
    group_by_key,
    is_sorted,
    lower_to,
    number_by_appearance,
    number_values,
    number_within_runs,
    offsets_of_runs,
    order_by_time,
    sliding_minimum,
    suffix_minimum,
    value_from,
    value_until,
)

SMALLEST, LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
times = (
    st.integers(-6, 6) | st.sampled_from([SMALLEST, SMALLEST + 1, LARGEST - 1, LARGEST]) | st.integers(-(2**40), 2**40)
)
keyed_times = st.lists(st.tuples(st.integers(0, 3), st.integers(-6, 6)), max_size=30)
probes = st.lists(st.tuples(st.integers(0, 3), times, times), max_size=20)


def runs(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, times) of the pairs sorted by key and time."""
    ordered = sorted(pairs)
    keys = np.array([key for key, _ in ordered], np.int32)
    return offsets_of_runs(keys, 4), np.array([time for _, time in ordered], np.int64)


def run_of(pairs: list[tuple[int, int]], key: int) -> list[int]:
    return sorted(time for other, time in pairs if other == key)


@given(st.lists(times, max_size=50))
def test_order_by_time_is_the_stable_order(values: list[int]) -> None:
    array = np.array(values, np.int64)
    assert order_by_time(array).tolist() == np.argsort(array, kind="stable").tolist()
    assert is_sorted(array) == (values == sorted(values))


@given(st.lists(st.integers(-1, 4), max_size=50))
def test_group_by_key_is_a_stable_sort_without_missing_keys(values: list[int]) -> None:
    keys = np.array(values, np.int32)
    order, offsets = group_by_key(keys, 5)
    kept = [place for place, key in enumerate(values) if key >= 0]
    assert order.tolist() == sorted(kept, key=lambda place: values[place])
    assert np.diff(offsets).tolist() == [values.count(key) for key in range(5)]


@given(st.lists(times, max_size=50))
def test_values_are_numbered_as_they_first_appear(values: list[int]) -> None:
    codes, count = number_values(np.array(values, np.int64))
    distinct = list(dict.fromkeys(values))
    assert codes.tolist() == [distinct.index(value) for value in values]
    assert count == len(distinct)


@given(st.lists(st.integers(-1, 8), max_size=50))
def test_codes_are_numbered_as_they_first_appear(codes: list[int]) -> None:
    numbers, first = number_by_appearance(np.array(codes, np.int32), 9)
    distinct = list(dict.fromkeys(code for code in codes if code >= 0))
    assert numbers.tolist() == [distinct.index(code) if code >= 0 else -1 for code in codes]
    assert first.tolist() == [codes.index(code) for code in distinct]


@given(keyed_times, probes)
def test_find_ranges_finds_what_lies_between(pairs: list[tuple[int, int]], wanted: list[tuple[int, int, int]]) -> None:
    offsets, sorted_times = runs(pairs)
    keys = np.array([key for key, _, _ in wanted], np.int32)
    lows, highs = (np.array([probe[place] for probe in wanted], np.int64) for place in (1, 2))
    first, last = find_ranges(keys, lows, highs, offsets, sorted_times)
    for (key, low, high), begin, end in zip(wanted, first, last, strict=True):
        assert sorted_times[begin:end].tolist() == [time for time in run_of(pairs, key) if low <= time <= high]


def test_find_ranges_finds_nothing_for_a_missing_key() -> None:
    one = np.array([0], np.int64)
    first, last = find_ranges(np.array([-1], np.int32), one - 5, one + 5, np.array([0, 1]), one)
    assert first.tolist() == last.tolist()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_expand_ranges_lists_every_pair(ranges: list[tuple[int, int]]) -> None:
    pairs = [(probe, place) for probe, (begin, end) in enumerate(ranges) for place in range(begin, end)]
    first, last = (np.array([item[place] for item in ranges], np.int32) for place in (0, 1))
    found = expand_ranges(first, last, len(pairs))
    assert list(zip(*(side.tolist() for side in found), strict=True)) == pairs


@given(keyed_times, st.lists(st.tuples(st.integers(0, 3), times), max_size=20))
def test_values_from_and_until(pairs: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    offsets, sorted_times = runs(pairs)
    keys = np.array([key for key, _ in wanted], np.int32)
    limits = np.array([limit for _, limit in wanted], np.int64)
    after = value_from(keys, limits, offsets, sorted_times, sorted_times * 2, 99)
    until = value_until(keys, limits, offsets, sorted_times, sorted_times * 2, -99)
    for (key, limit), found_after, found_until in zip(wanted, after, until, strict=True):
        run = run_of(pairs, key)
        assert found_after == min((2 * time for time in run if time >= limit), default=99)
        assert found_until == max((2 * time for time in run if time <= limit), default=-99)


@given(keyed_times)
def test_suffix_minimum(pairs: list[tuple[int, int]]) -> None:
    offsets, values = runs([(key, -time) for key, time in pairs])
    shuffled = values[::-1].copy()
    result = suffix_minimum(shuffled, offsets)
    for begin, end in pairwise(offsets):
        for place in range(begin, end):
            assert result[place] == shuffled[place:end].min()


@given(keyed_times, st.integers(0, 4), st.integers(0, 6))
def test_sliding_minimum_over_ranges_that_rise_within_a_key(pairs: list[tuple[int, int]], gap: int, reach: int) -> None:
    offsets, sorted_times = runs(pairs)
    keys = np.repeat(np.arange(4, dtype=np.int32), np.diff(offsets))
    first, last = find_ranges(keys, sorted_times + gap, sorted_times + reach, offsets, sorted_times)
    values = (sorted_times * 7919) % 13
    result = sliding_minimum(values, first, last, 99)
    assert result.tolist() == [
        min(values[begin:end].tolist(), default=99) for begin, end in zip(first, last, strict=True)
    ]


def test_lower_to_keeps_the_least() -> None:
    target = np.array([5, 5], np.int64)
    lower_to(target, np.array([0, 1, 0], np.int32), np.array([7, 3, 4], np.int64))
    assert target.tolist() == [4, 3]


def test_positions_go_on_from_what_is_known() -> None:
    keys = np.array([0, 1, 0, -1, 0], np.int32)
    order = np.array([4, 0, 1, 2, 3], np.int32)
    positions, following = number_within_runs(keys, order, np.array([10, 0]))
    assert positions.tolist() == [11, 0, 12, -1, 10]
    assert following.tolist() == [13, 1]


WARMING_TWICE = """
from ensue.kernels import warm_up as warm
called = []
warm._call, warm._is_cached = called.append, lambda kernel: False
warm.compile_missing(), warm.warm_up(), warm.compile_missing(True), warm.warm_up_beliefs()
assert list(map(id, called)) == [id(warm.CALLS), id(warm.BELIEF_CALLS)], called
"""


def test_kernels_are_warmed_up_once_in_a_process() -> None:
    """A second call would take what the first one has changed, which is no input for it."""
    subprocess.run([sys.executable, "-c", WARMING_TWICE], check=True)
