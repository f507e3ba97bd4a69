"""Small queries with every operator, list and choice of sections 6 and 7, for Spark to answer as this process does."""

from __future__ import annotations

from case_files import Case

QUERIES = {
    "FOLLOWS": ("A1 B2 B7 A8 B9", "FOLLOWS(A a, B b, 5)"),
    "PRECEDES": ("A1 B2 B7 A8 B9", "PRECEDES(B b, A a, 5) PARTITION BY k"),
    "NOTFOLLOWS": ("A1 B4 A8 A30", "NOTFOLLOWS(A a, B b, 5)"),
    "NOTFOLLOWS of a composite": ("A1 C2 B4 A8 C9", "NOTFOLLOWS(SEQ(A a, C c), B b, 5)"),
    "NOTFOLLOWS of NOTFOLLOWS": ("A1 B4 A8 A20 C24", "NOTFOLLOWS(NOTFOLLOWS(A a, B b, 5), C c, 3)"),
    "NOTFOLLOWS with a condition": ("A1(x=1) B4(x=2) A8(x=1) B9(x=1)", "NOTFOLLOWS(A a, B b, 5) WHERE a.x = b.x"),
    "NOTFOLLOWS in AND": ("A1 C3 A9 C30", "AND(NOTFOLLOWS(A a, B b, 5), C c) WITHIN 12"),
    "NOTPRECEDES": ("B1 A2 A9", "NOTPRECEDES(A a, B b, 5)"),
    "ANYONE": ("A1 B2", "ANYONE(A a, B b)"),
    "BOTH": ("A1 B2 A3 B20", "BOTH(A a, B b, 3)"),
    "ANY": ("A1 C2 B9", "ANY(2, A a, B b, C c) WITHIN 8"),
    "APERIODIC": ("A1 B2 C4 B5 A6 B7", "APERIODIC(A a, B b, C c)"),
    "APERIODIC*": ("A1 B2 B3 C5 B6", "APERIODIC*(A a, B b, C c) RETURN a.t AS since, count(b) AS n, list(b.t) AS at"),
    "PERIODIC in a window": ("A1 C12 A14", "PERIODIC(A a, 5, C c) AS p WITHIN 20 RETURN a.t AS since, p.e AS at"),
    "PERIODIC twice": ("A1 C22", "PERIODIC(PERIODIC(A a, 3), 5, C c) AS p WITHIN 25 RETURN p.e AS at"),
    "PERIODIC and another": ("A1 B3 B12", "AND(B b, PERIODIC(A a, 5)) WITHIN 14"),
    "PERIODIC*": ("A1 C12", "PERIODIC*(A a, 5, C c) AS p RETURN p.s AS since, p.times AS times"),
    "UNLESS": ("A1 C3 A5 B6 C7", "UNLESS(B b)(A a, C c)"),
    "RELATIVE": ("A1 B2 B3", "RELATIVE(A a, B b)"),
    "RELATIVE+": ("A1 A3 A4 A9", "RELATIVE+(A a) WITHIN 4"),
    "PRIOR": ("A1 B2 B3", "PRIOR(A a, B b) WITHIN 9"),
    "NEXT": ("A1 B2 A4 X5 B6", "NEXT(A a, B b)"),
    "EXCEPT": ("A1 B2 B3 A4", "EXCEPT(B e, SEQ(A a, B b))"),
    "SIMULTANEOUS": ("A1 B1 A4 B5", "SIMULTANEOUS(A a, B b)"),
    "CONCURRENT": ("A1..4 B3..9 A10..12 B12..13", "CONCURRENT(A a, B b)"),
    "ANY EVENT BUT": ("A1 X2 B3 Y4 C5", "SEQ(A a, ANY EVENT BUT (B, A) v) WITHIN 3"),
    "ANY EVENT and one of them": ("A1(x=1) A2(x=5) B2(x=7)", "AND(A a, ANY EVENT v [x > 4]) WITHIN 4"),
    "nothing but": ("A1 B2 C3 A4 X5 C6", "SEQ(A a, NOT ANY EVENT BUT (B) v, C c)"),
    "repetition": ("A1(x=1) A2(x=3) A4(x=2) B5", "SEQ(A a{2,3}, B b) WHERE a.x > PREV(a.x) WITHIN 9"),
    "collection": (
        "A1 T2(x=4) T3(x=8) B5 A6 T7(x=1) B8",
        "SEQ(A a, COLLECT T t, B b) WHERE avg(t.x) > 2 RETURN a.t AS since, count(t) AS n, avg(t.x) AS mean, t.x AS x",
    ),
    "collection, whole events": ("A1 T2(x=4) T3(x=8) B5", "SEQ(A a, T t+, B b) WHERE t.x > 5"),
    "collection at the end": ("A1 T2 T5 A9", "SEQ(A a, COLLECT T t) WITHIN 6"),
    "FIRST": ("A1 B3 B4 C6", "SEQ(A a, FIRST B b, C c)"),
    "LAST": ("A1 B3 B4 C6 B7", "SEQ(A a, LAST B b, C c) WITHIN 20"),
    "LAST waits": ("A1 B3 B4 A9 B30", "SEQ(A a, LAST B b) WITHIN 6"),
    "MATCH NEXT": ("A1 B3 B4 C6 C7", "SEQ(A a, B b, C c) MATCH NEXT WITHIN 9"),
    "MATCH NEXT with a condition": ("A1(x=2) B3(x=1) B4(x=2) B5(x=2)", "SEQ(A a, B b) MATCH NEXT WHERE a.x = b.x"),
    "MATCH STRICT": ("A1 B2 A4 X5 B6", "SEQ(A a, B b) MATCH STRICT"),
    "CONSUME": ("A1 A2 B3 B4", "SEQ(A a, B b) CONSUME WITHIN 6"),
}
"""Events and a pattern, by what is tried."""

OPERATOR_CASES = [
    Case(title, events.replace(" ", "(k=1) ") + "(k=1)" if "PARTITION" in query else events, f"PATTERN {query}", ())
    for title, (events, query) in QUERIES.items()
]
