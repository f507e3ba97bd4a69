"""Output of the command line: data on stdout, everything else on stderr, errors without tracebacks."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.errors import EnsueError, EnsueNotice, EnsueWarning, LimitError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED, TERMINATED = 130, 143
"""The exit codes after Ctrl-C and after SIGTERM, as shells define them."""

PIPE_WIDTH = 160
"""The width of a table, in characters, if stdout is not a terminal."""

IN_OPTIONS = {
    r"`limits?=[^`]*`": "`--limit`",
    r"`type=`": "`--type`",
    r"`name=`": "`--pattern`",
    r"`order=`": "`--order`",
    r"one table per stream": "one file per stream (`--events STREAM=FILE`)",
    r"`(since|until)=?`": r"`--\1`",
    r"(?<!in Python )`ensue\.detect_batches`": "in Python `ensue.detect_batches`",
    r"a datetime, a timestamp,? or ISO(?: 8601)? text such as": "ISO 8601 text such as",
}
"""Parts of messages for callers of the Python API, as regular expressions, and the same for the command line."""


class UsageError(EnsueError):
    """Raised for arguments that a command cannot use. The exit code is 2."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        self.code = code
        self.hint = hint
        super().__init__(f"error[{code}]: {message}" + (f"\nhint: {hint}" if hint else ""))


def show(text: str) -> None:
    """Writes a line of data to stdout."""
    sys.stdout.write(f"{text}\n")
    # Flush here and not at exit, so that a closed pipe is an error that can be handled.
    sys.stdout.flush()


def messages(text: str) -> None:
    """Writes a message to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number with its noun.

    >>> counted(1, "match", "matches"), counted(2000, "row")
    ('1 match', '2,000 rows')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


@contextmanager
def reported() -> Iterator[None]:
    """Shows the message of an EnsueError and exits with its code; shows a warning or a notice as one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", EnsueWarning)
        warnings.simplefilter("always", EnsueNotice)
        usual = warnings.showwarning

        def show(message, category, filename, lineno, file=None, line=None):  # type: ignore[no-untyped-def]
            if issubclass(category, EnsueWarning):
                messages(f"warning: {message}")
            elif issubclass(category, EnsueNotice):
                messages(f"notice: {with_options(str(message))}")
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        try:
            yield
        except EnsueError as error:
            messages(_in_options(error))
            raise SystemExit(2 if isinstance(error, UsageError) else 1) from None


def _in_options(error: EnsueError) -> str:
    """Returns the message of an error with options of the command line in place of Python parameters."""
    if not isinstance(error, LimitError | SchemaError):
        return str(error)
    return with_options(str(error))


def with_options(message: str) -> str:
    """Returns a message with options of the command line in place of Python parameters."""
    for in_python, option in IN_OPTIONS.items():
        message = re.sub(in_python, option, message)
    return message


def existing_file(path: Path) -> Path:
    """Returns the path of a file. Raises an error with the most similar name if there is no such file."""
    if path.is_file():
        return path
    if path.is_dir():
        raise UsageError("not-a-file", f"`{path}` is a folder; expected a file", "pass the files in the folder")
    beside = [str(other) for other in path.parent.iterdir()] if path.parent.is_dir() else []
    raise UsageError("no-such-file", f"file `{path}` not found", did_you_mean(str(path), beside))


def table_width() -> int | None:
    """Returns the maximum width of a table: `PIPE_WIDTH`, or None for the width of the terminal."""
    return None if sys.stdout.isatty() else PIPE_WIDTH


# --- Console for tables


def no_color() -> bool:
    """Returns whether the user has turned off colours, bold and italic text (see no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def open_console() -> Console:
    """Returns a console on stdout for tables, in colour on a terminal unless NO_COLOR is set."""
    from rich.console import Console

    return Console(width=table_width(), highlight=False, color_system=None if no_color() else "auto")
