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
from ensue.dsl.lists import (
    avg,
    count,
    first_of,
    flatten_of,
    last_of,
    lineage,
    list_of,
    max_,
    min_,
    prev,
    probability,
    stddev,
    sum_,
)
from ensue.dsl.literals import window
from ensue.dsl.operators import (
    any_event,
    anyone,
    aperiodic,
    aperiodic_list,
    both,
    chain,
    concurrent,
    follows,
    next_to,
    not_follows,
    not_precedes,
    periodic,
    periodic_list,
    precedes,
    prior_to,
    relative,
    simultaneous,
    unless,
)
from ensue.dsl.patterns import PatternExpression, absent, all_of, any_of, event, query_of, seq
from ensue.dsl.query import Query
from ensue.dsl.rule_items import RuleItem, atom, name, timer, together, while_
from ensue.dsl.rules import RuleStatement, fact, on, rule, stream, table
from ensue.dsl.states import State, state

__all__ = [
    "PatternExpression",
    "Query",
    "RuleItem",
    "RuleStatement",
    "State",
    "Value",
    "absent",
    "all_of",
    "any_event",
    "any_of",
    "anyone",
    "aperiodic",
    "aperiodic_list",
    "atom",
    "avg",
    "both",
    "call",
    "case",
    "chain",
    "concurrent",
    "count",
    "ends",
    "ends_within",
    "event",
    "exclusive",
    "fact",
    "field",
    "first_of",
    "flatten_of",
    "follows",
    "implies",
    "last_of",
    "lineage",
    "list_of",
    "max_",
    "min_",
    "name",
    "next_to",
    "not_follows",
    "not_precedes",
    "on",
    "periodic",
    "periodic_list",
    "precedes",
    "prev",
    "prior",
    "prior_to",
    "probability",
    "query_of",
    "relative",
    "require",
    "rule",
    "same",
    "seq",
    "simultaneous",
    "state",
    "stddev",
    "stream",
    "sum_",
    "table",
    "timer",
    "together",
    "unless",
    "value",
    "var",
    "while_",
    "window",
]
