"""Which packages a session of a pipeline gets, and what is said where one is missing. No Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkRuntimeError

import ensue
from inside import packages, read_pipeline_text, session_of

KAFKA = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
TEXT = """
query: PATTERN p (A a)
sources:
  - format: kafka
    options: {kafka.bootstrap.servers: a, subscribe: b}
    value: at TIMESTAMP
    time: at
outputs: {p: console}
spark: {packages: ["${GROUP}:artifact:1"]}
"""


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def made(formats: list[str], asked: list[str] | None = None, config: dict[str, str] | None = None, **known: str) -> Any:
    return packages.package_settings(formats, asked or [], config or {}, known).get("spark.jars.packages")


def test_spark_fetches_its_own_formats() -> None:
    assert made(["csv", "kafka", "kafka"]) == KAFKA
    assert made(["csv", "delta"]) is None
    assert made(["kafka"], ["a:b:1"], {"spark.jars.packages": "c:d:2"}) == f"c:d:2,a:b:1,{KAFKA}"


@pytest.mark.parametrize("key", ["spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"])
def test_what_comes_in_another_way_is_not_added(key: str) -> None:
    given = {key: "somewhere/spark-sql-kafka-0-10_2.13-4.0.0.jar"}
    assert made(["kafka"], config=given) == given.get("spark.jars.packages")
    assert packages.package_settings(["kafka"], [], {}, given) == {}


def test_arguments_of_spark_submit_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--packages {KAFKA} pyspark-shell")
    assert made(["kafka"]) is None


def test_packages_that_cannot_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **settings: Any) -> Any:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(packages, "spark_session", refuse)
    monkeypatch.setattr(packages, "takes_packages", lambda: True)
    pipeline = read_pipeline_text(TEXT, tmp_path / "pipeline.yaml", {"GROUP": "hunter2"})
    with pytest.raises(ensue.QueryError) as caught, session_of(pipeline):
        pass
    assert (caught.value.code, caught.value.line) == ("pipeline-package", 9)
    assert f"${{GROUP}}:artifact:1, {KAFKA}" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("format", "says"),
    [
        ("kafka", f"add `packages: [{KAFKA}]` to `spark`"),
        (
            "delta",
            "add `packages: [io.delta:delta-spark_2.13:VERSION]` (with the version for this Spark) to `spark`, and",
        ),
        ("mine", "add `packages: [GROUP:ARTIFACT:VERSION]`"),
    ],
)
def test_what_to_add(format: str, says: str) -> None:
    assert packages.missing_package_hint(format, running=False).startswith(says)
    assert "--packages" in packages.missing_package_hint(format, running=True)
