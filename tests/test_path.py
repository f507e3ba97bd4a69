"""The way of a query through the code stays short, and so do functions and files."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa

import ensue

MOST_FUNCTIONS, MOST_FILES = 293, 47
"""What one `detect` passes. These may only go down; the aim is 220 / 40."""

LONGEST_FUNCTION, LONGEST_FILE = 80, 700

SOURCE = Path(ensue.__file__).parent
QUERY = "PATTERN SEQ(A a, NOT B b, C c) PARTITION BY k WITHIN 10"
EVENTS = pa.table({"t": [1, 2, 3, 4, 5, 6], "type": ["A", "C", "A", "B", "C", "A"], "k": [1, 1, 2, 2, 2, 1]})


def detect() -> pa.Table:
    return ensue.detect(EVENTS, QUERY, time="t", type="type")


def functions_called(run: Callable[[], object]) -> list[CodeType]:
    """The functions of Ensue that `run` calls, by their first call: not comprehensions, lambdas and generators."""
    called: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        called.setdefault(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return [code for code in called if _is_ours(code) and not code.co_name.startswith("<")]


def _is_ours(code: CodeType) -> bool:
    return Path(code.co_filename).is_relative_to(SOURCE)


def test_the_way_of_a_query_is_short() -> None:
    assert detect().num_rows == 1  # the second call of a process counts: the first one also imports and compiles
    functions = functions_called(detect)
    files = {code.co_filename for code in functions}
    assert len(functions) <= MOST_FUNCTIONS
    assert len(files) <= MOST_FILES


PAGE = Path(__file__).parents[1] / "docs" / "how-it-works.md"
PLACE = re.compile(r"`([a-z_/]+\.py):([\w.]+)`")


def places_named(part: str) -> list[str]:
    """The functions and classes that a text names, as `file.py:name`."""
    return [f"{file}:{name}" for file, name in PLACE.findall(part)]


def rows_below(heading: str) -> str:
    """The first table of a section of the page."""
    below = PAGE.read_text("utf-8").split(f"\n### {heading}\n")[1]
    after = below[below.index("| what happens | where |") :]
    return after[: after.index("\n\n")]


def assert_called_in_order(named: list[str], run: Callable[[], object]) -> None:
    called = [
        f"{Path(code.co_filename).relative_to(SOURCE).as_posix()}:{code.co_qualname}" for code in functions_called(run)
    ]
    assert named
    assert [place for place in named if place not in called] == []
    assert named == sorted(named, key=called.index)


def test_the_page_follows_a_run() -> None:
    detect()
    assert QUERY in PAGE.read_text("utf-8")
    assert_called_in_order(places_named(rows_below("In one run")), detect)


def test_the_page_follows_a_step() -> None:
    detector = ensue.Detector(QUERY, time="t", type="type")
    detector.advance(EVENTS.slice(0, 4), watermark=4)
    named = places_named(rows_below("Between two steps"))
    assert_called_in_order(named, lambda: detector.advance(EVENTS.slice(4), watermark=6))


def test_the_page_names_what_there_is() -> None:
    for place in places_named(PAGE.read_text("utf-8")):
        file, name = place.split(":")
        last = name.rsplit(".", 1)[-1]
        assert re.search(rf"^ *(?:def|class) {last}\b", (SOURCE / file).read_text("utf-8"), re.MULTILINE), place


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
