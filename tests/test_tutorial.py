"""Quickstart and tutorial, played from the first block to the last with Ensue as it is installed from its wheel.

The wheel is built from this checkout and put into a new virtual environment; what Ensue needs comes from the
environment of this run.
UPDATE_DOCS=1 writes what the blocks print today into the pages.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from pages import Block, blocks_of, output_below, write_blocks
from play_pages import COMMAND

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / "quickstart.md", ROOT / "docs" / "tutorial.md"]
QUICK_START = "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\nspark.driver.memory 1g\n"
"""Spark's own file of settings, for a Java that is to start quickly and has little to do."""

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """Runs without the environment of this very run, but with `more`."""
    left_out = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | more
    environment["PATH"] = os.pathsep.join([str(Path(command[0]).parent), environment["PATH"]])
    ran = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("ensue-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new virtual environment with the wheel."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=place.parent)
    python = place / "bin" / "python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=place.parent)
    # A folder that is named so is not searched for further .pth files: the Ensue of this checkout stays out of sight.
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place.parent).strip())
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return python


def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    files = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "ensue").rglob("*.*")}
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in files if "__pycache__" not in name} - packed == set()
    assert {
        "ensue/apps/pipelines/schema.json",
        "ensue/apps/cli/demo.ensue",
        "ensue/errors.md",
        "ensue/py.typed",
    } <= packed


def test_ensue_comes_from_the_wheel(python: Path, tmp_path: Path) -> None:
    place = run(python, "-c", "import ensue; print(ensue.__file__)", cwd=tmp_path).strip()
    assert Path(place).is_relative_to(python.parent.parent)


def test_errors_are_explained_from_the_wheel(python: Path, tmp_path: Path) -> None:
    assert "error[open-scope]: " in run(python, "-m", "ensue.apps.cli", "errors", "open-scope", cwd=tmp_path)


def test_pages_print_what_stands_below(python: Path, tmp_path: Path) -> None:
    """Quickstart and tutorial share one process, and so one session of Spark: starting it is what takes time."""
    record, empty = tmp_path / "record.json", tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "spark-defaults.conf").write_text(QUICK_START, encoding="utf-8")
    player = Path(__file__).with_name("play_pages.py")
    run(python, player, record, *PAGES, cwd=empty, SPARK_CONF_DIR=str(tmp_path))
    played = json.loads(record.read_text(encoding="utf-8"))
    for page in PAGES:
        printed = dict(played[page.name])
        if os.environ.get("UPDATE_DOCS"):
            write_blocks(page, [(block, text) for block, text, _ in outputs(page, printed)])
        for block, fresh, written in outputs(page, printed):
            assert fresh.rstrip() == written.rstrip(), f"{page.name}:{block.first}"


def outputs(page: Path, printed: dict[int, str | list[str]]) -> list[tuple[Block, str, str]]:
    """The blocks that hold outputs, what they should hold and what they hold."""
    found: list[tuple[Block, str, str]] = []
    blocks = blocks_of(page)
    for place, block in enumerate(blocks):
        text = printed.get(block.first)
        below = output_below(page, blocks, place)
        if isinstance(text, list):
            found.append((block, with_outputs(block, text), block.text))
        elif text is not None and below is not None:
            found.append((below, text, below.text))
    return found


def with_outputs(block: Block, printed: list[str]) -> str:
    """A block of commands with what they print; what stands there stays where it is the same up to `...`."""
    fresh = ""
    for (command, written), text in zip(COMMAND.findall(f"{block.text}\n"), printed, strict=True):
        shortened = ".*".join(re.escape(part) for part in re.split(r"^\.\.\.\n", written, flags=re.MULTILINE))
        fresh += f"$ {command}{written if re.fullmatch(shortened, text, re.DOTALL) else text}"
    return fresh
