"""Which way queries over DataFrames go: batch or stream, one scan for all that share their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from ensue.algebra.nodes import PatternQuery
from ensue.errors import Source
from ensue.plan.model import Options
from ensue.plan.slices import slicing_of
from ensue.runtimes.planning import Columns, Emission, Planned, plan_queries
from ensue.runtimes.spark.batch import Planned as PlannedQuery
from ensue.runtimes.spark.batch import match_frames, of_pattern
from ensue.runtimes.spark.frames import FrameInput, empty_tables, frame_inputs
from ensue.runtimes.spark.stream import plan_stream, unpacked


def detect_frames(
    events: Mapping[str, DataFrame] | DataFrame,
    queries: Sequence[tuple[PatternQuery, Source | None]],
    columns: Columns,
    options: Options,
    emission: Emission,
) -> list[DataFrame]:
    """The matches of each query as a DataFrame; nothing runs before one of them is used."""
    planned = plan_queries(empty_tables(events), queries, columns, emission.match_id)
    inputs = frame_inputs(events, planned.inputs)
    if inputs[0].frame.isStreaming:
        return match_stream(inputs, planned, options, emission)
    return match_batch(inputs, planned, options)


def match_stream(
    inputs: Sequence[FrameInput], planned: Planned, options: Options, emission: Emission
) -> list[DataFrame]:
    """Each query as a stream of its own; `ensue.start` runs several on one."""
    frames = []
    for plan, output in zip(planned.plans, planned.outputs, strict=True):
        stream = plan_stream(inputs, [plan], [output], options, eager=emission.eager, tick=emission.tick)
        frames.append(unpacked(stream.counted(stream.found()), [0], stream.task.schema_of(0)))
    return frames


def match_batch(inputs: Sequence[FrameInput], planned: Planned, options: Options) -> list[DataFrame]:
    """Queries with the same keys share one scan and one shuffle, whose result is kept until it is not used any more."""
    together: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    for place, plan in enumerate(planned.plans):
        together.setdefault((plan.query.partition_by, slicing_of([plan]) is not None), []).append(place)
    frames: dict[int, DataFrame] = {}
    for places in together.values():
        queries = [PlannedQuery(planned.plans[place], planned.outputs[place]) for place in places]
        matches = match_frames(inputs, queries, options)
        if len(places) == 1:
            frames[places[0]] = matches
            continue
        kept = matches.persist()
        frames.update({place: of_pattern(kept, number, queries[number].output) for number, place in enumerate(places)})
    return [frames[place] for place in range(len(planned.plans))]
