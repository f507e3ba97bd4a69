"""What a process guarantees about each of its traces. A trace is the events of one value of PARTITION BY.

What each form means is the contract in docs/semantics.md, section 9; nothing here reasons about anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from ensue.errors import Span
from ensue.nodes.patterns import Window


@dataclass(frozen=True, slots=True)
class Prior:
    """`PRIOR(a, b)`: no `a` after a `b`."""

    earlier: str
    later: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def streams(self) -> tuple[str, ...]:
        return (self.earlier, self.later)


@dataclass(frozen=True, slots=True)
class Exclusive:
    """`EXCLUSIVE(a, b, c)`: at most one of them occurs in a trace."""

    streams: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Require:
    """`REQUIRE(a, b)`: where `a` occurs, `b` does, before or after."""

    stream: str
    required: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def streams(self) -> tuple[str, ...]:
        return (self.stream, self.required)


@dataclass(frozen=True, slots=True)
class Ends:
    """`ENDS(a, b)`: nothing comes after an `a` or a `b`."""

    streams: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EndsWithin:
    """`ENDS WITHIN 30 days`: nothing comes later than that after the first event; the key may begin another trace."""

    window: Window
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def streams(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Implies:
    """`a AND b IMPLIES c`: where all of `given` occur, `then` does, or with `negated` never does."""

    given: tuple[str, ...]
    then: str
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def streams(self) -> tuple[str, ...]:
        return (*self.given, self.then)


Constraint = Prior | Exclusive | Require | Ends | EndsWithin | Implies


@dataclass(frozen=True, slots=True)
class ConstraintStatement:
    """`CONSTRAINT ... PARTITION BY ...`; without its own PARTITION BY it speaks of the traces of the patterns."""

    constraint: Constraint
    partition_by: tuple[str, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Clause:
    """A Horn clause over occurrence: all of `body` imply `head`, or without a head cannot all occur."""

    body: frozenset[str]
    head: str | None
    origin: Constraint


def meaning_of(statement: ConstraintStatement) -> tuple[object, ...]:
    """What two statements have in common that differ only in the order of their words.

    >>> one, other = Exclusive(("A", "B")), Exclusive(("B", "A"))
    >>> meaning_of(ConstraintStatement(one)) == meaning_of(ConstraintStatement(other))
    True
    """
    keys = frozenset(statement.partition_by)
    match statement.constraint:
        case Exclusive(streams) | Ends(streams):
            return keys, type(statement.constraint), frozenset(streams)
        case Implies(given, then, negated):
            return keys, Implies, frozenset(given), then, negated
        case constraint:
            return keys, constraint


def clauses_of(constraint: Constraint) -> Iterator[Clause]:
    """What a constraint says about which streams occur in a trace."""
    match constraint:
        case Exclusive(streams):
            for pair in combinations(streams, 2):
                yield Clause(frozenset(pair), None, constraint)
        case Require(stream, required):
            yield Clause(frozenset((stream,)), required, constraint)
        case Implies(given, then, negated):
            yield (
                Clause(frozenset((*given, then)), None, constraint)
                if negated
                else Clause(frozenset(given), then, constraint)
            )
        case _:
            return
