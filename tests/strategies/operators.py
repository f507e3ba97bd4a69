"""Hypothesis strategies for queries with what sections 6 and 7 of the contract add: operators, lists, FIRST and LAST.

They are drawn as parts of the patterns of `strategies.patterns`, so that they mix with SEQ, AND, OR, NOT and with each
other, and stay small: the oracle lists every choice of events.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from inside import (
    And,
    AnyEvent,
    Binary,
    Call,
    Event,
    Events,
    Expr,
    Field,
    Literal,
    NamedPattern,
    Operation,
    Pattern,
    PatternQuery,
    Pick,
    Repeat,
    Seq,
    Ticks,
    Within,
)
from oracle.oracle import OracleEvent
from oracle.tree import (
    WHOLE,
    Path,
    conjuncts_of,
    homes,
    is_list,
    is_positive,
    names_below,
    occurrences,
    part_at,
    parts,
    scope_around,
    scope_of,
    scopes,
    walk,
)
from oracle.wellformed import problems
from strategies.histories import TIMES, histories
from strategies.patterns import DEPTH, Draft, part_of, query_windows, seq_or_and, split, where_of, with_reach, with_ties

Case = tuple[PatternQuery, list[OracleEvent]]

PAIRS = (
    "FOLLOWS",
    "PRECEDES",
    "BOTH",
    "ANYONE",
    "RELATIVE",
    "PRIOR",
    "NEXT",
    "SIMULTANEOUS",
    "CONCURRENT",
    "PERIODIC*",
)
TIMED = ("FOLLOWS", "PRECEDES", "BOTH", "PERIODIC*")
GUARDED_EVENTS = ("NOTFOLLOWS", "NOTPRECEDES", "PERIODIC", "EXCEPT")
GUARDED_PAIRS = ("APERIODIC", "UNLESS")
ANY_EVENT_BUT = "ANY EVENT BUT"
OPERATIONS: tuple[str, ...] = (*PAIRS, *GUARDED_EVENTS, *GUARDED_PAIRS, "ANY", ANY_EVENT_BUT)
LISTS: tuple[str, ...] = ("REPEAT", "REPEAT", "COLLECT", "COLLECT", "COLLECT", "APERIODIC*", "RELATIVE+")
LIMITS = (">=", "<=", "!=")
ENDLESS = {"open-scope", "endless-last", "endless-periodic"}


@st.composite
def queries_with_operators(draw: st.DrawFn, operators: tuple[str, ...] = OPERATIONS) -> PatternQuery:
    """Operators of sections 6 and 7, one of the given among them, in each other and in SEQ, AND, OR, NOT."""
    wanted = draw(st.sampled_from(operators))
    draft = Draft(draw, draw(st.sampled_from((0, 1, 1, 2))), special=_operation, wanted=wanted)
    pattern = part_of(draft, draw(st.sampled_from((1, 2, 2, 3))), DEPTH)
    if draft.wanted is not None:
        pattern = And((pattern, _named_operation(draft, wanted, 1, 2)))
    return query_of(draw, pattern)


@st.composite
def queries_with_lists(draw: st.DrawFn, lists: tuple[str, ...] = LISTS) -> PatternQuery:
    """Repetitions and collections, one of the given among them, with conditions on elements, aggregates and PREV."""
    wanted = draw(st.sampled_from(lists))
    draft = Draft(draw, draw(st.sampled_from((0, 0, 1))), special=_list_or_operation, wanted=wanted)
    pattern = part_of(draft, draw(st.sampled_from((1, 2, 2, 3))), DEPTH)
    if draft.wanted is not None:
        pattern = And((pattern, _named_list(draft, wanted, 1, 2)))
    return query_of(draw, pattern)


@st.composite
def queries_with_picks(draw: st.DrawFn) -> PatternQuery:
    """FIRST and LAST at one to three items, some of them pairs of events."""
    special = draw(st.sampled_from((None, None, _operation)))
    draft = Draft(draw, draw(st.sampled_from((0, 1, 2))), special=special)
    pattern = part_of(draft, draw(st.sampled_from((2, 2, 3))), DEPTH)
    for _ in range(draw(st.sampled_from((1, 1, 2, 2, 3)))):
        places = _pickable(pattern)
        assume(places)
        place = draw(st.sampled_from(places))
        item = part_at(pattern, place)
        if isinstance(item, Event):
            item = draw(st.sampled_from((item, item, Repeat(item, 2, 2))))
        pattern = _with_part(pattern, place, Pick(item, draw(st.booleans())))
    return query_of(draw, pattern)


def cases_with_operators(
    *, intervals: bool = False, operators: tuple[str, ...] = OPERATIONS
) -> st.SearchStrategy[Case]:
    return cases_of(queries_with_operators(operators), intervals)


def cases_with_lists(*, intervals: bool = False, lists: tuple[str, ...] = LISTS) -> st.SearchStrategy[Case]:
    return cases_of(queries_with_lists(lists), intervals)


def cases_with_picks(*, intervals: bool = False) -> st.SearchStrategy[Case]:
    return cases_of(queries_with_picks(), intervals)


@st.composite
def cases_of(
    draw: st.DrawFn, queries: st.SearchStrategy[PatternQuery], intervals: bool, times: tuple[int, ...] = TIMES
) -> Case:
    query = draw(queries)
    return query, draw(small_histories(query, intervals, times))


@st.composite
def small_histories(
    draw: st.DrawFn, query: PatternQuery, intervals: bool, times: tuple[int, ...] = TIMES
) -> list[OracleEvent]:
    """At most ten events, most of them of the streams that the query names."""
    leaves = [(path, part) for path, part in walk(query.pattern) if isinstance(part, Event) and not _is_any(part)]
    wanted = [leaf.stream for path, leaf in leaves if scope_of(query.pattern, path) == WHOLE]
    others = [leaf.stream for path, leaf in leaves if scope_of(query.pattern, path) != WHOLE]
    streams = (*wanted * 3, *others * 2, "A", "B", "E")
    return draw(histories(intervals=intervals, streams=streams, times=times, least_sizes=(4, 7, 8, 8, 9), most=10))


def query_of(draw: st.DrawFn, pattern: Pattern, *, reaches: bool = True) -> PatternQuery:
    """The pattern with conditions and, where it needs one, a window. A moment has no position: no EVENTS with it."""
    pattern = draw(with_reach(pattern)) if reaches else pattern
    timed = any(isinstance(part, Pick) or _is_periodic(part) for _, part in walk(pattern))
    if timed:
        assume(not any(isinstance(part, Within) and isinstance(part.window, Events) for _, part in walk(pattern)))
    window = draw(query_windows(required=bool(problems(PatternQuery(pattern)) & ENDLESS)))
    if timed and isinstance(window, Events):
        window = Ticks(window.count)
    query = PatternQuery(
        pattern=pattern,
        where=draw(_conditions(pattern)),
        partition_by=draw(st.sampled_from(((), (), ("k",)))),
        within=window,
        allows_ties=draw(with_ties),
    )
    assume(not problems(query))
    return query


# Operators


def _operation(draft: Draft, events: int, depth: int) -> Pattern | None:
    """An operator with about so many positive events; None for a part of another kind."""
    if depth < 2 or not draft.chance(70 if draft.wanted else 20):
        return None
    operator = draft.wanted if draft.wanted in OPERATIONS else draft.choose(OPERATIONS)
    draft.wanted = None
    return _named_operation(draft, operator, events, depth)


def _named_operation(draft: Draft, operator: str, events: int, depth: int) -> Pattern:
    draft.wanted = None
    if operator == ANY_EVENT_BUT:
        return Event(AnyEvent.but(draft.choose(((), ("A",), ("A", "B")))), draft.new_name("v"))
    if operator in GUARDED_EVENTS:
        return _guarded_event(draft, operator, events, depth)
    if operator == "ANY":
        items = operands_of(draft, [1] * draft.choose((2, 3)), depth)
        return Operation(operator, tuple(items), count=draft.choose(tuple(range(1, len(items) + 1))))
    first, second = operands_of(draft, split(draft, max(events, 2), 2), depth)
    if operator == "APERIODIC":
        return Operation(operator, (first, second, forbidden_of(draft, depth)))
    if operator == "UNLESS":
        return Operation(operator, (forbidden_of(draft, depth), first, second))
    return Operation(operator, (first, second), duration_of(draft) if operator in TIMED else None)


def _guarded_event(draft: Draft, operator: str, events: int, depth: int) -> Pattern:
    """An event beside which something must not happen; a PERIODIC without that in a window of its own."""
    if operator == "EXCEPT":
        return Operation(operator, (*operands_of(draft, [events], depth), forbidden_of(draft, depth)))
    (item,) = operands_of(draft, [min(events, 2)], depth)
    if operator == "PERIODIC" and draft.chance(30):
        return Within(Operation(operator, (item,), duration_of(draft)), Ticks(draft.choose((6, 9))))
    return Operation(operator, (item, forbidden_of(draft, depth)), duration_of(draft))


def operands_of(draft: Draft, sizes: list[int], depth: int) -> list[Pattern]:
    """Parts that share no variable with anything else."""
    outside, items = draft.variables, []
    for size in sizes:
        draft.variables = {}
        items.append(part_of(draft, size, depth - 1))
    draft.variables = outside
    return items


def forbidden_of(draft: Draft, depth: int) -> Pattern:
    """What an operator forbids: mostly an event."""
    size = 2 if depth > 2 and draft.chance(20) else 1
    draft.negated_left = max(0, draft.negated_left - size)
    was_negated, draft.is_negated = draft.is_negated, True
    (item,) = operands_of(draft, [size], depth - 1)
    draft.is_negated = was_negated
    return item


def duration_of(draft: Draft) -> Ticks:
    return Ticks(draft.choose((1, 2, 3, 4, 6)))


# Lists


def _list_or_operation(draft: Draft, events: int, depth: int) -> Pattern | None:
    """A list, now and then an operator; never a list in another."""
    if depth < 2 or not draft.chance(55):
        return None
    if draft.wanted is None and draft.chance(60):
        return _operation(draft, events, depth)
    return _named_list(draft, draft.wanted or draft.choose(LISTS), events, depth)


def _named_list(draft: Draft, kind: str, events: int, depth: int) -> Pattern:
    draft.wanted = None
    if kind == "COLLECT":
        around = seq_or_and(draft, split(draft, events, min(events, 2)), depth)
        least, most = draft.choose(((0, None), (0, None), (1, None), (1, 2), (2, 2), (0, 1)))
        collection = Repeat(_element(draft, depth), least, most, every=True)
        place = draft.draw(st.integers(0, len(around.items)))
        return replace(around, items=(*around.items[:place], collection, *around.items[place:]))
    if kind == "APERIODIC*":
        first, last = operands_of(draft, split(draft, max(events, 2), 2), depth)
        return Operation(kind, (first, _element(draft, depth), last))
    if kind == "RELATIVE+":
        return Operation(kind, (_element(draft, depth),))
    return Repeat(_element(draft, depth), *draft.choose(((1, 1), (2, 2), (2, 2), (1, 2), (2, 3))))


def _element(draft: Draft, depth: int) -> Pattern:
    """What is repeated: an event, or a small composite without lists."""
    special, draft.special = draft.special, None
    size = 2 if depth > 2 and draft.chance(25) else 1
    negated, draft.negated_left = draft.negated_left, 0
    (element,) = operands_of(draft, [size], depth)
    draft.special, draft.negated_left = special, negated
    return element


# Conditions


@st.composite
def _conditions(draw: st.DrawFn, pattern: Pattern) -> Expr | None:
    """Those of any pattern, and for each list perhaps one that ranges over it."""
    conditions = conjuncts_of(draw(where_of(pattern))) if draw(st.booleans()) else []
    home = homes(pattern)
    variables = {name for name, path in occurrences(pattern) if isinstance(part_at(pattern, path), Event)}
    for scope in scopes(pattern):
        names = [name for name in home if home[name] == scope and name in variables and isinstance(name, str)]
        if is_list(pattern, scope) and names and draw(st.booleans()):
            others = [
                name for name in variables if home[name] == scope_around(pattern, scope) and isinstance(name, str)
            ]
            conditions.append(draw(_over_list(draw(st.sampled_from(names)), sorted(others))))
    if not conditions:
        return None
    where = conditions[0]
    for condition in conditions[1:]:
        where = Binary("and", where, condition)
    return where


@st.composite
def _over_list(draw: st.DrawFn, name: str, others: list[str]) -> Expr:
    """A condition with an aggregate over the list, or with PREV."""
    value = Field(name, draw(st.sampled_from(("x", "y", "t"))))
    limit: Expr = Literal(draw(st.integers(0, 4)))
    if others and draw(st.booleans()):
        limit = Field(draw(st.sampled_from(others)), "x")
    kind = draw(st.sampled_from(("PREV", "PREV", "count", "aggregate", "aggregate")))
    if kind == "PREV":
        previous = Call("prev", (value,))
        operator = draw(st.sampled_from((">=", ">", "!=", "<=")))
        return draw(
            st.sampled_from((Binary(operator, value, previous), Binary("<=", Binary("-", value, previous), limit)))
        )
    if kind == "count":
        counted = draw(st.sampled_from((Field(None, name), value)))
        return Binary(
            draw(st.sampled_from((">=", "<=", "!="))), Call("count", (counted,)), Literal(draw(st.integers(0, 3)))
        )
    operand = draw(st.sampled_from((value, Binary("+", value, Literal(1)))))
    aggregate = draw(st.sampled_from(("sum", "avg", "min", "max", "first", "last")))
    return Binary(draw(st.sampled_from(LIMITS)), Call(aggregate, (operand,)), limit)


# FIRST and LAST


def _pickable(pattern: Pattern) -> list[Path]:
    """The items of SEQ and AND at which FIRST and LAST may stand, if their variables are not written elsewhere."""
    found = []
    for path, part in walk(pattern):
        around = [part_at(pattern, path[:length]) for length in range(len(path))]
        if not around or not isinstance(around[-1], Seq | And) or not is_positive(part) or isinstance(part, Pick):
            continue
        if not all(isinstance(outer, Seq | And | Within | NamedPattern) for outer in around):
            continue
        names = [name for name, _ in occurrences(pattern)]
        if all(names.count(name) == 1 for name in names_below(pattern, path)):
            found.append(path)
    return found


def _with_part(pattern: Pattern, path: Path, part: Pattern) -> Pattern:
    """The pattern with another part at the path."""
    if not path:
        return part
    index, *rest = path
    inner = _with_part(parts(pattern)[index], tuple(rest), part)
    if hasattr(pattern, "items"):
        return replace(pattern, items=(*pattern.items[:index], inner, *pattern.items[index + 1 :]))
    return replace(pattern, item=inner)


def _is_any(part: Pattern) -> bool:
    return isinstance(part, Event) and isinstance(part.stream, AnyEvent)


def _is_periodic(part: Pattern) -> bool:
    return isinstance(part, Operation) and part.operator == "PERIODIC"
