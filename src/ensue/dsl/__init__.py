"""Queries in Python, equal in power to query text: the same values come out.

>>> from ensue.dsl import event, seq, var
>>> query = seq(event("A", "a"), ~event("B", "b"), event("C", "c")).within("1 hour").partition_by("id")
>>> print(query.where(var("a").amount > 5).to_text())
PATTERN SEQ(A a, NOT B b, C c)
  WHERE a.amount > 5
  PARTITION BY id
  WITHIN 1 hour
"""

from ensue.dsl.conditions import Value, call, case, field, same, value, var
from ensue.dsl.constraints import ends, ends_within, exclusive, implies, prior, require
from ensue.dsl.literals import window
from ensue.dsl.patterns import PatternExpression, absent, all_of, any_of, event, query_of, seq
from ensue.dsl.query import Query

__all__ = [
    "PatternExpression",
    "Query",
    "Value",
    "absent",
    "all_of",
    "any_of",
    "call",
    "case",
    "ends",
    "ends_within",
    "event",
    "exclusive",
    "field",
    "implies",
    "prior",
    "query_of",
    "require",
    "same",
    "seq",
    "value",
    "var",
    "window",
]
