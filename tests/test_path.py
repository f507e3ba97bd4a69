"""The way of a query through the code stays short, and so do functions and files."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa

import ensue

MOST_FUNCTIONS, MOST_FILES = 283, 50
"""What one `detect` passes. These may only go down; the aim is 220 / 40."""

LONGEST_FUNCTION, LONGEST_FILE = 80, 700

SOURCE = Path(ensue.__file__).parent
QUERY = "PATTERN SEQ(A a, NOT B b, C c) PARTITION BY k WITHIN 10"
EVENTS = pa.table({"t": [1, 2, 3, 4, 5, 6], "type": ["A", "C", "A", "B", "C", "A"], "k": [1, 1, 2, 2, 2, 1]})


def detect() -> pa.Table:
    return ensue.detect(EVENTS, QUERY, time="t", type="type")


def functions_on_the_way() -> set[CodeType]:
    """The functions of Ensue that one `detect` calls: not its comprehensions, lambdas and generator expressions."""
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        called.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        detect()
    finally:
        sys.setprofile(before)
    return {code for code in called if _is_ours(code) and not code.co_name.startswith("<")}


def _is_ours(code: CodeType) -> bool:
    return Path(code.co_filename).is_relative_to(SOURCE)


def test_the_way_of_a_query_is_short() -> None:
    assert detect().num_rows == 1  # the second call of a process counts: the first one also imports and compiles
    functions = functions_on_the_way()
    files = {code.co_filename for code in functions}
    assert len(functions) <= MOST_FUNCTIONS
    assert len(files) <= MOST_FILES


def long_functions() -> Iterator[tuple[str, int]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                lines = (node.end_lineno or first) - first + 1
                if lines > LONGEST_FUNCTION:
                    yield f"{path.relative_to(SOURCE).as_posix()}:{node.name}", lines


def long_files() -> Iterator[tuple[str, int]]:
    for path in sorted(SOURCE.rglob("*.py")):
        lines = len(path.read_text("utf-8").splitlines())
        if lines > LONGEST_FILE:
            yield path.relative_to(SOURCE).as_posix(), lines


def test_functions_fit_a_screen() -> None:
    assert dict(long_functions()) == {}


def test_files_are_of_one_thing() -> None:
    assert dict(long_files()) == {}
