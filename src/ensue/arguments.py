"""Help with the arguments of public functions: misspelt keywords, and events and query in the wrong order."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import CO_VARKEYWORDS, unwrap
from pathlib import Path
from typing import ParamSpec, TypeVar

from ensue.errors import SchemaError, did_you_mean

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
    accepted = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    open_ended = bool(code.co_flags & CO_VARKEYWORDS)
    known, takes_events = frozenset(accepted), accepted[:1] == ("events",)
    name = public_name(function)

    @wraps(function)
    def checked(*arguments: P.args, **options: P.kwargs) -> R:
        if not open_ended and not known.issuperset(options):
            raise _unknown_argument(name, next(key for key in options if key not in known), accepted)
        if takes_events and arguments and not hasattr(type(arguments[0]), "columns") and is_query(arguments[0]):
            raise SchemaError(
                "swapped-arguments",
                f"the first argument of `{name}` must be the events, but it is a query ({_kind(arguments[0])})",
                f"pass the events first: `{name}({', '.join(accepted[: max(2, code.co_argcount)])})`",
            )
        return function(*arguments, **options)

    return checked


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


def _unknown_argument(name: str, given: str, accepted: tuple[str, ...]) -> SchemaError:
    return SchemaError(
        "unknown-argument",
        f"`{name}` has no argument `{given}`",
        did_you_mean(given, accepted) or f"arguments: {', '.join(accepted)}",
    )


def _kind(thing: object) -> str:
    return "text" if isinstance(thing, str) else type(thing).__name__
