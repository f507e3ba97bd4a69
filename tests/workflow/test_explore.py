"""Leaving out interleavings changes no answer: compared with all markings of random nets, with forbids and clears."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from ensue.process import Workflow
from inside import COMPLETE, Explorer, Net, Transition, find_facts, second_tokens

PLACES = 6
Graph = dict[int, list[tuple[int, int]]]


def random_net(chance: random.Random) -> Net:
    """A net in which most transitions move one token, so that it is often safe and often comes to an end."""

    def few() -> int:
        return 1 << chance.randrange(PLACES) | (1 << chance.randrange(PLACES) if chance.random() < 0.4 else 0)

    def rarely() -> int:
        return 1 << chance.randrange(PLACES) if chance.random() < 0.1 else 0

    def task() -> int | None:
        return chance.choice((None, 0, 1, 2))

    steps = [
        Transition(few(), few(), task(), forbids=rarely(), clears=rarely()) for _ in range(chance.randrange(2, 10))
    ]
    ends = [Transition(few(), 0, task(), forbids=rarely()) for _ in range(chance.randrange(1, 4))]
    return Net(("A", "B", "C"), (*steps, *ends), few())


def all_markings(net: Net) -> Graph | None:
    """Every step from every marking that can be reached, or None if some place can get a second token."""
    graph: Graph = {}
    waiting = [net.initial]
    while waiting:
        marking = waiting.pop()
        if marking in graph:
            continue
        enabled = [number for number, step in enumerate(net.transitions) if step.is_enabled(marking)]
        if any(net.transitions[number].overfills(marking) for number in enabled):
            return None
        graph[marking] = [(number, net.transitions[number].fire(marking)) for number in enabled]
        waiting += [target for _, target in graph[marking]]
    return graph


def closure(graph: Graph, root: int, without: int | None, net: Net) -> set[int]:
    """The markings that can be reached from the root without a task."""
    found, waiting = {root}, [root]
    while waiting:
        for number, target in graph[waiting.pop()]:
            task = net.transitions[number].task
            if target not in found and (task is None or task != without):
                found.add(target)
                waiting.append(target)
    return found


def is_sound(graph: Graph, net: Net) -> bool:
    return all(COMPLETE in closure(graph, marking, None, net) for marking in graph)


def safe_nets(count: int) -> Iterator[tuple[Net, Graph]]:
    """Random nets with all of their markings; those in which a place can get two tokens are left out."""
    for seed in range(count):
        net = random_net(random.Random(seed))
        graph = all_markings(net)
        if graph is not None and len(graph) > 3:
            yield net, graph


def test_whether_all_runs_end_is_seen() -> None:
    ends: Counter[bool] = Counter()
    for net, graph in safe_nets(8_000):
        quiet = Explorer(net).quiet_graph([net.initial])
        assert quiet.keys() <= graph.keys()
        assert is_sound(quiet, net) == is_sound(graph, net)
        assert {marking for marking in graph if not graph[marking]} == {mark for mark in quiet if not quiet[mark]}
        ends[is_sound(graph, net)] += 1
    assert min(ends[True], ends[False]) > 50


def test_second_tokens_are_seen() -> None:
    safe: Counter[bool] = Counter()
    for seed in range(5000):
        net = random_net(random.Random(seed))
        found = second_tokens(net)
        assert bool(found) == (all_markings(net) is None)
        safe[not found] += 1
    assert min(safe[True], safe[False]) > 500


def test_facts_are_those_of_all_markings() -> None:
    for net, graph in safe_nets(8_000):
        if is_sound(graph, net):
            facts = find_facts(net)
            for task in range(3):
                assert {other for other in range(3) if facts.after[task] >> other & 1} == _after(graph, net, task)
                for other in {0, 1, 2} - {task}:
                    assert bool(facts.without[task] >> other & 1) == _occurs_without(graph, net, task, other)


def _after(graph: Graph, net: Net, task: int) -> set[int]:
    landings = [to for steps in graph.values() for number, to in steps if net.transitions[number].task == task]
    markings = {marking for landing in landings for marking in closure(graph, landing, None, net)}
    tasks = {net.transitions[number].task for marking in markings for number, _ in graph[marking]}
    return {found for found in tasks if found is not None}


def _occurs_without(graph: Graph, net: Net, task: int, other: int) -> bool:
    return any(
        COMPLETE in closure(graph, target, other, net)
        for marking in closure(graph, net.initial, other, net)
        for number, target in graph[marking]
        if net.transitions[number].task == task
    )


def test_samples_are_accepted() -> None:
    for net, graph in safe_nets(8_000):
        if is_sound(graph, net):
            model = Workflow(net)
            assert model.accepts(model.sample(random.Random(0), 10))


def test_every_way_to_a_goal_is_found() -> None:
    for net, graph in safe_nets(8_000):
        for goal in net.transitions:
            reachable = any(goal.is_enabled(marking) for marking in graph)
            assert any(True for _ in Explorer(net).ways_to(goal, net.initial)) == reachable
