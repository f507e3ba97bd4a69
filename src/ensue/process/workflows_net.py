"""The one meaning of all workflows: a game of tokens on places.

A marking is the set of places that hold a token, as a bit mask. A run starts in the initial marking and is complete
when no token is left; its trace is the tasks of the transitions that fired. No place ever holds two tokens: process
trees are safe by the way they are woven, and BPMN is checked (`ensue.process.soundness`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

COMPLETE = 0
"""The marking without tokens."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Fires where all of `needs` and none of `forbids` hold tokens: takes `needs`, then `clears`, then `makes` tokens.

    `task` is the number of the task that occurs, or None.
    """

    needs: int
    makes: int
    task: int | None = None
    forbids: int = 0
    clears: int = 0

    def is_enabled(self, marking: int) -> bool:
        return not self.needs & ~marking and not self.forbids & marking

    def fire(self, marking: int) -> int:
        return marking & ~self.needs & ~self.clears | self.makes

    def overfills(self, marking: int) -> int:
        """The places on which firing would put a second token."""
        return marking & ~self.needs & ~self.clears & self.makes


@dataclass(frozen=True, slots=True)
class Net:
    """The tasks, in the order in which people read the workflow, and the transitions.

    `entangled` says that so many of them forbid each other that it does not pay to look for independent ones.
    """

    tasks: tuple[str, ...]
    transitions: tuple[Transition, ...]
    initial: int
    entangled: bool = False


def bits(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set.

    >>> list(bits(0b1101))
    [0, 2, 3]
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
