"""A program that is not well formed is refused by every entry point: the same code at the same place.

The texts are all those that the error catalogue, the cases and the syntax errors have and that `ensue.parse` refuses.
"""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ensue
from case_files import case_files, ready_cases
from ensue import Query
from ensue.beliefs import State
from ensue.rules import RuleStatement
from inside import (
    CheckedProgram,
    Ruleset,
    Statements,
    check,
    check_files,
    checked,
    parse_statements,
    parser,
    read_pipeline_text,
    read_program,
    render_statements,
)
from test_error_catalogue import EXAMPLES

EVENTS = pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"], "k": [1, 1, 1], "x": [1, 2, 3]})
COLUMNS: dict[str, Any] = {"time": "t", "type": "type"}
GOOD = "PATTERN SEQ(A a, B b) WITHIN 5"
DETECTOR = ensue.Detector(GOOD, **COLUMNS)
DETECTOR.advance(EVENTS, watermark=2)


ENTRY_POINTS: dict[str, Callable[[Any], object]] = {
    "explain": lambda program: ensue.explain(program),
    "detect": lambda program: ensue.detect(EVENTS, program, **COLUMNS),
    "detect_batches": lambda program: list(ensue.detect_batches(EVENTS, program, **COLUMNS)),
    "matching": lambda program: ensue.matching(program, **COLUMNS)(EVENTS),
    "run": lambda program: ensue.run(EVENTS, program, **COLUMNS),
    "violations": lambda program: ensue.violations(EVENTS, program, **COLUMNS),
    "Detector": lambda program: ensue.Detector(program, **COLUMNS),
    "Detector(actions)": lambda program: ensue.Detector(program, actions={}, **COLUMNS),
    "actions.act": lambda program: ensue.actions.act(EVENTS, program, {}, **COLUMNS),
    "start": lambda program: ensue.start(EVENTS, program, to="matches", checkpointLocation="checkpoint", **COLUMNS),
    "why_not": lambda program: ensue.why_not(EVENTS, program, **COLUMNS),
    "justify": lambda program: ensue.justify(EVENTS, program, "0", **COLUMNS),
    "waiting": lambda program: ensue.waiting(DETECTOR, program),
    "report": lambda program: ensue.report(EVENTS, program, **COLUMNS),
    "any_match": lambda program: ensue.any_match(EVENTS, program, **COLUMNS),
    "beliefs.of": lambda program: ensue.beliefs.of(EVENTS, program, **COLUMNS),
    "beliefs.track": lambda program: ensue.beliefs.track(EVENTS, program, measures={}, **COLUMNS),
    "Detector(measures)": lambda program: ensue.Detector(program, measures={}, **COLUMNS),
}


PIPELINE = """\
mode: batch
program: program.ensue
sources:
  - {format: csv, path: events.csv, time: t, type: type}
outputs:
  pair: console
"""


def _in_file(read: Callable[[Path], object]) -> Callable[[str, Path], object]:
    def from_text(text: str, folder: Path) -> object:
        file = folder / "program.ensue"
        file.write_text(text, encoding="utf-8")
        return read(file)

    return from_text


FILE_ENTRY_POINTS: dict[str, Callable[[str, Path], object]] = {
    "parse": _in_file(ensue.parse),
    "ensue explain, detect, ...": _in_file(read_program),
    "ensue run": _in_file(lambda file: read_pipeline_text(PIPELINE, file.with_name("pipeline.yaml"), {})),
}
"""Those that take a file; `ensue check` reports without raising."""

NO_ENTRY_POINTS = {"parse": "the others are compared with it"}

STATEMENT = re.compile(r"\s*(PATTERN|STREAM|CONSTRAINT|RULE|FACT|TABLE|HIERARCHY|STATE|ON)\b")
Refusal = tuple[str, int | None, int | None]


def refusal(call: Callable[[], object]) -> Refusal | None:
    """The code and the place of the query error that a call raises."""
    try:
        call()
    except ensue.QueryError as error:
        return error.code, error.line, error.column
    return None


def texts() -> Iterator[str]:
    for example in EXAMPLES:
        if example.language == "ensue":
            yield example.text
            continue
        if example.language != "python":
            continue
        for node in ast.walk(ast.parse(example.text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value):
                yield node.value
    for path in case_files():
        yield from (case.query for case in ready_cases(path) if case.errors)
    errors = Path(__file__).parents[1] / "lang" / "syntax_errors.txt"
    for case in filter(None, re.split(r"^====\n", errors.read_text("utf-8"), flags=re.MULTILINE)):
        yield case.partition("\n----\n")[0]


ANSWERS = {text: refusal(lambda text=text: ensue.parse(text)) for text in dict.fromkeys(texts())}
REFUSED = {text: answer for text, answer in ANSWERS.items() if answer is not None}
PASSED_THROUGH = (
    "PATTERN SEQ(A a, B b) WITHIN 5; STATE s OF x IN (y, y)",
    "PATTERN SEQ(A a, B b) WITHIN 5; HIERARCHY A > (A 0.5, B 0.5)",
    "PATTERN SEQ(A a, B b) WITHIN 5; FACT vip(7); FACT vip(8, 9)",
    "STREAM s FROM PATTERN (A a) RETURN a.x AS x; PATTERN p (s v); ON s v DO tell(w.x)",
    "RULE h(x) <- A(x=x); PATTERN SEQ(h v, B b) WITHIN 3 EVENTS",
    "PATTERN SEQ(A a, B b) WHERE len(a.x) > round() AND a.type LIKE 'x\\' WITHIN 5",
    "PATTERN SEQ(A a, B b) WITHIN 5 RETURN PREV(a.x) AS x",
    "PATTERN SEQ(A a, B b) AS p WHERE p.x = 1 WITHIN 5",
    "PATTERN SEQ(A a, B b) WITHIN 5 RETURN CASE WHEN a.x = 1 THEN 1 ELSE 'a' END AS x",
    "PATTERN SEQ(A a, B b) WITHIN 5 MATCH CUMULATIVE RETURN len(b.x) AS x",
    "PATTERN SEQ(SEQ(A a, B b), C c) WHERE len(b.x) > 1 WITHIN 5 MATCH RECENT",
    "STREAM s FROM PATTERN A a RETURN hours(a.x, 1) AS x; PATTERN s v",
    "RULE h(x) <- A(x=x), x LIKE 'a\\'; PATTERN h v",
    "CONSTRAINT PRIOR(A, B); PATTERN SEQ(A a, B b) WITHIN 5",
    "CONSTRAINT PRIOR(A, B); PATTERN p SEQ(A a, B b) PARTITION BY k; PATTERN q SEQ(A a, B b) PARTITION BY x",
)
"""What some entry points once let through."""


NOT_AT_THE_GATE = {
    "no-pattern": "a program of constraints, states or actions alone is one; only some entry points need a pattern",
    "one-query": "a program may have several; only some entry points need one",
    "never-holds": "bounds are closed over the unit of time, and over whether events last: the data say so",
    "never-lawful": "needs the graphs of a pattern, as never-holds does, and the reasoning about constraints",
    "contradictory-constraints": "is the reasoning about constraints, which takes long for many: it needs a plan",
}
"""What `explain` refuses without data, and `parse` does not, and why."""


def test_there_are_texts_of_most_kinds() -> None:
    assert len(REFUSED) > 450
    assert len({answer[0] for answer in REFUSED.values()}) > 90


def test_every_function_that_takes_a_program_is_an_entry_point_here() -> None:
    spaces = {
        "": ensue,
        **{f"{name}.": space for name in ensue.__all__ if inspect.ismodule(space := getattr(ensue, name))},
    }
    named = {
        prefix + name
        for prefix, space in spaces.items()
        for name in space.__all__
        if (inspect.isfunction(value := getattr(space, name)) or value is ensue.Detector)
        and "query" in inspect.signature(value).parameters
    }
    assert named - set(NO_ENTRY_POINTS) == {name for name in ENTRY_POINTS if "(" not in name}


@pytest.mark.parametrize("text", PASSED_THROUGH)
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_what_was_let_through_is_refused_everywhere(name: str, text: str) -> None:
    expected = refusal(lambda: ensue.parse(text))
    assert expected is not None
    assert refusal(lambda: ENTRY_POINTS[name](text)) == expected


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_entry_point_refuses_what_parse_refuses(name: str) -> None:
    found = {text: refusal(lambda text=text: ENTRY_POINTS[name](text)) for text in REFUSED}
    assert found == REFUSED


def test_what_explain_refuses_without_data_is_found_at_the_gate() -> None:
    found = {refusal(lambda text=text: ensue.explain(text)) for text in ANSWERS if text not in REFUSED} - {None}
    assert {answer[0] for answer in found} == set(NOT_AT_THE_GATE)


@pytest.mark.parametrize("name", FILE_ENTRY_POINTS)
def test_every_entry_point_for_files_refuses_what_parse_refuses(name: str, tmp_path: Path) -> None:
    found = {text: refusal(lambda text=text: FILE_ENTRY_POINTS[name](text, tmp_path)) for text in REFUSED}
    assert found == REFUSED


def test_the_command_check_reports_what_parse_refuses(tmp_path: Path) -> None:
    file = tmp_path / "program.ensue"
    for text, answer in REFUSED.items():
        file.write_text(text, encoding="utf-8")
        first = check_files([str(file)])[0].fields
        assert (first["code"], first["line"], first["column"]) == answer


@pytest.mark.parametrize("name", ["explain", "detect", "run", "Detector", "report", "why_not", "waiting"])
def test_constraints_beside_a_text_leave_its_places_alone(name: str) -> None:
    """The text is not written anew: an error is where the user wrote it."""
    options: dict[str, Any] = {"constraints": [ensue.constraints.prior("Y", "Z"), "CONSTRAINT ENDS(Z)"]}
    calls: dict[str, Callable[[str], object]] = {
        "explain": lambda text: ensue.explain(text, **options),
        "detect": lambda text: ensue.detect(EVENTS, text, **COLUMNS, **options),
        "run": lambda text: ensue.run(EVENTS, text, **COLUMNS, **options),
        "Detector": lambda text: ensue.Detector(text, **COLUMNS, **options),
        "report": lambda text: ensue.report(EVENTS, text, **COLUMNS, **options),
        "why_not": lambda text: ensue.why_not(EVENTS, text, **COLUMNS, **options),
        "waiting": lambda text: ensue.waiting(DETECTOR, text, **options),
    }
    found = {text: refusal(lambda text=text: calls[name](text)) for text in REFUSED}
    assert found == REFUSED


def built(statements: Statements) -> list[Query | RuleStatement | State]:
    """The same in Python; nothing where it has statements that are not written there one by one."""
    rules = statements.ruleset.rules if statements.ruleset is not None else ()
    alone = Statements(statements.statements, ruleset=Ruleset(rules) or None, states=statements.states)
    if alone != statements:
        return []
    return [*map(State, statements.states), *map(Query, statements.statements), *map(RuleStatement, rules)]


def built_programs() -> Iterator[tuple[list[Query | RuleStatement | State], Refusal | None]]:
    for text in REFUSED:
        try:
            statements = parse_statements(text)
        except ensue.QueryError:
            continue
        if values := built(statements):
            rendered = render_statements(statements)
            yield values, refusal(lambda rendered=rendered: ensue.parse(rendered))


BUILT = list(built_programs())


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_program_built_in_python_is_refused_like_its_text(name: str) -> None:
    assert len(BUILT) > 100
    for values, answer in BUILT:
        assert answer is not None
        assert refusal(lambda values=values: ENTRY_POINTS[name](values)) == answer


CATALOGUE_EVENTS = pa.table(
    {"t": [1, 2, 3, 4], "type": ["A", "B", "A", "B"], "id": [7, 7, 7, 7], "amount": [1.5, 2.5, 3.5, 4.5]}
)
PLANNING_ENTRY_POINTS: dict[str, Callable[[Any], object]] = {
    "detect": lambda program: ensue.detect(CATALOGUE_EVENTS, program, **COLUMNS),
    "detect_batches": lambda program: list(ensue.detect_batches(CATALOGUE_EVENTS, program, **COLUMNS)),
    "Detector": lambda program: ensue.Detector(program, **COLUMNS).finish(CATALOGUE_EVENTS),
    "report": lambda program: ensue.report(CATALOGUE_EVENTS, program, **COLUMNS),
}
"""Those that look for the same as `run`. `why_not` and `justify` leave RETURN and constraints aside, `violations` looks
at constraints alone, `any_match` gives no RETURN, `beliefs` and `track` look at states, and `explain` has no data."""


def test_what_data_decide_is_refused_where_queries_are_planned() -> None:
    """Fields, types and time: not seen without data, and then the same wherever a query is planned."""
    accepted = [example.text for example in EXAMPLES if example.language == "ensue" and example.text not in REFUSED]
    compared = 0
    for text in accepted:
        try:
            expected = refusal(lambda text=text: ensue.run(CATALOGUE_EVENTS, text, **COLUMNS))
        except ensue.EnsueError:
            continue  # of a table or a limit, not of the query
        found = {
            refusal(lambda name=name, text=text: PLANNING_ENTRY_POINTS[name](text)) for name in PLANNING_ENTRY_POINTS
        }
        assert found == {expected}, text
        compared += expected is not None
    assert compared > 15


def test_what_data_decide_is_refused_in_python_as_in_text() -> None:
    """The same problems at the same places of the same text."""

    def error_of(program: Any) -> ensue.QueryError | None:
        try:
            ensue.run(CATALOGUE_EVENTS, program, **COLUMNS)
        except ensue.QueryError as error:
            return error
        except ensue.EnsueError:
            return None  # of a table or a limit, not of the query
        return None

    compared = 0
    for example in EXAMPLES:
        if example.language != "ensue" or example.text in REFUSED:
            continue
        if values := built(parse_statements(example.text)):
            expected, found = error_of(render_statements(parse_statements(example.text))), error_of(values)
            assert (str(found), found and found.problems) == (str(expected), expected and expected.problems)
            compared += expected is not None
    assert compared > 10


def test_a_text_and_python_beside_each_other_are_cited_from_one_text() -> None:
    program = [ensue.seq("A a").as_pattern("p"), "PATTERN q (B b) WHERE b.zz = 1"]
    with pytest.raises(ensue.QueryError) as caught:
        ensue.run(EVENTS, program, **COLUMNS)
    assert caught.value.source.text == "PATTERN p\n  SEQ(A a);\nPATTERN q (B b) WHERE b.zz = 1\n"
    assert (caught.value.code, caught.value.line, caught.value.column) == ("no-such-field", 3, 25)


def test_a_place_in_a_query_built_in_python_survives_pickling() -> None:
    """Plans go to Spark's workers, where values may be refused."""
    passed = checked(Statements((QUERY.node,)))
    sent = pickle.loads(pickle.dumps(passed))
    assert sent == passed
    assert sent.source == passed.source
    assert sent.source.quote(sent.statements[0].pattern.items[1].span) == "B b"


def test_constraints_beside_a_query_built_in_python_come_below_it() -> None:
    with pytest.raises(ensue.QueryError) as caught:
        ensue.detect(
            EVENTS,
            ensue.seq("A a", "B b"),
            **COLUMNS,
            constraints=[ensue.constraints.prior("A", "B"), ensue.constraints.ends("C")],
        )
    assert caught.value.source.text == "PATTERN SEQ(A a, B b);\nCONSTRAINT PRIOR(A, B);\nCONSTRAINT ENDS(C);\n"
    assert (caught.value.code, caught.value.line) == ("constraint-partition", 2)


def test_a_program_that_says_nothing_has_no_text_to_cite() -> None:
    empty = ensue.Program(Statements(()))
    assert refusal(lambda: ensue.violations(EVENTS, **COLUMNS)) == ("no-constraint", None, None)
    assert refusal(lambda: ensue.violations(EVENTS, **COLUMNS, constraints=[])) == ("no-constraint", None, None)
    assert refusal(lambda: ensue.run(EVENTS, empty, **COLUMNS)) == ("no-pattern", None, None)


def test_what_no_text_could_say_is_refused_in_python() -> None:
    assert refusal(lambda: ensue.detect(EVENTS, ensue.event("A", "a").times(2**63), **COLUMNS)) is not None
    for query in (ensue.event("A", ""), ensue.event("A", "a").as_pattern(""), ensue.event("", "a")):
        with pytest.raises(ValueError, match="a name must not be empty"):
            ensue.detect(EVENTS, query, **COLUMNS)
    found = ensue.detect(
        EVENTS, ensue.event("A", "a").where(ensue.var("a").x == 1, ensue.fn.value("") == ""), **COLUMNS
    )
    assert found.num_rows == 1


def test_what_nests_too_deep_in_python_is_refused_like_its_text() -> None:
    deep = ensue.event("A", "a")
    for _ in range(300):
        deep = ensue.seq(deep)
    with pytest.raises(ensue.QueryError) as caught:
        ensue.detect(EVENTS, deep, **COLUMNS)
    assert caught.value.code == "too-deep"
    assert caught.value.line is not None


def test_what_is_made_by_hand_is_checked_too() -> None:
    statements = parse_statements("PATTERN SEQ(A a, NOT B b)")
    program = ensue.Program(statements)
    assert {refusal(lambda name=name: ENTRY_POINTS[name](program)) for name in ENTRY_POINTS} == {("open-scope", 1, 18)}
    assert refusal(lambda: program.explain()) == refusal(lambda: program.queries[0].explain()) == ("open-scope", 1, 18)


def test_the_gate_reports_all_problems_in_the_order_of_the_text() -> None:
    text = "STATE s OF x IN (y, y); PATTERN SEQ(A a, NOT B b); HIERARCHY A > A; CONSTRAINT PRIOR(A, A)"
    problems = check(parse_statements(text))
    codes = ["state-repeats", "state-domain", "open-scope", "hierarchy-circle", "repeated-stream"]
    assert [problem.code for problem in problems] == codes
    assert [problem.span for problem in problems] == sorted((p.span for p in problems), key=lambda span: span.start)


def test_what_passed_the_gate_is_marked_and_equal_to_what_was_written() -> None:
    written = parse_statements("PATTERN p SEQ(A a, B b) WITHIN 5")
    passed = checked(written)
    assert isinstance(passed, CheckedProgram)
    assert passed == written
    assert written == passed
    assert hash(passed) == hash(written)
    assert checked(passed) is passed
    assert passed != checked(parse_statements("PATTERN p SEQ(A a, B b) WITHIN 6"))


QUERY = ensue.seq("A a", "B b").partition_by("k").within(5)
TEXT = QUERY.to_text()
RULE = ensue.rule("h", "k").when("a: A(k=k)", "b: B(k=k)", "a before b")
PRIOR = ensue.constraints.prior("A", "B")
PARSES: list[tuple[str, Any, Any, int]] = [
    ("text", TEXT, None, 1),
    ("program", ensue.parse(TEXT), None, 0),
    ("python", QUERY, None, 0),
    ("pattern", ensue.seq("A a", "B b"), None, 0),
    ("rule", RULE, None, 0),
    ("list", [QUERY], None, 0),
    ("text with constraints", TEXT, PRIOR, 1),
    ("text with constraints as text", TEXT, "CONSTRAINT PRIOR(A, B)", 2),
    ("python with constraints", QUERY, PRIOR, 0),
    (
        "list with constraints",
        [QUERY, ensue.event("A", "a").partition_by("k").as_stream("s")],
        [PRIOR, ensue.constraints.ends("C")],
        0,
    ),
    (
        "list with a text",
        [QUERY, "STREAM s FROM PATTERN (A a) PARTITION BY k"],
        [PRIOR, ensue.constraints.ends("C")],
        1,
    ),
]
"""Queries, constraints and how often a call with them parses a text."""


@pytest.mark.parametrize(("query", "constraints", "number"), [pytest.param(*rest, id=name) for name, *rest in PARSES])
def test_each_text_is_parsed_once(query: Any, constraints: Any, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = parser._parse

    def counting(text: str, start: str, name: str) -> Any:
        parsed.append(text)
        return parse(text, start, name)

    monkeypatch.setattr(parser, "_parse", counting)
    options: dict[str, Any] = {"constraints": constraints}
    calls: list[Callable[[], object]] = [
        lambda: ensue.explain(query, **options),
        lambda: ensue.detect(EVENTS, query, **COLUMNS, **options),
        lambda: ensue.run(EVENTS, query, **COLUMNS, **options),
        lambda: ensue.Detector(query, **COLUMNS, **options).finish(EVENTS),
    ]
    if constraints is not None:
        calls.append(lambda: ensue.violations(EVENTS, query, **COLUMNS, partition_by="k", **options))
    if query is not RULE:  # these two quote a rule, so they write its text
        calls.append(lambda: ensue.why_not(EVENTS, query, **COLUMNS, **options))
        calls.append(lambda: ensue.report(EVENTS, query, **COLUMNS, **options))
    for call in calls:
        parsed.clear()
        call()
        assert len(parsed) == number


def test_the_check_functions_are_called_at_the_gate_alone() -> None:
    """What asks whether a derived pattern can be looked for at all is `algebra.partial`."""
    wanted = re.compile(
        r"\bcheck_(query|statement_names|constraints|streams|rules|states|hierarchies|tables)\((?!.*\) -> )"
    )
    source = Path(ensue.__file__).parent
    callers = {str(path.relative_to(source)) for path in source.rglob("*.py") if wanted.search(path.read_text("utf-8"))}
    assert callers == {"check/gate.py", "plan/partial.py"}
