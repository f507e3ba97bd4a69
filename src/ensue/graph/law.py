"""Reasoning about constraints: which streams a trace that obeys them contains.

Which streams occur is Horn reasoning: the least closure under the clauses contains the streams that every lawful trace
must also contain. `ensue.graph.dead_ends` adds when they can occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ensue.nodes.constraints import Clause, Constraint, Ends, EndsWithin, Prior, clauses_of
from ensue.nodes.names import Stream
from ensue.nodes.patterns import Window


@dataclass(frozen=True)
class Law:
    """The constraints on the traces of one PARTITION BY."""

    constraints: tuple[Constraint, ...]

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        return tuple(clause for constraint in self.constraints for clause in clauses_of(constraint))

    @cached_property
    def clauses_with(self) -> Mapping[Stream, Sequence[Clause]]:
        """For each stream, the clauses with it in their bodies."""
        found: dict[Stream, list[Clause]] = {}
        for clause in self.clauses:
            for stream in clause.body:
                found.setdefault(stream, []).append(clause)
        return found

    @cached_property
    def priors(self) -> tuple[Prior, ...]:
        return tuple(constraint for constraint in self.constraints if isinstance(constraint, Prior))

    @cached_property
    def ends(self) -> Mapping[Stream, Constraint]:
        """The streams after which nothing comes."""
        found: dict[Stream, Constraint] = {}
        for constraint in self.constraints:
            if isinstance(constraint, Ends):
                found.update(dict.fromkeys(constraint.streams, constraint))
        return found

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The maximum durations of a trace."""
        return tuple(constraint.window for constraint in self.constraints if isinstance(constraint, EndsWithin))

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Every stream that a constraint names."""
        return tuple(dict.fromkeys(name for constraint in self.constraints for name in constraint.streams))

    @cached_property
    def surely_before(self) -> Mapping[Stream, frozenset[Stream]]:
        """For each stream, the others that must have occurred before it in a lawful trace: required, and never after
        it."""
        ordered = {(prior.earlier, prior.later) for prior in self.priors}
        return {
            stream: frozenset(
                other
                for other in self.implied((stream,)) - {stream}
                if stream in self.ends or (other, stream) in ordered
            )
            for stream in self.streams
        }

    def forbids(self, streams: Iterable[Stream]) -> bool:
        """Whether no lawful trace contains all of these streams."""
        together = self.implied(streams)
        clauses = (clause for stream in together for clause in self.clauses_with.get(stream, ()))
        return any(clause.head is None and clause.body <= together for clause in clauses)

    def implied(self, streams: Iterable[Stream]) -> set[Stream]:
        """The streams that occur in every lawful trace that contains these."""
        found = set(streams)
        waiting = list(found)
        while waiting:
            for clause in self.clauses_with.get(waiting.pop(), ()):
                if clause.head is not None and clause.head not in found and clause.body <= found:
                    found.add(clause.head)
                    waiting.append(clause.head)
        return found

    def known(self, seen: frozenset[Stream]) -> frozenset[Stream]:
        """The streams that have occurred in a lawful trace once these have."""
        return seen.union(*(self.surely_before.get(stream, ()) for stream in seen))
