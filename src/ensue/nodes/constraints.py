"""Constraints as the user wrote them: immutable values.

A constraint is a guarantee about each trace. A trace is the events with one value of PARTITION BY. docs/semantics.md,
section 9, defines the meaning of each form.
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
    """`EXCLUSIVE(a, b, c)`: at most one of these streams occurs in a trace."""

    streams: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Require:
    """`REQUIRE(a, b)`: if `a` occurs, `b` occurs too, before or after it."""

    stream: str
    required: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def streams(self) -> tuple[str, ...]:
        return (self.stream, self.required)


@dataclass(frozen=True, slots=True)
class Ends:
    """`ENDS(a, b)`: no event follows an `a` or a `b`."""

    streams: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EndsWithin:
    """`ENDS WITHIN 30d`: a trace lasts at most this long. A later event of the key starts another trace."""

    window: Window
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def streams(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Implies:
    """`a AND b IMPLIES c`: if all of `given` occur, `then` occurs too or, if `negated`, does not occur."""

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
    """`CONSTRAINT ... PARTITION BY ...`. Without PARTITION BY, it applies to the traces of the patterns."""

    constraint: Constraint
    partition_by: tuple[str, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Clause:
    """A Horn clause over occurrence: all of `body` imply `head` or, without a head, cannot all occur."""

    body: frozenset[str]
    head: str | None
    origin: Constraint


def meaning_of(statement: ConstraintStatement) -> tuple[object, ...]:
    """A value that is equal for two statements with the same meaning but another order of streams.

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
    """The clauses of a constraint about which streams occur in a trace."""
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
