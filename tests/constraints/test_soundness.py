"""Constraints change no match of a lawful trace: in one batch, in any cut into batches, after snapshot and restore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from constraints.reference import Trace, can_match, can_occur
from constraints.running import Bindings, expected, found_by_detect, found_by_steps, problem_of
from constraints.strategies import (
    OTHER,
    constraint_sets,
    in_partition,
    in_succession,
    lawful_traces,
    mixed,
    modest,
    plain_queries,
    without_repetition,
)
from ensue.process import Workflow
from inside import Constraint, Ends, EndsWithin, Event, PatternQuery, Ticks, counts_events
from oracle.oracle import OracleEvent
from oracle.tree import walk
from strategies.histories import batches, records
from strategies.patterns import queries
from workflow.strategies import workflows

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

partitioned = st.tuples(queries(), st.sampled_from((("k",), ("k",), ("k", "g")))).map(
    lambda drawn: replace(drawn[0], partition_by=drawn[1])
)
any_queries = st.one_of(partitioned, partitioned, plain_queries(composite=True))


def streams_of(query: PatternQuery) -> tuple[str, ...]:
    """The streams of the pattern, and one that it does not name."""
    return (*sorted({part.stream for _, part in walk(query.pattern) if isinstance(part, Event)}), OTHER)


def is_taken(query: PatternQuery, constraints: Sequence[Constraint]) -> bool:
    """Whether the engine takes the query; if not, what it says against it has to be true."""
    problem = problem_of(query, constraints)
    if problem is None:
        return True
    codes = {found.code for found in problem.problems}
    event(f"refused: {min(codes)}")
    if codes == {"never-lawful"}:
        assert not can_match(query, constraints)
    elif codes == {"contradictory-constraints"}:
        named = {stream for constraint in constraints for stream in constraint.streams}
        assert not all(can_occur(stream, constraints) for stream in named)
    else:
        assert problem_of(query, ()) is not None
    return False


@st.composite
def lawful_histories(draw: st.DrawFn, query: PatternQuery, constraints: Sequence[Constraint]) -> list[OracleEvent]:
    """One to three lawful traces, mixed, and now and then an event that has no key."""
    traces: list[Trace] = []
    for number in range(draw(st.integers(1, 3))):
        keys = {"k": number // 2 + 1, "g": number % 2 + 1} if "g" in query.partition_by else {"k": number + 1}
        traces.append(in_partition(draw(lawful_traces(constraints, streams_of(query))), keys))
    if draw(st.integers(0, 9)) == 9:
        traces.append(in_partition(draw(lawful_traces((), most=1)), {"k": None}))
    return draw(mixed(traces))


@modest
@given(query=any_queries, constraints=constraint_sets(), data=st.data())
def test_in_one_batch(query: PatternQuery, constraints: tuple[Constraint, ...], data: st.DataObject) -> None:
    assume(is_taken(query, constraints))
    history = data.draw(lawful_histories(query, constraints))
    found = found_by_detect(query, constraints, history)
    event("matches" if found else "no match")
    assert found == found_by_detect(query, (), history) == expected(query, history)


@modest
@given(query=any_queries, constraints=constraint_sets(), data=st.data(), restoring=st.booleans())
def test_in_any_cut(
    query: PatternQuery, constraints: tuple[Constraint, ...], data: st.DataObject, restoring: bool
) -> None:
    assume(is_taken(query, constraints))
    history = data.draw(lawful_histories(query, constraints))
    cut = data.draw(batches(history))
    assert found_by_steps(query, constraints, cut, restoring) == expected_by_steps(query, history, cut)


def expected_by_steps(query: PatternQuery, history: Trace, cut: Sequence[tuple[Trace, int]]) -> list[Bindings]:
    watermarks = [float("-inf"), *(watermark for _, watermark in cut), float("inf")]
    return [expected(query, history, after, until) for after, until in pairwise(watermarks)]


ending = st.one_of(
    st.permutations(("A", "B", "C", "D", "E")).map(lambda order: Ends(tuple(order[:2]))),
    st.sampled_from((3, 5, 8)).map(lambda ticks: EndsWithin(Ticks(ticks))),
)


@modest
@given(query=partitioned, constraints=constraint_sets(most=3), end=ending, data=st.data(), restoring=st.booleans())
def test_traces_that_follow_each_other_under_one_key(
    query: PatternQuery, constraints: tuple[Constraint, ...], end: Constraint, data: st.DataObject, restoring: bool
) -> None:
    """They match as if each had a key of its own."""
    constraints = without_repetition((*constraints, end))
    query = replace(query, partition_by=("k",))
    assume(is_taken(query, constraints))
    # Windows that count events do not tell traces apart, and a trace begins with an event that the query reads.
    if counts_events(query):
        return
    read = set(streams_of(query)) - {OTHER}
    drawn = data.draw(in_succession(constraints, 3, streams_of(query)))
    traces = [trace for trace in drawn if trace[0].stream in read]
    event(f"{len(traces)} traces")
    apart = data.draw(mixed([in_partition(trace, {"k": 1, "y": number}) for number, trace in enumerate(traces)]))
    alone = Counter(
        match
        for number in range(len(traces))
        for match in expected(query, [one for one in apart if one.fields["y"] == number]).elements()
    )
    assert found_by_detect(query, constraints, apart) == alone
    steps = found_by_steps(query, constraints, data.draw(batches(apart)), restoring)
    assert sum(steps, Counter()) == alone


@modest
@given(
    query=partitioned,
    model=workflows(max_tasks=6, names=("A", "B", "C", "D", "E")),
    source=st.randoms(use_true_random=False),
    data=st.data(),
    restoring=st.booleans(),
)
def test_traces_of_workflows(
    query: PatternQuery, model: Workflow, source: Random, data: st.DataObject, restoring: bool
) -> None:
    query, constraints = replace(query, partition_by=("k",)), model.constraints()
    assume(problem_of(query, constraints) is None)
    traces = [
        in_partition(
            [
                OracleEvent(0, task, time, time, data.draw(records()))
                for time, task in enumerate(model.sample(source, 6))
            ],
            {"k": key},
        )
        for key in (1, 2, 3)
    ]
    history = data.draw(mixed(traces))
    assert found_by_detect(query, constraints, history) == expected(query, history)
    cut = data.draw(batches(history))
    assert found_by_steps(query, constraints, cut, restoring) == expected_by_steps(query, history, cut)
