"""Settings for all tests: fixed draws, tiers, and one Java process.

A test is in one of three tiers: those without a mark (`make test`), `slow` (`make test-all` adds them) and `soak`.
Tests that use Spark in the process of the tests take the fixture `spark`; pytest-xdist gives all of them to one worker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of a file run in one worker, and all that need Spark in one: two Java processes are slower than one."""
    if part := config.getoption("--part"):
        items[:] = [item for item in items if part in getattr(item.get_closest_marker("soak"), "args", ())]
    for item in items:
        group = "spark" if _uses_spark(item) else item.nodeid.split("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark") is not None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One small session for all tests. Functions that go to Spark's workers are defined inside of a test: workers do
    not import test modules.
    """
    session = ensue.spark_session(
        "ensue tests", master="local[2]", memory="1g", config={"spark.sql.shuffle.partitions": "2"}
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
