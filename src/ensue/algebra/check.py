"""What can be wrong with a query before any data are seen: names, scopes, placement of NOT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from ensue.algebra.constraints import Constraint, ConstraintStatement, EndsWithin, meaning_of
from ensue.algebra.nodes import (
    And,
    Event,
    Events,
    Named,
    Not,
    Or,
    Pattern,
    PatternQuery,
    Return,
    Seq,
    Ticks,
    Window,
    children,
    walk,
)
from ensue.algebra.scopes import (
    MOST_CHOICES,
    Occurrence,
    Scope,
    choices,
    count_choices,
    occurrences_in,
    own_nodes,
    scopes_of,
    whole_windows,
)
from ensue.errors import Problem, Span, did_you_mean
from ensue.expr.nodes import Expr, Field, Same, conjuncts, variables_of
from ensue.expr.nodes import walk as walk_expression


def check_query(query: PatternQuery) -> list[Problem]:
    """Every structural problem of a query, in the order of the text."""
    problems = [*check_shape(query.pattern), *check_choices(query.pattern)]
    if not problems:
        clashes = list(check_names(query.pattern))
        problems += clashes
        problems += check_open_scopes(query)
        problems += check_predicates(query.pattern)
        problems += check_where(query, names_are_clear=not clashes)
        problems += check_returns(query)
    return sorted(problems, key=lambda problem: problem.span.start if problem.span else 0)


def check_shape(pattern: Pattern, may_be_negated: bool = False) -> Iterator[Problem]:
    """NOT stands only as an item of SEQ or AND, and every operator has a positive item."""
    if isinstance(pattern, Not) and not may_be_negated:
        yield Problem(
            "misplaced-not",
            "NOT stands only as an item of SEQ or AND",
            pattern.span,
            hint="put it into a SEQ or AND that says where the forbidden events would lie: `SEQ(A a, NOT B b, C c)`",
        )
    if isinstance(pattern, Seq | And | Or) and all(isinstance(item, Not) for item in pattern.items):
        operator = type(pattern).__name__.upper()
        yield Problem(
            "no-positive-item",
            f"{operator} has no positive item" if pattern.items else f"{operator} has no item",
            pattern.span,
            hint="a match is made of events that happened: add an item without NOT",
        )
    for child in children(pattern):
        yield from check_shape(child, may_be_negated=isinstance(pattern, Seq | And))


def check_choices(pattern: Pattern) -> Iterator[Problem]:
    """OR multiplies; a product of branches beyond reason is refused before it is built."""
    for scope in scopes_of(pattern):
        found = prod(count_choices(level.pattern) for level in scope.chain)
        if found > MOST_CHOICES:
            yield Problem(
                "too-many-branches",
                f"the OR items give {found} combinations of branches; {MOST_CHOICES} is the most",
                scope.pattern.span,
                hint="replace OR over streams by one stream with a condition, or split the pattern",
            )


def check_names(pattern: Pattern) -> Iterator[Problem]:
    """One home and one stream per name."""
    first: dict[str, Occurrence] = {}
    for scope in scopes_of(pattern):
        for occurrence in occurrences_in(scope):
            known = first.setdefault(occurrence.name, occurrence)
            if known is not occurrence:
                yield from _compare_occurrences(known, occurrence)


def _compare_occurrences(known: Occurrence, again: Occurrence) -> Iterator[Problem]:
    name = again.name
    if known.stream is None or again.stream is None:
        yield Problem(
            "duplicate-name",
            f"the name `{name}` is given twice",
            again.span,
            hint="an AS name differs from every variable and from every other AS name",
        )
    elif known.stream != again.stream:
        yield Problem(
            "variable-two-streams",
            f"variable `{name}` stands under two streams, `{known.stream}` and `{again.stream}`",
            again.span,
            hint="one variable is one event: give the second its own name",
        )
    elif known.scope is not again.scope:
        yield Problem(
            "variable-in-two-scopes",
            f"variable `{name}` is bound in two scopes",
            again.span,
            hint="what NOT forbids uses events of its own: give it another name and relate the two in WHERE",
        )


def check_open_scopes(query: PatternQuery) -> Iterator[Problem]:
    """A negation at an edge of the whole pattern needs a WITHIN to say how far its scope reaches."""
    if not whole_windows(query):
        yield from _open_scopes(query.pattern, False, False)


def _open_scopes(pattern: Pattern, left: bool, right: bool) -> Iterator[Problem]:
    """`left` and `right` say whether an enclosing SEQ has a positive item on that side."""
    match pattern:
        case Seq():
            positive = [number for number, item in enumerate(pattern.items) if not isinstance(item, Not)]
            for number, item in enumerate(pattern.items):
                closed_left, closed_right = left or positive[0] < number, right or number < positive[-1]
                if isinstance(item, Not) and not (closed_left and closed_right):
                    yield _open_scope(item, "after" if closed_left else "before")
                yield from _open_scopes(item, closed_left, closed_right)
        case And():
            for item in pattern.items:
                if isinstance(item, Not) and not left:
                    yield _open_scope(item, "before")
                yield from _open_scopes(item, left, right)
        case _:
            for child in children(pattern):
                yield from _open_scopes(child, left, right)


def _open_scope(negation: Not, side: str) -> Problem:
    return Problem(
        "open-scope",
        f"nothing says how long {side} the match the forbidden events count",
        negation.span,
        hint="add a WITHIN to the whole pattern, or put the NOT between two items of a SEQ",
    )


def check_predicates(pattern: Pattern) -> Iterator[Problem]:
    """A local predicate speaks only about its own event."""
    for node in walk(pattern):
        if isinstance(node, Event) and node.predicate is not None:
            for part in walk_expression(node.predicate):
                if isinstance(part, Same):
                    yield _misplaced_same(part)
                elif isinstance(part, Field) and part.variable not in (None, node.variable):
                    yield Problem(
                        "foreign-variable",
                        f"the condition in brackets mentions `{part.variable}`, which is not the event it stands at",
                        part.span,
                        hint="conditions between events belong into WHERE",
                    )


def _misplaced_same(same: Same) -> Problem:
    return Problem(
        "misplaced-same",
        "SAME stands only in WHERE, by itself or joined by AND",
        same.span,
        hint="write `WHERE SAME(field) AND ...`",
    )


def check_where(query: PatternQuery, names_are_clear: bool) -> Iterator[Problem]:
    """Names are known, and each conjunct has one scope in which all its names are visible and can be bound together."""
    homes = homes_of(query.pattern)
    for conjunct in conjuncts(query.where):
        if isinstance(conjunct, Same):
            continue
        unknown = list(_unknown_names(conjunct, homes))
        yield from unknown
        yield from (_misplaced_same(part) for part in walk_expression(conjunct) if isinstance(part, Same))
        if names_are_clear and not unknown:
            yield from _check_visibility(conjunct, homes)


def homes_of(pattern: Pattern) -> dict[str, Scope]:
    """The scope of each name."""
    return {occurrence.name: scope for scope in scopes_of(pattern) for occurrence in occurrences_in(scope)}


def _unknown_names(expr: Expr, homes: dict[str, Scope]) -> Iterator[Problem]:
    for part in walk_expression(expr):
        if not isinstance(part, Field):
            continue
        if part.variable is None:
            whole = part.name in homes
            yield Problem(
                "unqualified-field",
                f"`{part.name}` is an event, not one of its fields"
                if whole
                else f"`{part.name}` does not say of which event it is a field",
                part.span,
                label=f"variables: {', '.join(homes)}" if homes else "the pattern names no variable",
                hint=f"write `{part.name}.` and a field" if whole else f"write `{next(iter(homes), 'a')}.{part.name}`",
            )
        elif part.variable not in homes:
            yield Problem(
                "unknown-variable",
                f"the pattern has no variable `{part.variable}`",
                part.span,
                label=f"variables: {', '.join(homes)}" if homes else "the pattern names no variable",
                hint=did_you_mean(part.variable, homes),
            )


def home_of(conjunct: Expr, homes: dict[str, Scope]) -> Scope | None:
    """The innermost scope that defines a name of the conjunct; None when two of them are not nested in each other."""
    scopes = [homes[name] for name in variables_of(conjunct)]
    innermost = max(scopes, key=lambda scope: len(scope.chain), default=None)
    if innermost is None:
        return None
    return innermost if all(scope in innermost.chain for scope in scopes) else None


def _check_visibility(conjunct: Expr, homes: dict[str, Scope]) -> Iterator[Problem]:
    names = variables_of(conjunct)
    if not names:
        return
    home = home_of(conjunct, homes)
    listed = ", ".join(f"`{name}`" for name in sorted(names))
    if home is None:
        yield Problem(
            "sibling-negations",
            f"the condition relates {listed}, which belong to different negations",
            conjunct.span,
            hint="each NOT is judged by itself: relate its events to events outside of it, or forbid both in one NOT",
        )
    elif not _can_be_together(names, home):
        yield Problem(
            "never-together",
            f"the condition relates {listed}, which are never bound in the same match",
            conjunct.span,
            hint="they stand in different branches of an OR: write one condition per branch",
        )


def _can_be_together(names: frozenset[str], home: Scope) -> bool:
    child: Scope | None = None
    for scope in home.chain:
        wanted = {occurrence.name for occurrence in occurrences_in(scope)} & names
        if not any(_binds(chosen, wanted, child) for chosen in choices(scope.pattern)):
            return False
        child = scope
    return True


def _binds(chosen: Pattern, wanted: set[str], child: Scope | None) -> bool:
    """True if a choice of branches binds these names and contains the NOT of the inner scope."""
    bound = {occurrence.name for occurrence in occurrences_in(Scope(chosen))}
    contains = child is None or any(node is child.negation for node in own_nodes(chosen))
    return wanted <= bound and contains


def check_returns(query: PatternQuery) -> Iterator[Problem]:
    """RETURN names bound variables, and no column twice."""
    homes = homes_of(query.pattern)
    seen: dict[str, Span | None] = {}
    for position, column in enumerate(query.returns):
        yield from _unknown_names(column.expression, homes)
        yield from (_misplaced_same(part) for part in walk_expression(column.expression) if isinstance(part, Same))
        yield from _negated_names(column.expression, homes)
        name = column_name(column, position)
        if name in seen:
            yield Problem(
                "duplicate-column",
                f"RETURN has two columns called `{name}`",
                column.span,
                hint=f"name one of them: `... AS {name}_2`",
            )
        seen[name] = column.span


def column_name(column: Return, position: int) -> str:
    """What a column of RETURN is called: its alias, its field's name, or its number."""
    if column.alias is not None:
        return column.alias
    return column.expression.name if isinstance(column.expression, Field) else f"column_{position + 1}"


def _negated_names(expr: Expr, homes: dict[str, Scope]) -> Iterator[Problem]:
    for part in walk_expression(expr):
        if isinstance(part, Field) and part.variable in homes and homes[part.variable].parent is not None:
            yield Problem(
                "negated-in-return",
                f"`{part.variable}` is what must not happen, so a match has none to return",
                part.span,
                label="returnable: " + (", ".join(name for name in homes if homes[name].parent is None) or "none"),
            )


def check_statement_names(names: list[tuple[str, Span | None]]) -> Iterator[Problem]:
    """No two statements of a program share a name."""
    seen: set[str] = set()
    for name, span in names:
        if name in seen:
            yield Problem("duplicate-pattern", f"two patterns are called `{name}`", span, hint="give one another name")
        seen.add(name)


def check_constraints(statements: Sequence[ConstraintStatement]) -> Iterator[Problem]:
    """Each constraint says something, and no two say the same."""
    seen: set[tuple[object, ...]] = set()
    for statement in statements:
        yield from _check_constraint(statement.constraint)
        meaning = meaning_of(statement)
        if meaning in seen:
            yield Problem("duplicate-constraint", "the constraint is stated twice", statement.span, hint="keep one")
        seen.add(meaning)


def _check_constraint(constraint: Constraint) -> Iterator[Problem]:
    repeated = [name for name, uses in Counter(constraint.streams).items() if uses > 1]
    for name in repeated:
        yield Problem(
            "repeated-stream",
            f"the constraint names stream `{name}` twice",
            constraint.span,
            hint="a constraint relates different streams: name each once",
        )
    if isinstance(constraint, EndsWithin):
        yield from _check_length(constraint.window)


def _check_length(window: Window) -> Iterator[Problem]:
    """A trace has a length in time, and it is not zero."""
    if isinstance(window, Events):
        message, hint = "ENDS WITHIN takes a time, not a number of events", "write `ENDS WITHIN 30 days`, say"
    elif (window.count if isinstance(window, Ticks) else window.nanoseconds) <= 0:
        message, hint = "a trace that ends within 0 has no second event", "write how long a trace lasts at most"
    else:
        return
    yield Problem("constraint-window", message, window.span, hint=hint)


def positive_names(pattern: Pattern) -> tuple[str, ...]:
    """The variables a match binds, in the order of the text."""
    names = [node.variable for node in own_nodes(pattern) if isinstance(node, Event) and node.variable is not None]
    return tuple(dict.fromkeys(names))


def interval_names(pattern: Pattern) -> frozenset[str]:
    """The AS names at any depth."""
    return frozenset(node.name for node in walk(pattern) if isinstance(node, Named))


__all__ = [
    "check_constraints",
    "check_query",
    "check_statement_names",
    "column_name",
    "home_of",
    "homes_of",
    "interval_names",
    "positive_names",
]
