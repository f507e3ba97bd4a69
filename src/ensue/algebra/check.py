"""What can be wrong with a query before any data are seen: names, scopes, placement of NOT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from ensue.algebra.bound import positive_names
from ensue.algebra.choices import choices
from ensue.algebra.constraints import Constraint, ConstraintStatement, EndsWithin, meaning_of
from ensue.algebra.expand import expand_query
from ensue.algebra.lineage import check_lineage, is_lineage, misplaced_lineages
from ensue.algebra.lists import around_list, check_lists, list_names, lists_of_result
from ensue.algebra.nodes import (
    Event,
    Events,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Related,
    Repeat,
    Return,
    Ticks,
    Window,
    walk,
)
from ensue.algebra.policies import check_policy
from ensue.algebra.probability import check_calls, check_threshold, is_probability, misplaced_probabilities
from ensue.algebra.scopes import (
    Occurrence,
    Scope,
    growing_lists,
    list_groups,
    names_in_scopes,
    own_nodes,
    whole_windows,
)
from ensue.algebra.shape import check_choices, check_endings, check_shape, open_scopes
from ensue.errors import Problem, Span, did_you_mean
from ensue.expr.lists import explicit_lists
from ensue.expr.nodes import Call, Expr, Field, Same, conjuncts, variables_of
from ensue.expr.nodes import walk as walk_expression
from ensue.names import Name, in_order


def check_query(query: PatternQuery) -> list[Problem]:
    """Every structural problem of a query, in the order of the text. What a rule means has the shape that it has."""
    problems: list[Problem] = []
    parts = list(walk(query.pattern))
    kinds = set(map(type, parts))
    if query.rule is None:
        problems += check_shape(query.pattern)
        if kinds & {Pick, Operation}:
            problems += check_endings(query)
        if query.policy is not None:
            problems += check_policy(query)
    if not problems and kinds & {Or, Repeat, Operation, Related}:
        query = expand_query(query)
        problems += check_choices(query.pattern)
    if not problems:
        named = [*names_in_scopes(Scope(query.pattern))]
        homes = {occurrence.name: occurrence.scope for occurrence in named}
        clashes = [*check_names(named)]
        problems += clashes
        if kinds & {Not, Repeat, Operation, Pick, Related} and not whole_windows(query):
            problems += open_scopes(query.pattern, False, False)
        if any(isinstance(part, Event) and part.predicate is not None for part in parts):
            problems += check_predicates(query.pattern)
        if query.where is not None:
            problems += check_where(query, homes, names_are_clear=not clashes)
        if query.returns or query.having is not None:
            problems += check_returns(query, homes)
    return sorted(problems, key=lambda problem: problem.span.start if problem.span else 0)


def check_names(named: Iterable[Occurrence]) -> Iterator[Problem]:
    """One home and one stream per name."""
    first: dict[Name, Occurrence] = {}
    for occurrence in named:
        known = first.setdefault(occurrence.name, occurrence)
        if known.node is not occurrence.node:
            yield from _compare_occurrences(known, occurrence)


def _compare_occurrences(known: Occurrence, again: Occurrence) -> Iterator[Problem]:
    name = again.name
    if known.stream is None or again.stream is None:
        yield Problem(
            "duplicate-name",
            f"the name `{name}` is given twice",
            again.node.span,
            hint="an AS name differs from every variable and from every other AS name",
        )
    elif known.stream != again.stream:
        yield Problem(
            "variable-two-streams",
            f"variable `{name}` stands under two streams, `{known.stream}` and `{again.stream}`",
            again.node.span,
            hint="one variable is one event: give the second its own name",
        )
    elif not known.scope.is_same(again.scope) or known.repeat is not again.repeat:
        yield Problem(
            "variable-in-two-scopes",
            f"variable `{name}` is bound in two scopes",
            again.node.span,
            hint="what NOT forbids or a repetition lists are events of its own: give it another name",
        )


def check_predicates(pattern: Pattern) -> Iterator[Problem]:
    """A local predicate speaks only about its own event."""
    for node in walk(pattern):
        if isinstance(node, Event) and node.predicate is not None:
            for part in walk_expression(node.predicate):
                if isinstance(part, Same):
                    yield _misplaced_same(part)
                elif is_lineage(part):
                    yield from misplaced_lineages(part)
                elif is_probability(part):
                    yield from misplaced_probabilities(part)
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


def check_where(query: PatternQuery, homes: dict[Name, Scope], names_are_clear: bool) -> Iterator[Problem]:
    """Names are known, and each conjunct has one scope in which all its names are visible and can be bound together."""
    groups = list_groups(query.pattern)
    for conjunct in conjuncts(query.where):
        if isinstance(conjunct, Same):
            continue
        unknown = list(_unknown_names(conjunct, homes, groups))
        yield from unknown
        yield from misplaced_probabilities(conjunct)
        yield from (_misplaced_same(part) for part in walk_expression(conjunct) if isinstance(part, Same))
        if names_are_clear and not unknown:
            lists = [*check_lists(conjunct, groups), *_check_forbidden_chain(conjunct, query.pattern, homes, groups)]
            yield from lists
            if not lists:
                yield from _check_visibility(conjunct, homes, groups)


def _check_forbidden_chain(
    conjunct: Expr, pattern: Pattern, homes: dict[Name, Scope], groups: Mapping[Name, Name]
) -> Iterator[Problem]:
    """What NOT forbids of a RELATIVE+ is its first event by itself, of which there is no list."""
    growing = growing_lists(pattern)
    for name in in_order(list_names(conjunct, groups)):
        if groups[name] in growing and homes[name].is_negated:
            yield Problem(
                "forbidden-chain",
                f"the condition is about the list of `{name}`, and what NOT forbids of a RELATIVE+ is one event",
                conjunct.span,
                hint="forbid a repetition of a fixed length, as `x{3}`, instead",
            )


def _unknown_names(expr: Expr, homes: dict[Name, Scope], groups: Mapping[Name, Name]) -> Iterator[Problem]:
    misplaced = list(misplaced_lineages(expr))
    yield from misplaced
    if misplaced:
        return
    counted = {id(part.arguments[0]) for part in walk_expression(expr) if _counts_events(part)}
    for part in walk_expression(expr):
        if not isinstance(part, Field) or (id(part) in counted and part.name in groups):
            continue
        if id(part) in counted and part.name in homes:
            yield Problem(
                "not-a-list",
                f"`{part.name}` is one event, and count counts the elements of a list",
                part.span,
                hint="repeat it (`A a{2,3}`, `COLLECT A a`), or count a column that holds lists",
            )
            continue
        if part.variable is None:
            whole = part.name in homes
            yield Problem(
                "unqualified-field",
                f"`{part.name}` is an event, not one of its fields"
                if whole
                else f"`{part.name}` does not say of which event it is a field",
                part.span,
                label=f"variables: {', '.join(map(str, homes))}" if homes else "the pattern names no variable",
                hint=f"write `{part.name}.` and a field" if whole else f"write `{next(iter(homes), 'a')}.{part.name}`",
            )
        elif part.variable not in homes:
            yield Problem(
                "unknown-variable",
                f"the pattern has no variable `{part.variable}`",
                part.span,
                label=f"variables: {', '.join(map(str, homes))}" if homes else "the pattern names no variable",
                hint=did_you_mean(str(part.variable), map(str, homes)),
            )


def _counts_events(part: Expr) -> TypeGuard[Call]:
    """`count(t)`: the one place where a variable stands by itself."""
    return (
        isinstance(part, Call)
        and part.name == "count"
        and len(part.arguments) == 1
        and isinstance(part.arguments[0], Field)
        and part.arguments[0].variable is None
    )


def home_of(conjunct: Expr, homes: dict[Name, Scope], groups: Mapping[Name, Name]) -> Scope | None:
    """The innermost scope that defines a name of the conjunct; None when two of them are not nested in each other.

    A conjunct about a list as a whole has its home where the list is.
    """
    lists = list_names(conjunct, groups)
    scopes = [homes[name] for name in variables_of(conjunct) - lists]
    scopes += [around_list(homes[name]) for name in lists]
    innermost = max(scopes, key=lambda scope: len(scope.chain), default=None)
    if innermost is None:
        return None
    return innermost if all(scope in innermost.chain for scope in scopes) else None


def _check_visibility(conjunct: Expr, homes: dict[Name, Scope], groups: Mapping[Name, Name]) -> Iterator[Problem]:
    names = variables_of(conjunct) | list_names(conjunct, groups)
    if not names:
        return
    home = home_of(conjunct, homes, groups)
    if home is not None:
        yield from _check_list_outside(conjunct, home, homes, groups)
    listed = ", ".join(f"`{name}`" for name in in_order(names))
    if home is None:
        yield Problem(
            "sibling-negations",
            f"the condition relates {listed}, which belong to different negations",
            conjunct.span,
            hint="each NOT is judged by itself: relate its events to events outside of it, or forbid both in one NOT",
        )
    elif not _can_be_together(names - list_names(conjunct, groups), home):
        yield Problem(
            "never-together",
            f"the condition relates {listed}, which are never bound in the same match",
            conjunct.span,
            hint="they stand in different branches of an OR: write one condition per branch",
        )


def _check_list_outside(
    conjunct: Expr, home: Scope, homes: dict[Name, Scope], groups: Mapping[Name, Name]
) -> Iterator[Problem]:
    """What a NOT forbids is looked for before the collections beside it are made."""
    for name in in_order(list_names(conjunct, groups)):
        listing = homes[name]
        if isinstance(listing.aside, Repeat) and not around_list(listing).is_same(home):
            yield Problem(
                "list-outside",
                f"the condition relates the list of `{name}` to what is inside of another NOT or collection",
                conjunct.span,
                hint="declare the part with the list as a STREAM, and return the aggregate as one of its columns",
            )


def _can_be_together(names: frozenset[Name], home: Scope) -> bool:
    child: Scope | None = None
    for scope in home.chain:
        wanted = {occurrence.name for occurrence in names_in_scopes(scope, inner=False)} & names
        if not any(_binds(chosen, wanted, child) for chosen in choices(scope.pattern, longest=0)):
            return False
        child = scope
    return True


def _binds(chosen: Pattern, wanted: set[Name], child: Scope | None) -> bool:
    """True if a choice of branches binds these names and contains the NOT of the inner scope."""
    bound = {occurrence.name for occurrence in names_in_scopes(Scope(chosen), inner=False)}
    contains = child is None or any(node is child.aside for node in own_nodes(chosen))
    return wanted <= bound and contains


def check_returns(query: PatternQuery, homes: dict[Name, Scope]) -> Iterator[Problem]:
    """RETURN names bound variables, and no column twice; HAVING gives a probability."""
    groups = lists_of_result(query)
    if query.having is not None:
        yield from check_threshold(query.having)
    seen: dict[str, Span | None] = {}
    for position, column in enumerate(query.returns):
        if is_lineage(column.expression):
            yield from check_lineage(column.expression, positive_names(query.pattern))
        else:
            yield from _check_column(column.expression, homes, groups)
        name = column_name(column, position)
        if name in seen:
            yield Problem(
                "duplicate-column",
                f"RETURN has two columns called `{name}`",
                column.span,
                hint=f"name one of them: `... AS {name}_2`",
            )
        seen[name] = column.span


def _check_column(expression: Expr, homes: dict[Name, Scope], groups: Mapping[Name, Name]) -> Iterator[Problem]:
    yield from _unknown_names(expression, homes, groups)
    yield from check_calls(expression)
    lists: list[Problem] = []
    explicit_lists(expression, groups, lists)
    yield from lists
    yield from (_misplaced_same(part) for part in walk_expression(expression) if isinstance(part, Same))
    yield from _negated_names(expression, homes)


def column_name(column: Return, position: int) -> str:
    """What a column of RETURN is called: its alias, its field's name, or its number."""
    if column.alias is not None:
        return column.alias
    return column.expression.name if isinstance(column.expression, Field) else f"column_{position + 1}"


def _negated_names(expr: Expr, homes: dict[Name, Scope]) -> Iterator[Problem]:
    for part in walk_expression(expr):
        if isinstance(part, Field) and part.variable in homes and homes[part.variable].is_negated:
            yield Problem(
                "negated-in-return",
                f"`{part.variable}` is what must not happen, so a match has none to return",
                part.span,
                label="returnable: " + (", ".join(str(name) for name in homes if not homes[name].is_negated) or "none"),
            )


def check_statement_names(queries: Iterable[PatternQuery]) -> Iterator[Problem]:
    """No two statements of a program share a name."""
    seen: set[str] = set()
    for query in queries:
        if isinstance(query.name, str):
            if query.name in seen:
                said = f"two patterns are called `{query.name}`"
                yield Problem("duplicate-pattern", said, query.span, hint="give one another name")
            seen.add(query.name)


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
