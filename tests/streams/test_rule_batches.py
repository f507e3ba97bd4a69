"""Rules over any cut of a history into batches derive what they derive from all of it at once, as the oracle says."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ensue import Program, QueryError
from harness import FIELD_TYPES, events_table
from inside import (
    Columns,
    Machine,
    Options,
    ProgramPlan,
    compile_plan,
    fixed_tables,
    plan_queries,
    program_statements,
    restore,
    snapshot,
)
from oracle.oracle import OracleEvent
from strategies.histories import batches
from strategies.rules import RuleCase, rule_cases

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

COLUMNS = Columns("time", "type", "until")
Rows = list[tuple[Any, ...]]


def planned(case: RuleCase) -> tuple[ProgramPlan, tuple[str, ...]]:
    statements = program_statements(Program(case.program))
    tables = {
        name: pa.table({column: pa.array([row[column] for row in rows], FIELD_TYPES[column]) for column in rows[0]})
        for name, rows in case.tables.items()
    }
    fixed = fixed_tables(tables, statements)
    try:
        plan = plan_queries(events_table([]), statements, COLUMNS, fixed=fixed)
    except QueryError as error:
        assume(error.code != "never-holds")
        raise
    return plan, Program(statements).names


def machine_of(plan: ProgramPlan) -> Machine:
    return compile_plan(plan, Options())


@given(st.data())
def test_any_cut_derives_what_the_oracle_says(data: st.DataObject) -> None:
    case = data.draw(rule_cases(intervals=True))
    plan, names = planned(case)
    steps = data.draw(batches(case.history))
    machine = machine_of(plan)
    state = machine.start()
    found: dict[str, Rows] = {name: [] for name in names}
    ends: list[tuple[list[OracleEvent], int | None]] = [*steps, ([], None)]
    for rows, until in ends:
        before = state.watermark
        batch = machine.read([events_table(rows).select(machine.inputs[0].table.column_names)])
        step = machine.step(state, batch, until)
        state = step.state
        for name, table in zip(names, step.outputs, strict=True):
            own = [tuple(row.values()) for row in table.to_pylist()]
            if name in case.derived.heads:
                assert all((before is None or before < row[1]) and (until is None or row[1] <= until) for row in own)
            found[name] += own
        if until is not None and data.draw(st.booleans()):
            saved, machine = snapshot(machine, state, False), machine_of(plan)
            state = restore(machine, saved)
    for head in case.derived.heads:
        assert found[head] == [(s, e, *attributes) for s, e, attributes in case.derived.rows(head)]
