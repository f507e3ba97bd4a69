"""`ensue.justify`: the tree that proves a match, with events, conditions, bounds, absences and derivations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.api import LoadedProgram
from ensue.arguments import helpful
from ensue.constraints import ConstraintsLike
from ensue.engine.goals import Search
from ensue.engine.machine import examine
from ensue.engine.output import render_chunk
from ensue.engine.rows import MatchChunk
from ensue.engine.sources import EventSource, Mask
from ensue.engine.trace_rows import KEY
from ensue.engine.workspace import Workspace
from ensue.errors import Problem, QueryError, SchemaError, citing, counted
from ensue.explanation.near_misses import key_in_words, length_in_words, moment_in_words, value_in_words
from ensue.explanation.nearest import OWN, Examples
from ensue.explanation.question import MOST_ROWS, chosen_result, load_for, question_events, tables_of
from ensue.explanation.scopes import Edge, scope_edges, scope_in_words
from ensue.nodes.names import Name, Stream, in_words
from ensue.nodes.patterns import Events
from ensue.plan.derivations import Derivation, Way
from ensue.plan.planner import with_lists
from ensue.plan.plans import AbsencePlan, QueryPlan
from ensue.plan.program_plans import ColumnNames, OrderColumns
from ensue.plan.requirements import (
    ABSENCE,
    COLLECTION,
    ORDER,
    WINDOW,
    Question,
    Requirement,
    column_in_words,
    question_of,
)
from ensue.programs import QueryLike
from ensue.text.render import render_query
from ensue.text.render_parts import render_rule

Path = tuple[tuple[Stream, int], ...]
"""The derived events above a part of a proof: their streams and rows."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A part of a proof: its `kind`, its text, its values, and the parts that it is based on.

    Kinds are `match`, `event`, `predicate`, `key`, `order`, `relation`, `window`, `condition`, `absence`, `collection`
    and `cut`, which marks omitted parts.
    """

    kind: str
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    because: tuple[Proof, ...] = ()

    def to_text(self) -> str:
        """Return the tree as text; the parts that a line is based on are indented below it."""
        return "\n".join(self._lines(""))

    def _lines(self, indent: str) -> Iterator[str]:
        yield indent + self.text
        for part in self.because:
            yield from part._lines(indent + "  ")

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as dictionaries."""
        return {
            "kind": self.kind,
            "text": self.text,
            "values": dict(self.values),
            "because": [part.to_dict() for part in self.because],
        }

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.to_text())}</pre>"


@dataclass
class Prover:
    """Proves matches of plans over loaded events. Shows at most `most` derivations of one derived event.

    `bound` are the events that proofs are based on, as tables and rows, in the order in which the proofs name them.
    """

    loaded: LoadedProgram
    most: int
    found: dict[int, list[tuple[MatchChunk, pa.Table]]] = field(default_factory=dict)
    bound: list[tuple[EventSource, int]] = field(default_factory=list)
    described: dict[tuple[int, str, int], tuple[EventSource, Proof]] = field(default_factory=dict)
    """Events by source, name and row: lists of many matches name the same events. Keeping the source keeps its id."""

    def result(self, plan: QueryPlan, one: MatchChunk, is_head: bool) -> Proof:
        """Prove the single match of a chunk; for a head, prove the event, because the result query proves nothing."""
        if not is_head:
            return self.match(plan, one)
        (name,) = one.plan.graph.names
        return self._event(one, name, question_of(plan.query, plan.source), (), by_stream=True)

    def match(self, plan: QueryPlan, one: MatchChunk, path: Path = ()) -> Proof:
        """Prove the single match of a chunk."""
        question = question_of(plan.query, plan.source)
        begins, ends = int(one.starts[0]), int(one.ends[0])
        words = self._interval(begins, ends)
        name = in_words(plan.query.name or "match")
        parts = [self._event(one, name_, question, path) for name_ in one.plan.graph.names]
        parts += self._requirements(plan, question, one)
        parts += [self._absence(absence, question, one) for absence in one.plan.absences]
        parts += self._lists(question, one, path)
        rule = plan.query.rule
        text_of_rule = None if rule is None or not rule.body else render_rule(rule)
        statement = " ".join((text_of_rule or render_query(plan.query)).split())
        text = f"{name} {words}" + ("" if rule is None else f", by {statement}")
        return Proof("match", text, {"statement": statement}, tuple(parts))

    # --- events

    def _event(self, one: MatchChunk, name: Name, question: Question, path: Path, *, by_stream: bool = False) -> Proof:
        found, place = one.space.candidates[name], int(one.rows.places[name][0])
        return self._bound_event(one.space, name, int(found.rows[place]), question, path, by_stream=by_stream)

    def _bound_event(
        self, space: Workspace, name: Name, row: int, question: Question, path: Path, *, by_stream: bool = False
    ) -> Proof:
        """Describe an event by its name and stream, or by the stream alone."""
        source, stream = space.candidates[name].source, space.streams[name]
        self.bound.append((source.origin, row))
        word = in_words(stream) if by_stream else question.word(name)
        called = word if word == in_words(stream) else f"{word}: {in_words(stream)}"
        if (id(source), called, row) in self.described:
            return self.described[id(source), called, row][1]
        values = {key: value for key, value in _row(source, row).items() if not key.startswith(OWN)}
        shown = ", ".join(
            f"{column_in_words(key, stream, self.loaded.planned.lookups)} = {value_in_words(value)}"
            for key, value in values.items()
            if key not in _columns_of_time(source)
        )
        text = f"{called} {self._interval(int(source.starts[row]), int(source.ends[row]))}"
        proofs = self._derived(source, stream, row, path) if source.input.derived else ()
        proof = Proof("event", text + (f" ({shown})" if shown else ""), values, proofs)
        if not source.input.derived:
            # The derivations of a derived event depend on the path, and add to `bound`.
            self.described[id(source), called, row] = source, proof
        return proof

    def _derived(self, source: EventSource, stream: Stream, row: int, path: Path) -> tuple[Proof, ...]:
        """Return the derivations of an event of a declared stream; none that uses the event itself."""
        here = (stream, row)
        derivation = next(made for made in self.loaded.planned.derivations if made.name == stream)
        wanted = _row(source, row)
        proofs: list[Proof] = []
        for way in derivation.ways:
            for one in self._ways(derivation, way, wanted):
                if not _rests_on(one, (*path, here)):
                    if len(proofs) == self.most:
                        return (*proofs, Proof("cut", "and other derivations"))
                    proofs.append(self.match(way.plan, one, (*path, here)))
        return tuple(proofs)

    def _ways(self, derivation: Derivation, way: Way, wanted: Mapping[str, Any]) -> Iterator[MatchChunk]:
        """Yield the matches of a statement that produced this event; a row of a lookup table may be part of them."""
        for chunk, table in self._matches(derivation, way):
            columns = [name for name in table.column_names if name in wanted]
            fits = np.ones(table.num_rows, bool)
            for name in columns:
                fits &= equal_to(table.column(name), wanted[name])
            for place in np.flatnonzero(fits):
                yield replace(chunk, rows=chunk.rows.take(np.array([place], np.int32)))

    def _matches(self, derivation: Derivation, way: Way) -> list[tuple[MatchChunk, pa.Table]]:
        if id(way) not in self.found:
            plan = with_lists(way.plan)
            _, chunks = examine(plan, self.loaded.sources)
            self.found[id(way)] = [
                (chunk, _cast(pa.Table.from_batches([render_chunk(chunk, way.output)]), derivation.schema))
                for chunk in chunks
            ]
        return self.found[id(way)]

    # --- requirements

    def _requirements(self, plan: QueryPlan, question: Question, one: MatchChunk) -> Iterator[Proof]:
        search = Search(question, plan, self.loaded.sources, 1)
        values = Examples(search, tables_of(self.loaded), self.loaded.planned.lookups, 0)
        for requirement in question.requirements:
            if requirement.kind not in (ABSENCE, COLLECTION) and not requirement.repeated:
                proof = self._requirement(search, values, requirement, one)
                if proof is not None:
                    yield proof

    def _requirement(self, search: Search, values: Examples, requirement: Requirement, one: MatchChunk) -> Proof | None:
        """State that a requirement holds, with its values; None if the match used another branch."""
        bound = one.rows.places.keys()
        if requirement.kind == KEY:
            key = values.key_of(one)
            return Proof(KEY, key_in_words(key), key)
        named = {*requirement.left, *requirement.right}
        if named and not named & bound:
            return None
        if requirement.kind in (ORDER, WINDOW):
            return self._timed(search, requirement, one)
        sides = values.sides(requirement, one)
        if sides is None:
            return Proof(requirement.kind, requirement.text)
        left, right = (side[0].as_py() for side in sides)
        said = {"left": left, "right": right}
        return Proof(requirement.kind, f"{requirement.text}: {left!r} and {right!r}", said)

    def _timed(self, search: Search, requirement: Requirement, one: MatchChunk) -> Proof | None:
        distances = search.distances(requirement, one)
        if distances is None:
            return None
        apart, time_type = int(distances[0]), self._time_type
        if requirement.kind == ORDER:
            return Proof(ORDER, f"{requirement.text}, by {length_in_words(-apart, time_type)}", {"ticks": -apart})
        window = requirement.window
        assert window is not None
        if isinstance(window, Events):
            taken = apart + window.count
            return Proof(WINDOW, f"{requirement.text}: {taken} events", {"events": taken})
        taken = apart + search.ticks(window)
        return Proof(WINDOW, f"{requirement.text}: {length_in_words(taken, time_type)}", {"ticks": taken})

    def _absence(self, absence: AbsencePlan, question: Question, one: MatchChunk) -> Proof:
        """State that no forbidden event is in a scope, and the bounds of the scope."""
        lows, highs = scope_edges(absence.graph, one)
        values = {"from": _value(lows, min), "to": _value(highs, max)}
        words = scope_in_words(lows, highs, self._time_type)
        return Proof(ABSENCE, f"no {absence.absence.text} {words}".rstrip(), values)

    # --- lists and text

    def _lists(self, question: Question, one: MatchChunk, path: Path) -> Iterator[Proof]:
        for plan in one.plan.collections:
            lists = one.rows.lists.get(plan.collection.name)
            if lists is None:
                continue
            sizes = np.cumsum([0, *(part.rows.length for part in lists.parts)])
            events = []
            for number in lists.order[lists.offsets[0] : lists.offsets[1]]:
                place = int(np.searchsorted(sizes, number, side="right")) - 1
                part, row = lists.parts[place], int(number - sizes[place])
                for name in part.space.plan.graph.names:
                    found = part.space.candidates[name]
                    events.append(
                        self._bound_event(
                            part.space, name, int(found.rows[part.rows.places[name][row]]), question, path
                        )
                    )
            count = int(lists.lengths[0])
            yield Proof(COLLECTION, f"{plan.collection.text}: {count} listed", {"count": count}, tuple(events))

    @property
    def _time_type(self) -> pa.DataType:
        return self.loaded.planned.plans[0].catalog.time_type

    def _interval(self, start: int, end: int) -> str:
        begins = moment_in_words(start, self._time_type)
        return f"at {begins}" if start == end else f"from {begins} to {moment_in_words(end, self._time_type)}"


def _columns_of_time(source: EventSource) -> set[str | None]:
    """The columns with the times and the stream of an event."""
    return {source.input.time, source.input.end, source.input.type}


def _row(source: EventSource, row: int) -> dict[str, Any]:
    values = source.taken(source.names, np.array([row], np.int32))
    return {name: value[0].as_py() for name, value in zip(source.names, values, strict=True)}


def _rests_on(one: MatchChunk, events: Sequence[tuple[Stream, int]]) -> bool:
    """Return True if a match binds one of the events."""
    bound = {
        (one.space.streams[name], int(one.space.candidates[name].rows[one.rows.places[name][0]]))
        for name in one.plan.graph.names
    }
    return bool(bound & {*events})


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Keep the columns that are in the schema, in its types."""
    names = [name for name in table.column_names if name in schema.names]
    return table.select(names).cast(pa.schema([schema.field(name) for name in names]), safe=False)


def equal_to(column: pa.ChunkedArray, value: Any) -> Mask:
    """Return where a column equals a value; null equals null."""
    if value is None:
        return np.asarray(column.is_null())
    if pa.types.is_nested(column.type):
        return np.array([found == value for found in column.to_pylist()], bool)
    try:
        equal = pc.equal(column, pa.scalar(value, column.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return np.zeros(len(column), bool)
    return np.asarray(equal.fill_null(False))


def _value(edges: Sequence[Edge], outermost: Any) -> int | None:
    known = [edge[0] for edge in edges if edge is not None]
    return outermost(known) if len(known) == len(edges) and known else None


# --- `ensue.justify`

MATCH_ID = "match_id"


@helpful
def justify(
    events: Any,
    query: QueryLike,
    match: str | Mapping[str, Any],
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    name: str | None = None,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    ways: int = 3,
    where: Any = None,
) -> Proof:
    """Return the proof of a match: its events, the conditions that hold, the absences, and proofs of derived events.

    `match` is the `match_id` of a match, a row of the result, or some columns that identify the row; if several rows
    match, the first is proved. `name` selects a pattern or head of a program. At most `ways` derivations of one derived
    event are shown. The other arguments are those of `ensue.why_not`.

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
    asked = question_events(events, time, type, end, order, where, tables)
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
    """Return the columns that identify the match."""
    if isinstance(match, str):
        return {MATCH_ID: match}
    if not isinstance(match, Mapping) or not match:
        raise SchemaError(
            "match-type",
            f"`match` must be a `match_id` or a row of the result as a dictionary, found {match!r}",
            "pass one of `result.to_pylist()`",
        )
    return {MATCH_ID: match[MATCH_ID]} if MATCH_ID in match else dict(match)


def _one(chunk: MatchChunk, place: int) -> MatchChunk:
    return replace(chunk, rows=chunk.rows.take(np.array([place], np.int32)))


def _place_of(wanted: Mapping[str, Any], shown: pa.Table) -> int | None:
    """Return the first row with these values."""
    fits = np.ones(shown.num_rows, bool)
    for name, value in wanted.items():
        fits &= equal_to(shown.column(name), value)
    places = np.flatnonzero(fits)
    return int(places[0]) if len(places) else None


def _not_found(name: str, wanted: Mapping[str, Any], seen: list[pa.Table]) -> Problem:
    """Report that no match has these values, and name the nearest one."""
    count = sum(table.num_rows for table in seen)
    said = key_in_words(wanted)
    hint = f"`{name}` has {counted(count, 'match', 'matches')}"
    if count:
        table = pa.concat_tables(seen)
        agreeing = sum(equal_to(table.column(column), value).astype(int) for column, value in wanted.items())
        nearest = table.slice(int(np.argmax(agreeing)), 1).select(list(wanted)).to_pylist()[0]
        hint += "; the nearest one has " + key_in_words(nearest)
    else:
        hint += "; `ensue.why_not` shows why"
    return Problem("no-such-match", f"no match of `{name}` has {said}", hint=hint)
