"""Read and check the arguments of operators and constraints, the counts of repetitions, and policies.

`ensue.nodes.patterns` defines the arguments of each operator. Only UNLESS, which has two pairs of parentheses, and
PERIODIC, whose last pattern is optional, are special cases here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from ensue.errors import Problem, Span, counted, did_you_mean
from ensue.nodes import patterns as pattern_nodes
from ensue.nodes.constraints import Constraint, Ends, EndsWithin, Exclusive, Implies, Prior, Require
from ensue.nodes.expressions import Duration
from ensue.text.reserved_words import quote_name

PATTERN, DURATION, NUMBER = "a pattern", "a duration", "a number"
_LETTERS = "xyz"
_FIRST_BRACKETS = {"UNLESS": 1}
"""The number of patterns in the first of two pairs of parentheses."""
REPETITIONS = "write a repetition as `{2}`, `{2,4}` or `{2,} ALL`"
_OPTIONAL = {"PERIODIC": 1}
"""The number of patterns at the end that are optional."""


_FOREIGN_POLICIES = {
    "SKIP TILL NEXT": "write `MATCH NEXT`",
    "SKIP TILL ANY": "write `MATCH UNRESTRICTED`, which is the default",
    "STRICT CONTIGUITY": "write `MATCH STRICT`",
    "PARTITION CONTIGUITY": "write `MATCH STRICT`",
    "SKIP PAST LAST": "write `CONSUME`: each event is used in at most one match",
    "SKIP TO NEXT": "write `SHARE`, which is the default: matches can share events",
    "SKIP TO": "write `CONSUME` (each event is used once) or `SHARE` (matches can share events)",
    "NO SKIP": "write `SHARE`, which is the default: matches can share events",
    "AFTER MATCH": "write `CONSUME` (each event is used once) or `SHARE` (matches can share events)",
    "ROWS PER MATCH": "each match is one row; `RETURN list(t.x)` returns the values of a repetition",
    "ROW PER MATCH": "remove this: each match is one row",
}
"""What to write instead of the policies of SASE, FlinkCEP and MATCH_RECOGNIZE. The first one found is used."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number or a duration among the arguments, with its sign."""

    size: Duration | pattern_nodes.Ticks | pattern_nodes.Events | float
    negative: bool
    span: Span


Argument = pattern_nodes.Pattern | Quantity


def first_brackets(operator: str) -> int:
    """The number of patterns in the first of two pairs of parentheses: 1 for UNLESS(y)(x, z), otherwise 0."""
    return _FIRST_BRACKETS.get(operator, 0)


def operator_form(name: str) -> str:
    """The syntax of the operator.

    >>> [operator_form(name) for name in ("FOLLOWS", "ANY", "PERIODIC", "UNLESS")]
    ['FOLLOWS(x, y, d)', 'ANY(m, x1, ..., xn)', 'PERIODIC(x, d, z)', 'UNLESS(y)(x, z)']
    """
    operator = pattern_nodes.OPERATORS[name]
    if operator.any_number:
        return f"{name}(m, x1, ..., xn)"
    letters = ["x", "z"] if operator.window_at == 1 else [*_LETTERS[: len(operator.parts)]]
    split = first_brackets(name)
    if split:
        letters[:2] = reversed(letters[:2])
        return f"{name}({', '.join(letters[:split])})({', '.join(letters[split:])})"
    if operator.window_at is not None:
        letters.insert(operator.window_at, "d")
    return f"{name}({', '.join(letters)})"


def read_operation(
    name: str, groups: tuple[tuple[Argument, ...], ...], span: Span | None
) -> tuple[pattern_nodes.Operation, list[Problem]]:
    """The operation with these arguments, and its problems. Each pair of parentheses is a group of arguments."""
    operator = pattern_nodes.OPERATORS[name]
    arguments = tuple(argument for group in groups for argument in group)
    items = tuple(argument for argument in arguments if not isinstance(argument, Quantity))
    problems = _shape_problems(operator, groups, arguments, span)
    window, count = None, None
    for quantity in () if problems else (argument for argument in arguments if isinstance(argument, Quantity)):
        if operator.counted:
            count = _count(quantity)
            problems += count_problems(name, count, len(items), quantity.span)
        else:
            window = _window(quantity)
            problems += window_problems(name, window, quantity.span, negative=quantity.negative)
    return pattern_nodes.Operation(name, items, window, count, span), problems


def count_problems(name: str, count: int | None, items: int, span: Span | None = None) -> Iterator[Problem]:
    """The count of ANY is between 1 and the number of its items."""
    if count is None or count < 1:
        message = f"the count of {name} must be an integer of at least 1"
    elif count > items:
        message = f"{name} requires {count} items but has only {items}"
    else:
        return
    yield Problem("any-count", message, span, hint=f"`{operator_form(name)}`: m of these items, in any order")


def window_problems(
    name: str, window: pattern_nodes.Window | None, span: Span | None = None, *, negative: bool = False
) -> Iterator[Problem]:
    """The duration of an operator is a positive length of time."""
    hint = "for example `5m`, or an integer if the time column has integers"
    match window:
        case None:
            message, hint = f"the duration of {name} must be an integer or have a unit", "add a unit: `1.5h`"
        case pattern_nodes.Events():
            message = f"the duration of {name} must be a time span, not a number of events"
        case Duration(size) | pattern_nodes.Ticks(size) if negative or size <= 0:
            message = f"the duration of {name} must be positive"
        case _:
            return
    yield Problem("window-size", message, span, hint=hint)


def suppress_problems(window: pattern_nodes.Window) -> Iterator[Problem]:
    """The duration of SUPPRESS is a length of time."""
    if isinstance(window, pattern_nodes.Events):
        hint = "for example `SUPPRESS FOR 10m`, or an integer if the time column has integers"
        yield Problem("window-size", "SUPPRESS FOR takes a duration, not a number of events", window.span, hint=hint)


def repeat_problems(least: int, most: int | None, every: bool, span: Span | None = None) -> Iterator[Problem]:
    """A repetition has at least one element, and an upper limit unless it takes all events."""
    if least < 0 or (most is not None and most < 0):
        message, hint = "the count of a repetition must not be negative", REPETITIONS
    elif most == 0:
        message, hint = "a repetition of 0 elements never binds an event", "write NOT for an event that must not occur"
    elif most is not None and most < least:
        message, hint = f"the minimum {least} is greater than the maximum {most}", f"write `{{{most},{least}}}`"
    elif most is None and not every:
        message = f"a repetition of {least} or more has no upper limit"
        hint = f"write `{{{least},}} ALL` to bind all events, or set a maximum: `{{{least},{least + 2}}}`"
    elif least == 0 and not every:
        message = "a repetition without ALL must have at least 1 element"
        hint = f"write `{{1,{most}}}`, or `{{0,{most}}} ALL` to bind all events"
    else:
        return
    yield Problem("repeat-count", message, span, hint=hint)


def policy_problems(word: str, span: Span | None = None) -> Iterator[Problem]:
    """The word after MATCH must be a policy."""
    if word.upper() not in pattern_nodes.POLICIES:
        listed = ", ".join(pattern_nodes.POLICIES)
        hint = foreign_policy(word) or did_you_mean(word.upper(), pattern_nodes.POLICIES)
        yield Problem("unknown-policy", f"unknown policy `{word}` after MATCH; available: {listed}", span, hint=hint)


def foreign_policy(text: str) -> str:
    """What to write instead of a policy of another system; empty if the text contains none.

    >>> foreign_policy("skip_till_next_match")
    'write `MATCH NEXT`'
    """
    words = f" {' '.join(text.upper().replace('_', ' ').split())} "
    return next((advice for name, advice in _FOREIGN_POLICIES.items() if f" {name} " in words), "")


def arguments_hint(name: str) -> str:
    """The syntax of an operator and the meaning of its arguments.

    >>> arguments_hint("NOTFOLLOWS")
    '`NOTFOLLOWS(x, y, d)`: the event, what must not follow, a duration such as `5m`'
    """
    operator = pattern_nodes.OPERATORS[name]
    words = ["the number of items required", "the items"] if operator.any_number else [*operator.parts]
    if operator.window_at is not None:
        words.insert(operator.window_at, "a duration such as `5m`")
    return f"`{operator_form(name)}`: {', '.join(words)}"


def _shape_problems(
    operator: pattern_nodes.Operator,
    groups: tuple[tuple[Argument, ...], ...],
    arguments: tuple[Argument, ...],
    span: Span | None,
) -> list[Problem]:
    """The number and kinds of the arguments, and their parentheses, must be those of the operator."""
    given = [_kind(argument, operator) for argument in arguments]
    wanted = _wanted(operator, len(given))
    sizes = [len(group) for group in groups]
    hint = arguments_hint(operator.name)
    if len(given) != len(wanted):
        message = f"{operator.name} takes {_taken(operator)}, but has {_listed(given)}"
        return [Problem("operator-arguments", message, span, hint=hint)]
    split = first_brackets(operator.name)
    if sizes != ([split, len(wanted) - split] if split else [len(wanted)]):
        message = f"{operator.name} must be written as `{operator_form(operator.name)}`"
        return [Problem("operator-arguments", message, span, hint=hint)]
    return [
        Problem("operator-arguments", f"{operator.name} expects {want} here, found {kind}", argument.span, hint=hint)
        for want, kind, argument in zip_longest(wanted, given, arguments)
        if want != kind
    ]


def _taken(operator: pattern_nodes.Operator) -> str:
    """A description of the arguments of the operator."""
    if operator.any_number:
        return "a number and patterns"
    optional = _OPTIONAL.get(operator.name, 0)
    least = len(operator.parts) - optional
    patterns = f"{least} or {least + optional} patterns" if optional else _listed([PATTERN] * least)
    return patterns if operator.window_at is None else f"{patterns} and a duration"


def _wanted(operator: pattern_nodes.Operator, given: int) -> list[str]:
    """The kinds of the arguments in order. Optional arguments are included if they are given."""
    if operator.any_number:
        return [NUMBER] + [PATTERN] * max(given - 1, 1)
    patterns = len(operator.parts)
    whole = patterns + (operator.window_at is not None)
    patterns -= _OPTIONAL.get(operator.name, 0) if 0 < given < whole else 0
    wanted = [PATTERN] * patterns
    if operator.window_at is not None:
        wanted.insert(operator.window_at, DURATION)
    return wanted


def _kind(argument: Argument, operator: pattern_nodes.Operator) -> str:
    if not isinstance(argument, Quantity):
        return PATTERN
    plain = isinstance(argument.size, pattern_nodes.Ticks | float)
    return NUMBER if plain and (operator.counted or operator.window_at is None) else DURATION


def _listed(kinds: list[str]) -> str:
    numbers = [(kinds.count(kind), kind.removeprefix("a ")) for kind in dict.fromkeys(kinds)]
    return " and ".join(counted(number, kind, f"{kind}s") for number, kind in numbers) or "no arguments"


def _count(quantity: Quantity) -> int | None:
    if quantity.negative or not isinstance(quantity.size, pattern_nodes.Ticks):
        return None
    return quantity.size.count


def _window(quantity: Quantity) -> pattern_nodes.Window | None:
    return None if isinstance(quantity.size, float) else quantity.size


# --- Arguments of constraints

_SIZES: dict[str, tuple[int, int | None]] = {
    "PRIOR": (2, 2),
    "EXCLUSIVE": (2, None),
    "REQUIRE": (2, 2),
    "ENDS": (1, None),
    "IMPLIES": (2, None),
}
"""The minimum and maximum number of streams of each form."""
_EXAMPLES = {
    "PRIOR": "`PRIOR(A, B)`: no A after a B",
    "EXCLUSIVE": "`EXCLUSIVE(A, B)`: A and B do not both occur",
    "REQUIRE": "`REQUIRE(A, B)`: if A occurs, B occurs too",
    "ENDS": "`ENDS(A, B)`: no event follows an A or a B",
    "IMPLIES": "`A AND B IMPLIES C`: if A and B occur, C occurs too",
}
FORMS = tuple(form for form in _SIZES if form != "IMPLIES")
"""The forms whose streams are written in parentheses."""


_FORM_OF = {Prior: "PRIOR", Exclusive: "EXCLUSIVE", Require: "REQUIRE", Ends: "ENDS", Implies: "IMPLIES"}


def has_a_size(constraint: Constraint) -> bool:
    """Whether the number of streams of a constraint fits its form.

    >>> has_a_size(Prior("A", "B")), has_a_size(Exclusive(("A",)))
    (True, False)
    """
    return isinstance(constraint, EndsWithin) or size_problem(_FORM_OF[type(constraint)], constraint.streams) is None


def size_problem(form: str, streams: tuple[str, ...], span: Span | None = None) -> Problem | None:
    """The problem of a constraint with too few or too many streams.

    >>> size_problem("PRIOR", ("A",)).message
    'PRIOR takes 2 streams, but has 1'
    """
    least, most = _SIZES[form]
    if least <= len(streams) and (most is None or len(streams) <= most):
        return None
    wanted = counted(least, "stream", "streams")
    return Problem(
        "constraint-size",
        f"{form} takes {wanted if most == least else f'at least {wanted}'}, but has {len(streams)}",
        span,
        hint=_EXAMPLES[form],
    )


def party_problem(party: pattern_nodes.Event) -> Problem | None:
    """A constraint applies to all events of a stream, so it takes no variables and no conditions."""
    if party.variable is None and party.predicate is None:
        return None
    name = quote_name(str(party.stream))
    if party.predicate is not None:
        surplus, hint = "a condition", f"write `{name}`: a constraint applies to all events of a stream"
    else:
        variable = quote_name(str(party.variable))
        surplus, hint = (
            f"a variable `{variable}`",
            f"write `{name}`; separate streams with `,`, or with AND before IMPLIES",
        )
    return Problem(
        "event-in-constraint", f"constraints take streams, but `{name}` has {surplus}", party.span, hint=hint
    )
