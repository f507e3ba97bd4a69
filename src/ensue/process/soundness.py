"""Check that every run of a diagram can be completed; each problem names the element where it occurs."""

from __future__ import annotations

from collections.abc import Iterator

from ensue.errors import Problem
from ensue.process.diagram import Flow, Kind, Node, Scope
from ensue.process.exploration import Explorer, Step, second_tokens
from ensue.process.net import COMPLETE, Play, bits

Graph = dict[int, list[Step]]


def soundness_problems(process: Scope, play: Play) -> list[Problem]:
    """Return what prevents runs from being completed, or puts more than one token on a flow."""
    problems = [*_missing_ends(process), *_unreachable(process), *_Referee(process, play).problems()]
    return sorted(problems, key=lambda problem: problem.span.start if problem.span else -1)


def _missing_ends(process: Scope) -> Iterator[Problem]:
    for scope in process.all_scopes():
        for node in scope.nodes.values():
            if node.kind not in (Kind.END, Kind.TERMINATE) and not scope.out_of(node):
                message = f"{node.title} is not an end event and has no outgoing flow"
                yield Problem("missing-end", message, node.span, hint="add a flow from it to an end event")


def _unreachable(process: Scope) -> Iterator[Problem]:
    reached = {node.id for node in process.reached()}
    return (_never_runs(node) for node in process.all_nodes() if node.task is not None and node.id not in reached)


def _never_runs(node: Node) -> Problem:
    hint = "add a flow that leads to it, or remove it"
    return Problem("unreachable-task", f"{node.title} can never run", node.span, hint=hint)


class _Referee:
    """Explores all runs and reports deadlocks, endless loops, and tokens that meet on one flow."""

    def __init__(self, process: Scope, play: Play) -> None:
        self.process = process
        self.play = play
        self.overfilled = second_tokens(play.net)
        self.graph: Graph = Explorer(play.net).quiet_graph([play.net.initial])

    def problems(self) -> list[Problem]:
        stuck = [
            marking
            for marking in self.graph
            if marking != COMPLETE and not any(step.is_enabled(marking) for step in self.play.net.transitions)
        ]
        found = [*self._deadlocks(stuck), *self._meetings()]
        return found or [*self._circles(), *self._dead_tasks()]

    def _meetings(self) -> Iterator[Problem]:
        """Report where two tokens first meet; the flows after that point are not reported."""
        full = 0
        for places in self.overfilled.values():
            full |= places
        owners = self.play.owners
        first = [number for number in self.overfilled if not self.play.net.transitions[number].needs & full]
        for node in _distinct([owners[number] for number in first or [*self.overfilled][:1]]):
            message = f"{node.title} can send a second token while the first is still on its outgoing flow"
            hint = "join parallel branches with a parallel gateway, and do not leave a parallel branch through a loop"
            yield Problem("unsynchronized", message, node.span, hint=hint)

    def _deadlocks(self, stuck: list[int]) -> Iterator[Problem]:
        reported: set[str] = set()
        for marking in stuck:
            full = [self.play.holders[place] for place in bits(marking)]
            for scope in self.process.all_scopes():
                for node in scope.nodes.values():
                    arrived = [flow for flow in scope.into(node) if flow in full]
                    if arrived and node.id not in reported:
                        reported.add(node.id)
                        yield _deadlock(node, scope, arrived)

    def _circles(self) -> Iterator[Problem]:
        """Report markings from which no run can be completed, although it never stops."""
        ending = _can_reach(self.graph, COMPLETE)
        endless = [marking for marking in self.graph if marking not in ending]
        if endless:
            steps = [number for marking in endless for number, _ in self.graph[marking]]
            nodes = _distinct([self.play.owners[number] for number in steps])
            message = f"a run that reaches {nodes[-1].title} never reaches an end event"
            hint = "add an exclusive gateway that leaves the loop"
            yield Problem("no-way-to-end", message, nodes[-1].span, hint=hint)

    def _dead_tasks(self) -> Iterator[Problem]:
        fired = {self.play.owners[number].id for steps in self.graph.values() for number, _ in steps}
        reached = [node for node in self.process.reached() if node.task is not None]
        return (_never_runs(node) for node in reached if node.id not in fired)


def _deadlock(node: Node, scope: Scope, arrived: list[Flow]) -> Problem:
    missing = [flow for flow in scope.into(node) if flow not in arrived]
    waits = f" if a run takes only {_sources(arrived, scope)}" if missing else ""
    awaited = f" for {_sources(missing, scope)}" if missing else ""
    hint = "join branches with the same kind of gateway that split them: exclusive or parallel"
    return Problem("deadlock", f"{node.title} can wait forever{awaited}{waits}", node.span, hint=hint)


def _sources(flows: list[Flow], scope: Scope) -> str:
    return " and ".join(scope.nodes[flow.source].title for flow in flows)


def _distinct(nodes: list[Node]) -> list[Node]:
    return list({node.id: node for node in nodes}.values())


def _can_reach(graph: Graph, goal: int) -> set[int]:
    before: dict[int, list[int]] = {}
    for marking, steps in graph.items():
        for _, target in steps:
            before.setdefault(target, []).append(marking)
    found, waiting = {goal}, [goal]
    while waiting:
        for marking in before.get(waiting.pop(), []):
            if marking not in found:
                found.add(marking)
                waiting.append(marking)
    return found
