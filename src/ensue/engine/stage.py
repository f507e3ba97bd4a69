"""A stage of a machine: plans that run on the same events, and the state that they keep between steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.engine.compiled_graph import CompiledGraphs
from ensue.engine.events import Request, key_column, request_of, stream_codes
from ensue.engine.index import Index, Room
from ensue.engine.keys import Keys, can_intern
from ensue.engine.output import collect_ordered
from ensue.engine.rows import MatchChunk
from ensue.engine.sources import EventSource, Mask, Report, load_sources, read_uncertainty
from ensue.engine.traces import TRACE, WatchedEvents
from ensue.engine.workspace import compared_column
from ensue.errors import citing
from ensue.expr.types import readable_type
from ensue.kernels.compiler import Codes, Int64s
from ensue.nodes.names import AnyEvent, Stream, names_in
from ensue.plan.derivations import Derivation, Way
from ensue.plan.inputs import InputTable, plain_schema
from ensue.plan.outputs import OutputSchema
from ensue.plan.plans import Options, QueryPlan
from ensue.plan.selections import MEMBER

USED = "ensue:used"
POSITION = "ensue:position"
"""The mark with the position of an event in its partition, -1 while it is not known."""

MANY_CONSTANTS = 4
"""The number of constants at which an index of a column replaces comparisons."""

NO_CODES: Codes = np.empty(0, np.int32)
NOT_WAITING: Mask = np.empty(0, bool)

Role = int | Stream
"""The origin of rows: a table by its place, or a declared stream by its name."""

Collect = Callable[["Member", "WatchedEvents", Iterator[MatchChunk], Options], Any]
"""Converts the matches of a result to its output as they are found."""


@dataclass(frozen=True, slots=True)
class Member:
    """A plan of a stage: one of the results, by its place, or a statement whose matches are events of a stream."""

    plan: QueryPlan
    output: OutputSchema
    gives: int | Derivation
    way: Way | None = None


def ordered(member: Member, watched: WatchedEvents, chunks: Iterator[MatchChunk], options: Options) -> pa.Table:
    """All matches in one table, in order."""
    with citing(member.plan.source):
        return collect_ordered(chunks, member.output, options.limit, options.chunk_rows)


@dataclass(frozen=True, slots=True)
class Clock:
    """The times of a step: `watermark` and `horizon` are those before it, None at the beginning.

    Results are wanted that complete after `since`, if given, and not after `until`, the new watermark; None: the end of
    time. Rows that end at or before the watermark, or `late_until` if that is later, are late. After the `last` step
    nothing is kept. `horizon` is the latest end of any event so far, which limits the known time at the end.
    """

    watermark: int | None
    until: int | None
    horizon: int | None
    since: int | None = None
    late_until: int | None = None
    last: bool = False

    @property
    def reached(self) -> int | None:
        """Rows up to this time are late."""
        return max((moment for moment in (self.watermark, self.late_until) if moment is not None), default=None)


@dataclass(frozen=True, slots=True)
class KeptEvents:
    """The kept events of one input of a stage, in the order of arrival.

    `marks` have, for each event, the results of earlier steps: its position, its trace, whether it is used up.
    """

    table: pa.Table
    starts: Int64s
    ends: Int64s
    marks: Mapping[str, np.ndarray]
    places: Int64s | None = None
    """The places of the events in the table; None: they are all its rows, in order."""
    kinds: Codes = field(default_factory=lambda: NO_CODES)
    keys: Codes = field(default_factory=lambda: NO_CODES)
    waiting: Mask = field(default_factory=lambda: NOT_WAITING)
    """In a stage with an index: the number of the stream of each event, the code of its key, and whether no step has
    evaluated it yet."""
    rooms: tuple[Room | None, ...] = ()
    """The buffers to which further rows of each column of the table are appended."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def whole(self) -> pa.Table:
        """The events with all their columns."""
        return self.table if self.places is None else self.table.take(pa.array(self.places)).combine_chunks()

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        return int(self.whole.nbytes) + sum(values.nbytes for values in self.marks.values())


@dataclass(frozen=True, slots=True)
class StageState:
    """What a stage keeps between steps.

    `records` are, per member, those of its bursts if it has SUPPRESS, and those of each trace if it monitors its
    traces. `spared` has the times until which
    events of failed traces would have been kept. `index` has the sorted events, if the stage has an index.
    """

    kept: tuple[KeptEvents, ...]
    records: tuple[tuple[pa.Table, ...], ...]
    spared: Int64s
    index: Index
    settled: int = 0
    put_off: int = 0
    """The number of kept events when unneeded ones were last searched, and how many steps ago that was."""

    @property
    def holds_anything(self) -> bool:
        """Whether anything besides the watermark must be kept for the next step."""
        return any(map(len, self.kept)) or any(table.num_rows for tables in self.records for table in tables)


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of one step of a stage: the output per member, the events of the streams of its group, the late rows
    of each input, the counts of each member and of all, and the streams of members without events."""

    found: tuple[Any, ...]
    grown: Mapping[Stream, pa.Table]
    late: tuple[Mask, ...]
    reports: tuple[Report, ...]
    evaluated: int
    state: StageState
    empty: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """Plans that run on the same events and are independent of each other, or the rules of recursive streams.

    `takes` is the origin of each input; `shapes` are empty tables with the kept columns. The streams of `group` grow in
    rounds within a step. An `eager` stage returns a match as soon as its last event has come. `requests` are the data
    that all members with the same keys need from the tables.
    """

    members: tuple[Member, ...]
    takes: tuple[Role, ...]
    shapes: tuple[InputTable, ...]
    group: tuple[Derivation, ...]
    eager: bool
    requests: Mapping[tuple[str, ...], Request]
    marks: Mapping[str, np.generic]
    uncertain: bool
    streams: tuple[tuple[Stream, ...], ...]
    """Per input, the streams that members search. They stay sorted from step to step; () if that is not possible."""

    @classmethod
    def of(
        cls,
        members: Sequence[Member],
        takes: Sequence[tuple[Role, InputTable]],
        group: tuple[Derivation, ...],
        eager: bool,
        further_keys: tuple[str, ...] = (),
    ) -> Stage:
        """A stage over tables of these shapes; events of a match also agree in `further_keys`."""
        plans = [member.plan for member in members]
        shapes = [
            replace(item, table=plain_schema(needed_columns(plans, item).schema).empty_table()) for _, item in takes
        ]
        requests: dict[tuple[str, ...], Request] = {}
        compiled = CompiledGraphs(tuple(plans))
        counting, compared = any(plan.counting for plan in plans), _compared_columns(plans)
        tied_by = tuple(sorted({name for plan in plans if plan.counting for name in plan.used_columns}))
        for plan in plans:
            own, keys = request_of(plan), plan.query.partition_by
            before = requests[keys].streams if keys in requests else ()
            requests[keys] = replace(
                own,
                streams=tuple(dict.fromkeys((*before, *own.streams))),
                partition_by=(*keys, *further_keys),
                counting=counting,
                compared=compared,
                tied_by=tied_by,
                compiled=compiled,
            )
        uncertain = any(item.probability is not None or item.hierarchy.parts for item in shapes)
        roles = tuple(role for role, _ in takes)
        marks = _first_marks(plans)
        keeps_sorted = not (group or uncertain or further_keys or len(requests) > 1)
        streams = _indexed_streams(plans, shapes) if keeps_sorted else ()
        return cls(tuple(members), roles, tuple(shapes), group, eager, requests, marks, uncertain, streams)

    @property
    def plans(self) -> tuple[QueryPlan, ...]:
        return tuple(member.plan for member in self.members)

    @property
    def counting(self) -> bool:
        """Whether any member counts positions."""
        return POSITION in self.marks

    @property
    def time_type(self) -> pa.DataType:
        return self.members[0].plan.catalog.time_type

    @property
    def compiled(self) -> CompiledGraphs:
        """The compiled graphs of all members."""
        return next(iter(self.requests.values())).compiled

    def request_of(self, plan: QueryPlan) -> Request:
        """The data that one member needs from the tables."""
        return replace(self.requests[plan.query.partition_by], streams=plan.streams)

    def start(self) -> StageState:
        """The state before any event."""
        times = np.empty(0, np.int64)
        marks = {name: np.full(0, value) for name, value in self.marks.items()}
        kept = tuple(KeptEvents(shape.table, times, times, marks) for shape in self.shapes)
        return StageState(kept, tuple(() for _ in self.members), times, self.empty_index())

    def empty_index(self) -> Index:
        return Index(Keys(len(next(iter(self.requests.values())).partition_by)))

    def taken_over(self, state: StageState) -> StageState:
        """The state of a stage with the same plans, for tables with fewer known columns."""
        tables = [
            pa.Table.from_arrays([*saved.columns], schema=schema) if saved.schema.equals(schema) else saved.cast(schema)
            for saved, schema in zip(self.saved(state), self.saved_schemas(), strict=True)
        ]
        return replace(self.restored(tables, state.records), spared=state.spared)

    def restored(self, tables: Sequence[pa.Table], records: Sequence[tuple[pa.Table, ...]]) -> StageState:
        """The state with these events, each with its marks as further columns."""
        kept = []
        for shape, table in zip(self.shapes, tables, strict=True):
            marks = {name: np.asarray(table.column(name).to_numpy()) for name in self.marks}
            (source,), _ = load_sources([replace(shape, table=table.select(shape.table.column_names))], self.time_type)
            kept.append(KeptEvents(source.input.table, source.starts, source.ends, marks))
        index = self.empty_index()
        if self.streams:
            kept = [self.encoded(place, own, index) for place, own in enumerate(kept)]
        return StageState(tuple(kept), tuple(records), np.empty(0, np.int64), index)

    def with_rows(self, state: StageState, tables: Sequence[pa.Table]) -> StageState:
        """The state with further rows of the given tables, which may lack columns."""
        saved = self.saved(state)
        for place, role in enumerate(self.takes):
            if isinstance(role, int) and role < len(tables) and tables[role].num_rows:
                rows, marks = tables[role], self._marks(tables[role].num_rows)
                columns = [
                    rows.column(name)
                    if name in rows.column_names
                    else pa.array(marks[name])
                    if name in marks
                    else pa.nulls(rows.num_rows, kind)
                    for name, kind in zip(saved[place].schema.names, saved[place].schema.types, strict=True)
                ]
                more = pa.table(columns, names=saved[place].column_names).cast(saved[place].schema)
                saved[place] = pa.concat_tables([saved[place], more])
        return self.restored(saved, state.records)

    def encoded(self, place: int, kept: KeptEvents, index: Index) -> KeptEvents:
        """Events encoded for sorting in the next step."""
        source = EventSource(replace(self.shapes[place], table=kept.table), kept.starts, kept.ends, None)
        kinds, keys = self.kinds(place, source), self.keys(source, index)
        return replace(kept, kinds=kinds, keys=keys, waiting=np.ones(len(kept), bool))

    def kinds(self, place: int, source: EventSource) -> Codes:
        """The number of the stream of each row of an input, -1 for rows that no member needs."""
        if source.input.stream is not None:
            return np.zeros(len(source.starts), np.int32) - np.int32(not self.streams[place])
        return stream_codes(source.input, [*map(str, self.streams[place])])

    def keys(self, source: EventSource, index: Index) -> Codes:
        """The code of the key of each row."""
        (request,) = self.requests.values()
        columns = [key_column(source, name, request) for name in request.partition_by]
        return index.keys.codes(columns, len(source.starts))

    def saved(self, state: StageState) -> list[pa.Table]:
        """The kept events of each input with their marks as further columns."""
        return [
            pa.Table.from_arrays(
                [*kept.whole.columns, *(pa.array(kept.marks[name]) for name in self.marks)],
                names=[*kept.table.column_names, *self.marks],
            )
            for kept in state.kept
        ]

    def saved_schemas(self) -> list[pa.Schema]:
        """The schemas of the tables that `saved` returns."""
        return [table.schema for table in self.saved(self.start())]

    def loaded(self, state: StageState, until: int | None = None) -> tuple[EventSource, ...]:
        """The kept events, or those that end no later than a moment."""
        sources = tuple(
            EventSource(replace(shape, table=kept.whole), kept.starts, kept.ends, None)
            for shape, kept in zip(self.shapes, state.kept, strict=True)
        )
        if self.uncertain:
            read_uncertainty(sources)
        return sources if until is None else tuple(only_ready(source, beyond(source, until)) for source in sources)

    def known_positions(self, state: StageState) -> list[Int64s]:
        """The known positions of kept events, -1 for unknown ones."""
        return [kept.marks[POSITION] for kept in state.kept] if self.counting else []

    def _marks(self, rows: int) -> dict[str, np.ndarray]:
        return {name: np.full(rows, value) for name, value in self.marks.items()}


def _indexed_streams(plans: Sequence[QueryPlan], shapes: Sequence[InputTable]) -> tuple[tuple[Stream, ...], ...]:
    """Per input, the streams of the plans, if each row belongs to at most one of them and keys have persistent
    codes."""
    if any(plan.counting or plan.monitor is not None or plan.tracking is not None for plan in plans):
        return ()
    if any(item.order for item in shapes):
        return ()
    streams = list(dict.fromkeys(stream for plan in plans for stream in plan.streams))
    kinds = {
        name: {
            readable_type(item.table.schema.field(name).type) if name in item.table.column_names else pa.int64()
            for item in shapes
            if any(map(item.holds, streams))
        }
        for name in plans[0].query.partition_by
    }
    raw = [item.table.schema.field(name).type for item in shapes for name in kinds if name in item.table.column_names]
    if any(len(own) > 1 or not all(map(can_intern, own)) for own in kinds.values()) or any(
        pa.types.is_decimal(kind) for kind in raw
    ):
        return ()
    if any(isinstance(stream, AnyEvent) for stream in streams) or any(item.views for item in shapes):
        return ()
    return tuple(tuple(filter(item.holds, streams)) for item in shapes)


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the types of a schema that has the same columns."""
    return table if table.schema.equals(schema) else table.cast(schema)


def needed_columns(plans: Sequence[QueryPlan], item: InputTable) -> pa.Table:
    """The table with only the columns that the queries use. A derived table has no other columns."""
    if item.derived:
        return item.table
    wanted = {name for name in (item.time, item.end, item.type, item.probability) if name is not None}
    wanted |= {*item.alternatives, *item.order}
    for plan in plans:
        wanted |= set(plan.query.partition_by)
        for stream in filter(item.holds, plan.streams):
            columns = plan.columns[stream]
            view = item.all_views.get(stream) if item.views or item.elements else None
            if view is not None:
                wanted |= view.reads(None if columns is None else {*columns, *plan.query.partition_by})
                wanted |= {name for own in item.elements if stream in own.views for name in own.reads()}
                continue
            if columns is None:
                return item.table
            excluded = [item.views[name] for name in names_in(stream) if name in item.views]
            wanted |= columns.union(*(view.reads(()) for view in excluded))
    wanted |= {name for name in item.table.column_names if name.startswith(MEMBER)}
    return item.table.select([name for name in item.table.column_names if name in wanted])


def trace_mark(place: int) -> str:
    """The mark that numbers the trace of an event within its key, for one member; -1: not known yet."""
    return f"{TRACE}:{place}"


def used_mark(place: int) -> str:
    """The mark that tells how an event is used up, for one member."""
    return f"{USED}:{place}"


def _compared_columns(plans: Sequence[QueryPlan]) -> frozenset[tuple[Stream, str]]:
    """The columns of streams that predicates compare with many constants: an index replaces these comparisons."""
    constants: dict[tuple[Stream, str], set[int | str]] = {}
    for plan in plans if len(plans) >= MANY_CONSTANTS else ():
        for graph in plan.graphs:
            for variable in (variable for inner in graph.with_inner() for variable in inner.graph.variables):
                first = variable.predicates[0] if variable.predicates else None
                compared = None if first is None else compared_column(first, variable.stream, plan.catalog)
                if compared is not None:
                    constants.setdefault((variable.stream, compared[0]), set()).add(compared[1])
    return frozenset(column for column, values in constants.items() if len(values) >= MANY_CONSTANTS)


def _first_marks(plans: Sequence[QueryPlan]) -> dict[str, np.generic]:
    """The initial marks of an event."""
    marks: dict[str, np.generic] = {}
    if any(plan.counting for plan in plans):
        marks[POSITION] = np.int64(-1)
    for place, plan in enumerate(plans):
        if plan.monitor is not None:
            marks[trace_mark(place)] = np.int32(-1)
        if plan.uses_up:
            marks[used_mark(place)] = np.uint8(0)
    return marks


def replace_valid(source: EventSource, valid: Mask | None) -> EventSource:
    """The source with another selection of rows; columns that were read stay available."""
    return EventSource(
        source.input, source.starts, source.ends, valid, source.readable_columns, source.raw_columns, source.uncertainty
    )


def beyond(source: EventSource, until: int | None) -> Mask:
    """The rows that end after a moment."""
    return np.zeros(len(source.ends), bool) if until is None else source.ends > until


def only_ready(source: EventSource, pending: Mask) -> EventSource:
    """The table without the rows after the watermark."""
    if not pending.any():
        return source
    return replace_valid(source, ~pending if source.valid is None else source.valid & ~pending)
