"""A standalone cluster of two workers from the pip package: the same matches, streams and errors as in this process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ensue
from spark.cluster_program import COLUMNS, EXPECTED, SEQUENCE, many_events
from spark.clusters import Cluster, Report, group_members, run_program, standalone_cluster

pytestmark = pytest.mark.slow

HOLDS_A_SERVER = """
import sys, time
from pathlib import Path
from spark.clusters import server
with server("sleeper", ["sh", "-c", "sleep 600 & sleep 600"], Path(sys.argv[1]), {}) as running:
    sys.stdout.write(f"{running.process.pid}\\n")
    sys.stdout.flush()
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
    assert [member for one in running.servers for member in group_members(one.process.pid)] == []


@pytest.fixture(scope="module")
def report(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return run_program(cluster.url, tmp_path_factory.mktemp("program"))


def test_session(report: Report) -> None:
    found = report["session"]
    assert (found["module"], found["again"], found["java"]) == ("pyspark.sql.session", True, True)


@pytest.mark.parametrize("part", EXPECTED)
def test_same_as_here(report: Report, part: str) -> None:
    assert report[part] == EXPECTED[part]()


def test_matches_are_found_on_both_workers(report: Report) -> None:
    tasks = report["executors"]
    assert sorted(Path(task["folder"]).name for task in tasks) == ["0", "1"]
    assert {task["python"] for task in tasks} == {sys.executable}
    assert sum(task["rows"] for task in tasks) == ensue.detect(many_events(), SEQUENCE, **COLUMNS).num_rows
    assert all(task["rows"] for task in tasks)


def test_status_line(report: Report) -> None:
    assert re.search(r"8 rows, 2 matches, 1 late row, .*watermark 2024-01-01 00:00:19", report.stderr), report.stderr


def test_nothing_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_SERVER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin:/bin"},
    )
    with holder:
        assert holder.stdout is not None
        group = int(holder.stdout.readline())
        assert len(group_members(group)) >= 3
        holder.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 300
    while group_members(group) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert group_members(group) == []
