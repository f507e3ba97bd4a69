"""Checks of rules, tables and facts that need no data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ensue.analysis.catalog import TIME_NAMES
from ensue.analysis.declarations import (
    Attributes,
    attribute_names,
    declarations,
    declared_attributes,
    in_order_of,
    streams_of,
    tables_of,
)
from ensue.check.rule_policies import check_policy
from ensue.errors import Problem, Span, counted, did_you_mean
from ensue.expr.hints import COLLECT_HINT
from ensue.expr.kinds import NULL_TYPE, common_type, literal_type
from ensue.expr.lists import is_aggregate
from ensue.nodes import rules as rule_nodes
from ensue.nodes.expressions import Call, Duration, Expr, Field, InTable, Literal, children
from ensue.nodes.expressions import walk as walk_expression
from ensue.nodes.patterns import UNRESTRICTED, Events, Statements
from ensue.text.render_parts import render_item
from ensue.text.rule_builder import misjoined_items, unknown_timer
from ensue.text.values import shorten

MOST_CHOICES = 256
"""How many bodies without OR the body of one rule may stand for."""

INTERVAL_COLUMNS = ("start", "end")
"""The columns of a result that are not attributes of the head."""


def check_rules(statements: Statements) -> list[Problem]:
    """All problems of the rules of a program."""
    ruleset = statements.ruleset
    if ruleset is None:
        return []
    problems = [*_clashes(statements, ruleset)]
    heads = dict.fromkeys(rule.head for rule in ruleset.rules)
    problems += [problem for head in heads for problem in _check_heads(_rules_of(head, ruleset))]
    problems += [problem for rule in ruleset.rules for problem in _check_choices(rule)]
    if not problems:
        attributes = declared_attributes(statements)
        for rule in ruleset.rules:
            seen: set[tuple[str, Span | None]] = set()
            for body, chosen in rule_nodes.choices_of(rule.body):
                # A mistake outside an OR is in every choice.
                found = RuleCheck(replace(rule, body=body), ruleset, attributes, chosen).problems()
                problems += [problem for problem in found if (problem.code, problem.span) not in seen]
                seen |= {(problem.code, problem.span) for problem in found}
        for rule in () if problems else ruleset.rules:
            problems += check_policy(rule, ruleset, attributes)
    return problems or [*_check_recursion(rule_nodes.without_alternatives(ruleset))]


def _check_choices(rule: rule_nodes.Rule) -> Iterator[Problem]:
    """A body with OR stands for a limited number of bodies without it."""
    number = rule_nodes.number_of_choices(rule.body)
    if number > MOST_CHOICES:
        yield Problem(
            "too-many-branches",
            f"the ORs of this rule result in {number} combinations; the maximum is {MOST_CHOICES}",
            rule.span,
            hint="derive the choices of one OR by separate rules, and use their head as an item",
        )


def _rules_of(head: str, ruleset: rule_nodes.Ruleset) -> list[rule_nodes.Rule]:
    return [rule for rule in ruleset.rules if rule.head == head]


def _clashes(statements: Statements, ruleset: rule_nodes.Ruleset) -> Iterator[Problem]:
    """A name has one meaning: a head, a declared stream, an input stream or a table."""
    declared = declarations(statements.statements)
    inputs = {entry.stream: entry.span for entry in ruleset.streams if entry.stream is not None}
    patterns = {query.name: query.span for query in statements.results if query.name is not None}
    for rule in {rule.head: rule for rule in reversed(ruleset.rules)}.values():
        for others, words in (
            (declared, "a declared stream"),
            (patterns, "a pattern"),
            (ruleset.given_tables, "a table"),
            (inputs, "a declared input stream"),
        ):
            if rule.head in others:
                yield Problem(
                    "stream-clash",
                    f"`{rule.head}` is both the head of a rule and {words}",
                    rule.span,
                    hint="rename one of them",
                )
    used = streams_of(statements.statements)
    both = (ruleset.given_tables & {*inputs, *declared, *used}) | (ruleset.derived_tables & {*used})
    for name in sorted(both):
        yield Problem(
            "stream-clash",
            f"`{name}` is both a table and a stream",
            _span_of_table(name, ruleset),
            hint="rename one of them",
        )


def _span_of_table(name: str, ruleset: rule_nodes.Ruleset) -> Span | None:
    declared = [entry.span for entry in ruleset.tables if entry.name == name]
    facts = [fact.span for fact in ruleset.facts if fact.table == name]
    return next(iter([*declared, *facts, *(rule.span for rule in _rules_of(name, ruleset))]))


def _check_heads(rules: Sequence[rule_nodes.Rule]) -> Iterator[Problem]:
    """The rules with the same head have the same attributes."""
    first = rules[0]
    names = attribute_names(first)
    for name in (*INTERVAL_COLUMNS, *TIME_NAMES):
        if name in names:
            word = {"s": "start", "e": "end", "t": "time"}.get(name, name)
            yield Problem(
                "reserved-column",
                f"`{first.head}` cannot have an attribute `{name}`: the name is reserved for the {word} of its events",
                first.arguments[names.index(name)].span or first.span,
                hint=f"rename the attribute: `{first.head}(value = ...)`",
            )
    for rule in rules:
        named = [argument.attribute for argument in rule.arguments if argument.attribute is not None]
        repeated = next((name for place, name in enumerate(named) if name in named[:place]), None)
        if repeated is not None:
            yield Problem(
                "duplicate-column", f"the head has attribute `{repeated}` twice", rule.span, hint="rename one of them"
            )
        if len(rule.arguments) != len(names):
            yield Problem(
                "arity",
                f"`{rule.head}` has {_arguments(len(names))} in its first rule and {len(rule.arguments)} here",
                rule.span,
                hint="use the same number of arguments in all rules with this head",
            )
        elif rule is not first:
            yield from _check_named(rule, names)


def _check_named(rule: rule_nodes.Rule, names: Sequence[str]) -> Iterator[Problem]:
    """Named arguments use the names of the first rule. If some have no name, all are matched by position."""
    ordered = in_order_of(rule, names)
    for place, argument in enumerate(ordered):
        if argument.attribute is not None and argument.attribute != names[place]:
            yield Problem(
                "head-names",
                f"the first rule of `{rule.head}` names this argument `{names[place]}`",
                argument.span or rule.span,
                hint=f"write the arguments in this order without names, or name all of them: {', '.join(names)}",
            )


def _arguments(number: int) -> str:
    return f"{number} argument{'' if number == 1 else 's'}"


class RuleCheck:
    """The checks of a single rule."""

    def __init__(
        self,
        rule: rule_nodes.Rule,
        ruleset: rule_nodes.Ruleset,
        attributes: Attributes,
        chosen: Sequence[rule_nodes.Item] = (),
    ) -> None:
        """`chosen` are the items of `rule` that are one choice of its alternatives."""
        self.rule = rule
        self.chosen = chosen
        self.ruleset = ruleset
        self.attributes = attributes
        self.tables = tables_of(ruleset)
        atoms = [item for item in rule.body if isinstance(item, rule_nodes.Atom)]
        self.events = [atom for atom in atoms if atom.stream not in self.tables]
        self.rows = [atom for atom in atoms if atom.stream in self.tables]
        self.whiles = [item for item in rule.body if isinstance(item, rule_nodes.While)]
        self.absent = [item for item in rule.body if isinstance(item, rule_nodes.Absent)]
        self.timers = {item.name: item for item in rule.body if isinstance(item, rule_nodes.TimerItem)}
        self.intervals = {atom.name for atom in self.events if atom.name} | set(self.timers)

    def problems(self) -> list[Problem]:
        conditions = [item.expression for item in self.rule.body if isinstance(item, rule_nodes.Condition)]
        if misjoined := [problem for condition in conditions for problem in misjoined_items(condition)]:
            return misjoined
        if meant := [atom for atom in self.events if self._is_meant_as_timer(atom)]:
            return [unknown_timer(atom.stream, atom.span) for atom in meant]
        found = [*self._check_events(), *self._check_item_names(), *self._check_timers()]
        found += [problem for item in self.rule.body for problem in self._check_item(item)]
        found += [problem for atom in self._atoms() for problem in self._check_atom(atom)]
        return found or [*self._check_safety()]

    @property
    def body(self) -> str:
        """What binds names, for messages."""
        if not self.chosen:
            return "the body"
        return f"the alternative `{shorten(', '.join(map(render_item, self.chosen)))}`"

    def _atoms(self) -> list[rule_nodes.Atom]:
        return [*self.events, *self.rows, *(item.atom for item in self.whiles), *(item.atom for item in self.absent)]

    def _is_meant_as_timer(self, atom: rule_nodes.Atom) -> bool:
        """Whether an item is written like a timer whose length has no unit: `w: extent(x, 3)`, where `x` is an item."""
        match [argument.term for argument in atom.arguments if argument.attribute is None]:
            case [rule_nodes.Name(name), Literal(int())]:
                return atom.name is not None and atom.stream not in self.attributes and name in self.intervals
        return False

    def _check_events(self) -> Iterator[Problem]:
        if self.events or (self.rule.head in self.tables and (self.rows or self.absent)):
            return
        others = [item for rule in _rules_of(self.rule.head, self.ruleset) for item in rule.body]
        if any(isinstance(item, rule_nodes.Atom) and item.stream not in self.tables for item in others):
            yield Problem(
                "head-kinds",
                f"this rule derives rows of a table, but another rule of `{self.rule.head}` derives events",
                self.rule.span,
                hint="add an event to the body, or use another head for the table",
            )
        else:
            yield Problem(
                "rule-without-event",
                f"the rule for `{self.rule.head}` has no event in {self.body if self.chosen else 'its body'}",
                self.rule.span,
                hint="add an event to the body, or use FACT or TABLE for values without a time",
            )

    def _check_item_names(self) -> Iterator[Problem]:
        """A name belongs to one item or to a value."""
        seen: set[str] = set()
        named = [(atom.name, atom.span) for atom in self._atoms() if atom.name is not None]
        for name, span in (*named, *((timer.name, timer.span) for timer in self._timer_items())):
            if name in seen:
                yield Problem("duplicate-item", f"two items are named `{name}`", span, hint="rename one of them")
            seen.add(name)
        for name, span in self._values():
            if name in seen:
                yield Problem(
                    "duplicate-item",
                    f"`{name}` is both the name of an item and of a value",
                    span,
                    hint="rename one of them",
                )

    def _timer_items(self) -> list[rule_nodes.TimerItem]:
        return [item for item in self.rule.body if isinstance(item, rule_nodes.TimerItem)]

    def _values(self, atoms: Iterable[rule_nodes.Atom] | None = None) -> Iterator[tuple[str, Span | None]]:
        for atom in self._atoms() if atoms is None else atoms:
            for argument in atom.arguments:
                if isinstance(argument.term, rule_nodes.Name):
                    yield argument.term.name, argument.span or atom.span

    def _check_timers(self) -> Iterator[Problem]:
        for timer in self._timer_items():
            length = timer.window.nanoseconds if isinstance(timer.window, Duration) else timer.window.count
            if isinstance(timer.window, Events) or length < 0:
                yield Problem(
                    "timer-length",
                    f"the length of timer `{timer.name}` must be a duration that is not negative",
                    timer.window.span or timer.span,
                    hint="use a `..._backward` timer for an interval in the past",
                )
            yield from self._check_interval(timer.base, timer.span, f"{timer.kind} of")
            chain = [timer.name]
            while chain[-1] in self.timers and self.timers[chain[-1]].base not in chain:
                chain.append(self.timers[chain[-1]].base)
            if chain[-1] in self.timers and self.timers[chain[-1]].base == timer.name:
                yield Problem(
                    "timer-cycle",
                    f"timer `{timer.name}` depends on itself: {' -> '.join((*chain, timer.name))}",
                    timer.span,
                    hint="base one of these timers on an event",
                )

    def _check_item(self, item: object) -> Iterator[Problem]:
        match item:
            case rule_nodes.While():
                yield from self._check_interval(item.interval, item.span, "while")
                if item.atom.stream in self.tables:
                    yield Problem(
                        "table-in-while",
                        f"`while` takes a stream, but `{item.atom.stream}` is a table",
                        item.atom.span or item.span,
                        hint="write a condition on a row of the table instead",
                    )
            case rule_nodes.Absent() if item.atom.stream not in self.tables:
                yield Problem(
                    "absent-stream",
                    f"`not` without an interval takes a table, but `{item.atom.stream}` is a stream",
                    item.span,
                    label=f"tables: {', '.join(sorted(self.tables)) or 'none'}",
                    hint=did_you_mean(item.atom.stream, self.tables)
                    or f"name the interval without such events: `while w: not {item.atom.stream}(...)`",
                )
            case rule_nodes.Together():
                for name in item.names:
                    yield from self._check_interval(name, item.span, "within")
            case rule_nodes.Temporal():
                for name in (item.left, item.right):
                    yield from self._check_interval(name, item.span, item.relation)
            case rule_nodes.Causes():
                for name in (item.cause, item.effect):
                    yield from self._check_cause(name, item)

    def _check_interval(self, name: str, span: Span | None, words: str) -> Iterator[Problem]:
        if name not in self.intervals:
            yield Problem(
                "unknown-item",
                f"`{words}` has unknown event or timer `{name}`" + (f" in {self.body}" if self.chosen else ""),
                span,
                label=f"events and timers: {', '.join(sorted(self.intervals))}" if self.intervals else "",
                hint=did_you_mean(name, self.intervals) or f"name an event: `{name}: stream(...)`",
            )

    def _check_cause(self, name: str, item: rule_nodes.Causes) -> Iterator[Problem]:
        atom = next((atom for atom in self.events if atom.name == name), None)
        if atom is None:
            yield from (
                self._check_interval(name, item.span, "causes")
                if name not in self.timers
                else [Problem("unknown-item", f"`causes` takes events, but `{name}` is a timer", item.span)]
            )
        elif atom.stream in self.ruleset.heads or not self._is_identified(atom.stream, name == item.effect):
            derived = atom.stream in self.ruleset.heads
            yield Problem(
                "no-identity",
                f"`causes` needs the ID and PARENT columns, but `{atom.stream}` has none",
                item.span,
                hint="derived events have no id; to see their causes, use `RETURN lineage(v)` in a PATTERN"
                if derived
                else f"declare the columns: `STREAM {atom.stream} ID column PARENT column`",
            )

    def _is_identified(self, stream: str, as_effect: bool) -> bool:
        """Whether the ID column of a stream is declared, or, for an effect, the PARENT column."""
        entry = rule_nodes.identified(stream, self.ruleset)
        return entry is not None and (entry.parent if as_effect else entry.identity) is not None

    def _check_atom(self, atom: rule_nodes.Atom) -> Iterator[Problem]:
        known = self.attributes.get(atom.stream)
        if known is None:
            return
        named = [argument for argument in atom.arguments if argument.attribute is not None]
        if atom.arguments and not named and len(atom.arguments) != len(known):
            yield Problem(
                "arity",
                f"`{atom.stream}` takes {_arguments(len(known))}, but has {len(atom.arguments)}",
                atom.span,
                label=", ".join(known),
                hint=f"write `_` for unused arguments, or use names: `{atom.stream}({known[0]}=x)`" if known else "",
            )
        declared = atom.stream in self.ruleset.heads or atom.stream in self.tables
        for argument in named if declared else ():
            if argument.attribute not in known:
                yield Problem(
                    "no-such-field",
                    f"`{atom.stream}` has no attribute `{argument.attribute}`",
                    argument.span or atom.span,
                    label=f"attributes: {', '.join(known)}",
                    hint=did_you_mean(argument.attribute or "", known),
                )

    # --- Bound names

    def _check_safety(self) -> Iterator[Problem]:
        """Each name in the head and in conditions is bound in the body."""
        bound = {name for name, _ in self._values([*self.events, *self.rows])}
        forbidden = {name for name, _ in self._values(item.atom for item in self.whiles if not item.collects)}
        listed = {name for name, _ in self._values(item.atom for item in self.whiles if item.collects)}
        yield from self._shared_by_whiles(bound)
        for name, span in self._values(item.atom for item in self.absent):
            if name not in bound:
                yield Problem(
                    "unsafe-rule",
                    f"`not` uses `{name}`, which is not bound in the rest of the body",
                    span,
                    hint=did_you_mean(name, bound)
                    or "bind the name in an argument of an event or of a table, or write `_` for any value",
                )
        items = {atom.name for atom in self._atoms() if atom.name} | set(self.timers)
        lists = {item.atom.name for item in self.whiles if item.collects and item.atom.name}
        for argument in self.rule.arguments:
            if single := [*_counted_items(argument.expression, items - lists)]:
                yield from single
                continue
            for part in _names(argument.expression, lists):
                if part.name not in bound | listed:
                    where = "only bound in a `not`" if part.name in forbidden else f"not bound in {self.body}"
                    yield self._unsafe(part, f"the head uses `{part.name}`, which is {where}", bound | listed)
            yield from self._check_variables(argument.expression, items)
        for item in self.rule.body:
            if isinstance(item, rule_nodes.Condition):
                for part in _names(item.expression, lists):
                    if part.name not in bound | listed | forbidden:
                        words = f"the condition uses `{part.name}`, which is not bound in {self.body}"
                        yield self._unsafe(part, words, bound | listed | forbidden)
                yield from self._check_variables(item.expression, items)

    def _unsafe(self, part: Field, message: str, names: Iterable[str]) -> Problem:
        hint = did_you_mean(part.name, names) or "bind the name in an argument of an event or of a table"
        return Problem("unsafe-rule", message, part.span or self.rule.span, hint=hint)

    def _check_variables(self, expression: Expr, items: set[str]) -> Iterator[Problem]:
        for part in _fields(expression):
            if part.variable is not None and part.variable not in items:
                yield Problem(
                    "unknown-item",
                    f"unknown item `{part.variable}` in this rule",
                    part.span or self.rule.span,
                    label=f"items: {', '.join(sorted(items))}" if items else "",
                    hint=did_you_mean(str(part.variable), items),
                )
            if part.variable in self.timers and part.name not in ("s", "t", "e"):
                yield Problem(
                    "no-such-field",
                    f"`{part.variable}` is a timer and has no field `{part.name}`",
                    part.span or self.rule.span,
                    label="fields: s, e",
                )

    def _shared_by_whiles(self, bound: set[str]) -> Iterator[Problem]:
        """A name that two `while` items share must be bound elsewhere."""
        seen: dict[str, rule_nodes.While] = {}
        for item in self.whiles:
            for name, span in self._values([item.atom]):
                other = seen.setdefault(name, item)
                if other is not item and name not in bound:
                    yield Problem(
                        "unsafe-rule",
                        f"`{name}` is used in two `while` items, but is not bound in the rest of the body",
                        span,
                        hint="bind it in an event, or use two names",
                    )


def _names(expression: Expr, lists: Iterable[str]) -> Iterator[Field]:
    """The names without a variable, except for counted lists."""
    known = frozenset(lists)
    for part in _fields(expression):
        if part.variable is None and part.name not in known:
            yield part


def _counted_items(expression: Expr, items: Iterable[str]) -> Iterator[Problem]:
    """The problems of `count(x)`, where `x` is a single event."""
    for part in walk_expression(expression):
        if is_aggregate(part) and len(part.arguments) == 1:
            (value,) = part.arguments
            if isinstance(value, Field) and value.variable is None and value.name in items:
                message = f"`{part.name}` takes collected events, but `{value.name}` is a single event"
                yield Problem("not-a-list", message, value.span, hint=COLLECT_HINT)


def _fields(expression: Expr) -> Iterator[Field]:
    if isinstance(expression, Field):
        yield expression
    if isinstance(expression, Call) and expression.name == "lineage":
        return
    for child in children(expression):
        yield from _fields(child)


# --- Recursion


def _check_recursion(ruleset: rule_nodes.Ruleset) -> Iterator[Problem]:
    uses = {rule.head: _used(rule.head, ruleset) for rule in ruleset.rules}
    for rule in ruleset.rules:
        for stream, word, span in _uses_as_a_whole(rule):
            if (way := _way(stream, rule.head, uses)) is not None:
                yield Problem(
                    "unstratified",
                    f"`{rule.head}` depends on its own {word}: {' -> '.join((rule.head, *way))}",
                    span or rule.span,
                    hint="break the cycle: a `not`, `collect` or `IN` cannot depend on the head of its own rule",
                )
        chosen = rule.consume or rule.policy not in (None, UNRESTRICTED)
        recursive = any(isinstance(item, rule_nodes.Atom) and _way(item.stream, rule.head, uses) for item in rule.body)
        late = next((item for item in rule.body if isinstance(item, rule_nodes.TimerItem) and _is_late(item)), None)
        if recursive and chosen:
            yield Problem(
                "unstratified",
                f"`{rule.head}` depends on its own choice: its rule has MATCH or CONSUME",
                rule.policy_span or rule.span,
                hint="choose in a rule with another head, which uses the events of this one",
            )
        if recursive and late is not None:
            yield Problem(
                "endless-rule",
                f"`{rule.head}` depends on itself and would never end: timer `{late.name}` makes each event end later",
                late.span or rule.span,
                hint="remove the timer, or use `while` with an event",
            )


def missing_base_case(ruleset: rule_nodes.Ruleset) -> str:
    """A warning about the heads whose rules all need events or rows of each other; empty if there are none."""
    rules = rule_nodes.without_alternatives(ruleset).rules
    heads, derived = dict.fromkeys(rule.head for rule in rules), set[str]()
    while found := {rule.head for rule in rules if rule.head not in derived and _starts(rule, derived, heads)}:
        derived |= found
    names = [f"`{head}`" for head in heads if head not in derived]
    if not names:
        return ""
    are = "is always empty: each of its" if len(names) == 1 else "are always empty: each of their"
    return f"{', '.join(names)} {are} rules needs {' or '.join(names)}; add a rule that does not"


def _starts(rule: rule_nodes.Rule, derived: Collection[str], heads: Collection[str]) -> bool:
    """Whether the events and rows in the body of a rule can exist."""
    streams = (item.stream for item in rule.body if isinstance(item, rule_nodes.Atom))
    return all(stream in derived or stream not in heads for stream in streams)


def _is_late(timer: rule_nodes.TimerItem) -> bool:
    return timer.kind in ("extend", "shift", "from_end", "from_start")


def _uses_as_a_whole(rule: rule_nodes.Rule) -> Iterator[tuple[str, str, Span | None]]:
    """The streams and tables that must be complete before the rule is evaluated, and what it does with them."""
    for item in rule.body:
        match item:
            case rule_nodes.While():
                yield item.atom.stream, "aggregate" if item.collects else "absence", item.span
            case rule_nodes.Absent():
                yield item.atom.stream, "absence", item.span
    yield from ((lookup.table, "lookup", lookup.span) for lookup in rule_nodes.lookups_of(rule))


def _used(head: str, ruleset: rule_nodes.Ruleset) -> tuple[str, ...]:
    rules = _rules_of(head, ruleset)
    return tuple(dict.fromkeys(name for rule in rules for name in rule_nodes.used_by(rule)))


def _way(start: str, goal: str, uses: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """A shortest path of dependencies from one stream to another."""
    ways: dict[str, tuple[str, ...]] = {start: (start,)}
    waiting = [start]
    for current in waiting:
        if current == goal:
            return ways[current]
        for used in uses.get(current, ()):
            if used not in ways:
                ways[used] = (*ways[current], used)
                waiting.append(used)
    return None


# --- Tables and facts


def check_tables(ruleset: rule_nodes.Ruleset) -> Iterator[Problem]:
    """A table is declared once. Its FACTs have its columns, and each column has one type."""
    declared: dict[str, rule_nodes.TableDeclaration] = {}
    for entry in ruleset.tables:
        if declared.setdefault(entry.name, entry) is not entry:
            said = f"TABLE `{entry.name}` is declared twice"
            yield Problem("duplicate-table", said, entry.span, hint="remove one of them")
    for name, facts in facts_by_table(ruleset).items():
        columns = table_columns(declared.get(name), facts)
        misfits = list(_misfits(facts, columns))
        yield from misfits
        if not misfits:
            for column in columns:
                yield from _kinds(facts, columns, column)


def action_lookup(lookup: InTable) -> Iterator[Problem]:
    """The condition of an ON looks up no table."""
    yield Problem(
        "action-table",
        "the condition of ON cannot look up a TABLE",
        lookup.span,
        hint="test it in the pattern or rule, and return the result as a column",
    )


def check_lookup(lookup: InTable, ruleset: rule_nodes.Ruleset | None) -> Iterator[Problem]:
    """`x IN table` names a table of the program, and one of its columns if it has several."""
    ruleset = ruleset or rule_nodes.Ruleset()
    declared, facts = {entry.name: entry for entry in ruleset.tables}, facts_by_table(ruleset)
    known = {name: table_columns(declared.get(name), facts.get(name, [])) for name in (*declared, *facts)}
    known |= {rule.head: attribute_names(rule) for rule in reversed(ruleset.table_rules)}
    columns = known.get(lookup.table)
    if columns is None:
        yield Problem(
            "unknown-table",
            f"the program has no TABLE `{lookup.table}`",
            lookup.span,
            label=f"tables: {', '.join(known) or 'none'}",
            hint=did_you_mean(lookup.table, known) or f"declare `TABLE {lookup.table}(column)`, or write `IN (...)`",
        )
    elif lookup.column not in ((None, *columns) if len(columns) == 1 else columns):
        lack = f"has no column `{lookup.column}`"
        if lookup.column is None:
            lack = "has several columns" if columns else "has no columns"
        yield Problem(
            "table-column",
            f"TABLE `{lookup.table}` {lack}",
            lookup.span,
            label=f"columns: {', '.join(columns)}" if columns else "",
            hint=f"write `IN {lookup.table}.{columns[0]}`" if columns else "",
        )


def facts_by_table(ruleset: rule_nodes.Ruleset) -> dict[str, list[rule_nodes.Fact]]:
    """The FACTs of each table, in the order of the text."""
    facts: dict[str, list[rule_nodes.Fact]] = {}
    for fact in ruleset.facts:
        facts.setdefault(fact.table, []).append(fact)
    return facts


def table_columns(declaration: rule_nodes.TableDeclaration | None, facts: Sequence[rule_nodes.Fact]) -> tuple[str, ...]:
    """The columns of a table: from its TABLE, from the names in its first FACT, or numbered."""
    if declaration is not None:
        return declaration.columns
    first = facts[0]
    return first.columns or tuple(f"arg_{place}" for place in range(1, len(first.values) + 1))


def fact_value(fact: rule_nodes.Fact, columns: Sequence[str], column: str) -> Literal:
    """The value of a FACT in a column of its table."""
    return fact.values[(fact.columns or columns).index(column)]


def different_kinds(fact: rule_nodes.Fact, column: str, one: str, other: str) -> Problem:
    return Problem(
        "fact-types",
        f"column `{column}` of `{fact.table}` is {one} here but {other} elsewhere",
        fact.span,
        hint="use one type for all values of a column",
    )


def _misfits(facts: Sequence[rule_nodes.Fact], columns: Sequence[str]) -> Iterator[Problem]:
    """Facts whose columns differ from those of their table."""
    for fact in facts:
        if len(fact.values) != len(columns):
            values, named = counted(len(fact.values), "value", "values"), counted(len(columns), "column", "columns")
            yield Problem(
                "fact-columns",
                f"this FACT has {values}, but table `{fact.table}` has {named}",
                fact.span,
                hint=f"columns: {', '.join(columns)}",
            )
        elif fact.columns is not None and set(fact.columns) != set(columns):
            unknown = next((name for name in fact.columns if name not in columns), fact.columns[0])
            yield Problem(
                "fact-columns",
                f"table `{fact.table}` has no column `{unknown}`",
                fact.span,
                hint=did_you_mean(unknown, columns) or f"columns: {', '.join(columns)}",
            )


def _kinds(facts: Sequence[rule_nodes.Fact], columns: Sequence[str], column: str) -> Iterator[Problem]:
    """The first fact whose value has another type than the values before it."""
    kind = NULL_TYPE
    for fact in facts:
        own = literal_type(fact_value(fact, columns, column))
        both = None if own is None else common_type([kind, own])
        if own is None or both is None:
            found = "an integer beyond 64 bits" if own is None else own.word
            yield different_kinds(fact, column, found, kind.word)
            return
        kind = both
