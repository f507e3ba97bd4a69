"""What can be wrong with a query before any data are seen: its shape, names, conditions and columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeGuard

from ensue.analysis.catalog import check_lineage, is_lineage, misplaced_lineages
from ensue.analysis.choices import MOST_CHOICES, choices, count_choices
from ensue.analysis.scopes import (
    Aside,
    Occurrence,
    Scope,
    check_policy,
    growing_lists,
    is_aside,
    list_groups,
    names_in_scopes,
    own_nodes,
    positive_names,
    scopes_of,
    whole_windows,
)
from ensue.check.fields import around_list, check_lists, list_names, lists_of_result
from ensue.errors import Problem, Span, did_you_mean
from ensue.expr.lists import explicit_lists
from ensue.lower.operators import expand_query
from ensue.nodes import patterns
from ensue.nodes.constraints import Constraint, ConstraintStatement, EndsWithin, meaning_of
from ensue.nodes.expressions import Call, Expr, Field, Same, conjuncts, variables_of
from ensue.nodes.expressions import walk as walk_expression
from ensue.nodes.names import Name, in_order
from ensue.nodes.uncertainty import check_calls, check_threshold, is_probability, misplaced_probabilities


def check_query(query: patterns.PatternQuery) -> list[Problem]:
    """Every structural problem of a query, in the order of the text. What a rule means has the shape that it has."""
    problems: list[Problem] = []
    parts = list(patterns.walk(query.pattern))
    kinds = set(map(type, parts))
    if query.rule is None:
        problems += check_shape(query.pattern)
        if kinds & {patterns.Pick, patterns.Operation}:
            problems += check_endings(query)
        if query.policy is not None:
            problems += check_policy(query)
    if not problems and kinds & {patterns.Or, patterns.Repeat, patterns.Operation, patterns.RelatedItems}:
        query = expand_query(query)
        problems += check_choices(query.pattern)
    if not problems:
        named = [*names_in_scopes(Scope(query.pattern))]
        homes = {occurrence.name: occurrence.scope for occurrence in named}
        clashes = [*check_names(named)]
        problems += clashes
        if kinds & {
            patterns.Not,
            patterns.Repeat,
            patterns.Operation,
            patterns.Pick,
            patterns.RelatedItems,
        } and not whole_windows(query):
            problems += open_scopes(query.pattern, False, False)
        if any(isinstance(part, patterns.Event) and part.predicate is not None for part in parts):
            problems += check_predicates(query.pattern)
        if query.where is not None:
            problems += check_where(query, homes, names_are_clear=not clashes)
        if query.returns or query.having is not None:
            problems += check_returns(query, homes)
    return sorted(problems, key=lambda problem: problem.span.start if problem.span else 0)


# -- shape: where NOT, collections and FIRST stand, and what ends a scope


def check_shape(pattern: patterns.Pattern, place: patterns.Pattern | None = None) -> Iterator[Problem]:
    """NOT and collections stand only as items of SEQ or AND, and every operator has a positive item."""
    in_sequence = isinstance(place, patterns.Seq | patterns.And)
    if isinstance(pattern, patterns.Not) and not in_sequence:
        yield Problem(
            "misplaced-not",
            "NOT stands only as an item of SEQ or AND",
            pattern.span,
            hint="put it into a SEQ or AND that says where the forbidden events would lie: `SEQ(A a, NOT B b, C c)`",
        )
    if isinstance(pattern, patterns.Repeat) and pattern.every and not in_sequence:
        yield Problem(
            "misplaced-collect",
            "a collection (COLLECT, `+`, `*`, ALL) stands only as an item of SEQ or AND",
            pattern.span,
            hint="put it into a SEQ or AND that says where the listed events lie: `SEQ(A a, COLLECT B b, C c)`",
        )
    if isinstance(pattern, patterns.Repeat) and any(
        isinstance(node, patterns.Repeat) for node in patterns.walk(pattern.item)
    ):
        yield Problem(
            "nested-repeat",
            "a repetition cannot contain another repetition",
            pattern.span,
            hint="declare the inner one as a STREAM of its own and repeat its events",
        )
    if isinstance(pattern, patterns.Pick):
        yield from _check_pick(pattern, place)
    if isinstance(pattern, patterns.Seq | patterns.And | patterns.Or) and all(map(is_aside, pattern.items)):
        operator = type(pattern).__name__.upper()
        yield Problem(
            "no-positive-item",
            f"{operator} has no positive item" if pattern.items else f"{operator} has no item",
            pattern.span,
            hint="a match is made of events that happened: add an item without NOT",
        )
    for child in patterns.children(pattern):
        yield from check_shape(child, pattern)


def _check_pick(pick: patterns.Pick, place: patterns.Pattern | None) -> Iterator[Problem]:
    word = "LAST" if pick.latest else "FIRST"
    if any(map(_is_repetition, patterns.walk(pick.item))):
        yield Problem(
            "repeated-pick",
            f"{word} chooses among single events or composites of them, and a repetition is neither",
            pick.span,
            hint="declare that part as a STREAM of its own and choose among its events",
        )
    if not isinstance(place, patterns.Seq | patterns.And) or is_aside(pick.item):
        yield Problem(
            "misplaced-pick",
            f"{word} stands only before an item of SEQ or AND that binds events",
            pick.span,
            hint=f"write it before an item: `SEQ(A a, {word} B b)`",
        )


def _is_repetition(pattern: patterns.Pattern) -> bool:
    """Whether every choice of so many matches counts, not one list of all."""
    if isinstance(pattern, patterns.Repeat):
        return not pattern.every
    return isinstance(pattern, patterns.Operation) and pattern.operator == "RELATIVE+"


def check_endings(query: patterns.PatternQuery) -> Iterator[Problem]:
    """FIRST and LAST are about whole matches; a PERIODIC ends by an event or a window."""
    ended = any(not isinstance(window, patterns.Events) for window in whole_windows(query))
    yield from _check_endings(query.pattern, ended, outermost=True)
    events = _count_positive(query.pattern)
    for pick in patterns.walk(query.pattern):
        if isinstance(pick, patterns.Pick) and _count_positive(pick) == events:
            word = "LAST" if pick.latest else "FIRST"
            yield Problem(
                "misplaced-pick",
                f"{word} chooses for the same other items, and there is no other item without NOT",
                pick.span,
                hint=f"put it beside the item for which to choose: `SEQ(A a, {word} B b)`",
            )


def _count_positive(pattern: patterns.Pattern) -> int:
    """How many events are written that a match binds."""
    if isinstance(pattern, patterns.Event):
        return 1
    spec = patterns.OPERATORS[pattern.operator] if isinstance(pattern, patterns.Operation) else None
    beside = (*spec.forbidden, *spec.collected) if spec is not None else ()
    below = [child for place, child in enumerate(patterns.children(pattern)) if place not in beside]
    return 0 if is_aside(pattern) else sum(map(_count_positive, below))


def _check_endings(pattern: patterns.Pattern, ended: bool, outermost: bool) -> Iterator[Problem]:
    if isinstance(pattern, patterns.Pick) and not outermost:
        word = "LAST" if pattern.latest else "FIRST"
        yield Problem(
            "misplaced-pick",
            f"{word} chooses among whole matches, so SEQ and AND are the only operators that can contain it",
            pattern.span,
            hint="declare that part as a STREAM of its own and pick there",
        )
    if (
        isinstance(pattern, patterns.Operation)
        and pattern.operator == "PERIODIC"
        and len(pattern.items) == 1
        and not ended
    ):
        yield Problem(
            "endless-periodic",
            "nothing ends this PERIODIC: it would go on for ever",
            pattern.span,
            hint="add the event that ends it, `PERIODIC(x, d, z)`, or a WITHIN around it",
        )
    ended = ended or (isinstance(pattern, patterns.Within) and not isinstance(pattern.window, patterns.Events))
    for child in patterns.children(pattern):
        yield from _check_endings(
            child,
            ended,
            outermost and isinstance(pattern, patterns.Seq | patterns.And | patterns.Within | patterns.NamedPattern),
        )


def check_choices(pattern: patterns.Pattern) -> Iterator[Problem]:
    """OR multiplies; a product of branches beyond reason is refused before it is built."""
    for scope in scopes_of(pattern):
        found = prod(count_choices(level.pattern) for level in scope.chain)
        if found > MOST_CHOICES:
            yield Problem(
                "too-many-branches",
                f"OR, ANY and repetitions give {found} combinations; {MOST_CHOICES} is the most",
                scope.pattern.span,
                hint="replace OR over streams by one stream with a condition, or split the pattern",
            )


def open_scopes(pattern: patterns.Pattern, left: bool, right: bool) -> Iterator[Problem]:
    """What is open at an edge of the whole pattern, if no WITHIN around it says how far it reaches: a NOT, a LAST.

    `left` and `right` say whether an enclosing SEQ has a positive item on that side.
    """
    match pattern:
        case patterns.Seq():
            positive = [number for number, item in enumerate(pattern.items) if not is_aside(item)]
            for number, item in enumerate(pattern.items):
                closed_left, closed_right = left or positive[0] < number, right or number < positive[-1]
                if is_aside(item) and not (closed_left and closed_right):
                    yield _open_scope(item, "after" if closed_left else "before")
                yield from open_scopes(item, closed_left, closed_right)
        case patterns.And():
            for item in pattern.items:
                if is_aside(item) and not left:
                    yield _open_scope(item, "before")
                yield from open_scopes(item, left, right)
        case patterns.Pick(latest=True) if not right:
            yield Problem(
                "endless-last",
                "LAST would wait for ever: nothing says how long a later one may still come",
                pattern.span,
                hint="add a WITHIN to the whole pattern, or put the item before another one of a SEQ",
            )
        case _:
            for child in patterns.children(pattern):
                yield from open_scopes(child, left, right)


def _open_scope(aside: Aside, side: str) -> Problem:
    events, word = ("forbidden", "NOT") if isinstance(aside, patterns.Not) else ("listed", "collection")
    return Problem(
        "open-scope",
        f"nothing says how long {side} the match the {events} events count",
        aside.span,
        hint=f"add a WITHIN to the whole pattern, or put the {word} between two items of a SEQ",
    )


# -- names, conditions and columns


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


def check_predicates(pattern: patterns.Pattern) -> Iterator[Problem]:
    """A local predicate speaks only about its own event."""
    for node in patterns.walk(pattern):
        if isinstance(node, patterns.Event) and node.predicate is not None:
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


def check_where(query: patterns.PatternQuery, homes: dict[Name, Scope], names_are_clear: bool) -> Iterator[Problem]:
    """Names are known, and each conjunct has one scope in which all its names are visible and can be bound together."""
    groups = list_groups(query.pattern)
    for conjunct in conjuncts(query.where):
        if isinstance(conjunct, Same):
            continue
        unknown = list(_unknown_names(conjunct, homes, groups))
        yield from unknown
        has_calls = any(isinstance(part, Call | Same) for part in walk_expression(conjunct))
        if has_calls:
            yield from misplaced_probabilities(conjunct)
            yield from (_misplaced_same(part) for part in walk_expression(conjunct) if isinstance(part, Same))
        if names_are_clear and not unknown:
            lists: list[Problem] = []
            if groups or has_calls:
                lists += check_lists(conjunct, groups)
                lists += _check_forbidden_chain(conjunct, query.pattern, homes, groups)
            yield from lists
            if not lists:
                yield from _check_visibility(conjunct, homes, groups)


def _check_forbidden_chain(
    conjunct: Expr, pattern: patterns.Pattern, homes: dict[Name, Scope], groups: Mapping[Name, Name]
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
    parts = list(walk_expression(expr))
    misplaced = list(misplaced_lineages(expr)) if any(map(is_lineage, parts)) else []
    yield from misplaced
    if misplaced:
        return
    counted = {id(part.arguments[0]) for part in parts if _counts_events(part)}
    for part in parts:
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
        if isinstance(listing.aside, patterns.Repeat) and not around_list(listing).is_same(home):
            yield Problem(
                "list-outside",
                f"the condition relates the list of `{name}` to what is inside of another NOT or collection",
                conjunct.span,
                hint="declare the part with the list as a STREAM, and return the aggregate as one of its columns",
            )


def _can_be_together(names: frozenset[Name], home: Scope) -> bool:
    child: Scope | None = None
    for scope in home.chain:
        if not any(isinstance(part, patterns.Or) for part in own_nodes(scope.pattern)):
            child = scope
            continue  # without an OR all names of a scope are bound together
        wanted = {occurrence.name for occurrence in names_in_scopes(scope, inner=False)} & names
        if not any(_binds(chosen, wanted, child) for chosen in choices(scope.pattern, longest=0)):
            return False
        child = scope
    return True


def _binds(chosen: patterns.Pattern, wanted: set[Name], child: Scope | None) -> bool:
    """True if a choice of branches binds these names and contains the NOT of the inner scope."""
    bound = {occurrence.name for occurrence in names_in_scopes(Scope(chosen), inner=False)}
    contains = child is None or any(node is child.aside for node in own_nodes(chosen))
    return wanted <= bound and contains


def check_returns(query: patterns.PatternQuery, homes: dict[Name, Scope]) -> Iterator[Problem]:
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
        name = patterns.column_name(column, position)
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


def _negated_names(expr: Expr, homes: dict[Name, Scope]) -> Iterator[Problem]:
    for part in walk_expression(expr):
        if isinstance(part, Field) and part.variable in homes and homes[part.variable].is_negated:
            yield Problem(
                "negated-in-return",
                f"`{part.variable}` is what must not happen, so a match has none to return",
                part.span,
                label="returnable: " + (", ".join(str(name) for name in homes if not homes[name].is_negated) or "none"),
            )


def check_statement_names(queries: Iterable[patterns.PatternQuery]) -> Iterator[Problem]:
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


def _check_length(window: patterns.Window) -> Iterator[Problem]:
    """A trace has a length in time, and it is not zero."""
    if isinstance(window, patterns.Events):
        message, hint = "ENDS WITHIN takes a time, not a number of events", "write `ENDS WITHIN 30 days`, say"
    elif (window.count if isinstance(window, patterns.Ticks) else window.nanoseconds) <= 0:
        message, hint = "a trace that ends within 0 has no second event", "write how long a trace lasts at most"
    else:
        return
    yield Problem("constraint-window", message, window.span, hint=hint)
