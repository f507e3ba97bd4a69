"""The syntax of constants: regular expressions, JSON paths and formats of timestamps.

A mistake in one of them is found without data. Regular expressions have the syntax of RE2, which Arrow uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ensue.errors import Problem, did_you_mean


@dataclass(frozen=True, slots=True)
class Flaw:
    """A mistake in the constant argument at `place` of a call. The problem has no position yet."""

    place: int
    problem: Problem


Constants = Sequence[object]
"""The values of the arguments of a call; None for NULL and for arguments that are not literals."""


# --- regular expressions


@lru_cache(maxsize=256)
def _complaint(pattern: str) -> str | None:
    """What RE2 says about a pattern that it does not support."""
    # Arrow is loaded only by queries that use regular expressions.
    import pyarrow as pa
    from pyarrow import compute

    try:
        compute.match_substring_regex(pa.scalar(""), pattern=pattern)
    except pa.ArrowInvalid as failure:
        return str(failure).partition(": ")[2].replace("invalid", "unsupported")
    return None


def regex_flaw(constants: Constants) -> Flaw | None:
    """The mistake in the pattern of `regexp_like(text, pattern)`."""
    pattern = constants[1]
    complaint = _complaint(pattern) if isinstance(pattern, str) else None
    if complaint is None:
        return None
    hint = "use the syntax of RE2: https://github.com/google/re2/wiki/Syntax"
    if "(?" in complaint:
        hint = "RE2 has no lookahead and no lookbehind; use two conditions, or a group of regexp_extract"
    return Flaw(1, _regex_problem(f"the regular expression cannot be read: {complaint}", hint))


def _regex_problem(message: str, hint: str) -> Problem:
    return Problem("regular-expression", message, hint=hint)


def extract_flaw(constants: Constants) -> Flaw | None:
    """The mistake in `regexp_extract(text, pattern, group)`."""
    flaw = regex_flaw(constants)
    if flaw is not None or not isinstance(constants[1], str):
        return flaw
    group = constants[2] if len(constants) > 2 else 1
    groups = group_count(constants[1])
    if not isinstance(group, int) or 0 <= group <= groups:
        return None
    has = "no group" if groups == 0 else "1 group" if groups == 1 else f"{groups} groups"
    hint = "write the part to extract in parentheses, or use group 0 for the whole match"
    message = f"the regular expression has {has}, so there is no group {group}"
    return Flaw(min(2, len(constants) - 1), _regex_problem(message, hint))


def split_flaw(constants: Constants) -> Flaw | None:
    """The mistake in the pattern of `split(text, pattern)`: it must not match an empty text."""
    flaw = regex_flaw(constants)
    if flaw is not None or not isinstance(constants[1], str):
        return flaw
    import pyarrow as pa
    from pyarrow import compute

    if not compute.match_substring_regex(pa.scalar(""), pattern=constants[1]).as_py():
        return None
    message = "the regular expression of `split` matches an empty text"
    return Flaw(1, _regex_problem(message, "write what separates the parts, for example ','"))


_TOKEN = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\((?:\?P?<\w+>|\?)?|.", re.DOTALL)


def group_count(pattern: str) -> int:
    """The number of capturing groups of a pattern that RE2 supports.

    >>> group_count(r"(\\d+)-(?:x|(y))[(]")
    2
    """
    return sum(map(_captures, _TOKEN.findall(pattern)))


def _captures(token: str) -> bool:
    return token.startswith("(") and token != "(?"


@lru_cache(maxsize=256)
def with_one_group(pattern: str, group: int) -> str:
    """The pattern with a group called `part` in place of this group, and no other capturing groups.

    >>> with_one_group("(a)-(b|(c))", 2), with_one_group("(a)b", 0)
    ('(?:a)-(?P<part>b|(?:c))', '(?P<part>(?:a)b)')
    """
    text, number = "", 0
    for token in _TOKEN.findall(pattern):
        if _captures(token):
            number += 1
            token = "(?P<part>" if number == group else "(?:"
        text += token
    return f"(?P<part>{text})" if group == 0 else text


# --- JSON paths

_STEP = re.compile(r"\.([^\W\d]\w*)|\[(\d+)\]|\['([^']+)'\]|\[\"([^\"]+)\"\]")


@lru_cache(maxsize=256)
def json_steps(path: str) -> tuple[str | int, ...] | None:
    """The keys and positions of a JSON path; None if the path has another form.

    >>> json_steps("$.user.tags[0]['first name']"), json_steps("$..id")
    (('user', 'tags', 0, 'first name'), None)
    """
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            return None
        key, position, *quoted = found.groups()
        steps.append(int(position) if position is not None else key or quoted[0] or quoted[1])
        place = found.end()
    return tuple(steps)


def json_flaw(constants: Constants) -> Flaw | None:
    """The mistake in the path of `json_value(text, path)`."""
    path = constants[1]
    if not isinstance(path, str) or json_steps(path) is not None:
        return None
    hint = "a path is `$` followed by `.name`, `['name']` and `[0]`: '$.user.tags[0]'"
    return Flaw(1, Problem("json-path", f"the JSON path '{path}' cannot be read", hint=hint))


# --- formats of timestamps

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_LETTERS = {
    "yyyy": ("year", "[0-9]{4}"),
    "MM": ("month", "[0-9]{2}"),
    "M": ("month", "[0-9]{1,2}"),
    "MMM": ("month_name", "(?i:" + "|".join(MONTHS) + ")"),
    "dd": ("day", "[0-9]{2}"),
    "d": ("day", "[0-9]{1,2}"),
    "EEE": ("", f"(?i:{_DAYS})"),
    "HH": ("hour", "[0-9]{2}"),
    "H": ("hour", "[0-9]{1,2}"),
    "hh": ("half_hour", "[0-9]{2}"),
    "h": ("half_hour", "[0-9]{1,2}"),
    "a": ("half", "(?i:AM|PM)"),
    "mm": ("minute", "[0-9]{2}"),
    "m": ("minute", "[0-9]{1,2}"),
    "ss": ("second", "[0-9]{2}"),
    "s": ("second", "[0-9]{1,2}"),
    "X": ("offset", "Z|[+-][0-9]{2}(?:[0-9]{2})?"),
    "XX": ("offset", "Z|[+-][0-9]{4}"),
    "XXX": ("offset", "Z|[+-][0-9]{2}:[0-9]{2}"),
    "Z": ("offset", "[+-][0-9]{4}"),
} | {"S" * digits: ("fraction", f"[0-9]{{{digits}}}") for digits in range(1, 10)}
"""The letters of a format: the part that they are, and what they match."""

ISO_MOMENT = (
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?:[ T](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,9}))?)? ?(?P<offset>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
"""What CAST reads as a timestamp."""

ISO_DATE = r"[+]?(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:[ T](?:.|\n)*)?)?)?"
"""What CAST reads as a date; a time of day is ignored."""

_FORMAT = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")


@lru_cache(maxsize=256)
def moment_pattern(layout: str) -> str | Flaw:
    """The regular expression of a format of timestamps, with a group for each part; or its mistake.

    >>> moment_pattern("d/M HH'h'")
    '(?P<day>[0-9]{1,2})/(?P<month>[0-9]{1,2})\\\\x{20}(?P<hour>[0-9]{2})h'
    """
    pieces = list(_pieces(layout))
    flaw = next((piece for piece in pieces if isinstance(piece, Flaw)), None)
    if flaw is not None:
        return flaw
    return "".join(str(piece) for piece in pieces)


def _pieces(layout: str) -> Iterator[str | Flaw]:
    seen: set[str] = set()
    for found in _FORMAT.finditer(layout):
        word = found.group()
        if word == "'":
            yield _format_flaw("the format has a quote without an end", "write '''' for a quote")
        elif found.group(1) is not None:
            # Inside the quoted text of a query, a quote is doubled once more.
            yield _literally(found.group(1).replace("''", "'") or "'")
        elif found.group(2) is None:
            yield _literally(word)
        elif word not in _LETTERS:
            message = f"`{word}` in the format of a timestamp is not supported"
            hint = (
                did_you_mean(word, _LETTERS) or f"supported: {', '.join(name for name in _LETTERS if name[0] != 'S')}"
            )
            yield _format_flaw(message, f"{hint}, S to SSSSSSSSS" if "supported" in hint else hint)
        else:
            part, pattern = _LETTERS[word]
            kind = part.removesuffix("_name").removeprefix("half_")
            if part and kind in seen:
                yield _format_flaw(f"the format has the {kind} twice", "keep one of them")
            seen.add(kind)
            yield f"(?P<{part}>{pattern})" if part else f"(?:{pattern})"
    if "half" in seen and "hour" not in seen:
        yield _format_flaw("the format has `a` without `h`", "write hh for the hour from 1 to 12")


def _format_flaw(message: str, hint: str) -> Flaw:
    return Flaw(1, Problem("timestamp-format", message, hint=hint))


def _literally(text: str) -> str:
    return "".join(
        character
        if character.isalnum() or (character in "/:-, " and character != " ")
        else rf"\x{{{ord(character):x}}}"
        for character in text
    )


def format_flaw(constants: Constants) -> Flaw | None:
    """The mistake in the format of `to_timestamp(text, format)`."""
    layout = constants[1]
    found = moment_pattern(layout) if isinstance(layout, str) else None
    return found if isinstance(found, Flaw) else None
