"""Where things stand in a pattern as written: paths, scopes, neighbours. Shared by the oracle and its checks.

A path lists the item numbers from the whole pattern, `()`, down to a part. A scope is what a name belongs to: the whole
pattern, what is forbidden (under `NOT`, or by an operator), or what is repeated (chosen or collected). It is named by
the path of its content, that of the item under `NOT` for example, and the whole pattern by `WHOLE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import total_ordering

from inside import (
    OPERATORS,
    And,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Duration,
    Entry,
    Event,
    Expr,
    Field,
    InList,
    InTable,
    IsNull,
    Like,
    Literal,
    NamedPattern,
    Not,
    Operation,
    Or,
    Pattern,
    Pick,
    Repeat,
    Same,
    Seq,
    StructMember,
    Timestamp,
    Unary,
    Within,
)

Path = tuple[int, ...]
WHOLE: Path = ()

AGGREGATES = (
    "count", "sum", "avg", "min", "max", "stddev", "first", "last", "list", "flatten", "count_distinct", "collect_set"
)  # fmt: skip
PREVIOUS = "prev"
LINEAGE = "lineage"


def parts(pattern: Pattern) -> tuple[Pattern, ...]:
    """The direct parts of a pattern, from left to right."""
    match pattern:
        case Event():
            return ()
        case Seq() | And() | Or() | Operation():
            return pattern.items
        case Not() | Within() | NamedPattern() | Repeat() | Pick():
            return (pattern.item,)


def walk(pattern: Pattern, path: Path = WHOLE) -> Iterator[tuple[Path, Pattern]]:
    """The pattern and every part of it, each with its path."""
    yield path, pattern
    for index, part in enumerate(parts(pattern)):
        yield from walk(part, (*path, index))


def part_at(pattern: Pattern, path: Path) -> Pattern:
    """The part of the pattern at the path."""
    for index in path:
        pattern = parts(pattern)[index]
    return pattern


def negations(pattern: Pattern) -> list[Path]:
    """The paths of all `NOT`s, nested ones included."""
    return [path for path, part in walk(pattern) if isinstance(part, Not)]


def is_positive(item: Pattern) -> bool:
    """Whether a match binds something for this item of SEQ or AND, so that it has an interval."""
    return not isinstance(item, Not) and not (isinstance(item, Repeat) and item.every)


def is_forbidden(pattern: Pattern, scope: Path) -> bool:
    """Whether the scope is the content of a `NOT`, or the part of an operator that must not happen."""
    parent = part_at(pattern, scope[:-1])
    return isinstance(parent, Not) or (
        isinstance(parent, Operation) and scope[-1] in OPERATORS[parent.operator].forbidden
    )


def is_collected(pattern: Pattern, scope: Path) -> bool:
    """Whether all matches of the scope's content are listed."""
    parent = part_at(pattern, scope[:-1])
    return (isinstance(parent, Repeat) and parent.every) or (
        isinstance(parent, Operation) and scope[-1] in OPERATORS[parent.operator].collected
    )


def is_repeated(pattern: Pattern, scope: Path) -> bool:
    """Whether some matches of the scope's content are chosen, each before the next: `x{m,n}`, `RELATIVE+(x)`."""
    parent = part_at(pattern, scope[:-1])
    return (isinstance(parent, Repeat) and not parent.every) or (
        isinstance(parent, Operation) and parent.operator == "RELATIVE+"
    )


def is_chain(pattern: Pattern, scope: Path) -> bool:
    """Whether the scope is the item of RELATIVE+: one match of it is bound, and listed with all before it."""
    parent = part_at(pattern, scope[:-1])
    return isinstance(parent, Operation) and parent.operator == "RELATIVE+"


def is_list(pattern: Pattern, scope: Path) -> bool:
    """Whether the variables of the scope are lists outside of it."""
    return scope != WHOLE and (is_collected(pattern, scope) or is_repeated(pattern, scope))


def scopes(pattern: Pattern) -> list[Path]:
    """Every scope but the whole, outer ones before those inside them."""
    return [
        path
        for path, _ in walk(pattern)
        if path and (is_forbidden(pattern, path) or is_collected(pattern, path) or is_repeated(pattern, path))
    ]


def anchor_of(pattern: Pattern, scope: Path) -> Path:
    """The part around a scope that has an interval: where a match has it, the scope counts."""
    parent = part_at(pattern, scope[:-1])
    has_no_interval = isinstance(parent, Not) or (isinstance(parent, Repeat) and parent.every)
    return scope[:-2] if has_no_interval else scope[:-1]


def scope_of(pattern: Pattern, path: Path) -> Path:
    """The innermost scope that holds the path."""
    around = [scope for scope in scopes(pattern) if is_inside(path, scope)]
    return around[-1] if around else WHOLE


def scope_around(pattern: Pattern, scope: Path) -> Path:
    """The scope in which a scope stands."""
    return scope_of(pattern, scope[:-1])


def is_inside(path: Path, outer: Path) -> bool:
    """Whether the path is `outer` or lies below it."""
    return path[: len(outer)] == outer


@total_ordering
@dataclass(frozen=True, slots=True)
class Anonymous:
    """The variable of an event that has none in the text, by its place. It comes before every written name."""

    path: tuple[int | str, ...]

    def __lt__(self, other: Anonymous | str) -> bool:
        return self.path < other.path if isinstance(other, Anonymous) else True

    def __str__(self) -> str:
        return "#" + ".".join(map(str, self.path))


def variable_at(event: Event, path: Path) -> str | Anonymous:
    """The variable of an event, which may have none in the text."""
    return event.variable if event.variable is not None else Anonymous(path)


def occurrences(pattern: Pattern) -> list[tuple[str | Anonymous, Path]]:
    """Every place where a variable or an AS name is written, anonymous variables included."""
    found: list[tuple[str | Anonymous, Path]] = []
    for path, part in walk(pattern):
        if isinstance(part, Event):
            found.append((variable_at(part, path), path))
        elif isinstance(part, NamedPattern):
            found.append((part.name, path))
    return found


def homes(pattern: Pattern) -> dict[str | Anonymous, Path]:
    """The scope in which each variable and each AS name lives."""
    return {name: scope_of(pattern, path) for name, path in occurrences(pattern)}


def is_sequence(pattern: Pattern) -> bool:
    """Whether each item is before the next: SEQ, and RELATIVE which is another word for it."""
    return isinstance(pattern, Seq) or (isinstance(pattern, Operation) and pattern.operator == "RELATIVE")


def left_neighbour(pattern: Pattern, path: Path) -> Path | None:
    """The positive item before the path in the nearest enclosing SEQ that has one, looked up outwards."""
    for length in reversed(range(len(path))):
        parent = part_at(pattern, path[:length])
        if is_sequence(parent):
            for index in reversed(range(path[length])):
                if is_positive(parent.items[index]):
                    return (*path[:length], index)
    return None


def right_neighbour(pattern: Pattern, path: Path) -> Path | None:
    """The positive item after the path in the nearest enclosing SEQ that has one, looked up outwards."""
    for length in reversed(range(len(path))):
        parent = part_at(pattern, path[:length])
        if is_sequence(parent):
            for index in range(path[length] + 1, len(parent.items)):
                if is_positive(parent.items[index]):
                    return (*path[:length], index)
    return None


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression."""
    match expr:
        case Literal() | Duration() | Timestamp() | Field() | Same():
            return ()
        case Unary() | Like() | IsNull() | InTable() | StructMember() | Cast():
            return (expr.operand,)
        case Entry():
            return (expr.operand, expr.key)
        case Binary():
            return (expr.left, expr.right)
        case InList():
            return (expr.operand, *expr.items)
        case Between():
            return (expr.operand, expr.low, expr.high)
        case Case():
            pairs = tuple(operand for branch in expr.branches for operand in branch)
            return pairs if expr.default is None else (*pairs, expr.default)
        case Call():
            return expr.arguments


def names_in(expr: Expr) -> set[str]:
    """The variables and AS names that an expression mentions, inside of aggregates and outside."""
    return {name for name, _ in mentions(expr)}


def mentions(expr: Expr, over_lists: bool = False) -> set[tuple[str, bool]]:
    """Every name, and whether it stands in an aggregate or in PREV. In `count(t)` a name stands alone."""
    if isinstance(expr, Field):
        return set() if expr.variable is None else {(expr.variable, over_lists)}
    if isinstance(expr, Call) and expr.name in (*AGGREGATES, PREVIOUS, LINEAGE):
        bare = {(operand.name, True) for operand in expr.arguments if is_bare(operand)}
        return bare | {found for operand in expr.arguments for found in mentions(operand, True)}
    return {found for operand in operands(expr) for found in mentions(operand, over_lists)}


def is_bare(expr: Expr) -> bool:
    """A name alone: `t` in `count(t)`."""
    return isinstance(expr, Field) and expr.variable is None


def calls_in(expr: Expr) -> set[str]:
    """The names of all functions that are called."""
    below = {name for operand in operands(expr) for name in calls_in(operand)}
    return below | {expr.name} if isinstance(expr, Call) else below


def reaches_at(pattern: Pattern, path: Path) -> list[Within]:
    """The reaches of the part at the path itself, inside of WITHINs and AS."""
    part, found = part_at(pattern, path), []
    while isinstance(part, Within | NamedPattern):
        if isinstance(part, Within) and part.reach is not None:
            found.append(part)
        part = part.item
    return found


def certain_names(pattern: Pattern, path: Path) -> set[str]:
    """The variables of single events that every match of the part at the path binds."""
    part = part_at(pattern, path)
    if isinstance(part, Event):
        return {part.variable} - {None}
    inner = [(*path, index) for index, item in enumerate(parts(part)) if is_positive(item)]
    below = [certain_names(pattern, place) for place in inner if place not in scopes(pattern)]
    if isinstance(part, Or) or (isinstance(part, Operation) and part.operator == "ANYONE"):
        return set.intersection(*below)
    if isinstance(part, Operation) and part.operator == "ANY":
        return {name for name in set().union(*below) if sum(name not in names for names in below) < part.count}
    return set().union(*below)


def reachable_names(pattern: Pattern, path: Path) -> set[str]:
    """The variables that a reach of the part at the path may name: of items beside it, or beside what is around it."""
    found: set[str] = set()
    for length in range(len(path)):
        around = part_at(pattern, path[:length])
        if isinstance(around, Or) or (isinstance(around, Operation) and around.operator in ("ANYONE", "ANY")):
            continue
        beside = [(*path[:length], index) for index, item in enumerate(parts(around)) if is_positive(item)]
        for place in beside:
            if place[-1] != path[length] and place not in scopes(pattern):
                found |= certain_names(pattern, place)
    return found


def names_below(pattern: Pattern, path: Path) -> set[str]:
    """The names that are written at or below the path."""
    return {name for name, place in occurrences(pattern) if is_inside(place, path)}


def conjuncts_of(where: Expr | None) -> list[Expr]:
    """`x AND y AND z` as [x, y, z]."""
    if where is None:
        return []
    if isinstance(where, Binary) and where.operator == "and":
        return conjuncts_of(where.left) + conjuncts_of(where.right)
    return [where]
