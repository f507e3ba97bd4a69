"""The contexts of SNOOP, as a graph of operators through which events go one time after the other.

Each operator of two operands keeps, for each of them, the composites that are open: that can still be initiators. What
an operand gives is looked at as a terminator of those of the other. Nothing here lists all pairs; of `oracle.partition`
only the single checks are used: windows, conditions, negations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, product
from operator import itemgetter

from inside import (
    CUMULATIVE,
    RECENT,
    And,
    Event,
    Expr,
    Field,
    NamedPattern,
    Not,
    Operation,
    Or,
    Pattern,
    Same,
    Seq,
    Within,
)
from oracle.choices import follows, length_of, read_event
from oracle.conditions import Lists, Lookup, Value, evaluate, holds, same
from oracle.model import Bound, Candidate, Instant, OracleEvent, OracleMatch, Span, hull, values_in_order
from oracle.partition import Partition
from oracle.returns import name_of, origins_of
from oracle.tree import (
    WHOLE,
    Anonymous,
    Path,
    is_forbidden,
    is_inside,
    left_neighbour,
    names_below,
    names_in,
    part_at,
    parts,
    right_neighbour,
    scope_of,
    variable_at,
    walk,
)

INITIATORS = {
    "SEQ": (0,), "RELATIVE": (0,), "FOLLOWS": (0,), "PRIOR": (0,), "APERIODIC": (0,), "UNLESS": (0,),
    "SIMULTANEOUS": (0,), "PRECEDES": (1,), "AND": (0, 1), "CONCURRENT": (0, 1),
}  # fmt: skip
"""Which of the two operands can be the initiator."""


@dataclass(frozen=True, slots=True)
class Composite:
    """What an operator gives. `values` are the events of every variable, and the intervals of every AS name: one,
    or several where CUMULATIVE gathered them."""

    values: dict[str, tuple[OracleEvent | Span, ...]] = field(default_factory=dict)
    spans: dict[Path, Span] = field(default_factory=dict)
    branch: dict[Path, int] = field(default_factory=dict)
    operands: tuple[object, ...] = ()
    """The places of its operands in the order of (end, start, operands), the left one first."""

    def events(self) -> dict[str, tuple[OracleEvent, ...]]:
        return {name: found for name, found in self.values.items() if isinstance(found[0], OracleEvent)}

    def all_events(self) -> list[OracleEvent]:
        return [event for found in self.events().values() for event in found]


def context_matches(partition: Partition) -> list[OracleMatch]:
    """The matches of a query with MATCH RECENT, CHRONICLE, CONTINUOUS or CUMULATIVE in one partition."""
    graph = Graph(partition)
    outermost = node_at(graph, WHOLE)
    found = []
    for time in graph.times():
        found += [match for match in outermost.step(time) if graph.is_right_in_the_end(match)]
    return [graph.shown(match) for match in found]


class Graph:
    """What the operators of one query share: its conditions, windows and negations."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.pattern = partition.pattern
        self.policy = partition.query.policy
        self.conditions = [conjunct for home, conjunct in partition.conjuncts if home == WHOLE]
        self.forbidden = [scope for scope in partition.inner_scopes[WHOLE] if is_forbidden(self.pattern, scope)]

    def times(self) -> list[int]:
        """Every time at which something can end: an event, or a NOTFOLLOWS after it."""
        waits = [
            length_of(part.window)
            for _, part in walk(self.pattern)
            if isinstance(part, Operation) and part.operator == "NOTFOLLOWS"
        ]
        delays = {sum(some) for size in range(len(waits) + 1) for some in combinations(waits, size)}
        return sorted({event.e + delay for event in self.partition.events for delay in delays})

    def order_of(self, composite: Composite, path: Path) -> tuple[object, ...]:
        """(end, start, operands); of equal ends and starts, the order columns decide."""
        span = composite.spans[path]
        return in_order(span.lasts), in_order(span.firsts), composite.operands

    # What is said about a composite when an operator makes it, of operands about which all was said before

    def is_right(self, composite: Composite, path: Path, operands: list[Composite]) -> bool:
        """Whether it fits into the windows around it, and what can be judged now for the first time holds."""
        return (
            self.fits(composite, path)
            and self.conditions_hold(composite, operands)
            and not any(
                self.is_violated(composite, scope)
                for scope in self.forbidden
                if self.can_be_judged(composite, scope)
                and not any(self.can_be_judged(operand, scope) for operand in operands)
            )
        )

    def is_right_in_the_end(self, match: Composite) -> bool:
        """Whether no negation is violated that could not be judged before: those at the edges of everything."""
        return not any(
            self.is_violated(match, scope)
            for scope in self.forbidden
            if self.partition.anchor[scope] in match.spans and not self.can_be_judged(match, scope)
        )

    def fits(self, composite: Composite, path: Path) -> bool:
        around = [path[:length] for length in range(len(path) + 1)]
        windows = [part.window for place in around if isinstance(part := part_at(self.pattern, place), Within)]
        candidate = as_candidate(composite)
        return all(self.partition.fits(candidate, path, window) for window in (*windows, *self.partition.windows))

    def conditions_hold(self, composite: Composite, operands: list[Composite], below: Path = WHOLE) -> bool:
        """The conditions whose names are now all bound, about something below the path."""
        about = names_below(self.pattern, below)
        return all(
            self.agrees(composite, condition)
            if isinstance(condition, Same)
            else self.holds_for_each_element(composite, condition)
            for condition in self.conditions
            if isinstance(condition, Same)
            or (
                names_in(condition) <= composite.values.keys()
                and (below == WHOLE or names_in(condition) & about)
                and not any(names_in(condition) <= operand.values.keys() for operand in operands)
            )
        )

    def agrees(self, composite: Composite, condition: Same) -> bool:
        events = composite.all_events()
        return all(same([event.fields.get(column) for event in events]) for column in condition.fields)

    def holds_for_each_element(self, composite: Composite, condition: Expr) -> bool:
        names = sorted(names_in(condition))
        return all(
            holds(condition, lookup_in(dict(zip(names, chosen, strict=True))))
            for chosen in product(*(composite.values[name] for name in names))
        )

    def can_be_judged(self, composite: Composite, scope: Path) -> bool:
        """Whether a negation's neighbours and all that its conditions name are bound; never if it has no neighbour."""
        inner = [place for place in self.partition.scopes if is_inside(place, scope)]
        neighbours: list[Path | None] = [self.partition.anchor[scope]]
        for place in inner:
            if isinstance(part_at(self.pattern, place[:-1]), Not):
                neighbours += [left_neighbour(self.pattern, place[:-1]), right_neighbour(self.pattern, place[:-1])]
        named = {
            name
            for home, condition in self.partition.conjuncts
            if home in inner
            for name in names_in(condition)
            if self.partition.home[name] == WHOLE
        }
        operation = part_at(self.pattern, scope[:-1])
        if isinstance(operation, Operation):
            neighbours += self.partition.bound_parts(scope[:-1])
        outside = [place for place in neighbours if place is None or scope_of(self.pattern, place) == WHOLE]
        return all(place in composite.spans for place in outside) and named <= composite.values.keys()

    def is_violated(self, composite: Composite, scope: Path) -> bool:
        candidate = as_candidate(composite)
        return self.partition.is_violated(candidate, candidate, scope)

    # What a match shows

    def shown(self, match: Composite) -> OracleMatch:
        listed = self.listed_names() if self.policy == CUMULATIVE else set()
        bindings: dict[str, Bound] = {
            name: tuple(event.id for event in found) if name in listed else found[0].id
            for name, found in match.events().items()
        }
        return OracleMatch(
            bindings=tuple(sorted(bindings.items())),
            branch=tuple(sorted(match.branch.items())),
            start=match.spans[WHOLE].s,
            end=match.spans[WHOLE].e,
            completion=self.partition.completion(as_candidate(match)),
            columns=self.columns_of(match, listed),
            origins=origins_of(match.all_events()),
        )

    def listed_names(self) -> set[str]:
        """The variables of the operands that can be initiators."""
        return {
            name
            for path, part in walk(self.pattern)
            if scope_of(self.pattern, path) == WHOLE
            for operand in initiating_parts(self.partition, part, path)
            for name in names_below(self.pattern, operand)
        }

    def columns_of(self, match: Composite, listed: set[str]) -> dict[str, Value]:
        """RETURN: a field of a list is the list of the values; an aggregate ranges over one list."""

        def elements(names: set[str]) -> list[Lookup]:
            (name,) = names & listed
            return [lookup_in(singles | {name: value}) for value in match.values.get(name, ())]

        def lineage(name: str | None) -> tuple[int, ...]:
            events = match.all_events() if name is None else match.events().get(name, ())
            return tuple(origin.id for origin in origins_of(events))

        singles = {name: found[0] for name, found in match.values.items() if name not in listed}
        lists = Lists(elements, lineage=lineage)
        found: dict[str, Value] = {}
        for number, column in enumerate(self.partition.query.returns, start=1):
            expression = column.expression
            if isinstance(expression, Field) and expression.variable in listed:
                values = elements({expression.variable})
                found[name_of(column, number)] = tuple(evaluate(expression, value) for value in values)
            else:
                found[name_of(column, number)] = evaluate(expression, lookup_in(singles), lists)
        return found


def initiating_parts(partition: Partition, part: Pattern, path: Path) -> list[Path]:
    """The parts below an operator that can be initiators, in the nest of two operands each that SEQ and AND are."""
    operator = operator_of(part)
    if operator not in INITIATORS:
        return []
    items = partition.bound_parts(path)
    if len(items) == 1:
        return []
    return items if INITIATORS[operator] == (0, 1) else items[:-1] if INITIATORS[operator] == (0,) else items[1:]


def operator_of(part: Pattern) -> str | None:
    if isinstance(part, Operation):
        return part.operator
    return {Seq: "SEQ", And: "AND"}.get(type(part))


def lookup_in(chosen: dict[str, OracleEvent | Span]) -> Lookup:
    def lookup(name: str | None, column: str) -> Value:
        value = chosen.get(name)
        if isinstance(value, Span):
            return {"s": value.s, "e": value.e}[column]
        return None if value is None else read_event(value, column)

    return lookup


def as_candidate(composite: Composite) -> Candidate:
    """For the checks of the partition. The further elements of a list only count as bound events."""
    bindings = {}
    for name, found in composite.events().items():
        for number, event in enumerate(found):
            bindings[name if number == 0 else Anonymous((name, number))] = event
    return Candidate(bindings, composite.spans, composite.branch)


def paired(left: Composite, right: Composite) -> Composite | None:
    """Both in one. None if a variable would be two events, or two variables one event."""
    for name, found in left.events().items():
        for other, others in right.events().items():
            ids, other_ids = {event.id for event in found}, {event.id for event in others}
            if (ids != other_ids) if name == other else (ids & other_ids):
                return None
    return gathered([left, right])


def gathered(composites: list[Composite]) -> Composite:
    """All of them in one: where they have different values for a name it is a list, in the order of time."""
    names = dict.fromkeys(chain.from_iterable(composite.values for composite in composites))
    places = dict.fromkeys(chain.from_iterable(composite.spans for composite in composites))
    return Composite(
        {name: in_order_of_time([composite.values.get(name, ()) for composite in composites]) for name in names},
        {place: one_span([one.spans[place] for one in composites if place in one.spans]) for place in places},
        dict(chain.from_iterable(composite.branch.items() for composite in composites)),
    )


def in_order_of_time(several: list[tuple[OracleEvent | Span, ...]]) -> tuple[OracleEvent | Span, ...]:
    values = set(chain.from_iterable(several))
    return tuple(sorted(values, key=place_in_list))


def place_in_list(value: OracleEvent | Span) -> tuple[object, ...]:
    if isinstance(value, Span):
        return value.s, value.e
    order = values_in_order(value.order)
    return value.s, order, value.e, order, value.content


def one_span(spans: list[Span]) -> Span:
    """From the first of all instants to the last one."""
    whole = hull(spans)
    return Span(
        whole.s,
        whole.e,
        (instant_at(whole.s, whole.firsts, min),),
        (instant_at(whole.e, whole.lasts, max),),
    )


def instant_at(time: int, instants: tuple[Instant, ...], choose: Callable[..., Instant]) -> Instant:
    """The first or last of the instants at a time. It has no order if one of them has none, or if there are none."""
    there = [instant for instant in instants if instant[0] == time]
    if not there or any(order is None for _, order in there):
        return time, None
    return choose(there, key=lambda instant: values_in_order(instant[1]))


def in_order(instants: tuple[Instant, ...]) -> tuple[object, ...]:
    """The place of the only instant: one without an order comes before the others at its time."""
    ((time, order),) = instants
    return time, values_in_order(order)


def finished(pattern: Pattern, composite: Composite, path: Path, span: Span) -> Composite:
    """The composite with the interval of its part, also as that of WITHIN and AS around the part."""
    values, spans = dict(composite.values), composite.spans | {path: span}
    while path and isinstance(wrapper := part_at(pattern, path[:-1]), Within | NamedPattern):
        path = path[:-1]
        spans[path] = span
        if isinstance(wrapper, NamedPattern):
            values[wrapper.name] = (span,)
    return replace(composite, values=values, spans=spans)


# The operators


class Node(ABC):
    """Gives, time after time, the composites that end then."""

    @abstractmethod
    def step(self, time: int) -> list[Composite]: ...


def node_at(graph: Graph, path: Path) -> Node:
    part = part_at(graph.pattern, path)
    match part:
        case Event():
            return Leaf(graph, path)
        case Within() | NamedPattern():
            return node_at(graph, (*path, 0))
        case Or() | Operation(operator="ANYONE"):
            return Either(graph, path)
        case Operation(operator="NOTFOLLOWS"):
            return Passing(graph, path, length_of(part.window))
        case Operation(operator="NOTPRECEDES"):
            return Passing(graph, path, 0)
    items = graph.partition.bound_parts(path)
    if operator_of(part) not in INITIATORS:
        raise ValueError(f"no context for {part}")
    if len(items) == 1:
        return Passing(graph, path, 0)
    node = node_at(graph, items[0])
    for number, item in enumerate(items[1:], start=1):
        node = Pair(graph, path, (node, node_at(graph, item)), (items[number - 1], item), item == items[-1])
    return node


class Leaf(Node):
    """The events of one stream."""

    def __init__(self, graph: Graph, path: Path) -> None:
        self.graph, self.path = graph, path
        self.variable = variable_at(part_at(graph.pattern, path), path)
        self.events = [candidate.events()[0] for candidate in graph.partition.candidates(path)]

    def step(self, time: int) -> list[Composite]:
        found = []
        for event in self.events:
            composite = Composite({self.variable: (event,)}, operands=event.rank)
            composite = finished(self.graph.pattern, composite, self.path, event.span)
            if event.e == time and self.graph.is_right(composite, self.path, []):
                found.append(composite)
        return found


class Either(Node):
    """OR: what its items give."""

    def __init__(self, graph: Graph, path: Path) -> None:
        self.graph, self.path = graph, path
        self.items = [node_at(graph, (*path, index)) for index in range(len(parts(part_at(graph.pattern, path))))]

    def step(self, time: int) -> list[Composite]:
        found = []
        for index, item in enumerate(self.items):
            for given in item.step(time):
                operands = index, self.graph.order_of(given, (*self.path, index))
                taken = replace(given, branch=given.branch | {self.path: index}, operands=operands)
                own = given.spans[*self.path, index]
                composite = finished(self.graph.pattern, taken, self.path, own)
                if self.graph.is_right(composite, self.path, [given]):
                    found.append(composite)
        return found


class Passing(Node):
    """One operand, and what must not happen beside it: NOTPRECEDES, NOTFOLLOWS (after a delay), SEQ of one event."""

    def __init__(self, graph: Graph, path: Path, delay: int) -> None:
        self.graph, self.path, self.delay = graph, path, delay
        (self.item,) = graph.partition.bound_parts(path)
        self.operand = node_at(graph, self.item)
        self.waiting: list[Composite] = []

    def step(self, time: int) -> list[Composite]:
        self.waiting += self.operand.step(time)
        due = [given for given in self.waiting if given.spans[self.item].e + self.delay == time]
        self.waiting = [given for given in self.waiting if given not in due]
        found = []
        for given in due:
            own = given.spans[self.item]
            span = one_span([Span(own.s, time, own.firsts)]) if self.delay else own
            alone = replace(given, operands=(self.graph.order_of(given, self.item),))
            composite = finished(self.graph.pattern, alone, self.path, span)
            if self.graph.is_right(composite, self.path, [given]):
                found.append(composite)
        return found


class Pair(Node):
    """An operator of two operands, `places` being where they stand. `is_last`: it completes the part at its path."""

    def __init__(
        self, graph: Graph, path: Path, operands: tuple[Node, Node], places: tuple[Path, Path], is_last: bool
    ) -> None:
        self.graph, self.path, self.operands, self.places, self.is_last = graph, path, operands, places, is_last
        part = part_at(graph.pattern, path)
        self.operator = operator_of(part)
        self.window = length_of(part.window) if isinstance(part, Operation) and part.window is not None else 0
        self.open: tuple[list[Composite], list[Composite]] = ([], [])
        self.seen: list[Composite] = []

    def step(self, time: int) -> list[Composite]:
        found = []
        given = [
            (self.place_in_order(one, side), side, self.graph.order_of(one, self.at(one, side)), one)
            for side, operand in enumerate(self.operands)
            for one in operand.step(time)
        ]
        for _, side, _, terminator in sorted(given, key=itemgetter(0, 1, 2)):
            made = self.terminated(terminator, side)
            found += made
            if not made or self.graph.policy == RECENT:
                self.open[side].append(terminator)
            if side == 1:
                self.seen.append(terminator)
        return found

    def place_in_order(self, given: Composite, side: int) -> tuple[object, ...]:
        """Where it is among those that end at the same time; for SIMULTANEOUS, they all end together."""
        return () if self.operator == "SIMULTANEOUS" else in_order(given.spans[self.at(given, side)].lasts)

    def at(self, given: Composite, side: int) -> Path:
        """Where the interval of an operand is: in a nest of SEQ or AND, the left one has that of the whole so far."""
        return self.path if side == 0 and self.path in given.spans else self.places[side]

    def terminated(self, terminator: Composite, side: int) -> list[Composite]:
        """The matches that the terminator makes with open initiators of the other operand."""
        initiators = self.open[1 - side]
        pairs = [(initiator, pair) for initiator in initiators if (pair := self.pair(initiator, terminator, side))]
        match self.graph.policy:
            case "RECENT":
                return [pair for _, pair in pairs[-1:]]
            case "CHRONICLE":
                pairs = pairs[:1]
        for initiator, _ in pairs:
            initiators.remove(initiator)
        if self.graph.policy == CUMULATIVE and pairs:
            first = min((pair for _, pair in pairs), key=lambda pair: in_order(pair.spans[self.path].firsts))
            return [self.completed(replace(gathered([pair for _, pair in pairs]), operands=first.operands))]
        return [pair for _, pair in pairs]

    def pair(self, initiator: Composite, terminator: Composite, side: int) -> Composite | None:
        """The two as one composite, if they fit."""
        left, right = (initiator, terminator) if side == 1 else (terminator, initiator)
        pair = paired(left, right)
        if pair is None or not self.is_in_order(left, right):
            return None
        operands = tuple(self.graph.order_of(one, self.at(one, side)) for side, one in enumerate((left, right)))
        pair = self.completed(replace(pair, operands=operands))
        is_right = self.graph.is_right(pair, self.path, [left, right])
        return pair if is_right and (self.operator != "UNLESS" or self.is_first(left, right)) else None

    def completed(self, composite: Composite) -> Composite:
        span = one_span([composite.spans[place] for place in (*self.places, self.path) if place in composite.spans])
        if self.is_last:
            return finished(self.graph.pattern, composite, self.path, span)
        return replace(composite, spans=composite.spans | {self.path: span})

    def is_in_order(self, left: Composite, right: Composite) -> bool:
        x, y = left.spans[self.at(left, 0)], right.spans[self.places[1]]
        match self.operator:
            case "SEQ" | "RELATIVE" | "APERIODIC" | "UNLESS":
                return x.is_before(y)
            case "FOLLOWS":
                return follows(x, y, self.window)
            case "PRECEDES":
                return follows(y, x, self.window)
            case "PRIOR":
                return x.e < y.e
            case "SIMULTANEOUS":
                return x.e == y.e
            case "CONCURRENT":
                return x.s < y.e and y.s < x.e and x.s < x.e and y.s < y.e
        return True

    def is_first(self, x: Composite, z: Composite) -> bool:
        """UNLESS: whether no other `z` that was given is after `x`, satisfies the conditions, and ends before."""
        place = self.places[1]
        return not any(
            x.spans[self.places[0]].is_before(other.spans[place])
            and other.spans[place].ends_before(z.spans[place])
            and (instead := paired(x, other)) is not None
            and self.graph.conditions_hold(instead, [x, other], below=place)
            for other in self.seen
        )
