"""docs/errors.md says what the product says: every code of the source, every example with its output to the letter.

Python blocks before the first code of the page are run before every example, those before the first code of a section
before the examples of that section. A `console` block is one command; the blocks run in a folder of their own.

UPDATE_ERRORS=1 writes the outputs of today into the page.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ensue
from inside import app

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "errors.md"
SECTION_HEADING = re.compile(r"^## ")
CODE_HEADING = re.compile(r"^### `(?P<code>[a-z-]+)`$")
RENDERED_CODE = re.compile(r"^error\[([a-z-]+)\]", re.MULTILINE)
MAKERS = frozenset(
    {"Problem", "SchemaError", "LimitError", "StateError", "SetupError", "LiteralError", "UsageError", "report"}
)
"""What takes a code as its first argument."""


@dataclass(frozen=True)
class Example:
    """A query text, Python code or a command, and the output that the page prints below it (lines `begin` to `end`).

    `setup` is the code of the page and of the section that runs before it.
    """

    code: str
    setup: tuple[str, ...]
    language: str
    text: str
    output: str
    begin: int
    end: int


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    begin: int
    end: int


def blocks_of(lines: list[str], begin: int, end: int) -> list[Block]:
    """The fenced blocks of some lines; `begin` and `end` of a block are those of its contents."""
    blocks: list[Block] = []
    opened: int | None = None
    for number in range(begin, end):
        if not lines[number].startswith("```"):
            continue
        if opened is None:
            opened = number
        else:
            text = "\n".join(lines[opened + 1 : number])
            blocks.append(Block(lines[opened].removeprefix("```"), text, opened + 1, number))
            opened = None
    assert opened is None, f"a block of the page is not closed (line {(opened or 0) + 1})"
    return blocks


def read_page(page: str) -> list[Example]:
    """The examples below the headings of codes."""
    lines = page.split("\n")
    begins = [number for number, line in enumerate(lines) if SECTION_HEADING.match(line)]
    for_all = _python_blocks(lines, 0, begins[0])
    return [
        example
        for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True)
        for example in _section(lines, begin, end, for_all)
    ]


def _section(lines: list[str], begin: int, end: int, for_all: tuple[str, ...]) -> list[Example]:
    headings = [(number, found["code"]) for number in range(begin, end) if (found := CODE_HEADING.match(lines[number]))]
    setup = (*for_all, *_python_blocks(lines, begin, headings[0][0]))
    examples: list[Example] = []
    for (first, code), (last, _) in zip(headings, [*headings[1:], (end, "")], strict=True):
        blocks = blocks_of(lines, first, last)
        assert len(blocks) % 2 == 0, f"{code}: an example is a block and its output"
        for example, output in zip(blocks[::2], blocks[1::2], strict=True):
            assert (example.language in ("ensue", "python", "console"), output.language) == (True, "text"), code
            examples.append(Example(code, setup, example.language, example.text, output.text, output.begin, output.end))
    return examples


def _python_blocks(lines: list[str], begin: int, end: int) -> tuple[str, ...]:
    return tuple(block.text for block in blocks_of(lines, begin, end) if block.language == "python")


EXAMPLES = read_page(PAGE.read_text("utf-8"))


def output_of(example: Example) -> str:
    """What running the example prints, or the error of the query."""
    with tempfile.TemporaryDirectory(prefix="ensue-errors-") as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", folder)
        patched.chdir(folder)
        return _output_of(example)


def asks_for_spark(example: Example) -> bool:
    return any("spark_session" in block for block in (*example.setup, example.text))


def _output_of(example: Example) -> str:
    names: dict[str, Any] = {}
    for block in example.setup:
        exec(block, names)
    if example.language == "ensue":
        with pytest.raises(ensue.EnsueError) as caught:
            ensue.run(names["events"], example.text, time="t", type="type")
        return str(caught.value)
    if example.language == "console":
        return CliRunner().invoke(app, shlex.split(example.text)[2:]).output.rstrip("\n")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(example.text, names)
    return printed.getvalue().rstrip("\n")


def codes_in_source() -> set[str]:
    """Every code that the source gives to an error or a problem."""
    codes: set[str] = set()
    for path in sorted((ROOT / "src" / "ensue").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _name_of(node.func) in MAKERS and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    codes.add(first.value)
                else:
                    assert isinstance(first, ast.Name), f"{path.name}:{node.lineno} computes a code"
    return codes


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


if os.environ.get("UPDATE_ERRORS"):
    page_lines = PAGE.read_text("utf-8").split("\n")
    for item in reversed(EXAMPLES):
        page_lines[item.begin : item.end] = output_of(item).split("\n")
    PAGE.write_text("\n".join(page_lines), "utf-8")
    EXAMPLES = read_page(PAGE.read_text("utf-8"))


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(item, id=f"{number}-{item.code}", marks=pytest.mark.spark if asks_for_spark(item) else ())
        for number, item in enumerate(EXAMPLES)
    ],
)
def test_example_says_what_the_page_prints(example: Example, request: pytest.FixtureRequest) -> None:
    if asks_for_spark(example):
        request.getfixturevalue("spark")  # `ensue.spark_session` gives the example this one
    output = output_of(example)
    assert output == example.output
    assert set(RENDERED_CODE.findall(output)) == {example.code}


def test_command_explains_every_code_with_its_examples() -> None:
    entries = json.loads(CliRunner().invoke(app, ["errors", "--format", "json"]).stdout)
    assert [entry["code"] for entry in entries] == list(dict.fromkeys(example.code for example in EXAMPLES))
    assert all(entry["summary"] and entry["section"] for entry in entries)
    for entry in entries:
        explained = json.loads(CliRunner().invoke(app, ["errors", entry["code"], "--format", "json"]).stdout)
        assert explained["explanation"].startswith(entry["summary"])
        expected = [(item.language, item.output) for item in EXAMPLES if item.code == entry["code"]]
        assert [(item["language"], item["output"]) for item in explained["examples"]] == expected


def test_page_has_every_code_of_the_source_once_and_no_other() -> None:
    found = [match["code"] for line in PAGE.read_text("utf-8").split("\n") if (match := CODE_HEADING.match(line))]
    assert sorted(found) == sorted(set(found))
    assert set(found) == codes_in_source()


def test_every_code_has_an_example() -> None:
    assert {example.code for example in EXAMPLES} == codes_in_source()


def test_messages_keep_to_the_house_words() -> None:
    """An error states facts; it does not scold."""
    scolding = re.compile(r"\b(invalid|illegal|bad|oops|please|failed)\b", re.IGNORECASE)
    assert not [example.output for example in EXAMPLES if scolding.search(example.output)]
