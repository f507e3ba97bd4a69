"""Declared streams as plans: the statements whose matches are their events, and the columns that are used of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ensue.analysis.declarations import END, START, components
from ensue.nodes.names import Stream
from ensue.nodes.patterns import Event, walk
from ensue.nodes.rules import Ruleset
from ensue.plan.inputs import InputTable
from ensue.plan.outputs import OutputSchema
from ensue.plan.plans import QueryPlan


@dataclass(frozen=True, slots=True)
class Way:
    """A statement whose matches are events of a stream.

    `plan` gives the columns that are used of them, `whole` all that the statement names. `table` is what it looks up.
    """

    plan: QueryPlan
    whole: QueryPlan
    output: OutputSchema
    table: pa.Table | None = None

    def items_of(self, streams: Iterable[Stream]) -> int:
        """How many items of the pattern are events of these streams."""
        known = set(streams)
        return sum(isinstance(node, Event) and node.stream in known for node in walk(self.plan.query.pattern))


@dataclass(frozen=True, slots=True)
class Derivation:
    """A stream whose events are the matches of one statement, or of the rules with this head: then they are a set.

    `schema` has all columns by which events of a set are told apart, `used` are those that somebody reads. `program` is
    what its rules are written in the light of: declared streams and tables.
    """

    name: Stream
    ways: tuple[Way, ...]
    schema: pa.Schema
    used: tuple[Stream, ...]
    is_set: bool = False
    program: Ruleset | None = None

    @property
    def plans(self) -> tuple[QueryPlan, ...]:
        return tuple(way.plan for way in self.ways)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams that it is made of."""
        return tuple(dict.fromkeys(stream for plan in self.plans for stream in plan.streams))

    @property
    def item(self) -> InputTable:
        """The table of the stream, without rows."""
        return InputTable(self.schema.empty_table().select(self.used), START, END, stream=self.name, derived=True)


def all_plans(derivations: Iterable[Derivation], plans: Iterable[QueryPlan] = ()) -> list[QueryPlan]:
    """The plans of declared streams, then those of results."""
    return [*(plan for derivation in derivations for plan in derivation.plans), *plans]


def groups_of(derivations: Sequence[Derivation]) -> tuple[tuple[Derivation, ...], ...]:
    """Declared streams, each after those that it uses; those that use each other stand together."""
    if not derivations:
        return ()
    known = {derivation.name: derivation for derivation in derivations}
    uses = {name: [used for used in made.streams if used in known] for name, made in known.items()}
    return tuple(tuple(known[name] for name in group) for group in components(uses))


def is_recursive(group: Sequence[Derivation]) -> bool:
    names = {derivation.name for derivation in group}
    return any(not names.isdisjoint(derivation.streams) for derivation in group)
