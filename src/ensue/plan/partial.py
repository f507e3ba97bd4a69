"""Partial matches as queries: the first items of a sequence have come, and the next one has not. Also checks
`emit="eager"`.

The partial matches of `SEQ(x, y, z) WITHIN w` that time out are the matches of `SEQ(x, NOT y) WITHIN w` and of `SEQ(x,
y, NOT z) WITHIN w`. So they need no separate engine, and a condition on the missing item stays valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice, pairwise

from ensue.analysis.scopes import chooses, counts_events, is_aside, list_groups, reaches_of, whole_windows
from ensue.check.fields import list_names
from ensue.check.query import check_query
from ensue.errors import Problem
from ensue.lower.operators import expand_pattern
from ensue.nodes import patterns
from ensue.nodes.constraints import ConstraintStatement, Ends, EndsWithin
from ensue.nodes.expressions import Binary, Expr, conjuncts, variables_of
from ensue.nodes.names import Name


@dataclass(frozen=True, slots=True)
class Partial:
    """The first items of a query's sequence, without the next item `missing`."""

    query: patterns.PatternQuery
    missing: patterns.Pattern


def partial_queries(query: patterns.PatternQuery) -> tuple[Partial, ...]:
    """The partial matches of a query, fewest items first; none if the pattern is not a sequence of several items."""
    sequence = _sequence(query.pattern)
    return tuple(
        _partial(query, sequence[: last + 1], sequence[last + 1 : following + 1])
        for last, following in _neighbours(sequence)
    )


def open_queries(query: patterns.PatternQuery) -> tuple[Partial, ...]:
    """The partial matches that can still be extended: like `partial_queries`, but no forbidden event has come.

    Partial matches that cannot be written as a query are left out.
    """
    sequence = _sequence(query.pattern)
    found: list[Partial] = []
    for partial, (_, following) in zip(partial_queries(query), _neighbours(sequence), strict=True):
        apart = (*sequence[:following], patterns.Not(partial.missing, partial.missing.span))
        strict = replace(partial.query, pattern=_with_sequence(query.pattern, apart))
        ways = (replace(partial, query=own) for own in (strict, partial.query) if not check_query(own))
        found += islice(ways, 1)
    return tuple(found)


def _neighbours(sequence: tuple[patterns.Pattern, ...]) -> list[tuple[int, int]]:
    """The place of each positive item of a sequence except the last, and of the positive item after it."""
    return list(pairwise(place for place, item in enumerate(sequence) if not is_aside(item)))


def partial_problems(query: patterns.PatternQuery) -> list[Problem]:
    """The reasons why partial matches of a query cannot be reported."""
    if len(partial_queries(query)) == 0:
        return [
            Problem(
                "partial-form",
                "partial matches require a SEQ of at least two items",
                query.pattern.span,
                hint="request timed-out partial matches only for patterns that are a SEQ",
            )
        ]
    if query.consume or query.policy in patterns.CONTEXTS:
        return [
            Problem(
                "partial-form",
                "partial matches are not supported with CONSUME or a policy that uses up events",
                query.policy_span or query.span,
                hint="do not request partial matches, or remove the policy",
            )
        ]
    if query.suppress is not None:
        return [
            Problem(
                "partial-form",
                "partial matches are not supported with SUPPRESS",
                query.suppress.span or query.span,
                hint="do not request partial matches, or remove SUPPRESS",
            )
        ]
    if not whole_windows(query):
        return [
            Problem(
                "partial-window",
                "partial matches of this pattern never time out, because it has no WITHIN",
                query.pattern.span,
                hint="add a WITHIN to the whole pattern",
            )
        ]
    refused = [problem for partial in partial_queries(query) for problem in check_query(partial.query)]
    return [
        Problem(
            "partial-form",
            f"a prefix of this pattern is not itself a valid pattern: {problem.message}",
            query.pattern.span,
            hint="do not request partial matches, or change the pattern so that each prefix is valid",
        )
        for problem in refused[:1]
    ]


def eager_problems(query: patterns.PatternQuery) -> list[Problem]:
    """The reasons why matches of a query cannot be reported before the watermark reaches them."""
    expanded = expand_pattern(query.pattern)
    problems = [
        Problem(
            "eager-not",
            "NOT can be decided only at the watermark",
            node.span,
            hint='remove `emit="eager"` or the NOT',
        )
        for node in patterns.walk(expanded)
        if isinstance(node, patterns.Not)
    ]
    problems += _undone_by_later_events(query, expanded)
    if query.suppress is not None:
        problems.append(
            Problem(
                "eager-later",
                "the matches that SUPPRESS reports can be decided only at the watermark",
                query.suppress.span or query.span,
                hint='remove `emit="eager"`, or SUPPRESS',
            )
        )
    if query.rule is not None:
        problems.append(
            Problem(
                "eager-rule",
                "the events of a rule are complete only at the watermark",
                query.span or query.rule.span,
                hint='remove `emit="eager"`, or write the rule as a STREAM',
            )
        )
    if not problems and counts_events(query):
        problems.append(
            Problem(
                "eager-events",
                "the positions of events are known only at the watermark",
                query.pattern.span,
                hint='remove `emit="eager"`, or use a WITHIN in time',
            )
        )
    return problems


def _undone_by_later_events(query: patterns.PatternQuery, expanded: patterns.Pattern) -> Iterator[Problem]:
    """The parts of a pattern, besides NOT, that a later event could change."""
    reasons: list[tuple[str, patterns.Pattern]] = []
    for node in patterns.walk(expanded):
        match node:
            case patterns.Repeat(every=True):
                reasons.append(("the elements of a collection", node))
            case patterns.Pick(latest=latest):
                reasons.append((f"the choice of {'LAST' if latest else 'FIRST'}", node))
            case patterns.RelatedItems(rival=int()):
                reasons.append((f"the first closing event of {node.operator}", node))
            case patterns.RelatedItems(timers=timers) if timers:
                reasons.append((f"a timer of {node.operator}", node))
    if chooses(query):
        reasons.append(("the matches that the policy chooses", query.pattern))
    for what, node in reasons:
        yield Problem(
            "eager-later", f"{what} can be decided only at the watermark", node.span, hint='remove `emit="eager"`'
        )


def eager_constraint_problems(constraints: Iterable[ConstraintStatement]) -> list[Problem]:
    """The reasons why matches cannot be reported before the watermark if traces end."""
    return [
        Problem(
            "eager-ends",
            "the end of a trace can be decided only at the watermark",
            entry.span,
            hint='remove `emit="eager"` or this constraint',
        )
        for entry in constraints
        if isinstance(entry.constraint, Ends | EndsWithin)
    ]


def _sequence(pattern: patterns.Pattern) -> tuple[patterns.Pattern, ...]:
    """The items of the SEQ that the pattern consists of, inside any WITHIN and AS."""
    while isinstance(pattern, patterns.Within | patterns.NamedPattern):
        pattern = pattern.item
    return pattern.items if isinstance(pattern, patterns.Seq) else ()


def _with_sequence(pattern: patterns.Pattern, items: tuple[patterns.Pattern, ...]) -> patterns.Pattern:
    if isinstance(pattern, patterns.Within | patterns.NamedPattern):
        return replace(pattern, item=_with_sequence(pattern.item, items))
    return patterns.Seq(items, pattern.span)


def _partial(
    query: patterns.PatternQuery, present: tuple[patterns.Pattern, ...], following: tuple[patterns.Pattern, ...]
) -> Partial:
    names = frozenset(_names([*present, *following]))
    present, following = (tuple(_within_reach(item, names) for item in items) for items in (present, following))
    missing = following[-1].item if isinstance(following[-1], patterns.Pick) else following[-1]
    is_alone = len(following) == 1 and not reaches_of(missing)
    # Inside of a SEQ, a reach limits the missing item and leaves it to the window to close the scope.
    forbidden = missing if is_alone else patterns.Seq((*following[:-1], missing), missing.span)
    groups = list_groups(expand_pattern(query.pattern))
    kept = [part for part in conjuncts(query.where) if variables_of(part) | list_names(part, groups) <= names]
    return Partial(
        replace(
            query,
            pattern=_with_sequence(query.pattern, (*present, patterns.Not(forbidden, missing.span))),
            where=reduce(_conjunction, kept) if kept else None,
            returns=(),
        ),
        missing,
    )


def _within_reach(pattern: patterns.Pattern, names: frozenset[Name]) -> patterns.Pattern:
    """The part without reaches around other events than these."""

    def kept(part: patterns.Pattern) -> patterns.Pattern:
        match part:
            case patterns.Within(reach=patterns.Reach(anchor=anchor)) if anchor not in names:
                return part.item
        return part

    return patterns.rewrite(pattern, kept)


def _conjunction(left: Expr, right: Expr) -> Expr:
    return Binary("and", left, right)


def _names(items: Iterable[patterns.Pattern]) -> Iterator[Name]:
    """Every variable and AS name in these items."""
    for item in items:
        for node in patterns.walk(item):
            if isinstance(node, patterns.Event) and node.variable is not None:
                yield node.variable
            elif isinstance(node, patterns.NamedPattern):
                yield node.name
