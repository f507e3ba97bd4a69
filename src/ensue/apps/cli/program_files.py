"""Reads programs from files, explains them and selects patterns. It loads no library for data, so it starts fast."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ensue.analysis.declarations import streams_below
from ensue.apps.cli.input_files import input_name, read_input
from ensue.apps.cli.terminal import UsageError
from ensue.errors import did_you_mean
from ensue.lower.rulesets import heads_below
from ensue.programs import Program, parse


def read_program(path: Path) -> Program:
    """Reads a program from a file or stdin. Problems cite the path as given."""
    return parse(read_input(path), input_name(path))


def explain_program(
    program: Program, pattern: str | None, time: str, end: str | None, as_json: bool, stages: bool = False
) -> str:
    """Explains each pattern, or only `pattern`; with `stages`, its rewrites.

    `time` and `end` are the names of the columns of the times and ends of events. JSON is one object with the text of
    each pattern under its name.
    """
    if not as_json:
        return choose_pattern(program, pattern).explain(time=time, end=end, stages=stages)
    names = program.names if pattern is None else (pattern,)
    texts = {name: choose_pattern(program, name).explain(time=time, end=end, stages=stages) for name in names}
    return json.dumps(texts, indent=2, ensure_ascii=False)


def name_patterns(program: Program) -> Program:
    """Returns the program with generated names written into it, so that messages and results use the same names."""
    names = iter(program.names)
    named = (node if node.declares else replace(node, name=next(names)) for node in program.statements.statements)
    return Program(replace(program.statements, statements=tuple(named)))


def choose_pattern(program: Program, pattern: str | None) -> Program:
    """Returns the program with only this pattern and the streams that it depends on."""
    if pattern is None:
        return program
    if pattern not in program.names:
        raise UsageError(
            "no-such-pattern",
            f"the program has no pattern or rule `{pattern}`; available: {', '.join(program.names)}",
            did_you_mean(pattern, program.names),
        )
    if pattern in program.statements.heads:
        return _only_head(program, pattern)
    node = program.statements.results[program.names.index(pattern)]
    below = streams_below(node, program.statements.statements)
    return Program(replace(program.statements, statements=(*below, replace(node, name=pattern))))


def _only_head(program: Program, head: str) -> Program:
    """Returns the program with only the rules for a head and for the heads that it depends on, those for tables, and no
    patterns."""
    statements = program.statements
    assert statements.ruleset is not None
    needed = {*heads_below(head, statements.ruleset), *statements.ruleset.derived_tables}
    rules = tuple(rule for rule in statements.ruleset.rules if rule.head in needed)
    return Program(
        replace(statements, statements=statements.declared, ruleset=replace(statements.ruleset, rules=rules))
    )
