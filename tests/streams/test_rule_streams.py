"""Streams that rules make: several statements for one, sets, recursion, and rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import ensue
from ensue import Detector, LimitError, QueryError, SchemaError, StateError
from inside import Lookup, TableDeclaration, derived, turn
from streams.rule_programs import program

EDGES = [(1, 2), (2, 3), (3, 1), (3, 4), (1, 3), (4, 4)]
REACHES = """
    STREAM reach FROM PATTERN Edge e RETURN e.a AS a, e.b AS b;
    STREAM reach FROM PATTERN AND(reach x, Edge e) WHERE x.b = e.a RETURN x.a AS a, e.b AS b;
    PATTERN reach v RETURN v.s AS start, v.e AS end, v.a AS a, v.b AS b
"""
PRICES = pa.table({"product": [1, 2, 1, None], "amount": [5.0, 6.0, 7.0, 8.0]})
PRICED = Lookup("price", (("p", "product"),), (("amount", "cost"),))
PRICE = TableDeclaration("price", ("product", "amount"))


def events(*rows: tuple[int, str, dict[str, Any]]) -> pa.Table:
    names = dict.fromkeys(name for _, _, fields in rows for name in fields)
    columns = {name: [fields.get(name) for _, _, fields in rows] for name in names}
    return pa.table({"t": [time for time, _, _ in rows], "type": [kind for _, kind, _ in rows], **columns})


def edges(pairs: Sequence[tuple[int, int]]) -> pa.Table:
    return events(*((time, "Edge", {"a": a, "b": b}) for time, (a, b) in enumerate(pairs, start=1)))


def found(table: pa.Table, written: Any, **more: Any) -> list[dict[str, Any]]:
    return ensue.detect(table, written, time="t", type="type", **more).to_pylist()


def in_steps(table: pa.Table, written: Any, size: int, **more: Any) -> list[dict[str, Any]]:
    """The same in steps of so many rows, each with a detector that goes on from what the last one has saved."""
    matches: list[dict[str, Any]] = []
    saved = None
    for begin in range(0, table.num_rows, size):
        detector = Detector(written, time="t", type="type", **more)
        if saved is not None:
            detector.restore(saved)
        rows = table.slice(begin, size)
        matches += detector.advance(rows, watermark=rows.column("t")[-1].as_py()).matches.to_pylist()
        saved = detector.snapshot()
    return matches + detector.finish().matches.to_pylist()


def reached(pairs: Sequence[tuple[int, int]]) -> set[tuple[int, int, int, int]]:
    """The paths, by trying every one: from the first to the last time of their edges, which may be used again."""
    known = {(time, time, a, b) for time, (a, b) in enumerate(pairs, start=1)}
    single = set(known)
    while True:
        longer = {
            (min(start, time), max(end, time), a, c) for start, end, a, b in known for time, _, d, c in single if b == d
        }
        if longer <= known:
            return known
        known |= longer


# -- several statements -----------------------------------------------------------------------------------------------


def test_events_of_all_statements_in_one_type() -> None:
    table = events((1, "A", {"x": 1}), (2, "B", {"x": 2}), (3, "A", {"x": None}))
    rules = program("""
        STREAM h FROM PATTERN A a RETURN a.x AS k;
        STREAM h FROM PATTERN B b RETURN b.x * 1.5 AS k;
        PATTERN h v RETURN v.k AS k, v.e AS at
    """)
    expected = [{"k": 1.0, "at": 1}, {"k": 3.0, "at": 2}, {"k": None, "at": 3}]
    assert found(table, rules) == expected
    assert in_steps(table, rules, 1) == expected


def test_null_and_lists_meet_other_types() -> None:
    table = events((1, "A", {"x": 1}), (2, "B", {"x": 2}), (3, "B", {"x": 5}), (4, "C", {}))
    rules = program("""
        STREAM h FROM PATTERN SEQ(A a, COLLECT B b, C c) RETURN list(b.x) AS k, NULL AS n;
        STREAM h FROM PATTERN SEQ(A a, COLLECT B b, C c) RETURN list(b.x * 0.5) AS k, a.x AS n;
        PATTERN h v RETURN v.k AS k, v.n AS n
    """)
    assert found(table, rules) == [{"k": [1.0, 2.5], "n": 1}, {"k": [2.0, 5.0], "n": None}]


def test_types_of_one_head_differ() -> None:
    rules = program("STREAM h FROM PATTERN A a RETURN a.x AS k; STREAM h FROM PATTERN A a RETURN 'x' AS k; PATTERN h v")
    with pytest.raises(QueryError) as caught:
        found(events((1, "A", {"x": 1})), rules)
    assert caught.value.code == "head-types"
    assert [problem.message for problem in caught.value.problems] == [
        "`k` of `h` has type text here, but type integer in an earlier rule",
        "`k` of `h` has type integer here",
    ]


def test_only_rules_may_share_a_stream() -> None:
    text = "STREAM h FROM PATTERN A a RETURN a.x AS k; STREAM h FROM PATTERN B b RETURN b.x AS k; PATTERN h v"
    with pytest.raises(QueryError, match="duplicate-stream"):
        ensue.parse(text)


# -- sets -------------------------------------------------------------------------------------------------------------


def test_equal_events_are_one() -> None:
    table = events((1, "A", {"x": 1}), (1, "A", {"x": 1}), (1, "A", {"x": None}), (1, "A", {"x": None}))
    rules = program("""
        STREAM h FROM PATTERN A a RETURN a.x AS k;
        STREAM h FROM PATTERN A a RETURN a.x AS k;
        PATTERN h v RETURN v.k AS k
    """)
    assert found(table, rules) == [{"k": None}, {"k": 1}]


def test_events_differ_in_what_nobody_reads() -> None:
    table = events((1, "A", {"x": 1}), (1, "A", {"x": 2}), (1, "A", {"x": 2}))
    rules = program("STREAM h FROM PATTERN A a RETURN a.x AS k, 7 AS n; PATTERN h v RETURN v.n AS n")
    assert found(table, rules) == [{"n": 7}, {"n": 7}]
    assert in_steps(table, rules, 3) == [{"n": 7}, {"n": 7}]


def test_lists_are_told_apart() -> None:
    table = events((1, "A", {"x": 1}), (1, "A", {"x": 2}), (2, "B", {"x": 1}), (3, "B", {"x": 2}), (4, "C", {}))
    rules = program("""
        STREAM h FROM PATTERN SEQ(A a, COLLECT B b, C c) WHERE b.x <= a.x RETURN list(b.x) AS k;
        STREAM h FROM PATTERN SEQ(A a, COLLECT B b, C c) RETURN list(b.x) AS k;
        PATTERN h v RETURN v.k AS k
    """)
    assert found(table, rules) == [{"k": [1]}, {"k": [1, 2]}]


def test_lineage_is_that_of_all_ways() -> None:
    table = events((1, "A", {"x": 1}), (1, "A", {"x": 2}), (3, "B", {"x": 9}))
    text = "STREAM h FROM PATTERN SEQ(A a, B b) RETURN b.x AS k; PATTERN h v RETURN lineage() AS l"
    one_way, both = program(text.replace("A a", "A a [a.x = 1]")), program(text)
    ((first,), (together,)) = found(table, one_way), found(table, both)
    assert len(first["l"]) == 2
    assert len(together["l"]) == 3
    assert set(first["l"]) < set(together["l"])
    assert together["l"][-1] == first["l"][-1]


# -- recursion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_reachable(size: int) -> None:
    rules, table = program(REACHES), edges(EDGES)
    rows = found(table, rules)
    assert {tuple(row.values()) for row in rows} == reached(EDGES)
    assert len(rows) == len(reached(EDGES))
    assert in_steps(table, rules, size) == rows


def test_two_items_of_the_own_stream() -> None:
    rules = program(REACHES.replace("AND(reach x, Edge e)", "AND(reach x, reach e)"))
    pairs = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    rows = found(edges(pairs), rules)
    assert {tuple(row.values()) for row in rows} == reached(pairs)
    assert in_steps(edges(pairs), rules, 2) == rows


def test_streams_that_use_each_other() -> None:
    rules = program("""
        STREAM odd FROM PATTERN Edge e RETURN e.b AS b;
        STREAM odd FROM PATTERN SEQ(even x, Edge e) WHERE x.b = e.a RETURN e.b AS b;
        STREAM even FROM PATTERN SEQ(odd x, Edge e) WHERE x.b = e.a RETURN e.b AS b;
        PATTERN even v RETURN v.s AS start, v.e AS end, v.b AS b
    """)
    pairs = [(1, 2), (2, 3), (3, 4), (4, 5)]
    expected = [(1, 2, 3), (2, 3, 4), (1, 4, 5), (3, 4, 5)]
    assert [tuple(row.values()) for row in found(edges(pairs), rules)] == expected
    assert [tuple(row.values()) for row in in_steps(edges(pairs), rules, 1)] == expected


def test_types_follow_from_the_recursion() -> None:
    rules = program("""
        STREAM n FROM PATTERN A a RETURN a.x AS k, NULL AS half;
        STREAM n FROM PATTERN n v WHERE v.k < 3 RETURN v.k + 1 AS k, v.k / 2 AS half;
        PATTERN n v RETURN v.k AS k, v.half AS half
    """)
    rows = [{"k": 1, "half": None}, {"k": 2, "half": 0.5}, {"k": 3, "half": 1.0}]
    assert found(events((1, "A", {"x": 1})), rules) == rows


def test_lineage_grows_with_the_recursion() -> None:
    """1 reaches 4 by 2 and, one step longer, by 3: what follows from it has the events of both ways."""
    pairs = [(1, 2), (2, 4), (1, 3), (3, 2), (4, 5)]
    table = events(*((1, "Edge", {"a": a, "b": b}) for a, b in pairs))
    rules = program(REACHES.replace("RETURN v.s AS start", "RETURN lineage() AS l, v.s AS start"))
    made = {(row["a"], row["b"]): len(row["l"]) for row in found(table, rules)}
    assert made[1, 4] == 4
    assert made[1, 5] == 5
    assert made[2, 5] == 2


def test_without_end() -> None:
    rules = program("""
        STREAM n FROM PATTERN A a RETURN a.x AS k;
        STREAM n FROM PATTERN n v RETURN v.k + 1 AS k;
        PATTERN n v
    """)
    table = events((1, "A", {"x": 1}))
    with pytest.raises(LimitError, match="stream `n` has more than 50 events") as caught:
        found(table, rules, limits=ensue.Limits(matches=50))
    assert caught.value.code == "too-many-events"
    with pytest.raises(LimitError, match="stream `n` has more than 50 events"):
        in_steps(table, rules, 1, limits=ensue.Limits(matches=50))


def test_rounds_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "MOST_ROUNDS", 20)
    rules = program("""
        STREAM n FROM PATTERN A a RETURN a.x AS k;
        STREAM n FROM PATTERN n v RETURN v.k + 1 AS k;
        PATTERN n v
    """)
    with pytest.raises(LimitError, match="stream `n` still has new events after 20 rounds"):
        found(events((1, "A", {"x": 1})), rules)


def test_cycle_through_a_stream_that_is_no_rule() -> None:
    text = "STREAM g FROM PATTERN h v RETURN v.k AS k; RULE h(k) <- A(k=k); RULE h(k) <- g(k); PATTERN h v"
    with pytest.raises(QueryError, match="stream-cycle"):
        found(events((1, "A", {"k": 1})), text)


def test_events_of_before_are_kept_as_long_as_the_rule_needs() -> None:
    rules = program("""
        STREAM run FROM PATTERN A a RETURN a.x AS k;
        STREAM run FROM PATTERN SEQ(run r, A a) WITHIN 3 RETURN a.x AS k;
        PATTERN run v WITHIN 100 RETURN v.s AS start, v.e AS end
    """)
    detector = Detector(rules, time="t", type="type")
    kept = []
    for time in range(1, 40):
        detector.advance(events((time, "A", {"x": 1})), watermark=time)
        kept.append(detector.kept_rows)
    assert kept[-1] == kept[10]


LINKS = """
    STREAM Edge(a, b); FACT vip(1);
    RULE reach(a, b) <- Edge(a, b), vip(a);
    RULE reach(a, c) <- x: reach(a, b), y: Edge(b, c), x before y, {x, y} within 40;
"""


def test_a_state_is_known_by_its_rules_and_not_by_rows() -> None:
    detector = Detector(LINKS, time="t", type="type")
    detector.advance(edges([(1, 2), (2, 3)]), watermark=2)
    saved = detector.snapshot()
    other_rows = Detector(LINKS.replace("FACT vip(1)", "FACT vip(1); FACT vip(9)"), time="t", type="type")
    other_rows.restore(saved)
    step = other_rows.finish(edges([(0, 0), (0, 0), (3, 4), (9, 8)]).slice(2))
    found_then = [(row["a"], row["b"]) for row in step.matches.to_pylist()]
    assert found_then == [(1, 4), (9, 8)]
    other_rule = Detector(LINKS.replace("within 40", "within 30"), time="t", type="type")
    with pytest.raises(StateError, match="state-query"):
        other_rule.restore(saved)


# -- sharing ----------------------------------------------------------------------------------------------------------


def test_a_stream_is_worked_out_once_for_all_who_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[str] = []
    evaluate = turn.evaluate

    def counting(plan: Any, *given: Any) -> Any:
        looked_for.append(plan.query.name or "")
        return evaluate(plan, *given)

    monkeypatch.setattr(turn, "evaluate", counting)
    rules = program("""
        STREAM h FROM PATTERN A a RETURN a.x AS k;
        STREAM one FROM PATTERN h v RETURN v.k + 1 AS k;
        STREAM two FROM PATTERN h v RETURN v.k + 2 AS k;
        STREAM two FROM PATTERN SEQ(h v, h w) RETURN v.k AS k;
        PATTERN AND(one x, two y) RETURN x.k AS k
    """)
    assert found(events((1, "A", {"x": 1})), rules) == [{"k": 2}]
    assert sorted(looked_for) == ["", "h", "one", "two", "two"]


# -- tables -----------------------------------------------------------------------------------------------------------


def priced(**more: Any) -> ensue.Program:
    text = "STREAM order FROM PATTERN Sold o RETURN o.p AS p; PATTERN order v RETURN v.p AS p, v.cost AS cost"
    return program(text, {0: PRICED}, **{"tables": [PRICE], **more})


SOLD = events((1, "Sold", {"p": 1}), (2, "Sold", {"p": 2}), (3, "Sold", {"p": 9}), (4, "Sold", {"p": None}))
COSTS = [{"p": 1, "cost": 5.0}, {"p": 1, "cost": 7.0}, {"p": 2, "cost": 6.0}]


def test_one_event_for_each_row() -> None:
    assert found(SOLD, priced(), tables={"price": PRICES}) == COSTS
    assert in_steps(SOLD, priced(), 1, tables={"price": PRICES}) == COSTS


@pytest.mark.parametrize("kind", ["pandas", "polars", "batch"])
def test_tables_of_other_kinds(kind: str) -> None:
    if kind == "batch":
        given: Any = PRICES.to_batches()[0]
    else:
        module = pytest.importorskip(kind)
        given = PRICES.to_pandas() if kind == "pandas" else module.from_arrow(PRICES)
    assert found(SOLD, priced(), tables={"price": given}) == COSTS


def test_numbers_of_other_types_are_equal() -> None:
    as_floats = PRICES.set_column(0, "product", PRICES.column("product").cast(pa.float64()))
    assert found(SOLD, priced(), tables={"price": as_floats}) == COSTS


def test_without_shared_names_every_row_goes_with_every_event() -> None:
    every = Lookup("price", (), (("amount", "cost"),))
    text = "STREAM order FROM PATTERN Sold o [o.p = 2] RETURN o.p AS p; PATTERN order v RETURN v.cost AS cost"
    rules = program(text, {0: every}, tables=[PRICE])
    costs = [row["cost"] for row in found(SOLD, rules, tables={"price": PRICES})]
    assert costs == [5.0, 6.0, 7.0, 8.0]
    with pytest.raises(LimitError, match="too-many-events"):
        found(SOLD, rules, tables={"price": PRICES}, limits=ensue.Limits(matches=3))


def test_facts_are_rows() -> None:
    rules = priced(facts=[("price", 1, 5), ("price", 1, 7.0), ("price", 2, 6)])
    assert found(SOLD, rules) == COSTS
    more = priced(facts=[("price", 9, 0.5)])
    assert found(SOLD, more, tables={"price": PRICES}) == [*COSTS, {"p": 9, "cost": 0.5}]


def test_recursion_over_a_table() -> None:
    text = """
        STREAM Edge(a, b); TABLE next(from, to);
        RULE reach(a, b) <- Edge(a, b);
        RULE reach(a, c) <- reach(a, b), next(b, c);
    """
    follows = pa.table({"from": [2, 3, 5], "to": [3, 2, 6]})
    rows = ensue.run(edges([(1, 2), (4, 5)]), text, time="t", type="type", tables={"next": follows})["reach"]
    expected = [(1, 1, 1, 2), (1, 1, 1, 3), (2, 2, 4, 5), (2, 2, 4, 6)]
    assert [tuple(row.values()) for row in rows.to_pylist()] == expected


@pytest.mark.parametrize(
    ("code", "tables"),
    [
        ("no-table", {}),
        ("unknown-table", {"pric": PRICES}),
        ("no-such-column", {"price": PRICES.drop_columns("amount")}),
        ("table-types", {"price": PRICES.set_column(0, "product", pa.array(["a", "b", "c", None]))}),
        ("not-a-table", {"price": [1, 2]}),
    ],
)
def test_tables_that_do_not_fit(code: str, tables: dict[str, Any]) -> None:
    with pytest.raises((QueryError, SchemaError)) as caught:
        found(SOLD, priced(), tables=tables)
    assert caught.value.code == code


def test_handed_over_without_a_declaration() -> None:
    with pytest.raises(SchemaError, match="TABLE price"):
        found(SOLD, "PATTERN Sold v", tables={"price": PRICES})


def test_a_name_of_a_table_and_of_events() -> None:
    with pytest.raises(QueryError, match="stream-clash"):
        ensue.detect({"Sold": SOLD, "price": SOLD}, priced(), time="t", tables={"price": PRICES})


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        ("fact-columns", "FACT vip(1); FACT vip(1, 2);"),
        ("fact-columns", "FACT vip(id=1); FACT vip(ids=2);"),
        ("fact-types", "FACT vip(1); FACT vip('x');"),
        ("duplicate-table", "TABLE vip(id); TABLE vip(id); FACT vip(1);"),
    ],
)
def test_facts_that_do_not_fit(code: str, facts: str) -> None:
    with pytest.raises(QueryError) as caught:
        ensue.run(SOLD, f"{facts} RULE h(p) <- Sold(p=p);", time="t", type="type")
    assert caught.value.code == code
