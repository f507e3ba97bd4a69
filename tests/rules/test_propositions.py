"""Heads without arguments at every entry point: a set of intervals, whose events have no attributes."""

from __future__ import annotations

import pyarrow as pa

import ensue
from ensue.actions import act
from ensue.rules import atom, on, rule

EVENTS = pa.table({"t": [1, 1, 2], "type": ["b", "b", "c"], "x": [1, 2, 3]})
COLUMNS = {"time": "t", "type": "type"}
RULES = "RULE e() <- x: b(); RULE e() <- y: c(); RULE f() <- v: e(), w: e(), v before w"


def test_a_set_of_intervals() -> None:
    found = ensue.run(EVENTS, RULES, **COLUMNS)
    assert found["e"].to_pylist() == [{"start": 1, "end": 1}, {"start": 2, "end": 2}]
    assert found["f"].to_pylist() == [{"start": 1, "end": 2}]


def test_whole_events_have_no_columns_of_the_body() -> None:
    found = ensue.detect(EVENTS, f"{RULES}; PATTERN p (e v)", **COLUMNS)
    assert found["v"].to_pylist() == [{"start": 1, "end": 1}, {"start": 2, "end": 2}]


def test_rules_in_python() -> None:
    program = [rule("e").when(atom("b").named("x")), rule("e").when(atom("c"))]
    assert ensue.run(EVENTS, program, **COLUMNS)["e"].num_rows == 2


def test_an_action_is_called_once() -> None:
    calls: list[object] = []
    program = [rule("e").when("b()"), on("e", "v").do("note", "v.s")]
    act(EVENTS, program, {"note": calls.append}, **COLUMNS)
    assert calls == [1]


def test_steps_with_a_restart_and_lineage() -> None:
    """The rule returns no column, so only the lineage needs those of the input."""
    program = f"{RULES}; PATTERN p (f v) RETURN v.s AS since, lineage(v) AS ids"
    first, second = (ensue.Detector(program, **COLUMNS) for _ in range(2))
    assert first.advance(EVENTS.slice(0, 2), watermark=1).matches.num_rows == 0
    second.restore(first.snapshot())
    (found,) = second.finish(EVENTS.slice(2)).matches.to_pylist()
    assert (found["since"], len(found["ids"])) == (1, 3)
    assert ensue.detect(EVENTS, program, **COLUMNS).to_pylist() == [found]


def test_its_proof_has_every_rule() -> None:
    text = ensue.justify(EVENTS, RULES, {"start": 1}, name="f", **COLUMNS).to_text()
    assert text.count("e at 1, by RULE e() <- x: b()") == 2
    assert "e at 2, by RULE e() <- y: c()" in text
    assert "a result and used by f" in str(ensue.explain(RULES, time="t"))
