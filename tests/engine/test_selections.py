"""Streams of rows: engine = oracle for random conditions, patterns and histories; batches with restarts = one run."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest
from hypothesis import given, strategies

import ensue
from ensue import Detector
from inside import parse_statements
from oracle.model import OracleEvent
from oracle.programs import program_matches
from oracle.selections import with_selections

CONDITIONS = (
    "x > 1",
    "x = y",
    "NOT x = 1",
    "x IS NULL OR y > 0",
    "name LIKE 'a%'",
    "name IN ('ab', 'b') AND x < 3",
    "type = 'A'",
    "x + y BETWEEN 1 AND 4",
    "t % 2 = 0",
)
COLUMNS = ("x", "y AS x", "x + y AS x", "coalesce(x, y) AS x", "x % 2 AS x", "y, x", "upper(name) AS name, x")
PATTERNS = (
    "SEQ({0} a, {1} b) WITHIN 6",
    "AND({0} a, {1} b) WITHIN 4",
    "SEQ({0} a, NOT {1} n, {0} b) WITHIN 6",
    "AND({0} a, NOT {1} n) WITHIN 4",
    "SEQ({0} a, B b, {1} c) WITHIN 6",
    "SEQ({0} a, ANY EVENT BUT ({1}) b) WITHIN 3",
    "SEQ({0} a, {1} b) WITHIN 6 CONSUME",
    "OR({0} a, SEQ({1} b, A c)) WITHIN 4",
    "SEQ({0} a, {1} b) WHERE a.x = b.x WITHIN 6",
    "SEQ({0} a, COLLECT {1} l, C c) WITHIN 6",
    "SEQ({0} a, {1}{{1,2}}, B b) WITHIN 6",
)
POSITIONS = ("SEQ({0} a, {1} b) WITHIN 3 EVENTS", "NEXT({0} a, {1} b)", "SEQ({0} a, {1} b) MATCH STRICT")
NUMBERS = strategies.one_of(strategies.none(), strategies.integers(0, 3))
ROWS = strategies.lists(
    strategies.fixed_dictionaries(
        {
            "gap": strategies.integers(1, 2),
            "type": strategies.sampled_from("ABC"),
            "x": NUMBERS,
            "y": NUMBERS,
            "name": strategies.sampled_from(["ab", "b", "a", None]),
        }
    ),
    max_size=9,
)


@strategies.composite
def programs(draw: strategies.DrawFn) -> tuple[str, str]:
    """Two streams of rows, and a pattern over them, with or without a key that each of them computes."""
    streams = []
    positions = draw(strategies.booleans())
    for name in ("S1", "S2"):
        where = draw(strategies.one_of(strategies.none(), strategies.sampled_from(CONDITIONS)))
        columns = None if positions else draw(strategies.one_of(strategies.none(), strategies.sampled_from(COLUMNS)))
        condition = "" if where is None else f" WHERE {where}"
        streams.append(f"STREAM {name} FROM log{condition}" + ("" if columns is None else f" RETURN {columns}"))
    pattern = draw(strategies.sampled_from(POSITIONS if positions else PATTERNS)).format(*draw(pairs()))
    keyed = draw(strategies.booleans())
    return ";\n".join(streams), f"PATTERN {pattern}{' PARTITION BY x' if keyed else ''}"


def pairs() -> strategies.SearchStrategy[tuple[str, str]]:
    return strategies.sampled_from([("S1", "S2"), ("S2", "S1"), ("S1", "S1"), ("S1", "A"), ("A", "S1")])


def table_of(rows: list[dict[str, object]]) -> pa.Table:
    schema = pa.schema(
        [("time", pa.int64()), ("type", pa.string()), ("x", pa.int64()), ("y", pa.int64()), ("name", pa.string())]
    )
    return pa.Table.from_pylist(rows, schema)


def bindings(found: pa.Table) -> list[str]:
    """What each match binds, by the times of the events, which differ."""
    rows = found.to_pylist()
    names = sorted(field.name for field in found.schema if pa.types.is_nested(field.type))
    return sorted(str({name: times(row[name]) for name in names if row[name] is not None}) for row in rows)


def times(bound: object) -> object:
    return bound["time"] if isinstance(bound, dict) else [event["time"] for event in bound]  # type: ignore[attr-defined]


@given(programs(), ROWS, strategies.integers(0, 3))
def test_engine_finds_what_the_oracle_finds(program: tuple[str, str], gaps: list[dict[str, object]], size: int) -> None:
    rows: list[dict[str, object]] = []
    time = 0
    for row in gaps:
        time += int(str(row["gap"]))
        rows.append({"time": time, **{name: value for name, value in row.items() if name != "gap"}})
    text = ";\n".join(program)
    statements = parse_statements(text)
    events = [
        OracleEvent(number, str(row["type"]), int(str(row["time"])), int(str(row["time"])), fields_of(row))
        for number, row in enumerate(rows)
    ]
    matches = program_matches(statements.statements, with_selections(statements.selections, events))[-1]
    expected = sorted(
        str({name: labelled(rows, bound) for name, bound in sorted(match.bindings) if isinstance(name, str)})
        for match in matches
    )
    table = table_of(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ensue.EnsueWarning)
        whole = ensue.detect(table, text, time="time", type="type")
        assert bindings(whole) == expected
        steps = []
        detector = Detector(text, time="time", type="type")
        for place in range(0, len(rows) + 1, size + 1):
            part = table.slice(place, size + 1)
            reached = part["time"].to_pylist()[-1] - 1 if part.num_rows else time
            steps += bindings(detector.advance(part, watermark=reached).matches)
            saved, detector = detector.snapshot(), Detector(text, time="time", type="type")
            detector.restore(saved)
        steps += bindings(detector.finish().matches)
    assert sorted(steps) == expected


def fields_of(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in ("time", "type")}


def labelled(rows: list[dict[str, object]], bound: object) -> object:
    if isinstance(bound, int):
        return rows[bound]["time"]
    return [rows[number]["time"] for number in bound]  # type: ignore[attr-defined]


PROGRAM = [
    ensue.rows("Failed", "log").where("m LIKE 'F%'").returning("lower(u) AS user"),
    ensue.rows("Accepted", "log").where("m = 'A'").returning("lower(u) AS user", "m"),
    ensue.seq("Failed f", "Accepted a").partition_by("user").within(10),
]
LOG = pa.table({"at": [1, 2, 3, 4], "m": ["F", "F", "A", "A"], "u": ["Bob", "eve", "BOB", None]})


def test_python_explanation_and_state() -> None:
    source = ensue.events(LOG, time="at")
    text = "\n".join(part.to_text() + ";" for part in PROGRAM)
    assert ensue.parse(text).to_text() == ensue.parse(ensue.parse(text).to_text()).to_text()
    assert source.detect(PROGRAM).to_pylist() == source.detect(text).to_pylist()
    assert "Failed: rows of log where m LIKE 'F%', with lower(u) AS user" in ensue.explain(PROGRAM)
    assert "stream Failed: 2 of 4 events" in str(source.why_not(PROGRAM))
    match = source.detect(PROGRAM, match_id=True).to_pylist()[0]
    assert "Failed at 1 (user = 'bob')" in str(source.justify(PROGRAM, match["match_id"]))
    detector = source.detector(PROGRAM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ensue.EnsueWarning)
        detector.advance(LOG.slice(0, 2), watermark=2)
        assert detector.kept_events().column_names == ["at", "m", "u"]
        assert ensue.waiting(detector, PROGRAM).column("awaited").to_pylist() == ["Accepted a after 2"] * 2
        other = source.detector([PROGRAM[0].where("u != 'x'"), *PROGRAM[1:]])
        with pytest.raises(ensue.StateError, match="another query"):
            other.restore(detector.snapshot())


def test_violations_of_rows_with_a_computed_key() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ensue.EnsueWarning)
        found = ensue.violations(
            LOG, PROGRAM[:2], time="at", constraints="CONSTRAINT EXCLUSIVE(Failed, Accepted) PARTITION BY user"
        )
    assert [(row["user"], row["event"], row["at"]) for row in found.to_pylist()] == [("bob", "Accepted", 3)]


def test_type_columns_of_integers_and_booleans() -> None:
    table = pa.table({"t": [1, 2, 3], "code": [404, 200, 404], "ok": [False, True, None]})
    for column, query in (("code", "SEQ(`404` a, `200` b)"), ("ok", "SEQ(`false` a, `true` b)")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ensue.EnsueWarning)
            found = ensue.detect(table, f"PATTERN {query} RETURN b.t AS at", time="t", type=column)
        assert found.to_pylist() == [{"at": 2}]


def test_any_event_without_a_type_column() -> None:
    found = ensue.detect(LOG, "PATTERN SEQ(ANY EVENT a, ANY EVENT b) WITHIN 2 EVENTS RETURN b.at AS at", time="at")
    assert found.column("at").to_pylist() == [2, 3, 4]
