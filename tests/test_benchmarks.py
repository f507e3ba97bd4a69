"""The benchmarks run, on small sizes; what they measure is no matter for a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CORE = Path(__file__).parents[1] / "benchmarks" / "core.py"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc, which only Linux has")
def test_core_benchmarks_give_every_figure() -> None:
    done = subprocess.run(
        [sys.executable, str(CORE), "--events", "20000", "--keys", "200", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert len(figures) == 23
    assert {"name", "value", "measure", "target", "reached"} <= set(figures[0])
