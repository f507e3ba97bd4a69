"""Ensue: complex event processing. Which events, in which order, with which of them absent.

>>> import ensue, pyarrow as pa
>>> events = pa.table({"t": [1, 2, 3], "type": ["Order", "Paid", "Shipped"], "id": [7, 7, 7]})
>>> query = "PATTERN SEQ(Order o, Shipped s) PARTITION BY id WITHIN 10 RETURN o.id AS id, s.t AS at"
>>> ensue.detect(events, query, time="t", type="type").to_pylist()
[{'id': 7, 'at': 3}]

Every function takes the events first and the query second. Events are a pyarrow, pandas or polars table, a Spark
DataFrame, or a mapping of one table per stream. A query is a text, a `pathlib.Path` of an `.ensue` file, or Python:

>>> ensue.seq("Order o", "NOT Paid p", "Shipped s").partition_by("id").within(10).returning("s.t AS at")
Query("PATTERN SEQ(Order o, NOT Paid p, Shipped s)
  PARTITION BY id
  WITHIN 10
  RETURN s.t AS at")

The clauses of a query; only the pattern is required:

>>> query = '''
... PATTERN unpaid                                  -- the name of the result
...   SEQ(Order o [amount > 5], NOT Paid p, Shipped s)  -- streams, variables, conditions on one event
...   WHERE s.country != o.country                  -- conditions between events
...   PARTITION BY id                               -- the same in all events of a match
...   WITHIN 2 weeks                                -- from the first to the last event; integer time has no unit
...   RETURN o.id AS id, s.t AS at                  -- without RETURN: the events themselves
... '''
>>> ensue.parse(query).names
('unpaid',)

A pattern is made of SEQ, AND, OR and NOT, `FIRST x` and `LAST x`, and repetitions: `x{3}`, `x{2,5}`, `x+`, `COLLECT x`.
Conditions and RETURN have aggregates of repetitions, such as `count(x)`, and functions, such as `hour(o.t)`.

Find matches
    detect(events, query, time=...)     the matches of one pattern, as the kind of table that `events` is
    run(events, query, time=...)        the matches of every pattern of a program, by name
    detect_batches, any_match           matches as Arrow batches; the probability of at least one match
    violations(events, query, ...)      the traces that break a constraint
    Detector(query, time=...)           batches of events, step by step, in this process
    start(events, query, to=..., ...)   a stream on Spark
    events(table, time=..., ...)        describes the columns once: `source.detect(query)`, `source.run(query)`, ...

Understand queries and results
    parse, explain                      what a query means and how it will run
    why_not, justify, waiting           why there is no match, what proves one, what a run waits for
    report                              a run as one HTML page

Build queries in Python
    event seq all_of any_of absent var rule rows, and the namespaces
    fn              values and aggregates: `fn.count`, `fn.max`, `fn.field`
    ops             operators of SNOOP and COMPOSE: `ops.follows`, `ops.periodic`
    rules           rules, facts and tables
    constraints     what holds in every trace: `constraints.prior`

More namespaces
    actions         calls of functions, webhooks, topics and tables
    beliefs         probabilistic state
    process         workflows, BPMN, mining of constraints
    learn           refinement of events by learned context

`Limits` says how much a run may produce. Errors in queries and data are `EnsueError`s with a code. In a terminal,
`ensue errors CODE` explains a code with an example.
"""

from importlib.util import find_spec
from typing import Any

import lazy_loader

__version__ = "0.2.0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__ or name.startswith("_") or find_spec(f"ensue.{name}"):
        return _load(name)
    from ensue.errors import closest

    spaces = ("fn", "ops", "rules", "constraints", "actions", "beliefs", "process", "learn")
    known = {each: f"ensue.{each}" for each in __all__}
    known |= {each: f"ensue.{space}.{each}" for space in reversed(spaces) for each in _load(space).__all__}
    similar = closest(name, known)
    hint = f"; did you mean `{known[similar]}`?" if similar else "; `help(ensue)` lists all names"
    raise AttributeError(f"module 'ensue' has no name `{name}`{hint}", name=name)
