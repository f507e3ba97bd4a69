"""Where a selection policy makes sense (docs/semantics.md, section 7)."""

from __future__ import annotations

from collections.abc import Iterator

from ensue.errors import Problem
from ensue.nodes.names import Name
from ensue.nodes.operators import CONTEXTS, NEXT_MATCH, OPERATORS, STRICT, UNRESTRICTED
from ensue.nodes.patterns import (
    And,
    Event,
    Events,
    Named,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Related,
    Repeat,
    Seq,
    Within,
    children,
    walk,
)

PAIRING = ("FOLLOWS", "PRECEDES", "PRIOR", "RELATIVE", "SIMULTANEOUS", "CONCURRENT", "NOTFOLLOWS", "NOTPRECEDES")
"""The operators, besides SEQ, AND and OR, that a context chooses at; APERIODIC and UNLESS have a pair as well."""

CHOOSING = (*PAIRING, "APERIODIC", "UNLESS", "ANYONE", "BOTH")


def check_policy(query: PatternQuery) -> Iterator[Problem]:
    """Every operator at which the policy of a query means nothing, and policies that do not go together."""
    if query.policy in (NEXT_MATCH, STRICT):
        yield from _check_sequence(query.pattern, query)
    elif query.policy in CONTEXTS:
        yield from _check_context(query.pattern, query)
        yield from _check_windows(query)
        if query.consume:
            yield Problem(
                "policy-combination",
                f"MATCH {query.policy} and CONSUME do not go together: a context says itself what is used up",
                query.policy_span or query.span,
                hint="leave CONSUME out; CHRONICLE uses up both events of a pair",
            )


def chooses(query: PatternQuery) -> bool:
    """Whether a query reports fewer than all of its matches."""
    return bool(query.consume) or query.policy not in (None, UNRESTRICTED)


def _check_sequence(pattern: Pattern, query: PatternQuery) -> Iterator[Problem]:
    if isinstance(pattern, Event | Not):
        return
    if isinstance(pattern, Seq | Within | Named):
        for child in children(pattern):
            yield from _check_sequence(child, query)
        return
    yield Problem(
        "policy-operator",
        f"MATCH {query.policy} goes from event to event of a SEQ, and {operator_word(pattern)} is not one",
        pattern.span,
        hint="declare that part as a STREAM of its own, or leave the policy out",
    )


def _check_context(pattern: Pattern, query: PatternQuery) -> Iterator[Problem]:
    fits = isinstance(pattern, Event | Seq | And | Or | Not | Within | Named) or (
        isinstance(pattern, Operation) and pattern.operator in CHOOSING
    )
    if not fits:
        yield Problem(
            "policy-operator",
            f"MATCH {query.policy} chooses among pairs of events, and {operator_word(pattern)} makes none",
            pattern.span,
            hint="declare that part as a STREAM of its own, without the policy, and use its events here",
        )
    elif not isinstance(pattern, Not):
        for child in children(pattern):
            yield from _check_context(child, query)


def initiating_names(pattern: Pattern) -> tuple[Name, ...]:
    """Of a pattern of two events under CUMULATIVE, the variables of those that can be initiators: they are lists."""
    while isinstance(pattern, Within | Named):
        pattern = pattern.item
    forbidden = OPERATORS[pattern.operator].forbidden if isinstance(pattern, Operation) else ()
    names = [
        item.variable
        for place, item in enumerate(children(pattern))
        if isinstance(item, Event) and item.variable is not None and place not in forbidden
    ]
    either = isinstance(pattern, And) or (isinstance(pattern, Operation | Related) and pattern.operator == "CONCURRENT")
    return tuple(names if either else names[:1])


def _check_windows(query: PatternQuery) -> Iterator[Problem]:
    """A context makes streams of composite events, which have no positions."""
    parts = [node.window for node in walk(query.pattern) if isinstance(node, Within)]
    for window in (query.within, *parts):
        if isinstance(window, Events):
            yield Problem(
                "policy-window",
                f"MATCH {query.policy} takes windows in time, not in EVENTS",
                window.span or query.policy_span,
                hint="write a WITHIN in time",
            )


def operator_word(pattern: Pattern) -> str:
    """What the user calls the operator of a part."""
    match pattern:
        case Operation() | Related():
            return pattern.operator
        case Repeat():
            return "a repetition"
        case Pick():
            return "LAST" if pattern.latest else "FIRST"
        case _:
            return type(pattern).__name__.upper()
