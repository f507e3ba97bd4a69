"""One small Spark session for all tests of a process; pytest-xdist gives each of its processes one.

Functions that go to Spark's workers stand inside the test: workers do not import test modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import ensue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = ensue.spark_session(
        "ensue tests", master="local[2]", memory="1g", config={"spark.sql.shuffle.partitions": "2"}
    )
    yield session
    session.stop()
