"""The order in which the variables of a graph are joined, from the cardinalities of the data at hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ensue.graph.bounds import start_of
from ensue.graph.graphs import Graph
from ensue.nodes.names import Name

SMALL_SHARE = 1e-6
"""The share of candidates that an equality is taken to leave."""


def join_order(graph: Graph, counts: Mapping[Name, int], span: int, bound: Collection[Name] = ()) -> list[Name]:
    """The variables not yet bound: the rarest first, then always the one with the fewest expected partners."""
    known = list(bound)
    remaining = list(graph.names)
    order: list[Name] = []
    while remaining:
        following = min(remaining, key=lambda name: counts[name] * partner_share(graph, name, known, span))
        remaining.remove(following)
        known.append(following)
        order.append(following)
    return order


def partner_share(graph: Graph, name: Name, bound: Collection[Name], span: int) -> float:
    """The share of a variable's candidates expected to fit one choice of the bound variables."""
    share = 1.0
    for other in bound:
        after = graph.times.limit(start_of(name), start_of(other))
        before = graph.times.limit(start_of(other), start_of(name))
        if after is not None and before is not None:
            share = min(share, max(0, after.whole + before.whole + 1) / max(1, span))
        elif after is not None or before is not None:
            share = min(share, 0.5)
    joined = any(
        {equality.left.variable, equality.right.variable} <= {name, *bound}
        and name in (equality.left.variable, equality.right.variable)
        for equality in graph.equalities
    )
    return share * SMALL_SHARE if joined and bound else share


def precedence(graph: Graph) -> list[Name]:
    """The variables in an order that respects every certain `before`."""
    names = graph.names
    return sorted(names, key=lambda x: sum(graph.times.before(start_of(y), start_of(x)) for y in names))
