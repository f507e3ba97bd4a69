"""Every case of `tests/cases` by the oracle alone. What a case expects is written by hand: so the oracle is trusted."""

from __future__ import annotations

import pytest

from case_files import CASES, Case, read_cases
from case_oracle import can_show_columns, heads_of, is_in_reach, node_of, oracle_results, oracle_rows, returned_rows

FILES = sorted(CASES.glob("*.txt"))
ACCEPTED = [(path, case) for path in FILES for case in read_cases(path)[0] if not case.errors]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{path.stem}: {case.title}") for path, case in ACCEPTED])
def test_oracle_finds_what_is_written(case: Case) -> None:
    if heads_of(case):
        assert sorted(oracle_results(case)) == sorted(case.rows)
        return
    if not is_in_reach(case) or not can_show_columns(case):
        pytest.skip("the oracle does not know a function, or a type, of the query")
    found = returned_rows(case) if node_of(case).returns else [row for row, _, _ in oracle_rows(case)]
    assert sorted(found) == sorted(case.rows)
