"""Help with the arguments of public functions: misspelt keywords, and events and query in the wrong order."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import CO_VARKEYWORDS, unwrap
from pathlib import Path
from typing import ParamSpec, TypeVar

from ensue.errors import SchemaError, counted, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")


def helpful(function: Callable[P, R]) -> Callable[P, R]:
    """The function with errors that teach where Python would raise a TypeError. Its signature stays the same.

    >>> @helpful
    ... def detect(events, query, *, time): ...
    >>> detect("PATTERN A a", [], tiem="t")
    Traceback (most recent call last):
    ensue.errors.SchemaError: error[unknown-argument]: `ensue.detect` has no argument `tiem`
    hint: did you mean `time`?
    """
    code = unwrap(function).__code__
    accepted = accepted_by(function)
    unnamed = code.co_argcount
    open_ended = bool(code.co_flags & CO_VARKEYWORDS)
    known, takes_events = frozenset(accepted), accepted[:2] == ("events", "query")
    name = public_name(function)

    @wraps(function)
    def checked(*arguments: P.args, **options: P.kwargs) -> R:
        if not open_ended and not known.issuperset(options):
            raise unknown_argument(name, next(key for key in options if key not in known), accepted)
        first = (arguments[0] if arguments else options.get("events")) if takes_events else None
        second = arguments[1] if len(arguments) > 1 else options.get("query")
        # Two queries are not swapped: the first one is probably the name of a file with events.
        if not hasattr(type(first), "columns") and is_query(first) and not is_query(second):
            raise SchemaError(
                "swapped-arguments",
                f"the first argument of `{name}` must be the events, but it is a query ({_kind(first)})",
                f"pass the events first: `{name}({', '.join(accepted[:unnamed])})`",
            )
        if len(arguments) > unnamed:
            raise _too_many(name, accepted, unnamed, len(arguments))
        return function(*arguments, **options)

    return checked


def accepted_by(function: Callable[..., object]) -> tuple[str, ...]:
    """The names of the arguments that a function accepts.

    >>> accepted_by(is_query)
    ('thing',)
    """
    code = unwrap(function).__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names


def is_query(thing: object) -> bool:
    """Whether this is something that a user may pass as a query: a text, a path, a value of Ensue, or a list of these.

    >>> is_query("PATTERN A a"), is_query(["PATTERN A a"]), is_query({"A": None}), is_query(5)
    (True, True, False, False)
    """
    if isinstance(thing, list | tuple):
        return bool(thing) and is_query(thing[0])
    return isinstance(thing, str | Path) or hasattr(type(thing), "to_text")


def public_name(function: Callable[..., object]) -> str:
    """The name by which users call a function: those of namespaces have the namespace in front."""
    called = function.__qualname__.removesuffix(".__init__")
    space = function.__module__.split(".")[1:2]
    namespaces = ("actions", "beliefs", "learn", "process")
    return ".".join(["ensue", *(part for part in space if part in namespaces), called])


def unknown_argument(name: str, given: str, accepted: tuple[str, ...]) -> SchemaError:
    """The error for a keyword that a function does not have, with the closest one or all of them."""
    accepted = tuple(each for each in accepted if each != "self")
    return SchemaError(
        "unknown-argument",
        f"`{name}` has no argument `{given}`",
        did_you_mean(given, accepted) or f"arguments: {', '.join(accepted)}",
    )


def _too_many(name: str, accepted: tuple[str, ...], unnamed: int, given: int) -> SchemaError:
    """The error for more arguments without a name than a function takes."""
    own = int(accepted[:1] == ("self",))
    taken, named = ", ".join(accepted[own:unnamed]), accepted[unnamed : unnamed + 1]
    hints = {
        "ensue.Detector": "pass the events to `advance`: `ensue.Detector(query, ...).advance(events, watermark=...)`",
        "ensue.matching": "pass the events to the result: `df.transform(ensue.matching(query, ...))`",
    }
    return SchemaError(
        "too-many-arguments",
        f"`{name}` takes {counted(unnamed - own, 'argument', 'arguments')} without a name ({taken}),"
        f" found {given - own}",
        hints.get(name) or (f"pass the others by name, as in `{name}({taken}, {named[0]}=...)`" if named else ""),
    )


def _kind(thing: object) -> str:
    return "text" if isinstance(thing, str) else type(thing).__name__
