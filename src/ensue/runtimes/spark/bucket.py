"""One bucket of keys on a stream: processes rows and a watermark, returns matches and late rows, and saves its state.

Everything here is a function of bytes, so it runs the same in a worker, in a test and after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ensue.engine.events import in_streams
from ensue.engine.machine import Machine, State, compile_plan
from ensue.engine.snapshot import restore, snapshot, text_of
from ensue.engine.sources import EventSource, Report, Tie
from ensue.engine.stage import Stage, StageState
from ensue.engine.ties import possible_ties
from ensue.engine.violations import ends_of_traces
from ensue.errors import LimitError, StateError, counted
from ensue.plan.derivations import Derivation
from ensue.plan.inputs import InputTable
from ensue.plan.outputs import OutputSchema
from ensue.plan.plans import Options, QueryPlan, Retention
from ensue.plan.program_plans import ProgramPlan
from ensue.plan.retention import Wake, reach_of_streams, wakes_of
from ensue.plan.selections import MEMBER
from ensue.plan.states import StateQuestions
from ensue.runtimes.spark.worker import Carrier

NO_WATERMARK = -(2**62)
"""The watermark before Spark has one: no row is late and no match is complete."""

LARGEST_STATE = 1 << 29
"""Spark cannot send a state with more bytes than this to a worker."""

CARRIED = -1
"""The number of the output with the matches of several queries."""

Payload = tuple[int, bytes]
"""The number of an input, and some of its rows as an Arrow record batch without a schema."""


@dataclass(frozen=True, slots=True)
class Output:
    """Rows returned by a step, as a record batch without a schema; None if only the count is needed."""

    number: int
    rows: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Clock:
    """Converts between Spark's milliseconds and ticks of the time column; `nanoseconds` is the length of a tick."""

    nanoseconds: int

    def ticks(self, watermark: int) -> int:
        """Return the last tick that the watermark has reached; Spark's initial watermark, zero, means none."""
        return NO_WATERMARK if watermark <= 0 else watermark * 1_000_000 // self.nanoseconds

    def milliseconds(self, tick: int) -> int:
        """Return the first millisecond at which the watermark has reached a tick."""
        return -(-tick * self.nanoseconds // 1_000_000)


@dataclass(frozen=True, slots=True)
class BucketStep:
    """The result of one call. `outputs` are numbered: one per query, then one per input for its late rows, then one per
    tie, of which only the count is needed.

    If there are several queries, their outputs only have counts, and CARRIED has the rows of all.
    """

    state: bytes | None
    wake: int | None
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class BucketTask:
    """The queries of a stream, ready to process any bucket. `inputs` hold empty tables with the columns that travel.

    Late rows are returned in these columns if `gives_late`, otherwise only counted. `matches` are the columns in which
    the matches of each query are returned to Spark. Events with different `keys` are independent. `derivations` are the
    declared streams that the queries use, `states` the STATEs that they ask. States saved by `predecessors`, which are
    earlier queries as text, are sufficient for these queries.
    """

    inputs: tuple[InputTable, ...]
    plans: tuple[QueryPlan, ...]
    outputs: tuple[OutputSchema, ...]
    matches: tuple[pa.Schema, ...]
    clock: Clock
    options: Options
    eager: bool = False
    gives_late: bool = False
    predecessors: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()
    derivations: tuple[Derivation, ...] = ()
    states: StateQuestions | None = None

    @cached_property
    def machine(self) -> Machine:
        """The queries, compiled once for all buckets of a worker."""
        plan = ProgramPlan(self.inputs, self.plans, self.outputs, self.derivations, self.states)
        return compile_plan(plan, self.options, self.eager)

    @cached_property
    def text(self) -> str:
        """The text of the queries, which identifies a saved state."""
        return text_of(self.machine)

    @cached_property
    def times(self) -> tuple[Times, ...]:
        """The times at which the queries of each stage have something to do."""
        return tuple(map(times_of, self.machine.stages))

    @cached_property
    def ties(self) -> tuple[Tie, ...]:
        """The ties that the queries may have."""
        results = [plan for plan, output in zip(self.plans, self.outputs, strict=True) if output.waiting_for is None]
        return tuple(dict.fromkeys(tie for plan in results for tie in possible_ties(plan)))

    @property
    def first_tie(self) -> int:
        """The number of the output of the first tie; the one after those of all ties counts any others."""
        return len(self.plans) + len(self.inputs)

    @cached_property
    def carrier(self) -> Carrier:
        """The columns in which matches of several queries travel together."""
        return Carrier.of(self.matches)

    def schema_of(self, number: int) -> pa.Schema:
        """Return the columns of an output."""
        if number == CARRIED:
            return self.carrier.schema
        plans = len(self.plans)
        return self.matches[number] if number < plans else as_given(self.inputs[number - plans].table).schema

    def step(self, saved: bytes | None, payloads: Iterable[Payload], watermark: int) -> BucketStep:
        """Process the rows of a micro-batch and its watermark in milliseconds."""
        machine, state, tables = self.machine, self.state(saved), self._tables(payloads)
        fresh = [table.select(item.table.column_names) for table, item in zip(tables, machine.inputs, strict=True)]
        reached = self.clock.ticks(watermark)
        until = reached if state.watermark is None else max(reached, state.watermark)
        step = machine.step(state, machine.read(fresh), until, late_until=until)
        outputs = self._matches(step.outputs)
        for place, (table, mask) in enumerate(zip(tables, step.late, strict=True)):
            outputs += self._late(len(self.plans) + place, table.filter(pa.array(mask)))
        given = (*outputs, *self._ties(step.reports))
        if not step.state.holds_anything:
            return BucketStep(None, None, given)
        return BucketStep(self._saved(step.state), self._wake(step.state, until), given)

    def _matches(self, tables: Sequence[pa.Table]) -> list[Output]:
        if len(tables) == 1:
            return [Output(0, rows, data) for rows, data in packed(tables[0].cast(self.matches[0]))]
        filled = [(number, table) for number, table in enumerate(tables) if table.num_rows]
        carried = [self.carrier.carry(batch, number) for number, table in filled for batch in table.to_batches()]
        together = pa.Table.from_batches(carried, self.carrier.schema)
        counts = [Output(number, table.num_rows, None) for number, table in filled]
        return [*counts, *(Output(CARRIED, 0, data) for _, data in packed(together))]

    def _late(self, number: int, rows: pa.Table) -> list[Output]:
        if rows.num_rows == 0:
            return []
        if not self.gives_late:
            return [Output(number, rows.num_rows, None)]
        return [Output(number, count, data) for count, data in packed(as_given(rows))]

    def _ties(self, reports: Sequence[Report]) -> Iterator[Output]:
        """Yield the counts of ties; those of timed-out partial matches are no results."""
        for output, report in zip(self.outputs, reports, strict=True):
            for tie, count in report.ties.items() if output.waiting_for is None else ():
                place = self.ties.index(tie) if tie in self.ties else len(self.ties)
                yield Output(self.first_tie + place, count, None)

    def state(self, saved: bytes | None) -> State:
        """Restore the saved state of a bucket, or create a new one."""
        if saved is None:
            return self.machine.start()
        return restore(self.machine, read_state(saved), self.predecessors, self.text)

    def _tables(self, payloads: Iterable[Payload]) -> list[pa.Table]:
        return tables_of(self.inputs, payloads)

    def _saved(self, state: State) -> bytes:
        return as_bytes(snapshot(self.machine, state, len(self.inputs) > 1, text=self.text), state)

    def _wake(self, state: State, until: int) -> int | None:
        """Return the millisecond at which the bucket has something to do without a new row; None if never."""
        moment = next_moment(self.machine, state, until, self.times)
        return None if moment is None else self.clock.milliseconds(moment)


def as_given(rows: pa.Table) -> pa.Table:
    """Return the rows without the columns that list the streams of a copy."""
    return rows.drop_columns([name for name in rows.column_names if name.startswith(MEMBER)])


def tables_of(inputs: Sequence[InputTable], payloads: Iterable[Payload]) -> list[pa.Table]:
    """Read the rows of each input."""
    parts: list[list[pa.RecordBatch]] = [[] for _ in inputs]
    for number, data in payloads:
        parts[number].append(pa.ipc.read_record_batch(pa.py_buffer(data), inputs[number].table.schema))
    return [pa.Table.from_batches(own, item.table.schema) for own, item in zip(parts, inputs, strict=True)]


def as_bytes(table: pa.Table, state: State) -> bytes:
    """Serialize the state of a bucket."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    if data.size > LARGEST_STATE:
        kept = counted(state.kept_rows, "event", "events")
        raise LimitError(
            "state-size",
            f"the state of one bucket has {kept} and {data.size} bytes; the maximum is {LARGEST_STATE} bytes",
            "use more buckets (`buckets=`), add PARTITION BY, or use a shorter WITHIN",
        )
    return bytes(data.to_pybytes())


def read_state(saved: bytes) -> pa.Table:
    """Read the serialized state of a bucket."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(saved)) as reader:
            return reader.read_all()
    except pa.ArrowInvalid as error:
        hint = "pass the checkpoint of a stream started by Ensue"
        raise StateError("not-a-state", "this is not a state saved by Ensue", hint) from error


def packed(table: pa.Table) -> Iterator[tuple[int, bytes]]:
    """Yield the rows as record batches without a schema, each with its count."""
    for batch in table.combine_chunks().to_batches():
        if batch.num_rows:
            yield batch.num_rows, batch.serialize().to_pybytes()


class Times(NamedTuple):
    """When events may complete matches of some plans, and how long they are kept; without duplicates."""

    wakes: tuple[Wake, ...]
    kept: tuple[Retention, ...]


def times_of(stage: Stage) -> Times:
    wakes = dict.fromkeys(wake for plan in stage.plans for wake in wakes_of(plan))
    kept = dict.fromkeys(own for plan in stage.plans for _, own in reach_of_streams(plan))
    return Times(tuple(wakes), tuple(kept))


def next_moment(machine: Machine, state: State, until: int, times: Sequence[Times]) -> int | None:
    """Return the first tick after `until` at which a match may complete or a trace ends, or when all events expire."""
    candidates: list[int] = []
    forgotten: list[int | None] = []
    for stage, part, of_stage in zip(machine.stages, state.stages, times, strict=True):
        own, gone = _moments(stage, part, until, of_stage)
        candidates += own
        forgotten += gone
    if machine.states is not None and state.believed is not None:
        for source in machine.states.waiting(state.believed):
            candidates += _first_after(source.starts, until)
    if candidates:
        return min(candidates)
    known = [moment for moment in forgotten if moment is not None]
    return max(known) if known and len(known) == len(forgotten) and max(known) > until else None


def _moments(stage: Stage, state: StageState, until: int, times: Times) -> tuple[list[int], list[int | None]]:
    """Return when something may happen in one stage, and when all rows of each of its tables expire."""
    candidates: list[int] = []
    forgotten: list[int | None] = []
    for source in stage.loaded(state):
        if len(source.ends) == 0:
            continue
        if not stage.eager:
            candidates += _first_after(source.ends, until)
        for wake in times.wakes:
            candidates += _first_after(_wake_times(source, wake, until), until)
        forgotten.append(_all_forgotten(times.kept, source.starts, source.ends))
    for plan, records in zip(stage.plans, state.records, strict=True):
        candidates += _first_after(ends_of_traces(plan, records), until)
    return candidates, forgotten


def _wake_times(source: EventSource, wake: Wake, until: int) -> np.ndarray:
    """Return when a match of each event of the stream may complete, the first time after `until` if possible."""
    if not source.input.holds(wake.stream):
        return np.empty(0, np.int64)
    times: np.ndarray = (source.starts if wake.side == "s" else source.ends) + wake.ticks
    if source.input.type is not None:
        times = times[in_streams(source.input, [wake.stream])]
    if wake.period is None:
        return times
    times += np.maximum(0, (until - times) // wake.period + 1) * wake.period
    return times


def _first_after(moments: np.ndarray, until: int) -> list[int]:
    later = moments[moments > until]
    return [int(later.min())] if len(later) else []


def _all_forgotten(retentions: Sequence[Retention], starts: np.ndarray, ends: np.ndarray) -> int | None:
    """Return when no row of a table is needed any more; None if unknown."""
    moments: list[int] = []
    latest = int(starts.max()), int(ends.max())
    for kept in retentions:
        of_kept = zip(latest, (kept.from_start, kept.from_end), strict=True)
        limits = [moment + ticks for moment, ticks in of_kept if ticks is not None]
        if not limits:
            return None
        moments.append(min(limits))
    return max(moments, default=None)
