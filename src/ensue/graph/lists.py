"""Lists in the normal form: the variable names of the rounds of a repetition, and expressions over them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ensue.analysis.choices import lengths, names_in
from ensue.analysis.scopes import Scope, group_of, is_aside
from ensue.check.fields import lists_of_result
from ensue.expr.lists import has_prev, is_aggregate, list_variables, successive
from ensue.nodes import expressions
from ensue.nodes.names import Name, Round
from ensue.nodes.patterns import PatternQuery, Repeat, walk


@dataclass(frozen=True, slots=True)
class Repetition:
    """An unrolled repetition: its names, its maximum number of rounds, and the NOTs and collections inside it."""

    names: tuple[Name, ...]
    most: int
    inside: frozenset[int]


@dataclass(frozen=True, slots=True)
class Repetitions:
    """The repetitions of an expanded pattern: the list of each name, and the unrolled ones, by list."""

    groups: Mapping[Name, Name] = field(default_factory=dict)
    unrolled: Mapping[Name, Repetition] = field(default_factory=dict)

    @classmethod
    def of(cls, query: PatternQuery) -> Repetitions:
        """The repetitions of a query with an expanded pattern."""
        unrolled: dict[Name, Repetition] = {}
        for node in walk(query.pattern):
            if isinstance(node, Repeat) and not node.every and (group := group_of(node)) is not None:
                inside = frozenset(id(part) for part in walk(node.item) if is_aside(part))
                unrolled[group] = Repetition(names_in(node.item), lengths(node)[-1], inside)
        return cls(lists_of_result(query), unrolled)

    def in_rounds(self, conjunct: expressions.Expr, home: Scope | None) -> Iterator[expressions.Expr]:
        """A conjunct about each element, or with PREV, once for each round of its repetition."""
        groups = {self.groups[name] for name in list_variables(conjunct, self.groups)} & self.unrolled.keys()
        repetition = self.unrolled[groups.pop()] if groups else None
        if repetition is None or (
            home is not None and any(id(scope.aside) in repetition.inside for scope in home.chain)
        ):
            yield conjunct
        elif has_prev(conjunct):
            for number in range(1, repetition.most):
                yield successive(conjunct, _in_round(repetition, number), _in_round(repetition, number - 1))
        else:
            for number in range(repetition.most):
                yield renamed_lists(conjunct, _in_round(repetition, number))

    def rounds(self, bound: Collection[Name]) -> dict[Name, int]:
        """The number of rounds of each repetition, given the bound names; repetitions with no round are left out."""
        found: dict[Name, int] = {}
        for group, repetition in self.unrolled.items():
            count = sum(
                any(Round(name, number) in bound for name in repetition.names) for number in range(repetition.most)
            )
            if count:
                found[group] = count
        return found

    def with_nulls(self, conjunct: expressions.Expr, bound: Collection[Name]) -> expressions.Expr:
        """The conjunct with null for variables that a round does not bind because it took another branch."""
        missing = {
            name
            for repetition in self.unrolled.values()
            for number in range(repetition.most)
            if not frozenset(names := _in_round(repetition, number).values()).isdisjoint(bound)
            for name in names
            if name not in bound
        }
        return expressions.substitute_fields(
            conjunct, lambda part: expressions.Literal(None, part.span) if part.variable in missing else part
        )

    def gathered(self, expr: expressions.Expr, rounds: Mapping[Name, int], bound: Collection[Name]) -> expressions.Expr:
        """The expression with the lists of repetitions built from their `rounds` rounds."""

        def gather(part: expressions.Elements) -> expressions.Expr:
            if part.of not in rounds:
                return part
            names = self.unrolled[part.of].names
            return expressions.Gather(
                tuple(_element(part.element, names, number, bound) for number in range(rounds[part.of])), span=part.span
            )

        return expressions.substitute_lists(expr, gather)


NO_REPETITIONS = Repetitions()


def _in_round(repetition: Repetition, number: int) -> dict[Name, Name]:
    return {name: Round(name, number) for name in repetition.names}


def _element(
    element: expressions.Expr, names: Collection[Name], number: int, bound: Collection[Name]
) -> expressions.Expr:
    """The value of one round; null for a variable that the round does not bind because it took another branch."""

    def in_round(part: expressions.Field) -> expressions.Expr:
        if part.variable is None or part.variable not in names:
            return part
        name = Round(part.variable, number)
        return replace(part, variable=name) if name in bound else expressions.Literal(None, part.span)

    return expressions.substitute_fields(element, in_round)


def under_name(field: expressions.Field, names: Mapping[Name, Name]) -> expressions.Field:
    """The field with the other name of its variable, if it has one."""
    name = names.get(field.variable or "")
    return field if name is None else replace(field, variable=name)


def renamed_lists(expr: expressions.Expr, names: Mapping[Name, Name]) -> expressions.Expr:
    """The expression with renamed variables and lists."""
    plain = expressions.substitute_fields(expr, lambda part: under_name(part, names))
    return expressions.substitute_lists(plain, lambda part: replace(part, of=names.get(part.of, part.of)))


def lists_in(expr: expressions.Expr) -> frozenset[Name]:
    """The lists that remain in an expression."""
    return frozenset(part.of for part in expressions.walk(expr) if isinstance(part, expressions.Elements))


def without_lists(expr: expressions.Expr, missing: Collection[Name]) -> expressions.Expr:
    """The expression with null in place of aggregates over lists that a match does not have."""

    def replaced(part: expressions.Expr) -> expressions.Expr | None:
        return expressions.Literal(None, part.span) if _is_list(part) and lists_in(part) & frozenset(missing) else None

    return expressions.rewrite(expr, replaced)


def _is_list(expr: expressions.Expr) -> bool:
    return isinstance(expr, expressions.Elements) or is_aggregate(expr)
