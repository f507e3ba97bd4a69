"""A plan is one value for all statements of a program: it holds no rows of events, and can be sent elsewhere."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

import ensue
from inside import Columns, Options, ProgramPlan, compile_plan, fixed_tables, plan_queries, program_statements

EVENTS = pa.table({"t": [1, 2, 3, 4], "type": ["A", "B", "A", "C"], "k": [1, 1, 2, 1], "x": [1, 2, 3, 4]})
COLUMNS = Columns("t", "type")
PROGRAMS: dict[str, Any] = {
    "text": "PATTERN p SEQ(A a, NOT B b, C c) WITHIN 9; PATTERN q SEQ(A a, C c) PARTITION BY k RETURN a.x AS x",
    "contexts": "PATTERN p SEQ(A a, AND(B b, C c)) WITHIN 9 MATCH RECENT",
    "rules": "RULE h(k, x) <- a: A(k=k, x=x), vip(k, _); RULE h(k, x) <- C(k=k, x=x); FACT vip(1, 'gold')",
    "python": [
        ensue.seq("A a", "B b").partition_by("k").as_stream("s"),
        ensue.seq(ensue.event("s", "v"), "C c").as_pattern("p").within(9),
    ],
}


def planned(program: Any, events: pa.Table = EVENTS) -> ProgramPlan:
    statements = program_statements(program)
    return plan_queries(events, statements, COLUMNS, fixed=fixed_tables(None, statements))


def results(plan: ProgramPlan, *batches: pa.Table) -> list[list[dict[str, Any]]]:
    machine = compile_plan(plan, Options())
    state, steps = machine.start(), []
    for batch in (*batches, None):
        rows = plan.inputs[0].table if batch is None else batch
        until = None if batch is None else int(batch.column("t")[-1].as_py())
        step = machine.step(state, machine.read([rows]), until)
        state = step.state
        steps.append(step.outputs)
    return [[row for table in tables for row in table.to_pylist()] for tables in zip(*steps, strict=True)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_that_was_pickled_finds_the_same(name: str) -> None:
    plan = planned(PROGRAMS[name])
    sent = pickle.loads(pickle.dumps(plan))
    found = results(plan, EVENTS)
    assert results(sent, EVENTS) == found
    assert [table.to_pylist() for table in ensue.run(EVENTS, PROGRAMS[name], time="t", type="type").values()] == found
    assert any(found)


def test_a_plan_has_no_rows_and_is_for_any_batch() -> None:
    plan = planned(PROGRAMS["text"])
    assert [item.table.num_rows for item in plan.inputs] == [0]
    larger = pa.concat_tables([EVENTS] * 100)
    assert len(pickle.dumps(planned(PROGRAMS["text"], larger))) == len(pickle.dumps(plan))
    assert results(plan, EVENTS) == results(plan, EVENTS.slice(0, 2), EVENTS.slice(2)) == results(plan, EVENTS)
