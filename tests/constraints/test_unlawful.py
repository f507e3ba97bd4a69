"""What breaks constraints does no harm: nothing raises, and batches in order of time give what one batch gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from constraints.running import Bindings, expected, found_by_detect, found_by_steps, problem_of
from constraints.strategies import constraint_sets, modest, plain_queries
from inside import Constraint, Ends, EndsWithin, Pattern, PatternQuery, Seq
from oracle.oracle import OracleEvent
from oracle.tree import negations, part_at, right_neighbour
from strategies.histories import batches, histories
from strategies.patterns import queries

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

partitioned = st.one_of(queries(), plain_queries(composite=True)).map(lambda query: replace(query, partition_by=("k",)))
Cut = list[tuple[list[OracleEvent], int]]


def has_trailing_negation(pattern: Pattern) -> bool:
    """Whether the last word of a match is that something did not come."""
    return any(
        right_neighbour(pattern, path) is None and isinstance(part_at(pattern, path[:-1]), Seq)
        for path in negations(pattern)
    )


def in_order_of_time(history: list[OracleEvent], watermarks: list[int]) -> Cut:
    """Each event comes with the first watermark at or after it; the last batch takes the rest."""
    limits = [*watermarks, 30]
    after = [-1, *watermarks]
    ordered = sorted(history, key=lambda event: (event.e, event.id))
    return [
        ([event for event in ordered if low < event.e <= high], high) for low, high in zip(after, limits, strict=True)
    ]


@modest
@given(
    query=partitioned.filter(lambda query: not has_trailing_negation(query.pattern)),
    constraints=constraint_sets(),
    history=histories(),
    watermarks=st.sets(st.integers(0, 20), max_size=6).map(sorted),
    restoring=st.booleans(),
)
def test_batches_in_order_of_time_give_what_one_batch_gives(
    query: PatternQuery,
    constraints: tuple[Constraint, ...],
    history: list[OracleEvent],
    watermarks: list[int],
    restoring: bool,
) -> None:
    assume(problem_of(query, constraints) is None)
    in_one = found_by_detect(query, constraints, history)
    steps = found_by_steps(query, constraints, in_order_of_time(history, watermarks), restoring)
    assert sum(steps, Bindings()) == in_one
    if not any(isinstance(constraint, Ends | EndsWithin) for constraint in constraints):
        assert in_one <= expected(query, history)


@modest
@given(query=partitioned, constraints=constraint_sets(), history=histories(), data=st.data(), restoring=st.booleans())
def test_nothing_raises(
    query: PatternQuery,
    constraints: tuple[Constraint, ...],
    history: list[OracleEvent],
    data: st.DataObject,
    restoring: bool,
) -> None:
    assume(problem_of(query, constraints) is None)
    found_by_detect(query, constraints, history)
    found_by_steps(query, constraints, data.draw(batches(history)), restoring)
