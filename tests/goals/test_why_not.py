"""`why_not`: what it blames, what it counts, what it shows, and what it refuses."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import ensue
from inside import app

BEGIN = datetime(2024, 1, 1, 10)
QUERY = "PATTERN paid SEQ(Order o [qty < 20], NOT Cancel c, Paid p) WHERE p.sum >= o.sum PARTITION BY id WITHIN 10m"
ROWS = [
    ("Order", 0, 7),
    ("Paid", 604, 7),
    ("Order", 0, 8),
    ("Paid", 700, 8),
    ("Order", 800, 9),
    ("Cancel", 820, 9),
    ("Paid", 830, 9),
    ("Paid", 995, 10),
    ("Order", 998, 10),
]


def table(rows: list[tuple[str, int, int]], qty: int = 5, sums: int = 3) -> pa.Table:
    return pa.table(
        {
            "t": [BEGIN + timedelta(seconds=seconds) for _, seconds, _ in rows],
            "type": [stream for stream, _, _ in rows],
            "id": [key for _, _, key in rows],
            "qty": [qty] * len(rows),
            "sum": [sums if stream == "Paid" else 3 for stream, _, _ in rows],
        }
    )


def ask(events: pa.Table, query: str = QUERY, **options: object) -> ensue.WhyNot:
    return ensue.why_not(events, query, time="t", type="type", **options)


def step(found: ensue.WhyNot, kind: str) -> dict[str, object]:
    return next(row for row in found.table.to_pylist() if row["kind"] == kind)


def test_the_window_is_blamed_with_the_closest_miss() -> None:
    found = ask(table(ROWS))
    assert found.matches == 0
    assert found.verdict == "no match: WITHIN 10m failed 2 times, closest 10m 4s, 4s over"
    window = step(found, "window")
    assert (window["tried"], window["failed"], window["near_misses"]) == (3, 2, 2)
    assert window["distance"] == 4_000_000
    nearest = window["examples"][0]
    assert nearest["key"] == "id = 7"
    assert [(event["variable"], event["end"]) for event in nearest["events"]] == [
        ("o", BEGIN),
        ("p", BEGIN + timedelta(seconds=604)),
    ]


def test_every_other_requirement_has_its_misses() -> None:
    found = ask(table(ROWS))
    assert step(found, "order")["closest"] == "3s late"
    forbidden = "Cancel c at 2024-01-01 10:13:40 (qty = 5, sum = 3) occurred between o and p"
    assert step(found, "absence")["closest"] == forbidden
    assert step(found, "condition")["near_misses"] == 0
    assert step(found, "predicate")["near_misses"] == 0


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        (table(ROWS[:1]), "no match: stream Paid has no events"),
        (
            table([("Order", 0, 7), ("Paid", 5, 7)], qty=22),
            "no match: Order o [qty < 20] failed once, closest o.qty = 22, needs < 20, 2 over",
        ),
        (
            table([("Order", 0, 7), ("Paid", 5, 7)], sums=1),
            "no match: p.sum >= o.sum failed once, closest p.sum = 1, needs >= 3 (o.sum), 2 short",
        ),
        (table([("Order", 0, 7), ("Paid", 5, 8)]), "no match: PARTITION BY id failed once, closest id = (7, 8)"),
        (
            table([("Order", 0, 7), ("Paid", 5, 7)], qty=22, sums=1),
            "no match: no candidate is left after Order o [qty < 20], closest o.qty = 22, needs < 20, 2 over; all of "
            "them fail more than one requirement",
        ),
        (table([("Order", 0, 7), ("Paid", 5, 7)]), "1 match"),
    ],
)
def test_verdicts(events: pa.Table, verdict: str) -> None:
    assert ask(events).verdict == verdict


def test_the_text_tells_how_far_they_came() -> None:
    lines = ask(table(ROWS), examples=1).to_text().splitlines()
    assert "  stream Order: 4 events" in lines
    assert "  WITHIN 10m: 1 of 3 choices" in lines
    assert "    id = 7; o at 2024-01-01 10:00:00, p at 2024-01-01 10:10:04; 10m 4s, 4s over" in lines


def test_a_policy_that_chose_other_matches_is_named() -> None:
    events = table([("Order", 0, 7), ("Order", 1, 7), ("Paid", 5, 7)])
    found = ask(events, "PATTERN SEQ(Order o, Paid p) MATCH RECENT")
    assert found.matches == 1
    assert found.verdict == "1 match: MATCH RECENT selected from 2"


def test_branches_lists_and_operators_have_requirements_of_their_own() -> None:
    events = table([("Order", 0, 7), ("Cancel", 2, 7), ("Paid", 60, 7)])
    either = ask(events, "PATTERN SEQ(OR(Order o, Cancel c), Paid p) WITHIN 30s")
    assert either.verdict == "no match: WITHIN 30s failed 2 times, closest 58s, 28s over"
    several = ask(events, "PATTERN SEQ(Order o, Cancel c{2,} ALL, Paid p)")
    assert several.verdict == "no match: Cancel c{2,} ALL failed once, closest 1 of 2"
    follows = ask(events, "PATTERN FOLLOWS(Order o, Paid p, 10s)")
    assert follows.verdict == "no match: FOLLOWS: o and p failed once, closest off by 50s"
    absent = ask(events, "PATTERN NOTFOLLOWS(Order o, Cancel c, 10s)")
    assert absent.verdict == (
        "no match: NOT Cancel c failed once, closest Cancel c at 2024-01-01 10:00:02 (id = 7, qty = 5, sum = 3) "
        "occurred after 2024-01-01 10:00:00 to 2024-01-01 10:00:10"
    )


def test_many_misses_are_cut_and_the_nearest_are_still_found() -> None:
    rows = [("Order", 0, 7)] + [("Paid", 1_000 + second, 7) for second in range(400)]
    found = ask(table(rows), most_choices=100)
    window = step(found, "window")
    assert window["cut"]
    assert window["closest"] == "16m 40s, 6m 40s over"


def test_a_declared_stream_can_be_asked_about() -> None:
    program = (
        "STREAM fast FROM PATTERN SEQ(Order o, Paid p) PARTITION BY id WITHIN 10m RETURN o.id AS id;"
        "PATTERN both SEQ(fast f, Cancel c) PARTITION BY id"
    )
    assert ask(table(ROWS[:4]), program, name="fast").verdict.startswith("no match: WITHIN 10m failed 2 times")
    assert ask(table(ROWS[:4]), program, name="both").verdict == "no match: stream fast has no events"


def test_names_that_are_not_there() -> None:
    with pytest.raises(ensue.QueryError) as unknown:
        ask(table(ROWS), QUERY, name="payed")
    assert unknown.value.code == "no-such-pattern"
    assert "paid" in str(unknown.value)
    with pytest.raises(ensue.QueryError) as several:
        ask(table(ROWS), "PATTERN p SEQ(Order o, Paid x); PATTERN q SEQ(Paid x, Order o)")
    assert several.value.code == "which-pattern"


def test_a_pattern_with_more_matches_than_are_counted() -> None:
    rows = [("Order", second, 7) for second in range(20)] + [("Paid", 100 + second, 7) for second in range(20)]
    with pytest.raises(ensue.LimitError) as many:
        ask(table(rows), most_choices=50)
    assert many.value.code == "too-many-matches"


def test_where_is_for_frames() -> None:
    with pytest.raises(ensue.SchemaError) as misplaced:
        ask(table(ROWS), where="id = 7")
    assert misplaced.value.code == "where-frame"


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "paid.ensue").write_text(QUERY)
    pa.csv.write_csv(table(ROWS), tmp_path / "events.csv")
    command = ["why-not", str(tmp_path / "paid.ensue"), "--events", str(tmp_path / "events.csv"), "--time", "t"]
    told = CliRunner().invoke(app, [*command, "--type", "type"])
    assert told.exit_code == 0
    assert told.stdout.startswith("paid: no match: WITHIN 10m failed 2 times, closest 10m 4s, 4s over")
    as_json = json.loads(CliRunner().invoke(app, [*command, "--type", "type", "--format", "json"]).stdout)
    assert as_json["name"] == "paid"
    assert {entry["kind"] for entry in as_json["steps"]} >= {"stream", "window", "absence"}
    unknown = CliRunner().invoke(app, [*command, "--type", "type", "--pattern", "other"])
    assert unknown.exit_code != 0
    missing = CliRunner().invoke(app, ["why-not", str(tmp_path / "no.ensue"), *command[2:], "--type", "type"])
    assert missing.exit_code == 2


RULES = """
STREAM order(id, qty); STREAM shipped(id, qty);
RULE overdue(id) <- o: order(id, q), w: extend(o, 6), while w: not shipped(id, _), q > 1;
RULE done(id, q) <- o: order(id, q), s: shipped(id, _), o before s, {o, s} within 1;
"""


def test_rules_are_asked_about_in_their_own_words() -> None:
    events = pa.table(
        {
            "t": [1, 3, 20, 30, 33],
            "type": ["order", "shipped", "order", "order", "shipped"],
            "id": [1, 1, 2, 3, 4],
            "qty": [5, 5, 1, 2, 2],
        }
    )
    done = ask(events, RULES, name="done")
    assert done.verdict == "no match: {o, s} within 1 failed once, closest off by 1"
    overdue = ask(events, RULES, name="overdue")
    assert overdue.matches == 1
    assert step(overdue, "absence")["what"] == "while w: not shipped(id, _)"
    assert step(overdue, "absence")["closest"] == "shipped at 3 (qty = 5) occurred after 1 before 7"
    assert step(overdue, "condition")["closest"] == "o.qty = 1, needs > 1, equal is not enough"


def test_rules_with_one_head_are_told_apart() -> None:
    program = "RULE near(x) <- a: A(x=x), b: B(x=x), {a, b} within 1; RULE near(x) <- a: A(x=x), c: C(x=x), a before c"
    events = pa.table({"t": [1, 5, 1], "type": ["A", "B", "C"], "x": [1, 1, 1]})
    found = ask(events, program)
    whats = [row["what"] for row in found.table.to_pylist()]
    assert "rule 1: {a, b} within 1" in whats
    assert "rule 2: a before c" in whats


def test_a_rule_that_looks_up_a_table() -> None:
    program = "TABLE price(id, amount); RULE dear(id) <- a: A(id=id), price(id, p), p > 10"
    events = pa.table({"t": [1, 2], "type": ["A", "A"], "id": [1, 2]})
    prices = pa.table({"id": [1, 3], "amount": [9, 20]})
    found = ask(events, program, tables={"price": prices})
    assert found.blamed is not None
    assert found.blamed.kind in ("condition", "predicate")
    assert found.blamed.near_misses == 1
    proved = pa.table({"id": [1], "amount": [30]})
    proof = ensue.justify(events, program, {"id": 1}, time="t", type="type", tables={"price": proved})
    assert "A at 1" in proof.to_text()


def test_names_in_backticks_are_shown_as_they_are() -> None:
    events = pa.table({"t": [1, 30], "type": ["A", "B"]})
    found = ask(events, "PATTERN SEQ(A `x#1`, B `b[1]`) WITHIN 10")
    (example,) = next(step.examples for step in found.steps if step.examples)
    assert [event.variable for event in example.events] == ["x#1", "b[1]"]


# --- events at the same time


TIED = [("Order", 0, 7), ("Paid", 0, 7), ("Order", 9, 8), ("Paid", 9, 8), ("Paid", 20, 9), ("Order", 21, 9)]
FIRST = "PATTERN SEQ(Order o, Paid p) PARTITION BY id WITHIN 1m"


def test_ties_are_apart_from_the_wrong_order() -> None:
    answer = ensue.why_not(table(TIED), FIRST, time="t", type="type")
    words = "`Paid` at the same time as `Order` 2 times (2024-01-01 10:00:00), but SEQ requires it strictly later"
    assert answer.verdict == f"no match: {words}; use `order=` or ALLOWING TIES"
    rows = {row["kind"]: row for row in answer.table.to_pylist()}
    assert (rows["order"]["near_misses"], rows["order"]["closest"]) == (1, "1s late")
    tie = rows["tie"]
    assert (tie["tried"], tie["failed"], tie["near_misses"], tie["distance"]) == (3, 2, 2, 0.0)
    assert [example["key"] for example in tie["examples"]] == ["id = 7", "id = 8"]
    first, second = "2024-01-01 10:00:00", "2024-01-01 10:00:09"
    assert repr(answer).split("\n\n")[2].splitlines() == [
        "events at the same time, which nothing orders: use `order=` or ALLOWING TIES",
        f"  {words}",
        f"    id = 7; o at {first}, p at {first}; o and p at the same time, {first}",
        f"    id = 8; o at {second}, p at {second}; o and p at the same time, {second}",
    ]
    assert "`Paid` at the same time as `Order` 2 times" in answer._repr_html_()


def test_a_single_tie_and_several_events_on_one_side() -> None:
    query = "PATTERN SEQ(AND(Order o, Cancel c), Paid p) PARTITION BY id WITHIN 1m"
    rows = [("Cancel", 1, 7), ("Order", 3, 7), ("Paid", 3, 7)]
    answer = ensue.why_not(table(rows), query, time="t", type="type")
    assert answer.verdict.startswith("no match: `Paid` at the same time as o, c once (2024-01-01 10:00:03), but SEQ")


@pytest.mark.parametrize(("clause", "columns"), [(" ALLOWING TIES", {}), ("", {"order": "qty"})])
def test_there_are_no_ties_where_something_decides(clause: str, columns: dict[str, str]) -> None:
    answer = ensue.why_not(table(TIED), FIRST + clause, time="t", type="type", **columns)
    assert "tie" not in answer.table["kind"].to_pylist()
    assert "ALLOWING" not in answer.to_text()


def test_matches_with_a_forbidden_event_at_the_very_time() -> None:
    query = "PATTERN SEQ(Order o, NOT Paid p) PARTITION BY id WITHIN 1m"
    answer = ensue.why_not(table(TIED), query, time="t", type="type")
    assert answer.verdict == "3 matches"
    assert answer.to_text().split("\n\n")[2].splitlines()[1:] == [
        "  2 of 3 matches have a `Paid` at the very time of `Order`",
        "    id = 7; o at 2024-01-01 10:00:00; Paid p at 2024-01-01 10:00:00 (qty = 5, sum = 3) is at the time of o",
        "    id = 8; o at 2024-01-01 10:00:09; Paid p at 2024-01-01 10:00:09 (qty = 5, sum = 3) is at the time of o",
    ]
    row = answer.table.to_pylist()[-1]
    assert (row["kind"], row["tried"], row["failed"], row["near_misses"]) == ("tie", 3, 2, None)
    allowed = ensue.why_not(table(TIED), f"{query} ALLOWING TIES", time="t", type="type")
    assert allowed.verdict == "1 match"
    step = next(step for step in allowed.steps if step.kind == "absence")
    assert (step.near_misses, step.closest) == (
        2,
        "Paid p at 2024-01-01 10:00:00 (qty = 5, sum = 3), at the very time of o, occurred after o",
    )


def test_what_came_closest_if_all_choices_fail_several_requirements() -> None:
    """The requirement that leaves no choice says how close those before it came, without being a near miss."""
    events = pa.table(
        {
            "t": pa.array([0, 1, 2, 3, 10, 11], pa.timestamp("s")),
            "type": ["F", "F", "F", "F", "L", "L"],
            "k": [1, 1, 1, 1, 1, 2],
            "x": [0.0, 1.5, 3.0, 4.5, 3.0, 9.0],
        }
    )
    query = "PATTERN SEQ(COLLECT F f, L l) WHERE count(f) > 5 AND sum(f.x) > 20 PARTITION BY k WITHIN 1 minute"
    found = ensue.why_not(events, query, time="t", type="type")
    assert found.verdict == (
        "no match: no candidate is left after count(f) > 5, closest count(f) = 4, needs > 5, 1 short; "
        "all of them fail more than one requirement"
    )
    assert found.nearest == ()
    assert "no near misses: what came closest failed this requirement and others\n  count(f) > 5 failed 2 times" in str(
        found
    )
    assert "count(f) = 4, needs &gt; 5, 1 short" in found._repr_html_()
    stopped = next(row for row in found.table.to_pylist() if row["what"] == "count(f) > 5")
    assert (stopped["near_misses"], stopped["rank"], stopped["distance"]) == (0, None, 1.0)
    assert [example["had"] for example in stopped["examples"]] == ["count(f) = 4", "count(f) = 0"]


def test_a_repetition_that_never_occurs() -> None:
    events = pa.table({"t": [1, 2, 3], "type": ["F", "F", "L"]})
    found = ensue.why_not(events, "PATTERN SEQ(F f{3}, L l) WITHIN 10", time="t", type="type")
    assert found.verdict == "no match: not enough events in order for F f{3}"
