"""Lower the contexts of SNOOP to statements: one declared stream per operator, which chooses among pairs.

`SEQ(SEQ(x, y), z) MATCH RECENT` becomes a stream of the chosen pairs of `x` and `y`, and a pattern over its events and
`z`. The events of such a stream have columns such as `a.price` for the fields that later operators use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from ensue.analysis.catalog import TIME_NAMES, WHOLE_EVENT, is_lineage, lineage_variable
from ensue.analysis.choices import names_in
from ensue.analysis.scopes import bound_events, initiating_names, name_anonymous, positive_names
from ensue.errors import Problem, QueryError, Source, Span
from ensue.expr.lists import is_aggregate
from ensue.nodes import expressions as expression_nodes
from ensue.nodes import patterns
from ensue.nodes.names import ContextStage, Handle, Name, Result, Stream, called, in_order

MATCH = Result()
"""The name of the interval of the whole match."""


def resolve_contexts(statements: patterns.AnyStatements) -> patterns.AnyStatements:
    """Replaces each statement whose policy is a context by several statements."""
    resolved: list[patterns.PatternQuery] = []
    prefixes: set[str] = set()
    for query in statements.statements:
        if query.policy in patterns.CONTEXTS:
            prefix = str(query.name or "pattern")
            while prefix in prefixes:
                prefix += "_"
            prefixes.add(prefix)
            resolved += _Resolver(query, statements.source, prefix).resolved()
        else:
            resolved.append(query)
    return replace(statements, statements=tuple(resolved))


@dataclass(slots=True)
class _Columns:
    """The names of the columns of the streams, by variable and field or mark."""

    taken: set[str]
    names: dict[tuple[Name, str | patterns.Mark], str] = field(default_factory=dict)

    def of(self, variable: Name, wanted: str | patterns.Mark) -> str:
        found = self.names.get((variable, wanted))
        if found is None:
            found = f"{variable}.{wanted.value if isinstance(wanted, patterns.Mark) else wanted}"
            while found in self.taken:
                found += "_"
            self.taken.add(found)
            self.names[variable, wanted] = found
        return found


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of an operator: events of a stream, and the variables that they contain.

    `simple` events are events of the user's streams; others have carried columns. `leading` and `trailing` are the NOTs
    at its edges, which the operators around it evaluate. `optional` variables may be unbound, `lists` are lists.
    """

    event: patterns.Event
    names: tuple[Name, ...]
    simple: bool
    columns: _Columns
    intervals: tuple[Name, ...] = ()
    optional: frozenset[Name] = frozenset()
    lists: frozenset[Name] = frozenset()
    leading: tuple[patterns.Not, ...] = ()
    trailing: tuple[patterns.Not, ...] = ()

    @property
    def handle(self) -> Name:
        assert self.event.variable is not None
        return self.event.variable

    def named(self, intervals: tuple[Name, ...]) -> _Operand:
        """The operand with more AS names."""
        return replace(self, intervals=(*self.intervals, *intervals))

    def value(self, wanted: expression_nodes.Field) -> expression_nodes.Field:
        """The field that replaces a field of a variable or AS name."""
        if wanted.variable in self.intervals:
            return expression_nodes.Field(self.handle, wanted.name, wanted.span)
        if self.simple or wanted.variable is None:
            return wanted
        return expression_nodes.Field(self.handle, self.columns.of(wanted.variable, wanted.name), wanted.span)

    def mark(self, name: Name, mark: patterns.Mark) -> expression_nodes.Field:
        """The field with a mark of a variable."""
        return expression_nodes.Field(self.handle, self.columns.of(name, mark))


@dataclass(frozen=True, slots=True)
class _Stage:
    """One operator with its operands. Its matches may become a stream.

    `intervals` are the AS names of its matches.
    """

    pattern: patterns.Pattern
    where: expression_nodes.Expr | None
    operands: tuple[_Operand, ...]
    intervals: tuple[Name, ...] = ()
    branches: bool = False


_APART = (patterns.Event, patterns.Seq, patterns.Or, patterns.Not, patterns.Within, patterns.NamedPattern)
_SEPARATE = ("RELATIVE", "APERIODIC", "UNLESS")
"""The operators whose operands follow one another."""

_AROUND = ("APERIODIC", "NOTPRECEDES")
"""The operators whose forbidden events may be between the events of their operands, or end with them."""


def _keeps_apart(pattern: patterns.Pattern) -> bool:
    return isinstance(pattern, patterns.Operation) and pattern.operator in (
        *_SEPARATE,
        "ANYONE",
        "NOTFOLLOWS",
        "NOTPRECEDES",
    )


@dataclass(slots=True)
class _Resolver:
    """Lowers one query; `prefix` starts the names of its streams."""

    written: patterns.PatternQuery
    source: Source | None
    prefix: str
    stages: list[patterns.PatternQuery] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    columns: _Columns = field(default_factory=lambda: _Columns(set()))
    streams: dict[Name, Stream] = field(default_factory=dict)
    shared: frozenset[Name] = frozenset()
    """The variables that could bind an event of another operand, because their intervals may overlap."""

    def __post_init__(self) -> None:
        self.written = name_anonymous(self.written)
        self.columns = _Columns({*self._handed_on, *TIME_NAMES})
        bound = {event.variable: event.stream for event in bound_events(self.written.pattern) if event.variable}
        self.streams = bound
        if not all(isinstance(node, _APART) or _keeps_apart(node) for node in patterns.walk(self.written.pattern)):
            uses = Counter(bound.values())
            self.shared = frozenset(name for name, stream in bound.items() if uses[stream] > 1)

    # --- The parts of the query

    @property
    def _same(self) -> tuple[str, ...]:
        return tuple(
            name
            for part in expression_nodes.conjuncts(self.written.where)
            if isinstance(part, expression_nodes.Same)
            for name in part.fields
        )

    @property
    def _handed_on(self) -> tuple[str, ...]:
        """The columns that all streams have under their own names."""
        return tuple(dict.fromkeys((*self.written.partition_by, *self._same)))

    def _asked(self, name: Name) -> tuple[expression_nodes.Field, ...]:
        """The fields of a variable or AS name that are used later, each where it is used first."""
        expressions = [
            *expression_nodes.conjuncts(self.written.where),
            *(column.expression for column in self.written.returns),
        ]
        fields = [
            part
            for expression in expressions
            for part in expression_nodes.walk(expression)
            if isinstance(part, expression_nodes.Field) and part.variable == name
        ]
        if self.written.returns_events and name in self.streams:
            fields.append(expression_nodes.Field(name, WHOLE_EVENT))
        return tuple({part.name: part for part in (expression_nodes.Field(name, "s"), *reversed(fields))}.values())

    # --- Lowering

    def resolved(self) -> list[patterns.PatternQuery]:
        """The statements that replace the query, each after those that it uses."""
        stage = self._outermost(self.written.pattern, _given(self.written.within))
        if isinstance(stage, _Operand):
            stage = self._with_edges(stage)
        final = replace(
            self.written,
            pattern=patterns.NamedPattern(stage.pattern, MATCH),
            where=stage.where,
            within=None,
            returns=self._returns(stage),
            policy=None if len(stage.operands) == 1 else self.written.policy,
        )
        return [*self.stages, final]

    def _outermost(self, pattern: patterns.Pattern, windows: tuple[patterns.Window, ...]) -> _Stage | _Operand:
        """The outermost operator. Its matches are the result unless something is evaluated after the choice."""
        found = self._read(pattern, windows)
        if isinstance(found, _Operand):
            return found
        return self._emit(found) if self.written.policy == patterns.CUMULATIVE else found

    def _with_edges(self, operand: _Operand) -> _Stage:
        """The result over the events of one stream, with the NOTs at the edges of the whole pattern."""
        edges = (*operand.leading, *operand.trailing)
        pattern: patterns.Pattern = operand.event
        if edges:
            pattern = patterns.Seq((*operand.leading, operand.event, *operand.trailing))
        if edges or operand.simple:
            for window in self._whole_windows():
                pattern = patterns.Within(pattern, window)
        return _Stage(pattern, self._conditions((operand,), edges), (replace(operand, leading=(), trailing=()),))

    def _whole_windows(self) -> tuple[patterns.Window, ...]:
        windows = _given(self.written.within)
        pattern = self.written.pattern
        while isinstance(pattern, patterns.Within | patterns.NamedPattern):
            if isinstance(pattern, patterns.Within):
                windows += (pattern.window,)
            pattern = pattern.item
        return windows

    def _operand(self, pattern: patterns.Pattern, windows: tuple[patterns.Window, ...]) -> _Operand:
        return self._settled(self._read(pattern, windows))

    def _read(
        self, pattern: patterns.Pattern, windows: tuple[patterns.Window, ...], intervals: tuple[Name, ...] = ()
    ) -> _Operand | _Stage:
        """Lower a part with the windows around it and its AS names, which are bound with the last of its items."""
        match pattern:
            case patterns.Event():
                assert pattern.variable is not None
                return _Operand(pattern, (pattern.variable,), True, self.columns, intervals)
            case patterns.Within():
                return self._windowed(pattern, windows, intervals)
            case patterns.NamedPattern():
                return self._read(pattern.item, windows, (*intervals, pattern.name))
            case patterns.Seq():
                return self._sequence(pattern, windows, intervals)
            case patterns.And():
                return self._all_of(pattern, windows, intervals)
            case patterns.Or():
                return self._any_of(pattern, windows, intervals)
            case patterns.Operation():
                return self._operation(pattern, windows, intervals)
            case _:
                raise AssertionError("the gate refuses this pattern")

    def _windowed(
        self, pattern: patterns.Within, windows: tuple[patterns.Window, ...], intervals: tuple[Name, ...]
    ) -> _Operand | _Stage:
        inner = (*windows, pattern.window)
        found = self._read(pattern.item, inner, intervals)
        if isinstance(found, _Stage) or not found.simple:
            return found
        # No operator has made it, so none has looked at the window.
        alone = replace(found, leading=(), trailing=())
        stage = self._stage(found.event, (alone,), inner, ())
        if not found.leading and not found.trailing:
            return stage
        return replace(self._emit(stage), leading=found.leading, trailing=found.trailing)

    def _sequence(
        self, pattern: patterns.Seq, windows: tuple[patterns.Window, ...], intervals: tuple[Name, ...]
    ) -> _Operand | _Stage:
        current: _Operand | _Stage | None = None
        between: list[patterns.Not] = []
        leading: tuple[patterns.Not, ...] = ()
        last = max(place for place, item in enumerate(pattern.items) if not isinstance(item, patterns.Not))
        for place, item in enumerate(pattern.items):
            if isinstance(item, patterns.Not):
                between.append(item)
                continue
            following = self._operand(item, windows)
            apart = (*between, *following.leading)
            between = []
            if current is None:
                current, leading = replace(following, leading=()), apart
                continue
            before = self._settled(current)
            apart = (*before.trailing, *apart)
            items: tuple[patterns.Pattern, ...] = (before.event, *apart, following.event)
            operands = (before, replace(following, leading=()))
            names = intervals if place == last else ()
            current = self._stage(patterns.Seq(items, pattern.span), operands, windows, apart, names)
            between = [*following.trailing]
        assert current is not None
        if isinstance(current, _Operand):
            current = current.named(intervals)
        trailing = (*(current.trailing if isinstance(current, _Operand) else ()), *between)
        if not leading and not trailing:
            return current
        return replace(self._settled(current), leading=leading, trailing=trailing)

    def _all_of(
        self, pattern: patterns.And, windows: tuple[patterns.Window, ...], intervals: tuple[Name, ...]
    ) -> _Operand | _Stage:
        forbidden = tuple(item for item in pattern.items if isinstance(item, patterns.Not))
        if forbidden:
            raise self._misplaced(forbidden[0], "AND")
        current: _Operand | _Stage = self._inner(pattern.items[0], windows, "AND")
        for place, item in enumerate(pattern.items[1:], start=1):
            operands = self._told_apart((self._settled(current), self._inner(item, windows, "AND")))
            both = tuple(operand.event for operand in operands)
            names = intervals if place == len(pattern.items) - 1 else ()
            current = self._stage(patterns.And(both, pattern.span), operands, windows, (), names)
        return current.named(intervals) if isinstance(current, _Operand) else current

    def _any_of(
        self, pattern: patterns.Or, windows: tuple[patterns.Window, ...], intervals: tuple[Name, ...]
    ) -> _Stage:
        operands = tuple(self._inner(item, windows, "OR") for item in pattern.items)
        stage = self._stage(
            patterns.Or(tuple(one.event for one in operands), pattern.span), operands, windows, (), intervals
        )
        return replace(stage, branches=True)

    def _operation(
        self, pattern: patterns.Operation, windows: tuple[patterns.Window, ...], intervals: tuple[Name, ...]
    ) -> _Operand | _Stage:
        word, items = pattern.operator, pattern.items
        match word:
            case "ANYONE":
                return self._any_of(patterns.Or(items, pattern.span), windows, intervals)
            case "BOTH":
                x, y = items
                ways = tuple(replace(pattern, operator="FOLLOWS", items=pair) for pair in ((x, y), (y, x)))
                return self._any_of(patterns.Or(ways, pattern.span), windows, intervals)
            case "RELATIVE":
                return self._sequence(patterns.Seq(items, pattern.span), windows, intervals)
            case "PRECEDES":
                turned = replace(pattern, operator="FOLLOWS", items=items[::-1])
                return self._operation(turned, windows, intervals)
        forbidden = {"NOTFOLLOWS": 1, "NOTPRECEDES": 1, "APERIODIC": 2, "UNLESS": 0}.get(word)
        beside = () if forbidden is None else (items[forbidden],)
        operands = tuple(self._inner(item, windows, word) for place, item in enumerate(items) if place != forbidden)
        if forbidden is not None and word in _AROUND:
            for operand in operands:
                self._check_forbidden(items[forbidden], operand, word)
        operands = operands if word in _SEPARATE else self._told_apart(operands)
        events: list[patterns.Pattern] = [operand.event for operand in operands]
        if forbidden is not None:
            events.insert(forbidden, items[forbidden])
        return self._stage(replace(pattern, items=tuple(events)), operands, windows, beside, intervals)

    def _check_forbidden(self, pattern: patterns.Pattern, operand: _Operand, word: str) -> None:
        """Forbidden events of a stream cannot be distinguished from the events of a composite of the same stream."""
        own = frozenset(self.streams[name] for name in operand.names if name in self.streams)
        clash = sorted(
            {node.stream for node in patterns.walk(pattern) if isinstance(node, patterns.Event)} & own, key=str
        )
        if clash and not operand.simple:
            raise self._shared(
                f"{word} forbids events of `{clash[0]}`, but its other operand contains such events",
                pattern.span,
            )

    def _shared(self, message: str, span: Span | None) -> QueryError:
        hint = "declare the nested part as a STREAM without the policy, or use another policy"
        return QueryError(
            [Problem("policy-shared", f"with MATCH {self.written.policy}, {message}", span, hint=hint)], self.source
        )

    def _inner(self, item: patterns.Pattern, windows: tuple[patterns.Window, ...], word: str) -> _Operand:
        """An operand without NOTs at its edges."""
        operand = self._operand(item, windows)
        left = (*operand.leading, *operand.trailing)
        if left:
            raise self._misplaced(left[0], word)
        return operand

    def _misplaced(self, negation: patterns.Not, word: str) -> QueryError:
        return QueryError(
            [
                Problem(
                    "policy-negation",
                    f"with MATCH {self.written.policy}, NOT is only allowed between items of SEQ or at the edges of "
                    f"the whole pattern, not in {word}",
                    negation.span,
                    hint="declare that part as a STREAM without the policy, and use its events here",
                )
            ],
            self.source,
        )

    def _settled(self, found: _Operand | _Stage) -> _Operand:
        return found if isinstance(found, _Operand) else self._emit(found)

    def _told_apart(self, operands: tuple[_Operand, ...]) -> tuple[_Operand, ...]:
        """The operands. Those whose events may be shared become streams that record their events."""
        if len(operands) < 2 or all(operand.simple for operand in operands) or not self._meeting(operands):
            return operands
        if self.written.policy == patterns.CUMULATIVE:
            raise self._shared(
                "two operands that overlap cannot both contain events of the same stream",
                self.written.policy_span or self.written.span,
            )
        return tuple(
            self._emit(_Stage(operand.event, None, (operand,))) if operand.simple else operand for operand in operands
        )

    def _meeting(self, operands: tuple[_Operand, ...]) -> list[tuple[Name, Name]]:
        """The pairs of variables of two operands that could bind the same event."""
        first, second = operands
        return [
            (x, y)
            for x in first.names
            for y in second.names
            if {x, y} <= self.shared and self.streams[x] == self.streams[y]
        ]

    # --- Stages

    def _stage(
        self,
        pattern: patterns.Pattern,
        operands: tuple[_Operand, ...],
        windows: Iterable[patterns.Window],
        beside: Sequence[patterns.Pattern],
        intervals: tuple[Name, ...] = (),
    ) -> _Stage:
        for window in windows:
            pattern = patterns.Within(pattern, window)
        for name in intervals:
            pattern = patterns.NamedPattern(pattern, name)
        return _Stage(pattern, self._conditions(operands, beside, intervals), operands, intervals)

    def _conditions(
        self, operands: tuple[_Operand, ...], beside: Sequence[patterns.Pattern], intervals: tuple[Name, ...] = ()
    ) -> expression_nodes.Expr | None:
        """The conjuncts that are evaluated here: those whose names are all bound now, but not earlier."""
        forbidden = frozenset(name for part in beside for name in names_in(part))
        bound = frozenset(name for operand in operands for name in (*operand.names, *operand.intervals))
        bound |= forbidden.union(intervals)
        found: list[expression_nodes.Expr] = []
        for place, conjunct in enumerate(expression_nodes.conjuncts(self.written.where)):
            if isinstance(conjunct, expression_nodes.Same):
                found.append(conjunct)
                continue
            names = expression_nodes.variables_of(conjunct)
            if place not in self.done and names <= bound:
                self.done.add(place)
                found.append(self._about(conjunct, operands))
            elif names & forbidden and place not in self.done:
                raise self._later(conjunct)
        found += self._distinct(operands)
        return reduce(lambda left, right: expression_nodes.Binary("and", left, right), found) if found else None

    def _distinct(self, operands: tuple[_Operand, ...]) -> Iterator[expression_nodes.Expr]:
        """The conditions that variables of two operands bind different events, unless both operands are simple."""
        if len(operands) != 2 or any(operand.simple for operand in operands):
            return
        for x, y in self._meeting(operands):
            one, other = (
                expression_nodes.Call("first", (operand.mark(name, patterns.Mark.IDENTITY),))
                for operand, name in zip(operands, (x, y), strict=True)
            )
            unbound = expression_nodes.Binary("or", expression_nodes.IsNull(one), expression_nodes.IsNull(other))
            yield expression_nodes.Binary("or", unbound, expression_nodes.Binary("!=", one, other))

    def _later(self, conjunct: expression_nodes.Expr) -> QueryError:
        return QueryError(
            [
                Problem(
                    "policy-negation",
                    f"with MATCH {self.written.policy}, a NOT is evaluated with the items next to it, but this "
                    "condition uses a later item",
                    conjunct.span,
                    hint="compare the forbidden event only with the items next to it",
                )
            ],
            self.source,
        )

    def _about(self, conjunct: expression_nodes.Expr, operands: tuple[_Operand, ...]) -> expression_nodes.Expr:
        """A conjunct over the operands. It is true if it uses a branch that was not taken."""
        result = self._expression(conjunct, operands, in_where=True)
        for operand in operands:
            for name in in_order(expression_nodes.variables_of(conjunct) & operand.optional):
                result = expression_nodes.Binary(
                    "or", expression_nodes.Unary("not", operand.mark(name, patterns.Mark.BOUND)), result, conjunct.span
                )
        return result

    def _expression(
        self, expr: expression_nodes.Expr, operands: tuple[_Operand, ...], in_where: bool = False
    ) -> expression_nodes.Expr:
        holders = {name: operand for operand in operands for name in (*operand.names, *operand.intervals)}
        lists = frozenset(name for operand in operands for name in operand.lists)

        def replaced(part: expression_nodes.Expr) -> expression_nodes.Expr | None:
            if is_lineage(part):
                self._check_lineage(part, holders)
                return part
            if is_aggregate(part) and in_where:
                return replace(part, arguments=tuple(_plain(argument) for argument in part.arguments))
            if (
                isinstance(part, expression_nodes.Call)
                and part.name == "count"
                and isinstance(part.arguments[0], expression_nodes.Field)
            ):
                counted = part.arguments[0]
                if counted.variable is None and counted.name in lists:
                    return replace(part, arguments=(_plain(expression_nodes.Field(counted.name, "s", counted.span)),))
            if isinstance(part, expression_nodes.Field) and part.variable in holders:
                if in_where and part.variable in lists:
                    raise self._needs_aggregate(part)
                return holders[part.variable].value(part)
            return None

        def _plain(argument: expression_nodes.Expr) -> expression_nodes.Expr:
            counted = (
                isinstance(argument, expression_nodes.Field) and argument.variable is None and argument.name in lists
            )
            whole = (
                expression_nodes.Field(argument.name, "s", argument.span)
                if counted and isinstance(argument, expression_nodes.Field)
                else argument
            )
            return expression_nodes.rewrite(
                whole,
                lambda part: (
                    holders[part.variable].value(part)
                    if isinstance(part, expression_nodes.Field) and part.variable in holders
                    else None
                ),
            )

        return expression_nodes.rewrite(expr, replaced)

    def _check_lineage(self, call: expression_nodes.Expr, holders: Mapping[Name, _Operand]) -> None:
        name = lineage_variable(call)
        if name is not None and name in holders and not holders[name].simple:
            problem = Problem(
                "policy-lineage",
                f"with MATCH {self.written.policy}, the lineage of the single variable `{name}` is not available",
                call.span,
                hint="use `lineage()`, the lineage of the whole match",
            )
            raise QueryError([problem], self.source)

    def _needs_aggregate(self, part: expression_nodes.Field) -> QueryError:
        return QueryError(
            [
                Problem(
                    "policy-list",
                    f"with MATCH CUMULATIVE, `{part.variable}` is a list in this condition",
                    part.span,
                    hint=f"use an aggregate, for example `max({part.variable}.{part.name})`",
                )
            ],
            self.source,
        )

    def _emit(self, stage: _Stage) -> _Operand:
        """Declare the stream of the matches that a stage chooses."""
        name = ContextStage(self.prefix, len(self.stages) + 1)
        cumulative = self.written.policy == patterns.CUMULATIVE and len(stage.operands) == 2 and not stage.branches
        listed = frozenset(initiating_names(stage.pattern)) if cumulative else frozenset[Name]()
        carried = tuple(self._carried(stage, listed))
        common = [patterns.Return(self._common(name, stage, listed), name) for name in self._handed_on]
        self.stages.append(
            patterns.PatternQuery(
                stage.pattern,
                name,
                where=stage.where,
                partition_by=self.written.partition_by,
                returns=(*common, *(patterns.Return(value, column.column) for column, value in carried)),
                policy=None if len(stage.operands) == 1 or stage.branches else self.written.policy,
                declares=True,
                carries=tuple(column for column, _ in carried),
                span=self.written.span,
                policy_span=self.written.policy_span,
                partition_span=self.written.partition_span,
            )
        )
        names = tuple(own for operand in stage.operands for own in (*operand.names, *operand.intervals))
        return _Operand(
            patterns.Event(name, Handle(name, _words(stage)), span=self.written.pattern.span),
            names,
            False,
            self.columns,
            intervals=stage.intervals,
            optional=frozenset(names)
            if stage.branches
            else frozenset(name for operand in stage.operands for name in operand.optional),
            lists=frozenset(
                name
                for operand in stage.operands
                for name in operand.names
                if name in operand.lists or operand.handle in listed
            ),
        )

    def _carried(
        self, stage: _Stage, listed: frozenset[Name]
    ) -> Iterator[tuple[patterns.CarriedColumn, expression_nodes.Expr]]:
        """The columns of the stream of a stage for fields and marks of variables, and their values."""
        for operand in stage.operands:
            for name in (*operand.names, *operand.intervals):
                for asked in self._asked(name):
                    value: expression_nodes.Expr = operand.value(asked)
                    if operand.handle in listed:
                        value = expression_nodes.Call("flatten", (_where_bound(value, name, operand),))
                    yield self._carry(name, asked.name), value
                if name in self.shared:
                    yield self._carry(name, patterns.Mark.IDENTITY), _identity(name, operand)
                if stage.branches:
                    yield (
                        self._carry(name, patterns.Mark.BOUND),
                        expression_nodes.IsNull(expression_nodes.Field(operand.handle, "s"), negated=True),
                    )
                elif name in operand.optional:
                    yield self._carry(name, patterns.Mark.BOUND), operand.mark(name, patterns.Mark.BOUND)

    def _carry(self, name: Name, wanted: str | patterns.Mark) -> patterns.CarriedColumn:
        return patterns.CarriedColumn(self.columns.of(name, wanted), name, wanted)

    def _common(self, name: str, stage: _Stage, listed: frozenset[Name] = frozenset()) -> expression_nodes.Expr:
        """A column that is equal in all events."""
        fields = tuple(
            expression_nodes.Call("first", (expression_nodes.Field(operand.handle, name),))
            if operand.handle in listed
            else expression_nodes.Field(operand.handle, name)
            for operand in stage.operands
        )
        return expression_nodes.Call("coalesce", fields) if stage.branches and len(fields) > 1 else fields[0]

    # --- The result

    def _returns(self, stage: _Stage) -> tuple[patterns.Return, ...]:
        if not self.written.returns_events:
            return tuple(
                replace(column, expression=self._expression(column.expression, stage.operands), alias=_alias(column))
                for column in self.written.returns
            )
        columns: list[tuple[str, expression_nodes.Expr]] = [
            (name, self._common(name, stage)) for name in self.written.partition_by
        ]
        columns += [("start", expression_nodes.Field(MATCH, "s")), ("end", expression_nodes.Field(MATCH, "e"))]
        holders = {name: operand for operand in stage.operands for name in operand.names}
        for name in positive_names(self.written.pattern):
            if isinstance(name, str):
                columns.append((name, holders[name].value(expression_nodes.Field(name, WHOLE_EVENT))))
        seen: set[str] = set()
        result = []
        for name, expression in columns:
            while name in seen:
                name += "_"
            seen.add(name)
            result.append(patterns.Return(expression, name))
        return tuple(result)


def _identity(name: Name, operand: _Operand) -> expression_nodes.Expr:
    return (
        expression_nodes.Call("lineage", (expression_nodes.Field(name, WHOLE_EVENT),))
        if operand.simple
        else operand.mark(name, patterns.Mark.IDENTITY)
    )


def _where_bound(value: expression_nodes.Expr, name: Name, operand: _Operand) -> expression_nodes.Expr:
    """The value, or a list with zero or one value if its branch is optional."""
    if name not in operand.optional or name in operand.lists:
        return value
    return expression_nodes.Gather((value,), operand.mark(name, patterns.Mark.BOUND))


def _words(stage: _Stage) -> str:
    """The parts of the events of an operator, as a text for messages."""
    words = [_word(operand.event) for operand in stage.operands]
    if len(words) == 1:
        return words[0]
    inside = [word.strip("()") if " or " not in word else word for word in words]
    return f"({(' or ' if stage.branches else ', ').join(inside)})"


def _word(event: patterns.Event) -> str:
    assert event.variable is not None
    return called(event.variable)


def _given(window: patterns.Window | None) -> tuple[patterns.Window, ...]:
    return () if window is None else (window,)


def _alias(column: patterns.Return) -> str | None:
    if column.alias is None and isinstance(column.expression, expression_nodes.Field | expression_nodes.Member):
        return column.expression.name
    return column.alias
