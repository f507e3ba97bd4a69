"""What the complete traces of a net have in common, as constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations, permutations

from ensue.nodes.constraints import Constraint, Ends, Exclusive, Prior, Require
from ensue.process.exploration import Explorer, Step
from ensue.process.workflows_net import COMPLETE, Net, bits

Graph = dict[int, list[Step]]


@dataclass(frozen=True, slots=True)
class Facts:
    """For each task, as masks of tasks: which can come `after` it, and which some trace with it does `without`."""

    after: tuple[int, ...]
    without: tuple[int, ...]


def find_facts(net: Net) -> Facts:
    """The facts of a net in which every run can be completed."""
    explorer = Explorer(net)
    landings = [set(explorer.landings(task)) for task in range(len(net.tasks))]
    graph = explorer.quiet_graph([net.initial, *sorted(set().union(*landings))])
    futures = _futures(net, graph)
    return Facts(tuple(_union(futures[marking] for marking in markings) for markings in landings), _without(net, graph))


def constraints_of(net: Net) -> tuple[Constraint, ...]:
    """All of PRIOR, EXCLUSIVE, REQUIRE and ENDS that hold, save a PRIOR between tasks that never occur together."""
    facts = find_facts(net)
    tasks, after = net.tasks, facts.after
    numbers = range(len(tasks))
    last = tuple(tasks[one] for one in numbers if not after[one])
    return (
        *(
            Prior(tasks[one], tasks[other])
            for one, other in permutations(numbers, 2)
            if _has(after[one], other) and not _has(after[other], one)
        ),
        *(
            Exclusive((tasks[one], tasks[other]))
            for one, other in combinations(numbers, 2)
            if not _has(after[one], other) and not _has(after[other], one)
        ),
        *(
            Require(tasks[one], tasks[other])
            for one, other in permutations(numbers, 2)
            if not _has(facts.without[one], other)
        ),
        *([Ends(last)] if last else []),
    )


def _futures(net: Net, graph: Graph) -> dict[int, int]:
    """For each marking the tasks that can still occur."""
    futures = dict.fromkeys(graph, 0)

    def look_ahead(marking: int) -> bool:
        found = _union(_task_bit(net, step) | futures[step[1]] for step in graph[marking])
        changed = found != futures[marking]
        futures[marking] = found
        return changed

    _settle(list(reversed(graph)), look_ahead)
    return futures


def _without(net: Net, graph: Graph) -> tuple[int, ...]:
    """For each task the tasks that are missing from some complete trace with it."""
    behind, ahead = _avoidable_behind(net, graph), _avoidable_ahead(net, graph)
    without = [0] * len(net.tasks)
    for marking, steps in graph.items():
        for step in steps:
            for task in bits(_task_bit(net, step)):
                without[task] |= behind[marking] & ahead[step[1]]
    return tuple(without)


def _avoidable_behind(net: Net, graph: Graph) -> dict[int, int]:
    """For each marking the tasks that are missing from some way to it."""
    avoidable = dict.fromkeys(graph, 0)
    avoidable[net.initial] = (1 << len(net.tasks)) - 1

    def push(marking: int) -> bool:
        changed = False
        for step in graph[marking]:
            gained = avoidable[marking] & ~_task_bit(net, step) & ~avoidable[step[1]]
            avoidable[step[1]] |= gained
            changed = changed or gained != 0
        return changed

    _settle(list(graph), push)
    return avoidable


def _avoidable_ahead(net: Net, graph: Graph) -> dict[int, int]:
    """For each marking the tasks that are missing from some way from it to the end."""
    avoidable = dict.fromkeys(graph, 0)
    avoidable[COMPLETE] = (1 << len(net.tasks)) - 1

    def pull(marking: int) -> bool:
        gained = _union(avoidable[step[1]] & ~_task_bit(net, step) for step in graph[marking]) & ~avoidable[marking]
        avoidable[marking] |= gained
        return gained != 0

    _settle(list(reversed(graph)), pull)
    return avoidable


def _settle(markings: list[int], change: Callable[[int], bool]) -> None:
    """Sweeps over the markings until nothing changes: the least fixed point, as all changes only add."""
    changed = True
    while changed:
        changed = sum(map(change, markings)) > 0


def _task_bit(net: Net, step: Step) -> int:
    task = net.transitions[step[0]].task
    return 0 if task is None else 1 << task


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _has(mask: int, number: int) -> bool:
    return bool(mask >> number & 1)
