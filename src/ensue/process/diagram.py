"""A BPMN diagram without its XML: nodes, flows, and scopes (the process and its sub-processes) that contain them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ensue.errors import Span


class Kind(Enum):
    """How a node handles tokens."""

    START = "start"
    END = "end"
    TERMINATE = "terminate"
    STEP = "step"
    """A task, or an event or task that produces no event and is ignored."""
    EXCLUSIVE = "exclusive"
    PARALLEL = "parallel"
    INCLUSIVE = "inclusive"
    SUBPROCESS = "subprocess"


class Rounds(Enum):
    """How often a node runs each time it is reached."""

    ONE = "one"
    SOME = "one or more"
    ANY = "zero or more"


@dataclass(frozen=True, slots=True)
class Node:
    """An element with flows. `task` is the name of the event that it produces, or None."""

    id: str
    kind: Kind
    title: str
    span: Span | None
    task: str | None = None
    rounds: Rounds = Rounds.ONE
    default: str | None = None
    inner: Scope | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """A sequence flow; `conditional` if it has a condition."""

    id: str
    source: str
    target: str
    span: Span | None
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """The nodes of a process or sub-process by their ids, and the flows between them."""

    id: str
    title: str
    span: Span | None
    nodes: dict[str, Node]
    flows: tuple[Flow, ...]

    def into(self, node: Node) -> tuple[Flow, ...]:
        return tuple(flow for flow in self.flows if flow.target == node.id)

    def out_of(self, node: Node) -> tuple[Flow, ...]:
        return tuple(flow for flow in self.flows if flow.source == node.id)

    def starts(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.kind is Kind.START]

    def reached(self) -> Iterator[Node]:
        """Yield the reachable nodes, including those of sub-processes, nearest first."""
        waiting = self.starts()
        seen = {node.id for node in waiting}
        for node in waiting:
            yield node
            if node.inner is not None:
                yield from node.inner.reached()
            for flow in self.out_of(node):
                if flow.target not in seen:
                    seen.add(flow.target)
                    waiting.append(self.nodes[flow.target])

    def all_nodes(self) -> Iterator[Node]:
        """Yield the nodes, including those of sub-processes."""
        for node in self.nodes.values():
            yield node
            if node.inner is not None:
                yield from node.inner.all_nodes()

    def all_scopes(self) -> Iterator[Scope]:
        """Yield this scope and those of its sub-processes."""
        yield self
        for node in self.all_nodes():
            if node.inner is not None:
                yield node.inner


# --- pairs of inclusive gateways: a split whose branches are separate and all lead to one join

Pair = dict[Flow, Flow]
"""Maps each flow out of a split to the last flow of its branch, which leads into the join."""


def inclusive_pairs(scope: Scope) -> dict[tuple[str, str], Pair]:
    """Return the pairs of a scope, by the ids of split and join."""
    gateways = [node for node in scope.nodes.values() if node.kind is Kind.INCLUSIVE]
    pairs = {(split.id, join.id): _branches(split, join, scope) for split in gateways for join in gateways}
    return {ids: pair for ids, pair in pairs.items() if pair is not None}


def _branches(split: Node, join: Node, scope: Scope) -> Pair | None:
    """Return the first and last flow of each branch, or None if the two gateways are not a pair."""
    pair: Pair = {}
    for flow in scope.out_of(split):
        last = _last_flow(flow, split, join, scope)
        if last is None or last in pair.values():
            return None
        pair[flow] = last
    return pair if len(pair) > 1 and set(pair.values()) == set(scope.into(join)) else None


def _last_flow(first: Flow, split: Node, join: Node, scope: Scope) -> Flow | None:
    """Return the only flow from a branch into the join, if nothing else leads into or out of the branch."""
    inside: set[str] = set()
    last = [first] if first.target == join.id else []
    waiting = [first.target]
    while waiting:
        identity = waiting.pop()
        if identity in inside or identity == join.id:
            continue
        inside.add(identity)
        onward = scope.out_of(scope.nodes[identity])
        if not onward:
            return None
        last += [flow for flow in onward if flow.target == join.id]
        waiting += [flow.target for flow in onward]
    entries = [flow for flow in scope.flows if flow.target in inside and flow.source not in inside]
    return last[0] if len(last) == 1 and split.id not in inside and entries in ([first], []) else None
