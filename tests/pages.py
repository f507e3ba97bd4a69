"""Blocks of code in pages of the documentation. Needs Python alone, so that it also runs beside an installed wheel."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

OUTPUT = ("text", "output")

_FENCE = re.compile(r"^(?P<indent> *)```(?P<word>.*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: the word behind its fence, its text, and the numbers of its first and last line."""

    word: str
    text: str
    first: int
    last: int


def blocks_of(path: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    opened: tuple[str, int, str] | None = None
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if opened is None:
            opened = (fence["word"].strip(), number, fence["indent"])
        else:
            word, first, indent = opened
            inside = [text.removeprefix(indent) for text in lines[first : number - 1]]
            found.append(Block(word, "\n".join(inside), first, number))
            opened = None
    assert opened is None, f"{path.name}:{opened[1] if opened else 0}: the block has no end"
    return found


def directly_below(path: Path, upper: Block, lower: Block) -> bool:
    between = path.read_text(encoding="utf-8").splitlines()[upper.last : lower.first - 1]
    return not any(line.strip() for line in between)


def output_below(path: Path, blocks: list[Block], place: int) -> Block | None:
    """The block that holds what the block at `place` prints, if there is one."""
    below = blocks[place + 1] if place + 1 < len(blocks) else None
    if below is not None and below.word in OUTPUT and directly_below(path, blocks[place], below):
        return below
    return None


def write_blocks(path: Path, fresh: list[tuple[Block, str]]) -> None:
    """Puts new text into blocks of a page."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for block, text in reversed(fresh):
        lines[block.first : block.last - 1] = text.rstrip().splitlines()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
