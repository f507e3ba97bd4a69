"""Checks that the parts of a pipeline are consistent: mode and options, names in the program, existing files."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.apps.pipelines.validation import CheckedMapping
from ensue.apps.pipelines.yaml_tree import FileValue
from ensue.errors import Problem, Span, closest, did_you_mean
from ensue.nodes.rules import Ruleset
from ensue.plan.partial import partial_problems
from ensue.programs import Program

FILE_FORMATS = ("avro", "binaryFile", "csv", "json", "orc", "parquet", "text", "xml")
KNOWN_FORMATS = (
    *FILE_FORMATS,
    "delta",
    "hudi",
    "iceberg",
    "jdbc",
    "kafka",
    "noop",
    "rate",
    "rate-micro-batch",
    "socket",
)
NEEDS_SCHEMA = ("avro", "csv", "json", "orc", "parquet", "xml")
"""Formats that require a schema in a stream."""

STREAM_ONLY = ("timed_out", "checkpointLocation", "trigger", "emit", "tick", "buckets")
SOURCE_STREAM_ONLY = ("watermark", "watermark_column", "late")
RESULTS = ("outputs", "timed_out", "violations", "actions")
KAFKA_CHOICES = ("subscribe", "subscribePattern", "assign")
_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|.*[*?\[{]")
"""URLs such as `s3a://...` and glob patterns, which cannot be checked here."""


def check_fit(values: CheckedMapping, program: Program | None, folder: Path) -> list[Problem]:
    """Returns the inconsistencies. Without a program, it skips the checks that need one."""
    return list(_Fit(values, program, folder).problems())


@dataclass(frozen=True, slots=True)
class _Fit:
    values: CheckedMapping
    program: Program | None
    folder: Path

    @property
    def streaming(self) -> bool:
        return _value(self.values, "mode") == "stream"

    def problems(self) -> Iterator[Problem]:
        yield from self._mode()
        yield from self._sources()
        yield from self._tables()
        for sink in (*self._row_sinks(), *self._receivers()):
            yield from self._sink(sink)
        yield from self._dead_letters()
        if self.program is not None:
            yield from self._results(self.program)
            yield from self._partial_matches(self.program)
            yield from self._violations(self.program)
            yield from self._actions(self.program)
            yield from self._declared_tables(self.program)

    def _row_sinks(self) -> list[CheckedMapping]:
        """Returns the sinks of rows that are mappings."""
        sources = [item for item in _list(self.values, "sources") if isinstance(item, CheckedMapping)]
        found = [source.values.get(key) for source in sources for key in ("late", "rejected")]
        found += [*_members(self.values, "outputs").values(), *_members(self.values, "timed_out").values()]
        found.append(self.values.values.get("violations"))
        return [sink for sink in found if isinstance(sink, CheckedMapping)]

    def _receivers(self) -> list[CheckedMapping]:
        return [sink for sink in _members(self.values, "actions").values() if isinstance(sink, CheckedMapping)]

    def _mode(self) -> Iterator[Problem]:
        if not self.streaming:
            for key in STREAM_ONLY:
                if key in self.values.places:
                    yield _option(
                        f"`{key}` requires `mode: stream`", self.values.places[key], "add `mode: stream`, or remove it"
                    )
        elif "checkpointLocation" not in self.values.places:
            hint = "add `checkpointLocation: checkpoint`, a folder that only this pipeline uses"
            yield _option("a stream requires `checkpointLocation`", self.values.places["mode"], hint)

    def _sources(self) -> Iterator[Problem]:
        sources = [item for item in _list(self.values, "sources") if isinstance(item, CheckedMapping)]
        seen: set[str] = set()
        for source in sources:
            yield from self._source(source)
            stream = _value(source, "stream")
            if stream is None and "stream" not in source.places and len(sources) > 1:
                hint = "add `stream: NAME`, or use one source with `type`"
                yield _option("with several sources, each source needs `stream`", _begin(source), hint)
            if stream is not None and stream in seen:
                yield _option(
                    f"stream `{stream}` has two sources", source.places["stream"], "combine them in one source"
                )
            seen.add(stream or "")
        yield from _orders(sources)
        yield from self._shared_mode(sources)

    def _source(self, source: CheckedMapping) -> Iterator[Problem]:
        yield from _format_problems(source)
        yield from self._place(source, "source")
        if "stream" in source.places and "type" in source.places:
            message = "a source accepts `stream` or `type`, not both"
            yield _option(message, source.places["type"], "remove one of them")
        format = _value(source, "format")
        if format == "kafka":
            yield from _kafka(source)
        if "rejected" in source.places and "value" not in source.places:
            hint = "remove it, or add `value` with the columns of a JSON record"
            yield _option("`rejected` requires `value`", source.places["rejected"], hint)

    def _shared_mode(self, sources: list[CheckedMapping]) -> Iterator[Problem]:
        for source in sources:
            format = _value(source, "format")
            if not self.streaming:
                for key in SOURCE_STREAM_ONLY:
                    if key in source.places:
                        yield _option(
                            f"`{key}` requires `mode: stream`", source.places[key], "add `mode: stream`, or remove it"
                        )
                continue
            if "watermark" not in source.places:
                hint = "add how late events may arrive, such as `watermark: 10m`"
                yield _option("the source of a stream requires `watermark`", _begin(source), hint)
            if format in NEEDS_SCHEMA and "schema" not in source.places:
                hint = "add `schema: id BIGINT, at TIMESTAMP, ...`; `ensue init --events FILE` writes it"
                yield _option(f"a stream of {format} files requires `schema`", _begin(source), hint)

    def _tables(self) -> Iterator[Problem]:
        for table in _members(self.values, "tables").values():
            if isinstance(table, CheckedMapping):
                yield from _format_problems(table)
                yield from self._place(table, "table")

    def _place(self, item: CheckedMapping, what: str) -> Iterator[Problem]:
        """Checks that a file format has a path, and that a local path exists."""
        path, format = item.values.get("path"), _value(item, "format")
        if "path" not in item.places and format in FILE_FORMATS and "path" not in _members(item, "options"):
            hint = f"add the path of the {format} files"
            yield Problem("pipeline-key", f"the {what} requires `path`", _begin(item), hint=hint)
        if isinstance(path, FileValue) and not _PLACE.match(path.value):
            there = self.folder / path.value
            if not there.exists():
                yield not_there(what, path, there)
            elif self.streaming and what == "source" and format in FILE_FORMATS and there.is_file():
                hint = "use the folder of the file; Spark reads each new file in it once"
                yield Problem("pipeline-file", f"a stream reads a folder, but `{path}` is a file", path.span, hint=hint)

    def _sink(self, sink: CheckedMapping) -> Iterator[Problem]:
        yield from _format_problems(sink)
        hook = "webhook" in sink.places
        for key in ("path", "options", "mode") if hook else ("headers", "timeout"):
            if key in sink.places:
                other = "a Spark format" if hook else "a webhook"
                yield _option(f"`{key}` is only allowed with {other}", sink.places[key], "remove it")
        has_path = "path" in sink.places or "path" in _members(sink, "options")
        if _value(sink, "format") in FILE_FORMATS and not has_path:
            message, hint = "an output with a file format requires `path`", "add the folder to write to"
            yield Problem("pipeline-key", message, _begin(sink), hint=hint)
        mode = _value(sink, "mode")
        if self.streaming and mode not in (None, "append"):
            hint = "remove `mode`"
            yield _option(f"a stream only supports `mode: append`, found `{mode}`", sink.places["mode"], hint)
        address = sink.values.get("webhook")
        if isinstance(address, FileValue) and not re.match(r"https?://[^/]", address.value):
            message, hint = f"`webhook` must be an http or https URL, found `{address}`", "start it with `https://`"
            yield Problem("pipeline-value", message, address.span, hint=hint)

    def _dead_letters(self) -> Iterator[Problem]:
        delivery = self.values.values.get("delivery")
        has_letters = isinstance(delivery, CheckedMapping) and "dead_letters" in delivery.places
        calls = [*(sink for sink in self._row_sinks() if "webhook" in sink.places), *self._receivers()]
        if self.streaming and calls and not has_letters:
            hint = "add `delivery: {dead_letters: dead-letters}`, a folder for undeliverable calls"
            yield _option("a stream with webhooks or actions requires `dead_letters`", _begin(calls[0]), hint)
        if isinstance(delivery, CheckedMapping) and not calls:
            message = "`delivery` is only allowed with webhooks or actions"
            yield _option(message, self.values.places["delivery"], "remove it")

    def _results(self, program: Program) -> Iterator[Problem]:
        names = program.names
        outputs = self.values.values.get("outputs")
        for name, place in (outputs.places if isinstance(outputs, CheckedMapping) else {}).items():
            if name not in names:
                yield Problem(
                    "pipeline-output",
                    f"the program has no pattern or rule `{name}`",
                    place,
                    label=f"patterns and rules: {', '.join(names)}" if names else "",
                    hint=did_you_mean(name, names) or "remove it, or add the pattern to the program",
                )
        if not self.values.places.keys() & set(RESULTS):
            hint = f"add `outputs: {{{names[0]}: console}}`" if names else "add `actions`"
            yield Problem("pipeline-key", "the pipeline has no output", _begin(self.values), hint=hint)

    def _partial_matches(self, program: Program) -> Iterator[Problem]:
        """Checks that each name in `timed_out` is a pattern that can time out."""
        patterns = dict(zip(program.names, program.statements.results, strict=False))
        given = self.values.values.get("timed_out")
        for name, place in (given.places if isinstance(given, CheckedMapping) else {}).items():
            if name not in patterns:
                label = f"patterns: {', '.join(patterns)}" if patterns else ""
                message = f"the program has no pattern `{name}`"
                hint = did_you_mean(name, patterns) or "remove it; only patterns can time out"
                yield Problem("pipeline-output", message, place, label, hint)
                continue
            for problem in partial_problems(patterns[name]):
                message = f"partial matches of `{name}` are not supported: {problem.message}"
                yield Problem("pipeline-output", message, place, hint=problem.hint or "remove it")

    def _violations(self, program: Program) -> Iterator[Problem]:
        place = self.values.places.get("violations")
        if place is not None and not program.statements.constraints:
            hint = "add one such as `CONSTRAINT PRIOR(Order, Paid) PARTITION BY id`, or remove `violations`"
            yield Problem("pipeline-output", "`violations` requires a CONSTRAINT in the program", place, hint=hint)

    def _actions(self, program: Program) -> Iterator[Problem]:
        called = tuple(dict.fromkeys(action.action for action in _ruleset(program).actions))
        given = self.values.values.get("actions")
        places: Mapping[str, Span] = given.places if isinstance(given, CheckedMapping) else {}
        label = f"actions: {', '.join(called)}" if called else "the program has no ON statement"
        for name, place in places.items():
            if name not in called:
                message = f"no ON statement of the program calls `{name}`"
                yield Problem("pipeline-action", message, place, label, did_you_mean(name, called) or "remove it")
        for name in called:
            if name not in places:
                place = self.values.places.get("actions", _begin(self.values))
                hint = f"add `{name}` to `actions`, with `webhook` or `format`"
                yield Problem("pipeline-action", f"action `{name}` has no receiver", place, hint=hint)

    def _declared_tables(self, program: Program) -> Iterator[Problem]:
        ruleset = _ruleset(program)
        declared = [table.name for table in ruleset.tables]
        given = self.values.values.get("tables")
        places: Mapping[str, Span] = given.places if isinstance(given, CheckedMapping) else {}
        for name, place in places.items():
            if name not in declared:
                label = f"tables: {', '.join(declared)}" if declared else "the program declares no tables"
                message = f"the program has no TABLE `{name}`"
                yield Problem("pipeline-table", message, place, label, did_you_mean(name, declared) or "remove it")
        for name in declared:
            if name not in places and name not in {fact.table for fact in ruleset.facts}:
                place = self.values.places.get("tables", _begin(self.values))
                hint = f"add `{name}` to `tables`, with its `format` and `path`"
                yield Problem("pipeline-table", f"TABLE `{name}` of the program has no source", place, hint=hint)


def _orders(sources: list[CheckedMapping]) -> Iterator[Problem]:
    """Checks that the sources are ordered by the same columns: events of different sources are compared as well."""
    given = [(source, [column.value for column in _list(source, "order")]) for source in sources]
    ordered = [(source, names) for source, names in given if names]
    for source, names in ordered[1:]:
        if names != ordered[0][1]:
            message = f"the sources have different orders: `{', '.join(ordered[0][1])}` and `{', '.join(names)}`"
            hint = "rename columns with `columns`, so that all sources are ordered by the same names"
            yield _option(message, source.places["order"], hint)


def _ruleset(program: Program) -> Ruleset:
    return program.statements.ruleset or Ruleset()


def _kafka(source: CheckedMapping) -> Iterator[Problem]:
    options = _members(source, "options")
    if "kafka.bootstrap.servers" not in options:
        yield _option("Kafka requires the option `kafka.bootstrap.servers`", _begin(source), "add it to `options`")
    if not any(choice in options for choice in KAFKA_CHOICES):
        hint = "add `subscribe` to `options`, with the topics separated by commas"
        yield _option("Kafka requires the option `subscribe`", _begin(source), hint)
    if "value" not in source.places:
        hint = "add the columns of a JSON record, such as `value: id BIGINT, at TIMESTAMP`"
        yield _option("a Kafka source requires `value`", _begin(source), hint)


def _format_problems(item: CheckedMapping) -> Iterator[Problem]:
    """Checks for misspelt formats. Unknown formats are allowed, because packages can add formats."""
    format = item.values.get("format")
    if isinstance(format, FileValue) and format.value not in KNOWN_FORMATS and "." not in format.value:
        near = closest(format.value, KNOWN_FORMATS, 0.75)
        if near is not None and near.casefold() != format.value.casefold():
            yield Problem(
                "pipeline-value", f"unknown Spark format `{format}`", format.span, hint=f"did you mean `{near}`?"
            )


def not_there(what: str, given: FileValue, path: Path) -> Problem:
    """Returns the problem of a missing file, with the most similar name as a hint."""
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    guess = difflib.get_close_matches(path.name, beside, n=1)
    hint = f"did you mean `{guess[0]}`?" if guess else "check the path; it is relative to the pipeline file"
    return Problem("pipeline-file", f"{what} `{given}` not found", given.span, hint=hint)


def _option(message: str, place: Span, hint: str) -> Problem:
    return Problem("pipeline-option", message, place, hint=hint)


def _begin(item: CheckedMapping) -> Span:
    return Span(item.span.start, item.span.start + 1)


def _value(item: CheckedMapping, key: str) -> str | None:
    given = item.values.get(key)
    return given.value if isinstance(given, FileValue) else None


def _members(item: CheckedMapping, key: str) -> dict[str, Any]:
    found = item.values.get(key)
    return dict(found.values) if isinstance(found, CheckedMapping) else {}


def _list(item: CheckedMapping, key: str) -> list[Any]:
    found = item.values.get(key)
    return found if isinstance(found, list) else []
