"""Struct, list and map columns of every kind of table, and decimals, give the same answer."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ensue
from ensue import EnsueWarning, QueryError, event, fn, parse, rule, seq, var
from ensue.rules import atom, name

ROWS = {
    "t": [1, 2, 3],
    "type": ["A", "A", "B"],
    "user": [{"name": "ann", "ids": [1, 2]}, {"name": None, "ids": []}, None],
    "tags": [["x", "y"], [], None],
}
TABLE = pa.table(ROWS)
MAPS = TABLE.append_column(
    "labels", pa.array([[("env", "prod")], [("tier", "x")], None], pa.map_(pa.string(), pa.string()))
)
QUERY = """PATTERN A a [user.name = 'ann' OR size(tags) = 0]
  RETURN a.user.name AS name, a.user.ids[1] AS second, a.tags[0] AS tag, contains(a.tags, 'y') AS y"""
FOUND = [
    {"name": "ann", "second": 2, "tag": "x", "y": True},
    {"name": None, "second": None, "tag": None, "y": False},
]


def detect(events: Any, query: Any = QUERY) -> list[dict[str, Any]]:
    found = ensue.detect(events, query, time="t", type="type")
    if isinstance(found, pd.DataFrame):
        return [
            {key: None if value != value else value for key, value in row.items()} for row in found.to_dict("records")
        ]
    rows: list[dict[str, Any]] = found.to_pylist() if isinstance(found, pa.Table) else found.to_dicts()
    return rows


@pytest.mark.parametrize(
    "events",
    [
        TABLE,
        TABLE.cast(
            pa.schema(
                [
                    ("t", pa.int64()),
                    ("type", pa.string()),
                    ("user", pa.struct([("name", pa.large_string()), ("ids", pa.list_(pa.int8()))])),
                    ("tags", pa.large_list(pa.large_string())),
                ]
            )
        ),
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
    ],
    ids=["arrow", "other layouts", "pandas", "polars", "chunks"],
)
def test_kinds_of_tables(events: Any) -> None:
    assert detect(events) == FOUND


def test_maps() -> None:
    query = "PATTERN A a RETURN a.labels['env'] AS env, size(a.labels) AS size"
    assert detect(MAPS, query) == [{"env": "prod", "size": 1}, {"env": None, "size": 1}]


def test_restarts_and_batches() -> None:
    detector = ensue.Detector(QUERY, time="t", type="type")
    found = detector.advance(MAPS.slice(0, 1), watermark=1).matches.to_pylist()
    other = ensue.Detector(QUERY, time="t", type="type")
    other.restore(detector.snapshot())
    found += other.advance(MAPS.slice(1), watermark=3).matches.to_pylist()
    assert found == FOUND


def test_python_says_the_same_as_text() -> None:
    pattern = event("A", "a", (fn.field("user").name == "ann") & (fn.call("size", fn.field("tags")) == 2))
    query = pattern.returning(second=var("a").user.ids[1], y=fn.call("contains", var("a").tags, "y"))
    assert query == parse(query.to_text()).queries[0]
    assert detect(TABLE, query) == [{"second": 2, "y": True}]
    counted = seq(event("A", "a").one_or_more(), "B b").where(fn.count_distinct("a.user.name") >= 1).within(5)
    counted = counted.returning(names=fn.collect_set(var("a").user.name), like=var("b").type.ilike("b"))
    assert counted == parse(counted.to_text()).queries[0]
    assert detect(TABLE, counted) == [{"names": ["ann"], "like": True}]
    text = var("a").t.cast("string").concat("x").try_cast("bigint").to_text()
    assert text == "TRY_CAST(CAST(a.t AS STRING) || 'x' AS BIGINT)"


def test_names_of_rules_can_be_structs() -> None:
    program = "STREAM A(user, tags); RULE known(n = u.name) <- A(u, _), u.name IS NOT NULL"
    assert ensue.run(TABLE, program, time="t", type="type")["known"].column("n").to_pylist() == ["ann"]
    built = rule("known", n=name("u").name).when(atom("A", "u", "_"), "u.name IS NOT NULL")
    assert "known(n = u.name) <- A(u, _), u.name IS NOT NULL" in built.to_text()


def test_a_variable_wins_with_a_warning() -> None:
    with (
        pytest.warns(
            EnsueWarning, match="`user.name` is a field of the event `user`, not of the column `user`"
        ) as said,
        pytest.raises(QueryError) as raised,
    ):
        detect(TABLE, "PATTERN A user [user.name = 'ann']")
    assert raised.value.code == "no-such-field"
    assert said[0].filename == __file__


@pytest.mark.parametrize(
    ("condition", "code", "place"),
    [
        ("a.user.nam = 'x'", "no-such-field", 26),
        ("a.tags.x = 'x'", "no-such-field", 26),
        ("a.tags['x'] = 'x'", "entry-key", 26),
        ("a.tags[a.t] = 'x'", "entry-key", 26),
        ("a.user['name'] = 'x'", "entry-key", 19),
        ("a.type[0] = 'x'", "entry-key", 19),
        ("contains(a.tags, 5)", "type-clash", 19),
        ("size(a.user) = 1", "function-arguments", 24),
        ("size(a.type) = 1", "function-arguments", 24),
        ("a.t = a.type", "type-clash", 19),
        ("CAST(a.tags AS STRING) = 'x'", "type-clash", 19),
        ("CAST(a.type AS NUMERIC) = 1", "cast-type", 19),
        ("regexp_extract(a.type, 'a', 1) = 'x'", "regular-expression", 47),
        ("split(a.type, 'x*')[0] = 'x'", "regular-expression", 33),
        ("to_timestamp(a.type, 'yyyy-ww') IS NULL", "timestamp-format", 40),
        ("to_timestamp(a.type, 'HH:HH') IS NULL", "timestamp-format", 40),
        ("to_timestamp(a.type, 'a') IS NULL", "timestamp-format", 40),
        ("sum(DISTINCT a.t) = 1", "function-arguments", 19),
    ],
)
def test_mistakes_have_a_place(condition: str, code: str, place: int) -> None:
    with pytest.raises(QueryError) as raised:
        detect(TABLE, f"PATTERN A a WHERE {condition}")
    assert (raised.value.code, raised.value.column) == (code, place)


def test_a_failed_cast_shows_value_and_row() -> None:
    with pytest.raises(QueryError) as raised:
        detect(TABLE, "PATTERN B b WHERE CAST(b.type AS BIGINT) = 1")
    assert raised.value.code == "cast-value"
    assert "'B' cannot be converted to BIGINT" in str(raised.value)
    assert "in the row with b.type = B, b.t = 3" in str(raised.value)
    assert "TRY_CAST" in str(raised.value)
    guarded = "PATTERN A a RETURN CASE WHEN a.t > 5 THEN CAST(a.type AS BIGINT) END AS x"
    assert detect(TABLE, guarded) == [{"x": None}, {"x": None}]


def test_decimals_in_structs_are_exact() -> None:
    prices = pa.array([{"p": Decimal("0.1")}, {"p": Decimal("0.3")}, None], pa.struct([("p", pa.decimal128(5, 1))]))
    table = TABLE.append_column("cost", prices)
    assert detect(table, "PATTERN A a WHERE a.cost.p = 0.3 RETURN a.t AS t") == [{"t": 2}]
