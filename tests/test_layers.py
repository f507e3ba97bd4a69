"""Imports go down only: the contracts of `[tool.importlinter]`, kept by the tests too, and shown to bite."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOWN = "Imports go down only"
KERNELS = "Only the engine calls kernels; anyone may warm them up"
SPARK = "Only runtimes import pyspark"

SOURCE = ROOT / "src" / "ensue"
CLASSIC_ONLY = {"_jvm", "_jsc", "_jdf", "_jconf", "_jsparkSession", "_sc", "sparkContext", "rdd", "py4j"}
"""What only a session with a Java process of its own has."""

OF_A_PROCESS = {"SparkContext", "SparkConf", "_active_spark_context", "_gateway", "_ensure_initialized"}
"""What only the start of such a session has to ask: whether there is one already, and whether spark-submit made it."""


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "statement", "broken"),
    [
        ("errors.py", "import ensue.api", [DOWN]),
        ("text/reserved_words.py", "import ensue.python", [DOWN]),
        ("kernels/ranges.py", "import ensue.errors", [DOWN]),
        ("plan/plans.py", "import ensue.kernels.ranges", [KERNELS]),
        ("plan/plans.py", "import ensue.kernels.warm_up", []),
        ("engine/keys.py", "import pyspark", [SPARK]),
        ("runtimes/tables.py", "import pyspark.sql", []),
        ("shelf.py", "", [DOWN]),
    ],
)
def test_contracts_bite(tmp_path: Path, module: str, statement: str, broken: list[str]) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "src" / "ensue" / module
    path.write_text((path.read_text() if path.exists() else "") + f"\n{statement}\n")
    assert broken_contracts(tmp_path) == broken


# --- nothing needs a Java process beside Spark Connect


def classic_words(source: str, forbidden: set[str]) -> list[str]:
    """The words of a program that only a session with a Java process has: names, attributes, imports and texts."""
    words: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=word) | ast.Name(id=word) | ast.Constant(value=str(word)):
                words.append(word)
            case ast.Import(names=names):
                words += [part for name in names for part in name.name.split(".")]
            case ast.ImportFrom(module=module, names=names):
                words += [*(module or "").split("."), *(name.name for name in names)]
    return sorted(forbidden.intersection(words))


def test_source_has_nothing_of_a_classic_session() -> None:
    starts_sessions = [SOURCE / "runtimes/spark" / name for name in ("session.py", "packages.py")]
    found = {
        str(path.relative_to(SOURCE)): classic_words(
            path.read_text("utf-8"), CLASSIC_ONLY if path in starts_sessions else CLASSIC_ONLY | OF_A_PROCESS
        )
        for path in sorted(SOURCE.rglob("*.py"))
    }
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "source",
    [
        "frame.rdd.getNumPartitions()",
        "spark._jvm.java.lang.System.gc()",
        "import py4j.protocol",
        "from py4j.protocol import Py4JError",
        "from pyspark import SparkContext",
        "getattr(frame, '_jdf')",
        "spark.sparkContext.broadcast(1)",
    ],
)
def test_classic_words_are_found(source: str) -> None:
    assert classic_words(source, CLASSIC_ONLY | OF_A_PROCESS)


LOOKED_FOR = {"evaluate", "matches_of_graphs", "load_events", "watch", "track", "follow"}
"""What finds the events or the matches of a plan, or leads events through states."""

THE_MACHINE = {
    "engine/machine.py",
    "engine/turn.py",
    "engine/derivation.py",
    "engine/traces.py",
    "engine/violations.py",
    "engine/evaluation.py",
    "engine/belief/follower.py",
}


def test_nobody_is_beside_the_machine() -> None:
    found = set()
    for file in SOURCE.rglob("*.py"):
        name = file.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ensue.engine"):
                imported = {alias.name for alias in node.names} & LOOKED_FOR
                if imported and name not in THE_MACHINE:
                    found.add(name)
    assert found == set()


# --- names of files and classes, and imports


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.stem not in ("__init__", "__main__")]


def test_a_file_name_is_in_two_folders_at_most() -> None:
    counts = Counter(path.stem for path in modules())
    assert {name: count for name, count in counts.items() if count > 2} == {}


def test_the_readme_of_the_source_names_every_folder_and_module() -> None:
    text = (ROOT / "src" / "README.md").read_text("utf-8")
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(re.findall(r"^\| `(\w+)/`", text.partition("\n## ")[0], re.MULTILINE))
    named = set(re.findall(r"`(?:[\w]+/)*(\w+)\.py`", text))
    assert named <= {path.stem for path in modules()}, "src/README.md names modules that do not exist"
    described = [path for path in modules() if path.parent.name in ("plan", "engine", "runtimes", "spark")]
    assert [path.stem for path in described if path.stem not in named] == [], "describe these modules in src/README.md"


VERB_FORM = re.compile(r"[A-Z]?[a-z]+(?:ing|ed)")
PARTICIPLE = re.compile(
    "Chosen|Drawn|Found|Given|Held|Hidden|Kept|Known|Left|Lost|Made|Met|Paid|Put|Ran|Read|Said|Seen|Sent|Set|Shown"
    "|Spoken|Taken|Told|Unwritten|Written"
)
NOUNS = {"Anything", "Finding", "Lowering", "Opening", "Speed", "Thing"}
"""Words that only look like a participle or a gerund."""


def test_modules_and_classes_have_nouns_as_names() -> None:
    names = {path.stem for path in modules()}
    for path in modules():
        names |= {
            node.name.lstrip("_")
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.ClassDef)
        }
    assert sorted(name for name in names - NOUNS if VERB_FORM.fullmatch(name) or PARTICIPLE.fullmatch(name)) == []


MOST_NAMES = 14
"""How many names one statement imports from a module of Ensue; beyond eight, import the module if its name is free."""


def test_modules_are_imported_rather_than_many_names() -> None:
    found = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ensue"):
                found[f"{path.relative_to(SOURCE).as_posix()}: {node.module}"] = len(node.names)
    assert {place: count for place, count in found.items() if count > MOST_NAMES} == {}
