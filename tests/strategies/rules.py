"""Hypothesis strategies for programs of rules, with tables, facts and streams of patterns, and histories for them.

All programs are stratified and every recursion ends: a rule that uses its own head, or one worked out together with it,
has no timer that ends after its event, and computes new values only where time goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import assume
from hypothesis import strategies as st

from inside import (
    ALLEN,
    RELATIONS,
    TIMERS,
    Absent,
    Alternatives,
    Anything,
    Argument,
    Atom,
    Binary,
    Call,
    Causes,
    Condition,
    Event,
    Expr,
    Fact,
    Field,
    HeadArgument,
    IsNull,
    Item,
    Literal,
    Not,
    PatternQuery,
    Return,
    Rule,
    Ruleset,
    Seq,
    Statements,
    StreamDeclaration,
    TableDeclaration,
    Temporal,
    Term,
    Ticks,
    TimerItem,
    Together,
    While,
    all_items,
    alternatives,
    walk_expression,
)
from inside import BoundName as Name
from oracle.conditions import Value
from oracle.model import OracleEvent
from oracle.rules import Derived, derive, head_attributes
from own_functions import marked, near, twice

NUMBER, TEXT = "number", "text"
KINDS = {"k": NUMBER, "x": NUMBER, "y": NUMBER, "name": TEXT}
POOLS = {"k": ("i", "i", "i", "i", "j"), "x": ("j", "j", "m", "i"), "y": ("m", "m", "j"), "name": ("n",)}
"""Few names, so that many of them stand in several places, and most in places of the same column."""
OTHERS = {NUMBER: ("i", "j", "m", "m"), TEXT: ("n",)}
LITERALS: dict[str, tuple[Value, ...]] = {NUMBER: (0, 1, 1, 2), TEXT: ("a", "b")}
DECLARED = {"A": ("k", "x", "y"), "B": ("k", "x", "name"), "C": ("x", "k")}
INPUTS = ("A", "B", "C")
HEADS = ("h1", "h2", "h3", "h4")
VALUES: dict[str, tuple[Value, ...]] = {
    "k": (1, 1, 1, 1, 1, 2, None),
    "x": (0, 1, 1, 1, 2, None),
    "y": (0, 1, 2, 2, 2, None),
    "name": ("a", "a", "b", None),
}
FORWARD = ("extend", "shift", "from_end", "from_start")
BACKWARD = tuple(sorted(TIMERS - set(FORWARD)))
LIKELY = (*("before", "after") * 5, "during", "overlaps", "meets", *sorted(RELATIONS) * 2)
FITTING = {
    "extend": "starts",
    "extend_backward": "finishes",
    "shift": "overlaps",
    "shift_backward": "overlapped_by",
    "from_end": "meets",
    "from_end_backward": "finished_by",
    "from_start": "starts",
    "from_start_backward": "met_by",
}
"""How an event often relates to a timer of its own; other relations rarely hold there."""
MOST_DERIVED = 120


@dataclass(frozen=True, slots=True)
class RuleCase:
    """A program with its tables, a history, and what the oracle derives."""

    program: Statements
    tables: dict[str, list[dict[str, Value]]]
    history: list[OracleEvent]
    derived: Derived


@dataclass(slots=True)
class Streams:
    """What rules can speak about so far: the attributes of each stream or table and their kinds, in order."""

    events: dict[str, dict[str, str]]
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    has_functions: bool = False
    has_policies: bool = False

    def attributes(self, name: str) -> dict[str, str]:
        return self.tables[name] if name in self.tables else self.events[name]


class Sketch:
    """A rule that is being drawn: its items, and the names that are bound so far with their kinds."""

    def __init__(self, draw: st.DrawFn, streams: Streams) -> None:
        self.draw, self.streams = draw, streams
        self.items: list[Item] = []
        self.names: dict[str, str] = {}
        self.events: list[str] = []
        self.timers: list[str] = []
        self.listed: dict[str, dict[str, str]] = {}
        self.numbers = 0
        self.odd: frozenset[str] = frozenset()

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def choose(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(tuple(options)))

    def new_name(self, letter: str) -> str:
        """A name that no other part has; every third one looks like those that Ensue makes itself."""
        self.numbers += 1
        number = self.numbers
        if number % 3:
            return f"{letter}{number}"
        odd = (
            f"{INPUTS[number % 2]} 2",
            f"one of c{number - 1}",
            "causes#1",
            f"T#1.{number // 3}.x",
            f"${number // 3 + 1}",
            f"e{number - 2}.s",
        )
        name = odd[(number // 3 + ord(letter)) % len(odd)]
        self.odd, repeated = self.odd | {name}, name in self.odd
        return f"{letter}{number}" if repeated else name

    # Items

    def atom(self, stream: str, name: str | None, fresh: bool = False) -> tuple[Atom, dict[str, str]]:
        """An event or row of the stream, and the names in it with their kinds; `fresh`: some are its own."""
        attributes = self.streams.attributes(stream)
        places = list(attributes)
        by_name = self.chance(50)
        if by_name:
            places = [place for place in places if self.chance(70)] or places[:1]
        names: dict[str, str] = {}
        terms = [self.term(place, attributes[place], names, fresh) for place in places]
        arguments = tuple(Argument(term, place if by_name else None) for place, term in zip(places, terms, strict=True))
        return Atom(stream, arguments, name), names

    def term(self, place: str, kind: str, names: dict[str, str], fresh: bool) -> Term:
        what = self.draw(st.integers(0, 99))
        if what < 20:
            return Anything()
        if what < 26:
            return Literal(self.draw(st.sampled_from(LITERALS[kind])))
        if fresh and what < 65:
            name = self.new_name("v")
        elif fresh:
            bound = [name for name, of_kind in self.names.items() if of_kind == kind]
            if not bound:
                return Anything()
            name = self.choose(bound)
        else:
            name = self.choose(POOLS.get(place, OTHERS[kind]))
        names[name] = kind
        return Name(name)

    def event(self, stream: str) -> str:
        key = self.new_name("e")
        atom, names = self.atom(stream, key)
        self.items.append(atom)
        self.names |= names
        self.events.append(key)
        return key

    def table(self) -> None:
        atom, names = self.atom(self.choose(list(self.streams.tables)), None)
        self.items.append(atom)
        self.names |= names

    def absent(self, tables: Sequence[str]) -> None:
        """No row of a table has these values; all names in it are bound elsewhere."""
        table = self.choose(tables)
        terms: list[Term] = []
        for kind in self.streams.tables[table].values():
            bound = [name for name, of_kind in self.names.items() if of_kind == kind]
            literal = Literal(self.draw(st.sampled_from(LITERALS[kind]))) if self.chance(20) else Anything()
            terms.append(Name(self.choose(bound)) if bound and self.chance(70) else literal)
        self.items.append(Absent(Atom(table, tuple(map(Argument, terms)))))

    def timer(self, kinds: Sequence[str], bases: Sequence[str], least: int = 0) -> str:
        key = self.new_name("w")
        window = Ticks(self.draw(st.integers(least, least + 5)))
        self.items.append(TimerItem(key, self.choose(kinds), self.choose(bases), window))
        self.timers.append(key)
        return key

    def relation(self) -> None:
        timers = [item for item in self.items if isinstance(item, TimerItem)]
        if timers and self.chance(40):
            timer = self.draw(st.sampled_from(timers))
            fitting = Temporal(timer.base, FITTING[timer.kind], timer.name)
            self.items.append(fitting if self.chance(50) else turned_around(fitting))
            return
        left, right = self.draw(st.permutations([*self.events, *self.timers]))[:2]
        self.items.append(Temporal(left, self.choose(LIKELY), right))

    def together(self) -> None:
        names = tuple(self.draw(st.permutations([*self.events, *self.timers])))[: self.draw(st.integers(1, 3))]
        self.items.append(Together(names, Ticks(self.draw(st.integers(1, 8)))))

    def absence(self, streams: Sequence[str]) -> None:
        """A `while ... not` or `while ... collect`, over an interval that is long enough to hold something."""
        stream, collects = self.choose(streams), self.chance(60)
        named = self.new_name("c") if self.chance(60) else None
        interval = self.choose(self.timers) if self.timers and self.chance(50) else self.stretch()
        atom, names = self.atom(stream, named, fresh=True)
        own = {name: kind for name, kind in names.items() if name not in self.names}
        self.items.append(While(interval, atom, collects))
        if own and self.chance(30):
            name = self.choose(list(own))
            self.items.append(Condition(self.comparison(Field(None, name), own[name])))
        elif named is not None and self.chance(20):
            self.items.append(Condition(Binary(">", Field(named, "s"), Field(self.choose(self.events), "s"))))
        if collects:
            self.listed[named or len(self.items)] = own

    def stretch(self) -> str:
        return self.timer(("extend", "from_end", "extend_backward", "from_end_backward"), self.events, least=2)

    def condition(self) -> None:
        numbers = [name for name, kind in self.names.items() if kind == NUMBER]
        if self.streams.has_functions and numbers and self.chance(60):
            sides = (Field(None, self.choose(numbers)), Field(None, self.choose(numbers)))
            self.items.append(Condition(Call("near", sides, function=near)))
            return
        what = self.draw(st.integers(0, 3))
        if what == 0 and len(numbers) > 1:
            left, right = self.draw(st.permutations(numbers))[:2]
            self.items.append(Condition(Binary(self.choose(("<=", "<", "!=")), Field(None, left), Field(None, right))))
        elif what == 1 and self.names:
            name = self.choose(list(self.names))
            self.items.append(Condition(self.comparison(Field(None, name), self.names[name])))
        elif what == 2 and self.listed:
            self.items.append(Condition(Binary(self.choose((">=", "=", "<")), self.aggregate(), Literal(1))))
        else:
            left, right = (self.choose([*self.events, *self.timers]) for _ in range(2))
            late = Binary("+", Field(right, self.choose("se")), Literal(self.draw(st.integers(0, 4))))
            self.items.append(Condition(Binary("<=", Field(left, self.choose("se")), late)))

    def alternative(self) -> None:
        """OR between an event and one of another stream with the same names, or with a condition of its own."""
        place = self.draw(st.sampled_from([n for n, item in enumerate(self.items) if isinstance(item, Atom)]))
        one = self.items[place]
        assert isinstance(one, Atom)
        names = [argument.term.name for argument in one.arguments if isinstance(argument.term, Name)]
        other = self.choose(INPUTS)
        attributes = self.streams.attributes(other)
        arguments = []
        for name in dict.fromkeys(names):
            fitting = [attribute for attribute, kind in attributes.items() if kind == self.names[name]]
            if not fitting:
                return
            arguments.append(Argument(Name(name), self.choose(fitting)))
        if one.stream in self.streams.tables:
            return
        choices: list[tuple[Item, ...]] = [(one,), (Atom(other, tuple(arguments), one.name),)]
        if names and self.chance(40):
            name = self.choose(names)
            condition = Condition(self.comparison(Field(None, name), self.names[name]))
            number = self.draw(st.integers(0, 1))
            choices[number] = (*choices[number], condition)
        self.items[place] = alternatives(choices)

    def comparison(self, operand: Expr, kind: str) -> Expr:
        if self.chance(15):
            return IsNull(operand, negated=self.chance(50))
        literal = Literal(self.draw(st.sampled_from(LITERALS[kind])))
        return Binary(self.choose(("=", "!=", "<=", ">=")), operand, literal)

    # Heads

    def value(self, kind: str, *, computes: bool = True) -> Expr:
        """What an argument of the head is: a number or a text."""
        bound = [name for name, of_kind in self.names.items() if of_kind == kind]
        if not bound or self.chance(8):
            return Literal(self.draw(st.sampled_from(LITERALS[kind])))
        name = Field(None, self.choose(bound))
        if self.streams.has_functions and self.chance(40):
            function = twice if kind == NUMBER and computes else marked if kind == TEXT else None
            return name if function is None else Call(function.name, (name,), function=function)
        if kind == TEXT or not computes or self.chance(60):
            return name
        other = Field(None, self.choose(bound)) if self.chance(50) else Literal(self.draw(st.integers(1, 3)))
        return Binary(self.choose(("+", "-", "*")), name, other)

    def aggregate(self, kind: str = NUMBER) -> Expr:
        """An aggregate over something that is listed; a number, unless texts are to be had."""
        key = self.choose(list(self.listed))
        own = [name for name, of_kind in self.listed[key].items() if of_kind == kind]
        if kind == NUMBER and isinstance(key, str) and (not own or self.chance(50)):
            return Call("count", (Field(None, key),))
        if not own:
            return Literal(LITERALS[kind][0])
        functions = ("sum", "min", "max", "count", "avg", "sum") if kind == NUMBER else ("min", "max")
        operand: Expr = Field(None, self.choose(own))
        if kind == NUMBER and self.chance(20):
            bound = [name for name, of_kind in self.names.items() if of_kind == NUMBER]
            operand = Binary("+", operand, Field(None, self.choose(bound)) if bound else Literal(1))
        return Call(self.choose(functions), (operand,))

    def argument(self, kind: str) -> Expr:
        groups = [name for own in self.listed.values() for name, of_kind in own.items() if of_kind == kind]
        if groups and self.chance(30):
            return Field(None, self.choose(groups))
        if self.listed and self.chance(60):
            return self.aggregate(kind)
        return self.value(kind)


def turned_around(temporal: Temporal) -> Temporal:
    turned = ALLEN | {turned: relation for relation, turned in ALLEN.items()}
    return Temporal(temporal.right, turned[temporal.relation], temporal.left)


# Rules


def rule_of(sketch: Sketch, head: str, kinds: Sequence[str], lower: Sequence[str]) -> Rule:
    """A rule that uses streams of lower strata only."""
    plain = sketch.streams.has_policies and sketch.chance(75)
    for _ in range(sketch.draw(st.sampled_from((2, 2, 2, 3) if plain else (1, 1, 1, 2, 2, 2, 2, 3)))):
        sketch.event(sketch.choose((*lower, *INPUTS)))
    if plain:
        return plain_rule_of(sketch, head, kinds)
    if sketch.streams.tables and sketch.chance(30):
        sketch.table()
    if sketch.streams.tables and sketch.chance(25):
        sketch.absent(list(sketch.streams.tables))
    if sketch.chance(30):
        sketch.timer(sorted(TIMERS), sketch.events + sketch.timers)
    if len(sketch.events) + len(sketch.timers) > 1 and sketch.chance(45):
        sketch.relation()
    if sketch.chance(20):
        sketch.together()
    if sketch.chance(40):
        sketch.absence(lower)
    if sketch.chance(12):
        sketch.absence(lower)
    if sketch.chance(60 if sketch.streams.has_functions else 20):
        sketch.condition()
    if sketch.chance(25):
        sketch.alternative()
    expressions = [sketch.argument(kind) for kind in kinds]
    return finished(sketch, head, expressions)


def plain_rule_of(sketch: Sketch, head: str, kinds: Sequence[str]) -> Rule:
    """A rule with the items that a policy takes."""
    for _ in range(sketch.draw(st.sampled_from((0, 1, 1, 1, 2)))):
        sketch.relation()
    if sketch.chance(30):
        sketch.together()
    if sketch.chance(30):
        sketch.condition()
    return finished(sketch, head, [sketch.value(kind) for kind in kinds])


def with_policy(sketch: Sketch, rule: Rule) -> Rule:
    """The rule, perhaps with a policy that it can have."""
    items = [item.atom if isinstance(item, While) else item for item in rule.body]
    tables = [item for item in items if isinstance(item, Atom) and item.stream in sketch.streams.tables]
    groups = any(isinstance(item, While) and item.collects for item in rule.body)
    if not sketch.streams.has_policies or tables or groups or any(isinstance(item, Alternatives) for item in items):
        return rule
    if any(isinstance(item, While | TimerItem) for item in rule.body):
        return replace(rule, consume=sketch.chance(60))
    policy = sketch.draw(st.sampled_from((None, "CONSUME", "RECENT", "RECENT", "CHRONICLE", "CHRONICLE")))
    return replace(rule, consume=True) if policy == "CONSUME" else replace(rule, policy=policy)


def recursive_rule_of(sketch: Sketch, head: str, kinds: Sequence[str], own: Sequence[str]) -> Rule:
    """A rule that uses heads with which it is worked out together."""
    goes_on = sketch.chance(60)
    recursive = sketch.event(sketch.choose(own))
    other = sketch.event(sketch.choose(INPUTS if goes_on or sketch.chance(70) else own))
    if goes_on:
        sketch.items.append(Temporal(recursive, "before", other))
    elif sketch.chance(60):
        sketch.relation()
    is_input = sketch.items[1].stream in INPUTS
    if is_input and sketch.chance(20):
        sketch.timer(BACKWARD, [other])
    if sketch.chance(20):
        sketch.condition()
    expressions = [sketch.value(kind, computes=goes_on) for kind in kinds]
    return finished(sketch, head, expressions)


def table_rule_of(sketch: Sketch, head: str, kinds: Sequence[str], complete: Sequence[str], recursive: bool) -> Rule:
    """A rule over rows of tables; `complete` are those that may be absent. It computes no new values."""
    if recursive:
        atom, names = sketch.atom(head, None)
        sketch.items.append(atom)
        sketch.names |= names
    for _ in range(sketch.draw(st.sampled_from((1, 1, 2)))):
        sketch.table()
    if sketch.chance(30):
        sketch.absent(complete)
    if sketch.names and sketch.chance(20):
        name = sketch.choose(list(sketch.names))
        sketch.items.append(Condition(sketch.comparison(Field(None, name), sketch.names[name])))
    return finished(sketch, head, [sketch.value(kind, computes=False) for kind in kinds])


def finished(sketch: Sketch, head: str, expressions: Sequence[Expr]) -> Rule:
    """The rule with its items in any order, perhaps without the names of events that nothing speaks of."""
    order = sketch.draw(st.permutations(range(len(sketch.items)))) if sketch.chance(30) else range(len(sketch.items))
    rule = Rule(head, tuple(map(HeadArgument, expressions)), tuple(sketch.items[place] for place in order))
    return without_needless_names(rule) if sketch.chance(50) else rule


def without_needless_names(rule: Rule) -> Rule:
    """The rule without the names of events that nothing speaks of."""
    spoken: set[str] = set()
    for item in rule.body:
        match item:
            case TimerItem():
                spoken.add(item.base)
            case Temporal():
                spoken |= {item.left, item.right}
            case Together():
                spoken |= {*item.names}
            case While():
                spoken.add(item.interval)
    expressions = [item.expression for item in all_items(rule.body) if isinstance(item, Condition)]
    for expression in (*expressions, *(argument.expression for argument in rule.arguments)):
        fields = [part for part in walk_expression(expression) if isinstance(part, Field)]
        spoken |= {str(part.variable) for part in fields} | {part.name for part in fields}

    def without_name(item: Item) -> Item:
        if isinstance(item, Alternatives):
            return replace(item, choices=tuple(tuple(map(without_name, choice)) for choice in item.choices))
        return replace(item, name=None) if isinstance(item, Atom) and item.name not in spoken else item

    return replace(rule, body=tuple(map(without_name, rule.body)))


def with_names(sketch: Sketch, rule: Rule) -> Rule:
    """The first rule of a head, each argument with a name of its own, or none where it needs none."""
    arguments: list[HeadArgument] = []
    for number, argument in enumerate(rule.arguments, start=1):
        taken = head_attributes(replace(rule, arguments=tuple(arguments)))
        name = head_attributes(replace(rule, arguments=(argument,)))[0]
        needs_name = name in taken
        arguments.append(replace(argument, attribute=f"v{number}") if needs_name or sketch.chance(50) else argument)
    return replace(rule, arguments=tuple(arguments))


def turned(sketch: Sketch, rule: Rule, names: Sequence[str]) -> Rule:
    """A further rule of a head, by position or by name in any order."""
    if sketch.chance(70):
        return rule
    named = [replace(argument, attribute=name) for argument, name in zip(rule.arguments, names, strict=True)]
    return replace(rule, arguments=tuple(sketch.draw(st.permutations(named))))


# Programs


@st.composite
def programs(
    draw: st.DrawFn, *, functions: bool = False, policies: bool = False
) -> tuple[Statements, dict[str, list[dict[str, Value]]]]:
    """A program of one to four heads, and its tables; perhaps with functions of the user, or with MATCH and CONSUME."""
    streams = Streams({stream: {name: KINDS[name] for name in names} for stream, names in DECLARED.items()})
    streams.has_functions, streams.has_policies = functions, policies
    tables, facts, rows = draw(drawn_tables())
    for name, columns in tables.items():
        streams.tables[name] = {column: KINDS[column] for column in columns}
    derived = draw(table_rules(streams)) if tables and draw(st.integers(0, 99)) < 50 else []
    declared = [draw(declared_streams())] if draw(st.integers(0, 99)) < 15 else []
    for query in declared:
        streams.events[query.name] = {column.alias: NUMBER for column in query.returns}
    lower = [*INPUTS, *(query.name for query in declared)]
    rules: list[Rule] = []
    for head in HEADS[: draw(st.sampled_from((1, 1, 2, 2, 3, 4)))]:
        rules += draw(rules_of(head, streams, lower))
        lower += [head, head]
    causality = draw(st.integers(0, 99)) < 10
    if causality and not policies:
        rules = [draw(with_causes(rule)) for rule in rules]
    ruleset = Ruleset(
        (*rules, *derived),
        facts,
        tuple(TableDeclaration(name, columns) for name, columns in tables.items()),
        (
            *(StreamDeclaration(stream, names) for stream, names in DECLARED.items()),
            *((StreamDeclaration(None, None, "y", "x"),) if causality else ()),
        ),
    )
    patterns = [draw(patterns_over(rules[-1].head))] if draw(st.integers(0, 99)) < 15 else []
    return Statements((*declared, *patterns), ruleset=ruleset), rows


@st.composite
def rules_of(draw: st.DrawFn, head: str, streams: Streams, lower: Sequence[str]) -> list[Rule]:
    """All rules of a head. The first uses only what is below it; the last one may use the head itself."""
    kinds = draw(st.sampled_from((*((NUMBER,), (NUMBER, NUMBER)) * 2, (NUMBER, TEXT), ())))
    first_sketch = Sketch(draw, streams)
    first = with_policy(first_sketch, with_names(first_sketch, rule_of(first_sketch, head, kinds, lower)))
    names = head_attributes(first)
    streams.events[head] = dict(zip(names, kinds, strict=True))
    rules = [first]
    if draw(st.integers(0, 99)) < 35:
        sketch = Sketch(draw, streams)
        rules.append(turned(sketch, rule_of(sketch, head, kinds, lower), names))
    if draw(st.integers(0, 99)) < 25:
        sketch = Sketch(draw, streams)
        rules.append(turned(sketch, recursive_rule_of(sketch, head, kinds, (head,)), names))
    return rules


@st.composite
def table_rules(draw: st.DrawFn, streams: Streams) -> list[Rule]:
    """The rules of one or two derived tables, perhaps recursive, which are then among the tables."""
    rules: list[Rule] = []
    for head in ("D1", "D2")[: draw(st.integers(1, 2))]:
        kinds = draw(st.sampled_from(((NUMBER,), (NUMBER, NUMBER), (NUMBER, NUMBER), (NUMBER, TEXT), ())))
        complete = list(streams.tables)
        sketch = Sketch(draw, streams)
        first = with_names(sketch, table_rule_of(sketch, head, kinds, complete, recursive=False))
        names = head_attributes(first)
        streams.tables[head] = dict(zip(names, kinds, strict=True))
        rules.append(first)
        if draw(st.integers(0, 99)) < 60:
            sketch = Sketch(draw, streams)
            recursive = draw(st.booleans())
            rules.append(turned(sketch, table_rule_of(sketch, head, kinds, complete, recursive), names))
    return rules


@st.composite
def with_causes(draw: st.DrawFn, rule: Rule) -> Rule:
    """The rule, perhaps with the condition that one of its events of the input caused another."""
    inputs = [item.name for item in rule.body if isinstance(item, Atom) and item.name and item.stream in INPUTS]
    if len(inputs) < 2 or draw(st.booleans()):
        return rule
    cause, effect = draw(st.permutations(inputs))[:2]
    return replace(rule, body=(*rule.body, Causes(cause, effect)))


@st.composite
def drawn_tables(
    draw: st.DrawFn,
) -> tuple[dict[str, tuple[str, ...]], tuple[Fact, ...], dict[str, list[dict[str, Value]]]]:
    """Perhaps a table that is handed over and one of facts: their columns, the facts, the rows."""
    columns: dict[str, tuple[str, ...]] = {}
    rows: dict[str, list[dict[str, Value]]] = {}
    facts: tuple[Fact, ...] = ()
    if draw(st.integers(0, 99)) < 35:
        columns["T"] = ("k", "x", "name")
        rows["T"] = draw(st.lists(records(columns["T"]), min_size=1, max_size=4))
    if draw(st.integers(0, 99)) < 25:
        columns["F"] = ("x", "k")
        pairs = draw(st.lists(st.tuples(st.sampled_from((0, 1, 2)), st.sampled_from((1, 2))), min_size=1, max_size=3))
        facts = tuple(Fact("F", (Literal(x), Literal(k))) for x, k in dict.fromkeys(pairs))
    return columns, facts, rows


def records(columns: Sequence[str]) -> st.SearchStrategy[dict[str, Value]]:
    return st.fixed_dictionaries({column: st.sampled_from(VALUES[column]) for column in columns})


@st.composite
def declared_streams(draw: st.DrawFn) -> PatternQuery:
    """A stream of matches, for rules to use."""
    items = [Event("A", "p"), Event("B", "q")]
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, 2)), Not(Event("C", "u")))
    returns = (Return(Field("p", "x"), "x"), Return(Field("q", "k"), "k"))
    return PatternQuery(Seq(tuple(items)), "d", within=Ticks(draw(st.integers(2, 8))), returns=returns, declares=True)


@st.composite
def patterns_over(draw: st.DrawFn, head: str) -> PatternQuery:
    """A pattern that uses the events of a head."""
    items = draw(st.permutations([Event(head, "u"), Event(draw(st.sampled_from(INPUTS)), "v")]))
    returns = (Return(Field("u", "s"), "since"), Return(Field("u", "e"), "until"), Return(Field("v", "t"), "at"))
    return PatternQuery(Seq(tuple(items)), "found", within=Ticks(draw(st.integers(2, 12))), returns=returns)


@st.composite
def rule_histories(draw: st.DrawFn, *, intervals: bool = False) -> list[OracleEvent]:
    """Events in the order of arrival, which is not that of time; Z is a stream that no rule asks for."""
    lengths = (0, 1, 1, 2, 3, 5) if intervals else (0,)
    drawn = st.tuples(
        st.sampled_from(("A", "A", "B", "B", "C", "Z")),
        st.integers(0, 9),
        st.sampled_from(lengths),
        records(tuple(VALUES)),
    )
    least = draw(st.sampled_from((0, 5, 7, 8, 8, 9)))
    return [
        OracleEvent(number, stream, start, start + length, fields)
        for number, (stream, start, length, fields) in enumerate(draw(st.lists(drawn, min_size=least, max_size=10)))
    ]


@st.composite
def rule_cases(
    draw: st.DrawFn, *, intervals: bool = False, functions: bool = False, policies: bool = False
) -> RuleCase:
    """A program and a history, with what the oracle derives; small enough to be worked out by trying everything."""
    program, tables = draw(programs(functions=functions, policies=policies))
    history = draw(rule_histories(intervals=intervals))
    derived = derive(program, history, tables)
    assume(sum(map(len, derived.heads.values())) <= MOST_DERIVED)
    return RuleCase(program, tables, history, derived)
