"""The parser's tables, made of the grammar once and kept on disk, as Python keeps its bytecode.

They lie beside the grammar or, where that folder is not to be written to, in the user's cache. With them stands what
they were made of and by what, so that they are never out of date. Where nothing can be written they are made each time.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import lark
from lark import Lark

GRAMMAR = Path(__file__).with_name("grammar.lark")
NAME = f"grammar.{sys.implementation.cache_tag}.tables"
_UNREADABLE = (OSError, EOFError, pickle.UnpicklingError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a file can end with that is cut off, or was written by something else."""


def load_parser(starts: Sequence[str]) -> Lark:
    """The parser of the grammar, from tables that are there already if possible."""
    grammar = GRAMMAR.read_text(encoding="utf-8")
    made_of = "\n".join((grammar, *starts, lark.__version__, sys.version))
    folders = _folders()
    for folder in folders:
        if (parser := _read(folder / NAME, made_of)) is not None:
            return parser
    parser = Lark(grammar, parser="lalr", lexer="contextual", start=list(starts), propagate_positions=True)
    _keep(parser, made_of, folders[1:] if sys.dont_write_bytecode else folders)
    return parser


def _folders() -> list[Path]:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [GRAMMAR.parent / "__pycache__", *([Path(home, "ensue")] if os.path.isabs(home) else [])]


def _read(path: Path, made_of: str) -> Lark | None:
    try:
        with path.open("rb") as file:
            return Lark.load(file) if pickle.load(file) == made_of else None
    except _UNREADABLE:
        return None


def _keep(parser: Lark, made_of: str, folders: Sequence[Path]) -> None:
    """Writes the tables to the first folder that takes them; another process sees either none or all of a file."""
    content = io.BytesIO()
    pickle.dump(made_of, content)
    parser.save(content)
    for folder in folders:
        own = folder / f"{NAME}.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            own.write_bytes(content.getvalue())
            own.replace(folder / NAME)
        except OSError:
            with suppress(OSError):
                own.unlink()
            continue
        return
