"""State and questions to it back to query text: `parse(render(x)) == x`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ensue.nodes.expressions import Field
from ensue.nodes.states import (
    EVERYONE,
    Arrow,
    Both,
    Chance,
    Change,
    Constant,
    Counted,
    Either,
    ExpectedCount,
    Located,
    Measure,
    MostLikely,
    Move,
    NotSo,
    Observe,
    Place,
    Places,
    ProbabilityOf,
    Someone,
    Start,
    StateCondition,
    StateStatement,
    Wander,
    Who,
)
from ensue.text.render_values import render_expression, render_names, render_window
from ensue.text.reserved import quote_always, quote_name

_LINE = 100
_INDENT = "  "
_KEYWORDS = re.compile("ANYONE|EVERYONE|NOBODY|EVENLY|BY|COUNT", re.IGNORECASE)
_NUMBER = re.compile("[0-9]+")
_LOOSEST, _JOINED, _SINGLE = range(3)


def render_state(state: StateStatement) -> str:
    """A state as a statement, each clause on a line of its own.

    >>> from ensue.text.parser import parse_statements
    >>> text = "state s of a,b in (x,y) starts x on M m: move anyone from m.f to y"
    >>> print(render_state(parse_statements(text).states[0]))
    STATE s OF a, b IN (x, y)
      STARTS x
      ON M m: MOVE ANYONE FROM m.f TO y
    """
    variables = ", ".join(map(_name, state.variables))
    lines = [f"STATE {quote_name(state.name)} OF {variables} IN ({_values(state.values)})"]
    if state.partition_by:
        lines.append(f"PARTITION BY {render_names(state.partition_by)}")
    if state.starts:
        lines.append(f"STARTS {', '.join(map(_start, state.starts))}")
    lines += [
        f"ON {quote_name(response.stream)} {quote_name(response.variable)}: {render_change(response.change)}"
        for response in state.responses
    ]
    if state.drift is not None:
        lines.append(f"EVERY {render_window(state.drift.window)} {render_change(state.drift.change)}")
    return f"\n{_INDENT}".join(lines)


def render_change(change: Change) -> str:
    """What an event does to the state.

    >>> render_change(Observe(Someone("anyone"), Constant("den")))
    'OBSERVE ANYONE IN den'
    """
    match change:
        case Move():
            source = f" FROM {_place(change.source)}" if change.source is not None else ""
            share = f" PROBABILITY {render_expression(change.probability)}" if change.probability is not None else ""
            return f"MOVE {_who(change.who)}{source} TO {_place(change.target)}{share}"
        case Wander(Someone(word)) if word == EVERYONE:
            return f"MOVE BY {_arrows(change.arrows)}"
        case Wander():
            return f"MOVE {_who(change.who)} BY {_arrows(change.arrows)}"
        case Observe():
            text = f"OBSERVE {_who(change.who)} IN {_place(change.place)}"
            if change.reliability is not None:
                text += f" RELIABILITY {render_expression(change.reliability)}"
            if change.false_alarm is not None:
                text += f" FALSE ALARM {render_expression(change.false_alarm)}"
            return text + (f" ERRORS {_arrows(change.errors)}" if change.errors is not None else "")


def render_measure(measure: Measure) -> str:
    """A question whose answer is one value per key.

    >>> render_measure(ExpectedCount(Places(("outside",), negated=True)))
    'E(COUNT(NOT outside))'
    """
    match measure:
        case ProbabilityOf(condition, None):
            return f"P({render_state_condition(condition)})"
        case ProbabilityOf(condition, given):
            assert given is not None
            return f"P({render_state_condition(condition)} GIVEN {render_state_condition(given)})"
        case ExpectedCount():
            return f"E(COUNT({_places(measure.places)}))"
        case MostLikely():
            return f"MOST LIKELY({_name(measure.variable.name)})"


def render_state_condition(condition: StateCondition) -> str:
    """A condition on the state.

    >>> render_state_condition(NotSo(Located(Someone("anyone"), Places(("den", "bath")))))
    'NOT ANYONE IN (den, bath)'
    """
    return _condition(condition, _LOOSEST)


def _condition(condition: StateCondition, context: int) -> str:
    match condition:
        case Located():
            return f"{_who(condition.who)} IN {_places(condition.places)}"
        case Counted():
            return f"COUNT({_places(condition.places)}) {condition.operator} {condition.number}"
        case NotSo():
            return f"NOT {_condition(condition.item, _SINGLE)}"
        case Both():
            text = f"{_condition(condition.left, _JOINED)} AND {_condition(condition.right, _SINGLE)}"
            return text if context <= _JOINED else f"({text})"
        case Either():
            text = f"{_condition(condition.left, _LOOSEST)} OR {_condition(condition.right, _JOINED)}"
            return text if context == _LOOSEST else f"({text})"


def _start(start: Start) -> str:
    whose = "" if start.variable is None else f"{_name(start.variable)}: "
    match start.chances:
        case None:
            return f"{whose}EVENLY"
        case (Chance(value, 1.0),):
            return whose + render_value(value)
        case chances:
            listed = (f"{render_value(chance.value)} {chance.probability!r}" for chance in chances)
            return f"{whose}({', '.join(listed)})"


def _arrows(arrows: Iterable[Arrow]) -> str:
    listed = (f"{render_value(a.source)} -> {render_value(a.target)} {a.probability!r}" for a in arrows)
    return f"({', '.join(listed)})"


def _who(who: Who) -> str:
    match who:
        case Someone(word):
            return word.upper()
        case Constant(name):
            return _name(name)
        case Field():
            return render_expression(who)


def _place(place: Place) -> str:
    return render_value(place.name) if isinstance(place, Constant) else render_expression(place)


def _places(places: Places) -> str:
    listed = render_value(places.values[0]) if len(places.values) == 1 else f"({_values(places.values)})"
    return f"NOT {listed}" if places.negated else listed


def _values(values: Iterable[str]) -> str:
    return ", ".join(map(render_value, values))


def render_value(value: str) -> str:
    """A value of a domain as it stands in a text.

    >>> render_value("den"), render_value("7"), render_value("living room"), render_value("")
    ('den', '7', '`living room`', "''")
    """
    if not value:
        return "''"
    return value if _NUMBER.fullmatch(value) else _name(value)


def _name(name: str) -> str:
    return quote_always(name) if _KEYWORDS.fullmatch(name) else quote_name(name)
