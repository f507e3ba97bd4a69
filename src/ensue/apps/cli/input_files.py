"""Inputs of commands: files, and stdin, which is called `-`. Texts are read without a library for data."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.apps.cli.terminal import UsageError, existing_file

if TYPE_CHECKING:
    import pyarrow as pa

STDIN = "-"
"""The file name that means stdin."""


def input_name(path: str | Path) -> str:
    """Returns the name of a file, or of stdin, for messages."""
    return "stdin" if str(path) == STDIN else str(path)


def read_input(path: str | Path) -> str:
    """Reads a text file or stdin."""
    try:
        return sys.stdin.read() if str(path) == STDIN else existing_file(Path(path)).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        name, hint = ("stdin", "") if str(path) == STDIN else (f"`{path}`", "pass an .ensue file")
        raise UsageError("not-text", f"{name} is not UTF-8 text (byte {error.start})", hint) from error
    except OSError as error:
        raise UsageError("unreadable-file", f"cannot read `{path}`: {error.strerror}") from error


def check_stdin(program: str | Path, *events: str) -> None:
    """Raises an error if stdin is read twice. `events` are file names, or NAME=FILE."""
    read = [str(program), *(item.rpartition("=")[2] for item in events)]
    if read.count(STDIN) > 1:
        raise UsageError(
            "stdin-twice", "stdin can be read only once, but `-` is given twice", "save one of them as a file"
        )


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file or folder of events, or the content of stdin."""

    path: Path
    content: bytes | None = None

    @staticmethod
    def of(path: Path) -> InputFile:
        """Returns the input; reads stdin."""
        return InputFile(path, sys.stdin.buffer.read() if str(path) == STDIN else None)

    @property
    def name(self) -> str:
        return input_name(self.path)

    @property
    def modified(self) -> float:
        """The time of the last change. For stdin it is now."""
        return time.time() if self.content is not None else self.path.stat().st_mtime

    def open(self) -> pa.NativeFile:
        """Opens the bytes, decompressed."""
        import pyarrow as pa

        if self.content is None:
            return pa.input_stream(str(self.path), compression="detect")
        compression = "gzip" if self.content.startswith(b"\x1f\x8b") else None
        return pa.input_stream(pa.BufferReader(self.content), compression=compression)
