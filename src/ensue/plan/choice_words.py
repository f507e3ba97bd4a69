"""Which matches are reported, in words: the policy of a query where it applies, FIRST and LAST, what is used up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ensue.nodes.expressions import Duration
from ensue.nodes.names import Handle, Stream, Unnamed, called
from ensue.nodes.operators import (
    CHRONICLE,
    CONTINUOUS,
    CUMULATIVE,
    NEXT_MATCH,
    OPERATORS,
    RECENT,
    STRICT,
)
from ensue.nodes.patterns import (
    And,
    Event,
    Named,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Seq,
    Ticks,
    Within,
    children,
    rewrite,
    walk,
)
from ensue.plan.graph_description import Given
from ensue.plan.plans import QueryPlan
from ensue.text.render import render_pattern, render_window


def choice_lines(plan: QueryPlan) -> Iterator[str]:
    """What a query without a context says about choice; nothing for one that says nothing."""
    query = plan.query
    picks = [node for node in walk(query.pattern) if isinstance(node, Pick)]
    if query.policy is None and query.consume is None and not picks:
        return
    for pick in picks:
        which = "latest" if pick.latest else "earliest"
        yield f"{render_pattern(pick)}: of the matches that differ in nothing else, those in which it ends {which}"
    if picks and any(graph.graph.trailing for graph in plan.graphs):
        yield "a match is known when its window closes, because something could still come"
    if query.policy == NEXT_MATCH:
        yield from _next_match(query.pattern)
    elif query.policy == STRICT:
        yield from _strict(query.pattern)
    shown = "" if query.policy in (NEXT_MATCH, STRICT) or picks else "all matches are reported; "
    if query.consume:
        yield "CONSUME: an event takes part in one match; matches are taken as they complete, then by their start"
        yield "a match that needs a used event is not reported, and uses nothing up"
    else:
        yield f"{shown}events are shared"


def _next_match(pattern: Pattern) -> Iterator[str]:
    names = [_event_word(event) for event in _positive_events(pattern)]
    yield f"{names[0]}: every event"
    for place, (before, name) in enumerate(pairwise(names), start=1):
        yield f"{name}: the earliest after {before} that fits what is bound by then: {', '.join(names[:place])}"
    if any(isinstance(node, Not) for node in walk(pattern)):
        yield "what NOT forbids is looked at when all is bound; then no later event is tried instead"


def _strict(pattern: Pattern) -> Iterator[str]:
    names = [_event_word(event) for event in _positive_events(pattern)]
    for before, name in pairwise(names):
        yield f"{name}: the very next event of the partition after {before}, of whatever stream"


def _positive_events(pattern: Pattern) -> Iterator[Event]:
    if isinstance(pattern, Event):
        yield pattern
    elif not isinstance(pattern, Not):
        for child in children(pattern):
            yield from _positive_events(child)


# -- contexts ----------------------------------------------------------------------------------------------------------


def given_by(stages: Sequence[PatternQuery]) -> dict[Stream, Given]:
    """The events of each operator's stream, by its name, as the operators around it speak of them."""
    declared = {stage.name: (number, stage) for number, stage in enumerate(stages, start=1) if stage.declares}
    found: dict[Stream, Given] = {}
    for user in stages:
        for part in walk(user.pattern):
            if isinstance(part, Event) and isinstance(part.variable, Handle):
                number, stage = declared[part.stream]
                carried = {column.column: column for column in stage.carries}
                found[part.stream] = Given(part.variable.words, number, carried)
    return found


def context_lines(query: PatternQuery, stages: Sequence[PatternQuery]) -> Iterator[str]:
    """How each operator of a query with a context chooses, innermost first; `stages` are what it is resolved to."""
    given = given_by(stages)
    inside = {stage.name: _bare(stage.pattern) for stage in stages if stage.declares}
    operators = {number: _bare(stage.pattern) for number, stage in enumerate(stages, start=1)}
    for number, pattern in operators.items():
        if not isinstance(pattern, Event) or pattern.stream not in given:
            operands = [_event_word(item) for item in _operands(pattern)]
            text = render_pattern(_inlined(pattern, inside))
            yield f"{number}. {text}: {_chosen(pattern, operands, query.policy or '')}"
    if any(_is_pair(pattern) for pattern in operators.values()):
        yield "a pair fits if its order, the WITHINs and NOTs hold, and the conditions on what is bound by then"
    else:
        yield "there are no pairs to choose among"


def _chosen(pattern: Pattern, operands: Sequence[str], policy: str) -> str:
    if isinstance(pattern, Event):
        return "every event that fits"
    if isinstance(pattern, Or):
        return "whatever its items give"
    if len(operands) == 1 and isinstance(pattern, Seq):
        used = "" if policy == RECENT else "; what a forbidden one has used up stays used up"
        return f"judged last, on every {operands[0]} that was chosen{used}"
    if len(operands) == 1:
        return f"each {operands[0]} that fits"
    initiator, terminator = operands
    if _either_first(pattern):
        others = "others" if policy == CUMULATIVE else "other"
        return f"whichever of {initiator} and {terminator} ends later, with {_partners(others, None, policy)}"
    return f"each {terminator} with {_partners(initiator, pattern, policy)}"


def _partners(initiator: str, operator: Pattern | None, policy: str) -> str:
    """What a terminator pairs with; without an operator, nothing is said of their order."""
    fits, fit = "that fits", "that fit"
    match operator:
        case None:
            pass
        case Operation("FOLLOWS", window=Duration() | Ticks() as window):
            fits, fit = (f"that {word} at most {render_window(window)} before it" for word in _FITS_AND_ENDS)
        case Operation("PRIOR"):
            fits, fit = (f"that {word} before it" for word in _FITS_AND_ENDS)
        case Operation("SIMULTANEOUS"):
            fits, fit = (f"that {word} with it" for word in _FITS_AND_ENDS)
        case Operation("UNLESS"):
            fits, fit = (f"{word}, after which it is a first one" for word in (fits, fit))
        case _:
            fits, fit = (f"before it {word}" for word in (fits, fit))
    return {
        RECENT: f"the latest {initiator} {fits}; nothing is used up",
        CHRONICLE: f"the oldest open {initiator} {fits}; both are used up",
        CONTINUOUS: f"every open {initiator} {fits}, a match for each; those are used up",
        CUMULATIVE: f"all open {initiator} {fit}, as lists in one match; those are used up",
    }[policy]


_FITS_AND_ENDS = ("fits and ends", "fit and end")


def _either_first(pattern: Pattern) -> bool:
    return isinstance(pattern, And) or (isinstance(pattern, Operation) and pattern.operator == "CONCURRENT")


def _is_pair(pattern: Pattern) -> bool:
    return not isinstance(pattern, Or | Event) and len(_operands(pattern)) == 2


def _bare(pattern: Pattern) -> Pattern:
    while isinstance(pattern, Within | Named):
        pattern = pattern.item
    return pattern


def _operands(pattern: Pattern) -> list[Event]:
    """The events that an operator gets, in the order of the text; what it forbids is none."""
    if isinstance(pattern, Event):
        return [pattern]
    forbidden = OPERATORS[pattern.operator].forbidden if isinstance(pattern, Operation) else ()
    items = enumerate(children(pattern))
    return [item for place, item in items if place not in forbidden and isinstance(item, Event)]


def _inlined(pattern: Pattern, inside: Mapping[Stream | None, Pattern]) -> Pattern:
    """The pattern with the operators whose events it gets, as it was written."""

    def written(part: Pattern) -> Pattern:
        if not isinstance(part, Event):
            return part
        if part.stream in inside:
            return _inlined(inside[part.stream], inside)
        return replace(part, variable=None) if isinstance(part.variable, Unnamed) else part

    return rewrite(pattern, written)


def _event_word(event: Event) -> str:
    """The variable of an event; one that has none is called by its stream."""
    return str(event.stream) if event.variable is None else called(event.variable)
