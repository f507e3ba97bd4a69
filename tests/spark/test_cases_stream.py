"""Every case of `tests/cases` as a stream of several micro-batches, its events out of order: the same rows, in time.

A stream costs more than a case. So many cases run as one stream, apart by a key of their own: streams and fields are
renamed so that no case sees those of another, and where only some cases have a PARTITION BY, it is a constant for the
others. Neither changes what a case means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from case_files import Case, CaseEvent, array_of, parse_time, render_rows, ticks_of, type_of
from case_oracle import program_of, statements_of
from inside import (
    AnyEvent,
    Binary,
    Columns,
    Event,
    Field,
    Literal,
    Operation,
    Options,
    PatternQuery,
    Return,
    Same,
    StreamPlan,
    counts_events,
    empty_tables,
    frame_inputs,
    inferred_catalog,
    is_endless,
    plan_queries,
    plan_query,
    plan_stream,
    program_statements,
    render_query,
)
from inside import walk_pattern as walk
from spark.streams import FAR, INSTANT, Feed, Ran, disordered, matches_in, run_to_end, settings
from test_cases import (
    ALL,
    detect,
    each,
    has_rules,
    is_beyond_sample,
    node_of,
    without_completion,
)

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")


def is_apart(case: Case) -> bool:
    """Whether other tests run it: rules, and streams of rows, whose tables cannot be joined with those of others."""
    return has_rules(case) or (not case.errors and bool(program_of(case).selections))


FILES = 3
"""In how many parts the events come; then a row of the far future, then what Spark does of itself."""

CASE = "number"
"""The column that says whose event it is."""

CONSTANTS: Mapping[pa.DataType, object] = {pa.int64(): 0, pa.float64(): 0.5, pa.string(): "", pa.bool_(): True}


def declares_streams(case: Case) -> bool:
    return len(statements_of(case)) > 1


def goes_on(case: Case) -> bool:
    """Whether the matches of a case are as many as the watermark lets them be."""
    node = node_of(case)
    periodic = any(isinstance(part, Operation) and part.operator == "PERIODIC" for part in walk(node.pattern))
    return periodic and is_endless(plan_query(node, inferred_catalog(node, "time")))


ACCEPTED = [case for _, case in ALL if not (case.errors or is_apart(case) or declares_streams(case) or goes_on(case))]


@dataclass(frozen=True, slots=True)
class Kind:
    """Cases that can run as one stream. `tick` is the length of a unit of time in nanoseconds."""

    name: str
    tick: int
    delay: int
    intervals: bool = False
    order: tuple[str, ...] = ()

    @property
    def has_tables(self) -> bool:
        return self.name.endswith("tables")

    @property
    def is_clock(self) -> bool:
        return self.name == "clock"


# Times beyond 2^53 are moments of this century only if they are nanoseconds.
LARGE = 2**53
POINTS = Kind("points", 1_000_000_000, delay=4)
KINDS = (
    Kind("clock", 1_000, delay=600_000_000),
    Kind("large", 1, delay=1_000_000_000),
    Kind("intervals", 1_000_000_000, delay=4, intervals=True),
    Kind("counted intervals", 1_000_000_000, delay=4, intervals=True),
    Kind("counted", 1_000_000_000, delay=4),
    Kind("tables", 1_000_000_000, delay=4),
    Kind("ordered tables", 1_000_000_000, delay=4, order=("n",)),
    Kind("ordered intervals", 1_000_000_000, delay=4, intervals=True, order=("n_int64",)),
    Kind("ordered by two", 1_000_000_000, delay=4, order=("s_string", "n_int64")),
    Kind("ordered", 1_000_000_000, delay=4, order=("n_int64",)),
    POINTS,
)


def kind_of(case: Case) -> Kind:
    largest = max([0, *(event.end for event in case.parsed_events()), *case.completions])
    counted = "counted" if counts_events(node_of(case)) else ""
    ruling = {
        "ordered tables": case.order and case.has_tables,
        "ordered intervals": case.order and case.has_intervals,
        "ordered by two": len(case.order) > 1,
        "ordered": case.order,
        "tables": case.has_tables,
        "clock": case.has_clock_times,
        "large": largest > LARGE,
        "counted intervals": case.has_intervals and counted,
        "intervals": case.has_intervals,
        "counted": counted,
        "points": True,
    }
    name = next(name for name, holds in ruling.items() if holds)
    return next(kind for kind in KINDS if kind.name == name)


# --- cases that do not meet


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A query with every node below it changed."""
    if isinstance(value, tuple):
        return tuple(changed(part, change) for part in value)
    if not is_dataclass(value):
        return value
    parts = {item.name: changed(getattr(value, item.name), change) for item in fields(value)}
    return change(replace(value, **parts))


class Member:
    """A case in a group, by its number."""

    def __init__(self, number: int, case: Case) -> None:
        self.number, self.case = number, case
        self.events = case.parsed_events()
        self.node = node_of(case)
        self.types = types_of(self.events)

    def stream(self, name: str) -> str:
        return AnyEvent.but(map(self.stream, name.excluded)) if isinstance(name, AnyEvent) else f"{name}_{self.number}"

    def own(self, event: Event) -> Event:
        """The event, if it may be of any stream, as one of this case."""
        if not isinstance(event.stream, AnyEvent):
            return event
        mine = Binary("=", Field(None, CASE), Literal(self.number))
        return replace(event, predicate=mine if event.predicate is None else Binary("and", event.predicate, mine))

    def query(self, keys: Sequence[str], rename_fields: bool) -> PatternQuery:
        types = self.types if rename_fields else {}

        def rename(node: Any) -> Any:
            match node:
                case Event():
                    return self.own(replace(node, stream=self.stream(node.stream)))
                case Return(expression=Field(name=name), alias=None):
                    return replace(node, alias=next((old for old in types if column(old, types[old]) == name), name))
                case Field() if node.name in types:
                    return replace(node, name=column(node.name, types[node.name]))
                case Same():
                    return replace(node, fields=tuple(column(name, types[name]) for name in node.fields if types))
                case _:
                    return node

        return replace(changed(self.node, rename), name=f"case_{self.number}", partition_by=(CASE, *keys))


def types_of(events: Sequence[CaseEvent]) -> dict[str, pa.DataType]:
    """The fields of events and their types."""
    names = dict.fromkeys(name for event in events for name in event.fields)
    types = {name: type_of([event.fields.get(name) for event in events]) for name in names}
    return {name: pa.int64() if pa.types.is_null(kind) else kind for name, kind in types.items()}


def column(name: str, kind: pa.DataType) -> str:
    """The column of all fields of that name and type."""
    return f"{name}_{kind}"


def key(name: str, kind: pa.DataType) -> str:
    return f"key_{column(name, kind)}"


# --- a group of cases as one stream


class Group:
    """The cases of a kind, run together when the first of them is asked for."""

    def __init__(self, spark: SparkSession, folder: Path, kind: Kind, cases: Sequence[Case]) -> None:
        self.spark, self.folder, self.kind = spark, folder, kind
        self.members = [Member(number, case) for number, case in enumerate(cases)]
        self.types = {(name, of_type): None for member in self.members for name, of_type in member.types.items()}
        self.keys = {
            (name, member.types[name]): None
            for member in self.members
            for name in member.node.partition_by
            if not kind.has_tables
        }
        self.ran: Ran | None = None
        self.plan: StreamPlan | None = None

    def found(self, case: Case) -> list[tuple[pa.Table, int]]:
        """The rows of a case with the number of the micro-batch that gave them."""
        if self.ran is None:
            with settings(self.spark, {"spark.sql.caseSensitive": "true", "spark.sql.codegen.wholeStage": "false"}):
                self.plan, self.ran = self.run()
        assert self.plan is not None
        number = next(member.number for member in self.members if member.case is case)
        return [
            (without_zone(matches), batch)
            for batch, table in self.ran.batches.items()
            for matches in matches_in(table, self.plan.task, number)
        ]

    def batch_of(self, completion: int) -> int | None:
        """The micro-batch whose watermark is the first to reach a time, None if none does."""
        assert self.ran is not None
        for batch, watermark in sorted(self.ran.watermarks.items()):
            if watermark > 0 and watermark * 1_000_000 // self.kind.tick >= completion:
                return batch
        return None

    def run(self) -> tuple[StreamPlan, Ran]:
        sources = self.sources()
        queries = [member.query(self.key_columns, not self.kind.has_tables) for member in self.members]
        statements = program_statements(";\n".join(map(render_query, queries)))
        columns = Columns(
            "time",
            None if isinstance(sources, dict) else "type",
            "until" if self.kind.intervals else None,
            order=self.kind.order or None,
        )
        planned = plan_queries(empty_tables(sources), statements, columns)
        plan = plan_stream(
            frame_inputs(sources, planned.inputs),
            planned.plans,
            planned.outputs,
            Options(limit=None),
            planned.plans[0].query.partition_by,
            planned.derivations,
            tick=None if self.kind.is_clock else f"{self.kind.tick} ns",
            buckets=2,
        )
        ran = run_to_end(plan.counted(plan.found()), self.folder / "checkpoint")
        return plan, ran

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ("k",) if self.kind.has_tables else tuple(key(name, of_type) for name, of_type in self.keys)

    def sources(self) -> DataFrame | dict[str, DataFrame]:
        """The events as streams, in files that hold those of all cases up to some time, out of order."""
        events = [(member, event) for member in self.members for event in member.events]
        order = disordered(np.array([event.end for _, event in events]), self.kind.delay, seed=len(events))
        parts = [[events[place] for place in part] for part in np.array_split(order, FILES)]
        if not self.kind.has_tables:
            return self.source("events", parts, self.one_table)
        owners = {member.stream(event.stream): (member, event.stream) for member, event in events}
        reached = np.maximum.accumulate([max(event.end for _, event in part) for part in parts])
        return {
            name: self.source(
                name,
                [
                    [*(row for row in part if row[0].stream(row[1].stream) == name), (None, moving(int(end)))]
                    for part, end in zip(parts, reached, strict=True)
                ],
                lambda rows, owner=owner: table_of(*owner, rows),
            )
            for name, owner in owners.items()
        }

    def source(self, name: str, parts: Sequence[Any], table: Callable[[Any], pa.Table]) -> DataFrame:
        feed: Feed | None = None
        for part in parts:
            rows = self.with_times(table(part), [event for _, event in part])
            feed = feed or Feed(self.folder / name, rows.schema)
            feed.put(rows)
        assert feed is not None
        feed.put(self.flush(feed.schema))
        clock = self.clock
        return feed.stream(self.spark, clock, f"{self.kind.delay * self.kind.tick // 1000} microseconds")

    @property
    def clock(self) -> str:
        """The column that has the watermark."""
        return "clock" if not self.kind.is_clock else "until" if self.kind.intervals else "time"

    def one_table(self, rows: Sequence[tuple[Member, CaseEvent]]) -> pa.Table:
        """Events of all cases: whose they are, their fields in one column per type, the keys of the group."""
        columns = {
            "event": pa.array([event.label for _, event in rows], pa.string()),
            "type": pa.array([member.stream(event.stream) for member, event in rows], pa.string()),
            CASE: pa.array([member.number for member, _ in rows], pa.int64()),
        }
        for name, of_type in self.types:
            values = [event.fields.get(name) if member.types.get(name) == of_type else None for member, event in rows]
            columns[column(name, of_type)] = array_of(values, of_type)
        for name, of_type in self.keys:
            values = [
                event.fields.get(name)
                if name in member.node.partition_by and member.types[name] == of_type
                else CONSTANTS[of_type]
                for member, event in rows
            ]
            columns[key(name, of_type)] = pa.array(values, of_type)
        return pa.table(columns)

    def with_times(self, table: pa.Table, events: Sequence[CaseEvent]) -> pa.Table:
        starts, ends = (pa.array([getattr(event, end) for event in events], pa.int64()) for end in ("start", "end"))
        kind = INSTANT if self.kind.is_clock else pa.int64()
        table = table.append_column("time", starts.cast(kind))
        if self.kind.intervals:
            table = table.append_column("until", ends.cast(kind))
        if not self.kind.is_clock:
            moments = [event.end * self.kind.tick // 1000 for event in events]
            table = table.append_column("clock", pa.array(moments, pa.int64()).cast(INSTANT))
        return table

    def flush(self, schema: pa.Schema) -> pa.Table:
        """A row of the far future that belongs to no case."""
        row = {"type": "Flush", CASE: -1, "clock": FAR}
        row |= dict.fromkeys(("time", "until"), FAR if self.kind.is_clock else FAR * 1000 // self.kind.tick)
        arrays = [
            pa.array([row[field.name]]).cast(field.type) if field.name in row else pa.nulls(1, field.type)
            for field in schema
        ]
        return pa.table(arrays, schema=schema)


def moving(end: int) -> CaseEvent:
    """An event that takes no part, for it has no key. It tells how far a table has come that has nothing to say."""
    return CaseEvent("", "", end, end, {})


def table_of(member: Member, stream: str, rows: Sequence[tuple[Member | None, CaseEvent]]) -> pa.Table:
    """Events of one stream of one case, with a key `k` if it has none."""
    columns = {
        "event": pa.array([event.label for _, event in rows], pa.string()),
        CASE: pa.array([None if owner is None else owner.number for owner, _ in rows], pa.int64()),
        "k": pa.array([1] * len(rows), pa.int64()),
    }
    for name, of_type in types_of([event for event in member.events if event.stream == stream]).items():
        columns[name] = array_of([event.fields.get(name) for _, event in rows], of_type)
    return pa.table(columns)


def without_zone(table: pa.Table) -> pa.Table:
    """The times of a result as the cases have them: of no zone."""
    plain = [pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema([pa.field(name, kind) for name, kind in zip(table.column_names, plain, strict=True)]))


# --- the tests


Groups = dict[tuple[Kind, bool], Group]
"""The groups by kind, and by whether their cases are beyond the sample that `make test` runs."""


@pytest.fixture(scope="module")
def groups(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Groups:
    return {
        (kind, beyond): Group(
            spark,
            tmp_path_factory.mktemp("cases"),
            kind,
            [case for case in ACCEPTED if (kind_of(case), is_beyond_sample(case)) == (kind, beyond)],
        )
        for kind in KINDS
        for beyond in (False, True)
    }


@each(((path, case) for path, case in ALL if not (case.errors or is_apart(case))), is_slow=is_beyond_sample)
def test_stream(case: Case, groups: Groups) -> None:
    if declares_streams(case):
        pytest.skip("a key of this test's own would have to be in the RETURN; see test_streams_of_composites")
    if goes_on(case):
        pytest.skip("the far future, to which all cases are led, would hold moments without end")
    group = groups[kind_of(case), is_beyond_sample(case)]
    found = group.found(case)
    rows = sorted((row, batch) for table, batch in found for row in render_rows(table))
    in_reach = [row for row in case.rows if not row.endswith(" @end")]
    assert [row for row, _ in rows] == sorted(map(without_completion, in_reach))
    if not node_of(case).returns:
        assert rows == sorted(
            (without_completion(row), group.batch_of(at)) for row, at in with_completions(case, in_reach)
        )


def with_completions(case: Case, rows: Sequence[str]) -> list[tuple[str, int]]:
    """Expected rows, each with the time at which it is complete: written behind `@`, or the end of the match."""
    batch = detect(case, case.parsed_events(), case.query)
    ends = dict(zip(render_rows(batch), ticks_of(batch, "end"), strict=True))
    return [(row, parse_time(row.partition(" @")[2]) if " @" in row else ends[row]) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if len(kind.order) < 2], ids=lambda kind: kind.name)
def test_groups_run_in_several_micro_batches(kind: Kind, groups: Groups) -> None:
    group = groups[kind, True]
    group.found(group.members[0].case)
    assert group.ran is not None
    assert len([report for report in group.ran.progress if report["numInputRows"]]) == FILES + 1
    assert len({watermark for watermark in group.ran.watermarks.values() if watermark > 0}) >= 2
    assert group.ran.total("late") == 0
