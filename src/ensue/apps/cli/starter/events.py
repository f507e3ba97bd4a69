"""`ensue init` names the events of a table: by its type column, by templates of messages, or all rows as one stream."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.apps.cli.files import field_of
from ensue.apps.cli.logs import LINE
from ensue.apps.cli.starter.roles import Choice, Roles, key_codes
from ensue.apps.cli.starter.templates import extracted, fields_of, templates_of
from ensue.text.reserved_words import quote_name, quote_stream, quote_word

MOST_DECLARED = 20
"""The maximum number of declared streams."""


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a table: names of streams as text of a query, and the stream, key and time of each row.

    `declarations` are STREAM statements, if no column contains the streams. `said` names each stream for people. Rows
    without a stream or a key have -1; rows without a time have the stream -1.
    """

    names: tuple[str, ...]
    said: tuple[str, ...]
    declarations: str
    key: str | None
    streams: np.ndarray
    keys: np.ndarray
    times: np.ndarray


def events_of(table: pa.Table, roles: Roles) -> tuple[Events, Roles]:
    """Returns the events of a table. The key of log messages can be a part of the message."""
    if roles.type is not None:
        values = _column(table, roles.type.column)
        nested = roles.type.column not in table.column_names or (
            roles.key is not None and roles.key.column not in table.column_names
        )
        return (_declared_types(table, roles, values) if nested else _typed(table, roles, values)), roles
    if roles.message is not None:
        found = _log_events(table, roles)
        if found is not None:
            return found
    return _rows(table, roles), roles


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    found = table.column(name) if name in table.column_names else field_of(table, name)
    assert found is not None
    return found


def _basis(table: pa.Table, roles: Roles) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the keys, the times, and whether a row has a time."""
    times = table.column(roles.time.column)
    keys = key_codes(_column(table, roles.key.column) if roles.key else None, table.num_rows)
    numbers = pc.fill_null(times.cast(pa.int64()), 0).to_numpy()
    return keys, numbers, times.is_valid().to_numpy()


def _codes(values: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """Returns the values as text, the most frequent first, and the place of each row among them."""
    plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
    texts = ["" if value is None else str(value) for value in plain.to_pylist()]
    counted = [text for text, _ in Counter(texts).most_common() if text]
    places = {text: place for place, text in enumerate(counted)}
    return counted, np.array([places.get(text, -1) for text in texts], np.int64)


def _typed(table: pa.Table, roles: Roles, values: pa.ChunkedArray) -> Events:
    keys, times, timed = _basis(table, roles)
    names, codes = _codes(values)
    key = quote_name(roles.key.column) if roles.key else None
    quoted = tuple(map(quote_stream, names))
    return Events(quoted, tuple(map(one_line, names)), "", key, np.where(timed, codes, -1), keys, times)


def _declared_types(table: pa.Table, roles: Roles, values: pa.ChunkedArray) -> Events:
    """Declares a stream for each type, because the type or the key is a field of a struct."""
    assert roles.type is not None
    keys, times, timed = _basis(table, roles)
    names, codes = _codes(values)
    streams = _distinct_names(names[:MOST_DECLARED])
    path = _path(roles.type.column)
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    given, key = _kept(table, roles)
    declarations = "\n".join(
        f"STREAM {stream} FROM events WHERE {path} = {_literal(name) if is_text else name}{given};"
        for stream, name in zip(streams, names, strict=False)
    )
    kept = np.where(timed & (codes < len(streams)), codes, -1)
    return Events(tuple(streams), tuple(map(one_line, names[: len(streams)])), declarations, key, kept, keys, times)


def _kept(table: pa.Table, roles: Roles) -> tuple[str, str | None]:
    """Returns a RETURN clause with the key, and the name of the key; plain columns are kept."""
    if roles.key is None:
        return "", None
    name = roles.key.column
    if name in table.column_names:
        return "", quote_name(name)
    alias = quote_name(name.replace(".", "_"))
    typed = roles.type.column if roles.type is not None else ""
    others = [other for other in table.column_names if other not in (roles.time.column, typed, LINE)]
    plain = [quote_name(other) for other in others if not pa.types.is_nested(table.schema.field(other).type)]
    return f" RETURN {', '.join([f'{_path(name)} AS {alias}', *plain[:6]])}", alias


def _rows(table: pa.Table, roles: Roles) -> Events:
    """Makes every row an event of one stream."""
    keys, times, timed = _basis(table, roles)
    given, key = _kept(table, roles)
    return Events(("Row",), ("Row",), f"STREAM Row FROM events{given};", key, np.where(timed, 0, -1), keys, times)


def _log_events(table: pa.Table, roles: Roles) -> tuple[Events, Roles] | None:
    """Declares a stream for each frequent template of the messages, and looks for a key in them."""
    column = roles.message
    assert column is not None
    messages = table.column(column).cast(pa.string()).to_pylist()
    found = templates_of(messages)
    if not found:
        return None
    streams = np.full(table.num_rows, -1, np.int64)
    for place, template in enumerate(found):
        fits = [message is not None and message.startswith(template.prefix) for message in messages]
        streams[np.array(fits) & (streams < 0)] = place
    roles, extract = _key_of_messages(messages, streams, roles)
    keys, times, timed = _basis(table, roles) if extract is None else _basis(table, replace(roles, key=None))
    message = quote_name(column)
    key = None if roles.key is None else quote_name(roles.key.column)
    returns = message
    if extract is not None:
        values = pa.chunked_array([pa.array(extracted(messages, extract), pa.string())])
        keys = key_codes(values, table.num_rows)
        returns = f"nullif(regexp_extract({message}, {_literal(extract)}, 1), '') AS {key}, {message}"
    elif key is not None:
        returns = f"{key}, {message}"
    # Events without a key are in no match.
    keyed = [
        place for place in range(len(found)) if 2 * (keys[streams == place] >= 0).sum() >= (streams == place).sum()
    ]
    places = np.full(len(found) + 1, -1, np.int64)
    places[keyed] = range(len(keyed))
    declarations = "\n".join(
        f"STREAM {each.name} FROM log\n  WHERE {_starts_with(message, each.prefix)}\n  RETURN {returns};"
        for each in (found[place] for place in keyed)
    )
    names = tuple(found[place].name for place in keyed)
    if not names:
        return None
    return Events(names, names, declarations, key, np.where(timed, places[streams], -1), keys, times), roles


def _starts_with(column: str, prefix: str) -> str:
    if re.search(r"[%_\\]", prefix):
        return f"startswith({column}, {_literal(prefix)})"
    return f"{column} LIKE {_literal(prefix + '%')}"


def _key_of_messages(messages: Sequence[str | None], streams: np.ndarray, roles: Roles) -> tuple[Roles, str | None]:
    """Returns the roles with the field of the messages that repeats in most of them as key, if there is one."""
    if roles.key is not None and roles.key.why == "set by you":
        return roles, None
    inside = [message for message, stream in zip(messages, streams, strict=True) if stream >= 0]
    best, best_score = None, 0.0
    for name, pattern in fields_of(inside).items():
        values = Counter(value for value in extracted(inside, pattern) if value is not None)
        filled = values.total()
        # The share of the events that have a key of their own or share it with others.
        if 2 <= len(values) <= filled / 2 and filled >= 0.2 * len(inside):
            score = filled * (2.0 if name in ("ip", "source", "rhost") else 1.0)
            if score > best_score:
                why = f"a part of {filled:,} messages, {len(values):,} distinct values"
                best, best_score = (Choice(name, why), pattern), score
    if best is None:
        return roles, None
    return replace(roles, key=best[0]), best[1]


def _distinct_names(texts: Sequence[str]) -> list[str]:
    names: list[str] = []
    for text in texts:
        words = re.findall(r"[^\W_]+", text)
        name = "".join(word[:1].upper() + word[1:] for word in words) or "Stream"
        name = f"Stream{name}" if name[0].isdigit() else name
        number, unique = 2, name
        while unique in names:
            unique, number = f"{name}{number}", number + 1
        names.append(unique)
    return [quote_stream(name) for name in names]


def _path(name: str) -> str:
    first, *rest = name.split(".")
    return ".".join([quote_name(first), *map(quote_word, rest)])


def _literal(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def one_line(text: str) -> str:
    """Returns the text on one line, so that it does not end a comment."""
    return " ".join(text.split())
