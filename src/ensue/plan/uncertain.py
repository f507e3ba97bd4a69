"""Tables whose events are uncertain: which columns say how probable they are and which exclude each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ensue.errors import SchemaError, did_you_mean
from ensue.expr.kinds import NUMBERS, Kind
from ensue.expr.types import kind_of, readable_type
from ensue.plan.inputs import InputTable


def uncertain_tables(items: Sequence[InputTable], probability: object, alternatives: object) -> tuple[InputTable, ...]:
    """The tables with the columns that say how probable their events are; a table without them is certain."""
    for role, name in (("probability", probability), ("alternatives", alternatives)):
        if name is not None and not isinstance(name, str):
            raise SchemaError("column-name", f"`{role}` is the name of a column, not {name!r}", "pass a text")
    if probability is None and alternatives is None:
        return tuple(items)
    if probability is None:
        raise SchemaError(
            "no-probability",
            f"`alternatives` names column `{alternatives}`, but no column says how probable each of them is",
            "pass `probability=` with the column of their probabilities",
        )
    for role, name in (("probability", probability), ("alternatives", alternatives)):
        if name is not None and not any(name in item.table.column_names for item in items):
            names = list(dict.fromkeys(column for item in items for column in item.table.column_names))
            raise SchemaError(
                "no-such-column",
                f"no table has a column `{name}` for `{role}`; columns: {', '.join(names)}",
                did_you_mean(str(name), names) or f"pass `{role}=` with one of them",
            )
    return tuple(
        _uncertain(item, str(probability), None if alternatives is None else str(alternatives)) for item in items
    )


def _uncertain(item: InputTable, probability: str, alternatives: str | None) -> InputTable:
    names = item.table.column_names
    if probability not in names:
        if alternatives in names:
            raise SchemaError(
                "no-probability",
                f"the {item.label} has alternatives, but no column `{probability}` that says how probable each is",
                "add it, or leave the column of alternatives out",
            )
        return item
    kind = readable_type(item.table.schema.field(probability).type)
    if kind_of(kind) not in NUMBERS and not (kind_of(kind) is Kind.NULL and item.table.num_rows == 0):
        raise SchemaError(
            "probability-type",
            f"column `{probability}` of the {item.label} holds {kind}, which is no probability",
            "probabilities are numbers between 0 and 1",
        )
    return replace(
        item,
        probability=probability,
        alternatives=(alternatives,) if alternatives is not None and alternatives in names else (),
    )
