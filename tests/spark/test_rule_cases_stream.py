"""Every case of rules as a stream of several micro-batches, its events out of order: the same derived events, in time.

A stream costs more than a case. So the cases of a kind run as one program: streams, heads and tables have the number of
their case behind their names. Cases whose fields of one name have different types run apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from case_files import Case, CaseEvent, render_results, ticks_of
from case_oracle import heads_of, program_of
from inside import (
    Atom,
    Columns,
    Event,
    Fact,
    InTable,
    Options,
    PatternQuery,
    Rule,
    Ruleset,
    Statements,
    StreamDeclaration,
    StreamPlan,
    TableDeclaration,
    empty_tables,
    fixed_tables,
    frame_inputs,
    plan_queries,
    plan_stream,
    program_statements,
    render_statements,
)
from spark.streams import FAR, INSTANT, Feed, Ran, disordered, matches_in, run_to_end, settings
from spark.test_cases_stream import without_zone
from test_cases import ALL, each, has_rules, is_beyond_sample

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

FILES = 3
DELAYS = {"points": 4, "intervals": 4, "clock": 600_000_000}
"""How far events are out of order, in ticks: seconds of integer time, microseconds of a day."""


def runs_here(case: Case) -> bool:
    """Any event may be a cause: those of other cases must not be."""
    if not has_rules(case) or case.errors or case.has_tables or case.order or "ANY EVENT" in case.query:
        return False
    return not program_of(case).selections


ACCEPTED = [(path, case) for path, case in ALL if runs_here(case)]


def kind_of(case: Case) -> str:
    if case.has_clock_times:
        return "clock"
    return "intervals" if case.has_intervals else "points"


# --- cases that do not meet


def renamed(value: Any, number: int) -> Any:
    """A program with the number of its case behind the name of every stream, head, table and pattern."""
    if isinstance(value, tuple):
        return tuple(renamed(part, number) for part in value)
    if not is_dataclass(value):
        return value
    parts = {item.name: renamed(getattr(value, item.name), number) for item in fields(value) if item.init}
    value = replace(value, **parts)
    for kind, name in (
        (Atom, "stream"),
        (Event, "stream"),
        (Rule, "head"),
        (Fact, "table"),
        (InTable, "table"),
        (TableDeclaration, "name"),
        (StreamDeclaration, "stream"),
        (PatternQuery, "name"),
    ):
        if isinstance(value, kind):
            value = replace(value, **{name: f"{getattr(value, name)}_{number}"})
    return value


def together(programs: list[Statements]) -> Statements:
    rulesets = [program.ruleset or Ruleset() for program in programs]
    kinds = [item.name for item in fields(Ruleset) if item.init]
    parts = {kind: tuple(entry for rules in rulesets for entry in getattr(rules, kind)) for kind in kinds}
    return Statements(tuple(query for program in programs for query in program.statements), ruleset=Ruleset(**parts))


# --- the cases of a kind as one stream


class Group:
    """The cases of a kind, run together when the first of them is asked for."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str, cases: list[Case]) -> None:
        self.spark, self.folder, self.kind, self.cases = spark, folder, kind, cases
        self.tick = 1_000 if kind == "clock" else 1_000_000_000
        self.names: tuple[str, ...] = ()
        self.ran: Ran | None = None
        self.plan: StreamPlan | None = None

    def found(self, case: Case) -> dict[str, list[tuple[pa.Table, int]]]:
        """The tables of each result of a case, each with the number of the micro-batch that gave it."""
        if self.ran is None:
            with settings(self.spark, {"spark.sql.codegen.wholeStage": "false"}):
                self.plan, self.ran = self.run()
        assert self.plan is not None
        number = self.cases.index(case)
        found: dict[str, list[tuple[pa.Table, int]]] = {}
        for place, name in enumerate(self.names):
            stem, _, of_case = name.rpartition("_")
            if of_case == str(number):
                found[stem] = list(self.tables_of(place))
        return found

    def tables_of(self, place: int) -> Any:
        assert self.plan is not None
        assert self.ran is not None
        for batch, table in self.ran.batches.items():
            for matches in matches_in(table, self.plan.task, place):
                yield without_zone(matches), batch

    def batch_of(self, end: int) -> int | None:
        """The micro-batch whose watermark is the first to reach a time, None if none does."""
        assert self.ran is not None
        for batch, watermark in sorted(self.ran.watermarks.items()):
            if watermark > 0 and watermark * 1_000_000 // self.tick >= end:
                return batch
        return None

    def run(self) -> tuple[StreamPlan, Ran]:
        programs = [renamed(program_of(case), number) for number, case in enumerate(self.cases)]
        statements = program_statements(render_statements(together(programs)))
        self.names = tuple(query.name or "" for query in statements.results)
        source = self.source()
        fixed = fixed_tables(self.fixed_tables(), statements)
        columns = Columns("time", "type", "until" if self.kind == "intervals" else None)
        planned = plan_queries(empty_tables(source), statements, columns, fixed=fixed)
        plan = plan_stream(
            frame_inputs(source, planned.inputs),
            planned.plans,
            planned.outputs,
            Options(limit=None),
            (),
            planned.derivations,
            tick=None if self.kind == "clock" else f"{self.tick} ns",
            buckets=1,
        )
        return plan, run_to_end(plan.counted(plan.found()), self.folder / "checkpoint")

    def fixed_tables(self) -> dict[str, pa.Table]:
        return {
            f"{name}_{number}": table
            for number, case in enumerate(self.cases)
            for name, table in case.fixed_tables().items()
        }

    # Events

    def source(self) -> Any:
        events = [(number, event) for number, case in enumerate(self.cases) for event in case.parsed_events()]
        order = disordered(np.array([event.end for _, event in events]), DELAYS[self.kind], seed=len(events))
        parts = [[events[place] for place in part] for part in np.array_split(order, FILES)]
        types = self.types([event for _, event in events])
        feed: Feed | None = None
        for part in parts:
            table = self.table(part, types)
            feed = feed or Feed(self.folder / "events", table.schema)
            feed.put(table)
        assert feed is not None
        feed.put(self.flush(feed.schema))
        clock = "time" if self.kind == "clock" else "clock"
        return feed.stream(self.spark, clock, f"{DELAYS[self.kind] * self.tick // 1000} microseconds")

    def types(self, events: list[CaseEvent]) -> Mapping[str, pa.DataType]:
        names = dict.fromkeys(name for event in events for name in event.fields)
        return {name: pa.array([event.fields.get(name) for event in events]).type for name in names}

    def table(self, rows: list[tuple[int, CaseEvent]], types: Mapping[str, pa.DataType]) -> pa.Table:
        kind = INSTANT if self.kind == "clock" else pa.int64()
        events = [event for _, event in rows]
        moments = pa.array([event.end * self.tick // 1000 for event in events], pa.int64()).cast(INSTANT)
        columns = {
            "type": pa.array([f"{event.stream}_{number}" for number, event in rows]),
            "time": pa.array([event.start for event in events], pa.int64()).cast(kind),
            "until": pa.array([event.end for event in events], pa.int64()).cast(kind),
            "clock": moments,
        }
        for name, of_type in types.items():
            columns[name] = pa.array([event.fields.get(name) for event in events], of_type)
        return pa.table(columns)

    def flush(self, schema: pa.Schema) -> pa.Table:
        """A row of the far future that belongs to no case."""
        far = FAR if self.kind == "clock" else FAR * 1000 // self.tick
        row = {"type": "Flush", "time": far, "until": far, "clock": FAR}
        columns = [
            pa.array([row[field.name]]).cast(field.type) if field.name in row else pa.nulls(1, field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)


Key = tuple[str, bool, int]
"""The kind of a group, whether its cases are beyond the sample that `make test` runs, and a number."""

Groups = dict[Key, Group]


def types_of(case: Case) -> dict[str, type]:
    """The types of the fields of a case: numbers are alike, and `s`, `t` and `e` are times unless they are fields."""
    values = [(name, value) for event in case.parsed_events() for name, value in event.fields.items()]
    known = {name: float if type(value) is int else type(value) for name, value in values if value is not None}
    return {"s": object, "t": object, "e": object, **known}


def keys_of_cases() -> dict[int, Key]:
    """The group of each case: the first one of its kind in which no field has another type."""
    known: dict[Key, dict[str, type]] = {}
    found: dict[int, Key] = {}
    for _, case in ACCEPTED:
        own = types_of(case)
        keys = ((kind_of(case), is_beyond_sample(case), number) for number in count())
        key = next(key for key in keys if all(known.get(key, {}).get(name, kind) is kind for name, kind in own.items()))
        known.setdefault(key, {}).update(own)
        found[id(case)] = key
    return found


KEYS = keys_of_cases()


@pytest.fixture(scope="module")
def groups(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Groups:
    return {
        key: Group(
            spark, tmp_path_factory.mktemp("rules"), key[0], [case for _, case in ACCEPTED if KEYS[id(case)] == key]
        )
        for key in dict.fromkeys(KEYS.values())
    }


@each(ACCEPTED, is_slow=is_beyond_sample)
def test_stream(case: Case, groups: Groups) -> None:
    group = groups[KEYS[id(case)]]
    found = group.found(case)
    heads = heads_of(case)
    rows = [
        row for name, tables in found.items() for table, _ in tables for row in render_results({name: table}, heads)
    ]
    assert sorted(rows) == sorted(case.rows)
    for head in heads:
        for table, batch in found[head]:
            assert {group.batch_of(end) for end in ticks_of(table, "end")} <= {batch}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DELAYS)
def test_groups_run_in_several_micro_batches(kind: str, groups: Groups) -> None:
    group = groups[kind, True, 0]
    group.found(group.cases[0])
    assert group.ran is not None
    assert len([report for report in group.ran.progress if report["numInputRows"]]) == FILES + 1
    assert group.ran.total("late") == 0
