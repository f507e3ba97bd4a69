"""The operators that are written as functions, and the policies that choose among matches: what each of them takes.

What they mean is in sections 6 and 7 of docs/semantics.md.
"""

from __future__ import annotations

from dataclasses import dataclass

UNRESTRICTED, RECENT, CHRONICLE = "UNRESTRICTED", "RECENT", "CHRONICLE"
CONTINUOUS, CUMULATIVE = "CONTINUOUS", "CUMULATIVE"
NEXT_MATCH, STRICT = "NEXT", "STRICT"

CONTEXTS = (RECENT, CHRONICLE, CONTINUOUS, CUMULATIVE)
"""The policies that apply at every operator of a pattern, one pair of operands after the other."""

POLICIES = (UNRESTRICTED, *CONTEXTS, NEXT_MATCH, STRICT)


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator takes, in the order of the text: a number, its patterns, a duration between or behind them.

    `parts` says what each pattern is for, in words. `window_at` is the place of the duration among the arguments.
    `forbidden` are the places of patterns that must not happen, `collected` of those of which a list is made: a match
    binds no single event for them.
    """

    name: str
    parts: tuple[str, ...]
    window_at: int | None = None
    counted: bool = False
    forbidden: tuple[int, ...] = ()
    collected: tuple[int, ...] = ()

    @property
    def any_number(self) -> bool:
        """True if it takes any number of patterns, not one for each part."""
        return self.counted


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("FOLLOWS", ("the first", "the second"), window_at=2),
        Operator("PRECEDES", ("the second", "the first"), window_at=2),
        Operator("NOTFOLLOWS", ("the event", "what must not follow"), window_at=2, forbidden=(1,)),
        Operator("NOTPRECEDES", ("the event", "what must not precede"), window_at=2, forbidden=(1,)),
        Operator("ANYONE", ("one", "the other")),
        Operator("BOTH", ("one", "the other"), window_at=2),
        Operator("ANY", ("an item",), counted=True),
        Operator("APERIODIC", ("the opening", "the event", "the closing"), forbidden=(2,)),
        Operator("APERIODIC*", ("the opening", "the events", "the closing"), collected=(1,)),
        Operator("PERIODIC", ("the opening", "the closing"), window_at=1, forbidden=(1,)),
        Operator("PERIODIC*", ("the opening", "the closing"), window_at=1),
        Operator("UNLESS", ("what must not lie between", "the first", "the second"), forbidden=(0,)),
        Operator("RELATIVE", ("the first", "the second")),
        Operator("RELATIVE+", ("the event",)),
        Operator("PRIOR", ("the first", "the second")),
        Operator("NEXT", ("the first", "the second")),
        Operator("SIMULTANEOUS", ("one", "the other")),
        Operator("CONCURRENT", ("one", "the other")),
    )
}
"""By name. PERIODIC may leave its closing out where a WITHIN ends it."""
