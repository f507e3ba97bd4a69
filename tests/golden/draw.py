"""Draws the questions of the golden record and writes what Ensue answers: `python tests/golden/draw.py`.

Commit ff90ea6 wrote the record. Written again it would be another record, so this refuses to replace a file.
"""

from __future__ import annotations

import lzma
import random
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import ensue
from case_files import Case, case_files, ready_cases
from constraints.strategies import constraint_sets, lawful_traces, mixed, plain_queries
from golden.adapter import Answer, Question, Rows, answer_of, to_json
from inside import (
    Constant,
    ConstraintStatement,
    ExpectedCount,
    MostLikely,
    PatternQuery,
    Places,
    ProbabilityOf,
    Statements,
    positive_names,
    render_measure,
    render_query,
    render_statements,
)
from oracle.oracle import OracleEvent
from oracle.rules import head_attributes
from strategies import states as state_strategies
from strategies.histories import batches, histories
from strategies.operators import cases_with_lists, cases_with_operators, cases_with_picks
from strategies.patterns import cases
from strategies.policies import cases_with_consumption, cases_with_contexts, cases_with_sequences
from strategies.rules import rule_cases
from strategies.uncertain import uncertain
from streams.test_against_oracle import programs as programs_with_streams
from test_error_catalogue import EXAMPLES

HERE = Path(__file__).parent
FIELDS = {"x": "int", "y": "int", "k": "int", "g": "int", "name": "text"}
COLUMNS = {"id": "int", "type": "text", "time": "int", "until": "int", **FIELDS}
POINTS = {"time": "time", "type": "type"}
INTERVALS = {**POINTS, "end": "until"}
LEVELS = (
    "HIERARCHY O > (A 0.5, B 0.25)",
    "HIERARCHY O > (A 0.5, B 0.5); HIERARCHY A > (C 0.25, D 0.75)",
    "HIERARCHY O > A > (C, D)",
    "HIERARCHY E > (O 0.75, D 0.25); HIERARCHY O > (A, B)",
    "HIERARCHY O > (A 0.9)",
)
Draw = st.DrawFn


def events_of(history: Sequence[OracleEvent], further: dict[str, str] | None = None) -> Rows:
    columns = COLUMNS | (further or {})
    rows = [
        [event.id, event.stream, event.s, event.e, *(event.fields.get(name) for name in FIELDS)] for event in history
    ]
    return Rows(columns, rows)


@st.composite
def cuts_of(draw: Draw, history: Sequence[OracleEvent]) -> list[tuple[list[int], int]]:
    """Any way to cut the history; now and then one in which some events come too late."""
    cut = [([event.id for event in events], watermark) for events, watermark in draw(batches(list(history)))]
    if len(cut) > 1 and draw(st.integers(0, 9)) == 9:
        cut = [(rows, watermark) for (rows, _), (_, watermark) in zip(cut[::-1], cut, strict=True)]
    return cut


@st.composite
def settings_of(draw: Draw, history: Sequence[OracleEvent], intervals: bool) -> dict[str, Any]:
    """How a program is asked: tables, range, identities, cuts."""
    latest = max((event.e for event in history), default=0) + 3
    period = sorted(draw(st.tuples(st.integers(-1, latest), st.integers(-1, latest))))
    chance = draw(st.integers(0, 11))
    return {
        "roles": INTERVALS if intervals else POINTS,
        "cuts": draw(cuts_of(history)),
        "split": chance == 0,
        "period": tuple(period) if chance in (1, 2) else (period[0], None) if chance == 3 else (None, None),
        "match_id": chance in (4, 5),
    }


@st.composite
def returns_of(draw: Draw, query: PatternQuery) -> str:
    """What follows RETURN, of variables outside of NOT; some of it is refused."""
    names = [f"`{name}`" for name in positive_names(query.pattern) if isinstance(name, str)]
    if not names or draw(st.integers(0, 2)) == 0:
        return ""
    forms = (
        "{}.x AS c{}",
        "{}.t AS c{}",
        "{}.e - {}.s AS c{}",
        "coalesce({}.y, 0) + 1 AS c{}",
        "upper({}.name) AS c{}",
    )
    lists = ("count({}) AS c{}", "sum({}.x) AS c{}", "list({}.y) AS c{}", "max({}.t) AS c{}")
    columns = []
    for number, name in enumerate(names[:3]):
        text = draw(st.sampled_from(lists if draw(st.integers(0, 3)) == 0 else forms))
        columns.append(text.format(*[name] * (text.count("{}") - 1), number))
    return " RETURN " + ", ".join(columns)


def is_accepted(text: str) -> bool:
    try:
        ensue.parse(text)
    except ensue.QueryError:
        return False
    return True


def patterns(kind: str, drawn: Callable[..., st.SearchStrategy[Any]]) -> st.SearchStrategy[Question]:
    @st.composite
    def questions(draw: Draw) -> Question:
        intervals = draw(st.booleans())
        query, history = draw(drawn(intervals=intervals))
        text = render_query(query)
        columns = draw(returns_of(query))
        if is_accepted(text + columns) or draw(st.integers(0, 9)) == 9:
            text += columns
        return Question(kind, text, events_of(history), **draw(settings_of(history, intervals)))

    return questions()


@st.composite
def declared_streams(draw: Draw) -> Question:
    intervals = draw(st.booleans())
    program, history = draw(programs_with_streams(intervals=intervals))
    return Question("streams", program.to_text(), events_of(history), **draw(settings_of(history, intervals)))


@st.composite
def rules(draw: Draw) -> Question:
    intervals = draw(st.booleans())
    case = draw(rule_cases(intervals=intervals))
    tables = {
        name: Rows({column: FIELDS[column] for column in rows[0]}, [[row[c] for c in rows[0]] for row in rows])
        for name, rows in case.tables.items()
    }
    heads = case.program.ruleset.heads
    head = draw(st.sampled_from(heads))
    rule = next(rule for rule in case.program.ruleset.rules if rule.head == head)
    columns = ["v.s AS since", "v.e AS till", *(f"v.`{name}` AS `c_{name}`" for name in head_attributes(rule))]
    declared = render_statements(replace(case.program, statements=case.program.declared))
    asking = f"PATTERN wanted ({head} v) RETURN {', '.join(columns)}"
    return Question(
        "rules",
        render_statements(case.program),
        events_of(case.history),
        tables=tables,
        stepped=f"{declared.rstrip().removesuffix(';')};\n{asking}",
        **draw(settings_of(case.history, intervals)),
    )


@st.composite
def constraints(draw: Draw) -> Question:
    query = draw(plain_queries(composite=draw(st.booleans())))
    entries = draw(constraint_sets())
    if draw(st.booleans()):
        traces = [draw(lawful_traces(entries)) for _ in range(2)]
        history = draw(mixed(traces))
    else:
        history = draw(histories(streams=("A", "B", "C", "D", "E")))
    statements = Statements((query,), constraints=tuple(ConstraintStatement(entry) for entry in entries))
    return Question(
        "constraints", render_statements(statements), events_of(history), **draw(settings_of(history, False))
    )


@st.composite
def uncertain_events(draw: Draw) -> Question:
    intervals = draw(st.booleans())
    strategy = draw(st.sampled_from((cases, cases, cases_with_operators, cases_with_lists, cases_with_picks)))
    query, history = draw(strategy(intervals=intervals))
    text = render_query(query)
    if draw(st.integers(0, 3)) == 0:
        text += f" HAVING PROBABILITY >= {draw(st.sampled_from((0.1, 0.3, 0.6)))}"
    given_ = draw(uncertain(history))
    return uncertain_question("uncertain", text, given_, draw(settings_of(history, intervals)))


@st.composite
def levels(draw: Draw) -> Question:
    query, history = draw(cases())
    renamed = [
        event if draw(st.integers(0, 2)) else OracleEvent(event.id, "O", event.s, event.e, event.fields)
        for event in history
    ]
    text = f"{draw(st.sampled_from(LEVELS))}; {render_query(query)}"
    return uncertain_question("levels", text, draw(uncertain(renamed, most=3)), draw(settings_of(history, False)))


def uncertain_question(kind: str, text: str, given_: Any, options: dict[str, Any]) -> Question:
    events = events_of(given_.history, {"p": "float", "of": "int"})
    for row, event in zip(events.rows, given_.history, strict=True):
        row += [given_.probability[event.id], given_.group.get(event.id)]
    roles = {**options.pop("roles"), "probability": "p", "alternatives": "of"}
    return Question(kind, text, events, roles=roles, **options)


STATE_COLUMNS = {
    "t": "int", "type": "text", "k": "int", "person": "text", "source": "text", "target": "text", "share": "float",
    "p": "float",
}  # fmt: skip
STATE_ROLES = {"time": "t", "type": "type", "probability": "p"}


@st.composite
def states(draw: Draw) -> Question:
    state = draw(state_strategies.states(keyed=draw(st.booleans())))
    rows = draw(state_strategies.events(state))
    condition, assumed = draw(state_strategies.conditions(state)), draw(state_strategies.conditions(state))
    measures = {
        "chance": ProbabilityOf(condition),
        "under": ProbabilityOf(condition, assumed),
        "number": ExpectedCount(Places(state.values[:1])),
        "best": MostLikely(Constant("a")),
    }
    numbers = sorted(range(len(rows)), key=lambda number: rows[number]["t"])
    cuts: list[tuple[list[int], int]] = []
    for watermark in sorted(draw(st.sets(st.integers(0, 13), min_size=1, max_size=3))):
        taken = {number for own, _ in cuts for number in own}
        ready = [n for n in numbers if n not in taken and rows[n]["t"] <= watermark + draw(st.sampled_from((0, 2)))]
        cuts.append((ready, watermark))
    return Question(
        "states",
        render_statements(Statements((), states=(state,))),
        Rows(STATE_COLUMNS, [[row[name] for name in STATE_COLUMNS] for row in rows]),
        STATE_ROLES,
        cuts=cuts,
        measures={name: render_measure(measure) for name, measure in measures.items()},
        policy=draw(st.sampled_from(("error", "skip", "skip", "reset"))),
    )


@st.composite
def states_in_patterns(draw: Draw) -> Question:
    """Patterns that ask for what is believed."""
    state = draw(state_strategies.states())
    rows = draw(state_strategies.events(state))
    measure = render_measure(ProbabilityOf(draw(state_strategies.conditions(state))))
    first, second = draw(st.sampled_from((("M", "S"), ("S", "W"), ("W", "M"), ("M", "M"))))
    chosen = draw(st.sampled_from(("b.{} > 0.3", "b.{} > a.{}", "a.{} <= 0.5")))
    pattern = (
        f"PATTERN SEQ({first} a, {second} b) WHERE {chosen.replace('{}', measure)} PARTITION BY k WITHIN 6"
        f" RETURN a.t AS first, b.t AS last, b.{measure} AS chance"
    )
    text = render_statements(Statements((), states=(state,)))
    roles = {name: column for name, column in STATE_ROLES.items() if name != "probability"}
    return Question(
        "states in patterns",
        f"{text.rstrip().removesuffix(';')};\n{pattern}",
        Rows(STATE_COLUMNS, [[row[name] for name in STATE_COLUMNS] for row in rows]),
        roles,
    )


TOKENS = re.compile(r"`[^`]*`|'[^']*'|\w+|\s+|.", re.DOTALL)


@st.composite
def slips(draw: Draw) -> Question:
    """A text with one or two slips: a token left out, written twice, or taken from elsewhere."""
    question = draw(st.sampled_from(PATTERN_KINDS).flatmap(lambda make: make))
    tokens = TOKENS.findall(question.program)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(tokens) - 1))
        other = tokens[draw(st.integers(0, len(tokens) - 1))]
        tokens[place : place + 1] = draw(st.sampled_from(([], [tokens[place]] * 2, [other], [tokens[place], other])))
    return Question("slips", "".join(tokens), question.events, question.roles, question.tables)


PATTERN_KINDS = (
    patterns("patterns", cases),
    patterns("operators", cases_with_operators),
    patterns("lists", cases_with_lists),
    patterns("picks", cases_with_picks),
    patterns("contexts", cases_with_contexts),
    rules(),
    constraints(),
)
KINDS: tuple[tuple[int, st.SearchStrategy[Question]], ...] = (
    (600, PATTERN_KINDS[0]),
    (600, PATTERN_KINDS[1]),
    (450, PATTERN_KINDS[2]),
    (300, PATTERN_KINDS[3]),
    (500, PATTERN_KINDS[4]),
    (250, patterns("sequences", cases_with_sequences)),
    (250, patterns("consumption", cases_with_consumption)),
    (300, declared_streams()),
    (600, PATTERN_KINDS[5]),
    (350, PATTERN_KINDS[6]),
    (300, uncertain_events()),
    (150, levels()),
    (300, states()),
    (100, states_in_patterns()),
    (300, slips()),
)


def questions(strategy: st.SearchStrategy[Question], number: int, number_of_draw: int) -> list[Question]:
    """Different questions with some events, at most `number`; another number of the draw gives other ones."""
    found: dict[str, Question] = {}

    @seed(number_of_draw)
    @settings(
        max_examples=number * 4 // 3,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(question: Question) -> None:
        if len(question.events.rows) > 3:
            found[to_json(question, {})] = question

    collect()
    return list(found.values())[:number]


def drawn(kind: int) -> list[tuple[Question, Answer]]:
    """The questions of a kind with their answers; up to three quarters of the answers have rows, if as many do."""
    number, strategy = KINDS[kind]
    found = answered(questions(strategy, number * 3 // 2, 15))
    telling = [pair for pair in found if has_rows(pair[1])][: number * 3 // 4]
    others = [pair for pair in found if not has_rows(pair[1])]
    sys.stderr.write(f"{found[0][0].kind}: {len(found)}, {len(telling)} with rows\n")
    return [*telling, *others][:number]


def has_rows(answer: Answer) -> bool:
    """Whether a batch found anything."""
    results = answer.get("run", {})
    return "track" in answer or any(table.get("rows") for table in results.values() if isinstance(table, dict))


# Cases and refused texts


def question_of_case(case: Case) -> Question:
    """A case as a question; each event is a step of its own, with a watermark at its end."""
    events = case.parsed_events()
    names = dict.fromkeys(name for event in events for name in event.fields)
    columns = {"event": "text", "type": "text", "time": "us" if case.has_clock_times else "int"}
    columns |= {"until": columns["time"]} if case.has_intervals else {}
    columns |= {name: kind_of([event.fields.get(name) for event in events]) for name in names}
    rows = [
        [
            event.label,
            event.stream,
            event.start,
            *([event.end] if case.has_intervals else []),
            *(event.fields.get(name) for name in names),
        ]
        for event in events
    ]
    tables = {
        name: Rows(
            {column: kind_of([row[column] for row in own]) for column in own[0]},
            [[row[c] for c in own[0]] for row in own],
        )
        for name, own in case.rows_of_tables().items()
    }
    ends = sorted({event.end for event in events})
    return Question(
        f"case: {case.title}",
        case.query,
        Rows(columns, rows),
        INTERVALS if case.has_intervals else POINTS,
        tables,
        [([n for n, event in enumerate(events) if event.end == end], end) for end in ends] or [([], 0)],
        case.has_tables and bool(events),
    )


def kind_of(values: Iterable[Any]) -> str:
    known = {type(value) for value in values if value is not None}
    if known == {int, float}:
        return "float"
    if len(known) > 1:
        return "any"
    kinds = {int: "int", float: "float", str: "text", bool: "bool"}
    return kinds[known.pop()] if known else "null"


def case_questions() -> list[Question]:
    return [question_of_case(case) for path in case_files() for case in ready_cases(path)]


REFUSED_EVENTS = Rows(
    {"t": "int", "type": "text", "id": "int", "amount": "float", "note": "text", "tags": "list"},
    [
        [1, "A", 7, 1.5, "new", ["x"]],
        [2, "B", 7, 2.5, "urgent", []],
        [3, "A", 7, 3.5, None, ["y"]],
        [4, "B", 7, 4.5, "done", None],
    ],
)
"""The table of docs/errors.md."""


def refused_questions(texts: Sequence[str]) -> list[Question]:
    """The examples of docs/errors.md, and the further texts."""
    examples = [example.text for example in EXAMPLES if example.language == "ensue"]
    roles = {"time": "t", "type": "type"}
    return [
        Question("refused", text, REFUSED_EVENTS, roles, cuts=[([0, 1], 2), ([2, 3], 4)])
        for text in dict.fromkeys((*examples, *texts))
    ]


def answered(questions: Iterable[Question]) -> list[tuple[Question, Answer]]:
    return [(question, answer_of(question)) for question in questions]


def write(name: str, pairs: Iterable[tuple[Question, Answer]]) -> None:
    path = HERE / f"{name}.jsonl.xz"
    if path.exists():
        raise SystemExit(f"{path.name} exists: a golden record is written once")
    order = list(pairs)
    random.Random(15).shuffle(order)
    lines = [to_json(question, answer) for question, answer in order]
    path.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
    sys.stderr.write(f"{path.name}: {len(lines)} questions, {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    texts = Path(sys.argv[1]).read_text("utf-8").split("\0") if len(sys.argv) > 1 else []
    if texts:
        write("refused", answered(refused_questions(texts)))
        write("cases", answered(case_questions()))
    with Pool(2) as pool:
        write("drawn", [pair for pairs in pool.imap(drawn, range(len(KINDS)), chunksize=1) for pair in pairs])
