"""Repeated variables in expressions: lists spelt out, and conditions between successive elements."""

from __future__ import annotations

from pathlib import Path

import pytest

from inside import (
    AGGREGATES,
    Call,
    Elements,
    Expr,
    Field,
    Gather,
    Literal,
    Problem,
    aggregated_variables,
    anonymous_predicate,
    check_successive,
    explicit_lists,
    has_aggregate,
    has_prev,
    list_variables,
    parse_expression,
    render_expression,
    substitute_fields,
    substitute_lists,
    successive,
    variables_of,
    without_prev,
)
from inside import children_of_expression as children

GROUPS = {"t": "t", "a": "pair", "b": "pair", "pair": "pair"}
"""`t` is repeated alone, `a` and `b` together under the name `pair`; other variables are single."""
TX, TY = Field("t", "x"), Field("t", "y")


def spelt_out(text: str) -> tuple[Expr, list[Problem]]:
    problems: list[Problem] = []
    return explicit_lists(parse_expression(text), GROUPS, problems), problems


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sum(t.x)", Call("sum", (Elements(TX, "t"),))),
        ("avg(a.x - b.x)", Call("avg", (Elements(parse_expression("a.x - b.x"), "pair"),))),
        ("max(t.x * c.rate)", Call("max", (Elements(parse_expression("t.x * c.rate"), "t"),))),
        ("count(t)", Call("count", (Elements(Literal(True), "t"),))),
        ("count(pair)", Call("count", (Elements(Literal(True), "pair"),))),
        ("count(b)", Call("count", (Elements(Literal(True), "pair"),))),
        ("t.x", Elements(TX, "t")),
        ("pair.s", Elements(Field("pair", "s"), "pair")),
        ("c.x", Field("c", "x")),
        ("avg(c.temps)", Call("avg", (Field("c", "temps"),))),
        ("x > 1", parse_expression("x > 1")),
        ("greatest(t.x, c.x)", Call("greatest", (Elements(TX, "t"), Field("c", "x")))),
        ("max(t.x, t.y)", Call("max", (Elements(TX, "t"), Elements(TY, "t")))),
    ],
)
def test_lists_are_spelt_out(text: str, wanted: Expr) -> None:
    found, problems = spelt_out(text)
    assert problems == []
    assert found == wanted


def test_lists_keep_their_places_in_the_text() -> None:
    found, _ = spelt_out("1 < sum(t.x)")
    (_, call) = children(found)
    assert isinstance(call, Call)
    (elements,) = call.arguments
    assert call.span is not None
    assert (call.span.start, call.span.end) == (4, 12)
    assert elements.span is not None
    assert (elements.span.start, elements.span.end) == (8, 11)


@pytest.mark.parametrize(
    ("text", "code", "message", "place"),
    [
        ("sum(t.x + a.x)", "two-lists", "`sum` uses one list, but `a` and `t` belong to different repetitions", 4),
        (
            "1 + max(c.x - avg(t.x))",
            "nested-aggregate",
            "aggregate `avg` is nested inside aggregate `max`",
            14,
        ),
        ("list(t)", "function-arguments", "`list` expects a field, but `t` is a list of events", 5),
        ("count(abs(t))", "function-arguments", "`count` expects a field, but `t` is a list of events", 10),
        ("sum(pair)", "function-arguments", "`sum` expects a field, but `pair` is a list of events", 4),
    ],
)
def test_mistakes(text: str, code: str, message: str, place: int) -> None:
    found, problems = spelt_out(text)
    assert [(problem.code, problem.message) for problem in problems] == [(code, message)]
    assert problems[0].span is not None
    assert problems[0].span.start == place
    assert problems[0].hint
    assert not list_variables(found, GROUPS), "what is wrong is reported once"


def test_every_mistake_is_reported() -> None:
    _, problems = spelt_out("sum(t) > 1 AND sum(t.x + a.x) > 2")
    assert [problem.code for problem in problems] == ["function-arguments", "two-lists"]


@pytest.mark.parametrize(
    ("text", "aggregate", "prev", "names", "aggregated"),
    [
        ("t.x > PREV(t.x)", False, True, {"t"}, set()),
        ("count(t) > 2", True, False, {"t"}, {"t"}),
        ("sum(a.x) > t.x", True, False, {"a", "t"}, {"a"}),
        ("t.temp > avg(c.limits)", True, False, {"t"}, set()),
        ("c.x > 1", False, False, set(), set()),
    ],
)
def test_what_an_expression_names(
    text: str, aggregate: bool, prev: bool, names: set[str], aggregated: set[str]
) -> None:
    expr = parse_expression(text)
    assert has_aggregate(expr) is aggregate
    assert has_prev(expr) is prev
    assert list_variables(expr, GROUPS) == names
    assert aggregated_variables(expr, GROUPS) == aggregated


# --- PREV


@pytest.mark.parametrize(
    ("text", "group"),
    [("t.x > PREV(t.x)", "t"), ("a.x > PREV(b.x + a.y) + c.x", "pair"), ("PREV(t.x - c.x) > 1", "t")],
)
def test_a_condition_with_prev_belongs_to_one_group(text: str, group: str) -> None:
    problems: list[Problem] = []
    assert check_successive(parse_expression(text), GROUPS, problems) == group
    assert problems == []


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("t.x > PREV(t.x) OR count(t) > 3", ["misplaced-prev"]),
        ("t.x > PREV(PREV(t.x))", ["misplaced-prev"]),
        ("t.x > PREV(c.x)", ["misplaced-prev"]),
        ("t.x > PREV()", ["function-arguments"]),
        ("t.x > PREV(t.x, t.y)", ["function-arguments"]),
        ("t.x > PREV(a.x)", ["two-lists"]),
        ("PREV(c.x) > PREV(PREV(t.x))", ["misplaced-prev", "misplaced-prev"]),
    ],
)
def test_prev_out_of_place(text: str, codes: list[str]) -> None:
    problems: list[Problem] = []
    assert check_successive(parse_expression(text), GROUPS, problems) is None
    assert [problem.code for problem in problems] == codes
    assert all(problem.span is not None and problem.hint for problem in problems)


def test_prev_becomes_a_condition_between_two_elements() -> None:
    expr = parse_expression("a.x > PREV(b.x + a.y) AND c.x < PREV(c.x)")
    between = successive(expr, {"a": "a2", "b": "b2"}, {"a": "a1", "b": "b1"})
    assert between == parse_expression("a2.x > b1.x + a1.y AND c.x < c.x")
    assert without_prev(expr) == parse_expression("a.x > b.x + a.y AND c.x < c.x")


# --- the nodes of lists, wherever nodes are read


def test_lists_are_walked_and_rewritten() -> None:
    expr = Call("sum", (Elements(Field("t", "x"), "all"),))
    assert variables_of(expr) == {"t", "all"}
    assert anonymous_predicate(expr) == Call("sum", (Elements(Field(None, "x"), "all"),))
    gather = substitute_lists(expr, lambda part: Gather((part.element, Literal(1))))
    assert gather == Call("sum", (Gather((Field("t", "x"), Literal(1))),))
    assert variables_of(gather) == {"t"}
    assert substitute_fields(gather, lambda field: Literal(2)) == Call("sum", (Gather((Literal(2), Literal(1))),))


@pytest.mark.parametrize("text", ["sum(t.x * 2) > 3", "count(t) = 1", "(t.x + 1) * 2", "list(a.x - b.x) IS NULL"])
def test_lists_are_rendered_as_they_were_written(text: str) -> None:
    assert render_expression(spelt_out(text)[0]) == text


def test_a_gathered_list_is_rendered() -> None:
    assert render_expression(Call("sum", (Gather((Field("t1", "x"), Field("t2", "x"))),))) == "sum([t1.x, t2.x])"


def test_language_page_lists_every_aggregate() -> None:
    text = (Path(__file__).parents[2] / "docs" / "language.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for aggregate in AGGREGATES.values():
        end = f"| {aggregate.description} | `{aggregate.example}` |"
        assert any(f"`{aggregate.signature}`" in row and row.endswith(end) for row in rows), aggregate.name
