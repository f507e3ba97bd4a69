"""The built wheel in new environments, on each Python from 3.11 on that this machine has: alone, then with extras.

Versions are those of the lock files, so that the test gives the same result until `make lock` changes them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
MINORS = (11, 12, 13, 14)
EXTRAS = ("exact", "polars")
ALONE = """
import sys
import ensue, pandas as pd

events = pd.DataFrame({"t": [1, 2, 3], "type": ["A", "B", "B"], "p": [0.5, 0.5, 0.5]})
assert len(ensue.detect(events, "PATTERN SEQ(A a, B b) WITHIN 5", time="t", type="type")) == 2
try:
    ensue.any_match(events, "PATTERN SEQ(A a, B b)", time="t", type="type", probability="p")
except ensue.SetupError as error:
    assert error.code == "no-pysdd", error
else:
    raise AssertionError("PySDD is installed")
assert "polars" not in sys.modules
print(ensue.__version__)
"""
WITH_EXTRAS = """
import ensue, polars as pl

events = pl.DataFrame({"t": [1, 2, 3], "type": ["A", "B", "B"], "p": [0.5, 0.5, 0.5]})
found = ensue.any_match(events, "PATTERN SEQ(A a, B b)", time="t", type="type", probability="p")
assert isinstance(found, pl.DataFrame), type(found)
assert found["probability"].to_list() == [0.375]
"""


@cache
def interpreter(minor: int) -> str | None:
    """A Python 3.`minor` on the path, or one that pyenv has installed."""
    name = f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    installed = sorted(pyenv.glob(f"3.{minor}.*/bin/{name}"))
    candidates = [sys.executable, *map(str, installed), *filter(None, [shutil.which(name)])]
    return next((path for path in candidates if _is_minor(path, minor)), None)


def _is_minor(path: str, minor: int) -> bool:
    ran = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
    return ran.returncode == 0 and ran.stdout.split() == ["3", str(minor)]


def run(*command: str | Path, cwd: Path) -> str:
    """Runs without the environment of this very run."""
    left_out = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    ran = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = (
        "-m",
        "pip",
        "--quiet",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    )
    run(sys.executable, *build, cwd=folder)
    (built,) = folder.glob("ensue-*.whl")
    return built


@pytest.mark.parametrize("minor", MINORS)
def test_installed_wheel(wheel: Path, minor: int, tmp_path: Path) -> None:
    found = interpreter(minor)
    if found is None:
        pytest.skip(f"this machine has no Python 3.{minor}")
    locked = re.findall(r"^([\w.\[\]-]+==\S+)", (ROOT / "requirements-dev.lock").read_text("utf-8"), re.MULTILINE)
    (tmp_path / "constraints.txt").write_text("\n".join(locked), encoding="utf-8")
    run(found, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    install = ("-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile")
    pinned = ("--constraint", str(tmp_path / "constraints.txt"))
    run(python, *install, *pinned, wheel, cwd=tmp_path)
    version = run(python, "-c", ALONE, cwd=tmp_path).strip()
    assert version in wheel.name
    assert version in run(python.with_name("ensue"), "--version", cwd=tmp_path)
    assert "WITHIN" in run(python.with_name("ensue"), "errors", "open-scope", cwd=tmp_path)
    run(python, *install, *pinned, f"ensue[{','.join(EXTRAS)}] @ {wheel.as_uri()}", cwd=tmp_path)
    run(python, "-c", WITH_EXTRAS, cwd=tmp_path)
    run(python, "-m", "pip", "check", cwd=tmp_path)
