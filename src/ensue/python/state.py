"""States in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ensue.check.gate import checked
from ensue.nodes.patterns import Statements
from ensue.nodes.states import Chance, Drift, Response, Start, StateStatement
from ensue.text.parser import parse_drift, parse_response
from ensue.text.render import render_statements

StartLike = str | Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class State:
    """A state as a value; `node` is the parsed form of its text."""

    node: StateStatement

    def __repr__(self) -> str:
        return f'State("{self.to_text()}")'

    def to_text(self) -> str:
        """The statement as text, which parses to an equal statement."""
        return render_statements(Statements((), states=(self.node,))).removesuffix(";\n")


def state(
    name: str,
    variables: Sequence[str],
    values: Sequence[str],
    *,
    on: Mapping[str, str | Sequence[str]],
    partition_by: str | Sequence[str] = (),
    starts: StartLike = None,
    every: tuple[str, str] | None = None,
) -> State:
    """Variables with a finite domain per key: `STATE name OF variables IN (values) ...`.

    `on` defines how events change the state: `{"Moved m": "MOVE ANYONE FROM m.source TO m.target"}`. Pass a list for
    several changes by one event. `starts` is a value, a dict of values and probabilities, or a dict of variables and
    their starts (None: all values have the same probability). `every` is a duration and a transition.

    >>> print(state("s", ["a", "b"], ["x", "y"], on={"M m": "MOVE ANYONE TO y"}, starts={"a": "x"}).to_text())
    STATE s OF a, b IN (x, y)
      STARTS a: x
      ON M m: MOVE ANYONE TO y
    """
    responses: list[Response] = []
    for event, changes in on.items():
        for change in [changes] if isinstance(changes, str) else changes:
            responses.append(parse_response(f"ON {event}: {change}"))
    drift: Drift | None = None if every is None else parse_drift(f"EVERY {every[0]} {every[1]}")
    keys = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    node = StateStatement(
        name, tuple(variables), tuple(values), keys, _starts(starts, tuple(variables)), tuple(responses), drift
    )
    return State(checked(Statements((), states=(node,))).states[0])


def _starts(given: StartLike, variables: tuple[str, ...]) -> tuple[Start, ...]:
    if given is None:
        return ()
    if isinstance(given, Mapping) and set(given) <= set(variables):
        return tuple(Start(name, _chances(own)) for name, own in given.items())
    return (Start(None, _chances(given)),)


def _chances(given: object) -> tuple[Chance, ...] | None:
    if given is None:
        return None
    if isinstance(given, str):
        return (Chance(given, 1.0),)
    if isinstance(given, Mapping):
        return tuple(Chance(str(value), float(share)) for value, share in given.items())
    raise TypeError(f"a start must be a value, or a dict of values and probabilities, not {given!r}")
