"""Messages, docstrings, documentation and help avoid the phrases of `phrases.txt`.

Each finding names the file, the line, the phrase and what to write instead.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main

import ensue
from inside import app

ROOT = Path(__file__).parent.parent
PHRASES = Path(__file__).with_name("phrases.txt")
SOURCE = ROOT / "src" / "ensue"
PROSE = (*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "src/README.md")), *(ROOT / "docs").rglob("*.md"))
EXAMPLES = ROOT / "examples"
CODE = re.compile(r"`[^`]*`")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase to avoid, and what to write instead."""

    pattern: re.Pattern[str]
    advice: str
    in_messages_only: bool


@dataclass(frozen=True, slots=True)
class Text:
    """A text for readers, and its place: the line of each offset at which a line starts."""

    place: str
    text: str
    lines: tuple[tuple[int, int], ...]
    is_message: bool = False

    def line(self, offset: int) -> int:
        return max(number for start, number in self.lines if start <= offset)


@cache
def phrases() -> tuple[Phrase, ...]:
    found, only_messages = [], False
    for line in PHRASES.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            only_messages = line == "[messages]"
        elif line and not line.startswith("#"):
            pattern, _, advice = line.partition(" => ")
            # The boundary after a phrase is part of it where it ends with a condition on what follows.
            found.append(Phrase(re.compile(rf"\b(?:{pattern})(?!\w)", re.IGNORECASE), advice, only_messages))
    return tuple(found)


def findings(texts: Iterable[Text]) -> list[str]:
    """One line for each phrase that a text should avoid."""
    anything = re.compile("|".join(f"(?:{phrase.pattern.pattern})" for phrase in phrases()), re.IGNORECASE)
    return [
        f"{text.place}:{text.line(match.start())}: `{match[0]}`: write {phrase.advice}"
        for text in texts
        if anything.search(text.text)
        for phrase in phrases()
        if text.is_message or not phrase.in_messages_only
        for match in phrase.pattern.finditer(text.text)
    ]


def check(texts: Iterable[Text]) -> None:
    found = findings(texts)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def joined(lines: Iterable[tuple[int, str]], place: str, is_message: bool = False) -> Text:
    """One text of numbered lines, so that a phrase may be wrapped; an empty line ends a sentence."""
    text, starts = "", []
    for number, line in lines:
        starts.append((len(text), number))
        words = " ".join(CODE.sub("`x`", line).split())
        text += f"{words} " if words else "\n"
    return Text(place, text, tuple(starts) or ((0, 1),), is_message)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- Pages


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page outside of its blocks of code."""
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, re.sub(r"^\s*([-*|>]|\d+\.)\s", "\n", line).replace("|", ";")


def newest_changes() -> Iterator[tuple[int, str]]:
    """The lines of the newest section of the changelog."""
    sections = 0
    for number, line in prose_of(ROOT / "CHANGELOG.md"):
        sections += line.startswith("## ")
        if sections == 1:
            yield number, line


def notebook_prose(path: Path) -> Iterator[tuple[int, str]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for number, cell in enumerate(cells, start=1):
        if cell["cell_type"] == "markdown":
            yield from ((number, line) for line in "".join(cell["source"]).splitlines())


@pytest.mark.parametrize("page", sorted({*PROSE, *EXAMPLES.rglob("*.md")}), ids=name_of)
def test_pages(page: Path) -> None:
    check([joined(prose_of(page), name_of(page))])


def test_the_newest_section_of_the_changelog() -> None:
    check([joined(newest_changes(), "CHANGELOG.md")])


def test_notebooks() -> None:
    check(joined(notebook_prose(path), name_of(path)) for path in sorted(EXAMPLES.rglob("*.ipynb")))


def test_comments_of_programs() -> None:
    programs = [*EXAMPLES.rglob("*.ensue"), *SOURCE.rglob("*.ensue")]
    check(joined(_comments(path, "--"), name_of(path)) for path in sorted(programs))


def test_the_makefile() -> None:
    check([joined(_comments(ROOT / "Makefile", "#"), "Makefile")])


def _comments(path: Path, mark: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        yield number, line.partition(mark)[2].strip(mark)


# --- Source


def literals(path: Path, tree: ast.Module) -> Iterator[Text]:
    """The texts in a module that are not docstrings: messages, hints, labels, help and what commands print."""
    nodes = list(ast.walk(tree))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        text = ""
        if not isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        if " " in text:
            numbered = [(node.lineno + place, line) for place, line in enumerate(text.split("\n"))]
            yield joined(numbered, name_of(path), is_message=True)


def docstring_of(path: Path, tree: ast.Module) -> Iterator[Text]:
    written = ast.get_docstring(tree) or ""
    yield joined(enumerate(without_examples(written), start=1), name_of(path))


def without_examples(docstring: str) -> Iterator[str]:
    """The lines of a docstring, those of its examples empty."""
    inside = False
    for line in docstring.splitlines():
        inside = line.lstrip().startswith(">>>") or (inside and bool(line.strip()))
        yield "" if inside else line


MODULES = sorted(SOURCE.rglob("*.py"))


def test_messages_and_module_docstrings() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in [*MODULES, *sorted(EXAMPLES.rglob("*.py"))]}
    check(text for path, tree in trees.items() for kind in (literals, docstring_of) for text in kind(path, tree))


def public_objects() -> Iterator[tuple[str, Any]]:
    """What `ensue` and its public modules export, with full names."""
    for name in ensue.__all__:
        value = getattr(ensue, name)
        if isinstance(value, ModuleType):
            yield from ((f"{value.__name__}.{inner}", getattr(value, inner)) for inner in _exported(value))
        else:
            yield f"ensue.{name}", value


def _exported(module: ModuleType) -> Iterable[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return [name for name, value in own.items() if getattr(value, "__module__", None) == module.__name__]


def documented(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if not callable(value):
        return
    yield name, inspect.getdoc(value) or ""
    if inspect.isclass(value):
        for member, part in vars(value).items():
            if not member.startswith("_") and (callable(part) or isinstance(part, property | classmethod)):
                yield f"{name}.{member}", inspect.getdoc(part) or ""


def test_public_docstrings() -> None:
    texts = {
        place: joined(enumerate(without_examples(written), start=1), place)
        for name, value in public_objects()
        for place, written in documented(name, value)
    }
    assert len(texts) > 100
    check(texts.values())


def test_help_of_the_command_line() -> None:
    group = typer.main.get_command(app)
    check(_help_texts("ensue", group))
    assert len(group.commands) > 10  # type: ignore[attr-defined]


def _help_texts(name: str, command: Any) -> Iterator[Text]:
    written = [command.help, command.epilog, *(getattr(option, "help", None) for option in command.params)]
    for text in filter(None, written):
        yield joined(enumerate(text.split("\n"), start=1), f"{name} --help", is_message=True)
    for inner, own in getattr(command, "commands", {}).items():
        yield from _help_texts(f"{name} {inner}", own)


# --- The list itself


@pytest.mark.parametrize(
    "text",
    [
        "1 row without a time took no part",
        "'x' is no model; models: a, b",
        "`to` names `x`, which there is not",
        "it does not stand inside of another operator than SEQ and AND",
        "holds text, which is no probability",
        "name fewer features, or such with fewer values",
        "whoever starts with the same folder goes on where the last run was",
        "a Spark DataFrame of the past",
        "an anti-join after a join; on a stream hardly",
        "has the words of FlinkCEP beside ours",
        "what else there is",
        "a probability lies between 0 and 1",
        "each NOT is judged by itself",
    ],
)
def test_phrases_are_found(text: str) -> None:
    [finding] = findings([joined([(7, text)], "page.md")])[:1]
    assert finding.startswith("page.md:7: ")
    assert ": write " in finding


def test_a_wrapped_phrase_is_found_in_its_line() -> None:
    lines = [(1, "The first line."), (2, "It took"), (3, "no part.")]
    assert findings([joined(lines, "page.md")]) == ['page.md:2: `took no part`: write "is ignored"']


@pytest.mark.parametrize(
    "text",
    [
        "the column is no longer used",
        "There is no model `x`; if there are no rows, nothing is written",
        "`t` stands for the time, and Ensue understands it",
        "1 row ignored: no timestamp",
        "Ctrl-C stops the stream; the next run resumes it",
        "FIRST is only allowed directly inside SEQ or AND",
        "a window of 5 minutes on the timeline",
        "it goes on the list",
        "a valid pattern on its own",
        "`x is no y` and `took no part` are code",
    ],
)
def test_plain_english_is_not_reported(text: str) -> None:
    assert not findings([joined([(1, text)], "page.md")])
