"""Phases are types, and every lowering leaves a program that means the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ensue
from case_files import case_files, ready_cases
from inside import (
    CATALOG_LOWERINGS,
    GRAPH_LOWERINGS,
    LOWERINGS,
    CheckedProgram,
    LoweredProgram,
    Operation,
    Statements,
    checked,
    lower,
    parse_statements,
    render_stage,
    spelled_out,
    stages,
    walk_pattern,
)

PROGRAM = """
TABLE price(product, amount);
RULE overdue(id, a) <- o: order(id=id, product=p), w: extend(o, 6), while w: not shipped(id=id), price(p, a);
PATTERN chosen AND(A, FOLLOWS(B b, C c, 5)) PARTITION BY k WITHIN 10 MATCH RECENT;
PATTERN whole FOLLOWS(A, AND(B b, C c), 5) WITHIN 10;
PATTERN spanned SEQ(COLLECT F f, A a) WITHIN 10 RETURN span_start();
"""


def test_every_lowering_shows_as_a_stage() -> None:
    named = [stage.name for stage in stages(checked(parse_statements(PROGRAM)))]
    every = [step.name for step in (*LOWERINGS, *CATALOG_LOWERINGS, *GRAPH_LOWERINGS)]
    # Positions are settled by tables, and there are none.
    assert named == ["written", *(name for name in every if name != "positions")]


def test_stages_that_change_nothing_are_not_shown() -> None:
    text = ensue.explain("PATTERN SEQ(A a, B b)", stages=True)
    assert text == "WRITTEN\n  PATTERN SEQ(A a, B b);"


def test_a_lowered_program_has_no_rules_and_no_contexts() -> None:
    lowered = lower(checked(parse_statements(PROGRAM)))
    assert isinstance(lowered, LoweredProgram)
    assert not isinstance(lowered, CheckedProgram)
    assert not lowered.ruleset.rules
    assert {str(query.name) for query in lowered.declared} == {"order+price#1.1", "overdue", "chosen#1"}


def test_graphs_see_no_operators() -> None:
    for query in lower(checked(parse_statements(PROGRAM))).statements:
        spelled = spelled_out(query)
        assert spelled.within is None
        assert not any(isinstance(part, Operation) for part in walk_pattern(spelled.pattern))
        assert spelled_out(spelled) == spelled


@pytest.mark.parametrize("path", case_files(), ids=lambda path: path.stem)
def test_every_stage_of_the_cases_can_be_shown(path: Path) -> None:
    for case in ready_cases(path):
        if not case.errors:
            for stage in stages(checked(parse_statements(case.query))):
                assert render_stage(stage.statements)


def test_only_the_gate_makes_checked_programs_and_only_the_driver_lowered_ones() -> None:
    source = Path(ensue.__file__).parent
    made = re.compile(r"(?<!class )\b(CheckedProgram|LoweredProgram)\(")
    makers = {
        (found[1], str(path.relative_to(source)))
        for path in source.rglob("*.py")
        for found in made.finditer(path.read_text("utf-8"))
    }
    assert makers == {("CheckedProgram", "check/gate.py"), ("LoweredProgram", "lower/phases.py")}


def test_phases_are_no_subtypes_of_each_other() -> None:
    """So mypy refuses a phase that is skipped or repeated."""
    assert issubclass(CheckedProgram, Statements)
    assert issubclass(LoweredProgram, Statements)
    assert not issubclass(CheckedProgram, LoweredProgram)
    assert not issubclass(LoweredProgram, CheckedProgram)
