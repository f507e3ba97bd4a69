"""Hypothesis strategies for constraints, for traces that obey them, and for patterns of which all is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations_with_replacement

from hypothesis import strategies as st

from constraints.reference import Trace, has_lawful_continuation, last_time, lawful_completion
from draws import share
from inside import (
    And,
    Binary,
    Constraint,
    Ends,
    EndsWithin,
    Event,
    Exclusive,
    Expr,
    Field,
    Implies,
    Literal,
    Not,
    Or,
    Pattern,
    PatternQuery,
    Prior,
    Require,
    Seq,
    Ticks,
    meaning_of,
)
from inside import ConstraintStatement as Statement
from oracle.conditions import Value
from oracle.oracle import OracleEvent
from oracle.tree import Path, left_neighbour, negations, part_at, right_neighbour
from strategies.histories import records

STREAMS = ("A", "B", "C", "D")
OTHER = "E"
"""A stream that no pattern asks for; constraints may name it."""

modest = share(0.3)
"""These properties run everything several times: fewer examples than elsewhere say as much."""

# Constraints


def constraint_sets(
    streams: tuple[str, ...] = (*STREAMS, OTHER), *, timed: bool = True, most: int = 4
) -> st.SearchStrategy[tuple[Constraint, ...]]:
    """Up to `most` constraints, none of them twice; with `timed` also ENDS WITHIN."""
    return st.lists(
        _constraints(streams, timed), min_size=1, max_size=most, unique_by=lambda item: meaning_of(Statement(item))
    ).map(tuple)


def without_repetition(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The constraints, each once; the order of words makes no other constraint."""
    return tuple({meaning_of(Statement(item)): item for item in constraints}.values())


def _constraints(streams: tuple[str, ...], timed: bool) -> st.SearchStrategy[Constraint]:
    pairs = st.permutations(streams).map(lambda order: order[:2])
    triples = st.permutations(streams).map(lambda order: order[:3])
    priors = pairs.map(lambda pair: Prior(*pair))
    requires = pairs.map(lambda pair: Require(*pair))
    choices: list[st.SearchStrategy[Constraint]] = [
        priors,
        priors,
        pairs.map(lambda pair: Exclusive(tuple(pair))),
        triples.map(lambda triple: Exclusive(tuple(triple))),
        requires,
        requires,
        st.sampled_from(streams).map(lambda stream: Ends((stream,))),
        pairs.map(lambda pair: Ends(tuple(pair))),
        st.tuples(triples, st.booleans()).map(lambda drawn: Implies(tuple(drawn[0][1:]), drawn[0][0], drawn[1])),
        st.tuples(pairs, st.booleans()).map(lambda drawn: Implies((drawn[0][1],), drawn[0][0], drawn[1])),
    ]
    if timed:
        choices.append(st.sampled_from((4, 7, 10, 20)).map(lambda ticks: EndsWithin(Ticks(ticks))))
    return st.one_of(choices)


# Traces


@st.composite
def lawful_traces(
    draw: st.DrawFn,
    constraints: Sequence[Constraint],
    streams: tuple[str, ...] = (*STREAMS, OTHER),
    *,
    most: int = 6,
    begin: int = 0,
) -> Trace:
    """A trace that obeys the constraints: it goes on only where it can still end lawfully, and ends so.

    Now and then two events share a time.
    """
    trace: Trace = []
    time = begin
    for _ in range(draw(st.integers(1, most))):
        time += draw(st.sampled_from((1, 1, 2, 3))) if trace else 0
        open_moments = [
            extended
            for size in (1, 2)
            for moment in combinations_with_replacement(sorted(set(streams)), size)
            if has_lawful_continuation(extended := extended_by(trace, moment, time), constraints)
        ]
        if not open_moments:
            break
        trace = draw(st.sampled_from(open_moments))
    completed = lawful_completion(trace, constraints)
    assert completed is not None
    return [replace(event, fields=draw(records())) for event in completed]


@st.composite
def lawful_beginnings(draw: st.DrawFn, constraints: Sequence[Constraint], *, most: int = 5) -> Trace:
    """The first events of a lawful trace, one at a time; `x` is all that they carry."""
    trace: Trace = []
    for time in range(draw(st.integers(1, most))):
        ways = [
            extended
            for stream in (*STREAMS, OTHER)
            if has_lawful_continuation(extended := extended_by(trace, (stream,), time), constraints)
        ]
        if not ways:
            break
        *before, last = draw(st.sampled_from(ways))
        trace = [*before, replace(last, fields={"x": draw(st.sampled_from((0, 1, 2, 3, None)))})]
    return trace


def extended_by(trace: Trace, moment: Sequence[str], time: int) -> Trace:
    return [*trace, *(OracleEvent(len(trace) + n, stream, time, time) for n, stream in enumerate(moment))]


def in_partition(trace: Trace, keys: dict[str, Value]) -> Trace:
    """The trace under these keys."""
    return [replace(event, fields={**event.fields, **keys}) for event in trace]


@st.composite
def mixed(draw: st.DrawFn, traces: Sequence[Trace]) -> Trace:
    """All events in some order of arrival, which `id` tells."""
    events = draw(st.permutations([event for trace in traces for event in trace]))
    return [replace(event, id=number) for number, event in enumerate(events)]


@st.composite
def in_succession(
    draw: st.DrawFn, constraints: Sequence[Constraint], count: int, streams: tuple[str, ...]
) -> list[Trace]:
    """Lawful traces of which each begins when the one before has ended, as far as constraints say when that is."""
    traces: list[Trace] = []
    begin = 0
    for _ in range(count):
        trace = draw(lawful_traces(constraints, streams, most=4, begin=begin))
        traces.append(trace)
        over = end_of_trace(trace, constraints)
        if over is None:
            break
        begin = over + draw(st.integers(1, 2))
    return traces


def end_of_trace(trace: Trace, constraints: Sequence[Constraint]) -> int | None:
    """The last time at which an event still belongs to the trace."""
    ends = [
        last_time(trace)
        for constraint in constraints
        if isinstance(constraint, Ends) and any(event.stream in constraint.streams for event in trace)
    ]
    ends += [
        min(event.s for event in trace) + constraint.window.count
        for constraint in constraints
        if isinstance(constraint, EndsWithin) and isinstance(constraint.window, Ticks)
    ]
    return min(ends, default=None)


# Patterns without windows and without conditions between variables

LOCAL: tuple[Expr, ...] = (
    Binary(">", Field(None, "x"), Literal(0)),
    Binary("=", Field(None, "x"), Literal(1)),
    Binary("<=", Field(None, "x"), Literal(1)),
)


@st.composite
def plain_queries(draw: st.DrawFn, *, composite: bool = False, most: int = 3) -> PatternQuery:
    """SEQ, AND and OR of up to `most` positive events, nested, with NOT between them; conditions on single events.

    With `composite` a NOT may forbid more than an event; never does a NOT stand inside a NOT.
    """
    counter = iter(range(100))

    def event(negated: bool = False) -> Event:
        predicate = draw(st.sampled_from((None, None, None, *LOCAL)))
        return Event(draw(st.sampled_from(STREAMS)), f"{'n' if negated else 'v'}{next(counter)}", predicate)

    def negation() -> Not:
        operator = draw(st.sampled_from((None, None, Seq, And, Or))) if composite else None
        return Not(event(True) if operator is None else operator((event(True), event(True))))

    def part(size: int) -> Pattern:
        if size == 1:
            return event()
        operator = draw(st.sampled_from((Seq, Seq, And, Or)))
        first = draw(st.integers(1, size - 1))
        sizes = (first, size - first) if draw(st.booleans()) else (1,) * size
        items = [part(size) for size in sizes]
        if operator is not Or:
            for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
                items.insert(draw(st.integers(0, len(items))), negation())
        return operator(tuple(items))

    pattern = _without_open_negations(part(draw(st.integers(1, most))))
    return _with_conditions_in_where(PatternQuery(pattern, partition_by=("k",)), draw(st.sets(st.integers(0, 6))))


def _without_open_negations(pattern: Pattern) -> Pattern:
    """Leaves out each NOT that would need a WITHIN."""
    for path in negations(pattern):
        is_last = right_neighbour(pattern, path) is None and isinstance(part_at(pattern, path[:-1]), Seq)
        if left_neighbour(pattern, path) is None or is_last:
            return _without_open_negations(_without_part(pattern, path))
    return pattern


def _without_part(pattern: Pattern, path: Path) -> Pattern:
    """The pattern of SEQ, AND and OR without the part at the path."""
    assert isinstance(pattern, Seq | And | Or)
    first, *rest = path
    changed = (_without_part(pattern.items[first], tuple(rest)),) if rest else ()
    return replace(pattern, items=(*pattern.items[:first], *changed, *pattern.items[first + 1 :]))


def _with_conditions_in_where(query: PatternQuery, places: set[int]) -> PatternQuery:
    """The conditions of the events at these places are written in WHERE instead."""
    moved: list[Expr] = []

    def rewritten(pattern: Pattern) -> Pattern:
        match pattern:
            case Event(stream, variable, Binary(operator, Field(None, name), limit)) if int(variable[1:]) in places:
                moved.append(Binary(operator, Field(variable, name), limit))
                return Event(stream, variable)
            case Seq() | And() | Or():
                return replace(pattern, items=tuple(map(rewritten, pattern.items)))
            case Not():
                return Not(rewritten(pattern.item))
        return pattern

    pattern = rewritten(query.pattern)
    where = reduce(lambda left, right: Binary("and", left, right), moved) if moved else None
    return replace(query, pattern=pattern, where=where)
