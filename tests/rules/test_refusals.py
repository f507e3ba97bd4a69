"""What rules refuse or warn about, and where: attributes, values that cannot be compared, timers, recursion."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ensue

ATTRIBUTES = pa.table({"t": [1, 2], "type": ["a", "b"], "id": [1, 1], "list": [[1], [2]]})
ENTRIES = pa.array([[("k", 1)], [("k", 1)]], pa.map_(pa.string(), pa.int64()))


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("RULE h(id) <- x: a(idd=5), b(id=id)", "idd"),
        ("RULE h(id) <- x: a(id=id, nosuch=z)", "nosuch"),
        ("RULE h(id) <- x: a(id=id, nosuch=_)", "nosuch"),
        ("RULE h(id) <- x: a(id=id), w: extend(x, 5), while w: not b(idd=q)", "idd"),
        ("RULE h(id) <- x: a(id=id), w: extend(x, 5), while w: not b(idd=id)", "idd"),
        ("RULE h(id, n = count(c)) <- x: a(id=id), w: extend(x, 5), while w: collect c: b(idd=_)", "idd"),
        ("FACT vip(1); RULE h(id) <- vip(id), x: a(id=id, nosuch=_)", "nosuch"),
        ("STREAM a(id, idd); RULE h(id) <- x: a(id=id, idd=_)", "idd"),
    ],
)
@pytest.mark.parametrize("by_stream", [False, True])
def test_attributes_are_checked_where_they_are_written(rule: str, place: str, by_stream: bool) -> None:
    def of(stream: str) -> pa.Table:
        return ATTRIBUTES.filter(pc.field("type") == stream).drop_columns(["type"])

    events: Any = {"a": of("a"), "b": of("b")} if by_stream else ATTRIBUTES
    with pytest.raises(ensue.QueryError) as caught:
        ensue.run(events, rule, time="t", type=None if by_stream else "type")
    assert [problem.code for problem in caught.value.problems] == ["no-such-field"]
    span = caught.value.problems[0].span
    assert span is not None
    assert rule[span.start : span.end] == place
    assert span.start == rule.rindex(f"{place}=")


@pytest.mark.parametrize("values", [ENTRIES, pa.array([[[("k", 1)]]] * 2, pa.list_(ENTRIES.type))])
def test_values_that_cannot_be_compared_are_refused_in_heads(values: pa.Array) -> None:
    """Without reading a row: the table is empty."""
    events = ATTRIBUTES.append_column("m", values).slice(0, 0)
    rule = "RULE h(id, value = x.m) <- x: a(id=id)"
    with pytest.raises(ensue.QueryError) as caught:
        ensue.run(events, rule, time="t", type="type")
    (problem,) = caught.value.problems
    assert problem.code == "type-clash"
    assert "map<string, int64> cannot be compared" in str(caught.value)
    assert problem.span is not None
    assert rule[problem.span.start : problem.span.end] == "value = x.m"


def test_lists_and_structs_in_heads_are_compared() -> None:
    events = pa.table({"t": [1, 1], "type": ["a", "a"], "list": [[1, 2]] * 2, "part": [{"x": 1}, {"x": 1}]})
    found = ensue.run(events, "RULE h(list, part) <- x: a(list=list, part=part)", time="t", type="type")["h"]
    assert found.to_pylist() == [{"start": 1, "end": 1, "list": [1, 2], "part": {"x": 1}}]


@pytest.mark.parametrize(
    ("item", "code"), [("NOT shipped(x)", "absent-stream"), ("NOT (shipped(x))", "unknown-function")]
)
def test_an_absence_without_an_interval_is_about_a_table(item: str, code: str) -> None:
    with pytest.raises(ensue.QueryError) as caught:
        ensue.parse(f"RULE a(x) <- ordered(x), {item}")
    assert caught.value.code == code


def test_a_rule_that_compares_lists_does_not_speak_of_partition_by() -> None:
    with pytest.raises(ensue.QueryError, match="the rule compares `list`, whose type") as caught:
        ensue.run(ATTRIBUTES, "RULE h(l) <- x: a(list=l), y: b(list=l)", time="t", type="type")
    assert caught.value.column == 19


@pytest.mark.parametrize("aggregate", ["count(id)", "sum(id)", "count(x)"])
def test_an_aggregate_of_single_values_in_a_head_hints_at_collect(aggregate: str) -> None:
    with pytest.raises(ensue.QueryError) as caught:
        ensue.run(ATTRIBUTES, f"RULE h(n = {aggregate}) <- x: a(id=id)", time="t", type="type")
    assert caught.value.code == "not-a-list"
    assert caught.value.hint.startswith("collect the events of an interval: `while w: collect c")


def test_an_unknown_timer_with_a_length_without_a_unit() -> None:
    with pytest.raises(ensue.QueryError) as caught:
        ensue.parse("RULE h(id) <- x: a(id=id), w: extent(x, 3), while w: not b(id=id)")
    assert (caught.value.code, caught.value.hint) == ("unknown-timer", "did you mean `extend`?")
    # An event whose second attribute is 3: its first attribute is not an item.
    ensue.parse("RULE h(id) <- x: a(id=id), w: extent(id, 3)")


@pytest.mark.parametrize(
    ("rules", "heads"),
    [
        ("RULE r(id) <- r(id), a(id=id)", "`r` is always empty"),
        ("RULE p(id) <- q(id); RULE q(id) <- p(id)", "`p`, `q` are always empty"),
        ("RULE p(id) <- q(id); RULE q(id) <- p(id); RULE q(id) <- a(id=id)", ""),
        ("RULE p(id) <- p(id) OR a(id=id)", ""),
        ("FACT sub(1, 2); RULE isa(x, z) <- sub(x, y), isa(y, z)", "`isa` is always empty"),
        ("RULE p(id) <- p(id), a(id=id); RULE p(id) <- x: a(id=id), w: extend(x, 5), while w: not b(id=id)", ""),
    ],
)
def test_a_recursion_without_a_base_case_is_a_warning(rules: str, heads: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ensue.parse(rules)
    assert [str(each.message).partition(":")[0] for each in caught] == ([heads] if heads else [])
