"""Frequent templates of log messages, as the prefixes of LIKE, and the fields that can be extracted from messages."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

MOST_TEMPLATES = 12
LONGEST = 6
"""The maximum number of words of a template."""

_SMALL = frozenset({"a", "an", "at", "by", "for", "from", "in", "of", "on", "the", "to", "with"})
_FIELD = re.compile(r"\b([A-Za-z]\w*)=")
FIELDS = {
    "ip": r"(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})",
    "source": r"(?:rhost=|from )([\w.-]*\w)",
}
"""Fields of messages, and the regular expressions with which `regexp_extract` reads them."""


@dataclass(frozen=True, slots=True)
class Template:
    """The messages that start with a text, and a name for their stream."""

    prefix: str
    name: str
    count: int


def templates_of(messages: Sequence[str | None]) -> list[Template]:
    """Returns the most frequent starts of messages, without the words that vary.

    >>> lines = ["Failed login of ann", "Failed login of bob", "Closed by 10.0.0.1", "Closed by 10.0.0.2"]
    >>> [(found.prefix, found.name, found.count) for found in templates_of(lines)]
    [('Closed by', 'Closed', 2), ('Failed login of', 'FailedLogin', 2)]
    """
    groups: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for message in messages:
        if message is not None and (words := _constant(message.split(" "))):
            groups[tuple(words[:2])].append(words)
    found = sorted(
        ((len(group), start, group) for start, group in groups.items()), key=lambda item: (-item[0], item[1])
    )
    templates: list[Template] = []
    names: set[str] = set()
    for count, start, group in found[:MOST_TEMPLATES]:
        prefix = list(start)
        # A word belongs to the template if nearly all messages have it.
        while len(prefix) < LONGEST:
            place = len(prefix)
            common = Counter(each[place] for each in group if len(each) > place).most_common(1)
            if not common or common[0][1] < 0.95 * count:
                break
            prefix.append(common[0][0])
        text = " ".join(prefix)
        if count < 2 or any(other.prefix.startswith(text) or text.startswith(other.prefix) for other in templates):
            continue
        name, number = _name(text), 2
        while name in names:
            name, number = f"{_name(text)}{number}", number + 1
        names.add(name)
        templates.append(
            Template(text, name, sum(1 for each in messages if each is not None and each.startswith(text)))
        )
    return templates


def _constant(words: Sequence[str]) -> list[str]:
    """Returns the first words up to one that probably varies: with a digit, a value, or a bracket."""
    kept: list[str] = []
    for word in words:
        if not word or re.search(r"\d|=.|^[\[<'\"/]", word):
            break
        kept.append(word)
    return kept


def _name(text: str) -> str:
    """Returns a name for a stream, without calls, values, and words such as `from` at the end."""
    kept = [word for word in text.split(" ") if not re.search(r"[(=]", word)]
    words = re.findall(r"[A-Za-z]+", " ".join(kept) if len(kept) > 1 else text)[:4]
    while len(words) > 1 and words[-1].lower() in _SMALL:
        words.pop()
    return "".join(word[:1].upper() + word[1:] for word in words) or "Line"


def fields_of(messages: Sequence[str | None]) -> dict[str, str]:
    """Returns fields that messages contain, by name, with their regular expressions: addresses, and `name=value`."""
    written = Counter(name for message in messages if message is not None for name in set(_FIELD.findall(message)))
    return FIELDS | {
        name.lower(): rf"\b{name}=([^\s;,]+)" for name, count in written.most_common(12) if 20 * count >= len(messages)
    }


def extracted(messages: Sequence[str | None], pattern: str) -> list[str | None]:
    """Returns what the first group of the pattern is in each message."""
    compiled = re.compile(pattern)
    found = (compiled.search(message) if message is not None else None for message in messages)
    return [(match[1] or None) if match is not None else None for match in found]
