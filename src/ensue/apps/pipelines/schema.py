"""The published JSON schema of pipeline files, for editors; made from the definition and shipped beside it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from ensue.apps.pipelines.definition import (
    PIPELINE,
    Flag,
    ListOf,
    MapOf,
    Number,
    Record,
    Settings,
    Shape,
    TextOf,
)

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
            return {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": f"^{VARIABLE}$"}]}
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
