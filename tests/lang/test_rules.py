"""Rules, facts, declarations and actions: which text stands for which values, and that the values give such a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

import ensue
from ensue import QueryError
from inside import (
    RELATIONS,
    TIMERS,
    Absent,
    Action,
    ActionArgument,
    Anything,
    Argument,
    Atom,
    Binary,
    Call,
    Causes,
    Condition,
    Duration,
    Expr,
    Fact,
    Field,
    HeadArgument,
    Item,
    Literal,
    Rule,
    Ruleset,
    Span,
    Statements,
    StreamDeclaration,
    TableDeclaration,
    Temporal,
    Ticks,
    TimerItem,
    Together,
    While,
    parse_argument,
    parse_expression,
    parse_items,
    parse_statements,
    render_statements,
)
from inside import BoundName as Name
from strategies import nodes, rulesets

HOUR = 3_600_000_000_000


def ruleset(text: str) -> Ruleset:
    found = parse_statements(text).ruleset
    assert found is not None
    return found


def only_item(text: str) -> Item:
    (item,) = parse_items(text)
    return item


def atom(stream: str, *names: str, name: str | None = None) -> Atom:
    return Atom(stream, tuple(Argument(Name(bound)) for bound in names), name)


def test_a_rule() -> None:
    text = "RULE overdue(id) <- o: order(id, p, q), w: extend(o, 6 hours), while w: not shipped(id, _), q < 10;"
    shipped = Atom("shipped", (Argument(Name("id")), Argument(Anything())))
    body = (
        atom("order", "id", "p", "q", name="o"),
        TimerItem("w", "extend", "o", Duration(6 * HOUR)),
        While("w", shipped),
        Condition(Binary("<", Field(None, "q"), Literal(10))),
    )
    assert parse_statements(text) == Statements(
        (), ruleset=Ruleset((Rule("overdue", (HeadArgument(Field(None, "id")),), body),))
    )


def test_both_arrows() -> None:
    assert ruleset("RULE a(x) <- b(x)") == ruleset("rule a ( x ) :- b ( x ) ;")


def test_a_head_has_expressions_and_names() -> None:
    (rule,) = ruleset("RULE a(id, q * 2, n = count(c), same = x = y, (x = y), `in`=1) <- b(id)").rules
    assert [(argument.attribute, argument.expression) for argument in rule.arguments] == [
        (None, Field(None, "id")),
        (None, parse_expression("q * 2")),
        ("n", Call("count", (Field(None, "c"),))),
        ("same", parse_expression("x = y")),
        (None, parse_expression("x = y")),
        ("in", Literal(1)),
    ]


ITEMS: list[tuple[str, Item]] = [
    ("order()", Atom("order", ())),
    ("Order(id, p)", atom("Order", "id", "p")),
    ("order(id=i, qty=5)", Atom("order", (Argument(Name("i"), "id"), Argument(Literal(5), "qty")))),
    ("`order line`(`in`)", atom("order line", "in")),
    ("`_`(`_`, _)", Atom("_", (Argument(Name("_")), Argument(Anything())))),
    (
        "order('x', -5, -2.5, TRUE, NULL)",
        Atom("order", tuple(Argument(Literal(value)) for value in ("x", -5, -2.5, True, None))),
    ),
    ("w: extend(o, 5)", TimerItem("w", "extend", "o", Ticks(5))),
    ("w: EXTEND(o, 0)", TimerItem("w", "extend", "o", Ticks(0))),
    ("w: extend(o, 1 hour 30 minutes)", TimerItem("w", "extend", "o", Duration(HOUR * 3 // 2))),
    ("w: `extend`(o, 5)", Atom("extend", (Argument(Name("o")), Argument(Literal(5))), "w")),
    ("shift(worker, start)", atom("shift", "worker", "start")),
    ("not blocked(id, _)", Absent(Atom("blocked", (Argument(Name("id")), Argument(Anything()))))),
    ("NOT `contains`(id)", Absent(atom("contains", "id"))),
    ("while w: not shipped(id)", While("w", atom("shipped", "id"))),
    ("WHILE w: NOT n: shipped(id)", While("w", atom("shipped", "id", name="n"))),
    ("while w: collect shipped(id)", While("w", atom("shipped", "id"), collects=True)),
    ("while w: collect c: shipped(id)", While("w", atom("shipped", "id", name="c"), collects=True)),
    ("{o, s, w} within 2 hours", Together(("o", "s", "w"), Duration(2 * HOUR))),
    ("{o} WITHIN 5", Together(("o",), Ticks(5))),
    ("o Before s", Temporal("o", "before", "s")),
    ("x causes y", Causes("x", "y")),
    ("contains(x, 'a')", Condition(parse_expression("contains(x, 'a')"))),
    ("CONTAINS(x, 'a')", Condition(parse_expression("contains(x, 'a')"))),
    ("`contains`(x)", atom("contains", "x")),
    ("c: contains(x)", atom("contains", "x", name="c")),
    ("(order(id))", Condition(Call("order", (Field(None, "id"),)))),
    ("startswith(p, 'a') AND q < 5", Condition(parse_expression("startswith(p, 'a') AND q < 5"))),
    ("o.s > s.e - 5", Condition(parse_expression("o.s > s.e - 5"))),
    ("urgent", Condition(Field(None, "urgent"))),
    ("NOT urgent", Condition(parse_expression("NOT urgent"))),
]
ITEMS += [(f"o {relation} s", Temporal("o", relation, "s")) for relation in sorted(RELATIONS)]
ITEMS += [(f"w: {kind}(o, 5)", TimerItem("w", kind, "o", Ticks(5))) for kind in sorted(TIMERS)]


@pytest.mark.parametrize(("text", "item"), ITEMS, ids=[text for text, _ in ITEMS])
def test_items(text: str, item: Item) -> None:
    assert only_item(text) == item


WORDS = (
    "before", "contains", "starts", "while", "collect", "on", "do", "id", "parent", "table", "fact", "rule", "causes",
    "extend", "stream", "pattern", "first", "end", "within_", "event",
)  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("spelling", [str.lower, str.upper], ids=["lower", "upper"])
def test_the_words_of_rules_are_names_elsewhere(word: str, spelling: type[str]) -> None:
    w = spelling(word)
    text = (
        f"PATTERN SEQ({w} {w}, A a [{w} > 1]) WHERE {w}.{w} = a.{w} PARTITION BY {w} WITHIN 5 RETURN {w}.{w} AS {w};"
        f"STREAM {w} FROM PATTERN A {w}; STREAM {w}({w}) ID {w} PARENT {w}; TABLE {w}({w}); FACT {w}({w}=1);"
        f"RULE {w}({w}, {w} = {w}.{w}) <- {w}: A({w}), w: extend({w}, 5), {w} before {w}, {w} causes {w}, "
        f"while {w}: not A({w}={w}), while {w}: collect {w}: {w}({w}), {{{w}, {w}}} within 5, {w} < {w}.{w};"
        f"ON {w} {w} WHERE {w}.{w} > {w} DO {w}({w}.{w}, {w} = {w})"
    )
    if word in ("first", "collect"):
        text = text.replace(f"SEQ({w} {w}", f"SEQ(`{w}` {w}")
    statements = parse_statements(text)
    rules = ruleset(text)
    assert rules.rules[0].body[2:4] == (Temporal(w, "before", w), Causes(w, w))
    assert rules.rules[0].body[5] == While(w, atom(w, w, name=w), collects=True)
    assert rules.streams == (StreamDeclaration(w, (w,), w, w),)
    assert (rules.actions[0].stream, rules.actions[0].variable, rules.actions[0].action) == (w, w, w)
    assert parse_statements(render_statements(statements)) == statements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FACT vip(7, 'gold')", Fact("vip", (Literal(7), Literal("gold")))),
        ("fact vip(id=-7, level='gold')", Fact("vip", (Literal(-7), Literal("gold")), ("id", "level"))),
        ("TABLE price(product, amount)", TableDeclaration("price", ("product", "amount"))),
        ("STREAM order(id, qty)", StreamDeclaration("order", ("id", "qty"))),
        ("STREAM tick()", StreamDeclaration("tick", ())),
        ("STREAM span(id, up) ID id PARENT up", StreamDeclaration("span", ("id", "up"), "id", "up")),
        ("STREAM span(id, up) PARENT up", StreamDeclaration("span", ("id", "up"), None, "up")),
        ("STREAM span id id parent up", StreamDeclaration("span", None, "id", "up")),
        ("STREAM span PARENT up", StreamDeclaration("span", None, None, "up")),
        ("STREAM ANY EVENT ID id PARENT up", StreamDeclaration(None, None, "id", "up")),
        ("STREAM any event PARENT up", StreamDeclaration(None, None, None, "up")),
        ("STREAM any(id)", StreamDeclaration("any", ("id",))),
        ("ON a o DO f()", Action("a", "o", "f", ())),
        (
            "ON a o WHERE o.q > 5 DO f(o.id, u = TRUE)",
            Action(
                "a",
                "o",
                "f",
                (ActionArgument(Field("o", "id")), ActionArgument(Literal(True), "u")),
                Binary(">", Field("o", "q"), Literal(5)),
            ),
        ),
    ],
)
def test_other_statements(text: str, expected: object) -> None:
    found = ruleset(text)
    assert (*found.rules, *found.facts, *found.tables, *found.streams, *found.actions) == (expected,)


def test_a_text_without_rules_has_no_ruleset() -> None:
    assert parse_statements("PATTERN A a; STREAM s FROM PATTERN B b; CONSTRAINT PRIOR(A, B)").ruleset is None


def test_statements_of_all_kinds_in_any_order() -> None:
    text = "ON h o DO f(); PATTERN A a; RULE h(x) <- A(x); CONSTRAINT ENDS(A); FACT t(1); RULE h(x) <- B(x); TABLE t(x)"
    statements = parse_statements(text)
    assert len(statements.statements) == len(statements.constraints) == 1
    found = ruleset(text)
    assert [len(kind) for kind in (found.rules, found.facts, found.tables, found.streams, found.actions)] == [
        2, 1, 1, 0, 1,
    ]  # fmt: skip
    assert found.heads == ("h",)


def test_places_in_the_text() -> None:
    text = "RULE a(x + 1) <- o: b(x), while o: not n: c(x)"
    (rule,) = ruleset(text).rules
    first, second = rule.body
    assert isinstance(first, Atom)
    assert isinstance(second, While)

    def cited(span: Span | None) -> str:
        assert span is not None
        return text[span.start : span.end]

    assert cited(rule.span) == text
    assert cited(rule.arguments[0].span) == "x + 1"
    assert cited(first.span) == "o: b(x)"
    assert cited(first.arguments[0].span) == "x"
    assert cited(second.span) == "while o: not n: c(x)"
    assert cited(second.atom.span) == "c(x)"


def test_an_argument_by_itself() -> None:
    expression, name, _ = parse_argument("total = sum(q)")
    assert (expression, name) == (parse_expression("sum(q)"), "total")


LAYOUTS = [
    "RULE a(id, n = count(c), (x = y)) <- o: b(id=i, q=_), (late(x)), `contains`(x), o before s;\n",
    "RULE a() <-\n  " + ",\n  ".join(f"x{number}: order_line_{number}(id)" for number in range(6)) + ";\n",
    "STREAM ANY EVENT ID id;\nTABLE t(x, y);\nFACT t(1, 'x');\nFACT t(x=1, y=NULL);\n\n"
    "CONSTRAINT ENDS(A);\n\nPATTERN A a;\n\nRULE h(x) <- A(x);\n\nON h o DO f(o.x, y = 1);\nON h o DO f();\n",
    "ON h o\n  WHERE " + "\n    AND ".join(f"o.field_number_{n} > {n}" for n in range(8)) + "\n  DO f();\n",
]


@pytest.mark.parametrize("text", LAYOUTS)
def test_layout(text: str) -> None:
    assert render_statements(parse_statements(text)) == text


@given(nodes.statements, rulesets.rulesets)
def test_rules_survive_their_text(statements: Statements, rules: Ruleset) -> None:
    both = replace(statements, ruleset=rules)
    assert parse_statements(render_statements(both)) == both


@given(rulesets.conditions)
def test_conditions_of_the_strategy_are_read_as_such(expression: Expr) -> None:
    (rule,) = ruleset(
        render_statements(Statements((), ruleset=Ruleset((Rule("h", (), (Condition(expression),)),))))
    ).rules
    assert rule.body == (Condition(expression),)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("RULE a(x) <- order(x, qty=q)", "mixed-arguments"),
        ("FACT a(1, x=2)", "mixed-arguments"),
        ("ON a o DO f(x = 1, 2)", "mixed-arguments"),
        ("RULE a(x) <- order(x + 1)", "argument-form"),
        ("RULE a(x) <- order(sum(x))", "argument-form"),
        ("RULE a(x) <- order(o.x)", "argument-form"),
        ("RULE a(x) <- order(q=x + 1)", "argument-form"),
        ("RULE a(x) <- order(5 hours)", "argument-form"),
        ("RULE a(x) <- o: `order`(5 EVENTS)", "argument-form"),
        ("RULE a(x) <- while o: not order(5 EVENTS)", "argument-form"),
        ("RULE a(x) <- order(TIMESTAMP '2024-01-01')", "argument-form"),
        ("RULE a(_) <- order(_)", "argument-form"),
        ("RULE a(x = _ + 1) <- order(_)", "argument-form"),
        ("FACT a(x)", "argument-form"),
        ("FACT a(1 + 1)", "argument-form"),
        ("RULE a(x) <- o: order(x), w: extent(o, 6 hours)", "unknown-timer"),
        ("RULE a(x) <- o: order(x), w: order(o, 5 EVENTS)", "unknown-timer"),
        ("RULE a(x) <- o: order(x), w: extend(o, -1 hour)", "timer-length"),
        ("RULE a(x) <- o: order(x), w: extend(o, -1)", "timer-length"),
        ("RULE a(x) <- o: order(x), w: extend(o, 5 EVENTS)", "timer-length"),
        ("RULE a(x) <- o: order(x), w: extend(o, 1.5)", "timer-length"),
        ("RULE a(x) <- o: order(x), w: extend(o, TRUE)", "timer-length"),
        ("RULE a(x) <- o: order(x), w: extend(o, d)", "timer-length"),
        ("RULE a(x) <- o: order(x), w: extend(o)", "timer-arguments"),
        ("RULE a(x) <- o: order(x), w: extend(6 hours, o)", "timer-arguments"),
        ("RULE a(x) <- o: order(x), extend(o, 6 hours)", "timer-arguments"),
        ("RULE a(x) <- o: order(x), {o} within 5 EVENTS", "rule-window"),
        ("RULE a(x) <- o: order(x), {o} within -5", "window-size"),
        ("RULE a(x) <- order(x), NOT (shipped(x))", "unknown-function"),
        ("TABLE a(x, x)", "duplicate-column"),
        ("STREAM a(x, y, x)", "duplicate-column"),
        ("FACT a(x=1, x=2)", "duplicate-column"),
    ],
)
def test_what_is_refused(text: str, code: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_statements(text)
    assert {problem.code for problem in caught.value.problems} == {code}
    assert all(problem.span is not None for problem in caught.value.problems)


def test_a_backticked_underscore_is_a_name_in_a_head() -> None:
    (rule,) = ruleset("RULE a(`_`) <- order(`_`)").rules
    assert rule.arguments == (HeadArgument(Field(None, "_")),)


def test_the_language_page_names_every_timer_and_relation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "language.md").read_text("utf-8")
    assert [word for word in sorted(RELATIONS | TIMERS) if f"`{word}`" not in page] == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("RULE a(x) <- order(x), NOT shipped(x)", "name the interval without such events: `while w: not shipped(x)`"),
        ("RULE late(id) <- o = order(id)", "write a colon after the name of an item: `o: order(id)`"),
        (
            "RULE late(id) <- o: order(id), w = extend(o, 6 hours)",
            "write a colon after the name of an item: `w: extend(o, 6h)`",
        ),
    ],
)
def test_an_event_inside_a_condition(text: str, hint: str) -> None:
    """A function of the user could have this name, so the check says it, not the parser."""
    with pytest.raises(QueryError) as caught:
        ensue.parse(text)
    (problem,) = caught.value.problems
    assert (problem.code, problem.hint) == ("unknown-function", hint)
