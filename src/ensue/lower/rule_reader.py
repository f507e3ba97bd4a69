"""Lower one rule to statements: its body becomes `RelatedItems`, with relations between the ends of the items.

An event that is joined with a row of a table becomes an event of a separate stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ensue.analysis.catalog import TIME_NAMES
from ensue.analysis.declarations import (
    Attributes,
    in_order_of,
    tables_of,
)
from ensue.errors import Span
from ensue.expr.lists import is_aggregate
from ensue.lower.rule_parts import RulePart
from ensue.nodes import expressions as expression_nodes
from ensue.nodes import patterns, rules
from ensue.nodes.names import Chain, Edge, Further, OneOf, Stream, WithRow
from ensue.nodes.names import Name as VariableName

_SIDES = {
    "extend": (("s", 0), ("e", 1)),
    "extend_backward": (("s", -1), ("e", 0)),
    "shift": (("s", 1), ("e", 1)),
    "shift_backward": (("s", -1), ("e", -1)),
    "from_end": (("e", 0), ("e", 1)),
    "from_end_backward": (("e", -1), ("e", 0)),
    "from_start": (("s", 0), ("s", 1)),
    "from_start_backward": (("s", -1), ("s", 0)),
}
"""For the start and the end of each timer: the end of its item that it is relative to, and the direction."""


_SAME, _LESS = False, True


_ALLEN = {
    "before": (("xe", "ys", _LESS),),
    "meets": (("xe", "ys", _SAME),),
    "overlaps": (("xs", "ys", _LESS), ("ys", "xe", _LESS), ("xe", "ye", _LESS)),
    "starts": (("xs", "ys", _SAME), ("xe", "ye", _LESS)),
    "during": (("ys", "xs", _LESS), ("xe", "ye", _LESS)),
    "finishes": (("xe", "ye", _SAME), ("ys", "xs", _LESS)),
    "equals": (("xs", "ys", _SAME), ("xe", "ye", _SAME)),
}


@dataclass(frozen=True, slots=True)
class End:
    """The start or end of an interval: as a place of `RelatedItems`, and as an expression."""

    place: patterns.Place
    value: expression_nodes.Expr


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a name: a field of a variable."""

    variable: VariableName
    field: str

    @property
    def value(self) -> expression_nodes.Field:
        return expression_nodes.Field(self.variable, self.field)


@dataclass(slots=True)
class _Row:
    """A row of a table that is joined with the event `host`. `stream` is the stream of the joined events."""

    atom: rules.Atom
    host: VariableName
    stream: WithRow
    on: list[tuple[str, str]] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)


class _Columns:
    """The names of the columns that Ensue adds to events. They differ from all names in the rule."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._names: dict[int | tuple[WithRow, str], str] = {}

    def of_place(self, place: int) -> str:
        """The name of the attribute at a position, as long as its real name is unknown."""
        return self._of(place, f"${place + 1}")

    def of_row(self, stream: WithRow, column: str) -> str:
        """The name of a column of the joined row."""
        return self._of((stream, column), f"{stream.table}#{stream.rule}.{stream.number}.{column}")

    def _of(self, what: int | tuple[WithRow, str], name: str) -> str:
        if what not in self._names:
            while name in self._taken:
                name += "_"
            self._taken.add(name)
            self._names[what] = name
        return self._names[what]


class RuleReader:
    """Lowers one checked rule to statements."""

    def __init__(self, part: RulePart, number: int, ruleset: rules.Ruleset, attributes: Attributes) -> None:
        self.part = part
        self.rule = rule = part.rule
        self.number = number
        self.ruleset = ruleset
        self.attributes = attributes
        self.items: list[patterns.Pattern] = []
        self.relations: list[patterns.Relation] = []
        self.timers: list[patterns.Timer] = []
        self.conditions: list[expression_nodes.Expr] = []
        self.columns = _Columns(_fields_in(rule, attributes))
        self.bound: dict[str, list[Occurrence]] = {}
        self.aside: dict[str, list[Occurrence]] = {}
        self.ends: dict[VariableName, tuple[End, End]] = {}
        self.rows: list[_Row] = []
        self.representatives: dict[VariableName, OneOf] = {}
        self.span: Span | None = None
        self.words = ""
        self._numbers = count(1)
        named = [item.atom if isinstance(item, rules.While) else item for item in rule.body]
        self._taken = [
            item.name for item in named if isinstance(item, rules.Atom | rules.TimerItem) and item.name is not None
        ]

    def statements(self) -> Iterator[patterns.PatternQuery]:
        """The declarations of the joined streams, followed by the declaration of the head."""
        tables = tables_of(self.ruleset)
        atoms = [item for item in self.rule.body if isinstance(item, rules.Atom)]
        for atom in atoms:
            if atom.stream not in tables:
                self._read_event(atom)
        positive = len(self.items)
        for atom in atoms:
            if atom in self.part.tests:
                self._read_test(atom)
            elif atom.stream in tables:
                self._read_row(atom)
        self._equate()
        for item in self.rule.body:
            if isinstance(item, rules.TimerItem):
                self._ends_of(item.name)
        whiles = [item for item in self.rule.body if isinstance(item, rules.While)]
        asides = [(item, self._variable(item.atom)) for item in whiles]
        for item, variable in asides:
            self._read_names(item.atom, variable, self.aside)
        grouping = self._grouping_names()
        for item, variable in asides:
            self._read_while(item, variable, grouping)
        for item in self.rule.body:
            self._read_item(item)
        returns = self._returns()
        pattern = self._operators() if self.rule.policy in patterns.CONTEXTS else self._pattern(positive)
        yield from self._row_statements(returns)
        yield patterns.PatternQuery(
            pattern,
            self.part.name,
            where=all_of(self.conditions),
            returns=returns,
            declares=True,
            rule=self.part.written,
            policy=self.rule.policy,
            consume=self.rule.consume or None,
            span=self.rule.span,
        )

    def _operators(self) -> patterns.Pattern:
        """The events as operands of AND, for a policy that chooses at each operator; relations become conditions."""
        values = {end.place: end.value for ends in self.ends.values() for end in ends}
        for relation in self.relations:
            right = values[relation.right]
            if relation.window is not None:
                right = expression_nodes.Binary("+", right, length_of(relation.window), relation.span)
            comparison = "<" if relation.strict else "<="
            condition = expression_nodes.Binary(comparison, values[relation.left], right, relation.span)
            if condition not in self.conditions:
                self.conditions.append(condition)
        return self.items[0] if len(self.items) == 1 else patterns.And(tuple(self.items), self.rule.span)

    def _pattern(self, positive: int) -> patterns.RelatedItems:
        starts = [start.place.item for start, _ in self.ends.values() if start.place.item < 0]
        ends = [end.place.item for _, end in self.ends.values() if end.place.item < 0]
        return patterns.RelatedItems(
            "RULE",
            tuple(self._with_rows(item) for item in self.items),
            tuple(self.relations),
            (*range(positive), *starts),
            (*range(positive), *ends),
            timers=tuple(self.timers),
            span=self.rule.span,
        )

    # --- Events and rows

    def _variable(self, atom: rules.Atom) -> VariableName:
        """The name of an item. An item without a name gets that of its stream, with a number if there are several."""
        if atom.name is not None:
            return atom.name
        if self.rule.policy is not None:
            # The text of the operators, which saved states have, needs names that can be written.
            name = next(name for name in _numbered(atom.stream) if name not in self._taken)
            self._taken.append(name)
            return name
        self._taken.append(atom.stream)
        number = self._taken.count(atom.stream)
        return atom.stream if number == 1 else Further(atom.stream, number)

    def _event(self, atom: rules.Atom, variable: VariableName) -> patterns.Event:
        named = [argument for argument in atom.arguments if argument.attribute is not None]
        return patterns.Event(
            atom.stream if self.part.of is None else self.part.of,
            variable,
            positions=self._positions(atom),
            span=atom.span,
            attributes=tuple(_attribute_of(argument) for argument in named),
        )

    def _positions(self, atom: rules.Atom) -> tuple[str, ...] | None:
        """The names of the attributes if their order is not declared."""
        by_position = atom.arguments and all(argument.attribute is None for argument in atom.arguments)
        if not by_position or atom.stream in self.attributes:
            return None
        return tuple(map(self.columns.of_place, range(len(atom.arguments))))

    def _add(self, item: patterns.Pattern, variable: VariableName) -> int:
        place = len(self.items)
        self.items.append(item)
        self.ends[variable] = (
            End(patterns.Place(place, "s"), expression_nodes.Field(variable, "s")),
            End(patterns.Place(place, "e"), expression_nodes.Field(variable, "e")),
        )
        return place

    def _read_event(self, atom: rules.Atom) -> None:
        variable = self._variable(atom)
        self._add(self._event(atom, variable), variable)
        self._read_names(atom, variable, self.bound)

    def _read_names(
        self,
        atom: rules.Atom,
        variable: VariableName,
        names: dict[str, list[Occurrence]],
        column: Callable[[str], str] = lambda attribute: attribute,
    ) -> None:
        for place, argument in enumerate(atom.arguments):
            at = Occurrence(variable, column(self.attribute(atom, place)))
            match argument.term:
                case rules.Name(name=name):
                    names.setdefault(name, []).append(at)
                case expression_nodes.Literal() as literal:
                    self.conditions.append(expression_nodes.Binary("=", at.value, literal, argument.span))

    def attribute(self, atom: rules.Atom, place: int) -> str:
        """The attribute at a position of an atom. If only the data define it, a generated name."""
        known = self.attributes.get(atom.stream)
        return atom.arguments[place].attribute or (known[place] if known is not None else self.columns.of_place(place))

    def _read_row(self, atom: rules.Atom) -> None:
        names = {argument.term.name for argument in atom.arguments if isinstance(argument.term, rules.Name)}
        sharing = [at.variable for name in self.bound if name in names for at in self.bound[name]]
        events = [item.variable for item in self.items if isinstance(item, patterns.Event) and item.variable]
        host = next((name for name in events if name in sharing), events[0])
        number = next(self._numbers)
        base = next((row.stream for row in reversed(self.rows) if row.host == host), self._stream_of(host))
        row = _Row(atom, host, WithRow(base, atom.stream, self.number, number))
        for place, argument in enumerate(atom.arguments):
            attribute = self.attribute(atom, place)
            row.columns[attribute] = self.columns.of_row(row.stream, attribute)
            known = self.bound.get(argument.term.name, []) if isinstance(argument.term, rules.Name) else []
            row.on += [(at.field, attribute) for at in known[:1] if at.variable == host]
        self.rows.append(row)
        self._read_names(atom, host, self.bound, lambda attribute: row.columns[attribute])

    def _stream_of(self, variable: VariableName) -> Stream:
        return next(
            item.stream for item in self.items if isinstance(item, patterns.Event) and item.variable == variable
        )

    def _with_rows(self, item: patterns.Pattern) -> patterns.Pattern:
        """Replace an event that is joined with rows of tables by an event of the joined stream."""
        if not isinstance(item, patterns.Event):
            return item
        streams = [row.stream for row in self.rows if row.host == item.variable]
        return _joined(item, streams[-1]) if streams else item

    def _row_statements(self, returns: Sequence[patterns.Return]) -> Iterator[patterns.PatternQuery]:
        used = (*self.conditions, *(column.expression for column in returns))
        for place, row in enumerate(self.rows):
            earlier = [other for other in self.rows[:place] if other.host == row.host]
            event = next(item for item in self.items if isinstance(item, patterns.Event) and item.variable == row.host)
            base = _joined(event, earlier[-1].stream) if earlier else event
            later = {name for other in self.rows if other.host == row.host for name in other.columns.values()}
            own = [name for name in fields_of(row.host, used) if name not in later]
            own += [name for other in self.rows if other.host == row.host for name, _ in other.on if name not in later]
            kept = dict.fromkeys((*own, *(name for other in earlier for name in other.columns.values())))
            columns = [patterns.Return(expression_nodes.Field(row.host, name), name) for name in kept]
            yield patterns.PatternQuery(
                base,
                row.stream,
                returns=tuple(columns) or (patterns.Return(expression_nodes.Field(row.host, "s"), "start"),),
                declares=True,
                lookup=patterns.Lookup(row.atom.stream, tuple(row.on), tuple(row.columns.items())),
                span=row.atom.span or self.rule.span,
            )

    # --- Names

    def _equate(self) -> None:
        """Add the conditions that all occurrences of a name are equal."""
        joined = {(row.host, left, row.columns[right]) for row in self.rows for left, right in row.on}
        for places in self.bound.values():
            first, *others = places
            for other in others:
                if (first.variable, first.field, other.field) not in joined:
                    self.conditions.append(expression_nodes.Binary("=", first.value, other.value, self.rule.span))

    def _agree(self, atom: rules.Atom, variable: VariableName) -> Iterator[expression_nodes.Expr]:
        """The conditions that forbidden or listed events have the bound values."""
        seen: dict[str, Occurrence] = {}
        for place, argument in enumerate(atom.arguments):
            if isinstance(argument.term, rules.Name):
                name, at = argument.term.name, Occurrence(variable, self.attribute(atom, place))
                known = self.bound[name][0] if name in self.bound else seen.get(name)
                seen.setdefault(name, at)
                if known is not None:
                    yield expression_nodes.Binary("=", known.value, at.value, argument.span)

    def _require_values(self, atom: rules.Atom) -> None:
        """Require that a repeated name is not null. If two events share it, the equality already requires this."""
        for argument in atom.arguments:
            places = self.bound.get(argument.term.name, []) if isinstance(argument.term, rules.Name) else []
            if len(places) == 1:
                required = expression_nodes.IsNull(places[0].value, negated=True)
                if required not in self.conditions:
                    self.conditions.append(required)

    # --- Intervals

    def _ends_of(self, name: str) -> tuple[End, End]:
        if name not in self.ends:
            timer = next(item for item in self.rule.body if isinstance(item, rules.TimerItem) and item.name == name)
            base = self._ends_of(timer.base)
            start, end = _SIDES[timer.kind]
            self.ends[name] = (self._end(timer, base, start, "s"), self._end(timer, base, end, "e"))
        return self.ends[name]

    def _end(self, item: rules.TimerItem, base: tuple[End, End], side: tuple[str, int], own: str) -> End:
        end, direction = base[0] if side[0] == "s" else base[1], side[1]
        if direction == 0 or is_nothing(item.window):
            return end
        place = patterns.Place(patterns.TIMER - len(self.timers), "e")
        self.timers.append(patterns.Timer(Edge(item.name, own), end.place, item.window, backward=direction < 0))
        return End(
            place, expression_nodes.Binary("+" if direction > 0 else "-", end.value, length_of(item.window), item.span)
        )

    def _relate(
        self, left: patterns.Place, right: patterns.Place, strict: bool = False, window: patterns.Window | None = None
    ) -> None:
        self.relations.append(patterns.Relation(left, right, window, strict, span=self.span, words=self.words))

    def _read_while(self, item: rules.While, variable: VariableName, grouping: Mapping[str, VariableName]) -> None:
        event = self._event(item.atom, variable)
        self._require_values(item.atom)
        agreed = list(self._agree(item.atom, variable))
        self.conditions += agreed
        groups = [at for name, at in self._occurrences_of(item.atom, variable) if grouping.get(name) == variable]
        shared: tuple[VariableName, ...] = ()
        if groups:
            shared = (self._read_representative(item, variable, groups, agreed),)
        aside = (
            patterns.Repeat(event, 0, None, True, item.span, shares=shared)
            if item.collects
            else patterns.Not(event, item.span)
        )
        self._place_inside(item.interval, self._add_aside(aside))

    def _add_aside(self, item: patterns.Pattern) -> int:
        self.items.append(item)
        return len(self.items) - 1

    def _place_inside(self, interval: str, place: int) -> None:
        start, end = self._ends_of(interval)
        self._relate(start.place, patterns.Place(place, "s"), strict=True)
        self._relate(patterns.Place(place, "e"), end.place, strict=True)

    def _occurrences_of(self, atom: rules.Atom, variable: VariableName) -> Iterator[tuple[str, Occurrence]]:
        for place, argument in enumerate(atom.arguments):
            if isinstance(argument.term, rules.Name):
                yield argument.term.name, Occurrence(variable, self.attribute(atom, place))

    def _read_representative(
        self,
        item: rules.While,
        variable: VariableName,
        groups: Sequence[Occurrence],
        agreed: Sequence[expression_nodes.Expr],
    ) -> OneOf:
        """One of the listed events, for the values by which they are grouped. Each group results in one event."""
        other = OneOf(variable)
        self.representatives[variable] = other
        self._place_inside(item.interval, self._add_aside(self._event(item.atom, other)))
        self.conditions += [_about(condition, variable, other) for condition in agreed]
        for place, argument in enumerate(item.atom.arguments):
            if isinstance(argument.term, expression_nodes.Literal):
                at = Occurrence(other, self.attribute(item.atom, place))
                self.conditions.append(expression_nodes.Binary("=", at.value, argument.term, argument.span))
        self.conditions += [_same_group(at.value, expression_nodes.Field(other, at.field)) for at in groups]
        return other

    # --- The rest of the body, and the head

    def _read_item(self, item: rules.Item) -> None:
        self.span, self.words = item.span, _words_of(item)
        match item:
            case rules.Together():
                for x in item.names:
                    for y in item.names:
                        self._relate(self._ends_of(y)[1].place, self._ends_of(x)[0].place, window=item.window)
            case rules.Temporal():
                self._read_temporal(item)
            case rules.Condition():
                self._read_condition(item.expression)
            case rules.Absent():
                self._read_absent(item)
            case rules.Causes():
                self._read_cause(item)

    def _read_temporal(self, item: rules.Temporal) -> None:
        turned = item.relation not in rules.ALLEN
        relation = next(name for name, other in rules.ALLEN.items() if item.relation in (name, other))
        x, y = (item.right, item.left) if turned else (item.left, item.right)
        (xs, xe), (ys, ye) = self._ends_of(x), self._ends_of(y)
        places = {"xs": xs.place, "xe": xe.place, "ys": ys.place, "ye": ye.place}
        for left, right, strict in _ALLEN[relation]:
            self._relate(places[left], places[right], strict)
            if not strict:
                self._relate(places[right], places[left])

    def _read_condition(self, expression: expression_nodes.Expr) -> None:
        condition = expression_nodes.substitute_fields(expression, self._value)
        self.conditions.append(condition)
        for variable, other in self.representatives.items():
            if variable in outside_aggregates(condition):
                self.conditions.append(_about(condition, variable, other))

    def _read_absent(self, item: rules.Absent) -> None:
        self._require_values(item.atom)
        self.conditions.append(self._has_row(item.atom, self._tested(item.atom), negated=True))

    def _read_test(self, atom: rules.Atom) -> None:
        """A row as a condition on the events that bind its names, and on each of them alone."""
        tested = self._tested(atom)
        self.conditions.append(self._has_row(atom, tested))
        variables = dict.fromkeys(value.variable for value, _ in tested if isinstance(value, expression_nodes.Field))
        for variable in variables if len(variables) > 1 else ():
            own = [
                (value, column)
                for value, column in tested
                if not isinstance(value, expression_nodes.Field) or value.variable == variable
            ]
            self.conditions.append(self._has_row(atom, own))

    def _tested(self, atom: rules.Atom) -> list[tuple[expression_nodes.Expr, str]]:
        """The known values in a row of a table, each with its column."""
        tested: list[tuple[expression_nodes.Expr, str]] = []
        for place, argument in enumerate(atom.arguments):
            match argument.term:
                case rules.Name(name=name) if name in self.bound:
                    tested.append((self.bound[name][0].value, self.attribute(atom, place)))
                case expression_nodes.Literal() as literal:
                    tested.append((literal, self.attribute(atom, place)))
        return tested

    def _has_row(
        self, atom: rules.Atom, tested: Sequence[tuple[expression_nodes.Expr, str]], negated: bool = False
    ) -> expression_nodes.HasRow:
        operands, columns = tuple(value for value, _ in tested), tuple(column for _, column in tested)
        return expression_nodes.HasRow(operands, atom.stream, columns, negated, atom.span)

    def _read_cause(self, item: rules.Causes) -> None:
        variable = Chain(next(self._numbers))
        found = rules.cause_item(
            item, variable, self._stream_of(item.cause), self._stream_of(item.effect), self.ruleset
        )
        place = self._add_aside(found.event)
        self.conditions += found.conditions
        (cause, _), (_, effect) = self._ends_of(item.cause), self._ends_of(item.effect)
        self._relate(cause.place, patterns.Place(place, "s"))
        self._relate(patterns.Place(place, "s"), cause.place)
        self._relate(patterns.Place(place, "e"), effect.place)

    def _value(self, part: expression_nodes.Field) -> expression_nodes.Expr:
        """The value of a name, or of a field of an item or timer."""
        if part.variable is None:
            places = self.bound.get(part.name) or self.aside.get(part.name)
            return replace(places[0].value, span=part.span) if places else part
        if part.variable in {item.name for item in self.rule.body if isinstance(item, rules.TimerItem)}:
            start, end = self._ends_of(part.variable)
            return end.value if part.name == "e" else start.value
        row = next((row for row in self.rows if row.atom.name == part.variable), None)
        if row is not None:
            row.columns[part.name] = self.columns.of_row(row.stream, part.name)
            return expression_nodes.Field(row.host, row.columns[part.name], part.span)
        return part

    def _grouping_names(self) -> dict[str, VariableName]:
        """The names of the head, outside aggregates, that only a `collect` binds, and the variable of its events."""
        found: dict[str, VariableName] = {}
        for argument in self.rule.arguments:
            for name in bare_names_outside_aggregates(argument.expression):
                if name in self.aside and name not in self.bound:
                    found[name] = self.aside[name][0].variable
        return found

    def _returns(self) -> tuple[patterns.Return, ...]:
        attributes = self.part.columns
        arguments = in_order_of(self.rule, attributes)
        return tuple(
            patterns.Return(self._head_value(argument.expression), name, argument.span)
            for name, argument in zip(attributes, arguments, strict=True)
        )

    def _head_value(self, expression: expression_nodes.Expr) -> expression_nodes.Expr:
        """A value of the head. Inside an aggregate a name is the listed values; outside, the value of its group."""

        def value(part: expression_nodes.Expr) -> expression_nodes.Expr | None:
            if is_aggregate(part):
                return replace(
                    part,
                    arguments=tuple(expression_nodes.substitute_fields(each, self._value) for each in part.arguments),
                )
            if not isinstance(part, expression_nodes.Field):
                return None
            found = self._value(part)
            if (
                part.variable is None
                and isinstance(found, expression_nodes.Field)
                and found.variable in self.representatives
            ):
                return replace(found, variable=self.representatives[found.variable])
            return found

        return expression_nodes.rewrite(expression, value)


def _fields_in(rule: rules.Rule, attributes: Attributes) -> set[str]:
    """All names that a field of an event may have in a rule."""
    atoms = [
        item.atom if isinstance(item, rules.While) else item
        for item in rule.body
        if isinstance(item, rules.Atom | rules.While)
    ]
    named = {argument.attribute for atom in atoms for argument in atom.arguments if argument.attribute is not None}
    declared = {name for atom in atoms for name in attributes.get(atom.stream, ())}
    conditions = [item.expression for item in rule.body if isinstance(item, rules.Condition)]
    expressions = [*conditions, *(argument.expression for argument in rule.arguments)]
    return (
        named
        | declared
        | {
            part.name
            for each in expressions
            for part in expression_nodes.walk(each)
            if isinstance(part, expression_nodes.Field)
        }
    )


def _numbered(name: str) -> Iterator[str]:
    """`A`, `A_2`, `A_3` and so on."""
    yield name
    yield from (f"{name}_{number}" for number in count(2))


def _attribute_of(argument: rules.Argument) -> expression_nodes.Field:
    """The attribute that an argument names, at its place."""
    name = argument.attribute or ""
    return expression_nodes.Field(None, name, None if argument.span is None else argument.span.head(len(name)))


def _joined(event: patterns.Event, stream: WithRow) -> patterns.Event:
    """An event that is joined with a row of a table."""
    return replace(event, stream=stream, positions=None, attributes=())


def _words_of(item: rules.Item) -> str:
    """The temporal condition of an item, for messages."""
    match item:
        case rules.Together():
            return f"`{{{', '.join(item.names)}}} within ...`"
        case rules.Temporal():
            return f"`{item.left} {item.relation} {item.right}`"
        case _:
            return ""


def is_nothing(window: patterns.Window) -> bool:
    """Whether a length is zero."""
    return (window.nanoseconds if isinstance(window, expression_nodes.Duration) else window.count) == 0


def length_of(window: patterns.Window) -> expression_nodes.Expr:
    """A length of time as an expression."""
    assert isinstance(window, expression_nodes.Duration | patterns.Ticks)
    return (
        window if isinstance(window, expression_nodes.Duration) else expression_nodes.Literal(window.count, window.span)
    )


def fields_of(variable: VariableName, expressions: Iterable[expression_nodes.Expr]) -> list[str]:
    """The fields of a variable in expressions, except for its times."""
    found = [
        part for each in expressions for part in expression_nodes.walk(each) if isinstance(part, expression_nodes.Field)
    ]
    names = (part.name for part in found if part.variable == variable and part.name not in TIME_NAMES)
    return list(dict.fromkeys(names))


def bare_names_outside_aggregates(expression: expression_nodes.Expr) -> Iterator[str]:
    """The names without a variable outside the aggregates of an expression."""
    if isinstance(expression, expression_nodes.Field) and expression.variable is None:
        yield expression.name
    if not is_aggregate(expression):
        for child in expression_nodes.children(expression):
            yield from bare_names_outside_aggregates(child)


def outside_aggregates(expression: expression_nodes.Expr) -> frozenset[VariableName]:
    """The variables outside the aggregates of an expression."""
    if is_aggregate(expression):
        return frozenset()
    own = (
        frozenset({expression.variable})
        if isinstance(expression, expression_nodes.Field) and expression.variable
        else frozenset()
    )
    return own.union(*(outside_aggregates(child) for child in expression_nodes.children(expression)))


def _about(condition: expression_nodes.Expr, variable: VariableName, other: VariableName) -> expression_nodes.Expr:
    def change(part: expression_nodes.Field) -> expression_nodes.Field:
        return replace(part, variable=other) if part.variable == variable else part

    return expression_nodes.substitute_fields(condition, change)


def _same_group(left: expression_nodes.Field, right: expression_nodes.Field) -> expression_nodes.Expr:
    """The condition that two fields are equal or both null."""
    both = expression_nodes.Binary("and", expression_nodes.IsNull(left), expression_nodes.IsNull(right))
    return expression_nodes.Binary("or", expression_nodes.Binary("=", left, right), both)


def all_of(conditions: Sequence[expression_nodes.Expr]) -> expression_nodes.Expr | None:
    """The conjunction of the conditions, or None if there are none."""
    result: expression_nodes.Expr | None = None
    for condition in conditions:
        result = condition if result is None else expression_nodes.Binary("and", result, condition)
    return result
