"""Section 7, which matches: FIRST and LAST, MATCH NEXT, MATCH STRICT and CONSUME, on the matches of one partition."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from inside import NamedPattern, Repeat, Same, Within
from oracle.model import Candidate, Span, hull, join
from oracle.partition import Partition, is_in_reach
from oracle.tree import (
    WHOLE,
    Path,
    is_inside,
    names_below,
    names_in,
    part_at,
    right_neighbour,
    scope_of,
    variable_at,
    walk,
)


def picked(partition: Partition, found: Iterable[Candidate]) -> list[Candidate]:
    """The matches that are chosen at every FIRST and LAST."""
    everything = list(found)
    kept = everything
    for places in chosen_together(partition):
        rivals: dict[object, list[Candidate]] = {}
        for match in everything:
            rivals.setdefault(the_rest(partition, match, places), []).append(match)
        kept = [
            match
            for match in kept
            if not any(
                is_better(partition, other, match, places) for other in rivals[the_rest(partition, match, places)]
            )
        ]
    return kept


def chosen_together(partition: Partition) -> list[list[Path]]:
    """The items with FIRST or LAST that something has to come after are chosen together, each other one alone."""
    pattern, picks = partition.pattern, partition.picks
    joint = [
        pick
        for pick in picks
        if right_neighbour(pattern, pick) is not None
        and not any(is_inside(pick, other) and pick != other for other in picks)
    ]
    return [joint, *([pick] for pick in picks if pick not in joint)]


def is_better(partition: Partition, other: Candidate, match: Candidate, places: list[Path]) -> bool:
    """Whether the other match is better at the first of the items at which they differ."""
    for pick in places:
        latest = part_at(partition.pattern, pick).latest
        for own, of_other in zip(compared(partition, match, pick), compared(partition, other, pick), strict=True):
            earlier, later = (of_other, own) if latest else (own, of_other)
            if later.ends_before(earlier):
                return True
            if earlier.ends_before(later):
                return False
    return False


def compared(partition: Partition, match: Candidate, pick: Path) -> list[Span]:
    """The interval of an item, or those of the elements of a repetition, from the last on."""
    item = (*pick, 0)
    while isinstance(part_at(partition.pattern, item), Within | NamedPattern):
        item = (*item, 0)
    if isinstance(part_at(partition.pattern, item), Repeat):
        return [element.spans[*item, 0] for element in reversed(match.rounds[*item, 0])]
    return [match.spans[pick]]


def the_rest(partition: Partition, match: Candidate, picks: list[Path]) -> object:
    """What a match binds besides these items. What its collections list follows from the rest."""
    rest = match
    for pick in picks:
        rest = rest.outside(pick, names_below(partition.pattern, pick))
    return (
        frozenset((user, event.id) for user, event in rest.uses().items()),
        frozenset(rest.branch.items()),
        frozenset(rest.moments.items()),
    )


# MATCH STRICT


def strict(partition: Partition, found: Iterable[Candidate]) -> list[Candidate]:
    """The matches of events that follow each other without another one of the partition between them."""
    leaves = [path for path, _ in partition.events_below(WHOLE) if scope_of(partition.pattern, path) == WHOLE]
    names = [variable_at(part_at(partition.pattern, leaf), leaf) for leaf in leaves]
    found_in_order = []
    for match in found:
        positions = [partition.position[match.bindings[name].id] for name in names]
        if positions == list(range(positions[0], positions[0] + len(positions))):
            found_in_order.append(match)
    return found_in_order


# MATCH NEXT


def next_matches(partition: Partition) -> Iterator[Candidate]:
    """From every first event the earliest next one, and so on; then the negations are judged."""
    leaves = [path for path, _ in partition.events_below(WHOLE) if scope_of(partition.pattern, path) == WHOLE]
    for first in partition.candidates(leaves[0]):
        chosen: Candidate | None = first if is_possible(partition, first, leaves) else None
        for leaf in leaves[1:]:
            chosen = None if chosen is None else with_next(partition, chosen, leaf, leaves)
        match = None if chosen is None else partition.checked(with_spans_so_far(chosen, leaves), WHOLE)
        if match is not None:
            yield match


def with_next(partition: Partition, chosen: Candidate, leaf: Path, leaves: list[Path]) -> Candidate | None:
    """The choice and the earliest event after it that goes with it."""
    last = hull([event.span for event in chosen.events()])
    later = [event for event in partition.candidates(leaf) if last.is_before(event.spans[leaf], partition.ties)]
    for event in sorted(later, key=lambda candidate: candidate.events()[0].rank):
        together = join(chosen, event)
        if together is not None and is_possible(partition, together, leaves):
            return together
    return None


def is_possible(partition: Partition, chosen: Candidate, leaves: list[Path]) -> bool:
    """Whether the windows, and the conditions over what is bound so far, hold."""
    bound = with_spans_so_far(chosen, leaves)
    windows = [(WHOLE, window) for window in partition.windows]
    parts = [(path, part) for path, part in walk(partition.pattern) if isinstance(part, Within)]
    windows += [(path, part.window) for path, part in parts if part.reach is None]
    reached = [(path, part) for path, part in parts if part.reach and scope_of(partition.pattern, path) == WHOLE]
    complete = {
        name
        for name in partition.home
        if name in chosen.bindings
        or (
            name in partition.named
            and all(leaf in chosen.spans for leaf in leaves if is_inside(leaf, partition.named[name]))
        )
    }
    return (
        all(
            is_in_reach(bound.spans[path], partition.around_which(bound, part), part, partition.ties)
            for path, part in reached
            if path in bound.spans and part.reach.anchor in bound.bindings
        )
        and all(
            partition.fits(part_of(partition, bound, path), path, window)
            for path, window in windows
            if path in bound.spans
        )
        and all(
            partition.agrees(bound, conjunct)
            if isinstance(conjunct, Same)
            else not names_in(conjunct) <= complete or partition.holds_if_bound(bound, conjunct)
            for home, conjunct in partition.conjuncts
            if home == WHOLE or isinstance(conjunct, Same)
        )
    )


def part_of(partition: Partition, bound: Candidate, path: Path) -> Candidate:
    """What is bound at or below a path."""
    names = names_below(partition.pattern, path)
    return Candidate({name: event for name, event in bound.bindings.items() if name in names}, bound.spans)


def with_spans_so_far(chosen: Candidate, leaves: list[Path]) -> Candidate:
    """Each part has the interval of those of its events that are bound."""
    for path in {leaf[:length] for leaf in leaves for length in range(len(leaf))}:
        spans = [chosen.spans[leaf] for leaf in leaves if leaf in chosen.spans and is_inside(leaf, path)]
        if spans:
            chosen = chosen.with_span(path, hull(spans))
    return chosen


# CONSUME


def in_order(partition: Partition, found: Iterable[Candidate]) -> list[Candidate]:
    """By completion, start, and the events variable by variable."""
    return sorted(found, key=lambda match: order_of(partition, match))


def order_of(partition: Partition, match: Candidate) -> tuple[object, ...]:
    """What is not bound comes last; a list is compared element by element."""
    events = [ranks_of(partition, match, name) for name in partition.home if name not in partition.named]
    return (
        partition.completion(match),
        match.spans[WHOLE].s,
        [(not ranks, ranks) for ranks in events],
        sorted(match.moments.items()),
        sorted(match.branch.items()),
    )


def ranks_of(partition: Partition, match: Candidate, name: str) -> list[tuple[object, ...]]:
    """The ranks of the events that a variable binds."""
    if name in match.bindings:
        return [match.bindings[name].rank]
    return [
        element.bindings[name].rank if name in element.bindings else (math.inf,)
        for element in match.rounds.get(partition.home[name], ())
    ]


def consumed(partition: Partition, found: Iterable[Candidate]) -> list[Candidate]:
    """The matches that are left when every event is used once."""
    used: set[int] = set()
    kept = []
    for match in in_order(partition, found):
        needed = {event.id for event in match.events()}
        if not needed & used:
            used |= needed
            kept.append(match)
    return kept
