"""Variables that are kept apart: one change is exact on each of them, and what is said to be lost covers what is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from draws import share
from inside import StateStatement
from state.test_against_oracle import close, table_of, text_of
from strategies.states import conditions, events, states

pytestmark = pytest.mark.filterwarnings("ignore::ensue.EnsueWarning", "ignore::ensue.EnsueNotice")
OPTIONS: dict[str, Any] = {"time": "t", "type": "type", "policy": "skip", "probability": "p"}


def marginals(found: ensue.beliefs.Beliefs, state: StateStatement) -> list[list[float]]:
    return [found.marginal(variable).column("probability").to_pylist() for variable in state.variables]


@share(0.6)
@given(st.data())
def test_one_change_of_independent_variables(data: st.DataObject) -> None:
    drawn = data.draw(states(keyed=False))
    state = replace(drawn, responses=drawn.responses[:1], drift=None)
    rows = data.draw(events(state, strange=False))[:1]
    if not rows:
        return
    exact = ensue.beliefs.of(table_of(rows), text_of(state), **OPTIONS)
    apart = ensue.beliefs.of(table_of(rows), text_of(state), largest_joint=1, **OPTIONS)
    assert (exact.exact, apart.exact) == (True, False)
    assert exact.ignored.num_rows == apart.ignored.num_rows
    single = marginals(exact, state)
    np.testing.assert_allclose(marginals(apart, state), single, atol=1e-9)
    places = [state.values.index] * len(state.variables)
    joint = [
        (row["probability"], math.prod(single[n][places[n](row[v])] for n, v in enumerate(state.variables)))
        for row in exact.joint().to_pylist()
    ]
    lost = sum(p * math.log(p / q) for p, q in joint if p > 0)
    [said] = apart.errors().column("error").to_pylist()
    assert said >= lost - 1e-9
    assert exact.errors().column("error").to_pylist() == [0.0]


@share(0.6)
@given(st.data())
def test_questions_are_answered_from_the_product(data: st.DataObject) -> None:
    """Where nothing has happened yet, variables are independent, so both forms of belief give the same."""
    state = replace(data.draw(states(keyed=False)), drift=None)
    condition, assumed = data.draw(conditions(state)), data.draw(conditions(state))
    nothing = table_of([])
    exact = ensue.beliefs.of(nothing, text_of(state), **OPTIONS)
    apart = ensue.beliefs.of(nothing, text_of(state), largest_joint=1, **OPTIONS)
    for ask in (
        lambda found: found.probability(condition),
        lambda found: found.given(assumed).probability(condition),
        lambda found: found.given(assumed).marginal("a"),
        lambda found: found.joint(),
        lambda found: found.count_distribution(*state.values[:1]),
        lambda found: found.expected_count(*state.values[:2]),
    ):
        left, right = ask(exact), ask(apart)
        name = "probability" if "probability" in left.column_names else "expected"
        pairs = zip(left.column(name).to_pylist(), right.column(name).to_pylist(), strict=True)
        assert all(close(one, other) for one, other in pairs)


def test_many_people_are_kept_apart_and_it_is_said() -> None:
    people = [f"p{number}" for number in range(30)]
    program = f"""STATE s OF {", ".join(people)} IN (x, y) STARTS x
      ON Left l: MOVE ANYONE FROM x TO y
      ON Empty e: OBSERVE NOBODY IN y RELIABILITY 0.75
      ON Sign s: OBSERVE p0 IN y"""
    table = pa.table({"t": [1, 2, 3], "type": ["Left", "Left", "Sign"]})
    with pytest.warns(ensue.EnsueNotice, match="tracked separately"):
        found = ensue.beliefs.of(table, program, time="t", type="type")
    assert found.expected_count("y").column("expected").to_pylist() == [pytest.approx(1 + 29 * (2 / 30), abs=1e-3)]
    row = found.probability("p0 in y").to_pylist()[0]
    assert row["probability"] == 1.0
    assert row["error"] > 0


def test_what_is_too_much_to_tell_apart_is_said() -> None:
    people = [f"p{number}" for number in range(40)]
    program = f"STATE s OF {', '.join(people)} IN (a, b, c, d, e) ON M m: MOVE p0 TO a"
    found = ensue.beliefs.of(pa.table({"t": [1], "type": ["M"]}), program, time="t", type="type")
    with pytest.raises(ensue.LimitError, match="state-question"):
        found.probability("count(a) = 5 and count(b) = 5 and count(c) = 5 and count(d) = 5")
    with pytest.raises(ensue.LimitError, match="state-question"):
        found.given("count(a) = 5").most_likely()
    assert found.most_likely("p0").column("p0").to_pylist() == ["a"]
