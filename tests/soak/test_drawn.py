"""20,000 drawn cases: the oracle, one batch, and a `Detector` under random cuts and snapshots agree; 200 also on Spark.

`ENSUE_SOAK_SEED` (a number) draws other cases than the last time.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from case_files import Case, FieldValue, input_of, render_rows
from engine.test_choice import check_batch, check_cut
from harness import is_plannable
from inside import render_query
from oracle.oracle import OracleEvent
from spark.test_cases_stream import KINDS, POINTS, Group, goes_on, kind_of
from strategies.operators import Case as Drawn
from strategies.operators import cases_with_lists, cases_with_operators, cases_with_picks
from strategies.patterns import cases
from strategies.policies import cases_with_policies
from test_cases import new_detector

SEED = int(os.environ.get("ENSUE_SOAK_SEED", "0"))
FAMILIES = (cases, cases_with_operators, cases_with_lists, cases_with_picks, cases_with_policies)
PARTS, EACH, ON_SPARK = 40, 500, 200
FAR = 10**6

pytestmark = pytest.mark.filterwarnings("ignore::ensue.EnsueWarning")


def draws(number: int) -> settings:
    return settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


def any_case(intervals: bool) -> st.SearchStrategy[Drawn]:
    return st.one_of([family(intervals=intervals) for family in FAMILIES])


@pytest.mark.soak("cases")
@pytest.mark.parametrize("part", range(PARTS))
def test_oracle_batch_and_detector_agree(part: int) -> None:
    @seed(SEED + part)
    @draws(EACH)
    @given(data=st.data(), intervals=st.booleans(), restoring=st.booleans())
    def agree(data: st.DataObject, intervals: bool, restoring: bool) -> None:
        case = data.draw(any_case(intervals))
        check_batch(case, intervals)
        if is_plannable(case[0], intervals):
            check_cut(case, data, intervals, restoring)

    agree()


@pytest.mark.soak("cases")
def test_a_stream_of_spark_agrees(spark: SparkSession, tmp_path: Path) -> None:
    found: list[Case] = []

    @seed(SEED)
    @draws(6 * ON_SPARK)
    @given(data=st.data())
    def collect(data: st.DataObject) -> None:
        query, history = data.draw(any_case(False))
        if len(found) < ON_SPARK and history and is_plannable(query, False):
            case = Case(f"drawn {len(found)}", text_of(history), render_query(query), ())
            if kind_of(case) == POINTS and not goes_on(case):
                found.append(case)

    collect()
    assert len(found) == ON_SPARK
    group = Group(spark, tmp_path, next(kind for kind in KINDS if kind == POINTS), found)
    wrong = [case for case in found if rows_of_spark(group, case) != rows_here(case)]
    assert not wrong, "\n\n".join(f"{case.events}\n{case.query}" for case in wrong)


def rows_of_spark(group: Group, case: Case) -> Counter[str]:
    return Counter(row for table, _ in group.found(case) for row in render_rows(table))


def rows_here(case: Case) -> Counter[str]:
    """What is complete in the far future, to which the stream goes on."""
    step = new_detector(case, case.query).advance(input_of(case, case.parsed_events()), watermark=FAR)
    return Counter(render_rows(step.matches))


def text_of(history: list[OracleEvent]) -> str:
    """The events as a case has them; of equal ones each further one has a prime more."""
    seen: Counter[tuple[str, int]] = Counter()
    written = []
    for event in history:
        fields = ", ".join(f"{name}={value(of)}" for name, of in event.fields.items())
        written.append(f"{event.stream}{event.s}{chr(39) * seen[event.stream, event.s]}({fields})")
        seen[event.stream, event.s] += 1
    return "\n".join(written) + "\n"


def value(of: FieldValue) -> str:
    return "null" if of is None else f"'{of}'" if isinstance(of, str) else str(of)
