"""Which markings a net reaches: as few of the interleavings of parallel branches as the question allows.

After Valmari, Stubborn sets for reduced state space generation (1989). In a marking, a set of transitions is stubborn
if whatever fires outside of it neither enables a disabled member, nor disables or changes the effect of an enabled one.
So the first member that a run fires could as well have fired first, and only enabled members need to be followed:

- Of the complete runs from a marking, one of each class of reorderings is kept (`quiet_graph`). Which tasks occur
  together, and whether a run can end, is the same as in the full graph. This holds without a proviso on cycles,
  because a complete run is finite and ends where nothing is enabled.
- If the goal itself is a member, the first member to fire is at or before the goal. So nothing that comes after the
  goal is moved before it, and each way to the goal is kept without what it does not need (`ways_to`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from ensue.errors import LimitError
from ensue.process.workflows_net import Net, Transition, bits

MOST_MARKINGS = 100_000
"""Markings that one question may visit."""

Step = tuple[int, int]
"""The number of a transition and the marking after it."""


@dataclass(frozen=True)
class Explorer:
    """Walks the markings of a net. `on_overfill` hears of each transition that would put a second token on a place."""

    net: Net
    on_overfill: Callable[[int, int], None] | None = None

    def quiet_graph(self, roots: Iterable[int], *, silent_only: bool = False) -> dict[int, list[Step]]:
        """The steps from each marking on the ways from the roots to complete runs, in order of discovery."""
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
        """Markings right after the first time that a task occurs, on each way to it without what it did not need.

        The ways start in the initial marking, or in the given ones and then without any other task.
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
        """Markings in which `goal` is enabled, before it first fires. It need not be a transition of the net."""
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
        """The enabled members of a stubborn set that has few of them; of an entangled net, all that is enabled."""
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
        """The enabled members of a stubborn set around the goal."""
        if goal.is_enabled(marking):
            return self._enabled_members(self._interfering(goal), marking)
        return self._enabled_members(self._reason_disabled(goal, marking), marking)

    def _enabled_members(self, members: int, marking: int) -> list[int]:
        """The enabled transitions of the smallest stubborn set that holds `members`."""
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
        """Transitions one of which has to fire before this one can."""
        missing = transition.needs & ~marking
        if missing:
            return _gather(self._producers, missing & -missing)
        hindering = transition.forbids & marking
        return _gather(self._removers, hindering & -hindering)

    def _interfering(self, transition: Transition) -> int:
        """Transitions that may disable this one or be disabled by it, or whose order with it may matter."""
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
    """Transitions that can put a second token on places, with these places; none if the net is safe.

    Fewer interleavings may miss that two tokens meet, so each place is a question of its own: can a transition that
    fills it be enabled while it is full? Of an entangled net all markings are visited, which leaves nothing to ask.
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
            f"the workflow reaches more than {MOST_MARKINGS:,} states",
            "choices between parallel branches that wait for each other multiply; read its parts as workflows",
        )
