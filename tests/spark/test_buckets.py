"""Buckets on a stream, driven as Spark drives them: however rows come, every match once, in time, and no row lost."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import share
from engine.test_batching import named_bindings
from engine.test_eager import positive_cases
from ensue import LimitError, QueryError, StateError
from harness import events_table, input_of
from inside import (
    CARRIED,
    BucketStep,
    BucketTask,
    Clock,
    Duration,
    InputTable,
    Options,
    Output,
    PatternQuery,
    Payload,
    QueryPlan,
    Ticks,
    catalog_of,
    counts_events,
    kept_events,
    needed_columns,
    output_schema,
    packed,
    parse_statements,
    plain_schema,
    plan_query,
    raw_types,
    render_query,
)
from inside import bucket as bucket_module
from oracle.oracle import OracleEvent, OracleMatch, matches
from spark.streams import own_matches
from strategies.histories import histories
from strategies.patterns import cases, queries

Case = tuple[PatternQuery, list[OracleEvent]]
MicroBatches = list[list[OracleEvent]]

SOME = share(0.33)
FEWER = share(0.12)
SECOND, MICROSECOND = 1_000_000_000, 1_000
STREAMS = "ABCDE"
FAR = 10**15
"""A watermark, in milliseconds, that is beyond everything."""

DICE = st.randoms(use_true_random=False)
DELAYS = st.sampled_from((0, 1_500, 3_000, 8_000, 30_000))
SHIFTS = st.sampled_from((0, 100, 100))


# What Spark does, in Python


@dataclass
class Bucket:
    """What Spark keeps for a bucket between two calls."""

    state: bytes | None = None
    timeout: int | None = None


@dataclass
class Stream:
    """The stateful operator of a stream. `called` are the buckets of the last micro-batch."""

    task: BucketTask
    buckets: int
    dice: random.Random
    kept: dict[int, Bucket] = field(default_factory=dict)
    called: list[int] = field(default_factory=list)

    def micro_batch(self, events: Sequence[OracleEvent], watermark: int) -> list[Output]:
        """Calls every bucket that has rows or whose time has come."""
        by_bucket: dict[int, list[OracleEvent]] = {}
        for event in events:
            by_bucket.setdefault(self.bucket_of(event), []).append(event)
        due = {number for number, own in self.kept.items() if own.timeout is not None and own.timeout < watermark}
        self.called = sorted(by_bucket.keys() | due)
        return [output for number in self.called for output in self.call(number, by_bucket.get(number, []), watermark)]

    def bucket_of(self, event: OracleEvent) -> int:
        key = [event.fields.get(name) for name in self.task.plans[0].query.partition_by]
        return zlib.crc32(repr(key).encode()) % self.buckets

    def call(self, number: int, events: list[OracleEvent], watermark: int) -> tuple[Output, ...]:
        """One call, and the same again as after a crash; the stream goes on from either."""
        own = self.kept.setdefault(number, Bucket())
        first, again = (self.task.step(own.state, self.payloads(events), watermark) for _ in range(2))
        assert contents(self.task, first) == contents(self.task, again)
        assert first.wake == again.wake
        step = self.dice.choice((first, again))
        timeout = None if step.wake is None else max(step.wake - 1, watermark, 1)
        self.kept[number] = Bucket(step.state, timeout if step.state is not None else None)
        return step.outputs

    def payloads(self, events: list[OracleEvent]) -> list[Payload]:
        """The rows in any order, in one or more pieces per input."""
        payloads: list[Payload] = []
        shuffled = self.dice.sample(events, len(events))
        for place, item in enumerate(self.task.inputs):
            own = [event for event in shuffled if item.stream in (None, event.stream)]
            size = self.dice.randint(1, max(1, len(own)))
            for begin in range(0, len(own), size):
                table = conforming(own[begin : begin + size], item)
                payloads += [(place, data) for _, data in packed(table)]
        return self.dice.sample(payloads, len(payloads))

    def kept_events(self, number: int) -> list[OracleEvent]:
        """The events in the state of a bucket, with their times and nothing else."""
        return [
            OracleEvent(0, item.stream or row["type"], row[item.time], row[item.end or item.time])
            for item, table in zip(
                self.task.inputs, kept_events(self.task.machine, self.task.state(self.kept[number].state)), strict=True
            )
            for row in table.to_pylist()
        ]


def conforming(events: Sequence[OracleEvent], item: InputTable) -> pa.Table:
    """The events in the columns of an input; times become timestamps if they are there."""
    table = events_table(events)
    schema = item.table.schema
    return pa.table(
        [
            table.column(name).cast(pa.int64()).cast(kind) if is_time(kind) else table.column(name)
            for name, kind in zip(schema.names, schema.types, strict=True)
        ],
        schema=schema,
    )


def is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def contents(task: BucketTask, step: BucketStep) -> Counter[tuple[int, str]]:
    """The rows of all outputs of a step, in no order."""
    return Counter((output.number, repr(row)) for output in step.outputs for row in rows_of(task, output))


def rows_of(task: BucketTask, output: Output) -> list[object]:
    return [None] * output.rows if output.data is None else table_of(task, output).to_pylist()


def table_of(task: BucketTask, output: Output) -> pa.Table:
    batch = pa.ipc.read_record_batch(pa.py_buffer(output.data), task.schema_of(output.number))
    assert output.number == CARRIED or batch.num_rows == output.rows
    return pa.Table.from_batches([batch])


@dataclass
class Run:
    """What came out of a stream. `reached` is the tick of each micro-batch's watermark, None before there is one."""

    reached: list[int | None] = field(default_factory=list)
    found: list[list[Counter[tuple[tuple[str, int], ...]]]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    late_rows: int = 0

    def take(self, task: BucketTask, outputs: Iterable[Output], reached: int | None) -> None:
        self.reached.append(reached)
        self.found.append([Counter() for _ in task.plans])
        for output in outputs:
            if output.number == CARRIED:
                for number, found in enumerate(self.found[-1]):
                    found += named_bindings(own_matches(table_of(task, output), task, number))
                continue
            if output.number < len(task.plans):
                if output.data is not None:
                    self.found[-1][output.number] += named_bindings(table_of(task, output))
                continue
            if output.number >= task.first_tie:  # a count of ties
                assert output.data is None
                continue
            self.late_rows += output.rows
            assert (output.data is not None) == task.gives_late
            if output.data is not None:
                self.late += table_of(task, output).column("id").to_pylist()


def watermarks_of(batches: MicroBatches, delay: int, task: BucketTask) -> list[int]:
    """The watermark of each micro-batch, of one without rows after them, and one beyond everything.

    It is the least of all inputs: the newest end seen before less the delay.
    """
    newest = [0 for _ in task.inputs]
    watermarks = []
    for batch in [*batches, []]:
        watermarks.append(max(0, min(moment - delay if moment else 0 for moment in newest)))
        for place, item in enumerate(task.inputs):
            ends = [
                event.e * task.clock.nanoseconds // 1_000_000 for event in batch if item.stream in (None, event.stream)
            ]
            newest[place] = max([newest[place], *ends])
    return [*watermarks, FAR]


def run_stream(stream: Stream, batches: MicroBatches, delay: int) -> Run:
    task, run = stream.task, Run()
    for events, watermark in zip([*batches, [], []], watermarks_of(batches, delay, task), strict=True):
        reached = watermark * 1_000_000 // task.clock.nanoseconds if watermark > 0 else None
        run.take(task, stream.micro_batch(events, watermark), reached)
        check_state(stream, reached)
    return run


def check_state(stream: Stream, reached: int | None) -> None:
    """A bucket that was called keeps what may still be needed and nothing else; it wakes to forget the last of it."""
    plans = stream.task.plans
    if any(plan.counting for plan in plans) or is_time(stream.task.inputs[0].table.schema.field("time").type):
        return
    for number in stream.called:
        own = stream.kept[number]
        for event in stream.kept_events(number) if reached is not None else []:
            assert event.e > reached or any(is_needed(event, plan, reached) for plan in plans)
        assert own.state is None or own.timeout is not None or not all(map(is_bounded, plans))
    if reached is not None and reached > FAR // 2_000 and all(map(is_bounded, plans)):
        assert all(own.state is None for own in stream.kept.values())


def is_bounded(plan: QueryPlan) -> bool:
    return all(kept.from_start is not None or kept.from_end is not None for kept in plan.retention.values())


def is_needed(event: OracleEvent, plan: QueryPlan, reached: int) -> bool:
    """Whether a match around the event can complete after the watermark."""
    for number, graph_plan in enumerate(plan.graphs):
        for inner in graph_plan.with_inner():
            for variable in inner.graph.variables:
                kept = plan.retention[number, variable.name]
                limits = [(event.s, kept.from_start), (event.e, kept.from_end)]
                if variable.stream == event.stream and all(
                    limit is None or origin + limit > reached for origin, limit in limits
                ):
                    return True
    return False


# Comparison with the oracle


def plans_of(wanted: Sequence[PatternQuery], inputs: Sequence[InputTable]) -> list[tuple[PatternQuery, QueryPlan]]:
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


def task_of(
    plans: Sequence[QueryPlan],
    inputs: Sequence[InputTable],
    nanoseconds: int = SECOND,
    *,
    eager: bool = False,
    gives_late: bool = True,
) -> BucketTask:
    """Whole rows travel, so that rows of equal times can be put in the order of their `id`."""
    outputs = tuple(output_schema(plan, raw_types(plan, inputs)) for plan in plans)
    shapes = tuple(replace(item, table=plain_schema(item.table.schema).empty_table()) for item in inputs)
    schemas = tuple(output.schema for output in outputs)
    return BucketTask(shapes, tuple(plans), outputs, schemas, Clock(nanoseconds), Options(), eager, gives_late)


def delivered(history: Sequence[OracleEvent], dice: random.Random) -> MicroBatches:
    """The history in any order in micro-batches, some of them empty. `id` becomes the order of arrival."""
    order = dice.sample(history, len(history)) if dice.random() < 0.5 else sorted(history, key=lambda event: event.e)
    cuts = sorted(dice.choices(range(len(order) + 1), k=dice.randint(0, 6)))
    numbered = [replace(event, id=number) for number, event in enumerate(order)]
    return [numbered[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]


def is_late(event: OracleEvent, reached: int | None) -> bool:
    return reached is not None and event.e <= reached


def named(match: OracleMatch) -> tuple[tuple[str, int], ...]:
    return tuple((name, event) for name, event in match.bindings if isinstance(name, str))


def completing(found: Iterable[OracleMatch], after: int | None, until: int | None) -> Counter:
    """The matches that complete after one watermark and not after another."""
    return Counter(
        named(match)
        for match in found
        if until is not None and match.completion <= until and (after is None or match.completion > after)
    )


def check(
    wanted: Sequence[PatternQuery],
    batches: MicroBatches,
    delay: int,
    dice: random.Random,
    *,
    intervals: bool = False,
    per_stream: bool = False,
    gives_late: bool = True,
    buckets: int | None = None,
) -> None:
    """Every match is given in the micro-batch whose watermark reaches its completion; late rows come out as such."""
    shape = input_of([], intervals)
    inputs = [replace(shape, stream=name, type=None) for name in STREAMS] if per_stream else [shape]
    known = plans_of(wanted, inputs)
    if not known:
        return
    task = task_of([plan for _, plan in known], inputs, gives_late=gives_late)
    run = run_stream(Stream(task, buckets or dice.randint(1, 3), dice), batches, delay)
    late = [
        event
        for batch, reached in zip(batches, run.reached, strict=False)
        for event in batch
        if is_late(event, reached)
    ]
    assert run.late_rows == len(late)
    if gives_late:
        assert sorted(run.late) == sorted(event.id for event in late)
    admitted = [event for batch in batches for event in batch if event not in late]
    for place, (query, _) in enumerate(known):
        expected = matches(query, admitted)
        for number, reached in enumerate(run.reached):
            before = run.reached[number - 1] if number else None
            assert run.found[number][place] == completing(expected, before, reached)


def moved(history: Iterable[OracleEvent], ticks: int) -> list[OracleEvent]:
    return [replace(event, s=event.s + ticks, e=event.e + ticks) for event in history]


# Properties


@SOME
@given(case=cases(), shift=SHIFTS, delay=DELAYS, gives_late=st.booleans(), dice=DICE)
def test_points(case: Case, shift: int, delay: int, gives_late: bool, dice: random.Random) -> None:
    query, history = case
    check([query], delivered(moved(history, shift), dice), delay, dice, gives_late=gives_late)


@FEWER
@given(case=cases(intervals=True), delay=DELAYS, dice=DICE)
def test_intervals(case: Case, delay: int, dice: random.Random) -> None:
    query, history = case
    check([query], delivered(moved(history, 100), dice), delay, dice, intervals=True)


@FEWER
@given(wanted=st.lists(queries(), min_size=2, max_size=3), history=histories(), delay=DELAYS, dice=DICE)
def test_several_plans(wanted: list[PatternQuery], history: list[OracleEvent], delay: int, dice: random.Random) -> None:
    keys = wanted[0].partition_by
    together = [
        replace(query, partition_by=keys) for query in wanted if counts_events(query) == counts_events(wanted[0])
    ]
    check(together, delivered(moved(history, 100), dice), delay, dice)


def test_a_plan_that_counts_beside_one_that_does_not() -> None:
    """A at 1, an event that is none of theirs at 2, B at 3: not within two events, whoever else keeps the A."""
    alone = parse_statements("PATTERN SEQ(A a, B b) WITHIN 2 EVENTS").statements[0]
    other = parse_statements("PATTERN SEQ(A a, C c) WITHIN 100").statements[0]
    task = task_of([plan for _, plan in plans_of([alone, other], [input_of([], False)])], [input_of([], False)])
    stream = Stream(task, 1, random.Random(0))
    batches = [[OracleEvent(0, "A", 101, 101), OracleEvent(1, "E", 102, 102)], [], [OracleEvent(2, "B", 103, 103)]]
    run = run_stream(stream, batches, 0)
    assert all(not found[0] for found in run.found)


@FEWER
@given(case=cases(intervals=True), delay=DELAYS, dice=DICE)
def test_one_table_per_stream(case: Case, delay: int, dice: random.Random) -> None:
    query, history = case
    if not counts_events(query):  # the arrival of equal times differs between one table and several
        check([query], delivered(moved(history, 100), dice), delay, dice, intervals=True, per_stream=True)


@FEWER
@given(case=positive_cases(), delay=DELAYS, dice=DICE)
def test_eager(case: Case, delay: int, dice: random.Random) -> None:
    """Each match comes in the micro-batch of the last of its events to come."""
    query, history = case
    shape = input_of([], False)
    known = plans_of([query], [shape])
    if not known:
        return
    task = task_of([known[0][1]], [shape], eager=True)
    batches = delivered(moved(history, 100), dice)
    run = run_stream(Stream(task, dice.randint(1, 3), dice), batches, delay)
    place = {event.id: number for number, batch in enumerate(batches) for event in batch}
    admitted = [event for batch in batches for event in batch if not is_late(event, run.reached[place[event.id]])]
    expected: list[Counter] = [Counter() for _ in run.found]
    for match in matches(query, admitted):
        expected[max(place[event] for _, event in match.bindings)][named(match)] += 1
    assert [found[0] for found in run.found] == expected


@st.composite
def keyed_histories(draw: st.DrawFn, times: Sequence[int]) -> list[OracleEvent]:
    drawn = st.tuples(st.sampled_from("AAABD"), st.sampled_from(times), st.integers(1, 5))
    return [
        OracleEvent(number, stream, moment, moment, {"k": key})
        for number, (stream, moment, key) in enumerate(draw(st.lists(drawn, min_size=6, max_size=14)))
    ]


@FEWER
@given(
    text=st.sampled_from(("SEQ(A a, NOT B b)", "SEQ(NOT A c, A a, NOT B b)", "SEQ(A a, D d, NOT B b)")),
    window=st.integers(2, 9),
    history=keyed_histories(range(100, 116)),
    dice=DICE,
)
def test_idle_buckets_wake_in_time(text: str, window: int, history: list[OracleEvent], dice: random.Random) -> None:
    """Every event comes in a micro-batch of its own, so that only the time tells most buckets what is complete."""
    query = parse_statements(f"PATTERN {text} PARTITION BY k WITHIN {window}").statements[0]
    in_order = sorted(history, key=lambda event: event.e)
    alone = [[replace(event, id=number)] for number, event in enumerate(in_order)]
    check([query], alone, dice.choice((0, 2_000, 4_000)), dice, buckets=8)


@FEWER
@given(
    text=st.sampled_from(("SEQ(A a, B b)", "SEQ(A a, NOT B b)", "AND(A a, NOT D d, B b)")),
    window=st.integers(2, 5),
    history=keyed_histories((100, 101, 102)),
    dice=DICE,
)
def test_positions_of_equal_times(text: str, window: int, history: list[OracleEvent], dice: random.Random) -> None:
    """However the rows of a micro-batch are put, at the first attempt or the next, their positions are the same."""
    query = parse_statements(f"PATTERN {text} WITHIN {window} EVENTS").statements[0]
    check([query], delivered(history, dice), 8_000, dice)


MICROSECONDS = (0, 1, 999, 1_000, 1_001, 1_500, 2_000, 2_500, 3_000, 4_999, 5_000, 7_000)


@st.composite
def fine_histories(draw: st.DrawFn) -> list[OracleEvent]:
    """Events microseconds apart, some within a millisecond."""
    drawn = st.tuples(st.sampled_from("AABBC"), st.sampled_from(MICROSECONDS), st.sampled_from((1, 1, 2, None)))
    base = 1_700_000_000_000_000
    return [
        OracleEvent(number, stream, base + moment, base + moment, {"k": key})
        for number, (stream, moment, key) in enumerate(draw(st.lists(drawn, min_size=2, max_size=12)))
    ]


@FEWER
@given(
    text=st.sampled_from(("SEQ(A a, B b)", "SEQ(A a, NOT B b)", "SEQ(A a, NOT C c, B b)", "AND(A a, NOT C c, B b)")),
    window=st.sampled_from((1, 500, 1_000, 1_999, 4_000)),
    keys=st.sampled_from(((), ("k",))),
    history=fine_histories(),
    delay=st.sampled_from((0, 1, 3, 10)),
    dice=DICE,
)
def test_timestamps(
    text: str, window: int, keys: tuple[str, ...], history: list[OracleEvent], delay: int, dice: random.Random
) -> None:
    """A watermark counts milliseconds, time microseconds."""
    query = replace(parse_statements(f"PATTERN {text} WITHIN 1").statements[0], partition_by=keys)
    names = events_table([]).column_names
    schema = pa.schema(
        [
            pa.field(
                name,
                pa.timestamp("us", "UTC") if name in ("time", "until") else events_table([]).schema.field(name).type,
            )
            for name in names
        ]
    )
    shape = replace(input_of([], False), table=schema.empty_table())
    ((_, plan),) = plans_of([replace(query, within=Duration(window * 1_000))], [shape])
    task = task_of([plan], [shape], MICROSECOND)
    batches = delivered(history, dice)
    run = run_stream(Stream(task, dice.randint(1, 3), dice), batches, delay)
    late = [
        event
        for batch, reached in zip(batches, run.reached, strict=False)
        for event in batch
        if is_late(event, reached)
    ]
    assert sorted(run.late) == sorted(event.id for event in late)
    admitted = [event for batch in batches for event in batch if event not in late]
    expected = matches(replace(query, within=Ticks(window)), admitted)
    for number, reached in enumerate(run.reached):
        assert run.found[number][0] == completing(expected, run.reached[number - 1] if number else None, reached)


# Examples


def task_for(text: str, **choices: bool) -> BucketTask:
    shape = input_of([], False)
    statements = parse_statements(text)
    return task_of([plan for _, plan in plans_of(statements.statements, [shape])], [shape], **choices)


def one(number: int, stream: str, moment: int) -> OracleEvent:
    return OracleEvent(number, stream, moment, moment)


def payload(task: BucketTask, *events: OracleEvent) -> list[Payload]:
    return [(0, data) for _, data in packed(conforming(events, task.inputs[0]))]


@pytest.mark.parametrize("nanoseconds", [1, 1_000, 1_000_000, 1_500_000, SECOND, 3_600 * SECOND])
def test_clock(nanoseconds: int) -> None:
    """A tick is reached at its first millisecond, and not before."""
    clock = Clock(nanoseconds)
    for tick in (1, 2, 7, 1_000, 1_234_567):
        first = clock.milliseconds(tick)
        assert clock.ticks(first) >= tick
        assert clock.ticks(first - 1) < tick
    assert clock.ticks(0) == clock.ticks(-1) == bucket_module.NO_WATERMARK


def test_an_idle_bucket_wakes_when_a_negation_closes_and_then_holds_nothing() -> None:
    task = task_for("PATTERN SEQ(A a, NOT B b) WITHIN 5")
    step = task.step(None, payload(task, one(0, "A", 100)), 0)
    assert step.wake == 100_000  # the A itself may be the last that a match needs
    step = task.step(step.state, [], 100_000)
    assert (step.outputs, step.wake) == ((), 105_000)
    step = task.step(step.state, [], 105_000)
    assert [output.rows for output in step.outputs] == [1]
    assert (step.state, step.wake) == (None, None)


def test_a_bucket_that_only_forgets_wakes_once() -> None:
    task = task_for("PATTERN SEQ(A a, B b) WITHIN 5")
    step = task.step(None, payload(task, one(0, "A", 100), one(1, "A", 103)), 104_000)
    assert len(step.outputs) == 1  # both are late
    step = task.step(None, payload(task, one(0, "A", 105), one(1, "A", 108)), 104_000)
    step = task.step(step.state, [], 108_000)
    assert step.wake == 113_000
    assert task.step(step.state, [], 113_000) == BucketStep(None, None, ())


def test_rows_without_use_leave_no_state() -> None:
    task = task_for("PATTERN SEQ(A a, B b) WITHIN 5")
    assert task.step(None, payload(task, one(0, "D", 100)), 0) == BucketStep(None, None, ())
    assert task.step(None, payload(task, one(0, "D", 100)), 99_000) == BucketStep(None, None, ())


def test_late_rows_are_only_counted_unless_asked_for() -> None:
    for gives_late in (False, True):
        task = task_for("PATTERN SEQ(A a, B b) WITHIN 5", gives_late=gives_late)
        rows = [one(0, "A", 100), one(1, "D", 90), one(2, "A", 101)]
        step = task.step(None, payload(task, *rows), 100_000)
        assert [(output.number, output.rows) for output in step.outputs] == [(1, 2)]
        assert (step.outputs[0].data is not None) == gives_late


def test_columns_that_no_query_uses_need_not_travel() -> None:
    task = task_for("PATTERN SEQ(A a, B b) WHERE a.x = b.x WITHIN 5 RETURN a.x AS x", gives_late=False)
    slim = tuple(
        replace(item, table=plain_schema(needed_columns(task.plans, item).schema).empty_table()) for item in task.inputs
    )
    assert slim[0].table.column_names == ["type", "time", "x"]
    task = replace(task, inputs=slim)
    events = [OracleEvent(0, "A", 100, 100, {"x": 4}), OracleEvent(1, "B", 101, 101, {"x": 4})]
    step = task.step(None, payload(task, *events), 0)
    (output,) = task.step(step.state, [], 101_000).outputs
    assert table_of(task, output).to_pylist() == [{"x": 4}]


def test_what_is_not_a_state_is_told() -> None:
    with pytest.raises(StateError) as caught:
        task_for("PATTERN SEQ(A a, B b) WITHIN 5").step(b"nothing of ours", [], 0)
    assert caught.value.code == "not-a-state"


def test_a_state_of_another_query_is_told() -> None:
    task, other = task_for("PATTERN SEQ(A a, B b) WITHIN 5"), task_for("PATTERN SEQ(A a, B b) WITHIN 6")
    saved = task.step(None, payload(task, one(0, "A", 100)), 0).state
    with pytest.raises(StateError) as caught:
        other.step(saved, [], 0)
    assert caught.value.code == "state-query"


def test_a_state_that_would_not_reach_the_worker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "LARGEST_STATE", 100)
    task = task_for("PATTERN SEQ(A a, B b) WITHIN 5")
    with pytest.raises(LimitError) as caught:
        task.step(None, payload(task, one(0, "A", 100)), 0)
    assert caught.value.code == "state-size"
