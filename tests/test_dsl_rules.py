"""Each form of a rule in Python equals its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import ensue
from ensue import QueryError, rule, var
from ensue.fn import value
from ensue.rules import RuleItem, RuleStatement, atom, either, fact, name, on, stream, table, timer, together, while_
from inside import ALLEN, RELATIONS, TIMERS, Item, items_of, parse_items, parse_statements

ORDER = atom("order", "id", "p", "q").named("o")
SHIPPED = atom("shipped", "id", "_").named("s")

ITEMS: list[tuple[Any, str]] = [
    (ORDER, "o: order(id, p, q)"),
    (atom("order"), "order()"),
    (atom("order", name("id"), 5, -2.5, True, None), "order(id, 5, -2.5, TRUE, NULL)"),
    (atom("order", id="i", name="_", level=value("gold")), "order(id=i, name=_, level='gold')"),
    (atom("contains", name("_")), "`contains`(`_`)"),
    (atom("order line", "in"), "`order line`(`in`)"),
    (atom("shift", "w", 5).named("x"), "x: `shift`(w, 5)"),
    (~atom("blocked", "ip", "_"), "not blocked(ip, _)"),
    (~atom("contains", ip="x"), "not `contains`(ip=x)"),
    (ORDER.causes(SHIPPED), "o causes s"),
    (together(ORDER, SHIPPED, "w").within("2 hours"), "{o, s, w} within 2 hours"),
    (together("o").within(5), "{o} within 5"),
    (while_("w").no(atom("shipped", "id", "_")), "while w: not shipped(id, _)"),
    (while_(timer("w").extend("o", 5)).no("n: shipped(id)"), "while w: not n: shipped(id)"),
    (either("a: A(x)", ["b: B(x)", name("q") < 3]), "a: A(x) OR (b: B(x), q < 3)"),
    (either(either("a: A(x)", "b: B(x)"), "c: C(x)"), "a: A(x) OR b: B(x) OR c: C(x)"),
    (either(name("q") < 3, atom("A", "x")), "q < 3 OR A(x)"),
    (while_("w").collect(atom("shipped", "id").named("c")), "while w: collect c: shipped(id)"),
    (name("q") * 2 < 10, "q * 2 < 10"),
    (ORDER["s"] > var("s").e - 5, "o.s > s.e - 5"),
    (ensue.fn.call("startswith", name("p"), "a"), "startswith(p, 'a')"),
    ("o before s", "o before s"),
]
ITEMS += [(getattr(ORDER, relation)(SHIPPED), f"o {relation} s") for relation in sorted(RELATIONS)]
ITEMS += [(getattr(timer("w"), kind)(ORDER, "6 hours"), f"w: {kind}(o, 6 hours)") for kind in sorted(TIMERS)]
ITEMS += [(getattr(timer("w"), kind)("v", 5), f"w: {kind}(v, 5)") for kind in sorted(TIMERS)]

STATEMENTS: list[tuple[RuleStatement, str]] = [
    (
        rule("overdue", "id").when(
            ORDER, timer("w").extend(ORDER, "6 hours"), while_("w").no(atom("shipped", "id", "_")), name("q") < 10
        ),
        "RULE overdue(id) <- o: order(id, p, q), w: extend(o, 6 hours), while w: not shipped(id, _), q < 10",
    ),
    (
        rule("report", "id", "q * 2", "n = count(c)", 5, name("p"), total=ensue.fn.sum("q") * 2, kind=value("x")).when(
            "o: order(id, p), while o: collect c: shipped(id, q)"
        ),
        "RULE report(id, q * 2, n = count(c), 5, p, total = sum(q) * 2, kind = 'x') <- "
        "o: order(id, p), while o: collect c: shipped(id, q)",
    ),
    (rule("alarm").when("order(id)"), "RULE alarm() <- order(id)"),
    (fact("vip", 7, "gold", -1.5, None, True), "FACT vip(7, 'gold', -1.5, NULL, TRUE)"),
    (fact("vip"), "FACT vip()"),
    (fact("vip", id=7, level="gold"), "FACT vip(id=7, level='gold')"),
    (table("price", "product", "amount"), "TABLE price(product, amount)"),
    (stream("order", "id", "product", "qty"), "STREAM order(id, product, qty)"),
    (stream("tick"), "STREAM tick()"),
    (stream("span", "id", "up", id="id", parent="up"), "STREAM span(id, up) ID id PARENT up"),
    (stream("span", id="id", parent="up"), "STREAM span ID id PARENT up"),
    (stream("root", id="id"), "STREAM root ID id"),
    (stream("leaf", parent="up"), "STREAM leaf PARENT up"),
    (stream(id="id", parent="up"), "STREAM ANY EVENT ID id PARENT up"),
    (stream(id="id"), "STREAM ANY EVENT ID id"),
    (stream(parent="up"), "STREAM ANY EVENT PARENT up"),
    (
        on("overdue", "o").where("o.qty > 5", var("o").id != 3).do("notify", "o.id", urgent=True),
        "ON overdue o WHERE o.qty > 5 AND o.id != 3 DO notify(o.id, urgent = TRUE)",
    ),
    (on("overdue", "o").do("notify"), "ON overdue o DO notify()"),
    (on("a", "o").do("f", "x = o.id", y="o.id + 1", z=value("o")), "ON a o DO f(x = o.id, y = o.id + 1, z = 'o')"),
]


@pytest.mark.parametrize(("built", "text"), ITEMS, ids=[text for _, text in ITEMS])
def test_items_equal_their_text(built: Any, text: str) -> None:
    assert items_of(built) == parse_items(text)


@pytest.mark.parametrize(("built", "text"), STATEMENTS, ids=[text for _, text in STATEMENTS])
def test_statements_equal_their_text(built: RuleStatement, text: str) -> None:
    ruleset = parse_statements(text).ruleset
    assert ruleset is not None
    assert (*ruleset.rules, *ruleset.facts, *ruleset.tables, *ruleset.streams, *ruleset.actions) == (built.node,)
    assert parse_statements(built.to_text()).ruleset == ruleset


def test_every_relation_and_timer_has_a_method() -> None:
    assert set(ALLEN) <= RELATIONS
    assert len(RELATIONS) == 13
    assert {*RELATIONS, "causes"} <= set(dir(ORDER))
    assert set(dir(timer("w"))) >= TIMERS


def test_nodes_are_items_too() -> None:
    items: list[Item] = [*parse_items("o: order(id), q < 5")]
    assert rule("a", "id").when(*items) == rule("a", "id").when("o: order(id)", name("q") < 5)


def test_a_value_shows_its_text() -> None:
    assert repr(ORDER) == 'AtomItem("o: order(id, p, q)")'
    assert repr(ORDER.before("s")) == 'RuleItem("o before s")'
    assert repr(fact("vip", 7)) == 'RuleStatement("FACT vip(7)")'


def test_a_list_of_rules_and_queries_is_a_program() -> None:
    events = pa.table({"t": [1, 2, 3], "type": ["order", "shipped", "order"], "id": [7, 7, 8]})
    shipped = rule("done", "id").when(
        atom("order", id="id").named("o"), atom("shipped", id="id").named("s"), "o before s"
    )
    pair = ensue.seq("order o", "shipped s").within(5).as_pattern("pair")
    text = "RULE twice(id) <- done(id)"
    found = ensue.run(events, [shipped, pair, text], time="t", type="type")
    assert {head: found[head].num_rows for head in ("done", "twice", "pair")} == {"done": 1, "twice": 1, "pair": 1}
    assert ensue.run(events, shipped, time="t", type="type")["done"].to_pylist() == found["done"].to_pylist()


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: atom("order", "id", qty="q"), "mixed-arguments"),
        (lambda: fact("vip", 7, level="gold"), "mixed-arguments"),
        (lambda: atom("order", name("q") + 1), "argument-form"),
        (lambda: fact("vip", name("q")), "argument-form"),
        (lambda: timer("w").extend("o", "5 events"), "timer-length"),
        (lambda: timer("w").extend("o", -5), "window-size"),
        (lambda: together("o", "s").within("5 events"), "rule-window"),
        (lambda: rule("a", "id").when("o: order(id"), "syntax"),
        (lambda: rule("a", "id +").when("o: order(id)"), "syntax"),
        (lambda: rule("a", "").when("o: order(id)"), "empty-query"),
        (lambda: rule("a", "id").when(""), "empty-query"),
    ],
)
def test_what_is_refused_at_once(build: Callable[[], object], code: str) -> None:
    with pytest.raises(QueryError) as caught:
        build()
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: atom("order", "id").before("s"), "has no name"),
        (lambda: ORDER.before(5), "takes a name"),  # type: ignore[arg-type]
        (lambda: atom(5), "takes a name"),  # type: ignore[arg-type]
        (lambda: atom("order", var("o")), "not the variable"),
        (lambda: rule("a", "id").when(), "ensue.rules.fact"),
        (lambda: rule("a", "id").when(5), "a rule item must be"),  # type: ignore[arg-type]
        (lambda: rule(5), "takes names"),  # type: ignore[arg-type]
        (lambda: table("price"), "at least one column"),
        (lambda: stream(), "the name of a stream"),
        (lambda: together(), "at least one item"),
        (lambda: either("a: A(x)"), "either takes at least two choices"),
        (lambda: either("a: A(x)", []), "each choice at least one item"),
        (lambda: while_("w").no("q < 5"), "expected an event"),
        (lambda: while_("w").no(RuleItem(parse_items("a before b")[0])), "expected an event"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_part_of_a_rule(build: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        build()


def test_policies_with_attributes_by_position() -> None:
    """The names of the attributes are known only with the tables."""
    events = {"A": pa.table({"t": [1, 2], "x": [1, 2]}), "B": pa.table({"t": [3, 4], "y": [1, 1]})}
    expected = {"RECENT": [(2, 3), (2, 4)], "CHRONICLE": [(1, 3), (2, 4)]}
    for policy, intervals in expected.items():
        found = ensue.run(events, f"RULE h(p, q) <- A(p), B(q) MATCH {policy}", time="t")["h"].to_pylist()
        assert [(row["start"], row["end"]) for row in found] == intervals
        assert [row["p"] for row in found] == [start for start, _ in intervals]


def test_a_chosen_match_is_proved_by_its_rule() -> None:
    events = pa.table({"t": [1, 2, 3], "type": ["A", "A", "B"], "x": [1, 1, 1]})
    text = "RULE h(p) <- a: A(x=p), b: B(x=p), a before b MATCH RECENT"
    proof = ensue.justify(events, text, {"start": 2, "end": 3, "p": 1}, time="t", type="type")
    assert f"by {text}" in str(proof)


def test_policies_of_a_rule() -> None:
    built = rule("h", "x").when("a: A(x)", "b: B(x)", "a before b")
    assert built.match("recent").to_text() == "RULE h(x) <- a: A(x), b: B(x), a before b MATCH RECENT"
    assert built.consume().to_text() == "RULE h(x) <- a: A(x), b: B(x), a before b CONSUME"
    with pytest.raises(QueryError, match="unknown policy `latest`"):
        built.match("latest")
    with pytest.raises(TypeError, match="expected a rule, found `FACT vip"):
        fact("vip", 7).consume()
