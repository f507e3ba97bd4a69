"""Read BPMN 2.0 XML as a diagram.

| element | meaning |
| --- | --- |
| `task` and its kinds, `callActivity` | a task with its `name`, or its `id` if it has none; equal names are one task |
| loop or multi-instance marker | the task one or more times; zero or more with `testBefore` |
| `subProcess` | its contents; its name is not a task; a loop or sequential multi-instance marker repeats its contents |
| start events | the process starts with any one of them |
| end events | a token ends; the process is complete when none is left; a terminate event removes all of its scope |
| intermediate events | ignored; a task if the argument `names` contains them, as for start and end events |
| exclusive and event-based gateway | one of the outgoing flows, whatever incoming flow was taken |
| parallel gateway | waits for all incoming flows, takes all outgoing ones |
| inclusive gateway | takes some of its outgoing flows, its `default` only alone; waits as in BPMN 2.0.2, table 13.3 |
| several flows out of a task | all of them; some of those with a condition; its `default` if none of these |
| several flows into a task | it runs for each token |
| lanes, data, texts, pools, message flows, diagrams, extensions | ignored: they do not order the tasks of a process |

Any other element with an incoming flow is reported. `ensue.process.soundness` checks the behaviour.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from xml.parsers import expat

from ensue.errors import Problem, QueryError, Source, Span, did_you_mean
from ensue.process.diagram import Flow, Kind, Node, Rounds, Scope

# --- XML text to elements with positions; a DOCTYPE is rejected before its declarations are read

MAXIMAL_DEPTH = 100
"""The maximum nesting depth of elements in a file."""

_SHOWN_LINE = 200
"""Longer lines are not shown below a message: some tools write a whole diagram on one line."""

_ENCODING = re.compile(rb"""<\?xml[^>]*\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_TAG = re.compile(r"<[^\s/>]*")


@dataclass(frozen=True, slots=True)
class Element:
    """An element: its namespace and name, its attributes without prefix, and the byte offset at which it starts."""

    namespace: str
    name: str
    attributes: dict[str, str]
    start: int
    children: list[Element] = field(default_factory=list)

    def descendants(self) -> Iterator[Element]:
        for child in self.children:
            yield child
            yield from child.descendants()


@dataclass(frozen=True, slots=True)
class Markup:
    """A parsed XML text."""

    root: Element
    source: Source

    def span(self, element: Element) -> Span | None:
        """Return the position of an element's tag, or None if its line is too long to show."""
        return _place(self.source, element.start)


def decode_markup(content: bytes, name: str) -> str:
    """Decode the contents of a file in its declared encoding."""
    declared = _ENCODING.match(content)
    marked = next((encoding for mark, encoding in _MARKS if content.startswith(mark)), None)
    encoding = marked or (declared[1].decode() if declared else "utf-8")
    try:
        return content.decode(encoding)
    except (LookupError, UnicodeDecodeError):
        problem = Problem("not-xml", f"`{name}` is not text in its encoding, {encoding}", hint="pass a .bpmn file")
        raise QueryError([problem]) from None


def parse_markup(text: str, name: str) -> Markup:
    """Parse XML. Messages cite the text as `name`."""
    source = Source(text, name)
    reader = _MarkupReader(source)
    try:
        reader.parser.Parse(text, True)
    except expat.ExpatError as error:
        place = _place(source, reader.parser.ErrorByteIndex)
        words = expat.errors.messages[error.code]
        problem = Problem(
            "not-xml", f"the text is not well-formed XML: {words}", place, hint="check that every tag is closed"
        )
        raise QueryError([problem], source) from None
    return Markup(reader.root.children[0], source)


class _MarkupReader:
    """Builds elements while the parser reads, with its own stack."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.root = Element("", "", {}, 0)
        self.open = [self.root]
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.doctype

    def start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(" ")
        plain = {key: value for key, value in attributes.items() if " " not in key}
        element = Element(namespace, local, plain, self.parser.CurrentByteIndex)
        self.open[-1].children.append(element)
        self.open.append(element)
        if len(self.open) > MAXIMAL_DEPTH + 1:
            self.refuse(Problem("too-deep", f"XML elements are nested more than {MAXIMAL_DEPTH} levels deep"))

    def end(self, name: str) -> None:
        self.open.pop()

    def doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        hint = "remove the DOCTYPE; BPMN does not need one"
        self.refuse(Problem("xml-doctype", "a DOCTYPE is not supported", hint=hint))

    def refuse(self, problem: Problem) -> None:
        place = _place(self.source, self.parser.CurrentByteIndex)
        raise QueryError([replace(problem, span=place)], self.source)


def _place(source: Source, byte: int) -> Span | None:
    """Return the span of the tag that starts at a byte of the text in UTF-8."""
    offset = len(source.text.encode()[:byte].decode(errors="ignore"))
    start = source.text.rfind("\n", 0, offset) + 1
    end = source.text.find("\n", offset)
    if (end if end >= 0 else len(source.text)) - start > _SHOWN_LINE:
        return None
    tag = _TAG.match(source.text, offset)
    return Span(offset, tag.end() if tag else offset + 1)


# --- elements to a diagram

MODEL = "http://www.omg.org/spec/BPMN/20100524/MODEL"

_TASKS = frozenset(
    ("task", "userTask", "serviceTask", "sendTask", "scriptTask", "manualTask", "receiveTask", "businessRuleTask",
     "callActivity")
)  # fmt: skip
_EVENTS = frozenset(("startEvent", "endEvent", "intermediateCatchEvent", "intermediateThrowEvent"))
_KINDS = {
    **dict.fromkeys((*_TASKS, *_EVENTS), Kind.STEP),
    "startEvent": Kind.START, "endEvent": Kind.END, "exclusiveGateway": Kind.EXCLUSIVE,
    "eventBasedGateway": Kind.EXCLUSIVE, "parallelGateway": Kind.PARALLEL, "inclusiveGateway": Kind.INCLUSIVE,
    "subProcess": Kind.SUBPROCESS,
}  # fmt: skip
_LEFT_OUT = frozenset(
    ("documentation", "extensionElements", "auditing", "monitoring", "property", "laneSet", "dataObject",
     "dataObjectReference", "dataStoreReference", "association", "dataInputAssociation", "dataOutputAssociation",
     "group", "textAnnotation", "ioSpecification", "ioBinding", "resourceRole", "performer", "humanPerformer",
     "potentialOwner", "correlationSubscription", "supports", "supportedInterfaceRef", "incoming", "outgoing",
     "sequenceFlow", "standardLoopCharacteristics", "multiInstanceLoopCharacteristics")
)  # fmt: skip
_WAYS_OUT = {
    "boundaryEvent": "use an exclusive gateway after the task, with a flow for the event",
    "complexGateway": "use exclusive, parallel or inclusive gateways instead",
    "transaction": "use a sub-process, and an exclusive gateway for its cancellation",
    "adHocSubProcess": "put its tasks between inclusive gateways, or remove them",
    "compensateEventDefinition": "put the compensating tasks after an exclusive gateway",
    "cancelEventDefinition": "use an exclusive gateway for the cancellation",
    "errorEventDefinition": "use an exclusive gateway for the error, or a terminate end event",
    "linkEventDefinition": "draw the flow that the link replaces",
}


def read_diagram(markup: Markup, process: str | None, names: Mapping[str, str | None]) -> Scope:
    """Read the process with that name or id, or the only one. Reports all unsupported elements together."""
    element = _chosen_process(markup, process)
    reader = _Reader(markup, names)
    scope = reader.scope(element)
    problems = [*reader.problems, *reader.unused_names()]
    if problems:
        raise QueryError(problems, markup.source)
    return scope


def _chosen_process(markup: Markup, wanted: str | None) -> Element:
    root = markup.root
    if (root.namespace, root.name) != (MODEL, "definitions"):
        message = f"the root element `{root.name}` is not a BPMN 2.0 `definitions` element"
        raise _error(markup, Problem("not-bpmn", message, markup.span(root), hint="export the diagram as BPMN 2.0 XML"))
    found = [child for child in root.children if _is_model(child, "process")]
    if wanted is not None:
        return _named_process(markup, found, wanted)
    drawn = [process for process in found if any(child.name in _KINDS for child in process.children)]
    if not drawn:
        hint = "add a process with tasks, events and gateways; choreographies and conversations are not supported"
        raise _error(markup, Problem("no-process", "the file has no process", markup.span(root), hint=hint))
    if len(drawn) > 1:
        candidates = ", ".join(f"`{_name_of_process(root, process)}`" for process in drawn)
        message = f"the file has {len(drawn)} processes: {candidates}"
        hint = f'select one: process="{_name_of_process(root, drawn[0])}"'
        raise _error(markup, Problem("several-processes", message, markup.span(drawn[1]), hint=hint))
    return drawn[0]


def _named_process(markup: Markup, processes: list[Element], wanted: str) -> Element:
    names = {name: process for process in processes for name in _names_of_process(markup.root, process)}
    if wanted in names:
        return names[wanted]
    message = f"the file has no process `{wanted}`"
    label = "processes: " + (", ".join(_name_of_process(markup.root, process) for process in processes) or "none")
    hint = did_you_mean(wanted, reversed(names))
    raise _error(markup, Problem("no-such-process", message, markup.span(markup.root), label, hint))


def _names_of_process(root: Element, process: Element) -> list[str]:
    """Return the names that select a process, the most readable first: its own, its pool's, its id."""
    pools = (child for child in root.descendants() if _is_model(child, "participant"))
    own = [pool for pool in pools if _local(pool.attributes.get("processRef", "")) == process.attributes.get("id")]
    found = [_plain_name(process), *map(_plain_name, own), process.attributes.get("id", "")]
    return [name for name in found if name]


def _name_of_process(root: Element, process: Element) -> str:
    return (_names_of_process(root, process) or ["without a name"])[0]


class _Reader:
    """Reads scopes and collects the problems."""

    def __init__(self, markup: Markup, names: Mapping[str, str | None]) -> None:
        self.markup = markup
        self.names = names
        self.problems: list[Problem] = []
        self.ids: set[str] = set()
        self.unread: set[str] = set()
        self.known: list[str] = []

    def scope(self, element: Element) -> Scope:
        children = [child for child in element.children if child.namespace == MODEL]
        nodes = [node for child in children if (node := self.node(child)) is not None]
        by_id = {node.id: node for node in nodes}
        flows = [flow for child in children if child.name == "sequenceFlow" if (flow := self.flow(child, by_id))]
        scope = Scope(element.attributes.get("id", ""), _title(element), self.markup.span(element), by_id, tuple(flows))
        if not scope.starts():
            hint = "add a start event, and a flow from it to the first task"
            self.problems.append(Problem("no-start", f"{scope.title} has no start event", scope.span, hint=hint))
        return scope

    def node(self, element: Element) -> Node | None:
        if element.name in _LEFT_OUT:
            return None
        identity = element.attributes.get("id", "")
        self.claim(identity, element)
        if (reason := _unreadable(element)) is not None:
            self.unread.add(identity)
            message = f"{_title(element)} is not supported"
            self.problems.append(
                Problem("unsupported-element", message, self.markup.span(element), hint=_WAYS_OUT.get(reason, reason))
            )
            return None
        return Node(
            identity,
            Kind.TERMINATE if _has_definition(element, "terminateEventDefinition") else _KINDS[element.name],
            _title(element),
            self.markup.span(element),
            self.task(element, identity),
            _rounds(element),
            element.attributes.get("default"),
            self.scope(element) if element.name == "subProcess" else None,
        )

    def claim(self, identity: str, element: Element) -> None:
        if identity in self.ids or not identity:
            message = f"two elements have the id `{identity}`" if identity else f"{_title(element)} has no id"
            hint = "give each element a unique id; flows refer to it"
            self.problems.append(Problem("element-id", message, self.markup.span(element), hint=hint))
        self.ids.add(identity)

    def task(self, element: Element, identity: str) -> str | None:
        """Return the name of the event that an element produces."""
        if element.name not in _TASKS and element.name not in _EVENTS:
            return None
        name = _plain_name(element)
        self.known += [identity, name] if name else [identity]
        for key in (identity, name):
            if key in self.names:
                return self.names[key] or None
        return (name or identity) if element.name in _TASKS else None

    def flow(self, element: Element, nodes: dict[str, Node]) -> Flow | None:
        identity = element.attributes.get("id", "")
        source, target = element.attributes.get("sourceRef", ""), element.attributes.get("targetRef", "")
        self.claim(identity, element)
        loose = [end for end in (source, target) if end not in nodes]
        lost = [end for end in loose if end not in self.unread]
        if lost:
            message = f"the flow `{identity}` from `{source}` to `{target}` has unknown element `{lost[0]}`"
            hint = "connect two elements of the same process or sub-process"
            self.problems.append(Problem("loose-flow", message, self.markup.span(element), hint=hint))
        if loose:
            return None
        conditional = any(_is_model(child, "conditionExpression") for child in element.children)
        return Flow(identity, source, target, self.markup.span(element), conditional)

    def unused_names(self) -> Iterator[Problem]:
        """Report names in `names` that the process does not have."""
        for name in self.names:
            if name not in self.known:
                hint = did_you_mean(name, self.known)
                yield Problem("no-such-task", f"`names` has unknown task or event `{name}`", hint=hint)


def _unreadable(element: Element) -> str | None:
    """Return why an element is not supported: a key of the hints or a hint itself; None if it is supported."""
    if element.name not in _KINDS:
        return element.name if element.name in _WAYS_OUT else "remove it, or use tasks and gateways instead"
    if element.name == "subProcess" and _is_set(element, "triggeredByEvent"):
        return "an event sub-process can start at any time; put its tasks in the process, after an exclusive gateway"
    if _is_set(element, "isForCompensation"):
        return "compensateEventDefinition"
    if element.name == "subProcess" and _runs_in_parallel(element):
        return "mark it as sequential; the constraints are the same"
    return next((child.name for child in element.children if child.name in _WAYS_OUT), None)


def _runs_in_parallel(element: Element) -> bool:
    return any(
        _is_model(child, "multiInstanceLoopCharacteristics") and not _is_set(child, "isSequential")
        for child in element.children
    )


def _rounds(element: Element) -> Rounds:
    for child in element.children:
        if _is_model(child, "standardLoopCharacteristics"):
            return Rounds.ANY if _is_set(child, "testBefore") else Rounds.SOME
        if _is_model(child, "multiInstanceLoopCharacteristics"):
            return Rounds.SOME
    return Rounds.ONE


def _has_definition(element: Element, name: str) -> bool:
    return element.name == "endEvent" and any(_is_model(child, name) for child in element.children)


def _is_set(element: Element, attribute: str) -> bool:
    return element.attributes.get(attribute) in ("true", "1")


def _is_model(element: Element, name: str) -> bool:
    return (element.namespace, element.name) == (MODEL, name)


def _plain_name(element: Element) -> str:
    """Return the name on one line, because tools break names at the edge of the shape."""
    return " ".join(element.attributes.get("name", "").split())


def _title(element: Element) -> str:
    """Return how messages refer to the element, with its name and id."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", element.name).lower()
    words = words.replace("sub process", "sub-process")
    name, identity = _plain_name(element), element.attributes.get("id", "")
    if not identity:
        article = "an" if words[0] in "aeiou" else "a"
        return f"{article} {words} `{name}`" if name else f"{article} {words}"
    return f"the {words} `{name}` (id `{identity}`)" if name else f"the {words} with id `{identity}`"


def _local(reference: str) -> str:
    """Return a reference without its namespace prefix."""
    return reference.rpartition(":")[2]


def _error(markup: Markup, problem: Problem) -> QueryError:
    return QueryError([problem], markup.source)
