"""A fast path for the common forms of `ensue check`, `ensue fmt`, `ensue errors` and `ensue --version`.

The library that parses options takes longer to load than a check takes. This module parses the common forms itself and
leaves everything else to the library: other options, help and mistakes. Both run the same commands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ensue.apps.cli.terminal import show


def quick_command(arguments: Sequence[str]) -> Callable[[], int] | None:
    """Returns a function that runs the command and returns its exit code, or None if the form is not a common one.

    >>> quick_command(["check", "--help"]), quick_command(["demo"])
    (None, None)
    """
    match arguments:
        case ["--version"]:
            return show_version
        case ["errors", *rest] if len(rest) < 2 and not any(word.startswith("-") for word in rest):
            return partial(_explain_code, rest[0] if rest else None)
        case ["check" | "fmt" as name, *rest]:
            files = [word for word in rest if not word.startswith("-") or word == "-"]
            options = [word for word in rest if word not in files]
            if files and (not options or (name == "fmt" and options == ["--check"])):
                return partial(_look_at, name, files, bool(options))
    return None


def show_version() -> int:
    """Writes the version."""
    from ensue import __version__

    show(f"ensue {__version__}")
    return 0


def _explain_code(code: str | None) -> int:
    from ensue.apps.cli.catalogue import run_errors

    return run_errors(code, as_json=False)


def _look_at(name: str, files: Sequence[str], only_check: bool) -> int:
    if name == "check":
        from ensue.apps.cli.check import run_check

        return run_check(files, as_json=False)
    from ensue.apps.cli.check import run_fmt

    return run_fmt(files, only_check, as_json=False)
