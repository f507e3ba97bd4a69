"""The definition of pipeline files. The published JSON schema and the checks are both derived from it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeAlias

from ensue.text.values import UNITS


@dataclass(frozen=True, slots=True)
class TextOf:
    """A text: one of `choices`, or a text that matches `pattern`. `expected` describes it in messages."""

    choices: tuple[str, ...] = ()
    pattern: str = ""
    expected: str = "a text"
    multiline: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """An integer of at least `least`. With `seconds`, a number of seconds, or a duration such as `10s`."""

    least: int
    seconds: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """`true` or `false`; with `only`, only `true`."""

    only: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Names and texts that are passed to Spark or to a web service. Numbers and flags are passed as texts."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list with at least one item."""

    item: Shape


@dataclass(frozen=True, slots=True)
class OneOrMore:
    """A value, or a list of such values."""

    item: TextOf


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping whose keys are names from the user or the program. `named` describes the named things."""

    item: Shape
    named: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a record, with the shape of its value and its meaning."""

    name: str
    shape: Shape
    meaning: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with fixed keys. If `one_of` is not empty, exactly one of these keys is required."""

    title: str
    keys: tuple[Key, ...]
    one_of: tuple[str, ...] = ()
    short: TextOf | None = field(default=None)
    """A text that is accepted instead of the mapping."""

    def key(self, name: str) -> Key:
        return next(key for key in self.keys if key.name == name)


Shape: TypeAlias = "TextOf | Number | Flag | Settings | ListOf | OneOrMore | MapOf | Record"

_AMOUNT = rf"[0-9]+(\.[0-9]+)? ?({'|'.join(UNITS)})"
LENGTH = TextOf(pattern=f"{_AMOUNT}( ?{_AMOUNT})*", expected="a duration such as `10m`")
"""A duration as in a query."""
NAME = TextOf(expected="a name")
COLUMN = TextOf(expected="a column name")
PATH = TextOf(expected="a path")
DDL = TextOf(expected="columns and types such as `id BIGINT, at TIMESTAMP`", multiline=True)
FORMAT = TextOf(expected="a Spark format such as `parquet`")

_FORMAT = Key("format", FORMAT, "a Spark format: parquet, csv, json, delta, kafka, jdbc, ...", True)
_PATH = Key("path", PATH, "the file or folder, relative to the pipeline file")
_OPTIONS = Key("options", Settings(), "Spark options for this format")
_SCHEMA = Key("schema", DDL, "columns and types; required for streams of files")
_COLUMNS = Key(
    "columns",
    MapOf(TextOf(expected="a Spark SQL expression", multiline=True), "columns"),
    "columns to add or replace: a name and a Spark SQL expression",
)

_MODE = Key("mode", TextOf(("append", "overwrite", "ignore", "error")), "Spark's save mode (default: append)")
_WEBHOOK = Key(
    "webhook", TextOf(expected="an http or https URL"), "a URL that receives each row as a JSON POST request"
)
_HEADERS = Key("headers", Settings(), "headers of the request")
_TIMEOUT = Key(
    "timeout", Number(1, seconds=True), "how long to wait for a response, in seconds or as a duration (default: 10s)"
)
_SINK = (Key("format", FORMAT, "a Spark format to write"), _PATH, _OPTIONS, _MODE, _WEBHOOK, _HEADERS, _TIMEOUT)
_SINK_OF = ("format", "webhook")
OUTPUT = Record("an output", _SINK, one_of=_SINK_OF, short=TextOf(("console",)))
REJECTED = Record("`rejected`", _SINK, one_of=_SINK_OF, short=TextOf(("fail", "ignore", "console")))
ACTION = Record("an action", _SINK, one_of=_SINK_OF)

SOURCE = Record(
    "a source",
    (
        Key("stream", NAME, "the stream of all rows; without it, the column `type` names the stream of each row"),
        _FORMAT,
        _PATH,
        _OPTIONS,
        _SCHEMA,
        Key("value", DDL, "columns and types of the JSON in the column `value`, for example for Kafka"),
        _COLUMNS,
        Key("time", COLUMN, "the column with the time of an event (a timestamp or an integer)", True),
        Key("type", COLUMN, "the column with the stream of an event"),
        Key("end", COLUMN, "the column with the end of an event, for events with a duration"),
        Key("order", OneOrMore(COLUMN), "the column, or columns, that order the events at the same time"),
        Key("watermark", LENGTH, "how late events may arrive; for `mode: stream`"),
        Key("watermark_column", COLUMN, "the timestamp column of the watermark, if `time` is an integer"),
        Key("late", OUTPUT, "the output for late rows; for `mode: stream`"),
        Key("rejected", REJECTED, "the output for records that cannot be parsed (default: fail)"),
    ),
)
TABLE = Record("a table", (_FORMAT, _PATH, _OPTIONS, _SCHEMA, _COLUMNS))
DELIVERY = Record(
    "the delivery of calls",
    (
        Key("dead_letters", PATH, "the folder for undeliverable calls; required for streams"),
        Key("journal", PATH, "a file with the ids of delivered calls, so that a restart does not repeat them"),
        Key("retries", Number(0), "how often a failed call is retried (default: 5)"),
        Key("backoff", LENGTH, "the pause before the first retry (default: 1s)"),
        Key("patience", LENGTH, "how long a step retries calls to a receiver that is down (default: 1m)"),
    ),
)
PACKAGE = TextOf(pattern=r"[^:\s]+:[^:\s]+:[^:\s]+", expected="a package such as `group:artifact:version`")
SPARK = Record(
    "the Spark session",
    (
        Key("master", TextOf(), "`local[*]`, `spark://...` or `sc://...` (default: from the environment)"),
        Key("memory", TextOf(pattern=r"[0-9]+[kmgtKMGT]", expected="a size such as `4g`"), "memory of the driver"),
        Key("packages", ListOf(PACKAGE), "Maven packages for formats that Spark does not include"),
        Key("config", Settings(), "Spark settings"),
    ),
)
TRIGGER = Record(
    "a trigger",
    (
        Key("processingTime", LENGTH, "the time between the starts of two micro-batches, such as `10s`"),
        Key("availableNow", Flag(only=True), "true to process all available rows, then stop"),
    ),
    one_of=("processingTime", "availableNow"),
)
PIPELINE = Record(
    "the pipeline",
    (
        Key("name", NAME, "the name of the pipeline in Spark"),
        Key("mode", TextOf(("batch", "stream")), "static tables (`batch`, the default) or streams (`stream`)"),
        Key("program", PATH, "the `.ensue` file, relative to the pipeline file"),
        Key("query", TextOf(expected="the text of a program", multiline=True), "the text of the program"),
        Key("sources", ListOf(SOURCE), "sources of events, one in total or one per stream", True),
        Key("tables", MapOf(TABLE, "TABLEs of the program"), "the rows of the program's TABLEs"),
        Key(
            "outputs",
            MapOf(OUTPUT, "patterns and rules"),
            "outputs of patterns and rules; results without an output are discarded",
        ),
        Key(
            "timed_out",
            MapOf(OUTPUT, "patterns"),
            "outputs for partial matches whose window has closed; for `mode: stream`",
        ),
        Key("violations", OUTPUT, "the output for traces that break a constraint of the program"),
        Key("actions", MapOf(ACTION, "actions of ON statements"), "the receivers of the actions in ON statements"),
        Key("delivery", DELIVERY, "how calls of actions and webhooks are delivered"),
        Key("checkpointLocation", PATH, "the folder for the progress and state of a stream"),
        Key("trigger", TRIGGER, "when a stream runs a micro-batch, in Spark's words (default: as soon as rows arrive)"),
        Key("limit", Number(0), "the maximum number of matches of a pattern (default: 10 million)"),
        Key(
            "match_id",
            Flag(),
            "whether outputs have a column `match_id`, which is the same in every run (default: false)",
        ),
        Key(
            "emit",
            TextOf(("complete", "eager")),
            "when to emit a match: at the watermark (complete, the default) or at its last event (eager)",
        ),
        Key("tick", LENGTH, "the duration of one unit of integer time"),
        Key("buckets", Number(1), "the number of states that a stream divides its keys into"),
        Key("spark", SPARK, "the Spark session"),
    ),
    one_of=("program", "query"),
)


# --- The published JSON schema

VARIABLE = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"


def published_schema() -> str:
    """Returns the text of `schema.json`."""
    return files("ensue.apps.pipelines").joinpath("schema.json").read_text(encoding="utf-8")


def made_schema() -> str:
    """Returns the schema of the definition. A test compares it with the file."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "An Ensue pipeline"}
    return json.dumps({**head, **_schema(PIPELINE)}, indent=2) + "\n"


def _schema(shape: Shape) -> dict[str, Any]:
    match shape:
        case TextOf():
            return _text(shape)
        case Number():
            # A number may come from an environment variable.
            number = {"type": "integer", "minimum": shape.least}
            text = f"^({LENGTH.pattern}|{VARIABLE})$" if shape.seconds else f"^{VARIABLE}$"
            return {"anyOf": [number, {"type": "string", "pattern": text}]}
        case Flag():
            flag = {"const": True} if shape.only else {"type": "boolean"}
            return {"anyOf": [flag, {"type": "string", "pattern": f"^{VARIABLE}$"}]}
        case Settings():
            return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
        case ListOf(item):
            return {"type": "array", "items": _schema(item), "minItems": 1}
        case OneOrMore(item):
            return {"anyOf": [_schema(item), _schema(ListOf(item))]}
        case MapOf(item):
            return {"type": "object", "additionalProperties": _schema(item)}
        case Record():
            return _record(shape)


def _text(shape: TextOf) -> dict[str, Any]:
    if shape.choices:
        return {"anyOf": [{"enum": list(shape.choices)}, {"type": "string", "pattern": f"^{VARIABLE}$"}]}
    if shape.pattern:
        return {"type": "string", "pattern": f"^({shape.pattern})$|{VARIABLE}"}
    return {"type": "string", "minLength": 1}


def _record(record: Record) -> dict[str, Any]:
    made: dict[str, Any] = {
        "description": record.title,
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: {**_schema(key.shape), "description": key.meaning} for key in record.keys},
    }
    required = [key.name for key in record.keys if key.required]
    if required:
        made["required"] = required
    if record.one_of:
        made["oneOf"] = [{"required": [name]} for name in record.one_of]
    return made if record.short is None else {"anyOf": [_text(record.short), made]}
