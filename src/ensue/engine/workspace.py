"""The data for evaluating one graph: candidates of every visible variable, values of points, columns, and join keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analysis.catalog import EVENT_NUMBER, WHOLE_EVENT, Catalog
from ensue.engine.compiled_graph import CompiledGraph, Range, Sight
from ensue.engine.events import Candidates, EventStore
from ensue.engine.keys import encode_values
from ensue.engine.rows import Rows
from ensue.engine.sources import Mask
from ensue.engine.uncertainty import Floats, stretches_within
from ensue.expr.evaluation import condition_mask
from ensue.expr.types import arrow_type, expression_type
from ensue.graph.bounds import Point
from ensue.graph.graphs import Equality, Graph, Moment, Variable
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.sorted_runs import group_by_key
from ensue.nodes.expressions import Binary, Expr, Field, Literal
from ensue.nodes.names import WHOLE, Name, Stream
from ensue.nodes.uncertainty import CERTAINTY
from ensue.plan.plans import GraphPlan, Options

# --- equality conditions as join keys

MOST_PACKED = 2**62
Member = tuple[Name, str]
"""A variable and the name of its field."""


@dataclass(frozen=True, slots=True)
class EqualityClass:
    """Fields that must all be equal (the closure of equality conditions)."""

    members: tuple[Member, ...]

    def member_of(self, variables: Collection[Name]) -> Member | None:
        return next((member for member in self.members if member[0] in variables), None)


def equality_classes(equalities: Sequence[Equality]) -> tuple[EqualityClass, ...]:
    """The classes of fields that the equalities connect."""
    groups: list[dict[Member, None]] = []
    for equality in equalities:
        pair = [_member(equality.left), _member(equality.right)]
        touching = [group for group in groups if any(member in group for member in pair)]
        merged: dict[Member, None] = {member: None for group in touching for member in group}
        merged.update(dict.fromkeys(pair))
        groups = [group for group in groups if group not in touching] + [merged]
    return tuple(EqualityClass(tuple(group)) for group in groups)


def usable_classes(
    equalities: Sequence[Equality],
    outer: Collection[Name],
    transitive: Callable[[EqualityClass], bool],
    sizes: Callable[[EqualityClass], int],
    key_count: int,
) -> tuple[EqualityClass, ...]:
    """The classes that join keys represent exactly.

    Each variable has at most one member, so that its step connects it to all the others; at most one member is outside
    the graph, where equality is not given; and equality is transitive among them. Partition key and all codes together
    fit in one number.
    """
    chosen: list[EqualityClass] = []
    for group in equality_classes(equalities):
        names = [name for name, _ in group.members]
        simple = len(set(names)) == len(names) and sum(name in outer for name in names) <= 1
        if simple and transitive(group) and fits(key_count, [sizes(each) for each in (*chosen, group)]):
            chosen.append(group)
    return tuple(chosen)


def _member(field: Field) -> Member:
    assert field.variable is not None
    return field.variable, field.name


@dataclass(frozen=True, slots=True)
class KeyedIndex:
    """A variable's candidates by (partition key, codes of the classes), each run in the order of events.

    `starts` are places in this order.
    """

    order: Codes
    offsets: Int64s
    starts: Int64s
    packed_values: pa.Array
    sizes: tuple[int, ...]

    def segments(self, keys: Codes, codes: Sequence[Codes]) -> Codes:
        """The run of each probe, -1 for none."""
        packed, missing = pack(keys, codes, self.sizes)
        found = pc.index_in(pa.array(packed, mask=missing), value_set=self.packed_values, skip_nulls=True)
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False))


def build_index(candidates: Candidates, codes: Sequence[Codes], sizes: tuple[int, ...]) -> KeyedIndex:
    packed, missing = pack(candidates.keys, codes, sizes)
    encoded = pa.array(packed, mask=missing).dictionary_encode()
    dense = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False))
    order, offsets = group_by_key(dense, len(encoded.dictionary))
    return KeyedIndex(order, offsets, candidates.start_places[order], encoded.dictionary, sizes)


def pack(keys: Codes, codes: Sequence[Codes], sizes: Sequence[int]) -> tuple[Int64s, np.ndarray]:
    """Partition key and codes in one number, and the rows with a null among them."""
    packed = keys.astype(np.int64)
    missing = keys < 0
    for part, size in zip(codes, sizes, strict=True):
        packed *= max(size, 1)
        packed += part
        missing |= part < 0
    return packed, missing


def fits(key_count: int, sizes: Sequence[int]) -> bool:
    """Whether partition key and codes can be packed into one number."""
    total = max(key_count, 1)
    for size in sizes:
        total *= max(size, 1)
    return total < MOST_PACKED


# --- workspace

OWN_FIELDS = (CERTAINTY, WHOLE_EVENT, EVENT_NUMBER)
"""Fields that are not columns."""


@dataclass(slots=True)
class Workspace:
    """What is visible while a graph is evaluated. `whole` is the graph of the whole match; its ends are points too."""

    compiled: CompiledGraph
    plan: GraphPlan
    whole: Graph
    catalog: Catalog
    store: EventStore
    options: Options
    candidates: dict[Name, Candidates]
    streams: dict[Name, Stream]
    found: dict[Hashable, Candidates]
    moments: Mapping[Name, Moment]
    indexes: dict[tuple[Name, tuple[EqualityClass, ...]], KeyedIndex] = field(default_factory=dict)
    codes: dict[EqualityClass, tuple[dict[Member, Codes], int]] = field(default_factory=dict)
    classes: tuple[EqualityClass, ...] | None = None
    found_segments: dict[tuple[Name, tuple[EqualityClass, ...], Name], Codes] = field(default_factory=dict)
    identities: dict[tuple[Name, int], npt.NDArray[np.uint64]] = field(default_factory=dict)
    latest: int | None = None
    """The end of the known time; later moments have not come. None: no limit."""
    earliest: int | None = None
    """Matches that end earlier are not wanted. None: all are."""
    horizon: int | None = None
    """The end of repeated moments that nothing else limits."""
    seen: Sight | None = None
    tied_by: tuple[str, ...] = ()
    """The columns that order events with the same interval."""
    deferred: frozenset[Name] = frozenset()
    """The variables whose own predicates are evaluated when they are bound."""

    @property
    def sight(self) -> Sight:
        """What the graph can see around it, which is fixed once all candidates are known."""
        if self.seen is None:
            names, own = self.plan.graph.names, {moment.name for moment in self.plan.graph.moments}
            outer = frozenset(self.candidates).difference(names)
            moments = frozenset(name for name, moment in self.moments.items() if moment.repeated and name not in own)
            self.seen = Sight(outer, bool(outer) and frozenset(self.whole.names) <= outer, moments)
        return self.seen

    def inside(self, plan: GraphPlan) -> Workspace:
        """The workspace of a forbidden graph inside this one."""
        compiled = self.store.compiled.graph(plan)
        own = {
            variable.name: cached_candidates(variable, plan.graph, self.store, self.catalog, self.found)
            for variable in plan.graph.variables
        }
        return Workspace(
            compiled,
            plan,
            self.whole,
            self.catalog,
            self.store,
            self.options,
            {**self.candidates, **own},
            {**self.streams, **compiled.streams},
            self.found,
            {**self.moments, **compiled.moments},
            latest=self.latest,
            horizon=self.horizon,
            tied_by=self.tied_by,
        )

    def alone(self, plan: GraphPlan) -> Workspace:
        """The workspace of a forbidden graph that is evaluated independently of the match around it."""
        own = self.inside(plan)
        own.candidates = {name: own.candidates[name] for name in plan.graph.names}
        own.moments = own.compiled.moments
        own.seen = None
        return own

    def restrict(self, name: Name, mask: Mask) -> None:
        """Drops candidates of a variable; existing indexes are rebuilt."""
        kept = self.candidates[name].select(mask)
        if kept is not self.candidates[name]:
            self.candidates[name] = kept
            self.indexes.clear()
            self.codes.clear()
            self.found_segments.clear()
            self.classes = None

    # -- values ----------------------------------------------------------------------------------------------------

    def value(self, point: Point, rows: Rows) -> Int64s:
        """The time or position of a point in each row."""
        if point.variable == WHOLE:
            return self._whole_value(point.side, rows, self.value)
        if point.variable in self.moments:
            return self._moment_value(self.moments[point.variable], rows)
        found = self.candidates[point.variable]
        values = {"s": found.starts, "e": found.ends, "first": found.positions}[point.side]
        assert values is not None
        return values[rows.places[point.variable]]

    def place(self, point: Point, rows: Rows) -> Int64s:
        """The place of an endpoint in the order of events in each row: its time, unless columns order events."""
        order = self.store.order
        if order is None:
            return self.value(point, rows)
        if point.variable == WHOLE:
            return self._whole_value(point.side, rows, self.place)
        if point.variable in self.moments:
            found = order.at_least if point.side == "s" else order.at_most
            return found(self._moment_value(self.moments[point.variable], rows))
        candidates = self.candidates[point.variable]
        places = candidates.start_places if point.side == "s" else candidates.end_places
        return places[rows.places[point.variable]]

    def _whole_value(self, side: str, rows: Rows, value: Callable[[Point, Rows], Int64s]) -> Int64s:
        extent = self.whole.extent
        names = {"s": extent.starts, "e": extent.ends}.get(side, self.whole.names)
        values = [value(Point(name, "first" if side in ("first", "last") else side), rows) for name in names]
        combine = np.minimum if side in ("s", "first") else np.maximum
        result = values[0]
        for other in values[1:]:
            result = combine(result, other)
        return result

    def _moment_value(self, moment: Moment, rows: Rows) -> Int64s:
        base = self.value(moment.base, rows)
        return base + moment.ticks * (rows.places[moment.name] if moment.repeated else 1)

    def ties(self, found: Candidates) -> Int64s:
        """Ranks of candidates that order those with the same interval: by content, not by arrival."""
        place = next(place for place, source in enumerate(self.store.sources) if source is found.source.origin)
        return self.store.ties(self.tied_by)[place][found.rows]

    def _event_numbers(self, found: Candidates) -> Int64s:
        """A number for each candidate: the same for the same event, however many streams it belongs to."""
        place = next(place for place, source in enumerate(self.store.sources) if source is found.source.origin)
        return found.rows.astype(np.int64) * len(self.store.sources) + place

    def keys(self, rows: Rows) -> Codes:
        """The partition key of each row."""
        name, places = next(iter(rows.places.items()))
        return self.candidates[name].keys[places]

    def limits(self, bounds: Range, rows: Rows) -> tuple[Int64s | None, Int64s | None]:
        """The lowest and highest value that a range allows in each row; None if it is open."""
        low: Int64s | None = None
        high: Int64s | None = None
        for point, limit in bounds.lower:
            value = self.value(point, rows) - limit.whole
            low = value if low is None else np.maximum(low, value)
        for point, limit in bounds.upper:
            value = self.value(point, rows) + limit.whole
            high = value if high is None else np.minimum(high, value)
        return low, high

    def place_limits(self, bounds: Range, rows: Rows) -> tuple[Int64s | None, Int64s | None]:
        """The first and last place in the order of events that a range allows in each row; None if it is open."""
        order = self.store.order
        if order is None:
            return self.limits(bounds, rows)
        lows, highs = [], []
        for point, limit in bounds.lower:
            if limit.ordered:
                lows.append(self.place(point, rows) - limit.places)
            else:
                lows.append(order.at_least(self.value(point, rows) - limit.whole))
        for point, limit in bounds.upper:
            if limit.ordered:
                highs.append(self.place(point, rows) + limit.places)
            else:
                highs.append(order.at_most(self.value(point, rows) + limit.whole))
        return np.maximum.reduce(lows) if lows else None, np.minimum.reduce(highs) if highs else None

    def holds(self, condition: Expr, rows: Rows) -> Mask:
        """The rows in which a condition is true."""
        return condition_mask(condition, self.column_of(rows), rows.length)

    def expression_type(self, expr: Expr) -> pa.DataType:
        """The type of an expression over the variables of the query."""
        return expression_type(expr, self._field_type, [])

    def _field_type(self, wanted: Field) -> pa.DataType:
        variable = wanted.variable or ""
        stream = self.streams.get(variable) or self.compiled.list_streams.get(variable)
        return self.catalog.field_type(stream, wanted.name)

    def column_of(self, rows: Rows) -> Callable[[Field], pa.Array]:
        """A function that returns the values of a field in each row."""

        def column(wanted: Field) -> pa.Array:
            assert wanted.variable is not None
            if wanted.variable in self.moments:
                moments = self._moment_value(self.moments[wanted.variable], rows)
                return pa.array(moments).view(self.catalog.time_type)
            found = self.candidates[wanted.variable]
            if wanted.name == EVENT_NUMBER:
                return pa.array(self._event_numbers(found)[rows.places[wanted.variable]])
            return field_values(
                wanted, self.streams[wanted.variable], found, rows.places[wanted.variable], self.catalog
            )

        return column

    # -- join keys -------------------------------------------------------------------------------------------------

    def join_classes(self, variable: Name, bound: frozenset[Name]) -> tuple[EqualityClass, ...]:
        """The equality classes that connect a variable with bound ones."""
        if not self.plan.graph.equalities:
            return ()
        return tuple(
            group
            for group in self.keyed_classes()
            if group.member_of({variable}) and group.member_of(bound - {variable})
        )

    def keyed_classes(self) -> tuple[EqualityClass, ...]:
        """The equality classes of the graph that join keys represent; the other equalities are conditions."""
        if self.classes is None:
            self.classes = ()
            if self.options.equality_keys and self.plan.graph.equalities:
                equalities = self.plan.graph.equalities
                self.classes = usable_classes(
                    equalities,
                    self.sight.outer,
                    self._is_transitive,
                    lambda group: self.class_codes(group)[1],
                    self.store.key_count,
                )
        return self.classes

    def _is_transitive(self, group: EqualityClass) -> bool:
        """Different decimals may equal the same float, so a class of three or more members must not mix the two."""
        if len(group.members) == 2:
            return True
        types = [
            field_values(Field(*member), self.streams[member[0]], self.candidates[member[0]], None, self.catalog).type
            for member in group.members
        ]
        return len(set(types)) == 1 or not any(map(pa.types.is_decimal, types))

    def class_codes(self, group: EqualityClass) -> tuple[dict[Member, Codes], int]:
        """The codes of a class for the candidates of each of its members, and the number of codes."""
        if group not in self.codes:
            arrays = [
                field_values(Field(*member), self.streams[member[0]], self.candidates[member[0]], None, self.catalog)
                for member in group.members
            ]
            codes, count = encode_values(arrays)
            self.codes[group] = (dict(zip(group.members, codes, strict=True)), count)
        return self.codes[group]

    def index(self, variable: Name, classes: tuple[EqualityClass, ...]) -> KeyedIndex:
        if (variable, classes) not in self.indexes:
            codes, sizes = [], []
            for group in classes:
                by_member, size = self.class_codes(group)
                member = group.member_of({variable})
                assert member is not None
                codes.append(by_member[member])
                sizes.append(size)
            self.indexes[variable, classes] = build_index(self.candidates[variable], codes, tuple(sizes))
        return self.indexes[variable, classes]

    def segments(self, variable: Name, classes: tuple[EqualityClass, ...], bound: frozenset[Name], rows: Rows) -> Codes:
        """The run of the variable's index that fits each row."""
        members = [member for group in classes if (member := group.member_of(bound)) is not None]
        holders = {name for name, _ in members}
        if len(holders) > 1:
            codes = [
                self._codes(group, member)[rows.places[member[0]]]
                for group, member in zip(classes, members, strict=True)
            ]
            return self.index(variable, classes).segments(self.keys(rows), codes)
        holder = holders.pop()
        wanted = (variable, classes, holder)
        if wanted not in self.found_segments:
            codes = [self._codes(group, member) for group, member in zip(classes, members, strict=True)]
            self.found_segments[wanted] = self.index(variable, classes).segments(self.candidates[holder].keys, codes)
        return self.found_segments[wanted][rows.places[holder]]

    def _codes(self, group: EqualityClass, member: Member) -> Codes:
        return self.class_codes(group)[0][member]


def cached_candidates(
    variable: Variable, graph: Graph, store: EventStore, catalog: Catalog, found: dict[Hashable, Candidates]
) -> Candidates:
    """The candidates of a variable, computed once for all variables with the same conditions."""
    wanted = graph.question(variable)
    if wanted not in found:
        found[wanted] = find_candidates(variable, graph, store, catalog)
    return found[wanted]


def find_candidates(variable: Variable, graph: Graph, store: EventStore, catalog: Catalog) -> Candidates:
    """The events of a variable's stream that satisfy its predicates and its own bounds (an interval's length)."""
    everything = found = store.streams[variable.stream]
    for predicate in variable.predicates if len(found) else ():
        current = found

        def column(wanted: Field, current: Candidates = current) -> pa.Array:
            plain = wanted.name not in OWN_FIELDS and catalog.endpoint(variable.stream, wanted) is None
            if current is everything and plain:
                return store.column(variable.stream, wanted.name)
            return field_values(wanted, variable.stream, current, None, catalog)

        equal = _equal_places(predicate, variable.stream, store, catalog) if found is everything else None
        if equal is not None:
            found = found.at_places(equal)
        else:
            found = found.select(condition_mask(predicate, column, len(found)))
    if not found.are_points:
        question = graph.question(variable)
        shortest, longest = question.shortest, question.longest
        length = found.ends - found.starts
        fit = length <= longest.whole if longest is not None else np.ones(len(found), bool)
        if shortest is not None:
            fit &= length >= -shortest.whole
        found = found.select(fit)
    return found


def compared_column(predicate: Expr, stream: Stream, catalog: Catalog) -> tuple[str, int | str] | None:
    """The column and the value of an equality of an integer or a text with a constant; None for other predicates."""
    if not isinstance(predicate, Binary) or predicate.operator != "=":
        return None
    field, literal = predicate.left, predicate.right
    if isinstance(field, Literal):
        field, literal = literal, field
    if not isinstance(field, Field) or not isinstance(literal, Literal) or field.name in OWN_FIELDS:
        return None
    if catalog.endpoint(stream, field) is not None:
        return None
    kind, value = catalog.field_type(stream, field.name), literal.value
    if isinstance(value, str):
        return (field.name, value) if pa.types.is_string(kind) else None
    if isinstance(value, int) and not isinstance(value, bool) and pa.types.is_int64(kind):
        return field.name, value
    return None


def is_looked_up(variable: Variable, store: EventStore, catalog: Catalog) -> bool:
    """Whether the first predicate of a variable is evaluated by an index."""
    return _equal_places(variable.predicates[0], variable.stream, store, catalog) is not None


def _equal_places(predicate: Expr, stream: Stream, store: EventStore, catalog: Catalog) -> Int64s | None:
    """The places in a stream with the value of an equality, if many queries compare this column."""
    if not store.compared:
        return None
    compared = compared_column(predicate, stream, catalog)
    if compared is None or (stream, compared[0]) not in store.compared:
        return None
    known = store.equals(stream, compared[0])
    return None if known is None else known.of(compared[1])


def field_values(wanted: Field, stream: Stream, found: Candidates, places: Codes | None, catalog: Catalog) -> pa.Array:
    """The values of a field for the candidates at `places` (None: all of them)."""
    side = catalog.endpoint(stream, wanted)
    if side is not None:
        times = found.starts if side == "s" else found.ends
        return pa.array(times if places is None else times[places]).view(catalog.time_type)
    rows = found.rows if places is None else found.rows[places]
    if wanted.name == CERTAINTY:
        return pa.array(certainty(found, rows, stream, catalog))
    if wanted.name == WHOLE_EVENT:
        return whole_events(found, rows, stream, catalog)
    return found.source.values(wanted.name, rows)


def certainty(found: Candidates, rows: Codes, stream: Stream, catalog: Catalog) -> Floats:
    """The probability that some rows are real and belong to a stream."""
    uncertainty = found.source.uncertainty
    if uncertainty is None:
        return np.ones(len(rows))
    begin, end = stretches_within(uncertainty, rows, stream, catalog.hierarchy)
    return uncertainty.probability[rows] * (end - begin)


def whole_events(found: Candidates, rows: Codes, stream: Stream, catalog: Catalog) -> pa.Array:
    """All columns of some rows."""
    schema = catalog.stream(stream)
    assert schema is not None
    taken = pa.array(rows)
    fields = [pa.field(name, arrow_type(kind)) for name, kind in schema.fields.items()]
    columns = [found.source.column(field.name).take(taken) for field in fields]
    return pa.StructArray.from_arrays(
        [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, fields, strict=True)
        ],
        fields=fields,
    )
