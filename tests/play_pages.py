"""Plays pages of the documentation as a reader would: from the first block to the last, in the current folder.

    python        run, all blocks of a page in one namespace
    console       each `$ command` is run by a shell
    ensue, yaml   below a line that ends with "as `NAME`:", saved under that name

Called as `python play_pages.py RECORD PAGE...`. RECORD becomes JSON: for each page, a list of the line of a block and
what it printed; for a block of commands that is a list with one text for each command. Nothing of the project is
imported but what the pages import.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

from pages import Block, blocks_of

COMMAND = re.compile(r"^\$ (.*\n?)((?:(?!\$ ).*\n?)*)", re.MULTILINE)
SAVED = re.compile(r"\bas `([^`]+)`:$")

Record = list[tuple[int, str | list[str]]]


def play(page: Path) -> Record:
    """What the blocks of a page print."""
    lines = page.read_text(encoding="utf-8").splitlines()
    namespace: dict[str, object] = {"__name__": "__main__"}
    record: Record = []
    for block in blocks_of(page):
        if block.word == "python":
            record.append((block.first, run_python(page, block, namespace)))
        elif block.word == "console":
            record.append((block.first, [run_command(command) for command, _ in COMMAND.findall(block.text)]))
        elif block.word in ("ensue", "yaml"):
            said = SAVED.search(" ".join(lines[: block.first - 1]).rstrip())
            if said is not None:
                Path(said[1]).write_text(block.text + "\n", encoding="utf-8")
    return record


def run_python(page: Path, block: Block, namespace: dict[str, object]) -> str:
    from ensue import EnsueWarning

    printed = io.StringIO()
    code = compile("\n" * block.first + block.text, str(page), "exec")
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("error", EnsueWarning)
        exec(code, namespace)
    return printed.getvalue()


def run_command(command: str) -> str:
    """What a command prints on stdout and stderr, in its order, without the spaces at the ends of lines."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    ran = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        check=False,
    )
    return re.sub(r" +$", "", ran.stdout, flags=re.MULTILINE)


def main(record: Path, pages: list[Path]) -> None:
    record.write_text(json.dumps({page.name: play(page) for page in pages}), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
