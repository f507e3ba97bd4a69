"""YAML text as a tree whose parts know where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from ensue.apps.pipelines.variables import masked
from ensue.errors import Problem, QueryError, Source, Span

Scalar: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class Text:
    """A value that has no parts. `literal` says that it is a block after `|`, whose lines are those of the file."""

    value: Scalar
    span: Span
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Tree, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping and its value."""

    key: str
    key_span: Span
    value: Tree


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping; keys that stand there twice are `repeated` and count once."""

    entries: tuple[Entry, ...]
    span: Span
    repeated: tuple[Entry, ...] = field(default=())

    def get(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)


Tree: TypeAlias = "Text | Items | Entries"


def parse_tree(source: Source) -> Tree:
    """The tree of a YAML text; what is not YAML, or more of YAML than a pipeline needs, is a QueryError."""
    shown = Source(masked(source.text), source.name)
    try:
        _refuse_aliases(source, shown)
        node = yaml.compose(source.text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise QueryError([_syntax_problem(error)], shown) from None
    except yaml.reader.ReaderError as error:
        place = Span(error.position, error.position + 1)
        message = f"the file has a character that YAML does not allow: {error.reason}"
        raise QueryError([Problem("pipeline-yaml", message, place, hint="leave it out")], shown) from None
    if node is None:
        hint = "`ensue init --data FILE` writes a first pipeline"
        raise QueryError([Problem("pipeline-yaml", "the file is empty", Span(0, 1), hint=hint)], source)
    return _tree(node)


def _refuse_aliases(source: Source, shown: Source) -> None:
    for event in yaml.parse(source.text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            problem = Problem(
                "pipeline-yaml",
                f"a pipeline has no aliases, and `*{event.anchor}` is one",
                Span(event.start_mark.index, event.end_mark.index),
                hint="write the value out",
            )
            raise QueryError([problem], shown)


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    span = None if mark is None else Span(mark.index, mark.index + 1)
    hint = "look for quotes and brackets that do not close, and for lines that are not as far to the right as others"
    if "mapping values" in str(error.problem):
        hint = "write text that has `: `, `#` or `{` in it between quotes"
    elif "character '\\t'" in str(error.problem):
        hint = "indent with blanks"
    elif "but got '{'" in str(error.problem):
        hint = 'within `{...}`, write `"${NAME}"` between quotes'
    return Problem("pipeline-yaml", f"the file is not YAML: {error.problem or error.context}", span, hint=hint)


def _span(node: yaml.Node) -> Span:
    return Span(node.start_mark.index, max(node.start_mark.index + 1, node.end_mark.index))


def _tree(node: yaml.Node) -> Tree:
    match node:
        case yaml.MappingNode():
            return _entries(node)
        case yaml.SequenceNode():
            return Items(tuple(map(_tree, node.value)), _span(node))
        case _:
            return Text(_scalar(node), _span(node), node.style == "|")


def _entries(node: yaml.MappingNode) -> Entries:
    first: dict[str, Entry] = {}
    repeated = []
    for entry in _pairs(node):
        if entry.key in first:
            repeated.append(entry)
        else:
            first[entry.key] = entry
    return Entries(tuple(first.values()), _span(node), tuple(repeated))


def _pairs(node: yaml.MappingNode) -> Iterator[Entry]:
    for key, value in node.value:
        # As it is written: `on` is a key and not the value TRUE.
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        yield Entry(name, _span(key), _tree(value))


def _scalar(node: yaml.ScalarNode) -> Scalar:
    """The value of a scalar; dates stay text, because no key of a pipeline takes one."""
    kind = node.tag.rpartition(":")[2]
    if kind in ("int", "float", "bool", "null"):
        constructor = yaml.constructor.SafeConstructor()
        value: Scalar = constructor.construct_object(node)
        return value
    return str(node.value)
