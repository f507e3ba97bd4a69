"""Constraints in Python. A text is accepted wherever constraints are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from ensue.check.gate import checked
from ensue.errors import Problem, QueryError
from ensue.lower.phases import CheckedProgram
from ensue.nodes.constraints import (
    Constraint,
    ConstraintStatement,
    Ends,
    EndsWithin,
    Exclusive,
    Implies,
    Prior,
    Require,
)
from ensue.nodes.patterns import Statements
from ensue.python.values import WindowLike, window
from ensue.text.citations import joined
from ensue.text.operands import size_problem
from ensue.text.parser import file_statements, parse_statements

__all__ = [
    "Constraint",
    "ConstraintsLike",
    "ends",
    "ends_within",
    "exclusive",
    "implies",
    "prior",
    "require",
]


def __dir__() -> list[str]:
    return [*__all__]


Kind = TypeVar("Kind", bound=Constraint)


class HasStatements(Protocol):
    """A program."""

    @property
    def statements(self) -> Statements: ...


class ConstraintSource(Protocol):
    """An object with constraints, such as a workflow."""

    def constraints(self) -> ConstraintsLike: ...


ConstraintsLike: TypeAlias = (
    "str | Path | Constraint | ConstraintStatement | HasStatements | ConstraintSource | Iterable[ConstraintsLike]"
)


def prior(earlier: str, later: str) -> Prior:
    """No event of `earlier` follows an event of `later`: `PRIOR(earlier, later)`.

    >>> prior("Order", "Shipped")
    Prior(earlier='Order', later='Shipped')
    """
    _check_names("prior", earlier, later)
    return _checked(Prior(earlier, later))


def exclusive(*streams: str) -> Exclusive:
    """At most one of the streams occurs in a trace: `EXCLUSIVE(a, b)`.

    >>> exclusive("Shipped", "Cancelled")
    Exclusive(streams=('Shipped', 'Cancelled'))
    """
    _check_names("exclusive", *streams)
    return _checked(Exclusive(streams))


def require(stream: str, required: str) -> Require:
    """If `stream` occurs, `required` occurs too, before or after it: `REQUIRE(stream, required)`.

    >>> require("Shipped", "Paid")
    Require(stream='Shipped', required='Paid')
    """
    _check_names("require", stream, required)
    return _checked(Require(stream, required))


def ends(*streams: str) -> Ends:
    """No event follows an event of one of these streams: `ENDS(a, b)`.

    >>> ends("Delivered", "Cancelled")
    Ends(streams=('Delivered', 'Cancelled'))
    """
    _check_names("ends", *streams)
    return _checked(Ends(streams))


def ends_within(size: WindowLike) -> EndsWithin:
    """A trace lasts at most this long, from its first event: `ENDS WITHIN 30d`.

    >>> ends_within(100)
    EndsWithin(window=Ticks(count=100))
    """
    return _checked(EndsWithin(window(size)))


def implies(*given: str, then: str | None = None, never: str | None = None) -> Implies:
    """If all of `given` occur, `then` occurs too, or `never` does not: `a AND b IMPLIES c`, `a IMPLIES NOT c`.

    >>> implies("Paid", "Packed", then="Shipped")
    Implies(given=('Paid', 'Packed'), then='Shipped', negated=False)
    """
    conclusions = [stream for stream in (then, never) if stream is not None]
    if len(conclusions) != 1:
        hint = 'write `implies("A", then="B")` or `implies("A", never="B")`'
        raise QueryError([Problem("constraint-size", "`implies` takes either `then` or `never`", hint=hint)])
    _check_names("implies", *given, *conclusions)
    if problem := size_problem("IMPLIES", (*given, *conclusions)):
        raise QueryError([problem])
    return _checked(Implies(given, conclusions[0], negated=never is not None))


def statements_of(constraints: ConstraintsLike) -> tuple[ConstraintStatement, ...]:
    """The constraints of a text, a program, a workflow, constraints built in Python, or a list of these.

    >>> [statement.constraint for statement in statements_of("CONSTRAINT ENDS(A); CONSTRAINT PRIOR(B, A)")]
    [Ends(streams=('A',)), Prior(earlier='B', later='A')]
    """
    return constraint_statements(constraints).constraints


def constraint_statements(constraints: ConstraintsLike) -> CheckedProgram:
    """The constraints as checked statements, each with its position if it has one.

    >>> constraint_statements([prior("A", "B"), "CONSTRAINT ENDS(C) PARTITION BY id"]).source.text
    'CONSTRAINT PRIOR(A, B);\\nCONSTRAINT ENDS(C) PARTITION BY id\\n'
    """
    return checked(joined([*_gathered(constraints)] or [Statements(())], "constraints"))


def _written(constraints: object) -> Statements | None:
    """The statements of a text or a program, or None for other objects."""
    if isinstance(constraints, str):
        found: object = parse_statements(constraints, "constraints")
    elif isinstance(constraints, Path):
        found = file_statements(constraints)
    else:
        found = getattr(constraints, "statements", None)
    if not isinstance(found, Statements):
        return None
    if not found.constraints:
        place = next((query.span for query in found.statements), None)
        hint = "write a statement such as `CONSTRAINT PRIOR(A, B)`"
        raise QueryError([Problem("not-a-constraint", "the text has no constraint", place, hint=hint)], found.source)
    return found


def _gathered(constraints: object) -> Iterator[Statements]:
    if isinstance(constraints, ConstraintStatement):
        yield Statements((), constraints=(constraints,))
    elif isinstance(constraints, Constraint):
        yield Statements((), constraints=(ConstraintStatement(constraints),))
    elif written := _written(constraints):
        yield Statements((), written.source, written.constraints)
    elif callable(own := getattr(constraints, "constraints", None)):
        yield from _gathered(own())
    elif isinstance(constraints, Iterable) and not isinstance(constraints, Mapping | bytes):
        for item in constraints:
            yield from _gathered(item)
    else:
        given = "constraints must be a text, or built with `ensue.constraints.prior` and similar functions"
        raise QueryError([Problem("not-a-constraint", f"{given}, not {type(constraints).__name__}")])


def _checked(constraint: Kind) -> Kind:
    constraint_statements(constraint)
    return constraint


def _check_names(function: str, *streams: object) -> None:
    for stream in streams:
        if isinstance(stream, list | tuple):
            raise TypeError(
                f"{function} takes streams as separate arguments, as in {function}(*streams), not {stream!r}"
            )
        if not isinstance(stream, str):
            raise TypeError(f'{function} takes names of streams, such as "Order", not {stream!r}')
