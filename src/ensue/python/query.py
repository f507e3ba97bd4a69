"""A whole query in Python: a pattern and its clauses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Self

from ensue.check.gate import checked
from ensue.errors import QueryError
from ensue.nodes.expressions import Binary, Expr
from ensue.nodes.patterns import PatternQuery, Return, Statements
from ensue.nodes.probability import Threshold, check_threshold
from ensue.python.literals import WindowLike, window
from ensue.python.values import ConditionLike, condition_node
from ensue.text.builder import of_the_one_event
from ensue.text.operands import policy_problems
from ensue.text.parser import parse_returns
from ensue.text.render import render_query

if TYPE_CHECKING:
    from ensue.plan.description import Explained

FieldNames = str | list[str] | tuple[str, ...]
Columns = ConditionLike | list[ConditionLike] | tuple[ConditionLike, ...]


@dataclass(frozen=True, repr=False)
class Query:
    """A query as a value; `node` is what its text would parse to. Each method gives a new query.

    >>> from ensue.python.patterns import event, seq
    >>> query = seq("A a", "B b").where("a.x = b.x").within("1 hour").as_pattern("pair")
    >>> print(query.to_text())
    PATTERN pair
      SEQ(A a, B b)
      WHERE a.x = b.x
      WITHIN 1 hour
    """

    node: PatternQuery

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self.to_text()}")'

    def where(self, *conditions: ConditionLike) -> Self:
        """Every condition holds as well, besides those there are."""
        where = self.node.where
        for condition in conditions:
            asked = of_the_one_event(condition_node(condition), self.node.pattern)
            where = _conjunction(where, asked)
        return self._with(replace(self.node, where=where))

    def partition_by(self, *fields: FieldNames) -> Self:
        """All events of a match agree on these fields too; a list or tuple stands for its texts."""
        listed = (group if isinstance(group, list | tuple) else [group] for group in fields)
        names = tuple(chain.from_iterable(listed))
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f'partition_by takes the names of fields, such as "user_id", not {name!r}')
        return self._with(replace(self.node, partition_by=self.node.partition_by + names))

    def within(self, size: WindowLike) -> Self:
        """The window of the whole match; it takes the place of an earlier one."""
        return self._with(replace(self.node, within=window(size)))

    def returning(self, *columns: Columns, **named: ConditionLike) -> Self:
        """Further columns of the result: texts such as `"a.id AS id"`, values, or `name=value`; texts are parsed.

        A list or tuple stands for its columns.
        """
        returns = list(self.node.returns)
        listed = (group if isinstance(group, list | tuple) else [group] for group in columns)
        for column in chain.from_iterable(listed):
            returns += parse_returns(column) if isinstance(column, str) else [Return(condition_node(column))]
        returns += [Return(condition_node(column), alias) for alias, column in named.items()]
        return self._with(replace(self.node, returns=tuple(returns)))

    def match(self, policy: str) -> Self:
        """Which of the matches are wanted: `MATCH RECENT`; the policies may be written in any case."""
        if not isinstance(policy, str):
            raise TypeError(f'match takes the name of a policy, such as "recent", not {policy!r}')
        if problems := [*policy_problems(policy)]:
            raise QueryError(problems)
        return self._with(replace(self.node, policy=policy.upper()))

    def consume(self) -> Self:
        """Every event takes part in at most one match: `CONSUME`."""
        return self._with(replace(self.node, consume=True))

    def share(self) -> Self:
        """Matches may share events, which is the default: `SHARE`."""
        return self._with(replace(self.node, consume=False))

    def having(self, *, probability: float) -> Self:
        """Only matches that are at least so probable: `HAVING PROBABILITY >= 0.9`.

        >>> from ensue.python.patterns import seq
        >>> print(seq("A a", "B b").within(5).having(probability=0.9).to_text())
        PATTERN SEQ(A a, B b)
          WITHIN 5
          HAVING PROBABILITY >= 0.9
        """
        if isinstance(probability, bool) or not isinstance(probability, int | float):
            raise TypeError(f"having takes a probability, such as 0.9, not {probability!r}")
        threshold = Threshold(float(probability))
        if problems := [*check_threshold(threshold)]:
            raise QueryError(problems)
        return self._with(replace(self.node, having=threshold))

    def as_pattern(self, name: str) -> Self:
        """The query under a name: `PATTERN name ...`."""
        return self._with(replace(self.node, name=name, declares=False))

    def as_stream(self, name: str) -> Self:
        """The matches are the events of a stream of this name: `STREAM name FROM PATTERN ...`."""
        return self._with(replace(self.node, name=name, declares=True))

    def to_text(self) -> str:
        """The query as text; it parses back to an equal query."""
        return render_query(self.node)

    def explain(self, *, time: str = "t") -> str:
        """What the query means and how it will run, stage by stage; `time` names the time column."""
        return self._explained(time).to_text()

    def _explained(self, time: str) -> Explained:
        from ensue.plan.description import explain_without_data

        statements = checked(Statements((self.node,)))
        return explain_without_data(statements.statements[0], statements.source, time)

    def _repr_html_(self) -> str:
        """The query and its graph, for a notebook; of one that means nothing yet only its text."""
        from ensue.plan.picture import as_html

        try:
            return as_html([self._explained("t")])
        except QueryError:
            return f"<pre>{escape(self.to_text())}</pre>"

    def _with(self, node: PatternQuery) -> Self:
        return replace(self, node=node)


def _conjunction(left: Expr | None, right: Expr) -> Expr:
    return right if left is None else Binary("and", left, right)
