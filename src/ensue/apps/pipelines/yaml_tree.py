"""Parses YAML into a tree whose nodes know their positions, and handles environment variables and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from ensue.errors import Problem, QueryError, Source, Span, did_you_mean

# --- Environment variables and secrets

VARIABLE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_KEY = re.compile(
    r"passw|secret|token|credential|authorization|api[-_.]?key|access[-_.]?key|jaas", re.IGNORECASE
)
_SECRET_LINE = re.compile(
    rf"""[\w."'-]*(?:{_SECRET_KEY.pattern})[\w."'-]*[^\S\n]*:[^\S\n]+(?![^,\n]*\$\{{)([^,}}\n]+)""", re.IGNORECASE
)
_LOGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@", re.IGNORECASE)
_SHORT = 4
"""Values with fewer characters also occur inside ordinary words, so they are hidden only as whole words."""


@dataclass(frozen=True, slots=True)
class FileValue:
    """A value as written in the file (`raw`), and with variables replaced (`value`), which must not be shown."""

    raw: str
    value: str = field(repr=False)
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.raw


@dataclass(slots=True)
class Environment:
    """The environment variables, and those that a pipeline uses."""

    variables: Mapping[str, str]
    used: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    """Values to hide, each with the text to show instead: values of variables, and texts that contain them."""

    def filled(self, raw: str, span: Span) -> tuple[str, list[Problem]]:
        """Returns the text with its variables replaced, and the problems."""
        problems = [problem for name in VARIABLE.findall(raw) for problem in self._problems(name, span)]
        if problems:
            return raw, problems
        for name in VARIABLE.findall(raw):
            self.used[name] = self.variables[name]
            self.hidden[self.variables[name]] = f"${{{name}}}"
        value = VARIABLE.sub(lambda found: self.variables[found[1]], raw)
        if value != raw:
            self.hidden[value] = raw
        return value, []

    def _problems(self, name: str, span: Span) -> Iterator[Problem]:
        if not _NAME.fullmatch(name):
            yield Problem("pipeline-variable", f"`${{{name}}}` is not a variable name", span, hint="write `${NAME}`")
        elif name not in self.variables:
            near = did_you_mean(name, (known for known in self.variables if known.startswith(name[:2])))
            yield Problem(
                "pipeline-variable",
                f"environment variable `{name}` is not set",
                span,
                hint=near or f"set it before the run with `export {name}=...`",
            )


def redact(text: str, hidden: Mapping[str, str]) -> str:
    """Returns the text with hidden values replaced.

    >>> redact("no answer from https://hook/Xy12z", {"Xy12z": "${TOKEN}"})
    'no answer from https://hook/${TOKEN}'
    >>> redact("the pin 12 of 2012", {"12": "${PIN}"})
    'the pin ${PIN} of 2012'
    """
    values = sorted(filter(None, hidden), key=len, reverse=True)
    if not values:
        return text
    # One pass, so that replacements are not searched again.
    return re.sub("|".join(map(_searched, values)), lambda found: hidden[found[0]], text)


def _searched(value: str) -> str:
    exact = re.escape(value)
    return exact if len(value) >= _SHORT else rf"(?<![^\W_]){exact}(?![^\W_])"


def secret_part(key: str, raw: str) -> str | None:
    """Returns the part of a value that is a secret in plain text, or None.

    >>> secret_part("password", "hunter2"), secret_part("password", "${PASSWORD}")
    ('hunter2', None)
    >>> secret_part("url", "jdbc:postgresql://me:hunter2@host/db")
    'hunter2'
    """
    login = _LOGIN.search(raw)
    if login is not None and not VARIABLE.search(login[1]):
        return login[1]
    return raw if raw and _SECRET_KEY.search(key) and not VARIABLE.search(raw) else None


def masked(text: str, secrets: Iterable[Span] = ()) -> str:
    """Returns the text with secrets replaced by stars, also for unknown keys. Positions do not change.

    >>> masked("pasword: [a\\ntoken: abc\\npassword: ${PASSWORD}")
    'pasword: [a\\ntoken: ***\\npassword: ${PASSWORD}'
    """
    found = [Span(*match.span(1)) for pattern in (_SECRET_LINE, _LOGIN) for match in pattern.finditer(text)]
    for span in (*secrets, *found):
        hidden = re.sub(r"\S", "*", text[span.start : span.end])
        text = text[: span.start] + hidden + text[span.end :]
    return text


# --- YAML tree

Scalar: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar. `literal` marks a block after `|`, whose lines are lines of the file."""

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
    """A mapping. `repeated` are further entries of a key that is already present."""

    entries: tuple[Entry, ...]
    span: Span
    repeated: tuple[Entry, ...] = field(default=())

    def get(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)


Tree: TypeAlias = "Text | Items | Entries"


def parse_tree(source: Source) -> Tree:
    """Parses a YAML text. Raises a QueryError for syntax errors and for YAML features that pipelines do not support."""
    shown = Source(masked(source.text), source.name)
    try:
        _refuse_aliases(source, shown)
        node = yaml.compose(source.text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise QueryError([_syntax_problem(error)], shown) from None
    except yaml.reader.ReaderError as error:
        place = Span(error.position, error.position + 1)
        message = f"the file contains a character that YAML does not allow: {error.reason}"
        raise QueryError([Problem("pipeline-yaml", message, place, hint="remove it")], shown) from None
    if node is None:
        hint = "create a first pipeline with `ensue init --events FILE`"
        raise QueryError([Problem("pipeline-yaml", "the file is empty", Span(0, 1), hint=hint)], source)
    return _tree(node)


def _refuse_aliases(source: Source, shown: Source) -> None:
    for event in yaml.parse(source.text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            problem = Problem(
                "pipeline-yaml",
                f"YAML aliases such as `*{event.anchor}` are not supported",
                Span(event.start_mark.index, event.end_mark.index),
                hint="write the value in full",
            )
            raise QueryError([problem], shown)


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    span = None if mark is None else Span(mark.index, mark.index + 1)
    hint = "check for unclosed quotes and brackets, and for wrong indentation"
    if "mapping values" in str(error.problem):
        hint = "put text that contains `: `, `#` or `{` in quotes"
    elif "character '\\t'" in str(error.problem):
        hint = "indent with spaces"
    elif "but got '{'" in str(error.problem):
        hint = 'inside `{...}`, write `"${NAME}"` in quotes'
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
        # The text of the key: `on` is a key and not the value TRUE.
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        yield Entry(name, _span(key), _tree(value))


def _scalar(node: yaml.ScalarNode) -> Scalar:
    """Returns the value of a scalar. Dates stay text, because no key of a pipeline accepts a date."""
    kind = node.tag.rpartition(":")[2]
    if kind in ("int", "float", "bool", "null"):
        constructor = yaml.constructor.SafeConstructor()
        value: Scalar = constructor.construct_object(node)
        return value
    return str(node.value)
