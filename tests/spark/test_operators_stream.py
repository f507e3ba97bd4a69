"""The operators of sections 6 and 7 on streams of Spark: the same answer as in this process, and in time.

A key that has had its only event is woken when the watermark passes a moment of the pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from case_files import Case, render_rows, ticks_of
from inside import (
    BucketTask,
    Clock,
    Columns,
    Options,
    empty_tables,
    frame_inputs,
    is_endless,
    look_at,
    missing_events,
    packed,
    parse_statements,
    plan_queries,
    plan_stream,
    render_query,
)
from spark.operators import OPERATOR_CASES
from spark.streams import SECOND, START, feed_of, instants, matches_in, run_to_end
from spark.test_cases_stream import KINDS, Group, Kind, kind_of
from test_cases import detect, node_of

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

SHOWN = {"LAST waits", "collection at the end"}
"""Cases that complete after the end that they show."""

NAMES = ("silent", "ticking")


# --- many cases as few streams


@pytest.fixture(scope="module")
def groups(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Group]:
    cases = {kind: [case for case in OPERATOR_CASES if kind_of(case) == kind] for kind in KINDS}
    return {
        kind: Group(spark, tmp_path_factory.mktemp("operators"), kind, members)
        for kind, members in cases.items()
        if members
    }


@pytest.mark.parametrize("case", OPERATOR_CASES, ids=lambda case: case.title)
def test_same_as_in_this_process(case: Case, groups: dict[Kind, Group]) -> None:
    group = groups[kind_of(case)]
    found = group.found(case)
    here = detect(case, case.parsed_events(), case.query)
    assert sorted(row for table, _ in found for row in render_rows(table)) == sorted(render_rows(here))
    if "end" in here.column_names and case.title not in SHOWN:
        given = [(end, batch) for table, batch in found for end in ticks_of(table, "end")]
        assert given
        assert all(batch == group.batch_of(end) for end, batch in given)


# --- waking a bucket


def task_of(query: str) -> BucketTask:
    columns = {"type": pa.string(), "k": pa.int64(), "t": pa.int64(), "x": pa.int64()}
    empty = pa.schema(columns.items()).empty_table()
    planned = plan_queries(empty, parse_statements(query), Columns("t", "type"))
    schemas = tuple(output.schema for output in planned.outputs)
    return BucketTask(planned.inputs, planned.plans, planned.outputs, schemas, Clock(SECOND * 1000), Options())


def payload(rows: Sequence[tuple[str, int]]) -> list[tuple[int, bytes]]:
    columns = {"type": [name for name, _ in rows], "k": [1] * len(rows), "t": [time for _, time in rows]}
    travelling = pa.table({**columns, "x": [5] * len(rows)})
    return [(0, data) for _, data in packed(travelling)]


def woken(query: str, rows: Sequence[tuple[str, int]], last: int) -> list[tuple[int, int]]:
    """When a bucket with these rows is woken, nothing more coming, and how many matches it gives then."""
    task = task_of(query)
    step = task.step(None, payload(rows), min(time for _, time in rows) * 1000 - 1)
    times = []
    while step.wake is not None and step.wake <= last * 1000:
        at = step.wake
        assert not times or at > times[-1][0] * 1000
        step = task.step(step.state, [], at)
        times.append((at // 1000, sum(output.rows for output in step.outputs)))
    return times


def test_notfollows_fires_when_its_time_has_passed() -> None:
    assert woken("PATTERN NOTFOLLOWS(A a, B b, 10) PARTITION BY k", [("A", 5)], 99) == [(5, 0), (15, 1)]


def test_a_chain_of_moments_is_their_sum() -> None:
    query = "PATTERN NOTFOLLOWS(NOTFOLLOWS(A a, B b, 10), C c, 7) PARTITION BY k"
    assert woken(query, [("A", 5)], 99) == [(5, 0), (22, 1)]


def test_periodic_wakes_at_each_moment() -> None:
    query = "PATTERN PERIODIC(A a, 10) PARTITION BY k WITHIN 25"
    assert woken(query, [("A", 5)], 99)[:3] == [(5, 0), (15, 1), (25, 1)]
    assert sum(matches for _, matches in woken(query, [("A", 5)], 99)) == 2


def test_periodic_goes_on_with_the_watermark() -> None:
    query = "PATTERN PERIODIC(A a, 10, C c) PARTITION BY k"
    assert is_endless(task_of(query).plans[0])
    assert woken(query, [("A", 5)], 50) == [(5, 0), (15, 1), (25, 1), (35, 1), (45, 1)]


def test_periodic_of_periodic_misses_no_moment() -> None:
    query = "PATTERN PERIODIC(PERIODIC(A a, 6), 4) PARTITION BY k WITHIN 20"
    given = [at for at, matches in woken(query, [("A", 5)], 99) for _ in range(matches)]
    assert given == sorted(5 + 6 * i + 4 * j for i in range(1, 4) for j in range(1, 5) if 6 * i + 4 * j <= 20)


def test_events_of_other_streams_do_not_wake_for_moments() -> None:
    query = "PATTERN PERIODIC(A a, 10, C c) PARTITION BY k"
    assert woken(query, [("C", 5)], 99) == [(5, 0)]


# --- states and upgrades


OF_POINTS = [case for case in OPERATOR_CASES if not case.has_intervals]


def keyed(case: Case) -> str:
    return render_query(replace(node_of(case), partition_by=("k",)))


@pytest.mark.parametrize("case", OF_POINTS, ids=lambda case: case.title)
def test_what_is_kept_can_be_looked_at(case: Case) -> None:
    task = task_of(keyed(case))
    events = [(event.stream, event.start) for event in case.parsed_events()]
    step = task.step(None, payload(events), 1000)
    assert step.state is not None
    look = look_at(step.state, {})
    (row,) = look.rows(0, step.state).to_pylist()
    assert dict(row["key"]) == {"k": "1"}
    assert row["events"] > 0


@pytest.mark.parametrize("case", OF_POINTS, ids=lambda case: case.title)
def test_a_query_can_go_on_from_itself(case: Case) -> None:
    plans = task_of(keyed(case)).plans
    assert missing_events(plans, plans) == []


def test_any_event_keeps_what_one_stream_needs() -> None:
    wide = task_of("PATTERN SEQ(ANY EVENT BUT (C) v, C c) PARTITION BY k WITHIN 9").plans
    narrow = task_of("PATTERN SEQ(A a, C c) PARTITION BY k WITHIN 9").plans
    assert missing_events(wide, narrow) == []
    assert missing_events(narrow, wide) == ["events of `ANY EVENT BUT (C)`, which the old query did not keep"]


# --- a key of which nothing more comes


def test_an_idle_key_fires_by_time(spark: SparkSession, tmp_path: Path) -> None:
    """Key 1 has one event. What other keys send moves the watermark, and each match comes as soon as it passes."""
    parts = [[(1, "A", 1), (2, "X", 1)], [(2, "X", 4)], [(2, "X", 9)], [(2, "X", 23)], [(2, "X", 24)]]
    tables = [
        pa.table(
            {
                "k": [key for key, _, _ in rows],
                "type": [name for _, name, _ in rows],
                "time": instants([START + time * SECOND for _, _, time in rows]),
            }
        )
        for rows in parts
    ]
    query = """
        PATTERN silent NOTFOLLOWS(A a, B b, 5 seconds) PARTITION BY k;
        PATTERN ticking PERIODIC(A a, 10 seconds, C c) AS p PARTITION BY k
    """
    frame = feed_of(tmp_path / "feed", tables).stream(spark, "time")
    planned = plan_queries(empty_tables(frame), parse_statements(query), Columns("time", "type"))
    inputs = frame_inputs(frame, planned.inputs)
    plan = plan_stream(inputs, planned.plans, planned.outputs, Options(), ("k",), buckets=64)
    ran = run_to_end(plan.found(), tmp_path / "checkpoint")
    given = [
        (name, match["k"], int(match["end"].timestamp()) - START // SECOND, batch)
        for batch, table in ran.batches.items()
        for number, name in enumerate(NAMES)
        for matches in matches_in(table, plan.task, number)
        for match in matches.to_pylist()
    ]
    assert sorted(given) == [("silent", 1, 6, 3), ("ticking", 1, 11, 4), ("ticking", 1, 21, 4)]
