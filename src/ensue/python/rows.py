"""Streams of rows in Python: `STREAM name FROM table WHERE ... RETURN ...`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

from ensue.nodes.expressions import Binary
from ensue.nodes.patterns import Return, Selection, Unnest, of_columns
from ensue.python.patterns import Columns
from ensue.python.values import ConditionLike, condition_node
from ensue.text.parser import parse_returns
from ensue.text.render import render_selection


@dataclass(frozen=True, repr=False)
class Rows:
    """Rows of a table as events, as a value. Each method returns a new one. `node` is the parsed form of its text."""

    node: Selection

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self.to_text()}")'

    def unnest(self, values: ConditionLike, element: str, index: str | None = None) -> Rows:
        """Make each element of a list an event: `UNNEST values AS element AT index`.

        `element` is the column with the element, and `index` the one with its position in the list, from 0 on.

        >>> print(rows("Item", "orders").unnest("items", "item", index="place").to_text())
        STREAM Item FROM orders
          UNNEST items AS item AT place
        """
        for name in (element, index or element):
            if not isinstance(name, str) or not name:
                raise TypeError(f"unnest takes the names of the element and of its position, not {name!r}")
        return replace(self, node=of_columns(replace(self.node, unnest=Unnest(condition_node(values), element, index))))

    def where(self, *conditions: ConditionLike) -> Rows:
        """Add conditions on the columns of a row: `WHERE condition AND ...`."""
        where = self.node.where
        for condition in conditions:
            own = condition_node(condition)
            where = own if where is None else Binary("and", where, own)
        return replace(self, node=of_columns(replace(self.node, where=where)))

    def returning(self, *columns: Columns, **named: ConditionLike) -> Rows:
        """Add columns to the events: texts such as `"lower(user) AS user"`, values, or `name=value`.

        Lists and tuples of columns are accepted too. Without columns, the events have all columns of the table.
        """
        returns = list(self.node.returns)
        listed = (group if isinstance(group, list | tuple) else [group] for group in columns)
        for column in chain.from_iterable(listed):
            returns += parse_returns(column) if isinstance(column, str) else [Return(condition_node(column))]
        returns += [Return(condition_node(column), alias) for alias, column in named.items()]
        return replace(self, node=of_columns(replace(self.node, returns=tuple(returns))))

    def to_text(self) -> str:
        """The statement as text, which parses to an equal statement."""
        return render_selection(self.node)


def rows(stream: str, table: str = "events") -> Rows:
    """The rows of a table as the events of a stream: `STREAM stream FROM table`.

    With one table of events, `table` can be any name. With a mapping of tables, it is the name of one of them. The
    result is a statement of a program, like a query.

    >>> failed = rows("Failed").where("message LIKE 'Failed password%'").returning("lower(host) AS host")
    >>> print(failed.to_text())
    STREAM Failed FROM events
      WHERE message LIKE 'Failed password%'
      RETURN lower(host) AS host
    """
    for name in (stream, table):
        if not isinstance(name, str) or not name:
            raise TypeError(f"rows takes the name of a stream and the name of its table, not {name!r}")
    return Rows(Selection(stream, table))
