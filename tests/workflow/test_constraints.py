"""The constraints of a workflow are exactly those that all of its traces obey."""

from __future__ import annotations

import random
import time
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ensue import LimitError
from ensue.process import Workflow, workflow
from inside import Ends, Exclusive, Prior, Require, explore
from workflow.brute_force import TooMany, Trace, constraints_by_brute_force, obeys, spelled_out, traces_of
from workflow.strategies import NAMES, workflows


def few_traces(model: Workflow, rounds: int = 2) -> set[Trace]:
    assert model.process is not None
    try:
        return traces_of(model.process, rounds)
    except TooMany:
        assume(False)
        raise


@given(workflows(max_tasks=6))
def test_every_constraint_holds_and_every_other_one_has_a_witness_against_it(model: Workflow) -> None:
    assert spelled_out(model.constraints()) == constraints_by_brute_force(model.tasks, few_traces(model))


@given(workflows(max_tasks=6, names=("A", "B", "C")))
def test_tasks_in_several_places(model: Workflow) -> None:
    assert spelled_out(model.constraints()) == constraints_by_brute_force(model.tasks, few_traces(model))


@given(workflows(max_tasks=4, names=("A", "B", "C")))
def test_accepts_exactly_the_traces(model: Workflow) -> None:
    traces = few_traces(model, rounds=3)
    for length in range(4):
        for events in product("ABC", repeat=length):
            assert model.accepts(events) == (events in traces)
    assert all(model.accepts(trace) for trace in sorted(traces)[:20])


@given(workflows(max_tasks=8), st.integers(0, 1000).map(random.Random), st.integers(0, 30))
def test_samples_are_traces(model: Workflow, source: random.Random, most: int) -> None:
    trace = tuple(model.sample(source, most))
    assert model.accepts(trace)
    assert all(obeys(trace, constraint) for constraint in model.constraints())


@given(workflows(max_tasks=6), st.integers(0, 3))
def test_a_sample_goes_on_by_the_shortest_way(model: Workflow, most: int) -> None:
    shortest = min(map(len, few_traces(model)))
    assert len(model.sample(random.Random(0), most=0)) == shortest
    assert len(model.sample(random.Random(0), most)) >= min(most, shortest)


@given(workflows(max_tasks=5, names=("A", "B", "C", "D")), st.lists(st.sampled_from("ABCD"), max_size=5).map(tuple))
def test_reduced_constraints_say_as_much(model: Workflow, trace: Trace) -> None:
    reduced = model.constraints(reduced=True)
    assert set(reduced) <= set(model.constraints())
    assert all(obeys(trace, item) for item in reduced) == all(obeys(trace, item) for item in model.constraints())


def test_constraints_come_by_kind_and_in_the_order_of_the_tasks() -> None:
    assert workflow("A -> (B | C)").constraints() == (
        Prior("A", "B"),
        Prior("A", "C"),
        Exclusive(("B", "C")),
        Require("B", "A"),
        Require("C", "A"),
        Ends(("B", "C")),
    )


@pytest.mark.parametrize(
    ("text", "holds", "does_not_hold"),
    [
        ("A -> B", [Prior("A", "B"), Require("A", "B")], [Prior("B", "A"), Ends(("A",))]),
        ("(A -> B)+", [Require("A", "B")], [Prior("A", "B"), Ends(("B",))]),
        ("A -> [B]", [Require("B", "A")], [Require("A", "B"), Ends(("A",))]),
        ("A -> B -> A", [Require("A", "B"), Ends(())], [Prior("A", "B"), Prior("B", "A")]),
        ("A | A -> B", [Prior("A", "B")], [Require("A", "B"), Exclusive(("A", "B"))]),
        ("{A, B}", [Require("A", "B"), Require("B", "A")], [Prior("A", "B"), Prior("B", "A")]),
        ("A*", [], [Ends(("A",))]),
        ("A", [Ends(("A",))], []),
    ],
)
def test_examples(text: str, holds: list[object], does_not_hold: list[object]) -> None:
    found = spelled_out(workflow(text).constraints())
    assert all(item in found for item in holds if item != Ends(()))
    assert not [item for item in does_not_hold if item in found]


def test_order_fulfilment_says_what_a_reader_expects() -> None:
    model = workflow(
        "PlaceOrder -> CheckInventory -> (UseLocalStock | (UseRemoteStock -> {OrderFromSupplier -> GenerateQuote+ ,"
        " GenerateInvoice})) -> [CreditCheck] -> (FinishOrder | CancelOrder)"
    )
    found = model.constraints()
    assert Exclusive(("UseLocalStock", "GenerateQuote")) in found
    assert Prior("GenerateQuote", "CreditCheck") in found
    assert Require("GenerateInvoice", "OrderFromSupplier") in found
    assert Prior("GenerateInvoice", "GenerateQuote") not in found
    assert found[-1] == Ends(("FinishOrder", "CancelOrder"))


def test_parallel_branches_with_choices_and_loops_are_fast() -> None:
    branches = ", ".join(f"A{i} -> (B{i} | C{i} -> D{i}+)* -> [E{i}] -> {{F{i}, G{i} -> H{i}}}" for i in range(8))
    model = workflow(f"Start -> {{{branches}}} -> (Yes | No -> [Appeal]+) -> End")
    begin = time.process_time()
    assert len(model.constraints()) > 1000
    assert time.process_time() - begin < 2
    trace = model.sample(random.Random(7))
    assert model.accepts(trace)


def test_limit_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "MOST_MARKINGS", 10)
    with pytest.raises(LimitError, match="more than 10 states") as caught:
        workflow(" -> ".join(f"(`{name}1` | {name} -> `{name}2`)" for name in NAMES)).constraints()
    assert caught.value.code == "workflow-too-large"


def test_unknown_events_are_not_accepted() -> None:
    assert not workflow("A").accepts(["B"])
    assert workflow("[A]").accepts([])
