"""`ensue errors`: every error code with its explanation, an example and what that prints.

The page docs/errors.md is the only source. A wheel has a copy of it in the package. A clone reads the page itself.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import ensue
from ensue.apps.cli.terminal import UsageError, reported, show

PACKAGE = Path(ensue.__file__).parent
PAGES = (PACKAGE / "errors.md", PACKAGE.parents[1] / "docs" / "errors.md")
"""The page in a wheel and in a clone."""

WIDTH = 100
"""The width of the text. Lines of examples are not wrapped."""

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_CODE = re.compile(r"^### `([a-z-]+)`$", re.MULTILINE)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)\n?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_SHOWN = "with shown():\n"
"""How examples of the page print an error where Python would end with a traceback."""


@dataclass(frozen=True, slots=True)
class Example:
    """Query text (`ensue`), Python code or commands, and what they print."""

    language: str
    text: str
    output: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What the catalogue says about one code."""

    code: str
    section: str
    explanation: str
    examples: tuple[Example, ...]

    @property
    def summary(self) -> str:
        """The first sentence of the explanation."""
        return " ".join(self.explanation.split()).partition(". ")[0].removesuffix(".")


@cache
def read_catalogue() -> dict[str, Entry]:
    """The entries by code, in the order of the page."""
    page = next(path for path in PAGES if path.exists()).read_text(encoding="utf-8")
    _, *sections = _SECTION.split(page)
    entries: dict[str, Entry] = {}
    for section, text in zip(sections[::2], sections[1::2], strict=True):
        _, *parts = _CODE.split(text)
        for code, body in zip(parts[::2], parts[1::2], strict=True):
            entries[code] = Entry(code, section, _prose(body), _examples(body))
    return entries


def _prose(body: str) -> str:
    text = _LINK.sub(r"\1", _BLOCK.sub("", body))
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _examples(body: str) -> tuple[Example, ...]:
    blocks = _BLOCK.findall(body)
    return tuple(
        Example(language, _without_shown(text), output)
        for (language, text), (_, output) in zip(blocks[::2], blocks[1::2], strict=True)
    )


def _without_shown(text: str) -> str:
    """An example without its `with shown():`, whose definition is at the top of the page."""
    if text.count(_SHOWN) != 1:
        return text
    before, _, inside = text.partition(_SHOWN)
    return before + textwrap.dedent(inside)


def run_errors(code: str | None, as_json: bool) -> int:
    """Explains a code, or lists all of them; gives the exit code."""
    with reported():
        if code is None:
            entries = tuple(read_catalogue().values())
            show(_list_as_json(entries) if as_json else render_list(entries))
        else:
            entry = find_entry(code)
            show(json.dumps(asdict(entry), indent=2, ensure_ascii=False) if as_json else render_entry(entry))
    return 0


def find_entry(code: str) -> Entry:
    """The entry of a code, which may be copied from a message as `error[code]`."""
    entries = read_catalogue()
    wanted = code.strip().lower().removeprefix("error[").rstrip("]:").replace("_", "-")
    if wanted in entries:
        return entries[wanted]
    similar = get_close_matches(wanted, entries, n=3) or [known for known in entries if wanted and wanted in known][:3]
    hint = f"similar codes: {', '.join(similar)}" if similar else "`ensue errors` lists all codes"
    raise UsageError("unknown-code", f"unknown error code `{code}`", hint)


def render_entry(entry: Entry) -> str:
    """The explanation of a code with its examples, as a terminal shows it."""
    parts = [f"error[{entry.code}] ({entry.section})"]
    parts += [textwrap.fill(paragraph, WIDTH) for paragraph in entry.explanation.split("\n\n")]
    for example in entry.examples:
        parts += ["Example:", _indented(example.text), "Output:", _indented(example.output)]
    return "\n\n".join(parts)


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")


def render_list(entries: Sequence[Entry]) -> str:
    """All codes with the first sentence of their explanation, by section."""
    lines: list[str] = []
    width = max(len(entry.code) for entry in entries)
    for place, entry in enumerate(entries):
        if place == 0 or entry.section != entries[place - 1].section:
            lines += [*([""] if place else []), entry.section]
        lines.append(f"  {entry.code:<{width}}  {entry.summary}")
    return "\n".join(lines)


def _list_as_json(entries: Sequence[Entry]) -> str:
    found = [{"code": entry.code, "section": entry.section, "summary": entry.summary} for entry in entries]
    return json.dumps(found, indent=2, ensure_ascii=False)
