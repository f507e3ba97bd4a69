"""`ensue.waiting`: the partial matches of a run, what each waits for and until when, and what would cancel it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.arguments import helpful
from ensue.constraints import ConstraintsLike
from ensue.engine.events import FOREVER, NEVER
from ensue.engine.goals import Goals, open_goals
from ensue.engine.machine import UNLIMITED, compile_plan
from ensue.engine.output import key_column_of
from ensue.engine.rows import MatchChunk
from ensue.engine.snapshot import read_header, restore, saved_inputs, statement_text
from ensue.errors import LimitError, StateError
from ensue.graph.bounds import end_of, start_of
from ensue.graph.graphs import Variable
from ensue.lower.phases import LoweredProgram
from ensue.nodes.names import Name, UnnamedVariable, called
from ensue.plan.derivations import all_plans
from ensue.plan.program_plans import FixedTables, ProgramPlan, by_keys, plan_program
from ensue.programs import Program, QueryLike, program_statements
from ensue.runtimes.tables import fixed_tables
from ensue.text.render_parts import render_expression, render_state

MOST_GOALS = 100_000
"""The default maximum of goals to list."""


@helpful
def waiting(
    detector: Any,
    query: QueryLike,
    *,
    most_goals: int | None = MOST_GOALS,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    spark: Any = None,
) -> pa.Table:
    """Return the open goals of a run: the matched events of each key, the awaited event, the deadline, what cancels it.

    `detector` is a `Detector` of the program, the result of its `snapshot()`, or the `checkpointLocation` of a stream.
    Each row has the `name` of the pattern or rule, the key, the `matched` events, what is `awaited`, `until` when it
    can arrive (null: no deadline), what would cancel the match (`cancelled_by`), and all of this as `text`. More than
    `most_goals` rows are an error (None: no limit).

    >>> from ensue.detector import Detector
    >>> query = "PATTERN SEQ(Order o, NOT Cancel c, Paid p) PARTITION BY id WITHIN 10"
    >>> detector = Detector(query, time="t", type="type")
    >>> _ = detector.advance(pa.table({"t": [1], "type": ["Order"], "id": [7]}), watermark=5)
    >>> waiting(detector, query)["text"].to_pylist()
    ['o at 1; waits for Paid p after 5 until 11; cancelled by Cancel c']
    """
    statements = program_statements(query, constraints)
    fixed = fixed_tables(tables, statements)
    found: list[pa.Table] = []
    count = 0
    for saved in _saved(detector, spark):
        for name, goals in _goals_by_name(statements, fixed, saved):
            count += goals.chunk.rows.length
            if most_goals is not None and count > most_goals:
                raise LimitError(
                    "too-many-goals",
                    f"found more than {most_goals:,} open goals",
                    "raise `most_goals=`, or use a shorter WITHIN",
                )
            found.append(_table(name, goals))
    if not found:
        return pa.schema(_fields(pa.int64())).empty_table()
    return pa.concat_tables(found, promote_options="permissive").combine_chunks()


def _saved(state: Any, spark: Any) -> Iterator[pa.Table]:
    """Yield the saved states, one for each bucket of a Spark stream."""
    if isinstance(state, str):
        from ensue.runtimes.spark.session import running_session, spark_session
        from ensue.runtimes.spark.state import saved_states

        yield from saved_states(spark or running_session() or spark_session(), state.rstrip("/"))
    else:
        yield state.snapshot() if hasattr(state, "snapshot") else state


def _goals_by_name(statements: LoweredProgram, fixed: FixedTables, saved: pa.Table) -> Iterator[tuple[str, Goals]]:
    """Yield the open goals of the statements in a saved state, by name."""
    header = read_header(saved)
    planned = plan_program(statements, saved_inputs(saved), fixed=fixed)
    running = [run for run in _runs(planned) if _is_part_of(run, header["query"])]
    if not running:
        raise StateError(
            "state-query", "the state belongs to a different program", f"the program that saved it:\n{header['query']}"
        )
    names = dict(zip((id(plan) for plan in planned.plans), Program(statements).names, strict=True))
    for run in running:
        machine = compile_plan(run, UNLIMITED)
        for look in machine.looks(restore(machine, saved, {header["query"]})):
            for plan in look.stage.plans:
                name = names.get(id(plan), str(plan.query.name or ""))
                for goals in open_goals(look, plan):
                    yield name, goals


def _is_part_of(run: ProgramPlan, text: str) -> bool:
    """Return True if a state saved by these statements, and perhaps others, holds the state of this run."""
    written = [statement_text(plan.query) for plan in all_plans(run.derivations, run.plans)]
    written += () if run.states is None else map(render_state, run.states.states)
    return all(part in text for part in written if part is not None)


def _runs(planned: ProgramPlan) -> Iterator[ProgramPlan]:
    """Yield the groups of statements that run together."""
    for group in by_keys(planned):
        plans = tuple(planned.plans[place] for place in group.places)
        outputs = tuple(planned.outputs[place] for place in group.places)
        yield ProgramPlan(planned.inputs, plans, outputs, group.derivations, group.states)


# --- rows


def _fields(time_type: pa.DataType) -> list[pa.Field]:
    event = pa.struct([("variable", pa.string()), ("stream", pa.string()), ("start", time_type), ("end", time_type)])
    return [
        pa.field("name", pa.string()),
        pa.field("matched", pa.list_(event)),
        pa.field("awaited", pa.string()),
        pa.field("until", time_type),
        pa.field("cancelled_by", pa.list_(pa.string())),
        pa.field("text", pa.string()),
    ]


def _table(name: Name, goals: Goals) -> pa.Table:
    chunk, time_type = goals.chunk, goals.chunk.query_plan.catalog.time_type
    count = chunk.rows.length
    until = pa.array(goals.until, mask=goals.until == FOREVER).view(time_type)
    awaited = _awaited(goals, until, time_type)
    cancelled = pa.array([list(goals.open)] * count, pa.list_(pa.string()))
    text = _text(goals, awaited, until, time_type)
    plain = dict(
        zip(
            (field.name for field in _fields(time_type)),
            (pa.repeat(pa.scalar(name), count), _matched(chunk, time_type), awaited, until, cancelled, text),
            strict=True,
        )
    )
    keys = {key: key_column_of(chunk, key, chunk.query_plan.catalog) for key in chunk.query_plan.query.partition_by}
    return pa.table({"name": plain.pop("name"), **keys, **plain})


def _matched(chunk: MatchChunk, time_type: pa.DataType) -> pa.Array:
    """Return the events of each choice, in the order of the pattern."""
    names, count = chunk.plan.graph.names, chunk.rows.length
    starts, ends = (
        np.stack([chunk.space.value(point(name), chunk.rows) for name in names], axis=1).ravel()
        for point in (start_of, end_of)
    )
    events = pa.StructArray.from_arrays(
        [
            pa.array([called(name) for name in names] * count, pa.string()),
            pa.array([str(chunk.space.streams[name]) for name in names] * count, pa.string()),
            pa.array(starts).view(time_type),
            pa.array(ends).view(time_type),
        ],
        ["variable", "stream", "start", "end"],
    )
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(names))
    return pa.ListArray.from_arrays(offsets, events)


def _awaited(goals: Goals, until: pa.Array, time_type: pa.DataType) -> pa.Array:
    """Describe what each choice waits for."""
    count = goals.chunk.rows.length
    if goals.opening is None:
        moment = pc.fill_null(pc.binary_join_element_wise("the time ", _moments(until), ""), "the end of the stream")
        return moment
    variables = {variable.name: variable for variable in goals.opening.whole.variables}
    parts = [_awaited_event(variables[name], after, time_type) for name, after in goals.after.items()]
    words: list[Any] = []
    for part in parts:
        words += [pa.repeat(pa.scalar(" and "), count), part] if words else [part]
    return pc.binary_join_element_wise(*words, "")


def _awaited_event(variable: Variable, after: npt.NDArray[np.int64], time_type: pa.DataType) -> pa.Array:
    conditions = " AND ".join(render_expression(part) for part in variable.predicates)
    what = str(variable.stream) + ("" if isinstance(variable.name, UnnamedVariable) else f" {variable.name}")
    what += f" [{conditions}]" if conditions else ""
    # The earliest start is one tick after the previous event.
    moment = _moments(pa.array(after - 1, mask=after == NEVER).view(time_type))
    return pc.fill_null(pc.binary_join_element_wise(what, " after ", moment, ""), what)


def _moments(times: pa.Array) -> pa.Array:
    return times.cast(pa.string())


def _text(goals: Goals, awaited: pa.Array, until: pa.Array, time_type: pa.DataType) -> pa.Array:
    chunk = goals.chunk
    parts: list[Any] = []
    for name in chunk.plan.graph.names:
        start = pa.array(chunk.space.value(start_of(name), chunk.rows)).view(time_type)
        parts += [", " if parts else "", called(name), " at ", _moments(start)]
    parts += ["; waits for ", awaited]
    if goals.opening is not None:
        parts.append(pc.fill_null(pc.binary_join_element_wise(" until ", _moments(until), ""), ""))
    if goals.open:
        parts.append(f"; cancelled by {' or '.join(goals.open)}")
    return pc.binary_join_element_wise(*parts, "")
