"""The oracle of rules: laws that follow from section 8, and what the formulas say in figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inside import (
    ALLEN,
    RELATIONS,
    TIMERS,
    Anything,
    Argument,
    Atom,
    Binary,
    Call,
    Causes,
    Condition,
    Event,
    Expr,
    Field,
    HeadArgument,
    Item,
    Literal,
    Operation,
    PatternQuery,
    Return,
    Rule,
    Ruleset,
    Seq,
    Statements,
    StreamDeclaration,
    Temporal,
    Ticks,
    TimerItem,
    Together,
    While,
)
from inside import BoundName as Name
from oracle.bodies import relates, timed
from oracle.conditions import Value
from oracle.model import OracleEvent, Span
from oracle.oracle import matches
from oracle.rules import Derived, derive
from strategies.rules import RuleCase, rule_cases, rule_histories

Rows = set[tuple[int, int, tuple[Value, ...]]]

proper = st.tuples(st.integers(0, 8), st.integers(1, 6)).map(lambda drawn: Span(drawn[0], drawn[0] + drawn[1]))
of_both_kinds = st.booleans().flatmap(lambda intervals: rule_cases(intervals=intervals))
histories_of_both_kinds = st.booleans().flatmap(lambda intervals: rule_histories(intervals=intervals))


# Allen's relations and timers


@given(x=proper, y=proper)
def test_of_two_intervals_exactly_one_relation_holds(x: Span, y: Span) -> None:
    assert len([relation for relation in RELATIONS if relates(relation, x, y)]) == 1


@given(x=proper, y=proper)
def test_turned_around(x: Span, y: Span) -> None:
    for relation, turned in ALLEN.items():
        assert relates(relation, x, y) == relates(turned, y, x)


def test_points_as_the_formulas_say() -> None:
    one, other, long = Span(3, 3), Span(5, 5), Span(3, 5)

    def between(x: Span, y: Span) -> set[str]:
        return {relation for relation in RELATIONS if relates(relation, x, y)}

    assert between(one, one) == {"equals", "meets", "met_by"}
    assert between(one, other) == {"before"}
    assert between(one, long) == {"starts", "meets"}
    assert between(other, long) == {"finishes", "met_by"}
    assert between(Span(4, 4), long) == {"during"}


def test_timers() -> None:
    found = {kind: timed(kind, Span(10, 12), 3) for kind in TIMERS}
    assert found == {
        "extend": Span(10, 15),
        "extend_backward": Span(7, 12),
        "shift": Span(13, 15),
        "shift_backward": Span(7, 9),
        "from_end": Span(12, 15),
        "from_end_backward": Span(9, 12),
        "from_start": Span(10, 13),
        "from_start_backward": Span(7, 10),
    }


# Rules by hand


def atom(stream: str, item: str | None = None, **places: str) -> Atom:
    """An event by the names of its attributes; `_` is anything."""
    terms = {attribute: Anything() if name == "_" else Name(name) for attribute, name in places.items()}
    return Atom(stream, tuple(Argument(term, attribute) for attribute, term in terms.items()), item)


def rule(head: str, arguments: dict[str, Expr], *body: Item) -> Rule:
    return Rule(head, tuple(HeadArgument(expression, name) for name, expression in arguments.items()), body)


def derived_by(*rules: Rule, history: list[OracleEvent], streams: tuple[StreamDeclaration, ...] = ()) -> Derived:
    return derive(Statements((), ruleset=Ruleset(rules, streams=streams)), history)


def rows_of(*rules: Rule, history: list[OracleEvent]) -> Rows:
    return set(derived_by(*rules, history=history).rows(rules[-1].head))


def names(*listed: str) -> dict[str, Expr]:
    return {name: Field(None, name) for name in listed}


def sequence_of(*events: Event) -> PatternQuery:
    returns = (Return(Field("a", "y"), "p"), Return(Field("b", "y"), "q"))
    return PatternQuery(Seq(events), within=Ticks(6), returns=returns)


@given(history=histories_of_both_kinds)
def test_before_is_seq(history: list[OracleEvent]) -> None:
    related = (Temporal("a", "before", "b"), Together(("a", "b"), Ticks(6)))
    by_rule = rows_of(
        rule("h", names("p", "q"), atom("A", "a", y="p"), atom("B", "b", y="q"), *related), history=history
    )
    by_pattern = matches(sequence_of(Event("A", "a"), Event("B", "b")), history)
    assert by_rule == {(match.start, match.end, tuple(match.columns.values())) for match in by_pattern}


@given(history=histories_of_both_kinds)
def test_shared_name_is_an_equality_that_null_never_meets(history: list[OracleEvent]) -> None:
    related = Temporal("a", "before", "b")
    shared = rule("h", names("i"), atom("A", "a", k="i"), atom("B", "b", k="i"), related)
    equal = Condition(Binary("=", Field(None, "i"), Field(None, "j")))
    apart = rule("h", names("i"), atom("A", "a", k="i"), atom("B", "b", k="j"), related, equal)
    assert rows_of(shared, history=history) == rows_of(apart, history=history)


@given(history=rule_histories(), length=st.integers(1, 5))
def test_nothing_while_a_time_after_is_notfollows(history: list[OracleEvent], length: int) -> None:
    """For points: `while` is open at its end and NOTFOLLOWS is closed, a tick apart."""
    body = (atom("A", "a", y="p"), TimerItem("w", "from_end", "a", Ticks(length + 1)), While("w", atom("B")))
    quiet = PatternQuery(
        Operation("NOTFOLLOWS", (Event("A", "a"), Event("B", "b")), Ticks(length)),
        returns=(Return(Field("a", "y"), "p"),),
    )
    found = rows_of(rule("h", names("p"), *body), history=history)
    assert found == {(one.start, one.end + 1, tuple(one.columns.values())) for one in matches(quiet, history)}


def test_transitive_closure() -> None:
    edges = [(0, 1), (1, 2), (2, 0), (3, 4)]
    history = [OracleEvent(number, "A", 5, 5, {"x": x, "y": y}) for number, (x, y) in enumerate(edges)]
    step = rule("path", names("i", "j"), atom("A", "a", x="i", y="j"))
    further = rule(
        "path", {"i": Field(None, "i"), "j": Field(None, "m")}, atom("path", i="i", j="j"), atom("A", x="j", y="m")
    )
    assert rows_of(step, further, history=history) == {(5, 5, pair) for pair in [*product(range(3), repeat=2), (3, 4)]}


def test_arithmetic_without_end_is_said() -> None:
    history = [OracleEvent(0, "A", 1, 1, {"x": 1})]
    begin = rule("h", names("i"), atom("A", x="i"))
    endless = rule("h", {"i": Binary("+", Field(None, "i"), Literal(1))}, atom("h", i="i"))
    with pytest.raises(RecursionError, match="something new"):
        derived_by(begin, endless, history=history)


def test_lineage_is_that_of_all_ways() -> None:
    history = [OracleEvent(number, stream, 3, 3, {"x": 1}) for number, stream in enumerate(("A", "A", "B"))]
    found = derived_by(rule("h", names("i"), atom("A", x="i"), atom("B")), history=history)
    (event,) = found.heads["h"]
    assert [origin.id for origin in event.origins] == [0, 1, 2]


def test_causes_is_transitive_and_goes_forward() -> None:
    spans = [(1, None, 1, 9), (2, 1, 2, 9), (3, 2, 3, 9), (4, 3, 2, 9), (5, 3, 4, 8)]
    history = [
        OracleEvent(number, "A" if number % 2 else "B", s, e, {"id": own, "parent": parent})
        for number, (own, parent, s, e) in enumerate(spans)
    ]
    pairs = [
        rule("h", names("i", "j"), atom(one, "x", id="i"), atom(other, "y", id="j"), Causes("x", "y"))
        for one, other in product("AB", repeat=2)
    ]
    any_event = (StreamDeclaration(None, None, "id", "parent"),)
    found = derived_by(*pairs, history=history, streams=any_event)
    assert {values for _, _, values in found.rows("h")} == {(1, 2), (1, 3), (2, 3)}


# Laws of drawn programs


def everything(derived: Derived) -> dict[str, list[tuple[int, int, tuple[Value, ...]]]]:
    return {head: derived.rows(head) for head in derived.heads}


def changed(case: RuleCase, **parts: object) -> Derived:
    program = replace(case.program, ruleset=replace(case.program.ruleset, **parts))
    return derive(program, case.history, case.tables)


@given(case=of_both_kinds)
def test_rules_and_items_have_no_order(case: RuleCase) -> None:
    """But for the table items, which look for the first event item that shares a name with them."""
    rules = case.program.ruleset.rules
    twice = [replace(one, body=(*atoms_of(one), *reversed(others_of(one)))) for one in rules]
    assert everything(changed(case, rules=(*twice, *twice))) == everything(case.derived)


def atoms_of(rule: Rule) -> list[Item]:
    return [item for item in rule.body if isinstance(item, Atom)]


def others_of(rule: Rule) -> list[Item]:
    return [item for item in rule.body if not isinstance(item, Atom)]


@given(case=of_both_kinds)
def test_not_is_collecting_nothing(case: RuleCase) -> None:
    rules = tuple(map(collecting_nothing, case.program.ruleset.rules))
    assert everything(changed(case, rules=rules)) == everything(case.derived)


def collecting_nothing(rule: Rule) -> Rule:
    body: list[Item] = []
    for item, number in zip(rule.body, count(), strict=False):
        if isinstance(item, While) and not item.collects:
            name = item.atom.name or f"nothing{number}"
            body.append(replace(item, atom=replace(item.atom, name=name), collects=True))
            body.append(Condition(Binary("=", Call("count", (Field(None, name),)), Literal(0))))
        else:
            body.append(item)
    return replace(rule, body=tuple(body))


@given(case=of_both_kinds, until=st.integers(-1, 16))
def test_what_ends_by_a_time_depends_on_what_ended_by_it(case: RuleCase, until: int) -> None:
    """So a run that knows the events up to a watermark can give exactly the derived events that end by it."""
    known = [event for event in case.history if event.e <= until]
    early = derive(case.program, known, case.tables)
    for head, events in case.derived.heads.items():
        expected = [(event.s, event.e, event.fields, lineage(event)) for event in events if event.e <= until]
        found = [(event.s, event.e, event.fields, lineage(event)) for event in early.heads[head] if event.e <= until]
        assert found == expected


def lineage(event: OracleEvent) -> list[int]:
    return [origin.id for origin in event.origins or ()]


@given(case=of_both_kinds)
def test_derived_events_are_a_set_in_order(case: RuleCase) -> None:
    for head in case.derived.heads:
        rows = case.derived.rows(head)
        assert len(set(rows)) == len(rows)
        assert [(end, start) for start, end, _ in rows] == sorted((end, start) for start, end, _ in rows)
