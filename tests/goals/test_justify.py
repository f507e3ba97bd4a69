"""`justify`: what stands in a proof, below derived events too, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ensue

EVENTS = pa.table(
    {
        "t": [1, 3, 20, 30, 33],
        "type": ["order", "shipped", "order", "order", "shipped"],
        "id": [1, 1, 2, 3, 4],
        "qty": [5, 5, 1, 2, 2],
    }
)
PAIR = "PATTERN pair SEQ(order o, NOT shipped s, order b) WHERE b.qty > o.qty WITHIN 30 RETURN o.id AS a, b.id AS b"
RULES = """
STREAM order(id, qty);
STREAM shipped(id, qty);
RULE overdue(id) <- o: order(id, q), w: extend(o, 6), while w: not shipped(id, _), q > 1;
RULE report(id, shipments = count(s)) <- v: overdue(id), w: extend(v, 3), while w: collect s: shipped(_, _);
"""


def proof_of(query: str, match: object, **options: object) -> ensue.Proof:
    return ensue.justify(EVENTS, query, match, time="t", type="type", **options)


def test_a_match_by_its_id_its_row_and_some_columns() -> None:
    (row,) = ensue.detect(EVENTS, PAIR, time="t", type="type", match_id=True).to_pylist()
    by_id = proof_of(PAIR, row["match_id"])
    assert by_id == proof_of(PAIR, row) == proof_of(PAIR, {"a": 2})
    assert by_id.to_text().splitlines() == [
        "pair from 20 to 30",
        "  o: order at 20 (id = 2, qty = 1)",
        "  b: order at 30 (id = 3, qty = 2)",
        "  SEQ: o before b, by 10",
        "  WITHIN 30: 10",
        "  b.qty > o.qty: 2 and 1",
        "  no shipped s after 20 before 30",
    ]


def test_derived_events_rest_on_their_rules() -> None:
    proof = proof_of(RULES, {"id": 3}, name="report")
    assert [line.strip().partition(", by RULE")[0] for line in proof.to_text().splitlines()] == [
        "report from 30 to 39 (id = 3, shipments = 1)",
        "report from 30 to 39",
        "v: overdue from 30 to 36 (id = 3)",
        "overdue from 30 to 36",
        "o: order at 30 (id = 3, qty = 2)",
        "id = 3",
        "q > 1: 2 and 1",
        "no shipped after 30 before 36",
        "shipped s: 1 listed",
        "s: shipped at 33 (id = 4, qty = 2)",
    ]
    tree = proof.to_dict()
    rule = tree["because"][0]
    assert rule["values"]["statement"].startswith("RULE report(id, shipments = count(s)) <-")
    assert rule["because"][0]["because"][0]["because"][3] == {
        "kind": "absence",
        "text": "no shipped after 30 before 36",
        "values": {"from": 30, "to": 36},
        "because": [],
    }


def test_several_ways_are_shown_up_to_a_number() -> None:
    program = "RULE seen(x) <- a: A(x=x); RULE seen(x) <- b: B(x=x), {b} within 0"
    events = pa.table({"t": [1, 1, 1], "type": ["A", "A", "B"], "x": [1, 1, 1]})
    proof = ensue.justify(events, program, {"x": 1}, time="t", type="type")
    assert [part.because[0].text for part in proof.because] == ["a: A at 1 (x = 1)"] * 2 + ["b: B at 1 (x = 1)"]
    fewer = ensue.justify(events, program, {"x": 1}, time="t", type="type", ways=1)
    assert [part.kind for part in fewer.because] == ["match", "cut"]


def test_a_recursion_does_not_prove_itself() -> None:
    program = "RULE path(a, b) <- e: edge(a=a, b=b); RULE path(a, c) <- p: path(a, b), e: edge(a=b, b=c)"
    events = pa.table({"t": [1, 2], "type": ["edge", "edge"], "a": [1, 2], "b": [2, 3]})
    proof = ensue.justify(events, program, {"a": 1, "b": 3}, time="t", type="type")
    assert proof.text.startswith("path from 1 to 2")
    assert [part.text for part in proof.because[0].because][:2] == [
        "p: path at 1 (a = 1, b = 2)",
        "e: edge at 2 (a = 2, b = 3)",
    ]


def test_a_declared_stream_and_a_branch() -> None:
    program = (
        "STREAM pair FROM PATTERN SEQ(order o, shipped s) PARTITION BY id WITHIN 5 RETURN o.id AS id;"
        "PATTERN SEQ(OR(pair p, shipped x), order last [id = 3]) RETURN last.id AS id, p.id AS pair"
    )
    proof = proof_of(program, {"pair": 1})
    assert proof.because[0].text == "p: pair from 1 to 3 (id = 1)"
    assert [part.text for part in proof.because[0].because[0].because][:2] == [
        "o: order at 1 (id = 1, qty = 5)",
        "s: shipped at 3 (id = 1, qty = 5)",
    ]


def test_what_is_refused() -> None:
    for match, code in [({"a": 1, "b": 3}, "no-such-match"), ("0" * 32, "no-such-match")]:
        with pytest.raises(ensue.QueryError) as missing:
            proof_of(PAIR, match)
        assert missing.value.code == code
    assert "the nearest one has match_id" in str(missing.value)
    with pytest.raises(ensue.SchemaError) as shape:
        proof_of(PAIR, 17)
    assert shape.value.code == "match-type"
    with pytest.raises(ensue.SchemaError) as column:
        proof_of(PAIR, {"c": 1})
    assert column.value.code == "unknown-column"
    with pytest.raises(ensue.QueryError) as name:
        proof_of(RULES, {"id": 3}, name="reports")
    assert name.value.code == "no-such-pattern"


def test_what_is_forbidden_is_shown_as_it_was_written() -> None:
    """A text that says a word twice is left alone; an item that is called like its stream is named once."""
    events = pa.table({"t": [1, 3], "type": ["A", "C"], "v": ["a", "c"]})
    for written, shown in [("B b [v = 'go go']", "B b [v = 'go go']"), ("B B [v = 'go go']", "B [v = 'go go']")]:
        query = f"PATTERN SEQ(A a, NOT {written}, C c) RETURN a.v AS v"
        proof = ensue.justify(events, query, {"v": "a"}, time="t", type="type")
        assert proof.to_text().splitlines()[-1].strip() == f"no {shown} after 1 before 3"
