"""Streams of rows: engine = oracle for random conditions, patterns and histories; batches with restarts = one run."""

from __future__ import annotations

import warnings
from datetime import date
from decimal import Decimal

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
    assert "stream Failed: 2 events" in str(source.why_not(PROGRAM))
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


ORDERS = pa.table({"at": [1, 2, 5], "id": [1, 2, 2], "items": [["a", "b"], ["a"], ["b", "b"]]})
PAIRS = [
    ensue.rows("Item", "orders").unnest("items", "item", index="i").where("id > 0").returning("item", "i"),
    ensue.seq("Item x", "Item y").partition_by("item").within(4),
]


def test_elements_in_python_in_explanations_and_in_the_state() -> None:
    source = ensue.events(ORDERS, time="at")
    text = ";".join(part.to_text() for part in PAIRS)
    assert ensue.parse(text).to_text() == ensue.parse(ensue.parse(text).to_text()).to_text()
    found = source.detect(PAIRS, match_id=True)
    assert [(row["item"], row["x"]["i"], row["y"]["at"]) for row in found.to_pylist()] == [
        ("a", 0, 2),
        ("b", 1, 5),
        ("b", 1, 5),
        ("b", 0, 5),
    ]
    assert len({*found.column("match_id").to_pylist()}) == 4
    assert source.detect(text).to_pylist() == source.detect(PAIRS).to_pylist()
    assert "Item: each item in items of orders where id > 0, with item, i" in ensue.explain(PAIRS)
    assert "Item at 1 (item = 'a', i = 0)" in str(source.justify(PAIRS, found.column("match_id")[0].as_py()))
    assert "PARTITION BY item failed" in str(source.why_not(PAIRS))
    assert "items of orders" in source.report(PAIRS).html
    detector = source.detector(PAIRS)
    detector.advance(ORDERS.slice(0, 2), watermark=2)
    kept = detector.kept_events(derived=True)["items of orders"].to_pylist()
    assert [(row["at"], row["element"], row["index"]) for row in kept] == [(1, "a", 0), (1, "b", 1), (2, "a", 0)]
    assert ensue.waiting(detector, PAIRS).column("awaited").to_pylist() == ["Item y after 2"] * 3
    with pytest.raises(ensue.StateError, match="another query"):
        source.detector([PAIRS[0].where("item != 'x'"), PAIRS[1]]).restore(detector.snapshot())


def test_elements_keep_their_types() -> None:
    lists = {
        "decimals": pa.array([[Decimal("0.10"), Decimal("0.30")]], pa.list_(pa.decimal128(5, 2))),
        "dates": pa.array([[date(2024, 1, 2)]], pa.large_list(pa.date32())),
        "integers": pa.array([[2**53 + 1, 2**53]], pa.list_(pa.int64())),
        "words": pa.array([["a", None]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        "pairs": pa.array([[1, 2]], pa.list_(pa.int16(), 2)),
        "nested": pa.array([[[1], [2, 3]]]),
        "nothing": pa.array([None], pa.null()),
    }
    table = pa.table({"t": [1], **lists})
    for name, values in lists.items():
        program = f"STREAM X FROM log UNNEST {name} AS item AT n; PATTERN X x RETURN x.item AS item, x.n AS n"
        found = ensue.detect(table, program, time="t")
        assert found.column("item").to_pylist() == (values.to_pylist()[0] or [])
        assert found.column("n").to_pylist() == [*range(found.num_rows)]
    exact = "STREAM X FROM log UNNEST {} AS item WHERE item = {}; PATTERN X x RETURN x.item AS item"
    assert ensue.detect(table, exact.format("decimals", 0.1), time="t").num_rows == 1
    assert ensue.detect(table, exact.format("integers", 2**53 + 1), time="t").num_rows == 1


def test_violations_of_elements() -> None:
    found = ensue.violations(
        ORDERS, PAIRS[:1], time="at", constraints="CONSTRAINT ENDS(Item) PARTITION BY item"
    ).to_pylist()
    assert [(row["item"], row["at"]) for row in found] == [("a", 2), ("b", 5)]


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


ELEMENT_CONDITIONS = ("item > 1", "item = x", "i < 2", "item IS NULL OR x > 0", "type = 'A' AND item < 3", "n % 2 = 0")
ELEMENT_COLUMNS = ("n, i, item AS x", "n, i, coalesce(item, x) AS x", "n, i, item + x AS x, item")
ELEMENT_PATTERNS = (
    *PATTERNS[:5],
    "SEQ({0} a, {1} b, A c) WITHIN 4",
    "SEQ({0} a, {1} b) WHERE a.x = b.x WITHIN 6",
    "SEQ({0} a, {0} r{{1,2}}, B b) WITHIN 3",
    "SEQ(A a, NOT {0} n, {1} b) WITHIN 4",
    "SEQ({0} a, B b) ALLOWING TIES WITHIN 2",
)
CHOOSING = (
    "SEQ({0} a, {1} b) WITHIN 6 CONSUME",
    "SEQ({0} a, {1} b) MATCH NEXT WITHIN 4",
    "SEQ(A a, FIRST {1} b) WITHIN 6",
)
ROWS_WITH_LISTS = strategies.lists(
    strategies.fixed_dictionaries(
        {
            "gap": strategies.integers(0, 2),
            "type": strategies.sampled_from("AB"),
            "x": NUMBERS,
            "l": strategies.one_of(strategies.none(), strategies.lists(NUMBERS, max_size=3)),
        }
    ),
    max_size=6,
)
WITH_LISTS = pa.schema(
    [
        ("time", pa.int64()),
        ("type", pa.string()),
        ("n", pa.int64()),
        ("x", pa.int64()),
        ("l", pa.list_(pa.int64())),
    ]
)


@strategies.composite
def programs_with_lists(draw: strategies.DrawFn) -> tuple[str, bool]:
    """One or two streams of elements, a stream of rows, and a pattern; and whether column `n` orders the rows."""
    streams = []
    for name in ("S1", "S2"):
        unnest = "" if name == "S2" and draw(strategies.booleans()) else " UNNEST l AS item AT i"
        where = draw(strategies.one_of(strategies.none(), strategies.sampled_from(ELEMENT_CONDITIONS)))
        columns = draw(strategies.one_of(strategies.none(), strategies.sampled_from(ELEMENT_COLUMNS)))
        if not unnest:
            where, columns = draw(strategies.sampled_from((None, "x > 1", "n % 2 = 0"))), None
        condition = "" if where is None else f" WHERE {where}"
        streams.append(f"STREAM {name} FROM log{unnest}{condition}" + ("" if columns is None else f" RETURN {columns}"))
    ordered = draw(strategies.booleans())
    drawn = (*ELEMENT_PATTERNS, *CHOOSING) if ordered else ELEMENT_PATTERNS
    pattern = draw(strategies.sampled_from(drawn)).format(*draw(pairs()))
    keyed = draw(strategies.booleans())
    return ";\n".join((*streams, f"PATTERN {pattern}{' PARTITION BY x' if keyed else ''}")), ordered


def places(found: pa.Table) -> list[str]:
    """What each match binds, by the number of the row and the position in its list."""
    names = sorted(field.name for field in found.schema if pa.types.is_nested(field.type))
    return sorted(str({name: place(row[name]) for name in names if row[name] is not None}) for row in found.to_pylist())


def place(bound: object) -> object:
    return (bound["n"], bound.get("i")) if isinstance(bound, dict) else [*map(place, bound)]  # type: ignore[call-overload]


@given(programs_with_lists(), ROWS_WITH_LISTS, strategies.integers(0, 2))
def test_elements_of_lists_are_events(program: tuple[str, bool], gaps: list[dict[str, object]], size: int) -> None:
    text, ordered = program
    rows: list[dict[str, object]] = []
    time = 0
    for number, row in enumerate(gaps):
        time += int(str(row["gap"]))
        rows.append({"time": time, "n": number, **{name: value for name, value in row.items() if name != "gap"}})
    statements = parse_statements(text)
    events = [
        OracleEvent(
            number,
            str(row["type"]),
            int(str(row["time"])),
            int(str(row["time"])),
            fields_of(row),
            order=(number,) if ordered else None,
        )
        for number, row in enumerate(rows)
    ]
    known = with_selections(statements.selections, events)
    by_id = {event.id: (event.fields["n"], event.fields.get("i")) for event in known}
    expected = sorted(
        str({name: placed(by_id, bound) for name, bound in sorted(match.bindings) if isinstance(name, str)})
        for match in program_matches(statements.statements, known)[-1]
    )
    table = pa.Table.from_pylist(rows, WITH_LISTS)
    columns = {"time": "time", "type": "type", "order": "n" if ordered else None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ensue.EnsueWarning)
        assert places(ensue.detect(table, text, **columns)) == expected
        steps = []
        detector = Detector(text, **columns)
        for first in range(0, len(rows) + 1, size + 1):
            part = table.slice(first, size + 1)
            reached = part["time"].to_pylist()[-1] - 1 if part.num_rows else time
            steps += places(detector.advance(part, watermark=reached).matches)
            saved, detector = detector.snapshot(), Detector(text, **columns)
            detector.restore(saved)
        steps += places(detector.finish().matches)
    assert sorted(steps) == expected


def placed(by_id: dict[int, tuple[object, object]], bound: object) -> object:
    return by_id[bound] if isinstance(bound, int) else [by_id[number] for number in bound]  # type: ignore[attr-defined]
