"""The benchmarks run, on small sizes; what they measure is no matter for a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc, which only Linux has")
def test_core_benchmarks_give_every_figure() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "core.py"), "--events", "20000", "--keys", "200", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert len(figures) == 23
    assert {"name", "value", "measure", "target", "reached"} <= set(figures[0])


@pytest.mark.soak
def test_spark_benchmarks_give_every_figure() -> None:
    sizes = ["--events", "80000", "--micro-batch", "10000", "--keys", "500", "--runs", "1"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "spark.py"), *sizes, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert len(figures) == 10
    assert all(figure["value"] > 0 for figure in figures)
