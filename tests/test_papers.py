"""`tests/cases/papers` lists every rule, query and example that the five papers print.

A heuristic searches the papers for prints that no case names. The papers are not part of the repository: they are read
where `../shared/papers` exists.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from case_files import CASES, Case, Print, case_files, read_cases
from ensue import EnsueError
from test_cases import rows_in_batch, without_completion

PAPERS = Path(__file__).parents[2] / "shared" / "papers"
LISTED = [case for path in sorted((CASES / "papers").glob("*.txt")) for case in read_cases(path)[0]]
PRINTS = [each for case in LISTED for each in case.prints]
PENDING = [case for path in case_files() for case in read_cases(path)[0] if case.pending]
PRINTED = {
    "000": r"SEQ ?\(|AND ?\([A-Z]|(prior|exclusive|require)\(|\[he ?\] ?[-<>]|<event expression>",
    "001": r"\\leftarrow|\\otimes|: ?-|: \\neg|: &? ?\\text\{-|\\text\{-|\\neg",
    "002": r"(SEQ|AND|OR)\}? ?\(|PATTERN \}|PATTERN\t",
    "003": r"^\(?SELECT (?!clause)|EVENT |(FOLLOWS|PRECEDES|BOTH|ANYONE) ?\(|(relative|prior|sequence)\+?\("
    r"|\(E\d ?; ?E\d|; ?\((first|last) |\(\d\)E\d|\)\(t\) =|\)\[h\] =|a; ?b|^Quotes\(|[a-z]+Alert\(|x[AB], x[AB]"
    r"|^Person\(|p\(LR",
    "004": r"\\leftarrow|operatorname|\\bowtie|extend(\\_backward)?\(|Node extends|events? A and B|\bduring k\b",
}
"""What a printed rule, query or formula of each paper looks like."""


def lines_of(paper: str) -> list[str]:
    (path,) = PAPERS.glob(f"{paper}_*.txt")
    return path.read_text(encoding="utf-8").split("\n")


needs_papers = pytest.mark.skipif(not PAPERS.is_dir(), reason="the text of the papers is not part of the repository")


@needs_papers
@pytest.mark.parametrize(
    "printed", PRINTS, ids=lambda printed: f"{printed.paper} line {printed.first}: {printed.quote[:30]}"
)
def test_quotes_are_where_the_list_says(printed: Print) -> None:
    assert printed.quote in lines_of(printed.paper)[printed.first - 1]
    assert printed.first <= printed.last < printed.first + 60


@needs_papers
@pytest.mark.parametrize("paper", PRINTED)
def test_no_print_is_missing(paper: str) -> None:
    listed = {line for each in PRINTS if each.paper == paper for line in range(each.first, each.last + 1)}
    found = {number: line for number, line in enumerate(lines_of(paper), 1) if re.search(PRINTED[paper], line)}
    assert len(found) > 20
    assert {number: line[:100] for number, line in found.items() if number not in listed} == {}


@pytest.mark.parametrize("case", LISTED, ids=lambda case: case.title)
def test_cases_name_their_print(case: Case) -> None:
    """A case that is refused also tells why."""
    assert case.prints
    assert case.header_values("why") or not case.errors


@pytest.mark.parametrize("case", PENDING, ids=lambda case: case.title)
def test_pending_cases_fail(case: Case) -> None:
    """What a case waits for is there if it passes: then, its `pending:` has to go."""
    assert all(re.fullmatch(r"issue \d+ item \d+", text) for text in case.header_values("pending"))
    try:
        found = sorted(rows_in_batch(case, case.parsed_events()))
    except (EnsueError, KeyError):
        return
    assert found != sorted(map(without_completion, case.rows))
