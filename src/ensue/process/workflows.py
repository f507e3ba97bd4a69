"""A workflow: its tasks, the constraints that all of its traces obey, and the traces themselves."""

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
from ensue.text.reserved import quote_word


@dataclass(frozen=True, repr=False)
class Workflow:
    """The orders in which the tasks of one case may happen. Made by `workflow` and `read_bpmn`; never changes.

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
        """The tasks, in the order in which the workflow names them."""
        return self.net.tasks

    def constraints(self, *, reduced: bool = False) -> tuple[Constraint, ...]:
        """Every PRIOR, EXCLUSIVE, REQUIRE and ENDS that all complete traces obey, and no other.

        A `PRIOR(a, b)` is given only if `a` and `b` can occur in one trace; if not, `EXCLUSIVE(a, b)` says more.
        With `reduced`, those are left out that follow from the rest.
        """
        return reduce_constraints(self._constraints, self.tasks) if reduced else self._constraints

    @cached_property
    def _constraints(self) -> tuple[Constraint, ...]:
        return constraints_of(self.net)

    def to_text(self) -> str:
        """The workflow in the notation; `workflow` reads it back. One that was read from BPMN has no such text.

        >>> workflow("A->((B->C) | D) -- a comment").to_text()
        'A -> (B -> C | D)'
        """
        if self.process is None:
            raise SchemaError(
                "no-notation",
                "a workflow that was read from BPMN has no text in the notation of workflows",
                "its tasks and constraints() say what it demands",
            )
        return render_process(self.process)

    def accepts(self, trace: Sequence[str]) -> bool:
        """Whether these events, and no other ones, are a complete trace of the workflow."""
        markings = {self.net.initial}
        for event in trace:
            if event not in self.tasks:
                return False
            markings = set(self._explorer.landings(self.tasks.index(event), markings))
        return COMPLETE in self._explorer.quiet_graph(markings, silent_only=True)

    def sample(self, random: Random, most: int = 100) -> list[str]:
        """A complete trace, at each step at random; from `most` events on it takes the shortest way to the end.

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
        """The events of a shortest way from a marking to the end, by breadth where steps without event cost nothing."""
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
    """The workflow that a text stands for. Messages cite the text under `name`.

    `A -> B` one after the other, `A | B` one of them, `{A, B}` both in parallel, `[A]` maybe, `A+` one or more times,
    `A*` zero or more times, `(...)` groups, `--` starts a comment. Names with other signs stand in backticks.

    >>> workflow("Order -> [`credit check`] -> (Ship | Cancel)").constraints()[-1]
    Ends(streams=('Ship', 'Cancel'))
    """
    process = parse_process(text, name)
    return Workflow(weave_net(process), process)


def read_bpmn(
    source: str | Path, *, process: str | None = None, names: Mapping[str, str | None] | None = None
) -> Workflow:
    """The workflow that a BPMN 2.0 file, or its text, draws. The table in `ensue.process.bpmn` says how it is read.

    `process` chooses one of several processes, by its name, the name of its pool, or its id. `names` gives tasks other
    names, by their name or id; it makes tasks of events, which otherwise are passed through, and with None it leaves
    out a task that leaves no event.

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
