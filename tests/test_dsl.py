"""Each form of the Python way equals its text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from ensue import Pattern, Query, QueryError, absent, all_of, any_of, event, fn, seq, var
from ensue.fn import Value, avg, call, case, count, field, lineage, prev, same, stddev, value
from ensue.ops import (
    any_event,
    anyone,
    aperiodic,
    aperiodic_list,
    both,
    chain,
    concurrent,
    except_for,
    follows,
    next_to,
    not_follows,
    not_precedes,
    periodic,
    periodic_list,
    precedes,
    prior_to,
    relative,
    simultaneous,
    unless,
)
from inside import (
    Duration,
    Events,
    Literal,
    PatternQuery,
    Ticks,
    Timestamp,
    parse_expression,
    parse_pattern,
    parse_statements,
    query_of,
    window,
)
from strategies import nodes

a, b = var("a"), var("b")

VALUES: list[tuple[Value, str]] = [
    (a.amount, "a.amount"),
    (a["order line"], "a.`order line`"),
    (field("amount"), "amount"),
    (a.x + 1, "a.x + 1"),
    (1 + a.x, "1 + a.x"),
    (a.x - b.x, "a.x - b.x"),
    (1 - a.x, "1 - a.x"),
    (a.x * 2.5, "a.x * 2.5"),
    (2 * a.x, "2 * a.x"),
    (a.x / 2, "a.x / 2"),
    (1 / a.x, "1 / a.x"),
    (a.x % 2, "a.x % 2"),
    (7 % a.x, "7 % a.x"),
    (-a.x, "-a.x"),
    (np.float64(2.5) + a.x, "2.5 + a.x"),
    (a.x == 1, "a.x = 1"),
    (a.x != "it's", "a.x != 'it''s'"),
    (a.x < 1, "a.x < 1"),
    (a.x <= 1, "a.x <= 1"),
    (a.x > 1, "a.x > 1"),
    (a.x >= 1, "a.x >= 1"),
    (a.x > 5, "a.x > 5"),
    ((a.x == 1) & (b.x == 2) & "a.y = b.y", "a.x = 1 AND b.x = 2 AND a.y = b.y"),
    ((a.x == 1) | (b.x == 2), "a.x = 1 OR b.x = 2"),
    ("a.x = 1" | (b.x == 2), "a.x = 1 OR b.x = 2"),
    ("a.x = 1" & (b.x == 2), "a.x = 1 AND b.x = 2"),
    (~(a.x == 1), "NOT a.x = 1"),
    (a.x.is_in([1, "x", None]), "a.x IN (1, 'x', NULL)"),
    (a.x.not_in((1,)), "a.x NOT IN (1)"),
    (a.x.between(1, b.x), "a.x BETWEEN 1 AND b.x"),
    (a.x.not_between(1, 2), "a.x NOT BETWEEN 1 AND 2"),
    (a.x.like("a%"), "a.x LIKE 'a%'"),
    (a.x.not_like("a%"), "a.x NOT LIKE 'a%'"),
    (a.x.is_null(), "a.x IS NULL"),
    (a.x.is_not_null(), "a.x IS NOT NULL"),
    (a.x.concat("!"), "a.x || '!'"),
    (value("x").concat(a.x), "'x' || a.x"),
    (case((a.x > 0, "up"), ("a.x < 0", "down")), "CASE WHEN a.x > 0 THEN 'up' WHEN a.x < 0 THEN 'down' END"),
    (case((a.x > 0, 1), default=0), "CASE WHEN a.x > 0 THEN 1 ELSE 0 END"),
    (case((a.x > 0, 1), default=value(None)), "CASE WHEN a.x > 0 THEN 1 ELSE NULL END"),
    (call("ABS", a.x - 1), "abs(a.x - 1)"),
    (same("f", "g"), "SAME(f, g)"),
    (count(a) >= 3, "count(a) >= 3"),
    (count("a"), "count(a)"),
    (fn.sum(a.x * b.y), "sum(a.x * b.y)"),
    (avg("a.x") > b.y, "avg(a.x) > b.y"),
    (fn.min(a.x) + fn.max(a.x), "min(a.x) + max(a.x)"),
    (stddev(a.x), "stddev(a.x)"),
    (fn.first(a.x) < fn.last(a.x), "first(a.x) < last(a.x)"),
    (fn.flatten(a.x), "flatten(a.x)"),
    (fn.list(a.x), "list(a.x)"),
    (a.x > prev(a.x), "a.x > prev(a.x)"),
    (lineage(a), "lineage(a)"),
    (lineage("`order line`"), "lineage(`order line`)"),
    (lineage(), "lineage()"),
    (b.t - a.t <= timedelta(minutes=5), "b.t - a.t <= 5m"),
    (a.t > datetime(2024, 1, 31, 12), "a.t > TIMESTAMP '2024-01-31 12:00:00'"),
    (a.t > datetime(2024, 1, 31, 12, tzinfo=UTC), "a.t > TIMESTAMP '2024-01-31 12:00:00Z'"),
]


@pytest.mark.parametrize(("built", "text"), VALUES, ids=[text for _, text in VALUES])
def test_values(built: Value, text: str) -> None:
    assert built.node == parse_expression(text)
    assert built.to_text() == text


PATTERNS: list[tuple[Pattern, str]] = [
    (event("A"), "A"),
    (event("A", "a"), "A a"),
    (event("order line", "a", field("x") > 1), "`order line` a [x > 1]"),
    (event("A", where="x > 1"), "A [x > 1]"),
    (seq(event("A", "a"), ~event("B", "b"), "C c"), "SEQ(A a, NOT B b, C c)"),
    (all_of("A a", absent("B b")), "AND(A a, NOT B b)"),
    (any_of("A a", seq("B b", "C c")), "OR(A a, SEQ(B b, C c))"),
    (absent(event("A")), "NOT A"),
    (event("A").within("1h"), "A WITHIN 1h"),
    (event("A").within(5), "A WITHIN 5"),
    (event("A").within(timedelta(seconds=90)), "A WITHIN 1m 30s"),
    (event("A").within("100 events"), "A WITHIN 100 EVENTS"),
    (seq("A a", "B b").named("x").within(5), "SEQ(A a, B b) AS x WITHIN 5"),
    ((~event("A")).within(5), "(NOT A) WITHIN 5"),
    (follows("A a", "B b", "5m"), "FOLLOWS(A a, B b, 5m)"),
    (precedes("A a", event("B", "b"), timedelta(seconds=1)), "PRECEDES(A a, B b, 1s)"),
    (not_follows("A a", "B b", 5), "NOTFOLLOWS(A a, B b, 5)"),
    (not_precedes("A a", "B b", np.int64(5)), "NOTPRECEDES(A a, B b, 5)"),
    (anyone("A a", "B b"), "ANYONE(A a, B b)"),
    (both("A a", "B b", 5), "BOTH(A a, B b, 5)"),
    (any_of(2, "A a", "B b", seq("C c", "D d")), "ANY(2, A a, B b, SEQ(C c, D d))"),
    (any_of(np.int64(1), "A a"), "ANY(1, A a)"),
    (aperiodic("A a", "B b", "C c"), "APERIODIC(A a, B b, C c)"),
    (aperiodic_list("A a", "B b", "C c"), "APERIODIC*(A a, B b, C c)"),
    (periodic("A a", 5), "PERIODIC(A a, 5)"),
    (periodic("A a", "1h", until="C c").within("1d"), "PERIODIC(A a, 1h, C c) WITHIN 1d"),
    (periodic_list("A a", 5, "C c").named("p"), "PERIODIC*(A a, 5, C c) AS p"),
    (unless("B b", "A a", "C c"), "UNLESS(B b)(A a, C c)"),
    (relative("A a", "B b"), "RELATIVE(A a, B b)"),
    (chain("A a"), "RELATIVE+(A a)"),
    (prior_to("A a", "B b"), "PRIOR(A a, B b)"),
    (next_to("A a", "B b"), "NEXT(A a, B b)"),
    (simultaneous("A a", "B b"), "SIMULTANEOUS(A a, B b)"),
    (concurrent("A a", "B b"), "CONCURRENT(A a, B b)"),
    (except_for(any_event("e"), "SEQ(A a, B b)"), "EXCEPT(ANY EVENT e, SEQ(A a, B b))"),
    (any_event(), "ANY EVENT"),
    (any_event("e", but="A"), "ANY EVENT BUT A e"),
    (any_event("e", but=["order line", "A"], where=field("x") > 1), "ANY EVENT BUT (A, `order line`) e [x > 1]"),
    (event("A", "a").times(2), "A a{2}"),
    (event("A", "a").times(2, np.int8(4)), "A a{2,4}"),
    (event("A", "a").times(2, 4, every=True), "A a{2,4} ALL"),
    (event("A", "a").times(2, every=True), "A a{2} ALL"),
    (event("A", "a").times(0, 2, every=True), "A a{0,2} ALL"),
    (event("A", "a").at_least(2), "A a{2,} ALL"),
    (event("A", "a").one_or_more(), "A a+"),
    (event("A", "a", "x > 1").collect(), "A a [x > 1]*"),
    (seq("A a", "B b").within(5).times(2), "(SEQ(A a, B b) WITHIN 5){2}"),
    (seq("A a", event("B", "b").first()), "SEQ(A a, FIRST B b)"),
    (seq("A a", seq("B b", "C c").last()), "SEQ(A a, LAST SEQ(B b, C c))"),
    (event("A", "a").first().within(5), "(FIRST A a) WITHIN 5"),
]


@pytest.mark.parametrize(("built", "text"), PATTERNS, ids=[text for _, text in PATTERNS])
def test_patterns(built: Pattern, text: str) -> None:
    assert built.node == parse_pattern(text)
    assert built.to_text() == text


def parsed(text: str) -> PatternQuery:
    (only,) = parse_statements(text).statements
    return only


QUERIES: list[tuple[Query, str]] = [
    (seq("A a", "B b").within("1h").partition_by("id"), "PATTERN SEQ(A a, B b) WITHIN 1h PARTITION BY id"),
    (seq("A a", "B b").partition_by("id").within("1h"), "PATTERN SEQ(A a, B b) WITHIN 1h PARTITION BY id"),
    (query_of(event("A").within(5).within(6)), "PATTERN (A WITHIN 5) WITHIN 6"),
    (query_of("A a"), "PATTERN A a"),
    (event("A", "a").as_pattern("p"), "PATTERN p (A a)"),
    (event("A", "a").where(a.x > 1).where("a.y > 2", a.z > 3), "PATTERN A a WHERE a.x > 1 AND a.y > 2 AND a.z > 3"),
    (event("A", "a").where("a.x OR a.y").where("a.z"), "PATTERN A a WHERE (a.x OR a.y) AND a.z"),
    (event("A", "a").partition_by("x").partition_by("y"), "PATTERN A a PARTITION BY x, y"),
    (event("A", "a").partition_by("x").within(5).within(6), "PATTERN A a PARTITION BY x WITHIN 6"),
    (
        event("A", "a").returning("a.id AS id, 1", a.x, at=a.t, twice="2 * a.x"),
        "PATTERN A a RETURN a.id AS id, 1, a.x, a.t AS at, 2 * a.x AS twice",
    ),
    (seq("A a", "B b").match("recent"), "PATTERN SEQ(A a, B b) MATCH RECENT"),
    (seq("A a", "B b").within(5).match("NEXT").consume(), "PATTERN SEQ(A a, B b) WITHIN 5 MATCH NEXT CONSUME"),
    (seq("A a", "B b").consume().share(), "PATTERN SEQ(A a, B b) SHARE"),
    (seq("A a", "B b").share().consume().match("strict"), "PATTERN SEQ(A a, B b) MATCH STRICT CONSUME"),
    (event("A").consume(), "PATTERN (A) CONSUME"),
    (seq("A a", "B b").as_stream("Pair"), "STREAM Pair FROM PATTERN SEQ(A a, B b)"),
    (
        event("A", "a").within(5).as_stream("Pair").returning("a.x AS x"),
        "STREAM Pair FROM PATTERN A a WITHIN 5 RETURN a.x AS x",
    ),
    (event("A", "a").as_stream("Pair").as_pattern("p"), "PATTERN p (A a)"),
]


@pytest.mark.parametrize(("built", "text"), QUERIES, ids=[text for _, text in QUERIES])
def test_queries(built: Query, text: str) -> None:
    assert built.node == parsed(text)
    assert built == Query(parsed(built.to_text()))


@given(nodes.queries)
def test_the_text_of_any_query_is_read_back(node: PatternQuery) -> None:
    assert Query(parsed(Query(node).to_text())) == Query(node)


def test_a_subclass_stays_itself() -> None:
    class Evaluated(Query):
        pass

    built = Evaluated(parsed("PATTERN A a")).where("a.x").partition_by("x").within(5).returning("a.x").as_pattern("p")
    assert type(built) is Evaluated


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("python_value", "node"),
    [
        (True, Literal(True)),
        (np.True_, Literal(True)),
        (1, Literal(1)),
        (Level.HIGH, Literal(3)),
        (np.int8(1), Literal(1)),
        (np.uint64(1), Literal(1)),
        (1.0, Literal(1.0)),
        (np.float32(0.5), Literal(0.5)),
        (np.float64(0.5), Literal(0.5)),
        (np.longdouble(0.5), Literal(0.5)),
        ("x", Literal("x")),
        (np.str_("x"), Literal("x")),
        (None, Literal(None)),
        (timedelta(days=-1, microseconds=1), Duration(-86_399_999_999_000)),
        (np.timedelta64(3, "ms"), Duration(3_000_000)),
        (pd.Timedelta(5, "ns"), Duration(5)),
        (date(1970, 1, 2), Timestamp(86_400_000_000_000)),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), Timestamp(0, zoned=True)),
        (np.datetime64("1970-01-01T00:00:01"), Timestamp(1_000_000_000)),
        (pd.Timestamp(1_000_000_001, tz="UTC"), Timestamp(1_000_000_001, zoned=True)),
    ],
)
def test_python_values(python_value: object, node: object) -> None:
    assert value(python_value).node == node
    assert type(getattr(value(python_value).node, "value", None)) is type(getattr(node, "value", None))


@pytest.mark.parametrize(
    "python_value",
    [
        float("nan"), float("inf"), np.float64("-inf"), np.datetime64("NaT"), pd.NaT,
        2**63, -(2**63) - 1, np.uint64(2**63),
        timedelta.max, datetime.max, datetime(1, 1, 1, tzinfo=UTC), np.datetime64("9999-01-01"),
    ],
)  # fmt: skip
def test_values_that_a_query_cannot_hold(python_value: object) -> None:
    with pytest.raises(ValueError, match=r"in a query|64 bits|64-bit"):
        value(python_value)


@pytest.mark.parametrize("thing", [object(), [1], b"x", 1j, np.complex128(1)])
def test_things_that_are_no_values(thing: object) -> None:
    with pytest.raises(TypeError, match="unsupported type in a query"):
        value(thing)


def test_windows() -> None:
    assert window("5") == window(5) == window(np.int32(5)) == window(Ticks(5)) == Ticks(5)
    assert window("1 s") == window(timedelta(seconds=1)) == window(np.timedelta64(1, "s")) == Duration(10**9)
    assert window(Events(3)) == Events(3)


@pytest.mark.parametrize("size", [-1, timedelta(seconds=-1), "-1", "0 events"])
def test_windows_of_no_size(size: Any) -> None:
    with pytest.raises(QueryError) as caught:
        window(size)
    assert caught.value.code == "window-size"


@pytest.mark.parametrize("size", [True, 1.5, None])
def test_things_that_are_no_windows(size: Any) -> None:
    with pytest.raises(TypeError, match="a window must be"):
        window(size)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: bool(a.x > 1),
        lambda: 1 < a.x < 5,
        lambda: a.x > 1 and a.x < 5,
        lambda: not a.x,
        lambda: a.x in [1, 2],
    ],
)
def test_truth_of_a_condition_teaches(misuse: Any) -> None:
    with pytest.raises(TypeError, match=r"combine conditions with &, \| and ~"):
        misuse()


def test_misuse_is_named() -> None:
    with pytest.raises(ValueError, match="seq takes at least one item"):
        seq()
    with pytest.raises(ValueError, match="case takes at least one"):
        case()
    with pytest.raises(ValueError, match="same takes at least one field"):
        same()
    with pytest.raises(ValueError, match="the list of values must not be empty"):
        a.x.is_in([])
    with pytest.raises(TypeError, match="found the text"):
        a.x.is_in("abc")
    with pytest.raises(TypeError, match="expected a pattern"):
        seq(a.x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unhashable"):
        hash(a.x)
    with pytest.raises(AttributeError):
        _ = a.__wrapped__


@pytest.mark.parametrize(
    ("misuse", "code", "message"),
    [
        (lambda: follows("A a", "B b", 0), "window-size", "the duration of FOLLOWS must be positive"),
        (lambda: not_follows("A a", "B b", "0m"), "window-size", "the duration of NOTFOLLOWS must be positive"),
        (
            lambda: both("A a", "B b", "3 events"),
            "window-size",
            "the duration of BOTH must be a time span, not a number",
        ),
        (lambda: periodic("A a", timedelta(0)), "window-size", "the duration of PERIODIC must be positive"),
        (lambda: any_of(3, "A a", "B b"), "any-count", "ANY requires 3 items but has only 2"),
        (lambda: any_of(0, "A a"), "any-count", "at least 1"),
        (lambda: event("A").times(0), "repeat-count", "a repetition of 0 elements never binds an event"),
        (lambda: event("A").times(3, 2), "repeat-count", "minimum 3 is greater than the maximum 2"),
        (lambda: event("A").times(0, 2), "repeat-count", "at least 1 element"),
        (lambda: event("A").at_least(-1), "repeat-count", "must not be negative"),
        (lambda: event("A").match("recend"), "unknown-policy", "unknown policy `recend`"),
        (lambda: event("A").match("skip_till_next_match"), "unknown-policy", "write `MATCH NEXT`"),
    ],
)
def test_operators_refuse_what_their_text_refuses(misuse: Callable[[], object], code: str, message: str) -> None:
    with pytest.raises(QueryError, match=message) as caught:
        misuse()
    assert caught.value.code == code


def test_misuse_of_operators_is_named() -> None:
    with pytest.raises(TypeError, match="a window must be"):
        follows("A a", "B b", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a pattern, found 5"):
        follows(5, "B b", 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a repetition takes integers, not 1\.5"):
        event("A").times(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a repetition takes integers, not True"):
        event("A").times(1, True)
    with pytest.raises(TypeError, match="expected a pattern, found True"):
        any_of(True, "A a")
    with pytest.raises(ValueError, match="any_of takes at least one item"):
        any_of(2)
    with pytest.raises(TypeError, match='such as "recent", not 5'):
        event("A").match(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`but` takes names of streams"):
        any_event("e", but=[event("A")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="expected a field of `a`"):
        fn.sum(a)  # type: ignore[arg-type]


def test_values_are_shown_as_text() -> None:
    assert repr(a.x > 1) == 'Value("a.x > 1")'
    assert repr(seq("A a")) == 'Pattern("SEQ(A a)")'
    assert repr(seq("A a", "B b").within(5)) == 'Pattern("SEQ(A a, B b) WITHIN 5")'
    assert repr(event("A", "a").partition_by("x")) == 'Query("PATTERN A a\n  PARTITION BY x")'


MISUSES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: seq("A a", not event("B", "b")),  # type: ignore[arg-type]
        "expected a pattern, found False; for the absence of an event, write ~event(...) instead of `not`",
    ),
    (
        lambda: seq(["A a", "B b"]),  # type: ignore[arg-type]
        "expected a pattern, found ['A a', 'B b']; pass the items separately, as in seq(*items)",
    ),
    (
        lambda: any_of(("A a", "B b")),  # type: ignore[call-overload]
        "expected a pattern, found ('A a', 'B b'); pass the items separately, as in any_of(*items)",
    ),
    (lambda: event("A", "a").returning(a), 'expected a field of `a`, such as var("a").amount, found the variable'),  # type: ignore[arg-type]
    (
        lambda: event("A", "a").partition_by(a.x),  # type: ignore[arg-type]
        'partition_by takes names of fields, such as "user_id", not Value("a.x")',
    ),
]


@pytest.mark.parametrize(("misuse", "message"), MISUSES, ids=[message for _, message in MISUSES])
def test_misuse_teaches(misuse: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        misuse()
    assert str(caught.value) == message


def test_lists_stand_for_their_items() -> None:
    query = event("A", "a")
    assert (
        query.partition_by(["x", "y"], "z") == query.partition_by(("x", "y", "z")) == query.partition_by("x", "y", "z")
    )
    assert query.returning(["a.x AS x", a.y]) == query.returning(("a.x AS x", a.y)) == query.returning("a.x AS x", a.y)
