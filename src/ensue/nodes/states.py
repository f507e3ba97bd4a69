"""Probabilistic states as the user wrote them: variables with a finite domain, changes, observations and questions.

docs/semantics.md, section 10, "State", defines the meaning of each form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from ensue.errors import Span
from ensue.nodes.expressions import Field, Literal
from ensue.nodes.patterns import Window

ANYONE, EVERYONE, NOBODY = "anyone", "everyone", "nobody"


@dataclass(frozen=True, slots=True)
class Constant:
    """A name of the declaration: one of its variables or values."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Someone:
    """ANYONE, EVERYONE or NOBODY, in lower case."""

    word: str
    span: Span | None = field(default=None, compare=False, repr=False)


Who = Someone | Constant | Field
"""The subject of a change or an observation. A field of the event contains the name of the variable."""

Place = Constant | Field
"""A value of the domain. A field of the event contains the value."""

Number = Literal | Field
"""A probability. A field of the event contains the number."""


@dataclass(frozen=True, slots=True)
class Chance:
    """`outside 0.8`: a value and its probability."""

    value: str
    probability: float
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Start:
    """`STARTS alice: (outside 0.8, living 0.2)`: the start of a variable.

    `variable` None: all variables. `chances` None: all values have the same probability.
    """

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
    """`MOVE w.person BY (living -> den 0.3)`: a transition model. The remaining probability stays."""

    who: Who
    arrows: tuple[Arrow, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Observe:
    """`OBSERVE s.person IN s.room RELIABILITY 0.9`.

    `errors` are the probabilities of each reading for each value. `false_alarm` is the probability that somebody is
    seen where nobody is.
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
    """`ON Moved m: MOVE ...`: how an event of a stream changes the state."""

    stream: str
    variable: str
    change: Change
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Drift:
    """`EVERY 10m MOVE EVERYONE BY (...)`: a transition at each multiple of a length of time."""

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
        """The streams whose events change the state, in the order of the text."""
        return tuple(dict.fromkeys(response.stream for response in self.responses))

    @property
    def reads(self) -> frozenset[str]:
        """The columns that changes use."""
        terms = (getattr(r.change, part.name) for r in self.responses for part in fields(r.change))
        return frozenset(term.name for term in terms if isinstance(term, Field))


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
    """`COUNT(living) >= 2`: the number of variables with one of the values."""

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
    """`MOST LIKELY(alice)`: the value with the highest probability; the first declared one if several are equal."""

    variable: Constant
    span: Span | None = field(default=None, compare=False, repr=False)


Measure = ProbabilityOf | ExpectedCount | MostLikely


def atoms(condition: StateCondition) -> Iterator[Location | CountTest]:
    """The locations and count tests of a condition, from left to right."""
    match condition:
        case Location() | CountTest():
            yield condition
        case NotSo():
            yield from atoms(condition.item)
        case Both() | Either():
            yield from atoms(condition.left)
            yield from atoms(condition.right)
