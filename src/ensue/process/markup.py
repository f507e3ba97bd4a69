"""XML text to elements that know their place. A DOCTYPE is refused before any of its declarations.

Entities can only be declared in a DOCTYPE. So no entity is ever expanded and nothing outside of the text is ever read:
neither external entities nor a billion laughs have a place to stand.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from xml.parsers import expat

from ensue.errors import Problem, QueryError, Source, Span

MAXIMAL_DEPTH = 100
"""Levels of elements that a file may have."""

_SHOWN_LINE = 200
"""Longer lines are not shown below a message: some tools write a whole diagram on one line."""

_ENCODING = re.compile(rb"""<\?xml[^>]*\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_TAG = re.compile(r"<[^\s/>]*")


@dataclass(frozen=True, slots=True)
class Element:
    """An element: its namespace and name, its attributes without a prefix, and the byte at which it starts."""

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
    """An XML text, read."""

    root: Element
    source: Source

    def span(self, element: Element) -> Span | None:
        """Where the tag of an element stands, or None on a line too long to show."""
        return _place(self.source, element.start)


def decode_markup(content: bytes, name: str) -> str:
    """The text of a file, in the encoding that it says it has."""
    declared = _ENCODING.match(content)
    marked = next((encoding for mark, encoding in _MARKS if content.startswith(mark)), None)
    encoding = marked or (declared[1].decode() if declared else "utf-8")
    try:
        return content.decode(encoding)
    except (LookupError, UnicodeDecodeError):
        problem = Problem("not-xml", f"`{name}` is not text in the encoding {encoding}", hint="is it a .bpmn file?")
        raise QueryError([problem]) from None


def parse_markup(text: str, name: str) -> Markup:
    """Parse XML. Messages cite the text under `name`."""
    source = Source(text, name)
    reader = _Reader(source)
    try:
        reader.parser.Parse(text, True)
    except expat.ExpatError as error:
        place = _place(source, reader.parser.ErrorByteIndex)
        words = expat.errors.messages[error.code]
        problem = Problem(
            "not-xml", f"the text is not XML: {words}", place, hint="BPMN files are XML with tags in pairs"
        )
        raise QueryError([problem], source) from None
    return Markup(reader.root.children[0], source)


class _Reader:
    """Builds elements while the parser reads, with a stack of its own."""

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
            self.refuse(Problem("too-deep", f"elements nest more than {MAXIMAL_DEPTH} levels deep"))

    def end(self, name: str) -> None:
        self.open.pop()

    def doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        hint = "remove the DOCTYPE: BPMN needs none, and entities are never expanded"
        self.refuse(Problem("xml-doctype", "the file has a DOCTYPE", hint=hint))

    def refuse(self, problem: Problem) -> None:
        place = _place(self.source, self.parser.CurrentByteIndex)
        raise QueryError([replace(problem, span=place)], self.source)


def _place(source: Source, byte: int) -> Span | None:
    """The tag that starts at a byte of the text in UTF-8."""
    offset = len(source.text.encode()[:byte].decode(errors="ignore"))
    start = source.text.rfind("\n", 0, offset) + 1
    end = source.text.find("\n", offset)
    if (end if end >= 0 else len(source.text)) - start > _SHOWN_LINE:
        return None
    tag = _TAG.match(source.text, offset)
    return Span(offset, tag.end() if tag else offset + 1)
