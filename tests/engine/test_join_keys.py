"""Keys of different names: the matches of each key, from its rows alone, are together those of all rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from inside import (
    Columns,
    JoinedRows,
    JoinKey,
    NoJoinKey,
    Options,
    ProgramPlan,
    all_plans,
    checked,
    compile_plan,
    join_key,
    lower,
    marked,
    parse_statements,
    plan_queries,
)

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

MARK = "ensue:in "
FIELDS = ("x", "y", "z")
VALUES = st.one_of(st.none(), st.integers(0, 2))
ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ABC"), VALUES, VALUES, VALUES), max_size=14)
SHAPES = (
    "SEQ({A} a, {B} b)",
    "AND({A} a, {B} b)",
    "SEQ({A} a, NOT {C} n, {B} b)",
    "SEQ({A} a, COLLECT {C} n, {B} b)",
    "SEQ({A} a, NOT SEQ({C} n, NOT {B} m), {B} b)",
    "SEQ({A} a, {C} n{{1,2}}, {B} b)",
    "SEQ({A} a, AND({B} b, {C} n))",
    "AND({A} a, NOT {C} n, {B} b)",
)
RULES = (
    "RULE h(k, w) <- a: {A}({0}=k, {1}=w), b: {B}({2}=k); RULE g(k, w) <- i: h(k=k), n: {C}({3}=w), j: {A}({3}=k)",
    "RULE h(k) <- a: {A}({0}=k), b: {B}({2}=k), a before b; RULE g(k) <- i: h(k=k), while i: not {C}({3}=k)",
    "RULE h(k) <- a: {A}({0}=k), while a: not {C}({1}=k); RULE h(k) <- a: {B}({2}=k), b: {C}({3}=k)",
    "RULE h(k) <- (a: {A}({0}=k) OR a: {B}({1}=k)), b: {C}({2}=k), a before b",
    "RULE h(k) <- a: {A}({0}=k), b: {B}({1}=k), a before b MATCH RECENT",
    "RULE h() <- a: {A}({0}=k), b: {B}({1}=k); RULE g(k) <- h(), a: {A}({0}=k), b: {B}({1}=k)",
    "RULE h(k, w) <- a: {A}({0}=k, {1}=w); RULE h(k, v) <- i: h(k=k, w=w), b: {B}({2}=k, {3}=v)",
)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """A pattern in which each item has one key field; the names differ, and may be those of another condition."""
    streams = {name: draw(st.sampled_from("AB")) for name in "AB"} | {"C": draw(st.sampled_from("ABC"))}
    shape = draw(st.sampled_from(SHAPES))
    own = {name: draw(st.sampled_from(FIELDS)) for name in "abnm"}
    links = [f"a.{own['a']} = b.{own['b']}"]
    links += [f"{name}.{own[name]} = a.{own['a']}" for name in "nm" if f" {name}" in shape]
    if draw(st.booleans()):
        links.append(draw(st.sampled_from(["a.z < b.z", "a.x = b.y", "b.z > 0"])))
    windows = [" WITHIN 4", " WITHIN 4 ALLOWING TIES"]
    window = draw(st.sampled_from(windows if shape.startswith("AND") else ["", *windows]))
    returned = draw(st.sampled_from(["", " RETURN a.t AS t, b.x AS x, a.y AS y"]))
    return f"PATTERN {shape.format(**streams)} WHERE {' AND '.join(draw(st.permutations(links)))}{window}{returned}"


@st.composite
def rules(draw: st.DrawFn) -> str:
    streams = {name: draw(st.sampled_from("ABC")) for name in "ABC"}
    return draw(st.sampled_from(RULES)).format(*(draw(st.sampled_from(FIELDS)) for _ in range(4)), **streams)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    time, columns = 0, defaultdict(list)
    for gap, kind, *values in rows:
        time += gap
        columns["t"].append(time)
        columns["type"].append(kind)
        for name, value in zip(FIELDS, values, strict=True):
            columns[name].append(value)
    schema = pa.schema([("t", pa.int64()), ("type", pa.string()), *((name, pa.int64()) for name in FIELDS)])
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def planned_of(table: pa.Table, text: str) -> ProgramPlan:
    columns = Columns("t", "type")
    return plan_queries(table.schema.empty_table(), lower(checked(parse_statements(text))), columns, True)


def found_in(planned: ProgramPlan, table: pa.Table) -> list[list[str]]:
    machine = compile_plan(planned, Options())
    return [sorted(map(repr, part.to_pylist())) for part in machine.run(machine.read([table])).outputs]


def parts_of(table: pa.Table, key: JoinKey) -> dict[int | None, pa.Table]:
    """The rows of each key: a row once for each key that it has, with marks on the fields with this key."""
    parts: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for row in table.to_pylist():
        fields = key.by_stream.get(row["type"], ())
        for value in {row[name] for name in fields} - (set() if key.keeps_nulls else {None}):
            marks = {MARK + name: name in fields and row[name] == value for name in FIELDS}
            parts[value].append(row | marks)
    schema = pa.schema([*table.schema, *(pa.field(MARK + name, pa.bool_()) for name in FIELDS)])
    return {value: pa.Table.from_pylist(rows, schema) for value, rows in parts.items()}


def with_marks(planned: ProgramPlan, key: JoinKey) -> ProgramPlan:
    item = planned.inputs[0]
    plans, derivations = marked(planned.plans, planned.derivations, JoinedRows(key, ()))
    table = item.table
    for name in FIELDS:
        table = table.append_column(MARK + name, pa.array([], pa.bool_()))
    return replace(planned, inputs=(replace(item, table=table),), plans=plans, derivations=derivations)


def check_parts(text: str, rows: list[tuple[Any, ...]]) -> int:
    table = table_of(rows)
    planned = planned_of(table, text)
    key = join_key([plan.query for plan in all_plans(planned.derivations, planned.plans)])
    if isinstance(key, NoJoinKey):
        return 0
    whole = found_in(planned, table)
    by_key = with_marks(planned, key)
    found: list[list[str]] = [[] for _ in whole]
    for part in parts_of(table, key).values():
        for own, rows_of_part in zip(found, found_in(by_key, part), strict=True):
            own += rows_of_part
    assert [sorted(own) for own in found] == whole
    return sum(map(len, whole))


@given(text=patterns(), rows=ROWS)
def test_the_matches_of_each_key_are_those_of_all_rows(text: str, rows: list[tuple[Any, ...]]) -> None:
    table = table_of(rows)
    key = join_key([plan.query for plan in planned_of(table, text).plans])
    assert isinstance(key, JoinKey)
    check_parts(text, rows)


@given(text=rules(), rows=ROWS)
def test_the_events_of_rules_of_each_key_are_those_of_all_rows(text: str, rows: list[tuple[Any, ...]]) -> None:
    check_parts(text, rows)


def test_the_examples_have_matches_and_rows_with_two_keys() -> None:
    rows = [(1, "A", 1, 2, 0), (1, "A", 2, 1, 0), (1, "A", 1, 1, 1), (0, "B", 1, 2, 0), (1, "A", 2, 2, 2)]
    assert check_parts("PATTERN SEQ(A a, A b) WHERE a.x = b.y", rows) == 3
    assert check_parts("PATTERN SEQ(A a, NOT A n, A b) WHERE a.x = b.y AND n.x = a.x RETURN a.t AS t", rows) > 0
    rule = "RULE h(k, w) <- a: A(x=k, y=w), b: B(x=k); RULE g(k) <- i: h(k=k), j: A(y=k)"
    assert check_parts(rule, rows) > 3


REFUSED = {
    "PATTERN SEQ(A a, B b)": "no equality connects `a` and `b`",
    "PATTERN SEQ(A a, B b, C c) WHERE a.x = b.y": "no equality connects `a` and `c`",
    "PATTERN SEQ(A a, B b, C c) WHERE a.x = b.y AND b.z = c.x": "its equalities compare several keys",
    "PATTERN SEQ(A a, NOT C n, B b) WHERE n.x = a.x AND n.x = b.y": "through a NOT or a list",
    "PATTERN SEQ(A a, COLLECT C n, B b) WHERE n.x = a.x AND n.x = b.y": "through a NOT or a list",
    "PATTERN SEQ(A a, NOT C n, B b) WHERE a.x = b.y": "no equality connects `a` and `n`",
    "PATTERN SEQ(A a, B b, C) WHERE a.x = b.y": "`C` has no variable",
    "PATTERN SEQ(A a, OR(B b, C c)) WHERE a.x = b.y AND a.x = c.z": "only SEQ, AND, NOT",
    "PATTERN SEQ(A a, B b) WHERE a.x = b.y OR a.x = b.z": "no equality connects",
    "PATTERN SEQ(A a, B b) WHERE a.x = b.y MATCH NEXT": "the policy chooses among all events",
    "PATTERN SEQ(A a, B b) WHERE a.x = b.y CONSUME": "the policy chooses among all events",
    "PATTERN SEQ(A a, B b) WHERE a.x = b.y WITHIN 5 EVENTS": "positions of events",
    "PATTERN SEQ(A a, B b) WHERE a.x = b.y SUPPRESS FOR 5": "SUPPRESS",
    "PATTERN SEQ(A a, ANY EVENT b) WHERE a.x = b.y": "several streams",
    "RULE h(w) <- a: A(x=k, y=w), b: B(x=k); RULE g(k) <- i: h(w=k), j: A(y=k)": "no key that their streams keep",
    # Equal events of a head are one event, so each must have its key: these may come from two tasks.
    "RULE h(w) <- a: A(x=k, y=w), b: B(x=k)": "no key that their streams keep",
    "RULE h(k, w) <- a: A(x=k, y=w), b: B(x=k); RULE h(w, k) <- a: A(x=k, y=w), b: C(x=k)": "their streams keep",
}


@pytest.mark.parametrize("text", REFUSED)
def test_why_one_task_gets_all_events(text: str) -> None:
    lowered = lower(checked(parse_statements(text)))
    key = join_key(lowered.statements)
    assert isinstance(key, NoJoinKey)
    assert REFUSED[text] in key.reason
    assert "in one task" in str(ensue.explain(text))
