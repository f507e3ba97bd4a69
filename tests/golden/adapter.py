"""The only module here that calls Ensue: a change of its API changes this file and no recorded answer.

A question is asked in every way in which it can be asked: in one batch, step by step with restarts, for violations,
for the probability of any match, and of states. An answer is made of plain values: columns, rows in a canonical order,
the code of an error, or, where Ensue had a bug when the record was written, the class of the exception.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

import ensue
from ensue.beliefs import TrackingOptions

TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "bool": pa.bool_(),
    "us": pa.timestamp("us"),
    "list": pa.list_(pa.string()),
    "null": pa.null(),
    "any": None,
}
"""The types of columns; one of type `any` has the type of its values, in the table of each stream."""
Row = list[Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """A table: the type of each column by name, and the rows."""

    columns: dict[str, str]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Question:
    """A program, the events it is run over, and how.

    `roles` are the names of the columns: time, type, end, probability, alternatives. With `split` each stream has a
    table of its own. `period` is what is passed as since and until. `cuts` are the numbers of the rows of each step,
    with the watermark after it; `stepped` is the program of the steps, where it is another one: a `Detector` has one
    result. `measures` are the columns that `ensue.track` adds, for programs of states.
    """

    kind: str
    program: str
    events: Rows
    roles: dict[str, str]
    tables: dict[str, Rows] = field(default_factory=dict)
    cuts: list[tuple[list[int], Any]] = field(default_factory=list)
    split: bool = False
    period: tuple[Any, Any] = (None, None)
    match_id: bool = False
    measures: dict[str, str] = field(default_factory=dict)
    policy: str = "error"
    stepped: str = ""


Answer = dict[str, Any]


def to_json(question: Question, answer: Answer) -> str:
    """One line of a record, without what has its default value."""
    plain = {name: value for name, value in asdict(question).items() if value not in ({}, [], False, (None, None), "")}
    return json.dumps({**plain, "answer": answer}, separators=(",", ":"), ensure_ascii=False)


def from_json(line: str) -> tuple[Question, Answer]:
    """What `to_json` was given."""
    values = json.loads(line)
    answer = values.pop("answer")
    values["events"] = Rows(**values["events"])
    values["tables"] = {name: Rows(**rows) for name, rows in values.get("tables", {}).items()}
    values["cuts"] = [(numbers, watermark) for numbers, watermark in values.get("cuts", [])]
    values["period"] = tuple(values.get("period", (None, None)))
    return Question(**values), answer


def answer_of(question: Question) -> Answer:
    """What Ensue answers, by the way of asking."""
    ways: dict[str, Callable[[Question], Any]] = {"parse": _parsed}
    if question.measures:
        ways |= {"track": _tracked, "beliefs": _believed, "tracked steps": _tracked_steps}
    else:
        ways |= {"run": _run}
        ways |= {"steps": _steps} if question.cuts else {}
        ways |= {"violations": _violations} if "CONSTRAINT" in question.program else {}
        ways |= {"any match": _any_match} if "probability" in question.roles else {}
    _input(question), _options(question)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {way: _attempt(ask, question) for way, ask in ways.items()}


def _attempt(ask: Callable[[Question], Any], question: Question) -> Any:
    try:
        return ask(question)
    except ensue.EnsueError as error:
        return {"error": error.code}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError) as error:
        return {"crash": type(error).__name__}


# The ways of asking


def _parsed(question: Question) -> str:
    ensue.parse(question.program)
    return "accepted"


def _run(question: Question) -> dict[str, Any]:
    since, until = question.period
    found = ensue.run(
        _input(question),
        question.program,
        **_options(question),
        match_id=question.match_id,
        since=_moment(question, since),
        until=_moment(question, until),
    )
    return {name: _shown(table, question) for name, table in found.items()}


def _steps(question: Question) -> list[Any]:
    """What a `Detector` gives in each step, restarted from a snapshot before every second step."""
    has_law = "CONSTRAINT" in question.program
    program = question.stepped or question.program
    if not ensue.parse(program).names:
        # Without a pattern a `Detector` tracks STATEs, which `_tracked_steps` asks for; a batch refuses the program.
        ensue.detect(_input(question), program, **_options(question))

    def detector() -> ensue.Detector:
        return ensue.Detector(program, **_options(question), match_id=question.match_id, violations=has_law)

    found: list[Any] = []
    now = detector()
    for number, (rows, watermark) in enumerate(question.cuts):
        if number % 2:
            now, saved = detector(), now.snapshot()
            now.restore(saved)
        found.append(_shown_step(now.advance(_input(question, rows), watermark=_moment(question, watermark)), question))
    return [*found, _shown_step(now.finish(), question)]


def _shown_step(step: ensue.DetectorStep, question: Question) -> dict[str, Any]:
    late = step.late.values() if isinstance(step.late, Mapping) else [step.late]
    several = isinstance(step.matches, Mapping)
    found = {name: _shown(table, question) for name, table in step.matches.items()} if several else None
    shown = {"matches": found or _shown(step.matches, question), "late": sum(table.num_rows for table in late)}
    return shown if step.violations is None else {**shown, "violations": _shown(step.violations, question)}


def _violations(question: Question) -> Any:
    options = _options(question)
    found = ensue.violations(_input(question), question.program, time=options["time"], type=options.get("type"))
    return _shown(found, question)


def _any_match(question: Question) -> Any:
    return _shown(ensue.any_match(_input(question), question.program, **_options(question)), question)


def _tracked(question: Question) -> Any:
    found = ensue.beliefs.track(_input(question), question.program, question.measures, **_state_options(question))
    return _shown(found, question)


def _believed(question: Question) -> dict[str, Any]:
    found = ensue.beliefs.of(_input(question), question.program, **_state_options(question))
    return {"joint": _shown(found.joint(), question), "set aside": found.ignored.num_rows}


def _tracked_steps(question: Question) -> list[Any]:
    found: list[Any] = []
    options = {**question.roles, "tracking": TrackingOptions(policy=question.policy)}
    now = ensue.Detector(question.program, measures=question.measures, **options)
    for number, (rows, watermark) in enumerate(question.cuts):
        if number % 2:
            saved = now.snapshot()
            now = ensue.Detector(question.program, measures=question.measures, **options)
            now.restore(saved)
        step = now.advance(_input(question, rows), watermark=watermark)
        found.append([_shown(step.tracked, question), step.late.num_rows, step.ignored.num_rows])
    return [*found, _shown(now.finish().tracked, question)]


# What is passed


def _options(question: Question) -> dict[str, Any]:
    roles = {role: name for role, name in question.roles.items() if not (question.split and role == "type")}
    tables = {name: _table(rows) for name, rows in question.tables.items()}
    return roles | ({"tables": tables} if tables else {})


def _state_options(question: Question) -> dict[str, Any]:
    return {**question.roles, "policy": question.policy}


def _moment(question: Question, ticks: Any) -> Any:
    if ticks is None or question.events.columns[question.roles["time"]] != "us":
        return ticks
    return pa.scalar(ticks, pa.timestamp("us")).as_py()


def _table(rows: Rows, numbers: Sequence[int] | None = None) -> pa.Table:
    chosen = rows.rows if numbers is None else [rows.rows[number] for number in numbers]
    values = list(zip(*chosen, strict=True)) or [()] * len(rows.columns)
    return pa.table(
        {name: _array(column, kind) for (name, kind), column in zip(rows.columns.items(), values, strict=True)}
    )


def _array(values: Sequence[Any], kind: str) -> pa.Array:
    if kind == "us":
        return pa.array(values, pa.int64()).cast(TYPES["us"])
    return pa.array(values, TYPES[kind])


def _input(question: Question, numbers: Sequence[int] | None = None) -> pa.Table | dict[str, pa.Table]:
    """All events, or those of the rows; with `split` a table for each stream that the question has anywhere."""
    if not question.split:
        return _table(question.events, numbers)
    place = list(question.events.columns).index(question.roles["type"])
    own: dict[str, list[int]] = {}
    for number, row in enumerate(question.events.rows):
        own.setdefault(row[place], []).append(number)
    return {
        stream: _table(question.events, members)
        .filter(pa.array([numbers is None or number in numbers for number in members]))
        .drop_columns(question.roles["type"])
        for stream, members in own.items()
    }


# What comes back


def _shown(table: pa.Table, question: Question) -> dict[str, Any]:
    """The columns with their types, and the rows sorted: the order of equal completion times means nothing."""
    rows = [[_value(value, question) for value in row.values()] for row in _plain(table).to_pylist()]
    if not all(row for row in rows):
        rows = [[] for _ in range(table.num_rows)]
    return {"columns": [[name, _type(table.schema.field(name).type)] for name in table.column_names],
            "rows": sorted(rows, key=_order)}  # fmt: skip


def _type(kind: pa.DataType) -> str:
    """The type, or of an event only that it is one: its fields are those of its values."""
    if pa.types.is_struct(kind):
        return "event"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {_type(kind.value_type)}"
    return str(kind)


def _plain(table: pa.Table) -> pa.Table:
    """Times as integers, which JSON can hold; durations too."""
    columns = [_as_integers(table.column(name)) for name in table.column_names]
    return pa.Table.from_arrays(columns, names=table.column_names) if columns else table


def _as_integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    return column


def _value(value: Any, question: Question) -> Any:
    """A value that JSON can hold; an event as the number of its row, where it has all the values of this row."""
    match value:
        case list():
            return [_value(item, question) for item in value]
        case dict():
            number = value.get("id")
            if isinstance(number, int) and 0 <= number < len(question.events.rows):
                row = dict(zip(question.events.columns, question.events.rows[number], strict=True))
                if value.items() <= row.items() and len(value) >= len(row) - 1:
                    return {"row": number}
            return {name: _value(item, question) for name, item in value.items()}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _order(row: Row) -> str:
    return json.dumps(_rounded(row), sort_keys=True)


def _rounded(value: Any) -> Any:
    """Numbers to six digits, so that a difference in the last bit does not change the order."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case list():
            return [_rounded(item) for item in value]
        case dict():
            return {name: _rounded(item) for name, item in value.items()}
        case _:
            return value


# Comparison


def same(expected: Any, found: Any) -> bool:
    """Equal, numbers that are not whole within a billionth."""
    match expected, found:
        case float() | int(), float() | int() if isinstance(expected, float) or isinstance(found, float):
            equal = math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-9)
            return equal or (math.isnan(expected) and math.isnan(found))
        case list(), list():
            return len(expected) == len(found) and all(map(same, expected, found))
        case dict(), dict():
            return expected.keys() == found.keys() and all(same(expected[key], found[key]) for key in expected)
        case _:
            return type(expected) is type(found) and expected == found
