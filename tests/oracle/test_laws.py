"""Laws that follow from the contract, checked on drawn queries: the oracle must obey them without knowing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given

from draws import share
from inside import And, Event, NamedPattern, Not, Or, Pattern, PatternQuery, Seq, Within
from oracle.oracle import OracleEvent, OracleMatch, matches
from oracle.tree import occurrences
from strategies.patterns import cases

Case = tuple[PatternQuery, list[OracleEvent]]


def everywhere(pattern: Pattern, law: Callable[[Pattern], Pattern]) -> Pattern:
    """The law applied to every part, innermost first."""
    match pattern:
        case Event():
            return law(pattern)
        case Seq() | And() | Or():
            return law(replace(pattern, items=tuple(everywhere(item, law) for item in pattern.items)))
        case Not() | Within() | NamedPattern():
            return law(replace(pattern, item=everywhere(pattern.item, law)))


def essence(found: list[OracleMatch]) -> Counter[tuple[object, ...]]:
    """What does not depend on where things are written: not the branches, nor the names of anonymous variables."""
    return Counter(
        (tuple(pair for pair in match.bindings if isinstance(pair[0], str)), match.start, match.end, match.completion)
        for match in found
    )


def check(case: Case, law: Callable[[Pattern], Pattern]) -> None:
    query, history = case
    changed = replace(query, pattern=everywhere(query.pattern, law))
    assert essence(matches(changed, history)) == essence(matches(query, history))


def flatten_seq(pattern: Pattern) -> Pattern:
    """SEQ(a, SEQ(b, NOT c), d) = SEQ(a, b, NOT c, d)."""
    if not isinstance(pattern, Seq):
        return pattern
    return Seq(tuple(inner for item in pattern.items for inner in (item.items if isinstance(item, Seq) else (item,))))


def flatten_and(pattern: Pattern) -> Pattern:
    """AND(a, AND(b, NOT c)) = AND(a, b, NOT c)."""
    if not isinstance(pattern, And):
        return pattern
    return And(tuple(inner for item in pattern.items for inner in (item.items if isinstance(item, And) else (item,))))


def reverse_and_or(pattern: Pattern) -> Pattern:
    """AND(a, b) = AND(b, a), OR(a, b) = OR(b, a)."""
    return replace(pattern, items=pattern.items[::-1]) if isinstance(pattern, And | Or) else pattern


def nest_seq(pattern: Pattern) -> Pattern:
    """SEQ(a, b, c) = SEQ(SEQ(a, b), c), if a or b is positive, and c."""
    if not isinstance(pattern, Seq) or isinstance(pattern.items[-1], Not):
        return pattern
    if all(isinstance(item, Not) for item in pattern.items[:-1]):
        return pattern
    return Seq((Seq(pattern.items[:-1]), pattern.items[-1]))


def split_negated_or(pattern: Pattern) -> Pattern:
    """NOT OR(a, b) = NOT a, NOT b, if the branches share no variable."""
    if not isinstance(pattern, Seq | And):
        return pattern
    items: list[Pattern] = []
    for item in pattern.items:
        if isinstance(item, Not) and isinstance(item.item, Or) and _names_are_written_once(item.item):
            items.extend(Not(branch) for branch in item.item.items)
        else:
            items.append(item)
    return replace(pattern, items=tuple(items))


def _names_are_written_once(pattern: Pattern) -> bool:
    names = [name for name, _ in occurrences(pattern)]
    return len(set(names)) == len(names)


lawful = share(1.5)


@lawful
@given(cases(intervals=True))
def test_nested_seq_is_flat(case: Case) -> None:
    check(case, flatten_seq)
    check(case, nest_seq)


@lawful
@given(cases(intervals=True))
def test_nested_and_is_flat(case: Case) -> None:
    check(case, flatten_and)


@lawful
@given(cases(intervals=True))
def test_and_and_or_do_not_depend_on_the_order_of_items(case: Case) -> None:
    check(case, reverse_and_or)


@lawful
@given(cases(intervals=True))
def test_negated_or_is_a_negation_of_each_branch(case: Case) -> None:
    check(case, split_negated_or)
