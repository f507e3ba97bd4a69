"""Constraints in Python equal their text, and are checked when they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import ensue
from ensue import QueryError
from inside import (
    Constraint,
    ConstraintStatement,
    Ends,
    Events,
    Exclusive,
    Implies,
    Prior,
    Ticks,
    constraint_statements,
    render_constraint,
    statements_of,
)

FORMS: list[tuple[Constraint, str]] = [
    (ensue.constraints.prior("A", "order line"), "PRIOR(A, `order line`)"),
    (ensue.constraints.exclusive("A", "B", "C"), "EXCLUSIVE(A, B, C)"),
    (ensue.constraints.require("A", "B"), "REQUIRE(A, B)"),
    (ensue.constraints.ends("A"), "ENDS(A)"),
    (ensue.constraints.ends_within("30d"), "ENDS WITHIN 30d"),
    (ensue.constraints.ends_within(timedelta(days=30)), "ENDS WITHIN 30d"),
    (ensue.constraints.ends_within(100), "ENDS WITHIN 100"),
    (ensue.constraints.implies("A", "B", then="C"), "A AND B IMPLIES C"),
    (ensue.constraints.implies("A", never="C"), "A IMPLIES NOT C"),
]


@pytest.mark.parametrize(("constraint", "text"), FORMS)
def test_forms(constraint: Constraint, text: str) -> None:
    assert render_constraint(constraint) == text
    assert statements_of(constraint) == statements_of(f"CONSTRAINT {text}") == (ConstraintStatement(constraint),)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: ensue.constraints.prior("A", "A"), "repeated-stream"),
        (lambda: ensue.constraints.implies("A", then="A"), "repeated-stream"),
        (lambda: ensue.constraints.exclusive("A"), "constraint-size"),
        (lambda: ensue.constraints.ends(), "constraint-size"),
        (lambda: ensue.constraints.implies(then="A"), "constraint-size"),
        (lambda: ensue.constraints.implies("A"), "constraint-size"),
        (lambda: ensue.constraints.implies("A", then="B", never="C"), "constraint-size"),
        (lambda: ensue.constraints.ends_within("5 events"), "constraint-window"),
        (lambda: ensue.constraints.ends_within(Events(5)), "constraint-window"),
        (lambda: ensue.constraints.ends_within(Ticks(-5)), "window-size"),
        (lambda: ensue.constraints.ends_within(0), "constraint-window"),
        (lambda: ensue.constraints.ends_within(-1), "window-size"),
    ],
)
def test_problems(make: Callable[[], object], code: str) -> None:
    with pytest.raises(QueryError) as caught:
        make()
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ensue.constraints.exclusive(["A", "B"]), r"exclusive\(\*streams\)"),  # type: ignore[arg-type]
        (lambda: ensue.constraints.prior(ensue.event("A"), "B"), "names of streams"),  # type: ignore[arg-type]
        (lambda: ensue.constraints.implies("A", then=5), "names of streams"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


class Workflow:
    """What knows its own constraints."""

    def constraints(self) -> Iterator[Constraint]:
        yield Prior("A", "B")
        yield Ends(("B",))


TEXT = "CONSTRAINT PRIOR(A, B); CONSTRAINT ENDS(B)"


@pytest.mark.parametrize(
    "constraints",
    [
        TEXT,
        ensue.parse(TEXT),
        ensue.parse(f"PATTERN A a PARTITION BY id; {TEXT}"),
        [ensue.constraints.prior("A", "B"), ConstraintStatement(Ends(("B",)))],
        (constraint for constraint in [ensue.constraints.prior("A", "B"), ensue.constraints.ends("B")]),
        ["CONSTRAINT PRIOR(A, B)", ensue.parse("CONSTRAINT ENDS(B)")],
        Workflow(),
        [Workflow()],
    ],
    ids=["text", "program", "program with a pattern", "list", "generator", "texts", "workflow", "workflows"],
)
def test_what_stands_for_constraints(constraints: Any) -> None:
    statements = constraint_statements(constraints)
    assert [statement.constraint for statement in statements.constraints] == [Prior("A", "B"), Ends(("B",))]
    assert statements.statements == ()
    assert statements.source is not None
    for statement in statements.constraints:
        assert statement.constraint.span is not None
        assert statements.source.quote(statement.constraint.span) == render_constraint(statement.constraint)


def test_none_at_all() -> None:
    assert statements_of([]) == ()


def test_partitions_are_kept() -> None:
    assert statements_of(ConstraintStatement(Ends(("A",)), ("id",))) == (ConstraintStatement(Ends(("A",)), ("id",)),)


@pytest.mark.parametrize(
    "constraints",
    [
        5,
        None,
        [5],
        {"A": "B"},
        b"CONSTRAINT",
        ensue.seq("A a"),
        ensue.var("a"),
        "PATTERN A a",
        ensue.parse("PATTERN A a"),
    ],
)
def test_what_is_no_constraint(constraints: Any) -> None:
    with pytest.raises(QueryError) as caught:
        statements_of(constraints)
    assert caught.value.code == "not-a-constraint"


@pytest.mark.parametrize(
    ("constraints", "code"),
    [
        ("PRIOR(A, B)", "syntax"),
        ("CONSTRAINT PRIOR(A, A)", "repeated-stream"),
        (Prior("A", "A"), "repeated-stream"),
        ([Exclusive(("A", "B")), Exclusive(("B", "A"))], "duplicate-constraint"),
        (Exclusive(()), "constraint-size"),
        (Implies((), "A"), "syntax"),
    ],
)
def test_constraints_are_checked_where_they_are_given(constraints: Any, code: str) -> None:
    with pytest.raises(QueryError) as caught:
        statements_of(constraints)
    assert caught.value.code == code
    assert caught.value.line is not None
