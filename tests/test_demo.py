"""The demo: what it finds is what a plain reading of each order's history finds."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import ensue
from inside import app, choose_java, demo_program, draw_orders, next_steps, order_stream, paragraphs, read_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
PAGE = Path("demo.html")


class History:
    """The events of one order, by stream."""

    def __init__(self) -> None:
        self.events: dict[str, list[Row]] = defaultdict(list)

    def times(self, *streams: str) -> list[datetime]:
        return [row["t"] for stream in streams for row in self.events[stream]]


def histories(events: pa.Table) -> Iterator[tuple[int, History]]:
    by_order: dict[int, History] = defaultdict(History)
    for row in events.to_pylist():
        by_order[row["order_id"]].events[row["type"]].append(row)
    yield from by_order.items()


def shipped_unpaid(of: History) -> int:
    return sum(
        placed < shipped <= placed + timedelta(days=14)
        and not any(placed < paid < shipped for paid in of.times("Paid"))
        for placed in of.times("Placed")
        for shipped in of.times("Shipped")
    )


def overdue(of: History) -> int:
    return sum(
        not any(paid < ended <= paid + timedelta(days=2) for ended in of.times("Shipped", "Cancelled"))
        for paid in of.times("Paid")
    )


def packed_in_vain(of: History) -> int:
    return sum(
        packed < cancelled <= packed + timedelta(days=14)
        and not any(packed < shipped < cancelled for shipped in of.times("Shipped"))
        for packed in of.times("Packed")
        for cancelled in of.times("Cancelled")
    )


def unanswered(of: History) -> int:
    answers = [row["t"] for row in of.events["Reply"] if row["channel"] != "automatic"]
    return sum(
        not any(row["t"] < answer <= row["t"] + timedelta(days=1) for answer in answers)
        for row in of.events["Complaint"]
        if row["severity"] >= 3
    )


def call_first(of: History) -> int:
    days = timedelta(days=14)
    return sum(
        paid + timedelta(days=2) < complaint <= paid + days
        for paid in of.times("Paid")
        if not any(paid < ended <= paid + timedelta(days=2) for ended in of.times("Shipped", "Cancelled"))
        for complaint in of.times("Complaint")
    )


READINGS = {
    "shipped_unpaid": shipped_unpaid,
    "packed_in_vain": packed_in_vain,
    "unanswered": unanswered,
    "call_first": call_first,
    "overdue": overdue,
}


def broken_promises(events: pa.Table) -> list[int]:
    return sorted(order for order, of in histories(events) if of.times("Delivered") and of.times("Cancelled"))


@pytest.mark.parametrize("seed", [7, 8])
def test_matches_are_those_of_a_plain_reading(seed: int) -> None:
    events = draw_orders(5_000, seed)
    found = ensue.run(events, demo_program(), time="t", type="type")
    assert list(found) == list(READINGS)
    for name, reading in READINGS.items():
        expected = sorted(order for order, history in histories(events) for _ in range(reading(history)))
        assert sorted(found[name].column("order_id").to_pylist()) == expected
        assert len(expected) >= 3, f"{name} should have something to show"
    broken = ensue.violations(events, demo_program(), time="t", type="type")
    assert sorted(broken.column("order_id").to_pylist()) == broken_promises(events) != []


def test_same_seed_same_orders() -> None:
    assert draw_orders(50, 3).equals(draw_orders(50, 3))
    assert not draw_orders(50, 3).equals(draw_orders(50, 4))


def test_every_part_has_one_line_of_explanation() -> None:
    names = [name for name, _, _ in paragraphs(demo_program())]
    assert sorted(name for name in names if name) == sorted(READINGS)
    for _, comment, statements in paragraphs(demo_program()):
        assert comment.startswith("-- ")
        assert "--" not in statements


def counts_in(shown: str) -> None:
    """Checks the counts that the demo shows for 500 orders."""
    events = draw_orders(500, 7)
    for name, reading in READINGS.items():
        assert f"\n{name}: {sum(reading(history) for _, history in histories(events))} match" in shown
    assert f"\nconstraints: broken by {len(broken_promises(events))} order" in shown


def test_demo_in_process_shows_counts_and_saves(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--orders", "500", "--to", str(tmp_path), "--on", "process"])
    assert result.exit_code == 0, result.stderr
    counts_in(result.stdout)
    assert f"explain {tmp_path / 'demo.ensue'}" in result.stderr
    assert "<html" in (tmp_path / PAGE).read_text(encoding="utf-8")
    files = ["detect", str(tmp_path / "demo.ensue"), "--events", str(tmp_path / "orders.parquet")]
    assert CliRunner().invoke(app, [*files, "--time", "t", "--type", "type"]).exit_code == 0


def test_demo_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["demo", "--on", "process", "--orders", "300", "--format", "json"])
    shown = json.loads(done.stdout)
    assert done.exit_code == 0
    assert shown["matches"].keys() == {name for name, _, _ in paragraphs(demo_program()) if name}
    assert len(shown["matches"]["overdue"]) == sum(overdue(of) for _, of in histories(draw_orders(300, 7)))
    assert Path(shown["page"]).exists()


def test_commands_that_are_proposed_run_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(Path(sys.executable).parent.parent)
    beside = Path("bin", "ensue")
    commands = [shlex.split(line) for line in next_steps(None, PAGE).splitlines() if line.startswith(f"  {beside} ")]
    assert [command[1] for command in commands] == ["demo", "explain", "detect", "why-not", "init"]
    monkeypatch.setenv("PATH", str(beside.parent.absolute()))
    assert "\n  ensue demo --to .\n" in next_steps(None, PAGE)
    assert "demo --to" not in next_steps(tmp_path, PAGE)
    monkeypatch.chdir(tmp_path)
    (_, *saving), *others = commands
    assert CliRunner().invoke(app, [*saving, "--on", "process"]).exit_code == 0
    for _, *arguments in others:
        data = ["orders.parquet" if argument.startswith("YOUR_") else argument for argument in arguments]
        result = CliRunner().invoke(app, data)
        assert result.exit_code == 0, result.stderr


def test_demo_is_a_stream_that_finds_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(order_stream, "FILES", 1)
    result = CliRunner().invoke(app, ["demo", "--orders", "500"])
    assert result.exit_code == 0, result.stderr
    counts_in(result.stdout)
    assert result.stdout.endswith("finds the same alerts.\n")
    events = draw_orders(500, 7).num_rows
    progress = [line for line in result.stderr.splitlines() if " events read, " in line]
    assert len(progress) > 1
    assert re.fullmatch(rf"  {events + 1:,} events read, [1-9]\d* alerts so far, watermark [-\d]+ [\d:]+", progress[-1])
    assert capfd.readouterr().err == "", "Spark is quiet"
    assert not spark.streams.active
    assert "open demo.html in a browser" in result.stderr
    assert PAGE.exists()


def test_ctrl_c_stops_the_stream_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: object) -> None:
        assert spark.streams.active
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(order_stream.ProgressBar, "look", press)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = CliRunner().invoke(app, ["demo", "--orders", "50"])
    assert result.exit_code == 130
    assert result.stderr.endswith("\nStopping ... (press Ctrl-C again to stop immediately)\n")
    assert not spark.streams.active
    assert not list(tmp_path.glob("ensue-demo-*"))


def test_demo_on_spark_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java(*_: object, **__: object) -> None:
        choose_java([])

    monkeypatch.setattr("ensue.runtimes.spark.session.spark_session", no_java)
    result = CliRunner().invoke(app, ["demo", "--orders", "5"])
    assert result.exit_code == 1
    assert "error[no-java]" in result.stderr
    assert "ensue[java]" in result.stderr
    assert "Traceback" not in result.stderr


def test_one_order_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["demo", "--orders", "1", "--on", "process"]).exit_code == 0


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_events_can_be_had_as_a_file(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"week.{suffix}"
    result = CliRunner().invoke(app, ["demo", "--orders", "20", "--output", str(file)])
    assert result.exit_code == 0, result.stderr
    table = read_sources([str(file)], ["t"])
    assert isinstance(table, pa.Table)
    assert table.num_rows == draw_orders(20, 7).num_rows
    assert table.column_names == draw_orders(20, 7).column_names


@pytest.mark.parametrize(("file", "code"), [("week.xlsx", "unknown-format"), ("no/week.csv", "unwritable-file")])
def test_events_go_nowhere_else(file: str, code: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--orders", "20", "--output", str(tmp_path / file)])
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr
