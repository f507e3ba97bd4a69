"""Constraints change no match of operators, lists, FIRST and LAST, and of policies, in lawful traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints.running import found_by_detect, found_by_steps, problem_of
from constraints.strategies import constraint_sets, in_partition, lawful_traces, mixed, modest
from inside import PatternQuery
from strategies.histories import batches
from strategies.operators import queries_with_lists, queries_with_operators, queries_with_picks
from strategies.policies import queries_with_sequences

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

Queries = Callable[[], st.SearchStrategy[PatternQuery]]
FAMILIES: dict[str, Queries] = {
    "operators": queries_with_operators,
    "lists": queries_with_lists,
    "first and last": queries_with_picks,
    "next and strict": queries_with_sequences,
}


@pytest.mark.parametrize("queries", FAMILIES.values(), ids=FAMILIES)
@modest
@given(data=st.data(), restoring=st.booleans())
def test_matches_are_the_same(queries: Queries, data: st.DataObject, restoring: bool) -> None:
    query = replace(data.draw(queries()), partition_by=("k",))
    constraints = data.draw(constraint_sets())
    problem = problem_of(query, constraints)
    if problem is not None and problem.code != "never-lawful":
        return
    traces = [in_partition(data.draw(lawful_traces(constraints)), {"k": key}) for key in (1, 2)]
    history = data.draw(mixed(traces))
    plainly = found_by_detect(query, (), history)
    if problem is not None:
        assert not plainly
        return
    assert found_by_detect(query, constraints, history) == plainly
    cut = data.draw(batches(history))
    assert found_by_steps(query, constraints, cut, restoring) == found_by_steps(query, (), cut)
