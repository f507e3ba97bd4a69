"""Spark Connect: the same matches, streams and errors as in this process, without a Java process or py4j beside it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ensue
from spark.cluster_program import COLUMNS, EXPECTED, SEQUENCE, many_events
from spark.clusters import PATIENCE, Report, connect_server, group_members, run_program

SOURCE = Path(ensue.__file__).parent
pytestmark = pytest.mark.slow
OWN_SESSION = """
import json, sys, warnings
before = set(sys.modules)
from importlib.metadata import packages_distributions
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
import ensue
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    same = ensue.spark_session() is spark
import pyarrow
from pyspark import SparkContext
events = spark.createDataFrame(pyarrow.table({"t": [1, 2], "type": ["A", "B"]}))
found = ensue.detect(events, "PATTERN SEQ(A a, B b) RETURN b.t AS at", time="t", type="type").collect()
owners = packages_distributions()
json.dump({
    "same": same,
    "notices": [[one.category.__name__, str(one.message)] for one in caught],
    "found": [row.asDict() for row in found],
    "java": SparkContext._active_spark_context is not None or SparkContext._gateway is not None,
    "packages": sorted({owner for name in set(sys.modules) - before for owner in owners.get(name.split(".")[0], [])}),
}, sys.stdout)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as (address, running):
        yield address
    assert group_members(running.process.pid) == []


@pytest.fixture(scope="module")
def report(url: str, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return run_program(url, tmp_path_factory.mktemp("program"))


def test_session_without_java(report: Report) -> None:
    assert report["session"] == {"module": "pyspark.sql.connect.session", "again": True, "java": False, "py4j": []}


@pytest.mark.parametrize("part", EXPECTED)
def test_same_as_here(report: Report, part: str) -> None:
    assert report[part] == EXPECTED[part]()


def test_matches_are_found_on_the_server(report: Report) -> None:
    tasks = report["executors"]
    assert sum(task["rows"] for task in tasks) == ensue.detect(many_events(), SEQUENCE, **COLUMNS).num_rows
    assert {task["python"] for task in tasks} == {sys.executable}


def test_status_line_is_all_that_is_printed(report: Report) -> None:
    assert report["start"]
    line = r"\d+ micro-batches, 8 rows, 2 matches, 1 late row, .*watermark 2024-01-01 00:00:19\n"
    assert re.fullmatch(line, report.stderr), report.stderr


@pytest.fixture(scope="module")
def own(url: str) -> dict[str, object]:
    program = [sys.executable, "-c", OWN_SESSION, url]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


class TestOwnSession:
    """A session that the user has made, with all of PySpark at hand."""

    def test_is_used(self, own: dict[str, object]) -> None:
        assert (own["same"], own["found"], own["java"]) == (True, [{"at": 2}], False)

    def test_notice(self, own: dict[str, object]) -> None:
        [[category, message]] = own["notices"]  # type: ignore[misc]
        assert category == "EnsueNotice"
        assert 'spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", "2147483647")' in message
        assert "RocksDBStateStoreProvider" in message

    def test_needs_no_more_than_the_extra(self, own: dict[str, object]) -> None:
        packages = {canonicalize_name(name) for name in own["packages"]}  # type: ignore[attr-defined]
        assert {"pyspark", "pyarrow", "numba", "grpcio"} <= packages
        # Spark Connect looks for a notebook in which it could show its progress, numba for the others.
        optional = of(["ipykernel", "scipy", "joblib"]) | {"cython", "colorama"}
        assert packages - of_project("connect") - optional == set()
        assert "grpcio" in packages - of_project()


def of_project(*extras: str) -> set[str]:
    """All packages that come with Ensue and these extras of it."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    return of(
        [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    )


def of(wanted: list[str]) -> set[str]:
    """Some packages with all that they need."""
    found: set[tuple[str, str]] = set()
    for text in wanted:
        follow(Requirement(text), found)
    return {name for name, _ in found}


def follow(requirement: Requirement, found: set[tuple[str, str]]) -> None:
    """Adds a package and what it needs, each with the extra for which it is needed."""
    for extra in ("", *sorted(requirement.extras)):
        step = (canonicalize_name(requirement.name), extra)
        if step in found:
            continue
        found.add(step)
        for needed in map(Requirement, metadata.requires(requirement.name) or []):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                follow(needed, found)
