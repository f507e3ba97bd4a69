"""Constraints by example: what is given up and when, what is kept, and what is said about it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pyarrow as pa
import pytest

import ensue
from ensue import QueryError

Row = tuple[int, str] | tuple[int, str, int | None]
STOCK = """
CONSTRAINT EXCLUSIVE(UseLocalStock, UseRemoteStock);
PATTERN SEQ(CheckInventory c, UseRemoteStock r, GenerateInvoice g) PARTITION BY order_id
"""
QUOTE = "CONSTRAINT PRIOR(GenerateQuote, SendQuote); PATTERN SEQ(GenerateQuote g, SendQuote s) PARTITION BY order_id"
CHAIN = """
CONSTRAINT REQUIRE(Ship, Pay);
CONSTRAINT PRIOR(Pay, Pack);
PATTERN SEQ(Order o, Ship s) PARTITION BY order_id
"""
BURIED = "CONSTRAINT EXCLUSIVE(A, X); CONSTRAINT ENDS(Z); PATTERN SEQ(A a, B b) PARTITION BY order_id"
PAIRS = "PATTERN SEQ(A a, B b) PARTITION BY order_id"


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows of time, stream and order; without an order it is order 1."""
    return pa.table(
        {
            "t": pa.array([row[0] for row in rows], pa.int64()),
            "type": pa.array([row[1] for row in rows], pa.string()),
            "order_id": pa.array([row[2] if len(row) > 2 else 1 for row in rows], pa.int64()),
        }
    )


def times_of(matches: pa.Table) -> list[tuple[int, ...]]:
    """The times of the events of each match."""
    names = [field.name for field in matches.schema if pa.types.is_struct(field.type)]
    return sorted(tuple(row[name]["t"] for name in names if row[name] is not None) for row in matches.to_pylist())


def detected(text: str, rows: Sequence[Row]) -> list[tuple[int, ...]]:
    return times_of(ensue.detect(table_of(rows), text, time="t", type="type"))


class Feed:
    """A Detector that is fed one event at a time, with the watermark at its time."""

    def __init__(self, text: str) -> None:
        self.detector = ensue.Detector(text, time="t", type="type")
        self.found: list[tuple[int, ...]] = []

    def take(self, *rows: Row) -> ensue.Detector:
        for row in rows:
            self.found += times_of(self.detector.advance(table_of([row]), watermark=row[0]).matches)
        return self.detector

    def finish(self) -> list[tuple[int, ...]]:
        self.found += times_of(self.detector.finish(table_of([])).matches)
        return sorted(self.found)


def test_local_stock_rules_out_remote_stock() -> None:
    feed = Feed(STOCK)
    assert feed.take((1, "CheckInventory")).report.traces_failed == 0
    assert feed.take((2, "CheckInventory", 2)).kept_rows == 2
    detector = feed.take((3, "UseLocalStock"))
    assert detector.report.traces_failed == 1
    assert detector.kept_rows == 1
    assert feed.take((4, "GenerateInvoice"), (5, "CheckInventory")).report.events_skipped == 2
    feed.take((6, "UseRemoteStock", 2), (7, "GenerateInvoice", 2))
    assert feed.finish() == [(2, 6, 7)]


def test_a_quote_that_was_sent_is_generated_no_more() -> None:
    feed = Feed(QUOTE)
    assert feed.take((1, "SendQuote")).report.traces_failed == 1
    assert feed.take((2, "GenerateQuote", 2)).report.traces_failed == 1
    assert feed.take((3, "SendQuote", 2)).report.traces_failed == 1
    assert feed.finish() == [(2, 3)]


def test_events_of_equal_time_are_in_no_order() -> None:
    text = "CONSTRAINT PRIOR(A, B); PATTERN AND(A a, B b) PARTITION BY order_id"
    detector = ensue.Detector(text, time="t", type="type")
    assert times_of(detector.advance(table_of([(1, "B"), (1, "A")]), watermark=1).matches) == [(1, 1)]
    assert detector.report.traces_failed == 0
    assert times_of(detector.advance(table_of([(2, "B")]), watermark=2).matches) == [(1, 2)]


def test_shipping_needs_a_payment_that_cannot_come_after_packing() -> None:
    feed = Feed(CHAIN)
    assert feed.take((1, "Order"), (2, "Order", 2), (3, "Pay", 2)).report.traces_failed == 0
    assert feed.take((4, "Pack"), (5, "Pack", 2)).report.traces_failed == 1
    feed.take((6, "Ship", 2))
    assert feed.finish() == [(2, 6)]


def test_two_events_together_rule_out_a_third() -> None:
    feed = Feed("CONSTRAINT Refused AND Final IMPLIES NOT Paid; PATTERN SEQ(Order o, Paid p) PARTITION BY order_id")
    assert feed.take((1, "Order"), (2, "Refused")).report.traces_failed == 0
    assert feed.take((3, "Refused"), (4, "Other")).report.traces_failed == 0
    assert feed.take((5, "Final")).report.traces_failed == 1


def test_every_way_of_an_or_has_to_be_closed() -> None:
    feed = Feed("CONSTRAINT EXCLUSIVE(A, X); CONSTRAINT EXCLUSIVE(B, Y); PATTERN OR(A a, B b) PARTITION BY order_id")
    assert feed.take((1, "X")).report.traces_failed == 0
    assert feed.take((2, "Y")).report.traces_failed == 1


def test_what_came_between_rules_out_the_events_before_it() -> None:
    feed = Feed("CONSTRAINT PRIOR(A, B); PATTERN SEQ(A a, NOT B b, C c) PARTITION BY order_id")
    assert feed.take((1, "A"), (2, "C")).report.traces_failed == 0
    assert feed.take((3, "B")).report.traces_failed == 1
    assert feed.finish() == [(1, 2)]


def test_a_tombstone_skips_events_and_goes_when_the_trace_ends() -> None:
    feed = Feed(BURIED)
    assert feed.take((1, "X")).report.traces_failed == 1
    detector = feed.take((2, "B"), (3, "B"))
    assert (detector.report.events_skipped, detector.kept_rows) == (2, 0)
    feed.take((4, "Z"))
    skipped = feed.detector.report.events_skipped
    assert feed.take((5, "A"), (6, "B")).report.events_skipped == skipped
    assert feed.finish() == [(5, 6)]


def test_what_ends_a_trace_frees_its_events() -> None:
    feed = Feed(f"CONSTRAINT ENDS(Z); {PAIRS}")
    assert feed.take((1, "A"), (2, "A", 2)).kept_rows == 2
    assert feed.take((3, "Z")).kept_rows == 1
    assert feed.take((4, "Z", 2)).kept_rows == 0


REUSE: list[tuple[str, str, list[Row], list[tuple[int, ...]]]] = [
    ("after ENDS", f"CONSTRAINT ENDS(Z); {PAIRS}", [(1, "A"), (2, "Z"), (3, "B"), (4, "A"), (5, "B")], [(4, 5)]),
    ("at the time of ENDS", f"CONSTRAINT ENDS(Z); {PAIRS}", [(1, "A"), (2, "Z"), (2, "B"), (3, "B")], [(1, 2)]),
    (
        "ENDS WITHIN",
        f"CONSTRAINT ENDS WITHIN 10; {PAIRS}",
        [(1, "A"), (11, "B"), (12, "B"), (13, "A"), (22, "B"), (23, "B")],
        [(1, 11), (13, 22)],
    ),
    (
        "a tombstone",
        "CONSTRAINT EXCLUSIVE(A, X); CONSTRAINT ENDS WITHIN 10;" + PAIRS,
        [(1, "X"), (2, "B"), (12, "A"), (13, "B")],
        [(12, 13)],
    ),
    (
        "a window of events does not tell traces apart",
        "CONSTRAINT ENDS WITHIN 3; PATTERN SEQ(A a1, A a2) PARTITION BY order_id WITHIN 8 EVENTS",
        [(0, "A"), (4, "A"), (6, "A")],
        [(0, 4), (0, 6), (4, 6)],
    ),
    (
        "NOT at the end",
        "CONSTRAINT ENDS(A); PATTERN SEQ(A a, NOT B b) PARTITION BY order_id WITHIN 8",
        [(0, "A"), (1, "B")],
        [(0,)],
    ),
    (
        "NOT at the beginning",
        "CONSTRAINT ENDS(B, Z); PATTERN SEQ(NOT B b, A a) PARTITION BY order_id WITHIN 8",
        [(0, "B"), (1, "A")],
        [(1,)],
    ),
    (
        "an event that is not read does not begin the trace",
        f"CONSTRAINT ENDS WITHIN 10; {PAIRS}",
        [(0, "X"), (5, "A"), (12, "B")],
        [(5, 12)],
    ),
]


@pytest.mark.parametrize(("text", "rows", "found"), [row[1:] for row in REUSE], ids=[row[0] for row in REUSE])
@pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")
class TestOneKeyForSeveralTraces:
    def test_in_one_batch(self, text: str, rows: list[Row], found: list[tuple[int, ...]]) -> None:
        assert detected(text, rows) == found

    def test_moment_by_moment(self, text: str, rows: list[Row], found: list[tuple[int, ...]]) -> None:
        feed = Feed(text)
        for time in sorted({row[0] for row in rows}):
            now = table_of([row for row in rows if row[0] == time])
            feed.found += times_of(feed.detector.advance(now, watermark=time).matches)
        assert feed.finish() == found

    def test_all_at_once_and_the_watermark_behind(
        self, text: str, rows: list[Row], found: list[tuple[int, ...]]
    ) -> None:
        feed = Feed(text)
        feed.detector.advance(table_of(rows), watermark=-1)
        for time in sorted({row[0] for row in rows}):
            feed.found += times_of(feed.detector.advance(None, watermark=time).matches)
        assert feed.finish() == found


def test_time_that_has_run_out_frees_events() -> None:
    feed = Feed(f"CONSTRAINT ENDS WITHIN 10; {PAIRS}")
    assert feed.take((1, "A")).kept_rows == 1
    feed.detector.advance(None, watermark=50)
    assert feed.detector.kept_rows == 0


def test_events_without_a_key_take_no_part() -> None:
    rows: list[Row] = [(1, "A", None), (2, "B", None)]
    assert detected(f"CONSTRAINT PRIOR(A, B); {PAIRS}", rows) == []
    assert detected(f"CONSTRAINT PRIOR(A, B); {PAIRS}", [*rows, (3, "A"), (4, "B")]) == [(3, 4)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STOCK, "after UseLocalStock, a trace"),
        (QUOTE, "after SendQuote, a trace without GenerateQuote is dropped"),
        (CHAIN, "after Pack, a trace without Pay is dropped"),
        (BURIED, "the state of a trace is kept until Z"),
        (f"CONSTRAINT ENDS WITHIN 10; {PAIRS}", "kept until 10 after its first event"),
    ],
)
def test_explain_says_it_in_words(text: str, said: str) -> None:
    assert said in ensue.explain(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CONSTRAINT PRIOR(A, B); PATTERN SEQ(B b, A a) PARTITION BY order_id", "never-lawful"),
        ("CONSTRAINT EXCLUSIVE(A, B); PATTERN AND(B b, A a) PARTITION BY order_id", "never-lawful"),
        ("CONSTRAINT ENDS(A); PATTERN SEQ(A a, B b) PARTITION BY order_id", "never-lawful"),
        (
            "CONSTRAINT REQUIRE(B, C); CONSTRAINT PRIOR(C, A); CONSTRAINT ENDS(C); PATTERN SEQ(B b, A a)"
            " PARTITION BY order_id",
            "taken",
        ),
        (
            "CONSTRAINT REQUIRE(A, B); CONSTRAINT EXCLUSIVE(A, B); PATTERN SEQ(C c, D d) PARTITION BY order_id",
            "contradictory-constraints",
        ),
        ("CONSTRAINT PRIOR(A, B); PATTERN SEQ(A a, B b)", "constraint-partition"),
    ],
)
def test_what_can_never_be(text: str, code: str) -> None:
    """The fourth is lawful when A and C share the last moment."""
    if code == "taken":
        assert detected(text, [(1, "B"), (2, "A"), (2, "C")]) == [(1, 2)]
        return
    with pytest.raises(QueryError) as caught:
        detected(text, [])
    assert caught.value.code == code


def test_explain_names_what_says_nothing_new() -> None:
    text = """
    CONSTRAINT REQUIRE(A, B); CONSTRAINT REQUIRE(B, C); CONSTRAINT REQUIRE(A, C);
    CONSTRAINT EXCLUSIVE(C, X); CONSTRAINT EXCLUSIVE(A, X);
    PATTERN SEQ(A a, NOT X x, B b) PARTITION BY order_id
    """
    words = ensue.explain(text)
    assert "REQUIRE(A, C) is redundant: it follows from the other constraints" in words
    assert "EXCLUSIVE(A, X) is redundant: it follows from the other constraints" in words
    assert "REQUIRE(A, B) says nothing" not in words
    assert "`NOT X x` is redundant" in words or "`X x` is redundant" in words


def test_a_misspelt_stream_of_a_constraint_is_said() -> None:
    table = pa.table({"t": [1, 2], "type": ["Order", "Shipped"], "id": [1, 1]})
    text = "CONSTRAINT PRIOR(Order, Shiped); PATTERN SEQ(Order o, Shipped s) PARTITION BY id"
    with pytest.warns(ensue.EnsueWarning, match="column `type` has no value `Shiped`"):
        ensue.detect(table, text, time="t", type="type")


def test_the_report_is_whole_where_a_key_has_several_traces() -> None:
    table = pa.table(
        {
            "t": pa.array([1, 2, 3, 4, 5, None], pa.int64()),
            "type": ["Order", "Paid", "Shipped", "Order", "Paid", "Paid"],
            "id": [1, 1, 1, 1, 1, 1],
        }
    )
    text = "CONSTRAINT ENDS(Shipped); PATTERN pair SEQ(Order o, Paid p) PARTITION BY id"
    with pytest.warns(ensue.EnsueWarning, match="ignored: no timestamp"):
        found = ensue.run(table, text, time="t", type="type")
    assert found["pair"].num_rows == 2
    assert found.reports["pair"].rows == 6
    assert found.reports["pair"].traces_failed == 1


def test_violations_are_no_matches() -> None:
    table = pa.table({"t": [1, 2, 3], "type": ["B", "A", "B"], "id": [1, 1, 1]})
    text = "CONSTRAINT PRIOR(A, B); PATTERN SEQ(B one, B two) PARTITION BY id"
    detector = ensue.Detector(text, time="t", type="type", violations=True)
    step = detector.advance(table, watermark=3)
    assert (step.matches.num_rows, step.violations.num_rows, detector.report.matches) == (1, 1, 1)


def test_a_trailing_not_waits_also_in_patterns_of_many_steps() -> None:
    names = "ABCDEFG"
    rows = [(number, name) for number, name in enumerate(names, start=1)]
    table = table_of([*rows, (8, "End")])
    items = ", ".join(f"{name} {name.lower()}" for name in names)
    text = f"CONSTRAINT ENDS(End); PATTERN SEQ(AND({items}), NOT X x) PARTITION BY order_id WITHIN 20"
    detector = ensue.Detector(text, time="t", type="type")
    found = detector.advance(table, watermark=8).matches.num_rows + detector.finish().matches.num_rows
    assert found == ensue.detect(table, text, time="t", type="type").num_rows == 1


def all_of(count: int) -> str:
    return f"AND({', '.join(f'S{number} s{number}' for number in range(count))}) PARTITION BY order_id"


def test_patterns_of_very_many_items_are_watched() -> None:
    text = f"CONSTRAINT ENDS(End); PATTERN {all_of(66)}"
    rows = [(number, f"S{number}") for number in range(66)]
    assert ensue.detect(table_of([*rows, (99, "End")]), text, time="t", type="type").num_rows == 1
    text = f"CONSTRAINT EXCLUSIVE(Z, S0); CONSTRAINT PRIOR(S1, Y); {text}"
    assert "longer than necessary" not in ensue.explain(text)
    assert Feed(text).take((1, "S2"), (2, "Z")).report.traces_failed == 1
    assert Feed(text).take((1, "S2"), (2, "Y")).report.traces_failed == 1
    assert Feed(text).take((1, "S1"), (2, "Y")).report.traces_failed == 0


@pytest.mark.parametrize("count", [7, 9])
def test_each_item_of_an_and_is_followed(count: int) -> None:
    """The steps of the pattern and the watched streams take several words, also in a saved state."""
    stated = "".join(f"CONSTRAINT PRIOR(S{number}, Z{number}_{one});" for number in range(count) for one in range(9))
    text = f"{stated} PATTERN {all_of(count)}"
    for missing in range(count):
        others = [(place, f"S{place}") for place in range(count) if place != missing]
        feed = Feed(text)
        feed.take(*others)
        saved = feed.detector.snapshot()
        feed = Feed(text)
        feed.detector.restore(saved)
        last = [(20 + place, f"Z{place}_{place % 9}") for place in range(count) if place != missing]
        assert feed.take(*last).report.traces_failed == 0
        assert feed.take((40, f"Z{missing}_8")).report.traces_failed == 1
        assert feed.detector.kept_rows == 0


def test_where_not_all_items_are_followed_explain_says_so() -> None:
    stated = "".join(f"CONSTRAINT PRIOR(S{number}, Z{number}); CONSTRAINT PRIOR(S{number}, Z);" for number in range(12))
    text = f"{stated} PATTERN {all_of(12)}"
    assert "so `s10`, `s11` are not followed: a trace may be kept longer" in ensue.explain(text)
    assert "after Z9, a trace without S9 is dropped" in ensue.explain(text)
    assert "after Z10" not in ensue.explain(text)
    assert Feed(text).take((1, "S1"), (2, "Z9")).report.traces_failed == 1
    assert Feed(text).take((1, "S1"), (2, "Z")).report.traces_failed == 1
    assert Feed(text).take((1, "S1"), (2, "Z1"), (3, "Z10")).report.traces_failed == 0


def test_what_is_only_assumed_to_have_come_is_not_seen() -> None:
    """N can still come before B, although it is not followed whether B has come. X is watched, but alone harmless."""
    items = ", ".join(f"A{number} a{number}" for number in range(12))
    text = "CONSTRAINT REQUIRE(C, N); CONSTRAINT PRIOR(N, B); CONSTRAINT X AND Y IMPLIES NOT C;"
    text = f"{text} PATTERN SEQ(AND({items}, B b), C c) PARTITION BY order_id"
    rows = [(0, "X"), (1, "A0"), (2, "N"), *((place + 2, f"A{place}") for place in range(1, 12)), (20, "B"), (21, "C")]
    feed = Feed(text)
    feed.take(*rows)
    assert len(feed.finish()) == 1
    assert Feed(text).take(*(row for row in rows if row[1] not in ("N", "C"))).report.traces_failed == 1


def test_more_watched_streams_than_the_bits_of_a_word() -> None:
    stated = "".join(f"CONSTRAINT EXCLUSIVE(B, X{number});" for number in range(150))
    text = f"{stated} CONSTRAINT ENDS(End); {PAIRS}"
    for number in (0, 61, 62, 63, 64, 127, 128, 149):
        assert f"after X{number}, a trace is dropped" in ensue.explain(text)
        assert Feed(text).take((1, "A"), (2, f"X{number}")).report.traces_failed == 1


def test_a_constraint_on_many_streams_is_watched_as_a_whole() -> None:
    names = [f"A{number}" for number in range(6)]
    feed = Feed(f"CONSTRAINT {' AND '.join(names)} IMPLIES NOT B; {PAIRS}")
    assert feed.take((0, "A"), *((number, name) for number, name in enumerate(names[:5], 1))).report.traces_failed == 0
    assert feed.take((9, names[5])).report.traces_failed == 1


def test_more_ends_than_bits() -> None:
    streams = ", ".join(f"E{number}" for number in range(70))
    text = f"CONSTRAINT ENDS({streams}); PATTERN SEQ(A a, B b) PARTITION BY order_id"
    for number in (0, 9, 69):
        assert (
            ensue.detect(table_of([(1, "A"), (2, f"E{number}"), (3, "B")]), text, time="t", type="type").num_rows == 0
        )


def test_the_id_of_a_match_does_not_depend_on_constraints() -> None:
    table = table_of([(3, "B")])
    pattern = "PATTERN OR(SEQ(E e, D d), B b) PARTITION BY order_id"
    plain = ensue.detect(table, pattern, time="t", type="type", match_id=True)
    constrained = ensue.detect(
        table, pattern, time="t", type="type", match_id=True, constraints=[ensue.constraints.exclusive("E", "D")]
    )
    assert plain["match_id"].to_pylist() == constrained["match_id"].to_pylist()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CONSTRAINT ENDS WITHIN 5 days; PATTERN SEQ(A a, B b) PARTITION BY order_id", "window-unit"),
        ("CONSTRAINT ENDS WITHIN 3; PATTERN SEQ(A a, B b) WHERE b.t - a.t > 5 PARTITION BY order_id", "never-lawful"),
        ("CONSTRAINT PRIOR(A, B) PARTITION BY nothing; PATTERN SEQ(A a, B b) PARTITION BY order_id", "no-such-field"),
    ],
)
def test_constraints_that_do_not_fit(text: str, code: str) -> None:
    with pytest.raises(ensue.QueryError) as caught:
        ensue.detect(table_of([(1, "A")]), text, time="t", type="type")
    assert caught.value.code == code


def test_keys_of_different_types_are_one_trace() -> None:
    tables = {
        "A": pa.table({"t": [1], "k": pa.array([1], pa.int32())}),
        "B": pa.table({"t": [3], "k": pa.array([1.0], pa.float64())}),
        "X": pa.table({"t": [2], "k": pa.array([1], pa.int64())}),
    }
    text = "CONSTRAINT EXCLUSIVE(B, X); PATTERN SEQ(A a, B b) PARTITION BY k RETURN a.t AS t"
    assert ensue.detect(tables, text, time="t").num_rows == 0
    assert ensue.detect({**tables, "X": tables["X"].slice(0, 0)}, text, time="t").num_rows == 1


def test_eager_matches_of_traces_that_end_are_refused() -> None:
    text = "CONSTRAINT ENDS(End); PATTERN SEQ(A a, B b) PARTITION BY order_id"
    with pytest.raises(ensue.QueryError) as caught:
        ensue.detect(table_of([(1, "A")]), text, time="t", type="type", emit="eager")
    assert caught.value.code == "eager-ends"


def test_what_is_watched_does_not_depend_on_the_hash_of_texts() -> None:
    program = (
        "import ensue; w = ensue.process.workflow('A -> (B | C) -> {D, E -> F} -> G'); "
        "print(ensue.explain('PATTERN SEQ(A a, AND(D d, F f), G g) PARTITION BY k', constraints=w))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (0, 1, 2)
    }
    assert len(said) == 1


def test_constraints_alone_have_nothing_to_explain() -> None:
    with pytest.raises(ensue.QueryError) as caught:
        ensue.parse("CONSTRAINT ENDS(A)").explain()
    assert caught.value.code == "no-pattern"
