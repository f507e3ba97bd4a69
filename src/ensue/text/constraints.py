"""What stands between the brackets of a constraint: streams and nothing else, as many as the form takes."""

from __future__ import annotations

from ensue.errors import Problem, Span, counted
from ensue.nodes.constraints import Constraint, Ends, EndsWithin, Exclusive, Implies, Prior, Require
from ensue.nodes.patterns import Event
from ensue.text.reserved import quote_name

_SIZES: dict[str, tuple[int, int | None]] = {
    "PRIOR": (2, 2),
    "EXCLUSIVE": (2, None),
    "REQUIRE": (2, 2),
    "ENDS": (1, None),
    "IMPLIES": (2, None),
}
"""How many streams each form takes: at least, and at most."""
_EXAMPLES = {
    "PRIOR": "`PRIOR(A, B)`: no A after a B",
    "EXCLUSIVE": "`EXCLUSIVE(A, B)`: only one of them occurs",
    "REQUIRE": "`REQUIRE(A, B)`: where A occurs, B does",
    "ENDS": "`ENDS(A, B)`: nothing comes after an A or a B",
    "IMPLIES": "`A AND B IMPLIES C`: where A and B occur, C does",
}
FORMS = tuple(form for form in _SIZES if form != "IMPLIES")
"""The forms whose streams stand in brackets."""


_FORM_OF = {Prior: "PRIOR", Exclusive: "EXCLUSIVE", Require: "REQUIRE", Ends: "ENDS", Implies: "IMPLIES"}


def has_a_size(constraint: Constraint) -> bool:
    """Whether a constraint has as many streams as its form takes.

    >>> has_a_size(Prior("A", "B")), has_a_size(Exclusive(("A",)))
    (True, False)
    """
    return isinstance(constraint, EndsWithin) or size_problem(_FORM_OF[type(constraint)], constraint.streams) is None


def size_problem(form: str, streams: tuple[str, ...], span: Span | None = None) -> Problem | None:
    """A form takes a certain number of streams.

    >>> size_problem("PRIOR", ("A",)).message
    'PRIOR takes 2 streams, not 1'
    """
    least, most = _SIZES[form]
    if least <= len(streams) and (most is None or len(streams) <= most):
        return None
    wanted = counted(least, "stream", "streams")
    return Problem(
        "constraint-size",
        f"{form} takes {wanted if most == least else f'at least {wanted}'}, not {len(streams)}",
        span,
        hint=_EXAMPLES[form],
    )


def party_problem(party: Event) -> Problem | None:
    """A constraint is about all events of a stream, so it needs no variable and takes no condition."""
    if party.variable is None and party.predicate is None:
        return None
    name = quote_name(str(party.stream))
    if party.predicate is not None:
        surplus, hint = "a condition", f"write `{name}`; events that differ in a field can be streams of their own"
    else:
        variable = quote_name(str(party.variable))
        surplus, hint = (
            f"a variable `{variable}`",
            f"write `{name}`; two streams have `,` between them, or AND before IMPLIES",
        )
    return Problem(
        "event-in-constraint", f"constraints are over streams, but `{name}` has {surplus}", party.span, hint=hint
    )
