"""Causality: what `x causes y` stands for.

Chains of events, each the parent of the next, are events of a stream of their own, which depends on itself. A chain has
one event at least and lasts from the start of its first event, the cause, to the end of its last one, which the effect
names as its parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ensue.nodes.expressions import Binary, Duration, Expr, Field, IsNull, Literal
from ensue.nodes.names import Ancestry, AnyEvent, Name, Stream
from ensue.nodes.patterns import Event, PatternQuery, Place, Related, Relation, Return, Ticks, Window
from ensue.nodes.rules import Causes, Rule, Ruleset, StreamDeclaration, Together

EDGES, CHAINS = Ancestry("parents"), Ancestry("chains")
"""The streams of what names a parent, and of the chains of parents."""


@dataclass(frozen=True, slots=True)
class CauseItem:
    """A chain as an item of a rule, and what it has to do with cause and effect."""

    event: Event
    conditions: tuple[Expr, ...]


def cause_item(item: Causes, variable: Name, cause: Stream, effect: Stream, ruleset: Ruleset) -> CauseItem:
    """The chain that leads from one event to another; `cause` and `effect` are their streams."""
    of_cause, of_effect = identified(cause, ruleset), identified(effect, ruleset)
    assert of_cause is not None and of_cause.identity is not None
    assert of_effect is not None and of_effect.parent is not None
    conditions = (
        Binary("=", Field(variable, "first"), Field(item.cause, of_cause.identity), item.span),
        Binary("=", Field(variable, "last"), Field(item.effect, of_effect.parent), item.span),
        Binary("=", Field(variable, "first_end"), Field(item.cause, "e"), item.span),
        Binary("<=", Field(variable, "last_start"), Field(item.effect, "s"), item.span),
    )
    return CauseItem(Event(CHAINS, variable, span=item.span), conditions)


def identified(stream: Stream, ruleset: Ruleset) -> StreamDeclaration | None:
    """What says which column identifies an event of a stream and which its parent."""
    own = [entry for entry in ruleset.streams if entry.stream == stream and entry.identity is not None]
    everyone = [entry for entry in ruleset.streams if entry.stream is None]
    return next(iter([*own, *everyone]), None)


def cause_statements(ruleset: Ruleset) -> Iterator[PatternQuery]:
    """What declares the chains, if a rule asks for any."""
    uses = [(rule, item) for rule in ruleset.rules for item in rule.body if isinstance(item, Causes)]
    if not uses:
        return
    for entry in ruleset.streams:
        if entry.identity is not None:
            yield _edge(entry)
    limits = [_window_of(rule, item) for rule, item in uses]
    yield from _chains(None if None in limits else max((window for window in limits if window), key=_length))


def _length(window: Window) -> int:
    return window.nanoseconds if isinstance(window, Duration) else window.count


def _window_of(rule: Rule, causes: Causes) -> Window | None:
    """How long a chain can last, if the rule says so."""
    pair = {causes.cause, causes.effect}
    windows = [item.window for item in rule.body if isinstance(item, Together) and pair <= set(item.names)]
    return min((window for window in windows if isinstance(window, Duration | Ticks)), key=_length, default=None)


def _edge(entry: StreamDeclaration) -> PatternQuery:
    assert entry.identity is not None
    stream = entry.stream if entry.stream is not None else AnyEvent()
    child = Field("v", entry.identity)
    parent = Literal(None) if entry.parent is None else Field("v", entry.parent)
    return PatternQuery(
        Event(stream, "v", span=entry.span),
        EDGES,
        where=IsNull(child, negated=True),
        returns=(Return(child, "child"), Return(parent, "parent")),
        declares=True,
        rule=Rule(str(EDGES), (), (), entry.span),
        span=entry.span,
    )


def _chains(window: Window | None) -> Iterator[PatternQuery]:
    link = Field("c", "child")
    yield PatternQuery(
        Event(EDGES, "c"),
        CHAINS,
        returns=(
            Return(link, "first"),
            Return(link, "last"),
            Return(Field("c", "e"), "first_end"),
            Return(Field("c", "s"), "last_start"),
        ),
        declares=True,
        rule=Rule(str(CHAINS), (), ()),
    )
    follows = Relation(Place(0, "e"), Place(1, "e"))
    bounded = (Relation(Place(1, "e"), Place(0, "s"), window),) if window is not None else ()
    yield PatternQuery(
        Related("causes", (Event(CHAINS, "p"), Event(EDGES, "c")), (follows, *bounded), (0,), (1,)),
        CHAINS,
        where=Binary(
            "and",
            Binary("=", Field("p", "last"), Field("c", "parent")),
            Binary("<=", Field("p", "last_start"), Field("c", "s")),
        ),
        returns=(
            Return(Field("p", "first"), "first"),
            Return(link, "last"),
            Return(Field("p", "first_end"), "first_end"),
            Return(Field("c", "s"), "last_start"),
        ),
        declares=True,
        rule=Rule(str(CHAINS), (), ()),
    )
