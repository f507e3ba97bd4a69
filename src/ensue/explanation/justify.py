"""`ensue.justify`: the tree of rules, events and absences that proves a match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.constraints import ConstraintsLike
from ensue.engine.output import render_chunk
from ensue.engine.rows import MatchChunk
from ensue.errors import Problem, QueryError, SchemaError, citing, counted
from ensue.explanation.proofs import Proof, Prover, equal_to
from ensue.explanation.question import MOST_ROWS, Asked, chosen_result, load_for
from ensue.plan.program_plans import ColumnNames, Columns
from ensue.programs import Program, QueryLike

MATCH_ID = "match_id"


def justify(
    events: Any,
    query: Program | QueryLike,
    match: str | Mapping[str, Any],
    *,
    time: ColumnNames,
    type: str | None = None,
    end: ColumnNames | None = None,
    name: str | None = None,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    ways: int = 3,
    where: Any = None,
) -> Proof:
    """What proves a match: its events, what holds between them, what is absent, and below derived events their proofs.

    `match` is a match's `match_id`, a row of the result, or some of its columns that tell it apart; of several that
    fit, the first is proved. `name` chooses a pattern or a head of a program. At most `ways` ways to one derived event
    are shown. The other arguments are those of `ensue.why_not`.

    >>> table = pa.table({"t": [1, 5], "type": ["Order", "Paid"], "id": [7, 7]})
    >>> query = "PATTERN paid SEQ(Order o, NOT Cancel c, Paid p) PARTITION BY id WITHIN 10 RETURN o.id AS id"
    >>> print(justify(table, query, {"id": 7}, time="t", type="type").to_text())
    paid from 1 to 5
      o: Order at 1 (id = 7)
      p: Paid at 5 (id = 7)
      id = 7
      SEQ: o before p, by 4
      WITHIN 10: 4
      no Cancel c after 1 before 5
    """
    wanted = _wanted(match)
    chosen = chosen_result(query, name, constraints)
    asked = Asked(events, Columns(time, type, end), where, tables)
    loaded, chunks = load_for(chosen, chosen.query, asked, MOST_ROWS, match_id=True)
    plan, output = loaded.planned.plans[0], loaded.planned.outputs[0]
    unknown = [column for column in wanted if column not in output.schema.names]
    if unknown:
        raise SchemaError(
            "unknown-column",
            f"the result of `{chosen.name}` has no column `{unknown[0]}`",
            f"columns: {', '.join(output.schema.names)}",
        )
    seen: list[pa.Table] = []
    with citing(plan.source):
        for chunk in chunks:
            shown = pa.Table.from_batches([render_chunk(chunk, output)])
            place = _place_of(wanted, shown)
            if place is not None:
                return Prover(loaded, ways).result(plan, _one(chunk, place), chosen.is_head)
            seen.append(shown)
    raise QueryError([_not_found(chosen.name, wanted, seen)], plan.source)


def _wanted(match: object) -> dict[str, Any]:
    """The columns by which the match is known."""
    if isinstance(match, str):
        return {MATCH_ID: match}
    if not isinstance(match, Mapping) or not match:
        raise SchemaError(
            "match-type",
            f"a match is a `match_id`, or a row of the result as a dictionary, not {match!r}",
            "take one of `result.to_pylist()`",
        )
    return {MATCH_ID: match[MATCH_ID]} if MATCH_ID in match else dict(match)


def _one(chunk: MatchChunk, place: int) -> MatchChunk:
    return replace(chunk, rows=chunk.rows.take(np.array([place], np.int32)))


def _place_of(wanted: Mapping[str, Any], shown: pa.Table) -> int | None:
    """The first row with these values."""
    fits = np.ones(shown.num_rows, bool)
    for name, value in wanted.items():
        fits &= equal_to(shown.column(name), value)
    places = np.flatnonzero(fits)
    return int(places[0]) if len(places) else None


def _not_found(name: str, wanted: Mapping[str, Any], seen: list[pa.Table]) -> Problem:
    """That there is no such match, and which one comes nearest."""
    count = sum(table.num_rows for table in seen)
    said = ", ".join(f"{column} = {value!r}" for column, value in wanted.items())
    hint = f"`{name}` has {counted(count, 'match', 'matches')}"
    if count:
        table = pa.concat_tables(seen)
        agreeing = sum(equal_to(table.column(column), value).astype(int) for column, value in wanted.items())
        nearest = table.slice(int(np.argmax(agreeing)), 1).select(list(wanted)).to_pylist()[0]
        hint += "; the nearest has " + ", ".join(f"{column} = {value!r}" for column, value in nearest.items())
    else:
        hint += "; `ensue.why_not` says why"
    return Problem("no-such-match", f"no match of `{name}` has {said}", hint=hint)
