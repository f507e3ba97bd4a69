"""What is said about columns before Spark starts: schemas, headers, footers, JSON, expressions. No Spark is started.

UPDATE_ERRORS=1 writes what is said today into `columns.txt`.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import ensue
from inside import DdlError, check_columns, read_ddl, read_pipeline_text

CASES = Path(__file__).with_name("columns.txt")
AT = dt.datetime(2025, 3, 10, 8)
ROW: dict[str, Any] = {"at": AT, "kind": "Order", "id": 1, "amount": 2.5, "user": {"name": "Ann"}}
QUERY = """\
query: |
  PATTERN pair SEQ(Order o, Paid p) PARTITION BY id WHERE o.amount > 5 WITHIN 1 hour RETURN o.id AS id
outputs: {pair: console}
sources:
"""


def cases() -> list[tuple[str, str]]:
    found = []
    for case in CASES.read_text(encoding="utf-8").removesuffix("\n").split("\n====\n"):
        text, _, said = case.partition("\n----")
        found.append((text + "\n", said.strip("\n")))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all formats, some of which do not fit each other."""
    root = tmp_path_factory.mktemp("columns")
    texts = {
        "csv/a.csv": "at,kind,id,amount\n2025-03-10T08:00:00,Order,1,2.5\n",
        "headers/a.csv": "at,kind,id,amount\n2025-03-10T08:00:00,Order,1,2.5\n",
        "headers/b.csv": "kind,at,id,amount\nOrder,2025-03-10T08:00:00,1,2.5\n",
        "mixed_csv/a.csv": "at,kind,id,amount\n2025-03-10T08:00:00,Order,1,2.5\n",
        "mixed_csv/b.csv": "at,kind,id,amount\n2025-03-10T08:00:00,Order,1,unknown\n",
        "json/a.json": '{"at": "2025-03-10T08:00:00", "kind": "Order", "id": 1, "amount": 2, '
        '"user": {"name": "Ann"}}\n',
        "mixed_json/a.json": '{"at": "2025-03-10T08:00:00", "kind": "Order", "id": 1, "amount": 2}\n',
        "mixed_json/b.json": '{"at": "2025-03-10T08:00:00", "kind": "Order", "id": 1, "amount": "2 EUR"}\n',
        "vip.csv": "ident,since\n1,2024\n",
        "days/day=1/a.csv": "at,kind,id,amount\n2025-03-10T08:00:00,Order,1,2.5\n",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)
    tables = {
        "good.parquet": [ROW],
        "mixed/a.parquet": [ROW],
        "mixed/b.parquet": [ROW | {"id": "x1"}],
    }
    for name, rows in tables.items():
        (root / name).parent.mkdir(exist_ok=True)
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), root / name)
    (root / "wider").mkdir()
    for name, kind in (("a", pa.int64()), ("b", pa.int32())):
        table = pa.Table.from_pylist([ROW])
        table = table.set_column(2, "id", table.column("id").cast(kind))
        pyarrow.parquet.write_table(table, root / "wider" / f"{name}.parquet")
    (root / "empty").mkdir()
    return root


def said_of(text: str, folder: Path) -> str:
    with pytest.raises(ensue.QueryError) as caught:
        check_columns(read_pipeline_text(text, folder / "pipeline.yaml", {}))
    return str(caught.value).replace(f"{folder}/", "")


def accepted(source: str, folder: Path) -> None:
    check_columns(read_pipeline_text(f"{QUERY}  - {source}\n", folder / "pipeline.yaml", {}))


@pytest.mark.skipif("UPDATE_ERRORS" in os.environ, reason="the cases are being written")
@pytest.mark.parametrize(("text", "said"), cases(), ids=range(len(cases())))
def test_what_is_said(text: str, said: str, folder: Path) -> None:
    assert said_of(text, folder) == said


@pytest.mark.skipif("UPDATE_ERRORS" not in os.environ, reason="UPDATE_ERRORS=1 writes the cases")
def test_write_cases(folder: Path) -> None:
    written = [f"{text}----\n{said_of(text, folder)}" for text, _ in cases()]
    CASES.write_text("\n====\n".join(written) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    "source",
    [
        "{format: parquet, path: good.parquet, time: at, type: kind}",
        "{format: csv, path: csv, time: at, type: kind, options: {header: true, inferSchema: true}}",
        "{format: csv, path: days, time: day, type: kind, options: {header: true, inferSchema: true}}",
        "{format: csv, path: 'days/*/*.csv', time: at, type: kind, options: {header: true, inferSchema: true}}",
        "{format: csv, path: csv, time: at, type: kind, schema: 'at TIMESTAMP, kind STRING, id INT, amount DOUBLE'}",
        "{format: json, path: json, time: time, type: kind, columns: {time: CAST(AT AS TIMESTAMP), n: user.Name}}",
        "{format: json, path: mixed_json, time: at, type: kind, "
        "schema: 'at TIMESTAMP, kind STRING, id INT, amount DOUBLE'}",
        "{format: parquet, path: wider, time: at, type: kind, "
        "schema: 'at TIMESTAMP, kind STRING, id BIGINT, amount DOUBLE'}",
        "{format: json, path: 's3a://x/y', time: at, type: kind, schema: 'at TIMESTAMP, kind STRING, id INT'}",
        "{format: delta, path: 's3a://x/y', time: whenever, type: kind}",
        "{format: json, path: json, time: t, type: kind, options: {samplingRatio: 0.1}}",
        "{format: csv, path: csv, time: t, type: kind, options: {pathGlobFilter: '*.txt'}}",
        "{format: rate, time: timestamp, type: kind, columns: {kind: \"'Order'\", id: value, amount: value % 7}}",
    ],
)
def test_what_is_accepted(source: str, folder: Path) -> None:
    """Also what only Spark knows: addresses, other formats, options that change what it reads."""
    accepted(source, folder)


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(at AS TIMESTAMP)",
        "transform(array(id), ident -> ident + 1)",
        "aggregate(array(id), 0, (idx, ide) -> idx + ide)",
        "INTERVAL 1 days + at",
        "CASE WHEN kind = 'kinds' THEN \"kinde\" ELSE kind END -- kindes",
        "`at`",
        "user.name.first",
        "date_add(DATE '2025-03-10', id)",
        "EXTRACT(DAY FROM at)",
    ],
)
def test_words_of_spark_are_not_columns(expression: str, folder: Path) -> None:
    text = f"{QUERY}  - format: json\n    path: json\n    time: id\n    type: kind\n    columns:\n      n: |-\n        "
    text += expression.replace("user.name.first", "user.name") + "\n"
    check_columns(read_pipeline_text(text.replace("1 hour", "5"), folder / "pipeline.yaml", {}))


def test_columns_that_occur_late_in_json_are_accepted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only the first rows were read, a name is reported only if it is nearly that of a known column."""
    monkeypatch.setattr("ensue.apps.pipelines.source_columns.MOST_BYTES", 200)
    row = '{"at": 1, "kind": "Order", "id": 1}\n'
    (tmp_path / "a.json").write_text(row * 10 + '{"at": 9, "kind": "Order", "id": 1, "amount": 7}\n')
    text = QUERY.replace("1 hour", "5") + "  - {format: json, path: a.json, time: at, type: kind}"
    check_columns(read_pipeline_text(text, tmp_path / "pipeline.yaml", {}))
    assert "did you mean `kind`" in said_of(text.replace("type: kind", "type: kinds"), tmp_path)


def test_a_mixed_column_that_no_query_uses_is_accepted(folder: Path) -> None:
    for format, path, time in (("parquet", "mixed", "at"), ("json", "mixed_json", "id")):
        text = "query: PATTERN p (Order o) RETURN o.kind AS kind\noutputs: {p: console}\nsources:\n"
        text += f"  - {{format: {format}, path: {path}, time: {time}, type: kind}}"
        check_columns(read_pipeline_text(text, folder / "pipeline.yaml", {}))


def test_values_of_variables_are_not_shown(folder: Path) -> None:
    text = f"{QUERY}  - {{format: parquet, path: good.parquet, time: at, type: '${{KIND}}'}}"
    with pytest.raises(ensue.QueryError) as caught:
        check_columns(read_pipeline_text(text, folder / "pipeline.yaml", {"KIND": "hunter2"}))
    assert "no column `${KIND}`" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("id BIGINT, at TIMESTAMP NOT NULL COMMENT 'a, b'", "id: int64, at: timestamp[us, tz=UTC]"),
        ("a: array<short>, `m n` map<string, int>", "a: list<item: int16>, m n: map<string, int32>"),
        ("struct<a: int, b: struct<c: string>>", "a: int32, b: struct<c: string>"),
        ("x decimal(10, 2), y DEC, i INTERVAL DAY TO SECOND", "x: decimal128(10, 2), y: decimal128(10, 0), i: null"),
        ("s STRING COLLATE UTF8_LCASE, c CHAR(3)", "s: string, c: string"),
    ],
)
def test_columns_and_types(text: str, types: str) -> None:
    schema = read_ddl(text)
    assert schema is not None
    assert ", ".join(f"{field.name}: {field.type}" for field in schema) == types


@pytest.mark.parametrize("text", ["a FOREIGN", "a int,, b", "a array<int", "a ?", ", a int"])
def test_what_only_spark_can_judge(text: str) -> None:
    assert read_ddl(text) is None


@pytest.mark.parametrize(("text", "hint"), [("a BIGIN", "did you mean `BIGINT`?"), ("a, b INT", "write `a STRING`")])
def test_columns_that_are_misspelt(text: str, hint: str) -> None:
    with pytest.raises(DdlError) as caught:
        read_ddl(text)
    assert hint in caught.value.hint
