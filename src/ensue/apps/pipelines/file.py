"""Reads a pipeline file into a `Pipeline` without Spark: parses YAML, checks it, and parses the program."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.apps.pipelines import model
from ensue.apps.pipelines.consistency import check_fit, not_there
from ensue.apps.pipelines.definition import PIPELINE
from ensue.apps.pipelines.validation import CheckedMapping, Checker
from ensue.apps.pipelines.yaml_tree import Entries, Environment, FileValue, Text, masked, parse_tree
from ensue.errors import Problem, QueryError, Source, Span
from ensue.plan.plans import DEFAULT_LIMIT
from ensue.programs import Program, parse
from ensue.python.values import length_of

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def read_pipeline(path: str | Path, environment: Mapping[str, str] | None = None) -> model.Pipeline:
    """Reads and checks a pipeline file. One QueryError has all problems that can be found without Spark."""
    return read_pipeline_text(Path(path).read_text(encoding="utf-8"), path, environment)


def read_pipeline_text(text: str, path: str | Path, environment: Mapping[str, str] | None = None) -> model.Pipeline:
    """Reads and checks the text of a pipeline file. Problems cite `path`, and relative paths start at its folder.

    >>> read_pipeline_text("mode: batch", "pipeline.yaml")
    Traceback (most recent call last):
    ensue.errors.QueryError: error[pipeline-key]: the pipeline requires `sources`
     --> pipeline.yaml:1:1
      |
    1 | mode: batch
      | ^
    hint: add `sources`: sources of events, one in total or one per stream
    <BLANKLINE>
    error[pipeline-key]: the pipeline requires `program` or `query`
     --> pipeline.yaml:1:1
      |
    1 | mode: batch
      | ^
    hint: add `program`: the `.ensue` file, relative to the pipeline file; or `query`: the text of the program
    """
    source = Source(text, str(path))
    tree = parse_tree(source)
    checker = Checker(Environment(os.environ if environment is None else environment))
    values = checker.check(tree, PIPELINE)
    shown = Source(masked(text, checker.secrets), str(path))
    if not isinstance(values, CheckedMapping):
        raise QueryError(checker.problems, shown)
    program = None
    if isinstance(tree, Entries):
        program = _program(values, tree, source, Path(path), checker.problems)
    checker.problems += check_fit(values, program, Path(path).parent)
    if checker.problems or program is None:
        raise QueryError(_in_order(checker.problems), shown)
    return _Builder(values, Path(path), shown).pipeline(program, checker.environment)


def _in_order(problems: list[Problem]) -> list[Problem]:
    """Sorts problems by their position in the file."""
    return sorted(problems, key=lambda problem: problem.span.start if problem.span is not None else -1)


def _program(
    values: CheckedMapping, tree: Entries, source: Source, path: Path, problems: list[Problem]
) -> Program | None:
    """Returns the program, or None and a problem. Raises problems of the program text with their own positions."""
    if isinstance(given := values.values.get("program"), FileValue):
        file = path.parent / given.value
        if not file.is_file():
            problems.append(not_there("program", given, file))
            return None
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            problems.append(
                Problem("pipeline-file", f"`{given}` is not UTF-8 text", given.span, hint="save it as UTF-8")
            )
            return None
        return _parsed(text, str(file), given.span, problems)
    if isinstance(given := values.values.get("query"), FileValue):
        entry = tree.get("query")
        block = entry.value if entry is not None else None
        if isinstance(block, Text) and given.raw == given.value and (place := _place_in(source, block)) is not None:
            return _parsed_in_place(source, place, problems)
        return _parsed(given.value, f"{source.name}, query", given.span, problems)
    return None


def _parsed(text: str, name: str, place: Span, problems: list[Problem]) -> Program | None:
    try:
        return parse(text, name)
    except QueryError as error:
        if not problems:
            raise
        first = str(error).partition("\n")[0]
        message = f"the program has problems too: {first}"
        problems.append(Problem("pipeline-program", message, place, hint="run `ensue check` on the program"))
        return None


def _place_in(source: Source, block: Text) -> Span | None:
    """The characters of a program that is in the file as it is: in a block after `|`, or on one line."""
    start, end = block.span.start, block.span.end
    if block.literal:
        return Span(source.text.index("\n", start) + 1, end)
    for quotes in (0, 1):
        if source.text[start + quotes : end - quotes] == block.value:
            return Span(start + quotes, end - quotes)
    return None


def _parsed_in_place(source: Source, place: Span, problems: list[Problem]) -> Program | None:
    """Parses a part of the file as a program. Blanks the text before it, so that positions are those of the file."""
    blank = re.sub(r"[^\n]", " ", source.text[: place.start])
    try:
        program = parse(blank + source.text[place.start : place.end], source.name)
    except QueryError as error:
        problems += error.problems
        return None
    return program


@dataclass(frozen=True, slots=True)
class _Builder:
    """Converts checked values to dataclasses."""

    values: CheckedMapping
    file: Path
    shown: Source

    def pipeline(self, program: Program, environment: Environment) -> model.Pipeline:
        top = self.values
        sources = top.values["sources"]
        assert isinstance(sources, list)
        limit = _number(top, "limit")
        violations = top.values.get("violations")
        name = _given(top, "name")
        return model.Pipeline(
            file=self.file,
            source=self.shown,
            name=self.file.stem if name is None else name.raw,
            streaming=_text(top, "mode") == "stream",
            program=program,
            program_file=_given(top, "program"),
            query=_given(top, "query"),
            sources=tuple(self._source(item) for item in sources if isinstance(item, CheckedMapping)),
            tables={name: self._table(item) for name, item in _named(top, "tables").items()},
            outputs=self._sinks("outputs"),
            timed_out=self._sinks("timed_out"),
            violations=None if violations is None else self._sink(violations),
            actions=self._sinks("actions"),
            delivery=self._delivery(top.values.get("delivery")),
            checkpoint=self._path(top, "checkpointLocation"),
            trigger=_options(top, "trigger"),
            limit=DEFAULT_LIMIT if limit is None else limit,
            match_id=_text(top, "match_id") == "true",
            emit=_text(top, "emit"),
            tick=_given(top, "tick"),
            buckets=_number(top, "buckets"),
            session=_session(top.values.get("spark")),
            variables=tuple(sorted(environment.used)),
            hidden=dict(environment.hidden),
        )

    def _path(self, mapped: CheckedMapping, key: str) -> FileValue | None:
        """Returns a path, resolved relative to the folder of the file. The shown form is resolved in the same way."""
        given = _given(mapped, key)
        if given is None:
            return None
        value = resolved_path(given.value, self.file.parent)
        raw = given.raw if value == given.value else resolved_path(given.raw, self.file.parent)
        return FileValue(raw, value, given.span)

    def _table(self, item: Any) -> model.Table:
        return model.Table(
            item.values["format"],
            self._path(item, "path"),
            _options(item, "options"),
            _given(item, "schema"),
            _options(item, "columns"),
        )

    def _source(self, item: CheckedMapping) -> model.SourceOfEvents:
        names = ("stream", "value", "time", "type", "end", "watermark", "watermark_column")
        given: dict[str, Any] = {name: _given(item, name) for name in names}
        late, rejected = item.values.get("late"), item.values.get("rejected")
        return model.SourceOfEvents(
            self._table(item),
            **given,
            order=tuple(_several(item, "order")),
            late=None if late is None else self._sink(late),
            rejected="fail" if rejected is None else self._policy(rejected),
        )

    def _policy(self, item: Any) -> Any:
        if isinstance(item, FileValue) and item.value in ("fail", "ignore"):
            return item.value
        return self._sink(item)

    def _sinks(self, key: str) -> dict[str, model.Sink]:
        return {name: self._sink(item) for name, item in _named(self.values, key).items()}

    def _sink(self, item: Any) -> model.Sink:
        if isinstance(item, FileValue):
            return model.ConsoleSink()
        if "webhook" in item.values:
            return model.WebhookSink(item.values["webhook"], _options(item, "headers"), _seconds(item, "timeout", 10))
        mode = _text(item, "mode") or "append"
        return model.SparkSinkOf(item.values["format"], self._path(item, "path"), _options(item, "options"), mode)

    def _delivery(self, item: Any) -> model.Delivery:
        usual = model.Delivery()
        if item is None:
            return usual
        retries = _number(item, "retries")
        return model.Delivery(
            self._path(item, "dead_letters"),
            self._path(item, "journal"),
            usual.retries if retries is None else retries,
            _text(item, "backoff") or usual.backoff,
            _text(item, "patience") or usual.patience,
        )


def resolved_path(given: str, folder: Path) -> str:
    """Resolves a path relative to the folder. Returns a URL such as `s3a://bucket/x` unchanged."""
    return given if _SCHEME.match(given) else str(folder.absolute() / given)


def _given(mapped: CheckedMapping, key: str) -> FileValue | None:
    found = mapped.values.get(key)
    return found if isinstance(found, FileValue) else None


def _several(mapped: CheckedMapping, key: str) -> list[FileValue]:
    found = mapped.values.get(key)
    return [value for value in found if isinstance(value, FileValue)] if isinstance(found, list) else []


def _text(mapped: CheckedMapping, key: str) -> str | None:
    given = _given(mapped, key)
    return None if given is None else given.value


def _number(mapped: CheckedMapping, key: str) -> int | None:
    text = _text(mapped, key)
    return None if text is None else int(text)


def _seconds(mapped: CheckedMapping, key: str, usual: float) -> float:
    """Returns a length of time that is written as a number of seconds or as a duration."""
    text = _text(mapped, key)
    if text is None:
        return usual
    nanoseconds = length_of(text)
    return float(text) if nanoseconds is None else nanoseconds / 1e9


def _options(mapped: CheckedMapping, key: str) -> dict[str, FileValue]:
    return {name: given for name, given in _named(mapped, key).items() if isinstance(given, FileValue)}


def _named(mapped: CheckedMapping, key: str) -> dict[str, Any]:
    item = mapped.values.get(key)
    return dict(item.values) if isinstance(item, CheckedMapping) else {}


def _session(item: Any) -> model.Session:
    if item is None:
        return model.Session()
    packages = tuple(item.values.get("packages", ()))
    return model.Session(_given(item, "master"), _given(item, "memory"), packages, _options(item, "config"))
