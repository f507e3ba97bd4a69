"""What a pipeline will do, for `--dry-run`: as text and as JSON. Variables are shown by their names."""

from __future__ import annotations

from typing import Any

from ensue.pipelines.model import ConsoleSink, Options, Pipeline, Sink, SourceOfEvents, SparkSinkOf, Table, WebhookSink
from ensue.pipelines.variables import redact


def described(pipeline: Pipeline) -> dict[str, Any]:
    """The pipeline as JSON has it."""
    plan = {
        "name": pipeline.name,
        "mode": "stream" if pipeline.streaming else "batch",
        "program": pipeline.program_file,
        "sources": [_source(source) for source in pipeline.sources],
        "tables": {name: _table(table) for name, table in pipeline.tables.items()},
        "patterns": list(pipeline.program.names),
        "outputs": {name: _sink(sink) for name, sink in pipeline.outputs.items()},
        "actions": {name: _sink(sink) for name, sink in pipeline.actions.items()},
        "checkpoint": pipeline.checkpoint,
        "trigger": pipeline.trigger,
        "variables": sorted(pipeline.used),
        "explain": pipeline.program.explain(time=pipeline.sources[0].time),
    }
    cleaned: dict[str, Any] = _redacted(plan, pipeline)
    return cleaned


def describe(pipeline: Pipeline) -> str:
    """The pipeline for people."""
    plan = described(pipeline)
    lines = [f"PIPELINE {plan['name']} ({plan['mode']})", "", "SOURCES"]
    lines += [f"  {_line(source)}" for source in plan["sources"]]
    for title in ("tables", "outputs", "actions"):
        if plan[title]:
            lines += ["", title.upper(), *(f"  {name}: {_line(item)}" for name, item in plan[title].items())]
    unnamed = [name for name in plan["patterns"] if name not in plan["outputs"]]
    if unnamed and plan["outputs"]:
        lines.append(f"  (not kept: {', '.join(unnamed)})")
    if pipeline.streaming:
        lines += [
            "",
            "STREAM",
            f"  checkpoint: {plan['checkpoint']}",
            f"  trigger: {plan['trigger'] or 'as rows come'}",
        ]
    if plan["variables"]:
        lines += ["", "VARIABLES", f"  {', '.join(plan['variables'])}"]
    return "\n".join([*lines, "", "PROGRAM", *_indented(plan["explain"])])


def _indented(text: str) -> list[str]:
    return [f"  {line}" if line else "" for line in text.split("\n")]


def _line(item: dict[str, Any]) -> str:
    """One line of names and values, those that are there."""
    parts = []
    for name, value in item.items():
        if value in (None, {}):
            continue
        if isinstance(value, dict):
            value = "{" + ", ".join(f"{key}: {text}" for key, text in value.items()) + "}"
        parts.append(f"{name} {value}")
    return ", ".join(parts)


def _table(table: Table) -> dict[str, Any]:
    return {
        "format": table.format.raw,
        "path": table.path,
        "schema": table.schema,
        "options": _shown(table.options),
        "columns": _shown(table.columns),
    }


def _source(source: SourceOfEvents) -> dict[str, Any]:
    own = {name: getattr(source, name) for name in ("time", "type", "end", "watermark", "watermark_column")}
    return {"stream": source.stream, **_table(source.table), "value": source.value, **own}


def _sink(sink: Sink) -> dict[str, Any]:
    match sink:
        case ConsoleSink():
            return {"format": "console"}
        case SparkSinkOf():
            return {"format": sink.format.raw, "path": sink.path, "mode": sink.mode, "options": _shown(sink.options)}
        case WebhookSink():
            return {"webhook": sink.url.raw, "headers": _shown(sink.headers), "timeout": sink.timeout}


def _shown(options: Options) -> dict[str, str]:
    return {name: given.raw for name, given in options.items()}


def _redacted(value: Any, pipeline: Pipeline) -> Any:
    match value:
        case str():
            return redact(value, pipeline.used)
        case dict():
            return {key: _redacted(item, pipeline) for key, item in value.items()}
        case list():
            return [_redacted(item, pipeline) for item in value]
    return value
