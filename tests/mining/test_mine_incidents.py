"""What the incidents of the BPI Challenge 2013 obey, in this process and on Spark."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ensue
from inside import Prior, Require
from mining.logs import Trace, is_lawful
from test_incidents import REOPENED, histories, log, needs_incidents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_incidents

COLUMNS = {"time": "time", "type": "step", "partition_by": "case"}


@cache
def steps() -> pa.Table:
    """The log with activity and status as one stream: Accepted/In Progress, Completed/Closed, ..."""
    table = log()
    return table.append_column("step", pc.binary_join_element_wise(table["activity"], table["status"], "/"))


@cache
def traces() -> list[Trace]:
    return [
        [(f"{change.activity}/{change.status}", int(change.time.timestamp() * 1000)) for change in history]
        for history in histories().values()
    ]


def test_constraints_that_hold_in_all_incidents() -> None:
    proposal = ensue.process.mine(steps(), **COLUMNS)
    assert Counter(row.kind for row in proposal) == {"EXCLUSIVE": 14, "REQUIRE": 11, "PRIOR": 10, "ENDS": 1}
    for row in proposal:
        assert all(is_lawful(row.constraint, trace) for trace in traces())


def test_activities_hardly_constrain() -> None:
    proposal = ensue.process.mine(log(), time="time", type="activity", partition_by="case")
    assert [row.kind for row in proposal] == ["PRIOR", "REQUIRE", "REQUIRE"]
    nearly = ensue.process.mine(log(), time="time", type="activity", partition_by="case", share=0.95, support=100)
    assert Require("Completed", "Accepted") in {row.constraint for row in nearly}


def test_constraints_of_a_share() -> None:
    """As many as a plain count says: closed incidents are opened again."""
    proposal = ensue.process.mine(steps(), **COLUMNS, share=0.9, support=1000, kinds="prior")
    both = [trace for trace in traces() if {"Completed/Resolved", "Completed/Closed"} <= {step for step, _ in trace}]
    (found,) = [row for row in proposal if row.constraint == Prior("Completed/Resolved", "Completed/Closed")]
    assert (found.support, found.holds) == (len(both), sum(is_lawful(found.constraint, trace) for trace in both))


def test_matches_stay_the_same() -> None:
    mined = ensue.process.mine(log(), time="time", type="activity", partition_by="case")
    found = ensue.detect(log(), REOPENED, time="time", type="activity", constraints=mined)
    assert found.num_rows == 769


@pytest.mark.slow
def test_same_on_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame(steps())
    assert ensue.process.mine(frame, **COLUMNS, share=0.01) == ensue.process.mine(steps(), **COLUMNS, share=0.01)
