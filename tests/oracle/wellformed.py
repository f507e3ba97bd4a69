"""Which queries decisions.md calls errors: a direct check, free of engine code.

Unsatisfiable conditions (`never-holds`) are left out: the oracle finds no match for them, which says the same.
"""

from __future__ import annotations

from itertools import combinations, product

from ensue.algebra.nodes import And, Event, Named, Not, Or, Pattern, PatternQuery, Seq, Within
from ensue.expr.nodes import Expr
from oracle.tree import (
    WHOLE,
    Path,
    conjuncts_of,
    homes,
    is_inside,
    left_neighbour,
    names_in,
    negations,
    occurrences,
    part_at,
    right_neighbour,
    scope_of,
    walk,
)


def problems(query: PatternQuery) -> set[str]:
    """The codes of everything that is wrong with the query."""
    return {*_problems_of_shape(query.pattern), *_problems_of_names(query.pattern), *_open_scopes(query)} or {
        problem for conjunct in conjuncts_of(query.where) for problem in _problems_of_conjunct(query.pattern, conjunct)
    }


def has_open_scope(pattern: Pattern) -> bool:
    """Whether some negation needs a WITHIN around the whole pattern to close its scope."""
    return any(
        left_neighbour(pattern, path) is None
        or (right_neighbour(pattern, path) is None and isinstance(part_at(pattern, path[:-1]), Seq))
        for path in negations(pattern)
    )


def can_be_together(pattern: Pattern, names: set[str]) -> bool:
    """Whether some choice of OR branches binds all the names."""
    places = [[path for name, path in occurrences(pattern) if name == wanted] for wanted in names]
    return any(
        all(not _in_different_branches(pattern, first, second) for first, second in combinations(chosen, 2))
        for chosen in product(*places)
    )


def visible_names(pattern: Pattern, scope: Path) -> set[str]:
    """The names that a condition of the scope may mention; anonymous variables have none."""
    return {name for name, home in homes(pattern).items() if is_inside(scope, home) and not name.startswith("#")}


def _problems_of_shape(pattern: Pattern) -> set[str]:
    found = set()
    for path, part in walk(pattern):
        parent = part_at(pattern, path[:-1]) if path else None
        if isinstance(part, Not) and not isinstance(parent, Seq | And):
            found.add("misplaced-not")
        if isinstance(part, Seq | And | Or) and all(isinstance(item, Not) for item in part.items):
            found.add("no-positive-item")
    return found


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
        if len(written) > 1 and any(isinstance(part, Named) for part in written):
            found.add("duplicate-name")
    return found


def _open_scopes(query: PatternQuery) -> set[str]:
    pattern, closed = query.pattern, query.within is not None
    while isinstance(pattern, Within | Named):
        closed = closed or isinstance(pattern, Within)
        pattern = pattern.item
    return set() if closed or not has_open_scope(query.pattern) else {"open-scope"}


def _problems_of_conjunct(pattern: Pattern, conjunct: Expr) -> set[str]:
    names, home = names_in(conjunct), homes(pattern)
    if not names <= home.keys():
        return {"unknown-name"}
    scope = max((home[name] for name in names), key=len, default=WHOLE)
    if not names <= visible_names(pattern, scope):
        return {"sibling-negations"}
    return set() if can_be_together(pattern, names) else {"never-together"}


def _in_different_branches(pattern: Pattern, first: Path, second: Path) -> bool:
    """Whether the two paths part at an OR."""
    for length, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return isinstance(part_at(pattern, first[:length]), Or)
    return False
