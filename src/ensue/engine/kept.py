"""The events that queries in progress keep, as tables of which other questions can be asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ensue.analysis.declarations import END, START
from ensue.engine.distinct import row_codes
from ensue.engine.machine import Machine, State
from ensue.engine.sources import one_chunk
from ensue.engine.stage import Role
from ensue.nodes.names import Stream
from ensue.plan.outputs import event_fields

OWN = "ensue:"
"""How the names of the engine's own columns begin."""


def kept_events(machine: Machine, state: State) -> list[pa.Table]:
    """The kept rows of each table that is given, those beyond the watermark included, with the columns that are kept.

    A row that several levels of statements keep comes once. They may keep different columns of it: it is known again by
    those that all of them keep, and given with those of the level that keeps the most such rows.
    """
    return [
        _once([_shown(table, item.table.column_names) for table in _kept(machine, state, place)])
        for place, item in enumerate(machine.inputs)
    ]


def kept_derived(machine: Machine, state: State) -> dict[Stream, pa.Table]:
    """The kept events of each declared stream; the columns `start` and `end`, which come first, are their times."""
    found: dict[Stream, pa.Table] = {}
    for made in machine.plan.derivations:
        schema = made.item.table.schema
        names = [START, END, *(name for name in schema.names if not name.startswith(OWN))]
        table = _once([_shown(table, names) for table in (made.item.table, *_kept(machine, state, made.name))])
        shown = event_fields({name: schema.field(name).type for name in names})
        found[made.name] = table.rename_columns([field.name for field in shown])
    return found


def _kept(machine: Machine, state: State, role: Role) -> Iterator[pa.Table]:
    """What each level keeps of a table or a declared stream."""
    for look in machine.looks(state):
        yield from (kept.whole for own, kept in zip(look.stage.takes, look.state.kept, strict=True) if own == role)


def _shown(table: pa.Table, names: Sequence[str]) -> pa.Table:
    return table.select([name for name in names if name in table.column_names])


def _once(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of several tables, each row as often as the table has it that has it most often; all their columns."""
    schema = pa.unify_schemas([part.schema for part in parts])
    filled = [part for part in parts if part.num_rows]
    chosen = _most_of_each(filled) if len(filled) > 1 else filled
    return pa.concat_tables([schema.empty_table(), *chosen], promote_options="default").combine_chunks()


def _most_of_each(parts: Sequence[pa.Table]) -> list[pa.Table]:
    """Of each table the rows of which no other has more, and none before it as many."""
    common = [name for name in parts[0].column_names if all(name in part.column_names for part in parts)]
    together = pa.concat_tables([part.select(common) for part in parts])
    codes, count = row_codes([one_chunk(together.column(name)) for name in common])
    own = np.split(codes, np.cumsum([part.num_rows for part in parts])[:-1])
    holder = np.argmax([np.bincount(rows, minlength=count) for rows in own], axis=0)
    by_part = enumerate(zip(parts, own, strict=True))
    return [part.filter(pa.array(holder[rows] == place)) for place, (part, rows) in by_part]
