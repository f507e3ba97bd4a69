"""Whether a changed query can go on from the events that its predecessor kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ensue.errors import counted
from ensue.graph.graphs import Variable
from ensue.nodes.expressions import Expr
from ensue.nodes.names import covers
from ensue.nodes.rewrite import substitute_fields
from ensue.plan.plans import QueryPlan, Retention


def missing_events(before: Sequence[QueryPlan], after: Sequence[QueryPlan]) -> list[str]:
    """What the queries `after` need and the queries `before` did not keep, in words; empty if nothing is missing.

    An event was kept if some variable of the same stream asked no more of it and kept it as long.
    """
    problems: list[str] = []
    kept = [role for plan in before for role in _roles(plan)]
    counted_before = any(plan.counting for plan in before)
    for plan in after:
        if plan.counting and not counted_before:
            problems.append("positions of events, which were not counted before")
        for variable, needed in _roles(plan):
            problem = _missing(variable, needed, kept)
            if problem:
                problems.append(problem)
    return list(dict.fromkeys(problems))


def _roles(plan: QueryPlan) -> Iterator[tuple[Variable, Retention]]:
    for number, graph_plan in enumerate(plan.graphs):
        for inner in graph_plan.with_inner():
            for variable in inner.graph.variables:
                yield variable, plan.retention[number, variable.name]


def _missing(variable: Variable, needed: Retention, kept: Sequence[tuple[Variable, Retention]]) -> str:
    words = str(variable.stream)
    of_stream = [role for role in kept if covers(role[0].stream, variable.stream)]
    if not of_stream:
        return f"events of `{words}`, of which none were kept"
    wanted = _demands(variable)
    as_wide = [role for role in of_stream if _demands(role[0]) <= wanted]
    if not as_wide:
        return f"events of `{words}` for `{variable.name}` that an earlier condition left out"
    if any(_covers(retention, needed) for _, retention in as_wide):
        return ""
    return f"events of `{words}` for `{variable.name}` for longer than they were kept ({_words(needed)})"


def _demands(variable: Variable) -> frozenset[Expr]:
    return frozenset(
        substitute_fields(predicate, lambda field: replace(field, variable=None)) for predicate in variable.predicates
    )


def _covers(kept: Retention, needed: Retention) -> bool:
    """Whether one keeps every event at least as long as the other: each of its limits has a lower one in the other."""
    return all(
        limit is None or (other is not None and other <= limit)
        for limit, other in (
            (kept.from_start, needed.from_start),
            (kept.from_end, needed.from_end),
            (kept.positions, needed.positions),
        )
    )


def _words(needed: Retention) -> str:
    limits = [limit for limit in (needed.from_start, needed.from_end) if limit is not None]
    if limits:
        return f"{counted(min(limits), 'tick', 'ticks')} are needed"
    return "they are needed without a limit" if needed.positions is None else f"{needed.positions} events are needed"
