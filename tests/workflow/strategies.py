"""Hypothesis strategies for workflows."""

from __future__ import annotations

from hypothesis import strategies as st

from ensue.process import Workflow, workflow
from inside import Maybe, Process, Task, choice, parallel, render_process, sequence
from inside import RepeatedTask as Repeat

NAMES = ("A", "B", "C", "D", "E", "F", "G", "H")


def processes(max_tasks: int = 6, names: tuple[str, ...] = NAMES) -> st.SearchStrategy[Process]:
    """Process trees with at most `max_tasks` leaves; now and then a task stands in several places."""
    leaves = st.sampled_from(names).map(Task)
    return leaves if max_tasks <= 1 else st.integers(1, max_tasks).flatmap(lambda size: _sized(size, leaves))


def workflows(max_tasks: int = 6, names: tuple[str, ...] = NAMES) -> st.SearchStrategy[Workflow]:
    """Workflows of the notation with at most `max_tasks` places for tasks."""
    return processes(max_tasks, names).map(render_process).map(workflow)


def _sized(size: int, leaves: st.SearchStrategy[Process]) -> st.SearchStrategy[Process]:
    """Trees of exactly that many leaves."""
    plain = leaves if size == 1 else _split(size).flatmap(lambda sizes: _joined(sizes, leaves))
    return st.tuples(plain, st.sampled_from(("", "", "", "", "+", "*", "["))).map(_wrapped)


def _split(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Ways to write a size of two or more as a sum of two or three."""
    two = st.integers(1, size - 1).map(lambda first: (first, size - first))
    if size == 2:
        return two
    three = st.integers(1, size - 2).flatmap(
        lambda first: st.integers(1, size - first - 1).map(lambda second: (first, second, size - first - second))
    )
    return st.one_of(two, three)


def _joined(sizes: tuple[int, ...], leaves: st.SearchStrategy[Process]) -> st.SearchStrategy[Process]:
    operators = st.sampled_from((sequence, choice, parallel))
    items = st.tuples(*(_sized(size, leaves) for size in sizes))
    return st.tuples(operators, items).map(lambda pair: pair[0](*pair[1]))


def _wrapped(pair: tuple[Process, str]) -> Process:
    process, sign = pair
    match sign:
        case "+" | "*":
            return Repeat(process, optional=sign == "*")
        case "[":
            return Maybe(process)
    return process
