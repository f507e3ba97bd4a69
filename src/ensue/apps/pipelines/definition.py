"""What a pipeline file may say. The published schema and the checks are both made from this one definition."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class TextOf:
    """A text; one of `choices`, if there are any, and of the form `pattern`, which `expected` says in words."""

    choices: tuple[str, ...] = ()
    pattern: str = ""
    expected: str = "a text"
    multiline: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number from `least` on."""

    least: int


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false; with `only`, no other than true."""

    only: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Names and texts that go to Spark or to a web service as they are; numbers and flags count as texts."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of at least one."""

    item: Shape


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping whose keys are names that the user or the program chooses; `named` says what they name."""

    item: Shape
    named: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a record: what it takes and what it means."""

    name: str
    shape: Shape
    meaning: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with keys that are known; exactly one of `one_of` has to be there, if it is not empty."""

    title: str
    keys: tuple[Key, ...]
    one_of: tuple[str, ...] = ()
    short: TextOf | None = field(default=None)
    """What may stand in place of the mapping."""

    def key(self, name: str) -> Key:
        return next(key for key in self.keys if key.name == name)


Shape: TypeAlias = "TextOf | Number | Flag | Settings | ListOf | MapOf | Record"

UNIT = r"(milliseconds?|seconds?|minutes?|hours?|days?|weeks?)"
LENGTH = TextOf(pattern=rf"[0-9]+ {UNIT}( [0-9]+ {UNIT})*", expected="a length of time such as `10 minutes`")
NAME = TextOf(expected="a name")
COLUMN = TextOf(expected="the name of a column")
PATH = TextOf(expected="a path")
DDL = TextOf(expected="columns and types such as `id BIGINT, at TIMESTAMP`", multiline=True)
FORMAT = TextOf(expected="a format of Spark such as `parquet`")

_FORMAT = Key("format", FORMAT, "a format that Spark knows: parquet, csv, json, delta, kafka, jdbc, ...", True)
_PATH = Key("path", PATH, "the file or folder; relative to the pipeline file")
_OPTIONS = Key("options", Settings(), "options of Spark for this format")
_SCHEMA = Key("schema", DDL, "columns and types; streams of files need it")
_COLUMNS = Key(
    "columns",
    MapOf(TextOf(expected="an expression of Spark SQL", multiline=True), "columns"),
    "columns to add or to replace: a name and an expression of Spark SQL",
)

_MODE = Key("mode", TextOf(("append", "overwrite", "ignore", "error")), "what happens to rows that are there: append")
_WEBHOOK = Key("webhook", TextOf(expected="an address of http or https"), "POST each row as JSON to this address")
_HEADERS = Key("headers", Settings(), "headers of the request")
_TIMEOUT = Key("timeout", Number(1), "seconds to wait for an answer: 10")
_SINK = (Key("format", FORMAT, "a format that Spark can write"), _PATH, _OPTIONS, _MODE, _WEBHOOK, _HEADERS, _TIMEOUT)
_SINK_OF = ("format", "webhook")
OUTPUT = Record("an output", _SINK, one_of=_SINK_OF, short=TextOf(("console",)))
REJECTED = Record(
    "what happens to records that are no events", _SINK, one_of=_SINK_OF, short=TextOf(("fail", "ignore", "console"))
)
ACTION = Record("an action", _SINK, one_of=_SINK_OF)

SOURCE = Record(
    "a source of events",
    (
        Key("stream", NAME, "all rows are events of this stream; without it, the column `type` says which"),
        _FORMAT,
        _PATH,
        _OPTIONS,
        _SCHEMA,
        Key("value", DDL, "the column `value` is JSON with these columns, as it is in Kafka"),
        _COLUMNS,
        Key("time", COLUMN, "the column of an event's time: a timestamp or an integer", True),
        Key("type", COLUMN, "the column that names the stream of an event"),
        Key("end", COLUMN, "the column of an event's end, for events that last"),
        Key("watermark", LENGTH, "how late events may come; for `mode: stream`"),
        Key("watermark_column", COLUMN, "the timestamp the watermark is about, where `time` is an integer"),
        Key("late", OUTPUT, "where rows go that came after the watermark; for `mode: stream`"),
        Key(
            "rejected", REJECTED, "where records go that `value` or `time` does not fit; unless given, they end the run"
        ),
    ),
)
TABLE = Record("a table that does not change", (_FORMAT, _PATH, _OPTIONS, _SCHEMA, _COLUMNS))
DELIVERY = Record(
    "how calls of actions and webhooks are delivered",
    (
        Key("dead_letters", PATH, "the folder for calls that nobody took; a stream needs it"),
        Key("journal", PATH, "a file that remembers calls, so that they are not repeated after a restart"),
        Key("retries", Number(0), "how often a call is tried again: 5"),
        Key("backoff", LENGTH, "the pause before the first repetition: 1 second"),
        Key("patience", LENGTH, "how long a step waits for a receiver that is down: 1 minute"),
    ),
)
PACKAGE = TextOf(pattern=r"[^:\s]+:[^:\s]+:[^:\s]+", expected="a package such as `group:artifact:version`")
SPARK = Record(
    "the Spark session",
    (
        Key("master", TextOf(), "`local[*]`, `spark://...`, `sc://...`; unless the environment says"),
        Key("memory", TextOf(pattern=r"[0-9]+[kmgtKMGT]", expected="a size such as `4g`"), "of the Spark process"),
        Key("packages", ListOf(PACKAGE), "packages of Maven Central, for formats that Spark does not have by itself"),
        Key("config", Settings(), "settings of Spark"),
    ),
)
TRIGGER = Record(
    "a trigger",
    (
        Key("processingTime", LENGTH, "the time between the starts of two micro-batches, such as `10 seconds`"),
        Key("availableNow", Flag(only=True), "true to process all available rows, then stop"),
    ),
    one_of=("processingTime", "availableNow"),
)
PIPELINE = Record(
    "a pipeline of Ensue",
    (
        Key("name", NAME, "what Spark calls it"),
        Key("mode", TextOf(("batch", "stream")), "tables of the past, or streams: batch"),
        Key("program", PATH, "the `.ensue` file; relative to the pipeline file"),
        Key("query", TextOf(expected="the text of a program", multiline=True), "the program itself"),
        Key("sources", ListOf(SOURCE), "where events come from: one, or one for each stream", True),
        Key("tables", MapOf(TABLE, "TABLEs of the program"), "the tables of the program's TABLEs"),
        Key("outputs", MapOf(OUTPUT, "patterns and heads of rules"), "where results go; others are not kept"),
        Key(
            "timed_out",
            MapOf(OUTPUT, "patterns"),
            "where partial matches go whose window has closed; for `mode: stream`",
        ),
        Key("violations", OUTPUT, "where traces go that break a constraint of the program"),
        Key("actions", MapOf(ACTION, "actions of ON statements"), "who takes the calls of ON statements"),
        Key("delivery", DELIVERY, "how calls are delivered"),
        Key("checkpointLocation", PATH, "the folder in which a stream saves its progress"),
        Key("trigger", TRIGGER, "when micro-batches start, in Spark's words; by default, as soon as rows come"),
        Key("limit", Number(0), "the most matches that a pattern may have: 10 million"),
        Key("match_id", Flag(), "whether outputs begin with an id that is the same in every run: false"),
        Key("emit", TextOf(("complete", "eager")), "matches at the watermark, or as soon as their last event has come"),
        Key("tick", LENGTH, "the length of one unit of integer time"),
        Key("buckets", Number(1), "in how many states a stream keeps its keys"),
        Key("spark", SPARK, "the Spark session"),
    ),
    one_of=("program", "query"),
)


# --- The published JSON schema of pipeline files, for editors; made from the definition and shipped beside it.

VARIABLE = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"


def published_schema() -> str:
    """The text of `schema.json`."""
    return files("ensue.apps.pipelines").joinpath("schema.json").read_text(encoding="utf-8")


def made_schema() -> str:
    """The schema as the definition has it; a test compares it with the file."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A pipeline of Ensue"}
    return json.dumps({**head, **_schema(PIPELINE)}, indent=2) + "\n"


def _schema(shape: Shape) -> dict[str, Any]:
    match shape:
        case TextOf():
            return _text(shape)
        case Number():
            # A number may come from a variable of the environment.
            number = {"type": "integer", "minimum": shape.least}
            return {"anyOf": [number, {"type": "string", "pattern": f"^{VARIABLE}$"}]}
        case Flag():
            flag = {"const": True} if shape.only else {"type": "boolean"}
            return {"anyOf": [flag, {"type": "string", "pattern": f"^{VARIABLE}$"}]}
        case Settings():
            return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
        case ListOf(item):
            return {"type": "array", "items": _schema(item), "minItems": 1}
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
