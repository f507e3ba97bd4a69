"""The operators of sections 6 and 7 on Spark, in batch: the same answer as in this process, also over time slices."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import ensue
from case_files import Case, input_of, render_rows
from inside import Columns, TimeSlices, parse_statements, plan_queries, slices, slicing_of
from spark.operators import OPERATOR_CASES
from spark.test_cases_batch import SETTINGS, Found, frame_of, settings
from test_cases import columns_of, detect

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")


def slicing(case: Case) -> TimeSlices | None:
    columns = Columns(**columns_of(case))
    return slicing_of(plan_queries(input_of(case, []), parse_statements(case.query), columns).plans)


SLICED = [case for case in OPERATOR_CASES if slicing(case) is not None]


@pytest.fixture(scope="module", autouse=True)
def _small_jobs(spark: SparkSession) -> Iterator[None]:
    with settings(spark, SETTINGS):
        yield


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    return Found(spark, OPERATOR_CASES, seed=3)


@pytest.fixture(scope="module")
def cut(spark: SparkSession) -> Iterator[Found]:
    """As many slices as there can be, in several tasks."""
    with pytest.MonkeyPatch.context() as patch, settings(spark, {"spark.sql.shuffle.partitions": "3"}):
        patch.setattr(slices, "OVERLAPS_PER_SLICE", 1)
        yield Found(spark, SLICED, seed=5)


@pytest.mark.parametrize("case", OPERATOR_CASES, ids=lambda case: case.title)
def test_same_as_in_this_process(case: Case, found: Found) -> None:
    here = detect(case, case.parsed_events(), case.query)
    assert here.num_rows > 0
    assert sorted(render_rows(found[case][""])) == sorted(render_rows(here))
    assert found[case][""].schema == here.schema


@pytest.mark.slow
@pytest.mark.parametrize("case", SLICED, ids=lambda case: case.title)
def test_over_many_slices(case: Case, cut: Found) -> None:
    here = detect(case, case.parsed_events(), case.query)
    assert sorted(render_rows(cut[case][""])) == sorted(render_rows(here))


def test_slices_are_where_the_bounds_allow_them() -> None:
    titles = {case.title for case in SLICED}
    assert {"FOLLOWS", "NOTFOLLOWS of NOTFOLLOWS", "PERIODIC in a window", "LAST waits", "MATCH NEXT"} <= titles
    assert not {"MATCH STRICT", "CONSUME", "NEXT", "PERIODIC*", "MATCH NEXT with a condition"} & titles


# --- moments that only the last event of all ends

GOES_ON = "PATTERN PERIODIC(A a, 5, C c) AS p PARTITION BY k RETURN a.k AS k, p.e AS at"
EVENTS = pa.table({"type": ["A", "A", "C", "Z"], "k": [1, 2, 2, None], "time": [1, 2, 8, 18]})
MOMENTS = [{"k": 1, "at": 6}, {"k": 1, "at": 11}, {"k": 1, "at": 16}, {"k": 2, "at": 7}]


def rows_of(found: DataFrame) -> list[dict[str, object]]:
    return found.orderBy("k", "at").toArrow().to_pylist()


def test_moments_go_on_to_the_last_event_whatever_its_key_and_stream(spark: SparkSession) -> None:
    assert ensue.detect(EVENTS, GOES_ON, time="time", type="type").sort_by([("k", "ascending")]).to_pylist() == MOMENTS
    found = ensue.detect(frame_of(spark, EVENTS), GOES_ON, time="time", type="type")
    assert rows_of(found) == MOMENTS


def test_moments_go_on_to_the_last_event_of_all_tables(spark: SparkSession) -> None:
    kinds = EVENTS.column("type")
    parts = {name: EVENTS.filter(pc.equal(kinds, name)).drop_columns("type") for name in ("A", "C", "Z")}
    found = ensue.detect({name: frame_of(spark, part) for name, part in parts.items()}, GOES_ON, time="time")
    assert rows_of(found) == MOMENTS


# --- streams of any events


def test_any_event_needs_a_type_column(spark: SparkSession) -> None:
    frames = {"A": frame_of(spark, EVENTS), "B": frame_of(spark, EVENTS)}
    with pytest.raises(ensue.QueryError) as refusal:
        ensue.detect(frames, "PATTERN SEQ(A a, ANY EVENT v)", time="time")
    assert [problem.code for problem in refusal.value.problems] == ["any-event-tables"]


def test_ids_of_any_events_are_the_same(spark: SparkSession) -> None:
    """Events of several streams are told apart, so that it does not matter which of them came first."""
    table = pa.table({"type": ["B", "A", "A"], "time": [1, 1, 1]})
    query = "PATTERN AND(A a, ANY EVENT v) WITHIN 3 RETURN a.t AS t, v.type AS other"
    frame = frame_of(spark, table.take(pa.array([2, 0, 1])))
    there = ensue.detect(frame, query, time="time", type="type", match_id=True).toArrow().to_pylist()
    here = ensue.detect(table, query, time="time", type="type", match_id=True).to_pylist()
    assert len({row["match_id"] for row in here}) == len(here) == 4
    assert sorted(map(str, here)) == sorted(map(str, there))
