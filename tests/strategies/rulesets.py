"""Hypothesis strategies for every ruleset that text can stand for. About syntax only: most of them mean nothing."""

from __future__ import annotations

from hypothesis import strategies as st

from inside import (
    FUNCTIONS,
    INT64_MAX,
    RELATIONS,
    TIMERS,
    Absent,
    Action,
    ActionArgument,
    Anything,
    Argument,
    Atom,
    Binary,
    Call,
    Causes,
    Condition,
    Duration,
    Expr,
    Fact,
    Field,
    HeadArgument,
    Item,
    Rule,
    Ruleset,
    StreamDeclaration,
    TableDeclaration,
    Temporal,
    Ticks,
    TimerItem,
    Together,
    Unary,
    While,
    Window,
    alternatives,
)
from inside import BoundName as Name
from inside import walk_expression as walk
from strategies import nodes

KEYWORDS = (
    "RULE", "FACT", "TABLE", "ON", "DO", "ID", "PARENT", "WHILE", "CAUSES", "_",
    *(word.upper() for word in (*RELATIONS, *TIMERS)), "CONTAINS", "STARTS_WITH", "COUNT",
)  # fmt: skip

names = nodes.names | st.sampled_from(KEYWORDS).flatmap(lambda word: st.sampled_from([word, word.lower()]))
streams = names
lengths: st.SearchStrategy[Window] = st.builds(Duration, st.integers(0, INT64_MAX)) | st.builds(
    Ticks, st.integers(0, INT64_MAX)
)

terms = st.builds(Name, names) | st.builds(Anything) | nodes.literals
_by_position = st.lists(st.builds(Argument, terms), max_size=3)
_by_name = st.lists(st.builds(Argument, terms, names), max_size=3)
atoms = st.builds(Atom, streams, (_by_position | _by_name).map(tuple), st.none() | names)


def _is_condition(expression: Expr) -> bool:
    """Whether the condition contains no event: NOT is only drawn before known functions."""
    match expression:
        case Binary("and" | "or", left, right):
            return _is_condition(left) and _is_condition(right)
        case Unary("not", operand):
            return _is_condition(operand)
        case Call(name):
            return name in FUNCTIONS
    return True


calls = st.builds(Call, nodes.names.map(str.lower).filter(lambda name: name == name.lower()), st.just(()))
conditions = nodes.small_expressions.filter(_is_condition) | calls
simple_items: st.SearchStrategy[Item] = st.one_of(
    atoms,
    st.builds(TimerItem, names, st.sampled_from(sorted(TIMERS)), names, lengths),
    st.builds(While, names, atoms, st.booleans()),
    st.builds(Absent, st.builds(Atom, streams, (_by_position | _by_name).map(tuple))),
    st.builds(Together, st.lists(names, min_size=1, max_size=3).map(tuple), lengths),
    st.builds(Temporal, names, st.sampled_from(sorted(RELATIONS)), names),
    st.builds(Causes, names, names),
    st.builds(Condition, conditions),
)
items: st.SearchStrategy[Item] = st.recursive(
    simple_items,
    lambda inner: st.lists(st.lists(inner, min_size=1, max_size=2).map(tuple), min_size=2, max_size=3).map(
        alternatives
    ),
    max_leaves=4,
)

heads = nodes.small_expressions.filter(
    lambda expression: not any(isinstance(part, Field) and part.name == "_" for part in walk(expression))
)
rules = st.builds(
    Rule,
    streams,
    st.lists(st.builds(HeadArgument, heads, st.none() | names), max_size=3).map(tuple),
    st.lists(items, min_size=1, max_size=4).map(tuple),
)


@st.composite
def _facts(draw: st.DrawFn) -> Fact:
    values = tuple(draw(st.lists(nodes.literals, max_size=3)))
    columns = st.lists(names, min_size=len(values), max_size=len(values), unique=True).map(tuple)
    return Fact(draw(streams), values, draw(st.none() | columns) or None)


@st.composite
def _declarations(draw: st.DrawFn) -> StreamDeclaration:
    stream = draw(st.none() | streams)
    attributes = None if stream is None else draw(st.none() | st.lists(names, max_size=3, unique=True).map(tuple))
    identity, parent = draw(st.none() | names), draw(st.none() | names)
    if attributes is None and identity is None and parent is None:
        identity = draw(names)
    return StreamDeclaration(stream, attributes, identity, parent)


@st.composite
def _actions(draw: st.DrawFn) -> Action:
    by_position = draw(st.lists(st.builds(ActionArgument, nodes.small_expressions), max_size=2))
    by_name = draw(st.lists(st.builds(ActionArgument, nodes.small_expressions, names), max_size=2))
    where = draw(st.none() | nodes.expressions)
    return Action(draw(streams), draw(names), draw(names), (*by_position, *by_name), where)


rulesets = st.builds(
    Ruleset,
    st.lists(rules, max_size=3).map(tuple),
    st.lists(_facts(), max_size=2).map(tuple),
    st.lists(
        st.builds(TableDeclaration, streams, st.lists(names, min_size=1, max_size=3, unique=True).map(tuple)),
        max_size=2,
    ).map(tuple),
    st.lists(_declarations(), max_size=2).map(tuple),
    st.lists(_actions(), max_size=2).map(tuple),
).filter(bool)
