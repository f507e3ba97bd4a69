"""Run queries over DataFrames in batch or streaming mode; queries with the same keys share one scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from ensue.engine.retention import Bounds
from ensue.engine.sources import Report, Tie
from ensue.engine.ties import possible_ties
from ensue.errors import SchemaError
from ensue.lower.phases import LoweredProgram
from ensue.plan import program_plans
from ensue.plan.derivations import all_plans
from ensue.plan.plans import Options
from ensue.plan.retention import slicing_of
from ensue.plan.states import refuse_ahead, refuse_questions
from ensue.runtimes.moments import Period
from ensue.runtimes.spark.batch import (
    all_patterns,
    carrier_of,
    match_frames,
    of_patterns,
    one_pattern,
    result_schema,
    shuffled,
    travelling,
)
from ensue.runtimes.spark.belief_tasks import answered, is_stream
from ensue.runtimes.spark.frames import FrameInput, carried, empty_tables, frame_inputs, spark_schema
from ensue.runtimes.spark.java import require_pyspark
from ensue.runtimes.spark.joined_rows import joined_rows
from ensue.runtimes.spark.selected_keys import are_computed
from ensue.runtimes.spark.session import advise
from ensue.runtimes.spark.stream import matches_in, plan_stream
from ensue.runtimes.spark.worker import Carrier, Layout, spare_imports
from ensue.runtimes.tables import fixed_tables, together_schema


@dataclass(frozen=True, slots=True)
class SharedMatches:
    """Matches of several queries in one cached DataFrame, by the positions of the queries."""

    frame: DataFrame
    carrier: Carrier
    places: tuple[int, ...]


class Frames(Sequence[DataFrame]):
    """The DataFrames of queries, each created on first use, because Spark takes milliseconds to analyze each."""

    def __init__(
        self, made: Mapping[int, DataFrame], shared: Sequence[SharedMatches], schemas: Sequence[pa.Schema]
    ) -> None:
        self._made, self._schemas = dict(made), schemas
        self._shared = {place: (group, number) for group in shared for number, place in enumerate(group.places)}

    def __len__(self) -> int:
        return len(self._schemas)

    def __getitem__(self, place: Any) -> Any:
        if place not in self._made:
            group, number = self._shared[place]
            self._made[place] = of_patterns(group.frame, group.carrier, [number], self._schemas[place].names)
        return self._made[place]


@dataclass(frozen=True, slots=True)
class MatchFrames:
    """The matches of each query, their columns, and the DataFrames that queries share."""

    frames: Sequence[DataFrame]
    schemas: tuple[pa.Schema, ...]
    shared: tuple[SharedMatches, ...] = ()
    counted: Mapping[tuple[int, ...], Callable[[], DataFrame]] = field(default_factory=dict)
    """For the places of queries that run together, a function that returns the DataFrame of their counts."""
    tying: frozenset[tuple[int, ...]] = frozenset()
    """Those of `counted` whose queries may have ties."""

    def reports(self, only_tying: bool = False) -> dict[int, Report]:
        """Count the matches and ties of each query, in a Spark job for each set of keys; nothing on a stream.

        With `only_tying`, there is no job for queries whose results cannot depend on the order of equal times.
        """
        counted = {places: counts for places, counts in self.counted.items() if not only_tying or places in self.tying}
        reports = {place: Report() for places in counted for place in places}
        for places, counts in counted.items():
            for query, *tie, number in counts().collect():
                report = reports[places[query]]
                if tie[0] is None:
                    report.matches += number
                else:
                    report.ties[Tie(*tie)] += number
        return reports

    def together(self, names: Sequence[str]) -> DataFrame:
        """Return the matches of all queries in one DataFrame."""
        whole = together_schema(names, self.schemas)
        parts, rest = [], dict.fromkeys(range(len(names)))
        for group in self.shared:
            own = {number: names[place] for number, place in enumerate(group.places)}
            schemas = [self.schemas[place] for place in group.places]
            parts.append(all_patterns(group.frame, group.carrier, own, schemas, whole))
            for place in group.places:
                del rest[place]
        parts += [one_pattern(self.frames[place], names[place], whole) for place in rest]
        return reduce(DataFrame.union, parts)


def detect_frames(
    events: Mapping[str, DataFrame] | DataFrame,
    statements: LoweredProgram,
    columns: program_plans.Columns,
    options: Options,
    emission: program_plans.Emission,
    fixed: program_plans.FixedTables,
    period: Period,
) -> MatchFrames:
    """Return the matches of each query as a lazy DataFrame."""
    require_pyspark()
    if is_stream(events):
        refuse_ahead(statements, columns.end, emission.eager)
    events, statements = answered(events, statements, columns)
    planned = program_plans.plan_queries(empty_tables(events), statements, columns, emission.match_id, fixed)
    program_plans.warn_of_unusable(planned)
    inputs = frame_inputs(events, planned.inputs)
    streaming = inputs[0].frame.isStreaming
    if streaming and period.is_limited:
        raise SchemaError(
            "range-stream",
            "`since` and `until` are not supported on a streaming DataFrame",
            "read the history with `spark.read`; a stream returns the matches that complete after it starts",
        )
    options = period.within(options, planned.plans[0].catalog.time_type)
    advise(inputs[0].frame.sparkSession, streaming=streaming)
    if streaming:
        return match_stream(inputs, planned, options, emission)
    return match_batch(inputs, planned, options)


def frame_violations(
    events: Mapping[str, DataFrame] | DataFrame,
    statements: LoweredProgram,
    columns: program_plans.Columns,
    emission: program_plans.Emission,
) -> DataFrame:
    """Return the traces that violate a constraint as a lazy DataFrame."""
    require_pyspark()
    planned = program_plans.plan_violations(empty_tables(events), statements, columns)
    inputs = frame_inputs(events, planned.inputs)
    streaming = inputs[0].frame.isStreaming
    advise(inputs[0].frame.sparkSession, streaming=streaming)
    if streaming:
        return match_stream(inputs, planned, Options(), emission).frames[0]
    return match_batch(inputs, planned, Options()).frames[0]


def match_stream(
    inputs: Sequence[FrameInput], planned: program_plans.ProgramPlan, options: Options, emission: program_plans.Emission
) -> MatchFrames:
    """Run each query as its own stream; `ensue.start` runs several queries on one stream."""
    frames = []
    for place, (plan, output) in enumerate(zip(planned.plans, planned.outputs, strict=True)):
        group = program_plans.of_result(planned, place)
        stream = plan_stream(
            inputs,
            [plan],
            [output],
            options,
            group.keys,
            group.derivations,
            group.states,
            eager=emission.eager,
            tick=emission.tick,
            buckets=emission.buckets,
        )
        frames.append(matches_in(stream.counted(stream.found()), stream.task))
    return MatchFrames(tuple(frames), tuple(map(result_schema, planned.outputs)))


def match_batch(inputs: Sequence[FrameInput], planned: program_plans.ProgramPlan, options: Options) -> MatchFrames:
    """Run queries with the same keys on one scan and one shuffle; Spark caches the matches until they are released.

    Queries connected by declared streams share them, too.
    """
    together: dict[tuple[tuple[str, ...], bool, bool], list[int]] = {}
    groups: list[program_plans.Group] = []
    for group in program_plans.components(planned):
        if group.derivations:
            groups.append(group)
        else:
            plan = planned.plans[group.places[0]]
            cut = slicing_of([plan]) is not None
            joined = not group.keys and joined_rows(inputs, [plan]) is not None
            together.setdefault((group.keys, cut, joined), []).extend(group.places)
    groups += [program_plans.Group(keys, tuple(places)) for (keys, _, _), places in together.items()]
    frames: dict[int, DataFrame] = {}
    shared: list[SharedMatches] = []
    counted: dict[tuple[int, ...], Callable[[], DataFrame]] = {}
    tying = set()
    for group in groups:
        places = group.places
        plans = [planned.plans[place] for place in places]
        outputs = [planned.outputs[place] for place in places]
        arguments = (inputs, plans, outputs, options, group.keys, group.derivations)
        counted[places] = partial(match_frames, *arguments, counting=True)
        if any(map(possible_ties, all_plans(group.derivations, plans))):
            tying.add(places)
        matches = match_frames(*arguments)
        if len(places) == 1:
            frames[places[0]] = matches
            continue
        shared.append(SharedMatches(matches.persist(), carrier_of(outputs), places))
    schemas = tuple(map(result_schema, planned.outputs))
    return MatchFrames(Frames(frames, shared, schemas), schemas, tuple(shared), counted, frozenset(tying))


# --- any_match on DataFrames: Spark groups the events by key, Python workers compute the probabilities

InProcess = Callable[[Any], pa.Table]
"""The function that computes the probabilities for the tables of some keys."""


def any_match_of_frames(
    events: Mapping[str, DataFrame] | DataFrame,
    statements: LoweredProgram,
    columns: program_plans.Columns,
    in_process: InProcess,
) -> DataFrame:
    """Return one row for each key as a lazy DataFrame."""
    require_pyspark()
    refuse_questions(
        statements,
        "needs all events of the state, but `any_match` on a DataFrame processes each key separately",
        "add the answer as a column with `ensue.beliefs.track` first, and use that column in the pattern",
    )
    tables = empty_tables(events)
    planned = program_plans.plan_queries(tables, statements, columns, fixed=fixed_tables(None, statements))
    inputs = frame_inputs(events, planned.inputs)
    if inputs[0].frame.isStreaming:
        raise SchemaError(
            "streaming-frame",
            "`any_match` needs all events of a key, but the DataFrame is a stream",
            "read the DataFrame with `spark.read`; on a stream `ensue.detect` returns the probability of each match",
        )
    advise(inputs[0].frame.sparkSession)
    plans = all_plans(planned.derivations, planned.plans)
    keys = planned.plans[0].query.partition_by
    if are_computed(inputs, keys, plans):
        # A worker plans again, for which rows must be as they were given: all in one task.
        keys = ()
    layout = travelling(inputs, plans)
    schema = in_process(tables).schema
    returned = pa.schema([pa.field(item.name, carried(item.type)) for item in schema])
    rows = shuffled(inputs, layout, plans, None, keys, [Bounds() for _ in inputs])
    return rows.mapInArrow(_AnyTask(layout, in_process, returned), spark_schema(returned))


@dataclass(frozen=True, slots=True)
class _AnyTask:
    """Computes all keys of a partition at once."""

    layout: Layout
    in_process: InProcess
    returned: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            unpacked = self.layout.unpack(pa.Table.from_batches(filled))
            named = [item.stream for item in self.layout.inputs]
            whole = len(named) == 1 and (self.layout.inputs[0].type is not None or self.layout.inputs[0].all_views)
            tables = unpacked[0] if whole else dict(zip(named, unpacked, strict=True))
            yield from self.in_process(tables).cast(self.returned).to_batches()
