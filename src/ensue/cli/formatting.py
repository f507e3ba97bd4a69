"""`ensue fmt`: programs in the standard form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ensue.cli.checking import read_text
from ensue.cli.reporting import UsageError
from ensue.lang.formatting import format_text


@dataclass(frozen=True, slots=True)
class Formatted:
    """A file as it is and as it should be."""

    path: Path
    text: str
    standard: str

    @property
    def changed(self) -> bool:
        return self.text != self.standard


def formatted_files(paths: Sequence[Path]) -> list[Formatted]:
    """Every file in the standard form; a file with a syntax error is an error, and nothing is written."""
    texts = [(path, read_text(path)) for path in paths]
    return [Formatted(path, text, format_text(text, str(path))) for path, text in texts]


def write_changed(files: Sequence[Formatted]) -> None:
    """Writes the files that change."""
    for file in files:
        if file.changed:
            try:
                file.path.write_text(file.standard, encoding="utf-8")
            except OSError as error:
                raise UsageError("unwritable-file", f"`{file.path}` cannot be written: {error.strerror}") from error
