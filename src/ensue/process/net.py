"""Convert diagrams and process trees to nets: a place for each flow, and for the state of a node between steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from ensue.errors import Problem
from ensue.process.diagram import Flow, Kind, Node, Pair, Rounds, Scope, inclusive_pairs
from ensue.process.tree import Choice, Maybe, Parallel, Process, Repeat, Sequence, Task, task_names

# --- nets: the common meaning of all workflows, tokens on places

COMPLETE = 0
"""The marking without tokens."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Fires if all of `needs` and none of `forbids` have tokens: takes `needs`, then `clears`, then puts `makes`.

    `task` is the number of the task that occurs, or None.
    """

    needs: int
    makes: int
    task: int | None = None
    forbids: int = 0
    clears: int = 0

    def is_enabled(self, marking: int) -> bool:
        return not self.needs & ~marking and not self.forbids & marking

    def fire(self, marking: int) -> int:
        return marking & ~self.needs & ~self.clears | self.makes

    def overfills(self, marking: int) -> int:
        """Return the places on which firing would put a second token."""
        return marking & ~self.needs & ~self.clears & self.makes


@dataclass(frozen=True, slots=True)
class Net:
    """The tasks, in reading order of the workflow, and the transitions.

    `entangled` is true if so many transitions forbid each other that searching for independent ones does not pay.
    """

    tasks: tuple[str, ...]
    transitions: tuple[Transition, ...]
    initial: int
    entangled: bool = False


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set.

    >>> list(bits(0b1101))
    [0, 2, 3]
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


# --- diagrams to nets

MOST_BRANCHES = 8
"""The maximum number of flows of which a node may select any subset: each subset is a transition."""


@dataclass(frozen=True, slots=True)
class Play:
    """A net, the node of each of its transitions, and the meaning of each of its places."""

    net: Net
    owners: tuple[Node, ...]
    holders: tuple[Flow | Node | Scope, ...]


def play_diagram(process: Scope) -> Play:
    """Return the net whose complete runs are those of the process."""
    return _Player(process).play()


def branch_problems(process: Scope) -> Iterator[Problem]:
    """Report nodes with more subsets of flows than a net can hold."""
    for scope in process.all_scopes():
        pairs = inclusive_pairs(scope)
        splits, joins = {split for split, _ in pairs}, {join for _, join in pairs}
        for node in scope.nodes.values():
            joined = scope.into(node) if node.kind is Kind.INCLUSIVE and node.id not in joins else ()
            selected = _selectable(node, scope) if node.id not in splits else ()
            if max(len(joined), len(selected)) > MOST_BRANCHES:
                message = f"{node.title} selects from more than {MOST_BRANCHES} flows"
                yield Problem("workflow-too-large", message, node.span, hint="distribute them over two gateways")


class _Player:
    """Builds the transitions of each node, scope by scope."""

    def __init__(self, process: Scope) -> None:
        self.process = process
        named = [node.task for node in (*process.reached(), *process.all_nodes()) if node.task is not None]
        self.numbers = {task: number for number, task in enumerate(dict.fromkeys(named))}
        self.holders: list[Flow | Node | Scope] = []
        self.owned: list[tuple[Node, Transition]] = []
        self.splits: dict[str, Pair] = {}
        self.joins: dict[str, Pair] = {}
        self.entangled = False
        for scope in process.all_scopes():
            self.holders += [scope, *scope.nodes.values(), *scope.flows]
            for (split, join), pair in inclusive_pairs(scope).items():
                self.splits[split] = self.joins[join] = pair
        self.places = {_key(holder): 1 << number for number, holder in enumerate(self.holders)}
        undecided = [flow for pair in self.splits.values() for flow in pair]
        self.undecided = {flow: 1 << number for number, flow in enumerate(undecided, len(self.holders))}
        self.holders += undecided

    def play(self) -> Play:
        for scope in self.process.all_scopes():
            for node in scope.nodes.values():
                self.owned += [(node, transition) for transition in self.transitions(node, scope)]
        transitions = tuple(transition for _, transition in self.owned)
        net = Net(tuple(self.numbers), transitions, self.place(self.process), self.entangled)
        return Play(net, tuple(node for node, _ in self.owned), tuple(self.holders))

    def place(self, holder: Flow | Node | Scope) -> int:
        return self.places[_key(holder)]

    def within(self, scope: Scope) -> int:
        """Return all places of a scope and of its sub-processes."""
        own = self.places_of((scope, *scope.flows)) | sum(self.inside(node) for node in scope.nodes.values())
        return own | sum(self.within(node.inner) for node in scope.nodes.values() if node.inner is not None)

    def inside(self, node: Node) -> int:
        """Return the places of a node itself, without those of a sub-process."""
        return self.place(node) | sum(self.undecided[flow] for flow in self.splits.get(node.id, ()))

    def places_of(self, holders: Iterable[Flow | Node | Scope]) -> int:
        return sum(self.place(holder) for holder in holders)

    def transitions(self, node: Node, scope: Scope) -> Iterator[Transition]:
        entries = [self.place(flow) for flow in scope.into(node)]
        task = None if node.task is None else self.numbers[node.task]
        match node.kind:
            case Kind.START:
                yield from (Transition(self.place(scope), makes, task) for makes in self.exits(node, scope))
            case Kind.END:
                yield from (Transition(entry, 0, task) for entry in entries)
            case Kind.TERMINATE:
                yield from (Transition(entry, 0, task, clears=self.within(scope)) for entry in entries)
            case Kind.STEP:
                yield from self.step(node, scope, entries, task)
            case Kind.EXCLUSIVE:
                exits = [self.place(flow) for flow in scope.out_of(node)] or [0]
                yield from (Transition(entry, makes) for entry in entries for makes in exits)
            case Kind.PARALLEL:
                if entries:
                    yield Transition(sum(entries), self.places_of(scope.out_of(node)))
            case Kind.INCLUSIVE:
                yield from self.inclusive(node, scope)
            case Kind.SUBPROCESS:
                yield from self.subprocess(node, scope, entries)

    def step(self, node: Node, scope: Scope, entries: list[int], task: int | None) -> Iterator[Transition]:
        exits, again = self.exits(node, scope), self.place(node)
        if node.rounds is Rounds.ONE:
            yield from (Transition(entry, makes, task) for entry in entries for makes in exits)
            return
        first = None if node.rounds is Rounds.ANY else task
        yield from (Transition(entry, again, first) for entry in entries)
        yield Transition(again, again, task)
        yield from (Transition(again, makes) for makes in exits)

    def subprocess(self, node: Node, scope: Scope, entries: list[int]) -> Iterator[Transition]:
        """Build a sub-process: its own place has a token while it runs; it ends when no other place of it has one."""
        assert node.inner is not None
        running, start, contents = self.place(node), self.place(node.inner), self.within(node.inner)
        first = 0 if node.rounds is Rounds.ANY else start
        yield from (Transition(entry, running | first) for entry in entries)
        yield from (Transition(running, makes, forbids=contents) for makes in self.exits(node, scope))
        if node.rounds is not Rounds.ONE:
            yield Transition(running, running | start, forbids=contents)

    def inclusive(self, node: Node, scope: Scope) -> Iterator[Transition]:
        """Build an inclusive gateway: it waits for all branches of a paired split, otherwise by the general rule."""
        if node.id in self.joins:
            yield Transition(self.places_of(self.joins[node.id].values()), self.place(node))
        else:
            yield from self.general_join(node, scope)
        if node.id in self.splits:
            yield from self.paired_split(node, self.splits[node.id])
        else:
            yield from (Transition(self.place(node), makes) for makes in self.exits(node, scope))

    def paired_split(self, node: Node, branches: Pair) -> Iterator[Transition]:
        """Select the first branch that is taken; earlier branches are skipped, later ones decide independently."""
        free = {first: last for first, last in branches.items() if first.id != node.default}
        default = {first: last for first, last in branches.items() if first.id == node.default}
        for number, chosen in enumerate(free):
            passed = [*list(free.values())[:number], *default.values()]
            later = sum(self.undecided[first] for first in list(free)[number + 1 :])
            yield Transition(self.place(node), self.place(chosen) | self.places_of(passed) | later)
        for first, last in free.items():
            yield Transition(self.undecided[first], self.place(first))
            yield Transition(self.undecided[first], self.place(last))
        if default:
            yield Transition(self.place(node), self.places_of((*default, *free.values())))

    def general_join(self, node: Node, scope: Scope) -> Iterator[Transition]:
        """Apply BPMN 2.0.2, table 13.3: the join fires for the flows with tokens when no token can reach another flow.

        A token can reach a flow if a path leads from it to an empty flow and not to a full one, without the gateway
        itself.
        """
        self.entangled = self.entangled or len(scope.into(node)) > 1
        sources = {flow: self.place(flow) | self.upstream(flow, node, scope) for flow in scope.into(node)}
        for arrived in _selections(tuple(sources)):
            awaited = _union(sources[flow] for flow in sources if flow not in arrived)
            covered = _union(sources[flow] for flow in arrived)
            yield Transition(self.places_of(arrived), self.place(node), forbids=awaited & ~covered)

    def upstream(self, flow: Flow, gateway: Node, scope: Scope) -> int:
        """Return the places from which a path leads to a flow without visiting the gateway."""
        found: dict[str, Node] = {}
        waiting = [flow.source]
        while waiting:
            identity = waiting.pop()
            if identity not in found and identity != gateway.id:
                found[identity] = scope.nodes[identity]
                waiting += [before.source for before in scope.into(found[identity])]
        start = self.place(scope) if any(node.kind is Kind.START for node in found.values()) else 0
        flows = [before for before in scope.flows if before.target in found]
        return self.places_of(flows) | sum(self.inside(node) for node in found.values()) | start

    def exits(self, node: Node, scope: Scope) -> list[int]:
        """Return the subsets of flows out of a node, each as the places that get a token; tokens end without flows."""
        selectable = _selectable(node, scope)
        always = [flow for flow in scope.out_of(node) if flow not in selectable and flow.id != node.default]
        otherwise = [flow for flow in scope.out_of(node) if flow.id == node.default]
        selections = [(*always, *selection) for selection in _selections(selectable)]
        if otherwise or always or not selections:
            selections.append((*always, *otherwise))
        return [self.places_of(selection) for selection in selections]


def _selectable(node: Node, scope: Scope) -> tuple[Flow, ...]:
    """Return the flows out of a node of which it takes a subset."""
    if node.kind is Kind.EXCLUSIVE:
        return ()
    takes_some = node.kind is Kind.INCLUSIVE
    return tuple(flow for flow in scope.out_of(node) if flow.id != node.default and (takes_some or flow.conditional))


def _selections(flows: tuple[Flow, ...]) -> list[tuple[Flow, ...]]:
    """Return all subsets except the empty one."""
    return [selection for size in range(1, len(flows) + 1) for selection in combinations(flows, size)]


def _key(holder: Flow | Node | Scope) -> str:
    """Return the key of a place; a scope has the id of its sub-process, so its first place needs a different key."""
    return f"start of {holder.id}" if isinstance(holder, Scope) else holder.id


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


# --- process trees to nets


def weave_net(process: Process) -> Net:
    """Return the net whose complete runs are those of the process."""
    loom = _Loom(tuple(dict.fromkeys(task_names(process))))
    first, last = loom.place(), loom.place()
    loom.weave(process, first, last)
    loom.transitions.append(Transition(last, 0))
    return Net(loom.tasks, tuple(loom.transitions), first)


class _Loom:
    """Creates places and collects transitions."""

    def __init__(self, tasks: tuple[str, ...]) -> None:
        self.tasks = tasks
        self.numbers = {task: number for number, task in enumerate(tasks)}
        self.transitions: list[Transition] = []
        self.places = 0

    def place(self) -> int:
        self.places += 1
        return 1 << (self.places - 1)

    def step(self, needs: int, makes: int) -> None:
        self.transitions.append(Transition(needs, makes))

    def weave(self, process: Process, before: int, after: int) -> None:
        """Move a token from `before` to `after` by running the process.

        Invariant: nothing that is built here leads back to `before` or on from `after`, unless they are one place.
        """
        match process:
            case Task(name):
                self.transitions.append(Transition(before, after, self.numbers[name]))
            case Sequence(items):
                self._sequence(items, before, after)
            case Choice(items):
                for item in items:
                    self.weave(item, before, after)
            case Parallel(items):
                self._parallel(items, before, after)
            case Repeat(item, optional):
                self._repeat(item, optional, before, after)
            case Maybe(item):
                self.weave(item, before, after)
                self.step(before, after)

    def _sequence(self, items: tuple[Process, ...], before: int, after: int) -> None:
        between = [self.place() for _ in items[1:]]
        for item, entry, leave in zip(items, [before, *between], [*between, after], strict=True):
            self.weave(item, entry, leave)

    def _parallel(self, items: tuple[Process, ...], before: int, after: int) -> None:
        branches = [(self.place(), self.place()) for _ in items]
        self.step(before, sum(entry for entry, _ in branches))
        self.step(sum(leave for _, leave in branches), after)
        for item, (entry, leave) in zip(items, branches, strict=True):
            self.weave(item, entry, leave)

    def _repeat(self, item: Process, optional: bool, before: int, after: int) -> None:
        again, done = self.place(), self.place()
        self.step(before, again)
        self.weave(item, again, done)
        self.step(done, again)
        self.step(done, after)
        if optional:
            self.step(before, after)
