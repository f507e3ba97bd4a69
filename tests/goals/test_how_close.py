"""How close near misses came: each statement of `why_not`, in exact examples and against plain Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import ensue
from inside import app

BEGIN = datetime(2024, 1, 1, 10)


def table(*rows: tuple[Any, ...], **columns: list[Any]) -> pa.Table:
    """Events of (stream, seconds), with further columns."""
    times = [BEGIN + timedelta(seconds=row[1]) for row in rows]
    return pa.table({"at": times, "kind": [row[0] for row in rows], **columns})


def ask(events: pa.Table, query: str, **options: Any) -> ensue.WhyNot:
    return ensue.why_not(events, query, time="at", type="kind", **options)


def notes(found: ensue.WhyNot, kind: str) -> list[str]:
    return [example.note for step in found.steps if step.kind == kind for example in step.examples]


def only(found: ensue.WhyNot, kind: str) -> dict[str, Any]:
    (row,) = [row for row in found.table.to_pylist() if row["kind"] == kind]
    return row


# --- exact examples


def test_the_number_of_elements() -> None:
    events = table(*[("Failed", second) for second in range(4)], ("Accepted", 9))
    found = ask(events, "PATTERN SEQ(COLLECT Failed f{5,}, Accepted a) WITHIN 1m")
    assert found.verdict == "no match: Failed f{5,} ALL failed once, closest 4 of 5"
    row = only(found, "collection")
    assert (row["distance"], row["share"]) == (1.0, 0.2)
    assert (row["examples"][0]["had"], row["examples"][0]["needed"]) == ("4", "at least 5")
    few = ask(events, "PATTERN SEQ(COLLECT Failed{0,3}, Accepted a) WITHIN 1m")
    assert few.verdict.endswith("closest 4 of at most 3")
    row = only(few, "collection")
    assert (row["share"], row["examples"][0]["needed"]) == (pytest.approx(1 / 3), "at most 3")


PAIR = table(
    ("A", 0),
    ("B", 3000),
    id=[1, 1],
    amount=[990, 7],
    price=[99.24, None],
    user=["ann", "bob"],
    text=["Accepted password", None],
    ok=[False, None],
    due=[timedelta(minutes=5), timedelta(days=1, hours=2)],
)


@pytest.mark.parametrize(
    ("condition", "note", "distance", "share"),
    [
        ("a.amount > 1000", "a.amount = 990, needs > 1000, 10 short", 10, 0.01),
        ("1000 < a.amount", "a.amount = 990, needs > 1000, 10 short", 10, 0.01),
        ("a.amount < 900", "a.amount = 990, needs < 900, 90 over", 90, 0.1),
        ("a.amount > 990", "a.amount = 990, needs > 990, equal is not enough", 0, 0),
        ("a.amount <= 0", "a.amount = 990, needs <= 0, 990 over", 990, None),
        ("a.amount = 1000", "a.amount = 990, needs = 1000, 10 apart", 10, None),
        ("a.amount != 990", "a.amount = 990, needs != 990", None, None),
        ("a.price > 100", "a.price = 99.24, needs > 100, 0.76 short", pytest.approx(0.76), pytest.approx(0.0076)),
        ("b.price > 100", "b.price = null, needs > 100", None, None),
        ("b.amount >= a.amount * 2", "b.amount = 7, needs >= 1980 (a.amount * 2), 1973 short", 1973, 1973 / 1980),
        ("a.amount BETWEEN 1000 AND 2000", "a.amount = 990, needs BETWEEN 1000 AND 2000, 10 short", 10, 0.01),
        ("a.amount BETWEEN 1 AND 99", "a.amount = 990, needs BETWEEN 1 AND 99, 891 over", 891, 9),
        (
            "a.amount BETWEEN b.amount AND b.amount + 3",
            "a.amount = 990, needs BETWEEN b.amount AND b.amount + 3 (7 and 10), 980 over",
            980,
            98,
        ),
        ("a.amount NOT BETWEEN 1 AND 2000", "a.amount = 990, needs NOT BETWEEN 1 AND 2000", None, None),
        ("a.user = b.user", "a.user = 'ann', b.user = 'bob', not equal", None, None),
        ("a.amount = b.amount", "a.amount = 990, b.amount = 7, not equal, 983 apart", 983, None),
        ("a.id != b.id", "a.id = 1, b.id = 1, equal", None, None),
        ("a.text = b.text", "a.text = 'Accepted password', b.text = null, null equals nothing", None, None),
        ("SAME(user)", "a.user = 'ann', b.user = 'bob', not the same", None, None),
        ("a.text LIKE 'Failed%'", "a.text = 'Accepted password', needs LIKE 'Failed%'", None, None),
        ("b.text ILIKE 'x'", "b.text = null, needs ILIKE 'x'", None, None),
        ("lower(a.text) NOT LIKE '%pass%'", "lower(a.text) = 'accepted password', needs NOT LIKE '%pass%'", None, None),
        ("a.user IN ('x', 'y')", "a.user = 'ann', needs IN ('x', 'y')", None, None),
        ("a.user NOT IN ('ann')", "a.user = 'ann', needs NOT IN ('ann')", None, None),
        ("a.user IS NULL", "a.user = 'ann', needs IS NULL", None, None),
        ("b.text IS NOT NULL", "b.text = null, needs IS NOT NULL", None, None),
        ("a.ok = TRUE", "a.ok = FALSE, needs = TRUE", None, None),
        ("a.ok", "a.ok = FALSE", None, None),
        ("a.amount > 1000 OR b.user = 'x'", "a.amount = 990, b.user = 'bob'", None, None),
        ("b.at - a.at > 2h", "b.at - a.at = 50m, needs > 2h, 1h 10m short", 4_200_000_000, 7 / 12),
        ("b.due < a.due", "b.due = 1d 2h, needs < 5m (a.due), 1d 1h 55m over", 93_300_000_000, 311),
        (
            "b.at < a.at + 5m",
            "b.at = 2024-01-01 10:50:00, needs < 2024-01-01 10:05:00 (a.at + 5m), 45m over",
            2_700_000_000,
            None,
        ),
        (
            "a.at > TIMESTAMP '2024-01-01 11:00:00'",
            "a.at = 2024-01-01 10:00:00, needs > 2024-01-01 11:00:00, 1h short",
            3_600_000_000,
            None,
        ),
    ],
)
def test_the_value_that_failed_a_condition(condition: str, note: str, distance: Any, share: Any) -> None:
    found = ask(PAIR, f"PATTERN SEQ(A a, B b) WHERE {condition}")
    row = only(found, "condition")
    assert (row["near_misses"], row["closest"], row["distance"], row["share"]) == (1, note, distance, share)
    assert row["examples"][0]["note"] == note
    assert note.startswith(row["examples"][0]["had"])


def test_large_integers_differ_exactly() -> None:
    large = 2**62
    events = table(*[("A", second) for second in range(3)], x=[large + 1, large - 1, -large])
    found = ask(events, f"PATTERN A a [x > {large + 2}]", examples=9)
    assert [(example.distance, example.note.split(", ")[-1]) for example in found.nearest[0].examples] == [
        (1.0, "1 short"),
        (3.0, "3 short"),
        (float(2 * large + 2), f"{2 * large + 2} short"),
    ]


def test_long_values_are_cut() -> None:
    events = table(("A", 0), text=["x" * 500])
    (note,) = notes(ask(events, "PATTERN A a [text LIKE 'y%']"), "predicate")
    assert note == f"a.text = '{'x' * 76}..., needs LIKE 'y%'"


def test_predicates_with_several_conditions() -> None:
    events = table(*[("A", second) for second in range(3)], x=[9, 5, 1], text=["b", "a", "b"])
    found = ask(events, "PATTERN A a [x >= 10 AND text LIKE 'a%']")
    assert notes(found, "predicate") == [
        "a.x = 5, needs >= 10, 5 short",
        "a.x = 9, needs >= 10, 1 short; a.text = 'b', needs LIKE 'a%'",
        "a.x = 1, needs >= 10, 9 short; a.text = 'b', needs LIKE 'a%'",
    ]
    assert [(example.distance, example.share) for example in found.nearest[0].examples] == [
        (5.0, 0.5),
        (None, None),
        (None, None),
    ]


def test_a_condition_that_is_defined_only_where_those_before_it_hold() -> None:
    events = table(("A", 0), ("A", 1), unit=["n", "s"], text=["3", "abc"])
    found = ask(events, "PATTERN A a [unit = 'n' AND CAST(text AS BIGINT) > 5]")
    assert notes(found, "predicate") == ["CAST(a.text AS BIGINT) = 3, needs > 5, 2 short", ""]


def test_aggregates_and_streams_of_rows() -> None:
    events = pa.table({"at": [1, 2, 3], "line": ["F 1", "F 2", "A 3"]})
    program = (
        "STREAM Failed FROM log WHERE line LIKE 'F%' RETURN CAST(substr(line, 3) AS BIGINT) AS port;"
        "STREAM Accepted FROM log WHERE line LIKE 'A%';"
        "PATTERN SEQ(COLLECT Failed f, Accepted a) WHERE sum(f.port) > 5 WITHIN 10"
    )
    found = ensue.why_not({"log": events}, program, time="at")
    assert found.verdict == "no match: sum(f.port) > 5 failed once, closest sum(f.port) = 3, needs > 5, 2 short"
    assert "  stream Accepted: 1 event" in found.to_text().splitlines()


def test_windows_orders_and_relations() -> None:
    events = table(("A", 0), ("B", 20), ("A", 30), ("B", 32), id=[1, 1, 2, 2])
    found = ask(events, "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 1s")
    assert notes(found, "window") == ["2s, 1s over", "20s, 19s over"]
    assert [example.share for example in found.nearest[0].examples] == [1.0, 19.0]
    assert found.nearest[0].examples[0].needed == "at most 1s"
    assert notes(ask(events, "PATTERN SEQ(B b, A a) PARTITION BY id"), "order") == ["2s late", "20s late"]
    follows = ask(events, "PATTERN FOLLOWS(A a, B b, 1s) PARTITION BY id")
    assert notes(follows, "relation") == ["off by 1s", "off by 19s"]
    counted = ask(events, "PATTERN SEQ(A a [id = 1], B b [id = 2]) WITHIN 3 EVENTS")
    assert notes(counted, "window") == ["4 EVENTS, 1 over"]


def test_the_absence_and_what_occurred_where() -> None:
    events = table(
        ("O", 0),
        ("C", 5),
        ("C", 6),
        ("D", 7),
        ("P", 9),
        id=[1, 1, 1, 1, 1],
        empty=[None] * 5,
        why=["", "late", "lost", "", ""],
        host=["h1", "h2", "h3", "h4", "h5"],
        level=[1, 2, 3, 4, 5],
        port=[None, 22, 23, 24, None],
    )
    asked = "PATTERN SEQ(O o, NOT C c [port > 0], NOT D d, P p) PARTITION BY id WITHIN 1m"
    without_d = asked.replace(" NOT D d,", "")
    # The column that the query uses is shown first; the key and columns without a value are not shown.
    shown = "C c at 2024-01-01 10:00:05 (port = 22, why = 'late', host = 'h2') occurred between o and p, and 1 more"
    assert notes(ask(events, without_d), "absence") == [shown]
    assert ask(events, asked).verdict.startswith("no match: no candidate is left after")
    before = ask(events, "PATTERN SEQ(NOT C c, D d) PARTITION BY id WITHIN 1500ms")
    assert notes(before, "absence") == [
        "C c at 2024-01-01 10:00:06 (why = 'lost', host = 'h3', level = 3) occurred before d"
    ]
    after = ask(events, "PATTERN SEQ(O o, NOT C) PARTITION BY id WITHIN 5s")
    assert notes(after, "absence") == [
        "C at 2024-01-01 10:00:05 (why = 'late', host = 'h2', level = 2) occurred after o"
    ]
    both = ask(events, "PATTERN SEQ(AND(O o, D d), NOT SEQ(C c, C x), P p) PARTITION BY id")
    assert both.matches == 1
    reach = ask(events, "PATTERN SEQ(NOT C c WITHIN 3s BEFORE p, P p) PARTITION BY id")
    (note,) = notes(reach, "absence")
    assert note.endswith("occurred from 2024-01-01 10:00:06 before 2024-01-01 10:00:09")


def test_the_neighbour_of_an_absence_is_the_one_that_bounds_it() -> None:
    events = table(("A", 0), ("B", 3), ("C", 4), ("E", 6), ("D", 8), id=[1] * 5)
    found = ask(events, "PATTERN SEQ(AND(A a, B b), NOT C c, AND(D d, E e)) PARTITION BY id")
    assert notes(found, "absence") == ["C c at 2024-01-01 10:00:04 occurred between b and e"]


def test_which_events_tie() -> None:
    rows = [("A", 0), ("B", 3), ("C", 3), ("C", 3)]
    found = ask(table(*rows), "PATTERN SEQ(AND(A a, B b), C c)", examples=1)
    assert notes(found, "tie") == ["b and c at the same time, 2024-01-01 10:00:03"]
    silent = ask(table(*rows, n=[1, 2, 3, 4]), "PATTERN SEQ(B b, NOT C c) WITHIN 5s")
    assert notes(silent, "tie") == ["C c at 2024-01-01 10:00:03 (n = 3) is at the time of b"]
    without = ask(table(*rows), "PATTERN SEQ(AND(A a, B b), C c)", examples=0)
    assert without.verdict == found.verdict
    assert without.nearest[0].examples == ()


def test_a_match_that_ties_on_both_sides_of_a_not_counts_once() -> None:
    events = table(("A", 0), ("C", 0), ("A", 5), ("C", 5))
    query = "PATTERN SEQ(A a, NOT C c, A b)"
    assert "\n  1 of 1 match has a `C` at the very time of `A`\n" in ask(events, query).to_text()
    with pytest.warns(ensue.EnsueNotice, match="1 of 1 match has a `C` at the very time of `A`"):
        ensue.detect(events, query, time="at", type="kind")


def test_the_most_useful_misses_come_first() -> None:
    rows = [
        *[("A", 0), ("B", 70)],  # 10s over 60s: 17%
        *[("A", 100), ("C", 105), ("B", 110)],  # a NOT
        *[("A", 200), ("B", 205)],  # 99 of 100: 1%
        *[("B", 300), ("A", 301)],  # the wrong order
        *[("A", 400), ("B", 400)],  # a tie
        *[("A", 500), ("B", 900)],  # 340s over
        *[("A", 2000), ("B", 2010)],  # another key
    ]
    key = [1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8]
    events = table(*rows, id=key, x=[99 if number == 3 else 100 for number in key])
    query = "PATTERN SEQ(A a, NOT C c, B b) WHERE a.x >= 100 PARTITION BY id WITHIN 1m"
    found = ask(events, query)
    assert [step.kind for step in found.nearest] == ["tie", "condition", "window", "absence", "order", "key"]
    ranks = {row["kind"]: row["rank"] for row in found.table.to_pylist() if row["rank"]}
    assert ranks == {"tie": 1, "condition": 2, "window": 3, "absence": 4, "order": 5, "key": 6}
    titles = [line.strip() for line in found.to_text().splitlines() if " failed " in line or "same time as" in line]
    assert [title.split(" failed ")[0] for title in titles[2:]] == [
        "a.x >= 100",
        "WITHIN 1m",
        "NOT C c",
        "SEQ: a before b",
        "PARTITION BY id",
    ]
    far = ask(events.slice(2), query)
    assert [step.kind for step in far.nearest][:4] == ["tie", "condition", "absence", "window"]


def test_the_order_is_blamed_after_everything_but_the_key() -> None:
    rows = [("B", 0), ("A", 1), ("B", 10), ("A", 11), ("A", 20), ("B", 50)]
    events = table(*rows, id=[1, 1, 2, 2, 3, 3])
    query = "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 20s"
    assert ask(events, query).verdict == "no match: WITHIN 20s failed once, closest 30s, 10s over"
    assert ask(events.slice(0, 4), query).verdict == "no match: SEQ: a before b failed 2 times, closest 1s late"


class Cells(HTMLParser):
    """The texts of the cells of all tables, and all tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")
            self.inside = True
        if tag == "br":
            self.cells[-1] += "\n"

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data


def test_tables_in_notebooks() -> None:
    script = "<script>alert(1)</script>"
    events = table(("A", 0), ("B", 5), id=[script] * 2, text=[script, "x & y"])
    found = ask(events, "PATTERN SEQ(A a, B b [text LIKE '<b>%']) PARTITION BY id")
    page = Cells(found._repr_html_())
    assert page.tags == {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "br"}
    (example,) = found.nearest[0].examples
    at = page.cells.index("B b [text LIKE '<b>%'] failed once")
    assert page.cells[at + 1 : at + 4] == [
        f"id = '{script}'",
        "a at 2024-01-01 10:00:00\nb at 2024-01-01 10:00:05",
        "b.text = 'x & y', needs LIKE '<b>%'",
    ]
    assert page.cells[at + 3] == example.note
    words = found.to_text()
    left = page.cells[page.cells.index("left") + 1 :]
    for label, number in zip(left[::2], left[1::2], strict=False):
        assert f"  {label}: {number}" in words
    assert escape(found.verdict) in found._repr_html_()
    silent = ask(events, "PATTERN SEQ(A a, B b)", examples=0)
    assert Cells(silent._repr_html_()).cells[:2] == ["requirement", "left"]


# --- against plain Python


@dataclass(frozen=True)
class Row:
    """An event; `key` and the values may be null."""

    number: int
    stream: str
    at: int
    key: int | None
    x: int | None
    y: float | None
    name: str | None


NAMES = ("stream", "at", "key", "x", "y", "name")
# Most events are good, so that many pairs fail exactly one requirement.
VALUES: tuple[tuple[Any, ...], ...] = (
    tuple("ABABABC"),
    tuple(range(13)),
    (1, 1, 1, 1, 1, 1, 2, None),
    (2, 3, 2, 3, 2, 3, 1, 0, 4, None),
    (0.0, 0.5, 2.0, 3.5, 4.5, None),
    ("a", "ab", "a", "ab", "b", None),
)


def history_of(number: int) -> list[Row]:
    """A history for each number. Drawn value by value, most histories would be too much alike to have near misses."""
    random = Random(number)
    return [Row(place, *map(random.choice, VALUES)) for place in range(random.randint(10, 18))]


HISTORIES = st.integers(0, 2**32).map(history_of)


def arrow(history: list[Row]) -> pa.Table:
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.float64(), pa.string())
    columns = {
        name: pa.array([getattr(row, name) for row in history], kind) for name, kind in zip(NAMES, kinds, strict=True)
    }
    return pa.table({"n": [row.number for row in history], **columns})


Miss = tuple[Any, ...]
"""What is known of a near miss: distance, share and note."""


@dataclass(frozen=True)
class Condition:
    """A condition on a pair: its text, whether it holds, and what a pair that fails it lacks."""

    text: str
    holds: Callable[[Row, Row], bool]
    lacks: Callable[[Row, Row], Miss]


def text(value: Any) -> str:
    return "null" if value is None else repr(value)


def plain(number: float) -> str:
    return f"{number:g}"


def below(a: Row, b: Row) -> Miss:
    """What fails `b.y <= a.x + 1`."""
    needed = None if a.x is None else a.x + 1
    note = f"b.y = {text(b.y)}, needs <= {text(needed)} (a.x + 1)"
    if b.y is None or needed is None:
        return None, None, note
    over = b.y - needed
    return over, over / needed, f"{note}, {plain(over)} over"


def equal_numbers(a: Row, b: Row) -> Miss:
    note = f"a.x = {text(a.x)}, b.x = {text(b.x)}"
    if a.x is None or b.x is None:
        return None, None, f"{note}, null equals nothing"
    return abs(a.x - b.x), None, f"{note}, not equal, {abs(a.x - b.x)} apart"


def equal_texts(a: Row, b: Row) -> Miss:
    how = "null equals nothing" if None in (a.name, b.name) else "not equal"
    return None, None, f"a.name = {text(a.name)}, b.name = {text(b.name)}, {how}"


def between(a: Row, b: Row) -> Miss:
    note = f"a.x = {text(a.x)}, needs BETWEEN 2 AND 3"
    if a.x is None:
        return None, None, note
    return (2 - a.x, (2 - a.x) / 2, f"{note}, {2 - a.x} short") if a.x < 2 else (1, 1 / 3, f"{note}, 1 over")


def apart(a: Row, b: Row) -> Miss:
    """What fails `b.at - a.at >= 3`."""
    short = 3 - (b.at - a.at)
    return short, short / 3, f"b.at - a.at = {b.at - a.at}, needs >= 3, {short} short"


CONDITIONS = (
    Condition("b.y <= a.x + 1", lambda a, b: None not in (a.x, b.y) and b.y <= a.x + 1, below),  # type: ignore
    Condition("a.x = b.x", lambda a, b: a.x is not None and a.x == b.x, equal_numbers),
    Condition("a.name = b.name", lambda a, b: a.name is not None and a.name == b.name, equal_texts),
    Condition("a.x BETWEEN 2 AND 3", lambda a, b: a.x in (2, 3), between),
    Condition("b.at - a.at >= 3", lambda a, b: b.at - a.at >= 3, apart),
    Condition(
        "b.name LIKE 'a%'",
        lambda a, b: b.name is not None and b.name.startswith("a"),
        lambda a, b: (None, None, f"b.name = {text(b.name)}, needs LIKE 'a%'"),
    ),
    Condition(
        "a.x IN (1, 3)",
        lambda a, b: a.x in (1, 3),
        lambda a, b: (None, None, f"a.x = {text(a.x)}, needs IN (1, 3)"),
    ),
)


@dataclass(frozen=True)
class Pairs:
    """`SEQ(A a [x >= 2], NOT C c, B b) WHERE ... PARTITION BY key WITHIN window`, by brute force."""

    history: list[Row]
    condition: Condition
    window: int

    @property
    def query(self) -> str:
        pattern = "SEQ(A a [x >= 2], NOT C c, B b)"
        return f"PATTERN {pattern} WHERE {self.condition.text} PARTITION BY key WITHIN {self.window}"

    def forbidden(self, a: Row, b: Row, keyed: bool = True) -> list[Row]:
        return [
            c
            for c in self.history
            if c.stream == "C" and a.at < c.at < b.at and (not keyed or (c.key is not None and c.key == a.key))
        ]

    def failed(self, a: Row, b: Row) -> tuple[set[str], bool]:
        """The requirements that a pair fails, and whether forbidden events of any key are between them."""
        one_key = a.key is not None and a.key == b.key
        tests = {
            "predicate": a.x is not None and a.x >= 2,
            "key": one_key,
            "order": a.at < b.at,
            "window": abs(b.at - a.at) <= self.window,
            "condition": self.condition.holds(a, b),
            "absence": not (one_key and self.forbidden(a, b)),
        }
        return {kind for kind, holds in tests.items() if not holds}, bool(self.forbidden(a, b, keyed=False))

    def misses(self) -> Iterator[tuple[str, Row, Row]]:
        """The pairs that fail exactly one requirement, which is a tie if they are at the same time."""
        for a, b in product(self.history, repeat=2):
            if (a.stream, b.stream) != ("A", "B"):
                continue
            failed, crossed = self.failed(a, b)
            if failed == {"key"} and crossed:
                continue  # without the key, events of every key are forbidden
            if len(failed) == 1:
                (kind,) = failed
                yield ("tie" if kind == "order" and a.at == b.at else kind), a, b

    def lacks(self, kind: str, a: Row, b: Row) -> Miss:
        match kind:
            case "predicate":
                if a.x is None:
                    return None, None, "a.x = null, needs >= 2"
                return 2 - a.x, (2 - a.x) / 2, f"a.x = {a.x}, needs >= 2, {2 - a.x} short"
            case "key":
                return None, None, ""
            case "order":
                return a.at - b.at, None, f"{a.at - b.at} late"
            case "tie":
                return 0, 0, f"a and b at the same time, {a.at}"
            case "window":
                over = b.at - a.at - self.window
                return over, over / self.window, f"{b.at - a.at}, {over} over"
            case "condition":
                return self.condition.lacks(a, b)
        forbidden = self.forbidden(a, b)
        first = min(c.at for c in forbidden)
        more = f", and {len(forbidden) - 1} more" if len(forbidden) > 1 else ""
        return None, None, f"C c at {first} (...) occurred between a and b{more}"


def without_columns(note: str) -> str:
    """The note with `(...)` in place of the columns of a forbidden event; which of several it is stays open."""
    before, found, rest = note.partition(" (n = ")
    return f"{before} (...){rest.partition(')')[2]}" if found else note


@given(HISTORIES, st.sampled_from(CONDITIONS), st.integers(3, 9))
def test_what_near_misses_lack_is_what_plain_python_finds(
    history: list[Row], condition: Condition, window: int
) -> None:
    pairs = Pairs(history, condition, window)
    found = ensue.why_not(arrow(history), pairs.query, time="at", type="stream", examples=1000)
    expected: dict[str, list[tuple[Any, ...]]] = {}
    for kind, a, b in pairs.misses():
        distance, share, note = pairs.lacks(kind, a, b)
        start = min(a.at, b.at)
        near = float("inf") if distance is None else distance
        expected.setdefault(kind, []).append((near if kind != "key" else 0, start, a.at, b.at, note, share, distance))
    steps = {step.kind: step for step in found.steps if step.near_misses}
    assert steps.keys() == expected.keys()
    for kind, step in steps.items():
        seen = []
        for example in step.examples:
            at = {event.variable: event.start for event in example.events}
            near = float("inf") if example.distance is None else example.distance
            start = min(at.values())
            share = None if example.share is None else pytest.approx(example.share)
            seen.append((near if kind != "key" else 0, start, at["a"], at["b"], without_columns(example.note), share))
        assert [entry[:2] for entry in seen] == sorted(entry[:2] for entry in expected[kind])
        assert sorted(map(repr_of, seen)) == sorted(repr_of(entry[:6]) for entry in expected[kind])
        nearest = min(expected[kind], key=lambda entry: entry[:2])
        assert step.distance == nearest[6]
    assert_ordered(found, expected)


def repr_of(entry: tuple[Any, ...]) -> str:
    """An entry as text, so that null and numbers can be sorted; shares with six digits."""
    share = getattr(entry[5], "expected", entry[5])
    return repr((float(entry[0]), *entry[1:5], None if share is None else f"{share:.6f}"))


def assert_ordered(found: ensue.WhyNot, expected: dict[str, list[tuple[Any, ...]]]) -> None:
    """The order of the requirements, and the one that is blamed."""

    def place(kind: str) -> tuple[int, float, int]:
        group = {"key": 2, "order": 1}.get(kind, 0)
        first = min(expected[kind], key=lambda entry: entry[:2])
        near = first[6] if kind == "order" else 1 if first[5] is None else first[5]
        return group, round(near, 9), -len(expected[kind])

    assert [place(step.kind) for step in found.nearest] == sorted(map(place, expected))
    if found.blamed is not None and not found.matches:
        last = {"key": 2, "order": 1}
        best = min((last.get(kind, 0), -len(entries)) for kind, entries in expected.items())
        assert (last.get(found.blamed.kind, 0), -(found.blamed.near_misses or 0)) == best


@given(HISTORIES, st.integers(0, 3), st.integers(0, 3), st.integers(1, 8))
def test_how_many_elements_there_were(history: list[Row], least: int, more: int, window: int) -> None:
    least, most = max(least, 1), max(least, 1) + more
    query = f"PATTERN SEQ(COLLECT A f{{{least},{most}}}, B b) PARTITION BY key WITHIN {window}"
    found = ensue.why_not(arrow(history), query, time="at", type="stream", examples=1000)
    expected: list[tuple[Any, ...]] = []
    for b in history:
        if b.stream != "B" or b.key is None:
            continue
        count = sum(a.stream == "A" and a.key == b.key and b.at - window <= a.at < b.at for a in history)
        if count < least:
            expected.append((least - count, b.at, f"{count} of {least}", (least - count) / least))
        elif count > most:
            expected.append((count - most, b.at, f"{count} of at most {most}", (count - most) / most))
    (step,) = [step for step in found.steps if step.kind == "collection"]
    assert step.near_misses == len(expected)
    seen = [(one.distance, one.events[0].start, one.note, one.share) for one in step.examples]
    assert sorted(seen) == sorted(expected)
    assert [entry[:2] for entry in seen] == sorted(entry[:2] for entry in expected)


@given(HISTORIES)
def test_forbidden_events_at_the_time_of_their_neighbour(history: list[Row]) -> None:
    found = ensue.why_not(arrow(history), "PATTERN SEQ(A a, NOT C c) WITHIN 3", time="at", type="stream", examples=1000)
    expected = Counter(
        (a.at, f"C c at {a.at} (...) is at the time of a")
        for a in history
        if a.stream == "A"
        and not any(c.stream == "C" and a.at < c.at <= a.at + 3 for c in history)
        and any(c.stream == "C" and c.at == a.at for c in history)
    )
    seen = [
        (example.events[0].start, without_columns(example.note))
        for step in found.steps
        if step.kind == "tie"
        for example in step.examples
    ]
    assert Counter(seen) == expected
    assert [start for start, _ in seen] == sorted(start for start, _ in seen)


def test_the_command_line_has_the_same(tmp_path: Path) -> None:
    pa.csv.write_csv(PAIR.select(["at", "kind", "amount", "text"]), tmp_path / "events.csv")
    (tmp_path / "big.ensue").write_text("PATTERN big SEQ(A a, B b) WHERE a.amount > 1000")
    command = ["why-not", str(tmp_path / "big.ensue"), "--events", str(tmp_path / "events.csv")]
    command += ["--time", "at", "--type", "kind"]
    told = CliRunner().invoke(app, command)
    assert "a.amount = 990, needs > 1000, 10 short" in told.stdout
    (step,) = [
        step
        for step in json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)["steps"]
        if step["kind"] == "condition"
    ]
    assert (step["rank"], step["share"], step["examples"][0]["needed"]) == (1, 0.01, "> 1000")
