"""A trace is dropped exactly when no completion of it satisfies the pattern and all constraints."""

from __future__ import annotations

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import ensue
from constraints.completions import STREAMS, Pattern, can_be_lawful, is_hopeful, is_hopeless_by_occurrence
from constraints.strategies import constraint_sets, modest
from harness import events_table
from inside import Constraint, Ends, Prior, Require, render_constraint
from oracle.oracle import OracleEvent

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

PATTERNS = (
    Pattern("SEQ(A a, B b)", "AB", "AB"),
    Pattern("AND(A a, B b)", "AB"),
    Pattern("SEQ(A a, B b, C c)", "ABC", "AB AC BC"),
    Pattern("SEQ(AND(A a, B b), C c)", "ABC", "AC BC"),
    Pattern("AND(SEQ(A a, B b), C c)", "ABC", "AB"),
    Pattern("AND(A a, B b, C c)", "ABC"),
)


def new_detector(pattern: Pattern, constraints: tuple[Constraint, ...]) -> ensue.Detector:
    stated = "".join(f"CONSTRAINT {render_constraint(constraint)};\n" for constraint in constraints)
    return ensue.Detector(f"{stated}PATTERN {pattern.text} PARTITION BY k", time="time", type="type")


def problem_of(pattern: Pattern, constraints: tuple[Constraint, ...]) -> str | None:
    """The code with which the engine refuses the pattern and the constraints."""
    try:
        new_detector(pattern, constraints).advance(events_table([]), watermark=0)
    except ensue.QueryError as error:
        return error.code
    return None


def failing_point(pattern: Pattern, constraints: tuple[Constraint, ...], trace: list[str]) -> int:
    """After how many events a Detector has dropped the trace; one more than it has if never."""
    detector = new_detector(pattern, constraints)
    for number, stream in enumerate(trace, start=1):
        one = OracleEvent(number, stream, number, number, {"k": 1})
        detector.advance(events_table([one]), watermark=number)
        if detector.report.traces_failed:
            return number
    return len(trace) + 1


def up_to_its_end(trace: list[str], constraints: tuple[Constraint, ...]) -> list[str]:
    ending = {stream for constraint in constraints if isinstance(constraint, Ends) for stream in constraint.streams}
    return next((trace[:place] for place, one in enumerate(trace, start=1) if one in ending), trace)


@modest
@given(
    pattern=st.sampled_from(PATTERNS),
    constraints=constraint_sets(STREAMS, timed=False),
    drawn=st.lists(st.sampled_from(STREAMS), min_size=1, max_size=5),
)
def test_no_trace_is_dropped_that_a_completion_can_save(
    pattern: Pattern, constraints: tuple[Constraint, ...], drawn: list[str]
) -> None:
    trace = up_to_its_end(drawn, constraints)
    refused = problem_of(pattern, constraints)
    if refused is not None:
        assert refused == "contradictory-constraints" or not is_hopeful([], pattern, constraints)
        return
    dropped = failing_point(pattern, constraints, trace)
    for length in range(1, len(trace) + 1):
        begun = trace[:length]
        if is_hopeful(begun, pattern, constraints):
            event("hopeful")
            assert dropped > length, f"dropped at {dropped}"
        elif can_be_lawful(begun, constraints):
            event("hopeless, and lawful so far")
            assert dropped <= length
        elif is_hopeless_by_occurrence(begun, pattern, constraints):
            event("hopeless, and unlawful")
            assert dropped <= length


@pytest.mark.parametrize(
    ("constraints", "trace", "dropped"),
    [
        ("REQUIRE(A, N); PRIOR(N, B)", "AB", 2),
        ("REQUIRE(A, N); PRIOR(N, B)", "B", 1),
        ("REQUIRE(A, N); PRIOR(N, B)", "NAB", 4),
        ("REQUIRE(C, N); PRIOR(N, B)", "AB", 2),
        ("REQUIRE(A, X); REQUIRE(X, N); PRIOR(N, B)", "AB", 2),
        ("EXCLUSIVE(A, X)", "AX", 2),
        ("A AND X IMPLIES NOT N", "AXN", 3),
        ("PRIOR(A, N)", "ANA", 4),
        ("REQUIRE(B, N); PRIOR(N, B)", "AB", 3),
    ],
)
def test_what_is_known_of_the_whole_trace_counts_whatever_is_bound(constraints: str, trace: str, dropped: int) -> None:
    """The last two are unlawful, but not by what a lawful trace could have seen: they are not watched for."""
    program = (
        f"{''.join(f'CONSTRAINT {one};' for one in constraints.split('; '))} PATTERN SEQ(A a, B b, C c) PARTITION BY k"
    )
    detector = ensue.Detector(program, time="time", type="type")
    points = []
    for number, stream in enumerate(trace, start=1):
        one = OracleEvent(number, stream, number, number, {"k": 1})
        detector.advance(events_table([one]), watermark=number)
        points.append(detector.report.traces_failed)
    assert (points.index(1) + 1 if 1 in points else len(trace) + 1) == dropped


about_later_events = st.one_of(
    st.sampled_from(("A", "B", "C")).flatmap(lambda one: st.sampled_from("NX").map(lambda other: Prior(one, other))),
    st.permutations(STREAMS).map(lambda order: Prior(order[0], order[1])),
    st.permutations(STREAMS).map(lambda order: Require(order[0], order[1])),
)
"""Constraints under which it matters what has come."""


@modest
@given(
    pattern=st.sampled_from(PATTERNS),
    constraints=st.lists(about_later_events, min_size=1, max_size=4, unique=True).map(tuple),
    trace=st.lists(st.sampled_from(STREAMS), min_size=1, max_size=5),
    most=st.integers(1, 3),
)
def test_no_trace_is_dropped_wrongly_where_few_steps_are_followed(
    pattern: Pattern, constraints: tuple[Constraint, ...], trace: list[str], most: int
) -> None:
    assume(problem_of(pattern, constraints) is None)
    exactly = failing_point(pattern, constraints, trace)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ensue.plan.monitors.MOST_STEPS", most)
        loosely = failing_point(pattern, constraints, trace)
    event("later" if loosely > exactly else "as early")
    assert loosely >= exactly
