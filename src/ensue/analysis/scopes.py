"""The scopes of a pattern, the names that a match binds, AS names, and where a policy is allowed.

A scope is the whole pattern, one NOT or one collection. The checks and the normal form use scopes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeGuard

from ensue.errors import Problem
from ensue.nodes import patterns
from ensue.nodes.expressions import Call, Expr, walk
from ensue.nodes.names import Handle, Name, SpokenName, Stream, UnnamedVariable


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A region of names: `pattern` is the whole pattern, or the content of a NOT or a collection.

    `aside` is that NOT or collection. Two scopes are the same if their `aside` is the same object. So two equal NOTs
    are two scopes, but a NOT that the expansion of an operator uses twice is one scope.
    """

    pattern: patterns.Pattern
    parent: Scope | None = None
    aside: Aside | None = None

    @property
    def chain(self) -> tuple[Scope, ...]:
        """This scope and those around it, innermost first."""
        return (self,) + (self.parent.chain if self.parent else ())

    @property
    def is_negated(self) -> bool:
        """Whether a match binds no name of the scope, because it is inside a NOT."""
        return any(isinstance(scope.aside, patterns.Not) for scope in self.chain)

    def is_same(self, other: Scope) -> bool:
        return self.aside is other.aside


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name in the text: a variable with its stream, or an AS name (stream None), and the `repeat` around it."""

    name: Name
    stream: Stream | None
    scope: Scope
    node: patterns.Event | patterns.NamedPattern
    repeat: patterns.Repeat | None = None


Aside = patterns.Not | patterns.Repeat
"""A NOT, or a repetition that collects all matches in its scope. Its events are not single events of a match."""


def is_aside(pattern: patterns.Pattern) -> TypeGuard[Aside]:
    """Whether a part is a NOT or a collection."""
    return isinstance(pattern, patterns.Not) or (isinstance(pattern, patterns.Repeat) and pattern.every)


def reaches_of(item: patterns.Pattern) -> tuple[patterns.Within, ...]:
    """The reaches of an item itself: `x WITHIN d OF a`, also around or inside of another WITHIN or AS."""
    found = []
    while isinstance(item, patterns.Within | patterns.NamedPattern):
        if isinstance(item, patterns.Within) and item.reach is not None:
            found.append(item)
        item = item.item
    return tuple(found)


def last_positive(pattern: patterns.Seq) -> int:
    """The place of the last item that is no NOT and no collection."""
    return max(place for place, item in enumerate(pattern.items) if not is_aside(item))


def open_reaches(pattern: patterns.Pattern, open_right: bool = True) -> Iterator[patterns.Within]:
    """The reaches of NOTs and collections that alone close a scope on the right, after the event that they name."""
    match pattern:
        case patterns.Seq():
            last = last_positive(pattern)
            for place, item in enumerate(pattern.items):
                yield from _open_reaches(item, open_right and place >= last)
        case patterns.And():
            for item in pattern.items:
                yield from _open_reaches(item, open_right)
        case _:
            for item in patterns.children(pattern):
                yield from open_reaches(item, open_right)


def _open_reaches(item: patterns.Pattern, open_right: bool) -> Iterator[patterns.Within]:
    if open_right and is_aside(item):
        ends = [reach for reach in reaches_of(item.item) if reach.reach and reach.reach.side != patterns.BEFORE]
        yield from ends if len(ends) == len(reaches_of(item.item)) else ()
    yield from open_reaches(item, open_right)


def own_nodes(pattern: patterns.Pattern) -> Iterator[patterns.Pattern]:
    """The pattern and all its parts, including NOTs and collections, but not their contents."""
    yield pattern
    if not is_aside(pattern):
        for child in patterns.children(pattern):
            yield from own_nodes(child)


def scopes_of(pattern: patterns.Pattern, parent: Scope | None = None, aside: Aside | None = None) -> Iterator[Scope]:
    """All scopes of an expanded pattern, outermost first."""
    scope = Scope(pattern, parent, aside)
    yield scope
    for node in own_nodes(pattern):
        if is_aside(node):
            yield from scopes_of(node.item, scope, node)


def list_groups(pattern: patterns.Pattern) -> dict[Name, Name]:
    """The variables and AS names that are lists, each with the name of its repetition."""
    groups: dict[Name, Name] = {}
    for node in patterns.walk(pattern):
        if isinstance(node, patterns.Repeat):
            names = [part.variable if isinstance(part, patterns.Event) else part.name for part in _naming(node.item)]
            groups.update({name: names[0] for name in names if name is not None and names[0] is not None})
    return groups


def group_of(repeat: patterns.Repeat) -> Name | None:
    """The name of a repetition: the first variable or AS name inside it."""
    return next(
        (part.variable if isinstance(part, patterns.Event) else part.name for part in _naming(repeat.item)), None
    )


def _naming(pattern: patterns.Pattern) -> Iterator[patterns.Event | patterns.NamedPattern]:
    for node in own_nodes(pattern):
        if isinstance(node, patterns.NamedPattern) or (isinstance(node, patterns.Event) and node.variable is not None):
            yield node


def names_in_scopes(scope: Scope, *, inner: bool = True) -> Iterator[Occurrence]:
    """The names in a scope of an expanded pattern and, with `inner`, in the scopes inside it."""
    asides: list[Aside] = []
    waiting: list[tuple[patterns.Pattern, patterns.Repeat | None]] = [(scope.pattern, None)]
    while waiting:
        part, repeat = waiting.pop()
        if isinstance(part, patterns.Event):
            if part.variable is not None:
                yield Occurrence(part.variable, part.stream, scope, part, repeat)
            continue
        if is_aside(part):
            asides.append(part)
            continue
        if isinstance(part, patterns.NamedPattern):
            yield Occurrence(part.name, None, scope, part, repeat)
        around = part if isinstance(part, patterns.Repeat) else repeat
        waiting += [(child, around) for child in reversed(patterns.children(part))]
    for aside in asides if inner else ():
        yield from names_in_scopes(Scope(aside.item, scope, aside))


def homes_of(pattern: patterns.Pattern) -> dict[Name, Scope]:
    """The scope of each name."""
    return {occurrence.name: occurrence.scope for occurrence in names_in_scopes(Scope(pattern))}


def name_anonymous(query: patterns.PatternQuery) -> patterns.PatternQuery:
    """The query with a variable for every event that has none."""
    if not any(isinstance(part, patterns.Event) and part.variable is None for part in patterns.walk(query.pattern)):
        return query
    numbers = count(1)

    def name(event: patterns.Event) -> patterns.Event:
        if event.variable is not None:
            return event
        return replace(event, variable=UnnamedVariable(event.stream, next(numbers)))

    return replace(query, pattern=change_events(query.pattern, name))


def without_names(pattern: patterns.Pattern, *, by_stream: bool = False) -> patterns.Pattern:
    """The pattern without the generated names of anonymous events.

    With `by_stream`, events that have the name of their stream, as rules name them, lose it too. The result of an
    operator under a context is named after its parts.
    """

    def name(event: patterns.Event) -> patterns.Event:
        if isinstance(event.variable, Handle):
            return replace(event, variable=SpokenName(event.variable.words))
        made = isinstance(event.variable, UnnamedVariable) or (by_stream and event.variable == event.stream)
        return replace(event, variable=None) if made else event

    return change_events(pattern, name)


def change_events(pattern: patterns.Pattern, change: Callable[[patterns.Event], patterns.Event]) -> patterns.Pattern:
    """The pattern with every event replaced, from left to right."""
    return patterns.rewrite(pattern, lambda part: change(part) if isinstance(part, patterns.Event) else part)


def whole_windows(query: patterns.PatternQuery, *, limiting: bool = False) -> tuple[patterns.Window, ...]:
    """The windows of the whole match: the WITHIN clause and each WITHIN around the whole pattern.

    With `limiting`, only those that limit the match.
    """
    found = [] if query.within is None else [query.within]
    pattern = query.pattern
    while isinstance(pattern, patterns.Within | patterns.NamedPattern):
        if isinstance(pattern, patterns.Within) and pattern.reach is None and not (limiting and pattern.loose):
            found.append(pattern.window)
        pattern = pattern.item
    return tuple(found)


def counts_events(query: patterns.PatternQuery) -> bool:
    """Whether the query uses positions of events, so that irrelevant events matter."""
    if query.policy == patterns.STRICT or isinstance(query.within, patterns.Events):
        return True
    return any(
        isinstance(part.window, patterns.Events)
        if isinstance(part, patterns.Within)
        else isinstance(part, patterns.Operation | patterns.RelatedItems) and part.operator == "NEXT"
        for part in patterns.walk(query.pattern)
    )


def positive_names(pattern: patterns.Pattern) -> tuple[Name, ...]:
    """The variables that a match binds, including lists, in the order of the text."""
    names = [event.variable for event in bound_events(pattern) if event.variable is not None]
    return tuple(dict.fromkeys(names))


def bound_events(pattern: patterns.Pattern) -> Iterator[patterns.Event]:
    """The events of a pattern, except for those inside NOT."""
    if isinstance(pattern, patterns.Event):
        yield pattern
    forbidden = patterns.OPERATORS[pattern.operator].forbidden if isinstance(pattern, patterns.Operation) else ()
    for place, child in enumerate(patterns.children(pattern)):
        if not isinstance(pattern, patterns.Not) and place not in forbidden:
            yield from bound_events(child)


def interval_names(pattern: patterns.Pattern) -> frozenset[Name]:
    """The AS names at any depth."""
    return frozenset(node.name for node in patterns.walk(pattern) if isinstance(node, patterns.NamedPattern))


SERIES = "times"
"""The field of the AS name of a PERIODIC* with the list of its moments."""


def series_names(pattern: patterns.Pattern) -> frozenset[Name]:
    """The AS names of PERIODIC*."""
    named = [node for node in patterns.walk(pattern) if isinstance(node, patterns.NamedPattern)]
    return frozenset(node.name for node in named if _is_series(node.item))


def _is_series(pattern: patterns.Pattern) -> bool:
    while isinstance(pattern, patterns.Within | patterns.NamedPattern | patterns.Pick):
        pattern = pattern.item
    return isinstance(pattern, patterns.Operation) and pattern.operator == "PERIODIC*"


# --- The interval of a match together with its collected events

SPANS = {"span_start": ("least", "min", "s"), "span_end": ("greatest", "max", "e")}
"""The functions: how they combine the match with its lists, how they reduce a list, and the side of an interval."""


def is_span(part: Expr) -> TypeGuard[Call]:
    """Whether this is `span_start()` or `span_end()`."""
    return isinstance(part, Call) and part.name in SPANS and not part.arguments


def has_spans(query: patterns.PatternQuery) -> bool:
    """Whether RETURN uses `span_start()` or `span_end()`."""
    return any(is_span(part) for column in query.returns for part in walk(column.expression))


def returned_name(column: patterns.Return, position: int) -> str:
    """The name of a column of RETURN as written; one that is `span_start()` or `span_end()` has its name."""
    expression = column.expression
    return expression.name if column.alias is None and is_span(expression) else patterns.column_name(column, position)


# --- Where a selection policy is allowed (docs/semantics.md, section 7)

PAIRING = ("FOLLOWS", "PRECEDES", "PRIOR", "RELATIVE", "SIMULTANEOUS", "CONCURRENT", "NOTFOLLOWS", "NOTPRECEDES")
"""The operators besides SEQ, AND and OR where a context chooses among pairs. APERIODIC and UNLESS also have pairs."""

CHOOSING = (*PAIRING, "APERIODIC", "UNLESS", "ANYONE", "BOTH")


def check_policy(query: patterns.PatternQuery) -> Iterator[Problem]:
    """The operators that do not support the policy of a query, and policies that cannot be combined."""
    if query.policy in (patterns.NEXT_MATCH, patterns.STRICT):
        yield from _check_sequence(query.pattern, query)
    elif query.policy in patterns.CONTEXTS:
        yield from _check_context(query.pattern, query)
        yield from _check_windows(query)
        if query.allows_ties:
            yield Problem(
                "policy-combination",
                f"MATCH {query.policy} cannot be combined with ALLOWING TIES",
                query.policy_span or query.span,
                hint="pass `order=` with a column that orders events at the same time, or remove one of the two",
            )
        yield from (
            Problem(
                "policy-operator",
                f"MATCH {query.policy} does not support WITHIN {node.reach.side}",
                node.span,
                hint="compare the times in WHERE: `b.t - a.t <= 10m`",
            )
            for node in patterns.walk(query.pattern)
            if isinstance(node, patterns.Within) and node.reach is not None
        )
        if query.consume:
            yield Problem(
                "policy-combination",
                f"MATCH {query.policy} cannot be combined with CONSUME",
                query.policy_span or query.span,
                hint="remove CONSUME: the policy decides which events are consumed; CHRONICLE consumes both of a pair",
            )


def chooses(query: patterns.PatternQuery) -> bool:
    """Whether a query reports fewer than all of its matches."""
    return bool(query.consume) or query.policy not in (None, patterns.UNRESTRICTED)


def _check_sequence(pattern: patterns.Pattern, query: patterns.PatternQuery) -> Iterator[Problem]:
    if isinstance(pattern, patterns.Event | patterns.Not):
        return
    if isinstance(pattern, patterns.Seq | patterns.Within | patterns.NamedPattern):
        for child in patterns.children(pattern):
            yield from _check_sequence(child, query)
        return
    yield Problem(
        "policy-operator",
        f"MATCH {query.policy} supports only SEQ of events, not {operator_word(pattern)}",
        pattern.span,
        hint="declare that part as a STREAM, or remove the policy",
    )


def _check_context(pattern: patterns.Pattern, query: patterns.PatternQuery) -> Iterator[Problem]:
    fits = isinstance(
        pattern,
        patterns.Event
        | patterns.Seq
        | patterns.And
        | patterns.Or
        | patterns.Not
        | patterns.Within
        | patterns.NamedPattern,
    ) or (isinstance(pattern, patterns.Operation) and pattern.operator in CHOOSING)
    if not fits:
        yield Problem(
            "policy-operator",
            f"MATCH {query.policy} does not support {operator_word(pattern)}",
            pattern.span,
            hint="declare that part as a STREAM without the policy, and use its events here",
        )
    elif not isinstance(pattern, patterns.Not):
        for child in patterns.children(pattern):
            yield from _check_context(child, query)


def initiating_names(pattern: patterns.Pattern) -> tuple[Name, ...]:
    """The variables that can be initiators of a pattern of two events under CUMULATIVE. They are lists."""
    pattern = operator_of(pattern)
    forbidden = patterns.OPERATORS[pattern.operator].forbidden if isinstance(pattern, patterns.Operation) else ()
    names = [
        item.variable
        for place, item in enumerate(patterns.children(pattern))
        if isinstance(item, patterns.Event) and item.variable is not None and place not in forbidden
    ]
    either = isinstance(pattern, patterns.And) or (
        isinstance(pattern, patterns.Operation | patterns.RelatedItems) and pattern.operator == "CONCURRENT"
    )
    return tuple(names if either else names[:1])


def ends_together(pattern: patterns.Pattern) -> bool:
    """Whether the events of a pattern of two events end at the same time: those of SIMULTANEOUS."""
    return operator_word(operator_of(pattern)) == "SIMULTANEOUS"


def operator_of(pattern: patterns.Pattern) -> patterns.Pattern:
    """A pattern without the WITHIN and AS around it."""
    while isinstance(pattern, patterns.Within | patterns.NamedPattern):
        pattern = pattern.item
    return pattern


def _check_windows(query: patterns.PatternQuery) -> Iterator[Problem]:
    """A context creates streams of composite events, which have no positions."""
    parts = [node.window for node in patterns.walk(query.pattern) if isinstance(node, patterns.Within)]
    for window in (query.within, *parts):
        if isinstance(window, patterns.Events):
            yield Problem(
                "policy-window",
                f"MATCH {query.policy} does not support windows in EVENTS",
                window.span or query.policy_span,
                hint="use WITHIN with a duration",
            )


def operator_word(pattern: patterns.Pattern) -> str:
    """The name of the operator of a part, for messages."""
    match pattern:
        case patterns.Operation() | patterns.RelatedItems():
            return pattern.operator
        case patterns.Repeat():
            return "a repetition"
        case patterns.Pick():
            return "LAST" if pattern.latest else "FIRST"
        case _:
            return type(pattern).__name__.upper()
