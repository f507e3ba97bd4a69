"""Reasoning about constraints: which events a trace that obeys them can still contain.

Which streams occur is Horn reasoning: the least closure under the clauses contains the streams that every lawful trace
must also contain. When they occur is reasoning about order: future events come after past ones, and a cycle of "not
after" that includes a "before" is impossible. Both are monotone in what is still needed, so the least closure decides.

The failing conditions of a set of needed variables are computed by abduction, once per query: the minimal sets of seen
and unseen streams under which no lawful continuation contains events for all of them. (Ding, Chen, Rundensteiner,
Tatemura, Hsiung, Candan: Runtime Semantic Query Optimization for Event Stream Processing, ICDE 2008, calls this
RunSAT.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

from ensue.nodes.constraints import Clause, Constraint, Ends, EndsWithin, Prior, clauses_of
from ensue.nodes.names import Name, Stream, UnnamedVariable, in_order
from ensue.nodes.patterns import Window

MOST_SUPPORTS = 64
"""The maximum number of ways to derive a stream that are followed, the smallest first."""

MOST_SEEN = 4
"""The maximum number of seen streams in a condition: conditions on more streams are met more rarely and later."""

MOST_DERIVED = 4
"""The maximum number of derived streams in one cycle of order."""

MOST_TRIED = 20_000
"""The maximum number of ways tried for each pair of needed events; if one is missed, a trace fails later."""

Support = tuple[frozenset[Stream], bool, tuple[Constraint, ...]]
"""The seen streams that imply a stream, whether the needed ones were used too, and the constraints used."""


@dataclass(frozen=True, slots=True)
class NeededVariable:
    """A variable that is not bound yet: its stream, and the needed variables that must come strictly after it."""

    name: Name
    stream: Stream
    before: frozenset[Name]


@dataclass(frozen=True, slots=True)
class Condition:
    """If all of `seen` and none of `unseen` have occurred, then by `proof` the needed events can no longer come."""

    seen: frozenset[Stream]
    unseen: frozenset[Stream]
    proof: tuple[Constraint, ...]

    def holds(self, occurred: frozenset[Stream]) -> bool:
        return self.seen <= occurred and not self.unseen & occurred


@dataclass(frozen=True)
class Law:
    """The constraints on the traces of one PARTITION BY."""

    constraints: tuple[Constraint, ...]

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        return tuple(clause for constraint in self.constraints for clause in clauses_of(constraint))

    @cached_property
    def clauses_with(self) -> Mapping[Stream, Sequence[Clause]]:
        """For each stream, the clauses that derive another stream from it."""
        found: dict[Stream, list[Clause]] = {}
        for clause in self.clauses:
            for stream in clause.body if clause.head is not None else ():
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
        return any(clause.head is None and clause.body <= together for clause in self.clauses)

    def implied(self, streams: Iterable[Stream]) -> set[Stream]:
        """The streams that occur in every lawful trace that contains these."""
        found = set(streams)
        grown = True
        while grown:
            new = {clause.head for clause in self.clauses if clause.head is not None and clause.body <= found} - found
            grown = bool(new)
            found |= new
        return found

    def failing_conditions(self, needed: Sequence[NeededVariable]) -> tuple[Condition, ...]:
        """The minimal conditions on a lawful prefix under which no lawful continuation contains all of `needed`.

        Conditions that only a trace which breaks a constraint can meet are left out.
        """
        supports = self._supports({variable.stream for variable in needed})
        found = [*self._ended(), *self._blocked(needed, supports), *self._forbidden(supports)]
        found += self._disordered(needed, supports)
        return self._least(found)

    def _supports(self, needed: set[Stream]) -> dict[Stream, list[Support]]:
        """For each stream, the minimal sets of seen streams that imply it if the needed streams occur."""
        supports: dict[Stream, list[Support]] = {
            stream: [(frozenset(), True, ())] if stream in needed else [(frozenset((stream,)), False, ())]
            for stream in dict.fromkeys((*self.streams, *sorted(needed, key=str)))
        }
        waiting = dict.fromkeys(supports)
        while waiting:
            stream = next(iter(waiting))
            del waiting[stream]
            for clause in self.clauses_with.get(stream, ()):
                assert clause.head is not None
                parts = [supports[member] for member in sorted(clause.body, key=str)]
                added = [_add(supports[clause.head], support) for support in _together(parts, clause.origin)]
                if any(added):
                    waiting[clause.head] = None
        return supports

    def _ended(self) -> Iterator[tuple[Condition, bool]]:
        for stream, constraint in self.ends.items():
            yield Condition(frozenset((stream,)), frozenset(), (constraint,)), True

    def _blocked(
        self, needed: Sequence[NeededVariable], supports: Mapping[Stream, list[Support]]
    ) -> Iterator[tuple[Condition, bool]]:
        """A required stream can no longer come, because a stream has been seen after which it never comes."""
        wanted = {variable.stream for variable in needed}
        for prior in self.priors:
            stream = prior.earlier
            unseen = frozenset[Stream]() if stream in wanted else frozenset((stream,))
            for seen, uses_needed, proof in supports[stream]:
                if stream not in seen and not unseen & seen:
                    yield Condition(seen | {prior.later}, unseen, _joined(proof, (prior,))), uses_needed

    def _forbidden(self, supports: Mapping[Stream, list[Support]]) -> Iterator[tuple[Condition, bool]]:
        """Required streams cannot occur together with streams that have been seen or are required."""
        for clause in self.clauses:
            if clause.head is None:
                for seen, uses_needed, proof in _together(
                    [supports[stream] for stream in sorted(clause.body, key=str)], clause.origin
                ):
                    yield Condition(seen, frozenset(), proof), uses_needed

    def _disordered(
        self, needed: Sequence[NeededVariable], supports: Mapping[Stream, list[Support]]
    ) -> Iterator[tuple[Condition, bool]]:
        """The required events have no consistent order: a cycle leads from the later to the earlier of two needed
        events."""
        wanted = {variable.stream for variable in needed}
        derived = {
            stream: [support for support in found if stream not in support[0]]
            for stream, found in supports.items()
            if stream not in wanted
        }
        nodes = [
            *needed,
            *(
                NeededVariable(UnnamedVariable(stream, 0), stream, frozenset())
                for stream, found in derived.items()
                if found
            ),
        ]
        later = self._not_after(nodes)
        by_name = {node.name: node for node in nodes}
        for variable in needed:
            for name in in_order(variable.before):
                for path in _ways(name, variable.name, later, by_name, set(derived)):
                    yield from _without_order(path, later, by_name, derived)

    def _not_after(self, nodes: Sequence[NeededVariable]) -> dict[Name, dict[Name, tuple[Constraint, ...]]]:
        """For each future event, the events that cannot come before it, with the constraint (None: the query
        itself)."""
        edges: dict[Name, dict[Name, tuple[Constraint, ...]]] = {
            node.name: dict.fromkeys(in_order(node.before), ()) for node in nodes
        }
        of_stream: dict[Stream, list[Name]] = {}
        for node in nodes:
            of_stream.setdefault(node.stream, []).append(node.name)
        for prior in self.priors:
            for name in of_stream.get(prior.earlier, ()):
                for other in of_stream.get(prior.later, ()):
                    edges[name].setdefault(other, (prior,))
        for stream, constraint in self.ends.items():
            for other in of_stream.get(stream, ()):
                for name, later in edges.items():
                    if name != other:
                        later.setdefault(other, (constraint,))
        return edges

    def _least(self, found: Sequence[tuple[Condition, bool]]) -> tuple[Condition, ...]:
        """Removes conditions that a lawful trace meets only after it has met another one."""
        kept: list[tuple[Condition, bool]] = []
        for condition, uses_needed in sorted(found, key=lambda entry: _size(entry[0])):
            can_be = not condition.unseen & self.known(condition.seen) and len(condition.seen) <= MOST_SEEN
            if can_be and not any(self._meets_before(other, condition) for other, _ in kept):
                kept.append((condition, uses_needed))
        return tuple(
            condition
            for condition, uses_needed in kept
            if uses_needed and not any(self._meets_before(other, condition) for other, _ in kept if other != condition)
        )

    def _meets_before(self, other: Condition, condition: Condition) -> bool:
        return other.unseen <= condition.unseen and other.seen <= self.known(condition.seen)

    def known(self, seen: frozenset[Stream]) -> frozenset[Stream]:
        """The streams that have occurred in a lawful trace once these have."""
        return seen.union(*(self.surely_before.get(stream, ()) for stream in seen))


def _size(condition: Condition) -> tuple[int, int, list[str], list[str]]:
    seen, unseen = sorted(map(str, condition.seen)), sorted(map(str, condition.unseen))
    return len(seen) + len(unseen), len(seen), seen, unseen


def _joined(*proofs: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    return tuple(dict.fromkeys(constraint for proof in proofs for constraint in proof))


def _together(parts: Sequence[Sequence[Support]], *origin: Constraint) -> Iterator[Support]:
    """All combinations of ways to derive all of these streams."""
    for chosen in product(*parts):
        seen = frozenset[Stream]().union(*(support[0] for support in chosen))
        if len(seen) <= MOST_SEEN:
            yield (
                seen,
                any(support[1] for support in chosen),
                _joined(*(support[2] for support in chosen), tuple(origin)),
            )


def _add(supports: list[Support], new: Support) -> bool:
    """Adds a support unless a smaller one exists, and removes those that it makes redundant."""
    if any(known[0] <= new[0] and (new[1] or not known[1] or known[0] < new[0]) for known in supports):
        return False
    supports[:] = [known for known in supports if not new[0] <= known[0]]
    supports.append(new)
    supports.sort(key=lambda support: (len(support[0]), sorted(map(str, support[0]))))
    del supports[MOST_SUPPORTS:]
    return new in supports


def _ways(
    start: Name,
    goal: Name,
    later: Mapping[Name, Mapping[Name, tuple[Constraint, ...]]],
    nodes: Mapping[Name, NeededVariable],
    derived: set[Stream],
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
            through = sum(nodes[step].stream in derived for step in (*path, name))
            if name in leading and name not in path and through <= MOST_DERIVED:
                stack.append((*path, name))


def _leading_to(goal: Name, later: Mapping[Name, Mapping[Name, tuple[Constraint, ...]]]) -> set[Name]:
    """The events from which a way leads to another event."""
    found, layer = {goal}, {goal}
    while layer:
        layer = {name for name, others in later.items() if not layer.isdisjoint(others)} - found
        found |= layer
    return found


def _without_order(
    path: Sequence[Name],
    later: Mapping[Name, Mapping[Name, tuple[Constraint, ...]]],
    nodes: Mapping[Name, NeededVariable],
    derived: Mapping[Stream, list[Support]],
) -> Iterator[tuple[Condition, bool]]:
    proof = _joined(*(later[here][there] for here, there in pairwise(path)))
    besides = [nodes[name].stream for name in path if nodes[name].stream in derived]
    unseen = frozenset(besides)
    for seen, _, used in _together([derived[stream] for stream in besides]):
        if not seen & unseen:
            # The events whose order is impossible are needed ones, whatever follows from what was seen.
            yield Condition(seen, unseen, _joined(used, proof)), True
