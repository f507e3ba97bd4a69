"""`ensue.process.mine`: propose constraints that a log obeys, for the user to accept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ensue.api import warn_set_aside
from ensue.arguments import helpful
from ensue.engine.sources import load_sources
from ensue.engine.trace_counts import KINDS, count_traces, proposed_constraints
from ensue.errors import SchemaError, closest, did_you_mean
from ensue.expr.kinds import Kind
from ensue.expr.types import kind_of, readable_type
from ensue.kernels.warm_up import compile_missing
from ensue.nodes.constraints import Constraint, ConstraintStatement, Ends, Exclusive, Prior, Require
from ensue.plan.inputs import InputTable, catalog_of, input_tables, refuse_unusable
from ensue.plan.program_plans import ColumnNames
from ensue.runtimes.tables import are_frames, arrow_tables, described
from ensue.text.render import render_constraint, render_constraint_statement

MOST_SHOWN = 20
"""The maximum number of constraints in the `repr` of a proposal."""


@dataclass(frozen=True, slots=True)
class ProposedConstraint:
    """A constraint, the number of traces it is evaluated on (`support`), and how many of them obey it (`holds`)."""

    constraint: Constraint
    kind: str
    support: int
    holds: int
    share: float

    @property
    def streams(self) -> tuple[str, ...]:
        return self.constraint.streams


@dataclass(frozen=True, slots=True, repr=False)
class Proposal:
    """Constraints that all or most traces of a log obey; `partition_by` are the columns that identify a trace.

    `table` has a row for each constraint: its `kind`, its `streams`, its `support` (the number of traces it is
    evaluated on), in how many of these it `holds`, and the `share` of these. Iteration yields the rows with their
    `constraint`.

    A log shows what happened, not what must happen: a constraint is a guess until somebody who knows the process
    accepts it. Passed as `constraints=` to `ensue.detect` and similar functions, a proposal means its `constraints()`.
    """

    table: pa.Table
    partition_by: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[ProposedConstraint]:
        return _rows(self.table)

    def __repr__(self) -> str:
        number, keys = len(self), ", ".join(self.partition_by)
        lines = [f"Proposal of {number} {'constraint' if number == 1 else 'constraints'} over traces by {keys}"]
        shown = _rows(self.table.slice(0, MOST_SHOWN))
        lines += [f"  {render_constraint(row.constraint)}  -- {_evidence(row)}" for row in shown]
        if number > MOST_SHOWN:
            lines.append(f"  ... and {number - MOST_SHOWN} more")
        return "\n".join(lines)

    def constraints(
        self, *, min_share: float = 1.0, min_support: int = 1, kinds: str | Iterable[str] | None = None
    ) -> tuple[ConstraintStatement, ...]:
        """Return the selected constraints as statements about the traces from which they were mined.

        By default these are the constraints that hold in all traces. If a constraint fails in some
        traces, `ensue.detect` loses the matches of these traces, and several such constraints can contradict each
        other. A constraint with a small support may hold by chance: see `min_support`.

        >>> log = pa.table({"t": [1, 2, 3, 1, 2], "type": ["A", "B", "C", "A", "B"], "id": [1, 1, 1, 2, 2]})
        >>> proposal = mine(log, time="t", type="type", partition_by="id")
        >>> [statement.constraint for statement in proposal.constraints(min_support=2, kinds="prior")]
        [Prior(earlier='A', later='B')]
        """
        table, wanted = self.table, _checked_kinds(kinds)
        chosen = pc.and_(
            pc.greater_equal(table.column("share"), _checked_share(min_share, "min_share")),
            pc.greater_equal(table.column("support"), _checked_support(min_support, "min_support")),
        )
        chosen = pc.and_(chosen, pc.is_in(table.column("kind"), pa.array(wanted, pa.string())))
        return tuple(ConstraintStatement(row.constraint, self.partition_by) for row in _rows(table.filter(chosen)))

    def to_text(self) -> str:
        """Return the proposal as text to read, edit and save: one statement per line, with its number of traces.

        >>> log = pa.table({"t": [1, 2, 1, 2], "type": ["A", "B", "A", "C"], "id": [1, 1, 2, 2]})
        >>> print(mine(log, time="t", type="type", partition_by="id", kinds=("ends", "exclusive")).to_text(), end="")
        CONSTRAINT ENDS(B) PARTITION BY id; -- 1 trace
        CONSTRAINT ENDS(C) PARTITION BY id; -- 1 trace
        CONSTRAINT EXCLUSIVE(B, C) PARTITION BY id; -- 1 trace
        """
        statements = ((ConstraintStatement(row.constraint, self.partition_by), row) for row in self)
        return "".join(f"{render_constraint_statement(each)}; -- {_evidence(row)}\n" for each, row in statements)


@helpful
def mine(
    events: Any,
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    partition_by: str | Iterable[str],
    share: float = 1.0,
    support: int = 1,
    kinds: str | Iterable[str] | None = None,
) -> Proposal:
    """Propose constraints from a log: those that hold in at least a `share` of at least `support` traces.

    `events` is a pyarrow, pandas or polars table or a Spark DataFrame whose column `type` has the stream of each row,
    or a mapping with one such table per stream. A trace consists of the rows with the same values in the columns
    `partition_by`. Rows without a timestamp, a type or a key are ignored.

    A constraint is evaluated only on traces that could break it; all others obey it and do not count. `PRIOR(a, b)`
    needs traces with both, and holds if no `a` is later than a `b`. `EXCLUSIVE(a, b)` needs traces with the rarer of
    the two, and holds if the other does not occur. `REQUIRE(a, b)` needs traces with `a`, and holds if `b` occurs, too.
    `ENDS(a)` needs traces with `a`, and holds if nothing is later than the first `a`. A constraint that all these
    traces break is never proposed.
    `kinds` selects the kinds to propose ("prior", "exclusive", "require", "ends"); the default is all of them.

    >>> log = pa.table({"t": [1, 2, 3, 1, 2], "type": ["A", "B", "C", "A", "B"], "id": [1, 1, 1, 2, 2]})
    >>> mine(log, time="t", type="type", partition_by="id", support=2)
    Proposal of 3 constraints over traces by id
      PRIOR(A, B)  -- 2 traces
      REQUIRE(A, B)  -- 2 traces
      REQUIRE(B, A)  -- 2 traces
    """
    least_share, least_support = _checked_share(share, "share"), _checked_support(support, "support")
    wanted, keys = _checked_kinds(kinds), _checked_names(partition_by)
    source = described(events, time, type)
    events, columns = source.table, source.columns
    if are_frames(events):
        from ensue.runtimes.spark.frames import empty_tables
        from ensue.runtimes.spark.trace_counts import count_frames

        counts = count_frames(events, _log_tables(empty_tables(events), columns.time, columns.type, keys), keys)
    else:
        inputs = _log_tables(arrow_tables(events)[1], columns.time, columns.type, keys)
        time_type = catalog_of(inputs).time_type
        compile_missing()
        sources, report = load_sources(inputs, time_type)
        counts = count_traces(sources, keys, time_type, report)
        warn_set_aside({"": report})
    return Proposal(proposed_constraints(counts, least_share, least_support, wanted), keys)


def _rows(table: pa.Table) -> Iterator[ProposedConstraint]:
    for row in table.to_pylist():
        constraint = _constraint(row["kind"], tuple(row["streams"]))
        yield ProposedConstraint(constraint, row["kind"], row["support"], row["holds"], row["share"])


def _constraint(kind: str, streams: tuple[str, ...]) -> Constraint:
    match kind, streams:
        case "PRIOR", (earlier, later):
            return Prior(earlier, later)
        case "REQUIRE", (stream, required):
            return Require(stream, required)
        case "EXCLUSIVE", _:
            return Exclusive(streams)
        case _:
            return Ends(streams)


def _evidence(row: ProposedConstraint) -> str:
    """Format the number of traces for a constraint; the share is rounded down, because 99.99 % is not all."""
    traces = f"{row.support} {'trace' if row.support == 1 else 'traces'}"
    return traces if row.holds == row.support else f"{row.holds * 1000 // row.support / 10} % of {traces}"


def _log_tables(
    tables: Any, time: ColumnNames, type_column: str | None, keys: tuple[str, ...]
) -> tuple[InputTable, ...]:
    """Return the tables of a log after checking their columns."""
    if isinstance(tables, pa.Table) and type_column is None:
        raise SchemaError(
            "no-type-column",
            "`type` is required: the stream of each row is unknown",
            "pass `type=` with the column of stream names, or one table per stream",
        )
    inputs = input_tables(tables, (), time, type_column, None)
    for name in keys:
        _check_key(name, inputs)
    return inputs


def _check_key(name: str, inputs: tuple[InputTable, ...]) -> None:
    """Check that all tables have the column, with comparable types."""
    first: tuple[InputTable, Kind] | None = None
    for item in inputs:
        refuse_unusable(item.table.schema, name)
        names = item.table.column_names
        if name not in names:
            raise SchemaError(
                "no-such-column",
                f"the {item.label} has no column `{name}` for `partition_by`; columns: {', '.join(names)}",
                did_you_mean(name, names) or "pass `partition_by=` with the columns that identify a trace",
            )
        found = readable_type(item.table.schema.field(name).type)
        kind = Kind.FLOAT if kind_of(found) is Kind.INTEGER else kind_of(found)
        if kind is Kind.OTHER:
            raise SchemaError(
                "key-type",
                f"column `{name}` of the {item.label} has type {found}, whose values cannot be compared",
                "use a column of numbers, text or times",
            )
        if first is not None and kind not in (first[1], Kind.NULL):
            raise SchemaError(
                "key-type",
                f"column `{name}` is {first[1].word} in the {first[0].label} but {kind.word} in the {item.label}",
                "convert both to one type",
            )
        if kind is not Kind.NULL and first is None:
            first = (item, kind)


def _checked_names(partition_by: object) -> tuple[str, ...]:
    names = (partition_by,) if isinstance(partition_by, str) else partition_by
    names = tuple(names) if isinstance(names, Iterable) else (names,)
    if not names:
        raise SchemaError(
            "no-trace-key",
            "`partition_by` is empty",
            "pass the columns that identify a trace",
        )
    for name in names:
        if not isinstance(name, str):
            raise SchemaError("column-name", f"`partition_by` must be a column name, found {name!r}", "pass text")
    return tuple(dict.fromkeys(names))


def _checked_share(share: object, role: str) -> float:
    if isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= 1:
        return float(share)
    raise SchemaError(
        "share-range",
        f"`{role}` must be greater than 0 and at most 1, found {share!r}",
        "1.0 means all traces, 0.98 means 98 % of them",
    )


def _checked_support(support: object, role: str) -> int:
    if isinstance(support, int) and not isinstance(support, bool) and support >= 1:
        return support
    raise SchemaError(
        "support-range", f"`{role}` must be an integer of at least 1, found {support!r}", "pass a number of traces"
    )


def _checked_kinds(kinds: object) -> tuple[str, ...]:
    """Return the kinds of constraints; upper and lower case are equal."""
    if kinds is None:
        return KINDS
    given = tuple(kinds) if isinstance(kinds, Iterable) and not isinstance(kinds, str) else (kinds,)
    words = f"available: {', '.join(repr(word.lower()) for word in KINDS)}"
    if not given:
        raise SchemaError("constraint-kind", "`kinds` is empty", words)
    for kind in given:
        if not isinstance(kind, str) or kind.upper() not in KINDS:
            guess = closest(kind, KINDS) if isinstance(kind, str) else None
            raise SchemaError(
                "constraint-kind",
                f"unknown kind of constraint {kind!r}",
                f"did you mean {guess.lower()!r}?" if guess else words,
            )
    return tuple(dict.fromkeys(kind.upper() for kind in given))
