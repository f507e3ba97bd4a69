"""What `explain` says of programs whose only results are calls."""

from __future__ import annotations

import ensue

PROGRAM = """
STREAM late FROM PATTERN SEQ(Order o, NOT Paid p) PARTITION BY id WITHIN 5 RETURN o.id AS id;
ON late l DO tell(l.id)
"""


def test_a_stream_that_only_an_action_uses_is_worked_out() -> None:
    explained = ensue.parse(PROGRAM).explain()
    assert "late: the matches of this pattern, used by ON late DO tell" in explained
    assert "batch: late, ON late DO tell together, shuffled by id" in explained
