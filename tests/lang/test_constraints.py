"""Constraints as text: which text stands for which value, and what is refused before any data are seen."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue import Program, QueryError, parse
from inside import (
    NANOSECONDS_PER,
    Constraint,
    ConstraintStatement,
    Duration,
    Ends,
    EndsWithin,
    Events,
    Exclusive,
    Implies,
    Prior,
    Require,
    Statements,
    Ticks,
    meaning_of,
    parse_statements,
    program_statements,
    render_constraint,
    render_statements,
    single_statement,
)
from strategies import nodes

FORMS: dict[str, Constraint] = {
    "PRIOR(A, B)": Prior("A", "B"),
    "EXCLUSIVE(A, `b b`, C)": Exclusive(("A", "b b", "C")),
    "REQUIRE(A, B)": Require("A", "B"),
    "ENDS(A)": Ends(("A",)),
    "ENDS(A, B)": Ends(("A", "B")),
    "ENDS WITHIN 30d": EndsWithin(Duration(30 * NANOSECONDS_PER["day"])),
    "ENDS WITHIN 100": EndsWithin(Ticks(100)),
    "A IMPLIES B": Implies(("A",), "B"),
    "A AND B AND C IMPLIES D": Implies(("A", "B", "C"), "D"),
    "A IMPLIES NOT D": Implies(("A",), "D", negated=True),
    "prior AND ends AND implies IMPLIES NOT exclusive": Implies(
        ("prior", "ends", "implies"), "exclusive", negated=True
    ),
    "PRIOR(constraint, implies)": Prior("constraint", "implies"),
    "implies IMPLIES implies": Implies(("implies",), "implies"),
}


@pytest.mark.parametrize(("text", "constraint"), FORMS.items())
def test_forms(text: str, constraint: Constraint) -> None:
    (statement,) = parse_statements(f"CONSTRAINT {text} PARTITION BY id, `order line`").constraints
    assert statement == ConstraintStatement(constraint, ("id", "order line"))
    assert render_constraint(constraint) == text


@pytest.mark.parametrize(
    "text",
    ["constraint prior ( A -- first\n, B )", "Constraint Prior\n(`A`,B);", "CONSTRAINT PRIOR -- in order\n (A, B)"],
)
def test_case_blanks_and_comments(text: str) -> None:
    assert parse_statements(text).constraints == (ConstraintStatement(Prior("A", "B")),)


@pytest.mark.parametrize("word", ["CONSTRAINT", "PRIOR", "EXCLUSIVE", "REQUIRE", "ENDS", "IMPLIES"])
@pytest.mark.parametrize(
    "text",
    [
        "PATTERN {} {}",
        "PATTERN p ({} {} WITHIN 5)",
        "PATTERN {} SEQ({}, {} {} [{} > 1] AS {}, NOT {})",
        "PATTERN A {} WHERE {}.{} = 1 AND {}({}.x, 2) PARTITION BY {} WITHIN 5 RETURN {}.{} AS {}",
    ],
)
def test_words_of_constraints_are_not_reserved(word: str, text: str) -> None:
    for spelling in (word, word.lower()):
        query = text.replace("{}", spelling)
        assert parse_statements(query).statements == parse_statements(text.replace("{}", f"`{spelling}`")).statements


def test_constraints_and_patterns_in_any_order() -> None:
    text = (
        "CONSTRAINT PRIOR(A, B); PATTERN p SEQ(A a, B b) PARTITION BY k; CONSTRAINT ENDS(B) PARTITION BY id;"
        "PATTERN q SEQ(B b, A a) PARTITION BY k;"
    )
    program = parse(text)
    assert program.names == ("p", "q")
    assert program.constraints == (ConstraintStatement(Prior("A", "B")), ConstraintStatement(Ends(("B",)), ("id",)))
    assert program.to_text().startswith(
        "CONSTRAINT PRIOR(A, B);\nCONSTRAINT ENDS(B) PARTITION BY id;\n\n"
        "PATTERN p\n  SEQ(A a, B b)\n  PARTITION BY k;\n\n"
        "PATTERN q"
    )
    assert parse(program.to_text()) == program


def test_places() -> None:
    text = "PATTERN A a; CONSTRAINT PRIOR(A, B) PARTITION BY id"
    (statement,) = parse_statements(text).constraints
    assert statement.span is not None
    assert statement.constraint.span is not None
    assert text[statement.span.start : statement.span.end] == "CONSTRAINT PRIOR(A, B) PARTITION BY id"
    assert text[statement.constraint.span.start : statement.constraint.span.end] == "PRIOR(A, B)"


@settings(deadline=None)
@given(st.lists(nodes.constraint_statements, min_size=1, max_size=5, unique_by=meaning_of).map(tuple))
def test_a_program_of_constraints_is_read_back(statements: tuple[ConstraintStatement, ...]) -> None:
    program = Program(Statements((), constraints=statements))
    assert parse(program.to_text()) == program


PROBLEMS = {
    "CONSTRAINT PRIOR(A, A)": ["repeated-stream"],
    "CONSTRAINT EXCLUSIVE(A, B, A, B)": ["repeated-stream", "repeated-stream"],
    "CONSTRAINT REQUIRE(A, `A`)": ["repeated-stream"],
    "CONSTRAINT ENDS(A, A)": ["repeated-stream"],
    "CONSTRAINT A IMPLIES A": ["repeated-stream"],
    "CONSTRAINT A AND A IMPLIES NOT B": ["repeated-stream"],
    "CONSTRAINT PRIOR(A); CONSTRAINT PRIOR(A, B, C)": ["constraint-size", "constraint-size"],
    "CONSTRAINT EXCLUSIVE(A); CONSTRAINT REQUIRE(); CONSTRAINT ENDS()": ["constraint-size"] * 3,
    "CONSTRAINT ENDS WITHIN 0; CONSTRAINT ENDS WITHIN 0d": ["constraint-window", "constraint-window"],
    "CONSTRAINT ENDS WITHIN 5 EVENTS": ["constraint-window"],
    "CONSTRAINT ENDS WITHIN -1d": ["window-size"],
    "CONSTRAINT PRIOR(A[x > 1], B b)": ["event-in-constraint", "event-in-constraint"],
    "CONSTRAINT A a IMPLIES B": ["event-in-constraint"],
    "CONSTRAINT PRIOR(A B)": ["event-in-constraint"],
    "CONSTRAINT EXCLUSIVE(A, B); CONSTRAINT EXCLUSIVE(B, A)": ["duplicate-constraint"],
    "CONSTRAINT A AND B IMPLIES C; CONSTRAINT B AND A IMPLIES C; CONSTRAINT A AND B IMPLIES NOT C": [
        "duplicate-constraint"
    ],
    "CONSTRAINT ENDS WITHIN 60 s; CONSTRAINT ENDS WITHIN 1 min": ["duplicate-constraint"],
    "CONSTRAINT PRIOR(A, A); PATTERN NOT A a": ["repeated-stream", "misplaced-not"],
}


@pytest.mark.parametrize(("text", "codes"), PROBLEMS.items())
def test_problems(text: str, codes: list[str]) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert [problem.code for problem in caught.value.problems] == codes
    assert all(problem.span is not None for problem in caught.value.problems)


@pytest.mark.parametrize(
    "text",
    [
        "CONSTRAINT PRIOR(A, B); CONSTRAINT PRIOR(B, A)",
        "CONSTRAINT PRIOR(A, B); CONSTRAINT PRIOR(A, B) PARTITION BY id",
        "CONSTRAINT EXCLUSIVE(A, B); CONSTRAINT ENDS(A, B)",
    ],
)
def test_constraints_that_differ(text: str) -> None:
    assert len(parse(text).constraints) == 2


def test_one_pattern_beside_constraints_is_the_query() -> None:
    text = "CONSTRAINT PRIOR(A, B); PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 5; CONSTRAINT ENDS(B)"
    found = single_statement(text)
    assert found.statements == single_statement("PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 5").statements
    assert found.source is not None
    assert found.source.text == text
    assert [statement.constraint for statement in found.constraints] == [Prior("A", "B"), Ends(("B",))]
    assert single_statement(parse(text)) == found
    assert single_statement("PATTERN A a").constraints == ()


@pytest.mark.parametrize("text", ["CONSTRAINT PRIOR(A, B)", "CONSTRAINT PRIOR(A, B); CONSTRAINT ENDS(A)"])
def test_constraints_without_a_pattern_are_a_program_but_no_query(text: str) -> None:
    assert parse(text).queries == ()
    for taking in (single_statement, program_statements):
        with pytest.raises(QueryError) as caught:
            taking(text)
        assert caught.value.code == "no-pattern"
        assert caught.value.line == 1


def test_constraints_of_a_query_are_checked() -> None:
    with pytest.raises(QueryError) as caught:
        single_statement("PATTERN A a; CONSTRAINT PRIOR(A, A)")
    assert (caught.value.code, caught.value.column) == ("repeated-stream", 25)


def test_windows_over_events_are_rendered_too() -> None:
    assert render_constraint(EndsWithin(Events(5))) == "ENDS WITHIN 5 EVENTS"
    assert (
        render_statements(Statements((), constraints=(ConstraintStatement(Ends(("A",))),))) == "CONSTRAINT ENDS(A);\n"
    )
