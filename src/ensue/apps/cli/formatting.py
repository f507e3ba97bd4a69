"""`ensue fmt`: programs in the standard form."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ensue.apps.cli.check import STDIN, input_name, read_input
from ensue.apps.cli.terminal import UsageError, counted, messages, reported, show
from ensue.text.formatter import format_text


@dataclass(frozen=True, slots=True)
class Formatted:
    """A file as it is and as it should be."""

    path: str
    text: str
    standard: str

    @property
    def changed(self) -> bool:
        return self.text != self.standard


def run_fmt(paths: Sequence[str], only_check: bool, as_json: bool) -> int:
    """Writes files in the standard form, `-` to stdout; gives the exit code: 1 if `only_check` and one would change."""
    with reported():
        found = formatted_files(paths)
        if not only_check:
            write_changed(found)
    changed = [file for file in found if file.changed]
    if as_json:
        show(json.dumps([{"file": input_name(file.path), "changed": file.changed} for file in found], indent=2))
    else:
        verb = "would change" if only_check else "changed"
        lines = "".join(f"{verb}: {input_name(file.path)}\n" for file in changed)
        messages(f"{lines}{counted(len(found), 'file')} looked at")
    return 1 if only_check and changed else 0


def formatted_files(paths: Sequence[str]) -> list[Formatted]:
    """Every file in the standard form; a file with a syntax error is an error, and nothing is written."""
    texts = [(path, read_input(path)) for path in paths]
    return [Formatted(path, text, format_text(text, input_name(path))) for path, text in texts]


def write_changed(files: Sequence[Formatted]) -> None:
    """Writes the files that change, and what came from stdin to stdout."""
    for file in files:
        if file.path == STDIN:
            sys.stdout.write(file.standard)
            sys.stdout.flush()
        elif file.changed:
            try:
                Path(file.path).write_text(file.standard, encoding="utf-8")
            except OSError as error:
                raise UsageError("unwritable-file", f"`{file.path}` cannot be written: {error.strerror}") from error
