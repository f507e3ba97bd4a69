"""Checks of reaches, `x WITHIN d OF a`: which events they can name, and when the scopes that they close are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ensue.analysis.scopes import Aside, Scope, is_aside, names_in_scopes, open_reaches
from ensue.errors import Problem, did_you_mean
from ensue.nodes import patterns
from ensue.nodes.names import Name


def check_reaches(pattern: patterns.Pattern) -> Iterator[Problem]:
    """The problems of all reaches of an expanded pattern."""
    known = {occurrence.name for occurrence in names_in_scopes(Scope(pattern))}
    found = [*_check(pattern, _Beside(), frozenset(known))]
    yield from found
    if not found:
        yield from _check_open(pattern)


@dataclass(frozen=True, slots=True)
class _Beside:
    """The variables outside a part that every match with the part binds, and those that SEQ puts before or after it."""

    names: frozenset[Name] = frozenset()
    before: frozenset[Name] = frozenset()
    after: frozenset[Name] = frozenset()

    def inside(self, pattern: patterns.Pattern, place: int) -> _Beside:
        """The same for an item of a pattern."""
        if not isinstance(pattern, patterns.Seq | patterns.And | patterns.RelatedItems):
            return self
        before, after = (_of_all(items) for items in (pattern.items[:place], pattern.items[place + 1 :]))
        names = self.names | before | after
        if not isinstance(pattern, patterns.Seq):
            return replace(self, names=names) if isinstance(pattern, patterns.And) else _Beside(names)
        return _Beside(names, self.before | before, self.after | after)


def _check(
    pattern: patterns.Pattern, beside: _Beside, known: frozenset[Name], aside: Aside | None = None
) -> Iterator[Problem]:
    """`aside` is the NOT or collection whose own reach this may be."""
    if isinstance(pattern, patterns.Within) and pattern.reach is not None:
        reach = pattern.reach
        if isinstance(pattern.window, patterns.Events):
            yield Problem(
                "reach-window",
                f"WITHIN {reach.side} takes a duration, not a number of events",
                pattern.window.span or pattern.span,
                hint=f"for example `WITHIN 10m {reach.side} {reach.anchor}`",
            )
        yield from _check_anchor(reach, beside.names, known)
        beyond = {patterns.BEFORE: beside.before, patterns.AFTER: beside.after}.get(reach.side, frozenset())
        if aside is not None and reach.anchor in beyond:
            yield _nowhere(reach, aside)
    if not isinstance(pattern, patterns.Within | patterns.NamedPattern):
        aside = pattern if is_aside(pattern) else None
    for place, item in enumerate(patterns.children(pattern)):
        yield from _check(item, beside.inside(pattern, place), known, aside)


def _nowhere(reach: patterns.Reach, aside: Aside) -> Problem:
    word = "NOT" if isinstance(aside, patterns.Not) else "collection"
    place = "after" if reach.side == patterns.BEFORE else "before"
    return Problem(
        "reach-nowhere",
        f"no event can be {reach.side} `{reach.anchor}` here: SEQ puts the {word} {place} `{reach.anchor}`",
        reach.span or aside.span,
        hint=f"move the {word} to the other side of `{reach.anchor}`",
    )


def _of_all(items: Iterable[patterns.Pattern]) -> frozenset[Name]:
    return frozenset().union(*map(_certain_names, items))


def _certain_names(pattern: patterns.Pattern) -> frozenset[Name]:
    """The variables of single events that every match of a part binds."""
    match pattern:
        case patterns.Event():
            return frozenset() if pattern.variable is None else frozenset({pattern.variable})
        case patterns.Not() | patterns.Repeat():
            return frozenset()
        case patterns.Or():
            return frozenset.intersection(*map(_certain_names, pattern.items))
        case _:
            return _of_all(patterns.children(pattern))


def _check_anchor(reach: patterns.Reach, around: frozenset[Name], known: frozenset[Name]) -> Iterator[Problem]:
    if reach.anchor in around:
        return
    listed = ", ".join(sorted(str(name) for name in around if isinstance(name, str)))
    label = f"available: {listed or 'none'}"
    if reach.anchor not in known:
        yield Problem(
            "unknown-variable",
            f"unknown variable `{reach.anchor}`",
            reach.span,
            label=label,
            hint=did_you_mean(str(reach.anchor), map(str, around)),
        )
    else:
        yield Problem(
            "reach-anchor",
            f"WITHIN {reach.side} cannot use `{reach.anchor}`: it is not a single event of every match with this item",
            reach.span,
            label=label,
            hint="name the variable of an event next to this item, outside NOT, repetitions and branches of OR",
        )


def _check_open(pattern: patterns.Pattern) -> Iterator[Problem]:
    """A reach that closes a scope after the match is counted from an event whose choice is final."""
    final = _final_names(pattern)
    for part in open_reaches(pattern):
        reach = part.reach
        assert reach is not None
        if reach.anchor not in final:
            yield Problem(
                "reach-open",
                f"only the reach ends this scope, but `{reach.anchor}` is inside NOT, a repetition, FIRST, LAST "
                "or UNLESS",
                reach.span or part.span,
                hint="put another item after this one in the SEQ, or count from an event of the whole pattern",
            )


def _final_names(pattern: patterns.Pattern) -> frozenset[Name]:
    """The variables that are bound once for each match, whatever other matches there are."""
    match pattern:
        case patterns.Event():
            return frozenset() if pattern.variable is None else frozenset({pattern.variable})
        case patterns.Pick() | patterns.RelatedItems(rival=int()) | patterns.Operation():
            return frozenset()
        case _ if is_aside(pattern) or isinstance(pattern, patterns.Repeat):
            return frozenset()
        case _:
            return frozenset().union(*map(_final_names, patterns.children(pattern)))
