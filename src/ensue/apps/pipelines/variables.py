"""Variables of the environment in a pipeline, and secrets that must not stand in the file itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ensue.errors import Problem, Span, did_you_mean

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
"""A value with fewer characters is in ordinary words too: it is hidden where it stands by itself."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as the file has it (`raw`), which may be shown, and as it is with its variables, which may not."""

    raw: str
    value: str = field(repr=False)
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.raw


@dataclass(slots=True)
class Environment:
    """The variables that a pipeline may use, and those that it has used."""

    variables: Mapping[str, str]
    used: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    """What must not be shown, and what is shown instead: values of variables, and texts with variables in them."""

    def filled(self, raw: str, span: Span) -> tuple[str, list[Problem]]:
        """The text with the values of its variables, and what is wrong with them."""
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
            yield Problem("pipeline-variable", f"`${{{name}}}` does not name a variable", span, hint="write `${NAME}`")
        elif name not in self.variables:
            near = did_you_mean(name, (known for known in self.variables if known.startswith(name[:2])))
            yield Problem(
                "pipeline-variable",
                f"the environment has no variable `{name}`",
                span,
                hint=near or f"set it before the run: `export {name}=...`",
            )


def redact(text: str, hidden: Mapping[str, str]) -> str:
    """The text with what may be shown in place of what may not.

    >>> redact("no answer from https://hook/Xy12z", {"Xy12z": "${TOKEN}"})
    'no answer from https://hook/${TOKEN}'
    >>> redact("the pin 12 of 2012", {"12": "${PIN}"})
    'the pin ${PIN} of 2012'
    """
    values = sorted(filter(None, hidden), key=len, reverse=True)
    if not values:
        return text
    # One pass: what was put in for one value is not searched for another.
    return re.sub("|".join(map(_searched, values)), lambda found: hidden[found[0]], text)


def _searched(value: str) -> str:
    exact = re.escape(value)
    return exact if len(value) >= _SHORT else rf"(?<![^\W_]){exact}(?![^\W_])"


def secret_part(key: str, raw: str) -> str | None:
    """The part of a value that is a secret and stands in the file itself, or None.

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
    """The text with stars in place of secrets, those of keys that no pipeline has too; all else keeps its place.

    >>> masked("pasword: [a\\ntoken: abc\\npassword: ${PASSWORD}")
    'pasword: [a\\ntoken: ***\\npassword: ${PASSWORD}'
    """
    found = [Span(*match.span(1)) for pattern in (_SECRET_LINE, _LOGIN) for match in pattern.finditer(text)]
    for span in (*secrets, *found):
        hidden = re.sub(r"\S", "*", text[span.start : span.end])
        text = text[: span.start] + hidden + text[span.end :]
    return text
