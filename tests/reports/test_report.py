"""What a report says, without a browser: its facts, and that the page holds them and nothing that acts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ensue

SECONDS = [0, 60, 120, 180, 400, 500]
ORDERS = pa.table(
    {
        "t": pa.array(SECONDS, pa.timestamp("s")).cast(pa.timestamp("us")),
        "type": ["Placed", "Placed", "Paid", "Shipped", "Shipped", "Placed"],
        "id": [7, 8, 7, 7, 8, 9],
        "amount": [10.0, 20.5, 10.0, None, float("nan"), 5.0],
    }
)
UNPAID = "PATTERN unpaid SEQ(Placed p, NOT Paid y, Shipped s) PARTITION BY id WITHIN 1 hour RETURN p.id AS id"
PAID = "PATTERN paid SEQ(Placed p, Paid y) PARTITION BY id WITHIN 1 hour"


def report(program: Any, events: Any = ORDERS, **options: Any) -> ensue.HtmlReport:
    return ensue.report(events, program, time="t", type="type", **options)


def facts_in(page: str) -> dict[str, Any]:
    """The data of a page, as a browser reads it: columns and shared parts become records again."""
    found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    facts = json.loads(found[1])
    proofs = facts.pop("proofs")
    return {**facts, "events": events_in(facts), "matches": matches_in(facts["matches"], proofs)}


def column_in(packed: Any) -> list[Any]:
    return packed if isinstance(packed, list) else [packed["of"][place] for place in packed["at"]]


def numbers_in(runs: list[int]) -> list[int]:
    """Numbers, in which -n stands for n successors of the one before."""
    numbers: list[int] = []
    for number in runs:
        numbers += [number] if number >= 0 else range(numbers[-1] + 1, numbers[-1] - number + 1)
    return numbers


def events_in(facts: dict[str, Any]) -> list[dict[str, Any]]:
    packed = facts["events"]
    names = ("stream", "start", "lanes", "fields")
    events = [
        dict(zip(names, one, strict=True)) for one in zip(*(column_in(packed[name]) for name in names), strict=True)
    ]
    rows = [zip(*map(column_in, group), strict=True) for group in packed["values"]]
    for number, event in enumerate(events):
        event |= {"end": packed["end"].get(str(number), event["start"]), "values": list(next(rows[event["fields"]]))}
        event |= {"derived": True} if number in packed["derived"] else {}
    return events


def matches_in(packed: dict[str, Any], proofs: list[Any]) -> list[dict[str, Any]]:
    def proof_of(number: int) -> dict[str, Any]:
        kind, text, *further = proofs[number]
        event = {"event": further[0]} if further and further[0] is not None else {}
        parts = {"because": [proof_of(part) for part in numbers_in(further[1])]} if further[1:] else {}
        return {"kind": kind, "text": text, **event, **parts}

    names = ("pattern", "lane", "start", "end", "complete", "span", "words", "id")
    found = [
        dict(zip(names, one, strict=True)) for one in zip(*(column_in(packed[name]) for name in names), strict=True)
    ]
    rows = [iter(range(len(found))) for _ in packed["shapes"]]
    for number, (match, shape) in enumerate(zip(found, column_in(packed["shape"]), strict=True)):
        place = next(rows[shape])
        values = [column_in(values)[place] for values in packed["rows"][shape]]
        match["row"] = dict(zip(packed["shapes"][shape], values, strict=True))
        match["events"] = numbers_in(packed["events"][number])
        match["proof"] = None if packed["proof"][number] is None else proof_of(packed["proof"][number])
    return found


def labels(facts: Any) -> list[str]:
    return [lane["label"] for lane in facts["lanes"]]


def texts(proof: dict[str, Any]) -> list[str]:
    return [proof["text"], *(text for part in proof.get("because", ()) for text in texts(part))]


def test_the_page_holds_the_facts_and_a_match_what_proves_it() -> None:
    page = report(f"{UNPAID}; {PAID}", title="Orders")
    facts = facts_in(page.html)
    assert facts == page.facts
    assert "<title>Orders</title>" in page.html
    assert facts["rows"] == 6
    assert {one["name"]: one["count"] for one in facts["patterns"]} == {"unpaid": 1, "paid": 1}
    assert labels(facts) == ["id = 8", "id = 7", "id = 9"], "keys with matches come first, one of each pattern in turn"
    unpaid = next(match for match in facts["matches"] if facts["patterns"][match["pattern"]]["name"] == "unpaid")
    assert (unpaid["start"], unpaid["end"], unpaid["row"]) == (60_000, 400_000, {"id": 8})
    assert [facts["events"][number]["stream"] for number in unpaid["events"]] == ["Placed", "Shipped"]
    assert "no Paid y after 1970-01-01 00:01:00 before 1970-01-01 00:06:40" in texts(unpaid["proof"])
    ids = ensue.run(ORDERS, UNPAID, time="t", type="type", match_id=True)["unpaid"]["match_id"].to_pylist()
    assert [unpaid["id"]] == ids


def test_an_event_is_shown_once_with_its_fields() -> None:
    facts = report(f"{UNPAID}; {PAID}").facts
    assert len(facts["events"]) == 6
    shipped = next(event for event in facts["events"] if event["start"] == 400_000)
    fields = dict(zip(facts["fields"][shipped["fields"]], shipped["values"], strict=True))
    assert fields == {"t": "1970-01-01 00:06:40", "type": "Shipped", "id": 8, "amount": "NaN"}
    assert [labels(facts)[lane] for lane in shipped["lanes"]] == ["id = 8"]


def test_rows_read_and_kept_stand_beside_the_plan() -> None:
    facts = report("PATTERN big SEQ(Placed p [amount > 15], Shipped s) PARTITION BY id WITHIN 1 hour").facts
    assert facts["patterns"][0]["read"] == [
        {"stream": "Placed", "variable": "p", "events": 3, "kept": 1},
        {"stream": "Shipped", "variable": "s", "events": 2, "kept": 2},
    ]
    assert {stream["name"]: stream["rows"] for stream in facts["streams"]} == {"Placed": 3, "Shipped": 2}
    sections = {section["title"]: section["lines"] for section in facts["statements"][0]["sections"]}
    assert "filter p first" in sections["PLAN"]


def test_nothing_in_the_data_ends_the_script() -> None:
    nasty = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> & '\" \u2028"
    table = pa.table({"t": [1, 2], "type": ["A", nasty], "id": [nasty, nasty]})
    page = report("PATTERN p SEQ(A a, ANY b) PARTITION BY id WITHIN 5", table, title=nasty)
    assert page.html.count("</script") == 2, "the page's own two scripts"
    assert "<img" not in page.html
    assert "<!--" not in page.html
    assert facts_in(page.html)["title"] == nasty
    assert facts_in(page.html)["lanes"][0]["label"] == f"id = {nasty}"


def test_a_notebook_shows_the_page_in_a_sandbox() -> None:
    shown = report(UNPAID)._repr_html_()
    assert shown.startswith("<iframe ")
    assert 'sandbox="allow-scripts allow-downloads"' in shown
    assert "<script" not in shown, "the page is text of an attribute"


def test_the_page_asks_the_network_for_nothing(tmp_path: Path) -> None:
    page = report(UNPAID).save(tmp_path / "report.html").read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\\\"'<)]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a namespace, which nobody fetches"
    assert "default-src 'none'" in page


def test_limits_are_kept_and_said() -> None:
    count = 300
    table = pa.table({"t": range(2 * count), "type": ["A", "B"] * count, "id": [n // 2 for n in range(2 * count)]})
    query = "PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 5"
    facts = report(query, table, most_keys=10, most_events=15, most_matches=4).facts
    assert len(facts["lanes"]) == 10
    assert len(facts["matches"]) == 4
    assert facts["patterns"][0]["count"] == count
    assert sum(facts["patterns"][0]["bars"]) == count
    assert facts["leftOut"] == ["10 of 300 keys (id)", "14 of 20 events of these keys", "4 of 300 matches"]
    bound = {number for match in facts["matches"] for number in match["events"]}
    assert len(bound) == 8, "the events of a match that is shown are shown, whatever the limit"


def test_a_long_lane_is_cut_from_its_first_match_on() -> None:
    table = pa.table({"t": range(1000), "type": ["A"] * 990 + ["B"] + ["A"] * 9})
    facts = report("PATTERN b SEQ(B b, A a) WITHIN 2", table, most_events=5).facts
    assert labels(facts) == ["all events"]
    assert [event["start"] for event in sorted(facts["events"], key=lambda event: event["start"])] == [
        990, 991, 992, 993, 994,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["most_keys", "most_events", "most_matches"])
def test_a_limit_is_a_number(name: str) -> None:
    with pytest.raises(ensue.LimitError, match=rf"`{name}` must be an integer of at least 1, found 0"):
        report(UNPAID, **{name: 0})


def test_without_a_match() -> None:
    facts = report("PATTERN none SEQ(Shipped s, Placed p) PARTITION BY id WITHIN 1 hour").facts
    assert facts["matches"] == []
    assert labels(facts) == ["id = 7", "id = 8", "id = 9"]
    assert len(facts["events"]) == 5


def test_an_empty_table() -> None:
    page = report(f"{UNPAID}; PATTERN loose SEQ(Placed p, Paid y) WITHIN 1 hour", ORDERS.slice(0, 0))
    facts = facts_in(page.html)
    assert (facts["events"], facts["matches"], facts["time"]["first"]) == ([], [], None)
    assert labels(facts) == ["all events"]
    assert all(one["count"] == 0 for one in facts["patterns"])


def test_rows_that_took_no_part_are_said() -> None:
    table = pa.concat_tables([ORDERS, ORDERS.slice(0, 1).set_column(0, "t", pa.nulls(1, pa.timestamp("us")))])
    with pytest.warns(ensue.EnsueWarning, match="1 row ignored: no timestamp"):
        facts = report(UNPAID, table).facts
    assert facts["setAside"] == {"no timestamp": 1}


def test_patterns_without_a_key_share_one_lane_and_others_have_their_own() -> None:
    facts = report(f"{UNPAID}; PATTERN any SEQ(Placed p, Placed q) WITHIN 100 seconds").facts
    assert labels(facts) == ["id = 8", "id = 7", "id = 9", "all events"]
    [loose] = [match for match in facts["matches"] if match["pattern"] == 1]
    assert labels(facts)[loose["lane"]] == "all events"


def test_several_key_columns_make_one_lane_each() -> None:
    table = pa.table({"t": [1, 2, 3], "type": ["A", "B", "B"], "x": [1, 1, 1], "y": ["p", "p", "q"]})
    facts = report("PATTERN p SEQ(A a, B b) PARTITION BY x, y WITHIN 5", table).facts
    assert labels(facts) == ["x = 1, y = p", "x = 1, y = q"]
    assert [len(match["events"]) for match in facts["matches"]] == [2]


def test_a_match_that_waited_says_when_it_was_certain() -> None:
    [match] = report("PATTERN open SEQ(Placed p [id = 9], NOT Paid y) PARTITION BY id WITHIN 10 minutes").facts[
        "matches"
    ]
    assert (match["start"], match["end"], match["complete"]) == (500_000, 500_000, 1_100_000)
    assert match["words"] == "1970-01-01 00:08:20, complete at 1970-01-01 00:18:20"


RULES = """
RULE late(id, worth = a * 2) <- o: Placed(id=id, amount=a), w: extend(o, 100), while w: not Paid(id=id);
STREAM Fast FROM PATTERN SEQ(Placed p, Paid y) PARTITION BY id WITHIN 500 RETURN p.id AS id;
PATTERN fast_shipped SEQ(Fast f, Shipped s) PARTITION BY id WITHIN 1000
"""


def test_heads_of_rules_and_declared_streams_are_shown_like_patterns() -> None:
    whole = ORDERS.set_column(0, "t", pa.array(SECONDS))
    facts = report(RULES, whole).facts
    assert {one["name"]: (one["kind"], one["count"]) for one in facts["patterns"]} == {
        "fast_shipped": ("pattern", 1),
        "late": ("rule", 3),
    }
    assert [entry["kind"] for entry in facts["statements"]] == ["stream", "pattern", "rule"]
    derived = [event for event in facts["events"] if event.get("derived")]
    assert {(event["stream"], event["start"], event["end"]) for event in derived} >= {
        ("Fast", 0, 120),
        ("late", 60, 160),
    }
    late = next(match for match in facts["matches"] if match["row"].get("id") == 8)
    assert labels(facts)[late["lane"]] == "id = 8"
    assert any(text.startswith("o: Placed at 60") for text in texts(late["proof"]))
    assert {"Placed", "late"} <= {facts["events"][number]["stream"] for number in late["events"]}


def test_operators_that_choose_are_followed_to_the_events_below() -> None:
    table = pa.table({"t": [1, 2, 3, 4], "type": ["A", "B", "B", "C"]})
    facts = report("PATTERN c SEQ(A a, B b, C c) WITHIN 9 MATCH CHRONICLE", table).facts
    drawn = {facts["events"][number]["stream"] for match in facts["matches"] for number in match["events"]
             if facts["events"][number]["lanes"]}  # fmt: skip
    assert drawn == {"A", "B", "C"}
    assert [stream["name"] for stream in facts["streams"]] == ["A", "B", "C"]
    assert len(facts["statements"][0]["drawings"]) == 2, "one for each operator"


def test_long_lists_in_a_proof_are_cut() -> None:
    table = pa.table({"t": range(202), "type": ["A", *["B"] * 200, "C"]})
    facts = report("PATTERN l SEQ(A a, B b*, C c) WITHIN 500 RETURN count(b) AS n", table, most_matches=1).facts
    assert any(text.startswith("and 140 more") for text in texts(facts["matches"][0]["proof"]))


@pytest.mark.parametrize(
    "convert", [lambda table: table.to_pandas(), pl.from_arrow, lambda table: table.to_batches()[0]]
)
def test_any_kind_of_table_gives_the_same_report(convert: Any) -> None:
    whole = ORDERS.set_column(3, "amount", pa.array([1.5] * 6))
    assert report(UNPAID, convert(whole)).facts["matches"] == report(UNPAID, whole).facts["matches"]


def test_one_table_for_each_stream() -> None:
    split = {
        name: ORDERS.filter(pa.compute.equal(ORDERS["type"], name)).drop_columns(["type"]).to_pandas()
        for name in ("Placed", "Paid", "Shipped")
    }
    assert isinstance(split["Placed"], pd.DataFrame)
    facts = ensue.report(split, UNPAID, time="t").facts
    assert labels(facts) == ["id = 8", "id = 7", "id = 9"]
    assert [match["row"] for match in facts["matches"]] == [{"id": 8}]


def test_tables_and_constraints_are_those_of_run() -> None:
    table = pa.table({"id": [8], "name": ["Ada"]})
    program = "TABLE people(id, name); RULE who(id, name) <- s: Shipped(id=id), people(id, name)"
    assert report(program, tables={"people": table}).facts["matches"][0]["row"]["name"] == "Ada"
    facts = report(UNPAID, constraints="CONSTRAINT PRIOR(Paid, Shipped)").facts
    assert any(section["title"] == "CONSTRAINTS" for section in facts["statements"][0]["sections"])


def test_a_pattern_without_a_name() -> None:
    facts = report("PATTERN SEQ(Placed p, Paid y) PARTITION BY id WITHIN 1 hour").facts
    assert facts["patterns"][0]["name"] == "pattern_1"
    assert facts["matches"][0]["id"] is None, "its ids here are not those of other calls"


def test_too_many_matches_are_an_error() -> None:
    with pytest.raises(ensue.LimitError, match="has more than 1 match"):
        report("PATTERN p SEQ(Placed p, Shipped s) WITHIN 1 hour", limits=ensue.Limits(matches=1))


def test_events_that_last_are_drawn_from_start_to_end() -> None:
    table = pa.table({"t": [1, 1], "until": [3, 9], "type": ["A", "B"]})
    facts = report("RULE h() <- a: A(), b: B(), a starts b", table, end="until").facts
    assert facts["patterns"][0]["count"] == 1
    assert {(event["stream"], event["start"], event["end"]) for event in facts["events"]} == {
        ("A", 1, 3),
        ("B", 1, 9),
        ("h", 1, 9),
    }


@pytest.mark.parametrize("types", ["ACA", "ACC", "CAC"])
def test_matches_of_keys_with_several_traces_are_shown(types: str) -> None:
    table = pa.table({"t": [1, 2, 3], "type": list(types), "k": [1, 1, 1]})
    program = "CONSTRAINT ENDS(C) PARTITION BY k; PATTERN p SEQ(A a, C c) PARTITION BY k WITHIN 5"
    assert "1 match" in repr(ensue.report(table, program, time="t", type="type"))


def test_spans_are_those_of_the_query() -> None:
    query = """PATTERN p SEQ(COLLECT Placed f, Paid y, COLLECT Shipped s) PARTITION BY id WITHIN 3600
        RETURN y.id AS id, span_start() AS since, span_end() AS until"""
    whole = ORDERS.set_column(0, "t", pa.array(SECONDS))
    [match] = report(query, whole).facts["matches"]
    assert (match["start"], match["end"], match["span"]) == (120, 120, [0, 180])
    assert match["span"] == [match["row"]["since"], match["row"]["until"]]
    [plain] = report(PAID.replace("1 hour", "3600"), whole).facts["matches"]
    assert plain["span"] is None, "nothing is collected"


def test_matches_beyond_the_proofs_have_their_row_and_their_events() -> None:
    count = 510
    table = pa.table(
        {"t": range(3 * count), "type": ["B", "A", "C"] * count, "id": [number // 3 for number in range(3 * count)]}
    )
    query = "PATTERN p SEQ(COLLECT B b, A a, C c) PARTITION BY id WITHIN 5 RETURN a.id AS id, count(b) AS n"
    facts = report(query, table, most_keys=count).facts
    assert facts["sample"] == {"keys": [], "events": [], "matches": [], "proofs": ["500 of 510 proofs"]}
    assert sum(match["proof"] is not None for match in facts["matches"]) == 500
    for match in facts["matches"]:
        own = sorted(facts["events"][number]["start"] for number in match["events"])
        assert own == [3 * match["row"]["id"], 3 * match["row"]["id"] + 1, 3 * match["row"]["id"] + 2]
        assert match["row"]["n"] == 1


def test_a_page_holds_each_part_of_a_proof_once() -> None:
    table = pa.table({"t": range(100), "type": ["A"] * 100})
    page = report("PATTERN p SEQ(COLLECT A f{2,}, A last) WITHIN 100 RETURN count(f) AS n", table)
    assert len(page.facts["matches"]) == 98
    assert page.html.count("f: A at 5 ") + page.html.count('"f: A at 5"') == 1
    assert facts_in(page.html) == page.facts


def test_a_key_that_only_a_declared_stream_has_gets_its_lanes() -> None:
    program = """
    STREAM Bought FROM PATTERN SEQ(Placed p, Paid y) PARTITION BY id WITHIN 1 hour RETURN p.id % 2 AS half;
    PATTERN both SEQ(Bought one, Bought other) PARTITION BY half WITHIN 1 hour RETURN one.half AS half
    """
    moments = pa.array([0, 10, 20, 30, 40, 50], pa.timestamp("s"))
    table = pa.table({"t": moments, "type": ["Placed", "Paid"] * 3, "id": [1, 1, 3, 3, 2, 2]})
    facts = report(program, table).facts
    assert labels(facts) == ["half = 1", "half = 0"]
    assert [match["lane"] for match in facts["matches"]] == [0]
    assert facts["leftOut"] == []
    assert [event["stream"] for event in facts["events"]].count("Bought") == 3
