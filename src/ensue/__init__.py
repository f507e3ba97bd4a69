"""Ensue: complex event processing. Which events, in which order, with which of them absent.

>>> import ensue, pyarrow as pa
>>> events = pa.table({"t": [1, 2, 3], "type": ["Order", "Paid", "Shipped"], "id": [7, 7, 7]})
>>> query = "PATTERN SEQ(Order o, Shipped s) PARTITION BY id WITHIN 10 RETURN o.id AS id, s.t AS at"
>>> ensue.detect(events, query, time="t", type="type").to_pylist()
[{'id': 7, 'at': 3}]

Every function takes the events first and the query second. Events are a pyarrow, pandas or polars table, a Spark
DataFrame, or a mapping of one table per stream. A query is a text, a `pathlib.Path` of an `.ensue` file, or Python:

>>> ensue.seq("Order o", "NOT Paid p", "Shipped s").partition_by("id").within(10)
Query("PATTERN SEQ(Order o, NOT Paid p, Shipped s)
  PARTITION BY id
  WITHIN 10")

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
    event seq all_of any_of absent var rule, and the namespaces
    fn              values and aggregates: `fn.count`, `fn.max`, `fn.field`
    ops             operators of SNOOP and COMPOSE: `ops.follows`, `ops.periodic`
    rules           rules, facts and tables
    constraints     what holds in every trace: `constraints.prior`

More namespaces
    actions         calls of functions, webhooks, topics and tables
    beliefs         probabilistic state
    process         workflows, BPMN, mining of constraints
    learn           refinement of events by learned context

`Limits` says how much a run may produce. Every error is an `EnsueError` with a code; `ensue errors CODE` explains it.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
