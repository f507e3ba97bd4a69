"""The strategy of rules draws what it promises: programs that derive something, and every form of the language."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inside import (
    RELATIONS,
    TIMERS,
    Absent,
    Alternatives,
    Atom,
    Causes,
    Condition,
    Temporal,
    TimerItem,
    Together,
    While,
    all_items,
)
from strategies.rules import RuleCase, rule_cases

pytestmark = pytest.mark.slow

FORMS = {
    "not",
    "collect",
    "table",
    "derived table",
    "absent",
    "fact",
    "recursion",
    "alternatives",
    "or",
    "causes",
    "within",
    "condition",
    "stream",
    "pattern",
}


def forms_of(case: RuleCase) -> set[str]:
    """Which forms of the language a program has."""
    rules = case.program.ruleset
    found = {query.name and ("stream" if query.declares else "pattern") for query in case.program.statements}
    found |= {"fact"} if rules.facts else set()
    found |= {"alternatives"} if len(rules.rules) > len(rules.heads) else set()
    for rule in rules.rules:
        found |= {"or"} if any(isinstance(item, Alternatives) for item in rule.body) else set()
        for item in all_items(rule.body):
            match item:
                case Atom() if item.stream == rule.head:
                    found.add("recursion")
                case Atom() if item.stream in case.tables:
                    found.add("table")
                case Atom() if item.stream in rules.derived_tables:
                    found.add("derived table")
                case Absent():
                    found.add("absent")
                case While():
                    found.add("collect" if item.collects else "not")
                case Temporal():
                    found.add(item.relation)
                case TimerItem():
                    found.add(item.kind)
                case Together():
                    found.add("within")
                case Condition():
                    found.add("condition")
                case Causes():
                    found.add("causes")
    return found


def test_programs_derive_something_and_have_every_form() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=1200, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])
    @given(st.booleans().flatmap(lambda intervals: rule_cases(intervals=intervals)))
    def count(case: RuleCase) -> None:
        seen["drawn"] += 1
        if any(case.derived.heads.values()):
            seen["deriving"] += 1
            seen.update(forms_of(case))

    count()
    assert seen["deriving"] >= 0.4 * seen["drawn"]
    assert set(seen) >= FORMS | RELATIONS | TIMERS
