"""`ensue run`, `schema`, `fmt` and `init`: success, wrong input, and what programs read. No Spark is started."""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import ensue
from inside import app

EVENTS = """\
at,kind,order_id,amount
2025-03-10T08:00:00,Order,1,10.5
2025-03-10T08:10:00,Paid,1,10.5
2025-03-10T09:00:00,Order,2,3.0
2025-03-10T09:20:00,Paid,2,3.0
2025-03-10T10:00:00,Order,3,7.0
"""
PIPELINE = """\
query: PATTERN pair SEQ(Order o, Paid p) PARTITION BY order_id WITHIN 1 hour
sources:
  - {format: csv, path: events.csv, time: at, type: kind, options: {header: true, inferSchema: true}}
outputs:
  pair: console
"""
ROUGH = "-- pairs\npattern pair seq(A a,B b)   within 60 min; -- of an hour\n"
TIDY = "-- pairs\nPATTERN pair\n  SEQ(A a, B b)\n  WITHIN 1h; -- of an hour\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.csv").write_text(EVENTS)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "rough.ensue").write_text(ROUGH)
    (tmp_path / "tidy.ensue").write_text(TIDY)
    return tmp_path


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


# --- run


def test_dry_run(folder: Path) -> None:
    result = command("run", "pipeline.yaml", "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.startswith("PIPELINE pipeline (batch)\n\nSOURCES\n  format csv")
    assert "pair: format console" in result.stdout
    assert "join o, p" in result.stdout


def test_dry_run_as_json(folder: Path) -> None:
    plan = json.loads(command("run", "pipeline.yaml", "--dry-run", "--format", "json").stdout)
    assert plan["mode"] == "batch"
    assert plan["outputs"] == {"pair": {"format": "console"}}
    assert plan["sources"][0]["time"] == "at"


def test_problems_of_a_pipeline(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("pair: console", "pear: console"))
    result = command("run", "pipeline.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error[pipeline-output]" in result.stderr
    assert "--> pipeline.yaml:5:3" in result.stderr
    assert "did you mean `pair`?" in result.stderr


def test_problems_of_a_pipeline_as_json(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("pair: console", "pear: console") + "limit: none\n")
    result = command("run", "pipeline.yaml", "--format", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [(item["code"], item["line"], item["column"]) for item in found] == [
        ("pipeline-output", 5, 3),
        ("pipeline-value", 6, 8),
    ]


def test_a_pipeline_that_is_not_there(folder: Path) -> None:
    result = command("run", "pipline.yaml")
    assert result.exit_code == 2
    assert "did you mean `pipeline.yaml`?" in result.stderr


# --- schema


def test_schema(folder: Path) -> None:
    schema = json.loads(command("schema").stdout)
    assert schema["required"] == ["sources"]
    assert schema["properties"]["sources"]["items"]["required"] == ["format", "time"]


# --- fmt


def test_fmt_keeps_comments(folder: Path) -> None:
    result = command("fmt", "rough.ensue", "tidy.ensue")
    assert result.exit_code == 0
    assert result.stderr == "changed: rough.ensue\n2 files checked\n"
    assert (folder / "rough.ensue").read_text() == TIDY
    assert command("fmt", "--check", "rough.ensue").exit_code == 0


def test_fmt_check_writes_nothing(folder: Path) -> None:
    result = command("fmt", "--check", "rough.ensue", "tidy.ensue", "--format", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == [
        {"file": "rough.ensue", "changed": True},
        {"file": "tidy.ensue", "changed": False},
    ]
    assert (folder / "rough.ensue").read_text() == ROUGH


def test_fmt_of_a_syntax_error_writes_no_file(folder: Path) -> None:
    (folder / "broken.ensue").write_text("PATERN")
    result = command("fmt", "rough.ensue", "broken.ensue")
    assert result.exit_code == 1
    assert "error[syntax]" in result.stderr
    assert (folder / "rough.ensue").read_text() == ROUGH


def test_fmt_leaves_a_statement_with_a_comment_inside(folder: Path) -> None:
    inside = "pattern pair seq(A a, -- the first\n  B b) within 5;\n"
    (folder / "inside.ensue").write_text(inside)
    assert command("fmt", "inside.ensue").exit_code == 0
    assert (folder / "inside.ensue").read_text() == inside


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1]).glob("*/**/*.ensue")), ids=lambda path: path.name)
def test_fmt_of_programs_of_the_project(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    assert command("fmt", str(copy)).exit_code == 0
    assert ensue.parse(copy) == ensue.parse(path)
    assert command("fmt", "--check", str(copy)).exit_code == 0


# --- init


def test_init_writes_a_project_that_finds_something(folder: Path) -> None:
    result = command("init", "--events", "events.csv", "--to", "first")
    assert result.exit_code == 0, result.stderr
    assert "time: at, type: kind, key: order_id" in result.stderr
    told = (folder / "first" / "README.md").read_text()
    assert "- key: `order_id` (3 distinct values, and the name suggests a key)" in told
    assert command("run", "first/pipeline.yaml", "--dry-run").exit_code == 0
    assert command("fmt", "--check", "first/program.ensue").exit_code == 0
    found = command(
        "detect", "first/program.ensue", "--events", "events.csv", "--time", "at", "--type", "kind", "--format", "json"
    )
    matches = json.loads(found.stdout)
    assert [row["order_id"] for row in matches["followed"]] == [1, 2]
    assert [row["order_id"] for row in matches["not_followed"]] == [3]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "json"])
def test_init_reads_every_format(folder: Path, kind: str) -> None:
    rows = pyarrow.csv.read_csv(folder / "events.csv").to_pylist()
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), "events.parquet")
    else:
        lines = [json.dumps(row, default=str) for row in rows]
        (folder / f"events.{kind}").write_text("\n".join(lines) if kind == "jsonl" else f"[{','.join(lines)}]")
    result = command("init", "--events", f"events.{kind}", "--to", kind, "--format", "json")
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    assert said.pop("why").keys() == {"time", "type", "key"}
    assert said.pop("next")[0].startswith(f"ensue detect {kind}/program.ensue --events events.{kind} ")
    assert said == {
        "time": "at",
        "type": "kind",
        "key": "order_id",
        "order": None,
        "folder": kind,
        "rows": 5,
        "matches": {"followed": 2, "not_followed": 1},
    }
    assert command("run", f"{kind}/pipeline.yaml", "--dry-run").exit_code == 0


def test_init_reads_a_folder_as_spark_writes_it(folder: Path) -> None:
    table = pyarrow.csv.read_csv(folder / "events.csv")
    for number, day in enumerate(("2025-03-10", "2025-03-11")):
        (folder / "events" / f"day={day}").mkdir(parents=True)
        pyarrow.parquet.write_table(table.slice(number * 2, 2), folder / "events" / f"day={day}" / "part-0.parquet")
    (folder / "events" / "_SUCCESS").touch()
    result = command("init", "--events", "events", "--to", "first")
    assert result.exit_code == 0, result.stderr
    assert "format: parquet " in (folder / "first" / "pipeline.yaml").read_text()
    found = command("detect", "first/program.ensue", "--events", "events", "--time", "at", "--type", "kind")
    assert "followed: 2 matches" in found.stderr


def test_a_folder_has_one_format(folder: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "events.csv"), folder / "events.parquet")
    (folder / "mixed").mkdir()
    assert "folder `mixed` has no files" in command("init", "--events", "mixed").stderr
    for name in ("events.csv", "events.parquet"):
        (folder / name).rename(folder / "mixed" / name)
    result = command("init", "--events", "mixed")
    assert result.exit_code == 2
    assert "error[unknown-format]" in result.stderr
    assert "csv, parquet" in result.stderr


def test_init_takes_columns_that_are_named(folder: Path) -> None:
    (folder / "ticks.csv").write_text("n,what kind,case no\n1,go now,x\n5,it's done,x\n9,go now,y\n20,it's done,y\n")
    result = command(
        "init", "--events", "ticks.csv", "--time", "n", "--type", "what kind", "--key", "case no", "--to", "ticks"
    )
    assert result.exit_code == 0, result.stderr
    program = (folder / "ticks" / "program.ensue").read_text()
    assert "SEQ(`go now` a, `it's done` b)" in program
    assert "PARTITION BY `case no`" in program
    assert command("check", "ticks/program.ensue").exit_code == 0


BEGIN = dt.datetime(2024, 1, 1)
COUNT = 16
MOMENTS = [BEGIN + dt.timedelta(minutes=5 * number) for number in range(COUNT)]
WORDS = ["Placed", "Paid", "Out for delivery", "it's done"] * (COUNT // 4)
KEYS = [number // 4 for number in range(COUNT)]
ODD_TABLES = {
    "several times": {"id": KEYS, "created_at": MOMENTS, "updated_at": MOMENTS[::-1], "event": WORDS},
    "nested": {
        "meta": [{"at": moment, "user": {"id": 1}} for moment in MOMENTS],
        "tags": [["a"]] * COUNT,
        "ts": MOMENTS,
        "kind": WORDS,
    },
    "milliseconds": {"at_ms": [int(m.timestamp() * 1000) for m in MOMENTS], "action": WORDS, "user_id": KEYS},
    "dictionary": {
        "when": pa.array(MOMENTS, pa.timestamp("ms")),
        "type": pa.array(WORDS).dictionary_encode(),
        "order_id": pa.array(KEYS, pa.int32()).dictionary_encode(),
    },
    "dates": {"date": [moment.date() for moment in MOMENTS], "type": WORDS, "id": KEYS},
    "zone": {"at": pa.array(MOMENTS, pa.timestamp("us", "Europe/Berlin")), "type": WORDS, "id": KEYS},
    "nulls": {"t": [None, *MOMENTS[1:]], "type": [None, *WORDS[1:]], "id": [None, *KEYS[1:]]},
    "no type": {"t": MOMENTS, "value": KEYS},
    "odd names": {"event time": MOMENTS, "no": WORDS, "it's -- id": KEYS},
    "odd texts": {"t": MOMENTS, "type": ["line\nbreak", "`tick`"] * (COUNT // 2), "id": KEYS},
    "other types": {"t": MOMENTS, "type": WORDS, "id": pa.array(KEYS, pa.uint64()), "b": [b"x"] * COUNT},
}


@pytest.mark.parametrize("name", ODD_TABLES)
def test_init_of_odd_tables(folder: Path, name: str) -> None:
    """What is written checks, has a plan and runs as it is written."""
    pyarrow.parquet.write_table(pa.table(ODD_TABLES[name]), "odd table.parquet")
    made = command("init", "--events", "odd table.parquet", "--to", "odd")
    assert made.exit_code == 0, made.output
    assert command("check", "odd/program.ensue").exit_code == 0
    assert command("fmt", "--check", "odd/program.ensue").exit_code == 0
    assert command("run", "odd/pipeline.yaml", "--dry-run").exit_code == 0
    lines = [line for line in (folder / "odd" / "README.md").read_text().splitlines() if "ensue detect" in line]
    os.chdir("odd")
    found = command(*shlex.split(lines[0])[1:], "--format", "json")
    assert found.exit_code == 0, found.output
    assert all(json.loads(found.stdout).values())


def test_init_of_integers_that_count_from_1970(folder: Path) -> None:
    pyarrow.parquet.write_table(pa.table(ODD_TABLES["milliseconds"]), "ms.parquet")
    made = command("init", "--events", "ms.parquet", "--to", "ms")
    assert "time: at_ms," in made.stderr
    assert "the only column with milliseconds since 1970" in (folder / "ms" / "pipeline.yaml").read_text()
    assert "windows are in milliseconds" in (folder / "ms" / "program.ensue").read_text()


def test_init_says_what_spark_cannot_read(folder: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"t": pa.array(MOMENTS, pa.timestamp("ns")), "type": WORDS}), "ns.parquet")
    said = command("init", "--events", "ns.parquet", "--to", "ns").stderr
    assert "warning: Spark cannot read timestamps in nanoseconds from Parquet: `t`" in said


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("t,type,id\n", "no-rows", "at least one event"),
        ("ts,type\n1700000000.5,A\n", "no-time", "convert `ts` from floating point"),
        ("x,y\nhello,A\n", "no-time", "--time COLUMN"),
        ("", "unreadable-events", ""),
    ],
)
def test_init_of_tables_that_say_too_little(folder: Path, text: str, code: str, hint: str) -> None:
    (folder / "little.csv").write_text(text)
    result = command("init", "--events", "little.csv", "--to", "little")
    assert (result.exit_code, f"error[{code}]" in result.stderr) == (2, True)
    assert hint in result.stderr
    assert not (folder / "little").exists()


def test_init_overwrites_nothing(folder: Path) -> None:
    result = command("init", "--events", "events.csv")
    assert result.exit_code == 2
    assert "error[file-exists]" in result.stderr
    assert (folder / "pipeline.yaml").read_text() == PIPELINE
    assert not (folder / "program.ensue").exists()
    assert command("init", "--events", "events.csv", "--force").exit_code == 0
    assert (folder / "pipeline.yaml").read_text() != PIPELINE


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--events", "event.csv"], "no-such-file"),
        (["--events", "events.csv", "--key", "nobody"], "no-such-column"),
        (["--events", "timeless.csv"], "no-time"),
    ],
)
def test_init_mistakes(folder: Path, arguments: list[str], code: str) -> None:
    (folder / "timeless.csv").write_text("a,b\nx,y\n")
    result = command("init", *arguments, "--to", "new")
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr
    assert not (folder / "new").exists()


@pytest.mark.parametrize("name", ["run", "schema", "fmt", "init"])
def test_help_has_an_example(name: str) -> None:
    assert "Example" in command(name, "--help").output
