"""Track STATEs over the user's tables with a machine that has no patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.engine.belief.answers import KnownBeliefs
from ensue.engine.belief.follower import MomentBeliefs, StateStage
from ensue.engine.belief.model import StatePlan
from ensue.engine.machine import Machine, State, Step, compile_plan
from ensue.engine.sources import read_times
from ensue.errors import SchemaError, did_you_mean
from ensue.plan.inputs import InputTable, input_tables, ordered_tables
from ensue.plan.plans import Options
from ensue.plan.program_plans import Columns, ProgramPlan
from ensue.plan.states import StateQuestions
from ensue.runtimes.tables import kind_of_table, without_views


@dataclass(frozen=True, slots=True)
class BeliefMachine:
    """A machine that tracks states and has no patterns."""

    machine: Machine

    @classmethod
    def of(cls, questions: StateQuestions, inputs: Sequence[InputTable]) -> BeliefMachine:
        """Plan states over tables whose columns have been checked."""
        empty = tuple(replace(item, table=item.table.schema.empty_table()) for item in inputs)
        plan = ProgramPlan(empty, (), (), states=questions)
        return cls(compile_plan(plan, Options()))

    @property
    def questions(self) -> StateQuestions:
        return self.stage.questions

    @property
    def stage(self) -> StateStage:
        assert self.machine.states is not None
        return self.machine.states

    @property
    def inputs(self) -> tuple[InputTable, ...]:
        """The empty tables of the inputs."""
        return self.machine.inputs

    @property
    def plans(self) -> tuple[StatePlan, ...]:
        return self.stage.plans

    @property
    def time_type(self) -> pa.DataType:
        return self.machine.time_type

    def run(self, tables: Sequence[pa.Table]) -> Step:
        """Process all rows in one step."""
        return self.machine.run(self.machine.read(tables))

    def step(self, state: State, tables: Sequence[pa.Table], until: int | None, late_until: int | None = None) -> Step:
        """Process rows and move the watermark to `until` (None: to the end of time)."""
        return self.machine.step(state, self.machine.read(tables), until, late_until=late_until)

    def known(self, state: State, until: int | None = None) -> list[KnownBeliefs]:
        """Return the belief of each state after all processed events, or at the later time `until`."""
        assert state.believed is not None
        return self.stage.known(state.believed, until)

    def known_at(self, tables: Sequence[pa.Table], moments: Any) -> MomentBeliefs:
        """Return the belief of each state at the keys and times of a table, and the ignored rows."""
        given = without_views(kind_of_table(moments).to_arrow(moments))
        time = self.inputs[0].time
        for name in (name for plan in self.plans for name in (*plan.statement.partition_by, time)):
            if name not in given.column_names:
                said = f"the table passed as `at` has no column `{name}`; columns: {', '.join(given.column_names)}"
                raise SchemaError("no-such-column", said, did_you_mean(name, given.column_names))
        times, valid = read_times(InputTable(given, time), time, self.time_type)
        return self.stage.known_at(tables, given, times if valid is None else np.where(valid, times, 0))


def open_states(
    tables: Mapping[str, pa.Table] | pa.Table, questions: StateQuestions, columns: Columns
) -> tuple[BeliefMachine, tuple[pa.Table, ...]]:
    """Check the columns of the tables and plan the states over them; also return the tables in order."""
    inputs = input_tables(tables, questions.streams or ("*",), columns.time, columns.type, None)
    if columns.order is not None:
        inputs = ordered_tables(inputs, columns.order)
    return BeliefMachine.of(questions, inputs), tuple(item.table for item in inputs)
