"""Columns that no query uses never stop a run; a query that uses one that Ensue cannot read gets a located error."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import ensue
from inside import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = pa.table({"t": [1, 2, 3, 4], "type": ["A", "B", "A", "B"], "id": [7, 7, 8, 8]})
QUERY = "PATTERN SEQ(A a, B b) PARTITION BY id"
UNUSED = f"{QUERY} RETURN a.id AS id, b.t AS t"
FOUND = [{"id": 7, "t": 2}, {"id": 8, "t": 4}]
USES = [
    (f"{QUERY} RETURN a.odd AS odd", "1:48"),
    ("PATTERN SEQ(A a, B b [odd = 1]) PARTITION BY id", "1:23"),
    ("PATTERN SEQ(A a, B b) PARTITION BY odd", "1:23"),
    ("STREAM S FROM log WHERE odd = 1; PATTERN SEQ(S a, S b)", "1:25"),
]


class Fraction(pd.api.extensions.ExtensionDtype):  # type: ignore[misc]
    """A type of pandas that Arrow does not know."""

    name = "fraction"
    type = object

    @classmethod
    def construct_array_type(cls) -> type:
        return Fractions


class Fractions(pd.api.extensions.ExtensionArray):  # type: ignore[misc]
    def __init__(self, size: int = 4) -> None:
        self.rows = size

    dtype = Fraction()

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, item: Any) -> Any:
        return complex(0, 1) if isinstance(item, int | np.integer) else Fractions(len(np.arange(self.rows)[item]))

    def copy(self) -> Fractions:
        return self


def in_pandas(values: Any) -> pd.DataFrame:
    return EVENTS.to_pandas().assign(odd=values)


def in_polars(values: pl.Series) -> pl.DataFrame:
    return pl.DataFrame(EVENTS).with_columns(values.alias("odd"))


def in_arrow(values: pa.Array) -> pa.Table:
    return EVENTS.append_column("odd", values)


UNION = pa.UnionArray.from_dense(
    pa.array([0, 1, 0, 1], pa.int8()), pa.array([0, 0, 1, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a", "b"])]
)
UNUSABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "pandas: mixed": (lambda: in_pandas([1, "x", 2.5, None]), "mixed-column"),
    "pandas: objects": (lambda: in_pandas([object()] * 4), "mixed-column"),
    "pandas: structs of several types": (lambda: in_pandas([{"a": 1}, {"a": "x"}, {}, None]), "mixed-column"),
    "pandas: complex": (lambda: in_pandas([1j] * 4), "mixed-column"),
    "pandas: sparse": (lambda: in_pandas(pd.arrays.SparseArray([0, 0, 1, 0])), "mixed-column"),
    "pandas: unknown extension": (lambda: in_pandas(Fractions()), "mixed-column"),
    "pandas: a name twice": (
        lambda: pd.concat([in_pandas([1, 2, 3, 4]), in_pandas([1, 2, 3, 4])[["odd"]]], axis=1),
        "duplicate-column",
    ),
    "polars: Int128": (lambda: in_polars(pl.Series([1] * 4, dtype=pl.Int128)), "mixed-column"),
    "polars: Python objects": (lambda: in_polars(pl.Series([object()] * 4, dtype=pl.Object)), "mixed-column"),
    "Arrow: union": (lambda: in_arrow(UNION), "mixed-column"),
    "Arrow: list of unions": (
        lambda: in_arrow(pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), UNION)),
        "mixed-column",
    ),
    "Arrow: dictionary of structs": (
        lambda: in_arrow(pa.DictionaryArray.from_arrays(pa.array([0] * 4), pa.array([{"a": 1}]))),
        "mixed-column",
    ),
    "Arrow: a name twice": (
        lambda: in_arrow(pa.array([1] * 4)).append_column("odd", pa.array([2] * 4)),
        "duplicate-column",
    ),
}
COMPLETE = {
    "pandas: bytes": lambda: in_pandas([b"x", b"", None, b"y"]),
    "pandas: periods": lambda: in_pandas(pd.period_range("2026-01", periods=4, freq="M")),
    "Arrow: map": lambda: in_arrow(pa.array([[("k", 1)]] * 4, pa.map_(pa.string(), pa.int64()))),
    "Arrow: nested": lambda: in_arrow(pa.array([{"x": [{"y": 1}]}] * 4)),
    "Arrow: intervals": lambda: in_arrow(pa.array([(1, 2, 3)] * 4, pa.month_day_nano_interval())),
}


def rows(found: Any) -> list[dict[str, Any]]:
    if isinstance(found, pd.DataFrame):
        found = pa.Table.from_pandas(found, preserve_index=False)
    return sorted((found.to_dicts() if isinstance(found, pl.DataFrame) else found.to_pylist()), key=repr)


@pytest.mark.parametrize("name", [*UNUSABLE, *COMPLETE])
def test_unused_columns_change_nothing(name: str) -> None:
    events = (UNUSABLE[name][0] if name in UNUSABLE else COMPLETE[name])()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows(ensue.detect(events, UNUSED, time="t", type="type")) == FOUND
        assert len(ensue.detect({"A": events}, "PATTERN A a RETURN a.t AS t", time="t")) == 4
        detector = ensue.Detector(UNUSED, time="t", type="type")
        assert len(detector.advance(events, watermark=5).matches) == 2
        assert len(ensue.process.mine(events, time="t", type="type", partition_by="id")) > 0
        ensue.why_not(events, UNUSED, time="t", type="type")
        ensue.report(events, UNUSED, time="t", type="type")


@pytest.mark.parametrize(("query", "place"), USES)
@pytest.mark.parametrize("name", UNUSABLE)
def test_uses_are_located(name: str, query: str, place: str) -> None:
    columns = {"time": "t"} if query.startswith("STREAM") else {"time": "t", "type": "type"}
    with pytest.raises(ensue.QueryError) as caught:
        ensue.detect(UNUSABLE[name][0](), query, **columns)
    assert caught.value.code == UNUSABLE[name][1]
    assert f"query:{place}" in str(caught.value)
    assert "`odd`" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("role", ["time", "type", "end", "order", "probability"])
@pytest.mark.parametrize("name", UNUSABLE)
def test_roles_are_refused(name: str, role: str) -> None:
    with pytest.raises(ensue.SchemaError) as caught:
        ensue.detect(UNUSABLE[name][0](), UNUSED, **{"time": "t", "type": "type", role: "odd"})
    assert caught.value.code == UNUSABLE[name][1]
    with pytest.raises(ensue.SchemaError) as caught:
        ensue.process.mine(UNUSABLE[name][0](), time="t", type="type", partition_by="odd")
    assert caught.value.code == UNUSABLE[name][1]


@pytest.mark.parametrize("name", UNUSABLE)
def test_whole_events_lack_them_and_say_so(name: str) -> None:
    with pytest.warns(ensue.EnsueWarning, match="events in the results lack column `odd`: ") as caught:
        found = ensue.detect(UNUSABLE[name][0](), QUERY, time="t", type="type")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    (event, _) = (row["a"] for row in rows(found))
    assert list(event) == ["t", "type", "id"]


def test_tables_of_a_program() -> None:
    query = "TABLE vip(id); PATTERN A a [id IN vip.id] RETURN a.t AS t"
    vip = pd.DataFrame({"id": [7, 9], "odd": [1, "x"]})
    found = ensue.detect(EVENTS, query, time="t", type="type", tables={"vip": vip})
    assert found.to_pylist() == [{"t": 1}]
    with pytest.raises(ensue.SchemaError, match="column `odd` cannot be converted"):
        ensue.detect(
            EVENTS, query.replace("(id)", "(odd)").replace(".id", ".odd"), time="t", type="type", tables={"vip": vip}
        )


# --- the command line


def detected(events: Path, query: str, *arguments: str) -> Result:
    program = events.parent / "program.ensue"
    program.write_text(query, encoding="utf-8")
    given = ("--events", str(events), "--time", "t", "--type", "type", "--format", "json", *arguments)
    return CliRunner().invoke(app, ["detect", str(program), *given])


def matches(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout).values()
    return sorted(found, key=repr)


LONG = "x" * 200
"""Makes a file longer than the first block, from which Arrow infers the types."""


def write_csv(place: Path, odd: list[Any], header: str = "t,type,id,odd,pad") -> Path:
    lines = [f"{row + 1},{'AB'[row % 2]},{7 + row // 2},{value},{LONG}" for row, value in enumerate(odd)]
    (place / "events.csv").write_text("\n".join([header, *lines]), encoding="utf-8")
    return place / "events.csv"


def test_csv_columns_of_several_types_are_text(tmp_path: Path) -> None:
    events = write_csv(tmp_path, [*range(9_998), "x", 2.5])
    assert len(matches(detected(events, UNUSED))) == 5_000
    found = matches(detected(events, f"{QUERY} WHERE b.odd = '2.5' RETURN a.odd AS odd"))
    assert found == [{"odd": "x"}]
    frame = pd.read_csv(events, low_memory=False)
    assert frame["odd"].tolist()[-2:] == ["x", "2.5"]


def test_csv_columns_of_integers_and_floats_are_floats(tmp_path: Path) -> None:
    events = write_csv(tmp_path, [*range(9_999), 2.5])
    assert matches(detected(events, f"{QUERY} WHERE b.odd = 2.5 RETURN b.odd AS odd")) == [{"odd": 2.5}]


def test_csv_with_a_name_twice(tmp_path: Path) -> None:
    events = write_csv(tmp_path, [1, 2, 3, 4], "t,type,id,pad,pad")
    assert matches(detected(events, UNUSED)) == FOUND
    result = detected(events, f"{QUERY} RETURN a.pad AS pad, a.pad_2 AS other")
    assert result.exit_code == 0
    assert "has columns of the same name; the later ones are called `pad_2`" in result.stderr


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("odd", [[1, "x", 2.5, None], [{"a": 1}, {"a": "x"}, [], 3]])
def test_json_columns_of_several_types(tmp_path: Path, odd: list[Any], as_list: bool) -> None:
    records = [{**row, "odd": value} for row, value in zip(EVENTS.to_pylist(), odd, strict=True)]
    events = tmp_path / "events.json"
    events.write_text(json.dumps(records) if as_list else "\n".join(map(json.dumps, records)), encoding="utf-8")
    assert matches(detected(events, UNUSED)) == FOUND
    result = detected(events, f"{QUERY} RETURN a.odd AS odd")
    assert (result.exit_code, "mixed-column" in result.stderr) == (1, True)
    assert "program.ensue:1:48" in result.stderr


def test_json_fields_that_the_first_record_does_not_have(tmp_path: Path) -> None:
    records = [{**row, **({"late": row["t"]} if row["t"] > 1 else {})} for row in EVENTS.to_pylist()]
    (tmp_path / "events.json").write_text(json.dumps(records), encoding="utf-8")
    assert matches(detected(tmp_path / "events.json", f"{QUERY} RETURN b.late AS late")) == [{"late": 2}, {"late": 4}]


def test_times_in_json_next_to_a_column_of_several_types(tmp_path: Path) -> None:
    records = [
        {**row, "t": f"2026-01-01T00:00:0{row['t']}", "odd": "xy"[:1] if row["t"] > 2 else 1}
        for row in EVENTS.to_pylist()
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    found = matches(detected(tmp_path / "events.jsonl", UNUSED))
    assert [row["t"] for row in found] == ["2026-01-01T00:00:02", "2026-01-01T00:00:04"]


def test_parquet(tmp_path: Path) -> None:
    odd = pa.array([{"x": [b"y"]}] * 4)
    pyarrow.parquet.write_table(in_arrow(odd).append_column("odd", odd), tmp_path / "events.parquet")
    assert matches(detected(tmp_path / "events.parquet", UNUSED)) == FOUND
    assert "duplicate-column" in detected(tmp_path / "events.parquet", f"{QUERY} RETURN a.odd AS odd").stderr


# --- empty cells


CELLS = """\
t,type,id,note,number
1,A,,"",1
2,B,"",,2
3,A,x," ",
4,B,x,NULL,4
"""


def test_empty_cells_are_null_as_in_pandas(tmp_path: Path) -> None:
    """Strangers do not meet in the empty key. Quotes make no difference."""
    events = tmp_path / "events.csv"
    events.write_text(CELLS, encoding="utf-8")
    query = "PATTERN SEQ(A a, B b) PARTITION BY id RETURN a.t AS t, b.t AS at"
    result = detected(events, query)
    assert matches(result) == [{"t": 3, "at": 4}]
    assert "2 rows ignored: no key" in result.stderr
    assert rows(ensue.detect(pd.read_csv(events), query, time="t", type="type")) == [{"t": 3, "at": 4}]
    empty = "PATTERN A a [note IS NULL AND id IS NULL] RETURN a.t AS t, a.note AS note"
    assert matches(detected(events, empty)) == [{"t": 1, "note": None}]
    assert ensue.detect(pd.read_csv(events), empty, time="t", type="type")["t"].tolist() == [1]
    assert matches(detected(events, "PATTERN A a [number IS NULL AND note = ' '] RETURN a.t AS t")) == [{"t": 3}]
    assert matches(detected(events, "PATTERN B a [note = 'NULL'] RETURN a.t AS t")) == [{"t": 4}]


def test_empty_cells_in_a_folder(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / "log" / f"day={day}").mkdir(parents=True)
        (tmp_path / "log" / f"day={day}" / "part.csv").write_text(CELLS, encoding="utf-8")
    found = matches(detected(tmp_path / "log", "PATTERN A a [id IS NULL] RETURN a.day AS day"))
    assert found == [{"day": 1}, {"day": 2}]


def test_empty_text_in_json_is_text(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"t": 1, "type": "A", "id": ""}', encoding="utf-8")
    assert matches(detected(tmp_path / "events.jsonl", "PATTERN A a [id = ''] RETURN a.t AS t")) == [{"t": 1}]


def test_empty_cells_are_null_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    events = tmp_path / "events.csv"
    events.write_text(CELLS, encoding="utf-8")
    frame = spark.read.csv(str(events), header=True, inferSchema=True)
    empty = "PATTERN A a [note IS NULL AND id IS NULL] RETURN a.t AS t, a.note AS note"
    found = ensue.detect(frame, empty, time="t", type="type").toArrow()
    assert found.to_pylist() == matches(detected(events, empty)) == [{"t": 1, "note": None}]
