"""Draws a graph as SVG: events from left to right in time, bounds between them, absences below them.

The SVG contains no fonts, scripts or addresses. Its colours are CSS variables with default values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ensue.graph.bounds import Limit, end_of, position_of, start_of
from ensue.graph.graphs import Collection, Graph, Scope
from ensue.nodes.names import Name, Stream
from ensue.plan.description import Explanation
from ensue.plan.graph_description import GraphWords, OperatorEvents, further_rounds
from ensue.plan.planner import precedence
from ensue.plan.plans import GraphPlan, QueryPlan

LETTER = 7.3
"""The width of a character of the 12 px fixed-width font."""
PADDING, GAP, ROW, MARGIN = 12.0, 44.0, 34.0, 8.0
NODE_HEIGHT, NODE_SPACE, LINE = 46.0, 14.0, 16.0
MOST_LETTERS = 44

INK = "var(--ink, currentColor)"
SOFT = "var(--ink-soft, #64748b)"
ABSENT = "var(--absent, #c2413a)"
LISTED = "var(--listed, #2f7d5b)"
SURFACE = "var(--surface, transparent)"


def drawings(explained: Explanation) -> list[str]:
    """The graphs of a statement, one SVG per branch; branches that only repeat an item more often are left out."""
    return [svg for plan in explained.drawn for svg in _draw_plan(plan, explained.given)]


def as_html(explained: Iterable[Explanation]) -> str:
    """HTML for notebooks: each statement as text, with its graphs below."""
    shown = []
    for entry in explained:
        text = escape("\n".join(entry.sections[0][1]))
        graphs = "".join(f'<div style="overflow-x:auto">{svg}</div>' for svg in drawings(entry))
        shown.append(f"<div><pre>{text}</pre>{graphs}</div>")
    return "".join(shown)


def _draw_plan(plan: QueryPlan, given: Mapping[Stream, OperatorEvents]) -> Iterator[str]:
    words = GraphWords(plan, given)
    same = further_rounds(plan)
    shown = [graph for number, graph in enumerate(plan.graphs, start=1) if number not in same]
    for number, graph_plan in enumerate(shown, start=1):
        title = f"branch {number} of {len(shown)}" if len(shown) > 1 else ""
        yield _Canvas(plan, graph_plan, words, title).svg()


@dataclass(frozen=True, slots=True)
class _Box:
    """An event: its place and its text."""

    name: Name
    stream: str
    lines: tuple[str, ...]
    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def middle(self) -> float:
        return self.top + self.height / 2


@dataclass(frozen=True, slots=True)
class _Bar:
    """An item with a scope below the events: the columns that enclose it; None is an edge."""

    text: str
    colour: str
    after: int | None
    before: int | None

    @property
    def width(self) -> float:
        return _width(self.text) + 2 * PADDING


@dataclass(frozen=True, slots=True)
class _Canvas:
    plan: QueryPlan
    graph_plan: GraphPlan
    words: GraphWords
    title: str

    def svg(self) -> str:
        columns = self._columns()
        bars = [*self._bars(columns)]
        boxes, edges, floor = self._placed(columns, bars)
        rows = [*self._drawn_bars(bars, edges, floor)]
        bottom = floor + ROW * len(bars)
        window = self._window(boxes)
        if window:
            left = edges[0] if any(bar.after is None for bar in bars) else edges[1]
            right = edges[-1] if any(bar.before is None for bar in bars) else edges[-2]
            edges[-1] = max(edges[-1], left + _width(window))
            rows.append(_bracket(left, right, bottom + 12, window))
            bottom += 36
        width, height = edges[-1] + MARGIN, bottom + MARGIN
        parts = [*self._edges(boxes), *map(_drawn_box, boxes), *rows]
        said = escape(", ".join([self.title, *self.words.lines()][-40:]), quote=True)
        heading = _text(MARGIN, 14, self.title, SOFT) if self.title else ""
        return (
            f'<svg class="graph" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
            'style="font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace">'
            f"{heading}{''.join(parts)}</svg>"
        )

    @property
    def _graph(self) -> Graph:
        return self.graph_plan.graph

    # -- places --------------------------------------------------------------------------------------------------------

    def _columns(self) -> list[list[Name]]:
        """The variables in columns, by the number of variables that certainly come before them."""
        names = precedence(self._graph)
        depth: dict[Name, int] = {}
        for name in names:
            depth[name] = max((depth[other] + 1 for other in depth if self._before(other, name)), default=0)
        return [[name for name in names if depth[name] == level] for level in sorted({*depth.values()})]

    def _before(self, x: Name, y: Name) -> bool:
        return self._graph.times.before(end_of(x), start_of(y))

    def _placed(self, columns: list[list[Name]], bars: Sequence[_Bar]) -> tuple[list[_Box], list[float], float]:
        """The boxes, the left and right edge of each column, and the top of the bars."""
        top = MARGIN + (20 if self.title else 0)
        lines = {name: self._lines(name) for column in columns for name in column}
        sizes = {name: (max(84.0, max(map(_width, own)) + 2 * PADDING), _height(own)) for name, own in lines.items()}
        tallest = max(sum(sizes[name][1] + NODE_SPACE for name in column) - NODE_SPACE for column in columns)
        edges, boxes = [MARGIN + self._room(bars, None, 0)], []
        for place, column in enumerate(columns):
            left, width = edges[-1], max(sizes[name][0] for name in column)
            y = top + (tallest - sum(sizes[name][1] + NODE_SPACE for name in column) + NODE_SPACE) / 2
            for name in column:
                stream = str(self._streams[name])
                boxes.append(_Box(name, stream, lines[name], left, y, width, sizes[name][1]))
                y += sizes[name][1] + NODE_SPACE
            edges.append(left + width)
            last = place + 1 == len(columns)
            following = columns[place + 1] if not last else []
            labels = (_width(self._label(x, y)) + 30 for x in column for y in following if self._adjacent(x, y))
            room = self._room(bars, place, None if last else place + 1)
            edges.append(left + width + (room if last else max(GAP, room, *labels, GAP)))
        edges = [MARGIN, *edges]
        open_ended = [_left_of(bar, edges) + bar.width + 24 for bar in bars if bar.before is None]
        edges[-1] = max(edges[-1], *open_ended, 0)
        return boxes, edges, top + tallest + 22

    def _room(self, bars: Sequence[_Bar], after: int | None, before: int | None) -> float:
        """The width needed for the labels between two columns."""
        return max((bar.width + 24 for bar in bars if (bar.after, bar.before) == (after, before)), default=0.0)

    @property
    def _streams(self) -> dict[Name, Stream]:
        return {variable.name: variable.stream for variable in self._graph.variables}

    def _lines(self, name: Name) -> tuple[str, ...]:
        variable = next(found for found in self._graph.variables if found.name == name)
        given = self.words.given.get(variable.stream)
        stream = f"operator {given.operator}" if given is not None else str(variable.stream)
        predicates = " and ".join(map(self.words.expression, variable.predicates))
        return tuple(filter(None, (self.words.word(name), stream, shortened_to(predicates))))

    # -- what is below the events --------------------------------------------------------------------------------------

    def _bars(self, columns: list[list[Name]]) -> Iterator[_Bar]:
        place = {name: number for number, column in enumerate(columns) for name in column}
        for absence in self.graph_plan.absences:
            text = f"no {absence.absence.text}"
            yield _Bar(shortened_to(text), ABSENT, *_between(absence.absence.scope, place, len(columns)))
        for listed in self.graph_plan.collections:
            scope = listed.collection.scopes[0] if listed.collection.scopes else Scope()
            yield _Bar(shortened_to(_listed(listed.collection)), LISTED, *_between(scope, place, len(columns)))

    def _drawn_bars(self, bars: Sequence[_Bar], edges: list[float], floor: float) -> Iterator[str]:
        """The bars; `edges` are the left edge of the picture, then the edges of each column and of the gap after it."""
        for row, bar in enumerate(bars):
            right = edges[-1] if bar.before is None else edges[2 * bar.before + 1]
            yield _bar(bar, _left_of(bar, edges), right, floor + ROW * row + 10, floor)

    def _window(self, boxes: Sequence[_Box]) -> str:
        windows = self.plan.normal_form.windows
        sizes = [self.words.amount(windows.ticks)] if windows.ticks is not None else []
        sizes += [f"{windows.events} events"] if windows.events is not None else []
        alone = len(boxes) == 1 and not self.graph_plan.absences and not self.graph_plan.collections
        return f"within {' or '.join(sizes)}" if sizes and not alone else ""

    # -- edges ---------------------------------------------------------------------------------------------------------

    def _edges(self, boxes: Sequence[_Box]) -> Iterator[str]:
        for x in boxes:
            for y in boxes:
                if self._adjacent(x.name, y.name):
                    yield _arrow(x, y, self._label(x.name, y.name))
        for place, x in enumerate(boxes):
            for y in boxes[place + 1 :]:
                if not self._before(x.name, y.name) and not self._before(y.name, x.name):
                    label = self._loose(x.name, y.name)
                    if label:
                        yield _link(x, y, label)

    def _adjacent(self, x: Name, y: Name) -> bool:
        """Whether `x` comes before `y` and no variable certainly comes between them."""
        names = self._graph.names
        return self._before(x, y) and not any(self._before(x, z) and self._before(z, y) for z in names)

    def _label(self, x: Name, y: Name) -> str:
        """The bounds between two consecutive variables, except those that the window of the whole match implies."""
        times, positions = self._graph.times, self._graph.positions
        most, back = positions.limit(position_of(y), position_of(x)), positions.limit(position_of(x), position_of(y))
        if most is not None and back is not None and most.whole == -back.whole == 1:
            return "the very next"
        least, longest = times.limit(end_of(x), start_of(y)), times.limit(end_of(y), start_of(x))
        words = []
        if least is not None and least.value:
            words.append(f"{'>' if least.strict else '≥'} {self.words.amount(-least.value)}")
        if longest is not None and self._tighter(longest):
            words.append(f"{'<' if longest.strict else '≤'} {self.words.amount(longest.value)}")
        return ", ".join(words)

    def _loose(self, x: Name, y: Name) -> str:
        """The bounds between two variables in either order."""
        times = self._graph.times
        one, other = times.limit(start_of(x), start_of(y)), times.limit(start_of(y), start_of(x))
        if one is not None and other is not None and one.is_zero and other.is_zero:
            return "same time"
        if one is not None and one == other and self._tighter(one):
            return f"≤ {self.words.amount(one.value)} apart"
        return ""

    def _tighter(self, limit: Limit) -> bool:
        window = self.plan.normal_form.windows.ticks
        return window is None or limit.value < window


def _left_of(bar: _Bar, edges: Sequence[float]) -> float:
    return edges[0] if bar.after is None else edges[2 * bar.after + 2]


def _between(scope: Scope, place: Mapping[Name, int], columns: int) -> tuple[int | None, int | None]:
    """The columns that enclose a scope; a scope that an operator states covers all columns."""
    if scope.stated is not None:
        return None, None
    after = max((place[name] for name in scope.after.ends if name in place), default=None) if scope.after else None
    before = min((place[name] for name in scope.before.starts if name in place), default=None) if scope.before else None
    if after is None and before is None and not scope.trailing:
        return None, columns - 1
    return after, before


def _listed(collection: Collection) -> str:
    least, most = collection.least, collection.most
    number = f"{least} or more" if most is None else str(least) if least == most else f"{least} to {most}"
    return f"{collection.name}: every {collection.text}, {number}"


def shortened_to(text: str, most: int = MOST_LETTERS) -> str:
    """The text, shortened with an ellipsis if necessary.

    >>> shortened_to("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


# -- shapes -----------------------------------------------------------------------------------------------------------


def _width(text: str) -> float:
    return len(text) * LETTER


def _height(lines: Sequence[str]) -> float:
    return NODE_HEIGHT + LINE * max(0, len(lines) - 2)


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start", bold: bool = False) -> str:
    weight = "font-weight:600;" if bold else ""
    style = f"{weight}fill:{colour}"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{style}">{escape(text)}</text>'


def _drawn_box(box: _Box) -> str:
    x = box.left + box.width / 2
    top = box.top + 19
    lines = [_text(x, top, box.lines[0], INK, "middle", bold=True)]
    lines += [_text(x, top + LINE * row, text, SOFT, "middle") for row, text in enumerate(box.lines[1:], start=1)]
    return (
        f'<g class="node" data-stream="{escape(box.stream, quote=True)}">'
        f'<rect x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="9" '
        f'style="fill:{SURFACE};stroke:{INK};stroke-width:1.5"/>{"".join(lines)}</g>'
    )


def _arrow(x: _Box, y: _Box, label: str) -> str:
    left, right = x.right + 3, y.left - 3
    bend = (left + right) / 2
    path = (
        f"M{left:.1f} {x.middle:.1f}C{bend:.1f} {x.middle:.1f} {bend:.1f} {y.middle:.1f} {right - 5:.1f} {y.middle:.1f}"
    )
    head = f"M{right - 7:.1f} {y.middle - 4.5:.1f}L{right:.1f} {y.middle:.1f}L{right - 7:.1f} {y.middle + 4.5:.1f}Z"
    words = _text(bend, (x.middle + y.middle) / 2 - 7, label, INK, "middle") if label else ""
    return (
        f'<path d="{path}" style="fill:none;stroke:{SOFT};stroke-width:1.5"/>'
        f'<path d="{head}" style="fill:{SOFT}"/>{words}'
    )


def _link(x: _Box, y: _Box, label: str) -> str:
    x1, x2 = x.left + x.width / 2, y.left + y.width / 2
    y1, y2 = (x.top + x.height, y.top) if x.top < y.top else (x.top, y.top + y.height)
    if abs(x.middle - y.middle) < 1:
        x1, x2, y1, y2 = x.right, y.left, x.middle, y.middle
    return (
        f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" style="stroke:{SOFT};stroke-dasharray:2 3"/>'
        f"{_text((x1 + x2) / 2 + 6, (y1 + y2) / 2 + 4, label, INK)}"
    )


def _bar(bar: _Bar, left: float, right: float, y: float, floor: float) -> str:
    """A dashed line over the scope with its text in the middle, and thin lines up to the events at its ends."""
    left, right = left + 2, max(right - 2, left + bar.width + 2)
    middle, width = (left + right) / 2, bar.width
    line = f"M{left:.1f} {y:.1f}H{right:.1f}M{left:.1f} {y - 5:.1f}V{y + 5:.1f}M{right:.1f} {y - 5:.1f}V{y + 5:.1f}"
    guides = f"M{left:.1f} {floor - 20:.1f}V{y:.1f}M{right:.1f} {floor - 20:.1f}V{y:.1f}"
    return (
        f'<path d="{guides}" style="stroke:{bar.colour};stroke-dasharray:1 4;opacity:.7"/>'
        f'<path d="{line}" style="fill:none;stroke:{bar.colour};stroke-width:1.5;stroke-dasharray:5 3"/>'
        f'<rect x="{middle - width / 2:.1f}" y="{y - 11:.1f}" width="{width:.1f}" height="22" rx="11" '
        f'style="fill:var(--surface, Canvas);stroke:{bar.colour};stroke-width:1.2"/>'
        f"{_text(middle, y + 4, bar.text, bar.colour, 'middle')}"
    )


def _bracket(left: float, right: float, y: float, label: str) -> str:
    """A bracket over the whole match."""
    right = max(right, left + _width(label) + 4)
    path = f"M{left:.1f} {y - 5:.1f}V{y:.1f}H{right:.1f}V{y - 5:.1f}"
    return (
        f'<path d="{path}" style="fill:none;stroke:{SOFT};stroke-width:1.2"/>'
        f"{_text((left + right) / 2, y + 16, label, SOFT, 'middle')}"
    )
