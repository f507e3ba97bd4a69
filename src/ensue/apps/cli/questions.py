"""Questions about a program and files of events."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ensue.apps.cli.detect import plain_value
from ensue.apps.cli.files import read_sources
from ensue.apps.cli.programs import name_patterns
from ensue.explanation import why_not
from ensue.programs import Program


def why_not_in_files(
    program: Program,
    data: Sequence[str],
    time: str,
    type: str | None,
    end: str | None,
    name: str | None,
    examples: int,
    as_json: bool,
) -> str:
    """Why a pattern of the program does not match in the files, as text or as JSON."""
    sources = read_sources(data, [column for column in (time, end) if column is not None])
    found = why_not(sources, name_patterns(program), time=time, type=type, end=end, name=name, examples=examples)
    if not as_json:
        return found.to_text()
    steps = [plain_value(row) for row in found.table.to_pylist()]
    answer = {"name": found.name, "matches": found.matches, "verdict": found.verdict, "steps": steps}
    return json.dumps(answer, ensure_ascii=False, allow_nan=False)
