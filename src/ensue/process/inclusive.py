"""Inclusive gateways in pairs: a split whose branches are separate and all lead to one join.

Such a join simply waits for all branches, if the split puts a token past each branch that it does not take. Runs are
those of the general rule (`ensue.process.net`), but there the join looks at all places before it, so few steps
are independent of each other and far more markings have to be visited.
"""

from __future__ import annotations

from ensue.process.diagram import Flow, Kind, Node, Scope

Pair = dict[Flow, Flow]
"""For each flow out of a split the last flow of its branch, which leads into the join."""


def inclusive_pairs(scope: Scope) -> dict[tuple[str, str], Pair]:
    """The pairs of a scope, by the ids of split and join."""
    gateways = [node for node in scope.nodes.values() if node.kind is Kind.INCLUSIVE]
    pairs = {(split.id, join.id): _branches(split, join, scope) for split in gateways for join in gateways}
    return {ids: pair for ids, pair in pairs.items() if pair is not None}


def _branches(split: Node, join: Node, scope: Scope) -> Pair | None:
    """The first and last flow of each branch, or None if these two are no pair."""
    pair: Pair = {}
    for flow in scope.out_of(split):
        last = _last_flow(flow, split, join, scope)
        if last is None or last in pair.values():
            return None
        pair[flow] = last
    return pair if len(pair) > 1 and set(pair.values()) == set(scope.into(join)) else None


def _last_flow(first: Flow, split: Node, join: Node, scope: Scope) -> Flow | None:
    """The only flow from a branch into the join, if nothing else leads into or out of the branch."""
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
