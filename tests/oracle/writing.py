"""Patterns, queries and histories in few words, for the tests of the oracle."""

from __future__ import annotations

from dataclasses import replace

from ensue.algebra.nodes import (
    And,
    Event,
    Named,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Repeat,
    Return,
    Seq,
    Ticks,
    Window,
)
from ensue.expr.nodes import Binary, Call, Expr, Field, Literal
from oracle.oracle import OracleEvent, OracleMatch, matches


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


