"""Hypothesis strategies for queries with a selection policy: the contexts, MATCH NEXT, MATCH STRICT, and CONSUME."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from inside import (
    CONTEXTS,
    CUMULATIVE,
    NEXT_MATCH,
    STRICT,
    And,
    Event,
    Events,
    NamedPattern,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Seq,
    Ticks,
    Within,
)
from oracle.tree import WHOLE, conjuncts_of, homes, names_in, scope_of, walk
from oracle.wellformed import problems
from strategies.histories import FEW_TIMES
from strategies.operators import (
    Case,
    cases_of,
    duration_of,
    forbidden_of,
    queries_with_lists,
    queries_with_operators,
    queries_with_picks,
    query_of,
)
from strategies.patterns import PART_WINDOWS, Draft, event_of, split

BINARY = ("FOLLOWS", "PRECEDES", "PRIOR", "RELATIVE", "SIMULTANEOUS", "CONCURRENT", "APERIODIC", "UNLESS")
PAIRING = ("SEQ", "SEQ", "SEQ", "AND", "AND", "OR", *BINARY, "NOTFOLLOWS", "NOTPRECEDES")


@st.composite
def queries_with_contexts(
    draw: st.DrawFn, policies: tuple[str, ...] = CONTEXTS, sizes: tuple[int, ...] = (2, 2, 3)
) -> PatternQuery:
    """MATCH RECENT, CHRONICLE, CONTINUOUS or CUMULATIVE on the operators that take part, with windows of time."""
    policy = draw(st.sampled_from(policies))
    draft = Draft(draw, 2, wanted=draw(st.sampled_from(PAIRING)))
    pattern = _paired(draft, draw(st.sampled_from(sizes)), 3)
    if draft.chance(25):
        pattern = _with_edge(draft, pattern)
    query = replace(query_of(draw, pattern, reaches=False), policy=policy, allows_ties=False)
    if isinstance(query.within, Events):
        query = replace(query, within=Ticks(query.within.count))
    assume(not problems(query))
    assume(not any(isinstance(part, Within) and isinstance(part.window, Events) for _, part in walk(query.pattern)))
    if policy == CUMULATIVE:
        assume(not _relates_forbidden_events(query))
        assume(not any(isinstance(part, NamedPattern) and path != WHOLE for path, part in walk(query.pattern)))
        assume(_streams_differ(query.pattern))
    return query


@st.composite
def queries_with_sequences(draw: st.DrawFn) -> PatternQuery:
    """MATCH NEXT and MATCH STRICT on SEQs of events and NOTs, with or without CONSUME."""
    draft = Draft(draw, draw(st.sampled_from((0, 0, 1, 2))))
    pattern = _sequence(draft, draw(st.sampled_from((2, 2, 3))), 2)
    query = query_of(draw, pattern)
    chosen = replace(
        query,
        policy=draw(st.sampled_from((NEXT_MATCH, NEXT_MATCH, STRICT))),
        consume=draw(st.sampled_from((None, True))),
    )
    assume(not problems(chosen))
    return chosen


@st.composite
def queries_with_consumption(draw: st.DrawFn) -> PatternQuery:
    """CONSUME on everything else."""
    queries = draw(st.sampled_from((queries_with_operators, queries_with_lists, queries_with_picks)))
    return replace(draw(queries()), consume=True)


def queries_with_policies() -> st.SearchStrategy[PatternQuery]:
    return st.one_of(queries_with_contexts(), queries_with_sequences(), queries_with_consumption())


def cases_with_contexts(*, intervals: bool = False, policies: tuple[str, ...] = CONTEXTS) -> st.SearchStrategy[Case]:
    return cases_of(queries_with_contexts(policies), intervals)


def cases_with_composites(*, intervals: bool = False, policies: tuple[str, ...] = CONTEXTS) -> st.SearchStrategy[Case]:
    """Contexts whose operands are composites, over events most of which tie."""
    return cases_of(queries_with_contexts(policies, (3, 3, 4)), intervals, FEW_TIMES)


def cases_with_sequences(*, intervals: bool = False) -> st.SearchStrategy[Case]:
    return cases_of(queries_with_sequences(), intervals)


def cases_with_consumption(*, intervals: bool = False) -> st.SearchStrategy[Case]:
    return cases_of(queries_with_consumption(), intervals)


def cases_with_policies(*, intervals: bool = False) -> st.SearchStrategy[Case]:
    return cases_of(queries_with_policies(), intervals)


# Contexts


def _paired(draft: Draft, events: int, depth: int) -> Pattern:
    """A part with so many events, made of operators that take part in contexts."""
    operator = draft.wanted or draft.choose(PAIRING)
    draft.wanted = None
    if operator in ("NOTFOLLOWS", "NOTPRECEDES"):
        inner = _paired(draft, events, depth - 1) if depth > 1 and draft.chance(30) else _fresh_event(draft)
        return Operation(operator, (inner, forbidden_of(draft, 1)), duration_of(draft))
    if events == 1 or depth == 0:
        return _fresh_event(draft)
    items = [_paired_item(draft, size, depth) for size in split(draft, events, 2 if operator in BINARY else events)]
    match operator:
        case "SEQ":
            if draft.chance(30):
                items.insert(1, Not(forbidden_of(draft, 1)))
            return _perhaps_within(draft, Seq(tuple(items)))
        case "AND":
            return _perhaps_within(draft, And(tuple(items)))
        case "OR":
            return _perhaps_within(draft, Or(tuple(items)))
        case "APERIODIC":
            return _perhaps_within(draft, Operation(operator, (*items, forbidden_of(draft, 1))))
        case "UNLESS":
            return _perhaps_within(draft, Operation(operator, (forbidden_of(draft, 1), *items)))
    window = duration_of(draft) if operator in ("FOLLOWS", "PRECEDES") else None
    return _perhaps_within(draft, Operation(operator, tuple(items), window))


def _paired_item(draft: Draft, size: int, depth: int) -> Pattern:
    if size == 1 and not draft.chance(20):
        return _perhaps_within(draft, _fresh_event(draft)) if draft.chance(30) else _fresh_event(draft)
    return _paired(draft, size, depth - 1)


def _fresh_event(draft: Draft) -> Pattern:
    """An event whose variable stands nowhere else."""
    outside, draft.variables = draft.variables, {}
    event = event_of(draft)
    draft.variables = outside
    return event


def _perhaps_within(draft: Draft, part: Pattern) -> Pattern:
    kind = draft.choose(("", "", "", "", "WITHIN", "AS"))
    if kind == "AS":
        return NamedPattern(part, draft.new_name("p"))
    return Within(part, draft.draw(PART_WINDOWS)) if kind == "WITHIN" else part


def _with_edge(draft: Draft, pattern: Pattern) -> Pattern:
    """A NOT before or behind everything."""
    negation = Not(forbidden_of(draft, 1))
    items = pattern.items if isinstance(pattern, Seq) else (pattern,)
    return Seq((negation, *items) if draft.chance(50) else (*items, negation))


def _relates_forbidden_events(query: PatternQuery) -> bool:
    """Whether a condition of a NOT names something outside of it, which CUMULATIVE may make a list."""
    home = homes(query.pattern)
    return any(len({home[name] == WHOLE for name in names_in(conjunct)}) > 1 for conjunct in conjuncts_of(query.where))


def _streams_differ(pattern: Pattern) -> bool:
    """Operands that overlap cannot be gathered from one stream."""
    leaves = [part for path, part in walk(pattern) if isinstance(part, Event) and scope_of(pattern, path) == WHOLE]
    return len({leaf.stream for leaf in leaves}) == len(leaves)


# Sequences


def _sequence(draft: Draft, events: int, depth: int) -> Pattern:
    """A SEQ of events, with NOTs and with SEQs inside."""
    items: list[Pattern] = []
    left = events
    while left:
        size = min(left, 2) if depth > 1 and events > 2 and draft.chance(25) else 1
        items.append(_sequence(draft, size, depth - 1) if size > 1 else _fresh_event(draft))
        left -= size
    while draft.negated_left:
        items.insert(draft.draw(st.integers(0, len(items))), Not(forbidden_of(draft, 2)))
    return _perhaps_within(draft, Seq(tuple(items)))
