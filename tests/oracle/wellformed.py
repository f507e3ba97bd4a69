"""Which queries the contract calls errors: a direct check, free of engine code.

Unsatisfiable conditions (`never-holds`) are left out: the oracle finds no match for them, which says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

from inside import (
    CONTEXTS,
    NEXT_MATCH,
    STRICT,
    And,
    Event,
    Events,
    Expr,
    NamedPattern,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Repeat,
    Seq,
    Within,
)
from oracle.choices import windows_of_whole
from oracle.contexts import INITIATORS
from oracle.tree import (
    AGGREGATES,
    PREVIOUS,
    WHOLE,
    Path,
    calls_in,
    certain_names,
    conjuncts_of,
    homes,
    is_inside,
    is_list,
    is_positive,
    is_repeated,
    is_sequence,
    left_neighbour,
    mentions,
    names_in,
    occurrences,
    part_at,
    reachable_names,
    reaches_at,
    right_neighbour,
    scope_around,
    scope_of,
    scopes,
    walk,
)

IN_CONTEXTS = (*INITIATORS, "NOTFOLLOWS", "NOTPRECEDES", "ANYONE")


def problems(query: PatternQuery) -> set[str]:
    """The codes of everything that is wrong with the query."""
    return {
        *_problems_of_shape(query.pattern),
        *_problems_of_names(query.pattern),
        *_open_scopes(query),
        *_problems_of_reaches(query.pattern),
        *_problems_of_picks(query),
        *_endless_periodics(query),
        *_problems_of_policy(query),
    } or {
        problem for conjunct in conjuncts_of(query.where) for problem in _problems_of_conjunct(query.pattern, conjunct)
    }


def has_open_scope(pattern: Pattern) -> bool:
    """Whether some negation or collection needs a WITHIN around the whole pattern to close its scope."""
    return any(
        left_neighbour(pattern, path) is None
        or (right_neighbour(pattern, path) is None and isinstance(part_at(pattern, path[:-1]), Seq))
        for path, part in walk(pattern)
        if not is_positive(part) and not reaches_at(pattern, (*path, 0))
    ) or any(
        left_neighbour(pattern, path) is None and not reaches_at(pattern, (*path, 0))
        for path, part in walk(pattern)
        if isinstance(part, Operation) and part.operator == "RELATIVE+"
    )


def can_be_together(pattern: Pattern, names: set[str]) -> bool:
    """Whether some choice of OR branches binds all the names."""
    places = [[path for name, path in occurrences(pattern) if name == wanted] for wanted in names]
    return any(
        all(not _in_different_branches(pattern, first, second) for first, second in combinations(chosen, 2))
        and all(_is_chosen_together(part, path, chosen) for path, part in walk(pattern))
        for chosen in product(*places)
    )


def visible_names(pattern: Pattern, scope: Path) -> set[str]:
    """The names that a condition of the scope may mention; anonymous variables have none."""
    return {name for name, home in homes(pattern).items() if is_inside(scope, home) and isinstance(name, str)}


def visible_lists(pattern: Pattern, scope: Path) -> set[str]:
    """The variables over whose lists a condition of the scope may range."""
    return {
        name
        for name, home in homes(pattern).items()
        if is_list(pattern, home) and is_inside(scope, scope_around(pattern, home)) and isinstance(name, str)
    }


def _problems_of_shape(pattern: Pattern) -> set[str]:
    found = set()
    for path, part in walk(pattern):
        in_sequence = bool(path) and isinstance(part_at(pattern, path[:-1]), Seq | And)
        if isinstance(part, Not) and not in_sequence:
            found.add("misplaced-not")
        if isinstance(part, Repeat) and part.every and not in_sequence:
            found.add("misplaced-collect")
        if isinstance(part, Seq | And | Or) and not any(is_positive(item) for item in part.items):
            found.add("no-positive-item")
    lists = [scope for scope in scopes(pattern) if is_list(pattern, scope)]
    if any(is_inside(inner, outer) for inner in lists for outer in lists if inner != outer):
        found.add("nested-repeat")
    return found


def _problems_of_picks(query: PatternQuery) -> set[str]:
    """FIRST and LAST stand at items of SEQ and AND, choose for other events of the match, and end."""
    pattern, found = query.pattern, set()
    for path, part in walk(pattern):
        if not isinstance(part, Pick):
            continue
        around = [part_at(pattern, path[:length]) for length in range(len(path))]
        repeated = any(is_inside(scope, path) and is_repeated(pattern, scope) for scope in scopes(pattern))
        if repeated and not _has_pickable_rounds(part):
            found.add("repeated-pick")
        if (
            not around
            or not all(isinstance(outer, Seq | And | Within | NamedPattern) for outer in around)
            or not isinstance(around[-1], Seq | And)
            or all(is_inside(place, path) for place in _bound_events(pattern))
        ):
            found.add("misplaced-pick")
        if part.latest and right_neighbour(pattern, path) is None and not windows_of_whole(query):
            found.add("endless-last")
    return found


def _has_pickable_rounds(pick: Pick) -> bool:
    """A repetition of events with one number of elements."""
    item = pick.item
    while isinstance(item, Within | NamedPattern):
        item = item.item
    return isinstance(item, Repeat) and isinstance(item.item, Event) and item.least == item.most


def _bound_events(pattern: Pattern) -> list[Path]:
    """The events that a match binds, those of repetitions included."""
    beside = [scope for scope in scopes(pattern) if not is_repeated(pattern, scope)]
    return [
        path
        for path, part in walk(pattern)
        if isinstance(part, Event) and not any(is_inside(path, scope) for scope in beside)
    ]


def _endless_periodics(query: PatternQuery) -> set[str]:
    """A PERIODIC without a closing has a window of time around it."""
    for path, part in walk(query.pattern):
        if isinstance(part, Operation) and part.operator == "PERIODIC" and len(part.items) == 1:
            outer = [part_at(query.pattern, path[:length]) for length in range(len(path))]
            windows = [
                query.within,
                *(around.window for around in outer if isinstance(around, Within) and not around.reach),
            ]
            if all(window is None or isinstance(window, Events) for window in windows):
                return {"endless-periodic"}
    return set()


def _problems_of_reaches(pattern: Pattern) -> set[str]:
    """Whom a reach may name, and that the scopes that only reaches close depend on nothing that may still change."""
    found = set()
    for path, part in walk(pattern):
        if not isinstance(part, Within) or part.reach is None:
            continue
        if isinstance(part.window, Events):
            found.add("reach-window")
        if part.reach.anchor not in reachable_names(pattern, path):
            found.add("reach-anchor")
    for path, part in walk(pattern):
        if is_positive(part) or found:
            continue
        own = reaches_at(pattern, (*path, 0))
        for side, is_beyond in (("BEFORE", left_of), ("AFTER", right_of)):
            if any(reach.reach.side == side and reach.reach.anchor in is_beyond(pattern, path) for reach in own):
                found.add("reach-nowhere")
        is_open = own and right_neighbour(pattern, path) is None and all(reach.reach.side != "BEFORE" for reach in own)
        if is_open and not {reach.reach.anchor for reach in own} <= _final_names(pattern):
            found.add("reach-open")
    return found


def left_of(pattern: Pattern, path: Path) -> set[str]:
    """What SEQ puts before the path and every match binds."""
    return _in_sequence(pattern, path, lambda index, here: index < here)


def right_of(pattern: Pattern, path: Path) -> set[str]:
    return _in_sequence(pattern, path, lambda index, here: index > here)


def _in_sequence(pattern: Pattern, path: Path, is_there: Callable[[int, int], bool]) -> set[str]:
    found: set[str] = set()
    for length in range(len(path)):
        around = part_at(pattern, path[:length])
        if is_sequence(around):
            for index, item in enumerate(around.items):
                if is_there(index, path[length]) and is_positive(item):
                    found |= certain_names(pattern, (*path[:length], index))
    return found


def _final_names(pattern: Pattern) -> set[str]:
    """The variables of the whole pattern that no choice among matches is about."""
    firsts = ("UNLESS", "APERIODIC*")
    return {
        name
        for name, path in occurrences(pattern)
        if scope_of(pattern, path) == WHOLE
        and not any(
            isinstance(around, Pick) or (isinstance(around, Operation) and around.operator in firsts)
            for around in (part_at(pattern, path[:length]) for length in range(len(path)))
        )
    }


def _problems_of_policy(query: PatternQuery) -> set[str]:
    if query.policy in CONTEXTS and any(isinstance(part, Within) and part.reach for _, part in walk(query.pattern)):
        return {"policy-operator"}
    if query.policy in CONTEXTS:
        found = {"policy-combination"} if query.consume else set()
        return found if _is_for_contexts(query.pattern) else {*found, "policy-operator"}
    if query.policy in (NEXT_MATCH, STRICT) and not _is_for_sequences(query.pattern):
        return {"policy-operator"}
    return set()


def _is_for_contexts(pattern: Pattern) -> bool:
    """Whether the positive part has only operators that take part, and each NOT a place where it can be judged."""
    for path, part in walk(pattern):
        if scope_of(pattern, path) != WHOLE:
            continue
        if isinstance(part, Operation) and part.operator not in IN_CONTEXTS:
            return False
        if isinstance(part, Repeat | Pick):
            return False
        if isinstance(part, Not) and not _is_judged(pattern, path):
            return False
    return True


def _is_judged(pattern: Pattern, negation: Path) -> bool:
    """Whether a NOT stands between items of its SEQ, or at an edge of the whole pattern."""
    neighbours = left_neighbour(pattern, negation), right_neighbour(pattern, negation)
    between = all(neighbour is not None and neighbour[:-1] == negation[:-1] for neighbour in neighbours)
    around = [part_at(pattern, negation[:length]) for length in range(len(negation) - 1)]
    return between or all(isinstance(part, Within | NamedPattern) for part in around)


def _is_for_sequences(pattern: Pattern) -> bool:
    return all(
        isinstance(part, Seq | Event | Not | Within | NamedPattern)
        for path, part in walk(pattern)
        if scope_of(pattern, path) == WHOLE
    )


def _problems_of_names(pattern: Pattern) -> set[str]:
    found = set()
    places: dict[str, list[Path]] = {}
    for name, path in occurrences(pattern):
        places.setdefault(name, []).append(path)
    for paths in places.values():
        written = [part_at(pattern, path) for path in paths]
        if len({scope_of(pattern, path) for path in paths}) > 1:
            found.add("variable-in-two-scopes")
        if len({part.stream for part in written if isinstance(part, Event)}) > 1:
            found.add("variable-two-streams")
        if len(written) > 1 and any(isinstance(part, NamedPattern) for part in written):
            found.add("duplicate-name")
    return found


def _open_scopes(query: PatternQuery) -> set[str]:
    pattern, closed = query.pattern, query.within is not None
    while isinstance(pattern, Within | NamedPattern):
        closed = closed or (isinstance(pattern, Within) and pattern.reach is None)
        pattern = pattern.item
    return set() if closed or not has_open_scope(query.pattern) else {"open-scope"}


def _problems_of_conjunct(pattern: Pattern, conjunct: Expr) -> set[str]:
    names, home = names_in(conjunct), homes(pattern)
    if not names <= home.keys():
        return {"unknown-variable"}
    ranged = {name for name, over_list in mentions(conjunct) if over_list}
    lists = {name for name in names if is_list(pattern, home[name])}
    if calls_in(conjunct) & {*AGGREGATES, PREVIOUS} and len({home[name] for name in lists}) != 1:
        return {"two-lists"}
    if PREVIOUS in calls_in(conjunct):
        if calls_in(conjunct) & {*AGGREGATES}:
            return {"misplaced-prev"}
        ranged = lists
    plain = {name for name, over_list in mentions(conjunct) if not over_list}
    if calls_in(conjunct) & {*AGGREGATES} and plain & lists:
        return {"list-and-aggregate"}
    levels = [scope_around(pattern, home[name]) if name in ranged & lists else home[name] for name in names]
    scope = max(levels, key=len, default=WHOLE)
    if not names <= visible_names(pattern, scope) | (visible_lists(pattern, scope) & ranged):
        return {"sibling-negations"}
    return set() if can_be_together(pattern, names) else {"never-together"}


def _in_different_branches(pattern: Pattern, first: Path, second: Path) -> bool:
    """Whether the two paths part at an OR."""
    for length, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return _is_choice(part_at(pattern, first[:length]))
    return False


def _is_chosen_together(part: Pattern, path: Path, chosen: tuple[Path, ...]) -> bool:
    """ANY(m, ...) binds only so many of its items."""
    if not isinstance(part, Operation) or part.operator != "ANY":
        return True
    return len({place[len(path)] for place in chosen if is_inside(place, path) and place != path}) <= part.count


def _is_choice(part: Pattern) -> bool:
    return isinstance(part, Or) or (isinstance(part, Operation) and part.operator == "ANYONE")
