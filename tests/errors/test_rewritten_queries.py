"""Hints that show a query of another system as Ensue reads it. What they show can be parsed and passes the checks."""

import re

import pytest

import ensue


def suggestion(query: str) -> str:
    """The query in the first hint of the error."""
    with pytest.raises(ensue.QueryError) as caught:
        ensue.parse(query)
    found = re.search(r"`(PATTERN .*)`$", caught.value.problems[0].hint or "")
    return "" if found is None else found[1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "PATTERN SEQ(MSFT, NOT SEQ(RIMM, AMAT), ORCL) WHERE MSFT.price > ORCL.price AND RIMM.n = 1 WITHIN 5",
            "PATTERN SEQ(MSFT msft, NOT SEQ(RIMM rimm, AMAT), ORCL orcl)"
            " WHERE msft.price > orcl.price AND rimm.n = 1 WITHIN 5",
        ),
        (
            "PATTERN SEQ(Trade t, Halt) WHERE Trade.price > Halt.price WITHIN 5 RETURN Trade.price AS p, t.t AS at",
            "PATTERN SEQ(Trade t, Halt halt) WHERE t.price > halt.price WITHIN 5 RETURN t.price AS p, t.t AS at",
        ),
        (
            "PATTERN SEQ(MSFT, ORCL, MSFT.price > ORCL.price) WITHIN 5",
            "PATTERN SEQ(MSFT, ORCL) WHERE MSFT.price > ORCL.price WITHIN 5",
        ),
        (
            "PATTERN SEQ(Order, Paid p) WHERE Order.id = p.id SUPPRESS FOR 5 PER Order.id",
            "PATTERN SEQ(Order `order`, Paid p) WHERE `order`.id = p.id SUPPRESS FOR 5 PER `order`.id",
        ),
    ],
    ids=["no variables", "a variable and its stream", "conditions first", "PER"],
)
def test_rewritten_queries(query: str, expected: str) -> None:
    written = suggestion(query)
    assert written.replace("`order`", "order") == expected.replace("`order`", "order")
    again = suggestion(written) if "MSFT.price" in written else written
    ensue.parse(again)


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("PATTERN SEQ(A, A, B) WHERE A.x > B.x", "`A` is a stream with 2 events in this pattern: name each of them"),
        ("PATTERN SEQ(A a, B b) WHERE c.x > 1", "if `c` is a column, write `a.c.x`"),
        ("PATTERN SEQ(A, B b) WHERE A.x > c.x", ""),
    ],
    ids=["a stream twice", "not a stream", "another name is unknown, too"],
)
def test_nothing_is_rewritten_that_would_still_be_wrong(query: str, hint: str) -> None:
    assert suggestion(query) == ""
    with pytest.raises(ensue.QueryError) as caught:
        ensue.parse(query)
    assert hint in caught.value.problems[0].hint
