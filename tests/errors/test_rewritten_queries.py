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
        (
            "PATTERN SEQ(MSFT, Msft, ORCL msft2) WHERE MSFT.price > Msft.price AND MSFT.price > msft2.price",
            "PATTERN SEQ(MSFT msft, Msft msft3, ORCL msft2)"
            " WHERE msft.price > msft3.price AND msft.price > msft2.price",
        ),
        (
            "PATTERN SEQ(Recycle r, ! SEQ(Sharpening s, Checking c, s.id=c.id=o.id), Operating o, r.id=o.id and"
            ' o.ins_type="surgery") WITHIN 1 hour',
            "PATTERN SEQ(Recycle r, ! SEQ(Sharpening s, Checking c), Operating o)"
            ' WHERE s.id=c.id=o.id AND r.id=o.id and o.ins_type="surgery" WITHIN 1 hour',
        ),
        (
            "PATTERN SEQ(A a, ! SEQ(B b, !X x, C c, [id, site]), D d) WITHIN 5",
            "PATTERN SEQ(A a, ! SEQ(B b, !X x, C c), D d)"
            " WHERE b.id = x.id = c.id AND b.site = x.site = c.site WITHIN 5",
        ),
        (
            "PATTERN SEQ(A a, B b, (a.x = b.x OR a.y = 1), [id]) WHERE a.y = 2 PARTITION BY k RETURN a.x AS x",
            "PATTERN SEQ(A a, B b) WHERE (a.x = b.x OR a.y = 1) AND a.y = 2 PARTITION BY k, id RETURN a.x AS x",
        ),
        (
            "PATTERN SEQ(A a, B b) WHERE a.x > 1 AND [id, site] AND b.y BETWEEN 1 AND 2 WITHIN 5",
            "PATTERN SEQ(A a, B b) WHERE a.x > 1 AND b.y BETWEEN 1 AND 2 PARTITION BY id, site WITHIN 5",
        ),
        ("PATTERN SEQ(A a, B b) WHERE [id]", "PATTERN SEQ(A a, B b) PARTITION BY id"),
    ],
    ids=[
        "no variables",
        "a variable and its stream",
        "conditions first",
        "PER",
        "variables that are taken",
        "the first query of NEEL",
        "fields of a nested pattern",
        "conditions in brackets, and further keys",
        "fields among conditions",
        "fields in WHERE",
    ],
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
        ("PATTERN SEQ(A a, ! SEQ(B, C c, [id]), D d)", ""),
        ("PATTERN SEQ(A a, B b) WHERE a.x > 1 OR [id]", ""),
    ],
    ids=["a stream twice", "not a stream", "another name is unknown, too", "nested without variables", "OR of a field"],
)
def test_nothing_is_rewritten_that_would_still_be_wrong(query: str, hint: str) -> None:
    assert suggestion(query) == ""
    with pytest.raises(ensue.QueryError) as caught:
        ensue.parse(query)
    assert hint in caught.value.problems[0].hint
