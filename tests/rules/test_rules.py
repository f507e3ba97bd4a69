"""Programs of rules, drawn at random: the engine derives what the oracle derives, in one batch and in any cut."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import ensue
from engine.test_batching import in_order_of_arrival
from ensue import QueryError
from harness import FIELD_TYPES, events_table
from inside import Event, Field, PatternQuery, Return, Statements, parse_statements, render_statements
from oracle.conditions import Value
from oracle.model import OracleEvent, OracleMatch
from oracle.rules import Derived, derive, derived_between, first_rule, head_attributes
from own_functions import FUNCTIONS
from strategies.histories import batches
from strategies.rules import RuleCase, rule_cases

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

Rows = Counter[tuple[Value, ...]]


# The engine and the oracle


def tables_of(case: RuleCase) -> dict[str, pa.Table]:
    return {
        name: pa.table({column: pa.array([row[column] for row in rows], FIELD_TYPES[column]) for column in rows[0]})
        for name, rows in case.tables.items()
    }


def settings_of(case: RuleCase, intervals: bool) -> dict[str, Any]:
    return {"time": "time", "type": "type", "end": "until" if intervals else None, "tables": tables_of(case)}


def run(case: RuleCase, intervals: bool) -> ensue.Results:
    """One batch. Rules that can never hold, and those refused because of their rows, are rejected."""
    text = render_statements(case.program)
    try:
        program = ensue.parse(text, functions=FUNCTIONS)
        return ensue.run(events_table(case.history), program, **settings_of(case, intervals))
    except QueryError as error:
        if error.code in ("never-holds", "row-in-while"):
            reject()
        raise


def rows_in(table: pa.Table) -> Rows:
    return Counter(tuple(map(rounded, row.values())) for row in table.to_pylist())


def rows_of_events(events: list[OracleEvent]) -> Rows:
    return Counter((event.s, event.e, *map(rounded, event.fields.values())) for event in events)


def rows_of_matches(matches: list[OracleMatch]) -> Rows:
    return Counter(tuple(map(rounded, match.columns.values())) for match in matches)


def rounded(value: Value) -> Value:
    """An average may differ in the last digit."""
    return round(value, 9) if isinstance(value, float) else value


def check_batch(case: RuleCase, intervals: bool) -> None:
    found = run(case, intervals)
    for head, events in case.derived.heads.items():
        assert rows_in(found[head]) == rows_of_events(events), head
        times = list(zip(found[head]["end"].to_pylist(), found[head]["start"].to_pylist(), strict=True))
        assert times == sorted(times)
    for query, matches in zip(case.program.results, case.derived.patterns, strict=True):
        assert rows_in(found[query.name]) == rows_of_matches(matches)


@given(case=rule_cases() | rule_cases(functions=True) | rule_cases(policies=True))
def test_text_reads_back(case: RuleCase) -> None:
    functions = {function.name: function for function in FUNCTIONS}
    assert parse_statements(render_statements(case.program), functions=functions) == case.program


@given(case=rule_cases())
def test_batch_of_points(case: RuleCase) -> None:
    check_batch(case, intervals=False)


@given(case=rule_cases(intervals=True))
def test_batch_of_intervals(case: RuleCase) -> None:
    check_batch(case, intervals=True)


# Cuts


def asking_for(program: Statements, head: str) -> Statements:
    """The program with one pattern, whose matches are the events of a head."""
    attributes = head_attributes(first_rule(program.ruleset, head))
    columns = [("start", "s"), ("end", "e"), *((f"its {name}", name) for name in attributes)]
    returns = tuple(Return(Field("v", name), alias) for alias, name in columns)
    query = PatternQuery(Event(head, "v"), "wanted", returns=returns)
    return replace(program, statements=(*program.declared, query))


def check_cut(case: RuleCase, data: st.DataObject, intervals: bool) -> None:
    """Every step gives the events that end in it, with or without a restart after each."""
    cut = in_order_of_arrival(data.draw(batches(case.history)))
    history = [event for events, _ in cut for event in events]
    derived: Derived = derive(case.program, history, case.tables)
    head = data.draw(st.sampled_from(sorted(derived.heads)))
    restoring = data.draw(st.booleans())
    run(case, intervals)
    program = ensue.parse(render_statements(asking_for(case.program, head)), functions=FUNCTIONS)

    def new_detector() -> ensue.Detector:
        return ensue.Detector(program, **settings_of(case, intervals))

    detector, after = new_detector(), -math.inf
    for events, watermark in cut:
        step = detector.advance(events_table(events), watermark=watermark)
        assert rows_in(step.matches) == rows_of_events(derived_between(derived, head, after, watermark))
        assert step.late.num_rows == 0
        after = watermark
        if restoring:
            saved, detector = detector.snapshot(), new_detector()
            detector.restore(saved)
    last = detector.finish(events_table([]))
    assert rows_in(last.matches) == rows_of_events(derived_between(derived, head, after, math.inf))


@given(case=rule_cases(), data=st.data())
def test_any_cut_of_all_results_in_one_detector(case: RuleCase, data: st.DataObject) -> None:
    """A detector of a program with several results gives what `run` gives, step by step."""
    cut = in_order_of_arrival(data.draw(batches(case.history)))
    whole = run(replace(case, history=[event for events, _ in cut for event in events]), intervals=False)
    # With two more patterns, there are several results.
    text = [render_statements(case.program), "PATTERN also (A a); PATTERN too (A a)"]
    settings = settings_of(case, intervals=False)
    detector = ensue.Detector(text, **settings)
    found: dict[str, Rows] = {name: Counter() for name in whole}
    for events, watermark in (*cut, ([], None)):
        step = detector.finish() if watermark is None else detector.advance(events_table(events), watermark=watermark)
        for name in whole:
            found[name] += rows_in(step.matches[name])
        saved, detector = detector.snapshot(), ensue.Detector(text, **settings)
        detector.restore(saved)
    assert found == {name: rows_in(table) for name, table in whole.items()}


@given(case=rule_cases(), data=st.data())
def test_any_cut_of_points(case: RuleCase, data: st.DataObject) -> None:
    check_cut(case, data, intervals=False)


@given(case=rule_cases(intervals=True), data=st.data())
def test_any_cut_of_intervals(case: RuleCase, data: st.DataObject) -> None:
    check_cut(case, data, intervals=True)


# Functions of the user


@given(case=st.booleans().flatmap(lambda intervals: rule_cases(intervals=intervals, functions=True)))
def test_functions_in_a_batch(case: RuleCase) -> None:
    check_batch(case, intervals=True)


@given(case=rule_cases(functions=True), data=st.data())
def test_functions_in_any_cut(case: RuleCase, data: st.DataObject) -> None:
    check_cut(case, data, intervals=False)


# MATCH and CONSUME


@given(case=st.booleans().flatmap(lambda intervals: rule_cases(intervals=intervals, policies=True)))
def test_policies_in_a_batch(case: RuleCase) -> None:
    check_batch(case, intervals=True)


@given(case=rule_cases(policies=True), data=st.data())
def test_policies_in_any_cut(case: RuleCase, data: st.DataObject) -> None:
    check_cut(case, data, intervals=False)
