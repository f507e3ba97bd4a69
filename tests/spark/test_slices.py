"""Slices of time: wherever the groups of (key, slice) are worked on, each match is found once, in one of them."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import share
from engine.test_batching import named_bindings
from ensue import QueryError
from harness import events_table, input_of
from inside import (
    NEXT,
    PATTERN,
    SOURCE,
    BatchTask,
    Carrier,
    Event,
    Events,
    InputTable,
    Layout,
    Not,
    Options,
    Pattern,
    PatternQuery,
    QueryPlan,
    Retention,
    Seq,
    ShippedValue,
    Ticks,
    TimeSlices,
    Window,
    Within,
    catalog_of,
    counts_events,
    output_schema,
    parse_statements,
    plan_query,
    raw_types,
    render_query,
    slices,
    slicing_of,
    struct_name,
)
from oracle.oracle import OracleEvent, matches
from strategies.histories import histories
from strategies.patterns import cases, queries

Bindings = Counter[tuple[tuple[str, int], ...]]
Case = tuple[PatternQuery, list[OracleEvent]]

SOME = share(0.5)
FEWER = share(0.25)
STREAMS = "ABCDE"
OVERLAPS = st.sampled_from((1, 1, 2, 16))
SHIFTS = st.sampled_from((0, 0, -7, -100, 1_000_003))


# Strategies


def timed(query: PatternQuery, ticks: int) -> PatternQuery:
    """The query with every window in time, the whole one included."""

    def window(given: Window) -> Window:
        return Ticks(given.count) if isinstance(given, Events) else given

    def pattern(node: Pattern) -> Pattern:
        if isinstance(node, Within):
            return replace(node, item=pattern(node.item), window=window(node.window))
        if hasattr(node, "items"):
            return replace(node, items=tuple(map(pattern, node.items)))
        return replace(node, item=pattern(node.item)) if hasattr(node, "item") else node

    within = window(query.within) if query.within is not None else Ticks(ticks)
    return replace(query, pattern=pattern(query.pattern), within=within)


@st.composite
def timed_cases(draw: st.DrawFn, *, intervals: bool = False) -> Case:
    """A query whose matches are bounded in time, and a history that need not begin near zero."""
    query, history = draw(cases(intervals=intervals))
    if draw(st.integers(0, 2)) == 2:  # a scope that closes after the last event, perhaps slices later
        query = replace(query, pattern=Seq((query.pattern, Not(Event("D", "z")))))
    return timed(query, draw(st.integers(1, 9))), shifted(history, draw(SHIFTS))


def shifted(history: list[OracleEvent], ticks: int) -> list[OracleEvent]:
    return [replace(event, s=event.s + ticks, e=event.e + ticks) for event in history]


# What Spark does, in Python


def planned(wanted: Sequence[PatternQuery], inputs: Sequence[InputTable]) -> list[tuple[PatternQuery, QueryPlan]]:
    """The plans of the queries that can hold at all."""
    plans = []
    for query in wanted:
        statements = parse_statements(render_query(query))
        try:
            plan = plan_query(statements.statements[0], catalog_of(tuple(inputs)), statements.source)
        except QueryError as error:
            if error.code != "never-holds":
                raise
        else:
            plans.append((query, plan))
    return plans


def task_of(plans: Sequence[QueryPlan], inputs: Sequence[InputTable], width: int | None) -> BatchTask:
    shapes = tuple(replace(item, table=item.table.schema.empty_table()) for item in inputs)
    outputs = tuple(output_schema(plan, raw_types(plan, inputs)) for plan in plans)
    schemas = [output.schema for output in outputs]
    carried = schemas[0] if len(schemas) == 1 else Carrier.of(schemas)
    return BatchTask(Layout(shapes), tuple(plans), outputs, carried, width, Options())


def latest_use(event: OracleEvent, reach: Retention | None) -> int:
    """The latest completion of a match around an event; its end where no query asks for it."""
    if reach is None:
        return event.e
    limits = [(event.s, reach.from_start), (event.e, reach.from_end)]
    return min(origin + limit for origin, limit in limits if limit is not None)


def slices_of(event: OracleEvent, slicing: TimeSlices) -> list[int]:
    """Every slice from that of the event's end to that of the latest completion."""
    first = event.e // slicing.width
    last = max(first, latest_use(event, slicing.reach.get(event.stream)) // slicing.width)
    return [number * slicing.width for number in range(first, last + 1)]


def replicated(history: Iterable[OracleEvent], slicing: TimeSlices | None) -> list[tuple[OracleEvent, int]]:
    if slicing is None:
        return [(event, 0) for event in history]
    return [(event, first) for event in history for first in slices_of(event, slicing)]


def scattered(
    rows: Sequence[tuple[OracleEvent, int]], keys: Sequence[str], dice: random.Random
) -> list[list[tuple[OracleEvent, int]]]:
    """The rows in any order in a few partitions, those of one key and slice together."""
    partitions: list[list[tuple[OracleEvent, int]]] = [[] for _ in range(dice.randint(1, 4))]
    chosen: dict[tuple[object, ...], int] = {}
    for event, first in dice.sample(rows, len(rows)):
        group = (*(event.fields.get(key) for key in keys), first)
        partitions[chosen.setdefault(group, dice.randrange(len(partitions)))].append((event, first))
    return partitions


def flat_rows(rows: Sequence[tuple[OracleEvent, int]], is_sliced: bool) -> pa.Table:
    table = events_table([event for event, _ in rows])
    later = pa.array([first > event.e for event, first in rows], pa.bool_())
    return table.append_column(NEXT, later) if is_sliced else table


def packed_rows(rows: Sequence[tuple[OracleEvent, int]], is_sliced: bool) -> pa.Table:
    """The rows as they travel if every stream is an input of its own: one struct column for each."""
    events = flat_rows(rows, is_sliced)
    numbers = np.array([STREAMS.index(name) for name in events.column("type").to_pylist()], np.int32)
    structs = events.select(events_table([]).column_names).to_struct_array().combine_chunks()
    columns = {SOURCE: pa.array(numbers)}
    for place in range(len(STREAMS)):
        columns[struct_name(place)] = pc.if_else(pa.array(numbers == place), structs, pa.scalar(None, structs.type))
    if is_sliced:
        columns[NEXT] = events.column(NEXT)
    return pa.table(columns)


def in_pieces(table: pa.Table, dice: random.Random) -> list[pa.RecordBatch]:
    size = dice.randint(1, max(1, table.num_rows))
    return [piece for begin in range(0, table.num_rows, size) for piece in table.slice(begin, size).to_batches()]


def run(task: BatchTask, partitions: Iterable[pa.Table], dice: random.Random) -> list[Bindings]:
    """The matches of every plan, from all partitions."""
    found: list[Bindings] = [Counter() for _ in task.plans]
    for partition in partitions:
        for batch in task.matches(iter(in_pieces(partition, dice))):
            for place, own in enumerate(of_each_plan(pa.Table.from_batches([batch]), task)):
                found[place] += named_bindings(own)
    return found


def of_each_plan(table: pa.Table, task: BatchTask) -> list[pa.Table]:
    if not isinstance(task.carried, Carrier):
        assert table.schema == task.carried
        return [table]
    assert table.schema == task.carried.schema
    parts = []
    for place, (columns, output) in enumerate(zip(task.carried.places, task.outputs, strict=True)):
        own = table.filter(pa.array(table.column(PATTERN).to_numpy() == place))
        others = [own.column(number) for number in range(1, table.num_columns) if number not in columns]
        assert all(column.null_count == own.num_rows for column in others)
        parts.append(own.select(list(columns)).rename_columns(output.schema.names))
    return parts


def in_oracle(query: PatternQuery, history: list[OracleEvent]) -> Bindings:
    return Counter(
        tuple((name, event) for name, event in match.bindings if isinstance(name, str))
        for match in matches(query, history)
    )


def check(
    wanted: Sequence[PatternQuery],
    history: list[OracleEvent],
    dice: random.Random,
    *,
    intervals: bool = False,
    overlaps: int | None,
    per_stream: bool = False,
) -> None:
    """Slices and scatters the rows and compares with one partition of all rows, and both with the oracle."""
    shape = input_of([], intervals)
    inputs = [replace(shape, stream=name, type=None) for name in STREAMS] if per_stream else [shape]
    known = planned(wanted, inputs)
    if not known:
        return
    plans = [plan for _, plan in known]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "OVERLAPS_PER_SLICE", overlaps or 1)
        slicing = slicing_of(plans) if overlaps is not None else None
    if overlaps is not None:
        assert slicing is not None
        assert_needed_rows_travel(plans, slicing, history)
    width = slicing.width if slicing is not None else None

    def travelling(rows: Sequence[tuple[OracleEvent, int]], is_sliced: bool) -> pa.Table:
        return packed_rows(rows, is_sliced) if per_stream else flat_rows(rows, is_sliced)

    expected = [in_oracle(query, history) for query, _ in known]
    whole = run(task_of(plans, inputs, None), [travelling(replicated(history, None), False)], dice)
    assert whole == expected
    partitions = scattered(replicated(history, slicing), wanted[0].partition_by, dice)
    tables = [travelling(rows, slicing is not None) for rows in partitions]
    assert run(task_of(plans, inputs, width), tables, dice) == expected


def assert_needed_rows_travel(plans: Sequence[QueryPlan], slicing: TimeSlices, history: Iterable[OracleEvent]) -> None:
    """A row goes to one slice or two, and to those in which any variable of any plan needs it."""
    for event in history:
        own = slices_of(event, slicing)
        assert len(own) <= 2
        for plan in plans:
            for number, graph_plan in enumerate(plan.graphs):
                for inner in graph_plan.with_inner():
                    for variable in inner.graph.variables:
                        if variable.stream == event.stream:
                            last = latest_use(event, plan.retention[number, variable.name])
                            assert max(event.e, last) // slicing.width * slicing.width in own


# Properties


@SOME
@given(case=timed_cases(), overlaps=OVERLAPS, dice=st.randoms(use_true_random=False))
def test_slices_of_points(case: Case, overlaps: int, dice: random.Random) -> None:
    check([case[0]], case[1], dice, overlaps=overlaps)


@FEWER
@given(case=timed_cases(intervals=True), overlaps=OVERLAPS, dice=st.randoms(use_true_random=False))
def test_slices_of_intervals(case: Case, overlaps: int, dice: random.Random) -> None:
    check([case[0]], case[1], dice, intervals=True, overlaps=overlaps)


@FEWER
@given(
    wanted=st.lists(queries(), min_size=2, max_size=3),
    history=histories(),
    overlaps=OVERLAPS,
    per_stream=st.booleans(),
    dice=st.randoms(use_true_random=False),
)
def test_slices_of_several_plans(
    wanted: list[PatternQuery], history: list[OracleEvent], overlaps: int, per_stream: bool, dice: random.Random
) -> None:
    keys = wanted[0].partition_by
    same_keys = [timed(replace(query, partition_by=keys), 5 + 3 * place) for place, query in enumerate(wanted)]
    check(same_keys, history, dice, overlaps=overlaps, per_stream=per_stream)


@FEWER
@given(case=timed_cases(intervals=True), overlaps=OVERLAPS, dice=st.randoms(use_true_random=False))
def test_slices_of_one_table_per_stream(case: Case, overlaps: int, dice: random.Random) -> None:
    check([case[0]], case[1], dice, intervals=True, overlaps=overlaps, per_stream=True)


@FEWER
@given(case=cases(), dice=st.randoms(use_true_random=False))
def test_keys_alone(case: Case, dice: random.Random) -> None:
    """Without slices, as for unbounded and counting patterns: rows in any order; their `id` settles equal times."""
    check([case[0]], case[1], dice, overlaps=None)


@FEWER
@given(first=queries(), second=queries())
def test_slices_that_serve_two_plans_serve_each(first: PatternQuery, second: PatternQuery) -> None:
    plans = [plan for _, plan in planned([first, second], [input_of([], False)])]
    if not plans:
        return
    slicing, alone = slicing_of(plans), [slicing_of([plan]) for plan in plans]
    if any(counts_events(plan.query) for plan in plans):
        assert slicing is None
    if slicing is not None:
        assert slicing.width >= slices.OVERLAPS_PER_SLICE * slicing.overlap
        assert all(own is not None and own.width <= slicing.width for own in alone)


# Examples


def plan_of(text: str) -> QueryPlan:
    statements = parse_statements(text)
    return plan_query(statements.statements[0], catalog_of((input_of([], False),)), statements.source)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("PATTERN A a", 1),
        ("PATTERN SEQ(A a, B b) WITHIN 5", 80),
        ("PATTERN SEQ(A a, NOT B b) WITHIN 5", 80),
        ("PATTERN SEQ(A a, B b) WHERE b.t - a.t <= 2 WITHIN 5", 32),
        ("PATTERN SEQ(A a, B b)", None),
        ("PATTERN SEQ(A a, B b) WITHIN 5 EVENTS", None),
        (f"PATTERN SEQ(A a, B b) WITHIN {2**56}", 2**60),
        (f"PATTERN SEQ(A a, B b) WITHIN {2**56 + 1}", None),
    ],
)
def test_widths(text: str, width: int | None) -> None:
    slicing = slicing_of([plan_of(text)])
    assert (slicing.width if slicing is not None else None) == width


def test_a_match_across_slices_is_found_in_the_later_one() -> None:
    plan, shape = plan_of("PATTERN SEQ(A a, B b) WITHIN 5"), input_of([], False)
    first, last = OracleEvent(0, "A", 79, 79), OracleEvent(1, "B", 80, 80)
    slicing = slicing_of([plan])
    assert slicing is not None
    assert slices_of(first, slicing) == [0, 80]
    assert slices_of(last, slicing) == [80]
    task = task_of([plan], [shape], slicing.width)
    dice = random.Random(0)
    assert run(task, [flat_rows([(first, 0)], True)], dice) == [Counter()]
    assert run(task, [flat_rows([(first, 80), (last, 80)], True)], dice) == [Counter({(("a", 0), ("b", 1)): 1})]


def test_a_trailing_negation_is_decided_where_its_scope_closes() -> None:
    """The scope of the A at 3 closes at 8, in the second slice; the B at 7 reaches into it, that at 2 does not."""
    query = parse_statements("PATTERN SEQ(A a, NOT B b) WITHIN 5").statements[0]
    quiet = [OracleEvent(0, "A", 3, 3), OracleEvent(1, "B", 2, 2)]
    for history, found in ((quiet, 1), ([*quiet, OracleEvent(2, "B", 7, 7)], 0)):
        assert sum(in_oracle(query, history).values()) == found
        for seed in range(5):
            check([query], history, random.Random(seed), overlaps=1)


def test_an_empty_partition_gives_nothing() -> None:
    task = task_of([plan_of("PATTERN SEQ(A a, B b) WITHIN 5")], [input_of([], False)], 80)
    assert list(task.matches(iter([]))) == []
    assert list(task.matches(iter(flat_rows([], True).to_batches()))) == []


def test_patterns_share_columns_of_a_type() -> None:
    """As many as the pattern with the most columns of the type has, whatever they are called."""
    number, text = pa.int64(), pa.string()
    schemas = [pa.schema({"a": number, "b": text}), pa.schema({"c": text, "d": number, "e": number}), pa.schema({})]
    carrier = Carrier.of(schemas)
    assert carrier.schema.types == [pa.int32(), number, text, number]
    assert carrier.places == ((1, 2), (2, 1, 3), ())
    rows = carrier.carry(pa.record_batch({"c": ["x"], "d": [4], "e": [None]}, schema=schemas[1]), 1)
    assert rows.to_pylist() == [dict(zip(carrier.schema.names, (1, 4, "x", None), strict=True))]


def test_a_worker_reads_a_program_once() -> None:
    data = [pickle.dumps(ShippedValue(value)) for value in (("one", 1), ("one", 1), ("other", 1))]
    first, again, other = (pickle.loads(part).value for part in data)
    assert first is again
    assert (first, other) == (("one", 1), ("other", 1))
