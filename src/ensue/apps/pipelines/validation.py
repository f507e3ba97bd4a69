"""Checks a YAML tree against the definition: collects all problems with their positions, and the values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ensue.apps.pipelines import definition
from ensue.apps.pipelines.yaml_tree import Entries, Entry, Environment, FileValue, Items, Text, Tree, secret_part
from ensue.errors import Problem, Span, did_you_mean
from ensue.python.values import length_of

Values: TypeAlias = "FileValue | list[Values] | CheckedMapping"


@dataclass(slots=True)
class CheckedMapping:
    """The values of a mapping. `places` are the positions of its keys, `span` is the position of the mapping."""

    span: Span
    values: dict[str, Values] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)


@dataclass(slots=True)
class Checker:
    """Checks a tree against the definition and collects problems."""

    environment: Environment
    problems: list[Problem] = field(default_factory=list)
    secrets: list[Span] = field(default_factory=list)

    def check(self, tree: Tree, shape: definition.Shape, key: str = "") -> Values | None:
        """Returns the values of a tree, or None if it does not have this shape."""
        match shape, tree:
            case definition.Record(), Entries():
                return self._record(tree, shape, key)
            case definition.Record(short=definition.TextOf() as short), Text():
                return self._text(tree, short, key, "or a mapping")
            case definition.MapOf(item), Entries():
                return self._mapping(tree, item)
            case definition.Settings(), Entries():
                return self._mapping(tree, definition.TextOf(multiline=True), any_scalar=True)
            case definition.ListOf(item), Items():
                return self._list(tree, item, key)
            case definition.OneOrMore(item), Items():
                return self._list(tree, item, key)
            case definition.OneOrMore(item), Text():
                given = self._text(tree, item, key, "or a list of them")
                return None if given is None else [given]
            case definition.TextOf(), Text():
                return self._text(tree, shape, key)
            case ((definition.Number() | definition.Flag()), Text()):
                return self._plain(tree, shape, key)
        self._wrong(tree.span, key, _described(shape), tree, hint=_advice(shape))
        return None

    def _record(self, tree: Entries, record: definition.Record, key: str) -> CheckedMapping:
        found = self._entries(tree)
        known = [item.name for item in record.keys]
        for entry in tree.entries:
            if entry.key not in known:
                self._unknown(entry, known, key)
                continue
            value = self.check(entry.value, record.key(entry.key).shape, entry.key)
            found.places[entry.key] = entry.key_span
            if value is not None:
                found.values[entry.key] = value
        self._missing(found, record, key)
        return found

    def _missing(self, found: CheckedMapping, record: definition.Record, key: str) -> None:
        place = Span(found.span.start, found.span.start + 1)
        for item in record.keys:
            if item.required and item.name not in found.places:
                hint = f"add {_meaning(item)}"
                message = f"{record.title} requires `{item.name}`"
                self.problems.append(Problem("pipeline-key", message, place, hint=hint))
        there = [name for name in record.one_of if name in found.places]
        if record.one_of and len(there) != 1:
            choice = " or ".join(f"`{name}`" for name in record.one_of)
            if there:
                message, place = f"{record.title} accepts {choice}, not both", found.places[there[-1]]
            else:
                message = f"{record.title} requires {choice}"
            meanings = "; or ".join(_meaning(record.key(name)) for name in record.one_of)
            hint = f"{'keep' if there else 'add'} {meanings}"
            self.problems.append(Problem("pipeline-key", message, place, hint=hint))

    def _entries(self, tree: Entries) -> CheckedMapping:
        for entry in tree.repeated:
            message = f"duplicate key `{entry.key}`"
            self.problems.append(Problem("pipeline-key", message, entry.key_span, hint="remove one of them"))
        return CheckedMapping(tree.span)

    def _unknown(self, entry: Entry, known: Sequence[str], key: str) -> None:
        where = f"`{key}`" if key else "the pipeline"
        self.problems.append(
            Problem(
                "pipeline-key",
                f"{where} has no key `{entry.key}`",
                entry.key_span,
                label=f"keys: {', '.join(known)}",
                hint=did_you_mean(entry.key, known) or "remove it; `ensue schema` describes all keys",
            )
        )

    def _mapping(self, tree: Entries, item: definition.Shape, any_scalar: bool = False) -> CheckedMapping:
        found = self._entries(tree)
        for entry in tree.entries:
            found.places[entry.key] = entry.key_span
            value = entry.value
            if any_scalar and isinstance(value, Text) and value.value is not None:
                value = Text(_as_option(value.value), value.span, value.literal)
            checked = self.check(value, item, entry.key)
            if checked is not None:
                found.values[entry.key] = checked
        return found

    def _list(self, tree: Items, item: definition.Shape, key: str) -> list[Values]:
        if not tree.items:
            self.problems.append(
                Problem("pipeline-value", f"`{key}` is empty", tree.span, hint="add at least one item")
            )
        checked = [self.check(part, item, key) for part in tree.items]
        return [value for value in checked if value is not None]

    def _text(self, tree: Text, shape: definition.TextOf, key: str, otherwise: str = "") -> FileValue | None:
        if not isinstance(tree.value, str) or not tree.value.strip():
            self._wrong(tree.span, key, f"{_described(shape)} {otherwise}".strip(), tree, hint=_advice(shape))
            return None
        secret = secret_part(key, tree.value)
        if secret is not None:
            self._secret(tree, key)
            return None
        value, problems = self.environment.filled(tree.value, tree.span)
        self.problems += problems
        given = FileValue(tree.value, value, tree.span)
        if problems:
            return None
        if not _fits(value, shape):
            expected = f"{_described(shape)} {otherwise}".strip()
            self._wrong(tree.span, key, expected, tree, shape.choices, hint=_advice(shape))
            return None
        return given

    def _secret(self, tree: Text, key: str) -> None:
        self.secrets.append(tree.span)
        name = re.sub(r"\W+", "_", key).strip("_").upper() or "SECRET"
        self.problems.append(
            Problem(
                "pipeline-secret",
                f"`{key}` contains a secret in plain text",
                tree.span,
                hint=f"set it as an environment variable and write `${{{name}}}`",
            )
        )

    def _plain(self, tree: Text, shape: definition.Number | definition.Flag, key: str) -> FileValue | None:
        raw = tree.value if isinstance(tree.value, str) else _as_option(tree.value)
        value, problems = self.environment.filled(raw, tree.span)
        self.problems += problems
        if problems:
            return None
        if not _fits_plain(value, shape):
            self._wrong(tree.span, key, _described(shape), tree, hint=_advice(shape))
            return None
        return FileValue(raw, value, tree.span)

    def _wrong(
        self, span: Span, key: str, expected: str, tree: Tree, choices: Sequence[str] = (), *, hint: str
    ) -> None:
        found = {Entries: "a mapping", Items: "a list"}.get(type(tree), "")
        if isinstance(tree, Text):
            found = "no value" if tree.value in (None, "") else f"`{_as_option(tree.value)}`"
        near = did_you_mean(str(tree.value), choices) if isinstance(tree, Text) else ""
        subject = f"`{key}`" if key else "the pipeline"
        problem = Problem("pipeline-value", f"{subject} must be {expected}, found {found}", span, hint=near or hint)
        self.problems.append(problem)


def _meaning(key: definition.Key) -> str:
    return f"`{key.name}`: {key.meaning}"


def _as_option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _fits(value: str, shape: definition.TextOf) -> bool:
    if shape.choices:
        return value in shape.choices
    if not shape.multiline and "\n" in value:
        return False
    return not shape.pattern or re.fullmatch(shape.pattern, value) is not None


def _fits_plain(value: str, shape: definition.Number | definition.Flag) -> bool:
    if isinstance(shape, definition.Flag):
        return value == "true" or (value == "false" and not shape.only)
    if shape.seconds and re.fullmatch(definition.LENGTH.pattern, value):
        return bool(length_of(value))
    return re.fullmatch("[0-9]+", value) is not None and int(value) >= shape.least


def _described(shape: definition.Shape) -> str:
    match shape:
        case definition.TextOf():
            choices = [f"`{choice}`" for choice in shape.choices]
            if len(choices) > 2:
                return f"one of {', '.join(choices)}"
            return " or ".join(choices) if choices else shape.expected
        case definition.Number():
            return f"an integer of at least {shape.least}{' or a duration such as `10s`' if shape.seconds else ''}"
        case definition.Flag():
            return "`true`" if shape.only else "`true` or `false`"
        case definition.ListOf():
            return "a list"
        case definition.OneOrMore(item):
            return f"{_described(item)} or a list of them"
        case definition.Record(short=definition.TextOf() as short):
            return f"{_described(short)} or a mapping"
        case _:
            return "a mapping"


def _advice(shape: definition.Shape) -> str:
    """Returns a hint for a value that does not have this shape."""
    match shape:
        case definition.TextOf(choices=(), expected="a text"):
            return "put it in quotes"
        case definition.TextOf(choices=()):
            return f"write {shape.expected}"
        case definition.Flag(only=True):
            return "write `true`, or remove it"
        case definition.TextOf() | definition.Flag():
            return "write one of these values"
        case definition.Record(short=None, one_of=(_, *_) as names):
            return f"write a mapping with {' or '.join(f'`{name}`' for name in names)}"
        case definition.Number():
            return "write a duration such as `10s`" if shape.seconds else "write an integer without a unit"
        case definition.OneOrMore(item):
            return _advice(item)
        case definition.ListOf():
            return "write each item on its own line, starting with `- `"
        case _:
            return "write each `key: value` on its own indented line"
