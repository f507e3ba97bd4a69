"""Examples computed by hand, section by section of the contract, so that the oracle can be trusted."""

from __future__ import annotations

import math

import pytest

from inside import (
    And,
    Between,
    Binary,
    Call,
    Case,
    Duration,
    Event,
    Events,
    Expr,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    NamedPattern,
    Not,
    Or,
    Pattern,
    PatternQuery,
    Same,
    Seq,
    Ticks,
    Timestamp,
    Unary,
    Window,
    Within,
)
from oracle.conditions import evaluate
from oracle.oracle import OracleEvent, OracleMatch, matches, matches_between
from oracle.tree import Anonymous


def event(text: str, predicate: Expr | None = None) -> Event:
    """`A a` as text; `A` is an event without a variable."""
    stream, _, variable = text.partition(" ")
    return Event(stream, variable or None, predicate)


def as_pattern(item: Pattern | str) -> Pattern:
    return event(item) if isinstance(item, str) else item


def seq(*items: Pattern | str) -> Seq:
    return Seq(tuple(map(as_pattern, items)))


def both(*items: Pattern | str) -> And:
    return And(tuple(map(as_pattern, items)))


def either(*items: Pattern | str) -> Or:
    return Or(tuple(map(as_pattern, items)))


def no(item: Pattern | str) -> Not:
    return Not(as_pattern(item))


def value(operand: Expr | str | int | None) -> Expr:
    """`'a.x'` is a field, `'.x'` a field of the event itself, everything else a literal."""
    if not isinstance(operand, str):
        return Literal(operand) if operand is None or isinstance(operand, int) else operand
    name, _, column = operand.partition(".")
    return Field(name or None, column)


def compare(left: Expr | str, operator: str, right: Expr | str | int) -> Binary:
    return Binary(operator, value(left), value(right))


def history(text: str) -> list[OracleEvent]:
    """`A1 B2-4:x=1,k=2`: stream, time (or start-end) and fields, in the order of arrival."""
    return [_event_of(number, word) for number, word in enumerate(text.split())]


def _event_of(number: int, word: str) -> OracleEvent:
    place, _, listed = word.partition(":")
    start, _, end = place[1:].partition("-")
    fields = dict(pair.split("=") for pair in listed.split(",")) if listed else {}
    numbers = {name: None if text == "null" else int(text) for name, text in fields.items()}
    return OracleEvent(number, place[0], int(start), int(end or start), numbers)


def run(
    pattern: Pattern | str,
    events: str,
    *where: Expr,
    within: Window | None = None,
    by: tuple[str, ...] = (),
) -> list[OracleMatch]:
    return matches(query(pattern, *where, within=within, by=by), history(events))


def query(pattern: Pattern | str, *where: Expr, within: Window | None = None, by: tuple[str, ...] = ()) -> PatternQuery:
    condition: Expr | None = None
    for conjunct in where:
        condition = conjunct if condition is None else Binary("and", condition, conjunct)
    return PatternQuery(as_pattern(pattern), where=condition, partition_by=by, within=within)


def bound(found: list[OracleMatch]) -> list[str]:
    """Each match as its bindings, `a0 b2`, sorted."""
    return sorted(" ".join(f"{variable}{number}" for variable, number in match.bindings) for match in found)


W5, W10 = Ticks(5), Ticks(10)


class TestExpressions:
    """Section 1."""

    def test_event_is_every_event_of_the_stream(self) -> None:
        assert bound(run("A a", "A1 B2 A3")) == ["a0", "a2"]

    def test_event_has_its_own_interval(self) -> None:
        (match,) = run("A a", "A2-5")
        assert (match.start, match.end, match.completion) == (2, 5, 5)

    def test_local_predicate_filters_and_null_does_not_hold(self) -> None:
        pattern = event("A a", compare(".x", ">", 1))
        assert bound(run(pattern, "A1:x=1 A2:x=2 A3:x=null A4")) == ["a1"]

    def test_local_predicate_may_name_its_own_variable(self) -> None:
        assert bound(run(event("A a", compare("a.x", "=", 1)), "A1:x=1 A2:x=2")) == ["a0"]

    def test_several_local_predicates_are_all_required(self) -> None:
        pattern = both(event("A a", compare(".x", ">", 1)), event("A a", compare(".x", "<", 3)))
        assert bound(run(pattern, "A1:x=1 A2:x=2 A3:x=3")) == ["a1"]

    def test_seq_is_every_ordered_pair(self) -> None:
        assert bound(run(seq("A a", "B b"), "A1 A2 B3 B4 A5")) == ["a0 b2", "a0 b3", "a1 b2", "a1 b3"]

    def test_seq_does_not_depend_on_arrival(self) -> None:
        assert bound(run(seq("A a", "B b"), "B3 A1")) == ["a1 b0"]

    def test_equal_times_are_not_ordered(self) -> None:
        assert run(seq("A a", "B b"), "A1 B1") == []

    def test_seq_compares_end_with_start(self) -> None:
        assert bound(run(seq("A a", "B b"), "A1-3 B3-4 B4-6")) == ["a0 b2"]

    def test_seq_spans_first_start_to_last_end(self) -> None:
        (match,) = run(seq("A a", "B b"), "A1-3 B4-6")
        assert (match.start, match.end) == (1, 6)

    def test_nested_seq_is_after_the_whole_of_its_neighbour(self) -> None:
        assert bound(run(seq(both("A a", "B b"), "C c"), "A1 B3 C2 C4")) == ["a0 b1 c3"]

    def test_and_takes_any_order_and_equal_times(self) -> None:
        assert bound(run(both("A a", "B b"), "B1 A2")) == ["a1 b0"]
        assert bound(run(both("A a", "B b"), "B1 A1")) == ["a1 b0"]

    def test_and_takes_overlapping_composites(self) -> None:
        pattern = both(seq("A a", "B b"), seq("C c", "D d"))
        (match,) = run(pattern, "A1 C2 B3 D4")
        assert (match.start, match.end) == (1, 4)

    def test_or_takes_either_and_says_which(self) -> None:
        first, second = run(either("A a", "B b"), "A1 B2")
        assert (first.bindings, first.branch) == ((("a", 0),), (((), 0),))
        assert (second.bindings, second.branch) == ((("b", 1),), (((), 1),))

    def test_or_of_equal_branches_is_two_matches(self) -> None:
        assert [match.branch for match in run(either("A a", "A a"), "A1")] == [(((), 0),), (((), 1),)]

    def test_or_has_the_interval_of_its_branch(self) -> None:
        (match,) = run(either(seq("A a", "B b"), "C c"), "A1 B5")
        assert (match.start, match.end) == (1, 5)

    def test_within_on_a_part(self) -> None:
        pattern = seq(Within(seq("A a", "B b"), Ticks(2)), "C c")
        assert bound(run(pattern, "A1 A2 B4 C9")) == ["a1 b2 c3"]

    def test_within_includes_its_bound(self) -> None:
        assert bound(run(Within(seq("A a", "B b"), Ticks(3)), "A1 B4 B5")) == ["a0 b1"]

    def test_as_name_has_start_and_end(self) -> None:
        pattern = both(NamedPattern(seq("A a", "B b"), "p"), "C c")
        assert bound(run(pattern, "A1 B4 C2 C6", compare("p.e", "<", "c.s"))) == ["a0 b1 c3"]
        assert bound(run(pattern, "A1 B4 C2 C6", compare("c.s", "<", "p.e"), compare("p.s", "<", "c.s"))) == [
            "a0 b1 c2"
        ]

    def test_two_variables_are_two_events(self) -> None:
        assert bound(run(both("A a", "A b"), "A1 A2")) == ["a0 b1", "a1 b0"]
        assert run(both("A a", "A b"), "A1") == []

    def test_one_variable_written_twice_is_one_event(self) -> None:
        pattern = both(seq("A a", "B b"), seq("A a", "C c"))
        assert bound(run(pattern, "A1 A2 B3 C2")) == ["a0 b2 c3"]
        assert run(seq("A a", "A a"), "A1 A2") == []

    def test_anonymous_variables_are_variables_of_their_own(self) -> None:
        (match,) = run(seq("A", "A"), "A1 A2")
        assert match.bindings == ((Anonymous((0,)), 0), (Anonymous((1,)), 1))
        assert len(run(both("A", "A"), "A1 A2")) == 2


class TestScopes:
    """Section 2."""

    def test_between_neighbours(self) -> None:
        pattern = seq("A a", no("B n"), "C c")
        assert bound(run(pattern, "A1 C3")) == ["a0 c1"]
        assert run(pattern, "A1 B2 C3") == []
        assert bound(run(pattern, "B0 A1 C3 B4")) == ["a1 c2"]

    def test_between_is_strict_on_both_sides(self) -> None:
        pattern = seq("A a", no("B n"), "C c")
        assert bound(run(pattern, "A1 B1 B3 C3")) == ["a0 c3"]
        assert bound(run(pattern, "A1 B2-3 C3")) == ["a0 c2"]

    def test_nested_right_edge_looks_outwards(self) -> None:
        nested = seq("A a", seq("B b", no("C n")), seq("D d", "E e"), "F f")
        flat = seq("A a", "B b", no("C n"), "D d", "E e", "F f")
        for events in ("A1 B2 D4 E5 F6", "A1 C2 B3 D4 C5 E6 F7 C8", "A1 B2 C4 D4 E5 F6"):
            assert len(run(nested, events)) == 1
            assert bound(run(nested, events)) == bound(run(flat, events))
        assert run(nested, "A1 B2 C3 D4 E5 F6") == run(flat, "A1 B2 C3 D4 E5 F6") == []

    def test_nested_left_edge_looks_outwards(self) -> None:
        pattern = seq("A a", seq(no("N n"), "B b"))
        assert run(pattern, "A1 N2 B3") == []
        assert bound(run(pattern, "N0 A1 B3 N4")) == ["a1 b2"]

    def test_look_up_skips_a_seq_without_a_neighbour_on_that_side(self) -> None:
        pattern = seq("A a", seq(seq(no("N n"), "B b"), "C c"))
        assert run(pattern, "A1 N2 B3 C4") == []

    def test_item_of_and_looks_outwards_on_both_sides(self) -> None:
        pattern = seq("A a", both("B b", no("N n")), "C c")
        assert run(pattern, "A1 N2 B3 C5") == []
        assert run(pattern, "A1 B3 N4 C5") == []
        assert bound(run(pattern, "N1 A1 B3 C5 N5")) == ["a1 b2 c3"]

    def test_composite_neighbour_counts_with_its_whole_interval(self) -> None:
        pattern = seq(both("A a", "B b"), no("N n"), both("C c", "D d"))
        assert bound(run(pattern, "A1 N2 B3 C5 N6 D7")) == ["a0 b2 c3 d5"]
        assert run(pattern, "A1 B3 N4 C5 D7") == []

    def test_negated_composite_must_lie_inside_as_a_whole(self) -> None:
        pattern = seq("A a", no(both("B b", "C c")), "D d")
        assert run(pattern, "A1 C2 B3 D4") == []
        assert bound(run(pattern, "B0 A1 C2 D4")) == ["a1 d3"]

    def test_adjacent_negations_are_independent(self) -> None:
        first = seq("A a", no("N n"), no("M m"), "B b")
        second = seq("A a", no("M m"), no("N n"), "B b")
        for events, expected in (("A1 N2 B5", []), ("A1 M2 B5", []), ("A1 B5", ["a0 b1"])):
            assert bound(run(first, events)) == bound(run(second, events)) == expected

    def test_left_edge_of_everything(self) -> None:
        pattern = seq(no("N n"), "A a", "B b")
        assert bound(run(pattern, "N1 A4 B7", within=W5)) == ["a1 b2"]
        assert run(pattern, "N2 A4 B7", within=W5) == []
        assert bound(run(pattern, "A4 N4 N5 B7", within=W5)) == ["a0 b3"]

    def test_right_edge_of_everything_in_seq(self) -> None:
        pattern = seq("A a", "B b", no("N n"))
        assert run(pattern, "A1 B3 N6", within=W5) == []
        assert bound(run(pattern, "A1 B3 N7", within=W5)) == ["a0 b1"]
        assert bound(run(pattern, "A1 N2 B3 N3", within=W5)) == ["a0 b2"]

    def test_right_edge_needs_the_end_inside(self) -> None:
        assert bound(run(seq("A a", no("N n")), "A1 N5-7", within=W5)) == ["a0"]

    def test_right_edge_of_everything_in_and(self) -> None:
        pattern = both("A a", "B b", no("N n"))
        assert run(pattern, "A1 N2 B3", within=W5) == []
        assert run(pattern, "A1 B3 N3", within=W5) == []
        assert bound(run(pattern, "A1 B3 N4", within=W5)) == ["a0 b1"]
        assert run(pattern, "N0 A1 B3", within=W5) == []
        assert bound(run(pattern, "N0 A4 B6", within=W5)) == ["a1 b2"]

    def test_direct_operator_decides_in_seq_or_in_and(self) -> None:
        in_and = seq("A a", both("B b", no("N n")))
        in_seq = both("A a", seq("B b", no("N n")))
        assert bound(run(in_and, "A1 B3 N4", within=W5)) == ["a0 b1"]
        assert run(in_seq, "A1 B3 N4", within=W5) == []

    def test_a_lone_event_in_its_window(self) -> None:
        pattern = both("C c", no("C other"))
        assert bound(run(pattern, "C1 C7 C9", within=W5)) == ["c0", "c1"]
        assert run(pattern, "C3 C3", within=W5) == []

    def test_forbidden_match_uses_no_event_of_the_match(self) -> None:
        pattern = both(seq("A a", "C c"), no("B n"), "B b")
        assert bound(run(pattern, "A1 B2 C3", within=W5)) == ["a0 b1 c2"]
        assert run(pattern, "A1 B2 B2 C3", within=W5) == []

    def test_forbidden_match_uses_no_event_of_an_enclosing_forbidden_match(self) -> None:
        pattern = seq("A a", no(both("B m", no("B n"))), "C c")
        assert run(pattern, "A1 B2 C4") == []
        assert bound(run(pattern, "A1 B2 B3 C4")) == ["a0 c3"]

    def test_negation_in_negation(self) -> None:
        pattern = seq("X x", no(seq("A a", no("B b"))), "Y y")
        assert run(pattern, "X1 A2 Y5") == []
        assert bound(run(pattern, "X1 A2 B3 Y5")) == ["x0 y3"]
        assert run(pattern, "X1 B2 A3 Y5") == []
        assert run(pattern, "X1 A2 Y5 B6") == []

    def test_negation_in_negation_at_the_left_looks_outwards(self) -> None:
        pattern = seq("X x", no(seq(no("B b"), "A a")), "Y y")
        assert run(pattern, "B0 X1 A2 Y5") == []
        assert bound(run(pattern, "X1 B2 A3 Y5")) == ["x0 y3"]

    def test_negation_in_negation_is_closed_by_the_whole_match(self) -> None:
        pattern = both("X x", no(seq("A a", no("B b"))))
        assert run(pattern, "A3 X5", within=W5) == []
        assert bound(run(pattern, "A3 X5 B10", within=W5)) == ["x1"]
        assert run(pattern, "A3 X5 B11", within=W5) == []

    def test_or_under_negation_forbids_every_branch(self) -> None:
        pattern = seq("A a", no(either("B b", seq("C c", "D d"))), "E e")
        assert run(pattern, "A1 B2 E9") == []
        assert run(pattern, "A1 C2 D3 E9") == []
        assert bound(run(pattern, "A1 D2 C3 E9")) == ["a0 e3"]

    def test_negation_in_an_or_branch_concerns_that_branch_only(self) -> None:
        pattern = seq(either(seq("A a", no("N n")), "B b"), "C c")
        assert bound(run(pattern, "A1 B1 N2 C3")) == ["b1 c3"]

    def test_within_inside_a_negation(self) -> None:
        pattern = seq("A a", no(Within(seq("B b", "C c"), Ticks(1))), "D d")
        assert run(pattern, "A1 B2 C3 D9") == []
        assert bound(run(pattern, "A1 B2 C4 D9")) == ["a0 d3"]

    def test_wrapping_within_closes_scopes_like_that_of_the_query(self) -> None:
        pattern = seq("A a", no("N n"))
        for wrapped in (
            Within(pattern, W5),
            NamedPattern(Within(pattern, W5), "p"),
            Within(NamedPattern(pattern, "p"), W5),
        ):
            assert run(wrapped, "A1 N6") == []
            assert bound(run(wrapped, "A1 N7")) == ["a0"]

    def test_with_several_windows_each_closes_the_scope(self) -> None:
        (match,) = run(Within(seq("A a", no("N n")), W5), "A1 N7", within=W10)
        assert match.completion == 6

    def test_within_on_a_part_does_not_close_the_scope_of_its_edge(self) -> None:
        pattern = seq(Within(seq("A a", no("N n")), Ticks(1)), "B b")
        assert run(pattern, "A1 N5 B7") == []

    def test_open_scope_without_within_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="open scope"):
            run(seq("A a", no("N n")), "A1 N2")


class TestConditions:
    """Section 3."""

    def test_conjuncts_between_variables(self) -> None:
        assert bound(run(seq("A a", "B b"), "A1:x=1 B2:x=1 B3:x=2", compare("a.x", "=", "b.x"))) == ["a0 b1"]

    def test_null_does_not_hold(self) -> None:
        equal = compare("a.x", "=", "b.x")
        assert run(seq("A a", "B b"), "A1:x=null B2:x=null", equal) == []
        assert run(seq("A a", "B b"), "A1:x=null B2:x=null", Unary("not", equal)) == []

    def test_time_fields(self) -> None:
        close = compare(Binary("-", Field("b", "t"), Field("a", "t")), "<=", 3)
        assert bound(run(seq("A a", "B b"), "A1 B4 B5", close)) == ["a0 b1"]
        assert bound(run("A a", "A1-3 A2-9", compare("a.e", "<", 5), compare("a.t", "=", "a.s"))) == ["a0"]

    def test_conjunct_on_a_negated_variable_belongs_to_the_negation(self) -> None:
        pattern = seq("A a", no("N n"), "B b")
        assert bound(run(pattern, "A1 N2:x=1 B3", compare("n.x", ">", 1))) == ["a0 b2"]
        assert run(pattern, "A1 N2:x=2 B3", compare("n.x", ">", 1)) == []

    def test_conjunct_may_relate_a_negated_variable_to_the_match(self) -> None:
        pattern = seq("A a", no("N n"), "B b")
        assert run(pattern, "A1:x=1 N2:x=1 B3", compare("n.x", "=", "a.x")) == []
        assert bound(run(pattern, "A1:x=1 N2:x=2 B3", compare("n.x", "=", "a.x"))) == ["a0 b2"]
        assert bound(run(pattern, "A1:x=1 N2:x=null B3", compare("n.x", "=", "a.x"))) == ["a0 b2"]

    def test_conjunct_belongs_to_the_innermost_negation(self) -> None:
        pattern = seq("X x", no(seq("A a", no("B b"))), "Y y")
        two_levels = compare("b.x", "=", "x.x")
        assert bound(run(pattern, "X1:x=1 A2 B3:x=1 Y5", two_levels)) == ["x0 y3"]
        assert run(pattern, "X1:x=1 A2 B3:x=2 Y5", two_levels) == []

    def test_conjunct_of_a_branch_applies_to_that_branch(self) -> None:
        pattern = either("A a", "B b")
        assert bound(run(pattern, "A1:x=0 A2:x=5 B3:x=0", compare("a.x", ">", 1))) == ["a1", "b2"]

    def test_conjunct_applies_when_all_its_names_are_bound(self) -> None:
        pattern = both("C c", either("A a", "B b"))
        assert bound(run(pattern, "A1:x=0 B1:x=0 C2:x=1", compare("a.x", "=", "c.x"))) == ["b1 c2"]

    def test_conjunct_of_a_branch_under_negation(self) -> None:
        pattern = seq("A a", no(either("B b", "C c")), "D d")
        assert bound(run(pattern, "A1 B2:x=0 D5", compare("b.x", ">", 1))) == ["a0 d2"]
        assert run(pattern, "A1 B2:x=0 C3:x=0 D5", compare("b.x", ">", 1)) == []

    def test_as_name_of_a_negated_part(self) -> None:
        pattern = seq("A a", no(NamedPattern(seq("B b", "C c"), "p")), "D d")
        long = compare(Binary("-", Field("p", "e"), Field("p", "s")), ">", 2)
        assert bound(run(pattern, "A1 B2 C3 D9", long)) == ["a0 d3"]
        assert run(pattern, "A1 B2 C6 D9", long) == []

    def test_partition_by(self) -> None:
        events = "A1:k=1 A2:k=2 A3:k=null B4:k=1 B5:k=null"
        assert bound(run(seq("A a", "B b"), events, by=("k",))) == ["a0 b3"]

    def test_partition_by_concerns_forbidden_events(self) -> None:
        pattern = seq("A a", no("N n"), "B b")
        assert bound(run(pattern, "A1:k=1 N2:k=2 N2:k=null B4:k=1", by=("k",))) == ["a0 b3"]
        assert run(pattern, "A1:k=1 N2:k=1 B4:k=1", by=("k",)) == []

    def test_partition_by_two_columns(self) -> None:
        events = "A1:k=1,g=1 B2:k=1,g=2 B3:k=1,g=1 B4:k=1,g=null"
        assert bound(run(seq("A a", "B b"), events, by=("k", "g"))) == ["a0 b2"]

    def test_same_says_what_partition_by_says(self) -> None:
        pattern = seq("A a", no("N n"), "B b")
        for events in ("A1:k=1 N2:k=2 B4:k=1", "A1:k=1 N2:k=1 B4:k=1", "A1:k=1 B4:k=2", "A1:k=null B4:k=null"):
            assert run(pattern, events, Same(("k",))) == run(pattern, events, by=("k",))
        assert run("A a", "A1:k=null", Same(("k",))) == []

    def test_same_concerns_the_bound_variables(self) -> None:
        pattern = seq(either("A a", "B b"), "C")
        assert bound(run(pattern, "A1:k=1 B1:k=2 C3:k=2", Same(("k",)))) == ["#12 b1"]

    def test_or_is_not_a_conjunction(self) -> None:
        condition = Binary("or", compare("a.x", "=", 1), compare("b.x", "=", 1))
        assert bound(run(seq("A a", "B b"), "A1:x=1 A2:x=2 B3:x=null", condition)) == ["a0 b2"]


class TestWindows:
    """Section 4."""

    def test_time(self) -> None:
        assert bound(run(seq("A a", "B b"), "A1 B6 B7", within=W5)) == ["a0 b1"]
        assert bound(run(seq("A a", "B b"), "A1 B6 B7", within=Duration(5))) == ["a0 b1"]

    def test_positions_count_irrelevant_events(self) -> None:
        assert bound(run(seq("A a", "B b"), "A1 E2 B3", within=Events(3))) == ["a0 b2"]
        assert run(seq("A a", "B b"), "A1 E2 B3", within=Events(2)) == []

    def test_positions_are_in_order_of_end_then_content(self) -> None:
        assert bound(run(seq("A a", "C c"), "C3 B3 A2", within=Events(3))) == ["a2 c0"]
        assert run(seq("A a", "C c"), "C3 B3 A2", within=Events(2)) == []
        assert bound(run(seq("A a", "B b"), "B3 E3 A2", within=Events(2))) == ["a2 b0"]
        assert run(seq("A a", "B b"), "A1 E1-3 B3", within=Events(2)) == []

    def test_positions_are_those_of_the_partition(self) -> None:
        events = "A1:k=1 E2:k=2 E2:k=null B3:k=1"
        assert bound(run(seq("A a", "B b"), events, within=Events(2), by=("k",))) == ["a0 b3"]
        assert run(seq("A a", "B b"), events, Same(("k",)), within=Events(2)) == []

    def test_positions_on_a_part(self) -> None:
        pattern = seq(Within(seq("A a", "B b"), Events(2)), "C c")
        assert bound(run(pattern, "A1 A2 B3 E4 C5")) == ["a1 b2 c4"]

    def test_left_edge_in_positions(self) -> None:
        pattern = seq(no("N n"), "A a", "B b")
        assert run(pattern, "N1 A2 B3", within=Events(3)) == []
        assert bound(run(pattern, "N1 A2 E3 B4", within=Events(3))) == ["a1 b3"]

    def test_right_edge_in_positions(self) -> None:
        pattern = seq("A a", "B b", no("N n"))
        assert run(pattern, "A1 B2 N99", within=Events(3)) == []
        assert bound(run(pattern, "A1 B2 E3 N4", within=Events(3))) == ["a0 b1"]

    def test_right_edge_in_and_is_the_end_of_the_match(self) -> None:
        assert bound(run(both("A a", no("N n")), "A1 N2", within=Events(3))) == ["a0"]
        assert run(both("A a", no("N n")), "A1 N1", within=Events(3)) == []


class TestCompletion:
    """Section 5."""

    def test_last_end(self) -> None:
        assert [match.completion for match in run(both("A a", "B b"), "A1-9 B3")] == [9]

    def test_scope_between_neighbours_adds_nothing(self) -> None:
        assert [match.completion for match in run(seq("A a", no("N n"), "B b"), "A1 B3", within=W5)] == [3]

    def test_trailing_scope_in_seq_closes_with_the_window(self) -> None:
        assert [match.completion for match in run(seq("A a", "B b", no("N n")), "A1 B3", within=W5)] == [6]

    def test_trailing_item_of_and_closes_with_the_match(self) -> None:
        assert [match.completion for match in run(both("A a", "B b", no("N n")), "A1 B3", within=W5)] == [3]

    def test_trailing_scope_of_a_branch_not_taken_adds_nothing(self) -> None:
        pattern = either(seq("A a", no("N n")), "B b")
        assert {match.bindings: match.completion for match in run(pattern, "A1 B1", within=W5)} == {
            (("a", 0),): 6,
            (("b", 1),): 1,
        }

    def test_trailing_scope_inside_a_negation_counts(self) -> None:
        pattern = both("X x", no(seq("A a", no("B b"))))
        assert [match.completion for match in run(pattern, "X5", within=W5)] == [10]

    def test_trailing_scope_in_positions(self) -> None:
        pattern = seq("A a", no("N n"))
        assert [match.completion for match in run(pattern, "A1 E2 E7 N9", within=Events(3))] == [7]
        assert [match.completion for match in run(pattern, "A1 E2", within=Events(3))] == [math.inf]

    def test_earlier_window_closes_the_scope(self) -> None:
        pattern = Within(seq("A a", no("N n")), Events(3))
        assert [match.completion for match in run(pattern, "A1 E2 E3", within=W5)] == [3]
        assert [match.completion for match in run(pattern, "A1 E2 E9", within=W5)] == [6]
        assert [match.completion for match in run(pattern, "A1 E2", within=W5)] == [6]

    def test_between_watermarks(self) -> None:
        events = history("A1 A3 A5")
        found = [
            matches_between(query("A a"), events, *pair) for pair in ((-math.inf, 1), (1, 3), (3, 4), (4, math.inf))
        ]
        assert [bound(part) for part in found] == [["a0"], ["a1"], [], ["a2"]]


ONE, TWO, NULL, TRUE, FALSE = Literal(1), Literal(2), Literal(None), Literal(True), Literal(False)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Binary("and", FALSE, NULL), False),
        (Binary("and", TRUE, NULL), None),
        (Binary("or", TRUE, NULL), True),
        (Binary("or", FALSE, NULL), None),
        (Unary("not", NULL), None),
        (Unary("not", FALSE), True),
        (Unary("-", TWO), -2),
        (Unary("-", NULL), None),
        (Binary("=", NULL, NULL), None),
        (Binary("!=", ONE, TWO), True),
        (Binary("<", ONE, Literal(1.5)), True),
        (Binary(">=", Literal("b"), Literal("a")), True),
        (Binary("+", ONE, NULL), None),
        (Binary("*", TWO, Literal(1.5)), 3.0),
        (Binary("/", ONE, TWO), 0.5),
        (Binary("/", ONE, Literal(0)), None),
        (Binary("%", Literal(7), Literal(4)), 3),
        (Binary("%", Literal(-7), Literal(4)), -3),
        (Binary("%", ONE, Literal(0)), None),
        (Binary("||", Literal("a"), Literal("b")), "ab"),
        (Binary("||", Literal("a"), NULL), None),
        (InList(ONE, (TWO, ONE)), True),
        (InList(ONE, (TWO, NULL)), None),
        (InList(ONE, (ONE, NULL)), True),
        (InList(ONE, (TWO, NULL), negated=True), None),
        (InList(ONE, (TWO,), negated=True), True),
        (InList(NULL, (ONE,)), None),
        (Between(TWO, ONE, TWO), True),
        (Between(Literal(0), ONE, NULL), False),
        (Between(TWO, ONE, NULL), None),
        (Between(TWO, ONE, TWO, negated=True), False),
        (Like(Literal("abc"), "a%"), True),
        (Like(Literal("abc"), "a_"), False),
        (Like(Literal("a%"), r"a\%"), True),
        (Like(Literal("ab"), r"a\%"), False),
        (Like(Literal("a.c"), "a.c", negated=True), False),
        (Like(NULL, "%"), None),
        (IsNull(NULL), True),
        (IsNull(ONE, negated=True), True),
        (Case(((NULL, ONE), (TRUE, TWO))), 2),
        (Case(((FALSE, ONE),)), None),
        (Case(((FALSE, ONE),), TWO), 2),
        (Call("abs", (Literal(-3),)), 3),
        (Call("abs", (NULL,)), None),
        (Call("lower", (Literal("aB"),)), "ab"),
        (Call("upper", (Literal("aB"),)), "AB"),
        (Call("length", (Literal("aB"),)), 2),
        (Call("coalesce", (NULL, TWO, ONE)), 2),
        (Call("coalesce", (NULL, NULL)), None),
        (Call("least", (NULL, TWO, ONE)), 1),
        (Call("greatest", (ONE, NULL, TWO)), 2),
        (Call("greatest", (NULL,)), None),
        (Duration(7), 7),
        (Timestamp(8), 8),
    ],
)
def test_value_of_an_expression(expression: Expr, expected: object) -> None:
    result = evaluate(expression, lambda name, column: None)
    assert result == expected
    assert type(result) is type(expected)


def test_nan_reads_as_null() -> None:
    events = [OracleEvent(0, "A", 1, 1, {"x": math.nan}), OracleEvent(1, "B", 2, 2, {"x": math.nan})]
    pattern = seq("A a", "B b")
    assert matches(query(pattern, IsNull(Field("a", "x"))), events)
    assert not matches(query(pattern, compare("a.x", "=", "b.x")), events)
    assert not matches(query(pattern, Same(("x",))), events)
    assert not matches(query(pattern, by=("x",)), events)


def test_mixed_kinds_are_not_compared_in_silence() -> None:
    with pytest.raises(TypeError, match="not comparable"):
        evaluate(Binary("=", Literal("1"), ONE), lambda name, column: None)
