"""Hypothesis strategies for every value that query text can stand for. About syntax only: most of them mean nothing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from inside import (
    ARITHMETIC,
    COMPARISONS,
    CONNECTIVES,
    INT64_MAX,
    INT64_MIN,
    NANOSECONDS_PER,
    OPERATORS,
    POLICIES,
    RESERVED,
    UNITS,
    And,
    AnyEvent,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Constraint,
    ConstraintStatement,
    Duration,
    Ends,
    EndsWithin,
    Entry,
    Event,
    Events,
    Exclusive,
    Expr,
    Field,
    HierarchyStatement,
    Implies,
    InList,
    InTable,
    IsNull,
    Like,
    Literal,
    Member,
    NamedPattern,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Prior,
    Reach,
    Repeat,
    Require,
    Return,
    Same,
    Seq,
    Statements,
    StructMember,
    Suppression,
    Threshold,
    Ticks,
    Timestamp,
    Unary,
    Window,
    Within,
    in_brackets,
)

KEYWORDS = (
    *RESERVED, "PATTERN", "SEQ", "SAME", "TIMESTAMP", "BY", "EVENTS", "EVENT", "END", *UNITS,
    "CONSTRAINT", "EXCLUSIVE", "REQUIRE", "ENDS", "IMPLIES", "STREAM", "FROM", "MATCH", "CONSUME", "SHARE",
    "FIRST", "LAST", "COLLECT", "ALL", "BUT", *POLICIES, *(name for name in OPERATORS if name.isalpha()),
)  # fmt: skip

any_text = st.text(max_size=8)
plain_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
names = st.one_of(
    plain_names,
    st.sampled_from(KEYWORDS).flatmap(lambda word: st.sampled_from([word, word.lower(), word.title()])),
    st.text(min_size=1, max_size=6),
)
int64 = st.integers(INT64_MIN, INT64_MAX)
nanoseconds = st.one_of(
    int64,
    st.builds(
        lambda count, unit: count * NANOSECONDS_PER[unit], st.integers(0, 100), st.sampled_from([*NANOSECONDS_PER])
    ),
    # Of several units, as in `1d 2h`.
    st.lists(st.sampled_from([*NANOSECONDS_PER.values()]), min_size=2, max_size=4).map(sum),
)

windows: st.SearchStrategy[Window] = st.one_of(
    st.builds(Duration, nanoseconds.filter(lambda value: value >= 0)),
    st.builds(Ticks, st.integers(0, INT64_MAX)),
    st.builds(Events, st.integers(1, INT64_MAX)),
)

literals = st.builds(
    Literal, st.one_of(st.none(), st.booleans(), int64, st.floats(allow_nan=False, allow_infinity=False), any_text)
)
leaves: st.SearchStrategy[Expr] = st.one_of(
    literals,
    st.builds(Duration, nanoseconds),
    st.builds(Timestamp, int64, st.booleans()),
    st.builds(Field, st.none() | names, names),
    st.builds(Same, st.lists(names, min_size=1, max_size=3).map(tuple)),
)


def _is_bare(part: Expr) -> bool:
    return isinstance(part, Field) and part.variable is None


def _larger(expressions: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    listed = st.lists(expressions, min_size=1, max_size=3).map(tuple)
    branches = st.lists(st.tuples(expressions, expressions), min_size=1, max_size=2).map(tuple)
    operators = st.sampled_from(ARITHMETIC + COMPARISONS + CONNECTIVES)
    # A call's name is kept in lower case; the grammar lowers it too.
    call_names = names.map(str.lower).filter(lambda name: name == name.lower())
    return st.one_of(
        st.builds(Unary, st.sampled_from(["not", "-"]), expressions),
        st.builds(Binary, operators, expressions, expressions),
        st.builds(InList, expressions, listed, st.booleans()),
        st.builds(InTable, expressions, names, st.none() | names, st.booleans()),
        st.builds(Between, expressions, expressions, expressions, st.booleans()),
        st.builds(Like, expressions, any_text, st.booleans(), ignores_case=st.booleans()),
        # `x.y` of a column is read as a field of a variable, unless it is in brackets (see `events`).
        st.builds(StructMember, expressions.filter(lambda part: not _is_bare(part)), names),
        st.builds(Entry, expressions, expressions),
        st.builds(
            Cast,
            expressions,
            st.sampled_from(["BIGINT", "STRING", "DECIMAL", "NOSUCH"]),
            st.booleans(),
            st.sampled_from([(), (10,), (10, 2)]),
        ),
        st.builds(Call, st.just("count_distinct"), st.tuples(expressions)),
        st.builds(IsNull, expressions, st.booleans()),
        st.builds(Case, branches, st.none() | expressions),
        st.builds(Call, call_names, st.lists(expressions, max_size=3).map(tuple)),
    )


expressions: st.SearchStrategy[Expr] = st.recursive(leaves, _larger, max_leaves=12)
small_expressions: st.SearchStrategy[Expr] = st.recursive(leaves, _larger, max_leaves=3)

streams = names | st.lists(names, max_size=3).map(AnyEvent.but)
events = st.builds(Event, streams, st.none() | names, st.none() | small_expressions).map(
    lambda event: replace(event, predicate=event.predicate and in_brackets(event.predicate, event.variable))
)

stretches: st.SearchStrategy[Window] = st.builds(Duration, nanoseconds.filter(lambda value: value > 0)) | st.builds(
    Ticks, st.integers(1, INT64_MAX)
)


@st.composite
def _operations(draw: st.DrawFn, patterns: st.SearchStrategy[Pattern]) -> Operation:
    operator = draw(st.sampled_from([*OPERATORS.values()]))
    if operator.any_number:
        items = tuple(draw(st.lists(patterns, min_size=1, max_size=4)))
        return Operation(operator.name, items, count=draw(st.integers(1, len(items))))
    least = len(operator.parts) - (operator.name == "PERIODIC")
    items = tuple(draw(st.lists(patterns, min_size=least, max_size=len(operator.parts))))
    return Operation(operator.name, items, draw(stretches) if operator.window_at is not None else None)


@st.composite
def _repetitions(draw: st.DrawFn, patterns: st.SearchStrategy[Pattern]) -> Repeat:
    every = draw(st.booleans())
    least = draw(st.integers(0 if every else 1, 3))
    most = draw(st.integers(max(least, 1), 5) | st.none() if every else st.integers(least, 5))
    return Repeat(draw(patterns), least, most, every)


reaches = st.builds(Reach, st.sampled_from(("OF", "BEFORE", "AFTER")), names)


def _composed(patterns: st.SearchStrategy[Pattern]) -> st.SearchStrategy[Pattern]:
    items = st.lists(patterns, min_size=1, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Seq, items),
        st.builds(And, items),
        st.builds(Or, items),
        st.builds(Not, patterns),
        st.builds(Within, patterns, windows),
        st.builds(lambda item, size, reach: Within(item, size, reach=reach), patterns, windows, reaches),
        st.builds(NamedPattern, patterns, names),
        _operations(patterns),
        _repetitions(patterns),
        st.builds(Pick, patterns, st.booleans()),
    )


patterns: st.SearchStrategy[Pattern] = st.recursive(events, _composed, max_leaves=8)

queries = st.builds(
    PatternQuery,
    patterns,
    st.none() | names,
    st.none() | expressions,
    st.lists(names, max_size=3).map(tuple),
    st.none() | windows,
    st.lists(st.builds(Return, small_expressions, st.none() | names), max_size=3).map(tuple),
    st.none() | st.sampled_from(POLICIES),
    st.none() | st.booleans(),
    st.none() | st.builds(Threshold, st.floats(0, 1), st.booleans()),
    st.none()
    | st.builds(
        Suppression,
        windows.filter(lambda size: not isinstance(size, Events)),
        st.lists(small_expressions, max_size=2).map(tuple),
    ),
    allows_ties=st.booleans(),
).flatmap(
    lambda query: st.booleans().map(lambda declares: replace(query, declares=declares and query.name is not None))
)


def _streams(least: int, most: int = 4) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(names, min_size=least, max_size=most, unique=True).map(tuple)


# Unlike the patterns above, each of these means something.
constraints: st.SearchStrategy[Constraint] = st.one_of(
    _streams(2, 2).map(lambda streams: Prior(streams[0], streams[1])),
    st.builds(Exclusive, _streams(2)),
    _streams(2, 2).map(lambda streams: Require(streams[0], streams[1])),
    st.builds(Ends, _streams(1)),
    st.builds(
        EndsWithin,
        stretches,
    ),
    st.builds(lambda streams, negated: Implies(streams[1:], streams[0], negated), _streams(2), st.booleans()),
)
constraint_statements = st.builds(ConstraintStatement, constraints, st.lists(names, max_size=2).map(tuple))


hierarchies = st.builds(
    HierarchyStatement,
    _streams(1, 3),
    st.lists(st.builds(Member, names, st.none() | st.floats(0, 1)), min_size=1, max_size=3).map(tuple),
)


@st.composite
def _statements(draw: st.DrawFn) -> Statements:
    stated = tuple(draw(st.lists(constraint_statements, max_size=3)))
    patterns = tuple(draw(st.lists(queries, min_size=0 if stated else 1, max_size=3)))
    return Statements(patterns, constraints=stated, hierarchies=tuple(draw(st.lists(hierarchies, max_size=2))))


statements = _statements()
