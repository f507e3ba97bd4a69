"""Lowered programs as text, for people: what Ensue makes has names that nobody can write, and comments say the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ensue.nodes.patterns import And, Event, Pattern, PatternQuery, Place, Related, Relation, Statements, rewrite, walk
from ensue.text.render import render_query, render_statements, render_window


def render_stage(statements: Statements) -> str:
    """The program as text; a comment above a statement says what its text cannot.

    >>> from ensue.text.parser import parse_statements
    >>> print(render_stage(parse_statements("PATTERN A a; CONSTRAINT ENDS(A)")))
    CONSTRAINT ENDS(A);
    <BLANKLINE>
    PATTERN A a;
    """
    rest = replace(statements, statements=())
    blocks = [render_statements(rest).strip(), *map(_statement, statements.statements)]
    return "\n\n".join(filter(None, blocks))


def _statement(query: PatternQuery) -> str:
    comments = [f"-- {line}\n" for line in (*_looked_up(query), *_relations(query.pattern))]
    return "".join(comments) + render_query(replace(query, pattern=rewrite(query.pattern, _items))) + ";"


def _items(part: Pattern) -> Pattern:
    return And(part.items, part.span) if isinstance(part, Related) else part


def _looked_up(query: PatternQuery) -> Iterator[str]:
    if query.lookup is not None:
        on = " and ".join(f"{column} = {query.lookup.table}.{of_table}" for column, of_table in query.lookup.on)
        yield f"each with the rows of table {query.lookup.table}" + (f" of which {on}" if on else "")


def _relations(pattern: Pattern) -> Iterator[str]:
    """What the operators of a pattern say of the ends of their items."""
    for part in walk(pattern):
        if isinstance(part, Related):
            moments = [
                f"{timer.name} at {_place(part, timer.base)} {'-' if timer.backward else '+'} "
                f"{'multiples of ' if timer.repeated else ''}{render_window(timer.window)}"
                for timer in part.timers
            ]
            if said := [*moments, *(_relation(part, relation) for relation in part.relations)]:
                yield f"{part.operator}: {', '.join(said)}"


def _relation(part: Related, relation: Relation) -> str:
    left, right = _place(part, relation.left), _place(part, relation.right)
    if relation.adjacent:
        return f"{left} is the position after {right}"
    sign = "<" if relation.strict else "<="
    if relation.window is None:
        return f"{left} {sign} {right}"
    return f"{left} - {right} {sign} {render_window(relation.window)}"


def _place(part: Related, place: Place) -> str:
    """The start or end of an item: by its variable, or by its number among the items of the operator."""
    if place.item < 0:
        return str(part.timers[-1 - place.item].name)
    events = [node for node in walk(part.items[place.item]) if isinstance(node, Event)]
    name = str(events[0].variable) if len(events) == 1 else f"item {place.item + 1}"
    return f"{name}.{place.side}"
