"""Values inside values, on Arrow arrays: fields of structs, elements of lists, values of maps, JSON.

Nothing here loops over rows, except for JSON, which is parsed once for each different text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa

from ensue.expr import types
from ensue.expr.kinds import Kind
from ensue.expr.notations import json_steps
from ensue.expr.operators import NULL, UNKNOWN, compared
from ensue.expr.reductions import Lists


def _of_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """Applies a function of an array to one value as well."""

    def of_any(values: Any, *constants: Any) -> Any:
        if not isinstance(values, pa.Scalar):
            return function(values, *constants)
        one: Any = pa.array([values.as_py()], values.type)
        found = function(one, *constants)
        return found if isinstance(found, pa.Scalar) else found[0]

    return of_any


@_of_rows
def member(structs: Any, name: str) -> Any:
    """The field of each struct; null for a null struct."""
    if types.kind_of(structs.type) is Kind.NULL:
        return NULL
    return types.readable(types.arrow.struct_field(structs, name), name, exact=True)


@_of_rows
def entry(values: Any, key: Any) -> Any:
    """The element of each list at a position, counted from 0, or the value of each map for a key; null if missing."""
    if types.kind_of(values.type) is Kind.NULL:
        return NULL
    if pa.types.is_map(values.type):
        return _value_of_key(values, key)
    lists = Lists.of(values, "element", exact=True)
    if not key.is_valid:
        return pa.scalar(None, lists.elements.type)
    place = key.as_py()
    missing = lists.lengths <= place if place >= 0 else np.ones(len(lists.lengths), bool)
    places = np.where(missing, 0, lists.ends - lists.lengths + max(place, 0))
    return lists.elements.take(pa.array(places, mask=missing))


def _entries(maps: Any) -> Lists:
    """The keys and values of each map, as structs."""
    keys: Any = pa.field("key", maps.type.key_type, nullable=False)
    pairs = pa.list_(pa.struct([keys, pa.field("value", maps.type.item_type)]))
    return Lists.of(maps.cast(pairs), "entry")


def _value_of_key(maps: Any, key: Any) -> Any:
    lists = _entries(maps)
    values = member(lists.elements, "value")
    if not key.is_valid:
        return pa.scalar(None, values.type)
    equal = compared("=", member(lists.elements, "key"), key)
    found = np.flatnonzero(types.arrow.fill_null(equal, False).to_numpy(zero_copy_only=False))
    # The first equal key at or after the start of each map, if it is before the end.
    at = np.searchsorted(found, lists.ends - lists.lengths)
    places = np.append(found, len(values))[at]
    missing = places >= lists.ends
    return values.take(pa.array(np.where(missing, 0, places), mask=missing))


@_of_rows
def size(values: Any) -> Any:
    """The number of elements of each list, or of keys of each map; null for null."""
    lists = _entries(values) if pa.types.is_map(values.type) else Lists.of(values, "element")
    return pa.array(lists.lengths, mask=~lists.present)


def contains(values: Any, wanted: Any) -> Any:
    """Whether each list contains a value: true if an element equals it, else null if an element or it is null."""
    lists = Lists.of(values, "element")
    if types.kind_of(wanted.type) is Kind.NULL or types.kind_of(lists.elements.type) is Kind.NULL:
        empty = (lists.lengths == 0) & (types.kind_of(wanted.type) is not Kind.NULL)
        return pa.array(np.zeros(len(lists.lengths), bool), mask=~(empty & lists.present))
    if isinstance(wanted, pa.Scalar):
        if not wanted.is_valid:
            return UNKNOWN
        known = np.ones(len(lists.lengths), bool)
    else:
        known = wanted.is_valid().to_numpy(zero_copy_only=False)
        wanted = wanted.take(pa.array(np.repeat(np.arange(len(lists.lengths)), lists.lengths)))
    equal = compared("=", lists.elements, wanted)
    found = _any(lists, types.arrow.fill_null(equal, False))
    unsure = ~known | (~found & _any(lists, lists.elements.is_null()))
    return pa.array(found, mask=unsure | ~lists.present)


def _any(lists: Lists, marked: Any) -> Any:
    """The lists with a marked element."""
    before = np.concatenate(([0], np.cumsum(marked.to_numpy(zero_copy_only=False))))
    return before[lists.ends] > before[lists.ends - lists.lengths]


# --- JSON


@_of_rows
def json_value(texts: Any, path: Any) -> Any:
    """The scalar at a path of each JSON text, as text; null if the text is not JSON or has no scalar there."""
    steps = json_steps(path.as_py())
    assert steps is not None, "check the expression first"
    encoded = texts.dictionary_encode()
    values: Any = pa.array([_scalar_at(text, steps) for text in encoded.dictionary.to_pylist()], pa.string())
    return cast(types.Array, values.take(encoded.indices))


class _Number(str):
    """A number as it is written."""


def _not_json(word: str) -> Any:
    raise ValueError(word)


_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_not_json)


def _scalar_at(text: str, steps: tuple[str | int, ...]) -> str | None:
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    for step in steps:
        held = isinstance(value, dict) and step in value
        if isinstance(step, int):
            held = isinstance(value, list) and step < len(value)
        if not held:
            return None
        value = value[step]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str) else None
