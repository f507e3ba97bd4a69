"""Every problem of a pipeline, in `errors.txt`, and what is said of it. UPDATE_ERRORS=1 writes what is said today."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ensue
from ensue.pipelines.reading import read_pipeline_text

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
    with pytest.raises(ensue.QueryError) as caught:
        read_pipeline_text(text, folder / "pipeline.yaml", ENVIRONMENT)
    return str(caught.value).replace(f"{folder}/", "")


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
