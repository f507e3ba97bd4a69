"""The documentation runs: every block of code in it is executed or checked, and every relative link leads somewhere.

The word behind the opening fence says what a block is:
    python          run, all blocks of a page in order and in one namespace
    text, output    directly below a python block: exactly what that block prints
    ensue           query text; it parses
    case            a case as in `tests/cases`; the engine finds what it expects
    yaml            a pipeline; its keys and values are those of the definition
    console, shell  commands; `make` targets exist, and the lines below `$ make demo` are among those that it prints

UPDATE_DOCS=1 writes what python blocks print today into the pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
import warnings
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import ensue
from case_files import input_of, read_cases, render_rows
from inside import AGGREGATES, FUNCTIONS, OPERATORS, POLICIES, RESERVED, Source, operator_form
from pages import OUTPUT, Block, blocks_of, directly_below, output_below, write_blocks

ROOT = Path(__file__).parent.parent
# The blocks of docs/errors.md have a test of their own, which compares every code with its example.
OWN_TEST = {ROOT / "docs" / "errors.md"}
WRITTEN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "src/README.md")]
WRITTEN += sorted((ROOT / "docs").rglob("*.md"))
WRITTEN += sorted((ROOT / "examples").rglob("*.md"))
PAGES = [path for path in WRITTEN if path not in OWN_TEST]
# These are played from the first block to the last, commands included, by tests/test_tutorial.py.
PLAYED = {ROOT / "docs" / "quickstart.md", ROOT / "docs" / "tutorial.md"}

COMMANDS = ("console", "shell")
KNOWN = ("python", "ensue", "case", "yaml", *OUTPUT, *COMMANDS)

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@every_page
def test_every_block_is_of_a_known_kind(page: Path) -> None:
    blocks = blocks_of(page)
    for block in blocks:
        assert block.word in KNOWN, f"{name_of(page)}:{block.first}: a block of kind `{block.word}` is not checked"
    outputs = [block for block in blocks if block.word in OUTPUT]
    below = [
        lower for upper, lower in pairwise(blocks) if upper.word == "python" and directly_below(page, upper, lower)
    ]
    for block in outputs:
        assert block in below, f"{name_of(page)}:{block.first}: the output stands below no python block"


def asks_for_spark(page: Path) -> bool:
    return any("spark_session(" in block.text for block in blocks_of(page) if block.word == "python")


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    """The README runs in `make test`; the other pages that use Spark are slow."""
    if not asks_for_spark(page):
        return []
    return [pytest.mark.spark, *([] if page.name == "README.md" else [pytest.mark.slow])]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page), marks=marks_of(page)) for page in PAGES if page not in PLAYED],
)
def test_python_blocks_print_what_stands_below(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocks = blocks_of(page)
    if asks_for_spark(page):
        request.getfixturevalue("spark")  # `ensue.spark_session` gives the page this one
    namespace: dict[str, object] = {"__name__": "__main__"}
    found: list[tuple[Block, str]] = []
    for place, block in enumerate(blocks):
        if block.word == "python":
            printed = run_block(page, block, namespace)
            below = output_below(page, blocks, place)
            if below is not None:
                found.append((below, printed))
    if os.environ.get("UPDATE_DOCS"):
        write_blocks(page, found)
    else:
        for below, printed in found:
            assert printed.rstrip() == below.text.rstrip(), f"{name_of(page)}:{below.first}"


def run_block(page: Path, block: Block, namespace: dict[str, object]) -> str:
    """What the block prints."""
    printed = io.StringIO()
    code = compile("\n" * block.first + block.text, str(page), "exec")
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("error", ensue.EnsueWarning)
        exec(code, namespace)
    return printed.getvalue()


@every_page
def test_queries_parse(page: Path) -> None:
    for block in blocks_of(page):
        if block.word == "ensue":
            program = ensue.parse(block.text, f"{name_of(page)}:{block.first}")
            assert ensue.parse(program.to_text()) == program


@every_page
def test_cases_hold(page: Path, tmp_path: Path) -> None:
    for block in blocks_of(page):
        if block.word != "case":
            continue
        file = tmp_path / "case.txt"
        file.write_text(block.text + "\n", encoding="utf-8")
        cases, _ = read_cases(file)
        for case in cases:
            end = "until" if case.has_intervals else None
            table = ensue.detect(input_of(case, case.parsed_events()), case.query, time="time", type="type", end=end)
            expected = [row.split(" @")[0] for row in case.rows]
            assert sorted(render_rows(table)) == sorted(expected), f"{name_of(page)}:{block.first}"


@every_page
def test_pipelines_follow_the_definition(page: Path) -> None:
    for block in blocks_of(page):
        if block.word == "yaml":
            assert problems_of_pipeline(block.text) == [], f"{name_of(page)}:{block.first}"


def problems_of_pipeline(text: str) -> list[object]:
    """What the definition has against a pipeline in an environment that has all its variables."""
    from inside import PIPELINE, VARIABLE, Checker, Environment, parse_tree

    checker = Checker(Environment(dict.fromkeys(VARIABLE.findall(text), "given")))
    checker.check(parse_tree(Source(text)), PIPELINE)
    return [*checker.problems]


# --- commands


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([A-Za-z][\w-]*) *:(?!=)", text, re.MULTILINE))


@every_page
def test_commands_name_make_targets_that_exist(page: Path) -> None:
    for block in blocks_of(page):
        if block.word not in COMMANDS:
            continue
        for line in block.text.splitlines():
            command = line.removeprefix("$ ").split("#")[0]
            for part in re.split(r"&&|;|\|", command):
                words = [word for word in shlex.split(part) if "=" not in word] if "make" in part else []
                if words[:1] == ["make"]:
                    unknown = {word for word in words[1:] if not word.startswith("-")} - make_targets()
                    assert not unknown, f"{name_of(page)}:{block.first}: no target {', '.join(sorted(unknown))}"


@cache
def demo_lines() -> frozenset[str]:
    """What the demo prints without Spark; tests/test_demo.py compares the stream, tests/test_fresh_clone.py `make`."""
    from typer.testing import CliRunner

    from inside import app

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shown = CliRunner().invoke(app, ["demo", "--on", "process"]).stdout
    return frozenset(line.rstrip() for line in shown.splitlines())


@every_page
def test_demo_prints_what_stands_below(page: Path) -> None:
    for block in blocks_of(page):
        if block.word != "console":
            continue
        command = ""
        for line in block.text.splitlines():
            if line.startswith("$ "):
                command = line.removeprefix("$ ").strip()
            elif command == "make demo" and line.strip() not in ("", "..."):
                assert line.rstrip() in demo_lines(), f"{name_of(page)}:{block.first}: the demo does not print {line!r}"


# --- links


def anchors_of(path: Path) -> set[str]:
    headings = _HEADING.findall(path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    code = {number for block in blocks_of(page) for number in range(block.first, block.last + 1)}
    lines = page.read_text(encoding="utf-8").splitlines()
    prose = "\n".join(line for number, line in enumerate(lines, start=1) if number not in code)
    for target in _LINK.findall(re.sub(r"`[^`\n]*`", "", prose)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{name_of(page)}: {target} leads nowhere"
        if anchor and file.suffix == ".md":
            assert anchor in anchors_of(file), f"{name_of(page)}: {target} names no heading"


# --- tables that repeat what the code says


def test_language_page_lists_every_function_and_reserved_word() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    for function in FUNCTIONS.values():
        row = f"| `{function.signature}` | {function.description} | `{function.example}` |"
        assert row in text, f"the table of functions lacks: {row}"
    missing = [word for word in RESERVED if f"`{word}`" not in text]
    assert not missing


def test_language_page_lists_every_operator_policy_and_aggregate() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    missing = [form for form in map(operator_form, OPERATORS) if f"| `{form}`" not in text]
    missing += [policy for policy in POLICIES if f"| `MATCH {policy}` |" not in text]
    assert not missing
    for aggregate in AGGREGATES.values():
        begin, end = f"| `{aggregate.signature}` | {aggregate.description} |", f"| `{aggregate.example}` |"
        rows = [line for line in text.splitlines() if line.startswith(begin) and line.endswith(end)]
        assert len(rows) == 1, f"the table of aggregates lacks: {begin} ... {end}"


# --- words of other systems


def snippets_of(page: Path) -> list[tuple[int, str]]:
    """The code in the second column of the page's tables, with its line."""
    found = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        cells = re.split(r"(?<!\\)\|", line)
        if line.startswith("| ") and len(cells) == 5:
            found += [(number, code) for code in re.findall(r"`([^`]+)`", cells[2])]
    return found


@cache
def parses(text: str) -> bool:
    try:
        ensue.parse(text)
    except ensue.QueryError:
        return False
    return True


def test_our_words_for_those_of_other_systems_are_right() -> None:
    snippets = snippets_of(ROOT / "docs" / "coming-from.md")
    assert len(snippets) > 100
    wrong = []
    for number, code in snippets:
        if code.startswith(("ensue.", "stream.")):
            compile(code, f"coming-from.md:{number}", "eval")
        elif not any(parses(before + code) for before in ("", "PATTERN ", "PATTERN SEQ(A a, B b) ")):
            wrong.append(f"coming-from.md:{number}: {code}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_prose_wraps_at_120_characters(page: Path) -> None:
    """Tables and code are exempt; so is a line that is one word, such as a link."""
    in_code = False
    long = []
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|") and len(line) > 120 and " " in line.strip():
            long.append(f"{name_of(page)}:{number}")
    assert long == []
