"""How probable any match of a key is, on DataFrames: Spark brings each key together, Python workers work it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from ensue.engine.past import Bounds
from ensue.errors import SchemaError
from ensue.lower.phases import Lowered
from ensue.plan.declared import all_plans
from ensue.plan.program_plans import Columns, plan_queries
from ensue.plan.states import refuse_questions
from ensue.runtimes.fixed import fixed_tables
from ensue.runtimes.spark.batch import shuffled, travelling
from ensue.runtimes.spark.frames import carried, empty_tables, frame_inputs, spark_schema
from ensue.runtimes.spark.java import require_pyspark
from ensue.runtimes.spark.session import advise
from ensue.runtimes.spark.worker import Layout, spare_imports

CALLERS = 4
"""How many calls up from the notice about settings the user's line is."""

InProcess = Callable[[Any], pa.Table]
"""What works the probabilities out for the tables of some keys."""


def any_match_of_frames(
    events: Mapping[str, DataFrame] | DataFrame, statements: Lowered, columns: Columns, in_process: InProcess
) -> DataFrame:
    """A row for each key, as a DataFrame; nothing runs before it is used."""
    require_pyspark()
    refuse_questions(
        statements,
        "needs all events of the state, but `any_match` on a DataFrame processes each key separately",
        "add the answer as a column with `ensue.track` first, and use that column in the pattern",
    )
    tables = empty_tables(events)
    planned = plan_queries(tables, statements, columns, fixed=fixed_tables(None, statements))
    inputs = frame_inputs(events, planned.inputs)
    if inputs[0].frame.isStreaming:
        raise SchemaError(
            "streaming-frame",
            "whether a key has any match is known when all its events have come, and a stream has no end",
            "read the DataFrame with `spark.read`; `ensue.detect` gives each match of a stream its probability",
        )
    advise(inputs[0].frame.sparkSession, stacklevel=CALLERS)
    plans = all_plans(planned.derivations, planned.plans)
    layout = travelling(inputs, plans)
    schema = in_process(tables).schema
    returned = pa.schema([pa.field(item.name, carried(item.type)) for item in schema])
    keys = planned.plans[0].query.partition_by
    rows = shuffled(inputs, layout, plans, None, keys, [Bounds() for _ in inputs])
    return rows.mapInArrow(_AnyTask(layout, in_process, returned), spark_schema(returned))


@dataclass(frozen=True, slots=True)
class _AnyTask:
    """Works out all keys of a partition at once."""

    layout: Layout
    in_process: InProcess
    returned: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            unpacked = self.layout.unpack(pa.Table.from_batches(filled))
            named = [item.stream for item in self.layout.inputs]
            whole = len(named) == 1 and self.layout.inputs[0].type is not None
            tables = unpacked[0] if whole else dict(zip(named, unpacked, strict=True))
            yield from self.in_process(tables).cast(self.returned).to_batches()
