"""Process trees as BPMN: to see that a drawing means what the tree means. Chance picks among equivalent drawings."""

from __future__ import annotations

from random import Random
from xml.sax.saxutils import quoteattr

from inside import MODEL, Choice, Maybe, Parallel, Process, Sequence, Task, choice, parallel
from inside import RepeatedTask as Repeat

TASKS = ("task", "userTask", "serviceTask", "scriptTask", "callActivity")


class Pen:
    """Collects elements. A fragment is drawn from one node (its id) and answers with the node it ends in."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.count = 0
        self.lines: list[str] = []

    def element(self, kind: str, attributes: str = "", content: str = "") -> str:
        self.count += 1
        self.lines.append(f'<{kind} id="n{self.count}" {attributes}>{content}</{kind}>')
        return f"n{self.count}"

    def flow(self, source: str, target: str) -> None:
        self.count += 1
        self.lines.append(f'<sequenceFlow id="n{self.count}" sourceRef="{source}" targetRef="{target}"/>')

    def after(self, source: str, kind: str, attributes: str = "", content: str = "") -> str:
        node = self.element(kind, attributes, content)
        self.flow(source, node)
        return node

    def draw(self, process: Process, source: str) -> str:
        if self.chance.random() < 0.1:
            return self.subprocess(process, source)
        match process:
            case Task(name):
                return self.after(source, self.chance.choice(TASKS), f"name={quoteattr(name)}")
            case Sequence(items):
                for item in items:
                    source = self.draw(item, source)
                return source
            case Choice(items):
                return self.branches(items, source, "exclusiveGateway")
            case Parallel(items):
                return self.branches(items, source, "parallelGateway")
            case Maybe(item):
                split, join = self.after(source, "exclusiveGateway"), self.element("exclusiveGateway")
                self.flow(split, join)
                self.flow(self.draw(item, split), join)
                return join
            case Repeat(Task(name), False) if self.chance.random() < 0.5:
                loop = self.chance.choice(("standardLoopCharacteristics", "multiInstanceLoopCharacteristics"))
                return self.after(source, "userTask", f"name={quoteattr(name)}", f"<{loop}/>")
            case Repeat(item, optional):
                return self.loop(item, optional, source)

    def branches(self, items: tuple[Process, ...], source: str, gateway: str) -> str:
        split, join = self.after(source, gateway), self.element(gateway)
        for item in items:
            self.flow(self.draw(item, split), join)
        return join

    def loop(self, item: Process, optional: bool, source: str) -> str:
        before = self.after(source, "exclusiveGateway") if optional else source
        entry = self.after(before, "exclusiveGateway")
        leave, end = self.element("exclusiveGateway"), self.element("exclusiveGateway")
        self.flow(self.draw(item, entry), leave)
        self.flow(leave, entry)
        self.flow(leave, end)
        if optional:
            self.flow(before, end)
        return end

    def subprocess(self, process: Process, source: str) -> str:
        inside = Pen(self.chance)
        inside.count = self.count
        inside.whole(process)
        self.count = inside.count
        return self.after(source, "subProcess", content="".join(inside.lines))

    def whole(self, process: Process) -> None:
        end = self.draw(process, self.element("startEvent"))
        self.after(end, "endEvent")


def draw_bpmn(process: Process, chance: Random) -> str:
    """A BPMN text of one process."""
    pen = Pen(chance)
    pen.whole(process)
    return wrap(pen.lines)


def draw_inclusive(items: tuple[Process, ...], chance: Random) -> str:
    """A BPMN text of some, at least one, of the items in parallel: between inclusive gateways."""
    pen = Pen(chance)
    pen.after(pen.branches(items, pen.element("startEvent"), "inclusiveGateway"), "endEvent")
    return wrap(pen.lines)


def some_of(items: tuple[Process, ...]) -> Process:
    """The tree of what `draw_inclusive` draws."""
    selections = [
        [item for number, item in enumerate(items) if chosen >> number & 1] for chosen in range(1, 1 << len(items))
    ]
    return choice(*(parallel(*selection) for selection in selections))


def wrap(lines: list[str]) -> str:
    body = "\n".join(lines)
    return f'<definitions xmlns="{MODEL}"><process id="p">\n{body}\n</process></definitions>'
