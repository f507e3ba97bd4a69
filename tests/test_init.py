"""`ensue init` on real files and on ugly ones: no traceback, patterns with matches, commands that work as printed."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

from inside import app, read_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parents[2] / "shared" / "data"
BEGIN = dt.datetime(2024, 3, 1, 9)
KINDS = ["Placed", "Paid", "Packed", "Shipped"]


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def printed(text: str) -> list[list[str]]:
    """The commands below `Next:`, as arguments of `ensue`."""
    lines = text.partition("Next:\n")[2].splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("  ensue ")]


# --- ugly files: each function returns the rows as CSV text, as JSON records or as a table


def rows(count: int = 24, **more: Callable[[int], Any]) -> list[dict[str, Any]]:
    """Orders of four steps: one has no `Paid`."""
    made = []
    for number in range(count):
        order, step = divmod(number, 4)
        if order == 2 and step == 1:
            continue
        own = {"at": (BEGIN + dt.timedelta(minutes=7 * number)).isoformat(), "type": KINDS[step], "order_id": order}
        made.append(own | {name: value(number) for name, value in more.items()})
    return made


def as_csv(records: list[dict[str, Any]], separator: str = ",") -> str:
    names = list(records[0])
    lines = [names] + [[str(record.get(name, "")) for name in names] for record in records]
    return "".join(separator.join(line) + "\n" for line in lines)


def renamed(names: dict[str, str]) -> list[dict[str, Any]]:
    return [{names.get(name, name): value for name, value in record.items()} for record in rows()]


def times(form: str) -> list[dict[str, Any]]:
    return [{**record, "at": dt.datetime.fromisoformat(record["at"]).strftime(form)} for record in rows()]


def epochs(factor: int) -> list[dict[str, Any]]:
    def number(text: str) -> int:
        return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()) * factor

    return [{**record, "at": number(record["at"])} for record in rows()]


NESTED = [
    {"meta": {"at": record["at"], "event": {"kind": record["type"]}}, "user": {"id": record["order_id"]}, "tags": ["a"]}
    for record in rows()
]
UNFOLDED = [{"Records": [*NESTED[:9]]}, {"Records": NESTED[9:]}]
MIXED = [{**record, "amount": place if place % 2 else "none"} for place, record in enumerate(NESTED)]
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36 " * 2

UGLY: dict[str, tuple[str, str | bytes | pa.Table]] = {
    "empty cells": (
        "csv",
        as_csv([{**r, "order_id": "" if i % 5 == 4 else r["order_id"]} for i, r in enumerate(rows())]),
    ),
    "empty times": ("csv", as_csv([{**r, "at": "" if i % 5 == 4 else r["at"]} for i, r in enumerate(rows())])),
    "empty types": ("csv", as_csv([{**r, "type": "" if i % 5 == 4 else r["type"]} for i, r in enumerate(rows())])),
    "mixed types": ("csv", as_csv(rows(amount=lambda n: n if n % 3 else "none"))),
    "mixed JSON": ("jsonl", '{"at": 1, "x": 1}\n{"at": 2, "x": "a"}\n{"at": 5, "x": [1]}\n'),
    "duplicate names": ("csv", as_csv(rows()).replace("at,type,order_id", "at,type,type")),
    "names without text": ("csv", as_csv(rows(x=lambda n: n % 3)).replace("order_id,x", "order_id,")),
    "no key": ("csv", as_csv([{k: v for k, v in r.items() if k != "order_id"} for r in rows()])),
    "key that never repeats": ("csv", as_csv([{**r, "order_id": i} for i, r in enumerate(rows())])),
    "one type": ("csv", as_csv([{**r, "type": "Seen"} for r in rows()])),
    "no type": (
        "csv",
        as_csv([{"at": r["at"], "sensor": i % 2, "value": (i * 37) % 11 / 7} for i, r in enumerate(rows(80))]),
    ),
    "nested": ("jsonl", "\n".join(map(json.dumps, NESTED))),
    "nested list": ("json", json.dumps(NESTED)),
    "a list in an object": ("json", json.dumps({"Records": NESTED}, indent=1)),
    "a list in an object of mixed types": ("json", json.dumps({"Records": MIXED}, indent=1)),
    "lists in objects": ("jsonl", "\n".join(map(json.dumps, UNFOLDED))),
    "a list with a field of its name": ("json", json.dumps({"in": [{**r, "in": 1} for r in rows()]})),
    "nested parquet": ("parquet", pa.Table.from_pylist(NESTED)),
    "wide": ("csv", as_csv([{**{f"c{i}": i for i in range(300)}, **r} for r in rows()])),
    "one row": ("csv", as_csv(rows()[:1])),
    "one column": ("csv", as_csv([{"at": r["at"]} for r in rows()])),
    "integer types": ("csv", as_csv([{**r, "type": 4624 + len(r["type"])} for r in rows()]).replace("type", "EventID")),
    "day first": ("csv", as_csv(times("%d/%m/%Y %H:%M:%S")).replace("01/03/", "21/03/")),
    "German times": ("csv", as_csv(times("%d.%m.%Y %H:%M"), ";")),
    "month names": ("csv", as_csv(times("%d/%b/%Y:%H:%M:%S +0100"))),
    "no year": ("csv", as_csv(times("%b %d %H:%M:%S"))),
    "no year, but the same month twice": (
        "log",
        "".join(
            f"{(BEGIN + dt.timedelta(days=318 + n)).strftime('%b %d')} 10:00:{n % 60:02} web cron[{n}]: "
            f"{'Started' if n % 2 else 'Stopped'} job {n % 5}\n"
            for n in range(0, 350)
        ),
    ),
    "am and pm": ("csv", as_csv(times("%m/%d/%Y %I:%M:%S %p")).replace("03/01/", "03/21/")),
    "milliseconds with comma": ("csv", as_csv(times('"%Y-%m-%d %H:%M:%S,250"'))),
    "seconds since 1970": ("csv", as_csv(epochs(1))),
    "milliseconds since 1970": ("jsonl", "\n".join(map(json.dumps, epochs(1000)))),
    "all times equal": ("csv", as_csv([{**r, "at": BEGIN.isoformat()} for r in rows()])),
    "unicode names": ("csv", as_csv(renamed({"at": "zeit_at", "type": "тип", "order_id": "注文_id"}))),
    "names with backticks": (
        "csv",
        as_csv(renamed({"at": "event time", "type": "what`s type", "order_id": "it's -- id"})),
    ),
    "reserved words": ("csv", as_csv(renamed({"at": "end", "type": "in", "order_id": "case"}))),
    "byte order mark": ("csv", "\ufeff" + as_csv(rows())),
    "floats as keys": (
        "csv",
        as_csv([{**r, "order_id": "" if i % 5 == 4 else f"{r['order_id']}.0"} for i, r in enumerate(rows())]),
    ),
    "blanks in the header": ("csv", as_csv(rows()).replace("at,type,order_id", " at , type , order_id ")),
    "semicolons": ("csv", as_csv(rows(), ";")),
    "tabs": ("csv", as_csv(rows(), "\t")),
    "Windows lines": ("csv", as_csv(rows()).replace("\n", "\r\n")),
    "gzip": ("csv.gz", gzip.compress(as_csv(rows()).encode())),
    "gzip of JSON": ("jsonl.gz", gzip.compress("\n".join(map(json.dumps, rows())).encode())),
    "huge texts": ("csv", as_csv(rows(note=lambda n: "x" * 2_000_000 if n == 3 else "y"))),
    "line breaks": ("csv", as_csv(rows(note=lambda n: '"a\nb ""c"""'))),
    "user agents": (
        "csv",
        as_csv(
            [{"at": r["at"], "agent": f'"{AGENT}{i % 5}"', "ip": f"10.0.0.{i % 3}"} for i, r in enumerate(rows(60))]
        ),
    ),
    "texts with quotes": ("csv", as_csv([{**r, "type": f"it's {r['type']}"} for r in rows()])),
    "all empty": ("csv", as_csv(rows(nothing=lambda n: ""))),
    "not sorted": ("csv", as_csv(rows()[::-1])),
    "lists in cells": ("parquet", pa.Table.from_pylist([{**r, "tags": ["a", "b"]} for r in rows()])),
    "logs in JSON": ("log", "\n".join(map(json.dumps, rows()))),
}
"""Files from which a project is made, by what is ugly about them: the suffix and the content."""

HOPELESS: dict[str, tuple[str, str | bytes, str]] = {
    "no rows": ("csv", "at,type,order_id\n", "no-rows"),
    "nothing": ("csv", "", "unreadable-events"),
    "no JSON": ("jsonl", "", "no-rows"),
    "no lines": ("log", "", "unknown-log"),
    "NaN times": ("csv", "ts,type\nnan,A\n1700000000.5,B\n", "no-time"),
    "two notations": ("csv", "at,type\n2024-03-01 09:00:00,A\n01.03.2024 10:00,B\n", "no-time"),
    "day or month first": ("csv", "at,type\n03/04/2024 09:00:00,A\n03/05/2024 09:00:00,B\n", "ambiguous-time"),
    "not JSON": ("jsonl", "hello\n", "unreadable-events"),
    "a list of numbers": ("json", "[1, 2]", "unreadable-events"),
    "not Parquet": ("parquet", b"hello", "unreadable-events"),
    "not gzip": ("csv.gz", b"at,type\n1,A\n", "unreadable-events"),
    "no times": ("csv", "a,b\nx,y\n", "no-time"),
    "two leap days": ("log", "Feb 29 10:00:00 a b: c\nDec 31 10:00:00 a b: c\nFeb 29 10:00:00 a b: c\n", "no-year"),
    "years without a year": (
        "log",
        "Feb 02 10:00:00 a b: c\nDec 31 10:00:00 a b: c\nFeb 02 10:00:00 a b: c\n",
        "no-year",
    ),
    "UTF-16": ("csv", as_csv(rows()).encode("utf-16"), "unreadable-events"),
    "a list and its length": ("json", json.dumps({"Records": NESTED, "count": len(NESTED)}), "no-time"),
    "a poem": ("txt", "Shall I compare thee\nto a summer's day?\n", "unknown-log"),
}


def written(folder: Path, suffix: str, content: str | bytes | pa.Table) -> str:
    name = f"events.{suffix}"
    if isinstance(content, pa.Table):
        pyarrow.parquet.write_table(content, folder / name)
    else:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


MORE = ("nested", "names with backticks", "all times equal", "integer types")
"""Files whose project is also shown as a page, and explained: every command takes the same options."""


def check_project(name: str, more: bool = False) -> dict[str, Any]:
    """Makes a project, and runs what it prints except for Spark. Returns what `init` says as JSON."""
    made = command("init", "--events", name, "--to", "first", "--format", "json")
    assert made.exit_code == 0, made.output
    said: dict[str, Any] = json.loads(made.stdout)
    assert sum(said["matches"].values()) > 0
    assert command("check", "first/program.ensue").exit_code == 0
    assert command("fmt", "--check", "first/program.ensue").exit_code == 0
    planned = command("run", "first/pipeline.yaml", "--dry-run")
    assert planned.exit_code == 0, planned.output
    detect, report, why_not, run = printed(made.stderr)
    assert run == ["run", "first/pipeline.yaml"]
    found = command(*detect, "--format", "json")
    assert found.exit_code == 0, found.output
    assert {key: len(value) for key, value in json.loads(found.stdout).items()} == said["matches"]
    for other in (report, why_not) if more else ():
        ran = command(*other)
        assert ran.exit_code == 0, ran.output
    assert "First match of `" in made.stderr
    return said


@pytest.mark.parametrize("name", UGLY)
def test_ugly_files(folder: Path, name: str) -> None:
    check_project(written(folder, *UGLY[name]), more=name in MORE)


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_files(folder: Path, name: str) -> None:
    suffix, content, code = HOPELESS[name]
    made = command("init", "--events", written(folder, suffix, content), "--to", "first")
    assert (made.exit_code, f"error[{code}]" in made.stderr) == (2, True), made.output
    assert not (folder / "first").exists()


def test_a_row_with_too_few_cells(folder: Path) -> None:
    """The message names the line of the file, not a row of some block."""
    name = written(folder, "csv", as_csv(rows(note=lambda n: '"a;\nb"'), ";") + "2024-03-01T12:00:00;Paid\n")
    made = command("init", "--data", name)
    assert made.exit_code == 2
    assert "cannot read `events.csv` as csv: line 48 has 2 cells, but the header has 4 columns" in made.stderr
    assert "hint: add the missing cells, or put a cell that contains `;` in double quotes" in made.stderr


def test_keys_that_names_and_values_suggest(folder: Path) -> None:
    for name in ("floats as keys", "blanks in the header"):
        made = command("init", "--data", written(folder, *UGLY[name]), "--to", "first", "--force", "--format", "json")
        assert json.loads(made.stdout)["key"].strip() == "order_id"


def test_hints_for_other_files(folder: Path) -> None:
    """What is not the file that `init` needs is named, with what to do."""
    headless = written(folder, "csv", as_csv(rows()).partition("\n")[2])
    made = command("init", "--data", headless, "--to", "first")
    assert "warning: the first line of `events.csv` has a time, but it is read as the names of" in made.stderr
    made = command("init", "--data", written(folder, *HOPELESS["UTF-16"][:2]), "--to", "second")
    assert "hint: convert it, for example with `iconv -f UTF-16 -t UTF-8`" in made.stderr
    made = command("init", "--data", written(folder, *HOPELESS["a list and its length"][:2]), "--to", "second")
    assert (
        "hint: if the events are in the list `Records`, write one object per line: jq -c '.Records[]' FILE"
        in made.stderr
    )


def test_a_column_that_no_query_can_use(folder: Path) -> None:
    """The error of the simplest pattern is told, instead of a project that finds nothing."""
    large = pa.array([2**63 + n for n in range(4)] * 2, pa.uint64())
    table = pa.table({"at": pa.array(range(8), pa.timestamp("s")), "order_id": large})
    made = command("init", "--data", written(folder, "parquet", table), "--to", "first")
    assert "error[integer-range]: column `order_id` contains" in made.stderr
    assert not (folder / "first").exists()


# --- raw logs

SYSLOG = """\
Dec 31 23:59:58 web sshd[7]: Failed password for ann from 10.0.0.7 port 50001 ssh2
Dec 31 23:59:59 web sshd[7]: Failed password for bob from 10.0.0.7 port 50002 ssh2
Dec 31 23:59:59 web sshd[7]: Failed password for eve from 10.0.0.7 port 50003 ssh2
    at a line of a stack trace
Jan  1 00:00:03 web sshd[7]: Accepted password for eve from 10.0.0.7 port 50004 ssh2
Jan  1 00:00:04 web sshd[8]: Failed password for ann from 10.0.0.8 port 50005 ssh2
"""
SPRAYED = """\
STREAM Failed FROM log WHERE message LIKE 'Failed password%'
  RETURN regexp_extract(message, 'from (\\S+)', 1) AS ip, line_number;
STREAM Accepted FROM log WHERE message LIKE 'Accepted password%' RETURN regexp_extract(message, 'from (\\S+)', 1) AS ip;
PATTERN broken_in
  SEQ(COLLECT Failed f{2,}, Accepted a)
  PARTITION BY ip
  WITHIN 1 minute
  RETURN a.ip AS ip, list(f.line_number) AS failed, a.time AS at;
PATTERN twice SEQ(Failed a, Failed b) PARTITION BY ip WITHIN 1 second RETURN b.line_number AS line;
"""
CHANGED = dt.datetime(2024, 6, 1, tzinfo=dt.UTC).timestamp()


def log(folder: Path, text: str, name: str = "auth.log", changed: float = CHANGED) -> str:
    (folder / name).write_text(text)
    os.utime(folder / name, (changed, changed))
    return name


def test_a_syslog_is_read_by_every_command(folder: Path) -> None:
    """A time without a year gets the latest. The order of lines counts for failures in one second."""
    (folder / "sprayed.ensue").write_text(SPRAYED)
    name = log(folder, SYSLOG)
    found = command("detect", "sprayed.ensue", "--events", name, "--time", "time", "--format", "json")
    assert found.exit_code == 0, found.output
    broken = [{"ip": "10.0.0.7", "failed": [1, 2, 3], "at": "2024-01-01T00:00:03"}]
    assert json.loads(found.stdout) == {"broken_in": broken, "twice": [{"line": 2}, {"line": 3}]}
    assert "warning: 1 line of `auth.log` ignored: the format (syslog) does not match, first line 4" in found.stderr
    assert "times of `time` have no year: read as 2023 to 2024, the latest in which none is later" in found.stderr
    reading = ["--time", "time", "--order", "line_number"]
    found = command("detect", "sprayed.ensue", "--events", name, *reading, "--format", "json")
    assert json.loads(found.stdout) == {"broken_in": broken, "twice": [{"line": 2}, {"line": 3}, {"line": 3}]}
    report = command("report", "sprayed.ensue", "--events", name, *reading)
    assert (report.exit_code, "broken_in: 1 match" in report.output) == (0, True), report.output
    why_not = command("why-not", "sprayed.ensue", "--pattern", "broken_in", "--events", name, *reading)
    assert (why_not.exit_code, "broken_in: 1 match" in why_not.output) == (0, True), why_not.output


@pytest.mark.parametrize(
    ("changed", "years"),
    [
        (dt.datetime(2024, 6, 1, tzinfo=dt.UTC), (2023, 2024)),
        (dt.datetime(2024, 1, 1, 0, 0, 4, tzinfo=dt.UTC), (2023, 2024)),
        # Logs are in local time: up to a day later than the file is not yet the future.
        (dt.datetime(2023, 12, 31, 18, tzinfo=dt.UTC), (2023, 2024)),
        (dt.datetime(2023, 12, 30, tzinfo=dt.UTC), (2022, 2023)),
    ],
)
def test_the_year_of_a_log(folder: Path, changed: dt.datetime, years: tuple[int, int]) -> None:
    name = log(folder, SYSLOG, changed=changed.timestamp())
    read = read_sources([name], ["time"])
    assert isinstance(read, pa.Table)
    assert [time.year for time in read.column("time").to_pylist()] == [years[0]] * 3 + [years[1]] * 2


def test_years_of_a_sparse_log(folder: Path) -> None:
    """Months can be missing; a line of December after one of January is late."""
    days = ["Jan 05", "Aug 20", "Jun 01", "Dec 31", "Jan 01", "Dec 31", "Jan 01"]
    read = read_sources([log(folder, "".join(f"{day} 10:00:00 web cron: done\n" for day in days))], ["time"])
    assert isinstance(read, pa.Table)
    assert [time.year for time in read.column("time").to_pylist()] == [2022, 2022, 2023, 2023, 2024, 2023, 2024]


def test_a_pipeline_knows_the_year_of_each_line(folder: Path) -> None:
    """The last days of January are of the year before its first days."""
    days = ["Jan 20", "Jan 31", "Dec 31", "Jan  9"]
    name = log(folder, "".join(f"{day} 10:00:00 web cron: done\n" for day in days))
    read = read_sources([name], ["time"])
    assert isinstance(read, pa.Table)
    assert [time.year for time in read.column("time").to_pylist()] == [2023, 2023, 2023, 2024]
    made = command("init", "--data", name, "--to", "first")
    assert made.exit_code == 0, made.output
    text = (folder / "first" / "pipeline.yaml").read_text()
    assert "CASE WHEN substr(`time_text`, 1, 3) IN ('Dec') OR substr(`time_text`, 1, 3) = 'Jan' AND " in text
    assert "AS INT) >= 20 THEN '2023 ' ELSE '2024 ' END" in text


def test_a_leap_day_needs_a_leap_year(folder: Path) -> None:
    text = "Feb 29 10:00:00 web cron: done\nMar 01 10:00:00 web cron: done\n"
    read = read_sources([log(folder, text, changed=CHANGED + 400 * 86400)], ["time"])
    assert isinstance(read, pa.Table)
    assert read.column("time").to_pylist() == [dt.datetime(2024, 2, 29, 10), dt.datetime(2024, 3, 1, 10)]


LINES = {
    "access": (
        '10.0.0.1 - ann [10/Oct/2024:13:55:36 +0200] "GET /a?b=c HTTP/1.1" 404 23 "-" "curl/8.0"',
        {"ip": "10.0.0.1", "method": "GET", "path": "/a?b=c", "status": "404", "agent": "curl/8.0"},
        dt.datetime(2024, 10, 10, 11, 55, 36),
    ),
    "common": (
        '10.0.0.1 - - [10/Oct/2024:13:55:36 +0000] "GET / HTTP/1.0" 200 -',
        {"status": "200", "bytes": "-", "agent": None},
        dt.datetime(2024, 10, 10, 13, 55, 36),
    ),
    "apache error": (
        "[Sun Dec 04 04:47:44 2005] [error] [client 10.0.0.9] File does not exist: /x",
        {"level": "error", "client": "10.0.0.9", "message": "File does not exist: /x"},
        dt.datetime(2005, 12, 4, 4, 47, 44),
    ),
    "apache 2.4 error": (
        "[Wed Oct 11 14:32:52.123456 2023] [core:error] [pid 35708:tid 43] [client 10.0.0.9:72] AH1: no",
        {"level": "error", "pid": "35708", "client": "10.0.0.9:72", "message": "AH1: no"},
        dt.datetime(2023, 10, 11, 14, 32, 52, 123456),
    ),
    "nginx error": (
        "2024/01/02 03:04:05 [error] 12#34: *56 open() failed",
        {"level": "error", "pid": "12", "connection": "56", "message": "open() failed"},
        dt.datetime(2024, 1, 2, 3, 4, 5),
    ),
    "syslog": (
        "Jun  4 05:06:07 combo sshd(pam_unix)[19939]: check pass",
        {"host": "combo", "program": "sshd(pam_unix)", "pid": "19939", "message": "check pass"},
        dt.datetime(2023, 6, 4, 5, 6, 7),
    ),
    "syslog of login": (
        "Jul  7 08:06:15 combo  -- root[2421]: ROOT LOGIN ON tty2",
        {"host": "combo", "program": "root", "pid": "2421", "message": "ROOT LOGIN ON tty2"},
        dt.datetime(2023, 7, 7, 8, 6, 15),
    ),
    "ISO syslog": (
        "<34>1 2024-01-02T03:04:05.678Z web cron[5]: started",
        {"host": "web", "program": "cron", "pid": "5", "message": "started"},
        dt.datetime(2024, 1, 2, 3, 4, 5, 678000),
    ),
    "application": (
        "2024-01-02 03:04:05,678 WARN retry of order 7",
        {"level": "WARN", "message": "retry of order 7"},
        dt.datetime(2024, 1, 2, 3, 4, 5, 678000),
    ),
}
"""Lines of formats that are recognised: their columns, and the time."""


@pytest.mark.parametrize("name", LINES)
def test_recognised_formats(folder: Path, name: str) -> None:
    line, columns, time = LINES[name]
    read = read_sources([log(folder, f"{line}\n{line}\n")], ["time"])
    assert isinstance(read, pa.Table)
    row = read.to_pylist()[1]
    assert {key: row[key] for key in columns} == columns
    assert (row["time"].replace(tzinfo=None), row["line_number"]) == (time, 2)


@pytest.mark.parametrize("name", LINES)
def test_init_of_every_format(folder: Path, name: str) -> None:
    check_project(log(folder, f"{LINES[name][0]}\n" * 12))


def test_init_of_an_access_log(folder: Path) -> None:
    """The status is what happened, and the address did it: five errors in a short time."""
    statuses = ["200"] * 30 + ["404"] * 5 + ["200"] * 5
    text = "".join(
        f'10.0.0.{9 if status == "404" else n % 4} - - [10/Oct/2024:13:{n:02}:36 +0000] "GET /{n} HTTP/1.1" {status} 5 '
        f'"-" "{AGENT}"\n'
        for n, status in enumerate(statuses)
    )
    said = check_project(log(folder, text, "access.log"))
    assert (said["time"], said["type"], said["key"]) == ("time", "status", "ip")
    assert "SEQ(`404` earlier{4,} ALL, `404` last)" in (folder / "first" / "program.ensue").read_text()


def test_parse_names_the_columns(folder: Path) -> None:
    """An empty group is null, so it joins nothing."""
    lines = [f"[2024-03-01 09:00:{n:02}] {'in' if n % 2 else 'out'} user={'' if n < 4 else n // 4}" for n in range(24)]
    name = log(folder, "\n".join(lines), "doors.txt")
    pattern = r"^\[(?P<at>[^\]]+)\] (?<what>\w+) user=(?P<user>\d*)"
    made = command("init", "--events", name, "--parse", pattern, "--to", "first", "--format", "json")
    assert made.exit_code == 0, made.output
    said = json.loads(made.stdout)
    assert (said["time"], said["type"], said["key"]) == ("at", "what", "user")
    found = command(*printed(made.stderr)[0], "--format", "json")
    assert found.exit_code == 0, found.output
    matches = json.loads(found.stdout)
    assert {key: len(value) for key, value in matches.items()} == said["matches"]
    assert all(row["user"] for rows in matches.values() for row in rows)
    planned = command("run", "first/pipeline.yaml", "--dry-run")
    assert planned.exit_code == 0, planned.output


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        (r"(\d+)", "parse-groups"),
        ("(?P<a>x)(?P<a>y)", "parse-groups"),
        ("(?P<a>x", "parse-regex"),
        ("(?P<a>(?=x))", "parse-regex"),
    ],
)
def test_parse_mistakes(folder: Path, pattern: str, code: str) -> None:
    (folder / "p.ensue").write_text("PATTERN p (A a)")
    found = command("detect", "p.ensue", "--events", log(folder, SYSLOG), "--parse", pattern, "--time", "a")
    assert (found.exit_code, f"error[{code}]" in found.stderr) == (2, True), found.output


BROKEN_IN = "".join(
    f"2024-03-01T09:{minute:02}:{second:02} web sshd[7]: {said} for u{minute % 3} from 10.0.0.{minute % 9} port 7\n"
    for minute in range(40)
    for second, said in [
        (1, "Failed password"),
        *([(second, "Failed password") for second in (5, 9)] if minute == 12 else []),
        (20, "Accepted password"),
    ]
)


def test_a_success_after_failures_is_proposed(folder: Path) -> None:
    """One failure before a success is usual; three are an alert, and its first match is shown.

    The next success of this address, nine minutes later, is another match. Messages with varying parts are no types,
    although they repeat.
    """
    said = check_project(log(folder, BROKEN_IN))
    assert said["matches"]["succeeded"] == 2
    again = command("init", "--data", "auth.log", "--to", "again")
    assert "`AcceptedPassword` after 3 `FailedPassword` or more within 10" in again.stderr
    first = again.stderr.partition("First match of `succeeded`, ip = 10.0.0.3:\n")[2].splitlines()[:5]
    assert [line.split()[2] for line in first] == [*["FailedPassword"] * 4, "AcceptedPassword"]


def test_bursts_have_windows_that_people_use(folder: Path) -> None:
    """Nine failures in a second are a burst of a minute, and one alert. Bursts of other lines are another pattern."""
    lines = [
        f"2024-03-0{day}T09:00:0{n} web {program}[1]: {said} from 10.0.0.{day}\n"
        for day in range(1, 10)
        for program, said in [("sshd", "Failed password"), ("ftpd", "New connection")]
        for n in range(9)
    ]
    assert check_project(log(folder, "".join(lines)))["matches"].items() >= {"repeated": 9, "repeated_2": 9}.items()
    program = (folder / "first" / "program.ensue").read_text()
    assert len(re.findall(r"WITHIN 1 ?m(?:inute)?\n  SUPPRESS FOR 1 ?m(?:inute)?\n", program)) == 2


def test_jumps_are_relative_to_the_value(folder: Path) -> None:
    """A change by 50 is usual for a price of 10,000, and a jump for a price of 100."""
    lines = ["at,symbol,price"]
    for n in range(200):
        at = (BEGIN + dt.timedelta(seconds=n)).isoformat()
        noise = n * n * 7919 % 1009 / 1009
        lines += [f"{at},BIG,{10_000 + 50 * noise}", f"{at},SMALL,{100 + (50 if n == 150 else noise / 2)}"]
    check_project(written(folder, "csv", "\n".join(lines) + "\n"))
    program = (folder / "first" / "program.ensue").read_text()
    assert re.search(r"WHERE abs\(b\.price - a\.price\) >= 0\.\d+ \* a\.price", program)


# --- real files

REAL = {
    "loghub_openssh_2k.log": ("ip", "line_number", ("FailedPassword", "InvalidUser")),
    "loghub_linux_2k.log": ("source", "line_number", ("AuthenticationFailure", "Connection")),
    "loghub_apache_2k.log": (None, "line_number", ("WorkerEnvInitOk",)),
    "nasdaq_trades.csv": ("id", None, ("Row",)),
    "bpic2013_incidents.csv.gz": ("case", None, ("Queued", "Accepted")),
}
"""Public files: the key, the order, and streams of the program."""


@pytest.mark.parametrize("name", REAL)
def test_real_files(folder: Path, name: str) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"the file is not in {DATA}")
    key, order, streams = REAL[name]
    said = check_project(str(DATA / name), more=True)
    assert (said["key"], said["order"]) == (key, order)
    program = (folder / "first" / "program.ensue").read_text()
    assert all(re.search(rf"\b{stream}\b", program) for stream in streams)


def on_spark() -> Iterator[Any]:
    """The real files and some of the others; `make soak PART=inputs` runs all of them."""
    for place, name in enumerate([*UGLY, *LINES]):
        yield pytest.param(name, marks=pytest.mark.slow if place % 8 == 0 else pytest.mark.soak("inputs"))
    for name in REAL:
        yield pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [*on_spark()])
def test_pipelines_run_as_written(folder: Path, spark: SparkSession, name: str) -> None:
    """Spark finds what `init` says."""
    if name in UGLY:
        data = written(folder, *UGLY[name])
    elif name in LINES:
        data = log(folder, f"{LINES[name][0]}\n" * 12)
    elif (DATA / name).exists():
        data = str(DATA / name)
    else:
        pytest.skip(f"the file is not in {DATA}")
    made = command("init", "--events", data, "--to", "first", "--format", "json")
    assert made.exit_code == 0, made.output
    ran = command(*printed(made.stderr)[3], "--format", "json")
    assert ran.exit_code == 0, ran.output
    counts = Counter(said["output"] for said in map(json.loads, ran.stdout.splitlines()) if "output" in said)
    for place in (folder / "first" / "out").glob("*"):
        counts[place.name] += sum(len(file.read_text().splitlines()) for file in place.glob("*.json"))
    assert +counts == Counter(json.loads(made.stdout)["matches"])
