"""Imports go down only: the contracts of `[tool.importlinter]`, kept by the tests too, and shown to bite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOWN = "Imports go down only"
KERNELS = "Only the engine calls kernels; anyone may warm them up"
SPARK = "Only runtimes import pyspark"


def broken_contracts(project: Path) -> list[str]:
    """The names of the contracts that the package in `project` breaks, by a process of its own."""
    ran = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts: " in ran.stdout, ran.stdout + ran.stderr
    return re.findall(r"^(.*) BROKEN", ran.stdout, re.MULTILINE)


def test_contracts_are_kept() -> None:
    assert broken_contracts(ROOT) == []


@pytest.mark.parametrize(
    ("module", "statement", "broken"),
    [
        ("errors.py", "import ensue.api", [DOWN]),
        ("errors.py", "import ensue", [DOWN]),
        ("lang/names.py", "import ensue.dsl", [DOWN]),
        ("kernels/ranges.py", "import ensue.errors", [DOWN]),
        ("plan/model.py", "import ensue.kernels.ranges", [KERNELS]),
        ("plan/model.py", "import ensue.kernels.warm", []),
        ("engine/keys.py", "import pyspark", [SPARK]),
        ("runtimes/local.py", "import pyspark.sql", []),
        ("shelf.py", "", [DOWN]),
    ],
)
def test_contracts_bite(tmp_path: Path, module: str, statement: str, broken: list[str]) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "src" / "ensue" / module
    path.write_text((path.read_text() if path.exists() else "") + f"\n{statement}\n")
    assert broken_contracts(tmp_path) == broken
