"""Checks of states, and of questions about them, that need no data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ensue.errors import Problem, QueryError, Span, did_you_mean
from ensue.nodes import states as state_nodes
from ensue.nodes.expressions import Field, Literal
from ensue.nodes.patterns import Events

TOLERANCE = 1e-9
"""The tolerance for probabilities that must add up to 1, because decimals are rounded."""


def check_states(states: Sequence[state_nodes.StateStatement]) -> Iterator[Problem]:
    """All problems of the states of a program."""
    for number, state in enumerate(states):
        for other in states[:number]:
            if other.name == state.name:
                yield Problem("state-repeats", f"two states are named `{state.name}`", state.span, hint="rename one")
            for variable in state.variables:
                if variable in other.variables:
                    said = f"`{variable}` is a variable of both state `{other.name}` and state `{state.name}`"
                    yield Problem("state-repeats", said, state.span, hint="rename one of the variables")
        yield from _check_state(state)


def _check_state(state: state_nodes.StateStatement) -> Iterator[Problem]:
    for names, kind in ((state.variables, "variable"), (state.values, "value")):
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            said = f"state `{state.name}` has {kind} `{name}` twice"
            yield Problem("state-repeats", said, state.span, hint="remove one of them")
    if len(set(state.values)) < 2:
        said = f"state `{state.name}` must have at least two values"
        yield Problem("state-domain", said, state.span, hint="list all values of the variables after IN")
    yield from _check_starts(state)
    for response in state.responses:
        yield from _check_response(state, response)
    if state.drift is not None:
        yield from _check_drift(state)


def _check_starts(state: state_nodes.StateStatement) -> Iterator[Problem]:
    named = [start.variable for start in state.starts]
    for place, start in enumerate(state.starts):
        if start.variable is not None:
            yield from _known(start.variable, state.variables, "variable", state, start.span)
        if start.variable in named[:place]:
            said = f"STARTS has variable `{start.variable}` twice"
            yield Problem("state-repeats", said, start.span, hint="keep one of them")
        yield from _check_start(state, start)


def _check_start(state: state_nodes.StateStatement, start: state_nodes.Start) -> Iterator[Problem]:
    if start.chances is None:
        return
    for chance in start.chances:
        yield from _known(chance.value, state.values, "value", state, chance.span)
        yield from _in_range(chance.probability, chance.span)
    values = [chance.value for chance in start.chances]
    if len(set(values)) < len(values):
        hint = "write each value once, with the sum of its probabilities"
        yield Problem("state-repeats", "STARTS has a value twice", start.span, hint=hint)
    total = sum(chance.probability for chance in start.chances)
    if abs(total - 1) > TOLERANCE:
        said = f"the probabilities after STARTS must add up to 1, but add up to {total:.6g}"
        yield Problem("state-probability", said, start.span, hint="change the probabilities, or add the missing values")


def _check_response(state: state_nodes.StateStatement, response: state_nodes.Response) -> Iterator[Problem]:
    for reference in _references(response.change):
        if reference.variable != response.variable:
            said = f"the variable of this ON is `{response.variable}`, not `{reference.variable}`"
            hint = f"write `{response.variable}.{reference.name}`"
            yield Problem("unknown-variable", said, reference.span, hint=hint)
    yield from _check_change(state, response.change)


def _references(change: state_nodes.Change) -> Iterator[Field]:
    """The fields of the event that a change uses."""
    parts: tuple[object, ...]
    match change:
        case state_nodes.Move():
            parts = (change.who, change.source, change.target, change.probability)
        case state_nodes.Wander():
            parts = (change.who,)
        case state_nodes.Observe():
            parts = (change.who, change.place, change.reliability, change.false_alarm)
    for part in parts:
        if isinstance(part, Field):
            yield part


def _check_change(state: state_nodes.StateStatement, change: state_nodes.Change) -> Iterator[Problem]:
    yield from _check_who(state, change)
    match change:
        case state_nodes.Move():
            yield from _known_place(change.source, state)
            yield from _known_place(change.target, state)
            yield from _number_in_range(change.probability)
        case state_nodes.Wander():
            yield from _check_arrows(state, change.arrows)
        case state_nodes.Observe():
            yield from _known_place(change.place, state)
            yield from _number_in_range(change.reliability)
            yield from _number_in_range(change.false_alarm)
            yield from _check_arrows(state, change.errors or ())
            yield from _check_model(change)


def _check_who(state: state_nodes.StateStatement, change: state_nodes.Change) -> Iterator[Problem]:
    who: state_nodes.Who = change.who
    if isinstance(who, state_nodes.Constant):
        yield from _known(who.name, state.variables, "variable", state, who.span)
    if not isinstance(who, state_nodes.Someone):
        return
    match change, who.word:
        case state_nodes.Move(), word if word == state_nodes.NOBODY:
            said, hint = "MOVE does not take NOBODY", "remove this MOVE, or name who moves"
            yield Problem("state-change", said, who.span, hint=hint)
        case state_nodes.Wander(), word if word in (state_nodes.ANYONE, state_nodes.NOBODY):
            said = f"MOVE BY does not take {word.upper()}"
            yield Problem("state-change", said, who.span, hint="write EVERYONE, a variable or a field of the event")
        case state_nodes.Observe(), word if word == state_nodes.EVERYONE:
            hint = "write one OBSERVE for each variable, or use ANYONE"
            yield Problem("state-change", "OBSERVE does not take EVERYONE", who.span, hint=hint)


def _check_model(change: state_nodes.Observe) -> Iterator[Problem]:
    if change.errors is not None and (change.reliability is not None or change.false_alarm is not None):
        hint = "keep ERRORS, which includes the probability of a correct reading"
        said = "ERRORS cannot be combined with RELIABILITY or FALSE ALARM"
        yield Problem("state-change", said, change.span, hint=hint)
    if change.errors is not None and isinstance(change.who, state_nodes.Someone):
        said = "ERRORS needs a single variable, not ANYONE, EVERYONE or NOBODY"
        yield Problem("state-change", said, change.span, hint="use RELIABILITY and FALSE ALARM instead")
    if change.false_alarm is not None and not isinstance(change.who, state_nodes.Someone):
        said = "FALSE ALARM is only allowed with ANYONE or NOBODY"
        hint = "for a single variable, use ERRORS"
        yield Problem("state-change", said, change.span, hint=hint)


def _check_drift(state: state_nodes.StateStatement) -> Iterator[Problem]:
    assert state.drift is not None
    window = state.drift.window
    if isinstance(window, Events) or not (window.count if hasattr(window, "count") else window.nanoseconds):
        said = "EVERY takes a positive duration"
        yield Problem("window-size", said, window.span or state.drift.span, hint="for example `EVERY 10m`")
    if isinstance(state.drift.change.who, Field):
        said = "EVERY has no event, so it cannot use a field of an event"
        yield Problem("state-change", said, state.drift.change.who.span, hint="use a variable of the state instead")
    else:
        yield from _check_change(state, state.drift.change)


def _check_arrows(state: state_nodes.StateStatement, arrows: Iterable[state_nodes.Arrow]) -> Iterator[Problem]:
    totals: dict[str, float] = {}
    seen: set[tuple[str, str]] = set()
    for arrow in arrows:
        yield from _known(arrow.source, state.values, "value", state, arrow.span)
        yield from _known(arrow.target, state.values, "value", state, arrow.span)
        yield from _in_range(arrow.probability, arrow.span)
        if arrow.source == arrow.target:
            said = f"an arrow must not lead from `{arrow.source}` to itself"
            hint = "remove this arrow; the remaining probability is that of no move"
            yield Problem("state-change", said, arrow.span, hint=hint)
        if (arrow.source, arrow.target) in seen:
            said = f"there are two arrows from `{arrow.source}` to `{arrow.target}`"
            yield Problem("state-repeats", said, arrow.span, hint="write one arrow with the sum of the probabilities")
        seen.add((arrow.source, arrow.target))
        before = totals.get(arrow.source, 0.0)
        totals[arrow.source] = before + arrow.probability
        if totals[arrow.source] > 1 + TOLERANCE >= before:
            said = f"the probabilities of the arrows from `{arrow.source}` add up to more than 1"
            yield Problem(
                "state-probability",
                said,
                arrow.span,
                hint="reduce them to at most 1; the rest is the probability of no move",
            )


def _known_place(place: state_nodes.Place | None, state: state_nodes.StateStatement) -> Iterator[Problem]:
    if isinstance(place, state_nodes.Constant):
        yield from _known(place.name, state.values, "value", state, place.span)


def _known(
    name: str, candidates: Sequence[str], kind: str, state: state_nodes.StateStatement, span: Span | None
) -> Iterator[Problem]:
    if name not in candidates:
        said = f"state `{state.name}` has no {kind} `{name}`"
        label = f"{kind}s: {', '.join(candidates)}"
        yield Problem("state-unknown", said, span, label, did_you_mean(name, candidates))


def _number_in_range(number: Literal | Field | None) -> Iterator[Problem]:
    if isinstance(number, Literal):
        assert isinstance(number.value, float)
        yield from _in_range(number.value, number.span)


def _in_range(probability: float, span: Span | None) -> Iterator[Problem]:
    if not 0 <= probability <= 1:
        said = f"a probability must be between 0 and 1, but is {probability:g}"
        yield Problem("state-probability", said, span)


# --- Questions


def state_of(
    question: state_nodes.Measure | state_nodes.StateCondition, states: Sequence[state_nodes.StateStatement]
) -> state_nodes.StateStatement:
    """The state that a question is about. Raises all problems of the question at once."""
    variables, values, span = _named(question)
    unknown = [name for name in variables if not any(name.name in state.variables for state in states)]
    known = list(chain.from_iterable(state.variables for state in states))
    problems = [
        Problem("state-unknown", f"no state has a variable `{name.name}`", name.span,
                f"variables: {', '.join(known)}", did_you_mean(name.name, known))
        for name in unknown
    ]  # fmt: skip
    everywhere = list(dict.fromkeys(chain.from_iterable(state.values for state in states)))
    problems += [
        Problem("state-unknown", f"no state has a value `{value}`", places.span,
                f"values: {', '.join(everywhere)}", did_you_mean(value, everywhere))
        for places in values for value in places.values if value not in everywhere
    ]  # fmt: skip
    if problems:
        raise QueryError(problems)
    fitting = [state for state in states if _fits(state, variables, values)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        said = "the variables and values of the question do not belong to the same state"
        hint = "; ".join(
            f"{state.name}: {', '.join(state.variables)} in ({', '.join(state.values)})" for state in states
        )
        raise QueryError([Problem("state-mixed", said, span, hint=hint)])
    names = ", ".join(f"`{state.name}`" for state in fitting)
    hint = 'select one with `beliefs.of("...")`, or use a variable in the question'
    raise QueryError([Problem("state-mixed", f"the question applies to several states: {names}", span, hint=hint)])


def _fits(
    state: state_nodes.StateStatement, variables: Sequence[state_nodes.Constant], values: Sequence[state_nodes.Places]
) -> bool:
    return all(name.name in state.variables for name in variables) and all(
        set(places.values) <= set(state.values) for places in values
    )


def _named(
    question: state_nodes.Measure | state_nodes.StateCondition,
) -> tuple[list[state_nodes.Constant], list[state_nodes.Places], Span | None]:
    """The variables and values in a question."""
    match question:
        case state_nodes.MostLikely():
            return [question.variable], [], question.span
        case state_nodes.ExpectedCount():
            return [], [question.places], question.span
        case state_nodes.ProbabilityOf():
            conditions = [question.condition, *([question.given] if question.given is not None else [])]
        case condition:
            conditions = [condition]
    found: list[state_nodes.Location | state_nodes.CountTest] = [
        atom for condition in conditions for atom in state_nodes.atoms(condition)
    ]
    variables = [
        atom.who
        for atom in found
        if isinstance(atom, state_nodes.Location) and isinstance(atom.who, state_nodes.Constant)
    ]
    return variables, [atom.places for atom in found], question.span
