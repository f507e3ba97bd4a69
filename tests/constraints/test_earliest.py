"""A trace is given up exactly at its first hopeless event; queries are refused exactly when no lawful trace matches."""

from __future__ import annotations

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from constraints.reference import can_match, can_occur, first_hopeless
from constraints.running import new_detector, problem_of
from constraints.strategies import constraint_sets, in_partition, lawful_beginnings, modest, plain_queries
from harness import events_table
from inside import Constraint, PatternQuery

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

untimed = constraint_sets(timed=False)


def failing_point(query: PatternQuery, constraints: tuple[Constraint, ...], trace: list) -> int | None:
    """After how many events a Detector that is fed one at a time has given up the trace."""
    detector = new_detector(query, constraints)
    for length, one in enumerate(trace, start=1):
        detector.advance(events_table([one]), watermark=one.e)
        if detector.report.traces_failed:
            return length
    return None


@modest
@given(query=plain_queries(), constraints=untimed, data=st.data())
def test_a_trace_fails_at_its_first_hopeless_event(
    query: PatternQuery, constraints: tuple[Constraint, ...], data: st.DataObject
) -> None:
    assume(problem_of(query, constraints) is None)
    trace = in_partition(data.draw(lawful_beginnings(constraints)), {"k": 1})
    hopeless = first_hopeless(trace, query, constraints)
    event("hopeless" if hopeless else "goes on")
    assert failing_point(query, constraints, trace) == hopeless


@modest
@given(query=plain_queries(composite=True), constraints=untimed)
def test_refused_exactly_when_no_lawful_trace_matches(query: PatternQuery, constraints: tuple[Constraint, ...]) -> None:
    problem = problem_of(query, constraints)
    named = {stream for constraint in constraints for stream in constraint.streams}
    if any(not can_occur(stream, constraints) for stream in named):
        assert problem is not None
        assert {found.code for found in problem.problems} == {"contradictory-constraints"}
        return
    if can_match(query, constraints):
        assert problem is None
    else:
        assert problem is not None
        assert {found.code for found in problem.problems} == {"never-lawful"}
