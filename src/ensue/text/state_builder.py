"""Convert parsed STATE statements and questions about states to nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

from lark import Token

from ensue.errors import Problem, Span
from ensue.nodes import states
from ensue.nodes.expressions import Field, Literal
from ensue.nodes.patterns import Window
from ensue.text.render_parts import render_measure
from ensue.text.reserved_words import unquote_name
from ensue.text.values import LiteralError, ValueRules, read_real, unquote_text


class Domain(NamedTuple):
    """The values after IN."""

    values: tuple[str, ...]


class Keys(NamedTuple):
    """One PARTITION BY clause."""

    names: tuple[str, ...]
    span: Span


class Starts(NamedTuple):
    """One STARTS clause."""

    starts: tuple[states.Start, ...]
    span: Span


class StateRules(ValueRules):
    """One method per rule of the grammar: it takes the values of the children and returns the value of the rule."""

    def state(self, span: Span, name: str, *parts: Any) -> states.StateStatement:
        place = next(place for place, part in enumerate(parts) if isinstance(part, Domain))
        clauses = parts[place + 1 :]
        starts = [clause for clause in clauses if isinstance(clause, Starts)]
        drifts = [clause for clause in clauses if isinstance(clause, states.Drift)]
        responses = tuple(clause for clause in clauses if isinstance(clause, states.Response))
        keys = [clause for clause in clauses if isinstance(clause, Keys)]
        again = [*((c.span, "PARTITION BY") for c in keys[1:]), *((c.span, "STARTS") for c in starts[1:])]
        for place_again, keyword in (*again, *((c.span or span, "EVERY") for c in drifts[1:])):
            said = f"the state has more than one {keyword} clause"
            self._report(place_again, Problem("duplicate-clause", said, hint=f"keep one {keyword}"))
        return states.StateStatement(
            name,
            parts[:place],
            parts[place].values,
            keys[0].names if keys else (),
            starts[0].starts if starts else (),
            responses,
            drifts[0] if drifts else None,
            span,
        )

    def domain(self, span: Span, *values: str) -> Domain:
        return Domain(values)

    def state_partition(self, span: Span, *names: str) -> Keys:
        return Keys(names, span)

    def starts(self, span: Span, *starts: states.Start) -> Starts:
        return Starts(starts, span)

    def start(self, span: Span, *chances: Any) -> states.Start:
        return states.Start(None, _distribution(chances, span), span)

    def own_start(self, span: Span, variable: str, *chances: Any) -> states.Start:
        return states.Start(variable, _distribution(chances, span), span)

    def chance(self, span: Span, value: str, probability: Literal) -> states.Chance:
        return states.Chance(value, float(probability.value), span)  # type: ignore[arg-type]

    def response(
        self, span: Span, stream: str, variable: str, change: states.Move | states.Wander | states.Observe
    ) -> states.Response:
        return states.Response(stream, variable, change, span)

    def drift(self, span: Span, window: Window, change: states.Wander) -> states.Drift:
        return states.Drift(window, change, span)

    def move(
        self,
        span: Span,
        who: states.Who,
        source: states.Place | None,
        target: states.Place,
        probability: states.Number | None,
    ) -> states.Move:
        return states.Move(who, source, target, probability, span)

    def wander(self, span: Span, who: states.Who | None, arrows: tuple[states.Arrow, ...]) -> states.Wander:
        return states.Wander(who or states.Someone(states.EVERYONE), arrows, span)

    def observe(
        self,
        span: Span,
        who: states.Who,
        place: states.Place,
        reliability: states.Number | None,
        false_alarm: states.Number | None,
        errors: tuple[states.Arrow, ...] | None,
    ) -> states.Observe:
        return states.Observe(who, place, reliability, false_alarm, errors, span)

    def arrows(self, span: Span, *arrows: states.Arrow) -> tuple[states.Arrow, ...]:
        return arrows

    def arrow(self, span: Span, source: str, target: str, probability: Literal) -> states.Arrow:
        return states.Arrow(source, target, float(probability.value), span)  # type: ignore[arg-type]

    def someone(self, span: Span, word: Token) -> states.Someone:
        return states.Someone(word.lower(), span)

    def constant(self, span: Span, name: str) -> states.Constant:
        return states.Constant(name, span)

    value_name = constant

    def named_by(self, span: Span, variable: str, name: str) -> Field:
        return Field(variable, name, span)

    def probability(self, span: Span, number: Token) -> Literal:
        try:
            return Literal(read_real(number), span)
        except LiteralError as error:
            self._report(span, error.problem)
            return Literal(0.0, span)

    def own(self, span: Span, name: Token) -> str:
        return unquote_name(name)

    own_word = own

    def value(self, span: Span, value: Token) -> str:
        return unquote_text(value) if value.type == "STRING" else unquote_name(value)

    # Questions

    def believed(self, span: Span, measure: states.Measure) -> Field:
        """A question in a condition is a field of the event: the belief after the event."""
        return Field(None, render_measure(measure), span, asks_state=True)

    def believed_of(self, span: Span, variable: str, measure: states.Measure) -> Field:
        return Field(variable, render_measure(measure), span, asks_state=True)

    def probability_of(
        self, span: Span, condition: states.StateCondition, given: states.StateCondition | None
    ) -> states.ProbabilityOf:
        return states.ProbabilityOf(condition, given, span)

    def expected_count(self, span: Span, places: states.Places) -> states.ExpectedCount:
        return states.ExpectedCount(places, span)

    def most_likely(self, span: Span, variable: str) -> states.MostLikely:
        return states.MostLikely(states.Constant(variable, span), span)

    def either(self, span: Span, left: states.StateCondition, right: states.StateCondition) -> states.Either:
        return states.Either(left, right, span)

    def both(self, span: Span, left: states.StateCondition, right: states.StateCondition) -> states.Both:
        return states.Both(left, right, span)

    def not_so(self, span: Span, item: states.StateCondition) -> states.NotSo:
        return states.NotSo(item, span)

    def located(
        self, span: Span, who: states.Someone | states.Constant, negated: bool | None, places: states.Places
    ) -> states.StateCondition:
        found = states.Location(who, places, span)
        return states.NotSo(found, span) if negated else found

    def counted(self, span: Span, places: states.Places, operator: Token, number: Token) -> states.CountTest:
        return states.CountTest(
            places, {"==": "=", "<>": "!="}.get(operator, str(operator)), self._integer(span, number), span
        )

    def places(self, span: Span, negated: bool | None, *values: str) -> states.Places:
        return states.Places(values, bool(negated), span)


def _distribution(chances: tuple[Any, ...], span: Span) -> tuple[states.Chance, ...] | None:
    """The probabilities of a start. A single value is certain; EVENLY is None."""
    if isinstance(chances[0], Token):
        return None
    return (states.Chance(chances[0], 1.0, span),) if isinstance(chances[0], str) else chances
