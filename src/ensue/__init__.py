"""Ensue: complex event processing. Which events, in which order, with which of them absent.

>>> import ensue, pyarrow as pa
>>> events = pa.table({"t": [1, 2, 3], "type": ["Order", "Paid", "Shipped"], "id": [7, 7, 7]})
>>> query = "PATTERN SEQ(Order o, Shipped s) PARTITION BY id WITHIN 10 RETURN o.id AS id, s.t AS at"
>>> ensue.detect(events, query, time="t", type="type").to_pylist()
[{'id': 7, 'at': 3}]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ensue.api import Program, Results, detect, detect_batches, explain, parse, parse_file, run, violations
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
        ends,
        ends_within,
        event,
        exclusive,
        field,
        implies,
        prior,
        require,
        same,
        seq,
        value,
        var,
    )
    from ensue.engine.sources import Report
    from ensue.errors import (
        EnsueError,
        EnsueNotice,
        EnsueWarning,
        LimitError,
        QueryError,
        SchemaError,
        SetupError,
        StateError,
    )
    from ensue.mining import Proposal, mine
    from ensue.runtimes.spark.running import Running
    from ensue.runtimes.spark.session import spark_session
    from ensue.streams import start, stream_state
    from ensue.workflows import Workflow, read_bpmn, workflow

__version__ = "0.1.0"

_HOMES = {
    "Advance": "ensue.detector",
    "Detector": "ensue.detector",
    "EnsueError": "ensue.errors",
    "EnsueNotice": "ensue.errors",
    "EnsueWarning": "ensue.errors",
    "LimitError": "ensue.errors",
    "PatternExpression": "ensue.dsl",
    "Program": "ensue.api",
    "Proposal": "ensue.mining",
    "Query": "ensue.dsl",
    "QueryError": "ensue.errors",
    "Report": "ensue.engine.sources",
    "Results": "ensue.api",
    "Running": "ensue.runtimes.spark.running",
    "SchemaError": "ensue.errors",
    "SetupError": "ensue.errors",
    "StateError": "ensue.errors",
    "Value": "ensue.dsl",
    "Workflow": "ensue.workflows",
    "absent": "ensue.dsl",
    "all_of": "ensue.dsl",
    "any_of": "ensue.dsl",
    "call": "ensue.dsl",
    "case": "ensue.dsl",
    "detect": "ensue.api",
    "detect_batches": "ensue.api",
    "ends": "ensue.dsl",
    "ends_within": "ensue.dsl",
    "event": "ensue.dsl",
    "exclusive": "ensue.dsl",
    "explain": "ensue.api",
    "field": "ensue.dsl",
    "implies": "ensue.dsl",
    "mine": "ensue.mining",
    "parse": "ensue.api",
    "parse_file": "ensue.api",
    "prior": "ensue.dsl",
    "read_bpmn": "ensue.workflows",
    "require": "ensue.dsl",
    "run": "ensue.api",
    "same": "ensue.dsl",
    "seq": "ensue.dsl",
    "spark_session": "ensue.runtimes.spark.session",
    "start": "ensue.streams",
    "stream_state": "ensue.streams",
    "value": "ensue.dsl",
    "var": "ensue.dsl",
    "violations": "ensue.api",
    "workflow": "ensue.workflows",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first asked for, so that `ensue --help` does not wait for compilers."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ensue' has no attribute '{name}'")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "Advance",
    "Detector",
    "EnsueError",
    "EnsueNotice",
    "EnsueWarning",
    "LimitError",
    "PatternExpression",
    "Program",
    "Proposal",
    "Query",
    "QueryError",
    "Report",
    "Results",
    "Running",
    "SchemaError",
    "SetupError",
    "StateError",
    "Value",
    "Workflow",
    "absent",
    "all_of",
    "any_of",
    "call",
    "case",
    "detect",
    "detect_batches",
    "ends",
    "ends_within",
    "event",
    "exclusive",
    "explain",
    "field",
    "implies",
    "mine",
    "parse",
    "parse_file",
    "prior",
    "read_bpmn",
    "require",
    "run",
    "same",
    "seq",
    "spark_session",
    "start",
    "stream_state",
    "value",
    "var",
    "violations",
    "workflow",
]
