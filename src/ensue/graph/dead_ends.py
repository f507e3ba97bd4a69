"""Failing conditions: what a trace has and lacks when events for the rest of a match can no longer come.

They are computed by abduction, once per graph: the minimal sets of seen and unseen streams under which no lawful
continuation contains the events that a match still needs. Which streams must occur is Horn reasoning with supports (as
in an assumption-based truth maintenance system). Every stream of the graph must occur in the trace, whether it is bound
or not. When they occur is reasoning about order: future events come after past ones, and a cycle of "not after" that
includes a "before" is impossible. (Ding, Chen, Rundensteiner, Tatemura, Hsiung, Candan: Runtime Semantic Query
Optimization for Event Stream Processing, ICDE 2008, calls this RunSAT, and a condition that does not depend on what is
bound a global one.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

from ensue.graph.law import Law
from ensue.nodes.constraints import Constraint
from ensue.nodes.names import Name, Stream, UnnamedVariable, in_order

MOST_SUPPORTS = 64
"""The maximum number of ways to derive a stream that are followed, the smallest first."""

MOST_SEEN = 4
"""The maximum number of seen streams in a condition, unless a constraint names more: conditions on more streams are met
more rarely and later."""

MOST_DERIVED = 4
"""The maximum number of derived streams in one cycle of order."""

MOST_TRIED = 20_000
"""The maximum number of ways tried for each pair of needed events; if one is missed, a trace fails later."""

Support = tuple[frozenset[Stream], bool, tuple[Constraint, ...]]
"""The seen streams that imply a stream, whether those of the graph were used too, and the constraints used."""

Edges = Mapping[Name, Mapping[Name, tuple[Constraint, ...]]]
"""For each future event, the events that cannot come before it, with the constraint (none: the query itself)."""


@dataclass(frozen=True, slots=True)
class NeededVariable:
    """A variable of a match: its stream, and the variables that must come strictly after it."""

    name: Name
    stream: Stream
    before: frozenset[Name]


@dataclass(frozen=True, slots=True)
class Condition:
    """If all of `seen` and none of `unseen` have occurred, then by `proof` the needed events can no longer come."""

    seen: frozenset[Stream]
    unseen: frozenset[Stream]
    proof: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A condition that holds while none of the variables `free` is bound.

    `used` is whether the proof uses a stream of the graph: if not, only a trace that breaks a constraint meets it.
    """

    condition: Condition
    used: bool
    free: frozenset[Name] = frozenset()


class Failures:
    """The failing conditions of the variables of one graph; `complete` tells whether no limit cut the search."""

    def __init__(self, law: Law, variables: Sequence[NeededVariable]) -> None:
        self.law = law
        self.variables = variables
        self.streams = frozenset(variable.stream for variable in variables)
        self.complete = True
        self._most_seen = max(MOST_SEEN, max((len(clause.body) for clause in law.clauses), default=0))
        self._least: dict[int, tuple[Condition, ...]] = {}
        supports = self._supports()
        found = [*self._ended(), *self._blocked(supports), *self._forbidden(supports), *self._disordered(supports)]
        known = {failure.condition.seen: law.known(failure.condition.seen) for failure in found}
        self._found = [failure for failure in found if not failure.condition.unseen & known[failure.condition.seen]]
        self._found.sort(key=lambda failure: _size(failure.condition))
        self._earlier = self._meet_before(known)

    @cached_property
    def names(self) -> frozenset[Name]:
        """The variables for which it matters whether they are bound."""
        return frozenset[Name]().union(*(failure.free for failure in self._found))

    @cached_property
    def mentioned(self) -> frozenset[Stream]:
        """The streams of all conditions."""
        conditions = (failure.condition for failure in self._found)
        return frozenset[Stream]().union(*(condition.seen | condition.unseen for condition in conditions))

    def conditions(self, bound: frozenset[Name] = frozenset()) -> tuple[Condition, ...]:
        """The minimal conditions on a lawful prefix under which no lawful continuation contains a match of which
        exactly the variables `bound` have come.

        Conditions that a lawful trace meets only after it has met another one are left out, and those that only a trace
        which breaks a constraint can meet.
        """
        valid = sum(1 << place for place, failure in enumerate(self._found) if not failure.free & bound)
        if valid not in self._least:
            kept = 0
            for place, earlier in enumerate(self._earlier):
                if valid >> place & 1 and not earlier & kept:
                    kept |= 1 << place
            self._least[valid] = tuple(
                failure.condition
                for place, failure in enumerate(self._found)
                if kept >> place & 1 and failure.used and not self._earlier[place] & kept
            )
        return self._least[valid]

    def _meet_before(self, known: Mapping[frozenset[Stream], frozenset[Stream]]) -> list[int]:
        """For each failure, the places of others, as bits, that a lawful trace meets before it, or with it."""
        by_member: dict[Stream | None, list[int]] = {}
        for place, failure in enumerate(self._found):
            by_member.setdefault(min(failure.condition.seen, key=str, default=None), []).append(place)
        earlier = []
        for place, failure in enumerate(self._found):
            seen, unseen = known[failure.condition.seen], failure.condition.unseen
            bits = 0
            for member in (None, *seen):
                for other in by_member.get(member, ()):
                    condition = self._found[other].condition
                    if other != place and condition.seen <= seen and condition.unseen <= unseen:
                        bits |= 1 << other
            earlier.append(bits)
        return earlier

    # -- which streams must occur --------------------------------------------------------------------------------------

    def _supports(self) -> dict[Stream, list[Support]]:
        """For each stream, the minimal sets of seen streams that imply it if the streams of the graph occur."""
        supports: dict[Stream, list[Support]] = {
            stream: [(frozenset(), True, ())] if stream in self.streams else [(frozenset((stream,)), False, ())]
            for stream in dict.fromkeys((*self.law.streams, *sorted(self.streams, key=str)))
        }
        waiting = dict.fromkeys(supports)
        while waiting:
            stream = next(iter(waiting))
            del waiting[stream]
            for clause in self.law.clauses_with.get(stream, ()):
                if clause.head is None:
                    continue
                parts = [supports[member] for member in sorted(clause.body, key=str)]
                added = [self._add(supports[clause.head], support) for support in self._together(parts, clause.origin)]
                if any(added):
                    waiting[clause.head] = None
        return supports

    def _together(self, parts: Sequence[Sequence[Support]], *origin: Constraint) -> Iterator[Support]:
        """All combinations of ways to derive all of these streams."""
        for chosen in product(*parts):
            seen = frozenset[Stream]().union(*(support[0] for support in chosen))
            if len(seen) > self._most_seen:
                self.complete = False
                continue
            used = any(support[1] for support in chosen)
            yield seen, used, _joined(*(support[2] for support in chosen), tuple(origin))

    def _add(self, supports: list[Support], new: Support) -> bool:
        """Adds a support unless a smaller one exists, and removes those that it makes redundant."""
        if any(known[0] <= new[0] and (new[1] or not known[1] or known[0] < new[0]) for known in supports):
            return False
        supports[:] = [known for known in supports if not new[0] <= known[0]]
        supports.append(new)
        supports.sort(key=lambda support: (len(support[0]), sorted(map(str, support[0]))))
        if len(supports) > MOST_SUPPORTS:
            self.complete = False
            del supports[MOST_SUPPORTS:]
        return new in supports

    # -- why they cannot -----------------------------------------------------------------------------------------------

    def _ended(self) -> Iterator[Failure]:
        for stream, constraint in self.law.ends.items():
            yield Failure(Condition(frozenset((stream,)), frozenset(), (constraint,)), True)

    def _blocked(self, supports: Mapping[Stream, list[Support]]) -> Iterator[Failure]:
        """A required stream can no longer come, because a stream has been seen after which it never comes."""
        for prior in self.law.priors:
            stream, later = prior.earlier, frozenset((prior.later,))
            if stream in self.streams:
                condition = Condition(later, frozenset(), (prior,))
                for variable in self.variables:
                    if variable.stream == stream:
                        yield Failure(condition, True, frozenset((variable.name,)))
                continue
            for seen, used, proof in supports[stream]:
                if stream not in seen and len(seen | later) <= self._most_seen:
                    yield Failure(Condition(seen | later, frozenset((stream,)), _joined(proof, (prior,))), used)
                elif stream not in seen:
                    self.complete = False

    def _forbidden(self, supports: Mapping[Stream, list[Support]]) -> Iterator[Failure]:
        """Required streams cannot occur together with streams that have been seen or are required."""
        for clause in self.law.clauses:
            if clause.head is None:
                parts = [supports[stream] for stream in sorted(clause.body, key=str)]
                for seen, used, proof in self._together(parts, clause.origin):
                    yield Failure(Condition(seen, frozenset(), proof), used)

    def _disordered(self, supports: Mapping[Stream, list[Support]]) -> Iterator[Failure]:
        """The required events have no consistent order: a cycle leads from the later to the earlier of two needed
        events."""
        derived = {
            stream: [support for support in found if stream not in support[0]]
            for stream, found in supports.items()
            if stream not in self.streams
        }
        nodes = [
            *self.variables,
            *(
                NeededVariable(UnnamedVariable(stream, 0), stream, frozenset())
                for stream, found in derived.items()
                if found
            ),
        ]
        later = self._not_after(nodes)
        by_name = {node.name: node for node in nodes}
        for variable in self.variables:
            for name in in_order(variable.before):
                for path in self._ways(name, variable.name, later, by_name):
                    yield from self._without_order(path, later, by_name, derived)

    def _not_after(self, nodes: Sequence[NeededVariable]) -> Edges:
        edges: dict[Name, dict[Name, tuple[Constraint, ...]]] = {
            node.name: dict.fromkeys(in_order(node.before), ()) for node in nodes
        }
        of_stream: dict[Stream, list[Name]] = {}
        for node in nodes:
            of_stream.setdefault(node.stream, []).append(node.name)
        for prior in self.law.priors:
            for name in of_stream.get(prior.earlier, ()):
                for other in of_stream.get(prior.later, ()):
                    edges[name].setdefault(other, (prior,))
        for stream, constraint in self.law.ends.items():
            for other in of_stream.get(stream, ()):
                for name, later in edges.items():
                    if name != other:
                        later.setdefault(other, (constraint,))
        return edges

    def _ways(
        self, start: Name, goal: Name, later: Edges, nodes: Mapping[Name, NeededVariable]
    ) -> Iterator[tuple[Name, ...]]:
        """The ways from one future event to another along "not after", through few derived events."""
        leading = _leading_to(goal, later)
        if start not in leading:
            return
        stack: list[tuple[Name, ...]] = [(start,)]
        for _ in range(MOST_TRIED):
            if not stack:
                return
            path = stack.pop()
            if path[-1] == goal:
                yield path
                continue
            for name in later[path[-1]]:
                if name not in leading or name in path:
                    continue
                if sum(nodes[step].stream not in self.streams for step in (*path, name)) <= MOST_DERIVED:
                    stack.append((*path, name))
                else:
                    self.complete = False
        self.complete = self.complete and not stack

    def _without_order(
        self,
        path: Sequence[Name],
        later: Edges,
        nodes: Mapping[Name, NeededVariable],
        derived: Mapping[Stream, list[Support]],
    ) -> Iterator[Failure]:
        proof = _joined(*(later[here][there] for here, there in pairwise(path)))
        besides = [nodes[name].stream for name in path if nodes[name].stream in derived]
        free = frozenset(name for name in path if nodes[name].stream in self.streams)
        unseen = frozenset(besides)
        for seen, _, used in self._together([derived[stream] for stream in besides]):
            if not seen & unseen:
                # The events whose order is impossible are needed ones, whatever follows from what was seen.
                yield Failure(Condition(seen, unseen, _joined(used, proof)), True, free)


def _size(condition: Condition) -> tuple[int, int, list[str], list[str]]:
    seen, unseen = sorted(map(str, condition.seen)), sorted(map(str, condition.unseen))
    return len(seen) + len(unseen), len(seen), seen, unseen


def _joined(*proofs: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    return tuple(dict.fromkeys(constraint for proof in proofs for constraint in proof))


def _leading_to(goal: Name, later: Edges) -> set[Name]:
    """The events from which a way leads to another event."""
    found, layer = {goal}, {goal}
    while layer:
        layer = {name for name, others in later.items() if not layer.isdisjoint(others)} - found
        found |= layer
    return found
