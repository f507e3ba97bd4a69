"""How the command line speaks: data on stdout, everything else on stderr, errors without tracebacks."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from ensue.errors import EnsueError, EnsueWarning, LimitError, SchemaError, did_you_mean

INTERRUPTED = 130
"""The exit code after Ctrl-C: what shells say of a command that a signal has ended."""

PIPE_WIDTH = 160
"""Columns of a table that does not go to a terminal."""

IN_OPTIONS = {
    "`limits=ensue.Limits(matches=...)` raises": "`--limit` raises",
    "`limits=` raises": "`--limit` raises",
    "`ensue.detect_batches` gives": "in Python `ensue.detect_batches` gives",
    "pass `type=` with": "pass `--type` with",
    "or one table per stream": "or one file per stream: `--events STREAM=FILE`",
    "`since`": "`--since`",
    "`until`": "`--until`",
    "pass a datetime, a timestamp, or ISO text such as": "write it as",
}
"""What messages say to callers of the Python API, and what to users of the command line."""


class UsageError(EnsueError):
    """The command was called with something it cannot use; ends with exit code 2."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        self.code = code
        self.hint = hint
        super().__init__(f"error[{code}]: {message}" + (f"\nhint: {hint}" if hint else ""))


def show(text: str) -> None:
    """Writes data to stdout, and a line's end."""
    sys.stdout.write(f"{text}\n")
    # Here and not when the process ends: a reader that has left is then an error that can be handled.
    sys.stdout.flush()


def messages(text: str) -> None:
    """Tells the user something that is not data."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "match", "matches"), counted(2000, "row")
    ('1 match', '2,000 rows')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


@contextmanager
def reported() -> Iterator[None]:
    """Shows an EnsueError as its message and a warning as one line, and leaves with the fitting exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", EnsueWarning)
        usual = warnings.showwarning

        def show(message, category, filename, lineno, file=None, line=None):  # type: ignore[no-untyped-def]
            if issubclass(category, EnsueWarning):
                messages(f"warning: {message}")
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        try:
            yield
        except EnsueError as error:
            messages(_in_options(error))
            raise SystemExit(2 if isinstance(error, UsageError) else 1) from None


def _in_options(error: EnsueError) -> str:
    """The message of an error in the words of the command line."""
    if not isinstance(error, LimitError | SchemaError):
        return str(error)
    message = str(error)
    for in_python, option in IN_OPTIONS.items():
        message = message.replace(in_python, option)
    return message


def existing_file(path: Path) -> Path:
    """The path, if a file is there; otherwise an error that names the file that was probably meant."""
    if path.is_file():
        return path
    if path.is_dir():
        raise UsageError("not-a-file", f"`{path}` is a folder", "name the files in it")
    beside = [str(other) for other in path.parent.iterdir()] if path.parent.is_dir() else []
    raise UsageError("no-such-file", f"there is no file `{path}`", did_you_mean(str(path), beside))


def table_width() -> int | None:
    """How wide tables may become: as wide as the terminal, or `PIPE_WIDTH` where there is none."""
    return None if sys.stdout.isatty() else PIPE_WIDTH


# --- The terminal that tables are written to.


def no_color() -> bool:
    """Whether the user wants no colours (see no-color.org); bold and italic text go with them."""
    return bool(os.environ.get("NO_COLOR"))


def open_console() -> Console:
    """Where tables are written: stdout, as wide as fits, in colour if it is a terminal and nobody minds."""
    return Console(width=table_width(), highlight=False, color_system=None if no_color() else "auto")
