"""Detection on static DataFrames: filter and project in Spark, shuffle by key and time slice, match in workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own convention)
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from ensue.engine.retention import Bounds, bounds_of
from ensue.engine.stage import needed_columns
from ensue.nodes.names import Stream
from ensue.plan.derivations import Derivation, all_plans
from ensue.plan.inputs import InputTable, plain_schema
from ensue.plan.outputs import OutputSchema
from ensue.plan.plans import Options, QueryPlan, Retention
from ensue.plan.retention import TimeSlices, is_endless, slicing_of
from ensue.runtimes.spark import worker
from ensue.runtimes.spark.frames import FrameInput, carried, spark_schema
from ensue.runtimes.spark.joined_rows import JOINED, JoinedRows, joined_rows, keyed, marked, routes, with_marks
from ensue.runtimes.spark.pushdown import column, in_streams, needed_rows, rows_between
from ensue.runtimes.spark.selected_keys import are_computed, copied, with_members

_KEYS = BooleanType | NumericType | DateType | TimestampType | TimestampNTZType | DayTimeIntervalType

ROUTE = "ensue:route"
"""The column by which rows of several inputs are shuffled."""


def match_frames(
    inputs: Sequence[FrameInput],
    plans: Sequence[QueryPlan],
    outputs: Sequence[OutputSchema],
    options: Options,
    keys: Sequence[str],
    derivations: Sequence[Derivation] = (),
    counting: bool = False,
) -> DataFrame:
    """Return the matches of queries with the keys `keys`, with one scan and one shuffle; or only their `COUNTS`.

    Without keys, rows are shuffled by the fields that the queries compare, if that is possible. Rows are copied only if
    time is not sliced.

    The result has the columns of the query, or those of a `Carrier` if there are several queries. Time is not sliced if
    there are declared streams, because a match of a declared stream reaches as far as everything it is made of.
    """
    everything = all_plans(derivations, plans)
    slicing = None if derivations else slicing_of(plans)
    # Ties are counted among all events at the same time, whatever the fields that the queries compare.
    joined = None if keys or counting else joined_rows(inputs, everything)
    run, made = tuple(plans), tuple(derivations)
    if joined is not None and joined.marks and slicing is not None:
        joined = None
    if joined is not None and joined.marks:
        inputs, (run, made) = with_marks(inputs, joined), marked(plans, derivations, joined)
    elif are_computed(inputs, keys, everything):
        inputs = with_members(inputs, everything)
    layout = travelling(inputs, everything)
    carrier = carrier_of(outputs)
    task = worker.BatchTask(
        layout,
        run,
        tuple(outputs),
        carrier if len(outputs) > 1 else result_schema(outputs[0]),
        slicing.width if slicing is not None else None,
        replace(options, counts_ties=counting),
        made,
    )
    bounds = bounds_of([entry.item for entry in inputs], plans, derivations, options.since, options.until)
    rows = shuffled(inputs, layout, everything, slicing, keys, bounds, joined)
    schema = carrier.schema if len(outputs) > 1 else result_schema(outputs[0])
    if counting:
        return rows.mapInArrow(worker.CountWork(worker.ShippedValue(task)), spark_schema(worker.COUNTS))
    return rows.mapInArrow(worker.BatchWork(worker.ShippedValue(task)), spark_schema(schema))


def carrier_of(outputs: Sequence[OutputSchema]) -> worker.Carrier:
    """Return the columns in which matches of several queries travel together."""
    return worker.Carrier.of([result_schema(output) for output in outputs])


def of_patterns(matches: DataFrame, carrier: worker.Carrier, places: Sequence[int], names: Sequence[str]) -> DataFrame:
    """Select the matches of some of the queries and give their columns these names.

    The columns are SQL text: a program may have hundreds of queries, and every Column needs several calls to Java.
    """
    own = [_quoted(carrier.schema.names[number]) for number in carrier.places[places[0]]]
    columns = [f"{column} AS {_quoted(name)}" for column, name in zip(own, names, strict=True)]
    return matches.filter(f"{_quoted(worker.PATTERN)} IN ({', '.join(map(str, places))})").selectExpr(*columns)


def all_patterns(
    matches: DataFrame,
    carrier: worker.Carrier,
    names: Mapping[int, str],
    schemas: Sequence[pa.Schema],
    whole: pa.Schema,
) -> DataFrame:
    """Return the matches of the named queries in one table, with the columns of all of them."""
    pattern, others = column(worker.PATTERN), len(names) < len(carrier.places)
    where: dict[str, dict[int, list[int]]] = {name: {} for name in whole.names[1:]}
    for place, schema in zip(names, schemas, strict=True):
        for name, number in zip(schema.names, carrier.places[place], strict=True):
            where[name].setdefault(number, []).append(place)
    columns = []
    for field in list(whole)[1:]:
        value = F.lit(None).cast(from_arrow_type(field.type))
        for number, own in where[field.name].items():
            carried = column(carrier.schema.names[number])
            value = carried if len(own) == len(names) else F.when(pattern.isin(*own), carried).otherwise(value)
        columns.append(value.alias(field.name))
    called = F.element_at(F.create_map(*(F.lit(part) for entry in names.items() for part in entry)), pattern)
    rows = matches.filter(pattern.isin(*names)) if others else matches
    return rows.select(called.alias(whole.names[0]), *columns)


def one_pattern(matches: DataFrame, name: str, whole: pa.Schema) -> DataFrame:
    """Return the matches of one query with the columns of a table for several."""
    places = {own: worker.struct_name(place) for place, own in enumerate(matches.columns)}
    columns = [
        (column(places[field.name]) if field.name in places else F.lit(None).cast(from_arrow_type(field.type))).alias(
            field.name
        )
        for field in list(whole)[1:]
    ]
    # By position, because Spark may not distinguish `x` and `X`.
    return matches.toDF(*places.values()).select(F.lit(name).alias(whole.names[0]), *columns)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def result_schema(output: OutputSchema) -> pa.Schema:
    """The columns in which matches are returned to Spark."""
    return pa.schema([pa.field(field.name, carried(field.type)) for field in output.schema])


def travelling(inputs: Sequence[FrameInput], plans: Sequence[QueryPlan]) -> worker.Layout:
    """Return the inputs with only the columns that the queries use."""
    return worker.Layout(
        tuple(
            replace(entry.item, table=plain_schema(needed_columns(plans, entry.item).schema).empty_table())
            for entry in inputs
        )
    )


def shuffled(
    inputs: Sequence[FrameInput],
    layout: worker.Layout,
    plans: Sequence[QueryPlan],
    slicing: TimeSlices | None,
    keys: Sequence[str],
    bounds: Sequence[Bounds],
    joined: JoinedRows | None = None,
) -> DataFrame:
    """Shuffle the relevant rows by key, or by the fields that are compared, and by time slice."""
    ends_with_rows = all(own.until is None for own in bounds)
    horizon = [_last_end(inputs).alias(worker.HORIZON)] if ends_with_rows and any(map(is_endless, plans)) else []
    computed = are_computed(inputs, keys, plans)
    beside = [*([column(worker.NEXT)] if slicing is not None else []), *horizon]
    frames = []
    for place, entry in enumerate(inputs):
        frame = _rows_in_time(entry, relevant_rows(entry, plans), bounds[place], plans[0].catalog.time_type)
        if joined is not None:
            frame, by = keyed(frame, join_hashes(inputs, place, joined), joined.marks), [column(JOINED)]
        elif computed:
            frame, by = copied(entry, frame, layout.inputs[place].table.column_names, keys, plans)
        else:
            by = route(inputs, place, keys)
        if slicing is not None:
            frame = frame.withColumn(worker.NEXT, _needed_again(entry, slicing))
            by = [*by, _slice_start(entry, slicing)]
        frames.append((frame, by))
    if layout.is_flat:
        frame, by = frames[0]
        names = layout.inputs[0].table.column_names
        chosen = frame.select(*map(column, names), *beside)
        shuffled = chosen.repartition(*by) if by else chosen.repartition(1)
        # By position, because `mapInArrow` selects columns by names in which dots and backticks have a meaning.
        numbered = [worker.struct_name(place) for place in range(len(names))]
        return shuffled.toDF(*numbered, *chosen.columns[len(names) :])
    parts = [
        frame.select(
            *as_structs(layout.inputs, place),
            *beside,
            (F.xxhash64(*by) if by else F.lit(0).cast("long")).alias(ROUTE),
        )
        for place, (frame, by) in enumerate(frames)
    ]
    together = reduce(DataFrame.unionByName, parts)
    shuffled = together.repartition(column(ROUTE)) if frames[0][1] else together.repartition(1)
    return shuffled.drop(ROUTE)


def _last_end(inputs: Sequence[FrameInput]) -> Column:
    """Return the end of the last event of all inputs, whether a query uses the event or not."""
    ends = []
    for entry in inputs:
        start, end = (ticks(entry, name) for name in (entry.item.time, entry.item.end or entry.item.time))
        ends.append(entry.frame.agg(F.max(F.when(start <= end, end))).scalar())
    return ends[0] if len(ends) == 1 else F.greatest(*ends)


def relevant_rows(entry: FrameInput, plans: Sequence[QueryPlan]) -> DataFrame:
    """Keep the rows that some query can use."""
    condition = needed_rows(plans, entry.item, entry.frame.schema)
    return entry.frame if condition is None else entry.frame.filter(condition)


def _rows_in_time(entry: FrameInput, frame: DataFrame, bounds: Bounds, time_type: pa.DataType) -> DataFrame:
    """Keep the rows that can be within the bounds, with comparisons that let a scan skip files."""
    condition = rows_between(bounds, entry.item, entry.frame.schema, time_type)
    return frame if condition is None else frame.filter(condition)


def as_structs(items: Sequence[InputTable], place: int) -> list[Column]:
    """Return the columns in which rows of several inputs travel: the number of the input, and one struct per input."""
    own = F.struct(*map(column, items[place].table.column_names))
    kinds = [spark_schema(item.table.schema) for item in items]
    structs = [own if number == place else F.lit(None).cast(kind) for number, kind in enumerate(kinds)]
    return [
        F.lit(place).alias(worker.SOURCE),
        *(struct.cast(kinds[number]).alias(worker.struct_name(number)) for number, struct in enumerate(structs)),
    ]


def route(inputs: Sequence[FrameInput], place: int, keys: Sequence[str]) -> list[Column]:
    """Return columns that are equal for rows with equal keys, whatever their types; other rows may be equal, too."""
    columns = ([(entry, _key_column(entry, key)) for entry in inputs] for key in keys)
    return [routed_value(*own[place], own) for own in columns]


def routed_value(entry: FrameInput, name: str, compared: Sequence[tuple[FrameInput, str]]) -> Column:
    """Return a column that is equal for equal values in all the compared columns."""
    value, kind = column(name), entry.frame.schema[name].dataType
    several = len({other.frame.schema[own].dataType for other, own in compared}) > 1
    if isinstance(kind, FloatType | DoubleType) or (isinstance(kind, NumericType) and several):
        return value.cast(DoubleType()) + F.lit(0.0)
    if isinstance(kind, DateType | TimestampType | TimestampNTZType) and several:
        return ticks(entry, name)
    if isinstance(kind, StringType):
        return value.cast(StringType())
    # Other types cannot be keys, so no query uses the input.
    return value if isinstance(kind, _KEYS) else F.lit(0)


def join_hashes(inputs: Sequence[FrameInput], place: int, joined: JoinedRows) -> dict[str, Column]:
    """Return, for each key field of an input, a hash of its value in the rows of its streams, and null in others."""
    compared = [(entry, name) for entry, own in zip(inputs, joined.fields, strict=True) for name in own]
    entry, fields = inputs[place], joined.fields[place]
    return routes(entry, {name: routed_value(entry, name, compared) for name in fields}, fields, joined.key.keeps_nulls)


def _key_column(entry: FrameInput, key: str) -> str:
    """Return the column of a partition key; `s`, `e` and `t` mean the time columns."""
    item = entry.item
    if key in item.table.column_names:
        return key
    return item.end if key == "e" and item.end is not None else item.time


def _needed_again(entry: FrameInput, slicing: TimeSlices) -> Column:
    """Return True for the copy of a row in the slice after its own; a row that both slices need occurs twice."""
    if slicing.overlap == 0:
        return F.lit(False)
    item = entry.item
    start, end = ticks(entry, item.time), ticks(entry, item.end or item.time)
    last = F.coalesce(_last_use(entry, slicing, start, end), end)
    needed = _floor(last, slicing.width) > _floor(end, slicing.width)
    both, own = F.array(F.lit(False), F.lit(True)), F.array(F.lit(False))
    return F.explode(F.when(needed, both).otherwise(own))


def _slice_start(entry: FrameInput, slicing: TimeSlices) -> Column:
    """Return the first tick of a row's slice."""
    item = entry.item
    own = _floor(ticks(entry, item.end or item.time), slicing.width)
    return own + F.when(column(worker.NEXT), F.lit(slicing.width).cast("long")).otherwise(F.lit(0).cast("long"))


def _last_use(entry: FrameInput, slicing: TimeSlices, start: Column, end: Column) -> Column:
    """Return the latest time at which a match with a row completes; null if the row is not needed after its end."""
    item = entry.item
    streams: dict[Retention, list[Stream]] = {}
    whole: list[Retention] = []
    for stream, reach in slicing.reach.items():
        if item.type is None or stream in item.all_views:
            whole += [reach] if item.holds(stream) else []
        else:
            streams.setdefault(reach, []).append(stream)
    uses = [F.when(in_streams(item, names), _latest(reach, start, end)) for reach, names in streams.items()]
    uses += [_latest(reach, start, end) for reach in dict.fromkeys(whole)]
    never = F.lit(None).cast("long")
    return F.greatest(never, *uses) if uses else never


def _latest(reach: Retention | None, start: Column, end: Column) -> Column:
    limits = [] if reach is None else [(start, reach.from_start), (end, reach.from_end)]
    sums = [F.try_add(origin, F.lit(limit)) for origin, limit in limits if limit is not None]
    if not sums:
        return F.lit(None).cast("long")
    return sums[0] if len(sums) == 1 else F.least(*sums)


def _floor(value: Column, width: int) -> Column:
    return value - F.pmod(value, F.lit(width).cast("long"))


def ticks(entry: FrameInput, name: str) -> Column:
    """Convert a time column to the engine's ticks, independent of the session's time zone."""
    value, kind = column(name), entry.frame.schema[name].dataType
    if isinstance(kind, NumericType):
        return value.cast("long")
    if isinstance(kind, TimestampType):
        return F.unix_micros(value)
    days = F.unix_date(value.cast("date")).cast("long") * F.lit(24 * 60 * 60 * 1_000_000)
    if isinstance(kind, DateType):
        return days
    minutes = (F.hour(value) * 60 + F.minute(value)).cast("long") * F.lit(60 * 1_000_000)
    return days + minutes + (F.extract(F.lit("SECOND"), value) * 1_000_000).cast("long")
