"""What a workflow means, said as plainly as possible: lists of traces, and nothing shared with the product.

For facts about pairs of tasks two rounds of each loop are exact: a trace in which `b` comes after `a` needs at most the
two rounds that `a` and `b` belong to, and one with `a` but without `b` only the round of `a`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from inside import Choice, Constraint, Ends, Exclusive, Maybe, Parallel, Prior, Process, Require, Sequence, Task
from inside import RepeatedTask as Repeat

Trace = tuple[str, ...]
MOST = 5_000


class TooMany(Exception):  # noqa: N818
    """There are more traces than a test wants to look at."""


def traces_of(process: Process, rounds: int = 2) -> set[Trace]:
    """All complete traces in which no loop runs more often than that."""
    match process:
        case Task(name):
            return {(name,)}
        case Choice(items):
            return _few(trace for item in items for trace in traces_of(item, rounds))
        case Maybe(item):
            return traces_of(item, rounds) | {()}
        case Sequence(items):
            return _concatenated([traces_of(item, rounds) for item in items])
        case Parallel(items):
            found: set[Trace] = {()}
            for item in items:
                pairs = product(found, traces_of(item, rounds))
                found = _few(woven for one, other in pairs for woven in interleavings(one, other))
            return found
        case Repeat(item, optional):
            once = traces_of(item, rounds)
            return _few(
                trace for count in range(0 if optional else 1, rounds + 1) for trace in _concatenated([once] * count)
            )


def interleavings(one: Trace, other: Trace) -> set[Trace]:
    if not one or not other:
        return {one + other}
    first = {(one[0], *rest) for rest in interleavings(one[1:], other)}
    return first | {(other[0], *rest) for rest in interleavings(one, other[1:])}


def _concatenated(parts: list[set[Trace]]) -> set[Trace]:
    return _few(tuple(event for part in choice for event in part) for choice in product(*parts))


def _few(traces: Iterable[Trace]) -> set[Trace]:
    found: set[Trace] = set()
    for trace in traces:
        found.add(trace)
        if len(found) > MOST:
            raise TooMany
    return found


def obeys(trace: Trace, constraint: Constraint) -> bool:
    """Section 9 of docs/semantics.md, for traces without events of equal time."""
    match constraint:
        case Prior(earlier, later):
            return later not in trace or earlier not in trace[trace.index(later) :]
        case Exclusive(streams):
            return len(set(streams) & set(trace)) <= 1
        case Require(stream, required):
            return stream not in trace or required in trace
        case Ends(streams):
            return not set(streams) & set(trace[:-1])
    raise AssertionError(constraint)


def constraints_by_brute_force(tasks: tuple[str, ...], traces: set[Trace]) -> set[Constraint]:
    """Every constraint about a pair that holds on all the traces, without PRIOR for tasks that exclude each other."""
    pairs = [(one, other) for one in tasks for other in tasks if one != other]
    exclusive = {frozenset(pair) for pair in pairs if all(obeys(trace, Exclusive(pair)) for trace in traces)}
    found: set[Constraint] = {Exclusive((one, other)) for one, other in pairs if frozenset((one, other)) in exclusive}
    candidates: list[Constraint] = [Require(*pair) for pair in pairs]
    candidates += [Prior(*pair) for pair in pairs if frozenset(pair) not in exclusive]
    candidates += [Ends((task,)) for task in tasks]
    return found | {item for item in candidates if all(obeys(trace, item) for trace in traces)}


def spelled_out(constraints: Iterable[Constraint]) -> set[Constraint]:
    """The same constraints with ENDS for one task each, and EXCLUSIVE in both orders."""
    found: set[Constraint] = set()
    for constraint in constraints:
        match constraint:
            case Ends(streams):
                found |= {Ends((stream,)) for stream in streams}
            case Exclusive((one, other)):
                found |= {Exclusive((one, other)), Exclusive((other, one))}
            case _:
                found.add(constraint)
    return found
