"""Section 8, which matches of a body: MATCH RECENT, MATCH CHRONICLE and CONSUME, on the choices of one rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from inside import BoundName as Name
from inside import Literal, Temporal, Together
from oracle.bodies import BOUND, Bindable, Body, Choice, Span, fields_in
from oracle.conditions import holds
from oracle.model import OracleEvent, values_in_order


def chosen(body: Body, found: Sequence[Choice]) -> list[Choice]:
    """The choices that the policy of the rule selects among those that are matches."""
    if body.rule.consume:
        return consumed(body, found)
    if body.rule.policy in ("RECENT", "CHRONICLE"):
        paired = [parts.things for parts in composites(body)]
        return [choice for choice in found if choice.things in paired]
    return list(found)


def rank(body: Body, event: OracleEvent) -> tuple[Any, ...]:
    """The order of (end, start, content): the columns that the rule uses, in the order of their names."""
    columns = used_columns(body)
    return event.e, event.s, event.stream, values_in_order(tuple(event.fields.get(name) for name in columns))


def used_columns(body: Body) -> list[str]:
    """The columns that the head, a condition, a literal or a name in several places compares or returns."""
    head = [body.resolved(argument.expression) for argument in body.rule.arguments]
    asked = {field for expression in (*head, *body.conditions) for field in fields_in(expression)}
    found = {name for variable, name in asked if variable in body.atoms and name not in ("s", "e", "t")}
    whiles = [item.atom for item in body.whiles.values()]
    for atom in (*body.atoms.values(), *whiles):
        attributes = body.facts.attributes.get(atom.stream, ())
        for place, argument in enumerate(atom.arguments):
            term = argument.term
            is_used = isinstance(term, Literal) or (
                isinstance(term, Name) and (body.places[term.name] > 1 or any(name == term.name for _, name in asked))
            )
            if is_used:
                found.add(argument.attribute or attributes[place])
    return sorted(found)


def consumed(body: Body, found: Sequence[Choice]) -> list[Choice]:
    """Every event in one match: in the order of completion, start, and the events as written."""
    used: set[int] = set()
    kept = []
    for choice in sorted(
        found, key=lambda one: (one.interval.e, one.interval.s, [rank(body, e) for e in events_of(one)])
    ):
        needed = {event.id for event in events_of(choice)}
        if not needed & used:
            used |= needed
            kept.append(choice)
    return kept


def events_of(choice: Choice) -> list[OracleEvent]:
    return [thing for thing in choice.things.values() if isinstance(thing, OracleEvent)]


@dataclass(frozen=True, slots=True)
class Parts:
    """What an operand gives: the events bound so far, and their order among those of the operand."""

    things: dict[str, Bindable]
    order: tuple[Any, ...]

    @property
    def end(self) -> int:
        return max(thing.e for thing in self.things.values())

    @property
    def start(self) -> int:
        return min(thing.s for thing in self.things.values())

    @property
    def place(self) -> tuple[Any, ...]:
        return self.end, self.start, self.order


def composites(body: Body) -> list[Parts]:
    """`AND(AND(x, y), z)` over the events in the order of the text, operator by operator."""
    left, *others = (
        [Parts({key: event}, rank(body, event)) for event in body.facts.of(atom)] for key, atom in body.atoms.items()
    )
    if not others:
        return left
    for right in others:
        left = pairs(body, left, right)
    return left


def pairs(body: Body, left: list[Parts], right: list[Parts]) -> list[Parts]:
    """The pairs of one operator: each is tried as a terminator, in the order of ends, the left operand first."""
    recent = body.rule.policy == "RECENT"
    initiators: tuple[list[Parts], list[Parts]] = ([], [])
    found = []
    queue = [(parts.end, side, parts.place, parts) for side, own in enumerate((left, right)) for parts in own]
    for _, side, _, parts in sorted(queue, key=lambda entry: entry[:3]):
        waiting = initiators[1 - side]
        tried = reversed(waiting) if recent else waiting
        partner = next((other for other in tried if fits(body, {**other.things, **parts.things})), None)
        if partner is not None:
            one, two = (parts, partner) if side == 0 else (partner, parts)
            found.append(Parts({**one.things, **two.things}, (one.place, two.place)))
            if not recent:
                waiting.remove(partner)
        if recent or partner is None:
            initiators[side].append(parts)
    return found


def fits(body: Body, things: dict[str, Bindable]) -> bool:
    """Whether everything holds that names only what is bound."""
    things = {key: things[key] for key in body.atoms if key in things}
    names: dict[str, Any] | None = {}
    for key, thing in things.items():
        names = None if names is None else body.agreed(body.atoms[key], thing, names)
    if names is None or not body.binds_different(things):
        return False
    spans = {key: Span(thing.s, thing.e) for key, thing in things.items() if isinstance(thing, OracleEvent)}
    choice = Choice(names, things, spans, {})
    for item in body.rule.body:
        if isinstance(item, Together):
            bound = tuple(name for name in item.names if name in spans)
            if bound and not body.item_holds(replace(item, names=bound), choice):
                return False
        named = {item.left, item.right} if isinstance(item, Temporal) else set()
        if named <= spans.keys() and not isinstance(item, Together) and not body.item_holds(item, choice):
            return False
    known = {*spans, *((BOUND, name) for name in names)}
    asked = ((conjunct, fields_in(conjunct)) for conjunct in body.conditions)
    return all(
        holds(conjunct, body.lookup(choice), body.lists(choice))
        for conjunct, fields in asked
        if all((BOUND, name) in known if variable == BOUND else variable in known for variable, name in fields)
    )
