"""How the command line speaks: data on stdout, everything else on stderr, errors without tracebacks."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from ensue.errors import EnsueError, EnsueWarning, LimitError, SchemaError

PIPE_WIDTH = 160
"""Columns of a table that does not go to a terminal."""

IN_OPTIONS = {
    "`limit=` raises": "`--limit` raises",
    "`ensue.detect_batches` gives": "in Python `ensue.detect_batches` gives",
    "pass `type=` with": "pass `--type` with",
    "or one table per stream": "or one file per stream: `--events STREAM=FILE`",
}
"""What hints say to callers of the Python API, and what to users of the command line."""


class UsageError(EnsueError):
    """The command was called with something it cannot use; ends with exit code 2."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        self.code = code
        self.hint = hint
        super().__init__(f"error[{code}]: {message}" + (f"\nhint: {hint}" if hint else ""))


def messages(text: str) -> None:
    """Tells the user something that is not data."""
    typer.echo(text, err=True)


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
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None


def _in_options(error: EnsueError) -> str:
    """The message of an error, with its hint in the words of the command line."""
    if not isinstance(error, LimitError | SchemaError):
        return str(error)
    hint = error.hint
    for in_python, option in IN_OPTIONS.items():
        hint = hint.replace(in_python, option)
    return str(error).removesuffix(error.hint) + hint


def existing_file(path: Path) -> Path:
    """The path, if a file is there; otherwise an error that names the file that was probably meant."""
    if path.is_file():
        return path
    if path.is_dir():
        raise UsageError("not-a-file", f"`{path}` is a folder", "name the files in it")
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    guess = difflib.get_close_matches(path.name, beside, n=1)
    raise UsageError(
        "no-such-file", f"there is no file `{path}`", f"did you mean `{path.with_name(guess[0])}`?" if guess else ""
    )


def table_width() -> int | None:
    """How wide tables may become: as wide as the terminal, or `PIPE_WIDTH` where there is none."""
    return None if sys.stdout.isatty() else PIPE_WIDTH
