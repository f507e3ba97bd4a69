"""Describes a pipeline for `--dry-run`, as text and as JSON. Variables are shown by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ensue.apps.pipelines import model
from ensue.apps.pipelines.yaml_tree import FileValue, redact
from ensue.text.values import render_duration


def described(pipeline: model.Pipeline) -> dict[str, Any]:
    """Returns the description of a pipeline for JSON."""
    return {
        "name": pipeline.name,
        "mode": "stream" if pipeline.streaming else "batch",
        "program": _raw(pipeline.program_file),
        "sources": [_source(source) for source in pipeline.sources],
        "tables": {name: _table(table) for name, table in pipeline.tables.items()},
        "patterns": list(pipeline.program.names),
        "outputs": _sinks(pipeline.outputs),
        "timed_out": _sinks(pipeline.timed_out),
        "violations": None if pipeline.violations is None else _sink(pipeline.violations),
        "actions": _sinks(pipeline.actions),
        "delivery": _delivery(pipeline.delivery) if pipeline.calls else None,
        "checkpointLocation": _raw(pipeline.checkpoint),
        "trigger": _shown(pipeline.trigger),
        "spark": _session(pipeline.session),
        "variables": list(pipeline.variables),
        "explain": _explained(pipeline),
    }


def describe(pipeline: model.Pipeline) -> str:
    """Returns the description of a pipeline as text."""
    plan = described(pipeline)
    lines = [f"PIPELINE {plan['name']} ({plan['mode']})", "", "SOURCES"]
    lines += [f"  {_line(source)}" for source in plan["sources"]]
    for title in ("tables", "outputs", "timed_out", "actions"):
        if plan[title]:
            lines += ["", _title(title), *(f"  {name}: {_line(item)}" for name, item in plan[title].items())]
        unnamed = [name for name in plan["patterns"] if name not in plan["outputs"]]
        if title == "outputs" and unnamed and plan["outputs"]:
            lines.append(f"  (discarded: {', '.join(unnamed)})")
    for title in ("violations", "delivery"):
        if plan[title]:
            lines += ["", _title(title), f"  {_line(plan[title])}"]
    if pipeline.streaming:
        lines += [
            "",
            "STREAM",
            f"  checkpointLocation: {plan['checkpointLocation']}",
            f"  trigger: {_pairs(plan['trigger']) or 'as soon as rows arrive'}",
        ]
    if any(plan["spark"].values()):
        lines += ["", "SPARK", f"  {_line(plan['spark'])}"]
    if plan["variables"]:
        lines += ["", "VARIABLES", f"  {', '.join(plan['variables'])}"]
    return "\n".join([*lines, "", "PROGRAM", *_indented(plan["explain"])])


def _title(key: str) -> str:
    return key.upper().replace("_", " ")


def _pairs(given: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {text}" for name, text in given.items())


def _indented(text: str) -> list[str]:
    return [f"  {line}" if line else "" for line in text.split("\n")]


def _line(item: dict[str, Any]) -> str:
    """Returns one line with the names and values that are set."""
    parts = []
    for name, value in item.items():
        if value in (None, {}, []):
            continue
        if isinstance(value, dict):
            value = "{" + ", ".join(f"{key}: {text}" for key, text in value.items() if text not in (None, {})) + "}"
        elif isinstance(value, list):
            value = f"[{', '.join(value)}]"
        parts.append(f"{name} {value}")
    return ", ".join(parts)


def _table(table: model.Table) -> dict[str, Any]:
    return {
        "format": table.format.raw,
        "path": _raw(table.path),
        "schema": _raw(table.schema),
        "options": _shown(table.options),
        "columns": _shown(table.columns),
    }


def _source(source: model.SourceOfEvents) -> dict[str, Any]:
    own = {name: _raw(getattr(source, name)) for name in ("time", "type", "end", "watermark", "watermark_column")}
    made: dict[str, Any] = {"stream": _raw(source.stream), **_table(source.table), "value": _raw(source.value), **own}
    made["order"] = [column.raw for column in source.order] or None
    made["late"] = None if source.late is None else _sink(source.late)
    if source.value is not None:
        made["rejected"] = source.rejected if isinstance(source.rejected, str) else _sink(source.rejected)
    return made


def _sinks(sinks: Mapping[str, model.Sink]) -> dict[str, Any]:
    return {name: _sink(sink) for name, sink in sinks.items()}


def _sink(sink: model.Sink) -> dict[str, Any]:
    match sink:
        case model.ConsoleSink():
            return {"format": "console"}
        case model.SparkSinkOf():
            options = _shown(sink.options)
            return {"format": sink.format.raw, "path": _raw(sink.path), "mode": sink.mode, "options": options}
        case model.WebhookSink():
            return {
                "webhook": sink.url.raw,
                "headers": _shown(sink.headers),
                "timeout": render_duration(round(sink.timeout * 1e9)),
            }


def _delivery(delivery: model.Delivery) -> dict[str, Any]:
    return {
        "dead_letters": _raw(delivery.dead_letters),
        "journal": _raw(delivery.journal),
        "retries": delivery.retries,
        "backoff": delivery.backoff,
        "patience": delivery.patience,
    }


def _session(session: model.Session) -> dict[str, Any]:
    return {
        "master": _raw(session.master),
        "memory": _raw(session.memory),
        "packages": [package.raw for package in session.packages],
        "config": _shown(session.config),
    }


def _explained(pipeline: model.Pipeline) -> str:
    """Explains the program. Hides secrets if the text of the program uses variables."""
    text = pipeline.program.explain(time=pipeline.sources[0].time.value)
    with_variables = pipeline.query is not None and pipeline.query.raw != pipeline.query.value
    return redact(text, pipeline.hidden) if with_variables else text


def _shown(options: model.Options) -> dict[str, str]:
    return {name: given.raw for name, given in options.items()}


def _raw(given: FileValue | None) -> str | None:
    return None if given is None else given.raw
