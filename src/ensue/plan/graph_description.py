"""Describes graphs in text: their events, time bounds, absences and lists, and how matches are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ensue.analysis.catalog import Catalog, same_variables
from ensue.errors import counted
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.graph.bounds import Bound, Limit, Point, end_of, position_of, start_of
from ensue.graph.graphs import Absence, Collection, Graph, Moment, Scope, Variable
from ensue.nodes import patterns
from ensue.nodes.expressions import Binary, Duration, Expr, Field, Unary, rewrite, substitute_fields, walk
from ensue.nodes.names import (
    WHOLE,
    AnyEvent,
    Edge,
    Handle,
    Name,
    Other,
    Round,
    SpokenName,
    Stream,
    Tick,
    UnnamedVariable,
    called,
    without_rounds,
)
from ensue.plan.planner import precedence
from ensue.plan.plans import GraphPlan, QueryPlan
from ensue.text.render import render_expression, render_pattern, render_window


def amount(ticks: int, catalog: Catalog) -> str:
    """A number of ticks as text."""
    if catalog.unit is None:
        return str(ticks)
    sign = "-" if ticks < 0 else ""
    return sign + render_window(Duration(abs(ticks) * NANOSECONDS_PER_UNIT[catalog.unit]))


@dataclass(frozen=True, slots=True)
class OperatorEvents:
    """The events of another operator: their name, the number of the operator, and the meaning of their columns."""

    word: str
    operator: int
    carried: Mapping[str, patterns.CarriedColumn]


@dataclass(frozen=True, slots=True)
class _Distance:
    """A distance such as `at most 5m after` or `before`, to be followed by the name of a point."""

    side: str
    amount: str | None = None

    def __str__(self) -> str:
        return self.side if self.amount is None else f"{self.amount} {self.side}"


@dataclass(frozen=True, slots=True)
class GraphWords:
    """Describes the graphs of a plan. `given` are the streams with the events of another operator."""

    plan: QueryPlan
    given: Mapping[Stream, OperatorEvents] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Describes every branch, and the branches that were removed."""
        graphs = self.plan.graphs
        same = further_rounds(self.plan)
        for number, graph_plan in enumerate(graphs, start=1):
            if len(graphs) > 1:
                further = ", in order, otherwise like an earlier branch" if number in same else ""
                yield f"branch {number} of {len(graphs)}{_rounds(graph_plan.graph)}{further}"
            if number not in same:
                yield from self._graph(graph_plan, "  " if len(graphs) > 1 else "")
        for dropped in self.plan.normal_form.dropped:
            yield f"removed, because it can never match: {dropped}"

    def word(self, name: Name) -> str:
        return str(name)

    def expression(self, expr: Expr) -> str:
        """A condition as the user would have written it."""
        return render_expression(substitute_fields(rewrite(expr, self._as_written), _spoken))

    def amount(self, ticks: int) -> str:
        return amount(ticks, self.plan.catalog)

    def _as_written(self, part: Expr) -> Expr | None:
        match part:
            case Binary("or", Unary("not", Field() as mark), condition) if (
                carried := self._carried(mark)
            ) is not None and carried.field is patterns.Mark.BOUND:
                return rewrite(condition, self._as_written)
            case Field(variable) if (carried := self._carried(part)) is not None and isinstance(carried.field, str):
                return Field(
                    Other(carried.variable) if isinstance(variable, Other) else carried.variable, carried.field
                )
            case Field(variable, name) if (
                variable is not None and (named := self._named_moments().get(variable)) is not None
            ):
                return Field(named, name)
            case _:
                return None

    def _carried(self, field: Field) -> patterns.CarriedColumn | None:
        """The meaning of a field of another operator's events; None for any other field."""
        name = field.variable.name if isinstance(field.variable, Other) else field.variable
        return self.given[name.stream].carried.get(field.name) if isinstance(name, Handle) else None

    def _named_moments(self) -> dict[Name, Name]:
        """The AS names that end with a moment, by that moment."""
        graphs = [inner.graph for graph_plan in self.plan.graphs for inner in graph_plan.with_inner()]
        ends = [(name, extent.ends) for graph in graphs for name, extent in graph.intervals.items()]
        moments = {moment.name for graph in graphs for moment in graph.moments}
        return {names[0]: name for name, names in ends if len(names) == 1 and names[0] in moments}

    # -- one graph -----------------------------------------------------------------------------------------------------

    def _graph(self, graph_plan: GraphPlan, indent: str) -> Iterator[str]:
        graph = graph_plan.graph
        for line in self._own_lines(graph_plan):
            yield indent + line
        for absence in graph_plan.absences:
            yield f"{indent}no {absence.absence.text} {self._absent(absence.absence, graph)}"
            yield from self._graph(absence.graph, indent + "  ")
        for collection in graph_plan.collections:
            yield f"{indent}{self._listed(collection.collection, graph)}"
            for inner in collection.graphs[: len(collection.graphs) - (collection.collection.closing or 0)]:
                yield from self._graph(inner, indent + "  ")
        for condition in graph.list_conditions:
            yield f"{indent}{self.expression(condition)}"

    def _own_lines(self, graph_plan: GraphPlan) -> Iterator[str]:
        graph = graph_plan.graph
        yield from map(self._variable, graph.variables)
        yield from (self._moment(moment, graph) for moment in graph.moments)
        for name, series in graph.series.items():
            every = f"every {self.amount(series.ticks)} after {self._at(series.first, graph)}"
            yield f"{name}: the list of moments, {every} and up to {self._at(series.last, graph)}"
        yield from self._bounds(graph)
        yield from (f"{self.expression(equality.condition)}  (join key)" for equality in graph.equalities)
        yield from map(self._condition, graph.conditions)
        yield from (f"{self.word(x)} and {self.word(y)} are different events" for x, y in graph_plan.distinct)

    def _condition(self, condition: Expr) -> str:
        """A condition as text; the internal ones, that two operators bind different events or one, get their own
        sentences."""
        if (one := same_variables(condition)) is not None:
            return f"{' and '.join(map(self.word, one))} are the same event"
        found = [self._carried(part) for part in walk(condition) if isinstance(part, Field)]
        told = dict.fromkeys(
            str(each.variable) for each in found if each is not None and each.field is patterns.Mark.IDENTITY
        )
        return f"{' and '.join(told)} are different events" if told else self.expression(condition)

    def _variable(self, variable: Variable) -> str:
        where = " and ".join(map(self.expression, variable.predicates))
        return f"{self.word(variable.name)}: {self._of_stream(variable.stream)}" + (f" with {where}" if where else "")

    def _of_stream(self, stream: Stream) -> str:
        if stream in self.given:
            return f"a match of operator {self.given[stream].operator}"
        return f"an event of {stream}" if not isinstance(stream, AnyEvent) else str(stream)

    def _moment(self, moment: Moment, graph: Graph) -> str:
        base = self._at(moment.base, graph)
        if not moment.repeated:
            match without_rounds(moment.name):
                case Edge(interval, side):
                    verb = "starts" if side == "s" else "ends"
                    return f"{interval} {verb} {self._shifted(moment.ticks, base)}"
                case Tick(operator):
                    return f"{operator} ends {self._shifted(moment.ticks, base)}"
                case name:
                    return f"{name} ends {self._shifted(moment.ticks, base)}"
        limit = graph.times.limit(end_of(moment.name), moment.base)
        until = "" if limit is None else f", up to {self._span(limit)}"
        return f"{_moment_name(moment, graph)}: a moment every {self.amount(moment.ticks)} after {base}{until}"

    # -- time ----------------------------------------------------------------------------------------------------------

    def _bounds(self, graph: Graph) -> Iterator[str]:
        """The closed bounds between pairs of the graph's own variables, each pair once."""
        names = precedence(graph)
        for place, x in enumerate(names):
            for y in names[place + 1 :]:
                yield from filter(None, (self._pair(graph, x, y), self._positions(graph, x, y)))
            length = graph.times.limit(end_of(x), start_of(x))
            if length is not None and length.value > 0:
                yield f"{self.word(x)} lasts at most {self.amount(length.value)}"

    def _pair(self, graph: Graph, x: Name, y: Name) -> str:
        """The bounds between two variables, in one line."""
        times = graph.times
        least, most = times.limit(end_of(x), start_of(y)), times.limit(end_of(y), start_of(x))
        if least is not None and least.value <= 0 and not least.is_zero:
            gap = (
                f" by {'more than' if least.strict else 'at least'} {self.amount(-least.value)}" if least.value else ""
            )
            text = f"{self.word(x)} before {self.word(y)}{gap}"
            return text + (f", all within {self._span(most)}" if most is not None else "")
        if _is_point(x, graph) and _is_point(y, graph):
            if least is not None and most is not None and least.is_zero and most.is_zero:
                return f"{self.word(x)} and {self.word(y)} at the same time"
            return ", ".join(filter(None, (self._upper(y, most, x), self._upper(x, least, y))))
        overlap = times.before(start_of(x), end_of(y)) and times.before(start_of(y), end_of(x))
        words = [f"{self.word(x)} and {self.word(y)} overlap"] if overlap else []
        for one, other in ((y, x), (x, y)):
            words += self._ending(graph, one, other, overlap)
        return ", ".join(words)

    def _ending(self, graph: Graph, x: Name, y: Name, overlap: bool) -> Iterator[str]:
        """The upper bound of the end of `x`; for overlapping variables, only which ends first."""
        ends, most = graph.times.limit(end_of(x), end_of(y)), graph.times.limit(end_of(x), start_of(y))
        if ends is not None and (ends.value <= 0 or not overlap) and (most is None or ends.value < most.value):
            yield f"{self.word(x)} ends {self._no_later(ends)} {self.word(y)} ends"
        if most is not None and not overlap:
            yield f"{self.word(x)} ends {self._no_later(most)} {self.word(y)} starts"

    def _upper(self, later: Name, limit: Limit | None, earlier: Name) -> str:
        if limit is None:
            return ""
        return f"{self.word(later)} {self._no_later(limit)} {self.word(earlier)}"

    def _positions(self, graph: Graph, x: Name, y: Name) -> str:
        positions = graph.positions
        most, back = positions.limit(position_of(y), position_of(x)), positions.limit(position_of(x), position_of(y))
        if most is not None and back is not None and most.whole == -back.whole == 1:
            return f"{y} is the next event after {x}, with no event between"
        if most is not None and most == back:
            return f"{x} and {y} at most {counted(most.whole, 'position', 'positions')} apart"
        return "" if most is None else f"{y} at most {counted(most.whole, 'position', 'positions')} after {x}"

    def _span(self, limit: Limit) -> str:
        return ("less than " if limit.strict else "") + self.amount(limit.value)

    def _no_later(self, limit: Limit) -> _Distance:
        """The bound `x - y <= limit` as a statement about `x`, to be followed by the name of `y`."""
        if limit.value == 0:
            return _Distance("before" if limit.strict else "no later than")
        return _Distance("after" if limit.value > 0 else "before", self._amount(limit))

    def _no_earlier(self, limit: Limit) -> _Distance:
        """The bound `x - y <= limit` as a statement about `y`, to be followed by the name of `x`."""
        if limit.value == 0:
            return _Distance("after" if limit.strict else "no earlier than")
        return _Distance("before" if limit.value > 0 else "after", self._amount(limit))

    def _amount(self, limit: Limit) -> str:
        most, least = ("less than", "more than") if limit.strict else ("at most", "at least")
        return f"{most if limit.value > 0 else least} {self.amount(abs(limit.value))}"

    def _shifted(self, ticks: int, base: Stream) -> str:
        return f"{self.amount(abs(ticks))} {'before' if ticks < 0 else 'after'} {base}"

    def _at(self, point: Point, graph: Graph) -> str:
        """A point in time, of the match or around it."""
        if point.variable == WHOLE:
            return f"the {_side(point)} of the match"
        moment = next((moment for moment in graph.moments if moment.name == point.variable), None)
        if moment is not None:
            if moment.repeated:
                return _moment_name(moment, graph)
            return self._shifted(moment.ticks, self._at(moment.base, graph))
        word = self.word(point.variable)
        return word if _is_point(point.variable, graph) else f"the {_side(point)} of {word}"

    # -- what is beside the match --------------------------------------------------------------------------------------

    def _absent(self, absence: Absence, graph: Graph) -> str:
        """Where a forbidden match must not occur; `graph` is the graph around it."""
        stated = absence.scope.stated
        if stated is None:
            return self._scope(absence.scope, graph)
        if not stated:
            return "in an otherwise equal match"
        own = absence.graph.names
        if not any(isinstance(name, Other) for name in own):
            return f"that {self._stated(stated, absence.graph, graph)}"
        lower = [bound for bound in stated if bound.right.variable in own]
        return f"and {self._stated(lower, absence.graph, graph)}"

    def _listed(self, collection: Collection, graph: Graph) -> str:
        if not collection.graphs:
            return f"{collection.name}: an empty list, because no {collection.text} can occur there"
        scope, inner = collection.scopes[0], collection.graphs[0]
        stated = scope.stated
        where = self._scope(scope, graph) if stated is None else f"that {self._stated(stated, inner, graph)}"
        if collection.closing is not None:
            return f"{collection.name}: the list of every {collection.text} {where}, and of that match itself"
        return f"{collection.name}: the list of every {collection.text} {where}, {_number(collection)}"

    def _stated(self, bounds: Iterable[Bound], inner: Graph, graph: Graph) -> str:
        """Where an operator places the forbidden or listed matches."""
        for condition in inner.conditions:
            if (one := same_variables(condition)) is not None:
                return f"ends with {self.word(one[1])}"
        said: dict[str, dict[str, list[_Distance]]] = {}
        for bound in bounds:
            is_upper = bound.left.variable in (*inner.names, *(moment.name for moment in inner.moments))
            own, other = (bound.left, bound.right) if is_upper else (bound.right, bound.left)
            verb = "occurs" if _is_single_point(inner) else f"{_side(own)}s"
            words = self._no_later(bound.limit) if is_upper else self._no_earlier(bound.limit)
            phrases = said.setdefault(verb, {}).setdefault(self._at(other, graph), [])
            if words not in phrases:
                phrases.append(words)
        return " and ".join(f"{verb} {_joined(places)}" for verb, places in said.items())

    def _scope(self, scope: Scope, graph: Graph) -> str:
        windows = self.plan.normal_form.windows
        size = " or ".join(
            text
            for text in (
                self.amount(windows.ticks) if windows.ticks is not None else "",
                counted(windows.events - 1, "position", "positions") if windows.events is not None else "",
            )
            if text
        )
        lower = f"from {size} before the end of the match"
        if scope.after:
            moments = {moment.name for moment in graph.moments}
            after = "later than" if moments.intersection(scope.after.ends) else "after"
            lower = f"{after} {self._names(scope.after.ends, graph)}"
        if scope.before:
            return f"{lower} and before {self._names(scope.before.starts, graph)}"
        if scope.trailing:
            return f"{lower} and up to {size} after the start of the match"
        return f"{lower} and up to the end of the match"

    def _names(self, names: tuple[Name, ...], graph: Graph) -> str:
        moments = {moment.name for moment in graph.moments}
        return " and ".join(self._at(end_of(name), graph) if name in moments else self.word(name) for name in names)


def _spoken(field: Field) -> Field:
    """The field with a readable variable name, without backticks, for variables that Ensue creates."""
    made = isinstance(field.variable, Round | Other | Handle)
    return replace(field, variable=SpokenName(str(field.variable))) if made else field


def further_rounds(plan: QueryPlan) -> frozenset[int]:
    """The numbers of the branches that differ from an earlier branch only in the number of rounds of a repetition."""
    first: dict[object, Mapping[Name, int]] = {}
    found = set()
    for number, graph_plan in enumerate(plan.graphs, start=1):
        graph = graph_plan.graph
        if first.setdefault(_without_rounds(graph), graph.rounds) != graph.rounds:
            found.add(number)
    return frozenset(found)


def _without_rounds(graph: Graph) -> object:
    """A key that is equal for graphs that differ only in their numbers of rounds."""
    if not graph.rounds:
        return graph.number, graph.extent
    return _events_of(graph), frozenset(_events_of(absence.graph) for absence in graph.absences)


def _events_of(graph: Graph) -> frozenset[tuple[Name, Stream]]:
    return frozenset((without_rounds(variable.name), variable.stream) for variable in graph.variables)


def _rounds(graph: Graph) -> str:
    """The numbers of rounds, to follow the number of a branch."""
    words = [f"{name} {counted(rounds, 'time', 'times')}" for name, rounds in graph.rounds.items()]
    return f": {', '.join(words)}" if words else ""


def _number(collection: Collection) -> str:
    least, most = collection.least, collection.most
    if most is None:
        return f"at least {least}" if least else "possibly empty"
    if least == most:
        return f"exactly {least}"
    return f"{least} to {most}" if least else f"at most {most}"


def _moment_name(moment: Moment, graph: Graph) -> str:
    named = (name for name, extent in graph.intervals.items() if extent.ends == (moment.name,))
    name = next(named, None)
    return "the moment" if name is None else f"{name}.e"


def _joined(places: Mapping[str, list[_Distance]]) -> str:
    """`after b and at most 5m later`: the distances to each place, which is named once."""
    return " and ".join(_at_place(place, phrases) for place, phrases in places.items())


def _at_place(place: str, phrases: list[_Distance]) -> str:
    match sorted(phrases, key=lambda phrase: phrase.amount is not None):
        case [_Distance("after", None), _Distance("after", str(amount))]:
            return f"after {place} and {amount} later"
        case [_Distance("before", None), _Distance("before", str(amount))]:
            return f"before {place} and {amount} earlier"
        case _:
            return " and ".join(f"{phrase} {place}" for phrase in phrases)


def _side(point: Point) -> str:
    return "start" if point.side == "s" else "end"


def _is_point(name: Name, graph: Graph) -> bool:
    longest = graph.times.limit(end_of(name), start_of(name))
    return longest is not None and longest.is_zero


def _is_single_point(graph: Graph) -> bool:
    return len(graph.variables) == 1 and not graph.moments and _is_point(graph.variables[0].name, graph)


# --- choice of matches


def choice_lines(plan: QueryPlan) -> Iterator[str]:
    """How a query without a context chooses matches; nothing if it has no policy."""
    query = plan.query
    picks = [node for node in patterns.walk(query.pattern) if isinstance(node, patterns.Pick)]
    if query.policy is None and query.consume is None and not picks:
        yield from _suppression(query)
        return
    for pick in picks:
        which = "latest" if pick.latest else "earliest"
        yield f"{render_pattern(pick)}: among matches that differ only in this item, the one in which it ends {which}"
    if picks and any(graph.graph.trailing for graph in plan.graphs):
        yield "a match is reported when its window closes, because a later event could still change the choice"
    if query.policy == patterns.NEXT_MATCH:
        yield from _next_match(query.pattern)
    elif query.policy == patterns.STRICT:
        yield from _strict(query.pattern)
    shown = "" if query.policy in (patterns.NEXT_MATCH, patterns.STRICT) or picks else "all matches are reported; "
    if query.consume:
        yield "CONSUME: each event is used in one match only; matches are taken by completion time, then by start"
        yield "a match that needs a used event is not reported and uses no event"
    else:
        yield f"{shown}events are shared"
    yield from _suppression(query)


def _suppression(query: patterns.PatternQuery) -> Iterator[str]:
    if query.suppress is None:
        return
    values = [*query.partition_by, *map(render_expression, query.suppress.per)]
    per = f" of the same {', '.join(values)}" if values else ""
    size = render_window(query.suppress.window)
    yield f"SUPPRESS: after a reported match, matches{per} that complete within {size} are only counted"
    yield f"`{patterns.SUPPRESSED}` is the number of matches that were suppressed since the last reported one"


def _next_match(pattern: patterns.Pattern) -> Iterator[str]:
    names = [_event_word(event) for event in _positive_events(pattern)]
    yield f"{names[0]}: every event"
    for place, (before, name) in enumerate(pairwise(names), start=1):
        yield f"{name}: the earliest event after {before} that fits {', '.join(names[:place])}"
    if any(isinstance(node, patterns.Not) for node in patterns.walk(pattern)):
        yield "NOT is checked after all events are bound; if it fails, no later event is tried"


def _strict(pattern: patterns.Pattern) -> Iterator[str]:
    names = [_event_word(event) for event in _positive_events(pattern)]
    for before, name in pairwise(names):
        yield f"{name}: the next event of the partition after {before}, of any stream"


def _positive_events(pattern: patterns.Pattern) -> Iterator[patterns.Event]:
    if isinstance(pattern, patterns.Event):
        yield pattern
    elif not isinstance(pattern, patterns.Not):
        for child in patterns.children(pattern):
            yield from _positive_events(child)


# -- contexts ----------------------------------------------------------------------------------------------------------


def given_by(stages: Sequence[patterns.PatternQuery]) -> dict[Stream, OperatorEvents]:
    """The events of each operator's stream, by its name."""
    declared = {stage.name: (number, stage) for number, stage in enumerate(stages, start=1) if stage.declares}
    found: dict[Stream, OperatorEvents] = {}
    for user in stages:
        for part in patterns.walk(user.pattern):
            if isinstance(part, patterns.Event) and isinstance(part.variable, Handle):
                number, stage = declared[part.stream]
                carried = {column.column: column for column in stage.carries}
                found[part.stream] = OperatorEvents(part.variable.words, number, carried)
    return found


def context_lines(query: patterns.PatternQuery, stages: Sequence[patterns.PatternQuery]) -> Iterator[str]:
    """How each operator of a query with a context chooses, innermost first; `stages` are the resolved operators."""
    given = given_by(stages)
    inside = {stage.name: _bare(stage.pattern) for stage in stages if stage.declares}
    operators = {number: _bare(stage.pattern) for number, stage in enumerate(stages, start=1)}
    for number, pattern in operators.items():
        if not isinstance(pattern, patterns.Event) or pattern.stream not in given:
            operands = [_event_word(item) for item in _operands(pattern)]
            text = render_pattern(_inlined(pattern, inside))
            yield f"{number}. {text}: {_chosen(pattern, operands, query.policy or '')}"
    if any(_is_pair(pattern) for pattern in operators.values()):
        yield "a pair fits if its order, its WITHIN and NOT clauses and the conditions on the events bound so far hold"
    else:
        yield "there are no pairs to choose from"


def _chosen(pattern: patterns.Pattern, operands: Sequence[str], policy: str) -> str:
    if isinstance(pattern, patterns.Event):
        return "every event that fits"
    if isinstance(pattern, patterns.Or):
        return "every match of its items"
    if len(operands) == 1 and isinstance(pattern, patterns.Seq):
        used = "" if policy == patterns.RECENT else "; events that a rejected match used stay used"
        return f"checked last, for each chosen {operands[0]}{used}"
    if len(operands) == 1:
        return f"each {operands[0]} that fits"
    initiator, terminator = operands
    if _either_first(pattern):
        others = "others" if policy == patterns.CUMULATIVE else "other"
        return f"whichever of {initiator} and {terminator} ends later, with {_partners(others, None, policy)}"
    return f"each {terminator} with {_partners(initiator, pattern, policy)}"


def _partners(initiator: str, operator: patterns.Pattern | None, policy: str) -> str:
    """The partners of a terminator; without an operator, their order is not described."""
    fits, fit = "that fits", "that fit"
    match operator:
        case None:
            pass
        case patterns.Operation("FOLLOWS", window=Duration() | patterns.Ticks() as window):
            fits, fit = (f"that {word} at most {render_window(window)} before it" for word in _FITS_AND_ENDS)
        case patterns.Operation("PRIOR"):
            fits, fit = (f"that {word} before it" for word in _FITS_AND_ENDS)
        case patterns.Operation("SIMULTANEOUS"):
            fits, fit = (f"that {word} with it" for word in _FITS_AND_ENDS)
        case patterns.Operation("UNLESS"):
            fits, fit = (f"{word} and for which it is the first partner" for word in (fits, fit))
        case _:
            fits, fit = (f"before it {word}" for word in (fits, fit))
    return {
        patterns.RECENT: f"the latest {initiator} {fits}; no event is used up",
        patterns.CHRONICLE: f"the oldest open {initiator} {fits}; both events are used up",
        patterns.CONTINUOUS: f"every open {initiator} {fits}, one match each; the initiators are used up",
        patterns.CUMULATIVE: f"all open {initiator} {fit}, as lists in one match; the initiators are used up",
    }[policy]


_FITS_AND_ENDS = ("fits and ends", "fit and end")


def _either_first(pattern: patterns.Pattern) -> bool:
    return isinstance(pattern, patterns.And) or (
        isinstance(pattern, patterns.Operation) and pattern.operator == "CONCURRENT"
    )


def _is_pair(pattern: patterns.Pattern) -> bool:
    return not isinstance(pattern, patterns.Or | patterns.Event) and len(_operands(pattern)) == 2


def _bare(pattern: patterns.Pattern) -> patterns.Pattern:
    while isinstance(pattern, patterns.Within | patterns.NamedPattern):
        pattern = pattern.item
    return pattern


def _operands(pattern: patterns.Pattern) -> list[patterns.Event]:
    """The events that an operator combines, in the order of the text, without forbidden ones."""
    if isinstance(pattern, patterns.Event):
        return [pattern]
    forbidden = patterns.OPERATORS[pattern.operator].forbidden if isinstance(pattern, patterns.Operation) else ()
    items = enumerate(patterns.children(pattern))
    return [item for place, item in items if place not in forbidden and isinstance(item, patterns.Event)]


def _inlined(pattern: patterns.Pattern, inside: Mapping[Stream | None, patterns.Pattern]) -> patterns.Pattern:
    """The pattern with its nested operators inlined, as it was written."""

    def written(part: patterns.Pattern) -> patterns.Pattern:
        if not isinstance(part, patterns.Event):
            return part
        if part.stream in inside:
            return _inlined(inside[part.stream], inside)
        return replace(part, variable=None) if isinstance(part.variable, UnnamedVariable) else part

    return patterns.rewrite(pattern, written)


def _event_word(event: patterns.Event) -> str:
    """The variable of an event, or its stream if it has no variable."""
    return str(event.stream) if event.variable is None else called(event.variable)
