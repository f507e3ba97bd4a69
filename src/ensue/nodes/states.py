"""Probabilistic state as the user wrote it: variables with a finite domain, what changes and informs them, questions.

What each form means is docs/semantics.md, section 10, "State".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ensue.errors import Span
from ensue.nodes.expressions import Field, Literal
from ensue.nodes.patterns import Window

ANYONE, EVERYONE, NOBODY = "anyone", "everyone", "nobody"


@dataclass(frozen=True, slots=True)
class Constant:
    """A name of the declaration itself: one of its variables or one of its values."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Someone:
    """ANYONE, EVERYONE or NOBODY, in lower case."""

    word: str
    span: Span | None = field(default=None, compare=False, repr=False)


Who = Someone | Constant | Field
"""Whom a change or an observation is about; a field of the event names the variable."""

Place = Constant | Field
"""A value of the domain; a field of the event names it."""

Number = Literal | Field
"""A probability; a field of the event holds it."""


@dataclass(frozen=True, slots=True)
class Chance:
    """`outside 0.8`: a value and its probability."""

    value: str
    probability: float
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Start:
    """`STARTS alice: (outside 0.8, living 0.2)`: how a variable begins; None: all of them, and every value evenly."""

    variable: str | None
    chances: tuple[Chance, ...] | None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Arrow:
    """`living -> den 0.3`: from one value to another, with a probability."""

    source: str
    target: str
    probability: float
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Move:
    """`MOVE ANYONE FROM m.source TO m.target PROBABILITY 0.9`."""

    who: Who
    source: Place | None
    target: Place
    probability: Number | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Wander:
    """`MOVE w.person BY (living -> den 0.3)`: a transition model; what the arrows leave over stays."""

    who: Who
    arrows: tuple[Arrow, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Observe:
    """`OBSERVE s.person IN s.room RELIABILITY 0.9`; `errors` say as what each value is read, `false_alarm` how often
    somebody is seen where nobody is.
    """

    who: Who
    place: Place
    reliability: Number | None = None
    false_alarm: Number | None = None
    errors: tuple[Arrow, ...] | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


Change = Move | Wander | Observe


@dataclass(frozen=True, slots=True)
class Response:
    """`ON Moved m: MOVE ...`: what an event of a stream does to the state."""

    stream: str
    variable: str
    change: Change
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Drift:
    """`EVERY 10 minutes MOVE EVERYONE BY (...)`: a transition at every multiple of a length of time."""

    window: Window
    change: Wander
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StateStatement:
    """`STATE location OF alice, bob IN (living, den, outside) PARTITION BY home STARTS outside ON ...: ...`."""

    name: str
    variables: tuple[str, ...]
    values: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    starts: tuple[Start, ...] = ()
    responses: tuple[Response, ...] = ()
    drift: Drift | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams whose events matter, in the order of the text."""
        return tuple(dict.fromkeys(response.stream for response in self.responses))


# Questions


@dataclass(frozen=True, slots=True)
class Places:
    """`kitchen`, `(kitchen, den)` or `NOT outside`: some values of a domain."""

    values: tuple[str, ...]
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Location:
    """`alice IN kitchen`, `ANYONE IN (kitchen, den)`."""

    who: Someone | Constant
    places: Places
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CountTest:
    """`COUNT(living) >= 2`: how many variables have one of the values."""

    places: Places
    operator: str
    number: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NotSo:
    """`NOT alice IN kitchen`."""

    item: StateCondition
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Both:
    """`alice IN kitchen AND bob IN den`."""

    left: StateCondition
    right: StateCondition
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Either:
    """`alice IN kitchen OR bob IN den`."""

    left: StateCondition
    right: StateCondition
    span: Span | None = field(default=None, compare=False, repr=False)


StateCondition = Location | CountTest | NotSo | Both | Either


@dataclass(frozen=True, slots=True)
class ProbabilityOf:
    """`P(alice IN kitchen GIVEN bob IN den)`."""

    condition: StateCondition
    given: StateCondition | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ExpectedCount:
    """`E(COUNT(NOT outside))`."""

    places: Places
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MostLikely:
    """`MOST LIKELY(alice)`: the value of the greatest probability, of equal ones the first that was declared."""

    variable: Constant
    span: Span | None = field(default=None, compare=False, repr=False)


Measure = ProbabilityOf | ExpectedCount | MostLikely


def atoms(condition: StateCondition) -> Iterator[Location | CountTest]:
    """The parts of a condition that speak of the state itself, from left to right."""
    match condition:
        case Location() | CountTest():
            yield condition
        case NotSo():
            yield from atoms(condition.item)
        case Both() | Either():
            yield from atoms(condition.left)
            yield from atoms(condition.right)
