"""Warnings of a run: each kind once, with everything it is about, at the line of the user; one wording everywhere."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import ensue
from inside import app

PATTERNS = (
    "PATTERN p SEQ(A a, NOT C c, B b) WITHIN 5",
    "PATTERN q SEQ(A a, C c, B b) PARTITION BY id WITHIN 5",
    "PATTERN r SEQ(C c, NOT A a, B b) WITHIN 5",
    "PATTERN s SEQ(A a, NOT C c, B b) PARTITION BY id WITHIN 5",
    "PATTERN t SEQ(A a, B b) WITHIN 5",
)
EVENTS = pa.table(
    {
        "t": [1, 1, 2, 3, None, None],
        "type": ["A", "C", "B", "B", "A", None],
        "id": [1, 1, 1, None, 1, 1],
    }
)
IGNORED = "2 rows ignored: no timestamp; 1 row ignored: no type; 1 row ignored: no key (patterns `q`, `s`)"
TIES = """\
results depend on the order of events at the same time; use `order=` or ALLOWING TIES
  pattern `p`: 2 of 2 matches have a `C` at the very time of `A`
  pattern `q`: 1 pair of `A` and `C` has the same time, so neither event is before the other
  pattern `r`: 2 of 2 matches have a `A` at the very time of `C`
  pattern `s`: 1 of 1 match has a `C` at the very time of `A`"""
OF_P = "pattern `p`: 2 of 2 matches have a `C` at the very time of `A`; use `order=` or ALLOWING TIES"
Said = list[tuple[type[Warning], str]]


def said_by(call: Callable[[], Any]) -> Said:
    """The warnings of a call, which all point to this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert {warning.filename for warning in caught} <= {__file__}
    return [(warning.category, str(warning.message)) for warning in caught]


def test_a_run_of_several_patterns() -> None:
    program = ";\n".join(PATTERNS)
    assert said_by(lambda: ensue.run(EVENTS, program, time="t", type="type")) == [
        (ensue.EnsueWarning, IGNORED),
        (ensue.EnsueNotice, TIES),
    ]


def test_one_pattern() -> None:
    assert said_by(lambda: ensue.detect(EVENTS, PATTERNS[0], time="t", type="type")) == [
        (ensue.EnsueWarning, "2 rows ignored: no timestamp; 1 row ignored: no type"),
        (ensue.EnsueNotice, OF_P),
    ]


def test_a_report() -> None:
    program = ";\n".join(PATTERNS)
    assert said_by(lambda: ensue.report(EVENTS, program, time="t", type="type")) == [
        (ensue.EnsueWarning, IGNORED),
        (ensue.EnsueNotice, TIES),
    ]


def test_a_detector_says_each_kind_once() -> None:
    detector = ensue.Detector(PATTERNS[0], time="t", type="type")
    steps = [(EVENTS.slice(0, 5), 0), (EVENTS.slice(4, 2), 3), (EVENTS.slice(4, 2), 8), (EVENTS, 9), (EVENTS, 9)]

    def advance() -> None:
        for batch, watermark in steps:
            detector.advance(batch, watermark=watermark)

    assert said_by(advance) == [
        (ensue.EnsueWarning, "1 row ignored: no timestamp"),
        (ensue.EnsueWarning, "1 row ignored: no type"),
        (ensue.EnsueNotice, OF_P),
        (ensue.EnsueWarning, "4 late rows ignored: at or before the watermark; see `late`"),
    ]
    # The counts go on.
    assert detector.report.null_times == 9


@pytest.mark.parametrize("command", ["detect", "report"])
def test_the_command_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "p.ensue").write_text(";\n".join(PATTERNS))
    pyarrow.csv.write_csv(EVENTS, tmp_path / "events.csv")
    given = [command, str(tmp_path / "p.ensue"), "--events", str(tmp_path / "events.csv"), "--time", "t"]
    output = ["--output", str(tmp_path / "page.html")] if command == "report" else ["--rows", "0"]
    result = CliRunner().invoke(app, [*given, "--type", "type", *output])
    counts = "p: 2 matches\nq: 0 matches\nr: 2 matches\ns: 1 match\nt: 2 matches\n"
    assert result.stderr.startswith(f"warning: {IGNORED}\nnotice: {TIES.replace('`order=`', '`--order`')}\n{counts}")


def test_misspelt_streams() -> None:
    program = "; ".join(f"PATTERN {name} SEQ(Orders a, Payed b) WITHIN 5" for name in "pqr")
    events = pa.table({"t": [1, 2], "type": ["Order", "Paid"]})
    assert said_by(lambda: ensue.run(events, program, time="t", type="type")) == [
        (
            ensue.EnsueWarning,
            "column `type` has no value `Orders`; did you mean `Order`?\n"
            "  column `type` has no value `Payed`; did you mean `Paid`?\n"
            "  column `type` has none of the streams of the query; found Order, Paid",
        )
    ]


def test_rows_of_declared_streams() -> None:
    program = (
        "STREAM S FROM PATTERN SEQ(A a, B b) WITHIN 5; STREAM T FROM PATTERN SEQ(B b, A a) WITHIN 5;"
        "PATTERN SEQ(S s, T t) WITHIN 9"
    )
    events = pa.table({"t": [1, 2, 3, 4, 5], "type": ["S", "S", "T", "A", "B"]})
    said = said_by(lambda: ensue.run(events, program, time="t", type="type"))
    assert said == [
        (
            ensue.EnsueWarning,
            "2 rows of type `S`, 1 row of type `T` ignored: the program declares these streams",
        )
    ]


def test_columns_that_whole_events_lack() -> None:
    events = pd.DataFrame({"t": [1, 2], "type": ["A", "B"], "v": [1, "x"], "w": ["x", {}]})
    program = "PATTERN SEQ(A a, B b); PATTERN q (A a)"
    ((kind, words),) = said_by(lambda: ensue.run(events, program, time="t", type="type"))
    assert kind is ensue.EnsueWarning
    assert words.startswith("events in the results lack column `v`: ")
    assert "; column `w`: " in words
