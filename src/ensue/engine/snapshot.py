"""Saves the state of a machine as one Arrow table with its version, query and watermark, and restores it; lists kept
events."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.analysis.declarations import END, START
from ensue.engine.belief.follower import BeliefState, StateStage
from ensue.engine.belief.updates import HeldBeliefs
from ensue.engine.derivation import row_codes
from ensue.engine.machine import Machine, State
from ensue.engine.sources import Report, one_chunk
from ensue.engine.stage import Role, Stage, StageState
from ensue.errors import QueryError, StateError
from ensue.kernels.beliefs import Beliefs
from ensue.nodes.names import Stream, names_in
from ensue.nodes.patterns import CONTEXTS, PatternQuery, Selection
from ensue.nodes.rules import CHAINS, EDGES
from ensue.plan.derivations import Derivation, all_plans
from ensue.plan.inputs import InputTable
from ensue.plan.outputs import event_fields
from ensue.plan.plans import QueryPlan
from ensue.plan.selections import ELEMENT, INDEX
from ensue.plan.states import StateQuestions
from ensue.text.citations import functions_in
from ensue.text.parser import parse_statements
from ensue.text.render import render_constraint, render_query, render_selection
from ensue.text.render_parts import render_declarations, render_rule, render_state

# --- kept events as tables

OWN = "ensue:"
"""The prefix of the engine's own columns."""


def kept_events(machine: Machine, state: State) -> list[pa.Table]:
    """The kept rows of each given table, including those after the watermark, with the columns that are kept.

    A row that several levels of statements keep is returned once. They may keep different columns of it: it is
    identified by the common columns, and returned with those of the level that keeps the most such rows.
    """
    if not machine.stages:
        return list(state.waiting)
    return [
        _once([_shown(table, item.table.column_names) for table in _kept(machine, state, place)])
        for place, item in enumerate(machine.inputs)
    ]


def kept_derived(machine: Machine, state: State) -> dict[Stream, pa.Table]:
    """The kept events of each declared stream; the first columns `start` and `end` are their times.

    The kept elements of a list have the columns of their row, `element` and `index`.
    """
    found: dict[Stream, pa.Table] = {}
    for place, item in list(enumerate(machine.tables))[len(machine.inputs) :]:
        table = _once([item.table, *_kept(machine, state, place)])
        called = {ELEMENT: "element", INDEX: "index"}
        found[str(item.stream)] = table.rename_columns([called.get(name, name) for name in table.column_names])
    for made in machine.plan.derivations:
        schema = made.item.table.schema
        names = [START, END, *(name for name in schema.names if not name.startswith(OWN))]
        table = _once([_shown(table, names) for table in (made.item.table, *_kept(machine, state, made.name))])
        shown = event_fields({name: schema.field(name).type for name in names})
        found[made.name] = table.rename_columns([field.name for field in shown])
    return found


def _kept(machine: Machine, state: State, role: Role) -> Iterator[pa.Table]:
    """The kept rows of a table or a declared stream at each level."""
    for look in machine.looks(state):
        yield from (kept.whole for own, kept in zip(look.stage.takes, look.state.kept, strict=True) if own == role)


def _shown(table: pa.Table, names: Sequence[str]) -> pa.Table:
    return table.select([name for name in names if name in table.column_names])


def _once(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of several tables, each as often as in the table that has it most often; all their columns."""
    schema = pa.unify_schemas([part.schema for part in parts])
    filled = [part for part in parts if part.num_rows]
    chosen = _most_of_each(filled) if len(filled) > 1 else filled
    return pa.concat_tables([schema.empty_table(), *chosen], promote_options="default").combine_chunks()


def _most_of_each(parts: Sequence[pa.Table]) -> list[pa.Table]:
    """For each table, the rows that it has most often; if several tables have a row equally often, the first has it."""
    common = [name for name in parts[0].column_names if all(name in part.column_names for part in parts)]
    together = pa.concat_tables([part.select(common) for part in parts])
    codes, count = row_codes([one_chunk(together.column(name)) for name in common])
    own = np.split(codes, np.cumsum([part.num_rows for part in parts])[:-1])
    holder = np.argmax([np.bincount(rows, minlength=count) for rows in own], axis=0)
    by_part = enumerate(zip(parts, own, strict=True))
    return [part.filter(pa.array(holder[rows] == place)) for place, (part, rows) in by_part]


# --- snapshot

STATE_VERSION = 4
METADATA = b"ensue.state"
EVENTS_OF_STAGE = re.compile("stage_[0-9]+_events_[0-9]+")
"""The columns with the kept events of a stage."""
FUNCTION_COMMENT = "-- function "

SEPARATOR = ";\n"
"""What separates the statements in the text of a state."""
OF_TRACKERS = b"ensue.beliefs"
"""The metadata key of older snapshots of beliefs, from before a machine kept them."""

REQUIRED = {"version", "query", "watermark", "per_stream", "report", "tables"}


def snapshot(
    machine: Machine,
    state: State,
    per_stream: bool,
    schemas: Mapping[Stream | None, pa.Schema] | None = None,
    text: str | None = None,
) -> pa.Table:
    """The state as one row: a column for each input with the list of its kept events, separately for each stage.

    A query that monitors its traces has a column with the list of their records. `per_stream` tells whether batches
    come as one table per stream; `schemas` are their columns, while the machine knows only those that its queries use.
    `text` is the text of the machine's queries, if it is known, because rendering many queries takes time.
    """
    shapes = {item.stream: item.table.schema for item in machine.inputs} | dict(schemas or {})
    columns: dict[str, pa.Array] = {}
    for prefix, stage, part in zip(_prefixes(machine), machine.stages, state.stages, strict=True):
        columns |= {prefix + _column_name(place): _as_list(table) for place, table in enumerate(stage.saved(part))}
        for place, tables in enumerate(part.records):
            columns |= {prefix + _records_name(place, number): _as_list(table) for number, table in enumerate(tables)}
    header = {
        "version": STATE_VERSION,
        "query": text_of(machine) if text is None else text,
        "watermark": state.watermark,
        "horizon": state.horizon,
        "per_stream": per_stream,
        "report": state.report.saved(),
        "watched": watched_streams(_all_plans(machine)),
        "tables": [{**_columns(item), "schema": _encoded(shapes[item.stream])} for item in machine.inputs],
    }
    if machine.states is not None and state.believed is not None:
        columns |= _saved_beliefs(machine.states, state.believed)
        header["limit"] = machine.states.questions.limit
    if fixed := _fixed_tables(machine):
        header["fixed"] = {name: _encoded(table.schema) for name, table in fixed.items()}
    return pa.table(columns).replace_schema_metadata({METADATA: json.dumps(header).encode()})


def watched_streams(plans: Iterable[QueryPlan]) -> list[list[str]]:
    """The meaning of the bits in the records of traces: the streams, and the steps of large graphs."""
    found = []
    for plan in plans:
        if plan.law is not None:
            graphs = () if plan.monitor is None else plan.monitor.graphs
            large = [graph for graph in graphs if graph.whole is None or len(graph.steps) > 64]
            found.append([*map(str, plan.watched), *(f"{len(graph.steps)} steps" for graph in large)])
    return found


def query_text(
    plans: Sequence[QueryPlan],
    derivations: Sequence[Derivation] = (),
    states: StateQuestions | None = None,
    inputs: Sequence[InputTable] = (),
) -> str:
    """The text that identifies a state: the queries of a session, their constraints, the streams that they use and the
    STATEs that they query. The streams of rows that they use are those of `inputs`.

    The rows of tables are not part of it. Functions of the user are comments with their types.
    """
    everything = all_plans(derivations, plans)
    programs = [derivation.program for derivation in derivations if derivation.program is not None]
    declared = render_declarations(programs[0]) if programs else ()
    texts: dict[str, None] = dict.fromkeys(declared)
    texts |= dict.fromkeys(() if states is None else map(render_state, states.states))
    texts |= dict.fromkeys(map(render_selection, _selections(everything, inputs)))
    for plan in everything:
        constraints = plan.law.constraints if plan.law is not None else ()
        texts |= dict.fromkeys(f"CONSTRAINT {render_constraint(constraint)}" for constraint in constraints)
    written = (statement_text(plan.query) for plan in everything)
    called = functions_called(plans, derivations, inputs)
    comments = (f"{FUNCTION_COMMENT}{called[name]}" for name in sorted(called))
    return SEPARATOR.join((*comments, *texts, *(text for text in written if text is not None)))


def functions_called(
    plans: Sequence[QueryPlan], derivations: Sequence[Derivation], inputs: Sequence[InputTable]
) -> dict[str, object]:
    """The functions of the user that the queries of a session and their streams call, by name."""
    everything = all_plans(derivations, plans)
    return functions_in((*_selections(everything, inputs), *(plan.query for plan in everything)))


def _selections(plans: Sequence[QueryPlan], inputs: Sequence[InputTable]) -> list[Selection]:
    """The streams of rows that the plans use."""
    used = {name for plan in plans for stream in plan.all_streams for name in names_in(stream)}
    return [view.selection for item in inputs for name, view in item.all_views.items() if name in used]


def statement_text(query: PatternQuery) -> str | None:
    """A statement as text; None for an internal statement of a rule."""
    # A rule with a context is saved as its operators, like a pattern with one.
    if query.rule is not None and query.rule.body and query.rule.policy not in CONTEXTS:
        return render_rule(query.rule)
    beside = query.name in (EDGES, CHAINS) or (query.lookup is not None and query.rule is None)
    return None if beside else render_query(query)


def text_of(machine: Machine) -> str:
    return query_text(machine.plans, machine.plan.derivations, machine.plan.states, machine.plan.inputs)


def has_columns_of(machine: Machine, saved: pa.Table) -> bool:
    """Whether the stages of a machine keep events of the same tables as those of a saved state."""
    parts = zip(_prefixes(machine), machine.stages, machine.start().stages, strict=True)
    own = {prefix + _column_name(place) for prefix, stage, part in parts for place in range(len(stage.saved(part)))}
    return own == {name for name in saved.column_names if EVENTS_OF_STAGE.fullmatch(name)}


def _prefixes(machine: Machine) -> list[str]:
    """The column prefix of each stage."""
    return [f"stage_{place}_" for place in range(len(machine.stages))]


def _all_plans(machine: Machine) -> list[QueryPlan]:
    return [plan for stage in machine.stages for plan in stage.plans]


def same_queries(saved: str, text: str) -> bool:
    """Whether two texts are the same queries. Another release may have written them in another way."""
    if saved == text:
        return True
    if _functions_of_text(saved) != _functions_of_text(text):
        return False
    try:
        return parse_statements(saved) == parse_statements(text)
    except QueryError:
        return False


def _functions_of_text(text: str) -> list[str]:
    """The comments about the functions of the user, which the parser ignores."""
    return [line for line in text.split("\n") if line.startswith(FUNCTION_COMMENT)]


def restore(machine: Machine, saved: pa.Table, predecessors: Collection[str] = (), text: str | None = None) -> State:
    """Restores the saved state of a machine with the same query over tables of the same shape.

    `predecessors` are the texts of other queries whose kept events are known to suffice. `text` is the text of the
    machine's queries, if it is known.
    """
    header = read_header(saved)
    text = text_of(machine) if text is None else text
    same = same_queries(header["query"], text)
    if not same and header["query"] not in predecessors:
        raise StateError(
            "state-query",
            "the saved state belongs to another query",
            f"the state was saved by this query:\n{header['query']}",
        )
    if same and header.get("watched", []) != watched_streams(_all_plans(machine)):
        raise StateError(
            "state-query",
            "the saved state tracks traces in a different format",
            "restore it with the release that saved it, or start again from the source",
        )
    for item, before in zip(machine.inputs, header["tables"], strict=False):
        now = _columns(item)
        changed = [name for name, column in now.items() if before.get(name) != column]
        if changed:
            raise StateError(
                "state-shape",
                f"the state was saved with `{changed[0]}={before.get(changed[0])!r}`, "
                f"but it is now {now[changed[0]]!r}",
                "pass the same columns as before",
            )
    parts = zip(machine.stages, _prefixes(machine), strict=True)
    stages = tuple(_restored_stage(stage, saved, prefix) for stage, prefix in parts)
    believed = None if machine.states is None else _restored_beliefs(machine.states, saved, header.get("limit"))
    return State(stages, header["watermark"], header.get("horizon"), Report.restored(header["report"]), believed)


def _saved_beliefs(stage: StateStage, state: BeliefState) -> dict[str, pa.Array]:
    """The beliefs and keys of each state, and the waiting rows of each input."""
    columns: dict[str, pa.Array] = {}
    for number, (plan, held) in enumerate(zip(stage.plans, state.held, strict=True)):
        chances, moments, lost = held.beliefs
        flat = pa.FixedSizeListArray.from_arrays(pa.array(chances.ravel()), plan.size)
        known = {"chances": flat, "moment": pa.array(moments), "lost": pa.array(lost)}
        columns[f"beliefs_{number}"] = _as_list(pa.table(known))
        if plan.statement.partition_by:
            columns[f"keys_{number}"] = _as_list(held.keys)
    return columns | {f"waiting_{number}": _as_list(table) for number, table in enumerate(state.waiting)}


def _restored_beliefs(stage: StateStage, saved: pa.Table, limit: int | None) -> BeliefState:
    if limit != stage.questions.limit:
        said = f"the state was saved with `largest_joint={limit}`, but it is now {stage.questions.limit}"
        raise StateError("state-shape", said, "pass the same `largest_joint` as before")
    held = []
    for number, plan in enumerate(stage.plans):
        known = _all_rows(saved, f"beliefs_{number}")
        keys = _all_rows(saved, f"keys_{number}") if plan.statement.partition_by else pa.table({})
        chances, moments, lost = (one_chunk(known.column(name)) for name in ("chances", "moment", "lost"))
        numbers = chances.flatten().to_numpy(zero_copy_only=False).reshape(known.num_rows, plan.size)
        beliefs = Beliefs(numbers.copy(), moments.to_numpy().copy(), lost.to_numpy().copy())
        held.append(HeldBeliefs(keys, known.num_rows, beliefs))
    waiting = []
    for number, item in enumerate(stage.inputs):
        name = f"waiting_{number}"
        if name not in saved.column_names:
            raise _without(f"events of the {item.label}")
        waiting.append(_as_table(saved.column(name), item.table.schema, item.label))
    return BeliefState(tuple(held), tuple(waiting))


def _all_rows(saved: pa.Table, name: str) -> pa.Table:
    """The table in the single value of a column."""
    if name not in saved.column_names:
        raise _without(f"`{name}`")
    if saved.num_rows != 1:
        raise _incomplete()
    return pa.Table.from_struct_array(one_chunk(saved.column(name)).flatten())


def _without(what: str) -> StateError:
    return StateError("state-shape", f"the saved state has no {what}", "pass the same tables as before")


def _restored_stage(stage: Stage, saved: pa.Table, prefix: str) -> StageState:
    tables: list[pa.Table] = []
    for place, (schema, shape) in enumerate(zip(stage.saved_schemas(), stage.shapes, strict=True)):
        name = prefix + _column_name(place)
        if name not in saved.column_names:
            raise _without(f"events of the {shape.label}")
        tables.append(_as_table(saved.column(name), schema, shape.label))
    return stage.restored(tables, [tuple(_records(saved, prefix, place)) for place in range(len(stage.members))])


def saved_schemas(saved: pa.Table) -> dict[Stream | None, pa.Schema]:
    """The schemas of the tables that a saved state has read, by stream (None: the one table of all streams)."""
    return {item["stream"]: _decoded(item["schema"]) for item in read_header(saved)["tables"]}


def saved_tables(saved: pa.Table) -> dict[str, pa.Table]:
    """The tables that rules looked up when a state was saved, without their rows."""
    return {name: _decoded(schema).empty_table() for name, schema in read_header(saved).get("fixed", {}).items()}


def _fixed_tables(machine: Machine) -> dict[str, pa.Table]:
    ways = [way for derivation in machine.plan.derivations for way in derivation.ways]
    return {way.plan.query.lookup.table: way.table for way in ways if way.plan.query.lookup and way.table is not None}


def _encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _decoded(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def saved_inputs(saved: pa.Table) -> tuple[InputTable, ...]:
    """The tables that a saved state has read, without their rows."""
    schemas = saved_schemas(saved)
    return tuple(
        InputTable(
            schemas[entry["stream"]].empty_table(),
            entry["time"],
            entry["end"],
            entry["stream"],
            entry["type"],
            order=tuple(entry.get("order") or ()),
        )
        for entry in read_header(saved)["tables"]
    )


def _columns(item: InputTable) -> dict[str, Any]:
    """The stream of a table and the columns it was read by."""
    return {
        "stream": None if item.stream is None else str(item.stream),
        "time": item.time,
        "end": item.end,
        "type": item.type,
        "order": list(item.order) or None,
    }


def read_header(saved: pa.Table) -> dict[str, Any]:
    """The header of a saved state; raises a StateError if it is not a state, or has another version."""
    header: dict[str, Any] = {}
    if isinstance(saved, pa.Table):
        try:
            known = saved.schema.metadata or {}
            header = json.loads(known.get(METADATA, known.get(OF_TRACKERS, b"{}")))
        except ValueError:
            header = {}
    if not isinstance(header, dict) or "version" not in header:
        raise StateError("not-a-state", "the table is not a state saved by Ensue", "pass the result of `snapshot()`")
    if header["version"] != STATE_VERSION:
        raise StateError(
            "state-version",
            f"the saved state has version {header['version']}; this release reads version {STATE_VERSION}",
            "restore it with the release that saved it, or start again from the source",
        )
    if not header.keys() >= REQUIRED:
        raise _incomplete()
    return header


def _incomplete() -> StateError:
    return StateError("not-a-state", "the saved state is incomplete", "pass the result of `snapshot()` unchanged")


def _column_name(place: int) -> str:
    return f"events_{place}"


def _records_name(place: int, number: int) -> str:
    return f"traces_{place}_{number}"


def _records(saved: pa.Table, prefix: str, place: int) -> Iterator[pa.Table]:
    """The records of the traces of one query."""
    for number in count():
        name = prefix + _records_name(place, number)
        if name not in saved.column_names:
            return
        column = saved.column(name)
        if len(column) != 1:
            raise _incomplete()
        yield pa.Table.from_struct_array(one_chunk(column).flatten())


def _as_list(table: pa.Table) -> pa.Array:
    """A table as the single value of a column: the list of its rows."""
    rows = pa.concat_arrays([*table.to_struct_array().chunks, pa.array([], pa.struct(list(table.schema)))])
    return pa.LargeListArray.from_arrays(pa.array([0, len(rows)], pa.int64()), rows)


def _as_table(column: pa.ChunkedArray, schema: pa.Schema, label: str) -> pa.Table:
    """The table in the single value of a column, with the required columns."""
    if len(column) != 1:
        raise _incomplete()
    rows = one_chunk(column).flatten()
    saved = [field.name for field in rows.type]
    missing = [name for name in schema.names if name not in saved]
    if missing:
        raise StateError(
            "state-shape",
            f"the saved events of the {label} have no column `{missing[0]}`",
            f"saved: {', '.join(saved)}; required: {', '.join(schema.names)}",
        )
    return pa.table([rows.field(name) for name in schema.names], names=schema.names).cast(schema)
