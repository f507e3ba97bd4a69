"""Render statements and patterns as query text, with as few parentheses as possible: `parse(render(x)) == x`.

`render_stage` also renders lowered programs, for `explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ensue.nodes import patterns
from ensue.nodes.constraints import (
    Constraint,
    ConstraintStatement,
    Ends,
    EndsWithin,
    Exclusive,
    Implies,
    Prior,
    Require,
)
from ensue.nodes.names import AnyEvent, SpokenName
from ensue.nodes.rules import Ruleset
from ensue.nodes.uncertainty import HierarchyStatement
from ensue.text.operands import first_brackets
from ensue.text.render_parts import (
    layout_condition,
    render_action,
    render_declarations,
    render_expression,
    render_names,
    render_rule,
    render_state,
    render_window,
)
from ensue.text.reserved_words import quote_name, quote_query_name, quote_table, render_stream, render_variable

__all__ = [
    "render_constraint",
    "render_constraint_statement",
    "render_expression",
    "render_pattern",
    "render_query",
    "render_return",
    "render_statements",
    "render_window",
]

_LINE = 100
_INDENT = "  "


def render_statements(statements: patterns.Statements) -> str:
    """All statements, each ending with `;`. Blank lines separate kinds of statements and multi-line statements.

    Declarations come first, then states, constraints, patterns, rules and actions.

    >>> from ensue.text.parser import parse_statements
    >>> render_statements(parse_statements("pattern A a; pattern p (B b)"))
    'PATTERN A a;\\n\\nPATTERN p\\n  (B b);\\n'
    """
    ruleset = statements.ruleset or Ruleset()
    blocks = [
        _lines(map(render_hierarchy, statements.hierarchies)),
        _lines(render_declarations(ruleset)),
        *(f"{render_selection(selection)};" for selection in statements.selections),
        *(f"{render_state(state)};" for state in statements.states),
        _lines(map(render_constraint_statement, statements.constraints)),
        *(f"{render_query(query)};" for query in statements.statements),
        *(f"{render_rule(rule)};" for rule in ruleset.rules),
        _lines(map(render_action, ruleset.actions)),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _lines(statements: Iterable[str]) -> str:
    return "\n".join(f"{statement};" for statement in statements)


def render_hierarchy(statement: HierarchyStatement) -> str:
    """A hierarchy as a statement.

    >>> from ensue.nodes.uncertainty import Member
    >>> render_hierarchy(HierarchyStatement(("Object", "Person"), (Member("alice", 0.6), Member("bob"))))
    'HIERARCHY Object > Person > (alice 0.6, bob)'
    """
    members = [
        quote_name(member.stream) + (f" {member.share!r}" if member.share is not None else "")
        for member in statement.members
    ]
    last = members[0] if len(members) == 1 else f"({', '.join(members)})"
    return f"HIERARCHY {' > '.join([*map(quote_name, statement.above), last])}"


def render_constraint_statement(statement: ConstraintStatement) -> str:
    """One constraint as a statement.

    >>> render_constraint_statement(ConstraintStatement(Prior("A", "B"), ("id",)))
    'CONSTRAINT PRIOR(A, B) PARTITION BY id'
    """
    partition = f" PARTITION BY {render_names(statement.partition_by)}" if statement.partition_by else ""
    return f"CONSTRAINT {render_constraint(statement.constraint)}{partition}"


def render_constraint(constraint: Constraint) -> str:
    """A constraint without the word CONSTRAINT.

    >>> render_constraint(Implies(("A", "order line"), "B", negated=True))
    'A AND `order line` IMPLIES NOT B'
    """
    match constraint:
        case Prior():
            return f"PRIOR({render_names(constraint.streams)})"
        case Exclusive():
            return f"EXCLUSIVE({render_names(constraint.streams)})"
        case Require():
            return f"REQUIRE({render_names(constraint.streams)})"
        case Ends():
            return f"ENDS({render_names(constraint.streams)})"
        case EndsWithin():
            return f"ENDS WITHIN {render_window(constraint.window)}"
        case Implies(given, then, negated):
            return f"{' AND '.join(map(quote_name, given))} IMPLIES {'NOT ' if negated else ''}{quote_name(then)}"


def render_query(query: patterns.PatternQuery) -> str:
    r"""One query, each clause on its own line.

    >>> from ensue.text.parser import parse_statements
    >>> print(render_query(parse_statements("pattern seq(A a, B b) within 60 min where a.x=b.x").statements[0]))
    PATTERN SEQ(A a, B b)
      WHERE a.x = b.x
      WITHIN 1h
    """
    lines = [_heading(query) + _headed_pattern(query)]
    if query.where is not None:
        lines.append(f"WHERE {layout_condition(query.where)}")
    if query.partition_by:
        lines.append(f"PARTITION BY {render_names(query.partition_by)}")
    if query.within is not None:
        lines.append(f"WITHIN {render_window(query.within)}")
    if query.allows_ties:
        lines.append("ALLOWING TIES")
    if query.policy is not None:
        lines.append(f"MATCH {query.policy}")
    if query.consume is not None:
        lines.append("CONSUME" if query.consume else "SHARE")
    if query.having is not None:
        lines.append(f"HAVING PROBABILITY {'>' if query.having.strict else '>='} {query.having.least!r}")
    if query.suppress is not None:
        lines.append(_suppression(query.suppress))
    if query.returns:
        lines.append(f"RETURN {', '.join(map(render_return, query.returns))}")
    return f"\n{_INDENT}".join(lines)


def one_line(query: patterns.PatternQuery) -> str:
    """One query on one line, for a hint.

    >>> from ensue.text.parser import parse_statements
    >>> one_line(parse_statements("pattern seq(A a, B b) within 60 min where a.x=b.x").statements[0])
    'PATTERN SEQ(A a, B b) WHERE a.x = b.x WITHIN 1h'
    """
    return " ".join(line.strip() for line in render_query(query).splitlines())


def _suppression(suppress: patterns.Suppression) -> str:
    per = f" PER {', '.join(map(render_expression, suppress.per))}" if suppress.per else ""
    return f"SUPPRESS FOR {render_window(suppress.window)}{per}"


def render_selection(selection: patterns.Selection) -> str:
    """A stream of rows as a statement.

    >>> from ensue.text.parser import parse_statements
    >>> print(render_selection(parse_statements("stream F from log where x>1 return lower(u) as u").selections[0]))
    STREAM F FROM log
      WHERE x > 1
      RETURN lower(u) AS u
    """
    lines = [f"STREAM {quote_query_name(selection.name)} FROM {quote_table(selection.table)}"]
    if selection.unnest is not None:
        lines.append(render_unnest(selection.unnest))
    if selection.where is not None:
        lines.append(f"WHERE {layout_condition(selection.where)}")
    if selection.returns:
        lines.append(f"RETURN {', '.join(map(render_return, selection.returns))}")
    return f"\n{_INDENT}".join(lines)


def render_unnest(unnest: patterns.Unnest) -> str:
    """The clause that makes the elements of a list to rows."""
    index = "" if unnest.index is None else f" AT {quote_name(unnest.index)}"
    return f"UNNEST {render_expression(unnest.list)} AS {quote_name(unnest.element)}{index}"


def render_return(column: patterns.Return) -> str:
    """One column of RETURN.

    >>> from ensue.nodes.expressions import Field
    >>> render_return(patterns.Return(Field("a", "id"), "key"))
    'a.id AS key'
    """
    alias = f" AS {quote_name(column.alias)}" if column.alias is not None else ""
    return render_expression(column.expression) + alias


def render_pattern(pattern: patterns.Pattern) -> str:
    """A pattern on one line.

    >>> a, b, c = patterns.Event("A", "a"), patterns.Event("B"), patterns.Event("C", "c")
    >>> render_pattern(patterns.Seq((a, patterns.Not(b), c)))
    'SEQ(A a, NOT B, C c)'
    """
    match pattern:
        case patterns.Event():
            return _event(pattern)
        case patterns.Seq() | patterns.And() | patterns.Or():
            return f"{_keyword(pattern)}({', '.join(map(render_pattern, pattern.items))})"
        case patterns.Not():
            return f"NOT {render_pattern(pattern.item)}"
        case patterns.Pick():
            return f"{'LAST' if pattern.latest else 'FIRST'} {render_pattern(pattern.item)}"
        case patterns.Operation():
            groups = _argument_groups(pattern, render_pattern)
            return pattern.operator + "".join(f"({', '.join(group)})" for group in groups)
        case patterns.Repeat():
            return _repeated(pattern)
        case patterns.Within():
            return f"{_postfixed(pattern.item)} {render_within(pattern)}"
        case patterns.NamedPattern():
            return f"{_postfixed(pattern.item)} AS {render_variable(pattern.name)}"
        case patterns.RelatedItems():
            # Generated. Without an original text, messages show it as its operator.
            written = pattern.origin or patterns.Operation(pattern.operator, pattern.items)
            return render_pattern(written)


def render_within(pattern: patterns.Within) -> str:
    """The WITHIN of a part, with the event that it is counted from, if any."""
    reach = "" if pattern.reach is None else f" {pattern.reach.side} {render_variable(pattern.reach.anchor)}"
    return f"WITHIN {render_window(pattern.window)}{reach}"


def _keyword(pattern: patterns.Seq | patterns.And | patterns.Or) -> str:
    match pattern:
        case patterns.Seq():
            return "SEQ"
        case patterns.And():
            return "AND"
        case patterns.Or():
            return "OR"


def _event(event: patterns.Event) -> str:
    variable = f" {render_variable(event.variable)}" if event.variable is not None else ""
    predicate = f" [{render_expression(event.predicate)}]" if event.predicate is not None else ""
    if isinstance(event.variable, SpokenName):
        return f"{event.variable}{predicate}"
    if not isinstance(event.stream, AnyEvent):
        return render_stream(event.stream) + variable + predicate
    excluded = event.stream.excluded
    but = (
        f" BUT {render_names(excluded)}"
        if len(excluded) == 1
        else f" BUT ({render_names(excluded)})"
        if excluded
        else ""
    )
    if isinstance(event.variable, str) and event.variable.upper() == "BUT":
        variable = f" `{event.variable}`"
    return f"ANY EVENT{but}{variable}{predicate}"


def _argument_groups(operation: patterns.Operation, render: Callable[[patterns.Pattern], str]) -> list[list[str]]:
    """The arguments of each pair of parentheses; UNLESS has two pairs."""
    items = [render(item) for item in operation.items]
    if operation.count is not None:
        items.insert(0, str(operation.count))
    if operation.window is not None:
        items.insert(patterns.OPERATORS[operation.operator].window_at or 0, render_window(operation.window))
    split = first_brackets(operation.operator)
    return [items[:split], items[split:]] if split else [items]


def _repeated(repeat: patterns.Repeat) -> str:
    text = render_pattern(repeat.item)
    item = (
        f"({text})"
        if isinstance(
            repeat.item, patterns.Not | patterns.Pick | patterns.Repeat | patterns.Within | patterns.NamedPattern
        )
        else text
    )
    match (repeat.least, repeat.most, repeat.every):
        case (0, None, True):
            return f"{item}*"
        case (1, None, True):
            return f"{item}+"
        case (least, most, every):
            counts = str(least) if least == most else f"{least},{'' if most is None else most}"
            return f"{item}{{{counts}}}{' ALL' if every else ''}"


def _postfixed(item: patterns.Pattern) -> str:
    text = render_pattern(item)
    return f"({text})" if isinstance(item, patterns.Not | patterns.Pick) else text


def _heading(query: patterns.PatternQuery) -> str:
    if query.name is None:
        return "PATTERN "
    name = quote_query_name(str(query.name))
    return f"STREAM {name} FROM PATTERN " if query.declares else f"PATTERN {name}\n{_INDENT}"


def _headed_pattern(query: patterns.PatternQuery) -> str:
    """The pattern after PATTERN, in parentheses where it would be ambiguous."""
    pattern = _layout_pattern(query.pattern, _INDENT)
    named = query.name is not None and not query.declares
    in_parentheses = (
        _stands_in_parts(query.pattern)
        or (named and _starts_with_event(query.pattern))
        or (query.consume is not None and _is_bare_event(query.pattern))
    )
    return f"({pattern})" if in_parentheses else pattern


def _stands_in_parts(pattern: patterns.Pattern) -> bool:
    """Whether the pattern needs parentheses: its WITHIN would be read as a clause, or it starts with FIRST or LAST."""
    while isinstance(pattern, patterns.Not | patterns.NamedPattern):
        pattern = pattern.item
    return isinstance(pattern, patterns.Within | patterns.Pick)


def _starts_with_event(pattern: patterns.Pattern) -> bool:
    """Whether a name before the pattern would be read as a stream."""
    while isinstance(pattern, patterns.NamedPattern | patterns.Repeat):
        pattern = pattern.item
    return isinstance(pattern, patterns.Event)


def _is_bare_event(pattern: patterns.Pattern) -> bool:
    """Whether CONSUME or SHARE after the pattern would be read as its variable."""
    while isinstance(pattern, patterns.Not):
        pattern = pattern.item
    return isinstance(pattern, patterns.Event) and pattern.variable is None and pattern.predicate is None


def _layout_pattern(pattern: patterns.Pattern, indent: str) -> str:
    text = render_pattern(pattern)
    if len(indent) + len(text) <= _LINE:
        return text
    deeper = indent + _INDENT

    def laid_out(items: list[str]) -> str:
        listed = f",\n{deeper}".join(items)
        return f"(\n{deeper}{listed}\n{indent})"

    match pattern:
        case patterns.Seq() | patterns.And() | patterns.Or():
            return _keyword(pattern) + laid_out([_layout_pattern(item, deeper) for item in pattern.items])
        case patterns.Operation():
            groups = _argument_groups(pattern, lambda item: _layout_pattern(item, deeper))
            return pattern.operator + "".join(map(laid_out, groups))
        case patterns.Not():
            return f"NOT {_layout_pattern(pattern.item, indent)}"
        case _:
            return text


# --- Lowered programs as text for people. Generated names cannot be parsed; comments hold what the text cannot express.


def render_stage(statements: patterns.Statements) -> str:
    """The program as text. A comment above a statement holds what the text cannot express.

    >>> from ensue.text.parser import parse_statements
    >>> print(render_stage(parse_statements("PATTERN A a; CONSTRAINT ENDS(A)")))
    CONSTRAINT ENDS(A);
    <BLANKLINE>
    PATTERN A a;
    """
    rest = replace(statements, statements=())
    blocks = [render_statements(rest).strip(), *map(_statement, statements.statements)]
    return "\n\n".join(filter(None, blocks))


def _statement(query: patterns.PatternQuery) -> str:
    comments = [f"-- {line}\n" for line in (*_looked_up(query), *_relations(query.pattern))]
    return "".join(comments) + render_query(replace(query, pattern=patterns.rewrite(query.pattern, _items))) + ";"


def _items(part: patterns.Pattern) -> patterns.Pattern:
    return patterns.And(part.items, part.span) if isinstance(part, patterns.RelatedItems) else part


def _looked_up(query: patterns.PatternQuery) -> Iterator[str]:
    if query.lookup is not None:
        on = " and ".join(f"{column} = {query.lookup.table}.{of_table}" for column, of_table in query.lookup.on)
        yield f"joined with the rows of table {query.lookup.table}" + (f" where {on}" if on else "")


def _relations(pattern: patterns.Pattern) -> Iterator[str]:
    """The relations that the operators of a pattern set between the ends of their items."""
    for part in patterns.walk(pattern):
        if isinstance(part, patterns.RelatedItems):
            moments = [
                f"{timer.name} at {_place(part, timer.base)} {'-' if timer.backward else '+'} "
                f"{'multiples of ' if timer.repeated else ''}{render_window(timer.window)}"
                for timer in part.timers
            ]
            if said := [*moments, *(_relation(part, relation) for relation in part.relations)]:
                yield f"{part.operator}: {', '.join(said)}"


def _relation(part: patterns.RelatedItems, relation: patterns.Relation) -> str:
    left, right = _place(part, relation.left), _place(part, relation.right)
    if relation.adjacent:
        return f"{left} is directly after {right}"
    sign = "<" if relation.strict else "<="
    if relation.window is None:
        return f"{left} {sign} {right}"
    if relation.apart:
        return f"{right} - {left} >= {render_window(relation.window)}"
    return f"{left} - {right} {sign} {render_window(relation.window)}"


def _place(part: patterns.RelatedItems, place: patterns.Place) -> str:
    """The start or end of an item: its variable, or its number within the operator."""
    if place.item < 0:
        return str(part.timers[-1 - place.item].name)
    events = [node for node in patterns.walk(part.items[place.item]) if isinstance(node, patterns.Event)]
    name = str(events[0].variable) if len(events) == 1 else f"item {place.item + 1}"
    return f"{name}.{place.side}"
