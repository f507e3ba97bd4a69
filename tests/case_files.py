"""Cases as text: events, a query, and the matches that the contract promises. Parser and renderer.

A file holds cases one after the other; lines that start with `#` are comments. A case has a title and three parts:

    === SEQ: each strictly before the next
    A1 B2(x=5) B2'(x=7) C3..6
    ---
    PATTERN SEQ(A a, B b)
    ---
    a=A1 b=B2
    a=A1 b=B2'

Events, in the order of arrival, over as many lines as read well. The arrival decides nothing: of events at the same
time, the name of the stream and then the columns decide, among which `event` has what is written.
    A1              an event of stream A at time 1
    A1'             another one of the same stream and time
    A3..6           from time 3 to 6; the table then has an end column
    Wash@10:05      a time of day (of 2024-01-01) or a date and time `2024-01-31T10:05`; `@` also parts `T2@5`
    B2(x=5, n='a')  with fields: integers, floats, nan, 'text', true, false, null; fields not written are null
    B2(p=1.50d)     a decimal
    B2(l=[1, null], u={name: 'x', age: 3}, m={'env': 'x'})  a list, a struct, a map (its keys are quoted)
    `a b`@3(`x.y`=1)  names that are no words stand in backticks, here and in the matches

Where a query has several statements, all but the last declare streams, and the matches are those of the last.
A title with `[tables]` gives the events as one table per stream, with the fields that its own events have. A title with
`[order n]` or `[order n, m]` says that these fields order the events at the same time.
A program of rules may use tables that do not change: beside the events, each row on a line of its own,
    TABLE price(product='tea', amount=5)

A case of `papers/` says below its title which print of a paper it is: the paper, the section, the line or lines of its
text, and a quote from the first of these lines. `why` says where the case differs from the print, and `pending` which
item of an issue it waits for: until then, it must fail.
    paper: 001 §IV line 118: notFulfilledOrder^{[T_1, T_4]}(X)
    why: the window is closed by a timer
    pending: issue 20 item 4

Matches, one a line in any order:
    a=A1 b=B2       the event of each named variable; variables of OR branches not taken are left out
    a=A1 @6         complete, and so reported, only at time 6; `@end`: at the end of the stream
    suppressed=2    with SUPPRESS, how many matches were suppressed before
    [1, 4]          the interval, where the pattern names no variable
    t=[T2 T3]       the events of a variable of a repetition; `[]` where there is none
    n='a' at=4      the columns of RETURN; `[1, null]` is a list of values
    h: x=1 [1, 4]   of a program with rules: an event of the head `h`, its attributes and its interval
    p: n='a'        of a program with rules: a match of the pattern `p`, as above
    none            no match
    error CODE      the query is refused; one line for each problem, in the order reported
Anything behind `  #` is a comment. A match without `@` is complete when its last event has ended.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import takewhile
from pathlib import Path

import pyarrow as pa


class Map(dict):  # type: ignore[type-arg]
    """The value of a map; that of a struct is a plain dictionary."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


FieldValue = bool | int | float | str | Decimal | tuple["FieldValue", ...] | dict[str, "FieldValue"] | None
CASES = Path(__file__).parent / "cases"
DAY = "2024-01-01"
TIME_TYPE = pa.timestamp("us")
EPOCH = datetime(1970, 1, 1)

_TIME = r"-?\d+(?:-\d\d-\d\dT)?(?:(?<=T)\d\d)?(?::\d\d)*(?:(?<=:\d\d)\.\d+)?"
_QUOTED = r"`[^`]+`"
_FIELDS = r"(?:'(?:[^']|'')*'|[^()'])*"
_EVENT = re.compile(rf"({_QUOTED}|[A-Za-z_]\w*?)(@?)({_TIME})(?:\.\.({_TIME}))?('*)(?:\(({_FIELDS})\))?(?=\s|$)")
_HEADER = re.compile(r"(paper|why|pending): ")
_PRINT = re.compile(r"(\d{3}) §\S+ lines? (\d+)(?:-(\d+))?: (.+)")
_ROW = re.compile(rf"^TABLE (\w+)\(({_FIELDS})\)[ ]*$", re.MULTILINE)
_TOKENS = re.compile(rf"\s*({_QUOTED}|'(?:[^']|'')*'|[\[\]{{}}=:,]|[^\s\[\]{{}}=:,]+)")


@dataclass(frozen=True, slots=True)
class CaseEvent:
    """An event of a case. `label` is how it is written, without its fields; times are ticks (microseconds of a day)."""

    label: str
    stream: str
    start: int
    end: int
    fields: dict[str, FieldValue]


@dataclass(frozen=True, slots=True)
class Print:
    """A rule, query or example of a paper: where it is printed, and how its first line can be found."""

    paper: str
    first: int
    last: int
    quote: str


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `expected` holds the lines as written; `rows` and `errors` read them."""

    title: str
    events: str
    query: str
    expected: tuple[str, ...]
    before: str = ""
    header: str = ""

    @property
    def prints(self) -> list[Print]:
        found = [_PRINT.fullmatch(text) for text in self.header_values("paper")]
        if None in found:
            raise ValueError(f"{self.title!r} has a `paper:` without paper, section, line and quote")
        return [Print(each[1], int(each[2]), int(each[3] or each[2]), each[4]) for each in found if each]

    @property
    def pending(self) -> bool:
        """Whether it waits for something that is not there yet."""
        return bool(self.header_values("pending"))

    def header_values(self, key: str) -> list[str]:
        return re.findall(rf"^{key}: (.*)$", self.header, re.MULTILINE)

    @property
    def has_tables(self) -> bool:
        return "[tables]" in self.title

    @property
    def order(self) -> tuple[str, ...]:
        """The fields that order the events at the same time."""
        found = re.search(r"\[order ([^]]+)\]", self.title)
        return () if found is None else tuple(name.strip() for name in found[1].split(","))

    @property
    def lines(self) -> list[str]:
        """The expected lines without comments."""
        return [" ".join(line.split("  #")[0].split()) for line in self.expected]

    @property
    def rows(self) -> list[str]:
        return [line for line in self.lines if line != "none" and not line.startswith("error ")]

    @property
    def errors(self) -> list[str]:
        return [line.removeprefix("error ") for line in self.lines if line.startswith("error ")]

    @property
    def has_clock_times(self) -> bool:
        return any(":" in event.label for event in self.parsed_events())

    @property
    def has_intervals(self) -> bool:
        return any(event.start != event.end for event in self.parsed_events())

    @property
    def completions(self) -> list[int]:
        """The times behind `@` in the expected rows."""
        found = re.findall(rf" @({_TIME})$", "\n".join(self.rows), re.MULTILINE)
        return [parse_time(text) for text in found]

    def parsed_events(self) -> list[CaseEvent]:
        return list(parse_events(_ROW.sub("", self.events)))

    def rows_of_tables(self) -> dict[str, list[dict[str, FieldValue]]]:
        """The rows of the tables that do not change."""
        found: dict[str, list[dict[str, FieldValue]]] = {}
        for name, values in _ROW.findall(self.events):
            found.setdefault(name, []).append(_parse_fields(values))
        return found

    def fixed_tables(self) -> dict[str, pa.Table]:
        return {name: pa.Table.from_pylist(rows) for name, rows in self.rows_of_tables().items()}


def case_files() -> list[Path]:
    return sorted(CASES.rglob("*.txt"))


def ready_cases(path: Path) -> list[Case]:
    """The cases of a file except those that wait for something."""
    return [case for case in read_cases(path)[0] if not case.pending]


def read_cases(path: Path) -> tuple[list[Case], str]:
    """The cases of a file, and the text behind the last one."""
    before: list[str] = []
    cases: list[Case] = []
    blocks = re.split(r"^(?==== )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    before.append(blocks[0])
    for block in blocks[1:]:
        body, behind = _without_comments_behind(block)
        title, _, rest = body.partition("\n")
        header = "".join(takewhile(_HEADER.match, rest.splitlines(keepends=True)))
        rest = rest.removeprefix(header)
        parts = re.split(r"^---[ ]*(?:\n|$)", rest, flags=re.MULTILINE)
        if len(parts) != 3:
            raise ValueError(f"{path.name}: {title!r} has {len(parts)} parts instead of events, query, matches")
        expected = tuple(line.rstrip() for line in parts[2].splitlines() if line.strip())
        case = Case(title.removeprefix("=== ").strip(), parts[0], parts[1], expected, before[-1], header)
        if case.lines != ["none"] and len(case.lines) not in (len(case.rows) or None, len(case.errors) or None):
            raise ValueError(f"{path.name}: {title!r} expects neither matches, nor `none`, nor only `error CODE`")
        cases.append(case)
        before.append(behind)
    return cases, before[-1]


def _without_comments_behind(block: str) -> tuple[str, str]:
    """Comment lines and blank lines at the end of a block belong to the case that follows."""
    lines = block.splitlines(keepends=True)
    end = len(lines)
    while not lines[end - 1].strip() or lines[end - 1].startswith("#"):
        end -= 1
    return "".join(lines[:end]), "".join(lines[end:])


def render_cases(cases: Iterable[Case], behind: str) -> str:
    """The text of a file; reading it gives the same cases."""
    return "".join(render_case(case) for case in cases) + behind


def render_case(case: Case) -> str:
    expected = "".join(f"{line}\n" for line in case.expected)
    return f"{case.before}=== {case.title}\n{case.header}{case.events}---\n{case.query}---\n{expected}"


def with_expected(case: Case, lines: Sequence[str]) -> Case:
    """The case with what was found, as it is if that is what it expects."""
    found = list(lines) or ["none"]
    return case if sorted(found) == sorted(case.lines) else replace(case, expected=tuple(found))


@cache
def parse_events(text: str) -> tuple[CaseEvent, ...]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    remaining = "\n".join(lines).strip()
    events: list[CaseEvent] = []
    while remaining:
        found = _EVENT.match(remaining)
        if found is None:
            raise ValueError(f"not an event: {remaining.splitlines()[0]!r}")
        stream, at, start, end, primes, fields = found.groups()
        until = f"..{end}" if end else ""
        label = f"{stream}{at}{start}{until}{primes}"
        if label in {event.label for event in events}:
            raise ValueError(f"two events are called {label}; add a prime to one")
        times = parse_time(start), parse_time(end or start)
        events.append(CaseEvent(label, stream.strip("`"), *times, _parse_fields(fields)))
        remaining = remaining[found.end() :].lstrip()
    return tuple(events)


def _parse_fields(text: str | None) -> dict[str, FieldValue]:
    if not text:
        return {}
    tokens = _TOKENS.findall(text)
    fields: dict[str, FieldValue] = {}
    while tokens:
        name, equals = tokens.pop(0), tokens.pop(0)
        if equals != "=":
            raise ValueError(f"not a list of fields: {text!r}")
        fields[name.strip("`")] = _parse_value(tokens)
        if tokens and tokens.pop(0) != ",":
            raise ValueError(f"not a list of fields: {text!r}")
    return fields


def _parse_value(tokens: list[str]) -> FieldValue:
    text = tokens.pop(0)
    if text == "[":
        return tuple(_parse_until("]", tokens))
    if text == "{":
        is_map = tokens[0].startswith("'")
        pairs = [(key, value) for key, value in _parse_pairs(tokens)]
        return Map(pairs) if is_map else dict(pairs)
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    words: dict[str, FieldValue] = {"null": None, "true": True, "false": False}
    if text in words:
        return words[text]
    if re.fullmatch(r"-?[\d.]+d", text):
        return Decimal(text[:-1])
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _parse_until(end: str, tokens: list[str]) -> Iterator[FieldValue]:
    while tokens[0] != end:
        yield _parse_value(tokens)
        if tokens[0] == ",":
            tokens.pop(0)
    tokens.pop(0)


def _parse_pairs(tokens: list[str]) -> Iterator[tuple[str, FieldValue]]:
    while tokens[0] != "}":
        name, colon = tokens.pop(0), tokens.pop(0)
        if colon != ":":
            raise ValueError(f"not a field of a struct: {name}")
        yield name.strip("'`"), _parse_value(tokens)
        if tokens[0] == ",":
            tokens.pop(0)
    tokens.pop(0)


def parse_time(text: str) -> int:
    """A time as ticks: the number itself, or microseconds since 1970."""
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    moment = datetime.fromisoformat(text if "T" in text else f"{DAY}T{text}")
    return (moment - EPOCH) // timedelta(microseconds=1)


def render_time(ticks: int, is_clock: bool) -> str:
    """The shortest way to write a time that reads back to the same ticks."""
    if not is_clock:
        return str(ticks)
    text = (EPOCH + timedelta(microseconds=ticks)).isoformat()
    return text.removeprefix(f"{DAY}T").removesuffix(":00")


def events_table(case: Case, events: Sequence[CaseEvent], names: Sequence[str] | None = None) -> pa.Table:
    """Columns `event` (the label), `type`, `time`, `until` and the fields, of all events or those called `names`."""
    kind = TIME_TYPE if case.has_clock_times else pa.int64()
    columns: dict[str, pa.Array] = {
        "event": pa.array([event.label for event in events], pa.string()),
        "type": pa.array([event.stream for event in events], pa.string()),
        "time": pa.array([event.start for event in events], pa.int64()).cast(kind),
    }
    if case.has_intervals:
        columns["until"] = pa.array([event.end for event in events], pa.int64()).cast(kind)
    everything = case.parsed_events()
    owners = [event for event in everything if names is None or event.stream in names]
    for name in dict.fromkeys(name for event in owners for name in event.fields):
        of_type = type_of([event.fields.get(name) for event in owners])
        columns[name] = array_of([event.fields.get(name) for event in events], of_type)
    return pa.table(columns)


def type_of(values: Sequence[FieldValue]) -> pa.DataType:
    """The Arrow type of the values of a column."""
    maps = [value for value in values if isinstance(value, Map)]
    if maps:
        return pa.map_(pa.string(), type_of([value for each in maps for value in each.values()]))
    return pa.array(list(map(_for_arrow, values))).type


def array_of(values: Sequence[FieldValue], of_type: pa.DataType) -> pa.Array:
    """The values of a column as Arrow has them."""
    return pa.array(list(map(_for_arrow, values)), of_type)


def _for_arrow(value: FieldValue) -> object:
    return list(value.items()) if isinstance(value, Map) else value


def input_of(case: Case, events: Sequence[CaseEvent]) -> pa.Table | dict[str, pa.Table]:
    """What `ensue.detect` is given: one table, or one per stream."""
    if not case.has_tables:
        return events_table(case, events)
    streams = dict.fromkeys(event.stream for event in case.parsed_events())
    return {
        stream: events_table(case, [event for event in events if event.stream == stream], [stream]).drop_columns("type")
        for stream in streams
    }


def render_rows(table: pa.Table) -> list[str]:
    """The rows of a result as they stand in a case, without `@`."""
    if "start" not in table.column_names:
        return [
            " ".join(f"{render_name(name)}={render_value(value)}" for name, value in row.items())
            for row in table.to_pylist()
        ]
    is_clock = pa.types.is_timestamp(table.schema.field("start").type)
    variables = [field.name for field in table.schema if is_variable(field.type)]
    starts, ends = ticks_of(table, "start"), ticks_of(table, "end")
    return [
        (
            " ".join(f"{render_name(name)}={_render_label(row[name])}" for name in variables if row[name] is not None)
            or f"[{render_time(start, is_clock)}, {render_time(end, is_clock)}]"
        )
        + render_suppressed(row.get("suppressed"))
        for row, start, end in zip(table.to_pylist(), starts, ends, strict=True)
    ]


def render_suppressed(count: int | None) -> str:
    """The number of suppressed matches before a match, if the query has SUPPRESS."""
    return "" if count is None else f" suppressed={count}"


def render_results(results: Mapping[str, pa.Table], heads: Collection[str]) -> list[str]:
    """The rows of the results of a program with rules, each with the name of its head or pattern."""
    return [
        f"{name}: {row}"
        for name, table in results.items()
        for row in (render_derived(table) if name in heads else render_rows(table))
    ]


def render_derived(table: pa.Table) -> list[str]:
    """Derived events: their attributes and their intervals."""
    is_clock = pa.types.is_timestamp(table.schema.field("start").type)
    attributes = table.drop_columns(["start", "end"]).to_pylist() if table.num_columns > 2 else [{}] * table.num_rows
    times = zip(ticks_of(table, "start"), ticks_of(table, "end"), strict=True)
    return [render_event(row, start, end, is_clock) for row, (start, end) in zip(attributes, times, strict=True)]


def render_event(attributes: Mapping[str, object], start: int, end: int, is_clock: bool) -> str:
    values = [f"{render_name(name)}={render_value(value)}" for name, value in attributes.items()]
    return " ".join([*values, f"[{render_time(start, is_clock)}, {render_time(end, is_clock)}]"])


def is_variable(kind: pa.DataType) -> bool:
    """The column of an event, or of a list of events."""
    return pa.types.is_struct(kind) or (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type))


def render_name(name: str) -> str:
    """A column as it stands in a case: in backticks unless it is a word."""
    return name if re.fullmatch(r"\w+", name) else f"`{name}`"


def _render_label(event: dict[str, FieldValue] | list[dict[str, FieldValue]] | None) -> str:
    if isinstance(event, list):
        return "[" + " ".join(map(_render_label, event)) + "]"
    return "null" if event is None else str(event["event"])


def ticks_of(table: pa.Table, column: str) -> list[int]:
    return table.column(column).cast(pa.int64()).to_pylist()


def render_value(value: object) -> str:
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return f"'{value}'"
        case dict():
            return "{" + ", ".join(f"{name}: {render_value(part)}" for name, part in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(render_value, value)) + "]"
        case datetime():
            return render_time((value - EPOCH) // timedelta(microseconds=1), True)
        case _:
            return str(value)
