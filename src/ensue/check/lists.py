"""Conditions over repeated variables: what a conjunct of WHERE says about a list, and in which scope it is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ensue.analysis.policies import initiating_names
from ensue.analysis.scopes import Scope, list_groups
from ensue.errors import Problem
from ensue.expr.lists import (
    aggregated_variables,
    check_successive,
    explicit_lists,
    has_prev,
    is_aggregate,
    list_variables,
    without_prev,
)
from ensue.lower.operators import expand_pattern
from ensue.nodes.expressions import Expr, Literal
from ensue.nodes.names import Name, in_order
from ensue.nodes.operators import CUMULATIVE
from ensue.nodes.patterns import PatternQuery, Repeat
from ensue.nodes.rewrite import rewrite


def is_about_list(conjunct: Expr, groups: Mapping[Name, Name]) -> bool:
    """Whether a conjunct is about a list as a whole, by an aggregate or PREV, and not about each element."""
    return bool(aggregated_variables(conjunct, groups)) or has_prev(conjunct)


def check_lists(conjunct: Expr, groups: Mapping[Name, Name]) -> Iterator[Problem]:
    """What is wrong with the lists of a conjunct."""
    problems: list[Problem] = []
    if has_prev(conjunct):
        check_successive(conjunct, groups, problems)
    elif aggregated_variables(conjunct, groups):
        explicit_lists(conjunct, groups, problems)
        problems += _beside_aggregates(conjunct, groups)
    else:
        problems += _several_lists(conjunct, groups)
    yield from problems


def _beside_aggregates(conjunct: Expr, groups: Mapping[Name, Name]) -> Iterator[Problem]:
    """A list beside an aggregate is neither one value nor one element."""
    outside = rewrite(conjunct, lambda part: Literal(None) if is_aggregate(part) else None)
    for name in in_order(list_variables(outside, groups)):
        yield Problem(
            "list-and-aggregate",
            f"the condition speaks of each element of `{name}` and of a list as a whole",
            conjunct.span,
            hint="write two conditions, joined by AND, or aggregate both",
        )


def _several_lists(conjunct: Expr, groups: Mapping[Name, Name]) -> Iterator[Problem]:
    names = in_order(list_variables(conjunct, groups))
    if len({groups[name] for name in names}) > 1:
        yield Problem(
            "two-lists",
            f"the condition relates elements of two lists: {', '.join(f'`{name}`' for name in names)}",
            conjunct.span,
            hint="elements of two repetitions do not go together one by one; compare aggregates of them",
        )


def typed_form(conjunct: Expr, groups: Mapping[Name, Name]) -> Expr:
    """The conjunct as it is checked for types."""
    if has_prev(conjunct):
        return without_prev(conjunct)
    return explicit_lists(conjunct, groups, []) if aggregated_variables(conjunct, groups) else conjunct


def list_names(conjunct: Expr, groups: Mapping[Name, Name]) -> frozenset[Name]:
    """The repeated variables that a conjunct about lists ranges over."""
    if not groups:
        return frozenset()
    return list_variables(conjunct, groups) if has_prev(conjunct) else aggregated_variables(conjunct, groups)


def lists_of_result(query: PatternQuery) -> dict[Name, Name]:
    """The variables that are lists in the result: those of repetitions, and those that CUMULATIVE collects."""
    groups = list_groups(expand_pattern(query.pattern))
    if query.policy == CUMULATIVE:
        groups |= {name: name for name in initiating_names(query.pattern)}
    return groups


def around_list(scope: Scope) -> Scope:
    """The scope in which a list is, for the scope of its elements."""
    return scope.parent if isinstance(scope.aside, Repeat) and scope.parent is not None else scope
