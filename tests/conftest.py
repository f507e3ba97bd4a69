"""Settings for all tests: fixed draws, tiers, and one Java process.

A test is in one of three tiers: those without a mark (`make test`), `slow` (`make test-all` adds them) and `soak`.
Tests that use Spark in the process of the tests take the fixture `spark`; pytest-xdist gives all of them to one worker.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

import ensue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "default",
    deadline=None,
    max_examples=30,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("thorough", deadline=None, max_examples=3000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", help="run only this part of the soak tests, the argument of their mark")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if part := config.getoption("--part"):
        items[:] = [item for item in items if part in getattr(item.get_closest_marker("soak"), "args", ())]


class OneJava(LoadScopeScheduling):
    """The tests of a file run in one worker, and all files that need Spark in the same: one Java process serves them.

    This is what `--dist loadgroup` is for; pytest-xdist 3.8 loses the groups with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = nodeid.split("::")[0]
        return "spark" if _needs_spark(self.config.rootpath / file) else file


@cache
def _needs_spark(file: Path) -> bool:
    return re.search(r"\bspark: SparkSession|mark\.spark\b", file.read_text("utf-8")) is not None


@pytest.hookimpl(optionalhook=True)  # `-p no:xdist` leaves its hooks unknown
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneJava:
    return OneJava(config, log)


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark") is not None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One small session for all tests. Functions that go to Spark's workers are defined inside of a test: workers do
    not import test modules.
    """
    session = ensue.spark_session(
        "ensue tests", master="local[2]", memory="2g", config={"spark.sql.shuffle.partitions": "2"}
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _java_only_where_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that starts Spark in this process without the mark would start a second Java process."""
    before = _has_java()
    yield
    if not before and _has_java() and not _uses_spark(request.node):
        pytest.fail("this test starts Spark in its own process: let it take the fixture `spark`")


def _has_java() -> bool:
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None
