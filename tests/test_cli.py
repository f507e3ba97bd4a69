"""The command line: what goes where, which exit code, and that nobody meets a traceback."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import ensue
from inside import DEFAULT_LIMIT, app, main

PAIR = """\
PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 1 hour RETURN a.id AS id, b.t AS at, b.t - a.t AS took;
PATTERN lone SEQ(A a, NOT B b) PARTITION BY id WITHIN 1 hour RETURN a.id AS id;
"""
CSV = """\
t,type,id
2025-03-10T08:00:00,A,1
2025-03-10T08:10:00,B,1
2025-03-10T09:00:00,A,2
"""
FOUND = {"pair": [{"id": 1, "at": "2025-03-10T08:10:00", "took": 600.0}], "lone": [{"id": 2}]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a program and events in each format."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.ensue").write_text(PAIR)
    (tmp_path / "events.csv").write_text(CSV)
    (tmp_path / "events.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    names, *rows = [line.split(",") for line in CSV.splitlines()]
    records = [{**dict(zip(names, row, strict=True)), "id": int(row[2])} for row in rows]
    (tmp_path / "events.json").write_text(json.dumps(records))
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, records)))
    table = pa.Table.from_pylist(records)
    times = table.column("t").cast(pa.timestamp("us"))
    pyarrow.parquet.write_table(table.set_column(0, "t", times), tmp_path / "events.parquet")
    return tmp_path


def ensue_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def detect(events: str, *arguments: str) -> Result:
    return ensue_command("detect", "pair.ensue", "--events", events, "--time", "t", "--type", "type", *arguments)


def test_version() -> None:
    assert ensue_command("--version").stdout == f"ensue {ensue.__version__}\n"


@pytest.mark.parametrize("command", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_help_has_an_example(command: str) -> None:
    result = ensue_command(command, "--help")
    assert result.exit_code == 0
    assert re.search(rf"Examples?: `ensue {command}", result.stdout)


def test_help_names_the_default_limit() -> None:
    assert f"{DEFAULT_LIMIT:,}" in ensue_command("detect", "--help").stdout


def test_check_of_sound_programs(folder: Path) -> None:
    result = ensue_command("check", "pair.ensue", "pair.ensue")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "2 files checked, 0 problems\n")


def test_check_reports_every_problem_of_every_file(folder: Path) -> None:
    (folder / "one.ensue").write_text("PATTERN SEQ(A a, NOT B b);\nPATTERN SEQ(A a, B b) WHERE c.x = 1")
    (folder / "two.ensue").write_text("PATTERN SEQ(A a B b)")
    result = ensue_command("check", "one.ensue", "two.ensue")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error[open-scope]" in result.stderr
    assert " --> one.ensue:1:18" in result.stderr
    assert " --> one.ensue:2:" in result.stderr
    assert " --> two.ensue:1:" in result.stderr
    assert result.stderr.endswith("2 files checked, 3 problems\n")


def test_check_knows_moments_by_functions_of_durations(folder: Path) -> None:
    """Nothing else in the program says that times are timestamps."""
    (folder / "soon.ensue").write_text("PATTERN SEQ(A a, B b) WHERE seconds(b.t - a.t) < 5")
    result = ensue_command("check", "soon.ensue")
    assert (result.exit_code, result.stderr) == (0, "1 file checked, 0 problems\n")


def test_check_sees_times_that_cannot_hold(folder: Path) -> None:
    (folder / "never.ensue").write_text("PATTERN SEQ(A a, B b) WHERE b.t - a.t > 2 hours\n  WITHIN 1 hour")
    result = ensue_command("check", "never.ensue", "--format", "json")
    assert result.exit_code == 1
    assert [problem["file"] for problem in json.loads(result.stdout)] == ["never.ensue"]


def test_check_as_json(folder: Path) -> None:
    (folder / "open.ensue").write_text("PATTERN SEQ(A a,\n  NOT B b)")
    result = ensue_command("check", "open.ensue", "--format", "json")
    assert result.exit_code == 1
    (problem,) = json.loads(result.stdout)
    assert (problem["code"], problem["file"], problem["line"], problem["column"]) == ("open-scope", "open.ensue", 2, 3)
    assert problem["message"]
    assert problem["hint"]
    sound = ensue_command("check", "pair.ensue", "--format", "json")
    assert (sound.exit_code, sound.stdout, sound.stderr) == (0, "[]\n", "")


def test_check_and_fmt_of_stdin(folder: Path) -> None:
    rough = "pattern p seq(A a,B b) within 60 min;"
    checked = CliRunner().invoke(app, ["check", "-"], input="PATTERN SEQ(A a, NOT B b)")
    assert checked.exit_code == 1
    assert " --> stdin:1:18" in checked.stderr
    formatted = CliRunner().invoke(app, ["fmt", "-"], input=rough)
    assert (formatted.exit_code, formatted.stdout) == (0, "PATTERN p\n  SEQ(A a, B b)\n  WITHIN 1h;\n")
    only = CliRunner().invoke(app, ["fmt", "--check", "-", "--format", "json"], input=rough)
    assert (only.exit_code, json.loads(only.stdout)) == (1, [{"file": "stdin", "changed": True}])
    broken = CliRunner().invoke(app, ["check", "-"], input=b"\xff")
    assert (broken.exit_code, "error[not-text]" in broken.stderr) == (2, True)


def test_explain_as_json(folder: Path) -> None:
    program = ensue.parse(PAIR)
    result = ensue_command("explain", "pair.ensue", "--format", "json")
    assert json.loads(result.stdout) == {
        "pair": ensue.explain(program.queries[0]),
        "lone": ensue.explain(program.queries[1]),
    }
    assert list(json.loads(ensue_command("explain", "pair.ensue", "--pattern", "lone", "--format", "json").stdout)) == [
        "lone"
    ]


def test_explain(folder: Path) -> None:
    program = ensue.parse(PAIR)
    assert ensue_command("explain", "pair.ensue").stdout == program.explain() + "\n"
    only = ensue_command("explain", "pair.ensue", "--pattern", "lone").stdout
    assert only == ensue.explain(program.queries[1]) + "\n"


DERIVED = """
STREAM Pair FROM PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 5 RETURN a.id AS id;
STREAM Unused FROM PATTERN SEQ(A a, C c) WITHIN 5;
PATTERN SEQ(Pair p, C c) PARTITION BY id WITHIN 5;
PATTERN latest SEQ(A a, B b, C c) PARTITION BY id WITHIN 5 MATCH RECENT
"""


def test_explain_stages(folder: Path) -> None:
    program = ensue.parse(folder / "pair.ensue")
    assert ensue_command("explain", "pair.ensue", "--stages").stdout == program.explain(stages=True) + "\n"
    as_json = json.loads(ensue_command("explain", "pair.ensue", "--stages", "--format", "json").stdout)
    assert as_json["lone"] == ensue.explain(program.queries[1], stages=True)


def test_a_pattern_on_a_declared_stream_is_explained_and_found_with_it(folder: Path) -> None:
    (folder / "derived.ensue").write_text(DERIVED)
    (folder / "derived.csv").write_text("t,type,id\n1,A,1\n2,B,1\n3,C,1\n")
    explained = ensue_command("explain", "derived.ensue", "--pattern", "pattern_1").stdout
    assert explained.startswith("STREAM\n  STREAM Pair FROM")
    assert "Unused" not in explained
    options = ["--events", "derived.csv", "--time", "t", "--type", "type"]
    assert ensue_command("detect", "derived.ensue", *options).stderr == "pattern_1: 1 match\nlatest: 1 match\n"
    only = ensue_command("detect", "derived.ensue", *options, "--pattern", "pattern_1")
    assert only.stderr == "pattern_1: 1 match\n"


def test_check_of_a_context_looks_at_its_operators(folder: Path) -> None:
    (folder / "context.ensue").write_text("PATTERN SEQ(A a, B b) WITHIN 5 EVENTS MATCH RECENT")
    result = ensue_command("check", "context.ensue")
    assert "error[policy-window]" in result.stderr


def test_explain_with_a_time_of_another_name(folder: Path) -> None:
    text = "PATTERN SEQ(A a, B b) WHERE b.at - a.at > 5 minutes WITHIN 1 hour"
    (folder / "at.ensue").write_text(text)
    named = ensue_command("explain", "at.ensue", "--time", "at").stdout
    assert named == ensue.explain(text, time="at") + "\n"
    assert named != ensue_command("explain", "at.ensue").stdout


@pytest.mark.parametrize("name", ["events.parquet", "events.csv", "events.csv.gz", "events.json", "events.jsonl"])
def test_detect_reads(folder: Path, name: str) -> None:
    result = detect(name, "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, FOUND), result.stderr
    assert result.stderr == "pair: 1 match\nlone: 1 match\n"


def test_detect_reads_moments_with_a_zone(folder: Path) -> None:
    (folder / "events.csv").write_text(CSV.replace(":00,", ":00+02:00,"))
    result = detect("events.csv", "--format", "json", "--pattern", "pair")
    assert json.loads(result.stdout)["pair"][0]["at"] == "2025-03-10T06:10:00+00:00"


def test_detect_reads_integer_time(folder: Path) -> None:
    (folder / "ticks.ensue").write_text("PATTERN SEQ(A a, B b) WITHIN 5")
    (folder / "ticks.csv").write_text("t,type\n1,A\n3,B\n9,B\n")
    columns = ["--time", "t", "--type", "type"]
    result = ensue_command("detect", "ticks.ensue", "--events", "ticks.csv", *columns, "--format", "json")
    matches = json.loads(result.stdout)["pattern_1"]
    assert [(match["start"], match["end"]) for match in matches] == [(1, 3)]


def test_order_of_events_at_the_same_time(folder: Path) -> None:
    (folder / "ticks.ensue").write_text("PATTERN SEQ(A a, NOT C c, B b) WITHIN 5 RETURN b.n AS n")
    (folder / "ticks.csv").write_text("t,type,day,n\n1,B,1,3\n1,C,1,2\n1,A,1,1\n2,A,1,1\n2,B,1,2\n2,C,1,3\n")
    columns = ["--time", "t", "--type", "type", "--order", "day", "--order", "n"]
    found = ensue_command("detect", "ticks.ensue", "--events", "ticks.csv", *columns, "--format", "json")
    assert json.loads(found.stdout) == {"pattern_1": [{"n": 2}]}
    why = ensue_command("why-not", "ticks.ensue", "--events", "ticks.csv", *columns, "--format", "json")
    assert json.loads(why.stdout)["matches"] == 1
    page = ensue_command("report", "ticks.ensue", "--events", "ticks.csv", *columns, "--format", "json")
    assert json.loads(page.stdout)["matches"] == {"pattern_1": 1}
    speed = ensue_command("bench", "ticks.ensue", "--events", "ticks.csv", *columns, "--runs", "1", "--format", "json")
    assert json.loads(speed.stdout)[0]["matches"] == 1
    wrong = ensue_command("detect", "ticks.ensue", "--events", "ticks.csv", *columns[:4], "--order", "dey")
    assert "no table has a column `dey` for `order`" in wrong.stderr
    assert "did you mean `day`?" in wrong.stderr


def test_a_notice_about_ties_is_one_line_that_names_the_option(folder: Path) -> None:
    (folder / "ticks.ensue").write_text("PATTERN p SEQ(A a, NOT C c, B b) WITHIN 5 RETURN b.n AS n")
    (folder / "ticks.csv").write_text("t,type,n\n1,A,1\n1,C,2\n2,B,3\n")
    columns = ["--time", "t", "--type", "type"]
    said = "notice: pattern `p`: 1 of 1 match has a `C` at the very time of `A`; use `--order` or ALLOWING TIES\n"
    found = ensue_command("detect", "ticks.ensue", "--events", "ticks.csv", *columns)
    assert found.stderr.startswith(said)
    assert "Notice" not in found.stderr
    page = ensue_command("report", "ticks.ensue", "--events", "ticks.csv", *columns)
    assert page.stderr.startswith(said)
    why = ensue_command("why-not", "ticks.ensue", "--events", "ticks.csv", *columns)
    assert "use `--order` or ALLOWING TIES" in why.stdout
    ordered = ensue_command("detect", "ticks.ensue", "--events", "ticks.csv", *columns, "--order", "n")
    assert "notice" not in ordered.stderr


def test_programs_with_declared_streams(folder: Path) -> None:
    (folder / "visits.csv").write_text("t,type,n\n1,Enter,1\n2,Leave,2\n4,Pay,3\n")
    visit = "STREAM Visit FROM PATTERN SEQ(Enter e, Leave l) WITHIN 5 RETURN e.n AS n;\n"
    patterns = "PATTERN paid SEQ(Visit v, Pay p) WITHIN 5 RETURN v.n; PATTERN (Pay p) RETURN p.n"
    (folder / "visits.ensue").write_text(visit + patterns)
    (folder / "wrong.ensue").write_text(visit + "PATTERN Visit v WHERE v.m > 1")
    assert ensue_command("check", "visits.ensue").exit_code == 0
    assert "stream `Visit` has no field `m`" in ensue_command("check", "wrong.ensue").output
    explained = ensue_command("explain", "visits.ensue", "--pattern", "paid").output
    assert "Visit: the matches of this pattern, used by paid" in explained
    columns = ("--events", "visits.csv", "--time", "t", "--type", "type", "--format", "csv")
    assert ensue_command("detect", "visits.ensue", "--pattern", "paid", *columns).stdout == "n\n1\n"
    assert ensue_command("detect", "visits.ensue", "--pattern", "pattern_2", *columns).stdout == "n\n3\n"


RULES = """
TABLE price(id, amount);
RULE costly(id, amount) <- a: A(id=id), price(id, amount), amount > 5;
RULE pair(id) <- c: costly(id, _), b: B(id=id), c before b;
PATTERN lone (B b)
"""


def test_rules_and_tables(folder: Path) -> None:
    (folder / "rules.ensue").write_text(RULES)
    (folder / "rules.csv").write_text("t,type,id\n1,A,1\n2,A,2\n3,B,1\n")
    (folder / "price.csv").write_text("id,amount\n1,9\n2,3\n")
    given = ["--events", "rules.csv", "--time", "t", "--type", "type", "--format", "json"]
    result = ensue_command("detect", "rules.ensue", *given, "--table", "price=price.csv", "--pattern", "pair")
    assert json.loads(result.stdout) == {"pair": [{"start": 1, "end": 3, "id": 1}]}, result.stderr
    assert "unnamed-table" in ensue_command("detect", "rules.ensue", *given, "--table", "price.csv").stderr
    assert "no-table" in ensue_command("detect", "rules.ensue", *given).stderr
    asked = [*given, "--pattern", "costly"]
    why = ensue_command("why-not", "rules.ensue", *asked, "--table", "price=price.csv")
    assert json.loads(why.stdout)["matches"] == 1, why.stderr
    assert "no-table" in ensue_command("why-not", "rules.ensue", *asked).stderr


def test_one_head_is_explained_with_what_it_stands_on(folder: Path) -> None:
    (folder / "rules.ensue").write_text(RULES)
    text = ensue_command("explain", "rules.ensue", "--pattern", "pair").stdout
    assert "RULE pair(id)" in text
    assert "RULE costly(id, amount)" in text
    assert "lone" not in text


def test_rules_that_never_hold_are_found_without_data(folder: Path) -> None:
    (folder / "never.ensue").write_text("RULE r(id) <- a: A(id=id), b: B(id=id), a before b, b before a")
    result = ensue_command("check", "never.ensue")
    assert result.exit_code == 1
    assert "`b before a`, but `a before b`" in result.stdout + result.stderr


def test_detect_reads_a_file_per_stream(folder: Path) -> None:
    table = pyarrow.parquet.read_table("events.parquet")
    for stream in ("A", "B"):
        rows = table.filter(pc.equal(table.column("type"), stream))
        pyarrow.parquet.write_table(rows.drop_columns("type"), f"{stream}.parquet")
    given = ["--events", "A=A.parquet", "--events", "B=B.parquet"]
    result = ensue_command("detect", "pair.ensue", *given, "--time", "t", "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, FOUND)


def test_detect_as_csv(folder: Path) -> None:
    result = detect("events.csv", "--format", "csv", "--pattern", "pair")
    assert result.stdout == "id,at,took\n1,2025-03-10T08:10:00,600.0\n"
    several = detect("events.csv", "--format", "csv")
    assert (several.exit_code, several.stdout) == (2, "")
    assert "error[several-patterns]" in several.stderr


def test_detect_as_table(folder: Path) -> None:
    result = detect("events.csv")
    assert result.exit_code == 0
    for text in ("pair", "took", "2025-03-10 08:10:00", "10m", "lone"):
        assert text in result.stdout
    assert "... and 1 more" in detect("events.csv", "--rows", "0").stdout


def test_names_of_patterns_are_not_wrapped(folder: Path) -> None:
    name = "a_name_that_is_much_longer_than_its_table"
    (folder / "pair.ensue").write_text(f"PATTERN {name} SEQ(A a, B b) WITHIN 1 hour RETURN a.id AS id")
    assert name in detect("events.csv", "--rows", "0").stdout.splitlines()


def test_rows_cut_what_is_shown_not_counts(folder: Path) -> None:
    result = detect("events.csv", "--rows", "0", "--format", "json")
    assert json.loads(result.stdout) == {"pair": [], "lone": []}
    assert "pair: 1 match" in result.stderr


@pytest.mark.parametrize(
    ("range", "found"),
    [
        (["--since", "2025-03-10T08:10:00"], {"pair": 0, "lone": 1}),
        (["--until", "2025-03-10 08:10:00"], {"pair": 1, "lone": 0}),
        (["--since", "2025-03-10T08:00", "--until", "2025-03-10T09:00"], {"pair": 1, "lone": 0}),
    ],
)
def test_detect_in_a_range_of_time(folder: Path, range: list[str], found: dict[str, int]) -> None:
    matches = json.loads(detect("events.csv", *range, "--format", "json").stdout)
    assert {name: len(rows) for name, rows in matches.items()} == found


def test_a_range_of_integer_time(folder: Path) -> None:
    (folder / "ticks.ensue").write_text("PATTERN SEQ(A a, B b) WITHIN 5")
    (folder / "ticks.csv").write_text("t,type\n1,A\n3,B\n4,B\n")
    given = ["detect", "ticks.ensue", "--events", "ticks.csv", "--time", "t", "--type", "type", "--format", "json"]
    matches = json.loads(ensue_command(*given, "--since", "3").stdout)["pattern_1"]
    assert [match["end"] for match in matches] == [4]
    soon = ensue_command(*given, "--since", "soon")
    assert (soon.exit_code, soon.stdout) == (1, "")
    assert "the time column is integer, so `--since` must be an integer" in soon.stderr


LAW = "CONSTRAINT EXCLUSIVE(A, B);"


def test_violations(folder: Path) -> None:
    (folder / "law.ensue").write_text(LAW.replace(";", " PARTITION BY id;"))
    given = ["violations", "law.ensue", "--events", "events.csv", "--time", "t", "--type", "type"]
    result = ensue_command(*given, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "violations: 1 violation\n")
    (row,) = json.loads(result.stdout)["violations"]
    assert row["id"] == 1
    assert (row["constraint"], row["event"], row["at"]) == ("EXCLUSIVE(A, B)", "B", "2025-03-10T08:10:00")
    assert "EXCLUSIVE(A, B)" in ensue_command(*given).stdout
    assert ensue_command(*given, "--format", "csv").stdout.startswith("id,constraint,event,at,")


def test_violations_need_a_key_and_a_constraint(folder: Path) -> None:
    (folder / "law.ensue").write_text(LAW)
    given = ["--events", "events.csv", "--time", "t", "--type", "type"]
    missing = ensue_command("violations", "law.ensue", *given)
    assert (missing.exit_code, "error[constraint-partition]" in missing.stderr) == (1, True)
    keyed = ensue_command("violations", "law.ensue", *given, "--key", "id")
    assert (keyed.exit_code, keyed.stderr) == (0, "violations: 1 violation\n")
    none = ensue_command("violations", "pair.ensue", *given)
    assert (none.exit_code, "error[no-constraint]" in none.stderr) == (1, True)


def test_bench_of_drawn_events() -> None:
    result = ensue_command("bench", "--size", "2000", "--runs", "1", "--format", "json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert [figure["name"] for figure in figures] == ["SEQ(A, B, C)", "SEQ(A, NOT B, C)", "SEQ(A, NOT SEQ(B, C), D)"]
    for figure in figures:
        assert (figure["events"], figure["runtime"]) == (2000, "in process")
        assert figure["matches"] > 0
        assert figure["events_per_second"] == pytest.approx(2000 / figure["seconds"], rel=0.01)
        assert figure["units"] > 0


def test_bench_of_a_file(folder: Path) -> None:
    """Without a program: the patterns that `ensue init` proposes, with the columns that it finds."""
    rows = "".join(
        f"2025-03-10T{hour:02}:{5 * kind:02}:00,{'AB'[kind]},{hour}\n" for hour in range(20) for kind in (0, 1)
    )
    (folder / "many.csv").write_text("t,type,id\n" + rows)
    made = json.loads(ensue_command("init", "--events", "many.csv", "--to", "first", "--format", "json").stdout)
    speed = ensue_command("bench", "--events", "many.csv", "--runs", "1", "--format", "json")
    figures = json.loads(speed.stdout)
    assert {figure["name"]: figure["matches"] for figure in figures} == made["matches"]
    assert {figure["events"] for figure in figures} == {40}
    other = ensue_command("bench", "--events", "many.csv", "--time", "at", "--runs", "1")
    assert (other.exit_code, "no-such-column" in other.stderr) == (2, True)


def test_bench_of_a_program(folder: Path) -> None:
    own = ["bench", "pair.ensue", "--events", "events.csv", "--time", "t", "--type", "type", "--runs", "1"]
    figures = json.loads(ensue_command(*own, "--format", "json").stdout)
    assert [(figure["name"], figure["events"], figure["matches"]) for figure in figures] == [
        ("pair", 3, 1),
        ("lone", 3, 1),
    ]
    table = ensue_command(*own).stdout
    assert "events per second" in table
    assert "lone" in table


LOG = """\
2025-03-10 08:00:00 INFO A of 1
2025-03-10 08:10:00 INFO B of 1
2025-03-10 09:00:00 WARN A of 2
"""
OF_A_LOG = r"(?P<t>\S+ \S+) \w+ (?P<type>\w) of (?P<id>\d+)"


@pytest.mark.parametrize("name", ["events.parquet", "events.csv", "events.csv.gz", "events.json", "events.jsonl"])
def test_events_from_stdin(folder: Path, name: str) -> None:
    """The content tells the format."""
    content = (folder / name).read_bytes()
    given = ["detect", "pair.ensue", "--events", "-", "--time", "t", "--type", "type", "--format", "json"]
    result = CliRunner().invoke(app, given, input=content)
    assert (result.exit_code, json.loads(result.stdout)) == (0, FOUND), result.stderr


def test_logs_from_stdin(folder: Path) -> None:
    given = ["--time", "t", "--type", "type", "--format", "json"]
    parsed = CliRunner().invoke(
        app, ["detect", "pair.ensue", "--events", "-", *given, "--parse", OF_A_LOG], input=LOG + "odd\n"
    )
    assert json.loads(parsed.stdout)["lone"] == [{"id": "2"}], parsed.stderr
    assert "warning: 1 line of `stdin` ignored: --parse does not match, first line 4" in parsed.stderr
    (folder / "warned.ensue").write_text("PATTERN warned (WARN w) RETURN w.message AS said")
    columns = ["--time", "time", "--type", "level", "--format", "json"]
    known = CliRunner().invoke(app, ["detect", "warned.ensue", "--events", "-", *columns], input=LOG)
    assert json.loads(known.stdout) == {"warned": [{"said": "A of 2"}]}, known.stderr


def test_one_stream_and_tables_from_stdin(folder: Path) -> None:
    (folder / "rules.ensue").write_text(RULES)
    (folder / "rules.csv").write_text("t,type,id\n1,A,1\n2,A,2\n3,B,1\n")
    given = ["detect", "rules.ensue", "--events", "rules.csv", "--time", "t", "--type", "type", "--format", "json"]
    tables = CliRunner().invoke(app, [*given, "--table", "price=-"], input="id,amount\n1,9\n2,3\n")
    assert json.loads(tables.stdout)["costly"] == [{"start": 1, "end": 1, "id": 1, "amount": 9}], tables.stderr
    (folder / "b.csv").write_text("t,id\n2025-03-10T08:10:00,1\n")
    given = ["detect", "pair.ensue", "--events", "A=-", "--events", "B=b.csv", "--time", "t", "--format", "json"]
    result = CliRunner().invoke(app, given, input="t,id\n2025-03-10T08:00:00,1\n2025-03-10T09:00:00,2\n")
    assert json.loads(result.stdout) == FOUND, result.stderr


def test_programs_from_stdin(folder: Path) -> None:
    events = ["--events", "events.csv", "--time", "t", "--type", "type"]
    found = CliRunner().invoke(app, ["detect", "-", *events, "--format", "json"], input=PAIR)
    assert json.loads(found.stdout) == FOUND, found.stderr
    explained = CliRunner().invoke(app, ["explain", "-"], input=PAIR)
    assert explained.stdout == ensue_command("explain", "pair.ensue").stdout
    for command in (["detect", "-"], ["violations", "-"], ["why-not", "-"], ["report", "-"], ["bench", "-"]):
        wrong = CliRunner().invoke(app, [*command, *events], input="PATTERN SEQ(A a B b)")
        assert (wrong.exit_code, " --> stdin:1:" in wrong.stderr) == (1, True), wrong.stderr
        twice = CliRunner().invoke(app, [*command, "--events", "-", "--time", "t"], input=PAIR)
        assert (twice.exit_code, "error[stdin-twice]" in twice.stderr) == (2, True), twice.stderr


def test_broken_stdin(folder: Path) -> None:
    given = ["detect", "pair.ensue", "--events", "-", "--time", "t", "--type", "type"]
    for content in (b"PAR1 and no more", b"{broken"):
        result = CliRunner().invoke(app, given, input=content)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "error[unreadable-events]: cannot read `stdin` as " in result.stderr
    empty = CliRunner().invoke(app, given, input=b"")
    assert (empty.exit_code, "error[unreadable-events]: cannot read `stdin` as csv" in empty.stderr) == (2, True)


def test_pages_and_events_on_stdout(folder: Path) -> None:
    given = ["report", "pair.ensue", "--events", "events.csv", "--time", "t", "--type", "type"]
    page = ensue_command(*given, "--output", "-")
    assert page.stdout.lstrip().lower().startswith("<!doctype html>")
    assert page.stderr == "pair: 1 match\nlone: 1 match\n"
    assert sorted(path.name for path in folder.glob("*.html")) == []
    both = ensue_command(*given, "--output", "-", "--format", "json")
    assert (both.exit_code, both.stdout, "error[stdout-twice]" in both.stderr) == (2, "", True)
    orders = ensue_command("demo", "--orders", "20", "--output", "-")
    assert orders.stdout.startswith('"t","type","order_id"')
    assert orders.stderr == ""


@pytest.mark.parametrize(("limit", "exit_code"), [(0, 1), (1, 0)])
def test_limit_stops_the_run(folder: Path, limit: int, exit_code: int) -> None:
    (folder / "pair.ensue").write_text("PATTERN SEQ(A a, B b) WITHIN 1 hour")
    result = detect("events.csv", "--limit", str(limit))
    assert result.exit_code == exit_code
    if exit_code:
        assert "pattern `pattern_1` has more than 0 matches" in result.stderr
        assert "`--limit` raises the limit" in result.stderr
        assert "`limits=" not in result.stderr
    else:
        assert result.stderr == "pattern_1: 1 match\n"


def test_whole_events_are_written_as_json_and_csv(folder: Path) -> None:
    (folder / "pair.ensue").write_text("PATTERN whole SEQ(A a, B b) PARTITION BY id WITHIN 1 hour")
    (match,) = json.loads(detect("events.csv", "--format", "json").stdout)["whole"]
    assert match["b"]["t"] == "2025-03-10T08:10:00"
    assert '""type"": ""A""' in detect("events.csv", "--format", "csv").stdout
    assert '"type": "A"' in detect("events.csv").stdout.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["check", "pear.ensue"], 2, ["error[no-such-file]", "did you mean `pair.ensue`?"]),
        (["check", "."], 2, ["error[not-a-file]"]),
        (["check", "events.parquet"], 2, ["error[not-text]"]),
        (["check"], 2, ["FILE"]),
        (["explain", "pair.ensue", "--pattern", "pear"], 2, ["error[no-such-pattern]", "did you mean `pair`?"]),
        (["detect", "pair.ensue", "--events", "event.csv", "--time", "t"], 2, ["did you mean `events.csv`?"]),
        (["detect", "pair.ensue", "--events", "pair.ensue", "--time", "t"], 2, ["error[unknown-format]"]),
        (["detect", "pair.ensue", "--events", "events.csv"], 2, ["--time"]),
        (
            ["detect", "pair.ensue", "--events", "events.csv", "--time", "t"],
            1,
            ["error[no-type-column]", "pass `--type`"],
        ),
        (["detect", "pair.ensue", "--events", "events.csv", "--time", "at", "--type", "type"], 1, ["t, type, id"]),
        (["detect", "pair.ensue", "--events", "A=events.csv", "--events", "events.csv", "--time", "t"], 2, ["STREAM="]),
        (["why-not", "pair.ensue", "--events", "event.csv", "--time", "t"], 2, ["did you mean `events.csv`?"]),
        (["bench", "pair.ensue"], 2, ["error[no-events]"]),
        (["bench", "--events", "events.csv", "--end", "t"], 2, ["error[no-program]", "--end requires"]),
        (["bench", "--events", "A=events.csv", "--events", "B=events.csv"], 2, ["error[no-program]"]),
        (["bench", "--events", "-"], 2, ["error[no-file]"]),
        (["bench", "pear.ensue", "--events", "events.csv", "--time", "t"], 2, ["did you mean `pair.ensue`?"]),
        (["bench", "--size", "0"], 2, ["--size"]),
        (["demo", "--orders", "0"], 2, ["--orders"]),
        (["schema", "more"], 2, ["more"]),
        (["fmt", "pear.ensue"], 2, ["did you mean `pair.ensue`?"]),
    ],
)
def test_mistakes(folder: Path, arguments: list[str], exit_code: int, said: list[str]) -> None:
    result = ensue_command(*arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert all(text in result.stderr for text in said), result.stderr


def test_text_that_is_no_time(folder: Path) -> None:
    (folder / "events.csv").write_text(CSV.replace("2025-03-10T09:00:00", "soon"))
    result = detect("events.csv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error[time-type]" in result.stderr


def test_broken_events(folder: Path) -> None:
    (folder / "events.parquet").write_text("not parquet")
    result = detect("events.parquet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error[unreadable-events]" in result.stderr


def test_warnings_are_one_line_on_stderr(folder: Path) -> None:
    (folder / "events.csv").write_text(CSV + ",A,3\n")
    result = detect("events.csv", "--format", "json")
    assert json.loads(result.stdout) == FOUND
    assert "warning: 1 row" in result.stderr
    assert "Warning" not in result.stderr


# --- errors


def test_errors_explains_a_code_as_written_or_as_a_message_has_it() -> None:
    explained = ensue_command("errors", "open-scope")
    assert (explained.exit_code, explained.stderr) == (0, "")
    assert explained.stdout.startswith("error[open-scope] (The structure of a pattern)\n\n")
    assert "\nExample:\n\n    PATTERN " in explained.stdout
    assert "\nOutput:\n\n    error[open-scope]: " in explained.stdout
    assert ensue_command("errors", "error[open-scope]:").stdout == explained.stdout
    as_json = json.loads(ensue_command("errors", "open-scope", "--format", "json").stdout)
    assert as_json["code"] == "open-scope"
    assert as_json["examples"][0]["output"].startswith("error[open-scope]: ")


def test_errors_lists_all_codes() -> None:
    listed = ensue_command("errors").stdout
    assert "\n  open-scope " in listed
    as_json = json.loads(ensue_command("errors", "--format", "json").stdout)
    assert all(f"  {entry['code']} " in listed for entry in as_json)


def test_errors_names_codes_similar_to_an_unknown_one() -> None:
    misspelt = ensue_command("errors", "open-scop")
    assert (misspelt.exit_code, misspelt.stdout) == (2, "")
    assert "hint: similar codes: open-scope" in misspelt.stderr
    unknown = ensue_command("errors", "xyz")
    assert (unknown.exit_code, "`ensue errors` lists all codes" in unknown.stderr) == (2, True)


# --- processes: start-up, pipes


def test_what_looks_at_programs_only_loads_nothing_that_works_on_data(folder: Path) -> None:
    """One process for all of them: what one loads would still be there after the others."""
    code = """
import sys
from ensue.apps.cli import main
for arguments in (
    ["--version"], ["check", "pair.ensue"], ["fmt", "--check", "pair.ensue"], ["check", "gone.ensue"],
    ["errors"], ["errors", "syntax"], ["errors", "sintax"],
):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as left:
        print(left.code, file=sys.stderr)
    assert not {"typer", "rich", "numpy"} & set(sys.modules), arguments
for arguments in (["--help"], ["explain", "pair.ensue"]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as left:
        print(left.code, file=sys.stderr)
assert not {"numba", "pandas", "pyarrow", "pyspark", "ensue.engine", "ensue.api"} & set(sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Traceback" not in ran.stderr
    assert [line for line in ran.stderr.splitlines() if line.isdigit()] == ["0", "0", "1", "2", "0", "0", "2", "0", "0"]
    assert ran.stdout.startswith(f"ensue {ensue.__version__}\n")
    assert "error[no-such-file]" in ran.stderr


def test_a_reader_that_leaves_is_no_failure_of_a_process(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "ensue.apps.cli", "explain", "pair.ensue"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, "")


class ClosedPipe(io.StringIO):
    """A stdout whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def fileno(self) -> int:
        return self.own

    def __init__(self) -> None:
        super().__init__()
        self.own = os.open(os.devnull, os.O_WRONLY)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["schema"],
        ["demo", "--orders", "50", "--on", "process"],
        ["detect", "pair.ensue", "--events", "events.csv", "--time", "t", "--type", "type"],
        ["detect", "pair.ensue", "--events", "events.csv", "--time", "t", "--type", "type", "--format", "json"],
    ],
    ids=lambda arguments: "-".join(word.strip("-") for word in (arguments[0], arguments[-1])),
)
def test_a_reader_that_leaves_is_no_failure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ensue", *arguments])
    monkeypatch.setattr(sys, "stdout", ClosedPipe())
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "at"),
    [
        (["check", "pair.ensue"], "ensue.apps.cli.check.check_files"),
        (["check", "pair.ensue", "--format", "json"], "ensue.apps.cli.check.check_files"),
        (["fmt", "pair.ensue"], "ensue.apps.cli.check.formatted_files"),
        (["explain", "pair.ensue"], "ensue.apps.cli.program_files.read_program"),
        (["detect", "pair.ensue", "--events", "events.csv", "--time", "t"], "ensue.apps.cli.detect.detect_in_files"),
        (
            ["violations", "pair.ensue", "--events", "events.csv", "--time", "t"],
            "ensue.apps.cli.program_files.read_program",
        ),
        (
            ["why-not", "pair.ensue", "--events", "events.csv", "--time", "t"],
            "ensue.apps.cli.program_files.read_program",
        ),
        (["init", "--events", "events.csv"], "ensue.apps.cli.starter.start_project"),
        (["bench"], "ensue.apps.cli.bench.drawn_work"),
        (["demo"], "ensue.apps.cli.demo.run_demo"),
    ],
    ids=lambda value: value[0] + str(len(value)) if isinstance(value, list) else None,
)
def test_interrupted(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    at: str,
) -> None:
    """Ctrl-C ends any command with 130 and nothing else to read."""

    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(at, interrupt)
    monkeypatch.setattr(sys, "argv", ["ensue", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
    assert "Traceback" not in capsys.readouterr().err


# --- colours and completion


@pytest.mark.parametrize("arguments", [["detect"], ["detect", "--help"], ["detect", "--format", "xml"]])
def test_colours(folder: Path, arguments: list[str]) -> None:
    """Tables have colours on a terminal; help, errors, and everything with NO_COLOR have none."""
    is_table = len(arguments) == 1
    if is_table:
        arguments = ["detect", "pair.ensue", "--events", "events.csv", "--time", "t", "--type", "type"]
    with_color = CliRunner().invoke(app, arguments, env={"FORCE_COLOR": "1", "NO_COLOR": ""})
    assert ("\x1b[" in with_color.output) == is_table
    without = CliRunner().invoke(app, arguments, env={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert "\x1b" not in without.output
    assert without.output


def completed(line: str) -> list[str]:
    """What bash is told when a tab follows the line."""
    words = line.split(" ")
    env = {"_ENSUE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return CliRunner().invoke(app, [], env=env, prog_name="ensue").stdout.split()


def test_completion_for_bash(folder: Path) -> None:
    script = CliRunner().invoke(app, [], env={"_ENSUE_COMPLETE": "source_bash"}, prog_name="ensue").stdout
    # Where Ensue proposes nothing, bash completes names of files.
    assert "complete -o default -F _ensue_completion ensue" in script
    assert completed("ensue ch") == ["check"]
    assert completed("ensue check --for") == ["--format"]
    assert completed("ensue check --format ") == ["text", "json"]
    assert completed("ensue explain pair.ensue --pattern ") == ["pair", "lone"]
    assert completed("ensue detect pair.ensue --pattern l") == ["lone"]
    assert completed("ensue detect gone.ensue --pattern l") == []
    assert completed("ensue explain --pattern l") == []
    assert completed("ensue errors open-sc") == ["open-scope"]


# --- docs/cli.md


def test_page_shows_what_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`$ cat FILE` shows a file that is there; `...` stands for lines left out. UPDATE_DOCS=1 rewrites the page."""
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parent.parent / "docs" / "cli.md"
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        fresh = ""
        for line, below in re.findall(r"^\$ (.*\n)((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            program, *arguments = shlex.split(line)
            if program == "cat":
                Path(*arguments).write_text(below, encoding="utf-8")
                printed = below
            else:
                assert program == "ensue"
                printed = re.sub(r" +$", "", ensue_command(*arguments).output, flags=re.MULTILINE)
            shortened = ".*".join(re.escape(part) for part in re.split(r"^\.\.\.\n", below, flags=re.MULTILINE))
            as_printed = re.fullmatch(shortened, printed, re.DOTALL)
            assert as_printed or os.environ.get("UPDATE_DOCS"), f"{line}{printed}"
            fresh += f"$ {line}{below if as_printed else printed}"
        text = text.replace(block, fresh)
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(text, encoding="utf-8")


def test_detect_gives_probabilities(tmp_path: Path) -> None:
    (tmp_path / "pair.ensue").write_text("PATTERN pair SEQ(A a, NOT B b, C c) WITHIN 9 RETURN PROBABILITY() AS p")
    (tmp_path / "events.csv").write_text("t,kind,p,g\n1,A,0.5,x\n2,B,0.5,x\n3,C,0.8,\n")
    files = ["detect", str(tmp_path / "pair.ensue"), "--events", str(tmp_path / "events.csv"), "--time", "t"]
    columns = ["--type", "kind", "--probability", "p", "--alternatives", "g", "--format", "json"]
    assert json.loads(CliRunner().invoke(app, [*files, *columns]).stdout)["pair"] == [{"p": 0.4}]
    wrong = CliRunner().invoke(app, [*files, "--type", "kind", "--probability", "chance"])
    assert (wrong.exit_code, "no-such-column" in wrong.stderr) == (1, True)
