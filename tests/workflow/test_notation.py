"""The notation of workflows: what it reads, how it writes, and what it says where it cannot read.

The messages stand in syntax_errors.txt: cases between lines of `=`, each a text, a line of `-`, the message.
UPDATE_WORKFLOW=1 writes the messages of today into it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue import QueryError, SchemaError
from ensue.process import Workflow, read_bpmn, workflow
from inside import MAXIMAL_DEPTH_OF_WORKFLOWS as MAXIMAL_DEPTH
from inside import Maybe, Sequence, Task, choice, parallel, parse_process, sequence
from inside import RepeatedTask as Repeat
from workflow.strategies import workflows

PAGE = Path(__file__).with_name("syntax_errors.txt")
TOKENS = ["A", "B", "`q q`", "`", "->", "-->", "--", "|", "||", "+", "*", "?", "{", "}", "[", "]", "(", ")", ",", "\n",
          "1", ";", "'", "é", "\0"]  # fmt: skip


def message_of(text: str) -> str:
    with pytest.raises(QueryError) as caught:
        workflow(text, "order.txt")
    return str(caught.value)


def read_cases() -> list[tuple[str, str]]:
    cases = re.split(r"^====\n", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return [(text, message.strip("\n")) for text, message in (case.split("\n----\n") for case in cases)]


CASES = read_cases()
if os.environ.get("UPDATE_WORKFLOW"):
    PAGE.write_text("====\n".join(f"{text}\n----\n{message_of(text)}\n" for text, _ in CASES), "utf-8")
    CASES = read_cases()


@pytest.mark.parametrize(("text", "message"), CASES, ids=[text for text, _ in CASES])
def test_messages(text: str, message: str) -> None:
    assert message_of(text) == message


@given(workflows(max_tasks=8, names=("A", "B", "order line", "back`tick", "in", "Größe", "1st", "SEQ")))
def test_text_parses_back_to_an_equal_workflow(model: Workflow) -> None:
    again = workflow(model.to_text())
    assert again == model
    assert again.to_text() == model.to_text()


@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join))
def test_any_text_is_a_workflow_or_a_query_error(text: str) -> None:
    try:
        model = workflow(text)
    except QueryError:
        message = message_of(text)
        assert message.startswith(("error[syntax]", "error[empty-workflow]"))
        assert not re.search(r"Token|\$END|_[A-Z]+", message)
    else:
        assert workflow(model.to_text()) == model


@pytest.mark.parametrize(
    ("text", "process"),
    [
        ("A -> B | C", choice(sequence(Task("A"), Task("B")), Task("C"))),
        ("A -> B+", Sequence((Task("A"), Repeat(Task("B"), optional=False)))),
        ("(A -> B)*", Repeat(sequence(Task("A"), Task("B")), optional=True)),
        ("{A, {B, C}}", parallel(Task("A"), Task("B"), Task("C"))),
        ("{A}", Task("A")),
        ("[A | B]", Maybe(choice(Task("A"), Task("B")))),
        ("A -- then\n-> B -- and no more", sequence(Task("A"), Task("B"))),
        ("`a ``b``` -> where", sequence(Task("a `b`"), Task("where"))),
    ],
)
def test_reading(text: str, process: object) -> None:
    assert parse_process(text) == process


def test_depth_is_a_rule_and_not_a_crash() -> None:
    def deep(levels: int) -> str:
        return "(B | C -> [" * (levels // 2) + "A" + "])+" * (levels // 2)

    model = workflow(deep(MAXIMAL_DEPTH))
    assert workflow(model.to_text()) == model
    assert model.constraints()
    with pytest.raises(QueryError, match="too-deep"):
        workflow(deep(MAXIMAL_DEPTH + 2))


def test_place_of_a_problem() -> None:
    with pytest.raises(QueryError) as caught:
        workflow("A ->\n  (B | )")
    assert (caught.value.line, caught.value.column, caught.value.code) == (2, 8, "syntax")


def test_a_workflow_from_bpmn_has_no_text() -> None:
    model = read_bpmn(Path(__file__).parent / "bpmn" / "order_camunda.bpmn")
    with pytest.raises(SchemaError, match="no-notation"):
        model.to_text()
