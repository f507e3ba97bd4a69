"""Measures the savings of constraints; see `python benchmarks/constraints.py --help`.

The experiment of Ding, Chen, Rundensteiner, Tatemura, Hsiung, Candan: Runtime Semantic Query Optimization for Event
Stream Processing, ICDE 2008, on the process of `order_fulfilment.py`. Each part runs one pattern on traces, with and
without the constraints of the process. A growing share of the traces fails in one place. The variant without
constraints only knows when a trace ends, because otherwise it would keep all traces forever. `--window` adds a third
variant with a window instead, as long as the longest trace.

All variants process the same micro-batches in turn, so that other load on the machine affects all of them. The time of
a step is the best of several runs. Probes are tests of an event against the pattern: all events of its streams, except
those that are skipped because their trace has failed. The milliseconds of a step are the median of the steps after the
first tenth of a run in which no trace fails.

Memory has the savings of the paper as targets. Time has none: the paper saves the work on partial matches, and Ensue
has no partial matches. It is measured where most traces fail, also with more open traces (`--open`): the average of
steps from the middle of a run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from figures import Figure, give
from order_fulfilment import ENDS, PROCESS, Shares, make_events
from rich.console import Console
from rich.table import Table

import ensue
from ensue.process import workflow

Q1 = """
PATTERN SEQ(CheckInventory c, UseRemoteStock r, GenerateInvoice i [price > 200])
PARTITION BY order_id{window}
RETURN c.order_id AS order_id, i.t AS at, i.price AS price
"""
Q2 = """
PATTERN SEQ(
  AND(SEQ(OrderFromSupplier o, GenerateQuote q [price > 200]), SEQ(UseRemoteStock r, GenerateInvoice i)),
  FinishOrder f
)
PARTITION BY order_id{window}
RETURN f.order_id AS order_id, f.t AS at, q.price AS quoted, i.price AS price
"""
WITH, WITHOUT, WINDOW = "with", "without", "window"
MOST_FAILING = 0.9
STEPS = 40
"""The number of steps that are measured with many open traces."""
EXCLUSIVES = 400
COMPILED_IN = 0.3


@dataclass(frozen=True, slots=True)
class Part:
    """A pattern, the share of `Shares` that is varied, and the memory that the paper saves where MOST_FAILING fail."""

    title: str
    query: str
    streams: tuple[str, ...]
    share: str
    memory: float


Q1_STREAMS = ("CheckInventory", "UseRemoteStock", "GenerateInvoice")
Q2_STREAMS = ("OrderFromSupplier", "GenerateQuote", "UseRemoteStock", "GenerateInvoice", "FinishOrder")
PARTS = {
    "q1-early": Part("Q1 failing early (local stock)", Q1, Q1_STREAMS, "local", 60),
    "q1-late": Part("Q1 failing late (price of invoices)", Q1, Q1_STREAMS, "low_invoices", 54),
    "q2-stock": Part("Q2 failing in its second branch (local stock)", Q2, Q2_STREAMS, "local", 72),
    "q2-quotes": Part("Q2 failing in its first branch (price of quotes)", Q2, Q2_STREAMS, "low_quotes", 72),
}

STEP_PARTS = {"q1-early": "Q1", "q2-stock": "Q2"}
"""The parts by which the time of a step is told: where no trace fails, parts of one pattern differ only by chance."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: traces, those open at a time, events of a micro-batch, and runs of each measurement."""

    traces: int
    concurrent: int
    batch: int
    runs: int


@dataclass(frozen=True, slots=True)
class Run:
    """What one variant took: seconds, also of a step, events held at most and on average after it, and what was tested.

    A trace that has ended counts as `failed` too: it can hold no further match.
    """

    seconds: float
    step: float
    peak: int
    mean: float
    probes: int
    failed: int
    skipped: int
    matches: pa.Table


# -- measuring ---------------------------------------------------------------------------------------------------------


class Variant:
    """A detector of one variant, with what is measured of it at each step."""

    def __init__(self, query: str, constraints: object) -> None:
        self.detector = ensue.Detector(query, time="t", type="type", constraints=constraints)
        self.seconds: list[float] = []
        self.held: list[int] = []
        self.matches: list[pa.Table] = []

    def advance(self, batch: pa.Table, until: int) -> None:
        began = time.perf_counter()
        step = self.detector.advance(batch, watermark=until)
        self.seconds.append(time.perf_counter() - began)
        self.held.append(self.detector.kept_rows)
        self.matches.append(step.matches)


def make_variant(name: str, part: Part, longest: int) -> Variant:
    known = {WITH: workflow(PROCESS), WITHOUT: ensue.constraints.ends(*ENDS), WINDOW: None}[name]
    return Variant(part.query.format(window=f" WITHIN {longest}" if name == WINDOW else ""), known)


def run_once(part: Part, events: pa.Table, batch: int, names: Sequence[str], longest: int) -> dict[str, Variant]:
    """Processes all events with each variant, in an order that changes from step to step."""
    variants = {name: make_variant(name, part, longest) for name in names}
    for variant in variants.values():
        variant.detector.advance(events.slice(0, 0), watermark=-1)
    for number, start in enumerate(range(0, events.num_rows, batch)):
        rows = events.slice(start, batch)
        until = start + rows.num_rows - 1
        for turn in range(len(names)):
            variants[names[(number + turn) % len(names)]].advance(rows, until)
    return variants


def measure(part: Part, share: float, size: Size, names: Sequence[str]) -> dict[str, Run]:
    """Returns the runs of each variant for this share of failing traces. All variants must find the same matches."""
    events = make_events(size.traces, size.concurrent, replace(Shares(), **{part.share: share}))
    longest = longest_trace(events)
    named = int(pc.sum(pc.is_in(events["type"], pa.array(part.streams))).as_py())
    runs = [run_once(part, events, size.batch, names, longest) for _ in range(size.runs)]
    found = {name: summary([run[name] for run in runs], named) for name in names}
    for name in names:
        assert found[name].matches.equals(found[names[0]].matches), f"{part.title}: {name} finds different matches"
    return found


def summary(variants: Sequence[Variant], named: int) -> Run:
    """Runs of one variant as one; `named` events are of the streams of the pattern."""
    last = variants[-1]
    times = np.min([variant.seconds for variant in variants], axis=0)
    report = last.detector.report
    matches = pa.concat_tables(last.matches)
    return Run(
        float(times.sum()),
        float(np.median(times[len(times) // 10 : max(1, len(times) - 1)])),
        max(last.held),
        float(np.mean(last.held)),
        named - report.events_skipped,
        report.traces_failed,
        report.events_skipped,
        matches.sort_by([(name, "ascending") for name in matches.column_names]),
    )


def longest_trace(events: pa.Table) -> int:
    """The most ticks from the first to the last event of a trace."""
    spans = events.group_by("order_id").aggregate([("t", "min"), ("t", "max")])
    return int(pc.max(pc.subtract(spans["t_max"], spans["t_min"])).as_py())


# -- results -----------------------------------------------------------------------------------------------------------

Points = Mapping[float, Mapping[str, Run]]
"""What was measured, by the share of traces that fail."""


def saved(point: Mapping[str, Run], quantity: str) -> float:
    """By how many percent a quantity is less with constraints than without."""
    return 100 * (1 - getattr(point[WITH], quantity) / getattr(point[WITHOUT], quantity))


def figures_of(part: Part, points: Points) -> Iterator[Figure]:
    """The savings where most traces fail and the overhead where none does, against the paper."""
    name = part.title
    most, none = points[MOST_FAILING], points[0.0]
    label = f"{name}, {100 * MOST_FAILING:.0f} %"
    note = f"{most[WITH].peak:,} events against {most[WITHOUT].peak:,}"
    yield Figure(f"{label}: events held", saved(most, "peak"), "% saved", part.memory, at_most=False, note=note)
    note = f"{most[WITH].seconds:.3f} s against {most[WITHOUT].seconds:.3f} s"
    yield Figure(f"{label}: time", saved(most, "seconds"), "% saved", None, at_most=False, note=note)
    note = f"{none[WITH].seconds:.3f} s against {none[WITHOUT].seconds:.3f} s"
    yield Figure(f"{name}, 0 %: time", -saved(none, "seconds"), "% more", 3.0, note=note)


def step_figures(query: str, points: Points, size: Size) -> Iterator[Figure]:
    """The time of a step where no trace fails, with constraints and without."""
    for variant, run in points[0.0].items():
        name = f"{query}, a step of {size.batch:,} events, {size.concurrent:,} traces open, {LABELS[variant]}"
        yield Figure(name, 1000 * run.step, "ms", None, note=f"{run.mean:,.0f} events held")


def open_figures(part: Part, traces: int, size: Size) -> Iterator[Figure]:
    """The time of a step with so many open traces, most of which fail, against the time without constraints."""
    shares = replace(Shares(), **{part.share: MOST_FAILING})
    events = make_events(2 * traces + STEPS * size.batch // 10, traces, shares)
    first = max(0, (events.num_rows - STEPS * size.batch) // 2)
    runs: dict[str, list[Variant]] = {WITH: [], WITHOUT: []}
    for _ in range(size.runs):
        for name, own in runs.items():
            own.append(make_variant(name, part, 0))
            own[-1].advance(events.slice(0, first), first - 1)
        for number in range(STEPS):
            rows = events.slice(first + number * size.batch, size.batch)
            for name in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
                runs[name][-1].advance(rows, first + number * size.batch + rows.num_rows - 1)
    steps = {
        name: 1000 * float(np.mean(np.min([run.seconds[1:] for run in own], axis=0))) for name, own in runs.items()
    }
    held = {name: float(np.mean(own[-1].held[1:])) for name, own in runs.items()}
    note = f"{steps[WITH]:.1f} ms against {steps[WITHOUT]:.1f} ms, "
    note += f"{held[WITH]:,.0f} events held against {held[WITHOUT]:,.0f}"
    name = f"{part.title}, {100 * MOST_FAILING:.0f} %, {traces:,} traces open: time"
    yield Figure(name, 100 * (1 - steps[WITH] / steps[WITHOUT]), "% saved", None, at_most=False, note=note)


def compile_figures(runs: int) -> Iterator[Figure]:
    """The time until a detector with many constraints has seen its first, empty batch."""
    pattern = "PATTERN SEQ(A a, B b, C c) PARTITION BY k"
    nothing = pa.table(
        {"t": pa.array([], pa.int64()), "type": pa.array([], pa.string()), "k": pa.array([], pa.int64())}
    )
    for name, streams in (("of the pattern", "ABC"), ("besides the pattern", [f"X{n}" for n in range(EXCLUSIVES)])):
        pairs = ((streams[number % len(streams)], f"Y{number}") for number in range(EXCLUSIVES))
        text = "".join(f"CONSTRAINT EXCLUSIVE({one}, {other});\n" for one, other in pairs) + pattern
        seconds = []
        for _ in range(runs):
            began = time.perf_counter()
            ensue.Detector(text, time="t", type="type").advance(nothing, watermark=0)
            seconds.append(time.perf_counter() - began)
        yield Figure(f"{EXCLUSIVES} EXCLUSIVEs on streams {name}: compiled", min(seconds), "s", COMPILED_IN)


def show_points(part: Part, points: Points) -> None:
    columns = (
        "failing",
        "constraints",
        "seconds",
        "peak",
        "mean held",
        "probes",
        "traces failed",
        "skipped",
        "matches",
    )
    table = Table(*columns, title=part.title)
    for share, point in points.items():
        for name, run in point.items():
            numbers = (run.peak, round(run.mean), run.probes, run.failed, run.skipped, run.matches.num_rows)
            table.add_row(f"{100 * share:.0f} %", name, f"{run.seconds:.3f}", *(f"{number:,}" for number in numbers))
    Console().print(table)


def plot_points(name: str, part: Part, points: Points, folder: Path) -> None:
    """Time, events held and probes against the share of traces that fail, as one drawing."""
    from matplotlib.figure import Figure as Drawing  # only who asks for plots needs it

    drawing = Drawing(figsize=(12, 3.6), layout="constrained")
    drawing.suptitle(part.title)
    panels = (("seconds", "time in s"), ("peak", "events held at most"), ("probes", "probes"))
    for axes, (quantity, label) in zip(drawing.subplots(1, len(panels)), panels, strict=True):
        for variant in next(iter(points.values())):
            values = [getattr(point[variant], quantity) for point in points.values()]
            axes.plot([100 * share for share in points], values, marker="o", label=LABELS[variant])
        axes.set(xlabel="traces that fail, in %", ylabel=label, ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    folder.mkdir(parents=True, exist_ok=True)
    drawing.savefig(folder / f"{name}.svg")


LABELS = {WITH: "with constraints", WITHOUT: "without (ENDS only)", WINDOW: "without (WITHIN only)"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=20_000, help="traces of about 20 events (default 20,000)")
    parser.add_argument(
        "--concurrent", type=int, default=1_000, help="traces that are open at the same time (default 1,000)"
    )
    parser.add_argument(
        "--scale", action="store_true", help="use ten times as many traces and open traces, and only 2 points"
    )
    parser.add_argument("--batch", type=int, default=2_000, help="events of a micro-batch (default 2,000)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement; the best one counts")
    parser.add_argument("--points", type=int, default=10, help="shares of failing traces, from 0 to 90 %%")
    parser.add_argument("--window", action="store_true", help="add a variant with a window and without constraints")
    parser.add_argument("--part", choices=PARTS, action="append", help="run only this part; can be repeated")
    parser.add_argument(
        "--open", type=int, nargs="*", default=(1_000, 10_000, 40_000), help="open traces whose steps are measured"
    )
    parser.add_argument("--plots", type=Path, help="folder for the plots as SVG; requires matplotlib")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    times = 10 if arguments.scale else 1
    size = Size(times * arguments.traces, times * arguments.concurrent, arguments.batch, arguments.runs)
    shares = np.linspace(0, MOST_FAILING, 2 if arguments.scale else max(2, arguments.points)).tolist()
    names = (WITH, WITHOUT, WINDOW) if arguments.window else (WITH, WITHOUT)
    measure(PARTS["q1-early"], 0.5, Size(20, 5, 100, 1), names)  # compiles what is not compiled yet
    figures: list[Figure] = []
    for name in arguments.part or PARTS:
        points = {share: measure(PARTS[name], share, size, names) for share in shares}
        figures += figures_of(PARTS[name], points)
        if name in STEP_PARTS:
            figures += step_figures(STEP_PARTS[name], points, size)
        if arguments.format == "table":
            show_points(PARTS[name], points)
        if arguments.plots:
            plot_points(name, PARTS[name], points, arguments.plots)
        for traces in arguments.open:
            figures += open_figures(PARTS[name], traces, size)
    figures += compile_figures(arguments.runs)
    give(figures, arguments.format)


if __name__ == "__main__":
    main()
