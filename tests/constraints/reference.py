"""Which traces are lawful and which can still match: section 9 of the contract, by search; free of engine code.

A continuation is searched for as *moments*: tuples of events that share a time, each moment one tick after the one
before. It is enough to look at the events that a match binds and at one event of each stream that a constraint then
calls for: whatever else a lawful continuation holds can be left out, and it stays lawful and keeps the match. (That is
so as long as no NOT stands inside a NOT; with one, a match that is found is still a match.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

from inside import (
    And,
    Constraint,
    Ends,
    EndsWithin,
    Event,
    Exclusive,
    Expr,
    Implies,
    Not,
    Or,
    Pattern,
    PatternQuery,
    Prior,
    Require,
    Seq,
    Ticks,
)
from oracle.conditions import Value, holds
from oracle.oracle import OracleEvent, matches
from oracle.tree import conjuncts_of, names_in, parts, walk

Trace = list[OracleEvent]
Happening = tuple[str, tuple[tuple[str, Value], ...]]
"""A stream and the fields of an event that may come."""
Moments = tuple[tuple[Happening, ...], ...]
Records = Mapping[str, Sequence[tuple[tuple[str, Value], ...]]]
"""For each stream the fields that are worth trying."""

PLAIN: tuple[tuple[str, Value], ...] = (("g", 1), ("name", "ab"), ("x", 1), ("y", 1))
VALUES_OF_X: tuple[Value, ...] = (0, 1, 2, 3, None)


# What is lawful


def is_lawful(trace: Trace, constraints: Sequence[Constraint]) -> bool:
    """Whether the whole trace obeys every constraint."""
    return all(obeys(trace, constraint) for constraint in constraints)


def obeys(trace: Trace, constraint: Constraint) -> bool:
    """Whether the whole trace obeys the constraint."""
    occurring = {event.stream for event in trace}
    match constraint:
        case Prior(earlier, later):
            return not any(
                first.stream == later and second.stream == earlier and first.e < second.s
                for first in trace
                for second in trace
            )
        case Exclusive(streams):
            return len(occurring & set(streams)) <= 1
        case Require(stream, required):
            return stream not in occurring or required in occurring
        case Ends(streams):
            return not any(first.stream in streams and first.e < second.s for first in trace for second in trace)
        case EndsWithin(Ticks(ticks)):
            return not trace or max(event.e for event in trace) - min(event.s for event in trace) <= ticks
        case Implies(given, then, negated):
            return not set(given) <= occurring or (then in occurring) != negated
    raise ValueError(f"times are integers here: {constraint}")


def is_broken_for_good(trace: Trace, constraints: Sequence[Constraint]) -> bool:
    """Whether no further event can mend the trace."""
    return not all(obeys(trace, constraint) for constraint in constraints if _head(constraint) is None)


def _head(constraint: Constraint) -> str | None:
    """The stream that a constraint may call for."""
    match constraint:
        case Require(_, required):
            return required
        case Implies(_, then, False):
            return then
    return None


def has_lawful_continuation(prefix: Trace, constraints: Sequence[Constraint]) -> bool:
    """Whether events later than all of the prefix, or none, can make a lawful trace of it."""
    return lawful_completion(prefix, constraints) is not None


def lawful_completion(prefix: Trace, constraints: Sequence[Constraint]) -> Trace | None:
    """A lawful trace that begins with the prefix; None if there is none."""
    return next(_lawful_traces(prefix, (), constraints, {}, set()), None)


def can_occur(stream: str, constraints: Sequence[Constraint]) -> bool:
    """Whether some lawful trace holds an event of the stream."""
    only = ((((stream, PLAIN)),),)
    return any(True for _ in _lawful_traces([], only, constraints, {}, set()))


def _lawful_traces(
    prefix: Trace, moments: Moments, constraints: Sequence[Constraint], records: Records, seen: set[Moments]
) -> Iterator[Trace]:
    """The prefix, the moments, and what constraints call for beside them, put wherever it may come."""
    if moments in seen:
        return
    seen.add(moments)
    trace = prefix + _spelled_out(prefix, moments)
    if is_broken_for_good(trace, constraints):
        return
    missing = next((_head(constraint) for constraint in constraints if not obeys(trace, constraint)), None)
    if missing is None:
        yield trace
        return
    for fields in records.get(missing, (PLAIN,)):
        for wider in _insertions(moments, (missing, fields)):
            yield from _lawful_traces(prefix, wider, constraints, records, seen)


def _insertions(moments: Moments, happening: Happening) -> Iterator[Moments]:
    """The happening at each of the moments, before and after each."""
    for place in range(len(moments) + 1):
        yield (*moments[:place], (happening,), *moments[place:])
        if place < len(moments):
            joined = tuple(sorted((*moments[place], happening), key=repr))
            yield (*moments[:place], joined, *moments[place + 1 :])


def _spelled_out(prefix: Trace, moments: Moments) -> Trace:
    """The moments as events after the prefix."""
    time = last_time(prefix)
    number = max((event.id for event in prefix), default=-1)
    events = []
    for moment in moments:
        time += 1
        for stream, fields in moment:
            number += 1
            events.append(OracleEvent(number, stream, time, time, dict(fields)))
    return events


def last_time(prefix: Trace) -> int:
    return max((event.e for event in prefix), default=-1)


# What can still match


def can_match(query: PatternQuery, constraints: Sequence[Constraint]) -> bool:
    """Whether some lawful trace holds a match."""
    return can_still_match([], query, constraints)


def can_still_match(prefix: Trace, query: PatternQuery, constraints: Sequence[Constraint]) -> bool:
    """Whether some lawful continuation of the prefix holds a match that is not complete in the prefix."""
    query = replace(query, partition_by=())
    records = records_worth_trying(query)
    now = last_time(prefix)

    def has_new_match(trace: Trace) -> bool:
        return any(match.completion > now for match in matches(query, trace))

    seen: set[Moments] = set()
    for moments in _moments_of_matches(query, records):
        begun = prefix + _spelled_out(prefix, moments)
        if not is_broken_for_good(begun, constraints) and has_new_match(begun):
            lawful = _lawful_traces(prefix, moments, constraints, records, seen)
            if any(has_new_match(trace) for trace in lawful):
                return True
    return False


def first_hopeless(trace: Trace, query: PatternQuery, constraints: Sequence[Constraint]) -> int | None:
    """The number of events after which the trace is hopeless for the first time."""
    for length in range(1, len(trace) + 1):
        if not can_still_match(trace[:length], query, constraints):
            return length
    return None


def records_worth_trying(query: PatternQuery) -> Records:
    """For each stream of the pattern the values of `x` that its local predicates tell apart."""
    predicates: dict[str, list[Expr]] = {}
    streams: dict[str | None, str] = {}
    for _, part in walk(query.pattern):
        if isinstance(part, Event):
            streams[part.variable] = part.stream
            predicates.setdefault(part.stream, []).extend([] if part.predicate is None else [part.predicate])
    for conjunct in conjuncts_of(query.where):
        names = names_in(conjunct)
        if len(names) == 1 and (name := min(names)) in streams:
            predicates[streams[name]].append(conjunct)
    return {stream: list(_told_apart(found).values()) for stream, found in predicates.items()}


def _told_apart(predicates: list[Expr]) -> dict[tuple[bool, ...], tuple[tuple[str, Value], ...]]:
    found: dict[tuple[bool, ...], tuple[tuple[str, Value], ...]] = {}
    for x in VALUES_OF_X if predicates else (1,):
        fields = {**dict(PLAIN), "x": x, "k": 1, "s": 0, "e": 0, "t": 0}
        truths = tuple(
            holds(predicate, lambda _, column, fields=fields: fields[column])  # type: ignore[misc]
            for predicate in predicates
        )
        found.setdefault(truths, tuple(sorted({**dict(PLAIN), "x": x}.items())))
    return found


def _moments_of_matches(query: PatternQuery, records: Records) -> Iterator[Moments]:
    """Every way in which some of the positive events of the pattern, or none, may be still to come; fewer first."""
    found: set[Moments] = set()
    for count in range(1 + max(len(streams) for streams in _choices(query.pattern))):
        for streams in _choices(query.pattern):
            for coming in combinations(streams, count):
                for fields in product(*(records[stream] for stream in coming)):
                    found.update(_weak_orders(tuple(zip(coming, fields, strict=True))))
    return iter(sorted(found, key=lambda moments: (sum(map(len, moments)), repr(moments))))


def _choices(pattern: Pattern) -> list[tuple[str, ...]]:
    """The streams of the positive events, for each choice of OR branches."""
    match pattern:
        case Event():
            return [(pattern.stream,)]
        case Not():
            return [()]
        case Or():
            return [streams for item in pattern.items for streams in _choices(item)]
        case Seq() | And():
            combined = product(*(_choices(item) for item in pattern.items))
            return [tuple(stream for streams in choice for stream in streams) for choice in combined]
    return _choices(parts(pattern)[0])


def _weak_orders(happenings: tuple[Happening, ...]) -> Iterator[Moments]:
    """Every order of the happenings, in which several may share a moment."""
    if not happenings:
        yield ()
        return
    for rest in _weak_orders(happenings[1:]):
        yield from _insertions(rest, happenings[0])
