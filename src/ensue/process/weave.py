"""Process trees to nets."""

from __future__ import annotations

from ensue.process.tree import Choice, Maybe, Parallel, Process, Repeat, Sequence, Task, task_names
from ensue.process.workflows_net import Net, Transition


def weave_net(process: Process) -> Net:
    """The net whose complete runs are those of the process."""
    loom = _Loom(tuple(dict.fromkeys(task_names(process))))
    first, last = loom.place(), loom.place()
    loom.weave(process, first, last)
    loom.transitions.append(Transition(last, 0))
    return Net(loom.tasks, tuple(loom.transitions), first)


class _Loom:
    """Hands out places and collects transitions."""

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
        """Moves a token from `before` to `after` by running the process.

        Invariant: nothing that is woven here leads back to `before` or on from `after`, unless they are one place.
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
