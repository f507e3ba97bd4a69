"""Checks the columns that a pipeline uses before Spark starts, as far as they are known: names, types, outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from ensue.actions import webhook
from ensue.actions.bindings import resolve_actions
from ensue.analysis.catalog import inferred_catalog
from ensue.apps.pipelines.ddl import UNKNOWN, DdlError
from ensue.apps.pipelines.model import Pipeline, SourceOfEvents, SparkSinkOf, Table
from ensue.apps.pipelines.source_columns import OF_KAFKA, OtherType, SourceColumns, columns_of, declared
from ensue.apps.pipelines.yaml_tree import FileValue, redact
from ensue.errors import CodedError, Problem, QueryError, Span, did_you_mean
from ensue.lower.phases import LoweredProgram, lower
from ensue.nodes.rules import Ruleset
from ensue.plan.program_plans import Columns, ProgramPlan, plan_queries, plan_violations
from ensue.programs import constraints_alone, program_statements, written_statements
from ensue.runtimes.tables import fixed_tables

_NESTED = ("csv", "text")
"""Formats of outputs that have no lists and no objects."""
_QUOTED_PART = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_PATH = re.compile(r"(?:`(?:[^`]|``)+`|[A-Za-z_]\w*)(?:\s*\.\s*(?:`(?:[^`]|``)+`|[A-Za-z_]\w*))*")
_PART = re.compile(r"`((?:[^`]|``)+)`|(\w+)")
_WORDS = re.compile(
    r"and|or|not|is|null|true|false|case|when|then|else|end|in|like|rlike|ilike|between|as|cast|try_cast|from|for"
    r"|to|interval|distinct|div|year|years|month|months|week|weeks|day|days|hour|hours|minute|minutes|second"
    r"|seconds|millisecond|milliseconds|microsecond|microseconds|current_timestamp|current_date|timestamp"
    r"|timestamp_ntz|timestamp_ltz|date|string|int|integer|bigint|long|smallint|short|tinyint|byte|float|real"
    r"|double|boolean|binary|decimal|numeric|array|map|struct|char|varchar|escape|any|all|some|exists|over"
    r"|partition|order|by|asc|desc|nulls|first|last|rows|range|unbounded|preceding|following|current|row|both"
    r"|leading|trailing",
    re.IGNORECASE,
)
"""Words of Spark SQL that are not columns in an expression."""

Value = TypeVar("Value")


def check_columns(pipeline: Pipeline) -> None:
    """Raises a QueryError with the columns that the pipeline uses and its sources do not have.

    It reads schemas, headers of CSV files, footers of Parquet files and a sample of JSON, and does not start Spark.
    What only Spark knows is not checked.
    """
    checks = _Checks(pipeline)
    sources = [checks.source(source) for source in pipeline.sources]
    tables = {name: checks.table(table) for name, table in pipeline.tables.items()}
    if not checks.problems:
        checks.program(sources, tables)
    if checks.problems:
        problems = [cleaned(problem, pipeline.hidden) for problem in checks.problems]
        problems.sort(key=lambda problem: -1 if problem.span is None else problem.span.start)
        raise QueryError(problems, pipeline.source)


def cleaned(problem: Problem, hidden: Mapping[str, str]) -> Problem:
    """Returns the problem without the values of variables."""
    message, label, hint = (redact(text, hidden) for text in (problem.message, problem.label, problem.hint))
    return replace(problem, message=message, label=label, hint=hint)


@dataclass(frozen=True, slots=True)
class _Checks:
    pipeline: Pipeline
    problems: list[Problem] = field(default_factory=list)

    # --- sources and tables

    def source(self, source: SourceOfEvents) -> SourceColumns | None:
        """Returns the columns of the events of a source, and collects the problems of its keys."""
        known = self._read(source.table)
        if source.value is not None:
            known = self._of_value(source, source.value, known)
        known = self._with_columns(source.table, known)
        if known is None:
            return None
        for key in ("time", "type", "end", "watermark_column"):
            given: FileValue | None = getattr(source, key)
            if given is not None:
                self._column(given, known, any_case=key == "watermark_column")
        for given in source.order:
            self._column(given, known)
        return known

    def table(self, table: Table) -> SourceColumns | None:
        """Returns the columns of a TABLE."""
        return self._with_columns(table, self._read(table))

    def _read(self, table: Table) -> SourceColumns | None:
        known = self._declared(table.schema, lambda: columns_of(table))
        if known is None:
            return None
        place = _place_of(table)
        if known.is_empty:
            hint = "put files in it first, or declare the columns with `schema: id BIGINT, at TIMESTAMP, ...`"
            said = self.pipeline.source.quote(place.span)
            self._add("pipeline-files", f"`{said}` has no files, so its columns are unknown", place, hint=hint)
            return None
        for sentence in known.headers:
            hint = "Spark reads CSV files by position; give all files the same columns in the order of `schema`"
            self._add("pipeline-files", sentence, place, hint=hint)
        return known

    def _of_value(self, source: SourceOfEvents, value: FileValue, known: SourceColumns | None) -> SourceColumns | None:
        if known is not None and known.complete and "value" not in known.schema.names:
            message = "the source has no column `value` with JSON"
            hint = "remove `value` (it is for Kafka and text files), or specify the columns with `schema`"
            self._add("no-such-column", message, value, label=_columns_in_words(known.schema.names), hint=hint)
            return None
        fields = self._declared(value, lambda: declared(value.value))
        if fields is None:
            return None
        of_kafka = declared(OF_KAFKA) if source.table.format.value == "kafka" else None
        return SourceColumns(pa.schema(fields)).with_fields(of_kafka or ())

    def _declared(self, ddl: FileValue | None, read: Callable[[], Value | None]) -> Value | None:
        try:
            return read()
        except DdlError as error:
            assert ddl is not None
            self._add("pipeline-value", str(error), ddl, hint=error.hint)
            return None

    def _with_columns(self, table: Table, known: SourceColumns | None) -> SourceColumns | None:
        """Adds the columns of expressions. Spark resolves names in them without regard to case."""
        for name, expression in table.columns.items():
            if known is None:
                return None
            kind = self._type_of(expression, known)
            others = [own for own in known.schema if own.name.lower() != name.lower()]
            mixed = tuple(item for item in known.others if item.column != name)
            schema = pa.schema([*others, pa.field(name, kind)])
            known = SourceColumns(schema, known.complete, mixed if _is_path(expression.value) else known.others)
        return known

    def _type_of(self, expression: FileValue, known: SourceColumns) -> pa.DataType:
        """The type of an expression: that of a column, or unknown. Collects columns that do not exist."""
        names = {own.name.lower(): own for own in known.schema}
        text = _QUOTED_PART.sub(lambda found: " " * len(found[0]), expression.value)
        if _is_path(text):
            first, *rest = _parts(text)
            if first.lower() not in names:
                self._no_column(first, expression, known)
                return UNKNOWN
            kind = names[first.lower()].type
            for part in rest:
                if not pa.types.is_struct(kind):
                    return UNKNOWN
                inner = {own.name.lower(): own.type for own in kind}
                if part.lower() not in inner:
                    hint = did_you_mean(part, inner) or "use one of these fields"
                    message = f"`{first}` has no field `{part}`"
                    self._add("no-such-column", message, expression, f"fields: {', '.join(inner)}", hint, part)
                    return UNKNOWN
                kind = inner[part.lower()]
            return kind
        bound = {name.lower() for found in re.findall(r"\(?([\w\s,]+)\)?\s*->", text) for name in _names(found)}
        for found in _PATH.finditer(text):
            name = _parts(found[0])[0]
            is_word = "`" not in found[0] and _WORDS.fullmatch(name) is not None
            called = text[found.end() :].lstrip().startswith("(")
            member = text[: found.start()].rstrip().endswith((".", ":"))
            # Only names that are nearly those of a column: some words of Spark SQL look like columns.
            if not (is_word or called or member or name.lower() in (names.keys() | bound)) and did_you_mean(
                name, known.schema.names
            ):
                self._no_column(name, expression, known)
        return UNKNOWN

    def _column(self, given: FileValue, known: SourceColumns, any_case: bool = False) -> None:
        names = known.schema.names
        if given.value in names or (any_case and given.value.lower() in map(str.lower, names)):
            return
        if known.complete or did_you_mean(given.value, names):
            self._no_column(given.value, given, known)

    def _no_column(self, name: str, given: FileValue, known: SourceColumns) -> None:
        names = known.schema.names
        shown = given.raw if name == given.value else name
        hint = did_you_mean(name, names) or "use one of these columns, or add it with `columns`"
        self._add("no-such-column", f"the source has no column `{shown}`", given, _columns_in_words(names), hint, name)

    def _add(self, code: str, message: str, given: FileValue, label: str = "", hint: str = "", part: str = "") -> None:
        """Adds a problem at a value, or at a part of its text."""
        span = given.span
        inside = re.search(rf"(?<!\w){re.escape(part)}(?!\w)", self.pipeline.source.text[span.start : span.end])
        if part and inside is not None:
            span = Span(span.start + inside.start(), span.start + inside.end())
        self.problems.append(Problem(code, message, span, label, hint))

    # --- the program over these columns

    def program(self, sources: list[SourceColumns | None], tables: Mapping[str, SourceColumns | None]) -> None:
        """Plans the program over tables without rows, and collects the problems that concern the pipeline file.

        Raises QueryError for a problem in the program, with its place there.
        """
        own = self.pipeline
        programs = list(_programs(own))
        used = {name for statements in programs for name in _used_names(statements)}
        mixed = [
            (item, source)
            for source, known in zip(own.sources, sources, strict=True)
            for item in (() if known is None else known.others)
            if item.column in used or _WHOLE in used or item.column in {given.value for given in _roles(source)}
        ]
        self.problems.extend(_other_types(*pair) for pair in mixed if pair[0].is_refused)
        if self.problems or all(known is None for known in sources):
            return
        events = {
            _value(source.stream): _empty(known, source, used)
            for source, known in zip(own.sources, sources, strict=True)
        }
        try:
            for statements in programs:
                self._outputs(self._plan(statements, events, tables, used))
        except QueryError as error:
            self.problems.extend(_other_types(*pair) for pair in mixed)
            if not mixed:
                raise in_file(error, self.pipeline) from None
        except CodedError as error:
            # A column may be text only because of some files: then that is the reason.
            self.problems.extend([_other_types(*pair) for pair in mixed] or [located(error, self.pipeline)])

    def _plan(
        self,
        statements: LoweredProgram,
        events: Mapping[str | None, pa.Table],
        tables: Mapping[str, SourceColumns | None],
        used: Iterable[str],
    ) -> ProgramPlan:
        own = self.pipeline
        given = events[None] if None in events else {str(name): table for name, table in events.items()}
        columns = reading_of(own)
        if statements.statements:
            rows = {name: _rows_of(known, statements, name) for name, known in tables.items()}
            fixed = fixed_tables(rows or None, statements)
            return plan_queries(given, statements, columns, match_id=own.match_id, fixed=fixed)
        return plan_violations(given, statements, Columns(columns.time, columns.type))

    def _outputs(self, planned: ProgramPlan) -> None:
        """Collects the outputs whose format cannot hold their columns."""
        named = {str(plan.query.name): output for plan, output in zip(planned.plans, planned.outputs, strict=True)}
        for name, sink in self.pipeline.outputs.items():
            if not isinstance(sink, SparkSinkOf) or sink.format.value not in _NESTED or name not in named:
                continue
            schema = named[name].schema
            nested = [own.name for own in schema if pa.types.is_nested(own.type)]
            if nested:
                message = f"format `{sink.format}` cannot hold the list or object in column `{nested[0]}` of `{name}`"
                hint = "use `json` or `parquet`, or RETURN single values"
                self._add("pipeline-sink", message, sink.format, hint=hint)
            elif sink.format.value == "text" and (len(schema) != 1 or not pa.types.is_string(schema[0].type)):
                message = f"format `text` holds one column of text, but `{name}` has {_columns_in_words(schema.names)}"
                self._add("pipeline-sink", message, sink.format, hint="use `json`, `csv` or `parquet`")


_WHOLE = "*"
"""Among the names of columns that a program uses: all of them."""


def in_file(error: QueryError, pipeline: Pipeline) -> QueryError:
    """Returns the error of a program inside the pipeline file with the lines of this file."""
    if error.source is None or error.source.name != pipeline.source.name:
        return error
    return QueryError(error.problems, pipeline.source)


def located(error: CodedError, pipeline: Pipeline) -> Problem:
    """Returns the problem of an error about events or tables, at the key of the file that names the column."""
    code, hint = error.code, f"\nhint: {error.hint}" if error.hint else ""
    message = str(error).removeprefix(f"error[{code}]: ").removesuffix(hint)
    given = [column for source in pipeline.sources for column in _roles(source)]
    of_tables = [_place_of(table) for name, table in pipeline.tables.items() if f"`{name}`" in message]
    named = [column for column in given if f"`{column.value}`" in message]
    place = next(iter([*of_tables, *named, _place_of(pipeline.sources[0].table)]))
    if code != "time-type":
        return Problem(code, message, place.span, hint=error.hint)
    column = place.value
    hint = (
        f"convert it with `columns: {{{column}: CAST({column} AS TIMESTAMP)}}`, or declare it in `schema` as TIMESTAMP"
    )
    return Problem(code, message, place.span, hint=hint)


def reading_of(pipeline: Pipeline) -> Columns:
    """Returns the columns with the time, the stream, the end and the order of the events."""
    sources = pipeline.sources
    order = next(([column.value for column in source.order] for source in sources if source.order), None)
    first = sources[0]
    if first.stream is None:
        return Columns(first.time.value, _value(first.type), _value(first.end), order=order)
    times = {source.stream.value: source.time.value for source in sources if source.stream is not None}
    ends = {source.stream.value: source.end.value for source in sources if source.stream and source.end}
    return Columns(times, end=ends or None, order=order)


def _programs(own: Pipeline) -> Iterator[LoweredProgram]:
    """The statements that run: patterns and rules, those that call actions, and constraints."""
    if own.program.names:
        yield program_statements(own.program)
    if own.actions:
        receiver = webhook("http://localhost")
        yield program_statements(resolve_actions(own.program, dict.fromkeys(own.actions, receiver)).program)
    if own.violations is not None:
        yield lower(constraints_alone(written_statements(own.program)))


def _used_names(statements: LoweredProgram) -> set[str]:
    names = set()
    for query in statements.statements:
        schema = inferred_catalog(query).any_stream
        names |= set() if schema is None else set(schema.fields)
        if not query.returns:
            names.add(_WHOLE)
    return names | {name for entry in statements.constraints for name in entry.partition_by}


def _empty(known: SourceColumns | None, source: SourceOfEvents, used: Iterable[str]) -> pa.Table:
    """A table without rows. Columns that may exist have the type null."""
    fields = {} if known is None else {own.name: own.type for own in known.schema}
    if known is None or not known.complete:
        wanted = [*used, *(given.value for given in _roles(source))]
        fields |= {
            name: UNKNOWN for name in wanted if name not in fields and name != _WHOLE and not did_you_mean(name, fields)
        }
    return pa.schema(list(fields.items())).empty_table()


def _rows_of(known: SourceColumns | None, statements: LoweredProgram, name: str) -> pa.Table:
    """The columns of a TABLE, without rows."""
    wanted = [
        column for entry in (statements.ruleset or Ruleset()).tables if entry.name == name for column in entry.columns
    ]
    fields = {} if known is None else {own.name: own.type for own in known.schema}
    if known is None or not known.complete:
        fields |= {column: UNKNOWN for column in wanted if column not in fields and not did_you_mean(column, fields)}
    return pa.schema(list(fields.items())).empty_table()


def _roles(source: SourceOfEvents) -> list[FileValue]:
    return [given for given in (source.time, source.type, source.end, *source.order) if given is not None]


def _place_of(table: Table) -> FileValue:
    return table.format if table.path is None else table.path


def _value(given: FileValue | None) -> str | None:
    return None if given is None else given.value


def _other_types(item: OtherType, source: SourceOfEvents) -> Problem:
    """The problem of files that have a column with different types."""
    place = _place_of(source.table)
    if item.file == item.other_file:
        files = f"`{item.file}` has both {item.other_type} and {item.type}"
    else:
        others = "`schema` declares" if item.other_file == "`schema`" else f"`{item.other_file}` has"
        files = f"`{item.file}` has {item.type}, {others} {item.other_type}"
    message = f"column `{item.column}` has different types: {files}"
    if item.is_refused:
        hint = "Spark reads a column of Parquet files with one type: write the files again with the same type"
        if item.wider:
            hint = f"declare the larger type: `schema: {item.column} {item.wider}, ...`, with all columns"
    else:
        hint = (
            f"Spark reads it as text: declare it, such as `schema: {item.column} {item.other_type}, ...` with all "
            "columns; values of other types are then null, or use `options: {mode: FAILFAST}` to stop there"
        )
    return Problem("pipeline-files", message, place.span, hint=hint)


def _columns_in_words(names: Iterable[str]) -> str:
    return f"columns: {', '.join(names)}"


# --- expressions of Spark SQL


def _is_path(expression: str) -> bool:
    return _PATH.fullmatch(expression.strip()) is not None and _WORDS.fullmatch(expression.strip()) is None


def _parts(path: str) -> list[str]:
    """The names of a path.

    >>> _parts("user.`zip code`")
    ['user', 'zip code']
    """
    return [quoted.replace("``", "`") or word for quoted, word in _PART.findall(path)]


def _names(text: str) -> list[str]:
    return re.findall(r"\w+", text)
