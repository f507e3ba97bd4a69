"""Where things stand in a pattern as written: paths, scopes, neighbours. Shared by the oracle and its checks.

A path lists the item numbers from the whole pattern, `()`, down to a part. A scope is the whole pattern or one
`NOT`; it is named by the path of that `NOT`, and the whole pattern by `WHOLE`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ensue.algebra.nodes import And, Event, Named, Not, Or, Pattern, Seq, Within
from ensue.expr.nodes import (
    Between,
    Binary,
    Call,
    Case,
    Duration,
    Expr,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    Same,
    Timestamp,
    Unary,
)

Path = tuple[int, ...]
WHOLE: Path = ()


def parts(pattern: Pattern) -> tuple[Pattern, ...]:
    """The direct parts of a pattern, from left to right."""
    match pattern:
        case Event():
            return ()
        case Seq() | And() | Or():
            return pattern.items
        case Not() | Within() | Named():
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


def scope_of(pattern: Pattern, path: Path) -> Path:
    """The innermost `NOT` strictly around the path, else WHOLE."""
    for length in reversed(range(len(path))):
        if isinstance(part_at(pattern, path[:length]), Not):
            return path[:length]
    return WHOLE


def is_inside(path: Path, outer: Path) -> bool:
    """Whether the path is `outer` or lies below it."""
    return path[: len(outer)] == outer


def variable_at(event: Event, path: Path) -> str:
    """The variable of an event; one that was left out gets a name that no query can write."""
    return event.variable if event.variable is not None else "#" + ".".join(map(str, path))


def occurrences(pattern: Pattern) -> list[tuple[str, Path]]:
    """Every place where a variable or an AS name is written, anonymous variables included."""
    found: list[tuple[str, Path]] = []
    for path, part in walk(pattern):
        if isinstance(part, Event):
            found.append((variable_at(part, path), path))
        elif isinstance(part, Named):
            found.append((part.name, path))
    return found


def homes(pattern: Pattern) -> dict[str, Path]:
    """The scope in which each variable and each AS name lives."""
    return {name: scope_of(pattern, path) for name, path in occurrences(pattern)}


def left_neighbour(pattern: Pattern, path: Path) -> Path | None:
    """The positive item before the path in the nearest enclosing SEQ that has one, looked up outwards."""
    for length in reversed(range(len(path))):
        parent = part_at(pattern, path[:length])
        if isinstance(parent, Seq):
            for index in reversed(range(path[length])):
                if not isinstance(parent.items[index], Not):
                    return (*path[:length], index)
    return None


def right_neighbour(pattern: Pattern, path: Path) -> Path | None:
    """The positive item after the path in the nearest enclosing SEQ that has one, looked up outwards."""
    for length in reversed(range(len(path))):
        parent = part_at(pattern, path[:length])
        if isinstance(parent, Seq):
            for index in range(path[length] + 1, len(parent.items)):
                if not isinstance(parent.items[index], Not):
                    return (*path[:length], index)
    return None


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression."""
    match expr:
        case Literal() | Duration() | Timestamp() | Field() | Same():
            return ()
        case Unary() | Like() | IsNull():
            return (expr.operand,)
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
    """The variables and AS names that an expression mentions."""
    if isinstance(expr, Field):
        return set() if expr.variable is None else {expr.variable}
    return {name for operand in operands(expr) for name in names_in(operand)}


def conjuncts_of(where: Expr | None) -> list[Expr]:
    """`x AND y AND z` as [x, y, z]."""
    if where is None:
        return []
    if isinstance(where, Binary) and where.operator == "and":
        return conjuncts_of(where.left) + conjuncts_of(where.right)
    return [where]
