"""Laws of operators, lists and policies: they follow from the contract, and the oracle does not know them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import share
from inside import (
    CHRONICLE,
    CONTEXTS,
    CONTINUOUS,
    CUMULATIVE,
    NEXT_MATCH,
    RECENT,
    STRICT,
    And,
    Binary,
    Call,
    Event,
    Expr,
    Field,
    Literal,
    NamedPattern,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Repeat,
    Seq,
    Ticks,
    Window,
)
from oracle.oracle import OracleEvent, OracleMatch, matches
from oracle.tree import WHOLE, occurrences, part_at, scope_of
from strategies.histories import histories
from strategies.operators import Case, cases_with_operators
from strategies.policies import cases_with_contexts, cases_with_sequences

A, B, C = Event("A", "a"), Event("B", "b"), Event("C", "c")
D = Ticks(3)
SAME_X = Binary("=", Field("a", "x"), Field("b", "x"))
Essence = Counter[tuple[object, ...]]

lawful = share(0.5)
small = histories(intervals=True, streams=("A", "B", "C"), least_sizes=(5, 7), most=8)
conditions = st.sampled_from((None, SAME_X, Binary("<=", Field("a", "y"), Field("b", "x"))))


def essence(found: list[OracleMatch]) -> Essence:
    """What does not depend on where things are written."""
    return Counter(
        (tuple(pair for pair in match.bindings if isinstance(pair[0], str)), match.start, match.end, match.completion)
        for match in found
    )


def of(
    pattern: Pattern,
    history: list[OracleEvent],
    where: Expr | None = None,
    within: Window | None = None,
    **policy: object,
) -> Essence:
    return essence(matches(PatternQuery(pattern, where=where, within=within, **policy), history))


def operation(name: str, *items: Pattern, window: Window | None = None, count: int | None = None) -> Operation:
    return Operation(name, items, window, count)


@lawful
@given(small, conditions)
def test_operators_that_are_other_words(history: list[OracleEvent], where: Expr | None) -> None:
    equal = [
        (operation("PRECEDES", A, B, window=D), operation("FOLLOWS", B, A, window=D)),
        (operation("ANYONE", A, B), Or((A, B))),
        (operation("RELATIVE", A, B), Seq((A, B))),
        (operation("ANY", A, B, count=2), And((A, B))),
        (operation("ANY", A, B, count=1), Or((A, B))),
        (operation("ANY", A, B, C, count=2), Or((And((A, B)), And((A, C)), And((B, C))))),
        (operation("SIMULTANEOUS", A, B), operation("SIMULTANEOUS", B, A)),
        (operation("CONCURRENT", A, B), operation("CONCURRENT", B, A)),
    ]
    for pattern, other in equal:
        assert of(pattern, history, where) == of(other, history, where), pattern.operator


@lawful
@given(small, conditions)
def test_both_is_follows_either_way(history: list[OracleEvent], where: Expr | None) -> None:
    both = of(operation("BOTH", A, B, window=D), history, where)
    first = of(operation("FOLLOWS", A, B, window=D), history, where)
    second = of(operation("FOLLOWS", B, A, window=D), history, where)
    assert both == first + second


@lawful
@given(small, conditions)
def test_pairs_are_follows_or_its_reverse_or_simultaneous(history: list[OracleEvent], where: Expr | None) -> None:
    """x.e < y.e, y.e < x.e or x.e = y.e: three ways of AND."""
    ways = [operation("PRIOR", A, B), operation("PRIOR", B, A), operation("SIMULTANEOUS", A, B)]
    assert sum((of(way, history, where) for way in ways), Counter()) == of(And((A, B)), history, where)


@lawful
@given(small, conditions)
def test_sequence_within_is_prior_and_follows_shrinks_with_its_window(
    history: list[OracleEvent], where: Expr | None
) -> None:
    assert of(Seq((A, B)), history, where) <= of(operation("PRIOR", A, B), history, where)
    nearer = of(operation("FOLLOWS", A, B, window=Ticks(2)), history, where)
    assert nearer <= of(operation("FOLLOWS", A, B, window=D), history, where)
    assert of(operation("FOLLOWS", A, B, window=Ticks(1000)), history, where) == of(
        operation("PRIOR", A, B), history, where
    )


@lawful
@given(small)
def test_an_event_is_followed_or_not(history: list[OracleEvent]) -> None:
    """Every A has a B that follows it, or is a match of NOTFOLLOWS; the same for NOTPRECEDES."""
    every = {event.id for event in history if event.stream == "A"}
    for positive, negative in (("FOLLOWS", "NOTFOLLOWS"), ("PRECEDES", "NOTPRECEDES")):
        followed = bound_to_a(operation(positive, A, B, window=D), history)
        alone = bound_to_a(operation(negative, A, B, window=D), history)
        assert followed | alone == every
        assert not followed & alone


def bound_to_a(pattern: Pattern, history: list[OracleEvent]) -> set[int]:
    return {dict(match.bindings)["a"] for match in matches(PatternQuery(pattern), history)}


@lawful
@given(small, conditions)
def test_unless_is_the_first_closing_with_nothing_between(history: list[OracleEvent], where: Expr | None) -> None:
    """Without a y in the data it is SEQ with FIRST; else those of them that have no y between."""
    first = Seq((A, Pick(B, False)))
    without = [event for event in history if event.stream != "C"]
    unless = operation("UNLESS", C, A, B)
    assert of(unless, without, where) == of(first, without, where)
    assert of(unless, history, where) == of(first, history, where) & of(Seq((A, Not(C), B)), history, where)


@lawful
@given(small)
def test_aperiodic_lists_agree_with_aperiodic(history: list[OracleEvent]) -> None:
    """APERIODIC* closes where UNLESS without a y does, and lists what COLLECT between the two lists."""
    listed = of(operation("APERIODIC*", A, C, B), history)
    nothing = operation("UNLESS", Event("X", "c"), A, B)
    assert Counter({without_list(key): count for key, count in listed.items()}) == of(nothing, history)
    collected = of(Seq((A, Repeat(C, 0, None, every=True), B)), history)
    assert listed <= collected


def without_list(key: tuple[object, ...]) -> tuple[object, ...]:
    bindings, *rest = key
    return (tuple(pair for pair in bindings if pair[0] != "c"), *rest)


# Repetition


@lawful
@given(small, st.integers(1, 3))
def test_repetition_is_a_sequence_of_copies(history: list[OracleEvent], count: int) -> None:
    repeated = of(Repeat(A, count, count), history)
    copies = of(Seq(tuple(Event("A", f"a{number}") for number in range(count))), history)
    as_lists = Counter(
        {
            ((("a", tuple(event for _, event in bindings)),), *rest): number
            for (bindings, *rest), number in copies.items()
        }
    )
    assert repeated == as_lists


@lawful
@given(small)
def test_a_chain_is_a_collection_with_the_event_after_it(history: list[OracleEvent]) -> None:
    """RELATIVE+ has one match for each event, and lists it with everything that COLLECT lists before it."""
    collected = of(Seq((Repeat(A, 0, None, every=True), Event("A", "last"))), history, within=D)
    chains: Essence = Counter()
    for (bindings, *rest), number in collected.items():
        bound = dict(bindings)
        chains[((("a", (*bound["a"], bound["last"])),), *rest)] += number
    assert of(operation("RELATIVE+", A), history, within=D) == chains


@lawful
@given(small)
def test_periodic_lists_are_pairs_that_are_a_period_apart(history: list[OracleEvent]) -> None:
    """PERIODIC* is SEQ where the closing ends at least a period after the opening."""
    late = Binary(">=", Binary("-", Field("b", "e"), Field("a", "e")), Literal(3))
    assert of(operation("PERIODIC*", A, B, window=D), history) == of(Seq((A, B)), history, late)


@lawful
@given(small)
def test_except_is_a_difference(history: list[OracleEvent]) -> None:
    """Each event either ends a match of a pattern, or is one of those except its ends."""
    pairs = Seq((Event("A", "first"), B))
    kept = {key[0] for key in of(operation("EXCEPT", Event("B", "own"), pairs), history)}
    ends = {(("own", dict(key[0])["b"]),) for key in of(pairs, history)}
    assert kept.isdisjoint(ends)
    assert kept | ends == {key[0] for key in of(Event("B", "own"), history)}
    assert not of(operation("EXCEPT", pairs, Seq((Event("A", "other"), Event("B", "again")))), history)


@lawful
@given(small)
def test_repetitions_add_up(history: list[OracleEvent]) -> None:
    by_count = [of(Repeat(A, count, count), history) for count in (1, 2)]
    assert of(Repeat(A, 1, 2), history) == by_count[0] + by_count[1]
    every = of(Seq((A, Repeat(C, 0, None, every=True), B)), history)
    some = of(Seq((A, Repeat(C, 1, None, every=True), B)), history)
    none = of(Seq((A, Repeat(C, 0, 0, every=True), B)), history)
    assert every == some + none
    assert {without_list(key) for key in none} == {*of(Seq((A, Not(C), B)), history)}


@lawful
@given(small)
def test_an_aggregate_counts_what_is_listed(history: list[OracleEvent]) -> None:
    pattern = Seq((A, Repeat(C, 0, None, every=True), B))
    for limit in range(3):
        counted = Binary("<=", Call("count", (Field(None, "c"),)), Literal(limit))
        assert of(pattern, history, counted) == of(Seq((A, Repeat(C, 0, limit, every=True), B)), history)


# Policies


@lawful
@given(small, conditions)
def test_contexts_of_a_sequence_of_two(history: list[OracleEvent], where: Expr | None) -> None:
    """CONTINUOUS: for each initiator a first terminator. RECENT: for each terminator a last initiator."""
    pattern = Seq((A, B))
    everything = of(pattern, history, where)
    continuous = of(pattern, history, where, policy=CONTINUOUS)
    first = of(Seq((A, Pick(B, False))), history, where)
    assert continuous <= first <= everything
    assert initiators(continuous) == initiators(first)
    assert len(initiators(continuous)) == sum(continuous.values())
    recent = of(pattern, history, where, policy=RECENT)
    last = of(Seq((Pick(A, True), B)), history, where)
    assert recent <= last
    assert {dict(key[0])["b"] for key in recent} == {dict(key[0])["b"] for key in last}
    chronicle = of(pattern, history, where, policy=CHRONICLE)
    assert chronicle <= everything
    used = [event for key in chronicle.elements() for _, event in key[0]]
    assert len(set(used)) == len(used)


def initiators(found: Essence) -> set[int]:
    return {dict(key[0])["a"] for key in found}


@lawful
@given(small, conditions)
def test_cumulative_gathers_what_continuous_tells_apart(history: list[OracleEvent], where: Expr | None) -> None:
    single = matches(PatternQuery(Seq((A, B)), where=where, policy=CONTINUOUS), history)
    gathered = matches(PatternQuery(Seq((A, B)), where=where, policy=CUMULATIVE), history)
    pairs = {(a, dict(match.bindings)["b"]) for match in gathered for a in dict(match.bindings)["a"]}
    assert pairs == {(dict(match.bindings)["a"], dict(match.bindings)["b"]) for match in single}


@pytest.mark.parametrize("policy", CONTEXTS)
@lawful
@given(data=st.data())
def test_what_a_context_chooses_is_a_match(policy: str, data: st.DataObject) -> None:
    """Of every pair of events that it binds, unless it binds lists. (UNLESS: a first one of those that were chosen.)"""
    query, history = data.draw(cases_with_contexts(intervals=True, policies=(policy,)))
    if policy == CUMULATIVE or "UNLESS" in repr(query.pattern):
        return
    assert essence(matches(query, history)) <= essence(matches(replace(query, policy=None), history))


@lawful
@given(cases_with_sequences(intervals=True))
def test_next_and_strict_choose_among_all_matches(case: Case) -> None:
    query, history = case
    plain = replace(query, policy=None, consume=None)
    everything = essence(matches(plain, history))
    following = essence(matches(replace(plain, policy=NEXT_MATCH), history))
    strictly = essence(matches(replace(plain, policy=STRICT), history))
    assert following <= everything
    assert strictly <= everything
    first = next(
        name
        for name, path in occurrences(query.pattern)
        if isinstance(part_at(query.pattern, path), Event) and scope_of(query.pattern, path) == WHOLE
    )
    begun = Counter(dict(match.bindings)[first] for match in matches(replace(plain, policy=NEXT_MATCH), history))
    assert all(count == 1 for count in begun.values())


@lawful
@given(cases_with_operators(intervals=True))
def test_consumption_uses_every_event_once_and_leaves_nothing_over(case: Case) -> None:
    query, history = case
    everything = matches(query, history)
    kept = matches(replace(query, consume=True), history)
    assert essence(kept) <= essence(everything)
    used = [event for match in kept for _, event in match.bindings]
    assert len(set(used)) == len(used)
    for match in everything:
        assert match in kept or {event for _, event in match.bindings} & {*used}


@lawful
@given(cases_with_operators())
def test_names_of_parts_change_nothing(case: Case) -> None:
    query, history = case
    named = replace(query, pattern=NamedPattern(query.pattern, "whole"))
    assert essence(matches(named, history)) == essence(matches(query, history))
