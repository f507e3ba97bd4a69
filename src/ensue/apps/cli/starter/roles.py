"""`ensue init` guesses which columns hold the time, the type, the key and the order of an event, and says why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.apps.cli.files import field_of, with_time
from ensue.apps.cli.logs import LINE
from ensue.apps.cli.terminal import UsageError
from ensue.apps.cli.times import Notation, read_times

TIME_NAMES = re.compile(
    r"^(t|ts|at|time|timestamp|date|datetime|when|epoch)$|(_at|_ts|_time|time|timestamp|_date|_epoch)$", re.I
)
TYPE_NAMES = re.compile(
    r"^(type|kind|event|event_?type|event_?name|event_?id|event_?code|action|activity|status|state|name|operation|op"
    r"|level|severity|category|class|code|art)$|_(type|kind|event|action|status|state)$",
    re.I,
)
KEY_NAMES = re.compile(
    r"(^|[_ -])(id|key|user|username|customer|account|order|session|device|case|host|hostname|ip|client|machine|sensor"
    r"|tool|person|patient|member|product|item|symbol|ticker|vehicle|truck|node|server|pid|process|request|trace|ticket"
    r"|incident|tenant|source|rhost|email|card|invoice|serial|uuid|nr|no)$|[a-z]I[dD]$|_id$",
    re.I,
)
ORDER_NAMES = re.compile(
    r"^(seq|sequence|line|offset|position|index|row|no|nr|number|step)$|_(seq|no|number|offset)$", re.I
)
MESSAGE_NAMES = re.compile(r"^(message|msg|text|log|line|content|body)$", re.I)
MOST_TYPES = 60
LONGEST_TYPE = 60
"""The mean length of a type, in characters: longer texts, such as user agents, are not types."""

SAMPLE = 200_000
"""The maximum number of rows to inspect."""

YEAR = 31_557_600
TICKS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Units of integer times since 1970, and how many of each make a second."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A column, and the reason for the choice."""

    column: str
    why: str


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of each column. `ticks` is the unit of integer times since 1970, `message` a column of log messages."""

    time: Choice
    type: Choice | None
    key: Choice | None
    order: Choice | None
    message: str | None = None
    ticks: str = ""
    notation: Notation | None = None


def find_roles(
    table: pa.Table, path: Path, time: str | None, type: str | None, key: str | None
) -> tuple[pa.Table, Roles]:
    """Returns the table with its time as timestamps, and the roles of its columns. Keeps columns that are given."""
    leaves = dict(leaf_columns(table.slice(0, SAMPLE)))
    for role, name in (("--time", time), ("--type", type), ("--key", key)):
        if name is not None and name not in leaves and name not in table.column_names:
            raise UsageError("no-such-column", f"{role} has unknown column `{name}`; available: {', '.join(leaves)}")
    if table.num_rows == 0:
        raise UsageError("no-rows", "the table has no rows", "pass a file with at least one event")
    chosen_time = _given(time) or _choose_time(leaves, path)
    notation = _notation(leaves, chosen_time.column, table, path)
    table = with_time(table, chosen_time.column, path.stat().st_mtime)
    _check_time(table, chosen_time.column)
    head = table.slice(0, SAMPLE)
    others = {name: values for name, values in leaves.items() if name not in (chosen_time.column, LINE)}
    chosen_type = _given(type) or _choose_type(others, head.num_rows)
    rest = {name: values for name, values in others.items() if chosen_type is None or name != chosen_type.column}
    chosen_key = _given(key) or _choose_key(rest, head.num_rows)
    message = None if chosen_type is not None and type is not None else _message(rest)
    if message is not None and type is None:
        # A log level is not what happened: the message is.
        chosen_type = (
            None
            if chosen_type is None or re.fullmatch("level|severity|program|host|name", chosen_type.column, re.I)
            else chosen_type
        )
        message = message if chosen_type is None else None
    times = head.column(chosen_time.column)
    ticks = _ticks(times) if pa.types.is_integer(times.type) else ""
    order = _choose_order(head, path, chosen_time.column, leaves.get(chosen_key.column) if chosen_key else None)
    if order is not None and order.column not in table.column_names:
        table = table.append_column(LINE, pa.array(range(1, table.num_rows + 1), pa.int64()))
    return table, Roles(chosen_time, chosen_type, chosen_key, order, message, ticks, notation)


def leaf_columns(table: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yields the columns, and the fields of structs in place of the structs: `user.id`."""
    waiting = [(name, table.column(name)) for name in table.column_names]
    while waiting:
        name, column = waiting.pop(0)
        if not pa.types.is_struct(column.type):
            yield name, column
        elif name.count(".") < 4:
            fields = [f"{name}.{field.name}" for field in column.type if "." not in field.name]
            waiting[:0] = [(path, found) for path in fields if (found := field_of(table, path)) is not None]


def _given(name: str | None) -> Choice | None:
    return None if name is None else Choice(name, "set by you")


def _last(name: str) -> str:
    return name.rpartition(".")[2].strip()


# --- time


def _choose_time(leaves: Mapping[str, pa.ChunkedArray], path: Path) -> Choice:
    """Chooses timestamps, then text that is one, then integers with a name like a time or that count from 1970."""
    full = {name: values for name, values in leaves.items() if values.null_count < len(values)}
    moments = [
        name for name, values in full.items() if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)
    ]
    written = [name for name, values in full.items() if is_text(values.type) and _reads_as_time(values, path)]
    if any(TIME_NAMES.search(_last(name)) for name in written) or not moments:
        moments = [name for name in full if name in moments or name in written]
    if moments:
        return _best(moments, TIME_NAMES, "timestamps")
    integers = [name for name, values in full.items() if pa.types.is_integer(values.type) and name != LINE]
    called = [name for name in integers if TIME_NAMES.search(_last(name))]
    counting = [name for name in integers if _ticks(leaves[name])]
    both = [name for name in called if name in counting]
    if counting:
        chosen = (both or counting)[0]
        return _best(both or counting, TIME_NAMES, f"{_ticks(leaves[chosen])} since 1970")
    if called:
        return Choice(called[0], "integers, and the name suggests a time")
    raise UsageError("no-time", f"no time column found; available columns: {', '.join(leaves)}", _time_hint(leaves))


def _reads_as_time(values: pa.ChunkedArray, path: Path) -> bool:
    texts = values.cast(pa.string()).drop_null().slice(0, 200)
    try:
        found, _ = read_times(pa.chunked_array([texts.combine_chunks()]), path.stat().st_mtime)
    except UsageError as error:
        return error.code in ("ambiguous-time", "no-year")
    return bool(pa.types.is_timestamp(found.type))


def _notation(leaves: Mapping[str, pa.ChunkedArray], name: str, table: pa.Table, path: Path) -> Notation | None:
    """Returns how the times are written as text, if not in ISO 8601."""
    values = field_of(table, name) if name not in table.column_names else table.column(name)
    if values is None or not is_text(values.type):
        return None
    found = read_times(values, path.stat().st_mtime)[1]
    if found is not None and not found.reads_each_line:
        # A pipeline reads each line on its own.
        said = f"the times of `{name}` have no year and span more than a year"
        raise UsageError("no-year", said, "add the year to the times, or split the file")
    return found


def _check_time(table: pa.Table, name: str) -> None:
    values = table.column(name)
    if values.null_count == len(values):
        raise UsageError(
            "no-time", f"column `{name}` has no times: all its values are empty", "set another with --time"
        )
    if pa.types.is_timestamp(values.type) or pa.types.is_integer(values.type):
        return
    hint = f"convert `{name}` from {values.type} to timestamps or integers"
    if is_text(values.type):
        odd = next(text for text in values.cast(pa.string()).to_pylist() if text and not _is_one_time(text))
        hint = f"not a time: `{odd[:60]}`; write all times in one notation, such as ISO 8601"
    raise UsageError("no-time", f"column `{name}` cannot be read as times", hint)


def _is_one_time(text: str) -> bool:
    return bool(re.match(r"\d{4}-\d\d-\d\d[T ]\d", text))


def _time_hint(leaves: Mapping[str, pa.ChunkedArray]) -> str:
    floats = [
        name for name, values in leaves.items() if pa.types.is_floating(values.type) and TIME_NAMES.search(_last(name))
    ]
    if floats:
        return f"convert `{floats[0]}` from floating point to timestamps or integers"
    for name, values in leaves.items():
        if pa.types.is_list(values.type) and pa.types.is_struct(values.type.value_type):
            return f"if the events are in the list `{name}`, write one object per line: jq -c '.{name}[]' FILE"
    return "set it with --time COLUMN; all its values must have one notation, such as ISO 8601"


def _ticks(column: pa.ChunkedArray) -> str:
    """Returns the unit in which all integers are times since 1970 between 2000 and 2100; "" if there is none."""
    least, greatest = (value.as_py() for value in pc.min_max(column).values())
    if least is None:
        return ""
    fitting = (word for word, each in TICKS.items() if 30 * YEAR * each <= least and greatest <= 130 * YEAR * each)
    return next(fitting, "")


# --- type and key


def _best(names: Sequence[str], wanted: re.Pattern[str], what: str) -> Choice:
    """Chooses the first column with a suitable name, otherwise the first. `what` is what all of them contain."""
    called = next((name for name in names if wanted.search(_last(name))), names[0])
    others = [f"`{name}`" for name in names if name != called]
    if not others:
        return Choice(called, f"the only column with {what}")
    return Choice(called, f"a column with {what}; others: {', '.join(others)}")


def _choose_type(columns: Mapping[str, pa.ChunkedArray], rows: int) -> Choice | None:
    """Chooses short texts with few values that are not keys, or integers with few values and a name like a type."""
    most = min(MOST_TYPES, rows // 2)
    texts = [
        name
        for name, values in columns.items()
        if is_text(values.type)
        and 2 <= _distinct(values) <= most
        and _mean_length(values) <= LONGEST_TYPE
        and (TYPE_NAMES.search(_last(name)) or not KEY_NAMES.search(_last(name)))
        and not (MESSAGE_NAMES.search(_last(name)) and _has_parts(values))
    ]
    if any(TYPE_NAMES.search(_last(name)) for name in texts):
        return _best(texts, TYPE_NAMES, "few distinct texts")
    for name, values in columns.items():
        if (
            pa.types.is_integer(_plain(values.type))
            and TYPE_NAMES.search(_last(name))
            and 2 <= _distinct(values) <= most
        ):
            return Choice(name, f"{_distinct(values)} distinct integers, and the name suggests a type")
    return _best(texts, TYPE_NAMES, "few distinct texts") if texts else None


def _has_parts(column: pa.ChunkedArray) -> bool:
    """Whether most texts have words and a number, as `Failed login of user 7`: the type is only a part of them."""
    texts = column.cast(pa.string())
    parted = pc.and_(pc.match_substring(texts, " "), pc.match_substring_regex(texts, "[0-9]"))
    return bool((pc.mean(parted.cast(pa.int8())).as_py() or 0) > 0.5)


def _choose_key(columns: Mapping[str, pa.ChunkedArray], rows: int) -> Choice | None:
    """Chooses a column whose values repeat: with a name like a key, or else texts."""
    counts = {
        name: _distinct(values)
        for name, values in columns.items()
        if (_counts(values) or is_text(values.type)) and _mean_length(values) <= LONGEST_TYPE
    }
    filled = {name: rows - columns[name].null_count for name in counts}
    repeated = {
        name: count for name, count in counts.items() if 1 < count <= filled[name] / 2 and 4 * filled[name] >= rows
    }
    named = [name for name in repeated if KEY_NAMES.search(_last(name))]
    named += [name for name, count in counts.items() if KEY_NAMES.search(_last(name)) and 1 < count < filled[name]]
    if named:
        return Choice(named[0], f"{counts[named[0]]:,} distinct values, and the name suggests a key")
    texts = [
        name
        for name in repeated
        if is_text(columns[name].type) and not TYPE_NAMES.search(_last(name)) and not MESSAGE_NAMES.search(_last(name))
    ]
    if texts:
        # The key of a process has more values than a category.
        chosen = max(texts, key=lambda name: repeated[name])
        return Choice(chosen, f"{repeated[chosen]:,} distinct texts that repeat")
    return None


def _counts(column: pa.ChunkedArray) -> bool:
    """Whether a column has integers, or floats that are: pandas writes integers next to empty cells as `7.0`."""
    if not pa.types.is_floating(column.type):
        return bool(pa.types.is_integer(_plain(column.type)))
    return bool(pc.all(pc.equal(pc.floor(column), column)).as_py()) and column.null_count < len(column)


def _message(columns: Mapping[str, pa.ChunkedArray]) -> str | None:
    """Returns a column of long texts with many values, such as log messages."""
    long = [
        name
        for name, values in columns.items()
        if is_text(values.type) and pc.any(pc.match_substring(values.cast(pa.string()).slice(0, 1000), " ")).as_py()
    ]
    return next((name for name in long if MESSAGE_NAMES.search(_last(name))), None)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Whether a column has texts."""
    plain = _plain(kind)
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))


def _mean_length(column: pa.ChunkedArray) -> float:
    if not is_text(column.type):
        return 0.0
    return float(pc.mean(pc.utf8_length(column.cast(pa.string()))).as_py() or 0)


def _distinct(column: pa.ChunkedArray) -> int:
    """Returns the number of values, without empty ones."""
    plain = column.cast(_plain(column.type))
    if is_text(plain.type):
        plain = plain.filter(pc.not_equal(plain, ""))
    return int(pc.count_distinct(plain).as_py())


# --- order


def _choose_order(table: pa.Table, path: Path, time: str, keys: pa.ChunkedArray | None) -> Choice | None:
    """Chooses an order if events of one key have the same time: a column that counts them, or the line number."""
    times = table.column(time)
    codes = key_codes(keys, table.num_rows)
    numbers = pc.fill_null(times.cast(pa.int64()), 0).to_numpy()
    known = times.is_valid().to_numpy() & (codes >= 0)
    places = np.flatnonzero(known)
    places = places[np.lexsort((places, codes[places]))]
    same = codes[places][1:] == codes[places][:-1]
    steps = np.diff(numbers[places])[same]
    # Of one key in the order of the file, equal times may be apart.
    pairs = np.stack([codes[places], numbers[places]])
    ties = int(pairs.shape[1] - np.unique(pairs, axis=1).shape[1])
    if not ties:
        return None
    said = f"{ties:,} events have the time of another one" + (" of the same key" if keys is not None else "")
    for name in table.column_names:
        values = table.column(name)
        counts = pa.types.is_integer(values.type) and name != time and values.null_count == 0
        if counts and (ORDER_NAMES.search(name) or name == LINE) and _distinct(values) == table.num_rows:
            return Choice(name, f"{said}, and the column orders them")
    if LINE in table.column_names or path.is_dir() or (len(steps) and (steps < 0).mean() > 0.01):
        return None
    return Choice(LINE, f"{said}, and the file is in the order of time: the number of the row")


def key_codes(keys: pa.ChunkedArray | None, rows: int) -> np.ndarray:
    """Returns a number for each key; -1 for none."""
    if keys is None:
        return np.zeros(rows, np.int64)
    encoded = keys.cast(_plain(keys.type)).combine_chunks().dictionary_encode()
    codes: np.ndarray = pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return codes
