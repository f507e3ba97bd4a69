"""Checks of a query against a catalog of streams: names of streams and fields, types, and conditions over lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ensue.analysis.catalog import WHOLE_EVENT, Catalog, is_lineage
from ensue.analysis.scopes import (
    SERIES,
    Scope,
    counts_events,
    initiating_names,
    interval_names,
    list_groups,
    operator_of,
    operator_word,
    series_names,
)
from ensue.errors import Problem, Span, did_you_mean, warn
from ensue.expr.checker import check_condition, check_expression, check_without_data
from ensue.expr.hints import COLLECT_HINT
from ensue.expr.kinds import FLOAT, NANOSECONDS_PER_UNIT, NULL_TYPE, PLAIN, Kind, Type, list_of
from ensue.expr.lists import (
    aggregated_variables,
    check_successive,
    explicit_lists,
    has_prev,
    is_aggregate,
    list_variables,
    without_prev,
)
from ensue.lower.operators import expand_pattern
from ensue.nodes import patterns
from ensue.nodes.constraints import Constraint, EndsWithin
from ensue.nodes.expressions import Duration, Expr, Field, Literal, Same, conjuncts, rewrite
from ensue.nodes.expressions import walk as walk_expression
from ensue.nodes.names import AnyEvent, Edge, Name, Stream, in_order
from ensue.nodes.uncertainty import PROBABILITY_OF_MATCH, with_probability_field

# --- Conditions over repeated variables


def is_about_list(conjunct: Expr, groups: Mapping[Name, Name]) -> bool:
    """Whether a conjunct uses a whole list, in an aggregate or PREV, and not each element."""
    return bool(aggregated_variables(conjunct, groups)) or has_prev(conjunct)


def check_lists(conjunct: Expr, groups: Mapping[Name, Name]) -> Iterator[Problem]:
    """The problems of the lists in a conjunct."""
    problems: list[Problem] = []
    if has_prev(conjunct):
        check_successive(conjunct, groups, problems)
    elif aggregated_variables(conjunct, groups):
        explicit_lists(conjunct, groups, problems)
        problems += _beside_aggregates(conjunct, groups)
    else:
        problems += _several_lists(conjunct, groups)
    yield from problems


def _beside_aggregates(conjunct: Expr, groups: Mapping[Name, Name]) -> Iterator[Problem]:
    """A condition cannot use the elements of a list together with an aggregate."""
    outside = rewrite(conjunct, lambda part: Literal(None) if is_aggregate(part) else None)
    for name in in_order(list_variables(outside, groups)):
        yield Problem(
            "list-and-aggregate",
            f"the condition uses single elements of `{name}` together with a whole list",
            conjunct.span,
            hint="write two conditions joined by AND, or use aggregates on both sides",
        )


def _several_lists(conjunct: Expr, groups: Mapping[Name, Name]) -> Iterator[Problem]:
    names = in_order(list_variables(conjunct, groups))
    if len({groups[name] for name in names}) > 1:
        yield Problem(
            "two-lists",
            f"the condition compares elements of two lists: {', '.join(f'`{name}`' for name in names)}",
            conjunct.span,
            hint="compare aggregates of the lists instead",
        )


def typed_form(conjunct: Expr, groups: Mapping[Name, Name]) -> Expr:
    """The form of the conjunct that is used for type checks."""
    if has_prev(conjunct):
        return without_prev(conjunct)
    return explicit_lists(conjunct, groups, []) if aggregated_variables(conjunct, groups) else conjunct


def list_names(conjunct: Expr, groups: Mapping[Name, Name]) -> frozenset[Name]:
    """The repeated variables whose lists a conjunct uses."""
    if not groups:
        return frozenset()
    return list_variables(conjunct, groups) if has_prev(conjunct) else aggregated_variables(conjunct, groups)


def lists_of_result(query: patterns.PatternQuery) -> dict[Name, Name]:
    """The variables that are lists in the result: those of repetitions and those that CUMULATIVE collects."""
    groups = list_groups(expand_pattern(query.pattern))
    if query.policy == patterns.CUMULATIVE:
        groups |= {name: name for name in initiating_names(query.pattern)}
    return groups


def around_list(scope: Scope) -> Scope:
    """The scope that contains a list, given the scope of its elements."""
    return scope.parent if isinstance(scope.aside, patterns.Repeat) and scope.parent is not None else scope


# --- Streams, fields and types

FieldType = Callable[[Field], "Type | None"]


def bind_query(query: patterns.PatternQuery, catalog: Catalog) -> list[Problem]:
    """All problems of a query with these streams. The structure is already checked."""
    parts = list(patterns.walk(query.pattern))
    events = [part for part in parts if isinstance(part, patterns.Event)]
    unknown = [_unknown_stream(event, catalog) for event in events if catalog.stream(event.stream) is None]
    if unknown:
        return unknown
    problems: list[Problem] = []
    for event in events:
        for attribute in event.attributes:
            _stream_field(attribute, event.stream, catalog, problems)
    if problems:
        return problems
    used = tuple(dict.fromkeys(event.stream for event in events))
    # Where positions are counted, every table has keys, not only those that the pattern names.
    tables = (name for name, schema in catalog.streams.items() if schema.table is None)
    keyed = tuple(dict.fromkeys((*used, *tables))) if counts_events(query) else used
    for name in query.partition_by:
        if query.rule is None:
            problems += _check_common_field(name, keyed, catalog, "PARTITION BY uses", query.partition_span)
        else:
            place = _place_of_key(name, events) or query.rule.span
            problems += _check_common_field(name, keyed, catalog, "the rule compares", place)
    if query.policy in patterns.CONTEXTS:
        problems += _check_first_one(query, catalog)
    windows = [window for part in parts for window in patterns.windows_of(part)]
    windows += [] if query.within is None else [query.within]
    problems += _check_windows(windows, catalog)
    per = () if query.suppress is None else query.suppress.per
    problems += [] if query.suppress is None else _check_windows([query.suppress.window], catalog, "SUPPRESS FOR")
    for part in parts:
        if isinstance(part, patterns.Operation | patterns.RelatedItems):
            problems += _check_ticks(part, catalog)
    if query.where is None and not query.returns and not per and all(event.predicate is None for event in events):
        return problems
    groups = list_groups(expand_pattern(query.pattern))
    streams = {event.variable: event.stream for event in events if event.variable is not None}
    intervals, series = interval_names(query.pattern), series_names(query.pattern)

    def field_type(field: Field) -> Type | None:
        assert field.variable is not None
        if field == PROBABILITY_OF_MATCH:
            return FLOAT
        if field.variable in series and field.name == SERIES:
            return list_of(catalog.time)
        if field.variable in intervals:
            return _interval_field(field, catalog, problems)
        return _stream_field(field, streams[field.variable], catalog, problems)

    for event in events:
        if event.predicate is not None:
            check_condition(event.predicate, _local(event.stream, catalog, problems), problems)
            _warn_of_hidden_column(event, catalog)
    for conjunct in conjuncts(query.where):
        if isinstance(conjunct, Same):
            for name in conjunct.fields:
                problems += _check_common_field(name, used, catalog, "SAME uses", conjunct.span)
        else:
            check_condition(typed_form(conjunct, groups), field_type, problems)
    for column in query.returns:
        if not is_lineage(column.expression):
            spelt_out = explicit_lists(column.expression, lists_of_result(query), [])
            check_expression(with_probability_field(spelt_out), field_type, problems)
    for value in per:
        kind = check_expression(explicit_lists(value, lists_of_result(query), []), field_type, problems)
        problems += _check_per(value, kind)
    if query.rule is not None:
        return [replace(each, hint=COLLECT_HINT) if each.code == "not-a-list" else each for each in problems]
    return problems


def _check_per(value: Expr, kind: Type) -> Iterator[Problem]:
    """Matches are grouped by numbers, texts, times and booleans."""
    if kind.kind not in (*PLAIN, Kind.NULL):
        yield Problem(
            "suppress-value",
            f"PER takes single values, but this is {kind.word}",
            value.span,
            hint="use one value of it, such as an aggregate of a list or a field of a struct",
        )


def check_expressions(query: patterns.PatternQuery) -> list[Problem]:
    """All problems of the expressions of a query that do not depend on data. The structure is already checked."""
    problems: list[Problem] = []
    found = (node.predicate for node in patterns.walk(query.pattern) if isinstance(node, patterns.Event))
    predicates = [predicate for predicate in found if predicate is not None]
    per = () if query.suppress is None else query.suppress.per
    if query.where is None and not query.returns and not predicates and not per:
        return problems
    groups, results = list_groups(expand_pattern(query.pattern)), lists_of_result(query)
    intervals, series = interval_names(query.pattern), series_names(query.pattern)

    def field_type(field: Field) -> Type | None:
        if field == PROBABILITY_OF_MATCH:
            return FLOAT
        is_series = field.variable in series and field.name == SERIES
        if field.variable in intervals and field.name not in ("s", "e") and not is_series:
            problems.append(_no_interval_field(field))
        return list_of(NULL_TYPE) if is_series else NULL_TYPE

    conditions = [
        *predicates,
        *(typed_form(part, groups) for part in conjuncts(query.where) if not isinstance(part, Same)),
    ]
    for condition in conditions:
        check_without_data(condition, field_type, problems, condition=True)
    for column in query.returns:
        if not is_lineage(column.expression):
            spelt_out = with_probability_field(explicit_lists(column.expression, results, []))
            check_without_data(spelt_out, field_type, problems, condition=False)
    for value in per:
        kind = check_without_data(explicit_lists(value, results, []), field_type, problems, condition=False)
        problems += _check_per(value, kind)
    return problems


def _warn_of_hidden_column(event: patterns.Event, catalog: Catalog) -> None:
    """In brackets, `x.y` is a field of the event `x` although it could be a field of a struct `x`."""
    schema = catalog.stream(event.stream)
    column = schema.fields.get(event.variable) if schema is not None and isinstance(event.variable, str) else None
    if event.predicate is None or column is None or column.parts is None:
        return
    names = [part.name for part in walk_expression(event.predicate) if isinstance(part, Field) and part.variable]
    for name in dict.fromkeys(name for name in names if name in dict(column.parts)):
        own = f"`{event.variable}`"
        warn(f"`{event.variable}.{name}` is a field of the event {own}, not of the column {own}; rename the variable")


def bind_constraint(
    constraint: Constraint, keys: tuple[str, ...], span: Span | None, catalog: Catalog
) -> list[Problem]:
    """The problems of a constraint with these streams. `keys` define a trace."""
    place = constraint.span or span
    if isinstance(constraint, EndsWithin):
        return list(_check_windows([constraint.window], catalog))
    problems: list[Problem] = []
    for name in constraint.streams:
        schema = catalog.stream(name)
        if schema is None:
            problems.append(
                Problem(
                    "unknown-stream",
                    f"unknown stream `{name}`",
                    place,
                    label=f"streams: {', '.join(map(str, catalog.streams))}",
                    hint=did_you_mean(name, map(str, catalog.streams)),
                )
            )
        elif schema.end is not None:
            problems.append(
                Problem(
                    "constraint-interval",
                    f"constraints need events without a duration, but `{name}` has an end column `{schema.end}`",
                    place,
                    hint="remove `end`, or remove the constraint",
                )
            )
    if not problems:
        for key in keys:
            problems += _check_common_field(key, constraint.streams, catalog, "PARTITION BY uses", place)
    return problems


def _unknown_stream(event: patterns.Event, catalog: Catalog) -> Problem:
    if isinstance(event.stream, AnyEvent):
        return _no_table_of_all(event)
    return Problem(
        "unknown-stream",
        f"unknown stream `{event.stream}`",
        _name_span(event.span, str(event.stream)),
        label=f"streams: {', '.join(map(str, catalog.streams))}",
        hint=did_you_mean(str(event.stream), map(str, catalog.streams)),
    )


def _no_table_of_all(event: patterns.Event) -> Problem:
    return Problem(
        "any-event-tables",
        f"`{event.stream}` needs one table of all events",
        event.span,
        hint="put the events into one table, and set `type` to the column with the stream names, if there is one",
    )


def _name_span(span: Span | None, name: str) -> Span | None:
    return None if span is None else span.head(len(name))


def _local(stream: Stream, catalog: Catalog, problems: list[Problem]) -> FieldType:
    return lambda field: _stream_field(field, stream, catalog, problems)


def _interval_field(field: Field, catalog: Catalog, problems: list[Problem]) -> Type | None:
    if field.name in ("s", "e"):
        hiding = [name for name, schema in catalog.streams.items() if schema.hides(field.name)]
        if hiding or (catalog.any_stream is not None and catalog.any_stream.hides(field.name)):
            problems.append(_ambiguous(field, hiding[0] if hiding else "*", catalog))
            return None
        return catalog.time
    problems.append(_no_interval_field(field))
    return None


def _no_interval_field(field: Field) -> Problem:
    return Problem(
        "no-such-field",
        f"`{field.variable}` is an interval and has no field `{field.name}`",
        _field_span(field),
        label="fields: s, e",
        hint=f"use the variable of an event inside `{field.variable}`",
    )


def _stream_field(field: Field, stream: Stream, catalog: Catalog, problems: list[Problem]) -> Type | None:
    schema = catalog.stream(stream)
    assert schema is not None
    if schema.hides(field.name):
        problems.append(_ambiguous(field, stream, catalog))
        return None
    if schema.endpoint(field.name) is not None:
        return catalog.time
    if field.name in schema.fields:
        return schema.fields[field.name]
    if field.name == WHOLE_EVENT:
        return schema.whole
    if field.name in schema.unusable:
        problems.append(replace(schema.unusable[field.name], span=_field_span(field)))
        return None
    problems.append(
        Problem(
            "no-such-field",
            f"{_holder(stream)} no field `{field.name}`",
            _field_span(field),
            label=f"fields: {', '.join(schema.fields)}",
            hint=did_you_mean(field.name, schema.fields),
        )
    )
    return None


def _holder(stream: Stream) -> str:
    if not isinstance(stream, AnyEvent):
        return f"stream `{stream}` has"
    return f"the events of `{stream}` have"


def _ambiguous(field: Field, stream: Stream, catalog: Catalog) -> Problem:
    schema = catalog.stream(stream)
    if schema is not None and schema.derived:
        hint = f"rename the column in the RETURN of `{stream}`"
    else:
        hint = f"rename column `{field.name}` of the events, or use it as the time or end column"
    holder = f"of stream `{stream}`" if not isinstance(stream, AnyEvent) else "of the events"
    return Problem(
        "ambiguous-field",
        f"`{field.name}` is both the {_time_word(field.name)} of an event and a column {holder}",
        _field_span(field),
        hint=hint,
    )


def _time_word(name: str) -> str:
    return {"s": "start", "t": "time", "e": "end"}[name]


def _field_span(field: Field) -> Span | None:
    """The part of `a.amount` after the dot."""
    if field.span is None or field.variable is None:
        return field.span
    return field.span.tail(len(str(field.variable)) + 1, len(field.name))


def _place_of_key(name: str, events: Iterable[patterns.Event]) -> Span | None:
    """The place of the first argument of a rule with this attribute."""
    return next((attribute.span for event in events for attribute in event.attributes if attribute.name == name), None)


def _check_common_field(
    name: str, streams: tuple[Stream, ...], catalog: Catalog, clause: str, span: Span | None
) -> Iterator[Problem]:
    """The first problem of a field that all streams must have with comparable types."""
    first: tuple[Stream, Kind] | None = None
    for stream in streams:
        schema = catalog.stream(stream)
        assert schema is not None
        is_time = schema.endpoint(name) is not None
        if name in schema.unusable:
            yield replace(schema.unusable[name], span=span)
            return
        if not is_time and name not in schema.fields:
            holder = f"stream `{stream}` does" if catalog.any_stream is None else "the events do"
            yield Problem(
                "no-such-field",
                f"{clause} field `{name}`, which {holder} not have",
                span,
                label=f"fields: {', '.join(schema.fields)}",
                hint=did_you_mean(name, schema.fields),
            )
            return
        found = catalog.time if is_time else schema.fields[name]
        kind = Kind.FLOAT if found.kind is Kind.INTEGER else found.kind
        if kind is Kind.OTHER:
            yield Problem("type-clash", f"{clause} `{name}`, whose type {found.name} cannot be compared", span)
            return
        if first is None or first[1] is Kind.NULL:
            first = (stream, kind)
        elif kind not in (first[1], Kind.NULL):
            yield Problem(
                "type-clash",
                f"{clause} `{name}`, which has type {first[1].word} in `{first[0]}` but {kind.word} in `{stream}`",
                span,
                hint="convert both columns to the same type first",
            )
            return


def _check_ticks(part: patterns.Operation | patterns.RelatedItems, catalog: Catalog) -> Iterator[Problem]:
    """The duration of an operator is at least one unit of the time column; a timer is a multiple of it."""
    if isinstance(part, patterns.RelatedItems):
        for timer in part.timers:
            if isinstance(timer.name, Edge):
                yield from _check_timer(timer.name.interval, timer.window, catalog)
    elif isinstance(part.window, Duration) and part.window.nanoseconds < NANOSECONDS_PER_UNIT.get(catalog.time.unit, 0):
        yield Problem(
            "window-size",
            f"the duration of {part.operator} is shorter than the unit of the time column ({catalog.unit})",
            part.window.span,
            hint="use a longer duration, or a time column with a finer unit",
        )


def _check_timer(name: str, window: patterns.Window, catalog: Catalog) -> Iterator[Problem]:
    """The length of a timer is a multiple of the unit of time, so that its end is a timestamp."""
    if not isinstance(window, Duration) or catalog.unit is None:
        return
    if window.nanoseconds % NANOSECONDS_PER_UNIT[catalog.unit]:
        yield Problem(
            "window-size",
            f"the length of timer `{name}` is not a multiple of the unit of the time column ({catalog.unit})",
            window.span,
            hint="use a multiple of the unit, or a time column with a finer unit",
        )


def _check_first_one(query: patterns.PatternQuery, catalog: Catalog) -> Iterator[Problem]:
    """Under a context, UNLESS compares the ends of the composites of its last operand: all or none have an order."""
    pattern = operator_of(query.pattern)
    last = patterns.children(pattern)[-1:] if operator_word(pattern) == "UNLESS" else ()
    if any(isinstance(item, patterns.Event) and catalog.has_ordered_ends(item.stream) is None for item in last):
        yield Problem(
            "policy-operator",
            f"MATCH {query.policy} does not support UNLESS if only some matches of its last item end with an event "
            "that has order columns",
            pattern.span,
            hint="declare the last item as a STREAM without the policy, and use its events here; if a table lacks the "
            "order columns, you can also add them",
        )


def _check_windows(windows: Iterable[patterns.Window], catalog: Catalog, clause: str = "WITHIN") -> Iterator[Problem]:
    """Windows have a unit if the time column has timestamps, and no unit if it has integers."""
    unit = catalog.unit
    for window in windows:
        if unit is None and isinstance(window, Duration):
            yield Problem(
                "window-unit",
                "the time column has integers, so a window must not have a unit",
                window.span,
                hint=f"write a number without a unit, such as `{clause} 100`, or convert the column to timestamps",
            )
        if unit is not None and isinstance(window, patterns.Ticks):
            yield Problem(
                "window-unit",
                f"the time column has timestamps, so `{clause} {window.count}` needs a unit",
                window.span,
                hint=f"write `{clause} {window.count}s`, or another unit",
            )
