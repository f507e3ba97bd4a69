"""Workflows: their tasks, the constraints that all of their traces obey, and the traces."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from ensue.errors import QueryError, SchemaError
from ensue.nodes.constraints import Constraint
from ensue.process.bpmn import decode_markup, parse_markup, read_diagram
from ensue.process.exploration import Explorer, constraints_of, reduce_constraints
from ensue.process.net import COMPLETE, Net, branch_problems, play_diagram, weave_net
from ensue.process.soundness import soundness_problems
from ensue.process.tree import Process, parse_process, render_process
from ensue.text.reserved_words import quote_word


@dataclass(frozen=True, repr=False)
class Workflow:
    """The possible orders of the tasks of one case. Created by `workflow` and `read_bpmn`; immutable.

    >>> order = workflow("Order -> {Pack, Bill+} -> (Ship | Cancel)")
    >>> order
    Workflow(Order, Pack, Bill, Ship, Cancel)
    >>> for constraint in order.constraints(reduced=True):
    ...     print(type(constraint).__name__, *constraint.streams)
    Prior Order Pack
    Prior Order Bill
    Exclusive Ship Cancel
    Require Order Pack
    Require Pack Order
    Require Pack Bill
    Require Bill Pack
    Require Ship Bill
    Require Cancel Bill
    Ends Ship Cancel
    >>> order.accepts(["Order", "Bill", "Pack", "Bill", "Ship"]), order.accepts(["Order", "Ship"])
    (True, False)
    """

    net: Net
    process: Process | None = None

    def __repr__(self) -> str:
        return f"Workflow({', '.join(map(quote_word, self.tasks))})"

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order in which the workflow mentions them."""
        return self.net.tasks

    def constraints(self, *, reduced: bool = False) -> tuple[Constraint, ...]:
        """Return every PRIOR, EXCLUSIVE, REQUIRE and ENDS that all complete traces obey.

        `PRIOR(a, b)` is included only if `a` and `b` can occur in the same trace; otherwise `EXCLUSIVE(a, b)` is
        stronger. With `reduced`, constraints that follow from the others are omitted.
        """
        return reduce_constraints(self._constraints, self.tasks) if reduced else self._constraints

    @cached_property
    def _constraints(self) -> tuple[Constraint, ...]:
        return constraints_of(self.net)

    def to_text(self) -> str:
        """Return the workflow as text that `workflow` can parse. A workflow read from BPMN has no such text.

        >>> workflow("A->((B->C) | D) -- a comment").to_text()
        'A -> (B -> C | D)'
        """
        if self.process is None:
            raise SchemaError(
                "no-notation",
                "a workflow read from BPMN cannot be written as text",
                "use its `tasks` and `constraints()`",
            )
        return render_process(self.process)

    def accepts(self, trace: Sequence[str]) -> bool:
        """Return True if exactly these events are a complete trace of the workflow."""
        markings = {self.net.initial}
        for event in trace:
            if event not in self.tasks:
                return False
            markings = set(self._explorer.landings(self.tasks.index(event), markings))
        return COMPLETE in self._explorer.quiet_graph(markings, silent_only=True)

    def sample(self, random: Random, most: int = 100) -> list[str]:
        """Return a random complete trace; after `most` events it takes the shortest path to the end.

        >>> workflow("A -> B+ -> C").sample(Random(1), most=0)
        ['A', 'B', 'C']
        """
        trace: list[str] = []
        marking = self.net.initial
        while marking != COMPLETE and len(trace) < most:
            transition = random.choice([step for step in self.net.transitions if step.is_enabled(marking)])
            marking = transition.fire(marking)
            trace += [] if transition.task is None else [self.tasks[transition.task]]
        return trace + self._shortest_end(marking)

    def _shortest_end(self, marking: int) -> list[str]:
        """Return the events of a shortest path from a marking to the end; steps without an event cost nothing."""
        graph = self._explorer.quiet_graph([marking])
        waiting: deque[tuple[int, list[str]]] = deque([(marking, [])])
        seen: set[int] = set()
        while waiting:
            here, trace = waiting.popleft()
            if here == COMPLETE:
                return trace
            if here in seen:
                continue
            seen.add(here)
            for number, target in graph[here]:
                task = self.net.transitions[number].task
                if task is None:
                    waiting.appendleft((target, trace))
                else:
                    waiting.append((target, [*trace, self.tasks[task]]))
        raise AssertionError("every run of a workflow can be completed")

    @cached_property
    def _explorer(self) -> Explorer:
        return Explorer(self.net)


def workflow(text: str, name: str = "workflow") -> Workflow:
    """Parse a workflow. Messages cite the text as `name`.

    `A -> B` is a sequence, `A | B` a choice, `{A, B}` both in parallel, `[A]` is optional, `A+` one or more times, `A*`
    zero or more times, `(...)` groups, `--` starts a comment. Quote names with other characters in backticks.

    >>> workflow("Order -> [`credit check`] -> (Ship | Cancel)").constraints()[-1]
    Ends(streams=('Ship', 'Cancel'))
    """
    process = parse_process(text, name)
    return Workflow(weave_net(process), process)


def read_bpmn(
    source: str | Path, *, process: str | None = None, names: Mapping[str, str | None] | None = None
) -> Workflow:
    """Read a workflow from a BPMN 2.0 file or its text. The table in `ensue.process.bpmn` lists the supported elements.

    `process` selects one of several processes, by its name, the name of its pool, or its id. `names` renames tasks,
    given by name or id. It also turns BPMN events into tasks, which are ignored otherwise; None removes a task that
    produces no event.

    >>> drawing = '''<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL"><process id="order">
    ...   <startEvent id="start"/> <task id="pack" name="Pack the parcel"/> <endEvent id="end"/>
    ...   <sequenceFlow id="f" sourceRef="start" targetRef="pack"/>
    ...   <sequenceFlow id="g" sourceRef="pack" targetRef="end"/>
    ... </process></definitions>'''
    >>> read_bpmn(drawing, names={"Pack the parcel": "Packed", "end": "Closed"}).constraints(reduced=True)[-1]
    Ends(streams=('Closed',))
    """
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<"):
        markup = parse_markup(source.lstrip("\ufeff \t\r\n"), "BPMN")
    else:
        path = Path(source)
        markup = parse_markup(decode_markup(path.read_bytes(), path.name), path.name)
    diagram = read_diagram(markup, process, names or {})
    problems = list(branch_problems(diagram))
    if not problems:
        play = play_diagram(diagram)
        problems = soundness_problems(diagram, play)
    if problems:
        raise QueryError(problems, markup.source)
    return Workflow(play.net)
