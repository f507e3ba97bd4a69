"""What someone meets who has just cloned the repository: only Python, make and git are there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs without the environment of this very run: no active venv, no make above."""
    left_out = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    ran = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran


def shown_in_readme() -> set[str]:
    """The lines that README.md shows below `make demo`."""
    block = (ROOT / "README.md").read_text(encoding="utf-8").partition("$ make demo\n")[2].partition("```")[0]
    lines = {line for line in block.splitlines() if line not in ("", "...")}
    assert "overdue: 222 matches" in lines
    return lines


@pytest.mark.soak("setup")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_fresh_clone(tmp_path: Path) -> None:
    run("git", "clone", "--quiet", str(ROOT), "clone", cwd=tmp_path)
    clone = tmp_path / "clone"
    assert "make demo" in run("make", cwd=clone).stdout
    assert not (clone / ".venv").exists(), "help needs no set-up"
    shown = run("make", "demo", cwd=clone).stdout
    assert shown_in_readme() <= set(shown.splitlines())
    run("make", "check", cwd=clone)
    assert run("git", "status", "--porcelain", cwd=clone).stdout == "", "set-up leaves no files behind"
