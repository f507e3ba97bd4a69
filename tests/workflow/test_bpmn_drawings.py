"""A BPMN drawing of a process tree means what the tree means."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.process import Workflow, read_bpmn, workflow
from inside import Process, render_process, tokens
from workflow.brute_force import spelled_out
from workflow.drawing import draw_bpmn, draw_inclusive, some_of
from workflow.strategies import processes, workflows


@given(workflows(max_tasks=6), st.integers(0, 1000).map(random.Random))
def test_a_drawing_has_the_constraints_of_its_tree(model: Workflow, chance: random.Random) -> None:
    assert model.process is not None
    drawn = read_bpmn(draw_bpmn(model.process, chance))
    assert set(drawn.tasks) == set(model.tasks)
    assert spelled_out(drawn.constraints()) == spelled_out(model.constraints())
    assert model.accepts(drawn.sample(chance, 20))
    assert drawn.accepts(model.sample(chance, 20))


@given(st.lists(processes(max_tasks=2), min_size=2, max_size=3).map(tuple), st.integers(0, 1000).map(random.Random))
def test_inclusive_gateways_run_some_of_their_branches(items: tuple[Process, ...], chance: random.Random) -> None:
    model, drawn = workflow(render_process(some_of(items))), read_bpmn(draw_inclusive(items, chance))
    assert spelled_out(drawn.constraints()) == spelled_out(model.constraints())
    assert model.accepts(drawn.sample(chance, 20))
    assert drawn.accepts(model.sample(chance, 20))


@given(st.lists(processes(max_tasks=2), min_size=2, max_size=2).map(tuple), st.integers(0, 1000).map(random.Random))
def test_the_general_rule_for_inclusive_joins_gives_the_same(items: tuple[Process, ...], chance: random.Random) -> None:
    text = draw_inclusive(items, chance)
    paired = read_bpmn(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tokens, "inclusive_pairs", lambda scope: {})
        general = read_bpmn(text)
    assert general.net.entangled
    assert not paired.net.entangled
    assert general.constraints() == paired.constraints()
    assert general.accepts(paired.sample(chance, 10))


def test_a_drawing_with_eight_branches_is_read_fast() -> None:
    branches = ", ".join(f"A{i} -> (B{i} | C{i}+)* -> [D{i}]" for i in range(8))
    model = workflow(f"Start -> {{{branches}}} -> (Yes | No)")
    assert model.process is not None
    text = draw_bpmn(model.process, random.Random(1))
    begin = time.process_time()
    drawn = read_bpmn(text)
    assert spelled_out(drawn.constraints()) == spelled_out(model.constraints())
    assert time.process_time() - begin < 4
