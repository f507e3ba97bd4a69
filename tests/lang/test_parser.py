"""Which text stands for which value."""

from __future__ import annotations

import pytest

from ensue import QueryError
from inside import MAXIMAL_DEPTH_OF_QUERIES as MAXIMAL_DEPTH
from inside import (
    NANOSECONDS_PER,
    RESERVED,
    UNITS,
    And,
    AnyEvent,
    Between,
    Binary,
    Call,
    Case,
    Duration,
    Event,
    Events,
    Expr,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    NamedPattern,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Repeat,
    Return,
    Same,
    Seq,
    Span,
    Ticks,
    Timestamp,
    Unary,
    Window,
    Within,
    parse_expression,
    parse_pattern,
    parse_returns,
    parse_statements,
    parse_window,
    render_expression,
    walk_expression,
)
from inside import walk_pattern as walk

A, B, C = Event("A", "a"), Event("B", "b"), Event("C", "c")
X, Y, Z = Field(None, "x"), Field(None, "y"), Field(None, "z")
AX = Field("a", "x")
ONE, TWO, THREE = Literal(1), Literal(2), Literal(3)
HOUR = NANOSECONDS_PER["hour"]


def query(text: str) -> PatternQuery:
    (only,) = parse_statements(text).statements
    return only


PATTERNS = {
    "A": Event("A"),
    "A a": A,
    "A a [x > 1]": Event("A", "a", Binary(">", X, ONE)),
    "A [x > 1]": Event("A", None, Binary(">", X, ONE)),
    "SEQ(A a, B b)": Seq((A, B)),
    "seq ( A a , B b )": Seq((A, B)),
    "AND(A a, NOT B b)": And((A, Not(B))),
    "OR(A a, SEQ(B b, C c))": Or((A, Seq((B, C)))),
    "((A a))": A,
    "NOT A a": Not(A),
    "NOT NOT A a": Not(Not(A)),
    "OR(NOT A a)": Or((Not(A),)),
    "A a WITHIN 5": Within(A, Ticks(5)),
    "A a AS x WITHIN 5": Within(NamedPattern(A, "x"), Ticks(5)),
    "SEQ(A a, B b) WITHIN 5 AS x": NamedPattern(Within(Seq((A, B)), Ticks(5)), "x"),
    "NOT A a WITHIN 5": Not(Within(A, Ticks(5))),
    "(NOT A a) WITHIN 5": Within(Not(A), Ticks(5)),
    "A a WITHIN 1 hour WITHIN 3 events": Within(Within(A, Duration(HOUR)), Events(3)),
    "SEQ s": Event("SEQ", "s"),
    "`SEQ` s": Event("SEQ", "s"),
    "`order line` `a``b`": Event("order line", "a`b"),
    "Überweisung ü": Event("Überweisung", "ü"),
    "SEQ -- then\n (A a)": Seq((A,)),
    "FOLLOWS(A a, B b, 1 hour)": Operation("FOLLOWS", (A, B), Duration(HOUR)),
    "follows -- then\n ( A a , B b , 5 )": Operation("FOLLOWS", (A, B), Ticks(5)),
    "PRECEDES(A a, SEQ(B b, C c) WITHIN 3, 5)": Operation("PRECEDES", (A, Within(Seq((B, C)), Ticks(3))), Ticks(5)),
    "NOTFOLLOWS(A a, B b, 5)": Operation("NOTFOLLOWS", (A, B), Ticks(5)),
    "NOTPRECEDES(A a, B b, 5)": Operation("NOTPRECEDES", (A, B), Ticks(5)),
    "ANYONE(A a, B b)": Operation("ANYONE", (A, B)),
    "BOTH(A a, B b, 5)": Operation("BOTH", (A, B), Ticks(5)),
    "ANY(2, A a, B b, C c)": Operation("ANY", (A, B, C), count=2),
    "APERIODIC(A a, B b, C c)": Operation("APERIODIC", (A, B, C)),
    "APERIODIC*(A a, B b, C c)": Operation("APERIODIC*", (A, B, C)),
    "aperiodic * (A a, B b, C c)": Operation("APERIODIC*", (A, B, C)),
    "PERIODIC(A a, 5, B b)": Operation("PERIODIC", (A, B), Ticks(5)),
    "PERIODIC(A a, 5) WITHIN 9": Within(Operation("PERIODIC", (A,), Ticks(5)), Ticks(9)),
    "PERIODIC*(A a, 5, B b) AS p": NamedPattern(Operation("PERIODIC*", (A, B), Ticks(5)), "p"),
    "UNLESS(B b)(A a, C c)": Operation("UNLESS", (B, A, C)),
    "RELATIVE(A a, B b)": Operation("RELATIVE", (A, B)),
    "RELATIVE+(A a)": Operation("RELATIVE+", (A,)),
    "PRIOR(A a, B b)": Operation("PRIOR", (A, B)),
    "NEXT(A a, B b)": Operation("NEXT", (A, B)),
    "SIMULTANEOUS(A a, B b)": Operation("SIMULTANEOUS", (A, B)),
    "CONCURRENT(A a, NOT B b)": Operation("CONCURRENT", (A, Not(B))),
    "ANY EVENT": Event(AnyEvent()),
    "any -- of them\n event e [x > 1]": Event(AnyEvent(), "e", Binary(">", X, ONE)),
    "ANY EVENT BUT A e": Event(AnyEvent(("A",)), "e"),
    "ANY EVENT BUT (B, `order line`, A) e": Event(AnyEvent(("A", "B", "order line")), "e"),
    "ANY EVENT but": Event(AnyEvent(), "but"),
    "`ANY` EVENT": Event("ANY", "EVENT"),
    "A a{2}": Repeat(A, 2, 2),
    "A a { 2 , 4 }": Repeat(A, 2, 4),
    "A a{2} ALL": Repeat(A, 2, 2, every=True),
    "A a{2,4} all": Repeat(A, 2, 4, every=True),
    "A a{2,} ALL": Repeat(A, 2, None, every=True),
    "A a{0,4} ALL": Repeat(A, 0, 4, every=True),
    "A a+": Repeat(A, 1, None, every=True),
    "A+": Repeat(Event("A"), 1, None, every=True),
    "A a [x > 1]*": Repeat(Event("A", "a", Binary(">", X, ONE)), 0, None, every=True),
    "SEQ(A a, B b){2} WITHIN 5 AS x": NamedPattern(Within(Repeat(Seq((A, B)), 2, 2), Ticks(5)), "x"),
    "(A a WITHIN 5){2}": Repeat(Within(A, Ticks(5)), 2, 2),
    "(A a{2}){3}": Repeat(Repeat(A, 2, 2), 3, 3),
    "COLLECT A a": Repeat(A, 0, None, every=True),
    "COLLECT A a+": Repeat(A, 1, None, every=True),
    "COLLECT A a{2,}": Repeat(A, 2, None, every=True),
    "COLLECT A a{2,4} ALL": Repeat(A, 2, 4, every=True),
    "COLLECT SEQ(A a, B b) WITHIN 5": Repeat(Within(Seq((A, B)), Ticks(5)), 0, None, every=True),
    "NOT COLLECT A a": Not(Repeat(A, 0, None, every=True)),
    "FIRST A a": Pick(A, latest=False),
    "last(A a)": Pick(A, latest=True),
    "LAST SEQ(A a, B b) WITHIN 5": Pick(Within(Seq((A, B)), Ticks(5)), latest=True),
    "(FIRST A a) WITHIN 5": Within(Pick(A, latest=False), Ticks(5)),
    "SEQ(first, LAST [x > 1], collect AS c, First{2}, `last` l)": Seq(
        (
            Event("first"),
            Event("LAST", None, Binary(">", X, ONE)),
            NamedPattern(Event("collect"), "c"),
            Repeat(Event("First"), 2, 2),
            Event("last", "l"),
        )
    ),
}


@pytest.mark.parametrize("text", PATTERNS)
def test_patterns(text: str) -> None:
    assert parse_pattern(text) == PATTERNS[text]


@pytest.mark.parametrize(
    "word",
    [
        "count",
        "type",
        "end",
        "name",
        "events",
        "event",
        "hour",
        "key",
        "by",
        "pattern",
        "seq",
        "same",
        "timestamp",
        "follows",
        "prior",
        "next",
        "periodic",
        "relative",
        "unless",
        "all",
        "but",
        "match",
        "consume",
        "share",
        "stream",
        "from",
        "recent",
        "strict",
        "prev",
        "lineage",
    ],
)
def test_words_that_are_no_reserved_words(word: str) -> None:
    assert query(
        f"PATTERN SEQ({word} {word}, B b) PARTITION BY {word}, x RETURN {word}.{word} AS {word}"
    ) == PatternQuery(
        Seq((Event(word, word), B)),
        partition_by=(word, "x"),
        returns=(Return(Field(word, word), word),),
    )
    assert parse_expression(f"{word} = 1") == Binary("=", Field(None, word), ONE)
    assert parse_expression(f"CASE WHEN {word} THEN {word} END") == Case(((Field(None, word), Field(None, word)),))


@pytest.mark.parametrize("word", RESERVED)
def test_reserved_words(word: str) -> None:
    for spelling in (word, word.lower()):
        with pytest.raises(QueryError):
            parse_pattern(f"SEQ(A {spelling}, B b)")
        assert parse_pattern(f"SEQ(A `{spelling}`, B b)") == Seq((Event("A", spelling), B))
        assert parse_expression(f"a.{spelling}") == Field("a", spelling)


QUERIES = {
    "PATTERN A": PatternQuery(Event("A")),
    "PATTERN Login l": PatternQuery(Event("Login", "l")),
    "PATTERN p (A a)": PatternQuery(A, "p"),
    "PATTERN p (A a) AS x": PatternQuery(NamedPattern(A, "x"), "p"),
    "PATTERN p SEQ(A a)": PatternQuery(Seq((A,)), "p"),
    "PATTERN p NOT A a": PatternQuery(Not(A), "p"),
    "PATTERN NOT A a": PatternQuery(Not(A)),
    "PATTERN `my query` OR(A a)": PatternQuery(Or((A,)), "my query"),
    "PATTERN `seq` (A a)": PatternQuery(A, "seq"),
    "PATTERN SEQ(A a, B b) WITHIN 5": PatternQuery(Seq((A, B)), within=Ticks(5)),
    "PATTERN (SEQ(A a, B b) WITHIN 5)": PatternQuery(Within(Seq((A, B)), Ticks(5))),
    "PATTERN (A a WITHIN 5) WITHIN 6": PatternQuery(Within(A, Ticks(5)), within=Ticks(6)),
    "PATTERN A a AS x WITHIN 5": PatternQuery(NamedPattern(A, "x"), within=Ticks(5)),
    "PATTERN NOT A a WITHIN 5": PatternQuery(Not(A), within=Ticks(5)),
    "PATTERN A a WHERE x RETURN y WITHIN 5 PARTITION BY z": PatternQuery(
        A, where=X, partition_by=("z",), within=Ticks(5), returns=(Return(Y),)
    ),
    "PATTERN A a RETURN 1, x AS y": PatternQuery(A, returns=(Return(ONE), Return(X, "y"))),
    "-- first\npattern A a -- last": PatternQuery(A),
    "PATTERN A a;": PatternQuery(A),
    "PATTERN SEQ(A a, B b) MATCH recent": PatternQuery(Seq((A, B)), policy="RECENT"),
    "PATTERN A MATCH NEXT CONSUME WITHIN 5": PatternQuery(Event("A"), within=Ticks(5), policy="NEXT", consume=True),
    "PATTERN A a SHARE RETURN x MATCH UNRESTRICTED": PatternQuery(
        A, returns=(Return(X),), policy="UNRESTRICTED", consume=False
    ),
    "PATTERN A match AS x MATCH STRICT": PatternQuery(NamedPattern(Event("A", "match"), "x"), policy="STRICT"),
    "PATTERN A match WHERE x": PatternQuery(Event("A", "match"), where=X),
    "PATTERN A consume": PatternQuery(Event("A", "consume")),
    "PATTERN p NEXT(A a, B b){2}": PatternQuery(Repeat(Operation("NEXT", (A, B)), 2, 2), "p"),
    "PATTERN `next` (A a)": PatternQuery(A, "next"),
    "PATTERN first SEQ(A a, FIRST B b)": PatternQuery(Seq((A, Pick(B, latest=False))), "first"),
    "PATTERN A a{2} WITHIN 5": PatternQuery(Repeat(A, 2, 2), within=Ticks(5)),
    "STREAM s FROM PATTERN A a WITHIN 5": PatternQuery(A, "s", within=Ticks(5), declares=True),
    "stream `from` from pattern SEQ(A a)": PatternQuery(Seq((A,)), "from", declares=True),
}


@pytest.mark.parametrize("text", QUERIES)
def test_queries(text: str) -> None:
    assert query(text) == QUERIES[text]


def test_statements_keep_their_order_and_source() -> None:
    parsed = parse_statements("PATTERN A a; PATTERN B b;", "two.ensue")
    assert parsed.statements == (PatternQuery(A), PatternQuery(B))
    assert parsed.source is not None
    assert parsed.source.name == "two.ensue"


def test_the_example_of_the_design() -> None:
    parsed = query(
        """PATTERN unsafe_tool
          SEQ(Recycle r, Washing w, NOT SEQ(Sharpening s, Disinfection d, Checking c), Operating o)
          WHERE o.ins_type = 'surgery'
          PARTITION BY id
          WITHIN 1 hour
          RETURN o.id AS tool, o.t AS used_at, w.t - r.t AS idle;"""
    )
    absent = Seq((Event("Sharpening", "s"), Event("Disinfection", "d"), Event("Checking", "c")))
    assert parsed == PatternQuery(
        Seq((Event("Recycle", "r"), Event("Washing", "w"), Not(absent), Event("Operating", "o"))),
        "unsafe_tool",
        Binary("=", Field("o", "ins_type"), Literal("surgery")),
        ("id",),
        Duration(HOUR),
        (
            Return(Field("o", "id"), "tool"),
            Return(Field("o", "t"), "used_at"),
            Return(Binary("-", Field("w", "t"), Field("r", "t")), "idle"),
        ),
    )


WINDOWS: dict[str, Window] = {
    "5": Ticks(5),
    "0": Ticks(0),
    "100 events": Events(100),
    "1 EVENT": Events(1),
    "1 hour 30 minutes": Duration(HOUR * 3 // 2),
    "1.5h": Duration(HOUR * 3 // 2),
    "0.000000001 s": Duration(1),
    ".5 us": Duration(500),
    "0 seconds": Duration(0),
    "1d 2h": Duration(26 * NANOSECONDS_PER["hour"]),
    "1h30m": Duration(90 * NANOSECONDS_PER["minute"]),
}


@pytest.mark.parametrize("text", WINDOWS)
def test_windows(text: str) -> None:
    assert parse_window(text) == WINDOWS[text]


@pytest.mark.parametrize("unit", UNITS)
def test_units(unit: str) -> None:
    length = Duration(3 * NANOSECONDS_PER[UNITS[unit]])
    assert parse_window(f"3 {unit if unit == 'm' else unit.upper()}") == length
    assert parse_window(f"3{unit}") == length
    assert parse_expression(f"3 {unit}") == length


def test_a_capital_m_is_no_minute() -> None:
    with pytest.raises(QueryError, match="write `m` for minutes, `30d` for a month"):
        parse_window("5M")


EXPRESSIONS: dict[str, Expr] = {
    "count(t)": Call("count", (Field(None, "t"),)),
    "FIRST(t.x) < last(t.x)": Binary("<", Call("first", (Field("t", "x"),)), Call("last", (Field("t", "x"),))),
    "collect(x)": Call("collect", (X,)),
    "PREV(t.x)": Call("prev", (Field("t", "x"),)),
    "lineage()": Call("lineage", ()),
    "any(x)": Call("any", (X,)),
    "p.times": Field("p", "times"),
    "x OR y AND z": Binary("or", X, Binary("and", Y, Z)),
    "NOT x AND y": Binary("and", Unary("not", X), Y),
    "NOT x = 1": Unary("not", Binary("=", X, ONE)),
    "x == 1": Binary("=", X, ONE),
    "x <> 1": Binary("!=", X, ONE),
    "x != 1": Binary("!=", X, ONE),
    "x<=1": Binary("<=", X, ONE),
    "x IN (1, 2)": InList(X, (ONE, TWO)),
    "x NOT IN (1)": InList(X, (ONE,), negated=True),
    "x BETWEEN 1 AND 2 AND y": Binary("and", Between(X, ONE, TWO), Y),
    "x NOT BETWEEN 1 AND 2": Between(X, ONE, TWO, negated=True),
    "x LIKE 'it''s%'": Like(X, "it's%"),
    "x NOT LIKE ''": Like(X, "", negated=True),
    "x IS NULL": IsNull(X),
    "x IS NOT NULL": IsNull(X, negated=True),
    "x || y + 1 * 2": Binary("||", X, Binary("+", Y, Binary("*", ONE, TWO))),
    "x - y - z": Binary("-", Binary("-", X, Y), Z),
    "x - (y - z)": Binary("-", X, Binary("-", Y, Z)),
    "(x + 1) * 2": Binary("*", Binary("+", X, ONE), TWO),
    "x / y % z": Binary("%", Binary("/", X, Y), Z),
    "-x": Unary("-", X),
    "- -x": Unary("-", Unary("-", X)),
    "-5": Literal(-5),
    "- 5": Literal(-5),
    "-(5)": Unary("-", Literal(5)),
    "- -5": Unary("-", Literal(-5)),
    "x-5": Binary("-", X, Literal(5)),
    "x - -5": Binary("-", X, Literal(-5)),
    "-2 hours": Duration(-2 * HOUR),
    "9223372036854775807": Literal(2**63 - 1),
    "-9223372036854775808": Literal(-(2**63)),
    "007": Literal(7),
    "1.5": Literal(1.5),
    "-.5": Literal(-0.5),
    "1e3": Literal(1000.0),
    "2.5E-3": Literal(0.0025),
    "'a''b'": Literal("a'b"),
    "'two\nlines -- no comment'": Literal("two\nlines -- no comment"),
    "true": Literal(True),
    "FALSE": Literal(False),
    "Null": Literal(None),
    "a.x": AX,
    "`a`.`x`": AX,
    "ABS(-x)": Call("abs", (Unary("-", X),)),
    "now()": Call("now", ()),
    "SAME(x, `y z`)": Same(("x", "y z")),
    "CASE WHEN x THEN 1 ELSE 2 END": Case(((X, ONE),), TWO),
    "CASE x WHEN 1 THEN 2 WHEN 2 THEN 3 END": Case(((Binary("=", X, ONE), TWO), (Binary("=", X, TWO), THREE))),
    "TIMESTAMP '1970-01-02'": Timestamp(24 * HOUR),
    "TIMESTAMP '1970-01-01 00:00'": Timestamp(0),
    "timestamp '1970-01-01T01:00:00.000000001Z'": Timestamp(HOUR + 1, zoned=True),
    "TIMESTAMP '1970-01-01 03:00:00+02:00'": Timestamp(HOUR, zoned=True),
    "TIMESTAMP '1970-01-01 00:00:00 -0100'": Timestamp(HOUR, zoned=True),
    "TIMESTAMP '1969-12-31 23:59:59.5'": Timestamp(-500_000_000),
    "x -- a comment\n+ 1": Binary("+", X, ONE),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(text: str) -> None:
    assert parse_expression(text) == EXPRESSIONS[text]


def test_columns() -> None:
    assert parse_returns("a.x AS y, 1") == (Return(AX, "y"), Return(ONE))


def test_spans_are_where_the_text_stands() -> None:
    text = "PATTERN p SEQ(A a, NOT B b [x = 1]) WHERE a.x + 1 > -2 WITHIN 5 min"
    parsed = query(text)
    parts: list[Pattern | Expr] = [*walk(parsed.pattern)]
    assert parsed.where is not None
    assert isinstance(parsed.within, Duration)
    parts += [*walk_expression(parsed.where), parsed.within]
    assert [cut(text, part.span) for part in parts] == [
        "SEQ(A a, NOT B b [x = 1])", "A a", "NOT B b [x = 1]", "B b [x = 1]",
        "a.x + 1 > -2", "a.x + 1", "a.x", "1", "-2", "5 min",
    ]  # fmt: skip


def test_spans_of_operators_repetitions_and_policies() -> None:
    text = (
        "STREAM s FROM PATTERN SEQ(FOLLOWS(A a, B{2} ALL, 5 min), COLLECT C c+, LAST ANY EVENT BUT D e) "
        "CONSUME MATCH NEXT; PATTERN A a SHARE"
    )
    stream, shared = parse_statements(text).statements
    parts = [*walk(stream.pattern)][1:]
    assert isinstance(parts[0], Operation)
    assert [cut(text, part.span) for part in parts] == [
        "FOLLOWS(A a, B{2} ALL, 5 min)", "A a", "B{2} ALL", "B", "COLLECT C c+", "C c",
        "LAST ANY EVENT BUT D e", "ANY EVENT BUT D e",
    ]  # fmt: skip
    assert cut(text, parts[0].window and parts[0].window.span) == "5 min"
    assert cut(text, stream.span).startswith("STREAM s")
    assert cut(text, stream.policy_span) == "MATCH NEXT"
    assert cut(text, shared.policy_span) == "SHARE"


def cut(text: str, span: Span | None) -> str:
    assert span is not None
    return text[span.start : span.end]


@pytest.mark.parametrize(
    "expression",
    ["NOT " * 500 + "x", "- " * 500 + "x", "1 + " * 500 + "1", "abs(" * 500 + "x" + ")" * 500],
    ids=["not", "minus", "chain", "call"],
)
def test_deep_expressions_are_refused(expression: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_expression(expression)
    assert caught.value.code == "too-deep"


def test_the_syntax_of_other_systems() -> None:
    """`!`, double quotes and chains of `=` are the same nodes as NOT, single quotes and AND."""
    said = """PATTERN SEQ(A a, ! SEQ(B b, C c), !D d, E e)
      WHERE a.x = b.x == c.x = "it's ""so\""" AND a.y LIKE "x%" AND a.n > 1"""
    meant = """PATTERN SEQ(A a, NOT SEQ(B b, C c), NOT D d, E e)
      WHERE (a.x = b.x AND b.x = c.x AND c.x = 'it''s "so"') AND a.y LIKE 'x%' AND a.n > 1"""
    assert parse_statements(said).statements == parse_statements(meant).statements
    assert parse_expression('TIMESTAMP "2024-01-01" = "" = count(DISTINCT "a")') == parse_expression(
        "TIMESTAMP '2024-01-01' = '' AND '' = count(DISTINCT 'a')"
    )


def test_a_chain_has_the_depth_of_its_ands() -> None:
    within, beyond = (" = ".join(f"x{place}" for place in range(count)) for count in (150, 500))
    assert render_expression(parse_expression(within)).count(" AND ") == 148
    with pytest.raises(QueryError) as caught:
        parse_expression(beyond)
    assert caught.value.code == "too-deep"


def test_deep_patterns_are_refused() -> None:
    with pytest.raises(QueryError) as caught:
        parse_pattern("SEQ(" * 500 + "A" + ")" * 500)
    assert caught.value.code == "too-deep"


def test_parentheses_are_not_depth() -> None:
    assert parse_expression("(" * 5000 + "x" + ")" * 5000) == X


def test_the_deepest_query_can_be_used() -> None:
    text = " + ".join(["1"] * MAXIMAL_DEPTH)
    expression = parse_expression(text)
    assert expression == parse_expression(text)
    assert hash(expression) == hash(parse_expression(text))
    assert len([*walk_expression(expression)]) == 2 * MAXIMAL_DEPTH - 1
    assert render_expression(expression) == text
    assert repr(expression)
