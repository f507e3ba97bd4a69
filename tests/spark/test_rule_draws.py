"""A few drawn programs of rules on Spark: with derived tables, absent rows, and heads without arguments."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

import ensue
from harness import events_table
from inside import Absent, render_statements
from rules.test_rules import rows_in, rows_of_events, run, settings_of
from spark.test_cases_batch import frame_of
from strategies.rules import RuleCase, rule_cases

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")]

FORMS = ("derived table", "absent", "no arguments")


def forms_of(case: RuleCase) -> set[str]:
    """Which of the forms a program has in rules that derive events."""
    ruleset = case.program.ruleset
    items = [item for rule in ruleset.event_rules for item in rule.body]
    tables = {getattr(item, "stream", None) for item in items} & ruleset.derived_tables
    absent = any(isinstance(item, Absent) for item in items)
    bare = any(not rule.arguments for rule in ruleset.event_rules)
    return {form for form, there in zip(FORMS, (tables, absent, bare), strict=True) if there}


def draws() -> list[RuleCase]:
    """For each form, two programs that derive events of every head."""
    found: list[RuleCase] = []

    @settings(max_examples=1500, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])
    @given(rule_cases())
    def draw(case: RuleCase) -> None:
        forms = [form for known in found for form in forms_of(known)]
        if all(case.derived.heads.values()) and any(forms.count(form) < 2 for form in forms_of(case)):
            run(case, intervals=False)  # rejects a program that is refused
            found.append(case)

    draw()
    return found


def test_drawn_programs(spark: SparkSession) -> None:
    tested: set[str] = set()
    for case in draws():
        text, frame = render_statements(case.program), frame_of(spark, events_table(case.history))
        found = ensue.run(frame, text, **settings_of(case, intervals=False))
        for head, events in case.derived.heads.items():
            assert rows_in(found[head].toArrow()) == rows_of_events(events), text
        tested |= forms_of(case)
        found.release()
    assert tested == {*FORMS}
