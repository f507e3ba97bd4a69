"""Splits rules so that rows of tables never decide which events are different.

An event that is joined with a row is an event of another stream, and the engine compares events of one stream only. If
two items of a rule may be the same event, a row whose values the events bind becomes a condition. If rows bind values
themselves, they are joined after the events of the body are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from ensue.analysis.declarations import Attributes, tables_of
from ensue.errors import Problem
from ensue.expr.lists import is_aggregate
from ensue.nodes import rules
from ensue.nodes.expressions import Expr, Field, substitute_fields, walk
from ensue.nodes.names import BodyOf, Stream
from ensue.nodes.patterns import Statements

MayMeet = Callable[[str, str], bool]
"""Whether an event may belong to both streams."""


@dataclass(frozen=True, slots=True)
class RulePart:
    """A rule, or a part of one, that becomes one statement declaring the stream `name` with these columns.

    With `of`, its only event is one of this stream. `tests` are rows that are conditions on the events. `written` is
    the whole rule.
    """

    rule: rules.Rule
    written: rules.Rule
    name: Stream
    columns: tuple[str, ...]
    of: BodyOf | None = None
    tests: tuple[rules.Atom, ...] = field(default=())


def may_meet(statements: Statements) -> MayMeet:
    """Which streams may share events: those of a hierarchy, and streams of rows, may share them with other inputs."""
    derived = {str(query.name) for query in statements.declared} | {*statements.heads}
    selected = {selection.name for selection in statements.selections}

    def meets(one: str, other: str) -> bool:
        if one == other or not derived.isdisjoint((one, other)):
            return one == other
        return bool(statements.hierarchies) or not selected.isdisjoint((one, other))

    return meets


def whole_rule(rule: rules.Rule, attributes: Attributes) -> RulePart:
    """The rule as one part."""
    return RulePart(rule, rule, rule.head, attributes[rule.head])


def parts_of(
    rule: rules.Rule, number: int, ruleset: rules.Ruleset, attributes: Attributes, meets: MayMeet
) -> tuple[RulePart, ...]:
    """The parts of a rule: the rule itself, or its events and then its rows."""
    split = _Split(rule, ruleset, attributes)
    whole = whole_rule(rule, attributes)
    if not split.rows or not split.may_repeat(meets):
        return (whole,)
    if not split.joined:
        return (replace(whole, tests=tuple(split.rows)),)
    body = BodyOf(rule.head, number)
    first, columns, second = split.in_two(body)
    return (RulePart(first, rule, body, columns, tests=tuple(split.rows)), replace(whole, rule=second, of=body))


def check_parts(rule: rules.Rule, ruleset: rules.Ruleset, attributes: Attributes, meets: MayMeet) -> Iterator[Problem]:
    """The names of a rule that cannot be bound after its events are found: those that its `while` items need."""
    split = _Split(rule, ruleset, attributes)
    if split.joined and split.may_repeat(meets):
        yield from split.problems()


class _Split:
    """The names of a rule: those that events bind, and those that only rows bind."""

    def __init__(self, rule: rules.Rule, ruleset: rules.Ruleset, attributes: Attributes) -> None:
        self.rule, self.attributes = rule, attributes
        tables = tables_of(ruleset)
        atoms = [item for item in rule.body if isinstance(item, rules.Atom)]
        self.events = [atom for atom in atoms if atom.stream not in tables]
        self.rows = [atom for atom in atoms if atom.stream in tables]
        self.whiles = [item for item in rule.body if isinstance(item, rules.While)]
        self.bound = {name for atom in self.events for name in _names(atom)}
        self.of_rows = {name for atom in self.rows for name in _names(atom)} - self.bound
        listed = {item.atom.name for item in self.whiles if item.atom.name}
        self.aside = ({name for item in self.whiles for name in _names(item.atom)} | listed) - self.bound - self.of_rows
        conditions = [item.expression for item in rule.body if isinstance(item, rules.Condition)]
        self.expressions = [*conditions, *(argument.expression for argument in rule.arguments)]
        self.joined = self._joined()

    def may_repeat(self, meets: MayMeet) -> bool:
        """Whether an event that rows would be joined with may be the same as another item."""
        bases = {item.name: item.base for item in self.rule.body if isinstance(item, rules.TimerItem)}
        for event in self._hosts():
            others = [other for other in self.events if other is not event]
            # An event is never strictly inside its own interval, or that of a timer that is relative to it.
            others += [
                item.atom
                for item in self.whiles
                if event.name is None or event.name not in (item.interval, bases.get(item.interval))
            ]
            if any(meets(event.stream, other.stream) for other in others):
                return True
        return False

    def _hosts(self) -> list[rules.Atom]:
        """The events that share a name with a row, directly or through other rows; the first one for other rows."""
        names = {name for atom in self.rows for name in _names(atom)}
        hosts = [atom for atom in self.events if not names.isdisjoint(_names(atom))]
        if self.events and any(self.bound.isdisjoint(_names(atom)) for atom in self.rows):
            hosts.append(self.events[0])
        return hosts

    def _joined(self) -> list[rules.Atom]:
        """The rows that bind something that is used elsewhere."""
        absent = [name for item in self.rule.body if isinstance(item, rules.Absent) for name in _names(item.atom)]
        inside = [name for item in self.whiles for name in _names(item.atom)]
        fields = [part for expression in self.expressions for part in _fields(expression)]
        used = {*absent, *inside, *(part.name for part in fields if part.variable is None)}
        named = {part.variable for part in fields}
        everywhere = [name for atom in self.rows for name in set(_names(atom))]
        shared = {name for name in everywhere if everywhere.count(name) > 1}
        return [
            atom
            for atom in self.rows
            if (atom.name is not None and atom.name in named) or {*_names(atom)} & self.of_rows & (used | shared)
        ]

    def _needs_rows(self, expression: Expr) -> bool:
        own = {atom.name for atom in self.rows if atom.name is not None}
        return any(
            part.variable in own or (part.variable is None and part.name in self.of_rows)
            for part in _fields(expression)
        )

    def problems(self) -> Iterator[Problem]:
        hint = "derive events with this value in a separate rule, and use those events here"
        for item in self.whiles:
            for argument in item.atom.arguments:
                if isinstance(argument.term, rules.Name) and argument.term.name in self.of_rows:
                    yield Problem(
                        "row-in-while",
                        f"`{argument.term.name}` is bound by a row of a table, so `while` cannot use it here: two items"
                        " of this rule can be the same event",
                        argument.span or item.span,
                        hint=hint,
                    )
        for expression in self.expressions:
            listed = any(is_aggregate(part) for part in walk(expression)) or any(
                (part.name if part.variable is None else part.variable) in self.aside for part in _fields(expression)
            )
            if listed and self._needs_rows(expression):
                yield Problem(
                    "row-in-while",
                    "a value of a row of a table cannot be combined with events of a `while` here: two items of this"
                    " rule can be the same event",
                    expression.span,
                    hint=hint,
                )

    def in_two(self, body: BodyOf) -> tuple[rules.Rule, tuple[str, ...], rules.Rule]:
        """The rule that finds the events and returns the used values in these columns, and the rule that joins them."""
        carried = _Values({*self.bound, *self.of_rows, *self.aside})
        first: list[rules.Item] = []
        second: list[rules.Item] = [*self.joined]
        for item in self.rule.body:
            match item:
                case rules.Atom():
                    first.append(item)
                case rules.Condition() if self._needs_rows(item.expression):
                    second.append(replace(item, expression=carried.read(item.expression, self.of_rows, self._own)))
                case rules.Absent() if not self.of_rows.isdisjoint(_names(item.atom)):
                    second.append(item)
                case _:
                    first.append(item)
        arguments = tuple(
            replace(argument, expression=carried.read(argument.expression, self.of_rows, self._own))
            if self._needs_rows(argument.expression)
            else replace(argument, expression=carried.value(argument.expression))
            for argument in self.rule.arguments
        )
        atoms = (item.atom if isinstance(item, rules.Absent) else item for item in second)
        for name in {name for atom in atoms if isinstance(atom, rules.Atom) for name in _names(atom)} & self.bound:
            carried.name(name)
        columns = carried.columns(self._attribute_of)
        event = rules.Atom(str(body), tuple(rules.Argument(rules.Name(name), column) for name, column, _ in columns))
        returned = tuple(rules.HeadArgument(value, column, value.span) for _, column, value in columns)
        return (
            replace(self.rule, arguments=returned, body=tuple(first)),
            tuple(column for _, column, _ in columns),
            replace(self.rule, arguments=arguments, body=(event, *second)),
        )

    @property
    def _own(self) -> set[str]:
        return {atom.name for atom in self.joined if atom.name is not None}

    def _attribute_of(self, name: str) -> str | None:
        """The attribute of an event that a name is bound to, so that keys keep their names."""
        for atom in self.events:
            known = self.attributes.get(atom.stream, ())
            for place, argument in enumerate(atom.arguments):
                if isinstance(argument.term, rules.Name) and argument.term.name == name:
                    return argument.attribute or (known[place] if place < len(known) else None)
        return None


class _Values:
    """The values that the events hand on to the rows, each with a name that nothing else has."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.values: dict[Expr, str] = {}

    def name(self, name: str) -> str:
        return self.values.setdefault(Field(None, name), name)

    def value(self, expression: Expr) -> Field:
        """A value as a name of the second rule."""
        if isinstance(expression, Field) and expression.variable is None:
            return Field(None, self.name(expression.name), expression.span)
        return Field(None, self.values.setdefault(expression, self._free("value")), expression.span)

    def _free(self, name: str) -> str:
        names = {*self.taken, *self.values.values()}
        return next(free for free in (f"{name}{'' if not at else f' {at}'}" for at in count()) if free not in names)

    def read(self, expression: Expr, of_rows: set[str], rows: Iterable[str]) -> Expr:
        """An expression over rows, with the values of events as names."""
        known = frozenset(rows)

        def change(part: Field) -> Field:
            if part.variable in known or (part.variable is None and part.name in of_rows):
                return part
            if part.variable is None:
                return Field(None, self.name(part.name), part.span)
            return self.value(part)

        return substitute_fields(expression, change)

    def columns(self, attribute_of: Callable[[str], str | None]) -> list[tuple[str, str, Expr]]:
        """The name, the column and the value of each."""
        found: list[tuple[str, str, Expr]] = []
        for value, name in self.values.items():
            column = attribute_of(value.name) if isinstance(value, Field) and value.variable is None else None
            taken = {other for _, other, _ in found}
            column = column if column is not None and column not in taken else name
            while column in taken or column in ("s", "e", "t", "start", "end"):
                column += "_"
            found.append((name, column, value))
        return found


def _names(atom: rules.Atom) -> list[str]:
    return [argument.term.name for argument in atom.arguments if isinstance(argument.term, rules.Name)]


def _fields(expression: Expr) -> Iterator[Field]:
    return (part for part in walk(expression) if isinstance(part, Field))
