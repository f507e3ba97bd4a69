"""Every problem of a pipeline, in `errors.txt`, and what is said of it. UPDATE_ERRORS=1 writes what is said today."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import ensue
from inside import read_pipeline_text

CASES = Path(__file__).with_name("errors.txt")
PROGRAM = "PATTERN followed SEQ(A a, B b) WITHIN 1 hour;\n"
ACTING = """\
TABLE vip(id);
STREAM paid FROM PATTERN SEQ(A a, B b) WITHIN 1 hour RETURN a.id AS id;
ON paid p DO tell(p.id)
"""
ENVIRONMENT = {"ADDRESS": "jdbc:postgresql://host/db"}


def cases() -> list[tuple[str, str]]:
    found = []
    for case in CASES.read_text(encoding="utf-8").removesuffix("\n").split("\n====\n"):
        text, _, said = case.partition("\n----")
        found.append((text + "\n", said.strip("\n")))
    return found


def said_of(text: str, folder: Path) -> str:
    (folder / "events").mkdir(exist_ok=True)
    (folder / "program.ensue").write_text(PROGRAM)
    (folder / "acting.ensue").write_text(ACTING)
    (folder / "broken.ensue").write_text("PATTERN SEQ(A a, NOT B b)")
    (folder / "latin.ensue").write_bytes(b"PATTERN p (A \xe4)")
    return str(error_of(text, folder)).replace(f"{folder}/", "")


def error_of(text: str, folder: Path) -> ensue.QueryError:
    with pytest.raises(ensue.QueryError) as caught:
        read_pipeline_text(text, folder / "pipeline.yaml", ENVIRONMENT)
    return caught.value


@pytest.mark.skipif("UPDATE_ERRORS" in os.environ, reason="the cases are being written")
@pytest.mark.parametrize(("text", "said"), cases(), ids=range(len(cases())))
def test_what_is_said(text: str, said: str, tmp_path: Path) -> None:
    assert said_of(text, tmp_path) == said


@pytest.mark.skipif("UPDATE_ERRORS" not in os.environ, reason="UPDATE_ERRORS=1 writes the cases")
def test_write_cases(tmp_path: Path) -> None:
    written = [f"{text}----\n{said_of(text, tmp_path)}" for text, _ in cases()]
    CASES.write_text("\n====\n".join(written) + "\n", encoding="utf-8")


@pytest.mark.parametrize(("text", "said"), cases(), ids=range(len(cases())))
def test_no_secret_is_shown(text: str, said: str) -> None:
    assert "hunter2" not in said


def test_every_code_has_a_case() -> None:
    """Here, in the cases of columns, or in the tests of what fails in a run."""
    code = re.compile(r'"(pipeline-[a-z]+)"')
    source = Path(ensue.__file__).parent / "apps" / "pipelines"
    in_source = {found for path in source.glob("*.py") for found in code.findall(path.read_text(encoding="utf-8"))}
    cases = [CASES, CASES.with_name("columns.txt")]
    shown = re.compile(r"^error\[(pipeline-[a-z]+)\]", re.MULTILINE)
    in_cases = {found for path in cases for found in shown.findall(path.read_text(encoding="utf-8"))}
    tests = [CASES.with_name("test_failures.py"), CASES.with_name("test_packages.py")]
    in_tests = {found for path in tests for found in code.findall(path.read_text(encoding="utf-8"))}
    assert in_source == in_cases | in_tests


@pytest.mark.parametrize(("text", "said"), cases(), ids=range(len(cases())))
def test_every_problem_has_a_place_and_a_hint(text: str, said: str, tmp_path: Path) -> None:
    said_of(text, tmp_path)
    for problem in error_of(text, tmp_path).problems:
        assert problem.span is not None, problem
        assert problem.hint, problem
