"""Near misses against the oracle: the matches of the query without a requirement that are none of the query itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

from hypothesis import given

from ensue import QueryError
from harness import input_of
from inside import (
    Binary,
    Event,
    MatchChunk,
    Not,
    Pattern,
    PatternQuery,
    Question,
    Repeat,
    Requirement,
    Search,
    Seq,
    Within,
    catalog_of,
    conjuncts,
    in_order,
    load_sources,
    plan_query,
    question_of,
    with_children,
    written,
)
from inside import NameValue as Name
from inside import children_of_pattern as children
from inside import walk_pattern as walk
from oracle.oracle import OracleEvent, matches
from oracle.tree import names_in
from strategies.patterns import cases

Case = tuple[PatternQuery, list[OracleEvent]]
Bindings = Counter[tuple[object, ...]]


def search_in(query: PatternQuery, history: list[OracleEvent], intervals: bool) -> Search:
    shape = input_of(history, intervals)
    catalog = catalog_of((shape,))
    plan = plan_query(query, catalog)
    sources, _ = load_sources([shape], catalog.time_type)
    return Search(question_of(query), plan, sources, 1_000_000)


def bindings_of(chunks: tuple[MatchChunk, ...], history: list[OracleEvent]) -> Bindings:
    """What choices bind, by ids of events; what they list is not looked at."""
    found: Bindings = Counter()
    for chunk in chunks:
        names = in_order(chunk.plan.graph.names)
        columns = [chunk.space.candidates[name].rows[chunk.rows.places[name]] for name in names]
        for row in range(chunk.rows.length):
            bound: dict[Name, object] = {}
            for name, column in zip(names, columns, strict=True):
                base, event = written(name), history[column[row]].id
                bound[base] = event if base == name else (*bound.get(base, ()), event)  # type: ignore[misc]
            found[_sorted(bound.items()), ()] += 1
    return found


def _sorted(bound: Iterable[tuple[Name, object]]) -> tuple[tuple[Name, object], ...]:
    return tuple(sorted(bound, key=lambda pair: str(pair[0])))


def oracle_bindings(query: PatternQuery, history: list[OracleEvent]) -> Bindings:
    listed = {
        name
        for part in walk(query.pattern)
        if isinstance(part, Repeat) and part.every
        for inner in walk(part)
        if isinstance(inner, Event)
        for name in (inner.variable,)
    }
    return Counter(
        (_sorted(pair for pair in match.bindings if pair[0] not in listed), ()) for match in matches(query, history)
    )


def part_without(pattern: Pattern, path: tuple[int, ...], requirement: Requirement) -> Pattern | None:
    """The part with what the path leads to changed; None: it is gone."""
    if path:
        items = list(children(pattern))
        changed = part_without(items[path[0]], path[1:], requirement)
        items[path[0] : path[0] + 1] = [] if changed is None else [changed]
        return with_children(pattern, tuple(items))
    match pattern:
        case Event():
            return replace(pattern, predicate=None)
        case Seq():
            return replace(pattern, loose=frozenset({requirement.number}))
        case Within():
            return replace(pattern, loose=True)
        case Not():
            return None
        case Repeat():
            return replace(pattern, least=0, most=None)
    raise AssertionError(pattern)


def query_without(question: Question, requirement: Requirement) -> PatternQuery:
    """The query as somebody would write it who does not ask for the requirement."""
    query = question.query
    if requirement.kind == "key":
        return replace(query, partition_by=())
    if requirement.kind == "condition":
        kept = [part for part in conjuncts(query.where) if part is not requirement.condition]
    else:
        query = replace(query, pattern=part_without(query.pattern, requirement.path, requirement))
        gone = named_below(question, requirement) if requirement.kind == "absence" else set()
        kept = [part for part in conjuncts(query.where) if not names_in(part) & gone]
    where = reduce(lambda left, right: Binary("and", left, right), kept) if kept else None
    return replace(query, where=where)


def named_below(question: Question, requirement: Requirement) -> set[str]:
    part = question.query.pattern
    for place in requirement.path:
        part = children(part)[place]
    return {getattr(inner, "name", None) or getattr(inner, "variable", "") for inner in walk(part)}


def check(case: Case, intervals: bool) -> None:
    query, history = case
    try:
        search = search_in(query, history, intervals)
    except QueryError as error:
        if error.code != "never-holds":
            raise
        return
    whole = oracle_bindings(search.question.query, history)
    assert bindings_of(search.matches.chunks, history) == whole
    for requirement in search.question.requirements:
        looser = oracle_bindings(query_without(search.question, requirement), history)
        found = search.misses(requirement)
        assert not found.cut
        assert bindings_of(found.chunks, history) == looser - whole, requirement


@given(cases())
def test_near_misses_are_what_the_oracle_finds_without_the_requirement(case: Case) -> None:
    check(case, intervals=False)


@given(cases(intervals=True))
def test_near_misses_among_intervals(case: Case) -> None:
    check(case, intervals=True)
