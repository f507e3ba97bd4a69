"""Which queries of a program run in one place: those with the same keys, and those that use each other's matches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ensue.analysis.declarations import connected, shared_keys
from ensue.nodes.patterns import PatternQuery
from ensue.plan.declared import Derivation, all_plans, groups_of
from ensue.plan.plans import QueryPlan
from ensue.plan.program_plans import ProgramPlan
from ensue.plan.states import StateQuestions


@dataclass(frozen=True, slots=True)
class Group:
    """Results, by their places, that are found together: events of different `keys` have nothing to do with each other.

    `derivations` are the declared streams that they use, `states` the STATEs that they ask.
    """

    keys: tuple[str, ...]
    places: tuple[int, ...]
    derivations: tuple[Derivation, ...] = ()
    states: StateQuestions | None = None


def components(planned: ProgramPlan) -> Iterator[Group]:
    """The results that hang together by declared streams, and every other one by itself."""
    grouped: set[int] = set()
    for place, plan in enumerate(planned.plans):
        if place in grouped:
            continue
        below = needed_derivations([plan], planned.derivations)
        if not below:
            yield _asking(Group(plan.query.partition_by, (place,)), planned)
            continue
        together = connected(plan.query, _queries(planned))
        places = tuple(other for other, own in enumerate(planned.plans) if own.query in together)
        grouped.update(places)
        derivations = tuple(made for made in planned.derivations if made.ways[0].plan.query in together)
        yield _asking(Group(shared_keys(together), places, derivations), planned)


def of_result(planned: ProgramPlan, place: int) -> Group:
    """One result by itself, with the streams that it uses."""
    plan = planned.plans[place]
    below = needed_derivations([plan], planned.derivations)
    if not below:
        return _asking(Group(plan.query.partition_by, (place,)), planned)
    return _asking(Group(shared_keys([own.query for own in all_plans(below, [plan])]), (place,), below), planned)


def _asking(group: Group, planned: ProgramPlan) -> Group:
    """The group with the STATEs that its plans ask, if they do. Events that one state is about stay together, too."""
    states, plans = planned.states, [planned.plans[place] for place in group.places]
    if states is None or not any(map(states.are_asked_by, all_plans(group.derivations, plans))):
        return group
    return replace(group, keys=states.shared_keys(group.keys), states=states)


def by_keys(planned: ProgramPlan) -> list[Group]:
    """The results by the keys of which their events can be kept apart."""
    groups: dict[tuple[str, ...], list[Group]] = {}
    for group in components(planned):
        groups.setdefault(group.keys, []).append(group)
    return [
        Group(
            keys,
            tuple(sorted(place for part in parts for place in part.places)),
            needed_derivations([planned.plans[place] for part in parts for place in part.places], planned.derivations),
            next((part.states for part in parts if part.states is not None), None),
        )
        for keys, parts in groups.items()
    ]


def needed_derivations(plans: Sequence[QueryPlan], derivations: Sequence[Derivation]) -> tuple[Derivation, ...]:
    """The declared streams that plans use, at any depth, in order."""
    wanted = {stream for plan in plans for stream in plan.streams}
    needed: list[Derivation] = []
    for group in reversed(groups_of(derivations)):
        if any(derivation.name in wanted for derivation in group):
            needed = [*group, *needed]
            wanted.update(stream for derivation in group for stream in derivation.streams)
    return tuple(needed)


def _queries(planned: ProgramPlan) -> list[PatternQuery]:
    return [plan.query for plan in all_plans(planned.derivations, planned.plans)]
