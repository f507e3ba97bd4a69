"""Checks of a query that need no data: its shape, names, conditions and columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from math import prod
from typing import TypeGuard

from ensue.analysis.catalog import check_lineage, is_lineage, misplaced_lineages
from ensue.analysis.choices import MOST_CHOICES, choices, count_choices
from ensue.analysis.scopes import (
    Aside,
    Occurrence,
    Scope,
    change_events,
    check_policy,
    is_aside,
    list_groups,
    names_in_scopes,
    own_nodes,
    positive_names,
    reaches_of,
    scopes_of,
    whole_windows,
)
from ensue.check.fields import around_list, check_lists, list_names, lists_of_result
from ensue.check.reaches import check_reaches
from ensue.errors import Problem, Span, did_you_mean
from ensue.expr.lists import explicit_lists
from ensue.lower.operators import expand_query
from ensue.nodes import patterns
from ensue.nodes.constraints import Constraint, ConstraintStatement, EndsWithin, meaning_of
from ensue.nodes.expressions import Call, Expr, Field, Member, Same, conjuncts, substitute_fields, variables_of
from ensue.nodes.expressions import walk as walk_expression
from ensue.nodes.names import Name, in_order
from ensue.nodes.uncertainty import check_calls, check_threshold, is_probability, misplaced_probabilities
from ensue.text.render import one_line


def check_query(query: patterns.PatternQuery) -> list[Problem]:
    """All structural problems of a query, in the order of the text. The shape of a lowered rule is not checked."""
    problems: list[Problem] = []
    written = query
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
        if patterns.Within in kinds:
            problems += check_reaches(query.pattern)
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
        if query.suppress is not None:
            problems += check_suppression(query, query.suppress, homes)
        problems.sort(key=_start)
        unknown = next((place for place, problem in enumerate(problems) if problem.code == "unknown-variable"), None)
        if unknown is not None and (hint := _naming_events(written, homes)):
            problems = [replace(one, hint="") if one.code == "unknown-variable" else one for one in problems]
            problems[unknown] = replace(problems[unknown], hint=hint)
    return sorted(problems, key=_start)


def _start(problem: Problem) -> int:
    return problem.span.start if problem.span else 0


# --- Shape: where NOT, collections and FIRST are allowed, and what limits a scope


def check_shape(pattern: patterns.Pattern, place: patterns.Pattern | None = None) -> Iterator[Problem]:
    """NOT and collections must be items of SEQ or AND, and each operator needs a positive item."""
    in_sequence = isinstance(place, patterns.Seq | patterns.And)
    if isinstance(pattern, patterns.Not) and not in_sequence:
        yield Problem(
            "misplaced-not",
            "NOT is only allowed directly inside SEQ or AND",
            pattern.span,
            hint="write NOT as an item of a SEQ or AND: `SEQ(A a, NOT B b, C c)`",
        )
    if isinstance(pattern, patterns.Repeat) and pattern.every and not in_sequence:
        yield Problem(
            "misplaced-collect",
            "a collection (COLLECT, `+`, `*`, ALL) is only allowed directly inside SEQ or AND",
            pattern.span,
            hint="write the collection as an item of a SEQ or AND: `SEQ(A a, COLLECT B b, C c)`",
        )
    if isinstance(pattern, patterns.Repeat) and any(
        isinstance(node, patterns.Repeat) for node in patterns.walk(pattern.item)
    ):
        yield Problem(
            "nested-repeat",
            "a repetition cannot contain another repetition",
            pattern.span,
            hint="declare the inner repetition as a STREAM and repeat its events",
        )
    if isinstance(pattern, patterns.Pick):
        yield from _check_pick(pattern, place)
    if isinstance(pattern, patterns.Seq | patterns.And | patterns.Or) and all(map(is_aside, pattern.items)):
        operator = type(pattern).__name__.upper()
        yield Problem(
            "no-positive-item",
            f"{operator} has only items with NOT" if pattern.items else f"{operator} has no items",
            pattern.span,
            hint="add an item without NOT: a match consists of events that happened",
        )
    for child in patterns.children(pattern):
        yield from check_shape(child, pattern)


def _check_pick(pick: patterns.Pick, place: patterns.Pattern | None) -> Iterator[Problem]:
    word = "LAST" if pick.latest else "FIRST"
    if not _has_pickable_rounds(pick) and any(map(_is_repetition, patterns.walk(pick.item))):
        yield Problem(
            "repeated-pick",
            f"{word} can only be applied to a repetition of events with one number of elements, such as `B b{{2}}`",
            pick.span,
            hint=f"declare the repetition as a STREAM and apply {word} to its events",
        )
    if not isinstance(place, patterns.Seq | patterns.And) or is_aside(pick.item):
        yield Problem(
            "misplaced-pick",
            f"{word} is only allowed before an item of SEQ or AND that binds events",
            pick.span,
            hint=f"for example `SEQ(A a, {word} B b)`",
        )


def _has_pickable_rounds(pick: patterns.Pick) -> bool:
    """Whether the item is `E e{n}`, whose elements can be compared one by one."""
    item = pick.item
    while isinstance(item, patterns.Within | patterns.NamedPattern):
        item = item.item
    return isinstance(item, patterns.Repeat) and isinstance(item.item, patterns.Event) and item.least == item.most


def _is_repetition(pattern: patterns.Pattern) -> bool:
    """Whether the pattern is a repetition without ALL: each combination of elements is a match."""
    return patterns.is_chain(pattern) or (isinstance(pattern, patterns.Repeat) and not pattern.every)


def check_endings(query: patterns.PatternQuery) -> Iterator[Problem]:
    """FIRST and LAST choose among whole matches; a PERIODIC needs an end event or a window."""
    ended = any(not isinstance(window, patterns.Events) for window in whole_windows(query))
    yield from _check_endings(query.pattern, ended, outermost=True)
    events = _count_positive(query.pattern)
    for pick in patterns.walk(query.pattern):
        if isinstance(pick, patterns.Pick) and _count_positive(pick) == events:
            word = "LAST" if pick.latest else "FIRST"
            yield Problem(
                "misplaced-pick",
                f"{word} needs another item without NOT in the same pattern",
                pick.span,
                hint=f"add another item: `SEQ(A a, {word} B b)`",
            )


def _count_positive(pattern: patterns.Pattern) -> int:
    """The number of events in the pattern that a match binds."""
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
            f"{word} is only allowed inside SEQ and AND, not inside other operators",
            pattern.span,
            hint=f"declare that part as a STREAM and use {word} there",
        )
    if (
        isinstance(pattern, patterns.Operation)
        and pattern.operator == "PERIODIC"
        and len(pattern.items) == 1
        and not ended
    ):
        yield Problem(
            "endless-periodic",
            "this PERIODIC has no end",
            pattern.span,
            hint="add an event that ends it, as in `PERIODIC(x, d, z)`, or put it inside a WITHIN",
        )
    ended = ended or (
        isinstance(pattern, patterns.Within)
        and pattern.reach is None
        and not isinstance(pattern.window, patterns.Events)
    )
    for child in patterns.children(pattern):
        yield from _check_endings(
            child,
            ended,
            outermost and isinstance(pattern, patterns.Seq | patterns.And | patterns.Within | patterns.NamedPattern),
        )


def check_choices(pattern: patterns.Pattern) -> Iterator[Problem]:
    """The number of combinations of branches is limited."""
    for scope in scopes_of(pattern):
        found = prod(count_choices(level.pattern) for level in scope.chain)
        if found > MOST_CHOICES:
            yield Problem(
                "too-many-branches",
                f"OR, ANY and repetitions result in {found} combinations; the maximum is {MOST_CHOICES}",
                scope.pattern.span,
                hint="replace an OR of streams by one stream with a condition, or split the pattern",
            )


def open_scopes(pattern: patterns.Pattern, left: bool, right: bool) -> Iterator[Problem]:
    """Each NOT, collection or LAST at an edge of the pattern that no WITHIN limits.

    `left` and `right` say whether an enclosing SEQ has a positive item on that side.
    """
    match pattern:
        case patterns.Seq():
            positive = [number for number, item in enumerate(pattern.items) if not is_aside(item)]
            for number, item in enumerate(pattern.items):
                closed_left, closed_right = left or positive[0] < number, right or number < positive[-1]
                if is_aside(item) and not (closed_left and closed_right) and not reaches_of(item.item):
                    yield _open_scope(item, "after" if closed_left else "before")
                yield from open_scopes(item, closed_left, closed_right)
        case patterns.And():
            for item in pattern.items:
                if is_aside(item) and not left and not reaches_of(item.item):
                    yield _open_scope(item, "before")
                yield from open_scopes(item, left, right)
        case patterns.Pick(latest=True) if not right:
            yield Problem(
                "endless-last",
                "LAST at the end of a pattern needs a time limit: a later event could always follow",
                pattern.span,
                hint="add WITHIN to the whole pattern, or another item after LAST in the SEQ",
            )
        case _:
            for child in patterns.children(pattern):
                yield from open_scopes(child, left, right)


def _open_scope(aside: Aside, side: str) -> Problem:
    events, word = ("forbidden", "NOT") if isinstance(aside, patterns.Not) else ("collected", "collection")
    return Problem(
        "open-scope",
        f"the {events} events {side} the match have no time limit",
        aside.span,
        hint=f"add WITHIN to the whole pattern, or put the {word} between two items of a SEQ",
    )


# --- Names, conditions and columns


def check_names(named: Iterable[Occurrence]) -> Iterator[Problem]:
    """Each name has one scope and one stream."""
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
            f"the name `{name}` is defined twice",
            again.node.span,
            hint="rename one of them: AS names must differ from variables and from each other",
        )
    elif known.stream != again.stream:
        yield Problem(
            "variable-two-streams",
            f"variable `{name}` has two streams: `{known.stream}` and `{again.stream}`",
            again.node.span,
            hint="rename the second variable: a variable is one event",
        )
    elif not known.scope.is_same(again.scope) or known.repeat is not again.repeat:
        yield Problem(
            "variable-in-two-scopes",
            f"variable `{name}` is bound in two scopes",
            again.node.span,
            hint="rename one of them: a variable inside NOT or a repetition cannot also be used outside",
        )


def check_predicates(pattern: patterns.Pattern) -> Iterator[Problem]:
    """A local predicate can only use fields of its own event."""
    variables = {node.variable for node in patterns.walk(pattern) if isinstance(node, patterns.Event)}
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
                    yield _foreign_variable(part.variable, part.span)
                elif isinstance(part, Member) and (column := _column_of(part)) in variables - {None}:
                    yield _foreign_variable(column, part.span)


def _column_of(member: Member) -> str | None:
    """The name `x` in `x.y` where `x` is a column."""
    operand = member.operand
    return operand.name if isinstance(operand, Field) and operand.variable is None else None


def _foreign_variable(name: Name | None, span: Span | None) -> Problem:
    return Problem(
        "foreign-variable",
        f"the condition in brackets uses `{name}`, which is another event",
        span,
        hint="write conditions between events in WHERE; for a column of this name, rename the variable",
    )


def _misplaced_same(same: Same) -> Problem:
    return Problem(
        "misplaced-same",
        "SAME is only allowed in WHERE, alone or joined by AND",
        same.span,
        hint="write `WHERE SAME(field) AND ...`",
    )


def check_where(query: patterns.PatternQuery, homes: dict[Name, Scope], names_are_clear: bool) -> Iterator[Problem]:
    """All names are known, and each conjunct has a scope in which its names are visible and bound together."""
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
            yield from lists
            if not lists:
                yield from _check_visibility(conjunct, homes, groups)


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
                f"count takes a list, but `{part.name}` is a single event",
                part.span,
                hint="repeat the event (`A a{2,3}` or `COLLECT A a`), or count a column of lists",
            )
            continue
        if part.variable is None:
            whole = part.name in homes
            yield Problem(
                "unqualified-field",
                f"`{part.name}` is an event, not one of its fields"
                if whole
                else f"field `{part.name}` is used without a variable",
                part.span,
                label=f"variables: {', '.join(map(str, homes))}" if homes else "the pattern has no variables",
                hint=_qualification(part.name, homes, groups),
            )
        elif part.variable not in homes:
            yield Problem(
                "unknown-variable",
                f"unknown variable `{part.variable}`",
                part.span,
                label=f"variables: {', '.join(map(str, homes))}" if homes else "the pattern has no variables",
                hint=did_you_mean(str(part.variable), map(str, homes)) or _column_of_variable(part, homes),
            )


def _naming_events(query: patterns.PatternQuery, homes: Mapping[Name, Scope]) -> str:
    """How to write `SEQ(A, B) WHERE A.x = B.x`, which uses streams as variables. Empty if that is not the problem."""
    if query.rule is not None:
        return ""
    events = [part for part in patterns.walk(query.pattern) if isinstance(part, patterns.Event)]
    expressions = [query.where, *patterns.result_expressions(query)]
    used = {name for expression in expressions if expression is not None for name in variables_of(expression)}
    unknown = used - homes.keys()
    meant = [event for event in events if event.stream in unknown]
    again = Counter(event.stream for event in meant).most_common(1)
    if again and again[0][1] > 1:
        stream, number = again[0]
        return f"`{stream}` is a stream with {number} events in this pattern: name each of them, such as `{stream} x`"
    names: dict[object, Name | None] = {}
    for event in meant:
        word = str(event.stream).lower()
        others = {*homes, *names.values()}
        free = next(name for name in chain((word,), (f"{word}{number}" for number in count(2))) if name not in others)
        names[event.stream] = event.variable or free

    def named(event: patterns.Event) -> patterns.Event:
        return replace(event, variable=names.get(event.stream, event.variable))

    def of_event(field: Field) -> Field:
        return field if field.variable is None else replace(field, variable=names.get(field.variable, field.variable))

    changed = patterns.change_expressions(query, lambda expression: substitute_fields(expression, of_event))
    changed = replace(changed, pattern=change_events(changed.pattern, named))
    if not unknown <= names.keys():
        return ""  # the rewritten query would not be right either
    return f"use the variables of events, not their streams: `{one_line(changed)}`"


def _column_of_variable(field: Field, homes: Mapping[Name, Scope]) -> str:
    """How to use `user.id` where `user` is a column: outside brackets, a column needs its variable."""
    path = f"{field.variable}.{field.name}"
    return f"if `{field.variable}` is a column, write `{next(iter(homes))}.{path}`" if homes else ""


def _qualification(name: str, homes: Mapping[Name, Scope], groups: Mapping[Name, Name]) -> str:
    """How to use a name without a variable."""
    if name in groups:
        return f"elements have no index: use `first({name}.x)`, `last({name}.x)`, `PREV({name}.x)` or an aggregate"
    return f"write `{name}.` and a field" if name in homes else f"write `{next(iter(homes), 'a')}.{name}`"


def _counts_events(part: Expr) -> TypeGuard[Call]:
    """Whether this is `count(t)`, the only expression with a variable without a field."""
    return (
        isinstance(part, Call)
        and part.name == "count"
        and len(part.arguments) == 1
        and isinstance(part.arguments[0], Field)
        and part.arguments[0].variable is None
    )


def home_of(conjunct: Expr, homes: dict[Name, Scope], groups: Mapping[Name, Name]) -> Scope | None:
    """The innermost scope that defines a name of the conjunct, or None if two of the scopes are not nested.

    A conjunct about a whole list belongs to the scope that contains the list.
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
            f"the condition compares {listed}, which are inside different NOTs",
            conjunct.span,
            hint="compare each with events outside its NOT, or put both into one NOT",
        )
    elif not _can_be_together(names - list_names(conjunct, groups), home):
        yield Problem(
            "never-together",
            f"the condition compares {listed}, which are never in the same match",
            conjunct.span,
            hint="write one condition for each branch of the OR",
        )


def _check_list_outside(
    conjunct: Expr, home: Scope, homes: dict[Name, Scope], groups: Mapping[Name, Name]
) -> Iterator[Problem]:
    """A condition inside NOT or a collection cannot use a list outside it: the lists are built later."""
    for name in in_order(list_names(conjunct, groups)):
        listing = homes[name]
        if isinstance(listing.aside, patterns.Repeat) and not around_list(listing).is_same(home):
            yield Problem(
                "list-outside",
                f"the condition compares the list of `{name}` with events inside another NOT or collection",
                conjunct.span,
                hint="declare the part with the list as a STREAM that returns the aggregate as a column",
            )


def _can_be_together(names: frozenset[Name], home: Scope) -> bool:
    child: Scope | None = None
    for scope in home.chain:
        if not any(isinstance(part, patterns.Or) for part in own_nodes(scope.pattern)):
            child = scope
            continue  # without an OR all names of a scope are bound together
        wanted = {occurrence.name for occurrence in names_in_scopes(scope, inner=False)} & names
        if not any(_binds(chosen, wanted, child) for chosen in choices(scope.pattern, unrolls=False)):
            return False
        child = scope
    return True


def _binds(chosen: patterns.Pattern, wanted: set[Name], child: Scope | None) -> bool:
    """Whether a choice of branches binds these names and contains the NOT of the inner scope."""
    bound = {occurrence.name for occurrence in names_in_scopes(Scope(chosen), inner=False)}
    contains = child is None or any(node is child.aside for node in own_nodes(chosen))
    return wanted <= bound and contains


def check_returns(query: patterns.PatternQuery, homes: dict[Name, Scope]) -> Iterator[Problem]:
    """RETURN uses bound variables and unique column names; HAVING has a probability."""
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
                f"RETURN has two columns named `{name}`",
                column.span,
                hint=f"rename one of them: `... AS {name}_2`",
            )
        seen[name] = column.span


def check_suppression(
    query: patterns.PatternQuery, suppress: patterns.Suppression, homes: dict[Name, Scope]
) -> Iterator[Problem]:
    """SUPPRESS belongs to a result without a context, PER uses bound variables, and `suppressed` is a free name."""
    hint = f"declare the stream without SUPPRESS, and write `PATTERN {query.name} x SUPPRESS FOR ...` to report it"
    if query.declares:
        said = "SUPPRESS is not supported for STREAM: it limits which matches are reported"
        yield Problem("suppress-stream", said, suppress.span, hint=hint)
    if query.policy in patterns.CONTEXTS:
        yield Problem(
            "policy-combination",
            f"MATCH {query.policy} cannot be combined with SUPPRESS",
            suppress.span or query.span,
            hint="declare the pattern as a STREAM with the policy, and suppress in a PATTERN of its events",
        )
    groups = lists_of_result(query)
    for expression in suppress.per:
        if any(map(is_lineage, walk_expression(expression))) or any(map(is_probability, walk_expression(expression))):
            yield Problem(
                "suppress-value", "PER takes values of events", expression.span, hint="for example `PER a.host`"
            )
        else:
            yield from _check_column(expression, homes, groups)
    returned = [(patterns.column_name(column, place), column.span) for place, column in enumerate(query.returns)]
    if not query.returns:
        events = (part for part in patterns.walk(query.pattern) if isinstance(part, patterns.Event))
        returned += [(str(event.variable), event.span) for event in events]
        returned += [(name, query.partition_span) for name in query.partition_by]
    for name, span in returned:
        if name == patterns.SUPPRESSED:
            yield Problem(
                "duplicate-column",
                f"SUPPRESS adds the column `{name}`, and the result already has one",
                span or suppress.span,
                hint=f"use another name: `... AS {name}_2`" if query.returns else "add RETURN with another name",
            )


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
                f"`{part.variable}` is inside NOT, so a match has no such event to return",
                part.span,
                label="available: " + (", ".join(str(name) for name in homes if not homes[name].is_negated) or "none"),
            )


def check_statement_names(queries: Iterable[patterns.PatternQuery]) -> Iterator[Problem]:
    """The names of the statements of a program are unique."""
    seen: set[str] = set()
    for query in queries:
        if isinstance(query.name, str):
            if query.name in seen:
                said = f"two patterns are named `{query.name}`"
                yield Problem("duplicate-pattern", said, query.span, hint="rename one of them")
            seen.add(query.name)


def check_constraints(statements: Sequence[ConstraintStatement]) -> Iterator[Problem]:
    """Each constraint is well-formed, and no two are equal."""
    seen: set[tuple[object, ...]] = set()
    for statement in statements:
        yield from _check_constraint(statement.constraint)
        meaning = meaning_of(statement)
        if meaning in seen:
            yield Problem("duplicate-constraint", "this constraint is a duplicate", statement.span, hint="remove it")
        seen.add(meaning)


def _check_constraint(constraint: Constraint) -> Iterator[Problem]:
    repeated = [name for name, uses in Counter(constraint.streams).items() if uses > 1]
    for name in repeated:
        yield Problem(
            "repeated-stream",
            f"the constraint has stream `{name}` twice",
            constraint.span,
            hint="list each stream once",
        )
    if isinstance(constraint, EndsWithin):
        yield from _check_length(constraint.window)


def _check_length(window: patterns.Window) -> Iterator[Problem]:
    """The maximum length of a trace is a length of time and not zero."""
    if isinstance(window, patterns.Events):
        message, hint = "ENDS WITHIN takes a duration, not a number of events", "for example `ENDS WITHIN 30d`"
    elif (window.count if isinstance(window, patterns.Ticks) else window.nanoseconds) <= 0:
        message, hint = "the duration of ENDS WITHIN must be positive", "write the maximum duration of a trace"
    else:
        return
    yield Problem("constraint-window", message, window.span, hint=hint)
