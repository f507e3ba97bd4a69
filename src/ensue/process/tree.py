"""Process trees: what a text in the notation of workflows stands for, and how it is written.

| form | runs | binds |
| --- | --- | --- |
| `A` or `` `any name` `` | the task | |
| `x+`, `x*` | `x` one or more times, zero or more times; each time after the time before | tightest |
| `x -> y -> z` | one after the other | next |
| `x \\| y \\| z` | exactly one of them | loosest |
| `{x, y, z}` | all of them, in any order and interleaved | brackets |
| `[x]` | `x` or nothing | brackets |
| `(x)` | `x`; groups | brackets |
| `-- ...` | nothing: a comment up to the end of the line | |

So `A -> B | C` is `(A -> B) | C`, and `A -> B+` repeats `B` alone. Forms nest up to `MAXIMAL_DEPTH` levels deep. A task
may stand in several places: it is the same event in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ensue.text.reserved import quote_word

MAXIMAL_DEPTH = 50
"""Levels of brackets that a workflow may have."""


@dataclass(frozen=True, slots=True)
class Task:
    """`A`: one event."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """`x -> y`: one after the other."""

    items: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`x | y`: exactly one of them."""

    items: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """`{x, y}`: all of them, interleaved."""

    items: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`x+`, or `x*` where it may be left out."""

    item: Process
    optional: bool


@dataclass(frozen=True, slots=True)
class Maybe:
    """`[x]`: it or nothing."""

    item: Process


Process = Task | Sequence | Choice | Parallel | Repeat | Maybe


def sequence(*items: Process) -> Process:
    """`x -> (y -> z) = x -> y -> z`, and a sequence of one is that one."""
    flat = tuple(part for item in items for part in (item.items if isinstance(item, Sequence) else (item,)))
    return Sequence(flat) if len(flat) > 1 else flat[0]


def choice(*items: Process) -> Process:
    """`x | (y | z) = x | y | z`, and a choice of one is that one."""
    flat = tuple(part for item in items for part in (item.items if isinstance(item, Choice) else (item,)))
    return Choice(flat) if len(flat) > 1 else flat[0]


def parallel(*items: Process) -> Process:
    """`{x, {y, z}} = {x, y, z}`, and a block of one is that one."""
    flat = tuple(part for item in items for part in (item.items if isinstance(item, Parallel) else (item,)))
    return Parallel(flat) if len(flat) > 1 else flat[0]


def task_names(process: Process) -> Iterator[str]:
    """The task of every leaf, from left to right.

    >>> list(task_names(sequence(Task("A"), choice(Task("B"), Task("A")))))
    ['A', 'B', 'A']
    """
    match process:
        case Task(name):
            yield name
        case Repeat(item) | Maybe(item):
            yield from task_names(item)
        case _:
            for item in process.items:
                yield from task_names(item)


def render_process(process: Process) -> str:
    """The text that parses back to this process.

    >>> render_process(sequence(Task("A"), Repeat(choice(Task("B"), Task("order line")), optional=False)))
    'A -> (B | `order line`)+'
    """
    match process:
        case Task(name):
            return quote_word(name)
        case Sequence(items):
            return " -> ".join(_grouped(item, Choice) for item in items)
        case Choice(items):
            return " | ".join(map(render_process, items))
        case Parallel(items):
            return "{" + ", ".join(map(render_process, items)) + "}"
        case Repeat(item, optional):
            return _grouped(item, Choice, Sequence, Repeat) + ("*" if optional else "+")
        case Maybe(item):
            return f"[{render_process(item)}]"


def _grouped(process: Process, *looser: type[Process]) -> str:
    text = render_process(process)
    return f"({text})" if isinstance(process, looser) else text
