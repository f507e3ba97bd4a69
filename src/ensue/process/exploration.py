"""Explore the reachable markings of a net with few interleavings of parallel branches, and derive constraints.

After Valmari, Stubborn sets for reduced state space generation (1989). In a marking, a set of transitions is stubborn
if no transition outside it can enable a disabled member, disable an enabled member or change its effect. So the first
member that a run fires could also have fired first, and only enabled members need to be followed:

- Of the complete runs from a marking, one of each class of reorderings is kept (`quiet_graph`). Which tasks occur
  together, and whether a run can end, is the same as in the full graph. This holds without a proviso on cycles,
  because a complete run is finite and ends where nothing is enabled.
- If the goal itself is a member, the first member to fire is at or before the goal. So nothing that comes after the
  goal is moved before it, and each path to the goal is kept without unnecessary steps (`ways_to`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations, product
from typing import TypeVar

from ensue.errors import LimitError
from ensue.nodes.constraints import Constraint, Ends, Exclusive, Prior, Require
from ensue.process.net import COMPLETE, Net, Transition, bits

MOST_MARKINGS = 100_000
"""The maximum number of markings that one question may visit."""

Step = tuple[int, int]
"""The number of a transition and the marking after it."""


@dataclass(frozen=True)
class Explorer:
    """Explores the markings of a net. Calls `on_overfill` for transitions that would put a second token on a place."""

    net: Net
    on_overfill: Callable[[int, int], None] | None = None

    def quiet_graph(self, roots: Iterable[int], *, silent_only: bool = False) -> dict[int, list[Step]]:
        """Return the steps from each marking on the paths from the roots to complete runs, in order of discovery."""
        graph: dict[int, list[Step]] = {}
        waiting = deque(roots)
        while waiting:
            marking = waiting.popleft()
            if marking not in graph:
                graph[marking] = list(self._steps(self._fewest(marking), marking, silent_only))
                _check_size(graph)
                waiting.extend(target for _, target in graph[marking])
        return graph

    def landings(self, task: int, silently_from: Iterable[int] | None = None) -> Iterator[int]:
        """Yield the markings after the first occurrence of a task, on each path to it without unnecessary steps.

        The paths start in the initial marking, or in the given ones and then contain no other task.
        """
        silent_only = silently_from is not None
        roots = (self.net.initial,) if silently_from is None else silently_from
        transitions = [transition for transition in self.net.transitions if transition.task == task]
        if self.net.entangled:
            for marking in self.quiet_graph(roots, silent_only=True) if silent_only else self._all_markings:
                yield from (step.fire(marking) for step in transitions if step.is_enabled(marking))
        else:
            for root, transition in product(roots, transitions):
                for marking in self.ways_to(transition, root, silent_only=silent_only):
                    yield transition.fire(marking)

    @cached_property
    def _all_markings(self) -> dict[int, list[Step]]:
        return self.quiet_graph([self.net.initial])

    def ways_to(self, goal: Transition, root: int, *, silent_only: bool = False) -> Iterator[int]:
        """Yield the markings in which `goal` is enabled before it first fires. It may be no transition of the net."""
        seen, waiting = {root}, [root]
        while waiting:
            marking = waiting.pop()
            if goal.is_enabled(marking):
                yield marking
            for number, target in self._steps(self._towards(goal, marking), marking, silent_only):
                if target not in seen and self.net.transitions[number] != goal:
                    seen.add(target)
                    waiting.append(target)
            _check_size(seen)

    def _steps(self, enabled: list[int], marking: int, silent_only: bool) -> Iterator[Step]:
        for number in enabled:
            transition = self.net.transitions[number]
            if silent_only and transition.task is not None:
                continue
            if transition.overfills(marking):
                if self.on_overfill is not None:
                    self.on_overfill(number, transition.overfills(marking))
            else:
                yield number, transition.fire(marking)

    def _fewest(self, marking: int) -> list[int]:
        """Return the enabled members of a small stubborn set; in an entangled net, all enabled transitions."""
        consumers = bits(_gather(self._consumers, marking))
        enabled = [number for number in consumers if self.net.transitions[number].is_enabled(marking)]
        fewest = enabled
        for number in [] if self.net.entangled else enabled:
            members = self._enabled_members(1 << number, marking)
            if len(members) < len(fewest):
                fewest = members
            if len(fewest) == 1:
                break
        return fewest

    def _towards(self, goal: Transition, marking: int) -> list[int]:
        """Return the enabled members of a stubborn set that contains the goal."""
        if goal.is_enabled(marking):
            return self._enabled_members(self._interfering(goal), marking)
        return self._enabled_members(self._reason_disabled(goal, marking), marking)

    def _enabled_members(self, members: int, marking: int) -> list[int]:
        """Return the enabled transitions of the smallest stubborn set that contains `members`."""
        closed, enabled = 0, []
        while open_members := members & ~closed:
            lowest = open_members & -open_members
            closed |= lowest
            number = lowest.bit_length() - 1
            transition = self.net.transitions[number]
            if transition.is_enabled(marking):
                enabled.append(number)
                members |= self._interference[number]
            else:
                members |= self._reason_disabled(transition, marking)
        return enabled

    def _reason_disabled(self, transition: Transition, marking: int) -> int:
        """Return transitions of which one must fire before this one can."""
        missing = transition.needs & ~marking
        if missing:
            return _gather(self._producers, missing & -missing)
        hindering = transition.forbids & marking
        return _gather(self._removers, hindering & -hindering)

    def _interfering(self, transition: Transition) -> int:
        """Return transitions that may disable this one, that it may disable, or whose order with it may matter."""
        return (
            _gather(self._consumers, transition.needs | transition.clears)
            | _gather(self._makers, transition.forbids | transition.clears)
            | _gather(self._forbidders, transition.makes)
            | _gather(self._clearers, transition.needs | transition.makes)
        )

    @cached_property
    def _interference(self) -> list[int]:
        return [self._interfering(transition) for transition in self.net.transitions]

    @cached_property
    def _consumers(self) -> dict[int, int]:
        return self._by_place(lambda transition: transition.needs)

    @cached_property
    def _makers(self) -> dict[int, int]:
        return self._by_place(lambda transition: transition.makes)

    @cached_property
    def _forbidders(self) -> dict[int, int]:
        return self._by_place(lambda transition: transition.forbids)

    @cached_property
    def _clearers(self) -> dict[int, int]:
        return self._by_place(lambda transition: transition.clears)

    @cached_property
    def _producers(self) -> dict[int, int]:
        return self._by_place(lambda transition: transition.makes & ~transition.needs)

    @cached_property
    def _removers(self) -> dict[int, int]:
        return self._by_place(lambda transition: (transition.needs | transition.clears) & ~transition.makes)

    def _by_place(self, places: Callable[[Transition], int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for number, transition in enumerate(self.net.transitions):
            for place in bits(places(transition)):
                found[place] = found.get(place, 0) | 1 << number
        return found


def second_tokens(net: Net) -> dict[int, int]:
    """Return the transitions that can put a second token on places, with these places; none if the net is safe.

    Fewer interleavings may miss that two tokens meet, so each place is a separate question: can a transition that fills
    it be enabled while it is full? In an entangled net all markings are visited, so there is nothing else to check.
    """
    found: dict[int, int] = {}

    def note(transition: int, places: int) -> None:
        found[transition] = found.get(transition, 0) | places

    explorer = Explorer(net, note)
    explorer.quiet_graph([net.initial])
    asked: set[Transition] = set()
    for number, transition in enumerate(net.transitions if not net.entangled else ()):
        for place in bits(transition.makes & ~transition.needs & ~transition.clears & ~transition.forbids):
            goal = Transition(transition.needs | 1 << place, 0, forbids=transition.forbids)
            if goal not in asked and any(True for _ in explorer.ways_to(goal, net.initial)):
                note(number, 1 << place)
            asked.add(goal)
    return found


def _gather(transitions: dict[int, int], places: int) -> int:
    found = 0
    for place in bits(places):
        found |= transitions.get(place, 0)
    return found


def _check_size(markings: dict[int, list[Step]] | set[int]) -> None:
    if len(markings) > MOST_MARKINGS:
        raise LimitError(
            "workflow-too-large",
            f"the workflow has more than {MOST_MARKINGS:,} states",
            "split the workflow, or use fewer choices between parallel branches that wait for each other",
        )


# --- constraints that all complete traces of a net obey

Graph = dict[int, list[Step]]


@dataclass(frozen=True, slots=True)
class Facts:
    """Masks of tasks for each task: those that can come `after` it, those that some trace with it is `without`."""

    after: tuple[int, ...]
    without: tuple[int, ...]


def find_facts(net: Net) -> Facts:
    """Return the facts of a net in which every run can be completed."""
    explorer = Explorer(net)
    landings = [set(explorer.landings(task)) for task in range(len(net.tasks))]
    graph = explorer.quiet_graph([net.initial, *sorted(set().union(*landings))])
    futures = _futures(net, graph)
    return Facts(tuple(_union(futures[marking] for marking in markings) for markings in landings), _without(net, graph))


def constraints_of(net: Net) -> tuple[Constraint, ...]:
    """Return every PRIOR, EXCLUSIVE, REQUIRE and ENDS that holds, except PRIOR of tasks that never occur together."""
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
    """Return the tasks that can still occur, for each marking."""
    futures = dict.fromkeys(graph, 0)

    def look_ahead(marking: int) -> bool:
        found = _union(_task_bit(net, step) | futures[step[1]] for step in graph[marking])
        changed = found != futures[marking]
        futures[marking] = found
        return changed

    _settle(list(reversed(graph)), look_ahead)
    return futures


def _without(net: Net, graph: Graph) -> tuple[int, ...]:
    """Return, for each task, the tasks that are missing from some complete trace with it."""
    behind, ahead = _avoidable_behind(net, graph), _avoidable_ahead(net, graph)
    without = [0] * len(net.tasks)
    for marking, steps in graph.items():
        for step in steps:
            for task in bits(_task_bit(net, step)):
                without[task] |= behind[marking] & ahead[step[1]]
    return tuple(without)


def _avoidable_behind(net: Net, graph: Graph) -> dict[int, int]:
    """Return, for each marking, the tasks that are missing from some path to it."""
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
    """Return, for each marking, the tasks that are missing from some path from it to the end."""
    avoidable = dict.fromkeys(graph, 0)
    avoidable[COMPLETE] = (1 << len(net.tasks)) - 1

    def pull(marking: int) -> bool:
        gained = _union(avoidable[step[1]] & ~_task_bit(net, step) for step in graph[marking]) & ~avoidable[marking]
        avoidable[marking] |= gained
        return gained != 0

    _settle(list(reversed(graph)), pull)
    return avoidable


def _settle(markings: list[int], change: Callable[[int], bool]) -> None:
    """Repeat over the markings until nothing changes: the least fixed point, because changes only add."""
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


# --- constraints without redundant ones

Pair = TypeVar("Pair", Prior, Exclusive, Require)


def reduce_constraints(constraints: tuple[Constraint, ...], tasks: tuple[str, ...]) -> tuple[Constraint, ...]:
    """Remove, one at a time, each constraint that follows from the remaining ones:

    - `ENDS(b)` gives `PRIOR(a, b)`;
    - `PRIOR(a, b)` and `PRIOR(b, c)` give `PRIOR(a, c)` if `REQUIRE(a, b)` or `REQUIRE(c, b)`;
    - `REQUIRE(a, b)` and `REQUIRE(b, c)` give `REQUIRE(a, c)`;
    - `REQUIRE(a, b)` and `EXCLUSIVE(b, c)` give `EXCLUSIVE(a, c)`.

    Each step keeps the meaning of the whole set. Distant pairs are removed first, so neighbours remain.
    """
    order = {task: number for number, task in enumerate(tasks)}
    requires = {item for item in constraints if isinstance(item, Require)}
    ending = {task for item in constraints if isinstance(item, Ends) for task in item.streams}

    def follows_prior(prior: Prior, rest: set[Prior]) -> bool:
        first, last = prior.streams
        return last in ending or any(
            Prior(first, task) in rest
            and Prior(task, last) in rest
            and (Require(first, task) in requires or Require(last, task) in requires)
            for task in tasks
        )

    def follows_require(require: Require, rest: set[Require]) -> bool:
        first, last = require.streams
        return any(Require(first, task) in rest and Require(task, last) in rest for task in tasks)

    def follows_exclusive(exclusive: Exclusive, rest: set[Exclusive]) -> bool:
        one, other = exclusive.streams
        return any(
            (Require(one, task) in requires and _exclude(task, other, order) in rest)
            or (Require(other, task) in requires and _exclude(task, one, order) in rest)
            for task in tasks
        )

    kept: set[Constraint] = {
        *_thin((item for item in constraints if isinstance(item, Prior)), follows_prior, order),
        *_thin((item for item in constraints if isinstance(item, Exclusive)), follows_exclusive, order),
        *_thin(requires, follows_require, order),
    }
    return tuple(item for item in constraints if item in kept or isinstance(item, Ends))


def _thin(pairs: Iterable[Pair], follows: Callable[[Pair, set[Pair]], bool], order: dict[str, int]) -> set[Pair]:
    rest = set(pairs)

    def nearness(pair: Pair) -> tuple[int, int, int]:
        one, other = (order[task] for task in pair.streams)
        return -abs(one - other), one, other

    for pair in sorted(rest, key=nearness):
        rest.discard(pair)
        if not follows(pair, rest):
            rest.add(pair)
    return rest


def _exclude(one: str, other: str, order: dict[str, int]) -> Exclusive:
    return Exclusive((one, other) if order[one] < order[other] else (other, one))
