"""Timers of a rule: `w: extend(o, 6 hours)`, and what is nearly one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ensue.errors import Problem, Span, did_you_mean
from ensue.nodes.expressions import Duration, Expr, Field, Literal
from ensue.nodes.patterns import Events, Ticks, Window
from ensue.nodes.rules import OTHER_WAY, TIMERS, TimerItem

_FORM = "for example `w: extend(o, 6 hours)`"
_STREAM = "a stream of this name stands in backticks"


class Occurrence(NamedTuple):
    """`order(id, p, q)`, before it is known whether it is an event or a timer; `quoted`: the name has backticks."""

    name: str
    quoted: bool
    arguments: tuple[Expr | Events, ...]
    span: Span

    @property
    def takes_time(self) -> bool:
        """Whether a length of time stands among the arguments: no event has one."""
        return any(isinstance(argument, Duration | Events) for argument in self.arguments)


def is_timer(occurrence: Occurrence) -> bool:
    """Whether what stands behind a name and a colon is a timer, or is meant to be one."""
    return not occurrence.quoted and (occurrence.name.lower() in TIMERS or occurrence.takes_time)


def read_timer(name: str, occurrence: Occurrence, span: Span) -> tuple[TimerItem, list[Problem]]:
    """The timer, and what is wrong with it; then a length of zero stands in for the one that is none."""
    kind = occurrence.name.lower()
    if kind not in TIMERS:
        return TimerItem(name, kind, name, Ticks(0), span), [_unknown_timer(occurrence)]
    match occurrence.arguments:
        case (Field(None, base), length):
            problems = list(_length_problems(kind, length))
            window = Ticks(0) if problems else _window(length)
            return TimerItem(name, kind, base, window, span), problems
    message = f"`{kind}` takes the name of an item or a timer, and a length"
    problem = Problem("timer-arguments", message, occurrence.span, hint=f"{_FORM}; {_STREAM}")
    return TimerItem(name, kind, name, Ticks(0), span), [problem]


def unnamed_timer(occurrence: Occurrence) -> Problem | None:
    """The problem of `extend(o, 6 hours)` without a name."""
    if occurrence.quoted or occurrence.name.lower() not in TIMERS or not occurrence.takes_time:
        return None
    return Problem("timer-arguments", "a timer has a name", occurrence.span, hint=_FORM)


def _unknown_timer(occurrence: Occurrence) -> Problem:
    hint = did_you_mean(occurrence.name, sorted(TIMERS))
    return Problem(
        "unknown-timer",
        f"there is no timer `{occurrence.name}`",
        occurrence.span,
        f"timers: {', '.join(sorted(TIMERS))}",
        hint or "only timers take a length of time; for an event, write a condition on a name",
    )


def _length_problems(kind: str, length: Expr | Events) -> Iterator[Problem]:
    message, hint = "", ""
    match length:
        case Events():
            message, hint = "a timer lasts a time, not a number of events", f"for example `{kind}(o, 6 hours)`"
        case Duration(size) if size < 0:
            message, hint = "the length of a timer is not negative", _other_way(kind)
        case Literal(bool()):
            message, hint = "the length of a timer is a time", f"for example `{kind}(o, 6 hours)`"
        case Literal(int(size)) if size < 0:
            message, hint = "the length of a timer is not negative", _other_way(kind)
        case Literal(float()):
            message, hint = "a length without a unit is a whole number", "add a unit: `1.5 hours`"
        case Duration() | Literal(int()):
            return
        case _:
            message = "the length of a timer is written out"
            hint = f"for example `6 hours`; {_STREAM}"
    yield Problem("timer-length", message, length.span, hint=hint)


def _other_way(kind: str) -> str:
    return f"`{OTHER_WAY[kind]}` goes the other way"


def _window(length: Expr | Events) -> Window:
    match length:
        case Literal(int(count)):
            return Ticks(count, length.span)
        case Duration():
            return length
    raise TypeError(f"{length!r} is not a length of time")
