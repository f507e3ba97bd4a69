"""Ensue: complex event processing. Which events, in which order, with which of them absent.

>>> import ensue, pyarrow as pa
>>> events = pa.table({"t": [1, 2, 3], "type": ["Order", "Paid", "Shipped"], "id": [7, 7, 7]})
>>> query = "PATTERN SEQ(Order o, Shipped s) PARTITION BY id WITHIN 10 RETURN o.id AS id, s.t AS at"
>>> ensue.detect(events, query, time="t", type="type").to_pylist()
[{'id': 7, 'at': 3}]
"""

from ensue.api import Program, Results, detect, detect_batches, explain, parse, parse_file, run
from ensue.detector import Advance, Detector
from ensue.dsl import (
    PatternExpression,
    Query,
    Value,
    absent,
    all_of,
    any_of,
    call,
    case,
    event,
    field,
    same,
    seq,
    value,
    var,
)
from ensue.engine.sources import Report
from ensue.errors import EnsueError, EnsueWarning, LimitError, QueryError, SchemaError, StateError

__version__ = "0.1.0"

__all__ = [
    "Advance",
    "Detector",
    "EnsueError",
    "EnsueWarning",
    "LimitError",
    "PatternExpression",
    "Program",
    "Query",
    "QueryError",
    "Report",
    "Results",
    "SchemaError",
    "StateError",
    "Value",
    "absent",
    "all_of",
    "any_of",
    "call",
    "case",
    "detect",
    "detect_batches",
    "event",
    "explain",
    "field",
    "parse",
    "parse_file",
    "run",
    "same",
    "seq",
    "value",
    "var",
]
