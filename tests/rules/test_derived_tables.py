"""Tables that rules derive: what is read when, limits, and large tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue import LimitError, QueryError
from ensue.rules import atom, fact, rule, table
from inside import choose_pattern

COLUMNS = {"time": "t", "type": "type"}
NEAR = "TABLE link(a, b); RULE near(x, y) <- link(x, y); RULE near(x, z) <- link(x, y), near(y, z)"
PROGRAM = f"{NEAR}; RULE h(p, q) <- A(x=p), near(p, q)"


def events(*values: int) -> pa.Table:
    return pa.table({"t": range(len(values)), "type": ["A"] * len(values), "x": values})


def links(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"a": [one for one, _ in pairs], "b": [other for _, other in pairs]})


def test_rules_in_python() -> None:
    program = [
        table("link", "a", "b"),
        fact("closed", 9),
        rule("near", "x", "y").when(atom("link", "x", "y"), ~atom("closed", "y")),
        rule("h", "p", "q").when(atom("A", x="p"), atom("near", "p", "q")),
    ]
    found = ensue.run(events(1, 2), program, **COLUMNS, tables={"link": links((1, 2), (2, 9))})
    assert found["h"].select(["p", "q"]).to_pylist() == [{"p": 1, "q": 2}]


def test_tables_are_derived_again_after_a_restart() -> None:
    first = ensue.Detector(PROGRAM, **COLUMNS, tables={"link": links((1, 2))})
    assert first.advance(events(1), watermark=0).matches.num_rows == 1
    second = ensue.Detector(PROGRAM, **COLUMNS, tables={"link": links((1, 2), (2, 3))})
    second.restore(first.snapshot())
    later = pa.table({"t": [5], "type": ["A"], "x": [1]})
    assert second.finish(later).matches["q"].to_pylist() == [2, 3]


def test_a_closure_of_many_rows() -> None:
    """The ancestors of each node of a tree, as a loop finds them."""
    child = np.arange(1, 20_001)
    asked = [3, 20_000, 12_345]
    found = ensue.run(events(*asked), PROGRAM, **COLUMNS, tables={"link": pa.table({"a": child, "b": child // 3})})
    expected = set()
    for node in asked:
        above = node
        while above:
            above //= 3
            expected.add((node, above))
    assert set(zip(*(found["h"][name].to_pylist() for name in "pq"), strict=True)) == expected


def test_limits() -> None:
    limits = ensue.Limits(matches=5)
    with pytest.raises(LimitError, match="table `near` derive more than 5 rows"):
        ensue.run(events(1), PROGRAM, **COLUMNS, tables={"link": links((1, 2), (2, 3), (3, 1))}, limits=limits)
    endless = "FACT n(1); RULE m(x) <- n(x); RULE m(x + 1) <- m(x); RULE h(p) <- A(x=p), m(p)"
    with pytest.raises(LimitError, match="more than 5 rows"):
        ensue.Detector(endless, **COLUMNS, limits=limits)


def test_types_of_rows_are_checked_at_their_place() -> None:
    program = "FACT n(1); FACT n(2); RULE m(lower(x)) <- n(x); RULE h(p) <- A(x=p), m(_)"
    with pytest.raises(QueryError) as caught:
        ensue.run(events(1), program, **COLUMNS)
    (problem,) = caught.value.problems
    assert problem.span is not None
    assert program[problem.span.start : problem.span.end] == "x"


def test_a_single_head_keeps_the_rules_of_tables() -> None:
    chosen = choose_pattern(ensue.parse(f"{PROGRAM}; RULE g(p) <- A(x=p)"), "h")
    assert ensue.detect(events(1), chosen, **COLUMNS, tables={"link": links((1, 2))}).num_rows == 1


def test_explain_shows_the_tables() -> None:
    text = str(ensue.explain(PROGRAM, time="t"))
    assert "near: rows, computed when a run begins, from link and itself" in text
