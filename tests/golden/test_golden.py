"""Ensue answers what it answered when the golden record was written (commit ff90ea6), but for explained fixes."""

from __future__ import annotations

import hashlib
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from golden.adapter import Answer, Question, answer_of, from_json, same

HERE = Path(__file__).parent
RECORDS = {
    "cases": "8c9a256b9bd9467ef3179b3274b6b6b0b46ae85734607a2ac14d866e2cae7322",
    "refused": "adb9788a82b018f3f35499a47e5b425d664cb347c4be50aaaf169fa58b8d06c0",
    "drawn": "08f69f2012291506847af7fecade90a5841c9923a236556d555e8a2ab74cae41",
}
FIXES = json.loads((HERE / "fixes.json").read_text("utf-8"))
CHUNK = 50
"""How many questions are one test."""
EVERY = {"cases": 5, "refused": 2, "drawn": 12}
"""Which share of the chunks is part of `make test`; tests/test_cases.py runs all cases."""


@cache
def read(record: str) -> list[tuple[Question, Answer]]:
    """The questions of a record with their answers, those of fixes.json instead of the recorded ones."""
    lines = lzma.decompress((HERE / f"{record}.jsonl.xz").read_bytes()).decode().split("\n")
    answered = [from_json(line) for line in lines]
    for fix in FIXES:
        for number, answers in fix["answers"].get(record, {}).items():
            answered[int(number)][1].update(answers)
    return answered


def chunks(record: str) -> list[Any]:
    """The starts of the chunks. `make test` runs some of them, `make test-all` the others."""
    length = len(lzma.decompress((HERE / f"{record}.jsonl.xz").read_bytes()).split(b"\n"))
    every = EVERY[record]
    return [
        pytest.param(record, begin, marks=[] if begin // CHUNK % every == 0 else pytest.mark.slow)
        for begin in range(0, length, CHUNK)
    ]


@pytest.mark.parametrize(("record", "begin"), [chunk for record in RECORDS for chunk in chunks(record)])
def test_answers(record: str, begin: int) -> None:
    wrong = [
        f"{record} {number} ({question.kind}), {way}:\n{question.program}\nexpected {expected[way]}\nfound {found[way]}"
        for number, (question, expected) in enumerate(read(record)[begin : begin + CHUNK], start=begin)
        for found in [answer_of(question)]
        for way in expected
        if not same(expected[way], found[way])
    ]
    assert not wrong, "\n\n".join(wrong)


def test_the_record_is_the_one_that_was_written() -> None:
    """Answers change in fixes.json alone, each with its reason."""
    found = {name: hashlib.sha256((HERE / f"{name}.jsonl.xz").read_bytes()).hexdigest() for name in RECORDS}
    assert found == RECORDS
    assert all(fix["why"] and fix["answers"] for fix in FIXES)


def test_a_wrong_answer_is_noticed() -> None:
    """The comparison itself: a changed row, a lost row, another type, another code."""
    question, answer = next((q, a) for q, a in read("drawn") if a.get("run", {}).get("pattern_1", {}).get("rows"))
    shown = answer["run"]["pattern_1"]
    assert same(answer, answer_of(question))
    assert not same(shown, {**shown, "rows": shown["rows"][1:]})
    assert not same(shown, {**shown, "rows": [*shown["rows"][:-1], [None]]})
    assert not same(shown, {**shown, "columns": [["other", kind] for _, kind in shown["columns"]]})
    assert not same({"error": "syntax"}, {"error": "never-holds"})
    assert same([0.1 + 0.2], [0.3])
    assert not same([1], [True])
